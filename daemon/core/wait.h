/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef XD_WAIT_H
#define XD_WAIT_H

/*
 * Endpoints whose first transfer was refused something that others use too: a window, a
 * registration, pinned memory, a slab. They wait in the order of turn.h, in one for windows and one
 * for the rest: who wants much gets a thing at a time, and no more often than who wants little.
 * They are asked again, in order, when something has come back, and after a while in any case; each
 * for no longer than the time of no progress, see queue.c.
 *
 * Windows are all alike, so there the order is strict: while one waits, none is given past it. No
 * free one is kept from it, and the device is asked for it alone. For the rest, whose pieces differ
 * and of which a user may lack what its own limit refuses, nobody is held up by one that waits.
 */

#include "daemon/core/endpoint.h"

/* The head of its queue was refused this. It takes its place, or keeps it. */
void xd_wait_for(struct xd_endpoint *ep, enum xd_scarce scarce);
/* It does not wait for such a thing any more. */
void xd_wait_not(struct xd_endpoint *ep);
/* It has a window; or its head was posted, and what that may have lacked, it has. */
void xd_wait_over(struct xd_endpoint *ep, enum xd_scarce got);
/* It may take a window, or ask for one: nobody waits, or it is its turn. If not it waits. */
bool xd_wait_may_take_window(struct xd_endpoint *ep);
/* One was made for it: posts what can be posted, as in its turn. */
void xd_wait_has_window(struct xd_endpoint *ep);
/* A device is asked for a window by one that waits: no other asks meanwhile. */
void xd_wait_asks(struct xd_core *core, uint32_t fabric);
/* One that was asked so, or by one that did not wait, has answered. out: it had none; nobody else
 * asks it in this round. */
void xd_wait_answered(struct xd_core *core, uint32_t fabric, bool in_turn, bool out);
/* Endpoints of another session wait for a window: this domain keeps none. */
bool xd_wait_by_others(const struct xd_pd *pd);

/* Something came back that any of them may have waited for. */
void xd_wait_freed(struct xd_core *core);

/* Those that are due are asked, as many as a turn has time for. True: there are more. */
bool xd_wait_turn(struct xd_core *core);
void xd_wait_init(struct xd_core *core);
void xd_wait_done(struct xd_core *core);

#endif
