/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include <errno.h>
#include <string.h>

#include "common/assert.h"
#include "daemon/core/buffer.h"
#include "daemon/core/sabotage.h"
#include "daemon/core/stage.h"

/* From a plan to work requests: addresses and keys that a device understands. */

/* ------------------------------------------------------------------ the plan */

void xd_transfer_limits(const struct xd_transfer *t, struct xd_plan_limits *ret)
{
	const struct xd_endpoint *ep = t->endpoint;
	const struct fabric_caps *caps = xd_ep_caps(ep);

	*ret = (struct xd_plan_limits){ .wr_bytes = caps->max_message_bytes,
					.max_sge = caps->max_sge,
					.stage_bytes = XD_STAGE_RING_BYTES,
					.stage = t->plan.rung == XD_RUNG_STAGE };
	if (t->request.opcode == XP_OP_READ) {
		ret->max_sge = caps->max_sge_rd;
		ret->short_in_page = caps->short_read_in_page && !XD_SABOTAGE("cross-a-page");
	} else if (t->request.opcode == XP_OP_RECV) {
		ret->max_sge = caps->max_recv_sge;
		ret->stage_bytes = ep->rings[XD_RING_RECV].ready
					   ? ep->rings[XD_RING_RECV].slab->size_bytes
					   : 0;
	}
	if (t->request.remote_count)
		ret->wr_bytes = xc_min_u64(ret->wr_bytes, XD_PLAN_WR_BYTES_MAX);
}

void xd_transfer_shape(const struct xd_transfer *t, struct xd_shape *ret)
{
	*ret = (struct xd_shape){
		.opcode = t->request.opcode,
		.n_local = t->request.local_count,
		.n_remote = t->request.remote_count,
		.local = t->segments,
		.remote = t->segments + t->request.local_count,
	};
}

int xd_transfer_plan(struct xd_transfer *t, bool stage)
{
	const struct fabric_caps *caps = xd_ep_caps(t->endpoint);
	struct xd_plan_limits limits;
	struct xd_shape shape;

	xd_transfer_limits(t, &limits);
	xd_transfer_shape(t, &shape);
	/* A sink that the peer may write is never client memory. */
	limits.stage = stage || (xd_must_stage(caps) && !XD_SABOTAGE("trust-a-device")) ||
		       (t->request.opcode == XP_OP_READ && caps->read_sink_remote_write);
	return xd_plan_make(&shape, &limits, &t->plan);
}

/* What the planner asks of a transfer, again and again the same. */
struct planned {
	struct xd_plan_limits limits;
	struct xd_shape shape;
};

static void plan_of(const struct xd_transfer *t, struct planned *ret)
{
	xd_transfer_limits(t, &ret->limits);
	xd_transfer_shape(t, &ret->shape);
}

/* ------------------------------------------------------------------ local keys */

/*
 * Are the buffers of its local side registered here? 0. -EINPROGRESS: they will be, and then the
 * endpoint is pumped (not where wait is false). Else a refusal.
 */
static int want_keys(struct xd_transfer *t, bool wait)
{
	struct xd_endpoint *ep = t->endpoint;
	int ret = 0;

	if (!xd_ep_caps(ep)->pins && !ep->own_pd)
		return 0; /* every buffer is, since it was added */
	for (uint32_t i = 0; i < t->request.local_count; i++) {
		struct xd_buffer *b;
		int r;

		if (!t->segments[i].length)
			continue;
		b = xd_buffer_get(t->session, t->segments[i].key);
		if (xd_key_get(ep->pd, b))
			continue;
		r = xd_key_want(ep->pd, b, wait ? ep : NULL);
		if (r == -EINPROGRESS)
			ret = r;
		else if (r < 0)
			return r;
	}
	return ret;
}

/* Pieces in buffers become SGEs in the address space of the buffers' registrations. */
static void to_sges(const struct xd_endpoint *ep, const struct xd_piece *p, struct ibv_sge *ret)
{
	for (uint32_t i = 0; i < p->n_sge; i++) {
		struct xd_buffer *b = xd_buffer_get(ep->session, p->sge[i].key);
		const struct ibv_mr *mr;

		xc_assert(b);
		mr = xd_key_get(ep->pd, b)->mr;
		ret[i] = (struct ibv_sge){
			.addr = (uintptr_t)mr->addr + p->sge[i].address +
				XD_SABOTAGE("shift-a-piece"),
			.length = p->sge[i].length,
			.lkey = mr->lkey,
		};
	}
}

/* ------------------------------------------------------------------ work requests */

static void set_operation(const struct xd_transfer *t, struct ibv_send_wr *wr)
{
	const struct xp_request *r = &t->request;

	if (r->opcode == XP_OP_READ) {
		wr->opcode = IBV_WR_RDMA_READ;
	} else if (r->opcode == XP_OP_WRITE) {
		wr->opcode = IBV_WR_RDMA_WRITE;
	} else if (r->flags & XP_F_INVALIDATE) {
		wr->opcode = IBV_WR_SEND_WITH_INV;
		wr->invalidate_rkey = r->key;
	} else {
		wr->opcode = IBV_WR_SEND;
	}
	if (r->flags & XP_F_SOLICITED)
		wr->send_flags |= IBV_SEND_SOLICITED;
}

/* Immediate data goes with the last work request: its arrival says that all came. */
static void set_immediate(const struct xd_transfer *t, struct ibv_send_wr *wr)
{
	wr->imm_data = htobe32(t->request.key);
	wr->opcode = wr->opcode == IBV_WR_SEND ? IBV_WR_SEND_WITH_IMM : IBV_WR_RDMA_WRITE_WITH_IMM;
}

static void build_placed(const struct xd_transfer *t, struct ibv_send_wr *wr)
{
	const struct xp_segment *remote = t->segments + t->request.local_count;

	wr->opcode = IBV_WR_RDMA_READ;
	wr->wr.rdma.remote_addr = remote->address;
	wr->wr.rdma.rkey = remote->key;
}

/* The place of a staged one, filled where its data goes out. 0 or as xd_stage_take(). */
static int build_staged(struct xd_transfer *t, const struct xd_cursor *from,
			const struct xd_piece *piece, struct xd_chain *c, uint32_t i)
{
	enum xd_ring_kind kind = t->request.opcode == XP_OP_READ ? XD_RING_IN : XD_RING_OUT;
	struct xd_wqe *w = &c->wqe[i];
	int r;

	if (kind == XD_RING_OUT && !xd_may_copy(t->session->core))
		return -EINTR;
	r = xd_stage_take(t->endpoint, kind, piece->bytes, w);
	if (r == 0 && kind == XD_RING_OUT)
		r = xd_stage_gather(t, *from, w);
	if (r < 0)
		return r;
	w->arrived = kind == XD_RING_IN ? w->bytes : 0;
	c->wr[i].num_sge = xd_stage_sge(t->endpoint, w, c->sge[i]);
	return 0;
}

/* The next one that the plan counts. 0 or as build_staged(). */
static int build_planned(struct xd_transfer *t, const struct planned *p, struct xd_cursor *cursor,
			 struct xd_chain *c, uint32_t i)
{
	struct ibv_send_wr *wr = &c->wr[i];
	struct xd_cursor from = *cursor;
	struct xd_piece piece;
	bool more = xd_plan_next(&p->shape, &p->limits, cursor, &piece);
	int r = 0;

	xc_assert(more);
	set_operation(t, wr);
	wr->sg_list = c->sge[i];
	wr->wr.rdma.remote_addr = piece.remote_address;
	wr->wr.rdma.rkey = piece.rkey;
	if (p->limits.stage) {
		r = build_staged(t, &from, &piece, c, i);
	} else {
		to_sges(t->endpoint, &piece, c->sge[i]);
		wr->num_sge = (int)piece.n_sge;
	}
	return r;
}

/* One work request at place i of the chain. 0 or as build_staged(). */
static int build_one(struct xd_transfer *t, const struct planned *p, struct xd_cursor *cursor,
		     struct xd_chain *c, uint32_t i)
{
	const struct xd_endpoint *ep = t->endpoint;
	uint32_t index = t->posted + i;
	struct ibv_send_wr *wr = &c->wr[i];
	int r = 0;

	*wr = (struct ibv_send_wr){
		.wr_id = (uint32_t)(ep->sq_tail + i),
		.send_flags = xd_ep_caps(ep)->signal_all ? IBV_SEND_SIGNALED : 0,
	};
	c->wqe[i] = (struct xd_wqe){ .ring = XD_RINGS };
	if (index < t->plan.wrs)
		r = build_planned(t, p, cursor, c, i);
	else
		build_placed(t, wr);
	if (index + 1 == t->plan.wrs && (t->request.flags & XP_F_IMMEDIATE))
		set_immediate(t, wr);
	if (index == 0 && (t->request.flags & XP_F_FENCE))
		wr->send_flags |= IBV_SEND_FENCE;
	c->wqe[i].transfer = t;
	c->after[i] = *cursor;
	return r;
}

/* Before the first of its work requests: straight from client memory, or through a slab? */
static int choose(struct xd_transfer *t)
{
	int r;

	if (t->posted > 0 || t->plan.rung == XD_RUNG_STAGE)
		return XD_BUILT;
	r = want_keys(t, true);
	if (r == 0)
		return XD_BUILT;
	if (r == -EINPROGRESS)
		return XD_BUILD_PENDING;
	/* Exhaustion demotes (I8); what a slab cannot carry waits. */
	return xd_transfer_plan(t, true) == 0 ? XD_BUILT : XD_BUILD_WAIT;
}

static int not_built(int r)
{
	switch (r) {
	case -EINTR:
		return XD_BUILD_LATER;
	case -EINPROGRESS:
	case -XP_E_BUFFER_FAULT: /* its session has ended: with its endpoint it is flushed */
		return XD_BUILD_PENDING;
	case -EAGAIN:
	case -ENOMEM:
	case -XP_E_QUOTA:
		return XD_BUILD_WAIT;
	case -EMSGSIZE: /* the ring is a small one, for its user is at the limit */
		return -XP_E_QUOTA;
	default:
		return r;
	}
}

/*
 * The device knows when a READ has brought its bytes into a slab; they are in the client's memory
 * when they have been copied there. And what goes out through a slab is copied when it is posted.
 */
bool xd_waits_at_fence(const struct xd_transfer *t)
{
	const struct xd_endpoint *ep = t->endpoint;

	if (!(t->request.flags & XP_F_FENCE) || t->posted > 0)
		return false;
	for (uint32_t i = ep->sq_head; i != ep->sq_tail; i++) {
		const struct xd_wqe *w = &ep->sq[i % ep->sq_depth];

		if (w->transfer && w->transfer->request.opcode == XP_OP_READ &&
		    (w->ring != XD_RINGS || t->plan.rung == XD_RUNG_STAGE))
			return true;
	}
	return false;
}

int xd_chain_build(struct xd_transfer *t, uint32_t room, struct xd_chain *c)
{
	struct xd_endpoint *ep = t->endpoint;
	struct xd_cursor cursor = t->cursor;
	struct planned p;
	uint32_t n;
	int r = choose(t);

	c->n = 0;
	if (r != XD_BUILT)
		return r;
	/* The end of the READ pumps. */
	if (xd_waits_at_fence(t))
		return XD_BUILD_PENDING;
	plan_of(t, &p);
	c->ring = !p.limits.stage		    ? XD_RINGS
		  : t->request.opcode == XP_OP_READ ? XD_RING_IN
						    : XD_RING_OUT;
	if (c->ring != XD_RINGS)
		c->mark = xd_ring_mark(&ep->rings[c->ring]);
	n = xc_min_u32(xc_min_u32(room, xd_transfer_wrs(t) - t->posted), XD_CHAIN_MAX);
	while (c->n < n) {
		r = build_one(t, &p, &cursor, c, c->n);
		if (r < 0)
			break;
		c->n++;
	}
	if (c->n == 0 || r == -XP_E_BUFFER_FAULT)
		return not_built(r);
	for (uint32_t i = 0; i + 1 < c->n; i++)
		c->wr[i].next = &c->wr[i + 1];
	c->wr[c->n - 1].send_flags |= IBV_SEND_SIGNALED;
	return XD_BUILT;
}

void xd_chain_undo(struct xd_endpoint *ep, const struct xd_chain *c, uint32_t posted)
{
	struct xd_ring *ring = c->ring != XD_RINGS ? &ep->rings[c->ring] : NULL;

	if (!ring || posted == c->n)
		return;
	xd_ring_rewind(ring, c->mark);
	for (uint32_t i = 0; i < posted; i++)
		if (c->wqe[i].ring == c->ring && c->wqe[i].bytes)
			ring->tail = c->wqe[i].ring_end;
}

int xd_recv_build(struct xd_transfer *t, struct ibv_sge *sge, int *ret_num_sge,
		  struct xd_wqe *ret_wqe)
{
	struct xd_endpoint *ep = t->endpoint;
	struct planned p;
	struct xd_piece piece;
	int r;

	*ret_wqe = (struct xd_wqe){ .transfer = t, .ring = XD_RINGS };
	if (t->plan.rung != XD_RUNG_STAGE && want_keys(t, false) == 0) {
		plan_of(t, &p);
		xd_plan_next(&p.shape, &p.limits, &t->cursor, &piece);
		to_sges(ep, &piece, sge);
		*ret_num_sge = (int)piece.n_sge;
		return 0;
	}
	/* A RECV never waits: what was reserved with the endpoint takes it, or it is refused. */
	if (xd_transfer_plan(t, true) < 0)
		return -EAGAIN;
	r = xd_stage_take(ep, XD_RING_RECV, t->bytes, ret_wqe);
	ret_wqe->transfer = t;
	if (r < 0)
		return -EAGAIN;
	*ret_num_sge = xd_stage_sge(ep, ret_wqe, sge);
	return 0;
}
