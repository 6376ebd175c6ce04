/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Endpoints, and how two of one instance find each other. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/errors.h"
#include "tests/sim/fake_priv.h"

void fake_excuse(struct fabric_ep *ep, const char *why)
{
	if (!ep->excuse[0])
		snprintf(ep->excuse, sizeof(ep->excuse), "%s", why);
}

static bool ours(struct fabric *f, const struct xc_addr *a)
{
	return a->family == 4 && a->ip[0] == 127 && a->ip[1] == 0 && a->ip[2] == f->options.net;
}

int fake_route(struct fabric *f, const struct xc_addr *dst, char *ret_why, size_t size)
{
	fake_object_use(&f->o, FAKE_FABRIC, "route");
	if (!ours(f, dst)) {
		snprintf(ret_why, size, "%s has no such network", f->options.caps.name);
		return -ENETUNREACH;
	}
	snprintf(ret_why, size, "%s has this network", f->options.caps.name);
	return 0;
}

/* ---- making and unmaking */

static void create_ends(struct fake_later *l)
{
	struct fabric_ep *ep = xc_container_of(l->object, struct fabric_ep, o);

	if (!l->status)
		return;
	ep->attr.pd->users--;
	fake_object_dead(&ep->o);
}

static void check_attr(struct fabric *f, const struct fabric_ep_attr *a)
{
	const struct fabric_caps *c = &f->options.caps;
	struct fabric_ep *ep;

	fake_object_use(&a->pd->o, FAKE_PD, "ep_create");
	sim_check(a->max_send_wr && a->max_send_wr <= c->max_send_wr, "fabric.h",
		  "an endpoint with %u sends", a->max_send_wr);
	sim_check(a->max_recv_wr && a->max_recv_wr <= c->max_recv_wr, "fabric.h",
		  "an endpoint with %u receives", a->max_recv_wr);
	sim_check(a->max_send_sge <= (c->max_sge > c->max_sge_rd ? c->max_sge : c->max_sge_rd),
		  "fabric.h", "an endpoint with %u pieces a send", a->max_send_sge);
	sim_check(a->max_recv_sge <= c->max_recv_sge, "fabric.h",
		  "an endpoint with %u pieces a receive", a->max_recv_sge);
	sim_check(a->ctx, "fabric.h", "an endpoint without a context");
	xc_list_for_each(ep, &f->eps, o.link)
		sim_check(ep->attr.qp_num != a->qp_num, "fabric.h", "a qp_num is used twice");
}

int fake_ep_create(struct fabric *f, const struct fabric_ep_attr *attr, struct fabric_done *done,
		   struct fabric_ep **ret)
{
	struct fabric_ep *ep;

	fake_object_use(&f->o, FAKE_FABRIC, "ep_create");
	check_attr(f, attr);
	if (fake_lost(f))
		return -ENODEV;
	ep = calloc(1, sizeof(*ep));
	ep->attr = *attr;
	attr->pd->users++;
	sim_check(!attr->pd->eps++ || !fake_weak(f), "I5",
		  "a second endpoint in a domain whose dead keys may be served");
	fake_work_init(&ep->send);
	fake_work_init(&ep->recv);
	ep->mute = fake_dice(f, f->options.dice.flush_never);
	fake_object_add(f, &f->eps, &ep->o, FAKE_EP);
	return fake_answer((struct fake_later){ .done = done, .object = &ep->o,
						.finish = create_ends,
						.status = fake_dice(f, f->options.dice.ep_fail) ?
								  -ENOMEM : 0,
						.ret = (void **)ret, .value = ep },
			   f->options.dice.ep_slow);
}

static void destroy_ends(struct fake_later *l)
{
	struct fabric_ep *ep = xc_container_of(l->object, struct fabric_ep, o);
	struct fabric *f = ep->o.f;

	fake_events_drop(f, ep);
	fake_work_done(&ep->send);
	fake_work_done(&ep->recv);
	ep->attr.pd->users--;
	fake_object_dead(&ep->o);
}

int fake_ep_destroy(struct fabric_ep *ep, struct fabric_done *done)
{
	fake_object_use(&ep->o, FAKE_EP, "ep_destroy");
	sim_check(ep->state != FAKE_DESTROYING, "I3", "ep_destroy twice");
	sim_check(ep->user_error, "I3", "ep_destroy before ep_error");
	ep->state = FAKE_DESTROYING;
	return fake_answer((struct fake_later){ .done = done, .object = &ep->o,
						.finish = destroy_ends },
			   ep->o.f->options.dice.destroy_slow);
}

/* ---- events of a connection */

static void told(struct fabric_ep *ep, enum fake_event_kind kind, int status, const void *data,
		 size_t bytes)
{
	struct fake_event *e = fake_event(ep->o.f, kind, ep, status);

	e->bytes = bytes;
	if (bytes)
		memcpy(e->data, data, bytes);
}

static void fails_to_connect(struct fabric_ep *ep, int status, const void *data, size_t bytes)
{
	ep->state = FAKE_ERROR;
	told(ep, FAKE_ESTABLISHED, status, data, bytes);
}

static void goes_down(struct fabric_ep *ep, int status)
{
	if (ep->state != FAKE_DESTROYING)
		ep->state = FAKE_ERROR;
	if (ep->told_down || !ep->told_up)
		return;
	ep->told_down = true;
	told(ep, FAKE_DISCONNECTED, ep->user_ended ? 0 : status, NULL, 0);
}

static void parts(struct fabric_ep *ep, int status, int peer_status)
{
	struct fabric_ep *peer = ep->peer;

	ep->peer = NULL;
	goes_down(ep, status);
	if (!peer)
		return;
	peer->peer = NULL;
	fake_excuse(peer, "its peer ended");
	goes_down(peer, peer_status);
}

static void conn_ends(struct fabric_conn *conn)
{
	conn->state = FAKE_CONN_ENDED;
	if (conn->from)
		conn->from->conn = NULL;
	conn->from = NULL;
	fake_events_drop(conn->o.f, conn);
	fake_object_dead(&conn->o);
}

/* The one who asked asks no more. */
static void gives_up(struct fabric_ep *ep)
{
	struct fabric_conn *conn = ep->conn;

	if (!conn)
		return;
	ep->conn = NULL;
	conn->from = NULL;
	if (conn->state == FAKE_CONN_OUT)
		conn_ends(conn);
	else if (conn->state == FAKE_CONN_OFFERED)
		fake_event(ep->o.f, FAKE_GONE, conn, 0);
}

void fake_ep_break(struct fabric_ep *ep, int status, const char *excuse)
{
	fake_excuse(ep, excuse);
	gives_up(ep);
	if (ep->state == FAKE_CONNECTING && !ep->told_up)
		fails_to_connect(ep, status, NULL, 0);
	else if (ep->state == FAKE_CONNECTING || ep->state == FAKE_UP)
		parts(ep, status, -XP_E_PEER_GONE);
}

static void user_ends(struct fabric_ep *ep)
{
	bool first = !ep->user_ended;

	ep->user_ended = true;
	if (first && ep->state == FAKE_UP)
		sim_note("the core ends ep %llu: sends %llu-%llu%s", (unsigned long long)ep->tag,
			 (unsigned long long)ep->send.retired, (unsigned long long)ep->send.posted,
			 ep->stalled ? ", stalled" : "");
	if (first && ep->state == FAKE_UP && !ep->excuse[0])
		ep->killed = ep->o.f->any_killed = true;
	gives_up(ep);
	if (ep->state == FAKE_CONNECTING && !ep->told_up && fake_dice(ep->o.f, 500))
		fails_to_connect(ep, -XP_E_PEER_GONE, NULL, 0);
	if (ep->state == FAKE_CONNECTING || ep->state == FAKE_UP)
		parts(ep, 0, -XP_E_PEER_GONE);
}

void fake_ep_disconnect(struct fabric_ep *ep)
{
	fake_object_use(&ep->o, FAKE_EP, "ep_disconnect");
	sim_check(ep->state != FAKE_DESTROYING, "I3", "ep_disconnect after ep_destroy");
	user_ends(ep);
}

void fake_ep_error(struct fabric_ep *ep)
{
	fake_object_use(&ep->o, FAKE_EP, "ep_error");
	sim_check(ep->state != FAKE_DESTROYING, "I3", "ep_error after ep_destroy");
	user_ends(ep);
	ep->user_error = true;
	ep->state = FAKE_ERROR;
}

/* ---- connecting */

static struct fabric_listener *listener_at(struct fabric *f, const struct xc_addr *at)
{
	struct fabric_listener *l;

	xc_list_for_each(l, &f->listeners, o.link)
		if (!l->pending && xc_addr_equal(&l->at, at))
			return l;
	return NULL;
}

static void set_tag(struct fabric_ep *ep, const void *data, size_t bytes)
{
	if (bytes >= sizeof(ep->tag))
		memcpy(&ep->tag, data, sizeof(ep->tag));
}

static void check_data(struct fabric_ep *ep, size_t bytes, size_t most)
{
	(void)ep;
	sim_check(bytes <= most, "fabric.h", "%zu bytes of private data, %zu are allowed", bytes,
		  most);
}

int fake_ep_connect(struct fabric_ep *ep, const struct xc_addr *dst, const void *private_data,
		    size_t bytes)
{
	struct fabric *f = ep->o.f;
	struct fabric_listener *l;
	struct fabric_conn *conn;
	struct fake_event *e;

	fake_object_use(&ep->o, FAKE_EP, "ep_connect");
	check_data(ep, bytes, f->options.caps.private_connect_bytes);
	sim_check(ep->state == FAKE_IDLE, "fabric.h", "ep_connect of an endpoint that is not idle");
	if (fake_lost(f) || fake_dice(f, f->options.dice.connect_fail))
		return fake_lost(f) ? -ENODEV : -ENOMEM;
	set_tag(ep, private_data, bytes);
	ep->state = FAKE_CONNECTING;
	l = listener_at(f, dst);
	if (!l) {
		fails_to_connect(ep, -ECONNREFUSED, NULL, 0);
		return 0;
	}
	if (fake_dice(f, f->options.dice.silent))
		return 0;
	conn = calloc(1, sizeof(*conn));
	conn->from = ep;
	conn->listener = l;
	ep->conn = conn;
	fake_object_add(f, &f->conns, &conn->o, FAKE_CONN);
	e = fake_event(f, FAKE_REQUEST, conn, 0);
	e->bytes = bytes;
	if (bytes)
		memcpy(e->data, private_data, bytes);
	return 0;
}

static void refuse(struct fabric_conn *conn, int status, const void *data, size_t bytes)
{
	struct fabric_ep *from = conn->from;

	conn_ends(conn);
	if (from)
		fails_to_connect(from, status, data, bytes);
}

void fake_deliver_request(struct fabric *f, struct fake_event *e)
{
	struct fabric_conn *conn = e->subject;
	struct fabric_conn_info info = {
		.peer = { .family = 4, .ip = { 127, 0, f->options.net, 1 }, .port = 50000 },
		.peer_uid = conn->from->attr.pd->owner,
		.private_data = e->data,
		.private_data_bytes = e->bytes,
	};

	conn->state = FAKE_CONN_OFFERED;
	conn->ctx = f->events->connect_request(conn->listener->ctx, conn, &info);
	if (!conn->ctx)
		refuse(conn, -XP_E_BACKLOG, NULL, 0);
}

static void conn_use(struct fabric_conn *conn, const char *call)
{
	fake_object_use(&conn->o, FAKE_CONN, call);
	sim_check(conn->state == FAKE_CONN_OFFERED, "fabric.h", "%s of a request that was answered",
		  call);
}

static void joins(struct fabric_ep *ep)
{
	const struct fake_dice *d = &ep->o.f->options.dice;

	if (fake_dice(ep->o.f, d->stall))
		ep->stall_after = 1 + sim_below(&ep->o.f->rng, 30);
	if (fake_dice(ep->o.f, d->vanish))
		ep->vanish_after = 1 + sim_below(&ep->o.f->rng, 30);
	ep->told_up = true;
}

int fake_ep_accept(struct fabric_ep *ep, struct fabric_conn *conn, const void *private_data,
		   size_t bytes)
{
	struct fabric *f = ep->o.f;
	struct fabric_ep *from;

	fake_object_use(&ep->o, FAKE_EP, "ep_accept");
	conn_use(conn, "ep_accept");
	check_data(ep, bytes, f->options.caps.private_accept_bytes);
	sim_check(ep->state == FAKE_IDLE, "fabric.h", "ep_accept of an endpoint that is not idle");
	from = conn->from;
	/* Then the request is still there to be answered. */
	if (fake_lost(f) || fake_dice(f, f->options.dice.connect_fail))
		return fake_lost(f) ? -ENODEV : -ENOMEM;
	set_tag(ep, private_data, bytes);
	conn_ends(conn);
	ep->state = FAKE_CONNECTING;
	if (!from) {
		fails_to_connect(ep, -XP_E_PEER_GONE, NULL, 0);
		return 0;
	}
	ep->peer = from;
	from->peer = ep;
	joins(ep);
	joins(from);
	told(ep, FAKE_ESTABLISHED, 0, NULL, 0);
	told(from, FAKE_ESTABLISHED, 0, private_data, bytes);
	return 0;
}

void fake_conn_reject(struct fabric_conn *conn, const void *private_data, size_t bytes)
{
	conn_use(conn, "conn_reject");
	sim_check(bytes <= conn->o.f->options.caps.private_reject_bytes, "fabric.h",
		  "%zu bytes of private data in a reject", bytes);
	refuse(conn, -XP_E_REJECTED, private_data, bytes);
}

/* ---- listening */

static void listen_ends(struct fake_later *l)
{
	struct fabric_listener *listener = xc_container_of(l->object, struct fabric_listener, o);

	listener->pending = false;
	if (l->status)
		fake_object_dead(&listener->o);
}

int fake_listen(struct fabric *f, const struct xc_addr *at, uint32_t owner, void *ctx,
		struct fabric_done *done, struct fabric_listener **ret, struct xc_addr *ret_at)
{
	struct fabric_listener *l;
	struct xc_addr where = *at;

	fake_object_use(&f->o, FAKE_FABRIC, "listen");
	sim_check(ctx, "fabric.h", "a listener without a context");
	if (fake_lost(f))
		return -ENODEV;
	if (!ours(f, at))
		return -EADDRNOTAVAIL;
	if (!where.port)
		where.port = f->next_port++;
	xc_list_for_each(l, &f->listeners, o.link)
		if (xc_addr_equal(&l->at, &where))
			return -EADDRINUSE;
	l = calloc(1, sizeof(*l));
	l->at = where;
	l->owner = owner;
	l->ctx = ctx;
	l->pending = true;
	*ret_at = where;
	fake_object_add(f, &f->listeners, &l->o, FAKE_LISTENER);
	return fake_answer((struct fake_later){.done = done,
					       .object = &l->o,
					       .finish = listen_ends,
					       .status = fake_dice(f, f->options.dice.listen_fail)
								 ? -EADDRINUSE
								 : 0,
					       .ret = (void **)ret,
					       .value = l},
			   f->options.dice.listen_slow);
}

void fake_listener_free(struct fabric_listener *l)
{
	struct fabric_conn *conn;

	fake_object_use(&l->o, FAKE_LISTENER, "listener_free");
	sim_check(!l->pending, "fabric.h", "listener_free of one under way");
	xc_list_for_each(conn, &l->o.f->conns, o.link) {
		if (conn->listener != l)
			continue;
		/* One that its owner is about to answer outlives it. */
		conn->listener = NULL;
		if (conn->state == FAKE_CONN_OUT)
			refuse(conn, -ECONNREFUSED, NULL, 0);
	}
	fake_object_dead(&l->o);
}
