/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef XD_RESOLVE_H
#define XD_RESOLVE_H

/* From a host name to addresses: numeric ones at once, names on a helper. */

#include "daemon/core/session.h"

#define XD_RESOLVED_MAX 8
#define XD_HOST_MAX 255

struct xd_resolve {
	struct xd_job job;
	char host[XD_HOST_MAX + 1];
	uint16_t port;
	int n; /* addresses found, or a negative errno */
	struct xc_addr addr[XD_RESOLVED_MAX];
	int (*resolve)(const char *host, struct xc_addr *ret, int max);
	void (*found)(struct xd_resolve *r);
};

/* 0: r->n addresses are there, `found` is not called. -EINPROGRESS: `found` will be called.
 * -EINVAL: host too long or empty. */
int xd_resolve_start(struct xd_session *s, struct xd_resolve *r, const char *host, uint16_t port,
		     void (*found)(struct xd_resolve *r));

#endif
