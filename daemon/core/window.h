/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef XD_WINDOW_H
#define XD_WINDOW_H

/*
 * Type-2 memory windows, where a device was seen to hold what they promise. A window is reused with
 * the next key byte and replaced when that has come round, so that a key that a peer remembers
 * names nothing for as long as can be.
 */

#include "daemon/core/key.h"

struct xd_grant;

/* Binds of one window before it is replaced: the key byte has 256 values, and the first is the
 * allocation's. */
#define XD_WINDOW_BINDS_MAX 255
/* Free windows that a domain keeps. */
#define XD_WINDOWS_KEPT 256

struct xd_window {
	struct xc_list link; /* its domain's free ones */
	struct xd_pd *pd;
	struct ibv_mw *mw;
	uint32_t binds;
	bool in_turn; /* it is being made for one that waits: no other asks meanwhile */
	struct fabric_done done;
	struct xd_endpoint *wanted_by; /* while it is being made */
	struct xd_grant *grant;
};

/* A free window of the endpoint's domain; NULL: none yet, wait (one is being made, or cannot be at
 * present). */
struct xd_window *xd_window_take(struct xd_endpoint *ep);
/* Its key is dead and it is bound to nothing: kept for the next grant, or replaced when its key
 * byte has come round. */
void xd_window_release(struct xd_window *w);
/* Deallocates it, which kills its key at once; then, now or later, its grant is dead. */
void xd_window_kill(struct xd_window *w);
/* The free ones of a domain go. */
void xd_windows_free(struct xd_pd *pd);

#endif
