/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* A ring gives out each byte once, in one piece, until it comes back. */
#include "tests/unit/cm.h"

#include <errno.h>
#include <string.h>

#include "daemon/core/pool.h"

#define SIZE 4096u

static uint8_t memory[2 * FABRIC_PAGE_BYTES];
static struct xd_slab slab = { .size_bytes = SIZE, .memory = memory };
static struct xd_ring ring;

static int set_up(void **unused)
{
	(void)unused;
	ring = (struct xd_ring){ .slab = &slab, .ready = true };
	return 0;
}

static void takes(uint64_t bytes, uint64_t offset)
{
	uint64_t at = UINT64_MAX;

	assert_int_equal(xd_ring_take(&ring, bytes, &at), 0);
	assert_int_equal(at, offset);
	assert_ptr_equal(xd_ring_memory(&ring, at), memory + offset);
}

static void refuses(uint64_t bytes)
{
	struct xd_ring before = ring;
	uint64_t at = 77;

	assert_int_equal(xd_ring_take(&ring, bytes, &at), -EAGAIN);
	assert_int_equal(at, 77);
	assert_int_equal(ring.head, before.head);
	assert_int_equal(ring.tail, before.tail);
}

static void all_of_it(void **unused)
{
	(void)unused;
	takes(SIZE, 0);
	refuses(1);
	ring.head = ring.tail;
	takes(SIZE, 0);
}

static void to_the_last_byte(void **unused)
{
	(void)unused;
	takes(4000, 0);
	refuses(97);
	takes(96, 4000);
	refuses(1);
}

/* What does not fit before the end goes to the start; what is left there is skipped. */
static void wraps(void **unused)
{
	uint64_t first;

	(void)unused;
	takes(1000, 0);
	first = ring.tail;
	takes(2500, 1000);
	refuses(597);
	ring.head = first;
	refuses(1001); /* 596 at the end are of no use, 1000 are free at the start */
	takes(1000, 0);
	refuses(1);
	ring.head = ring.tail - 1000;
	takes(2500, 1000);
}

static void exactly_to_the_end(void **unused)
{
	uint64_t first;

	(void)unused;
	takes(96, 0);
	first = ring.tail;
	takes(4000, 96);
	ring.head = first;
	takes(96, 0); /* without a skip */
	assert_int_equal(ring.tail, SIZE + 96);
}

/* An empty one begins anew, so that even its largest piece is one. */
static void begins_anew_when_empty(void **unused)
{
	(void)unused;
	takes(3000, 0);
	ring.head = ring.tail;
	takes(SIZE, 0);
	assert_int_equal(ring.tail, SIZE);
}

static void is_rewound(void **unused)
{
	struct xd_ring_mark mark;

	(void)unused;
	takes(3000, 0);
	mark = xd_ring_mark(&ring);
	takes(1000, 3000);
	xd_ring_rewind(&ring, mark);
	takes(1096, 3000);
	refuses(1);
}

/* What is taken back includes what was skipped for it. */
static void is_rewound_over_its_end(void **unused)
{
	struct xd_ring_mark mark;

	(void)unused;
	takes(1000, 0);
	ring.head = 0;
	takes(2500, 1000);
	ring.head = 1000;
	mark = xd_ring_mark(&ring);
	takes(900, 0);
	xd_ring_rewind(&ring, mark);
	takes(596, 3500);
	takes(1000, 0);
	refuses(1);
}

/* One that was empty has begun anew meanwhile. */
static void is_rewound_to_empty(void **unused)
{
	struct xd_ring_mark mark;

	(void)unused;
	takes(3000, 0);
	ring.head = ring.tail;
	mark = xd_ring_mark(&ring);
	takes(2000, 0);
	takes(2000, 2000);
	xd_ring_rewind(&ring, mark);
	assert_int_equal(ring.head, ring.tail);
	takes(SIZE, 0);
}

/* Against a plain map of who has which byte: pieces come back in the order that they were taken. */
static void as_a_map_says(void **unused)
{
	struct {
		uint64_t offset, bytes, end;
	} out[64];
	uint8_t taken[SIZE] = { 0 };
	uint32_t first = 0, last = 0, refused = 0;
	uint64_t random = 1;

	(void)unused;
	for (int i = 0; i < 20000; i++) {
		uint64_t bytes, at;

		random = random * UINT64_C(6364136223846793005) + 1442695040888963407u;
		bytes = 1 + (random >> 33) % (i % 3 ? 500 : 3000);
		if ((random >> 20) % 2 && last - first < 64) {
			int r = xd_ring_take(&ring, bytes, &at);

			assert_true(r == 0 || r == -EAGAIN);
			refused += r < 0;
			/* An empty one refuses nothing. */
			assert_true(r == 0 || first != last);
			if (r < 0)
				continue;
			assert_true(at + bytes <= SIZE);
			for (uint64_t k = at; k < at + bytes; k++)
				assert_int_equal(taken[k]++, 0);
			out[last % 64].offset = at;
			out[last % 64].bytes = bytes;
			out[last++ % 64].end = ring.tail;
		} else if (first != last) {
			memset(taken + out[first % 64].offset, 0, out[first % 64].bytes);
			ring.head = out[first++ % 64].end;
		}
	}
	assert_true(refused > 100);
}

/* Few bytes lie in one page: wherever the last one ended, and at the end of the ring. */
static void short_ones_lie_in_a_page(void **unused)
{
	(void)unused;
	slab.size_bytes = 2 * FABRIC_PAGE_BYTES;
	for (uint32_t before = 1; before <= FABRIC_SHORT_BYTES + 1; before++) {
		for (uint32_t bytes = 1; bytes <= FABRIC_SHORT_BYTES + 1; bytes++) {
			bool fits = bytes <= before || bytes > FABRIC_SHORT_BYTES;

			ring.head = ring.tail = 0;
			takes(FABRIC_PAGE_BYTES - before, 0);
			takes(bytes, FABRIC_PAGE_BYTES - (fits ? before : 0));
			ring.head = 0;
			takes(FABRIC_PAGE_BYTES - FABRIC_SHORT_BYTES - 1 -
				      (fits ? bytes - before : bytes),
			      ring.tail % slab.size_bytes);
		}
	}
	slab.size_bytes = SIZE;
}

#define TEST(fn) cmocka_unit_test_setup(fn, set_up)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(all_of_it),
		TEST(to_the_last_byte),
		TEST(wraps),
		TEST(exactly_to_the_end),
		TEST(begins_anew_when_empty),
		TEST(short_ones_lie_in_a_page),
		TEST(is_rewound),
		TEST(is_rewound_over_its_end),
		TEST(is_rewound_to_empty),
		TEST(as_a_map_says),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
