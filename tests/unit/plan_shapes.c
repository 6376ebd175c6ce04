/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "tests/unit/plan_shapes.h"

#include <stdlib.h>
#include <string.h>

#include "common/assert.h"
#include "common/checked.h"

struct xp_segment shape_local[SHAPE_SEGMENTS], shape_remote[SHAPE_SEGMENTS];

static uint64_t state;

void shapes_seed(uint64_t seed)
{
	state = seed;
}

static uint64_t next_random(void)
{
	uint64_t z = (state += UINT64_C(0x9e3779b97f4a7c15));

	z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
	return z ^ (z >> 31);
}

uint32_t shapes_below(uint32_t n)
{
	return (uint32_t)((next_random() >> 32) * n >> 32);
}

#define below shapes_below

struct xp_segment shape_segment(uint64_t address, uint32_t length, uint32_t key)
{
	return (struct xp_segment){ .address = address, .length = length, .key = key };
}

/* ---- random ones */

static struct xp_segment random_segment(const struct xp_segment *before, uint32_t longest)
{
	struct xp_segment s = { .address = below(1000000), .key = 1 + below(3) };

	/* Often near the end of a page. */
	if (!below(5))
		s.address += shape_in_page(s.address) - below(FABRIC_SHORT_BYTES);
	if (below(8))
		s.length = 1 + below(longest);
	/* A neighbour of the one before, mostly in the same buffer or under the same key. */
	if (before && !below(3)) {
		s.address = before->address + before->length;
		if (below(5))
			s.key = before->key;
	}
	return s;
}

static uint64_t random_side(struct xp_segment *side, uint32_t n, uint32_t longest)
{
	const struct xp_segment *before = NULL;
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < n; i++) {
		side[i] = random_segment(before, longest);
		bytes += side[i].length;
		if (side[i].length)
			before = &side[i];
	}
	return bytes;
}

/* Makes a side exactly so long: cut, or with more segments. Returns how many it has. */
static uint32_t trim(struct xp_segment *side, uint32_t n, uint64_t bytes)
{
	uint64_t sum = 0;

	for (uint32_t i = 0; i < n; i++) {
		if (sum + side[i].length >= bytes) {
			side[i].length = (uint32_t)(bytes - sum);
			return i + 1;
		}
		sum += side[i].length;
	}
	while (sum < bytes && n < SHAPE_SEGMENTS) {
		side[n] = random_segment(NULL, 1);
		side[n].length = (uint32_t)xc_min_u64(bytes - sum, UINT32_MAX);
		sum += side[n++].length;
	}
	return n;
}

static struct fabric_costs random_costs(void)
{
	uint32_t c[sizeof(struct fabric_costs) / sizeof(uint32_t)] = { 0 };
	struct fabric_costs costs;
	uint32_t most = below(20) ? 3000 : UINT32_MAX;

	if (below(4))
		for (size_t i = 0; i < XC_ARRAY_SIZE(c); i++)
			c[i] = below(3) ? below(most) : below(10);
	memcpy(&costs, c, sizeof(costs));
	return costs;
}

static struct xd_plan_limits random_limits(uint32_t longest)
{
	static const uint32_t sges[] = { 1, 1, 2, 3, 6, 16, 32, XD_PLAN_SGE_MAX };
	static const uint32_t ranges[] = { 0, 1, 4, 8, 256 };

	return (struct xd_plan_limits){
		.max_sge = sges[below(XC_ARRAY_SIZE(sges))],
		.wr_bytes = below(3) ? UINT32_MAX : longest / 2 + 1 + below(1000),
		.inline_bytes = below(2) ? below(FABRIC_INLINE_MAX + 1) : 0,
		.stage_bytes = below(4) ? longest / 2 + below(1000) : 0,
		.ranges = ranges[below(XC_ARRAY_SIZE(ranges))],
		.short_in_page = below(3) == 0,
		.no_keys = below(6) == 0,
		.exposed_sink = below(4) == 0,
		.force = below(3) ? XD_RUNG_COUNT : (enum xd_rung)below(XD_RUNG_COUNT),
		.costs = random_costs(),
	};
}

struct xd_shape shapes_random(struct xd_plan_limits *ret_limits)
{
	uint32_t most = !below(200) ? 400 : !below(8) ? 40 : 12;
	struct xd_shape s = {
		.opcode = (uint8_t)(XP_OP_READ + below(4)),
		.n_local = 1 + below(most),
		.n_remote = 1 + below(below(2) ? most : 1),
		.local = shape_local,
		.remote = shape_remote,
	};
	uint32_t longest = 1 + below(!below(3) ? 1 << 20 : below(2) ? 100 : FABRIC_SHORT_BYTES);
	uint64_t bytes = random_side(shape_local, s.n_local, longest);

	if (s.opcode == XP_OP_READ || s.opcode == XP_OP_WRITE) {
		uint64_t other = random_side(shape_remote, s.n_remote, longest);

		if (other > bytes || below(2))
			s.n_remote = trim(shape_remote, s.n_remote, bytes);
		else
			s.n_local = trim(shape_local, s.n_local, other);
	} else {
		s.n_remote = 0;
	}
	*ret_limits = random_limits(longest);
	ret_limits->short_in_page &= s.opcode == XP_OP_READ || s.opcode == XP_OP_WRITE;
	return s;
}

/* ---- a plain look */

uint32_t shape_lines(const struct xp_segment *side, uint32_t n)
{
	uint64_t end = 0;
	uint32_t count = 0, key = 0;

	for (uint32_t i = 0; i < n; i++) {
		if (!side[i].length)
			continue;
		if (!count || side[i].key != key || side[i].address != end)
			count++;
		key = side[i].key;
		end = side[i].address + side[i].length;
	}
	return count;
}

uint64_t shape_bytes(const struct xp_segment *side, uint32_t n)
{
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < n; i++)
		bytes += side[i].length;
	return bytes;
}

uint64_t shape_in_page(uint64_t address)
{
	return FABRIC_PAGE_BYTES - address % FABRIC_PAGE_BYTES;
}

bool plans_equal(const struct xd_plan *a, const struct xd_plan *b)
{
	return a->rung == b->rung && a->wrs == b->wrs && a->keys == b->keys && a->ns == b->ns;
}

bool thoughts_equal(const struct xd_thoughts *a, const struct xd_thoughts *b)
{
	for (int i = 0; i < XD_RUNG_COUNT; i++) {
		const struct xd_thought *x = &a->of[i], *y = &b->of[i];

		if (x->verdict != y->verdict || x->wrs != y->wrs || x->keys != y->keys ||
		    x->ns != y->ns || x->has != y->has || x->limit != y->limit)
			return false;
	}
	return true;
}

/*
 * The bytes of a READ or WRITE as stretches that are whole on both sides; run and line number the
 * remote runs and the local lines that they belong to.
 */
struct stretch {
	uint64_t remote, bytes;
	uint32_t run, line;
};

static struct stretch stretches[2 * SHAPE_SEGMENTS];

static uint32_t line_of(const struct xp_segment *side, uint32_t i)
{
	return shape_lines(side, i + 1);
}

static uint32_t lay_out(const struct xd_shape *s)
{
	uint32_t n = 0, l = 0, r = 0;
	uint64_t l_done = 0, r_done = 0;

	while (l < s->n_local && r < s->n_remote) {
		uint64_t bytes =
			xc_min_u64(s->local[l].length - l_done, s->remote[r].length - r_done);

		if (bytes)
			stretches[n++] = (struct stretch){
				.remote = s->remote[r].address + r_done,
				.bytes = bytes,
				.run = line_of(s->remote, r),
				.line = line_of(s->local, l),
			};
		l_done += bytes;
		r_done += bytes;
		if (l_done == s->local[l].length) {
			l++;
			l_done = 0;
		}
		if (r < s->n_remote && r_done == s->remote[r].length) {
			r++;
			r_done = 0;
		}
	}
	return n;
}

/* How many bytes a work request takes from a place in stretch i on. */
static uint64_t fills(uint32_t n, uint32_t i, uint64_t done, uint64_t most, uint32_t list)
{
	uint32_t run = stretches[i].run, line = 0, pieces = 0;
	uint64_t bytes = 0;

	for (; i < n && stretches[i].run == run && bytes < most; i++, done = 0) {
		if (stretches[i].line != line && pieces++ == list)
			break;
		line = stretches[i].line;
		bytes += stretches[i].bytes - done;
	}
	return xc_min_u64(bytes, most);
}

static uint64_t count(uint32_t n, uint64_t most, uint32_t list, bool short_in_page)
{
	uint64_t done = 0, wrs = 0;
	uint32_t i = 0;

	while (i < n) {
		uint64_t bytes = fills(n, i, done, most, list);
		uint64_t first = shape_in_page(stretches[i].remote + done);

		if (short_in_page && bytes <= FABRIC_SHORT_BYTES && bytes > first)
			bytes = first;
		xc_assert(bytes);
		wrs++;
		for (bytes += done, done = 0; i < n && bytes >= stretches[i].bytes; i++)
			bytes -= stretches[i].bytes;
		done = bytes;
	}
	return wrs ? wrs : 1;
}

/* The longest run, the most lines within one, and whether a short one crosses a page. */
static void look_at_runs(uint32_t n, const struct xd_plan_limits *limits, struct opinion *o)
{
	for (uint32_t i = 0; i < n;) {
		uint64_t bytes = 0, start = stretches[i].remote;
		uint32_t run = stretches[i].run, pieces = 0, line = 0;

		for (; i < n && stretches[i].run == run; i++) {
			bytes += stretches[i].bytes;
			pieces += stretches[i].line != line;
			line = stretches[i].line;
		}
		o->longest = bytes > o->longest ? bytes : o->longest;
		o->pieces = pieces > o->pieces ? pieces : o->pieces;
		o->crosses |= limits->short_in_page && bytes <= FABRIC_SHORT_BYTES &&
			      shape_in_page(start) < bytes;
	}
}

typedef unsigned __int128 big;

static void prices(const struct xd_plan_limits *limits, struct opinion *o)
{
	const struct fabric_costs *c = &limits->costs;
	uint32_t kib = c->copy_kib_ns;
	big kibs = (o->bytes + 1023) / 1024, pages = (o->bytes + 4095) / 4096;

	if (o->bytes > 1048576 && c->copy_cold_kib_ns > kib)
		kib = c->copy_cold_kib_ns;
	for (int r = 0; r < XD_RUNG_COUNT; r++) {
		big ns = (big)o->wrs[r] * c->wr_ns;

		if (r == XD_RUNG_STAGE && o->bytes)
			ns += ((big)o->local_lines + o->wrs[r] - 1) * c->copy_ns + kibs * kib;
		if (r == XD_RUNG_INDIRECT)
			ns += (big)c->ranges_ns + (big)o->local_lines * c->range_ns;
		else if (o->keys[r])
			ns += (big)o->keys[r] * c->reg_ns + pages * c->reg_page_ns;
		o->ns[r] = !o->can[r] ? 0 : ns > UINT64_MAX ? UINT64_MAX : (uint64_t)ns;
	}
}

static void choose(const struct xd_plan_limits *limits, struct opinion *o)
{
	static const struct fabric_costs none;
	bool priced = memcmp(&none, &limits->costs, sizeof(none)) != 0;

	o->best = XD_RUNG_COUNT;
	for (int r = XD_RUNG_COUNT - 1; r >= 0; r--) {
		bool first = r == XD_RUNG_INLINE || (r == XD_RUNG_DIRECT && !o->exposed);

		if (o->can[r] &&
		    (o->best == XD_RUNG_COUNT || first || !priced || o->ns[r] <= o->ns[o->best]))
			o->best = (enum xd_rung)r;
	}
	if (limits->force != XD_RUNG_COUNT && o->can[limits->force])
		o->best = limits->force;
}

static void what_each_can(const struct xd_shape *s, const struct xd_plan_limits *limits,
			  struct opinion *o)
{
	bool fits = o->pieces <= o->list && o->longest <= limits->wr_bytes && !o->crosses;
	bool keys = !limits->no_keys && (!o->exposed || o->local_lines <= XD_PLAN_KEYS_MAX);
	bool whole = !o->message || o->bytes <= limits->wr_bytes;
	bool outward = s->opcode == XP_OP_WRITE || s->opcode == XP_OP_SEND;

	o->can[XD_RUNG_INLINE] = outward && o->bytes && o->bytes <= limits->inline_bytes &&
				 o->bytes <= limits->wr_bytes && o->remote_lines <= 1 &&
				 !o->crosses;
	o->can[XD_RUNG_DIRECT] = keys && fits;
	o->can[XD_RUNG_SPLIT] = keys && !fits && !o->message;
	o->can[XD_RUNG_STAGE] =
		limits->stage_bytes && whole && (!o->message || o->bytes <= limits->stage_bytes);
	o->can[XD_RUNG_INDIRECT] = limits->ranges && !limits->no_keys && o->bytes && whole &&
				   o->local_lines <= limits->ranges;
}

void shape_opinion(const struct xd_shape *s, const struct xd_plan_limits *limits,
		   struct opinion *ret)
{
	struct opinion o = {
		.message = s->opcode == XP_OP_SEND || s->opcode == XP_OP_RECV,
		.exposed = limits->exposed_sink && s->opcode == XP_OP_READ,
		.bytes = shape_bytes(s->local, s->n_local),
		.local_lines = shape_lines(s->local, s->n_local),
		.remote_lines = shape_lines(s->remote, s->n_remote),
	};
	uint32_t n = o.message ? 0 : lay_out(s);
	bool page = limits->short_in_page;

	o.list = o.exposed ? 1 : limits->max_sge;
	look_at_runs(n, limits, &o);
	if (o.message) {
		o.longest = o.bytes;
		o.pieces = o.local_lines;
	}
	what_each_can(s, limits, &o);
	for (int r = 0; r < XD_RUNG_COUNT; r++) {
		bool list = r == XD_RUNG_DIRECT || r == XD_RUNG_SPLIT;
		uint64_t most = limits->wr_bytes;

		if (r == XD_RUNG_STAGE && most > 131072)
			most = 131072;
		if (!o.can[r])
			continue;
		o.wrs[r] = o.message ? 1 : count(n, most, list ? o.list : UINT32_MAX, page);
		o.keys[r] = r == XD_RUNG_INDIRECT ? 1 : list && o.exposed ? o.local_lines : 0;
	}
	prices(limits, &o);
	choose(limits, &o);
	*ret = o;
}
