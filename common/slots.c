/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "common/slots.h"

#include <errno.h>
#include <stdlib.h>

#include "common/assert.h"
#include "common/checked.h"

#define SLOT_BITS 20
#define SLOT_MASK (XC_SLOTS_MAX - 1)
#define GENERATION_MASK 0xfffu

struct xc_slot {
	void *object;
	uint32_t generation; /* 1 to 4095 */
	uint32_t free_next;  /* index + 1; 0 = none */
};

void xc_slots_init(struct xc_slots *t, uint32_t limit)
{
	xc_assert(limit > 0 && limit <= XC_SLOTS_MAX);
	*t = (struct xc_slots){ .limit = limit };
}

void xc_slots_done(struct xc_slots *t)
{
	free(t->slots);
	*t = (struct xc_slots){ .limit = t->limit };
}

static void push_free(struct xc_slots *t, uint32_t index)
{
	t->slots[index].free_next = 0;
	if (t->free_last)
		t->slots[t->free_last - 1].free_next = index + 1;
	else
		t->free_first = index + 1;
	t->free_last = index + 1;
}

static int grow(struct xc_slots *t)
{
	uint32_t capacity = t->capacity ? t->capacity * 2 : 8;
	struct xc_slot *slots;

	capacity = xc_min_u32(capacity, t->limit);
	slots = reallocarray(t->slots, capacity, sizeof(*slots));
	if (!slots)
		return -ENOMEM;
	t->slots = slots;
	for (uint32_t i = t->capacity; i < capacity; i++) {
		slots[i] = (struct xc_slot){ .generation = 1 };
		push_free(t, i);
	}
	t->capacity = capacity;
	return 0;
}

int xc_slots_add(struct xc_slots *t, void *object, uint32_t *ret_number)
{
	struct xc_slot *slot;
	uint32_t index;
	int r;

	xc_assert(object);
	if (t->used >= t->limit)
		return -ENOSPC;
	if (!t->free_first) {
		r = grow(t);
		if (r < 0)
			return r;
	}
	index = t->free_first - 1;
	slot = &t->slots[index];
	t->free_first = slot->free_next;
	if (!t->free_first)
		t->free_last = 0;
	slot->object = object;
	t->used++;
	*ret_number = slot->generation << SLOT_BITS | index;
	return 0;
}

void *xc_slots_get(const struct xc_slots *t, uint32_t number)
{
	uint32_t index = number & SLOT_MASK;

	if (index >= t->capacity || t->slots[index].generation != number >> SLOT_BITS)
		return NULL;
	return t->slots[index].object;
}

void *xc_slots_remove(struct xc_slots *t, uint32_t number)
{
	void *object = xc_slots_get(t, number);
	struct xc_slot *slot;

	if (!object)
		return NULL;
	slot = &t->slots[number & SLOT_MASK];
	slot->object = NULL;
	slot->generation = (slot->generation + 1) & GENERATION_MASK;
	if (!slot->generation)
		slot->generation = 1;
	t->used--;
	push_free(t, number & SLOT_MASK);
	return object;
}

void *xc_slots_next(const struct xc_slots *t, uint32_t *cursor)
{
	while (*cursor < t->capacity) {
		void *object = t->slots[(*cursor)++].object;

		if (object)
			return object;
	}
	return NULL;
}
