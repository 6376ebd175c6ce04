/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include <errno.h>
#include <stdlib.h>

#include "common/assert.h"
#include "common/checked.h"
#include "daemon/fabric/verbs/private.h"
#include "proto/errors.h"

#define PAGE_MASK UINT64_C(0xfff)

/* ---- protection domains: one command to the device each, so the engine's thread does it */

int verbs_pd_alloc(struct fabric *f, uint32_t owner, struct fabric_pd **ret)
{
	struct fabric_pd *pd;

	XC_CHECK(f, VERBS_FABRIC_MAGIC);
	if (f->lost)
		return -XP_E_DEVICE;
	pd = calloc(1, sizeof(*pd));
	if (!pd)
		return -ENOMEM;
	*pd = (struct fabric_pd){ .magic = VERBS_PD_MAGIC, .fabric = f };
	/* 0 would be "no bound" in struct xd_job, and root's peers can be silent, too. */
	pd->owner = owner ? owner : UINT32_MAX;
	pd->pd = ibv_alloc_pd(f->verbs);
	if (!pd->pd) {
		int err = errno;

		free(pd);
		return err ? -err : -ENOMEM;
	}
	f->objects++;
	verbs_ref(f);
	*ret = pd;
	return 0;
}

void verbs_pd_free(struct fabric_pd *pd)
{
	struct fabric *f;

	XC_CHECK(pd, VERBS_PD_MAGIC);
	xc_assert(pd->objects == 0);
	f = pd->fabric;
	/* With the device lost it fails, and the kernel has freed it. */
	xc_assert(ibv_dealloc_pd(pd->pd) == 0 || f->lost);
	pd->magic = 0;
	free(pd);
	f->objects--;
	verbs_unref(f);
}

/* ---- registrations and windows */

/*
 * The user holds a struct of ours and not the device's: his `addr` is what he addresses it by, and
 * libibverbs' structs have no room for a pointer of ours. `job` is one at a time: he has it made,
 * and later unmade.
 */
struct memory {
	struct xd_job job;
	struct fabric_pd *pd;
	struct fabric_done *done;
	int status;
};

struct verbs_mr {
	struct ibv_mr mr; /* the user's */
	uint32_t magic;
	struct memory m;
	struct ibv_mr *real;
	struct ibv_mr **ret;
	uint8_t *at;
	uint64_t length, iova;
	int access;
};

struct verbs_mw {
	struct ibv_mw mw; /* the user's */
	uint32_t magic;
	struct memory m;
	struct ibv_mw *real;
	struct ibv_mw **ret;
};

static int start(struct memory *m, enum xd_helper helper, struct fabric_done *done,
		 void (*run)(struct xd_job *job), void (*over)(struct xd_job *job))
{
	const struct xd_engine_ref *e = &m->pd->fabric->engine;

	m->done = done;
	m->job = (struct xd_job){
		.helper = helper, .owner = m->pd->owner, .run = run, .done = over,
	};
	e->ops->help(e->engine, &m->job);
	return -EINPROGRESS;
}

static void hold(struct memory *m)
{
	m->pd->objects++;
	verbs_ref(m->pd->fabric);
}

/* The user's part in it is over. */
static void let_go(struct memory *m)
{
	m->pd->objects--;
	verbs_unref(m->pd->fabric);
}

static void mr_reg_run(struct xd_job *job)
{
	struct verbs_mr *r = xc_container_of(job, struct verbs_mr, m.job);

	errno = 0;
	r->real = ibv_reg_mr_iova(r->m.pd->pd, r->at, r->length, r->iova, r->access);
	r->m.status = r->real ? 0 : errno ? -errno : -ENOMEM;
}

static void mr_reg_over(struct xd_job *job)
{
	struct verbs_mr *r = xc_container_of(job, struct verbs_mr, m.job);
	struct fabric_done *done = r->m.done;
	int status = r->m.status;

	if (status < 0) {
		let_go(&r->m);
		r->magic = 0;
		free(r);
	} else {
		r->mr = *r->real;
		r->mr.addr = r->m.pd->fabric->honours_iova ? (void *)(uintptr_t)r->iova : r->at;
		r->mr.length = r->length;
		*r->ret = &r->mr;
	}
	done->fn(done, status);
}

int verbs_mr_reg(struct fabric_pd *pd, struct fabric_region *region, uint64_t offset,
		 uint64_t length, uint64_t iova, int access, struct fabric_done *done,
		 struct ibv_mr **ret_mr)
{
	struct verbs_mr *r;
	uint64_t end;

	XC_CHECK(pd, VERBS_PD_MAGIC);
	if (pd->fabric->lost)
		return -XP_E_DEVICE;
	if (!length || !xc_range_within(offset, length, fabric_region_bytes(region)) ||
	    !xc_add_u64(iova, length, &end) || ((iova ^ offset) & PAGE_MASK))
		return -EINVAL;
	r = calloc(1, sizeof(*r));
	if (!r)
		return -ENOMEM;
	*r = (struct verbs_mr){
		.magic = VERBS_MR_MAGIC, .m.pd = pd, .ret = ret_mr, .length = length,
		.at = fabric_region_base(region) + offset, .iova = iova, .access = access,
	};
	hold(&r->m);
	return start(&r->m, XD_HELP_MEMORY, done, mr_reg_run, mr_reg_over);
}

static void mr_dereg_run(struct xd_job *job)
{
	struct verbs_mr *r = xc_container_of(job, struct verbs_mr, m.job);

	/* libibverbs gives this address back to fork(2), where it was told to care. */
	r->real->addr = r->at;
	r->m.status = -ibv_dereg_mr(r->real);
}

static void mr_dereg_over(struct xd_job *job)
{
	struct verbs_mr *r = xc_container_of(job, struct verbs_mr, m.job);
	struct fabric_done *done = r->m.done;
	int status = r->m.status;

	/* A window is bound to it: EBUSY, or EINVAL on rxe. */
	if (status == -EINVAL)
		status = -EBUSY;
	/* A lost device says EIO, or ENODEV; its keys are dead indeed. */
	if (status < 0 && status != -EBUSY && r->m.pd->fabric->lost)
		status = 0;
	if (status == 0) {
		let_go(&r->m);
		r->magic = 0;
		free(r);
	}
	done->fn(done, status);
}

int verbs_mr_dereg(struct ibv_mr *mr, struct fabric_done *done)
{
	struct verbs_mr *r = xc_container_of(mr, struct verbs_mr, mr);

	XC_CHECK(r, VERBS_MR_MAGIC);
	return start(&r->m, XD_HELP_MEMORY, done, mr_dereg_run, mr_dereg_over);
}

static void mw_alloc_run(struct xd_job *job)
{
	struct verbs_mw *w = xc_container_of(job, struct verbs_mw, m.job);

	errno = 0;
	w->real = ibv_alloc_mw(w->m.pd->pd, IBV_MW_TYPE_2);
	w->m.status = w->real ? 0 : errno ? -errno : -ENOMEM;
}

static void mw_alloc_over(struct xd_job *job)
{
	struct verbs_mw *w = xc_container_of(job, struct verbs_mw, m.job);
	struct fabric_done *done = w->m.done;
	int status = w->m.status;

	if (status < 0) {
		let_go(&w->m);
		w->magic = 0;
		free(w);
	} else {
		w->mw = *w->real;
		*w->ret = &w->mw;
	}
	done->fn(done, status);
}

int verbs_mw_alloc(struct fabric_pd *pd, struct fabric_done *done, struct ibv_mw **ret_mw)
{
	struct verbs_mw *w;

	XC_CHECK(pd, VERBS_PD_MAGIC);
	if (pd->fabric->lost)
		return -XP_E_DEVICE;
	w = calloc(1, sizeof(*w));
	if (!w)
		return -ENOMEM;
	*w = (struct verbs_mw){ .magic = VERBS_MW_MAGIC, .m.pd = pd, .ret = ret_mw };
	hold(&w->m);
	return start(&w->m, XD_HELP_VERBS, done, mw_alloc_run, mw_alloc_over);
}

static void mw_dealloc_run(struct xd_job *job)
{
	struct verbs_mw *w = xc_container_of(job, struct verbs_mw, m.job);

	w->m.status = -ibv_dealloc_mw(w->real);
}

static void mw_dealloc_over(struct xd_job *job)
{
	struct verbs_mw *w = xc_container_of(job, struct verbs_mw, m.job);
	struct fabric_done *done = w->m.done;
	int status = w->m.status;

	if (status < 0 && w->m.pd->fabric->lost)
		status = 0;
	if (status == 0) {
		let_go(&w->m);
		w->magic = 0;
		free(w);
	}
	done->fn(done, status);
}

int verbs_mw_dealloc(struct ibv_mw *mw, struct fabric_done *done)
{
	struct verbs_mw *w = xc_container_of(mw, struct verbs_mw, mw);

	XC_CHECK(w, VERBS_MW_MAGIC);
	return start(&w->m, XD_HELP_VERBS, done, mw_dealloc_run, mw_dealloc_over);
}

void verbs_bind_to_device(struct ibv_send_wr *wr)
{
	struct verbs_mw *w = xc_container_of(wr->bind_mw.mw, struct verbs_mw, mw);
	struct verbs_mr *r = xc_container_of(wr->bind_mw.bind_info.mr, struct verbs_mr, mr);

	XC_CHECK(w, VERBS_MW_MAGIC);
	XC_CHECK(r, VERBS_MR_MAGIC);
	/* rxe finds the window by the key that it had last; nobody else writes it there. */
	w->real->rkey = w->mw.rkey;
	wr->bind_mw.mw = w->real;
	wr->bind_mw.bind_info.mr = r->real;
	/* What a bind is checked against is the address space of the registration. */
	r->real->addr = r->mr.addr;
}
