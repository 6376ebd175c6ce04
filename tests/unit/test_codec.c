/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Packets of clients, good and hostile, through the decoder and the dispatcher; and what goes
 * back.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "daemon/io/codec.h"
#include "daemon/io/dispatch.h"
#include "tests/unit/stub_core.h"

static struct xd_core *core;
static struct xd_session *session;
static struct xd_arena *arena;
static uint8_t packet[2 * XP_PACKET_BYTES_MAX], reply_buf[XP_PACKET_BYTES_MAX];

static int set_up(void **state)
{
	(void)state;
	core = stub_core_new(NULL);
	session = stub_session_new(core);
	session->greeted = true;
	return xd_arena_new(&arena);
}

static int tear_down(void **state)
{
	(void)state;
	xd_arena_free(arena);
	stub_core_free(core);
	return 0;
}

/* The session starts anew, greeted. */
static void again(void)
{
	session->failed = false;
	session->greeted = true;
	session->out_count = 0;
	session->fail_text[0] = '\0';
	core->discards = 0;
	core->calls = 0;
}

/* What io answered by itself; the caller frees it. NULL: nothing. */
static Xp__DaemonMessage *dispatch_fds(const void *bytes, size_t size, int n_fds)
{
	struct xp_fds fds = { .count = n_fds };
	Xp__DaemonMessage *m;
	uint8_t *reply = NULL;
	size_t n;

	for (int i = 0; i < n_fds; i++)
		fds.fd[i] = 1000 + i;
	n = xd_dispatch(session, arena, bytes, size, &fds, reply_buf, &reply, NULL);
	if (!n)
		return NULL;
	assert_true(n <= XP_PACKET_BYTES_MAX);
	assert_true(reply >= reply_buf && reply + n <= reply_buf + sizeof(reply_buf));
	m = xp__daemon_message__unpack(NULL, n, reply);
	assert_non_null(m);
	return m;
}

static size_t pack(const Xp__ClientMessage *m)
{
	size_t n = xp__client_message__get_packed_size(m);

	assert_true(n <= sizeof(packet));
	return xp__client_message__pack(m, packet);
}

static void expect_failed(const char *part)
{
	if (!session->failed || session->fail_status != -XP_E_PROTOCOL ||
	    !strstr(session->fail_text, part))
		fail_msg("status %d, \"%s\", wanted a protocol failure with \"%s\"",
			 session->failed ? session->fail_status : 0, session->fail_text, part);
	again();
}

static void expect_refused(Xp__DaemonMessage *m, uint64_t serial, int status, const char *part)
{
	assert_non_null(m);
	assert_int_equal(m->body_case, XP__DAEMON_MESSAGE__BODY_REPLY);
	assert_int_equal(m->serial, serial);
	assert_int_equal(m->reply->status, status);
	if (!strstr(m->reply->text, part))
		fail_msg("\"%s\" says nothing of \"%s\"", m->reply->text, part);
	assert_false(session->failed);
	xp__daemon_message__free_unpacked(m, NULL);
}

#define MESSAGE(var, Body, Init, field, CASE)                                                      \
	Xp__##Body body_##var = Init;                                                              \
	Xp__ClientMessage var = XP__CLIENT_MESSAGE__INIT;                                          \
	var.serial = 9;                                                                            \
	var.body_case = XP__CLIENT_MESSAGE__BODY_##CASE;                                           \
	var.field = &body_##var

static void expect_call(const Xp__ClientMessage *m, int n_fds, const char *name)
{
	unsigned calls = core->calls;

	assert_null(dispatch_fds(packet, pack(m), n_fds));
	if (session->failed)
		fail_msg("failed: %s", session->fail_text);
	assert_int_equal(core->calls, calls + 1);
	assert_string_equal(core->last_call, name);
	if (m->body_case != XP__CLIENT_MESSAGE__BODY_SUBMIT)
		assert_int_equal(core->last_serial, m->serial);
}

static void test_hello(void **state)
{
	MESSAGE(m, Hello, XP__HELLO__INIT, hello, HELLO);
	char name[66], text[] = "test";

	(void)state;
	body_m.major = 1;
	body_m.minor = 2;
	body_m.features = UINT64_C(0xffffffffffffffff);
	body_m.name = text;
	session->greeted = false;
	expect_call(&m, 0, "hello");
	assert_string_equal(core->last_text, "test");
	assert_int_equal(core->last_numbers[0], 1);
	assert_int_equal(core->last_numbers[1], 2);
	assert_true(core->last_numbers[2] == UINT64_MAX);
	assert_true(session->greeted);

	assert_null(dispatch_fds(packet, pack(&m), 0));
	expect_failed("Hello can be said once");

	session->greeted = false;
	memset(name, 'n', sizeof(name));
	name[65] = '\0';
	body_m.name = name;
	assert_null(dispatch_fds(packet, pack(&m), 0));
	expect_failed("at most 64");
	session->greeted = false;
	name[64] = '\0';
	expect_call(&m, 0, "hello");

	session->greeted = false;
	body_m.name = text;
	text[1] = '\033';
	assert_null(dispatch_fds(packet, pack(&m), 0));
	expect_failed("control character");
}

static void test_hello_first(void **state)
{
	MESSAGE(m, Unlisten, XP__UNLISTEN__INIT, unlisten, UNLISTEN);
	static const uint8_t unknown[] = { 0x08, 0x05 };

	(void)state;
	session->greeted = false;
	assert_null(dispatch_fds(packet, pack(&m), 0));
	expect_failed("the first message must be Hello, got Unlisten");
	session->greeted = false;
	assert_null(dispatch_fds(unknown, sizeof(unknown), 2));
	assert_int_equal(core->discards, 2);
	expect_failed("the first message must be Hello");
}

static void test_plain_calls(void **state)
{
	MESSAGE(remove, BufferRemove, XP__BUFFER_REMOVE__INIT, buffer_remove, BUFFER_REMOVE);
	MESSAGE(unlisten, Unlisten, XP__UNLISTEN__INIT, unlisten, UNLISTEN);
	MESSAGE(disconnect, Disconnect, XP__DISCONNECT__INIT, disconnect, DISCONNECT);
	MESSAGE(free_it, EndpointFree, XP__ENDPOINT_FREE__INIT, endpoint_free, ENDPOINT_FREE);

	(void)state;
	body_remove.buffer = 0xfffffff1;
	expect_call(&remove, 0, "buffer_remove");
	assert_int_equal(core->last_numbers[0], 0xfffffff1);
	body_unlisten.listener = 3;
	expect_call(&unlisten, 0, "unlisten");
	assert_int_equal(core->last_numbers[0], 3);
	body_disconnect.endpoint = 4;
	expect_call(&disconnect, 0, "disconnect");
	assert_int_equal(core->last_numbers[0], 4);
	body_free_it.endpoint = 5;
	expect_call(&free_it, 0, "endpoint_free");
	assert_int_equal(core->last_numbers[0], 5);
}

static void test_buffer_add(void **state)
{
	MESSAGE(m, BufferAdd, XP__BUFFER_ADD__INIT, buffer_add, BUFFER_ADD);

	(void)state;
	body_m.size_bytes = UINT64_C(1) << 40;
	expect_call(&m, 1, "buffer_add");
	assert_true(core->last_numbers[0] == UINT64_C(1) << 40);
	assert_int_equal(core->discards, 0);

	assert_null(dispatch_fds(packet, pack(&m), 3));
	assert_int_equal(core->discards, 3);
	expect_failed("BufferAdd takes exactly 1 descriptor, got 3");
	assert_null(dispatch_fds(packet, pack(&m), 0));
	expect_failed("BufferAdd takes exactly 1 descriptor, got 0");

	/* Refused for its size: its descriptor must not be lost. */
	body_m.size_bytes++;
	expect_refused(dispatch_fds(packet, pack(&m), 1), 9, -EINVAL, "BufferAdd.size_bytes");
	assert_int_equal(core->discards, 1);
	body_m.size_bytes = 0;
	expect_refused(dispatch_fds(packet, pack(&m), 1), 9, -EINVAL, "at least 1");
	assert_int_equal(core->discards, 2);
}

static void test_descriptors_elsewhere(void **state)
{
	MESSAGE(m, Disconnect, XP__DISCONNECT__INIT, disconnect, DISCONNECT);

	(void)state;
	assert_null(dispatch_fds(packet, pack(&m), 1));
	assert_int_equal(core->discards, 1);
	assert_int_equal(core->calls, 0);
	expect_failed("Disconnect takes exactly 0 descriptors, got 1");
	/* Bytes that are no message, with as many descriptors as there can be. */
	memset(packet, 0xff, 100);
	assert_null(dispatch_fds(packet, 100, XP_FDS_MAX));
	assert_int_equal(core->discards, XP_FDS_MAX);
	expect_failed("no ClientMessage");
}

static void test_listen(void **state)
{
	MESSAGE(m, Listen, XP__LISTEN__INIT, listen, LISTEN);
	char host[257];

	(void)state;
	memset(host, 'h', sizeof(host));
	host[255] = '\0';
	body_m.host = host;
	body_m.port = 65535;
	body_m.backlog = 1024;
	expect_call(&m, 0, "listen");
	assert_int_equal(core->last_numbers[0], 65535);
	assert_int_equal(core->last_numbers[1], 1024);

	body_m.port = 65536;
	expect_refused(dispatch_fds(packet, pack(&m), 0), 9, -EINVAL,
		       "Listen.port is 65536, at most 65535");
	body_m.port = 1;
	body_m.backlog = 1025;
	expect_refused(dispatch_fds(packet, pack(&m), 0), 9, -EINVAL, "Listen.backlog");
	body_m.backlog = 0;
	host[255] = 'h';
	host[256] = '\0';
	expect_refused(dispatch_fds(packet, pack(&m), 0), 9, -EINVAL,
		       "Listen.host is 256 bytes long, at most 255");
}

static void test_endpoint_new(void **state)
{
	MESSAGE(m, EndpointNew, XP__ENDPOINT_NEW__INIT, endpoint_new, ENDPOINT_NEW);
	char host[] = "::1", tcp[] = "tcp", long_name[FABRIC_NAME_MAX + 1], empty[] = "";

	(void)state;
	body_m.host = host;
	body_m.port = 20470;
	body_m.send_depth = 4096;
	body_m.recv_depth = 1;
	body_m.require = tcp;
	expect_call(&m, 0, "endpoint_connect_to");
	assert_string_equal(core->last_text, "::1");
	assert_int_equal(core->last_numbers[1], 4096);

	body_m.request = 5;
	expect_refused(dispatch_fds(packet, pack(&m), 0), 9, -EINVAL, "a host and a request");
	body_m.host = empty;
	body_m.port = 0;
	expect_call(&m, 0, "endpoint_answer");
	assert_int_equal(core->last_numbers[0], 5);
	body_m.request = 0;
	expect_refused(dispatch_fds(packet, pack(&m), 0), 9, -EINVAL, "no host and no request");
	body_m.host = host;
	expect_refused(dispatch_fds(packet, pack(&m), 0), 9, -EINVAL, "EndpointNew.port is 0");
	body_m.port = 1;
	body_m.send_depth = 4097;
	expect_refused(dispatch_fds(packet, pack(&m), 0), 9, -EINVAL, "send_depth");
	body_m.send_depth = 0;
	body_m.recv_depth = 4097;
	expect_refused(dispatch_fds(packet, pack(&m), 0), 9, -EINVAL, "recv_depth");
	body_m.recv_depth = 0;
	memset(long_name, 'x', sizeof(long_name));
	long_name[FABRIC_NAME_MAX] = '\0';
	body_m.require = long_name;
	expect_refused(dispatch_fds(packet, pack(&m), 0), 9, -EINVAL, "require");
	long_name[FABRIC_NAME_MAX - 1] = '\0';
	expect_call(&m, 0, "endpoint_connect_to");
}

static void test_private_data(void **state)
{
	MESSAGE(m, Connect, XP__CONNECT__INIT, connect, CONNECT);
	MESSAGE(accept, Accept, XP__ACCEPT__INIT, accept, ACCEPT);
	MESSAGE(reject, Reject, XP__REJECT__INIT, reject, REJECT);
	uint8_t data[FABRIC_PRIVATE_DATA_MAX + 1];

	(void)state;
	for (size_t i = 0; i < sizeof(data); i++)
		data[i] = (uint8_t)(i * 7);
	body_m.endpoint = 3;
	body_m.private_data.data = data;
	body_m.private_data.len = FABRIC_PRIVATE_DATA_MAX;
	expect_call(&m, 0, "connect");
	assert_int_equal(core->last_numbers[1], FABRIC_PRIVATE_DATA_MAX);
	assert_memory_equal(core->last_text, data, sizeof(core->last_text));
	body_accept.private_data = body_m.private_data;
	expect_call(&accept, 0, "accept");
	body_reject.private_data = body_m.private_data;
	expect_call(&reject, 0, "reject");

	body_m.private_data.len++;
	expect_refused(dispatch_fds(packet, pack(&m), 0), 9, -EINVAL,
		       "Connect.private_data is 257 bytes long, at most 256");
	body_accept.private_data = body_m.private_data;
	expect_refused(dispatch_fds(packet, pack(&accept), 0), 9, -EINVAL, "Accept.private_data");
	body_reject.private_data = body_m.private_data;
	expect_refused(dispatch_fds(packet, pack(&reject), 0), 9, -EINVAL, "Reject.private_data");
}

static void test_admin(void **state)
{
	MESSAGE(m, Admin, XP__ADMIN__INIT, admin, ADMIN);
	char verb[] = "end-session", argument[] = "12", big[257];
	char *arguments[9];

	(void)state;
	for (int i = 0; i < 9; i++)
		arguments[i] = argument;
	body_m.verb = verb;
	body_m.arguments = arguments;
	body_m.n_arguments = 8;
	expect_call(&m, 0, "admin");
	assert_string_equal(core->last_text, "end-session");
	assert_int_equal(core->last_numbers[0], 8);
	assert_int_equal(core->last_numbers[1], 16);
	body_m.n_arguments = 9;
	expect_refused(dispatch_fds(packet, pack(&m), 0), 9, -EINVAL, "at most 8");
	memset(big, 'b', sizeof(big));
	big[256] = '\0';
	body_m.n_arguments = 1;
	arguments[0] = big;
	expect_refused(dispatch_fds(packet, pack(&m), 0), 9, -EINVAL, "Admin.arguments");
	body_m.verb = big;
	expect_refused(dispatch_fds(packet, pack(&m), 0), 9, -EINVAL, "Admin.verb");
}

static void test_serial(void **state)
{
	MESSAGE(m, Disconnect, XP__DISCONNECT__INIT, disconnect, DISCONNECT);
	MESSAGE(submit, Submit, XP__SUBMIT__INIT, submit, SUBMIT);

	(void)state;
	m.serial = UINT64_MAX;
	expect_call(&m, 0, "disconnect");
	m.serial = 0;
	assert_null(dispatch_fds(packet, pack(&m), 0));
	expect_failed("serial is 0");
	submit.serial = 0;
	assert_null(dispatch_fds(packet, pack(&submit), 0));
	assert_false(session->failed);
	assert_int_equal(core->submits, 0);
}

static void test_unknown_body(void **state)
{
	/* serial 5, field 99 with two bytes: from a newer client. */
	static const uint8_t newer[] = { 0x08, 0x05, 0x9a, 0x06, 0x02, 1, 2 };
	/* Known body, unknown field in it. */
	static const uint8_t field[] = { 0x08, 0x06, 0x32, 0x05, 0x08, 0x07, 0xf8, 0x07, 0x01 };

	(void)state;
	expect_refused(dispatch_fds(newer, sizeof(newer), 2), 5, -XP_E_UNKNOWN_OPERATION,
		       "no body");
	assert_int_equal(core->discards, 2);
	expect_refused(dispatch_fds(newer, 2, 0), 5, -XP_E_UNKNOWN_OPERATION, "no body");
	assert_null(dispatch_fds(packet, 0, 0));
	expect_failed("serial is 0");
	assert_int_equal(core->calls, 0);
	assert_null(dispatch_fds(field, sizeof(field), 0));
	assert_false(session->failed);
	assert_int_equal(core->calls, 1);
}

static void test_submit(void **state)
{
	MESSAGE(m, Submit, XP__SUBMIT__INIT, submit, SUBMIT);
	Xp__Segment segment[128], *local[64], *remote[65];
	Xp__Request request = XP__REQUEST__INIT, *requests[] = { &request };

	(void)state;
	for (unsigned i = 0; i < 128; i++) {
		segment[i] = (Xp__Segment)XP__SEGMENT__INIT;
		segment[i].address = UINT64_MAX - i;
		segment[i].length = UINT32_MAX - i;
		segment[i].key = i;
	}
	for (unsigned i = 0; i < 64; i++) {
		local[i] = &segment[i];
		remote[i] = &segment[64 + i];
	}
	remote[64] = remote[0];
	request.opcode = XP_OP_READ;
	request.flags = UINT32_MAX;
	request.wr_id = UINT64_MAX;
	request.cookie = 77;
	request.endpoint = 5;
	request.key = UINT32_MAX;
	request.argument = UINT64_MAX - 1;
	request.local = local;
	request.n_local = 64;
	request.remote = remote;
	request.n_remote = 64;
	/* Means something with a list only. */
	request.local_count = 1000;
	request.remote_count = 1001;
	body_m.requests = requests;
	body_m.n_requests = 1;
	expect_call(&m, 0, "submit");
	assert_int_equal(core->last_request.opcode, XP_OP_READ);
	assert_int_equal(core->last_request.local_count, 64);
	assert_int_equal(core->last_request.remote_count, 64);
	assert_true(core->last_request.wr_id == UINT64_MAX);
	assert_true(core->last_request.argument == UINT64_MAX - 1);
	assert_int_equal(core->last_request.key, UINT32_MAX);
	for (unsigned i = 0; i < 128; i++) {
		assert_true(core->last_segments[i].address == UINT64_MAX - i);
		assert_int_equal(core->last_segments[i].length, UINT32_MAX - i);
		assert_int_equal(core->last_segments[i].key, i);
	}

	request.n_remote = 65;
	assert_null(dispatch_fds(packet, pack(&m), 0));
	assert_int_equal(core->submits, 1);
	expect_failed("64 local and 65 remote segments inline");

	request.list_buffer = 6;
	request.n_remote = 0;
	assert_null(dispatch_fds(packet, pack(&m), 0));
	expect_failed("it can have one of them");
	request.n_local = 0;
	request.opcode = 256 + XP_OP_READ;
	expect_call(&m, 0, "submit");
	assert_int_equal(core->last_request.opcode, 255);
	assert_int_equal(core->last_request.local_count, 1000);
	assert_int_equal(core->last_request.remote_count, 1001);
	assert_int_equal(core->last_request.list_buffer, 6);
}

/* As many small requests as a packet holds: the densest thing that an honest client sends. */
static void test_dense_submit(void **state)
{
	static Xp__Request request[4096];
	static Xp__Request *requests[4096];
	MESSAGE(m, Submit, XP__SUBMIT__INIT, submit, SUBMIT);
	Xp__Segment segment = XP__SEGMENT__INIT, *local[] = { &segment };
	size_t n = 0;

	(void)state;
	segment.length = 1;
	segment.key = 1;
	body_m.requests = requests;
	for (n = 0; n < 4096; n++) {
		request[n] = (Xp__Request)XP__REQUEST__INIT;
		request[n].opcode = XP_OP_RECV;
		request[n].cookie = n + 1;
		request[n].endpoint = 1;
		request[n].local = local;
		request[n].n_local = 1;
		requests[n] = &request[n];
		body_m.n_requests = n + 1;
		if (xp__client_message__get_packed_size(&m) > XP_PACKET_BYTES_MAX)
			break;
	}
	body_m.n_requests = n;
	assert_null(dispatch_fds(packet, pack(&m), 0));
	if (session->failed)
		fail_msg("%zu requests: %s", n, session->fail_text);
	assert_int_equal(core->submits, n);
	assert_true(n > 2000);
}

/* ---- hostile bytes */

static void test_nul_in_string(void **state)
{
	MESSAGE(m, Listen, XP__LISTEN__INIT, listen, LISTEN);
	char host[] = "127.0.0.1/x";
	uint8_t *at;
	size_t n;

	(void)state;
	body_m.host = host;
	n = pack(&m);
	at = memchr(packet, '/', n);
	assert_non_null(at);
	*at = '\0';
	assert_null(dispatch_fds(packet, n, 0));
	expect_failed("Listen.host has a NUL character");
}

static void test_truncated(void **state)
{
	MESSAGE(m, EndpointNew, XP__ENDPOINT_NEW__INIT, endpoint_new, ENDPOINT_NEW);
	char host[] = "localhost";
	unsigned good = 0;
	size_t n;

	(void)state;
	body_m.host = host;
	body_m.port = 7;
	n = pack(&m);
	for (size_t cut = 0; cut < n; cut++) {
		uint8_t *copy = malloc(cut ? cut : 1);
		Xp__DaemonMessage *reply;

		/* On the heap, exactly as long: a read past its end is caught. */
		memcpy(copy, packet, cut);
		reply = dispatch_fds(copy, cut, 0);
		good += reply != NULL;
		if (reply)
			xp__daemon_message__free_unpacked(reply, NULL);
		else
			assert_true(session->failed);
		free(copy);
		again();
	}
	/* The serial alone is a message without a body. */
	assert_int_equal(good, 1);
	assert_int_equal(core->calls, 0);
}

static void test_oversized(void **state)
{
	(void)state;
	memset(packet, 0, sizeof(packet));
	assert_null(dispatch_fds(packet, XP_PACKET_BYTES_MAX + 1, 0));
	expect_failed("at most 65536");
}

/* 64 KiB of `piece`, behind a serial. */
static size_t repeat(const uint8_t *piece, size_t size)
{
	size_t n = 0;

	packet[n++] = 0x08;
	packet[n++] = 0x01;
	while (n + size <= XP_PACKET_BYTES_MAX) {
		memcpy(packet + n, piece, size);
		n += size;
	}
	return n;
}

/* Each costs its reader megabytes and ten thousands of allocations without the arena. */
static void test_costly(void **state)
{
	static const uint8_t unlisten[] = { 0x32, 0x00 };        /* empty, in the oneof */
	static const uint8_t hello[] = { 0x12, 0x02, 0x22, 0x00 }; /* with a string */
	static const uint8_t unknown[] = { 0x80, 0x7f, 0x00 };
	static const uint8_t alternating[] = { 0x32, 0x00, 0x12, 0x00, 0x6a, 0x00 };

	(void)state;
	assert_null(dispatch_fds(packet, repeat(unlisten, sizeof(unlisten)), 0));
	expect_failed("needs more memory than");
	assert_null(dispatch_fds(packet, repeat(hello, sizeof(hello)), 0));
	expect_failed("needs more memory than");
	assert_null(dispatch_fds(packet, repeat(alternating, sizeof(alternating)), 0));
	expect_failed("needs more memory than");
	assert_null(dispatch_fds(packet, repeat(unknown, sizeof(unknown)), 0));
	expect_failed("needs more memory than");
	assert_int_equal(core->calls, 0);
	assert_true(arena->used <= XD_ARENA_BYTES);
}

/* A Submit full of empty requests, or of one request with empty segments. */
static void test_empty_submessages(void **state)
{
	size_t n = 0, body = XP_PACKET_BYTES_MAX - 4;

	(void)state;
	packet[n++] = 0x6a;
	packet[n++] = (uint8_t)(body | 0x80);
	packet[n++] = (uint8_t)(body >> 7 | 0x80);
	packet[n++] = (uint8_t)(body >> 14);
	while (n + 2 <= XP_PACKET_BYTES_MAX) {
		packet[n++] = 0x0a;
		packet[n++] = 0x00;
	}
	assert_null(dispatch_fds(packet, n, 0));
	expect_failed("needs more memory than");

	body -= 4;
	packet[4] = 0x0a;
	packet[5] = (uint8_t)(body | 0x80);
	packet[6] = (uint8_t)(body >> 7 | 0x80);
	packet[7] = (uint8_t)(body >> 14);
	for (n = 8; n + 2 <= XP_PACKET_BYTES_MAX; n += 2) {
		packet[n] = 0x3a;
		packet[n + 1] = 0x00;
	}
	assert_null(dispatch_fds(packet, n, 0));
	assert_true(session->failed);
	again();
	assert_int_equal(core->submits, 0);
}

static void test_groups(void **state)
{
	static const uint8_t start[] = { 0x83, 0x01 }, both[] = { 0x83, 0x01, 0x84, 0x01 };

	(void)state;
	assert_null(dispatch_fds(packet, repeat(start, sizeof(start)), 0));
	expect_failed("no ClientMessage");
	assert_null(dispatch_fds(packet, repeat(both, sizeof(both)), 0));
	expect_failed("no ClientMessage");
}

/*
 * The last of a repeated oneof member counts, as protobuf has it; nothing of the first is left
 * over.
 */
static void test_repeated_body(void **state)
{
	static const uint8_t twice[] = { 0x08, 0x01, 0x32, 0x02, 0x08, 0x07, 0x32, 0x00 };
	static const uint8_t other[] = { 0x08, 0x01, 0x32, 0x02, 0x08,
					 0x07, 0x5a, 0x02, 0x08, 0x09 };

	(void)state;
	assert_null(dispatch_fds(twice, sizeof(twice), 0));
	assert_false(session->failed);
	assert_string_equal(core->last_call, "unlisten");
	assert_int_equal(core->last_numbers[0], 0);
	assert_null(dispatch_fds(other, sizeof(other), 0));
	assert_string_equal(core->last_call, "disconnect");
	assert_int_equal(core->last_numbers[0], 9);
	assert_int_equal(core->calls, 2);
}

/*
 * Whatever the bytes, the session fails or goes on; nothing is read outside the packet
 * (sanitizers).
 */
static void test_random_bytes(void **state)
{
	MESSAGE(m, Connect, XP__CONNECT__INIT, connect, CONNECT);
	uint32_t seed = 12345;
	uint8_t data[100] = { 0 };
	size_t n;

	(void)state;
	body_m.endpoint = 3;
	body_m.private_data.data = data;
	body_m.private_data.len = sizeof(data);
	n = pack(&m);
	for (int round = 0; round < 20000; round++) {
		uint8_t *copy = malloc(n);
		Xp__DaemonMessage *reply;

		memcpy(copy, packet, n);
		for (int flips = 0; flips < 1 + round % 4; flips++) {
			seed = seed * 1664525 + 1013904223;
			copy[(seed >> 8) % n] ^= (uint8_t)(1u << (seed >> 29));
		}
		reply = dispatch_fds(copy, n, 0);
		if (reply)
			xp__daemon_message__free_unpacked(reply, NULL);
		free(copy);
		again();
	}
}

/* ---- what goes back */

static Xp__DaemonMessage *encoded(struct xd_out *out)
{
	uint8_t buf[XP_PACKET_BYTES_MAX];
	size_t n = xd_encode(out, buf);
	Xp__DaemonMessage *m = xp__daemon_message__unpack(NULL, n, buf);

	assert_non_null(m);
	return m;
}

static void test_encode(void **state)
{
	const struct fabric_caps caps = {
		.name = "iwarp", .max_sge = 16, .max_recv_sge = 8, .max_message_bytes = 1u << 31,
		.private_connect_bytes = 56, .private_accept_bytes = 196,
		.private_reject_bytes = 148, .remote_invalidate = true, .keys = FABRIC_KEYS_SLAB,
	};
	struct xd_out out = { .kind = XD_OUT_HELLO, .serial = 3, .requests_max = 100,
			      .bytes_max = UINT64_MAX };
	Xp__DaemonMessage *m = encoded(&out);

	(void)state;
	assert_int_equal(m->body_case, XP__DAEMON_MESSAGE__BODY_HELLO_REPLY);
	assert_int_equal(m->serial, 3);
	assert_int_equal(m->hello_reply->major, XP_PROTOCOL_MAJOR);
	assert_int_equal(m->hello_reply->requests_in_flight_max, 100);
	assert_true(m->hello_reply->bytes_in_flight_max == UINT64_MAX);
	assert_true(*m->hello_reply->version);
	xp__daemon_message__free_unpacked(m, NULL);

	out = (struct xd_out){ .kind = XD_OUT_REPLY, .serial = UINT64_MAX, .status = -EINVAL,
			       .number = 7, .text = "caf\xc3\xa9\n" };
	assert_int_equal(xc_addr_parse("::1", 20470, &out.address), 0);
	m = encoded(&out);
	assert_int_equal(m->reply->status, -EINVAL);
	assert_int_equal(m->reply->number, 7);
	assert_string_equal(m->reply->address, "[::1]:20470");
	assert_string_equal(m->reply->text, "caf???");
	assert_true(m->serial == UINT64_MAX);
	xp__daemon_message__free_unpacked(m, NULL);

	out = (struct xd_out){ .kind = XD_OUT_ENDPOINT_READY, .number = 4, .caps = &caps,
			       .route = "it is the same host" };
	m = encoded(&out);
	assert_int_equal(m->endpoint_ready->max_segments, 8);
	assert_int_equal(m->endpoint_ready->capabilities, 5);
	assert_string_equal(m->endpoint_ready->fabric, "iwarp");
	assert_string_equal(m->endpoint_ready->route, "it is the same host");
	assert_int_equal(m->endpoint_ready->private_accept_bytes, 196);
	xp__daemon_message__free_unpacked(m, NULL);

	out.caps = NULL;
	out.status = -ENETUNREACH;
	m = encoded(&out);
	assert_int_equal(m->endpoint_ready->status, -ENETUNREACH);
	xp__daemon_message__free_unpacked(m, NULL);
}

static void test_encode_events(void **state)
{
	struct xd_out out = { .kind = XD_OUT_CONNECT_REQUEST, .number = 2, .request = UINT64_MAX,
			      .peer_uid = -1, .private_data_bytes = FABRIC_PRIVATE_DATA_MAX };
	Xp__DaemonMessage *m;

	(void)state;
	memset(out.private_data, 0xa5, sizeof(out.private_data));
	m = encoded(&out);
	assert_true(m->connect_request->request == UINT64_MAX);
	assert_int_equal(m->connect_request->peer_uid, -1);
	assert_int_equal(m->connect_request->private_data.len, FABRIC_PRIVATE_DATA_MAX);
	assert_memory_equal(m->connect_request->private_data.data, out.private_data,
			    FABRIC_PRIVATE_DATA_MAX);
	assert_int_equal(m->serial, 0);
	xp__daemon_message__free_unpacked(m, NULL);

	out = (struct xd_out){ .kind = XD_OUT_CONNECTED, .number = 2, .status = -XP_E_REJECTED,
			       .text = "no", .private_data_bytes = 1, .private_data = { 9 } };
	m = encoded(&out);
	assert_int_equal(m->connected->status, -XP_E_REJECTED);
	assert_int_equal(m->connected->private_data.data[0], 9);
	xp__daemon_message__free_unpacked(m, NULL);

	out = (struct xd_out){ .kind = XD_OUT_DISCONNECTED, .number = 2, .status = 0 };
	m = encoded(&out);
	assert_int_equal(m->disconnected->endpoint, 2);
	xp__daemon_message__free_unpacked(m, NULL);

	out = (struct xd_out){ .kind = XD_OUT_GOODBYE, .status = -XP_E_SHUTDOWN, .text = "bye" };
	m = encoded(&out);
	assert_int_equal(m->body_case, XP__DAEMON_MESSAGE__BODY_GOODBYE);
	assert_string_equal(m->goodbye->text, "bye");
	xp__daemon_message__free_unpacked(m, NULL);
}

/* The largest completions there can be fill a packet, and none spills. */
static void test_batch(void **state)
{
	struct xd_out out = { .kind = XD_OUT_COMPLETION };
	uint8_t buf[XP_PACKET_BYTES_MAX], *at;
	struct xd_batch batch;
	Xp__DaemonMessage *m;
	size_t n;

	(void)state;
	memset(&out.completion, 0xff, sizeof(out.completion));
	out.completion.status = INT32_MIN;
	memset(out.text, 't', sizeof(out.text) - 1);
	xd_batch_init(&batch, buf);
	while (xd_batch_room(&batch))
		xd_batch_add(&batch, &out);
	n = xd_batch_finish(&batch, &at);
	assert_true(at >= buf && at + n <= buf + sizeof(buf));
	assert_true(n > XP_PACKET_BYTES_MAX - 1024);
	m = xp__daemon_message__unpack(NULL, n, at);
	assert_non_null(m);
	assert_int_equal(m->completions->n_completions, batch.count);
	assert_true(m->completions->completions[0]->wr_id == UINT64_MAX);
	assert_int_equal(m->completions->completions[batch.count - 1]->rkey, UINT32_MAX);
	assert_int_equal(strlen(m->completions->completions[0]->text), XD_TEXT_MAX - 1);
	xp__daemon_message__free_unpacked(m, NULL);

	/* And one of zeros. */
	memset(&out, 0, sizeof(out));
	xd_batch_init(&batch, buf);
	xd_batch_add(&batch, &out);
	n = xd_batch_finish(&batch, &at);
	assert_int_equal(n, 4);
	m = xp__daemon_message__unpack(NULL, n, at);
	assert_int_equal(m->completions->n_completions, 1);
	xp__daemon_message__free_unpacked(m, NULL);
}

static void test_query(void **state)
{
	MESSAGE(m, Query, XP__QUERY__INIT, query, QUERY);
	char table[] = "rows", other[] = "none";
	unsigned rows = 0, parts = 0;

	(void)state;
	core->table_rows = 1000;
	m.serial = UINT64_MAX;
	body_m.table = table;
	do {
		Xp__DaemonMessage *reply = dispatch_fds(packet, pack(&m), 0);
		Xp__QueryReply *q;

		assert_non_null(reply);
		assert_int_equal(reply->body_case, XP__DAEMON_MESSAGE__BODY_QUERY_REPLY);
		assert_true(reply->serial == UINT64_MAX);
		q = reply->query_reply;
		assert_int_equal(q->n_columns, parts ? 0 : 2);
		if (!parts) {
			assert_string_equal(q->columns[0]->name, "name");
			assert_string_equal(q->columns[1]->unit, "bytes");
			assert_true(q->columns[1]->number);
		}
		assert_int_equal(q->n_cells % 2, 0);
		assert_int_equal(strlen(q->cells[0]), 255);
		assert_int_equal(atoi(q->cells[1]), rows);
		rows += (unsigned)q->n_cells / 2;
		parts++;
		body_m.cursor = q->cursor;
		xp__daemon_message__free_unpacked(reply, NULL);
	} while (body_m.cursor);
	assert_int_equal(rows, 1000);
	assert_true(parts > 3);

	body_m.table = other;
	{
		Xp__DaemonMessage *reply = dispatch_fds(packet, pack(&m), 0);

		assert_int_equal(reply->query_reply->status, -ENOENT);
		assert_string_equal(reply->query_reply->text, "there is no such table");
		xp__daemon_message__free_unpacked(reply, NULL);
	}
	core->table_rows = 0;
	body_m.table = table;
	{
		Xp__DaemonMessage *reply = dispatch_fds(packet, pack(&m), 0);

		assert_int_equal(reply->query_reply->n_cells, 0);
		assert_int_equal(reply->query_reply->n_columns, 2);
		xp__daemon_message__free_unpacked(reply, NULL);
	}
}

/* What the daemon answers to these arguments, in `text`. */
static void query_about(char **arguments, size_t n, const char *text)
{
	MESSAGE(m, Query, XP__QUERY__INIT, query, QUERY);
	char table[] = "rows";
	Xp__DaemonMessage *reply;

	m.serial = 3;
	body_m.table = table;
	body_m.arguments = arguments;
	body_m.n_arguments = n;
	reply = dispatch_fds(packet, pack(&m), 0);
	assert_non_null(reply);
	assert_int_equal(reply->body_case, XP__DAEMON_MESSAGE__BODY_QUERY_REPLY);
	assert_int_equal(reply->query_reply->status, -EINVAL);
	assert_string_equal(reply->query_reply->text, text);
	xp__daemon_message__free_unpacked(reply, NULL);
}

static void test_query_arguments(void **state)
{
	static char word[] = "12x8,1x3";
	char *arguments[9], longest[4098];

	(void)state;
	for (size_t i = 0; i < XC_ARRAY_SIZE(arguments); i++)
		arguments[i] = word;
	query_about(arguments, 1, "1: 12x8,1x3");
	query_about(arguments, 8, "8: 12x8,1x3");
	query_about(arguments, 9, "Query has 9 arguments, at most 8");
	memset(longest, 'y', sizeof(longest) - 1);
	longest[4097] = '\0';
	arguments[7] = longest;
	query_about(arguments, 8, "Query.arguments is 4097 bytes long, at most 4096");
	longest[4096] = '\0';
	query_about(arguments, 8, "8: yyyyyyyyyyyyyyyyyyyy");
	assert_int_equal(core->queries, 3);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		T(test_hello),
		T(test_hello_first),
		T(test_plain_calls),
		T(test_buffer_add),
		T(test_descriptors_elsewhere),
		T(test_listen),
		T(test_endpoint_new),
		T(test_private_data),
		T(test_admin),
		T(test_serial),
		T(test_unknown_body),
		T(test_submit),
		T(test_dense_submit),
		T(test_nul_in_string),
		T(test_truncated),
		T(test_oversized),
		T(test_costly),
		T(test_empty_submessages),
		T(test_groups),
		T(test_repeated_body),
		T(test_random_bytes),
		T(test_encode),
		T(test_encode_events),
		T(test_batch),
		T(test_query),
		T(test_query_arguments),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
