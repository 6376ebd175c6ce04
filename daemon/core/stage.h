/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef XD_STAGE_H
#define XD_STAGE_H

/*
 * The stage rung: data goes through a ring of the endpoint's own. A WRITE or SEND is copied in
 * before it is posted, a READ or RECV copied out before it completes. All copying is counted
 * against the turn's budget; what is left over is taken up on the next turn.
 */

#include "daemon/core/pool.h"
#include "daemon/core/sabotage.h"
#include "daemon/core/transfer.h"

/* OUT and IN rings; a user at its limit gets smaller ones, down to the least. */
#define XD_STAGE_RING_BYTES (UINT64_C(1) << 20)
#define XD_STAGE_RING_BYTES_MIN (UINT64_C(256) << 10)
/* RECV rings, where the client asked for no size: this for each RECV, but no more than that. */
#define XD_STAGE_RECV_BYTES (UINT64_C(64) << 10)
#define XD_STAGE_RECV_BYTES_MAX (UINT64_C(4) << 20)
/* What a client may ask for; its limit of pinned memory is what bounds it. */
#define XD_STAGE_RECV_ASKED_MAX (UINT64_C(1) << 40)

/* This fabric lets no client memory be registered. */
static inline bool xd_must_stage(const struct fabric_caps *caps)
{
	return caps->keys == FABRIC_KEYS_SLAB;
}

/*
 * Room for a staged work request; `ret` then says where. 0. -EINPROGRESS: the ring is being made,
 * the endpoint is pumped when it is; where a message needs a larger one that takes the place of the
 * one there was. -EAGAIN: full until work requests complete. -XP_E_QUOTA, -ENOMEM: there can be no
 * ring at present. -EMSGSIZE: longer than the ring of RECVs.
 */
int xd_stage_take(struct xd_endpoint *ep, enum xd_ring_kind kind, uint64_t bytes,
		  struct xd_wqe *ret);
/* What was taken, back; in the order of taking. */
void xd_stage_give(struct xd_endpoint *ep, const struct xd_wqe *w);
/* Its SGE; none (0) for no bytes. */
int xd_stage_sge(const struct xd_endpoint *ep, const struct xd_wqe *w, struct ibv_sge *ret);

/* False: this turn's budget is spent. */
static inline bool xd_may_copy(const struct xd_core *core)
{
	return core->copy_left > 0 || XD_SABOTAGE("copy-without-end");
}

/* One copy between client memory and ours, counted; at most 256 KiB. 0 or -XP_E_BUFFER_FAULT. */
int xd_copy(struct xd_buffer *b, uint64_t offset, void *memory, uint64_t bytes, bool to_client);

/*
 * Takes a place for bytes of the local segments from the cursor on, and copies them there: as far
 * as the turn's budget goes, and on from there when it is called again for the same. 0, and `ret`
 * says where; -EINTR: call again on the next turn; -XP_E_BUFFER_FAULT (the session has been
 * failed); or as xd_stage_take().
 */
int xd_stage_gather(struct xd_transfer *t, struct xd_cursor from, uint64_t bytes,
		    struct xd_wqe *ret);
/* What it has begun to gather is given up. */
void xd_stage_forget(struct xd_transfer *t);
/*
 * Copies what has arrived on to where the transfer's local segments go on. 1: all of it. 0: the
 * budget is spent, call again. -XP_E_BUFFER_FAULT as above.
 */
int xd_stage_scatter(struct xd_transfer *t, struct xd_wqe *w);

/* The endpoint has copying to do, or to wait for: it gets its turn again. */
void xd_stage_soon(struct xd_endpoint *ep);
/* One round over the endpoints that have. True: there is more. */
bool xd_stage_turn(struct xd_core *core);

/* Copies so many bytes between the transfer's local side, from `from` on, and memory of ours: few,
 * for the turn's budget is not asked. 0 or -XP_E_BUFFER_FAULT. */
int xd_stage_copy(struct xd_transfer *t, struct xd_cursor from, uint8_t *memory, uint64_t bytes,
		  bool to_client);
/* Makes the ring of RECVs; xd_endpoint_staged() follows, perhaps within this call. */
void xd_stage_reserve(struct xd_endpoint *ep, uint64_t bytes);
/* The QP is gone: so go the rings. */
void xd_stage_free(struct xd_endpoint *ep);

#endif
