/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "daemon/core/window.h"

#include <errno.h>
#include <stdlib.h>

#include "common/assert.h"
#include "daemon/core/grant.h"
#include "daemon/core/wait.h"

static const struct fabric_ops *window_ops(const struct xd_window *w)
{
	return w->pd->session->core->fabrics[w->pd->fabric].ops;
}

static void window_free(struct xd_window *w)
{
	struct xd_pd *pd = w->pd;

	xc_list_remove(&w->link);
	pd->n_windows--;
	free(w);
	if (pd->clearing && pd->n_windows == 0)
		xd_pd_clear(pd);
	xd_pd_lost(pd);
}

static void window_gone(struct fabric_done *done, int status)
{
	struct xd_window *w = xc_container_of(done, struct xd_window, done);
	struct xd_grant *g = w->grant;

	xc_assert(status == 0);
	xd_wait_freed(w->pd->session->core);
	window_free(w);
	if (g) {
		g->window = NULL;
		xd_grant_dead(g, false);
	}
}

void xd_window_kill(struct xd_window *w)
{
	int r;

	xc_list_remove(&w->link);
	w->done.fn = window_gone;
	r = window_ops(w)->mw_dealloc(w->mw, &w->done);
	if (r == -EINPROGRESS)
		return;
	window_gone(&w->done, r);
}

void xd_windows_free(struct xd_pd *pd)
{
	struct xd_window *w;

	while ((w = xc_list_first(&pd->windows, struct xd_window, link)))
		xd_window_kill(w);
}

static void window_made(struct fabric_done *done, int status)
{
	struct xd_window *w = xc_container_of(done, struct xd_window, done);
	struct xd_endpoint *ep = w->wanted_by;
	struct xd_pd *pd = w->pd;

	w->wanted_by = NULL;
	if (ep)
		ep->window_due = NULL;
	xd_wait_answered(pd->session->core, pd->fabric, w->in_turn, status < 0);
	pd->n_objects++; /* so that it outlives this */
	if (status == 0)
		xc_list_append(&pd->windows, &w->link);
	else
		window_free(w);
	if (ep && status == 0) {
		xd_wait_has_window(ep);
	} else if (ep) {
		xd_endpoint_wait(ep, XD_SCARCE_WINDOW);
	} else if (status == 0 && pd->endpoint) {
		/* Its endpoint has ended meanwhile, and what it left went before this came. */
		xd_windows_free(pd);
	}
	xd_pd_lost(pd);
}

struct xd_window *xd_window_take(struct xd_endpoint *ep)
{
	struct xd_pd *pd = ep->pd;
	struct xd_core *core = pd->session->core;
	struct xd_window *w = xc_list_first(&pd->windows, struct xd_window, link);

	if (!xd_wait_may_take_window(ep))
		return NULL;
	if (w) {
		xc_list_remove(&w->link);
		xd_wait_over(ep, XD_SCARCE_WINDOW);
		return w;
	}
	if (ep->window_due)
		return NULL;
	w = calloc(1, sizeof(*w));
	if (!w)
		return NULL;
	xc_list_init(&w->link);
	w->pd = pd;
	w->done.fn = window_made;
	pd->n_windows++;
	pd->n_objects++;
	switch (window_ops(w)->mw_alloc(pd->pd, &w->done, &w->mw)) {
	case 0:
		xd_wait_over(ep, XD_SCARCE_WINDOW);
		return w;
	case -EINPROGRESS:
		w->wanted_by = ep;
		ep->window_due = w;
		w->in_turn = ep->scarce == XD_SCARCE_WINDOW;
		if (w->in_turn)
			xd_wait_asks(core, pd->fabric);
		return NULL;
	default:
		window_free(w);
		xd_wait_answered(core, pd->fabric, false, true);
		return NULL;
	}
}

void xd_window_release(struct xd_window *w)
{
	struct xd_pd *pd = w->pd;

	w->grant = NULL;
	xc_list_append(&pd->windows, &w->link);
	xd_wait_freed(pd->session->core);
	if (w->binds >= XD_WINDOW_BINDS_MAX || pd->n_windows > XD_WINDOWS_KEPT ||
	    xd_wait_by_others(pd) || xd_session_ending(pd->session) ||
	    (pd->endpoint && pd->endpoint->gone))
		xd_window_kill(w);
}
