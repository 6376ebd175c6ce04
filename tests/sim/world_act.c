/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Control requests: sessions, buffers, listeners, endpoints. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/sim/world.h"

#define PORTS 4
/* Buffers of bulk in a run: what they hold stays until its end. */
#define LARGE_MAX 16

/* ---- sessions */

struct w_session *w_session_new(struct world *w, bool admin)
{
	struct w_user *user = &w->users[w_below(w, 3)];
	struct w_session *s = calloc(1, sizeof(*s));
	struct xd_peer peer = {.uid = user->uid,
			       .pid = (int32_t)w_below(w, 30000) + 1,
			       .n_gids = 2,
			       .gids = user->gids,
			       .admin = admin};
	char why[XD_TEXT_MAX] = "";
	int r;

	s->user = user;
	s->admin = admin;
	s->greed = 50 + w_below(w, 950);
	xc_list_init(&s->buffers);
	xc_list_init(&s->eps);
	xc_list_init(&s->listeners);
	xc_list_init(&s->offers);
	xc_list_init(&s->pending);
	xc_list_init(&s->requests);
	r = xd_session_new(w->core, &peer, s, &s->s, why);
	if (r < 0) {
		sim_note("session refused: %d", r);
		sim_check(why[0], "I7", "a session is refused without a reason");
		sim_check(r == -XP_E_QUOTA || r == -XP_E_SLOW_CLOSE ||
				  (r == -XP_E_SHUTDOWN && w->draining),
			  "I7", "a session is refused with %d", r);
		free(s);
		return NULL;
	}
	s->number = xd_session_number(s->s);
	xc_list_append(&w->sessions, &s->link);
	sim_note("session %llu of %u", (unsigned long long)s->number, user->uid);
	return s;
}

/* The client dies, or io has said goodbye. */
void w_session_close(struct world *w, struct w_session *s)
{
	sim_note("session %llu closes", (unsigned long long)s->number);
	w_excuse_all(w, s, "its client is gone");
	s->closed_step = sim.step;
	xd_session_close(s->s);
	s->s = NULL;
	s->output = false;
	xc_list_remove(&s->link);
	xc_list_append(&w->dead_sessions, &s->link);
}

static struct w_pending *ask(struct w_session *s, enum w_call call, void *subject)
{
	struct w_pending *p = calloc(1, sizeof(*p));

	p->call = call;
	p->serial = ++s->serial;
	p->step = sim.step;
	p->subject = subject;
	xc_list_append(&s->pending, &p->link);
	return p;
}

struct w_pending *w_ask(struct w_session *s, enum w_call call, void *subject)
{
	return ask(s, call, subject);
}

static void act_hello(struct world *w, struct w_session *s)
{
	struct xd_hello hello = { .major = 1, .features = ~UINT64_C(0), .name = "sim\ttest" };

	if (w_dice(w, 20)) {
		hello.major = 1 + w_below(w, 3) * 2;
		s->unruly |= hello.major != 1;
		if (s->unruly)
			w_excuse_all(w, s, "a wrong hello");
	}
	xd_session_hello(s->s, ask(s, W_HELLO, NULL)->serial, &hello);
}

/* ---- buffers */

static struct w_buffer *pick_buffer(struct world *w, struct w_session *s)
{
	struct w_buffer *b, *chosen = NULL;
	uint32_t n = 0;

	xc_list_for_each(b, &s->buffers, link)
		if (b->life == W_LIVE && !w_below(w, ++n))
			chosen = b;
	return chosen;
}

static void act_buffer_add(struct world *w, struct w_session *s)
{
	struct w_buffer *b;
	uint64_t size;

	w->fds_passed++;
	if (w_dice(w, 60)) { /* no memory at all, or a size that lies */
		static const uint64_t sizes[] = { 0, 1, UINT64_MAX, (UINT64_C(1) << 40) + 1, 4096 };

		xd_session_buffer_add(s->s, ask(s, W_ADD, NULL)->serial, 3 + (int)w_below(w, 1000),
				      sizes[w_below(w, 5)]);
		return;
	}
	size = 1 + (w_dice(w, 300) ? w_below(w, 60000) : w_below(w, 6000));
	if (w->bulk && !s->has_large && w->n_large < LARGE_MAX) {
		size = 400000 + w_below(w, 1600000);
		s->has_large = true;
		w->n_large++;
	}
	b = w_buffer_new(w, s, size);
	b->add_serial = ask(s, W_ADD, b)->serial;
	sim_note("buffer add %llu bytes", (unsigned long long)size);
	xd_session_buffer_add(s->s, b->add_serial, b->fd, size);
}

static void act_buffer_remove(struct world *w, struct w_session *s)
{
	struct w_buffer *b = pick_buffer(w, s);

	if (!b || w_dice(w, 30)) {
		xd_session_buffer_remove(s->s, ask(s, W_REMOVE, NULL)->serial,
					 (uint32_t)sim_next(&w->rng) | 0xff000);
		return;
	}
	/* What is in use is mostly left alone: it would be refused. */
	if (b->owned && !w_dice(w, 100))
		return;
	b->life = W_GOING;
	sim_note("buffer remove %u", b->number);
	xd_session_buffer_remove(s->s, ask(s, W_REMOVE, b)->serial, b->number);
}

static void act_discard(struct world *w, struct w_session *s)
{
	int fds[3] = { 5, 6, 7 };
	int n = 1 + (int)w_below(w, 3);

	w->fds_passed += (uint64_t)n;
	xd_session_discard_fds(s->s, fds, n);
}

/* ---- listeners */

static void act_listen(struct world *w, struct w_session *s)
{
	struct w_listener *l = calloc(1, sizeof(*l));
	uint32_t port = w_dice(w, 200) ? 0 : 1000 + w_below(w, PORTS);
	char host[64];

	snprintf(host, sizeof(host), "127.0.%u.1", w_below(w, w->n_fabrics));
	if (w_dice(w, 100))
		snprintf(host, sizeof(host), "%s",
			 (const char *[]){"10.0.0.1", "nowhere.invalid", "localhost", "",
					  "127.0.9.1", "0.0.0.0"}[w_below(w, 6)]);
	if (w_dice(w, 10))
		port = 65536 + w_below(w, 1000);
	l->session = s;
	l->serial = ask(s, W_LISTEN, l)->serial;
	xc_list_append(&s->listeners, &l->link);
	sim_note("listen %s:%u", host, port);
	xd_session_listen(s->s, l->serial, host, port, w_below(w, 4));
}

static void act_unlisten(struct world *w, struct w_session *s)
{
	struct w_listener *l, *chosen = NULL;
	uint32_t n = 0;

	xc_list_for_each(l, &s->listeners, link)
		if (l->life == W_LIVE && !w_below(w, ++n))
			chosen = l;
	if (chosen)
		chosen->life = W_GOING;
	sim_note("unlisten %u", chosen ? chosen->number : 12345);
	xd_session_unlisten(s->s, ask(s, W_UNLISTEN, chosen)->serial,
			    chosen ? chosen->number : 12345);
}

/* ---- endpoints */

static struct w_ep *by_tag(struct xc_list *sessions, uint64_t tag)
{
	struct w_session *s;

	xc_list_for_each(s, sessions, link) {
		for (struct xc_list *l = s->eps.next; l != &s->eps; l = l->next) {
			struct w_ep *ep = xc_container_of(l, struct w_ep, link);

			if (ep->tag == tag)
				return ep;
		}
	}
	return NULL;
}

struct w_ep *w_ep_by_tag(struct world *w, uint64_t tag)
{
	struct w_ep *ep = by_tag(&w->sessions, tag);

	return ep ? ep : by_tag(&w->dead_sessions, tag);
}

struct w_ep *w_ep_by_number(struct w_session *s, uint32_t number)
{
	struct w_ep *ep;

	xc_list_for_each(ep, &s->eps, link)
		if (ep->known && !ep->free_replied && ep->number == number)
			return ep;
	return NULL;
}

void w_messages_free(struct w_ep *ep)
{
	while (!xc_list_empty(&ep->messages))
		w_message_free(xc_list_first(&ep->messages, struct w_message, link));
}

void w_ep_unref(struct w_ep *ep)
{
	if (--ep->refs)
		return;
	w_messages_free(ep);
	w_links_free(&ep->links);
	xc_list_remove(&ep->link);
	free(ep->arrivals);
	free(ep);
}

static struct w_ep *ep_new(struct world *w, struct w_session *s)
{
	struct w_ep *ep = calloc(1, sizeof(*ep));

	ep->session = s;
	ep->tag = ++w->last_tag;
	ep->refs = 1;
	xc_list_init(&ep->messages);
	xc_list_init(&ep->links);
	xc_list_append(&s->eps, &ep->link);
	return ep;
}

static struct xd_endpoint_options some_options(struct world *w)
{
	struct xd_endpoint_options o = { .require = "" };

	if (w_dice(w, 700))
		o.send_depth = 1 + w_below(w, 8);
	if (w_dice(w, 700))
		o.recv_depth = 1 + w_below(w, 8);
	if (w_dice(w, 300))
		o.recv_stage_bytes = 1 + w_below(w, w_dice(w, 700) ? 4096 : 200000);
	if (w_dice(w, 10))
		o.recv_stage_bytes = w_dice(w, 500) ? UINT64_MAX - w_below(w, 8192)
						    : UINT64_C(1) << (20 + w_below(w, 44));
	if (w_dice(w, 10))
		o.send_depth = 100000;
	if (w_dice(w, 20))
		o.require = (const char *[]){ "tcp", "verbs", "fake0", "mlx9_0" }[w_below(w, 4)];
	return o;
}

/* Where somebody listens, mostly. */
static bool some_listener(struct world *w, struct xc_addr *ret)
{
	struct w_session *s;
	uint32_t n = 0;

	xc_list_for_each(s, &w->sessions, link) {
		for (struct xc_list *e = s->listeners.next; e != &s->listeners; e = e->next) {
			struct w_listener *l = xc_container_of(e, struct w_listener, link);

			if (l->life == W_LIVE && !w_below(w, ++n))
				*ret = l->at;
		}
	}
	return n;
}

static void act_connect_to(struct world *w, struct w_session *s)
{
	struct xd_endpoint_options o = some_options(w);
	struct xc_addr at = { .family = 4, .ip = { 127, 0, 0, 1 }, .port = 999 };
	bool there = some_listener(w, &at);
	struct w_ep *ep;
	char host[64];

	if (!there && !w_dice(w, 200))
		return;
	snprintf(host, sizeof(host), "%u.%u.%u.%u", at.ip[0], at.ip[1], at.ip[2], at.ip[3]);
	if (w_dice(w, 50))
		snprintf(host, sizeof(host), "%s",
			 (const char *[]){"10.0.0.1", "nowhere.invalid", "localhost",
					  "127.0.7.7"}[w_below(w, 4)]);
	if (w_dice(w, 20))
		at.port = 0;
	ep = ep_new(w, s);
	ep->stage_bytes = o.recv_stage_bytes;
	ep->serial = ask(s, W_CONNECT_TO, ep)->serial;
	sim_note("ep %llu to %s:%u", (unsigned long long)ep->tag, host, at.port);
	xd_session_endpoint_connect_to(s->s, ep->serial, host, at.port, &o);
}

static struct w_offer *pick_offer(struct world *w, struct w_session *s)
{
	struct w_offer *o, *chosen = NULL;
	uint32_t n = 0;

	xc_list_for_each(o, &s->offers, link)
		if (!w_below(w, ++n))
			chosen = o;
	return chosen;
}

static void act_answer(struct world *w, struct w_session *s)
{
	struct xd_endpoint_options o = some_options(w);
	struct w_offer *offer = pick_offer(w, s);
	uint64_t number = offer ? offer->number : sim_next(&w->rng);
	struct w_ep *ep;

	if (!offer && !w_dice(w, 20))
		return;
	ep = ep_new(w, s);
	ep->stage_bytes = o.recv_stage_bytes;
	ep->serial = ask(s, W_ANSWER, ep)->serial;
	ep->answers = number;
	ep->peer_tag = offer ? offer->peer_tag : 0;
	if (offer) {
		xc_list_remove(&offer->link);
		free(offer);
	}
	sim_note("ep %llu answers %llu", (unsigned long long)ep->tag, (unsigned long long)number);
	xd_session_endpoint_answer(s->s, ep->serial, number, &o);
}

static void act_reject(struct world *w, struct w_session *s)
{
	struct w_offer *offer = pick_offer(w, s);
	uint8_t data[FABRIC_PRIVATE_DATA_MAX + 44] = { 0 };

	if (!offer)
		return;
	sim_note("reject %llu", (unsigned long long)offer->number);
	xd_session_reject(s->s, ask(s, W_REJECT, NULL)->serial, offer->number, data,
			  w_dice(w, 900) ? 8 : 300);
	xc_list_remove(&offer->link);
	free(offer);
}

static struct w_ep *pick_ep(struct world *w, struct w_session *s)
{
	struct w_ep *ep, *chosen = NULL;
	uint32_t n = 0;

	xc_list_for_each(ep, &s->eps, link)
		if (ep->known && !ep->free_replied && !w_below(w, ++n))
			chosen = ep;
	return chosen;
}

static void act_start(struct world *w, struct w_session *s)
{
	uint8_t data[FABRIC_PRIVATE_DATA_MAX + 44];
	struct w_ep *ep = pick_ep(w, s), *other;
	size_t bytes = sizeof(ep->tag) + w_below(w, 40);

	/* Mostly one that can. */
	for (int i = 0; i < 8 && ep && (ep->started || ep->down || ep->life != W_LIVE); i++)
		ep = pick_ep(w, s);
	if (!ep || ((ep->started || ep->down) && !w_dice(w, 20)))
		return;
	if (w_dice(w, 20))
		bytes = 300;
	memset(data, 0x5a, sizeof(data));
	memcpy(data, &ep->tag, sizeof(ep->tag));
	if (w_dice(w, 20)) { /* the wrong one of the two */
		if (ep->answers)
			xd_session_connect(s->s, ask(s, W_CONNECT, NULL)->serial, ep->number, data,
					   bytes);
		else
			xd_session_accept(s->s, ask(s, W_ACCEPT, NULL)->serial, ep->number, data,
					  bytes);
		return;
	}
	sim_note("ep %llu starts", (unsigned long long)ep->tag);
	if (!ep->answers) {
		xd_session_connect(s->s, ask(s, W_CONNECT, ep)->serial, ep->number, data, bytes);
		return;
	}
	other = w_ep_by_tag(w, ep->peer_tag);
	if (other)
		other->peer_tag = ep->tag;
	xd_session_accept(s->s, ask(s, W_ACCEPT, ep)->serial, ep->number, data, bytes);
}

const char *w_excused(struct world *w, struct w_ep *ep)
{
	for (uint32_t i = 0; i < w->n_fabrics; i++) {
		const char *why = fake_fabric_excuse(w->fabrics[i], ep->tag);

		if (why)
			return why;
	}
	if (!ep->session->s || xd_session_failed(ep->session->s))
		return "its session ended";
	return ep->end_asked ? "its client asked for it" : NULL;
}

void w_excuse(struct world *w, struct w_ep *ep, const char *why)
{
	ep->end_asked = true;
	for (uint32_t i = 0; i < w->n_fabrics; i++)
		fake_fabric_excuse_set(w->fabrics[i], ep->tag, why);
}

void w_excuse_all(struct world *w, struct w_session *s, const char *why)
{
	struct w_ep *ep;

	xc_list_for_each(ep, &s->eps, link)
		w_excuse(w, ep, why);
}

static void act_end(struct world *w, struct w_session *s, enum w_call call)
{
	struct w_ep *ep = pick_ep(w, s);
	uint64_t serial = ask(s, call, ep)->serial;
	uint32_t number = ep ? ep->number : 4711;

	if (ep) {
		w_excuse(w, ep, "its client ended it");
		sim_note("ep %llu %s", (unsigned long long)ep->tag,
			 call == W_FREE ? "free" : "disconnect");
	}
	if (call == W_FREE)
		xd_session_endpoint_free(s->s, serial, number);
	else
		xd_session_disconnect(s->s, serial, number);
}

static struct w_session *other_session(struct world *w)
{
	struct w_session *s, *chosen = NULL;
	uint32_t n = 0;

	xc_list_for_each(s, &w->sessions, link)
		if (s != w->admin && !w_below(w, ++n))
			chosen = s;
	return chosen;
}

static void act_admin(struct world *w, struct w_session *s)
{
	struct w_session *other = other_session(w);
	struct w_ep *ep = other ? pick_ep(w, other) : NULL;
	char number[32], endpoint[32];
	const char *arguments[] = { number, endpoint };

	if (!s->admin || !other) {
		arguments[0] = "1";
		xd_session_admin(s->s, ask(s, W_ADMIN, NULL)->serial,
				 s->admin ? "no-such-verb" : "end-session", arguments, 1);
		return;
	}
	snprintf(number, sizeof(number), "%llu", (unsigned long long)other->number);
	if (ep && w_dice(w, 800)) {
		snprintf(endpoint, sizeof(endpoint), "%u", ep->number);
		w_excuse(w, ep, "an administrator ended it");
		xd_session_admin(s->s, ask(s, W_ADMIN, NULL)->serial, "disconnect-endpoint",
				 arguments, 2);
		return;
	}
	w_excuse_all(w, other, "an administrator ended its session");
	other->unruly = other->ending = true;
	xd_session_admin(s->s, ask(s, W_ADMIN, NULL)->serial, "end-session", arguments, 1);
}

static uint32_t live_buffers(const struct w_session *s)
{
	uint32_t n = 0;

	for (const struct xc_list *l = s->buffers.next; l != &s->buffers; l = l->next)
		n += xc_container_of(l, struct w_buffer, link)->life <= W_LIVE;
	return n;
}

static bool listens(const struct w_session *s)
{
	for (const struct xc_list *l = s->listeners.next; l != &s->listeners; l = l->next)
		if (xc_container_of(l, struct w_listener, link)->life <= W_LIVE)
			return true;
	return false;
}

static uint32_t count_eps(const struct w_session *s, bool startable)
{
	uint32_t n = 0;

	for (const struct xc_list *l = s->eps.next; l != &s->eps; l = l->next) {
		const struct w_ep *ep = xc_container_of(l, struct w_ep, link);

		if (startable)
			n += ep->known && ep->life == W_LIVE && !ep->started && !ep->down;
		else
			n += !ep->down && !ep->free_replied;
	}
	return n;
}

/* What a program does to get to work. False: it has what it needs. */
static bool set_up(struct world *w, struct w_session *s)
{
	if (live_buffers(s) < (w->tight ? 10 : 3) && w_dice(w, s->refused ? 20 : 700))
		act_buffer_add(w, s);
	else if (!listens(s) && w_dice(w, 500))
		act_listen(w, s);
	else if (!xc_list_empty(&s->offers) && w_dice(w, 700))
		act_answer(w, s);
	else if (count_eps(s, true) && w_dice(w, 700))
		act_start(w, s);
	else if (count_eps(s, false) < 4 && w_dice(w, 300))
		act_connect_to(w, s);
	else
		return false;
	return true;
}

/* The rest of what may happen, right or wrong. */
static void act_any(struct world *w, struct w_session *s)
{
	switch (w_below(w, 20)) {
	case 0:
		if (w_dice(w, 100) && s != w->admin) {
			s->unruly = true;
			w_excuse_all(w, s, "a second hello");
			act_hello(w, s);
			break;
		}
		act_buffer_add(w, s);
		break;
	case 1:
		act_buffer_add(w, s);
		break;
	case 2:
	case 3:
		act_buffer_remove(w, s);
		break;
	case 4:
		act_discard(w, s);
		break;
	case 5:
		act_listen(w, s);
		break;
	case 6:
		act_unlisten(w, s);
		break;
	case 7:
	case 8:
		act_connect_to(w, s);
		break;
	case 9:
		act_answer(w, s);
		break;
	case 10:
		act_reject(w, s);
		break;
	case 11:
		act_start(w, s);
		break;
	case 12:
		act_end(w, s, W_DISCONNECT);
		break;
	case 13:
	case 14:
		act_end(w, s, W_FREE);
		break;
	case 15:
		act_admin(w, s);
		break;
	default:
		w_query_any(w, s);
		break;
	}
}

void w_act(struct world *w, struct w_session *s)
{
	if (!s->greeted) {
		/* io would let nothing else in: so is this. */
		if (xc_list_empty(&s->pending))
			act_hello(w, s);
		return;
	}
	if (set_up(w, s))
		return;
	if (w_dice(w, 60)) {
		act_any(w, s);
		return;
	}
	if (w_dice(w, 30))
		w_scribble(w, s);
	for (uint32_t n = 1 + w_below(w, 4); n && s->s && !xd_session_busy(s->s); n--)
		if (xd_session_may_submit(s->s))
			w_submit(w, s);
}
