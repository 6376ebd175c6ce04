/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include <errno.h>
#include <stdlib.h>

#include "common/assert.h"
#include "daemon/fabric/iwarp/private.h"

#define INDEX_BITS 24
#define INDICES (1u << INDEX_BITS)
#define FIRST_CELLS 64u

/* Indices are random already, their low bits are as good as any hash. */
static uint32_t cell_of(const struct iwarp_stags *t, uint32_t index)
{
	return index & (t->n_cells - 1);
}

static uint32_t next_cell(const struct iwarp_stags *t, uint32_t cell)
{
	return (cell + 1) & (t->n_cells - 1);
}

static bool is_taken(const struct iwarp_stags *t, uint32_t index)
{
	return t->taken[index / 64] >> (index % 64) & 1;
}

static void set_taken(struct iwarp_stags *t, uint32_t index, bool taken)
{
	uint64_t bit = UINT64_C(1) << (index % 64);

	if (taken)
		t->taken[index / 64] |= bit;
	else
		t->taken[index / 64] &= ~bit;
}

int iwarp_stags_init(struct iwarp_stags *t, const struct xd_engine_ref *engine)
{
	*t = (struct iwarp_stags){ .engine = *engine };
	t->taken = calloc(INDICES / 64, sizeof(*t->taken));
	t->resting = calloc(IWARP_STAG_REST, sizeof(*t->resting));
	if (!t->taken || !t->resting) {
		iwarp_stags_done(t);
		return -ENOMEM;
	}
	/* STag 0 is nobody's: a forgotten key must not name memory. */
	set_taken(t, 0, true);
	return 0;
}

void iwarp_stags_done(struct iwarp_stags *t)
{
	xc_assert(t->used == 0);
	free(t->cells);
	free(t->taken);
	free(t->resting);
	*t = (struct iwarp_stags){ 0 };
}

static void put(struct iwarp_stags *t, struct iwarp_stag *s)
{
	uint32_t cell = cell_of(t, s->index);

	while (t->cells[cell])
		cell = next_cell(t, cell);
	t->cells[cell] = s;
}

/* Half full at most, so that a look-up, successful or not, takes a step or two. */
static int reserve(struct iwarp_stags *t)
{
	struct iwarp_stag **old = t->cells;
	uint32_t n_old = t->n_cells;

	if (t->used == IWARP_STAGS_MAX)
		return -ENOSPC;
	if (t->used < t->n_cells / 2)
		return 0;
	t->n_cells = n_old ? n_old * 2 : FIRST_CELLS;
	t->cells = calloc(t->n_cells, sizeof(struct iwarp_stag *));
	if (!t->cells) {
		t->cells = old;
		t->n_cells = n_old;
		return -ENOMEM;
	}
	for (uint32_t i = 0; i < n_old; i++)
		if (old[i])
			put(t, old[i]);
	free(old);
	return 0;
}

/* At most one in 15 is taken (IWARP_STAGS_MAX + IWARP_STAG_REST of 2^24), so this ends soon. */
static uint32_t choose_index(struct iwarp_stags *t, uint8_t *ret_key)
{
	uint32_t r;

	if (FABRIC_SABOTAGE("reuse-index") && t->rest_count) {
		r = (t->rest_first + --t->rest_count) % IWARP_STAG_REST;
		*ret_key = 0;
		return t->resting[r];
	}
	do
		t->engine.ops->random(t->engine.engine, &r, sizeof(r));
	while (is_taken(t, r >> 8));
	*ret_key = r & 0xff;
	return r >> 8;
}

uint32_t iwarp_stags_reserve(struct iwarp_stags *t)
{
	uint8_t key;
	uint32_t index = choose_index(t, &key);

	set_taken(t, index, true);
	return index << 8 | key;
}

int iwarp_stags_add(struct iwarp_stags *t, struct iwarp_stag *s)
{
	int err = reserve(t);

	if (err)
		return err;
	s->index = choose_index(t, &s->key);
	s->serial = ++t->serial;
	set_taken(t, s->index, true);
	put(t, s);
	t->used++;
	return 0;
}

static void rest(struct iwarp_stags *t, uint32_t index)
{
	uint32_t last;

	if (t->rest_count == IWARP_STAG_REST) {
		set_taken(t, t->resting[t->rest_first], false);
		t->rest_first = (t->rest_first + 1) % IWARP_STAG_REST;
		t->rest_count--;
	}
	last = (t->rest_first + t->rest_count++) % IWARP_STAG_REST;
	t->resting[last] = index;
}

static uint32_t cell_at(const struct iwarp_stags *t, uint32_t index)
{
	uint32_t cell = cell_of(t, index);

	while (t->cells[cell] && t->cells[cell]->index != index)
		cell = next_cell(t, cell);
	return cell;
}

/* Moves the ones behind forward, so that no look-up ends early at the empty cell. */
static void close_gap(struct iwarp_stags *t, uint32_t gap)
{
	uint32_t mask = t->n_cells - 1;

	for (uint32_t at = next_cell(t, gap); t->cells[at]; at = next_cell(t, at)) {
		uint32_t home = cell_of(t, t->cells[at]->index);

		if (((at - home) & mask) < ((at - gap) & mask))
			continue; /* its home is behind the gap */
		t->cells[gap] = t->cells[at];
		t->cells[at] = NULL;
		gap = at;
	}
}

void iwarp_stags_remove(struct iwarp_stags *t, struct iwarp_stag *s)
{
	uint32_t cell = cell_at(t, s->index);

	xc_assert(t->cells[cell] == s);
	t->cells[cell] = NULL;
	close_gap(t, cell);
	t->used--;
	rest(t, s->index);
}

struct iwarp_stag *iwarp_stags_at(const struct iwarp_stags *t, uint32_t index)
{
	return t->used ? t->cells[cell_at(t, index)] : NULL;
}

struct iwarp_stag *iwarp_stags_find(const struct iwarp_stags *t, uint32_t stag)
{
	struct iwarp_stag *s = iwarp_stags_at(t, stag >> 8);

	if (!s || (s->key != (stag & 0xff) && !FABRIC_SABOTAGE("ignore-key")))
		return NULL;
	return s;
}
