/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#define _GNU_SOURCE 1 /* accept4() */
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/assert.h"
#include "common/checked.h"
#include "daemon/fabric/iwarp/stream.h"
#include "proto/errors.h"

/*
 * The side that listens. Who may connect, and how many may be at it, is decided before anything is
 * allocated or received for a peer: a connection that says nothing costs a descriptor, for
 * mpa_ns at most.
 */

/* Taken from a listener in one turn. */
#define ACCEPTS 16
#define SOCKET_BACKLOG 128
/* Of a listener at the any-address. */
#define SOCKETS_MAX 64u
/* Out of descriptors: a listener that is polled on would be ready for ever. */
#define PAUSE_NS UINT64_C(100000000)

/* ---- listeners */

static void socket_ready(struct iwarp_watch *w, uint32_t events)
{
	struct iwarp_socket *so = xc_container_of(w, struct iwarp_socket, watch);

	(void)events;
	if (xc_list_empty(&so->accepting))
		xc_list_append(&so->listener->fabric->accepting, &so->accepting);
}

static void arm_pause(struct iwarp_socket *so)
{
	const struct xd_engine_ref *e = &so->listener->fabric->engine;

	e->ops->arm(e->engine, &so->pause, e->ops->now_ns(e->engine) + PAUSE_NS);
}

static void pause_over(struct xd_timer *t)
{
	struct iwarp_socket *so = xc_container_of(t, struct iwarp_socket, pause);

	so->paused = poll_add(so->listener->fabric, so->fd, EPOLLIN, &so->watch) < 0;
	if (so->paused)
		arm_pause(so);
}

static void pause_socket(struct iwarp_socket *so)
{
	poll_remove(so->listener->fabric, so->fd);
	so->paused = true;
	arm_pause(so);
}

static int bound_socket(const struct xc_addr *at)
{
	struct sockaddr_storage sa;
	socklen_t size = fabric_to_sockaddr(at, &sa);
	int on = 1, fd, err;

	fd = socket(sa.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return -errno;
	/* Connections of an earlier listener that linger do not hold up the next. */
	if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) == 0 &&
	    (sa.ss_family != AF_INET6 ||
	     setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof(on)) == 0) &&
	    bind(fd, (struct sockaddr *)&sa, size) == 0 && listen(fd, SOCKET_BACKLOG) == 0)
		return fd;
	err = -errno;
	close(fd);
	return err;
}

static int bound_port(int fd, uint16_t *ret)
{
	struct sockaddr_storage sa;
	socklen_t size = sizeof(sa);
	struct xc_addr bound;

	if (getsockname(fd, (struct sockaddr *)&sa, &size) < 0)
		return -errno;
	fabric_from_sockaddr((struct sockaddr *)&sa, &bound);
	*ret = bound.port;
	return 0;
}

/* Binds the next socket of l. */
static int add_socket(struct fabric_listener *l, const struct xc_addr *at, uint16_t *ret_port)
{
	struct iwarp_socket *so = &l->sockets[l->n_sockets];
	int fd = bound_socket(at), err;

	if (fd < 0)
		return fd;
	*so = (struct iwarp_socket){
		.watch.ready = socket_ready, .listener = l, .fd = fd, .pause.fired = pause_over,
	};
	xc_list_init(&so->accepting);
	err = bound_port(fd, ret_port);
	if (!err)
		err = poll_add(l->fabric, fd, EPOLLIN, &so->watch);
	if (err) {
		close(fd);
		return err;
	}
	l->n_sockets++;
	return 0;
}

/* An address that the any-address stands for, and that is ours to listen at. */
static bool is_ours(const struct ifaddrs *i, const struct xc_addr *any, struct xc_addr *ret)
{
	if (!i->ifa_addr || !(i->ifa_flags & IFF_UP))
		return false;
	fabric_from_sockaddr(i->ifa_addr, ret);
	ret->port = any->port;
	return ret->family == any->family && !iwarp_kernel_has(i->ifa_name);
}

/*
 * Where a device that speaks iWARP listens at the port, at its own addresses, nobody can listen at
 * it at all of them: then at each of the others.
 */
static int listen_at_each(struct fabric_listener *l, const struct xc_addr *any)
{
	struct ifaddrs *all;
	struct xc_addr at;
	uint16_t port;
	int err = 0;

	if (getifaddrs(&all) < 0)
		return -errno;
	for (const struct ifaddrs *i = all; i && !err && l->n_sockets < SOCKETS_MAX;
	     i = i->ifa_next)
		if (is_ours(i, any, &at))
			err = add_socket(l, &at, &port);
	freeifaddrs(all);
	if (!err && !l->n_sockets)
		err = -EADDRINUSE;
	if (err)
		serve_stop(l);
	return err;
}

int serve_listen(struct fabric_listener *l, const struct xc_addr *at, struct xc_addr *ret_at)
{
	bool any = xc_addr_is_any(at);
	int err;

	l->sockets = calloc(any ? SOCKETS_MAX : 1, sizeof(*l->sockets));
	if (!l->sockets)
		return -ENOMEM;
	*ret_at = *at;
	err = add_socket(l, at, &ret_at->port);
	if (err == -EADDRINUSE && any && at->port)
		return listen_at_each(l, at);
	if (err)
		serve_stop(l);
	return err;
}

void serve_stop(struct fabric_listener *l)
{
	struct fabric *f = l->fabric;
	struct iwarp_stream *s;

	while (l->n_sockets) {
		struct iwarp_socket *so = &l->sockets[--l->n_sockets];

		f->engine.ops->disarm(f->engine.engine, &so->pause);
		if (!so->paused)
			poll_remove(f, so->fd);
		close(so->fd);
		xc_list_remove(&so->accepting);
	}
	free(l->sockets);
	l->sockets = NULL;
	xc_list_for_each(s, &f->hearing, link)
		if (s->listener == l)
			stream_close(s, true);
}

/* ---- accepting */

static bool same_host(const struct xc_addr *a, const struct xc_addr *b)
{
	return a->family == b->family && memcmp(a->ip, b->ip, sizeof(a->ip)) == 0;
}

static bool host_has_room(struct fabric *f, const struct xc_addr *peer)
{
	struct iwarp_stream *s;
	uint32_t n = 0;

	if (f->n_hearing >= f->handshakes)
		return false;
	xc_list_for_each(s, &f->hearing, link)
		n += same_host(&s->peer, peer);
	return n < f->handshakes_per_host;
}

static void taken(struct fabric_listener *l, int fd, const struct sockaddr_storage *from)
{
	struct fabric *f = l->fabric;
	struct iwarp_stream *s;
	struct xc_addr peer;

	fabric_from_sockaddr((const struct sockaddr *)from, &peer);
	if (!iwarp_may_ask(l, &peer) || !host_has_room(f, &peer)) {
		stream_close_fd(fd, true);
		return;
	}
	if (stream_new(f, fd, STREAM_HEARING, &peer, &s) < 0)
		return;
	s->listener = l;
	stream_limit(s, f->mpa_ns);
	s->readable = true;
	stream_wake(s);
}

static void accept_some(struct iwarp_socket *so)
{
	for (int i = 0; i < ACCEPTS; i++) {
		struct sockaddr_storage from;
		socklen_t size = sizeof(from);
		int fd = accept4(so->fd, (struct sockaddr *)&from, &size,
				 SOCK_CLOEXEC | SOCK_NONBLOCK);

		if (fd >= 0) {
			taken(so->listener, fd, &from);
			continue;
		}
		if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM)
			pause_socket(so);
		/* The rest is of that connection, which is gone (accept(2)), or there is none. */
		if (errno != EINTR && errno != ECONNABORTED)
			return;
	}
}

void serve_run(struct fabric *f)
{
	struct xc_list *link;

	/* Level-triggered: what is left is ready again at the next look. */
	while ((link = xc_list_pop(&f->accepting)))
		accept_some(xc_container_of(link, struct iwarp_socket, accepting));
}

/* ---- the request */

static void send_reply(struct iwarp_stream *s, const void *private_data, size_t bytes)
{
	uint8_t frame[MPA_SENT_MAX];

	s->frame.private_data = private_data;
	s->frame.private_data_bytes = (uint16_t)bytes;
	tx_append_raw(s, frame, mpa_encode(MPA_REPLY, &s->frame, frame));
	s->frame.private_data = NULL;
}

/* It is answered with a rejection, and ends. */
static void turn_down(struct iwarp_stream *s, const void *private_data, size_t bytes)
{
	if (stream_buffers_new(s) < 0) {
		stream_close(s, true);
		return;
	}
	s->frame.reject = true;
	send_reply(s, private_data, bytes);
	stream_say_goodbye(s);
}

static void ask_user(struct iwarp_stream *s, struct fabric_listener *l,
		     const struct mpa_frame *request)
{
	const struct xd_engine_ref *e = &s->fabric->engine;

	e->ops->disarm(e->engine, &s->timer);
	if (iwarp_conn_ask(s, l, request->private_data, request->private_data_bytes) < 0)
		stream_close(s, true);
}

static void hear_request(struct iwarp_stream *s)
{
	struct fabric_listener *l = s->listener;
	struct mpa_frame request;
	const char *why;
	uint8_t next;
	int r = stream_hear(s, MPA_REQUEST, &request, &why);

	if (r == -EAGAIN)
		return;
	/* Nothing may follow the request before it is answered (RFC 5044 7.1.2). */
	if (r <= 0 || recv(s->fd, &next, 1, MSG_PEEK | MSG_DONTWAIT) > 0 ||
	    request.private_data_bytes > FABRIC_PRIVATE_DATA_MAX) {
		stream_close(s, true);
		return;
	}
	r = mpa_answer(&request, &s->fabric->wants, &s->frame, &s->terms, &why);
	stream_heard(s, STREAM_ASKED);
	if (r < 0)
		turn_down(s, NULL, 0);
	else
		ask_user(s, l, &request);
}

/* Its user takes its time. Has the peer given up, or broken the silence? */
static void look_after(struct iwarp_stream *s)
{
	struct fabric_conn *c = s->conn;
	uint8_t next;
	ssize_t n = recv(s->fd, &next, 1, MSG_PEEK | MSG_DONTWAIT);

	if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
		s->readable = errno == EINTR;
		return;
	}
	s->conn = NULL;
	stream_close(s, true);
	iwarp_conn_lost(c);
}

void serve_step(struct iwarp_stream *s)
{
	if (!s->readable)
		return;
	if (s->state == STREAM_HEARING)
		hear_request(s);
	else
		look_after(s);
}

/* ---- the answer */

int serve_accept(struct iwarp_stream *s, struct fabric_ep *ep, const void *private_data,
		 size_t bytes)
{
	int err = stream_open(s, ep);

	if (err)
		return err;
	s->conn = NULL;
	s->tx.silent = true;
	send_reply(s, private_data, bytes);
	iwarp_ep_connected(ep, NULL, 0);
	return 0;
}

void serve_reject(struct iwarp_stream *s, const void *private_data, size_t bytes)
{
	s->conn = NULL;
	turn_down(s, private_data, bytes);
}
