/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The build's, not the one next to this file. */
#include <config.h>

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/assert.h"
#include "daemon/io/codec.h"
#include "proto/ring.h"
#include "proto/varint.h"

/*
 * The messages are packed by protobuf-c; what is written here by hand are the heads of messages
 * whose length is known only when their parts are written: the parts come first, HEAD bytes into
 * the buffer, then the head right before them. protobuf.dev/programming-guides/encoding: a key is
 * number << 3 | wire type.
 */
#define VARINT 0u
#define BYTES 2u
#define KEY(number, type) ((uint8_t)((number) << 3 | (type)))

/* Serial: key, 10 bytes; body: key, 3 bytes. */
#define HEAD 16u
/*
 * A Completion with its key and length: 11 numbers of at most 10 bytes with their keys, and its
 * text.
 */
#define COMPLETION_BYTES_MAX (11 * 11 + XD_TEXT_MAX + 8)

/* A row: at most so many cells, each at most so long. */
#define CELLS_MAX 32u
#define CELL_BYTES_MAX 255u
#define ROW_BYTES_MAX (CELLS_MAX * (CELL_BYTES_MAX + 3))
/* The columns and the cursor, which follow the rows. */
#define TAIL_BYTES_MAX (CELLS_MAX * 128 + 16)

static size_t put_bytes(uint8_t *to, unsigned field, const void *bytes, size_t size)
{
	size_t n = 0;

	to[n++] = KEY(field, BYTES);
	n += xp_put_varint(to + n, size);
	memcpy(to + n, bytes, size);
	return n + size;
}

/* Writes DaemonMessage's head before a body that fills buf from HEAD to end. */
static size_t put_head(uint8_t *buf, size_t end, uint64_t serial, unsigned body,
		       uint8_t **ret_packet)
{
	uint8_t head[HEAD];
	size_t n = 0;

	if (serial) {
		head[n++] = KEY(1u, VARINT);
		n += xp_put_varint(head + n, serial);
	}
	head[n++] = KEY(body, BYTES);
	n += xp_put_varint(head + n, end - HEAD);
	xc_assert(n <= HEAD && end <= XP_PACKET_BYTES_MAX);
	*ret_packet = buf + HEAD - n;
	memcpy(*ret_packet, head, n);
	return end - HEAD + n;
}

/* What protobuf calls a string is UTF-8, and its readers refuse what is not. */
static char *ascii(char *text)
{
	for (char *c = text; *c; c++) {
		if ((unsigned char)*c < 0x20 || (unsigned char)*c >= 0x7f)
			*c = '?';
	}
	return text;
}

static size_t pack(Xp__DaemonMessage *m, uint8_t *buf)
{
	/* Bounded by the struct that it is made of: far below a packet. */
	xc_assert(xp__daemon_message__get_packed_size(m) <= XP_PACKET_BYTES_MAX);
	return xp__daemon_message__pack(m, buf);
}

/* ---- the kinds */

static size_t encode_hello(struct xd_out *out, uint8_t *buf)
{
	static char version[] = PACKAGE_VERSION;
	Xp__DaemonMessage m = XP__DAEMON_MESSAGE__INIT;
	Xp__HelloReply body = XP__HELLO_REPLY__INIT;

	body.major = XP_PROTOCOL_MAJOR;
	body.minor = XP_PROTOCOL_MINOR;
	body.features = XP_FEATURE_LINK | XP_FEATURE_EXPLAIN;
	body.version = version;
	body.requests_in_flight_max = out->requests_max;
	body.bytes_in_flight_max = out->bytes_max;
	m.serial = out->serial;
	m.body_case = XP__DAEMON_MESSAGE__BODY_HELLO_REPLY;
	m.hello_reply = &body;
	return pack(&m, buf);
}

static size_t encode_reply(struct xd_out *out, uint8_t *buf)
{
	Xp__DaemonMessage m = XP__DAEMON_MESSAGE__INIT;
	Xp__Reply body = XP__REPLY__INIT;
	char address[XC_ADDR_TEXT_MAX] = "";

	if (out->address.family)
		xc_addr_format(&out->address, address);
	body.status = out->status;
	body.text = ascii(out->text);
	body.number = out->number;
	body.address = address;
	m.serial = out->serial;
	m.body_case = XP__DAEMON_MESSAGE__BODY_REPLY;
	m.reply = &body;
	return pack(&m, buf);
}

static void caps_into(const struct fabric_caps *caps, Xp__EndpointReady *body)
{
	body->max_segments = xc_min_u32(caps->max_sge, caps->max_recv_sge);
	body->max_message_bytes = caps->max_message_bytes;
	body->private_connect_bytes = caps->private_connect_bytes;
	body->private_accept_bytes = caps->private_accept_bytes;
	body->private_reject_bytes = caps->private_reject_bytes;
	body->capabilities = (caps->remote_invalidate ? 1u : 0u) | (caps->immediate ? 2u : 0u) |
			     (fabric_snapshots(caps) ? 4u : 0u);
}

static size_t encode_ready(struct xd_out *out, uint8_t *buf)
{
	Xp__DaemonMessage m = XP__DAEMON_MESSAGE__INIT;
	Xp__EndpointReady body = XP__ENDPOINT_READY__INIT;
	char address[XC_ADDR_TEXT_MAX] = "", fabric[FABRIC_NAME_MAX] = "";

	if (out->address.family)
		xc_addr_format(&out->address, address);
	if (out->caps) {
		snprintf(fabric, sizeof(fabric), "%s", out->caps->name);
		caps_into(out->caps, &body);
	}
	body.endpoint = out->number;
	body.status = out->status;
	body.text = ascii(out->text);
	body.fabric = ascii(fabric);
	body.route = ascii(out->route);
	body.peer_address = address;
	m.body_case = XP__DAEMON_MESSAGE__BODY_ENDPOINT_READY;
	m.endpoint_ready = &body;
	return pack(&m, buf);
}

static size_t encode_connect_request(struct xd_out *out, uint8_t *buf)
{
	Xp__DaemonMessage m = XP__DAEMON_MESSAGE__INIT;
	Xp__ConnectRequest body = XP__CONNECT_REQUEST__INIT;
	char address[XC_ADDR_TEXT_MAX] = "";

	if (out->address.family)
		xc_addr_format(&out->address, address);
	body.listener = out->number;
	body.request = out->request;
	body.peer_address = address;
	body.private_data.data = out->private_data;
	body.private_data.len = out->private_data_bytes;
	body.peer_uid = out->peer_uid;
	m.body_case = XP__DAEMON_MESSAGE__BODY_CONNECT_REQUEST;
	m.connect_request = &body;
	return pack(&m, buf);
}

static size_t encode_connected(struct xd_out *out, uint8_t *buf)
{
	Xp__DaemonMessage m = XP__DAEMON_MESSAGE__INIT;
	Xp__Connected body = XP__CONNECTED__INIT;

	body.endpoint = out->number;
	body.status = out->status;
	body.text = ascii(out->text);
	body.private_data.data = out->private_data;
	body.private_data.len = out->private_data_bytes;
	m.body_case = XP__DAEMON_MESSAGE__BODY_CONNECTED;
	m.connected = &body;
	return pack(&m, buf);
}

static size_t encode_disconnected(struct xd_out *out, uint8_t *buf)
{
	Xp__DaemonMessage m = XP__DAEMON_MESSAGE__INIT;
	Xp__Disconnected body = XP__DISCONNECTED__INIT;

	body.endpoint = out->number;
	body.status = out->status;
	body.text = ascii(out->text);
	m.body_case = XP__DAEMON_MESSAGE__BODY_DISCONNECTED;
	m.disconnected = &body;
	return pack(&m, buf);
}

static size_t encode_goodbye(struct xd_out *out, uint8_t *buf)
{
	Xp__DaemonMessage m = XP__DAEMON_MESSAGE__INIT;
	Xp__Goodbye body = XP__GOODBYE__INIT;

	body.status = out->status;
	body.text = ascii(out->text);
	m.body_case = XP__DAEMON_MESSAGE__BODY_GOODBYE;
	m.goodbye = &body;
	return pack(&m, buf);
}

size_t xd_encode(struct xd_out *out, uint8_t *buf)
{
	xc_assert(out->private_data_bytes <= FABRIC_PRIVATE_DATA_MAX);
	switch (out->kind) {
	case XD_OUT_HELLO:
		return encode_hello(out, buf);
	case XD_OUT_REPLY:
		return encode_reply(out, buf);
	case XD_OUT_ENDPOINT_READY:
		return encode_ready(out, buf);
	case XD_OUT_CONNECT_REQUEST:
		return encode_connect_request(out, buf);
	case XD_OUT_CONNECTED:
		return encode_connected(out, buf);
	case XD_OUT_DISCONNECTED:
		return encode_disconnected(out, buf);
	case XD_OUT_GOODBYE:
		return encode_goodbye(out, buf);
	case XD_OUT_NONE:
	case XD_OUT_COMPLETION:
		break;
	}
	xc_assert(!"a kind that is encoded here");
	return 0;
}

static size_t encode_status(enum xd_out_kind kind, uint64_t serial, int status, const char *text,
			    uint8_t *buf)
{
	struct xd_out out = { .kind = kind, .serial = serial, .status = status };

	snprintf(out.text, sizeof(out.text), "%s", text);
	return xd_encode(&out, buf);
}

size_t xd_encode_reply(uint64_t serial, int status, const char *text, uint8_t *buf)
{
	return encode_status(XD_OUT_REPLY, serial, status, text, buf);
}

size_t xd_encode_goodbye(int status, const char *text, uint8_t *buf)
{
	return encode_status(XD_OUT_GOODBYE, 0, status, text, buf);
}

size_t xd_encode_query_failure(uint64_t serial, int status, const char *text, uint8_t *buf)
{
	Xp__DaemonMessage m = XP__DAEMON_MESSAGE__INIT;
	Xp__QueryReply body = XP__QUERY_REPLY__INIT;
	char copy[XD_TEXT_MAX];

	snprintf(copy, sizeof(copy), "%s", text);
	body.status = status;
	body.text = ascii(copy);
	m.serial = serial;
	m.body_case = XP__DAEMON_MESSAGE__BODY_QUERY_REPLY;
	m.query_reply = &body;
	return pack(&m, buf);
}

/* ---- completions */

void xd_batch_init(struct xd_batch *b, uint8_t *buf)
{
	*b = (struct xd_batch){ .buf = buf, .end = HEAD };
}

bool xd_batch_room(const struct xd_batch *b)
{
	return b->end + COMPLETION_BYTES_MAX <= XP_PACKET_BYTES_MAX;
}

void xd_batch_add(struct xd_batch *b, struct xd_out *out)
{
	const struct xp_completion *c = &out->completion;
	Xp__Completion m = XP__COMPLETION__INIT;
	size_t size;

	m.wr_id = c->wr_id;
	m.cookie = c->cookie;
	m.status = c->status;
	m.opcode = c->opcode;
	m.flags = c->flags;
	m.immediate = c->immediate;
	m.byte_len = c->byte_len;
	m.endpoint = c->endpoint;
	m.grant = c->grant;
	m.address = c->address;
	m.rkey = c->rkey;
	m.text = ascii(out->text);
	size = xp__completion__get_packed_size(&m);
	xc_assert(xd_batch_room(b) && size + 4 <= COMPLETION_BYTES_MAX);
	b->buf[b->end++] = KEY(1u, BYTES);
	b->end += xp_put_varint(b->buf + b->end, size);
	b->end += xp__completion__pack(&m, b->buf + b->end);
	b->count++;
}

size_t xd_batch_finish(struct xd_batch *b, uint8_t **ret_packet)
{
	return put_head(b->buf, b->end, 0, 4, ret_packet);
}

/* ---- tables */

static struct xd_query_writer *writer_of(struct xd_table_sink *sink)
{
	return xc_container_of(sink, struct xd_query_writer, sink);
}

static bool writer_row(struct xd_table_sink *sink)
{
	return writer_of(sink)->end + ROW_BYTES_MAX + TAIL_BYTES_MAX <= XP_PACKET_BYTES_MAX;
}

static void writer_text(struct xd_table_sink *sink, const char *value)
{
	struct xd_query_writer *w = writer_of(sink);
	char cell[CELL_BYTES_MAX + 1];

	snprintf(cell, sizeof(cell), "%s", value);
	xc_assert(w->end + CELL_BYTES_MAX + 3 + TAIL_BYTES_MAX <= XP_PACKET_BYTES_MAX);
	w->end += put_bytes(w->buf + w->end, 4, ascii(cell), strlen(cell));
}

static void writer_number(struct xd_table_sink *sink, uint64_t value)
{
	char cell[24];

	snprintf(cell, sizeof(cell), "%" PRIu64, value);
	writer_text(sink, cell);
}

void xd_query_writer_init(struct xd_query_writer *w, uint8_t *buf)
{
	*w = (struct xd_query_writer){
		.sink = { .row = writer_row, .text = writer_text, .number = writer_number },
		.buf = buf,
		.end = HEAD,
	};
}

static void put_column(struct xd_query_writer *w, const struct xd_column *c)
{
	uint8_t body[120];
	size_t n = 0;

	xc_assert(strlen(c->name) <= 63 && strlen(c->unit) <= 31);
	n += put_bytes(body + n, 1, c->name, strlen(c->name));
	if (*c->unit)
		n += put_bytes(body + n, 2, c->unit, strlen(c->unit));
	if (c->number) {
		body[n++] = KEY(3u, VARINT);
		body[n++] = 1;
	}
	w->end += put_bytes(w->buf + w->end, 3, body, n);
}

size_t xd_query_writer_finish(struct xd_query_writer *w, uint64_t serial, uint64_t cursor,
			      const struct xd_column *columns, size_t n_columns,
			      uint8_t **ret_packet)
{
	xc_assert(n_columns <= CELLS_MAX);
	for (size_t i = 0; i < n_columns; i++)
		put_column(w, &columns[i]);
	if (cursor) {
		w->buf[w->end++] = KEY(5u, VARINT);
		w->end += xp_put_varint(w->buf + w->end, cursor);
	}
	return put_head(w->buf, w->end, serial, 9, ret_packet);
}
