/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef XD_TRANSFER_H
#define XD_TRANSFER_H

/*
 * A transfer: one request from submission to the completion that its client reads. It is charged,
 * and counted as a user of its buffers, until its end; its request charge lasts until the
 * completion is read.
 */

#include "daemon/core/endpoint.h"
#include "daemon/core/plan.h"

#define XD_TRANSFER_MAGIC 0x78747261u
#define XD_SEGMENTS_OWN 8
/* In a wr_id: of the receive queue. The rest is its sequence on the queue. */
#define XD_RECV_BIT (UINT64_C(1) << 63)

struct xd_grant;
struct xd_link;

enum xd_transfer_state {
	XD_T_WAITING, /* on its endpoint's list, perhaps partly posted */
	XD_T_POSTED,  /* all of it is with the device */
	XD_T_ENDED,   /* its completion waits to be read */
};

/* What goes out through a slab, while it is copied there, over as many turns as that takes. */
struct xd_gather {
	bool taken;		  /* its place is */
	struct xd_ring_mark mark; /* before that */
	struct xd_wqe wqe;
	struct xd_cursor cursor;
	uint64_t done_bytes;
};

struct xd_transfer {
	uint32_t magic;
	struct xd_outnode out;
	struct xc_list link; /* endpoint's waiting, or the core's spare */
	struct xc_hash_node hash;
	struct xd_session *session;
	struct xd_endpoint *endpoint;
	struct xp_request request;
	struct xp_completion completion;
	char *text; /* owned; a sentence, on failure */
	enum xd_transfer_state state;
	uint64_t bytes;
	bool hashed, charged, charged_bytes, counted;
	bool used;	/* its segments are counted at their buffers */
	bool refused;	/* a key of its own was: it is planned again, without */
	bool no_ranges; /* no key over ranges for it */
	bool no_keys;	/* none of client memory at all */
	bool ending;	/* it ends when the keys of its own are dead; */
	int end_status; /* like this */
	bool cancelled; /* no more of it is posted */
	bool cut_due;	/* cancelled after its next work request */
	bool made;	/* GRANT without a work request: what carries it is there, or refused */
	struct xd_transfer *cancel; /* the CANCEL that waits for its end */
	struct xd_grant *grant;	    /* GRANT, REVOKE: their grant */
	struct xc_list links;	    /* SEND: GRANTs whose tokens go into it */
	struct xd_link *link_to;    /* GRANT: into a SEND */
	struct xd_temporaries *temporaries; /* keys made for it alone; NULL: none */
	struct xd_plan plan;
	/* of that plan, where it asked to be explained; NULL: there was no memory. Owned. */
	struct xd_thoughts *thoughts;
	struct xd_cursor cursor;
	struct xd_gather gather;
	struct xd_cursor out_cursor; /* staged READ, RECV: how far it has been copied out */
	uint32_t posted, retired;    /* work requests */
	uint32_t sequence;	     /* on the send queue, of the last posted */
	int status;		     /* of the first of them that failed */
	uint64_t started_ns;	     /* when it took its place in the order */
	struct xp_segment *segments; /* local, then remote */
	struct xp_segment own[XD_SEGMENTS_OWN];
	int8_t list_class; /* of `segments`; -1 = own */
};

/*
 * Ends it: its own keys die, and when they are dead it is uncharged, lets go of buffers, and the
 * client is told. format NULL: the phrase for the status.
 */
void xd_transfer_end(struct xd_transfer *t, int status, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
/* The keys of its own are dead: its end goes on, or its turn to end has come. */
void xd_transfer_undone(struct xd_transfer *t);
/* Frees an ended one, and the charge that lasted until now. */
void xd_transfer_free(struct xd_transfer *t);

/* A fresh one for this request, or NULL. */
struct xd_transfer *xd_transfer_new(struct xd_session *s, const struct xp_request *request);
/* Counts, or no longer counts, it as a user of the buffers behind its local segments. */
void xd_transfer_use_buffers(struct xd_transfer *t, bool use);
/* What the planner is told of it; once it has a plan, with what that says of staging. */
void xd_transfer_limits(const struct xd_transfer *t, struct xd_plan_limits *ret);
void xd_transfer_shape(const struct xd_transfer *t, struct xd_shape *ret);
/* Chooses its plan, with what was refused to it left out. 0 or -EMSGSIZE. */
int xd_transfer_plan(struct xd_transfer *t);
/* It uses the registrations of its buffers: its plan is direct or split, without keys of its own.
 */
static inline bool xd_uses_keys(const struct xd_transfer *t)
{
	return (t->plan.rung == XD_RUNG_DIRECT || t->plan.rung == XD_RUNG_SPLIT) && !t->plan.keys;
}
/* READ, WRITE or SEND. */
static inline bool xd_is_send_op(const struct xd_transfer *t)
{
	return t->request.opcode <= XP_OP_SEND;
}
/* Its work requests in all: PLACED asks for a READ behind the WRITE. */
static inline uint32_t xd_transfer_wrs(const struct xd_transfer *t)
{
	if (!xd_is_send_op(t))
		return 1;
	return t->plan.wrs + (t->request.flags & XP_F_PLACED ? 1 : 0);
}

/* An admitted transfer takes its place in its endpoint's order. */
void xd_transfer_start(struct xd_transfer *t);
/* Drops what of a partly posted one was not posted; it ends when the rest has. */
void xd_transfer_cut(struct xd_transfer *t);

/* Posts what can be posted of an endpoint's waiting transfers, in order. */
void xd_endpoint_pump(struct xd_endpoint *ep);
/* Ends what has completed at the device, in order, as far as its data is in place. */
void xd_endpoint_retire(struct xd_endpoint *ep);
/* A GRANT or REVOKE that the device knows nothing of is over: it may be its turn to end. */
void xd_endpoint_made(struct xd_endpoint *ep);
/* Nothing that has completed at the device waits for its data. */
bool xd_endpoint_retired(const struct xd_endpoint *ep);
/* A turn of copying has come: retires, posts, and goes on with its end. */
void xd_endpoint_advance(struct xd_endpoint *ep);
/* The first of them was refused this: it is tried again, in its turn, and not for ever. */
void xd_endpoint_wait(struct xd_endpoint *ep, enum xd_scarce scarce);
/* Ends everything on the endpoint's queues with this status: its QP is gone, or was never made. */
void xd_endpoint_flush(struct xd_endpoint *ep, int status);
/* Timers of an endpoint. */
void xd_endpoint_retry(struct xd_timer *t);
void xd_endpoint_progress_check(struct xd_endpoint *ep);

/* A work completion of an endpoint. */
void xd_transfer_completed(struct xd_endpoint *ep, const struct ibv_wc *wc);

/* Work requests of a transfer, ready to be posted. */
#define XD_CHAIN_MAX 8

struct xd_chain {
	struct ibv_send_wr wr[XD_CHAIN_MAX];
	struct ibv_sge sge[XD_CHAIN_MAX][XD_PLAN_SGE_MAX];
	struct xd_cursor after[XD_CHAIN_MAX];
	struct xd_wqe wqe[XD_CHAIN_MAX];
	uint8_t inline_data[FABRIC_INLINE_MAX]; /* of the one that goes inline */
	enum xd_ring_kind ring;	  /* XD_RINGS: nothing staged */
	struct xd_ring_mark mark; /* before this chain */
	uint32_t n;
};

enum xd_build {
	XD_BUILT,
	XD_BUILD_WAIT, /* for room of its own: comes back with a completion, or is tried again */
	XD_BUILD_NO_WINDOW, /* for its turn to get one */
	XD_BUILD_NO_MEMORY,
	XD_BUILD_PENDING, /* for something that is being made, whose end pumps */
	XD_BUILD_LATER,	  /* for the next turn */
};

/*
 * The next work requests of the first waiting transfer, up to `room`; the last is signalled, so
 * that room always comes back. An enum xd_build, or a status that ends the transfer.
 */
int xd_chain_build(struct xd_transfer *t, uint32_t room, struct xd_chain *ret);
/*
 * It has a fence that the device cannot keep alone: a READ before it has not ended, and one of the
 * two goes through a slab, or both.
 */
bool xd_waits_at_fence(const struct xd_transfer *t);
/* Only so many of them were posted: what the rest took of a ring is given back. */
void xd_chain_undo(struct xd_endpoint *ep, const struct xd_chain *c, uint32_t posted);
/* A RECV's: its one SGE list. 0, -EAGAIN: no room in a slab, or a status. */
int xd_recv_build(struct xd_transfer *t, struct ibv_sge *sge, int *ret_num_sge,
		  struct xd_wqe *ret_wqe);

/*
 * The work request of a GRANT or REVOKE where windows carry grants: an enum xd_build, or a status
 * that ends the transfer.
 */
int xd_grant_post(struct xd_transfer *t, struct ibv_send_wr *wr);
int xd_revoke_post(struct xd_transfer *t, struct ibv_send_wr *wr);
/* Elsewhere nothing is posted, and what carries the grant is made, or taken away. */
void xd_grant_start(struct xd_transfer *t);
void xd_revoke_start(struct xd_transfer *t);

#endif
