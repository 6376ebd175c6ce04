/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Order: of completions, of effects, and of what is not told.
 */
#include <string.h>

#include "tests/fabric/rig.h"
#include "tests/fabric/suite.h"

#define N 12

/* The rig sees it where one of these comes out of turn, twice or not at all. */
static void completions_come_in_order(void)
{
	static const enum ibv_wr_opcode ops[] = {
		IBV_WR_RDMA_READ, IBV_WR_SEND, IBV_WR_RDMA_WRITE,
	};
	struct exposure *r, *w;
	struct end *a, *b;

	pair(NULL, &a, &b);
	r = expose(b, 0, PAGE, IBV_ACCESS_REMOTE_READ);
	w = expose(b, PAGE, PAGE, IBV_ACCESS_REMOTE_WRITE);
	for (unsigned int i = 0; i < N; i++)
		post_recv(b, i, 2 * PAGE, 64);
	for (unsigned int round = 0; round < 3; round++) {
		for (unsigned int i = 0; i < N; i++) {
			enum ibv_wr_opcode op = ops[(i + round) % 3];

			if (op == IBV_WR_SEND)
				post_send(a, i, 0, 64);
			else
				post_rdma(a, op, i, PAGE, PAGE, op == IBV_WR_RDMA_READ ? r : w, 0);
		}
		for (unsigned int i = 0; i < N; i++)
			CHECK_EQ(took(a, i), IBV_WC_SUCCESS);
	}
	for (unsigned int i = 0; i < N; i++)
		CHECK_EQ(took(b, RECV_ID(i)), IBV_WC_SUCCESS);
	rig_quiet();
	CHECK_EQ(a->wcs[0].n + b->wcs[1].n, 0);
}

static void messages_meet_recvs_in_order(void)
{
	struct end *a, *b;

	pair(NULL, &a, &b);
	for (unsigned int i = 0; i < N; i++) {
		post_recv(b, i, i * 100, 100);
		memset(a->mem + i * 100, (int)i + 1, i + 1);
	}
	for (unsigned int i = 0; i < N; i++)
		post_send(a, i, i * 100, i + 1);
	for (unsigned int i = 0; i < N; i++) {
		struct ibv_wc wc;

		CHECK_EQ(take(b, RECV_ID(i), &wc), IBV_WC_SUCCESS);
		CHECK_EQ(wc.byte_len, i + 1);
		CHECK(all_are(b->mem + i * 100, i + 1, (uint8_t)(i + 1)));
		CHECK_EQ(took(a, i), IBV_WC_SUCCESS);
	}
}

/*
 * The source of a WRITE behind a fence is the sink of the READ before it. A chain, so that nothing
 * can come between.
 */
static void a_fence_waits_for_reads(void)
{
	const uint32_t bytes = 64 * KIB;
	const struct end_attr attr = { .bytes = 4 * bytes };
	struct exposure *r, *w;
	struct end *a, *b;

	pair(&attr, &a, &b);
	r = expose(b, 0, bytes, IBV_ACCESS_REMOTE_READ);
	w = expose(b, bytes, bytes, IBV_ACCESS_REMOTE_WRITE);
	for (uint8_t round = 1; round < 6; round++) {
		struct ibv_sge sge = sge_of(a, bytes, bytes);
		struct ibv_send_wr *bad, wrs[2] = {
			{ .wr_id = 1, .opcode = IBV_WR_RDMA_READ, .next = &wrs[1],
			  .sg_list = &sge, .num_sge = 1, .send_flags = IBV_SEND_SIGNALED,
			  .wr.rdma = { r->address, r->rkey } },
			{ .wr_id = 2, .opcode = IBV_WR_RDMA_WRITE,
			  .sg_list = &sge, .num_sge = 1,
			  .send_flags = IBV_SEND_SIGNALED | IBV_SEND_FENCE,
			  .wr.rdma = { w->address, w->rkey } },
		};

		fill(b->mem, bytes, round);
		CHECK_EQ(post(a, wrs, &bad), 0);
		CHECK_EQ(took(a, 1), IBV_WC_SUCCESS);
		CHECK_EQ(took(a, 2), IBV_WC_SUCCESS);
		post_recv(b, round, 0, 0);
		post_send(a, round, 0, 0);
		CHECK_EQ(took(a, round), IBV_WC_SUCCESS);
		CHECK_EQ(took(b, RECV_ID(round)), IBV_WC_SUCCESS);
		CHECK(filled(b->mem + bytes, bytes, round));
	}
}

/* A fence is for any work request; some devices take none with a READ. */
static void reads_have_fences(void)
{
	struct exposure *r;
	struct end *a, *b;

	pair(NULL, &a, &b);
	r = expose(b, 0, PAGE, IBV_ACCESS_REMOTE_READ);
	fill(b->mem, PAGE, 1);
	for (unsigned int i = 0; i < 4; i++) {
		struct ibv_sge sge = sge_of(a, i * PAGE, PAGE);
		struct ibv_send_wr *bad, wr = {
			.wr_id = i, .opcode = IBV_WR_RDMA_READ, .sg_list = &sge, .num_sge = 1,
			.send_flags = IBV_SEND_SIGNALED | IBV_SEND_FENCE,
			.wr.rdma = { r->address, r->rkey },
		};

		CHECK_EQ(post(a, &wr, &bad), 0);
	}
	for (unsigned int i = 0; i < 4; i++) {
		CHECK_EQ(took(a, i), IBV_WC_SUCCESS);
		CHECK(filled(a->mem + i * PAGE, PAGE, 1));
	}
	rig_quiet();
	CHECK_EQ(a->n_disconnected, 0);
}

/* A READ sees what the WRITE before it wrote; a message is seen after what precedes it. */
static void effects_come_in_order(void)
{
	struct exposure *w, *r;
	struct end *a, *b;

	pair(NULL, &a, &b);
	w = expose(b, 0, PAGE, IBV_ACCESS_REMOTE_WRITE);
	r = expose(b, 0, PAGE, IBV_ACCESS_REMOTE_READ);
	for (uint8_t round = 1; round < 6; round++) {
		fill(a->mem, PAGE, round);
		memset(a->mem + PAGE, 0, PAGE);
		post_recv(b, round, 2 * PAGE, 8);
		post_rdma(a, IBV_WR_RDMA_WRITE, 1, 0, PAGE, w, 0);
		post_rdma(a, IBV_WR_RDMA_READ, 2, PAGE, PAGE, r, 0);
		post_send(a, 3, 0, 8);
		CHECK_EQ(took(b, RECV_ID(round)), IBV_WC_SUCCESS);
		CHECK(filled(b->mem, PAGE, round));
		for (unsigned int i = 1; i <= 3; i++)
			CHECK_EQ(took(a, i), IBV_WC_SUCCESS);
		CHECK(filled(a->mem + PAGE, PAGE, round));
	}
}

/* Many times the depth of the queue, and one completion for each chain. */
static void unsignalled(void)
{
	struct ibv_send_wr wrs[8], *bad;
	struct exposure *w;
	struct ibv_sge sge;
	struct end *a, *b;

	if (rig.caps->signal_all) {
		report_skip("caps: every work request must be signalled");
		return;
	}
	pair(NULL, &a, &b);
	w = expose(b, 0, PAGE, IBV_ACCESS_REMOTE_WRITE);
	sge = sge_of(a, 0, PAGE);
	for (unsigned int i = 0; i < 8; i++)
		wrs[i] = (struct ibv_send_wr){
			.wr_id = i, .next = i < 7 ? &wrs[i + 1] : NULL, .sg_list = &sge,
			.num_sge = 1, .opcode = IBV_WR_RDMA_WRITE,
			.send_flags = i < 7 ? 0 : IBV_SEND_SIGNALED,
			.wr.rdma = { w->address, w->rkey },
		};
	for (uint8_t round = 0; round < 10; round++) {
		fill(a->mem, PAGE, round);
		CHECK_EQ(post(a, wrs, &bad), 0);
		CHECK_EQ(took(a, 7), IBV_WC_SUCCESS);
	}
	post_recv(b, 1, PAGE, 8);
	post_send(a, 1, 0, 8);
	CHECK_EQ(took(b, RECV_ID(1)), IBV_WC_SUCCESS);
	CHECK(filled(b->mem, PAGE, 9));
}

/* What stands before the bad one was posted, and nothing after it. */
static void a_chain_ends_at_the_bad_one(void)
{
	struct ibv_send_wr wrs[4], *bad;
	struct ibv_recv_wr recvs[3], *bad_recv;
	struct ibv_sge sge, many[256];
	struct end_attr attr = { .send_sge = rig.caps->max_sge,
				 .recv_sge = rig.caps->max_recv_sge };
	struct exposure *r;
	struct end *a, *b;

	CHECK(rig.caps->max_sge < 255 && rig.caps->max_recv_sge < 255);
	pair(&attr, &a, &b);
	r = expose(b, 0, PAGE, IBV_ACCESS_REMOTE_READ);
	sge = sge_of(a, 0, 8);
	for (unsigned int i = 0; i < 256; i++)
		many[i] = sge;
	for (unsigned int i = 0; i < 4; i++)
		wrs[i] = (struct ibv_send_wr){
			.wr_id = i, .next = i < 3 ? &wrs[i + 1] : NULL, .sg_list = many,
			.num_sge = i == 2 ? (int)rig.caps->max_sge + 1 : 1,
			.send_flags = IBV_SEND_SIGNALED, .opcode = IBV_WR_RDMA_READ,
			.wr.rdma = { r->address, r->rkey },
		};
	CHECK(post(a, wrs, &bad) < 0);
	CHECK(bad == &wrs[2]);
	CHECK_EQ(took(a, 0), IBV_WC_SUCCESS);
	CHECK_EQ(took(a, 1), IBV_WC_SUCCESS);
	for (unsigned int i = 0; i < 3; i++)
		recvs[i] = (struct ibv_recv_wr){
			.wr_id = RECV_ID(i), .next = i < 2 ? &recvs[i + 1] : NULL,
			.sg_list = many,
			.num_sge = i == 1 ? (int)rig.caps->max_recv_sge + 1 : 1,
		};
	CHECK(post_recvs(a, recvs, &bad_recv) < 0);
	CHECK(bad_recv == &recvs[1]);
	post_recv(b, 5, 0, 64);
	post_send(a, 5, 0, 64);
	CHECK_EQ(took(a, 5), IBV_WC_SUCCESS);
	CHECK_EQ(took(b, RECV_ID(5)), IBV_WC_SUCCESS);
	post_send(b, 6, 0, 8);
	CHECK_EQ(took(a, RECV_ID(0)), IBV_WC_SUCCESS);
	rig_quiet();
	CHECK_EQ(a->wcs[0].n + a->wcs[1].n, 0);
}

/* A connected and quiet endpoint asks for nothing. */
static void sleeps(void)
{
	struct end *a, *b;
	uint64_t asked_before, until;

	pair(NULL, &a, &b);
	post_recv(b, 1, 0, 64);
	rig_quiet();
	asked_before = engine_asked(rig.engine);
	until = engine_now(rig.engine) + UINT64_C(100000000);
	while (engine_now(rig.engine) < until)
		rig_turn(until);
	/* A few may come of what the kernel still has to say; a busy loop makes thousands. */
	CHECK(engine_asked(rig.engine) - asked_before < 20);
}

const struct test order_tests[] = {
	{ "completions come in order, each once", completions_come_in_order,
	  { "drop-wc", "double-wc", "swap-wcs" } },
	{ "messages meet RECVs in order", messages_meet_recvs_in_order,
	  { "swap-wcs", "swap-recvs", "move-byte" } },
	{ "a fence waits for READs", a_fence_waits_for_reads, { "no-fence" } },
	{ "READs with a fence", reads_have_fences, { "move-byte" } },
	{ "effects come in order", effects_come_in_order, { "move-byte", "lose-writes" } },
	{ "unsignalled chains", unsignalled, { "signal-all", "lose-writes" } },
	{ "a chain ends at the bad one", a_chain_ends_at_the_bad_one,
	  { "cut-lists", "wrong-bad" } },
	{ "it sleeps when there is nothing to do", sleeps, { "never-sleep" } },
	{ 0 },
};
