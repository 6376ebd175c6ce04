/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include <errno.h>

#include "common/assert.h"
#include "daemon/core/grant.h"
#include "daemon/core/sabotage.h"
#include "daemon/core/stage.h"
#include "daemon/core/temporary.h"

/*
 * From completions to the end of transfers. What the device has completed is retired in order, once
 * its data is in place: what came through a slab is copied out first, within the turn's budget.
 */

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
	case IBV_WC_LOC_QP_OP_ERR:
		/*
		 * rxe of a RECV that was too short; siw of what was under way when the peer
		 * ended the connection.
		 */
		return t && t->request.opcode == XP_OP_RECV ? -XP_E_MESSAGE_TOO_LONG
							    : -XP_E_REMOTE_FAULT;
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

	if (!xd_is_send_op(t)) {
		if (t->request.opcode == XP_OP_REVOKE)
			return; /* its grant's death ends it */
		if (status == 0 && t->grant)
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
	else if (t->retired == t->posted && (t->cancelled || t->posted == xd_transfer_wrs(t)))
		end_sent(t);
	else if (status < 0 && t->retired == t->posted)
		xc_assert(t->state == XD_T_WAITING); /* its rest is flushed with the endpoint */
}

/* ------------------------------------------------------------------ retiring */

/* How the work request of this sequence ended. */
static int sent_status(const struct xd_endpoint *ep, uint32_t sequence)
{
	if (!ep->sq_status || (int32_t)(sequence - ep->sq_bad) < 0)
		return 0;
	return sequence == ep->sq_bad ? ep->sq_status : -XP_E_FLUSHED;
}

/* A transfer's data is on its way to where it belongs: 1 it is there, 0 not yet, or a status. */
static int arrive(struct xd_transfer *t, struct xd_wqe *w)
{
	if (w->ring == XD_RINGS || !w->arrived || XD_SABOTAGE("done-before-copied"))
		return 1;
	if (xd_session_ending(t->session))
		return -XP_E_FLUSHED; /* nobody is there to read it */
	return xd_stage_scatter(t, w);
}

/* A transfer with keys of its own is over: they die, and it ends, and all behind it, when they are
 * dead. */
static bool waits_for_keys(struct xd_transfer *t)
{
	return t->temporaries && !xd_temporaries_kill(t);
}

/* Of a READ, WRITE or SEND that is when its last work request is. */
static bool sent_waits(const struct xd_endpoint *ep)
{
	struct xd_transfer *t = ep->sq[ep->sq_head % ep->sq_depth].transfer;

	if (!t || ((t->retired + 1 != t->posted ||
		    (!t->cancelled && t->posted != xd_transfer_wrs(t))) &&
		   !XD_SABOTAGE("kill-too-soon")))
		return false;
	return waits_for_keys(t);
}

static bool retire_sent(struct xd_endpoint *ep)
{
	struct xd_wqe *w = &ep->sq[ep->sq_head % ep->sq_depth];
	struct xd_transfer *t = w->transfer;
	int status = t && w->ours ? t->status : sent_status(ep, ep->sq_head), r = 1;

	if (t && status == 0)
		r = arrive(t, w);
	if (r == 0)
		return false;
	xd_stage_give(ep, w);
	ep->sq_head++;
	if (t)
		retire(t, r < 0 ? r : status);
	return true;
}

static bool retire_received(struct xd_endpoint *ep)
{
	struct xd_wqe *w = &ep->rq[ep->rq_head % ep->rq_depth];
	struct xd_transfer *t = w->transfer;
	int r = 1;

	/* What the peer wrote before its message is in place when the message is told of. */
	if (t->status == 0 && !xd_grants_synced(ep))
		return false;
	if (t->status == 0)
		r = arrive(t, w);
	if (r == 0)
		return false;
	xd_stage_give(ep, w);
	ep->rq_head++;
	xd_transfer_end(t, r < 0 ? r : t->status, NULL);
	return true;
}

/* One of ours: it was made, or refused, or its grant has died. */
static bool is_over(const struct xd_wqe *w)
{
	return !w->transfer || w->transfer->made;
}

/* The device says nothing of ours: they are done when they are over and all before them is. */
static void pass_ours(struct xd_endpoint *ep)
{
	while (ep->sq_done != ep->sq_tail) {
		const struct xd_wqe *w = &ep->sq[ep->sq_done % ep->sq_depth];

		if (!w->ours || !is_over(w))
			return;
		ep->sq_done++;
	}
}

void xd_endpoint_made(struct xd_endpoint *ep)
{
	pass_ours(ep);
	xd_endpoint_retire(ep);
	/* There is room for others; not from here, which may be a pump's. */
	if (ep->state == XD_EP_CONNECTED && !xc_list_empty(&ep->waiting))
		xd_stage_soon(ep);
}

/* False: not all of it, and the turn's budget is spent. */
static bool retire_all(struct xd_endpoint *ep)
{
	bool late = false;

	while (ep->sq_head != ep->sq_done && !late) {
		const struct xd_wqe *w = &ep->sq[ep->sq_head % ep->sq_depth];

		if (w->ours ? !is_over(w) : sent_waits(ep))
			break; /* xd_endpoint_made() goes on */
		late = !retire_sent(ep);
	}
	while (ep->rq_head != ep->rq_done && !late) {
		if (waits_for_keys(ep->rq[ep->rq_head % ep->rq_depth].transfer))
			break;
		late = !retire_received(ep);
	}
	return !late;
}

void xd_endpoint_retire(struct xd_endpoint *ep)
{
	bool all;

	/* From within: the copies that a RECV waits for have ended a GRANT, say. */
	ep->retire_again = true;
	if (ep->retiring)
		return;
	ep->retiring = true;
	do {
		ep->retire_again = false;
		all = retire_all(ep);
	} while (all && ep->retire_again);
	ep->retiring = false;
	if (!all)
		xd_stage_soon(ep);
}

bool xd_endpoint_retired(const struct xd_endpoint *ep)
{
	const struct xd_wqe *w;

	if (ep->rq_head != ep->rq_done)
		return false;
	if (ep->sq_head == ep->sq_done)
		return true; /* or there is no queue at all */
	w = &ep->sq[ep->sq_head % ep->sq_depth];
	return w->ours && !is_over(w);
}

static int send_completed(struct xd_endpoint *ep, const struct ibv_wc *wc)
{
	uint32_t sequence = (uint32_t)wc->wr_id;
	const struct xd_transfer *t;
	int status;

	if ((uint32_t)(sequence - ep->sq_done) >= ep->sq_tail - ep->sq_done)
		return 0; /* not one of ours: ended from our table before */
	t = ep->sq[sequence % ep->sq_depth].transfer;
	status = wc_status(wc, t);
	if (status < 0 && !ep->sq_status) {
		ep->sq_status = status;
		ep->sq_bad = sequence;
	}
	ep->sq_done = sequence + 1;
	pass_ours(ep);
	ep->progress_ns = xd_now(ep->session->core);
	return status;
}

static int recv_completed(struct xd_endpoint *ep, const struct ibv_wc *wc)
{
	struct xd_wqe *w = &ep->rq[ep->rq_done % ep->rq_depth];
	struct xd_transfer *t = w->transfer;

	if (ep->rq_done == ep->rq_tail || (uint32_t)wc->wr_id != ep->rq_done)
		return 0;
	ep->rq_done++;
	t->status = wc_status(wc, t);
	if (t->status < 0)
		return t->status;
	/* What a WRITE with immediate data says is the length of the WRITE: nothing came here. */
	if (w->ring != XD_RINGS && wc->opcode != IBV_WC_RECV_RDMA_WITH_IMM)
		w->arrived = xc_min_u64(wc->byte_len, w->bytes);
	if (w->ring != XD_RINGS && XD_SABOTAGE("trust-a-length"))
		w->arrived = wc->byte_len;
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
	return 0;
}

void xd_transfer_completed(struct xd_endpoint *ep, const struct ibv_wc *wc)
{
	int status = wc->wr_id & XD_RECV_BIT ? recv_completed(ep, wc) : send_completed(ep, wc);

	xd_endpoint_retire(ep);
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

	xc_assert(xd_endpoint_retired(ep));
	while (ep->sq_head != ep->sq_tail && !XD_SABOTAGE("forget-a-flush")) {
		t = ep->sq[ep->sq_head++ % ep->sq_depth].transfer;
		/* A transfer of several work requests ends with its last; one that waits too, from
		 * the list below. */
		if (t && ++t->retired == t->posted && t->state == XD_T_POSTED)
			flush_one(t, status);
	}
	while ((t = xc_list_first(&ep->waiting, struct xd_transfer, link)))
		flush_one(t, status);
	while (ep->rq_head != ep->rq_tail && !XD_SABOTAGE("let-a-recv-wait")) {
		t = ep->rq[ep->rq_head++ % ep->rq_depth].transfer;
		xd_transfer_end(t, status, NULL);
	}
	/* Copies of its grants may go on: what they end finds nothing here. */
	ep->sq_done = ep->sq_head;
	ep->rq_done = ep->rq_head;
}
