/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#define _GNU_SOURCE 1 /* asprintf, mkostemp */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/checked.h"
#include "common/cleanup.h"
#include "daemon/fabric/verbs/selftest.h"

/*
 * Findings in a file of the state directory. It is text, and only one text is right: that which
 * would be written for this identity and the findings in it. So nothing of a file is believed that
 * is cut short, has been edited, or comes from another version; it is measured again.
 *
 * The sum at its end is against damage, not against an enemy: who can write to the state directory
 * is the daemon.
 */

#define FIRST_LINE "rdmaxferd self-test 2\n"
#define FILE_MAX_BYTES 8192

struct text {
	char bytes[FILE_MAX_BYTES];
	size_t n;
	bool full;
};

__attribute__((format(printf, 2, 3))) static void add(struct text *t, const char *format, ...)
{
	const size_t room = sizeof(t->bytes) - t->n;
	va_list ap;
	int n;

	va_start(ap, format);
	n = vsnprintf(t->bytes + t->n, room, format, ap);
	va_end(ap);
	if (n < 0 || (size_t)n >= room)
		t->full = true;
	else
		t->n += (size_t)n;
}

/* FNV-1a. */
static uint64_t sum(const char *bytes, size_t n)
{
	uint64_t h = UINT64_C(0xcbf29ce484222325);

	for (size_t i = 0; i < n; i++)
		h = (h ^ (unsigned char)bytes[i]) * UINT64_C(0x100000001b3);
	return h;
}

static void add_identity(struct text *t, const struct verbs_identity *i)
{
	add(t, "device %s\ndriver %s\nkernel %s\nfirmware %s\nrdma-core %s\n", i->device, i->driver,
	    i->kernel, i->firmware, i->rdma_core);
}

static void add_findings(struct text *t, const struct verbs_findings *f)
{
	const struct fabric_costs *c = &f->costs;

	add(t, "duration_ms %" PRIu32 "\nmax_inline %" PRIu32 "\n", f->duration_ms, f->max_inline);
	add(t, "costs_ns %" PRIu32 " %" PRIu32 " %" PRIu32 " %" PRIu32, c->wr_ns, c->reg_ns,
	    c->reg_page_ns, c->bind_ns);
	add(t, " %" PRIu32 " %" PRIu32 " %" PRIu32 "\n", c->copy_ns, c->copy_kib_ns,
	    c->copy_cold_kib_ns);
	for (int q = 0; q < VERBS_N_QUESTIONS; q++)
		add(t, "%s %s %d\n", verbs_question_name((enum verbs_question)q),
		    verbs_answer_name(f->q[q].answer), f->q[q].status);
	add(t, "sum %016" PRIx64 "\n", sum(t->bytes, t->n));
}

/* A line that begins with `name` and a space; *at moves behind it. NULL: it does not. */
static const char *take_line(char **at, const char *name)
{
	const size_t n = strlen(name);
	char *end = strchr(*at, '\n'), *value;

	if (!end || strncmp(*at, name, n) != 0 || (*at)[n] != ' ')
		return NULL;
	value = *at + n + 1;
	*end = '\0';
	*at = end + 1;
	return value;
}

static bool parse_finding(const char *value, struct verbs_finding *ret)
{
	for (int a = VERBS_UNASKED; a <= VERBS_YES; a++) {
		const char *name = verbs_answer_name((enum verbs_answer)a);
		const size_t n = strlen(name);

		if (strncmp(value, name, n) != 0 || value[n] != ' ')
			continue;
		ret->answer = (enum verbs_answer)a;
		ret->status = atoi(value + n + 1);
		return true;
	}
	return false;
}

/* Not those of keys over ranges: a device has none. */
static bool parse_costs(const char *value, struct fabric_costs *ret)
{
	uint32_t *const all[] = { &ret->wr_ns, &ret->reg_ns, &ret->reg_page_ns, &ret->bind_ns,
				  &ret->copy_ns, &ret->copy_kib_ns, &ret->copy_cold_kib_ns };
	char *end;

	for (size_t i = 0; i < XC_ARRAY_SIZE(all); i++, value = end) {
		*all[i] = (uint32_t)strtoul(value, &end, 10);
		if (end == value)
			return false;
	}
	return true;
}

/* Roughly: the caller compares with what would be written. */
static bool parse_findings(char *at, struct verbs_findings *ret)
{
	const char *value = take_line(&at, "duration_ms");

	if (!value)
		return false;
	ret->duration_ms = (uint32_t)strtoul(value, NULL, 10);
	value = take_line(&at, "max_inline");
	if (!value)
		return false;
	ret->max_inline = (uint32_t)strtoul(value, NULL, 10);
	value = take_line(&at, "costs_ns");
	if (!value || !parse_costs(value, &ret->costs))
		return false;
	for (int q = 0; q < VERBS_N_QUESTIONS; q++) {
		value = take_line(&at, verbs_question_name((enum verbs_question)q));
		if (!value || !parse_finding(value, &ret->q[q]))
			return false;
	}
	ret->complete = true;
	return true;
}

static void write_head(struct text *t, const struct verbs_identity *identity)
{
	t->n = 0;
	t->full = false;
	add(t, "%s", FIRST_LINE);
	add_identity(t, identity);
}

/* One file a device, the latest. A name with a slash is none of a device. */
static int path_of(const char *directory, const struct verbs_identity *identity, char **ret)
{
	if (!identity->device[0] || strchr(identity->device, '/'))
		return -EINVAL;
	return asprintf(ret, "%s/selftest-%s", directory, identity->device) < 0 ? -ENOMEM : 0;
}

static int read_file(const char *path, char *ret, size_t size, size_t *ret_n)
{
	xc_auto_close int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	struct stat st;
	size_t n = 0;
	ssize_t r;

	if (fd < 0)
		return errno == ELOOP ? -EBADMSG : -errno;
	if (fstat(fd, &st) < 0)
		return -errno;
	if (!S_ISREG(st.st_mode) || st.st_size >= (off_t)size)
		return -EBADMSG;
	while (n < size && (r = read(fd, ret + n, size - n)) != 0) {
		if (r > 0)
			n += (size_t)r;
		else if (errno != EINTR)
			return -errno;
	}
	if (n == size)
		return -EBADMSG;
	*ret_n = n;
	return 0;
}

int verbs_cache_load(const char *directory, const struct verbs_identity *identity,
		     struct verbs_findings *ret)
{
	xc_auto_free char *path = NULL;
	char got[FILE_MAX_BYTES], work[FILE_MAX_BYTES];
	struct verbs_findings f = { 0 };
	struct text want;
	size_t n = 0;
	int r;

	r = path_of(directory, identity, &path);
	if (r == 0)
		r = read_file(path, got, sizeof(got), &n);
	if (r)
		return r;
	write_head(&want, identity);
	if (want.full || n < want.n)
		return -EBADMSG;
	if (memcmp(got, want.bytes, want.n) != 0)
		return strncmp(got, FIRST_LINE, strlen(FIRST_LINE)) == 0 ? -ESTALE : -EBADMSG;
	memcpy(work, got, n);
	work[n] = '\0';
	if (!parse_findings(work + want.n, &f))
		return -EBADMSG;
	add_findings(&want, &f);
	if (want.full || want.n != n || memcmp(got, want.bytes, n) != 0)
		return -EBADMSG;
	*ret = f;
	return 0;
}

static int write_all(int fd, const char *bytes, size_t n)
{
	while (n > 0) {
		ssize_t r = write(fd, bytes, n);

		if (r < 0 && errno != EINTR)
			return -errno;
		if (r > 0) {
			bytes += r;
			n -= (size_t)r;
		}
	}
	return fsync(fd) < 0 ? -errno : 0;
}

static int replace_file(const char *path, const struct text *t)
{
	xc_auto_free char *new_path = NULL;
	xc_auto_close int fd = -1;
	int r;

	if (asprintf(&new_path, "%s.XXXXXX", path) < 0)
		return -ENOMEM;
	fd = mkostemp(new_path, O_CLOEXEC);
	if (fd < 0)
		return -errno;
	r = write_all(fd, t->bytes, t->n);
	if (r == 0 && rename(new_path, path) < 0)
		r = -errno;
	if (r)
		unlink(new_path);
	return r;
}

int verbs_cache_store(const char *directory, const struct verbs_identity *identity,
		      const struct verbs_findings *findings)
{
	xc_auto_free char *path = NULL;
	struct text t;
	int r;

	if (!findings->complete)
		return -EAGAIN;
	r = path_of(directory, identity, &path);
	if (r)
		return r;
	write_head(&t, identity);
	add_findings(&t, findings);
	return t.full ? -EMSGSIZE : replace_file(path, &t);
}
