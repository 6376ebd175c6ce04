/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include <errno.h>
#include <string.h>

#include "common/addr.h"
#include "common/checked.h"
#include "tests/unit/cm.h"

static struct xc_addr addr(const char *text, uint16_t port)
{
	struct xc_addr a;

	assert_int_equal(xc_addr_parse(text, port, &a), 0);
	return a;
}

static struct xc_range range(const char *text)
{
	struct xc_range r;

	assert_int_equal(xc_range_parse(text, &r), 0);
	return r;
}

static void good_addresses_come_back(void **state)
{
	static const struct {
		const char *text, *formatted;
	} cases[] = {
		{ "127.0.0.1", "127.0.0.1:20470" },
		{ "255.255.255.255", "255.255.255.255:20470" },
		{ "::1", "[::1]:20470" },
		{ "[::1]", "[::1]:20470" },
		{ "2001:DB8:0::7", "[2001:db8::7]:20470" },
		{ "fe80::1%2", "[fe80::1%2]:20470" },
		{ "[fe80::1%4294967295]", "[fe80::1%4294967295]:20470" },
		{ "::ffff:10.1.2.3", "[::ffff:10.1.2.3]:20470" },
	};
	char buf[XC_ADDR_TEXT_MAX];

	(void)state;
	for (size_t i = 0; i < XC_ARRAY_SIZE(cases); i++) {
		struct xc_addr a = addr(cases[i].text, 20470);

		assert_string_equal(xc_addr_format(&a, buf), cases[i].formatted);
	}
}

static void bad_addresses_are_refused(void **state)
{
	static const char *const cases[] = {
		"", " ", "localhost", "127.0.0", "127.0.0.256", "127.0.0.1 ", "127.0.0.1:80",
		"01.2.3.4", "0x7f000001",
		"[127.0.0.1]", "::1]", "[::1", "[]", "[", "]", ":::", "fe80::1%", "fe80::1%eth0",
		"fe80::1%4294967296", "fe80::1%-1", "127.0.0.1%1", "%1", "1::2::3",
		"11111111111111111111111111111111111111111111111111111111111111111111111111111111",
	};
	struct xc_addr a = { .family = 99 };

	(void)state;
	for (size_t i = 0; i < XC_ARRAY_SIZE(cases); i++) {
		assert_int_equal(xc_addr_parse(cases[i], 1, &a), -EINVAL);
		assert_int_equal(a.family, 99);
	}
}

static void nothing_formats_as_none(void **state)
{
	struct xc_addr a = { .family = 0 };
	char buf[XC_ADDR_TEXT_MAX];

	(void)state;
	assert_string_equal(xc_addr_format(&a, buf), "none");
}

static void equality_knows_port_zone_and_family(void **state)
{
	struct xc_addr a = addr("10.0.0.1", 1), b = addr("10.0.0.1", 1), c = addr("10.0.0.1", 2);
	struct xc_addr d = addr("fe80::1%2", 1), e = addr("fe80::1%3", 1);

	(void)state;
	assert_true(xc_addr_equal(&a, &b));
	b.ip[7] = 1; /* behind the four bytes of IPv4: nothing */
	assert_true(xc_addr_equal(&a, &b));
	assert_false(xc_addr_equal(&a, &c));
	assert_false(xc_addr_equal(&d, &e));
	c = addr("::ffff:10.0.0.1", 1);
	assert_false(xc_addr_equal(&a, &c));
}

static void kinds(void **state)
{
	static const struct {
		const char *text;
		bool any, loopback;
	} cases[] = {
		{ "0.0.0.0", true, false },
		{ "::", true, false },
		{ "::ffff:0.0.0.0", true, false },
		{ "0.0.0.1", false, false },
		{ "127.0.0.1", false, true },
		{ "127.255.255.254", false, true },
		{ "128.0.0.1", false, false },
		{ "126.255.255.255", false, false },
		{ "::1", false, true },
		{ "::2", false, false },
		{ "1::1", false, false },
		{ "::ffff:127.0.0.1", false, true },
		{ "::ffff:10.0.0.1", false, false },
		{ "::127.0.0.1", false, false },
	};
	struct xc_addr none = { .family = 0 };

	(void)state;
	for (size_t i = 0; i < XC_ARRAY_SIZE(cases); i++) {
		struct xc_addr a = addr(cases[i].text, 7);

		assert_int_equal(xc_addr_is_any(&a), cases[i].any);
		assert_int_equal(xc_addr_is_loopback(&a), cases[i].loopback);
	}
	assert_false(xc_addr_is_any(&none));
	assert_false(xc_addr_is_loopback(&none));
}

static void good_ranges_come_back(void **state)
{
	static const struct {
		const char *text, *formatted;
	} cases[] = {
		{ "10.0.0.0/8", "10.0.0.0/8" },       { "0.0.0.0/0", "0.0.0.0/0" },
		{ "10.1.2.3", "10.1.2.3/32" },        { "10.1.2.2/31", "10.1.2.2/31" },
		{ "::/0", "::/0" },                   { "fe80::/10", "fe80::/10" },
		{ "::1", "::1/128" },                 { "[::1]/128", "::1/128" },
	};
	char buf[XC_ADDR_TEXT_MAX];

	(void)state;
	for (size_t i = 0; i < XC_ARRAY_SIZE(cases); i++) {
		struct xc_range r = range(cases[i].text);

		assert_string_equal(xc_range_format(&r, buf), cases[i].formatted);
	}
}

static void bad_ranges_are_refused(void **state)
{
	static const char *const cases[] = {
		"", "/", "/8", "10.0.0.0/", "10.0.0.0/33", "10.0.0.0/-1", "10.0.0.0/8x",
		"10.0.0.0/ 8",
		"10.0.0.1/31", "10.0.0.0/4", "::1/127", "::/129", "fe80::/8", "fe80::%2/10",
		"10.0.0.0/8/8", "host/8", "10.0.0.0/4294967304",
	};
	struct xc_range r;

	(void)state;
	for (size_t i = 0; i < XC_ARRAY_SIZE(cases); i++)
		assert_int_equal(xc_range_parse(cases[i], &r), -EINVAL);
}

static void ranges_end_where_they_say(void **state)
{
	static const struct {
		const char *range, *addr;
		bool in;
	} cases[] = {
		{ "10.0.0.0/8", "10.255.255.255", true }, { "10.0.0.0/8", "11.0.0.0", false },
		{ "10.0.0.0/8", "9.255.255.255", false },  { "10.0.0.0/9", "10.127.255.255", true },
		{ "10.0.0.0/9", "10.128.0.0", false },     { "10.1.2.2/31", "10.1.2.3", true },
		{ "10.1.2.2/31", "10.1.2.4", false },      { "10.1.2.3", "10.1.2.3", true },
		{ "10.1.2.3", "10.1.2.2", false },         { "0.0.0.0/0", "255.1.2.3", true },
		{ "0.0.0.0/0", "::1", false },             { "::/0", "1.2.3.4", false },
		{ "::/0", "ffff::", true },                { "fe80::/10", "febf::1", true },
		{ "fe80::/10", "fec0::1", false },         { "fe80::/10", "fe80::1%7", true },
	};

	(void)state;
	for (size_t i = 0; i < XC_ARRAY_SIZE(cases); i++) {
		struct xc_range r = range(cases[i].range);
		struct xc_addr a = addr(cases[i].addr, 5);

		assert_int_equal(xc_range_contains(&r, &a), cases[i].in);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(good_addresses_come_back),
		cmocka_unit_test(bad_addresses_are_refused),
		cmocka_unit_test(nothing_formats_as_none),
		cmocka_unit_test(equality_knows_port_zone_and_family),
		cmocka_unit_test(kinds),
		cmocka_unit_test(good_ranges_come_back),
		cmocka_unit_test(bad_ranges_are_refused),
		cmocka_unit_test(ranges_end_where_they_say),
	};

	return cmocka_run_group_tests_name("addr", tests, NULL, NULL);
}
