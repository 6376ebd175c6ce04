/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Ends of connections: what is on the queues comes back, in order and once (the rig looks), and
 * both sides are told once.
 */
#include <string.h>

#include "proto/errors.h"
#include "tests/fabric/rig.h"
#include "tests/fabric/suite.h"

#define RECVS 5u
#define BIG (256 * KIB)
#define READS 10u

static const struct end_attr big = { .bytes = 2 * BIG };

static void post_all(struct end *e)
{
	for (unsigned int i = 0; i < RECVS; i++)
		post_recv(e, i, i * 64, 64);
}

static void check_recvs_flushed(struct end *e)
{
	for (unsigned int i = 0; i < RECVS; i++)
		CHECK_EQ(took(e, RECV_ID(i)), IBV_WC_WR_FLUSH_ERR);
}

/* Some were done before the end, the others were not: never the other way round. */
static void check_sends_ended(struct end *e, unsigned int n)
{
	bool failed = false;

	for (unsigned int i = 0; i < n; i++) {
		int status = took(e, i);

		CHECK(!failed || status == IBV_WC_WR_FLUSH_ERR);
		failed = failed || status != IBV_WC_SUCCESS;
	}
}

/* As with ibv_post_send(3) in the error state: it is taken and flushes, or it is not taken. */
static void check_late_posts(struct end *e)
{
	struct ibv_sge sge = sge_of(e, 0, 64);
	struct ibv_send_wr *bad, wr = { .wr_id = 90, .opcode = IBV_WR_SEND, .sg_list = &sge,
					.num_sge = 1, .send_flags = IBV_SEND_SIGNALED };
	struct ibv_recv_wr *bad_recv, recv = { .wr_id = RECV_ID(90), .sg_list = &sge,
					       .num_sge = 1 };

	if (post(e, &wr, &bad) == 0)
		CHECK_EQ(took(e, 90), IBV_WC_WR_FLUSH_ERR);
	if (post_recvs(e, &recv, &bad_recv) == 0)
		CHECK_EQ(took(e, RECV_ID(90)), IBV_WC_WR_FLUSH_ERR);
}

enum how { DISCONNECT, ERROR, DESTROY };

static void end_it(struct end *a, enum how how)
{
	if (how == DISCONNECT)
		end_disconnect(a);
	else if (how == ERROR)
		end_error(a);
	else
		end_destroy(a);
}

static void ends_with(enum how how, bool of_server)
{
	struct end *a, *b, *one, *other;
	struct exposure *x;

	pair(&big, &a, &b);
	x = expose(b, 0, BIG, IBV_ACCESS_REMOTE_READ);
	post_all(a);
	post_all(b);
	for (unsigned int i = 0; i < 3; i++)
		post_rdma(a, IBV_WR_RDMA_READ, i, 0, BIG, x, 0);
	one = of_server ? b : a;
	other = of_server ? a : b;
	end_it(one, how);
	WAIT(other->n_disconnected);
	CHECK_EQ(other->disconnected, -XP_E_PEER_GONE);
	check_recvs_flushed(other);
	if (how != DESTROY) {
		WAIT(one->n_disconnected);
		CHECK_EQ(one->disconnected, 0);
		check_recvs_flushed(one);
	}
	if (!a->dead)
		check_sends_ended(a, 3);
	check_late_posts(other);
	/* Harmless, from either side, and twice. */
	if (how != DESTROY)
		end_it(one, how);
	end_disconnect(other);
	end_error(other);
	rig_quiet();
	CHECK_EQ(other->n_disconnected, 1);
	CHECK_EQ(other->wcs[0].n + other->wcs[1].n, 0);
}

static void disconnects(void)
{
	ends_with(DISCONNECT, false);
	ends_with(DISCONNECT, true);
}

static void errors(void)
{
	ends_with(ERROR, false);
	ends_with(ERROR, true);
}

static void destroys(void)
{
	ends_with(DESTROY, false);
	ends_with(DESTROY, true);
}

/* All that the queues hold, and completions for all of it. */
static void full_queues_flush(void)
{
	const uint32_t depth = 48;
	const struct end_attr deep = { .bytes = 2 * BIG, .send_wr = depth, .recv_wr = depth };
	struct exposure *x;
	struct end *a, *b;

	pair(&deep, &a, &b);
	x = expose(b, 0, BIG, IBV_ACCESS_REMOTE_READ);
	for (unsigned int i = 0; i < depth; i++) {
		post_recv(a, i, 0, 64);
		post_rdma(a, IBV_WR_RDMA_READ, i, 0, BIG, x, 0);
	}
	end_error(a);
	check_sends_ended(a, depth);
	for (unsigned int i = 0; i < depth; i++)
		CHECK_EQ(took(a, RECV_ID(i)), IBV_WC_WR_FLUSH_ERR);
	until_ended(a, b);
}

/*
 * Unsignalled ones flush as well: there is no other way to learn that they did not happen. They
 * wait behind READs; where those were faster than the end, they may have been, too.
 */
static void quiet_ones_flush(void)
{
	struct ibv_send_wr *bad, wr = { .opcode = IBV_WR_RDMA_WRITE, .num_sge = 1,
					.send_flags = IBV_SEND_FENCE };
	struct exposure *r, *w;
	struct ibv_sge sge;
	struct end *a, *b;
	int last = 0;

	if (rig.caps->signal_all) {
		report_skip("caps: every work request must be signalled");
		return;
	}
	pair(&big, &a, &b);
	r = expose(b, 0, BIG, IBV_ACCESS_REMOTE_READ);
	w = expose(b, BIG, BIG, IBV_ACCESS_REMOTE_WRITE);
	for (unsigned int i = 0; i < READS; i++)
		post_rdma(a, IBV_WR_RDMA_READ, i, 0, BIG, r, 0);
	sge = sge_of(a, 0, 64);
	wr.sg_list = &sge;
	wr.wr.rdma.remote_addr = w->address;
	wr.wr.rdma.rkey = w->rkey;
	for (wr.wr_id = READS; wr.wr_id < READS + 3; wr.wr_id++)
		CHECK_EQ(post(a, &wr, &bad), 0);
	end_error(a);
	for (unsigned int i = 0; i < READS; i++)
		last = took(a, i);
	if (last != IBV_WC_SUCCESS)
		for (unsigned int i = READS; i < READS + 3; i++)
			CHECK_EQ(took(a, i), IBV_WC_WR_FLUSH_ERR);
	until_ended(a, b);
}

/* A peer that sends and then disconnects has its message seen. */
static void the_last_word(void)
{
	struct end *a, *b;

	if (!rig.caps->acknowledged) {
		report_skip("caps: a SEND that succeeded may still be on its way");
		return;
	}
	pair(NULL, &a, &b);
	post_all(b);
	fill(a->mem, 64, 1);
	post_send(a, 1, 0, 64);
	CHECK_EQ(took(a, 1), IBV_WC_SUCCESS);
	end_disconnect(a);
	until_ended(a, b);
	CHECK_EQ(took(b, RECV_ID(0)), IBV_WC_SUCCESS);
	CHECK(filled(b->mem, 64, 1));
	CHECK_EQ(took(b, RECV_ID(1)), IBV_WC_WR_FLUSH_ERR);
}

/* Destroyed in the middle of everything: the rig hears whatever comes late. */
static void nothing_comes_late(void)
{
	for (int round = 0; round < 3; round++) {
		struct exposure *x;
		struct end *a, *b;

		pair(&big, &a, &b);
		x = expose(b, 0, BIG, IBV_ACCESS_REMOTE_READ);
		post_all(b);
		for (unsigned int i = 0; i < 4; i++)
			post_send(a, i, 0, 64);
		post_rdma(a, IBV_WR_RDMA_READ, 4, 0, BIG, x, 0);
		for (int i = 0; i < round; i++)
			rig_turn(engine_now(rig.engine) + 1000000);
		if (round % 2) {
			end_destroy(b);
			end_destroy(a);
		} else {
			end_destroy(a);
			end_destroy(b);
		}
		rig_quiet();
	}
}

/* Nobody writes into memory of an endpoint that is no more. */
static void memory_is_left_alone(void)
{
	struct exposure *x;
	struct end *a, *b;

	pair(&big, &a, &b);
	x = expose(b, 0, BIG, IBV_ACCESS_REMOTE_WRITE);
	memset(a->mem, 1, a->bytes);
	for (unsigned int i = 0; i < 8; i++)
		post_rdma(a, IBV_WR_RDMA_WRITE, i, 0, BIG, x, 0);
	end_destroy(b);
	memset(b->mem, 0xee, b->bytes);
	rig_quiet();
	CHECK(all_are(b->mem, b->bytes, 0xee));
}

/* Both at once. */
static void both_disconnect(void)
{
	struct end *a, *b;

	pair(NULL, &a, &b);
	post_all(a);
	post_all(b);
	end_disconnect(a);
	end_disconnect(b);
	until_ended(a, b);
	check_recvs_flushed(a);
	check_recvs_flushed(b);
	rig_quiet();
}

const struct test flush_tests[] = {
	{ "ep_disconnect flushes", disconnects,
	  { "lose-flush", "no-disconnected", "disconnected-twice", "disconnected-why",
	    "swap-wcs" } },
	{ "ep_error flushes", errors,
	  { "lose-flush", "no-disconnected", "disconnected-twice", "disconnected-why" } },
	{ "ep_destroy ends it for the peer", destroys, { "no-disconnected", "lose-flush" } },
	{ "full queues flush", full_queues_flush, { "lose-flush", "swap-wcs", "double-wc" } },
	{ "unsignalled ones flush", quiet_ones_flush, { "lose-flush" } },
	{ "the last word is heard", the_last_word, { "flush-all" } },
	{ "nothing comes after ep_destroy", nothing_comes_late,
	  { "late-event", "late-wc", "endless-destroy" } },
	{ "memory is left alone after ep_destroy", memory_is_left_alone, { "late-write" } },
	{ "both disconnect", both_disconnect, { "no-disconnected", "lose-flush" } },
	{ 0 },
};
