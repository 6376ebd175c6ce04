/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * GRANTs whose tokens go into a message: where each field lands, what is refused, and who waits for
 * whom.
 */
#include "tests/unit/core_rig.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "daemon/core/endpoint.h"
#include "daemon/core/link.h"
#include "daemon/core/session.h"

#define BUFFER 65536
#define BIG XP_PATCH_BIG_ENDIAN
#define MESSAGE 64u
/* Where in both buffers messages lie, and what is granted. */
#define AT 1000u
#define GRANTED 8192u

static struct rig rig;
static struct rig_client a, b;

static void open_pair(enum fabric_keys keys, uint64_t buffer)
{
	rig_caps.keys = keys;
	rig_caps.pins = keys != FABRIC_KEYS_WINDOW;
	rig_caps.remote_invalidate = keys == FABRIC_KEYS_WINDOW;
	rig_init(&rig);
	rig_client_init(&rig, &a, 1000, false);
	rig_client_init(&rig, &b, 1001, false);
	rig_buffer_of(&rig, &a, buffer);
	rig_buffer_of(&rig, &b, BUFFER);
	rig_connect(&rig, &a, &b);
}

static void pair(enum fabric_keys keys)
{
	rig_defaults();
	open_pair(keys, BUFFER);
}

static void close_all(void)
{
	rig_close(&rig, &a);
	rig_close(&rig, &b);
	assert_int_equal(xd_core_counter(rig.core, XD_COUNTER_grants), 0);
	rig_done(&rig);
}

static void turns(void)
{
	for (int i = 0; i < 100; i++) {
		xd_core_progress(rig.core, 1 << 20);
		fake_engine_run_jobs(&rig.engine);
	}
}

static const struct xd_endpoint *endpoint(void)
{
	return xc_slots_get(&a.s->endpoints, a.endpoint);
}

/* a grants, for its next SEND. */
static void grant_of(uint64_t wr_id, uint32_t bytes, const struct xp_segment *patches, uint32_t n)
{
	struct xp_segment s[8] = { { .address = GRANTED, .length = bytes, .key = a.buffer } };
	struct xp_request q = { .opcode = XP_OP_GRANT, .flags = XP_F_GRANT_READ | XP_F_LINK,
				.wr_id = wr_id, .cookie = wr_id, .endpoint = a.endpoint,
				.local_count = 1, .remote_count = n };

	memcpy(&s[1], patches, n * sizeof(*patches));
	xd_session_submit(a.s, &q, s);
}

static void grant(uint64_t wr_id, uint64_t offset, uint32_t width, uint32_t key)
{
	struct xp_segment patch = { .address = offset, .length = width, .key = key };

	grant_of(wr_id, 100, &patch, 1);
}

static void send(uint64_t wr_id, uint32_t bytes)
{
	rig_submit(&a, XP_OP_SEND, wr_id, AT, bytes, NULL);
}

static void recv(uint64_t wr_id)
{
	rig_submit(&b, XP_OP_RECV, wr_id, AT, 200, NULL);
}

static void cancel(uint64_t wr_id, uint64_t target)
{
	struct xp_request q = { .opcode = XP_OP_CANCEL, .wr_id = wr_id, .cookie = wr_id,
				.endpoint = a.endpoint, .argument = target };

	xd_session_submit(a.s, &q, NULL);
}

static uint64_t field_of(const struct xp_completion *c, uint32_t field)
{
	return field == XP_FIELD_ADDRESS ? c->address :
	       field == XP_FIELD_LENGTH	 ? c->byte_len : c->rkey;
}

static uint64_t number_at(const uint8_t *at, uint32_t width, bool big)
{
	uint64_t value = 0;

	for (uint32_t i = 0; i < width; i++)
		value |= (uint64_t)at[big ? width - 1 - i : i] << (8 * i);
	return value;
}

/* The message is as it was, but for this place. */
static void rest_is(const uint8_t *was, uint64_t offset, uint32_t width)
{
	assert_memory_equal(b.bytes + AT, was, offset);
	assert_memory_equal(b.bytes + AT + offset + width, was + offset + width,
			    MESSAGE - offset - width);
}

/* ---- where it lands */

static void one_field(enum fabric_keys keys, uint32_t field, uint32_t width, bool big,
		      uint64_t offset)
{
	struct xp_completion token;
	uint8_t was[MESSAGE];

	pair(keys);
	memset(a.bytes + AT, 0xc3, MESSAGE);
	memcpy(was, a.bytes + AT, MESSAGE);
	recv(1);
	grant(2, offset, width, field | (big ? BIG : 0));
	send(3, MESSAGE);
	rig_run(&rig);
	token = rig_completion(&a, 2, 0);
	rig_completion(&a, 3, 0);
	assert_int_equal(rig_completion(&b, 1, 0).byte_len, MESSAGE);
	assert_true(number_at(b.bytes + AT + offset, width, big) == field_of(&token, field));
	rest_is(was, offset, width);
	close_all();
}

static void each_field_lands(void **unused)
{
	static const uint32_t widths[] = { 3, 4, 8 };

	(void)unused;
	for (int keys = FABRIC_KEYS_WINDOW; keys <= FABRIC_KEYS_SLAB; keys++)
		for (uint32_t i = 0; i < 12; i++) {
			enum fabric_keys k = (enum fabric_keys)keys;
			uint32_t width = widths[i % 3];
			bool big = i & 1;

			/* At its begin, at its end, and between. */
			uint64_t at = i < 4 ? 0 : i < 8 ? 13 : MESSAGE - width;

			one_field(k, XP_FIELD_LENGTH, width, big, at);
			if (width > 3)
				one_field(k, XP_FIELD_RKEY, width, big, at);
			if (width > 4)
				one_field(k, XP_FIELD_ADDRESS, width, big, at);
		}
}

/* Inline data too is what it is after the token came. */
static void it_lands_inline(void **unused)
{
	struct xp_completion token;

	(void)unused;
	rig_defaults();
	rig_caps.max_inline = 128;
	open_pair(FABRIC_KEYS_WINDOW, BUFFER);
	recv(1);
	grant(2, 8, 4, XP_FIELD_RKEY);
	send(3, MESSAGE);
	rig_run(&rig);
	token = rig_completion(&a, 2, 0);
	rig_completion(&a, 3, 0);
	rig_completion(&b, 1, 0);
	assert_int_equal(xd_core_counter(rig.core, XD_COUNTER_plans_inline), 1);
	assert_int_equal(number_at(b.bytes + AT + 8, 4, false), token.rkey);
	close_all();
}

static void three_fields_of_two(void **unused)
{
	static const struct xp_segment one[] = {
		{ .address = 0, .length = 8, .key = XP_FIELD_ADDRESS | BIG },
		{ .address = 8, .length = 3, .key = XP_FIELD_LENGTH | BIG },
		{ .address = 11, .length = 4, .key = XP_FIELD_RKEY | BIG },
	}, two[] = {
		{ .address = 56, .length = 8, .key = XP_FIELD_ADDRESS },
		{ .address = 52, .length = 4, .key = XP_FIELD_RKEY },
		{ .address = 44, .length = 8, .key = XP_FIELD_LENGTH },
	};
	struct xp_completion x, y;

	(void)unused;
	pair(FABRIC_KEYS_WINDOW);
	recv(1);
	grant_of(2, 0x123, one, 3);
	grant_of(3, 0x456, two, 3);
	send(4, MESSAGE);
	rig_run(&rig);
	x = rig_completion(&a, 2, 0);
	y = rig_completion(&a, 3, 0);
	rig_completion(&a, 4, 0);
	rig_completion(&b, 1, 0);
	assert_true(number_at(b.bytes + AT, 8, true) == x.address);
	assert_int_equal(number_at(b.bytes + AT + 8, 3, true), 0x123);
	assert_int_equal(number_at(b.bytes + AT + 11, 4, true), x.rkey);
	assert_memory_equal(b.bytes + AT + 15, a.bytes + AT + 15, 29);
	assert_int_equal(number_at(b.bytes + AT + 44, 8, false), 0x456);
	assert_int_equal(number_at(b.bytes + AT + 52, 4, false), y.rkey);
	assert_true(number_at(b.bytes + AT + 56, 8, false) == y.address);
	close_all();
}

/* A field may lie in several segments; those of no length are none. */
static void over_segments(void **unused)
{
	struct xp_request q = { .opcode = XP_OP_SEND, .wr_id = 3, .cookie = 3, .local_count = 6 };

	(void)unused;
	for (int keys = FABRIC_KEYS_WINDOW; keys <= FABRIC_KEYS_SLAB; keys++) {
		struct xp_segment s[6];
		struct xp_completion token;

		pair((enum fabric_keys)keys);
		for (uint32_t i = 0; i < 6; i++)
			s[i] = (struct xp_segment){ .address = 100 * i, .length = i % 2 ? 3 : 0,
						    .key = a.buffer };
		s[4].length = 5;
		q.endpoint = a.endpoint;
		recv(1);
		grant(2, 1, 8, XP_FIELD_ADDRESS | BIG); /* over the pieces of 3, 3 and 5 */
		xd_session_submit(a.s, &q, s);
		rig_run(&rig);
		token = rig_completion(&a, 2, 0);
		rig_completion(&a, 3, 0);
		assert_int_equal(rig_completion(&b, 1, 0).byte_len, 14);
		assert_true(number_at(b.bytes + AT + 1, 8, true) == token.address);
		assert_memory_equal(b.bytes + AT, a.bytes + 100, 3);
		assert_memory_equal(b.bytes + AT + 3, a.bytes + 300, 3);
		assert_memory_equal(b.bytes + AT + 6, a.bytes + 400, 5);
		assert_memory_equal(b.bytes + AT + 11, a.bytes + 500, 3);
		close_all();
	}
}

/* ---- what is refused */

/* Then its SEND ends, and the one after it goes. */
static void send_is_lost(void)
{
	send(100, MESSAGE);
	rig_completion(&a, 100, -XP_E_GRANT_ENDED);
	recv(101);
	send(102, MESSAGE);
	rig_run(&rig);
	rig_completion(&a, 102, 0);
	rig_completion(&b, 101, 0);
	assert_memory_equal(b.bytes + AT, a.bytes + AT, MESSAGE);
}

static void wrong_patches(void **unused)
{
	static const struct xp_segment wrong[] = {
		{ .length = 3, .key = XP_FIELD_ADDRESS },  { .length = 4, .key = XP_FIELD_ADDRESS },
		{ .length = 3, .key = XP_FIELD_RKEY },	   { .length = 0, .key = XP_FIELD_LENGTH },
		{ .length = 2, .key = XP_FIELD_LENGTH },   { .length = 5, .key = XP_FIELD_LENGTH },
		{ .length = 9, .key = XP_FIELD_LENGTH },   { .length = 8, .key = XP_FIELD_COUNT },
		{ .length = 8, .key = 0x200 },		   { .length = 8, .key = 0x203 | BIG },
		{ .length = 256 + 4, .key = XP_FIELD_RKEY },
	};
	struct xp_segment good[5];

	(void)unused;
	pair(FABRIC_KEYS_WINDOW);
	for (size_t i = 0; i < XC_ARRAY_SIZE(wrong); i++) {
		grant_of(1, 100, &wrong[i], 1);
		rig_completion(&a, 1, -EINVAL);
		send_is_lost();
	}
	for (uint32_t i = 0; i < 5; i++)
		good[i] = (struct xp_segment){ .address = 8 * i, .length = 4,
					       .key = XP_FIELD_RKEY };
	grant_of(1, 100, good, 0);
	rig_completion(&a, 1, -EINVAL);
	send_is_lost();
	grant_of(1, 100, good, XP_PATCHES_MAX + 1);
	rig_completion(&a, 1, -EINVAL);
	send_is_lost();
	/* One wrong one among good ones. */
	good[2].length = 3;
	grant_of(1, 100, good, 3);
	rig_completion(&a, 1, -EINVAL);
	assert_int_equal(xd_core_counter(rig.core, XD_COUNTER_grants), 0);
	send_is_lost();
	close_all();
}

/* What it would cut off must be nothing. */
static void a_length_fits(void **unused)
{
	static const struct xp_segment patch = { .length = 3, .key = XP_FIELD_LENGTH };
	static const uint32_t most = (1u << 24) - 1;

	(void)unused;
	rig_defaults();
	open_pair(FABRIC_KEYS_WINDOW, GRANTED + (1u << 24));
	grant_of(1, most + 1, &patch, 1);
	rig_completion(&a, 1, -EINVAL);
	send_is_lost();
	grant_of(2, most, &patch, 1);
	recv(3);
	send(4, MESSAGE);
	rig_run(&rig);
	rig_completion(&a, 2, 0);
	rig_completion(&a, 4, 0);
	rig_completion(&b, 3, 0);
	assert_int_equal(number_at(b.bytes + AT, 3, false), most);
	close_all();
}

/* A SEND that is too short is refused, and is not the one that they wait for. */
static void outside_of_it(void **unused)
{
	static const uint64_t offsets[] = { MESSAGE - 3, MESSAGE, UINT64_MAX - 2, UINT64_MAX };
	struct xp_completion token;

	(void)unused;
	pair(FABRIC_KEYS_WINDOW);
	grant(1, MESSAGE - 3, 4, XP_FIELD_RKEY);
	rig_run(&rig);
	token = rig_completion(&a, 1, 0);
	send(2, MESSAGE);
	rig_completion(&a, 2, -EINVAL);
	send(3, 0);
	rig_completion(&a, 3, -EINVAL);
	recv(4);
	send(5, MESSAGE + 1);
	rig_run(&rig);
	rig_completion(&a, 5, 0);
	rig_completion(&b, 4, 0);
	assert_int_equal(number_at(b.bytes + AT + MESSAGE - 3, 4, false), token.rkey);
	for (size_t i = 0; i < XC_ARRAY_SIZE(offsets); i++) {
		grant(6, offsets[i], 4, XP_FIELD_RKEY);
		rig_run(&rig);
		rig_completion(&a, 6, 0);
		send(7, MESSAGE);
		rig_completion(&a, 7, -EINVAL);
	}
	/* The others of them are as good as ever: they wait on. */
	assert_int_equal(endpoint()->n_links, XC_ARRAY_SIZE(offsets));
	close_all();
}

/* A GRANT that is refused for anything at all. */
static void a_grant_is_refused(void **unused)
{
	struct xp_segment s[2] = { { .length = 10, .key = 0xfff },
				   { .length = 4, .key = XP_FIELD_RKEY } };
	struct xp_request q = { .opcode = XP_OP_GRANT, .flags = XP_F_GRANT_READ | XP_F_LINK,
				.wr_id = 1, .cookie = 1, .local_count = 1, .remote_count = 1 };

	(void)unused;
	pair(FABRIC_KEYS_WINDOW);
	q.endpoint = a.endpoint;
	xd_session_submit(a.s, &q, s);
	rig_completion(&a, 1, -ENOENT);
	send_is_lost();
	/* Of several that were for it, one is enough; the others lead nowhere. */
	grant(2, 0, 4, XP_FIELD_RKEY);
	xd_session_submit(a.s, &q, s);
	grant(3, 8, 4, XP_FIELD_RKEY);
	rig_run(&rig);
	rig_completion(&a, 1, -ENOENT);
	rig_completion(&a, 2, 0);
	rig_completion(&a, 3, 0);
	assert_int_equal(endpoint()->n_links, 2);
	send_is_lost();
	assert_int_equal(endpoint()->n_links, 0);
	close_all();
}

/* It fails when its SEND waits for it. */
static void a_grant_fails(void **unused)
{
	(void)unused;
	for (uint32_t late = 0; late < 2; late++) {
		pair(FABRIC_KEYS_MR);
		recv(1);
		send(2, MESSAGE);
		rig_run(&rig);
		rig_completion(&a, 2, 0);
		rig_completion(&b, 1, 0);
		fake_fabric_refuse(rig.fabric, 2, late);
		recv(3);
		grant(4, 0, 4, XP_FIELD_RKEY);
		grant(5, 8, 4, XP_FIELD_RKEY);
		grant(6, 16, 4, XP_FIELD_RKEY);
		send(7, MESSAGE);
		send(8, 10);
		rig_run(&rig);
		rig_completion(&a, 4, 0);
		assert_true(rig_take(&a, XD_OUT_COMPLETION).completion.status < 0);
		rig_completion(&a, 6, 0);
		rig_completion(&a, 7, -XP_E_GRANT_ENDED);
		rig_completion(&a, 8, 0);
		assert_int_equal(rig_completion(&b, 3, 0).byte_len, 10);
		close_all();
	}
}

static void so_many(void **unused)
{
	struct xp_completion token = { 0 };

	(void)unused;
	pair(FABRIC_KEYS_WINDOW);
	for (int round = 0; round < 2; round++) {
		for (uint32_t i = 0; i < XD_LINKS_MAX; i++) {
			grant(1, 0, 4, XP_FIELD_RKEY);
			rig_run(&rig);
			token = rig_completion(&a, 1, 0);
		}
		assert_int_equal(endpoint()->n_links, XD_LINKS_MAX);
		if (round == 0) {
			grant(1, 0, 4, XP_FIELD_RKEY);
			rig_completion(&a, 1, -EAGAIN);
			assert_int_equal(xd_core_counter(rig.core, XD_COUNTER_grants),
					 XD_LINKS_MAX);
			send_is_lost();
		}
	}
	/* In their order: the last of them is seen. */
	recv(2);
	send(3, MESSAGE);
	rig_run(&rig);
	rig_completion(&a, 3, 0);
	rig_completion(&b, 2, 0);
	assert_int_equal(number_at(b.bytes + AT, 4, false), token.rkey);
	close_all();
}

/* ---- ends of the one and the other */

/* The queue of a is full: behind a SEND that nobody receives a GRANT waits, and its SEND. */
static void queue_up(void)
{
	rig_defaults();
	rig_options.send_depth = 1;
	open_pair(FABRIC_KEYS_WINDOW, BUFFER);
	send(1, 10);
	grant(2, 0, 4, XP_FIELD_RKEY);
	send(3, MESSAGE);
	turns();
	rig_take(&a, XD_OUT_NONE);
}

static void drain_queue(void)
{
	recv(10);
	recv(11);
	rig_run(&rig);
	rig_completion(&a, 1, 0);
	rig_completion(&b, 10, 0);
}

static void the_grant_is_cancelled(void **unused)
{
	(void)unused;
	queue_up();
	cancel(4, 2);
	rig_completion(&a, 2, -ECANCELED);
	assert_int_equal(rig_completion(&a, 4, 0).immediate, XP_CANCEL_NEVER_STARTED);
	send(5, 20);
	drain_queue();
	rig_completion(&a, 3, -XP_E_GRANT_ENDED);
	rig_completion(&a, 5, 0);
	assert_int_equal(rig_completion(&b, 11, 0).byte_len, 20);
	close_all();
}

static void the_send_is_cancelled(void **unused)
{
	uint8_t was[MESSAGE];

	(void)unused;
	queue_up();
	memcpy(was, a.bytes + AT, MESSAGE);
	cancel(4, 3);
	rig_completion(&a, 3, -ECANCELED);
	rig_completion(&a, 4, 0);
	send(5, 20); /* nothing is for this one */
	drain_queue();
	rig_completion(&a, 2, 0);
	rig_completion(&a, 5, 0);
	rig_completion(&b, 11, 0);
	assert_memory_equal(a.bytes + AT, was, MESSAGE);
	assert_memory_equal(b.bytes + AT, was, 20);
	close_all();
}

/* It has ended when its SEND comes, or not; and its end wakes that. */
static void one_waits_for_the_other(void **unused)
{
	struct xp_completion token;

	(void)unused;
	queue_up();
	drain_queue();
	token = rig_completion(&a, 2, 0);
	rig_completion(&a, 3, 0);
	rig_completion(&b, 11, 0);
	assert_int_equal(number_at(b.bytes + AT, 4, false), token.rkey);
	close_all();
}

static void the_endpoint_ends(void **unused)
{
	(void)unused;
	queue_up();
	xd_session_disconnect(a.s, ++rig.serial, a.endpoint);
	rig_run(&rig);
	assert_int_equal(rig_take(&a, XD_OUT_REPLY).status, 0);
	for (int i = 0; i < 3; i++)
		assert_int_equal(rig_take(&a, XD_OUT_COMPLETION).completion.status, -XP_E_FLUSHED);
	rig_take(&a, XD_OUT_DISCONNECTED);
	/* Another one has nothing of it. */
	rig_take(&b, XD_OUT_DISCONNECTED);
	rig_options.send_depth = 0;
	rig_connect(&rig, &a, &b);
	recv(20);
	send(21, MESSAGE);
	rig_run(&rig);
	rig_completion(&a, 21, 0);
	rig_completion(&b, 20, 0);
	close_all();
}

static void the_session_ends(void **unused)
{
	(void)unused;
	for (uint32_t which = 0; which < 3; which++) {
		queue_up();
		if (which)
			cancel(4, which + 1);
		close_all();
	}
}

/* One that no SEND ever comes for, its GRANT ended, or not. */
static void no_send_comes(void **unused)
{
	(void)unused;
	for (int keys = FABRIC_KEYS_WINDOW; keys <= FABRIC_KEYS_SLAB; keys++) {
		for (uint32_t run = 0; run < 2; run++) {
			pair((enum fabric_keys)keys);
			grant(1, 0, 4, XP_FIELD_RKEY);
			if (run) {
				rig_run(&rig);
				rig_completion(&a, 1, 0);
				assert_int_equal(endpoint()->n_links, 1);
			}
			close_all();
		}
	}
}

/* The grant itself may be over before the message goes: what it was is what it says. */
static void a_grant_ends_before(void **unused)
{
	struct xp_completion token;

	(void)unused;
	pair(FABRIC_KEYS_WINDOW);
	grant(1, 0, 4, XP_FIELD_RKEY);
	rig_run(&rig);
	token = rig_completion(&a, 1, 0);
	rig_submit(&a, XP_OP_REVOKE, 2, 0, 0, &token);
	recv(3);
	send(4, MESSAGE);
	rig_run(&rig);
	rig_completion(&a, 2, 0);
	rig_completion(&a, 4, 0);
	rig_completion(&b, 3, 0);
	assert_int_equal(number_at(b.bytes + AT, 4, false), token.rkey);
	assert_false(fake_fabric_key_live(rig.fabric, token.rkey));
	close_all();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_field_lands),
		cmocka_unit_test(it_lands_inline),
		cmocka_unit_test(three_fields_of_two),
		cmocka_unit_test(over_segments),
		cmocka_unit_test(wrong_patches),
		cmocka_unit_test(a_length_fits),
		cmocka_unit_test(outside_of_it),
		cmocka_unit_test(a_grant_is_refused),
		cmocka_unit_test(a_grant_fails),
		cmocka_unit_test(so_many),
		cmocka_unit_test(the_grant_is_cancelled),
		cmocka_unit_test(the_send_is_cancelled),
		cmocka_unit_test(one_waits_for_the_other),
		cmocka_unit_test(the_endpoint_ends),
		cmocka_unit_test(the_session_ends),
		cmocka_unit_test(no_send_comes),
		cmocka_unit_test(a_grant_ends_before),
	};

	rig_defaults();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
