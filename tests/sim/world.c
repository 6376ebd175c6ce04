/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* How the world is made, goes on, and ends. */
#include "daemon/core/stage.h"
#include "tests/sim/world.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MS UINT64_C(1000000)
/* Nothing is copied in one piece that is longer, where no transfers are large. */
#define PIECE_MAX 8192
#define COPY_MAX (256u << 10)

uint32_t w_below(struct world *w, uint32_t n)
{
	return sim_below(&w->rng, n);
}

bool w_dice(struct world *w, uint32_t permille)
{
	return sim_dice(&w->rng, permille);
}

/* ---- making it */

static void on_deliver(struct xd_engine *e, void *conn)
{
	struct w_session *s = conn;

	(void)e;
	sim_check(!s->gone, "I7", "deliver() for a session that is gone");
	s->output = true;
}

static void on_session_gone(struct xd_engine *e, void *conn)
{
	struct w_session *s = conn;

	(void)e;
	sim_check(!s->gone, "I7", "session_gone() twice");
	sim_note("session %llu is gone", (unsigned long long)s->number);
	s->gone = true;
}

static void on_log(struct xd_engine *e, const struct xd_log *about, const char *text)
{
	(void)e;
	sim_note("log %d: %s", (int)about->priority, text);
}

static uint32_t pick(struct world *w, const uint32_t *from, uint32_t n)
{
	return from[w_below(w, n)];
}

static void make_caps(struct world *w, uint32_t i)
{
	static const uint32_t sges[] = {1, 2, 3, 6, 16, 32}, reads[] = {1, 1, 2, 6, 32},
			      keys[] = {FABRIC_KEYS_WINDOW, FABRIC_KEYS_WINDOW, FABRIC_KEYS_MR,
					FABRIC_KEYS_SLAB},
			      ranges[] = {2, 3, 8, 32, FABRIC_RANGES_MAX},
			      depths[] = {1, 2, 4, 16, 64, 256},
			      messages[] = {64, 1000, 4096, 1u << 20, 1u << 31};
	struct fabric_caps *c = &w->caps[i];
	uint32_t by_dice = pick(w, keys, 4);

	*c = (struct fabric_caps){
		.kind = i ? FABRIC_IWARP : FABRIC_IWARP_SOFT,
		.max_sge = pick(w, sges, 6),
		.max_sge_rd = pick(w, reads, 5),
		.max_recv_sge = pick(w, sges, 6),
		.max_send_wr = pick(w, depths, 6),
		.max_recv_wr = pick(w, depths, 6),
		.max_message_bytes = pick(w, messages, 5),
		.private_connect_bytes = (uint16_t)(56 + w_below(w, 100)),
		.private_accept_bytes = (uint16_t)(56 + w_below(w, 200)),
		.private_reject_bytes = (uint16_t)(8 + w_below(w, 140)),
		.keys = sim.keys >= 0 ? (enum fabric_keys)sim.keys : by_dice,
		.immediate = w_dice(w, 700),
	};
	c->max_inline = w_dice(w, 500) ? 1 + w_below(w, FABRIC_INLINE_MAX) : 0;
	c->max_ranges = c->keys != FABRIC_KEYS_SLAB && w_dice(w, 600) ? pick(w, ranges, 5) : 0;
	if (w_dice(w, 600))
		c->costs = w_costs(w);
	c->pins = c->keys != FABRIC_KEYS_WINDOW || w_dice(w, 300);
	c->read_sink_remote_write = w_dice(w, 200);
	c->signal_all = w_dice(w, 200);
	c->short_read_in_page = w_dice(w, c->keys == FABRIC_KEYS_SLAB ? 700 : 300);
	c->acknowledged = w_dice(w, 700);
	c->receiver_not_ready = c->acknowledged || w_dice(w, 500);
	c->remote_invalidate = c->keys == FABRIC_KEYS_WINDOW && w_dice(w, 800);
	snprintf(c->name, sizeof(c->name), "fake%u", i);
}

/* Some runs are quiet, some wild; most have a few things that go wrong. */
static uint32_t chance(struct world *w, uint32_t most)
{
	switch (w_below(w, 3)) {
	case 0:
		return 0;
	case 1:
		return w_below(w, most / 8 + 1);
	default:
		return w_below(w, most + 1);
	}
}

static void make_dice(struct world *w)
{
	w->dice = (struct fake_dice){
		.map_fail = chance(w, 100),
		.reg_fail = chance(w, 150),
		.ranges_fail = chance(w, 300),
		.reg_slow = chance(w, 900),
		.dereg_slow = chance(w, 900),
		.mw_fail = w_dice(w, 50) ? 1000 : chance(w, 500),
		.mw_slow = chance(w, 900),
		.ep_fail = chance(w, 100),
		.ep_slow = chance(w, 900),
		.destroy_slow = chance(w, 900),
		.listen_fail = chance(w, 100),
		.listen_slow = chance(w, 900),
		.connect_fail = chance(w, 100),
		.post_fail = chance(w, 500),
		.recv_fail = chance(w, 200),
		.cqe_late = chance(w, 700),
		.flush_late = chance(w, 900),
		.flush_never = chance(w, 300),
		.stall = chance(w, 200),
		.vanish = chance(w, 200),
		.silent = chance(w, 100),
		.fault = chance(w, 60),
		.measure_fail = chance(w, 500),
		.rnr_turns = 20 + w_below(w, 200),
		.late_turns = w_below(w, 12),
		.quantum = 1 + (w_dice(w, 300) ? w_below(w, 16) : w_below(w, 5000)),
	};
	if (w_dice(w, 300)) {
		w->dice.windows = 1 + w_below(w, 3);
		w->dice.mw_fail = 0;
	}
	if (w->bulk)
		w->dice.quantum = 20000 + w_below(w, 500000);
	if (!w->rich)
		return;
	w->dice.map_fail = w->dice.reg_fail = 0;
	w->dice.ranges_fail = w_dice(w, 500) ? 1000 : 0;
}

static void make_policy(struct world *w)
{
	struct xd_policy *p = &w->policy;

	xd_policy_init(p);
	if (w->rich)
		return;
	/* Registrations make room for each other. */
	w->tight = w_dice(w, 150);
	if (w->tight) {
		p->user.value[XD_LIMIT_pinned] = 150000 + w_below(w, 400000);
		return;
	}
	if (w_dice(w, 500)) {
		p->user.value[XD_LIMIT_pinned] =
			4096 + w_below(w, w_dice(w, 500) ? 300000 : 3000000);
		if (w->bulk)
			p->user.value[XD_LIMIT_pinned] += 20000000;
		p->user.value[XD_LIMIT_buffers] = 2 + w_below(w, 10);
		p->user.value[XD_LIMIT_sessions] = 2 + w_below(w, 4);
		p->user.value[XD_LIMIT_endpoints] = 2 + w_below(w, 12);
		p->user.value[XD_LIMIT_listeners] = 1 + w_below(w, 3);
		p->user.value[XD_LIMIT_grants] = 1 + w_below(w, 30);
		p->user.value[XD_LIMIT_requests] = 2 + w_below(w, 60);
		p->user.value[XD_LIMIT_bytes] = 512 + w_below(w, w->bulk ? 8000000 : 60000);
	}
	if (w_dice(w, 300))
		p->force = w_dice(w, 500) ? XD_RUNG_INDIRECT :
					    (enum xd_rung)w_below(w, XD_RUNG_COUNT);
	p->n_groups = 1;
	p->groups = calloc(1, sizeof(*p->groups));
	p->groups[0].id = 200;
	snprintf(p->groups[0].name, sizeof(p->groups[0].name), "simulated");
	for (int i = 0; i < XD_LIMIT_COUNT; i++) {
		p->groups[0].set[i] = w_dice(w, 300);
		p->groups[0].limits.value[i] = p->user.value[i] * (1 + w_below(w, 3));
	}
}

static void make_fabrics(struct world *w)
{
	w->n_fabrics = w_dice(w, 300) ? 2 : 1;
	fake_memory_init(sim_next(&w->rng), w->dice.map_fail, w->dice.fault);
	for (uint32_t i = 0; i < w->n_fabrics; i++) {
		struct fake_options o = {
			.dice = w->dice, .seed = sim_next(&w->rng), .net = (uint8_t)i};
		struct fabric_ref ref = { .ops = &fake_fabric_ops };

		make_caps(w, i);
		o.caps = w->caps[i];
		o.measured = o.caps.costs;
		o.own_addresses = o.caps.keys != FABRIC_KEYS_WINDOW && w_dice(w, 300);
		o.witness = (struct fake_witness){ .ctx = w,
						   .wrote = w_on_wrote,
						   .arrived = w_on_arrived,
						   .window = w_on_window };
		fake_fabric_open(&o, &w->ref, xd_core_fabric_events(), &ref.fabric);
		w->fabrics[i] = ref.fabric;
		sim_check(xd_core_add_fabric(w->core, &ref) == 0, "simulation",
			  "no room for a fabric");
	}
}

void world_init(struct world *w, uint64_t seed)
{
	memset(w, 0, sizeof(*w));
	w->seed = seed;
	w->bulk = seed % 4 == 3;
	w->rng.state = seed * UINT64_C(0x2545f4914f6cdd1d) + 1;
	xc_list_init(&w->sessions);
	xc_list_init(&w->dead_sessions);
	xc_list_init(&w->grants);
	for (uint32_t i = 0; i < XC_ARRAY_SIZE(w->users); i++)
		w->users[i] = (struct w_user){ .uid = 1000 + i, .gids = { 100 + i, 200 } };
	fake_engine_init(&w->engine, sim_next(&w->rng));
	w->engine.on_deliver = on_deliver;
	w->engine.on_session_gone = on_session_gone;
	w->engine.on_log = on_log;
	fake_engine_closed_fds = 0;
	w->ref = fake_engine_ref(&w->engine);
	w->rich = w_dice(w, 200);
	make_dice(w);
	w->budget = w->bulk || w_dice(w, 400) ? 64 * 1024 : 1 + w_below(w, 4096);
	w->death = chance(w, 40);
	make_policy(w);
	sim_check(xd_core_new(&w->ref, &w->policy, &w->core) == 0, "simulation", "no core");
	make_fabrics(w);
	w->admin = w_session_new(w, true);
}

void world_dump(struct world *w)
{
	for (uint32_t i = 0; i < w->n_fabrics; i++)
		fake_fabric_dump(w->fabrics[i]);
}

/* ---- a step */

/* The administrator thinks again: what is in use stays, what comes meets the new limits. */
static void change_policy(struct world *w)
{
	struct xd_policy *p = &w->policies[w->n_policies ^= 1];

	*p = w->policy;
	for (int i = 0; i < XD_LIMIT_COUNT; i++)
		if (w_dice(w, 300))
			p->user.value[i] = p->user.value[i] / 2 + 1;
	sim_note("new limits");
	xd_core_set_policy(w->core, p);
}

static void job(struct world *w)
{
	if (w_dice(w, 500))
		fake_engine_run_job(&w->engine, w_below(w, 1000));
	else
		fake_engine_finish_job(&w->engine, w_below(w, 1000));
}

static struct w_session *some_session(struct world *w)
{
	struct w_session *s, *chosen = NULL;
	uint32_t n = 0;

	xc_list_for_each(s, &w->sessions, link)
		if (!w_below(w, ++n))
			chosen = s;
	return chosen;
}

static uint32_t count_sessions(struct world *w)
{
	struct w_session *s;
	uint32_t n = 0;

	xc_list_for_each(s, &w->sessions, link)
		n++;
	return n;
}

static void client(struct world *w)
{
	struct w_session *s = some_session(w);

	if (count_sessions(w) < 3 || w_dice(w, 10)) {
		if (!w->draining && count_sessions(w) < 8)
			w_session_new(w, false);
		return;
	}
	if (s && s != w->admin && w_dice(w, w->death)) {
		w_session_close(w, s);
		return;
	}
	if (s && s != w->admin && s->greeted && w_dice(w, 2)) {
		s->unruly = true;
		w_excuse_all(w, s, "it broke the protocol");
		xd_session_fail(s->s, -XP_E_PROTOCOL, "it said %s", "what it must not");
		return;
	}
	/* io reads no more from one that is busy. */
	if (s && !xd_session_busy(s->s))
		w_act(w, s);
}

/* In one turn no more is copied than its budget, and what was begun within it. */
static bool turn(struct world *w)
{
	uint64_t before = fake_memory_copied();
	bool more = xd_core_progress(w->core, w->budget);
	uint64_t copied = fake_memory_copied() - before;

	sim_check(copied <= w->budget + (w->bulk ? COPY_MAX : PIECE_MAX), "I4",
		  "a turn of %u bytes copies %llu", w->budget, (unsigned long long)copied);
	return more;
}

static void read_some(struct world *w)
{
	struct w_session *s;

	xc_list_for_each(s, &w->sessions, link)
		if (s->output && w_dice(w, s->greed))
			w_pull(w, s, 1 + w_below(w, 10));
}

void world_step(struct world *w)
{
	if (w_dice(w, 800))
		client(w);
	if (w_dice(w, 500))
		turn(w);
	for (uint32_t n = w_below(w, 3); n; n--)
		job(w);
	if (w_dice(w, 50))
		fake_engine_advance(&w->engine, w_below(w, 3) * MS);
	else if (w_dice(w, 10))
		fake_engine_advance(&w->engine, w_below(w, 500) * MS);
	read_some(w);
	if (w_dice(w, 2) && !w->rich)
		change_policy(w);
	if (w_dice(w, 6))
		w_measure(w);
	if (w_dice(w, 1) && w->seed % 5 == 0 && !w->lost) {
		sim_note("a device is lost");
		w->lost = true;
		fake_fabric_lose(w->fabrics[w_below(w, w->n_fabrics)]);
	}
	w_check(w);
	if (w_dice(w, 3))
		w_settle(w);
}

/* ---- rest */

static bool busy_turn(struct world *w)
{
	struct w_session *s;
	bool busy = turn(w);

	while (fake_engine_run_job(&w->engine, w_below(w, 1000)) ||
	       fake_engine_finish_job(&w->engine, w_below(w, 1000)))
		busy = true;
	xc_list_for_each(s, &w->sessions, link)
		while (s->s && s->output && w_pull(w, s, 64))
			busy = true;
	w_check(w);
	return busy;
}

/* Until nothing happens that does not wait for the clock. */
static void come_to_rest(struct world *w)
{
	unsigned int quiet = 0, bound = 200000;

	while (quiet < 4) {
		quiet = busy_turn(w) || w->engine.kicked ? 0 : quiet + 1;
		w->engine.kicked = false;
		sim_check(--bound, "I7", "things go on without end");
	}
}

/* An end of a connection is told of. */
static void check_told(struct world *w, struct w_session *s)
{
	for (struct xc_list *l = s->eps.next; l != &s->eps; l = l->next) {
		struct w_ep *ep = xc_container_of(l, struct w_ep, link);
		bool connected = false;

		for (uint32_t i = 0; i < w->n_fabrics; i++)
			connected |= fake_fabric_connected(w->fabrics[i], ep->tag);
		sim_check(!ep->up || ep->down || ep->free_replied || connected, "I7",
			  "ep %llu is no longer connected, and nobody said so",
			  (unsigned long long)ep->tag);
	}
}

/* Requests that must have ended by now: all but RECVs; what is quiet has ended well. */
static void check_ended(struct world *w)
{
	struct w_session *s;

	xc_list_for_each(s, &w->sessions, link) {
		for (struct xc_list *l = s->requests.next, *next; l != &s->requests; l = next) {
			struct w_request *q = xc_container_of(l, struct w_request, link);

			next = l->next;
			if (q->r.opcode == XP_OP_RECV && q->ep->known && !q->ep->down &&
			    !q->ep->free_replied)
				continue;
			sim_check(q->r.flags & XP_F_QUIET, "I7",
				  "request %llu (operation %u, ep %llu) of step %llu has not ended",
				  (unsigned long long)q->r.wr_id, q->r.opcode,
				  (unsigned long long)q->ep->tag, (unsigned long long)q->step);
			w_request_ended(w, q, NULL, "");
		}
		sim_check(xc_list_empty(&s->pending), "I7", "a question has no answer");
		check_told(w, s);
	}
}

/* A client whose memory failed under an access has had its last answer. */
static void check_faulted(struct world *w)
{
	struct w_session *s;

	xc_list_for_each(s, &w->sessions, link)
		for (struct xc_list *l = s->buffers.next; l != &s->buffers; l = l->next) {
			const struct w_buffer *b = xc_container_of(l, struct w_buffer, link);

			sim_check(!fake_memory_faulted(b->fd), "I4",
				  "memory of session %llu has failed, and it goes on",
				  (unsigned long long)s->number);
		}
}

static void check_expired(struct world *w)
{
	struct w_grant *g;

	xc_list_for_each(g, &w->grants, link)
		for (uint32_t i = 0; i < w->n_fabrics && g->life != W_GONE && g->deadline_ns; i++)
			sim_check(!g->rkey || g->deadline_ns > w->engine.now_ns ||
					  !fake_fabric_key_live(w->fabrics[i], g->rkey),
				  "I2", "the key of a grant is alive after its time");
}

/*
 * The longest that anything may take: a connection, then a time of no progress for each thing that
 * can be waited for, then a revocation.
 */
static uint64_t patience_ms(const struct world *w)
{
	const struct xd_policy *p = &w->policy;

	return p->connect_ms + XD_WANTS * p->progress_ms + p->revoke_ms + 2000;
}

/* From timer to timer, but in no smaller steps than these. */
static void wait_and_rest(struct world *w, uint64_t ms)
{
	uint64_t end = w->engine.now_ns + ms * MS;

	while (w->engine.now_ns < end) {
		uint64_t next = fake_engine_next_deadline(&w->engine), step = 1000 * MS;

		if (next < w->engine.now_ns + step)
			step = next > w->engine.now_ns + 20 * MS ? next - w->engine.now_ns
								 : 20 * MS;
		fake_engine_advance(&w->engine, step);
		come_to_rest(w);
	}
}

void w_settle(struct world *w)
{
	sim_note("settle");
	come_to_rest(w);
	wait_and_rest(w, patience_ms(w));
	check_ended(w);
	check_expired(w);
	check_faulted(w);
	if (!w->draining)
		w_check_rest(w);
}

/* ---- the end */

/* Messages name grants of other sessions: they go before any session does. */
static void free_messages(struct w_session *s)
{
	struct w_ep *ep;

	xc_list_for_each(ep, &s->eps, link)
		w_messages_free(ep);
}

static void free_session(struct w_session *s)
{
	xc_list_remove(&s->link);
	while (!xc_list_empty(&s->eps))
		w_ep_unref(xc_list_first(&s->eps, struct w_ep, link));
	while (!xc_list_empty(&s->buffers))
		w_buffer_free(xc_list_first(&s->buffers, struct w_buffer, link));
	free(s);
}

static void close_all(struct world *w)
{
	while (!xc_list_empty(&w->sessions)) {
		w_session_close(w, xc_list_first(&w->sessions, struct w_session, link));
		if (w_dice(w, 500))
			busy_turn(w);
	}
}

static void drain(struct world *w)
{
	struct w_session *s;

	sim_note("drain");
	w->draining = true;
	xc_list_for_each(s, &w->sessions, link)
		w_excuse_all(w, s, "the daemon drains");
	xd_core_drain(w->core);
	for (int i = 0; i < 60; i++) {
		world_step(w);
		sim.step++;
	}
	come_to_rest(w);
	fake_engine_advance(&w->engine, (w->policy.drain_ms + 1) * MS);
	come_to_rest(w);
	sim_check(xc_list_empty(&w->sessions), "I7", "a drained daemon has sessions");
}

static void check_nothing_is_left(struct world *w)
{
	struct w_session *s;
	static const enum xd_counter gauges[] = {
		XD_COUNTER_sessions,	 XD_COUNTER_buffers,   XD_COUNTER_buffer_bytes,
		XD_COUNTER_pinned_bytes, XD_COUNTER_endpoints, XD_COUNTER_listeners,
		XD_COUNTER_grants,	 XD_COUNTER_transfers, XD_COUNTER_slow_closes,
		XD_COUNTER_keys,	 XD_COUNTER_slab_bytes,
	};

	xc_list_for_each(s, &w->dead_sessions, link)
		sim_check(s->gone, "I7", "session %llu is closed and does not go",
			  (unsigned long long)s->number);
	for (size_t i = 0; i < XC_ARRAY_SIZE(gauges); i++)
		sim_check(xd_core_counter(w->core, gauges[i]) == 0, "I6",
			  "gauge %d stands at %llu at the end", (int)gauges[i],
			  (unsigned long long)xd_core_counter(w->core, gauges[i]));
	for (uint32_t i = 0; i < w->n_fabrics; i++)
		sim_check(fake_fabric_objects(w->fabrics[i]) == 0, "I6",
			  "%u objects of fabric %u are left", fake_fabric_objects(w->fabrics[i]),
			  i);
	sim_check(fake_memory_regions() == 0, "I6", "%u maps are left", fake_memory_regions());
	sim_check(fake_engine_closed_fds == w->fds_passed, "I6", "descriptors are left");
	sim_check(xd_core_idle(w->core), "I7", "the core is not idle");
}

void world_end(struct world *w)
{
	struct w_session *s;

	if (w_dice(w, 700))
		w_settle(w);
	if (w_dice(w, 300))
		drain(w);
	close_all(w);
	come_to_rest(w);
	wait_and_rest(w, 40000);
	check_nothing_is_left(w);
	xc_list_for_each(s, &w->dead_sessions, link)
		free_messages(s);
	while (!xc_list_empty(&w->dead_sessions))
		free_session(xc_list_first(&w->dead_sessions, struct w_session, link));
	sim_check(xc_list_empty(&w->grants), "simulation", "a grant is left in the model");
	for (int i = 0; i < W_WAYS; i++)
		w->ways[i] = xd_core_counter(w->core, w_ways[i]);
	xd_core_free(w->core);
	fake_engine_done(&w->engine);
	xd_policy_done(&w->policy);
	fake_memory_done();
}
