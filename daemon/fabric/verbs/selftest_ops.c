/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include <arpa/inet.h>
#include <string.h>

#include "common/checked.h"
#include "daemon/fabric/verbs/selftest_rig.h"

/*
 * Which operations complete, and how failures are told.
 */

static enum verbs_answer answer_of(int status)
{
	if (status == IBV_WC_SUCCESS)
		return VERBS_YES;
	return status == ST_NOTHING ? VERBS_SILENT : VERBS_NO;
}

/* ------------------------------------------------------------------ READ into pieces */

#define PIECE_BYTES 100u
#define PIECE_STRIDE 250u
#define PIECES_MAX (ST_SMALL_BYTES / PIECE_STRIDE)

/* A READ into n pieces with gaps: each piece is filled, and nothing between them. */
static struct verbs_finding read_pieces(struct st *t, uint32_t n)
{
	struct ibv_sge sge[PIECES_MAX];
	struct ibv_send_wr wr = { .opcode = IBV_WR_RDMA_READ, .sg_list = sge, .num_sge = (int)n };
	int status;

	if (st_connect(t, 0, t->owner_pd, n) || !st_link_works(t, 0))
		return ST_LOST;
	st_fill(t);
	memset(t->owned, ST_OPEN, ST_SMALL_BYTES);
	for (uint32_t i = 0; i < n; i++)
		sge[i] = (struct ibv_sge){ st_address(t->held) + i * PIECE_STRIDE, PIECE_BYTES,
					   t->held_mr->lkey };
	wr.wr.rdma.remote_addr = st_address(t->owned);
	wr.wr.rdma.rkey = t->open_mr->rkey;
	status = st_post(t, &t->link[0].peer, &wr, NULL);
	for (uint32_t i = 0; i < n && status == IBV_WC_SUCCESS; i++) {
		const uint8_t *piece = t->held + i * PIECE_STRIDE;

		if (!st_all(piece, ST_OPEN, PIECE_BYTES) ||
		    !st_all(piece + PIECE_BYTES, ST_PEER, PIECE_STRIDE - PIECE_BYTES))
			return st_found(VERBS_NO, status);
	}
	return st_found(answer_of(status), status);
}

struct verbs_finding st_ask_read_sges(struct st *t)
{
	struct verbs_finding f = read_pieces(t, xc_min_u32(PIECES_MAX, t->claims.max_sge_rd));

	st_reset(t);
	return f;
}

/* Not to be relied on: it shows what a plan of too many pieces would come to. */
struct verbs_finding st_ask_read_more_sges(struct st *t)
{
	struct verbs_finding f = { 0 };

	if (t->claims.max_sge > t->claims.max_sge_rd)
		f = read_pieces(t, xc_min_u32(PIECES_MAX, t->claims.max_sge));
	else
		f.status = ST_NOTHING;
	st_reset(t);
	return f;
}

/* ------------------------------------------------------------------ messages */

#define MESSAGE_BYTES 16u
#define WORD 0x10ad5eedu

/* A message, or a WRITE with immediate data, with a RECV for it; its completion at the owner. */
static int deliver(struct st *t, enum ibv_wr_opcode op, uint32_t bytes, struct ibv_wc *ret)
{
	struct ibv_sge sge = { st_address(t->held), bytes, t->held_mr->lkey };
	struct ibv_send_wr wr = {
		.opcode = op,
		.sg_list = &sge,
		.num_sge = bytes ? 1 : 0,
		.imm_data = htonl(WORD),
	};
	int status;

	wr.wr.rdma.remote_addr = st_address(st_key_memory(t));
	wr.wr.rdma.rkey = t->open_mr->rkey;
	if (st_post_recv(t, &t->link[0].owner, t->owned, MESSAGE_BYTES, t->open_mr->lkey))
		return ST_REFUSED;
	status = st_post(t, &t->link[0].peer, &wr, NULL);
	return status == IBV_WC_SUCCESS ? st_wait(t, &t->link[0].owner, ret) : status;
}

static struct verbs_finding immediate(struct st *t, enum ibv_wr_opcode op)
{
	struct verbs_finding f = ST_LOST;
	struct ibv_wc wc;

	if (st_connect(t, 0, t->owner_pd, 1) == 0 && st_link_works(t, 0)) {
		f.status = deliver(t, op, MESSAGE_BYTES, &wc);
		f.answer = answer_of(f.status);
		if (f.answer == VERBS_YES &&
		    (!(wc.wc_flags & IBV_WC_WITH_IMM) || ntohl(wc.imm_data) != WORD))
			f.answer = VERBS_NO;
	}
	st_reset(t);
	return f;
}

struct verbs_finding st_ask_imm_send(struct st *t)
{
	return immediate(t, IBV_WR_SEND_WITH_IMM);
}

struct verbs_finding st_ask_imm_write(struct st *t)
{
	return immediate(t, IBV_WR_RDMA_WRITE_WITH_IMM);
}

/* ------------------------------------------------------------------ of no bytes */

static struct verbs_finding of_nothing(struct st *t, enum ibv_wr_opcode op)
{
	struct ibv_send_wr wr = { .opcode = op };
	struct verbs_finding f = ST_LOST;

	if (st_connect(t, 0, t->owner_pd, 1) == 0 && st_link_works(t, 0)) {
		wr.wr.rdma.remote_addr = st_address(st_key_memory(t));
		wr.wr.rdma.rkey = t->open_mr->rkey;
		f.status = st_post(t, &t->link[0].peer, &wr, NULL);
		f.answer = answer_of(f.status);
		/* And the connection lives on. */
		if (f.answer == VERBS_YES && !st_link_works(t, 0))
			f.answer = VERBS_NO;
	}
	st_reset(t);
	return f;
}

struct verbs_finding st_ask_zero_read(struct st *t)
{
	return of_nothing(t, IBV_WR_RDMA_READ);
}

struct verbs_finding st_ask_zero_write(struct st *t)
{
	return of_nothing(t, IBV_WR_RDMA_WRITE);
}

struct verbs_finding st_ask_zero_send(struct st *t)
{
	struct verbs_finding f = ST_LOST;
	struct ibv_wc wc;

	if (st_connect(t, 0, t->owner_pd, 1) == 0 && st_link_works(t, 0)) {
		f.status = deliver(t, IBV_WR_SEND, 0, &wc);
		f.answer = answer_of(f.status);
		if (f.answer == VERBS_YES && (wc.byte_len != 0 || !st_link_works(t, 0)))
			f.answer = VERBS_NO;
	}
	st_reset(t);
	return f;
}

/* ------------------------------------------------------------------ how failures are told */

/* A READ that must fail, and of which no completion was asked for. */
struct verbs_finding st_ask_unsignalled(struct st *t)
{
	struct ibv_sge sge;
	struct ibv_send_wr wr = { .wr_id = WORD,
				  .opcode = IBV_WR_RDMA_READ,
				  .sg_list = &sge,
				  .num_sge = 1 },
			   *bad;
	struct st_side *peer = &t->link[0].peer;
	struct verbs_finding f = ST_LOST;
	struct ibv_mr *mr;
	struct ibv_wc wc;

	if (st_connect(t, 0, t->owner_pd, 1) == 0 && st_link_works(t, 0)) {
		mr = st_register(t, t->owner_pd, st_key_memory(t), ST_KEY_BYTES, ST_FULL_ACCESS);
		sge = (struct ibv_sge){ st_address(t->held), 16, t->held_mr->lkey };
		wr.wr.rdma.remote_addr = st_address(st_key_memory(t)) + ST_KEY_BYTES;
		wr.wr.rdma.rkey = mr ? mr->rkey : 0;
		if (mr && ibv_post_send(peer->id->qp, &wr, &bad) == 0) {
			f.status = st_wait(t, peer, &wc);
			/* That the connection ended is not the completion that is asked for. */
			if (wc.wr_id != WORD)
				f = st_found(VERBS_SILENT, ST_NOTHING);
			else
				f.answer = f.status == IBV_WC_SUCCESS ? VERBS_NO : VERBS_YES;
		}
	}
	st_reset(t);
	return f;
}

struct verbs_finding st_ask_rnr(struct st *t)
{
	struct ibv_send_wr wr = { .opcode = IBV_WR_SEND, .num_sge = 1 };
	struct verbs_finding f = ST_LOST;
	struct ibv_sge sge;

	if (st_connect(t, 0, t->owner_pd, 1) == 0 && st_link_works(t, 0)) {
		sge = (struct ibv_sge){ st_address(t->held), MESSAGE_BYTES, t->held_mr->lkey };
		wr.sg_list = &sge;
		f.status = st_post(t, &t->link[0].peer, &wr, NULL);
		f.answer = f.status == ST_NOTHING		  ? VERBS_SILENT
			   : f.status == IBV_WC_RNR_RETRY_EXC_ERR ? VERBS_YES
								  : VERBS_NO;
	}
	st_reset(t);
	return f;
}

struct verbs_finding st_ask_acknowledged(struct st *t)
{
	struct verbs_finding f = ST_LOST;
	struct ibv_mr *mr;

	if (st_connect(t, 0, t->owner_pd, 1) == 0 && st_link_works(t, 0)) {
		mr = st_register(t, t->owner_pd, st_key_memory(t), ST_KEY_BYTES, ST_FULL_ACCESS);
		if (mr) {
			f.status = st_write(t, 0, st_address(st_key_memory(t)) + ST_KEY_BYTES - 8,
					    mr->rkey, 16);
			f.answer = f.status == ST_NOTHING	? VERBS_SILENT
				   : f.status == IBV_WC_SUCCESS ? VERBS_NO
								: VERBS_YES;
		}
	}
	st_reset(t);
	return f;
}

struct verbs_finding st_ask_private_data(struct st *t)
{
	struct verbs_finding f = ST_LOST;
	const struct st_link *l = &t->link[0];

	if (st_connect(t, 0, t->owner_pd, 1) == 0)
		f.answer = l->heard_right && l->request_heard == ST_PRIVATE_BYTES &&
					   l->reply_heard == ST_PRIVATE_BYTES
				   ? VERBS_YES
				   : VERBS_NO;
	st_reset(t);
	return f;
}
