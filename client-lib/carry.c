/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Memory of the library in which it carries what lies in no buffer, and lists that are too long to
 * go inline. Blocks are buffers like the user's, but in no index: no pointer of a user leads there.
 * What is free of a block is a sorted array of extents; chunks are taken first fit.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "client-lib/internal.h"
#include "common/checked.h"

#define UNIT 64u /* a cache line; more than lists need */
#define PAGE 4096u
#define FIRST_BLOCK (UINT64_C(1) << 20)

struct extent {
	uint64_t offset, bytes;
};

struct cl_carry_block {
	struct xc_list link;
	struct cl_memory memory;
	uint32_t number;
	struct extent *free;
	size_t n_free, room_free;
	size_t chunks; /* given out */
};

static uint64_t round_up(uint64_t bytes, uint64_t unit)
{
	return (bytes + unit - 1) / unit * unit;
}

void cl_carry_init(struct cl_carry *carry, uint64_t bytes_max)
{
	*carry = (struct cl_carry){ .bytes_max = round_up(bytes_max, PAGE) };
	xc_list_init(&carry->blocks);
}

uint8_t *cl_chunk_data(const struct cl_chunk *chunk)
{
	return chunk->block->memory.data + chunk->offset;
}

uint32_t cl_chunk_buffer(const struct cl_chunk *chunk)
{
	return chunk->block->number;
}

/* ---- extents */

/* Room for the extents that giving back could leave: one more than there are chunks. */
static int reserve(struct cl_carry_block *b)
{
	size_t room = b->room_free ? b->room_free * 2 : 8;
	struct extent *p;

	if (b->chunks + 2 <= b->room_free)
		return 0;
	p = reallocarray(b->free, room, sizeof(*p));
	if (!p)
		return -ENOMEM;
	b->free = p;
	b->room_free = room;
	return 0;
}

static void remove_extent(struct cl_carry_block *b, size_t i)
{
	b->n_free--;
	memmove(&b->free[i], &b->free[i + 1], (b->n_free - i) * sizeof(*b->free));
}

static bool take_from(struct cl_carry_block *b, uint64_t bytes, uint64_t *ret_offset)
{
	for (size_t i = 0; i < b->n_free; i++) {
		struct extent *e = &b->free[i];

		if (e->bytes < bytes)
			continue;
		*ret_offset = e->offset;
		e->offset += bytes;
		e->bytes -= bytes;
		if (e->bytes == 0)
			remove_extent(b, i);
		b->chunks++;
		return true;
	}
	return false;
}

int cl_carry_take(struct cl_carry *carry, uint64_t bytes, struct cl_chunk *ret)
{
	struct cl_carry_block *b;
	uint64_t offset;

	bytes = round_up(bytes, UNIT);
	xc_list_for_each(b, &carry->blocks, link) {
		if (reserve(b) < 0)
			return -ENOMEM;
		if (take_from(b, bytes, &offset)) {
			*ret = (struct cl_chunk){ b, offset, bytes };
			return 0;
		}
	}
	return -EAGAIN;
}

/* The first extent behind an offset. */
static size_t behind(const struct cl_carry_block *b, uint64_t offset)
{
	size_t low = 0, high = b->n_free;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (b->free[middle].offset <= offset)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

static void insert_extent(struct cl_carry_block *b, size_t i, struct extent e)
{
	memmove(&b->free[i + 1], &b->free[i], (b->n_free - i) * sizeof(*b->free));
	b->free[i] = e;
	b->n_free++;
}

void cl_carry_give(struct cl_carry *carry, struct cl_chunk *chunk)
{
	struct cl_carry_block *b = chunk->block;
	struct extent *before, *after;
	size_t i;

	(void)carry;
	if (!b)
		return;
	i = behind(b, chunk->offset);
	before = i > 0 ? &b->free[i - 1] : NULL;
	after = i < b->n_free ? &b->free[i] : NULL;
	if (before && before->offset + before->bytes == chunk->offset) {
		before->bytes += chunk->bytes;
		if (after && before->offset + before->bytes == after->offset) {
			before->bytes += after->bytes;
			remove_extent(b, i);
		}
	} else if (after && chunk->offset + chunk->bytes == after->offset) {
		after->offset = chunk->offset;
		after->bytes += chunk->bytes;
	} else {
		insert_extent(b, i, (struct extent){ chunk->offset, chunk->bytes });
	}
	b->chunks--;
	chunk->block = NULL;
}

/* ---- blocks */

static void free_block(struct cl_carry_block *b, bool ours)
{
	if (ours)
		cl_memory_unmap(&b->memory);
	free(b->free);
	free(b);
}

static int add_block(struct xfer_client *c, uint64_t bytes)
{
	struct cl_carry_block *b = calloc(1, sizeof(*b));
	int r = b ? reserve(b) : -ENOMEM;

	if (r < 0) {
		free(b);
		return cl_fail(r, "carried memory: no memory");
	}
	/* Counted before the lock is released, so that two threads do not both find room. */
	c->carry.bytes += bytes;
	r = cl_memory_new(c, bytes, 0, &b->memory, &b->number);
	if (r < 0) {
		c->carry.bytes -= bytes;
		b->memory.data = NULL;
		free_block(b, true);
		return r;
	}
	insert_extent(b, 0, (struct extent){ 0, bytes });
	xc_list_append(&c->carry.blocks, &b->link);
	return 0;
}

static int drop_idle_block(struct xfer_client *c)
{
	struct cl_carry_block *b, *idle = NULL;
	int r;

	xc_list_for_each(b, &c->carry.blocks, link)
		if (b->chunks == 0)
			idle = b;
	if (!idle)
		return cl_fail(-EAGAIN,
			       "the memory to carry in is in use: poll, then try again");
	/* Off the list, so that nobody takes a chunk of it while the lock is released. */
	xc_list_remove(&idle->link);
	r = cl_memory_remove(c, idle->number);
	if (r < 0 && !c->gone) {
		xc_list_append(&c->carry.blocks, &idle->link);
		return r;
	}
	c->carry.bytes -= idle->memory.bytes;
	free_block(idle, true);
	return r;
}

int cl_carry_grow(struct xfer_client *c, uint64_t bytes)
{
	struct cl_carry *carry = &c->carry;
	uint64_t least = round_up(bytes, PAGE), step;

	if (least > carry->bytes_max)
		return cl_fail(-EMSGSIZE,
			       "%llu bytes outside buffers: carry_bytes of this client is %llu",
			       (unsigned long long)bytes, (unsigned long long)carry->bytes_max);
	if (least > carry->bytes_max - carry->bytes)
		return drop_idle_block(c);
	/*
	 * Each block as large as all before it: few round trips, and no more than twice the need.
	 */
	step = carry->bytes > FIRST_BLOCK ? carry->bytes : FIRST_BLOCK;
	step = xc_min_u64(step, carry->bytes_max - carry->bytes);
	return add_block(c, step > least ? step : least);
}

void cl_carry_done(struct xfer_client *c)
{
	bool ours = cl_epoch_is(c->epoch);
	struct cl_carry_block *b;

	xc_list_for_each(b, &c->carry.blocks, link)
		free_block(b, ours);
}
