/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * SENDs of all kinds meet RECVs, or do not; what a fabric cannot, its caps say.
 */
#include <string.h>

#include "tests/fabric/rig.h"
#include "tests/fabric/suite.h"

static int post_one(struct end *a, enum ibv_wr_opcode op, uint64_t id, uint32_t bytes,
		    unsigned int flags, uint32_t key_or_imm, const struct exposure *x)
{
	struct ibv_sge sge = sge_of(a, 0, bytes);
	struct ibv_send_wr *bad, wr = {
		.wr_id = id, .opcode = op, .sg_list = &sge, .num_sge = bytes ? 1 : 0,
		.send_flags = IBV_SEND_SIGNALED | flags, .imm_data = key_or_imm,
	};

	if (x) {
		wr.wr.rdma.remote_addr = x->address;
		wr.wr.rdma.rkey = x->rkey;
	}
	return post(a, &wr, &bad);
}

static void solicited(void)
{
	struct end *a, *b;
	struct ibv_wc wc;

	pair(NULL, &a, &b);
	fill(a->mem, 64, 1);
	for (unsigned int i = 0; i < 4; i++) {
		post_recv(b, i, 0, 64);
		memset(b->mem, 0, 64);
		CHECK_EQ(post_one(a, IBV_WR_SEND, i, 64, i % 2 ? IBV_SEND_SOLICITED : 0, 0, NULL),
			 0);
		CHECK_EQ(took(a, i), IBV_WC_SUCCESS);
		CHECK_EQ(take(b, RECV_ID(i), &wc), IBV_WC_SUCCESS);
		CHECK_EQ(wc.byte_len, 64);
		CHECK(filled(b->mem, 64, 1));
		CHECK(!(wc.wc_flags & (IBV_WC_WITH_INV | IBV_WC_WITH_IMM)));
	}
}

static void with_invalidate(void)
{
	struct exposure *x;
	struct end *a, *b;
	struct ibv_wc wc;

	pair(NULL, &a, &b);
	post_recv(b, 1, 0, 64);
	if (!rig.caps->remote_invalidate) {
		x = expose(b, 0, PAGE, IBV_ACCESS_REMOTE_READ);
		CHECK(post_one(a, IBV_WR_SEND_WITH_INV, 1, 64, 0, x->rkey, NULL) < 0);
		report_skip("caps: no remote invalidation; it is refused");
		return;
	}
	x = expose(b, PAGE, PAGE, IBV_ACCESS_REMOTE_READ);
	post_rdma(a, IBV_WR_RDMA_READ, 7, PAGE, PAGE, x, 0);
	CHECK_EQ(took(a, 7), IBV_WC_SUCCESS);
	CHECK_EQ(post_one(a, IBV_WR_SEND_WITH_INV, 1, 64, 0, x->rkey, NULL), 0);
	CHECK_EQ(took(a, 1), IBV_WC_SUCCESS);
	CHECK_EQ(take(b, RECV_ID(1), &wc), IBV_WC_SUCCESS);
	CHECK(wc.wc_flags & IBV_WC_WITH_INV);
	CHECK_EQ(wc.invalidated_rkey, x->rkey);
	CHECK_EQ(wc.byte_len, 64);
	/* and it is dead */
	memset(a->mem, 0xee, a->bytes);
	post_rdma(a, IBV_WR_RDMA_READ, 8, PAGE, PAGE, x, 0);
	CHECK(took(a, 8) != IBV_WC_SUCCESS);
	CHECK(all_are(a->mem, a->bytes, 0xee));
}

static void with_immediate(void)
{
	struct exposure *x;
	struct end *a, *b;
	struct ibv_wc wc;

	pair(NULL, &a, &b);
	x = expose(b, PAGE, PAGE, IBV_ACCESS_REMOTE_WRITE);
	post_recv(b, 1, 0, 64);
	post_recv(b, 2, 0, 64);
	if (!rig.caps->immediate) {
		CHECK(post_one(a, IBV_WR_SEND_WITH_IMM, 1, 64, 0, 77, NULL) < 0);
		CHECK(post_one(a, IBV_WR_RDMA_WRITE_WITH_IMM, 1, 64, 0, 77, x) < 0);
		report_skip("caps: no immediate data; it is refused");
		return;
	}
	fill(a->mem, 64, 2);
	CHECK_EQ(post_one(a, IBV_WR_SEND_WITH_IMM, 1, 64, 0, 0x12345678, NULL), 0);
	CHECK_EQ(post_one(a, IBV_WR_RDMA_WRITE_WITH_IMM, 2, 64, 0, 0x9abcdef0, x), 0);
	CHECK_EQ(took(a, 1), IBV_WC_SUCCESS);
	CHECK_EQ(took(a, 2), IBV_WC_SUCCESS);
	CHECK_EQ(take(b, RECV_ID(1), &wc), IBV_WC_SUCCESS);
	CHECK(wc.wc_flags & IBV_WC_WITH_IMM);
	CHECK_EQ(wc.imm_data, 0x12345678);
	CHECK_EQ(wc.opcode, IBV_WC_RECV);
	CHECK_EQ(take(b, RECV_ID(2), &wc), IBV_WC_SUCCESS);
	CHECK(wc.wc_flags & IBV_WC_WITH_IMM);
	CHECK_EQ(wc.imm_data, 0x9abcdef0);
	CHECK_EQ(wc.opcode, IBV_WC_RECV_RDMA_WITH_IMM);
	CHECK(filled(b->mem, 64, 2) && filled(b->mem + PAGE, 64, 2));
}

/* What no fabric here carries. */
static void unknown_operations(void)
{
	static const enum ibv_wr_opcode ops[] = {
		IBV_WR_ATOMIC_CMP_AND_SWP, IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WR_TSO,
		(enum ibv_wr_opcode)99,
	};
	struct end *a, *b;

	pair(NULL, &a, &b);
	for (size_t i = 0; i < XC_ARRAY_SIZE(ops); i++)
		CHECK(post_one(a, ops[i], 1, 8, 0, 0, NULL) < 0);
	rig_quiet();
	CHECK_EQ(a->wcs[0].n, 0);
	post_recv(b, 1, 0, 64);
	post_send(a, 1, 0, 64);
	CHECK_EQ(took(a, 1), IBV_WC_SUCCESS);
	CHECK_EQ(took(b, RECV_ID(1)), IBV_WC_SUCCESS);
}

/* A message that finds no RECV. */
static void no_recv(void)
{
	struct end *a, *b;
	int status;

	pair(NULL, &a, &b);
	post_send(a, 1, 0, 64);
	if (rig.caps->receiver_not_ready) {
		CHECK_EQ(took(a, 1), IBV_WC_RNR_RETRY_EXC_ERR);
		end_error(a);
		until_ended(a, b);
		return;
	}
	/* The connection ends; whether the sender heard before is the wire's matter. */
	status = took(a, 1);
	CHECK(status != IBV_WC_RNR_RETRY_EXC_ERR);
	until_ended(a, b);
	CHECK(a->disconnected < 0 && b->disconnected < 0);
}

/* It is there in time. */
static void late_recv(void)
{
	struct end *a, *b;

	if (!rig.caps->receiver_not_ready) {
		report_skip("caps: a SEND that finds no RECV ends the connection");
		return;
	}
	pair(NULL, &a, &b);
	fill(a->mem, 64, 3);
	post_send(a, 1, 0, 64);
	/* Once around: the SEND has begun to wait. */
	rig_turn(engine_now(rig.engine) + 1000000);
	post_recv(b, 1, 0, 64);
	CHECK_EQ(took(a, 1), IBV_WC_SUCCESS);
	CHECK_EQ(took(b, RECV_ID(1)), IBV_WC_SUCCESS);
	CHECK(filled(b->mem, 64, 3));
}

/* Nothing is written beyond the RECV, and it is not said to have succeeded. */
static void too_long(void)
{
	struct end *a, *b;
	int status;

	pair(NULL, &a, &b);
	memset(b->mem, 0xee, b->bytes);
	memset(a->mem, 1, a->bytes);
	post_recv(b, 1, PAGE, 100);
	post_recv(b, 2, 4 * PAGE, PAGE);
	post_send(a, 1, 0, 101);
	status = took(a, 1);
	CHECK(!rig.caps->acknowledged || status != IBV_WC_SUCCESS);
	CHECK(took(b, RECV_ID(1)) != IBV_WC_SUCCESS);
	CHECK_EQ(took(b, RECV_ID(2)), IBV_WC_WR_FLUSH_ERR);
	if (status != IBV_WC_SUCCESS)
		end_error(a);
	until_ended(a, b);
	CHECK(all_are(b->mem, PAGE, 0xee));
	CHECK(all_are(b->mem + PAGE + 100, b->bytes - PAGE - 100, 0xee));
}

const struct test meet_tests[] = {
	{ "SEND with solicited event", solicited, { "no-solicited", "move-byte" } },
	{ "SEND with invalidate", with_invalidate,
	  { "iwarp:skip-invalidate", "no-invalidate", "claim-no-invalidate" } },
	{ "immediate data", with_immediate, { "claim-immediate" } },
	{ "unknown operations are refused", unknown_operations, { "do-something" } },
	{ "SEND without RECV", no_recv, { "claim-rnr" } },
	{ "SEND before RECV", late_recv, { "move-byte" } },
	{ "SEND longer than the RECV", too_long, { "stretch-recv" } },
	{ 0 },
};
