/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/assert.h"
#include "common/checked.h"
#include "daemon/fabric/iwarp/stream.h"
#include "proto/errors.h"

static void ep_free(struct fabric_ep *ep)
{
	iwarp_queue_done(&ep->sq);
	iwarp_queue_done(&ep->rq);
	free(ep->cq);
	ep->magic = 0;
	free(ep);
}

/* No RECV was posted in time: by the peer, or here for the peer. Queues what is to be said;
 * progress() says it. */
static void rnr_fired(struct xd_timer *t)
{
	struct fabric_ep *ep = xc_container_of(t, struct fabric_ep, rnr);

	XC_CHECK(ep, IWARP_EP_MAGIC);
	if (ep->stream) {
		stream_terminate(ep->stream, RDMAP_E_U_NO_BUFFER, true, -XP_E_PEER_GONE);
		return;
	}
	iwarp_complete_send(ep, ep->fabric->profile && ep->fabric->profile->refusals_come_late
					? IBV_WC_SUCCESS
					: IBV_WC_RNR_RETRY_EXC_ERR);
	iwarp_ep_end(ep, -XP_E_RECEIVER_NOT_READY, -XP_E_PEER_GONE);
}

static int ep_alloc_queues(struct fabric_ep *ep, const struct fabric_ep_attr *attr)
{
	int err = iwarp_queue_init(&ep->sq, attr->max_send_wr, attr->max_send_sge,
				   ep->fabric->caps.max_inline);

	if (!err)
		err = iwarp_queue_init(&ep->rq, attr->max_recv_wr, attr->max_recv_sge, 0);
	if (err)
		return err;
	/* A completion for each work request that can be unpolled at once: it cannot overflow. */
	ep->cq_size = ep->sq.size + ep->rq.size;
	ep->cq = calloc(ep->cq_size ? ep->cq_size : 1, sizeof(*ep->cq));
	return ep->cq ? 0 : -ENOMEM;
}

int iwarp_ep_create(struct fabric *f, const struct fabric_ep_attr *attr, struct fabric_done *done,
		    struct fabric_ep **ret)
{
	struct fabric_ep *ep;
	int err;

	(void)done;
	XC_CHECK(f, IWARP_FABRIC_MAGIC);
	XC_CHECK(attr->pd, IWARP_PD_MAGIC);
	if (attr->max_send_wr > f->caps.max_send_wr || attr->max_recv_wr > f->caps.max_recv_wr ||
	    attr->max_send_sge > f->caps.max_sge || attr->max_recv_sge > f->caps.max_recv_sge)
		return -EINVAL;
	if (f->eps >= f->ep_limit)
		return -ENOSPC;
	ep = calloc(1, sizeof(*ep));
	if (!ep)
		return -ENOMEM;
	*ep = (struct fabric_ep){
		.magic = IWARP_EP_MAGIC,
		.fabric = f,
		.pd = attr->pd,
		.ctx = attr->ctx,
		.qp_num = attr->qp_num,
		.rnr.fired = rnr_fired,
		.pending.deliver = iwarp_ep_tell,
	};
	xc_list_init(&ep->turn);
	xc_list_init(&ep->windows);
	xc_list_init(&ep->cq_ready);
	xc_list_init(&ep->pending.link);
	err = ep_alloc_queues(ep, attr);
	if (err) {
		ep_free(ep);
		return err;
	}
	f->eps++;
	attr->pd->objects++;
	*ret = ep;
	return 0;
}

static void tell(struct fabric_ep *ep, unsigned int what)
{
	ep->tell |= what;
	if (xc_list_empty(&ep->pending.link))
		xc_list_append(&ep->fabric->pending, &ep->pending.link);
	iwarp_wake(ep->fabric);
}

/*
 * The user's established or disconnected, from progress(). The user may destroy ep in it: nothing
 * touches ep afterwards.
 */
void iwarp_ep_tell(struct iwarp_pending *p)
{
	struct fabric_ep *ep = xc_container_of(p, struct fabric_ep, pending);
	const struct fabric_events *events = &ep->fabric->events;
	uint8_t data[FABRIC_PRIVATE_DATA_MAX];

	if (!(ep->tell & IWARP_TELL_ESTABLISHED)) {
		ep->tell = 0;
		events->disconnected(ep->ctx, ep->disconnected_status);
		return;
	}
	ep->tell &= ~IWARP_TELL_ESTABLISHED;
	if (ep->tell)
		tell(ep, 0);
	iwarp_schedule(ep);
	if (ep->peer)
		iwarp_schedule(ep->peer);
	memcpy(data, ep->private_data, ep->private_data_bytes);
	events->established(ep->ctx, ep->established_status, data, ep->private_data_bytes);
}

/* It is padded to pad_bytes with zeros, which it had. */
static void set_private_data(struct fabric_ep *ep, const void *private_data, size_t bytes,
			     uint16_t pad_bytes)
{
	xc_assert(bytes <= sizeof(ep->private_data));
	if (bytes)
		memcpy(ep->private_data, private_data, bytes);
	ep->private_data_bytes = iwarp_padded(ep->fabric, bytes, pad_bytes);
}

static void side_joins(struct fabric_ep *ep, struct fabric_ep *peer)
{
	ep->state = IWARP_EP_CONNECTED;
	ep->peer = peer;
	ep->conn = NULL;
	ep->established_status = 0;
	tell(ep, IWARP_TELL_ESTABLISHED);
}

void iwarp_ep_join(struct fabric_ep *active, struct fabric_ep *passive, const void *private_data,
		   size_t bytes)
{
	side_joins(active, passive);
	side_joins(passive, active);
	set_private_data(active, private_data, bytes, active->fabric->caps.private_accept_bytes);
}

void iwarp_ep_connected(struct fabric_ep *ep, const void *private_data, size_t bytes)
{
	side_joins(ep, NULL);
	set_private_data(ep, private_data, bytes, 0);
}

void iwarp_ep_refuse(struct fabric_ep *ep, int status, const void *private_data, size_t bytes)
{
	ep->state = IWARP_EP_ENDED;
	ep->conn = NULL;
	ep->established_status = status;
	set_private_data(ep, private_data, bytes, ep->fabric->caps.private_reject_bytes);
	iwarp_flush(ep);
	tell(ep, IWARP_TELL_ESTABLISHED);
}

static void side_ends(struct fabric_ep *ep, int reason)
{
	ep->peer = NULL;
	ep->state = IWARP_EP_ENDED;
	ep->disconnected_status = reason;
	iwarp_flush(ep);
	tell(ep, IWARP_TELL_DISCONNECTED);
}

void iwarp_ep_end(struct fabric_ep *ep, int reason, int peer_reason)
{
	struct fabric_ep *peer = ep->peer;

	xc_assert(ep->state == IWARP_EP_CONNECTED);
	if (ep->stream)
		stream_leave(ep->stream);
	side_ends(ep, reason);
	if (peer)
		side_ends(peer, peer_reason);
}

void iwarp_ep_error(struct fabric_ep *ep)
{
	XC_CHECK(ep, IWARP_EP_MAGIC);
	switch (ep->state) {
	case IWARP_EP_IDLE:
		ep->state = IWARP_EP_ENDED;
		iwarp_flush(ep);
		break;
	case IWARP_EP_CONNECTING:
		if (ep->stream)
			dial_abandon(ep->stream);
		else
			iwarp_conn_abandon(ep->conn);
		iwarp_ep_refuse(ep, -ECONNABORTED, NULL, 0);
		break;
	case IWARP_EP_CONNECTED:
		iwarp_ep_end(ep, 0, -XP_E_PEER_GONE);
		break;
	case IWARP_EP_ENDED:
		break;
	}
}

void iwarp_ep_disconnect(struct fabric_ep *ep)
{
	XC_CHECK(ep, IWARP_EP_MAGIC);
	/* Without a connection there is nothing to end: RECVs that were posted stay. */
	if (ep->state != IWARP_EP_IDLE)
		iwarp_ep_error(ep);
}

int iwarp_ep_destroy(struct fabric_ep *ep, struct fabric_done *done)
{
	struct fabric *f = ep->fabric;

	(void)done;
	XC_CHECK(ep, IWARP_EP_MAGIC);
	iwarp_ep_error(ep);
	f->engine.ops->disarm(f->engine.engine, &ep->rnr);
	iwarp_unbind_all(ep);
	xc_list_remove(&ep->pending.link);
	xc_list_remove(&ep->cq_ready);
	xc_list_remove(&ep->turn);
	ep->pd->objects--;
	f->eps--;
	ep_free(ep);
	return 0;
}
