/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#define _GNU_SOURCE 1 /* accept4() */
#include "daemon/io/listener.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <uv.h>

#define ACCEPTS_A_TURN 16
#define PAUSE_NS (UINT64_C(100) * 1000 * 1000)

struct xd_listener {
	struct xd_server *server;
	struct xd_sockpath sock;
	bool admin, closing;
	uv_poll_t poll;
	struct xd_timer resume;
};

static void poll_cb(uv_poll_t *poll, int status, int events);

static void pause_listener(struct xd_listener *l)
{
	struct xd_server *s = l->server;

	uv_poll_stop(&l->poll);
	s->ops->arm(s->engine, &l->resume, s->ops->now_ns(s->engine) + PAUSE_NS);
}

static void resume(struct xd_timer *t)
{
	struct xd_listener *l = xc_container_of(t, struct xd_listener, resume);
	struct xd_server *s = l->server;

	if (l->closing)
		return;
	if (s->reserve < 0)
		s->reserve = open("/dev/null", O_RDONLY | O_CLOEXEC);
	if (s->reserve < 0 || uv_poll_start(&l->poll, UV_READABLE, poll_cb) < 0)
		pause_listener(l);
}

static int accept_one(struct xd_listener *l)
{
	int fd = accept4(l->sock.fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

	return fd < 0 ? -errno : fd;
}

/*
 * Gives up the reserve for one client, so that it hears why; it is there again when that one's
 * socket is closed.
 */
static void out_of_descriptors(struct xd_listener *l)
{
	struct xd_server *s = l->server;
	int fd;

	s->ops->log(s->engine, &(struct xd_log){ .priority = XD_WARNING },
		    "The daemon is out of descriptors: connections wait.");
	if (s->reserve >= 0) {
		close(s->reserve);
		s->reserve = -1;
		fd = accept_one(l);
		if (fd >= 0)
			xd_server_refuse(s, fd, -EMFILE, "the daemon has no descriptors left");
	}
	pause_listener(l);
}

static void poll_cb(uv_poll_t *poll, int status, int events)
{
	struct xd_listener *l = poll->data;

	(void)events;
	if (l->closing)
		return;
	if (status < 0) {
		pause_listener(l);
		return;
	}
	for (int i = 0; i < ACCEPTS_A_TURN; i++) {
		int fd = accept_one(l);

		if (fd >= 0) {
			xd_server_accept(l->server, fd, l->admin);
		} else if (fd == -EMFILE || fd == -ENFILE) {
			out_of_descriptors(l);
			return;
		} else if (fd == -EAGAIN) {
			return;
		} else if (fd != -ECONNABORTED && fd != -EINTR) {
			/* ENOMEM, ENOBUFS: it does not get better by asking again at once. */
			pause_listener(l);
			return;
		}
	}
}

int xd_listener_new(struct xd_server *server, const struct xd_sockpath *sock, bool admin,
		    struct xd_listener **ret)
{
	struct xd_listener *l = calloc(1, sizeof(*l));
	int r;

	if (!l)
		return -ENOMEM;
	l->server = server;
	l->admin = admin;
	l->resume.fired = resume;
	l->poll.data = l;
	r = uv_poll_init(xd_engine_loop(server->engine), &l->poll, sock->fd);
	if (r < 0) {
		free(l);
		return r; /* libuv's errors are negated errno here */
	}
	l->sock = *sock;
	r = uv_poll_start(&l->poll, UV_READABLE, poll_cb);
	if (r < 0) {
		l->sock.fd = l->sock.lock_fd = -1;
		xd_listener_close(l);
		return r;
	}
	*ret = l;
	return 0;
}

static void closed_cb(uv_handle_t *handle)
{
	struct xd_listener *l = handle->data;

	free(l);
}

void xd_listener_close(struct xd_listener *l)
{
	if (l->closing)
		return;
	l->closing = true;
	l->server->ops->disarm(l->server->engine, &l->resume);
	uv_close((uv_handle_t *)&l->poll, closed_cb);
	xd_sockpath_close(&l->sock);
}
