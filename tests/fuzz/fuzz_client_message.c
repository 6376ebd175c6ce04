/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What two clients send, on the real decoder, dispatcher, core and iwarp fabric, with a clock
 * that the input moves. Whatever it is: no sanitizer stops it, each answer is a good packet, and
 * when both clients are gone everything is.
 *
 * The input is a sequence of steps: a byte of flags, a byte that says which descriptors come
 * along, two bytes of length (little endian), and so many bytes of a packet.
 */
#define _GNU_SOURCE 1 /* memfd_create(), F_ADD_SEALS */
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/assert.h"
#include "daemon/fabric/iwarp/iwarp.h"
#include "daemon/io/codec.h"
#include "daemon/io/dispatch.h"
#include "tests/unit/fake_engine.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define STEP_HEAD 4u
#define SECOND_CLIENT 0x01u /* whose packet */
#define CLOCK 0x02u         /* 100 ms pass first */
#define LEAVE 0x04u         /* this client leaves first, and another comes */
#define CALMLY 0x08u        /* everything that was begun comes to rest first */

#define STEPS_MAX 64
#define ROUNDS_MAX 4096
#define MEMORY_BYTES 65536
#define MS UINT64_C(1000000)

struct client {
	struct xd_session *session; /* NULL: none */
	unsigned gone;
};

struct world {
	struct xd_engine engine;
	struct xd_policy policy;
	struct xd_core *core;
	struct client clients[2];
	unsigned made, gone;
	/* Of the newest grant. */
	uint64_t address;
	uint32_t rkey;
};

static struct xd_arena *arena;
static struct xd_engine_ops ops;
static uint8_t buf[XP_PACKET_BYTES_MAX];

static void close_fd(int fd)
{
	close(fd);
}

static void on_gone(struct xd_engine *e, void *conn)
{
	struct world *w = e->user;

	(void)conn;
	w->gone++;
}

static void world_start(struct world *w)
{
	const struct iwarp_options options = { .ep_limit = 64, .no_wire = true };
	struct fabric_ref fabric = { .ops = &iwarp_fabric_ops };
	struct xd_engine_ref ref = { .engine = &w->engine, .ops = &ops };

	memset(w, 0, sizeof(*w));
	fake_engine_init(&w->engine, 1);
	w->engine.user = w;
	w->engine.on_session_gone = on_gone;
	xd_policy_init(&w->policy);
	xc_assert(xd_core_new(&ref, &w->policy, &w->core) == 0);
	xc_assert(iwarp_fabric_open(&options, &ref, xd_core_fabric_events(), &fabric.fabric) == 0);
	xc_assert(xd_core_add_fabric(w->core, &fabric) == 0);
}

static void client_new(struct world *w, struct client *c, bool admin)
{
	const uint32_t gid = 1000;
	const struct xd_peer peer = {
		.uid = 1000, .pid = 1, .n_gids = 1, .gids = &gid, .admin = admin,
	};
	char why[XD_TEXT_MAX];

	if (xd_session_new(w->core, &peer, c, &c->session, why) < 0)
		c->session = NULL;
	else
		w->made++;
}

static void client_leave(struct client *c)
{
	struct xd_session *s = c->session;

	c->session = NULL;
	if (s)
		xd_session_close(s);
}

/* What the daemon would send must be what a client can read. */
static void check_packet(const uint8_t *packet, size_t size)
{
	Xp__DaemonMessage *m;

	xc_assert(size > 0 && size <= XP_PACKET_BYTES_MAX);
	xd_arena_reset(arena);
	m = xp__daemon_message__unpack(&arena->allocator, size, packet);
	xc_assert(m || arena->exhausted);
	xc_assert(!m || m->body_case != XP__DAEMON_MESSAGE__BODY__NOT_SET);
}

static bool take_output(struct world *w, struct client *c)
{
	static struct xd_out out;
	struct xd_batch batch;
	uint8_t *packet;
	bool any = false;
	size_t size;

	while (c->session && xd_session_pull(c->session, &out)) {
		any = true;
		if (out.kind == XD_OUT_COMPLETION) {
			if (out.completion.opcode == XP_OP_GRANT && out.completion.status == 0) {
				w->address = out.completion.address;
				w->rkey = out.completion.rkey;
			}
			xd_batch_init(&batch, buf);
			xd_batch_add(&batch, &out);
			size = xd_batch_finish(&batch, &packet);
			check_packet(packet, size);
			continue;
		}
		check_packet(buf, xd_encode(&out, buf));
		if (out.kind == XD_OUT_GOODBYE)
			client_leave(c);
	}
	return any;
}

/* One turn of the loop. False: nothing happened, and nothing wants to. */
static bool turn(struct world *w)
{
	bool again = fake_engine_run_jobs(&w->engine) > 0;

	w->engine.kicked = false;
	again = xd_core_progress(w->core, 1u << 20) || again;
	again = take_output(w, &w->clients[0]) || again;
	again = take_output(w, &w->clients[1]) || again;
	return again || w->engine.kicked;
}

static void settle(struct world *w)
{
	int rounds = 0;

	while (turn(w))
		xc_assert(rounds++ < ROUNDS_MAX);
}

/* A buffer as a good client makes it. */
static int good_memory(void)
{
	int fd = memfd_create("fuzz", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	xc_assert(fd >= 0 && fallocate(fd, 0, 0, MEMORY_BYTES) == 0);
	xc_assert(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) == 0);
	return fd;
}

/*
 * A key cannot be guessed, so the input says "the newest grant's": eight or four bytes of 0xee
 * where an address or a key stands, which client.proto has at fixed width.
 */
static void put_token(const struct world *w, uint8_t *packet, size_t size)
{
	static const uint8_t wanted[8] = { 0xee, 0xee, 0xee, 0xee, 0xee, 0xee, 0xee, 0xee };

	for (size_t i = 0; i + 4 <= size; i++) {
		if (i + 8 <= size && memcmp(packet + i, wanted, 8) == 0)
			memcpy(packet + i, &w->address, 8);
		else if (memcmp(packet + i, wanted, 4) == 0)
			memcpy(packet + i, &w->rkey, 4);
	}
}

static void descriptors(uint8_t kind, struct xp_fds *ret)
{
	ret->count = 0;
	if (kind & 1)
		ret->fd[ret->count++] = good_memory();
	for (int i = 0; i < ((kind >> 1) & 3); i++)
		ret->fd[ret->count++] = open("/dev/null", O_RDONLY | O_CLOEXEC);
}

static void step(struct world *w, uint8_t flags, uint8_t kind, const uint8_t *packet, size_t size)
{
	struct client *c = &w->clients[flags & SECOND_CLIENT];
	static uint8_t copy[XP_PACKET_BYTES_MAX];
	struct xp_fds fds;
	uint8_t *reply;
	size_t n;

	if (flags & CALMLY)
		settle(w);
	if (flags & CLOCK)
		fake_engine_advance(&w->engine, 100 * MS);
	if (flags & LEAVE)
		client_leave(c);
	if (!c->session)
		client_new(w, c, (flags & 0x80u) != 0);
	if (!c->session || xd_session_failed(c->session) || xd_session_busy(c->session))
		return;
	descriptors(kind, &fds);
	memcpy(copy, packet, size);
	put_token(w, copy, size);
	n = xd_dispatch(c->session, arena, copy, size, &fds, buf, &reply, NULL);
	if (n)
		check_packet(reply, n);
	turn(w);
}

static void world_end(struct world *w)
{
	static const enum xd_counter gauges[] = {
		XD_COUNTER_sessions, XD_COUNTER_buffers, XD_COUNTER_buffer_bytes,
		XD_COUNTER_pinned_bytes, XD_COUNTER_endpoints, XD_COUNTER_listeners,
		XD_COUNTER_grants, XD_COUNTER_transfers, XD_COUNTER_slow_closes,
	};

	settle(w);
	client_leave(&w->clients[0]);
	client_leave(&w->clients[1]);
	for (int i = 0; i < 1000 && w->gone < w->made; i++) {
		settle(w);
		fake_engine_advance(&w->engine, 100 * MS);
	}
	settle(w);
	xc_assert(w->gone == w->made);
	for (size_t i = 0; i < XC_ARRAY_SIZE(gauges); i++)
		xc_assert(xd_core_counter(w->core, gauges[i]) == 0);
	xc_assert(xd_core_idle(w->core));
	xd_core_free(w->core);
	fake_engine_done(&w->engine);
	xd_policy_done(&w->policy);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct world w;

	if (!arena) {
		xc_assert(xd_arena_new(&arena) == 0);
		ops = fake_engine_ops;
		ops.close_fd = close_fd;
	}
	world_start(&w);
	for (int steps = 0; size >= STEP_HEAD && steps < STEPS_MAX; steps++) {
		size_t bytes = (size_t)data[2] | (size_t)data[3] << 8;
		uint8_t flags = data[0], kind = data[1];

		data += STEP_HEAD;
		size -= STEP_HEAD;
		if (bytes > size)
			bytes = size;
		step(&w, flags, kind, data, bytes);
		data += bytes;
		size -= bytes;
	}
	world_end(&w);
	return 0;
}
