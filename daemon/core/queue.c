/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "common/assert.h"
#include "daemon/core/buffer.h"
#include "daemon/core/grant.h"
#include "daemon/core/sabotage.h"
#include "daemon/core/stage.h"
#include "daemon/core/wait.h"

/*
 * The queues of an endpoint: transfers wait in the order of their submission, become work requests
 * as far as the send queue has room, and end when the last of these has completed. A transfer of
 * more work requests than the queue holds goes through it piece by piece.
 */

#define RETRY_NS XD_NS_PER_MS

static enum xd_want wants(const struct xd_transfer *t)
{
	if (t->request.opcode == XP_OP_GRANT)
		return XD_WANT_WINDOW;
	if (t->plan.rung != XD_RUNG_STAGE)
		return XD_WANT_ROOM;
	return t->request.opcode == XP_OP_READ ? XD_WANT_IN : XD_WANT_OUT;
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

	if (ep->state != XD_EP_CONNECTED || ep->sq_done == ep->sq_tail)
		return;
	if (XD_SABOTAGE("wait-for-ever"))
		return;
	if (xd_now(core) >= ep->progress_ns + progress_ns(ep))
		xd_endpoint_end(ep, -XP_E_STALLED, NULL);
	else
		xd_arm(core, &ep->timer, ep->progress_ns + progress_ns(ep));
}

/* ------------------------------------------------------------------ posting */

static void count_plan(const struct xd_transfer *t)
{
	static const enum xd_counter counters[] = {
		[XD_RUNG_INLINE] = XD_COUNTER_plans_inline,
		[XD_RUNG_DIRECT] = XD_COUNTER_plans_direct,
		[XD_RUNG_SPLIT] = XD_COUNTER_plans_split,
		[XD_RUNG_STAGE] = XD_COUNTER_plans_stage,
		[XD_RUNG_INDIRECT] = XD_COUNTER_plans_indirect,
	};

	if (xd_is_send_op(t) || t->plan.rung > XD_RUNG_SPLIT)
		xd_core_count(t->session->core, counters[t->plan.rung], 1);
}

/* A GRANT or REVOKE carried by a window: a chain of one. An enum xd_build, or a status. */
static int build_key(struct xd_transfer *t, struct xd_chain *c)
{
	struct ibv_send_wr *wr = &c->wr[0];
	int r;

	if (xd_waits_at_fence(t))
		return XD_BUILD_PENDING;
	*wr = (struct ibv_send_wr){ .wr_id = t->endpoint->sq_tail,
				    .send_flags = IBV_SEND_SIGNALED };
	if (t->request.flags & XP_F_FENCE)
		wr->send_flags |= IBV_SEND_FENCE;
	r = t->request.opcode == XP_OP_GRANT ? xd_grant_post(t, wr) : xd_revoke_post(t, wr);
	c->n = r == XD_BUILT ? 1 : 0;
	c->ring = XD_RINGS;
	c->wqe[0] = (struct xd_wqe){ .transfer = t, .ring = XD_RINGS };
	c->after[0] = t->cursor;
	return r;
}

static void posted(struct xd_endpoint *ep, struct xd_transfer *t, const struct xd_chain *c,
		   uint32_t n)
{
	if (n == 0)
		return;
	/* Only the last of a whole chain is signalled: a cut one leaves a silent end. */
	ep->sq_silent = n < c->n;
	if (t->posted == 0)
		count_plan(t);
	/* Time in which nothing was there to do is no time without progress. */
	if (ep->sq_head == ep->sq_tail)
		ep->progress_ns = xd_now(ep->session->core);
	for (uint32_t i = 0; i < n; i++)
		ep->sq[ep->sq_tail++ % ep->sq_depth] = c->wqe[i];
	t->sequence = ep->sq_tail - 1;
	t->posted += n;
	t->cursor = c->after[n - 1];
	xd_wait_over(ep, XD_SCARCE_MEMORY);
	/* One of no bytes needs no key and no slab: it says nothing of their being there again. */
	if (t->bytes)
		ep->blocked_ns[wants(t)] = 0;
	xd_core_count(ep->session->core, XD_COUNTER_work_requests, n);
	arm_progress(ep);
	if (t->posted == xd_transfer_wrs(t)) {
		xc_list_remove(&t->link);
		t->state = XD_T_POSTED;
	} else if (t->cut_due && !ep->sq_silent) {
		xd_transfer_cut(t);
	}
}

/* While the head waits for one thing, nobody tries to get the others: that is no time without them.
 */
static void count_time(struct xd_endpoint *ep, enum xd_want want, uint64_t now)
{
	for (int i = 0; i < XD_WANTS && ep->want == want; i++)
		if (i != (int)want && ep->blocked_ns[i])
			ep->blocked_ns[i] += now - ep->waited_ns;
	ep->want = want;
	ep->waited_ns = now;
}

/*
 * The head cannot be posted for want of something. It waits its turn (I8), but not for ever (I7):
 * for a time of no progress, counted until one that wanted the same is posted, or nothing waits.
 * Those that have been there meanwhile then get one try each, so that not each adds its own time.
 */
static void wait_for(struct xd_endpoint *ep, struct xd_transfer *t, enum xd_scarce scarce)
{
	const struct xd_core *core = ep->session->core;
	uint64_t *blocked_ns = &ep->blocked_ns[wants(t)];
	uint64_t now = xd_now(core);

	count_time(ep, wants(t), now);
	if (scarce == XD_SCARCE_NONE)
		xd_wait_not(ep);
	else
		xd_wait_for(ep, scarce);
	if ((ep->sq_head != ep->sq_tail && !ep->sq_silent) || ep->window_due)
		return; /* what comes back pumps again */
	if (!*blocked_ns || t->started_ns > *blocked_ns + progress_ns(ep))
		*blocked_ns = now;
	/*
	 * What is with the device cannot be ended here; that is the progress timer's. Nor can a
	 * REVOKE: it must not fail, and its own timer takes the window away.
	 */
	if ((now - *blocked_ns < progress_ns(ep) && !XD_SABOTAGE("have-no-patience")) ||
	    ep->sq_head != ep->sq_tail ||
	    t->request.opcode == XP_OP_REVOKE) {
		if (scarce == XD_SCARCE_NONE && !XD_SABOTAGE("never-try-again"))
			xd_arm(core, &ep->retry, now + RETRY_NS);
		return;
	}
	xd_grant_abandon(t);
	xd_transfer_end(t, -EAGAIN,
			"the fabric had no resources for this request for %" PRIu64 " ms",
			core->quota.policy->progress_ms);
	if (xc_list_empty(&ep->waiting))
		xd_wait_not(ep);
	else
		xd_arm(core, &ep->retry, now);
}

void xd_endpoint_wait(struct xd_endpoint *ep, enum xd_scarce scarce)
{
	struct xd_transfer *t = xc_list_first(&ep->waiting, struct xd_transfer, link);

	if (XD_SABOTAGE("no-window-is-fatal"))
		xd_endpoint_end(ep, -XP_E_DEVICE, NULL);
	else if (t && ep->state == XD_EP_CONNECTED)
		wait_for(ep, t, scarce);
}

void xd_endpoint_retry(struct xd_timer *timer)
{
	xd_endpoint_pump(xc_container_of(timer, struct xd_endpoint, retry));
}

static bool is_want(int r)
{
	return r == -ENOMEM || r == -EAGAIN || r == -ENOBUFS || r == -ENOSPC;
}

static int build(struct xd_transfer *t, uint32_t room, struct xd_chain *c)
{
	return xd_is_send_op(t) ? xd_chain_build(t, t->cut_due ? 1 : room, c) : build_key(t, c);
}

/*
 * Where no window carries a grant nothing is posted for it. Others do not wait for it to be made,
 * but it has its place on the queue, so that it ends in its turn.
 */
static bool start_key(struct xd_endpoint *ep, struct xd_transfer *t)
{
	/* A fence: after what was posted before it. */
	if ((t->request.flags & XP_F_FENCE) && ep->sq_head != ep->sq_tail)
		return false;
	if (ep->sq_head == ep->sq_tail)
		ep->progress_ns = xd_now(ep->session->core);
	xc_list_remove(&t->link);
	t->state = XD_T_POSTED;
	t->posted = 1;
	t->sequence = ep->sq_tail;
	ep->sq[ep->sq_tail++ % ep->sq_depth] =
		(struct xd_wqe){ .transfer = t, .ours = true, .ring = XD_RINGS };
	arm_progress(ep);
	xd_wait_over(ep, XD_SCARCE_MEMORY);
	if (t->request.opcode == XP_OP_GRANT)
		xd_grant_start(t);
	else
		xd_revoke_start(t);
	return true;
}

/* It was built: hands it to the device. False: nothing more can be posted now. */
static bool post(struct xd_endpoint *ep, struct xd_transfer *t, struct xd_chain *c)
{
	struct ibv_send_wr *bad = NULL;
	int r = xd_ep_fabric(ep)->ops->post_send(ep->fep, c->wr, &bad);
	uint32_t n = r == 0 ? c->n : (uint32_t)(bad - c->wr);

	xd_chain_undo(ep, c, n);
	posted(ep, t, c, n);
	if (r == 0)
		return true;
	if (is_want(r) && !XD_SABOTAGE("full-queue-is-fatal"))
		wait_for(ep, t, XD_SCARCE_NONE);
	else
		xd_endpoint_end(ep, r == -ENOTCONN ? -XP_E_PEER_GONE : -XP_E_DEVICE, NULL);
	return false;
}

/* Posts what it can of the first waiting transfer. False: nothing more can be posted now. */
static bool post_first(struct xd_endpoint *ep, struct xd_transfer *t, uint32_t room)
{
	struct xd_chain c;
	int r;

	if (!xd_is_send_op(t) && xd_ep_caps(ep)->keys != FABRIC_KEYS_WINDOW)
		return start_key(ep, t);
	r = build(t, room, &c);
	switch (r) {
	case XD_BUILT:
		return post(ep, t, &c);
	case XD_BUILD_WAIT:
		wait_for(ep, t, XD_SCARCE_NONE);
		return false;
	case XD_BUILD_NO_WINDOW:
		wait_for(ep, t, XD_SCARCE_WINDOW);
		return false;
	case XD_BUILD_NO_MEMORY:
		wait_for(ep, t, XD_SCARCE_MEMORY);
		return false;
	case XD_BUILD_LATER:
		xd_stage_soon(ep);
		return false;
	case XD_BUILD_PENDING:
		return false;
	default:
		xd_grant_abandon(t);
		xd_transfer_end(t, r, NULL);
		return true;
	}
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
	memset(ep->blocked_ns, 0, sizeof(ep->blocked_ns)); /* nothing waits */
	xd_wait_not(ep);
}

static void post_recv(struct xd_transfer *t)
{
	struct xd_endpoint *ep = t->endpoint;
	struct ibv_sge sge[XD_PLAN_SGE_MAX];
	struct ibv_recv_wr wr = { .wr_id = XD_RECV_BIT | ep->rq_tail, .sg_list = sge }, *bad;
	struct xd_wqe w;
	struct xd_ring *ring = &ep->rings[XD_RING_RECV];
	struct xd_ring_mark mark = xd_ring_mark(ring);
	int r = xd_recv_build(t, sge, &wr.num_sge, &w);

	if (r == 0)
		r = xd_ep_fabric(ep)->ops->post_recv(ep->fep, &wr, &bad);
	if (r < 0) {
		xd_ring_rewind(ring, mark);
		/* -ENOTCONN: the connection has ended, and the event of it is on its way. */
		r = is_want(r) ? -EAGAIN : r == -ENOTCONN ? -XP_E_FLUSHED : -XP_E_DEVICE;
		xd_transfer_end(t, r, NULL);
		return;
	}
	t->state = XD_T_POSTED;
	t->posted = 1;
	count_plan(t);
	ep->rq[ep->rq_tail++ % ep->rq_depth] = w;
	xd_core_count(ep->session->core, XD_COUNTER_work_requests, 1);
}

void xd_transfer_start(struct xd_transfer *t)
{
	xd_transfer_use_buffers(t, true);
	t->started_ns = xd_now(t->session->core);
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
