/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef BENCH_H
#define BENCH_H

/* What the programs of this folder share: failing, time, two clients that are connected. */

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include <xferclient.h>

#define BENCH_WAIT_MS 30000

static inline void bench_check(int status, const char *what)
{
	const char *why;

	if (status >= 0)
		return;
	xfer_last_error(&why);
	fprintf(stderr, "%s: %s: %s\n", what, xfer_strerror(status), why);
	exit(1);
}

static inline double bench_now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static inline int bench_poll(struct xfer_client *client, struct xfer_event *events, int max)
{
	int n;

	do
		n = xfer_poll(client, events, max, BENCH_WAIT_MS);
	while (n == -EINTR);
	bench_check(n, "poll");
	if (n == 0) {
		fprintf(stderr, "no event in %d seconds\n", BENCH_WAIT_MS / 1000);
		exit(1);
	}
	for (int i = 0; i < n; i++) {
		if (events[i].status == 0)
			continue;
		fprintf(stderr, "event %d, wr_id %llu: %s\n", (int)events[i].type,
			(unsigned long long)events[i].wr_id, events[i].text);
		exit(1);
	}
	return n;
}

static inline struct xfer_event bench_expect(struct xfer_client *client, enum xfer_event_type type)
{
	struct xfer_event e;

	bench_poll(client, &e, 1);
	if (e.type != type) {
		fprintf(stderr, "event %d where %d was expected\n", (int)e.type, (int)type);
		exit(1);
	}
	return e;
}

/* Two clients, and an endpoint of each that lead to each other. */
struct bench_pair {
	struct xfer_client *owner, *user;
	struct xfer_listener *listener;
	struct xfer_ep *owner_ep, *user_ep;
};

static inline void bench_connect(struct bench_pair *p, const struct xfer_ep_options *options)
{
	struct xfer_event e;
	char url[128];

	bench_check(xfer_client_new(NULL, &p->owner), "client");
	bench_check(xfer_client_new(NULL, &p->user), "client");
	bench_check(xfer_listen(p->owner, "127.0.0.1:0", NULL, &p->listener), "listen");
	snprintf(url, sizeof(url), "xfer://%s/", xfer_listener_address(p->listener));
	bench_check(xfer_ep_new(p->user, url, options, &p->user_ep), "endpoint");
	bench_expect(p->user, XFER_EVENT_READY);
	bench_check(xfer_connect(p->user_ep, NULL, 0), "connect");
	e = bench_expect(p->owner, XFER_EVENT_CONNECT_REQUEST);
	bench_check(xfer_ep_new_answer(p->owner, e.request, options, &p->owner_ep), "answer");
	bench_expect(p->owner, XFER_EVENT_READY);
	bench_check(xfer_accept(p->owner_ep, NULL, 0), "accept");
	bench_expect(p->owner, XFER_EVENT_CONNECTED);
	bench_expect(p->user, XFER_EVENT_CONNECTED);
}

static inline void bench_disconnect(struct bench_pair *p)
{
	xfer_client_free(p->user);
	xfer_client_free(p->owner);
}

/* The owner lets the user READ or WRITE these bytes. */
static inline struct xfer_event bench_grant(struct bench_pair *p, const void *memory,
					    uint64_t bytes, unsigned int access)
{
	bench_check(xfer_grant(p->owner_ep, memory, bytes, access, 0, 0, 0, NULL), "grant");
	return bench_expect(p->owner, XFER_EVENT_COMPLETION);
}

/* "64K", "1M", "2G", or plain; exits where it is no size from 1 to 2^40. */
static inline uint64_t bench_size(const char *text)
{
	unsigned long long v;
	char *end;

	errno = 0;
	v = strtoull(text, &end, 10);
	if (*end == 'K')
		v <<= 10;
	else if (*end == 'M')
		v <<= 20;
	else if (*end == 'G')
		v <<= 30;
	if (errno || *text < '0' || *text > '9' || (*end && end[1]) ||
	    (*end && !strchr("KMG", *end)) || v == 0 || v > 1ull << 40) {
		fprintf(stderr, "%s: not a size\n", text);
		exit(2);
	}
	return v;
}

/* SO_PEERCRED of a connected socket names the process that listens. -1, and why on stderr. */
static inline int bench_daemon_pid(void)
{
	const char *env = getenv("XFER_SOCKET"), *path = env ? env : "/run/rdmaxferd/client/sock";
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	int sock = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	struct {
		int pid;
		unsigned int uid, gid;
	} cred = { .pid = -1 };
	socklen_t size = sizeof(cred);

	snprintf(a.sun_path, sizeof(a.sun_path), "%.100s", path);
	if (sock < 0 || connect(sock, (struct sockaddr *)&a, sizeof(a)) < 0 ||
	    getsockopt(sock, SOL_SOCKET, SO_PEERCRED, &cred, &size) < 0)
		fprintf(stderr, "%s: %s\n", path, strerror(errno));
	if (sock >= 0)
		close(sock);
	return cred.pid;
}

#endif
