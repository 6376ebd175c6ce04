/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include <errno.h>

#include "daemon/core/sabotage.h"
#include "daemon/core/session.h"

/* What things cost in a fabric is found out beside everything else, and used from then on. */

static void measured(struct fabric_done *done, int status)
{
	struct xd_measure *m = xc_container_of(done, struct xd_measure, done);

	m->busy = false;
	if (status == 0 || XD_SABOTAGE("trust-a-failure"))
		m->core->caps[m->fabric].costs = m->costs;
}

int xd_core_measure(struct xd_core *core, uint32_t fabric)
{
	const struct fabric_ref *f = &core->fabrics[fabric];
	struct xd_measure *m = &core->measures[fabric];
	int r;

	if (!f->ops->measure)
		return -EOPNOTSUPP;
	if (m->busy)
		return -EALREADY;
	*m = (struct xd_measure){ .core = core, .fabric = fabric, .busy = true };
	m->done.fn = measured;
	r = f->ops->measure(f->fabric, &m->done, &m->costs);
	if (r == -EINPROGRESS)
		return 0;
	measured(&m->done, r);
	return r;
}
