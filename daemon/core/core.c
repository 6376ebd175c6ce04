/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "daemon/core/core.h"

#include <errno.h>
#include <stdlib.h>

#include "common/assert.h"
#include "daemon/core/buffer.h"
#include "daemon/core/endpoint.h"
#include "daemon/core/grant.h"
#include "daemon/core/stage.h"
#include "daemon/core/temporary.h"
#include "daemon/core/wait.h"

#define POLL_BATCH 64
/* Requests ended in a turn because their endpoint does; about a millisecond's work. */
#define FLUSHED_A_TURN 4096

#ifdef XD_SABOTEURS
const char *xd_saboteur;
#endif

static const struct fabric_events events = {
	.peer_allowed = xd_on_peer_allowed,
	.connect_request = xd_on_connect_request,
	.conn_gone = xd_on_conn_gone,
	.established = xd_on_established,
	.disconnected = xd_on_disconnected,
	.region_fault = xd_buffer_fault,
};

const struct fabric_events *xd_core_fabric_events(void)
{
	return &events;
}

static void drain_over(struct xd_timer *t);

int xd_core_new(const struct xd_engine_ref *engine, const struct xd_policy *policy,
		struct xd_core **ret)
{
	struct xd_core *core = calloc(1, sizeof(*core));

	if (!core)
		return -ENOMEM;
	core->audit = xd_audit_new();
	if (!core->audit) {
		free(core);
		return -ENOMEM;
	}
	core->magic = XD_CORE_MAGIC;
	core->engine = *engine;
	core->drain.fired = drain_over;
	xd_wait_init(core);
	xd_quota_init(&core->quota, policy);
	xc_list_init(&core->sessions);
	xc_list_init(&core->closing);
	xc_list_init(&core->ending);
	xc_list_init(&core->staging);
	xc_list_init(&core->spare);
	xc_list_init(&core->spare_grants);
	xc_list_init(&core->spare_temporaries);
	xc_slots_init(&core->qps, XC_SLOTS_MAX);
	*ret = core;
	return 0;
}

int xd_core_add_fabric(struct xd_core *core, const struct fabric_ref *fabric)
{
	struct fabric_caps *caps = &core->caps[core->n_fabrics];

	if (core->n_fabrics == XD_FABRICS_MAX)
		return -ENOSPC;
	*caps = *fabric->ops->caps(fabric->fabric);
	caps->max_sge = xc_min_u32(caps->max_sge, XD_PLAN_SGE_MAX);
	caps->max_sge_rd = xc_min_u32(caps->max_sge_rd, XD_PLAN_SGE_MAX);
	caps->max_recv_sge = xc_min_u32(caps->max_recv_sge, XD_PLAN_SGE_MAX);
	core->told[core->n_fabrics] = *caps;
	/* Through a slab a message may be of many pieces. */
	if (xd_must_stage(caps)) {
		struct fabric_caps *told = &core->told[core->n_fabrics];

		told->max_sge = told->max_recv_sge = XP_SEGMENTS_MAX;
	}
	core->fabrics[core->n_fabrics++] = *fabric;
	return 0;
}

void xd_core_set_likeness(struct xd_core *core, xd_likeness *like)
{
	core->like = like;
}

void xd_core_set_policy(struct xd_core *core, const struct xd_policy *policy)
{
	xd_quota_set_policy(&core->quota, policy);
}

int xd_core_fds(struct xd_core *core, int fds[static XD_FABRICS_MAX])
{
	for (uint32_t i = 0; i < core->n_fabrics; i++)
		fds[i] = core->fabrics[i].ops->fd(core->fabrics[i].fabric);
	return (int)core->n_fabrics;
}

/* ------------------------------------------------------------------ a turn */

/* Takes all completions there are: those that precede a disconnect must be seen before the QP goes.
 */
static void take_completions(struct xd_core *core, const struct fabric_ref *f)
{
	struct ibv_wc wc[POLL_BATCH];
	int n;

	do {
		n = f->ops->poll(f->fabric, POLL_BATCH, wc);
		for (int i = 0; i < n; i++) {
			struct xd_endpoint *ep = xc_slots_get(&core->qps, wc[i].qp_num);

			/* A late one of a QP that is gone: its transfers have ended from our own
			 * table. */
			if (ep)
				xd_transfer_completed(ep, &wc[i]);
		}
	} while (n == POLL_BATCH);
}

static void end_all_sessions(struct xd_core *core)
{
	struct xd_session *s;

	xc_list_for_each(s, &core->sessions, link)
		xd_session_fail(s, -XP_E_SHUTDOWN, "the daemon is stopping");
}

/*
 * Endpoints whose QP is to go. Each ends what is on its queues, and a session that dies may have a
 * thousand of them. True: some are left for the next turn.
 */
static bool take_down(struct xd_core *core)
{
	uint64_t until = core->counters[XD_COUNTER_transfers_flushed] + FLUSHED_A_TURN;
	struct xc_list *l;

	while (core->counters[XD_COUNTER_transfers_flushed] < until &&
	       (l = xc_list_pop(&core->ending)))
		xd_endpoint_take_down(xc_container_of(l, struct xd_endpoint, ending_link));
	return !xc_list_empty(&core->ending);
}

bool xd_core_progress(struct xd_core *core, uint64_t budget_bytes)
{
	struct xd_session *s;
	bool more = false;

	core->turn++;
	core->copy_left = (int64_t)budget_bytes;
	for (uint32_t i = 0; i < core->n_fabrics; i++) {
		const struct fabric_ref *f = &core->fabrics[i];

		more |= f->ops->progress(f->fabric, budget_bytes);
		take_completions(core, f);
	}
	more |= xd_stage_turn(core);
	more |= xd_wait_turn(core);
	more |= take_down(core);
	/*
	 * All or none: a session that has nothing in flight may be the one that another reads from.
	 */
	if (core->draining && !core->unfinished)
		end_all_sessions(core);
	xc_list_for_each(s, &core->closing, closing_link)
		xd_session_advance(s);
	return more;
}

/* ------------------------------------------------------------------ the end */

static void drain_over(struct xd_timer *t)
{
	end_all_sessions(xc_container_of(t, struct xd_core, drain));
}

void xd_core_drain(struct xd_core *core)
{
	if (core->draining)
		return;
	core->draining = true;
	xd_arm(core, &core->drain, xd_now(core) + core->quota.policy->drain_ms * XD_NS_PER_MS);
	core->engine.ops->kick(core->engine.engine);
}

bool xd_core_idle(const struct xd_core *core)
{
	return xc_list_empty(&core->sessions) && core->counters[XD_COUNTER_slow_closes] == 0;
}

void xd_core_free(struct xd_core *core)
{
	struct xc_list *l;

	XC_CHECK(core, XD_CORE_MAGIC);
	xc_assert(xc_list_empty(&core->sessions));
	xd_disarm(core, &core->drain);
	xd_wait_done(core);
	while ((l = xc_list_pop(&core->spare)))
		free(xc_container_of(l, struct xd_transfer, link));
	while ((l = xc_list_pop(&core->spare_grants)))
		free(xc_container_of(l, struct xd_grant, link));
	while ((l = xc_list_pop(&core->spare_temporaries)))
		free(xc_container_of(l, struct xd_temporaries, link));
	for (int i = 0; i < 2; i++) {
		while (core->spare_lists[i]) {
			void *next = *(void **)core->spare_lists[i];

			free(core->spare_lists[i]);
			core->spare_lists[i] = next;
		}
	}
	for (uint32_t i = 0; i < core->n_fabrics; i++)
		core->fabrics[i].ops->close(core->fabrics[i].fabric);
	xc_slots_done(&core->qps);
	xd_quota_done(&core->quota);
	xd_audit_free(core->audit);
	core->magic = 0;
	free(core);
}

void xd_core_count(struct xd_core *core, enum xd_counter counter, int64_t delta)
{
	core->counters[counter] += (uint64_t)delta;
}

uint64_t xd_core_counter(const struct xd_core *core, enum xd_counter counter)
{
	return core->counters[counter];
}
