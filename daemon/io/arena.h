/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef XD_IO_ARENA_H
#define XD_IO_ARENA_H

/*
 * Memory for decoding one packet. protobuf-c makes a separate allocation of every submessage,
 * string and unknown field, so that a packet of 64 KiB can cost its reader 33,000 allocations and
 * 5 MB. From here it gets a slice of a fixed block, and nothing when that is used up: what a
 * packet can cost in memory and time is bounded, and in the common case nothing is allocated at
 * all.
 *
 * The densest packet that makes sense, RECVs of one segment each, decodes into about ten times
 * its size.
 */

#include <protobuf-c/protobuf-c.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define XD_ARENA_BYTES (1u << 20)

struct xd_arena {
	ProtobufCAllocator allocator; /* hand this to the decoder */
	size_t used;
	bool exhausted; /* something was refused since the last reset */
	_Alignas(16) uint8_t block[XD_ARENA_BYTES];
};

/* 0 or -ENOMEM. */
int xd_arena_new(struct xd_arena **ret);
void xd_arena_free(struct xd_arena *a);
void xd_arena_reset(struct xd_arena *a);

/* The size that was asked for when this memory was given out; 0 where it is not the arena's. */
size_t xd_arena_size(const struct xd_arena *a, const void *memory);

#endif
