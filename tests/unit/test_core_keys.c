/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Registrations, grants and slabs on each kind of fabric: windows, exact MRs, copies.
 */
#include "tests/unit/core_rig.h"

#include <errno.h>
#include <string.h>

#define MS UINT64_C(1000000)
#define BUFFER 65536
/* Of a test's own choice: the slab of RECVs, as small as can be. */
#define RECVS 4096

static struct rig rig;
static struct rig_client a, b, c;

static void defaults(enum fabric_keys keys)
{
	rig_defaults();
	rig_caps.keys = keys;
	rig_caps.pins = keys != FABRIC_KEYS_WINDOW;
	rig_caps.remote_invalidate = keys == FABRIC_KEYS_WINDOW;
	rig_options.recv_stage_bytes = keys == FABRIC_KEYS_WINDOW ? 0 : RECVS;
}

static void client(struct rig_client *who, uint32_t uid, uint64_t buffer)
{
	rig_client_init(&rig, who, uid, false);
	rig_buffer_of(&rig, who, buffer);
}

/* a and b, connected. */
static void pair_of(uint64_t buffer)
{
	rig_init(&rig);
	client(&a, 1000, buffer);
	client(&b, 1001, buffer);
	rig_connect(&rig, &a, &b);
}

static void pair(enum fabric_keys keys)
{
	defaults(keys);
	pair_of(BUFFER);
}

static uint64_t counter(enum xd_counter which)
{
	return xd_core_counter(rig.core, which);
}

static void close_all(void)
{
	rig_close(&rig, &a);
	rig_close(&rig, &b);
	assert_int_equal(counter(XD_COUNTER_keys), 0);
	assert_int_equal(counter(XD_COUNTER_slab_bytes), 0);
	assert_int_equal(counter(XD_COUNTER_pinned_bytes), 0);
	assert_int_equal(fake_memory_slab_bytes(NULL), 0);
	rig_done(&rig);
}

/* Some turns, where something waits that never ends by itself. */
static void turns(void)
{
	for (int i = 0; i < 100; i++) {
		xd_core_progress(rig.core, 1 << 20);
		fake_engine_run_jobs(&rig.engine);
	}
}

static bool alive(const struct xp_completion *token)
{
	return fake_fabric_key_live(rig.fabric, token->rkey);
}

/* One after the other, so that nothing waits behind it. */
static void does(struct rig_client *who, uint8_t opcode, uint64_t offset, uint32_t length,
		 const struct xp_completion *token)
{
	uint64_t wr_id = ++rig.serial;

	rig_submit(who, opcode, wr_id, offset, length, token);
	rig_run(&rig);
	rig_completion(who, wr_id, 0);
}

/* a hears of b. */
static void message(void)
{
	rig_submit(&a, XP_OP_RECV, 8001, BUFFER - 100, 100, NULL);
	rig_submit(&b, XP_OP_SEND, 8002, BUFFER - 100, 10, NULL);
	rig_run(&rig);
	rig_completion(&b, 8002, 0);
	rig_completion(&a, 8001, 0);
	assert_memory_equal(a.bytes + BUFFER - 100, b.bytes + BUFFER - 100, 10);
}

static void each(void (*fn)(enum fabric_keys keys))
{
	for (int keys = FABRIC_KEYS_WINDOW; keys <= FABRIC_KEYS_SLAB; keys++)
		fn((enum fabric_keys)keys);
}

/* ---- grants */

static void grants_live_and_die(enum fabric_keys keys)
{
	struct xp_completion read, write;

	pair(keys);
	read = rig_grant(&rig, &a, 100, 1000, false, 0);
	write = rig_grant(&rig, &a, 4000, 2000, true, 0);
	assert_int_equal(read.byte_len, 1000);
	assert_true(alive(&read) && alive(&write));
	does(&b, XP_OP_READ, 0, 1000, &read);
	assert_memory_equal(b.bytes, a.bytes + 100, 1000);
	does(&b, XP_OP_WRITE, 5000, 2000, &write);
	does(&a, XP_OP_REVOKE, 0, 0, &write);
	assert_memory_equal(a.bytes + 4000, b.bytes + 5000, 2000);
	assert_true(alive(&read) && !alive(&write));
	does(&a, XP_OP_REVOKE, 0, 0, &read);
	assert_false(alive(&read));
	assert_int_equal(counter(XD_COUNTER_grants), 0);
	/* Too late. */
	rig_submit(&b, XP_OP_READ, 9000, 0, 10, &read);
	rig_run(&rig);
	rig_completion(&b, 9000, -XP_E_REMOTE_ACCESS);
	assert_int_equal(rig_take(&b, XD_OUT_DISCONNECTED).status, -XP_E_REMOTE_ACCESS);
	close_all();
}

static void they_live_and_die(void **unused)
{
	(void)unused;
	each(grants_live_and_die);
}

/* A GRANT, and a REVOKE, end in their turn, whatever makes them. */
static void grants_keep_the_order(enum fabric_keys keys)
{
	struct xp_completion token;

	pair(keys);
	token = rig_grant(&rig, &a, 0, 100, false, 0);
	rig_submit(&a, XP_OP_SEND, 1, 0, 50, NULL); /* nobody is ready for it */
	rig_submit(&a, XP_OP_GRANT, 2, 1000, 100, NULL);
	rig_submit(&a, XP_OP_SEND, 3, 100, 50, NULL);
	rig_submit(&a, XP_OP_REVOKE, 4, 0, 0, &token);
	turns();
	if (keys == FABRIC_KEYS_WINDOW)
		rig_take(&a, XD_OUT_NONE);
	else
		rig_completion(&a, 4, 0); /* its death waits for nothing, and is told at once */
	rig_submit(&b, XP_OP_RECV, 1, 0, 50, NULL);
	rig_submit(&b, XP_OP_RECV, 2, 50, 50, NULL);
	rig_run(&rig);
	rig_completion(&a, 1, 0);
	rig_completion(&a, 2, 0);
	rig_completion(&a, 3, 0);
	if (keys == FABRIC_KEYS_WINDOW)
		rig_completion(&a, 4, 0);
	assert_false(alive(&token));
	close_all();
}

static void they_keep_the_order(void **unused)
{
	(void)unused;
	each(grants_keep_the_order);
}

/* A copy is of the time of its GRANT; what is no copy shows what there is. */
static void grants_show(enum fabric_keys keys)
{
	struct xp_completion token;
	uint8_t before[500];

	pair(keys);
	token = rig_grant(&rig, &a, 100, 500, false, 0);
	memcpy(before, a.bytes + 100, 500);
	for (int i = 0; i < 500; i++)
		a.bytes[100 + i] ^= 0x55;
	does(&b, XP_OP_READ, 0, 500, &token);
	if (keys == FABRIC_KEYS_SLAB)
		assert_memory_equal(b.bytes, before, 500);
	else
		assert_memory_equal(b.bytes, a.bytes + 100, 500);
	close_all();
}

static void they_show(void **unused)
{
	(void)unused;
	each(grants_show);
}

/* What is written is there when a message that came later is told of; the rest of a copy is 0. */
static void writes_come_before_messages(enum fabric_keys keys)
{
	struct xp_completion token;
	uint8_t before[400], zero[400] = { 0 };

	pair(keys);
	memcpy(before, a.bytes + 1000, 400);
	token = rig_grant(&rig, &a, 1000, 400, true, 0);
	does(&b, XP_OP_WRITE, 0, 100, &token);
	message();
	assert_memory_equal(a.bytes + 1000, b.bytes, 100);
	assert_memory_equal(a.bytes + 1100, keys == FABRIC_KEYS_SLAB ? zero : before + 100,
			    300);
	memset(b.bytes, 0x77, 100);
	does(&b, XP_OP_WRITE, 0, 100, &token);
	message();
	assert_memory_equal(a.bytes + 1000, b.bytes, 100);
	close_all();
}

static void what_is_written_comes_first(void **unused)
{
	(void)unused;
	each(writes_come_before_messages);
}

/*
 * What a READ brought goes out again behind a fence, at once: through slabs, or straight from the
 * memory that the READ's slab is copied to.
 */
static void a_fence_waits(enum fabric_keys keys, bool writable_sinks)
{
	struct xp_completion read, write;
	struct xp_segment local = { .length = 4000 };
	struct xp_request fenced = {
		.opcode = XP_OP_WRITE, .flags = XP_F_FENCE, .wr_id = 2, .cookie = 2,
		.local_count = 1, .remote_count = 1,
	};
	struct xp_segment segments[2];

	defaults(keys);
	rig_caps.read_sink_remote_write = writable_sinks;
	pair_of(BUFFER);
	read = rig_grant(&rig, &a, 0, 4000, false, 0);
	write = rig_grant(&rig, &a, 8000, 4000, true, 0);
	/* rings and keys are there: nothing holds up what comes */
	does(&b, XP_OP_READ, 20000, 10, &read);
	does(&b, XP_OP_WRITE, 20000, 10, &write);
	for (int round = 0; round < 3; round++) {
		memset(a.bytes, 0x10 + round, 4000);
		if (keys == FABRIC_KEYS_SLAB)
			read = rig_grant(&rig, &a, 0, 4000, false, 0);
		memset(b.bytes, 0xee, 4000);
		rig_submit(&b, XP_OP_READ, 1, 0, 4000, &read);
		local.key = b.buffer;
		segments[0] = local;
		segments[1] = (struct xp_segment){ write.address, 4000, write.rkey };
		fenced.endpoint = b.endpoint;
		xd_session_submit(b.s, &fenced, segments);
		rig_run(&rig);
		rig_completion(&b, 1, 0);
		rig_completion(&b, 2, 0);
		message();
		assert_memory_equal(b.bytes, a.bytes, 4000);
		assert_memory_equal(a.bytes + 8000, a.bytes, 4000);
	}
	close_all();
}

static void fences_wait(void **unused)
{
	(void)unused;
	for (int keys = FABRIC_KEYS_WINDOW; keys <= FABRIC_KEYS_SLAB; keys++) {
		a_fence_waits((enum fabric_keys)keys, false);
		a_fence_waits((enum fabric_keys)keys, true);
	}
}

/* The deadline of a grant loses nothing that was written before it. */
static void a_deadline_comes(enum fabric_keys keys)
{
	struct xp_completion token;

	pair(keys);
	token = rig_grant(&rig, &a, 1000, 400, true, 50);
	does(&b, XP_OP_WRITE, 0, 400, &token);
	assert_true(alive(&token));
	fake_engine_advance(&rig.engine, 51 * MS);
	rig_run(&rig);
	assert_false(alive(&token));
	assert_memory_equal(a.bytes + 1000, b.bytes, 400);
	assert_int_equal(counter(XD_COUNTER_grants), 0);
	close_all();
}

static void deadlines_come(void **unused)
{
	(void)unused;
	each(a_deadline_comes);
}

/* With the endpoint all its keys die, and a REVOKE that waits then has not failed. */
static void an_endpoint_ends(enum fabric_keys keys)
{
	struct xp_completion read, write;
	struct xd_out o;

	pair(keys);
	read = rig_grant(&rig, &a, 0, 100, false, 0);
	write = rig_grant(&rig, &a, 200, 100, true, 0);
	does(&b, XP_OP_WRITE, 0, 100, &write);
	rig_submit(&a, XP_OP_SEND, 1, 5000, 50, NULL); /* nobody is ready for it */
	rig_submit(&a, XP_OP_REVOKE, 2, 0, 0, &write);
	xd_session_disconnect(a.s, ++rig.serial, a.endpoint);
	rig_run(&rig);
	assert_false(alive(&read) || alive(&write));
	assert_memory_equal(a.bytes + 200, b.bytes, 100);
	while (xd_session_peek(a.s) == XD_OUT_COMPLETION || xd_session_peek(a.s) == XD_OUT_REPLY) {
		xd_session_pull(a.s, &o);
		if (o.kind == XD_OUT_COMPLETION)
			assert_int_equal(o.completion.status,
					 o.completion.wr_id == 2 ? 0 : -XP_E_FLUSHED);
	}
	rig_take(&a, XD_OUT_DISCONNECTED);
	assert_int_equal(counter(XD_COUNTER_grants), 0);
	close_all();
}

static void endpoints_end(void **unused)
{
	(void)unused;
	each(an_endpoint_ends);
}

/* A device's own addresses are as good as the ones that were asked for. */
static void a_device_has_addresses_of_its_own(enum fabric_keys keys)
{
	struct xp_completion read, write;

	defaults(keys);
	rig_own_addresses = true;
	pair_of(BUFFER);
	read = rig_grant(&rig, &a, 100, 1000, false, 0);
	write = rig_grant(&rig, &a, 4100, 1000, true, 0);
	assert_int_not_equal(read.address >> 60, 0);
	does(&b, XP_OP_READ, 0, 1000, &read);
	does(&b, XP_OP_WRITE, 0, 1000, &write);
	message();
	assert_memory_equal(b.bytes, a.bytes + 100, 1000);
	assert_memory_equal(b.bytes, a.bytes + 4100, 1000);
	close_all();
}

static void addresses_are_the_devices(void **unused)
{
	(void)unused;
	each(a_device_has_addresses_of_its_own);
}

/* What has no bytes needs no key and no slab. */
static void of_no_bytes(enum fabric_keys keys)
{
	struct xp_completion token;
	uint64_t slabs;

	defaults(keys);
	rig_options.recv_stage_bytes = 0;
	pair_of(BUFFER);
	slabs = counter(XD_COUNTER_slab_bytes);
	rig_submit(&a, XP_OP_RECV, 1, 0, 0, NULL);
	does(&b, XP_OP_SEND, 0, 0, NULL);
	rig_completion(&a, 1, 0);
	if (keys != FABRIC_KEYS_WINDOW)
		assert_int_equal(counter(XD_COUNTER_keys), 0);
	assert_int_equal(counter(XD_COUNTER_slab_bytes), slabs);
	token = rig_grant(&rig, &a, 0, 1, false, 0);
	slabs = counter(XD_COUNTER_slab_bytes);
	does(&b, XP_OP_READ, 0, 0, &token);
	does(&b, XP_OP_WRITE, 0, 0, &token);
	if (keys != FABRIC_KEYS_WINDOW)
		assert_int_equal(counter(XD_COUNTER_keys), 0);
	assert_int_equal(counter(XD_COUNTER_slab_bytes), slabs);
	close_all();
}

static void nothing_takes_nothing(void **unused)
{
	(void)unused;
	each(of_no_bytes);
}

/* ---- charges */

static void exact_grants_are_charged(void **unused)
{
	struct xp_completion token;
	uint64_t pinned;

	(void)unused;
	pair(FABRIC_KEYS_MR);
	pinned = counter(XD_COUNTER_pinned_bytes);
	assert_int_equal(pinned, 2 * (BUFFER + RECVS));
	token = rig_grant(&rig, &a, 100, 1000, false, 0);
	assert_int_equal(counter(XD_COUNTER_pinned_bytes), pinned + 1000);
	assert_int_equal(counter(XD_COUNTER_keys), 0); /* the buffer itself needs none */
	does(&a, XP_OP_REVOKE, 0, 0, &token);
	assert_int_equal(counter(XD_COUNTER_pinned_bytes), pinned);
	rig.policy.user.value[XD_LIMIT_pinned] = BUFFER + RECVS + 999;
	xd_core_set_policy(rig.core, &rig.policy);
	rig_submit(&a, XP_OP_GRANT, 1, 100, 1000, NULL);
	rig_run(&rig);
	rig_completion(&a, 1, -XP_E_QUOTA);
	assert_int_equal(counter(XD_COUNTER_pinned_bytes), pinned);
	rig_submit(&a, XP_OP_GRANT, 2, 100, 999, NULL);
	rig_run(&rig);
	rig_completion(&a, 2, 0);
	close_all();
}

/* A copy that finds no room does not wait, and one that is given back is used again. */
static void copies_are_charged(void **unused)
{
	struct xp_completion token;
	uint64_t pinned;

	(void)unused;
	pair(FABRIC_KEYS_SLAB);
	pinned = counter(XD_COUNTER_pinned_bytes);
	rig.policy.user.value[XD_LIMIT_pinned] = BUFFER + RECVS + 8192;
	xd_core_set_policy(rig.core, &rig.policy);
	token = rig_grant(&rig, &a, 0, 5000, false, 0);
	assert_int_equal(counter(XD_COUNTER_pinned_bytes), pinned + 8192);
	rig_submit(&a, XP_OP_GRANT, 1, 100, 1, NULL);
	rig_run(&rig);
	rig_completion(&a, 1, -XP_E_QUARANTINE);
	does(&a, XP_OP_REVOKE, 0, 0, &token);
	token = rig_grant(&rig, &a, 0, 8192, false, 0);
	assert_int_equal(counter(XD_COUNTER_pinned_bytes), pinned + 8192);
	/* In the other direction it would show what it held. */
	does(&a, XP_OP_REVOKE, 0, 0, &token);
	rig.policy.user.value[XD_LIMIT_pinned] += 8192;
	xd_core_set_policy(rig.core, &rig.policy);
	rig_grant(&rig, &a, 0, 8192, true, 0);
	assert_int_equal(counter(XD_COUNTER_pinned_bytes), pinned + 2 * 8192);
	close_all();
}

/* A buffer is pinned once more for each domain that needs it, and goes from all of them. */
static void registrations_are_per_domain(void **unused)
{
	uint64_t pinned;
	uint32_t first;

	(void)unused;
	pair(FABRIC_KEYS_MR);
	client(&c, 1002, BUFFER);
	first = a.endpoint;
	rig_connect(&rig, &a, &c);
	pinned = counter(XD_COUNTER_pinned_bytes);
	rig_submit(&c, XP_OP_RECV, 1, 0, 100, NULL);
	does(&a, XP_OP_SEND, 0, 100, NULL);
	rig_completion(&c, 1, 0);
	/* Of the sender's buffer, and of the receiver's. */
	assert_int_equal(counter(XD_COUNTER_keys), 2);
	assert_int_equal(counter(XD_COUNTER_pinned_bytes), pinned); /* the first is the buffer's */
	a.endpoint = first;
	rig_submit(&b, XP_OP_RECV, 2, 0, 100, NULL);
	does(&a, XP_OP_SEND, 0, 100, NULL);
	rig_completion(&b, 2, 0);
	assert_int_equal(counter(XD_COUNTER_keys), 4);
	assert_int_equal(counter(XD_COUNTER_pinned_bytes), pinned + BUFFER);
	xd_session_buffer_remove(a.s, ++rig.serial, a.buffer);
	rig_run(&rig);
	assert_int_equal(rig_take(&a, XD_OUT_REPLY).status, 0);
	assert_int_equal(counter(XD_COUNTER_keys), 2);
	assert_int_equal(counter(XD_COUNTER_pinned_bytes), pinned - BUFFER);
	rig_close(&rig, &c);
	close_all();
}

/* Of two registrations either may go first: the buffer is charged for what is left. */
static void a_domain_goes(void **unused)
{
	uint64_t pinned;
	uint32_t ends[2];

	(void)unused;
	for (int first = 0; first < 2; first++) {
		pair(FABRIC_KEYS_MR);
		client(&c, 1002, BUFFER);
		ends[0] = a.endpoint;
		rig_connect(&rig, &a, &c);
		ends[1] = a.endpoint;
		rig_submit(&b, XP_OP_RECV, 1, 0, 100, NULL);
		rig_submit(&c, XP_OP_RECV, 1, 0, 100, NULL);
		for (int i = 0; i < 2; i++) {
			a.endpoint = ends[i];
			does(&a, XP_OP_SEND, 0, 100, NULL);
		}
		rig_completion(&b, 1, 0);
		rig_completion(&c, 1, 0);
		pinned = counter(XD_COUNTER_pinned_bytes);
		xd_session_endpoint_free(a.s, ++rig.serial, ends[first]);
		rig_run(&rig);
		/* Its own, and its peer's, of which each was that one's only one. */
		assert_int_equal(counter(XD_COUNTER_keys), 2);
		assert_int_equal(counter(XD_COUNTER_pinned_bytes), pinned - BUFFER - 2 * RECVS);
		rig_close(&rig, &c);
		close_all();
	}
}

/* What cannot be registered goes through a slab. */
static void exhaustion_demotes(void **unused)
{
	static const uint64_t large = 1 << 20;
	uint32_t first;

	(void)unused;
	defaults(FABRIC_KEYS_MR);
	rig_init(&rig);
	rig.policy.user.value[XD_LIMIT_pinned] = large + 2 * RECVS + (256 << 10);
	client(&a, 1000, large);
	client(&b, 1001, BUFFER);
	client(&c, 1002, BUFFER);
	rig_connect(&rig, &a, &b);
	first = a.endpoint;
	rig_connect(&rig, &a, &c);
	rig_submit(&c, XP_OP_RECV, 1, 0, 100, NULL);
	does(&a, XP_OP_SEND, 0, 100, NULL);
	rig_completion(&c, 1, 0);
	assert_int_equal(counter(XD_COUNTER_plans_stage), 0);
	a.endpoint = first; /* another domain: there is no room to pin a's buffer twice */
	rig_submit(&b, XP_OP_RECV, 2, 0, 100, NULL);
	does(&a, XP_OP_SEND, 1000, 100, NULL);
	rig_completion(&b, 2, 0);
	assert_memory_equal(b.bytes, a.bytes + 1000, 100);
	assert_int_equal(counter(XD_COUNTER_plans_stage), 1);
	assert_int_equal(counter(XD_COUNTER_slab_bytes), 4 * RECVS + (256 << 10));
	rig_close(&rig, &c);
	close_all();
}

/* 100 bytes of this buffer of a's to c, on a's endpoint. */
static void send_from(uint32_t buffer)
{
	a.buffer = buffer;
	rig_submit(&c, XP_OP_RECV, 1, 0, 100, NULL);
	does(&a, XP_OP_SEND, 0, 100, NULL);
	rig_completion(&c, 1, 0);
}

/* At the limit a registration goes that nothing uses: the one that was used longest ago. */
static void the_least_used_makes_room(void **unused)
{
	uint32_t buffers[3], first;

	(void)unused;
	defaults(FABRIC_KEYS_MR);
	rig_init(&rig);
	rig.policy.user.value[XD_LIMIT_pinned] = 5 * BUFFER + 2 * RECVS + BUFFER / 2;
	client(&b, 1001, BUFFER);
	client(&c, 1002, BUFFER);
	client(&a, 1000, BUFFER);
	buffers[0] = a.buffer;
	for (int i = 1; i < 3; i++) {
		rig_buffer_of(&rig, &a, BUFFER);
		buffers[i] = a.buffer;
	}
	rig_connect(&rig, &a, &b);
	first = a.endpoint;
	for (int i = 0; i < 3; i++) { /* these are the buffers' own, and stay */
		a.buffer = buffers[i];
		rig_submit(&b, XP_OP_RECV, 2, 0, 100, NULL);
		does(&a, XP_OP_SEND, 0, 100, NULL);
		rig_completion(&b, 2, 0);
	}
	rig_connect(&rig, &a, &c);
	assert_int_not_equal(a.endpoint, first);
	send_from(buffers[0]);
	send_from(buffers[1]);
	send_from(buffers[0]);
	assert_int_equal(counter(XD_COUNTER_keys_evicted), 0);
	send_from(buffers[2]);
	assert_int_equal(counter(XD_COUNTER_keys_evicted), 1);
	send_from(buffers[0]); /* is still there */
	assert_int_equal(counter(XD_COUNTER_keys_evicted), 1);
	send_from(buffers[1]); /* is not */
	assert_int_equal(counter(XD_COUNTER_keys_evicted), 2);
	assert_int_equal(counter(XD_COUNTER_plans_stage), 0);
	rig_close(&rig, &c);
	close_all();
}

/* ---- rings */

static void recvs_have_what_was_reserved(void **unused)
{
	(void)unused;
	pair(FABRIC_KEYS_SLAB);
	rig_submit(&a, XP_OP_RECV, 1, 0, 2000, NULL);
	rig_submit(&a, XP_OP_RECV, 2, 2000, 2000, NULL);
	rig_submit(&a, XP_OP_RECV, 3, 4000, 2000, NULL);
	rig_completion(&a, 3, -EAGAIN);
	rig_submit(&a, XP_OP_RECV, 4, 4000, 4097, NULL);
	rig_completion(&a, 4, -EMSGSIZE);
	does(&b, XP_OP_SEND, 0, 1500, NULL);
	rig_completion(&a, 1, 0);
	assert_memory_equal(a.bytes, b.bytes, 1500);
	rig_submit(&a, XP_OP_RECV, 5, 4000, 2000, NULL);
	does(&b, XP_OP_SEND, 100, 2000, NULL);
	does(&b, XP_OP_SEND, 200, 2000, NULL);
	rig_completion(&a, 2, 0);
	rig_completion(&a, 5, 0);
	assert_memory_equal(a.bytes + 2000, b.bytes + 100, 2000);
	assert_memory_equal(a.bytes + 4000, b.bytes + 200, 2000);
	close_all();
}

/* A full ring is waited for. */
static void sends_wait_for_room(void **unused)
{
	static const uint32_t length = 300 << 10;

	(void)unused;
	defaults(FABRIC_KEYS_SLAB);
	rig_options.recv_stage_bytes = 8 * length;
	pair_of(8 * length);
	for (uint64_t i = 0; i < 5; i++) /* nobody is ready for them */
		rig_submit(&a, XP_OP_SEND, 1 + i, i * length, length, NULL);
	turns();
	assert_int_equal(counter(XD_COUNTER_work_requests), 3);
	rig_take(&a, XD_OUT_NONE);
	for (uint64_t i = 0; i < 5; i++)
		rig_submit(&b, XP_OP_RECV, 1 + i, i * length, length, NULL);
	rig_run(&rig);
	for (uint64_t i = 0; i < 5; i++) {
		rig_completion(&a, 1 + i, 0);
		rig_completion(&b, 1 + i, 0);
	}
	assert_memory_equal(b.bytes, a.bytes, 5 * length);
	close_all();
}

/* A user at its limit has a smaller one, and is told so of what that cannot carry. */
static void a_limit_makes_a_small_ring(void **unused)
{
	static const uint32_t buffer = 1 << 20;

	(void)unused;
	defaults(FABRIC_KEYS_SLAB);
	rig_options.recv_stage_bytes = buffer;
	rig_init(&rig);
	client(&b, 1001, buffer);
	client(&a, 1000, buffer);
	rig_connect(&rig, &a, &b);
	rig.policy.user.value[XD_LIMIT_pinned] = 2 * buffer + (300 << 10);
	xd_core_set_policy(rig.core, &rig.policy);
	rig_submit(&b, XP_OP_RECV, 1, 0, buffer, NULL);
	does(&a, XP_OP_SEND, 0, 256 << 10, NULL);
	rig_completion(&b, 1, 0);
	assert_memory_equal(b.bytes, a.bytes, 256 << 10);
	/* It grows as far as the limit goes, and beyond that the message waits, not for ever. */
	rig_submit(&b, XP_OP_RECV, 2, 0, buffer, NULL);
	rig_submit(&a, XP_OP_SEND, 7, 0, 300 << 10, NULL);
	for (int i = 0; i < 3; i++) {
		rig_run(&rig);
		fake_engine_advance(&rig.engine, 2000000);
	}
	rig_run(&rig);
	rig_completion(&a, 7, 0);
	rig_completion(&b, 2, 0);
	assert_memory_equal(b.bytes, a.bytes, 300 << 10);
	rig_submit(&b, XP_OP_RECV, 3, 0, buffer, NULL);
	rig_submit(&a, XP_OP_SEND, 4, 0, (300 << 10) + 1, NULL);
	rig_run(&rig);
	for (int i = 0; i < 4; i++) {
		fake_engine_advance(&rig.engine,
				    (rig.policy.progress_ms / 2) * UINT64_C(1000000));
		rig_run(&rig);
	}
	rig_completion(&a, 4, -EAGAIN);
	does(&a, XP_OP_SEND, 0, 1000, NULL);
	rig_completion(&b, 3, 0);
	close_all();
}

/* A READ or WRITE of any length goes through in pieces, a turn's copying at a time. */
static void large_ones_go_in_pieces(void **unused)
{
	static const uint32_t length = 3 << 20;
	struct xp_completion read, write;

	(void)unused;
	defaults(FABRIC_KEYS_SLAB);
	pair_of(2 * length);
	read = rig_grant(&rig, &a, 0, length, false, 0);
	does(&b, XP_OP_READ, 0, length, &read);
	assert_memory_equal(b.bytes, a.bytes, length);
	write = rig_grant(&rig, &a, length, length, true, 0);
	does(&b, XP_OP_WRITE, length, length, &write);
	does(&a, XP_OP_REVOKE, 0, 0, &write);
	assert_memory_equal(b.bytes + length, a.bytes + length, length);
	/* Two rings of RECVs; in and out of b; two grants. */
	assert_int_equal(counter(XD_COUNTER_slab_bytes), 2 * RECVS + (2 << 20) + 2 * length);
	close_all();
}

/* More pieces than the device has SGEs for are gathered, and scattered. */
static void pieces_are_gathered(void **unused)
{
	struct xp_segment out[8], in[8];
	struct xp_request q = { .opcode = XP_OP_SEND, .wr_id = 2, .cookie = 2, .local_count = 8 };

	(void)unused;
	defaults(FABRIC_KEYS_WINDOW);
	rig_options.recv_stage_bytes = RECVS;
	pair_of(BUFFER);
	for (uint32_t i = 0; i < 8; i++) {
		out[i] = (struct xp_segment){ .address = 1000 * i, .length = 10 + i,
					      .key = a.buffer };
		in[i] = (struct xp_segment){ .address = 2000 * i, .length = 17 - i,
					     .key = b.buffer };
	}
	q.endpoint = b.endpoint;
	q.opcode = XP_OP_RECV;
	xd_session_submit(b.s, &q, in);
	q.endpoint = a.endpoint;
	q.opcode = XP_OP_SEND;
	xd_session_submit(a.s, &q, out);
	rig_run(&rig);
	assert_int_equal(rig_completion(&a, 2, 0).byte_len, 108);
	assert_int_equal(rig_completion(&b, 2, 0).byte_len, 108);
	assert_int_equal(counter(XD_COUNTER_plans_stage), 2);
	for (uint32_t i = 0, k = 0, at_in = 0, at_out = 0, n = 0; n < 108; n++) {
		assert_int_equal(b.bytes[2000 * k + at_in], a.bytes[1000 * i + at_out]);
		if (++at_out == 10 + i) {
			i++;
			at_out = 0;
		}
		if (++at_in == 17 - k) {
			k++;
			at_in = 0;
		}
	}
	close_all();
}

/* Where nothing was reserved for it a RECV of too many pieces is refused. */
static void pieces_without_a_slab(void **unused)
{
	struct xp_segment in[8];
	struct xp_request q = { .opcode = XP_OP_RECV, .wr_id = 1, .cookie = 1, .local_count = 8 };

	(void)unused;
	pair(FABRIC_KEYS_WINDOW);
	for (uint32_t i = 0; i < 8; i++)
		in[i] = (struct xp_segment){ .address = 2000 * i, .length = 5, .key = a.buffer };
	q.endpoint = a.endpoint;
	xd_session_submit(a.s, &q, in);
	rig_completion(&a, 1, -EMSGSIZE);
	close_all();
}

static bool all_zero(const uint8_t *bytes, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (bytes[i])
			return false;
	return true;
}

/* What the device has done before the end of its QP is put in place, though copying takes turns. */
static void an_end_waits_for_copies(void **unused)
{
	static const uint32_t length = 900 << 10;
	struct xp_completion token;
	uint32_t bound = 100000;

	(void)unused;
	defaults(FABRIC_KEYS_SLAB);
	pair_of(length);
	token = rig_grant(&rig, &a, 0, length, false, 0);
	memset(b.bytes, 0, length);
	rig_submit(&b, XP_OP_READ, 1, 0, length, &token);
	/* Until all has come, and some of it been copied. */
	while (all_zero(b.bytes + length / 2, 64)) {
		xd_core_progress(rig.core, 1);
		fake_engine_run_jobs(&rig.engine);
		assert_true(--bound);
	}
	assert_true(all_zero(b.bytes + length - 64, 64));
	rig_take(&b, XD_OUT_NONE);
	xd_session_disconnect(b.s, ++rig.serial, b.endpoint);
	rig_run(&rig);
	assert_int_equal(rig_take(&b, XD_OUT_REPLY).status, 0);
	rig_completion(&b, 1, 0);
	assert_memory_equal(b.bytes, a.bytes, length);
	close_all();
}

static void an_end_frees_rings(void **unused)
{
	struct xp_completion token;

	(void)unused;
	pair(FABRIC_KEYS_SLAB);
	token = rig_grant(&rig, &b, 0, 100, true, 0);
	does(&a, XP_OP_WRITE, 0, 100, &token);
	for (uint64_t i = 1; i <= 3; i++) { /* nobody is ready for them */
		rig_submit(&a, XP_OP_SEND, i, 0, 1000, NULL);
		rig_submit(&a, XP_OP_RECV, 10 + i, 1000 * i, 1000, NULL);
	}
	xd_core_progress(rig.core, 1 << 20);
	assert_true(counter(XD_COUNTER_slab_bytes) > 0);
	xd_session_endpoint_free(a.s, ++rig.serial, a.endpoint);
	rig_run(&rig);
	for (int i = 0; i < 6; i++)
		assert_int_equal(rig_take(&a, XD_OUT_COMPLETION).completion.status, -XP_E_FLUSHED);
	assert_int_equal(rig_take(&a, XD_OUT_REPLY).status, 0);
	rig_take(&b, XD_OUT_DISCONNECTED);
	/* Of both ends: the peer's has ended too. */
	assert_int_equal(counter(XD_COUNTER_slab_bytes), 0);
	assert_int_equal(counter(XD_COUNTER_pinned_bytes), 2 * BUFFER);
	close_all();
}

/* A word on a length is not trusted: of immediate data with a WRITE nothing is in the RECV. */
static void immediate_data_brings_no_bytes(void **unused)
{
	struct xp_segment segments[2] = { { 0 } };
	struct xp_completion token, got;
	struct xp_request q = { .opcode = XP_OP_WRITE, .flags = XP_F_IMMEDIATE, .key = 4711,
				.wr_id = 1, .cookie = 1, .local_count = 1, .remote_count = 1 };
	uint8_t before[100];

	(void)unused;
	pair(FABRIC_KEYS_SLAB);
	token = rig_grant(&rig, &a, 0, 3000, true, 0);
	memcpy(before, a.bytes + 5000, 100);
	rig_submit(&a, XP_OP_RECV, 7, 5000, 100, NULL);
	q.endpoint = b.endpoint;
	segments[0] = (struct xp_segment){ .length = 3000, .key = b.buffer };
	segments[1] = (struct xp_segment){ .address = token.address, .length = 3000,
					   .key = token.rkey };
	xd_session_submit(b.s, &q, segments);
	rig_run(&rig);
	rig_completion(&b, 1, 0);
	got = rig_completion(&a, 7, 0);
	assert_int_equal(got.immediate, 4711);
	assert_memory_equal(a.bytes + 5000, before, 100);
	assert_memory_equal(a.bytes, b.bytes, 3000);
	close_all();
}

static void sizes_are_bounded(void **unused)
{
	struct xd_out o;

	(void)unused;
	pair(FABRIC_KEYS_SLAB);
	rig_options.recv_stage_bytes = UINT64_MAX;
	xd_session_endpoint_connect_to(a.s, ++rig.serial, "127.0.0.1", 1, &rig_options);
	o = rig_take(&a, XD_OUT_REPLY);
	assert_int_equal(o.status, -EINVAL);
	assert_non_null(strstr(o.text, "recv_stage_bytes"));
	close_all();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(they_live_and_die),
		cmocka_unit_test(they_keep_the_order),
		cmocka_unit_test(they_show),
		cmocka_unit_test(what_is_written_comes_first),
		cmocka_unit_test(fences_wait),
		cmocka_unit_test(deadlines_come),
		cmocka_unit_test(endpoints_end),
		cmocka_unit_test(addresses_are_the_devices),
		cmocka_unit_test(nothing_takes_nothing),
		cmocka_unit_test(exact_grants_are_charged),
		cmocka_unit_test(copies_are_charged),
		cmocka_unit_test(registrations_are_per_domain),
		cmocka_unit_test(a_domain_goes),
		cmocka_unit_test(exhaustion_demotes),
		cmocka_unit_test(the_least_used_makes_room),
		cmocka_unit_test(recvs_have_what_was_reserved),
		cmocka_unit_test(sends_wait_for_room),
		cmocka_unit_test(a_limit_makes_a_small_ring),
		cmocka_unit_test(large_ones_go_in_pieces),
		cmocka_unit_test(pieces_are_gathered),
		cmocka_unit_test(pieces_without_a_slab),
		cmocka_unit_test(an_end_waits_for_copies),
		cmocka_unit_test(an_end_frees_rings),
		cmocka_unit_test(immediate_data_brings_no_bytes),
		cmocka_unit_test(sizes_are_bounded),
	};

	rig_defaults();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
