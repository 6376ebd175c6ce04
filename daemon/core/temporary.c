/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "daemon/core/temporary.h"

#include <errno.h>
#include <stdlib.h>

#include "common/assert.h"
#include "daemon/core/audited.h"
#include "daemon/core/buffer.h"
#include "daemon/core/sabotage.h"
#include "daemon/core/wait.h"

#define SPARE_MAX 256

/* ------------------------------------------------------------------ the set */

static struct xd_temporaries *take(struct xd_transfer *t)
{
	struct xd_core *core = t->session->core;
	struct xc_list *l = xc_list_pop(&core->spare_temporaries);
	struct xd_temporaries *all =
		l ? xc_container_of(l, struct xd_temporaries, link) : malloc(sizeof(*all));

	if (l)
		core->n_spare_temporaries--;
	if (!all)
		return NULL;
	xc_list_init(&all->link);
	all->transfer = t;
	all->n = all->n_busy = 0;
	all->status = 0;
	all->unwanted = l && XD_SABOTAGE("spare-as-it-was");
	all->in_call = false;
	all->pinned_bytes = 0;
	t->temporaries = all;
	t->endpoint->n_temporaries++;
	t->endpoint->pd->n_objects++;
	return all;
}

static void give_back(struct xd_temporaries *all)
{
	struct xd_transfer *t = all->transfer;
	struct xd_core *core = t->session->core;

	if (!XD_SABOTAGE("keep-a-temporary-charge"))
		xd_uncharge(&t->session->payer, XD_LIMIT_pinned, all->pinned_bytes);
	xd_core_count(core, XD_COUNTER_pinned_bytes, -(int64_t)all->pinned_bytes);
	if (all->status == 0)
		xd_wait_freed(core);
	t->temporaries = NULL;
	if (core->n_spare_temporaries < SPARE_MAX) {
		xc_list_prepend(&core->spare_temporaries, &all->link);
		core->n_spare_temporaries++;
	} else {
		free(all);
	}
}

/* They are all dead. Where nobody waits for that in the call itself, the transfer is told. */
static void gone(struct xd_temporaries *all)
{
	struct xd_transfer *t = all->transfer;
	struct xd_endpoint *ep = t->endpoint;
	struct xd_pd *pd = ep->pd;
	bool in_call = all->in_call, refused = all->status < 0, own_pd = ep->own_pd;

	give_back(all);
	ep->n_temporaries--;
	if (!in_call && refused && !t->ending) {
		t->refused = true;
		xd_endpoint_pump(ep);
	} else if (!in_call) {
		xd_transfer_undone(t);
	}
	if (!own_pd)
		xd_endpoint_settle(ep);
	xd_pd_lost(pd); /* settles the endpoint, or the session */
}

/* ------------------------------------------------------------------ dying */

static void settle(struct xd_temporaries *all);

static struct xd_core *core_of(const struct xd_temporary *k)
{
	return k->all->transfer->session->core;
}

static void is_gone(struct xd_temporary *k)
{
	k->mr = NULL;
	k->state = XD_TEMPORARY_DEAD;
	xd_audited_gone(core_of(k), &k->audit);
}

static void is_live(struct xd_temporary *k)
{
	k->state = XD_TEMPORARY_LIVE;
	xd_audited_live(core_of(k), &k->audit);
}

static void died(struct fabric_done *done, int status)
{
	struct xd_temporary *k = xc_container_of(done, struct xd_temporary, done);

	xc_assert(status == 0); /* no window is bound to it */
	is_gone(k);
	k->all->n_busy--;
	settle(k->all);
}

static void kill_one(struct xd_temporary *k)
{
	const struct fabric_ref *f = xd_ep_fabric(k->all->transfer->endpoint);
	int r;

	if (k->state != XD_TEMPORARY_LIVE)
		return;
	k->state = XD_TEMPORARY_DYING;
	xd_audited_dying(core_of(k), &k->audit, XD_AUDIT_DONE);
	k->done.fn = died;
	r = f->ops->mr_dereg(k->mr, &k->done);
	if (r == -EINPROGRESS) {
		k->all->n_busy++;
		return;
	}
	xc_assert(r == 0);
	is_gone(k);
}

static bool is_dead(const struct xd_temporaries *all)
{
	return all->n_busy == 0 && all->unwanted;
}

/* Something of them has come to its end. */
static void settle(struct xd_temporaries *all)
{
	if (all->n_busy)
		return;
	if (all->status < 0)
		all->unwanted = true; /* it is all of them or none */
	for (uint32_t i = 0; i < all->n && all->unwanted; i++)
		if (!XD_SABOTAGE("forget-what-came-late"))
			kill_one(&all->of[i]);
	if (all->in_call)
		return;
	if (is_dead(all))
		gone(all);
	else if (!all->n_busy)
		xd_endpoint_pump(all->transfer->endpoint);
}

bool xd_temporaries_kill(struct xd_transfer *t)
{
	struct xd_temporaries *all = t->temporaries;

	if (XD_SABOTAGE("keep-a-temporary"))
		return true;
	all->unwanted = true;
	all->in_call = true;
	for (uint32_t i = 0; i < all->n; i++)
		kill_one(&all->of[i]);
	if (is_dead(all)) {
		gone(all);
		return true;
	}
	all->in_call = false;
	return false;
}

/* ------------------------------------------------------------------ making */

static void made(struct fabric_done *done, int status)
{
	struct xd_temporary *k = xc_container_of(done, struct xd_temporary, done);

	if (status < 0)
		is_gone(k);
	else
		is_live(k);
	if (status < 0 && k->all->status == 0 && !XD_SABOTAGE("go-with-a-part"))
		k->all->status = status;
	k->all->n_busy--;
	settle(k->all);
}

static int access_of(const struct xd_transfer *t)
{
	bool sink = t->request.opcode == XP_OP_READ || t->request.opcode == XP_OP_RECV;

	if (XD_SABOTAGE("expose-a-source"))
		return IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE;
	/* What is only read needs no right at all. */
	if (!sink)
		return 0;
	if (t->request.opcode == XP_OP_READ && xd_ep_caps(t->endpoint)->read_sink_remote_write)
		return IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
	return IBV_ACCESS_LOCAL_WRITE;
}

/* One key over one range, or over many. 0, -EINPROGRESS, or why it was refused. */
static int make_one(struct xd_temporaries *all, const struct xd_range *runs, uint32_t n)
{
	const struct xd_transfer *t = all->transfer;
	const struct fabric_ref *f = xd_ep_fabric(t->endpoint);
	struct fabric_pd *pd = t->endpoint->pd->pd;
	struct xd_temporary *k = &all->of[all->n++];
	struct fabric_range ranges[FABRIC_RANGES_MAX];
	const struct xd_buffer *b = NULL;
	uint64_t more = XD_SABOTAGE("widen-a-temporary") ? 1 : 0;
	int r;

	for (uint32_t i = 0; i < n; i++) {
		uint32_t from = XD_SABOTAGE("turn-pieces-round") ? n - 1 - i : i;
		const struct xd_range *run = &runs[from];

		b = xd_buffer_get(t->session, run->buffer);
		ranges[i] = (struct fabric_range){ b->region, run->offset, run->length };
	}
	b = xd_buffer_get(t->session, runs[0].buffer);
	*k = (struct xd_temporary){ .all = all, .run = runs[0], .done.fn = made };
	xd_audited_temporary(k, n == 1 ? runs[0].length : t->bytes, access_of(t));
	if (n == 1)
		r = f->ops->mr_reg(pd, b->region, runs[0].offset, runs[0].length + more,
				   b->iova + runs[0].offset, access_of(t), &k->done, &k->mr);
	else
		r = f->ops->mr_reg_ranges(pd, ranges, n, b->iova + runs[0].offset, access_of(t),
					  &k->done, &k->mr);
	if (r == -EINPROGRESS) {
		all->n_busy++;
		return 0;
	}
	if (r == 0)
		is_live(k);
	else
		is_gone(k);
	return r;
}

static int charge(struct xd_temporaries *all)
{
	struct xd_transfer *t = all->transfer;
	struct xd_session *s = t->session;
	int r;

	if (!xd_ep_caps(t->endpoint)->pins || XD_SABOTAGE("make-for-nothing"))
		return 0;
	r = xd_pin(s, t->bytes, NULL, 0);
	if (r < 0)
		return r;
	all->pinned_bytes = t->bytes;
	xd_core_count(s->core, XD_COUNTER_pinned_bytes, (int64_t)t->bytes);
	return 0;
}

static int make_all(struct xd_temporaries *all)
{
	const struct xd_transfer *t = all->transfer;
	struct xd_range runs[FABRIC_RANGES_MAX];
	struct xd_shape shape;
	uint32_t n, each;
	int r = charge(all);

	xd_transfer_shape(t, &shape);
	n = xd_plan_ranges(&shape, FABRIC_RANGES_MAX, runs);
	each = t->plan.rung == XD_RUNG_INDIRECT ? n : 1;
	xc_assert(n <= FABRIC_RANGES_MAX && t->plan.keys == n / each);
	for (uint32_t i = 0; i < n && r == 0; i += each)
		r = make_one(all, &runs[i], each);
	return r;
}

int xd_temporaries_make(struct xd_transfer *t)
{
	struct xd_temporaries *all = t->temporaries;
	int r;

	if (all)
		return all->n_busy || all->unwanted ? -EINPROGRESS : 0;
	all = take(t);
	if (!all)
		return -ENOMEM;
	all->in_call = true;
	r = make_all(all);
	all->status = r;
	settle(all);
	if (is_dead(all)) {
		gone(all);
		return r;
	}
	all->in_call = false;
	return all->n_busy && !XD_SABOTAGE("use-it-unmade") ? -EINPROGRESS : 0;
}

const struct xd_temporary *xd_temporary_of(const struct xd_transfer *t,
					   const struct xp_segment *piece)
{
	const struct xd_temporaries *all = t->temporaries;

	if (t->plan.rung == XD_RUNG_INDIRECT || XD_SABOTAGE("take-the-first-key"))
		return &all->of[0];
	for (uint32_t i = 0; i < all->n; i++) {
		const struct xd_range *run = &all->of[i].run;

		if (run->buffer == piece->key && piece->address >= run->offset &&
		    piece->address + piece->length <= run->offset + run->length)
			return &all->of[i];
	}
	xc_assert(false); /* a plan's pieces lie within its runs */
	return NULL;
}
