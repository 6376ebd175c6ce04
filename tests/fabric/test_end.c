/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Ends that come early: of what is not connected, or about to be.
 */
#include <errno.h>

#include "tests/fabric/rig.h"
#include "tests/fabric/suite.h"

/* ep_connect was called: aborted, told once, flushed. */
static void check_aborted(struct end *a)
{
	WAIT(a->n_established);
	CHECK_EQ(a->established, -ECONNABORTED);
	CHECK_EQ(took(a, RECV_ID(1)), IBV_WC_WR_FLUSH_ERR);
	CHECK_EQ(took(a, RECV_ID(2)), IBV_WC_WR_FLUSH_ERR);
	rig_quiet();
	CHECK_EQ(a->n_disconnected, 0);
}

static struct end *asking(struct ear *ear, bool wait)
{
	struct end *a = end_new(rig.client, NULL);
	unsigned int n = ear->n_asks;

	post_recv(a, 1, 0, 64);
	post_recv(a, 2, 0, 64);
	CHECK_EQ(ask(a, &ear->at, NULL, 0), 0);
	if (wait)
		asked(ear, n);
	return a;
}

static void error_during_connect(void)
{
	struct ear *ear = hear(rig.server);

	for (int wait = 0; wait < 2; wait++) {
		struct end *a = asking(ear, wait);

		end_error(a);
		end_error(a);
		check_aborted(a);
	}
}

static void disconnect_during_connect(void)
{
	struct ear *ear = hear(rig.server);

	for (int wait = 0; wait < 2; wait++) {
		struct end *a = asking(ear, wait);

		end_disconnect(a);
		end_error(a);
		check_aborted(a);
	}
}

/* Both orders are right: ended before it was connected, or right after. */
#define ENDED(e) ((e)->n_established && ((e)->established || (e)->n_disconnected))

static void end_during_accept(void)
{
	for (int how = 0; how < 2; how++) {
		struct end *b = end_new(rig.server, NULL);
		struct ear *ear = hear(rig.server);
		struct end *a = asking(ear, true);

		post_recv(b, 1, 0, 64);
		CHECK_EQ(accept_ask(b, asked(ear, 0), NULL, 0), 0);
		if (how)
			end_error(b);
		else
			end_disconnect(b);
		WAIT(ENDED(a));
		WAIT(ENDED(b));
		CHECK(b->established == 0 || b->established == -ECONNABORTED);
		CHECK(b->established || b->disconnected == 0);
		CHECK_EQ(took(b, RECV_ID(1)), IBV_WC_WR_FLUSH_ERR);
	}
}

/* destroy must end by itself, and nothing comes after it (the rig looks). */
static void destroy_during_connect(void)
{
	struct ear *ear = hear(rig.server);

	end_destroy(asking(ear, false));
	end_destroy(asking(ear, true));
	rig_quiet();
}

static void destroy_during_accept(void)
{
	struct ear *ear = hear(rig.server);
	struct end *a = asking(ear, true), *b = end_new(rig.server, NULL);

	CHECK_EQ(accept_ask(b, asked(ear, 0), NULL, 0), 0);
	end_destroy(b);
	WAIT(ENDED(a));
}

static void destroy_at_once(void)
{
	struct end *a = end_new(rig.client, NULL), *b = end_new(rig.client, NULL);

	end_destroy(a);
	post_recv(b, 1, 0, 64);
	end_destroy(b);
	rig_quiet();
}

/* Harmless where there is no connection; the error state flushes there too. */
static void end_of_the_idle(void)
{
	struct end *a = end_new(rig.client, NULL);

	post_recv(a, 1, 0, 64);
	end_disconnect(a);
	rig_quiet();
	CHECK_EQ(a->wcs[1].n, 0);
	end_error(a);
	CHECK_EQ(took(a, RECV_ID(1)), IBV_WC_WR_FLUSH_ERR);
	rig_quiet();
	CHECK_EQ(a->n_established + a->n_disconnected, 0);
}

/* A listener that is full of requests which nobody answers. */
static void requests_are_left(void)
{
	struct ear *ear = hear(rig.server);

	for (int i = 0; i < 3; i++)
		asking(ear, true);
	rig_quiet();
	CHECK_EQ(ear->n_asks, 3);
}

static void pass_time(unsigned int ms)
{
	uint64_t until = engine_now(rig.engine) + UINT64_C(1000000) * ms;

	while (engine_now(rig.engine) < until)
		rig_turn(until);
}

/*
 * Nobody answers there. The end of it must not wait for the network; where the device holds the
 * call that connects, destroy may be pending, and everything else must go on.
 */
static void silence(void)
{
	struct xc_addr nowhere = rig.silent;
	struct end *a = end_new(rig.client, NULL);
	WAITING(w);
	int err;

	if (!rig.has_silent) {
		CHECK_EQ(xc_addr_parse("192.0.2.1", 7, &nowhere), 0);
		err = ask(a, &nowhere, NULL, 0);
		if (err) {
			/* Never started: the endpoint is as new. */
			CHECK(err == -ENETUNREACH || err == -EHOSTUNREACH);
			rig_quiet();
			CHECK_EQ(a->n_established, 0);
			join(a, end_new(rig.server, NULL));
			return;
		}
	} else {
		CHECK_EQ(ask(a, &nowhere, NULL, 0), 0);
	}
	post_recv(a, 1, 0, 64);
	/* Addresses are resolved by then, and the device waits for an answer. */
	pass_time(500);
	if (a->n_established) {
		CHECK(a->established < 0);
		return;
	}
	end_error(a);
	WAIT(a->n_established);
	CHECK_EQ(a->established, -ECONNABORTED);
	CHECK_EQ(took(a, RECV_ID(1)), IBV_WC_WR_FLUSH_ERR);
	err = rig.ops->ep_destroy(a->ep, &w.done);
	CHECK(err == 0 || err == -EINPROGRESS);
	/* The rest goes on. */
	for (int i = 0; i < 3; i++) {
		struct end *b, *c;

		pair(NULL, &b, &c);
		post_recv(c, 1, 0, 64);
		post_send(b, 1, 0, 64);
		CHECK_EQ(took(b, 1), IBV_WC_SUCCESS);
		CHECK_EQ(took(c, RECV_ID(1)), IBV_WC_SUCCESS);
		end_disconnect(b);
		until_ended(b, c);
		end_destroy(b);
		end_destroy(c);
	}
	report_end_early();
}

const struct test end_tests[] = {
	{ "ep_error during connect", error_during_connect,
	  { "wrong-refusal", "no-established", "lose-flush" } },
	{ "ep_disconnect during connect", disconnect_during_connect,
	  { "wrong-refusal", "no-established", "lose-flush" } },
	{ "the end during accept", end_during_accept, { "no-disconnected", "lose-flush" } },
	{ "destroyed during connect", destroy_during_connect, { "late-event", "endless-destroy" } },
	{ "destroyed during accept", destroy_during_accept, { "no-disconnected", "late-event" } },
	{ "destroyed and never connected", destroy_at_once, { "late-event", "endless-destroy" } },
	{ "the end of what is idle", end_of_the_idle, { "hasty-disconnect", "lose-flush" } },
	{ "requests that nobody answers", requests_are_left, { "deaf" } },
	{ 0 },
};

const struct test silence_tests[] = {
	{ "nobody answers", silence, { "no-established" } },
	{ 0 },
};
