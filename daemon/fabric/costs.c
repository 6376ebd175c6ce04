/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "daemon/fabric/costs.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "common/checked.h"
#include "daemon/fabric/region.h"

#define NS_PER_MS UINT64_C(1000000)
#define PIECE_BYTES 64u
#define BLOCK_BYTES 4096u
#define HOT_TIMES 32u
/* More than the caches of most machines; and touching it is most of the work. */
#define COLD_BYTES (32u << 20)
#define COLD_TIMES 8u

uint64_t fabric_now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000 * NS_PER_MS + (uint64_t)t.tv_nsec;
}

bool fabric_wants_sample(const struct fabric_samples *s, uint64_t until_ns)
{
	return s->n < FABRIC_SAMPLES && (!s->n || fabric_now_ns() < until_ns);
}

void fabric_add_sample(struct fabric_samples *s, uint64_t since_ns)
{
	uint64_t ns = fabric_now_ns() - since_ns;
	uint32_t at = s->n++;

	for (; at && s->ns[at - 1] > ns; at--)
		s->ns[at] = s->ns[at - 1];
	s->ns[at] = ns;
}

uint32_t fabric_middle(const struct fabric_samples *s)
{
	uint64_t ns;

	if (!s->n)
		return 0;
	ns = s->ns[s->n / 2] / s->times;
	return ns ? (uint32_t)xc_min_u64(ns, UINT32_MAX) : 1;
}

uint32_t fabric_each_more(uint32_t small_ns, uint32_t large_ns, uint32_t more)
{
	if (!large_ns)
		return 0;
	if (large_ns <= small_ns || large_ns - small_ns < more)
		return 1;
	return (large_ns - small_ns) / more;
}

/* Under the guard, as data of clients is copied. */
static void copy(uint8_t *to, const uint8_t *from, size_t bytes)
{
	const void *fault;

	(void)fabric_guard_copy(to, from, bytes, &fault);
}

static uint32_t copy_hot(uint8_t *memory, size_t bytes, uint64_t until_ns)
{
	struct fabric_samples s = { .times = HOT_TIMES };

	while (fabric_wants_sample(&s, until_ns)) {
		uint64_t since = fabric_now_ns();

		for (uint32_t i = 0; i < HOT_TIMES; i++)
			copy(memory, memory + BLOCK_BYTES, bytes);
		fabric_add_sample(&s, since);
	}
	return fabric_middle(&s);
}

/* How much of it is there in time, from its beginning on. */
static size_t touch(uint8_t *memory, uint64_t until_ns)
{
	size_t at = 0;

	for (; at < COLD_BYTES && (at % (COLD_BYTES / 64) || fabric_now_ns() < until_ns);
	     at += BLOCK_BYTES)
		memory[at] = 1;
	return at;
}

/* Blocks in the order in which they were touched: each is the one that no cache has any more. */
static uint32_t copy_cold(uint8_t *memory, size_t bytes, uint64_t until_ns)
{
	struct fabric_samples s = { .times = COLD_TIMES };
	size_t at = 2 * BLOCK_BYTES;

	while (at + COLD_TIMES * BLOCK_BYTES <= bytes && fabric_wants_sample(&s, until_ns)) {
		uint64_t since = fabric_now_ns();

		for (uint32_t i = 0; i < COLD_TIMES; i++, at += BLOCK_BYTES)
			copy(memory, memory + at, BLOCK_BYTES);
		fabric_add_sample(&s, since);
	}
	return fabric_middle(&s);
}

int fabric_measure_copies(uint64_t until_ns, struct fabric_costs *costs)
{
	const uint32_t kib = BLOCK_BYTES / 1024;
	uint64_t now = fabric_now_ns(), left = until_ns > now ? until_ns - now : 0;
	uint32_t block, cold;
	uint8_t *memory;
	size_t bytes;

	memory = mmap(NULL, COLD_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (memory == MAP_FAILED)
		return -ENOMEM;
	bytes = touch(memory, now + left / 2);
	cold = copy_cold(memory, bytes, now + left / 4 * 3);
	costs->copy_ns = copy_hot(memory, PIECE_BYTES, until_ns);
	block = copy_hot(memory, BLOCK_BYTES, until_ns);
	costs->copy_kib_ns = fabric_each_more(costs->copy_ns, block, kib);
	/* Where the time was too short, or the cache is larger. */
	if (cold < block)
		cold = block;
	costs->copy_cold_kib_ns = fabric_each_more(costs->copy_ns, cold, kib);
	munmap(memory, COLD_BYTES);
	return 0;
}
