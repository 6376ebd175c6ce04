/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include <errno.h>
#include <stdlib.h>

#include "common/assert.h"
#include "common/checked.h"
#include "daemon/fabric/iwarp/private.h"

#define PAGE_MASK UINT64_C(0xfff)
#define REMOTE_RIGHTS (IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE)
#define REGION_RIGHTS (IBV_ACCESS_LOCAL_WRITE | REMOTE_RIGHTS | IBV_ACCESS_MW_BIND)

/*
 * ---------------------------------------------------------------------------- protection domains
 */

int iwarp_pd_alloc(struct fabric *f, uint32_t owner, struct fabric_pd **ret)
{
	struct fabric_pd *pd;
	int err;

	XC_CHECK(f, IWARP_FABRIC_MAGIC);
	pd = calloc(1, sizeof(*pd));
	if (!pd)
		return -ENOMEM;
	err = iwarp_owner_get(f, owner, &pd->owner);
	if (err) {
		free(pd);
		return err;
	}
	pd->magic = IWARP_PD_MAGIC;
	pd->fabric = f;
	xc_list_init(&pd->turn);
	xc_list_init(&pd->turns);
	f->objects++;
	*ret = pd;
	return 0;
}

void iwarp_pd_free(struct fabric_pd *pd)
{
	XC_CHECK(pd, IWARP_PD_MAGIC);
	xc_assert(pd->objects == 0 && xc_list_empty(&pd->turns));
	xc_list_remove(&pd->turn);
	iwarp_owner_put(pd->owner);
	pd->fabric->objects--;
	pd->magic = 0;
	free(pd);
}

/* -------------------------------------------------------------------------------------- regions */

static bool range_is_sound(const struct fabric_range *r)
{
	return r->length && xc_range_within(r->offset, r->length, fabric_region_bytes(r->region));
}

static bool rights_are_sound(int access, int possible)
{
	return !(access & ~possible) &&
	       /* ibv_reg_mr(3): what a peer may write, the owner may */
	       (!(access & IBV_ACCESS_REMOTE_WRITE) || (access & IBV_ACCESS_LOCAL_WRITE));
}

/* n ranges, found sound, of `length` bytes in all. */
static int mr_new(struct fabric_pd *pd, const struct fabric_range *ranges, uint32_t n,
		  uint64_t length, uint64_t iova, int access, struct ibv_mr **ret_mr)
{
	struct iwarp_mr *m = calloc(1, sizeof(*m) + (n - 1) * sizeof(m->more[0]));
	uint64_t start = 0;
	int err;

	if (!m)
		return -ENOMEM;
	m->magic = IWARP_MR_MAGIC;
	m->n_ranges = n;
	for (uint32_t i = 0; i < n; i++) {
		*(i ? &m->more[i - 1] : &m->first) = (struct iwarp_range){
			.start = start, .region = ranges[i].region,
			.region_offset = ranges[i].offset,
		};
		start += ranges[i].length;
	}
	m->stag = (struct iwarp_stag){
		.kind = IWARP_STAG_REGION, .valid = true, .rights = access, .pd = pd,
		.mr = m, .base = iova, .length = length,
	};
	xc_list_init(&m->stag.on_ep);
	err = iwarp_stags_add(&pd->fabric->stags, &m->stag);
	if (err) {
		free(m);
		return err;
	}
	m->mr.addr = (void *)(uintptr_t)iova;
	m->mr.length = length;
	m->mr.lkey = m->mr.rkey = iwarp_stag_number(&m->stag);
	pd->objects++;
	*ret_mr = &m->mr;
	return 0;
}

int iwarp_mr_reg(struct fabric_pd *pd, struct fabric_region *region, uint64_t offset,
		 uint64_t length, uint64_t iova, int access, struct fabric_done *done,
		 struct ibv_mr **ret_mr)
{
	const struct fabric_range range = { .region = region, .offset = offset, .length = length };
	uint64_t end;

	(void)done;
	XC_CHECK(pd, IWARP_PD_MAGIC);
	if (!range_is_sound(&range) || !rights_are_sound(access, REGION_RIGHTS) ||
	    !xc_add_u64(iova, length, &end) || ((iova ^ offset) & PAGE_MASK))
		return -EINVAL;
	return mr_new(pd, &range, 1, length, iova, access, ret_mr);
}

int iwarp_mr_reg_ranges(struct fabric_pd *pd, const struct fabric_range *ranges, uint32_t n,
			uint64_t iova, int access, struct fabric_done *done, struct ibv_mr **ret_mr)
{
	uint64_t length = 0, end;

	(void)done;
	XC_CHECK(pd, IWARP_PD_MAGIC);
	if (!pd->fabric->caps.max_ranges)
		return -EOPNOTSUPP;
	if (!n || n > pd->fabric->caps.max_ranges ||
	    !rights_are_sound(access, REGION_RIGHTS))
		return -EINVAL;
	for (uint32_t i = 0; i < n; i++)
		if (!range_is_sound(&ranges[i]) || !xc_add_u64(length, ranges[i].length, &length))
			return -EINVAL;
	if (!xc_add_u64(iova, length, &end))
		return -EINVAL;
	return mr_new(pd, ranges, n, length, iova, access, ret_mr);
}

int iwarp_mr_dereg(struct ibv_mr *mr, struct fabric_done *done)
{
	struct iwarp_mr *m = xc_container_of(mr, struct iwarp_mr, mr);
	struct fabric_pd *pd;

	(void)done;
	XC_CHECK(m, IWARP_MR_MAGIC);
	if (m->windows)
		return -EBUSY;
	pd = m->stag.pd;
	iwarp_stags_remove(&pd->fabric->stags, &m->stag);
	pd->objects--;
	m->magic = 0;
	free(m);
	return 0;
}

/* -------------------------------------------------------------------------------------- windows */

int iwarp_mw_alloc(struct fabric_pd *pd, struct fabric_done *done, struct ibv_mw **ret_mw)
{
	struct iwarp_mw *w;
	int err;

	(void)done;
	XC_CHECK(pd, IWARP_PD_MAGIC);
	if (pd->fabric->caps.keys != FABRIC_KEYS_WINDOW)
		return -EOPNOTSUPP;
	w = calloc(1, sizeof(*w));
	if (!w)
		return -ENOMEM;
	w->magic = IWARP_MW_MAGIC;
	w->stag = (struct iwarp_stag){ .kind = IWARP_STAG_WINDOW, .pd = pd };
	xc_list_init(&w->stag.on_ep);
	err = iwarp_stags_add(&pd->fabric->stags, &w->stag);
	if (err) {
		free(w);
		return err;
	}
	w->mw.type = IBV_MW_TYPE_2;
	w->mw.rkey = iwarp_stag_number(&w->stag);
	pd->objects++;
	*ret_mw = &w->mw;
	return 0;
}

/*
 * The stream stays noted: its LOCAL_INV of this key, posted before the peer's invalidation was
 * known, is no error.
 */
static void unbind(struct iwarp_stag *w)
{
	if (!w->valid)
		return;
	w->valid = false;
	w->mr->windows--;
	w->mr = NULL;
}

int iwarp_mw_dealloc(struct ibv_mw *mw, struct fabric_done *done)
{
	struct iwarp_mw *w = xc_container_of(mw, struct iwarp_mw, mw);
	struct fabric_pd *pd;

	(void)done;
	XC_CHECK(w, IWARP_MW_MAGIC);
	pd = w->stag.pd;
	unbind(&w->stag);
	xc_list_remove(&w->stag.on_ep);
	iwarp_stags_remove(&pd->fabric->stags, &w->stag);
	pd->objects--;
	w->magic = 0;
	free(w);
	return 0;
}

void iwarp_unbind_all(struct fabric_ep *ep)
{
	struct xc_list *link;

	while ((link = xc_list_pop(&ep->windows))) {
		struct iwarp_stag *w = xc_container_of(link, struct iwarp_stag, on_ep);

		unbind(w);
		w->ep = NULL;
	}
}

static bool may_bind(const struct fabric_ep *ep, const struct iwarp_stag *w,
		     const struct iwarp_stag *m, const struct iwarp_bind *b)
{
	if (!w || w->kind != IWARP_STAG_WINDOW || w->serial != b->window_serial ||
	    w->pd != ep->pd || w->valid)
		return false;
	/* The key that it had last may still be in somebody's hands. */
	if (w->key == (b->new_rkey & 0xff) && !FABRIC_SABOTAGE("reuse-key-byte"))
		return false;
	if (!m || m->kind != IWARP_STAG_REGION || m->pd != ep->pd ||
	    !(m->rights & IBV_ACCESS_MW_BIND))
		return false;
	if ((b->access & ~REMOTE_RIGHTS) || b->length == 0 || b->address < m->base)
		return false;
	if ((b->access & IBV_ACCESS_REMOTE_WRITE) && !(m->rights & IBV_ACCESS_LOCAL_WRITE))
		return false;
	return xc_range_within(b->address - m->base, b->length, m->length);
}

bool iwarp_bind(struct fabric_ep *ep, const struct iwarp_bind *b)
{
	struct iwarp_stags *stags = &ep->fabric->stags;
	struct iwarp_stag *w = iwarp_stags_at(stags, b->new_rkey >> 8);
	struct iwarp_stag *m = iwarp_stags_find(stags, b->lkey);

	if (!may_bind(ep, w, m, b))
		return false;
	w->key = b->new_rkey & 0xff;
	w->rights = b->access;
	w->base = b->address;
	w->length = b->length;
	w->mr = m->mr;
	w->mr->windows++;
	w->ep = ep;
	w->valid = true;
	xc_list_remove(&w->on_ep);
	xc_list_append(&ep->windows, &w->on_ep);
	return true;
}

/* A window that this endpoint bound last, under this key. */
static struct iwarp_stag *window_of(struct fabric_ep *ep, uint32_t rkey)
{
	struct iwarp_stag *w = iwarp_stags_find(&ep->fabric->stags, rkey);

	return w && w->kind == IWARP_STAG_WINDOW && w->ep == ep ? w : NULL;
}

bool iwarp_names_window(struct fabric_ep *ep, uint32_t rkey)
{
	return window_of(ep, rkey) != NULL;
}

bool iwarp_local_invalidate(struct fabric_ep *ep, uint32_t rkey)
{
	struct iwarp_stag *w = window_of(ep, rkey);

	if (!w)
		return false;
	if (!FABRIC_SABOTAGE("skip-invalidate"))
		unbind(w);
	return true;
}

bool iwarp_can_remote_invalidate(struct fabric_ep *target, uint32_t rkey)
{
	struct iwarp_stag *w = iwarp_stags_find(&target->fabric->stags, rkey);

	if (!w || w->kind != IWARP_STAG_WINDOW || !w->valid)
		return false;
	return w->ep == target || FABRIC_SABOTAGE("skip-stream-check");
}

void iwarp_remote_invalidate(struct fabric_ep *target, uint32_t rkey)
{
	struct iwarp_stag *w = iwarp_stags_find(&target->fabric->stags, rkey);

	if (!FABRIC_SABOTAGE("skip-invalidate"))
		unbind(w);
}

/* --------------------------------------------------------------------------------------- access */

static const struct iwarp_range *range_at(const struct iwarp_mr *m, uint32_t i)
{
	return i ? &m->more[i - 1] : &m->first;
}

/* A saboteur's: a byte too many, of a key over ranges. */
static uint64_t slack(const struct iwarp_mr *m)
{
	return FABRIC_SABOTAGE("widen-ranges") && m->n_ranges > 1 ? 1 : 0;
}

/* Narrows a span of the first range to the range that `at` (in the MR) is in. */
static void enter_range(const struct iwarp_mr *m, uint64_t at, struct iwarp_span *span)
{
	uint32_t low = 0, high = m->n_ranges; /* it is in [low, high) */
	uint64_t end;

	while (high - low > 1) {
		uint32_t middle = low + (high - low) / 2;

		if (range_at(m, middle)->start <= at)
			low = middle;
		else
			high = middle;
	}
	if (FABRIC_SABOTAGE("first-range"))
		low = 0;
	end = high < m->n_ranges ? range_at(m, high)->start : m->stag.length + slack(m);
	span->region = range_at(m, low)->region;
	span->at = fabric_region_base(span->region) + range_at(m, low)->region_offset +
		   (at - range_at(m, low)->start);
	if (!FABRIC_SABOTAGE("ignore-seams"))
		span->bytes = xc_min_u64(span->bytes, end - at);
}

/* The bytes behind a range that is within the STag's bounds. */
static bool span_of(const struct iwarp_stag *s, uint64_t address, uint64_t length,
		    struct iwarp_span *ret)
{
	const struct iwarp_stag *bounds = s;

	if (FABRIC_SABOTAGE("widen-bound"))
		bounds = &s->mr->stag;
	if (address < bounds->base ||
	    !xc_range_within(address - bounds->base, length, bounds->length + slack(s->mr)))
		return false;
	/* s->base is within its region's bounds, so the sum is within the region's memory. */
	ret->region = s->mr->first.region;
	ret->at = fabric_region_base(ret->region) + s->mr->first.region_offset +
		  (address - s->mr->stag.base);
	ret->bytes = length;
	if (s->mr->n_ranges > 1)
		enter_range(s->mr, address - s->mr->stag.base, ret);
	return true;
}

bool iwarp_local_access(struct fabric_ep *ep, uint32_t lkey, uint64_t address, uint64_t length,
			int right, struct iwarp_span *ret)
{
	const struct iwarp_stag *s = iwarp_stags_find(&ep->fabric->stags, lkey);

	if (!s || s->kind != IWARP_STAG_REGION)
		return false;
	if (s->pd != ep->pd && !FABRIC_SABOTAGE("skip-pd-check"))
		return false;
	if ((s->rights & right) != right && !FABRIC_SABOTAGE("skip-local-rights"))
		return false;
	return span_of(s, address, length, ret);
}

/*
 * RFC 5040 5.2 and RFC 5042 8: the STag is known and valid, on this stream (a window) or in its
 * protection domain (a region), grants the right, and covers every byte.
 */
enum iwarp_access iwarp_remote_check(struct fabric_ep *target, uint32_t rkey, uint64_t address,
				     uint64_t length, int right, struct iwarp_span *ret)
{
	const struct iwarp_stag *s = iwarp_stags_find(&target->fabric->stags, rkey);

	if (!s || !s->valid)
		return IWARP_ACCESS_NO_STAG;
	if (s->kind == IWARP_STAG_WINDOW && s->ep != target &&
	    !FABRIC_SABOTAGE("skip-stream-check"))
		return IWARP_ACCESS_STREAM;
	if (s->pd != target->pd && !FABRIC_SABOTAGE("skip-pd-check") &&
	    !FABRIC_SABOTAGE("skip-stream-check"))
		return IWARP_ACCESS_STREAM;
	if ((s->rights & right) != right && !FABRIC_SABOTAGE("skip-rights"))
		return IWARP_ACCESS_RIGHTS;
	return span_of(s, address, length, ret) ? IWARP_ACCESS_OK : IWARP_ACCESS_BOUNDS;
}

bool iwarp_remote_access(struct fabric_ep *target, uint32_t rkey, uint64_t address, uint64_t length,
			 int right, struct iwarp_span *ret)
{
	return iwarp_remote_check(target, rkey, address, length, right, ret) == IWARP_ACCESS_OK;
}
