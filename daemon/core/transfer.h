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

struct xd_grant;

enum xd_transfer_state {
	XD_T_WAITING, /* on its endpoint's list, perhaps partly posted */
	XD_T_POSTED,  /* all of it is with the device */
	XD_T_ENDED,   /* its completion waits to be read */
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
	bool used;		    /* its segments are counted at their buffers */
	bool cancelled;		    /* no more of it is posted */
	bool cut_due;		    /* cancelled after its next work request */
	struct xd_transfer *cancel; /* the CANCEL that waits for its end */
	struct xd_grant *grant;	    /* GRANT, REVOKE: their grant */
	struct xd_plan plan;
	struct xd_cursor cursor;
	uint32_t posted, retired;    /* work requests */
	uint32_t sequence;	     /* on the send queue, of the last posted */
	int status;		     /* of the first of them that failed */
	struct xp_segment *segments; /* local, then remote */
	struct xp_segment own[XD_SEGMENTS_OWN];
	int8_t list_class; /* of `segments`; -1 = own */
};

/* Ends it: uncharges, lets go of buffers, tells the client. format NULL: the phrase for the status.
 */
void xd_transfer_end(struct xd_transfer *t, int status, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
/* Frees an ended one, and the charge that lasted until now. */
void xd_transfer_free(struct xd_transfer *t);

/* A fresh one for this request, or NULL. */
struct xd_transfer *xd_transfer_new(struct xd_session *s, const struct xp_request *request);
/* Counts, or no longer counts, it as a user of the buffers behind its local segments. */
void xd_transfer_use_buffers(struct xd_transfer *t, bool use);
/* What the planner is told of it. */
void xd_transfer_limits(const struct xd_transfer *t, struct xd_plan_limits *ret);
void xd_transfer_shape(const struct xd_transfer *t, struct xd_shape *ret);

/* An admitted transfer takes its place in its endpoint's order. */
void xd_transfer_start(struct xd_transfer *t);
/* Drops what of a partly posted one was not posted; it ends when the rest has. */
void xd_transfer_cut(struct xd_transfer *t);

/* Posts what can be posted of an endpoint's waiting transfers, in order. */
void xd_endpoint_pump(struct xd_endpoint *ep);
/* The first of them was refused a resource: it is tried again after a while, and not for ever. */
void xd_endpoint_wait(struct xd_endpoint *ep);
/* Ends everything on the endpoint's queues with this status: its QP is gone, or was never made. */
void xd_endpoint_flush(struct xd_endpoint *ep, int status);
/* Timers of an endpoint. */
void xd_endpoint_retry(struct xd_timer *t);
void xd_endpoint_progress_check(struct xd_endpoint *ep);

/* A work completion of an endpoint. */
void xd_transfer_completed(struct xd_endpoint *ep, const struct ibv_wc *wc);

/* The work request of a GRANT or REVOKE: 1 filled in, 0 it must wait, or a status that ends the
 * transfer. */
int xd_grant_post(struct xd_transfer *t, struct ibv_send_wr *wr);
int xd_revoke_post(struct xd_transfer *t, struct ibv_send_wr *wr);

#endif
