/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "tests/sim/fake_fabric.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/errors.h"
#include "tests/sim/fake_priv.h"

/* ---- objects */

#define DEAD_MAX 2000

void fake_object_add(struct fabric *f, struct xc_list *list, struct fake_object *o,
		     enum fake_magic magic)
{
	o->magic = magic;
	o->f = f;
	xc_list_append(list, &o->link);
	f->alive++;
}

void fake_object_dead(struct fake_object *o)
{
	struct fabric *f = o->f;

	o->dead = true;
	xc_list_remove(&o->link);
	f->alive--;
	if (o->magic == FAKE_EP) {
		xc_list_append(&f->dead_eps, &o->link);
		return;
	}
	xc_list_append(&f->dead, &o->link);
	if (f->n_dead < DEAD_MAX)
		f->n_dead++;
	else
		free(xc_container_of(xc_list_pop(&f->dead), struct fake_object, link));
}

void fake_object_use(const struct fake_object *o, enum fake_magic magic, const char *call)
{
	sim_check(o, "fabric.h", "%s of NULL", call);
	sim_check(o->magic == magic, "fabric.h", "%s of something else", call);
	sim_check(!o->dead, "fabric.h", "%s of an object that is gone", call);
}

/* ---- dice */

bool fake_dice(struct fabric *f, uint32_t permille)
{
	return sim_dice(&f->rng, permille);
}

uint64_t fake_due(struct fabric *f)
{
	return f->turn + 1 + sim_below(&f->rng, f->options.dice.late_turns + 1);
}

bool fake_lost(const struct fabric *f)
{
	return f->lost;
}

/* ---- answers that come later */

static void finish(struct fake_later *l)
{
	if (l->finish)
		l->finish(l);
	if (!l->status && l->ret)
		*l->ret = l->value;
}

int fake_answer(struct fake_later answer, uint32_t slow)
{
	struct fabric *f = answer.object->f;
	struct fake_later *l;

	sim_check(answer.done && answer.done->fn, "fabric.h", "no fabric_done was given");
	if (!fake_dice(f, slow)) {
		finish(&answer);
		return answer.status;
	}
	l = malloc(sizeof(*l));
	*l = answer;
	l->due = fake_due(f);
	xc_list_append(&f->laters, &l->link);
	f->engine.ops->kick(f->engine.engine);
	return -EINPROGRESS;
}

static void later_ends(struct fake_later *l)
{
	xc_list_remove(&l->link);
	finish(l);
	l->done->fn(l->done, l->status);
	free(l);
}

/* ---- events */

struct fake_event *fake_event(struct fabric *f, enum fake_event_kind kind, void *subject,
			      int status)
{
	struct fake_event *e = calloc(1, sizeof(*e));

	e->kind = kind;
	e->subject = subject;
	e->status = status;
	e->due = fake_due(f);
	xc_list_append(&f->queue, &e->link);
	f->engine.ops->kick(f->engine.engine);
	return e;
}

void fake_events_drop(struct fabric *f, void *subject)
{
	struct fake_event *e;

	xc_list_for_each(e, &f->queue, link) {
		if (e->subject == subject) {
			xc_list_remove(&e->link);
			free(e);
		}
	}
}

static void event_delivered(struct fabric *f, struct fake_event *e)
{
	struct fabric_ep *ep = e->subject;
	struct fabric_conn *conn = e->subject;
	struct fabric_region *region = e->subject;

	switch (e->kind) {
	case FAKE_REQUEST:
		fake_deliver_request(f, e);
		break;
	case FAKE_GONE:
		/* The user may have answered since; then there is nobody to tell. */
		if (conn->state != FAKE_CONN_OFFERED)
			break;
		conn->state = FAKE_CONN_ENDED;
		fake_object_dead(&conn->o);
		f->events->conn_gone(conn->ctx);
		break;
	case FAKE_ESTABLISHED:
		if (!e->status && ep->state == FAKE_CONNECTING)
			ep->state = FAKE_UP;
		ep->up_delivered = !e->status;
		f->events->established(ep->attr.ctx, e->status, e->data, e->bytes);
		break;
	case FAKE_DISCONNECTED:
		f->events->disconnected(ep->attr.ctx, e->status);
		break;
	case FAKE_FAULT:
		if (!region->dead)
			f->events->region_fault(region->ctx);
		break;
	}
}

/* The first event of the subject of a chosen one: order holds for each, and among them chance. */
static struct fake_event *pick_event(struct fabric *f)
{
	struct fake_event *e, *chosen = NULL;
	uint32_t n = 0;

	xc_list_for_each(e, &f->queue, link)
		if (e->due <= f->turn && !sim_below(&f->rng, ++n))
			chosen = e;
	if (!chosen)
		return NULL;
	xc_list_for_each(e, &f->queue, link)
		if (e->subject == chosen->subject)
			return e;
	return NULL;
}

static bool step_event(struct fabric *f)
{
	struct fake_event *e = pick_event(f);

	if (!e)
		return false;
	xc_list_remove(&e->link);
	event_delivered(f, e);
	free(e);
	return true;
}

static bool step_later(struct fabric *f)
{
	struct fake_later *l, *chosen = NULL;
	uint32_t n = 0;

	xc_list_for_each(l, &f->laters, link)
		if (l->due <= f->turn && !sim_below(&f->rng, ++n))
			chosen = l;
	if (chosen)
		later_ends(chosen);
	return chosen;
}

static bool step_queue(struct fabric *f)
{
	struct fabric_ep *ep, *chosen = NULL;
	uint32_t n = 0;

	xc_list_for_each(ep, &f->eps, o.link)
		if (fake_ep_works(ep) && !sim_below(&f->rng, ++n))
			chosen = ep;
	return chosen && fake_ep_step(chosen);
}

/* ---- the instance */

static struct fabric *use(const struct fabric *f, const char *call)
{
	fake_object_use(&f->o, FAKE_FABRIC, call);
	return (struct fabric *)(uintptr_t)f;
}

static bool waits(struct fabric *f)
{
	struct fabric_ep *ep;

	if (!xc_list_empty(&f->queue) || !xc_list_empty(&f->laters))
		return true;
	xc_list_for_each(ep, &f->eps, o.link)
		if (fake_ep_works(ep) || !xc_list_empty(&ep->send.cqes) ||
		    !xc_list_empty(&ep->recv.cqes))
			return true;
	return false;
}

static bool fake_progress(struct fabric *f, uint64_t budget_bytes)
{
	uint32_t steps;

	use(f, "progress");
	sim_check(!f->inside, "fabric.h", "progress() from inside progress()");
	sim_check(budget_bytes, "fabric.h", "progress() without a budget");
	f->inside = true;
	f->turn++;
	steps = 1 + sim_below(&f->rng, 12);
	while (steps--) {
		switch (sim_below(&f->rng, 4)) {
		case 0:
			step_event(f);
			break;
		case 1:
			step_later(f);
			break;
		default:
			step_queue(f);
			break;
		}
	}
	f->inside = false;
	return waits(f);
}

static const struct fabric_caps *fake_caps(const struct fabric *f)
{
	return &use(f, "caps")->options.caps;
}

static int fake_fd(const struct fabric *f)
{
	use(f, "fd");
	return -1;
}

/* ---- what things cost */

static void measured(struct fake_later *l)
{
	struct fabric *f = l->object->f;

	f->measuring = false;
	if (!l->status)
		f->options.caps.costs = f->options.measured;
	*(struct fabric_costs *)l->value = f->options.measured;
	/* Nothing to go by: whoever does all the same, counts wrong. */
	if (l->status)
		memset(l->value, 0xee, sizeof(struct fabric_costs));
}

static int fake_measure(struct fabric *f, struct fabric_done *done, struct fabric_costs *ret)
{
	bool fails;

	use(f, "measure");
	if (f->measuring)
		return -EBUSY;
	if (fake_lost(f))
		return -ENODEV;
	f->measuring = true;
	fails = fake_dice(f, f->options.dice.measure_fail);
	return fake_answer((struct fake_later){ .done = done, .object = &f->o, .finish = measured,
						.status = fails ? -EIO : 0, .value = ret },
			   f->options.dice.reg_slow);
}

/* Its end is not told any more. */
static void forget_measure(struct fabric *f)
{
	struct fake_later *l;

	xc_list_for_each(l, &f->laters, link) {
		if (l->finish != measured)
			continue;
		xc_list_remove(&l->link);
		free(l);
		return;
	}
}

static void free_dead(struct fabric *f)
{
	struct xc_list *l;

	while ((l = xc_list_pop(&f->dead)) || (l = xc_list_pop(&f->dead_eps)))
		free(xc_container_of(l, struct fake_object, link));
}

static void fake_close(struct fabric *f)
{
	use(f, "close");
	forget_measure(f);
	sim_check(xc_list_empty(&f->eps), "I3", "the fabric is closed with endpoints");
	sim_check(xc_list_empty(&f->mws), "I3", "the fabric is closed with windows");
	sim_check(xc_list_empty(&f->mrs), "I3", "the fabric is closed with registrations");
	sim_check(xc_list_empty(&f->pds), "I3", "the fabric is closed with protection domains");
	sim_check(xc_list_empty(&f->listeners), "I3", "the fabric is closed with listeners");
	sim_check(xc_list_empty(&f->conns), "I3", "the fabric is closed with unanswered requests");
	sim_check(xc_list_empty(&f->laters), "I3", "the fabric is closed with calls under way");
	sim_check(!f->alive, "I3", "the fabric is closed with %u objects", f->alive);
	while (!xc_list_empty(&f->queue)) {
		struct fake_event *e = xc_list_first(&f->queue, struct fake_event, link);

		xc_list_remove(&e->link);
		free(e);
	}
	free_dead(f);
	free(f);
}

const struct fabric_ops fake_fabric_ops = {
	.name = "fake",
	.close = fake_close,
	.caps = fake_caps,
	.fd = fake_fd,
	.progress = fake_progress,
	.poll = fake_poll,
	.route = fake_route,
	.region_map = fake_region_map,
	.slab_map = fake_slab_map,
	.region_unmap = fake_region_unmap,
	.copy = fake_copy,
	.pd_alloc = fake_pd_alloc,
	.pd_free = fake_pd_free,
	.mr_reg = fake_mr_reg,
	.mr_reg_ranges = fake_mr_reg_ranges,
	.mr_dereg = fake_mr_dereg,
	.mw_alloc = fake_mw_alloc,
	.mw_dealloc = fake_mw_dealloc,
	.ep_create = fake_ep_create,
	.ep_connect = fake_ep_connect,
	.ep_accept = fake_ep_accept,
	.conn_reject = fake_conn_reject,
	.ep_disconnect = fake_ep_disconnect,
	.ep_error = fake_ep_error,
	.ep_destroy = fake_ep_destroy,
	.post_send = fake_post_send,
	.post_recv = fake_post_recv,
	.listen = fake_listen,
	.listener_free = fake_listener_free,
	.measure = fake_measure,
};

int fake_fabric_open(const struct fake_options *options, const struct xd_engine_ref *engine,
		     const struct fabric_events *events, struct fabric **ret)
{
	struct fabric *f = calloc(1, sizeof(*f));

	f->o.magic = FAKE_FABRIC;
	f->o.f = f;
	f->options = *options;
	f->rng.state = options->seed;
	f->engine = *engine;
	f->events = events;
	f->next_port = 40000;
	xc_list_init(&f->pds);
	xc_list_init(&f->mrs);
	xc_list_init(&f->mws);
	xc_list_init(&f->eps);
	xc_list_init(&f->listeners);
	xc_list_init(&f->conns);
	xc_list_init(&f->dead);
	xc_list_init(&f->dead_eps);
	xc_list_init(&f->laters);
	xc_list_init(&f->queue);
	*ret = f;
	return 0;
}

void fake_fabric_lose(struct fabric *f)
{
	struct fabric_ep *ep;

	f->lost = true;
	xc_list_for_each(ep, &f->eps, o.link)
		fake_ep_break(ep, -XP_E_DEVICE, "the device was lost");
}

void fake_fabric_reprice(struct fabric *f, const struct fabric_costs *costs)
{
	f->options.measured = *costs;
}

void fake_fabric_dice(struct fabric *f, const struct fake_dice *dice)
{
	f->options.dice = *dice;
}

void fake_fabric_refuse(struct fabric *f, uint32_t nth, bool late)
{
	f->refuse = nth;
	f->refuse_late = late;
}

void fake_fabric_calm(struct fabric *f)
{
	struct fake_dice *d = &f->options.dice;
	uint32_t late = d->late_turns, quantum = d->quantum, rnr = d->rnr_turns;

	*d = (struct fake_dice){ .late_turns = late, .quantum = quantum, .rnr_turns = rnr };
}

uint32_t fake_fabric_objects(const struct fabric *f)
{
	return f->alive;
}

void fake_fabric_dump(struct fabric *f)
{
	static const char *const states[] = { "idle", "connecting", "up", "error", "destroying" };
	struct fabric_ep *ep;

	sim_note("%s: turn %llu", f->options.caps.name, (unsigned long long)f->turn);
	xc_list_for_each(ep, &f->eps, o.link) sim_note(
		"  ep %llu %s%s%s peer %llu sends %llu-%llu receives %llu-%llu rnr %u %s",
		(unsigned long long)ep->tag, states[ep->state], ep->stalled ? " stalled" : "",
		ep->mute ? " mute" : "", ep->peer ? (unsigned long long)ep->peer->tag : 0,
		(unsigned long long)ep->send.retired, (unsigned long long)ep->send.posted,
		(unsigned long long)ep->recv.retired, (unsigned long long)ep->recv.posted, ep->rnr,
		ep->excuse);
}

/* ---- endpoints by their tags */

static struct fabric_ep *by_tag(struct fabric *f, uint64_t tag)
{
	struct fabric_ep *ep;

	xc_list_for_each(ep, &f->eps, o.link)
		if (ep->tag == tag)
			return ep;
	/* The dead keep their excuses. */
	xc_list_for_each(ep, &f->dead_eps, o.link)
		if (ep->tag == tag)
			return ep;
	return NULL;
}

const char *fake_fabric_excuse(struct fabric *f, uint64_t tag)
{
	struct fabric_ep *ep = by_tag(f, tag);

	return ep && ep->excuse[0] ? ep->excuse : NULL;
}

void fake_fabric_excuse_set(struct fabric *f, uint64_t tag, const char *why)
{
	struct fabric_ep *ep = by_tag(f, tag);

	if (ep)
		fake_excuse(ep, why);
}

void fake_fabric_killed(struct fabric *f, void (*fn)(void *ctx, uint64_t ep_tag), void *ctx)
{
	struct fabric_ep *ep;

	if (!f->any_killed)
		return;
	f->any_killed = false;
	xc_list_for_each(ep, &f->eps, o.link) {
		if (ep->killed)
			fn(ctx, ep->tag);
		ep->killed = false;
	}
	xc_list_for_each(ep, &f->dead_eps, o.link) {
		if (ep->killed)
			fn(ctx, ep->tag);
		ep->killed = false;
	}
}

bool fake_fabric_connected(struct fabric *f, uint64_t tag)
{
	struct fabric_ep *ep = by_tag(f, tag);

	return ep && !ep->o.dead && ep->state == FAKE_UP && ep->peer;
}
