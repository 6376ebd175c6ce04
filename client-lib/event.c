/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The queue of events, and the two ways to wait for it: xfer_poll() and a descriptor. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "client-lib/internal.h"

/* ---- the queue */

static struct cl_event *event_at(const struct cl_events *q, size_t i)
{
	return &q->at[(q->first + i) & (q->room - 1)];
}

int cl_events_reserve(struct cl_events *q, size_t n)
{
	size_t room = q->room ? q->room : 64;
	struct cl_event *at;

	if (q->room - q->n >= n)
		return 0;
	while (room - q->n < n)
		room *= 2;
	at = reallocarray(NULL, room, sizeof(*at));
	if (!at)
		return -ENOMEM;
	for (size_t i = 0; i < q->n; i++)
		at[i] = *event_at(q, i);
	free(q->at);
	*q = (struct cl_events){ .at = at, .n = q->n, .room = room };
	return 0;
}

int cl_events_reserve_ends(struct xfer_client *c)
{
	/* A completion for each request; ready, connected, disconnected for each endpoint. */
	if (cl_events_reserve(&c->events, c->requests.used + 3 * c->n_eps + 4) < 0)
		return cl_fail(-ENOMEM, "no memory for events");
	return 0;
}

struct cl_event_more *cl_event_more_new(const char *text)
{
	struct cl_event_more *more = calloc(1, sizeof(*more));

	if (more)
		snprintf(more->text, sizeof(more->text), "%s", text);
	return more;
}

void cl_bell_ring(struct xfer_client *c)
{
	uint64_t one = 1;

	if (c->bell < 0 || c->rung)
		return;
	/* The counter is far from full, so that this cannot block. */
	if (write(c->bell, &one, sizeof(one)) == sizeof(one))
		c->rung = true;
}

int cl_event_push(struct xfer_client *c, const struct cl_event *e)
{
	struct cl_events *q = &c->events;

	if (cl_events_reserve(q, 1) < 0) {
		free(e->more);
		return -ENOMEM;
	}
	*event_at(q, q->n++) = *e;
	if (c->armed)
		cl_bell_ring(c);
	return 0;
}

void cl_events_drop(struct cl_events *q, const struct xfer_ep *ep,
		    const struct xfer_listener *listener)
{
	size_t kept = 0;

	for (size_t i = 0; i < q->n; i++) {
		struct cl_event *e = event_at(q, i);

		if ((ep && e->ep == ep) || (listener && e->listener == listener))
			free(e->more);
		else
			*event_at(q, kept++) = *e;
	}
	q->n = kept;
}

void cl_events_done(struct cl_events *q)
{
	for (size_t i = 0; i < q->n; i++)
		free(event_at(q, i)->more);
	free(q->at);
}

/* ---- taking events */

static void fill_completion(struct xfer_event *to, const struct cl_event *e)
{
	to->wr_id = e->wr_id;
	to->byte_len = e->byte_len;
	to->opcode = (enum xfer_opcode)e->opcode;
	to->flags = e->flags;
	to->immediate = e->immediate;
	to->grant = e->grant;
	to->token = e->token;
	to->cancelled = XFER_CANCEL_NEVER_STARTED;
	if (e->opcode == XP_OP_CANCEL) {
		to->cancelled = (enum xfer_cancelled)e->immediate;
		to->immediate = 0;
	}
}

static void fill_private_data(struct xfer_event *to, const struct cl_event_more *more)
{
	to->private_data_bytes = more ? more->private_data_bytes : 0;
	if (to->private_data_bytes)
		memcpy(to->private_data, more->private_data, to->private_data_bytes);
}

static void fill(struct xfer_event *to, const struct cl_event *e)
{
	const struct cl_event_more *more = e->more;

	to->type = e->type;
	to->status = e->status;
	to->ep = e->ep;
	to->listener = e->listener;
	to->context = e->ep ? e->ep->context : e->listener ? e->listener->context : NULL;
	to->text[0] = '\0';
	if (e->status)
		snprintf(to->text, sizeof(to->text), "%s",
			 more && more->text[0] ? more->text : xfer_strerror(e->status));
	if (e->type == XFER_EVENT_COMPLETION)
		fill_completion(to, e);
	if (e->type == XFER_EVENT_CONNECTED || e->type == XFER_EVENT_CONNECT_REQUEST)
		fill_private_data(to, more);
	if (e->type == XFER_EVENT_CONNECT_REQUEST) {
		to->request = e->request;
		to->peer_uid = e->peer_uid;
		snprintf(to->peer_address, sizeof(to->peer_address), "%s",
			 more ? more->peer_address : "");
	}
}

static void fill_gone(struct xfer_event *to, const struct xfer_client *c)
{
	to->type = XFER_EVENT_DAEMON_GONE;
	to->status = c->gone_status;
	to->ep = NULL;
	to->listener = NULL;
	to->context = NULL;
	snprintf(to->text, sizeof(to->text), "%s", c->gone_text);
}

static int take(struct xfer_client *c, struct xfer_event *events, int max)
{
	struct cl_events *q = &c->events;
	int n = 0;

	while (n < max && q->n) {
		struct cl_event *e = event_at(q, 0);

		fill(&events[n++], e);
		free(e->more);
		q->first = (q->first + 1) & (q->room - 1);
		q->n--;
	}
	if (n == 0 && c->gone)
		fill_gone(&events[n++], c);
	return n;
}

static void bell_quiet(struct xfer_client *c)
{
	uint64_t count;

	c->armed = false;
	/* Of a client whose daemon is gone it rings for ever: there is always an event. */
	if (c->rung && !c->gone && read(c->bell, &count, sizeof(count)) == sizeof(count))
		c->rung = false;
}

XFER_API int xfer_poll(struct xfer_client *c, struct xfer_event *events, int max, int timeout_ms)
{
	int64_t deadline = cl_deadline(timeout_ms);
	int n, r = cl_enter(c);

	if (r < 0)
		return r;
	if (!events || max < 1)
		return cl_leave(c, cl_fail(-EINVAL, "poll: room for %d events: at least 1", max));
	bell_quiet(c);
	cl_batch_flush(c);
	if (c->events.n == 0 && !c->gone && timeout_ms == 0 && !c->reading)
		cl_receive(c, (size_t)max);
	for (;;) {
		n = take(c, events, max);
		if (n || cl_expired(deadline))
			break;
		r = cl_wait(c, deadline);
		if (r < 0)
			return cl_leave(c, cl_fail(r, "poll: interrupted by a signal"));
	}
	return cl_leave(c, n);
}

/* ---- foreign loops */

static int watch(struct xfer_client *c, int fd, uint32_t events)
{
	struct epoll_event e = { .events = events, .data = { .fd = fd } };

	return epoll_ctl(c->epoll, EPOLL_CTL_ADD, fd, &e);
}

static int make_descriptor(struct xfer_client *c)
{
	c->epoll = epoll_create1(EPOLL_CLOEXEC);
	c->bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (c->epoll < 0 || c->bell < 0 || watch(c, c->bell, EPOLLIN) < 0 ||
	    watch(c, c->sock, EPOLLIN | (c->want_out ? (uint32_t)EPOLLOUT : 0)) < 0) {
		int e = errno;

		if (c->epoll >= 0)
			close(c->epoll);
		if (c->bell >= 0)
			close(c->bell);
		c->epoll = c->bell = -1;
		return cl_fail(-e, "no descriptor for event loops: %s", xfer_strerror(e));
	}
	/*
	 * What was received before this is seen by arm; but a loop may forget to arm the first
	 * time.
	 */
	if (c->gone || c->events.n)
		cl_bell_ring(c);
	return 0;
}

XFER_API int xfer_client_fd(const struct xfer_client *client)
{
	/*
	 * The descriptor is a part of the client that is made late: no change that a caller sees.
	 */
	struct xfer_client *c = (struct xfer_client *)(uintptr_t)client;
	int r = cl_enter(c);

	if (r < 0)
		return r;
	if (c->epoll < 0)
		r = make_descriptor(c);
	return cl_leave(c, r < 0 ? r : c->epoll);
}

XFER_API int xfer_client_arm(struct xfer_client *c)
{
	int r = cl_enter(c);

	if (r < 0)
		return r;
	cl_batch_flush(c);
	if (c->events.n || c->gone)
		return cl_leave(c, -EAGAIN);
	c->armed = true;
	return cl_leave(c, 0);
}
