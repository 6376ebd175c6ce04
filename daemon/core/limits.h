/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef XD_LIMITS_H
#define XD_LIMITS_H

#include "daemon/core/plan.h"

/*
 * What a device's caps make of the limits of an operation. stage_bytes: the most that the slabs
 * which such a transfer would go through hold. Nothing is forced; what else the moment takes away
 * (keys, slabs) the caller takes away.
 */
void xd_plan_limits_of(const struct fabric_caps *caps, uint8_t opcode, uint64_t stage_bytes,
		       struct xd_plan_limits *ret);

#endif
