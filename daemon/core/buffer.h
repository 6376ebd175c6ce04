/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef XD_BUFFER_H
#define XD_BUFFER_H

/*
 * A buffer: client memory, mapped once and registered where it is needed (key.h). It goes when
 * nothing uses it any more: users are the segments of unfinished transfers and the live grants.
 */

#include "daemon/core/key.h"

#define XD_BUFFER_MAGIC 0x78627566u

enum xd_buffer_state {
	XD_BUFFER_MAPPING,
	XD_BUFFER_REGISTERING,
	XD_BUFFER_LIVE,
	XD_BUFFER_RELEASING
};

struct xd_buffer {
	uint32_t magic;
	struct xd_session *session;
	enum xd_buffer_state state;
	uint32_t number;
	uint64_t size_bytes;
	uint64_t iova; /* where its bytes lie in the address space of its MRs: no address of the
			  daemon's */
	struct fabric_region *region;
	const struct fabric_ops *ops; /* whose region_map made the region */
	struct xc_list keys;	      /* its registrations */
	struct xd_key *last_key;      /* the live one that was asked for last, or NULL */
	bool first_pinned;	      /* one of them pins on the charge that was made at add */
	bool releasing;		      /* its registrations are being dropped in this call */
	uint32_t step;		      /* the fabric being registered with */
	uint64_t pinned_bytes;	      /* charged */
	uint32_t users;
	struct xd_call *call; /* of add, then of remove */
	int fd;
	int status;
	bool sealed; /* the region_map has run: the fault is the file's */
	struct xd_job job;
	struct fabric_done done;
	char why[XD_TEXT_MAX];
};

/* A live buffer of that number, or NULL. */
struct xd_buffer *xd_buffer_get(const struct xd_session *s, uint32_t number);

/* A registration that its coming waits for has been made, or not. */
void xd_buffer_registered(struct xd_buffer *b, int status);
/* A registration of it has gone. */
void xd_buffer_settle(struct xd_buffer *b);

/* Begins to take a buffer down (it has no users and is live); the number is dead at once. */
void xd_buffer_release(struct xd_buffer *b);

/* The client's memory failed under an access: its session ends. The event of fabrics. */
void xd_buffer_fault(void *region_ctx);

#endif
