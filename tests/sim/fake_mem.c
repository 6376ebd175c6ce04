/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Client memory, regions, protection domains, registrations, windows, and the keys of them. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/checked.h"
#include "proto/errors.h"
#include "tests/sim/fake_priv.h"
#include "tests/unit/fake_engine.h"

/* Above any descriptor that this process could have: a stray close() of one hits nothing. */
#define FD_FIRST 0x100000
#define PAGE 4096u
#define REMOTE (IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE)

struct memory {
	uint8_t *base;
	uint64_t size;
	bool mapped_once, faulted;
};

static struct {
	struct memory *all;
	uint32_t n, regions;
	uint64_t copied;
	struct sim_rng rng;
	uint32_t map_fail, fault;
	struct xc_list dead, slabs;
} mem;

void fake_memory_init(uint64_t seed, uint32_t map_fail_permille, uint32_t fault_permille)
{
	mem.rng.state = seed;
	xc_list_init(&mem.dead);
	xc_list_init(&mem.slabs);
	mem.map_fail = map_fail_permille;
	mem.fault = fault_permille;
}

int fake_memory_new(uint64_t size_bytes)
{
	struct memory m = { .size = size_bytes };
	uint64_t room = (size_bytes + PAGE - 1) / PAGE * PAGE;

	m.base = aligned_alloc(PAGE, room ? room : PAGE);
	for (uint64_t i = 0; i < room; i += sizeof(uint64_t)) {
		uint64_t r = sim_next(&mem.rng);

		memcpy(m.base + i, &r, sizeof(r));
	}
	mem.all = reallocarray(mem.all, mem.n + 1, sizeof(*mem.all));
	mem.all[mem.n] = m;
	return FD_FIRST + (int)mem.n++;
}

static struct memory *memory_of(int fd)
{
	uint32_t i = (uint32_t)(fd - FD_FIRST);

	return i < mem.n ? &mem.all[i] : NULL;
}

uint8_t *fake_memory(int fd, uint64_t *ret_bytes)
{
	struct memory *m = memory_of(fd);

	if (ret_bytes)
		*ret_bytes = m->size;
	return m->base;
}

bool fake_memory_holds(uint64_t address)
{
	const struct fabric_region *r;

	for (uint32_t i = 0; i < mem.n; i++) {
		uint64_t base = (uintptr_t)mem.all[i].base;

		if (address >= base && address - base < mem.all[i].size)
			return true;
	}
	xc_list_for_each(r, &mem.slabs, link)
		if (address >= (uintptr_t)r->base && address - (uintptr_t)r->base < r->size)
			return true;
	return false;
}

uint64_t fake_memory_slab_bytes(const uint32_t *owner)
{
	const struct fabric_region *r;
	uint64_t bytes = 0;

	xc_list_for_each(r, &mem.slabs, link)
		if (!owner || r->owner == *owner)
			bytes += r->size;
	return bytes;
}

uint64_t fake_memory_copied(void)
{
	return mem.copied;
}

uint32_t fake_memory_regions(void)
{
	return mem.regions;
}

bool fake_memory_faulted(int fd)
{
	return memory_of(fd)->faulted;
}

void fake_memory_done(void)
{
	struct xc_list *l;

	while ((l = xc_list_pop(&mem.dead)))
		free(xc_container_of(l, struct fabric_region, link));
	for (uint32_t i = 0; i < mem.n; i++)
		free(mem.all[i].base);
	free(mem.all);
	memset(&mem, 0, sizeof(mem));
}

/* ---- regions */

int fake_region_map(int fd, uint64_t size_bytes, void *ctx, struct fabric_region **ret,
		    char *ret_why, size_t size)
{
	struct memory *m = memory_of(fd);
	struct fabric_region *r;

	if (!m || m->size != size_bytes) {
		snprintf(ret_why, size, "the descriptor is no memory of %llu bytes",
			 (unsigned long long)size_bytes);
		return -XP_E_BUFFER_UNFIT;
	}
	if (m->mapped_once) {
		snprintf(ret_why, size, "the memory is sealed");
		return -XP_E_BUFFER_SEALED;
	}
	if (sim_dice(&mem.rng, mem.map_fail)) {
		snprintf(ret_why, size, "no room for a map");
		return -ENOMEM;
	}
	r = calloc(1, sizeof(*r));
	*r = (struct fabric_region){ .magic = FAKE_REGION, .fd = fd, .base = m->base,
				     .size = m->size, .ctx = ctx };
	if (sim_dice(&mem.rng, mem.fault))
		r->fault_after = 1 + sim_below(&mem.rng, 40);
	m->mapped_once = true;
	mem.regions++;
	*ret = r;
	return 0;
}

int fake_slab_map(uint64_t size_bytes, struct fabric_region **ret, void **ret_memory)
{
	struct fabric_region *r;

	if (sim_dice(&mem.rng, mem.map_fail))
		return -ENOMEM;
	r = calloc(1, sizeof(*r));
	*r = (struct fabric_region){ .magic = FAKE_REGION, .fd = -1, .size = size_bytes,
				     .owner = fake_engine_job_owner };
	/* Untouched pages of it cost nothing. */
	r->slab = calloc(1, size_bytes + PAGE);
	r->base = r->slab + (PAGE - (uintptr_t)r->slab % PAGE) % PAGE;
	mem.regions++;
	xc_list_append(&mem.slabs, &r->link);
	*ret = r;
	*ret_memory = r->base;
	return 0;
}

static void region_use(const struct fabric_region *r, const char *call)
{
	sim_check(r && r->magic == FAKE_REGION && !r->dead, "I3", "%s of no region", call);
}

void fake_region_unmap(struct fabric_region *r)
{
	region_use(r, "region_unmap");
	sim_check(!r->mrs, "I3", "a region is unmapped under %u registrations", r->mrs);
	r->dead = true;
	mem.regions--;
	/* A use of it from now on is found by the sanitizer, or is a fault. */
	if (r->slab)
		xc_list_remove(&r->link);
	free(r->slab);
	r->slab = NULL;
	xc_list_append(&mem.dead, &r->link);
}

/* An access to it: false where the memory is gone. */
static bool touch(struct fabric_region *r)
{
	region_use(r, "an access");
	if (r->fault_after && !--r->fault_after)
		r->faulty = true;
	if (r->faulty)
		memory_of(r->fd)->faulted = true;
	return !r->faulty;
}

int fake_copy(struct fabric_region *r, uint64_t offset, void *memory, size_t size, bool to_region)
{
	region_use(r, "copy");
	sim_check(size <= 256 * 1024, "fabric.h", "a copy of %zu bytes at once", size);
	sim_check(xc_range_within(offset, size, r->size), "I4", "a copy beyond its region");
	mem.copied += size;
	if (!touch(r))
		return -XP_E_BUFFER_FAULT;
	if (to_region)
		memcpy(r->base + offset, memory, size);
	else
		memcpy(memory, r->base + offset, size);
	return 0;
}

void fake_fault(struct fabric *f, struct fabric_region *r)
{
	if (r->reported)
		return;
	r->reported = true;
	fake_event(f, FAKE_FAULT, r, -XP_E_BUFFER_FAULT);
}

/* ---- protection domains */

int fake_pd_alloc(struct fabric *f, uint32_t owner, struct fabric_pd **ret)
{
	struct fabric_pd *pd;

	fake_object_use(&f->o, FAKE_FABRIC, "pd_alloc");
	if (fake_lost(f))
		return -ENODEV;
	pd = calloc(1, sizeof(*pd));
	pd->owner = owner;
	pd->serial = ++f->pds_made;
	fake_object_add(f, &f->pds, &pd->o, FAKE_PD);
	*ret = pd;
	return 0;
}

void fake_pd_free(struct fabric_pd *pd)
{
	fake_object_use(&pd->o, FAKE_PD, "pd_free");
	sim_check(!pd->users, "I3", "a protection domain is freed with %u objects in it",
		  pd->users);
	fake_object_dead(&pd->o);
}

/* ---- registrations */

static bool key_taken(struct fabric *f, uint32_t index)
{
	struct fake_mr *mr;
	struct fake_mw *mw;

	xc_list_for_each(mr, &f->mrs, o.link)
		if (mr->mr.lkey >> 8 == index || mr->mr.rkey >> 8 == index)
			return true;
	xc_list_for_each(mw, &f->mws, o.link)
		if (mw->key >> 8 == index)
			return true;
	return false;
}

static uint32_t new_key(struct fabric *f)
{
	uint32_t index;

	do
		index = 1 + sim_below(&f->rng, 0xfffffe);
	while (key_taken(f, index));
	return index << 8 | sim_below(&f->rng, 256);
}

static void mr_dies(struct fake_mr *mr)
{
	for (uint32_t i = 0; i < mr->n_ranges; i++)
		mr->ranges[i].region->mrs--;
	mr->pd->users--;
	fake_object_dead(&mr->o);
}

static void reg_ends(struct fake_later *l)
{
	struct fake_mr *mr = xc_container_of(l->object, struct fake_mr, o);

	mr->coming = false;
	if (l->status)
		mr_dies(mr);
}

bool fake_weak(const struct fabric *f)
{
	return f->options.caps.keys == FABRIC_KEYS_SLAB;
}

static bool all_zero(const uint8_t *memory, uint64_t bytes)
{
	for (uint64_t i = 0; i < bytes; i++)
		if (memory[i])
			return false;
	return true;
}

/*
 * Where a device serves READs without a right, and keys that are dead: no memory of a client is
 * registered; what a slab shows it has shown to the same peer, in the same direction; and one that
 * a peer shall WRITE holds nothing from before that it could READ.
 */
static void check_weak(struct fabric_pd *pd, struct fabric_region *r, uint64_t offset,
		       uint64_t length, int access)
{
	int direction = 1 + (access & REMOTE);

	sim_check(r->fd < 0, "I1", "client memory is registered where rights do not hold");
	sim_check(!r->pd_serial || r->pd_serial == pd->serial, "I5",
		  "a slab is registered in a second domain");
	sim_check(!r->direction || r->direction == direction, "I1",
		  "a slab is used again in another direction");
	sim_check(!(access & IBV_ACCESS_REMOTE_WRITE) || all_zero(r->base + offset, length), "I1",
		  "what a slab held before is there to be read");
	r->pd_serial = pd->serial;
	r->direction = direction;
}

/* An address that is none of anybody's. */
static uint64_t made_up(struct fabric *f, uint64_t iova)
{
	return (UINT64_C(1) << 60) + ((uint64_t)sim_below(&f->rng, 1u << 30) << 24) + iova % PAGE;
}

/* These ranges, found sound. */
static int register_ranges(struct fabric_pd *pd, const struct fabric_range *ranges, uint32_t n,
			   uint64_t iova, int access, struct fabric_done *done,
			   struct ibv_mr **ret_mr)
{
	struct fabric *f = pd->o.f;
	struct fake_mr *mr;
	uint64_t length = 0, end;
	bool refused, chosen;

	sim_check(!(access & IBV_ACCESS_REMOTE_WRITE) || access & IBV_ACCESS_LOCAL_WRITE,
		  "fabric.h", "REMOTE_WRITE without LOCAL_WRITE");
	for (uint32_t i = 0; i < n; i++) {
		region_use(ranges[i].region, "mr_reg");
		sim_check(ranges[i].length &&
				  xc_range_within(ranges[i].offset, ranges[i].length,
						  ranges[i].region->size),
			  "I1", "a registration beyond its region");
		length += ranges[i].length;
	}
	sim_check(xc_add_u64(iova, length, &end), "I1",
		  "a registration around the end of its space");
	if (fake_lost(f))
		return -ENODEV;
	chosen = f->refuse && !--f->refuse;
	if (chosen && !f->refuse_late)
		return -ENOMEM;
	refused = chosen || fake_dice(f, f->options.dice.reg_fail) ||
		  (n > 1 && fake_dice(f, f->options.dice.ranges_fail));
	mr = calloc(1, sizeof(*mr) + n * sizeof(ranges[0]));
	mr->pd = pd;
	mr->n_ranges = n;
	memcpy(mr->ranges, ranges, n * sizeof(ranges[0]));
	mr->access = access;
	mr->coming = true;
	mr->mr.lkey = new_key(f);
	mr->mr.rkey = sim_below(&f->rng, 2) ? mr->mr.lkey : new_key(f);
	if (f->options.own_addresses)
		iova = made_up(f, iova);
	mr->mr.addr = (void *)(uintptr_t)iova;
	mr->mr.length = length;
	for (uint32_t i = 0; i < n; i++)
		ranges[i].region->mrs++;
	pd->users++;
	fake_object_add(f, &f->mrs, &mr->o, FAKE_MR);
	return fake_answer((struct fake_later){ .done = done, .object = &mr->o, .finish = reg_ends,
						.status = refused ? -ENOMEM : 0,
						.ret = (void **)ret_mr, .value = &mr->mr },
			   chosen ? 1000 : f->options.dice.reg_slow);
}

int fake_mr_reg(struct fabric_pd *pd, struct fabric_region *region, uint64_t offset,
		uint64_t length, uint64_t iova, int access, struct fabric_done *done,
		struct ibv_mr **ret_mr)
{
	const struct fabric_range range = { .region = region, .offset = offset, .length = length };

	fake_object_use(&pd->o, FAKE_PD, "mr_reg");
	region_use(region, "mr_reg");
	sim_check(length && xc_range_within(offset, length, region->size), "I1",
		  "a registration beyond its region");
	sim_check(iova % PAGE == offset % PAGE, "fabric.h", "an iova of another place in its page");
	if (fake_weak(pd->o.f))
		check_weak(pd, region, offset, length, access);
	return register_ranges(pd, &range, 1, iova, access, done, ret_mr);
}

int fake_mr_reg_ranges(struct fabric_pd *pd, const struct fabric_range *ranges, uint32_t n,
		       uint64_t iova, int access, struct fabric_done *done, struct ibv_mr **ret_mr)
{
	const struct fabric_caps *c;

	fake_object_use(&pd->o, FAKE_PD, "mr_reg_ranges");
	c = &pd->o.f->options.caps;
	sim_check(n && n <= c->max_ranges, "fabric.h", "a key over %u ranges, %u are allowed", n,
		  c->max_ranges);
	sim_check(!(access & ~(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND | REMOTE)), "fabric.h",
		  "a key over ranges with access %#x", access);
	sim_check(!fake_weak(pd->o.f), "I1",
		  "client memory is registered where rights do not hold");
	return register_ranges(pd, ranges, n, iova, access, done, ret_mr);
}

static struct fake_mr *mr_of(struct ibv_mr *mr, const char *call)
{
	struct fake_mr *m = xc_container_of(mr, struct fake_mr, mr);

	sim_check(mr, "fabric.h", "%s of NULL", call);
	fake_object_use(&m->o, FAKE_MR, call);
	sim_check(!m->coming && !m->going, "fabric.h", "%s of a registration under way", call);
	return m;
}

static void dereg_ends(struct fake_later *l)
{
	struct fake_mr *mr = xc_container_of(l->object, struct fake_mr, o);

	mr_dies(mr);
}

int fake_mr_dereg(struct ibv_mr *ibv, struct fabric_done *done)
{
	struct fake_mr *mr = mr_of(ibv, "mr_dereg");
	struct fabric *f = mr->o.f;
	struct fabric_ep *ep;

	sim_check(!mr->windows, "I3", "a registration is undone under %u windows", mr->windows);
	xc_list_for_each(ep, &f->eps, o.link)
		sim_check(!fake_ep_uses(ep, ibv->lkey), "I3",
			  "a registration is undone under a request that uses it");
	mr->going = true;
	return fake_answer(
		(struct fake_later){.done = done, .object = &mr->o, .finish = dereg_ends},
		f->options.dice.dereg_slow);
}

struct fake_mr *fake_mr_by_lkey(struct fabric *f, uint32_t lkey)
{
	struct fake_mr *mr;

	xc_list_for_each(mr, &f->mrs, o.link)
		if (mr->mr.lkey == lkey && !mr->coming)
			return mr;
	return NULL;
}

/* ---- windows */

static void mw_alloc_ends(struct fake_later *l)
{
	struct fake_mw *mw = xc_container_of(l->object, struct fake_mw, o);

	mw->coming = false;
	if (!l->status)
		return;
	mw->pd->users--;
	fake_object_dead(&mw->o);
}

/* Counts those that are under way, out and in. */
static bool has_window(struct fabric *f)
{
	uint32_t n = 0;

	for (struct xc_list *l = f->mws.next; l != &f->mws; l = l->next)
		n++;
	return !f->options.dice.windows || n <= f->options.dice.windows;
}

int fake_mw_alloc(struct fabric_pd *pd, struct fabric_done *done, struct ibv_mw **ret_mw)
{
	const struct fake_witness *witness;
	struct fabric *f;
	struct fake_mw *mw;
	int status;

	fake_object_use(&pd->o, FAKE_PD, "mw_alloc");
	f = pd->o.f;
	sim_check(f->options.caps.keys == FABRIC_KEYS_WINDOW, "fabric.h",
		  "mw_alloc where there are no windows");
	if (fake_lost(f))
		return -ENODEV;
	mw = calloc(1, sizeof(*mw));
	mw->pd = pd;
	mw->coming = true;
	mw->key = mw->mw.rkey = new_key(f);
	mw->mw.type = IBV_MW_TYPE_2;
	pd->users++;
	fake_object_add(f, &f->mws, &mw->o, FAKE_MW);
	status = has_window(f) && !fake_dice(f, f->options.dice.mw_fail) ? 0 : -ENOMEM;
	witness = &f->options.witness;
	if (status == 0 && witness->window)
		witness->window(witness->ctx, f->options.net, pd->owner);
	return fake_answer((struct fake_later){ .done = done,
						.object = &mw->o,
						.finish = mw_alloc_ends,
						.status = status,
						.ret = (void **)ret_mw,
						.value = &mw->mw },
			   f->options.dice.mw_slow);
}

struct fake_mw *fake_mw_of(struct ibv_mw *mw)
{
	struct fake_mw *m = xc_container_of(mw, struct fake_mw, mw);

	sim_check(mw, "fabric.h", "no window");
	fake_object_use(&m->o, FAKE_MW, "use of a window");
	sim_check(!m->coming && !m->going, "fabric.h", "use of a window under way");
	return m;
}

/* The key is dead, and the window lets go of its registration. */
void fake_mw_unbind(struct fake_mw *mw)
{
	mw->live = false;
	if (mw->mr)
		mw->mr->windows--;
	mw->mr = NULL;
}

static void mw_dealloc_ends(struct fake_later *l)
{
	struct fake_mw *mw = xc_container_of(l->object, struct fake_mw, o);

	fake_mw_unbind(mw);
	mw->pd->users--;
	fake_object_dead(&mw->o);
}

int fake_mw_dealloc(struct ibv_mw *ibv, struct fabric_done *done)
{
	struct fake_mw *mw = fake_mw_of(ibv);
	struct fabric *f = mw->o.f;

	mw->going = true;
	/* A slow one keeps the key alive until it is done: whoever counts on it sooner is wrong. */
	return fake_answer((struct fake_later){ .done = done, .object = &mw->o,
						.finish = mw_dealloc_ends },
			   f->options.dice.mw_slow);
}

struct fake_mw *fake_mw_by_rkey(struct fabric_ep *ep, uint32_t rkey)
{
	struct fake_mw *mw;

	xc_list_for_each(mw, &ep->o.f->mws, o.link)
		if (mw->bound_key == rkey && mw->ep == ep)
			return mw;
	return NULL;
}

/* ---- who may reach what */

/* The range that this byte of a registration is in; *at moves into it. */
static const struct fabric_range *range_at(const struct fake_mr *mr, uint64_t *at)
{
	for (uint32_t i = 0; i < mr->n_ranges; i++) {
		if (*at < mr->ranges[i].length)
			return &mr->ranges[i];
		*at -= mr->ranges[i].length;
	}
	sim_broken("simulation", "a byte beyond its registration");
}

uint8_t *fake_local(struct fabric_ep *ep, const struct ibv_sge *sge, uint64_t at, uint64_t *bytes)
{
	struct fake_mr *mr = fake_mr_by_lkey(ep->o.f, sge->lkey);
	const struct fabric_range *r;

	sim_check(mr, "I3", "a request runs on a registration that is gone");
	at += sge->addr - (uintptr_t)mr->mr.addr;
	r = range_at(mr, &at);
	if (!touch(r->region)) {
		fake_fault(ep->o.f, r->region);
		return NULL;
	}
	*bytes = xc_min_u64(*bytes, r->length - at);
	return r->region->base + r->offset + at;
}

static bool in_range(uint64_t base, uint64_t bytes, uint64_t address, uint64_t length)
{
	return address >= base && xc_range_within(address - base, length, bytes);
}

static int behind(struct fake_mr *mr, uint64_t address, struct fake_place *ret)
{
	uint64_t at = address - (uintptr_t)mr->mr.addr;
	const struct fabric_range *r = range_at(mr, &at);

	if (!touch(r->region)) {
		fake_fault(mr->o.f, r->region);
		return IBV_WC_REM_OP_ERR;
	}
	*ret = (struct fake_place){ .region = r->region,
				    .offset = address - (uintptr_t)mr->mr.addr,
				    .memory = r->region->base + r->offset + at,
				    .bytes = r->length - at };
	return 0;
}

/* Some devices serve READs whatever the right. */
static bool serves(const struct fake_mr *mr, int access)
{
	return mr->access & access ||
	       (access == IBV_ACCESS_REMOTE_READ && fake_weak(mr->o.f));
}

int fake_remote(struct fabric_ep *ep, uint32_t rkey, uint64_t address, uint64_t length, int access,
		uint64_t at, struct fake_place *ret)
{
	struct fake_mw *mw = fake_mw_by_rkey(ep, rkey);
	struct fake_mr *mr;

	if (mw && mw->live) {
		if (!(mw->access & access) || !in_range(mw->iova, mw->length, address, length))
			return IBV_WC_REM_ACCESS_ERR;
		return behind(mw->mr, address + at, ret);
	}
	xc_list_for_each(mr, &ep->o.f->mrs, o.link) {
		if (mr->coming || mr->mr.rkey != rkey || mr->pd != ep->attr.pd ||
		    !serves(mr, access))
			continue;
		if (!in_range((uintptr_t)mr->mr.addr, mr->mr.length, address, length))
			return IBV_WC_REM_ACCESS_ERR;
		return behind(mr, address + at, ret);
	}
	return IBV_WC_REM_ACCESS_ERR;
}

static void mr_key(struct fabric *f, struct fake_mr *mr,
		   void (*fn)(void *ctx, const struct fake_key *key), void *ctx)
{
	struct fake_key k = { .rkey = mr->mr.rkey, .access = mr->access & REMOTE,
			      .iova = (uintptr_t)mr->mr.addr, .owner = mr->pd->owner,
			      .ranges = mr->n_ranges, .total = mr->mr.length };
	struct fabric_ep *ep;
	uint32_t n = 0;

	xc_list_for_each(ep, &f->eps, o.link) {
		if (ep->attr.pd != mr->pd)
			continue;
		n++;
		k.ep_tag = ep->tag;
	}
	sim_check(n <= 1, "I5", "a key that %u endpoints could use", n);
	for (; n && k.access && k.range < mr->n_ranges; k.range++, k.iova += k.length) {
		const struct fabric_range *r = &mr->ranges[k.range];

		k.length = r->length;
		k.fd = r->region->fd;
		k.offset = r->offset;
		k.whole = r->length == r->region->size;
		fn(ctx, &k);
	}
}

/* Range by range, as far as it goes. */
static void window_key(const struct fake_mw *mw, void (*fn)(void *ctx, const struct fake_key *key),
		       void *ctx)
{
	struct fake_key k = { .rkey = mw->bound_key, .access = mw->access & REMOTE,
			      .iova = mw->iova, .ep_tag = mw->ep->tag, .owner = mw->pd->owner,
			      .ranges = mw->mr->n_ranges, .total = mw->length, .window = true };
	uint64_t at, left = mw->length;

	for (; left; left -= k.length, k.iova += k.length) {
		const struct fabric_range *r;

		at = k.iova - (uintptr_t)mw->mr->mr.addr;
		r = range_at(mw->mr, &at);
		k.length = xc_min_u64(left, r->length - at);
		k.fd = r->region->fd;
		k.offset = r->offset + at;
		k.range = (uint32_t)(r - mw->mr->ranges);
		fn(ctx, &k);
	}
}

void fake_fabric_keys(struct fabric *f, void (*fn)(void *ctx, const struct fake_key *key),
		      void *ctx)
{
	struct fake_mr *mr;
	struct fake_mw *mw;

	xc_list_for_each(mr, &f->mrs, o.link)
		if ((mr->access & REMOTE || fake_weak(f)) && !mr->coming)
			mr_key(f, mr, fn, ctx);
	xc_list_for_each(mw, &f->mws, o.link) {
		if (!mw->live || mw->ep->o.dead)
			continue;
		window_key(mw, fn, ctx);
	}
}

void fake_fabric_pins(struct fabric *f, void (*fn)(void *ctx, const struct fake_pin *pin),
		      void *ctx)
{
	struct fake_mr *mr;

	xc_list_for_each(mr, &f->mrs, o.link)
		for (uint32_t i = 0; i < mr->n_ranges; i++)
			fn(ctx, &(struct fake_pin){ .owner = mr->pd->owner,
						    .fd = mr->ranges[i].region->fd,
						    .length = mr->ranges[i].length,
						    .part = mr->n_ranges > 1 ||
							    mr->ranges[i].length !=
								    mr->ranges[i].region->size,
						    .exposed = mr->access & REMOTE });
}

struct sought {
	uint32_t rkey;
	bool found;
};

static void seek(void *ctx, const struct fake_key *key)
{
	struct sought *s = ctx;

	s->found |= key->rkey == s->rkey;
}

bool fake_fabric_key_live(struct fabric *f, uint32_t rkey)
{
	struct sought s = { .rkey = rkey };

	fake_fabric_keys(f, seek, &s);
	return s.found;
}
