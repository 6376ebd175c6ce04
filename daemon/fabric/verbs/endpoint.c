/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/assert.h"
#include "common/checked.h"
#include "daemon/fabric/verbs/private.h"
#include "proto/errors.h"

/* A signal can be lost (connect.c): it is sent until the call has returned. */
#define HURRY_NS (UINT64_C(50) * 1000 * 1000)
#define PEER_NS (UINT64_C(2000) * 1000 * 1000)

/* ---- life and death of the struct */

static void ep_free(struct fabric_ep *ep)
{
	struct fabric *f = ep->fabric;

	f->engine.ops->disarm(f->engine.engine, &ep->hurry);
	xc_list_remove(&ep->all);
	xc_list_remove(&ep->ready);
	xc_list_remove(&ep->news);
	verbs_patience_done(&ep->patience);
	ep->pd->objects--;
	f->objects--;
	ep->magic = 0;
	free(ep);
	verbs_unref(f);
}

static void hurry(struct fabric_ep *ep)
{
	const struct xd_engine_ref *e = &ep->fabric->engine;

	if (ep->life.running != VERBS_STEP_CONNECT || ep->life.phase != VERBS_ENDED)
		return;
	verbs_patience_end(&ep->patience);
	e->ops->arm(e->engine, &ep->hurry, e->ops->now_ns(e->engine) + HURRY_NS);
}

static void hurry_fired(struct xd_timer *t)
{
	struct fabric_ep *ep = xc_container_of(t, struct fabric_ep, hurry);

	if (!verbs_life_waits(&ep->life)) {
		hurry(ep);
		return;
	}
	verbs_life_late(&ep->life);
	verbs_ep_advance(ep);
}

/* The peer says that it heard of our accept within a round trip, where it lives. */
static void wait_for_peer(struct fabric_ep *ep)
{
	const struct xd_engine_ref *e = &ep->fabric->engine;

	if (verbs_life_waits(&ep->life) && !ep->hurry.node.queued)
		e->ops->arm(e->engine, &ep->hurry, e->ops->now_ns(e->engine) + PEER_NS);
}

static struct fabric_ep *ep_new(struct fabric *f, const struct fabric_ep_attr *attr)
{
	struct fabric_ep *ep = calloc(1, sizeof(*ep));

	if (!ep)
		return NULL;
	*ep = (struct fabric_ep){
		.magic = VERBS_EP_MAGIC, .fabric = f, .pd = attr->pd, .ctx = attr->ctx,
		.target.kind = VERBS_TARGET_EP, .attr = *attr, .hurry.fired = hurry_fired,
		.initiator_depth = f->rd_atomic, .responder_resources = f->rd_atomic,
		/*
		 * An entry for each work request that can be posted, unsignalled ones, too, for
		 * they are flushed: what overruns is lost, and the CQ with it.
		 */
		.cq_size = attr->max_send_wr + attr->max_recv_wr,
	};
	if (!ep->cq_size)
		ep->cq_size = 1;
	verbs_patience_init(&ep->patience);
	xc_list_init(&ep->all);
	xc_list_init(&ep->ready);
	xc_list_init(&ep->news);
	attr->pd->objects++;
	f->objects++;
	verbs_ref(f);
	return ep;
}

/* ---- steps */

static void run_step(struct xd_job *job)
{
	struct fabric_ep *ep = xc_container_of(job, struct fabric_ep, job);

	ep->status = verbs_step(ep);
}

/* These can last as long as a silent peer, or a daemon that is asked for routes, likes. */
static enum xd_helper helper_of(const struct fabric_ep *ep, enum verbs_step step)
{
	switch (step) {
	case VERBS_STEP_ROUTE:
	case VERBS_STEP_CONNECT:
		return XD_HELP_CONNECT;
	case VERBS_STEP_DESTROY: /* see hang_up() in steps.c */
		return ep->fabric->iwarp && ep->id && !ep->life.linked ? XD_HELP_CONNECT
								       : XD_HELP_VERBS;
	default:
		return XD_HELP_VERBS;
	}
}

static void step_over(struct xd_job *job);

static void start_step(struct fabric_ep *ep, enum verbs_step step)
{
	const struct xd_engine_ref *e = &ep->fabric->engine;

	ep->step = step;
	ep->orderly = ep->life.orderly;
	ep->linked = ep->life.linked;
	ep->half = ep->life.half;
	ep->stopped = ep->life.stopped;
	ep->job = (struct xd_job){
		.helper = helper_of(ep, step), .owner = ep->pd->owner,
		.run = run_step, .done = step_over,
	};
	e->ops->help(e->engine, &ep->job);
}

static void created(struct fabric_ep *ep)
{
	struct fabric_done *done = ep->done;
	int status = ep->status;

	if (status < 0) {
		ep_free(ep);
	} else {
		xc_list_append(&ep->fabric->eps, &ep->all);
		if (ep->fabric->lost)
			verbs_life_fault(&ep->life, -XP_E_DEVICE);
		*ep->ret = ep;
		verbs_ep_advance(ep);
	}
	done->fn(done, status);
}

/* A connection that is not allowed, or finds no way, has the errno of connect(2) already. */
static int connect_status(const struct fabric_ep *ep)
{
	if (ep->status < 0 && ep->fabric->lost)
		return -XP_E_DEVICE;
	return ep->status == -ECANCELED ? -ECONNABORTED : ep->status;
}

static void step_over(struct xd_job *job)
{
	struct fabric_ep *ep = xc_container_of(job, struct fabric_ep, job);
	struct fabric_done *done = ep->done;

	if (ep->step == VERBS_STEP_CREATE) {
		created(ep);
		return;
	}
	verbs_life_done(&ep->life, connect_status(ep));
	if (ep->life.destroyed) {
		ep_free(ep);
		done->fn(done, 0);
		return;
	}
	/* Now all that was posted has flushed, or will: whether an event says so or not. */
	if (ep->step == VERBS_STEP_STOP)
		verbs_ep_ready(ep);
	verbs_ep_advance(ep);
}

void verbs_ep_advance(struct fabric_ep *ep)
{
	enum verbs_step step = verbs_life_next(&ep->life);

	if (step)
		start_step(ep, step);
	hurry(ep);
	wait_for_peer(ep);
	if (verbs_life_has_news(&ep->life) && xc_list_empty(&ep->news)) {
		xc_list_append(&ep->fabric->news, &ep->news);
		verbs_wake(ep->fabric);
	}
}

void verbs_ep_ready(struct fabric_ep *ep)
{
	if (xc_list_empty(&ep->ready))
		xc_list_append(&ep->fabric->ready, &ep->ready);
	verbs_wake(ep->fabric);
}

void verbs_ep_tell(struct fabric_ep *ep)
{
	const struct fabric_events *events = &ep->fabric->events;
	uint8_t data[FABRIC_PRIVATE_DATA_MAX];
	size_t bytes = ep->heard_bytes;
	void *ctx = ep->ctx;
	int status = 0;

	switch (verbs_life_news(&ep->life, &status)) {
	case VERBS_NEWS_ESTABLISHED:
		/* Completions may have come already, and waited for this. */
		verbs_ep_ready(ep);
		verbs_ep_advance(ep);
		memcpy(data, ep->heard, bytes);
		events->established(ctx, status, data, bytes);
		break;
	case VERBS_NEWS_DISCONNECTED:
		/* What arrived before the end is in the CQ, and poll() finds it. */
		verbs_ep_ready(ep);
		events->disconnected(ctx, status);
		break;
	case VERBS_NEWS_NONE:
		break;
	}
}

/* ---- the user's calls */

int verbs_ep_create(struct fabric *f, const struct fabric_ep_attr *attr, struct fabric_done *done,
		    struct fabric_ep **ret)
{
	const struct fabric_caps *caps = &f->caps;
	struct fabric_ep *ep;

	XC_CHECK(f, VERBS_FABRIC_MAGIC);
	XC_CHECK(attr->pd, VERBS_PD_MAGIC);
	if (f->lost)
		return -XP_E_DEVICE;
	if (attr->max_send_wr > caps->max_send_wr || attr->max_recv_wr > caps->max_recv_wr ||
	    attr->max_send_sge > caps->max_sge || attr->max_recv_sge > caps->max_recv_sge)
		return -EINVAL;
	ep = ep_new(f, attr);
	if (!ep)
		return -ENOMEM;
	ep->done = done;
	ep->ret = ret;
	start_step(ep, VERBS_STEP_CREATE);
	return -EINPROGRESS;
}

static void set_sent(struct fabric_ep *ep, const void *private_data, size_t bytes)
{
	if (bytes)
		memcpy(ep->sent, private_data, bytes);
	ep->sent_bytes = (uint8_t)bytes;
}

int verbs_ep_connect(struct fabric_ep *ep, const struct xc_addr *dst, const void *private_data,
		     size_t bytes)
{
	struct xc_addr plain = fabric_plain_address(dst);
	int err;

	XC_CHECK(ep, VERBS_EP_MAGIC);
	if (ep->fabric->lost)
		return -XP_E_DEVICE;
	if (bytes > VERBS_CONNECT_BYTES || plain.port == 0 || xc_addr_is_any(&plain) ||
	    (plain.family != 4 && plain.family != 6))
		return -EINVAL;
	/* rdma_cm would take it for a connection of any device to itself. */
	if (xc_addr_is_loopback(&plain))
		return -ENETUNREACH;
	err = verbs_life_connect(&ep->life, false);
	if (err)
		return err;
	ep->dst = plain;
	set_sent(ep, private_data, bytes);
	verbs_ep_advance(ep);
	return 0;
}

int verbs_ep_accept(struct fabric_ep *ep, struct fabric_conn *c, const void *private_data,
		    size_t bytes)
{
	int err;

	XC_CHECK(ep, VERBS_EP_MAGIC);
	XC_CHECK(c, VERBS_CONN_MAGIC);
	xc_assert(!c->answered && c->fabric == ep->fabric);
	if (ep->fabric->lost)
		return -XP_E_DEVICE;
	if (bytes > VERBS_ACCEPT_BYTES)
		return -EINVAL;
	err = verbs_life_connect(&ep->life, true);
	if (err)
		return err;
	ep->id = c->id;
	ep->id->context = &ep->target;
	ep->initiator_depth = c->initiator_depth;
	ep->responder_resources = c->responder_resources;
	set_sent(ep, private_data, bytes);
	verbs_conn_consume(c);
	verbs_ep_advance(ep);
	return 0;
}

void verbs_ep_disconnect(struct fabric_ep *ep)
{
	XC_CHECK(ep, VERBS_EP_MAGIC);
	verbs_life_disconnect(&ep->life);
	verbs_ep_advance(ep);
}

void verbs_ep_error(struct fabric_ep *ep)
{
	XC_CHECK(ep, VERBS_EP_MAGIC);
	verbs_life_error(&ep->life);
	verbs_ep_advance(ep);
}

int verbs_ep_destroy(struct fabric_ep *ep, struct fabric_done *done)
{
	XC_CHECK(ep, VERBS_EP_MAGIC);
	xc_assert(!ep->life.destroy);
	ep->done = done;
	verbs_life_destroy(&ep->life);
	xc_list_remove(&ep->ready);
	xc_list_remove(&ep->news);
	verbs_ep_advance(ep);
	return -EINPROGRESS;
}
