/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include <errno.h>

#include "common/checked.h"
#include "daemon/fabric/costs.h"
#include "daemon/fabric/verbs/selftest_rig.h"

/*
 * What things cost on a device, and how much it takes inline. Between its own two ends, so a work
 * request has no wire to cross: what counts is what each more of them costs.
 */

#define MS UINT64_C(1000000)
#define PAGES 256u
#define WRITE_BYTES 8u
/* No endpoint of ours has more work requests, or longer lists. */
#define DEPTH 4096u
#define SGES 64u
#define LEAST_INLINE 16u /* less is not worth it */

/* One of them at a time: a sample, or that it cannot be had. */
typedef bool thing_fn(struct st *t, uint32_t pages);

static bool write_little(struct st *t, uint32_t pages)
{
	(void)pages;
	return st_write(t, 0, st_address(st_key_memory(t)), t->open_mr->rkey, WRITE_BYTES) ==
	       IBV_WC_SUCCESS;
}

static bool register_pages(struct st *t, uint32_t pages)
{
	struct ibv_mr *mr = ibv_reg_mr(t->owner_pd, t->owned, (size_t)pages * FABRIC_PAGE_BYTES,
				       IBV_ACCESS_LOCAL_WRITE);

	return mr && ibv_dereg_mr(mr) == 0;
}

static uint32_t sample(struct st *t, thing_fn *thing, uint32_t pages, uint64_t until_ns)
{
	struct fabric_samples s = { .times = 1 };

	while (fabric_wants_sample(&s, until_ns)) {
		uint64_t since = fabric_now_ns();

		if (!thing(t, pages))
			break;
		fabric_add_sample(&s, since);
	}
	return fabric_middle(&s);
}

static uint32_t sample_binds(struct st *t, uint64_t until_ns)
{
	struct fabric_samples s = { .times = 1 };
	struct ibv_mr *mr = st_register(t, t->owner_pd, t->owned, ST_SMALL_BYTES,
					IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND);
	struct ibv_mw *mw = st_window(t, t->owner_pd);

	while (mr && mw && fabric_wants_sample(&s, until_ns)) {
		uint64_t since = fabric_now_ns();

		if (st_bind(t, 0, mw, mr, st_address(st_key_memory(t)), ST_KEY_BYTES,
			    IBV_ACCESS_REMOTE_READ) != IBV_WC_SUCCESS ||
		    st_local_inv(t, 0, mw->rkey) != IBV_WC_SUCCESS)
			break;
		fabric_add_sample(&s, since);
	}
	return fabric_middle(&s);
}

int st_measure(struct st *t, bool windows, struct fabric_costs *ret)
{
	const uint64_t now = fabric_now_ns(), all = FABRIC_MEASURE_MS * MS;
	struct fabric_costs c = { 0 };
	int r = st_connect(t, 0, t->owner_pd, 1);

	if (r == 0) {
		c.wr_ns = sample(t, write_little, 0, now + all / 4);
		c.reg_ns = sample(t, register_pages, 1, now + all * 3 / 8);
		c.reg_page_ns = fabric_each_more(
			c.reg_ns, sample(t, register_pages, PAGES, now + all / 2), PAGES - 1);
		if (windows)
			c.bind_ns = sample_binds(t, now + all * 5 / 8);
		if (!c.wr_ns || !c.reg_ns || !c.reg_page_ns)
			r = -EIO;
	}
	st_reset(t);
	if (r == 0)
		r = fabric_measure_copies(now + all, &c);
	if (r)
		return r;
	*ret = c;
	return 0;
}

/* Can there be such a queue pair? Then *ret: what it takes inline. */
static bool can_be(struct st *t, struct ibv_cq *cq, uint32_t depth, uint32_t bytes, uint32_t *ret)
{
	struct ibv_qp_init_attr attr = {
		.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = depth, .max_recv_wr = depth,
			 .max_send_sge = xc_min_u32(t->claims.max_sge, SGES),
			 .max_recv_sge = xc_min_u32(t->claims.max_sge, SGES),
			 .max_inline_data = bytes },
	};
	struct ibv_qp *qp = ibv_create_qp(t->owner_pd, &attr);

	if (!qp)
		return false;
	*ret = xc_min_u32(bytes, attr.cap.max_inline_data);
	ibv_destroy_qp(qp);
	return true;
}

/* The deepest that can be without decides: what it takes every other takes. */
uint32_t st_max_inline(struct st *t, uint32_t max_wr)
{
	struct ibv_cq *cq = ibv_create_cq(t->verbs, 1, NULL, NULL, 0);
	uint32_t depth = xc_min_u32(DEPTH, max_wr), bytes = 0;

	if (!cq)
		return 0;
	while (depth && !can_be(t, cq, depth, 0, &bytes))
		depth /= 2;
	for (uint32_t want = FABRIC_INLINE_MAX; depth && want >= LEAST_INLINE; want /= 2)
		if (can_be(t, cq, depth, want, &bytes))
			break;
	ibv_destroy_cq(cq);
	return bytes;
}
