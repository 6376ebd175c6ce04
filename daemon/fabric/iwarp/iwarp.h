/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef FABRIC_IWARP_H
#define FABRIC_IWARP_H

/*
 * The fabric in user space. Endpoints of one daemon are joined by one copy, with the checks of RFC
 * 5040 and 5042: STag, stream, base and bounds, rights. Needs no device and no privilege.
 */

#include "daemon/fabric/fabric.h"

struct iwarp_options {
	uint64_t rnr_ms;   /* how long a SEND waits for the peer's RECV; 0 = 500 */
	uint32_t ep_limit; /* endpoints at once; 0 = 65,536 */
};

extern const struct fabric_ops iwarp_fabric_ops;

/* events and engine are copied. 0 or -ENOMEM. Free with ops->close. */
int iwarp_fabric_open(const struct iwarp_options *options, const struct xd_engine_ref *engine,
		      const struct fabric_events *events, struct fabric **ret);

#endif
