/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include <errno.h>

#include "common/checked.h"
#include "daemon/fabric/verbs/selftest_rig.h"

/*
 * The self-test: one question after the other, each on connections of its own.
 */

typedef struct verbs_finding ask_fn(struct st *t);

static const struct {
	ask_fn *ask;
	bool of_windows;    /* asked where window_bind was answered yes */
	bool may_be_silent; /* that nothing completes is an answer, as good as no */
} questions[VERBS_N_QUESTIONS] = {
	[VERBS_Q_WINDOW_BIND] = { .ask = st_ask_window_bind },
	[VERBS_Q_WINDOW_BOUNDS] = { .ask = st_ask_window_bounds, .of_windows = true },
	[VERBS_Q_WINDOW_RIGHTS] = { .ask = st_ask_window_rights, .of_windows = true },
	[VERBS_Q_WINDOW_QP] = { .ask = st_ask_window_qp, .of_windows = true },
	[VERBS_Q_WINDOW_DEAD] = { .ask = st_ask_window_dead, .of_windows = true },
	[VERBS_Q_WINDOW_INV_UNDER_READ] = { .ask = st_ask_window_inv_under_read,
					    .of_windows = true },
	[VERBS_Q_MR_REMOTE_READ] = { .ask = st_ask_mr_remote_read },
	[VERBS_Q_MR_REMOTE_WRITE] = { .ask = st_ask_mr_remote_write },
	[VERBS_Q_MR_BOUNDS] = { .ask = st_ask_mr_bounds },
	[VERBS_Q_PD_SEPARATION] = { .ask = st_ask_pd_separation },
	[VERBS_Q_PD_SHARED] = { .ask = st_ask_pd_shared },
	[VERBS_Q_DEREG_DEAD] = { .ask = st_ask_dereg_dead },
	[VERBS_Q_DEREG_UNDER_READ] = { .ask = st_ask_dereg_under_read },
	[VERBS_Q_DEREG_UNDER_WRITE] = { .ask = st_ask_dereg_under_write },
	[VERBS_Q_READ_SGES] = { .ask = st_ask_read_sges },
	[VERBS_Q_READ_MORE_SGES] = { .ask = st_ask_read_more_sges, .may_be_silent = true },
	[VERBS_Q_READ_SINK] = { .ask = st_ask_read_sink },
	[VERBS_Q_IOVA] = { .ask = st_ask_iova },
	[VERBS_Q_SEND_INV] = { .ask = st_ask_send_inv, .of_windows = true },
	[VERBS_Q_SEND_INV_REPORTED] = { .ask = st_ask_send_inv_reported, .of_windows = true },
	[VERBS_Q_IMM_SEND] = { .ask = st_ask_imm_send, .may_be_silent = true },
	[VERBS_Q_IMM_WRITE] = { .ask = st_ask_imm_write, .may_be_silent = true },
	[VERBS_Q_ZERO_READ] = { .ask = st_ask_zero_read, .may_be_silent = true },
	[VERBS_Q_ZERO_WRITE] = { .ask = st_ask_zero_write, .may_be_silent = true },
	[VERBS_Q_ZERO_SEND] = { .ask = st_ask_zero_send, .may_be_silent = true },
	[VERBS_Q_SHORT_READ] = { .ask = st_ask_short_read },
	[VERBS_Q_SHORT_WRITE] = { .ask = st_ask_short_write },
	[VERBS_Q_SHORT_SEND] = { .ask = st_ask_short_send },
	[VERBS_Q_UNSIGNALLED] = { .ask = st_ask_unsignalled, .may_be_silent = true },
	[VERBS_Q_RNR] = { .ask = st_ask_rnr },
	[VERBS_Q_ACKNOWLEDGED] = { .ask = st_ask_acknowledged },
	[VERBS_Q_PRIVATE_DATA] = { .ask = st_ask_private_data },
};

static bool needless(const struct st *t, const struct verbs_findings *so_far, size_t i)
{
	if (i == VERBS_Q_WINDOW_BIND)
		return !t->claims.windows;
	return questions[i].of_windows && so_far->q[VERBS_Q_WINDOW_BIND].answer != VERBS_YES;
}

static bool unclear(size_t i, enum verbs_answer a)
{
	return a == VERBS_LOST || (a == VERBS_SILENT && !questions[i].may_be_silent);
}

/* Put twice where it was not answered: a machine is busy, a packet gets lost. */
static struct verbs_finding put(struct st *t, size_t i)
{
	struct verbs_finding f = questions[i].ask(t);

	if (unclear(i, f.answer) && !st_time_is_over(t))
		f = questions[i].ask(t);
	return f;
}

static void put_all(struct st *t, struct verbs_findings *ret)
{
	ret->complete = true;
	for (size_t i = 0; i < VERBS_N_QUESTIONS; i++) {
		ret->q[i].status = ST_NOTHING;
		if (needless(t, ret, i))
			continue;
		if (st_time_is_over(t)) {
			ret->complete = false;
			continue;
		}
		ret->q[i] = put(t, i);
		/* Waits end with the time: an answer that came with it might be none. */
		if (st_time_is_over(t) || unclear(i, ret->q[i].answer))
			ret->complete = false;
	}
}

/*
 * Nothing goes inline on iWARP devices, and so nothing is tried: siw sends wrong bytes of what is
 * short and lies in two pages (SHORT_*), which the daemon sees to in its slabs alone.
 */
static uint32_t find_inline(struct st *t)
{
	struct ibv_device_attr attr;

	if (t->claims.iwarp || ibv_query_device(t->verbs, &attr) || attr.max_qp_wr <= 0)
		return 0;
	return st_max_inline(t, (uint32_t)attr.max_qp_wr);
}

/* Without them the device can be used as well. */
static void find_costs(struct st *t, struct verbs_findings *ret)
{
	const bool windows = ret->q[VERBS_Q_WINDOW_BIND].answer == VERBS_YES;

	ret->max_inline = find_inline(t);
	if (st_measure(t, windows, &ret->costs))
		ret->costs = (struct fabric_costs){ 0 };
}

int verbs_selftest(struct ibv_context *verbs, const struct xc_addr *address, unsigned int limit_ms,
		   struct verbs_findings *ret)
{
	const uint64_t begun = st_now_ns();
	struct verbs_findings found = { 0 };
	struct st t;
	int r;

	r = st_init(&t, verbs, address, limit_ms);
	if (r == 0) {
		r = st_connect(&t, 0, t.owner_pd, 1);
		if (r == 0 && !st_link_works(&t, 0))
			r = -EIO;
		st_reset(&t);
	}
	if (r == 0) {
		put_all(&t, &found);
		find_costs(&t, &found);
	}
	st_done(&t);
	if (r)
		return r;
	found.duration_ms = (uint32_t)((st_now_ns() - begun) / 1000000);
	*ret = found;
	return 0;
}
