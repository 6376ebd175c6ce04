/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * How fast transfers between two clients of one daemon are, next to memcpy(3) between the same two
 * memory files in the same run: the two take turns, so that what disturbs the machine disturbs
 * both.
 *
 *	transfer [--ops read,write,send] [--size BYTES] [--depth N] [--working-set BYTES]
 *	         [--count N] [--turns N] [--json]
 *
 * size is of one transfer, depth how many are in flight, the working set what is walked through on
 * each side (default 64 MiB; transfers and memcpy walk alike), count how many transfers a turn has
 * (default: the working set twice). Sizes may end in K, M or G.
 */
#include <getopt.h>
#include <math.h>
#include <pthread.h>
#include <stdbool.h>

#include "bench/bench.h"

static struct {
	const char *ops;
	uint64_t size, working_set, count;
	unsigned int depth, turns;
	bool json;
} opt = { .ops = "read,write", .size = 1u << 20, .depth = 8, .working_set = 64u << 20, .turns = 5 };

static struct bench_pair pair;
static struct xfer_buf *owner_buf, *user_buf;
static uint64_t slots; /* places of one transfer in the working set */

static char *at(struct xfer_buf *buf, uint64_t i)
{
	return (char *)xfer_buf_data(buf) + i % slots * opt.size;
}

/* ---- processor time */

static int daemon_pid;

/* Of the daemon's main thread, which copies. Not a number where it cannot be read. */
static double daemon_cpu(void)
{
	unsigned long long ns;
	char path[64];
	FILE *f;
	int n;

	snprintf(path, sizeof(path), "/proc/%d/schedstat", daemon_pid);
	f = fopen(path, "r");
	if (!f)
		return NAN;
	n = fscanf(f, "%llu", &ns);
	fclose(f);
	return n == 1 ? (double)ns / 1e9 : NAN;
}

static double own_cpu(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* ---- the yardstick */

static double copy(bool to_user)
{
	double begin = bench_now();

	for (uint64_t i = 0; i < opt.count; i++) {
		char *u = at(user_buf, i), *o = at(owner_buf, i);

		memcpy(to_user ? u : o, to_user ? o : u, opt.size);
		__asm__ volatile("" : : "r"(u), "r"(o) : "memory");
	}
	return bench_now() - begin;
}

/* ---- transfers */

enum op { OP_READ, OP_WRITE, OP_SEND };
static const char *const op_names[] = { "read", "write", "send" };

static int post(enum op op, const struct xfer_token *window, uint64_t i, unsigned int flags)
{
	struct xfer_token t = { window->address + i % slots * opt.size, (uint32_t)opt.size,
				window->rkey };
	struct iovec v = { at(user_buf, i), opt.size };

	if (op == OP_READ)
		return xfer_post_read(pair.user_ep, &v, 1, &t, 1, i, flags, NULL);
	if (op == OP_WRITE)
		return xfer_post_write(pair.user_ep, &v, 1, &t, 1, i, flags, NULL);
	return xfer_post_send(pair.user_ep, &v, 1, i, flags, NULL);
}

/* Keeps depth transfers in flight until count are done. */
static double run(enum op op, const struct xfer_token *window)
{
	struct xfer_event events[64];
	uint64_t posted = 0, done = 0;
	double begin = bench_now();

	while (done < opt.count) {
		while (posted < opt.count && posted - done < opt.depth) {
			bool last = posted + 1 == opt.count || posted + 1 - done == opt.depth;

			bench_check(post(op, window, posted++, last ? 0 : XFER_MORE), "post");
		}
		done += (uint64_t)bench_poll(pair.user, events, 64);
	}
	return bench_now() - begin;
}

/* The other end of SENDs: puts each message where a copy would have put it. */
static void *receive(void *arg)
{
	uint64_t posted = 0, done = 0;
	struct xfer_event events[64];

	(void)arg;
	while (done < opt.count * (opt.turns + 1)) {
		while (posted - done < opt.depth) {
			struct iovec v = { at(owner_buf, posted), opt.size };

			bench_check(xfer_post_recv(pair.owner_ep, &v, 1, posted++, 0, NULL),
				    "recv");
		}
		done += (uint64_t)bench_poll(pair.owner, events, 64);
	}
	return NULL;
}

/* ---- what came of it */

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static double median(double *v, unsigned int n)
{
	qsort(v, n, sizeof(*v), compare);
	return v[n / 2];
}

static void print(enum op op, double seconds, double copy_seconds, double cpu_ratio, bool first)
{
	double bytes = (double)opt.size * (double)opt.count;
	char cpu[32] = "null";

	if (!isnan(cpu_ratio))
		snprintf(cpu, sizeof(cpu), "%.2f", cpu_ratio);
	if (opt.json)
		printf(
			"%s{\"op\":\"%s\",\"size_bytes\":%llu,\"depth\":%u,\"working_set_bytes\":%llu,"
		       "\"count\":%llu,\"transfers_per_second\":%.0f,\"bytes_per_second\":%.0f,"
		       "\"memcpy_bytes_per_second\":%.0f,\"ratio\":%.3f,\"cpu_ratio\":%s}",
		       first ? "[" : ",\n ", op_names[op], (unsigned long long)opt.size, opt.depth,
		       (unsigned long long)opt.working_set, (unsigned long long)opt.count,
		       (double)opt.count / seconds, bytes / seconds, bytes / copy_seconds,
		       copy_seconds / seconds, cpu);
	else
		printf("%-5s %llu bytes, depth %u, working set %llu MiB: %.2f GB/s, %.0f a second; "
		       "memcpy %.2f GB/s; ratio %.2f (of processor time %s)\n",
		       op_names[op], (unsigned long long)opt.size, opt.depth,
		       (unsigned long long)(opt.working_set >> 20), bytes / seconds / 1e9,
		       (double)opt.count / seconds, bytes / copy_seconds / 1e9,
		       copy_seconds / seconds, cpu);
}

static void fill(struct xfer_buf *buf, unsigned int seed)
{
	uint32_t *p = xfer_buf_data(buf);

	for (uint64_t i = 0; i < opt.working_set / sizeof(*p); i++)
		p[i] = (uint32_t)(i * 2654435761u + seed);
}

static void verify(enum op op)
{
	uint64_t touched = opt.count < slots ? opt.count : slots;

	if (memcmp(xfer_buf_data(owner_buf), xfer_buf_data(user_buf), touched * opt.size) == 0)
		return;
	fprintf(stderr, "%s: the bytes differ\n", op_names[op]);
	exit(1);
}

static void measure(enum op op, const struct xfer_token *window, bool first)
{
	double seconds[64], copies[64], cpu, copy_cpu = 0, transfer_cpu = 0;
	pthread_t receiver;

	if (op == OP_SEND && pthread_create(&receiver, NULL, receive, NULL) != 0)
		exit(1);
	fill(op == OP_READ ? owner_buf : user_buf, (unsigned int)op + 1);
	run(op, window); /* warm */
	verify(op);
	for (unsigned int i = 0; i < opt.turns; i++) {
		cpu = own_cpu();
		copies[i] = copy(op == OP_READ);
		copy_cpu += own_cpu() - cpu;
		cpu = daemon_cpu();
		seconds[i] = run(op, window);
		transfer_cpu += daemon_cpu() - cpu;
	}
	if (op == OP_SEND)
		pthread_join(receiver, NULL);
	verify(op);
	print(op, median(seconds, opt.turns), median(copies, opt.turns), copy_cpu / transfer_cpu,
	      first);
}

static void measure_all(void)
{
	struct xfer_token none = { 0, 0, 0 };
	struct xfer_event r, w;
	bool first = true;

	r = bench_grant(&pair, xfer_buf_data(owner_buf), opt.working_set, XFER_GRANT_READ);
	w = bench_grant(&pair, xfer_buf_data(owner_buf), opt.working_set, XFER_GRANT_WRITE);
	for (enum op op = OP_READ; op <= OP_SEND; op++) {
		if (!strstr(opt.ops, op_names[op]))
			continue;
		measure(op, op == OP_READ ? &r.token : op == OP_WRITE ? &w.token : &none, first);
		first = false;
	}
	if (opt.json && !first)
		printf("]\n");
}

static void usage(void)
{
	fprintf(stderr, "usage: transfer [--ops read,write,send] [--size BYTES] [--depth N]\n"
			"                [--working-set BYTES] [--count N] [--turns N] [--json]\n");
	exit(2);
}

static void parse(int argc, char **argv)
{
	static const struct option options[] = {
		{ "ops", required_argument, NULL, 'o' },
		{ "size", required_argument, NULL, 's' },
		{ "depth", required_argument, NULL, 'd' },
		{ "working-set", required_argument, NULL, 'w' },
		{ "count", required_argument, NULL, 'c' },
		{ "turns", required_argument, NULL, 't' },
		{ "json", no_argument, NULL, 'j' },
		{ NULL, 0, NULL, 0 },
	};
	int c;

	while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
		switch (c) {
		case 'o':
			opt.ops = optarg;
			break;
		case 's':
			opt.size = bench_size(optarg);
			break;
		case 'd':
			opt.depth = (unsigned int)bench_size(optarg);
			break;
		case 'w':
			opt.working_set = bench_size(optarg);
			break;
		case 'c':
			opt.count = bench_size(optarg);
			break;
		case 't':
			opt.turns = (unsigned int)bench_size(optarg);
			break;
		case 'j':
			opt.json = true;
			break;
		default:
			usage();
		}
	}
	if (optind < argc || opt.size > opt.working_set || opt.working_set > UINT32_MAX ||
	    opt.depth > 4096 || opt.turns > 64)
		usage();
	slots = opt.working_set / opt.size;
	if (!opt.count)
		opt.count = 2 * slots;
}

int main(int argc, char **argv)
{
	struct xfer_ep_options options = { .size = sizeof(options) };

	parse(argc, argv);
	daemon_pid = bench_daemon_pid();
	options.send_depth = options.recv_depth = opt.depth;
	bench_connect(&pair, &options);
	bench_check(xfer_buf_new(pair.owner, opt.working_set, 0, &owner_buf), "buffer");
	bench_check(xfer_buf_new(pair.user, opt.working_set, 0, &user_buf), "buffer");
	measure_all();
	bench_disconnect(&pair);
	return 0;
}
