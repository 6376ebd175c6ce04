/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The planner: what holds for each of very many random shapes, and a few told by hand. */
#include "tests/unit/cm.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/checked.h"
#include "daemon/core/plan.h"
#include "daemon/fabric/fabric.h"

#define SHAPES 120000
#define SEGMENTS 4096

static uint64_t state;

static uint64_t next_random(void)
{
	uint64_t z = (state += UINT64_C(0x9e3779b97f4a7c15));

	z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
	return z ^ (z >> 31);
}

static uint32_t below(uint32_t n)
{
	return (uint32_t)((next_random() >> 32) * n >> 32);
}

/* ---- random shapes */

static struct xp_segment local[SEGMENTS], remote[SEGMENTS];

static struct xp_segment random_segment(const struct xp_segment *before, uint32_t longest)
{
	struct xp_segment s = { .address = below(1000000), .key = 1 + below(3) };

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

/* Makes a side exactly so long: cut, or with one more segment. Returns how many it has. */
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
	while (sum < bytes && n < SEGMENTS) {
		uint64_t rest = bytes - sum;

		side[n] = random_segment(NULL, 1);
		side[n].length = (uint32_t)xc_min_u64(rest, UINT32_MAX);
		sum += side[n++].length;
	}
	return n;
}

static struct xd_shape random_shape(struct xd_plan_limits *limits)
{
	static const uint32_t sges[] = { 1, 2, 3, 6, 16, 32, XD_PLAN_SGE_MAX };
	uint32_t most = below(200) ? 12 : 400;
	struct xd_shape s = {
		.opcode = (uint8_t)(XP_OP_READ + below(4)),
		.n_local = 1 + below(most),
		.n_remote = 1 + below(most),
		.local = local,
		.remote = remote,
	};
	uint32_t longest = below(4) ? 1 + below(100) : 1 + below(1 << 20);
	uint64_t bytes = random_side(local, s.n_local, longest);

	if (s.opcode == XP_OP_READ || s.opcode == XP_OP_WRITE) {
		uint64_t other = random_side(remote, s.n_remote, longest);

		if (other > bytes)
			s.n_remote = trim(remote, s.n_remote, bytes);
		else
			s.n_local = trim(local, s.n_local, other);
	} else {
		s.n_remote = 0;
	}
	*limits = (struct xd_plan_limits){ .max_sge = sges[below(XC_ARRAY_SIZE(sges))] };
	limits->stage_bytes = below(2) ? longest / 2 + below(1000) : 0;
	limits->stage = s.n_remote && below(4) == 0;
	limits->short_in_page = s.n_remote && below(3) == 0;
	limits->wr_bytes = below(3) ? UINT32_MAX : longest / 2 + 1 + below(1000);
	return s;
}

/* ---- a second opinion */

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

/* Pieces of a side when neighbours are joined, and lines of a remote side. */
static uint32_t lines(const struct xp_segment *side, uint32_t n)
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

static bool one_line_goes_on(struct walk w, const struct xd_piece *p)
{
	over_empty(&w);
	return w.i < w.n && w.side[w.i].key == p->rkey &&
	       w.side[w.i].address + w.done == p->remote_address + p->bytes;
}

/* ---- what holds for each work request, and for all */

static uint64_t side_bytes(const struct xp_segment *side, uint32_t n)
{
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < n; i++)
		bytes += side[i].length;
	return bytes;
}

static uint64_t in_page(uint64_t address)
{
	return FABRIC_PAGE_BYTES - address % FABRIC_PAGE_BYTES;
}

static uint64_t check_piece(const struct xd_piece *p, const struct xd_plan_limits *limits,
			    struct walk *l, struct walk *r)
{
	uint64_t bytes = 0;

	assert_true(p->n_sge <= limits->max_sge);
	assert_true(p->bytes <= limits->wr_bytes);
	for (uint32_t i = 0; i < p->n_sge; i++) {
		assert_true(p->sge[i].length > 0);
		expect_line(l, p->sge[i].address, p->sge[i].key, p->sge[i].length);
		bytes += p->sge[i].length;
	}
	if (limits->stage) {
		/* It says how much; where that lies the cursor says. */
		assert_int_equal(p->n_sge, 0);
		assert_true(!r->n || p->bytes <= XD_PLAN_STAGE_BYTES);
		bytes = p->bytes;
	}
	assert_int_equal(bytes, p->bytes);
	if (limits->short_in_page && bytes <= FABRIC_SHORT_BYTES)
		assert_true(in_page(p->remote_address) >= bytes);
	if (r->n && bytes)
		expect_line(r, p->remote_address, p->rkey, bytes);
	return bytes;
}

/* A work request that is not the last ends because something is full, not for nothing. */
static void check_full(const struct xd_piece *p, const struct xd_plan_limits *limits,
		       const struct walk *r)
{
	assert_true(p->n_sge == limits->max_sge || p->bytes == limits->wr_bytes ||
		    (limits->stage && p->bytes == XD_PLAN_STAGE_BYTES) ||
		    (limits->short_in_page && p->bytes < FABRIC_SHORT_BYTES &&
		     p->bytes == in_page(p->remote_address)) ||
		    !one_line_goes_on(*r, p));
}

static void check_shape(const struct xd_shape *s, const struct xd_plan_limits *limits,
			const struct xd_plan *plan)
{
	struct walk l = { .side = s->local, .n = s->n_local };
	struct walk r = { .side = s->remote, .n = s->n_remote };
	struct xd_cursor cursor = { 0 }, again = { 0 };
	struct xd_piece piece, twin;
	uint64_t bytes = 0;
	uint32_t wrs = 0;

	while (xd_plan_next(s, limits, &cursor, &piece)) {
		wrs++;
		bytes += check_piece(&piece, limits, &l, &r);
		if (s->n_remote && !at_end(&r))
			check_full(&piece, limits, &r);
		memset(&twin, 0xa5, sizeof(twin));
		assert_true(xd_plan_next(s, limits, &again, &twin));
		assert_int_equal(twin.n_sge, piece.n_sge);
		assert_int_equal(twin.rkey, piece.rkey);
		assert_int_equal(twin.remote_address, piece.remote_address);
		assert_memory_equal(twin.sge, piece.sge, piece.n_sge * sizeof(piece.sge[0]));
	}
	assert_true((limits->stage ? bytes == side_bytes(s->local, s->n_local) : at_end(&l)) &&
		    at_end(&r));
	assert_int_equal(wrs, plan->wrs);
	assert_true(wrs >= 1);
	if (s->n_remote && plan->rung == XD_RUNG_DIRECT)
		assert_true(wrs == 1 || wrs <= lines(s->remote, s->n_remote));
	if (plan->rung == XD_RUNG_SPLIT)
		assert_true(wrs > lines(s->remote, s->n_remote));
}

static void random_shapes(void **unused)
{
	uint32_t planned = 0, refused = 0, split = 0;

	(void)unused;
	state = 1;
	for (uint32_t i = 0; i < SHAPES; i++) {
		struct xd_plan_limits limits;
		struct xd_shape s = random_shape(&limits);
		struct xd_plan plan, twin;
		bool message = !s.n_remote;
		bool fits = lines(s.local, s.n_local) <= limits.max_sge &&
			    side_bytes(s.local, s.n_local) <= limits.wr_bytes;
		int r = xd_plan_make(&s, &limits, &plan);

		if (message && !fits) {
			bool staged = side_bytes(s.local, s.n_local) <= limits.wr_bytes &&
				      side_bytes(s.local, s.n_local) <= limits.stage_bytes;

			assert_int_equal(r, staged ? 0 : -EMSGSIZE);
			if (staged)
				assert_int_equal(plan.rung, XD_RUNG_STAGE);
			limits.stage = staged;
			refused += !staged;
			if (!staged)
				continue;
		}
		assert_int_equal(r, 0);
		assert_int_equal(xd_plan_make(&s, &limits, &twin), 0);
		assert_int_equal(twin.rung, plan.rung);
		assert_int_equal(twin.wrs, plan.wrs);
		check_shape(&s, &limits, &plan);
		if (message)
			assert_int_equal(plan.wrs, 1);
		planned++;
		split += plan.rung == XD_RUNG_SPLIT;
	}
	/* The shapes are worth something: of all kinds there are many. */
	assert_true(planned > SHAPES / 2 && refused > SHAPES / 100 && split > SHAPES / 100);
}

/* ---- by hand */

static void plan_of(uint8_t opcode, uint32_t n_local, uint32_t n_remote, uint32_t max_sge,
		    uint64_t wr_bytes, int expect, enum xd_rung rung, uint32_t wrs)
{
	struct xd_shape s = { .opcode = opcode, .n_local = n_local, .n_remote = n_remote,
			      .local = local, .remote = remote };
	struct xd_plan_limits limits = { .max_sge = max_sge, .wr_bytes = wr_bytes };
	struct xd_plan plan;

	assert_int_equal(xd_plan_make(&s, &limits, &plan), expect);
	if (expect)
		return;
	assert_int_equal(plan.rung, rung);
	assert_int_equal(plan.wrs, wrs);
	check_shape(&s, &limits, &plan);
}

static struct xp_segment seg(uint64_t address, uint32_t length, uint32_t key)
{
	return (struct xp_segment){ .address = address, .length = length, .key = key };
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
	struct xd_plan_limits limits = { .max_sge = 4, .wr_bytes = 1000, .short_in_page = true };
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
	struct xd_plan plan;

	(void)unused;
	for (int stage = 0; stage < 2; stage++) {
		for (size_t i = 0; i < XC_ARRAY_SIZE(shapes); i++) {
			limits.stage = stage;
			local[0] = seg(0, 1, 1);
			local[1] = seg(70, shapes[i].bytes - 1, 2);
			remote[0] = seg(page + shapes[i].offset, shapes[i].bytes, 9);
			assert_int_equal(xd_plan_make(&s, &limits, &plan), 0);
			assert_int_equal(plan.wrs, shapes[i].wrs);
			check_shape(&s, &limits, &plan);
		}
	}
	/* What is left over of a long one is short, too. */
	limits.wr_bytes = 4000;
	limits.stage = false;
	local[0] = seg(0, 2000, 1);
	local[1] = seg(3000, 2010, 2);
	remote[0] = seg(page + 90, 4010, 9);
	assert_int_equal(xd_plan_make(&s, &limits, &plan), 0);
	assert_int_equal(plan.wrs, 3);
	check_shape(&s, &limits, &plan);
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
		cmocka_unit_test(short_ones_end_with_the_page),
		cmocka_unit_test(most_segments),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
