/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#define _GNU_SOURCE 1 /* getrandom */
#include <errno.h>
#include <stdlib.h>
#include <sys/random.h>

#include "common/assert.h"
#include "daemon/fabric/costs.h"
#include "daemon/fabric/iwarp/private.h"

/*
 * What things cost here, found out on a helper thread, on an instance of its own that opens no
 * socket: two endpoints inside it do what is to be measured. A connection through TCP costs more a
 * work request; which of two ways has more of them it does not change.
 *
 * Under a profile the costs are the device's, and known.
 */

#define NS_PER_MS UINT64_C(1000000)
#define PAGES 256u
#define RANGES 64u
#define TIMES 32u

struct iwarp_measure {
	struct xd_job job;
	struct fabric *fabric; /* NULL: it was closed */
	struct fabric_done *done;
	struct fabric_costs *ret;
	struct fabric_costs costs;
	int status;
};

/* ---- an engine for an instance in which nobody ever waits for anything */

static uint64_t quiet_now(struct xd_engine *e)
{
	(void)e;
	return fabric_now_ns();
}

static void quiet_arm(struct xd_engine *e, struct xd_timer *t, uint64_t deadline_ns)
{
	(void)e, (void)t, (void)deadline_ns;
}

static void quiet_disarm(struct xd_engine *e, struct xd_timer *t)
{
	(void)e, (void)t;
}

/* Keys that nobody is to guess are none here. */
static void quiet_random(struct xd_engine *e, void *buf, size_t size)
{
	static _Thread_local uint64_t state;
	uint8_t *to = buf;

	(void)e;
	if (!state && getrandom(&state, sizeof(state), 0) != (ssize_t)sizeof(state))
		state = fabric_now_ns();
	for (size_t i = 0; i < size; i++) {
		state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
		to[i] = (uint8_t)(state >> 56);
	}
}

static void quiet_kick(struct xd_engine *e)
{
	(void)e;
}

static const struct xd_engine_ops quiet_engine = {
	.now_ns = quiet_now,
	.arm = quiet_arm,
	.disarm = quiet_disarm,
	.random = quiet_random,
	.kick = quiet_kick,
};

static void quiet_established(void *ctx, int status, const void *data, size_t bytes)
{
	(void)ctx, (void)status, (void)data, (void)bytes;
}

static void quiet_disconnected(void *ctx, int status)
{
	(void)ctx, (void)status;
}

static const struct fabric_events quiet_events = {
	.established = quiet_established,
	.disconnected = quiet_disconnected,
};

/* ---- two endpoints */

struct stand {
	const struct fabric_ops *ops;
	struct fabric *f;
	struct fabric_region *region;
	struct fabric_pd *pd;
	struct ibv_mr *mr;
	struct ibv_mw *mw;
	struct fabric_ep *a, *b;
};

static void stand_done(struct stand *s)
{
	if (s->a)
		s->ops->ep_destroy(s->a, NULL);
	if (s->b)
		s->ops->ep_destroy(s->b, NULL);
	if (s->mw)
		s->ops->mw_dealloc(s->mw, NULL);
	if (s->mr)
		s->ops->mr_dereg(s->mr, NULL);
	if (s->pd)
		s->ops->pd_free(s->pd);
	if (s->region)
		s->ops->region_unmap(s->region);
	if (s->f)
		s->ops->close(s->f);
}

static int stand_init(struct stand *s)
{
	const int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_MW_BIND;
	const struct xd_engine_ref engine = { .ops = &quiet_engine };
	const struct iwarp_options options = { .no_wire = true };
	struct fabric_ep_attr attr = { .max_send_wr = TIMES, .max_send_sge = 1 };
	void *memory;
	int err;

	*s = (struct stand){ .ops = &iwarp_fabric_ops };
	err = iwarp_fabric_open(&options, &engine, &quiet_events, &s->f);
	if (!err)
		err = s->ops->slab_map(PAGES * FABRIC_PAGE_BYTES, &s->region, &memory);
	if (!err)
		err = s->ops->pd_alloc(s->f, 0, &s->pd);
	if (!err)
		err = s->ops->mr_reg(s->pd, s->region, 0, PAGES * FABRIC_PAGE_BYTES, 0, access,
				     NULL, &s->mr);
	if (!err)
		err = s->ops->mw_alloc(s->pd, NULL, &s->mw);
	attr.pd = s->pd;
	if (!err)
		err = s->ops->ep_create(s->f, &attr, NULL, &s->a);
	if (!err)
		err = s->ops->ep_create(s->f, &attr, NULL, &s->b);
	if (err)
		return err;
	iwarp_ep_join(s->a, s->b, NULL, 0);
	s->ops->progress(s->f, 1);
	return 0;
}

/* Until it rests. False: a work request failed. */
static bool run(struct stand *s)
{
	struct ibv_wc wc;
	bool more;

	do {
		more = s->ops->progress(s->f, IWARP_QUANTUM_BYTES);
		while (s->ops->poll(s->f, 1, &wc) > 0)
			if (wc.status != IBV_WC_SUCCESS)
				return false;
	} while (more);
	return true;
}

/* ---- what is measured: each does it TIMES times, or says that it cannot */

static bool register_pages(struct stand *s, uint32_t pages)
{
	for (uint32_t i = 0; i < TIMES; i++) {
		struct ibv_mr *mr;

		if (s->ops->mr_reg(s->pd, s->region, 0, (uint64_t)pages * FABRIC_PAGE_BYTES, 0,
				   IBV_ACCESS_REMOTE_READ, NULL, &mr))
			return false;
		s->ops->mr_dereg(mr, NULL);
	}
	return true;
}

static bool register_ranges(struct stand *s, uint32_t n)
{
	struct fabric_range ranges[RANGES];

	for (uint32_t i = 0; i < n; i++)
		ranges[i] = (struct fabric_range){ .region = s->region, .length = 64,
						   .offset = (uint64_t)i * FABRIC_PAGE_BYTES };
	for (uint32_t i = 0; i < TIMES; i++) {
		struct ibv_mr *mr;

		if (s->ops->mr_reg_ranges(s->pd, ranges, n, 0, IBV_ACCESS_REMOTE_READ, NULL, &mr))
			return false;
		s->ops->mr_dereg(mr, NULL);
	}
	return true;
}

static bool bind_and_kill(struct stand *s, uint32_t unused)
{
	(void)unused;
	for (uint32_t i = 0; i < TIMES; i++) {
		struct ibv_send_wr kill = { .opcode = IBV_WR_LOCAL_INV,
					    .send_flags = IBV_SEND_SIGNALED };
		struct ibv_send_wr wr = { .next = &kill, .opcode = IBV_WR_BIND_MW }, *bad;

		wr.bind_mw.mw = s->mw;
		wr.bind_mw.rkey = kill.invalidate_rkey = ibv_inc_rkey(s->mw->rkey);
		wr.bind_mw.bind_info = (struct ibv_mw_bind_info){
			.mr = s->mr, .length = FABRIC_PAGE_BYTES,
			.mw_access_flags = IBV_ACCESS_REMOTE_READ,
		};
		if (s->ops->post_send(s->a, &wr, &bad) || !run(s))
			return false;
		s->mw->rkey = wr.bind_mw.rkey;
	}
	return true;
}

static bool write_little(struct stand *s, uint32_t unused)
{
	struct ibv_sge sge = { .addr = FABRIC_PAGE_BYTES, .length = 8, .lkey = s->mr->lkey };
	struct ibv_send_wr *bad;

	(void)unused;
	for (uint32_t i = 0; i < TIMES; i++) {
		struct ibv_send_wr wr = {
			.opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED,
			.sg_list = &sge, .num_sge = 1, .wr.rdma.rkey = s->mr->rkey,
		};

		if (s->ops->post_send(s->a, &wr, &bad))
			return false;
	}
	return run(s);
}

/* ---- all of it */

static uint32_t sample(struct stand *s, bool (*thing)(struct stand *s, uint32_t n), uint32_t n,
		       uint64_t until_ns)
{
	struct fabric_samples samples = { .times = TIMES };

	while (fabric_wants_sample(&samples, until_ns)) {
		uint64_t since = fabric_now_ns();

		if (!thing(s, n))
			break;
		fabric_add_sample(&samples, since);
	}
	return fabric_middle(&samples);
}

/*
 * The table of STags is sparse, and each number is a random one: the first registrations of an
 * instance meet memory that nobody has touched.
 */
static void warm_up(struct stand *s, uint64_t until_ns)
{
	for (uint32_t i = 0; i < 4096 / TIMES && fabric_now_ns() < until_ns; i++)
		if (!register_pages(s, 1))
			return;
}

/* Half of the time is for the copies. */
static void measure_run(struct xd_job *job)
{
	struct iwarp_measure *m = xc_container_of(job, struct iwarp_measure, job);
	const uint64_t now = fabric_now_ns(), half = FABRIC_MEASURE_MS / 2 * NS_PER_MS;
	struct fabric_costs *c = &m->costs;
	struct stand s;

	m->status = stand_init(&s);
	if (!m->status) {
		warm_up(&s, now + half / 8);
		c->wr_ns = sample(&s, write_little, 0, now + half / 4);
		c->reg_ns = sample(&s, register_pages, 1, now + half / 2);
		c->reg_page_ns = fabric_each_more(
			c->reg_ns, sample(&s, register_pages, PAGES, now + half / 2), PAGES - 1);
		c->ranges_ns = sample(&s, register_ranges, 1, now + half / 4 * 3);
		c->range_ns = fabric_each_more(
			c->ranges_ns, sample(&s, register_ranges, RANGES, now + half / 4 * 3),
			RANGES - 1);
		c->bind_ns = sample(&s, bind_and_kill, 0, now + half);
	}
	stand_done(&s);
	if (!m->status)
		m->status = fabric_measure_copies(now + 2 * half, c);
}

static void measure_over(struct xd_job *job)
{
	struct iwarp_measure *m = xc_container_of(job, struct iwarp_measure, job);
	struct fabric_done *done = m->done;
	struct fabric *f = m->fabric;
	int status = m->status;

	if (!f) {
		free(m);
		return;
	}
	f->measure = NULL;
	if (!status)
		*m->ret = f->caps.costs = m->costs;
	free(m);
	done->fn(done, status);
}

int iwarp_measure(struct fabric *f, struct fabric_done *done, struct fabric_costs *ret)
{
	struct iwarp_measure *m;

	XC_CHECK(f, IWARP_FABRIC_MAGIC);
	if (f->profile) {
		*ret = f->caps.costs;
		return 0;
	}
	if (f->measure)
		return -EBUSY;
	m = calloc(1, sizeof(*m));
	if (!m)
		return -ENOMEM;
	*m = (struct iwarp_measure){
		.job = { .helper = XD_HELP_DEVICES, .run = measure_run, .done = measure_over },
		.fabric = f, .done = done, .ret = ret,
	};
	f->measure = m;
	f->engine.ops->help(f->engine.engine, &m->job);
	return -EINPROGRESS;
}

void iwarp_measure_forget(struct fabric *f)
{
	if (f->measure)
		f->measure->fabric = NULL;
	f->measure = NULL;
}
