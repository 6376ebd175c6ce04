/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "daemon/core/buffer.h"
#include "daemon/core/endpoint.h"
#include "daemon/core/grant.h"

/*
 * What the daemon shows of itself: tables of rows that an administrator sees whole, and a client as
 * far as it is its user's. No keys, no addresses of memory.
 */

struct question {
	const char *const *arguments;
	size_t n_arguments;
};

struct table {
	const char *name;
	const struct xd_column *columns;
	size_t n_columns;
	/* Writes rows from *cursor on; leaves *cursor at the row that found no room, or 0 at the
	 * end. */
	void (*write)(struct xd_session *viewer, uint64_t *cursor, struct xd_table_sink *sink);
	/*
	 * Instead, of a table that takes arguments: 0, or -EINVAL with ret_why, and then no row was
	 * begun.
	 */
	int (*answer)(struct xd_session *viewer, const struct question *question, uint64_t *cursor,
		      struct xd_table_sink *sink, char *ret_why);
};

static bool may_see(const struct xd_session *viewer, uint32_t uid)
{
	return viewer->admin || viewer->uid == uid;
}

static void text(struct xd_table_sink *sink, const char *value)
{
	sink->text(sink, value);
}

static void number(struct xd_table_sink *sink, uint64_t value)
{
	sink->number(sink, value);
}

static void address(struct xd_table_sink *sink, const struct xc_addr *a)
{
	char buf[XC_ADDR_TEXT_MAX];

	sink->text(sink, a->family ? xc_addr_format(a, buf) : "");
}

/* ------------------------------------------------------------------ status */

static const struct xd_column status_columns[] = {
	{ "name", "", false }, { "value", "", true },	 { "unit", "", false },
	{ "kind", "", false }, { "meaning", "", false },
};

static const struct {
	const char *name, *kind, *unit, *meaning;
} counters[XD_COUNTER_COUNT] = {
#define XP_COUNTER(name, kind, unit, text) { #name, #kind, unit, text },
#include "proto/counters.def"
#undef XP_COUNTER
};

static void write_status(struct xd_session *viewer, uint64_t *cursor, struct xd_table_sink *sink)
{
	for (uint64_t i = *cursor; i < XD_COUNTER_COUNT; i++) {
		if (!sink->row(sink)) {
			*cursor = i;
			return;
		}
		text(sink, counters[i].name);
		number(sink, xd_core_counter(viewer->core, (enum xd_counter)i));
		text(sink, counters[i].unit);
		text(sink, counters[i].kind);
		text(sink, counters[i].meaning);
	}
	*cursor = 0;
}

/* ------------------------------------------------------------------ devices */

static const struct xd_column device_columns[] = {
	{ "name", "", false },	       { "kind", "", false },
	{ "driver", "", false },       { "keys", "", false },
	{ "max_sge", "1", true },      { "max_sge_rd", "1", true },
	{ "max_recv_sge", "1", true }, { "max_message", "bytes", true },
	{ "invalidate", "", false },   { "immediate", "", false },
};

static void write_devices(struct xd_session *viewer, uint64_t *cursor, struct xd_table_sink *sink)
{
	static const char *const kinds[] = { "iwarp (software)", "iwarp", "roce", "infiniband" };
	static const char *const keys[] = { "window", "mr", "slab" };
	const struct xd_core *core = viewer->core;

	for (uint64_t i = *cursor; i < core->n_fabrics; i++) {
		const struct fabric_caps *c = &core->caps[i];

		if (!sink->row(sink)) {
			*cursor = i;
			return;
		}
		text(sink, c->name);
		text(sink, kinds[c->kind]);
		text(sink, c->driver);
		text(sink, keys[c->keys]);
		number(sink, c->max_sge);
		number(sink, c->max_sge_rd);
		number(sink, c->max_recv_sge);
		number(sink, c->max_message_bytes);
		text(sink, c->remote_invalidate ? "yes" : "no");
		text(sink, c->immediate ? "yes" : "no");
	}
	*cursor = 0;
}

/* What devices were seen to do. The cursor: the fabric's number above the fact's. */
static const struct xd_column device_fact_columns[] = {
	{ "device", "", false },  { "question", "", false }, { "asked", "", false },
	{ "claimed", "", false }, { "seen", "", false },     { "consequence", "", false },
};

static void write_device_facts(struct xd_session *viewer, uint64_t *cursor,
			       struct xd_table_sink *sink)
{
	const struct xd_core *core = viewer->core;
	uint32_t at = (uint32_t)*cursor;

	for (uint64_t i = *cursor >> 32; i < core->n_fabrics; i++, at = 0) {
		const struct fabric_caps *c = &core->caps[i];

		for (; at < c->n_facts; at++) {
			if (!sink->row(sink)) {
				*cursor = i << 32 | at;
				return;
			}
			text(sink, c->name);
			text(sink, c->facts[at].question);
			text(sink, c->facts[at].asked);
			text(sink, c->facts[at].claimed);
			text(sink, c->facts[at].seen);
			text(sink, c->facts[at].consequence);
		}
	}
	*cursor = 0;
}

/* ------------------------------------------------------------------ sessions and what they own */

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

		if (s->number < *cursor >> SLOT_BITS || !may_see(viewer, s->uid))
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
		if (s->number < *cursor || !may_see(viewer, s->uid))
			continue;
		if (!sink->row(sink)) {
			*cursor = s->number;
			return;
		}
		number(sink, s->number);
		number(sink, s->uid);
		number(sink, (uint64_t)(s->pid > 0 ? s->pid : 0));
		text(sink, s->name);
		text(sink, s->admin ? "admin" : "client");
		number(sink, s->live_buffers);
		number(sink, s->live_endpoints);
		number(sink, s->live_listeners);
		number(sink, s->unfinished);
		text(sink, xd_session_ending(s) ? "ending" : s->greeted ? "open" : "new");
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

	number(sink, s->number);
	number(sink, s->uid);
	number(sink, ep->number);
	text(sink, states[ep->state]);
	text(sink, s->core->caps[ep->fabric].name);
	address(sink, &ep->peer);
	number(sink, ep->n_grants);
	number(sink, ep->sq_tail - ep->sq_head);
	number(sink, ep->rq_tail - ep->rq_head);
	text(sink, ep->route);
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

	number(sink, s->number);
	number(sink, s->uid);
	number(sink, b->number);
	number(sink, b->size_bytes);
	number(sink, b->pinned_bytes);
	number(sink, b->users);
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

	number(sink, s->number);
	number(sink, s->uid);
	number(sink, l->number);
	address(sink, &l->at);
	text(sink, listener_fabrics(s->core, l, names));
	number(sink, l->n_requests);
	number(sink, l->backlog);
}

static void write_listeners(struct xd_session *viewer, uint64_t *cursor, struct xd_table_sink *sink)
{
	for_objects(viewer, cursor, sink, offsetof(struct xd_session, listeners), write_listener);
}

static const struct xd_column grant_columns[] = {
	{ "session", "", true },     { "uid", "", true },     { "grant", "", true },
	{ "endpoint", "", true },    { "buffer", "", true },  { "offset", "bytes", true },
	{ "length", "bytes", true }, { "access", "", false }, { "state", "", false },
};

static void write_grant(const struct xd_session *s, const void *object, struct xd_table_sink *sink)
{
	static const char *const states[] = { "binding", "live", "revoking", "ending" };
	const struct xd_grant *g = object;

	number(sink, s->number);
	number(sink, s->uid);
	number(sink, g->number);
	number(sink, g->endpoint->number);
	number(sink, g->buffer->number);
	number(sink, g->offset);
	number(sink, g->length);
	text(sink, g->write ? "write" : "read");
	text(sink, states[g->state]);
}

static void write_grants(struct xd_session *viewer, uint64_t *cursor, struct xd_table_sink *sink)
{
	for_objects(viewer, cursor, sink, offsetof(struct xd_session, grants), write_grant);
}

/* ------------------------------------------------------------------ quotas */

static const struct xd_column quota_columns[] = {
	{ "who", "", false }, { "id", "", true }, { "limit", "", false },
	{ "used", "", true }, { "of", "", true },
};

/* Rows of one account; *row counts over all accounts. False: no room. */
static bool write_account(const struct xd_account *a, const char *who, uint64_t *row,
			  uint64_t *cursor, struct xd_table_sink *sink)
{
	for (int i = 0; i < XD_LIMIT_COUNT; i++, ++*row) {
		if (*row < *cursor)
			continue;
		if (!sink->row(sink)) {
			*cursor = *row;
			return false;
		}
		text(sink, who);
		number(sink, a->id);
		text(sink, xd_limit_names[i]);
		number(sink, a->used[i]);
		number(sink, a->limits.value[i]);
	}
	return true;
}

static void write_quotas(struct xd_session *viewer, uint64_t *cursor, struct xd_table_sink *sink)
{
	const struct xd_quota *q = &viewer->core->quota;
	const struct xd_account *a;
	uint64_t row = 0;

	xc_list_for_each(a, &q->users, link)
		if (may_see(viewer, a->id) && !write_account(a, "user", &row, cursor, sink))
			return;
	if (viewer->admin) {
		xc_list_for_each(a, &q->groups, link)
			if (!write_account(a, "group", &row, cursor, sink))
				return;
		if (!write_account(&q->total, "total", &row, cursor, sink))
			return;
	}
	*cursor = 0;
}

/* ------------------------------------------------------------------ the way in */

#define TABLE(name, stem)                                                                          \
	{                                                                                          \
		name, stem##_columns, XC_ARRAY_SIZE(stem##_columns), write_##stem##s, NULL         \
	}

static const struct table tables[] = {
	{ "status", status_columns, XC_ARRAY_SIZE(status_columns), write_status, NULL },
	TABLE("devices", device),
	TABLE("device-facts", device_fact),
	TABLE("sessions", session),
	TABLE("endpoints", endpoint),
	TABLE("buffers", buffer),
	TABLE("listeners", listener),
	TABLE("grants", grant),
	TABLE("quotas", quota),
};

static int answer(const struct table *t, struct xd_session *s, const struct question *question,
		  uint64_t *cursor, struct xd_table_sink *sink, char *ret_why)
{
	if (t->answer)
		return t->answer(s, question, cursor, sink, ret_why);
	if (question->n_arguments) {
		snprintf(ret_why, XD_TEXT_MAX, "the table %s takes no arguments, has %zu", t->name,
			 question->n_arguments);
		return -EINVAL;
	}
	t->write(s, cursor, sink);
	return 0;
}

int xd_session_query(struct xd_session *s, const char *name, const char *const *arguments,
		     size_t n_arguments, uint64_t *cursor, const struct xd_column **ret_columns,
		     size_t *ret_n_columns, struct xd_table_sink *sink, char *ret_why)
{
	const struct question question = { .arguments = arguments, .n_arguments = n_arguments };

	for (size_t i = 0; i < XC_ARRAY_SIZE(tables); i++) {
		if (strcmp(tables[i].name, name) != 0)
			continue;
		*ret_columns = tables[i].columns;
		*ret_n_columns = tables[i].n_columns;
		return answer(&tables[i], s, &question, cursor, sink, ret_why);
	}
	snprintf(
		ret_why, XD_TEXT_MAX,
		"there is no table of that name; there are status, devices, device-facts, sessions, endpoints, buffers, listeners, grants and quotas");
	return -ENOENT;
}
