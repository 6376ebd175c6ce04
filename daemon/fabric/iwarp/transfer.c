/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include <stdint.h>

#include "common/assert.h"
#include "common/checked.h"
#include "daemon/fabric/iwarp/private.h"
#include "proto/errors.h"

/*
 * Executing the work request at the head of a send queue. One after the other, each complete before
 * the next begins: what IBV_SEND_FENCE asks for is always so.
 *
 * A work request is checked whole before its first byte moves: nothing of a refused one is placed.
 * Then each piece is checked again when its turn comes, against the keys as they are by then.
 *
 * How a connection ends by a failed work request, as after an RDMAP Terminate (RFC 5040 7): the
 * work request gets the status given here, all others of both sides flush, the side that asked
 * hears the reason, and the other that its peer is gone, unless the fault was its own.
 */

/* What a piece costs at least, in bytes: looking up its keys. */
#define PIECE_COST_BYTES 64u

struct failure {
	enum ibv_wc_status status;
	enum ibv_wc_status recv_status; /* of the RECV that a SEND met; SUCCESS: it flushes */
	int reason, peer_reason;
};

static const struct failure local_protection = {
	IBV_WC_LOC_PROT_ERR, IBV_WC_SUCCESS, -XP_E_LOCAL_ACCESS, -XP_E_PEER_GONE,
};
static const struct failure local_fault = {
	IBV_WC_LOC_PROT_ERR, IBV_WC_SUCCESS, -XP_E_BUFFER_FAULT, -XP_E_PEER_GONE,
};
static const struct failure remote_access = {
	IBV_WC_REM_ACCESS_ERR, IBV_WC_SUCCESS, -XP_E_REMOTE_ACCESS, -XP_E_PEER_GONE,
};
static const struct failure remote_fault = {
	IBV_WC_REM_OP_ERR, IBV_WC_SUCCESS, -XP_E_REMOTE_FAULT, -XP_E_BUFFER_FAULT,
};
static const struct failure recv_protection = {
	IBV_WC_REM_OP_ERR, IBV_WC_LOC_PROT_ERR, -XP_E_REMOTE_FAULT, -XP_E_LOCAL_ACCESS,
};
static const struct failure recv_fault = {
	IBV_WC_REM_OP_ERR, IBV_WC_LOC_PROT_ERR, -XP_E_REMOTE_FAULT, -XP_E_BUFFER_FAULT,
};
static const struct failure too_long = {
	IBV_WC_REM_INV_REQ_ERR, IBV_WC_LOC_LEN_ERR, -XP_E_MESSAGE_TOO_LONG, -XP_E_MESSAGE_TOO_LONG,
};
static const struct failure bad_invalidate = {
	IBV_WC_REM_INV_REQ_ERR, IBV_WC_SUCCESS, -XP_E_REMOTE_ACCESS, -XP_E_PEER_GONE,
};
static const struct failure bad_bind = {
	IBV_WC_MW_BIND_ERR, IBV_WC_SUCCESS, -XP_E_LOCAL_ACCESS, -XP_E_PEER_GONE,
};
static const struct failure bad_local_invalidate = {
	IBV_WC_LOC_QP_OP_ERR, IBV_WC_SUCCESS, -XP_E_LOCAL_ACCESS, -XP_E_PEER_GONE,
};

static bool is_send(const struct iwarp_wr *wr)
{
	return wr->opcode == IBV_WR_SEND || wr->opcode == IBV_WR_SEND_WITH_INV;
}

static bool is_read(const struct iwarp_wr *wr)
{
	return wr->opcode == IBV_WR_RDMA_READ;
}

/* Of the own memory of a work request. */
static int own_right(const struct fabric_ep *ep, const struct iwarp_wr *wr)
{
	return is_read(wr) ? iwarp_sink_right(ep) : 0;
}

static int remote_right(const struct iwarp_wr *wr)
{
	return is_read(wr) ? IBV_ACCESS_REMOTE_READ : IBV_ACCESS_REMOTE_WRITE;
}

bool iwarp_list_access(struct fabric_ep *ep, const struct ibv_sge *sges, uint64_t bytes, int right)
{
	struct iwarp_span span;

	/* The whole of each, however many ranges it lies in. */
	for (; bytes; sges++) {
		uint64_t n = xc_min_u64(bytes, sges->length);

		if (n && !iwarp_local_access(ep, sges->lkey, sges->addr, n, right, &span))
			return false;
		bytes -= n;
	}
	return true;
}

/*
 * ------------------------------------------------------------------------------------- beginning
 */

/* A READ or WRITE without bytes looks at no key (RFC 5040 5.1, 5.2). */
static const struct failure *check_rdma(struct fabric_ep *ep, const struct iwarp_wr *wr)
{
	uint64_t bytes = wr->total_bytes;

	if (!bytes)
		return NULL;
	if (FABRIC_SABOTAGE("check-first-quantum"))
		bytes = xc_min_u64(bytes, IWARP_QUANTUM_BYTES);
	if (!iwarp_remote_access(ep->peer, wr->remote.rkey, wr->remote.address, bytes,
				 remote_right(wr), &ep->cursor.remote))
		return &remote_access;
	return NULL;
}

static const struct failure *check_send(struct fabric_ep *ep, const struct iwarp_wr *wr,
					const struct iwarp_wr *recv)
{
	if (wr->total_bytes > recv->total_bytes)
		return &too_long;
	if (!iwarp_list_access(ep->peer, iwarp_queue_sges(&ep->peer->rq, recv), wr->total_bytes,
			       IBV_ACCESS_LOCAL_WRITE))
		return &recv_protection;
	if (wr->opcode == IBV_WR_SEND_WITH_INV &&
	    !iwarp_can_remote_invalidate(ep->peer, wr->invalidate_rkey))
		return &bad_invalidate;
	return NULL;
}

void iwarp_await_recv(struct fabric_ep *ep)
{
	const struct xd_engine_ref *e = &ep->fabric->engine;

	if (ep->awaits_recv)
		return;
	ep->awaits_recv = true;
	e->ops->arm(e->engine, &ep->rnr, e->ops->now_ns(e->engine) + ep->fabric->rnr_ns);
}

void iwarp_stop_awaiting(struct fabric_ep *ep)
{
	const struct xd_engine_ref *e = &ep->fabric->engine;

	if (!ep->awaits_recv)
		return;
	ep->awaits_recv = false;
	e->ops->disarm(e->engine, &ep->rnr);
}

/* False: it waits for a RECV. */
static bool begin(struct fabric_ep *ep, const struct iwarp_wr *wr,
		  const struct failure **ret_failure)
{
	const struct iwarp_wr *recv;

	*ret_failure = NULL;
	if (!iwarp_is_inline(wr) && !iwarp_list_access(ep, iwarp_queue_sges(&ep->sq, wr),
						       wr->total_bytes, own_right(ep, wr))) {
		*ret_failure = &local_protection;
		return true;
	}
	if (!is_send(wr)) {
		*ret_failure = check_rdma(ep, wr);
		return true;
	}
	recv = iwarp_queue_head(&ep->peer->rq);
	if (!recv) {
		iwarp_await_recv(ep);
		return false;
	}
	iwarp_stop_awaiting(ep);
	*ret_failure = check_send(ep, wr, recv);
	return true;
}

/*
 * ---------------------------------------------------------------------------------------- moving
 */

/* The ends of a piece: each of them tells how long it can be at most. */

static bool inline_end(struct fabric_ep *ep, const struct iwarp_wr *wr, uint64_t bytes,
		       struct iwarp_span *ret)
{
	*ret = (struct iwarp_span){
		.at = iwarp_inline_data(&ep->sq, wr) + ep->cursor.done_bytes, .bytes = bytes,
	};
	return true;
}

static bool own_end(struct fabric_ep *ep, const struct iwarp_wr *wr, uint64_t bytes,
		    struct iwarp_span *ret)
{
	struct iwarp_cursor *c = &ep->cursor;
	const struct ibv_sge *s;

	if (iwarp_is_inline(wr))
		return inline_end(ep, wr, bytes, ret);
	s = iwarp_seek(iwarp_queue_sges(&ep->sq, wr), &c->sge, &c->sge_done);
	return iwarp_local_access(ep, s->lkey, s->addr + c->sge_done,
				  xc_min_u64(bytes, s->length - c->sge_done), own_right(ep, wr),
				  ret);
}

static bool recv_end(struct fabric_ep *ep, uint64_t bytes, struct iwarp_span *ret)
{
	struct iwarp_cursor *c = &ep->cursor;
	struct fabric_ep *peer = ep->peer;
	const struct ibv_sge *sges = iwarp_queue_sges(&peer->rq, iwarp_queue_head(&peer->rq));
	const struct ibv_sge *s = iwarp_seek(sges, &c->peer_sge, &c->peer_sge_done);

	return iwarp_local_access(peer, s->lkey, s->addr + c->peer_sge_done,
				  xc_min_u64(bytes, s->length - c->peer_sge_done),
				  IBV_ACCESS_LOCAL_WRITE, ret);
}

static bool remote_end(struct fabric_ep *ep, const struct iwarp_wr *wr, uint64_t bytes,
		       struct iwarp_span *ret)
{
	struct iwarp_cursor *c = &ep->cursor;

	if (FABRIC_SABOTAGE("skip-recheck") && c->done_bytes < c->remote.bytes) {
		*ret = c->remote;
		ret->at += c->done_bytes;
		ret->bytes = xc_min_u64(bytes, c->remote.bytes - c->done_bytes);
		return true;
	}
	return iwarp_remote_access(ep->peer, wr->remote.rkey, wr->remote.address + c->done_bytes,
				   bytes, remote_right(wr), ret);
}

static bool is_within(const void *fault, const uint8_t *start, uint64_t bytes)
{
	uintptr_t f = (uintptr_t)fault, s = (uintptr_t)start;

	return f >= s && f - s < bytes;
}

/* A piece whose memory vanished. */
static const struct failure *blame(struct fabric_ep *ep, const struct iwarp_wr *wr,
				   const void *fault, const struct iwarp_span *own,
				   const struct iwarp_span *other, uint64_t bytes)
{
	bool is_own = is_within(fault, own->at, bytes);

	ep->fabric->faulted = is_own ? own->region : other->region;
	if (is_own)
		return &local_fault;
	return is_send(wr) ? &recv_fault : &remote_fault;
}

static const struct failure *move(struct fabric_ep *ep, const struct iwarp_wr *wr, uint64_t bytes,
				  uint64_t *ret_moved)
{
	struct iwarp_cursor *c = &ep->cursor;
	struct iwarp_span own, other;
	const void *fault;
	int err;

	if (!own_end(ep, wr, bytes, &own))
		return &local_protection;
	if (is_send(wr)) {
		if (!recv_end(ep, own.bytes, &other))
			return &recv_protection;
	} else if (!remote_end(ep, wr, own.bytes, &other)) {
		return &remote_access;
	}
	bytes = xc_min_u64(own.bytes, other.bytes);
	if (is_read(wr))
		err = fabric_guard_copy(own.at, other.at, bytes, &fault);
	else
		err = fabric_guard_copy(other.at, own.at, bytes, &fault);
	if (err < 0)
		return blame(ep, wr, fault, &own, &other, bytes);
	c->done_bytes += bytes;
	c->sge_done += bytes;
	c->peer_sge_done += bytes; /* of a SEND */
	*ret_moved = bytes;
	return NULL;
}

/*
 * ---------------------------------------------------------------------------------------- ending
 */

/* What the side that asked hears of a failure; some devices do not tell it what the peer refused.
 */
static enum ibv_wc_status told(const struct fabric_ep *ep, const struct failure *f)
{
	const struct iwarp_profile *p = ep->fabric->profile;
	bool by_peer = f->status == IBV_WC_REM_ACCESS_ERR || f->status == IBV_WC_REM_OP_ERR ||
		       f->status == IBV_WC_REM_INV_REQ_ERR;

	if (!p || !by_peer)
		return f->status;
	if (is_read(iwarp_queue_head(&ep->sq)))
		return p->refused_reads_flush ? IBV_WC_WR_FLUSH_ERR : f->status;
	return p->refusals_come_late ? IBV_WC_SUCCESS : f->status;
}

static void fail(struct fabric_ep *ep, const struct failure *f)
{
	struct fabric_ep *peer = ep->peer;

	iwarp_complete_send(ep, told(ep, f));
	if (f->recv_status != IBV_WC_SUCCESS)
		iwarp_complete_recv(peer, f->recv_status, 0, 0);
	iwarp_ep_end(ep, f->reason, f->peer_reason);
}

/*
 * The message is in place. Its invalidation comes before the receiver hears of it, and is checked
 * once more.
 */
static const struct failure *finish_send(struct fabric_ep *ep, const struct iwarp_wr *wr)
{
	uint32_t rkey = 0;

	if (wr->opcode == IBV_WR_SEND_WITH_INV) {
		rkey = wr->invalidate_rkey;
		if (!iwarp_can_remote_invalidate(ep->peer, rkey))
			return &bad_invalidate;
		iwarp_remote_invalidate(ep->peer, rkey);
	}
	iwarp_complete_recv(ep->peer, IBV_WC_SUCCESS, (uint32_t)wr->total_bytes, rkey);
	return NULL;
}

bool iwarp_key_operation(struct fabric_ep *ep, const struct iwarp_wr *wr)
{
	if (wr->opcode == IBV_WR_BIND_MW)
		return iwarp_bind(ep, &wr->bind);
	/* What was a window when this was posted, and is none now, was deallocated: it is dead. */
	return iwarp_local_invalidate(ep, wr->invalidate_rkey) || wr->named_window;
}

static const struct failure *key_operation(struct fabric_ep *ep, const struct iwarp_wr *wr)
{
	if (iwarp_key_operation(ep, wr))
		return NULL;
	return wr->opcode == IBV_WR_BIND_MW ? &bad_bind : &bad_local_invalidate;
}

/* A begun transfer, as far as the allowance goes. */
static const struct failure *advance(struct fabric_ep *ep, const struct iwarp_wr *wr,
				     uint64_t allowance, uint64_t *cost)
{
	while (ep->cursor.done_bytes < wr->total_bytes && *cost < allowance) {
		uint64_t left = wr->total_bytes - ep->cursor.done_bytes, moved;
		const struct failure *f = move(ep, wr, xc_min_u64(left, allowance - *cost), &moved);

		if (f)
			return f;
		*cost += moved < PIECE_COST_BYTES ? PIECE_COST_BYTES : moved;
	}
	return NULL;
}

/* False where the head of the queue waits for the peer. */
static bool step(struct fabric_ep *ep, uint64_t allowance, uint64_t *cost)
{
	const struct iwarp_wr *wr = iwarp_queue_head(&ep->sq);
	const struct failure *f = NULL;
	bool is_key_operation = wr->opcode == IBV_WR_BIND_MW || wr->opcode == IBV_WR_LOCAL_INV;

	if (!ep->cursor.started) {
		*cost += IWARP_WR_COST_BYTES;
		if (!is_key_operation && !begin(ep, wr, &f))
			return false;
		ep->cursor.started = true;
	}
	if (!f)
		f = is_key_operation ? key_operation(ep, wr) : advance(ep, wr, allowance, cost);
	if (!f && ep->cursor.done_bytes < wr->total_bytes)
		return true;
	if (!f && is_send(wr))
		f = finish_send(ep, wr);
	if (f)
		fail(ep, f);
	else
		iwarp_complete_send(ep, IBV_WC_SUCCESS);
	return true;
}

uint64_t iwarp_execute(struct fabric_ep *ep, uint64_t allowance_bytes)
{
	uint64_t cost = 0;

	while (cost < allowance_bytes && ep->state == IWARP_EP_CONNECTED && ep->sq.count)
		if (!step(ep, allowance_bytes, &cost))
			break;
	return cost;
}
