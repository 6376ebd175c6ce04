/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef XD_POOL_H
#define XD_POOL_H

/*
 * Slabs: the daemon's own memory, for what cannot or must not go straight between a device and
 * client memory. A slab belongs to one endpoint and carries one direction, from its making until
 * the endpoint's QP is gone; then it goes back to the system, which clears it. So no peer ever
 * reaches, by a key that a device failed to kill, what was not for it.
 *
 * A ring is a slab that is given out and comes back in order, as work requests do.
 */

#include "daemon/core/key.h"

enum xd_slab_state {
	XD_SLAB_MAPPING,
	XD_SLAB_REGISTERING,
	XD_SLAB_READY,
	XD_SLAB_DEREGISTERING,
	XD_SLAB_UNMAPPING,
};

#define XD_SLAB_NO_KEY (-1)

struct xd_slab {
	struct xc_list link; /* its owner's */
	struct xd_pd *pd;
	struct xd_endpoint *endpoint; /* is not forgotten before it */
	uint64_t size_bytes;	      /* charged as pinned */
	int access;
	struct fabric_region *region;
	void *memory;
	struct ibv_mr *mr; /* NULL: its owner makes keys to it */
	enum xd_slab_state state;
	bool unwanted;
	int status;
	void (*ready)(struct xd_slab *slab, int status);
	void *owner;
	const struct fabric_ops *ops;
	struct xd_job job;
	struct fabric_done done;
	struct xd_audit_key audit; /* of mr */
};

/*
 * Makes one; access: of its MR, or XD_SLAB_NO_KEY. `ready` follows, never within this call; after a
 * failure the slab is no more. 0, -XP_E_QUOTA, -ENOMEM.
 */
int xd_slab_new(struct xd_endpoint *ep, uint64_t size_bytes, int access,
		void (*ready)(struct xd_slab *slab, int status), void *owner, struct xd_slab **ret);
/* Gives it up, in any state: `ready` does not follow any more. Keys of its owner's are dead. */
void xd_slab_free(struct xd_slab *slab);

struct xd_ring {
	struct xd_slab *slab; /* NULL: not made */
	bool ready;
	uint64_t head, tail; /* bytes given back, given out; free-running */
};

/* Bytes in one piece, and where they are few in one page. 0, or -EAGAIN: no room until some come
 * back. At most the ring's size. */
int xd_ring_take(struct xd_ring *ring, uint64_t bytes, uint64_t *ret_offset);

/* Where a ring stands, to take back what is taken from here on. */
struct xd_ring_mark {
	uint64_t tail;
	bool empty;
};

static inline struct xd_ring_mark xd_ring_mark(const struct xd_ring *ring)
{
	return (struct xd_ring_mark){ .tail = ring->tail, .empty = ring->tail == ring->head };
}

static inline void xd_ring_rewind(struct xd_ring *ring, struct xd_ring_mark mark)
{
	/* One that was empty has begun anew, at 0. */
	ring->tail = mark.empty ? ring->head : mark.tail;
}

static inline uint8_t *xd_ring_memory(const struct xd_ring *ring, uint64_t offset)
{
	return (uint8_t *)ring->slab->memory + offset;
}

#endif
