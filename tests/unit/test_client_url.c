/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The library: addresses, and the tables it keeps. */
#include "tests/unit/cm.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client-lib/internal.h"

static void good(const char *text, bool bare, const char *host, int port, const char *require)
{
	struct cl_address a;

	if (cl_address_parse(text, bare, &a) < 0) {
		const char *why;

		xfer_last_error(&why);
		fail_msg("%s: %s", text, why);
	}
	assert_string_equal(a.host, host);
	assert_int_equal(a.port, port);
	assert_string_equal(a.require, require);
}

static void bad(const char *text, bool bare, const char *part)
{
	struct cl_address a;
	const char *why;

	if (cl_address_parse(text, bare, &a) != -EINVAL)
		fail_msg("%s was taken", text ? text : "NULL");
	assert_int_equal(xfer_last_error(&why), -EINVAL);
	if (!strstr(why, part))
		fail_msg("\"%s\" is not in \"%s\"", part, why);
}

static void urls(void **state)
{
	char longest[300] = "xfer://", too_long[300] = "xfer://";

	(void)state;
	good("xfer://host", false, "host", 20470, "");
	good("xfer://host/", false, "host", 20470, "");
	good("xfer://127.0.0.1:9/a/b%20c", false, "127.0.0.1", 9, "");
	good("xfer://[::1]:9/x?require=tcp", false, "::1", 9, "tcp");
	good("xfer://[fe80::1%2]/x?require=mlx5_0", false, "fe80::1%2", 20470, "mlx5_0");
	good("xfer://h?require=verbs", false, "h", 20470, "verbs");
	good("xfer://h/p?require=verbs&", false, "h", 20470, "verbs");
	good("xfer://h/a:b@c[d]", false, "h", 20470, "");
	bad(NULL, false, "no address");
	bad("", false, "does not begin with xfer://");
	bad("host:1", false, "does not begin with xfer://");
	bad("http://host", true, "does not begin with xfer://");
	bad("xfer://", false, "no host");
	bad("xfer:///path", false, "no host");
	bad("xfer://:80/", false, "no host");
	bad("xfer://h:", false, "port");
	bad("xfer://h:x", false, "port");
	bad("xfer://h:65536", false, "port");
	bad("xfer://h:99999999999999999999", false, "port");
	bad("xfer://h:-1", false, "port");
	bad("xfer://user@h", false, "byte 0x40 in the host");
	bad("xfer://h h", false, "byte 0x20 in the host");
	bad("xfer://[::1", false, "[ without ]");
	bad("xfer://[::1]x", false, "only :PORT may follow ]");
	bad("xfer://[]:1", false, "no host");
	bad("xfer://[host]:1", false, "no IPv6 address");
	bad("xfer://::1/", false, "needs brackets");
	bad("xfer://h?reqire=tcp", false, "only require= is known");
	bad("xfer://h?require=", false, "require=");
	bad("xfer://h?require=a/b", false, "byte 0x2f in require=");
	memset(longest + 7, 'a', 255);
	good(longest, false, longest + 7, 20470, "");
	memset(too_long + 7, 'a', 256);
	bad(too_long, false, "a host of 256 bytes: at most 255");
}

static void bare_addresses(void **state)
{
	(void)state;
	good("host", true, "host", 20470, "");
	good("host:0", true, "host", 0, "");
	good("127.0.0.1:5", true, "127.0.0.1", 5, "");
	good("[::]:5", true, "::", 5, "");
	good("xfer://host:7/path", true, "host", 7, "");
	bad("host/path", true, "is not HOST[:PORT]");
	bad("::1", true, "needs brackets");
}

static void numbers(void **state)
{
	struct cl_numbers t = { 0 };
	int objects[100];

	(void)state;
	assert_null(cl_numbers_get(&t, 1));
	for (uint32_t i = 0; i < 100; i++)
		assert_int_equal(cl_numbers_add(&t, (i * 37) % 101 + 1, &objects[i]), 0);
	assert_int_equal(cl_numbers_add(&t, 1, &objects[0]), -EEXIST);
	for (uint32_t i = 0; i < 100; i++)
		assert_ptr_equal(cl_numbers_get(&t, (i * 37) % 101 + 1), &objects[i]);
	for (uint32_t i = 0; i < 100; i += 2)
		cl_numbers_remove(&t, (i * 37) % 101 + 1);
	cl_numbers_remove(&t, 5000);
	for (uint32_t i = 0; i < 100; i++)
		assert_ptr_equal(cl_numbers_get(&t, (i * 37) % 101 + 1),
				 i % 2 ? &objects[i] : NULL);
	cl_numbers_done(&t);
}

static void requests(void **state)
{
	struct cl_requests t = { .max = 100 };
	uint64_t cookies[100], again, more;
	struct cl_request *r;

	(void)state;
	assert_null(cl_request_get(&t, 0));
	for (int i = 0; i < 100; i++) {
		assert_int_equal(cl_request_new(&t, &r, &cookies[i]), 0);
		r->wr_id = (uint64_t)i;
		assert_true(cookies[i] != 0 && !(cookies[i] & CL_COOKIE_UNTRACKED));
	}
	assert_int_equal(cl_request_new(&t, &r, &more), -EAGAIN);
	for (int i = 0; i < 100; i++)
		assert_int_equal(cl_request_get(&t, cookies[i])->wr_id, i);
	cl_request_put(&t, cl_request_get(&t, cookies[42]));
	assert_null(cl_request_get(&t, cookies[42]));
	assert_int_equal(cl_request_new(&t, &r, &again), 0);
	assert_int_not_equal(again, cookies[42]);
	assert_null(cl_request_get(&t, cookies[42]));
	assert_non_null(cl_request_get(&t, again));
	assert_int_equal(t.used, 100);
	cl_requests_done(&t);
}

/* A warm arena has one block, which holds the largest message so far. */
static void arena(void **state)
{
	struct cl_arena a;
	uint8_t *p, *q;

	(void)state;
	cl_arena_init(&a);
	for (int turn = 0; turn < 3; turn++) {
		cl_arena_reset(&a);
		for (int i = 0; i < 100; i++) {
			p = a.allocator.alloc(&a, 1000);
			assert_non_null(p);
			assert_int_equal((uintptr_t)p % 16, 0);
			memset(p, i, 1000);
		}
		assert_true(turn == 0 ? a.overflow != NULL : a.overflow == NULL);
	}
	cl_arena_reset(&a);
	p = a.allocator.alloc(&a, CL_ARENA_BYTES_MAX - 100);
	q = a.allocator.alloc(&a, 200);
	assert_non_null(p);
	assert_null(q);
	assert_null(a.allocator.alloc(&a, SIZE_MAX));
	cl_arena_done(&a);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(urls),
		cmocka_unit_test(bare_addresses),
		cmocka_unit_test(numbers),
		cmocka_unit_test(requests),
		cmocka_unit_test(arena),
	};

	return cmocka_run_group_tests_name("client: addresses and tables", tests, NULL, NULL);
}
