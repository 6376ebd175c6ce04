/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "daemon/core/pool.h"

#include <errno.h>
#include <stdlib.h>

#include "common/assert.h"
#include "daemon/core/audited.h"
#include "daemon/core/endpoint.h"
#include "daemon/core/sabotage.h"
#include "daemon/core/wait.h"

/* Where slabs lie for their device: below the first buffer (buffer.c), and no address of ours. */
#define SLAB_IOVA (UINT64_C(1) << 40)

/* ------------------------------------------------------------------ going */

static void slab_gone(struct xd_slab *slab)
{
	struct xd_session *s = slab->pd->session;
	struct xd_endpoint *ep = slab->endpoint;
	struct xd_pd *pd = slab->pd;
	bool own_pd = ep->own_pd;

	xc_assert(slab->audit.state == XD_AUDIT_FREE);
	xd_uncharge(&s->payer, XD_LIMIT_pinned, slab->size_bytes);
	xd_core_count(s->core, XD_COUNTER_slab_bytes, -(int64_t)slab->size_bytes);
	xd_core_count(s->core, XD_COUNTER_pinned_bytes, -(int64_t)slab->size_bytes);
	if (slab->status == 0)
		xd_wait_freed(s->core);
	free(slab);
	ep->n_slabs--;
	if (!own_pd)
		xd_endpoint_settle(ep);
	xd_pd_lost(pd); /* settles the endpoint, or the session */
}

static void unmap_run(struct xd_job *job)
{
	struct xd_slab *slab = xc_container_of(job, struct xd_slab, job);

	slab->ops->region_unmap(slab->region);
}

static void unmap_done(struct xd_job *job)
{
	slab_gone(xc_container_of(job, struct xd_slab, job));
}

static void unmap(struct xd_slab *slab)
{
	slab->state = XD_SLAB_UNMAPPING;
	slab->job.run = unmap_run;
	slab->job.done = unmap_done;
	xd_help(slab->pd->session->core, &slab->job);
}

static void deregistered(struct fabric_done *done, int status)
{
	struct xd_slab *slab = xc_container_of(done, struct xd_slab, done);

	xc_assert(status == 0);
	xd_audited_gone(slab->pd->session->core, &slab->audit);
	unmap(slab);
}

static void deregister(struct xd_slab *slab)
{
	int r = 0;

	slab->state = XD_SLAB_DEREGISTERING;
	slab->done.fn = deregistered;
	xd_audited_slab_free(slab);
	if (slab->mr)
		r = slab->ops->mr_dereg(slab->mr, &slab->done);
	if (r != -EINPROGRESS)
		deregistered(&slab->done, r);
}

void xd_slab_free(struct xd_slab *slab)
{
	xc_list_remove(&slab->link);
	if (slab->state == XD_SLAB_READY)
		deregister(slab);
	else
		slab->unwanted = true;
}

/* ------------------------------------------------------------------ coming */

static void fail(struct xd_slab *slab, int status)
{
	slab->status = status; /* that this one goes gives nobody room */
	xd_audited_gone(slab->pd->session->core, &slab->audit);
	if (!slab->unwanted)
		slab->ready(slab, status);
	if (slab->region)
		unmap(slab);
	else
		slab_gone(slab);
}

static void registered(struct fabric_done *done, int status)
{
	struct xd_slab *slab = xc_container_of(done, struct xd_slab, done);

	if (status < 0) {
		slab->mr = NULL;
		fail(slab, status);
		return;
	}
	slab->state = XD_SLAB_READY;
	if (slab->mr)
		xd_audited_live(slab->pd->session->core, &slab->audit);
	if (slab->unwanted)
		deregister(slab);
	else
		slab->ready(slab, 0);
}

static void map_done(struct xd_job *job)
{
	struct xd_slab *slab = xc_container_of(job, struct xd_slab, job);
	int r = 0;

	if (slab->status < 0) {
		slab->region = NULL;
		fail(slab, slab->status);
		return;
	}
	slab->state = XD_SLAB_REGISTERING;
	slab->done.fn = registered;
	if (slab->access != XD_SLAB_NO_KEY) {
		xd_audited_slab(slab);
		r = slab->ops->mr_reg(slab->pd->pd, slab->region, 0, slab->size_bytes, SLAB_IOVA,
				      slab->access, &slab->done, &slab->mr);
	}
	if (r != -EINPROGRESS)
		registered(&slab->done, r);
}

static void map_run(struct xd_job *job)
{
	struct xd_slab *slab = xc_container_of(job, struct xd_slab, job);

	slab->status = slab->ops->slab_map(slab->size_bytes, &slab->region, &slab->memory);
}

int xd_slab_new(struct xd_endpoint *ep, uint64_t size_bytes, int access,
		void (*ready)(struct xd_slab *slab, int status), void *owner, struct xd_slab **ret)
{
	struct xd_session *s = ep->session;
	struct xd_slab *slab;
	int r = xd_pin(s, size_bytes, NULL, 0);

	if (r < 0)
		return r;
	slab = calloc(1, sizeof(*slab));
	if (!slab) {
		xd_uncharge(&s->payer, XD_LIMIT_pinned, size_bytes);
		return -ENOMEM;
	}
	*slab = (struct xd_slab){
		.pd = ep->pd,
		.endpoint = ep,
		.size_bytes = size_bytes,
		.access = access,
		.ready = ready,
		.owner = owner,
		.ops = xd_ep_fabric(ep)->ops,
		.job = { .helper = XD_HELP_MEMORY,
			 .owner = s->uid,
			 .run = map_run,
			 .done = map_done },
	};
	xc_list_init(&slab->link);
	ep->pd->n_objects++;
	ep->n_slabs++;
	xd_core_count(s->core, XD_COUNTER_slab_bytes, (int64_t)size_bytes);
	xd_core_count(s->core, XD_COUNTER_pinned_bytes, (int64_t)size_bytes);
	xd_help(s->core, &slab->job);
	*ret = slab;
	return 0;
}

/* ------------------------------------------------------------------ rings */

/* Some devices send wrong bytes where few of them lie in two pages (fabric.h). */
static uint64_t to_next_page(uint64_t at, uint64_t bytes)
{
	uint64_t in_page = FABRIC_PAGE_BYTES - at % FABRIC_PAGE_BYTES;

	return bytes <= FABRIC_SHORT_BYTES && bytes > in_page && !XD_SABOTAGE("cross-a-page")
		       ? in_page
		       : 0;
}

int xd_ring_take(struct xd_ring *ring, uint64_t bytes, uint64_t *ret_offset)
{
	uint64_t size = ring->slab->size_bytes, at, skip;

	xc_assert(ring->ready && bytes <= size);
	if (ring->head == ring->tail)
		ring->head = ring->tail = 0; /* from the start: all of it is one piece */
	at = ring->tail % size;
	skip = to_next_page(at, bytes);
	if (at + skip + bytes > size)
		skip = size - at;
	if (ring->tail + skip + bytes - ring->head > size && !XD_SABOTAGE("overrun-a-ring"))
		return -EAGAIN;
	ring->tail += skip + bytes;
	*ret_offset = (at + skip) % size;
	return 0;
}
