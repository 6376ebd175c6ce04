/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef XC_HASH_H
#define XC_HASH_H

/*
 * An intrusive hash table keyed by 64-bit numbers. uthash would do but for one thing: it frees its
 * table with the last element, so that a table that wavers between none and one element allocates
 * at each turn, on the hot path. This one only grows. Not thread-safe.
 *
 * Keys may be chosen by a stranger, hence the secret in the hash.
 */

#include <stdint.h>

struct xc_hash_node {
	struct xc_hash_node *next;
	uint64_t key;
};

struct xc_hash {
	struct xc_hash_node **buckets;
	uint32_t mask;
	uint32_t count;
	uint64_t secret; /* odd */
};

/* Allocates nothing. */
void xc_hash_init(struct xc_hash *h, uint64_t secret);
void xc_hash_done(struct xc_hash *h);

/* 0 or -ENOMEM (at the first element only: a table that cannot grow gets slower instead). The key
 * may be there already. */
int xc_hash_add(struct xc_hash *h, struct xc_hash_node *n, uint64_t key);
struct xc_hash_node *xc_hash_find(const struct xc_hash *h, uint64_t key);
/* The node must be in the table. */
void xc_hash_remove(struct xc_hash *h, struct xc_hash_node *n);

#endif
