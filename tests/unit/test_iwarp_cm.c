/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Connections of the iwarp fabric: listeners, requests and their answers, private data, ends.
 */
#include <errno.h>
#include <string.h>

#include "proto/errors.h"
#include "tests/unit/iwarp_rig.h"

#define DATA_MAX 252

static struct rig rig;
static struct prog a, b;
static const struct fabric_ops *ops;
static const struct xc_addr at7 = { .family = 4, .port = 7, .ip = { 127, 0, 0, 1 } };

static int setup(void **state)
{
	(void)state;
	rig_init(&rig);
	ops = rig.ops;
	prog_init(&a, &rig, 1000, 16 * PAGE);
	prog_init(&b, &rig, 1001, 16 * PAGE);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	rig_done(&rig);
	return 0;
}

/* a asks the listener of b at this port. */
static void ask(uint16_t port, const void *data, size_t bytes)
{
	struct xc_addr at = local_port(port);

	prog_ep(&a);
	assert_int_equal(ops->ep_connect(a.ep, &at, data, bytes), 0);
}

static void says_what_it_is(void **state)
{
	const struct fabric_caps *caps = ops->caps(rig.f);

	(void)state;
	assert_string_equal(caps->name, "iwarp");
	assert_int_equal(caps->kind, FABRIC_IWARP_SOFT);
	assert_int_equal(caps->max_sge, 32);
	assert_int_equal(caps->max_sge_rd, 32);
	assert_int_equal(caps->private_connect_bytes, DATA_MAX);
	assert_int_equal(caps->keys, FABRIC_KEYS_WINDOW);
	assert_true(caps->remote_invalidate && caps->acknowledged && caps->receiver_not_ready);
	assert_false(caps->immediate || caps->read_sink_remote_write || caps->pins);
	assert_int_equal(ops->fd(rig.f), -1);
}

static void connects(void **state)
{
	struct fabric_listener *l = prog_listen(&b, 7);
	uint8_t data[DATA_MAX], answer[DATA_MAX];
	uint64_t kicks = rig.engine.kicks;

	(void)state;
	memset(data, 'q', sizeof(data));
	memset(answer, 'r', sizeof(answer));
	ask(7, data, sizeof(data));
	assert_int_equal(rig.engine.kicks, kicks + 1);
	assert_int_equal(b.requests, 0); /* events come from progress only */
	rig_run(&rig);
	assert_int_equal(b.requests, 1);
	assert_int_equal(b.info.peer_uid, 1000);
	assert_int_equal(b.info.peer.family, 4);
	assert_memory_equal(b.info.peer.ip, "\x7f\0\0\x01", 4);
	assert_in_range(b.info.peer.port, 1, 65535);
	assert_int_equal(b.private_data_bytes, sizeof(data));
	assert_memory_equal(b.private_data, data, sizeof(data));
	assert_int_equal(a.n_established, 0);

	prog_ep(&b);
	assert_int_equal(ops->ep_accept(b.ep, b.conn, answer, sizeof(answer)), 0);
	assert_int_equal(a.n_established + b.n_established, 0);
	rig_run(&rig);
	assert_int_equal(a.established, 0);
	assert_int_equal(b.established, 0);
	assert_int_equal(a.private_data_bytes, sizeof(answer));
	assert_memory_equal(a.private_data, answer, sizeof(answer));
	assert_int_equal(b.private_data_bytes, 0);
	ops->listener_free(l);
}

static void private_data_has_limits(void **state)
{
	struct fabric_listener *l = prog_listen(&b, 7);
	struct xc_addr at = local_port(7);
	uint8_t data[DATA_MAX + 1] = { 0 };

	(void)state;
	prog_ep(&a);
	prog_ep(&b);
	assert_int_equal(ops->ep_connect(a.ep, &at, data, sizeof(data)), -EINVAL);
	assert_int_equal(ops->ep_connect(a.ep, &at, data, 0), 0);
	rig_run(&rig);
	assert_int_equal(ops->ep_accept(b.ep, b.conn, data, sizeof(data)), -EINVAL);
	assert_int_equal(ops->ep_accept(b.ep, b.conn, NULL, 0), 0);
	rig_run(&rig);
	assert_int_equal(a.established, 0);
	assert_int_equal(a.private_data_bytes, 0);
	ops->listener_free(l);
}

static void rejects(void **state)
{
	struct fabric_listener *l = prog_listen(&b, 7);

	(void)state;
	ask(7, NULL, 0);
	rig_run(&rig);
	ops->conn_reject(b.conn, "no", 2);
	rig_run(&rig);
	assert_int_equal(a.established, -XP_E_REJECTED);
	assert_int_equal(a.private_data_bytes, 2);
	assert_memory_equal(a.private_data, "no", 2);
	assert_int_equal(a.n_disconnected, 0);
	assert_int_equal(b.gone, 0);
	ops->listener_free(l);
}

static void nobody_listens(void **state)
{
	struct fabric_listener *l = prog_listen(&b, 7);

	(void)state;
	ask(8, NULL, 0);
	assert_int_equal(post_recv(&a, 5, 0, PAGE), 0);
	rig_run(&rig);
	assert_int_equal(a.established, -ECONNREFUSED);
	assert_int_equal(took(&a, 5), IBV_WC_WR_FLUSH_ERR);
	ask(7, NULL, 0);
	ops->listener_free(l); /* before the request is told */
	rig_run(&rig);
	assert_int_equal(a.established, -ECONNREFUSED);
	assert_int_equal(b.requests, 0);
}

static void backlog_is_full(void **state)
{
	struct fabric_listener *l = prog_listen(&b, 7);

	(void)state;
	b.no_room = true;
	ask(7, NULL, 0);
	rig_run(&rig);
	assert_int_equal(a.established, -XP_E_BACKLOG);
	ops->listener_free(l);
}

static void peer_gives_up(void **state)
{
	struct fabric_listener *l = prog_listen(&b, 7);

	(void)state;
	/* before it was told: nobody hears of it */
	ask(7, NULL, 0);
	prog_ep_end(&a);
	rig_run(&rig);
	assert_int_equal(b.requests, 0);
	/* destroyed while the request waits for its answer */
	ask(7, NULL, 0);
	rig_run(&rig);
	prog_ep_end(&a);
	rig_run(&rig);
	assert_int_equal(b.gone, 1);
	/* in error: then the endpoint is told as well */
	ask(7, NULL, 0);
	rig_run(&rig);
	ops->ep_error(a.ep);
	rig_run(&rig);
	assert_int_equal(b.gone, 2);
	assert_int_equal(a.established, -ECONNABORTED);
	assert_int_equal(a.n_disconnected, 0);
	/* and so where it takes the word back in order */
	ask(7, NULL, 0);
	rig_run(&rig);
	ops->ep_disconnect(a.ep);
	rig_run(&rig);
	assert_int_equal(b.gone, 3);
	assert_int_equal(b.requests, 3);
	ops->listener_free(l);
}

/* The answer crosses conn_gone: it consumes the conn, and conn_gone does not come. */
static void answers_to_the_dead(void **state)
{
	struct fabric_listener *l = prog_listen(&b, 7);

	(void)state;
	ask(7, NULL, 0);
	rig_run(&rig);
	prog_ep_end(&a);
	ops->conn_reject(b.conn, "no", 2);
	rig_run(&rig);
	ask(7, NULL, 0);
	rig_run(&rig);
	prog_ep_end(&a);
	prog_ep(&b);
	assert_int_equal(ops->ep_accept(b.ep, b.conn, NULL, 0), 0);
	rig_run(&rig);
	assert_int_equal(b.established, -XP_E_PEER_GONE);
	assert_int_equal(b.gone, 0);
	ops->listener_free(l);
}

/* ---- what happens inside the event */

static void accept_at_once(struct prog *p, struct fabric_conn *conn)
{
	prog_ep(p);
	assert_int_equal(ops->ep_accept(p->ep, conn, "at once", 7), 0);
}

static void reject_at_once(struct prog *p, struct fabric_conn *conn)
{
	(void)p;
	ops->conn_reject(conn, NULL, 0);
}

static void kill_the_asker(struct prog *p, struct fabric_conn *conn)
{
	(void)p;
	(void)conn;
	prog_ep_end(&a);
}

static void answers_inside_the_event(void **state)
{
	struct fabric_listener *l = prog_listen(&b, 7);

	(void)state;
	b.on_request = accept_at_once;
	ask(7, NULL, 0);
	rig_run(&rig);
	assert_int_equal(a.established, 0);
	assert_int_equal(b.established, 0);
	assert_memory_equal(a.private_data, "at once", 7);
	b.on_request = reject_at_once;
	for (int no_room = 0; no_room < 2; no_room++) { /* what it returns is of no interest then */
		b.no_room = no_room;
		ask(7, NULL, 0);
		rig_run(&rig);
		assert_int_equal(a.established, -XP_E_REJECTED);
	}
	b.no_room = false;
	b.on_request = kill_the_asker;
	ask(7, NULL, 0);
	rig_run(&rig);
	assert_int_equal(b.gone, 1);
	b.no_room = true;
	ask(7, NULL, 0);
	rig_run(&rig);
	assert_int_equal(b.gone, 1);
	ops->listener_free(l);
}

static struct fabric_listener *doomed;

static void free_the_listener(struct prog *p, struct fabric_conn *conn)
{
	(void)p;
	ops->conn_reject(conn, NULL, 0);
	ops->listener_free(doomed);
}

static void listener_ends_inside_the_event(void **state)
{
	struct prog c;

	(void)state;
	prog_init(&c, &rig, 1002, PAGE);
	doomed = prog_listen(&b, 7);
	b.on_request = free_the_listener;
	ask(7, NULL, 0);
	prog_ep(&c);
	assert_int_equal(ops->ep_connect(c.ep, &at7, NULL, 0), 0);
	rig_run(&rig);
	assert_int_equal(b.requests, 1);
	assert_int_equal(a.established, -XP_E_REJECTED);
	assert_int_equal(c.established, -ECONNREFUSED);
	rig_done(&rig);
	setup(NULL);
}

/*
 * ------------------------------------------------------------------------------------- listeners
 */

static int listen_at(const char *text, uint16_t port, struct fabric_listener **ret,
		     struct xc_addr *ret_at)
{
	struct xc_addr at = addr(text, port);

	return ops->listen(rig.f, &at, 0, &b, NULL, ret, ret_at);
}

static void addresses_in_use(void **state)
{
	static const struct {
		const char *first, *second;
		uint16_t port;
		int status;
	} cases[] = {
		{ "127.0.0.1", "127.0.0.1", 9, -EADDRINUSE },
		{ "127.0.0.1", "0.0.0.0", 9, -EADDRINUSE },
		{ "0.0.0.0", "127.0.0.1", 9, -EADDRINUSE },
		{ "127.0.0.1", "::ffff:127.0.0.1", 9, -EADDRINUSE },
		{ "::1", "::", 9, -EADDRINUSE },
		{ "127.0.0.1", "127.0.0.2", 9, 0 },
		{ "127.0.0.1", "127.0.0.1", 9 + 256, 0 },
		{ "0.0.0.0", "::", 9, 0 },
		{ "127.0.0.1", "::1", 9, 0 },
	};
	struct fabric_listener *l1, *l2;
	struct xc_addr got;

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		assert_int_equal(listen_at(cases[i].first, 9, &l1, &got), 0);
		assert_int_equal(listen_at(cases[i].second, cases[i].port, &l2, &got),
				 cases[i].status);
		if (!cases[i].status)
			ops->listener_free(l2);
		ops->listener_free(l1);
	}
	/* free again */
	assert_int_equal(listen_at("127.0.0.1", 9, &l1, &got), 0);
	ops->listener_free(l1);
}

static void addresses_of_others(void **state)
{
	struct fabric_listener *l;
	struct xc_addr got, none = { 0 };

	(void)state;
	assert_int_equal(listen_at("192.0.2.1", 9, &l, &got), -EADDRNOTAVAIL);
	assert_int_equal(listen_at("2001:db8::1", 9, &l, &got), -EADDRNOTAVAIL);
	assert_int_equal(ops->listen(rig.f, &none, 0, &b, NULL, &l, &got), -EAFNOSUPPORT);
}

static void chooses_ports(void **state)
{
	struct fabric_listener *l[20];
	struct xc_addr got[20];

	(void)state;
	for (int i = 0; i < 20; i++) {
		assert_int_equal(listen_at("127.0.0.1", 0, &l[i], &got[i]), 0);
		assert_in_range(got[i].port, 49152, 65535);
		for (int j = 0; j < i; j++)
			assert_int_not_equal(got[i].port, got[j].port);
	}
	ask(got[11].port, NULL, 0);
	rig_run(&rig);
	assert_int_equal(b.requests, 1);
	ops->conn_reject(b.conn, NULL, 0);
	for (int i = 0; i < 20; i++)
		ops->listener_free(l[i]);
}

static void a_wildcard_hears_all(void **state)
{
	struct xc_addr to[] = { addr("127.0.0.1", 9), addr("127.9.9.9", 9),
				addr("::ffff:127.0.0.1", 9) };
	struct xc_addr six = addr("::1", 9), got;
	struct fabric_listener *l;

	(void)state;
	assert_int_equal(listen_at("0.0.0.0", 9, &l, &got), 0);
	for (int i = 0; i < 3; i++) {
		prog_ep(&a);
		assert_int_equal(ops->ep_connect(a.ep, &to[i], NULL, 0), 0);
		rig_run(&rig);
		assert_int_equal(b.requests, i + 1);
		ops->conn_reject(b.conn, NULL, 0);
	}
	prog_ep(&a);
	assert_int_equal(ops->ep_connect(a.ep, &six, NULL, 0), 0);
	rig_run(&rig);
	assert_int_equal(a.established, -ECONNREFUSED);
	ops->listener_free(l);
	assert_int_equal(listen_at("::", 9, &l, &got), 0);
	prog_ep(&a);
	assert_int_equal(ops->ep_connect(a.ep, &six, NULL, 0), 0);
	rig_run(&rig);
	assert_int_equal(b.requests, 4);
	ops->conn_reject(b.conn, NULL, 0);
	ops->listener_free(l);
}

static void routes(void **state)
{
	struct xc_addr here = addr("127.0.0.1", 9), there = addr("192.0.2.1", 9);
	struct xc_addr any = addr("0.0.0.0", 9);
	char why[200];

	(void)state;
	assert_int_equal(ops->route(rig.f, &here, why, sizeof(why)), 0);
	assert_string_equal(why, "both ends are on this host: one copy inside the daemon");
	assert_int_equal(ops->route(rig.f, &there, why, sizeof(why)), -ENETUNREACH);
	assert_non_null(strstr(why, "not an address of this host"));
	assert_int_equal(ops->route(rig.f, &any, why, sizeof(why)), -ENETUNREACH);
	prog_ep(&a);
	assert_int_equal(ops->ep_connect(a.ep, &there, NULL, 0), -ENETUNREACH);
	/* which did not use it up */
	assert_int_equal(ops->ep_connect(a.ep, &here, NULL, 0), 0);
}

/*
 * ------------------------------------------------------------------------------------------ ends
 */

static void ends(void **state)
{
	(void)state;
	for (int how = 0; how < 3; how++) {
		connect_progs(&a, &b);
		assert_int_equal(post_recv(&b, 5, 0, PAGE), 0);
		if (how == 0)
			ops->ep_disconnect(a.ep);
		else if (how == 1)
			ops->ep_error(a.ep);
		else
			prog_ep_end(&a);
		assert_int_equal(b.n_disconnected, 0);
		rig_run(&rig);
		assert_int_equal(a.n_disconnected, how < 2);
		if (how < 2)
			assert_int_equal(a.disconnected, 0);
		assert_int_equal(b.disconnected, -XP_E_PEER_GONE);
		assert_int_equal(took(&b, 5), IBV_WC_WR_FLUSH_ERR);
		/* twice is harmless, from either side */
		if (how < 2)
			ops->ep_error(a.ep);
		ops->ep_disconnect(b.ep);
		ops->ep_error(b.ep);
		rig_run(&rig);
		assert_int_equal(b.n_disconnected, 1);
	}
}

static void ends_without_a_connection(void **state)
{
	(void)state;
	prog_ep(&a);
	assert_int_equal(post_recv(&a, 5, 0, PAGE), 0);
	ops->ep_disconnect(a.ep);
	rig_run(&rig);
	assert_int_equal(took(&a, 5), -1);
	ops->ep_error(a.ep);
	rig_run(&rig);
	assert_int_equal(took(&a, 5), IBV_WC_WR_FLUSH_ERR);
	assert_int_equal(a.n_established + a.n_disconnected, 0);
	assert_int_equal(ops->ep_connect(a.ep, &at7, NULL, 0),
			 -EISCONN);
}

static void destroy_self(struct prog *p)
{
	prog_ep_end(p);
}

static void ends_inside_events(void **state)
{
	(void)state;
	connect_progs(&a, &b);
	a.on_disconnected = b.on_disconnected = destroy_self;
	ops->ep_disconnect(a.ep);
	rig_run(&rig);
	assert_null(a.ep);
	assert_null(b.ep);
}

/* Ended between accept and the event: both are told, in order. */
static void ends_before_established_is_told(void **state)
{
	struct fabric_listener *l = prog_listen(&b, 7);

	(void)state;
	ask(7, NULL, 0);
	rig_run(&rig);
	prog_ep(&b);
	assert_int_equal(ops->ep_accept(b.ep, b.conn, NULL, 0), 0);
	ops->ep_disconnect(b.ep);
	rig_run(&rig);
	assert_int_equal(a.established, 0);
	assert_int_equal(a.disconnected, -XP_E_PEER_GONE);
	assert_int_equal(b.established, 0);
	assert_int_equal(b.disconnected, 0);
	ops->listener_free(l);
}

static void an_endpoint_is_used_once(void **state)
{
	struct fabric_listener *l = prog_listen(&b, 7);
	struct xc_addr at = local_port(7);

	(void)state;
	ask(7, NULL, 0);
	assert_int_equal(ops->ep_connect(a.ep, &at, NULL, 0), -EISCONN);
	rig_run(&rig);
	/* one cannot answer oneself with the endpoint that asks */
	assert_int_equal(ops->ep_accept(a.ep, b.conn, NULL, 0), -EISCONN);
	ops->conn_reject(b.conn, NULL, 0);
	rig_run(&rig);
	assert_int_equal(ops->ep_connect(a.ep, &at, NULL, 0), -EISCONN);
	ops->listener_free(l);
}

static void endpoints_have_limits(void **state)
{
	struct fabric_ep_attr attr = { .pd = a.pd, .max_send_wr = 16385, .ctx = &a };
	struct fabric_ep *eps[RIG_PROGS], *one_more;

	(void)state;
	assert_int_equal(ops->ep_create(rig.f, &attr, NULL, &one_more), -EINVAL);
	attr.max_send_wr = 1;
	attr.max_send_sge = 33;
	assert_int_equal(ops->ep_create(rig.f, &attr, NULL, &one_more), -EINVAL);
	attr.max_send_sge = 0;
	for (int i = 0; i < RIG_PROGS; i++)
		assert_int_equal(ops->ep_create(rig.f, &attr, NULL, &eps[i]), 0);
	assert_int_equal(ops->ep_create(rig.f, &attr, NULL, &one_more), -ENOSPC);
	for (int i = 0; i < RIG_PROGS; i++)
		assert_int_equal(ops->ep_destroy(eps[i], NULL), 0);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
		TEST(says_what_it_is),
		TEST(connects),
		TEST(private_data_has_limits),
		TEST(rejects),
		TEST(nobody_listens),
		TEST(backlog_is_full),
		TEST(peer_gives_up),
		TEST(answers_to_the_dead),
		TEST(answers_inside_the_event),
		TEST(listener_ends_inside_the_event),
		TEST(addresses_in_use),
		TEST(addresses_of_others),
		TEST(chooses_ports),
		TEST(a_wildcard_hears_all),
		TEST(routes),
		TEST(ends),
		TEST(ends_without_a_connection),
		TEST(ends_inside_events),
		TEST(ends_before_established_is_told),
		TEST(an_endpoint_is_used_once),
		TEST(endpoints_have_limits),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
