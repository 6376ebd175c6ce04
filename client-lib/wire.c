/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What goes out: requests are encoded one by one behind each other, and get their head, which holds
 * the length of all, when the packet is sent.
 */
#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "client-lib/internal.h"
#include "common/checked.h"
#include "proto/varint.h"

#define SAME(a, b) _Static_assert((unsigned int)(a) == (unsigned int)(b), #a " is " #b)
SAME(XFER_OP_READ, XP_OP_READ);
SAME(XFER_OP_WRITE, XP_OP_WRITE);
SAME(XFER_OP_SEND, XP_OP_SEND);
SAME(XFER_OP_RECV, XP_OP_RECV);
SAME(XFER_OP_GRANT, XP_OP_GRANT);
SAME(XFER_OP_REVOKE, XP_OP_REVOKE);
SAME(XFER_OP_CANCEL, XP_OP_CANCEL);
SAME(XFER_FENCE, XP_F_FENCE);
SAME(XFER_QUIET, XP_F_QUIET);
SAME(XFER_SOLICITED, XP_F_SOLICITED);
SAME(XFER_PLACED, XP_F_PLACED);
SAME(XFER_GRANT_READ, XP_F_GRANT_READ);
SAME(XFER_GRANT_WRITE, XP_F_GRANT_WRITE);
SAME(XFER_HAS_IMMEDIATE, XP_CF_IMMEDIATE);
SAME(XFER_HAS_INVALIDATED, XP_CF_INVALIDATED);
SAME(XFER_HAS_SOLICITED, XP_CF_SOLICITED);
SAME(XFER_CANCEL_NEVER_STARTED, XP_CANCEL_NEVER_STARTED);
SAME(XFER_CANCEL_FENCED, XP_CANCEL_FENCED);
SAME(XFER_CANCEL_QUARANTINED, XP_CANCEL_QUARANTINED);
SAME(XFER_CANCEL_TOO_LATE, XP_CANCEL_TOO_LATE);
SAME(XFER_SEGMENTS_MAX, XP_SEGMENTS_MAX);
_Static_assert((XFER_MORE & XP_F_ALL) == 0, "a flag of the library's own");
_Static_assert(sizeof(struct xfer_token) == 16, "a token is 16 bytes");

/* Field numbers of client.proto with the wire type "length follows". */
#define TAG_SUBMIT (13 << 3 | 2)
#define TAG_REQUESTS (1 << 3 | 2)
#define BATCH_BYTES_MAX (XP_PACKET_BYTES_MAX - CL_BATCH_HEAD)

void cl_want_out(struct xfer_client *c, bool want)
{
	uint64_t one = 1;

	if (c->want_out == want)
		return;
	c->want_out = want;
	if (c->epoll >= 0) {
		struct epoll_event e = { .events = EPOLLIN | (want ? (uint32_t)EPOLLOUT : 0),
					 .data = { .fd = c->sock } };

		epoll_ctl(c->epoll, EPOLL_CTL_MOD, c->sock, &e);
	}
	/* The reader sleeps on what it wanted before. */
	if (want && c->reading && !c->kicked && write(c->kick, &one, sizeof(one)) == sizeof(one))
		c->kicked = true;
}

/* Sends the requests gathered so far with their head in front. */
int cl_batch_flush(struct xfer_client *c)
{
	struct cl_batch *b = &c->batch;
	uint8_t head[CL_BATCH_HEAD];
	size_t n;
	int r;

	if (b->used == 0)
		return 0;
	if (c->gone || c->send_failed)
		return -XFER_E_DAEMON_GONE;
	n = xp_put_varint(head, TAG_SUBMIT);
	n += xp_put_varint(head + n, b->used);
	memcpy(b->packet + CL_BATCH_HEAD - n, head, n);
	r = xp_fdmsg_send(c->sock, b->packet + CL_BATCH_HEAD - n, n + b->used, NULL, 0);
	if (r == -EAGAIN) {
		cl_want_out(c, true);
		return r;
	}
	b->used = 0;
	if (r < 0) {
		/* Whoever receives next finds the daemon's last words, then the end. */
		c->send_failed = true;
		return -XFER_E_DAEMON_GONE;
	}
	return 0;
}

static void fill_segment(Xp__Segment *to, const struct xp_segment *from)
{
	xp__segment__init(to);
	to->address = from->address;
	to->length = from->length;
	to->key = from->key;
}

static void fill_request(Xp__Request *to, const struct xp_request *from)
{
	xp__request__init(to);
	to->opcode = from->opcode;
	to->flags = from->flags;
	to->wr_id = from->wr_id;
	to->cookie = from->cookie;
	to->endpoint = from->endpoint;
	to->key = from->key;
	to->argument = from->argument;
	if (from->list_buffer) {
		to->list_buffer = from->list_buffer;
		to->list_offset = from->list_offset;
		to->local_count = from->local_count;
		to->remote_count = from->remote_count;
	}
}

static int add_encoded(struct xfer_client *c, const Xp__Request *m)
{
	struct cl_batch *b = &c->batch;
	size_t size = xp__request__get_packed_size(m);
	size_t all = size + 1 + 5; /* with its tag and length */
	int r;

	if (all > BATCH_BYTES_MAX - b->used) {
		r = cl_batch_flush(c);
		if (r < 0)
			return r;
	}
	b->packet[CL_BATCH_HEAD + b->used++] = TAG_REQUESTS;
	b->used += xp_put_varint(b->packet + CL_BATCH_HEAD + b->used, size);
	b->used += xp__request__pack(m, b->packet + CL_BATCH_HEAD + b->used);
	return 0;
}

int cl_batch_add(struct xfer_client *c, const struct xp_request *request,
		 const struct xp_segment *segments)
{
	Xp__Segment room[2 * XP_SEGMENTS_INLINE];
	Xp__Segment *pointers[XC_ARRAY_SIZE(room)];
	Xp__Request m;

	fill_request(&m, request);
	if (!request->list_buffer) {
		for (uint32_t i = 0; i < request->local_count + request->remote_count; i++) {
			fill_segment(&room[i], &segments[i]);
			pointers[i] = &room[i];
		}
		m.n_local = request->local_count;
		m.local = pointers;
		m.n_remote = request->remote_count;
		m.remote = pointers + request->local_count;
	}
	return add_encoded(c, &m);
}
