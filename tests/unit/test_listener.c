/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Real sockets and the real engine, on a core without policy: who is let in, and how a connection
 * ends.
 */
#define _GNU_SOURCE 1
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "daemon/io/codec.h"
#include "daemon/io/engine.h"
#include "daemon/io/listener.h"
#include "daemon/io/server.h"
#include "daemon/io/sockpath.h"
#include "tests/unit/stub_core.h"

#define TURNS_MAX 20000

static char dir[64], path[100];
static struct xd_policy policy;
static struct xd_engine *engine;
static struct xd_core *core;
static struct xd_server *server;
static struct xd_listener *listener;
static struct xd_timer tick;

/* So that a turn that waits always ends. */
static void tick_fired(struct xd_timer *t)
{
	xd_engine_ops.arm(engine, t, xd_engine_ops.now_ns(engine) + 1000000);
}

#define UNTIL(cond)                                                                                \
	do {                                                                                       \
		int turns_ = 0;                                                                    \
		while (!(cond) && turns_++ < TURNS_MAX)                                            \
			xd_engine_turn(engine, true);                                              \
		assert_true(cond);                                                                 \
	} while (0)

static int set_up(void **state)
{
	struct xd_engine_ref ref;

	(void)state;
	snprintf(dir, sizeof(dir), "/tmp/xd-test-XXXXXX");
	if (!mkdtemp(dir))
		return -1;
	snprintf(path, sizeof(path), "%s/client/sock", dir);
	memset(&policy, 0, sizeof(policy));
	policy.handshakes = 16;
	policy.hello_ms = 60000;
	if (xd_engine_new(NULL, &engine) < 0)
		return -1;
	ref = xd_engine_ref(engine);
	core = stub_core_new(&ref);
	core->close_fds = true;
	tick = (struct xd_timer){ .fired = tick_fired };
	tick_fired(&tick);
	return xd_server_new(engine, core, &policy, NULL, &server);
}

static int tear_down(void **state)
{
	char command[100];

	(void)state;
	if (listener)
		xd_listener_close(listener);
	listener = NULL;
	core->keep_gone = false;
	xd_server_close(server);
	for (int i = 0; i < TURNS_MAX && !xd_server_idle(server); i++)
		xd_engine_turn(engine, true);
	xd_server_free(server);
	xd_engine_ops.disarm(engine, &tick);
	if (!xd_engine_free(engine, 10000))
		return -1;
	stub_core_free(core);
	snprintf(command, sizeof(command), "rm -rf %s", dir);
	return system(command);
}

static void serve(bool admin)
{
	char why[XD_SOCKPATH_WHY_MAX] = "";
	struct xd_sockpath sock;

	if (xd_sockpath_open(path, "no-such-group", &sock, why) < 0)
		fail_msg("%s", why);
	assert_int_equal(xd_listener_new(server, &sock, admin, &listener), 0);
}

static int dial(void)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	assert_true(fd >= 0);
	memcpy(address.sun_path, path, strlen(path) + 1);
	assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof(address)), 0);
	return fd;
}

static void say(int fd, Xp__ClientMessage *m)
{
	uint8_t buf[XP_PACKET_BYTES_MAX];
	size_t n = xp__client_message__pack(m, buf);

	assert_int_equal(send(fd, buf, n, MSG_NOSIGNAL), n);
}

static void say_hello(int fd)
{
	Xp__ClientMessage m = XP__CLIENT_MESSAGE__INIT;
	Xp__Hello hello = XP__HELLO__INIT;

	hello.major = 1;
	m.serial = 1;
	m.body_case = XP__CLIENT_MESSAGE__BODY_HELLO;
	m.hello = &hello;
	say(fd, &m);
}

/* The next packet; NULL at the end of file. Runs the engine meanwhile. */
static Xp__DaemonMessage *hear(int fd)
{
	uint8_t buf[XP_PACKET_BYTES_MAX + 1];
	Xp__DaemonMessage *m;
	ssize_t n = -1;

	for (int i = 0; n < 0 && i < TURNS_MAX; i++) {
		n = recv(fd, buf, sizeof(buf), MSG_DONTWAIT);
		if (n < 0) {
			assert_int_equal(errno, EAGAIN);
			xd_engine_turn(engine, true);
		}
	}
	assert_true(n >= 0);
	if (!n)
		return NULL;
	m = xp__daemon_message__unpack(NULL, (size_t)n, buf);
	assert_non_null(m);
	return m;
}

static void expect_goodbye(int fd, int status, const char *part)
{
	Xp__DaemonMessage *m = hear(fd);

	assert_non_null(m);
	assert_int_equal(m->body_case, XP__DAEMON_MESSAGE__BODY_GOODBYE);
	assert_int_equal(m->goodbye->status, status);
	if (!strstr(m->goodbye->text, part))
		fail_msg("\"%s\" says nothing of \"%s\"", m->goodbye->text, part);
	xp__daemon_message__free_unpacked(m, NULL);
	assert_null(hear(fd));
	close(fd);
}

static int greeted_client(void)
{
	int fd = dial();
	Xp__DaemonMessage *m;

	say_hello(fd);
	m = hear(fd);
	assert_non_null(m);
	assert_int_equal(m->body_case, XP__DAEMON_MESSAGE__BODY_HELLO_REPLY);
	xp__daemon_message__free_unpacked(m, NULL);
	return fd;
}

static unsigned open_descriptors(void)
{
	unsigned n = 0;

	for (int fd = 0; fd < 4096; fd++)
		n += fcntl(fd, F_GETFD) >= 0;
	return n;
}

/* ---- the path */

static void test_path(void **state)
{
	char why[XD_SOCKPATH_WHY_MAX] = "", at[120];
	struct xd_sockpath first, second;
	struct stat st;
	pid_t child;
	int status;

	(void)state;
	assert_int_equal(xd_sockpath_open(path, "no-such-group", &first, why), 0);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode & 07777, 0660);
	snprintf(at, sizeof(at), "%s/client", dir);
	assert_int_equal(stat(at, &st), 0);
	assert_int_equal(st.st_mode & 07777, 0750);

	/* The same path for both sockets of one daemon. */
	assert_int_equal(xd_sockpath_open(path, "no-such-group", &second, why), -EADDRINUSE);
	assert_non_null(strstr(why, path));
	assert_non_null(strstr(why, "other socket"));

	/* A live daemon is refused, by path and number, and goes on. */
	snprintf(at, sizeof(at), "pid %d", (int)getpid());
	child = fork();
	assert_true(child >= 0);
	if (child == 0) {
		status = xd_sockpath_open(path, "no-such-group", &second, why);
		_exit(status == -EADDRINUSE && strstr(why, path) && strstr(why, at) ? 0 : 1);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	close(dial());

	/* Stopped in order: the name is gone, the lock file is not. */
	xd_sockpath_close(&first);
	assert_int_equal(access(path, F_OK), -1);
	snprintf(at, sizeof(at), "%s.lock", path);
	assert_int_equal(access(at, F_OK), 0);
	assert_int_equal(xd_sockpath_open(path, "no-such-group", &first, why), 0);
	xd_sockpath_close(&first);
}

/* A daemon that was killed leaves its socket behind, but not its lock. */
static void test_path_of_dead(void **state)
{
	char why[XD_SOCKPATH_WHY_MAX] = "";
	struct xd_sockpath sock;
	int status;
	pid_t pid;

	(void)state;
	pid = fork();
	if (pid == 0) {
		if (xd_sockpath_open(path, "no-such-group", &sock, why) == 0)
			raise(SIGKILL);
		_exit(1);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFSIGNALED(status));
	assert_int_equal(access(path, F_OK), 0);
	assert_int_equal(xd_sockpath_open(path, "no-such-group", &sock, why), 0);
	close(dial());
	xd_sockpath_close(&sock);
}

static void test_path_in_the_way(void **state)
{
	char why[XD_SOCKPATH_WHY_MAX] = "", lock[120], longer[200];
	struct xd_sockpath sock;
	int fd;

	(void)state;
	snprintf(lock, sizeof(lock), "%s/client", dir);
	assert_int_equal(mkdir(lock, 0700), 0);
	fd = open(path, O_CREAT | O_WRONLY, 0600);
	assert_true(fd >= 0);
	close(fd);
	assert_int_equal(xd_sockpath_open(path, "no-such-group", &sock, why), -EEXIST);
	assert_non_null(strstr(why, "not a socket"));
	assert_int_equal(unlink(path), 0);

	/* A lock file that is a link leads where others want it. */
	snprintf(lock, sizeof(lock), "%s.lock", path);
	unlink(lock);
	assert_int_equal(symlink("/tmp/xd-elsewhere", lock), 0);
	assert_int_equal(xd_sockpath_open(path, "no-such-group", &sock, why), -ELOOP);

	memset(longer, 'l', sizeof(longer));
	longer[0] = '/';
	longer[sizeof(longer) - 1] = '\0';
	assert_int_equal(xd_sockpath_open(longer, "no-such-group", &sock, why), -ENAMETOOLONG);
	assert_non_null(strstr(why, "107"));
	assert_int_equal(xd_sockpath_open("/proc/no/such/sock", "x", &sock, why), -ENOENT);
}

static void test_default_paths(void **state)
{
	char at[XD_SOCKPATH_MAX], why[XD_SOCKPATH_WHY_MAX] = "";

	(void)state;
	setenv("RUNTIME_DIRECTORY", "/run/one:/run/two", 1);
	assert_int_equal(xd_sockpath_default("client", at, why), 0);
	assert_string_equal(at, "/run/one/client/sock");
	unsetenv("RUNTIME_DIRECTORY");
	if (geteuid() == 0) {
		assert_int_equal(xd_sockpath_default("admin", at, why), 0);
		assert_string_equal(at, "/run/rdmaxferd/admin/sock");
	}
	if (geteuid() == 0 && seteuid(65534) < 0)
		skip();
	unsetenv("XDG_RUNTIME_DIR");
	assert_int_equal(xd_sockpath_default("client", at, why), -ENOENT);
	assert_non_null(strstr(why, "XDG_RUNTIME_DIR"));
	setenv("XDG_RUNTIME_DIR", "/run/user/7", 1);
	assert_int_equal(xd_sockpath_default("client", at, why), 0);
	assert_string_equal(at, "/run/user/7/rdmaxferd/client/sock");
	if (getuid() == 0)
		assert_int_equal(seteuid(0), 0);
}

/* ---- who is let in */

static void test_session(void **state)
{
	int fd;

	(void)state;
	serve(false);
	fd = greeted_client();
	assert_int_equal(server->n_conns, 1);
	assert_int_equal(server->n_handshakes, 0);
	assert_int_equal(stub_session(core)->peer.uid, geteuid());
	assert_int_equal(stub_session(core)->peer.pid, getpid());
	assert_true(stub_session(core)->peer.n_gids >= 1);
	assert_false(stub_session(core)->peer.admin);
	close(fd);
	UNTIL(xd_server_idle(server));
	assert_int_equal(core->closes, 1);
}

/* The session is not gone yet when everything else is; and the other way round. */
static void test_session_outlives_socket(void **state)
{
	int fd;

	(void)state;
	serve(false);
	core->keep_gone = true;
	fd = greeted_client();
	close(fd);
	UNTIL(core->closes == 1);
	for (int i = 0; i < 20; i++)
		xd_engine_turn(engine, true);
	assert_int_equal(server->n_closing, 1);
	stub_core_release(core);
	UNTIL(xd_server_idle(server));
}

static void test_refused_by_core(void **state)
{
	int fd;

	(void)state;
	serve(false);
	core->refuse = -XP_E_QUOTA;
	fd = dial();
	/* A word before the answer must not cost the client the answer. */
	say_hello(fd);
	expect_goodbye(fd, -XP_E_QUOTA, "the test refuses");
	UNTIL(xd_server_idle(server));
	assert_int_equal(core->counters[XD_COUNTER_sessions_refused], 1);
}

static void test_handshakes(void **state)
{
	int fd[4], fifth;

	(void)state;
	serve(false);
	/* A quarter of 16 for one user. */
	for (int i = 0; i < 4; i++)
		fd[i] = dial();
	UNTIL(server->n_handshakes == 4);
	fifth = dial();
	expect_goodbye(fifth, -XP_E_QUOTA, "have not said hello yet, the most of one user");
	say_hello(fd[0]);
	UNTIL(server->n_handshakes == 3);
	fifth = greeted_client();
	close(fd[1]);
	UNTIL(server->n_handshakes == 2);
	for (int i = 0; i < 4; i++) {
		if (i != 1)
			close(fd[i]);
	}
	close(fifth);
	UNTIL(xd_server_idle(server));
	assert_int_equal(server->n_handshakes, 0);
}

static void test_hello_late(void **state)
{
	int fd;

	(void)state;
	policy.hello_ms = 20;
	serve(false);
	fd = dial();
	expect_goodbye(fd, -ETIMEDOUT, "no Hello came within 20 ms");
	UNTIL(xd_server_idle(server));
	/* Said in time: the timer is gone. */
	fd = greeted_client();
	for (int i = 0; i < 40; i++)
		xd_engine_turn(engine, true);
	assert_int_equal(server->n_conns, 1);
	close(fd);
}

static void test_admins_only(void **state)
{
	int pipes[2], status;
	bool ended = false;
	char result = 0;
	pid_t pid;

	(void)state;
	if (geteuid() != 0)
		skip();
	serve(true);
	close(greeted_client());
	/* A stranger, where the modes of the path would let him. */
	assert_int_equal(chmod(dir, 0755), 0);
	assert_int_equal(chmod(path, 0666), 0);
	*strrchr(path, '/') = '\0';
	assert_int_equal(chmod(path, 0755), 0);
	path[strlen(path)] = '/';
	assert_int_equal(pipe(pipes), 0);
	pid = fork();
	if (pid == 0) {
		char buf[1024];
		int fd;

		if (setgid(54321) < 0 || setuid(54321) < 0)
			_exit(1);
		fd = dial();
		result = recv(fd, buf, sizeof(buf), 0) > 0 && recv(fd, buf, sizeof(buf), 0) == 0;
		_exit(write(pipes[1], &result, 1) == 1 ? 0 : 1);
	}
	UNTIL(core->counters[XD_COUNTER_sessions_refused] == 1);
	UNTIL(ended || (ended = waitpid(pid, &status, WNOHANG) == pid));
	assert_int_equal(read(pipes[0], &result, 1), 1);
	assert_true(result);
	close(pipes[0]);
	close(pipes[1]);
}

/* ---- death */

/* The process that connected is gone: that is the end, whoever else holds the socket. */
static void test_forked_child_holds_socket(void **state)
{
	int pair[2], fd, status;
	pid_t pid;
	char c;

	(void)state;
	serve(false);
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
	pid = fork();
	if (pid == 0) {
		fd = dial();
		say_hello(fd);
		if (fork() == 0) {
			/* Until the test has seen enough. */
			close(pair[0]);
			_exit(read(pair[1], &c, 1) < 0);
		}
		/* Not before the daemon has seen us. */
		_exit(recv(fd, &c, 1, MSG_TRUNC) <= 0);
	}
	UNTIL(core->numbers == 1 && stub_session(core) && stub_session(core)->greeted);
	UNTIL(core->closes == 1);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	close(pair[1]);
	close(pair[0]);
	UNTIL(xd_server_idle(server));
}

static void test_killed_with_unread_output(void **state)
{
	struct xd_out out = { .kind = XD_OUT_COMPLETION };
	int fd;

	(void)state;
	serve(false);
	fd = greeted_client();
	memset(out.text, 'x', sizeof(out.text) - 1);
	while (stub_say(stub_session(core), &out))
		;
	UNTIL(server->conns.next != &server->conns && stub_session(core)->out_count < STUB_OUTS);
	close(fd);
	UNTIL(xd_server_idle(server));
	assert_int_equal(core->closes, 1);
}

/* ---- input and output */

static void test_failure_ends_with_goodbye(void **state)
{
	int fd, pipes[2];

	(void)state;
	serve(false);
	fd = greeted_client();
	assert_int_equal(send(fd, "\xff\xff\xff", 3, 0), 3);
	/* What comes behind is not looked at, and costs the client nothing of what it is told. */
	assert_int_equal(send(fd, "\xff\xff\xff", 3, 0), 3);
	expect_goodbye(fd, -XP_E_PROTOCOL, "no ClientMessage");
	UNTIL(xd_server_idle(server));

	fd = greeted_client();
	assert_int_equal(send(fd, "", 0, 0), 0);
	expect_goodbye(fd, -XP_E_PROTOCOL, "the packet is empty");

	fd = greeted_client();
	assert_int_equal(pipe(pipes), 0);
	assert_int_equal(xp_fdmsg_send(fd, "\x08\x01\x32", 3, pipes, 2), 0);
	expect_goodbye(fd, -XP_E_PROTOCOL, "no ClientMessage");
	assert_int_equal(core->discards, 2);
	close(pipes[0]);
	close(pipes[1]);

	fd = greeted_client();
	{
		static char big[XP_PACKET_BYTES_MAX + 1];

		assert_int_equal(send(fd, big, sizeof(big), 0), sizeof(big));
	}
	expect_goodbye(fd, -XP_E_PROTOCOL, "longer than 65536");
}

/*
 * A client that does not read holds up itself; what it is owed stays with the core; it gets all
 * when it reads again.
 */
static void test_slow_reader(void **state)
{
	struct xd_out out = { .kind = XD_OUT_COMPLETION };
	unsigned said = 0, heard = 0, left;
	Xp__ClientMessage m = XP__CLIENT_MESSAGE__INIT;
	Xp__Disconnect disconnect = XP__DISCONNECT__INIT;
	unsigned calls;
	int slow, quick;

	(void)state;
	serve(false);
	slow = greeted_client();
	memset(out.text, 'x', sizeof(out.text) - 1);
	for (; said < STUB_OUTS; said++) {
		out.completion.wr_id = said;
		assert_true(stub_say(stub_session(core), &out));
	}
	left = STUB_OUTS;
	/* Until it gets no further. */
	for (int i = 0; i < 50; i++) {
		xd_engine_turn(engine, true);
		left = stub_session(core)->out_count;
	}
	assert_true(left > 0);
	/* One packet is kept for it, and nothing is read from it. */
	assert_int_equal(server->n_staged, 0);
	calls = core->calls;
	m.serial = 5;
	m.body_case = XP__CLIENT_MESSAGE__BODY_DISCONNECT;
	m.disconnect = &disconnect;
	say(slow, &m);
	quick = greeted_client();
	assert_int_equal(core->calls, calls + 1); /* the other's hello */
	close(quick);
	while (heard < said) {
		Xp__DaemonMessage *reply = hear(slow);

		assert_non_null(reply);
		assert_int_equal(reply->body_case, XP__DAEMON_MESSAGE__BODY_COMPLETIONS);
		for (size_t i = 0; i < reply->completions->n_completions; i++)
			assert_int_equal(reply->completions->completions[i]->wr_id, heard++);
		xp__daemon_message__free_unpacked(reply, NULL);
	}
	{
		Xp__DaemonMessage *reply = hear(slow);

		assert_int_equal(reply->serial, 5);
		xp__daemon_message__free_unpacked(reply, NULL);
	}
	assert_true(server->n_staged >= 1);
	close(slow);
}

/*
 * Busy: the core takes no more. Nothing is read, and the end of the client is seen all the same.
 */
static void test_busy(void **state)
{
	Xp__ClientMessage m = XP__CLIENT_MESSAGE__INIT;
	Xp__Disconnect disconnect = XP__DISCONNECT__INIT;
	const struct xd_out out = { .kind = XD_OUT_DISCONNECTED };
	unsigned calls;
	int fd;

	(void)state;
	serve(false);
	fd = greeted_client();
	stub_session(core)->busy = true;
	stub_say(stub_session(core), &out);
	xp__daemon_message__free_unpacked(hear(fd), NULL);
	calls = core->calls;
	m.serial = 5;
	m.body_case = XP__CLIENT_MESSAGE__BODY_DISCONNECT;
	m.disconnect = &disconnect;
	say(fd, &m);
	for (int i = 0; i < 20; i++)
		xd_engine_turn(engine, true);
	assert_int_equal(core->calls, calls);
	stub_session(core)->busy = false;
	stub_say(stub_session(core), &out);
	UNTIL(core->calls == calls + 1);
	stub_session(core)->busy = true;
	stub_say(stub_session(core), &out);
	close(fd);
	UNTIL(xd_server_idle(server));
}

static void test_submit_batch(void **state)
{
	Xp__ClientMessage m = XP__CLIENT_MESSAGE__INIT;
	Xp__Submit submit = XP__SUBMIT__INIT;
	Xp__Request request[100], *requests[100];
	Xp__DaemonMessage *reply;
	int fd;

	(void)state;
	serve(false);
	core->complete = true;
	fd = greeted_client();
	for (unsigned i = 0; i < 100; i++) {
		request[i] = (Xp__Request)XP__REQUEST__INIT;
		request[i].opcode = XP_OP_SEND;
		request[i].cookie = i + 1;
		requests[i] = &request[i];
	}
	submit.requests = requests;
	submit.n_requests = 100;
	m.body_case = XP__CLIENT_MESSAGE__BODY_SUBMIT;
	m.submit = &submit;
	say(fd, &m);
	/* All in one packet. */
	reply = hear(fd);
	assert_int_equal(reply->completions->n_completions, 100);
	assert_int_equal(reply->completions->completions[99]->cookie, 100);
	xp__daemon_message__free_unpacked(reply, NULL);
	close(fd);
}

/* ---- exhaustion, and nothing left behind */

static void test_out_of_descriptors(void **state)
{
	struct rlimit old, tight;
	int fd[8], hog[64], n = 0;

	(void)state;
	serve(false);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
	for (int i = 0; i < 8; i++)
		fd[i] = dial();
	tight = old;
	tight.rlim_cur = open_descriptors() + 8;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &tight), 0);
	while (n < 64 && (hog[n] = dup(0)) >= 0)
		n++;
	/* One is told, by the reserve; the others wait, and the loop sleeps between its looks. */
	expect_goodbye(fd[0], -EMFILE, "no descriptors left");
	for (int i = 0; i < n; i++)
		close(hog[i]);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &old), 0);
	/* A quarter of 16 handshakes is 4: the three beyond hear that instead. */
	UNTIL(server->n_handshakes == 4);
	assert_true(server->reserve >= 0);
	for (int i = 1; i < 8; i++)
		close(fd[i]);
	UNTIL(xd_server_idle(server));
}

static void test_few_descriptors(void **state)
{
	int fd;

	(void)state;
	serve(false);
	server->fd_limit = 3;
	fd = dial();
	expect_goodbye(fd, -EMFILE, "no descriptors left");
}

static void test_nothing_left(void **state)
{
	unsigned before;

	(void)state;
	serve(false);
	/* Warm: whatever is kept is there. */
	close(greeted_client());
	UNTIL(xd_server_idle(server));
	before = open_descriptors();
	for (int i = 0; i < 500; i++) {
		int fd = i % 3 ? greeted_client() : dial();

		if (i % 3 == 2)
			assert_int_equal(send(fd, "\xff", 1, 0), 1);
		close(fd);
		if (i % 10 == 9)
			UNTIL(xd_server_idle(server));
	}
	UNTIL(xd_server_idle(server));
	assert_int_equal(open_descriptors(), before);
	assert_int_equal(core->numbers, core->closes);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		T(test_path),
		T(test_path_of_dead),
		T(test_path_in_the_way),
		T(test_default_paths),
		T(test_session),
		T(test_session_outlives_socket),
		T(test_refused_by_core),
		T(test_handshakes),
		T(test_hello_late),
		T(test_admins_only),
		T(test_forked_child_holds_socket),
		T(test_killed_with_unread_output),
		T(test_failure_ends_with_goodbye),
		T(test_slow_reader),
		T(test_busy),
		T(test_submit_batch),
		T(test_out_of_descriptors),
		T(test_few_descriptors),
		T(test_nothing_left),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
