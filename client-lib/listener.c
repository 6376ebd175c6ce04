/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Listeners. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client-lib/internal.h"

#define BACKLOG_MAX 1024

static int on_made(struct cl_call *call, struct xfer_client *c)
{
	struct xfer_listener *l = call->object;
	int r = cl_numbers_add(&c->listener_numbers, call->number, l);

	if (r < 0)
		return r == -EEXIST ? -XFER_E_PROTOCOL : r;
	l->number = call->number;
	memcpy(l->address, call->address, sizeof(l->address));
	xc_list_append(&c->listeners, &l->link);
	return 0;
}

/* With the lock held. */
static int make(struct xfer_client *c, const char *address, const struct xfer_listen_options *o,
		struct xfer_listener **ret)
{
	Xp__ClientMessage message = XP__CLIENT_MESSAGE__INIT;
	Xp__Listen body = XP__LISTEN__INIT;
	struct xfer_listener *l;
	struct cl_call call = { .made = on_made };
	struct cl_address a;
	int r = cl_address_parse(address, true, &a);

	if (r < 0)
		return r;
	l = calloc(1, sizeof(*l));
	if (!l)
		return cl_fail(-ENOMEM, "listen: no memory");
	l->client = c;
	l->context = o->context;
	xc_list_init(&l->link);
	call.object = l;
	body.host = a.host;
	body.port = a.port;
	body.backlog = o->backlog;
	message.body_case = XP__CLIENT_MESSAGE__BODY_LISTEN;
	message.listen = &body;
	r = cl_call(c, &message, -1, &call, 0, "listen");
	if (r < 0) {
		free(l);
		return r;
	}
	*ret = l;
	return 0;
}

XFER_API int xfer_listen(struct xfer_client *c, const char *address,
			 const struct xfer_listen_options *options,
			 struct xfer_listener **ret_listener)
{
	struct xfer_listen_options o = { .size = sizeof(o) };
	int r = cl_enter(c);

	if (r < 0)
		return r;
	r = cl_options_copy(&o, sizeof(o), options, "listen");
	if (r == 0 && o.backlog > BACKLOG_MAX)
		r = cl_fail(-EINVAL, "listen: backlog %u: at most %d", o.backlog, BACKLOG_MAX);
	if (r == 0 && !ret_listener)
		r = cl_fail(-EINVAL, "listen: ret_listener is NULL");
	if (r == 0)
		r = make(c, address, &o, ret_listener);
	return cl_leave(c, r);
}

XFER_API const char *xfer_listener_address(const struct xfer_listener *listener)
{
	return listener->address;
}

XFER_API void *xfer_listener_context(const struct xfer_listener *listener)
{
	return listener->context;
}

XFER_API void xfer_listener_free(struct xfer_listener *l)
{
	Xp__ClientMessage message = XP__CLIENT_MESSAGE__INIT;
	Xp__Unlisten body = XP__UNLISTEN__INIT;
	struct cl_call call = { 0 };
	struct xfer_client *c;

	if (!l)
		return;
	c = l->client;
	if (cl_enter(c) < 0) {
		xc_list_remove(&l->link);
		free(l);
		return;
	}
	body.listener = l->number;
	message.body_case = XP__CLIENT_MESSAGE__BODY_UNLISTEN;
	message.unlisten = &body;
	if (!c->gone)
		cl_call(c, &message, -1, &call, 0, "unlisten");
	cl_events_drop(&c->events, NULL, l);
	cl_numbers_remove(&c->listener_numbers, l->number);
	xc_list_remove(&l->link);
	cl_leave(c, 0);
	free(l);
}
