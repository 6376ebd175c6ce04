/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/refuse.h"
#include "daemon/io/codec.h"

#define PORT_MAX 65535u
#define BACKLOG_MAX 1024u
#define DEPTH_MAX 4096u
#define NAME_MAX_BYTES 64u
#define HOST_MAX_BYTES 255u
#define WORD_MAX_BYTES 64u
#define ARGUMENTS_MAX 8u
#define ARGUMENT_MAX_BYTES 255u
#define QUERY_ARGUMENT_MAX_BYTES 4096u

#define refuse(ret_why, ...) xc_refuse(ret_why, XD_TEXT_MAX, __VA_ARGS__)

static int at_most(const char *field, uint64_t value, uint64_t max, char *ret_why)
{
	if (value <= max)
		return 0;
	return refuse(ret_why, EINVAL, "%s is %" PRIu64 ", at most %" PRIu64, field, value, max);
}

/*
 * A string within its bound. A NUL in it breaks the protocol: C would end there and others would
 * not, so that two programs read two things.
 */
static int string(const struct xd_arena *arena, const char *field, const char *value,
		  size_t max_bytes, char *ret_why)
{
	size_t length = strlen(value), sent = xd_arena_size(arena, value);

	if (sent && sent != length + 1)
		return refuse(ret_why, XP_E_PROTOCOL, "%s has a NUL character in it", field);
	if (length > max_bytes)
		return refuse(ret_why, EINVAL, "%s is %zu bytes long, at most %zu", field, length,
			      max_bytes);
	return 0;
}

static int private_data(const char *field, const ProtobufCBinaryData *data, char *ret_why)
{
	if (data->len <= FABRIC_PRIVATE_DATA_MAX)
		return 0;
	return refuse(ret_why, EINVAL, "%s is %zu bytes long, at most %d", field, data->len,
		      FABRIC_PRIVATE_DATA_MAX);
}

/*
 * Any fault of a Hello breaks the protocol: nothing is agreed yet that a refusal could be sent
 * by.
 */
static int check_hello(const struct xd_arena *arena, const Xp__Hello *m, char *ret_why)
{
	int r = string(arena, "Hello.name", m->name, NAME_MAX_BYTES, ret_why);

	if (r < 0)
		return -XP_E_PROTOCOL;
	for (const char *c = m->name; *c; c++) {
		if ((unsigned char)*c < 0x20 || *c == 0x7f)
			return refuse(ret_why, XP_E_PROTOCOL, "Hello.name has a control character");
	}
	return 0;
}

static int check_buffer_add(const Xp__BufferAdd *m, char *ret_why)
{
	if (m->size_bytes)
		return at_most("BufferAdd.size_bytes", m->size_bytes, UINT64_C(1) << 40, ret_why);
	return refuse(ret_why, EINVAL, "BufferAdd.size_bytes is 0, at least 1");
}

static int check_listen(const struct xd_arena *arena, const Xp__Listen *m, char *ret_why)
{
	int r = string(arena, "Listen.host", m->host, HOST_MAX_BYTES, ret_why);

	if (r == 0)
		r = at_most("Listen.port", m->port, PORT_MAX, ret_why);
	if (r == 0)
		r = at_most("Listen.backlog", m->backlog, BACKLOG_MAX, ret_why);
	return r;
}

static int check_endpoint_new(const struct xd_arena *arena, const Xp__EndpointNew *m,
			      char *ret_why)
{
	int r = string(arena, "EndpointNew.host", m->host, HOST_MAX_BYTES, ret_why);

	if (r == 0)
		r = string(arena, "EndpointNew.require", m->require, FABRIC_NAME_MAX - 1, ret_why);
	if (r == 0)
		r = at_most("EndpointNew.port", m->port, PORT_MAX, ret_why);
	if (r == 0)
		r = at_most("EndpointNew.send_depth", m->send_depth, DEPTH_MAX, ret_why);
	if (r == 0)
		r = at_most("EndpointNew.recv_depth", m->recv_depth, DEPTH_MAX, ret_why);
	if (r < 0)
		return r;
	if (m->request && (*m->host || m->port))
		return refuse(ret_why, EINVAL,
			      "EndpointNew has a host and a request: it needs one of them");
	if (!m->request && !*m->host)
		return refuse(ret_why, EINVAL,
			      "EndpointNew has no host and no request: it needs one of them");
	if (!m->request && !m->port)
		return refuse(ret_why, EINVAL, "EndpointNew.port is 0, at least 1");
	return 0;
}

static int check_arguments(const struct xd_arena *arena, const char *message,
			   char *const *arguments, size_t n, size_t max_bytes, char *ret_why)
{
	char field[32];
	int r = 0;

	if (n > ARGUMENTS_MAX)
		return refuse(ret_why, EINVAL, "%s has %zu arguments, at most %u", message, n,
			      ARGUMENTS_MAX);
	snprintf(field, sizeof(field), "%s.arguments", message);
	for (size_t i = 0; r == 0 && i < n; i++)
		r = string(arena, field, arguments[i], max_bytes, ret_why);
	return r;
}

static int check_query(const struct xd_arena *arena, const Xp__Query *m, char *ret_why)
{
	int r = string(arena, "Query.table", m->table, WORD_MAX_BYTES, ret_why);

	if (r < 0)
		return r;
	return check_arguments(arena, "Query", m->arguments, m->n_arguments,
			       QUERY_ARGUMENT_MAX_BYTES, ret_why);
}

static int check_admin(const struct xd_arena *arena, const Xp__Admin *m, char *ret_why)
{
	int r = string(arena, "Admin.verb", m->verb, WORD_MAX_BYTES, ret_why);

	if (r < 0)
		return r;
	return check_arguments(arena, "Admin", m->arguments, m->n_arguments, ARGUMENT_MAX_BYTES,
			       ret_why);
}

static int check(const struct xd_arena *arena, const Xp__ClientMessage *m, char *ret_why)
{
	switch (m->body_case) {
	case XP__CLIENT_MESSAGE__BODY_HELLO:
		return check_hello(arena, m->hello, ret_why);
	case XP__CLIENT_MESSAGE__BODY_BUFFER_ADD:
		return check_buffer_add(m->buffer_add, ret_why);
	case XP__CLIENT_MESSAGE__BODY_LISTEN:
		return check_listen(arena, m->listen, ret_why);
	case XP__CLIENT_MESSAGE__BODY_ENDPOINT_NEW:
		return check_endpoint_new(arena, m->endpoint_new, ret_why);
	case XP__CLIENT_MESSAGE__BODY_CONNECT:
		return private_data("Connect.private_data", &m->connect->private_data, ret_why);
	case XP__CLIENT_MESSAGE__BODY_ACCEPT:
		return private_data("Accept.private_data", &m->accept->private_data, ret_why);
	case XP__CLIENT_MESSAGE__BODY_REJECT:
		return private_data("Reject.private_data", &m->reject->private_data, ret_why);
	case XP__CLIENT_MESSAGE__BODY_QUERY:
		return check_query(arena, m->query, ret_why);
	case XP__CLIENT_MESSAGE__BODY_ADMIN:
		return check_admin(arena, m->admin, ret_why);
	case XP__CLIENT_MESSAGE__BODY_BUFFER_REMOVE:
	case XP__CLIENT_MESSAGE__BODY_UNLISTEN:
	case XP__CLIENT_MESSAGE__BODY_DISCONNECT:
	case XP__CLIENT_MESSAGE__BODY_ENDPOINT_FREE:
	case XP__CLIENT_MESSAGE__BODY_SUBMIT:
		return 0;
	case XP__CLIENT_MESSAGE__BODY__NOT_SET:
	default:
		return refuse(ret_why, XP_E_UNKNOWN_OPERATION,
			      "the message has no body that this daemon knows");
	}
}

int xd_decode(struct xd_arena *arena, const void *packet, size_t size, Xp__ClientMessage **ret,
	      char *ret_why)
{
	Xp__ClientMessage *m;
	int r;

	if (size > XP_PACKET_BYTES_MAX)
		return refuse(ret_why, XP_E_PROTOCOL, "the packet is %zu bytes long, at most %d",
			      size, XP_PACKET_BYTES_MAX);
	xd_arena_reset(arena);
	m = xp__client_message__unpack(&arena->allocator, size, packet);
	if (!m && arena->exhausted)
		return refuse(ret_why, XP_E_PROTOCOL,
			      "the message needs more memory than %u bytes to decode",
			      XD_ARENA_BYTES);
	if (!m)
		return refuse(ret_why, XP_E_PROTOCOL, "the packet is no ClientMessage");
	if (!m->serial && m->body_case != XP__CLIENT_MESSAGE__BODY_SUBMIT)
		return refuse(ret_why, XP_E_PROTOCOL, "ClientMessage.serial is 0");
	r = check(arena, m, ret_why);
	if (r != -XP_E_PROTOCOL)
		*ret = m;
	return r;
}

static void segments(Xp__Segment *const *in, size_t n, struct xp_segment *ret)
{
	for (size_t i = 0; i < n; i++) {
		ret[i].address = in[i]->address;
		ret[i].length = in[i]->length;
		ret[i].key = in[i]->key;
	}
}

int xd_decode_request(const Xp__Request *in, struct xp_request *ret,
		      struct xp_segment ret_segments[static 2 * XP_SEGMENTS_INLINE], char *ret_why)
{
	if (in->n_local > XP_SEGMENTS_INLINE || in->n_remote > XP_SEGMENTS_INLINE)
		return refuse(ret_why, XP_E_PROTOCOL,
			      "Request has %zu local and %zu remote segments inline, "
			      "at most %u each",
			      in->n_local, in->n_remote, XP_SEGMENTS_INLINE);
	if (in->list_buffer && (in->n_local || in->n_remote))
		return refuse(ret_why, XP_E_PROTOCOL,
			      "Request has segments inline and a list_buffer: "
			      "it can have one of them");
	*ret = (struct xp_request){
		/* No operation has this number; the core says so in the completion. */
		.opcode = (uint8_t)(in->opcode <= UINT8_MAX ? in->opcode : UINT8_MAX),
		.flags = in->flags,
		.wr_id = in->wr_id,
		.cookie = in->cookie,
		.endpoint = in->endpoint,
		.key = in->key,
		.local_count = in->list_buffer ? in->local_count : (uint32_t)in->n_local,
		.remote_count = in->list_buffer ? in->remote_count : (uint32_t)in->n_remote,
		.list_buffer = in->list_buffer,
		.list_offset = in->list_offset,
		.argument = in->argument,
	};
	segments(in->local, in->n_local, ret_segments);
	segments(in->remote, in->n_remote, ret_segments + in->n_local);
	return 0;
}
