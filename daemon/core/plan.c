/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "daemon/core/plan.h"

#include <errno.h>

#include "common/checked.h"
#include "daemon/core/sabotage.h"

static bool has_remote(const struct xd_shape *s)
{
	return s->opcode == XP_OP_READ || s->opcode == XP_OP_WRITE;
}

static bool exposed(const struct xd_shape *s, const struct xd_plan_limits *limits)
{
	return limits->exposed_sink && s->opcode == XP_OP_READ;
}

/* ------------------------------------------------------------------ work requests */

/* Of a list, how long it may be; 0: this rung has none. */
static uint32_t list_of(const struct xd_shape *s, const struct xd_plan_limits *limits,
			enum xd_rung rung)
{
	if (rung != XD_RUNG_DIRECT && rung != XD_RUNG_SPLIT)
		return 0;
	return exposed(s, limits)	     ? 1
	       : XD_SABOTAGE("widen-a-list") ? XD_PLAN_SGE_MAX
					     : limits->max_sge;
}

static uint64_t bytes_at_most(const struct xd_plan_limits *limits, enum xd_rung rung)
{
	if (XD_SABOTAGE("overrun-a-message"))
		return 2 * limits->wr_bytes;
	return rung == XD_RUNG_STAGE ? xc_min_u64(limits->wr_bytes, XD_PLAN_STAGE_BYTES)
				     : limits->wr_bytes;
}

/* Adds a local piece, joined to the one before where they are neighbours. False: the list is full.
 */
static bool add_sge(struct xd_piece *p, uint32_t max_sge, uint64_t offset, uint32_t length,
		    uint32_t buffer)
{
	struct xp_segment *last = p->n_sge ? &p->sge[p->n_sge - 1] : NULL;

	if (last && last->key == buffer &&
	    (last->address + last->length == offset || XD_SABOTAGE("join-two-pieces")) &&
	    length <= UINT32_MAX - last->length) {
		last->length += length;
		return true;
	}
	if (p->n_sge == max_sge)
		return false;
	p->sge[p->n_sge++] =
		(struct xp_segment){ .address = offset, .length = length, .key = buffer };
	return true;
}

static void over_empty(const struct xd_shape *s, struct xd_cursor *c)
{
	while (c->local < s->n_local && c->local_done == s->local[c->local].length) {
		c->local++;
		c->local_done = 0;
	}
	while (c->remote < s->n_remote && c->remote_done == s->remote[c->remote].length) {
		c->remote++;
		c->remote_done = 0;
	}
}

/*
 * Takes from both sides until one of them, the list or `most` bytes is exhausted, or the remote run
 * ends. One look at each segment, also where the other side is in a thousand pieces.
 */
static void take(const struct xd_shape *s, uint32_t list, uint64_t most, struct xd_cursor *c,
		 struct xd_piece *p)
{
	over_empty(s, c);
	while (c->remote < s->n_remote && c->local < s->n_local && p->bytes < most) {
		const struct xp_segment *l = &s->local[c->local], *r = &s->remote[c->remote];
		uint64_t address = r->address + c->remote_done;
		uint64_t n = xc_min_u64(l->length - c->local_done, r->length - c->remote_done);

		n = xc_min_u64(n, most - p->bytes);
		if (!p->bytes) {
			p->remote_address = address;
			p->rkey = r->key;
		} else if ((r->key != p->rkey || address != p->remote_address + p->bytes) &&
			   !XD_SABOTAGE("join-two-runs")) {
			return;
		}
		if (list && !add_sge(p, list, l->address + c->local_done, (uint32_t)n, l->key))
			return;
		p->bytes += n;
		c->local_done += n;
		c->remote_done += n;
		over_empty(s, c);
	}
}

/* Does it lie, at the peer, in two pages, and is so short that it must not? Then *ret_bytes: how
 * much of it lies in the first. */
static bool must_end_in_page(uint64_t address, uint64_t bytes, uint64_t *ret_bytes)
{
	*ret_bytes = FABRIC_PAGE_BYTES - address % FABRIC_PAGE_BYTES;
	return bytes <= FABRIC_SHORT_BYTES && bytes > *ret_bytes;
}

static bool next_remote(const struct xd_shape *s, const struct xd_plan_limits *limits,
			enum xd_rung rung, struct xd_cursor *c, struct xd_piece *p)
{
	uint32_t list = list_of(s, limits, rung);
	struct xd_cursor from = *c;
	uint64_t most;

	take(s, list, bytes_at_most(limits, rung), c, p);
	if (limits->short_in_page && must_end_in_page(p->remote_address, p->bytes, &most)) {
		*c = from;
		p->n_sge = 0;
		p->bytes = 0;
		take(s, list, most, c, p);
	}
	return p->bytes > 0;
}

/* A SEND or RECV: all of it, or as far as the list goes. */
static void take_message(const struct xd_shape *s, uint32_t list, struct xd_cursor *c,
			 struct xd_piece *p)
{
	for (; c->local < s->n_local; c->local++) {
		const struct xp_segment *l = &s->local[c->local];

		if (l->length && list && !add_sge(p, list, l->address, l->length, l->key))
			return;
		p->bytes += l->length;
	}
}

bool xd_plan_next(const struct xd_shape *shape, const struct xd_plan_limits *limits,
		  enum xd_rung rung, struct xd_cursor *cursor, struct xd_piece *ret)
{
	bool first =
		!cursor->local && !cursor->remote && !cursor->local_done && !cursor->remote_done;

	if (cursor->ended)
		return false;
	ret->n_sge = 0;
	ret->bytes = 0;
	ret->remote_address = 0;
	ret->rkey = 0;
	if (!has_remote(shape)) {
		take_message(shape, list_of(shape, limits, rung), cursor, ret);
		cursor->ended = true;
		return true;
	}
	if (next_remote(shape, limits, rung, cursor, ret)) {
		cursor->bytes += ret->bytes;
		return true;
	}
	cursor->ended = true;
	/* A transfer of 0 bytes still goes out, once, so that it takes its place in the order. */
	if (first && shape->n_remote) {
		ret->remote_address = shape->remote[0].address;
		ret->rkey = shape->remote[0].key;
	}
	return first;
}

uint32_t xd_plan_ranges(const struct xd_shape *s, uint32_t most, struct xd_range *ret)
{
	struct xd_range r = { 0 };
	uint32_t n = 0;

	for (uint32_t i = 0; i < s->n_local; i++) {
		const struct xp_segment *l = &s->local[i];

		if (!l->length)
			continue;
		if (!n || l->key != r.buffer || l->address != r.offset + r.length) {
			r = (struct xd_range){ .offset = l->address, .buffer = l->key };
			n++;
		}
		r.length += l->length;
		if (n <= most)
			ret[n - 1] = r;
	}
	return n;
}

/* ------------------------------------------------------------------ what the shape asks for */

/* What the runs of remote memory ask of work requests, one for each run. */
struct runs {
	uint32_t n;
	uint32_t pieces; /* most local pieces of one of them */
	uint64_t longest;
	bool crosses; /* one is short and lies in two pages */
};

/* A place in the local side. */
struct place {
	uint32_t i;
	uint64_t done;
	uint64_t end; /* of the piece before, and its buffer */
	uint32_t buffer;
};

/* Goes on by so many bytes; *pieces more of them begin (the first where it is 0). */
static void pass_local(const struct xd_shape *s, struct place *at, uint64_t bytes, uint32_t *pieces)
{
	while (bytes && at->i < s->n_local) {
		const struct xp_segment *l = &s->local[at->i];
		uint64_t n = xc_min_u64(l->length - at->done, bytes);
		uint64_t offset = l->address + at->done;

		if (n && (!*pieces || l->key != at->buffer || offset != at->end))
			++*pieces;
		if (n) {
			at->buffer = l->key;
			at->end = offset + n;
		}
		at->done += n;
		bytes -= n;
		if (at->done == l->length) {
			at->i++;
			at->done = 0;
		}
	}
}

static void see_runs(const struct xd_shape *s, const struct xd_plan_limits *limits,
		     struct runs *ret)
{
	struct runs runs = { 0 };
	struct place at = { 0 };
	uint64_t start = 0, bytes = 0, cut;
	uint32_t pieces = 0, key = 0;

	for (uint32_t i = 0; i < s->n_remote; i++) {
		const struct xp_segment *r = &s->remote[i];

		if (!r->length)
			continue;
		if (!runs.n || r->key != key || r->address != start + bytes) {
			runs.crosses |= must_end_in_page(start, bytes, &cut);
			start = r->address;
			key = r->key;
			bytes = 0;
			pieces = 0;
			runs.n++;
		}
		pass_local(s, &at, r->length, &pieces);
		bytes += r->length;
		if (pieces > runs.pieces)
			runs.pieces = pieces;
		if (bytes > runs.longest)
			runs.longest = bytes;
	}
	runs.crosses |= must_end_in_page(start, bytes, &cut);
	runs.crosses &= limits->short_in_page;
	*ret = runs;
}

static uint64_t bytes_of(const struct xd_shape *s)
{
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < s->n_local; i++)
		bytes += s->local[i].length;
	return bytes;
}

/*
 * The work requests of a READ or WRITE. Those that are full, and lie within one segment of each
 * side, are not looked at one by one: of a TiB there are millions.
 */
static uint32_t count_wrs(const struct xd_shape *s, const struct xd_plan_limits *limits,
			  enum xd_rung rung)
{
	uint64_t most = bytes_at_most(limits, rung), n = 0;
	bool full_ones = !limits->short_in_page || most > FABRIC_SHORT_BYTES;
	struct xd_cursor c = { 0 };
	struct xd_piece piece;

	for (;;) {
		over_empty(s, &c);
		if (c.local < s->n_local && c.remote < s->n_remote && full_ones) {
			uint64_t full = xc_min_u64(s->local[c.local].length - c.local_done,
						   s->remote[c.remote].length - c.remote_done) /
					most;

			n += full;
			c.local_done += full * most;
			c.remote_done += full * most;
		}
		if (!xd_plan_next(s, limits, rung, &c, &piece))
			break;
		n++;
	}
	if (XD_SABOTAGE("forget-the-last-request") && n > 1)
		n--;
	return (uint32_t)xc_min_u64(n ? n : 1, UINT32_MAX);
}

/* ------------------------------------------------------------------ the usual case */

static bool goes_inline(const struct xd_shape *s)
{
	return s->opcode == XP_OP_WRITE || s->opcode == XP_OP_SEND;
}

static bool fits_direct(const struct runs *runs, const struct xd_plan_limits *limits, uint32_t list)
{
	return runs->longest <= limits->wr_bytes && runs->pieces <= list && !runs->crosses;
}

/*
 * What goes inline or direct, and that is nearly all, without a thought of any other rung. The same
 * as the long way would choose; false: that has to look.
 */
static bool quick(const struct xd_shape *s, const struct xd_plan_limits *limits,
		  struct xd_plan *ret)
{
	bool simple = s->n_local <= limits->max_sge && !limits->short_in_page;
	enum xd_rung rung = XD_RUNG_DIRECT;
	struct runs runs = { .n = 1 };

	if (limits->force != XD_RUNG_COUNT || exposed(s, limits))
		return false;
	if (s->n_remote > 1 || (s->n_remote && !simple)) {
		see_runs(s, limits, &runs);
	} else {
		runs.pieces = s->n_local;
		runs.longest = s->n_remote ? s->remote[0].length : bytes_of(s);
	}
	if (limits->inline_bytes && goes_inline(s) && runs.n == 1 && !runs.crosses) {
		if (runs.longest && runs.longest <= limits->inline_bytes)
			rung = XD_RUNG_INLINE;
	}
	if (rung == XD_RUNG_INLINE
		    ? runs.longest > limits->wr_bytes
		    : limits->no_keys || !fits_direct(&runs, limits, limits->max_sge))
		return false;
	*ret = (struct xd_plan){ .rung = rung, .wrs = runs.n ? runs.n : 1 };
	ret->ns = (uint64_t)ret->wrs * limits->costs.wr_ns;
	return true;
}

/* ------------------------------------------------------------------ each rung */

struct survey {
	const struct xd_shape *shape;
	const struct xd_plan_limits *limits;
	struct runs runs;
	uint64_t bytes;
	uint32_t ranges; /* runs of local memory */
	uint32_t list;
	bool message, exposed;
};

static bool too(enum xd_verdict verdict, uint64_t has, uint64_t limit, struct xd_thought *ret)
{
	*ret = (struct xd_thought){ .verdict = verdict, .has = has, .limit = limit };
	return false;
}

static bool no(enum xd_verdict verdict, struct xd_thought *ret)
{
	return too(verdict, 0, 0, ret);
}

static bool yes(uint32_t wrs, uint32_t keys, struct xd_thought *ret)
{
	*ret = (struct xd_thought){ .verdict = XD_VERDICT_BELOW, .wrs = wrs, .keys = keys };
	return true;
}

static bool see_inline(const struct survey *v, struct xd_thought *ret)
{
	const struct xd_plan_limits *limits = v->limits;
	uint64_t most = xc_min_u64(limits->inline_bytes, limits->wr_bytes);

	if (!goes_inline(v->shape))
		return no(XD_VERDICT_OPERATION, ret);
	if (!most)
		return no(XD_VERDICT_NONE, ret);
	if (!v->bytes)
		return no(XD_VERDICT_UNNEEDED, ret);
	if (v->bytes > most)
		return too(XD_VERDICT_BYTES, v->bytes, most, ret);
	if (v->runs.n > 1)
		return too(XD_VERDICT_PIECES, v->runs.n, 1, ret);
	if (v->runs.crosses)
		return no(XD_VERDICT_PAGE, ret);
	return yes(1, 0, ret);
}

static uint32_t sink_keys(const struct survey *v)
{
	return v->exposed ? v->ranges : 0;
}

static bool see_direct(const struct survey *v, struct xd_thought *ret)
{
	if (v->limits->no_keys)
		return no(XD_VERDICT_NO_KEYS, ret);
	if (v->runs.longest > v->limits->wr_bytes)
		return too(XD_VERDICT_BYTES, v->runs.longest, v->limits->wr_bytes, ret);
	if (v->runs.pieces > v->list)
		return too(XD_VERDICT_PIECES, v->runs.pieces, v->list, ret);
	if (v->runs.crosses)
		return no(XD_VERDICT_PAGE, ret);
	if (sink_keys(v) > XD_PLAN_KEYS_MAX)
		return too(XD_VERDICT_KEYS, v->ranges, XD_PLAN_KEYS_MAX, ret);
	return yes(v->runs.n ? v->runs.n : 1, sink_keys(v), ret);
}

static bool see_split(const struct survey *v, struct xd_thought *ret)
{
	if (v->message)
		return no(XD_VERDICT_OPERATION, ret);
	if (v->limits->no_keys)
		return no(XD_VERDICT_NO_KEYS, ret);
	if (sink_keys(v) > XD_PLAN_KEYS_MAX)
		return too(XD_VERDICT_KEYS, v->ranges, XD_PLAN_KEYS_MAX, ret);
	if (fits_direct(&v->runs, v->limits, v->list))
		return no(XD_VERDICT_UNNEEDED, ret);
	return yes(count_wrs(v->shape, v->limits, XD_RUNG_SPLIT), sink_keys(v), ret);
}

static bool see_stage(const struct survey *v, struct xd_thought *ret)
{
	uint64_t most = xc_min_u64(v->limits->stage_bytes, v->limits->wr_bytes);

	if (!v->limits->stage_bytes)
		return no(XD_VERDICT_EMPTY, ret);
	if (v->message && v->bytes > most)
		return too(XD_VERDICT_BYTES, v->bytes, most, ret);
	return yes(v->message ? 1 : count_wrs(v->shape, v->limits, XD_RUNG_STAGE), 0, ret);
}

static bool see_indirect(const struct survey *v, struct xd_thought *ret)
{
	if (!v->limits->ranges)
		return no(XD_VERDICT_NONE, ret);
	if (v->limits->no_keys)
		return no(XD_VERDICT_NO_KEYS, ret);
	if (!v->bytes)
		return no(XD_VERDICT_UNNEEDED, ret);
	if (v->message && v->bytes > v->limits->wr_bytes)
		return too(XD_VERDICT_BYTES, v->bytes, v->limits->wr_bytes, ret);
	if (v->ranges > v->limits->ranges)
		return too(XD_VERDICT_RANGES, v->ranges, v->limits->ranges, ret);
	return yes(v->message ? 1 : count_wrs(v->shape, v->limits, XD_RUNG_INDIRECT), 1, ret);
}

/* ------------------------------------------------------------------ prices */

static bool priced(const struct fabric_costs *c)
{
	return c->wr_ns || c->reg_ns || c->reg_page_ns || c->ranges_ns || c->range_ns ||
	       c->bind_ns || c->copy_ns || c->copy_kib_ns || c->copy_cold_kib_ns;
}

/* sum + n * ns; what does not fit is the dearest that there is. */
static uint64_t plus(uint64_t sum, uint64_t n, uint64_t ns)
{
	uint64_t product;

	if (!xc_mul_u64(n, ns, &product) || !xc_add_u64(sum, product, &sum))
		return UINT64_MAX;
	return sum;
}

static uint64_t units(uint64_t bytes, uint64_t unit)
{
	return bytes / unit + (bytes % unit ? 1 : 0);
}

/*
 * The price of a way, in ns. All: each work request. And
 *	direct, split, of an exposed sink: a registration for each key, and each 4 KiB of the bytes
 *	stage: a copy for each run of local memory, and for each cut by a work request; each KiB of
 *	the bytes, at the cold rate above XD_PLAN_COLD_BYTES
 *	indirect: a key over ranges, and each of them
 * What a started unit costs a whole one costs. The few bytes that go inline are copied for nothing.
 */
static uint64_t price(const struct survey *v, enum xd_rung rung, const struct xd_thought *t)
{
	const struct fabric_costs *c = &v->limits->costs;
	uint32_t kib = c->copy_kib_ns;
	uint64_t ns = plus(0, t->wrs, c->wr_ns);

	if (rung == XD_RUNG_INDIRECT)
		return plus(plus(ns, 1, c->ranges_ns), v->ranges, c->range_ns);
	if (rung == XD_RUNG_STAGE && v->bytes) {
		if (v->bytes > XD_PLAN_COLD_BYTES && c->copy_cold_kib_ns > kib)
			kib = c->copy_cold_kib_ns;
		ns = plus(ns, (uint64_t)v->ranges + t->wrs - 1, c->copy_ns);
		return plus(ns, units(v->bytes, 1024), kib);
	}
	if (t->keys) {
		ns = plus(ns, t->keys, c->reg_ns);
		ns = plus(ns, units(v->bytes, FABRIC_PAGE_BYTES), c->reg_page_ns);
	}
	return ns;
}

/* ------------------------------------------------------------------ the choice */

static void survey(const struct xd_shape *shape, const struct xd_plan_limits *limits,
		   struct survey *ret)
{
	*ret = (struct survey){
		.shape = shape,
		.limits = limits,
		.bytes = bytes_of(shape),
		.ranges = xd_plan_ranges(shape, 0, NULL),
		.list = list_of(shape, limits, XD_RUNG_DIRECT),
		.message = !has_remote(shape),
		.exposed = exposed(shape, limits),
	};
	if (ret->message)
		ret->runs = (struct runs){ .n = 1, .pieces = ret->ranges, .longest = ret->bytes };
	else
		see_runs(shape, limits, &ret->runs);
}

/* XD_RUNG_COUNT: there is none. */
static enum xd_rung choose(const struct survey *v, const bool can[static XD_RUNG_COUNT],
			   const struct xd_thoughts *all)
{
	enum xd_rung force = v->limits->force, best = XD_RUNG_COUNT;
	bool by_price = priced(&v->limits->costs);

	if (force < XD_RUNG_COUNT && can[force])
		return force;
	for (enum xd_rung r = XD_RUNG_INLINE; r < XD_RUNG_COUNT; r++) {
		if (!can[r])
			continue;
		if (r == XD_RUNG_INLINE || (r == XD_RUNG_DIRECT && !v->exposed))
			return r;
		if (best == XD_RUNG_COUNT || (by_price && all->of[r].ns < all->of[best].ns) ||
		    XD_SABOTAGE("take-the-last-way"))
			best = r;
	}
	return best;
}

/* Why those that could have carried it were not taken. */
static void judge(const struct survey *v, enum xd_rung taken, const bool can[static XD_RUNG_COUNT],
		  struct xd_thoughts *all)
{
	bool forced = taken == v->limits->force;
	bool by_order = taken == XD_RUNG_INLINE || (taken == XD_RUNG_DIRECT && !v->exposed);

	for (enum xd_rung r = XD_RUNG_INLINE; r < XD_RUNG_COUNT; r++) {
		struct xd_thought *t = &all->of[r];

		if (!can[r])
			continue;
		if (r == taken) {
			t->verdict = XD_VERDICT_TAKEN;
		} else if (forced) {
			t->verdict = XD_VERDICT_FORCED;
		} else if (by_order || t->ns == all->of[taken].ns) {
			t->verdict = XD_VERDICT_BELOW;
		} else {
			t->verdict = XD_VERDICT_DEARER;
			t->has = t->ns;
			t->limit = all->of[taken].ns;
		}
	}
}

/* All rungs, with all reasons. */
static int ponder(const struct xd_shape *shape, const struct xd_plan_limits *limits,
		  struct xd_plan *ret_plan, struct xd_thoughts *ret)
{
	static bool (*const see[XD_RUNG_COUNT])(const struct survey *, struct xd_thought *) = {
		[XD_RUNG_INLINE] = see_inline,	   [XD_RUNG_DIRECT] = see_direct,
		[XD_RUNG_SPLIT] = see_split,	   [XD_RUNG_STAGE] = see_stage,
		[XD_RUNG_INDIRECT] = see_indirect,
	};
	bool can[XD_RUNG_COUNT];
	enum xd_rung taken;
	struct survey v;

	survey(shape, limits, &v);
	for (enum xd_rung r = XD_RUNG_INLINE; r < XD_RUNG_COUNT; r++) {
		can[r] = see[r](&v, &ret->of[r]);
		if (can[r])
			ret->of[r].ns = price(&v, r, &ret->of[r]);
	}
	taken = choose(&v, can, ret);
	if (taken == XD_RUNG_COUNT)
		return -EMSGSIZE;
	judge(&v, taken, can, ret);
	*ret_plan = (struct xd_plan){
		.rung = taken,
		.wrs = ret->of[taken].wrs,
		.keys = ret->of[taken].keys,
		.ns = ret->of[taken].ns,
	};
	return 0;
}

int xd_plan_make(const struct xd_shape *shape, const struct xd_plan_limits *limits,
		 struct xd_plan *ret_plan, struct xd_thoughts *ret_thoughts)
{
	struct xd_thoughts thoughts;

	if (!ret_thoughts && quick(shape, limits, ret_plan))
		return 0;
	return ponder(shape, limits, ret_plan, ret_thoughts ? ret_thoughts : &thoughts);
}
