/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef XC_SLOTS_H
#define XC_SLOTS_H

/*
 * A table of objects named by 32-bit numbers that are handed to strangers. The low
 * 20 bits are a slot, the high 12 a generation that moves on at each reuse, so
 * that a number kept after its object died names nothing (for 4,095 reuses of
 * that slot; slots are reused oldest first, to make that long). Number 0 never
 * names anything.
 *
 * Not thread-safe: one owner.
 */

#include <stdint.h>

struct xc_slot;

struct xc_slots {
	struct xc_slot *slots;
	uint32_t capacity;   /* slots allocated */
	uint32_t used;       /* objects in the table */
	uint32_t limit;      /* most objects at once */
	uint32_t free_first; /* index + 1; 0 = none */
	uint32_t free_last;
};

#define XC_SLOTS_MAX (1u << 20)

/* An empty table for at most `limit` objects (1 to XC_SLOTS_MAX). Allocates nothing. */
void xc_slots_init(struct xc_slots *t, uint32_t limit);

/* Frees the table, not the objects. */
void xc_slots_done(struct xc_slots *t);

/* 0, -ENOSPC at the limit, -ENOMEM. `object` must not be NULL. */
int xc_slots_add(struct xc_slots *t, void *object, uint32_t *ret_number);

/* The object, or NULL where the number names nothing (any more). */
void *xc_slots_get(const struct xc_slots *t, uint32_t number);

/* Takes the object out and returns it; NULL where the number names nothing. */
void *xc_slots_remove(struct xc_slots *t, uint32_t number);

/*
 * The first object whose slot is at or after *cursor, moving *cursor behind it; NULL at
 * the end. Start with 0. Objects may be added and removed in between.
 */
void *xc_slots_next(const struct xc_slots *t, uint32_t *cursor);

#endif
