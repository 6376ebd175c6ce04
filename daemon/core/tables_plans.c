/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include <stdio.h>

#include "daemon/core/explain.h"
#include "daemon/core/explained.h"
#include "daemon/core/tables.h"

/* What the planner goes by, what it would do with a transfer, and what it did with those that asked
 * for that. */

/* ------------------------------------------------------------------ costs */

static const struct xd_column cost_columns[] = {
	{ "device", "", false },	 { "work_request", "ns", true },
	{ "reg", "ns", true },		 { "reg_page", "ns", true },
	{ "ranges", "ns", true },	 { "range", "ns", true },
	{ "bind", "ns", true },		 { "copy", "ns", true },
	{ "copy_kib", "ns", true },	 { "copy_cold_kib", "ns", true },
	{ "max_inline", "bytes", true }, { "max_ranges", "1", true },
};

static void write_costs(struct xd_session *viewer, uint64_t *cursor, struct xd_table_sink *sink)
{
	const struct xd_core *core = viewer->core;

	for (uint64_t i = *cursor; i < core->n_fabrics; i++) {
		const struct fabric_caps *caps = &core->caps[i];
		const struct fabric_costs *c = &caps->costs;
		const uint32_t values[] = { c->wr_ns,	   c->reg_ns,	   c->reg_page_ns,
					    c->ranges_ns,  c->range_ns,	   c->bind_ns,
					    c->copy_ns,	   c->copy_kib_ns, c->copy_cold_kib_ns,
					    caps->max_inline, caps->max_ranges };

		if (!sink->row(sink)) {
			*cursor = i;
			return;
		}
		xd_cell_text(sink, caps->name);
		for (size_t v = 0; v < XC_ARRAY_SIZE(values); v++)
			xd_cell_number(sink, values[v]);
	}
	*cursor = 0;
}

const struct xd_table xd_table_costs = XD_TABLE("costs", cost_columns, write_costs);

/* ------------------------------------------------------------------ explain */

static const struct xd_column explain_columns[] = {
	{ "rung", "", false }, { "taken", "", false },	{ "work_requests", "1", true },
	{ "keys", "1", true }, { "price", "ns", true }, { "verdict", "", false },
	{ "why", "", false },
};

static int answer_explain(struct xd_session *viewer, const struct xd_question *q, uint64_t *cursor,
			  struct xd_table_sink *sink, char *ret_why)
{
	struct xd_explanation e;
	int r = xd_explain(viewer->core, q->arguments, q->n_arguments, &e, ret_why);

	if (r < 0)
		return r;
	for (uint64_t i = *cursor; i < XD_RUNG_COUNT; i++) {
		const struct xd_thought *t = &e.thoughts.of[i];

		if (!sink->row(sink)) {
			*cursor = i;
			return 0;
		}
		xd_cell_text(sink, xd_rung_names[i]);
		xd_cell_text(sink, t->verdict == XD_VERDICT_TAKEN ? "yes" : "no");
		xd_cell_number(sink, t->wrs);
		xd_cell_number(sink, t->keys);
		xd_cell_number(sink, t->ns);
		xd_cell_text(sink, xd_verdict_names[t->verdict]);
		xd_cell_text(sink, e.text[i]);
	}
	*cursor = 0;
	return 0;
}

const struct xd_table xd_table_explain = {
	.name = "explain",
	.columns = explain_columns,
	.n_columns = XC_ARRAY_SIZE(explain_columns),
	.answer = answer_explain,
};

/* ------------------------------------------------------------------ plans */

static const struct xd_column plan_columns[] = {
	{ "session", "", true },    { "uid", "", true },	   { "number", "", true },
	{ "wr_id", "", true },	    { "endpoint", "", true },	   { "fabric", "", false },
	{ "operation", "", false }, { "bytes", "bytes", true },	   { "local", "1", true },
	{ "remote", "1", true },    { "rung", "", false },	   { "work_requests", "1", true },
	{ "keys", "1", true },	    { "predicted", "ns", true },   { "took", "ns", true },
	{ "status", "", true },	    { "why", "", false },
};

static const char *operation(uint8_t opcode)
{
	static const char *const names[] = { "READ", "WRITE", "SEND", "RECV" };

	return names[opcode - XP_OP_READ];
}

/* Why each of the other rungs was not taken. */
static void write_why(const struct xd_explained *e, struct xd_table_sink *sink)
{
	char text[XD_RUNG_COUNT * (XD_THOUGHT_TEXT_MAX + 16)], one[XD_THOUGHT_TEXT_MAX];
	size_t at = 0;

	text[0] = '\0';
	for (int i = 0; i < XD_RUNG_COUNT; i++) {
		const struct xd_thought *t = &e->thoughts.of[i];

		if (t->verdict == XD_VERDICT_TAKEN)
			continue;
		xd_thought_text(&e->shape, (enum xd_rung)i, t, one, sizeof(one));
		at += (size_t)snprintf(text + at, sizeof(text) - at, "%s%s: %s", at ? "; " : "",
				       xd_rung_names[i], one);
	}
	xd_cell_text(sink, text);
}

static void write_plan(const struct xd_session *s, const struct xd_explained *e,
		       struct xd_table_sink *sink)
{
	xd_cell_number(sink, s->number);
	xd_cell_number(sink, s->uid);
	xd_cell_number(sink, e->serial);
	xd_cell_number(sink, e->wr_id);
	xd_cell_number(sink, e->endpoint);
	xd_cell_text(sink, s->core->caps[e->fabric].name);
	xd_cell_text(sink, operation(e->shape.opcode));
	xd_cell_number(sink, e->bytes);
	xd_cell_number(sink, e->shape.n_local);
	xd_cell_number(sink, e->shape.n_remote);
	xd_cell_text(sink, xd_rung_names[e->plan.rung]);
	xd_cell_number(sink, e->plan.wrs);
	xd_cell_number(sink, e->plan.keys);
	xd_cell_number(sink, e->plan.ns);
	xd_cell_number(sink, e->actual_ns);
	xd_cell_number(sink, (uint64_t)-(int64_t)e->status);
	write_why(e, sink);
}

/* The cursor: the session's number above the serial in it. */
#define SERIAL_BITS 32

static void write_plans(struct xd_session *viewer, uint64_t *cursor, struct xd_table_sink *sink)
{
	const uint64_t mask = (UINT64_C(1) << SERIAL_BITS) - 1;
	struct xd_session *s;

	xc_list_for_each(s, &viewer->core->sessions, link) {
		const struct xd_explained *e;
		uint64_t serial = 1;

		if (s->number < *cursor >> SERIAL_BITS || !xd_may_see(viewer, s->uid))
			continue;
		if (s->number == *cursor >> SERIAL_BITS)
			serial = *cursor & mask;
		while ((e = xd_explained_from(s, serial))) {
			if (!sink->row(sink)) {
				*cursor = s->number << SERIAL_BITS | e->serial;
				return;
			}
			write_plan(s, e, sink);
			serial = e->serial + 1;
		}
	}
	*cursor = 0;
}

const struct xd_table xd_table_plans = XD_TABLE("plans", plan_columns, write_plans);
