/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Work requests of the iwarp fabric: order, completions, lists, waiting, flushing, turns.
 */
#define _GNU_SOURCE 1
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "daemon/fabric/region.h"
#include "proto/errors.h"
#include "tests/unit/iwarp_rig.h"

#define BYTES (4u * QUANTUM)
#define MS UINT64_C(1000000)

static struct rig rig;
static struct prog a, b;
static const struct fabric_ops *ops;

/* What the code of this program allocates (the linker sends it here, see Makefile.inc). */
static unsigned long allocations;

void *__real_malloc(size_t size);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t size);

void *__wrap_malloc(size_t size)
{
	allocations++;
	return __real_malloc(size);
}

void *__wrap_calloc(size_t n, size_t size)
{
	allocations++;
	return __real_calloc(n, size);
}

void *__wrap_realloc(void *p, size_t size)
{
	allocations++;
	return __real_realloc(p, size);
}

static int setup(void **state)
{
	(void)state;
	rig_init(&rig);
	ops = rig.ops;
	prog_init(&a, &rig, 1000, BYTES);
	prog_init(&b, &rig, 1001, BYTES);
	connect_progs(&a, &b);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	rig_done(&rig);
	return 0;
}

static int read_b(uint64_t id, uint64_t at, uint32_t bytes)
{
	return post_rdma(&a, IBV_WR_RDMA_READ, id, at, bytes, at, b.mr->rkey);
}

static int write_b(uint64_t id, uint64_t at, uint32_t bytes)
{
	return post_rdma(&a, IBV_WR_RDMA_WRITE, id, at, bytes, at, b.mr->rkey);
}

/*
 * ------------------------------------------------------------------------------- what moves where
 */

static void moves_bytes(void **state)
{
	struct ibv_wc wc;

	(void)state;
	fill(&b, 0, 1000, 1);
	assert_int_equal(read_b(1, 0, 1000), 0);
	rig_run(&rig);
	assert_int_equal(take(&a, 1, &wc), IBV_WC_SUCCESS);
	assert_int_equal(wc.opcode, IBV_WC_RDMA_READ);
	assert_int_equal(wc.byte_len, 1000);
	assert_true(filled(&a, 0, 1000, 1));

	fill(&a, 3, BYTES - 3, 2);
	assert_int_equal(write_b(2, 3, BYTES - 3), 0);
	rig_run(&rig);
	assert_int_equal(take(&a, 2, &wc), IBV_WC_SUCCESS);
	assert_int_equal(wc.opcode, IBV_WC_RDMA_WRITE);
	assert_true(filled(&b, 3, BYTES - 3, 2));
	assert_int_equal(b.n_wcs, 0);

	fill(&a, 0, 500, 3);
	assert_int_equal(post_recv(&b, 4, 100, 600), 0);
	assert_int_equal(post_send(&a, 3, 0, 500), 0);
	rig_run(&rig);
	assert_int_equal(take(&a, 3, &wc), IBV_WC_SUCCESS);
	assert_int_equal(wc.opcode, IBV_WC_SEND);
	assert_int_equal(take(&b, 4, &wc), IBV_WC_SUCCESS);
	assert_int_equal(wc.opcode, IBV_WC_RECV);
	assert_int_equal(wc.byte_len, 500);
	assert_false(wc.wc_flags & IBV_WC_WITH_INV);
	assert_true(filled(&b, 100, 500, 3));
}

/* Both directions of one connection at once. */
static void both_sides_send(void **state)
{
	(void)state;
	for (int i = 0; i < 20; i++) {
		assert_int_equal(post_recv(&a, 100, 0, 8), 0);
		assert_int_equal(post_recv(&b, 100, 0, 8), 0);
		assert_int_equal(post_send(&a, 1, 8, 8), 0);
		assert_int_equal(post_send(&b, 1, 8, 8), 0);
	}
	rig_run(&rig);
	assert_int_equal(a.n_wcs, 40);
	assert_int_equal(b.n_wcs, 40);
	for (int i = 0; i < 40; i++)
		assert_int_equal(a.wcs[i].status, IBV_WC_SUCCESS);
}

/* Random lists of segments, empty ones among them, against a copy byte by byte. */
static int random_list(struct ibv_sge sges[4], uint32_t lkey, uint64_t bytes)
{
	uint64_t at = fake_engine_next(&rig.engine) % 100, left = bytes;
	int n = 0;

	while (n < 3 && left) {
		uint64_t piece = fake_engine_next(&rig.engine) % (left + 1);

		sges[n++] = (struct ibv_sge){ IOVA + at, (uint32_t)piece, lkey };
		at += piece + fake_engine_next(&rig.engine) % 50;
		left -= piece;
	}
	sges[n++] = (struct ibv_sge){ IOVA + at, (uint32_t)left, lkey };
	return n;
}

static void gather(const struct prog *p, const struct ibv_sge *sges, int n, uint8_t *to)
{
	for (int i = 0; i < n; i++) {
		memcpy(to, p->mem + (sges[i].addr - IOVA), sges[i].length);
		to += sges[i].length;
	}
}

static void lists_of_segments(void **state)
{
	static uint8_t from[BYTES], to[BYTES];

	(void)state;
	for (int round = 0; round < 300; round++) {
		uint64_t bytes = fake_engine_next(&rig.engine) % (round % 10 ? 5000 : 2 * QUANTUM);
		struct ibv_sge own[4], other[4];
		struct ibv_send_wr wr = { .wr_id = 1, .send_flags = IBV_SEND_SIGNALED,
					  .sg_list = own, .opcode = IBV_WR_SEND };
		struct ibv_recv_wr recv = { .wr_id = 2, .sg_list = other }, *bad;

		fill(&a, 0, BYTES, (uint8_t)round);
		memset(b.mem, 0, BYTES);
		wr.num_sge = random_list(own, a.mr->lkey, bytes);
		recv.num_sge = random_list(other, b.mr->lkey, bytes);
		if (round % 2) { /* WRITE: the peer's side is one piece */
			wr.opcode = IBV_WR_RDMA_WRITE;
			wr.wr.rdma.remote_addr = IOVA + 77;
			wr.wr.rdma.rkey = b.mr->rkey;
			other[0] = (struct ibv_sge){ IOVA + 77, (uint32_t)bytes, 0 };
			recv.num_sge = 1;
		} else {
			assert_int_equal(ops->post_recv(b.ep, &recv, &bad), 0);
		}
		assert_int_equal(post(&a, &wr), 0);
		rig_run(&rig);
		assert_int_equal(took(&a, 1), IBV_WC_SUCCESS);
		assert_int_equal(took(&b, 2), round % 2 ? -1 : IBV_WC_SUCCESS);
		gather(&a, own, wr.num_sge, from);
		gather(&b, other, recv.num_sge, to);
		assert_memory_equal(from, to, bytes);
	}
}

static void reads_into_lists(void **state)
{
	struct ibv_sge own[4] = { { IOVA, 3, a.mr->lkey }, { IOVA + 10, 0, 0 },
				  { IOVA + 20, 5, a.mr->lkey }, { IOVA + 40, 1, a.mr->lkey } };
	struct ibv_send_wr wr = {
		.wr_id = 1, .opcode = IBV_WR_RDMA_READ, .send_flags = IBV_SEND_SIGNALED,
		.sg_list = own, .num_sge = 4,
		.wr.rdma = { .remote_addr = IOVA + 5, .rkey = b.mr->rkey },
	};
	uint8_t got[9];

	(void)state;
	fill(&b, 5, 9, 6);
	assert_int_equal(post(&a, &wr), 0);
	rig_run(&rig);
	assert_int_equal(took(&a, 1), IBV_WC_SUCCESS);
	gather(&a, own, 4, got);
	assert_memory_equal(got, b.mem + 5, 9);
	assert_int_equal(a.mem[3] | a.mem[19] | a.mem[25], 0);
}

/* A program that is connected to itself, on memory that overlaps. */
static void to_oneself(void **state)
{
	static struct prog twin; /* the rig knows it until its end */

	(void)state;
	prog_init_sharing(&twin, &a);
	connect_progs(&a, &twin);
	fill(&a, 0, 1000, 4);
	assert_int_equal(post_rdma(&a, IBV_WR_RDMA_WRITE, 1, 0, 1000, 10, a.mr->rkey), 0);
	rig_run(&rig);
	assert_int_equal(took(&a, 1), IBV_WC_SUCCESS);
	assert_true(filled(&a, 10, 1000, 4));
	prog_ep_end(&twin);
}

/* --------------------------------------------------------------------------------------- order */

/* Each READ sees what the WRITEs before it wrote, and a READ's sink can be sent on. */
static void in_order(void **state)
{
	(void)state;
	fill(&a, 0, 64, 1);
	assert_int_equal(post_recv(&b, 9, 1024, 64), 0);
	assert_int_equal(post_rdma(&a, IBV_WR_RDMA_WRITE, 1, 0, 64, 0, b.mr->rkey), 0);
	assert_int_equal(post_rdma(&a, IBV_WR_RDMA_READ, 2, 512, 64, 0, b.mr->rkey), 0);
	assert_int_equal(post_send(&a, 3, 512, 64), 0);
	assert_int_equal(post_rdma(&a, IBV_WR_RDMA_WRITE, 4, 700, 64, 0, b.mr->rkey), 0);
	rig_run(&rig);
	for (uint64_t id = 1; id <= 4; id++)
		assert_int_equal(took(&a, id), IBV_WC_SUCCESS);
	assert_int_equal(took(&b, 9), IBV_WC_SUCCESS);
	assert_true(filled(&a, 512, 64, 1));
	assert_true(filled(&b, 1024, 64, 1));
}

static void quiet_ones(void **state)
{
	struct ibv_sge sge = { IOVA, 8, a.mr->lkey };
	struct ibv_send_wr wr = { .wr_id = 1, .sg_list = &sge, .num_sge = 1,
				  .opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_FENCE,
				  .wr.rdma = { IOVA, b.mr->rkey } };

	(void)state;
	assert_int_equal(post(&a, &wr), 0);
	assert_int_equal(write_b(2, 0, 8), 0);
	wr.wr_id = 3;
	assert_int_equal(post(&a, &wr), 0);
	rig_run(&rig);
	assert_int_equal(took(&a, 2), IBV_WC_SUCCESS);
	assert_int_equal(a.n_wcs, 0);
	/* but not when they fail, or flush */
	wr.wr.rdma.rkey = 0;
	wr.wr_id = 4;
	assert_int_equal(post(&a, &wr), 0);
	wr.wr_id = 5;
	assert_int_equal(post(&a, &wr), 0);
	rig_run(&rig);
	assert_int_equal(took(&a, 4), IBV_WC_REM_ACCESS_ERR);
	assert_int_equal(took(&a, 5), IBV_WC_WR_FLUSH_ERR);
}

/* RECVs that were posted before there was a connection are the first. */
static void recv_before_connect(void **state)
{
	struct fabric_listener *l = prog_listen(&b, 7);
	const struct xc_addr at = local_port(7);

	(void)state;
	prog_ep(&a);
	prog_ep(&b);
	assert_int_equal(post_recv(&b, 1, 0, 8), 0);
	assert_int_equal(post_recv(&a, 1, 0, 8), 0);
	assert_int_equal(ops->ep_connect(a.ep, &at, NULL, 0), 0);
	assert_int_equal(post_recv(&a, 2, 0, 8), 0);
	rig_run(&rig);
	assert_int_equal(ops->ep_accept(b.ep, b.conn, NULL, 0), 0);
	/* Sent before either side was told: it must not arrive before that. */
	assert_int_equal(post_send(&b, 5, 0, 8), 0);
	rig_turn(&rig, 0);
	assert_int_equal(a.established, 0);
	assert_int_equal(a.n_wcs, 0);
	assert_int_equal(post_send(&b, 6, 0, 8), 0);
	assert_int_equal(post_send(&a, 7, 0, 8), 0);
	rig_run(&rig);
	assert_int_equal(a.wcs[0].wr_id, 1);
	assert_int_equal(a.wcs[1].wr_id, 2);
	assert_int_equal(a.wcs[2].wr_id, 7);
	assert_int_equal(b.wcs[0].wr_id, 5);
	assert_int_equal(b.wcs[1].wr_id, 6);
	assert_int_equal(b.wcs[2].wr_id, 1);
	ops->listener_free(l);
}

static void flushes_in_order(void **state)
{
	(void)state;
	assert_int_equal(post_recv(&a, 11, 0, 8), 0);
	assert_int_equal(post_recv(&a, 12, 0, 8), 0);
	for (uint64_t id = 1; id <= 5; id++)
		assert_int_equal(read_b(id, 0, BYTES), 0);
	rig_turn(&rig, 1000); /* the first is under way */
	ops->ep_error(a.ep);
	rig_run(&rig);
	for (uint64_t id = 1; id <= 5; id++)
		assert_int_equal(took(&a, id), IBV_WC_WR_FLUSH_ERR);
	assert_int_equal(took(&a, 11), IBV_WC_WR_FLUSH_ERR);
	assert_int_equal(took(&a, 12), IBV_WC_WR_FLUSH_ERR);
	/* and what comes later flushes as well */
	assert_int_equal(read_b(6, 0, 8), 0);
	assert_int_equal(post_recv(&a, 7, 0, 8), 0);
	rig_run(&rig);
	assert_int_equal(took(&a, 6), IBV_WC_WR_FLUSH_ERR);
	assert_int_equal(took(&a, 7), IBV_WC_WR_FLUSH_ERR);
}

/* -------------------------------------------------------------------------------------- posting */

static void what_cannot_be_posted(void **state)
{
	static const enum ibv_wr_opcode unknown[] = {
		IBV_WR_SEND_WITH_IMM, IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WR_ATOMIC_CMP_AND_SWP,
		IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WR_TSO, (enum ibv_wr_opcode)99,
	};
	struct ibv_sge sges[5] = { { IOVA, UINT32_MAX, a.mr->lkey }, { IOVA, 1, a.mr->lkey } };
	struct ibv_send_wr wr = { .sg_list = sges };

	(void)state;
	for (size_t i = 0; i < XC_ARRAY_SIZE(unknown); i++) {
		wr.opcode = unknown[i];
		assert_int_equal(post(&a, &wr), -EOPNOTSUPP);
	}
	wr.opcode = IBV_WR_SEND;
	wr.num_sge = 5;
	assert_int_equal(post(&a, &wr), -EINVAL);
	wr.num_sge = -1;
	assert_int_equal(post(&a, &wr), -EINVAL);
	wr.num_sge = 2;
	assert_int_equal(post(&a, &wr), -EMSGSIZE);
	wr.num_sge = 0;
	wr.opcode = IBV_WR_RDMA_READ;
	wr.send_flags = IBV_SEND_INLINE;
	assert_int_equal(post(&a, &wr), -EINVAL);
	rig_run(&rig);
	assert_int_equal(a.n_wcs, 0);
	assert_int_equal(a.n_disconnected, 0);
	prog_ep(&a);
	assert_int_equal(post_send(&a, 1, 0, 8), -ENOTCONN);
}

static void a_chain_ends_at_the_bad_one(void **state)
{
	struct ibv_sge sge = { IOVA, 8, a.mr->lkey };
	struct ibv_send_wr wrs[4], *bad;
	struct ibv_recv_wr recvs[3], *bad_recv;

	(void)state;
	for (int i = 0; i < 4; i++)
		wrs[i] = (struct ibv_send_wr){
			.wr_id = (uint64_t)i, .next = i < 3 ? &wrs[i + 1] : NULL, .sg_list = &sge,
			.num_sge = 1, .send_flags = IBV_SEND_SIGNALED, .opcode = IBV_WR_RDMA_READ,
			.wr.rdma = { IOVA, b.mr->rkey },
		};
	wrs[2].opcode = IBV_WR_SEND_WITH_IMM;
	assert_int_equal(ops->post_send(a.ep, wrs, &bad), -EOPNOTSUPP);
	assert_ptr_equal(bad, &wrs[2]);
	for (int i = 0; i < 3; i++)
		recvs[i] = (struct ibv_recv_wr){ .wr_id = (uint64_t)i, .sg_list = &sge,
						 .num_sge = i == 1 ? 5 : 1,
						 .next = i < 2 ? &recvs[i + 1] : NULL };
	assert_int_equal(ops->post_recv(a.ep, recvs, &bad_recv), -EINVAL);
	assert_ptr_equal(bad_recv, &recvs[1]);
	rig_run(&rig);
	assert_int_equal(took(&a, 0), IBV_WC_SUCCESS);
	assert_int_equal(took(&a, 1), IBV_WC_SUCCESS);
	assert_int_equal(a.n_wcs, 0);
}

/* A slot is free when its completion was taken: so completions can never overflow. */
static void depth(void **state)
{
	struct ibv_wc wcs[200];

	(void)state;
	for (uint64_t id = 0; id < 64; id++) {
		assert_int_equal(write_b(id, 0, 8), 0);
		assert_int_equal(post_recv(&a, id, 0, 8), 0);
	}
	assert_int_equal(write_b(64, 0, 8), -ENOMEM);
	assert_int_equal(post_recv(&a, 64, 0, 8), -ENOMEM);
	ops->progress(rig.f, 0); /* without taking any */
	while (rig.in_progress = true, ops->progress(rig.f, LOTS))
		;
	rig.in_progress = false;
	assert_int_equal(write_b(64, 0, 8), -ENOMEM);
	assert_int_equal(ops->poll(rig.f, 1, wcs), 1);
	assert_int_equal(write_b(64, 0, 8), 0);
	assert_int_equal(write_b(65, 0, 8), -ENOMEM);
	ops->ep_error(a.ep);
	assert_int_equal(ops->poll(rig.f, 200, wcs), 63 + 1 + 64);
	assert_int_equal(wcs[62].wr_id, 63);
	assert_int_equal(wcs[63].wr_id, 64);
	assert_int_equal(wcs[63].status, IBV_WC_WR_FLUSH_ERR);
	assert_int_equal(wcs[127].opcode, IBV_WC_RECV);
	assert_int_equal(ops->poll(rig.f, 200, wcs), 0);
}

static void nothing_is_polled_of_the_dead(void **state)
{
	struct ibv_wc wc;

	(void)state;
	assert_int_equal(write_b(1, 0, 8), 0);
	rig.in_progress = true;
	ops->progress(rig.f, LOTS);
	ops->progress(rig.f, LOTS);
	rig.in_progress = false;
	prog_ep_end(&a);
	assert_int_equal(ops->poll(rig.f, 1, &wc), 0);
}

static void no_allocation_when_warm(void **state)
{
	struct ibv_mw *mw = window(&b, 0, PAGE, IBV_ACCESS_REMOTE_READ);
	unsigned long before = allocations;

	(void)state;
	assert_true(before > 0); /* the counter counts */
	for (int i = 0; i < 1000; i++) {
		uint32_t next = ibv_inc_rkey(mw->rkey);

		assert_int_equal(post_recv(&b, 1, 0, PAGE), 0);
		assert_int_equal(write_b(2, 0, PAGE), 0);
		assert_int_equal(read_b(3, 0, PAGE), 0);
		assert_int_equal(post_send_inv(&a, 4, 0, PAGE, mw->rkey), 0);
		rig_run(&rig);
		assert_int_equal(took(&a, 2), IBV_WC_SUCCESS);
		assert_int_equal(took(&a, 3), IBV_WC_SUCCESS);
		assert_int_equal(took(&a, 4), IBV_WC_SUCCESS);
		assert_int_equal(took(&b, 1), IBV_WC_SUCCESS);
		assert_int_equal(post_bind(&b, 5, mw, next, b.mr, 0, PAGE, IBV_ACCESS_REMOTE_READ),
				 0);
		rig_run(&rig);
		assert_int_equal(took(&b, 5), IBV_WC_SUCCESS);
		mw->rkey = next;
	}
	assert_int_equal(allocations, before);
	assert_int_equal(ops->mw_dealloc(mw, NULL), 0);
}

/*
 * --------------------------------------------------------------------------- SEND meets RECV, or
 * not
 */

static void too_long(void **state)
{
	(void)state;
	memset(b.mem, 0, 16);
	memset(a.mem, 1, 16);
	assert_int_equal(post_recv(&b, 2, 0, 8), 0);
	assert_int_equal(post_recv(&b, 3, 0, 16), 0);
	assert_int_equal(post_send(&a, 1, 0, 9), 0);
	rig_run(&rig);
	assert_int_equal(took(&a, 1), IBV_WC_REM_INV_REQ_ERR);
	assert_int_equal(took(&b, 2), IBV_WC_LOC_LEN_ERR);
	assert_int_equal(took(&b, 3), IBV_WC_WR_FLUSH_ERR);
	assert_int_equal(a.disconnected, -XP_E_MESSAGE_TOO_LONG);
	assert_int_equal(b.disconnected, -XP_E_MESSAGE_TOO_LONG);
	assert_int_equal(b.mem[0], 0);
}

static void an_empty_message_needs_a_recv(void **state)
{
	struct ibv_wc wc;

	(void)state;
	assert_int_equal(post_send(&a, 1, 0, 0), 0);
	rig_run(&rig);
	assert_int_equal(took(&a, 1), -1);
	assert_int_equal(post_recv(&b, 2, 0, 0), 0);
	rig_run(&rig);
	assert_int_equal(took(&a, 1), IBV_WC_SUCCESS);
	assert_int_equal(take(&b, 2, &wc), IBV_WC_SUCCESS);
	assert_int_equal(wc.byte_len, 0);
}

static void waits_for_a_recv(void **state)
{
	(void)state;
	assert_int_equal(post_send(&a, 1, 0, 8), 0);
	assert_int_equal(write_b(2, 0, 8), 0);
	rig_run(&rig); /* ends: waiting takes no turns */
	assert_int_equal(a.n_wcs, 0);
	fake_engine_advance(&rig.engine, (RNR_MS - 1) * MS);
	rig_run(&rig);
	assert_int_equal(a.n_wcs, 0);
	assert_int_equal(post_recv(&b, 3, 0, 8), 0);
	rig_run(&rig);
	assert_int_equal(took(&a, 1), IBV_WC_SUCCESS);
	assert_int_equal(took(&a, 2), IBV_WC_SUCCESS);
	assert_int_equal(took(&b, 3), IBV_WC_SUCCESS);
	assert_int_equal(fake_engine_next_deadline(&rig.engine), UINT64_MAX);
}

static void waits_in_vain(void **state)
{
	(void)state;
	assert_int_equal(post_send(&a, 1, 0, 8), 0);
	assert_int_equal(write_b(2, 0, 8), 0);
	rig_run(&rig);
	fake_engine_advance(&rig.engine, RNR_MS * MS);
	assert_true(rig.engine.kicked);
	assert_int_equal(a.n_disconnected, 0); /* not from inside the timer */
	rig_run(&rig);
	assert_int_equal(took(&a, 1), IBV_WC_RNR_RETRY_EXC_ERR);
	assert_int_equal(took(&a, 2), IBV_WC_WR_FLUSH_ERR);
	assert_int_equal(a.disconnected, -XP_E_RECEIVER_NOT_READY);
	assert_int_equal(b.disconnected, -XP_E_PEER_GONE);
}

/* Each SEND has the whole time. */
static void each_wait_is_its_own(void **state)
{
	(void)state;
	for (int i = 0; i < 5; i++) {
		assert_int_equal(post_send(&a, 1, 0, 8), 0);
		rig_run(&rig);
		fake_engine_advance(&rig.engine, (RNR_MS - 1) * MS);
		assert_int_equal(post_recv(&b, 2, 0, 8), 0);
		rig_run(&rig);
		assert_int_equal(took(&a, 1), IBV_WC_SUCCESS);
		assert_int_equal(took(&b, 2), IBV_WC_SUCCESS);
	}
}

static void ends_while_it_waits(void **state)
{
	(void)state;
	for (int who = 0; who < 2; who++) {
		if (who)
			connect_progs(&a, &b);
		assert_int_equal(post_send(&a, 1, 0, 8), 0);
		rig_run(&rig);
		prog_ep_end(who ? &a : &b);
		assert_int_equal(fake_engine_next_deadline(&rig.engine), UINT64_MAX);
		rig_run(&rig);
		if (!who)
			assert_int_equal(took(&a, 1), IBV_WC_WR_FLUSH_ERR);
	}
}

/*
 * ------------------------------------------------------------------------- quanta and what ends
 * them
 */

static void copies_in_quanta(void **state)
{
	unsigned int turns = 0;

	(void)state;
	fill(&b, 0, BYTES, 1);
	assert_int_equal(read_b(1, 0, BYTES), 0);
	while (a.n_wcs == 0) {
		uint64_t done = 0;

		assert_true(rig_turn(&rig, QUANTUM / 2) || a.n_wcs);
		turns++;
		/* No turn moves more than its budget. */
		while (done < BYTES && a.mem[done] == b.mem[done])
			done++;
		assert_in_range(done, 0, turns * (QUANTUM / 2) + 64);
	}
	assert_in_range(turns, 2 * BYTES / QUANTUM, 2 * BYTES / QUANTUM + 1);
	assert_true(filled(&a, 0, BYTES, 1));
	assert_int_equal(took(&a, 1), IBV_WC_SUCCESS);
}

static void the_peer_ends_in_mid_copy(void **state)
{
	(void)state;
	assert_int_equal(read_b(1, 0, BYTES), 0);
	assert_int_equal(read_b(2, 0, BYTES), 0);
	rig_turn(&rig, 1000);
	prog_ep_end(&b);
	rig_run(&rig);
	assert_int_equal(took(&a, 1), IBV_WC_WR_FLUSH_ERR);
	assert_int_equal(took(&a, 2), IBV_WC_WR_FLUSH_ERR);
	assert_int_equal(a.disconnected, -XP_E_PEER_GONE);
}

/* And takes its memory along: the next turn must not touch it (the sanitizer would see). */
static void the_peer_vanishes_in_mid_copy(void **state)
{
	(void)state;
	for (int side = 0; side < 2; side++) {
		struct prog p;

		prog_init(&p, &rig, 1002, BYTES);
		connect_progs(side ? &p : &a, side ? &a : &p);
		assert_int_equal(post_recv(&a, 3, 0, BYTES), 0);
		if (side) /* it sends */
			assert_int_equal(post_send(&p, 1, 0, BYTES), 0);
		else
			assert_int_equal(post_rdma(&a, IBV_WR_RDMA_READ, 1, 0, BYTES, 0,
						   p.mr->rkey), 0);
		rig_turn(&rig, 1000);
		prog_done(&p);
		rig.n_progs--;
		rig_run(&rig);
		if (!side)
			assert_int_equal(took(&a, 1), IBV_WC_WR_FLUSH_ERR);
		assert_int_equal(took(&a, 3), IBV_WC_WR_FLUSH_ERR);
	}
}

static void a_region_ends_in_mid_copy(void **state)
{
	struct ibv_mr *all = b.mr;

	(void)state;
	b.mr = reg(&b, 0, BYTES, IBV_ACCESS_REMOTE_READ);
	assert_int_equal(read_b(1, 0, BYTES), 0);
	rig_turn(&rig, 1000);
	assert_int_equal(ops->mr_dereg(b.mr, NULL), 0);
	b.mr = all;
	rig_run(&rig);
	assert_int_equal(took(&a, 1), IBV_WC_REM_ACCESS_ERR);
	/* the sink's */
	connect_progs(&a, &b);
	all = a.mr;
	a.mr = reg(&a, 0, BYTES, IBV_ACCESS_LOCAL_WRITE);
	assert_int_equal(read_b(1, 0, BYTES), 0);
	rig_turn(&rig, 1000);
	assert_int_equal(ops->mr_dereg(a.mr, NULL), 0);
	a.mr = all;
	rig_run(&rig);
	assert_int_equal(took(&a, 1), IBV_WC_LOC_PROT_ERR);
	/* a RECV's */
	connect_progs(&a, &b);
	all = b.mr;
	b.mr = reg(&b, 0, BYTES, IBV_ACCESS_LOCAL_WRITE);
	assert_int_equal(post_recv(&b, 2, 0, BYTES), 0);
	assert_int_equal(post_send(&a, 1, 0, BYTES), 0);
	rig_turn(&rig, 1000);
	assert_int_equal(ops->mr_dereg(b.mr, NULL), 0);
	b.mr = all;
	rig_run(&rig);
	assert_int_equal(took(&a, 1), IBV_WC_REM_OP_ERR);
	assert_int_equal(took(&b, 2), IBV_WC_LOC_PROT_ERR);
}

/*
 * ----------------------------------------------------------------------------------------- faults
 */

/* Puts memory that faults where this page of the region was, as a poisoned page would be. */
static void poison(struct prog *p, uint64_t at)
{
	int gone = memfd_create("gone", MFD_CLOEXEC);

	assert_true(gone >= 0);
	assert_ptr_not_equal(mmap(fabric_region_base(p->region) + at, PAGE,
				  PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, gone, 0),
			     MAP_FAILED);
	close(gone);
}

static void end_in_fault(struct prog *p)
{
	prog_ep_end(p);
}

static void memory_vanishes(void **state)
{
	(void)state;
	assert_int_equal(fabric_guard_init(), 0); /* cmocka has put a handler of its own */
	poison(&b, PAGE);
	assert_int_equal(read_b(1, 0, 2 * PAGE), 0);
	rig_run(&rig);
	assert_int_equal(took(&a, 1), IBV_WC_REM_OP_ERR);
	assert_int_equal(a.disconnected, -XP_E_REMOTE_FAULT);
	assert_int_equal(b.disconnected, -XP_E_BUFFER_FAULT);
	assert_int_equal(b.faults, 1);
	assert_int_equal(a.faults, 0);
	/* one's own */
	connect_progs(&b, &a);
	assert_int_equal(post_rdma(&b, IBV_WR_RDMA_WRITE, 1, 0, 2 * PAGE, 0, a.mr->rkey), 0);
	rig_run(&rig);
	assert_int_equal(took(&b, 1), IBV_WC_LOC_PROT_ERR);
	assert_int_equal(b.disconnected, -XP_E_BUFFER_FAULT);
	assert_int_equal(a.disconnected, -XP_E_PEER_GONE);
	assert_int_equal(b.faults, 2);
	/* a RECV's; its owner ends right in the event */
	connect_progs(&a, &b);
	b.on_fault = end_in_fault;
	assert_int_equal(post_recv(&b, 2, 0, 2 * PAGE), 0);
	assert_int_equal(post_send(&a, 1, 0, 2 * PAGE), 0);
	rig_run(&rig);
	assert_int_equal(took(&a, 1), IBV_WC_REM_OP_ERR);
	assert_int_equal(a.disconnected, -XP_E_REMOTE_FAULT);
	assert_int_equal(b.faults, 3);
	assert_int_equal(a.faults, 0);
}

/* Of a key over ranges it is known whose it was. */
static void a_range_vanishes(enum ibv_wr_opcode op, bool wire)
{
	const int all = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE;
	struct fabric_range ranges[] = { { .offset = 100, .length = 5000 },
					 { .offset = 2 * PAGE - 3000, .length = 6000 },
					 { .offset = 9000, .length = 5000 } };
	const struct ibv_mr *whole = a.mr;
	struct ibv_mr *mr;
	struct prog c;

	prog_init(&c, &rig, 1002, 8 * PAGE);
	ranges[0].region = ranges[2].region = b.region;
	ranges[1].region = c.region;
	assert_int_equal(ops->mr_reg_ranges(b.pd, ranges, 3, 17, all, NULL, &mr), 0);
	if (wire)
		connect_progs(&a, &b);
	poison(&c, 2 * PAGE);
	b.faults = a.faults = 0;
	{
		struct ibv_sge sge = { (uintptr_t)whole->addr, 16000, whole->lkey };
		struct ibv_send_wr wr = {
			.wr_id = 1, .opcode = op, .sg_list = &sge, .num_sge = 1,
			.send_flags = IBV_SEND_SIGNALED,
			.wr.rdma = { (uintptr_t)mr->addr, mr->rkey },
		};

		assert_int_equal(post(&a, &wr), 0);
	}
	rig_until(&rig, &b.n_disconnected, NULL);
	assert_int_equal(c.faults, 1);
	assert_int_equal(b.faults, 0);
	assert_int_equal(a.faults, 0);
	assert_int_equal(b.disconnected, -XP_E_BUFFER_FAULT);
	assert_int_equal(ops->mr_dereg(mr, NULL), 0);
	rig.n_progs--;
	prog_done(&c);
}

static void ranges_vanish(void **state)
{
	(void)state;
	assert_int_equal(fabric_guard_init(), 0);
	a_range_vanishes(IBV_WR_RDMA_READ, false);
	connect_progs(&a, &b);
	a_range_vanishes(IBV_WR_RDMA_WRITE, false);
}

static void ranges_vanish_on_the_wire(void **state)
{
	(void)state;
	for (int writes = 0; writes < 2; writes++) {
		rig_done(&rig);
		rig_wire = true;
		rig_init(&rig);
		prog_init(&a, &rig, 1000, BYTES);
		prog_init(&b, &rig, 1001, BYTES);
		assert_int_equal(fabric_guard_init(), 0);
		a_range_vanishes(writes ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_READ, true);
	}
	rig_wire = false;
}

/*
 * ------------------------------------------------------------------------------------------ turns
 */

/* How many of these bytes have come home. */
static uint64_t moved(const struct prog *p)
{
	uint64_t n = 0;

	for (uint64_t i = 0; i < p->bytes; i += PAGE)
		n += p->mem[i] != 0 ? PAGE : 0;
	return n;
}

/*
 * Three connections of one user against one of another, all to the same server: each user gets
 * half, and each connection of the first a third of that.
 */
static void owners_share_alike(void **state)
{
	struct prog server[4], client[4];
	uint64_t first, second;

	(void)state;
	rig_done(&rig);
	rig_init(&rig);
	prog_init(&server[0], &rig, 7, BYTES);
	for (int i = 1; i < 4; i++)
		prog_init_sharing(&server[i], &server[0]);
	memset(server[0].mem, 1, BYTES);
	for (int i = 0; i < 4; i++) {
		prog_init(&client[i], &rig, i < 3 ? 1000 : 2000, BYTES);
		connect_progs(&client[i], &server[i]);
		memset(client[i].mem, 0, BYTES);
	}
	for (int i = 0; i < 4; i++)
		assert_int_equal(post_rdma(&client[i], IBV_WR_RDMA_READ, 1, 0, BYTES, 0,
					   server[0].mr->rkey), 0);
	for (int turn = 0; turn < 6; turn++)
		rig_turn(&rig, QUANTUM);
	first = moved(&client[0]) + moved(&client[1]) + moved(&client[2]);
	second = moved(&client[3]);
	/* Within a work request's own cost. */
	assert_in_range(first, 3 * QUANTUM - 3 * PAGE, 3 * QUANTUM + 3 * PAGE);
	assert_in_range(second, 3 * QUANTUM - PAGE, 3 * QUANTUM + PAGE);
	for (int i = 0; i < 3; i++)
		assert_in_range(moved(&client[i]), QUANTUM - PAGE, QUANTUM + PAGE);
	rig_run(&rig);
	for (int i = 0; i < 4; i++)
		assert_int_equal(took(&client[i], 1), IBV_WC_SUCCESS);
	rig_done(&rig);
	setup(NULL);
}

/* A stream of tiny work requests does not get more of the time than one big one of another user. */
static void small_ones_have_no_edge(void **state)
{
	const uint64_t budget = 8 * PAGE;
	struct prog x, y;
	uint64_t got;

	(void)state;
	prog_init(&x, &rig, 5000, BYTES);
	prog_init(&y, &rig, 5001, BYTES);
	connect_progs(&x, &y);
	memset(x.mem, 0, BYTES);
	memset(y.mem, 1, BYTES);
	assert_int_equal(post_rdma(&x, IBV_WR_RDMA_READ, 1, 0, BYTES, 0, y.mr->rkey), 0);
	for (int turn = 0; turn < 40; turn++) {
		while (write_b(2, 0, 1) == 0)
			;
		a.n_wcs = 0;
		rig_turn(&rig, budget);
	}
	got = moved(&x);
	assert_in_range(got, 19 * budget, 21 * budget);
	rig_done(&rig);
	setup(NULL);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
		TEST(moves_bytes),
		TEST(both_sides_send),
		TEST(lists_of_segments),
		TEST(reads_into_lists),
		TEST(to_oneself),
		TEST(in_order),
		TEST(quiet_ones),
		TEST(recv_before_connect),
		TEST(flushes_in_order),
		TEST(what_cannot_be_posted),
		TEST(a_chain_ends_at_the_bad_one),
		TEST(depth),
		TEST(nothing_is_polled_of_the_dead),
		TEST(no_allocation_when_warm),
		TEST(too_long),
		TEST(an_empty_message_needs_a_recv),
		TEST(waits_for_a_recv),
		TEST(waits_in_vain),
		TEST(each_wait_is_its_own),
		TEST(ends_while_it_waits),
		TEST(copies_in_quanta),
		TEST(the_peer_ends_in_mid_copy),
		TEST(the_peer_vanishes_in_mid_copy),
		TEST(a_region_ends_in_mid_copy),
		TEST(memory_vanishes), TEST(ranges_vanish), TEST(ranges_vanish_on_the_wire),
		TEST(owners_share_alike),
		TEST(small_ones_have_no_edge),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
