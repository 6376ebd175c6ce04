/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef CL_POST_H
#define CL_POST_H

#include "client-lib/internal.h"

/* A post, as its function describes it, and what comes of it. */
struct cl_post {
	const char *what; /* for sentences */
	struct xfer_ep *ep;
	const struct iovec *local;
	const struct xfer_token *remote; /* of a linked GRANT: patches, as in proto/ring.h */
	int n_local, n_remote;
	uint64_t wr_id, argument;
	uint64_t *ret_cookie;
	unsigned int flags;   /* the user's */
	unsigned int allowed; /* of them */
	unsigned int wire;    /* XP_F_… beside them */
	uint32_t key;
	uint8_t opcode;
	/* What comes of it. */
	uint64_t total;
	uint32_t out_local, out_remote; /* segments in client->segments, local ones first */
	uint32_t n_pieces;              /* in client->pieces */
	uint64_t carried;
};

/*
 * Checks it, cuts it where buffers begin and end, and hands it on. 0 or a negative status with its
 * sentence.
 */
int cl_post(struct cl_post *p);

#endif
