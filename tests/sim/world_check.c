/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What must be true after every step, and what must be true at rest. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/core/plan.h"
#include "tests/sim/world.h"

/* ---- keys (I1, I2, I5) */

static bool fits(const struct fake_key *k, const struct w_grant *g)
{
	int access = g->write ? IBV_ACCESS_REMOTE_WRITE : IBV_ACCESS_REMOTE_READ;

	const struct w_range *r = &g->ranges[g->snapshot ? 0 : k->range];
	uint64_t before = 0;

	if (k->access != access || k->ep_tag != g->ep->tag || k->total != g->length)
		return false;
	if (g->snapshot)
		return k->fd < 0 && k->ranges == 1 && k->length == g->length;
	/* Range by range, in order. */
	if (k->ranges != g->n_ranges || k->fd != r->buffer->fd || k->offset != r->offset ||
	    k->length != r->length)
		return false;
	for (uint32_t i = 0; i < k->range; i++)
		before += g->ranges[i].length;
	sim_check(!g->rkey || g->rkey != k->rkey || k->iova == g->address + before, "I1",
		  "a token of another place");
	return true;
}

/* Where the sinks of READs must be writable the endpoint's own peer may write there, no other. */
static bool is_sink(const struct w_ep *ep, const struct fake_key *k)
{
	return ep && ep->caps.read_sink_remote_write && k->fd < 0 && k->whole &&
	       k->access == IBV_ACCESS_REMOTE_WRITE;
}

/* Does this request use all of these bytes? */
static bool uses(const struct w_request *q, int fd, uint64_t offset, uint64_t length)
{
	uint64_t at = offset;

	for (uint32_t i = 0; i < q->n_ranges && at < offset + length; i++) {
		const struct w_range *r = &q->ranges[i];

		if (r->buffer->fd != fd || at < r->offset || at >= r->offset + r->length)
			continue;
		at = r->offset + r->length;
		i = UINT32_MAX; /* from the first again */
	}
	return at >= offset + length;
}

/* A key to the memory of a READ under way, where that must be writable. */
static bool is_own_sink(const struct w_ep *ep, const struct fake_key *k)
{
	struct w_request *q;

	if (!ep || !ep->caps.read_sink_remote_write || k->access != IBV_ACCESS_REMOTE_WRITE)
		return false;
	xc_list_for_each(q, &ep->session->requests, link)
		if (q->ep == ep && q->r.opcode == XP_OP_READ &&
		    uses(q, k->fd, k->offset, k->length))
			return true;
	return false;
}

static const struct w_range *near(const struct w_grant *g, const struct fake_key *k)
{
	for (uint32_t i = 0; i < g->n_ranges && g->life != W_GONE; i++)
		if (k->fd == g->ranges[i].buffer->fd &&
		    k->offset < g->ranges[i].offset + g->ranges[i].length &&
		    g->ranges[i].offset < k->offset + k->length)
			return &g->ranges[i];
	return NULL;
}

static void check_key(void *ctx, const struct fake_key *k)
{
	struct world *w = ctx;
	const struct w_range *close = NULL;
	struct w_grant *g;

	xc_list_for_each(g, &w->grants, link) {
		close = near(g, k) ? near(g, k) : close;
		if (g->life == W_GONE || !fits(k, g) || (g->rkey && g->rkey != k->rkey))
			continue;
		g->seen = true;
		return;
	}
	if (is_sink(w_ep_by_tag(w, k->ep_tag), k) || is_own_sink(w_ep_by_tag(w, k->ep_tag), k))
		return;
	sim_broken(close ? "I1" : "I2",
		   "a key reaches %llu bytes at %llu of memory %d on ep %llu (access %d); "
		   "the nearest grant has %u at %llu",
		   (unsigned long long)k->length, (unsigned long long)k->offset, k->fd,
		   (unsigned long long)k->ep_tag, k->access, close ? close->length : 0,
		   close ? (unsigned long long)close->offset : 0);
}

static bool connected(struct world *w, uint64_t tag)
{
	for (uint32_t i = 0; i < w->n_fabrics; i++)
		if (fake_fabric_connected(w->fabrics[i], tag))
			return true;
	return false;
}

static void check_keys(struct world *w)
{
	struct w_grant *g;

	xc_list_for_each(g, &w->grants, link)
		g->seen = false;
	for (uint32_t i = 0; i < w->n_fabrics; i++)
		fake_fabric_keys(w->fabrics[i], check_key, w);
	xc_list_for_each(g, &w->grants, link)
		sim_check(g->seen || g->life != W_LIVE || w_grant_uncertain(w, g) ||
				  w_excused(w, g->ep) || !connected(w, g->ep->tag),
			  "I5", "grant %u of ep %llu (session %llu) is live and its key is not",
			  g->number,
			  (unsigned long long)g->ep->tag, (unsigned long long)g->session->number);
}

/* ---- connections (I8) */

static void killed(void *ctx, uint64_t tag)
{
	struct world *w = ctx;
	struct w_ep *ep = w_ep_by_tag(w, tag);

	if (!ep || w_excused(w, ep))
		return;
	sim_broken("I8", "the core ended the connection of ep %llu for no reason",
		   (unsigned long long)tag);
}

/* ---- sessions */

static bool may_fail(struct world *w, struct w_session *s)
{
	struct w_buffer *b;

	xc_list_for_each(b, &s->buffers, link)
		if (fake_memory_faulted(b->fd))
			return true;
	return s->unruly || w->draining;
}

static void check_session(struct world *w, struct w_session *s)
{
	sim_check(!s->gone, "I7", "session_gone() for a session that is open");
	if (xd_session_failed(s->s))
		sim_check(may_fail(w, s), "I4", "session %llu failed for no reason",
			  (unsigned long long)s->number);
	sim_check(s->output || xd_session_peek(s->s) == XD_OUT_NONE, "I7",
		  "output waits that the engine was not told of");
}

static void check_dead(struct world *w)
{
	struct w_session *s;

	xc_list_for_each(s, &w->dead_sessions, link) {
		if (!s->gone || s->closed_step == UINT64_MAX)
			continue;
		s->closed_step = UINT64_MAX;
		w_session_over(w, s);
	}
}

/* ---- memory */

static void check_buffers(struct xc_list *sessions, uint64_t most_bytes)
{
	struct w_session *s;

	xc_list_for_each(s, sessions, link) {
		for (struct xc_list *l = s->buffers.next; l != &s->buffers; l = l->next) {
			struct w_buffer *b = xc_container_of(l, struct w_buffer, link);

			if (b->size <= most_bytes)
				w_check_memory(b);
		}
	}
}

void w_check(struct world *w)
{
	struct w_session *s;

	check_dead(w);
	check_keys(w);
	w_check_audit(w, false);
	w_check_turns(w);
	w_check_prices(w);
	for (uint32_t i = 0; i < w->n_fabrics; i++)
		fake_fabric_killed(w->fabrics[i], killed, w);
	xc_list_for_each(s, &w->sessions, link)
		check_session(w, s);
	/* Large ones take their time. */
	if (sim.step % 16 == 0)
		check_buffers(&w->sessions, sim.step % 128 ? 65536 : UINT64_MAX);
	if (sim.step % 256 == 0)
		check_buffers(&w->dead_sessions, UINT64_MAX);
}

/* ---- tables */

#define CELL_MAX 128

/* A table as read, row after row. */
struct table {
	struct xd_table_sink sink;
	uint32_t n_columns, n_cells, space, rows, room;
	char (*cells)[CELL_MAX];
};

static char *new_cell(struct table *t)
{
	if (t->n_cells == t->space) {
		t->space = 2 * t->space + 64;
		t->cells = reallocarray(t->cells, t->space, CELL_MAX);
	}
	return t->cells[t->n_cells++];
}

static bool row(struct xd_table_sink *sink)
{
	struct table *t = xc_container_of(sink, struct table, sink);

	if (!t->room)
		return false;
	t->room--;
	t->rows++;
	return true;
}

static void text(struct xd_table_sink *sink, const char *value)
{
	snprintf(new_cell(xc_container_of(sink, struct table, sink)), CELL_MAX, "%s", value);
}

static void number(struct xd_table_sink *sink, uint64_t value)
{
	snprintf(new_cell(xc_container_of(sink, struct table, sink)), CELL_MAX, "%llu",
		 (unsigned long long)value);
}

/* Reads all of a table, so many rows at a time. */
static void read_table(struct w_session *s, const char *name, uint32_t at_a_time, struct table *ret)
{
	const struct xd_column *columns = NULL;
	size_t n = 0;
	uint64_t cursor = 0;
	unsigned int bound = 100000;
	char why[XD_TEXT_MAX] = "";

	*ret = (struct table){ .sink = { .row = row, .text = text, .number = number } };
	do {
		ret->room = at_a_time;
		sim_check(xd_session_query(s->s, name, NULL, 0, &cursor, &columns, &n, &ret->sink,
					   why) == 0,
			  "tables", "table %s: %s", name, why);
		sim_check(--bound, "tables", "table %s has no end", name);
	} while (cursor);
	ret->n_columns = (uint32_t)n;
	sim_check(ret->n_cells == ret->rows * n, "tables", "table %s: %u cells in %u rows of %zu",
		  name, ret->n_cells, ret->rows, n);
}

/* What a transfer asked for with XP_F_EXPLAIN is there, and tells of that transfer. */
static void check_plans(const struct w_session *s, const struct table *t)
{
	static const char *const names[] = { "", "READ", "WRITE", "SEND", "RECV" };
	bool found = false;

	for (uint32_t i = 0; i < t->rows; i++) {
		char(*c)[CELL_MAX] = t->cells + i * t->n_columns;
		uint64_t wr_id = strtoull(c[3], NULL, 10);

		if (strtoull(c[0], NULL, 10) != s->number)
			continue;
		found |= wr_id == s->last_explained;
		/* The world's wr_ids end in the operation. */
		sim_check(strcmp(c[6], names[wr_id & 0xff]) == 0 || (wr_id & 0xff) > XP_OP_RECV,
			  "tables", "the plan of request %llu is of a %s",
			  (unsigned long long)wr_id, c[6]);
	}
	/* The last 64 of a session are kept. */
	sim_check(found || !s->last_explained || s->explained > 64, "tables",
		  "nothing is said of the plan of request %llu",
		  (unsigned long long)s->last_explained);
}

static void query_explain(struct world *w, struct w_session *s)
{
	static const struct {
		const char *arguments[6];
		size_t n;
		int status;
	} questions[] = {
		{ { "read", "9x4096,1x13", "3x12288,1x13", "", "" }, 5, 0 },
		{ { "write", "1x1G", "1x1G", "fake0", "" }, 5, 0 },
		{ { "send", "4096x1", "", "", "" }, 5, 0 },
		{ { "recv", "1x0", "", "fake0", "" }, 5, 0 },
		{ { "send", "1x1", "", "" }, 4, -EINVAL },
		{ { "grant", "1x1", "", "", "" }, 5, -EINVAL },
		{ { "send", "1x1", "1x1", "", "" }, 5, -EINVAL },
		{ { "read", "1x1", "1x2", "", "" }, 5, -EINVAL },
		{ { "read", "1x1,", "1x1", "", "" }, 5, -EINVAL },
		{ { "recv", "4097x1", "", "", "" }, 5, -EINVAL },
		{ { "recv", "1x1", "", "fake9", "" }, 5, -ENOENT },
		{ { "recv", "1x1", "", "", "mlx9" }, 5, -ENOENT },
		{ { "recv", "1x1", "", "fake0", "mlx5" }, 5, -EINVAL },
	};
	uint32_t i = w_below(w, XC_ARRAY_SIZE(questions)), taken = 0;
	struct table t = { .sink = { .row = row, .text = text, .number = number } };
	const struct xd_column *columns = NULL;
	char why[XD_TEXT_MAX] = "";
	uint64_t cursor = 0;
	size_t n = 0;
	int r;

	do {
		t.room = 1 + w_below(w, 6);
		r = xd_session_query(s->s, "explain", questions[i].arguments, questions[i].n,
				     &cursor, &columns, &n, &t.sink, why);
	} while (r == 0 && cursor);
	sim_check(r == questions[i].status, "tables", "explain %s %s: %d %s",
		  questions[i].arguments[0], questions[i].arguments[1], r, why);
	sim_check(r == 0 || (why[0] && !t.rows), "tables", "a refused question has an answer");
	sim_check(r < 0 || t.rows == XD_RUNG_COUNT, "tables", "%u rungs are explained", t.rows);
	for (uint32_t k = 0; k < t.rows; k++)
		taken += strcmp(t.cells[k * n + 1], "yes") == 0;
	sim_check(taken <= 1, "tables", "%u rungs are taken", taken);
	free(t.cells);
}

void w_query_any(struct world *w, struct w_session *s)
{
	static const char *const names[] = {"status",  "devices",   "sessions", "endpoints",
					    "buffers", "listeners", "grants",	"keys",
					    "pools",   "quotas",    "plans"};
	const char *name;
	const struct xd_column *columns;
	struct table t;
	uint64_t cursor = 0;
	size_t n;
	char why[XD_TEXT_MAX] = "";

	if (w_dice(w, 100)) {
		t = (struct table){ .sink = { .row = row, .text = text, .number = number } };
		sim_check(xd_session_query(s->s, "nothing", NULL, 0, &cursor, &columns, &n, &t.sink,
					   why) == -ENOENT &&
				  why[0],
			  "tables", "a table of no name was found");
		return;
	}
	if (w_dice(w, 150)) {
		query_explain(w, s);
		return;
	}
	name = names[w_below(w, (uint32_t)XC_ARRAY_SIZE(names))];
	/* That one is long. */
	if (sim.step % 64 == 0)
		name = "key-history";
	read_table(s, name, 1 + w_below(w, 20), &t);
	if (strcmp(name, "plans") == 0)
		check_plans(s, &t);
	free(t.cells);
}

/* ---- charges (I6) */

/* What the fabrics have, of one kind. */
struct count {
	struct world *w;
	const struct w_user *user; /* NULL: all */
	bool pins;                 /* this fabric's registrations do */
	int fd;                    /* registrations of this one alone, where it is not -1 */
	uint64_t keys, registrations, exact_bytes;
};

/* At rest a grant is live in the core just when its key is in the fabric. */
static void count_key(void *ctx, const struct fake_key *k)
{
	struct count *c = ctx;
	struct w_grant *g;

	if (k->range || (c->user && c->user->uid != k->owner))
		return;
	/* Of a slab: a sink is none. */
	xc_list_for_each(g, &c->w->grants, link) {
		if (k->fd < 0 && (g->life == W_GONE || !fits(k, g) || g->rkey != k->rkey))
			continue;
		c->keys++;
		return;
	}
}

static uint64_t count_keys(struct world *w, const struct w_user *u)
{
	struct count c = { .w = w, .user = u };

	for (uint32_t i = 0; i < w->n_fabrics; i++)
		fake_fabric_keys(w->fabrics[i], count_key, &c);
	return c.keys;
}

static void count_pin(void *ctx, const struct fake_pin *p)
{
	struct count *c = ctx;

	if (p->fd < 0 || (c->user && c->user->uid != p->owner) || (c->fd >= 0 && c->fd != p->fd))
		return;
	if (p->exposed || p->part)
		c->exact_bytes += c->pins ? p->length : 0;
	else
		c->registrations += c->pins;
}

/* The registrations of one memory, or (fd -1) of all; where `pins`, those alone that pin. */
static struct count count_mrs(struct world *w, const struct w_user *u, int fd, bool pins)
{
	struct count c = { .w = w, .user = u, .fd = fd };

	for (uint32_t i = 0; i < w->n_fabrics; i++) {
		c.pins = !pins || w->caps[i].pins;
		fake_fabric_pins(w->fabrics[i], count_pin, &c);
	}
	return c;
}

static uint64_t count_registrations(struct world *w)
{
	return count_mrs(w, NULL, -1, false).registrations;
}

/*
 * As the kernel counts: a buffer once for each registration that pins it, and once where none does;
 * grants that are MRs of their own; slabs.
 */
static uint64_t count_pinned(struct world *w, const struct w_user *u)
{
	uint64_t n = count_mrs(w, u, -1, true).exact_bytes +
		     fake_memory_slab_bytes(u ? &u->uid : NULL);
	struct w_session *s;

	xc_list_for_each(s, &w->sessions, link) {
		struct xc_list *l;

		if (u && s->user != u)
			continue;
		for (l = s->buffers.next; l != &s->buffers; l = l->next) {
			struct w_buffer *b = xc_container_of(l, struct w_buffer, link);
			uint64_t times = count_mrs(w, u, b->fd, true).registrations;

			if (b->life == W_LIVE)
				n += b->size * (times ? times : 1);
		}
	}
	return n;
}

/* What this user (or, NULL, everybody) must be charged with, at rest. */
static uint64_t expected(struct world *w, const struct w_user *u, enum xd_limit limit)
{
	struct w_session *s;
	uint64_t n = 0;

	if (limit == XD_LIMIT_grants)
		return count_keys(w, u);
	if (limit == XD_LIMIT_pinned)
		return count_pinned(w, u);

	xc_list_for_each(s, &w->sessions, link) {
		struct xc_list *l;

		if (u && s->user != u)
			continue;
		if (limit == XD_LIMIT_sessions)
			n++;
		for (l = s->buffers.next; l != &s->buffers; l = l->next) {
			struct w_buffer *b = xc_container_of(l, struct w_buffer, link);

			if (b->life == W_LIVE)
				n += limit == XD_LIMIT_buffers;
		}
		for (l = s->eps.next; l != &s->eps && limit == XD_LIMIT_endpoints; l = l->next) {
			struct w_ep *ep = xc_container_of(l, struct w_ep, link);

			n += ep->known && !ep->free_replied;
		}
		for (l = s->listeners.next; l != &s->listeners && limit == XD_LIMIT_listeners;
		     l = l->next)
			n += xc_container_of(l, struct w_listener, link)->life == W_LIVE;
		for (l = s->requests.next; l != &s->requests && limit == XD_LIMIT_requests;
		     l = l->next)
			n++;
	}
	return n;
}

static void check_charge(struct world *w, const char *who, const char *id, const char *what,
			 uint64_t used)
{
	const struct w_user *u = NULL;
	uint64_t want;
	int limit = -1;

	for (int i = 0; i < XD_LIMIT_COUNT; i++)
		if (strcmp(xd_limit_names[i], what) == 0)
			limit = i;
	sim_check(limit >= 0, "tables", "a charge for %s", what);
	if (strcmp(who, "group") == 0)
		return; /* all of our users are in them: the total says it */
	for (uint32_t i = 0; i < XC_ARRAY_SIZE(w->users) && strcmp(who, "user") == 0; i++)
		if (w->users[i].uid == strtoul(id, NULL, 10))
			u = &w->users[i];
	want = expected(w, u, (enum xd_limit)limit);
	sim_check(used == want, "I6", "%s %s is charged %llu %s, and uses %llu", who, id,
		  (unsigned long long)used, what, (unsigned long long)want);
}

static void check_gauge(struct world *w, enum xd_counter counter, uint64_t want)
{
	uint64_t is = xd_core_counter(w->core, counter);

	sim_check(is == want, "I6", "gauge %d stands at %llu, not %llu", (int)counter,
		  (unsigned long long)is, (unsigned long long)want);
}

void w_check_rest(struct world *w)
{
	struct table t;

	check_buffers(&w->sessions, UINT64_MAX);
	check_buffers(&w->dead_sessions, UINT64_MAX);
	check_gauge(w, XD_COUNTER_sessions, expected(w, NULL, XD_LIMIT_sessions));
	check_gauge(w, XD_COUNTER_buffers, expected(w, NULL, XD_LIMIT_buffers));
	check_gauge(w, XD_COUNTER_pinned_bytes, expected(w, NULL, XD_LIMIT_pinned));
	check_gauge(w, XD_COUNTER_slab_bytes, fake_memory_slab_bytes(NULL));
	check_gauge(w, XD_COUNTER_keys, count_registrations(w));
	check_gauge(w, XD_COUNTER_grants, expected(w, NULL, XD_LIMIT_grants));
	check_gauge(w, XD_COUNTER_endpoints, expected(w, NULL, XD_LIMIT_endpoints));
	check_gauge(w, XD_COUNTER_listeners, expected(w, NULL, XD_LIMIT_listeners));
	check_gauge(w, XD_COUNTER_transfers, expected(w, NULL, XD_LIMIT_requests));
	check_gauge(w, XD_COUNTER_slow_closes, 0);
	w_check_audit(w, true);
	sim_check(fake_engine_closed_fds == w->fds_passed, "I6",
		  "%llu descriptors were passed, %llu closed", (unsigned long long)w->fds_passed,
		  (unsigned long long)fake_engine_closed_fds);
	if (!w->admin || !w->admin->s)
		return;
	read_table(w->admin, "quotas", 7, &t);
	for (uint32_t i = 0; i < t.rows; i++) {
		char(*c)[CELL_MAX] = t.cells + i * t.n_columns;

		check_charge(w, c[0], c[1], c[2], strtoull(c[3], NULL, 10));
	}
	free(t.cells);
}
