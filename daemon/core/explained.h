/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef XD_EXPLAINED_H
#define XD_EXPLAINED_H

/*
 * What became of the transfers that asked to be explained (XP_F_EXPLAIN): the plan that was taken,
 * why no other, what it should have cost and what it took. A session keeps the last of them.
 */

#include "daemon/core/transfer.h"

#define XD_EXPLAINED_MAX 64

struct xd_explained {
	uint64_t serial; /* counts from 1 */
	uint64_t wr_id, bytes, actual_ns;
	uint32_t endpoint, fabric;
	int status;
	struct xd_shape shape; /* its counts alone */
	struct xd_plan plan;
	struct xd_thoughts thoughts;
};

struct xd_explanations {
	uint64_t last;
	struct xd_explained of[XD_EXPLAINED_MAX]; /* at serial % XD_EXPLAINED_MAX */
};

/* It ends now; its thoughts and its segments are still there. */
void xd_explained_add(struct xd_transfer *t, int status);
/* The first whose serial is at least this, or NULL. */
const struct xd_explained *xd_explained_from(const struct xd_session *s, uint64_t serial);

#endif
