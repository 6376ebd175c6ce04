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
 * Work requests and READ responses into FPDUs, and those into the socket.
 *
 * A batch of FPDUs is described first, as pieces, and then sent, in as many calls as the socket
 * takes. Payload stays where it is, and is named by key and address: each call looks it up again,
 * so that a key that was killed in between is dead. With a CRC the FPDU is made whole in tx.buf:
 * the owner of the memory could change it between the sum and the sending.
 *
 * One message is sent whole before the next begins: READ requests between the segments of a SEND
 * are allowed by RFC 5041 5.3, and kill connections to siw.
 */

#define PAD_MAX 3u
#define TRAILER_MAX (PAD_MAX + MPA_CRC_BYTES)
#define FRAME_OVERHEAD_MAX                                                                         \
	(MPA_LENGTH_BYTES + DDP_HEADER_MAX + RDMAP_READ_REQUEST_BYTES + TRAILER_MAX)
/* A frame of ours: head, a piece for each segment, trailer. */
#define FRAME_PIECES_MAX (IWARP_MAX_SGE + 2u)
#define TERMINATE_ROOM 128u
/* Without CRC; what is left of tx.buf then has room for the rest of an FPDU, see tx_settle(). */
#define HEADERS_ROOM (8u << 10)
#define PIECE_COST_BYTES 64u
#define NO_SLOT UINT32_MAX /* nobody's: an RTR among tx.reads; a piece that ends no work request */

_Static_assert(STREAM_BUFFER_BYTES >= HEADERS_ROOM + UINT16_MAX + TERMINATE_ROOM,
	       "what remains of an FPDU fits behind the headers, and a Terminate behind that");

/* ---- pieces */

static struct tx_piece *new_piece(struct iwarp_tx *tx, enum tx_kind kind, uint32_t bytes)
{
	struct tx_piece *p = &tx->pieces[tx->first + tx->count];

	xc_assert(tx->first + tx->count < TX_PIECES);
	*p = (struct tx_piece){ .kind = kind, .bytes = bytes, .slot = NO_SLOT };
	tx->count++;
	tx->batch_bytes += bytes;
	return p;
}

/* Room at the end of tx.buf; in the piece before where that is of the same FPDU. */
static uint8_t *room(struct iwarp_tx *tx, uint32_t bytes)
{
	struct tx_piece *last = tx->count ? &tx->pieces[tx->first + tx->count - 1] : NULL;
	uint8_t *at = tx->buf + tx->buf_used;

	xc_assert(bytes <= STREAM_BUFFER_BYTES - tx->buf_used);
	if (last && last->kind == TX_BYTES && !last->frame_end &&
	    last->address + last->bytes == tx->buf_used) {
		last->bytes += bytes;
		tx->batch_bytes += bytes;
	} else {
		new_piece(tx, TX_BYTES, bytes)->address = tx->buf_used;
	}
	tx->buf_used += bytes;
	return at;
}

static void put(struct iwarp_tx *tx, const void *bytes, size_t n)
{
	memcpy(room(tx, (uint32_t)n), bytes, n);
}

/* ---- frames */

/* Returns where in tx.buf the FPDU begins. */
static uint32_t begin_frame(struct iwarp_stream *s, const struct ddp_header *h, uint32_t payload)
{
	uint8_t head[MPA_LENGTH_BYTES + DDP_HEADER_MAX];
	size_t n = ddp_encode(h, head + MPA_LENGTH_BYTES);
	uint16_t length = htobe16((uint16_t)(n + payload));
	uint32_t begins = s->tx.buf_used;

	memcpy(head, &length, sizeof(length));
	put(&s->tx, head, MPA_LENGTH_BYTES + n);
	return begins;
}

/* The pad, and the CRC over all before it, which stands there in the other byte order (RFC 5044).
 */
static void end_frame(struct iwarp_stream *s, uint32_t begins, uint32_t ulpdu_bytes,
		      uint32_t slot)
{
	struct iwarp_tx *tx = &s->tx;
	uint32_t pad = fpdu_pad(ulpdu_bytes);
	uint8_t *trailer = room(tx, pad + MPA_CRC_BYTES);
	struct tx_piece *last = &tx->pieces[tx->first + tx->count - 1];
	uint32_t crc = 0;

	memset(trailer, 0, pad);
	if (s->terms.crc)
		crc = fpdu_crc(tx->buf + begins, tx->buf_used - MPA_CRC_BYTES - begins);
	memcpy(trailer + pad, &crc, sizeof(crc));
	last->frame_end = true;
	last->slot = slot;
}

static uint32_t header_bytes(const struct ddp_header *h)
{
	return h->tagged ? DDP_TAGGED_BYTES : DDP_UNTAGGED_BYTES;
}

void tx_append_raw(struct iwarp_stream *s, const void *bytes, size_t n)
{
	struct iwarp_tx *tx = &s->tx;

	put(tx, bytes, n);
	tx->pieces[tx->first + tx->count - 1].frame_end = true;
}

void tx_append(struct iwarp_stream *s, const struct ddp_header *h, const void *body,
	       uint32_t body_bytes)
{
	uint32_t begins = begin_frame(s, h, body_bytes);

	if (body_bytes)
		put(&s->tx, body, body_bytes);
	end_frame(s, begins, header_bytes(h) + body_bytes, NO_SLOT);
}

/* ---- payload */

enum trouble { FINE, KEY_IS_DEAD, MEMORY_VANISHED };

static bool look_up(struct fabric_ep *ep, const struct tx_piece *p, struct iwarp_span *ret)
{
	uint64_t at = p->address + p->done, left = p->bytes - p->done;

	if (p->kind == TX_OWN)
		return iwarp_local_access(ep, p->key, at, left, 0, ret);
	return iwarp_remote_access(ep, p->key, at, left, IBV_ACCESS_REMOTE_READ, ret);
}

/* Now, into tx.buf. */
static enum trouble copy_in(struct fabric_ep *ep, const struct tx_piece *p)
{
	uint8_t *to = room(&ep->stream->tx, p->bytes);
	struct tx_piece left = *p;
	struct iwarp_span span;
	const void *fault;

	while (left.done < left.bytes) {
		if (!look_up(ep, &left, &span))
			return KEY_IS_DEAD;
		if (fabric_guard_copy(to + left.done, span.at, span.bytes, &fault) < 0) {
			ep->fabric->faulted = span.region;
			return MEMORY_VANISHED;
		}
		left.done += (uint32_t)span.bytes;
	}
	return FINE;
}

static enum trouble add_payload(struct fabric_ep *ep, bool copied, const struct tx_piece *p)
{
	struct tx_piece *new;

	if (copied)
		return copy_in(ep, p);
	new = new_piece(&ep->stream->tx, p->kind, p->bytes);
	new->key = p->key;
	new->address = p->address;
	return FINE;
}

/* bytes of a work request, from where its cursor is. */
static enum trouble add_own(struct fabric_ep *ep, const struct iwarp_wr *wr, uint32_t bytes,
			    bool copied)
{
	struct iwarp_tx *tx = &ep->stream->tx;
	const struct ibv_sge *sges = iwarp_queue_sges(&ep->sq, wr);
	enum trouble trouble = FINE;

	if (iwarp_is_inline(wr) && bytes) {
		put(tx, iwarp_inline_data(&ep->sq, wr) + tx->done_bytes, bytes);
		return FINE;
	}
	while (bytes && !trouble) {
		const struct ibv_sge *sge = iwarp_seek(sges, &tx->sge, &tx->sge_done);
		uint32_t n = (uint32_t)xc_min_u64(bytes, sge->length - tx->sge_done);
		const struct tx_piece p = { .kind = TX_OWN,
					    .bytes = n,
					    .key = sge->lkey,
					    .address = sge->addr + tx->sge_done };

		trouble = add_payload(ep, copied, &p);
		tx->sge_done += n;
		bytes -= n;
	}
	return trouble;
}

/* ---- work requests */

static struct iwarp_wr *wr_at(struct fabric_ep *ep, uint32_t nth)
{
	return &ep->sq.wrs[(ep->sq.head + nth) % ep->sq.size];
}

/* Those that are done, in order; and the one that failed, when it is its turn. */
static void complete_in_order(struct fabric_ep *ep)
{
	struct iwarp_tx *tx = &ep->stream->tx;

	while (tx->issued && iwarp_queue_head(&ep->sq)->done) {
		tx->issued--;
		iwarp_complete_send(ep, IBV_WC_SUCCESS);
	}
	if (!tx->failed || tx->issued)
		return;
	iwarp_complete_send(ep, tx->failure_status);
	stream_terminate(ep->stream, RDMAP_E_LOCAL_CATASTROPHIC, false, tx->failure_reason);
}

static void wr_fails(struct fabric_ep *ep, enum ibv_wc_status status, int reason)
{
	struct iwarp_tx *tx = &ep->stream->tx;

	tx->failed = true;
	tx->failure_status = status;
	tx->failure_reason = reason;
	complete_in_order(ep);
}

static void key_operation(struct fabric_ep *ep, struct iwarp_wr *wr)
{
	if (!iwarp_key_operation(ep, wr)) {
		wr_fails(ep,
			 wr->opcode == IBV_WR_BIND_MW ? IBV_WC_MW_BIND_ERR : IBV_WC_LOC_QP_OP_ERR,
			 -XP_E_LOCAL_ACCESS);
		return;
	}
	wr->done = true;
	ep->stream->tx.issued++;
	complete_in_order(ep);
}

/* May it begin now? What it waits for clears `blocked`. */
static bool must_wait(struct fabric_ep *ep, const struct iwarp_wr *wr)
{
	const struct iwarp_stream *s = ep->stream;

	if ((wr->flags & IBV_SEND_FENCE) && s->tx.reads_count)
		return true;
	return wr->opcode == IBV_WR_RDMA_READ && s->tx.reads_count &&
	       s->tx.reads_count >= s->terms.ord;
}

static void begin_wr(struct fabric_ep *ep)
{
	struct iwarp_stream *s = ep->stream;
	struct iwarp_tx *tx = &s->tx;
	struct iwarp_wr *wr = wr_at(ep, tx->issued);
	bool is_read = wr->opcode == IBV_WR_RDMA_READ;

	tx->blocked = must_wait(ep, wr);
	if (tx->blocked)
		return;
	if (wr->opcode == IBV_WR_BIND_MW || wr->opcode == IBV_WR_LOCAL_INV) {
		key_operation(ep, wr);
		return;
	}
	if (is_read && !s->terms.ord) {
		wr_fails(ep, IBV_WC_REM_INV_REQ_ERR, -XP_E_UNSUPPORTED);
		return;
	}
	if (!iwarp_is_inline(wr) &&
	    !iwarp_list_access(ep, iwarp_queue_sges(&ep->sq, wr), wr->total_bytes,
			       is_read ? iwarp_sink_right(ep) : 0)) {
		wr_fails(ep, IBV_WC_LOC_PROT_ERR, -XP_E_LOCAL_ACCESS);
		return;
	}
	tx->message = TX_WORK;
	tx->done_bytes = 0;
	tx->sge = 0;
	tx->sge_done = 0;
}

static bool has_work(const struct fabric_ep *ep)
{
	const struct iwarp_tx *tx = &ep->stream->tx;

	return tx->issued < ep->sq.count && !tx->blocked && !tx->silent && !tx->failed;
}

/* A READ of the peer's that is not to be answered comes after the answers to those before it. */
static void begin_answer(struct fabric_ep *ep)
{
	struct iwarp_stream *s = ep->stream;
	const struct rx_read *r = &s->rx.reads[s->rx.reads_first];

	if (r->error) {
		stream_terminate(s, r->error, true, -XP_E_PEER_GONE);
		return;
	}
	s->tx.message = TX_ANSWER;
	s->tx.done_bytes = 0;
}

/* Answers and work take turns, so that neither starves the other. */
static bool begin_message(struct fabric_ep *ep)
{
	struct iwarp_stream *s = ep->stream;
	bool answers = s->rx.reads_count;

	if (has_work(ep) && (!answers || s->tx.answered_last)) {
		s->tx.answered_last = false;
		begin_wr(ep);
		if (!ep->stream)
			return false;
		if (!s->tx.blocked)
			return true;
	}
	if (!answers)
		return false;
	s->tx.answered_last = true;
	begin_answer(ep);
	return ep->stream;
}

/* ---- messages into frames */

static enum rdmap_op send_op(const struct iwarp_wr *wr)
{
	bool se = wr->flags & IBV_SEND_SOLICITED;

	if (wr->opcode == IBV_WR_SEND_WITH_INV)
		return se ? RDMAP_SEND_SE_INVALIDATE : RDMAP_SEND_INVALIDATE;
	return se ? RDMAP_SEND_SE : RDMAP_SEND;
}

/*
 * Where the peer's response goes. The number names no memory: a peer that writes to it is refused,
 * and so the sink needs no remote right. What comes is held against the oldest READ.
 */
void tx_sink(const struct fabric_ep *ep, uint32_t serial, uint32_t *ret_stag, uint64_t *ret_to)
{
	*ret_stag = ep->fabric->sink_stag;
	*ret_to = (uint64_t)serial << 32;
}

static void read_frame(struct fabric_ep *ep, const struct iwarp_wr *wr)
{
	struct iwarp_stream *s = ep->stream;
	struct iwarp_tx *tx = &s->tx;
	const struct ddp_header h = {
		.last = true,
		.op = RDMAP_READ_REQUEST,
		.qn = DDP_QN_READ_REQUEST,
		.msn = tx->read_msn++,
	};
	struct rdmap_read_request request = {
		.bytes = (uint32_t)wr->total_bytes,
		.source_stag = wr->remote.rkey,
		.source_to = wr->remote.address,
	};
	uint8_t body[RDMAP_READ_REQUEST_BYTES];

	tx_sink(ep, tx->read_serial + tx->reads_count, &request.sink_stag, &request.sink_to);
	rdmap_read_request_encode(&request, body);
	tx_append(s, &h, body, sizeof(body));
	tx->reads[(tx->reads_first + tx->reads_count++) % IWARP_READS_MAX] =
		(uint32_t)(wr - ep->sq.wrs);
	tx->message = TX_NO_MESSAGE;
	tx->issued++;
}

static enum trouble work_frame(struct fabric_ep *ep)
{
	struct iwarp_stream *s = ep->stream;
	struct iwarp_tx *tx = &s->tx;
	const struct iwarp_wr *wr = wr_at(ep, tx->issued);
	struct ddp_header h = { .tagged = wr->opcode == IBV_WR_RDMA_WRITE };
	uint32_t max = h.tagged ? s->max_payload_tagged : s->max_payload_untagged, bytes, begins;
	enum trouble trouble;

	if (wr->opcode == IBV_WR_RDMA_READ) {
		read_frame(ep, wr);
		return FINE;
	}
	bytes = (uint32_t)xc_min_u64(max, wr->total_bytes - tx->done_bytes);
	h.last = tx->done_bytes + (uint64_t)bytes == wr->total_bytes;
	if (h.tagged) {
		h.op = RDMAP_WRITE;
		h.stag = wr->remote.rkey;
		h.to = wr->remote.address + tx->done_bytes;
	} else {
		h.op = send_op(wr);
		h.invalidate_stag = wr->opcode == IBV_WR_SEND_WITH_INV ? wr->invalidate_rkey : 0;
		h.qn = DDP_QN_SEND;
		h.msn = tx->send_msn;
		h.mo = tx->done_bytes;
	}
	begins = begin_frame(s, &h, bytes);
	trouble = add_own(ep, wr, bytes, s->terms.crc || bytes <= TX_COPY_BYTES);
	end_frame(s, begins, header_bytes(&h) + bytes,
		  h.last ? (uint32_t)(wr - ep->sq.wrs) : NO_SLOT);
	tx->done_bytes += bytes;
	if (h.last) {
		tx->message = TX_NO_MESSAGE;
		tx->issued++;
		tx->send_msn += !h.tagged;
	}
	return trouble;
}

static enum trouble answer_frame(struct fabric_ep *ep)
{
	struct iwarp_stream *s = ep->stream;
	struct iwarp_tx *tx = &s->tx;
	const struct rx_read *r = &s->rx.reads[s->rx.reads_first];
	uint32_t bytes = xc_min_u32(s->max_payload_tagged, r->bytes - tx->done_bytes), begins;
	const struct ddp_header h = {
		.tagged = true,
		.last = tx->done_bytes + bytes == r->bytes,
		.op = RDMAP_READ_RESPONSE,
		.stag = r->sink_stag,
		.to = r->sink_to + tx->done_bytes,
	};
	const struct tx_piece p = { .kind = TX_RESPONSE,
				    .bytes = bytes,
				    .key = r->source_stag,
				    .address = r->source_to + tx->done_bytes };
	enum trouble trouble = FINE;

	begins = begin_frame(s, &h, bytes);
	if (bytes)
		trouble = add_payload(ep, s->terms.crc || bytes <= TX_COPY_BYTES, &p);
	end_frame(s, begins, DDP_TAGGED_BYTES + bytes, NO_SLOT);
	tx->done_bytes += bytes;
	if (h.last) {
		tx->message = TX_NO_MESSAGE;
		s->rx.reads_first = (s->rx.reads_first + 1) % IWARP_READS_MAX;
		s->rx.reads_count--;
	}
	return trouble;
}

static bool frame_fits(const struct iwarp_stream *s)
{
	const struct iwarp_tx *tx = &s->tx;
	uint32_t max = s->terms.crc ? s->max_payload_tagged : TX_COPY_BYTES;
	uint32_t limit = s->terms.crc ? STREAM_BUFFER_BYTES - TERMINATE_ROOM : HEADERS_ROOM;

	return tx->first + tx->count + FRAME_PIECES_MAX <= TX_PIECES &&
	       tx->batch_bytes < TX_BATCH_BYTES && tx->buf_used + FRAME_OVERHEAD_MAX + max <= limit;
}

/* What is sent next cannot be had: an FPDU that the peer has a part of can only be cut off. */
static void broken(struct fabric_ep *ep, enum tx_kind kind, enum trouble trouble)
{
	if (kind == TX_RESPONSE)
		stream_terminate(
			ep->stream,
			trouble == KEY_IS_DEAD ? RDMAP_E_R_STAG : RDMAP_E_LOCAL_CATASTROPHIC, false,
			trouble == KEY_IS_DEAD ? -XP_E_PEER_GONE : -XP_E_BUFFER_FAULT);
	else
		stream_terminate(ep->stream, RDMAP_E_LOCAL_CATASTROPHIC, false,
				 trouble == KEY_IS_DEAD ? -XP_E_LOCAL_ACCESS : -XP_E_BUFFER_FAULT);
}

_Static_assert(IWARP_INLINE_BYTES <= TX_COPY_BYTES, "room is kept for it in tx.buf");

/* False: there is nothing to send, or the stream has ended. */
static bool fill(struct fabric_ep *ep, uint64_t *cost)
{
	struct iwarp_stream *s = ep->stream;
	struct iwarp_tx *tx = &s->tx;

	tx->first = tx->buf_used = tx->batch_bytes = 0;
	while (frame_fits(s)) {
		enum tx_kind kind = tx->message == TX_ANSWER ? TX_RESPONSE : TX_OWN;
		enum trouble trouble;

		if (tx->message == TX_NO_MESSAGE) {
			*cost += IWARP_WR_COST_BYTES;
			if (!begin_message(ep))
				break;
			continue;
		}
		trouble = tx->message == TX_ANSWER ? answer_frame(ep) : work_frame(ep);
		if (trouble) {
			/* The frame is not what it says: none of it may go. */
			tx->count = 0;
			broken(ep, kind, trouble);
			return false;
		}
	}
	return ep->stream && tx->count;
}

/* ---- frames into the socket */

/* Of one piece, up to max of them. How many; 0: it cannot be had. *ret_whole: it is all of it. */
static int gather_piece(struct fabric_ep *ep, const struct tx_piece *p, struct iovec *iov, int max,
			bool *ret_whole)
{
	const struct iwarp_tx *tx = &ep->stream->tx;
	struct tx_piece left = *p;
	int n = 0;

	for (; n < max && left.done < left.bytes; n++) {
		struct iwarp_span span = { .at = tx->buf + left.address + left.done,
					   .bytes = left.bytes - left.done };

		if (p->kind != TX_BYTES && !look_up(ep, &left, &span))
			break;
		iov[n] = (struct iovec){ .iov_base = span.at, .iov_len = span.bytes };
		left.done += (uint32_t)span.bytes;
	}
	*ret_whole = left.done == left.bytes;
	return n;
}

/* 0: the first piece cannot be had. */
static int gather(struct fabric_ep *ep, struct iovec *iov)
{
	struct iwarp_tx *tx = &ep->stream->tx;
	bool whole = true;
	int n = 0;

	for (uint32_t i = tx->first; i < tx->first + tx->count && whole; i++)
		n += gather_piece(ep, &tx->pieces[i], iov + n, (int)TX_PIECES - n, &whole);
	return n;
}

static void piece_has_gone(struct fabric_ep *ep, const struct tx_piece *p)
{
	if (p->slot == NO_SLOT)
		return;
	ep->sq.wrs[p->slot].done = true;
	complete_in_order(ep);
}

static void has_gone(struct fabric_ep *ep, size_t bytes)
{
	struct iwarp_stream *s = ep->stream;
	struct iwarp_tx *tx = &s->tx;

	while (bytes) {
		struct tx_piece *p = &tx->pieces[tx->first];
		uint32_t n = (uint32_t)xc_min_u64(bytes, p->bytes - p->done);

		p->done += n;
		bytes -= n;
		tx->mid_frame = true;
		if (p->done < p->bytes)
			return;
		tx->mid_frame = !p->frame_end;
		tx->first++;
		tx->count--;
		piece_has_gone(ep, p);
		if (ep->stream != s)
			return;
	}
}

/* Is memory of this piece gone? Then *ret is whose. */
static bool piece_vanished(struct fabric_ep *ep, const struct tx_piece *p,
			   struct fabric_region **ret)
{
	struct tx_piece left = *p;
	struct iwarp_span span;

	while (left.done < left.bytes && look_up(ep, &left, &span)) {
		if (stream_has_vanished(&span)) {
			*ret = span.region;
			return true;
		}
		left.done += (uint32_t)span.bytes;
	}
	return false;
}

/* What comes before it, if only a header, was not sent either. */
static void a_piece_vanished(struct fabric_ep *ep)
{
	struct iwarp_tx *tx = &ep->stream->tx;
	enum tx_kind kind = TX_OWN;

	for (uint32_t i = tx->first; i < tx->first + tx->count; i++) {
		const struct tx_piece *p = &tx->pieces[i];

		if (p->kind == TX_BYTES)
			continue;
		kind = p->kind;
		if (piece_vanished(ep, p, &ep->fabric->faulted))
			break;
	}
	broken(ep, kind, MEMORY_VANISHED);
}

/* Sends once. False: no more can be sent now. */
static bool send_once(struct fabric_ep *ep, uint64_t *cost)
{
	struct iwarp_stream *s = ep->stream;
	struct iovec iov[TX_PIECES];
	struct msghdr m = { .msg_iov = iov };
	ssize_t n;

	m.msg_iovlen = (size_t)gather(ep, iov);
	if (!m.msg_iovlen) {
		broken(ep, s->tx.pieces[s->tx.first].kind, KEY_IS_DEAD);
		return false;
	}
	n = sendmsg(s->fd, &m, MSG_NOSIGNAL | MSG_DONTWAIT);
	if (n >= 0) {
		/* Each piece was looked up for it, however short it is. */
		*cost += (uint64_t)n + m.msg_iovlen * PIECE_COST_BYTES;
		has_gone(ep, (size_t)n);
		return ep->stream == s;
	}
	switch (errno) {
	case EINTR:
		return true;
	case EAGAIN:
		s->writable = false;
		return false;
	case EFAULT:
		a_piece_vanished(ep);
		return false;
	default:
		stream_lost(s, stream_reason(errno));
		return false;
	}
}

bool tx_has_work(const struct iwarp_stream *s)
{
	const struct iwarp_tx *tx = &s->tx;

	return s->writable &&
	       (tx->count || tx->message != TX_NO_MESSAGE || s->rx.reads_count || has_work(s->ep));
}

uint64_t tx_run(struct fabric_ep *ep, uint64_t allowance_bytes)
{
	struct iwarp_stream *s = ep->stream;
	uint64_t cost = 0;

	while (cost < allowance_bytes && ep->stream == s && s->writable) {
		if (!s->tx.count && !fill(ep, &cost))
			break;
		if (!send_once(ep, &cost))
			break;
	}
	return cost;
}

/* ---- what others tell */

struct iwarp_wr *tx_oldest_read(struct fabric_ep *ep)
{
	const struct iwarp_tx *tx = &ep->stream->tx;
	uint32_t slot = tx->reads[tx->reads_first];

	return tx->reads_count && slot != NO_SLOT ? &ep->sq.wrs[slot] : NULL;
}

void tx_forget_read(struct iwarp_tx *tx)
{
	tx->reads_first = (tx->reads_first + 1) % IWARP_READS_MAX;
	tx->reads_count--;
	tx->read_serial++;
}

void tx_read_done(struct fabric_ep *ep)
{
	struct iwarp_wr *wr = tx_oldest_read(ep);

	tx_forget_read(&ep->stream->tx);
	ep->stream->tx.blocked = false;
	if (!wr)
		return;
	wr->done = true;
	complete_in_order(ep);
}

/* Without bytes there is no STag to be looked at, by anybody. */
void tx_ready_to_receive(struct iwarp_stream *s, enum mpa_rtr rtr)
{
	const struct ddp_header write = { .tagged = true, .last = true, .op = RDMAP_WRITE };
	const struct ddp_header read = {
		.last = true,
		.op = RDMAP_READ_REQUEST,
		.qn = DDP_QN_READ_REQUEST,
		.msn = s->tx.read_msn,
	};
	struct rdmap_read_request request = { 0 };
	uint8_t body[RDMAP_READ_REQUEST_BYTES];

	if (rtr == MPA_RTR_WRITE)
		tx_append(s, &write, NULL, 0);
	if (rtr != MPA_RTR_READ)
		return;
	tx_sink(s->ep, s->tx.read_serial, &request.sink_stag, &request.sink_to);
	rdmap_read_request_encode(&request, body);
	tx_append(s, &read, body, sizeof(body));
	s->tx.read_msn++;
	s->tx.reads[0] = NO_SLOT;
	s->tx.reads_count = 1;
}

/* What is left of a piece, into tx.buf. False: it cannot be had. */
static bool settle_piece(struct iwarp_stream *s, struct tx_piece *p)
{
	struct iwarp_tx *tx = &s->tx;
	struct tx_piece left = *p;
	struct iwarp_span span;
	const void *fault;

	if (p->kind == TX_BYTES)
		return true;
	*p = (struct tx_piece){ .kind = TX_BYTES, .bytes = left.bytes - left.done,
				.frame_end = left.frame_end, .address = tx->buf_used };
	while (left.done < left.bytes) {
		if (!s->ep || !look_up(s->ep, &left, &span) ||
		    fabric_guard_copy(tx->buf + tx->buf_used, span.at, span.bytes, &fault) < 0)
			return false;
		left.done += (uint32_t)span.bytes;
		tx->buf_used += (uint32_t)span.bytes;
	}
	return true;
}

bool tx_settle(struct iwarp_stream *s)
{
	struct iwarp_tx *tx = &s->tx;
	uint32_t i = tx->first, end = tx->first + tx->count, n = 0;

	tx->message = TX_NO_MESSAGE;
	if (!tx->mid_frame)
		end = i;
	for (; i < end; i++, n++) {
		if (!settle_piece(s, &tx->pieces[i]))
			return false;
		if (tx->pieces[i].frame_end) {
			n++;
			break;
		}
	}
	/* From its start again, for what is appended. */
	memmove(tx->pieces, tx->pieces + tx->first, n * sizeof(tx->pieces[0]));
	tx->first = 0;
	tx->count = n;
	return true;
}
