/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "daemon/core/grant.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/assert.h"
#include "daemon/core/sabotage.h"

#define SPARE_MAX 4096

/* ------------------------------------------------------------------ windows */

static const struct fabric_ops *window_ops(const struct xd_window *w)
{
	return w->session->core->fabrics[w->fabric].ops;
}

static void window_free(struct xd_window *w)
{
	struct xd_session *s = w->session;

	xc_list_remove(&w->link);
	s->n_windows--;
	free(w);
	xd_session_settle(s);
}

static void window_gone(struct fabric_done *done, int status)
{
	struct xd_window *w = xc_container_of(done, struct xd_window, done);
	struct xd_grant *g = w->grant;

	xc_assert(status == 0);
	window_free(w);
	if (g) {
		g->window = NULL;
		xd_grant_dead(g, false);
	}
}

/* Deallocates; window_gone() follows, at once or later. */
static void window_kill(struct xd_window *w)
{
	int r;

	xc_list_remove(&w->link);
	w->done.fn = window_gone;
	r = window_ops(w)->mw_dealloc(w->mw, &w->done);
	if (r == -EINPROGRESS)
		return;
	window_gone(&w->done, r);
}

void xd_windows_free(struct xd_session *s)
{
	struct xd_window *w;

	while ((w = xc_list_first(&s->windows, struct xd_window, link)))
		window_kill(w);
}

static void window_made(struct fabric_done *done, int status)
{
	struct xd_window *w = xc_container_of(done, struct xd_window, done);
	struct xd_endpoint *ep = w->wanted_by;
	struct xd_session *s = w->session;

	w->wanted_by = NULL;
	if (ep)
		ep->window_due = NULL;
	if (status == 0)
		xc_list_append(&w->session->windows, &w->link);
	else
		window_free(w);
	if (ep && status == 0)
		xd_endpoint_pump(ep);
	else if (ep)
		xd_endpoint_wait(ep);
	xd_session_settle(s);
}

/* A free window of the endpoint's fabric; NULL: none yet, wait (one is being made, or cannot be at
 * present). */
static struct xd_window *window_take(struct xd_endpoint *ep)
{
	struct xd_session *s = ep->session;
	struct fabric_pd *pd;
	struct xd_window *w;

	xc_list_for_each(w, &s->windows, link) {
		if (w->fabric == ep->fabric) {
			xc_list_remove(&w->link);
			return w;
		}
	}
	if (ep->window_due || xd_session_pd(s, ep->fabric, &pd) < 0)
		return NULL;
	w = calloc(1, sizeof(*w));
	if (!w)
		return NULL;
	xc_list_init(&w->link);
	w->session = s;
	w->fabric = ep->fabric;
	w->done.fn = window_made;
	s->n_windows++;
	switch (window_ops(w)->mw_alloc(pd, &w->done, &w->mw)) {
	case 0:
		return w;
	case -EINPROGRESS:
		w->wanted_by = ep;
		ep->window_due = w;
		return NULL;
	default:
		window_free(w);
		return NULL;
	}
}

/* Its key is dead and it is bound to nothing: kept for the next grant, or replaced when its key
 * byte has come round. */
static void window_release(struct xd_window *w)
{
	w->grant = NULL;
	xc_list_append(&w->session->windows, &w->link);
	if (w->binds >= XD_WINDOW_BINDS_MAX || w->session->n_windows > XD_WINDOWS_KEPT ||
	    xd_session_ending(w->session))
		window_kill(w);
}

/* ------------------------------------------------------------------ admission */

static void expired(struct xd_timer *t);

/* Grants come and go with every request of some protocols: warm, they cost no allocation. */
static struct xd_grant *grant_alloc(struct xd_core *core)
{
	struct xc_list *l = xc_list_pop(&core->spare_grants);
	struct xd_grant *g = l ? xc_container_of(l, struct xd_grant, link) : malloc(sizeof(*g));

	if (l)
		core->n_spare_grants--;
	if (g)
		*g = (struct xd_grant){ .magic = XD_GRANT_MAGIC };
	return g;
}

static void grant_release(struct xd_core *core, struct xd_grant *g)
{
	g->magic = 0;
	if (core->n_spare_grants < SPARE_MAX) {
		xc_list_prepend(&core->spare_grants, &g->link);
		core->n_spare_grants++;
	} else {
		free(g);
	}
}

int xd_grant_admit(struct xd_transfer *t, char *why)
{
	uint32_t access = t->request.flags & (XP_F_GRANT_READ | XP_F_GRANT_WRITE);
	struct xd_session *s = t->session;
	const struct xp_segment *seg = NULL;
	struct xd_grant *g;
	int r;

	for (uint32_t i = 0; i < t->request.local_count; i++) {
		if (!t->segments[i].length)
			continue;
		if (seg) {
			snprintf(why, XD_TEXT_MAX,
				 "a grant on this fabric is one piece of memory; segment %" PRIu32
				 " is a second",
				 i);
			return -XP_E_UNSUPPORTED;
		}
		seg = &t->segments[i];
	}
	if (!seg || (access != XP_F_GRANT_READ && access != XP_F_GRANT_WRITE)) {
		snprintf(why, XD_TEXT_MAX,
			 "a grant is of 1 to 4294967295 bytes, either for READ or for WRITE");
		return -EINVAL;
	}
	if (xd_ep_caps(t->endpoint)->keys != FABRIC_KEYS_WINDOW) {
		snprintf(why, XD_TEXT_MAX, "fabric %s has no memory windows",
			 xd_ep_caps(t->endpoint)->name);
		return -XP_E_UNSUPPORTED;
	}
	r = xd_charge(&s->payer, XD_LIMIT_grants, 1, why, XD_TEXT_MAX);
	if (r < 0)
		return r;
	g = grant_alloc(s->core);
	if (!g || xc_slots_add(&s->grants, g, &g->number) < 0) {
		free(g);
		xd_uncharge(&s->payer, XD_LIMIT_grants, 1);
		snprintf(why, XD_TEXT_MAX, "out of memory");
		return -ENOMEM;
	}
	g->session = s;
	g->endpoint = t->endpoint;
	g->buffer = xd_buffer_get(s, seg->key);
	g->offset = seg->address;
	g->length = seg->length;
	g->write = access == XP_F_GRANT_WRITE;
	g->lifetime_ms = t->request.argument;
	g->timer.fired = expired;
	xc_list_append(&t->endpoint->grants, &g->link);
	t->endpoint->n_grants++;
	g->buffer->users++;
	t->grant = g;
	xd_core_count(s->core, XD_COUNTER_grants, 1);
	return 0;
}

int xd_revoke_admit(struct xd_transfer *t, char *why)
{
	struct xd_grant *g = xc_slots_get(&t->session->grants, t->request.key);
	const struct xd_core *core = t->session->core;
	uint64_t patience_ns;

	if (!g || g->state == XD_GRANT_BINDING) {
		snprintf(why, XD_TEXT_MAX, "grant %" PRIu32 " has ended, or never was",
			 t->request.key);
		return -XP_E_GRANT_ENDED;
	}
	if (g->endpoint != t->endpoint) {
		snprintf(why, XD_TEXT_MAX,
			 "grant %" PRIu32 " is endpoint %" PRIu32 "'s, not endpoint %" PRIu32 "'s",
			 t->request.key, g->endpoint->number, t->request.endpoint);
		return -EINVAL;
	}
	if (g->revoke) {
		snprintf(why, XD_TEXT_MAX, "grant %" PRIu32 " is being revoked", t->request.key);
		return -EALREADY;
	}
	t->grant = g;
	g->revoke = t;
	/* A slow peer can hold the invalidation up in the queue: then the window is taken away
	 * under it. Or at its deadline, where that comes first. */
	patience_ns = xd_now(core) + core->quota.policy->revoke_ms * XD_NS_PER_MS;
	if (!g->deadline_ns || patience_ns < g->deadline_ns)
		xd_arm(core, &g->timer, patience_ns);
	return 0;
}

/* ------------------------------------------------------------------ posting */

int xd_grant_post(struct xd_transfer *t, struct ibv_send_wr *wr)
{
	struct xd_grant *g = t->grant;
	const struct xd_endpoint *ep = t->endpoint;

	if (!g->window) {
		g->window = window_take(t->endpoint);
		if (!g->window)
			return 0;
		g->window->grant = g;
	}
	wr->opcode = IBV_WR_BIND_MW;
	wr->bind_mw.mw = g->window->mw;
	wr->bind_mw.rkey = ibv_inc_rkey(g->window->mw->rkey);
	if (XD_SABOTAGE("reuse-a-key"))
		wr->bind_mw.rkey = g->window->mw->rkey;
	wr->bind_mw.bind_info.mr = g->buffer->mrs[ep->fabric];
	wr->bind_mw.bind_info.addr = g->buffer->iova + g->offset;
	wr->bind_mw.bind_info.length = g->length;
	wr->bind_mw.bind_info.mw_access_flags =
		g->write ? IBV_ACCESS_REMOTE_WRITE : IBV_ACCESS_REMOTE_READ;
	if (XD_SABOTAGE("widen-a-bound"))
		wr->bind_mw.bind_info.length++;
	if (XD_SABOTAGE("grant-both-ways"))
		wr->bind_mw.bind_info.mw_access_flags |= IBV_ACCESS_REMOTE_READ;
	return 1;
}

int xd_revoke_post(struct xd_transfer *t, struct ibv_send_wr *wr)
{
	struct xd_grant *g = t->grant;

	if (g->state == XD_GRANT_KILLING)
		return 0; /* on its way already: its death ends the REVOKE */
	g->state = XD_GRANT_REVOKING;
	wr->opcode = IBV_WR_LOCAL_INV;
	wr->invalidate_rkey = g->rkey;
	return 1;
}

void xd_grant_bound(struct xd_transfer *t)
{
	struct xd_grant *g = t->grant;
	struct xd_session *s = g->session;

	t->grant = NULL;
	g->window->binds++;
	g->rkey = ibv_inc_rkey(g->window->mw->rkey);
	g->window->mw->rkey = g->rkey;
	g->state = XD_GRANT_LIVE;
	if (xc_hash_add(&s->keys, &g->hash, g->rkey) == 0)
		g->hashed = true;
	if (g->lifetime_ms) {
		g->deadline_ns =
			xd_now(s->core) + xc_min_u64(g->lifetime_ms, UINT32_MAX) * XD_NS_PER_MS;
		xd_arm(s->core, &g->timer, g->deadline_ns);
	}
	xd_core_count(s->core, XD_COUNTER_grants_total, 1);
	t->completion.grant = g->number;
	t->completion.address = g->buffer->iova + g->offset;
	t->completion.byte_len = g->length;
	t->completion.rkey = g->rkey;
}

/* ------------------------------------------------------------------ ending */

static void grant_free(struct xd_grant *g)
{
	struct xd_session *s = g->session;
	struct xd_endpoint *ep = g->endpoint;

	xd_disarm(s->core, &g->timer);
	if (g->hashed)
		xc_hash_remove(&s->keys, &g->hash);
	xc_list_remove(&g->link);
	xc_slots_remove(&s->grants, g->number);
	g->buffer->users--;
	xd_uncharge(&s->payer, XD_LIMIT_grants, 1);
	xd_core_count(s->core, XD_COUNTER_grants, -1);
	grant_release(s->core, g);
	ep->n_grants--;
	xd_endpoint_settle(ep);
}

static void end_revoke(struct xd_grant *g)
{
	struct xd_transfer *revoke = g->revoke;

	g->revoke = NULL;
	revoke->grant = NULL;
	/* Posted and not back yet: its work request then finds nobody. */
	if (revoke->state == XD_T_POSTED && !revoke->retired)
		g->endpoint->sq[revoke->sequence % g->endpoint->sq_depth] = NULL;
	xd_transfer_end(revoke, 0, NULL);
}

void xd_grant_dead(struct xd_grant *g, bool reuse_window)
{
	XC_CHECK(g, XD_GRANT_MAGIC);
	if (g->state == XD_GRANT_KILLING && g->window)
		return; /* its window is going: window_gone() comes back here */
	if (g->window && !reuse_window) {
		xd_grant_kill(g);
		return;
	}
	if (g->window)
		window_release(g->window);
	g->window = NULL;
	if (g->revoke)
		end_revoke(g);
	grant_free(g);
}

void xd_grant_kill(struct xd_grant *g)
{
	if (g->state == XD_GRANT_KILLING)
		return;
	g->state = XD_GRANT_KILLING;
	xd_disarm(g->session->core, &g->timer);
	if (g->revoke && XD_SABOTAGE("done-before-dead"))
		end_revoke(g);
	if (g->window && !XD_SABOTAGE("forget-a-window"))
		window_kill(g->window);
	else
		xd_grant_dead(g, false);
}

/* LIVE: its deadline has come. A REVOKE is on its way: patience has ended. Either way the window
 * goes, whatever the queue does. */
static void expired(struct xd_timer *timer)
{
	struct xd_grant *g = xc_container_of(timer, struct xd_grant, timer);

	if (!XD_SABOTAGE("forget-an-expiry"))
		xd_grant_kill(g);
}

uint32_t xd_grant_invalidated(struct xd_endpoint *ep, uint32_t rkey)
{
	struct xc_hash_node *n = xc_hash_find(&ep->session->keys, rkey);
	struct xd_grant *g = n ? xc_container_of(n, struct xd_grant, hash) : NULL;
	uint32_t number;

	if (!g || g->endpoint != ep)
		return 0;
	number = g->number;
	/* Where a LOCAL_INV or a deallocation is on its way too, that one's end is the grant's. */
	if (g->state == XD_GRANT_LIVE && !g->revoke)
		xd_grant_dead(g, true);
	return number;
}

void xd_grant_abandon(struct xd_transfer *t)
{
	struct xd_grant *g = t->grant;

	if (!g)
		return;
	t->grant = NULL;
	if (t->request.opcode == XP_OP_REVOKE) {
		g->revoke = NULL;
		return;
	}
	/* A bind that was posted may or may not have happened: such a window is not used again. */
	if (t->posted)
		xd_grant_kill(g);
	else
		xd_grant_dead(g, true);
}
