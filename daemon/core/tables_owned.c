/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include <stdio.h>

#include "daemon/core/buffer.h"
#include "daemon/core/endpoint.h"
#include "daemon/core/grant.h"
#include "daemon/core/tables.h"

/* Tables of sessions and of what they own. */

/*
 * The cursor of tables of sessions' objects: the session's number, above the slot to go on from.
 * Sessions are listed in the order of their numbers, so that one that went in between hides no
 * other.
 */
#define SLOT_BITS 21
#define SLOT_MASK ((UINT64_C(1) << SLOT_BITS) - 1)

static void for_objects(struct xd_session *viewer, uint64_t *cursor, struct xd_table_sink *sink,
			size_t table_offset,
			void (*write)(const struct xd_session *s, const void *object,
				      struct xd_table_sink *sink))
{
	struct xd_session *s;

	xc_list_for_each(s, &viewer->core->sessions, link) {
		const struct xc_slots *slots =
			(const struct xc_slots *)(const void *)((const char *)s + table_offset);
		uint32_t at = 0;
		const void *object;

		if (s->number < *cursor >> SLOT_BITS || !xd_may_see(viewer, s->uid))
			continue;
		if (s->number == *cursor >> SLOT_BITS)
			at = (uint32_t)(*cursor & SLOT_MASK);
		while ((object = xc_slots_next(slots, &at))) {
			if (!sink->row(sink)) {
				*cursor = s->number << SLOT_BITS | (at - 1);
				return;
			}
			write(s, object, sink);
		}
	}
	*cursor = 0;
}

static const struct xd_column session_columns[] = {
	{ "session", "", true },    { "uid", "", true },	{ "pid", "", true },
	{ "name", "", false },	    { "socket", "", false },	{ "buffers", "1", true },
	{ "endpoints", "1", true }, { "listeners", "1", true }, { "unfinished", "1", true },
	{ "state", "", false },
};

static void write_sessions(struct xd_session *viewer, uint64_t *cursor, struct xd_table_sink *sink)
{
	struct xd_session *s;

	xc_list_for_each(s, &viewer->core->sessions, link) {
		if (s->number < *cursor || !xd_may_see(viewer, s->uid))
			continue;
		if (!sink->row(sink)) {
			*cursor = s->number;
			return;
		}
		xd_cell_number(sink, s->number);
		xd_cell_number(sink, s->uid);
		xd_cell_number(sink, (uint64_t)(s->pid > 0 ? s->pid : 0));
		xd_cell_text(sink, s->name);
		xd_cell_text(sink, s->admin ? "admin" : "client");
		xd_cell_number(sink, s->live_buffers);
		xd_cell_number(sink, s->live_endpoints);
		xd_cell_number(sink, s->live_listeners);
		xd_cell_number(sink, s->unfinished);
		xd_cell_text(sink, xd_session_ending(s) ? "ending" : s->greeted ? "open" : "new");
	}
	*cursor = 0;
}

static const struct xd_column endpoint_columns[] = {
	{ "session", "", true }, { "uid", "", true },	      { "endpoint", "", true },
	{ "state", "", false },	 { "fabric", "", false },     { "peer", "", false },
	{ "grants", "1", true }, { "send_queue", "1", true }, { "recv_queue", "1", true },
	{ "route", "", false },
};

static void write_endpoint(const struct xd_session *s, const void *object,
			   struct xd_table_sink *sink)
{
	static const char *const states[] = { "resolving", "creating", "ready", "connecting",
					      "connected", "ending",   "ended" };
	const struct xd_endpoint *ep = object;

	xd_cell_number(sink, s->number);
	xd_cell_number(sink, s->uid);
	xd_cell_number(sink, ep->number);
	xd_cell_text(sink, states[ep->state]);
	xd_cell_text(sink, s->core->caps[ep->fabric].name);
	xd_cell_address(sink, &ep->peer);
	xd_cell_number(sink, ep->n_grants);
	xd_cell_number(sink, ep->sq_tail - ep->sq_head);
	xd_cell_number(sink, ep->rq_tail - ep->rq_head);
	xd_cell_text(sink, ep->route);
}

static void write_endpoints(struct xd_session *viewer, uint64_t *cursor, struct xd_table_sink *sink)
{
	for_objects(viewer, cursor, sink, offsetof(struct xd_session, endpoints), write_endpoint);
}

static const struct xd_column buffer_columns[] = {
	{ "session", "", true },   { "uid", "", true },		{ "buffer", "", true },
	{ "size", "bytes", true }, { "pinned", "bytes", true }, { "users", "1", true },
};

static void write_buffer(const struct xd_session *s, const void *object, struct xd_table_sink *sink)
{
	const struct xd_buffer *b = object;

	xd_cell_number(sink, s->number);
	xd_cell_number(sink, s->uid);
	xd_cell_number(sink, b->number);
	xd_cell_number(sink, b->size_bytes);
	xd_cell_number(sink, b->pinned_bytes);
	xd_cell_number(sink, b->users);
}

static void write_buffers(struct xd_session *viewer, uint64_t *cursor, struct xd_table_sink *sink)
{
	for_objects(viewer, cursor, sink, offsetof(struct xd_session, buffers), write_buffer);
}

static const struct xd_column listener_columns[] = {
	{ "session", "", true },  { "uid", "", true },	   { "listener", "", true },
	{ "address", "", false }, { "fabric", "", false }, { "requests", "1", true },
	{ "backlog", "1", true },
};

static const char *listener_fabrics(const struct xd_core *core, const struct xd_listener *l,
				    char names[static XD_FABRICS_MAX * (FABRIC_NAME_MAX + 1)])
{
	size_t at = 0;

	for (uint32_t i = 0; i < l->n_ears; i++)
		at += (size_t)sprintf(names + at, "%s%s", i ? " " : "",
				      core->caps[l->ears[i].fabric].name);
	return names;
}

static void write_listener(const struct xd_session *s, const void *object,
			   struct xd_table_sink *sink)
{
	const struct xd_listener *l = object;
	char names[XD_FABRICS_MAX * (FABRIC_NAME_MAX + 1)] = "";

	xd_cell_number(sink, s->number);
	xd_cell_number(sink, s->uid);
	xd_cell_number(sink, l->number);
	xd_cell_address(sink, &l->at);
	xd_cell_text(sink, listener_fabrics(s->core, l, names));
	xd_cell_number(sink, l->n_requests);
	xd_cell_number(sink, l->backlog);
}

static void write_listeners(struct xd_session *viewer, uint64_t *cursor, struct xd_table_sink *sink)
{
	for_objects(viewer, cursor, sink, offsetof(struct xd_session, listeners), write_listener);
}

static const struct xd_column grant_columns[] = {
	{ "session", "", true },     { "uid", "", true },	  { "grant", "", true },
	{ "endpoint", "", true },    { "peer", "", false },	  { "buffer", "", true },
	{ "offset", "bytes", true }, { "length", "bytes", true }, { "access", "", false },
	{ "state", "", false },	     { "carrier", "", false },	  { "key", "", true },
	{ "lifetime", "ms", true },  { "left", "ms", true },
};

/* What it has left of its life; 0 too where it lives as long as its endpoint. */
static uint64_t left_ms(const struct xd_grant *g)
{
	uint64_t now = xd_now(g->session->core);

	return g->deadline_ns > now ? (g->deadline_ns - now) / XD_NS_PER_MS : 0;
}

static void write_grant(const struct xd_session *s, const void *object, struct xd_table_sink *sink)
{
	static const char *const states[] = { "binding", "live", "revoking", "ending" };
	const struct xd_grant *g = object;
	bool has_key = g->audit.state != XD_AUDIT_FREE;

	xd_cell_number(sink, s->number);
	xd_cell_number(sink, s->uid);
	xd_cell_number(sink, g->number);
	xd_cell_number(sink, g->endpoint->number);
	xd_cell_address(sink, &g->endpoint->peer);
	xd_cell_number(sink, g->buffer->number);
	xd_cell_number(sink, g->offset);
	xd_cell_number(sink, g->length);
	xd_cell_text(sink, g->write ? "write" : "read");
	xd_cell_text(sink, states[g->state]);
	xd_cell_text(sink, has_key ? xd_audit_kind_name(g->audit.of.kind) : "");
	xd_cell_number(sink, has_key ? g->audit.number : 0);
	xd_cell_number(sink, g->lifetime_ms);
	xd_cell_number(sink, left_ms(g));
}

static void write_grants(struct xd_session *viewer, uint64_t *cursor, struct xd_table_sink *sink)
{
	for_objects(viewer, cursor, sink, offsetof(struct xd_session, grants), write_grant);
}

/* ------------------------------------------------------------------ by name */

const struct xd_table xd_table_sessions = XD_TABLE("sessions", session_columns, write_sessions);
const struct xd_table xd_table_endpoints = XD_TABLE("endpoints", endpoint_columns, write_endpoints);
const struct xd_table xd_table_buffers = XD_TABLE("buffers", buffer_columns, write_buffers);
const struct xd_table xd_table_listeners = XD_TABLE("listeners", listener_columns, write_listeners);
const struct xd_table xd_table_grants = XD_TABLE("grants", grant_columns, write_grants);
