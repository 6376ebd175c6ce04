/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/checked.h"
#include "common/units.h"
#include "tests/unit/cm.h"

static void sizes(void **state)
{
	static const struct {
		const char *text;
		int r;
		uint64_t bytes;
	} cases[] = {
		{ "0", 0, 0 },
		{ "4096", 0, 4096 },
		{ "0064", 0, 64 },
		{ "64K", 0, 65536 },
		{ "64KiB", 0, 65536 },
		{ "1M", 0, 1048576 },
		{ "1MiB", 0, 1048576 },
		{ "3G", 0, UINT64_C(3) << 30 },
		{ "1GiB", 0, UINT64_C(1) << 30 },
		{ "2T", 0, UINT64_C(2) << 40 },
		{ "2TiB", 0, UINT64_C(2) << 40 },
		{ "18446744073709551615", 0, UINT64_MAX },
		{ "16777215T", 0, UINT64_C(16777215) << 40 },
		{ "18446744073709551616", -ERANGE, 0 },
		{ "16777216T", -ERANGE, 0 },
		{ "99999999999999999999999999", -ERANGE, 0 },
		{ "", -EINVAL, 0 },
		{ "K", -EINVAL, 0 },
		{ "1GB", -EINVAL, 0 },
		{ "1k", -EINVAL, 0 },
		{ "1Ki", -EINVAL, 0 },
		{ "1 K", -EINVAL, 0 },
		{ " 1", -EINVAL, 0 },
		{ "1 ", -EINVAL, 0 },
		{ "-1", -EINVAL, 0 },
		{ "+1", -EINVAL, 0 },
		{ "1.5G", -EINVAL, 0 },
		{ "0x10", -EINVAL, 0 },
		{ "99999999999999999999999999Q", -EINVAL, 0 },
	};

	(void)state;
	for (size_t i = 0; i < XC_ARRAY_SIZE(cases); i++) {
		uint64_t bytes = 77;

		assert_int_equal(xc_size_parse(cases[i].text, &bytes), cases[i].r);
		assert_true(bytes == (cases[i].r ? 77 : cases[i].bytes));
	}
}

static void times(void **state)
{
	static const struct {
		const char *text;
		int r;
		uint64_t ms;
	} cases[] = {
		{ "200ms", 0, 200 },
		{ "5s", 0, 5000 },
		{ "5", 0, 5000 },
		{ "0", 0, 0 },
		{ "2m", 0, 120000 },
		{ "1h", 0, 3600000 },
		{ "18446744073709551615ms", 0, UINT64_MAX },
		{ "18446744073709551615s", -ERANGE, 0 },
		{ "", -EINVAL, 0 },
		{ "ms", -EINVAL, 0 },
		{ "5 s", -EINVAL, 0 },
		{ "5sec", -EINVAL, 0 },
		{ "5M", -EINVAL, 0 },
		{ "-5s", -EINVAL, 0 },
		{ "1.5s", -EINVAL, 0 },
	};

	(void)state;
	for (size_t i = 0; i < XC_ARRAY_SIZE(cases); i++) {
		uint64_t ms = 77;

		assert_int_equal(xc_time_parse(cases[i].text, &ms), cases[i].r);
		assert_true(ms == (cases[i].r ? 77 : cases[i].ms));
	}
}

static void formats(void **state)
{
	static const struct {
		uint64_t bytes;
		const char *text;
	} cases[] = {
		{ 0, "0 B" },
		{ 812, "812 B" },
		{ 1023, "1023 B" },
		{ 1024, "1 KiB" },
		{ 1536, "1.5 KiB" },
		{ 1048575, "1023.9 KiB" },
		{ 1048576, "1 MiB" },
		{ UINT64_C(3) << 29, "1.5 GiB" },
		{ UINT64_C(1) << 40, "1 TiB" },
		{ UINT64_C(1) << 50, "1 PiB" },
		{ UINT64_MAX, "15.9 EiB" },
	};
	char buf[32];

	(void)state;
	for (size_t i = 0; i < XC_ARRAY_SIZE(cases); i++)
		assert_string_equal(xc_size_format(cases[i].bytes, buf, sizeof(buf)),
				    cases[i].text);
	assert_string_equal(xc_size_format(1536, buf, 4), "1.5");
}

static void nearest(void **state)
{
	static const char *const names[] = {
		"pinned", "buffers", "sessions", "endpoints", "listeners", "grants", "x", NULL,
	};
	static const struct {
		const char *text, *nearest;
	} cases[] = {
		{ "pinned", "pinned" },
		{ "pined", "pinned" },
		{ "Pinned", "pinned" },
		{ "pinend", "pinned" },     /* two neighbours swapped: one slip */
		{ "buffer", "buffers" },
		{ "sesions", "sessions" },
		{ "endpiont", "endpoints" }, /* a swap and a letter: two of eight */
		{ "listner", "listeners" },
		{ "grnt", NULL },            /* two of four */
		{ "grans", "grants" },
		{ "", NULL },
		{ "y", NULL },
		{ "bogus", NULL },
		{ "zzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzz", NULL },
	};

	(void)state;
	for (size_t i = 0; i < XC_ARRAY_SIZE(cases); i++) {
		const char *got = xc_nearest(cases[i].text, names);

		if (cases[i].nearest) {
			assert_non_null(got);
			assert_string_equal(got, cases[i].nearest);
		} else {
			assert_null(got);
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(sizes),
		cmocka_unit_test(times),
		cmocka_unit_test(formats),
		cmocka_unit_test(nearest),
	};

	return cmocka_run_group_tests_name("units", tests, NULL, NULL);
}
