/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef XD_GRANT_H
#define XD_GRANT_H

/*
 * A grant: a key to exact bytes, for one endpoint's peer, in one direction, with a life that the
 * core ends: by its owner's REVOKE, by the peer's SEND with invalidate, by its deadline, or with
 * the endpoint. A type-2 window carries it; windows are reused until their key byte has come round,
 * so that a key that a peer remembers names nothing for as long as can be.
 */

#include "daemon/core/buffer.h"
#include "daemon/core/transfer.h"

#define XD_GRANT_MAGIC 0x78677261u
/* Binds of one window before it is replaced: the key byte has 256 values, and the first is the
 * allocation's. */
#define XD_WINDOW_BINDS_MAX 255
/* Free windows that a session keeps. */
#define XD_WINDOWS_KEPT 256

enum xd_grant_state {
	XD_GRANT_BINDING,
	XD_GRANT_LIVE,
	XD_GRANT_REVOKING, /* a LOCAL_INV is on its way */
	XD_GRANT_KILLING,  /* its window is being deallocated */
};

struct xd_window {
	struct xc_list link; /* the session's free ones */
	struct xd_session *session;
	struct ibv_mw *mw;
	uint32_t fabric, binds;
	struct fabric_done done;
	struct xd_endpoint *wanted_by; /* while it is being made */
	struct xd_grant *grant;
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
	struct xd_buffer *buffer;
	uint64_t offset;
	uint32_t length;
	bool write;
	enum xd_grant_state state;
	struct xd_window *window;
	struct xd_transfer *revoke; /* waits for its death */
	struct xd_timer timer;	    /* BINDING, LIVE: its deadline; REVOKING: when patience ends */
	uint64_t lifetime_ms, deadline_ns; /* 0: the endpoint's */
};

/* A GRANT at submission: checks it, and charges for the grant. 0, or a status with `why`
 * (XD_TEXT_MAX). */
int xd_grant_admit(struct xd_transfer *t, char *why);
/* A REVOKE at submission. */
int xd_revoke_admit(struct xd_transfer *t, char *why);

/* The bind has completed: live. Fills the transfer's completion. */
void xd_grant_bound(struct xd_transfer *t);
/* A LOCAL_INV has completed, or the window is gone otherwise: the key is dead. */
void xd_grant_dead(struct xd_grant *g, bool reuse_window);
/* Kills it at once by deallocating its window. */
void xd_grant_kill(struct xd_grant *g);
/* The grant that the peer's message invalidated; 0 where it names none. */
uint32_t xd_grant_invalidated(struct xd_endpoint *ep, uint32_t rkey);
/* A GRANT that ends before its bind was posted. */
void xd_grant_abandon(struct xd_transfer *t);

void xd_windows_free(struct xd_session *s);

#endif
