/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "daemon/core/stage.h"

#include <errno.h>

#include "common/assert.h"
#include "daemon/core/buffer.h"
#include "daemon/core/sabotage.h"

#define COPY_MAX_BYTES (UINT64_C(256) << 10)
/* What a copy costs beyond its bytes, in bytes: the call, the guard, the look-up. */
#define COPY_COST_BYTES 256

/* ------------------------------------------------------------------ rings */

static int ring_access(const struct fabric_caps *caps, enum xd_ring_kind kind)
{
	if (kind == XD_RING_OUT)
		return 0;
	if (kind == XD_RING_IN && caps->read_sink_remote_write)
		return IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
	return IBV_ACCESS_LOCAL_WRITE;
}

static void ring_ready(struct xd_slab *slab, int status)
{
	struct xd_endpoint *ep = slab->owner;

	for (int i = 0; i < XD_RINGS; i++) {
		struct xd_ring *ring = &ep->rings[i];

		if (ring->slab != slab)
			continue;
		ring->ready = status == 0;
		if (status < 0) {
			ring->slab = NULL;
			ep->refused_ns[i] = xd_now(ep->session->core);
		}
		if (i == XD_RING_RECV)
			xd_endpoint_staged(ep, status);
	}
	xd_endpoint_pump(ep);
}

static int ring_make(struct xd_endpoint *ep, enum xd_ring_kind kind, uint64_t bytes, uint64_t least)
{
	int access = ring_access(xd_ep_caps(ep), kind), r;

	for (;;) {
		r = xd_slab_new(ep, bytes, access, ring_ready, ep, &ep->rings[kind].slab);
		if (r != -XP_E_QUOTA || bytes <= least)
			break;
		bytes = bytes / 4 > least ? bytes / 4 & ~(uint64_t)4095 : least;
	}
	if (r < 0)
		ep->refused_ns[kind] = xd_now(ep->session->core);
	return r;
}

static bool refused_lately(const struct xd_endpoint *ep, enum xd_ring_kind kind)
{
	return ep->refused_ns[kind] &&
	       xd_now(ep->session->core) - ep->refused_ns[kind] < 1000 * XD_NS_PER_MS;
}

/* A new ring of this length or more; 0 never comes back. */
static int ring_of(struct xd_endpoint *ep, enum xd_ring_kind kind, uint64_t bytes)
{
	uint64_t least = (bytes + 4095) & ~(uint64_t)4095;
	int r;

	if (refused_lately(ep, kind))
		return -ENOMEM;
	r = bytes > XD_STAGE_RING_BYTES
		    ? ring_make(ep, kind, least, least)
		    : ring_make(ep, kind, XD_STAGE_RING_BYTES,
				least > XD_STAGE_RING_BYTES_MIN ? least : XD_STAGE_RING_BYTES_MIN);
	return r < 0 ? r : -EINPROGRESS;
}

/* It is too short for what comes: another one, when nothing is in it any more. */
static int ring_grow(struct xd_endpoint *ep, enum xd_ring_kind kind, uint64_t bytes)
{
	struct xd_ring *ring = &ep->rings[kind];
	int r;

	if (kind == XD_RING_RECV)
		return -EMSGSIZE;
	if (ring->head != ring->tail)
		return -EAGAIN;
	xd_slab_free(ring->slab);
	*ring = (struct xd_ring){ .slab = NULL };
	r = ring_of(ep, kind, bytes);
	/* It may be the one that is on its way out which there is no room beside. */
	ep->refused_ns[kind] = 0;
	return r;
}

int xd_stage_take(struct xd_endpoint *ep, enum xd_ring_kind kind, uint64_t bytes,
		  struct xd_wqe *ret)
{
	struct xd_ring *ring = &ep->rings[kind];
	int r;

	*ret = (struct xd_wqe){ .ring = (uint8_t)kind, .bytes = bytes };
	if (bytes == 0)
		return 0;
	if (!ring->slab)
		return kind == XD_RING_RECV ? -ENOMEM : ring_of(ep, kind, bytes);
	if (!ring->ready)
		return -EINPROGRESS;
	if (bytes > ring->slab->size_bytes)
		return ring_grow(ep, kind, bytes);
	r = xd_ring_take(ring, bytes, &ret->ring_offset);
	ret->ring_end = ring->tail;
	return r;
}

void xd_stage_give(struct xd_endpoint *ep, const struct xd_wqe *w)
{
	if (w->ring < XD_RINGS && w->bytes)
		ep->rings[w->ring].head = w->ring_end;
}

int xd_stage_sge(const struct xd_endpoint *ep, const struct xd_wqe *w, struct ibv_sge *ret)
{
	const struct ibv_mr *mr;

	if (!w->bytes)
		return 0;
	mr = ep->rings[w->ring].slab->mr;
	*ret = (struct ibv_sge){
		.addr = (uintptr_t)mr->addr + w->ring_offset,
		.length = (uint32_t)w->bytes,
		.lkey = mr->lkey,
	};
	return 1;
}

void xd_stage_reserve(struct xd_endpoint *ep, uint64_t bytes)
{
	int r;

	bytes = (bytes + 4095) & ~(uint64_t)4095;
	r = ring_make(ep, XD_RING_RECV, bytes, xc_min_u64(bytes, XD_STAGE_RECV_BYTES));
	if (r < 0)
		xd_endpoint_staged(ep, r);
}

void xd_stage_free(struct xd_endpoint *ep)
{
	for (int i = 0; i < XD_RINGS; i++) {
		if (ep->rings[i].slab && !XD_SABOTAGE("keep-a-slab"))
			xd_slab_free(ep->rings[i].slab);
		ep->rings[i] = (struct xd_ring){ .slab = NULL };
	}
}

/* ------------------------------------------------------------------ copying */

int xd_copy(struct xd_buffer *b, uint64_t offset, void *memory, uint64_t bytes, bool to_client)
{
	struct xd_core *core = b->session->core;
	int r = b->ops->copy(b->region, offset, memory, bytes, to_client);

	core->copy_left -= (int64_t)(bytes + COPY_COST_BYTES);
	xd_core_count(core, XD_COUNTER_staged_bytes, (int64_t)bytes);
	if (r < 0 && XD_SABOTAGE("ignore-a-fault"))
		return 0;
	if (r < 0)
		xd_buffer_fault(b);
	return r;
}

/* One copy of the transfer's local side from the cursor on, of at most `most` bytes. How many, or
 * an error. */
static int64_t copy_some(struct xd_transfer *t, struct xd_cursor *c, uint8_t *memory, uint64_t most,
			 bool to_client)
{
	const struct xp_segment *seg;
	uint64_t n;
	int r;

	while (t->segments[c->local].length == c->local_done) {
		c->local++;
		c->local_done = 0;
		xc_assert(c->local < t->request.local_count);
	}
	seg = &t->segments[c->local];
	n = xc_min_u64(xc_min_u64(seg->length - c->local_done, most), COPY_MAX_BYTES);
	r = xd_copy(xd_buffer_get(t->session, seg->key), seg->address + c->local_done, memory, n,
		    to_client);
	c->local_done += n;
	return r < 0 ? r : (int64_t)n;
}

int xd_stage_copy(struct xd_transfer *t, struct xd_cursor from, uint8_t *memory, uint64_t bytes,
		  bool to_client)
{
	for (uint64_t done = 0; done < bytes;) {
		int64_t n = copy_some(t, &from, memory + done, bytes - done, to_client);

		if (n < 0)
			return (int)n;
		done += (uint64_t)n;
	}
	return 0;
}

int xd_stage_gather(struct xd_transfer *t, struct xd_cursor from, uint64_t bytes,
		    struct xd_wqe *ret)
{
	struct xd_ring *ring = &t->endpoint->rings[XD_RING_OUT];
	struct xd_gather *g = &t->gather;
	int r;

	if (!xd_may_copy(t->session->core))
		return -EINTR;
	if (!g->taken) {
		*g = (struct xd_gather){ .mark = xd_ring_mark(ring), .cursor = from };
		r = xd_stage_take(t->endpoint, XD_RING_OUT, bytes, &g->wqe);
		if (r < 0)
			return r;
		g->taken = bytes > 0;
	}
	while (g->done_bytes < bytes) {
		uint8_t *to = xd_ring_memory(ring, g->wqe.ring_offset + g->done_bytes);
		int64_t n;

		if (!xd_may_copy(t->session->core))
			return -EINTR;
		n = copy_some(t, &g->cursor, to, bytes - g->done_bytes, false);
		if (n < 0)
			return (int)n;
		g->done_bytes += (uint64_t)n;
	}
	g->taken = false;
	*ret = g->wqe;
	return 0;
}

void xd_stage_forget(struct xd_transfer *t)
{
	if (t->gather.taken)
		xd_ring_rewind(&t->endpoint->rings[XD_RING_OUT], t->gather.mark);
	t->gather.taken = false;
}

int xd_stage_scatter(struct xd_transfer *t, struct xd_wqe *w)
{
	uint8_t *from =
		w->bytes ? xd_ring_memory(&t->endpoint->rings[w->ring], w->ring_offset) : NULL;

	while (w->copied < w->arrived) {
		int64_t n;

		if (!xd_may_copy(t->session->core))
			return 0;
		n = copy_some(t, &t->out_cursor, from + w->copied, w->arrived - w->copied, true);
		if (n < 0)
			return (int)n;
		w->copied += (uint64_t)n;
	}
	return 1;
}

/* ------------------------------------------------------------------ turns */

void xd_stage_soon(struct xd_endpoint *ep)
{
	struct xd_core *core = ep->session->core;

	if (xc_list_empty(&ep->staging_link))
		xc_list_append(&core->staging, &ep->staging_link);
	core->engine.ops->kick(core->engine.engine);
}

bool xd_stage_turn(struct xd_core *core)
{
	struct xc_list round, *l;

	/* Those that come back during the round wait for the next. */
	xc_list_init(&round);
	while ((l = xc_list_pop(&core->staging)))
		xc_list_append(&round, l);
	while ((l = xc_list_pop(&round))) {
		struct xd_endpoint *ep = xc_container_of(l, struct xd_endpoint, staging_link);

		if (xd_may_copy(core))
			xd_endpoint_advance(ep);
		else
			xd_stage_soon(ep);
	}
	return !xc_list_empty(&core->staging);
}
