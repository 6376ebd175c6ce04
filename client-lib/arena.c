/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The arena that messages are decoded into. */
#include <stdalign.h>
#include <stdlib.h>

#include "client-lib/internal.h"

#define ALIGN alignof(max_align_t)

static void *arena_alloc(void *data, size_t size)
{
	struct cl_arena *a = data;
	void **block;

	if (size > CL_ARENA_BYTES_MAX - a->wanted)
		return NULL;
	size = (size + ALIGN - 1) & ~(ALIGN - 1);
	a->wanted += size;
	if (a->wanted > CL_ARENA_BYTES_MAX)
		a->wanted = CL_ARENA_BYTES_MAX;
	if (size <= a->room - a->used) {
		void *p = a->block + a->used;

		a->used += size;
		return p;
	}
	block = malloc(ALIGN + size);
	if (!block)
		return NULL;
	*block = a->overflow;
	a->overflow = block;
	return (uint8_t *)block + ALIGN;
}

static void arena_free(void *data, void *pointer)
{
	(void)data;
	(void)pointer;
}

void cl_arena_init(struct cl_arena *a)
{
	*a = (struct cl_arena){ .allocator = { arena_alloc, arena_free, a } };
}

static void free_overflow(struct cl_arena *a)
{
	while (a->overflow) {
		void **block = a->overflow;

		a->overflow = *block;
		free(block);
	}
}

void cl_arena_reset(struct cl_arena *a)
{
	if (a->overflow) {
		uint8_t *block = malloc(a->wanted);

		/* Where there is no memory the old block goes on to serve. */
		if (block) {
			free(a->block);
			a->block = block;
			a->room = a->wanted;
		}
		free_overflow(a);
	}
	a->used = a->wanted = 0;
}

void cl_arena_done(struct cl_arena *a)
{
	free_overflow(a);
	free(a->block);
}
