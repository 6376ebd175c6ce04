/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/checked.h"
#include "daemon/io/config.h"
#include "tests/unit/cm.h"

static int parse(const char *text, struct xd_policy *p, char **errors)
{
	return xd_config_parse("F", text, strlen(text), p, errors);
}

static void accept_text(const char *text, struct xd_policy *p)
{
	char *errors;
	int r = parse(text, p, &errors);

	if (errors)
		print_message("%s", errors);
	assert_int_equal(r, 0);
	assert_null(errors);
}

static void expect_errors(const char *text, const char *expected)
{
	struct xd_policy p;
	char *errors;

	assert_int_equal(parse(text, &p, &errors), -EINVAL);
	assert_non_null(errors);
	assert_string_equal(errors, expected);
	free(errors);
	/* Nothing of a bad file is used. */
	assert_true(p.n_users == 0 && p.n_groups == 0 && p.n_allows == 0);
	assert_true(p.user.value[XD_LIMIT_pinned] == UINT64_C(1) << 30);
	xd_policy_done(&p);
}

/* Member by member: what lies between them is anything. */
static void assert_is_shipped(const struct xd_policy *p)
{
	struct xd_policy shipped;

	xd_policy_init(&shipped);
	assert_memory_equal(&p->user, &shipped.user, sizeof(p->user));
	assert_memory_equal(&p->total, &shipped.total, sizeof(p->total));
	assert_true(p->n_users == 0 && p->n_groups == 0 && p->n_allows == 0);
	assert_true(!p->users && !p->groups && !p->allows);
	assert_int_equal(p->hello_ms, shipped.hello_ms);
	assert_int_equal(p->connect_ms, shipped.connect_ms);
	assert_int_equal(p->revoke_ms, shipped.revoke_ms);
	assert_int_equal(p->progress_ms, shipped.progress_ms);
	assert_int_equal(p->drain_ms, shipped.drain_ms);
	assert_int_equal(p->handshakes, shipped.handshakes);
	assert_int_equal(p->iwarp.crc, shipped.iwarp.crc);
	assert_int_equal(p->iwarp.shortcut, shipped.iwarp.shortcut);
	assert_int_equal(p->iwarp.ird, shipped.iwarp.ird);
	assert_int_equal(p->iwarp.ord, shipped.iwarp.ord);
	assert_int_equal(p->iwarp.handshakes, shipped.iwarp.handshakes);
	assert_int_equal(p->iwarp.handshakes_per_host, shipped.iwarp.handshakes_per_host);
	assert_string_equal(p->iwarp.profile, "");
	assert_int_equal(p->force, XD_RUNG_COUNT);
}

static void an_empty_file_is_the_default(void **state)
{
	static const char *const texts[] = {
		"", "\n", "# nothing\n", "  /* nothing\n */ // else", "\r\n",
	};
	struct xd_policy p;

	(void)state;
	for (size_t i = 0; i < XC_ARRAY_SIZE(texts); i++) {
		accept_text(texts[i], &p);
		assert_is_shipped(&p);
		xd_policy_done(&p);
	}
}

static void all_that_can_be_said(void **state)
{
	struct xc_addr a;
	struct xd_policy p;

	(void)state;
	accept_text("# all of it\n"
		    "user root { pinned = 8GiB sessions = 0 }\n"
		    "user 1000 { }\n"
		    "group root { requests = 100000 }\n"
		    "limits { pinned = 2G buffers = 2K endpoints = 7 listeners = 8 grants = 9\n"
		    "  requests = 10 bytes = 4096 sessions = 11 }\n"
		    "total { pinned = 1T }\n"
		    "allow { users = {root, 12} groups = {\"root\", '13'} listen = {127.0.0.0/8, "
		    "\"::1\"} }\n"
		    "allow { connect = {10.0.0.0/8} connect += {11.0.0.0/8} }\n"
		    "allow { users = {14} accept = {10.1.0.0/16, \"fd00::/8\"} }\n"
		    "device 'iwarp' { crc = yes shortcut = \"no\" ird = 128 ord = 1 profile = worst\n"
		    "  handshakes = 64K handshakes_per_host = 2 }\n"
		    "times { hello = 1 connect = 2s revoke = 300ms progress = 1m drain = 0s }\n"
		    "handshakes = 12\n",
		    &p);
	assert_int_equal(p.n_users, 2);
	assert_string_equal(p.users[0].name, "root");
	assert_int_equal(p.users[0].id, 0);
	assert_true(p.users[0].set[XD_LIMIT_pinned] && p.users[0].set[XD_LIMIT_sessions]);
	assert_false(p.users[0].set[XD_LIMIT_buffers]);
	assert_true(xd_policy_user(&p, 0)->value[XD_LIMIT_pinned] == UINT64_C(8) << 30);
	assert_true(xd_policy_user(&p, 0)->value[XD_LIMIT_sessions] == 0);
	/* What a user's section says nothing of is as in `limits`, though that stands behind it. */
	assert_true(xd_policy_user(&p, 0)->value[XD_LIMIT_buffers] == 2048);
	assert_true(xd_policy_user(&p, 1000)->value[XD_LIMIT_pinned] == UINT64_C(2) << 30);
	assert_true(xd_policy_user(&p, 1001)->value[XD_LIMIT_grants] == 9);
	assert_int_equal(p.n_groups, 1);
	assert_int_equal(p.groups[0].id, 0);
	assert_true(p.groups[0].limits.value[XD_LIMIT_requests] == 100000);
	assert_true(p.groups[0].limits.value[XD_LIMIT_pinned] == UINT64_MAX);
	assert_true(xd_policy_total(&p, XD_LIMIT_pinned) == UINT64_C(1) << 40);
	assert_true(xd_policy_total(&p, XD_LIMIT_sessions) == 44);

	assert_int_equal(p.n_allows, 3);
	assert_false(p.allows[0].everybody);
	assert_true(p.allows[1].everybody);
	assert_int_equal(p.allows[0].n_uids, 2);
	assert_int_equal(p.allows[0].uids[1], 12);
	assert_int_equal(p.allows[0].n_gids, 2);
	assert_int_equal(p.allows[0].gids[1], 13);
	assert_int_equal(p.allows[0].n_listen, 2);
	assert_int_equal(p.allows[1].n_connect, 2);
	assert_int_equal(xc_addr_parse("11.2.3.4", 1, &a), 0);
	assert_true(xd_policy_may_connect(&p, 77, NULL, 0, &a));
	assert_false(xd_policy_may_listen(&p, 0, NULL, 0, &a));
	assert_int_equal(p.allows[1].n_accept, 0);
	assert_int_equal(p.allows[2].n_accept, 2);
	assert_true(xd_policy_may_accept(&p, 15, NULL, 0, &a));
	assert_false(xd_policy_may_accept(&p, 14, NULL, 0, &a));

	assert_true(p.iwarp.crc && !p.iwarp.shortcut);
	assert_int_equal(p.iwarp.ird, 128);
	assert_int_equal(p.iwarp.ord, 1);
	assert_int_equal(p.iwarp.handshakes, 65536);
	assert_int_equal(p.iwarp.handshakes_per_host, 2);
	assert_string_equal(p.iwarp.profile, "worst");
	assert_true(p.hello_ms == 1000 && p.connect_ms == 2000 && p.revoke_ms == 300);
	assert_true(p.progress_ms == 60000 && p.drain_ms == 0);
	assert_int_equal(p.handshakes, 12);
	xd_policy_done(&p);
}

/* Each with the line where it stands, behind comments and all. */
static void mistakes_are_told(void **state)
{
	static const struct {
		const char *text, *errors;
	} cases[] = {
		/* values */
		{ "limits { pinned = 12Q }",
		  "F:1: pinned: \"12Q\" is no size (such as 4096, 64K or 1GiB)\n" },
		{ "limits { pinned = 2048T }",
		  "F:1: pinned: 2048T is out of range: 0 to 1 PiB will do\n" },
		{ "limits {\n buffers = 4KiB\n}",
		  "F:2: buffers: \"4KiB\" is no number (such as 1000 or 64K)\n" },
		{ "limits { grants = 1048577 }",
		  "F:1: grants: 1048577 is out of range: 0 to 1048576 will do\n" },
		{ "limits { grants = 99999999999999999999 }",
		  "F:1: grants: 99999999999999999999 is out of range: 0 to 1048576 will do\n" },
		{ "limits { pinned = -1 }",
		  "F:1: pinned: \"-1\" is no size (such as 4096, 64K or 1GiB)\n" },
		{ "total { sessions = 0 }",
		  "F:1: sessions: 0 is out of range: 1 to 1048576 will do\n" },
		{ "handshakes = 0", "F:1: handshakes: 0 is out of range: 1 to 65536 will do\n" },
		{ "times { hello = 5sec }",
		  "F:1: hello: \"5sec\" is no time (such as 200ms, 5s or 1m)\n" },
		{ "times { progress = 999ms }",
		  "F:1: progress: 999ms is out of range: 1s to 1h will do\n" },
		{ "times { revoke = 0 }", "F:1: revoke: 0 is out of range: 1ms to 1m will do\n" },
		{ "allow { listen = {10.0.0.1/8} }",
		  "F:1: listen: \"10.0.0.1/8\" is no address range (such as 10.0.0.0/8 or \"::1\"; "
		  "bits behind "
		  "the prefix must be 0)\n" },
		{ "allow { accept = {10.0.0.1/8} }",
		  "F:1: accept: \"10.0.0.1/8\" is no address range (such as 10.0.0.0/8 or \"::1\"; "
		  "bits behind "
		  "the prefix must be 0)\n" },
		{ "device iwarp { ird = 0 }", "F:1: ird: 0 is out of range: 1 to 128 will do\n" },
		{ "device iwarp {\n ord = 129\n}",
		  "F:2: ord: 129 is out of range: 1 to 128 will do\n" },
		{ "device iwarp { handshakes = 65537 handshakes_per_host = 0 }",
		  "F:1: handshakes: 65537 is out of range: 1 to 65536 will do\n"
		  "F:1: handshakes_per_host: 0 is out of range: 1 to 65536 will do\n" },
		{ "device iwarp { crc = true shortcut = 0 }",
		  "F:1: crc: \"true\" is neither yes nor no\n"
		  "F:1: shortcut: \"0\" is neither yes nor no\n" },
		{ "ladder { force = up }",
		  "F:1: force: there is no \"up\" (valid names: none, inline, direct, split, stage, "
		  "indirect)\n" },
		{ "device iwarp { profile = mlx3 }",
		  "F:1: profile: there is no \"mlx3\" (valid names: mthca, mlx4, mlx5, cxgb4, siw, rxe, "
		  "worst)\n" },
		{ "device iwarp { crd = no }",
		  "F:1: unknown setting \"crd\" in \"device\" (nearest valid name: \"crc\")\n" },
		{ "allow { connect = {::ffff:10.0.0.0/104} }",
		  "F:1: connect: write \"::ffff:10.0.0.0/104\" as IPv4\n" },
		/* people */
		{ "user no-such-user { }", "F:1: there is no user \"no-such-user\"\n" },
		{ "group no-such-group { }", "F:1: there is no group \"no-such-group\"\n" },
		{ "user 4294967295 { }", "F:1: there is no user \"4294967295\"\n" },
		{ "allow { users = {no-such-user} groups = {no-such-group} }",
		  "F:1: there is no user \"no-such-user\"\nF:1: there is no group "
		  "\"no-such-group\"\n" },
		/* names */
		{ "limits { pined = 1 }",
		  "F:1: unknown setting \"pined\" in \"limits\" (nearest valid name: "
		  "\"pinned\")\n" },
		{ "\n\nlimit { }",
		  "F:3: unknown section \"limit\" (nearest valid name: \"limits\")\n" },
		{ "times { wait = 4s }",
		  "F:1: unknown setting \"wait\" in \"times\" (valid names: hello, connect, "
		  "revoke, progress, drain)\n" },
		{ "usr bob { a { b = {c} } }\nhandshakes = 0",
		  "F:1: unknown section \"usr\" (nearest valid name: \"user\")\n"
		  "F:2: handshakes: 0 is out of range: 1 to 65536 will do\n" },
		{ "limits { user bob { } }\nhandshakes = 0",
		  "F:1: section \"user\" stands within another section\n"
		  "F:2: handshakes: 0 is out of range: 1 to 65536 will do\n" },
		{ "handshakes = 5 usr bob { }",
		  "F:1: unknown section \"usr\" (nearest valid name: \"user\")\n" },
		{ "device mlx5_0 { depth = 4 x { } }\nhandshakes = 0",
		  "F:1: device \"mlx5_0\": no device but \"iwarp\" has settings\n"
		  "F:2: handshakes: 0 is out of range: 1 to 65536 will do\n" },
		/* twice */
		{ "limits { }\nlimits { }",
		  "F:2: there is a section \"limits\" already, in line 1\n" },
		{ "times { }\n\ntimes {\n}",
		  "F:3: there is a section \"times\" already, in line 1\n" },
		{ "user root { }\nuser 0 { }",
		  "F:2: user \"0\" has a section already, \"root\" in line 1\n" },
		{ "user root { }\nuser root { }",
		  "F:2: user \"root\" has a section already, \"root\" in line 1\n" },
		{ "group 5 { }\ngroup 5 { }",
		  "F:2: group \"5\" has a section already, \"5\" in line 1\n" },
		{ "handshakes = 4\nhandshakes = 5",
		  "F:2: \"handshakes\" is set already, in line 1\n" },
		{ "limits { bytes = 4\nbytes = 5 }", "F:2: \"bytes\" is set already, in line 1\n" },
		{ "allow { users = {0}\nusers = {1} }",
		  "F:2: \"users\" is set already, in line 1\n" },
		{ "device iwarp { crc = no }\ndevice \"iwarp\" { ird = 5 }",
		  "F:2: device \"iwarp\" has a section already, in line 1\n" },
		{ "device iwarp { crc = no\ncrc = yes }",
		  "F:2: \"crc\" is set already, in line 1\n" },
		/* syntax */
		{ "limits { pinned 4 }", "F:1: missing equal sign after option 'pinned'\n" },
		{ "user { }", "F:1: missing title for section 'user'\n" },
		{ "limits root { }", "F:1: missing opening brace for section 'limits'\n" },
		{ "limits {\n pinned = 5\n", "F:1: this \"{\" is not closed\n" },
		{ "limits { }\n}", "F:2: this \"}\" closes nothing\n" },
		{ "handshakes =", "F:1: premature end of file\n" },
		{ "handshakes += 4", "F:1: attempt to append to non-list option 'handshakes'\n" },
		{ "handshakes = {4}", "F:1: unexpected token '{'\n" },
		{ "user \"root { }\n", "F:1: a quoted string is not closed in its line\n" },
		{ "user 'root { }\n", "F:1: a quoted string is not closed in its line\n" },
		{ "# a\n/* b\n# c", "F:2: this comment is not closed\n" },
		{ "/*/ handshakes = 5", "F:1: this comment is not closed\n" },
		/* what libConfuse takes without a word */
		{ "allow { users = {} }",
		  "F:1: an empty list means nothing: leave the setting out\n" },
		{ "allow {\n listen = {\n}\n}",
		  "F:3: an empty list means nothing: leave the setting out\n" },
		{ "user \"\" { }", "F:1: an empty string means nothing here\n" },
		{ "handshakes = ${HOME}", "F:1: environment variables are not expanded here\n" },
		{ "handshakes = \"${HOME}\"",
		  "F:1: environment variables are not expanded here\n" },
		{ "handshakes = \"\\061\"", "F:1: \"\\\" has no meaning here\n" },
		{ "handshakes = 1*2", "F:1: \"*\" has no meaning here\n" },
		{ "handshakes = +2", "F:1: \"+\" has no meaning here\n" },
		{ "handshakes = 1\a", "F:1: there is a control character in this line\n" },
		{ "limits|pinned = 5", "F:1: \"|\" has no meaning here\n" },
		{ "\"user=root\" = 5", "F:1: \"=\" has no meaning within quotes\n" },
		{ "include(\"/etc/passwd\")",
		  "F:1: parentheses mean nothing here: there are no functions, nor include()\n" },
		{ "a{a{a{a{a{a{a{a{a{",
		  "F:1: unknown section \"a\" (valid names: handshakes, limits, total, user, "
		  "group, allow, times, device, ladder)\nF:1: braces are nested too deeply\n" },
	};

	(void)state;
	for (size_t i = 0; i < XC_ARRAY_SIZE(cases); i++)
		expect_errors(cases[i].text, cases[i].errors);
}

static void all_mistakes_come_at_once(void **state)
{
	(void)state;
	expect_errors("# a comment\n"
		      "// another\n"
		      "limits { pinned = much }\n"
		      "/* a longer\n"
		      "   one */ handshaks = 5\n"
		      "user no-such-user { pined = 5\n"
		      "  bufers = {1, 2} buffers = few }\n"
		      "allow { connect = {nowhere} }\n",
		      "F:3: pinned: \"much\" is no size (such as 4096, 64K or 1GiB)\n"
		      "F:5: unknown setting \"handshaks\" (nearest valid name: \"handshakes\")\n"
		      "F:6: unknown setting \"pined\" in \"user\" (nearest valid name: "
		      "\"pinned\")\n"
		      "F:6: there is no user \"no-such-user\"\n"
		      "F:7: unknown setting \"bufers\" in \"user\" (nearest valid name: "
		      "\"buffers\")\n"
		      "F:7: buffers: \"few\" is no number (such as 1000 or 64K)\n"
		      "F:8: connect: \"nowhere\" is no address range (such as 10.0.0.0/8 or "
		      "\"::1\"; bits "
		      "behind the prefix must be 0)\n");
}

static size_t count_lines(const char *text)
{
	size_t n = 0;

	for (; *text; text++)
		n += *text == '\n';
	return n;
}

static char *repeat(const char *piece, int times)
{
	size_t n = strlen(piece);
	char *text = malloc(n * (size_t)times + 1);

	assert_non_null(text);
	for (int i = 0; i < times; i++)
		memcpy(text + n * (size_t)i, piece, n);
	text[n * (size_t)times] = '\0';
	return text;
}

static void a_flood_of_mistakes_is_bounded(void **state)
{
	char *text = repeat("user root { pinned = x }\n", 1000), *errors;
	struct xd_policy p;

	(void)state;
	assert_int_equal(parse(text, &p, &errors), -EINVAL);
	assert_int_equal(count_lines(errors), 101);
	assert_non_null(strstr(errors, "F: and 1899 more\n"));
	free(errors);
	free(text);
	xd_policy_done(&p);
}

static void a_flood_of_unknown_names_is_bounded(void **state)
{
	char text[4096], *errors;
	struct xd_policy p;
	size_t n = 0;

	(void)state;
	for (int i = 0; i < 100; i++)
		n += (size_t)snprintf(text + n, sizeof(text) - n, "zzzz%d = 5\n", i);
	assert_int_equal(parse(text, &p, &errors), -EINVAL);
	assert_int_equal(count_lines(errors), 33);
	assert_non_null(strstr(errors, "F:33: unknown name \"zzzz32\"; "
				       "what follows was not looked at\n"));
	free(errors);
	xd_policy_done(&p);
}

/* The same name, unknown in two sections and twice in one of them. */
static void each_place_of_an_unknown_name_is_told(void **state)
{
	(void)state;
	expect_errors("limits { pined = 1 }\nuser 1 { pined = 1 }\nuser 2 { pined = {1, 2} }\n",
		      "F:1: unknown setting \"pined\" in \"limits\" (nearest valid name: "
		      "\"pinned\")\n"
		      "F:2: unknown setting \"pined\" in \"user\" (nearest valid name: "
		      "\"pinned\")\n"
		      "F:3: unknown setting \"pined\" in \"user\" (nearest valid name: "
		      "\"pinned\")\n");
}

static void a_nul_byte_does_not_hide_the_rest(void **state)
{
	static const char text[] = "handshakes = 5\n\0\nlimits { pinned = x }\n";
	struct xd_policy p;
	char *errors;

	(void)state;
	assert_int_equal(xd_config_parse("F", text, sizeof(text) - 1, &p, &errors), -EINVAL);
	assert_non_null(strstr(errors, "F:2: there is a NUL byte in this line\n"));
	free(errors);
	xd_policy_done(&p);
}

static void one_parse_does_not_change_the_next(void **state)
{
	static const char *const spoilers[] = {
		"handshakes = \"abc", "limits { pinned = \"",   "/*", "a = {",
		"user root {",         "handshakes = \"\\9\"",
	};
	struct xd_policy p;

	(void)state;
	for (size_t i = 0; i < XC_ARRAY_SIZE(spoilers); i++) {
		char *errors;

		assert_int_equal(parse(spoilers[i], &p, &errors), -EINVAL);
		free(errors);
		xd_policy_done(&p);
		accept_text("handshakes = 77", &p);
		assert_int_equal(p.handshakes, 77);
		xd_policy_done(&p);
	}
}

/* ---- files ---- */

static void write_file(char path[static 32], const char *text, size_t size)
{
	int fd;

	strcpy(path, "/tmp/test_config.XXXXXX");
	fd = mkstemp(path);
	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, size), size);
	close(fd);
}

static int load(const char *path, bool must_exist, char **errors)
{
	struct xd_policy p;
	int r = xd_config_load(path, must_exist, &p, errors);

	assert_true(p.user.value[XD_LIMIT_sessions] == 64);
	assert_int_equal(p.handshakes, r || !must_exist ? 256 : 9);
	xd_policy_done(&p);
	return r;
}

static void files_are_read(void **state)
{
	char path[32], expected[128], *errors;

	(void)state;
	write_file(path, "handshakes = 9", 14);
	assert_int_equal(load(path, true, &errors), 0);
	assert_null(errors);
	unlink(path);
	assert_int_equal(load(path, false, &errors), 0);
	assert_null(errors);
	assert_int_equal(load(path, true, &errors), -ENOENT);
	snprintf(expected, sizeof(expected), "%s: No such file or directory\n", path);
	assert_string_equal(errors, expected);
	free(errors);
	/* A default file that is there but cannot be read is not a missing one. */
	assert_int_equal(load("/proc", false, &errors), -EISDIR);
	assert_string_equal(errors, "/proc: Is a directory\n");
	free(errors);

	write_file(path, "handshakes = x", 14);
	assert_int_equal(load(path, false, &errors), -EINVAL);
	snprintf(expected, sizeof(expected),
		 "%s:1: handshakes: \"x\" is no number (such as 1000 or 64K)\n", path);
	assert_string_equal(errors, expected);
	free(errors);
	unlink(path);
}

static void huge_files_are_refused(void **state)
{
	char path[32], *errors, *text = malloc(XD_CONFIG_BYTES_MAX + 1);

	(void)state;
	assert_non_null(text);
	memset(text, ' ', XD_CONFIG_BYTES_MAX + 1);
	memcpy(text, "handshakes = 9", 14);
	write_file(path, text, XD_CONFIG_BYTES_MAX);
	assert_int_equal(load(path, true, &errors), 0);
	unlink(path);
	write_file(path, text, XD_CONFIG_BYTES_MAX + 1);
	assert_int_equal(load(path, true, &errors), -EFBIG);
	assert_non_null(strstr(errors, ": it is longer than 1 MiB\n"));
	free(errors);
	unlink(path);
	free(text);
}

/* The shipped example says what the defaults are: with the marks taken off, nothing may change. */
static void the_example_says_the_defaults(void **state)
{
	const char *srcdir = getenv("XD_SRCDIR");
	struct xd_policy p, shipped;
	char path[512], text[16384], out[16384], *errors, *to = out;
	FILE *f;
	size_t n;

	(void)state;
	snprintf(path, sizeof(path), "%s/systemd/rdmaxferd.conf", srcdir ? srcdir : ".");
	f = fopen(path, "r");
	assert_non_null(f);
	n = fread(text, 1, sizeof(text) - 1, f);
	fclose(f);
	assert_true(n > 0 && n < sizeof(text) - 1);
	text[n] = '\0';

	xd_policy_init(&shipped);
	accept_text(text, &p);
	assert_is_shipped(&p);
	xd_policy_done(&p);

	/* "#word" is a setting, "# words" is prose. */
	for (const char *at = text; *at; at++) {
		if (*at == '#' && (at == text || at[-1] == '\n') && at[1] != ' ' && at[1] != '\n')
			continue;
		*to++ = *at;
	}
	*to = '\0';
	assert_int_equal(xd_config_parse(path, out, strlen(out), &p, &errors), 0);
	assert_memory_equal(&p.user, &shipped.user, sizeof(p.user));
	for (int i = 0; i < XD_LIMIT_COUNT; i++)
		assert_true(p.total.value[i] == xd_policy_total(&shipped, (enum xd_limit)i));
	assert_true(p.hello_ms == shipped.hello_ms && p.connect_ms == shipped.connect_ms &&
		    p.revoke_ms == shipped.revoke_ms && p.progress_ms == shipped.progress_ms &&
		    p.drain_ms == shipped.drain_ms && p.handshakes == shipped.handshakes);
	assert_int_equal(p.iwarp.crc, shipped.iwarp.crc);
	assert_int_equal(p.iwarp.shortcut, shipped.iwarp.shortcut);
	assert_true(p.iwarp.ird == shipped.iwarp.ird && p.iwarp.ord == shipped.iwarp.ord);
	assert_true(p.iwarp.handshakes == shipped.iwarp.handshakes &&
		    p.iwarp.handshakes_per_host == shipped.iwarp.handshakes_per_host);
	assert_int_equal(p.n_users + p.n_groups, 0);
	assert_int_equal(p.n_allows, 1);
	assert_true(p.allows[0].everybody);
	assert_true(p.allows[0].n_listen == 2 && p.allows[0].n_connect == 2);
	xd_policy_done(&p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_empty_file_is_the_default),
		cmocka_unit_test(all_that_can_be_said),
		cmocka_unit_test(mistakes_are_told),
		cmocka_unit_test(all_mistakes_come_at_once),
		cmocka_unit_test(a_flood_of_mistakes_is_bounded),
		cmocka_unit_test(a_flood_of_unknown_names_is_bounded),
		cmocka_unit_test(each_place_of_an_unknown_name_is_told),
		cmocka_unit_test(a_nul_byte_does_not_hide_the_rest),
		cmocka_unit_test(one_parse_does_not_change_the_next),
		cmocka_unit_test(files_are_read),
		cmocka_unit_test(huge_files_are_refused),
		cmocka_unit_test(the_example_says_the_defaults),
	};

	return cmocka_run_group_tests_name("config", tests, NULL, NULL);
}
