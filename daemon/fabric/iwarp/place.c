/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "daemon/fabric/iwarp/stream.h"

#include "common/assert.h"
#include "common/checked.h"
#include "proto/errors.h"

/*
 * What an inbound segment may do (RFC 5041 7.1, RFC 5040 7.1, RFC 5042): everything is checked
 * before its first byte is placed, and the key once more for each piece as it comes.
 */

static enum place_verdict broke(struct iwarp_stream *s, enum rdmap_error error, int reason)
{
	stream_terminate(s, error, true, reason);
	return PLACE_ENDED;
}

static enum place_verdict against_protocol(struct iwarp_stream *s, enum rdmap_error error)
{
	return broke(s, error, -XP_E_PEER_PROTOCOL);
}

/* ---- WRITE */

static const enum rdmap_error tagged_errors[] = {
	[IWARP_ACCESS_OK] = RDMAP_NO_ERROR,
	[IWARP_ACCESS_NO_STAG] = RDMAP_E_T_STAG,
	[IWARP_ACCESS_STREAM] = RDMAP_E_T_STREAM,
	[IWARP_ACCESS_RIGHTS] = RDMAP_E_R_RIGHTS, /* DDP knows none */
	[IWARP_ACCESS_BOUNDS] = RDMAP_E_T_BOUNDS,
};

static enum place_verdict begin_write(struct iwarp_stream *s)
{
	struct iwarp_rx *rx = &s->rx;
	struct iwarp_span span;
	enum rdmap_error error;
	uint64_t end;

	rx->target = RX_TAGGED;
	rx->address = rx->header.to;
	/* Without bytes no STag is looked at (RFC 5040 5.1). */
	if (!rx->payload_bytes)
		return PLACE_OK;
	if (!xc_add_u64(rx->header.to, rx->payload_bytes, &end))
		return broke(s, RDMAP_E_T_WRAP, -XP_E_PEER_GONE);
	error = tagged_errors[iwarp_remote_check(s->ep, rx->header.stag, rx->header.to,
						 rx->payload_bytes, IBV_ACCESS_REMOTE_WRITE,
						 &span)];
	return error ? broke(s, error, -XP_E_PEER_GONE) : PLACE_OK;
}

/* ---- SEND */

static bool invalidates(const struct iwarp_rx *rx)
{
	return rx->header.op == RDMAP_SEND_INVALIDATE || rx->header.op == RDMAP_SEND_SE_INVALIDATE;
}

static enum place_verdict recv_fails(struct iwarp_stream *s, enum ibv_wc_status status,
				     enum rdmap_error error, int reason)
{
	iwarp_complete_recv(s->ep, status, 0, 0);
	return broke(s, error, reason);
}

static enum place_verdict begin_send(struct iwarp_stream *s)
{
	struct iwarp_rx *rx = &s->rx;
	const struct iwarp_wr *recv = iwarp_queue_head(&s->ep->rq);

	if (rx->header.msn != rx->send_msn)
		return against_protocol(s, RDMAP_E_U_MSN);
	if (rx->header.mo != rx->send_mo)
		return against_protocol(s, RDMAP_E_U_MO);
	if (rx->in_send && rx->header.op != rx->send_op)
		return against_protocol(s, RDMAP_E_R_OPCODE);
	if (!recv) {
		iwarp_await_recv(s->ep);
		return PLACE_WAIT;
	}
	if ((uint64_t)rx->send_mo + rx->payload_bytes > recv->total_bytes)
		return recv_fails(s, IBV_WC_LOC_LEN_ERR, RDMAP_E_U_TOO_LONG,
				  -XP_E_MESSAGE_TOO_LONG);
	if (!iwarp_list_access(s->ep, iwarp_queue_sges(&s->ep->rq, recv),
			       rx->send_mo + rx->payload_bytes, IBV_ACCESS_LOCAL_WRITE))
		return recv_fails(s, IBV_WC_LOC_PROT_ERR, RDMAP_E_LOCAL_CATASTROPHIC,
				  -XP_E_LOCAL_ACCESS);
	if (invalidates(rx) && !iwarp_can_remote_invalidate(s->ep, rx->header.invalidate_stag))
		return broke(s, RDMAP_E_R_INVALIDATE, -XP_E_PEER_GONE);
	rx->in_send = true;
	rx->send_op = rx->header.op;
	rx->target = RX_RECV;
	return PLACE_OK;
}

static enum place_verdict end_send(struct iwarp_stream *s)
{
	struct iwarp_rx *rx = &s->rx;
	uint32_t rkey = 0, bytes;

	bytes = rx->send_mo += rx->payload_bytes;
	if (!rx->header.last)
		return PLACE_OK;
	if (invalidates(rx)) {
		/* Before the receiver hears of the message; and it may have been killed meanwhile.
		 */
		rkey = rx->header.invalidate_stag;
		if (!iwarp_can_remote_invalidate(s->ep, rkey))
			return broke(s, RDMAP_E_R_INVALIDATE, -XP_E_PEER_GONE);
		iwarp_remote_invalidate(s->ep, rkey);
	}
	rx->in_send = false;
	rx->send_msn++;
	rx->send_mo = 0;
	rx->recv_sge = 0;
	rx->recv_sge_done = 0;
	iwarp_complete_recv(s->ep, IBV_WC_SUCCESS, bytes, rkey);
	return PLACE_OK;
}

/* ---- READ request */

static const enum rdmap_error source_errors[] = {
	[IWARP_ACCESS_OK] = RDMAP_NO_ERROR,
	[IWARP_ACCESS_NO_STAG] = RDMAP_E_R_STAG,
	[IWARP_ACCESS_STREAM] = RDMAP_E_R_STREAM,
	[IWARP_ACCESS_RIGHTS] = RDMAP_E_R_RIGHTS,
	[IWARP_ACCESS_BOUNDS] = RDMAP_E_R_BOUNDS,
};

static enum rdmap_error check_source(struct iwarp_stream *s, const struct rdmap_read_request *r)
{
	struct iwarp_span span;
	uint64_t end;

	if (!r->bytes) /* RFC 5040 5.2: no STag is looked at */
		return RDMAP_NO_ERROR;
	if (!xc_add_u64(r->source_to, r->bytes, &end) || !xc_add_u64(r->sink_to, r->bytes, &end))
		return RDMAP_E_R_WRAP;
	return source_errors[iwarp_remote_check(s->ep, r->source_stag, r->source_to, r->bytes,
						IBV_ACCESS_REMOTE_READ, &span)];
}

static enum place_verdict begin_read_request(struct iwarp_stream *s)
{
	struct iwarp_rx *rx = &s->rx;

	rx->target = RX_NOWHERE;
	if (rx->header.msn != rx->read_msn)
		return against_protocol(s, RDMAP_E_U_MSN);
	if (rx->header.mo)
		return against_protocol(s, RDMAP_E_U_MO);
	if (rx->reads_count >= s->terms.ird)
		return against_protocol(s, RDMAP_E_U_NO_BUFFER);
	return PLACE_OK;
}

static enum place_verdict end_read_request(struct iwarp_stream *s)
{
	struct iwarp_rx *rx = &s->rx;
	const struct rdmap_read_request *r = &rx->request;
	struct rx_read *slot = &rx->reads[(rx->reads_first + rx->reads_count++) % IWARP_READS_MAX];

	rx->read_msn++;
	*slot = (struct rx_read){
		.sink_stag = r->sink_stag,
		.source_stag = r->source_stag,
		.sink_to = r->sink_to,
		.source_to = r->source_to,
		.bytes = r->bytes,
		.error = check_source(s, r),
	};
	/*
	 * One that is refused ends the stream when those before it have been answered, so that the
	 * peer can tell which it was. Nothing behind it is looked at.
	 */
	if (slot->error)
		rx->stalled = true;
	return slot->error ? PLACE_WAIT : PLACE_OK;
}

/* ---- READ response */

/* Strictly what was asked for, in order (RFC 5040 5.2.1). */
static enum place_verdict begin_response(struct iwarp_stream *s)
{
	struct iwarp_rx *rx = &s->rx;
	const struct iwarp_wr *wr = tx_oldest_read(s->ep);
	uint64_t bytes = wr ? wr->total_bytes : 0, to;
	uint32_t stag;

	if (!s->tx.reads_count)
		return against_protocol(s, RDMAP_E_R_OPCODE);
	tx_sink(s->ep, s->tx.read_serial, &stag, &to);
	if (rx->header.stag != stag)
		return against_protocol(s, RDMAP_E_T_STAG);
	if (rx->header.to != to + rx->read_done)
		return against_protocol(s, RDMAP_E_T_BOUNDS);
	if (rx->payload_bytes > bytes - rx->read_done ||
	    rx->header.last != (rx->payload_bytes == bytes - rx->read_done))
		return against_protocol(s, RDMAP_E_T_BOUNDS);
	rx->target = RX_READ;
	return PLACE_OK;
}

static enum place_verdict end_response(struct iwarp_stream *s)
{
	struct iwarp_rx *rx = &s->rx;

	rx->read_done += rx->payload_bytes;
	if (!rx->header.last)
		return PLACE_OK;
	rx->read_done = 0;
	rx->read_sge = 0;
	rx->read_sge_done = 0;
	tx_read_done(s->ep);
	return s->ep ? PLACE_OK : PLACE_ENDED;
}

/* ---- all of them */

enum place_verdict place_begin(struct iwarp_stream *s)
{
	if (s->rx.header.tagged)
		return s->rx.header.op == RDMAP_WRITE ? begin_write(s) : begin_response(s);
	return s->rx.header.op == RDMAP_READ_REQUEST ? begin_read_request(s) : begin_send(s);
}

enum place_verdict place_end(struct iwarp_stream *s)
{
	s->tx.silent = false;
	if (s->rx.header.tagged)
		return s->rx.header.op == RDMAP_WRITE ? PLACE_OK : end_response(s);
	return s->rx.header.op == RDMAP_READ_REQUEST ? end_read_request(s) : end_send(s);
}

/* Of a list, from a cursor. */
static int list_spans(struct iwarp_stream *s, const struct ibv_sge *sges, uint32_t sge,
		      uint64_t done, struct iwarp_span *spans, int n)
{
	uint32_t left = s->rx.payload_left;
	int i = 0;

	for (; left && i < n; i++) {
		const struct ibv_sge *at = iwarp_seek(sges, &sge, &done);

		if (!iwarp_local_access(s->ep, at->lkey, at->addr + done,
					xc_min_u64(left, at->length - done), IBV_ACCESS_LOCAL_WRITE,
					&spans[i]))
			break;
		left -= (uint32_t)spans[i].bytes;
		done += spans[i].bytes;
	}
	return i;
}

/* Of a WRITE, from where it is. */
static int tagged_spans(struct iwarp_stream *s, struct iwarp_span *spans, int n)
{
	const struct iwarp_rx *rx = &s->rx;
	uint64_t address = rx->address;
	uint32_t left = rx->payload_left;
	int i = 0;

	for (; left && i < n; i++) {
		if (!iwarp_remote_access(s->ep, rx->header.stag, address, left,
					 IBV_ACCESS_REMOTE_WRITE, &spans[i]))
			break;
		left -= (uint32_t)spans[i].bytes;
		address += spans[i].bytes;
	}
	return i;
}

/* Our own memory, of the RECV or READ at hand, cannot be had. */
static void own_memory_fails(struct iwarp_stream *s, int reason)
{
	struct fabric_ep *ep = s->ep;

	if (s->rx.target == RX_RECV)
		iwarp_complete_recv(ep, IBV_WC_LOC_PROT_ERR, 0, 0);
	else if (s->rx.target == RX_READ && tx_oldest_read(ep) == iwarp_queue_head(&ep->sq))
		iwarp_complete_send(ep, IBV_WC_LOC_PROT_ERR);
	broke(s, RDMAP_E_LOCAL_CATASTROPHIC, reason);
}

/* The key was killed since the segment began. */
static void key_is_dead(struct iwarp_stream *s)
{
	if (s->rx.target == RX_TAGGED)
		broke(s, RDMAP_E_T_STAG, -XP_E_PEER_GONE);
	else
		own_memory_fails(s, -XP_E_LOCAL_ACCESS);
}

int place_spans(struct iwarp_stream *s, struct iwarp_span *spans, int n)
{
	struct iwarp_rx *rx = &s->rx;
	struct fabric_ep *ep = s->ep;
	int got;

	switch (rx->target) {
	case RX_TAGGED:
		got = tagged_spans(s, spans, n);
		break;
	case RX_RECV:
		got = list_spans(s, iwarp_queue_sges(&ep->rq, iwarp_queue_head(&ep->rq)),
				 rx->recv_sge, rx->recv_sge_done, spans, n);
		break;
	default:
		got = list_spans(s, iwarp_queue_sges(&ep->sq, tx_oldest_read(ep)), rx->read_sge,
				 rx->read_sge_done, spans, n);
		break;
	}
	if (!got)
		key_is_dead(s);
	return got;
}

static void advance(const struct ibv_sge *sges, uint32_t *sge, uint64_t *done, uint32_t bytes)
{
	while (bytes) {
		const struct ibv_sge *at = iwarp_seek(sges, sge, done);
		uint32_t n = (uint32_t)xc_min_u64(bytes, at->length - *done);

		*done += n;
		bytes -= n;
	}
}

void place_advance(struct iwarp_stream *s, uint32_t bytes)
{
	struct iwarp_rx *rx = &s->rx;
	struct fabric_ep *ep = s->ep;

	switch (rx->target) {
	case RX_TAGGED:
		rx->address += bytes;
		break;
	case RX_RECV:
		advance(iwarp_queue_sges(&ep->rq, iwarp_queue_head(&ep->rq)), &rx->recv_sge,
			&rx->recv_sge_done, bytes);
		break;
	case RX_READ:
		advance(iwarp_queue_sges(&ep->sq, tx_oldest_read(ep)), &rx->read_sge,
			&rx->read_sge_done, bytes);
		break;
	case RX_NOWHERE:
		break;
	}
}

void place_fault(struct iwarp_stream *s, const struct iwarp_span *span)
{
	s->ep->fabric->faulted = span->region;
	own_memory_fails(s, -XP_E_BUFFER_FAULT);
}
