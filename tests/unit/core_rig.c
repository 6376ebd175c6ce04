/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "tests/unit/core_rig.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/sim/sim.h"

#define BUFFER_BYTES 65536

struct sim_state sim = { .report_fd = -1 };

void sim_note(const char *format, ...)
{
	(void)format;
}

_Noreturn void sim_broken(const char *promise, const char *format, ...)
{
	va_list args;

	fprintf(stderr, "%s: ", promise);
	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fprintf(stderr, "\n");
	abort();
}

struct fabric_caps rig_caps;
struct fake_dice rig_dice;
bool rig_own_addresses;
struct xd_endpoint_options rig_options;

void rig_defaults(void)
{
	rig_own_addresses = false;
	rig_options = (struct xd_endpoint_options){ .require = "" };
	rig_caps = (struct fabric_caps){
		.name = "fake", .kind = FABRIC_IWARP_SOFT, .max_sge = 4, .max_sge_rd = 2,
		.max_recv_sge = 4, .max_send_wr = 16, .max_recv_wr = 16,
		.max_message_bytes = 1 << 20, .private_connect_bytes = 64,
		.private_accept_bytes = 64, .private_reject_bytes = 64, .keys = FABRIC_KEYS_WINDOW,
		.remote_invalidate = true, .immediate = true, .receiver_not_ready = true,
		.acknowledged = true,
	};
	rig_dice = (struct fake_dice){ .rnr_turns = 1000, .quantum = 1 << 20 };
}

static void session_gone(struct xd_engine *e, void *conn)
{
	struct rig_client *c = conn;

	(void)e;
	c->gone = true;
}

void rig_init(struct rig *r)
{
	struct fake_options o = { .seed = 1 };
	struct fabric_ref ref = { .ops = &fake_fabric_ops };

	*r = (struct rig){ 0 };
	fake_engine_init(&r->engine, 1);
	fake_memory_init(1, 0, 0);
	r->engine.on_session_gone = session_gone;
	r->ref = fake_engine_ref(&r->engine);
	xd_policy_init(&r->policy);
	assert_int_equal(xd_core_new(&r->ref, &r->policy, &r->core), 0);
	o.caps = rig_caps;
	o.dice = rig_dice;
	o.own_addresses = rig_own_addresses;
	fake_fabric_open(&o, &r->ref, xd_core_fabric_events(), &r->fabric);
	ref.fabric = r->fabric;
	assert_int_equal(xd_core_add_fabric(r->core, &ref), 0);
}

void rig_done(struct rig *r)
{
	rig_run(r);
	assert_true(xd_core_idle(r->core));
	assert_int_equal(fake_fabric_objects(r->fabric), 0);
	assert_int_equal(fake_memory_regions(), 0);
	xd_core_free(r->core);
	fake_engine_done(&r->engine);
	xd_policy_done(&r->policy);
	fake_memory_done();
	rig_defaults();
}

void rig_run(struct rig *r)
{
	for (int quiet = 0; quiet < 4; quiet++) {
		if (xd_core_progress(r->core, 1 << 20) || fake_engine_run_jobs(&r->engine) ||
		    r->engine.kicked)
			quiet = 0;
		r->engine.kicked = false;
	}
}

void rig_client_init(struct rig *r, struct rig_client *c, uint32_t uid, bool admin)
{
	struct xd_peer peer = { .uid = uid, .pid = 1, .admin = admin };
	struct xd_hello hello = { .major = 1, .name = "test" };
	char why[XD_TEXT_MAX];

	*c = (struct rig_client){ .memory = -1 };
	assert_int_equal(xd_session_new(r->core, &peer, c, &c->s, why), 0);
	xd_session_hello(c->s, ++r->serial, &hello);
	rig_take(c, XD_OUT_HELLO);
}

void rig_close(struct rig *r, struct rig_client *c)
{
	xd_session_close(c->s);
	c->s = NULL;
	rig_run(r);
	assert_true(c->gone);
}

void rig_buffer(struct rig *r, struct rig_client *c)
{
	rig_buffer_of(r, c, BUFFER_BYTES);
}

void rig_buffer_of(struct rig *r, struct rig_client *c, uint64_t bytes)
{
	struct xd_out o;

	c->memory = fake_memory_new(bytes);
	c->bytes = fake_memory(c->memory, NULL);
	xd_session_buffer_add(c->s, ++r->serial, c->memory, bytes);
	rig_run(r);
	o = rig_take(c, XD_OUT_REPLY);
	assert_int_equal(o.status, 0);
	c->buffer = o.number;
}

static uint32_t reply(struct rig_client *c)
{
	struct xd_out o = rig_take(c, XD_OUT_REPLY);

	assert_int_equal(o.status, 0);
	return o.number;
}

void rig_connect(struct rig *r, struct rig_client *a, struct rig_client *b)
{
	static uint64_t tag;
	struct xc_addr at;
	struct xd_out o;

	xd_session_listen(b->s, ++r->serial, "127.0.0.1", 0, 1);
	rig_run(r);
	at = rig_take(b, XD_OUT_REPLY).address;
	xd_session_endpoint_connect_to(a->s, ++r->serial, "127.0.0.1", at.port, &rig_options);
	rig_run(r);
	a->endpoint = reply(a);
	assert_int_equal(rig_take(a, XD_OUT_ENDPOINT_READY).status, 0);
	tag++;
	xd_session_connect(a->s, ++r->serial, a->endpoint, &tag, sizeof(tag));
	rig_run(r);
	reply(a);
	o = rig_take(b, XD_OUT_CONNECT_REQUEST);
	xd_session_endpoint_answer(b->s, ++r->serial, o.request, &rig_options);
	rig_run(r);
	b->endpoint = reply(b);
	assert_int_equal(rig_take(b, XD_OUT_ENDPOINT_READY).status, 0);
	tag++;
	xd_session_accept(b->s, ++r->serial, b->endpoint, &tag, sizeof(tag));
	rig_run(r);
	reply(b);
	assert_int_equal(rig_take(b, XD_OUT_CONNECTED).status, 0);
	assert_int_equal(rig_take(a, XD_OUT_CONNECTED).status, 0);
}

struct xd_out rig_take(struct rig_client *c, enum xd_out_kind kind)
{
	struct xd_out o = { .kind = XD_OUT_NONE };

	assert_int_equal(xd_session_peek(c->s), kind);
	if (kind != XD_OUT_NONE)
		assert_true(xd_session_pull(c->s, &o));
	return o;
}

struct xp_completion rig_completion(struct rig_client *c, uint64_t wr_id, int status)
{
	struct xd_out o = rig_take(c, XD_OUT_COMPLETION);

	assert_int_equal(o.completion.wr_id, wr_id);
	assert_int_equal(o.completion.status, status);
	assert_int_equal(status == 0, o.text[0] == '\0');
	return o.completion;
}

struct xp_completion rig_grant(struct rig *r, struct rig_client *c, uint64_t offset,
			       uint32_t length, bool write, uint64_t lifetime_ms)
{
	struct xp_segment seg = { .address = offset, .length = length, .key = c->buffer };
	struct xp_request q = {
		.opcode = XP_OP_GRANT, .wr_id = ++r->serial, .cookie = 1000000 + r->serial,
		.endpoint = c->endpoint, .local_count = 1, .argument = lifetime_ms,
		.flags = write ? XP_F_GRANT_WRITE : XP_F_GRANT_READ,
	};

	xd_session_submit(c->s, &q, &seg);
	rig_run(r);
	return rig_completion(c, q.wr_id, 0);
}

void rig_submit(struct rig_client *c, uint8_t opcode, uint64_t wr_id, uint64_t offset,
		uint32_t length, const struct xp_completion *token)
{
	struct xp_segment segments[2] = {
		{ .address = offset, .length = length, .key = c->buffer },
	};
	struct xp_request q = {
		.opcode = opcode, .wr_id = wr_id, .cookie = wr_id, .endpoint = c->endpoint,
		.local_count = opcode <= XP_OP_GRANT,
	};

	if (opcode == XP_OP_GRANT)
		q.flags = XP_F_GRANT_READ;
	if (opcode == XP_OP_REVOKE)
		q.key = token->grant;
	if (opcode <= XP_OP_WRITE) {
		q.remote_count = 1;
		segments[1] = (struct xp_segment){ .address = token->address, .length = length,
						   .key = token->rkey };
	}
	xd_session_submit(c->s, &q, segments);
}
