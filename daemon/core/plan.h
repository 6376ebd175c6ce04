/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef XD_PLAN_H
#define XD_PLAN_H

/*
 * The ladder: which work requests carry a transfer. Pure functions of their arguments, so that the
 * whole policy can be tried by itself. Rungs: direct (one work request per remote segment,
 * neighbours merged, within the SG list), split (more of them, where the SG list or the largest
 * work request would be exceeded) and stage (through a slab of the daemon's, in pieces). A SEND or
 * RECV is one message and cannot be split.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/ring.h"

/* What bounds a work request of this operation on this device. */
struct xd_plan_limits {
	uint32_t max_sge;     /* 1 to XD_PLAN_SGE_MAX */
	uint64_t wr_bytes;    /* most bytes of one work request, at most 2^32 - 1 */
	uint64_t stage_bytes; /* most bytes of a message that goes through a slab; 0 = none may */
	bool short_in_page;   /* as fabric_caps.short_read_in_page, of a READ */
	bool stage;	      /* through a slab, whatever the SG list could do */
};

#define XD_PLAN_SGE_MAX 64
/*
 * No READ or WRITE of ours is longer, whatever the device takes: each must end well within the
 * progress time, or a slow link looks like a dead one.
 */
#define XD_PLAN_WR_BYTES_MAX (UINT64_C(256) << 20)
/* A READ or WRITE goes through a slab in pieces of this: some fit, so that copying and the wire
 * overlap. */
#define XD_PLAN_STAGE_BYTES (UINT64_C(128) << 10)

enum xd_rung { XD_RUNG_DIRECT, XD_RUNG_SPLIT, XD_RUNG_STAGE };

struct xd_plan {
	enum xd_rung rung;
	uint32_t wrs; /* work requests, PLACED's READ not counted */
};

/* A transfer's shape. Zero-length segments mean nothing (mlx4 reads a 0 in an SGE as 2 GiB: they
 * never reach a device). */
struct xd_shape {
	uint8_t opcode; /* XP_OP_READ, WRITE, SEND, RECV */
	uint32_t n_local, n_remote;
	const struct xp_segment *local, *remote;
};

/* Where the next work request begins. Zero-initialise. */
struct xd_cursor {
	uint32_t local, remote;		  /* segments */
	uint64_t local_done, remote_done; /* bytes of them */
	bool ended;
};

/* One work request: its remote side, and the pieces of local segments {offset, length, buffer
 * number}; a staged one has none of these. */
struct xd_piece {
	uint64_t remote_address;
	uint32_t rkey;
	uint32_t n_sge;
	uint64_t bytes;
	struct xp_segment sge[XD_PLAN_SGE_MAX];
};

/*
 * Chooses the rung and counts the work requests. 0, or -EMSGSIZE: a message longer than wr_bytes,
 * or longer than stage_bytes and of more pieces than max_sge. Both sides of READ and WRITE must be
 * equally long (checked by the caller).
 */
int xd_plan_make(const struct xd_shape *shape, const struct xd_plan_limits *limits,
		 struct xd_plan *ret_plan);

/*
 * The next work request, in order, of a transfer whose rung is stage just where limits->stage says
 * so; false at the end. A transfer of 0 bytes is one of no pieces.
 */
bool xd_plan_next(const struct xd_shape *shape, const struct xd_plan_limits *limits,
		  struct xd_cursor *cursor, struct xd_piece *ret_piece);

#endif
