/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "daemon/core/endpoint.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/assert.h"
#include "daemon/core/grant.h"
#include "daemon/core/link.h"
#include "daemon/core/sabotage.h"
#include "daemon/core/stage.h"
#include "daemon/core/wait.h"

/* ------------------------------------------------------------------ telling */

static void tell(struct xd_endpoint *ep, unsigned int event)
{
	if (ep->freeing)
		return;
	ep->events |= event;
	xd_session_tell(ep->session, &ep->out);
}

static void pull_ready(const struct xd_endpoint *ep, struct xd_out *ret)
{
	ret->status = ep->ready_status;
	ret->caps = &ep->session->core->told[ep->fabric];
	ret->address = ep->peer;
	memcpy(ret->route, ep->route, sizeof(ret->route));
}

bool xd_endpoint_pull(struct xd_endpoint *ep, struct xd_out *ret)
{
	ret->number = ep->number;
	if (ep->events & XD_EV_READY) {
		ep->events &= ~XD_EV_READY;
		pull_ready(ep, ret);
	} else if (ep->events & XD_EV_CONNECTED) {
		ep->events &= ~XD_EV_CONNECTED;
		ret->status = ep->connected_status;
		ret->private_data_bytes = ep->private_data_bytes;
		memcpy(ret->private_data, ep->private_data, ep->private_data_bytes);
	} else {
		ep->events &= ~XD_EV_DISCONNECTED;
		ret->status = ep->end_status;
	}
	if (ret->status < 0)
		snprintf(ret->text, sizeof(ret->text), "%s",
			 ep->why[0] ? ep->why : xd_strstatus(ret->status));
	return ep->events == 0;
}

/* ------------------------------------------------------------------ going */

static void endpoint_free(struct xd_endpoint *ep)
{
	struct xd_session *s = ep->session;

	xc_list_remove(&ep->out.link);
	xc_list_remove(&ep->staging_link);
	xc_list_remove(&ep->key_link);
	xd_disarm(s->core, &ep->timer);
	xd_disarm(s->core, &ep->retry);
	xc_slots_remove(&s->endpoints, ep->number);
	xd_uncharge(&s->payer, XD_LIMIT_endpoints, 1);
	xd_core_count(s->core, XD_COUNTER_endpoints, -1);
	s->live_endpoints--;
	if (ep->free_call)
		xd_call_reply(ep->free_call, 0, NULL);
	free(ep->sq);
	free(ep->rq);
	s->payer.user->queue_bytes -= ep->queue_bytes;
	ep->magic = 0;
	free(ep);
	xd_session_settle(s);
}

/* Its own protection domain, if it has one, is gone. */
static bool pd_gone(struct xd_endpoint *ep)
{
	if (!ep->own_pd || !ep->pd)
		return true;
	if (ep->pd->n_objects)
		return false;
	xd_pd_free(ep->pd);
	ep->pd = NULL;
	return true;
}

void xd_endpoint_settle(struct xd_endpoint *ep)
{
	if (ep->held)
		return;
	if (ep->state == XD_EP_ENDING && ep->flushed && !ep->busy && ep->n_grants == 0 &&
	    (ep->n_temporaries == 0 || XD_SABOTAGE("end-before-its-keys")) &&
	    xc_list_empty(&ep->ending_link) && pd_gone(ep)) {
		ep->state = XD_EP_ENDED;
		if (ep->was_connected && !XD_SABOTAGE("end-unsaid"))
			tell(ep, XD_EV_DISCONNECTED);
	}
	/* Its user may have the memory of its slabs again when it hears that it is gone. */
	if (ep->state == XD_EP_ENDED && ep->freeing && ep->n_slabs == 0)
		endpoint_free(ep);
}

/*
 * The QP is gone, and with it every access through it. What had completed before has its data put
 * in place, a turn's budget at a time; then what is left ends, from our own table, and what was
 * made for the connection goes (I3).
 */
static void wind_up(struct xd_endpoint *ep)
{
	struct xd_grant *g;

	if (ep->flushed || !xd_endpoint_retired(ep))
		return;
	ep->flushed = true;
	xd_links_drop(&ep->links);
	xd_endpoint_flush(ep, -XP_E_FLUSHED);
	xc_list_for_each(g, &ep->grants, link)
		if (!XD_SABOTAGE("leave-the-grants"))
			xd_grant_kill(g);
	xd_stage_free(ep);
	xd_copied_free(ep);
	if (ep->own_pd && ep->pd)
		xd_pd_clear(ep->pd);
}

void xd_endpoint_advance(struct xd_endpoint *ep)
{
	ep->held = true;
	xd_endpoint_retire(ep);
	xd_copied_advance(ep);
	if (ep->gone)
		wind_up(ep);
	else
		xd_endpoint_pump(ep);
	ep->held = false;
	xd_endpoint_settle(ep);
}

static void qp_gone(struct xd_endpoint *ep)
{
	ep->fep = NULL;
	ep->gone = true;
	if (ep->qp_num)
		xc_slots_remove(&ep->session->core->qps, ep->qp_num);
	ep->qp_num = 0;
	if (ep->window_due)
		ep->window_due->wanted_by = NULL;
	ep->window_due = NULL;
	xd_endpoint_advance(ep);
}

static void destroyed(struct fabric_done *done, int status)
{
	struct xd_endpoint *ep = xc_container_of(done, struct xd_endpoint, done);

	xc_assert(status == 0);
	ep->busy = false;
	qp_gone(ep);
}

void xd_endpoint_take_down(struct xd_endpoint *ep)
{
	int r = 0;

	if (ep->busy)
		return; /* its job's end comes back here */
	if (ep->fep) {
		ep->done.fn = destroyed;
		ep->busy = true;
		r = xd_ep_fabric(ep)->ops->ep_destroy(ep->fep, &ep->done);
		if (r == -EINPROGRESS)
			return;
		ep->busy = false;
	}
	xc_assert(r == 0);
	qp_gone(ep);
}

static void take_down_soon(struct xd_endpoint *ep)
{
	const struct xd_engine_ref *e = &ep->session->core->engine;

	if (xc_list_empty(&ep->ending_link))
		xc_list_append(&ep->session->core->ending, &ep->ending_link);
	e->ops->kick(e->engine);
}

void xd_endpoint_end(struct xd_endpoint *ep, int status, const char *why)
{
	enum xd_endpoint_state was = ep->state;

	if (was >= XD_EP_ENDING)
		return;
	ep->state = XD_EP_ENDING;
	ep->end_status = status;
	snprintf(ep->why, sizeof(ep->why), "%s", why ? why : "");
	xc_list_remove(&ep->key_link);
	xd_disarm(ep->session->core, &ep->timer);
	xd_disarm(ep->session->core, &ep->retry);
	xd_wait_not(ep);
	if (ep->fep && !XD_SABOTAGE("destroy-unstopped"))
		xd_ep_fabric(ep)->ops->ep_error(ep->fep);
	if (ep->request) {
		struct xd_request *r = ep->request;

		if (r->conn)
			xd_ep_fabric(ep)->ops->conn_reject(r->conn, NULL, 0);
		r->conn = NULL;
		xd_request_free(r);
	}
	if (was <= XD_EP_CREATING) {
		ep->ready_status = status < 0 ? status : -XP_E_FLUSHED;
		tell(ep, XD_EV_READY);
	} else if (was <= XD_EP_CONNECTING) {
		ep->connected_status = status < 0 ? status : -XP_E_FLUSHED;
		tell(ep, XD_EV_CONNECTED);
	}
	take_down_soon(ep);
}

void xd_endpoint_free_soon(struct xd_endpoint *ep, struct xd_call *call)
{
	if (ep->freeing) {
		if (call)
			xd_call_reply(call, -ENOENT, "endpoint %" PRIu32 " is being freed",
				      ep->number);
		return;
	}
	ep->freeing = true;
	ep->free_call = call;
	xd_endpoint_end(ep, 0, NULL);
	xd_endpoint_settle(ep);
}

/* ------------------------------------------------------------------ coming */

static void created(struct fabric_done *done, int status)
{
	struct xd_endpoint *ep = xc_container_of(done, struct xd_endpoint, done);

	ep->busy = false;
	if (status < 0) {
		ep->fep = NULL;
		xd_endpoint_end(ep, status, "the fabric could not make a queue pair");
		take_down_soon(ep);
		return;
	}
	if (ep->state == XD_EP_ENDING) {
		xd_ep_fabric(ep)->ops->ep_error(ep->fep);
		take_down_soon(ep);
		return;
	}
	ep->state = XD_EP_READY;
	tell(ep, XD_EV_READY);
}

/* A work request's place on a queue: its segments, and as much again for the rest. */
static uint64_t queue_bytes(uint32_t depth, uint32_t max_sge)
{
	return (uint64_t)depth * (max_sge * sizeof(struct ibv_sge) + 256);
}

/* Depths are the client's choice, and the memory is the daemon's: a bound on bytes, too. */
static int reserve_queues(struct xd_endpoint *ep)
{
	const struct fabric_caps *caps = xd_ep_caps(ep);
	struct xd_account *user = ep->session->payer.user;
	uint64_t bytes = queue_bytes(ep->sq_depth, caps->max_sge) +
			 queue_bytes(ep->rq_depth, caps->max_recv_sge);

	if (user->queue_bytes + bytes > XD_QUEUE_BYTES_MAX)
		return -XP_E_QUOTA;
	user->queue_bytes += bytes;
	ep->queue_bytes = bytes;
	return 0;
}

static int allocate_queues(struct xd_endpoint *ep)
{
	const struct fabric_caps *caps = xd_ep_caps(ep);
	int r;

	ep->sq_depth = xc_min_u32(ep->sq_depth, caps->max_send_wr);
	ep->rq_depth = xc_min_u32(ep->rq_depth, caps->max_recv_wr);
	r = reserve_queues(ep);
	if (r < 0)
		return r;
	ep->sq = calloc(ep->sq_depth, sizeof(*ep->sq));
	ep->rq = calloc(ep->rq_depth, sizeof(*ep->rq));
	return ep->sq && ep->rq ? xc_slots_add(&ep->session->core->qps, ep, &ep->qp_num) : -ENOMEM;
}

static const char queues_full[] =
	"the queues of this user's endpoints would take more than 256 MiB: fewer endpoints, or smaller "
	"depths";

static void make_qp(struct xd_endpoint *ep)
{
	const struct fabric_ref *f = xd_ep_fabric(ep);
	struct fabric_ep_attr attr = { .ctx = ep, .pd = ep->pd->pd };
	int r;

	attr.qp_num = ep->qp_num;
	attr.max_send_wr = ep->sq_depth;
	attr.max_recv_wr = ep->rq_depth;
	attr.max_send_sge = xd_ep_caps(ep)->max_sge;
	attr.max_recv_sge = xd_ep_caps(ep)->max_recv_sge;
	ep->done.fn = created;
	ep->busy = true;
	r = f->ops->ep_create(f->fabric, &attr, &ep->done, &ep->fep);
	if (r != -EINPROGRESS)
		created(&ep->done, r);
}

void xd_endpoint_staged(struct xd_endpoint *ep, int status)
{
	ep->busy = false;
	if (ep->state == XD_EP_ENDING)
		take_down_soon(ep);
	else if (status < 0)
		xd_endpoint_end(
			ep, status,
			status == -XP_E_QUOTA
				? "its RECVs' slab would exceed this user's limit of pinned memory"
				: "there is no memory for the slab of its RECVs");
	else
		make_qp(ep);
}

/* What a RECV may need is reserved with the endpoint; 0: it needs nothing but its buffer. */
static uint64_t recv_stage_bytes(const struct xd_endpoint *ep)
{
	const struct fabric_caps *caps = xd_ep_caps(ep);

	if (ep->recv_stage_bytes || (!caps->pins && !xd_must_stage(caps)))
		return ep->recv_stage_bytes;
	return xc_min_u64(ep->rq_depth * XD_STAGE_RECV_BYTES, XD_STAGE_RECV_BYTES_MAX);
}

static void create(struct xd_endpoint *ep)
{
	int r = allocate_queues(ep);

	ep->state = XD_EP_CREATING;
	ep->own_pd = xd_own_pd(xd_ep_caps(ep)) && !XD_SABOTAGE("share-a-domain");
	if (r == 0)
		r = xd_pd_get(ep->session, ep->fabric, ep->own_pd ? ep : NULL, &ep->pd);
	if (r < 0) {
		xd_endpoint_end(ep, r, r == -XP_E_QUOTA ? queues_full : NULL);
		return;
	}
	if (recv_stage_bytes(ep)) {
		ep->busy = true;
		xd_stage_reserve(ep, recv_stage_bytes(ep));
	} else {
		make_qp(ep);
	}
}

/* require: "" any fabric, "tcp" ours, "verbs" a device, else a device's name. */
static bool meets(const struct fabric_caps *caps, const char *require)
{
	if (!require[0])
		return true;
	if (strcmp(require, "tcp") == 0)
		return caps->kind == FABRIC_IWARP_SOFT;
	if (strcmp(require, "verbs") == 0)
		return caps->kind != FABRIC_IWARP_SOFT;
	return strcmp(require, caps->name) == 0;
}

uint32_t xd_fabric_at(const struct xd_core *core, uint32_t place)
{
	uint32_t seen = 0;

	for (int soft = 0; soft < 2; soft++)
		for (uint32_t i = 0; i < core->n_fabrics; i++)
			if ((core->caps[i].kind == FABRIC_IWARP_SOFT) == soft && seen++ == place)
				return i;
	return 0;
}

/*
 * The device that owns the route's local address carries the connection; where none does, or
 * another is asked for, the fabric that needs no device. 0, or why none does.
 */
static int route(struct xd_endpoint *ep, const struct xc_addr *to, char *why)
{
	struct xd_core *core = ep->session->core;
	int r = -ENETUNREACH;

	snprintf(why, XD_TEXT_MAX, "this daemon has no fabric that meets require=%s", ep->require);
	for (uint32_t place = 0; place < core->n_fabrics; place++) {
		uint32_t i = xd_fabric_at(core, place);

		if (!meets(&core->caps[i], ep->require))
			continue;
		r = core->fabrics[i].ops->route(core->fabrics[i].fabric, to, why, XD_TEXT_MAX);
		if (r == 0) {
			ep->fabric = i;
			ep->peer = *to;
			memcpy(ep->route, why, XD_TEXT_MAX);
			return 0;
		}
	}
	return r;
}

static void choose_fabric(struct xd_endpoint *ep)
{
	const struct xd_session *s = ep->session;
	char why[XD_TEXT_MAX] =
		"the daemon's configuration does not allow this user to connect there";
	int r = -XP_E_DENIED;

	for (int i = 0; i < ep->resolve.n; i++) {
		if (!xd_policy_may_connect(s->core->quota.policy, s->uid, s->gids, s->n_gids,
					   &ep->resolve.addr[i]))
			continue;
		r = route(ep, &ep->resolve.addr[i], why);
		if (r == 0) {
			create(ep);
			return;
		}
	}
	xd_endpoint_end(ep, r, why);
}

static void resolved(struct xd_resolve *resolve)
{
	struct xd_endpoint *ep = xc_container_of(resolve, struct xd_endpoint, resolve);
	char why[XD_TEXT_MAX];

	ep->busy = false;
	if (ep->state == XD_EP_ENDING) {
		take_down_soon(ep);
	} else if (resolve->n <= 0) {
		snprintf(why, sizeof(why), "host %.200s has no address", resolve->host);
		xd_endpoint_end(ep, resolve->n < 0 ? resolve->n : -ENOENT, why);
	} else {
		choose_fabric(ep);
	}
}

static int check_options(const struct xd_endpoint_options *o, char *why)
{
	if (o->send_depth > XD_DEPTH_MAX || o->recv_depth > XD_DEPTH_MAX) {
		snprintf(why, XD_TEXT_MAX, "depths are at most %u, not %" PRIu32 " and %" PRIu32,
			 XD_DEPTH_MAX, o->send_depth, o->recv_depth);
		return -EINVAL;
	}
	if (o->recv_stage_bytes > XD_STAGE_RECV_ASKED_MAX) {
		snprintf(why, XD_TEXT_MAX, "recv_stage_bytes is at most %" PRIu64 ", not %" PRIu64,
			 XD_STAGE_RECV_ASKED_MAX, o->recv_stage_bytes);
		return -EINVAL;
	}
	if (o->require && strnlen(o->require, FABRIC_NAME_MAX) == FABRIC_NAME_MAX) {
		snprintf(why, XD_TEXT_MAX, "a device's name has at most %u characters",
			 FABRIC_NAME_MAX - 1);
		return -EINVAL;
	}
	return 0;
}

static void endpoint_init(struct xd_endpoint *ep, struct xd_session *s,
			  const struct xd_endpoint_options *o)
{
	ep->magic = XD_ENDPOINT_MAGIC;
	ep->session = s;
	ep->out.note = XD_NOTE_ENDPOINT;
	xc_list_init(&ep->out.link);
	xc_list_init(&ep->waiting);
	xc_list_init(&ep->grants);
	xc_list_init(&ep->links);
	xc_list_init(&ep->ending_link);
	xc_list_init(&ep->staging_link);
	xc_list_init(&ep->key_link);
	xd_turn_init(&ep->turn, NULL);
	xc_list_init(&ep->copies);
	xc_list_init(&ep->idle_slabs[0]);
	xc_list_init(&ep->idle_slabs[1]);
	ep->recv_stage_bytes = o->recv_stage_bytes;
	ep->retry.fired = xd_endpoint_retry;
	ep->sq_depth = o->send_depth ? o->send_depth : XD_DEPTH_DEFAULT;
	ep->rq_depth = o->recv_depth ? o->recv_depth : XD_DEPTH_DEFAULT;
	snprintf(ep->require, sizeof(ep->require), "%s", o->require ? o->require : "");
	s->live_endpoints++;
	xd_core_count(s->core, XD_COUNTER_endpoints, 1);
}

static void timer_fired(struct xd_timer *t)
{
	struct xd_endpoint *ep = xc_container_of(t, struct xd_endpoint, timer);

	if (ep->state == XD_EP_CONNECTING)
		xd_endpoint_end(ep, -ETIMEDOUT, "the peer did not answer in time");
	else
		xd_endpoint_progress_check(ep);
}

/* A charged endpoint with its number, answered; NULL where the call was answered with an error. */
static struct xd_endpoint *endpoint_new(struct xd_session *s, struct xd_call *call,
					const struct xd_endpoint_options *o)
{
	struct xd_endpoint *ep;
	char why[XD_TEXT_MAX];
	int r = check_options(o, why);

	if (r == 0 && s->core->draining) {
		snprintf(why, sizeof(why), "the daemon is stopping");
		r = -XP_E_SHUTDOWN;
	}
	if (r == 0)
		r = xd_charge(&s->payer, XD_LIMIT_endpoints, 1, why, sizeof(why));
	if (r < 0) {
		xd_call_reply(call, r, "%s", why);
		return NULL;
	}
	ep = calloc(1, sizeof(*ep));
	if (!ep || xc_slots_add(&s->endpoints, ep, &ep->number) < 0) {
		free(ep);
		xd_uncharge(&s->payer, XD_LIMIT_endpoints, 1);
		xd_call_reply(call, -ENOMEM, NULL);
		return NULL;
	}
	endpoint_init(ep, s, o);
	ep->timer.fired = timer_fired;
	call->number = ep->number;
	xd_call_reply(call, 0, NULL);
	return ep;
}

void xd_session_endpoint_connect_to(struct xd_session *s, uint64_t serial, const char *host,
				    uint32_t port, const struct xd_endpoint_options *options)
{
	struct xd_call *call = xd_call_new(s, serial);
	struct xd_endpoint *ep;
	int r;

	if (!call)
		return;
	if (port == 0 || port > UINT16_MAX) {
		xd_call_reply(call, -EINVAL, "a peer's port is 1 to %u, not %" PRIu32, UINT16_MAX,
			      port);
		return;
	}
	ep = endpoint_new(s, call, options);
	if (!ep)
		return;
	r = xd_resolve_start(s, &ep->resolve, host, (uint16_t)port, resolved);
	ep->busy = r == -EINPROGRESS;
	if (r == 0)
		choose_fabric(ep);
	else if (!ep->busy)
		xd_endpoint_end(ep, r, "a host has 1 to 255 characters");
}

void xd_session_endpoint_answer(struct xd_session *s, uint64_t serial, uint64_t request,
				const struct xd_endpoint_options *options)
{
	struct xd_call *call = xd_call_new(s, serial);
	struct xd_request *r = xd_request_get(s, request);
	struct xd_endpoint *ep;

	if (!call)
		return;
	if (!r) {
		xd_call_reply(call, -ENOENT,
			      "there is no connection request %" PRIu64
			      " to answer: the peer gave up, or it was answered",
			      request);
		return;
	}
	ep = endpoint_new(s, call, options);
	if (!ep)
		return;
	ep->request = r;
	r->endpoint = ep;
	ep->fabric = r->fabric;
	ep->peer = r->peer;
	snprintf(ep->route, sizeof(ep->route), "the peer connected through it");
	create(ep);
}

/* ------------------------------------------------------------------ connecting */

static struct xd_endpoint *find(struct xd_session *s, struct xd_call *call, uint32_t number)
{
	struct xd_endpoint *ep = xc_slots_get(&s->endpoints, number);

	if (ep && !ep->freeing)
		return ep;
	xd_call_reply(call, -ENOENT, "there is no endpoint %" PRIu32, number);
	return NULL;
}

static const char *state_name(const struct xd_endpoint *ep)
{
	static const char *const names[] = { "resolving",   "being made", "ready",
					     "connecting",  "connected",  "disconnecting",
					     "disconnected" };

	return names[ep->state];
}

static void start(struct xd_endpoint *ep, struct xd_call *call, const void *private_data,
		  size_t bytes, bool accept)
{
	const struct fabric_ref *f = xd_ep_fabric(ep);
	uint16_t limit = accept ? xd_ep_caps(ep)->private_accept_bytes
				: xd_ep_caps(ep)->private_connect_bytes;
	const struct xd_core *core = ep->session->core;
	struct xd_request *request = ep->request;
	int r;

	if (ep->state != XD_EP_READY || accept != !!request) {
		xd_call_reply(call, -EINVAL, "endpoint %" PRIu32 " cannot %s: it is %s%s",
			      ep->number, accept ? "accept" : "connect", state_name(ep),
			      ep->state != XD_EP_READY ? ""
			      : accept		       ? ", and answers no request"
						       : ", and answers a request");
		return;
	}
	if (bytes > limit) {
		xd_call_reply(call, -EINVAL, "private data is at most %u bytes here, not %zu",
			      limit, bytes);
		return;
	}
	r = accept ? f->ops->ep_accept(ep->fep, request->conn, private_data, bytes)
		   : f->ops->ep_connect(ep->fep, &ep->peer, private_data, bytes);
	if (r < 0) {
		xd_call_reply(call, r, NULL);
		return;
	}
	if (accept) {
		request->conn = NULL;
		xd_request_free(request);
	}
	ep->state = XD_EP_CONNECTING;
	xd_arm(core, &ep->timer, xd_now(core) + core->quota.policy->connect_ms * XD_NS_PER_MS);
	xd_call_reply(call, 0, NULL);
}

void xd_session_connect(struct xd_session *s, uint64_t serial, uint32_t endpoint,
			const void *private_data, size_t bytes)
{
	struct xd_call *call = xd_call_new(s, serial);
	struct xd_endpoint *ep = call ? find(s, call, endpoint) : NULL;

	if (ep)
		start(ep, call, private_data, bytes, false);
}

void xd_session_accept(struct xd_session *s, uint64_t serial, uint32_t endpoint,
		       const void *private_data, size_t bytes)
{
	struct xd_call *call = xd_call_new(s, serial);
	struct xd_endpoint *ep = call ? find(s, call, endpoint) : NULL;

	if (ep)
		start(ep, call, private_data, bytes, true);
}

/* In order, where there is a connection: the peer hears of it before the QP goes. */
static void hang_up(struct xd_endpoint *ep)
{
	if (ep->fep && ep->state == XD_EP_CONNECTED)
		xd_ep_fabric(ep)->ops->ep_disconnect(ep->fep);
}

void xd_session_disconnect(struct xd_session *s, uint64_t serial, uint32_t endpoint)
{
	struct xd_call *call = xd_call_new(s, serial);
	struct xd_endpoint *ep = call ? find(s, call, endpoint) : NULL;

	if (!ep)
		return;
	hang_up(ep);
	xd_endpoint_end(ep, 0, NULL);
	xd_call_reply(call, 0, NULL);
}

void xd_session_endpoint_free(struct xd_session *s, uint64_t serial, uint32_t endpoint)
{
	struct xd_call *call = xd_call_new(s, serial);
	struct xd_endpoint *ep = call ? find(s, call, endpoint) : NULL;

	if (!ep)
		return;
	hang_up(ep);
	xd_endpoint_free_soon(ep, call);
}

void xd_on_established(void *ep_ctx, int status, const void *private_data, size_t bytes)
{
	struct xd_endpoint *ep = ep_ctx;

	XC_CHECK(ep, XD_ENDPOINT_MAGIC);
	if (ep->state != XD_EP_CONNECTING)
		return; /* it was given up meanwhile */
	ep->private_data_bytes = (uint16_t)xc_min_u64(bytes, FABRIC_PRIVATE_DATA_MAX);
	if (ep->private_data_bytes)
		memcpy(ep->private_data, private_data, ep->private_data_bytes);
	if (status < 0) {
		xd_endpoint_end(ep, status, NULL);
		return;
	}
	ep->state = XD_EP_CONNECTED;
	ep->was_connected = true;
	xd_disarm(ep->session->core, &ep->timer);
	xd_core_count(ep->session->core, XD_COUNTER_connects, 1);
	tell(ep, XD_EV_CONNECTED);
}

void xd_on_disconnected(void *ep_ctx, int status)
{
	struct xd_endpoint *ep = ep_ctx;

	XC_CHECK(ep, XD_ENDPOINT_MAGIC);
	xd_endpoint_end(ep, status, NULL);
}
