/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Endpoints: made, connected, waited for, freed. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "client-lib/internal.h"

#define DEPTH_MAX 4096

/* ---- making */

static int on_made(struct cl_call *call, struct xfer_client *c)
{
	struct xfer_ep *ep = call->object;
	int r = cl_numbers_add(&c->ep_numbers, call->number, ep);

	if (r < 0)
		return r == -EEXIST ? -XFER_E_PROTOCOL : r;
	ep->number = call->number;
	xc_list_append(&c->eps, &ep->link);
	return 0;
}

static int fill_options(Xp__EndpointNew *body, const struct xfer_ep_options *o)
{
	if (o->send_depth > DEPTH_MAX)
		return cl_fail(-EINVAL, "endpoint: send_depth %u: at most %d", o->send_depth,
			       DEPTH_MAX);
	if (o->recv_depth > DEPTH_MAX)
		return cl_fail(-EINVAL, "endpoint: recv_depth %u: at most %d", o->recv_depth,
			       DEPTH_MAX);
	body->send_depth = o->send_depth;
	body->recv_depth = o->recv_depth;
	body->recv_stage_bytes = o->recv_stage_bytes;
	return 0;
}

/* With the lock held. */
static int make(struct xfer_client *c, Xp__EndpointNew *body, void *context, struct xfer_ep **ret)
{
	Xp__ClientMessage message = XP__CLIENT_MESSAGE__INIT;
	struct xfer_ep *ep = calloc(1, sizeof(*ep));
	struct cl_call call = { .made = on_made, .object = ep };
	int r;

	if (!ep)
		return cl_fail(-ENOMEM, "endpoint: no memory");
	ep->client = c;
	ep->context = context;
	xc_list_init(&ep->link);
	message.body_case = XP__CLIENT_MESSAGE__BODY_ENDPOINT_NEW;
	message.endpoint_new = body;
	c->n_eps++;
	r = cl_events_reserve_ends(c);
	if (r == 0)
		r = cl_call(c, &message, -1, &call, 0, "endpoint");
	if (r < 0) {
		c->n_eps--;
		free(ep);
		return r;
	}
	*ret = ep;
	return 0;
}

static int new_ep(struct xfer_client *c, Xp__EndpointNew *body,
		  const struct xfer_ep_options *options, struct xfer_ep **ret_ep)
{
	struct xfer_ep_options o = { .size = sizeof(o) };
	int r = cl_options_copy(&o, sizeof(o), options, "endpoint");

	if (r == 0)
		r = fill_options(body, &o);
	if (r == 0 && !ret_ep)
		r = cl_fail(-EINVAL, "endpoint: ret_ep is NULL");
	if (r == 0)
		r = make(c, body, o.context, ret_ep);
	return r;
}

XFER_API int xfer_ep_new(struct xfer_client *c, const char *url,
			 const struct xfer_ep_options *options, struct xfer_ep **ret_ep)
{
	Xp__EndpointNew body = XP__ENDPOINT_NEW__INIT;
	struct cl_address address;
	int r = cl_enter(c);

	if (r < 0)
		return r;
	r = cl_address_parse(url, false, &address);
	if (r == 0 && address.port == 0)
		r = cl_fail(-EINVAL, "\"%.100s\": nobody listens on port 0", url);
	if (r < 0)
		return cl_leave(c, r);
	body.host = address.host;
	body.port = address.port;
	body.require = address.require;
	return cl_leave(c, new_ep(c, &body, options, ret_ep));
}

XFER_API int xfer_ep_new_answer(struct xfer_client *c, uint64_t request,
				const struct xfer_ep_options *options, struct xfer_ep **ret_ep)
{
	Xp__EndpointNew body = XP__ENDPOINT_NEW__INIT;
	int r = cl_enter(c);

	if (r < 0)
		return r;
	if (request == 0)
		return cl_leave(c, cl_fail(-EINVAL, "endpoint: connection request 0"));
	body.request = request;
	return cl_leave(c, new_ep(c, &body, options, ret_ep));
}

/* ---- connecting */

static int enter(struct xfer_ep *ep)
{
	return ep ? cl_enter(ep->client) : cl_fail(-EINVAL, "the endpoint is NULL");
}

static int check_private_data(const char *what, const void *data, size_t bytes, size_t limit)
{
	if (bytes && !data)
		return cl_fail(-EINVAL, "%s: private data of %zu bytes at NULL", what, bytes);
	if (bytes > limit)
		return cl_fail(-EINVAL, "%s: %zu bytes of private data: this endpoint takes %zu",
			       what, bytes, limit);
	return 0;
}

/* Of connect and accept. */
static int check_start(const struct xfer_ep *ep, const char *what, const void *data, size_t bytes,
		       size_t limit)
{
	if (ep->ended)
		return cl_fail(-EINVAL, "%s: the endpoint has ended: %s", what,
			       ep->text[0] ? ep->text : xfer_strerror(ep->status));
	if (!ep->ready)
		return cl_fail(-EINVAL, "%s: the endpoint is not ready", what);
	if (ep->connected)
		return cl_fail(-EINVAL, "%s: the endpoint is connected already", what);
	return check_private_data(what, data, bytes, limit);
}

XFER_API int xfer_connect(struct xfer_ep *ep, const void *private_data, size_t bytes)
{
	Xp__ClientMessage message = XP__CLIENT_MESSAGE__INIT;
	Xp__Connect body = XP__CONNECT__INIT;
	struct cl_call call = { 0 };
	int r = enter(ep);

	if (r < 0)
		return r;
	r = check_start(ep, "connect", private_data, bytes, ep->info.private_connect_bytes);
	if (r < 0)
		return cl_leave(ep->client, r);
	body.endpoint = ep->number;
	body.private_data.data = (uint8_t *)(uintptr_t)private_data;
	body.private_data.len = bytes;
	message.body_case = XP__CLIENT_MESSAGE__BODY_CONNECT;
	message.connect = &body;
	return cl_leave(ep->client, cl_call(ep->client, &message, -1, &call, 0, "connect"));
}

XFER_API int xfer_accept(struct xfer_ep *ep, const void *private_data, size_t bytes)
{
	Xp__ClientMessage message = XP__CLIENT_MESSAGE__INIT;
	Xp__Accept body = XP__ACCEPT__INIT;
	struct cl_call call = { 0 };
	int r = enter(ep);

	if (r < 0)
		return r;
	r = check_start(ep, "accept", private_data, bytes, ep->info.private_accept_bytes);
	if (r < 0)
		return cl_leave(ep->client, r);
	body.endpoint = ep->number;
	body.private_data.data = (uint8_t *)(uintptr_t)private_data;
	body.private_data.len = bytes;
	message.body_case = XP__CLIENT_MESSAGE__BODY_ACCEPT;
	message.accept = &body;
	return cl_leave(ep->client, cl_call(ep->client, &message, -1, &call, 0, "accept"));
}

XFER_API int xfer_reject(struct xfer_client *c, uint64_t request, const void *private_data,
			 size_t bytes)
{
	Xp__ClientMessage message = XP__CLIENT_MESSAGE__INIT;
	Xp__Reject body = XP__REJECT__INIT;
	struct cl_call call = { 0 };
	int r = cl_enter(c);

	if (r < 0)
		return r;
	r = check_private_data("reject", private_data, bytes,
			       sizeof(((struct xfer_event *)NULL)->private_data));
	if (r < 0)
		return cl_leave(c, r);
	body.request = request;
	body.private_data.data = (uint8_t *)(uintptr_t)private_data;
	body.private_data.len = bytes;
	message.body_case = XP__CLIENT_MESSAGE__BODY_REJECT;
	message.reject = &body;
	return cl_leave(c, cl_call(c, &message, -1, &call, 0, "reject"));
}

/* ---- waiting */

static bool reached(const struct xfer_ep *ep, enum xfer_ep_state state)
{
	return state == XFER_EP_READY ? ep->ready : ep->connected;
}

XFER_API int xfer_ep_wait(struct xfer_ep *ep, enum xfer_ep_state state, int timeout_ms)
{
	int64_t deadline = cl_deadline(timeout_ms);
	int r = enter(ep);

	if (r < 0)
		return r;
	if (state != XFER_EP_READY && state != XFER_EP_CONNECTED)
		return cl_leave(ep->client, cl_fail(-EINVAL, "wait: state %d", (int)state));
	cl_batch_flush(ep->client);
	while (!ep->ended && !reached(ep, state)) {
		if (cl_expired(deadline))
			return cl_leave(ep->client,
					cl_fail(-ETIMEDOUT, "wait: the endpoint is not %s in %d ms",
						state == XFER_EP_READY ? "ready" : "connected",
						timeout_ms));
		cl_wait(ep->client, deadline);
	}
	if (ep->ended && (!ep->ready || state == XFER_EP_CONNECTED)) {
		r = ep->status ? ep->status : -ENOTCONN;
		cl_fail(r, "the endpoint has ended: %s", ep->text[0] ? ep->text : xfer_strerror(r));
	}
	return cl_leave(ep->client, r);
}

/* ---- looking */

XFER_API int xfer_ep_info(const struct xfer_ep *ep, struct xfer_ep_info *ret_info)
{
	struct xfer_ep_info info;
	size_t size;
	int r = ep ? cl_enter(ep->client) : cl_fail(-EINVAL, "the endpoint is NULL");

	if (r < 0)
		return r;
	if (!ret_info || ret_info->size < sizeof(size))
		return cl_leave(ep->client, cl_fail(-EINVAL, "info: set .size to sizeof"));
	if (!ep->ready)
		return cl_leave(ep->client, cl_fail(-EAGAIN, "info: the endpoint is not ready"));
	info = ep->info;
	size = ret_info->size;
	if (size > sizeof(info)) {
		memset(ret_info, 0, size);
		ret_info->size = size;
	}
	info.size = size;
	memcpy(ret_info, &info, size < sizeof(info) ? size : sizeof(info));
	return cl_leave(ep->client, 0);
}

XFER_API void *xfer_ep_context(const struct xfer_ep *ep)
{
	void *context;

	if (cl_enter(ep->client) < 0)
		return ep->context;
	context = ep->context;
	cl_leave(ep->client, 0);
	return context;
}

XFER_API void xfer_ep_set_context(struct xfer_ep *ep, void *context)
{
	if (cl_enter(ep->client) < 0)
		return;
	ep->context = context;
	cl_leave(ep->client, 0);
}

/* ---- ending */

XFER_API int xfer_disconnect(struct xfer_ep *ep)
{
	Xp__ClientMessage message = XP__CLIENT_MESSAGE__INIT;
	Xp__Disconnect body = XP__DISCONNECT__INIT;
	struct cl_call call = { 0 };
	int r = enter(ep);

	if (r < 0)
		return r;
	body.endpoint = ep->number;
	message.body_case = XP__CLIENT_MESSAGE__BODY_DISCONNECT;
	message.disconnect = &body;
	return cl_leave(ep->client, cl_call(ep->client, &message, -1, &call, 0, "disconnect"));
}

/*
 * After the daemon's answer nothing of the endpoint is under way. Without one (a time-out) its
 * requests stay in the table as nobody's, so that their carried memory is not given to another
 * transfer before the daemon has let go of it.
 */
static void forget(struct xfer_client *c, struct xfer_ep *ep)
{
	for (uint32_t i = 0; i < c->requests.room; i++)
		if (c->requests.at[i].used && c->requests.at[i].ep == ep)
			c->requests.at[i].ep = NULL;
	cl_events_drop(&c->events, ep, NULL);
	cl_numbers_remove(&c->ep_numbers, ep->number);
	xc_list_remove(&ep->link);
	c->n_eps--;
}

XFER_API void xfer_ep_free(struct xfer_ep *ep)
{
	Xp__ClientMessage message = XP__CLIENT_MESSAGE__INIT;
	Xp__EndpointFree body = XP__ENDPOINT_FREE__INIT;
	struct cl_call call = { 0 };
	struct xfer_client *c;

	if (!ep)
		return;
	c = ep->client;
	if (cl_enter(c) < 0) {
		xc_list_remove(&ep->link);
		free(ep);
		return;
	}
	body.endpoint = ep->number;
	message.body_case = XP__CLIENT_MESSAGE__BODY_ENDPOINT_FREE;
	message.endpoint_free = &body;
	if (!c->gone)
		cl_call(c, &message, -1, &call, 0, "endpoint free");
	forget(c, ep);
	cl_leave(c, 0);
	free(ep);
}
