/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "daemon/core/resolve.h"

#include <errno.h>
#include <string.h>

static void run(struct xd_job *job)
{
	struct xd_resolve *r = xc_container_of(job, struct xd_resolve, job);

	r->n = r->resolve(r->host, r->addr, XD_RESOLVED_MAX);
	for (int i = 0; i < r->n; i++)
		r->addr[i].port = r->port;
}

static void done(struct xd_job *job)
{
	struct xd_resolve *r = xc_container_of(job, struct xd_resolve, job);

	r->found(r);
}

int xd_resolve_start(struct xd_session *s, struct xd_resolve *r, const char *host, uint16_t port,
		     void (*found)(struct xd_resolve *r))
{
	size_t length = strnlen(host, XD_HOST_MAX + 1);

	if (length == 0 || length > XD_HOST_MAX)
		return -EINVAL;
	memcpy(r->host, host, length + 1);
	r->port = port;
	r->found = found;
	if (xc_addr_parse(host, port, &r->addr[0]) == 0) {
		r->n = 1;
		return 0;
	}
	r->n = -EINPROGRESS;
	r->resolve = s->core->engine.ops->resolve;
	r->job.helper = XD_HELP_NAMES;
	r->job.owner = s->uid;
	r->job.run = run;
	r->job.done = done;
	xd_help(s->core, &r->job);
	return -EINPROGRESS;
}
