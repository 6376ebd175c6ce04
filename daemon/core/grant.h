/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef XD_GRANT_H
#define XD_GRANT_H

/*
 * A grant: a key to exact bytes, for one endpoint's peer, in one direction, with a life that the
 * core ends: by its owner's REVOKE, by the peer's SEND with invalidate, by its deadline, or with
 * the endpoint. What carries it is as strong as the device was seen to be (enum fabric_keys): a
 * type-2 window, an MR of just its bytes, or an MR of a copy in a slab.
 *
 * One over several pieces of memory is a key over ranges where the device has such, with a window
 * bound to it where windows carry grants, or a copy.
 *
 * A copied grant for READ shows the memory as it was at the GRANT. What a peer WRITEs into one goes
 * into client memory, all of the grant's bytes, before each RECV that arrives later completes, at
 * the REVOKE and at the deadline; bytes that the peer did not write are 0 then, for what was there
 * before must not be readable where the device serves READs without a right.
 */

#include "daemon/core/buffer.h"
#include "daemon/core/sabotage.h"
#include "daemon/core/transfer.h"
#include "daemon/core/window.h"

#define XD_GRANT_MAGIC 0x78677261u

enum xd_grant_state {
	XD_GRANT_BINDING,
	XD_GRANT_LIVE,
	XD_GRANT_REVOKING, /* a LOCAL_INV is on its way */
	XD_GRANT_KILLING,  /* what carries it is on its way out */
};

/* What is being copied between a copied grant's slab and its buffer. */
enum xd_copying {
	XD_COPY_NONE,
	XD_COPY_FILL, /* into the slab, before it is registered */
	XD_COPY_SYNC, /* out of it, for a RECV that waits */
	XD_COPY_LAST, /* out of it, its key being dead */
};

struct xd_grant {
	uint32_t magic;
	struct xd_session *session;
	struct xd_endpoint *endpoint;
	struct xc_list link;	  /* endpoint's */
	struct xc_hash_node hash; /* session's keys, while LIVE or REVOKING */
	bool hashed;
	uint32_t number;
	uint32_t rkey;
	/* What it exposes, in order; the first in short. */
	struct xp_segment *ranges, one;
	uint32_t n_ranges;
	struct xd_buffer *buffer;
	uint64_t offset;
	uint32_t length; /* of all of them */
	bool write;
	bool lived; /* it was told to its client */
	enum xd_grant_state state;
	struct xd_window *window; /* carried by a window */
	struct ibv_mr *mr;	  /* else; by a window: over its ranges, which it is bound to */
	bool mr_due;		  /* the latter is being made */
	bool mr_going;		  /* its deregistration is on its way */
	struct fabric_done done;  /* of that */
	struct xd_slab *slab;	  /* what is copied */
	enum xd_copying copying;
	bool sync;		    /* a RECV waits for it */
	uint64_t copied_bytes;	    /* in the copy under way */
	struct xc_list copy_link;   /* endpoint's copies */
	uint64_t pinned_bytes;	    /* charged */
	struct xd_transfer *maker;  /* the GRANT, while it is being made; NULL: by a window */
	struct xd_transfer *revoke; /* waits for its death */
	struct xd_timer timer;	    /* BINDING, LIVE: its deadline; REVOKING: when patience ends */
	uint64_t lifetime_ms, deadline_ns; /* 0: the endpoint's */
	struct xd_audit_key audit;	   /* of what carries it */
	struct xd_audit_key bound_audit;   /* of what its window is bound to, over its ranges */
};

/* A GRANT at submission: checks it, and charges for the grant. 0, or a status with `why`
 * (XD_TEXT_MAX). */
int xd_grant_admit(struct xd_transfer *t, char *why);
/* A REVOKE at submission. */
int xd_revoke_admit(struct xd_transfer *t, char *why);

static inline int xd_grant_access(const struct xd_grant *g)
{
	int access = g->write ? IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_LOCAL_WRITE
			      : IBV_ACCESS_REMOTE_READ;

	/* ibv_reg_mr(3) wants the local right beside the remote one, a window has none. */
	if (g->window)
		access &= ~IBV_ACCESS_LOCAL_WRITE;
	if (XD_SABOTAGE("grant-both-ways"))
		access |= IBV_ACCESS_REMOTE_READ;
	return access;
}

/* Its carrier lives: fills the completion of the GRANT. */
void xd_grant_live(struct xd_grant *g, struct xd_transfer *t, uint32_t rkey, uint64_t address);
/* The bind has completed. */
void xd_grant_bound(struct xd_transfer *t);
/* Its MR has been made, or not: the GRANT ends. */
void xd_grant_made(struct xd_grant *g, int status);
/* Takes its MR and its copy away; when they are gone it is dead. */
void xd_grant_unmake(struct xd_grant *g);
/* A LOCAL_INV has completed, or what carried it is gone: the key is dead. */
void xd_grant_dead(struct xd_grant *g, bool reuse_window);
/* Kills it at once by taking away what carries it. */
void xd_grant_kill(struct xd_grant *g);

/* ---- grants that are copies (copied.c) */

/* Makes the slab, copies, registers; then xd_grant_made(). -EINPROGRESS or a status. */
int xd_copied_make(struct xd_grant *g);
/*
 * The key is dead: what was written goes out (at the end of the connection just where a REVOKE asks
 * for it), then the slab waits for its next use. True: that is done; else xd_grant_dead() follows.
 */
bool xd_copied_release(struct xd_grant *g);
/*
 * What the peer had written when the RECVs that wait now arrived is in client memory. False: not
 * yet, the endpoint gets its turn again.
 */
bool xd_grants_synced(struct xd_endpoint *ep);
/* Goes on with the copies of an endpoint's grants. False: the turn's budget is spent. */
bool xd_copied_advance(struct xd_endpoint *ep);
/* The QP is gone: so go the slabs. */
void xd_copied_free(struct xd_endpoint *ep);

/* The grant that the peer's message invalidated; 0 where it names none. */
uint32_t xd_grant_invalidated(struct xd_endpoint *ep, uint32_t rkey);
/* A GRANT that ends before its bind was posted. */
void xd_grant_abandon(struct xd_transfer *t);

#endif
