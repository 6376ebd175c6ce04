/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Whose turn it is: the order alone, on trees of users, sessions and endpoints.
 */
#include "tests/unit/cm.h"

#include "daemon/core/turn.h"

#define USERS 3
#define SESSIONS 3
#define ENDPOINTS 3
#define LEAVES (USERS * SESSIONS * ENDPOINTS)

static struct xd_turn root, users[USERS], sessions[USERS][SESSIONS];
static struct xd_turn leaves[USERS][SESSIONS][ENDPOINTS];

static int setup(void **unused)
{
	(void)unused;
	xd_turn_init(&root, NULL);
	for (int u = 0; u < USERS; u++) {
		xd_turn_init(&users[u], &root);
		for (int s = 0; s < SESSIONS; s++) {
			xd_turn_init(&sessions[u][s], &users[u]);
			for (int e = 0; e < ENDPOINTS; e++)
				xd_turn_init(&leaves[u][s][e], &sessions[u][s]);
		}
	}
	return 0;
}

/* A leaf as a number: user, session, endpoint. */
static int name_of(const struct xd_turn *t)
{
	for (int u = 0; u < USERS; u++)
		for (int s = 0; s < SESSIONS; s++)
			for (int e = 0; e < ENDPOINTS; e++)
				if (t == &leaves[u][s][e])
					return 100 * u + 10 * s + e;
	return -1;
}

static struct xd_turn *leaf(int name)
{
	return &leaves[name / 100][name / 10 % 10][name % 10];
}

static void enter(int name)
{
	xd_turn_enter(leaf(name));
}

static void asks(int name)
{
	assert_int_equal(name_of(xd_turn_next(&root)), name);
}

static void round_ends(void)
{
	assert_null(xd_turn_next(&root));
}

static void nobody(void **unused)
{
	(void)unused;
	round_ends();
	round_ends();
	assert_true(xd_turn_alone(&sessions[0][0]));
	assert_false(xd_turn_waits(leaf(0)));
	xd_turn_leave(leaf(0));
	xd_turn_got(leaf(0));
	round_ends();
}

/* Who gets nothing keeps its place. */
static void in_vain(void **unused)
{
	(void)unused;
	enter(120);
	enter(0);
	enter(1);
	enter(110);
	enter(210);
	for (int i = 0; i < 4; i++) {
		asks(120);
		asks(110);
		asks(0);
		asks(1);
		asks(210);
		round_ends();
	}
	/* Also where a round is broken off by what comes. */
	asks(120);
	enter(2);
	asks(110);
	asks(0);
	asks(1);
	asks(2);
	asks(210);
	round_ends();
	asks(120);
}

/* One thing a round: it goes to each user in turn, of a user to each session, of that to each
 * endpoint. */
static void one_a_round(void **unused)
{
	static const int order[] = { 0, 100, 10, 110, 1, 111, 11, 101 };
	static const int waiting[] = { 0, 1, 10, 11, 100, 110, 101, 111 };

	(void)unused;
	for (size_t i = 0; i < 8; i++)
		enter(waiting[i]);
	for (size_t i = 0; i < 8; i++) {
		struct xd_turn *t = xd_turn_next(&root);

		/* 100's session came first, then 110's: 101 comes behind 110, 111 behind 101. */
		if (i < 5)
			assert_int_equal(name_of(t), order[i]);
		xd_turn_got(t);
		assert_false(xd_turn_waits(t));
		while (xd_turn_next(&root))
			;
	}
	round_ends();
	assert_false(xd_turn_waits(&users[0]));
}

/* A user with many endpoints gets no more than one with one. */
static void many_against_one(void **unused)
{
	int got[USERS] = { 0 };

	(void)unused;
	for (int s = 0; s < SESSIONS; s++)
		for (int e = 0; e < ENDPOINTS; e++)
			enter(10 * s + e);
	enter(100);
	enter(200);
	for (int i = 0; i < 60; i++) {
		struct xd_turn *t = xd_turn_next(&root);
		int name;

		if (!t)
			continue;
		name = name_of(t);
		got[name / 100]++;
		xd_turn_got(t);
		enter(name); /* it wants another one */
	}
	assert_int_equal(got[0], got[1]);
	assert_int_equal(got[1], got[2]);
}

static void leaves_and_alone(void **unused)
{
	(void)unused;
	enter(0);
	enter(1);
	assert_true(xd_turn_alone(&sessions[0][0]));
	assert_false(xd_turn_alone(&sessions[0][1]));
	assert_false(xd_turn_alone(&sessions[1][0]));
	enter(20);
	assert_false(xd_turn_alone(&sessions[0][0]));
	assert_true(xd_turn_alone(&users[0]));
	asks(0);
	assert_false(xd_turn_alone(&sessions[0][0]));
	asks(1);
	assert_false(xd_turn_alone(&sessions[0][0]));
	xd_turn_leave(leaf(20));
	assert_true(xd_turn_alone(&sessions[0][0]));
	enter(200);
	assert_false(xd_turn_alone(&sessions[0][0]));
	xd_turn_leave(leaf(0));
	xd_turn_leave(leaf(1));
	assert_false(xd_turn_waits(&users[0]));
	assert_true(xd_turn_alone(&sessions[2][0]));
	asks(200);
	round_ends();
	xd_turn_leave(leaf(200));
	round_ends();
}

/* ---- by dice */

static uint32_t dice(uint64_t *state)
{
	*state = *state * UINT64_C(6364136223846793005) + 1442695040888963407u;
	return (uint32_t)(*state >> 33);
}

/* When one on some level came to wait, was asked and got something, by a clock of its own. */
struct times {
	uint64_t since, asked, got;
	uint32_t waiting;
};

static void comes(struct times *t, uint64_t now)
{
	if (t->waiting++ == 0)
		t->since = now;
}

/* It has got something before, and this one has waited since: then it was asked in between. */
static void not_passed_over(const struct times *got, const struct times *other)
{
	if (other != got && other->waiting && got->got > other->since)
		assert_true(other->asked > got->got);
}

/*
 * Whatever comes and goes: no user gets twice while another waits all the time and is not asked in
 * between; nor does a session of a user, or an endpoint of a session.
 */
static void by_dice(void **unused)
{
	static struct times of_user[USERS], of_session[USERS * SESSIONS], of_leaf[LEAVES];
	uint64_t state = 1, given = 0;

	(void)unused;
	for (uint64_t now = 1; now < 200000; now++) {
		uint32_t n = dice(&state) % LEAVES, s = n / ENDPOINTS, u = s / SESSIONS;
		struct times *all[] = { &of_leaf[n], &of_session[s], &of_user[u] };
		struct xd_turn *t;

		if (dice(&state) % 4 == 0) {
			t = &leaves[u][s % SESSIONS][n % ENDPOINTS];
			if (xd_turn_waits(t)) {
				xd_turn_leave(t);
				for (int i = 0; i < 3; i++)
					all[i]->waiting--;
			} else {
				xd_turn_enter(t);
				for (int i = 0; i < 3; i++)
					comes(all[i], now);
			}
			continue;
		}
		t = xd_turn_next(&root);
		if (!t)
			continue;
		u = (uint32_t)name_of(t) / 100;
		s = u * SESSIONS + (uint32_t)name_of(t) / 10 % 10;
		n = s * ENDPOINTS + (uint32_t)name_of(t) % 10;
		all[0] = &of_leaf[n];
		all[1] = &of_session[s];
		all[2] = &of_user[u];
		for (int i = 0; i < 3; i++) {
			assert_true(all[i]->waiting);
			all[i]->asked = now;
		}
		if (dice(&state) % 3)
			continue;
		given++;
		for (uint32_t i = 0; i < USERS; i++)
			not_passed_over(&of_user[u], &of_user[i]);
		for (uint32_t i = 0; i < SESSIONS; i++)
			not_passed_over(&of_session[s], &of_session[u * SESSIONS + i]);
		for (uint32_t i = 0; i < ENDPOINTS; i++)
			not_passed_over(&of_leaf[n], &of_leaf[s * ENDPOINTS + i]);
		xd_turn_got(t);
		for (int i = 0; i < 3; i++) {
			all[i]->got = now;
			all[i]->waiting--;
		}
	}
	assert_true(given > 10000);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(nobody, setup),
		cmocka_unit_test_setup(in_vain, setup),
		cmocka_unit_test_setup(one_a_round, setup),
		cmocka_unit_test_setup(many_against_one, setup),
		cmocka_unit_test_setup(leaves_and_alone, setup),
		cmocka_unit_test_setup(by_dice, setup),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
