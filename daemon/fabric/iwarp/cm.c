/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/assert.h"
#include "common/checked.h"
#include "daemon/fabric/iwarp/stream.h"
#include "proto/errors.h"

/*
 * Listeners and connection requests, whether they come through TCP or from an endpoint of this
 * daemon.
 */

/*
 * Where the port is left to us; the side that connects gets a number from below, for people to tell
 * connections by.
 */
#define CHOSEN_PORT_FIRST 49152u
#define CHOSEN_PORTS (65536u - CHOSEN_PORT_FIRST)
#define PEER_PORT_FIRST 32768u
#define PEER_PORTS (CHOSEN_PORT_FIRST - PEER_PORT_FIRST)

/*
 * ------------------------------------------------------------------------------------- listeners
 */

static struct xc_list *bucket_of(struct fabric *f, uint16_t port)
{
	return &f->listeners[port % IWARP_BUCKETS];
}

static bool same_ip(const struct xc_addr *a, const struct xc_addr *b)
{
	size_t bytes = a->family == 4 ? 4 : 16;

	return a->family == b->family && memcmp(a->ip, b->ip, bytes) == 0 &&
	       (a->scope == b->scope || a->scope == 0 || b->scope == 0);
}

/* As for TCP sockets without SO_REUSEADDR; :: is IPv6 only, as with IPV6_V6ONLY. */
static bool is_in_use(struct fabric *f, const struct xc_addr *at)
{
	struct fabric_listener *l;

	xc_list_for_each(l, bucket_of(f, at->port), in_bucket) {
		if (l->at.port != at->port || l->at.family != at->family)
			continue;
		if (xc_addr_is_any(&l->at) || xc_addr_is_any(at) || same_ip(&l->at, at))
			return true;
	}
	return false;
}

/* Starts anywhere, so that a port is not used again soon. */
static int choose_port(struct fabric *f, struct xc_addr *at)
{
	uint32_t first;

	f->engine.ops->random(f->engine.engine, &first, sizeof(first));
	for (uint32_t i = 0; i < CHOSEN_PORTS; i++) {
		uint32_t nth = (first % CHOSEN_PORTS + i) % CHOSEN_PORTS;

		at->port = (uint16_t)(CHOSEN_PORT_FIRST + nth);
		if (!is_in_use(f, at))
			return 0;
	}
	return -EADDRINUSE;
}

int iwarp_listen(struct fabric *f, const struct xc_addr *at, uint32_t owner, void *ctx,
		 struct fabric_done *done, struct fabric_listener **ret, struct xc_addr *ret_at)
{
	struct xc_addr plain = fabric_plain_address(at);
	struct fabric_listener *l;
	int err;

	(void)owner; /* accepting is paid for by the pd of the endpoint that accepts */
	(void)done;
	XC_CHECK(f, IWARP_FABRIC_MAGIC);
	if (plain.family != 4 && plain.family != 6)
		return -EAFNOSUPPORT;
	err = xc_addr_is_any(&plain) ? 0 : iwarp_address_is_local(&plain);
	if (!err && plain.port == 0 && f->no_wire)
		err = choose_port(f, &plain);
	if (err)
		return err;
	if (is_in_use(f, &plain))
		return -EADDRINUSE;
	l = calloc(1, sizeof(*l));
	if (!l)
		return -ENOMEM;
	*l = (struct fabric_listener){
		.magic = IWARP_LISTENER_MAGIC,
		.fabric = f,
		.at = plain,
		.ctx = ctx,
	};
	err = f->no_wire ? 0 : serve_listen(l, &plain, &l->at);
	if (err) {
		free(l);
		return err;
	}
	xc_list_append(bucket_of(f, l->at.port), &l->in_bucket);
	f->objects++;
	*ret_at = l->at;
	*ret = l;
	return 0;
}

void iwarp_listener_free(struct fabric_listener *l)
{
	XC_CHECK(l, IWARP_LISTENER_MAGIC);
	serve_stop(l);
	xc_list_remove(&l->in_bucket);
	l->fabric->objects--;
	l->magic = 0;
	free(l);
}

/* No two that match can coexist, see is_in_use(). */
static struct fabric_listener *listener_at(struct fabric *f, const struct xc_addr *dst)
{
	struct fabric_listener *l;

	xc_list_for_each(l, bucket_of(f, dst->port), in_bucket) {
		if (l->at.port != dst->port || l->at.family != dst->family)
			continue;
		if (xc_addr_is_any(&l->at) || same_ip(&l->at, dst))
			return l;
	}
	return NULL;
}

/*
 * -------------------------------------------------------------------------------------- requests
 */

static void conn_free(struct fabric_conn *c)
{
	xc_list_remove(&c->pending.link);
	c->fabric->objects--;
	c->magic = 0;
	free(c);
}

/*
 * The user answered, and the conn is its no more. Inside connect_request it must outlive the call.
 */
static void conn_consume(struct fabric_conn *c)
{
	c->ep = NULL;
	c->stream = NULL;
	if (c->state == IWARP_CONN_DELIVERING)
		c->answered = true;
	else
		conn_free(c);
}

static void tell_gone(struct fabric_conn *c)
{
	c->state = IWARP_CONN_GONE;
	xc_list_append(&c->fabric->pending, &c->pending.link);
	iwarp_wake(c->fabric);
}

void iwarp_conn_abandon(struct fabric_conn *c)
{
	XC_CHECK(c, IWARP_CONN_MAGIC);
	c->ep = NULL;
	if (c->state == IWARP_CONN_ASKED)
		conn_free(c);
	else if (c->state == IWARP_CONN_DELIVERED)
		tell_gone(c);
	/* while delivering: see conn_ask() */
}

static void conn_ask(struct fabric_conn *c, struct fabric_listener *l)
{
	struct fabric_conn_info info = {
		.peer = c->peer,
		.peer_uid = c->ep ? (int64_t)c->ep->pd->owner->uid : -1,
		.private_data = c->private_data,
		.private_data_bytes = c->private_data_bytes,
	};

	c->state = IWARP_CONN_DELIVERING;
	c->ctx = c->fabric->events.connect_request(l->ctx, c, &info);
	if (c->answered) {
		conn_free(c);
	} else if (!c->ctx) {
		if (c->ep)
			iwarp_ep_refuse(c->ep, -XP_E_BACKLOG, NULL, 0);
		else if (c->stream)
			serve_reject(c->stream, NULL, 0);
		conn_free(c);
	} else if (!c->ep && !c->stream) {
		tell_gone(c);
	} else {
		c->state = IWARP_CONN_DELIVERED;
	}
}

void iwarp_conn_lost(struct fabric_conn *c)
{
	XC_CHECK(c, IWARP_CONN_MAGIC);
	c->stream = NULL;
	tell_gone(c);
}

bool iwarp_may_ask(const struct fabric_listener *l, const struct xc_addr *peer)
{
	const struct fabric_events *events = &l->fabric->events;

	return !events->peer_allowed || events->peer_allowed(l->ctx, peer);
}

/* From progress(). */
static void conn_tell(struct iwarp_pending *p)
{
	struct fabric_conn *c = xc_container_of(p, struct fabric_conn, pending);
	struct fabric *f = c->fabric;
	struct fabric_listener *l;
	void *ctx = c->ctx;

	XC_CHECK(c, IWARP_CONN_MAGIC);
	if (c->state == IWARP_CONN_GONE) {
		conn_free(c);
		f->events.conn_gone(ctx);
		return;
	}
	l = listener_at(f, &c->dst);
	if (l && iwarp_may_ask(l, &c->peer)) {
		conn_ask(c, l);
		return;
	}
	iwarp_ep_refuse(c->ep, -ECONNREFUSED, NULL, 0);
	conn_free(c);
}

int iwarp_conn_ask(struct iwarp_stream *s, struct fabric_listener *l, const void *private_data,
		   size_t bytes)
{
	struct fabric_conn *c = calloc(1, sizeof(*c));

	if (!c)
		return -ENOMEM;
	*c = (struct fabric_conn){
		.magic = IWARP_CONN_MAGIC,
		.fabric = s->fabric,
		.stream = s,
		.dst = l->at,
		.peer = s->peer,
		.pending.deliver = conn_tell,
		.private_data_bytes = (uint16_t)bytes,
	};
	xc_list_init(&c->pending.link);
	if (bytes)
		memcpy(c->private_data, private_data, bytes);
	s->fabric->objects++;
	s->conn = c;
	conn_ask(c, l);
	return 0;
}

/* An any-address stands for those of this host. */
static bool listens_here(struct fabric *f, const struct xc_addr *dst)
{
	const struct fabric_listener *l = listener_at(f, dst);

	return l && (!xc_addr_is_any(&l->at) || iwarp_address_is_local(dst) == 0);
}

int iwarp_ep_connect(struct fabric_ep *ep, const struct xc_addr *dst, const void *private_data,
		     size_t bytes)
{
	struct fabric *f = ep->fabric;
	struct xc_addr plain = fabric_plain_address(dst);
	struct fabric_conn *c;
	char why[256];
	int err;

	XC_CHECK(ep, IWARP_EP_MAGIC);
	if (ep->state != IWARP_EP_IDLE)
		return -EISCONN;
	if (bytes > f->caps.private_connect_bytes || dst->port == 0)
		return -EINVAL;
	err = iwarp_route(f, dst, why, sizeof(why));
	if (err)
		return err;
	if (!f->no_wire && (f->no_shortcut || !listens_here(f, &plain)))
		return dial(ep, &plain, private_data, bytes);
	c = calloc(1, sizeof(*c));
	if (!c)
		return -ENOMEM;
	*c = (struct fabric_conn){
		.magic = IWARP_CONN_MAGIC,
		.fabric = f,
		.state = IWARP_CONN_ASKED,
		.ep = ep,
		.dst = plain,
		.pending.deliver = conn_tell,
		.private_data_bytes = iwarp_padded(f, bytes, f->caps.private_connect_bytes),
	};
	if (bytes)
		memcpy(c->private_data, private_data, bytes);
	/* To a local address one comes from the same address. */
	c->peer = c->dst;
	c->peer.port = (uint16_t)(PEER_PORT_FIRST + f->last_peer_port++ % PEER_PORTS);
	ep->conn = c;
	ep->state = IWARP_EP_CONNECTING;
	f->objects++;
	xc_list_append(&f->pending, &c->pending.link);
	iwarp_wake(f);
	return 0;
}

int iwarp_ep_accept(struct fabric_ep *ep, struct fabric_conn *c, const void *private_data,
		    size_t bytes)
{
	int err = 0;

	XC_CHECK(ep, IWARP_EP_MAGIC);
	XC_CHECK(c, IWARP_CONN_MAGIC);
	xc_assert(!c->answered && c->fabric == ep->fabric);
	if (ep->state != IWARP_EP_IDLE)
		return -EISCONN;
	if (bytes > ep->fabric->caps.private_accept_bytes)
		return -EINVAL;
	if (c->ep)
		iwarp_ep_join(c->ep, ep, private_data, bytes);
	else if (c->stream)
		err = serve_accept(c->stream, ep, private_data, bytes);
	else
		iwarp_ep_refuse(ep, -XP_E_PEER_GONE, NULL, 0);
	if (!err)
		conn_consume(c);
	return err;
}

void iwarp_conn_reject(struct fabric_conn *c, const void *private_data, size_t bytes)
{
	XC_CHECK(c, IWARP_CONN_MAGIC);
	xc_assert(!c->answered && bytes <= c->fabric->caps.private_reject_bytes);
	if (c->ep)
		iwarp_ep_refuse(c->ep, -XP_E_REJECTED, private_data, bytes);
	else if (c->stream)
		serve_reject(c->stream, private_data, bytes);
	conn_consume(c);
}

void iwarp_tell(struct fabric *f)
{
	struct xc_list batch, *link;

	xc_list_init(&batch);
	while ((link = xc_list_pop(&f->pending)))
		xc_list_append(&batch, link);
	/* Objects that end meanwhile take themselves off this list. */
	while ((link = xc_list_pop(&batch))) {
		struct iwarp_pending *p = xc_container_of(link, struct iwarp_pending, link);

		p->deliver(p);
	}
}
