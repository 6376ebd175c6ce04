/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Memory of ends, exposures of it, and work requests on it.
 */
#define _GNU_SOURCE 1
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/assert.h"
#include "tests/fabric/rig.h"
#include "tests/fabric/sabotage.h"

/* ---- memory */

/* As a client makes it. */
static void client_memory(struct end *e)
{
	int fd = memfd_create("end", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	char why[256];

	xc_assert(fd >= 0 && ftruncate(fd, (off_t)e->bytes) == 0);
	xc_assert(fallocate(fd, 0, 0, (off_t)e->bytes) == 0);
	e->mem = mmap(NULL, e->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	xc_assert(e->mem != MAP_FAILED);
	xc_assert(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) == 0);
	e->own_map = true;
	CHECK_EQ(rig.ops->region_map(fd, e->bytes, e, &e->region, why, sizeof(why)), 0);
	close(fd);
}

void rig_memory_new(struct end *e)
{
	int access = IBV_ACCESS_LOCAL_WRITE;
	void *mem;

	if (rig.caps->keys == FABRIC_KEYS_WINDOW)
		access |= IBV_ACCESS_MW_BIND;
	if (rig.caps->read_sink_remote_write)
		access |= IBV_ACCESS_REMOTE_WRITE;
	/* Where nothing holds, no client memory is registered. */
	if (rig.caps->keys == FABRIC_KEYS_SLAB) {
		CHECK_EQ(rig.ops->slab_map(e->bytes, &e->region, &mem), 0);
		e->mem = mem;
	} else {
		client_memory(e);
	}
	CHECK_EQ(rig.ops->pd_alloc(e->side->f, OWNER, &e->pd), 0);
	e->mr = reg(e, 0, e->bytes, access);
}

void rig_memory_free(struct end *e)
{
	if (e->mr)
		dereg(e->mr);
	rig.ops->pd_free(e->pd);
	rig.ops->region_unmap(e->region);
	if (e->own_map)
		munmap(e->mem, e->bytes);
}

struct ibv_mr *reg(struct end *e, uint64_t at, uint64_t bytes, int access)
{
	/* The faults that a registration can have. */
	uint64_t more = sabotaged("wide-mr") && bytes < e->bytes ? PAGE : 0;
	struct ibv_mr *mr = NULL;
	WAITING(w);

	if (sabotaged("all-rights"))
		access |= IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ |
			  IBV_ACCESS_REMOTE_WRITE;
	CHECK_EQ(rig_finish(rig.ops->mr_reg(e->pd, e->region, at - more, bytes + 2 * more,
					    IOVA + at - more, access, &w.done, &mr), &w), 0);
	CHECK(mr);
	CHECK_EQ(mr->length, bytes + 2 * more);
	mr->addr = (uint8_t *)mr->addr + more + (sabotaged("wrong-iova") ? 8 : 0);
	if (sabotaged("same-key"))
		mr->rkey = 1;
	return mr;
}

void dereg(struct ibv_mr *mr)
{
	WAITING(w);

	CHECK_EQ(rig_finish(rig.ops->mr_dereg(mr, &w.done), &w), 0);
}

static uint8_t byte_at(uint64_t place, uint8_t seed)
{
	return (uint8_t)((place * 31 + (place >> 8) * 7 + (place >> 16)) ^ seed);
}

void fill(uint8_t *at, uint64_t bytes, uint8_t seed)
{
	for (uint64_t i = 0; i < bytes; i++)
		at[i] = byte_at(i, seed);
}

bool filled(const uint8_t *at, uint64_t bytes, uint8_t seed)
{
	for (uint64_t i = 0; i < bytes; i++)
		if (at[i] != byte_at(i, seed))
			return false;
	return true;
}

bool all_are(const uint8_t *at, uint64_t bytes, uint8_t value)
{
	for (uint64_t i = 0; i < bytes; i++)
		if (at[i] != value)
			return false;
	return true;
}

/* ---- exposures */

#define BIND_ID UINT64_C(0x5eed0001)
#define INVALIDATE_ID UINT64_C(0x5eed0002)

static void bind_window(struct exposure *x, uint64_t at, uint64_t bytes, int access)
{
	struct end *e = x->of;
	struct ibv_send_wr *bad, wr = {
		.wr_id = BIND_ID, .opcode = IBV_WR_BIND_MW, .send_flags = IBV_SEND_SIGNALED,
	};
	WAITING(w);

	CHECK_EQ(rig_finish(rig.ops->mw_alloc(e->pd, &w.done, &x->mw), &w), 0);
	wr.bind_mw.mw = x->mw;
	wr.bind_mw.rkey = ibv_inc_rkey(x->mw->rkey);
	wr.bind_mw.bind_info = (struct ibv_mw_bind_info){
		.mr = e->mr, .addr = (uintptr_t)e->mr->addr + at, .length = bytes,
		.mw_access_flags = (unsigned int)access,
	};
	x->address = wr.bind_mw.bind_info.addr;
	if (sabotaged("wide-window")) {
		wr.bind_mw.bind_info.addr -= PAGE;
		wr.bind_mw.bind_info.length += 2 * PAGE;
	}
	CHECK_EQ(post(e, &wr, &bad), 0);
	CHECK_EQ(took(e, BIND_ID), IBV_WC_SUCCESS);
	x->mw->rkey = wr.bind_mw.rkey;
	x->rkey = x->mw->rkey;
}

struct exposure *expose_as(enum fabric_keys kind, struct end *of, uint64_t at, uint64_t bytes,
			   int access)
{
	struct exposure *x = calloc(1, sizeof(*x));

	xc_assert(x);
	x->of = of;
	xc_list_append(&rig.exposures, &x->link);
	if (kind == FABRIC_KEYS_WINDOW) {
		bind_window(x, at, bytes, access);
		return x;
	}
	/* ibv_reg_mr(3): what a peer may write, the owner may */
	if (access & IBV_ACCESS_REMOTE_WRITE)
		access |= IBV_ACCESS_LOCAL_WRITE;
	x->mr = reg(of, at, bytes, access);
	x->address = (uintptr_t)x->mr->addr;
	x->rkey = x->mr->rkey;
	return x;
}

struct exposure *expose(struct end *of, uint64_t at, uint64_t bytes, int access)
{
	return expose_as(rig.caps->keys, of, at, bytes, access);
}

void conceal(struct exposure *x)
{
	struct ibv_send_wr *bad, wr = {
		.wr_id = INVALIDATE_ID, .opcode = IBV_WR_LOCAL_INV,
		.send_flags = IBV_SEND_SIGNALED, .invalidate_rkey = x->rkey,
	};

	x->dead = true;
	if (x->mr) {
		dereg(x->mr);
		x->mr = NULL;
		return;
	}
	CHECK_EQ(post(x->of, &wr, &bad), 0);
	CHECK_EQ(took(x->of, INVALIDATE_ID), IBV_WC_SUCCESS);
}

/* Windows before MRs. */
void rig_exposures_free(void)
{
	struct xc_list *l;

	while ((l = xc_list_pop(&rig.exposures))) {
		struct exposure *x = xc_container_of(l, struct exposure, link);
		WAITING(w);

		if (x->mw)
			CHECK_EQ(rig_finish(rig.ops->mw_dealloc(x->mw, &w.done), &w), 0);
		if (x->mr)
			dereg(x->mr);
		free(x);
	}
}

/* ---- work requests */

struct ibv_sge sge_of(const struct end *e, uint64_t at, uint32_t bytes)
{
	return (struct ibv_sge){
		.addr = (uintptr_t)e->mr->addr + at, .length = bytes, .lkey = e->mr->lkey,
	};
}

static void note(struct ids *ids, uint64_t id, bool quiet)
{
	CHECK(ids->n < QUEUED_MAX);
	ids->id[ids->n] = id;
	ids->quiet[ids->n++] = quiet;
}

int post(struct end *e, struct ibv_send_wr *chain, struct ibv_send_wr **ret_bad)
{
	struct ibv_send_wr *bad = NULL;
	int err;

	if (rig.caps->signal_all)
		for (struct ibv_send_wr *w = chain; w; w = w->next)
			w->send_flags |= IBV_SEND_SIGNALED;
	err = rig.ops->post_send(e->ep, chain, &bad);
	CHECK(err <= 0 && (!err || bad));
	for (struct ibv_send_wr *w = chain; w && !(err && w == bad); w = w->next)
		note(&e->posted[0], w->wr_id, !(w->send_flags & IBV_SEND_SIGNALED));
	*ret_bad = bad;
	return err;
}

int post_recvs(struct end *e, struct ibv_recv_wr *chain, struct ibv_recv_wr **ret_bad)
{
	struct ibv_recv_wr *bad = NULL;
	int err = rig.ops->post_recv(e->ep, chain, &bad);

	CHECK(err <= 0 && (!err || bad));
	for (struct ibv_recv_wr *w = chain; w && !(err && w == bad); w = w->next)
		note(&e->posted[1], w->wr_id, false);
	*ret_bad = bad;
	return err;
}

void post_rdma(struct end *e, enum ibv_wr_opcode op, uint64_t id, uint64_t at, uint32_t bytes,
	       const struct exposure *x, uint64_t offset)
{
	struct ibv_sge sge = sge_of(e, at, bytes);
	struct ibv_send_wr *bad, wr = {
		.wr_id = id, .opcode = op, .send_flags = IBV_SEND_SIGNALED,
		.sg_list = &sge, .num_sge = bytes ? 1 : 0,
		.wr.rdma = { .remote_addr = x->address + offset, .rkey = x->rkey },
	};

	CHECK_EQ(post(e, &wr, &bad), 0);
}

void post_send(struct end *e, uint64_t id, uint64_t at, uint32_t bytes)
{
	struct ibv_sge sge = sge_of(e, at, bytes);
	struct ibv_send_wr *bad, wr = {
		.wr_id = id, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED,
		.sg_list = &sge, .num_sge = bytes ? 1 : 0,
	};

	CHECK_EQ(post(e, &wr, &bad), 0);
}

void post_recv(struct end *e, uint64_t id, uint64_t at, uint32_t bytes)
{
	struct ibv_sge sge = sge_of(e, at, bytes);
	struct ibv_recv_wr *bad, wr = {
		.wr_id = RECV_ID(id), .sg_list = &sge, .num_sge = bytes ? 1 : 0,
	};

	CHECK_EQ(post_recvs(e, &wr, &bad), 0);
}
