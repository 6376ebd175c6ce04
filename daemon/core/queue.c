/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "common/assert.h"
#include "daemon/core/buffer.h"
#include "daemon/core/grant.h"
#include "daemon/core/sabotage.h"
#include "daemon/core/transfer.h"

/*
 * The queues of an endpoint: transfers wait in the order of their submission, become work requests
 * as far as the send queue has room, and end when the last of these has completed. A transfer of
 * more work requests than the queue holds goes through it piece by piece.
 */

#define CHAIN_MAX 8
#define RECV_BIT (UINT64_C(1) << 63)
#define RETRY_NS XD_NS_PER_MS

static bool is_send_op(const struct xd_transfer *t)
{
	return t->request.opcode <= XP_OP_SEND;
}

/* What it may have to wait for: a window, or room alone. */
static bool wants_window(const struct xd_transfer *t)
{
	return t->request.opcode == XP_OP_GRANT;
}

/* Work requests in all: PLACED asks for a READ behind the WRITE. */
static uint32_t total_wrs(const struct xd_transfer *t)
{
	if (!is_send_op(t))
		return 1;
	return t->plan.wrs + (t->request.flags & XP_F_PLACED ? 1 : 0);
}

/* ------------------------------------------------------------------ progress */

static uint64_t progress_ns(const struct xd_endpoint *ep)
{
	return ep->session->core->quota.policy->progress_ms * XD_NS_PER_MS;
}

static void arm_progress(struct xd_endpoint *ep)
{
	const struct xd_core *core = ep->session->core;

	if (ep->timer.node.queued)
		return;
	xd_arm(core, &ep->timer, ep->progress_ns + progress_ns(ep));
}

void xd_endpoint_progress_check(struct xd_endpoint *ep)
{
	const struct xd_core *core = ep->session->core;

	if (ep->state != XD_EP_CONNECTED || ep->sq_head == ep->sq_tail)
		return;
	if (XD_SABOTAGE("wait-for-ever"))
		return;
	if (xd_now(core) >= ep->progress_ns + progress_ns(ep))
		xd_endpoint_end(ep, -XP_E_STALLED, NULL);
	else
		xd_arm(core, &ep->timer, ep->progress_ns + progress_ns(ep));
}

/* ------------------------------------------------------------------ building work requests */

struct chain {
	struct ibv_send_wr wr[CHAIN_MAX];
	struct ibv_sge sge[CHAIN_MAX][XD_PLAN_SGE_MAX];
	struct xd_cursor after[CHAIN_MAX];
	uint32_t n;
};

/* Pieces in buffers become SGEs in the address space of the buffers' registrations. */
static void to_sges(const struct xd_endpoint *ep, const struct xd_piece *p, struct ibv_sge *ret)
{
	for (uint32_t i = 0; i < p->n_sge; i++) {
		const struct xd_buffer *b = xd_buffer_get(ep->session, p->sge[i].key);

		xc_assert(b);
		ret[i] = (struct ibv_sge){
			.addr = b->iova + p->sge[i].address + XD_SABOTAGE("shift-a-piece"),
			.length = p->sge[i].length,
			.lkey = b->mrs[ep->fabric]->lkey,
		};
	}
}

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

/* The next work request's local side. Returns how many SGEs; there is one more work request. */
static int next_sges(const struct xd_endpoint *ep, const struct planned *p,
		     struct xd_cursor *cursor, struct xd_piece *piece, struct ibv_sge *sge)
{
	bool more = xd_plan_next(&p->shape, &p->limits, cursor, piece);

	xc_assert(more);
	to_sges(ep, piece, sge);
	return (int)piece->n_sge;
}

static void build_one(const struct xd_transfer *t, const struct planned *p,
		      struct xd_cursor *cursor, struct ibv_send_wr *wr, struct ibv_sge *sge)
{
	struct xd_piece piece;

	set_operation(t, wr);
	wr->num_sge = next_sges(t->endpoint, p, cursor, &piece, sge);
	wr->sg_list = sge;
	wr->wr.rdma.remote_addr = piece.remote_address;
	wr->wr.rdma.rkey = piece.rkey;
}

/* The next work requests of a transfer, up to `room`. The last is signalled, so that room always
 * comes back. */
static void build_chain(const struct xd_transfer *t, uint32_t room, struct chain *c)
{
	uint32_t total = total_wrs(t);
	struct xd_cursor cursor = t->cursor;
	struct planned p;

	plan_of(t, &p);
	c->n = xc_min_u32(xc_min_u32(room, total - t->posted), CHAIN_MAX);
	for (uint32_t i = 0; i < c->n; i++) {
		uint32_t index = t->posted + i;
		struct ibv_send_wr *wr = &c->wr[i];

		*wr = (struct ibv_send_wr){
			.wr_id = (uint32_t)(t->endpoint->sq_tail + i),
			.next = i + 1 < c->n ? wr + 1 : NULL,
			.send_flags = i + 1 < c->n ? 0 : IBV_SEND_SIGNALED,
		};
		if (index < t->plan.wrs)
			build_one(t, &p, &cursor, wr, c->sge[i]);
		else
			build_placed(t, wr);
		if (index + 1 == t->plan.wrs && (t->request.flags & XP_F_IMMEDIATE))
			set_immediate(t, wr);
		if (index == 0 && (t->request.flags & XP_F_FENCE))
			wr->send_flags |= IBV_SEND_FENCE;
		c->after[i] = cursor;
	}
}

/* A GRANT's or REVOKE's. 1, 0 or a status as xd_grant_post(). */
static int build_key(struct xd_transfer *t, struct chain *c)
{
	struct ibv_send_wr *wr = &c->wr[0];
	int r;

	*wr = (struct ibv_send_wr){ .wr_id = t->endpoint->sq_tail,
				    .send_flags = IBV_SEND_SIGNALED };
	if (t->request.flags & XP_F_FENCE)
		wr->send_flags |= IBV_SEND_FENCE;
	r = t->request.opcode == XP_OP_GRANT ? xd_grant_post(t, wr) : xd_revoke_post(t, wr);
	c->n = r == 1 ? 1 : 0;
	c->after[0] = t->cursor;
	return r;
}

/* ------------------------------------------------------------------ posting */

static void posted(struct xd_endpoint *ep, struct xd_transfer *t, const struct chain *c, uint32_t n)
{
	if (n == 0)
		return;
	/* Only the last of a whole chain is signalled: a cut one leaves a silent end. */
	ep->sq_silent = n < c->n;
	if (t->posted == 0 && is_send_op(t))
		xd_core_count(ep->session->core,
			      t->plan.rung == XD_RUNG_DIRECT ? XD_COUNTER_plans_direct
							     : XD_COUNTER_plans_split,
			      1);
	/* Time in which nothing was there to do is no time without progress. */
	if (ep->sq_head == ep->sq_tail)
		ep->progress_ns = xd_now(ep->session->core);
	for (uint32_t i = 0; i < n; i++)
		ep->sq[ep->sq_tail++ % ep->sq_depth] = t;
	t->sequence = ep->sq_tail - 1;
	t->posted += n;
	t->cursor = c->after[n - 1];
	ep->blocked_ns[wants_window(t)] = 0;
	xd_core_count(ep->session->core, XD_COUNTER_work_requests, n);
	arm_progress(ep);
	if (t->posted == total_wrs(t)) {
		xc_list_remove(&t->link);
		t->state = XD_T_POSTED;
	} else if (t->cut_due && !ep->sq_silent) {
		xd_transfer_cut(t);
	}
}

/* Is another waiting that wants the same? */
static bool another_waits(const struct xd_endpoint *ep, bool window)
{
	const struct xd_transfer *t;

	xc_list_for_each(t, (struct xc_list *)(uintptr_t)&ep->waiting, link)
		if (wants_window(t) == window)
			return true;
	return false;
}

/*
 * The head cannot be posted for want of something. It waits its turn (I8), but not for ever (I7).
 */
static void wait_for_room(struct xd_endpoint *ep, struct xd_transfer *t)
{
	const struct xd_core *core = ep->session->core;
	bool window = wants_window(t);
	uint64_t *blocked_ns = &ep->blocked_ns[window];
	uint64_t now;

	if ((ep->sq_head != ep->sq_tail && !ep->sq_silent) || ep->window_due)
		return; /* what comes back pumps again */
	now = xd_now(core);
	if (!*blocked_ns)
		*blocked_ns = now;
	/*
	 * What is with the device cannot be ended here; that is the progress timer's. Nor can a
	 * REVOKE: it must not fail, and its own timer takes the window away.
	 */
	if (now - *blocked_ns < progress_ns(ep) || ep->sq_head != ep->sq_tail ||
	    t->request.opcode == XP_OP_REVOKE) {
		if (!XD_SABOTAGE("never-try-again"))
			xd_arm(core, &ep->retry, now + RETRY_NS);
		return;
	}
	xd_grant_abandon(t);
	xd_transfer_end(t, -EAGAIN,
			"the fabric had no resources for this request for %" PRIu64 " ms",
			core->quota.policy->progress_ms);
	/* The next of its kind gets one try, so that not each of them adds its own time. */
	if (!another_waits(ep, window))
		*blocked_ns = 0;
	if (!xc_list_empty(&ep->waiting))
		xd_arm(core, &ep->retry, now);
}

void xd_endpoint_wait(struct xd_endpoint *ep)
{
	struct xd_transfer *t = xc_list_first(&ep->waiting, struct xd_transfer, link);

	if (XD_SABOTAGE("no-window-is-fatal"))
		xd_endpoint_end(ep, -XP_E_DEVICE, NULL);
	else if (t && ep->state == XD_EP_CONNECTED)
		wait_for_room(ep, t);
}

void xd_endpoint_retry(struct xd_timer *timer)
{
	xd_endpoint_pump(xc_container_of(timer, struct xd_endpoint, retry));
}

static bool is_want(int r)
{
	return r == -ENOMEM || r == -EAGAIN || r == -ENOBUFS || r == -ENOSPC;
}

/* Posts what it can of the first waiting transfer. False: nothing more can be posted now. */
static bool post_first(struct xd_endpoint *ep, struct xd_transfer *t, uint32_t room)
{
	struct ibv_send_wr *bad = NULL;
	struct chain c;
	int r = 1;

	if (is_send_op(t))
		build_chain(t, t->cut_due ? 1 : room, &c);
	else
		r = build_key(t, &c);
	if (r < 0) {
		xd_grant_abandon(t);
		xd_transfer_end(t, r, NULL);
		return true;
	}
	if (r == 0) {
		wait_for_room(ep, t);
		return false;
	}
	r = xd_ep_fabric(ep)->ops->post_send(ep->fep, c.wr, &bad);
	posted(ep, t, &c, r == 0 ? c.n : (uint32_t)(bad - c.wr));
	if (r == 0)
		return true;
	if (is_want(r) && !XD_SABOTAGE("full-queue-is-fatal"))
		wait_for_room(ep, t);
	else
		xd_endpoint_end(ep, r == -ENOTCONN ? -XP_E_PEER_GONE : -XP_E_DEVICE, NULL);
	return false;
}

void xd_endpoint_pump(struct xd_endpoint *ep)
{
	struct xd_transfer *t;
	uint32_t room;

	while (ep->state == XD_EP_CONNECTED &&
	       (t = xc_list_first(&ep->waiting, struct xd_transfer, link))) {
		room = ep->sq_depth - (ep->sq_tail - ep->sq_head);
		if (room == 0 || !post_first(ep, t, room))
			return;
	}
}

static void post_recv(struct xd_transfer *t)
{
	struct xd_endpoint *ep = t->endpoint;
	struct planned p;
	struct xd_piece piece;
	struct ibv_sge sge[XD_PLAN_SGE_MAX];
	struct ibv_recv_wr wr = { .wr_id = RECV_BIT | ep->rq_tail, .sg_list = sge }, *bad;
	int r;

	plan_of(t, &p);
	wr.num_sge = next_sges(ep, &p, &t->cursor, &piece, sge);
	r = xd_ep_fabric(ep)->ops->post_recv(ep->fep, &wr, &bad);
	if (r < 0) {
		xd_transfer_end(t, is_want(r) ? -EAGAIN : -XP_E_DEVICE, NULL);
		return;
	}
	t->state = XD_T_POSTED;
	t->posted = 1;
	ep->rq[ep->rq_tail++ % ep->rq_depth] = t;
	xd_core_count(ep->session->core, XD_COUNTER_work_requests, 1);
}

void xd_transfer_start(struct xd_transfer *t)
{
	xd_transfer_use_buffers(t, true);
	if (t->request.opcode == XP_OP_RECV) {
		post_recv(t);
		return;
	}
	t->counted = true;
	t->session->unfinished++;
	t->session->core->unfinished++;
	xc_list_append(&t->endpoint->waiting, &t->link);
	xd_endpoint_pump(t->endpoint);
}

/* ------------------------------------------------------------------ completions */

/* What went wrong, in the project's codes. */
static int wc_status(const struct ibv_wc *wc, const struct xd_transfer *t)
{
	switch (wc->status) {
	case IBV_WC_SUCCESS:
		return 0;
	case IBV_WC_WR_FLUSH_ERR:
		return -XP_E_FLUSHED;
	case IBV_WC_LOC_PROT_ERR:
	case IBV_WC_LOC_ACCESS_ERR:
		return -XP_E_LOCAL_ACCESS;
	case IBV_WC_LOC_LEN_ERR:
		return -XP_E_MESSAGE_TOO_LONG;
	case IBV_WC_REM_ACCESS_ERR:
		return -XP_E_REMOTE_ACCESS;
	case IBV_WC_REM_INV_REQ_ERR:
		return t && t->request.flags & XP_F_INVALIDATE ? -XP_E_REMOTE_ACCESS
							       : -XP_E_MESSAGE_TOO_LONG;
	case IBV_WC_REM_OP_ERR:
		return -XP_E_REMOTE_FAULT;
	case IBV_WC_RNR_RETRY_EXC_ERR:
		return -XP_E_RECEIVER_NOT_READY;
	case IBV_WC_RETRY_EXC_ERR:
	case IBV_WC_RESP_TIMEOUT_ERR:
		return -XP_E_STALLED;
	default:
		return -XP_E_DEVICE;
	}
}

static void end_sent(struct xd_transfer *t)
{
	int status = t->status;

	if (!is_send_op(t)) {
		if (t->request.opcode == XP_OP_REVOKE)
			return; /* its grant's death ends it */
		if (status == 0)
			xd_grant_bound(t);
		else
			xd_grant_abandon(t);
	} else if (status == 0) {
		t->completion.byte_len = t->bytes;
		if (t->cancelled)
			status = -ECANCELED;
	}
	xd_transfer_end(t, status, NULL);
}

/* One work request is over. */
static void retire(struct xd_transfer *t, int status)
{
	t->retired++;
	if (status < 0 && t->status == 0)
		t->status = status;
	if (t->request.opcode == XP_OP_REVOKE && t->grant && status == 0)
		xd_grant_dead(t->grant, true);
	else if (t->retired == t->posted && (t->cancelled || t->posted == total_wrs(t)))
		end_sent(t);
	else if (status < 0 && t->retired == t->posted)
		xc_assert(t->state == XD_T_WAITING); /* its rest is flushed with the endpoint */
}

static int send_completed(struct xd_endpoint *ep, const struct ibv_wc *wc)
{
	uint32_t sequence = (uint32_t)wc->wr_id;
	int status;

	if ((uint32_t)(sequence - ep->sq_head) >= ep->sq_tail - ep->sq_head)
		return 0; /* not one of ours: ended from our table before */
	status = wc_status(wc, ep->sq[sequence % ep->sq_depth]);
	while (ep->sq_head != sequence + 1) {
		struct xd_transfer *t = ep->sq[ep->sq_head % ep->sq_depth];
		bool last = ep->sq_head == sequence;

		ep->sq_head++;
		if (t)
			retire(t, last ? status : 0);
	}
	ep->progress_ns = xd_now(ep->session->core);
	return status;
}

static int recv_completed(struct xd_endpoint *ep, const struct ibv_wc *wc)
{
	struct xd_transfer *t;
	int status;

	if (ep->rq_head == ep->rq_tail || (uint32_t)wc->wr_id != ep->rq_head)
		return 0;
	t = ep->rq[ep->rq_head++ % ep->rq_depth];
	status = wc_status(wc, t);
	if (status == 0) {
		t->bytes = wc->byte_len;
		t->completion.byte_len = wc->byte_len;
		if (wc->wc_flags & IBV_WC_WITH_INV) {
			t->completion.grant = xd_grant_invalidated(ep, wc->invalidated_rkey);
			t->completion.flags |= t->completion.grant ? XP_CF_INVALIDATED : 0;
		}
		if (wc->wc_flags & IBV_WC_WITH_IMM) {
			t->completion.immediate = be32toh(wc->imm_data);
			t->completion.flags |= XP_CF_IMMEDIATE;
		}
	}
	xd_transfer_end(t, status, NULL);
	return status;
}

void xd_transfer_completed(struct xd_endpoint *ep, const struct ibv_wc *wc)
{
	int status = wc->wr_id & RECV_BIT ? recv_completed(ep, wc) : send_completed(ep, wc);

	/* While it connects: xd_on_established() is about to say why it did not come about. */
	if (status == -XP_E_FLUSHED && ep->state == XD_EP_CONNECTING)
		return;
	/* A flush without a cause of our own is the other side's doing. */
	if (status < 0)
		xd_endpoint_end(ep, status == -XP_E_FLUSHED ? -XP_E_PEER_GONE : status, NULL);
	else
		xd_endpoint_pump(ep);
}

/* ------------------------------------------------------------------ cutting, flushing */

void xd_transfer_cut(struct xd_transfer *t)
{
	xc_assert(t->state == XD_T_WAITING && t->posted > 0);
	/* Nothing would tell of the end of what was posted: one more, signalled, before the cut. */
	if (t->endpoint->sq_silent && t->retired < t->posted) {
		t->cut_due = true;
		return;
	}
	xc_list_remove(&t->link);
	t->state = XD_T_POSTED;
	t->cancelled = true;
	if (t->retired == t->posted)
		xd_transfer_end(t, -ECANCELED, NULL);
}

/* A REVOKE is not failed by the end of its endpoint: that kills the key too, and then it completes.
 */
static void flush_one(struct xd_transfer *t, int status)
{
	xc_list_remove(&t->link);
	if (t->request.opcode == XP_OP_REVOKE && t->grant) {
		t->state = XD_T_POSTED;
		return;
	}
	xd_grant_abandon(t);
	xd_transfer_end(t, t->status ? t->status : status, NULL);
}

void xd_endpoint_flush(struct xd_endpoint *ep, int status)
{
	struct xd_transfer *t;

	while (ep->sq_head != ep->sq_tail && !XD_SABOTAGE("forget-a-flush")) {
		t = ep->sq[ep->sq_head++ % ep->sq_depth];
		/* A transfer of several work requests ends with its last; one that waits too, from
		 * the list below. */
		if (t && ++t->retired == t->posted && t->state == XD_T_POSTED)
			flush_one(t, status);
	}
	while ((t = xc_list_first(&ep->waiting, struct xd_transfer, link)))
		flush_one(t, status);
	while (ep->rq_head != ep->rq_tail && !XD_SABOTAGE("let-a-recv-wait")) {
		t = ep->rq[ep->rq_head++ % ep->rq_depth];
		xd_transfer_end(t, status, NULL);
	}
}
