/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef XD_TURN_H
#define XD_TURN_H

/*
 * Whose turn it is among those that wait for the same: by user, then session, then endpoint. A tree
 * of as many levels; a leaf waits, and what is above it waits through it. Each has its place among
 * its equals. Who gets something goes behind all others, on each level; who is asked in vain keeps
 * its place, however often; and in a round nobody gets two things. So of what one waits for nobody
 * gets two before it.
 *
 * Pure: it only keeps the order.
 */

#include <stdbool.h>
#include <stdint.h>

#include "common/list.h"

struct xd_turn {
	struct xd_turn *above; /* NULL: the root */
	struct xc_list link;   /* above's; alone: does not wait */
	/* Below it, in order: those that were asked in this round, those that were not yet, and
	 * those that have got something in it. */
	struct xc_list asked, due, later;
	uint64_t round;	    /* that these are of; of the root: that goes on */
	uint64_t got_round; /* in which it last got something, */
	uint64_t since_round; /* and came to wait */
};

void xd_turn_init(struct xd_turn *t, struct xd_turn *above);

static inline bool xd_turn_waits(const struct xd_turn *t)
{
	return !xc_list_empty(&t->link);
}

/* A leaf waits from now on, behind all that do. It did not; what it is below it may choose anew. */
void xd_turn_enter(struct xd_turn *leaf);
/* It does not wait any more; harmless where it did not. */
void xd_turn_leave(struct xd_turn *leaf);
/* It got what it waited for: leaves, and those above it go behind their equals. */
void xd_turn_got(struct xd_turn *leaf);
/*
 * The next to be asked in this round; it keeps its place. NULL: all have been, the next call begins
 * another round.
 */
struct xd_turn *xd_turn_next(struct xd_turn *root);
/* Nobody else waits: none but what is below this one. */
bool xd_turn_alone(const struct xd_turn *t);

#endif
