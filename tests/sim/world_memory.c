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
	w_share(&(struct w_range){ .buffer = b, .offset = offset, .length = length });
	return true;
}

void w_share(const struct w_range *r)
{
	struct w_buffer *b = r->buffer;

	for (uint64_t i = r->offset / W_GRAIN; i <= (r->offset + r->length - 1) / W_GRAIN; i++)
		b->owners[i]++;
	for (uint32_t i = 0; i < r->length; i++)
		b->mine[r->offset + i]++;
	b->owned++;
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
	for (uint32_t i = 0; i < r->length; i++)
		b->mine[r->offset + i]--;
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

uint8_t *w_grant_at(const struct w_grant *g, uint64_t at, uint64_t *ret_bytes)
{
	const struct w_range *r = g->ranges;

	for (; at >= r->length; r++)
		at -= r->length;
	*ret_bytes = r->length - at;
	return r->buffer->bytes + r->offset + at;
}

static void gather_memory(const struct w_grant *g, uint64_t at, uint64_t bytes, uint8_t *to)
{
	uint64_t n;

	for (uint64_t done = 0; done < bytes; done += n) {
		const uint8_t *from = w_grant_at(g, at + done, &n);

		n = n < bytes - done ? n : bytes - done;
		memcpy(to + done, from, n);
	}
}

bool w_grant_is_of(const struct w_grant *g, const struct w_buffer *b)
{
	for (uint32_t i = 0; i < g->n_ranges; i++)
		if (g->ranges[i].buffer == b)
			return true;
	return false;
}

struct w_grant *w_grant_new(struct world *w, struct w_ep *ep, const struct w_range *ranges,
			    uint32_t n, bool write)
{
	struct w_grant *g = calloc(1, sizeof(*g));

	g->session = ep->session;
	g->ep = ep;
	g->ranges = calloc(n, sizeof(*ranges));
	/* Empty pieces are none. */
	for (uint32_t i = 0; i < n; i++) {
		if (!ranges[i].length)
			continue;
		g->ranges[g->n_ranges++] = ranges[i];
		g->length += ranges[i].length;
	}
	g->write = write;
	g->refs = 1;
	g->snapshot = fabric_snapshots(&ep->caps);
	if (g->snapshot) {
		g->content = calloc(1, g->length);
		g->written = calloc(g->length, sizeof(*g->written));
		if (!write)
			gather_memory(g, 0, g->length, g->content);
	}
	ep->refs++;
	xc_list_append(&w->grants, &g->link);
	return g;
}

void w_grant_unref(struct w_grant *g)
{
	if (--g->refs)
		return;
	for (uint32_t i = 0; i < g->n_ranges; i++)
		w_disown(&g->ranges[i]);
	w_ep_unref(g->ep);
	xc_list_remove(&g->link);
	free(g->content);
	free(g->written);
	free(g->ranges);
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
	for (uint32_t i = 0; i < m->n_links; i++)
		w_link_unref(m->links[i]);
	free(m->data);
	free(m);
}

bool w_grant_uncertain(struct world *w, const struct w_grant *g)
{
	return g->maybe_dead || g->life != W_LIVE ||
	       (g->earliest_ns && w->engine.now_ns >= g->earliest_ns);
}

/* ---- copies */

void w_grant_gather(const struct w_grant *g, uint64_t at, uint64_t bytes, uint8_t *to)
{
	if (g->snapshot)
		memcpy(to, g->content + at, bytes);
	else
		gather_memory(g, at, bytes, to);
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
		sim_check(offset + bytes <= g->length, "I1", "a peer WRITEs beyond a grant");
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
	uint64_t n;

	for (uint64_t at = 0; at < g->length; at += n) {
		const uint8_t *bytes = w_grant_at(g, at, &n);

		if (memcmp(bytes, g->content + at, n) == 0)
			continue;
		for (uint64_t i = 0; i < n; i++)
			sim_check(bytes[i] == g->content[at + i] || g->written[at + i] > until,
				  "data",
				  "byte %llu of the %u of grant %u is not what its peer wrote "
				  "(%u at %llu of %llu), %s",
				  (unsigned long long)(at + i), g->length, g->number,
				  g->content[at + i], (unsigned long long)g->written[at + i],
				  (unsigned long long)until, when);
	}
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

static bool buffers_live(const struct w_grant *g)
{
	for (uint32_t i = 0; i < g->n_ranges; i++)
		if (g->ranges[i].buffer->life != W_LIVE)
			return false;
	return true;
}

void w_scribble(struct world *w, struct w_session *s)
{
	struct w_grant *g, *chosen = NULL;
	uint32_t n = 0, length;
	uint64_t most;
	uint8_t *at;

	xc_list_for_each(g, &w->grants, link)
		if (g->session == s && g->snapshot && !g->write && g->life == W_LIVE &&
		    buffers_live(g) && !w_below(w, ++n))
			chosen = g;
	if (!chosen)
		return;
	at = w_grant_at(chosen, w_below(w, chosen->length), &most);
	length = 1 + w_below(w, (uint32_t)most);
	for (uint32_t i = 0; i < length; i++)
		at[i] = (uint8_t)sim_next(&w->rng);
}
