/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What a peer must not be able to do. Each attack is tried against the fabric as it is, where it
 * must fail, and against the fabric with that check taken out, where it must succeed: so the check
 * is what stops it, and the test would see it go.
 */
#include <errno.h>
#include <string.h>

#include "daemon/fabric/saboteur.h"
#include "proto/errors.h"
#include "tests/unit/iwarp_rig.h"

#define BIG (3u * QUANTUM)
#define SECRET 0x55
#define FRESH 0xee

static struct rig rig;
static struct prog a, b, b2, c;
static const struct fabric_ops *ops;

/* a is connected to b; c to b2, which is b's second endpoint in the same pd. */
static void begin(void)
{
	rig_init(&rig);
	ops = rig.ops;
	prog_init(&a, &rig, 1000, BIG);
	prog_init(&b, &rig, 1001, BIG);
	prog_init_sharing(&b2, &b);
	prog_init(&c, &rig, 1002, BIG);
	connect_progs(&a, &b);
	connect_progs(&c, &b2);
	memset(a.mem, FRESH, a.bytes);
	memset(b.mem, SECRET, b.bytes);
}

static int setup(void **state)
{
	(void)state;
	begin();
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	fabric_saboteur = NULL;
	rig_done(&rig);
	return 0;
}

/* Does this READ by a bring anything home? */
static bool reads(uint64_t remote, uint32_t bytes, uint32_t rkey)
{
	assert_int_equal(post_rdma(&a, IBV_WR_RDMA_READ, 1, 0, bytes, remote, rkey), 0);
	rig_run(&rig);
	return took(&a, 1) == IBV_WC_SUCCESS && a.mem[0] == SECRET;
}

static bool writes(uint64_t remote, uint32_t bytes, uint32_t rkey)
{
	assert_int_equal(post_rdma(&a, IBV_WR_RDMA_WRITE, 1, 0, bytes, remote, rkey), 0);
	rig_run(&rig);
	return took(&a, 1) == IBV_WC_SUCCESS && b.mem[remote] == FRESH;
}

static void drop(struct ibv_mw *mw)
{
	assert_int_equal(ops->mw_dealloc(mw, NULL), 0);
}

/*
 * ------------------------------------------------------------------ attacks: true where they
 * succeed
 */

static bool read_one_past_the_end(void)
{
	struct ibv_mw *mw = window(&b, PAGE, 100, IBV_ACCESS_REMOTE_READ);
	bool breach = reads(PAGE + 1, 100, mw->rkey);

	drop(mw);
	return breach;
}

static bool read_one_before_the_start(void)
{
	struct ibv_mw *mw = window(&b, PAGE, 100, IBV_ACCESS_REMOTE_READ);
	bool breach = reads(PAGE - 1, 100, mw->rkey);

	drop(mw);
	return breach;
}

static bool use_a_window_of_another_stream(void)
{
	struct ibv_mw *mw = window(&b2, PAGE, 100, IBV_ACCESS_REMOTE_READ);
	bool breach = reads(PAGE, 100, mw->rkey);

	drop(mw);
	return breach;
}

static bool invalidate_a_window_of_another_stream(void)
{
	struct ibv_mw *mw = window(&b2, PAGE, 100, IBV_ACCESS_REMOTE_READ);
	bool breach;

	assert_int_equal(post_recv(&b, 2, 0, 100), 0);
	assert_int_equal(post_send_inv(&a, 1, 0, 10, mw->rkey), 0);
	rig_run(&rig);
	breach = took(&a, 1) == IBV_WC_SUCCESS;
	drop(mw);
	return breach;
}

static bool read_with_a_key_of_another_pd(void)
{
	memset(c.mem, SECRET, PAGE);
	return reads(0, 100, c.mr->rkey);
}

/* The other way round: to send what is not one's own. */
static bool use_local_memory_of_another_pd(void)
{
	struct ibv_sge sge = { .addr = IOVA, .length = 100, .lkey = b.mr->lkey };
	struct ibv_send_wr wr = {
		.wr_id = 1, .opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED,
		.sg_list = &sge, .num_sge = 1,
		.wr.rdma = { .remote_addr = IOVA, .rkey = b.mr->rkey },
	};

	assert_int_equal(post(&a, &wr), 0);
	rig_run(&rig);
	return took(&a, 1) == IBV_WC_SUCCESS;
}

static bool write_to_what_is_for_reading(void)
{
	struct ibv_mw *mw = window(&b, PAGE, 100, IBV_ACCESS_REMOTE_READ);
	bool breach = writes(PAGE, 100, mw->rkey);

	drop(mw);
	return breach;
}

static bool read_what_is_for_writing(void)
{
	struct ibv_mw *mw = window(&b, PAGE, 100, IBV_ACCESS_REMOTE_WRITE);
	bool breach = reads(PAGE, 100, mw->rkey);

	drop(mw);
	return breach;
}

static bool read_what_is_local(void)
{
	struct ibv_mr *mr = reg(&b, 0, PAGE, IBV_ACCESS_LOCAL_WRITE);
	bool breach = reads(0, 100, mr->rkey);

	assert_int_equal(ops->mr_dereg(mr, NULL), 0);
	return breach;
}

static bool read_into_what_is_read_only(void)
{
	struct ibv_mr *all = a.mr;
	bool breach;

	a.mr = reg(&a, 0, PAGE, 0);
	breach = reads(0, 100, b.mr->rkey);
	assert_int_equal(ops->mr_dereg(a.mr, NULL), 0);
	a.mr = all;
	return breach;
}

static bool receive_into_what_is_read_only(void)
{
	struct ibv_mr *all = b.mr;

	b.mr = reg(&b, 0, PAGE, 0);
	assert_int_equal(post_recv(&b, 2, 0, 100), 0);
	assert_int_equal(post_send(&a, 1, 0, 100), 0);
	rig_run(&rig);
	assert_int_equal(ops->mr_dereg(b.mr, NULL), 0);
	b.mr = all;
	return took(&a, 1) == IBV_WC_SUCCESS && b.mem[0] == FRESH;
}

static bool use_a_key_that_was_invalidated(void)
{
	struct ibv_mw *mw = window(&b, PAGE, 100, IBV_ACCESS_REMOTE_READ);
	bool breach;

	assert_int_equal(post_inv(&b, 2, mw->rkey), 0);
	rig_run(&rig);
	assert_int_equal(took(&b, 2), IBV_WC_SUCCESS);
	breach = reads(PAGE, 100, mw->rkey);
	drop(mw);
	return breach;
}

static bool use_a_key_that_one_has_given_back(void)
{
	struct ibv_mw *mw = window(&b, PAGE, 100, IBV_ACCESS_REMOTE_READ);
	bool breach;

	assert_int_equal(post_recv(&b, 2, 0, 0), 0);
	assert_int_equal(post_send_inv(&a, 3, 0, 0, mw->rkey), 0);
	rig_run(&rig);
	assert_int_equal(took(&a, 3), IBV_WC_SUCCESS);
	breach = reads(PAGE, 100, mw->rkey);
	drop(mw);
	return breach;
}

static bool use_the_key_of_an_earlier_bind(void)
{
	struct ibv_mw *mw = window(&b, PAGE, 100, IBV_ACCESS_REMOTE_READ);
	uint32_t old = mw->rkey, new = ibv_inc_rkey(old);
	bool breach;

	assert_int_equal(post_inv(&b, 2, old), 0);
	assert_int_equal(post_bind(&b, 3, mw, new, b.mr, PAGE, 100, IBV_ACCESS_REMOTE_READ), 0);
	rig_run(&rig);
	assert_int_equal(took(&b, 2), IBV_WC_SUCCESS);
	assert_int_equal(took(&b, 3), IBV_WC_SUCCESS);
	mw->rkey = new;
	breach = reads(PAGE, 100, old);
	drop(mw);
	return breach;
}

static bool bind_under_the_same_key_again(void)
{
	struct ibv_mw *mw = window(&b, PAGE, 100, IBV_ACCESS_REMOTE_READ);
	bool breach;

	assert_int_equal(post_inv(&b, 2, mw->rkey), 0);
	assert_int_equal(post_bind(&b, 3, mw, mw->rkey, b.mr, PAGE, 100, IBV_ACCESS_REMOTE_READ),
			 0);
	rig_run(&rig);
	assert_int_equal(took(&b, 2), IBV_WC_SUCCESS);
	breach = took(&b, 3) == IBV_WC_SUCCESS;
	drop(mw);
	return breach;
}

/* Some of a READ has come home when its key dies. */
static bool go_on_after_the_key_died(void)
{
	struct ibv_mw *mw = window(&b, 0, BIG, IBV_ACCESS_REMOTE_READ);

	assert_int_equal(post_rdma(&a, IBV_WR_RDMA_READ, 1, 0, BIG, 0, mw->rkey), 0);
	rig_turn(&rig, 1000);
	assert_int_equal(a.mem[0], SECRET);
	assert_int_equal(a.mem[BIG - 1], FRESH);
	drop(mw);
	memset(b.mem, 0x66, b.bytes); /* no exposure is left, b uses its memory again */
	rig_run(&rig);
	return took(&a, 1) == IBV_WC_SUCCESS || memchr(a.mem, 0x66, BIG);
}

static bool place_a_part_of_what_is_refused(void)
{
	struct ibv_mw *mw = window(&b, 0, BIG - 1, IBV_ACCESS_REMOTE_WRITE);

	assert_int_equal(post_rdma(&a, IBV_WR_RDMA_WRITE, 1, 0, BIG, 0, mw->rkey), 0);
	rig_run(&rig);
	assert_int_equal(took(&a, 1), IBV_WC_REM_ACCESS_ERR);
	drop(mw);
	return memchr(b.mem, FRESH, BIG);
}

static const struct attack {
	const char *saboteur;
	bool (*attempt)(void);
} attacks[] = {
	{ "widen-bound", read_one_past_the_end },
	{ "widen-bound", read_one_before_the_start },
	{ "skip-stream-check", use_a_window_of_another_stream },
	{ "skip-stream-check", invalidate_a_window_of_another_stream },
	{ "skip-pd-check", read_with_a_key_of_another_pd },
	{ "skip-pd-check", use_local_memory_of_another_pd },
	{ "skip-rights", write_to_what_is_for_reading },
	{ "skip-rights", read_what_is_for_writing },
	{ "skip-rights", read_what_is_local },
	{ "skip-local-rights", read_into_what_is_read_only },
	{ "skip-local-rights", receive_into_what_is_read_only },
	{ "skip-invalidate", use_a_key_that_was_invalidated },
	{ "skip-invalidate", use_a_key_that_one_has_given_back },
	{ "ignore-key", use_the_key_of_an_earlier_bind },
	{ "reuse-key-byte", bind_under_the_same_key_again },
	{ "skip-recheck", go_on_after_the_key_died },
	{ "check-first-quantum", place_a_part_of_what_is_refused },
};

static void attacks_fail(void **state)
{
	(void)state;
	for (size_t i = 0; i < XC_ARRAY_SIZE(attacks); i++) {
		for (int sabotaged = 0; sabotaged < 2; sabotaged++) {
			bool breach;

			begin();
			fabric_saboteur = sabotaged ? attacks[i].saboteur : NULL;
			breach = attacks[i].attempt();
			fabric_saboteur = NULL;
			rig_done(&rig);
			if (breach != sabotaged)
				fail_msg("attack %zu (%s) %s", i, attacks[i].saboteur,
					 breach ? "succeeded" : "was not seen without its check");
		}
	}
}

/*
 * --------------------------------------------------------------------- how a refused access ends
 */

static void a_refused_access_ends_the_connection(void **state)
{
	static const enum ibv_wr_opcode ops_tried[] = { IBV_WR_RDMA_READ, IBV_WR_RDMA_WRITE };

	(void)state;
	for (int i = 0; i < 2; i++) {
		if (i)
			connect_progs(&a, &b);
		assert_int_equal(post_recv(&b, 20, 0, 100), 0);
		assert_int_equal(post_recv(&a, 10, 0, 100), 0);
		assert_int_equal(post_rdma(&a, ops_tried[i], 1, 0, 8, 0, b.mr->rkey), 0);
		assert_int_equal(post_rdma(&a, ops_tried[i], 2, 0, 8, BIG - 4, b.mr->rkey), 0);
		assert_int_equal(post_rdma(&a, ops_tried[i], 3, 0, 8, 0, b.mr->rkey), 0);
		rig_run(&rig);
		assert_int_equal(took(&a, 1), IBV_WC_SUCCESS);
		assert_int_equal(took(&a, 2), IBV_WC_REM_ACCESS_ERR);
		assert_int_equal(took(&a, 3), IBV_WC_WR_FLUSH_ERR);
		assert_int_equal(took(&a, 10), IBV_WC_WR_FLUSH_ERR);
		assert_int_equal(took(&b, 20), IBV_WC_WR_FLUSH_ERR);
		assert_int_equal(a.disconnected, -XP_E_REMOTE_ACCESS);
		assert_int_equal(b.disconnected, -XP_E_PEER_GONE);
		assert_int_equal(c.n_disconnected, 0); /* a bystander */
	}
}

static void ranges_do_not_wrap(void **state)
{
	static const uint64_t starts[] = { UINT64_MAX - IOVA - 3, UINT64_MAX - IOVA, BIG,
					   BIG - 3, (uint64_t)-4 };

	(void)state;
	for (size_t i = 0; i < XC_ARRAY_SIZE(starts); i++) {
		if (i)
			connect_progs(&a, &b);
		assert_int_equal(post_rdma(&a, IBV_WR_RDMA_READ, 1, 0, 4, starts[i], b.mr->rkey),
				 0);
		rig_run(&rig);
		assert_int_equal(took(&a, 1), IBV_WC_REM_ACCESS_ERR);
	}
	assert_int_equal(a.mem[0], FRESH);
}

static void keys_that_never_were(void **state)
{
	const uint32_t keys[] = { 0, 1, UINT32_MAX, b.mr->rkey ^ 1, b.mr->rkey ^ 0x100 };

	(void)state;
	for (size_t i = 0; i < XC_ARRAY_SIZE(keys); i++) {
		if (i)
			connect_progs(&a, &b);
		assert_false(reads(0, 4, keys[i]));
	}
}

static void without_bytes_no_key_matters(void **state)
{
	(void)state;
	assert_int_equal(post_rdma(&a, IBV_WR_RDMA_READ, 1, 0, 0, 12345, 99), 0);
	assert_int_equal(post_rdma(&a, IBV_WR_RDMA_WRITE, 2, 0, 0, UINT64_MAX, 0), 0);
	rig_run(&rig);
	assert_int_equal(took(&a, 1), IBV_WC_SUCCESS);
	assert_int_equal(took(&a, 2), IBV_WC_SUCCESS);
	/* the same with a segment that has no bytes */
	struct ibv_sge sge = { .addr = 5, .lkey = 5 };
	struct ibv_send_wr wr = {
		.wr_id = 3, .opcode = IBV_WR_RDMA_READ, .send_flags = IBV_SEND_SIGNALED,
		.sg_list = &sge, .num_sge = 1,
	};
	assert_int_equal(post(&a, &wr), 0);
	rig_run(&rig);
	assert_int_equal(took(&a, 3), IBV_WC_SUCCESS);
}

static void bad_local_memory(void **state)
{
	(void)state;
	/* past the end of it */
	assert_int_equal(post_rdma(&a, IBV_WR_RDMA_WRITE, 1, BIG - 4, 8, 0, b.mr->rkey), 0);
	rig_run(&rig);
	assert_int_equal(took(&a, 1), IBV_WC_LOC_PROT_ERR);
	assert_int_equal(a.disconnected, -XP_E_LOCAL_ACCESS);
	assert_int_equal(b.disconnected, -XP_E_PEER_GONE);
	/* of a RECV: its owner's fault, seen by both */
	connect_progs(&a, &b);
	assert_int_equal(post_recv(&b, 2, BIG - 4, 8), 0);
	assert_int_equal(post_send(&a, 1, 0, 8), 0);
	rig_run(&rig);
	assert_int_equal(took(&a, 1), IBV_WC_REM_OP_ERR);
	assert_int_equal(took(&b, 2), IBV_WC_LOC_PROT_ERR);
	assert_int_equal(a.disconnected, -XP_E_REMOTE_FAULT);
	assert_int_equal(b.disconnected, -XP_E_LOCAL_ACCESS);
	assert_int_equal(b.mem[BIG - 4], SECRET);
	/* a window is no local key */
	connect_progs(&a, &b);
	struct ibv_mw *mw = window(&a, 0, PAGE, IBV_ACCESS_REMOTE_READ);
	struct ibv_sge sge = { .addr = IOVA, .length = 8, .lkey = mw->rkey };
	struct ibv_send_wr wr = {
		.wr_id = 1, .opcode = IBV_WR_RDMA_WRITE, .sg_list = &sge, .num_sge = 1,
		.wr.rdma = { .remote_addr = IOVA, .rkey = b.mr->rkey },
	};
	assert_int_equal(post(&a, &wr), 0);
	rig_run(&rig);
	assert_int_equal(took(&a, 1), IBV_WC_LOC_PROT_ERR);
	drop(mw);
}

/* -------------------------------------------------------------------------------------- windows */

static void windows_work(void **state)
{
	struct ibv_mw *mw = window(&b, 100, 50, IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE);

	(void)state;
	fill(&b, 100, 50, 3);
	assert_int_equal(post_rdma(&a, IBV_WR_RDMA_READ, 1, 0, 50, 100, mw->rkey), 0);
	assert_int_equal(post_rdma(&a, IBV_WR_RDMA_WRITE, 2, 0, 25, 125, mw->rkey), 0);
	rig_run(&rig);
	assert_int_equal(took(&a, 1), IBV_WC_SUCCESS);
	assert_int_equal(took(&a, 2), IBV_WC_SUCCESS);
	assert_true(filled(&a, 0, 50, 3));
	assert_true(filled(&b, 125, 25, 3));
	assert_int_equal(b.mem[99], SECRET);
	assert_int_equal(b.mem[150], SECRET);
	drop(mw);
}

static void a_key_rotates_for_ever(void **state)
{
	struct ibv_mw *mw = window(&b, 0, PAGE, IBV_ACCESS_REMOTE_READ);

	(void)state;
	for (int i = 0; i < 600; i++) {
		uint32_t next = ibv_inc_rkey(mw->rkey);

		assert_int_equal(next >> 8, mw->rkey >> 8);
		assert_int_equal(post_inv(&b, 1, mw->rkey), 0);
		assert_int_equal(post_bind(&b, 2, mw, next, b.mr, 0, 64, IBV_ACCESS_REMOTE_READ),
				 0);
		rig_run(&rig);
		assert_int_equal(took(&b, 1), IBV_WC_SUCCESS);
		assert_int_equal(took(&b, 2), IBV_WC_SUCCESS);
		mw->rkey = next;
		assert_true(reads(0, 64, mw->rkey));
	}
	drop(mw);
}

/* A bind that must fail; the connection is made anew for the next. */
static void no_bind(struct ibv_mw *mw, uint32_t rkey, struct ibv_mr *mr, uint64_t at,
		    uint64_t bytes, unsigned int access)
{
	assert_int_equal(post_bind(&b, 1, mw, rkey, mr, at, bytes, access), 0);
	rig_run(&rig);
	assert_int_equal(took(&b, 1), IBV_WC_MW_BIND_ERR);
	assert_int_equal(b.disconnected, -XP_E_LOCAL_ACCESS);
	assert_int_equal(a.disconnected, -XP_E_PEER_GONE);
	connect_progs(&a, &b);
}

static void binds_that_must_fail(void **state)
{
	struct ibv_mr *no_bind_mr = reg(&b, 0, PAGE, IBV_ACCESS_LOCAL_WRITE);
	struct ibv_mr *read_only = reg(&b, 0, PAGE, IBV_ACCESS_MW_BIND);
	struct ibv_mw *mw, *others;
	uint32_t key;

	(void)state;
	assert_int_equal(ops->mw_alloc(b.pd, NULL, &mw), 0);
	assert_int_equal(ops->mw_alloc(c.pd, NULL, &others), 0);
	key = ibv_inc_rkey(mw->rkey);
	no_bind(mw, key, no_bind_mr, 0, 8, IBV_ACCESS_REMOTE_READ);
	no_bind(mw, key, read_only, 0, 8, IBV_ACCESS_REMOTE_WRITE);
	no_bind(mw, key, read_only, PAGE - 4, 8, IBV_ACCESS_REMOTE_READ);
	no_bind(mw, key, read_only, (uint64_t)-4, 8, IBV_ACCESS_REMOTE_READ);
	no_bind(mw, key, read_only, 4, UINT64_MAX, IBV_ACCESS_REMOTE_READ);
	no_bind(mw, key, read_only, 0, 0, IBV_ACCESS_REMOTE_READ);
	no_bind(mw, key, b.mr, 0, 8, IBV_ACCESS_LOCAL_WRITE);
	no_bind(mw, key, b.mr, 0, 8, IBV_ACCESS_ZERO_BASED | IBV_ACCESS_REMOTE_READ);
	no_bind(mw, key, c.mr, 0, 8, IBV_ACCESS_REMOTE_READ);
	no_bind(mw, mw->rkey, b.mr, 0, 8, IBV_ACCESS_REMOTE_READ);
	no_bind(others, ibv_inc_rkey(others->rkey), b.mr, 0, 8, IBV_ACCESS_REMOTE_READ);
	/* a key of another window is no key of this one */
	assert_int_equal(post_bind(&b, 1, mw, key ^ 0x100, b.mr, 0, 8, IBV_ACCESS_REMOTE_READ),
			 -EINVAL);
	/* the right way, and then once more without an invalidation in between */
	assert_int_equal(post_bind(&b, 2, mw, key, read_only, 0, 8, IBV_ACCESS_REMOTE_READ), 0);
	rig_run(&rig);
	assert_int_equal(took(&b, 2), IBV_WC_SUCCESS);
	no_bind(mw, ibv_inc_rkey(key), read_only, 0, 8, IBV_ACCESS_REMOTE_READ);
	drop(mw);
	drop(others);
	assert_int_equal(ops->mr_dereg(no_bind_mr, NULL), 0);
	assert_int_equal(ops->mr_dereg(read_only, NULL), 0);
}

/* What a bind names can be gone when its turn comes. */
static void a_bind_outlives_its_objects(void **state)
{
	struct ibv_mr *mr = reg(&b, 0, PAGE, IBV_ACCESS_MW_BIND);
	struct ibv_mw *mw;

	(void)state;
	assert_int_equal(ops->mw_alloc(b.pd, NULL, &mw), 0);
	assert_int_equal(post_bind(&b, 1, mw, ibv_inc_rkey(mw->rkey), b.mr, 0, 8,
				   IBV_ACCESS_REMOTE_READ), 0);
	drop(mw);
	rig_run(&rig);
	assert_int_equal(took(&b, 1), IBV_WC_MW_BIND_ERR);
	connect_progs(&a, &b);
	assert_int_equal(ops->mw_alloc(b.pd, NULL, &mw), 0);
	assert_int_equal(post_bind(&b, 1, mw, ibv_inc_rkey(mw->rkey), mr, 0, 8,
				   IBV_ACCESS_REMOTE_READ), 0);
	assert_int_equal(ops->mr_dereg(mr, NULL), 0);
	rig_run(&rig);
	assert_int_equal(took(&b, 1), IBV_WC_MW_BIND_ERR);
	drop(mw);
}

static void a_region_waits_for_its_windows(void **state)
{
	struct ibv_mw *w1, *w2;

	(void)state;
	w1 = window(&b, 0, 8, IBV_ACCESS_REMOTE_READ);
	w2 = window(&b2, 0, 8, IBV_ACCESS_REMOTE_READ);
	assert_int_equal(ops->mr_dereg(b.mr, NULL), -EBUSY);
	assert_int_equal(post_inv(&b, 1, w1->rkey), 0);
	rig_run(&rig);
	assert_int_equal(took(&b, 1), IBV_WC_SUCCESS);
	assert_int_equal(ops->mr_dereg(b.mr, NULL), -EBUSY);
	prog_ep_end(&b2); /* and with it, its windows */
	assert_int_equal(ops->mr_dereg(b.mr, NULL), 0);
	b.mr = NULL;
	drop(w1);
	drop(w2);
}

static void local_invalidation(void **state)
{
	struct ibv_mw *mw = window(&b, 0, 8, IBV_ACCESS_REMOTE_READ);
	struct ibv_mw *other = window(&b2, 0, 8, IBV_ACCESS_REMOTE_READ);

	(void)state;
	/* twice: the peer may have been faster, which is no error */
	assert_int_equal(post_inv(&b, 1, mw->rkey), 0);
	assert_int_equal(post_inv(&b, 2, mw->rkey), 0);
	rig_run(&rig);
	assert_int_equal(took(&b, 1), IBV_WC_SUCCESS);
	assert_int_equal(took(&b, 2), IBV_WC_SUCCESS);
	const uint32_t bad[] = { b.mr->rkey, other->rkey, ibv_inc_rkey(mw->rkey), 0 };
	for (size_t i = 0; i < XC_ARRAY_SIZE(bad); i++) {
		assert_int_equal(post_inv(&b, 3, bad[i]), 0);
		rig_run(&rig);
		assert_int_equal(took(&b, 3), IBV_WC_LOC_QP_OP_ERR);
		connect_progs(&a, &b);
	}
	drop(mw);
	drop(other);
}

/* A window taken away while its LOCAL_INV waits behind a SEND that its peer has no RECV for. */
static void local_invalidation_overtaken(void **state)
{
	struct ibv_mw *mw = window(&b, 0, 8, IBV_ACCESS_REMOTE_READ);

	(void)state;
	assert_int_equal(post_send(&b, 1, 0, 8), 0);
	assert_int_equal(post_inv(&b, 2, mw->rkey), 0);
	rig_run(&rig);
	assert_int_equal(ops->mw_dealloc(mw, NULL), 0);
	assert_int_equal(post_recv(&a, 3, 0, 8), 0);
	rig_run(&rig);
	assert_int_equal(took(&b, 1), IBV_WC_SUCCESS);
	assert_int_equal(took(&b, 2), IBV_WC_SUCCESS);
	assert_int_equal(took(&a, 3), IBV_WC_SUCCESS);
}

static void remote_invalidation(void **state)
{
	struct ibv_mw *mw = window(&b, 0, 8, IBV_ACCESS_REMOTE_READ);
	struct ibv_wc wc;

	(void)state;
	assert_int_equal(post_recv(&b, 2, 0, 100), 0);
	assert_int_equal(post_send_inv(&a, 1, 0, 10, mw->rkey), 0);
	rig_run(&rig);
	assert_int_equal(took(&a, 1), IBV_WC_SUCCESS);
	assert_int_equal(take(&b, 2, &wc), IBV_WC_SUCCESS);
	assert_int_equal(wc.byte_len, 10);
	assert_true(wc.wc_flags & IBV_WC_WITH_INV);
	assert_int_equal(wc.invalidated_rkey, mw->rkey);
	/* dead keys, plain regions, nonsense: the sender's mistake */
	const uint32_t bad[] = { mw->rkey, b.mr->rkey, 0 };
	for (size_t i = 0; i < XC_ARRAY_SIZE(bad); i++) {
		assert_int_equal(post_recv(&b, 2, 0, 100), 0);
		assert_int_equal(post_send_inv(&a, 1, 0, 10, bad[i]), 0);
		rig_run(&rig);
		assert_int_equal(took(&a, 1), IBV_WC_REM_INV_REQ_ERR);
		assert_int_equal(took(&b, 2), IBV_WC_WR_FLUSH_ERR);
		assert_int_equal(a.disconnected, -XP_E_REMOTE_ACCESS);
		assert_int_equal(b.disconnected, -XP_E_PEER_GONE);
		connect_progs(&a, &b);
	}
	drop(mw);
}

/* The window dies while the message that would invalidate it is on its way. */
static void remote_invalidation_is_checked_at_its_end(void **state)
{
	struct ibv_mw *mw = window(&b, 0, 8, IBV_ACCESS_REMOTE_READ);

	(void)state;
	assert_int_equal(post_recv(&b, 2, 0, BIG), 0);
	assert_int_equal(post_send_inv(&a, 1, 0, BIG, mw->rkey), 0);
	rig_turn(&rig, 1000);
	drop(mw);
	rig_run(&rig);
	assert_int_equal(took(&a, 1), IBV_WC_REM_INV_REQ_ERR);
	assert_int_equal(took(&b, 2), IBV_WC_WR_FLUSH_ERR);
}

static void registrations_that_must_fail(void **state)
{
	static const struct {
		uint64_t offset, length, iova;
		int access;
	} cases[] = {
		{ 0, 0, IOVA, 0 },
		{ 0, BIG + 1, IOVA, 0 },
		{ BIG, 1, IOVA, 0 },
		{ 1, UINT64_MAX, IOVA + 1, 0 },
		{ 1, 8, IOVA, 0 }, /* another offset in its page */
		{ 0, PAGE, UINT64_MAX - PAGE + 1, 0 },
		{ 0, 8, IOVA, IBV_ACCESS_REMOTE_WRITE },
		{ 0, 8, IOVA, IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_LOCAL_WRITE },
		{ 0, 8, IOVA, IBV_ACCESS_ON_DEMAND },
	};
	struct ibv_mr *mr = NULL;

	(void)state;
	for (size_t i = 0; i < XC_ARRAY_SIZE(cases); i++) {
		assert_int_equal(ops->mr_reg(a.pd, a.region, cases[i].offset, cases[i].length,
					     cases[i].iova, cases[i].access, NULL, &mr), -EINVAL);
		assert_null(mr);
	}
}

/* Keys begin where their user says, each in an address space of its own. */
static void each_key_has_its_addresses(void **state)
{
	struct ibv_mr *mr;
	uint32_t dead;

	(void)state;
	fill(&b, 2 * PAGE + 8, 100, 9);
	assert_int_equal(ops->mr_reg(b.pd, b.region, 2 * PAGE + 8, 100, 8, IBV_ACCESS_REMOTE_READ,
				     NULL, &mr), 0);
	assert_ptr_equal(mr->addr, (void *)8);
	assert_int_equal(mr->length, 100);
	assert_int_equal(post_rdma(&a, IBV_WR_RDMA_READ, 1, 0, 100, 8 - IOVA, mr->rkey), 0);
	rig_run(&rig);
	assert_int_equal(took(&a, 1), IBV_WC_SUCCESS);
	assert_true(filled(&a, 0, 100, 9));
	dead = mr->rkey;
	assert_int_equal(ops->mr_dereg(mr, NULL), 0);
	assert_false(reads(8 - IOVA, 100, dead));
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(attacks_fail),
		TEST(a_refused_access_ends_the_connection),
		TEST(ranges_do_not_wrap),
		TEST(keys_that_never_were),
		TEST(without_bytes_no_key_matters),
		TEST(bad_local_memory),
		TEST(windows_work),
		TEST(a_key_rotates_for_ever),
		TEST(binds_that_must_fail),
		TEST(a_bind_outlives_its_objects),
		TEST(a_region_waits_for_its_windows),
		TEST(local_invalidation),
		TEST(local_invalidation_overtaken),
		TEST(remote_invalidation),
		TEST(remote_invalidation_is_checked_at_its_end),
		TEST(registrations_that_must_fail),
		TEST(each_key_has_its_addresses),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
