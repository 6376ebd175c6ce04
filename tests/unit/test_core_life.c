/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Sessions, endpoints and their order of events, one thing at a time. */
#include "tests/unit/core_rig.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tests/sim/fake_priv.h"

#define MS UINT64_C(1000000)

static struct rig rig;
static struct rig_client a, b, admin;

static int set_up(void **unused)
{
	(void)unused;
	rig_init(&rig);
	return 0;
}

static int tear_down(void **unused)
{
	(void)unused;
	rig_done(&rig);
	return 0;
}

static void pair(void)
{
	rig_client_init(&rig, &a, 1000, false);
	rig_client_init(&rig, &b, 1001, false);
	rig_buffer(&rig, &a);
	rig_buffer(&rig, &b);
	rig_connect(&rig, &a, &b);
}

static void close_pair(void)
{
	rig_close(&rig, &a);
	rig_close(&rig, &b);
}

/* ---- sessions */

static void hello_once(void **unused)
{
	struct xd_hello hello = { .major = 1, .name = "again" };
	struct xd_out o;

	(void)unused;
	rig_client_init(&rig, &a, 1000, false);
	xd_session_hello(a.s, 99, &hello);
	assert_true(xd_session_failed(a.s));
	o = rig_take(&a, XD_OUT_GOODBYE);
	assert_int_equal(o.status, -XP_E_PROTOCOL);
	assert_true(o.text[0]);
	rig_take(&a, XD_OUT_NONE);
	rig_close(&rig, &a);
}

static void other_major(void **unused)
{
	struct xd_peer peer = { .uid = 1000, .pid = 1 };
	struct xd_hello hello = { .major = 2, .name = "newer" };
	char why[XD_TEXT_MAX];

	(void)unused;
	a = (struct rig_client){ 0 };
	assert_int_equal(xd_session_new(rig.core, &peer, &a, &a.s, why), 0);
	xd_session_hello(a.s, 1, &hello);
	assert_int_equal(rig_take(&a, XD_OUT_GOODBYE).status, -XP_E_VERSION);
	rig_close(&rig, &a);
}

static void sessions_are_limited(void **unused)
{
	struct xd_peer peer = { .uid = 1000, .pid = 1 };
	struct rig_client c = { 0 };
	char why[XD_TEXT_MAX] = "";

	(void)unused;
	rig.policy.user.value[XD_LIMIT_sessions] = 1;
	rig_client_init(&rig, &a, 1000, false);
	assert_int_equal(xd_session_new(rig.core, &peer, &c, &c.s, why), -XP_E_QUOTA);
	assert_non_null(strstr(why, "session"));
	rig_client_init(&rig, &b, 1001, false); /* another user's matter */
	close_pair();
	rig_client_init(&rig, &a, 1000, false);
	rig_close(&rig, &a);
}

/* A client that reads nothing is read from no more, at a bound. */
static void calls_are_bounded(void **unused)
{
	uint64_t n = 0;

	(void)unused;
	rig_client_init(&rig, &a, 1000, false);
	while (!xd_session_busy(a.s)) {
		xd_session_unlisten(a.s, ++rig.serial, 1);
		assert_true(++n <= XD_CALLS_MAX);
	}
	assert_int_equal(n, XD_CALLS_MAX);
	assert_int_equal(rig_take(&a, XD_OUT_REPLY).status, -ENOENT);
	assert_false(xd_session_busy(a.s));
	rig_close(&rig, &a);
}

/* What waits to be closed is bounded too; and io is told when there is room again. */
static void closes_are_bounded(void **unused)
{
	uint64_t n = 0, delivers;
	int fd = 5;

	(void)unused;
	rig_client_init(&rig, &a, 1000, false);
	rig_client_init(&rig, &b, 1001, false);
	while (!xd_session_busy(a.s)) {
		xd_session_discard_fds(a.s, &fd, 1);
		assert_true(++n <= 1000);
	}
	assert_false(xd_session_busy(b.s));
	delivers = rig.engine.delivers;
	rig_run(&rig);
	assert_false(xd_session_busy(a.s));
	assert_true(rig.engine.delivers > delivers);
	close_pair();
}

/* One user's share of a turn is its own: another's is as it was, and the next turn begins anew. */
static void submissions_have_turns(void **unused)
{
	uint64_t n = 0;

	(void)unused;
	pair();
	while (xd_session_may_submit(a.s)) {
		struct xd_out o;

		rig_submit(&a, XP_OP_RECV, 1, 70000, 10, NULL);
		assert_true(xd_session_pull(a.s, &o));
		assert_true(++n <= 100000);
	}
	assert_true(n > 100);
	assert_true(xd_session_may_submit(b.s));
	xd_core_progress(rig.core, 1 << 20);
	assert_true(xd_session_may_submit(a.s));
	close_pair();
}

/* ---- what one sees of others */

static uint64_t rows, uids_seen;

static bool row(struct xd_table_sink *sink)
{
	(void)sink;
	rows++;
	return true;
}

static void text(struct xd_table_sink *sink, const char *value)
{
	(void)sink;
	assert_non_null(value);
}

static void number(struct xd_table_sink *sink, uint64_t value)
{
	(void)sink;
	if (value == 1000 || value == 1001)
		uids_seen |= 1u << (value - 1000);
}

static void query(struct rig_client *c, const char *table, uint64_t expect_rows,
		  uint64_t expect_uids)
{
	struct xd_table_sink sink = { .row = row, .text = text, .number = number };
	const struct xd_column *columns;
	uint64_t cursor = 0;
	size_t n;
	char why[XD_TEXT_MAX];
	int r;

	rows = uids_seen = 0;
	r = xd_session_query(c->s, table, NULL, 0, &cursor, &columns, &n, &sink, why);
	assert_int_equal(r, 0);
	r = xd_session_query(c->s, table, &table, 1, &cursor, &columns, &n, &sink, why);
	assert_int_equal(r, -EINVAL);
	assert_non_null(strstr(why, table));
	assert_int_equal(cursor, 0);
	assert_int_equal(rows, expect_rows);
	assert_int_equal(uids_seen, expect_uids);
}

static void tables_show_ones_own(void **unused)
{
	static const char *const tables[] = { "sessions", "endpoints", "buffers" };

	(void)unused;
	pair();
	rig_client_init(&rig, &admin, 4000, true);
	for (size_t i = 0; i < XC_ARRAY_SIZE(tables); i++) {
		query(&a, tables[i], 1, 1);
		query(&b, tables[i], 1, 2);
		query(&admin, tables[i], i ? 2 : 3, 3);
	}
	query(&a, "listeners", 0, 0);
	query(&b, "listeners", 1, 2);
	rig_close(&rig, &admin);
	close_pair();
}

static void administration_is_for_administrators(void **unused)
{
	const char *arguments[] = { "2" };

	(void)unused;
	rig_client_init(&rig, &a, 1000, false);
	rig_client_init(&rig, &b, 1001, false);
	xd_session_admin(a.s, ++rig.serial, "end-session", arguments, 1);
	assert_int_equal(rig_take(&a, XD_OUT_REPLY).status, -XP_E_DENIED);
	assert_false(xd_session_failed(b.s));
	rig_client_init(&rig, &admin, 0, true);
	xd_session_admin(admin.s, ++rig.serial, "end-session", arguments, 1);
	assert_int_equal(rig_take(&admin, XD_OUT_REPLY).status, 0);
	assert_int_equal(rig_take(&b, XD_OUT_GOODBYE).status, -XP_E_DENIED);
	rig_close(&rig, &admin);
	close_pair();
}

/* ---- transfers */

/* Where it is begun there is nothing to explain. */
static void measuring_is_answered(void **unused)
{
	const char *device = "fake";
	struct xd_out o;

	(void)unused;
	rig_client_init(&rig, &admin, 0, true);
	xd_session_admin(admin.s, ++rig.serial, "measure", &device, 1);
	o = rig_take(&admin, XD_OUT_REPLY);
	assert_int_equal(o.status, 0);
	assert_string_equal(o.text, "");
	device = "mlx9";
	xd_session_admin(admin.s, ++rig.serial, "measure", &device, 1);
	o = rig_take(&admin, XD_OUT_REPLY);
	assert_int_equal(o.status, -ENOENT);
	assert_non_null(strstr(o.text, "mlx9"));
	rig_close(&rig, &admin);
}

static void read_of_granted_bytes(void **unused)
{
	struct xp_completion token;

	(void)unused;
	pair();
	rig_submit(&b, XP_OP_GRANT, 1, 100, 500, NULL);
	rig_run(&rig);
	token = rig_completion(&b, 1, 0);
	rig_submit(&a, XP_OP_READ, 2, 4000, 500, &token);
	rig_run(&rig);
	assert_int_equal(rig_completion(&a, 2, 0).byte_len, 500);
	assert_memory_equal(a.bytes + 4000, b.bytes + 100, 500);
	rig_submit(&b, XP_OP_REVOKE, 3, 0, 0, &token);
	rig_run(&rig);
	rig_completion(&b, 3, 0);
	rig_submit(&a, XP_OP_READ, 4, 4000, 500, &token);
	rig_run(&rig);
	rig_completion(&a, 4, -XP_E_REMOTE_ACCESS);
	assert_int_equal(rig_take(&a, XD_OUT_DISCONNECTED).status, -XP_E_REMOTE_ACCESS);
	close_pair();
}

/* The token names bytes, and none of it is an address of this process. */
static void token_tells_no_address(void **unused)
{
	struct xp_completion token;

	(void)unused;
	pair();
	rig_submit(&b, XP_OP_GRANT, 1, 0, 4096, NULL);
	rig_run(&rig);
	token = rig_completion(&b, 1, 0);
	assert_false(fake_memory_holds(token.address));
	assert_int_equal(token.byte_len, 4096);
	close_pair();
}

static void disconnect_ends_all(void **unused)
{
	(void)unused;
	pair();
	rig_submit(&a, XP_OP_RECV, 1, 0, 100, NULL);
	rig_submit(&a, XP_OP_RECV, 2, 100, 100, NULL);
	rig_run(&rig);
	rig_take(&a, XD_OUT_NONE); /* a RECV waits */
	xd_session_disconnect(b.s, ++rig.serial, b.endpoint);
	rig_run(&rig);
	rig_completion(&a, 1, -XP_E_FLUSHED);
	rig_completion(&a, 2, -XP_E_FLUSHED);
	assert_int_equal(rig_take(&a, XD_OUT_DISCONNECTED).status, -XP_E_PEER_GONE);
	assert_int_equal(rig_take(&b, XD_OUT_REPLY).status, 0);
	assert_int_equal(rig_take(&b, XD_OUT_DISCONNECTED).status, 0);
	close_pair();
}

/* The rules from now on. The peer's address is 127.0.0.1, as the simulation has it. */
static void accept_from(const char *text)
{
	struct xd_allow *allow;
	struct xc_range *ranges;

	xd_policy_done(&rig.policy);
	xd_policy_init(&rig.policy);
	if (text) {
		allow = calloc(1, sizeof(*allow));
		ranges = calloc(1, sizeof(*ranges));
		assert_true(allow && ranges);
		assert_int_equal(xc_range_parse(text, ranges), 0);
		*allow = (struct xd_allow){ .everybody = true, .n_accept = 1, .accept = ranges };
		rig.policy.allows = allow;
		rig.policy.n_allows = 1;
	}
	xd_core_set_policy(rig.core, &rig.policy);
}

/* Where the fabric does not ask beforehand the request itself is refused; its backlog has room. */
static void peers_come_from_allowed_addresses(void **unused)
{
	static const char *const ranges[] = { "10.0.0.0/8", "127.0.0.0/8" };
	struct xd_endpoint_options options = { .require = "" };
	struct xc_addr at;
	uint64_t tag = 78;

	(void)unused;
	rig_client_init(&rig, &a, 1000, false);
	rig_client_init(&rig, &b, 1001, false);
	xd_session_listen(b.s, ++rig.serial, "127.0.0.1", 0, 1);
	at = rig_take(&b, XD_OUT_REPLY).address;
	for (int i = 0; i < 2; i++) {
		accept_from(NULL);
		xd_session_endpoint_connect_to(a.s, ++rig.serial, "127.0.0.1", at.port, &options);
		rig_run(&rig);
		a.endpoint = rig_take(&a, XD_OUT_REPLY).number;
		rig_take(&a, XD_OUT_ENDPOINT_READY);
		accept_from(ranges[i]);
		xd_session_connect(a.s, ++rig.serial, a.endpoint, &tag, sizeof(tag));
		rig_run(&rig);
		assert_int_equal(rig_take(&a, XD_OUT_REPLY).status, 0);
		assert_int_equal(xd_core_counter(rig.core, XD_COUNTER_connects_refused), 1);
		if (i == 0)
			assert_int_equal(rig_take(&a, XD_OUT_CONNECTED).status, -XP_E_BACKLOG);
	}
	assert_int_equal(xd_core_counter(rig.core, XD_COUNTER_connects_rejected), 0);
	rig_take(&b, XD_OUT_CONNECT_REQUEST);
	rig_take(&b, XD_OUT_NONE);
	close_pair();
}

/* And one that asks, before it allocates anything, hears the same. */
static void fabrics_may_ask_before(void **unused)
{
	const struct fabric_events *events = xd_core_fabric_events();
	struct xc_addr peer = { .family = 4, .port = 9, .ip = { 10, 1, 2, 3 } };
	struct fabric_listener *l = NULL;

	(void)unused;
	rig_client_init(&rig, &a, 1000, false);
	xd_session_listen(a.s, ++rig.serial, "127.0.0.1", 0, 1);
	assert_int_equal(rig_take(&a, XD_OUT_REPLY).status, 0);
	xc_list_for_each(l, &rig.fabric->listeners, o.link)
		assert_true(events->peer_allowed(l->ctx, &peer));
	accept_from("10.0.0.0/8");
	for (uint8_t net = 9; net < 12; net++) {
		peer.ip[0] = net;
		xc_list_for_each(l, &rig.fabric->listeners, o.link)
			assert_int_equal(events->peer_allowed(l->ctx, &peer), net == 10);
	}
	assert_int_equal(xd_core_counter(rig.core, XD_COUNTER_connects_refused), 2);
	rig_take(&a, XD_OUT_NONE);
	rig_close(&rig, &a);
}

/* a has read neither that it was connected nor that this has ended. */
static void connects_and_ends(void)
{
	struct xd_endpoint_options options = { .require = "", .recv_stage_bytes = 4096 };
	struct xc_addr at;
	uint64_t tag = 77;

	rig_client_init(&rig, &a, 1000, false);
	rig_client_init(&rig, &b, 1001, false);
	rig_buffer(&rig, &a);
	xd_session_listen(b.s, ++rig.serial, "127.0.0.1", 0, 1);
	at = rig_take(&b, XD_OUT_REPLY).address;
	xd_session_endpoint_connect_to(a.s, ++rig.serial, "127.0.0.1", at.port, &options);
	rig_run(&rig);
	a.endpoint = rig_take(&a, XD_OUT_REPLY).number;
	rig_take(&a, XD_OUT_ENDPOINT_READY);
	rig_submit(&a, XP_OP_RECV, 1, 0, 100, NULL);
	xd_session_connect(a.s, ++rig.serial, a.endpoint, &tag, sizeof(tag));
	rig_run(&rig);
	xd_session_endpoint_answer(b.s, ++rig.serial,
				   rig_take(&b, XD_OUT_CONNECT_REQUEST).request, &options);
	rig_run(&rig);
	b.endpoint = rig_take(&b, XD_OUT_REPLY).number;
	xd_session_accept(b.s, ++rig.serial, b.endpoint, NULL, 0);
	rig_run(&rig);
	assert_int_equal(rig_take(&a, XD_OUT_REPLY).status, 0);
	xd_session_disconnect(b.s, ++rig.serial, b.endpoint);
	for (int i = 0; i < 10; i++)
		xd_core_progress(rig.core, 1 << 20);
}

/* Also where Connected was not read when the end came: events of an endpoint wait in one place. */
static void disconnected_comes_last(void **unused)
{
	(void)unused;
	connects_and_ends();
	assert_int_equal(rig_take(&a, XD_OUT_CONNECTED).status, 0);
	rig_completion(&a, 1, -XP_E_FLUSHED);
	assert_int_equal(rig_take(&a, XD_OUT_DISCONNECTED).status, -XP_E_PEER_GONE);
	close_pair();
}

/* But for a Goodbye, behind which nothing is put: of an endpoint whose slabs are not gone, say. */
static void goodbye_is_the_last(void **unused)
{
	(void)unused;
	connects_and_ends();
	xd_session_fail(a.s, -XP_E_PROTOCOL, "a test");
	assert_int_equal(rig_take(&a, XD_OUT_CONNECTED).status, 0);
	rig_completion(&a, 1, -XP_E_FLUSHED);
	assert_int_equal(rig_take(&a, XD_OUT_GOODBYE).status, -XP_E_PROTOCOL);
	rig_take(&a, XD_OUT_NONE);
	close_pair();
}

/* Time in which nothing was under way is no time without progress. */
static void idle_is_not_stalled(void **unused)
{
	(void)unused;
	pair();
	rig_submit(&b, XP_OP_RECV, 1, 0, 100, NULL);
	rig_submit(&a, XP_OP_SEND, 2, 0, 50, NULL);
	rig_run(&rig);
	rig_completion(&a, 2, 0);
	fake_engine_advance(&rig.engine, (rig.policy.progress_ms - 10) * MS);
	rig_submit(&a, XP_OP_SEND, 3, 0, 50, NULL); /* and nobody is ready for it */
	fake_engine_advance(&rig.engine, 1000 * MS);
	xd_core_progress(rig.core, 1 << 20);
	rig_take(&a, XD_OUT_NONE);
	rig_submit(&b, XP_OP_RECV, 4, 100, 100, NULL);
	rig_run(&rig);
	rig_completion(&a, 3, 0);
	close_pair();
}

static void stalled_is_ended(void **unused)
{
	struct xd_out o;

	(void)unused;
	rig_dice.stall = 1000;
	rig_init(&rig);
	pair();
	for (uint64_t i = 1; i <= 40; i++) { /* it stops somewhere among them */
		rig_submit(&b, XP_OP_RECV, 100 + i, 0, 100, NULL);
		rig_submit(&a, XP_OP_SEND, i, 0, 50, NULL);
		rig_run(&rig);
	}
	while (xd_session_peek(a.s) != XD_OUT_NONE)
		xd_session_pull(a.s, &o);
	fake_engine_advance(&rig.engine, (rig.policy.progress_ms + 1) * MS);
	rig_run(&rig);
	assert_int_equal(xd_session_peek(a.s), XD_OUT_COMPLETION);
	do
		xd_session_pull(a.s, &o);
	while (o.kind == XD_OUT_COMPLETION);
	assert_int_equal(o.kind, XD_OUT_DISCONNECTED);
	assert_int_equal(o.status, -XP_E_STALLED);
	close_pair();
}

/* ---- refusals */

struct refusal {
	const char *says;
	int status;
	struct xp_request q;
	struct xp_segment segments[2];
};

static void refusals_say_why(void **unused)
{
	static const uint8_t ops[] = { XP_OP_SEND, XP_OP_RECV };
	struct refusal bad[] = {
		{ "operation 9", -XP_E_UNKNOWN_OPERATION, { .opcode = 9, .cookie = 1 }, { { 0 } } },
		{ "operation 0", -XP_E_UNKNOWN_OPERATION, { .opcode = 0, .cookie = 1 }, { { 0 } } },
		{ "cookie", -EINVAL, { .opcode = XP_OP_SEND, .local_count = 1 }, { { 0 } } },
		{ "reserved", -EINVAL, { .opcode = XP_OP_SEND, .cookie = 1, .reserved1 = 1 },
		  { { 0 } } },
		{ "4096", -EINVAL,
		  { .opcode = XP_OP_SEND, .cookie = 1, .local_count = 4097, .list_buffer = 1 },
		  { { 0 } } },
		{ "0x8000", -EINVAL, { .opcode = XP_OP_SEND, .cookie = 1, .flags = 0x8000 },
		  { { 0 } } },
		{ "both sides", -EINVAL, { .opcode = XP_OP_READ, .cookie = 1, .local_count = 1 },
		  { { 0 } } },
		{ "endpoint 5", -ENOENT, { .opcode = XP_OP_SEND, .cookie = 1, .endpoint = 5 },
		  { { 0 } } },
	};

	(void)unused;
	pair();
	for (size_t i = 0; i < XC_ARRAY_SIZE(bad); i++) {
		struct xd_out o;

		if (!bad[i].q.endpoint)
			bad[i].q.endpoint = a.endpoint;
		xd_session_submit(a.s, &bad[i].q, bad[i].q.list_buffer ? NULL : bad[i].segments);
		o = rig_take(&a, XD_OUT_COMPLETION);
		assert_int_equal(o.completion.status, bad[i].status);
		assert_non_null(strstr(o.text, bad[i].says));
	}
	for (size_t i = 0; i < XC_ARRAY_SIZE(ops); i++) {
		static const struct {
			uint64_t offset;
			uint32_t length;
		} outside[] = { { 65536, 1 }, { 65535, 2 }, { UINT64_MAX, 2 },
				{ UINT64_MAX - 1, UINT32_MAX }, { 0, 65537 } };

		for (size_t k = 0; k < XC_ARRAY_SIZE(outside); k++) {
			rig_submit(&a, ops[i], 1, outside[k].offset, outside[k].length, NULL);
			rig_completion(&a, 1, -EINVAL);
		}
	}
	/* Nothing was posted, nothing is charged, and the endpoint is as it was. */
	assert_int_equal(xd_core_counter(rig.core, XD_COUNTER_work_requests), 0);
	assert_int_equal(xd_core_counter(rig.core, XD_COUNTER_transfers), 0);
	rig_submit(&b, XP_OP_RECV, 1, 0, 100, NULL);
	rig_submit(&a, XP_OP_SEND, 2, 0, 100, NULL);
	rig_run(&rig);
	rig_completion(&a, 2, 0);
	rig_completion(&b, 1, 0);
	close_pair();
}

/* A client's numbers name nothing in another's session. */
static void numbers_are_ones_own(void **unused)
{
	uint32_t own = 0;

	(void)unused;
	pair();
	rig_buffer(&rig, &b); /* a second one: its number is unknown to a */
	own = a.buffer;
	a.buffer = b.buffer;
	rig_submit(&a, XP_OP_SEND, 1, 0, 10, NULL);
	rig_completion(&a, 1, -ENOENT);
	a.buffer = own;
	xd_session_buffer_remove(a.s, ++rig.serial, b.buffer);
	assert_int_equal(rig_take(&a, XD_OUT_REPLY).status, -ENOENT);
	close_pair();
}

/* ---- the end of the daemon */

static void drain_waits_for_what_runs(void **unused)
{
	struct rig_client late;
	struct xd_peer peer = { .uid = 1, .pid = 1 };
	char why[XD_TEXT_MAX];

	(void)unused;
	pair();
	rig_submit(&a, XP_OP_SEND, 1, 0, 50, NULL); /* nobody is ready for it */
	xd_core_drain(rig.core);
	assert_int_equal(xd_session_new(rig.core, &peer, &late, &late.s, why), -XP_E_SHUTDOWN);
	xd_core_progress(rig.core, 1 << 20);
	assert_false(xd_session_failed(a.s));
	assert_false(xd_core_idle(rig.core));
	fake_engine_advance(&rig.engine, (rig.policy.drain_ms + 1) * MS);
	assert_true(xd_session_failed(a.s) && xd_session_failed(b.s));
	close_pair();
	assert_true(xd_core_idle(rig.core));
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(hello_once),
		TEST(other_major),
		TEST(sessions_are_limited),
		TEST(calls_are_bounded),
		TEST(closes_are_bounded),
		TEST(submissions_have_turns),
		TEST(tables_show_ones_own),
		TEST(administration_is_for_administrators),
		TEST(measuring_is_answered),
		TEST(read_of_granted_bytes),
		TEST(token_tells_no_address),
		TEST(disconnect_ends_all),
		TEST(peers_come_from_allowed_addresses),
		TEST(fabrics_may_ask_before),
		TEST(disconnected_comes_last),
		TEST(goodbye_is_the_last),
		TEST(idle_is_not_stalled),
		cmocka_unit_test_setup_teardown(stalled_is_ended, NULL, tear_down),
		TEST(refusals_say_why),
		TEST(numbers_are_ones_own),
		TEST(drain_waits_for_what_runs),
	};

	rig_defaults();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
