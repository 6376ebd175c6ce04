/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The work requests of each rung: what holds for very many random shapes, and a few by hand. */
#include "tests/unit/cm.h"

#include <errno.h>
#include <string.h>

#include "common/checked.h"
#include "tests/unit/plan_shapes.h"

#define SHAPES 120000
#define SEGMENTS SHAPE_SEGMENTS
#define seg shape_segment
#define in_page shape_in_page

static struct xp_segment *const local = shape_local, *const remote = shape_remote;

/* ---- a second walk */

/* Where a walk along one side stands. */
struct walk {
	const struct xp_segment *side;
	uint32_t n, i;
	uint64_t done;
};

static void over_empty(struct walk *w)
{
	while (w->i < w->n && w->done == w->side[w->i].length) {
		w->i++;
		w->done = 0;
	}
}

/* The side goes on for `length` bytes from this place, in one line. */
static void expect_line(struct walk *w, uint64_t address, uint32_t key, uint64_t length)
{
	while (length) {
		uint64_t here;

		over_empty(w);
		assert_true(w->i < w->n);
		assert_int_equal(w->side[w->i].key, key);
		assert_int_equal(w->side[w->i].address + w->done, address);
		here = xc_min_u64(w->side[w->i].length - w->done, length);
		w->done += here;
		address += here;
		length -= here;
	}
}

static bool at_end(struct walk *w)
{
	over_empty(w);
	return w->i == w->n;
}

static bool one_line_goes_on(struct walk w, const struct xd_piece *p)
{
	over_empty(&w);
	return w.i < w.n && w.side[w.i].key == p->rkey &&
	       w.side[w.i].address + w.done == p->remote_address + p->bytes;
}

/* ---- what holds for each work request, and for all */

/* Which rung, and what its work requests must keep to. */
struct way {
	enum xd_rung rung;
	uint32_t list; /* 0: it has none */
	uint64_t most;
	bool page, exposed;
};

static struct way way_of(const struct xd_shape *s, const struct xd_plan_limits *limits,
			 enum xd_rung rung)
{
	struct way w = { .rung = rung, .most = limits->wr_bytes, .page = limits->short_in_page };

	w.exposed = limits->exposed_sink && s->opcode == XP_OP_READ;
	if (rung == XD_RUNG_DIRECT || rung == XD_RUNG_SPLIT)
		w.list = w.exposed ? 1 : limits->max_sge;
	if (rung == XD_RUNG_STAGE)
		w.most = xc_min_u64(w.most, s->n_remote ? XD_PLAN_STAGE_BYTES : UINT64_MAX);
	return w;
}

/* A piece lies within one of the runs that have keys. */
static bool within_a_key(const struct xd_shape *s, const struct xp_segment *piece)
{
	struct xd_range ranges[XD_PLAN_KEYS_MAX];
	uint32_t n = xd_plan_ranges(s, XD_PLAN_KEYS_MAX, ranges);

	for (uint32_t i = 0; i < n && i < XD_PLAN_KEYS_MAX; i++)
		if (ranges[i].buffer == piece->key && piece->address >= ranges[i].offset &&
		    piece->address + piece->length <= ranges[i].offset + ranges[i].length)
			return true;
	return false;
}

static uint64_t check_piece(const struct xd_shape *s, const struct xd_piece *p,
			    const struct way *way, struct walk *l, struct walk *r)
{
	uint64_t bytes = 0;

	assert_true(p->n_sge <= way->list);
	assert_true(p->bytes <= way->most);
	for (uint32_t i = 0; i < p->n_sge; i++) {
		assert_true(p->sge[i].length > 0);
		expect_line(l, p->sge[i].address, p->sge[i].key, p->sge[i].length);
		bytes += p->sge[i].length;
		if (way->exposed)
			assert_true(within_a_key(s, &p->sge[i]));
	}
	/* Without a list it says how much; where that lies the cursor says. */
	if (!way->list)
		bytes = p->bytes;
	assert_int_equal(bytes, p->bytes);
	if (way->page && bytes <= FABRIC_SHORT_BYTES)
		assert_true(in_page(p->remote_address) >= bytes);
	if (r->n && bytes)
		expect_line(r, p->remote_address, p->rkey, bytes);
	return bytes;
}

/* A work request that is not the last ends because something is full, not for nothing. */
static void check_full(const struct xd_piece *p, const struct way *way, const struct walk *r)
{
	assert_true((way->list && p->n_sge == way->list) || p->bytes == way->most ||
		    (way->page && p->bytes < FABRIC_SHORT_BYTES &&
		     p->bytes == in_page(p->remote_address)) ||
		    !one_line_goes_on(*r, p));
}

/* What a cursor says of the bytes before it. */
static uint64_t cursor_bytes(const struct xd_shape *s, const struct xd_cursor *c)
{
	return shape_bytes(s->local, c->local) + c->local_done;
}

/* All work requests of this rung are right; returns how many there are. */
static uint32_t check_rung(const struct xd_shape *s, const struct xd_plan_limits *limits,
			   enum xd_rung rung)
{
	const struct way way = way_of(s, limits, rung);
	struct walk l = { .side = s->local, .n = s->n_local };
	struct walk r = { .side = s->remote, .n = s->n_remote };
	struct xd_cursor cursor = { 0 }, again = { 0 };
	struct xd_piece piece, twin;
	uint64_t bytes = 0;
	uint32_t wrs = 0;

	while (xd_plan_next(s, limits, rung, &cursor, &piece)) {
		wrs++;
		bytes += check_piece(s, &piece, &way, &l, &r);
		assert_int_equal(cursor_bytes(s, &cursor), bytes);
		if (s->n_remote)
			assert_int_equal(cursor.bytes, bytes);
		if (s->n_remote && !at_end(&r))
			check_full(&piece, &way, &r);
		memset(&twin, 0xa5, sizeof(twin));
		assert_true(xd_plan_next(s, limits, rung, &again, &twin));
		assert_int_equal(twin.n_sge, piece.n_sge);
		assert_int_equal(twin.rkey, piece.rkey);
		assert_int_equal(twin.remote_address, piece.remote_address);
		assert_memory_equal(twin.sge, piece.sge, piece.n_sge * sizeof(piece.sge[0]));
	}
	assert_false(xd_plan_next(s, limits, rung, &cursor, &piece));
	assert_true((way.list ? at_end(&l) : bytes == shape_bytes(s->local, s->n_local)) &&
		    at_end(&r));
	assert_true(wrs >= 1);
	if (!s->n_remote || rung == XD_RUNG_INLINE)
		assert_int_equal(wrs, 1);
	return wrs;
}

/* The runs of local memory: every byte once, in order, and no two that could be one. */
static void check_ranges(const struct xd_shape *s)
{
	static struct xd_range ranges[SEGMENTS], few[4];
	struct walk l = { .side = s->local, .n = s->n_local };
	uint32_t n = xd_plan_ranges(s, SEGMENTS, ranges);

	assert_int_equal(n, shape_lines(s->local, s->n_local));
	for (uint32_t i = 0; i < n; i++) {
		assert_true(ranges[i].length > 0);
		expect_line(&l, ranges[i].offset, ranges[i].buffer, ranges[i].length);
		if (i && ranges[i].buffer == ranges[i - 1].buffer)
			assert_true(ranges[i].offset !=
				    ranges[i - 1].offset + ranges[i - 1].length);
	}
	assert_true(at_end(&l));
	memset(few, 0xa5, sizeof(few));
	assert_int_equal(xd_plan_ranges(s, 3, few), n);
	for (uint32_t i = 0; i < n && i < 3; i++)
		assert_true(few[i].offset == ranges[i].offset && few[i].length == ranges[i].length);
	assert_int_equal(few[3].buffer, 0xa5a5a5a5);
}

static void random_shapes(void **unused)
{
	uint32_t seen[XD_RUNG_COUNT] = { 0 };

	(void)unused;
	shapes_seed(1);
	for (uint32_t i = 0; i < SHAPES; i++) {
		struct xd_plan_limits limits;
		struct xd_shape s = shapes_random(&limits);
		struct opinion o;

		shape_opinion(&s, &limits, &o);
		check_ranges(&s);
		for (enum xd_rung r = XD_RUNG_INLINE; r < XD_RUNG_COUNT; r++) {
			if (!o.can[r])
				continue;
			assert_int_equal(check_rung(&s, &limits, r), o.wrs[r]);
			seen[r]++;
		}
	}
	/* The shapes are worth something: of all kinds there are many. */
	for (int r = 0; r < XD_RUNG_COUNT; r++)
		assert_true(seen[r] > SHAPES / 100);
}

/* ---- by hand */

static struct xd_plan_limits plain(uint32_t max_sge, uint64_t wr_bytes)
{
	return (struct xd_plan_limits){ .max_sge = max_sge, .wr_bytes = wr_bytes,
					.force = XD_RUNG_COUNT };
}

static void plan_with(const struct xd_shape *s, const struct xd_plan_limits *limits, int expect,
		      enum xd_rung rung, uint32_t wrs)
{
	struct xd_thoughts thoughts;
	struct xd_plan plan, twin;

	assert_int_equal(xd_plan_make(s, limits, &plan, NULL), expect);
	assert_int_equal(xd_plan_make(s, limits, &twin, &thoughts), expect);
	if (expect)
		return;
	assert_true(plans_equal(&plan, &twin));
	assert_int_equal(plan.rung, rung);
	assert_int_equal(plan.wrs, wrs);
	assert_int_equal(check_rung(s, limits, rung), wrs);
}

static void plan_of(uint8_t opcode, uint32_t n_local, uint32_t n_remote, uint32_t max_sge,
		    uint64_t wr_bytes, int expect, enum xd_rung rung, uint32_t wrs)
{
	struct xd_shape s = { .opcode = opcode, .n_local = n_local, .n_remote = n_remote,
			      .local = local, .remote = remote };
	struct xd_plan_limits limits = plain(max_sge, wr_bytes);

	plan_with(&s, &limits, expect, rung, wrs);
}

static void nothing_at_all(void **unused)
{
	(void)unused;
	for (uint8_t op = XP_OP_READ; op <= XP_OP_RECV; op++) {
		local[0] = seg(5, 0, 1);
		local[1] = seg(9, 0, 2);
		remote[0] = seg(7, 0, 3);
		/* It still goes out, once, so that it has its place in the order. */
		plan_of(op, 2, op <= XP_OP_WRITE ? 1 : 0, 1, 100, 0, XD_RUNG_DIRECT, 1);
	}
}

static void empty_segments_vanish(void **unused)
{
	(void)unused;
	local[0] = seg(0, 0, 1);
	local[1] = seg(100, 10, 1);
	local[2] = seg(1, 0, 2);
	local[3] = seg(110, 10, 1);
	local[4] = seg(3, 0, 1);
	remote[0] = seg(0, 0, 9);
	remote[1] = seg(1000, 20, 9);
	remote[2] = seg(0, 0, 8);
	plan_of(XP_OP_READ, 5, 3, 1, 100, 0, XD_RUNG_DIRECT, 1);
	plan_of(XP_OP_SEND, 5, 0, 1, 100, 0, XD_RUNG_DIRECT, 1);
}

static void list_is_exhausted_first(void **unused)
{
	(void)unused;
	for (uint32_t i = 0; i < 9; i++)
		local[i] = seg(i * 100, 10, 1);
	remote[0] = seg(0, 90, 7);
	plan_of(XP_OP_WRITE, 9, 1, 9, 1000, 0, XD_RUNG_DIRECT, 1);
	plan_of(XP_OP_WRITE, 9, 1, 4, 1000, 0, XD_RUNG_SPLIT, 3);
	plan_of(XP_OP_READ, 9, 1, 1, 1000, 0, XD_RUNG_SPLIT, 9);
	/* A message is one work request or none. */
	plan_of(XP_OP_SEND, 9, 0, 9, 1000, 0, XD_RUNG_DIRECT, 1);
	plan_of(XP_OP_SEND, 9, 0, 8, 1000, -EMSGSIZE, XD_RUNG_DIRECT, 0);
	plan_of(XP_OP_RECV, 9, 0, 9, 89, -EMSGSIZE, XD_RUNG_DIRECT, 0);
}

static void remote_neighbours_are_joined(void **unused)
{
	(void)unused;
	local[0] = seg(0, 60, 1);
	remote[0] = seg(1000, 20, 7);
	remote[1] = seg(1020, 20, 7);
	remote[2] = seg(1040, 20, 8); /* another key */
	plan_of(XP_OP_WRITE, 1, 3, 4, 1000, 0, XD_RUNG_DIRECT, 2);
	remote[2] = seg(1041, 20, 7); /* a gap */
	plan_of(XP_OP_WRITE, 1, 3, 4, 1000, 0, XD_RUNG_DIRECT, 2);
}

static void long_ones_are_cut(void **unused)
{
	(void)unused;
	local[0] = seg(0, UINT32_MAX, 1);
	local[1] = seg(UINT32_MAX, UINT32_MAX, 1); /* a neighbour, but the sum has no room */
	remote[0] = seg(UINT64_MAX - 2 * (uint64_t)UINT32_MAX, UINT32_MAX, 7);
	remote[1] = seg(UINT64_MAX - (uint64_t)UINT32_MAX, UINT32_MAX, 7);
	plan_of(XP_OP_READ, 2, 2, 4, UINT32_MAX, 0, XD_RUNG_SPLIT, 2);
	plan_of(XP_OP_READ, 2, 2, 4, XD_PLAN_WR_BYTES_MAX, 0, XD_RUNG_SPLIT, 32);
	plan_of(XP_OP_SEND, 2, 0, 4, UINT32_MAX, -EMSGSIZE, XD_RUNG_DIRECT, 0);
}

/* A device that reads few bytes wrongly where they lie in two pages. */
static void short_ones_end_with_the_page(void **unused)
{
	const uint64_t page = UINT64_C(1) << 40;
	struct xd_plan_limits limits = plain(4, 1000);
	struct xd_shape s = { .opcode = XP_OP_READ, .n_local = 2, .n_remote = 1, .local = local,
			      .remote = remote };
	static const struct {
		uint64_t offset;
		uint32_t bytes, wrs;
	} shapes[] = {
		{ FABRIC_PAGE_BYTES - 7, 24, 2 }, /* 7, 17 */
		{ FABRIC_PAGE_BYTES - 1, 2, 2 },  { FABRIC_PAGE_BYTES - 31, 32, 2 },
		{ FABRIC_PAGE_BYTES - 32, 32, 1 }, { FABRIC_PAGE_BYTES - 7, 33, 1 },
		{ FABRIC_PAGE_BYTES, 32, 1 },	   { 100, 3, 1 },
	};

	(void)unused;
	limits.short_in_page = true;
	limits.stage_bytes = 4096;
	for (int stage = 0; stage < 2; stage++) {
		for (size_t i = 0; i < XC_ARRAY_SIZE(shapes); i++) {
			limits.no_keys = stage;
			local[0] = seg(0, 1, 1);
			local[1] = seg(70, shapes[i].bytes - 1, 2);
			remote[0] = seg(page + shapes[i].offset, shapes[i].bytes, 9);
			plan_with(&s, &limits, 0,
				  stage		       ? XD_RUNG_STAGE
				  : shapes[i].wrs == 1 ? XD_RUNG_DIRECT
						       : XD_RUNG_SPLIT,
				  shapes[i].wrs);
		}
	}
	/* What is left over of a long one is short, too. */
	limits.wr_bytes = 4000;
	limits.no_keys = false;
	local[0] = seg(0, 2000, 1);
	local[1] = seg(3000, 2010, 2);
	remote[0] = seg(page + 90, 4010, 9);
	plan_with(&s, &limits, 0, XD_RUNG_SPLIT, 3);
}

/* Neighbours that are longer together than a segment can be are one run with one key. */
static void long_runs_have_one_key(void **unused)
{
	struct xd_shape s = { .opcode = XP_OP_READ, .n_local = 2, .n_remote = 1, .local = local,
			      .remote = remote };
	struct xd_plan_limits limits = plain(4, XD_PLAN_WR_BYTES_MAX);
	struct xd_thoughts thoughts;
	struct xd_range range;
	struct xd_plan plan;

	(void)unused;
	limits.exposed_sink = true;
	local[0] = seg(0, 3000000001, 1);
	local[1] = seg(3000000001, 3000000001, 1);
	remote[0] = seg(0, 3000000001, 7);
	remote[1] = seg(5000000000, 3000000001, 7);
	s.n_remote = 2;
	assert_int_equal(xd_plan_ranges(&s, 1, &range), 1);
	assert_int_equal(range.length, 6000000002);
	assert_int_equal(xd_plan_make(&s, &limits, &plan, &thoughts), 0);
	assert_int_equal(plan.rung, XD_RUNG_SPLIT);
	assert_int_equal(plan.keys, 1);
	assert_int_equal(check_rung(&s, &limits, XD_RUNG_SPLIT), plan.wrs);
	assert_int_equal(plan.wrs, 24);
}

static void most_segments(void **unused)
{
	(void)unused;
	for (uint32_t i = 0; i < SEGMENTS; i++) {
		local[i] = seg(i * UINT64_C(10), 3, 1 + i % 2);
		remote[i] = seg(i * UINT64_C(100), 3, 5);
	}
	plan_of(XP_OP_WRITE, SEGMENTS, SEGMENTS, 1, UINT32_MAX, 0, XD_RUNG_DIRECT, SEGMENTS);
	plan_of(XP_OP_READ, SEGMENTS, SEGMENTS, 64, 2, 0, XD_RUNG_SPLIT, 2 * SEGMENTS);
	/* One side in one run, the other in thousands. */
	for (uint32_t i = 0; i < SEGMENTS; i++)
		remote[i] = seg(i * UINT64_C(3), 3, 5);
	plan_of(XP_OP_READ, SEGMENTS, SEGMENTS, 1, UINT32_MAX, 0, XD_RUNG_SPLIT, SEGMENTS);
}

/* A TiB: its millions of work requests are counted, but not one by one. */
static void most_bytes(void **unused)
{
	const uint32_t n = 512, each = UINT32_C(1) << 31;
	struct xd_shape s = { .opcode = XP_OP_READ, .n_local = n, .n_remote = n, .local = local,
			      .remote = remote };
	struct xd_plan_limits limits = plain(30, 1 << 20);
	struct xd_thoughts thoughts;
	struct xd_plan plan;

	(void)unused;
	for (uint32_t i = 0; i < n; i++) {
		local[i] = seg(i * UINT64_C(0x100000000), each, 1);
		remote[i] = seg(i * UINT64_C(0x100000000) + 4090, each, 1);
	}
	limits.stage_bytes = 1 << 20;
	limits.ranges = 512;
	limits.short_in_page = true;
	memset(&limits.costs, 0xff, sizeof(limits.costs));
	assert_int_equal(xd_plan_make(&s, &limits, &plan, &thoughts), 0);
	assert_int_equal(thoughts.of[XD_RUNG_STAGE].wrs, 1 << 23);
	assert_int_equal(thoughts.of[XD_RUNG_SPLIT].wrs, 1 << 20);
	assert_int_equal(thoughts.of[XD_RUNG_INDIRECT].wrs, 1 << 20);
	assert_int_equal(plan.rung, XD_RUNG_SPLIT);
	assert_int_equal(plan.ns, UINT64_C(0xffffffff) << 20);
	assert_int_equal(thoughts.of[XD_RUNG_STAGE].ns,
			 UINT64_C(0xffffffff) *
				 ((1 << 23) + 512 + (1 << 23) - 1 + (UINT64_C(1) << 30)));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(random_shapes),
		cmocka_unit_test(nothing_at_all),
		cmocka_unit_test(empty_segments_vanish),
		cmocka_unit_test(list_is_exhausted_first),
		cmocka_unit_test(remote_neighbours_are_joined),
		cmocka_unit_test(long_ones_are_cut),
		cmocka_unit_test(long_runs_have_one_key),
		cmocka_unit_test(short_ones_end_with_the_page),
		cmocka_unit_test(most_segments),
		cmocka_unit_test(most_bytes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
