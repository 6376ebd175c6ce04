/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/assert.h"
#include "common/checked.h"
#include "daemon/fabric/iwarp/private.h"

/* Completions taken from one endpoint before the next has its turn. */
#define POLL_BURST 16

int iwarp_queue_init(struct iwarp_queue *q, uint32_t size, uint32_t max_sge, uint32_t max_inline)
{
	*q = (struct iwarp_queue){ .size = size, .max_sge = max_sge, .max_inline = max_inline };
	q->wrs = calloc(size ? size : 1, sizeof(*q->wrs));
	/* One entry at least: the pointer is also the base of empty lists. */
	q->sges = calloc((size_t)size * max_sge + 1, sizeof(*q->sges));
	q->inlines = calloc((size_t)size * max_inline + 1, 1);
	return q->wrs && q->sges && q->inlines ? 0 : -ENOMEM;
}

void iwarp_queue_done(struct iwarp_queue *q)
{
	free(q->wrs);
	free(q->sges);
	free(q->inlines);
	*q = (struct iwarp_queue){ 0 };
}

/* The slot behind the last one posted; NULL where all are posted, or completed and not polled. */
static struct iwarp_wr *free_slot(struct iwarp_queue *q)
{
	if (q->count + q->unpolled >= q->size)
		return NULL;
	return &q->wrs[(q->head + q->count) % q->size];
}

static uint64_t copy_sges(struct iwarp_queue *q, struct iwarp_wr *slot, const struct ibv_sge *sges,
			  int n)
{
	struct ibv_sge *to = iwarp_queue_sges(q, slot);
	uint64_t total = 0;

	for (int i = 0; i < n; i++) {
		to[i] = sges[i];
		total += sges[i].length;
	}
	slot->num_sge = n;
	slot->total_bytes = total;
	return total;
}

/* From where the poster has it. */
static void take_inline(const struct iwarp_queue *q, const struct iwarp_wr *wr, uint8_t *to)
{
	const struct ibv_sge *s = iwarp_queue_sges(q, wr), *end = s + wr->num_sge;

	for (; s < end; to += s++->length)
		if (s->length)
			memcpy(to, (const void *)(uintptr_t)s->addr, s->length);
}

uint8_t *iwarp_inline_data(const struct iwarp_queue *q, const struct iwarp_wr *wr)
{
	uint8_t *data = q->inlines + (size_t)(wr - q->wrs) * q->max_inline;

	if (FABRIC_SABOTAGE("late-inline"))
		take_inline(q, wr, data);
	return data;
}

/* ------------------------------------------------------------------------------------- receives */

static int post_one_recv(struct fabric_ep *ep, const struct ibv_recv_wr *wr)
{
	struct iwarp_wr *slot = free_slot(&ep->rq);

	if (wr->num_sge < 0 || (uint32_t)wr->num_sge > ep->rq.max_sge)
		return -EINVAL;
	if (!slot)
		return -ENOMEM;
	*slot = (struct iwarp_wr){ .wr_id = wr->wr_id };
	copy_sges(&ep->rq, slot, wr->sg_list, wr->num_sge);
	ep->rq.count++;
	return 0;
}

int iwarp_post_recv(struct fabric_ep *ep, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad_wr)
{
	int err = 0;

	XC_CHECK(ep, IWARP_EP_MAGIC);
	for (; wr && !err; wr = wr->next) {
		err = post_one_recv(ep, wr);
		if (err)
			*bad_wr = wr;
	}
	if (ep->state == IWARP_EP_ENDED)
		iwarp_flush(ep);
	if (ep->peer && ep->peer->awaits_recv)
		iwarp_schedule(ep->peer);
	if (ep->stream && ep->awaits_recv && ep->rq.count)
		iwarp_recv_is_there(ep);
	return err;
}

/* ---------------------------------------------------------------------------------------- sends */

static int describe_bind(struct fabric_ep *ep, const struct ibv_send_wr *wr, struct iwarp_bind *b)
{
	const struct ibv_mw_bind_info *info = &wr->bind_mw.bind_info;
	const struct iwarp_mw *w;

	if (!wr->bind_mw.mw || !info->mr)
		return -EINVAL;
	w = xc_container_of(wr->bind_mw.mw, struct iwarp_mw, mw);
	XC_CHECK(w, IWARP_MW_MAGIC);
	if (w->stag.pd->fabric != ep->fabric)
		return -EINVAL;
	/*
	 * Numbers, not pointers: when the turn of this work request comes, the window or the region
	 * may be gone.
	 */
	*b = (struct iwarp_bind){
		.window_serial = w->stag.serial,
		.address = info->addr,
		.length = info->length,
		.new_rkey = wr->bind_mw.rkey,
		.lkey = info->mr->lkey,
		.access = (int)info->mw_access_flags,
	};
	/* The key must name this window. */
	return wr->bind_mw.rkey >> 8 == w->stag.index ? 0 : -EINVAL;
}

static int describe_send(struct fabric_ep *ep, const struct ibv_send_wr *wr, struct iwarp_wr *slot)
{
	switch (wr->opcode) {
	case IBV_WR_RDMA_READ:
	case IBV_WR_RDMA_WRITE:
		slot->remote.address = wr->wr.rdma.remote_addr;
		slot->remote.rkey = wr->wr.rdma.rkey;
		return 0;
	case IBV_WR_SEND:
		return 0;
	case IBV_WR_SEND_WITH_INV:
	case IBV_WR_LOCAL_INV:
		slot->invalidate_rkey = wr->invalidate_rkey;
		slot->named_window = iwarp_names_window(ep, wr->invalidate_rkey);
		return 0;
	case IBV_WR_BIND_MW:
		return describe_bind(ep, wr, &slot->bind);
	default: /* WITH_IMM, atomics, TSO: iWARP has none of them */
		return -EOPNOTSUPP;
	}
}

static bool goes_inline(const struct ibv_send_wr *wr)
{
	return wr->opcode == IBV_WR_SEND || wr->opcode == IBV_WR_SEND_WITH_INV ||
	       wr->opcode == IBV_WR_RDMA_WRITE;
}

/* What the caps do not promise: under a profile that is less than can be done. */
static int check_caps(const struct fabric_caps *caps, const struct ibv_send_wr *wr)
{
	bool windows = caps->keys == FABRIC_KEYS_WINDOW;

	switch (wr->opcode) {
	case IBV_WR_RDMA_READ:
		if (wr->num_sge > (int)caps->max_sge_rd)
			return -EINVAL;
		break;
	case IBV_WR_SEND_WITH_INV:
		if (!caps->remote_invalidate)
			return -EOPNOTSUPP;
		break;
	case IBV_WR_BIND_MW:
	case IBV_WR_LOCAL_INV:
		if (!windows)
			return -EOPNOTSUPP;
		break;
	default:
		break;
	}
	return caps->signal_all && !(wr->send_flags & IBV_SEND_SIGNALED) ? -EINVAL : 0;
}

static int post_one_send(struct fabric_ep *ep, const struct ibv_send_wr *wr)
{
	struct iwarp_wr *slot = free_slot(&ep->sq);
	bool has_data = wr->opcode != IBV_WR_LOCAL_INV && wr->opcode != IBV_WR_BIND_MW;
	int n = has_data ? wr->num_sge : 0, err;

	if (n < 0 || (uint32_t)n > ep->sq.max_sge)
		return -EINVAL;
	err = check_caps(&ep->fabric->caps, wr);
	if (!err)
		err = fabric_check_inline(&ep->fabric->caps, wr, goes_inline(wr));
	if (err)
		return err;
	if (!slot)
		return -ENOMEM;
	*slot = (struct iwarp_wr){
		.wr_id = wr->wr_id, .opcode = wr->opcode, .flags = wr->send_flags,
	};
	err = describe_send(ep, wr, slot);
	if (err)
		return err;
	if (copy_sges(&ep->sq, slot, wr->sg_list, n) > ep->fabric->caps.max_message_bytes)
		return -EMSGSIZE;
	if (iwarp_is_inline(slot))
		take_inline(&ep->sq, slot, iwarp_inline_data(&ep->sq, slot));
	ep->sq.count++;
	return 0;
}

int iwarp_post_send(struct fabric_ep *ep, struct ibv_send_wr *wr, struct ibv_send_wr **bad_wr)
{
	bool has_been_connected;
	int err = 0;

	XC_CHECK(ep, IWARP_EP_MAGIC);
	has_been_connected = ep->state == IWARP_EP_CONNECTED || ep->state == IWARP_EP_ENDED;
	for (; wr && !err; wr = wr->next) {
		err = has_been_connected ? post_one_send(ep, wr) : -ENOTCONN;
		if (err)
			*bad_wr = wr;
	}
	/*
	 * As with ibv_post_send(3) in the error state: the connection can end unseen before any
	 * post.
	 */
	if (ep->state == IWARP_EP_ENDED)
		iwarp_flush(ep);
	iwarp_schedule(ep);
	return err;
}

/* ---------------------------------------------------------------------------------- completions */

static enum ibv_wc_opcode wc_opcode(enum ibv_wr_opcode opcode)
{
	switch (opcode) {
	case IBV_WR_RDMA_READ:
		return IBV_WC_RDMA_READ;
	case IBV_WR_RDMA_WRITE:
		return IBV_WC_RDMA_WRITE;
	case IBV_WR_LOCAL_INV:
		return IBV_WC_LOCAL_INV;
	case IBV_WR_BIND_MW:
		return IBV_WC_BIND_MW;
	default:
		return IBV_WC_SEND;
	}
}

static struct ibv_wc *next_wc(struct fabric_ep *ep)
{
	struct ibv_wc *wc;

	xc_assert(ep->cq_count < ep->cq_size);
	wc = &ep->cq[(ep->cq_head + ep->cq_count++) % ep->cq_size];
	*wc = (struct ibv_wc){ .qp_num = ep->qp_num };
	if (xc_list_empty(&ep->cq_ready))
		xc_list_append(&ep->fabric->cq_ready, &ep->cq_ready);
	return wc;
}

static void pop_head(struct iwarp_queue *q)
{
	q->head = (q->head + 1) % q->size;
	q->count--;
}

void iwarp_complete_send(struct fabric_ep *ep, enum ibv_wc_status status)
{
	const struct iwarp_wr *wr = iwarp_queue_head(&ep->sq);
	bool silent = status == IBV_WC_SUCCESS && !(wr->flags & IBV_SEND_SIGNALED);

	xc_assert(wr);
	if (!silent) {
		struct ibv_wc *wc = next_wc(ep);

		wc->wr_id = wr->wr_id;
		wc->status = status;
		wc->opcode = wc_opcode(wr->opcode);
		wc->byte_len = status == IBV_WC_SUCCESS ? (uint32_t)wr->total_bytes : 0;
		ep->sq.unpolled++;
	}
	pop_head(&ep->sq);
	ep->cursor = (struct iwarp_cursor){ 0 };
}

void iwarp_complete_recv(struct fabric_ep *ep, enum ibv_wc_status status, uint32_t byte_len,
			 uint32_t invalidated_rkey)
{
	const struct iwarp_wr *wr = iwarp_queue_head(&ep->rq);
	struct ibv_wc *wc;

	xc_assert(wr);
	wc = next_wc(ep);
	wc->wr_id = wr->wr_id;
	wc->status = status;
	wc->opcode = IBV_WC_RECV;
	wc->byte_len = byte_len;
	if (invalidated_rkey) {
		wc->wc_flags = IBV_WC_WITH_INV;
		wc->invalidated_rkey = invalidated_rkey;
	}
	ep->rq.unpolled++;
	pop_head(&ep->rq);
}

/* In order of posting, the one that was under way first. */
void iwarp_flush(struct fabric_ep *ep)
{
	struct fabric *f = ep->fabric;
	bool any = ep->sq.count || ep->rq.count;

	while (ep->sq.count)
		iwarp_complete_send(ep, IBV_WC_WR_FLUSH_ERR);
	while (ep->rq.count)
		iwarp_complete_recv(ep, IBV_WC_WR_FLUSH_ERR, 0, 0);
	iwarp_stop_awaiting(ep);
	iwarp_schedule(ep);
	if (any)
		iwarp_wake(f);
}

static int take_completions(struct fabric_ep *ep, int n, struct ibv_wc *wc)
{
	int taken = 0;

	while (taken < n && ep->cq_count) {
		wc[taken] = ep->cq[ep->cq_head];
		ep->cq_head = (ep->cq_head + 1) % ep->cq_size;
		ep->cq_count--;
		if (wc[taken].opcode & IBV_WC_RECV)
			ep->rq.unpolled--;
		else
			ep->sq.unpolled--;
		taken++;
	}
	return taken;
}

int iwarp_poll(struct fabric *f, int n, struct ibv_wc *wc)
{
	struct xc_list *link;
	int taken = 0;

	XC_CHECK(f, IWARP_FABRIC_MAGIC);
	while (taken < n && (link = xc_list_pop(&f->cq_ready))) {
		struct fabric_ep *ep = xc_container_of(link, struct fabric_ep, cq_ready);
		int burst = n - taken < POLL_BURST ? n - taken : POLL_BURST;

		taken += take_completions(ep, burst, wc + taken);
		if (ep->cq_count)
			xc_list_append(&f->cq_ready, &ep->cq_ready);
	}
	return taken;
}
