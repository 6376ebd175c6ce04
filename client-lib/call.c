/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Waiting: one thread reads, the others sleep on the condition; and round trips on top of it. */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "client-lib/internal.h"

/* Events that a reader lets gather before it looks after its own business. */
#define RECEIVE_EVENTS 256

static int64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

int64_t cl_deadline(int64_t timeout_ms)
{
	if (timeout_ms < 0)
		return CL_NO_DEADLINE;
	return timeout_ms == 0 ? 0 : now_ns() + timeout_ms * 1000000;
}

bool cl_expired(int64_t deadline_ns)
{
	if (deadline_ns == 0)
		return true;
	return deadline_ns != CL_NO_DEADLINE && now_ns() >= deadline_ns;
}

/* For poll(2): rounded up, so that a wait does not end just before its deadline and spin. */
static int left_ms(int64_t deadline_ns)
{
	int64_t left;

	if (deadline_ns == CL_NO_DEADLINE)
		return -1;
	left = deadline_ns - now_ns();
	if (left <= 0)
		return 0;
	left = (left + 999999) / 1000000;
	return left > INT32_MAX ? INT32_MAX : (int)left;
}

static void wait_for_reader(struct xfer_client *c, int64_t deadline_ns)
{
	struct timespec t = { .tv_sec = deadline_ns / 1000000000,
			      .tv_nsec = deadline_ns % 1000000000 };

	c->waiting++;
	if (deadline_ns == CL_NO_DEADLINE)
		pthread_cond_wait(&c->cond, &c->lock);
	else
		pthread_cond_timedwait(&c->cond, &c->lock, &t);
	c->waiting--;
}

static int sleep_unlocked(struct xfer_client *c, int64_t deadline_ns)
{
	struct pollfd fds[2] = {
		{ .fd = c->sock, .events = (short)(POLLIN | (c->want_out ? POLLOUT : 0)) },
		{ .fd = c->kick, .events = POLLIN },
	};
	int n;

	c->reading = true;
	pthread_mutex_unlock(&c->lock);
	n = poll(fds, 2, left_ms(deadline_ns));
	if (n < 0)
		n = -errno;
	pthread_mutex_lock(&c->lock);
	c->reading = false;
	return n;
}

int cl_wait(struct xfer_client *c, int64_t deadline_ns)
{
	uint64_t count;
	int n;

	if (c->reading) {
		wait_for_reader(c, deadline_ns);
		return 0;
	}
	n = sleep_unlocked(c, deadline_ns);
	if (c->kicked && read(c->kick, &count, sizeof(count)) == sizeof(count))
		c->kicked = false;
	if (n > 0) {
		/*
		 * A call that waits for room wants it again if its message still does not go out.
		 */
		cl_want_out(c, false);
		cl_batch_flush(c);
		cl_receive(c, c->events.n + RECEIVE_EVENTS);
	}
	/* Also after nothing: someone else must read now. */
	if (c->waiting)
		pthread_cond_broadcast(&c->cond);
	return n < 0 ? n : 0;
}

/* ---- round trips */

#define CONTROL_BYTES_MAX 8192

/* -EINTR of a signal means nothing to a round trip. */
static int wait_on(struct xfer_client *c, int64_t deadline_ns)
{
	if (cl_expired(deadline_ns))
		return -ETIMEDOUT;
	cl_wait(c, deadline_ns);
	return 0;
}

/* Behind all requests that were posted before it. */
static int send_message(struct xfer_client *c, const uint8_t *packet, size_t size, int fd,
			int64_t deadline_ns)
{
	int r;

	for (;;) {
		r = cl_alive(c);
		if (r < 0)
			return r;
		r = cl_batch_flush(c);
		if (r == 0)
			r = xp_fdmsg_send(c->sock, packet, size, &fd, fd < 0 ? 0 : 1);
		if (r == 0)
			return 0;
		if (r != -EAGAIN) {
			/* Its last words may wait to be read, and then explain this. */
			cl_receive(c, SIZE_MAX);
			cl_gone(c, -XFER_E_DAEMON_GONE, "the daemon closed the connection");
			return cl_alive(c);
		}
		cl_want_out(c, true);
		r = wait_on(c, deadline_ns);
		if (r < 0)
			return r;
	}
}

static int finish(const struct cl_call *call, const char *what)
{
	if (call->status == 0)
		return 0;
	return cl_fail(call->status, "%s: %s", what,
		       call->text[0] ? call->text : xfer_strerror(call->status));
}

int cl_call(struct xfer_client *c, Xp__ClientMessage *message, int fd, struct cl_call *call,
	    uint64_t extra_ms, const char *what)
{
	int64_t deadline = cl_deadline((int64_t)(c->timeout_ms + extra_ms));
	uint8_t packet[CONTROL_BYTES_MAX];
	size_t size;
	int r = cl_alive(c);

	if (r < 0)
		return r;
	message->serial = call->serial = ++c->serial;
	size = xp__client_message__get_packed_size(message);
	if (size > sizeof(packet))
		return cl_fail(-EINVAL, "%s: %zu bytes of arguments: at most %d", what, size,
			       CONTROL_BYTES_MAX);
	xp__client_message__pack(message, packet);
	xc_list_append(&c->calls, &call->link);
	r = send_message(c, packet, size, fd, deadline);
	while (r == 0 && !call->done)
		r = wait_on(c, deadline);
	xc_list_remove(&call->link);
	if (call->done)
		return finish(call, what);
	if (r == -ETIMEDOUT)
		return cl_fail(r, "%s: no answer from the daemon in %llu ms", what,
			       (unsigned long long)(c->timeout_ms + extra_ms));
	return r;
}
