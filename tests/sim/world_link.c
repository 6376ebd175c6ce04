/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * GRANTs whose tokens go into messages (XP_F_LINK). Whether the core took one for such, and which
 * SEND took them over, is seen in its own lists as soon as each was submitted: a refusal is told
 * only later.
 */
#include <stdlib.h>
#include <string.h>

#include "daemon/core/endpoint.h"
#include "daemon/core/link.h"
#include "tests/sim/world.h"

/* ---- what is asked */

static uint32_t count(const struct xc_list *links)
{
	uint32_t n = 0;

	for (const struct xc_list *l = links->next; l != links; l = l->next)
		n++;
	return n;
}

uint32_t w_links_count(const struct w_ep *ep)
{
	return count(&ep->links);
}

static void wrong_patch(struct world *w, struct xp_segment *p)
{
	switch (w_below(w, 4)) {
	case 0:
		p->key = XP_FIELD_COUNT + w_below(w, 100);
		break;
	case 1:
		p->length = (uint32_t[]){ 0, 1, 2, 5, 7, 9, 1u << 31 }[w_below(w, 7)];
		break;
	case 2:
		*p = (struct xp_segment){ .length = 3 + w_below(w, 2), .key = XP_FIELD_ADDRESS };
		break;
	default:
		*p = (struct xp_segment){ .length = 3, .key = XP_FIELD_RKEY };
		break;
	}
}

/* Each in 8 bytes of its own, behind the message's number. */
bool w_link_draft(struct world *w, struct w_ep *ep, struct xp_segment *patches, uint32_t *ret_n)
{
	uint32_t n = 1 + w_below(w, XP_PATCHES_MAX);
	uint32_t slot = 1 + count(&ep->links) * XP_PATCHES_MAX;

	for (uint32_t i = 0; i < n; i++, slot++) {
		uint32_t field = w_below(w, XP_FIELD_COUNT), width = 8;

		if (field != XP_FIELD_ADDRESS && w_dice(w, 600))
			width = field == XP_FIELD_LENGTH && w_dice(w, 500) ? 3 : 4;
		patches[i] = (struct xp_segment){ .address = 8 * slot + w_below(w, 9 - width),
						  .length = width,
						  .key = field };
		if (w_dice(w, 500))
			patches[i].key |= XP_PATCH_BIG_ENDIAN;
		if (w_dice(w, 10))
			patches[i].address = sim_next(&w->rng); /* in no message */
	}
	*ret_n = n;
	if (!w_dice(w, 60))
		return true;
	wrong_patch(w, &patches[w_below(w, n)]);
	return false;
}

/* ---- what the core made of it */

static const struct xd_endpoint *endpoint(const struct w_ep *ep)
{
	struct xd_session *s = ep->session->s;

	return s ? xc_slots_get(&s->endpoints, ep->number) : NULL;
}

static uint32_t waiting(const struct w_ep *ep)
{
	const struct xd_endpoint *xd = endpoint(ep);

	return xd ? count(&xd->links) : 0;
}

bool w_links_lost(const struct w_ep *ep)
{
	const struct xd_endpoint *xd = endpoint(ep);

	return xd && xd->link_lost;
}

void w_link_unref(struct w_link *k)
{
	if (--k->refs == 0)
		free(k);
}

void w_links_free(struct xc_list *links)
{
	struct xc_list *l;

	while ((l = xc_list_pop(links)))
		w_link_unref(xc_container_of(l, struct w_link, link));
}

void w_links_sync(struct w_ep *ep)
{
	if (!waiting(ep))
		w_links_free(&ep->links);
}

void w_link_granted(struct w_request *q)
{
	struct w_link *k;

	if (waiting(q->ep) == count(&q->ep->links)) {
		/* One that names another endpoint, or none, is no matter of this one. */
		sim_check(!endpoint(q->ep) || w_links_lost(q->ep) ||
				  q->r.endpoint != q->ep->number,
			  "data", "a linked GRANT was refused, and its SEND may go");
		return;
	}
	sim_check(waiting(q->ep) == count(&q->ep->links) + 1, "data",
		  "%u GRANTs wait for a SEND, and %u did before one more", waiting(q->ep),
		  count(&q->ep->links));
	k = calloc(1, sizeof(*k));
	k->wr_id = q->r.wr_id;
	k->refs = 2;
	k->n_patches = q->r.remote_count;
	memcpy(k->patches, q->segments + q->n_local, k->n_patches * sizeof(k->patches[0]));
	q->link_to = k;
	xc_list_append(&q->ep->links, &k->link);
}

static bool lies_within(const struct w_link *k, uint64_t bytes)
{
	for (uint32_t i = 0; i < k->n_patches; i++)
		if (k->patches[i].address > bytes ||
		    k->patches[i].length > bytes - k->patches[i].address)
			return false;
	return true;
}

uint64_t w_links_need(const struct w_ep *ep)
{
	struct w_link *k;
	uint64_t need = 0;

	xc_list_for_each(k, (struct xc_list *)(uintptr_t)&ep->links, link)
		for (uint32_t i = 0; i < k->n_patches; i++)
			if (k->patches[i].address < 4096 &&
			    k->patches[i].address + k->patches[i].length > need)
				need = k->patches[i].address + k->patches[i].length;
	return need;
}

static void put(struct w_message *m, const struct w_link *k)
{
	for (uint32_t i = 0; i < k->n_patches; i++) {
		const struct xp_segment *p = &k->patches[i];
		uint64_t value = k->value[p->key & ~XP_PATCH_BIG_ENDIAN];

		for (uint32_t n = 0; n < p->length; n++) {
			uint32_t at = p->key & XP_PATCH_BIG_ENDIAN ? p->length - 1 - n : n;

			m->data[p->address + at] = (uint8_t)(value >> (8 * n));
		}
	}
}

void w_link_sent(struct w_request *q, struct w_message *m)
{
	struct xc_list *l;
	struct w_link *k;

	xc_list_for_each(k, &q->ep->links, link)
		q->outside |= !lies_within(k, q->bytes);
	if (waiting(q->ep)) {
		sim_check(waiting(q->ep) == count(&q->ep->links), "data",
			  "a SEND took a part of the GRANTs that wait for one");
		q->left_links = true;
		return;
	}
	while ((l = xc_list_pop(&q->ep->links))) {
		k = xc_container_of(l, struct w_link, link);
		sim_check(!m || lies_within(k, q->bytes), "data",
			  "a SEND of %llu bytes took a token that lies outside",
			  (unsigned long long)q->bytes);
		xc_list_append(&q->links, &k->link);
		if (!m)
			continue;
		if (k->ended && !k->status)
			put(m, k);
		m->links[m->n_links++] = k;
		k->refs++;
	}
}

/* ---- what came of it */

static struct w_message *message_of(struct w_ep *ep, const struct w_link *k)
{
	struct w_message *m;

	xc_list_for_each(m, &ep->messages, link)
		for (uint32_t i = 0; i < m->n_links; i++)
			if (m->links[i] == k)
				return m;
	return NULL;
}

static void compare_seen(const struct w_link *k)
{
	for (uint32_t i = 0; i < k->n_patches; i++) {
		const struct xp_segment *p = &k->patches[i];
		uint64_t value = k->value[p->key & ~XP_PATCH_BIG_ENDIAN];

		for (uint32_t n = 0; n < p->length; n++) {
			uint32_t at = p->key & XP_PATCH_BIG_ENDIAN ? p->length - 1 - n : n;

			sim_check(k->seen[i][at] == (uint8_t)(value >> (8 * n)), "data",
				  "a message arrived without its token: byte %u of patch %u", at,
				  i);
		}
	}
}

void w_link_ended(struct w_request *q, const struct xp_completion *c)
{
	struct w_link *k = q->link_to;
	struct w_message *m;

	k->ended = true;
	k->status = c->status;
	k->value[XP_FIELD_ADDRESS] = c->address;
	k->value[XP_FIELD_LENGTH] = c->byte_len;
	k->value[XP_FIELD_RKEY] = c->rkey;
	if (k->arrived) {
		sim_check(!k->status, "data", "a message arrived whose GRANT failed with %d",
			  k->status);
		compare_seen(k);
	}
	m = message_of(q->ep, k);
	if (m && !k->status)
		put(m, k);
}

bool w_link_hides(const struct w_message *m, uint64_t at)
{
	for (uint32_t i = 0; i < m->n_links; i++) {
		const struct w_link *k = m->links[i];

		for (uint32_t n = 0; n < k->n_patches && !k->ended; n++)
			if (at >= k->patches[n].address &&
			    at - k->patches[n].address < k->patches[n].length)
				return true;
	}
	return false;
}

/* The byte of a message as it lies in a request's memory. */
static const uint8_t *byte_at(const struct w_request *q, uint64_t at)
{
	const struct w_range *r = q->ranges;

	for (; at >= r->length; r++)
		at -= r->length;
	return r->buffer->bytes + r->offset + at;
}

void w_link_arrived(struct world *w, struct w_message *m, const struct w_request *recv)
{
	for (uint32_t i = 0; i < m->n_links; i++) {
		struct w_link *k = m->links[i];

		sim_check(!k->ended || !k->status, "data",
			  "a message arrived whose GRANT failed with %d", k->status);
		k->arrived = true;
		w->tokens_arrived++;
		for (uint32_t n = 0; n < k->n_patches && !k->ended; n++)
			for (uint32_t b = 0; b < k->patches[n].length; b++)
				k->seen[n][b] = *byte_at(recv, k->patches[n].address + b);
	}
}

bool w_links_failed(const struct w_request *q)
{
	struct w_link *k;

	if (q->lost_link)
		return true;
	xc_list_for_each(k, (struct xc_list *)(uintptr_t)&q->links, link)
		if (k->ended && k->status)
			return true;
	return false;
}

void w_links_check(const struct w_request *q)
{
	if (q->r.opcode == XP_OP_SEND) {
		sim_check(!w_links_failed(q), "data", "a SEND ended well whose GRANT failed");
		sim_check(!q->left_links, "data", "a SEND ended well and left what waits for one");
	}
	sim_check(q->r.opcode != XP_OP_GRANT || !(q->r.flags & XP_F_LINK) || q->link_to, "data",
		  "a linked GRANT ended well, and no SEND waits for it");
}
