/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include <errno.h>
#include <stdlib.h>

#include "common/assert.h"
#include "common/checked.h"
#include "daemon/fabric/iwarp/stream.h"

static struct xc_list *bucket_of(struct fabric *f, uint32_t uid)
{
	return &f->owners[uid % IWARP_BUCKETS];
}

int iwarp_owner_get(struct fabric *f, uint32_t uid, struct iwarp_owner **ret)
{
	struct xc_list *bucket = bucket_of(f, uid);
	struct iwarp_owner *o;

	xc_list_for_each(o, bucket, in_bucket) {
		if (o->uid == uid) {
			o->pds++;
			*ret = o;
			return 0;
		}
	}
	o = calloc(1, sizeof(*o));
	if (!o)
		return -ENOMEM;
	o->uid = uid;
	o->pds = 1;
	xc_list_append(bucket, &o->in_bucket);
	xc_list_init(&o->turn);
	xc_list_init(&o->turns);
	*ret = o;
	return 0;
}

void iwarp_owner_put(struct iwarp_owner *o)
{
	if (--o->pds)
		return;
	xc_assert(xc_list_empty(&o->turns));
	xc_list_remove(&o->turn);
	xc_list_remove(&o->in_bucket);
	free(o);
}

/*
 * Nothing moves before both sides have heard that they are connected, so that nobody gets a
 * completion of a connection that it does not know.
 */
static bool can_run(const struct fabric_ep *ep)
{
	if (ep->state != IWARP_EP_CONNECTED || (ep->tell & IWARP_TELL_ESTABLISHED))
		return false;
	if (ep->stream)
		return stream_can_run(ep);
	if (!ep->sq.count || (ep->peer->tell & IWARP_TELL_ESTABLISHED))
		return false;
	return !ep->awaits_recv || ep->peer->rq.count;
}

void iwarp_schedule(struct fabric_ep *ep)
{
	struct fabric_pd *pd = ep->pd;
	struct iwarp_owner *o = pd->owner;

	if (!can_run(ep)) {
		xc_list_remove(&ep->turn);
		if (xc_list_empty(&pd->turns))
			xc_list_remove(&pd->turn);
		if (xc_list_empty(&o->turns))
			xc_list_remove(&o->turn);
		return;
	}
	if (xc_list_empty(&ep->turn))
		xc_list_append(&pd->turns, &ep->turn);
	if (xc_list_empty(&pd->turn))
		xc_list_append(&o->turns, &pd->turn);
	if (xc_list_empty(&o->turn))
		xc_list_append(&pd->fabric->turns, &o->turn);
	iwarp_wake(pd->fabric);
}

/* The first of a list, which thereby becomes the last. */
static struct xc_list *rotate(struct xc_list *head)
{
	struct xc_list *first = xc_list_pop(head);

	if (first)
		xc_list_append(head, first);
	return first;
}

static struct fabric_ep *next_ep(struct fabric *f)
{
	struct xc_list *link = rotate(&f->turns);

	if (!link)
		return NULL;
	link = rotate(&xc_container_of(link, struct iwarp_owner, turn)->turns);
	link = rotate(&xc_container_of(link, struct fabric_pd, turn)->turns);
	return xc_container_of(link, struct fabric_ep, turn);
}

static void report_fault(struct fabric *f)
{
	struct fabric_region *faulted = f->faulted;

	f->faulted = NULL;
	if (faulted)
		f->events.region_fault(fabric_region_ctx(faulted));
}

void iwarp_run_turns(struct fabric *f, uint64_t budget_bytes)
{
	struct fabric_ep *ep;

	while (budget_bytes && (ep = next_ep(f))) {
		uint64_t allowance = xc_min_u64(budget_bytes, IWARP_QUANTUM_BYTES);
		uint64_t cost = ep->stream ? stream_run(ep, allowance)
					   : iwarp_execute(ep, allowance);

		iwarp_schedule(ep);
		/* A turn costs something, whatever came of it: or this would not end. */
		budget_bytes -= xc_min_u64(cost ? cost : 1, budget_bytes);
		report_fault(f); /* the last: it may destroy ep */
	}
}
