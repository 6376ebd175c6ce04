/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Endpoints that wait for what has run out: who gets it, when.
 */
#include "tests/unit/core_rig.h"

#include <errno.h>

#define MS UINT64_C(1000000)
#define BUFFER 65536
#define MANY 40
#define CLIENTS 5

/* Clients that grant, and a peer of each. The first is of a user of its own, and so is the last. */
static const uint32_t uids[CLIENTS] = { 1000, 1001, 1001, 1002, 1003 };
static struct rig rig;
static struct rig_client all[CLIENTS], peers[CLIENTS];

static uint64_t waiting(void)
{
	return xd_core_counter(rig.core, XD_COUNTER_endpoints_waiting);
}

/* Also what the fabric is slow with. */
static void run(void)
{
	for (int i = 0; i < 8; i++)
		rig_run(&rig);
}

static void begin(uint32_t windows, bool slow)
{
	rig_defaults();
	rig_caps.keys = FABRIC_KEYS_WINDOW;
	rig_dice.windows = windows;
	rig_dice.mw_slow = slow ? 1000 : 0;
	rig_dice.late_turns = 3;
	rig_init(&rig);
	for (int i = 0; i < CLIENTS; i++) {
		rig_client_init(&rig, &all[i], uids[i], false);
		rig_client_init(&rig, &peers[i], 2000, false);
		rig_buffer_of(&rig, &all[i], BUFFER);
		rig_buffer_of(&rig, &peers[i], BUFFER);
		rig_connect(&rig, &peers[i], &all[i]);
	}
}

static void end(void)
{
	for (int i = 0; i < CLIENTS; i++) {
		rig_close(&rig, &peers[i]);
		if (all[i].s)
			rig_close(&rig, &all[i]);
	}
	assert_int_equal(waiting(), 0);
	run();
	rig_done(&rig);
}

/* It asks for so many grants, which end by themselves after so long; 0: they do not. */
static void wants(int who, uint64_t n, uint64_t lifetime_ms)
{
	struct xp_segment seg = { .length = 64, .key = all[who].buffer };

	for (uint64_t i = 0; i < n; i++) {
		uint64_t id = ++rig.serial;
		struct xp_request q = { .opcode = XP_OP_GRANT,
					.flags = XP_F_GRANT_READ,
					.wr_id = id,
					.cookie = id,
					.endpoint = all[who].endpoint,
					.local_count = 1,
					.argument = lifetime_ms };

		xd_session_submit(all[who].s, &q, &seg);
	}
}

/* It takes its place behind those that were refused before. */
static void comes(int who, uint64_t n, uint64_t lifetime_ms)
{
	wants(who, n, lifetime_ms);
	run();
}

/* Those that have got one since: how many, and the last one's. */
static int who_got(int *ret_who, struct xp_completion *ret)
{
	struct xd_out out;
	int n = 0;

	for (int i = 0; i < CLIENTS; i++) {
		while (all[i].s && xd_session_pull(all[i].s, &out)) {
			assert_int_equal(out.kind, XD_OUT_COMPLETION);
			assert_int_equal(out.completion.status, 0);
			if (out.completion.opcode != XP_OP_GRANT)
				continue;
			*ret_who = i;
			*ret = out.completion;
			n++;
		}
	}
	return n;
}

static void revokes(int who, const struct xp_completion *token)
{
	rig_submit(&all[who], XP_OP_REVOKE, ++rig.serial, 0, 0, token);
}

/* It is the only one that has got a grant since. */
static void has_it(int who, struct xp_completion *ret)
{
	int got = -1;

	run();
	assert_int_equal(who_got(&got, ret), 1);
	assert_int_equal(got, who);
}

/*
 * One window, given back again and again: by user, then session. A user's two sessions take turns
 * at the user's; and nobody waits for the clock.
 */
static void one_window(bool slow)
{
	static const int order[] = { 0, 1, 3, 0, 2, 3, 1, 3, 2, 1, 2 };
	struct xp_completion token;

	begin(1, slow);
	wants(0, 1, 5);
	run();
	comes(1, 3, 5);
	comes(2, 3, 5);
	comes(3, 3, 5);
	comes(0, 1, 5);
	assert_int_equal(waiting(), 4);
	for (int i = 0; i < 11; i++) {
		has_it(order[i], &token);
		fake_engine_advance(&rig.engine, 5 * MS);
	}
	run();
	assert_int_equal(waiting(), 0);
	end();
}

static void by_user_then_session(void **unused)
{
	(void)unused;
	one_window(false);
	one_window(true);
}

/* One that gives a window back and wants one at once goes behind those that wait. */
static void none_is_kept_from_others(void **unused)
{
	static const int order[] = { 3, 0, 4, 0, 3, 0 };
	struct xp_completion token;

	(void)unused;
	begin(1, false);
	wants(0, 1, 0);
	has_it(0, &token);
	wants(3, 1, 0);
	run();
	for (int i = 0, last = 0; i < 6; i++) {
		revokes(last, &token);
		if (last == 0)
			wants(0, 1, 0);
		if (i == 1 || i == 3)
			wants(i == 1 ? 4 : 3, 1, 0);
		last = order[i];
		has_it(last, &token);
	}
	end();
}

/* What a session keeps for its next grants goes to one that has none. */
static void kept_ones_are_called_in(bool slow)
{
	struct xp_completion tokens[4], token;
	int who = -1;

	begin(4, slow);
	for (int i = 0; i < 4; i++)
		tokens[i] = rig_grant(&rig, &all[0], 0, 64, false, 0);
	for (int i = 0; i < 4; i++)
		revokes(0, &tokens[i]);
	run();
	assert_int_equal(who_got(&who, &token), 0);

	wants(1, 1, 0);
	wants(3, 2, 0);
	for (int i = 0; i < 4 && waiting(); i++) {
		run();
		fake_engine_advance(&rig.engine, 2 * MS);
	}
	run();
	assert_int_equal(who_got(&who, &token), 3);
	assert_int_equal(waiting(), 0);
	end();
}

static void windows_are_called_in(void **unused)
{
	(void)unused;
	kept_ones_are_called_in(false);
	kept_ones_are_called_in(true);
}

/* Who goes away while it waits holds nobody up. */
static void who_goes_does_not_wait(void **unused)
{
	struct xp_completion token;

	(void)unused;
	begin(1, true);
	wants(0, 1, 0);
	has_it(0, &token);
	comes(1, MANY, 0);
	comes(2, MANY, 5);
	comes(3, 1, 0);
	assert_int_equal(waiting(), 3);
	revokes(0, &token);
	/* Its window is on its way back. */
	for (int i = 0; i < 2; i++)
		xd_core_progress(rig.core, 1 << 20);
	rig_close(&rig, &all[1]);
	has_it(2, &token);
	assert_int_equal(waiting(), 2);
	fake_engine_advance(&rig.engine, 5 * MS);
	has_it(3, &token);
	rig_close(&rig, &all[2]);
	assert_int_equal(waiting(), 0);
	end();
}

/* A device that has none at all: they end when their time is over, and nobody is forgotten. */
static void none_ever_comes(void **unused)
{
	struct xp_completion c;

	(void)unused;
	begin(1, false);
	wants(0, 1, 0);
	has_it(0, &c);
	rig_submit(&all[3], XP_OP_GRANT, 700, 0, 64, NULL);
	rig_submit(&all[4], XP_OP_GRANT, 701, 0, 64, NULL);
	for (int i = 0; i < 3; i++) {
		run();
		assert_int_equal(waiting(), 2);
		fake_engine_advance(&rig.engine, (rig.policy.progress_ms / 4) * MS);
	}
	for (int i = 0; i < 2; i++) {
		run();
		fake_engine_advance(&rig.engine, (rig.policy.progress_ms / 2) * MS);
	}
	run();
	c = rig_completion(&all[3], 700, -EAGAIN);
	assert_int_equal(c.opcode, XP_OP_GRANT);
	rig_completion(&all[4], 701, -EAGAIN);
	assert_int_equal(waiting(), 0);
	end();
}

/* A message is not failed for the time in which a grant before it waited. */
static void each_has_its_own_time(void **unused)
{
	struct fake_dice busy = { .post_fail = 1000, .windows = 1 }, well = { .windows = 1 };
	struct xp_request cancel = {
		.opcode = XP_OP_CANCEL, .wr_id = 603, .cookie = 603, .argument = 600
	};
	struct xp_completion c;

	(void)unused;
	begin(1, false);
	wants(0, 1, 0);
	has_it(0, &c);
	fake_fabric_dice(rig.fabric, &busy);
	rig_submit(&all[3], XP_OP_SEND, 600, 0, 64, NULL);
	rig_submit(&all[3], XP_OP_GRANT, 601, 0, 64, NULL);
	rig_submit(&all[3], XP_OP_SEND, 602, 0, 64, NULL);
	run();
	xd_session_submit(all[3].s, &cancel, NULL);
	run();
	rig_completion(&all[3], 600, -ECANCELED);
	rig_completion(&all[3], 603, 0);
	for (int i = 0; i < 5; i++) {
		fake_engine_advance(&rig.engine, (rig.policy.progress_ms / 4) * MS);
		run();
	}
	rig_completion(&all[3], 601, -EAGAIN);
	rig_take(&all[3], XD_OUT_NONE);
	fake_fabric_dice(rig.fabric, &well);
	rig_submit(&peers[3], XP_OP_RECV, 604, 0, 64, NULL);
	fake_engine_advance(&rig.engine, 2 * MS);
	run();
	rig_completion(&all[3], 602, 0);
	rig_completion(&peers[3], 604, 0);
	end();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(by_user_then_session),	 cmocka_unit_test(none_is_kept_from_others),
		cmocka_unit_test(windows_are_called_in), cmocka_unit_test(who_goes_does_not_wait),
		cmocka_unit_test(none_ever_comes),	 cmocka_unit_test(each_has_its_own_time),
	};

	rig_defaults();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
