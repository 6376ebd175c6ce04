/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "common/hash.h"

#include <errno.h>
#include <stdlib.h>

#include "common/assert.h"

#define FIRST_BUCKETS 16

void xc_hash_init(struct xc_hash *h, uint64_t secret)
{
	*h = (struct xc_hash){ .secret = secret | 1 };
}

void xc_hash_done(struct xc_hash *h)
{
	free(h->buckets);
	h->buckets = NULL;
	h->mask = h->count = 0;
}

/* Multiplication by a secret odd number, then a fold: the high bits depend on all bits of the key.
 */
static struct xc_hash_node **bucket(const struct xc_hash *h, uint64_t key)
{
	uint64_t x = (key ^ h->secret) * (h->secret | 1);

	x ^= x >> 32;
	x *= UINT64_C(0x9e3779b97f4a7c15);
	return &h->buckets[(x >> 32) & h->mask];
}

static int resize(struct xc_hash *h, uint32_t n)
{
	struct xc_hash_node **buckets = calloc(n, sizeof(*buckets));
	struct xc_hash old = *h;

	if (!buckets)
		return -ENOMEM;
	h->buckets = buckets;
	h->mask = n - 1;
	for (uint32_t i = 0; old.buckets && i <= old.mask; i++) {
		while (old.buckets[i]) {
			struct xc_hash_node *n2 = old.buckets[i], **b = bucket(h, n2->key);

			old.buckets[i] = n2->next;
			n2->next = *b;
			*b = n2;
		}
	}
	free(old.buckets);
	return 0;
}

int xc_hash_add(struct xc_hash *h, struct xc_hash_node *n, uint64_t key)
{
	struct xc_hash_node **b;

	if (!h->buckets) {
		int r = resize(h, FIRST_BUCKETS);

		if (r < 0)
			return r;
	} else if (h->count > 2 * h->mask && h->mask < UINT32_MAX / 4) {
		(void)resize(h, (h->mask + 1) * 2);
	}
	b = bucket(h, key);
	n->key = key;
	n->next = *b;
	*b = n;
	h->count++;
	return 0;
}

struct xc_hash_node *xc_hash_find(const struct xc_hash *h, uint64_t key)
{
	struct xc_hash_node *n;

	if (!h->buckets)
		return NULL;
	for (n = *bucket(h, key); n && n->key != key; n = n->next)
		;
	return n;
}

void xc_hash_remove(struct xc_hash *h, struct xc_hash_node *n)
{
	struct xc_hash_node **at = bucket(h, n->key);

	while (*at != n) {
		xc_assert(*at);
		at = &(*at)->next;
	}
	*at = n->next;
	n->next = NULL;
	h->count--;
}
