/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "daemon/io/arena.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/*
 * Before each piece stands the size that was asked for; pieces are aligned for any of
 * protobuf-c's structs.
 */
#define HEAD 8u

_Static_assert(sizeof(size_t) <= HEAD, "a size fits the head of a piece");

static void *arena_alloc(void *data, size_t size)
{
	struct xd_arena *a = data;
	uint8_t *piece;

	if (size > XD_ARENA_BYTES - HEAD || a->used + HEAD + size > XD_ARENA_BYTES) {
		a->exhausted = true;
		return NULL;
	}
	piece = a->block + a->used;
	memcpy(piece, &size, sizeof(size));
	a->used = (a->used + HEAD + size + 7) & ~(size_t)7;
	if (a->used > XD_ARENA_BYTES)
		a->used = XD_ARENA_BYTES;
	return piece + HEAD;
}

static void arena_free(void *data, void *memory)
{
	(void)data;
	(void)memory;
}

int xd_arena_new(struct xd_arena **ret)
{
	struct xd_arena *a = malloc(sizeof(*a));

	if (!a)
		return -ENOMEM;
	a->allocator = (ProtobufCAllocator){
		.alloc = arena_alloc,
		.free = arena_free,
		.allocator_data = a,
	};
	xd_arena_reset(a);
	*ret = a;
	return 0;
}

void xd_arena_free(struct xd_arena *a)
{
	free(a);
}

void xd_arena_reset(struct xd_arena *a)
{
	a->used = 0;
	a->exhausted = false;
}

size_t xd_arena_size(const struct xd_arena *a, const void *memory)
{
	const uint8_t *at = memory;
	size_t size;

	if (!at || at < a->block + HEAD || at >= a->block + XD_ARENA_BYTES)
		return 0;
	memcpy(&size, at - HEAD, sizeof(size));
	return size;
}
