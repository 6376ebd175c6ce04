/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "tools/link.h"

#include "common/assert.h"

#include <errno.h>
#include <string.h>

/* Messages lie on lines of their own. */
#define PLACE_BYTES ((FP_MESSAGE_MAX + 63) / 64 * 64)

#define WR_ID(kind, slot) ((uint64_t)(kind) << 8 | (slot))
#define WR_KIND(wr_id) ((enum link_kind)((wr_id) >> 8))
#define WR_SLOT(wr_id) ((unsigned int)((wr_id)&0xff))

static uint8_t *recv_place(const struct link *l, unsigned int slot)
{
	return (uint8_t *)xfer_buf_data(l->messages) + (size_t)slot * PLACE_BYTES;
}

static uint8_t *send_place(const struct link *l, unsigned int slot)
{
	return recv_place(l, FP_RECVS + slot);
}

int link_init(struct link *l, struct xfer_client *client, const struct link_ops *ops)
{
	memset(l, 0, sizeof(*l));
	l->client = client;
	l->ops = ops;
	return xfer_buf_new(client, (uint64_t)(FP_RECVS + LINK_SENDS) * PLACE_BYTES, 0,
			    &l->messages);
}

void link_done(struct link *l)
{
	xfer_ep_free(l->ep);
	l->ep = NULL;
	if (l->messages)
		xfer_buf_free(l->messages);
	l->messages = NULL;
}

void link_break(struct link *l, int status, const char *text)
{
	if (l->is_broken)
		return;
	l->is_broken = true;
	l->ops->broken(l, status, text[0] ? text : xfer_strerror(status));
}

/* ------------------------------------------------------------------------- posting */

static int post(struct link *l, const struct link_post *p)
{
	const struct iovec iov = {.iov_base = p->data, .iov_len = p->bytes};
	const uint64_t wr_id = WR_ID(p->kind, p->slot);

	switch (p->kind) {
	case LINK_RECV:
		return xfer_post_recv(l->ep, &iov, 1, wr_id, XFER_MORE, NULL);
	case LINK_SEND:
		if (p->invalidate)
			return xfer_post_send_inv(l->ep, &iov, 1, p->number, wr_id, XFER_MORE,
						  NULL);
		return xfer_post_send(l->ep, &iov, 1, wr_id, XFER_MORE, NULL);
	case LINK_READ:
		return xfer_post_read(l->ep, &iov, 1, &p->token, 1, wr_id, XFER_MORE, NULL);
	case LINK_WRITE:
		return xfer_post_write(l->ep, &iov, 1, &p->token, 1, wr_id, XFER_MORE, NULL);
	case LINK_GRANT:
		return xfer_grant(l->ep, p->data, p->bytes, p->access, 0, wr_id, XFER_MORE, NULL);
	case LINK_REVOKE:
		return xfer_revoke(l->ep, p->number, wr_id, XFER_MORE, NULL);
	}
	return -EINVAL;
}

bool link_pump(struct link *l)
{
	const char *text;
	int r;

	while (l->count > 0 && !l->is_broken) {
		r = post(l, &l->queue[l->first]);
		if (r == -EAGAIN)
			return true;
		if (r < 0) {
			xfer_last_error(&text);
			link_break(l, r, text);
			return false;
		}
		l->first = (l->first + 1) % LINK_QUEUE;
		l->count--;
	}
	return false;
}

/*
 * What is queued is bounded by the protocol's depth, which is checked where messages are looked at:
 * an overflow is a mistake of ours.
 */
static void enqueue(struct link *l, const struct link_post *p)
{
	if (l->is_broken)
		return;
	xc_assert(l->count < LINK_QUEUE);
	l->queue[(l->first + l->count++) % LINK_QUEUE] = *p;
}

static void enqueue_recv(struct link *l, unsigned int slot)
{
	enqueue(l, &(struct link_post){.kind = LINK_RECV,
				       .slot = slot,
				       .data = recv_place(l, slot),
				       .bytes = FP_MESSAGE_MAX});
}

void link_post_recvs(struct link *l)
{
	for (unsigned int i = 0; i < FP_RECVS; i++)
		enqueue_recv(l, i);
}

void link_send(struct link *l, unsigned int slot, const struct fp_message *m, bool invalidate,
	       uint32_t rkey)
{
	uint8_t *place = send_place(l, slot);

	xc_assert(!link_is_sending(l, slot));
	l->sending |= 1u << slot;
	enqueue(l, &(struct link_post){.kind = LINK_SEND,
				       .slot = slot,
				       .data = place,
				       .bytes = (uint32_t)fp_encode(m, place),
				       .invalidate = invalidate,
				       .number = rkey});
}

void link_read(struct link *l, unsigned int slot, void *data, uint32_t bytes,
	       const struct xfer_token *token)
{
	enqueue(l, &(struct link_post){.kind = LINK_READ,
				       .slot = slot,
				       .data = data,
				       .bytes = bytes,
				       .token = *token});
}

void link_write(struct link *l, unsigned int slot, void *data, uint32_t bytes,
		const struct xfer_token *token)
{
	enqueue(l, &(struct link_post){.kind = LINK_WRITE,
				       .slot = slot,
				       .data = data,
				       .bytes = bytes,
				       .token = *token});
}

void link_grant(struct link *l, unsigned int slot, void *data, uint32_t bytes, unsigned int access)
{
	enqueue(l, &(struct link_post){.kind = LINK_GRANT,
				       .slot = slot,
				       .data = data,
				       .bytes = bytes,
				       .access = access});
}

void link_revoke(struct link *l, unsigned int slot, uint32_t grant)
{
	enqueue(l, &(struct link_post){.kind = LINK_REVOKE, .slot = slot, .number = grant});
}

/* ------------------------------------------------------------------------- completions */

static void received(struct link *l, unsigned int slot, const struct xfer_event *event)
{
	const uint32_t ended = event->flags & XFER_HAS_INVALIDATED ? event->grant : 0;
	struct fp_message m;

	if (event->byte_len > FP_MESSAGE_MAX ||
	    fp_decode(recv_place(l, slot), (size_t)event->byte_len, &m) != 0) {
		link_break(l, -EBADMSG,
			   "the other side broke the file protocol: a malformed message");
		return;
	}
	/* m is a copy: the RECV goes back before anything is sent in answer. */
	enqueue_recv(l, slot);
	l->ops->message(l, &m, ended);
}

void link_completion(struct link *l, const struct xfer_event *event)
{
	const enum link_kind kind = WR_KIND(event->wr_id);
	const unsigned int slot = WR_SLOT(event->wr_id);

	if (kind == LINK_SEND)
		l->sending &= ~(1u << slot);
	if (l->is_broken)
		return;
	/* Of a flushed post, the event that follows says why. */
	if (event->status == -XFER_E_FLUSHED)
		return;
	if (event->status < 0 && kind != LINK_REVOKE) {
		link_break(l, event->status, event->text);
		return;
	}
	if (kind == LINK_RECV)
		received(l, slot, event);
	else
		l->ops->completed(l, kind, slot, event);
}
