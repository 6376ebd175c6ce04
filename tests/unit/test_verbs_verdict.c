/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include <string.h>

#include "common/checked.h"
#include "daemon/fabric/saboteur.h"
#include "daemon/fabric/verbs/selftest.h"
#include "tests/unit/cm.h"

/*
 * What is done with what a device was seen to do: tables of findings in, capabilities out.
 */

struct verdict {
	struct fabric_caps caps;
	struct verbs_facts facts;
	bool usable;
};

static const struct verbs_claims good_claims = {
	.driver = "mlx5_core", .windows = true, .max_sge = 30, .max_sge_rd = 30, .max_mw = 1000,
};
static const struct verbs_claims iwarp_claims = {
	.driver = "iw_cxgb4", .iwarp = true, .windows = true, .max_sge = 4, .max_sge_rd = 1,
	.max_mw = 1000,
};
static const struct verbs_claims rxe_claims = {
	.driver = "rdma_rxe", .windows = true, .max_sge = 32, .max_sge_rd = 32, .max_mw = 524287,
};
static const struct verbs_claims siw_claims = {
	.driver = "siw", .iwarp = true, .max_sge = 6, .max_sge_rd = 1,
};

static struct verbs_findings all(enum verbs_answer answer)
{
	struct verbs_findings f = {
		.complete = true, .max_inline = 200,
		.costs = { .wr_ns = 1, .reg_ns = 2, .bind_ns = 3, .copy_ns = 4 },
	};

	for (int i = 0; i < VERBS_N_QUESTIONS; i++)
		f.q[i] = (struct verbs_finding){ answer, -1 };
	return f;
}

static void set(struct verbs_findings *f, enum verbs_question q, enum verbs_answer a, int status)
{
	f->q[q] = (struct verbs_finding){ a, status };
}

/* As Linux 6.1 answers. */
static struct verbs_findings rxe(void)
{
	struct verbs_findings f = all(VERBS_YES);

	set(&f, VERBS_Q_WINDOW_BOUNDS, VERBS_NO, IBV_WC_SUCCESS);
	set(&f, VERBS_Q_MR_BOUNDS, VERBS_YES, IBV_WC_REM_ACCESS_ERR);
	set(&f, VERBS_Q_READ_MORE_SGES, VERBS_UNASKED, -1);
	set(&f, VERBS_Q_SEND_INV_REPORTED, VERBS_NO, IBV_WC_SUCCESS);
	set(&f, VERBS_Q_PRIVATE_DATA, VERBS_NO, -1);
	return f;
}

static struct verbs_findings siw(void)
{
	static const enum verbs_question windows[] = {
		VERBS_Q_WINDOW_BIND, VERBS_Q_WINDOW_BOUNDS, VERBS_Q_WINDOW_RIGHTS,
		VERBS_Q_WINDOW_QP, VERBS_Q_WINDOW_DEAD, VERBS_Q_WINDOW_INV_UNDER_READ,
		VERBS_Q_SEND_INV, VERBS_Q_SEND_INV_REPORTED,
	};
	struct verbs_findings f = all(VERBS_YES);

	for (size_t i = 0; i < XC_ARRAY_SIZE(windows); i++)
		set(&f, windows[i], VERBS_UNASKED, -1);
	set(&f, VERBS_Q_MR_REMOTE_READ, VERBS_NO, IBV_WC_SUCCESS);
	set(&f, VERBS_Q_DEREG_UNDER_READ, VERBS_NO, IBV_WC_WR_FLUSH_ERR);
	set(&f, VERBS_Q_READ_MORE_SGES, VERBS_NO, IBV_WC_SUCCESS);
	set(&f, VERBS_Q_IOVA, VERBS_NO, -1);
	set(&f, VERBS_Q_IMM_SEND, VERBS_NO, -2);
	set(&f, VERBS_Q_IMM_WRITE, VERBS_NO, -2);
	set(&f, VERBS_Q_SHORT_READ, VERBS_NO, IBV_WC_SUCCESS);
	set(&f, VERBS_Q_SHORT_WRITE, VERBS_NO, IBV_WC_SUCCESS);
	set(&f, VERBS_Q_SHORT_SEND, VERBS_NO, IBV_WC_SUCCESS);
	set(&f, VERBS_Q_RNR, VERBS_NO, IBV_WC_SUCCESS);
	set(&f, VERBS_Q_ACKNOWLEDGED, VERBS_NO, IBV_WC_SUCCESS);
	return f;
}

static void judge(const struct verbs_findings *f, const struct verbs_claims *c, struct verdict *ret)
{
	memset(ret, 0xa5, sizeof(*ret));
	ret->usable = verbs_verdict(f, c, &ret->caps, &ret->facts);
}

static const struct fabric_fact *fact(const struct verdict *v, enum verbs_question q)
{
	assert_true(v->caps.facts == v->facts.fact);
	assert_int_equal(v->caps.n_facts, VERBS_N_QUESTIONS);
	assert_string_equal(v->facts.fact[q].question, verbs_question_name(q));
	return &v->facts.fact[q];
}

/* ------------------------------------------------------------------ whole devices */

static void a_good_device(void **state)
{
	const struct verbs_findings f = all(VERBS_YES);
	struct verdict v;

	(void)state;
	judge(&f, &good_claims, &v);
	assert_true(v.usable);
	assert_int_equal(v.caps.keys, FABRIC_KEYS_WINDOW);
	assert_int_equal(v.caps.max_sge_rd, 30);
	assert_true(v.caps.remote_invalidate);
	assert_true(v.caps.immediate);
	assert_false(v.caps.read_sink_remote_write);
	assert_true(v.caps.receiver_not_ready);
	assert_true(v.caps.acknowledged);
	assert_false(v.caps.signal_all);
	assert_false(v.caps.short_read_in_page);
	assert_int_equal(v.caps.max_inline, 200);
	assert_int_equal(v.caps.max_ranges, 0);
	assert_memory_equal(&v.caps.costs, &f.costs, sizeof(f.costs));
	assert_false(v.caps.private_data_padded);
	for (int q = 0; q < VERBS_N_QUESTIONS; q++)
		assert_string_equal(fact(&v, (enum verbs_question)q)->consequence, "");
}

static void soft_roce(void **state)
{
	const struct verbs_findings f = rxe();
	struct verdict v;

	(void)state;
	judge(&f, &rxe_claims, &v);
	assert_true(v.usable);
	assert_int_equal(v.caps.keys, FABRIC_KEYS_MR);
	assert_int_equal(v.caps.max_sge_rd, 32);
	assert_false(v.caps.remote_invalidate);
	assert_true(v.caps.immediate);
	assert_int_equal(v.caps.max_inline, 200);
	assert_int_equal(v.caps.costs.reg_ns, 2);
	assert_int_equal(v.caps.costs.bind_ns, 0); /* none is used */
	assert_false(v.caps.read_sink_remote_write);
	assert_true(v.caps.receiver_not_ready);
	assert_true(v.caps.acknowledged);
	assert_false(v.caps.signal_all);
	assert_true(v.caps.private_data_padded);
	assert_string_equal(fact(&v, VERBS_Q_WINDOW_BIND)->claimed, "type 2, 524287 windows");
	assert_string_equal(fact(&v, VERBS_Q_WINDOW_BOUNDS)->seen, "bytes outside were reached");
	assert_string_equal(fact(&v, VERBS_Q_WINDOW_BOUNDS)->consequence, "no windows");
	assert_string_equal(fact(&v, VERBS_Q_PD_SHARED)->consequence,
			    "a protection domain per endpoint");
	assert_string_equal(fact(&v, VERBS_Q_MR_BOUNDS)->seen,
			    "refused, nothing moved (remote access error)");
	assert_string_equal(fact(&v, VERBS_Q_PRIVATE_DATA)->consequence, "private data is padded");
}

static void soft_iwarp(void **state)
{
	const struct verbs_findings f = siw();
	struct verdict v;

	(void)state;
	judge(&f, &siw_claims, &v);
	assert_int_equal(v.caps.max_inline, 0);
	assert_true(v.usable);
	assert_int_equal(v.caps.keys, FABRIC_KEYS_SLAB);
	assert_int_equal(v.caps.max_sge_rd, 1);
	assert_false(v.caps.remote_invalidate);
	assert_false(v.caps.immediate);
	assert_false(v.caps.read_sink_remote_write);
	assert_false(v.caps.receiver_not_ready);
	assert_false(v.caps.acknowledged);
	assert_true(v.caps.signal_all);
	assert_false(v.caps.private_data_padded);
	assert_string_equal(fact(&v, VERBS_Q_WINDOW_BIND)->claimed, "no windows of type 2");
	assert_string_equal(fact(&v, VERBS_Q_WINDOW_BIND)->seen, "not asked");
	assert_string_equal(fact(&v, VERBS_Q_MR_REMOTE_READ)->seen, "it was read");
	assert_string_equal(fact(&v, VERBS_Q_MR_REMOTE_READ)->consequence,
			    "no client memory is registered");
	assert_string_equal(fact(&v, VERBS_Q_READ_MORE_SGES)->consequence,
			    "never more than max_sge_rd");
	assert_true(v.caps.short_read_in_page);
	assert_string_equal(fact(&v, VERBS_Q_SHORT_READ)->consequence,
			    "short READs are cut at the end of a page");
	assert_string_equal(fact(&v, VERBS_Q_SHORT_SEND)->consequence,
			    "no client memory is registered");
	assert_string_equal(fact(&v, VERBS_Q_DEREG_UNDER_READ)->seen,
			    "the READ saw bytes that were written later (Work Request Flushed Error)");
}

/* ------------------------------------------------------------------ trust that is removed */

static void one_removed(enum verbs_question q, enum verbs_answer instead, enum fabric_keys windows,
			enum fabric_keys mrs, bool usable)
{
	struct verbs_findings f = all(VERBS_YES);
	struct verdict v;

	set(&f, q, instead, -1);
	judge(&f, &good_claims, &v);
	assert_int_equal(v.caps.keys, windows);
	assert_true(v.usable == usable);
	/* where there are no windows to fall back from */
	set(&f, VERBS_Q_WINDOW_BIND, VERBS_NO, -1);
	judge(&f, &good_claims, &v);
	assert_int_equal(v.caps.keys, mrs);
	assert_true(v.usable == usable);
}

static void each_removed_trust_weakens(void **state)
{
#define W FABRIC_KEYS_WINDOW
#define M FABRIC_KEYS_MR
#define S FABRIC_KEYS_SLAB
	static const struct {
		enum verbs_question q;
		enum fabric_keys windows, mrs;
		bool usable;
	} cases[] = {
		{ VERBS_Q_WINDOW_BIND, M, M, true },
		{ VERBS_Q_WINDOW_BOUNDS, M, M, true },
		{ VERBS_Q_WINDOW_RIGHTS, M, M, true },
		{ VERBS_Q_WINDOW_QP, M, M, true },
		{ VERBS_Q_WINDOW_DEAD, M, M, true },
		{ VERBS_Q_WINDOW_INV_UNDER_READ, M, M, true },
		{ VERBS_Q_MR_REMOTE_READ, S, S, true },
		{ VERBS_Q_MR_REMOTE_WRITE, S, S, true },
		{ VERBS_Q_MR_BOUNDS, S, S, false },
		{ VERBS_Q_PD_SEPARATION, S, S, false },
		{ VERBS_Q_DEREG_DEAD, S, S, true },
		{ VERBS_Q_DEREG_UNDER_READ, W, S, true },
		{ VERBS_Q_DEREG_UNDER_WRITE, W, S, true },
		{ VERBS_Q_SHORT_READ, S, S, true },
		{ VERBS_Q_SHORT_WRITE, S, S, true },
		{ VERBS_Q_SHORT_SEND, S, S, true },
	};
#undef W
#undef M
#undef S
	static const enum verbs_answer others[] = { VERBS_NO, VERBS_SILENT, VERBS_LOST,
						    VERBS_UNASKED };

	(void)state;
	for (size_t i = 0; i < XC_ARRAY_SIZE(cases); i++)
		for (size_t k = 0; k < XC_ARRAY_SIZE(others); k++)
			one_removed(cases[i].q, others[k], cases[i].windows, cases[i].mrs,
				    cases[i].usable);
}

/* No other answer has a say in which kind of key is used. */
static void the_rest_leaves_keys_alone(void **state)
{
	(void)state;
	for (int q = VERBS_Q_PD_SHARED; q < VERBS_N_QUESTIONS; q++)
		if (q == VERBS_Q_PD_SHARED ||
		    (q > VERBS_Q_DEREG_UNDER_WRITE &&
		     (q < VERBS_Q_SHORT_READ || q > VERBS_Q_SHORT_SEND)))
			one_removed((enum verbs_question)q, VERBS_NO, FABRIC_KEYS_WINDOW,
				    FABRIC_KEYS_MR, true);
}

static void nothing_known(void **state)
{
	const struct verbs_findings f = { 0 };
	struct verdict v;

	(void)state;
	judge(&f, &good_claims, &v);
	assert_false(v.usable);
	assert_int_equal(v.caps.keys, FABRIC_KEYS_SLAB);
	assert_int_equal(v.caps.max_sge_rd, 1);
	assert_false(v.caps.remote_invalidate || v.caps.immediate || v.caps.receiver_not_ready ||
		     v.caps.acknowledged);
	assert_true(v.caps.signal_all && v.caps.private_data_padded);
	assert_string_equal(fact(&v, VERBS_Q_MR_BOUNDS)->consequence, "the device is not used");
}

static bool same(const struct fabric_caps *a, const struct fabric_caps *b)
{
	return a->keys == b->keys && a->max_sge_rd == b->max_sge_rd &&
	       a->remote_invalidate == b->remote_invalidate && a->immediate == b->immediate &&
	       a->short_read_in_page == b->short_read_in_page &&
	       a->read_sink_remote_write == b->read_sink_remote_write &&
	       a->receiver_not_ready == b->receiver_not_ready &&
	       a->acknowledged == b->acknowledged && a->signal_all == b->signal_all &&
	       a->private_data_padded == b->private_data_padded;
}

/* Each answer that decides of a capability, taken away from a good device: that changes alone. */
static void each_capability_has_its_answers(void **state)
{
	const struct verbs_findings good = all(VERBS_YES);
	struct fabric_caps want;
	struct verbs_findings f;
	struct verdict v;

	(void)state;
#define TAKEN(question, change)                                                                    \
	do {                                                                                       \
		judge(&good, &good_claims, &v);                                                    \
		want = v.caps;                                                                     \
		want.change;                                                                       \
		f = good;                                                                          \
		set(&f, VERBS_Q_##question, VERBS_NO, -1);                                         \
		judge(&f, &good_claims, &v);                                                       \
		assert_true(same(&v.caps, &want));                                                 \
	} while (0)
	TAKEN(READ_SGES, max_sge_rd = 1);
	TAKEN(SEND_INV, remote_invalidate = false);
	TAKEN(SEND_INV_REPORTED, remote_invalidate = false);
	TAKEN(IMM_SEND, immediate = false);
	TAKEN(IMM_WRITE, immediate = false);
	TAKEN(READ_SINK, read_sink_remote_write = true);
	TAKEN(SHORT_READ, short_read_in_page = true; want.keys = FABRIC_KEYS_SLAB;
	      want.remote_invalidate = false);
	TAKEN(SHORT_WRITE, keys = FABRIC_KEYS_SLAB; want.remote_invalidate = false);
	TAKEN(SHORT_SEND, keys = FABRIC_KEYS_SLAB; want.remote_invalidate = false);
	TAKEN(RNR, receiver_not_ready = false);
	TAKEN(ACKNOWLEDGED, acknowledged = false);
	TAKEN(UNSIGNALLED, signal_all = true);
	TAKEN(PRIVATE_DATA, private_data_padded = true);
	/* for the record alone: a change that is none */
	TAKEN(PD_SHARED, immediate = true);
	TAKEN(READ_MORE_SGES, immediate = true);
	TAKEN(IOVA, immediate = true);
	TAKEN(ZERO_READ, immediate = true);
	TAKEN(ZERO_WRITE, immediate = true);
	TAKEN(ZERO_SEND, immediate = true);
#undef TAKEN
}

/* An iWARP sink is writable unless a READ into one that was not did work. */
static void sinks_of_iwarp(void **state)
{
	static const enum verbs_answer others[] = { VERBS_NO, VERBS_SILENT, VERBS_LOST,
						    VERBS_UNASKED };
	struct verbs_findings f = all(VERBS_YES);
	struct verdict v;

	(void)state;
	judge(&f, &iwarp_claims, &v);
	assert_false(v.caps.read_sink_remote_write);
	for (size_t i = 0; i < XC_ARRAY_SIZE(others); i++) {
		set(&f, VERBS_Q_READ_SINK, others[i], -1);
		judge(&f, &iwarp_claims, &v);
		assert_true(v.caps.read_sink_remote_write);
		assert_string_equal(fact(&v, VERBS_Q_READ_SINK)->consequence,
				    "sinks of READs are remotely writable");
		/* and elsewhere rights are not given away for want of an answer */
		judge(&f, &good_claims, &v);
		assert_true(v.caps.read_sink_remote_write == (others[i] == VERBS_NO));
	}
}

static void invalidation_needs_windows(void **state)
{
	struct verbs_findings f = all(VERBS_YES);
	struct verdict v;

	(void)state;
	set(&f, VERBS_Q_WINDOW_QP, VERBS_NO, -1);
	judge(&f, &good_claims, &v);
	assert_int_equal(v.caps.keys, FABRIC_KEYS_MR);
	assert_false(v.caps.remote_invalidate);
}

/* The saboteur that the guest tests must see: all that a device claims is believed. */
static void trusting_the_device(void **state)
{
	const struct verbs_findings r = rxe(), s = siw();
	struct verdict v;

	(void)state;
	fabric_saboteur = "trust-the-device";
	judge(&r, &rxe_claims, &v);
	assert_int_equal(v.caps.keys, FABRIC_KEYS_WINDOW);
	judge(&s, &siw_claims, &v);
	assert_int_equal(v.caps.keys, FABRIC_KEYS_MR);
	fabric_saboteur = NULL;
	judge(&r, &rxe_claims, &v);
	assert_int_equal(v.caps.keys, FABRIC_KEYS_MR);
}

/* Every text is there and fits its column. */
static void texts_are_whole(void **state)
{
	static const struct verbs_claims *const claims[] = { &good_claims, &iwarp_claims,
							     &rxe_claims, &siw_claims };
	struct verdict v;

	(void)state;
	for (int a = VERBS_UNASKED; a <= VERBS_YES; a++) {
		struct verbs_findings f = all((enum verbs_answer)a);

		for (int q = 0; q < VERBS_N_QUESTIONS; q++)
			f.q[q].status = IBV_WC_RNR_RETRY_EXC_ERR;
		for (size_t c = 0; c < XC_ARRAY_SIZE(claims); c++) {
			judge(&f, claims[c], &v);
			for (int q = 0; q < VERBS_N_QUESTIONS; q++) {
				const struct fabric_fact *t = fact(&v, (enum verbs_question)q);

				assert_true(t->asked[0] && t->claimed[0] && t->seen[0]);
				assert_non_null(t->consequence);
				assert_true(strlen(t->claimed) < sizeof(v.facts.claimed[0]) - 1);
				assert_true(strlen(t->seen) < sizeof(v.facts.seen[0]) - 1);
			}
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_good_device),
		cmocka_unit_test(soft_roce),
		cmocka_unit_test(soft_iwarp),
		cmocka_unit_test(each_removed_trust_weakens),
		cmocka_unit_test(the_rest_leaves_keys_alone),
		cmocka_unit_test(nothing_known),
		cmocka_unit_test(each_capability_has_its_answers),
		cmocka_unit_test(sinks_of_iwarp),
		cmocka_unit_test(invalidation_needs_windows),
		cmocka_unit_test(trusting_the_device),
		cmocka_unit_test(texts_are_whole),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
