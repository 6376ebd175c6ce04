/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include <errno.h>
#include <string.h>

#include "common/assert.h"
#include "daemon/core/audited.h"
#include "daemon/core/grant.h"
#include "daemon/core/stage.h"

/*
 * Grants that are copies, for devices that do not hold rights, or serve a key that is dead. The
 * slab of one is used again only for the same endpoint and the same direction, until the QP is
 * gone: whatever such a key still reaches was for this peer.
 */

#define COPY_BYTES (UINT64_C(256) << 10)
#define PAGE_BYTES UINT64_C(4096)
#define LARGE_BYTES (UINT64_C(1) << 20)
#define LARGE_STEP (UINT64_C(64) << 10)
/* Where a slab lies for its device, where that honours such a wish: no address of ours. */
#define COPIED_IOVA (UINT64_C(1) << 40)

/* ------------------------------------------------------------------ slabs */

/* Few sizes, so that one fits the next grant. */
static uint64_t slab_bytes(uint32_t length)
{
	uint64_t bytes = PAGE_BYTES;

	if (length > LARGE_BYTES)
		return (length + LARGE_STEP - 1) / LARGE_STEP * LARGE_STEP;
	while (bytes < length)
		bytes *= 2;
	return bytes;
}

static void slab_idle(struct xd_grant *g)
{
	struct xd_endpoint *ep = g->endpoint;
	struct xd_slab *slab = g->slab;
	bool write = g->write && !XD_SABOTAGE("turn-a-slab");

	g->slab = NULL;
	if (ep->gone)
		xd_slab_free(slab);
	else
		xc_list_append(&ep->idle_slabs[write], &slab->link);
}

void xd_copied_free(struct xd_endpoint *ep)
{
	struct xd_slab *slab;

	for (int i = 0; i < 2; i++)
		while ((slab = xc_list_first(&ep->idle_slabs[i], struct xd_slab, link)))
			xd_slab_free(slab);
}

static void begin(struct xd_grant *g, enum xd_copying what)
{
	g->copying = what;
	g->copied_bytes = 0;
	if (xc_list_empty(&g->copy_link))
		xc_list_append(&g->endpoint->copies, &g->copy_link);
	xd_stage_soon(g->endpoint);
}

static void slab_ready(struct xd_slab *slab, int status)
{
	struct xd_grant *g = slab->owner;

	if (status < 0) {
		g->slab = NULL;
		xd_grant_made(g, status);
	} else {
		begin(g, XD_COPY_FILL);
	}
}

int xd_copied_make(struct xd_grant *g)
{
	struct xd_endpoint *ep = g->endpoint;
	uint64_t bytes = slab_bytes(g->length);
	struct xd_slab *slab;
	int r;

	xc_list_for_each(slab, &ep->idle_slabs[g->write], link) {
		if (slab->size_bytes == bytes) {
			xc_list_remove(&slab->link);
			g->slab = slab;
			begin(g, XD_COPY_FILL);
			return -EINPROGRESS;
		}
	}
	r = xd_slab_new(ep, bytes, XD_SLAB_NO_KEY, slab_ready, g, &g->slab);
	if (r == 0)
		return -EINPROGRESS;
	return r == -XP_E_QUOTA ? -XP_E_QUARANTINE : r;
}

/* ------------------------------------------------------------------ copying */

static void registered(struct fabric_done *done, int status)
{
	struct xd_grant *g = xc_container_of(done, struct xd_grant, done);

	if (status < 0)
		g->mr = NULL;
	xd_grant_made(g, status);
}

static void filled(struct xd_grant *g, int status)
{
	const struct fabric_ref *f = xd_ep_fabric(g->endpoint);
	uint64_t length = XD_SABOTAGE("widen-a-bound") ? g->slab->size_bytes : g->length;
	uint64_t iova = XD_SABOTAGE("tell-an-address") ? (uintptr_t)g->slab->memory : COPIED_IOVA;
	int r = status;

	if (r == 0 && g->state != XD_GRANT_KILLING) {
		g->done.fn = registered;
		xd_audited_grant(g, XD_AUDIT_COPY);
		r = f->ops->mr_reg(g->endpoint->pd->pd, g->slab->region, 0, length, iova,
				   xd_grant_access(g), &g->done, &g->mr);
	}
	if (r == -EINPROGRESS)
		return;
	if (r < 0)
		g->mr = NULL;
	xd_grant_made(g, r);
}

static void synced(struct xd_grant *g)
{
	if (g->sync)
		g->endpoint->n_sync--;
	g->sync = false;
}

static void copied(struct xd_grant *g, int status)
{
	enum xd_copying what = g->copying;

	xc_list_remove(&g->copy_link);
	g->copying = XD_COPY_NONE;
	if (what == XD_COPY_FILL) {
		filled(g, status);
		return;
	}
	synced(g);
	if (what == XD_COPY_LAST) {
		slab_idle(g);
		xd_grant_dead(g, false);
	}
}

/* The piece of client memory at its byte `at`, up to the end of its range. */
static struct xp_segment piece_at(const struct xd_grant *g, uint64_t at)
{
	const struct xp_segment *r = g->ranges;

	for (; at >= r->length; r++)
		at -= r->length;
	return (struct xp_segment){ r->address + at, r->length - (uint32_t)at, r->key };
}

/* A quantum of the first copy. */
static void copy_some(struct xd_grant *g)
{
	uint64_t at = g->copied_bytes;
	struct xp_segment piece = piece_at(g, at);
	uint64_t n = xc_min_u64(piece.length, COPY_BYTES);
	uint8_t *memory = (uint8_t *)g->slab->memory + at;
	bool fill = g->copying == XD_COPY_FILL;
	int r = 0;

	if (xd_session_ending(g->session) || (fill && g->state == XD_GRANT_KILLING)) {
		copied(g, -XP_E_FLUSHED);
		return;
	}
	if (!fill || !g->write)
		r = xd_copy(xd_buffer_get(g->session, piece.key), piece.address, memory, n, !fill);
	else if (!XD_SABOTAGE("leave-what-was"))
		memset(memory, 0, n); /* one that was used before */
	g->copied_bytes += n;
	if (r < 0 || g->copied_bytes == g->length)
		copied(g, r);
}

bool xd_copied_advance(struct xd_endpoint *ep)
{
	struct xd_grant *g;

	while ((g = xc_list_first(&ep->copies, struct xd_grant, copy_link))) {
		if (!xd_may_copy(ep->session->core)) {
			xd_stage_soon(ep);
			return false;
		}
		copy_some(g);
	}
	return true;
}

bool xd_copied_release(struct xd_grant *g)
{
	if (!g->slab)
		return true;
	/* With the connection ends what nobody waits for. */
	if (g->write && g->lived && (g->revoke || !g->endpoint->gone) &&
	    !xd_session_ending(g->session)) {
		begin(g, XD_COPY_LAST);
		return false;
	}
	xc_list_remove(&g->copy_link);
	synced(g);
	slab_idle(g);
	return true;
}

/* ------------------------------------------------------------------ before a RECV completes */

/* Its peer may have written into it; a last copy that is under way is as good as one for a RECV. */
static bool goes_out(const struct xd_grant *g)
{
	return g->copying == XD_COPY_LAST || (g->mr && g->copying == XD_COPY_NONE);
}

bool xd_grants_synced(struct xd_endpoint *ep)
{
	struct xd_grant *g;

	if (!xd_must_stage(xd_ep_caps(ep)) || (int32_t)(ep->rq_synced - ep->rq_head) > 0 ||
	    XD_SABOTAGE("done-before-synced"))
		return true;
	if (!ep->syncing) {
		ep->syncing = true;
		ep->sync_to = ep->rq_done;
		xc_list_for_each(g, &ep->grants, link) {
			if (!g->write || !goes_out(g))
				continue;
			g->sync = true;
			ep->n_sync++;
			if (g->copying == XD_COPY_NONE)
				begin(g, XD_COPY_SYNC);
		}
	}
	xd_copied_advance(ep);
	if (ep->n_sync)
		return false;
	ep->syncing = false;
	ep->rq_synced = ep->sync_to;
	return true;
}
