/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include <errno.h>
#include <string.h>

#include "common/assert.h"
#include "common/checked.h"
#include "daemon/fabric/verbs/private.h"
#include "proto/errors.h"

/* Events of completion taken in a turn; the rest waits for the next. */
#define CQ_EVENTS 256

/* ---- posting */

/* libibverbs' calls return an errno; of siw's, some return it negated. */
static int negative(int r)
{
	return r > 0 ? -r : r;
}

/*
 * What the caps do not promise is not asked of a device: drivers take operations that never
 * complete, or complete and have not happened.
 */
static int check_send(const struct fabric_ep *ep, const struct ibv_send_wr *wr)
{
	const struct fabric_caps *caps = &ep->fabric->caps;
	uint32_t max = ep->attr.max_send_sge;
	bool can = true;

	switch (wr->opcode) {
	case IBV_WR_RDMA_READ:
		max = xc_min_u32(max, caps->max_sge_rd);
		break;
	case IBV_WR_RDMA_WRITE:
	case IBV_WR_SEND:
		break;
	case IBV_WR_SEND_WITH_INV:
		can = caps->remote_invalidate;
		break;
	case IBV_WR_SEND_WITH_IMM:
	case IBV_WR_RDMA_WRITE_WITH_IMM:
		can = caps->immediate;
		break;
	case IBV_WR_LOCAL_INV:
		return caps->keys == FABRIC_KEYS_WINDOW ? 0 : -EOPNOTSUPP;
	case IBV_WR_BIND_MW:
		if (caps->keys != FABRIC_KEYS_WINDOW)
			return -EOPNOTSUPP;
		return wr->bind_mw.mw && wr->bind_mw.bind_info.mr ? 0 : -EINVAL;
	default:
		can = false;
	}
	if (!can)
		return -EOPNOTSUPP;
	/* siw cuts a chain at one that is too long, and calls that a success. */
	if (wr->num_sge < 0 || (uint32_t)wr->num_sge > max)
		return -EINVAL;
	/* A flag that means nothing drivers read all the same, or not. */
	return fabric_check_inline(caps, wr, wr->opcode != IBV_WR_RDMA_READ);
}

static bool has_bind(const struct ibv_send_wr *wr)
{
	for (; wr; wr = wr->next)
		if (wr->opcode == IBV_WR_BIND_MW)
			return true;
	return false;
}

/* One by one: a bind names objects that the user knows by ours (memory.c). */
static int post_binds(struct fabric_ep *ep, struct ibv_send_wr *wr, struct ibv_send_wr **bad_wr)
{
	for (; wr; wr = wr->next) {
		struct ibv_send_wr one = *wr, *bad;
		int err;

		one.next = NULL;
		if (one.opcode == IBV_WR_BIND_MW)
			verbs_bind_to_device(&one);
		err = negative(ibv_post_send(ep->qp, &one, &bad));
		if (err) {
			*bad_wr = wr;
			return err;
		}
	}
	return 0;
}

/*
 * siw completes a WRITE or SEND when it is sent, a READ when the answer has come, and puts each
 * into the CQ at once. Behind a fence they come in order. The answers to READs do so by themselves,
 * and siw takes no READ with a fence.
 */
static void set_order(struct fabric_ep *ep, struct ibv_send_wr *wr)
{
	if (strcmp(ep->fabric->caps.driver, "siw") != 0)
		return;
	for (; wr; wr = wr->next) {
		if (wr->opcode == IBV_WR_RDMA_READ)
			wr->send_flags &= ~(unsigned int)IBV_SEND_FENCE;
		else
			wr->send_flags |= IBV_SEND_FENCE;
	}
}

static int post_sound(struct fabric_ep *ep, struct ibv_send_wr *wr, struct ibv_send_wr **bad_wr)
{
	struct ibv_send_wr *bad = NULL;
	int err;

	set_order(ep, wr);
	if (has_bind(wr))
		return post_binds(ep, wr, bad_wr);
	err = negative(ibv_post_send(ep->qp, wr, &bad));
	/* siw, of a queue that was full in mid-chain. */
	if (!err && bad)
		err = -ENOMEM;
	/* siw, where it took all and could not tell the kernel: the connection has ended. */
	if (err && !bad)
		return 0;
	*bad_wr = bad;
	return err;
}

int verbs_post_send(struct fabric_ep *ep, struct ibv_send_wr *wr, struct ibv_send_wr **bad_wr)
{
	struct ibv_send_wr *last = NULL, *wrong = wr;
	int why = 0, err = 0;

	XC_CHECK(ep, VERBS_EP_MAGIC);
	/* Drivers differ in what they say of a QP that is not in RTS, and rxe says yes. */
	if (!verbs_life_may_send(&ep->life)) {
		*bad_wr = wr;
		return -ENOTCONN;
	}
	while (wrong && (why = check_send(ep, wrong)) == 0) {
		last = wrong;
		wrong = wrong->next;
	}
	if (last) {
		last->next = NULL;
		err = post_sound(ep, wr, bad_wr);
		last->next = wrong;
	}
	if (!err && why)
		*bad_wr = wrong;
	return err ? err : why;
}

/* siw takes no RECV without a segment. One of no bytes is none, where the other was refused. */
static int post_empty_recv(struct fabric_ep *ep, const struct ibv_recv_wr *wr)
{
	struct ibv_sge nothing = { 0 };
	struct ibv_recv_wr one = { .wr_id = wr->wr_id, .sg_list = &nothing, .num_sge = 1 }, *bad;

	if (wr->num_sge || !ep->attr.max_recv_sge)
		return -EINVAL;
	return negative(ibv_post_recv(ep->qp, &one, &bad));
}

int verbs_post_recv(struct fabric_ep *ep, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad_wr)
{
	struct ibv_recv_wr *bad;
	int err = 0;

	XC_CHECK(ep, VERBS_EP_MAGIC);
	xc_assert(!ep->life.destroy);
	/* Of a QP in ERR some devices (rxe) flush no RECV that is posted afterwards. */
	if (ep->life.phase == VERBS_ENDED) {
		*bad_wr = wr;
		return -ENOTCONN;
	}
	for (; wr && !err; wr = bad->next) {
		bad = NULL;
		err = negative(ibv_post_recv(ep->qp, wr, &bad));
		if (!err || !bad)
			return err;
		if (err == -EINVAL)
			err = post_empty_recv(ep, bad);
		if (err)
			*bad_wr = bad;
	}
	return err;
}

/* ---- completions */

bool verbs_cq_events(struct fabric *f)
{
	for (int i = 0; i < CQ_EVENTS; i++) {
		struct ibv_cq *cq;
		void *ctx;

		if (ibv_get_cq_event(f->channel, &cq, &ctx) < 0)
			return false;
		/*
		 * At once, and cq not touched afterwards: a job that destroys it waits for this.
		 * The endpoint is freed by this thread.
		 */
		ibv_ack_cq_events(cq, 1);
		if (!((struct fabric_ep *)ctx)->life.destroy)
			verbs_ep_ready(ctx);
	}
	return true;
}

/* What an error says of the connection: it is over, and RC does not tell otherwise. */
static int fault_of(enum ibv_wc_status status)
{
	switch (status) {
	case IBV_WC_REM_ACCESS_ERR:
	case IBV_WC_REM_INV_REQ_ERR:
		return -XP_E_REMOTE_ACCESS;
	case IBV_WC_LOC_PROT_ERR:
	case IBV_WC_LOC_ACCESS_ERR:
	case IBV_WC_LOC_QP_OP_ERR:
	case IBV_WC_MW_BIND_ERR:
		return -XP_E_LOCAL_ACCESS;
	case IBV_WC_LOC_LEN_ERR:
		return -XP_E_MESSAGE_TOO_LONG;
	case IBV_WC_REM_OP_ERR:
	case IBV_WC_REM_ABORT_ERR:
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

static void taken(struct fabric_ep *ep, struct ibv_wc *wc, int n)
{
	for (int i = 0; i < n; i++) {
		/* the device's number would be found by nobody */
		wc[i].qp_num = ep->attr.qp_num;
		if (wc[i].status == IBV_WC_SUCCESS || wc[i].status == IBV_WC_WR_FLUSH_ERR ||
		    ep->life.phase != VERBS_CONNECTED)
			continue;
		verbs_life_fault(&ep->life, fault_of(wc[i].status));
		verbs_ep_advance(ep);
	}
	ep->taken += (uint32_t)n;
}

/*
 * Takes up to max of one CQ, and arms it where that was all. Armed first and looked at again: what
 * arrives in between causes no event. *ret_empty: it will.
 */
static int take(struct fabric_ep *ep, int max, struct ibv_wc *wc, bool *ret_empty)
{
	int n = 0, r;

	*ret_empty = false;
	for (int look = 0; look < 2 && n < max; look++) {
		r = ibv_poll_cq(ep->cq, max - n, wc + n);
		if (r < 0 || (look == 0 && n + r < max && ibv_req_notify_cq(ep->cq, 0) != 0)) {
			*ret_empty = true; /* a CQ in error, or a lost device */
			verbs_life_fault(&ep->life, -XP_E_DEVICE);
			verbs_ep_advance(ep);
		}
		n += r > 0 ? r : 0;
		if (*ret_empty)
			break;
		if (look == 1 && n < max)
			*ret_empty = true;
	}
	taken(ep, wc, n);
	return n;
}

/*
 * What a CQ can hold at once is what of one endpoint is handed out in a turn. So all that preceded
 * a disconnect is, and a peer that keeps its CQ full cannot keep the turn.
 */
static int allowance(struct fabric_ep *ep)
{
	if (ep->turn != ep->fabric->turn) {
		ep->turn = ep->fabric->turn;
		ep->taken = 0;
	}
	return (int)(ep->cq_size - xc_min_u32(ep->taken, ep->cq_size));
}

int verbs_poll(struct fabric *f, int n, struct ibv_wc *wc)
{
	struct xc_list later;
	struct xc_list *l;
	int got = 0;

	XC_CHECK(f, VERBS_FABRIC_MAGIC);
	xc_list_init(&later);
	while (got < n && (l = xc_list_pop(&f->ready))) {
		struct fabric_ep *ep = xc_container_of(l, struct fabric_ep, ready);
		int max = allowance(ep);
		bool empty;

		/* It comes back when it has been told of its connection, or has ended. */
		if (!verbs_life_may_poll(&ep->life))
			continue;
		if (max == 0) {
			xc_list_append(&later, &ep->ready);
			continue;
		}
		got += take(ep, max < n - got ? max : n - got, wc + got, &empty);
		if (!empty)
			xc_list_append(got < n ? &f->ready : &later, &ep->ready);
	}
	while ((l = xc_list_pop(&later)))
		xc_list_append(&f->ready, l);
	if (!xc_list_empty(&f->ready))
		verbs_wake(f);
	return got;
}
