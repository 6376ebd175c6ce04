/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef XD_SEGMENTS_H
#define XD_SEGMENTS_H

/*
 * Room for a transfer's segment list: in the transfer itself for short ones, else a block of one of
 * two sizes, reused, and charged to the user.
 */

#include "daemon/core/transfer.h"

/* Room for n segments (at most 2 * XP_SEGMENTS_MAX). 0, -EAGAIN: the user has as much as it may;
 * -ENOMEM. */
int xd_segments_reserve(struct xd_transfer *t, uint32_t n);
void xd_segments_release(struct xd_transfer *t);

#endif
