/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "daemon/core/wait.h"

#include "common/assert.h"
#include "daemon/core/sabotage.h"
#include "daemon/core/transfer.h"
#include "daemon/core/window.h"

/* Asked in a turn; each is some microseconds of planning anew. */
#define ASKED_A_TURN 64
/* Nothing may tell that a device has room again: all are asked this often, and less often where
 * they are many. */
#define AGAIN_NS (1 * XD_NS_PER_MS)
#define AGAIN_EACH_NS (16 * XD_NS_PER_MS / 1000)

static struct xd_waits *waits_of(const struct xd_endpoint *ep)
{
	return &ep->session->core->waits;
}

static uint32_t *window_waiters(const struct xd_endpoint *ep)
{
	return &waits_of(ep)->windows[ep->fabric].waiting;
}

static enum xd_order order_of(enum xd_scarce scarce)
{
	return scarce == XD_SCARCE_WINDOW ? XD_ORDER_OF_WINDOWS : XD_ORDER_OF_MEMORY;
}

static void forget(struct xd_endpoint *ep)
{
	struct xd_waits *w = waits_of(ep);

	if (ep->scarce == XD_SCARCE_WINDOW)
		--*window_waiters(ep);
	w->n--;
	xd_core_count(ep->session->core, XD_COUNTER_endpoints_waiting, -1);
	ep->scarce = XD_SCARCE_NONE;
}

static void round_soon(struct xd_core *core)
{
	for (int i = 0; i < XD_ORDERS; i++)
		core->waits.orders[i].due = true;
	core->engine.ops->kick(core->engine.engine);
}

static void again(struct xd_timer *t)
{
	round_soon(xc_container_of(t, struct xd_core, waits.again));
}

bool xd_wait_by_others(const struct xd_pd *pd)
{
	const struct xd_core *core = pd->session->core;

	return core->waits.windows[pd->fabric].waiting &&
	       !xd_turn_alone(&pd->session->turns[XD_ORDER_OF_WINDOWS]) &&
	       !XD_SABOTAGE("keep-windows");
}

/* Where a device has none, one that another session keeps for later goes back to it. */
static void call_in(struct xd_core *core, uint32_t fabric)
{
	struct xd_waits *waits = &core->waits;
	struct xd_session *s;

	if (!waits->windows[fabric].out || waits->windows[fabric].called)
		return;
	waits->windows[fabric].called = true;
	xc_list_for_each(s, &core->sessions, link) {
		struct xd_pd *pd = s->pds[fabric];
		struct xd_window *w =
			pd ? xc_list_first(&pd->windows, struct xd_window, link) : NULL;

		if (w && xd_wait_by_others(pd)) {
			xd_window_kill(w);
			return;
		}
	}
}

static void arm(struct xd_core *core)
{
	struct xd_waits *w = &core->waits;

	if (!w->again.node.queued && !XD_SABOTAGE("never-try-again"))
		xd_arm(core, &w->again, xd_now(core) + AGAIN_NS + w->n * AGAIN_EACH_NS);
}

static void take_place(struct xd_endpoint *ep, enum xd_scarce scarce)
{
	struct xd_core *core = ep->session->core;

	xc_assert(scarce != XD_SCARCE_NONE);
	if (ep->scarce == scarce)
		return;
	xd_wait_not(ep);
	ep->turn.above = &ep->session->turns[order_of(scarce)];
	xd_turn_enter(&ep->turn);
	core->waits.n++;
	xd_core_count(core, XD_COUNTER_endpoints_waiting, 1);
	ep->scarce = scarce;
	if (scarce == XD_SCARCE_WINDOW)
		++*window_waiters(ep);
	arm(core);
}

void xd_wait_for(struct xd_endpoint *ep, enum xd_scarce scarce)
{
	take_place(ep, scarce);
	if (scarce == XD_SCARCE_WINDOW)
		call_in(ep->session->core, ep->fabric);
}

void xd_wait_not(struct xd_endpoint *ep)
{
	if (ep->scarce == XD_SCARCE_NONE)
		return;
	xd_turn_leave(&ep->turn);
	forget(ep);
}

void xd_wait_over(struct xd_endpoint *ep, enum xd_scarce got)
{
	struct xd_waits *w = waits_of(ep);

	/* One window in a turn. */
	if (got == XD_SCARCE_WINDOW && w->asked == ep)
		w->asked = NULL;
	if (ep->scarce != got) {
		xd_wait_not(ep); /* what waited for the other is not the head any more */
		return;
	}
	xd_turn_got(&ep->turn);
	w->orders[order_of(got)].due = true; /* there may be more, for the next round */
	forget(ep);
}

void xd_wait_has_window(struct xd_endpoint *ep)
{
	struct xd_waits *w = waits_of(ep);
	struct xd_endpoint *before = w->asked;

	w->asked = ep;
	xd_endpoint_pump(ep);
	w->asked = before;
}

static void ask(struct xd_endpoint *ep)
{
	if (ep->scarce == XD_SCARCE_WINDOW)
		xd_wait_has_window(ep);
	else
		xd_endpoint_pump(ep);
}

/* ------------------------------------------------------------------ windows */

bool xd_wait_may_take_window(struct xd_endpoint *ep)
{
	const struct xd_waits *w = waits_of(ep);
	uint32_t others = *window_waiters(ep) - (ep->scarce == XD_SCARCE_WINDOW);

	if (w->asked == ep)
		return !w->windows[ep->fabric].out;
	if (others == 0 || XD_SABOTAGE("jump-the-queue"))
		return true;
	if (ep->scarce != XD_SCARCE_WINDOW) {
		xd_wait_for(ep, XD_SCARCE_WINDOW);
		round_soon(ep->session->core);
	}
	return false;
}

void xd_wait_asks(struct xd_core *core, uint32_t fabric)
{
	core->waits.windows[fabric].asking = core->waits.windows[fabric].out = true;
	core->waits.windows[fabric].freed = false;
}

void xd_wait_answered(struct xd_core *core, uint32_t fabric, bool in_turn, bool out)
{
	core->waits.windows[fabric].out = out;
	if (!in_turn)
		return;
	core->waits.windows[fabric].asking = false;
	/* It was asked before that came back; or there may be more. */
	if (!out || core->waits.windows[fabric].freed)
		xd_wait_freed(core);
}

/* ------------------------------------------------------------------ rounds */

void xd_wait_freed(struct xd_core *core)
{
	if (!core->waits.n || XD_SABOTAGE("never-try-again"))
		return;
	for (uint32_t i = 0; i < core->n_fabrics; i++)
		core->waits.windows[i].freed = true;
	round_soon(core);
}

static void begin(struct xd_waits *w, enum xd_order order)
{
	w->orders[order].due = false;
	w->orders[order].in_round = true;
	for (uint32_t i = 0; i < XD_FABRICS_MAX && order == XD_ORDER_OF_WINDOWS; i++)
		w->windows[i].out = w->windows[i].called = w->windows[i].asking;
}

/* As many of one order as a turn has time for. True: there are more. */
static bool go_round(struct xd_core *core, enum xd_order order)
{
	struct xd_waits *w = &core->waits;

	for (int i = 0; i < ASKED_A_TURN; i++) {
		struct xd_turn *t;

		if (!w->orders[order].in_round && !w->orders[order].due)
			break;
		if (!w->orders[order].in_round)
			begin(w, order);
		t = xd_turn_next(&core->quota.turns[order]);
		if (t)
			ask(xc_container_of(t, struct xd_endpoint, turn));
		else
			w->orders[order].in_round = false;
	}
	return w->orders[order].in_round || w->orders[order].due;
}

bool xd_wait_turn(struct xd_core *core)
{
	bool more = false;

	for (int i = 0; i < XD_ORDERS; i++)
		more |= go_round(core, i);
	if (!more && core->waits.n)
		arm(core);
	return more;
}

void xd_wait_init(struct xd_core *core)
{
	core->waits.again.fired = again;
}

void xd_wait_done(struct xd_core *core)
{
	xc_assert(core->waits.n == 0);
	xd_disarm(core, &core->waits.again);
}
