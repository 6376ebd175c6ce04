/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef XC_LIST_H
#define XC_LIST_H

/*
 * Intrusive doubly linked list with a head. sys/queue.h's TAILQ cannot tell
 * whether an element is on a list, nor remove one without its head; both are
 * needed where an object leaves "whichever queue it waits in".
 */

#include "common/checked.h"

struct xc_list {
	struct xc_list *prev, *next;
};

static inline void xc_list_init(struct xc_list *l)
{
	l->prev = l->next = l;
}

static inline bool xc_list_empty(const struct xc_list *l)
{
	return l->next == l;
}

static inline void xc_list_append(struct xc_list *head, struct xc_list *e)
{
	e->prev = head->prev;
	e->next = head;
	head->prev->next = e;
	head->prev = e;
}

static inline void xc_list_prepend(struct xc_list *head, struct xc_list *e)
{
	xc_list_append(head->next, e);
}

/* Leaves the element empty, so that removing it twice is harmless. */
static inline void xc_list_remove(struct xc_list *e)
{
	e->prev->next = e->next;
	e->next->prev = e->prev;
	xc_list_init(e);
}

static inline struct xc_list *xc_list_pop(struct xc_list *head)
{
	struct xc_list *e = head->next;

	if (e == head)
		return NULL;
	xc_list_remove(e);
	return e;
}

/* All of `from`, in their order, come before what is on `head`. */
static inline void xc_list_splice(struct xc_list *head, struct xc_list *from)
{
	if (xc_list_empty(from))
		return;
	from->prev->next = head->next;
	head->next->prev = from->prev;
	head->next = from->next;
	from->next->prev = head;
	xc_list_init(from);
}

#define xc_list_first(head, type, member)                                                          \
	(xc_list_empty(head) ? NULL : xc_container_of((head)->next, type, member))

/* The body may remove the current element, and no other. */
#define xc_list_for_each(pos, head, member)                                                        \
	for (struct xc_list *xc_at_ = (head)->next, *xc_next_ = xc_at_->next;                      \
	     xc_at_ != (head) &&                                                                   \
	     ((pos) = xc_container_of(xc_at_, __typeof__(*(pos)), member), true);                  \
	     xc_at_ = xc_next_, xc_next_ = xc_at_->next)

#endif
