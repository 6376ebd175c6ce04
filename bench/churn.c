/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What the daemon holds before and after many sessions and connections: its descriptors and its
 * resident memory, read from /proc (as its user, or root).
 *
 *	churn [--sessions N] [--connects N] [--at-once N]
 *
 * sessions: clients made and freed one after the other; connects: endpoints connected and freed;
 * at-once: clients open at the same time, each of which does a READ (needs that many sessions in
 * the configuration, and two descriptors each here).
 */
#include <dirent.h>
#include <getopt.h>
#include <sys/resource.h>
#include <unistd.h>

#include "bench/bench.h"

static unsigned long sessions = 10000, connects = 10000, at_once = 1000;
static int daemon_pid;

/* ---- the daemon from outside */

static long count_fds(void)
{
	struct dirent *e;
	char path[64];
	long n = 0;
	DIR *d;

	snprintf(path, sizeof(path), "/proc/%d/fd", daemon_pid);
	d = opendir(path);
	if (!d) {
		fprintf(stderr, "%s: %s (run as the daemon's user, or root)\n", path,
			strerror(errno));
		exit(1);
	}
	while ((e = readdir(d)))
		n += e->d_name[0] != '.';
	closedir(d);
	return n;
}

static long rss_kib(void)
{
	char path[64], line[256];
	long kib = -1;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/status", daemon_pid);
	f = fopen(path, "r");
	while (f && fgets(line, sizeof(line), f))
		if (sscanf(line, "VmRSS: %ld", &kib) == 1)
			break;
	if (f)
		fclose(f);
	return kib;
}

struct held {
	long fds, kib;
};

static struct held held(void)
{
	return (struct held){ count_fds(), rss_kib() };
}

/* What ended a moment ago is undone by helpers: waits for the descriptors, 10 s at most. */
static struct held settled(long fds)
{
	struct held h = held();

	for (int i = 0; i < 1000 && h.fds > fds; i++) {
		usleep(10000);
		h = held();
	}
	return h;
}

static int report(const char *what, unsigned long n, struct held before, double seconds)
{
	struct held after = settled(before.fds);

	printf("%lu %s in %.1f s: descriptors %ld before, %ld after; resident %ld KiB before, "
	       "%ld KiB after\n",
	       n, what, seconds, before.fds, after.fds, before.kib, after.kib);
	return after.fds > before.fds;
}

/* ---- the work */

static void make_sessions(unsigned long n)
{
	for (unsigned long i = 0; i < n; i++) {
		struct xfer_client *c;

		bench_check(xfer_client_new(NULL, &c), "client");
		xfer_client_free(c);
	}
}

/* One pair of clients, connected and taken apart again and again. */
static void make_connects(unsigned long n)
{
	struct bench_pair p;
	char url[128];

	bench_connect(&p, NULL);
	snprintf(url, sizeof(url), "xfer://%s/", xfer_listener_address(p.listener));
	for (unsigned long i = 0; i < n; i++) {
		struct xfer_ep *here, *there;
		struct xfer_event e;

		bench_check(xfer_ep_new(p.user, url, NULL, &here), "endpoint");
		bench_expect(p.user, XFER_EVENT_READY);
		bench_check(xfer_connect(here, NULL, 0), "connect");
		e = bench_expect(p.owner, XFER_EVENT_CONNECT_REQUEST);
		bench_check(xfer_ep_new_answer(p.owner, e.request, NULL, &there), "answer");
		bench_expect(p.owner, XFER_EVENT_READY);
		bench_check(xfer_accept(there, NULL, 0), "accept");
		bench_expect(p.owner, XFER_EVENT_CONNECTED);
		bench_expect(p.user, XFER_EVENT_CONNECTED);
		xfer_ep_free(here);
		xfer_ep_free(there);
	}
	bench_disconnect(&p);
}

static void read_page(void)
{
	struct xfer_buf *from, *to;
	struct bench_pair p;
	struct xfer_event g;
	struct iovec v;

	bench_connect(&p, NULL);
	bench_check(xfer_buf_new(p.owner, 4096, 0, &from), "buffer");
	bench_check(xfer_buf_new(p.user, 4096, 0, &to), "buffer");
	memset(xfer_buf_data(from), 'x', 4096);
	g = bench_grant(&p, xfer_buf_data(from), 4096, XFER_GRANT_READ);
	v = (struct iovec){ xfer_buf_data(to), 4096 };
	bench_check(xfer_post_read(p.user_ep, &v, 1, &g.token, 1, 0, 0, NULL), "read");
	bench_expect(p.user, XFER_EVENT_COMPLETION);
	if (memcmp(xfer_buf_data(from), xfer_buf_data(to), 4096) != 0) {
		fprintf(stderr, "the bytes differ\n");
		exit(1);
	}
	bench_disconnect(&p);
}

static void hold_sessions(unsigned long n)
{
	struct xfer_client **c = calloc(n + 1, sizeof(struct xfer_client *));

	if (!c)
		exit(1);
	for (unsigned long i = 0; i < n; i++)
		bench_check(xfer_client_new(NULL, &c[i]), "client");
	read_page(); /* the daemon still does its work */
	for (unsigned long i = 0; i < n; i++)
		xfer_client_free(c[i]);
	free(c);
}

static int churn(const char *what, void (*work)(unsigned long n), unsigned long n)
{
	struct held before;
	double begin;

	if (n == 0)
		return 0;
	/* Once in small and once in full: what the daemon keeps for ever it has then. */
	work(n / 4 + 1);
	usleep(200000);
	work(n);
	usleep(200000);
	before = held();
	begin = bench_now();
	work(n);
	return report(what, n, before, bench_now() - begin);
}

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{ "sessions", required_argument, NULL, 's' },
		{ "connects", required_argument, NULL, 'c' },
		{ "at-once", required_argument, NULL, 'a' },
		{ NULL, 0, NULL, 0 },
	};
	struct rlimit files;
	int c, worse = 0;

	while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
		unsigned long n = optarg ? strtoul(optarg, NULL, 0) : 0;

		if (c == 's')
			sessions = n;
		else if (c == 'c')
			connects = n;
		else if (c == 'a')
			at_once = n;
		else
			return 2;
	}
	if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
		files.rlim_cur = files.rlim_max;
		setrlimit(RLIMIT_NOFILE, &files);
	}
	daemon_pid = bench_daemon_pid();
	if (daemon_pid < 0)
		return 1;
	worse |= churn("sessions one after the other", make_sessions, sessions);
	worse |= churn("connections one after the other", make_connects, connects);
	worse |= churn("sessions at once", hold_sessions, at_once);
	if (worse)
		fprintf(stderr, "the daemon holds more descriptors than before\n");
	return worse;
}
