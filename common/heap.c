/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "common/heap.h"

#include <stddef.h>

#include "common/assert.h"

/* Makes the larger of two roots the eldest child of the smaller. */
static struct xc_heap_node *meld(struct xc_heap_node *a, struct xc_heap_node *b)
{
	if (!a || !b)
		return a ? a : b;
	if (b->key < a->key) {
		struct xc_heap_node *t = a;

		a = b;
		b = t;
	}
	b->next = a->child;
	if (a->child)
		a->child->prev = b;
	b->prev = a;
	a->child = b;
	return a;
}

/* The two passes that give a pairing heap its bounds, without recursion: depth is input. */
static struct xc_heap_node *meld_siblings(struct xc_heap_node *n)
{
	struct xc_heap_node *pairs = NULL, *root = NULL;

	while (n) {
		struct xc_heap_node *a = n, *b = n->next;

		n = b ? b->next : NULL;
		a->next = a->prev = NULL;
		if (b)
			b->next = b->prev = NULL;
		a = meld(a, b);
		a->next = pairs;
		pairs = a;
	}
	while (pairs) {
		struct xc_heap_node *next = pairs->next;

		pairs->next = NULL;
		root = meld(root, pairs);
		pairs = next;
	}
	return root;
}

void xc_heap_add(struct xc_heap *h, struct xc_heap_node *n, uint64_t key)
{
	xc_assert(!n->queued);
	*n = (struct xc_heap_node){ .key = key, .queued = true };
	h->root = meld(h->root, n);
	h->root->prev = NULL;
}

void xc_heap_remove(struct xc_heap *h, struct xc_heap_node *n)
{
	struct xc_heap_node *rest;

	if (!n->queued)
		return;
	rest = meld_siblings(n->child);
	if (n == h->root) {
		h->root = rest;
	} else {
		if (n->prev->child == n)
			n->prev->child = n->next;
		else
			n->prev->next = n->next;
		if (n->next)
			n->next->prev = n->prev;
		h->root = meld(h->root, rest);
	}
	if (h->root)
		h->root->next = h->root->prev = NULL;
	*n = (struct xc_heap_node){ .queued = false };
}
