/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef XD_TEMPORARY_H
#define XD_TEMPORARY_H

/*
 * Keys made for one transfer alone, where its plan wants them: one over all of its local memory
 * (indirect), or one for each run of it (the sinks of a READ that a device lets the peer write).
 * They are made before the first work request is posted, and dead before the transfer ends (I2).
 * Until then the transfer uses its buffers: the memory outlives the keys.
 */

#include "daemon/core/audited.h"
#include "daemon/core/transfer.h"

struct xd_temporaries;

enum xd_temporary_state {
	XD_TEMPORARY_MAKING,
	XD_TEMPORARY_LIVE,
	XD_TEMPORARY_DYING,
	XD_TEMPORARY_DEAD,
};

struct xd_temporary {
	struct xd_temporaries *all;
	enum xd_temporary_state state;
	struct ibv_mr *mr;
	struct xd_audit_key audit;
	struct xd_range run; /* what it covers, or the first of that */
	struct fabric_done done;
};

struct xd_temporaries {
	struct xc_list link; /* the core's spare ones */
	struct xd_transfer *transfer;
	uint32_t n, n_busy; /* n_busy: being made, or killed */
	int status;	    /* of the making */
	bool unwanted;	    /* they go as soon as they can */
	bool in_call;	    /* whoever made or killed them hears of it from that call */
	uint64_t pinned_bytes;
	struct xd_temporary of[XD_PLAN_KEYS_MAX];
};

/*
 * The keys that the transfer's plan wants. 0: they live. -EINPROGRESS: they are being made, and
 * then the endpoint is pumped; where they are refused by then, t->refused says so and there are
 * none. Else they were refused at once: -XP_E_QUOTA, -ENOMEM, …
 */
int xd_temporaries_make(struct xd_transfer *t);
/* The one that covers this piece of local memory. */
const struct xd_temporary *xd_temporary_of(const struct xd_transfer *t,
					   const struct xp_segment *piece);
/*
 * They begin to die, or have begun. True: they are dead, and the transfer has none any more. False:
 * when they are, xd_transfer_undone() is called.
 */
bool xd_temporaries_kill(struct xd_transfer *t);

#endif
