/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include <string.h>

#include "daemon/fabric/verbs/selftest_rig.h"

/*
 * Short transfers whose source crosses the end of a page. siw sends up to 32 bytes out of its
 * header buffer, into which siw_try_1seg() copies them in two parts where they lie in two pages: it
 * takes as many bytes of the first page as lie in the second ("RDMA/siw: Fix length of first chunk
 * in siw_try_1seg()"). So the bytes are wrong, some may be of whatever lies behind the first page,
 * and all is reported as a success. It does so in its own thread alone: what is sent within the
 * system call that posts it is copied in another way, and is right.
 */

#define PAGE_BYTES 4096u
#define PAGE_END (3 * PAGE_BYTES)
/* Where it goes to: away from the end of any page. */
#define SINK_OFFSET 256u

/* How long, and how much of it lies in the first page: less, and more than in the second. */
static const struct {
	uint32_t bytes, before;
} shapes[] = { { 24, 7 }, { FABRIC_SHORT_BYTES, 25 } };

/* No two bytes near each other are the same. */
static void number(uint8_t *memory)
{
	for (uint32_t i = 0; i < ST_SMALL_BYTES; i++)
		memory[i] = (uint8_t)(i * 7 + i / PAGE_BYTES);
}

/* The first READ holds the second request back, so that the device's own thread comes to send it.
 */
static int post_behind_a_read(struct st *t, struct ibv_send_wr *wr)
{
	struct st_side *peer = &t->link[0].peer;
	struct ibv_sge sge = { st_address(t->held), 1, t->held_mr->lkey };
	struct ibv_send_wr first = { .opcode = IBV_WR_RDMA_READ,
				     .sg_list = &sge,
				     .num_sge = 1,
				     .send_flags = IBV_SEND_SIGNALED,
				     .next = wr },
			   *bad;
	struct ibv_wc wc;
	int status;

	first.wr.rdma.remote_addr = st_address(t->owned);
	first.wr.rdma.rkey = t->open_mr->rkey;
	wr->send_flags |= IBV_SEND_SIGNALED | IBV_SEND_FENCE;
	if (ibv_post_send(peer->id->qp, &first, &bad))
		return ST_REFUSED;
	status = st_wait(t, peer, &wc);
	return status == IBV_WC_SUCCESS ? st_wait(t, peer, &wc) : status;
}

/* One transfer of each kind. All that came is at SINK_OFFSET when it returns success. */
static int move_short(struct st *t, enum ibv_wr_opcode op, uint32_t at, uint32_t bytes)
{
	struct st_link *l = &t->link[0];
	struct ibv_sge sge = { st_address(t->held) + at, bytes, t->held_mr->lkey };
	struct ibv_send_wr wr = { .opcode = op, .sg_list = &sge, .num_sge = 1 };
	struct ibv_wc wc;
	int status;

	wr.wr.rdma.remote_addr = st_address(t->owned) + SINK_OFFSET;
	wr.wr.rdma.rkey = t->open_mr->rkey;
	if (op == IBV_WR_RDMA_READ) {
		sge.addr = st_address(t->held) + SINK_OFFSET;
		wr.wr.rdma.remote_addr = st_address(t->owned) + at;
		return st_post(t, &l->peer, &wr, NULL);
	}
	if (op == IBV_WR_SEND &&
	    st_post_recv(t, &l->owner, t->owned + SINK_OFFSET, bytes, t->open_mr->lkey))
		return ST_REFUSED;
	status = post_behind_a_read(t, &wr);
	if (status != IBV_WC_SUCCESS)
		return status;
	/* A WRITE may complete when it has left; a READ behind it is answered when it is there. */
	return op == IBV_WR_SEND ? st_wait(t, &l->owner, &wc)
				 : st_read(t, 0, st_address(t->owned), t->open_mr->rkey, 1);
}

static struct verbs_finding across(struct st *t, enum ibv_wr_opcode op)
{
	const uint8_t *sink = op == IBV_WR_RDMA_READ ? t->held : t->owned;
	uint8_t *source = op == IBV_WR_RDMA_READ ? t->owned : t->held;
	struct verbs_finding f = ST_LOST;

	if (st_connect(t, 0, t->owner_pd, 1) || !st_link_works(t, 0))
		return f;
	for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
		const uint32_t at = PAGE_END - shapes[i].before;

		st_fill(t);
		number(source);
		f.status = move_short(t, op, at, shapes[i].bytes);
		f.answer = f.status == ST_NOTHING	? VERBS_SILENT
			   : f.status != IBV_WC_SUCCESS ? VERBS_LOST
							: VERBS_YES;
		if (f.answer == VERBS_YES &&
		    memcmp(sink + SINK_OFFSET, source + at, shapes[i].bytes) != 0)
			f.answer = VERBS_NO;
		if (f.answer != VERBS_YES)
			return f;
	}
	return f;
}

static struct verbs_finding ask(struct st *t, enum ibv_wr_opcode op)
{
	struct verbs_finding f = across(t, op);

	st_reset(t);
	return f;
}

struct verbs_finding st_ask_short_read(struct st *t)
{
	return ask(t, IBV_WR_RDMA_READ);
}

struct verbs_finding st_ask_short_write(struct st *t)
{
	return ask(t, IBV_WR_RDMA_WRITE);
}

struct verbs_finding st_ask_short_send(struct st *t)
{
	return ask(t, IBV_WR_SEND);
}
