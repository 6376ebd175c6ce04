/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What a peer must not be able to do. What may be relied on depends on caps->keys: with windows
 * everything, with MRs all but that one endpoint's key is nothing to another of the same pd, with
 * slabs the bounds of an MR alone. Each attempt is made on a connection of its own, and each time
 * what is allowed works first: a fabric that refuses everything is not safe but broken.
 */
#include <errno.h>
#include <string.h>

#include "tests/fabric/rig.h"
#include "tests/fabric/sabotage.h"
#include "tests/fabric/suite.h"

#define FRESH 0xee  /* of the one who tries */
#define SECRET 0x55 /* of its peer */
#define AT (2 * PAGE + 40) /* where exposures begin */
#define BYTES 1000u

/* Kinds of keys that these caps make worth something; `but_slab`: not the slab's. */
static int kinds(enum fabric_keys ret[2], bool but_slab)
{
	int n = 0;

	if (rig.caps->keys == FABRIC_KEYS_WINDOW)
		ret[n++] = FABRIC_KEYS_WINDOW;
	if (rig.caps->keys != FABRIC_KEYS_SLAB || !but_slab)
		ret[n++] = FABRIC_KEYS_MR;
	return n;
}

static void prepare(struct end *a, struct end *b)
{
	memset(a->mem, FRESH, a->bytes);
	memset(b->mem, SECRET, b->bytes);
}

static void read_works(struct end *a, struct end *b, const struct exposure *x)
{
	prepare(a, b);
	post_rdma(a, IBV_WR_RDMA_READ, 100, 0, BYTES, x, 0);
	CHECK_EQ(took(a, 100), IBV_WC_SUCCESS);
	CHECK(all_are(a->mem, BYTES, SECRET));
	CHECK(all_are(a->mem + BYTES, a->bytes - BYTES, FRESH));
}

static void write_works(struct end *a, struct end *b, const struct exposure *x)
{
	prepare(a, b);
	post_rdma(a, IBV_WR_RDMA_WRITE, 101, 0, BYTES, x, 0);
	post_recv(b, 101, 0, 0);
	post_send(a, 102, 0, 0);
	CHECK_EQ(took(a, 101), IBV_WC_SUCCESS);
	CHECK_EQ(took(a, 102), IBV_WC_SUCCESS);
	CHECK_EQ(took(b, RECV_ID(101)), IBV_WC_SUCCESS);
	CHECK(all_are(b->mem + AT, BYTES, FRESH));
	CHECK(all_are(b->mem, AT, SECRET));
	CHECK(all_are(b->mem + AT + BYTES, b->bytes - AT - BYTES, SECRET));
}

/* A failed work request ends the connection: by itself, or by the user who hears of it. */
static void ends(struct end *a, struct end *b, int status)
{
	if (status != IBV_WC_SUCCESS)
		end_error(a);
	until_ended(a, b);
}

static void read_is_refused(struct end *a, struct end *b, const struct exposure *x,
			    uint64_t offset, uint32_t bytes)
{
	int status;

	prepare(a, b);
	post_rdma(a, IBV_WR_RDMA_READ, 1, 0, bytes, x, offset);
	status = took(a, 1);
	if (status == IBV_WC_SUCCESS)
		report_failure(__FILE__, __LINE__, "a READ that must not succeed did");
	ends(a, b, status);
	CHECK(all_are(a->mem, a->bytes, FRESH));
}

static void write_is_refused(struct end *a, struct end *b, const struct exposure *x,
			     uint64_t offset, uint32_t bytes)
{
	int status;

	prepare(a, b);
	post_rdma(a, IBV_WR_RDMA_WRITE, 1, 0, bytes, x, offset);
	status = took(a, 1);
	if (status == IBV_WC_SUCCESS && rig.caps->acknowledged)
		report_failure(__FILE__, __LINE__, "a WRITE that must not succeed did");
	ends(a, b, status);
	CHECK(all_are(b->mem, b->bytes, SECRET));
}

/* One byte of what is tried lies outside, at this end or the other. */
static void beyond(enum fabric_keys kind, int access, uint64_t offset)
{
	struct exposure *x;
	struct end *a, *b;

	pair(NULL, &a, &b);
	x = expose_as(kind, b, AT, BYTES, access);
	if (access == IBV_ACCESS_REMOTE_READ) {
		read_works(a, b, x);
		read_is_refused(a, b, x, offset, BYTES);
	} else {
		write_works(a, b, x);
		write_is_refused(a, b, x, offset, BYTES);
	}
}

static void bounds(int access)
{
	enum fabric_keys k[2];
	int n = kinds(k, false);

	if (sabotage_is_void("wide-window", rig.caps->keys != FABRIC_KEYS_WINDOW))
		return;
	for (int i = 0; i < n; i++) {
		beyond(k[i], access, 1);
		beyond(k[i], access, (uint64_t)-1);
		beyond(k[i], access, BYTES);
	}
}

static void read_bounds(void)
{
	bounds(IBV_ACCESS_REMOTE_READ);
}

static void write_bounds(void)
{
	bounds(IBV_ACCESS_REMOTE_WRITE);
}

/* A range that would wrap around the end of all addresses. */
static void no_range_wraps(void)
{
	struct exposure *x;
	struct end *a, *b;

	pair(NULL, &a, &b);
	x = expose(b, AT, BYTES, IBV_ACCESS_REMOTE_READ);
	read_works(a, b, x);
	read_is_refused(a, b, x, UINT64_MAX - x->address - 3, 8);
}

static bool slabs_only(void)
{
	if (rig.caps->keys != FABRIC_KEYS_SLAB)
		return false;
	CHECK(fabric_snapshots(rig.caps));
	report_skip("caps: keys are of slabs; nothing but their bounds is relied on");
	return true;
}

static void one_direction(void)
{
	enum fabric_keys k[2];
	int n = kinds(k, true);

	if (slabs_only())
		return;
	for (int i = 0; i < n; i++) {
		struct exposure *x;
		struct end *a, *b;

		pair(NULL, &a, &b);
		x = expose_as(k[i], b, AT, BYTES, IBV_ACCESS_REMOTE_WRITE);
		write_works(a, b, x);
		read_is_refused(a, b, x, 0, BYTES);
		pair(NULL, &a, &b);
		x = expose_as(k[i], b, AT, BYTES, IBV_ACCESS_REMOTE_READ);
		read_works(a, b, x);
		write_is_refused(a, b, x, 0, BYTES);
	}
}

/* Registered for local use. */
static void local_is_local(void)
{
	struct end *a, *b;

	if (slabs_only())
		return;
	pair(NULL, &a, &b);
	read_is_refused(a, b, expose_as(FABRIC_KEYS_MR, b, AT, BYTES, IBV_ACCESS_LOCAL_WRITE), 0,
			BYTES);
	pair(NULL, &a, &b);
	write_is_refused(a, b, expose_as(FABRIC_KEYS_MR, b, AT, BYTES, IBV_ACCESS_LOCAL_WRITE), 0,
			 BYTES);
}

/* b's key, tried by c through an endpoint of another pd. */
static void one_domain(void)
{
	enum fabric_keys k[2];
	int n = kinds(k, true);

	if (slabs_only())
		return;
	for (int i = 0; i < n; i++) {
		struct end *a, *b, *c, *d;
		struct exposure *x;

		pair(NULL, &a, &b);
		pair(NULL, &c, &d);
		x = expose_as(k[i], b, AT, BYTES, IBV_ACCESS_REMOTE_READ);
		memset(d->mem, SECRET, d->bytes);
		read_works(a, b, x);
		read_is_refused(c, d, x, 0, BYTES);
		read_works(a, b, x);
	}
}

/* b's window, tried through another endpoint of the same pd. */
static void one_stream(void)
{
	struct end *a, *b, *c, *d;
	struct exposure *x;

	if (rig.caps->keys != FABRIC_KEYS_WINDOW) {
		report_skip("caps: no windows; each endpoint has a pd of its own");
		return;
	}
	pair(NULL, &a, &b);
	c = end_new(rig.client, NULL);
	d = end_twin(b);
	join(c, d);
	x = expose(b, AT, BYTES, IBV_ACCESS_REMOTE_READ);
	read_works(a, b, x);
	read_is_refused(c, d, x, 0, BYTES);
	read_works(a, b, x);
}

static void dead_keys(void)
{
	enum fabric_keys k[2];
	int n = kinds(k, true);

	if (slabs_only())
		return;
	for (int i = 0; i < n; i++) {
		for (int writes = 0; writes < 2; writes++) {
			int access = writes ? IBV_ACCESS_REMOTE_WRITE : IBV_ACCESS_REMOTE_READ;
			struct exposure *x;
			struct end *a, *b;

			pair(NULL, &a, &b);
			x = expose_as(k[i], b, AT, BYTES, access);
			if (writes) {
				write_works(a, b, x);
				conceal(x);
				write_is_refused(a, b, x, 0, BYTES);
			} else {
				read_works(a, b, x);
				conceal(x);
				read_is_refused(a, b, x, 0, BYTES);
			}
		}
	}
}

/* Only windows: the deallocation, whatever the queue does. */
static void dealloc_kills(void)
{
	struct exposure *x, gone;
	struct end *a, *b;
	WAITING(w);

	if (rig.caps->keys != FABRIC_KEYS_WINDOW) {
		report_skip("caps: no windows");
		return;
	}
	pair(NULL, &a, &b);
	x = expose(b, AT, BYTES, IBV_ACCESS_REMOTE_READ);
	read_works(a, b, x);
	CHECK_EQ(rig_finish(rig.ops->mw_dealloc(x->mw, &w.done), &w), 0);
	x->mw = NULL;
	gone = *x;
	read_is_refused(a, b, &gone, 0, BYTES);
}

/* The key of an earlier bind of the same window. */
static void old_keys(void)
{
	struct exposure *x, old;
	struct ibv_send_wr *bad, wr = { .wr_id = 1, .opcode = IBV_WR_BIND_MW,
					.send_flags = IBV_SEND_SIGNALED };
	struct end *a, *b;

	if (rig.caps->keys != FABRIC_KEYS_WINDOW) {
		report_skip("caps: no windows");
		return;
	}
	pair(NULL, &a, &b);
	x = expose(b, AT, BYTES, IBV_ACCESS_REMOTE_READ);
	read_works(a, b, x);
	old = *x;
	conceal(x);
	wr.bind_mw.mw = x->mw;
	wr.bind_mw.rkey = ibv_inc_rkey(x->mw->rkey);
	wr.bind_mw.bind_info = (struct ibv_mw_bind_info){
		.mr = b->mr, .addr = x->address, .length = BYTES,
		.mw_access_flags = IBV_ACCESS_REMOTE_READ,
	};
	CHECK_EQ(post(b, &wr, &bad), 0);
	CHECK_EQ(took(b, 1), IBV_WC_SUCCESS);
	x->mw->rkey = x->rkey = wr.bind_mw.rkey;
	read_works(a, b, x);
	read_is_refused(a, b, &old, 0, BYTES);
}

static void busy(void)
{
	struct exposure *x;
	struct end *a, *b;
	WAITING(w);

	if (rig.caps->keys != FABRIC_KEYS_WINDOW) {
		report_skip("caps: no windows");
		return;
	}
	pair(NULL, &a, &b);
	x = expose(b, AT, BYTES, IBV_ACCESS_REMOTE_READ);
	CHECK_EQ(rig_finish(rig.ops->mr_dereg(b->mr, &w.done), &w), -EBUSY);
	/* and nothing has happened to it */
	read_works(a, b, x);
	conceal(x);
	dereg(b->mr);
	b->mr = NULL;
}

/* ---- one's own memory */

static void own_bounds(void)
{
	static const enum ibv_wr_opcode ops[] = {
		IBV_WR_RDMA_READ, IBV_WR_RDMA_WRITE, IBV_WR_SEND,
	};

	for (size_t i = 0; i < XC_ARRAY_SIZE(ops); i++) {
		struct ibv_send_wr *bad, wr = { .wr_id = 1, .opcode = ops[i], .num_sge = 1,
						.send_flags = IBV_SEND_SIGNALED };
		bool reading = ops[i] == IBV_WR_RDMA_READ;
		struct exposure *x;
		struct ibv_mr *mr;
		struct ibv_sge sge;
		struct end *a, *b;

		pair(NULL, &a, &b);
		x = expose(b, AT, BYTES,
			   reading ? IBV_ACCESS_REMOTE_READ : IBV_ACCESS_REMOTE_WRITE);
		mr = reg(a, AT, 100, IBV_ACCESS_LOCAL_WRITE |
			 (rig.caps->read_sink_remote_write ? IBV_ACCESS_REMOTE_WRITE : 0));
		post_recv(b, 1, AT, BYTES);
		prepare(a, b);
		sge = (struct ibv_sge){ (uintptr_t)mr->addr + 1, 100, mr->lkey };
		wr.sg_list = &sge;
		if (ops[i] != IBV_WR_SEND) {
			wr.wr.rdma.remote_addr = x->address;
			wr.wr.rdma.rkey = x->rkey;
		}
		/* Some devices look at once. */
		if (post(a, &wr, &bad) == 0) {
			CHECK(took(a, 1) != IBV_WC_SUCCESS);
			end_error(a);
			until_ended(a, b);
		}
		CHECK(all_are(a->mem, a->bytes, FRESH));
		CHECK(all_are(b->mem, b->bytes, SECRET));
		dereg(mr);
	}
}

/* A RECV into what its owner has no right to write, or not all of. */
static void recv_bounds(void)
{
	struct ibv_recv_wr *bad, wr = { .wr_id = RECV_ID(1), .num_sge = 1 };
	struct ibv_mr *mr;
	struct ibv_sge sge;
	struct end *a, *b;

	pair(NULL, &a, &b);
	mr = reg(b, AT, 100, IBV_ACCESS_LOCAL_WRITE);
	sge = (struct ibv_sge){ (uintptr_t)mr->addr + 1, 100, mr->lkey };
	wr.sg_list = &sge;
	prepare(a, b);
	if (post_recvs(b, &wr, &bad) == 0) {
		post_send(a, 1, 0, 100);
		CHECK(took(b, RECV_ID(1)) != IBV_WC_SUCCESS);
		end_error(b);
		until_ended(a, b);
	}
	CHECK(all_are(b->mem + AT + 100, b->bytes - AT - 100, SECRET));
	dereg(mr);
}

const struct test access_tests[] = {
	{ "bounds of READ", read_bounds, { "iwarp:widen-bound", "wide-mr", "wide-window" } },
	{ "bounds of WRITE", write_bounds, { "iwarp:widen-bound", "wide-mr", "wide-window" } },
	{ "no range wraps", no_range_wraps, { "unwrap" } },
	{ "one direction", one_direction, { "iwarp:skip-rights", "all-rights" } },
	{ "what is local is local", local_is_local, { "iwarp:skip-rights", "all-rights" } },
	{ "keys of another protection domain", one_domain,
	  { "iwarp:skip-pd-check", "iwarp:skip-stream-check", "one-pd" } },
	{ "windows of another endpoint", one_stream, { "iwarp:skip-stream-check" } },
	{ "dead keys", dead_keys, { "iwarp:skip-invalidate", "keep-mr" } },
	{ "deallocation kills a window", dealloc_kills, { "keep-window" } },
	{ "keys of an earlier bind", old_keys, { "iwarp:ignore-key" } },
	{ "an MR with a window bound is busy", busy, { "never-busy" } },
	{ "bounds of one's own memory", own_bounds, { "wide-mr" } },
	{ "bounds of a RECV", recv_bounds, { "wide-mr" } },
	{ 0 },
};
