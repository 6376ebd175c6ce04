/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What must be true after every step, and what must be true at rest. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/sim/world.h"

/* ---- keys (I1, I2, I5) */

static bool fits(const struct fake_key *k, const struct w_grant *g)
{
	int access = g->write ? IBV_ACCESS_REMOTE_WRITE : IBV_ACCESS_REMOTE_READ;

	if (g->snapshot ? k->fd >= 0 : k->fd != g->range.buffer->fd || k->offset != g->range.offset)
		return false;
	return k->length == g->range.length && k->access == access && k->ep_tag == g->ep->tag;
}

/* Where the sinks of READs must be writable the endpoint's own peer may write there, no other. */
static bool is_sink(const struct w_ep *ep, const struct fake_key *k)
{
	return ep && ep->caps.read_sink_remote_write && k->fd < 0 && k->whole &&
	       k->access == IBV_ACCESS_REMOTE_WRITE;
}

static void check_key(void *ctx, const struct fake_key *k)
{
	struct world *w = ctx;
	struct w_grant *g, *close = NULL;

	xc_list_for_each(g, &w->grants, link) {
		if (k->fd == g->range.buffer->fd && g->life != W_GONE &&
		    k->offset < g->range.offset + g->range.length &&
		    g->range.offset < k->offset + k->length)
			close = g;
		if (g->life == W_GONE || !fits(k, g) || (g->rkey && g->rkey != k->rkey))
			continue;
		sim_check(!g->rkey || k->iova == g->address, "I1", "a token of another place");
		g->seen = true;
		return;
	}
	if (is_sink(w_ep_by_tag(w, k->ep_tag), k))
		return;
	sim_broken(close ? "I1" : "I2",
		   "a key reaches %llu bytes at %llu of memory %d on ep %llu (access %d); "
		   "the nearest grant has %u at %llu",
		   (unsigned long long)k->length, (unsigned long long)k->offset, k->fd,
		   (unsigned long long)k->ep_tag, k->access, close ? close->range.length : 0,
		   close ? (unsigned long long)close->range.offset : 0);
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

static void check_buffers(struct xc_list *sessions)
{
	struct w_session *s;

	xc_list_for_each(s, sessions, link)
		for (struct xc_list *l = s->buffers.next; l != &s->buffers; l = l->next)
			w_check_memory(xc_container_of(l, struct w_buffer, link));
}

void w_check(struct world *w)
{
	struct w_session *s;

	check_dead(w);
	check_keys(w);
	for (uint32_t i = 0; i < w->n_fabrics; i++)
		fake_fabric_killed(w->fabrics[i], killed, w);
	xc_list_for_each(s, &w->sessions, link)
		check_session(w, s);
	if (sim.step % 16 == 0)
		check_buffers(&w->sessions);
	if (sim.step % 128 == 0)
		check_buffers(&w->dead_sessions);
}

/* ---- tables */

#define CELL_MAX 128

/* A table as read, row after row. */
struct table {
	struct xd_table_sink sink;
	uint32_t n_columns, n_cells, rows, room;
	char (*cells)[CELL_MAX];
};

static char *new_cell(struct table *t)
{
	t->cells = reallocarray(t->cells, t->n_cells + 1, CELL_MAX);
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

void w_query_any(struct world *w, struct w_session *s)
{
	static const char *const names[] = {"status",  "devices",   "sessions", "endpoints",
					    "buffers", "listeners", "grants",	"quotas"};
	const struct xd_column *columns;
	struct table t;
	uint64_t cursor = 0;
	size_t n;
	char why[XD_TEXT_MAX] = "";

	if (w_dice(w, 100)) {
		t = (struct table){ .sink = { .row = row, .text = text, .number = number } };
		sim_check(xd_session_query(s->s, "nothing", NULL, 0, &cursor, &columns, &n, &t.sink, why) ==
					  -ENOENT &&
				  why[0],
			  "tables", "a table of no name was found");
		return;
	}
	read_table(s, names[w_below(w, 8)], 1 + w_below(w, 20), &t);
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

	if (c->user && c->user->uid != k->owner)
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
	if (p->exposed)
		c->exact_bytes += p->length;
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

	check_buffers(&w->sessions);
	check_buffers(&w->dead_sessions);
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
