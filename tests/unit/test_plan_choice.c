/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Which rung is taken, and what is said of the others: against a second opinion. */
#include "tests/unit/cm.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "common/checked.h"
#include "tests/unit/plan_shapes.h"

#define SHAPES 150000

static bool has(const struct xd_thought *t, uint64_t value, uint64_t limit)
{
	return t->has == value && t->limit == limit && value > limit;
}

/* A verdict on a rung that could have carried it. */
static bool fair(const struct xd_plan_limits *limits, const struct opinion *o, enum xd_rung r,
		 const struct xd_thought *t)
{
	bool first = o->best == XD_RUNG_INLINE || (o->best == XD_RUNG_DIRECT && !o->exposed);

	switch (t->verdict) {
	case XD_VERDICT_TAKEN:
		return r == o->best;
	case XD_VERDICT_FORCED:
		return r != o->best && limits->force == o->best;
	case XD_VERDICT_BELOW:
		return r > o->best && limits->force != o->best &&
		       (first || o->ns[r] == o->ns[o->best]);
	case XD_VERDICT_DEARER:
		return limits->force != o->best && !first && has(t, o->ns[r], o->ns[o->best]);
	default:
		return false;
	}
}

static bool too_long(const struct xd_plan_limits *limits, const struct opinion *o, enum xd_rung r,
		     const struct xd_thought *t)
{
	switch (r) {
	case XD_RUNG_INLINE:
		return has(t, o->bytes, xc_min_u64(limits->inline_bytes, limits->wr_bytes));
	case XD_RUNG_DIRECT:
		return has(t, o->longest, limits->wr_bytes);
	case XD_RUNG_STAGE:
		return o->message &&
		       has(t, o->bytes, xc_min_u64(limits->stage_bytes, limits->wr_bytes));
	case XD_RUNG_INDIRECT:
		return o->message && has(t, o->bytes, limits->wr_bytes);
	default:
		return false;
	}
}

/* A verdict on one that could not. */
static bool true_of(const struct xd_shape *s, const struct xd_plan_limits *limits,
		    const struct opinion *o, enum xd_rung r, const struct xd_thought *t)
{
	bool outward = s->opcode == XP_OP_WRITE || s->opcode == XP_OP_SEND;
	bool list = r == XD_RUNG_DIRECT || r == XD_RUNG_SPLIT;

	switch (t->verdict) {
	case XD_VERDICT_OPERATION:
		return (r == XD_RUNG_INLINE && !outward) || (r == XD_RUNG_SPLIT && o->message);
	case XD_VERDICT_NONE:
		return (r == XD_RUNG_INLINE && !limits->inline_bytes) ||
		       (r == XD_RUNG_INDIRECT && !limits->ranges);
	case XD_VERDICT_BYTES:
		return too_long(limits, o, r, t);
	case XD_VERDICT_PIECES:
		return (r == XD_RUNG_INLINE && has(t, o->remote_lines, 1)) ||
		       (r == XD_RUNG_DIRECT && has(t, o->pieces, o->list));
	case XD_VERDICT_PAGE:
		return (r == XD_RUNG_INLINE || r == XD_RUNG_DIRECT) && o->crosses;
	case XD_VERDICT_RANGES:
		return r == XD_RUNG_INDIRECT && has(t, o->local_lines, limits->ranges);
	case XD_VERDICT_KEYS:
		return list && o->exposed && has(t, o->local_lines, XD_PLAN_KEYS_MAX);
	case XD_VERDICT_NO_KEYS:
		return r != XD_RUNG_INLINE && r != XD_RUNG_STAGE && limits->no_keys;
	case XD_VERDICT_EMPTY:
		return r == XD_RUNG_STAGE && !limits->stage_bytes;
	case XD_VERDICT_UNNEEDED:
		return r == XD_RUNG_SPLIT ? o->can[XD_RUNG_DIRECT]
					  : r != XD_RUNG_DIRECT && r != XD_RUNG_STAGE && !o->bytes;
	default:
		return false;
	}
}

static void check_thought(const struct xd_shape *s, const struct xd_plan_limits *limits,
			  const struct opinion *o, enum xd_rung r, const struct xd_thought *t)
{
	char text[XD_THOUGHT_TEXT_MAX + 40] = "";

	assert_int_equal(t->wrs, o->wrs[r]);
	assert_int_equal(t->keys, o->keys[r]);
	assert_int_equal(t->ns, o->ns[r]);
	if (o->can[r] ? !fair(limits, o, r, t) : !true_of(s, limits, o, r, t))
		fail_msg("%s: '%s' is not true: has %" PRIu64 ", limit %" PRIu64, xd_rung_names[r],
			 xd_verdict_names[t->verdict], t->has, t->limit);
	xd_thought_text(s, r, t, text, sizeof(text));
	assert_in_range(strlen(text), 5, XD_THOUGHT_TEXT_MAX - 1);
}

/* Never dearer than another that could carry it, where price decides. */
static void check_price(const struct xd_plan_limits *limits, const struct opinion *o,
			const struct xd_plan *plan)
{
	if (limits->force == plan->rung || plan->rung == XD_RUNG_INLINE ||
	    (plan->rung == XD_RUNG_DIRECT && !o->exposed))
		return;
	for (int r = 0; r < XD_RUNG_COUNT; r++)
		if (o->can[r])
			assert_true(plan->ns <= o->ns[r]);
}

static void random_choices(void **unused)
{
	uint32_t taken[XD_RUNG_COUNT + 1] = { 0 }, verdicts[XD_VERDICT_COUNT] = { 0 };

	(void)unused;
	shapes_seed(2);
	for (uint32_t i = 0; i < SHAPES; i++) {
		struct xd_plan_limits limits;
		struct xd_shape s = shapes_random(&limits);
		struct xd_thoughts thoughts, again;
		struct xd_plan plan, quick, twin;
		struct opinion o;
		uint32_t yes = 0;
		int r;

		memset(&thoughts, 0xa5, sizeof(thoughts));
		memset(&again, 0x5a, sizeof(again));
		r = xd_plan_make(&s, &limits, &plan, &thoughts);
		shape_opinion(&s, &limits, &o);
		assert_int_equal(r, o.best == XD_RUNG_COUNT ? -EMSGSIZE : 0);
		for (enum xd_rung k = XD_RUNG_INLINE; k < XD_RUNG_COUNT; k++) {
			check_thought(&s, &limits, &o, k, &thoughts.of[k]);
			yes += thoughts.of[k].verdict == XD_VERDICT_TAKEN;
			verdicts[thoughts.of[k].verdict]++;
		}
		taken[o.best]++;
		/* The same without thoughts, and again. */
		assert_int_equal(xd_plan_make(&s, &limits, &quick, NULL), r);
		assert_int_equal(xd_plan_make(&s, &limits, &twin, &again), r);
		assert_int_equal(yes, r == 0);
		if (r < 0)
			continue;
		assert_true(plans_equal(&quick, &plan));
		assert_true(plans_equal(&twin, &plan));
		assert_true(thoughts_equal(&again, &thoughts));
		assert_int_equal(plan.rung, o.best);
		assert_int_equal(plan.wrs, o.wrs[o.best]);
		assert_int_equal(plan.keys, o.keys[o.best]);
		assert_int_equal(plan.ns, o.ns[o.best]);
		check_price(&limits, &o, &plan);
	}
	for (int r = 0; r <= XD_RUNG_COUNT; r++)
		if (taken[r] < SHAPES / 200)
			fail_msg("%s: %u only", r < XD_RUNG_COUNT ? xd_rung_names[r] : "none",
				 taken[r]);
	for (int v = 0; v < XD_VERDICT_COUNT; v++)
		if (verdicts[v] < 100)
			fail_msg("verdict %s: %u only", xd_verdict_names[v], verdicts[v]);
}

/* ---- by hand: the sentences */

static void says(const struct xd_shape *s, const struct xd_plan_limits *limits, enum xd_rung rung,
		 const char *sentence)
{
	char text[XD_THOUGHT_TEXT_MAX];
	struct xd_thoughts thoughts;
	struct xd_plan plan;

	(void)xd_plan_make(s, limits, &plan, &thoughts);
	xd_thought_text(s, rung, &thoughts.of[rung], text, sizeof(text));
	assert_string_equal(text, sentence);
}

static void sentences(void **unused)
{
	struct xd_shape s = { .opcode = XP_OP_READ,
			      .n_local = 9,
			      .n_remote = 1,
			      .local = shape_local,
			      .remote = shape_remote };
	struct xd_plan_limits limits = {
		.max_sge = 1,
		.wr_bytes = 1 << 20,
		.force = XD_RUNG_COUNT,
		.inline_bytes = 64,
		.costs = { .wr_ns = 2000, .copy_ns = 100, .copy_kib_ns = 50 },
	};

	(void)unused;
	for (uint32_t i = 0; i < 9; i++)
		shape_local[i] = shape_segment(i * 100, 10, 1);
	shape_remote[0] = shape_segment(0, 90, 7);
	says(&s, &limits, XD_RUNG_INLINE, "READ brings no data along");
	says(&s, &limits, XD_RUNG_DIRECT, "READ wants 9 pieces, the device takes 1");
	says(&s, &limits, XD_RUNG_SPLIT, "taken");
	says(&s, &limits, XD_RUNG_STAGE, "there is no slab for it");
	says(&s, &limits, XD_RUNG_INDIRECT, "the device makes no keys over ranges");
	limits.stage_bytes = 1 << 20;
	limits.ranges = 4;
	says(&s, &limits, XD_RUNG_SPLIT, "it would cost 18.0 us, what was taken 2.9 us");
	says(&s, &limits, XD_RUNG_STAGE, "taken");
	says(&s, &limits, XD_RUNG_INDIRECT, "READ has 9 ranges, a key takes 4");
	limits.no_keys = true;
	says(&s, &limits, XD_RUNG_INDIRECT, "client memory is not registered");
	s.opcode = XP_OP_WRITE;
	says(&s, &limits, XD_RUNG_INLINE, "WRITE has 90 bytes, inline go at most 64");
	s.opcode = XP_OP_SEND;
	s.n_remote = 0;
	limits.wr_bytes = 80;
	says(&s, &limits, XD_RUNG_STAGE, "SEND has 90 bytes, a slab takes 80");
	says(&s, &limits, XD_RUNG_SPLIT, "SEND is one message, and never split");
}

/* What cannot be added up is the dearest, and not the cheapest. */
static void prices_never_wrap(void **unused)
{
	struct xd_shape s = { .opcode = XP_OP_READ,
			      .n_local = 2,
			      .n_remote = 2,
			      .local = shape_local,
			      .remote = shape_remote };
	struct xd_plan_limits limits = {
		.max_sge = 1, .wr_bytes = 1, .force = XD_RUNG_COUNT, .stage_bytes = 1, .ranges = 1
	};
	struct xd_plan plan;
	struct xd_thoughts thoughts;

	(void)unused;
	memset(&limits.costs, 0xff, sizeof(limits.costs));
	for (uint32_t i = 0; i < 2; i++)
		shape_local[i] = shape_remote[i] =
			shape_segment(i * UINT64_C(0xffffffff), 0xffffffff, 1);
	assert_int_equal(xd_plan_make(&s, &limits, &plan, &thoughts), 0);
	assert_int_equal(plan.rung, XD_RUNG_SPLIT);
	assert_int_equal(plan.wrs, UINT32_MAX);
	assert_true(thoughts.of[XD_RUNG_STAGE].ns >= plan.ns);
	assert_true(thoughts.of[XD_RUNG_INDIRECT].ns >= plan.ns);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(random_choices),
		cmocka_unit_test(sentences),
		cmocka_unit_test(prices_never_wrap),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
