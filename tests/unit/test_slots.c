/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include <errno.h>
#include <stdlib.h>

#include "common/checked.h"
#include "common/slots.h"
#include "tests/unit/cm.h"

static void numbers_name_what_was_added(void **state)
{
	struct xc_slots t;
	int objects[100];
	uint32_t number[100];

	(void)state;
	xc_slots_init(&t, 100);
	for (int i = 0; i < 100; i++) {
		assert_int_equal(xc_slots_add(&t, &objects[i], &number[i]), 0);
		assert_int_not_equal(number[i], 0);
	}
	for (int i = 0; i < 100; i++)
		assert_ptr_equal(xc_slots_get(&t, number[i]), &objects[i]);
	assert_int_equal(t.used, 100);
	xc_slots_done(&t);
}

static void the_limit_holds(void **state)
{
	struct xc_slots t;
	int object;
	uint32_t number = 5, first = 0;

	(void)state;
	/* No power of two, so that growing has to stop short. */
	xc_slots_init(&t, 11);
	for (int i = 0; i < 11; i++)
		assert_int_equal(xc_slots_add(&t, &object, i ? &number : &first), 0);
	number = 5;
	assert_int_equal(xc_slots_add(&t, &object, &number), -ENOSPC);
	assert_int_equal(number, 5);
	assert_ptr_equal(xc_slots_remove(&t, first), &object);
	assert_int_equal(xc_slots_add(&t, &object, &number), 0);
	assert_int_equal(xc_slots_add(&t, &object, &number), -ENOSPC);
	xc_slots_done(&t);
}

static void strangers_numbers_name_nothing(void **state)
{
	static const uint32_t bad[] = { 0, 1, UINT32_MAX, 1u << 20, XC_SLOTS_MAX - 1, 2u << 20 };
	struct xc_slots t;
	int object;
	uint32_t number;

	(void)state;
	xc_slots_init(&t, XC_SLOTS_MAX);
	for (size_t i = 0; i < XC_ARRAY_SIZE(bad); i++) {
		assert_null(xc_slots_get(&t, bad[i]));
		assert_null(xc_slots_remove(&t, bad[i]));
	}
	assert_int_equal(xc_slots_add(&t, &object, &number), 0);
	for (uint32_t other = 0; other < 1u << 13; other++) {
		/* All low slots in all generations: just one of them is ours. */
		uint32_t n = (other >> 1) << 20 | (other & 1);

		assert_ptr_equal(xc_slots_get(&t, n), n == number ? &object : NULL);
	}
	assert_int_equal(t.used, 1);
	xc_slots_done(&t);
}

static void old_numbers_stay_dead(void **state)
{
	static uint32_t seen[4095];
	struct xc_slots t;
	int object;
	uint32_t number;

	(void)state;
	xc_slots_init(&t, 1);
	for (uint32_t i = 0; i < XC_ARRAY_SIZE(seen); i++) {
		assert_int_equal(xc_slots_add(&t, &object, &seen[i]), 0);
		if (i > 0) {
			assert_null(xc_slots_get(&t, seen[i - 1]));
			assert_null(xc_slots_remove(&t, seen[i - 1]));
		}
		assert_int_not_equal(seen[i], 0);
		assert_ptr_equal(xc_slots_remove(&t, seen[i]), &object);
		assert_null(xc_slots_remove(&t, seen[i]));
	}
	/* The generations are spent: only now does the first number come again. */
	for (uint32_t i = 1; i < XC_ARRAY_SIZE(seen); i++)
		assert_int_not_equal(seen[i], seen[0]);
	assert_int_equal(xc_slots_add(&t, &object, &number), 0);
	assert_int_equal(number, seen[0]);
	xc_slots_done(&t);
}

static void slots_are_reused_oldest_first(void **state)
{
	struct xc_slots t;
	int object;
	uint32_t number[8], again;

	(void)state;
	xc_slots_init(&t, 8);
	for (int i = 0; i < 8; i++)
		assert_int_equal(xc_slots_add(&t, &object, &number[i]), 0);
	xc_slots_remove(&t, number[5]);
	xc_slots_remove(&t, number[2]);
	xc_slots_remove(&t, number[7]);
	for (int i = 0; i < 3; i++) {
		static const int order[] = { 5, 2, 7 };

		assert_int_equal(xc_slots_add(&t, &object, &again), 0);
		assert_int_equal(again & (XC_SLOTS_MAX - 1), number[order[i]] & (XC_SLOTS_MAX - 1));
	}
	xc_slots_done(&t);
}

static void next_walks_over_changes(void **state)
{
	struct xc_slots t;
	int objects[6], n = 0;
	uint32_t number[6], cursor = 0;
	int *at;

	(void)state;
	xc_slots_init(&t, 64);
	assert_null(xc_slots_next(&t, &cursor));
	for (int i = 0; i < 6; i++)
		assert_int_equal(xc_slots_add(&t, &objects[i], &number[i]), 0);
	xc_slots_remove(&t, number[3]);
	cursor = 0;
	while ((at = xc_slots_next(&t, &cursor))) {
		/* The one at hand goes while we walk. */
		assert_ptr_equal(xc_slots_remove(&t, number[at - objects]), at);
		n++;
	}
	assert_int_equal(n, 5);
	assert_int_equal(t.used, 0);
	assert_null(xc_slots_next(&t, &cursor));
	xc_slots_done(&t);
}

/* Against an array that remembers everything. */
static void random_use_agrees_with_a_model(void **state)
{
	enum { LIVE = 300, STEPS = 200000 };
	static uint32_t number[LIVE];
	static int objects[LIVE];
	struct xc_slots t;
	uint32_t live = 0;

	(void)state;
	srand(1);
	xc_slots_init(&t, 256);
	for (int step = 0; step < STEPS; step++) {
		int i = rand() % LIVE;

		if (number[i]) {
			assert_ptr_equal(xc_slots_get(&t, number[i]), &objects[i]);
			assert_ptr_equal(xc_slots_remove(&t, number[i]), &objects[i]);
			assert_null(xc_slots_get(&t, number[i]));
			number[i] = 0;
			live--;
		} else {
			int r = xc_slots_add(&t, &objects[i], &number[i]);

			assert_int_equal(r, live == 256 ? -ENOSPC : 0);
			live += r == 0;
		}
		assert_int_equal(t.used, live);
	}
	xc_slots_done(&t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(numbers_name_what_was_added),
		cmocka_unit_test(the_limit_holds),
		cmocka_unit_test(strangers_numbers_name_nothing),
		cmocka_unit_test(old_numbers_stay_dead),
		cmocka_unit_test(slots_are_reused_oldest_first),
		cmocka_unit_test(next_walks_over_changes),
		cmocka_unit_test(random_use_agrees_with_a_model),
	};

	return cmocka_run_group_tests_name("slots", tests, NULL, NULL);
}
