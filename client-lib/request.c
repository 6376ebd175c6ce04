/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The requests that have not ended, by cookie. A cookie is a slot and the slot's generation, so
 * that a late xfer_cancel() or a daemon that ends a request twice finds nothing rather than a
 * stranger.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "client-lib/internal.h"
#include "common/checked.h"

#define GENERATION_MASK 0x7fffffffu /* the top bit is CL_COOKIE_UNTRACKED */

static int grow(struct cl_requests *t)
{
	uint32_t room = xc_min_u32(t->room ? t->room * 2 : 64, t->max);
	struct cl_request *at;

	if (room <= t->room)
		return -EAGAIN;
	at = reallocarray(t->at, room, sizeof(*at));
	if (!at)
		return -ENOMEM;
	t->at = at;
	for (uint32_t i = room; i-- > t->room;) {
		at[i] = (struct cl_request){ .generation = 1, .next_free = t->free_first };
		t->free_first = i + 1;
	}
	t->room = room;
	return 0;
}

int cl_request_new(struct cl_requests *t, struct cl_request **ret, uint64_t *ret_cookie)
{
	struct cl_request *r;
	uint32_t index;
	int e;

	if (!t->free_first) {
		e = grow(t);
		if (e < 0)
			return e;
	}
	index = t->free_first - 1;
	r = &t->at[index];
	t->free_first = r->next_free;
	*r = (struct cl_request){ .generation = r->generation, .used = true };
	t->used++;
	*ret = r;
	*ret_cookie = (uint64_t)r->generation << 32 | (index + 1);
	return 0;
}

struct cl_request *cl_request_get(struct cl_requests *t, uint64_t cookie)
{
	uint32_t index = (uint32_t)cookie - 1; /* 0 wraps to no slot */
	struct cl_request *r;

	if (index >= t->room)
		return NULL;
	r = &t->at[index];
	return r->used && r->generation == cookie >> 32 ? r : NULL;
}

int cl_request_set_pieces(struct cl_request *r, const struct cl_piece *pieces, uint32_t n)
{
	struct cl_piece *to = r->few;

	if (n > XC_ARRAY_SIZE(r->few)) {
		to = r->many = reallocarray(NULL, n, sizeof(*to));
		if (!to)
			return -ENOMEM;
	}
	if (n)
		memcpy(to, pieces, n * sizeof(*to));
	r->n_pieces = n;
	return 0;
}

const struct cl_piece *cl_request_pieces(const struct cl_request *r)
{
	return r->many ? r->many : r->few;
}

void cl_request_put(struct cl_requests *t, struct cl_request *r)
{
	free(r->many);
	r->many = NULL;
	r->used = false;
	r->generation = (r->generation + 1) & GENERATION_MASK;
	if (!r->generation)
		r->generation = 1;
	r->next_free = t->free_first;
	t->free_first = (uint32_t)(r - t->at) + 1;
	t->used--;
}

void cl_requests_done(struct cl_requests *t)
{
	for (uint32_t i = 0; i < t->room; i++)
		free(t->at[i].many);
	free(t->at);
}
