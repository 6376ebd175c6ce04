/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/assert.h"
#include "daemon/core/endpoint.h"

/* Where peers connect to, and their requests until they are answered. */

#define BACKLOG_DEFAULT 128
#define BACKLOG_MAX 1024
/* Ports chosen anew because another fabric had the first in use. */
#define PORT_TRIES 16

/* ------------------------------------------------------------------ listeners */

static void listener_free(struct xd_listener *l)
{
	struct xd_session *s = l->session;

	xc_slots_remove(&s->listeners, l->number);
	xd_uncharge(&s->payer, XD_LIMIT_listeners, 1);
	xd_core_count(s->core, XD_COUNTER_listeners, -1);
	s->live_listeners--;
	free(l);
	xd_session_settle(s);
}

static void reject(struct xd_request *r, const void *private_data, size_t bytes)
{
	const struct fabric_ops *ops = r->session->core->fabrics[r->fabric].ops;

	if (r->conn)
		ops->conn_reject(r->conn, private_data, bytes);
	r->conn = NULL;
	xd_core_count(r->session->core, XD_COUNTER_connects_rejected, 1);
	xd_request_free(r);
}

static void close_ears(struct xd_listener *l)
{
	for (uint32_t i = 0; i < l->n_ears; i++) {
		const struct xd_ear *ear = &l->ears[i];

		l->session->core->fabrics[ear->fabric].ops->listener_free(ear->fl);
	}
	l->n_ears = 0;
}

static void listener_down(struct xd_listener *l)
{
	struct xd_request *r;

	xc_list_for_each(r, &l->requests, link) {
		if (r->endpoint) {
			/* It has an endpoint: the answer is still to come, and needs no listener.
			 */
			xc_list_remove(&r->link);
			r->listener = NULL;
		} else {
			reject(r, NULL, 0);
		}
	}
	close_ears(l);
	listener_free(l);
}

/* Its session ends. */
void xd_listener_end(struct xd_listener *l)
{
	if (l->call)
		l->ended = true; /* being made: goes when that is done */
	else
		listener_down(l);
}

static void listen_failed(struct xd_listener *l, int status, const char *why)
{
	char at[XC_ADDR_TEXT_MAX] = "", text[XD_TEXT_MAX];

	if (l->at.family)
		xc_addr_format(&l->at, at);
	snprintf(text, sizeof(text), "cannot listen at %.80s: %s", at[0] ? at : l->resolve.host,
		 why ? why : xd_strstatus(status));
	xd_call_reply(l->call, status, "%s", text);
	l->call = NULL;
	listener_free(l);
}

static void listening(struct xd_listener *l)
{
	l->call->number = l->number;
	l->call->address = l->at;
	xd_call_reply(l->call, 0, NULL);
	l->call = NULL;
	if (l->ended)
		listener_down(l);
}

static void try_address(struct xd_listener *l);

/* The address has been tried on every fabric. */
static void address_tried(struct xd_listener *l)
{
	/* A port that one fabric chose may be another's: then they choose again. */
	bool again = l->status == -EADDRINUSE && l->n_ears && l->resolve.port == 0 &&
		     ++l->tries < PORT_TRIES;

	if (!l->status && l->n_ears) {
		listening(l);
		return;
	}
	close_ears(l);
	if (!again)
		l->address++;
	try_address(l);
}

/* Is this address, and so this port of TCP, a device's that speaks iWARP itself? */
static bool taken_by_device(const struct xd_listener *l)
{
	const struct xd_core *core = l->session->core;

	for (uint32_t i = 0; i < l->n_ears; i++)
		if (core->caps[l->ears[i].fabric].kind == FABRIC_IWARP && !xc_addr_is_any(&l->at))
			return true;
	return false;
}

static void heard(struct fabric_done *done, int status);

/* One fabric. -EINPROGRESS: heard() goes on. */
static int try_fabric(struct xd_listener *l, uint32_t fabric)
{
	struct xd_session *s = l->session;
	struct xd_ear *ear = &l->ears[l->n_ears];
	const struct fabric_ref *f = &s->core->fabrics[fabric];

	if (s->core->caps[fabric].kind == FABRIC_IWARP_SOFT && taken_by_device(l))
		return -EADDRNOTAVAIL;
	*ear = (struct xd_ear){ .listener = l, .fabric = fabric, .done.fn = heard };
	return f->ops->listen(f->fabric, &l->at, s->uid, ear, &ear->done, &ear->fl, &l->at);
}

/* False: no more fabrics need be tried at this address. */
static bool tried(struct xd_listener *l, int status)
{
	l->place++;
	if (status == 0)
		l->n_ears++;
	else if (status != -EADDRNOTAVAIL || (!l->status && !l->n_ears))
		l->status = status;
	/* A fabric that has not got the address is passed over; any other refusal is one of all. */
	if (l->n_ears && l->status == -EADDRNOTAVAIL)
		l->status = 0;
	return status == 0 || status == -EADDRNOTAVAIL;
}

static void try_fabrics(struct xd_listener *l)
{
	int r;

	while (l->place < l->session->core->n_fabrics) {
		r = try_fabric(l, xd_fabric_at(l->session->core, l->place));
		if (r == -EINPROGRESS)
			return;
		if (!tried(l, r))
			break;
	}
	address_tried(l);
}

static void heard(struct fabric_done *done, int status)
{
	struct xd_listener *l = xc_container_of(done, struct xd_ear, done)->listener;

	if (tried(l, status))
		try_fabrics(l);
	else
		address_tried(l);
}

/* The first address that the configuration allows and that can be listened at. */
static void try_address(struct xd_listener *l)
{
	struct xd_session *s = l->session;

	for (; l->address < l->resolve.n; l->address++) {
		l->at = l->resolve.addr[l->address];
		if (!xd_policy_may_listen(s->core->quota.policy, s->uid, s->gids, s->n_gids,
					  &l->at))
			continue;
		l->place = 0;
		l->status = 0;
		try_fabrics(l);
		return;
	}
	listen_failed(l, l->status ? l->status : -XP_E_DENIED,
		      l->status ? NULL
				: "the daemon's configuration does not allow this user to listen "
				  "there");
}

static void listen_resolved(struct xd_resolve *resolve)
{
	struct xd_listener *l = xc_container_of(resolve, struct xd_listener, resolve);

	if (resolve->n <= 0)
		listen_failed(l, resolve->n < 0 ? resolve->n : -ENOENT, "its name has no address");
	else if (l->ended)
		listen_failed(l, -XP_E_FLUSHED, NULL);
	else
		try_address(l);
}

static struct xd_listener *listener_new(struct xd_session *s, struct xd_call *call,
					uint32_t backlog)
{
	struct xd_listener *l;
	char why[XD_TEXT_MAX];
	int r = xd_charge(&s->payer, XD_LIMIT_listeners, 1, why, sizeof(why));

	if (r < 0) {
		xd_call_reply(call, r, "%s", why);
		return NULL;
	}
	l = calloc(1, sizeof(*l));
	if (!l || xc_slots_add(&s->listeners, l, &l->number) < 0) {
		free(l);
		xd_uncharge(&s->payer, XD_LIMIT_listeners, 1);
		xd_call_reply(call, -ENOMEM, NULL);
		return NULL;
	}
	l->session = s;
	l->call = call;
	l->backlog = backlog ? backlog : BACKLOG_DEFAULT;
	xc_list_init(&l->requests);
	s->live_listeners++;
	xd_core_count(s->core, XD_COUNTER_listeners, 1);
	return l;
}

void xd_session_listen(struct xd_session *s, uint64_t serial, const char *host, uint32_t port,
		       uint32_t backlog)
{
	struct xd_call *call = xd_call_new(s, serial);
	struct xd_listener *l;
	int r;

	if (!call)
		return;
	if (port > UINT16_MAX || backlog > BACKLOG_MAX) {
		xd_call_reply(call, -EINVAL,
			      "a port is at most %u and a backlog at most %u, not %" PRIu32
			      " and %" PRIu32,
			      UINT16_MAX, BACKLOG_MAX, port, backlog);
		return;
	}
	if (s->core->draining) {
		xd_call_reply(call, -XP_E_SHUTDOWN, NULL);
		return;
	}
	l = listener_new(s, call, backlog);
	if (!l)
		return;
	r = xd_resolve_start(s, &l->resolve, host, (uint16_t)port, listen_resolved);
	if (r == 0)
		try_address(l);
	else if (r != -EINPROGRESS)
		listen_failed(l, r, "a host has 1 to 255 characters");
}

void xd_session_unlisten(struct xd_session *s, uint64_t serial, uint32_t listener)
{
	struct xd_call *call = xd_call_new(s, serial);
	struct xd_listener *l = xc_slots_get(&s->listeners, listener);

	if (!call)
		return;
	if (!l || l->call) {
		xd_call_reply(call, -ENOENT, "there is no listener %" PRIu32, listener);
		return;
	}
	listener_down(l);
	xd_call_reply(call, 0, NULL);
}

/* ------------------------------------------------------------------ requests */

/*
 * One that the client may answer: it was told of it (numbers can be guessed, and what waits to be
 * read still needs the listener), and did not answer yet. NULL: there is none.
 */
struct xd_request *xd_request_get(const struct xd_session *s, uint64_t number)
{
	struct xd_request *r =
		number <= UINT32_MAX ? xc_slots_get(&s->requests, (uint32_t)number) : NULL;

	return r && r->told && !r->endpoint ? r : NULL;
}

void xd_request_free(struct xd_request *r)
{
	xc_list_remove(&r->link);
	xc_list_remove(&r->out.link);
	if (r->listener)
		r->listener->n_requests--;
	if (r->endpoint)
		r->endpoint->request = NULL;
	xc_slots_remove(&r->session->requests, r->number);
	free(r);
}

bool xd_on_peer_allowed(void *listener_ctx, const struct xc_addr *peer)
{
	const struct xd_ear *ear = listener_ctx;
	const struct xd_session *s = ear->listener->session;

	if (xd_policy_may_accept(s->core->quota.policy, s->uid, s->gids, s->n_gids, peer))
		return true;
	xd_core_count(s->core, XD_COUNTER_connects_refused, 1);
	return false;
}

void *xd_on_connect_request(void *listener_ctx, struct fabric_conn *conn,
			    const struct fabric_conn_info *info)
{
	const struct xd_ear *ear = listener_ctx;
	struct xd_listener *l = ear->listener;
	struct xd_session *s = l->session;
	struct xd_request *r;

	/*
	 * Not every fabric asks before: a device has accepted by the time that it tells. And the
	 * configuration may be another by now.
	 */
	if (!xd_on_peer_allowed(listener_ctx, &info->peer))
		return NULL;
	if (l->n_requests >= l->backlog || xd_session_ending(s) ||
	    info->private_data_bytes > FABRIC_PRIVATE_DATA_MAX)
		goto refuse;
	r = calloc(1, sizeof(*r));
	if (!r)
		goto refuse;
	if (xc_slots_add(&s->requests, r, &r->number) < 0) {
		free(r);
		goto refuse;
	}
	xc_list_init(&r->out.link);
	r->out.note = XD_NOTE_REQUEST;
	r->session = s;
	r->listener = l;
	r->conn = conn;
	r->fabric = ear->fabric;
	r->peer = info->peer;
	r->peer_uid = info->peer_uid;
	r->private_data_bytes = (uint16_t)info->private_data_bytes;
	if (info->private_data_bytes)
		memcpy(r->private_data, info->private_data, info->private_data_bytes);
	xc_list_append(&l->requests, &r->link);
	l->n_requests++;
	xd_session_tell(s, &r->out);
	return r;
refuse:
	xd_core_count(s->core, XD_COUNTER_connects_rejected, 1);
	return NULL;
}

void xd_on_conn_gone(void *conn_ctx)
{
	struct xd_request *r = conn_ctx;
	struct xd_endpoint *ep = r->endpoint;

	r->conn = NULL;
	xd_request_free(r);
	if (ep)
		xd_endpoint_end(ep, -XP_E_PEER_GONE, "the peer gave up before it was answered");
}

void xd_session_reject(struct xd_session *s, uint64_t serial, uint64_t request,
		       const void *private_data, size_t bytes)
{
	struct xd_call *call = xd_call_new(s, serial);
	struct xd_request *r = xd_request_get(s, request);

	if (!call)
		return;
	if (!r) {
		xd_call_reply(call, -ENOENT, "there is no connection request %" PRIu64 " to reject",
			      request);
		return;
	}
	if (bytes > s->core->caps[r->fabric].private_reject_bytes) {
		xd_call_reply(call, -EINVAL,
			      "private data of a reject is at most %u bytes here, not %zu",
			      s->core->caps[r->fabric].private_reject_bytes, bytes);
		return;
	}
	reject(r, private_data, bytes);
	xd_call_reply(call, 0, NULL);
}
