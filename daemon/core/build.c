/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/assert.h"
#include "daemon/core/buffer.h"
#include "daemon/core/limits.h"
#include "daemon/core/link.h"
#include "daemon/core/sabotage.h"
#include "daemon/core/stage.h"
#include "daemon/core/temporary.h"

/* From a plan to work requests: addresses and keys that a device understands. */

/* ------------------------------------------------------------------ the plan */

/* The most that the slabs which it would go through hold. */
static uint64_t stage_bytes(const struct xd_transfer *t)
{
	const struct xd_ring *ring = &t->endpoint->rings[XD_RING_RECV];

	/* A SEND is one piece, for which the ring grows as far as its user may pin memory. */
	if (t->request.opcode == XP_OP_SEND)
		return t->session->payer.user->limits.value[XD_LIMIT_pinned];
	if (t->request.opcode != XP_OP_RECV)
		return XD_STAGE_RING_BYTES;
	return ring->ready ? ring->slab->size_bytes : 0;
}

void xd_transfer_limits(const struct xd_transfer *t, struct xd_plan_limits *ret)
{
	xd_plan_limits_of(xd_ep_caps(t->endpoint), t->request.opcode, stage_bytes(t), ret);
	ret->force = t->session->core->quota.policy->force;
	if (t->no_ranges)
		ret->ranges = 0;
	ret->no_keys |= t->no_keys;
	if (XD_SABOTAGE("trust-a-device"))
		ret->no_keys = t->no_keys;
	if (XD_SABOTAGE("cross-a-page"))
		ret->short_in_page = false;
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

/*
 * What was thought is kept with the plan, for its explanation at the end: by then prices and limits
 * may have changed, and the planner would think otherwise.
 */
static int plan_aloud(struct xd_transfer *t, const struct xd_shape *shape,
		      const struct xd_plan_limits *limits)
{
	struct xd_thoughts thoughts;
	int r = xd_plan_make(shape, limits, &t->plan, &thoughts);

	if (r < 0)
		return r;
	if (!t->thoughts)
		t->thoughts = malloc(sizeof(*t->thoughts));
	if (t->thoughts)
		*t->thoughts = thoughts;
	return 0;
}

int xd_transfer_plan(struct xd_transfer *t)
{
	struct xd_plan_limits limits;
	struct xd_shape shape;

	xd_transfer_limits(t, &limits);
	xd_transfer_shape(t, &shape);
	return t->request.flags & XP_F_EXPLAIN ? plan_aloud(t, &shape, &limits)
					       : xd_plan_make(&shape, &limits, &t->plan, NULL);
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

/* In the address space of its buffer's registration, or of a key of the transfer's own. */
static struct ibv_sge to_sge(const struct xd_transfer *t, const struct xp_segment *piece)
{
	const struct xd_endpoint *ep = t->endpoint;
	uint64_t offset = piece->address + XD_SABOTAGE("shift-a-piece");
	const struct ibv_mr *mr;

	if (t->temporaries) {
		const struct xd_temporary *k = xd_temporary_of(t, piece);

		mr = k->mr;
		offset -= k->run.offset;
	} else {
		struct xd_buffer *b = xd_buffer_get(ep->session, piece->key);

		xc_assert(b);
		mr = xd_key_get(ep->pd, b)->mr;
	}
	return (struct ibv_sge){
		.addr = (uintptr_t)mr->addr + offset,
		.length = piece->length,
		.lkey = mr->lkey,
	};
}

/* The segments of a work request whose first byte is the transfer's byte `at`. Returns how many. */
static int to_sges(const struct xd_transfer *t, const struct xd_piece *p, uint64_t at,
		   struct ibv_sge *ret)
{
	const struct ibv_mr *mr;

	if (t->plan.rung != XD_RUNG_INDIRECT) {
		for (uint32_t i = 0; i < p->n_sge; i++)
			ret[i] = to_sge(t, &p->sge[i]);
		return (int)p->n_sge;
	}
	if (!p->bytes)
		return 0;
	mr = xd_temporary_of(t, NULL)->mr;
	*ret = (struct ibv_sge){
		.addr = (uintptr_t)mr->addr + at,
		.length = (uint32_t)p->bytes,
		.lkey = mr->lkey,
	};
	return 1;
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

	if (kind == XD_RING_OUT)
		r = xd_stage_gather(t, *from, piece->bytes, w);
	else
		r = xd_stage_take(t->endpoint, kind, piece->bytes, w);
	if (r < 0)
		return r;
	w->arrived = kind == XD_RING_IN ? w->bytes : 0;
	c->wr[i].num_sge = xd_stage_sge(t->endpoint, w, c->sge[i]);
	return 0;
}

/* Its bytes go with it: they are taken as they are now, and no key is needed. */
static int build_inline(struct xd_transfer *t, struct xd_chain *c, uint32_t i)
{
	struct ibv_send_wr *wr = &c->wr[i];
	int r = 0;

	if (!xd_may_copy(t->session->core))
		return -EINTR;
	xc_assert(t->bytes <= sizeof(c->inline_data));
	if (XD_SABOTAGE("inline-too-late"))
		memset(c->inline_data, 0, sizeof(c->inline_data));
	else
		r = xd_stage_copy(t, (struct xd_cursor){ 0 }, c->inline_data,
				  t->bytes - XD_SABOTAGE("forget-the-last-byte"), false);
	c->sge[i][0] = (struct ibv_sge){ .addr = (uintptr_t)c->inline_data,
					 .length = (uint32_t)t->bytes };
	wr->num_sge = 1;
	wr->send_flags |= IBV_SEND_INLINE;
	return r;
}

/* The next one that the plan counts. 0 or as build_staged(). */
static int build_planned(struct xd_transfer *t, const struct planned *p, struct xd_cursor *cursor,
			 struct xd_chain *c, uint32_t i)
{
	struct ibv_send_wr *wr = &c->wr[i];
	struct xd_cursor from = *cursor;
	struct xd_piece piece;
	bool more = xd_plan_next(&p->shape, &p->limits, t->plan.rung, cursor, &piece);
	int r = 0;

	xc_assert(more);
	set_operation(t, wr);
	wr->sg_list = c->sge[i];
	wr->wr.rdma.remote_addr = piece.remote_address;
	wr->wr.rdma.rkey = piece.rkey;
	if (t->plan.rung == XD_RUNG_STAGE)
		r = build_staged(t, &from, &piece, c, i);
	else if (t->plan.rung == XD_RUNG_INLINE)
		r = build_inline(t, c, i);
	else
		wr->num_sge = to_sges(t, &piece, from.bytes, c->sge[i]);
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

/* The keys that its plan needs. 0, -EINPROGRESS, or why there are none. */
static int have_keys(struct xd_transfer *t, bool wait)
{
	if (xd_uses_keys(t))
		return want_keys(t, wait);
	if (t->plan.keys)
		return xd_temporaries_make(t);
	return 0;
}

/*
 * Exhaustion demotes (I8): where a key over ranges was refused there are other ways by keys, and
 * where keys are refused there are slabs. False: nothing else can carry it, and it stays as it is.
 */
static bool demote(struct xd_transfer *t)
{
	bool *what = t->plan.rung == XD_RUNG_INDIRECT ? &t->no_ranges : &t->no_keys;

	t->refused = false;
	if (XD_SABOTAGE("never-demote"))
		return false;
	*what = true;
	if (xd_transfer_plan(t) == 0) {
		xd_core_count(t->session->core, XD_COUNTER_plans_demoted, 1);
		return true;
	}
	*what = false;
	return false;
}

/* Before the first of its work requests: the keys that its plan needs, or another plan. */
static int choose(struct xd_transfer *t)
{
	int r;

	if (t->posted > 0)
		return XD_BUILT;
	while ((r = t->refused ? -ENOMEM : have_keys(t, true)) < 0) {
		if (r == -EINPROGRESS)
			return XD_BUILD_PENDING;
		if (!demote(t))
			return XD_BUILD_NO_MEMORY;
	}
	return XD_BUILT;
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
		return XD_BUILD_WAIT;
	case -ENOMEM:
	case -XP_E_QUOTA:
		return XD_BUILD_NO_MEMORY;
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

		if (!w->transfer || w->transfer->request.opcode != XP_OP_READ)
			continue;
		if (w->ring != XD_RINGS && !XD_SABOTAGE("pass-a-slab"))
			return true;
		/* Taken when they are posted: the device's own fence comes too late for them. */
		if (t->plan.rung == XD_RUNG_STAGE && !XD_SABOTAGE("gather-before-a-fence"))
			return true;
		if (t->plan.rung == XD_RUNG_INLINE && !XD_SABOTAGE("inline-before-a-fence"))
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
	if (XD_SABOTAGE("look-again") && t->request.list_buffer)
		xd_copy(xd_buffer_get(t->session, t->request.list_buffer), t->request.list_offset,
			t->segments, sizeof(*t->segments), false);
	if (XD_SABOTAGE("plan-again") && t->posted > 0)
		(void)xd_transfer_plan(t);
	/* The end of the READ pumps. */
	if (xd_waits_at_fence(t))
		return XD_BUILD_PENDING;
	if (!xc_list_empty(&t->links) && !XD_SABOTAGE("send-without-token")) {
		r = xd_links_patch(t);
		if (r < 0)
			return not_built(r);
	}
	plan_of(t, &p);
	c->ring = t->plan.rung != XD_RUNG_STAGE	    ? XD_RINGS
		  : t->request.opcode == XP_OP_READ ? XD_RING_IN
						    : XD_RING_OUT;
	if (c->ring != XD_RINGS)
		c->mark = t->gather.taken ? t->gather.mark : xd_ring_mark(&ep->rings[c->ring]);
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
	/* With it goes the place of what is being gathered behind this chain. */
	c->wqe[0].transfer->gather.taken = false;
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
	/* A RECV never waits: what was reserved with the endpoint takes it, or it is refused. */
	while (t->plan.rung != XD_RUNG_STAGE) {
		if (have_keys(t, false) == 0) {
			plan_of(t, &p);
			xd_plan_next(&p.shape, &p.limits, t->plan.rung, &t->cursor, &piece);
			*ret_num_sge = to_sges(t, &piece, 0, sge);
			return 0;
		}
		if ((t->temporaries && !xd_temporaries_kill(t)) || !demote(t))
			return -EAGAIN;
	}
	r = xd_stage_take(ep, XD_RING_RECV, t->bytes, ret_wqe);
	ret_wqe->transfer = t;
	if (r < 0)
		return -EAGAIN;
	*ret_num_sge = xd_stage_sge(ep, ret_wqe, sge);
	return 0;
}
