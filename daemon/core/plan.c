/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "daemon/core/plan.h"

#include <errno.h>

#include "common/checked.h"
#include "daemon/fabric/fabric.h"

static bool has_remote(const struct xd_shape *s)
{
	return s->opcode == XP_OP_READ || s->opcode == XP_OP_WRITE;
}

/* Adds a local piece, joined to the one before where they are neighbours. False: the list is full.
 */
static bool add_sge(struct xd_piece *p, uint32_t max_sge, uint64_t offset, uint32_t length,
		    uint32_t buffer)
{
	struct xp_segment *last = p->n_sge ? &p->sge[p->n_sge - 1] : NULL;

	if (last && last->key == buffer && last->address + last->length == offset &&
	    length <= UINT32_MAX - last->length) {
		last->length += length;
		return true;
	}
	if (p->n_sge == max_sge)
		return false;
	p->sge[p->n_sge++] =
		(struct xp_segment){ .address = offset, .length = length, .key = buffer };
	return true;
}

/* Takes up to `room` bytes of local segments into the piece. */
static void take_local(const struct xd_shape *s, const struct xd_plan_limits *limits,
		       struct xd_cursor *c, uint64_t room, struct xd_piece *p)
{
	while (room && c->local < s->n_local) {
		const struct xp_segment *l = &s->local[c->local];
		uint32_t n = (uint32_t)xc_min_u64(l->length - c->local_done, room);

		if (n && !limits->stage &&
		    !add_sge(p, limits->max_sge, l->address + c->local_done, n, l->key))
			return;
		p->bytes += n;
		room -= n;
		c->local_done += n;
		if (c->local_done == l->length) {
			c->local++;
			c->local_done = 0;
		}
	}
}

/* How many bytes lie in one piece at the peer from the cursor on, neighbours merged, up to `most`.
 */
static uint64_t remote_run(const struct xd_shape *s, const struct xd_cursor *c, uint64_t most)
{
	const struct xp_segment *first = &s->remote[c->remote];
	uint64_t end = first->address + first->length, run = first->length - c->remote_done;

	for (uint32_t i = c->remote + 1; i < s->n_remote && run < most; i++) {
		const struct xp_segment *r = &s->remote[i];

		if (!r->length)
			continue;
		if (r->key != first->key || r->address != end)
			break;
		end += r->length;
		run += r->length;
	}
	return xc_min_u64(run, most);
}

static void advance_remote(const struct xd_shape *s, struct xd_cursor *c, uint64_t bytes)
{
	while (c->remote < s->n_remote) {
		uint64_t left = s->remote[c->remote].length - c->remote_done;

		if (bytes < left) {
			c->remote_done += bytes;
			return;
		}
		bytes -= left;
		c->remote++;
		c->remote_done = 0;
	}
}

/* Does it lie, at the peer, in two pages, and is so short that it must not? Then *ret_bytes: how
 * much of it lies in the first. */
static bool must_end_in_page(const struct xd_plan_limits *limits, const struct xd_piece *p,
			     uint64_t *ret_bytes)
{
	*ret_bytes = FABRIC_PAGE_BYTES - p->remote_address % FABRIC_PAGE_BYTES;
	return limits->short_in_page && p->bytes <= FABRIC_SHORT_BYTES && p->bytes > *ret_bytes;
}

static bool next_remote(const struct xd_shape *s, const struct xd_plan_limits *limits,
			struct xd_cursor *c, struct xd_piece *p)
{
	struct xd_cursor from;
	uint64_t run;

	advance_remote(s, c, 0); /* over empty ones */
	from = *c;
	if (c->remote == s->n_remote)
		return false;
	p->remote_address = s->remote[c->remote].address + c->remote_done;
	p->rkey = s->remote[c->remote].key;
	run = remote_run(s, c,
			 limits->stage ? xc_min_u64(limits->wr_bytes, XD_PLAN_STAGE_BYTES)
				       : limits->wr_bytes);
	take_local(s, limits, c, run, p);
	if (must_end_in_page(limits, p, &run)) {
		*c = from;
		p->n_sge = 0;
		p->bytes = 0;
		take_local(s, limits, c, run, p);
	}
	advance_remote(s, c, p->bytes);
	return p->bytes > 0;
}

bool xd_plan_next(const struct xd_shape *shape, const struct xd_plan_limits *limits,
		  struct xd_cursor *cursor, struct xd_piece *ret)
{
	bool first =
		!cursor->local && !cursor->remote && !cursor->local_done && !cursor->remote_done;

	if (cursor->ended)
		return false;
	ret->n_sge = 0;
	ret->bytes = 0;
	ret->remote_address = 0;
	ret->rkey = 0;
	if (!has_remote(shape)) {
		take_local(shape, limits, cursor, UINT64_MAX, ret);
		cursor->ended = true;
		return true;
	}
	if (next_remote(shape, limits, cursor, ret))
		return true;
	cursor->ended = true;
	/* A transfer of 0 bytes still goes out, once, so that it takes its place in the order. */
	if (first && shape->n_remote) {
		ret->remote_address = shape->remote[0].address;
		ret->rkey = shape->remote[0].key;
	}
	return first;
}

/* How many work requests the remote side alone asks for: more than that is a split. */
static uint32_t remote_runs(const struct xd_shape *s)
{
	struct xd_cursor c = { 0 };
	uint32_t n = 0;

	for (;;) {
		advance_remote(s, &c, 0);
		if (c.remote == s->n_remote)
			return n;
		advance_remote(s, &c, remote_run(s, &c, UINT64_MAX));
		n++;
	}
}

static uint64_t bytes_of(const struct xd_shape *s)
{
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < s->n_local; i++)
		bytes += s->local[i].length;
	return bytes;
}

/* A SEND or RECV: one work request, or none that can carry it. */
static int plan_message(const struct xd_shape *shape, const struct xd_plan_limits *limits,
			struct xd_plan *ret)
{
	uint64_t bytes = bytes_of(shape);
	struct xd_cursor c = { 0 };
	struct xd_piece piece;

	if (bytes > limits->wr_bytes)
		return -EMSGSIZE;
	if (!limits->stage) {
		xd_plan_next(shape, limits, &c, &piece);
		if (c.local == shape->n_local) {
			*ret = (struct xd_plan){ .rung = XD_RUNG_DIRECT, .wrs = 1 };
			return 0;
		}
	}
	if (bytes > limits->stage_bytes)
		return -EMSGSIZE;
	*ret = (struct xd_plan){ .rung = XD_RUNG_STAGE, .wrs = 1 };
	return 0;
}

int xd_plan_make(const struct xd_shape *shape, const struct xd_plan_limits *limits,
		 struct xd_plan *ret)
{
	struct xd_cursor c = { 0 };
	struct xd_piece piece;
	struct xd_plan plan = { 0 };

	if (!has_remote(shape))
		return plan_message(shape, limits, ret);
	while (xd_plan_next(shape, limits, &c, &piece))
		plan.wrs++;
	if (limits->stage)
		plan.rung = XD_RUNG_STAGE;
	else if (plan.wrs > 1 && plan.wrs > remote_runs(shape))
		plan.rung = XD_RUNG_SPLIT;
	*ret = plan;
	return 0;
}
