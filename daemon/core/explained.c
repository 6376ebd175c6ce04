/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "daemon/core/explained.h"

#include <stdlib.h>

#include "daemon/core/sabotage.h"

/* At the end, by what things cost then: what this must not do. */
static void think_again(const struct xd_transfer *t, const struct xd_shape *shape,
			struct xd_thoughts *ret)
{
	struct xd_plan_limits limits;
	struct xd_plan plan;

	xd_transfer_limits(t, &limits);
	(void)xd_plan_make(shape, &limits, &plan, ret);
}

void xd_explained_add(struct xd_transfer *t, int status)
{
	struct xd_session *s = t->session;
	struct xd_explained *e;

	if (!s->explanations)
		s->explanations = calloc(1, sizeof(*s->explanations));
	if (!s->explanations)
		return; /* the transfer itself is none the worse */
	e = &s->explanations->of[++s->explanations->last % XD_EXPLAINED_MAX];
	*e = (struct xd_explained){
		.serial = s->explanations->last,
		.wr_id = t->request.wr_id,
		.bytes = t->bytes,
		.actual_ns = t->started_ns ? xd_now(s->core) - t->started_ns : 0,
		.endpoint = t->request.endpoint,
		.fabric = t->endpoint->fabric,
		.status = status,
		.plan = t->plan,
		.thoughts = *t->thoughts,
	};
	xd_transfer_shape(t, &e->shape);
	if (XD_SABOTAGE("think-again"))
		think_again(t, &e->shape, &e->thoughts);
	e->shape.local = e->shape.remote = NULL;
}

const struct xd_explained *xd_explained_from(const struct xd_session *s, uint64_t serial)
{
	const struct xd_explanations *all = s->explanations;

	if (!all || serial > all->last)
		return NULL;
	if (all->last >= XD_EXPLAINED_MAX && serial <= all->last - XD_EXPLAINED_MAX)
		serial = all->last - XD_EXPLAINED_MAX + 1;
	if (serial == 0)
		serial = 1;
	return &all->of[serial % XD_EXPLAINED_MAX];
}
