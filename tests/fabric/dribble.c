/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "tests/fabric/dribble.h"

#include <stdlib.h>
#include <sys/socket.h>
#include <sys/uio.h>

ssize_t __real_sendmsg(int fd, const struct msghdr *m, int flags);
ssize_t __real_recvmsg(int fd, struct msghdr *m, int flags);
ssize_t __real_send(int fd, const void *buf, size_t size, int flags);
ssize_t __real_recv(int fd, void *buf, size_t size, int flags);
ssize_t __wrap_sendmsg(int fd, const struct msghdr *m, int flags);
ssize_t __wrap_recvmsg(int fd, struct msghdr *m, int flags);
ssize_t __wrap_send(int fd, const void *buf, size_t size, int flags);
ssize_t __wrap_recv(int fd, void *buf, size_t size, int flags);

static unsigned int most;

void dribble(unsigned int bytes)
{
	most = bytes;
}

static size_t cut(size_t size)
{
	size_t n = most <= 1 ? most : 1 + (size_t)random() % most;

	return most && n < size ? n : size;
}

#define PIECES 64

/* The first of it, in a list of the caller's. */
static struct msghdr shortened(const struct msghdr *m, struct iovec iov[static PIECES])
{
	struct msghdr less = *m;
	size_t left = 0, i = 0;

	if (!most)
		return less;
	for (size_t k = 0; k < m->msg_iovlen; k++)
		left += m->msg_iov[k].iov_len;
	left = cut(left);
	for (; i < PIECES && i < m->msg_iovlen && left; i++) {
		iov[i] = m->msg_iov[i];
		if (iov[i].iov_len > left)
			iov[i].iov_len = left;
		left -= iov[i].iov_len;
	}
	less.msg_iov = iov;
	less.msg_iovlen = i;
	return less;
}

ssize_t __wrap_sendmsg(int fd, const struct msghdr *m, int flags)
{
	struct iovec iov[PIECES];
	struct msghdr less = shortened(m, iov);

	return __real_sendmsg(fd, &less, flags);
}

ssize_t __wrap_recvmsg(int fd, struct msghdr *m, int flags)
{
	struct iovec iov[PIECES];
	struct msghdr less = shortened(m, iov);

	return __real_recvmsg(fd, &less, flags);
}

ssize_t __wrap_send(int fd, const void *buf, size_t size, int flags)
{
	return __real_send(fd, buf, cut(size), flags);
}

ssize_t __wrap_recv(int fd, void *buf, size_t size, int flags)
{
	return __real_recv(fd, buf, cut(size), flags);
}
