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
	xc_list_append(&s->buffers, &b->link);
	return b;
}

void w_buffer_free(struct w_buffer *b)
{
	xc_list_remove(&b->link);
	free(b->shadow);
	free(b->owners);
	free(b);
}

void w_buffer_gone(struct w_buffer *b)
{
	memset(b->owners, 0, (b->size / W_GRAIN + 1) * sizeof(*b->owners));
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
	b->owned--;
	memcpy(b->shadow + r->offset, b->bytes + r->offset, r->length);
}

static bool owned(const struct w_buffer *b, uint64_t at)
{
	return b->owners[at / W_GRAIN];
}

/*
 * A byte of a grain that is owned may change; one of a grain that is not, never.
 */
void w_check_memory(struct w_buffer *b)
{
	if (memcmp(b->bytes, b->shadow, b->size) == 0)
		return;
	for (uint64_t i = 0; i < b->size; i++)
		sim_check(b->bytes[i] == b->shadow[i] || owned(b, i), "I1",
			  "byte %llu of buffer %u changed, and nothing alive may write there",
			  (unsigned long long)i, b->number);
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
