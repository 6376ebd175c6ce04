/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "daemon/core/grant.h"
#include "daemon/core/pool.h"
#include "daemon/core/tables.h"

/*
 * What is kept ready for endpoints, or waits for it: rings, slabs of copied grants, registrations,
 * windows, transfers that wait. A row a pool; those of a session's domain first, then its
 * endpoints'.
 */

static const struct xd_column pool_columns[] = {
	{ "session", "", true },   { "uid", "", true },	    { "endpoint", "", true },
	{ "fabric", "", false },   { "pool", "", false },   { "state", "", false },
	{ "objects", "1", true },  { "in_use", "1", true }, { "size", "bytes", true },
	{ "used", "bytes", true }, { "since", "ms", true },
};

struct pool {
	const char *name, *state;
	uint64_t objects, in_use, size_bytes, used_bytes, since_ms;
};

#define POOLS_MAX 8

struct pools {
	uint32_t n;
	struct pool all[POOLS_MAX];
};

static struct pool *pool_new(struct pools *ps, const char *name, const char *state)
{
	struct pool *p = &ps->all[ps->n++];

	*p = (struct pool){ .name = name, .state = state };
	return p;
}

/* ------------------------------------------------------------------ of a domain */

static uint64_t count(const struct xc_list *list)
{
	uint64_t n = 0;

	for (const struct xc_list *l = list->next; l != list; l = l->next)
		n++;
	return n;
}

static void pools_of_pd(const struct xd_pd *pd, struct pools *ret)
{
	struct pool *p;

	if (pd->keys.count) {
		p = pool_new(ret, "registrations", "");
		p->objects = p->in_use = pd->keys.count;
		p->size_bytes = p->used_bytes = pd->registered_bytes;
	}
	if (pd->n_windows) {
		p = pool_new(ret, "windows", "");
		p->objects = pd->n_windows;
		p->in_use = pd->n_windows - count(&pd->windows);
	}
}

/* ------------------------------------------------------------------ of an endpoint */

static void pools_of_rings(const struct xd_endpoint *ep, struct pools *ret)
{
	static const char *const names[XD_RINGS] = { "out ring", "in ring", "recv ring" };

	for (int i = 0; i < XD_RINGS; i++) {
		const struct xd_ring *ring = &ep->rings[i];
		struct pool *p;

		if (!ring->slab)
			continue;
		p = pool_new(ret, names[i], ring->ready ? "ready" : "being made");
		p->objects = 1;
		p->size_bytes = ring->slab->size_bytes;
		p->used_bytes = ring->tail - ring->head;
		p->in_use = p->used_bytes != 0;
	}
}

static void add_slab(struct pool *p, const struct xd_slab *slab, bool used)
{
	p->objects++;
	p->in_use += used;
	p->size_bytes += slab->size_bytes;
	p->used_bytes += used ? slab->size_bytes : 0;
}

static void pools_of_copies(const struct xd_endpoint *ep, struct pools *ret)
{
	struct pool both[2] = { { .name = "read copies", .state = "" },
				{ .name = "write copies", .state = "" } };
	const struct xd_slab *slab;
	const struct xd_grant *g;

	if (xd_ep_caps(ep)->keys != FABRIC_KEYS_SLAB)
		return;
	xc_list_for_each(g, &ep->grants, link)
		if (g->slab)
			add_slab(&both[g->write], g->slab, true);
	for (int i = 0; i < 2; i++) {
		xc_list_for_each(slab, &ep->idle_slabs[i], link)
			add_slab(&both[i], slab, false);
		if (both[i].objects)
			ret->all[ret->n++] = both[i];
	}
}

/* What the first of those that wait could not be posted for, since when: the longest. */
static const char *wanted(const struct xd_endpoint *ep)
{
	static const char *const wants[XD_WANTS] = { "for room or a registration", "for a window",
						     "for room in the out ring",
						     "for room in the in ring" };
	const char *most = "in turn";
	uint64_t since = UINT64_MAX;

	for (int i = 0; i < XD_WANTS; i++) {
		if (!ep->blocked_ns[i] || ep->blocked_ns[i] >= since)
			continue;
		since = ep->blocked_ns[i];
		most = wants[i];
	}
	return most;
}

static void pool_of_waiting(const struct xd_endpoint *ep, struct pools *ret)
{
	const struct xd_transfer *t;
	struct pool *p;

	if (xc_list_empty(&ep->waiting))
		return;
	p = pool_new(ret, "waiting", wanted(ep));
	xc_list_for_each(t, &ep->waiting, link) {
		p->objects++;
		p->size_bytes += t->bytes;
	}
	t = xc_list_first(&ep->waiting, struct xd_transfer, link);
	p->since_ms = (xd_now(ep->session->core) - t->started_ns) / XD_NS_PER_MS;
}

static void pools_of_endpoint(const struct xd_endpoint *ep, struct pools *ret)
{
	if (ep->own_pd && ep->pd)
		pools_of_pd(ep->pd, ret);
	pools_of_rings(ep, ret);
	pools_of_copies(ep, ret);
	pool_of_waiting(ep, ret);
}

/* ------------------------------------------------------------------ rows */

/*
 * The cursor: the session's number, above an object's place in it (domains by their fabric, then
 * endpoints by their slot), above a pool's.
 */
#define ROW_BITS 4
#define PLACE_BITS 22
#define SESSION_SHIFT (ROW_BITS + PLACE_BITS)

struct at {
	const struct xd_session *session;
	uint32_t endpoint, fabric;
	uint64_t place;
};

static bool write_pools(const struct at *at, const struct pools *ps, uint64_t *cursor,
			struct xd_table_sink *sink)
{
	uint64_t here = at->session->number << SESSION_SHIFT | at->place << ROW_BITS;

	for (uint64_t i = *cursor > here ? *cursor - here : 0; i < ps->n; i++) {
		const struct pool *p = &ps->all[i];

		if (!sink->row(sink)) {
			*cursor = here | i;
			return false;
		}
		xd_cell_number(sink, at->session->number);
		xd_cell_number(sink, at->session->uid);
		xd_cell_number(sink, at->endpoint);
		xd_cell_text(sink, at->session->core->caps[at->fabric].name);
		xd_cell_text(sink, p->name);
		xd_cell_text(sink, p->state);
		xd_cell_number(sink, p->objects);
		xd_cell_number(sink, p->in_use);
		xd_cell_number(sink, p->size_bytes);
		xd_cell_number(sink, p->used_bytes);
		xd_cell_number(sink, p->since_ms);
	}
	return true;
}

/* A session's, from this place on. False: no room. */
static bool write_session(const struct xd_session *s, uint64_t place, uint64_t *cursor,
			  struct xd_table_sink *sink)
{
	struct at at = { .session = s };
	const struct xd_endpoint *ep;
	uint32_t slot;

	for (; place < XD_FABRICS_MAX; place++) {
		struct pools ps = { .n = 0 };

		at.place = place;
		at.fabric = (uint32_t)place;
		if (s->pds[place])
			pools_of_pd(s->pds[place], &ps);
		if (!write_pools(&at, &ps, cursor, sink))
			return false;
	}
	slot = (uint32_t)(place - XD_FABRICS_MAX);
	while ((ep = xc_slots_next(&s->endpoints, &slot))) {
		struct pools ps = { .n = 0 };

		at.place = slot - 1 + XD_FABRICS_MAX;
		at.fabric = ep->fabric;
		at.endpoint = ep->number;
		pools_of_endpoint(ep, &ps);
		if (!write_pools(&at, &ps, cursor, sink))
			return false;
	}
	return true;
}

static void write_all(struct xd_session *viewer, uint64_t *cursor, struct xd_table_sink *sink)
{
	uint64_t first = *cursor >> SESSION_SHIFT;
	uint64_t place = *cursor >> ROW_BITS & ((UINT64_C(1) << PLACE_BITS) - 1);
	struct xd_session *s;

	xc_list_for_each(s, &viewer->core->sessions, link) {
		if (s->number < first || !xd_may_see(viewer, s->uid))
			continue;
		if (!write_session(s, s->number == first ? place : 0, cursor, sink))
			return;
	}
	*cursor = 0;
}

const struct xd_table xd_table_pools = XD_TABLE("pools", pool_columns, write_all);
