/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Two clients that mind their own business: one READs 64 KiB of the other, again and again, and
 * verifies every byte, while tests abuse the daemon beside them. Prints "ready" when it has
 * begun; at SIGUSR1, and at SIGTERM before it ends, the worst latency since the last such line.
 * Whatever goes wrong ends it with status 1 and a sentence.
 */
#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <xferclient.h>

#define PIECE_BYTES 65536
/* Enough to be there whenever something happens, and to leave a small machine to the tests. */
#define PAUSE_US 1000
#define TIMEOUT_MS 30000

static volatile sig_atomic_t lap, stop;

static void on_signal(int signum)
{
	if (signum == SIGUSR1)
		lap = 1;
	else
		stop = 1;
}

static void __attribute__((noreturn, format(printf, 1, 2))) die(const char *format, ...)
{
	const char *text;
	int status = xfer_last_error(&text);
	va_list ap;

	va_start(ap, format);
	vprintf(format, ap);
	va_end(ap);
	printf("; the last error: %s: %s\n", xfer_strerror(status), text);
	exit(1);
}

static uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000 + (uint64_t)ts.tv_nsec;
}

/* The next event of that type. Signals only set flags, which the caller looks at afterwards. */
static void wait_event(struct xfer_client *client, enum xfer_event_type type,
		       struct xfer_event *ret_event)
{
	uint64_t end_ns = now_ns() + TIMEOUT_MS * UINT64_C(1000000);

	do {
		int n = xfer_poll(client, ret_event, 1, 1000);

		if (n < 0 && n != -EINTR)
			die("poll failed: %d", n);
		if (n <= 0)
			continue;
		if (ret_event->status)
			die("event %d: %s: %s", (int)ret_event->type,
			    xfer_strerror(ret_event->status), ret_event->text);
		if (ret_event->type == type)
			return;
		if (ret_event->type != XFER_EVENT_READY)
			die("event %d, expected %d", (int)ret_event->type, (int)type);
	} while (now_ns() < end_ns);
	die("no event %d in time", (int)type);
}

static struct xfer_client *new_client(const char *name)
{
	struct xfer_client_options options = {
		.size = sizeof(options),
		.name = name,
	};
	struct xfer_client *client;

	if (xfer_client_new(&options, &client))
		die("no client");
	return client;
}

/* Connects reader to owner. */
static void join(struct xfer_client *owner, struct xfer_client *reader,
		 struct xfer_ep **ret_owner_ep, struct xfer_ep **ret_reader_ep)
{
	struct xfer_listener *listener;
	struct xfer_event event;
	const char *host = getenv("XFER_TEST_ADDRESS");
	char url[160], address[80];

	snprintf(address, sizeof(address), "%s:0", host ? host : "127.0.0.1");
	if (xfer_listen(owner, address, NULL, &listener))
		die("cannot listen at %s", address);
	snprintf(url, sizeof(url), "xfer://%s", xfer_listener_address(listener));
	if (xfer_ep_new(reader, url, NULL, ret_reader_ep) ||
	    xfer_ep_wait(*ret_reader_ep, XFER_EP_READY, TIMEOUT_MS) ||
	    xfer_connect(*ret_reader_ep, NULL, 0))
		die("cannot connect to %s", url);
	wait_event(owner, XFER_EVENT_CONNECT_REQUEST, &event);
	if (xfer_ep_new_answer(owner, event.request, NULL, ret_owner_ep) ||
	    xfer_ep_wait(*ret_owner_ep, XFER_EP_READY, TIMEOUT_MS) ||
	    xfer_accept(*ret_owner_ep, NULL, 0))
		die("cannot accept");
	wait_event(owner, XFER_EVENT_CONNECTED, &event);
	wait_event(reader, XFER_EVENT_CONNECTED, &event);
	xfer_listener_free(listener);
}

/* The completion of a GRANT: its token, and its number. */
static struct xfer_event grant(struct xfer_client *owner, struct xfer_ep *ep, const void *memory)
{
	struct xfer_event event;

	if (xfer_grant(ep, memory, PIECE_BYTES, XFER_GRANT_READ, 0, 1, 0, NULL))
		die("cannot grant");
	wait_event(owner, XFER_EVENT_COMPLETION, &event);
	return event;
}

/* What shows memory as it was when it was granted is granted anew. */
static void refresh(struct xfer_client *owner, struct xfer_ep *ep, const void *memory,
		    struct xfer_event *granted)
{
	struct xfer_ep_info info = { .size = sizeof(info) };
	struct xfer_event event;

	if (xfer_ep_info(ep, &info))
		die("no info");
	if (!info.grant_snapshot)
		return;
	if (xfer_revoke(ep, granted->grant, 3, 0, NULL))
		die("cannot revoke");
	wait_event(owner, XFER_EVENT_COMPLETION, &event);
	*granted = grant(owner, ep, memory);
}

static void fill(uint64_t *words, uint64_t seed)
{
	for (size_t i = 0; i < PIECE_BYTES / sizeof(*words); i++)
		words[i] = seed + i * UINT64_C(0x9e3779b97f4a7c15);
}

static void report(uint64_t *worst_ns, uint64_t *transfers)
{
	printf("worst latency %llu us, %llu transfers\n", (unsigned long long)(*worst_ns / 1000),
	       (unsigned long long)*transfers);
	*worst_ns = 0;
	*transfers = 0;
	lap = 0;
}

static void transfer(struct xfer_client *reader, struct xfer_ep *ep, void *memory,
		     const struct xfer_token *token)
{
	struct iovec local = { .iov_base = memory, .iov_len = PIECE_BYTES };
	struct xfer_event event;

	if (xfer_post_read(ep, &local, 1, token, 1, 2, 0, NULL))
		die("cannot post a READ");
	wait_event(reader, XFER_EVENT_COMPLETION, &event);
	if (event.byte_len != PIECE_BYTES)
		die("a READ of %llu bytes", (unsigned long long)event.byte_len);
}

static void run(struct xfer_client *owner, struct xfer_client *reader, struct xfer_ep *owner_ep,
		struct xfer_ep *reader_ep)
{
	const char *slow = getenv("XFER_TEST_SLOW");
	const unsigned int times = slow ? (unsigned int)atoi(slow) : 1;
	/* There a transfer takes as many times as long, and so does what the tests do beside it. */
	const unsigned int pause_us = PAUSE_US * times * times;
	uint64_t worst_ns = 0, transfers = 0, seed = 0;
	struct xfer_buf *source, *sink;
	struct xfer_event granted;

	if (xfer_buf_new(owner, PIECE_BYTES, 0, &source) ||
	    xfer_buf_new(reader, PIECE_BYTES, 0, &sink))
		die("no buffer");
	granted = grant(owner, owner_ep, xfer_buf_data(source));
	printf("ready\n");
	while (!stop) {
		uint64_t begin_ns, took_ns;

		fill(xfer_buf_data(source), seed++);
		refresh(owner, owner_ep, xfer_buf_data(source), &granted);
		begin_ns = now_ns();
		transfer(reader, reader_ep, xfer_buf_data(sink), &granted.token);
		took_ns = now_ns() - begin_ns;
		if (took_ns > worst_ns)
			worst_ns = took_ns;
		transfers++;
		if (memcmp(xfer_buf_data(source), xfer_buf_data(sink), PIECE_BYTES))
			die("the bytes of transfer %llu are wrong", (unsigned long long)seed);
		if (lap)
			report(&worst_ns, &transfers);
		usleep(pause_us);
	}
	report(&worst_ns, &transfers);
}

int main(void)
{
	struct sigaction action = { .sa_handler = on_signal };
	struct xfer_client *owner, *reader;
	struct xfer_ep *owner_ep, *reader_ep;

	setvbuf(stdout, NULL, _IOLBF, 0);
	sigaction(SIGUSR1, &action, NULL);
	sigaction(SIGTERM, &action, NULL);
	owner = new_client("bystander owner");
	reader = new_client("bystander reader");
	join(owner, reader, &owner_ep, &reader_ep);
	run(owner, reader, owner_ep, reader_ep);
	xfer_client_free(reader);
	xfer_client_free(owner);
	return 0;
}
