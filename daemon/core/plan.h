/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef XD_PLAN_H
#define XD_PLAN_H

/*
 * The ladder: which work requests carry a transfer, and why none of the other ways was taken. Pure
 * functions of their arguments, so that the whole policy can be tried by itself. The rungs, best
 * first:
 *
 *	inline    the bytes travel in the work request
 *	direct    one work request per run of remote memory, within the SG list
 *	split     more of them, where the SG list or the longest work request would be exceeded
 *	stage     through a slab of the daemon's, in pieces
 *	indirect  one key over all local pieces, made for this transfer and dead before its end
 *
 * A SEND or RECV is one message and is never split.
 *
 * Of the rungs that can carry a transfer the first is taken, but where split, stage and indirect
 * are left the cheapest by the device's prices (and direct is among these where it needs keys of
 * its own, see exposed_sink). Of equal prices the better rung wins; where no price is known the
 * order of the ladder decides.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/fabric/fabric.h"
#include "proto/ring.h"

#define XD_PLAN_SGE_MAX 64
/*
 * No READ or WRITE of ours is longer, whatever the device takes: each must end well within the
 * progress time, or a slow link looks like a dead one.
 */
#define XD_PLAN_WR_BYTES_MAX (UINT64_C(256) << 20)
/* A READ or WRITE goes through a slab in pieces of this: some fit, so that copying and the wire
 * overlap. */
#define XD_PLAN_STAGE_BYTES (UINT64_C(128) << 10)

/* More bytes than this are not in the cache when they are copied. */
#define XD_PLAN_COLD_BYTES (UINT64_C(1) << 20)
/* Keys made for one transfer, at most: the sinks of a READ, one for each run of local memory. */
#define XD_PLAN_KEYS_MAX 16

enum xd_rung {
	XD_RUNG_INLINE,
	XD_RUNG_DIRECT,
	XD_RUNG_SPLIT,
	XD_RUNG_STAGE,
	XD_RUNG_INDIRECT,
	XD_RUNG_COUNT,
};

extern const char *const xd_rung_names[XD_RUNG_COUNT + 1]; /* ended by NULL */

/* What bounds a transfer of this operation on this endpoint. */
struct xd_plan_limits {
	uint32_t max_sge;      /* 1 to XD_PLAN_SGE_MAX */
	uint64_t wr_bytes;     /* most bytes of one work request, at most 2^32 - 1 */
	uint32_t inline_bytes; /* 0: nothing goes inline */
	/*
	 * Most bytes of a SEND or RECV through a slab, in as many slab pieces as it takes; for READ
	 * and WRITE not 0 says that there are slabs. 0 = none may.
	 */
	uint64_t stage_bytes;
	uint32_t ranges;    /* of one key; 0: there are no keys over ranges */
	bool short_in_page; /* as fabric_caps.short_read_in_page, of a READ */
	/*
	 * No client memory is registered for this: the device does not hold what it would have to,
	 * or its keys are exhausted. Inline and stage are left.
	 */
	bool no_keys;
	/*
	 * A READ whose sink the peer may write: each run of local memory needs a key made for this
	 * transfer alone, for direct and split, and no work request has pieces of two; indirect has
	 * the one key that it makes in any case.
	 */
	bool exposed_sink;
	/* XD_RUNG_COUNT: none. Else only this one, where it can carry the transfer at all. */
	enum xd_rung force;
	struct fabric_costs costs;
};

/* A transfer's shape. Zero-length segments mean nothing (mlx4 reads a 0 in an SGE as 2 GiB: they
 * never reach a device). */
struct xd_shape {
	uint8_t opcode; /* XP_OP_READ, WRITE, SEND, RECV */
	uint32_t n_local, n_remote;
	const struct xp_segment *local, *remote;
};

struct xd_plan {
	enum xd_rung rung;
	uint32_t wrs;  /* work requests, PLACED's READ not counted */
	uint32_t keys; /* made for this transfer alone */
	uint64_t ns;   /* what it costs by the device's prices; 0 = not known */
};

/* Why a rung was not taken, or that it was. */
enum xd_verdict {
	XD_VERDICT_TAKEN,
	XD_VERDICT_BELOW,     /* a better one was there before it */
	XD_VERDICT_DEARER,    /* than the one that was taken */
	XD_VERDICT_OPERATION, /* cannot carry such an operation */
	XD_VERDICT_NONE,      /* the device has no such thing */
	XD_VERDICT_BYTES,     /* has bytes, takes limit */
	XD_VERDICT_PIECES,    /* needs a list of more pieces than the device takes */
	XD_VERDICT_PAGE,      /* a short READ would cross the end of a page */
	XD_VERDICT_RANGES,    /* too many for one key */
	XD_VERDICT_KEYS,      /* it needs more keys of its own than a transfer gets */
	XD_VERDICT_NO_KEYS,   /* client memory is not registered */
	XD_VERDICT_EMPTY,     /* no slab for it */
	XD_VERDICT_UNNEEDED,  /* split: direct does; inline, indirect: there are no bytes */
	XD_VERDICT_FORCED,    /* another one is forced */
	XD_VERDICT_COUNT,
};

extern const char *const xd_verdict_names[XD_VERDICT_COUNT]; /* one word each */

/* What was thought of each rung. wrs and ns where it could carry the transfer, else 0. */
struct xd_thought {
	enum xd_verdict verdict;
	uint32_t wrs, keys;
	uint64_t ns;
	uint64_t has, limit; /* BYTES, PIECES, RANGES, KEYS; DEARER: its price, the least */
};

struct xd_thoughts {
	struct xd_thought of[XD_RUNG_COUNT];
};

/*
 * Chooses the rung and counts the work requests. 0, or -EMSGSIZE: no rung can carry it. Both sides
 * of READ and WRITE must be equally long (checked by the caller). ret_thoughts may be NULL, and is
 * filled in either case: that takes longer. The time it takes grows with the segments, not with the
 * bytes.
 */
int xd_plan_make(const struct xd_shape *shape, const struct xd_plan_limits *limits,
		 struct xd_plan *ret_plan, struct xd_thoughts *ret_thoughts);

/*
 * Of one rung, as a sentence: "READ wants 9 pieces, the device takes 1". XD_THOUGHT_TEXT_MAX bytes
 * are enough.
 */
#define XD_THOUGHT_TEXT_MAX 160
void xd_thought_text(const struct xd_shape *shape, enum xd_rung rung,
		     const struct xd_thought *thought, char *ret_text, size_t size);

/* Where the next work request begins. Zero-initialise. */
struct xd_cursor {
	uint32_t local, remote;		  /* segments */
	uint64_t local_done, remote_done; /* bytes of them */
	uint64_t bytes;			  /* of all before it */
	bool ended;
};

/*
 * One work request: its remote side, and the pieces of local segments {offset, length, buffer
 * number}; one of the rungs inline, stage and indirect has none of these, only bytes: they lie
 * where the cursor stood.
 */
struct xd_piece {
	uint64_t remote_address;
	uint32_t rkey;
	uint32_t n_sge;
	uint64_t bytes;
	struct xp_segment sge[XD_PLAN_SGE_MAX];
};

/* The next work request, in order, by this rung; false at the end. A transfer of 0 bytes is one of
 * no pieces. */
bool xd_plan_next(const struct xd_shape *shape, const struct xd_plan_limits *limits,
		  enum xd_rung rung, struct xd_cursor *cursor, struct xd_piece *ret_piece);

/* A run of local memory: neighbours merged, hence perhaps longer than a segment can be. */
struct xd_range {
	uint64_t offset, length;
	uint32_t buffer;
};

/*
 * The runs of local memory, in order, up to `most` of them; returns how many there are in all. They
 * are the ranges of an indirect key, and each has a key of its own where the sink is exposed: a
 * piece of a work request lies within one of them then.
 */
uint32_t xd_plan_ranges(const struct xd_shape *shape, uint32_t most, struct xd_range *ret_ranges);

#endif
