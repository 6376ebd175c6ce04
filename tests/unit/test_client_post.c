/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#define _GNU_SOURCE 1 /* MAP_FIXED_NOREPLACE */
/* The library: what a post becomes, what is refused and why, memory that is carried. */
#include "tests/unit/cm.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "tests/unit/fake_daemon.h"

static struct fake fake;
static struct xfer_client *c;
static struct xfer_ep *ep;
static struct xfer_buf *buf;
static uint8_t *data;

#define BUF_BYTES 65536
#define CARRY_BYTES (4u << 20)

static int setup(void **state)
{
	struct xfer_client_options o = { .size = sizeof(o), .carry_bytes = CARRY_BYTES };

	(void)state;
	fake_init(&fake);
	fake_start(&fake);
	if (fake_client(&fake, &o, &c) < 0)
		return -1;
	ep = fake_ep(&fake, c, true);
	if (xfer_buf_new(c, BUF_BYTES, 0, &buf) < 0)
		return -1;
	data = xfer_buf_data(buf);
	for (int i = 0; i < BUF_BYTES; i++)
		data[i] = (uint8_t)(i * 7);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	xfer_client_free(c);
	fake_done(&fake);
	return 0;
}

static struct xfer_event poll_one(void)
{
	struct xfer_event e;

	assert_int_equal(xfer_poll(c, &e, 1, 20000), 1);
	return e;
}

static void expect_completion(uint64_t wr_id, int status)
{
	struct xfer_event e = poll_one();

	assert_int_equal(e.type, XFER_EVENT_COMPLETION);
	assert_int_equal(e.wr_id, wr_id);
	assert_int_equal(e.status, status);
	assert_ptr_equal(e.ep, ep);
}

static void complete(size_t i, int status, uint64_t byte_len)
{
	fake_wait_requests(&fake, i + 1);
	fake_say_completion(&fake, &fake.requests[i], status, byte_len);
}

static void a_read(void **state)
{
	struct iovec local[3] = { { data + 10, 100 }, { data, 0 }, { data + 1000, 28 } };
	struct xfer_token remote[2] = { { 0x5000, 128, 0xbeef }, { 1, 0, 2 } };
	const struct fake_request *r = &fake.requests[0];
	struct xfer_event e;
	uint64_t cookie = 0;

	(void)state;
	assert_int_equal(xfer_post_read(ep, local, 3, remote, 2, 42, XFER_FENCE, &cookie), 0);
	fake_wait_requests(&fake, 1);
	assert_int_equal(r->opcode, XP_OP_READ);
	assert_int_equal(r->flags, XP_F_FENCE);
	assert_int_equal(r->wr_id, 42);
	assert_int_equal(r->cookie, cookie);
	assert_int_equal(r->endpoint, ep->number);
	assert_int_equal(r->n_local, 2);
	assert_int_equal(r->n_remote, 1);
	assert_int_equal(r->local[0].address, 10);
	assert_int_equal(r->local[0].length, 100);
	assert_int_equal(r->local[0].key, buf->number);
	assert_int_equal(r->local[1].address, 1000);
	assert_int_equal(r->remote[0].address, 0x5000);
	assert_int_equal(r->remote[0].key, 0xbeef);
	complete(0, 0, 128);
	e = poll_one();
	assert_int_equal(e.type, XFER_EVENT_COMPLETION);
	assert_int_equal(e.opcode, XFER_OP_READ);
	assert_int_equal(e.wr_id, 42);
	assert_int_equal(e.byte_len, 128);
	assert_int_equal(e.status, 0);
	assert_string_equal(e.text, "");
}

static void nothing_at_all(void **state)
{
	struct iovec v[2] = { { NULL, 0 }, { data, 0 } };
	struct xfer_token t = { 5, 0, 6 };
	const struct fake_request *r = fake.requests;

	(void)state;
	assert_int_equal(xfer_post_read(ep, v, 2, &t, 1, 1, 0, NULL), 0);
	assert_int_equal(xfer_post_send(ep, v, 2, 2, 0, NULL), 0);
	assert_int_equal(xfer_post_recv(ep, NULL, 0, 3, 0, NULL), 0);
	fake_wait_requests(&fake, 3);
	assert_int_equal(r[0].n_local, 1);
	assert_int_equal(r[0].local[0].length, 0);
	assert_int_equal(r[0].n_remote, 1);
	assert_int_equal(r[0].remote[0].key, 6);
	assert_int_equal(r[1].n_local, 0);
	assert_int_equal(r[2].n_local, 0);
}

static void each_operation(void **state)
{
	struct iovec v = { data, 8 };
	struct xfer_token t = { 1, 8, 2 };
	const struct fake_request *r = fake.requests;

	(void)state;
	assert_int_equal(xfer_post_write(ep, &v, 1, &t, 1, 0, XFER_PLACED, NULL), 0);
	assert_int_equal(xfer_post_write_imm(ep, &v, 1, &t, 1, 0x1234, 1, 0, NULL), 0);
	assert_int_equal(xfer_post_send(ep, &v, 1, 2, XFER_SOLICITED, NULL), 0);
	assert_int_equal(xfer_post_send_inv(ep, &v, 1, 0xfeed, 3, 0, NULL), 0);
	assert_int_equal(xfer_post_send_imm(ep, NULL, 0, 0x5678, 4, 0, NULL), 0);
	assert_int_equal(xfer_post_recv(ep, &v, 1, 5, 0, NULL), 0);
	assert_int_equal(xfer_grant(ep, data + 3, 5, XFER_GRANT_WRITE, 900, 6, 0, NULL), 0);
	assert_int_equal(xfer_revoke(ep, 77, 7, 0, NULL), 0);
	assert_int_equal(xfer_cancel(ep, 0xc00c1e, 8), 0);
	fake_wait_requests(&fake, 9);
	assert_int_equal(r[0].opcode, XP_OP_WRITE);
	assert_int_equal(r[0].flags, XP_F_PLACED);
	assert_int_equal(r[1].flags, XP_F_IMMEDIATE);
	assert_int_equal(r[1].key, 0x1234);
	assert_int_equal(r[2].opcode, XP_OP_SEND);
	assert_int_equal(r[2].flags, XP_F_SOLICITED);
	assert_int_equal(r[3].flags, XP_F_INVALIDATE);
	assert_int_equal(r[3].key, 0xfeed);
	assert_int_equal(r[4].n_local, 0);
	assert_int_equal(r[4].key, 0x5678);
	assert_int_equal(r[5].opcode, XP_OP_RECV);
	assert_int_equal(r[6].opcode, XP_OP_GRANT);
	assert_int_equal(r[6].flags, XP_F_GRANT_WRITE);
	assert_int_equal(r[6].argument, 900);
	assert_int_equal(r[6].n_local, 1);
	assert_int_equal(r[6].local[0].address, 3);
	assert_int_equal(r[7].opcode, XP_OP_REVOKE);
	assert_int_equal(r[7].key, 77);
	assert_int_equal(r[8].opcode, XP_OP_CANCEL);
	assert_int_equal(r[8].argument, 0xc00c1e);
	complete(6, 0, 5);
	{
		struct xfer_event e = poll_one();

		assert_int_equal(e.opcode, XFER_OP_GRANT);
		assert_int_equal(e.grant, 77);
		assert_int_equal(e.token.address, 0x1000);
		assert_int_equal(e.token.length, 5);
		assert_int_equal(e.token.rkey, 0xabcd);
	}
	complete(8, 0, 0);
	assert_int_equal(poll_one().cancelled, XFER_CANCEL_TOO_LATE);
	complete(2, -XFER_E_FLUSHED, 0);
	{
		struct xfer_event e = poll_one();

		assert_int_equal(e.status, -XFER_E_FLUSHED);
		assert_string_equal(e.text, "it did not go well");
	}
}

static void bad_shapes(void **state)
{
	struct iovec v[3] = { { data, 8 }, { NULL, 0 }, { data, 8 } };
	struct iovec *huge = calloc(4097, sizeof(*huge));
	struct xfer_token t[3] = { { 1, 8, 2 }, { 1, 8, 2 }, { 1, 0, 2 } };

	(void)state;
	refused(xfer_post_read(NULL, v, 1, t, 1, 0, 0, NULL), -EINVAL, "the endpoint is NULL");
	refused(xfer_post_read(ep, v, 0, t, 1, 0, 0, NULL), -EINVAL,
		"read: 0 local segments: 1 to 4096");
	refused(xfer_post_read(ep, v, -1, t, 1, 0, 0, NULL), -EINVAL, "-1 local segments");
	refused(xfer_post_read(ep, huge, 4097, t, 1, 0, 0, NULL), -EINVAL, "4097 local segments");
	refused(xfer_post_write(ep, v, 1, t, 0, 0, 0, NULL), -EINVAL,
		"write: 0 remote segments: 1 to 4096");
	refused(xfer_post_send(ep, huge, 4097, 0, 0, NULL), -EINVAL,
		"send: 4097 local segments: 0");
	refused(xfer_post_read(ep, NULL, 1, t, 1, 0, 0, NULL), -EINVAL,
		"the list of local segments is NULL");
	refused(xfer_post_read(ep, v, 1, NULL, 1, 0, 0, NULL), -EINVAL,
		"the list of remote segments is NULL");
	refused(xfer_post_read(ep, v, 3, t, 1, 0, 0, NULL), -EINVAL,
		"read: 16 local bytes, but 8 remote bytes");
	v[1].iov_len = 5;
	refused(xfer_post_read(ep, v, 3, t, 1, 0, 0, NULL), -EINVAL,
		"read: local segment 1: 5 bytes at NULL");
	v[1] = (struct iovec){ data, SIZE_MAX };
	refused(xfer_post_write(ep, v, 3, t, 1, 0, 0, NULL), -EINVAL,
		"write: local segment 1: 18446744073709551615 bytes run over the end of memory");
	v[1] = (struct iovec){ (void *)4096, (UINT64_C(1) << 40) + 1 };
	refused(xfer_post_write(ep, v, 3, t, 1, 0, 0, NULL), -EINVAL, "more than 2^40 bytes");
	t[1].address = UINT64_MAX;
	refused(xfer_post_read(ep, v, 1, t, 3, 0, 0, NULL), -EINVAL,
		"read: remote segment 1: 8 bytes run over the end of memory");
	refused(xfer_post_read(ep, v, 1, t, 1, 0, XFER_PLACED, NULL), -EINVAL,
		"read: flags 0x8 are not for this operation");
	refused(xfer_post_recv(ep, v, 1, 0, XFER_QUIET, NULL), -EINVAL, "recv: flags 0x2");
	refused(xfer_post_send(ep, v, 1, 0, 0x80000000u, NULL), -EINVAL, "flags 0x80000000");
	refused(xfer_grant(ep, data, 8, XFER_GRANT_READ, 0, 0, XFER_QUIET, NULL), -EINVAL,
		"grant: flags 0x2");
	refused(xfer_grant(ep, data, 8, XFER_GRANT_READ | XFER_GRANT_WRITE, 0, 0, 0, NULL), -EINVAL,
		"grant: access 0x300");
	refused(xfer_grant(ep, data, 8, 0, 0, 0, 0, NULL), -EINVAL, "grant: access 0x0");
	refused(xfer_grant(ep, data, 0, XFER_GRANT_READ, 0, 0, 0, NULL), -EINVAL,
		"grant: 0 bytes: 1 to 2^32-1");
	refused(xfer_grant(ep, data, UINT64_C(1) << 32, XFER_GRANT_READ, 0, 0, 0, NULL), -EINVAL,
		"grant: 4294967296 bytes");
	refused(xfer_grant(ep, NULL, 8, XFER_GRANT_READ, 0, 0, 0, NULL), -EINVAL,
		"8 bytes at NULL");
	refused(xfer_grant(ep, data + BUF_BYTES - 7, 8, XFER_GRANT_READ, 0, 0, 0, NULL), -EFAULT,
		"grant: not all of the 8 bytes are in a buffer");
	refused(xfer_grant(ep, v, 8, XFER_GRANT_READ, 0, 0, 0, NULL), -EFAULT, "in a buffer");
	assert_int_equal(fake.n_requests, 0);
	assert_int_equal(c->requests.used, 0);
	free(huge);
}

static void states(void **state)
{
	struct iovec v = { data, 8 };
	struct xfer_token t = { 1, 8, 2 };
	struct xfer_ep *e2;

	(void)state;
	assert_int_equal(xfer_ep_new(c, "xfer://127.0.0.1/", NULL, &e2), 0);
	refused(xfer_post_recv(e2, &v, 1, 0, 0, NULL), -ENOTCONN,
		"recv: the endpoint is not ready");
	fake_say_ready(&fake, e2->number, 0);
	assert_int_equal(xfer_ep_wait(e2, XFER_EP_READY, 20000), 0);
	assert_int_equal(poll_one().type, XFER_EVENT_READY);
	refused(xfer_post_send(e2, &v, 1, 0, 0, NULL), -ENOTCONN,
		"send: the endpoint is not connected");
	refused(xfer_post_read(e2, &v, 1, &t, 1, 0, 0, NULL), -ENOTCONN, "not connected");
	refused(xfer_grant(e2, data, 8, XFER_GRANT_READ, 0, 0, 0, NULL), -ENOTCONN,
		"not connected");
	assert_int_equal(xfer_post_recv(e2, &v, 1, 0, 0, NULL), 0);
	fake_say_disconnected(&fake, e2->number, -XFER_E_PEER_GONE);
	assert_int_equal(poll_one().type, XFER_EVENT_DISCONNECTED);
	refused(xfer_post_recv(e2, &v, 1, 0, 0, NULL), -ENOTCONN, "recv: the endpoint has ended");
}

/* Pieces outside buffers and inside them, in one list, in both directions. */
static void carried_out(void **state)
{
	uint8_t own[300];
	struct iovec v[5] = { { own, 100 }, { own + 100, 50 }, { data + 5, 10 }, { own + 200, 1 },
			      { NULL, 0 } };
	const struct fake_request *r = &fake.requests[0];

	(void)state;
	for (size_t i = 0; i < sizeof(own); i++)
		own[i] = (uint8_t)(i + 1);
	assert_int_equal(xfer_post_send(ep, v, 5, 1, 0, NULL), 0);
	/* Posted: the memory was copied already. */
	fake_wait_requests(&fake, 1);
	assert_int_equal(r->n_local, 3); /* neighbours count as one */
	assert_int_equal(r->local[0].length, 150);
	assert_int_equal(r->local[1].key, buf->number);
	assert_int_equal(r->local[2].length, 1);
	assert_memory_equal(fake_memory(&fake, &r->local[0]), own, 100);
	assert_memory_equal(fake_memory(&fake, &r->local[0]) + 100, own + 100, 50);
	assert_memory_equal(fake_memory(&fake, &r->local[2]), own + 200, 1);
	complete(0, 0, 161);
	expect_completion(1, 0);
	assert_int_equal(c->requests.used, 0);
}

static void carried_in(void **state)
{
	uint8_t own[300];
	struct iovec v[3] = { { own, 100 }, { data, 10 }, { own + 100, 200 } };
	struct xfer_token t = { 1, 310, 2 };
	const struct fake_request *r = &fake.requests[0];

	(void)state;
	memset(own, 0, sizeof(own));
	assert_int_equal(xfer_post_read(ep, v, 3, &t, 1, 1, 0, NULL), 0);
	assert_int_equal(xfer_post_recv(ep, v, 3, 2, 0, NULL), 0);
	fake_wait_requests(&fake, 2);
	memset(fake_memory(&fake, &r[0].local[0]), 'a', 100);
	memset(fake_memory(&fake, &r[0].local[2]), 'b', 200);
	memset(fake_memory(&fake, &r[1].local[0]), 'c', 100);
	memset(fake_memory(&fake, &r[1].local[2]), 'd', 200);
	assert_int_equal(own[0], 0);
	complete(0, 0, 310);
	expect_completion(1, 0);
	for (int i = 0; i < 300; i++)
		assert_int_equal(own[i], i < 100 ? 'a' : 'b');
	/* A message of 115 bytes: 100 and 10, and 5 of the last piece. */
	complete(1, 0, 115);
	expect_completion(2, 0);
	for (int i = 0; i < 300; i++)
		assert_int_equal(own[i], i < 100 ? 'c' : i < 105 ? 'd' : 'b');
}

static void a_failed_read_touches_nothing(void **state)
{
	uint8_t own[100];
	struct iovec v = { own, 100 };
	struct xfer_token t = { 1, 100, 2 };

	(void)state;
	memset(own, 'x', sizeof(own));
	assert_int_equal(xfer_post_read(ep, &v, 1, &t, 1, 1, 0, NULL), 0);
	complete(0, -XFER_E_REMOTE_ACCESS, 0);
	expect_completion(1, -XFER_E_REMOTE_ACCESS);
	for (int i = 0; i < 100; i++)
		assert_int_equal(own[i], 'x');
}

/* A piece that begins before a buffer and ends in it. */
static void a_piece_over_a_buffers_edge(void **state)
{
	uint8_t *before = mmap(data - 4096, 4096, PROT_READ | PROT_WRITE,
			       MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
	struct iovec v = { data - 8, 16 };
	const struct fake_request *r = &fake.requests[0];

	(void)state;
	if (before == MAP_FAILED)
		skip(); /* something else lies there */
	memset(data - 8, 'y', 8);
	assert_int_equal(xfer_post_send(ep, &v, 1, 1, 0, NULL), 0);
	fake_wait_requests(&fake, 1);
	assert_int_equal(r->n_local, 2);
	assert_int_equal(r->local[0].length, 8);
	assert_int_not_equal(r->local[0].key, buf->number);
	assert_memory_equal(fake_memory(&fake, &r->local[0]), "yyyyyyyy", 8);
	assert_int_equal(r->local[1].address, 0);
	assert_int_equal(r->local[1].length, 8);
	assert_int_equal(r->local[1].key, buf->number);
	munmap(before, 4096);
}

static void long_lists_go_by_reference(void **state)
{
	static struct iovec v[4096];
	static struct xfer_token t[4096];
	const struct fake_request *r = &fake.requests[0];

	(void)state;
	for (uint32_t i = 0; i < 4096; i++) {
		v[i] = (struct iovec){ data + i * 16, i % 15 + 1 };
		t[i] = (struct xfer_token){ i, i % 15 + 1, i + 1 };
	}
	assert_int_equal(xfer_post_write(ep, v, 4096, t, 4096, 1, 0, NULL), 0);
	assert_int_equal(xfer_post_write(ep, v, 65, t, 65, 2, 0, NULL), 0);
	assert_int_equal(xfer_post_write(ep, v, 64, t, 64, 3, 0, NULL), 0);
	memset(v, 0, sizeof(v)); /* they may be reused at once */
	fake_wait_requests(&fake, 3);
	assert_int_not_equal(r[0].list_buffer, 0);
	assert_int_not_equal(r[1].list_buffer, 0);
	assert_int_equal(r[2].list_buffer, 0);
	assert_int_equal(r[0].n_local, 4096);
	assert_int_equal(r[0].n_remote, 4096);
	for (uint32_t i = 0; i < 4096; i++) {
		assert_int_equal(r[0].local[i].address, i * 16);
		assert_int_equal(r[0].local[i].length, i % 15 + 1);
		assert_int_equal(r[0].local[i].key, buf->number);
		assert_int_equal(r[0].remote[i].address, i);
		assert_int_equal(r[0].remote[i].key, i + 1);
	}
	assert_int_equal(r[1].n_local, 65);
	assert_int_equal(r[2].n_local, 64);
	for (size_t i = 0; i < 3; i++) {
		complete(i, 0, 0);
		expect_completion(i + 1, 0);
	}
}

/* A long list of carried pieces: one segment, and many pieces to put back. */
static void a_long_carried_read(void **state)
{
	static uint8_t own[4000][3];
	static struct iovec v[4000];
	struct xfer_token t = { 1, 8000, 2 };
	const struct fake_request *r = &fake.requests[0];

	(void)state;
	memset(own, 0, sizeof(own));
	for (int i = 0; i < 4000; i++)
		v[i] = (struct iovec){ own[i], 2 };
	assert_int_equal(xfer_post_read(ep, v, 4000, &t, 1, 1, 0, NULL), 0);
	fake_wait_requests(&fake, 1);
	assert_int_equal(r->n_local, 1);
	for (int i = 0; i < 8000; i++)
		fake_memory(&fake, &r->local[0])[i] = (uint8_t)(i % 251 + 1);
	complete(0, 0, 8000);
	expect_completion(1, 0);
	for (int i = 0; i < 4000; i++) {
		assert_int_equal(own[i][0], 2 * i % 251 + 1);
		assert_int_equal(own[i][1], (2 * i + 1) % 251 + 1);
		assert_int_equal(own[i][2], 0);
	}
}

static void carried_memory_is_bounded(void **state)
{
	uint8_t *own = calloc(1, CARRY_BYTES + 1);
	struct iovec all = { own, CARRY_BYTES }, more = { own, CARRY_BYTES + 1 };
	struct iovec part = { own, 3u << 20 }, little = { own, 64 };
	struct xfer_token t = { 1, CARRY_BYTES + 1, 2 };

	(void)state;
	refused(xfer_post_write(ep, &more, 1, &t, 1, 0, 0, NULL), -EMSGSIZE,
		"4194305 bytes outside buffers: carry_bytes of this client is 4194304");
	t.length = 64;
	assert_int_equal(xfer_post_write(ep, &little, 1, &t, 1, 1, 0, NULL), 0);
	assert_int_equal(c->carry.bytes, 1u << 20);
	t.length = 3u << 20;
	assert_int_equal(xfer_post_write(ep, &part, 1, &t, 1, 2, 0, NULL), 0);
	assert_int_equal(c->carry.bytes, 4u << 20);
	t.length = CARRY_BYTES;
	refused(xfer_post_write(ep, &all, 1, &t, 1, 3, 0, NULL), -EAGAIN, "in use");
	complete(0, 0, 0);
	complete(1, 0, 0);
	expect_completion(1, 0);
	expect_completion(2, 0);
	/* Both blocks are idle and too small: they make room for one that is not. */
	assert_int_equal(xfer_post_write(ep, &all, 1, &t, 1, 3, 0, NULL), 0);
	assert_int_equal(c->carry.bytes, CARRY_BYTES);
	assert_int_equal(fake.seen[XP__CLIENT_MESSAGE__BODY_BUFFER_REMOVE], 2);
	complete(2, 0, 0);
	expect_completion(3, 0);
	free(own);
}

static void no_carried_memory_to_be_had(void **state)
{
	uint8_t own[8];
	struct iovec v = { own, 8 };

	(void)state;
	fake_set(&fake, reply_status, -XFER_E_QUOTA);
	refused(xfer_post_send(ep, &v, 1, 0, 0, NULL), -XFER_E_QUOTA, "because the test wants it");
	assert_int_equal(c->carry.bytes, 0);
	assert_int_equal(c->requests.used, 0);
	fake_set(&fake, reply_status, 0);
	assert_int_equal(xfer_post_send(ep, &v, 1, 0, 0, NULL), 0);
}

/* First fit, given back in any order, comes together again. */
static void chunks(void **state)
{
	struct cl_chunk chunk[64], whole;
	uint8_t own[8];
	struct iovec v = { own, 8 };
	uint64_t seed = 1;

	(void)state;
	assert_int_equal(xfer_post_send(ep, &v, 1, 0, 0, NULL), 0); /* makes a block */
	complete(0, 0, 8);
	expect_completion(0, 0);
	memset(chunk, 0, sizeof(chunk));
	for (int turn = 0; turn < 20000; turn++) {
		struct cl_chunk *k;

		seed = seed * UINT64_C(6364136223846793005) + 1442695040888963407u;
		k = &chunk[seed >> 58];
		if (k->block) {
			for (uint64_t i = 0; i < k->bytes; i += 63)
				assert_int_equal(cl_chunk_data(k)[i], (uint8_t)(k - chunk));
			cl_carry_give(&c->carry, k);
		} else if (cl_carry_take(&c->carry, (seed >> 20) % 20000 + 1, k) == 0) {
			memset(cl_chunk_data(k), (int)(k - chunk), k->bytes);
		}
	}
	for (int i = 0; i < 64; i++)
		cl_carry_give(&c->carry, &chunk[i]);
	assert_int_equal(cl_carry_take(&c->carry, 1u << 20, &whole), 0);
	cl_carry_give(&c->carry, &whole);
}

static void quiet(void **state)
{
	uint8_t own[8] = { 0 };
	struct iovec v = { data, 8 }, carried = { own, 8 };
	const struct fake_request *r = fake.requests;
	struct xfer_event e;

	(void)state;
	/* The daemon answers a quiet request only if it fails ... */
	assert_int_equal(xfer_post_send(ep, &v, 1, 1, XFER_QUIET, NULL), 0);
	assert_int_equal(c->requests.used, 0);
	/* ... but must answer this one, and the library keeps it to itself. */
	assert_int_equal(xfer_post_send(ep, &carried, 1, 2, XFER_QUIET, NULL), 0);
	assert_int_equal(xfer_post_send(ep, &carried, 1, 3, XFER_QUIET, NULL), 0);
	assert_int_equal(xfer_post_send(ep, &v, 1, 4, 0, NULL), 0);
	fake_wait_requests(&fake, 4);
	assert_int_equal(r[0].flags, XP_F_QUIET);
	assert_int_equal(r[1].flags, 0);
	assert_true(r[0].cookie != 0 && r[0].cookie != r[1].cookie);
	complete(1, 0, 8);
	complete(2, -XFER_E_FLUSHED, 0);
	complete(0, -XFER_E_REMOTE_ACCESS, 0);
	complete(3, 0, 8);
	expect_completion(3, -XFER_E_FLUSHED);
	e = poll_one();
	assert_int_equal(e.wr_id, 1);
	assert_int_equal(e.status, -XFER_E_REMOTE_ACCESS);
	assert_int_equal(e.opcode, XFER_OP_SEND);
	assert_ptr_equal(e.ep, ep);
	expect_completion(4, 0);
	assert_int_equal(c->requests.used, 0);
}

static void more_gathers_a_batch(void **state)
{
	struct iovec v = { data, 8 };
	unsigned int before = fake.packets_submit;

	(void)state;
	for (uint64_t i = 0; i < 10; i++)
		assert_int_equal(xfer_post_send(ep, &v, 1, i, XFER_MORE, NULL), 0);
	assert_int_equal(xfer_flush(c), 0);
	fake_wait_requests(&fake, 10);
	assert_int_equal(fake.packets_submit - before, 1);
	assert_int_equal(fake.requests[0].flags, 0);
	for (uint64_t i = 0; i < 3000; i++)
		assert_int_equal(xfer_post_send(ep, &v, 1, i, i < 2999 ? XFER_MORE : 0, NULL), 0);
	fake_wait_requests(&fake, 3010);
	assert_true(fake.packets_submit - before >= 3);
	assert_true(fake.packets_submit - before < 10);
	for (size_t i = 0; i < 3000; i++)
		assert_int_equal(fake.requests[10 + i].wr_id, i);
}

static void a_full_socket_is_eagain(void **state)
{
	struct iovec v = { data, 8 };
	struct xfer_event e;
	size_t n = 0;
	int r;

	(void)state;
	fake_pause(&fake, true);
	while ((r = xfer_post_send(ep, &v, 1, n, 0, NULL)) == 0 && n < 4000)
		n++;
	assert_int_equal(r, -EAGAIN);
	assert_non_null(strstr(sentence(), "poll, then try again"));
	assert_int_equal(c->requests.used, n);
	fake_set(&fake, complete, true);
	fake_pause(&fake, false);
	/* Polling sends what waits in the library, and brings every completion, in order. */
	for (size_t i = 0; i < n; i++) {
		assert_int_equal(xfer_poll(c, &e, 1, 20000), 1);
		assert_int_equal(e.wr_id, i);
	}
	assert_int_equal(xfer_post_send(ep, &v, 1, n, 0, NULL), 0);
	assert_int_equal(poll_one().wr_id, n);
}

/* A round trip that meets a full socket waits for room, behind what was posted. */
static void a_call_behind_a_full_socket(void **state)
{
	struct iovec v = { data, 8 };
	size_t n = 0;

	(void)state;
	fake_pause(&fake, true);
	while (n < 4000 && xfer_post_send(ep, &v, 1, n, 0, NULL) == 0)
		n++;
	c->timeout_ms = 50;
	assert_int_equal(xfer_disconnect(ep), -ETIMEDOUT);
	c->timeout_ms = 20000;
	fake_pause(&fake, false);
	assert_int_equal(xfer_disconnect(ep), 0);
	assert_int_equal(fake.n_requests, n);
}

static void too_many_under_way(void **state)
{
	struct iovec v = { data, 8 };

	(void)state;
	c->requests.max = 100;
	for (uint64_t i = 0; i < 100; i++)
		assert_int_equal(xfer_post_recv(ep, &v, 1, i, 0, NULL), 0);
	refused(xfer_post_recv(ep, &v, 1, 100, 0, NULL), -EAGAIN,
		"recv: 100 requests are under way: poll, then try again");
	complete(0, 0, 0);
	expect_completion(0, 0);
	assert_int_equal(xfer_post_recv(ep, &v, 1, 100, 0, NULL), 0);
}

static void an_endpoint_that_goes_takes_its_events(void **state)
{
	uint8_t own[8] = { 0 };
	struct iovec v = { own, 8 };
	struct xfer_event e;

	(void)state;
	assert_int_equal(xfer_post_recv(ep, &v, 1, 1, 0, NULL), 0);
	assert_int_equal(xfer_post_recv(ep, &v, 1, 2, 0, NULL), 0);
	complete(0, -XFER_E_FLUSHED, 0);
	fake_wait_requests(&fake, 2);
	xfer_ep_free(ep);
	assert_int_equal(xfer_poll(c, &e, 1, 0), 0);
	/* One of its requests has no end: what it carries stays where it is. */
	assert_int_equal(c->requests.used, 1);
	complete(1, 0, 8);
	ep = fake_ep(&fake, c, true);
	assert_int_equal(c->requests.used, 0);
	assert_int_equal(own[0], 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(a_read, setup, teardown),
		cmocka_unit_test_setup_teardown(nothing_at_all, setup, teardown),
		cmocka_unit_test_setup_teardown(each_operation, setup, teardown),
		cmocka_unit_test_setup_teardown(bad_shapes, setup, teardown),
		cmocka_unit_test_setup_teardown(states, setup, teardown),
		cmocka_unit_test_setup_teardown(carried_out, setup, teardown),
		cmocka_unit_test_setup_teardown(carried_in, setup, teardown),
		cmocka_unit_test_setup_teardown(a_failed_read_touches_nothing, setup, teardown),
		cmocka_unit_test_setup_teardown(a_piece_over_a_buffers_edge, setup, teardown),
		cmocka_unit_test_setup_teardown(long_lists_go_by_reference, setup, teardown),
		cmocka_unit_test_setup_teardown(a_long_carried_read, setup, teardown),
		cmocka_unit_test_setup_teardown(carried_memory_is_bounded, setup, teardown),
		cmocka_unit_test_setup_teardown(no_carried_memory_to_be_had, setup, teardown),
		cmocka_unit_test_setup_teardown(chunks, setup, teardown),
		cmocka_unit_test_setup_teardown(quiet, setup, teardown),
		cmocka_unit_test_setup_teardown(more_gathers_a_batch, setup, teardown),
		cmocka_unit_test_setup_teardown(a_full_socket_is_eagain, setup, teardown),
		cmocka_unit_test_setup_teardown(a_call_behind_a_full_socket, setup, teardown),
		cmocka_unit_test_setup_teardown(too_many_under_way, setup, teardown),
		cmocka_unit_test_setup_teardown(an_endpoint_that_goes_takes_its_events, setup,
						teardown),
	};

	return cmocka_run_group_tests_name("client: posts", tests, NULL, NULL);
}
