/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include <stdlib.h>
#include <string.h>

#include "common/heap.h"
#include "tests/unit/cm.h"

static int by_value(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

static void check_sorts(uint64_t (*key)(int), int n)
{
	struct xc_heap_node *nodes = calloc((size_t)n, sizeof(*nodes));
	uint64_t *keys = calloc((size_t)n, sizeof(*keys));
	struct xc_heap h = { .root = NULL };

	assert_non_null(nodes);
	assert_non_null(keys);
	for (int i = 0; i < n; i++) {
		keys[i] = key(i);
		xc_heap_add(&h, &nodes[i], keys[i]);
		assert_true(nodes[i].queued);
	}
	qsort(keys, (size_t)n, sizeof(*keys), by_value);
	for (int i = 0; i < n; i++) {
		struct xc_heap_node *first = xc_heap_first(&h);

		assert_non_null(first);
		assert_true(first->key == keys[i]);
		xc_heap_remove(&h, first);
		assert_false(first->queued);
	}
	assert_null(xc_heap_first(&h));
	free(keys);
	free(nodes);
}

static uint64_t rising(int i)
{
	return (uint64_t)i;
}

static uint64_t falling(int i)
{
	return UINT64_MAX - (uint64_t)i;
}

static uint64_t same(int i)
{
	(void)i;
	return 7;
}

static uint64_t jumping(int i)
{
	return (uint64_t)i * UINT64_C(0x9e3779b97f4a7c15);
}

static void it_sorts(void **state)
{
	(void)state;
	check_sorts(rising, 1);
	check_sorts(rising, 1000);
	check_sorts(falling, 1000);
	check_sorts(same, 1000);
	check_sorts(jumping, 1000);
}

/* A chain as long as this must not be walked by recursion. */
static void depth_costs_no_stack(void **state)
{
	(void)state;
	check_sorts(falling, 1000000);
}

static void removing_twice_is_harmless(void **state)
{
	struct xc_heap h = { .root = NULL };
	struct xc_heap_node a = { .queued = false }, b = { .queued = false };

	(void)state;
	xc_heap_remove(&h, &a);
	xc_heap_add(&h, &a, 1);
	xc_heap_add(&h, &b, 2);
	xc_heap_remove(&h, &b);
	xc_heap_remove(&h, &b);
	assert_ptr_equal(xc_heap_first(&h), &a);
	xc_heap_add(&h, &b, 0);
	assert_ptr_equal(xc_heap_first(&h), &b);
	xc_heap_remove(&h, &b);
	xc_heap_remove(&h, &a);
	assert_null(xc_heap_first(&h));
}

/* The smallest by looking at all; adds and removals anywhere, as timers are. */
static void random_use_agrees_with_a_model(void **state)
{
	enum { NODES = 64, STEPS = 200000 };
	static struct xc_heap_node nodes[NODES];
	struct xc_heap h = { .root = NULL };

	(void)state;
	srand(1);
	for (int step = 0; step < STEPS; step++) {
		struct xc_heap_node *n = &nodes[rand() % NODES];
		const struct xc_heap_node *first = xc_heap_first(&h);
		uint64_t smallest = UINT64_MAX;

		if (n->queued)
			xc_heap_remove(&h, n);
		else
			xc_heap_add(&h, n, (uint64_t)(rand() % 100));
		for (int i = 0; i < NODES; i++) {
			if (nodes[i].queued && nodes[i].key < smallest)
				smallest = nodes[i].key;
		}
		first = xc_heap_first(&h);
		assert_int_equal(first != NULL, smallest != UINT64_MAX);
		if (first)
			assert_true(first->queued && first->key == smallest);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(it_sorts),
		cmocka_unit_test(depth_costs_no_stack),
		cmocka_unit_test(removing_twice_is_harmless),
		cmocka_unit_test(random_use_agrees_with_a_model),
	};

	return cmocka_run_group_tests_name("heap", tests, NULL, NULL);
}
