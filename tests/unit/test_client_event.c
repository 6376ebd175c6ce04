/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The library: connections, events, foreign loops, and how it all ends. */
#include "tests/unit/cm.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

#include "tests/unit/fake_daemon.h"

static struct fake fake;
static struct xfer_client *c;

static int setup(void **state)
{
	(void)state;
	fake_init(&fake);
	fake_start(&fake);
	return fake_client(&fake, NULL, &c);
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

/* ---- connections */

static void an_endpoints_life(void **state)
{
	int context1, context2;
	struct xfer_ep_options o = { .size = sizeof(o), .context = &context1 };
	struct xfer_ep_info info = { .size = sizeof(info) };
	struct xfer_event e;
	char big[57] = { 0 };
	struct xfer_ep *ep;

	(void)state;
	assert_int_equal(xfer_ep_new(c, "xfer://[::1]:5/path", &o, &ep), 0);
	refused(xfer_ep_info(ep, &info), -EAGAIN, "not ready");
	refused(xfer_connect(ep, NULL, 0), -EINVAL, "connect: the endpoint is not ready");
	refused(xfer_ep_wait(ep, XFER_EP_READY, 1), -ETIMEDOUT, "not ready in 1 ms");
	fake_say_ready(&fake, ep->number, 0);
	e = poll_one();
	assert_int_equal(e.type, XFER_EVENT_READY);
	assert_int_equal(e.status, 0);
	assert_ptr_equal(e.ep, ep);
	assert_ptr_equal(e.context, &context1);
	assert_ptr_equal(xfer_ep_context(ep), &context1);
	xfer_ep_set_context(ep, &context2);
	assert_int_equal(xfer_ep_info(ep, &info), 0);
	assert_string_equal(info.fabric, "fake");
	assert_string_equal(info.route, "there is no other");
	assert_int_equal(info.max_segments, 16);
	assert_int_equal(info.private_connect_bytes, 56);
	assert_int_equal(info.remote_invalidatable, 1);
	assert_int_equal(info.immediate, 0);
	assert_int_equal(info.grant_snapshot, 1);
	info.size = 3;
	refused(xfer_ep_info(ep, &info), -EINVAL, "set .size");
	refused(xfer_connect(ep, big, 57), -EINVAL,
		"connect: 57 bytes of private data: this endpoint takes 56");
	refused(xfer_connect(ep, NULL, 5), -EINVAL, "private data of 5 bytes at NULL");
	assert_int_equal(xfer_connect(ep, big, 56), 0);
	fake_say_connected(&fake, ep->number, 0, "hi there");
	assert_int_equal(xfer_ep_wait(ep, XFER_EP_CONNECTED, 20000), 0);
	e = poll_one(); /* waiting takes no event away */
	assert_int_equal(e.type, XFER_EVENT_CONNECTED);
	assert_ptr_equal(e.context, &context2);
	assert_int_equal(e.private_data_bytes, 8);
	assert_memory_equal(e.private_data, "hi there", 8);
	refused(xfer_connect(ep, NULL, 0), -EINVAL, "connected already");
	assert_int_equal(xfer_disconnect(ep), 0);
	fake_say_disconnected(&fake, ep->number, 0);
	e = poll_one();
	assert_int_equal(e.type, XFER_EVENT_DISCONNECTED);
	assert_int_equal(e.status, 0);
	refused(xfer_ep_wait(ep, XFER_EP_CONNECTED, 20000), -ENOTCONN, "has ended");
	assert_int_equal(xfer_ep_wait(ep, XFER_EP_READY, 20000), 0);
	refused(xfer_accept(ep, NULL, 0), -EINVAL, "accept: the endpoint has ended");
	xfer_ep_free(ep);
	xfer_ep_free(NULL);
	assert_int_equal(fake.seen[XP__CLIENT_MESSAGE__BODY_ENDPOINT_FREE], 1);
}

static void endpoints_that_fail(void **state)
{
	struct xfer_event e;
	struct xfer_ep *ep;

	(void)state;
	assert_int_equal(xfer_ep_new(c, "xfer://h", NULL, &ep), 0);
	fake_say_ready(&fake, ep->number, -EHOSTUNREACH);
	refused(xfer_ep_wait(ep, XFER_EP_CONNECTED, 20000), -EHOSTUNREACH, "unreachable");
	refused(xfer_ep_wait(ep, XFER_EP_READY, 20000), -EHOSTUNREACH, "unreachable");
	e = poll_one();
	assert_int_equal(e.type, XFER_EVENT_READY);
	assert_int_equal(e.status, -EHOSTUNREACH);
	assert_string_equal(e.text, "unreachable");
	xfer_ep_free(ep);
	ep = fake_ep(&fake, c, false);
	assert_int_equal(xfer_connect(ep, NULL, 0), 0);
	fake_say_connected(&fake, ep->number, -XFER_E_REJECTED, "no");
	assert_int_equal(xfer_ep_wait(ep, XFER_EP_CONNECTED, 20000), -XFER_E_REJECTED);
	e = poll_one();
	assert_int_equal(e.status, -XFER_E_REJECTED);
	assert_int_equal(e.private_data_bytes, 2);
	assert_string_equal(e.text, xfer_strerror(-XFER_E_REJECTED));
}

static void bad_endpoints(void **state)
{
	struct xfer_ep_options o = { .size = sizeof(o), .send_depth = 4097 };
	struct xfer_ep *ep;

	(void)state;
	refused(xfer_ep_new(c, "nonsense", NULL, &ep), -EINVAL, "xfer://");
	refused(xfer_ep_new(c, "xfer://h:0", NULL, &ep), -EINVAL, "port 0");
	refused(xfer_ep_new(c, "xfer://h", &o, &ep), -EINVAL, "send_depth 4097: at most 4096");
	o.send_depth = 0;
	o.recv_depth = 5000;
	refused(xfer_ep_new(c, "xfer://h", &o, &ep), -EINVAL, "recv_depth 5000");
	refused(xfer_ep_new(c, "xfer://h", NULL, NULL), -EINVAL, "ret_ep is NULL");
	refused(xfer_ep_new_answer(c, 0, NULL, &ep), -EINVAL, "request 0");
	refused(xfer_disconnect(NULL), -EINVAL, "the endpoint is NULL");
	fake_set(&fake, reply_status, -XFER_E_QUOTA);
	refused(xfer_ep_new(c, "xfer://h", NULL, &ep), -XFER_E_QUOTA, "because the test wants it");
	assert_int_equal(c->n_eps, 0);
	assert_true(xc_list_empty(&c->eps));
}

static void say_connect_request(struct xfer_listener *l, uint64_t request)
{
	Xp__DaemonMessage m = XP__DAEMON_MESSAGE__INIT;
	Xp__ConnectRequest body = XP__CONNECT_REQUEST__INIT;
	char peer[] = "127.0.0.1:4711";

	m.body_case = XP__DAEMON_MESSAGE__BODY_CONNECT_REQUEST;
	m.connect_request = &body;
	body.listener = l->number;
	body.request = request;
	body.peer_address = peer;
	body.peer_uid = 1234;
	body.private_data.data = (uint8_t *)peer;
	body.private_data.len = 3;
	fake_say(&fake, &m);
}

static void listeners(void **state)
{
	int context;
	struct xfer_listen_options o = { .size = sizeof(o), .context = &context, .backlog = 1025 };
	struct xfer_listener *l;
	struct xfer_event e;
	struct xfer_ep *ep;

	(void)state;
	refused(xfer_listen(c, "127.0.0.1:0", &o, &l), -EINVAL, "backlog 1025: at most 1024");
	o.backlog = 7;
	refused(xfer_listen(c, "", &o, &l), -EINVAL, "no host");
	refused(xfer_listen(c, "h", &o, NULL), -EINVAL, "ret_listener is NULL");
	assert_int_equal(xfer_listen(c, "127.0.0.1:0", &o, &l), 0);
	assert_string_equal(xfer_listener_address(l), "127.0.0.1:20470");
	assert_ptr_equal(xfer_listener_context(l), &context);
	say_connect_request(l, 99);
	e = poll_one();
	assert_int_equal(e.type, XFER_EVENT_CONNECT_REQUEST);
	assert_ptr_equal(e.listener, l);
	assert_ptr_equal(e.context, &context);
	assert_null(e.ep);
	assert_int_equal(e.request, 99);
	assert_int_equal(e.peer_uid, 1234);
	assert_string_equal(e.peer_address, "127.0.0.1:4711");
	assert_int_equal(e.private_data_bytes, 3);
	assert_memory_equal(e.private_data, "127", 3);
	assert_int_equal(xfer_ep_new_answer(c, e.request, NULL, &ep), 0);
	fake_say_ready(&fake, ep->number, 0);
	assert_int_equal(xfer_ep_wait(ep, XFER_EP_READY, 20000), 0);
	assert_int_equal(xfer_accept(ep, "yes", 3), 0);
	assert_int_equal(poll_one().type, XFER_EVENT_READY);
	assert_int_equal(xfer_reject(c, 100, "no", 2), 0);
	refused(xfer_reject(c, 100, "no", 257), -EINVAL, "reject: 257 bytes of private data");
	/* What is not polled goes with the listener. */
	say_connect_request(l, 101);
	xfer_listener_free(l);
	xfer_listener_free(NULL);
	assert_int_equal(xfer_poll(c, &e, 1, 0), 0);
}

/* ---- polling */

static void polling(void **state)
{
	struct xfer_event e[4];
	struct xfer_ep *ep = fake_ep(&fake, c, true);

	(void)state;
	refused(xfer_poll(c, e, 0, 0), -EINVAL, "room for 0 events");
	refused(xfer_poll(c, NULL, 4, 0), -EINVAL, "poll");
	assert_int_equal(xfer_poll(c, e, 4, 0), 0);
	assert_int_equal(xfer_poll(c, e, 4, 20), 0);
	for (uint64_t i = 0; i < 6; i++)
		assert_int_equal(xfer_post_recv(ep, NULL, 0, i, XFER_MORE, NULL), 0);
	fake_set(&fake, complete, true);
	/* Sends what XFER_MORE held back. */
	for (uint64_t i = 0; i < 6; i++) {
		assert_int_equal(xfer_poll(c, e, 1, 20000), 1);
		assert_int_equal(e[0].wr_id, i);
	}
	assert_int_equal(xfer_poll(c, e, 4, 0), 0);
}

static void on_alarm(int signal)
{
	(void)signal;
}

static void a_signal_ends_a_poll(void **state)
{
	struct sigaction act = { .sa_handler = on_alarm };
	struct itimerval t = {.it_value = {.tv_usec = 20000}, .it_interval = {.tv_usec = 20000}};
	struct itimerval off = { 0 };
	sigset_t alarms;
	struct xfer_event e;

	(void)state;
	/* The fake daemon's thread must not take it. */
	sigemptyset(&alarms);
	sigaddset(&alarms, SIGALRM);
	fake_stop(&fake);
	xfer_client_free(c);
	fake_done(&fake);
	fake_init(&fake);
	pthread_sigmask(SIG_BLOCK, &alarms, NULL);
	fake_start(&fake);
	pthread_sigmask(SIG_UNBLOCK, &alarms, NULL);
	assert_int_equal(fake_client(&fake, NULL, &c), 0);
	sigaction(SIGALRM, &act, NULL);
	setitimer(ITIMER_REAL, &t, NULL);
	assert_int_equal(xfer_poll(c, &e, 1, -1), -EINTR);
	/* A round trip does not mind. */
	c->timeout_ms = 100;
	fake_set(&fake, mute, 1u << XP__CLIENT_MESSAGE__BODY_QUERY);
	{
		struct xfer_table *table;

		assert_int_equal(xfer_query(c, "buffers", &table), -ETIMEDOUT);
	}
	setitimer(ITIMER_REAL, &off, NULL);
}

static bool readable(int fd, int timeout_ms)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };

	return poll(&p, 1, timeout_ms) == 1;
}

static void foreign_loops(void **state)
{
	struct xfer_ep *ep = fake_ep(&fake, c, true);
	int fd = xfer_client_fd(c);
	struct xfer_event e;
	struct xfer_table *t;

	(void)state;
	assert_true(fd >= 0);
	assert_int_equal(xfer_client_fd(c), fd);
	assert_int_equal(xfer_client_arm(c), 0);
	assert_false(readable(fd, 0));
	/* Arming sends what XFER_MORE held back, and the answer wakes the sleeper. */
	fake_set(&fake, complete, true);
	assert_int_equal(xfer_post_recv(ep, NULL, 0, 1, XFER_MORE, NULL), 0);
	assert_int_equal(xfer_client_arm(c), 0);
	assert_true(readable(fd, 20000));
	assert_int_equal(xfer_poll(c, &e, 1, 0), 1);
	assert_int_equal(e.wr_id, 1);
	assert_int_equal(xfer_client_arm(c), 0);
	assert_false(readable(fd, 0));
	/* An event that a round trip of another thread received wakes it too. */
	assert_int_equal(xfer_post_recv(ep, NULL, 0, 2, 0, NULL), 0);
	fake_wait_requests(&fake, 2);
	assert_int_equal(xfer_client_arm(c), 0);
	assert_int_equal(xfer_query(c, "buffers", &t), 0);
	xfer_table_free(t);
	assert_true(readable(fd, 0));
	assert_int_equal(xfer_client_arm(c), -EAGAIN);
	assert_int_equal(xfer_poll(c, &e, 1, 0), 1);
	assert_int_equal(xfer_client_arm(c), 0);
	assert_false(readable(fd, 0));
	/* And the end of the daemon, for ever. */
	fake_stop(&fake);
	assert_true(readable(fd, 20000));
	assert_int_equal(xfer_poll(c, &e, 1, 20000), 1);
	assert_int_equal(e.type, XFER_EVENT_DISCONNECTED);
	assert_int_equal(xfer_client_arm(c), -EAGAIN);
	for (int i = 0; i < 3; i++) {
		assert_true(readable(fd, 0));
		assert_int_equal(xfer_poll(c, &e, 1, 0), 1);
		assert_int_equal(e.type, XFER_EVENT_DAEMON_GONE);
	}
}

/* A batch that the socket does not take wakes a foreign loop when there is room. */
static void a_loop_is_woken_for_room(void **state)
{
	struct xfer_ep *ep = fake_ep(&fake, c, true);
	int fd = xfer_client_fd(c);
	struct xfer_event e;
	size_t n = 0, got = 0;

	(void)state;
	fake_pause(&fake, true);
	while (n < 4000 && xfer_post_recv(ep, NULL, 0, n, 0, NULL) == 0)
		n++;
	assert_int_equal(xfer_client_arm(c), 0);
	assert_false(readable(fd, 0));
	fake_pause(&fake, false);
	/* The fake reads, and answers nothing: only room can wake this. */
	assert_true(readable(fd, 20000));
	while (got < n) {
		assert_int_equal(xfer_poll(c, &e, 1, 0), 0);
		if (xfer_client_arm(c) == 0)
			readable(fd, 1);
		pthread_mutex_lock(&fake.lock);
		got = fake.n_requests;
		pthread_mutex_unlock(&fake.lock);
	}
}

/* ---- the end */

static void expect_ends(struct xfer_ep *ep, int gone_status, const char *text)
{
	struct xfer_event e;

	for (uint64_t i = 1; i <= 2; i++) {
		e = poll_one();
		assert_int_equal(e.type, XFER_EVENT_COMPLETION);
		assert_int_equal(e.wr_id, i);
		assert_int_equal(e.status, -XFER_E_DAEMON_GONE);
		assert_ptr_equal(e.ep, ep);
		assert_non_null(strstr(e.text, text));
	}
	e = poll_one();
	assert_int_equal(e.type, XFER_EVENT_DISCONNECTED);
	assert_int_equal(e.status, -XFER_E_DAEMON_GONE);
	for (int i = 0; i < 3; i++) {
		e = poll_one();
		assert_int_equal(e.type, XFER_EVENT_DAEMON_GONE);
		assert_int_equal(e.status, gone_status);
		assert_non_null(strstr(e.text, text));
	}
	refused(xfer_post_recv(ep, NULL, 0, 9, 0, NULL), -XFER_E_DAEMON_GONE, text);
	refused(xfer_ep_wait(ep, XFER_EP_CONNECTED, 0), -XFER_E_DAEMON_GONE, text);
	refused(xfer_flush(c), -XFER_E_DAEMON_GONE, text);
	assert_int_equal(c->requests.used, 0);
	xfer_ep_free(ep);
}

static struct xfer_ep *two_unfinished(void)
{
	struct xfer_ep *ep = fake_ep(&fake, c, true);
	uint8_t own[8];
	struct iovec v = { own, 8 };

	assert_int_equal(xfer_post_recv(ep, &v, 1, 1, 0, NULL), 0);
	assert_int_equal(xfer_post_recv(ep, NULL, 0, 2, 0, NULL), 0);
	fake_wait_requests(&fake, 2);
	return ep;
}

static void the_daemon_dies(void **state)
{
	struct xfer_ep *ep = two_unfinished();

	(void)state;
	fake_stop(&fake);
	expect_ends(ep, -XFER_E_DAEMON_GONE, "the daemon closed the connection");
}

static void the_daemon_says_goodbye(void **state)
{
	struct xfer_ep *ep = two_unfinished();

	(void)state;
	fake_say_goodbye(&fake, -XFER_E_SHUTDOWN, "it is getting late");
	expect_ends(ep, -XFER_E_SHUTDOWN, "it is getting late");
}

/* It closes while words of ours are unread: the kernel says ECONNRESET before its last words. */
static void a_goodbye_behind_a_reset(void **state)
{
	struct xfer_ep *ep = two_unfinished();

	(void)state;
	fake_pause(&fake, true);
	assert_int_equal(xfer_post_recv(ep, NULL, 0, 3, 0, NULL), 0);
	fake_say_goodbye(&fake, -XFER_E_PROTOCOL, "you said something odd");
	fake_stop(&fake);
	assert_int_equal(poll_one().wr_id, 1);
	assert_int_equal(poll_one().wr_id, 2);
	assert_int_equal(poll_one().wr_id, 3);
	assert_int_equal(poll_one().type, XFER_EVENT_DISCONNECTED);
	assert_string_equal(poll_one().text, "you said something odd");
	xfer_ep_free(ep);
}

static void a_call_is_cut_off(void **state)
{
	struct xfer_table *t;

	(void)state;
	fake_set(&fake, mute, 1u << XP__CLIENT_MESSAGE__BODY_QUERY);
	fake_say_goodbye(&fake, -XFER_E_SHUTDOWN, "it is getting late");
	refused(xfer_query(c, "buffers", &t), -XFER_E_SHUTDOWN, "query: it is getting late");
	refused(xfer_query(c, "buffers", &t), -XFER_E_DAEMON_GONE, "it is getting late");
}

static void expect_broken(const char *part)
{
	struct xfer_event e = poll_one();

	assert_int_equal(e.type, XFER_EVENT_DAEMON_GONE);
	assert_int_equal(e.status, -XFER_E_PROTOCOL);
	if (!strstr(e.text, part))
		fail_msg("\"%s\" is not in \"%s\"", part, e.text);
}

static void nonsense(void **state)
{
	(void)state;
	fake_say_raw(&fake, "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", 12);
	expect_broken("cannot be decoded");
}

static void a_truncated_message(void **state)
{
	(void)state;
	fake_say_raw(&fake, "\x22\x7f\x0a", 3); /* completions of 127 bytes, and 1 */
	expect_broken("cannot be decoded");
}

static void a_completion_of_nothing(void **state)
{
	struct fake_request r = { .cookie = 12345, .opcode = XP_OP_READ };

	(void)state;
	fake_say_completion(&fake, &r, 0, 0);
	expect_broken("a request that is not under way");
}

static void a_completion_twice(void **state)
{
	struct xfer_ep *ep = fake_ep(&fake, c, true);

	(void)state;
	assert_int_equal(xfer_post_recv(ep, NULL, 0, 1, 0, NULL), 0);
	fake_wait_requests(&fake, 1);
	fake_say_completion(&fake, &fake.requests[0], 0, 0);
	fake_say_completion(&fake, &fake.requests[0], 0, 0);
	assert_int_equal(poll_one().wr_id, 1);
	assert_int_equal(poll_one().type, XFER_EVENT_DISCONNECTED);
	expect_broken("a request that is not under way");
}

static void a_positive_status(void **state)
{
	struct xfer_ep *ep = fake_ep(&fake, c, true);

	(void)state;
	assert_int_equal(xfer_post_recv(ep, NULL, 0, 1, 0, NULL), 0);
	fake_wait_requests(&fake, 1);
	fake_say_completion(&fake, &fake.requests[0], 5, 0);
	assert_int_equal(poll_one().status, -XFER_E_DAEMON_GONE);
	assert_int_equal(poll_one().type, XFER_EVENT_DISCONNECTED);
	expect_broken("positive status");
}

/* A message longer than any RECV: what was posted is written, and not a byte behind it. */
static void a_byte_len_that_lies(void **state)
{
	struct xfer_ep *ep = fake_ep(&fake, c, true);
	uint8_t own[16];
	struct iovec v = { own, 8 };

	(void)state;
	memset(own, 'z', sizeof(own));
	assert_int_equal(xfer_post_recv(ep, &v, 1, 1, 0, NULL), 0);
	fake_wait_requests(&fake, 1);
	fake_say_completion(&fake, &fake.requests[0], 0, UINT64_MAX);
	assert_int_equal(poll_one().wr_id, 1);
	assert_memory_equal(own + 8, "zzzzzzzz", 8);
}

/* Of a newer daemon: a body and fields that this library does not know. */
static void the_unknown_is_ignored(void **state)
{
	struct xfer_table *t;

	(void)state;
	fake_say_raw(&fake, "\xa2\x06\x03" "abc", 6);         /* field 100 */
	fake_say_raw(&fake, "\x22\x06\xa2\x06\x03" "abc", 8); /* in completions */
	fake_say_ready(&fake, 4711, 0);
	fake_say_connected(&fake, 4711, 0, "");
	fake_say_disconnected(&fake, 4711, 0);
	assert_int_equal(xfer_query(c, "buffers", &t), 0);
	xfer_table_free(t);
}

static void anew(void)
{
	xfer_client_free(c);
	fake_done(&fake);
	assert_int_equal(setup(NULL), 0);
}

/* Random packets, half of them with a length that fits: any end is fine but a crash. */
static void random_packets(void **state)
{
	uint64_t seed = 42;
	uint8_t packet[64];
	int ends = 0;

	(void)state;
	for (int i = 0; i < 1000; i++) {
		struct xfer_event e;
		size_t n;

		for (size_t at = 0; at < sizeof(packet); at++) {
			seed = seed * UINT64_C(6364136223846793005) + 1442695040888963407u;
			packet[at] = (uint8_t)(seed >> 56);
		}
		n = 2 + (seed >> 59);
		packet[0] = (uint8_t)((seed >> 40) % 10 << 3 | 2);
		if (i % 2)
			packet[1] = (uint8_t)(n - 2);
		fake_say_raw(&fake, packet, n);
		assert_true(xfer_poll(c, &e, 1, 0) >= 0);
		if (c->gone) {
			ends++;
			anew();
		}
	}
	assert_true(ends > 100);
}

/* The daemon of a client that has had enough sees the end of the session. */
static void a_broken_session_ends_for_both(void **state)
{
	(void)state;
	fake_say_raw(&fake, "\xff", 1);
	expect_broken("cannot be decoded");
	pthread_join(fake.thread, NULL); /* it has read the end */
	close(fake.sock);
	fake.sock = -1;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(an_endpoints_life, setup, teardown),
		cmocka_unit_test_setup_teardown(endpoints_that_fail, setup, teardown),
		cmocka_unit_test_setup_teardown(bad_endpoints, setup, teardown),
		cmocka_unit_test_setup_teardown(listeners, setup, teardown),
		cmocka_unit_test_setup_teardown(polling, setup, teardown),
		cmocka_unit_test_setup_teardown(a_signal_ends_a_poll, setup, teardown),
		cmocka_unit_test_setup_teardown(foreign_loops, setup, teardown),
		cmocka_unit_test_setup_teardown(a_loop_is_woken_for_room, setup, teardown),
		cmocka_unit_test_setup_teardown(the_daemon_dies, setup, teardown),
		cmocka_unit_test_setup_teardown(the_daemon_says_goodbye, setup, teardown),
		cmocka_unit_test_setup_teardown(a_goodbye_behind_a_reset, setup, teardown),
		cmocka_unit_test_setup_teardown(a_call_is_cut_off, setup, teardown),
		cmocka_unit_test_setup_teardown(nonsense, setup, teardown),
		cmocka_unit_test_setup_teardown(a_truncated_message, setup, teardown),
		cmocka_unit_test_setup_teardown(a_completion_of_nothing, setup, teardown),
		cmocka_unit_test_setup_teardown(a_completion_twice, setup, teardown),
		cmocka_unit_test_setup_teardown(a_positive_status, setup, teardown),
		cmocka_unit_test_setup_teardown(a_byte_len_that_lies, setup, teardown),
		cmocka_unit_test_setup_teardown(the_unknown_is_ignored, setup, teardown),
		cmocka_unit_test_setup_teardown(random_packets, setup, teardown),
		cmocka_unit_test_setup_teardown(a_broken_session_ends_for_both, setup, teardown),
	};

	return cmocka_run_group_tests_name("client: events and ends", tests, NULL, NULL);
}
