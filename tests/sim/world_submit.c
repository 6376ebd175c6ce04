/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Transfers of all shapes, right and wrong ones. */
#include <stdlib.h>
#include <string.h>

#include "tests/sim/world.h"

#define SEGMENTS 96u

/* A request in the making. */
struct draft {
	struct w_session *session;
	struct w_ep *ep, *peer;
	struct w_request *q;
	struct xp_segment local[SEGMENTS], remote[SEGMENTS];
	uint32_t n_local, n_remote;
	struct w_range ranges[SEGMENTS + 1];
	uint32_t n_ranges;
	struct w_grant *targets[SEGMENTS];
	uint64_t remote_bytes;
	uint32_t max_pieces; /* of what a careful program asks for */
};

static void add_range(struct draft *d, struct w_buffer *b, uint64_t offset, uint32_t length)
{
	d->ranges[d->n_ranges++] =
		(struct w_range){.buffer = b, .offset = offset, .length = length};
}

static struct w_buffer *some_buffer(struct world *w, struct w_session *s)
{
	struct w_buffer *b, *chosen = NULL;
	uint32_t n = 0;

	xc_list_for_each(b, &s->buffers, link)
		if (b->life == W_LIVE && !w_below(w, ++n))
			chosen = b;
	return chosen;
}

/* A piece of at most `most` bytes that nobody owns yet. */
static bool add_local(struct world *w, struct draft *d, uint32_t most)
{
	for (int i = 0; i < 8 && d->n_local < SEGMENTS; i++) {
		struct w_buffer *b = some_buffer(w, d->session);
		struct w_range *last = d->n_ranges ? &d->ranges[d->n_ranges - 1] : NULL;
		uint32_t length;
		uint64_t offset;

		if (!b)
			return false;
		length = (uint32_t)(most < b->size ? most : b->size);
		offset = w_below(w, (uint32_t)(b->size - length) + 1);
		/* Sometimes a neighbour of the one before, which the planner may join. */
		if (last && w_dice(w, 200) && (last->offset + last->length) % W_GRAIN == 0 &&
		    last->offset + last->length + length <= last->buffer->size) {
			b = last->buffer;
			offset = last->offset + last->length;
		}
		if (!w_own(b, offset, length))
			continue;
		add_range(d, b, offset, length);
		d->local[d->n_local++] = (struct xp_segment){ .address = offset, .length = length,
							      .key = b->number };
		return true;
	}
	return false;
}

static uint64_t local_bytes(const struct draft *d)
{
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < d->n_local; i++)
		bytes += d->local[i].length;
	return bytes;
}

/* Local pieces of exactly so many bytes. */
static bool add_locals(struct world *w, struct draft *d, uint64_t bytes)
{
	while (bytes) {
		uint32_t most = (uint32_t)(bytes < 4096 || w->bulk ? bytes : 4096);
		uint64_t before = local_bytes(d);

		if (w_dice(w, 600))
			most = 1 + w_below(w, most);
		if (d->n_local >= SEGMENTS - 2 || d->n_ranges + 1 >= d->max_pieces)
			most = (uint32_t)bytes;
		if (w_dice(w, 50) && d->n_local < SEGMENTS - 3)
			d->local[d->n_local++] = (struct xp_segment){ .address = sim_next(&w->rng),
								      .key = 77 };
		if (!add_local(w, d, most))
			return false;
		bytes -= local_bytes(d) - before;
	}
	if (!d->n_local)
		d->local[d->n_local++] = (struct xp_segment){ 0 };
	return true;
}

/* ---- remote sides */

static bool overlaps(const struct w_request *q, const struct w_grant *g, uint64_t address,
		     uint32_t length)
{
	const struct xp_segment *remote = q->segments + q->n_local;

	for (uint32_t i = 0; i < q->n_targets; i++)
		if (q->targets[i] == g && remote[i].address < address + length &&
		    address < remote[i].address + remote[i].length)
			return true;
	return false;
}

/* Is another WRITE on its way to these bytes? Which of the two would win, nobody knows. */
static bool contended(struct draft *d, const struct w_grant *g, uint64_t address, uint32_t length)
{
	struct w_request *q;

	for (uint32_t i = 0; i < d->n_remote; i++)
		if (d->targets[i] == g && d->remote[i].address < address + length &&
		    address < d->remote[i].address + d->remote[i].length)
			return true;
	xc_list_for_each(q, &d->session->requests, link)
		if (q->r.opcode == XP_OP_WRITE && overlaps(q, g, address, length))
			return true;
	return false;
}

static struct w_grant *some_grant(struct world *w, struct draft *d, bool write, bool right)
{
	struct w_grant *g, *chosen = NULL;
	uint32_t n = 0;

	xc_list_for_each(g, &w->grants, link) {
		if (right && (g->ep != d->peer || g->write != write || w_grant_uncertain(w, g)))
			continue;
		if (!g->rkey)
			continue;
		if (!w_below(w, ++n))
			chosen = g;
	}
	return chosen;
}

static void add_remote(struct draft *d, struct w_grant *g, uint64_t address, uint32_t length,
		       uint32_t rkey)
{
	d->targets[d->n_remote] = g;
	d->remote[d->n_remote++] =
		(struct xp_segment){.address = address, .length = length, .key = rkey};
	d->remote_bytes += length;
}

static bool add_right_remote(struct world *w, struct draft *d, bool write)
{
	struct w_grant *g = some_grant(w, d, write, true);
	uint32_t length, at;

	if (!g)
		return false;
	length = 1 + w_below(w, g->length);
	at = w_below(w, g->length - length + 1);
	if (w_dice(w, 30))
		length = 0;
	if (write && contended(d, g, g->address + at, length))
		return false;
	add_remote(d, g, g->address + at, length, g->rkey);
	return true;
}

/* A token that is another's, expired, of the other direction, too short, or made up. */
static void add_wrong_remote(struct world *w, struct draft *d, bool write)
{
	struct w_grant *g = some_grant(w, d, write, false);
	uint64_t address = sim_next(&w->rng) >> 20, offset;
	uint32_t length = 1 + w_below(w, 64), rkey = (uint32_t)sim_next(&w->rng);

	if (g) {
		rkey = g->rkey;
		address = g->address;
		length = g->length;
		switch (w_below(w, 5)) {
		case 0:
			length++;
			break;
		case 1:
			address--;
			break;
		case 2:
			rkey ^= 1u << w_below(w, 32);
			break;
		case 3:
			address += length;
			break;
		default:
			break;
		}
	}
	offset = g ? address - g->address : 0;
	/* It may be right after all. */
	if (g && g->ep == d->peer && g->write == write && rkey == g->rkey && g->life != W_GONE &&
	    address >= g->address && offset + length <= g->length) {
		if (write && contended(d, g, address, length))
			return;
		add_remote(d, g, address, length, rkey);
		return;
	}
	/* Its first work requests may yet be right, and overwrite what others wrote. */
	if (g && write && contended(d, g, g->address, g->length))
		return;
	add_remote(d, NULL, address, length, rkey);
	/* Some devices serve a READ whatever the right: what they show was the peer's own. */
	d->q->must_fail = write || !g || !g->snapshot || g->ep != d->peer;
}

static bool draft_rdma(struct world *w, struct draft *d, bool write)
{
	uint32_t n = 1 + w_below(w, w_dice(w, 100) ? 12 : 3);

	while (n--)
		if (!add_right_remote(w, d, write))
			break;
	if (w_dice(w, 12))
		add_wrong_remote(w, d, write);
	return d->n_remote && add_locals(w, d, d->remote_bytes);
}

/* ---- messages */

static uint32_t unfinished_recvs(struct w_ep *ep)
{
	struct w_request *q;
	uint32_t n = 0;

	xc_list_for_each(q, &ep->session->requests, link)
		n += q->ep == ep && q->r.opcode == XP_OP_RECV && !q->refusable;
	return n;
}

static uint32_t unread_messages(struct w_ep *ep)
{
	struct w_message *m;
	uint32_t n = 0;

	xc_list_for_each(m, &ep->messages, link)
		n += !m->failed;
	return n;
}

/* A careful program sends only what the other side has posted a RECV for. */
static bool peer_is_ready(struct world *w, struct draft *d)
{
	if (w_dice(w, 15))
		return true;
	return d->peer && unfinished_recvs(d->peer) > unread_messages(d->ep);
}

static struct w_request *unfinished(const struct w_session *s, uint64_t wr_id)
{
	struct w_request *q;

	xc_list_for_each(q, (struct xc_list *)(uintptr_t)&s->requests, link)
		if (q->r.wr_id == wr_id)
			return q;
	return NULL;
}

/* A READ under way, short enough to be sent on to any RECV. Mostly of so many pieces that the SEND
 * goes through a slab. */
static struct w_request *some_read(struct world *w, struct draft *d)
{
	struct w_request *q, *chosen = NULL;
	uint32_t n = 0, least = w_dice(w, 700) ? d->ep->caps.max_sge + 1 : 0;

	xc_list_for_each(q, &d->session->requests, link)
		if (q->ep == d->ep && q->r.opcode == XP_OP_READ && q->bytes && q->bytes <= 200 &&
		    q->bytes <= d->ep->caps.max_message_bytes && !q->must_fail && !q->refusable &&
		    !q->cancelled && q->n_local >= least && !w_below(w, ++n))
			chosen = q;
	return chosen;
}

/* What a READ will have brought, sent on before it has: that is what a fence is for. */
static bool draft_forward(struct world *w, struct draft *d)
{
	struct w_request *read = some_read(w, d);

	if (!read || w_links_count(d->ep))
		return false;
	d->n_local = read->n_local;
	memcpy(d->local, read->segments, read->n_local * sizeof(*d->local));
	for (uint32_t i = 0; i < read->n_ranges - read->has_list; i++) {
		w_share(&read->ranges[i]);
		d->ranges[d->n_ranges++] = read->ranges[i];
	}
	d->q->source = read->r.wr_id;
	d->q->r.flags |= XP_F_FENCE;
	w->forwarded++;
	return true;
}

static bool draft_send(struct world *w, struct draft *d)
{
	uint32_t bytes = w_dice(w, 50) ? 0 : 8 + w_below(w, 200);

	if (!peer_is_ready(w, d))
		return false;
	if (w_dice(w, 600) && draft_forward(w, d))
		return true;
	if (w_dice(w, 5))
		bytes = 2000;
	if (w->bulk && w_dice(w, 300))
		bytes = w_below(w, w_dice(w, 100) ? 1500000 : 300000);
	/* Mostly long enough for the tokens that go into it. */
	if (bytes < w_links_need(d->ep) && w_dice(w, 800))
		bytes = (uint32_t)w_links_need(d->ep) + w_below(w, 40);
	if (!w_dice(w, 30)) {
		if (w_dice(w, 700))
			d->max_pieces = d->ep->caps.max_sge;
		if (bytes > d->ep->caps.max_message_bytes)
			bytes = (uint32_t)d->ep->caps.max_message_bytes;
	}
	if (!add_locals(w, d, bytes))
		return false;
	if (w_dice(w, 150)) {
		d->q->r.flags |= XP_F_IMMEDIATE;
		d->q->r.key = (uint32_t)++w->last_id;
	} else if (w_dice(w, d->ep->caps.remote_invalidate ? 150 : 5)) {
		struct w_grant *g = some_grant(w, d, w_dice(w, 500), true);

		if (!g)
			return true;
		g->maybe_dead = true;
		g->refs++;
		d->q->grant = g;
		d->q->r.flags |= XP_F_INVALIDATE;
		d->q->r.key = g->rkey;
	}
	return true;
}

static bool draft_recv(struct world *w, struct draft *d)
{
	uint32_t bytes = 220 + w_below(w, w_dice(w, 50) ? 6000 : 300);

	if (d->ep->stage_bytes && w_dice(w, 300))
		bytes = 220 + w_below(w, 2000);

	if (w->bulk && w_dice(w, 300))
		bytes = w_below(w, w_dice(w, 100) ? 1500000 : 300000);
	if (!w_dice(w, 30)) {
		if (w_dice(w, 700))
			d->max_pieces = d->ep->caps.max_recv_sge;
		if (bytes > d->ep->caps.max_message_bytes)
			bytes = (uint32_t)d->ep->caps.max_message_bytes;
	}
	return add_locals(w, d, bytes);
}

/* ---- grants */

static uint32_t most_pieces(const struct w_ep *ep)
{
	return fabric_snapshots(&ep->caps) ? FABRIC_RANGES_MAX : ep->caps.max_ranges;
}

/* Mostly one; where several can be behind a token, several. */
static uint32_t grant_pieces(struct world *w, const struct draft *d)
{
	uint32_t most = most_pieces(d->ep);

	if (w_dice(w, 10))
		return 1 + w_below(w, 20); /* too many, perhaps */
	if (most < 2 || w_dice(w, 500))
		return 1;
	most = most < SEGMENTS / 3 ? most : SEGMENTS / 3;
	return w_dice(w, 800) ? 1 + w_below(w, most < 5 ? most : 5) : most;
}

static bool draft_grant(struct world *w, struct draft *d)
{
	bool write = w_dice(w, 500);
	uint32_t most = w_dice(w, 200) ? 8000 : 400, n = grant_pieces(w, d);

	if (w->bulk && w_dice(w, 300))
		most = 1500000;
	/* What goes in one piece stays within what a turn may copy beyond its budget. */
	if (n > 1)
		most = most / n + 1;
	for (; n; n--) {
		if (w_dice(w, 30))
			d->local[d->n_local++] = (struct xp_segment){ .key = 77 };
		if (!add_local(w, d, 1 + w_below(w, most)))
			break;
	}
	if (!d->n_ranges)
		return false;
	if (d->n_ranges > 1 && d->n_ranges > most_pieces(d->ep))
		d->q->must_fail = true;
	d->q->r.flags |= write ? XP_F_GRANT_WRITE : XP_F_GRANT_READ;
	if (w_dice(w, 150) && w_links_count(d->ep) < W_LINKS_MAX) {
		d->q->r.flags |= XP_F_LINK;
		if (!w_link_draft(w, d->ep, d->remote, &d->n_remote))
			d->q->must_fail = d->q->misshapen = true;
	}
	if (w_dice(w, 200))
		d->q->r.argument = 1 + w_below(w, 3000);
	return true;
}

/* Of a grant that is being revoked, or by way of another endpoint: refused, whoever is first. */
static bool draft_wrong_revoke(struct world *w, struct draft *d)
{
	struct w_grant *g, *chosen = NULL;
	uint32_t n = 0;

	xc_list_for_each(g, &w->grants, link)
		if (g->session == d->session && g->number && g->life != W_GONE &&
		    (g->ep != d->ep || g->life == W_GOING) && !w_below(w, ++n))
			chosen = g;
	if (!chosen)
		return false;
	d->q->r.key = chosen->number;
	d->q->refusable = d->q->again = chosen->twice = true;
	d->q->must_fail = chosen->ep != d->ep;
	chosen->refs++;
	d->q->grant = chosen;
	return true;
}

static bool draft_revoke(struct world *w, struct draft *d)
{
	struct w_grant *g, *chosen = NULL;
	uint32_t n = 0;

	if (w_dice(w, 100))
		return draft_wrong_revoke(w, d);

	xc_list_for_each(g, &w->grants, link)
		if (g->session == d->session && g->life == W_LIVE && g->number && !w_below(w, ++n))
			chosen = g;
	if (!chosen || w_dice(w, 20)) {
		d->q->r.key = (uint32_t)sim_next(&w->rng);
		d->q->must_fail = true;
		return w_dice(w, 100);
	}
	chosen->life = W_GOING;
	chosen->refs++;
	d->q->grant = chosen;
	d->q->r.key = chosen->number;
	d->q->r.endpoint = chosen->ep->number;
	d->ep = chosen->ep;
	return true;
}

static bool draft_cancel(struct world *w, struct draft *d)
{
	struct w_request *q, *chosen = NULL;
	uint32_t n = 0;

	xc_list_for_each(q, &d->session->requests, link)
		if (!w_below(w, ++n))
			chosen = q;
	d->q->r.argument = chosen ? chosen->r.cookie : 1234567;
	d->q->target_cookie = d->q->r.argument;
	if (chosen) {
		/* A cookie may have been given twice. */
		xc_list_for_each(q, &d->session->requests, link)
			q->cancelled |= q->r.cookie == chosen->r.cookie;
		d->q->r.endpoint = chosen->r.endpoint;
	}
	return chosen || w_dice(w, 50);
}

/* ---- wrong shapes */

static void mutate(struct world *w, struct draft *d)
{
	struct xp_request *r = &d->q->r;
	struct w_request *other;
	uint32_t i = d->n_local ? w_below(w, d->n_local) : 0;

	d->q->refusable = d->q->must_fail = true;
	switch (w_below(w, 18)) {
	case 0:
		r->opcode = w_dice(w, 500) ? 0 : (uint8_t)(XP_OP_MAX + 1 + w_below(w, 200));
		break;
	case 1:
		r->reserved0[w_below(w, 3)] = 1;
		break;
	case 2:
		r->reserved1 = 7;
		break;
	case 3:
		r->cookie = 0;
		break;
	case 4:
		other = xc_list_first(&d->session->requests, struct w_request, link);
		if (other)
			r->cookie = other->r.cookie;
		d->q->must_fail = d->q->refusable = false;
		d->q->refusable = true;
		break;
	case 5:
		r->flags |= 0x8000u << w_below(w, 8);
		break;
	case 6:
		r->endpoint = 0xfff00000u | w_below(w, 1000);
		d->q->must_fail = r->opcode != XP_OP_CANCEL;
		break;
	case 7:
		if (d->n_local && d->local[i].length)
			d->local[i].key ^= 0x800;
		else
			r->reserved1 = 1;
		break;
	case 8:
		if (d->n_local && d->local[i].length)
			d->local[i].address = sim_next(&w->rng) | UINT64_C(1) << 41;
		else
			r->reserved1 = 1;
		break;
	case 9:
		if (d->n_local && d->local[i].length)
			d->local[i].address = UINT64_MAX - w_below(w, 4);
		else
			r->reserved1 = 1;
		break;
	case 10:
		if (r->opcode != XP_OP_READ && r->opcode != XP_OP_WRITE)
			d->remote[d->n_remote++] = (struct xp_segment){ .length = 1 };
		else
			d->remote[0].length++;
		break;
	case 13:
		if (r->flags & XP_F_LINK)
			r->reserved1 = 9;
		r->flags |= XP_F_LINK; /* of no GRANT, or of one without patches */
		break;
	case 14:
		if (r->opcode != XP_OP_READ && r->opcode != XP_OP_WRITE)
			r->reserved1 = 2;
		else
			d->remote[0] = (struct xp_segment){ .address = UINT64_MAX, .length = 2 };
		break;
	case 15:
		r->reserved1 = 3;
		break;
	case 16:
		if (r->opcode == XP_OP_GRANT && w_dice(w, 500))
			r->flags |= XP_F_GRANT_READ | XP_F_GRANT_WRITE;
		else if (r->opcode == XP_OP_GRANT)
			for (i = 0; i < d->n_local; i++)
				d->local[i].length = 0;
		else
			r->reserved0[0] = 4;
		break;
	case 11:
		r->list_buffer = 1;
		r->local_count = 5000 + w_below(w, 100000);
		break;
	case 12:
		r->list_buffer = d->n_ranges ? d->ranges[0].buffer->number : 99;
		r->list_offset = w_dice(w, 500) ? 4 : UINT64_MAX - 7;
		break;
	default:
		r->flags |=
			r->opcode == XP_OP_READ ? XP_F_IMMEDIATE : XP_F_INVALIDATE | XP_F_IMMEDIATE;
		break;
	}
}

/* The lists go into a buffer, and the request says where. */
static void by_reference(struct world *w, struct draft *d)
{
	struct w_buffer *b = some_buffer(w, d->session);
	uint32_t n = d->n_local + d->n_remote, length = n * (uint32_t)sizeof(struct xp_segment);
	uint64_t offset;

	if (!b || !n || b->size < length + 8)
		return;
	offset = w_below(w, (uint32_t)(b->size - length)) / 8 * 8;
	if (!w_own(b, offset, length))
		return;
	add_range(d, b, offset, length);
	memcpy(b->bytes + offset, d->local, d->n_local * sizeof(struct xp_segment));
	memcpy(b->bytes + offset + d->n_local * sizeof(struct xp_segment), d->remote,
	       d->n_remote * sizeof(struct xp_segment));
	d->q->has_list = true;
	d->q->r.list_buffer = b->number;
	d->q->r.list_offset = offset;
}

/* ---- finishing it */

static void gather(struct draft *d, uint8_t *to)
{
	for (uint32_t i = 0; i < d->n_ranges; i++) {
		memcpy(to, d->ranges[i].buffer->bytes + d->ranges[i].offset, d->ranges[i].length);
		to += d->ranges[i].length;
	}
}

static void gather_remote(struct draft *d, uint8_t *to)
{
	for (uint32_t i = 0; i < d->n_remote; i++) {
		struct w_grant *g = d->targets[i];

		if (g)
			w_grant_gather(g, d->remote[i].address - g->address,
				       d->remote[i].length, to);
		to += d->remote[i].length;
	}
}

static void stamp(struct world *w, struct draft *d)
{
	uint64_t id = ++w->last_id;

	/* In the first 8 bytes, wherever they lie. */
	for (uint32_t i = 0, n = 0; i < d->n_ranges && n < sizeof(id); i++)
		for (uint32_t k = 0; k < d->ranges[i].length && n < sizeof(id); k++)
			d->ranges[i].buffer->bytes[d->ranges[i].offset + k] = ((uint8_t *)&id)[n++];
}

static struct w_message *add_message(struct draft *d)
{
	struct w_request *q = d->q;
	struct w_message *m = calloc(1, sizeof(*m));

	m->bytes = q->bytes;
	m->data = malloc(q->bytes + 1);
	memcpy(m->data, q->data, q->bytes);
	m->immediate = q->r.flags & XP_F_IMMEDIATE;
	m->imm = q->r.key;
	m->is_write = q->r.opcode == XP_OP_WRITE;
	m->wr_id = q->r.wr_id;
	m->invalidates = q->grant;
	if (q->grant)
		q->grant->refs++;
	m->source = q->source;
	m->known = m->immediate || (m->bytes >= 8 && !m->source);
	xc_list_append(&d->ep->messages, &m->link);
	return m;
}

static void keep(struct draft *d)
{
	struct w_request *q = d->q;

	q->n_ranges = d->n_ranges;
	q->ranges = malloc((d->n_ranges + 1) * sizeof(*q->ranges));
	memcpy(q->ranges, d->ranges, d->n_ranges * sizeof(*q->ranges));
	q->segments = malloc((d->n_local + d->n_remote + 1) * sizeof(*q->segments));
	memcpy(q->segments, d->local, d->n_local * sizeof(*q->segments));
	memcpy(q->segments + d->n_local, d->remote, d->n_remote * sizeof(*q->segments));
	q->n_local = d->n_local;
	q->n_targets = q->r.opcode == XP_OP_GRANT ? 0 : d->n_remote; /* else patches */
	q->targets = malloc((d->n_remote + 1) * sizeof(struct w_grant *));
	for (uint32_t i = 0; i < d->n_remote; i++) {
		q->targets[i] = d->targets[i];
		if (q->targets[i])
			q->targets[i]->refs++;
	}
}

/* What must be seen when it ends well. */
static void foresee(struct world *w, struct draft *d)
{
	struct w_request *q = d->q;

	q->bytes = local_bytes(d);
	q->data = malloc(q->bytes + 1);
	switch (q->r.opcode) {
	case XP_OP_READ:
		gather_remote(d, q->data);
		break;
	case XP_OP_SEND:
		if (q->source) {
			memcpy(q->data, unfinished(q->session, q->source)->data, q->bytes);
			break;
		}
		if (q->bytes >= 8)
			stamp(w, d);
		gather(d, q->data);
		break;
	case XP_OP_WRITE:
		gather(d, q->data);
		break;
	default:
		break;
	}
}

static bool draft(struct world *w, struct draft *d, uint8_t opcode)
{
	switch (opcode) {
	case XP_OP_READ:
		return draft_rdma(w, d, false);
	case XP_OP_WRITE:
		if (!draft_rdma(w, d, true))
			return false;
		if (w_dice(w, 150))
			d->q->r.flags |= XP_F_PLACED;
		if (w_dice(w, 80) && peer_is_ready(w, d)) {
			d->q->r.flags |= XP_F_IMMEDIATE;
			d->q->r.key = (uint32_t)++w->last_id;
		}
		return true;
	case XP_OP_SEND:
		return draft_send(w, d);
	case XP_OP_RECV:
		return draft_recv(w, d);
	case XP_OP_GRANT:
		return draft_grant(w, d);
	case XP_OP_REVOKE:
		return draft_revoke(w, d);
	default:
		return draft_cancel(w, d);
	}
}

void w_request_free(struct world *w, struct w_request *q)
{
	(void)w;
	xc_list_remove(&q->link);
	for (uint32_t i = 0; i < q->n_targets; i++)
		if (q->targets[i])
			w_grant_unref(q->targets[i]);
	if (q->grant)
		w_grant_unref(q->grant);
	for (uint32_t i = 0; i < q->n_ranges; i++)
		w_disown(&q->ranges[i]);
	if (q->link_to)
		w_link_unref(q->link_to);
	w_links_free(&q->links);
	if (q->ep)
		w_ep_unref(q->ep);
	free(q->ranges);
	free(q->segments);
	free(q->targets);
	free(q->data);
	free(q);
}

static struct w_ep *some_ep(struct world *w, struct w_session *s, bool *ret_up)
{
	bool up = !w_dice(w, 40);
	struct w_ep *ep, *chosen = NULL;
	uint32_t n = 0;

	xc_list_for_each(ep, &s->eps, link) if (ep->known && !ep->free_replied &&
						(!up || (ep->up && !ep->down)) && !w_below(w, ++n))
		chosen = ep;
	*ret_up = chosen && chosen->up && !chosen->down;
	return chosen;
}

static uint8_t some_opcode(struct world *w)
{
	static const uint8_t often[] = {
		XP_OP_READ, XP_OP_READ, XP_OP_READ, XP_OP_WRITE, XP_OP_WRITE, XP_OP_WRITE,
		XP_OP_SEND, XP_OP_SEND, XP_OP_SEND, XP_OP_RECV, XP_OP_RECV, XP_OP_GRANT,
	};

	if (w_dice(w, 50))
		return XP_OP_REVOKE;
	if (w_dice(w, 40))
		return XP_OP_CANCEL;
	return often[w_below(w, sizeof(often))];
}

static bool send_side(uint8_t opcode)
{
	return opcode == XP_OP_READ || opcode == XP_OP_WRITE || opcode == XP_OP_SEND ||
	       opcode == XP_OP_GRANT;
}

static void go(struct world *w, struct draft *d)
{
	struct w_request *q = d->q;
	struct w_message *m = NULL;
	bool lost;
	struct xp_segment segments[2 * SEGMENTS];

	if (w_dice(w, 100) && send_side(q->r.opcode))
		q->r.flags |= XP_F_FENCE;
	if (w_dice(w, 60) && send_side(q->r.opcode) && q->r.opcode != XP_OP_GRANT)
		q->r.flags |= XP_F_QUIET;
	if (w_dice(w, 100) && q->r.opcode == XP_OP_SEND)
		q->r.flags |= XP_F_SOLICITED;
	if (w_dice(w, 60) && q->r.opcode <= XP_OP_RECV)
		q->r.flags |= XP_F_EXPLAIN;
	q->refusable |= d->ep->end_asked || d->ep->down || !d->ep->up;
	foresee(w, d);
	if (w_dice(w, 40)) {
		mutate(w, d);
		q->misshapen = q->must_fail;
	} else if (w_dice(w, 120)) {
		by_reference(w, d);
	}
	if (d->n_local > XP_SEGMENTS_INLINE && !q->r.list_buffer)
		q->refusable = true;
	if (q->r.local_count == 0)
		q->r.local_count = d->n_local;
	q->r.remote_count = d->n_remote;
	keep(d);
	if (q->r.opcode == XP_OP_GRANT && d->n_ranges && !q->must_fail) {
		/* From now on the grant owns the bytes, and the request owns the grant. */
		q->grant = w_grant_new(w, d->ep, q->ranges, q->n_ranges - q->has_list,
				       q->r.flags & XP_F_GRANT_WRITE);
		q->grant->refs++;
		if (q->r.argument)
			q->grant->earliest_ns = w->engine.now_ns + q->r.argument * 1000000;
		for (uint32_t i = 0; i < q->n_ranges - q->has_list; i++)
			q->ranges[i].length = 0;
	}
	if (d->ep && !q->must_fail &&
	    (q->r.opcode == XP_OP_SEND ||
	     (q->r.opcode == XP_OP_WRITE && q->r.flags & XP_F_IMMEDIATE)))
		m = add_message(d);
	q->ep = d->ep;
	q->ep->refs++;
	if (send_side(q->r.opcode))
		q->order = ++q->ep->send_order;
	else if (q->r.opcode == XP_OP_RECV)
		q->order = ++q->ep->recv_order;
	xc_list_append(&d->session->requests, &q->link);
	memcpy(segments, q->segments, (d->n_local + d->n_remote) * sizeof(*segments));
	w->submitted++;
	sim_note("submit op %u flags %#x ep %llu wr %llu: %llu bytes, %u + %u segments%s%s",
		 q->r.opcode, q->r.flags, (unsigned long long)q->ep->tag,
		 (unsigned long long)q->r.wr_id, (unsigned long long)q->bytes, d->n_local,
		 d->n_remote, q->must_fail ? ", must fail" : "", q->refusable ? ", refusable" : "");
	w_links_sync(d->ep);
	lost = w_links_lost(d->ep);
	d->session->explained += q->r.flags & XP_F_EXPLAIN ? 1 : 0;
	xd_session_submit(d->session->s, &q->r, q->r.list_buffer ? NULL : segments);
	if (q->r.opcode == XP_OP_GRANT && q->r.flags & XP_F_LINK)
		w_link_granted(q);
	if (q->r.opcode == XP_OP_SEND) {
		q->lost_link = lost && !w_links_lost(d->ep);
		w_link_sent(q, m);
	}
	/* What came inline is the caller's again; and a list in its memory has been copied. */
	memset(segments, 0xee, sizeof(segments));
	if (q->has_list)
		memset(q->ranges[q->n_ranges - 1].buffer->bytes + q->r.list_offset, 0xee,
		       q->ranges[q->n_ranges - 1].length);
}

/* False: this one found nothing to do. */
static bool try_submit(struct world *w, struct w_session *s)
{
	struct draft d = { .session = s, .max_pieces = SEGMENTS };
	uint8_t opcode = some_opcode(w);
	bool up;

	d.ep = some_ep(w, s, &up);
	if (!d.ep)
		return false;
	if (w_links_count(d.ep) && w_dice(w, 300))
		opcode = XP_OP_SEND;
	d.peer = w_ep_by_tag(w, d.ep->peer_tag);
	d.q = calloc(1, sizeof(*d.q));
	d.q->session = s;
	d.q->step = sim.step;
	d.q->refusable = !up;
	d.q->r.opcode = opcode;
	d.q->r.cookie = ++s->cookie;
	d.q->r.wr_id = ++w->last_id << 8 | opcode;
	d.q->r.endpoint = d.ep->number;
	xc_list_init(&d.q->link);
	xc_list_init(&d.q->links);
	if (draft(w, &d, opcode)) {
		go(w, &d);
		return true;
	}
	for (uint32_t i = 0; i < d.n_ranges; i++)
		w_disown(&d.ranges[i]);
	if (d.q->grant) {
		/* A grant that was to be invalidated or revoked, and is not. */
		if (d.q->grant->life == W_GOING && !d.q->again)
			d.q->grant->life = W_LIVE;
		w_grant_unref(d.q->grant);
	}
	free(d.q);
	return false;
}

void w_submit(struct world *w, struct w_session *s)
{
	for (int i = 0; i < 8 && !try_submit(w, s); i++)
		;
}
