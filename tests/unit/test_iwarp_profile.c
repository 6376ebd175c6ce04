/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Profiles: the table, and what the fabric does under one that it does not do otherwise. The
 * contract under each of them is tests/fabric's matter.
 */
#include <errno.h>
#include <string.h>

#include "proto/errors.h"
#include "tests/unit/iwarp_rig.h"

#define BYTES (64u << 10)
#define SECRET 0x55
#define FRESH 0xee

static struct rig rig;
static struct prog a, b;
static const struct fabric_caps *caps;

static void begin(const char *profile)
{
	rig_profile = profile ? iwarp_profile_find(profile) : NULL;
	assert_true(!profile || rig_profile);
	rig_init(&rig);
	caps = rig.ops->caps(rig.f);
	prog_init(&a, &rig, 1000, BYTES);
	prog_init(&b, &rig, 1001, BYTES);
	connect_progs(&a, &b);
	memset(a.mem, FRESH, a.bytes);
	memset(b.mem, SECRET, b.bytes);
}

static void end(void)
{
	rig_done(&rig);
	rig_profile = NULL;
}

/* ---- the table */

static void all_are_found(void **state)
{
	static const char *const names[] = {
		"mthca", "mlx4", "mlx5", "cxgb4", "siw", "rxe", "worst",
	};
	size_t n = 0;

	(void)state;
	for (const struct iwarp_profile *p = iwarp_profiles; p->name; p++, n++)
		assert_ptr_equal(iwarp_profile_find(p->name), p);
	assert_int_equal(n, sizeof(names) / sizeof(names[0]));
	for (size_t i = 0; i < n; i++)
		assert_non_null(iwarp_profile_find(names[i]));
	assert_null(iwarp_profile_find("mlx"));
	assert_null(iwarp_profile_find(""));
}

/* What is left of `before` under a profile promises nothing that was not promised. */
static void assert_less(const struct fabric_caps *before, const struct fabric_caps *after)
{
	assert_true(after->keys >= before->keys);
	assert_true(after->max_sge <= before->max_sge && after->max_sge > 0);
	assert_true(after->max_sge_rd <= before->max_sge_rd && after->max_sge_rd > 0);
	assert_true(after->max_recv_sge <= before->max_recv_sge && after->max_recv_sge > 0);
	assert_true(after->max_send_wr <= before->max_send_wr && after->max_send_wr > 0);
	assert_true(after->max_recv_wr <= before->max_recv_wr && after->max_recv_wr > 0);
	assert_true(after->max_inline <= before->max_inline);
	assert_true(after->max_ranges <= before->max_ranges);
	assert_true(after->max_message_bytes <= before->max_message_bytes);
	assert_true(after->private_connect_bytes <= before->private_connect_bytes);
	assert_true(after->private_accept_bytes <= before->private_accept_bytes);
	assert_true(after->private_reject_bytes <= before->private_reject_bytes);
	assert_true(after->pins >= before->pins);
	assert_true(after->remote_invalidate <= before->remote_invalidate);
	assert_true(!after->remote_invalidate || after->keys == FABRIC_KEYS_WINDOW);
	assert_true(after->immediate <= before->immediate);
	assert_true(after->read_sink_remote_write >= before->read_sink_remote_write);
	assert_true(after->receiver_not_ready <= before->receiver_not_ready);
	assert_true(after->acknowledged <= before->acknowledged);
	assert_true(after->signal_all >= before->signal_all);
	assert_true(after->private_data_padded >= before->private_data_padded);
	assert_string_equal(after->name, before->name);
	assert_int_equal(after->kind, before->kind);
}

static void they_only_take_away(void **state)
{
	static const struct fabric_caps most = {
		.name = "most", .max_sge = 255, .max_sge_rd = 255, .max_recv_sge = 255,
		.max_send_wr = UINT32_MAX, .max_recv_wr = UINT32_MAX, .max_inline = UINT32_MAX,
		.max_ranges = UINT32_MAX,
		.max_message_bytes = UINT64_MAX, .private_connect_bytes = 512,
		.private_accept_bytes = 512, .private_reject_bytes = 512,
		.remote_invalidate = true, .immediate = true, .receiver_not_ready = true,
		.acknowledged = true, .conn_gone = true,
	};
	static const struct fabric_caps least = {
		.name = "least", .keys = FABRIC_KEYS_SLAB, .max_sge = 1, .max_sge_rd = 1,
		.max_recv_sge = 1, .max_send_wr = 1, .max_recv_wr = 1, .max_message_bytes = 1,
		.pins = true, .read_sink_remote_write = true, .signal_all = true,
		.private_data_padded = true,
	};

	(void)state;
	for (const struct iwarp_profile *p = iwarp_profiles; p->name; p++) {
		struct fabric_caps c = most;

		iwarp_profile_apply(p, &c);
		assert_less(&most, &c);
		assert_int_equal(c.keys, p->keys);
		assert_int_equal(c.max_sge, p->max_sge);
		assert_int_equal(c.max_sge_rd, p->max_sge_rd);
		assert_int_equal(c.acknowledged, p->acknowledged);
		assert_int_equal(c.max_inline, p->max_inline);
		assert_int_equal(c.max_ranges, p->max_ranges);
		assert_memory_equal(&c.costs, &p->costs, sizeof(c.costs));
		/* what there is costs something, and what there is not nothing */
		assert_true(p->costs.wr_ns && p->costs.reg_ns && p->costs.reg_page_ns &&
			    p->costs.copy_ns && p->costs.copy_kib_ns && p->costs.copy_cold_kib_ns);
		assert_int_equal(!p->costs.bind_ns, p->keys != FABRIC_KEYS_WINDOW);
		assert_int_equal(!p->costs.ranges_ns, !p->max_ranges);
		assert_int_equal(!p->costs.range_ns, !p->max_ranges);
		assert_non_null(strstr(c.driver, p->name));
		/* a device that acknowledges has nothing to tell later */
		assert_true(!p->acknowledged || !p->refusals_come_late);
		c = least;
		iwarp_profile_apply(p, &c);
		assert_less(&least, &c);
		assert_int_equal(c.max_sge, 1);
	}
	{
		struct fabric_caps c = most;

		iwarp_profile_apply(NULL, &c);
		assert_memory_equal(&c, &most, sizeof(c));
	}
}

/* ---- what they do */

static int read_into(uint64_t id, const struct ibv_mr *mr, uint32_t bytes)
{
	struct ibv_sge sge = { (uintptr_t)mr->addr, bytes, mr->lkey };
	struct ibv_send_wr wr = {
		.wr_id = id, .opcode = IBV_WR_RDMA_READ, .sg_list = &sge, .num_sge = 1,
		.send_flags = IBV_SEND_SIGNALED,
		.wr.rdma = { (uintptr_t)b.mr->addr, b.mr->rkey },
	};

	assert_int_equal(post(&a, &wr), 0);
	rig_run(&rig);
	return took(&a, id);
}

/* The sink of a READ without the right to be written remotely. */
static int read_into_local(const char *profile)
{
	const int local = IBV_ACCESS_LOCAL_WRITE, remote = local | IBV_ACCESS_REMOTE_WRITE;
	struct ibv_mr *good, *bad;
	int status;

	begin(profile);
	good = reg(&a, PAGE, 100, remote);
	bad = reg(&a, 2 * PAGE, 100, local);
	/* with it, it works in any case */
	assert_int_equal(read_into(1, good, 100), IBV_WC_SUCCESS);
	assert_int_equal(a.mem[PAGE], SECRET);
	status = read_into(2, bad, 100);
	assert_int_equal(a.mem[2 * PAGE], status == IBV_WC_SUCCESS ? SECRET : FRESH);
	assert_int_equal(a.mem[2 * PAGE + 99], status == IBV_WC_SUCCESS ? SECRET : FRESH);
	if (status != IBV_WC_SUCCESS) {
		assert_int_equal(a.disconnected, -XP_E_LOCAL_ACCESS);
		assert_int_equal(b.disconnected, -XP_E_PEER_GONE);
	}
	assert_int_equal(rig.ops->mr_dereg(good, NULL), 0);
	assert_int_equal(rig.ops->mr_dereg(bad, NULL), 0);
	end();
	return status;
}

static void sinks_need_the_right(void **state)
{
	(void)state;
	assert_int_equal(read_into_local(NULL), IBV_WC_SUCCESS);
	assert_int_equal(read_into_local("mlx5"), IBV_WC_SUCCESS);
	assert_int_equal(read_into_local("siw"), IBV_WC_SUCCESS);
	assert_int_equal(read_into_local("cxgb4"), IBV_WC_LOC_PROT_ERR);
}

/* The sink alone: sources of WRITEs and SENDs, and RECVs, never have remote rights. */
static void nothing_else_needs_it(void **state)
{
	struct ibv_mr *src, *dst;
	struct ibv_sge from, to;
	struct ibv_recv_wr recv = { .wr_id = 3, .sg_list = &to, .num_sge = 1 }, *bad_recv;
	struct ibv_send_wr send = { .wr_id = 1, .opcode = IBV_WR_SEND, .sg_list = &from,
				    .num_sge = 1, .send_flags = IBV_SEND_SIGNALED };

	(void)state;
	begin("cxgb4");
	src = reg(&a, 0, 100, 0);
	dst = reg(&b, PAGE, 100, IBV_ACCESS_LOCAL_WRITE);
	from = (struct ibv_sge){ (uintptr_t)src->addr, 100, src->lkey };
	to = (struct ibv_sge){ (uintptr_t)dst->addr, 100, dst->lkey };
	assert_int_equal(rig.ops->post_recv(b.ep, &recv, &bad_recv), 0);
	assert_int_equal(post(&a, &send), 0);
	send.wr_id = 2;
	send.opcode = IBV_WR_RDMA_WRITE;
	send.wr.rdma.remote_addr = (uintptr_t)b.mr->addr;
	send.wr.rdma.rkey = b.mr->rkey;
	assert_int_equal(post(&a, &send), 0);
	rig_run(&rig);
	assert_int_equal(took(&a, 1), IBV_WC_SUCCESS);
	assert_int_equal(took(&a, 2), IBV_WC_SUCCESS);
	assert_int_equal(took(&b, 3), IBV_WC_SUCCESS);
	assert_int_equal(b.mem[PAGE + 99], FRESH);
	assert_int_equal(b.mem[99], FRESH);
	assert_int_equal(rig.ops->mr_dereg(src, NULL), 0);
	assert_int_equal(rig.ops->mr_dereg(dst, NULL), 0);
	end();
}

/* A key that the peer knows nothing of: never done, but differently told. */
static int refused(const char *profile, enum ibv_wr_opcode op)
{
	int status;

	begin(profile);
	assert_int_equal(post_rdma(&a, op, 1, 0, 100, 0, b.mr->rkey + 1), 0);
	rig_run(&rig);
	status = took(&a, 1);
	assert_int_equal(a.mem[0], FRESH);
	assert_int_equal(b.mem[0], SECRET);
	assert_int_equal(a.n_disconnected, 1);
	assert_int_equal(a.disconnected, -XP_E_REMOTE_ACCESS);
	assert_int_equal(b.disconnected, -XP_E_PEER_GONE);
	end();
	return status;
}

static void refusals_come_when_they_come(void **state)
{
	(void)state;
	assert_int_equal(refused(NULL, IBV_WR_RDMA_WRITE), IBV_WC_REM_ACCESS_ERR);
	assert_int_equal(refused(NULL, IBV_WR_RDMA_READ), IBV_WC_REM_ACCESS_ERR);
	assert_int_equal(refused("rxe", IBV_WR_RDMA_WRITE), IBV_WC_REM_ACCESS_ERR);
	assert_int_equal(refused("rxe", IBV_WR_RDMA_READ), IBV_WC_REM_ACCESS_ERR);
	assert_int_equal(refused("siw", IBV_WR_RDMA_WRITE), IBV_WC_SUCCESS);
	assert_int_equal(refused("siw", IBV_WR_RDMA_READ), IBV_WC_WR_FLUSH_ERR);
}

/* A SEND that finds no RECV. */
static int unready(const char *profile)
{
	int status;

	begin(profile);
	assert_int_equal(post_send(&a, 1, 0, 100), 0);
	rig_run(&rig);
	assert_int_equal(took(&a, 1), -1);
	fake_engine_advance(&rig.engine, (RNR_MS + 1) * UINT64_C(1000000));
	rig_run(&rig);
	status = took(&a, 1);
	assert_int_equal(a.disconnected, -XP_E_RECEIVER_NOT_READY);
	assert_int_equal(b.disconnected, -XP_E_PEER_GONE);
	end();
	return status;
}

static void unready_receivers_are_told_or_not(void **state)
{
	(void)state;
	assert_int_equal(unready(NULL), IBV_WC_RNR_RETRY_EXC_ERR);
	assert_int_equal(unready("mlx4"), IBV_WC_RNR_RETRY_EXC_ERR);
	assert_int_equal(unready("siw"), IBV_WC_SUCCESS);
	assert_int_equal(unready("cxgb4"), IBV_WC_SUCCESS);
}

static int post_list(enum ibv_wr_opcode op, int n, unsigned int flags)
{
	struct ibv_sge sges[4];
	struct ibv_send_wr wr = { .wr_id = 9, .opcode = op, .sg_list = sges, .num_sge = n,
				  .send_flags = flags,
				  .wr.rdma = { (uintptr_t)b.mr->addr, b.mr->rkey } };

	for (int i = 0; i < 4; i++)
		sges[i] = (struct ibv_sge){ (uintptr_t)a.mr->addr, 8, a.mr->lkey };
	return post(&a, &wr);
}

/* What the caps do not promise is refused when it is posted. */
static void limits_are_kept(void **state)
{
	struct ibv_mw *mw = NULL;

	(void)state;
	begin("siw");
	assert_int_equal(caps->max_sge_rd, 1);
	assert_int_equal(post_list(IBV_WR_RDMA_READ, 2, IBV_SEND_SIGNALED), -EINVAL);
	assert_int_equal(post_list(IBV_WR_RDMA_READ, 1, IBV_SEND_SIGNALED), 0);
	assert_int_equal(post_list(IBV_WR_RDMA_WRITE, 4, IBV_SEND_SIGNALED), 0);
	assert_int_equal(post_list(IBV_WR_RDMA_WRITE, 1, 0), -EINVAL);
	assert_int_equal(post_send_inv(&a, 1, 0, 8, 77), -EOPNOTSUPP);
	assert_int_equal(post_inv(&a, 1, 77), -EOPNOTSUPP);
	assert_int_equal(rig.ops->mw_alloc(a.pd, NULL, &mw), -EOPNOTSUPP);
	rig_run(&rig);
	assert_int_equal(took(&a, 9), IBV_WC_SUCCESS);
	assert_int_equal(took(&a, 9), IBV_WC_SUCCESS);
	assert_int_equal(a.n_disconnected, 0);
	end();
	/* and without a profile */
	begin(NULL);
	assert_int_equal(post_list(IBV_WR_RDMA_READ, 4, 0), 0);
	assert_int_equal(rig.ops->mw_alloc(a.pd, NULL, &mw), 0);
	assert_int_equal(rig.ops->mw_dealloc(mw, NULL), 0);
	end();
}

/* InfiniBand's private data has one length. */
static void private_data_is_padded(void **state)
{
	static const uint8_t zeros[256];
	struct fabric_listener *l;
	struct xc_addr at = local_port(7000);

	(void)state;
	rig_profile = iwarp_profile_find("rxe");
	rig_init(&rig);
	prog_init(&a, &rig, 1000, BYTES);
	prog_init(&b, &rig, 1001, BYTES);
	prog_ep(&a);
	prog_ep(&b);
	l = prog_listen(&b, 7000);
	assert_int_equal(rig.ops->ep_connect(a.ep, &at, zeros, 57), -EINVAL);
	assert_int_equal(rig.ops->ep_connect(a.ep, &at, "hello", 5), 0);
	rig_run(&rig);
	assert_int_equal(b.private_data_bytes, 56);
	assert_memory_equal(b.private_data, "hello", 5);
	assert_memory_equal(b.private_data + 5, zeros, 51);
	assert_int_equal(rig.ops->ep_accept(b.ep, b.conn, zeros, 197), -EINVAL);
	assert_int_equal(rig.ops->ep_accept(b.ep, b.conn, "welcome", 7), 0);
	rig_run(&rig);
	assert_int_equal(a.private_data_bytes, 196);
	assert_memory_equal(a.private_data, "welcome", 7);
	assert_memory_equal(a.private_data + 7, zeros, 189);
	rig.ops->listener_free(l);
	end();
}

/* ---- costs */

struct told {
	struct fabric_done done;
	int n, status;
};

static void tell(struct fabric_done *done, int status)
{
	struct told *t = xc_container_of(done, struct told, done);

	t->n++;
	t->status = status;
}

static void costs_of_a_device(void **state)
{
	struct told t = { .done.fn = tell };
	struct fabric_costs c = { 0 };

	(void)state;
	begin("mlx5");
	assert_int_equal(rig.ops->measure(rig.f, &t.done, &c), 0);
	assert_memory_equal(&c, &iwarp_profile_find("mlx5")->costs, sizeof(c));
	assert_memory_equal(&c, &caps->costs, sizeof(c));
	assert_int_equal(t.n, 0);
	end();
}

static void costs_of_our_own(void **state)
{
	const struct fabric_costs none = { 0 };
	struct told t = { .done.fn = tell };
	struct fabric_costs c = none;

	(void)state;
	begin(NULL);
	assert_memory_equal(&caps->costs, &none, sizeof(none));
	assert_int_equal(rig.ops->measure(rig.f, &t.done, &c), -EINPROGRESS);
	assert_int_equal(rig.ops->measure(rig.f, &t.done, &c), -EBUSY);
	assert_int_equal(t.n, 0);
	fake_engine_run_jobs(&rig.engine);
	assert_int_equal(t.n, 1);
	assert_int_equal(t.status, 0);
	assert_true(c.wr_ns && c.ranges_ns && c.bind_ns && c.copy_cold_kib_ns);
	assert_memory_equal(&c, &caps->costs, sizeof(c));
	end();
}

/* Whoever asked is not there any more. */
static void costs_of_what_was_closed(void **state)
{
	struct told t = { .done.fn = tell };
	struct fabric_costs c = { 0 };

	(void)state;
	begin(NULL);
	assert_int_equal(rig.ops->measure(rig.f, &t.done, &c), -EINPROGRESS);
	prog_done(&b);
	prog_done(&a);
	rig_run(&rig);
	rig.ops->close(rig.f);
	fake_engine_run_jobs(&rig.engine);
	assert_int_equal(t.n, 0);
	assert_int_equal(c.wr_ns, 0);
	fake_engine_done(&rig.engine);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(all_are_found),
		cmocka_unit_test(they_only_take_away),
		cmocka_unit_test(sinks_need_the_right),
		cmocka_unit_test(nothing_else_needs_it),
		cmocka_unit_test(refusals_come_when_they_come),
		cmocka_unit_test(unready_receivers_are_told_or_not),
		cmocka_unit_test(limits_are_kept),
		cmocka_unit_test(private_data_is_padded),
		cmocka_unit_test(costs_of_a_device),
		cmocka_unit_test(costs_of_our_own),
		cmocka_unit_test(costs_of_what_was_closed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
