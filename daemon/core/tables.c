/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "daemon/core/tables.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

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
		xd_cell_text(sink, counters[i].name);
		xd_cell_number(sink, xd_core_counter(viewer->core, (enum xd_counter)i));
		xd_cell_text(sink, counters[i].unit);
		xd_cell_text(sink, counters[i].kind);
		xd_cell_text(sink, counters[i].meaning);
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
		xd_cell_text(sink, c->name);
		xd_cell_text(sink, kinds[c->kind]);
		xd_cell_text(sink, c->driver);
		xd_cell_text(sink, keys[c->keys]);
		xd_cell_number(sink, c->max_sge);
		xd_cell_number(sink, c->max_sge_rd);
		xd_cell_number(sink, c->max_recv_sge);
		xd_cell_number(sink, c->max_message_bytes);
		xd_cell_text(sink, c->remote_invalidate ? "yes" : "no");
		xd_cell_text(sink, c->immediate ? "yes" : "no");
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
			xd_cell_text(sink, c->name);
			xd_cell_text(sink, c->facts[at].question);
			xd_cell_text(sink, c->facts[at].asked);
			xd_cell_text(sink, c->facts[at].claimed);
			xd_cell_text(sink, c->facts[at].seen);
			xd_cell_text(sink, c->facts[at].consequence);
		}
	}
	*cursor = 0;
}

/* ------------------------------------------------------------------ quotas */

static const struct xd_column quota_columns[] = {
	{ "who", "", false }, { "id", "", true }, { "limit", "", false },
	{ "used", "", true }, { "of", "", true },
};

/*
 * Accounts are listed by kind and number, for they come and go with their users. The cursor: kind,
 * number, limit.
 */
enum { USERS = 1, GROUPS, TOTAL };
#define KIND_BITS 40
#define LIMIT_BITS 8

/* The account of the least number that is not below this one; NULL: none. */
static const struct xd_account *next_account(const struct xc_list *accounts, uint64_t id)
{
	const struct xd_account *a, *next = NULL;

	xc_list_for_each(a, accounts, link)
		if (a->id >= id && (!next || a->id < next->id))
			next = a;
	return next;
}

/* Rows of one account from a limit on; false: no room. */
static bool write_account(const struct xd_account *a, uint64_t kind, uint64_t limit,
			  uint64_t *cursor, struct xd_table_sink *sink)
{
	static const char *const who[] = { "", "user", "group", "total" };

	for (; limit < XD_LIMIT_COUNT; limit++) {
		if (!sink->row(sink)) {
			*cursor = kind << KIND_BITS | (uint64_t)a->id << LIMIT_BITS | limit;
			return false;
		}
		xd_cell_text(sink, who[kind]);
		xd_cell_number(sink, a->id);
		xd_cell_text(sink, xd_limit_names[limit]);
		xd_cell_number(sink, a->used[limit]);
		xd_cell_number(sink, a->limits.value[limit]);
	}
	return true;
}

/* Those of a kind, from this place on in it; false: no room. */
static bool write_accounts(const struct xd_session *viewer, const struct xc_list *accounts,
			   uint64_t kind, uint64_t from, uint64_t *cursor,
			   struct xd_table_sink *sink)
{
	uint64_t limit = from & ((1u << LIMIT_BITS) - 1), id = from >> LIMIT_BITS;
	const struct xd_account *a;

	for (; (a = next_account(accounts, id)); id = (uint64_t)a->id + 1, limit = 0) {
		if (a->id != id)
			limit = 0; /* that one is gone */
		if (kind == USERS && !xd_may_see(viewer, a->id))
			continue;
		if (!write_account(a, kind, limit, cursor, sink))
			return false;
	}
	return true;
}

static void write_quotas(struct xd_session *viewer, uint64_t *cursor, struct xd_table_sink *sink)
{
	const struct xd_quota *q = &viewer->core->quota;
	uint64_t kind = *cursor >> KIND_BITS, from = *cursor & ((UINT64_C(1) << KIND_BITS) - 1);

	if (kind <= USERS) {
		if (!write_accounts(viewer, &q->users, USERS, from, cursor, sink))
			return;
		from = 0;
	}
	if (kind <= GROUPS && viewer->admin) {
		if (!write_accounts(viewer, &q->groups, GROUPS, from, cursor, sink))
			return;
		from = 0;
	}
	if (viewer->admin && !write_account(&q->total, TOTAL, from, cursor, sink))
		return;
	*cursor = 0;
}

/* ------------------------------------------------------------------ the way in */

static const struct xd_table status = XD_TABLE("status", status_columns, write_status);
static const struct xd_table devices = XD_TABLE("devices", device_columns, write_devices);
static const struct xd_table device_facts =
	XD_TABLE("device-facts", device_fact_columns, write_device_facts);
static const struct xd_table quotas = XD_TABLE("quotas", quota_columns, write_quotas);

static const struct xd_table *const tables[] = {
	&status,	     &devices,		 &device_facts,	   &xd_table_sessions,
	&xd_table_endpoints, &xd_table_buffers,	 &xd_table_listeners, &xd_table_grants,
	&xd_table_keys,	     &xd_table_key_history, &xd_table_plans,	  &xd_table_pools,
	&quotas,	     &xd_table_explain,	    &xd_table_costs,
};

static int answer(const struct xd_table *t, struct xd_session *s,
		  const struct xd_question *question, uint64_t *cursor, struct xd_table_sink *sink,
		  char *ret_why)
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

static int no_such_table(char *ret_why)
{
	int at = snprintf(ret_why, XD_TEXT_MAX, "there is no table of that name; there are");

	for (size_t i = 0; i < XC_ARRAY_SIZE(tables); i++)
		at += snprintf(ret_why + at, (size_t)(XD_TEXT_MAX - at), "%s%s",
			       i == 0			       ? " " :
			       i + 1 == XC_ARRAY_SIZE(tables) ? " and " :
								 ", ",
			       tables[i]->name);
	return -ENOENT;
}

int xd_session_query(struct xd_session *s, const char *name, const char *const *arguments,
		     size_t n_arguments, uint64_t *cursor, const struct xd_column **ret_columns,
		     size_t *ret_n_columns, struct xd_table_sink *sink, char *ret_why)
{
	const struct xd_question question = { .arguments = arguments, .n_arguments = n_arguments };

	for (size_t i = 0; i < XC_ARRAY_SIZE(tables); i++) {
		if (strcmp(tables[i]->name, name) != 0)
			continue;
		*ret_columns = tables[i]->columns;
		*ret_n_columns = tables[i]->n_columns;
		return answer(tables[i], s, &question, cursor, sink, ret_why);
	}
	return no_such_table(ret_why);
}
