/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#define _GNU_SOURCE 1
#include "tests/unit/iwarp_rig.h"

#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/*
 * ---------------------------------------------------------------------------------------- events
 */

/* No event comes from inside another call. */
static struct prog *told(void *ctx)
{
	struct prog *p = ctx;

	assert_true(p->rig->in_progress);
	return p;
}

static void *connect_request(void *ctx, struct fabric_conn *conn,
			     const struct fabric_conn_info *info)
{
	struct prog *p = told(ctx);

	p->requests++;
	p->conn = conn;
	p->info = *info;
	p->private_data_bytes = info->private_data_bytes;
	memcpy(p->private_data, info->private_data, info->private_data_bytes);
	if (p->on_request)
		p->on_request(p, conn);
	return p->no_room ? NULL : p;
}

static void conn_gone(void *ctx)
{
	struct prog *p = told(ctx);

	p->gone++;
	p->conn = NULL;
}

static void established(void *ctx, int status, const void *data, size_t bytes)
{
	struct prog *p = told(ctx);

	assert_int_equal(p->n_established, 0);
	p->n_established++;
	p->established = status;
	p->private_data_bytes = bytes;
	memcpy(p->private_data, data, bytes);
}

static void disconnected(void *ctx, int status)
{
	struct prog *p = told(ctx);

	assert_int_equal(p->established, 0);
	assert_int_equal(p->n_disconnected, 0);
	p->n_disconnected++;
	p->disconnected = status;
	if (p->on_disconnected)
		p->on_disconnected(p);
}

static void region_fault(void *ctx)
{
	struct prog *p = told(ctx);

	p->faults++;
	if (p->on_fault)
		p->on_fault(p);
}

static const struct fabric_events events = {
	.connect_request = connect_request,
	.conn_gone = conn_gone,
	.established = established,
	.disconnected = disconnected,
	.region_fault = region_fault,
};

/*
 * ------------------------------------------------------------------------------------------- rig
 */

const struct iwarp_profile *rig_profile;
bool rig_wire;

void rig_init(struct rig *rig)
{
	const struct iwarp_options options = {
		.rnr_ms = RNR_MS, .ep_limit = RIG_PROGS, .no_wire = !rig_wire,
		.no_shortcut = rig_wire, .profile = rig_profile,
	};
	struct xd_engine_ref ref = fake_engine_ref(&rig->engine);

	memset(rig, 0, sizeof(*rig));
	fake_engine_init(&rig->engine, 42);
	rig->ops = &iwarp_fabric_ops;
	assert_int_equal(iwarp_fabric_open(&options, &ref, &events, &rig->f), 0);
}

void rig_done(struct rig *rig)
{
	/* Those that borrow come after those that they borrow from. */
	for (unsigned int i = rig->n_progs; i-- > 0;)
		prog_done(rig->progs[i]);
	rig_run(rig);
	rig->ops->close(rig->f);
	fake_engine_done(&rig->engine);
}

static void poll_all(struct rig *rig)
{
	struct ibv_wc wc;

	while (rig->ops->poll(rig->f, 1, &wc) == 1) {
		struct prog *p = rig->progs[wc.qp_num];

		assert_in_range(p->n_wcs, 0, WCS_MAX - 1);
		p->wcs[p->n_wcs++] = wc;
	}
}

bool rig_turn(struct rig *rig, uint64_t budget)
{
	bool more;

	rig->engine.kicked = false;
	rig->in_progress = true;
	more = rig->ops->progress(rig->f, budget);
	rig->in_progress = false;
	poll_all(rig);
	return more || rig->engine.kicked;
}

void rig_run(struct rig *rig)
{
	for (int i = 0; i < 10000; i++)
		if (!rig_turn(rig, LOTS))
			return;
	fail_msg("the fabric always wants another turn");
}

void rig_until(struct rig *rig, const int *told, struct fabric_conn *const *asked)
{
	rig_run(rig);
	for (int i = 0; rig_wire && i < 1000 && (told ? !*told : !*asked); i++) {
		poll(NULL, 0, i > 100);
		rig_run(rig);
	}
}

/*
 * -------------------------------------------------------------------------------------- programs
 */

static int memory_file(uint64_t bytes)
{
	int fd = memfd_create("prog", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, (off_t)bytes), 0);
	assert_int_equal(fallocate(fd, 0, 0, (off_t)bytes), 0);
	assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW), 0);
	return fd;
}

void prog_init(struct prog *p, struct rig *rig, uint32_t uid, uint64_t bytes)
{
	int all = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE |
		  IBV_ACCESS_MW_BIND;
	int fd = memory_file(bytes);
	char why[256];

	memset(p, 0, sizeof(*p));
	p->rig = rig;
	p->uid = uid;
	p->bytes = bytes;
	p->established = p->disconnected = NOTHING_TOLD;
	assert_in_range(rig->n_progs, 0, RIG_PROGS - 1);
	p->qp_num = rig->n_progs;
	rig->progs[rig->n_progs++] = p;
	p->mem = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	assert_ptr_not_equal(p->mem, MAP_FAILED);
	assert_int_equal(rig->ops->region_map(fd, bytes, p, &p->region, why, sizeof(why)), 0);
	close(fd);
	assert_int_equal(rig->ops->pd_alloc(rig->f, uid, &p->pd), 0);
	assert_int_equal(rig->ops->mr_reg(p->pd, p->region, 0, bytes, IOVA, all, NULL, &p->mr), 0);
}

void prog_init_sharing(struct prog *p, const struct prog *with)
{
	struct rig *rig = with->rig;

	memset(p, 0, sizeof(*p));
	p->rig = rig;
	p->uid = with->uid;
	p->bytes = with->bytes;
	p->established = p->disconnected = NOTHING_TOLD;
	assert_in_range(rig->n_progs, 0, RIG_PROGS - 1);
	p->qp_num = rig->n_progs;
	rig->progs[rig->n_progs++] = p;
	p->mem = with->mem;
	p->region = with->region;
	p->pd = with->pd;
	p->mr = with->mr;
	p->borrows = true;
}

void prog_ep(struct prog *p)
{
	const struct fabric_ep_attr attr = {
		.pd = p->pd, .max_send_wr = 64, .max_recv_wr = 64, .max_send_sge = 4,
		.max_recv_sge = 4, .ctx = p, .qp_num = p->qp_num,
	};

	prog_ep_end(p);
	assert_int_equal(p->rig->ops->ep_create(p->rig->f, &attr, NULL, &p->ep), 0);
	p->established = p->disconnected = NOTHING_TOLD;
	p->n_established = p->n_disconnected = 0;
}

void prog_ep_end(struct prog *p)
{
	if (p->ep)
		assert_int_equal(p->rig->ops->ep_destroy(p->ep, NULL), 0);
	p->ep = NULL;
}

void prog_done(struct prog *p)
{
	const struct fabric_ops *ops = p->rig->ops;

	prog_ep_end(p);
	if (p->borrows)
		return;
	if (p->mr)
		assert_int_equal(ops->mr_dereg(p->mr, NULL), 0);
	if (p->pd)
		ops->pd_free(p->pd);
	if (p->region)
		ops->region_unmap(p->region);
	if (p->mem)
		munmap(p->mem, p->bytes);
	p->mem = NULL;
	p->mr = NULL;
	p->pd = NULL;
	p->region = NULL;
}

struct xc_addr addr(const char *text, uint16_t port)
{
	struct xc_addr a;

	assert_int_equal(xc_addr_parse(text, port, &a), 0);
	return a;
}

struct xc_addr local_port(uint16_t port)
{
	return addr("127.0.0.1", port);
}

struct fabric_listener *prog_listen(struct prog *p, uint16_t port)
{
	struct xc_addr at = local_port(port), got;
	struct fabric_listener *l;

	assert_int_equal(p->rig->ops->listen(p->rig->f, &at, p->uid, p, NULL, &l, &got), 0);
	if (port)
		assert_int_equal(got.port, port);
	else
		p->listens_at = got.port;
	return l;
}

void connect_progs(struct prog *a, struct prog *b)
{
	struct fabric_listener *l = prog_listen(b, rig_wire ? 0 : 7);
	struct xc_addr at = local_port(rig_wire ? b->listens_at : 7);
	struct rig *rig = a->rig;

	prog_ep(a);
	prog_ep(b);
	assert_int_equal(rig->ops->ep_connect(a->ep, &at, NULL, 0), 0);
	b->conn = NULL;
	rig_until(rig, NULL, &b->conn);
	assert_int_equal(rig->ops->ep_accept(b->ep, b->conn, NULL, 0), 0);
	rig_until(rig, &a->n_established, NULL);
	rig_until(rig, &b->n_established, NULL);
	assert_int_equal(a->established, 0);
	assert_int_equal(b->established, 0);
	rig->ops->listener_free(l);
}

static uint8_t byte_at(uint64_t place, uint8_t seed)
{
	return (uint8_t)((place * 31 + (place >> 8) * 7 + (place >> 16)) ^ seed);
}

void fill(struct prog *p, uint64_t from, uint64_t bytes, uint8_t seed)
{
	for (uint64_t i = 0; i < bytes; i++)
		p->mem[from + i] = byte_at(i, seed);
}

bool filled(const struct prog *p, uint64_t from, uint64_t bytes, uint8_t seed)
{
	for (uint64_t i = 0; i < bytes; i++)
		if (p->mem[from + i] != byte_at(i, seed))
			return false;
	return true;
}

/*
 * --------------------------------------------------------------------------------- work requests
 */

int post(struct prog *p, struct ibv_send_wr *wr)
{
	struct ibv_send_wr *bad = NULL;
	int err = p->rig->ops->post_send(p->ep, wr, &bad);

	assert_ptr_equal(bad, err ? wr : NULL);
	return err;
}

/* Completes a work request by its segment. */
static int post_piece(struct prog *p, struct ibv_send_wr *wr, uint64_t id, uint64_t at,
		      uint32_t bytes)
{
	struct ibv_sge sge = { .addr = IOVA + at, .length = bytes, .lkey = p->mr->lkey };

	wr->wr_id = id;
	wr->send_flags = IBV_SEND_SIGNALED;
	wr->sg_list = &sge;
	wr->num_sge = bytes ? 1 : 0;
	return post(p, wr);
}

int post_rdma(struct prog *p, enum ibv_wr_opcode op, uint64_t id, uint64_t at, uint32_t bytes,
	      uint64_t remote, uint32_t rkey)
{
	struct ibv_send_wr wr = {
		.opcode = op, .wr.rdma = { .remote_addr = IOVA + remote, .rkey = rkey },
	};

	return post_piece(p, &wr, id, at, bytes);
}

int post_send(struct prog *p, uint64_t id, uint64_t at, uint32_t bytes)
{
	struct ibv_send_wr wr = { .opcode = IBV_WR_SEND };

	return post_piece(p, &wr, id, at, bytes);
}

int post_send_inv(struct prog *p, uint64_t id, uint64_t at, uint32_t bytes, uint32_t rkey)
{
	struct ibv_send_wr wr = { .opcode = IBV_WR_SEND_WITH_INV, .invalidate_rkey = rkey };

	return post_piece(p, &wr, id, at, bytes);
}

int post_recv(struct prog *p, uint64_t id, uint64_t at, uint32_t bytes)
{
	struct ibv_sge sge = { .addr = IOVA + at, .length = bytes, .lkey = p->mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = id, .sg_list = &sge, .num_sge = bytes ? 1 : 0 };
	struct ibv_recv_wr *bad = NULL;
	int err = p->rig->ops->post_recv(p->ep, &wr, &bad);

	assert_ptr_equal(bad, err ? &wr : NULL);
	return err;
}

int post_inv(struct prog *p, uint64_t id, uint32_t rkey)
{
	struct ibv_send_wr wr = { .opcode = IBV_WR_LOCAL_INV, .invalidate_rkey = rkey };

	return post_piece(p, &wr, id, 0, 0);
}

int post_bind(struct prog *p, uint64_t id, struct ibv_mw *mw, uint32_t new_rkey, struct ibv_mr *mr,
	      uint64_t at, uint64_t bytes, unsigned int access)
{
	struct ibv_send_wr wr = {
		.opcode = IBV_WR_BIND_MW,
		.bind_mw = { .mw = mw, .rkey = new_rkey,
			     .bind_info = { .mr = mr, .addr = IOVA + at, .length = bytes,
					    .mw_access_flags = access } },
	};

	return post_piece(p, &wr, id, 0, 0);
}

int take(struct prog *p, uint64_t id, struct ibv_wc *ret)
{
	if (!p->n_wcs)
		return -1;
	assert_int_equal(p->wcs[0].wr_id, id);
	assert_int_equal(p->wcs[0].qp_num, p->qp_num);
	*ret = p->wcs[0];
	memmove(p->wcs, p->wcs + 1, --p->n_wcs * sizeof(p->wcs[0]));
	return ret->status;
}

int took(struct prog *p, uint64_t id)
{
	struct ibv_wc wc;

	return take(p, id, &wc);
}

struct ibv_mr *reg(struct prog *p, uint64_t at, uint64_t bytes, int access)
{
	struct ibv_mr *mr = NULL;

	assert_int_equal(p->rig->ops->mr_reg(p->pd, p->region, at, bytes, IOVA + at, access, NULL,
					     &mr), 0);
	assert_non_null(mr);
	return mr;
}

struct ibv_mw *window(struct prog *p, uint64_t at, uint64_t bytes, unsigned int access)
{
	struct ibv_mw *mw;
	uint32_t rkey;

	assert_int_equal(p->rig->ops->mw_alloc(p->pd, NULL, &mw), 0);
	rkey = ibv_inc_rkey(mw->rkey);
	assert_int_equal(post_bind(p, 9999, mw, rkey, p->mr, at, bytes, access), 0);
	rig_run(p->rig);
	assert_int_equal(took(p, 9999), IBV_WC_SUCCESS);
	mw->rkey = rkey;
	return mw;
}
