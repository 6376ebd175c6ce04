/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include <errno.h>
#include <stdlib.h>

#include "common/assert.h"
#include "daemon/fabric/verbs/private.h"
#include "daemon/fabric/verbs/selftest_rig.h"
#include "proto/errors.h"

/* Costs, found out anew while the device is in use, by connections of its own. */

/* Connecting to itself included, which no cost is of. */
#define LIMIT_MS 10000

struct verbs_measure {
	struct xd_job job;
	struct fabric *fabric;
	struct fabric_done *done;
	struct fabric_costs *ret;
	struct verbs_keep keep; /* its findings with the new costs */
	int status;
};

static void measure_run(struct xd_job *job)
{
	struct verbs_measure *m = xc_container_of(job, struct verbs_measure, job);
	struct verbs_findings *f = &m->keep.findings;
	struct st t;

	m->status = st_init(&t, m->fabric->verbs, &m->fabric->address, LIMIT_MS);
	if (!m->status)
		m->status = st_measure(&t, f->q[VERBS_Q_WINDOW_BIND].answer == VERBS_YES,
				       &f->costs);
	st_done(&t);
	/* Where they cannot be kept the next daemon has older ones. */
	if (!m->status && m->keep.state_dir[0])
		(void)verbs_cache_store(m->keep.state_dir, &m->keep.identity, f);
}

static void measure_over(struct xd_job *job)
{
	struct verbs_measure *m = xc_container_of(job, struct verbs_measure, job);
	struct fabric_done *done = m->done;
	struct fabric *f = m->fabric;
	int status = f->lost ? -XP_E_DEVICE : m->status;
	bool closed = f->closed;

	f->measuring = false;
	if (!status && !closed) {
		f->keep.findings.costs = m->keep.findings.costs;
		f->caps.costs = verbs_costs(&f->keep.findings, f->caps.keys);
		*m->ret = f->caps.costs;
	}
	free(m);
	verbs_unref(f);
	if (!closed)
		done->fn(done, status);
}

int verbs_measure(struct fabric *f, struct fabric_done *done, struct fabric_costs *ret)
{
	struct verbs_measure *m;

	XC_CHECK(f, VERBS_FABRIC_MAGIC);
	if (f->lost)
		return -XP_E_DEVICE;
	if (f->measuring)
		return -EBUSY;
	m = calloc(1, sizeof(*m));
	if (!m)
		return -ENOMEM;
	*m = (struct verbs_measure){
		.job = { .helper = XD_HELP_DEVICES, .run = measure_run, .done = measure_over },
		.fabric = f, .done = done, .ret = ret, .keep = f->keep,
	};
	f->measuring = true;
	verbs_ref(f);
	f->engine.ops->help(f->engine.engine, &m->job);
	return -EINPROGRESS;
}
