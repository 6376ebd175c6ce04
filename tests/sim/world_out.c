/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What the core says, held against what it was asked. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/core/stage.h"
#include "tests/sim/world.h"

static const int errnos[] = {
	EINVAL,	     EAGAIN,	 ENOMEM,	ENOENT,	  EMSGSIZE,  ENOTCONN,
	EBUSY,	     ECANCELED,	 EEXIST,	EALREADY, ETIMEDOUT, ECONNREFUSED,
	ENETUNREACH, EADDRINUSE, EADDRNOTAVAIL, ENODEV,	  EIO,	     ENOSPC,
};

static bool documented(int status)
{
	switch (-status) {
#define KNOWN(name, number, text)                                                                  \
	case number:                                                                               \
		return true;
		XP_ERRORS(KNOWN)
#undef KNOWN
	default:
		break;
	}
	for (size_t i = 0; i < XC_ARRAY_SIZE(errnos); i++)
		if (status == -errnos[i])
			return true;
	return status == 0;
}

static void check_status(int status, const char *text, const char *what)
{
	sim_check(documented(status), "I7", "%s has the undocumented status %d", what, status);
	sim_check(!status == !text[0], "I7", "%s has status %d and the sentence \"%s\"", what,
		  status, text);
}

/* ---- whether a request may have failed */

static uint32_t pieces(const struct w_request *q)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < q->n_ranges; i++)
		n += q->ranges[i].length > 0;
	return n;
}

/* What of a message of too many pieces is sure to find room in a slab. */
static uint64_t staged_bytes(const struct world *w, const struct w_request *q)
{
	const struct fabric_caps *c = &q->ep->caps;

	/* As far as its user may pin memory, or could a moment ago: see change_policy(). */
	if (q->r.opcode == XP_OP_SEND)
		return w->policy.user.value[XD_LIMIT_pinned] / 2;
	if (q->ep->stage_bytes)
		return q->ep->stage_bytes < XD_STAGE_RECV_BYTES ? q->ep->stage_bytes
								: XD_STAGE_RECV_BYTES;
	return c->pins || fabric_snapshots(c) ? XD_STAGE_RECV_BYTES : 0;
}

static bool too_much(const struct world *w, const struct w_request *q)
{
	const struct fabric_caps *c = &q->ep->caps;
	uint32_t most = q->r.opcode == XP_OP_RECV ? c->max_recv_sge : c->max_sge;

	if (q->r.opcode != XP_OP_SEND && q->r.opcode != XP_OP_RECV)
		return false;
	return q->bytes > c->max_message_bytes ||
	       ((pieces(q) > most || fabric_snapshots(c)) && q->bytes > staged_bytes(w, q));
}

static bool wants_too_much(const struct w_request *q)
{
	const struct fabric_caps *c = &q->ep->caps;

	return (q->r.flags & XP_F_IMMEDIATE && !c->immediate) ||
	       (q->r.flags & XP_F_INVALIDATE && !c->remote_invalidate);
}

static bool aims_at_the_dead(struct world *w, const struct w_request *q)
{
	for (uint32_t i = 0; i < q->n_targets; i++)
		if (!q->targets[i] || w_grant_uncertain(w, q->targets[i]))
			return true;
	return false;
}

static const char *reason_to_fail(struct world *w, const struct w_request *q, int status)
{
	if (w->rich && q->r.opcode <= XP_OP_SEND && !q->refusable &&
	    (status == -EAGAIN || status == -ENOMEM))
		return w_excused(w, q->ep);
	if (status == -EAGAIN || status == -ENOMEM || status == -XP_E_QUOTA)
		return "exhaustion";
	if (q->refusable || q->must_fail)
		return "its shape";
	if (status == -XP_E_QUARANTINE)
		return q->r.opcode == XP_OP_GRANT && fabric_snapshots(&q->ep->caps) ? "no slab"
										    : NULL;
	if (status == -ECANCELED)
		return q->cancelled ? "cancelled" : NULL;
	if (status == -XP_E_SHUTDOWN && w->draining)
		return "draining";
	if (status == -XP_E_UNSUPPORTED)
		return wants_too_much(q) ? "the fabric cannot" : NULL;
	if (status == -EMSGSIZE)
		return too_much(w, q) ? "too much" : NULL;
	if (q->r.opcode == XP_OP_REVOKE && status == -XP_E_GRANT_ENDED &&
	    (q->grant->maybe_dead || q->grant->earliest_ns))
		return "it had ended";
	if (q->r.opcode == XP_OP_REVOKE && status == -EALREADY && q->grant && q->grant->twice)
		return "it is being revoked";
	if (status == -EINVAL && q->left_links)
		return q->outside ? "a token lies outside of it" : NULL;
	if (status == -XP_E_GRANT_ENDED && w_links_failed(q))
		return "its GRANT failed";
	if (q->r.opcode == XP_OP_CANCEL && (status == -EALREADY || status == -EINVAL))
		return "cancelled twice, or a REVOKE";
	if (status == -XP_E_REMOTE_ACCESS && aims_at_the_dead(w, q))
		return "it aimed at what is gone";
	return w_excused(w, q->ep);
}

/* ---- data */

static void check_read(struct world *w, const struct w_request *q)
{
	uint64_t at = 0;

	/* A READ that its device goes on with when the copy is used for another grant. */
	if (fabric_snapshots(&q->ep->caps) && aims_at_the_dead(w, q))
		return;

	for (uint32_t i = 0; i < q->n_ranges && at < q->bytes; i++) {
		const struct w_range *r = &q->ranges[i];

		sim_check(memcmp(r->buffer->bytes + r->offset, q->data + at, r->length) == 0,
			  "data", "a READ of %llu bytes ended well with wrong bytes in segment %u",
			  (unsigned long long)q->bytes, i);
		at += r->length;
	}
	w->verified_bytes += q->bytes;
}

/* Where the peer answers nothing a WRITE ends well that it refuses. */
static bool unheard(const struct w_request *q)
{
	return q->r.opcode == XP_OP_WRITE && !q->ep->caps.acknowledged;
}

static void check_write(struct world *w, const struct w_request *q)
{
	const struct xp_segment *remote = q->segments + q->n_local;
	uint8_t *is;
	uint64_t at = 0;

	if (unheard(q) && (q->must_fail || aims_at_the_dead(w, q) || w_excused(w, q->ep)))
		return;

	is = malloc(q->bytes + 1);
	for (uint32_t i = 0; i < q->n_targets; i++) {
		const struct w_grant *g = q->targets[i];

		if (g) {
			w_grant_gather(g, remote[i].address - g->address, remote[i].length, is);
			sim_check(memcmp(is, q->data + at, remote[i].length) == 0, "data",
				  "a WRITE of %llu bytes ended well with wrong bytes in segment %u",
				  (unsigned long long)q->bytes, i);
		}
		at += remote[i].length;
	}
	free(is);
	w->verified_bytes += q->bytes;
}

/* ---- messages */

/* All but what a token is going to be seen in. */
static bool holds_linked(const struct w_message *m, const uint8_t *bytes, uint64_t at, uint64_t n)
{
	for (uint64_t i = 0; i < n; i++)
		if (bytes[i] != m->data[at + i] && !w_link_hides(m, at + i))
			return false;
	return true;
}

static bool holds(const struct w_request *q, const struct w_message *m)
{
	uint64_t at = 0;

	for (uint32_t i = 0; i < q->n_ranges && at < m->bytes; i++) {
		const struct w_range *r = &q->ranges[i];
		uint64_t n = m->bytes - at < r->length ? m->bytes - at : r->length;

		if (m->n_links ? !holds_linked(m, r->buffer->bytes + r->offset, at, n)
			       : memcmp(r->buffer->bytes + r->offset, m->data + at, n) != 0)
			return false;
		at += n;
	}
	return at >= m->bytes;
}

/* Where it was sent on from a READ, it may be what that has not brought: see check_forwarded(). */
static bool is_it(struct world *w, const struct w_request *q, const struct xp_completion *c,
		  const struct w_message *m, bool anything)
{
	bool immediate = c->flags & XP_CF_IMMEDIATE;

	if (m->immediate != immediate || (immediate && m->imm != c->immediate))
		return false;
	/* One that named a grant which has ended since says nothing of it. */
	if (c->flags & XP_CF_INVALIDATED && !m->invalidates)
		return false;
	if (!(c->flags & XP_CF_INVALIDATED) && m->invalidates && m->invalidates->life == W_LIVE &&
	    !(m->invalidates->earliest_ns && w->engine.now_ns >= m->invalidates->earliest_ns))
		return false;
	/* Of a WRITE in pieces, the last one's length is told. */
	if (m->is_write)
		return c->byte_len <= m->bytes;
	return m->bytes == c->byte_len &&
	       ((anything && (m->source || m->unclear)) || holds(q, m));
}

/* The bytes of a WRITE are where it wrote them: the RECV that tells of it has its own as before. */
static void check_untouched(const struct w_request *q)
{
	for (uint32_t i = 0; i < q->n_ranges - q->has_list; i++) {
		const struct w_range *r = &q->ranges[i];

		sim_check(memcmp(r->buffer->bytes + r->offset, r->buffer->shadow + r->offset,
				 r->length) == 0,
			  "data", "a RECV of immediate data alone has changed its memory");
	}
}

static void check_invalidated(struct world *w, const struct xp_completion *c, struct w_grant *g)
{
	if (!(c->flags & XP_CF_INVALIDATED)) {
		sim_check(!c->grant, "I2", "a RECV names a grant and says nothing of it");
		return;
	}
	sim_check(g && g->number == c->grant, "I2",
		  "a RECV says that grant %u was invalidated, not %u", c->grant, g ? g->number : 0);
	for (uint32_t i = 0; i < w->n_fabrics; i++)
		sim_check(!fake_fabric_key_live(w->fabrics[i], g->rkey), "I2",
			  "the key of an invalidated grant is alive");
	w_grant_gone(g);
}

/* It was sent behind a READ into the same memory, with a fence. */
static void check_forwarded(struct w_ep *sender, const struct w_message *m, bool right)
{
	struct w_request *q;

	xc_list_for_each(q, &sender->session->requests, link)
		if (m->source && q->r.wr_id == m->source && !right)
			q->fed_wrong = true;
}

/* The READ has ended: what was sent on behind it is known now. */
static void settle_forwarded(struct world *w, struct w_request *q, int status)
{
	/* As in check_read(). */
	bool sure = !status && !(fabric_snapshots(&q->ep->caps) && aims_at_the_dead(w, q));
	struct w_message *m;

	sim_check(!sure || !q->fed_wrong, "order",
		  "a SEND with a fence took what the READ before it had not brought");
	xc_list_for_each(m, &q->ep->messages, link) {
		if (m->source != q->r.wr_id)
			continue;
		m->source = 0;
		m->unclear = !sure;
	}
}

/*
 * The first message on its way that this can be; what it overtook can have been nothing but
 * refused.
 */
static void check_recv(struct world *w, struct w_request *q, const struct xp_completion *c)
{
	struct w_ep *peer = w_ep_by_tag(w, q->ep->peer_tag);
	struct w_message *m, *found = NULL;

	sim_check(peer, "data", "a RECV ended well on an endpoint without a peer");
	sim_check(c->byte_len <= q->bytes || c->flags & XP_CF_IMMEDIATE, "data",
		  "a RECV of %llu bytes took a message of %llu", (unsigned long long)q->bytes,
		  (unsigned long long)c->byte_len);
	for (int anything = 0; anything < 2 && !found; anything++)
		xc_list_for_each(m, &peer->messages, link)
			if (!found && is_it(w, q, c, m, anything))
				found = m;
	sim_check(found, "data", "ep %llu received %llu bytes that its peer never sent",
		  (unsigned long long)q->ep->tag, (unsigned long long)c->byte_len);
	xc_list_for_each(m, &peer->messages, link) {
		if (m == found)
			break;
		m->skipped = true;
	}
	check_invalidated(w, c, found->invalidates);
	w_check_synced(w, q->ep);
	if (found->is_write)
		check_untouched(q);
	w_link_arrived(w, found, q);
	check_forwarded(peer, found, holds(q, found));
	w->verified_bytes += found->bytes;
	w_message_free(found);
}

/* A SEND has ended: its message is received, will be, or never is. */
static void settle_message(struct w_request *q, int status)
{
	struct w_message *m;

	xc_list_for_each(m, &q->ep->messages, link) {
		if (m->wr_id != q->r.wr_id)
			continue;
		sim_check(status || !m->skipped || !m->known, "order",
			  "a SEND ended well though a later one was received before it");
		m->failed = status;
		return;
	}
}

/* ---- keys */

static void key_is_dead(struct world *w, uint32_t rkey, const char *when)
{
	for (uint32_t i = 0; i < w->n_fabrics; i++)
		sim_check(!rkey || !fake_fabric_key_live(w->fabrics[i], rkey), "I2",
			  "a key is alive after %s", when);
}

static void grant_made(struct world *w, struct w_request *q, const struct xp_completion *c)
{
	struct w_grant *g = q->grant;

	sim_check(c->grant && c->rkey && c->byte_len == g->length, "I1",
		  "a token of %llu bytes for a grant of %u", (unsigned long long)c->byte_len,
		  g->length);
	sim_check(!fake_memory_holds(c->address) &&
			  !fake_memory_holds(c->address + c->byte_len - 1),
		  "I6", "a token holds an address of the daemon's");
	g->number = c->grant;
	w->grants_of_many += g->n_ranges > 1;
	g->rkey = c->rkey;
	g->address = c->address;
	if (g->life == W_COMING)
		g->life = W_LIVE;
	if (q->r.argument)
		g->deadline_ns = w->engine.now_ns + q->r.argument * 1000000;
}

static void revoked(struct world *w, struct w_request *q, int status)
{
	struct w_grant *g = q->grant;

	if (!g)
		return;
	if (!status || status == -XP_E_GRANT_ENDED) {
		key_is_dead(w, g->rkey, "its REVOKE");
		if (!status)
			w_check_copied_out(g);
		w_grant_gone(g);
	} else if (g->life == W_GOING && !q->again) {
		g->life = W_LIVE;
		g->maybe_dead |= g->twice || (!q->must_fail && !q->refusable);
	}
}

/* ---- the end of a request */

static void ended_well(struct world *w, struct w_request *q, const struct xp_completion *c)
{
	sim_check(!q->must_fail || (unheard(q) && !q->misshapen), "I1",
		  "a request that cannot succeed did");
	w->done[q->r.opcode]++;
	if (q->order && c) {
		uint64_t *last = q->r.opcode == XP_OP_RECV ? &q->ep->last_recv_order :
							     &q->ep->last_order;

		sim_check(q->order > *last, "order",
			  "a request ended after a later one of its endpoint");
		*last = q->order;
	}
	if (c &&
	    (q->r.opcode == XP_OP_READ || q->r.opcode == XP_OP_WRITE || q->r.opcode == XP_OP_SEND))
		sim_check(c->byte_len == q->bytes, "data", "%llu bytes were asked for, %llu moved",
			  (unsigned long long)q->bytes, (unsigned long long)c->byte_len);
	w_links_check(q);
	if (q->r.flags & XP_F_EXPLAIN && c && q->r.opcode <= XP_OP_RECV)
		q->session->last_explained = q->r.wr_id;
	if (q->r.opcode == XP_OP_READ)
		check_read(w, q);
	else if (q->r.opcode == XP_OP_WRITE)
		check_write(w, q);
	else if (q->r.opcode == XP_OP_RECV)
		check_recv(w, q, c);
	else if (q->r.opcode == XP_OP_GRANT)
		grant_made(w, q, c);
}

void w_request_ended(struct world *w, struct w_request *q, const struct xp_completion *c,
		     const char *text)
{
	int status = c ? c->status : 0;
	const char *why;

	sim_note("wr %llu ends with %d%s", (unsigned long long)q->r.wr_id, status,
		 c ? "" : ", quietly");
	if (status) {
		why = reason_to_fail(w, q, status);
		sim_check(why, "I8", "operation %u on ep %llu failed with %d (%s) for no reason",
			  q->r.opcode, (unsigned long long)q->ep->tag, status, text);
		w->refused_by_quota += status == -XP_E_QUOTA;
	} else {
		sim_check(c == NULL || !(q->r.flags & XP_F_QUIET) || q->refusable, "I7",
			  "a quiet request was told of, and ended well");
		sim_check(!q->after_down || q->r.opcode == XP_OP_CANCEL, "I7",
			  "a request ended well after its endpoint's Disconnected");
		ended_well(w, q, c);
	}
	if (q->r.opcode == XP_OP_SEND || q->r.opcode == XP_OP_WRITE)
		settle_message(q, status);
	if (q->r.opcode == XP_OP_READ)
		settle_forwarded(w, q, status);
	if (q->r.opcode == XP_OP_REVOKE)
		revoked(w, q, status);
	if (q->r.opcode == XP_OP_GRANT && status && q->grant)
		w_grant_gone(q->grant);
	if (q->link_to)
		w_link_ended(q, c);
	w->ended++;
	w_request_free(w, q);
}

static void out_completion(struct world *w, struct w_session *s, const struct xd_out *o)
{
	const struct xp_completion *c = &o->completion;
	struct w_request *q, *found = NULL;

	xc_list_for_each(q, &s->requests, link)
		if (q->r.wr_id == c->wr_id)
			found = q;
	sim_check(found, "I7", "a completion of no unfinished request (wr %llu, status %d)",
		  (unsigned long long)c->wr_id, c->status);
	check_status(c->status, o->text, "a completion");
	sim_check(c->cookie == found->r.cookie && c->opcode == found->r.opcode &&
			  c->endpoint == found->r.endpoint,
		  "I7", "a completion names another request");
	w_request_ended(w, found, c, o->text);
}

/* ---- replies */

static void reply_add(struct w_session *s, struct w_buffer *b, const struct xd_out *o)
{
	if (!b) {
		sim_check(o->status < 0, "I4", "a buffer of no memory was added");
		return;
	}
	s->refused = o->status;
	if (o->status) {
		w_buffer_gone(b);
		return;
	}
	b->number = o->number;
	b->life = W_LIVE;
}

/* A buffer that goes has no users: what was quiet there has ended well. */
static void quiet_ones_end(struct world *w, struct w_buffer *b)
{
	struct w_request *q;

	xc_list_for_each(q, &b->session->requests, link) {
		bool uses = false;

		for (uint32_t i = 0; i < q->n_ranges; i++)
			uses |= q->ranges[i].buffer == b;
		if (uses && q->r.flags & XP_F_QUIET)
			w_request_ended(w, q, NULL, "");
	}
}

/* Nothing unfinished moves its bytes, and no grant shows them. */
static void check_unused(struct world *w, const struct w_buffer *b)
{
	struct w_request *q;
	struct w_grant *g;

	xc_list_for_each(g, &w->grants, link) {
		if (!w_grant_is_of(g, b) || g->life == W_GONE)
			continue;
		/* That its endpoint has ended may be told later. */
		sim_check(w_grant_uncertain(w, g) || w_excused(w, g->ep), "I3",
			  "a buffer was removed under grant %u", g->number);
		key_is_dead(w, g->rkey, "its buffer was removed");
	}
	xc_list_for_each(q, &b->session->requests, link) {
		/* A list was copied when it was submitted. */
		uint32_t n = q->n_ranges - q->has_list;

		for (uint32_t i = 0; i < n && !q->refusable; i++)
			sim_check(q->ranges[i].buffer != b || !q->ranges[i].length, "I3",
				  "a buffer was removed under request %llu",
				  (unsigned long long)q->r.wr_id);
	}
}

static void reply_remove(struct world *w, struct w_buffer *b, const struct xd_out *o)
{
	if (!b) {
		sim_check(o->status == -ENOENT, "I4", "no buffer was removed, with %d", o->status);
		return;
	}
	if (o->status == 0) {
		quiet_ones_end(w, b);
		check_unused(w, b);
		w_buffer_gone(b);
		return;
	}
	sim_check(o->status == -EBUSY, "I7", "a buffer could not be removed: %d %s", o->status,
		  o->text);
	if (b->life == W_GOING)
		b->life = W_LIVE;
}

static void grants_end(struct world *w, struct w_ep *ep, const char *when)
{
	struct w_grant *g;

	xc_list_for_each(g, &w->grants, link) {
		if (g->ep != ep || g->life == W_GONE)
			continue;
		key_is_dead(w, g->rkey, when);
		if (g->life != W_COMING)
			w_grant_gone(g);
	}
}

static void reply_free(struct world *w, struct w_ep *ep, const struct xd_out *o)
{
	struct w_request *q;

	if (o->status)
		return;
	sim_check(!ep->free_replied, "I7", "an endpoint was freed twice");
	ep->free_replied = true;
	xc_list_for_each(q, &ep->session->requests, link) {
		if (q->ep != ep || q->refusable)
			continue;
		if (q->r.flags & XP_F_QUIET)
			w_request_ended(w, q, NULL, "");
		else
			sim_check(q->r.endpoint != ep->number, "I7",
				  "an endpoint was freed before its request %llu ended",
				  (unsigned long long)q->r.wr_id);
	}
	grants_end(w, ep, "its endpoint was freed");
}

static void out_reply(struct world *w, struct w_session *s, const struct xd_out *o)
{
	struct w_pending *p, *found = NULL;
	struct w_listener *l;
	struct w_ep *ep;

	xc_list_for_each(p, &s->pending, link)
		if (p->serial == o->serial)
			found = p;
	sim_check(found, "I7", "a reply to no question (%llu)", (unsigned long long)o->serial);
	check_status(o->status, o->text, "a reply");
	sim_note("reply %d to call %d: %s", o->status, (int)found->call, o->text);
	l = found->subject;
	ep = found->subject;
	switch (found->call) {
	case W_HELLO:
		s->greeted = true;
		break;
	case W_ADD:
		reply_add(s, found->subject, o);
		break;
	case W_REMOVE:
		reply_remove(w, found->subject, o);
		break;
	case W_LISTEN:
		l->life = o->status ? W_GONE : W_LIVE;
		l->number = o->number;
		l->at = o->address;
		break;
	case W_UNLISTEN:
		sim_check(!l == (o->status == -ENOENT), "I7", "an unlisten ended with %d",
			  o->status);
		if (l)
			l->life = W_GONE;
		break;
	case W_CONNECT_TO:
	case W_ANSWER:
		ep->known = !o->status;
		ep->number = o->number;
		ep->down = o->status;
		break;
	case W_CONNECT:
	case W_ACCEPT:
		if (ep && !o->status)
			ep->started = true;
		sim_check(ep || o->status, "I7",
			  "a connect of an accepting endpoint, or the reverse");
		break;
	case W_FREE:
		if (ep)
			reply_free(w, ep, o);
		break;
	default:
		break;
	}
	xc_list_remove(&found->link);
	free(found);
}

/* ---- events */

static struct w_ep *event_ep(struct w_session *s, const struct xd_out *o, const char *what)
{
	struct w_ep *ep = w_ep_by_number(s, o->number);

	sim_check(ep, "I7", "%s of no endpoint (%u)", what, o->number);
	check_status(o->status, o->text, what);
	sim_note("ep %llu: %s %d %s", (unsigned long long)ep->tag, what, o->status, o->text);
	return ep;
}

static void out_ready(struct w_session *s, const struct xd_out *o)
{
	struct w_ep *ep = event_ep(s, o, "EndpointReady");

	sim_check(ep->life == W_COMING, "I7", "EndpointReady twice");
	ep->life = W_LIVE;
	ep->down = o->status;
	if (!o->status) {
		ep->caps = *o->caps;
		sim_check(o->route[0], "I7", "an endpoint is ready, and nothing says why there");
	}
}

static void out_connected(struct world *w, struct w_session *s, const struct xd_out *o)
{
	struct w_ep *ep = event_ep(s, o, "Connected");
	uint64_t tag;

	sim_check(!ep->up && !ep->down, "I7", "Connected twice, or after the end");
	ep->up = !o->status;
	ep->down = o->status;
	if (o->status)
		return;
	w->connects++;
	if (ep->answers)
		return;
	sim_check(o->private_data_bytes >= sizeof(tag), "data", "the private data was lost");
	memcpy(&tag, o->private_data, sizeof(tag));
	sim_check(tag == ep->peer_tag, "data", "the private data of another arrived");
}

static void out_disconnected(struct world *w, struct w_session *s, const struct xd_out *o)
{
	struct w_ep *ep = event_ep(s, o, "Disconnected");
	struct w_request *q;

	sim_check(ep->up && !ep->down, "I7", "Disconnected of an endpoint that was not connected");
	sim_check(w_excused(w, ep), "I8", "an endpoint was disconnected for no reason (%d %s)",
		  o->status, o->text);
	ep->down = true;
	grants_end(w, ep, "its endpoint's Disconnected");
	xc_list_for_each(q, &s->requests, link)
		if (q->ep == ep && !(q->r.flags & XP_F_QUIET))
			q->after_down = true;
}

static void out_request(struct w_session *s, const struct xd_out *o)
{
	struct w_offer *offer = calloc(1, sizeof(*offer));

	offer->session = s;
	offer->number = o->request;
	sim_check(o->request, "I7", "a connection request of number 0");
	if (o->private_data_bytes >= sizeof(offer->peer_tag))
		memcpy(&offer->peer_tag, o->private_data, sizeof(offer->peer_tag));
	xc_list_append(&s->offers, &offer->link);
	sim_note("request %llu", (unsigned long long)o->request);
}

static void out_goodbye(struct world *w, struct w_session *s, const struct xd_out *o)
{
	check_status(o->status, o->text, "a Goodbye");
	sim_check(o->status, "I7", "a Goodbye of status 0");
	sim_check(xd_session_peek(s->s) == XD_OUT_NONE, "I7", "something follows a Goodbye");
	sim_note("goodbye %d %s", o->status, o->text);
	s->goodbye = true;
	w_session_close(w, s);
}

static void take(struct world *w, struct w_session *s, const struct xd_out *o)
{
	switch (o->kind) {
	case XD_OUT_HELLO:
	case XD_OUT_REPLY:
		out_reply(w, s, o);
		break;
	case XD_OUT_COMPLETION:
		out_completion(w, s, o);
		break;
	case XD_OUT_ENDPOINT_READY:
		out_ready(s, o);
		break;
	case XD_OUT_CONNECT_REQUEST:
		out_request(s, o);
		break;
	case XD_OUT_CONNECTED:
		out_connected(w, s, o);
		break;
	case XD_OUT_DISCONNECTED:
		out_disconnected(w, s, o);
		break;
	case XD_OUT_GOODBYE:
		out_goodbye(w, s, o);
		break;
	default:
		sim_broken("I7", "output of kind %d", (int)o->kind);
	}
}

uint32_t w_pull(struct world *w, struct w_session *s, uint32_t n)
{
	uint32_t got = 0;

	while (got < n && s->s) {
		enum xd_out_kind next = xd_session_peek(s->s);
		struct xd_out o;

		memset(&o, 0xa5, sizeof(o));
		if (!xd_session_pull(s->s, &o)) {
			sim_check(next == XD_OUT_NONE, "I7", "peek and pull disagree");
			s->output = false;
			break;
		}
		sim_check(o.kind == next, "I7", "peek and pull disagree");
		take(w, s, &o);
		got++;
	}
	return got;
}

/* ---- the end of a session */

void w_session_over(struct world *w, struct w_session *s)
{
	struct w_buffer *b;
	struct w_grant *g;
	struct xc_list *l;

	xc_list_for_each(g, &w->grants, link) {
		if (g->session != s)
			continue;
		key_is_dead(w, g->rkey, "its session was gone");
		w_grant_gone(g);
	}
	while (!xc_list_empty(&s->requests))
		w_request_free(w, xc_list_first(&s->requests, struct w_request, link));
	while ((l = xc_list_pop(&s->pending)))
		free(xc_container_of(l, struct w_pending, link));
	while ((l = xc_list_pop(&s->offers)))
		free(xc_container_of(l, struct w_offer, link));
	while ((l = xc_list_pop(&s->listeners)))
		free(xc_container_of(l, struct w_listener, link));
	xc_list_for_each(b, &s->buffers, link)
		w_buffer_gone(b);
}
