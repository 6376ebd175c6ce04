/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What things cost, which changes in mid-run, and what the planner made of it. */
#include <string.h>

#include "daemon/core/explained.h"
#include "daemon/core/session.h"
#include "tests/sim/world.h"

struct fabric_costs w_costs(struct world *w)
{
	return (struct fabric_costs){
		.wr_ns = w_below(w, 2000),
		.reg_ns = w_below(w, 100000),
		.reg_page_ns = w_below(w, 500),
		.ranges_ns = w_below(w, w_dice(w, 500) ? 50000 : 20),
		.range_ns = w_below(w, 200),
		.bind_ns = w_below(w, 3000),
		.copy_ns = w_below(w, 2000),
		.copy_kib_ns = w_below(w, 100),
		.copy_cold_kib_ns = w_below(w, 300),
	};
}

/* ---- measuring */

/* By an administrator, who may be gone before the answer is there. */
static void ask(struct world *w, const char *device)
{
	bool stays = w->admin && w->admin->s && w_dice(w, 500);
	struct w_session *s = stays ? w->admin : w_session_new(w, true);

	if (!s || xd_session_busy(s->s))
		return;
	xd_session_admin(s->s, w_ask(s, W_ADMIN, NULL)->serial, "measure", &device, 1);
	if (!stays)
		w_session_close(w, s);
}

void w_measure(struct world *w)
{
	uint32_t i = w_below(w, w->n_fabrics);
	struct fabric_costs costs = w_costs(w);

	if (w_dice(w, 100))
		memset(&costs, 0, sizeof(costs)); /* nothing is known */
	if (!w_dice(w, 200))
		fake_fabric_reprice(w->fabrics[i], &costs);
	sim_note("fabric %u is measured", i);
	w->measured++;
	if (w->draining || w_dice(w, 500))
		(void)xd_core_measure(w->core, i);
	else
		ask(w, w->caps[i].name);
}

/* ---- what must be true of it */

/* By what it was chosen, not by what things cost now: the two may differ. */
static void check_plan(const struct xd_explained *e)
{
	const struct xd_plan *p = &e->plan;

	for (enum xd_rung r = XD_RUNG_INLINE; r < XD_RUNG_COUNT; r++) {
		const struct xd_thought *t = &e->thoughts.of[r];
		const char *name = xd_rung_names[r];

		sim_check((r == p->rung) == (t->verdict == XD_VERDICT_TAKEN), "plan",
			  "request %llu went %s, and %s is explained with \"%s\"",
			  (unsigned long long)e->wr_id, xd_rung_names[p->rung], name,
			  xd_verdict_names[t->verdict]);
		sim_check(t->verdict != XD_VERDICT_TAKEN ||
				  (t->wrs == p->wrs && t->keys == p->keys && t->ns == p->ns),
			  "plan", "request %llu went another way than was thought",
			  (unsigned long long)e->wr_id);
		sim_check(t->verdict != XD_VERDICT_DEARER ||
				  (t->has == t->ns && t->limit == p->ns && t->has > t->limit),
			  "plan", "request %llu: %s is called dearer at %llu ns than %s at %llu",
			  (unsigned long long)e->wr_id, name, (unsigned long long)t->ns,
			  xd_rung_names[p->rung], (unsigned long long)p->ns);
	}
}

static void check_explanations(struct world *w, struct w_session *s)
{
	const struct xd_explained *e;

	while ((e = xd_explained_from(s->s, s->explanations_seen + 1))) {
		check_plan(e);
		s->explanations_seen = e->serial;
		w->explained++;
	}
}

void w_check_prices(struct world *w)
{
	struct w_session *s;

	for (uint32_t i = 0; i < w->n_fabrics; i++) {
		const struct fabric_caps *is = &w->core->caps[i];
		const struct fabric_caps *found = fake_fabric_ops.caps(w->fabrics[i]);

		sim_check(memcmp(&is->costs, &found->costs, sizeof(is->costs)) == 0, "plan",
			  "the core goes by other prices than were measured in %s", is->name);
	}
	xc_list_for_each(s, &w->sessions, link)
		check_explanations(w, s);
}
