/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef IWARP_STREAM_H
#define IWARP_STREAM_H

/*
 * A TCP connection of the iwarp fabric, from connect() or accept() to close().
 *
 *   stream.c   its life: made, joined to an endpoint, terminated, lingering, closed
 *   buffer.c   where bytes wait
 *   poll.c     epoll: which sockets are ready
 *   dial.c     the side that connects: TCP, MPA request, reply
 *   serve.c    the side that listens: sockets, MPA request, reply
 *   kernel.c   whose TCP ports are a device's
 *   tx.c       work requests and READ responses into FPDUs
 *   rx.c       FPDUs out of the socket
 *   place.c    what an inbound segment may do, and where its payload goes
 *
 * A stream outlives its endpoint: what was begun on the wire is ended in order (never a FIN while
 * the peer sends a READ response: some kernels' siw does not survive it), but after the endpoint
 * has let go of it nothing of it touches anybody's memory.
 *
 * All sockets are non-blocking, and edge-triggered: `readable` and `writable` say what is known,
 * and are cleared by EAGAIN.
 */

#include <endian.h>
#include <isa-l/crc.h>
#include <sys/epoll.h>
#include <sys/uio.h>

#include "daemon/fabric/iwarp/ddp.h"
#include "daemon/fabric/iwarp/private.h"

#define MPA_LENGTH_BYTES 2u
#define MPA_CRC_BYTES 4u
/* A FPDU that carries more than its MSS: payload of whole pages, so that pages stay pages. */
#define STREAM_LONG_PAYLOAD_BYTES (60u << 10)
#define STREAM_BUFFER_BYTES (76u << 10) /* the longest FPDU there can be, and a little */
#define STREAM_LINGER_NS UINT64_C(2000000000)

/* Zeros behind a ULPDU, to a multiple of 4 with its length. */
static inline uint32_t fpdu_pad(uint32_t ulpdu_bytes)
{
	return -(MPA_LENGTH_BYTES + ulpdu_bytes) & 3u;
}

/* As it stands behind them: in the other byte order than all else (RFC 5044). */
static inline uint32_t fpdu_crc(const uint8_t *bytes, uint32_t n)
{
	return htole32(~crc32_iscsi((unsigned char *)(uintptr_t)bytes, (int)n, UINT32_MAX));
}

struct iwarp_stream;

enum stream_state {
	STREAM_CONNECTING, /* TCP's handshake */
	STREAM_ASKING,	   /* our MPA request is on its way, or its reply */
	STREAM_HEARING,	   /* the peer's MPA request is to come */
	STREAM_ASKED,	   /* our user has it: `conn` */
	STREAM_OPEN,	   /* an endpoint's */
	STREAM_DRAINING,   /* the endpoint let go; READ responses are still to come */
	STREAM_CLOSING,	   /* what is in tx.buf goes out, then a FIN; then the peer's end */
	STREAM_DEAD,	   /* closed, and freed when nothing can be looking at it */
};

/* ---- sending */

enum tx_kind { TX_BYTES, TX_OWN, TX_RESPONSE };

/*
 * What goes out next: bytes of tx.buf, or memory named by key, which is looked up again each time.
 * Together they are whole FPDUs, `frame_end` is on the last of each.
 */
struct tx_piece {
	enum tx_kind kind;
	bool frame_end;
	uint32_t bytes, done;
	uint32_t slot;	  /* of the work request that has gone with it, or none */
	uint32_t key;	  /* lkey or rkey */
	uint64_t address; /* or the place in tx.buf */
};

#define TX_PIECES 160u
#define TX_BATCH_BYTES (256u << 10)
/* Payload this short is copied behind its header. */
#define TX_COPY_BYTES 512u

/* A READ of the peer's that is to be answered. */
struct rx_read {
	uint32_t sink_stag, source_stag;
	uint64_t sink_to, source_to;
	uint32_t bytes;
	enum rdmap_error error; /* it is not to be answered, and this is why */
};

/* The message that is being cut into FPDUs. */
enum tx_message { TX_NO_MESSAGE, TX_WORK, TX_ANSWER };

struct iwarp_tx {
	uint8_t *buf;
	uint32_t buf_used;
	struct tx_piece pieces[TX_PIECES];
	uint32_t first, count; /* of pieces: from `first` on, not a ring: filled anew when empty */
	uint32_t batch_bytes;
	bool mid_frame; /* the FPDU at the head is sent in part */

	enum tx_message message;
	bool answered_last; /* turns of answers and of work */
	uint32_t done_bytes;
	uint32_t sge;
	uint64_t sge_done;
	uint32_t issued; /* work requests of the SQ, from its head, that were begun */
	bool blocked;	 /* the next waits for READ responses, or for the peer to speak */
	bool silent;	 /* the peer has to speak first */
	bool failed;	 /* the next to be completed fails, with `failure` */
	enum ibv_wc_status failure_status;
	int failure_reason;
	uint32_t send_msn, read_msn;
	/* READs of ours that are under way: slots of the SQ, oldest first */
	uint32_t reads[IWARP_READS_MAX];
	uint32_t reads_first, reads_count;
	uint32_t read_serial; /* of the oldest */
};

/* ---- receiving */

enum rx_phase { RX_HEADER, RX_PAYLOAD, RX_TRAILER };
enum rx_target { RX_NOWHERE, RX_TAGGED, RX_RECV, RX_READ };

struct iwarp_rx {
	uint8_t *buf;
	uint32_t begin, end; /* staged, not consumed */
	enum rx_phase phase;
	struct ddp_header header;
	bool has_request; /* the next is of this segment */
	struct rdmap_read_request request;
	uint32_t ulpdu_bytes, header_bytes; /* header_bytes: with the length, and what of the body
					       belongs to it */
	uint32_t payload_left, trailer_left;
	uint32_t payload_bytes;
	enum rx_target target;
	bool stalled; /* the SEND at hand waits for a RECV */
	bool hungry;  /* what is staged is not a whole header (with CRC: FPDU) */

	/* the SEND that is arriving */
	bool in_send;
	uint8_t send_op;
	uint32_t send_msn, send_mo;
	uint32_t recv_sge;
	uint64_t recv_sge_done;
	/* the response that is arriving */
	uint32_t read_done;
	uint32_t read_sge;
	uint64_t read_sge_done;
	/* READs of the peer's to be answered, oldest first */
	uint32_t read_msn;
	struct rx_read reads[IWARP_READS_MAX];
	uint32_t reads_first, reads_count;
	uint64_t address; /* RX_TAGGED: where the next byte goes */
};

struct iwarp_stream {
	uint32_t magic;
	uint8_t *buffers; /* tx.buf and rx.buf */
	struct iwarp_watch watch;
	struct fabric *fabric;
	int fd;
	enum stream_state state;
	bool readable, writable, hung_up, said_fin;
	struct fabric_ep *ep;		  /* CONNECTING, ASKING, OPEN */
	struct fabric_conn *conn;	  /* ASKED */
	struct fabric_listener *listener; /* HEARING */
	struct xc_list link; /* on fabric.hearing, fabric.streams or fabric.dead */
	struct xc_list busy;		  /* on fabric.busy: no endpoint schedules it */
	struct xd_timer timer;
	struct xc_addr peer;
	struct mpa_terms terms;
	/* what we say; without private data. CONNECTING, ASKING: the request; ASKED: the reply */
	struct mpa_frame frame;
	uint32_t max_payload_tagged, max_payload_untagged;

	/* MPA frames as they arrive */
	uint8_t start[MPA_RECEIVED_MAX];
	uint32_t start_bytes, start_done;
	bool asked; /* our request has gone */

	struct iwarp_tx tx;
	struct iwarp_rx rx;
};

#define IWARP_STREAM_MAGIC UINT32_C(0x69777374)

/* ---- stream.c */

/* Takes fd in every case. 0 or -errno. */
int stream_new(struct fabric *f, int fd, enum stream_state state, const struct xc_addr *peer,
	       struct iwarp_stream **ret);
/* At once, with a RST where `reset`. It is freed later, by stream_bury(). */
void stream_close(struct iwarp_stream *s, bool reset);
/* The MPA start is over: s is ep's. 0 or -errno. */
int stream_open(struct iwarp_stream *s, struct fabric_ep *ep);
/* The endpoint lets go of an open stream, which ends by itself. */
void stream_leave(struct iwarp_stream *s);
/*
 * A rule was broken: says which to the peer, and ends the endpoint with this reason. The segment in
 * s->rx is quoted where `quote`.
 */
void stream_terminate(struct iwarp_stream *s, enum rdmap_error error, bool quote, int reason);
/* The peer has terminated. */
void stream_terminated(struct iwarp_stream *s, const struct rdmap_terminate *t, int reason);
/* What an error of a connected socket means: silence, or an end. */
int stream_reason(int err);
/* The connection is lost: ends the endpoint. */
void stream_lost(struct iwarp_stream *s, int reason);
/*
 * Receives an MPA frame into s->start, and not a byte behind it: its length; -EAGAIN: not yet; 0:
 * the peer has ended; -EPROTO: *ret_why; -errno.
 */
int stream_hear(struct iwarp_stream *s, enum mpa_kind kind, struct mpa_frame *ret,
		const char **ret_why);
/* Makes an open stream's endpoint run, or the stream itself. */
void stream_wake(struct iwarp_stream *s);
/* Writes tx.buf of a stream without endpoint. 0 all gone, -EAGAIN, -errno. */
int stream_write_rest(struct iwarp_stream *s);
/* HEARING is over. */
void stream_heard(struct iwarp_stream *s, enum stream_state next);
/* Closes a socket, with a RST where `reset`. */
void stream_close_fd(int fd, bool reset);
/* A line in the log about the connection of ep. */
void stream_log(const struct fabric_ep *ep, const char *what, const char *why);
/* Sends what is in tx.buf, then a FIN, and waits for the peer's. */
void stream_say_goodbye(struct iwarp_stream *s);
/* Streams on fabric.busy. */
void stream_run_busy(struct fabric *f);
/* Frees those that are dead. */
void stream_bury(struct fabric *f);
void stream_close_all(struct fabric *f);
/* Closes it after so long, unless it is re-armed. */
void stream_limit(struct iwarp_stream *s, uint64_t ns);
/* Work of an open one for about allowance_bytes; what it cost. */
uint64_t stream_run(struct fabric_ep *ep, uint64_t allowance_bytes);
bool stream_can_run(const struct fabric_ep *ep);

/* ---- buffer.c */

/* tx.buf and rx.buf, of STREAM_BUFFER_BYTES each. 0 or -ENOMEM. */
int stream_buffers_new(struct iwarp_stream *s);
void stream_buffers_free(struct iwarp_stream *s);

/* A byte of these bytes cannot be had. */
bool stream_has_vanished(const struct iwarp_span *span);

/* ---- poll.c */

int poll_open(struct fabric *f);
void poll_close(struct fabric *f);
int poll_add(struct fabric *f, int fd, uint32_t events, struct iwarp_watch *w);
void poll_remove(struct fabric *f, int fd);
/* Marks what is ready. Runs nothing. */
void poll_look(struct fabric *f);

/* ---- dial.c, serve.c: a step of a stream in these states; it may close s */

int dial(struct fabric_ep *ep, const struct xc_addr *dst, const void *private_data, size_t bytes);
void dial_step(struct iwarp_stream *s);
/* The endpoint gives up. */
void dial_abandon(struct iwarp_stream *s);

int serve_listen(struct fabric_listener *l, const struct xc_addr *at, struct xc_addr *ret_at);
void serve_stop(struct fabric_listener *l);
void serve_step(struct iwarp_stream *s);
void serve_run(struct fabric *f);
int serve_accept(struct iwarp_stream *s, struct fabric_ep *ep, const void *private_data,
		 size_t bytes);
void serve_reject(struct iwarp_stream *s, const void *private_data, size_t bytes);

/* ---- tx.c */

bool tx_has_work(const struct iwarp_stream *s);
uint64_t tx_run(struct fabric_ep *ep, uint64_t allowance_bytes);
/* The oldest READ has its answer. */
void tx_read_done(struct fabric_ep *ep);
/* The same where nobody asked, or will ask. */
void tx_forget_read(struct iwarp_tx *tx);
/* NULL: an RTR. */
struct iwarp_wr *tx_oldest_read(struct fabric_ep *ep);
void tx_sink(const struct fabric_ep *ep, uint32_t serial, uint32_t *ret_stag, uint64_t *ret_to);
/* Sends the RTR of the initiator. */
void tx_ready_to_receive(struct iwarp_stream *s, enum mpa_rtr rtr);
/*
 * Leaves in tx.buf what the peer must still get of the FPDU that it has a part of, and nothing
 * else. False: that cannot be had any more.
 */
bool tx_settle(struct iwarp_stream *s);
/* Appends bytes to tx.buf. */
void tx_append_raw(struct iwarp_stream *s, const void *bytes, size_t n);
/* Appends an FPDU of bytes to tx.buf; the room is there. */
void tx_append(struct iwarp_stream *s, const struct ddp_header *h, const void *body,
	       uint32_t body_bytes);

/* ---- rx.c */

bool rx_has_work(const struct iwarp_stream *s);
/* s->ep may be NULL: then everything but READ responses is thrown away, and their ends are counted.
 */
uint64_t rx_run(struct iwarp_stream *s, uint64_t allowance_bytes);

/* ---- place.c. An answer other than 0 ends the stream. */

enum place_verdict {
	PLACE_OK,
	PLACE_WAIT,  /* no RECV is there yet */
	PLACE_ENDED, /* the stream was ended, s has no endpoint now */
};

/* rx.header is decoded: may it be, and where does its payload go? */
enum place_verdict place_begin(struct iwarp_stream *s);
/*
 * Memory for the next bytes of the payload: as many spans as there are, at most n. How many; 0:
 * the stream was ended.
 */
int place_spans(struct iwarp_stream *s, struct iwarp_span *spans, int n);
/* That many bytes of the payload have been placed. */
void place_advance(struct iwarp_stream *s, uint32_t bytes);
/* Memory vanished. */
void place_fault(struct iwarp_stream *s, const struct iwarp_span *span);
/* The segment is whole. */
enum place_verdict place_end(struct iwarp_stream *s);

#endif
