/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The order of an endpoint's steps in the verbs fabric, without a device: steps return, and events
 * come, in every order that two threads can produce.
 */
#include <errno.h>

#include "common/checked.h"
#include "daemon/fabric/verbs/life.h"
#include "proto/errors.h"
#include "tests/unit/cm.h"

/* One step runs, and it is this one. */
static void runs(struct verbs_life *l, enum verbs_step step)
{
	assert_int_equal(verbs_life_next(l), step);
	assert_int_equal(l->running, step);
	/* one at a time */
	assert_int_equal(verbs_life_next(l), VERBS_STEP_NONE);
}

static void step(struct verbs_life *l, enum verbs_step which)
{
	runs(l, which);
	verbs_life_done(l, 0);
}

static void nothing_to_do(struct verbs_life *l)
{
	assert_int_equal(verbs_life_next(l), VERBS_STEP_NONE);
}

static void no_news(struct verbs_life *l)
{
	int status = 1;

	assert_false(verbs_life_has_news(l));
	assert_int_equal(verbs_life_news(l, &status), VERBS_NEWS_NONE);
	assert_int_equal(status, 1);
}

static void news(struct verbs_life *l, enum verbs_news what, int status)
{
	int got = 1;

	assert_true(verbs_life_has_news(l));
	assert_int_equal(verbs_life_news(l, &got), what);
	assert_int_equal(got, status);
}

/* Up to the call that connects. */
static void resolve(struct verbs_life *l)
{
	*l = (struct verbs_life){ 0 };
	nothing_to_do(l);
	assert_int_equal(verbs_life_connect(l, false), 0);
	step(l, VERBS_STEP_ADDRESS);
	nothing_to_do(l);
	verbs_life_hear(l, VERBS_HEARD_ADDRESS, 0);
	step(l, VERBS_STEP_ROUTE);
	verbs_life_hear(l, VERBS_HEARD_ROUTE, 0);
}

static void connected(struct verbs_life *l)
{
	resolve(l);
	step(l, VERBS_STEP_CONNECT);
	verbs_life_hear(l, VERBS_HEARD_RESPONSE, 0);
	step(l, VERBS_STEP_ESTABLISH);
	news(l, VERBS_NEWS_ESTABLISHED, 0);
}

static void connects_infiniband(void **state)
{
	struct verbs_life l;

	(void)state;
	resolve(&l);
	step(&l, VERBS_STEP_CONNECT);
	nothing_to_do(&l);
	no_news(&l);
	assert_false(verbs_life_may_send(&l));
	verbs_life_hear(&l, VERBS_HEARD_RESPONSE, 0);
	runs(&l, VERBS_STEP_ESTABLISH);
	assert_false(verbs_life_may_send(&l));
	verbs_life_done(&l, 0);
	assert_true(verbs_life_may_send(&l));
	/* He hears of it before he hears of what came by it. */
	assert_false(verbs_life_may_poll(&l));
	news(&l, VERBS_NEWS_ESTABLISHED, 0);
	assert_true(verbs_life_may_poll(&l));
	no_news(&l);
	nothing_to_do(&l);
}

/* The event comes before the call that caused it has returned. */
static void connects_iwarp(void **state)
{
	struct verbs_life l;

	(void)state;
	resolve(&l);
	runs(&l, VERBS_STEP_CONNECT);
	verbs_life_hear(&l, VERBS_HEARD_ESTABLISHED, 0);
	no_news(&l);
	verbs_life_done(&l, 0);
	news(&l, VERBS_NEWS_ESTABLISHED, 0);
	nothing_to_do(&l);
}

static void events_wait_for_steps(void **state)
{
	struct verbs_life l = { 0 };

	(void)state;
	verbs_life_connect(&l, false);
	runs(&l, VERBS_STEP_ADDRESS);
	verbs_life_hear(&l, VERBS_HEARD_ADDRESS, 0);
	nothing_to_do(&l);
	verbs_life_done(&l, 0);
	runs(&l, VERBS_STEP_ROUTE);
	verbs_life_hear(&l, VERBS_HEARD_ROUTE, 0);
	verbs_life_done(&l, 0);
	runs(&l, VERBS_STEP_CONNECT);
}

static void accepts(void **state)
{
	struct verbs_life l = { 0 };

	(void)state;
	assert_int_equal(verbs_life_connect(&l, true), 0);
	assert_int_equal(verbs_life_connect(&l, true), -EISCONN);
	runs(&l, VERBS_STEP_ACCEPT);
	verbs_life_done(&l, 0);
	no_news(&l);
	/* A message that overtakes the end of the handshake. */
	verbs_life_hear(&l, VERBS_HEARD_FIRST_MESSAGE, 0);
	runs(&l, VERBS_STEP_NOTIFY);
	verbs_life_hear(&l, VERBS_HEARD_ESTABLISHED, 0);
	verbs_life_done(&l, -EINVAL);
	news(&l, VERBS_NEWS_ESTABLISHED, 0);
	assert_int_equal(verbs_life_connect(&l, false), -EISCONN);
}

/* Accepted, and ended before the peer has said that it heard: it counts itself connected. */
static void ended_half_way(void **state)
{
	(void)state;
	for (int how = 0; how < 3; how++) {
		struct verbs_life l = { 0 };

		assert_int_equal(verbs_life_connect(&l, true), 0);
		step(&l, VERBS_STEP_ACCEPT);
		verbs_life_destroy(&l);
		step(&l, VERBS_STEP_STOP);
		assert_false(l.linked);
		assert_true(verbs_life_waits(&l));
		nothing_to_do(&l);
		if (how == 0) {
			verbs_life_hear(&l, VERBS_HEARD_ESTABLISHED, 0);
			assert_true(l.linked);
		} else if (how == 1) {
			verbs_life_hear(&l, VERBS_HEARD_FAILED, -ETIMEDOUT);
		} else {
			verbs_life_late(&l);
		}
		assert_false(verbs_life_waits(&l));
		step(&l, VERBS_STEP_DESTROY);
		assert_true(l.destroyed);
	}
}

/* The same without destroy: the peer is disconnected when it has spoken. */
static void stopped_half_way(void **state)
{
	struct verbs_life l = { 0 };

	(void)state;
	assert_int_equal(verbs_life_connect(&l, true), 0);
	step(&l, VERBS_STEP_ACCEPT);
	verbs_life_error(&l);
	step(&l, VERBS_STEP_STOP);
	news(&l, VERBS_NEWS_ESTABLISHED, -ECONNABORTED);
	nothing_to_do(&l);
	verbs_life_hear(&l, VERBS_HEARD_ESTABLISHED, 0);
	step(&l, VERBS_STEP_STOP);
	no_news(&l);
	nothing_to_do(&l);
}

/* Each step's failure is the connection's, told when all has flushed. */
static void steps_that_fail(void **state)
{
	const enum verbs_step steps[] = { VERBS_STEP_ADDRESS, VERBS_STEP_ROUTE, VERBS_STEP_CONNECT,
					  VERBS_STEP_ESTABLISH };
	const enum verbs_heard events[] = { VERBS_HEARD_ADDRESS, VERBS_HEARD_ROUTE,
					    VERBS_HEARD_RESPONSE };

	(void)state;
	for (size_t bad = 0; bad < XC_ARRAY_SIZE(steps); bad++) {
		struct verbs_life l = { 0 };

		verbs_life_connect(&l, false);
		for (size_t i = 0; i < bad; i++) {
			step(&l, steps[i]);
			verbs_life_hear(&l, events[i], 0);
		}
		runs(&l, steps[bad]);
		verbs_life_done(&l, -ENETDOWN);
		no_news(&l);
		assert_false(verbs_life_may_send(&l));
		step(&l, VERBS_STEP_STOP);
		news(&l, VERBS_NEWS_ESTABLISHED, -ENETDOWN);
		no_news(&l);
		nothing_to_do(&l);
		assert_true(verbs_life_may_poll(&l));
	}
}

static void refused(void **state)
{
	struct verbs_life l;

	(void)state;
	resolve(&l);
	runs(&l, VERBS_STEP_CONNECT);
	verbs_life_hear(&l, VERBS_HEARD_FAILED, -XP_E_REJECTED);
	/* Whatever the call says then. */
	verbs_life_done(&l, -ECONNRESET);
	step(&l, VERBS_STEP_STOP);
	news(&l, VERBS_NEWS_ESTABLISHED, -XP_E_REJECTED);
	/* A late echo. */
	verbs_life_hear(&l, VERBS_HEARD_DISCONNECTED, -XP_E_PEER_GONE);
	no_news(&l);
}

static void peer_disconnects(void **state)
{
	struct verbs_life l;

	(void)state;
	connected(&l);
	verbs_life_hear(&l, VERBS_HEARD_DISCONNECTED, -XP_E_PEER_GONE);
	/* At once: it may be destroyed in the same turn. */
	news(&l, VERBS_NEWS_DISCONNECTED, -XP_E_PEER_GONE);
	assert_true(verbs_life_may_poll(&l));
	assert_false(verbs_life_may_send(&l));
	step(&l, VERBS_STEP_STOP);
	verbs_life_error(&l);
	verbs_life_disconnect(&l);
	nothing_to_do(&l);
	no_news(&l);
}

/* Connected and over before the step returned: both are told, in order. */
static void a_short_connection(void **state)
{
	struct verbs_life l = { 0 };

	(void)state;
	verbs_life_connect(&l, true);
	runs(&l, VERBS_STEP_ACCEPT);
	verbs_life_hear(&l, VERBS_HEARD_ESTABLISHED, 0);
	verbs_life_hear(&l, VERBS_HEARD_DISCONNECTED, -XP_E_PEER_GONE);
	no_news(&l);
	verbs_life_done(&l, 0);
	news(&l, VERBS_NEWS_ESTABLISHED, 0);
	news(&l, VERBS_NEWS_DISCONNECTED, -XP_E_PEER_GONE);
	step(&l, VERBS_STEP_STOP);
	no_news(&l);
}

/* The peer went before the handshake was over. */
static void a_connection_that_never_was(void **state)
{
	struct verbs_life l = { 0 };

	(void)state;
	verbs_life_connect(&l, true);
	runs(&l, VERBS_STEP_ACCEPT);
	verbs_life_hear(&l, VERBS_HEARD_DISCONNECTED, -XP_E_PEER_GONE);
	verbs_life_done(&l, 0);
	step(&l, VERBS_STEP_STOP);
	news(&l, VERBS_NEWS_ESTABLISHED, -XP_E_PEER_GONE);
	no_news(&l);
}

static void ends_here(void **state)
{
	struct verbs_life l;

	(void)state;
	connected(&l);
	verbs_life_error(&l);
	assert_false(verbs_life_may_send(&l));
	no_news(&l);
	step(&l, VERBS_STEP_STOP);
	news(&l, VERBS_NEWS_DISCONNECTED, 0);
	connected(&l);
	assert_false(l.orderly);
	verbs_life_disconnect(&l);
	verbs_life_error(&l);
	assert_true(l.orderly);
	step(&l, VERBS_STEP_STOP);
	news(&l, VERBS_NEWS_DISCONNECTED, 0);
	no_news(&l);
}

/* A call that hangs: all else waits for it. */
static void ends_during_connect(void **state)
{
	struct verbs_life l;

	(void)state;
	resolve(&l);
	runs(&l, VERBS_STEP_CONNECT);
	verbs_life_error(&l);
	nothing_to_do(&l);
	no_news(&l);
	/* It succeeds in the end, and nobody wants it any more. */
	verbs_life_hear(&l, VERBS_HEARD_ESTABLISHED, 0);
	verbs_life_done(&l, 0);
	step(&l, VERBS_STEP_STOP);
	news(&l, VERBS_NEWS_ESTABLISHED, -ECONNABORTED);
	no_news(&l);
	assert_false(verbs_life_may_send(&l));
}

static void idle_ones(void **state)
{
	struct verbs_life l = { 0 };

	(void)state;
	/* RECVs that were posted stay. */
	verbs_life_disconnect(&l);
	assert_int_equal(l.phase, VERBS_IDLE);
	nothing_to_do(&l);
	verbs_life_error(&l);
	assert_true(verbs_life_may_poll(&l));
	step(&l, VERBS_STEP_STOP);
	no_news(&l);
	assert_int_equal(verbs_life_connect(&l, false), -EISCONN);
}

static void destroyed_at_any_time(void **state)
{
	const enum verbs_step steps[] = { VERBS_STEP_ADDRESS, VERBS_STEP_ROUTE, VERBS_STEP_CONNECT,
					  VERBS_STEP_ESTABLISH };
	const enum verbs_heard events[] = { VERBS_HEARD_ADDRESS, VERBS_HEARD_ROUTE,
					    VERBS_HEARD_RESPONSE };

	(void)state;
	for (size_t when = 0; when < 2 * XC_ARRAY_SIZE(steps); when++) {
		struct verbs_life l = { 0 };

		verbs_life_connect(&l, false);
		for (size_t i = 0; i < when / 2; i++) {
			step(&l, steps[i]);
			verbs_life_hear(&l, events[i], 0);
		}
		if (when % 2) /* while the next runs */
			runs(&l, steps[when / 2]);
		verbs_life_destroy(&l);
		assert_false(verbs_life_may_send(&l));
		assert_false(verbs_life_may_poll(&l));
		no_news(&l);
		if (when % 2) {
			nothing_to_do(&l);
			verbs_life_done(&l, 0);
		}
		step(&l, VERBS_STEP_DESTROY);
		assert_true(l.destroyed);
		nothing_to_do(&l);
		no_news(&l);
	}
}

static void a_lost_device(void **state)
{
	struct verbs_life l;

	(void)state;
	connected(&l);
	verbs_life_fault(&l, -XP_E_DEVICE);
	/* What stops it may never return. */
	runs(&l, VERBS_STEP_STOP);
	news(&l, VERBS_NEWS_DISCONNECTED, -XP_E_DEVICE);
	resolve(&l);
	runs(&l, VERBS_STEP_CONNECT);
	verbs_life_fault(&l, -XP_E_DEVICE);
	news(&l, VERBS_NEWS_ESTABLISHED, -XP_E_DEVICE);
	verbs_life_done(&l, -EIO);
	no_news(&l);
}

static void the_first_reason_counts(void **state)
{
	struct verbs_life l;

	(void)state;
	connected(&l);
	verbs_life_fault(&l, -XP_E_REMOTE_ACCESS);
	verbs_life_hear(&l, VERBS_HEARD_DISCONNECTED, -XP_E_PEER_GONE);
	verbs_life_error(&l);
	news(&l, VERBS_NEWS_DISCONNECTED, -XP_E_REMOTE_ACCESS);
	step(&l, VERBS_STEP_STOP);
	no_news(&l);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(connects_infiniband),
		cmocka_unit_test(connects_iwarp),
		cmocka_unit_test(events_wait_for_steps),
		cmocka_unit_test(accepts),
		cmocka_unit_test(ended_half_way),
		cmocka_unit_test(stopped_half_way),
		cmocka_unit_test(steps_that_fail),
		cmocka_unit_test(refused),
		cmocka_unit_test(peer_disconnects),
		cmocka_unit_test(a_short_connection),
		cmocka_unit_test(a_connection_that_never_was),
		cmocka_unit_test(ends_here),
		cmocka_unit_test(ends_during_connect),
		cmocka_unit_test(idle_ones),
		cmocka_unit_test(destroyed_at_any_time),
		cmocka_unit_test(a_lost_device),
		cmocka_unit_test(the_first_reason_counts),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
