/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Buffers, who owns which of their bytes, and grants. */
#include <stdlib.h>
#include <string.h>

#include "tests/sim/world.h"

struct w_buffer *w_buffer_new(struct world *w, struct w_session *s, uint64_t size)
{
	struct w_buffer *b = calloc(1, sizeof(*b));

	(void)w;
	b->session = s;
	b->size = size;
	b->fd = fake_memory_new(size);
	b->bytes = fake_memory(b->fd, NULL);
	b->shadow = malloc(size);
	memcpy(b->shadow, b->bytes, size);
	b->owners = calloc(size / W_GRAIN + 1, sizeof(*b->owners));
	b->mine = calloc(1, size);
	xc_list_append(&s->buffers, &b->link);
	return b;
}

void w_buffer_free(struct w_buffer *b)
{
	xc_list_remove(&b->link);
	free(b->shadow);
	free(b->owners);
	free(b->mine);
	free(b);
}

void w_buffer_gone(struct w_buffer *b)
{
	memset(b->owners, 0, (b->size / W_GRAIN + 1) * sizeof(*b->owners));
	memset(b->mine, 0, b->size);
	memcpy(b->shadow, b->bytes, b->size);
	b->life = W_GONE;
}

bool w_own(struct w_buffer *b, uint64_t offset, uint32_t length)
{
	uint64_t first = offset / W_GRAIN, last = length ? (offset + length - 1) / W_GRAIN : 0;

	if (!length)
		return true;
	for (uint64_t i = first; i <= last; i++)
		if (b->owners[i])
			return false;
	for (uint64_t i = first; i <= last; i++)
		b->owners[i]++;
	memset(b->mine + offset, 1, length);
	b->owned++;
	return true;
}

void w_disown(const struct w_range *r)
{
	struct w_buffer *b = r->buffer;
	uint64_t first = r->offset / W_GRAIN;

	/* Of a client that is gone: its bytes have been still since. */
	if (!r->length || b->life == W_GONE)
		return;
	for (uint64_t i = first; i <= (r->offset + r->length - 1) / W_GRAIN; i++)
		b->owners[i]--;
	memset(b->mine + r->offset, 0, r->length);
	b->owned--;
	memcpy(b->shadow + r->offset, b->bytes + r->offset, r->length);
}

#define CHUNK 4096u

/* A byte of a range that is owned may change; another never. */
void w_check_memory(struct w_buffer *b)
{
	if (memcmp(b->bytes, b->shadow, b->size) == 0)
		return;
	for (uint64_t i = 0; i < b->size; i++) {
		if (i % CHUNK == 0 && i + CHUNK <= b->size &&
		    memcmp(b->bytes + i, b->shadow + i, CHUNK) == 0) {
			i += CHUNK - 1;
			continue;
		}
		sim_check(b->bytes[i] == b->shadow[i] || b->mine[i], "I1",
			  "byte %llu of buffer %u changed, and nothing alive may write there",
			  (unsigned long long)i, b->number);
	}
}

/* ---- grants */

struct w_grant *w_grant_new(struct world *w, struct w_ep *ep, const struct w_range *range,
			    bool write)
{
	struct w_grant *g = calloc(1, sizeof(*g));

	g->session = ep->session;
	g->ep = ep;
	g->range = *range;
	g->write = write;
	g->refs = 1;
	g->snapshot = fabric_snapshots(&ep->caps);
	if (g->snapshot) {
		g->content = calloc(1, range->length);
		g->written = calloc(range->length, sizeof(*g->written));
		if (!write)
			memcpy(g->content, range->buffer->bytes + range->offset, range->length);
	}
	ep->refs++;
	xc_list_append(&w->grants, &g->link);
	return g;
}

void w_grant_unref(struct w_grant *g)
{
	if (--g->refs)
		return;
	w_disown(&g->range);
	w_ep_unref(g->ep);
	xc_list_remove(&g->link);
	free(g->content);
	free(g->written);
	free(g);
}

/* For sure dead: its bytes are its owner's again, as soon as nothing on its way aims at them. */
void w_grant_gone(struct w_grant *g)
{
	if (g->life == W_GONE)
		return;
	g->life = W_GONE;
	w_grant_unref(g);
}

void w_message_free(struct w_message *m)
{
	xc_list_remove(&m->link);
	if (m->invalidates)
		w_grant_unref(m->invalidates);
	free(m->data);
	free(m);
}

bool w_grant_uncertain(struct world *w, const struct w_grant *g)
{
	return g->maybe_dead || g->life != W_LIVE ||
	       (g->earliest_ns && w->engine.now_ns >= g->earliest_ns);
}

/* ---- copies */

const uint8_t *w_grant_bytes(const struct w_grant *g)
{
	return g->snapshot ? g->content : g->range.buffer->bytes + g->range.offset;
}

void w_on_wrote(void *ctx, uint64_t ep_tag, uint32_t rkey, uint64_t offset, const uint8_t *data,
		uint64_t bytes)
{
	struct world *w = ctx;
	struct w_grant *g;

	w->clock++;
	xc_list_for_each(g, &w->grants, link) {
		if (!g->snapshot || !g->write || g->rkey != rkey || g->ep->tag != ep_tag)
			continue;
		sim_check(g->life != W_GONE, "I2", "a peer WRITEs by a key that is dead");
		sim_check(offset + bytes <= g->range.length, "I1", "a peer WRITEs beyond a grant");
		memcpy(g->content + offset, data, bytes);
		for (uint64_t i = 0; i < bytes; i++)
			g->written[offset + i] = w->clock;
		if (!g->first_written)
			g->first_written = w->clock;
		return;
	}
	sim_broken("I1", "a peer WRITEs into a slab where it was granted nothing");
}

void w_on_arrived(void *ctx, uint64_t ep_tag)
{
	struct world *w = ctx;
	struct w_ep *ep = w_ep_by_tag(w, ep_tag);

	if (!ep)
		return;
	ep->arrivals = reallocarray(ep->arrivals, ep->n_arrivals + 1, sizeof(*ep->arrivals));
	ep->arrivals[ep->n_arrivals++] = w->clock;
}

static void check_bytes(const struct w_grant *g, uint64_t until, const char *when)
{
	const uint8_t *bytes = g->range.buffer->bytes + g->range.offset;

	if (memcmp(bytes, g->content, g->range.length) == 0)
		return;
	for (uint32_t i = 0; i < g->range.length; i++)
		sim_check(bytes[i] == g->content[i] || g->written[i] > until, "data",
			  "byte %u of the %u of grant %u is not what its peer wrote (%u at %llu of "
			  "%llu), %s",
			  i, g->range.length, g->number, g->content[i],
			  (unsigned long long)g->written[i], (unsigned long long)until, when);
}

void w_check_synced(struct world *w, struct w_ep *ep)
{
	struct w_grant *g;
	uint64_t arrived;

	sim_check(ep->n_arrivals, "data", "a RECV ended well and no message had arrived");
	arrived = ep->arrivals[0];
	memmove(ep->arrivals, ep->arrivals + 1, --ep->n_arrivals * sizeof(*ep->arrivals));
	xc_list_for_each(g, &w->grants, link)
		if (g->ep == ep && g->snapshot && g->write && g->life != W_GONE &&
		    g->first_written && g->first_written <= arrived)
			check_bytes(g, arrived, "and a RECV has ended that came after it");
}

void w_check_copied_out(const struct w_grant *g)
{
	if (g->snapshot && g->write)
		check_bytes(g, UINT64_MAX, "and its REVOKE has ended");
}

void w_scribble(struct world *w, struct w_session *s)
{
	struct w_grant *g, *chosen = NULL;
	uint32_t n = 0, length;
	uint8_t *at;

	xc_list_for_each(g, &w->grants, link)
		if (g->session == s && g->snapshot && !g->write && g->life == W_LIVE &&
		    g->range.buffer->life == W_LIVE && !w_below(w, ++n))
			chosen = g;
	if (!chosen)
		return;
	length = 1 + w_below(w, chosen->range.length);
	at = chosen->range.buffer->bytes + chosen->range.offset +
	     w_below(w, chosen->range.length - length + 1);
	for (uint32_t i = 0; i < length; i++)
		at[i] = (uint8_t)sim_next(&w->rng);
}
