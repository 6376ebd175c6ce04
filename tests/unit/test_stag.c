/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The table of STags, against a plain model.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/fabric/iwarp/private.h"
#include "tests/unit/iwarp_rig.h"

#define MANY 20000u
#define STEPS 200000u

static struct xd_engine engine;
static struct iwarp_stags table;
static struct iwarp_stag stags[MANY];

static int setup(void **state)
{
	struct xd_engine_ref ref = fake_engine_ref(&engine);

	(void)state;
	fabric_saboteur = NULL;
	fake_engine_init(&engine, 7);
	memset(stags, 0, sizeof(stags));
	return iwarp_stags_init(&table, &ref);
}

static int teardown(void **state)
{
	(void)state;
	fabric_saboteur = NULL;
	iwarp_stags_done(&table);
	return 0;
}

static void finds_what_it_has(void **state)
{
	static bool is_in[MANY];

	(void)state;
	memset(is_in, 0, sizeof(is_in));
	assert_null(iwarp_stags_find(&table, 0x100));
	for (unsigned int step = 0; step < STEPS; step++) {
		unsigned int i = (unsigned int)(fake_engine_next(&engine) % MANY);
		struct iwarp_stag *s = &stags[i];
		uint32_t number = iwarp_stag_number(s);

		if (is_in[i]) {
			assert_ptr_equal(iwarp_stags_find(&table, number), s);
			assert_null(iwarp_stags_find(&table, number ^ 1));
			iwarp_stags_remove(&table, s);
			assert_null(iwarp_stags_find(&table, number));
			assert_null(iwarp_stags_at(&table, number >> 8));
		} else {
			assert_int_equal(iwarp_stags_add(&table, s), 0);
			assert_in_range(s->index, 1, (1u << 24) - 1);
		}
		is_in[i] = !is_in[i];
	}
	for (unsigned int i = 0; i < MANY; i++) {
		struct iwarp_stag *found = iwarp_stags_at(&table, stags[i].index);

		assert_ptr_equal(found, is_in[i] ? &stags[i] : NULL);
		if (is_in[i])
			iwarp_stags_remove(&table, &stags[i]);
	}
}

/* Is an index ever handed out while one of the last MANY that were freed has it? */
static bool is_reused_soon(void)
{
	static uint8_t last_seen[1u << 24];
	struct iwarp_stag s = { 0 };
	bool reused = false;

	memset(last_seen, 0, sizeof(last_seen));
	for (unsigned int i = 0; i < MANY; i++) {
		assert_int_equal(iwarp_stags_add(&table, &s), 0);
		reused |= last_seen[s.index];
		last_seen[s.index] = 1;
		iwarp_stags_remove(&table, &s);
	}
	return reused;
}

static void an_index_rests(void **state)
{
	(void)state;
	assert_false(is_reused_soon());
	fabric_saboteur = "reuse-index";
	assert_true(is_reused_soon());
}

/* Far more than rest: the ring of freed ones goes round. */
static void rests_end(void **state)
{
	struct iwarp_stag s = { 0 };

	(void)state;
	for (unsigned int i = 0; i < 3 * IWARP_STAG_REST; i++) {
		assert_int_equal(iwarp_stags_add(&table, &s), 0);
		iwarp_stags_remove(&table, &s);
	}
	assert_int_equal(table.rest_count, IWARP_STAG_REST);
	assert_int_equal(table.n_cells, 64);
}

/* No more than the engine's random bytes tell: other bytes, other numbers; and no order in them. */
static void nobody_can_guess(void **state)
{
	unsigned int ups = 0, bits[32] = { 0 };

	(void)state;
	for (unsigned int i = 0; i < 1000; i++) {
		assert_int_equal(iwarp_stags_add(&table, &stags[i]), 0);
		for (unsigned int bit = 0; bit < 32; bit++)
			bits[bit] += iwarp_stag_number(&stags[i]) >> bit & 1;
		ups += i && stags[i].index > stags[i - 1].index;
	}
	assert_in_range(ups, 400, 600);
	for (unsigned int bit = 0; bit < 32; bit++)
		assert_in_range(bits[bit], 400, 600);
	for (unsigned int i = 0; i < 1000; i++)
		iwarp_stags_remove(&table, &stags[i]);
}

static void is_bounded(void **state)
{
	struct iwarp_stag s = { 0 };
	uint32_t used = table.used;

	(void)state;
	table.used = IWARP_STAGS_MAX;
	assert_int_equal(iwarp_stags_add(&table, &s), -ENOSPC);
	table.used = used;
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
		TEST(finds_what_it_has), TEST(an_index_rests), TEST(rests_end),
		TEST(nobody_can_guess),	 TEST(is_bounded),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
