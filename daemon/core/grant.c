/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "daemon/core/grant.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/assert.h"
#include "daemon/core/audited.h"
#include "daemon/core/sabotage.h"
#include "daemon/core/stage.h"
#include "daemon/core/wait.h"

#define SPARE_MAX 4096

/* ------------------------------------------------------------------ admission */

static void expired(struct xd_timer *t);

/* Grants come and go with every request of some protocols: warm, they cost no allocation. */
static struct xd_grant *grant_alloc(struct xd_session *s)
{
	struct xd_core *core = s->core;
	struct xc_list *l = xc_list_pop(&core->spare_grants);
	struct xd_grant *g = l ? xc_container_of(l, struct xd_grant, link) : malloc(sizeof(*g));

	if (l)
		core->n_spare_grants--;
	if (g)
		*g = (struct xd_grant){ .magic = XD_GRANT_MAGIC, .session = s };
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

/* The pieces it is to have: as many as the fabric can put behind one token. */
static int check_grant(const struct xd_transfer *t, uint32_t *ret_n, char *why)
{
	const struct fabric_caps *caps = xd_ep_caps(t->endpoint);
	uint32_t access = t->request.flags & (XP_F_GRANT_READ | XP_F_GRANT_WRITE), n = 0;
	uint32_t most = xd_must_stage(caps) ? FABRIC_RANGES_MAX : caps->max_ranges;

	for (uint32_t i = 0; i < t->request.local_count; i++)
		n += t->segments[i].length != 0;
	if (n == 0 || t->bytes > UINT32_MAX ||
	    (access != XP_F_GRANT_READ && access != XP_F_GRANT_WRITE)) {
		snprintf(why, XD_TEXT_MAX,
			 "a grant is of 1 to 4294967295 bytes, either for READ or for WRITE");
		return -EINVAL;
	}
	if (n > 1 && n > most) {
		snprintf(why, XD_TEXT_MAX,
			 "a grant on fabric %s is of %" PRIu32
			 " pieces of memory at most, this one has %" PRIu32,
			 caps->name, most ? most : 1, n);
		return -XP_E_UNSUPPORTED;
	}
	*ret_n = n;
	return 0;
}

/* Takes over its pieces, and uses their buffers from now on. */
static int take_ranges(struct xd_grant *g, const struct xd_transfer *t, uint32_t n)
{
	g->ranges = n == 1 ? &g->one : malloc(n * sizeof(*g->ranges));
	if (!g->ranges)
		return -ENOMEM;
	for (uint32_t i = 0; i < t->request.local_count; i++) {
		if (!t->segments[i].length)
			continue;
		g->ranges[g->n_ranges++] = t->segments[i];
		xd_buffer_get(t->session, t->segments[i].key)->users++;
	}
	g->buffer = xd_buffer_get(t->session, g->ranges[0].key);
	g->offset = g->ranges[0].address;
	g->length = (uint32_t)t->bytes;
	return 0;
}

static void drop_ranges(struct xd_grant *g)
{
	for (uint32_t i = 0; i < g->n_ranges; i++)
		xd_buffer_get(g->session, g->ranges[i].key)->users--;
	if (g->ranges != &g->one)
		free(g->ranges);
}

int xd_grant_admit(struct xd_transfer *t, char *why)
{
	struct xd_session *s = t->session;
	struct xd_grant *g;
	uint32_t n;
	int r = check_grant(t, &n, why);

	if (r == 0)
		r = xd_charge(&s->payer, XD_LIMIT_grants, 1, why, XD_TEXT_MAX);
	if (r < 0)
		return r;
	g = grant_alloc(s);
	if (!g || take_ranges(g, t, n) < 0 || xc_slots_add(&s->grants, g, &g->number) < 0) {
		if (g && g->n_ranges)
			drop_ranges(g);
		free(g);
		xd_uncharge(&s->payer, XD_LIMIT_grants, 1);
		snprintf(why, XD_TEXT_MAX, "out of memory");
		return -ENOMEM;
	}
	xc_list_init(&g->copy_link);
	g->endpoint = t->endpoint;
	g->write = t->request.flags & XP_F_GRANT_WRITE;
	g->lifetime_ms = t->request.argument;
	g->timer.fired = expired;
	xc_list_append(&t->endpoint->grants, &g->link);
	t->endpoint->n_grants++;
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
	if (g->endpoint != t->endpoint && !XD_SABOTAGE("revoke-by-another")) {
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

/* ------------------------------------------------------------------ coming to life */

static void unpin(struct xd_grant *g)
{
	xd_uncharge(&g->session->payer, XD_LIMIT_pinned, g->pinned_bytes);
	xd_core_count(g->session->core, XD_COUNTER_pinned_bytes, -(int64_t)g->pinned_bytes);
	g->pinned_bytes = 0;
}

/* The peer may use it from here on. */
void xd_grant_live(struct xd_grant *g, struct xd_transfer *t, uint32_t rkey, uint64_t address)
{
	struct xd_session *s = g->session;

	t->grant = NULL;
	g->rkey = rkey;
	g->state = XD_GRANT_LIVE;
	xd_audited_live(s->core, &g->audit);
	g->lived = true;
	if (xc_hash_add(&s->keys, &g->hash, g->rkey) == 0)
		g->hashed = true;
	if (g->lifetime_ms) {
		g->deadline_ns =
			xd_now(s->core) + xc_min_u64(g->lifetime_ms, UINT32_MAX) * XD_NS_PER_MS;
		xd_arm(s->core, &g->timer, g->deadline_ns);
	}
	xd_core_count(s->core, XD_COUNTER_grants_total, 1);
	t->completion.grant = g->number;
	t->completion.address = address;
	t->completion.byte_len = g->length;
	t->completion.rkey = g->rkey;
}

/* ---- one key over its ranges */

/* 0, -EINPROGRESS, or why it was refused: then it has none. */
static int make_mr(struct xd_grant *g, int access)
{
	struct fabric_range ranges[FABRIC_RANGES_MAX];
	struct xd_session *s = g->session;
	const struct fabric_ops *ops = xd_ep_fabric(g->endpoint)->ops;
	struct fabric_pd *pd = g->endpoint->pd->pd;
	uint64_t iova = g->buffer->iova + g->offset;
	uint64_t more = XD_SABOTAGE("widen-a-bound") ? 1 : 0;
	bool pins = xd_ep_caps(g->endpoint)->pins && !XD_SABOTAGE("grant-for-nothing");
	uint64_t pinned = pins ? g->length : 0;
	int r = xd_pin(s, pinned, NULL, 0);

	if (r < 0)
		return r;
	g->pinned_bytes = pinned;
	xd_core_count(s->core, XD_COUNTER_pinned_bytes, (int64_t)pinned);
	if (g->n_ranges == 1)
		r = ops->mr_reg(pd, g->buffer->region, g->offset, g->length + more, iova, access,
				&g->done, &g->mr);
	for (uint32_t i = 0; i < g->n_ranges && g->n_ranges > 1; i++) {
		uint32_t from = XD_SABOTAGE("turn-ranges-round") ? g->n_ranges - 1 - i : i;

		ranges[i] = (struct fabric_range){
			.region = xd_buffer_get(s, g->ranges[from].key)->region,
			.offset = g->ranges[from].address,
			.length = g->ranges[from].length + (i + 1 == g->n_ranges ? more : 0),
		};
	}
	if (g->n_ranges > 1)
		r = ops->mr_reg_ranges(pd, ranges, g->n_ranges, iova, access, &g->done, &g->mr);
	if (r < 0 && r != -EINPROGRESS)
		g->mr = NULL;
	return r;
}

/* ---- by a window */

static void ranges_made(struct fabric_done *done, int status)
{
	struct xd_grant *g = xc_container_of(done, struct xd_grant, done);

	g->mr_due = false;
	if (status < 0) {
		g->mr = NULL;
		unpin(g);
		xd_audited_gone(g->session->core, &g->bound_audit);
	} else {
		xd_audited_live(g->session->core, &g->bound_audit);
	}
	if (g->state == XD_GRANT_KILLING)
		xd_grant_unmake(g); /* it was given up meanwhile */
	else if (status < 0)
		xd_endpoint_wait(g->endpoint, XD_SCARCE_MEMORY);
	else
		xd_endpoint_pump(g->endpoint);
}

/* What its window is bound to: its buffer's registration, or one over its ranges alone, which no
 * peer can use. 0, -EINPROGRESS: the endpoint is pumped; or why there is none. */
static int want_mr(struct xd_grant *g)
{
	int r;

	if (g->n_ranges == 1)
		return xd_key_want(g->endpoint->pd, g->buffer, g->endpoint);
	if (g->mr_due)
		return -EINPROGRESS;
	if (g->mr)
		return 0;
	g->done.fn = ranges_made;
	xd_audited_bound(g);
	r = make_mr(g, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND);
	g->mr_due = r == -EINPROGRESS;
	if (r == 0)
		xd_audited_live(g->session->core, &g->bound_audit);
	if (r < 0 && !g->mr_due) {
		unpin(g);
		xd_audited_gone(g->session->core, &g->bound_audit);
	}
	return r;
}

/* That, and where in its address space the grant begins. */
static const struct ibv_mr *bound_to(const struct xd_grant *g, uint64_t *ret_address)
{
	const struct ibv_mr *mr = g->mr;

	*ret_address = 0;
	if (!mr) {
		mr = xd_key_get(g->endpoint->pd, g->buffer)->mr;
		*ret_address = g->offset;
	}
	*ret_address += (uintptr_t)mr->addr;
	return mr;
}

int xd_grant_post(struct xd_transfer *t, struct ibv_send_wr *wr)
{
	struct xd_grant *g = t->grant;
	struct xd_endpoint *ep = t->endpoint;
	int r = want_mr(g);
	const struct ibv_mr *mr;
	uint64_t address;

	if (r < 0)
		return r == -EINPROGRESS ? XD_BUILD_PENDING : XD_BUILD_NO_MEMORY;
	if (!g->window) {
		g->window = xd_window_take(ep);
		if (!g->window)
			return ep->window_due ? XD_BUILD_PENDING : XD_BUILD_NO_WINDOW;
		g->window->grant = g;
	}
	xd_audited_grant(g, XD_AUDIT_WINDOW);
	mr = bound_to(g, &address);
	wr->opcode = IBV_WR_BIND_MW;
	wr->bind_mw.mw = g->window->mw;
	wr->bind_mw.rkey = ibv_inc_rkey(g->window->mw->rkey);
	if (XD_SABOTAGE("reuse-a-key"))
		wr->bind_mw.rkey = g->window->mw->rkey;
	wr->bind_mw.bind_info.mr = (struct ibv_mr *)(uintptr_t)mr;
	wr->bind_mw.bind_info.addr = address;
	wr->bind_mw.bind_info.length = g->length;
	wr->bind_mw.bind_info.mw_access_flags = (unsigned int)xd_grant_access(g);
	if (XD_SABOTAGE("widen-a-bound"))
		wr->bind_mw.bind_info.length++;
	return XD_BUILT;
}

int xd_revoke_post(struct xd_transfer *t, struct ibv_send_wr *wr)
{
	struct xd_grant *g = t->grant;

	if (g->state == XD_GRANT_KILLING)
		return XD_BUILD_WAIT; /* on its way already: its death ends the REVOKE */
	g->state = XD_GRANT_REVOKING;
	xd_audited_dying(g->session->core, &g->audit, XD_AUDIT_REVOKE);
	wr->opcode = IBV_WR_LOCAL_INV;
	wr->invalidate_rkey = g->rkey;
	return XD_BUILT;
}

void xd_grant_bound(struct xd_transfer *t)
{
	struct xd_grant *g = t->grant;
	uint64_t address;

	bound_to(g, &address);
	g->window->binds++;
	g->window->mw->rkey = ibv_inc_rkey(g->window->mw->rkey);
	xd_grant_live(g, t, g->window->mw->rkey, address);
}

/* ---- by an MR of its own */

static void exact_made(struct fabric_done *done, int status)
{
	struct xd_grant *g = xc_container_of(done, struct xd_grant, done);

	if (status < 0)
		g->mr = NULL;
	xd_grant_made(g, status);
}

static int exact_make(struct xd_grant *g)
{
	g->done.fn = exact_made;
	xd_audited_grant(g, g->n_ranges > 1 ? XD_AUDIT_RANGES : XD_AUDIT_EXACT);
	return make_mr(g, xd_grant_access(g));
}

void xd_grant_start(struct xd_transfer *t)
{
	struct xd_grant *g = t->grant;
	int r;

	g->maker = t;
	r = xd_must_stage(xd_ep_caps(g->endpoint)) ? xd_copied_make(g) : exact_make(g);
	if (r != -EINPROGRESS)
		xd_grant_made(g, r);
}

void xd_revoke_start(struct xd_transfer *t)
{
	struct xd_grant *g = t->grant;

	/* Else its death is on its way, and ends the REVOKE. */
	if (g->state != XD_GRANT_KILLING)
		xd_grant_kill(g);
}

void xd_grant_made(struct xd_grant *g, int status)
{
	struct xd_endpoint *ep = g->endpoint;
	struct xd_transfer *t = g->maker;

	g->maker = NULL;
	if (g->state == XD_GRANT_KILLING) {
		xd_grant_unmake(g); /* its endpoint has ended meanwhile, and the GRANT with it */
		return;
	}
	t->made = true;
	t->status = status;
	if (status == 0) {
		xd_grant_live(g, t, g->mr->rkey, (uintptr_t)g->mr->addr);
	} else {
		t->grant = NULL;
		g->state = XD_GRANT_KILLING;
		xd_grant_unmake(g);
	}
	xd_endpoint_made(ep);
}

/* ------------------------------------------------------------------ ending */

static void grant_free(struct xd_grant *g)
{
	struct xd_session *s = g->session;
	struct xd_endpoint *ep = g->endpoint;

	xc_assert(g->audit.state == XD_AUDIT_FREE && g->bound_audit.state == XD_AUDIT_FREE);
	xd_disarm(s->core, &g->timer);
	if (g->hashed)
		xc_hash_remove(&s->keys, &g->hash);
	xc_list_remove(&g->link);
	xc_slots_remove(&s->grants, g->number);
	drop_ranges(g);
	if (g->pinned_bytes)
		xd_wait_freed(s->core);
	unpin(g);
	xd_uncharge(&s->payer, XD_LIMIT_grants, 1);
	xd_core_count(s->core, XD_COUNTER_grants, -1);
	grant_release(s->core, g);
	ep->n_grants--;
	xd_endpoint_settle(ep);
}

static void end_revoke(struct xd_grant *g)
{
	struct xd_transfer *revoke = g->revoke;
	struct xd_endpoint *ep = g->endpoint;

	xc_assert(g->audit.state == XD_AUDIT_FREE); /* I2 */
	g->revoke = NULL;
	revoke->grant = NULL;
	/* Posted and not back yet: its work request then finds nobody. */
	if (revoke->posted && !revoke->retired)
		ep->sq[revoke->sequence % ep->sq_depth].transfer = NULL;
	xd_transfer_end(revoke, 0, NULL);
	if (!ep->flushed)
		xd_endpoint_made(ep);
}

void xd_grant_dead(struct xd_grant *g, bool reuse_window)
{
	XC_CHECK(g, XD_GRANT_MAGIC);
	if (g->state == XD_GRANT_KILLING && g->window)
		return; /* its window is going, which comes back here */
	if (g->mr_going)
		return; /* so does that: a LOCAL_INV that was overtaken completes late */
	if (g->window && !reuse_window) {
		xd_grant_kill(g);
		return;
	}
	xd_audited_gone(g->session->core, &g->audit);
	if (g->window)
		xd_window_release(g->window);
	g->window = NULL;
	/* What a window was bound to. */
	if (g->mr_due || g->mr) {
		g->state = XD_GRANT_KILLING;
		if (g->mr)
			xd_grant_unmake(g);
		return;
	}
	if (g->revoke)
		end_revoke(g);
	grant_free(g);
}

static void exact_gone(struct fabric_done *done, int status)
{
	struct xd_grant *g = xc_container_of(done, struct xd_grant, done);

	xc_assert(status == 0);
	g->mr = NULL;
	g->mr_going = false;
	xd_grant_unmake(g);
}

/* Its MR, then its copy, then itself. */
void xd_grant_unmake(struct xd_grant *g)
{
	int r;

	if (g->mr) {
		xd_audited_dying(g->session->core, &g->bound_audit, XD_AUDIT_DONE);
		g->done.fn = exact_gone;
		r = xd_ep_fabric(g->endpoint)->ops->mr_dereg(g->mr, &g->done);
		g->mr_going = r == -EINPROGRESS;
		if (g->mr_going)
			return;
		xc_assert(r == 0); /* no window is bound to it */
		g->mr = NULL;
	}
	xd_audited_gone(g->session->core, &g->audit);
	xd_audited_gone(g->session->core, &g->bound_audit);
	if (xd_copied_release(g))
		xd_grant_dead(g, false);
}

void xd_grant_kill(struct xd_grant *g)
{
	struct xd_transfer *t = g->maker;

	if (g->state == XD_GRANT_KILLING)
		return;
	g->state = XD_GRANT_KILLING;
	xd_audited_kill(g);
	xd_disarm(g->session->core, &g->timer);
	if (g->revoke && XD_SABOTAGE("done-before-dead"))
		end_revoke(g);
	if (t) {
		/* It is being made: when it is, it goes. */
		t->grant = NULL;
		g->maker = NULL;
	} else if (XD_SABOTAGE("forget-a-window")) {
		xd_grant_dead(g, false);
	} else if (g->window && !(g->mr && XD_SABOTAGE("backing-first"))) {
		xd_window_kill(g->window);
	} else if (!g->mr_due) {
		xd_grant_unmake(g);
	}
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
	if (g->state == XD_GRANT_LIVE && !g->revoke) {
		xd_audited_dying(ep->session->core, &g->audit, XD_AUDIT_INVALIDATED);
		xd_grant_dead(g, true);
	}
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
