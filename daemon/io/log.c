/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The journal's macros would add this file as the origin of every entry. */
#define SD_JOURNAL_SUPPRESS_LOCATION 1
#include "daemon/io/log.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <systemd/sd-journal.h>
#include <unistd.h>

/* Uids whose entries are counted at a time; the one that was quiet for longest makes room. */
#define UIDS_MAX 64

struct uid_window {
	uint32_t uid;
	bool used;
	uint64_t since_ns;
	unsigned written, dropped;
};

struct xd_logger {
	enum xd_log_target target;
	enum xd_priority least;
	struct uid_window uids[UIDS_MAX];
	void (*line)(void *arg, const char *text);
	void *arg;
};

/*
 * systemd names the device and inode of the stream that it connected to stderr, see
 * systemd.exec(5).
 */
static bool stderr_is_journal(void)
{
	const char *stream = getenv("JOURNAL_STREAM");
	uintmax_t dev, ino;
	struct stat st;

	return stream && sscanf(stream, "%" SCNuMAX ":%" SCNuMAX, &dev, &ino) == 2 &&
	       fstat(STDERR_FILENO, &st) == 0 && st.st_dev == dev && st.st_ino == ino;
}

int xd_logger_new(enum xd_log_target target, struct xd_logger **ret)
{
	struct xd_logger *l = calloc(1, sizeof(*l));

	if (!l)
		return -ENOMEM;
	if (target == XD_LOG_AUTO) {
		if (stderr_is_journal())
			target = XD_LOG_JOURNAL;
		else
			target = isatty(STDERR_FILENO) ? XD_LOG_PLAIN : XD_LOG_PREFIXED;
	}
	l->target = target;
	l->least = XD_INFO;
	*ret = l;
	return 0;
}

void xd_logger_free(struct xd_logger *l)
{
	free(l);
}

void xd_logger_set_level(struct xd_logger *l, enum xd_priority least)
{
	l->least = least;
}

void xd_logger_capture(struct xd_logger *l, void (*line)(void *arg, const char *text), void *arg)
{
	l->line = line;
	l->arg = arg;
}

/* Adds FIELD=value. buf must live until the entry is sent. */
static void __attribute__((format(printf, 5, 6)))
field(struct iovec *iov, int *n, char *buf, size_t size, const char *format, ...)
{
	va_list ap;
	int len;

	va_start(ap, format);
	len = vsnprintf(buf, size, format, ap);
	va_end(ap);
	if (len < 0)
		return;
	iov[*n].iov_base = buf;
	iov[*n].iov_len = (size_t)len < size ? (size_t)len : size - 1;
	++*n;
}

static void to_journal(const struct xd_log *a, const char *text)
{
	char message[XD_LOG_TEXT_MAX + 16], id[64], device[128];
	char priority[16], session[48], uid[48], endpoint[32];
	struct iovec iov[8];
	int n = 0;

	field(iov, &n, message, sizeof(message), "MESSAGE=%s", text);
	field(iov, &n, priority, sizeof(priority), "PRIORITY=%d", a->priority);
	if (a->message_id)
		field(iov, &n, id, sizeof(id), "MESSAGE_ID=%s", a->message_id);
	if (a->session) {
		field(iov, &n, session, sizeof(session), "XFER_SESSION=%" PRIu64, a->session);
		field(iov, &n, uid, sizeof(uid), "XFER_CLIENT_UID=%" PRId64, a->client_uid);
	}
	if (a->endpoint)
		field(iov, &n, endpoint, sizeof(endpoint), "XFER_ENDPOINT=%" PRIu32, a->endpoint);
	if (a->device)
		field(iov, &n, device, sizeof(device), "XFER_DEVICE=%s", a->device);
	sd_journal_sendv(iov, n);
}

static void to_stderr(struct xd_logger *l, const struct xd_log *a, const char *text)
{
	char line[XD_LOG_TEXT_MAX + 32];

	/* The fields are for the journal; the sentence names what it is about by itself. */
	if (l->target == XD_LOG_PREFIXED)
		snprintf(line, sizeof(line), "<%d>%s\n", a->priority, text);
	else
		snprintf(line, sizeof(line), "rdmaxferd: %s\n", text);
	if (l->line) {
		l->line(l->arg, line);
		return;
	}
	/*
	 * One write, so that lines of several processes do not mix; where it fails there is
	 * nobody to tell.
	 */
	if (write(STDERR_FILENO, line, strlen(line)) < 0)
		return;
}

static void emit(struct xd_logger *l, const struct xd_log *a, const char *text)
{
	if (l->target == XD_LOG_JOURNAL && !l->line)
		to_journal(a, text);
	else
		to_stderr(l, a, text);
}

static void tell_dropped(struct xd_logger *l, const struct uid_window *w)
{
	char text[128];

	if (!w->dropped)
		return;
	snprintf(text, sizeof(text), "%u log entries caused by uid %" PRIu32 " were dropped.",
		 w->dropped, w->uid);
	emit(l, &(struct xd_log){ .priority = XD_WARNING }, text);
}

static struct uid_window *window_of(struct xd_logger *l, uint32_t uid, uint64_t now_ns)
{
	struct uid_window *oldest = &l->uids[0];

	for (int i = 0; i < UIDS_MAX; i++) {
		struct uid_window *w = &l->uids[i];

		if (w->used && w->uid == uid)
			return w;
		if (oldest->used && (!w->used || w->since_ns < oldest->since_ns))
			oldest = w;
	}
	tell_dropped(l, oldest);
	*oldest = (struct uid_window){ .uid = uid, .used = true, .since_ns = now_ns };
	return oldest;
}

/* May another entry of this uid be written? */
static bool within_bound(struct xd_logger *l, uint32_t uid, uint64_t now_ns)
{
	struct uid_window *w = window_of(l, uid, now_ns);

	if (now_ns - w->since_ns >= XD_LOG_WINDOW_NS) {
		tell_dropped(l, w);
		w->since_ns = now_ns;
		w->written = w->dropped = 0;
	}
	if (w->written >= XD_LOG_BURST) {
		w->dropped++;
		return false;
	}
	w->written++;
	return true;
}

/* A client's words may be in the sentence: it stays one line, and drives no terminal. */
static void make_printable(char *text)
{
	for (; *text; text++) {
		if ((unsigned char)*text < 0x20 || *text == 0x7f)
			*text = ' ';
	}
}

void xd_logger_write(struct xd_logger *l, uint64_t now_ns, const struct xd_log *about,
		     const char *format, va_list ap)
{
	static const struct xd_log nothing = { .priority = XD_INFO };
	char text[XD_LOG_TEXT_MAX];

	if (!about)
		about = &nothing;
	if (!l || about->priority > l->least)
		return;
	if (about->client_caused && !within_bound(l, (uint32_t)about->client_uid, now_ns))
		return;
	if (vsnprintf(text, sizeof(text), format, ap) < 0)
		return;
	make_printable(text);
	emit(l, about, text);
}

void xd_logger_say(struct xd_logger *l, enum xd_priority priority, const char *format, ...)
{
	va_list ap;

	va_start(ap, format);
	xd_logger_write(l, 0, &(struct xd_log){ .priority = priority }, format, ap);
	va_end(ap);
}
