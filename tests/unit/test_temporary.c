/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Keys made for one transfer alone: the sinks of READs that a device lets the peer write, a key for
 * each run of memory; and one over all ranges of a message.
 */
#include "tests/unit/core_rig.h"

#include <errno.h>
#include <string.h>

#include "daemon/core/explained.h"
#include "daemon/core/session.h"

#define MS UINT64_C(1000000)
#define BUFFER 65536
#define RECVS 4096
#define PIECE 100u
#define PIECES 3u
#define BYTES (PIECE * PIECES)

static struct rig rig;
static struct rig_client a, b;
static struct xp_completion token;
static uint32_t objects;
static uint64_t pinned;

static uint64_t counter(enum xd_counter which)
{
	return xd_core_counter(rig.core, which);
}

/* What slabs pin is no key's. */
static uint64_t keys_pin(void)
{
	return counter(XD_COUNTER_pinned_bytes) - counter(XD_COUNTER_slab_bytes);
}

static void count_sink(void *ctx, const struct fake_key *k)
{
	uint32_t *n = ctx;

	if (k->access & IBV_ACCESS_REMOTE_WRITE && k->fd >= 0)
		++*n;
}

/* Keys by which a peer may write into a client's memory. */
static uint32_t sinks(void)
{
	uint32_t n = 0;

	fake_fabric_keys(rig.fabric, count_sink, &n);
	return n;
}

static void remember(void)
{
	objects = fake_fabric_objects(rig.fabric);
	pinned = keys_pin();
}

static void pair(void)
{
	rig_init(&rig);
	rig_client_init(&rig, &a, 1000, false);
	rig_client_init(&rig, &b, 1001, false);
	rig_buffer(&rig, &a);
	rig_buffer(&rig, &b);
	rig_connect(&rig, &a, &b);
}

/* b READs from a; each piece of its memory needs a key of its own. */
static void sink_pair(void)
{
	rig_defaults();
	rig_caps.keys = FABRIC_KEYS_MR;
	rig_caps.pins = true;
	rig_caps.remote_invalidate = false;
	rig_caps.read_sink_remote_write = true;
	rig_options.recv_stage_bytes = RECVS;
	pair();
	token = rig_grant(&rig, &a, 0, BYTES, false, 0);
	memset(b.bytes, 0, 4096);
	remember();
}

/* Messages go by one key over all their pieces. */
static void ranges_pair(void)
{
	rig_defaults();
	rig_caps.keys = FABRIC_KEYS_MR;
	rig_caps.pins = true;
	rig_caps.remote_invalidate = false;
	rig_caps.max_ranges = 8;
	rig_options.recv_stage_bytes = RECVS;
	pair();
	rig.policy.force = XD_RUNG_INDIRECT;
	remember();
}

static void close_all(void)
{
	if (b.s)
		rig_close(&rig, &b);
	rig_close(&rig, &a);
	assert_int_equal(counter(XD_COUNTER_pinned_bytes), 0);
	assert_int_equal(counter(XD_COUNTER_keys), 0);
	rig_done(&rig);
}

/* One turn. */
static void turn(void)
{
	xd_core_progress(rig.core, 1 << 20);
	fake_engine_run_jobs(&rig.engine);
}

static void slow(uint32_t reg, uint32_t dereg)
{
	struct fake_dice dice = rig_dice;

	dice.reg_slow = reg;
	dice.dereg_slow = dereg;
	fake_fabric_dice(rig.fabric, &dice);
}

/* Pieces that are no neighbours, from this place on. */
static void submit(struct rig_client *c, uint8_t opcode, uint64_t wr_id, uint32_t n, uint64_t at)
{
	struct xp_segment s[16];
	struct xp_request q = { .opcode = opcode, .wr_id = wr_id, .cookie = wr_id,
				.flags = XP_F_EXPLAIN, .endpoint = c->endpoint, .local_count = n };

	for (uint32_t i = 0; i < n; i++)
		s[i] = (struct xp_segment){ .address = at + 300 * i, .length = PIECE,
					    .key = c->buffer };
	if (opcode == XP_OP_READ) {
		q.remote_count = 1;
		s[n] = (struct xp_segment){ .address = token.address, .length = n * PIECE,
					    .key = token.rkey };
	}
	xd_session_submit(c->s, &q, s);
}

static void cancel(struct rig_client *c, uint64_t wr_id, uint64_t target)
{
	struct xp_request q = { .opcode = XP_OP_CANCEL, .wr_id = wr_id, .cookie = wr_id,
				.endpoint = c->endpoint, .argument = target };

	xd_session_submit(c->s, &q, NULL);
}

static void has_read(uint64_t at)
{
	for (uint32_t i = 0; i < PIECES; i++)
		assert_memory_equal(b.bytes + at + 300 * i, a.bytes + i * PIECE, PIECE);
}

/* No key of a transfer's, and no charge for one. */
static void nothing_is_left(void)
{
	assert_int_equal(sinks(), 0);
	assert_int_equal(keys_pin(), pinned);
}

/* ---- sinks of READs */

static void keys_come_at_once(void **unused)
{
	(void)unused;
	sink_pair();
	submit(&b, XP_OP_READ, 1, PIECES, 0);
	assert_int_equal(sinks(), PIECES);
	assert_int_equal(keys_pin(), pinned + BYTES);
	assert_int_equal(counter(XD_COUNTER_work_requests), PIECES);
	rig_run(&rig);
	rig_completion(&b, 1, 0);
	has_read(0);
	nothing_is_left();
	assert_int_equal(fake_fabric_objects(rig.fabric), objects);
	assert_int_equal(counter(XD_COUNTER_plans_split), 1);
	assert_int_equal(counter(XD_COUNTER_plans_demoted), 0);
	close_all();
}

static void keys_come_later(void **unused)
{
	(void)unused;
	sink_pair();
	slow(1000, 0);
	submit(&b, XP_OP_READ, 1, PIECES, 0);
	/* Charged for, not there, and nothing goes without them. */
	assert_int_equal(keys_pin(), pinned + BYTES);
	assert_int_equal(sinks(), 0);
	assert_int_equal(counter(XD_COUNTER_work_requests), 0);
	rig_run(&rig);
	rig_completion(&b, 1, 0);
	has_read(0);
	nothing_is_left();
	assert_int_equal(fake_fabric_objects(rig.fabric), objects);
	close_all();
}

/* All or none: what was made goes, and the transfer takes another way. */
static void refused(uint32_t reg_slow, uint32_t dereg_slow, uint32_t nth, bool late)
{
	sink_pair();
	slow(reg_slow, dereg_slow);
	fake_fabric_refuse(rig.fabric, nth, late);
	submit(&b, XP_OP_READ, 1, PIECES, 0);
	assert_int_equal(counter(XD_COUNTER_work_requests), 0);
	if (!reg_slow && !dereg_slow && !late)
		nothing_is_left();
	rig_run(&rig);
	rig_completion(&b, 1, 0);
	has_read(0);
	nothing_is_left();
	assert_int_equal(counter(XD_COUNTER_plans_demoted), 1);
	assert_int_equal(counter(XD_COUNTER_plans_stage), 1);
	assert_int_equal(counter(XD_COUNTER_plans_split), 0);
	close_all();
}

static void it_is_all_or_none(void **unused)
{
	(void)unused;
	for (uint32_t nth = 1; nth <= PIECES; nth++) {
		for (uint32_t i = 0; i < 8; i++)
			refused(i & 1 ? 1000 : 0, i & 2 ? 1000 : 0, nth, i & 4);
	}
}

/* Two of one transfer. */
static void both_are_refused(void **unused)
{
	struct fake_dice dice;

	(void)unused;
	for (uint32_t late = 0; late < 2; late++) {
		sink_pair();
		dice = rig_dice;
		dice.reg_fail = 1000;
		dice.reg_slow = 1000 * late;
		fake_fabric_dice(rig.fabric, &dice);
		submit(&b, XP_OP_READ, 1, PIECES, 0);
		for (int i = 0; i < 40; i++)
			turn();
		assert_int_equal(counter(XD_COUNTER_plans_demoted), 1);
		nothing_is_left();
		slow(0, 0);
		/* Its slab was refused too, and is tried again. */
		fake_engine_advance(&rig.engine, 1001 * MS);
		rig_run(&rig);
		rig_completion(&b, 1, 0);
		has_read(0);
		close_all();
	}
}

/* It is told when they are dead, and not before. */
static void death_is_waited_for(void **unused)
{
	uint32_t bound = 1000;

	(void)unused;
	sink_pair();
	slow(0, 1000);
	submit(&b, XP_OP_READ, 1, PIECES, 0);
	while (xd_session_peek(b.s) == XD_OUT_NONE) {
		assert_int_equal(keys_pin(), pinned + BYTES);
		turn();
		assert_true(--bound);
	}
	nothing_is_left();
	assert_int_equal(fake_fabric_objects(rig.fabric), objects);
	rig_completion(&b, 1, 0);
	has_read(0);
	close_all();
}

/* Those that are being made when they are no longer wanted die as they come. */
static void a_cancel_comes_first(void **unused)
{
	(void)unused;
	for (uint32_t dereg = 0; dereg < 2; dereg++) {
		sink_pair();
		slow(1000, 1000 * dereg);
		submit(&b, XP_OP_READ, 1, PIECES, 0);
		cancel(&b, 2, 1);
		assert_int_equal(rig_completion(&b, 2, 0).immediate, XP_CANCEL_NEVER_STARTED);
		rig_take(&b, XD_OUT_NONE);
		assert_int_equal(keys_pin(), pinned + BYTES);
		/* It ends already: a second one changes nothing. */
		cancel(&b, 3, 1);
		rig_take(&b, XD_OUT_NONE);
		rig_run(&rig);
		rig_completion(&b, 1, -ECANCELED);
		rig_completion(&b, 3, 0);
		nothing_is_left();
		assert_int_equal(fake_fabric_objects(rig.fabric), objects);
		assert_int_equal(counter(XD_COUNTER_work_requests), 0);
		assert_int_equal(b.bytes[0], 0);
		close_all();
	}
}

/* A refusal that comes when it has been given up is none of its client's business. */
static void a_refusal_comes_last(void **unused)
{
	(void)unused;
	for (uint32_t nth = 1; nth <= PIECES; nth++) {
		sink_pair();
		slow(1000, 1000);
		fake_fabric_refuse(rig.fabric, nth, true);
		submit(&b, XP_OP_READ, 1, PIECES, 0);
		cancel(&b, 2, 1);
		rig_completion(&b, 2, 0);
		rig_run(&rig);
		rig_completion(&b, 1, -ECANCELED);
		rig_take(&b, XD_OUT_NONE);
		nothing_is_left();
		assert_int_equal(counter(XD_COUNTER_plans_demoted), 0);
		close_all();
	}
}

static void an_end_comes_first(void **unused)
{
	(void)unused;
	for (uint32_t turns = 0; turns < 12; turns++) {
		sink_pair();
		slow(1000, 1000);
		submit(&b, XP_OP_READ, 1, PIECES, 0);
		for (uint32_t i = 0; i < turns; i++)
			turn();
		if (xd_session_peek(b.s) == XD_OUT_COMPLETION)
			rig_completion(&b, 1, 0);
		xd_session_disconnect(b.s, ++rig.serial, b.endpoint);
		rig_run(&rig);
		assert_int_equal(rig_take(&b, XD_OUT_REPLY).status, 0);
		if (xd_session_peek(b.s) == XD_OUT_COMPLETION)
			rig_take(&b, XD_OUT_COMPLETION);
		rig_take(&b, XD_OUT_DISCONNECTED);
		rig_take(&b, XD_OUT_NONE);
		assert_int_equal(sinks(), 0);
		close_all();
	}
}

static void a_death_comes_first(void **unused)
{
	(void)unused;
	for (uint32_t turns = 0; turns < 12; turns++) {
		sink_pair();
		slow(1000, 1000);
		submit(&b, XP_OP_READ, 1, PIECES, 0);
		for (uint32_t i = 0; i < turns; i++)
			turn();
		rig_close(&rig, &b);
		assert_int_equal(sinks(), 0);
		close_all();
	}
}

/* A user at its limit gets none, and no slab either: it waits, and not for ever. */
static void a_limit_is_a_limit(void **unused)
{
	(void)unused;
	sink_pair();
	rig.policy.user.value[XD_LIMIT_pinned] = BUFFER + RECVS + BYTES - 1;
	xd_core_set_policy(rig.core, &rig.policy);
	submit(&b, XP_OP_READ, 1, PIECES, 0);
	rig_run(&rig);
	nothing_is_left();
	rig_take(&b, XD_OUT_NONE);
	for (int i = 0; i < 8; i++) {
		fake_engine_advance(&rig.engine, rig.policy.progress_ms / 2 * MS);
		rig_run(&rig);
	}
	rig_completion(&b, 1, -EAGAIN);
	nothing_is_left();
	rig.policy.user.value[XD_LIMIT_pinned] = 1 << 20;
	xd_core_set_policy(rig.core, &rig.policy);
	submit(&b, XP_OP_READ, 2, PIECES, 0);
	assert_int_equal(sinks(), PIECES);
	rig_run(&rig);
	rig_completion(&b, 2, 0);
	has_read(0);
	nothing_is_left();
	close_all();
}

/* What held keys once holds others, and knows nothing of the first. */
static void sets_are_used_again(void **unused)
{
	struct xd_core *core;

	(void)unused;
	sink_pair();
	core = rig.core;
	assert_int_equal(core->n_spare_temporaries, 0);
	submit(&b, XP_OP_READ, 1, PIECES, 0);
	submit(&b, XP_OP_READ, 2, 2, 3000);
	assert_int_equal(sinks(), PIECES + 2);
	rig_run(&rig);
	rig_completion(&b, 1, 0);
	rig_completion(&b, 2, 0);
	assert_int_equal(core->n_spare_temporaries, 2);
	fake_fabric_refuse(rig.fabric, 2, true);
	submit(&b, XP_OP_READ, 3, PIECES, 0);
	assert_int_equal(core->n_spare_temporaries, 1);
	rig_run(&rig);
	rig_completion(&b, 3, 0);
	assert_int_equal(core->n_spare_temporaries, 2);
	memset(b.bytes, 0, 4096);
	submit(&b, XP_OP_READ, 4, PIECES, 0);
	assert_int_equal(core->n_spare_temporaries, 1);
	assert_int_equal(sinks(), PIECES);
	assert_int_equal(keys_pin(), pinned + BYTES);
	rig_run(&rig);
	rig_completion(&b, 4, 0);
	has_read(0);
	nothing_is_left();
	assert_int_equal(core->n_spare_temporaries, 2);
	close_all();
}

/* ---- messages by one key over ranges */

static void one_key_for_all(void **unused)
{
	(void)unused;
	ranges_pair();
	submit(&b, XP_OP_RECV, 1, 6, 0);
	assert_int_equal(fake_fabric_objects(rig.fabric), objects + 1);
	assert_int_equal(keys_pin(), pinned + 6 * PIECE);
	submit(&a, XP_OP_SEND, 2, 6, 1000);
	assert_int_equal(fake_fabric_objects(rig.fabric), objects + 2);
	rig_run(&rig);
	rig_completion(&a, 2, 0);
	rig_completion(&b, 1, 0);
	for (uint32_t i = 0; i < 6; i++)
		assert_memory_equal(b.bytes + 300 * i, a.bytes + 1000 + 300 * i, PIECE);
	assert_int_equal(fake_fabric_objects(rig.fabric), objects);
	assert_int_equal(counter(XD_COUNTER_plans_indirect), 2);
	assert_int_equal(sinks(), 0);
	assert_int_equal(keys_pin(), pinned);
	close_all();
}

/* A RECV never waits: one whose key takes time is refused, and told of when that is dead. */
static void a_recv_does_not_wait(void **unused)
{
	(void)unused;
	ranges_pair();
	slow(1000, 1000);
	submit(&b, XP_OP_RECV, 1, 6, 0);
	rig_take(&b, XD_OUT_NONE);
	assert_int_equal(keys_pin(), pinned + 6 * PIECE);
	rig_run(&rig);
	rig_completion(&b, 1, -EAGAIN);
	assert_int_equal(keys_pin(), pinned);
	assert_int_equal(fake_fabric_objects(rig.fabric), objects);
	close_all();
}

/* A refusal leaves what was reserved for RECVs with the endpoint. */
static void a_recv_goes_another_way(void **unused)
{
	(void)unused;
	ranges_pair();
	fake_fabric_refuse(rig.fabric, 1, false);
	submit(&b, XP_OP_RECV, 1, 6, 0);
	assert_int_equal(counter(XD_COUNTER_plans_demoted), 1);
	submit(&a, XP_OP_SEND, 2, 6, 1000);
	rig_run(&rig);
	rig_completion(&a, 2, 0);
	rig_completion(&b, 1, 0);
	for (uint32_t i = 0; i < 6; i++)
		assert_memory_equal(b.bytes + 300 * i, a.bytes + 1000 + 300 * i, PIECE);
	assert_int_equal(keys_pin(), pinned);
	close_all();
}

/* One that goes by its buffer's registration has no key of its own. */
static void a_recv_without(void **unused)
{
	(void)unused;
	ranges_pair();
	rig.policy.force = XD_RUNG_COUNT;
	submit(&b, XP_OP_RECV, 1, 2, 0);
	submit(&a, XP_OP_SEND, 2, 2, 1000);
	assert_int_equal(rig.core->n_spare_temporaries, 0);
	rig_run(&rig);
	rig_completion(&a, 2, 0);
	rig_completion(&b, 1, 0);
	assert_int_equal(rig.core->n_spare_temporaries, 0);
	assert_int_equal(counter(XD_COUNTER_plans_indirect), 0);
	assert_int_equal(keys_pin(), pinned);
	close_all();
}

/* RECVs that are with the device when their endpoint ends. */
static void an_end_takes_a_recv_along(void **unused)
{
	(void)unused;
	ranges_pair();
	slow(0, 1000);
	submit(&b, XP_OP_RECV, 1, 6, 0);
	submit(&b, XP_OP_RECV, 2, 6, 2000);
	xd_session_disconnect(b.s, ++rig.serial, b.endpoint);
	rig_run(&rig);
	rig_take(&b, XD_OUT_REPLY);
	rig_completion(&b, 1, -XP_E_FLUSHED);
	rig_completion(&b, 2, -XP_E_FLUSHED);
	rig_take(&b, XD_OUT_DISCONNECTED);
	assert_int_equal(sinks(), 0);
	close_all();
}

/* What is explained is the plan that was made, whatever things cost by the end. */
static void prices_change(void **unused)
{
	static const struct fabric_costs dear = { .wr_ns = 1, .reg_ns = 1000000 };
	const struct xd_explained *e;

	(void)unused;
	sink_pair();
	fake_fabric_reprice(rig.fabric, &dear);
	slow(1000, 0);
	submit(&b, XP_OP_READ, 1, PIECES, 0);
	slow(0, 0);
	assert_int_equal(xd_core_measure(rig.core, 0), 0);
	assert_int_equal(rig.core->caps[0].costs.reg_ns, 1000000);
	rig_run(&rig);
	rig_completion(&b, 1, 0);
	has_read(0);
	assert_int_equal(counter(XD_COUNTER_plans_split), 1);
	e = xd_explained_from(b.s, 1);
	assert_int_equal(e->plan.rung, XD_RUNG_SPLIT);
	assert_int_equal(e->thoughts.of[XD_RUNG_SPLIT].verdict, XD_VERDICT_TAKEN);
	assert_int_equal(e->thoughts.of[XD_RUNG_STAGE].verdict, XD_VERDICT_BELOW);
	assert_int_equal(e->thoughts.of[XD_RUNG_SPLIT].ns, 0);
	/* By what things cost now another way is taken. */
	submit(&b, XP_OP_READ, 2, PIECES, 0);
	assert_int_equal(sinks(), 0);
	rig_run(&rig);
	rig_completion(&b, 2, 0);
	assert_int_equal(counter(XD_COUNTER_plans_stage), 1);
	e = xd_explained_from(b.s, 2);
	assert_int_equal(e->plan.rung, XD_RUNG_STAGE);
	assert_int_equal(e->thoughts.of[XD_RUNG_STAGE].verdict, XD_VERDICT_TAKEN);
	assert_int_equal(e->thoughts.of[XD_RUNG_SPLIT].verdict, XD_VERDICT_DEARER);
	close_all();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(keys_come_at_once),
		cmocka_unit_test(keys_come_later),
		cmocka_unit_test(it_is_all_or_none),
		cmocka_unit_test(both_are_refused),
		cmocka_unit_test(death_is_waited_for),
		cmocka_unit_test(a_cancel_comes_first),
		cmocka_unit_test(a_refusal_comes_last),
		cmocka_unit_test(an_end_comes_first),
		cmocka_unit_test(a_death_comes_first),
		cmocka_unit_test(a_limit_is_a_limit),
		cmocka_unit_test(sets_are_used_again),
		cmocka_unit_test(one_key_for_all),
		cmocka_unit_test(a_recv_does_not_wait),
		cmocka_unit_test(a_recv_goes_another_way),
		cmocka_unit_test(a_recv_without),
		cmocka_unit_test(an_end_takes_a_recv_along),
		cmocka_unit_test(prices_change),
	};

	rig_defaults();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
