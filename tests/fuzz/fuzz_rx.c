/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * A peer on the wire, at its worst, against the receiver of an endpoint with all of its state. The
 * socket is one end of a socketpair, the other is the input's; the clock is, too. Whatever comes:
 * no sanitizer stops it, nothing is written or told that was not granted, what is sent back is
 * whole FPDUs with a Terminate at the end at most, each work request completes once, and in the
 * end all is gone.
 *
 * The input: a byte of terms, then steps, each a byte and what belongs to it.
 */
#define _GNU_SOURCE 1 /* memmem() */
#include <endian.h>
#include <errno.h>
#include <isa-l/crc.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/assert.h"
#include "common/checked.h"
#include "daemon/fabric/iwarp/bytes.h"
#include "daemon/fabric/iwarp/stream.h"
#include "tests/unit/fake_engine.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* ---- the byte of terms */
#define WITH_CRC 0x01u
#define WITH_START 0x02u /* the input begins with a request of MPA; else the stream is open */
#define LONG_FPDUS 0x04u
#define ONE_READ 0x08u /* IRD and ORD of 1; else 4 */

/* ---- steps: the low three bits */
enum step {
	RAW,	  /* a byte of length, and so many bytes of the stream */
	SEGMENT,  /* two bytes of length (little endian), a ULPDU: is put into an FPDU */
	BROKEN,	  /* the same, with a wrong CRC */
	RECV,	  /* a byte: a RECV of four times so many bytes */
	WORK,	  /* a byte: see work() */
	CLOCK,	  /* a byte: so many times 10 ms pass */
	LEAVE,	  /* a byte: an orderly end, or not */
	CUT,	  /* a byte: the stream comes in pieces of at most so many bytes; 0: as it is */
};

/* What the input does not know: these stand for it in a ULPDU. */
#define WINDOW_KEY UINT32_C(0xeeeeeeee)
#define REGION_KEY UINT32_C(0xdddddddd)
#define SINK_KEY UINT32_C(0xcccccccc)
#define RANGES_KEY UINT32_C(0xbbbbbbbb)

#define STEPS_MAX 200
#define TURNS_MAX 64
#define QUEUE 8u
#define MS UINT64_C(1000000)

/* Memory: a window that the peer may use, RECVs, sinks of READs, and what is nobody's. */
#define MEMORY_BYTES (64u << 10)
#define IOVA UINT64_C(0x100000)
#define WINDOW_AT (4096u + 40u)
#define WINDOW_BYTES 1000u
#define RECV_AT 8192u
#define RECV_BYTES_MAX 1024u
#define SINK_AT 16384u
#define SINK_BYTES_MAX 4096u
#define SOURCE_AT 32768u
#define SOURCE_BYTES_MAX 4096u
/* Ranges that the peer may use, by one key; between them is what is nobody's. */
#define RANGES 6u
#define RANGES_AT(i) (40960u + 2048u * (i))
#define RANGE_BYTES(i) (1u + 300u * (i))
static const char secret[] = "SECRET!!";
#define SECRET_BYTES 8u

#define SAID_MAX (1u << 20)

/* Opened once: that takes longer than most inputs do. */
static struct {
	struct xd_engine engine;
	struct fabric *f;
	struct fabric_region *region;
	uint8_t *mem;
} lasting;

struct world {
	struct xd_engine *engine;
	struct fabric *f;
	uint8_t *mem;
	struct fabric_pd *pd;
	struct ibv_mr *mr, *ranges;
	struct ibv_mw *mw;
	uint32_t window_key;
	struct fabric_ep *ep;
	struct fabric_listener listener; /* never listens */
	int peer;			 /* the input's socket; -1: closed */
	size_t cut;
	bool crc, has_start;
	bool may_recv, may_read; /* something was posted that the peer may write to */
	unsigned int posted[2], completed[2];
	uint8_t ops[STEPS_MAX + 2]; /* of what was posted to send, enum ibv_wr_opcode */
	bool window_is_dead;	    /* its end was told */
	int n_established, n_disconnected;
	bool ended;
	size_t n_said;
};

static uint8_t before[MEMORY_BYTES], at_end[MEMORY_BYTES], at_death[WINDOW_BYTES], said[SAID_MAX];

/* ---- what the fabric tells */

static void *connect_request(void *ctx, struct fabric_conn *conn,
			     const struct fabric_conn_info *info)
{
	struct world *w = ctx;

	xc_assert(info->private_data_bytes <= FABRIC_PRIVATE_DATA_MAX);
	if (iwarp_fabric_ops.ep_accept(w->ep, conn, "yes", 3) < 0)
		return NULL;
	return w;
}

static void conn_gone(void *ctx)
{
	(void)ctx;
}

static void established(void *ctx, int status, const void *private_data, size_t bytes)
{
	struct world *w = ctx;

	(void)private_data;
	xc_assert(++w->n_established == 1 && status == 0 && bytes == 0);
	/* The peer may have asked for it. */
	if (w->ep->stream)
		w->crc = w->ep->stream->terms.crc;
}

/* From now on its memory is left alone. */
static void has_ended(struct world *w)
{
	if (!w->ended)
		memcpy(at_end, w->mem, MEMORY_BYTES);
	w->ended = true;
}

static void disconnected(void *ctx, int status)
{
	struct world *w = ctx;

	xc_assert(++w->n_disconnected == 1 && w->n_established == 1 && status <= 0);
	has_ended(w);
}

static void region_fault(void *ctx)
{
	(void)ctx;
	xc_assert(!"no memory vanishes here");
}

static const struct fabric_events events = {
	.connect_request = connect_request,
	.conn_gone = conn_gone,
	.established = established,
	.disconnected = disconnected,
	.region_fault = region_fault,
};

/* ---- checks */

static bool is_untouched(const struct world *w, uint32_t from, uint32_t end)
{
	return memcmp(w->mem + from, before + from, end - from) == 0;
}

static void check_memory(const struct world *w)
{
	uint32_t recv = w->may_recv ? RECV_BYTES_MAX : 0, sink = w->may_read ? SINK_BYTES_MAX : 0;

	xc_assert(is_untouched(w, 0, WINDOW_AT));
	xc_assert(is_untouched(w, WINDOW_AT + WINDOW_BYTES, RECV_AT));
	xc_assert(is_untouched(w, RECV_AT + recv, SINK_AT));
	xc_assert(is_untouched(w, SINK_AT + sink, RANGES_AT(0)));
	for (uint32_t i = 0; i < RANGES; i++)
		xc_assert(is_untouched(w, RANGES_AT(i) + RANGE_BYTES(i), RANGES_AT(i + 1)));
	xc_assert(is_untouched(w, RANGES_AT(RANGES), MEMORY_BYTES));
	xc_assert(!w->window_is_dead || memcmp(w->mem + WINDOW_AT, at_death, WINDOW_BYTES) == 0);
	xc_assert(!w->ended || memcmp(w->mem, at_end, MEMORY_BYTES) == 0);
}

static void window_dies(struct world *w)
{
	if (!w->window_is_dead)
		memcpy(at_death, w->mem + WINDOW_AT, WINDOW_BYTES);
	w->window_is_dead = true;
}

static void check_completion(struct world *w, const struct ibv_wc *wc, unsigned int nth)
{
	if (wc->status != IBV_WC_SUCCESS)
		return;
	if (!(wc->wr_id & 1)) {
		if (w->ops[nth] == IBV_WR_LOCAL_INV)
			window_dies(w);
		return;
	}
	xc_assert(wc->opcode == IBV_WC_RECV && wc->byte_len <= RECV_BYTES_MAX);
	if (!(wc->wc_flags & IBV_WC_WITH_INV))
		return;
	xc_assert(wc->invalidated_rkey == w->window_key);
	window_dies(w);
}

static void take_completions(struct world *w)
{
	struct ibv_wc wc;

	while (iwarp_fabric_ops.poll(w->f, 1, &wc) == 1) {
		unsigned int queue = wc.wr_id & 1;

		xc_assert(wc.qp_num == 7 && w->completed[queue] < w->posted[queue]);
		xc_assert(wc.wr_id >> 1 == w->completed[queue]);
		check_completion(w, &wc, w->completed[queue]++);
	}
}

/* A frame of what was said. Its length; 0: it is not whole. */
static size_t check_frame(const struct world *w, const uint8_t *at, size_t n, bool *ret_last)
{
	enum rdmap_error error;
	struct ddp_header h;
	uint32_t covered, crc;
	uint16_t ulpdu;

	if (n < MPA_LENGTH_BYTES)
		return 0;
	ulpdu = iwarp_get16(at);
	covered = (MPA_LENGTH_BYTES + ulpdu + 3u) & ~3u;
	if (n < covered + MPA_CRC_BYTES)
		return 0;
	xc_assert(ddp_decode(at + MPA_LENGTH_BYTES, ulpdu, ulpdu, &h, &error) > 0);
	memcpy(&crc, at + covered, sizeof(crc));
	if (w->crc)
		xc_assert(le32toh(crc) == ~crc32_iscsi((unsigned char *)(uintptr_t)at, (int)covered,
						       UINT32_MAX));
	else
		xc_assert(crc == 0);
	for (uint32_t i = MPA_LENGTH_BYTES + ulpdu; i < covered; i++)
		xc_assert(at[i] == 0);
	*ret_last = h.op == RDMAP_TERMINATE;
	return covered + MPA_CRC_BYTES;
}

/* In the end. `knows`: the input has the secret itself. */
static void check_said(const struct world *w, bool knows)
{
	struct mpa_frame reply;
	const char *why;
	bool last = false;
	size_t at = 0, n;

	xc_assert(knows || !memmem(said, w->n_said, secret, SECRET_BYTES));
	if (w->has_start && w->n_said) {
		int length = mpa_decode(MPA_REPLY, said, w->n_said, &reply, &why);

		xc_assert(length > 0 && !reply.markers);
		at = (size_t)length;
		xc_assert(!reply.reject || at == w->n_said);
	}
	while (!last) {
		n = check_frame(w, said + at, w->n_said - at, &last);
		if (!n)
			return; /* of a stream that was cut off */
		at += n;
	}
	xc_assert(at == w->n_said); /* after a Terminate nothing is said */
}

/* ---- the world */

static void listen_to_it(struct world *w)
{
	while (w->peer >= 0 && w->n_said < SAID_MAX) {
		ssize_t n = recv(w->peer, said + w->n_said, SAID_MAX - w->n_said, MSG_DONTWAIT);

		if (n <= 0)
			return;
		w->n_said += (size_t)n;
	}
}

static void run(struct world *w)
{
	for (int i = 0; i < TURNS_MAX; i++) {
		bool more;

		w->engine->kicked = false;
		more = iwarp_fabric_ops.progress(w->f, 1 << 20);
		take_completions(w);
		listen_to_it(w);
		if (!more && !w->engine->kicked)
			break;
	}
	check_memory(w);
}

static void fill_memory(struct world *w)
{
	for (uint32_t i = 0; i < MEMORY_BYTES; i += SECRET_BYTES)
		memcpy(w->mem + i, secret, SECRET_BYTES);
	memset(w->mem + WINDOW_AT, 0x11, WINDOW_BYTES);
	memset(w->mem + RECV_AT, 0x22, RECV_BYTES_MAX);
	memset(w->mem + SINK_AT, 0x33, SINK_BYTES_MAX);
	memset(w->mem + SOURCE_AT, 0x44, SOURCE_BYTES_MAX);
	for (uint32_t i = 0; i < RANGES; i++)
		memset(w->mem + RANGES_AT(i), 0x55, RANGE_BYTES(i));
	memcpy(before, w->mem, MEMORY_BYTES);
}

static void make_ranges(struct world *w)
{
	const int all = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE;
	struct fabric_range r[RANGES];

	for (uint32_t i = 0; i < RANGES; i++)
		r[i] = (struct fabric_range){ lasting.region, RANGES_AT(i), RANGE_BYTES(i) };
	xc_assert(iwarp_fabric_ops.mr_reg_ranges(w->pd, r, RANGES, IOVA, all, NULL, &w->ranges) ==
		  0);
}

static void make_objects(struct world *w)
{
	const int all = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND;
	const struct fabric_ops *ops = &iwarp_fabric_ops;
	struct fabric_ep_attr attr = {
		.max_send_wr = QUEUE, .max_recv_wr = QUEUE, .max_send_sge = 2, .max_recv_sge = 2,
		.ctx = w, .qp_num = 7,
	};

	fill_memory(w);
	xc_assert(ops->pd_alloc(w->f, 1000, &w->pd) == 0);
	xc_assert(ops->mr_reg(w->pd, lasting.region, 0, MEMORY_BYTES, IOVA, all, NULL, &w->mr) ==
		  0);
	xc_assert(ops->mw_alloc(w->pd, NULL, &w->mw) == 0);
	make_ranges(w);
	attr.pd = w->pd;
	xc_assert(ops->ep_create(w->f, &attr, NULL, &w->ep) == 0);
}

static void connect_stream(struct world *w, uint8_t terms)
{
	const struct xc_addr nowhere = { .family = 4, .ip = { 127, 0, 0, 1 }, .port = 9 };
	struct iwarp_stream *s;
	int fds[2];

	xc_assert(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) == 0);
	w->peer = fds[1];
	xc_assert(stream_new(w->f, fds[0], w->has_start ? STREAM_HEARING : STREAM_ASKING, &nowhere,
			     &s) == 0);
	if (w->has_start) {
		w->listener = (struct fabric_listener){
			.magic = IWARP_LISTENER_MAGIC, .fabric = w->f, .ctx = w,
			.at = nowhere,
		};
		s->listener = &w->listener;
		stream_limit(s, w->f->mpa_ns);
		return;
	}
	s->terms = (struct mpa_terms){
		.crc = w->crc, .long_fpdus = terms & LONG_FPDUS, .ird = w->f->wants.ird,
		.ord = w->f->wants.ord,
	};
	w->ep->state = IWARP_EP_CONNECTING;
	xc_assert(stream_open(s, w->ep) == 0);
	iwarp_ep_connected(w->ep, NULL, 0);
}

static int post(struct world *w, struct ibv_send_wr *wr)
{
	struct ibv_send_wr *bad;
	int err;

	wr->wr_id = (uint64_t)w->posted[0] << 1;
	wr->send_flags |= IBV_SEND_SIGNALED;
	w->ops[w->posted[0]++] = (uint8_t)wr->opcode;
	err = iwarp_fabric_ops.post_send(w->ep, wr, &bad);
	if (err)
		w->posted[0]--;
	return err;
}

/* Over exactly the bytes that the peer may use. */
static void bind_window(struct world *w)
{
	struct ibv_send_wr wr = {
		.opcode = IBV_WR_BIND_MW,
		.bind_mw = {
			.mw = w->mw, .rkey = ibv_inc_rkey(w->mw->rkey),
			.bind_info = {
				.mr = w->mr, .addr = IOVA + WINDOW_AT, .length = WINDOW_BYTES,
				.mw_access_flags = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE,
			},
		},
	};

	if (post(w, &wr) < 0)
		return;
	w->window_key = w->mw->rkey = wr.bind_mw.rkey;
	w->window_is_dead = false;
}

static void open_fabric(void)
{
	const struct iwarp_options options = { 0 };
	struct xd_engine_ref ref;
	void *mem;

	fake_engine_init(&lasting.engine, 1);
	ref = fake_engine_ref(&lasting.engine);
	xc_assert(iwarp_fabric_open(&options, &ref, &events, &lasting.f) == 0);
	xc_assert(iwarp_fabric_ops.slab_map(MEMORY_BYTES, &lasting.region, &mem) == 0);
	lasting.mem = mem;
}

static void world_start(struct world *w, uint8_t terms)
{
	if (!lasting.f)
		open_fabric();
	memset(w, 0, sizeof(*w));
	w->engine = &lasting.engine;
	w->f = lasting.f;
	w->mem = lasting.mem;
	w->crc = terms & WITH_CRC;
	w->has_start = terms & WITH_START;
	w->f->wants.crc = w->crc;
	w->f->wants.ird = w->f->wants.ord = terms & ONE_READ ? 1 : 4;
	make_objects(w);
	connect_stream(w, terms);
	run(w);
	if (!w->has_start)
		bind_window(w);
	run(w);
}

static void hang_up(struct world *w)
{
	if (w->peer >= 0)
		close(w->peer);
	w->peer = -1;
}

static void world_end(struct world *w)
{
	const struct fabric_ops *ops = &iwarp_fabric_ops;

	run(w);
	hang_up(w);
	run(w);
	ops->ep_error(w->ep);
	run(w);
	xc_assert(w->completed[0] == w->posted[0] && w->completed[1] == w->posted[1]);
	xc_assert(w->n_disconnected == w->n_established);
	xc_assert(ops->ep_destroy(w->ep, NULL) == 0);
	xc_assert(ops->mw_dealloc(w->mw, NULL) == 0);
	xc_assert(ops->mr_dereg(w->ranges, NULL) == 0);
	xc_assert(ops->mr_dereg(w->mr, NULL) == 0);
	ops->pd_free(w->pd);
	run(w);
	/* Streams that linger. */
	fake_engine_advance(w->engine, 60000 * MS);
	run(w);
	xc_assert(!w->f->eps && !w->f->objects && !w->f->watched && !w->f->lingering);
	xc_assert(!w->f->n_hearing && xc_list_empty(&w->f->hearing));
	xc_assert(xc_list_empty(&w->f->streams) && xc_list_empty(&w->f->dead));
	xc_assert(xc_list_empty(&w->f->pending) && xc_list_empty(&w->f->cq_ready));
}

/* ---- steps */

static void say(struct world *w, const uint8_t *bytes, size_t n)
{
	while (n && w->peer >= 0) {
		size_t piece = w->cut && w->cut < n ? w->cut : n;
		ssize_t sent = send(w->peer, bytes, piece, MSG_NOSIGNAL | MSG_DONTWAIT);

		if (sent < 0)
			return; /* it has hung up, or is not reading: it waits for a RECV */
		bytes += sent;
		n -= (size_t)sent;
		run(w);
	}
}

static void put_key(const struct world *w, uint8_t *at)
{
	uint32_t key = iwarp_get32(at);

	if (key == WINDOW_KEY)
		iwarp_put32(at, w->window_key);
	else if (key == REGION_KEY)
		iwarp_put32(at, w->mr->rkey);
	else if (key == RANGES_KEY)
		iwarp_put32(at, w->ranges->rkey);
	else if (key == SINK_KEY)
		iwarp_put32(at, w->f->sink_stag);
}

static void say_segment(struct world *w, const uint8_t *ulpdu, size_t n, bool broken)
{
	static uint8_t frame[UINT16_MAX + 16];
	size_t covered = (MPA_LENGTH_BYTES + n + 3) & ~(size_t)3;
	uint32_t crc = 0;

	iwarp_put16(frame, (uint16_t)n);
	memcpy(frame + MPA_LENGTH_BYTES, ulpdu, n);
	memset(frame + MPA_LENGTH_BYTES + n, 0, covered - MPA_LENGTH_BYTES - n);
	if (n >= 6)
		put_key(w, frame + 4);
	if (n >= DDP_UNTAGGED_BYTES + 20)
		put_key(w, frame + MPA_LENGTH_BYTES + DDP_UNTAGGED_BYTES + 16);
	if (w->crc)
		crc = htole32(~crc32_iscsi(frame, (int)covered, UINT32_MAX));
	crc ^= broken;
	memcpy(frame + covered, &crc, sizeof(crc));
	say(w, frame, covered + sizeof(crc));
}

static void recv_step(struct world *w, uint8_t size)
{
	struct ibv_sge sge = { IOVA + RECV_AT, size * 4u, w->mr->lkey };
	struct ibv_recv_wr *bad, wr = {
		.wr_id = (uint64_t)w->posted[1] << 1 | 1, .sg_list = &sge, .num_sge = size != 0,
	};

	w->posted[1]++;
	if (iwarp_fabric_ops.post_recv(w->ep, &wr, &bad) < 0)
		w->posted[1]--;
	else
		w->may_recv |= size != 0;
}

/* The low two bits say what; the others how much. */
static void work(struct world *w, uint8_t what)
{
	struct ibv_sge sge = { IOVA + SOURCE_AT, (what >> 3) * 128u, w->mr->lkey };
	struct ibv_send_wr wr = { .sg_list = &sge, .num_sge = sge.length != 0 };

	switch (what & 3) {
	case 0:
		wr.opcode = IBV_WR_RDMA_READ;
		sge.addr = IOVA + SINK_AT;
		w->may_read = true;
		break;
	case 1:
		wr.opcode = IBV_WR_RDMA_WRITE;
		break;
	case 2:
		wr.opcode = IBV_WR_SEND;
		break;
	default:
		if (what & 4) {
			bind_window(w);
			return;
		}
		wr.opcode = IBV_WR_LOCAL_INV;
		wr.invalidate_rkey = w->window_key;
		wr.num_sge = 0;
	}
	if (what & 4)
		wr.send_flags = IBV_SEND_FENCE;
	if (sge.length == 128 && wr.opcode != IBV_WR_RDMA_READ && wr.num_sge) {
		wr.send_flags |= IBV_SEND_INLINE;
		sge.addr = (uintptr_t)w->mem + SOURCE_AT;
	}
	if (wr.opcode <= IBV_WR_RDMA_READ && wr.opcode != IBV_WR_SEND) {
		wr.wr.rdma.remote_addr = 0x7000;
		wr.wr.rdma.rkey = 0x1234;
	}
	(void)post(w, &wr);
}

static void leave(struct world *w, uint8_t how)
{
	has_ended(w);
	if (how & 1)
		iwarp_fabric_ops.ep_disconnect(w->ep);
	else
		iwarp_fabric_ops.ep_error(w->ep);
}

/* Returns the bytes that it took, of n; 0: there is no more. */
static size_t take_step(struct world *w, const uint8_t *data, size_t n)
{
	enum step step;
	size_t length;

	if (n < 2)
		return 0;
	step = data[0] & 7;
	switch (step) {
	case RAW:
		length = data[1] < n - 2 ? data[1] : n - 2;
		say(w, data + 2, length);
		return 2 + length;
	case SEGMENT:
	case BROKEN:
		if (n < 3)
			return 0;
		length = data[1] | (size_t)data[2] << 8;
		if (length > n - 3)
			length = n - 3;
		say_segment(w, data + 3, length, step == BROKEN);
		return 3 + length;
	case RECV:
		recv_step(w, data[1]);
		break;
	case WORK:
		work(w, data[1]);
		break;
	case CLOCK:
		fake_engine_advance(w->engine, data[1] * 10 * MS);
		break;
	case LEAVE:
		leave(w, data[1]);
		break;
	case CUT:
		w->cut = data[1];
		break;
	}
	run(w);
	return 2;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct world w;
	bool knows = size && memmem(data, size, secret, SECRET_BYTES);
	size_t at = 1, n;

	if (!size)
		return 0;
	world_start(&w, data[0]);
	for (int i = 0; i < STEPS_MAX; i++) {
		n = take_step(&w, data + at, size - at);
		if (!n)
			break;
		at += n;
	}
	world_end(&w);
	check_said(&w, knows);
	return 0;
}
