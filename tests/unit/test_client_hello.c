/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The library: connecting, versions, round trips, what is said when the daemon goes. */
#include "tests/unit/cm.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/unit/fake_daemon.h"

static struct fake fake;

static int setup(void **state)
{
	(void)state;
	fake_init(&fake);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	fake_done(&fake);
	return 0;
}

static void says_hello(void **state)
{
	struct xfer_client_options o = { .size = sizeof(o), .name = "pro\ngram \xc3\xa4" };
	struct xfer_client *c;

	(void)state;
	fake_start(&fake);
	assert_int_equal(fake_client(&fake, &o, &c), 0);
	assert_string_equal(xfer_client_daemon_version(c), "9.8.7");
	assert_string_equal(fake.name, "pro?gram ??");
	xfer_client_free(c);
}

static void a_newer_minor_is_welcome(void **state)
{
	struct xfer_client *c;

	(void)state;
	fake.minor = 99;
	fake_start(&fake);
	assert_int_equal(fake_client(&fake, NULL, &c), 0);
	xfer_client_free(c);
}

static void another_major_is_refused(void **state)
{
	struct xfer_client *c;

	(void)state;
	fake.major = 2;
	fake.minor = 5;
	fake_start(&fake);
	assert_int_equal(fake_client(&fake, NULL, &c), -XFER_E_VERSION);
	assert_int_equal(xfer_last_error(NULL), -XFER_E_VERSION);
	assert_sentence("daemon 9.8.7 speaks protocol 2.5");
	assert_sentence("library " XFER_VERSION " speaks 1.0");
}

static void goodbye_instead_of_hello(void **state)
{
	struct xfer_client *c;

	(void)state;
	fake.mute = 1u << XP__CLIENT_MESSAGE__BODY_HELLO;
	fake_start(&fake);
	fake_say_goodbye(&fake, -XFER_E_QUOTA, "64 sessions of 64 are open");
	assert_int_equal(fake_client(&fake, NULL, &c), -XFER_E_QUOTA);
	assert_sentence("64 sessions of 64 are open");
}

static void no_answer_is_a_timeout(void **state)
{
	struct xfer_client_options o = { .size = sizeof(o), .timeout_ms = 50 };
	struct xfer_client *c;

	(void)state;
	fake.mute = 1u << XP__CLIENT_MESSAGE__BODY_HELLO;
	fake_start(&fake);
	assert_int_equal(fake_client(&fake, &o, &c), -ETIMEDOUT);
	assert_sentence("hello: no answer from the daemon in 50 ms");
}

static void a_late_answer_is_nobodys(void **state)
{
	struct xfer_client_options o = { .size = sizeof(o), .timeout_ms = 50 };
	Xp__DaemonMessage m = XP__DAEMON_MESSAGE__INIT;
	Xp__Reply body = XP__REPLY__INIT;
	struct xfer_listener *l;
	struct xfer_client *c;

	(void)state;
	fake.mute = 1u << XP__CLIENT_MESSAGE__BODY_LISTEN;
	fake_start(&fake);
	assert_int_equal(fake_client(&fake, &o, &c), 0);
	assert_int_equal(xfer_listen(c, "127.0.0.1", NULL, &l), -ETIMEDOUT);
	m.serial = 2; /* hello was 1 */
	m.body_case = XP__DAEMON_MESSAGE__BODY_REPLY;
	m.reply = &body;
	body.number = 12;
	fake_say(&fake, &m);
	fake_set(&fake, mute, 0);
	assert_int_equal(xfer_listen(c, "127.0.0.1", NULL, &l), 0);
	assert_string_equal(xfer_listener_address(l), "127.0.0.1:20470");
	xfer_listener_free(l);
	assert_int_equal(fake.seen[XP__CLIENT_MESSAGE__BODY_UNLISTEN], 1);
	xfer_client_free(c);
}

static void the_daemons_refusal_is_told(void **state)
{
	struct xfer_listener *l;
	struct xfer_client *c;

	(void)state;
	fake.reply_status = -XFER_E_DENIED;
	fake_start(&fake);
	assert_int_equal(fake_client(&fake, NULL, &c), 0);
	assert_int_equal(xfer_listen(c, "127.0.0.1", NULL, &l), -XFER_E_DENIED);
	assert_sentence("listen: because the test wants it");
	assert_int_equal(xfer_admin(c, "log-level", (const char *const[]){ "debug" }, 1),
			 -XFER_E_DENIED);
	xfer_client_free(c);
}

static void bad_options(void **state)
{
	struct xfer_client_options o = { .size = 2 };
	struct {
		struct xfer_client_options o;
		uint64_t newer;
	} big = { .o = { .size = sizeof(big) }, .newer = 1 };
	char path[300];
	struct xfer_client *c;

	(void)state;
	fake_start(&fake);
	assert_int_equal(xfer_client_new(&o, &c), -EINVAL);
	assert_sentence("options.size is 2");
	assert_int_equal(xfer_client_new(&big.o, &c), -EINVAL);
	assert_sentence("option that library");
	big.newer = 0;
	big.o.socket_path = "/nonexistent/sock";
	assert_int_equal(xfer_client_new(&big.o, &c), -ENOENT);
	assert_sentence("/nonexistent/sock: ");
	memset(path, 'a', sizeof(path));
	path[sizeof(path) - 1] = '\0';
	o = (struct xfer_client_options){ .size = sizeof(o), .socket_path = path };
	assert_int_equal(xfer_client_new(&o, &c), -EINVAL);
	assert_sentence("at most 107 bytes");
	o = (struct xfer_client_options){ .size = sizeof(o), .carry_bytes = UINT64_MAX };
	assert_int_equal(xfer_client_new(&o, &c), -EINVAL);
	assert_sentence("carry_bytes");
	o = (struct xfer_client_options){ .size = sizeof(o) };
	assert_int_equal(xfer_client_new(&o, NULL), -EINVAL);
	assert_int_equal(xfer_client_new(NULL, NULL), -EINVAL);
	assert_int_equal(xfer_flush(NULL), -EINVAL);
	assert_sentence("the client is NULL");
	close(fake.peer);
}

static void listen_at(int sock, const char *dir, const char *name, char *path, size_t size)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };

	snprintf(path, size, "%s/%s", dir, name);
	snprintf(a.sun_path, sizeof(a.sun_path), "%.100s", path);
	assert_int_equal(bind(sock, (struct sockaddr *)&a, sizeof(a)), 0);
	assert_int_equal(listen(sock, 1), 0);
}

static void sockets_from_the_environment(void **state)
{
	char dir[] = "/tmp/xferXXXXXX", path[128];
	struct xfer_client *c;
	int sock = socket(AF_UNIX, SOCK_SEQPACKET, 0);

	(void)state;
	close(fake.sock);
	close(fake.peer);
	assert_non_null(mkdtemp(dir));
	listen_at(sock, dir, "sock", path, sizeof(path));
	setenv("XFER_SOCKET", path, 1);
	/* The library blocks in hello until the fake answers, so that accept comes first. */
	if (fork() == 0) {
		int r = xfer_client_new(NULL, &c);

		xfer_client_free(r == 0 ? c : NULL);
		_exit(r == 0 ? 0 : 1);
	}
	fake.sock = accept(sock, NULL, NULL);
	fake_start(&fake);
	{
		int status;

		assert_true(wait(&status) > 0);
		assert_int_equal(status, 0);
	}
	close(sock);
	assert_int_equal(xfer_client_new(NULL, &c), -ECONNREFUSED);
	assert_sentence(path);
	unlink(path);
	rmdir(dir);
	unsetenv("XFER_SOCKET");
}

static void tables(void **state)
{
	const char *words[9] = { "one", "two",	 "three", "four", "five",
				 "six", "seven", "eight", "nine" };
	struct xfer_table *t;
	struct xfer_client *c;

	(void)state;
	fake_start(&fake);
	assert_int_equal(fake_client(&fake, NULL, &c), 0);
	assert_int_equal(xfer_query(c, "buffers", &t), 0);
	assert_int_equal(xfer_table_columns(t), 2);
	assert_int_equal(xfer_table_rows(t), 3);
	assert_string_equal(xfer_table_column_name(t, 1), "size");
	assert_string_equal(xfer_table_column_unit(t, 1), "bytes");
	assert_string_equal(xfer_table_column_unit(t, 0), "");
	assert_int_equal(xfer_table_column_is_number(t, 0), 0);
	assert_int_equal(xfer_table_column_is_number(t, 1), 1);
	assert_string_equal(xfer_table_cell(t, 2, 0), "row2");
	assert_string_equal(xfer_table_cell(t, 2, 1), "200");
	xfer_table_free(t);
	xfer_table_free(NULL);
	assert_int_equal(xfer_query(c, "nonsense", &t), -ENOENT);
	assert_sentence("query: no table");
	assert_int_equal(xfer_query(c, "odd", &t), -XFER_E_PROTOCOL);
	assert_int_equal(xfer_query(c, "endless", &t), -XFER_E_PROTOCOL);
	assert_int_equal(xfer_query(c, NULL, &t), -EINVAL);
	assert_int_equal(xfer_query(c, "buffers", NULL), -EINVAL);
	/* The fake says them. */
	assert_int_equal(xfer_query_about(c, "echo", words, 8, &t), -ENOENT);
	assert_sentence("query: one two three four five six seven eight");
	assert_int_equal(xfer_query_about(c, "echo", NULL, 0, &t), -ENOENT);
	assert_sentence("query: no table");
	assert_int_equal(xfer_query_about(c, "echo", words, 9, &t), -EINVAL);
	assert_sentence("query: 9 arguments: at most 8");
	assert_int_equal(xfer_query_about(c, "echo", NULL, 1, &t), -EINVAL);
	words[1] = NULL;
	assert_int_equal(xfer_query_about(c, "echo", words, 3, &t), -EINVAL);
	assert_sentence("query: argument 1 is NULL");
	xfer_client_free(c);
}

static void admin_arguments(void **state)
{
	const char *nine[9] = { "1", "2", "3", "4", "5", "6", "7", "8", "9" };
	const char *one[1] = { NULL };
	char *huge;
	const char *h[1];
	struct xfer_client *c;

	(void)state;
	fake_start(&fake);
	assert_int_equal(fake_client(&fake, NULL, &c), 0);
	assert_int_equal(xfer_admin(c, "end-session", nine, 1), 0);
	assert_int_equal(xfer_admin(c, "end-session", nine, 9), -EINVAL);
	assert_sentence("9 arguments: at most 8");
	assert_int_equal(xfer_admin(c, NULL, nine, 1), -EINVAL);
	assert_int_equal(xfer_admin(c, "end-session", one, 1), -EINVAL);
	assert_sentence("argument 0 is NULL");
	huge = malloc(20001);
	memset(huge, 'x', 20000);
	huge[20000] = '\0';
	h[0] = huge;
	assert_int_equal(xfer_admin(c, "log-level", h, 1), -EINVAL);
	assert_sentence("bytes of arguments: at most");
	free(huge);
	xfer_client_free(c);
}

static void strerror_knows_both_kinds(void **state)
{
	(void)state;
	fake_start(&fake);
	assert_string_equal(xfer_strerror(-XFER_E_QUOTA), xfer_strerror(XFER_E_QUOTA));
	assert_non_null(strstr(xfer_strerror(-XFER_E_QUOTA), "limit"));
	assert_string_equal(xfer_strerror(-ENOENT), "No such file or directory");
	assert_string_equal(xfer_strerror(INT32_MIN), "an unknown status");
	assert_string_equal(xfer_strerror(-4999), "an unknown status");
	assert_string_equal(xfer_version(), XFER_VERSION);
	close(fake.peer);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(says_hello, setup, teardown),
		cmocka_unit_test_setup_teardown(a_newer_minor_is_welcome, setup, teardown),
		cmocka_unit_test_setup_teardown(another_major_is_refused, setup, teardown),
		cmocka_unit_test_setup_teardown(goodbye_instead_of_hello, setup, teardown),
		cmocka_unit_test_setup_teardown(no_answer_is_a_timeout, setup, teardown),
		cmocka_unit_test_setup_teardown(a_late_answer_is_nobodys, setup, teardown),
		cmocka_unit_test_setup_teardown(the_daemons_refusal_is_told, setup, teardown),
		cmocka_unit_test_setup_teardown(bad_options, setup, teardown),
		cmocka_unit_test_setup_teardown(sockets_from_the_environment, setup, teardown),
		cmocka_unit_test_setup_teardown(tables, setup, teardown),
		cmocka_unit_test_setup_teardown(admin_arguments, setup, teardown),
		cmocka_unit_test_setup_teardown(strerror_knows_both_kinds, setup, teardown),
	};

	return cmocka_run_group_tests_name("client: hello and calls", tests, NULL, NULL);
}
