/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/assert.h"
#include "common/checked.h"
#include "daemon/fabric/verbs/private.h"
#include "proto/errors.h"

/* Events taken in a turn; the rest waits for the next. */
#define CM_EVENTS 64

/* Reasons of a reject, IBTA table 109. */
#define REASON_NO_QP 1
#define REASON_NO_RESOURCES 3
#define REASON_TIMEOUT 4
#define REASON_INVALID_SERVICE 8
#define REASON_STALE 10
#define REASON_CONSUMER 28

/* ---- connection requests */

static void conn_free(struct fabric_conn *c)
{
	struct fabric *f = c->fabric;

	xc_list_remove(&c->all);
	xc_list_remove(&c->ask);
	c->magic = 0;
	free(c);
	verbs_unref(f);
}

void verbs_conn_consume(struct fabric_conn *c)
{
	c->id = NULL;
	c->answered = true;
	c->fabric->objects--;
	if (!c->asking)
		conn_free(c);
}

static void discard_run(struct xd_job *job)
{
	struct fabric_conn *c = xc_container_of(job, struct fabric_conn, job);

	if (c->reject)
		rdma_reject(c->id, c->bytes ? c->private_data : NULL, (uint8_t)c->bytes);
	rdma_destroy_id(c->id);
}

static void discard_over(struct xd_job *job)
{
	conn_free(xc_container_of(job, struct fabric_conn, job));
}

/* Its id goes, on a helper; the peer is told, or finds out. */
static void discard(struct fabric_conn *c, bool reject)
{
	const struct xd_engine_ref *e = &c->fabric->engine;

	xc_list_remove(&c->all);
	xc_list_remove(&c->ask);
	c->answered = true;
	c->reject = reject;
	c->job = (struct xd_job){
		.helper = XD_HELP_VERBS, .run = discard_run, .done = discard_over,
	};
	e->ops->help(e->engine, &c->job);
}

void verbs_conn_reject(struct fabric_conn *c, const void *private_data, size_t bytes)
{
	XC_CHECK(c, VERBS_CONN_MAGIC);
	xc_assert(!c->answered && bytes <= VERBS_REJECT_BYTES);
	if (bytes)
		memcpy(c->private_data, private_data, bytes);
	c->bytes = (uint16_t)bytes;
	c->fabric->objects--;
	discard(c, true);
}

static void ask(struct fabric_conn *c)
{
	struct fabric *f = c->fabric;
	struct fabric_conn_info info = {
		.peer_uid = -1,
		.private_data = c->private_data,
		.private_data_bytes = c->bytes,
	};
	void *listener_ctx = c->listener->ctx;
	bool consumed;

	fabric_from_sockaddr(rdma_get_peer_addr(c->id), &info.peer);
	c->listener = NULL;
	c->asked = c->asking = true;
	f->objects++;
	c->ctx = f->events.connect_request(listener_ctx, c, &info);
	c->asking = false;
	consumed = c->answered && !c->id;
	if (consumed)
		conn_free(c);
	else if (!c->ctx && !c->answered)
		verbs_conn_reject(c, NULL, 0);
}

void verbs_cm_ask(struct fabric *f)
{
	struct fabric_conn *c;
	struct xc_list *l, wait;

	xc_list_init(&wait);
	while ((l = xc_list_pop(&f->asks))) {
		c = xc_container_of(l, struct fabric_conn, ask);
		/* A peer can be faster than the job that began to listen. */
		if (c->listener->listening)
			ask(c);
		else
			xc_list_append(&wait, &c->ask);
	}
	while ((l = xc_list_pop(&wait)))
		xc_list_append(&f->asks, l);
}

void verbs_conns_forget(struct fabric_listener *listener)
{
	struct fabric_conn *c;

	xc_list_for_each(c, &listener->fabric->conns, all) {
		if (c->listener != listener)
			continue;
		c->listener = NULL;
		c->bytes = 0;
		discard(c, true);
	}
}

void verbs_conns_lost(struct fabric *f)
{
	struct xc_list *l;

	while ((l = xc_list_pop(&f->conns))) {
		struct fabric_conn *c = xc_container_of(l, struct fabric_conn, all);
		void *ctx = c->ctx;
		bool asked = c->asked;

		discard(c, false);
		if (asked) {
			f->objects--;
			f->events.conn_gone(ctx);
		}
	}
}

/*
 * The event is still held, and with it the listening id; the new id is ours. Where there is no
 * memory for it the request is dropped, and the peer runs into its time-out.
 */
static void request_came(struct fabric *f, struct rdma_cm_event *event)
{
	struct verbs_target *t = event->listen_id->context;
	struct fabric_listener *l = xc_container_of(t, struct fabric_listener, target);
	const struct rdma_conn_param *p = &event->param.conn;
	struct fabric_conn *c = calloc(1, sizeof(*c));

	if (!c) {
		rdma_destroy_id(event->id);
		return;
	}
	*c = (struct fabric_conn){
		.magic = VERBS_CONN_MAGIC, .target.kind = VERBS_TARGET_CONN, .fabric = f,
		.id = event->id, .listener = l,
		.initiator_depth = (uint8_t)xc_min_u32(p->initiator_depth, f->rd_atomic),
		.responder_resources = (uint8_t)xc_min_u32(p->responder_resources, f->rd_atomic),
		.bytes = p->private_data_len,
	};
	if (c->bytes)
		memcpy(c->private_data, p->private_data, c->bytes);
	c->id->context = &c->target;
	verbs_ref(f);
	xc_list_init(&c->ask);
	xc_list_append(&f->conns, &c->all);
	if (l->freed || f->lost || event->status) {
		c->bytes = 0;
		discard(c, true);
		return;
	}
	xc_list_append(&f->asks, &c->ask);
}

/* ---- endpoints */

/* Why it failed, in the project's words. */
static int failure(const struct fabric *f, const struct rdma_cm_event *event)
{
	int status = event->status;

	switch (event->event) {
	case RDMA_CM_EVENT_ADDR_ERROR:
	case RDMA_CM_EVENT_ROUTE_ERROR:
		return status == -ETIMEDOUT ? -EHOSTUNREACH : status < 0 ? status : -ENETUNREACH;
	case RDMA_CM_EVENT_UNREACHABLE:
		return -ETIMEDOUT;
	case RDMA_CM_EVENT_REJECTED:
		break;
	case RDMA_CM_EVENT_DEVICE_REMOVAL:
		return -XP_E_DEVICE;
	default:
		return status == -ETIMEDOUT ? -ETIMEDOUT : -XP_E_PEER_GONE;
	}
	/*
	 * In iWARP a host that nobody listens on resets the connection, as one that does not want
	 * it; drivers call either ECONNREFUSED or ECONNRESET, but only a peer that answers has
	 * something to say. siw says ECONNREFUSED of the former in rdma_connect() itself.
	 */
	if (f->iwarp)
		return status == -ECONNREFUSED && !event->param.conn.private_data_len
			       ? -ECONNREFUSED
			       : -XP_E_REJECTED;
	switch (status) {
	case REASON_INVALID_SERVICE:
		return -ECONNREFUSED;
	case REASON_NO_QP:
	case REASON_NO_RESOURCES:
		return -XP_E_BACKLOG;
	case REASON_TIMEOUT:
		return -ETIMEDOUT;
	case REASON_STALE:
		return -XP_E_PEER_GONE;
	case REASON_CONSUMER:
	default:
		return -XP_E_REJECTED;
	}
}

static void keep_private_data(struct fabric_ep *ep, const struct rdma_conn_param *p)
{
	ep->heard_bytes = p->private_data_len; /* 8 bits: it fits */
	if (ep->heard_bytes)
		memcpy(ep->heard, p->private_data, ep->heard_bytes);
}

static void ep_event(struct fabric_ep *ep, const struct rdma_cm_event *event)
{
	struct verbs_life *l = &ep->life;

	switch (event->event) {
	case RDMA_CM_EVENT_ADDR_RESOLVED:
		verbs_life_hear(l, VERBS_HEARD_ADDRESS, 0);
		break;
	case RDMA_CM_EVENT_ROUTE_RESOLVED:
		verbs_life_hear(l, VERBS_HEARD_ROUTE, 0);
		break;
	case RDMA_CM_EVENT_CONNECT_RESPONSE:
		keep_private_data(ep, &event->param.conn);
		verbs_life_hear(l, VERBS_HEARD_RESPONSE, 0);
		break;
	case RDMA_CM_EVENT_ESTABLISHED:
		if (ep->fabric->iwarp)
			keep_private_data(ep, &event->param.conn);
		verbs_life_hear(l, VERBS_HEARD_ESTABLISHED, 0);
		break;
	case RDMA_CM_EVENT_DISCONNECTED:
		verbs_life_hear(l, VERBS_HEARD_DISCONNECTED, -XP_E_PEER_GONE);
		break;
	case RDMA_CM_EVENT_REJECTED:
		if (l->phase == VERBS_CONNECTING)
			keep_private_data(ep, &event->param.conn);
		verbs_life_hear(l, VERBS_HEARD_FAILED, failure(ep->fabric, event));
		break;
	case RDMA_CM_EVENT_ADDR_ERROR:
	case RDMA_CM_EVENT_ROUTE_ERROR:
	case RDMA_CM_EVENT_CONNECT_ERROR:
	case RDMA_CM_EVENT_UNREACHABLE:
	case RDMA_CM_EVENT_DEVICE_REMOVAL:
		verbs_life_hear(l, VERBS_HEARD_FAILED, failure(ep->fabric, event));
		break;
	default: /* TIMEWAIT_EXIT, ADDR_CHANGE: nothing follows from them here */
		return;
	}
	verbs_ep_advance(ep);
}

/* ---- all of them */

static void dispatch(struct fabric *f, struct rdma_cm_event *event)
{
	struct verbs_target *t = event->id->context;

	if (event->event == RDMA_CM_EVENT_CONNECT_REQUEST)
		request_came(f, event);
	else if (t && t->kind == VERBS_TARGET_EP)
		ep_event(xc_container_of(t, struct fabric_ep, target), event);
}

bool verbs_cm_events(struct fabric *f)
{
	for (int i = 0; i < CM_EVENTS; i++) {
		struct rdma_cm_event *event;
		bool removed;

		if (rdma_get_cm_event(f->cm, &event) < 0)
			return false;
		removed = event->event == RDMA_CM_EVENT_DEVICE_REMOVAL;
		dispatch(f, event);
		/* At once: a job that destroys the id waits for this. */
		rdma_ack_cm_event(event);
		/* The kernel waits until all ids of the device are gone. */
		if (removed)
			verbs_lost(f, "it was removed");
	}
	return true;
}
