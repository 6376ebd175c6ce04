/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#define _GNU_SOURCE 1 /* secure_getenv(3), program_invocation_short_name */
/* A client: the connection to the daemon and the hello. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "client-lib/internal.h"

#define DEFAULT_TIMEOUT_MS 30000
#define DEFAULT_CARRY_BYTES (UINT64_C(16) << 20)
#define NAME_BYTES_MAX 64
#define REQUESTS_MAX (1u << 20)

/* ---- what every function begins with */

int cl_enter(struct xfer_client *c)
{
	if (!c)
		return cl_fail(-EINVAL, "the client is NULL");
	if (!cl_epoch_is(c->epoch))
		return cl_fail(-ECHILD, "this client belongs to the parent of this process");
	pthread_mutex_lock(&c->lock);
	return 0;
}

int cl_alive(const struct xfer_client *c)
{
	if (c->gone)
		return cl_fail(-XFER_E_DAEMON_GONE, "%s", c->gone_text);
	if (c->send_failed)
		return cl_fail(-XFER_E_DAEMON_GONE, "the daemon closed the connection");
	return 0;
}

int cl_options_copy(void *to, size_t to_size, const void *from, const char *what)
{
	const uint8_t *bytes = from;
	size_t size;

	if (!from)
		return 0;
	memcpy(&size, from, sizeof(size));
	if (size < sizeof(size))
		return cl_fail(-EINVAL, "%s: options.size is %zu: set it to sizeof", what, size);
	for (size_t i = to_size; i < size; i++)
		if (bytes[i])
			return cl_fail(-EINVAL, "%s: an option that library %s does not know", what,
				       XFER_VERSION);
	memcpy(to, from, size < to_size ? size : to_size);
	return 0;
}

/* ---- where the daemon is */

static const char *default_path(bool admin, char *buf, size_t size)
{
	const char *env = secure_getenv(admin ? "XFER_ADMIN_SOCKET" : "XFER_SOCKET");
	const char *run = secure_getenv("XDG_RUNTIME_DIR");
	const char *kind = admin ? "admin" : "client";

	if (env && *env)
		return env;
	if (geteuid() != 0 && run && *run) {
		snprintf(buf, size, "%s/rdmaxferd/%s/sock", run, kind);
		if (access(buf, F_OK) == 0)
			return buf;
	}
	snprintf(buf, size, "/run/rdmaxferd/%s/sock", kind);
	return buf;
}

/* With the path, and what can be done about it. */
static int no_daemon(const char *path, bool admin, int e)
{
	if (e == ENOENT || e == ECONNREFUSED)
		return cl_fail(-e,
			       "%s: no rdmaxferd listens there (%s); start it, or name its socket "
			       "in %s",
			       path, xfer_strerror(e), admin ? "XFER_ADMIN_SOCKET" : "XFER_SOCKET");
	if (e == EACCES)
		return cl_fail(-e, "%s: %s; the system's rdmaxferd serves members of group %s",
			       path, xfer_strerror(e), admin ? "rdmaxfer-admin" : "rdmaxfer");
	return cl_fail(-e, "%s: %s", path, xfer_strerror(e));
}

/* A full backlog makes connect(2) wait: for the time-out at most. */
static int connect_to(const char *path, bool admin, uint32_t timeout_ms)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	struct timeval limit = { .tv_sec = timeout_ms / 1000,
				 .tv_usec = (suseconds_t)(timeout_ms % 1000) * 1000 };
	int sock, e;

	if (!*path)
		return cl_fail(-EINVAL, "the path of the daemon's socket is empty");
	if (strlen(path) >= sizeof(address.sun_path))
		return cl_fail(-EINVAL, "%s: a socket's path has at most %zu bytes", path,
			       sizeof(address.sun_path) - 1);
	strcpy(address.sun_path, path);
	sock = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (sock < 0)
		return cl_fail(-errno, "no socket: %s", xfer_strerror(errno));
	setsockopt(sock, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
	while (connect(sock, (struct sockaddr *)&address, sizeof(address)) < 0) {
		if (errno == EINTR)
			continue;
		e = errno == EAGAIN ? ETIMEDOUT : errno;
		close(sock);
		return no_daemon(path, admin, e);
	}
	return sock;
}

/* ---- the client */

static int init_locks(struct xfer_client *c)
{
	pthread_condattr_t attr;
	int e = pthread_mutex_init(&c->lock, NULL);

	if (e)
		return cl_fail(-e, "no mutex: %s", xfer_strerror(e));
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	e = pthread_cond_init(&c->cond, &attr);
	pthread_condattr_destroy(&attr);
	if (e) {
		pthread_mutex_destroy(&c->lock);
		return cl_fail(-e, "no condition: %s", xfer_strerror(e));
	}
	return 0;
}

static int init(struct xfer_client *c, int sock, const struct xfer_client_options *o)
{
	int r = cl_epoch_get(&c->epoch);

	if (r < 0)
		return cl_fail(r, "no page: %s", xfer_strerror(r));
	c->timeout_ms = o->timeout_ms ? o->timeout_ms : DEFAULT_TIMEOUT_MS;
	c->epoll = c->bell = -1;
	c->requests.max = REQUESTS_MAX;
	xc_list_init(&c->calls);
	xc_list_init(&c->buffers.all);
	xc_list_init(&c->eps);
	xc_list_init(&c->listeners);
	cl_arena_init(&c->arena);
	cl_carry_init(&c->carry, o->carry_bytes ? o->carry_bytes : DEFAULT_CARRY_BYTES);
	c->kick = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (c->kick < 0)
		return cl_fail(-errno, "no eventfd: %s", xfer_strerror(errno));
	r = init_locks(c);
	if (r < 0) {
		close(c->kick);
		return r;
	}
	c->sock = sock;
	return 0;
}

static void printable_name(char to[static NAME_BYTES_MAX + 1], const char *name)
{
	size_t i;

	if (!name)
		name = program_invocation_short_name;
	for (i = 0; i < NAME_BYTES_MAX && name[i]; i++)
		to[i] = name[i] >= ' ' && name[i] <= '~' ? name[i] : '?';
	to[i] = '\0';
}

static int hello(struct xfer_client *c, const char *name)
{
	Xp__ClientMessage message = XP__CLIENT_MESSAGE__INIT;
	Xp__Hello body = XP__HELLO__INIT;
	char printable[NAME_BYTES_MAX + 1];
	struct cl_call call = { 0 };

	printable_name(printable, name);
	body.major = CL_PROTOCOL_MAJOR;
	body.minor = CL_PROTOCOL_MINOR;
	body.name = printable;
	message.body_case = XP__CLIENT_MESSAGE__BODY_HELLO;
	message.hello = &body;
	return cl_call(c, &message, -1, &call, 0, "hello");
}

int cl_client_new(int sock, const struct xfer_client_options *options,
		  struct xfer_client **ret_client)
{
	struct xfer_client *c = calloc(1, sizeof(*c));
	int r;

	if (!c) {
		close(sock);
		return cl_fail(-ENOMEM, "no memory for a client");
	}
	r = init(c, sock, options);
	if (r < 0) {
		close(sock);
		free(c);
		return r;
	}
	pthread_mutex_lock(&c->lock);
	r = hello(c, options->name);
	pthread_mutex_unlock(&c->lock);
	if (r < 0) {
		xfer_client_free(c);
		return r;
	}
	*ret_client = c;
	return 0;
}

XFER_API int xfer_client_new(const struct xfer_client_options *options,
			     struct xfer_client **ret_client)
{
	struct xfer_client_options o = { .size = sizeof(o) };
	char path[256];
	int sock, r = cl_options_copy(&o, sizeof(o), options, "client");

	if (r < 0)
		return r;
	if (!ret_client)
		return cl_fail(-EINVAL, "client: ret_client is NULL");
	if (o.carry_bytes > CL_BUFFER_BYTES_MAX)
		return cl_fail(-EINVAL, "client: carry_bytes %llu: at most 2^40",
			       (unsigned long long)o.carry_bytes);
	if (!o.socket_path)
		o.socket_path = default_path(o.admin, path, sizeof(path));
	sock = connect_to(o.socket_path, o.admin, o.timeout_ms ? o.timeout_ms : DEFAULT_TIMEOUT_MS);
	if (sock < 0)
		return sock;
	return cl_client_new(sock, &o, ret_client);
}

static void free_lists(struct xfer_client *c)
{
	struct xfer_listener *l;
	struct xfer_ep *ep;

	xc_list_for_each(ep, &c->eps, link)
		free(ep);
	xc_list_for_each(l, &c->listeners, link)
		free(l);
	cl_numbers_done(&c->ep_numbers);
	cl_numbers_done(&c->listener_numbers);
}

XFER_API void xfer_client_free(struct xfer_client *c)
{
	if (!c)
		return;
	/* In a child the lock may be held by a thread that is not there: it is left alone. */
	close(c->sock);
	close(c->kick);
	if (c->epoll >= 0) {
		close(c->epoll);
		close(c->bell);
	}
	cl_carry_done(c);
	cl_buffers_done(c);
	free_lists(c);
	cl_requests_done(&c->requests);
	cl_events_done(&c->events);
	cl_arena_done(&c->arena);
	free(c->segments);
	free(c->pieces);
	if (cl_epoch_is(c->epoch)) {
		pthread_mutex_destroy(&c->lock);
		pthread_cond_destroy(&c->cond);
	}
	free(c);
}

XFER_API const char *xfer_client_daemon_version(const struct xfer_client *client)
{
	return client->daemon_version;
}
