/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Posting. A post is checked as a whole, cut where buffers begin and end, given carried memory
 * where it needs some, and only then recorded and encoded: until that last step nothing has
 * happened.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "client-lib/internal.h"
#include "client-lib/post.h"
#include "common/checked.h"

/* A segment's length has 32 bits; longer pieces are cut, at a page. */
#define SEGMENT_BYTES_MAX UINT32_C(0xfffff000)

/* ---- the shape */

static int check_count(const struct cl_post *p, const char *side, int n, int least)
{
	if (n < least || n > XFER_SEGMENTS_MAX)
		return cl_fail(-EINVAL, "%s: %d %s segments: %d to %d", p->what, n, side, least,
			       XFER_SEGMENTS_MAX);
	return 0;
}

static int add_length(struct cl_post *p, uint64_t *sum, uint64_t bytes)
{
	if (!xc_add_u64(*sum, bytes, sum) || *sum > XP_MESSAGE_BYTES_MAX)
		return cl_fail(-EINVAL, "%s: more than 2^40 bytes in one transfer", p->what);
	return 0;
}

static int check_local(struct cl_post *p)
{
	for (int i = 0; i < p->n_local; i++) {
		uint64_t at = (uintptr_t)p->local[i].iov_base, n = p->local[i].iov_len, end;

		if (n == 0)
			continue;
		if (at == 0)
			return cl_fail(-EINVAL, "%s: local segment %d: %llu bytes at NULL", p->what,
				       i, (unsigned long long)n);
		if (!xc_add_u64(at, n, &end))
			return cl_fail(
				-EINVAL,
				"%s: local segment %d: %llu bytes run over the end of memory",
				p->what, i, (unsigned long long)n);
		if (add_length(p, &p->total, n) < 0)
			return -EINVAL;
	}
	return 0;
}

static int check_remote(struct cl_post *p)
{
	uint64_t total = 0, end;

	for (int i = 0; i < p->n_remote; i++) {
		if (!xc_add_u64(p->remote[i].address, p->remote[i].length, &end))
			return cl_fail(-EINVAL,
				       "%s: remote segment %d: %u bytes run over the end of memory",
				       p->what, i, p->remote[i].length);
		if (add_length(p, &total, p->remote[i].length) < 0)
			return -EINVAL;
	}
	if (total != p->total)
		return cl_fail(-EINVAL, "%s: %llu local bytes, but %llu remote bytes", p->what,
			       (unsigned long long)p->total, (unsigned long long)total);
	return 0;
}

static int check_shape(struct cl_post *p)
{
	bool two_sided = p->opcode == XP_OP_READ || p->opcode == XP_OP_WRITE;

	if (!p->ep)
		return cl_fail(-EINVAL, "%s: the endpoint is NULL", p->what);
	if (p->flags & ~p->allowed)
		return cl_fail(-EINVAL, "%s: flags 0x%x are not for this operation", p->what,
			       p->flags & ~p->allowed);
	if (check_count(p, "local", p->n_local, two_sided ? 1 : 0) < 0)
		return -EINVAL;
	if (two_sided && check_count(p, "remote", p->n_remote, 1) < 0)
		return -EINVAL;
	if ((p->n_local && !p->local) || (p->n_remote && !p->remote))
		return cl_fail(-EINVAL, "%s: the list of %s segments is NULL", p->what,
			       p->n_local && !p->local ? "local" : "remote");
	if (check_local(p) < 0)
		return -EINVAL;
	return two_sided ? check_remote(p) : 0;
}

/* ---- cutting */

static int grow_segments(struct xfer_client *c, size_t n)
{
	size_t room = c->room_segments ? c->room_segments : 128;
	struct xp_segment *segments;

	if (n <= c->room_segments)
		return 0;
	while (room < n)
		room *= 2;
	segments = reallocarray(c->segments, room, sizeof(*segments));
	if (!segments)
		return cl_fail(-ENOMEM, "no memory for segments");
	c->segments = segments;
	c->room_segments = room;
	return 0;
}

static int grow_pieces(struct xfer_client *c, size_t n)
{
	size_t room = c->room_pieces ? c->room_pieces : 64;
	struct cl_piece *pieces;

	if (n <= c->room_pieces)
		return 0;
	while (room < n)
		room *= 2;
	pieces = reallocarray(c->pieces, room, sizeof(*pieces));
	if (!pieces)
		return cl_fail(-ENOMEM, "no memory for segments");
	c->pieces = pieces;
	c->room_pieces = room;
	return 0;
}

/* Key 0, of no buffer, marks carried bytes: they get their place later. */
static int put_segment(struct xfer_client *c, struct cl_post *p, uint32_t key, uint64_t address,
		       uint64_t bytes)
{
	struct xp_segment *last = p->out_local ? &c->segments[p->out_local - 1] : NULL;
	/* A grant is one segment, up to the last byte that 32 bits can count. */
	uint32_t most = p->opcode == XP_OP_GRANT ? UINT32_MAX : SEGMENT_BYTES_MAX;

	/* Carried neighbours lie side by side. */
	if (key == 0 && last && last->key == 0 && last->length + bytes <= SEGMENT_BYTES_MAX) {
		last->length += (uint32_t)bytes;
		return 0;
	}
	while (bytes) {
		uint64_t n = xc_min_u64(bytes, most);

		if (p->out_local == XP_SEGMENTS_MAX)
			return cl_fail(-EINVAL,
				       "%s: cut at the ends of buffers and at 4 GiB, the local "
				       "segments are more than %u",
				       p->what, XP_SEGMENTS_MAX);
		if (grow_segments(c, (size_t)p->out_local + 1) < 0)
			return -ENOMEM;
		c->segments[p->out_local++] = (struct xp_segment){ address, (uint32_t)n, key };
		address += n;
		bytes -= n;
	}
	return 0;
}

static int put_carried(struct xfer_client *c, struct cl_post *p, void *user, uint64_t position,
		       uint64_t bytes)
{
	if (grow_pieces(c, (size_t)p->n_pieces + 1) < 0)
		return -ENOMEM;
	c->pieces[p->n_pieces++] = (struct cl_piece){ user, p->carried, position, bytes };
	if (put_segment(c, p, 0, p->carried, bytes) < 0)
		return -EINVAL;
	p->carried += bytes;
	return 0;
}

static int cut_one(struct xfer_client *c, struct cl_post *p, const struct iovec *v,
		   uint64_t *position)
{
	uintptr_t at = (uintptr_t)v->iov_base, next;
	uint64_t left = v->iov_len, n;
	int r = 0;

	while (left && r == 0) {
		struct xfer_buf *b = cl_buffer_find(&c->buffers, at, &next);

		if (b) {
			uint64_t offset = at - (uintptr_t)b->memory.data;

			n = xc_min_u64(left, b->memory.bytes - offset);
			r = put_segment(c, p, b->number, offset, n);
		} else {
			n = xc_min_u64(left, next - at);
			r = put_carried(c, p, (uint8_t *)v->iov_base + (v->iov_len - left),
					*position, n);
		}
		at += n;
		left -= n;
		*position += n;
	}
	return r;
}

static int cut_local(struct xfer_client *c, struct cl_post *p)
{
	uint64_t position = 0;
	int r = 0;

	p->out_local = p->n_pieces = 0;
	p->carried = 0;
	for (int i = 0; i < p->n_local && r == 0; i++)
		r = cut_one(c, p, &p->local[i], &position);
	if (r < 0)
		return r;
	if (p->opcode == XP_OP_GRANT && p->n_pieces)
		return cl_fail(-EFAULT, "%s: not all of the %llu bytes are in a buffer", p->what,
			       (unsigned long long)p->total);
	if (p->opcode == XP_OP_GRANT && p->n_local == 1 && p->out_local != 1)
		return cl_fail(-EFAULT, "%s: the %llu bytes lie in more than one buffer", p->what,
			       (unsigned long long)p->total);
	return 0;
}

static int put_remote(struct xfer_client *c, struct cl_post *p)
{
	p->out_remote = 0;
	if (grow_segments(c, (size_t)p->out_local + (size_t)p->n_remote) < 0)
		return -ENOMEM;
	for (int i = 0; i < p->n_remote; i++) {
		const struct xfer_token *t = &p->remote[i];

		if (t->length)
			c->segments[p->out_local + p->out_remote++] =
				(struct xp_segment){ t->address, t->length, t->rkey };
	}
	return 0;
}

/* A READ or WRITE of nothing still has a segment on each side. */
static int put_nothing(struct xfer_client *c, struct cl_post *p)
{
	if (p->total || p->n_remote == 0)
		return 0;
	if (grow_segments(c, 2) < 0)
		return -ENOMEM;
	c->segments[0] = (struct xp_segment){ 0 };
	c->segments[1] = (struct xp_segment){ p->remote[0].address, 0, p->remote[0].rkey };
	p->out_local = p->out_remote = 1;
	return 0;
}

/* ---- what the endpoint takes */

static int check_state(const struct cl_post *p)
{
	const struct xfer_ep *ep = p->ep;

	if (ep->ended)
		return cl_fail(-ENOTCONN, "%s: the endpoint has ended: %s", p->what,
			       ep->text[0] ? ep->text : xfer_strerror(ep->status));
	if (!ep->ready)
		return cl_fail(-ENOTCONN, "%s: the endpoint is not ready", p->what);
	if (!ep->connected && p->opcode != XP_OP_RECV && p->opcode != XP_OP_CANCEL)
		return cl_fail(-ENOTCONN, "%s: the endpoint is not connected", p->what);
	return 0;
}

static int check_message(const struct cl_post *p)
{
	const struct xfer_ep_info *info = &p->ep->info;

	/* Of more pieces than the device takes it goes through a slab, whose length the daemon
	 * knows. */
	if (p->opcode == XP_OP_SEND && info->max_message_bytes &&
	    p->total > info->max_message_bytes)
		return cl_fail(-EINVAL, "%s: %llu bytes: a message of this endpoint takes %llu",
			       p->what, (unsigned long long)p->total,
			       (unsigned long long)info->max_message_bytes);
	return 0;
}

/* ---- carried memory */

static uint64_t list_bytes(const struct cl_post *p)
{
	if (p->out_local <= XP_SEGMENTS_INLINE && p->out_remote <= XP_SEGMENTS_INLINE)
		return 0;
	return (uint64_t)(p->out_local + p->out_remote) * sizeof(struct xp_segment);
}

/* Layout of a chunk: the list, if any, then the bytes. */
static void place(struct xfer_client *c, const struct cl_post *p, const struct cl_chunk *chunk)
{
	uint64_t data = list_bytes(p);
	bool out = p->opcode == XP_OP_WRITE || p->opcode == XP_OP_SEND;

	for (uint32_t i = 0; i < p->out_local; i++) {
		struct xp_segment *s = &c->segments[i];

		if (s->key == 0) {
			s->address += chunk->offset + data;
			s->key = cl_chunk_buffer(chunk);
		}
	}
	for (uint32_t i = 0; i < p->n_pieces; i++) {
		struct cl_piece *piece = &c->pieces[i];

		piece->chunk_offset += data;
		if (out)
			memcpy(cl_chunk_data(chunk) + piece->chunk_offset, piece->user,
			       piece->bytes);
	}
	if (data)
		memcpy(cl_chunk_data(chunk), c->segments, data);
}

/* ---- recording, sending */

static void fill_request(const struct cl_post *p, const struct cl_chunk *chunk, bool tracked,
			 uint64_t cookie, struct xp_request *ret)
{
	unsigned int flags = (p->flags & XP_F_ALL) | p->wire;

	/* Carried memory is free again at the completion: the daemon must send one. */
	if (tracked)
		flags &= ~XP_F_QUIET;
	*ret = (struct xp_request){
		.opcode = p->opcode,
		.flags = flags,
		.wr_id = p->wr_id,
		.cookie = cookie,
		.endpoint = p->ep->number,
		.key = p->key,
		.local_count = p->out_local,
		.remote_count = p->out_remote,
		.argument = p->argument,
	};
	if (list_bytes(p)) {
		ret->list_buffer = cl_chunk_buffer(chunk);
		ret->list_offset = chunk->offset;
	}
}

/* Takes the chunk over where it succeeds. */
static int record(struct xfer_client *c, const struct cl_post *p, const struct cl_chunk *chunk,
		  uint64_t *ret_cookie, struct cl_request **ret)
{
	struct cl_request *r;
	int e;

	*ret = NULL;
	if ((p->flags & XFER_QUIET) && !chunk->block) {
		*ret_cookie = CL_COOKIE_UNTRACKED | ++c->cookie;
		return 0;
	}
	e = cl_request_new(&c->requests, &r, ret_cookie);
	if (e == -EAGAIN)
		return cl_fail(e, "%s: %u requests are under way: poll, then try again", p->what,
			       c->requests.used);
	if (e == 0) {
		e = cl_request_set_pieces(r, c->pieces, p->n_pieces);
		if (e < 0)
			cl_request_put(&c->requests, r);
	}
	if (e == 0)
		e = cl_events_reserve_ends(c);
	if (e < 0)
		return cl_fail(e, "%s: no memory", p->what);
	r->ep = p->ep;
	r->wr_id = p->wr_id;
	r->opcode = p->opcode;
	r->quiet = (p->flags & XFER_QUIET) != 0;
	r->chunk = *chunk;
	*ret = r;
	return 0;
}

static int submit(struct xfer_client *c, struct cl_post *p, struct cl_chunk *chunk)
{
	struct xp_request wire;
	struct cl_request *r;
	uint64_t cookie;
	int e;

	if (chunk->block)
		place(c, p, chunk);
	e = record(c, p, chunk, &cookie, &r);
	if (e == 0) {
		fill_request(p, chunk, r != NULL, cookie, &wire);
		e = cl_batch_add(c, &wire, c->segments);
		if (e == -EAGAIN)
			cl_fail(e,
				"%s: the daemon takes no more at the moment: poll, then try again",
				p->what);
		else if (e < 0)
			cl_alive(c);
		if (e < 0 && r)
			cl_request_put(&c->requests, r);
	}
	if (e < 0) {
		cl_carry_give(&c->carry, chunk);
		return e;
	}
	if (p->ret_cookie)
		*p->ret_cookie = cookie;
	/* What does not go out now goes with the next poll: it is posted in any case. */
	if (!(p->flags & XFER_MORE))
		cl_batch_flush(c);
	return 0;
}

/* With the lock held; -EAGAIN without a sentence: carried memory must grow by *ret_need first. */
static int try_post(struct xfer_client *c, struct cl_post *p, uint64_t *ret_need)
{
	struct cl_chunk chunk = { 0 };
	uint64_t need;
	int r = cl_alive(c);

	*ret_need = 0;
	if (r == 0)
		r = check_state(p);
	if (r == 0)
		r = cut_local(c, p);
	if (r == 0)
		r = put_remote(c, p);
	if (r == 0)
		r = put_nothing(c, p);
	if (r == 0)
		r = check_message(p);
	if (r < 0)
		return r;
	need = list_bytes(p) + p->carried;
	if (need) {
		r = cl_carry_take(&c->carry, need, &chunk);
		if (r == -EAGAIN)
			*ret_need = need;
		else if (r < 0)
			cl_fail(r, "%s: no memory", p->what);
		if (r < 0)
			return r;
	}
	return submit(c, p, &chunk);
}

int cl_post(struct cl_post *p)
{
	struct xfer_client *c;
	uint64_t need;
	int r = check_shape(p);

	if (r < 0)
		return r;
	c = p->ep->client;
	r = cl_enter(c);
	if (r < 0)
		return r;
	for (;;) {
		r = try_post(c, p, &need);
		if (need == 0)
			break;
		/* The lock was released meanwhile: everything is looked at again. */
		r = cl_carry_grow(c, need);
		if (r < 0)
			break;
	}
	return cl_leave(c, r);
}
