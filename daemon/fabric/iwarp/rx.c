/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include <endian.h>
#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#include "common/assert.h"
#include "common/checked.h"
#include "daemon/fabric/iwarp/stream.h"
#include "proto/errors.h"

/*
 * FPDUs out of the socket. A header is looked at, and everything about it decided (place.c), before
 * the first byte behind it is placed. Then payload goes from the socket straight into its buffer;
 * the trailer and the next header come with it, into rx.buf. Where FPDUs are short many are
 * received at once into rx.buf, and copied: a call for each would cost more.
 *
 * With a CRC an FPDU is whole in rx.buf and summed before anything of it is placed.
 */

/* Payload of which at least so much is to come is received in place. */
#define DIRECT_BYTES (4u << 10)
/* A segment this long is probably followed by another: then only its header is taken beforehand. */
#define LONG_SEGMENT_BYTES (16u << 10)
#define NEXT_HEADER_BYTES (MPA_LENGTH_BYTES + DDP_UNTAGGED_BYTES)
#define SPANS 8
#define CALL_COST_BYTES 1024u
/* rx.buf is cleared up when less is left. With a CRC, what is staged is less than one FPDU then. */
#define ROOM_BYTES (STREAM_BUFFER_BYTES - UINT16_MAX - 16u)

enum progress {
	GO_ON,
	NEED_MORE, /* bytes */
	STOP,	   /* it waits, or has ended */
};

static uint32_t staged(const struct iwarp_rx *rx)
{
	return rx->end - rx->begin;
}

static void consume(struct iwarp_rx *rx, uint32_t bytes)
{
	rx->begin += bytes;
	if (rx->begin == rx->end)
		rx->begin = rx->end = 0;
}

static enum progress broke(struct iwarp_stream *s, enum rdmap_error error, bool quote)
{
	stream_terminate(s, error, quote, -XP_E_PEER_PROTOCOL);
	return STOP;
}

/* ---- headers */

static enum progress check_crc(struct iwarp_stream *s)
{
	struct iwarp_rx *rx = &s->rx;
	uint32_t covered = MPA_LENGTH_BYTES + rx->ulpdu_bytes + fpdu_pad(rx->ulpdu_bytes), crc;

	if (staged(rx) < covered + MPA_CRC_BYTES)
		return NEED_MORE;
	memcpy(&crc, rx->buf + rx->begin + covered, sizeof(crc));
	if (crc != fpdu_crc(rx->buf + rx->begin, covered))
		return broke(s, RDMAP_E_M_CRC, false);
	return GO_ON;
}

/* What a Terminate says decides what the user hears; that it ends the stream it decides itself. */
static int reason_of(const struct rdmap_terminate *t)
{
	switch (t->error) {
	case RDMAP_E_U_NO_BUFFER:
		return -XP_E_RECEIVER_NOT_READY;
	case RDMAP_E_U_TOO_LONG:
		return -XP_E_MESSAGE_TOO_LONG;
	case RDMAP_E_LOCAL_CATASTROPHIC:
	case RDMAP_E_R_CATASTROPHIC_STREAM:
	case RDMAP_E_R_CATASTROPHIC:
	case RDMAP_E_R_OPERATION:
		return -XP_E_REMOTE_FAULT;
	default:
		return t->layer <= 1 && t->type == 1 ? -XP_E_REMOTE_ACCESS : -XP_E_PEER_PROTOCOL;
	}
}

static enum progress terminated(struct iwarp_stream *s, uint32_t at)
{
	struct iwarp_rx *rx = &s->rx;
	struct rdmap_terminate t;
	struct iwarp_wr *read;
	int reason;

	rdmap_terminate_decode(rx->buf + rx->begin + at, rx->ulpdu_bytes - DDP_UNTAGGED_BYTES, &t);
	if (!s->ep) {
		stream_close(s, false);
		return STOP;
	}
	reason = reason_of(&t);
	read = tx_oldest_read(s->ep);
	/* Of what was refused only a READ can be told from what went well before it. */
	if (read && read == iwarp_queue_head(&s->ep->sq) && reason == -XP_E_REMOTE_ACCESS &&
	    (t.has_request || !t.has_segment))
		iwarp_complete_send(s->ep, IBV_WC_REM_ACCESS_ERR);
	stream_terminated(s, &t, reason);
	return STOP;
}

static enum progress header(struct iwarp_stream *s)
{
	struct iwarp_rx *rx = &s->rx;
	const uint8_t *p = rx->buf + rx->begin;
	enum rdmap_error error;
	enum progress r;
	uint32_t need;
	uint16_t length;
	int n;

	if (staged(rx) < MPA_LENGTH_BYTES)
		return NEED_MORE;
	memcpy(&length, p, sizeof(length));
	rx->ulpdu_bytes = be16toh(length);
	rx->has_request = false;
	if (s->terms.crc) {
		r = check_crc(s);
		if (r != GO_ON)
			return r;
	}
	n = ddp_decode(p + MPA_LENGTH_BYTES,
		       xc_min_u32(staged(rx) - MPA_LENGTH_BYTES, rx->ulpdu_bytes), be16toh(length),
		       &rx->header, &error);
	if (n < 0)
		return broke(s, error, true);
	if (n == 0)
		return NEED_MORE;
	need = MPA_LENGTH_BYTES + (uint32_t)n;
	if (!rx->header.tagged && rx->header.op == RDMAP_TERMINATE)
		return staged(rx) < MPA_LENGTH_BYTES + rx->ulpdu_bytes ? NEED_MORE
								       : terminated(s, need);
	if (!rx->header.tagged && rx->header.op == RDMAP_READ_REQUEST) {
		if (staged(rx) < need + RDMAP_READ_REQUEST_BYTES)
			return NEED_MORE;
		rdmap_read_request_decode(p + need, &rx->request);
		rx->has_request = true;
		need += RDMAP_READ_REQUEST_BYTES;
	}
	rx->payload_bytes = rx->payload_left = MPA_LENGTH_BYTES + rx->ulpdu_bytes - need;
	rx->trailer_left = fpdu_pad(rx->ulpdu_bytes) + MPA_CRC_BYTES;
	switch (s->ep ? place_begin(s) : PLACE_OK) {
	case PLACE_OK:
		break;
	case PLACE_WAIT:
		rx->stalled = true;
		return STOP;
	case PLACE_ENDED:
		return STOP;
	}
	if (!s->ep) /* is gone: only the ends of READ responses matter */
		rx->target = RX_NOWHERE;
	consume(rx, need);
	rx->phase = RX_PAYLOAD;
	return GO_ON;
}

/* ---- payload */

static enum progress place_staged(struct iwarp_stream *s)
{
	struct iwarp_rx *rx = &s->rx;
	struct iwarp_span span;
	const void *fault;
	size_t n;

	if (rx->target == RX_NOWHERE) {
		n = xc_min_u32(staged(rx), rx->payload_left);
	} else {
		if (!place_spans(s, &span, 1))
			return STOP;
		n = xc_min_u64(span.bytes, staged(rx));
		if (fabric_guard_copy(span.at, rx->buf + rx->begin, n, &fault) < 0) {
			place_fault(s, &span);
			return STOP;
		}
		place_advance(s, (uint32_t)n);
	}
	consume(rx, (uint32_t)n);
	rx->payload_left -= (uint32_t)n;
	return GO_ON;
}

static enum progress payload(struct iwarp_stream *s)
{
	struct iwarp_rx *rx = &s->rx;

	if (!rx->payload_left) {
		rx->phase = RX_TRAILER;
		return GO_ON;
	}
	return staged(rx) ? place_staged(s) : NEED_MORE;
}

static enum progress trailer(struct iwarp_stream *s)
{
	struct iwarp_rx *rx = &s->rx;

	if (staged(rx) < rx->trailer_left)
		return NEED_MORE;
	consume(rx, rx->trailer_left);
	rx->phase = RX_HEADER;
	if (s->ep)
		return place_end(s) == PLACE_OK ? GO_ON : STOP;
	if (rx->header.tagged && rx->header.op == RDMAP_READ_RESPONSE && rx->header.last &&
	    s->tx.reads_count)
		tx_forget_read(&s->tx);
	return GO_ON;
}

/* ---- the socket */

/* The first of them that is at fault. */
static const struct iwarp_span *vanished(const struct iwarp_span *spans, int n)
{
	for (int i = 0; i < n; i++)
		if (stream_has_vanished(&spans[i]))
			return &spans[i];
	return spans;
}

/*
 * What was received, into these spans first, or 0 where there is no more, or the stream has ended.
 */
static size_t received(struct iwarp_stream *s, ssize_t n, const struct iwarp_span *spans,
		       int n_spans)
{
	if (n > 0)
		return (size_t)n;
	if (n < 0 && errno == EAGAIN) {
		s->readable = false;
		return 0;
	}
	if (n < 0 && errno == EFAULT && n_spans)
		place_fault(s, vanished(spans, n_spans));
	else
		stream_lost(s, stream_reason(n < 0 ? errno : 0));
	return 0;
}

static ssize_t receive(struct iwarp_stream *s, struct iovec *iov, int n)
{
	struct msghdr m = { .msg_iov = iov, .msg_iovlen = (size_t)n };
	ssize_t r;

	do
		r = recvmsg(s->fd, &m, MSG_DONTWAIT);
	while (r < 0 && errno == EINTR);
	return r;
}

/* Into rx.buf. */
static size_t fetch(struct iwarp_stream *s)
{
	struct iwarp_rx *rx = &s->rx;
	struct iovec iov;
	size_t n;

	if (STREAM_BUFFER_BYTES - rx->end < ROOM_BYTES) {
		memmove(rx->buf, rx->buf + rx->begin, staged(rx));
		rx->end -= rx->begin;
		rx->begin = 0;
	}
	iov = (struct iovec){ .iov_base = rx->buf + rx->end,
			      .iov_len = STREAM_BUFFER_BYTES - rx->end };
	n = received(s, receive(s, &iov, 1), NULL, 0);
	if (n)
		rx->end += (uint32_t)n;
	return n;
}

/* Into the buffers of the segment, and what comes behind it into rx.buf. */
static size_t fetch_in_place(struct iwarp_stream *s, uint64_t allowance)
{
	struct iwarp_rx *rx = &s->rx;
	struct iwarp_span spans[SPANS];
	struct iovec iov[SPANS + 1];
	size_t n, place = 0;
	int count = place_spans(s, spans, SPANS), used = 0, n_spans;

	if (!count)
		return 0;
	for (; used < count && place < allowance; used++) {
		iov[used] =
			(struct iovec){ .iov_base = spans[used].at, .iov_len = spans[used].bytes };
		place += spans[used].bytes;
	}
	n_spans = used;
	if (place == rx->payload_left)
		iov[used++] = (struct iovec){
			.iov_base = rx->buf,
			.iov_len = rx->payload_bytes >= LONG_SEGMENT_BYTES
					   ? rx->trailer_left + NEXT_HEADER_BYTES
					   : STREAM_BUFFER_BYTES,
		};
	n = received(s, receive(s, iov, used), spans, n_spans);
	if (!n)
		return 0;
	if (n > place)
		rx->end = (uint32_t)(n - place);
	place = xc_min_u64(place, n);
	place_advance(s, (uint32_t)place);
	rx->payload_left -= (uint32_t)place;
	return n;
}

static bool can_go_in_place(const struct iwarp_stream *s)
{
	const struct iwarp_rx *rx = &s->rx;

	return rx->phase == RX_PAYLOAD && rx->target != RX_NOWHERE && !staged(rx) &&
	       rx->payload_left >= DIRECT_BYTES;
}

static enum progress parse(struct iwarp_stream *s)
{
	switch (s->rx.phase) {
	case RX_HEADER:
		return header(s);
	case RX_PAYLOAD:
		return payload(s);
	case RX_TRAILER:
		return trailer(s);
	}
	return STOP;
}

bool rx_has_work(const struct iwarp_stream *s)
{
	return !s->rx.stalled && (s->readable || !s->rx.hungry);
}

uint64_t rx_run(struct iwarp_stream *s, uint64_t allowance_bytes)
{
	const struct fabric_ep *ep = s->ep;
	uint64_t cost = 0;

	s->rx.hungry = false;
	while (cost < allowance_bytes) {
		enum progress r = parse(s);
		size_t n;

		if (r == STOP)
			break;
		if (r == GO_ON) {
			cost += 64;
			continue;
		}
		s->rx.hungry = true;
		if (!s->readable)
			break;
		n = can_go_in_place(s) ? fetch_in_place(s, allowance_bytes - cost) : fetch(s);
		if (!n || s->ep != ep)
			break;
		s->rx.hungry = false;
		cost += n + CALL_COST_BYTES;
	}
	return cost;
}

void iwarp_recv_is_there(struct fabric_ep *ep)
{
	iwarp_stop_awaiting(ep);
	ep->stream->rx.stalled = false;
	ep->stream->rx.hungry = false;
	iwarp_schedule(ep);
}
