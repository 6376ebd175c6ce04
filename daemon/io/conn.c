/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "daemon/io/conn.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <uv.h>

#include "common/assert.h"
#include "daemon/io/codec.h"
#include "daemon/io/dispatch.h"

/* What one client may have read, and be sent, in one turn: the others wait for it. */
#define READS_A_TURN 16
#define READ_BYTES_A_TURN (64u * 1024)
#define SENDS_A_TURN 8

#define MAGIC 0x636f6e6eu

struct xd_conn {
	uint32_t magic;
	uint32_t uid;
	struct xd_link session_link; /* what the core knows of us */
	struct xc_list link;         /* of the server's open or closing ones */
	struct xc_list handshake;
	struct xd_server *server;
	struct xd_session *session; /* NULL once we let go of it */
	struct xd_staged *staged;
	struct xd_staged *rest; /* a Submit whose user's share of the turn was spent */
	size_t rest_at;         /* the first request of it that was not taken */
	struct xd_timer hello;
	struct xd_job closer;
	uv_poll_t sock, death;
	int fd, pidfd;
	int events; /* polled for */
	uint8_t handles;
	bool closing;
	bool awaits_session; /* session_gone has not come */
	bool awaits_closer;
	bool last; /* what is staged is a Goodbye */
};

static void conn_free(struct xd_conn *c)
{
	if (c->handles || c->awaits_session || c->awaits_closer)
		return;
	xc_list_remove(&c->link);
	c->server->n_closing--;
	c->magic = 0;
	free(c);
}

/* ---- the end */

/*
 * On a closer thread. What the client sent and nobody read is read first: a socket closed with
 * unread data gives its peer ECONNRESET in place of the Goodbye. Descriptors in it are closed
 * here, where that may block.
 */
static void closer_run(struct xd_job *job)
{
	struct xd_conn *c = xc_container_of(job, struct xd_conn, closer);
	struct xp_fds fds;
	uint8_t byte;
	ssize_t n;

	do {
		fds.count = 0;
		n = xp_fdmsg_recv(c->fd, &byte, 1, &fds);
		for (int i = 0; i < fds.count; i++)
			close(fds.fd[i]);
	} while (n > 0 || n == -EMSGSIZE || n == -EPROTO);
	close(c->fd);
}

static void closer_done(struct xd_job *job)
{
	struct xd_conn *c = xc_container_of(job, struct xd_conn, closer);

	c->awaits_closer = false;
	conn_free(c);
}

static void close_socket(struct xd_conn *c)
{
	/*
	 * Nothing more comes in, so that the closer has an end; what was sent can still be read
	 * there.
	 */
	shutdown(c->fd, SHUT_RDWR);
	/* Nor must those without descriptors wait for a thread behind others that block. */
	if (xp_fdmsg_drop(c->fd)) {
		close(c->fd);
		conn_free(c);
		return;
	}
	c->closer = (struct xd_job){
		.helper = XD_HELP_CLOSE,
		.owner = c->uid,
		.run = closer_run,
		.done = closer_done,
	};
	c->awaits_closer = true;
	c->server->ops->help(c->server->engine, &c->closer);
}

static void handle_closed_cb(uv_handle_t *handle)
{
	struct xd_conn *c = handle->data;

	XC_CHECK(c, MAGIC);
	if (--c->handles == 0) {
		if (c->pidfd >= 0)
			close(c->pidfd);
		close_socket(c);
	}
}

static void end_handshake(struct xd_conn *c)
{
	c->server->ops->disarm(c->server->engine, &c->hello);
	if (xc_list_empty(&c->handshake))
		return;
	xc_list_remove(&c->handshake);
	c->server->n_handshakes--;
}

void xd_conn_close(struct xd_conn *c)
{
	struct xd_session *session = c->session;

	XC_CHECK(c, MAGIC);
	if (c->closing)
		return;
	c->closing = true;
	end_handshake(c);
	xc_list_remove(&c->session_link.dirty);
	if (c->staged)
		xd_staged_put(c->server, c->staged);
	c->staged = NULL;
	if (c->rest)
		xd_staged_put(c->server, c->rest);
	c->rest = NULL;
	xc_list_remove(&c->link);
	c->server->n_conns--;
	xc_list_append(&c->server->closing, &c->link);
	c->server->n_closing++;

	uv_close((uv_handle_t *)&c->sock, handle_closed_cb);
	if (c->pidfd >= 0)
		uv_close((uv_handle_t *)&c->death, handle_closed_cb);
	c->session = NULL;
	if (session)
		xd_session_close(session);
}

/* The session is no more. From inside the core. */
static void session_gone(struct xd_link *link)
{
	struct xd_conn *c = xc_container_of(link, struct xd_conn, session_link);

	XC_CHECK(c, MAGIC);
	c->awaits_session = false;
	c->session = NULL;
	if (c->closing)
		conn_free(c);
}

/* ---- what is waited for */

static void poll_cb(uv_poll_t *poll, int status, int events);

static bool may_read(const struct xd_conn *c)
{
	return !c->staged && !c->rest && !xd_session_failed(c->session) &&
	       !xd_session_busy(c->session);
}

static void update_events(struct xd_conn *c)
{
	int events = may_read(c) ? UV_READABLE : UV_DISCONNECT;

	if (c->closing)
		return;
	if (c->staged)
		events |= UV_WRITABLE;
	if (events == c->events)
		return;
	c->events = events;
	if (uv_poll_start(&c->sock, events, poll_cb) < 0)
		xd_conn_close(c);
}

/* ---- output */

/*
 * The next packet for the client: many completions, or one of another kind. 0: there is none. It
 * lies in the server's tx.
 */
static size_t next_packet(struct xd_conn *c, uint8_t **ret_packet)
{
	struct xd_server *server = c->server;
	struct xd_batch batch;

	switch (xd_session_peek(c->session)) {
	case XD_OUT_NONE:
		return 0;
	case XD_OUT_COMPLETION:
		xd_batch_init(&batch, server->tx);
		while (xd_batch_room(&batch) &&
		       xd_session_peek(c->session) == XD_OUT_COMPLETION &&
		       xd_session_pull(c->session, &server->out))
			xd_batch_add(&batch, &server->out);
		return xd_batch_finish(&batch, ret_packet);
	default:
		if (!xd_session_pull(c->session, &server->out))
			return 0;
		c->last = server->out.kind == XD_OUT_GOODBYE;
		*ret_packet = server->tx;
		return xd_encode(&server->out, server->tx);
	}
}

/* Sends a packet or keeps it. False: the connection has ended. */
static bool put_packet(struct xd_conn *c, const uint8_t *packet, size_t bytes)
{
	int r;

	xc_assert(!c->staged);
	r = xp_fdmsg_send(c->fd, packet, bytes, NULL, 0);
	if (r == -EAGAIN && !xd_session_failed(c->session)) {
		c->staged = xd_staged_get(c->server);
		if (c->staged) {
			c->staged->bytes = (uint32_t)bytes;
			memcpy(c->staged->packet, packet, bytes);
			return true;
		}
	}
	/*
	 * Gone; or out of memory; or a client that broke the protocol and does not read. Or: all
	 * said.
	 */
	if (r < 0 || c->last) {
		xd_conn_close(c);
		return false;
	}
	return true;
}

/* What was kept. False: it is kept still, or the connection has ended. */
static bool put_staged(struct xd_conn *c)
{
	struct xd_staged *staged = c->staged;
	int r;

	if (!staged)
		return true;
	r = xp_fdmsg_send(c->fd, staged->packet, staged->bytes, NULL, 0);
	if (r == -EAGAIN && !xd_session_failed(c->session))
		return false;
	c->staged = NULL;
	xd_staged_put(c->server, staged);
	if (r < 0 || c->last) {
		xd_conn_close(c);
		return false;
	}
	return true;
}

static void flush(struct xd_conn *c)
{
	uint8_t *packet;
	size_t bytes;

	for (int i = 0; put_staged(c); i++) {
		if (i == SENDS_A_TURN) {
			xd_link_deliver(c->server->engine, &c->session_link);
			break;
		}
		bytes = next_packet(c, &packet);
		if (!bytes || !put_packet(c, packet, bytes))
			break;
	}
	if (c->closing)
		return;
	/* A busy session is delivered to when it no longer is. */
	if (c->rest && !c->staged && !xd_session_busy(c->session))
		xd_link_deliver(c->server->engine, &c->session_link);
	update_events(c);
}

/* ---- input */

/* Keeps the rest of a Submit for the next turn. */
static void keep_rest(struct xd_conn *c, const void *packet, size_t bytes, size_t at)
{
	c->rest = xd_staged_get(c->server);
	if (!c->rest) {
		xd_session_fail(c->session, -ENOMEM, "the daemon is out of memory");
		return;
	}
	c->rest->bytes = (uint32_t)bytes;
	memcpy(c->rest->packet, packet, bytes);
	c->rest_at = at;
	/* To be taken, or, where the session is busy, to be told what makes it so. */
	xd_link_deliver(c->server->engine, &c->session_link);
}

/* More of a Submit that was kept. Its turn comes with deliver(), after that of others. */
static void take_rest(struct xd_conn *c)
{
	struct xd_server *server = c->server;
	const struct xp_fds none = { .count = 0 };
	uint8_t *reply;

	if (!xd_session_may_submit(c->session))
		return;
	xd_dispatch(c->session, server->arena, c->rest->packet, c->rest->bytes, &none, server->tx,
		    &reply, &c->rest_at);
	if (c->rest_at != XD_DISPATCH_ALL && !xd_session_failed(c->session))
		return;
	xd_staged_put(server, c->rest);
	c->rest = NULL;
}

static void deliver(struct xd_link *link)
{
	struct xd_conn *c = xc_container_of(link, struct xd_conn, session_link);

	XC_CHECK(c, MAGIC);
	if (c->closing || !c->session)
		return;
	if (c->rest && !c->staged && !xd_session_busy(c->session))
		take_rest(c);
	flush(c);
}

static void broken(struct xd_conn *c, ssize_t r)
{
	if (c->server->fds.count)
		xd_session_discard_fds(c->session, c->server->fds.fd, c->server->fds.count);
	if (r == -EMSGSIZE)
		xd_session_fail(c->session, -XP_E_PROTOCOL,
				"the packet is longer than %d bytes, the most",
				XP_PACKET_BYTES_MAX);
	else if (r == -EPROTO)
		xd_session_fail(c->session, -XP_E_PROTOCOL,
				"the packet is empty, or its control data is cut or of an "
				"unknown kind");
	else
		xd_session_fail(c->session, (int)r, "the socket cannot be read: %s",
				strerror((int)-r));
}

/* One packet. Returns its length, or 0 where there is nothing more to read in this turn. */
static size_t read_packet(struct xd_conn *c)
{
	struct xd_server *server = c->server;
	size_t reply_bytes, rest = XD_DISPATCH_ALL;
	uint8_t *reply;
	ssize_t n;

	server->fds.count = 0;
	n = xp_fdmsg_recv(c->fd, server->rx, sizeof(server->rx), &server->fds);
	if (n == -EAGAIN)
		return 0;
	if (n == 0) {
		if (server->fds.count)
			xd_session_discard_fds(c->session, server->fds.fd, server->fds.count);
		xd_conn_close(c);
		return 0;
	}
	if (n < 0) {
		broken(c, n);
	} else {
		rest = 0;
		reply_bytes = xd_dispatch(c->session, server->arena, server->rx, (size_t)n,
					  &server->fds, server->tx, &reply, &rest);
		if (reply_bytes && !put_packet(c, reply, reply_bytes))
			return 0;
	}
	if (rest != XD_DISPATCH_ALL)
		keep_rest(c, server->rx, (size_t)n, rest);
	if (xd_session_greeted(c->session))
		end_handshake(c);
	if (xd_session_peek(c->session) != XD_OUT_NONE)
		xd_link_deliver(server->engine, &c->session_link);
	return n > 0 ? (size_t)n : 0;
}

static void read_packets(struct xd_conn *c)
{
	size_t bytes = 0, n;

	/* The poll tells again, in the next turn, of what is left. */
	for (int i = 0; i < READS_A_TURN && bytes < READ_BYTES_A_TURN && may_read(c); i++) {
		n = read_packet(c);
		if (!n)
			break;
		bytes += n;
	}
}

static void poll_cb(uv_poll_t *poll, int status, int events)
{
	struct xd_conn *c = poll->data;

	if (c->closing)
		return;
	XC_CHECK(c, MAGIC);
	/*
	 * An error on the socket (POLLERR, UV_EBADF to libuv): the client closed it with
	 * something unread.
	 */
	if (status < 0 || !c->session) {
		xd_conn_close(c);
		return;
	}
	if (events & UV_WRITABLE)
		flush(c);
	if (!c->closing && (events & UV_READABLE) && may_read(c))
		read_packets(c);
	else if (!c->closing && (events & UV_DISCONNECT))
		xd_conn_close(c);
	if (!c->closing)
		update_events(c);
}

static void death_cb(uv_poll_t *poll, int status, int events)
{
	struct xd_conn *c = poll->data;

	(void)status;
	(void)events;
	if (!c->closing)
		xd_conn_close(c);
}

static void hello_late(struct xd_timer *t)
{
	struct xd_conn *c = xc_container_of(t, struct xd_conn, hello);

	if (c->closing || !c->session)
		return;
	xd_session_fail(c->session, -ETIMEDOUT, "no Hello came within %" PRIu64 " ms",
			c->server->policy->hello_ms);
	xd_link_deliver(c->server->engine, &c->session_link);
}

/* ---- the start */

/* Whatever follows is closed by xd_conn_close(). */
static struct xd_conn *conn_new(struct xd_server *server, int fd, int pidfd, uint32_t uid)
{
	struct xd_conn *c = calloc(1, sizeof(*c));
	struct uv_loop_s *loop = xd_engine_loop(server->engine);

	if (!c)
		goto fail;
	*c = (struct xd_conn){
		.magic = MAGIC, .uid = uid, .server = server, .fd = fd, .pidfd = pidfd,
		.hello.fired = hello_late,
	};
	c->sock.data = c->death.data = c;
	xd_link_init(&c->session_link, deliver, session_gone);
	xc_list_init(&c->handshake);
	if (uv_poll_init(loop, &c->sock, fd) < 0)
		goto fail;
	c->handles++;
	xc_list_append(&server->conns, &c->link);
	server->n_conns++;
	if (pidfd < 0)
		return c;
	if (uv_poll_init(loop, &c->death, pidfd) < 0) {
		close(pidfd);
		c->pidfd = -1;
		return c;
	}
	c->handles++;
	uv_poll_start(&c->death, UV_READABLE, death_cb);
	return c;

fail:
	free(c);
	close(fd);
	if (pidfd >= 0)
		close(pidfd);
	return NULL;
}

static void say_goodbye(struct xd_conn *c, int status, const char *text)
{
	size_t bytes = xd_encode_goodbye(status, text, c->server->tx);

	/* Best effort: a socket that was just made has room for it. */
	(void)xp_fdmsg_send(c->fd, c->server->tx, bytes, NULL, 0);
	xd_conn_close(c);
}

void xd_conn_refuse(struct xd_server *server, int fd, uint32_t uid, int status, const char *text)
{
	struct xd_conn *c = conn_new(server, fd, -1, uid);

	xd_core_count(server->core, XD_COUNTER_sessions_refused, 1);
	if (c)
		say_goodbye(c, status, text);
}

void xd_conn_start(struct xd_server *server, int fd, int pidfd, const struct xd_credentials *cred,
		   bool admin)
{
	const struct xd_peer peer = {
		.uid = cred->uid,
		.pid = cred->pid,
		.n_gids = cred->n_gids,
		.gids = cred->gids,
		.admin = admin,
	};
	struct xd_conn *c = conn_new(server, fd, pidfd, cred->uid);
	char why[XD_TEXT_MAX] = "";
	int r;

	if (!c)
		return;
	r = xd_session_new(server->core, &peer, &c->session_link, &c->session, why);
	if (r < 0) {
		xd_core_count(server->core, XD_COUNTER_sessions_refused, 1);
		say_goodbye(c, r, why);
		return;
	}
	c->awaits_session = true;
	xc_list_append(&server->handshakes, &c->handshake);
	server->n_handshakes++;
	server->ops->arm(server->engine, &c->hello,
			 server->ops->now_ns(server->engine) + server->policy->hello_ms * 1000000);
	update_events(c);
}

/* ---- for the server */

struct xd_conn *xd_conn_of(struct xc_list *link)
{
	return xc_container_of(link, struct xd_conn, link);
}

uint32_t xd_conn_uid(const struct xd_conn *c)
{
	return c->uid;
}

uint32_t xd_conn_handshakes_of(const struct xd_server *server, uint32_t uid)
{
	const struct xd_conn *c;
	uint32_t n = 0;

	xc_list_for_each(c, &server->handshakes, handshake)
		n += c->uid == uid;
	return n;
}

uint32_t xd_conn_closing_of(const struct xd_server *server, uint32_t uid)
{
	const struct xd_conn *c;
	uint32_t n = 0;

	xc_list_for_each(c, &server->closing, link)
		n += c->uid == uid && c->awaits_closer;
	return n;
}
