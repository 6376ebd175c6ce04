/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#define _GNU_SOURCE 1 /* POLLRDHUP, struct ucred */
#include "proto/fdmsg.h"

#include <errno.h>
#include <poll.h>
#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>

/*
 * Room for all descriptors that a message can carry, and for other control data beside them:
 * where somebody turned on SO_PASSCRED or timestamps, those come first and must not push
 * descriptors out.
 */
union control {
	struct cmsghdr align;
	char bytes[CMSG_SPACE(sizeof(int) * XP_FDS_MAX) + 512];
};

/* Takes all descriptors out of the control data. False where there is anything else in it. */
static bool take_control(struct msghdr *m, struct xp_fds *fds)
{
	bool clean = !(m->msg_flags & MSG_CTRUNC);

	for (struct cmsghdr *c = CMSG_FIRSTHDR(m); c; c = CMSG_NXTHDR(m, c)) {
		size_t n;

		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) {
			clean = false;
			continue;
		}
		n = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
		/* The kernel puts one array of at most SCM_MAX_FD into a message: no cut. */
		if (n > (size_t)(XP_FDS_MAX - fds->count)) {
			n = (size_t)(XP_FDS_MAX - fds->count);
			clean = false;
		}
		memcpy(&fds->fd[fds->count], CMSG_DATA(c), n * sizeof(int));
		fds->count += (int)n;
	}
	return clean;
}

/*
 * recvmsg() says 0 both at the end of file and for an empty packet, with the same flags (Linux
 * sets no MSG_EOR on unix sockets). They differ in this: at the end of file the peer has closed or
 * shut down its side, which poll() shows as POLLRDHUP, and nothing takes that back. So 0 without
 * POLLRDHUP is an empty packet, surely. 0 with it may be an empty packet that the peer sent just
 * before it closed: that the end has come is then true all the same.
 */
static bool at_end(int sock)
{
	struct pollfd p = { .fd = sock, .events = POLLRDHUP };

	return poll(&p, 1, 0) == 1 && (p.revents & (POLLRDHUP | POLLHUP));
}

static ssize_t receive(int sock, struct msghdr *m)
{
	bool reset = false;

	for (;;) {
		ssize_t n = recvmsg(sock, m, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);

		if (n >= 0)
			return n;
		if (errno == EINTR)
			continue;
		if (errno != ECONNRESET)
			return -errno;
		/*
		 * The peer closed with packets of ours unread. The kernel tells so once, before it
		 * gives out what the peer had sent: a farewell, likely. So ask again.
		 */
		if (reset)
			return 0;
		reset = true;
	}
}

ssize_t xp_fdmsg_recv(int sock, void *buf, size_t size, struct xp_fds *ret_fds)
{
	struct iovec iov = { .iov_base = buf, .iov_len = size };
	union control control;
	struct msghdr m = {
		.msg_iov = &iov,
		.msg_iovlen = 1,
		.msg_control = &control,
		.msg_controllen = sizeof(control),
	};
	bool clean;
	ssize_t n;

	ret_fds->count = 0;
	n = receive(sock, &m);
	if (n < 0)
		return n;
	clean = take_control(&m, ret_fds);
	if (!clean)
		return -EPROTO;
	if (m.msg_flags & MSG_TRUNC)
		return -EMSGSIZE;
	if (n == 0 && (ret_fds->count > 0 || !at_end(sock)))
		return -EPROTO;
	return n;
}

/* More than this of one socket is left to a thread. */
#define DROPS_MAX 64

bool xp_fdmsg_drop(int sock)
{
	/*
	 * With SO_PASSCRED a packet, however empty, comes with credentials, and an end of file does
	 * not. There is room for these alone: descriptors show by MSG_CTRUNC, and what the kernel
	 * closes of them while it peeks are copies.
	 */
	char control[CMSG_SPACE(sizeof(struct ucred))], byte;
	const int on = 1;

	if (setsockopt(sock, SOL_SOCKET, SO_PASSCRED, &on, sizeof(on)) < 0)
		return false;
	for (int i = 0; i < DROPS_MAX; i++) {
		struct iovec iov = { .iov_base = &byte, .iov_len = 1 };
		struct msghdr m = {
			.msg_iov = &iov,
			.msg_iovlen = 1,
			.msg_control = control,
			.msg_controllen = sizeof(control),
		};
		ssize_t n = recvmsg(sock, &m, MSG_PEEK | MSG_DONTWAIT);

		if (n < 0 && (errno == EINTR || errno == ECONNRESET))
			continue;
		if (n == 0 && m.msg_controllen == 0)
			return true;
		if (n < 0 || (m.msg_flags & MSG_CTRUNC))
			return false;
		if (recv(sock, &byte, 1, MSG_DONTWAIT) < 0)
			return false;
	}
	return false;
}

int xp_fdmsg_send(int sock, const void *buf, size_t size, const int *fds, int n_fds)
{
	struct iovec iov = { .iov_base = (void *)(uintptr_t)buf, .iov_len = size };
	struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1 };
	union control control;
	ssize_t n;

	if (size == 0 || n_fds < 0 || n_fds > XP_FDS_MAX)
		return -EINVAL;
	if (size > XP_PACKET_BYTES_MAX)
		return -EMSGSIZE;
	if (n_fds > 0) {
		size_t bytes = sizeof(int) * (size_t)n_fds;

		memset(&control, 0, CMSG_SPACE(bytes)); /* the padding travels too */
		control.align = (struct cmsghdr){
			.cmsg_level = SOL_SOCKET,
			.cmsg_type = SCM_RIGHTS,
			.cmsg_len = CMSG_LEN(bytes),
		};
		memcpy(CMSG_DATA(&control.align), fds, bytes);
		m.msg_control = &control;
		m.msg_controllen = CMSG_SPACE(bytes);
	}
	do {
		n = sendmsg(sock, &m, MSG_DONTWAIT | MSG_NOSIGNAL);
	} while (n < 0 && errno == EINTR);
	if (n < 0)
		return errno == ECONNRESET ? -EPIPE : -errno;
	return 0;
}
