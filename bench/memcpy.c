/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */

/*
 * What this machine copies from memory to memory: the yardstick for transfers of so many bytes.
 *
 *	memcpy BYTES [PIECE_BYTES]
 *
 * Copies BYTES (1 to 2^40) between two places of that size in pieces (1 MiB where not given), five
 * times over, and prints the median: "bytes=… piece_bytes=… seconds=… bytes_per_second=…".
 */

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#define TURNS 5

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static int parse(const char *text, size_t *ret)
{
	char *end;
	unsigned long long v;

	errno = 0;
	v = strtoull(text, &end, 10);
	if (errno || *text < '0' || *text > '9' || *end || v == 0 || v > 1ull << 40)
		return -EINVAL;
	*ret = (size_t)v;
	return 0;
}

/* Shared memory, as transfers use it, with all pages there. */
static char *get_memory(size_t bytes)
{
	void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
		       MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);

	return p == MAP_FAILED ? NULL : p;
}

static double copy(char *to, const char *from, size_t bytes, size_t piece)
{
	const double start = now();

	for (size_t at = 0; at < bytes; at += piece) {
		memcpy(to + at, from + at, bytes - at < piece ? bytes - at : piece);
		/* Without it, the compiler may see that nobody looks. */
		__asm__ volatile("" : : "r"(to + at) : "memory");
	}
	return now() - start;
}

static int compare(const void *a, const void *b)
{
	const double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

int main(int argc, char **argv)
{
	size_t bytes, piece = 1 << 20;
	double seconds[TURNS];
	char *from, *to;

	if (argc < 2 || argc > 3 || parse(argv[1], &bytes) ||
	    (argc == 3 && parse(argv[2], &piece))) {
		fputs("Usage: memcpy BYTES [PIECE_BYTES]\n", stderr);
		return 2;
	}
	from = get_memory(bytes);
	to = get_memory(bytes);
	if (!from || !to) {
		fprintf(stderr, "memcpy: twice %zu bytes: %s\n", bytes, strerror(errno));
		return 1;
	}
	memset(from, 1, bytes);
	for (int i = 0; i < TURNS; i++)
		seconds[i] = copy(to, from, bytes, piece);
	qsort(seconds, TURNS, sizeof(seconds[0]), compare);
	printf("bytes=%zu piece_bytes=%zu seconds=%.6f bytes_per_second=%.0f\n", bytes, piece,
	       seconds[TURNS / 2], (double)bytes / seconds[TURNS / 2]);
	return 0;
}
