/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef XC_HEAP_H
#define XC_HEAP_H

/*
 * An intrusive pairing heap ordered by a 64-bit key: timers. Adding and removing never
 * allocate, so that arming a timer cannot fail.
 */

#include <stdbool.h>
#include <stdint.h>

struct xc_heap_node {
	struct xc_heap_node *child, *next, *prev; /* prev: elder sibling, or parent of the eldest */
	uint64_t key;
	bool queued;
};

struct xc_heap {
	struct xc_heap_node *root;
};

/* Equal keys come out in no particular order. The node must not be queued. */
void xc_heap_add(struct xc_heap *h, struct xc_heap_node *n, uint64_t key);

/* Harmless on a node that is not queued. */
void xc_heap_remove(struct xc_heap *h, struct xc_heap_node *n);

/* The node with the smallest key, still queued; NULL when empty. */
static inline struct xc_heap_node *xc_heap_first(const struct xc_heap *h)
{
	return h->root;
}

#endif
