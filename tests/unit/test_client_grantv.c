/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The library: grants of several pieces, patches of the SEND that goes with them, explanations. */
#include "tests/unit/cm.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "tests/unit/fake_daemon.h"

static struct fake fake;
static struct xfer_client *c;
static struct xfer_ep *ep;
static struct xfer_buf *buf, *second;
static uint8_t *data, *more;

#define BUF_BYTES 65536

static int setup(void **state)
{
	(void)state;
	fake_init(&fake);
	fake_start(&fake);
	if (fake_client(&fake, NULL, &c) < 0)
		return -1;
	ep = fake_ep(&fake, c, true);
	if (xfer_buf_new(c, BUF_BYTES, 0, &buf) < 0 || xfer_buf_new(c, BUF_BYTES, 0, &second) < 0)
		return -1;
	data = xfer_buf_data(buf);
	more = xfer_buf_data(second);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	xfer_client_free(c);
	fake_done(&fake);
	return 0;
}

static void several_pieces(void **state)
{
	struct iovec v[5] = {
		{ data + 7, 100 }, { more, 3 }, { NULL, 0 }, { data + 1000, 28 }, { data + 1028, 2 }
	};
	const struct fake_request *r = fake.requests;
	struct xfer_event e;
	uint64_t cookie = 0;

	(void)state;
	assert_int_equal(
		xfer_grantv(ep, v, 5, XFER_GRANT_READ, 900, NULL, 0, 42, XFER_FENCE, &cookie), 0);
	assert_int_equal(xfer_grantv(ep, v, 1, XFER_GRANT_WRITE, 0, NULL, 0, 43, 0, NULL), 0);
	fake_wait_requests(&fake, 2);
	assert_int_equal(r[0].opcode, XP_OP_GRANT);
	assert_int_equal(r[0].flags, XP_F_GRANT_READ | XP_F_FENCE);
	assert_int_equal(r[0].argument, 900);
	assert_int_equal(r[0].cookie, cookie);
	assert_int_equal(r[0].endpoint, ep->number);
	assert_int_equal(r[0].n_remote, 0);
	assert_int_equal(r[0].n_local, 4); /* what is empty is no piece */
	assert_int_equal(r[0].local[0].address, 7);
	assert_int_equal(r[0].local[0].length, 100);
	assert_int_equal(r[0].local[0].key, buf->number);
	assert_int_equal(r[0].local[1].key, second->number);
	assert_int_equal(r[0].local[2].address, 1000);
	assert_int_equal(r[0].local[2].length, 28);
	assert_int_equal(r[1].flags, XP_F_GRANT_WRITE);
	fake_say_completion(&fake, &r[0], 0, 133);
	assert_int_equal(xfer_poll(c, &e, 1, 20000), 1);
	assert_int_equal(e.opcode, XFER_OP_GRANT);
	assert_int_equal(e.wr_id, 42);
	assert_int_equal(e.grant, 77);
	assert_int_equal(e.token.address, 0x1000);
	assert_int_equal(e.token.length, 133);
	assert_int_equal(e.token.rkey, 0xabcd);
}

/* Each field in each of its widths, as the daemon wants to have them. */
static void patches(void **state)
{
	static const struct xfer_patch all[] = {
		{ 0, XFER_FIELD_ADDRESS, 8, 0 },       { 8, XFER_FIELD_LENGTH, 3, 0 },
		{ 16, XFER_FIELD_LENGTH, 4, 1 },       { 24, XFER_FIELD_LENGTH, 8, 0 },
		{ 32, XFER_FIELD_RKEY, 4, 7 },	       { 40, XFER_FIELD_RKEY, 8, 0 },
		{ UINT64_MAX, XFER_FIELD_RKEY, 4, 0 }, { 0, XFER_FIELD_ADDRESS, 8, 1 },
		{ 0, XFER_FIELD_ADDRESS, 8, 0 },
	};
	const struct fake_request *r = fake.requests;
	struct iovec v[2] = { { data, 10 }, { more, 10 } };

	(void)state;
	for (int i = 0; i < 9; i += 3)
		assert_int_equal(
			xfer_grantv(ep, v, 2, XFER_GRANT_READ, 0, &all[i], 3, 1, XFER_MORE, NULL),
			0);
	assert_int_equal(xfer_grantv(ep, v, 2, XFER_GRANT_WRITE, 0, all, 1, 1, 0, NULL), 0);
	fake_wait_requests(&fake, 4);
	assert_int_equal(fake.packets_submit, 1);
	for (int i = 0; i < 9; i++) {
		const struct xp_segment *s = &r[i / 3].remote[i % 3];

		assert_int_equal(r[i / 3].flags, XP_F_GRANT_READ | XP_F_LINK);
		assert_int_equal(r[i / 3].n_local, 2);
		assert_int_equal(r[i / 3].n_remote, 3);
		assert_true(s->address == all[i].offset);
		assert_int_equal(s->length, all[i].width);
		assert_int_equal(s->key & ~XP_PATCH_BIG_ENDIAN, all[i].field);
		assert_int_equal(!!(s->key & XP_PATCH_BIG_ENDIAN), !!all[i].big_endian);
	}
	assert_int_equal(r[3].flags, XP_F_GRANT_WRITE | XP_F_LINK);
	assert_int_equal(r[3].n_remote, 1);
}

/* The pieces go by reference, and the patches with them, behind them. */
static void patches_of_many_pieces(void **state)
{
	static struct iovec v[200];
	struct xfer_patch p[2] = { { 5, XFER_FIELD_ADDRESS, 8, 1 }, { 13, XFER_FIELD_RKEY, 4, 0 } };
	const struct fake_request *r = fake.requests;

	(void)state;
	for (int i = 0; i < 200; i++)
		v[i] = (struct iovec){ data + i * 16, 5 };
	assert_int_equal(xfer_grantv(ep, v, 200, XFER_GRANT_READ, 0, p, 2, 1, 0, NULL), 0);
	fake_wait_requests(&fake, 1);
	assert_int_not_equal(r->list_buffer, 0);
	assert_int_equal(r->n_local, 200);
	assert_int_equal(r->n_remote, 2);
	assert_int_equal(r->local[199].address, 199 * 16);
	assert_int_equal(r->remote[0].address, 5);
	assert_int_equal(r->remote[0].key, XP_FIELD_ADDRESS | XP_PATCH_BIG_ENDIAN);
	assert_int_equal(r->remote[1].address, 13);
	assert_int_equal(r->remote[1].length, 4);
	assert_int_equal(r->remote[1].key, XP_FIELD_RKEY);
}

static void what_is_refused(void **state)
{
	struct iovec v[2] = { { data, 8 }, { more, 8 } }, outside = { v, 8 };
	struct xfer_patch p[4] = { { 0, XFER_FIELD_ADDRESS, 8, 0 },
				   { 8, XFER_FIELD_ADDRESS, 8, 0 },
				   { 0, XFER_FIELD_ADDRESS, 8, 0 },
				   { 0, XFER_FIELD_ADDRESS, 8, 0 } };

	(void)state;
#define GRANTV(ep, v, n, access, p, n_p) xfer_grantv(ep, v, n, access, 0, p, n_p, 0, 0, NULL)
	refused(GRANTV(NULL, v, 2, XFER_GRANT_READ, NULL, 0), -EINVAL, "the endpoint is NULL");
	refused(GRANTV(ep, v, 0, XFER_GRANT_READ, NULL, 0), -EINVAL, "grantv: 0 pieces: 1 to 4096");
	refused(GRANTV(ep, v, -1, XFER_GRANT_READ, NULL, 0), -EINVAL, "grantv: -1 pieces");
	refused(GRANTV(ep, v, 4097, XFER_GRANT_READ, NULL, 0), -EINVAL, "4097");
	refused(GRANTV(ep, NULL, 2, XFER_GRANT_READ, NULL, 0), -EINVAL, "is NULL");
	refused(GRANTV(ep, v, 2, 0, NULL, 0), -EINVAL, "grantv: access 0x0");
	refused(GRANTV(ep, v, 2, XFER_GRANT_READ | XFER_GRANT_WRITE, NULL, 0), -EINVAL,
		"grantv: access 0x300");
	refused(GRANTV(ep, v, 2, XFER_GRANT_READ | XP_F_LINK, NULL, 0), -EINVAL, "grantv: access");
	refused(GRANTV(ep, &outside, 1, XFER_GRANT_READ, NULL, 0), -EFAULT, "in a buffer");
	refused(GRANTV(ep, v, 2, XFER_GRANT_READ, p, 4), -EINVAL, "grantv: 4 patches: 0 to 3");
	refused(GRANTV(ep, v, 2, XFER_GRANT_READ, p, -1), -EINVAL, "grantv: -1 patches");
	refused(GRANTV(ep, v, 2, XFER_GRANT_READ, NULL, 1), -EINVAL, "1 patches at NULL");
	refused(xfer_grantv(ep, v, 2, XFER_GRANT_READ, 0, NULL, 0, 0, XFER_QUIET, NULL), -EINVAL,
		"grantv: flags 0x2");
	refused(xfer_grantv(ep, v, 2, XFER_GRANT_READ, 0, NULL, 0, 0, XFER_EXPLAIN, NULL), -EINVAL,
		"grantv: flags 0x80");
	for (unsigned int field = 0; field < 5; field++) {
		for (unsigned int width = 0; width < 300; width++) {
			int good = (field == XFER_FIELD_ADDRESS && width == 8) ||
				   (field == XFER_FIELD_RKEY && (width == 4 || width == 8)) ||
				   (field == XFER_FIELD_LENGTH &&
				    (width == 3 || width == 4 || width == 8));
			char says[80];

			if (good)
				continue;
			p[1].field = (enum xfer_field)field;
			p[1].width = width;
			snprintf(says, sizeof(says), "patch 1: field %u, %u bytes wide", field,
				 width);
			refused(GRANTV(ep, v, 2, XFER_GRANT_READ, p, 2), -EINVAL, says);
		}
	}
	assert_int_equal(fake.n_requests, 0);
	assert_int_equal(c->requests.used, 0);
}

static void explanations(void **state)
{
	struct iovec v = { data, 8 };
	struct xfer_token t = { 1, 8, 2 };
	const struct fake_request *r = fake.requests;

	(void)state;
	assert_int_equal(XFER_EXPLAIN, XP_F_EXPLAIN);
	assert_int_equal(xfer_post_read(ep, &v, 1, &t, 1, 0, XFER_EXPLAIN, NULL), 0);
	assert_int_equal(xfer_post_write(ep, &v, 1, &t, 1, 0, XFER_EXPLAIN | XFER_QUIET, NULL), 0);
	assert_int_equal(xfer_post_write_imm(ep, &v, 1, &t, 1, 5, 0, XFER_EXPLAIN, NULL), 0);
	assert_int_equal(xfer_post_send(ep, &v, 1, 0, XFER_EXPLAIN, NULL), 0);
	assert_int_equal(xfer_post_recv(ep, &v, 1, 0, XFER_EXPLAIN, NULL), 0);
	fake_wait_requests(&fake, 5);
	for (int i = 0; i < 5; i++)
		assert_true(r[i].flags & XP_F_EXPLAIN);
	assert_int_equal(r[1].flags, XP_F_EXPLAIN | XP_F_QUIET);
	refused(xfer_grant(ep, data, 8, XFER_GRANT_READ, 0, 0, XFER_EXPLAIN, NULL), -EINVAL,
		"grant: flags 0x80");
	refused(xfer_revoke(ep, 1, 0, XFER_EXPLAIN, NULL), -EINVAL, "revoke: flags 0x80");
	assert_int_equal(fake.n_requests, 5);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(several_pieces, setup, teardown),
		cmocka_unit_test_setup_teardown(patches, setup, teardown),
		cmocka_unit_test_setup_teardown(patches_of_many_pieces, setup, teardown),
		cmocka_unit_test_setup_teardown(what_is_refused, setup, teardown),
		cmocka_unit_test_setup_teardown(explanations, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
