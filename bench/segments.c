/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * READ and WRITE with as many segments on both sides as there can be, of odd lengths that do not
 * match at odd places, in buffers and outside, checked byte by byte: also the bytes between them.
 *
 *	segments [--segments N] [--rounds N] [--seed N]
 */
#include <getopt.h>

#include "bench/bench.h"

#define STRIDE 256 /* each segment lies in a place of this size */

static int n_segments = XFER_SEGMENTS_MAX;
static unsigned long rounds = 4;
static uint64_t seed = 1;

static struct bench_pair pair;
static struct iovec local[XFER_SEGMENTS_MAX];
static struct xfer_token remote[XFER_SEGMENTS_MAX];
static size_t remote_offset[XFER_SEGMENTS_MAX];

static uint32_t dice(uint32_t n)
{
	seed = seed * UINT64_C(6364136223846793005) + 1442695040888963407u;
	return (uint32_t)(seed >> 33) % n;
}

/* n odd lengths below STRIDE / 2 that have this sum (n and the sum are both even or both odd). */
static void odd_lengths(uint32_t *length, int n, uint64_t sum)
{
	uint64_t have = (uint64_t)n;

	for (int i = 0; i < n; i++)
		length[i] = 1;
	while (have < sum) {
		uint32_t *l = &length[dice((uint32_t)n)];
		uint32_t more = 2 * (1 + dice(8));

		if (more > sum - have)
			more = (uint32_t)(sum - have);
		if (*l + more < STRIDE / 2) {
			*l += more;
			have += more;
		}
	}
}

static void lay_out(char *base, const struct xfer_token *window)
{
	static uint32_t length[XFER_SEGMENTS_MAX];
	uint64_t sum = (uint64_t)n_segments * 41;

	sum += (sum + (uint64_t)n_segments) % 2;
	odd_lengths(length, n_segments, sum);
	for (int i = 0; i < n_segments; i++)
		local[i] = (struct iovec){ base + i * STRIDE + dice(STRIDE / 2), length[i] };
	odd_lengths(length, n_segments, sum);
	for (int i = 0; i < n_segments; i++) {
		/* From the end to the beginning: nothing is a neighbour of what follows it. */
		remote_offset[i] = (size_t)(n_segments - 1 - i) * STRIDE + dice(STRIDE / 2);
		remote[i] = (struct xfer_token){ window->address + remote_offset[i], length[i],
						 window->rkey };
	}
}

static void fill(unsigned char *p, size_t bytes)
{
	for (size_t i = 0; i < bytes; i++)
		p[i] = (unsigned char)dice(256);
}

/* What the sink must look like: a copy, one byte at a time, from segment to segment. */
static void model(unsigned char *want, const unsigned char *source, int read, const char *base)
{
	int r = 0;
	uint32_t at = 0;

	for (int l = 0; l < n_segments; l++) {
		size_t offset = (size_t)((char *)local[l].iov_base - base);

		for (size_t i = 0; i < local[l].iov_len; i++) {
			size_t there = remote_offset[r] + at;

			if (read)
				want[offset + i] = source[there];
			else
				want[there] = source[offset + i];
			if (++at == remote[r].length) {
				r++;
				at = 0;
			}
		}
	}
}

static uint64_t turn(int read, unsigned char *here, unsigned char *there, size_t bytes,
		     const struct xfer_token *window)
{
	unsigned char *want = malloc(bytes), *sink = read ? here : there;
	const unsigned char *source = read ? there : here;
	struct xfer_event e;
	int r;

	if (!want)
		exit(1);
	fill(here, bytes);
	fill(there, bytes);
	lay_out((char *)here, window);
	memcpy(want, sink, bytes);
	model(want, source, read, (char *)here);
	r = read ? xfer_post_read(pair.user_ep, local, n_segments, remote, n_segments, 0, 0, NULL) :
		   xfer_post_write(pair.user_ep, local, n_segments, remote, n_segments, 0,
				   XFER_PLACED, NULL);
	bench_check(r, read ? "read" : "write");
	e = bench_expect(pair.user, XFER_EVENT_COMPLETION);
	for (size_t i = 0; i < bytes; i++) {
		if (sink[i] == want[i])
			continue;
		fprintf(stderr, "%s: byte %zu is wrong\n", read ? "read" : "write", i);
		exit(1);
	}
	free(want);
	return e.byte_len;
}

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{ "segments", required_argument, NULL, 's' },
		{ "rounds", required_argument, NULL, 'r' },
		{ "seed", required_argument, NULL, 'e' },
		{ NULL, 0, NULL, 0 },
	};
	struct xfer_buf *owner_buf, *user_buf;
	struct xfer_event r, w;
	unsigned char *plain;
	uint64_t moved = 0;
	size_t bytes;
	int c;

	while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
		if (c == 's')
			n_segments = (int)strtol(optarg, NULL, 0);
		else if (c == 'r')
			rounds = strtoul(optarg, NULL, 0);
		else if (c == 'e')
			seed = strtoull(optarg, NULL, 0);
		else
			return 2;
	}
	if (n_segments < 1 || n_segments > XFER_SEGMENTS_MAX) {
		fprintf(stderr, "segments: 1 to %d\n", XFER_SEGMENTS_MAX);
		return 2;
	}
	bytes = (size_t)n_segments * STRIDE;
	plain = malloc(bytes);
	bench_connect(&pair, NULL);
	bench_check(xfer_buf_new(pair.owner, bytes, 0, &owner_buf), "buffer");
	bench_check(xfer_buf_new(pair.user, bytes, 0, &user_buf), "buffer");
	r = bench_grant(&pair, xfer_buf_data(owner_buf), bytes, XFER_GRANT_READ);
	w = bench_grant(&pair, xfer_buf_data(owner_buf), bytes, XFER_GRANT_WRITE);
	for (unsigned long i = 0; i < rounds && plain; i++) {
		moved +=
			turn(1, xfer_buf_data(user_buf), xfer_buf_data(owner_buf), bytes, &r.token);
		moved +=
			turn(0, xfer_buf_data(user_buf), xfer_buf_data(owner_buf), bytes, &w.token);
		moved += turn(1, plain, xfer_buf_data(owner_buf), bytes, &r.token);
		moved += turn(0, plain, xfer_buf_data(owner_buf), bytes, &w.token);
	}
	free(plain);
	bench_disconnect(&pair);
	printf(
		"%lu transfers of %d by %d odd segments, %llu bytes, all of them right, none between "
	       "them touched\n",
	       4 * rounds, n_segments, n_segments, (unsigned long long)moved);
	return 0;
}
