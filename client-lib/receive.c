/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What comes in: one packet, one message, handled with the lock held. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "client-lib/internal.h"
#include "common/checked.h"

static void copy_text(char *to, size_t size, const char *from)
{
	snprintf(to, size, "%s", from);
}

/* Pushes an event; where there is no memory for it the session cannot go on. */
static void push(struct xfer_client *c, const struct cl_event *e)
{
	if (cl_event_push(c, e) < 0)
		cl_gone(c, -ENOMEM, "no memory for the daemon's events");
}

/* ---- the end */

static void end_calls(struct xfer_client *c)
{
	struct cl_call *call;

	xc_list_for_each(call, &c->calls, link) {
		if (call->done)
			continue;
		call->done = true;
		call->status = c->gone_status;
		copy_text(call->text, sizeof(call->text), c->gone_text);
	}
}

static void end_request(struct xfer_client *c, struct cl_request *r)
{
	struct cl_event e = {
		.type = XFER_EVENT_COMPLETION,
		.status = -XFER_E_DAEMON_GONE,
		.ep = r->ep,
		.wr_id = r->wr_id,
		.opcode = r->opcode,
	};

	if (r->ep) {
		e.more = cl_event_more_new(c->gone_text);
		cl_event_push(c, &e); /* has room: it was reserved when this was posted */
	}
	/* The daemon is gone, and nobody else knows this memory. */
	cl_carry_give(&c->carry, &r->chunk);
	cl_request_put(&c->requests, r);
}

static void end_ep(struct xfer_client *c, struct xfer_ep *ep)
{
	struct cl_event e = {
		.type = XFER_EVENT_DISCONNECTED,
		.status = -XFER_E_DAEMON_GONE,
		.ep = ep,
		.more = cl_event_more_new(c->gone_text),
	};

	ep->ended = true;
	ep->status = e.status;
	copy_text(ep->text, sizeof(ep->text), c->gone_text);
	cl_event_push(c, &e);
}

void cl_gone(struct xfer_client *c, int status, const char *format, ...)
{
	struct xfer_ep *ep;
	va_list args;

	if (c->gone)
		return;
	c->gone = true;
	c->gone_status = status;
	va_start(args, format);
	vsnprintf(c->gone_text, sizeof(c->gone_text), format, args);
	va_end(args);
	c->batch.used = 0;
	cl_want_out(c, false);
	/* Where it is this side that ends it, the daemon must not go on. */
	shutdown(c->sock, SHUT_RDWR);
	end_calls(c);
	for (uint32_t i = 0; i < c->requests.room; i++)
		if (c->requests.at[i].used)
			end_request(c, &c->requests.at[i]);
	xc_list_for_each(ep, &c->eps, link)
		if (!ep->ended)
			end_ep(c, ep);
	cl_bell_ring(c);
	if (c->waiting)
		pthread_cond_broadcast(&c->cond);
}

static void broken(struct xfer_client *c, const char *what)
{
	cl_gone(c, -XFER_E_PROTOCOL, "the daemon broke the protocol: %s", what);
}

/* ---- answers */

static struct cl_call *find_call(struct xfer_client *c, uint64_t serial)
{
	struct cl_call *call;

	xc_list_for_each(call, &c->calls, link)
		if (call->serial == serial && !call->done)
			return call;
	return NULL; /* it timed out */
}

static void on_hello_reply(struct xfer_client *c, uint64_t serial, const Xp__HelloReply *m)
{
	struct cl_call *call = find_call(c, serial);

	if (!call)
		return;
	call->done = true;
	copy_text(c->daemon_version, sizeof(c->daemon_version), m->version);
	if (m->major != CL_PROTOCOL_MAJOR) {
		call->status = -XFER_E_VERSION;
		snprintf(call->text, sizeof(call->text),
			 "the daemon %.32s speaks protocol %u.%u, this library %s speaks %d.%d",
			 m->version, m->major, m->minor, XFER_VERSION, CL_PROTOCOL_MAJOR,
			 CL_PROTOCOL_MINOR);
	}
	if (m->requests_in_flight_max)
		c->requests.max = xc_min_u32(m->requests_in_flight_max, c->requests.max);
}

static void on_reply(struct xfer_client *c, uint64_t serial, const Xp__Reply *m)
{
	struct cl_call *call = find_call(c, serial);

	if (!call)
		return;
	call->status = m->status > 0 ? -XFER_E_PROTOCOL : m->status;
	call->number = m->number;
	copy_text(call->text, sizeof(call->text), m->text);
	copy_text(call->address, sizeof(call->address), m->address);
	if (call->status == 0 && call->made)
		call->status = call->made(call, c);
	call->done = true;
}

static void on_query_reply(struct xfer_client *c, uint64_t serial, const Xp__QueryReply *m)
{
	struct cl_call *call = find_call(c, serial);

	if (!call)
		return;
	call->status = m->status > 0 ? -XFER_E_PROTOCOL : m->status;
	copy_text(call->text, sizeof(call->text), m->text);
	if (call->status == 0 && call->part)
		call->status = call->part(call, m);
	call->done = true;
}

/* ---- completions */

/* Puts carried bytes where the user wants them, before the completion can be seen. */
static void copy_out(const struct cl_request *r, uint64_t byte_len)
{
	const struct cl_piece *pieces = cl_request_pieces(r);
	uint64_t limit = r->opcode == XP_OP_RECV ? byte_len : UINT64_MAX;

	if (r->opcode != XP_OP_READ && r->opcode != XP_OP_RECV)
		return;
	for (uint32_t i = 0; i < r->n_pieces && pieces[i].position < limit; i++)
		memcpy(pieces[i].user, cl_chunk_data(&r->chunk) + pieces[i].chunk_offset,
		       xc_min_u64(pieces[i].bytes, limit - pieces[i].position));
}

static void fill_completion(struct cl_event *e, const Xp__Completion *m)
{
	e->type = XFER_EVENT_COMPLETION;
	e->status = m->status;
	e->byte_len = m->byte_len;
	e->flags = m->flags & (XFER_HAS_IMMEDIATE | XFER_HAS_INVALIDATED | XFER_HAS_SOLICITED);
	e->immediate = m->immediate;
	e->grant = m->grant;
	if (e->opcode == XP_OP_GRANT)
		e->token = (struct xfer_token){ m->address, (uint32_t)m->byte_len, m->rkey };
	if (m->status)
		e->more = cl_event_more_new(m->text);
}

static void on_untracked(struct xfer_client *c, const Xp__Completion *m)
{
	struct cl_event e = {
		.ep = cl_numbers_get(&c->ep_numbers, m->endpoint),
		.wr_id = m->wr_id,
		.opcode = (uint8_t)m->opcode,
	};

	if (!e.ep || m->status == 0)
		return;
	fill_completion(&e, m);
	push(c, &e);
}

static void on_completion(struct xfer_client *c, const Xp__Completion *m)
{
	struct cl_event e = { 0 };
	struct cl_request *r;
	bool told;

	if (m->status > 0) {
		broken(c, "a completion with a positive status");
		return;
	}
	if (m->cookie & CL_COOKIE_UNTRACKED) {
		on_untracked(c, m);
		return;
	}
	r = cl_request_get(&c->requests, m->cookie);
	if (!r) {
		broken(c, "a completion of a request that is not under way");
		return;
	}
	if (r->ep && m->status == 0)
		copy_out(r, m->byte_len);
	cl_carry_give(&c->carry, &r->chunk);
	e.ep = r->ep;
	e.wr_id = r->wr_id;
	e.opcode = r->opcode;
	told = r->ep && (m->status || !r->quiet);
	cl_request_put(&c->requests, r);
	if (told) {
		fill_completion(&e, m);
		push(c, &e);
	}
}

/* ---- events */

static struct cl_event_more *more_with_data(const char *text, const ProtobufCBinaryData *data)
{
	struct cl_event_more *more = cl_event_more_new(text);

	if (more && data->len) {
		more->private_data_bytes = xc_min_u64(data->len, sizeof(more->private_data));
		memcpy(more->private_data, data->data, more->private_data_bytes);
	}
	return more;
}

static void on_ep_end(struct xfer_ep *ep, int status, const char *text)
{
	ep->ended = true;
	ep->status = status;
	copy_text(ep->text, sizeof(ep->text), text);
}

static void fill_info(struct xfer_ep_info *to, const Xp__EndpointReady *m)
{
	copy_text(to->fabric, sizeof(to->fabric), m->fabric);
	copy_text(to->route, sizeof(to->route), m->route);
	copy_text(to->peer_address, sizeof(to->peer_address), m->peer_address);
	to->max_segments = m->max_segments;
	to->max_message_bytes = m->max_message_bytes;
	to->private_connect_bytes = m->private_connect_bytes;
	to->private_accept_bytes = m->private_accept_bytes;
	to->private_reject_bytes = m->private_reject_bytes;
	to->remote_invalidatable = (m->capabilities & 1) != 0;
	to->immediate = (m->capabilities & 2) != 0;
	to->grant_snapshot = (m->capabilities & 4) != 0;
}

static void on_ready(struct xfer_client *c, const Xp__EndpointReady *m)
{
	struct xfer_ep *ep = cl_numbers_get(&c->ep_numbers, m->endpoint);
	struct cl_event e = { .type = XFER_EVENT_READY, .status = m->status, .ep = ep };

	if (!ep || ep->ready || ep->ended)
		return;
	if (m->status) {
		on_ep_end(ep, m->status, m->text);
		e.more = cl_event_more_new(m->text);
	} else {
		fill_info(&ep->info, m);
		ep->ready = true;
	}
	push(c, &e);
}

static void on_connected(struct xfer_client *c, const Xp__Connected *m)
{
	struct xfer_ep *ep = cl_numbers_get(&c->ep_numbers, m->endpoint);
	struct cl_event e = { .type = XFER_EVENT_CONNECTED, .status = m->status, .ep = ep };

	if (!ep || ep->connected || ep->ended)
		return;
	if (m->status)
		on_ep_end(ep, m->status, m->text);
	else
		ep->connected = true;
	if (m->status || m->private_data.len)
		e.more = more_with_data(m->text, &m->private_data);
	push(c, &e);
}

static void on_disconnected(struct xfer_client *c, const Xp__Disconnected *m)
{
	struct xfer_ep *ep = cl_numbers_get(&c->ep_numbers, m->endpoint);
	struct cl_event e = { .type = XFER_EVENT_DISCONNECTED, .status = m->status, .ep = ep };

	if (!ep || ep->ended)
		return;
	on_ep_end(ep, m->status, m->text);
	if (m->status)
		e.more = cl_event_more_new(m->text);
	push(c, &e);
}

static void on_connect_request(struct xfer_client *c, const Xp__ConnectRequest *m)
{
	struct cl_event e = {
		.type = XFER_EVENT_CONNECT_REQUEST,
		.listener = cl_numbers_get(&c->listener_numbers, m->listener),
		.request = m->request,
		.peer_uid = m->peer_uid,
	};

	if (!e.listener)
		return; /* it was freed meanwhile: the daemon rejects what is not answered */
	e.more = more_with_data("", &m->private_data);
	if (!e.more) {
		cl_gone(c, -ENOMEM, "no memory for the daemon's events");
		return;
	}
	copy_text(e.more->peer_address, sizeof(e.more->peer_address), m->peer_address);
	push(c, &e);
}

static void on_goodbye(struct xfer_client *c, const Xp__Goodbye *m)
{
	int status = m->status < 0 ? m->status : -XFER_E_DAEMON_GONE;

	cl_gone(c, status, "%s", m->text[0] ? m->text : xfer_strerror(status));
}

static void dispatch(struct xfer_client *c, const Xp__DaemonMessage *m)
{
	switch (m->body_case) {
	case XP__DAEMON_MESSAGE__BODY_HELLO_REPLY:
		on_hello_reply(c, m->serial, m->hello_reply);
		break;
	case XP__DAEMON_MESSAGE__BODY_REPLY:
		on_reply(c, m->serial, m->reply);
		break;
	case XP__DAEMON_MESSAGE__BODY_QUERY_REPLY:
		on_query_reply(c, m->serial, m->query_reply);
		break;
	case XP__DAEMON_MESSAGE__BODY_COMPLETIONS:
		for (size_t i = 0; i < m->completions->n_completions && !c->gone; i++)
			on_completion(c, m->completions->completions[i]);
		break;
	case XP__DAEMON_MESSAGE__BODY_ENDPOINT_READY:
		on_ready(c, m->endpoint_ready);
		break;
	case XP__DAEMON_MESSAGE__BODY_CONNECT_REQUEST:
		on_connect_request(c, m->connect_request);
		break;
	case XP__DAEMON_MESSAGE__BODY_CONNECTED:
		on_connected(c, m->connected);
		break;
	case XP__DAEMON_MESSAGE__BODY_DISCONNECTED:
		on_disconnected(c, m->disconnected);
		break;
	case XP__DAEMON_MESSAGE__BODY_GOODBYE:
		on_goodbye(c, m->goodbye);
		break;
	default:
		break; /* of a newer daemon: it asks for nothing that this library has to do */
	}
}

/* ---- packets */

static void on_packet(struct xfer_client *c, size_t size)
{
	Xp__DaemonMessage *m;

	cl_arena_reset(&c->arena);
	m = xp__daemon_message__unpack(&c->arena.allocator, size, c->packet);
	if (m)
		dispatch(c, m);
	else
		broken(c, "a message that cannot be decoded");
}

static void on_end(struct xfer_client *c, ssize_t status)
{
	if (status == 0)
		cl_gone(c, -XFER_E_DAEMON_GONE, "the daemon closed the connection");
	else if (status == -EMSGSIZE)
		broken(c, "a packet of more than 65536 bytes");
	else if (status == -EPROTO)
		broken(c, "an empty packet");
	else
		cl_gone(c, -XFER_E_DAEMON_GONE, "the connection to the daemon failed: %s",
			xfer_strerror((int)status));
}

void cl_receive(struct xfer_client *c, size_t max)
{
	struct xp_fds fds;
	ssize_t size;

	while (!c->gone && c->events.n < max) {
		size = xp_fdmsg_recv(c->sock, c->packet, sizeof(c->packet), &fds);
		for (int i = 0; i < fds.count; i++)
			close(fds.fd[i]); /* this protocol sends none this way */
		if (size > 0) {
			on_packet(c, (size_t)size);
			continue;
		}
		if (size == -EAGAIN)
			break;
		on_end(c, size);
	}
}
