/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */

/* What the file tool prints and reads: text of strangers, URLs, the progress bar. */
#define _GNU_SOURCE 1

#include "tools/progress.h"
#include "tools/text.h"

#include <errno.h>
#include <locale.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void strangers_text_is_harmless(void **state)
{
	char escape[] = "a\033[2Jb\nc\x7f" "d", bytes[] = "x\xff\xfey", cut[] = "\xc3";

	(void)state;
	assert_string_equal(text_clean(escape), "a?[2Jb?c?d");
	assert_string_equal(text_clean(bytes), "x??y");
	assert_string_equal(text_clean(cut), "?");
}

static void utf8_stays(void **state)
{
	char text[] = "gr\xc3\xbc\xc3\x9f \xc2\x9b" "1m"; /* and a control character of 8 bits */

	(void)state;
	if (!setlocale(LC_CTYPE, "C.UTF-8"))
		skip();
	assert_string_equal(text_clean(text), "gr\xc3\xbc\xc3\x9f ??1m");
	setlocale(LC_CTYPE, "C");
}

static void expect_json(const char *text, const char *json)
{
	char *buf = NULL;
	size_t size;
	FILE *f = open_memstream(&buf, &size);

	assert_non_null(f);
	text_json(f, text);
	fclose(f);
	assert_string_equal(buf, json);
	free(buf);
}

static void json_strings(void **state)
{
	(void)state;
	expect_json("", "\"\"");
	expect_json("a\"b\\c/d", "\"a\\\"b\\\\c/d\"");
	expect_json("\n\033", "\"\\u000a\\u001b\"");
	expect_json("\xc3\xbc\xe2\x82\xac\xf0\x9f\x98\x80",
		    "\"\xc3\xbc\xe2\x82\xac\xf0\x9f\x98\x80\"");
	/* a lone byte, one cut short, an overlong slash, a surrogate, one beyond Unicode */
	expect_json("\xff", "\"\\ufffd\"");
	expect_json("\xe2\x82", "\"\\ufffd\\ufffd\"");
	expect_json("\xc0\xaf", "\"\\ufffd\\ufffd\"");
	expect_json("\xe0\x80\xaf", "\"\\ufffd\\ufffd\\ufffd\"");
	expect_json("\xed\xa0\x80", "\"\\ufffd\\ufffd\\ufffd\"");
	expect_json("\xf4\x90\x80\x80", "\"\\ufffd\\ufffd\\ufffd\\ufffd\"");
}

static void expect_path(const char *url, const char *path)
{
	const char *why = "";
	char buf[32];

	assert_int_equal(text_url_path(url, buf, sizeof(buf), &why), 0);
	assert_string_equal(buf, path);
}

static void expect_no_path(const char *url, int status)
{
	const char *why = NULL;
	char buf[32];

	assert_int_equal(text_url_path(url, buf, sizeof(buf), &why), status);
	assert_non_null(why);
}

static void paths_of_urls(void **state)
{
	(void)state;
	expect_path("xfer://host/a", "a");
	expect_path("xfer://127.0.0.1:20470/a/b.c", "a/b.c");
	expect_path("xfer://[::1]:1/a", "a");
	expect_path("xfer://host/", "");
	expect_path("xfer://host//etc/passwd", "/etc/passwd");
	expect_path("xfer://host/a%20b%2fc%25", "a b/c%");
	expect_path("xfer://host/a?require=tcp", "a");
	expect_path("xfer://host/a%3fb?require=tcp", "a?b");
	expect_path("xfer://host/1234567890123456789012345678901",
		    "1234567890123456789012345678901");
	expect_no_path("xfer://host/12345678901234567890123456789012", -ENAMETOOLONG);
	expect_no_path("http://host/a", -EINVAL);
	expect_no_path("host/a", -EINVAL);
	expect_no_path("xfer:///a", -EINVAL);
	expect_no_path("xfer://", -EINVAL);
	expect_no_path("xfer://host", -EINVAL);
	expect_no_path("xfer://host:/a", -EINVAL);
	expect_no_path("xfer://host:0/a", -EINVAL);
	expect_no_path("xfer://host:65536/a", -EINVAL);
	expect_no_path("xfer://host:123456/a", -EINVAL);
	expect_no_path("xfer://host:+1/a", -EINVAL);
	expect_no_path("xfer://:1/a", -EINVAL);
	expect_no_path("xfer://[::1/a", -EINVAL);
	expect_no_path("xfer://[::1]1/a", -EINVAL);
	expect_path("xfer://[::1]/a", "a");
	expect_path("xfer://host:65535/a", "a");
	expect_no_path("xfer://host?x=/a", -EINVAL);
	expect_no_path("xfer://host/a%", -EINVAL);
	expect_no_path("xfer://host/a%2", -EINVAL);
	expect_no_path("xfer://host/a%2?1", -EINVAL);
	expect_no_path("xfer://host/a%zz", -EINVAL);
	expect_no_path("xfer://host/a%00b", -EINVAL);
}

static void last_names(void **state)
{
	(void)state;
	assert_string_equal(text_last_name("a/b"), "b");
	assert_string_equal(text_last_name("a"), "a");
	assert_string_equal(text_last_name("a/"), "");
}

static void the_bar(void **state)
{
	struct progress p;
	char line[PROGRESS_LINE_MAX];

	(void)state;
	progress_begin(&p, "file\033name", 1000000, 0);
	p.rate = 250000;
	progress_line(&p, 500000, 100, line);
	assert_non_null(strstr(line, "file?name ["));
	assert_non_null(strstr(line, " 50%"));
	assert_non_null(strstr(line, "00:02 left"));
	assert_non_null(strstr(line, "#-"));
	/* Whatever the terminal, a line is never wider. */
	for (unsigned int columns = 0; columns < 1000; columns++) {
		progress_line(&p, 500000, columns, line);
		assert_true(strlen(line) <= columns);
	}
	progress_line(&p, 1000000, 100, line);
	assert_non_null(strstr(line, "100%"));
	assert_null(strchr(line, '-'));
	progress_begin(&p, "empty", 0, 0);
	progress_line(&p, 0, 100, line);
	assert_non_null(strstr(line, "100%"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(strangers_text_is_harmless), cmocka_unit_test(utf8_stays),
		cmocka_unit_test(json_strings),		      cmocka_unit_test(paths_of_urls),
		cmocka_unit_test(last_names),		      cmocka_unit_test(the_bar),
	};

	return cmocka_run_group_tests_name("file_text", tests, NULL, NULL);
}
