/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#define _GNU_SOURCE 1 /* struct ucred */
#include "daemon/io/peer.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Newer than the C library's headers. */
#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77
#endif

/* A list that fits most; the kernel says how long it is where it does not (ERANGE). */
#define GROUPS_GUESS 32u

static int groups_of(int sock, uint32_t *ret_n, uint32_t **ret)
{
	socklen_t bytes = GROUPS_GUESS * sizeof(gid_t);

	for (;;) {
		/* One more, for the primary group. */
		uint32_t *gids = malloc(bytes + sizeof(gid_t));
		int e;

		if (!gids)
			return -ENOMEM;
		if (getsockopt(sock, SOL_SOCKET, SO_PEERGROUPS, gids, &bytes) == 0) {
			*ret_n = (uint32_t)(bytes / sizeof(gid_t));
			*ret = gids;
			return 0;
		}
		e = errno;
		free(gids);
		if (e != ERANGE)
			return -e;
	}
}

int xd_credentials_of(int sock, struct xd_credentials *ret)
{
	struct xd_credentials c = { 0 };
	struct ucred cred;
	socklen_t size = sizeof(cred);
	int r;

	if (getsockopt(sock, SOL_SOCKET, SO_PEERCRED, &cred, &size) < 0)
		return -errno;
	r = groups_of(sock, &c.n_gids, &c.gids);
	if (r < 0)
		return r;
	c.uid = cred.uid;
	c.gid = cred.gid;
	c.pid = cred.pid;
	if (!xd_credentials_in_group(&c, c.gid))
		c.gids[c.n_gids++] = c.gid;
	*ret = c;
	return 0;
}

void xd_credentials_done(struct xd_credentials *c)
{
	free(c->gids);
	c->gids = NULL;
	c->n_gids = 0;
}

bool xd_credentials_in_group(const struct xd_credentials *c, uint32_t gid)
{
	for (uint32_t i = 0; i < c->n_gids; i++) {
		if (c->gids[i] == gid)
			return true;
	}
	return false;
}

int xd_peer_pidfd(int sock, int32_t pid, int *ret_pidfd)
{
	int fd = -1, e;
	socklen_t size = sizeof(fd);

	if (getsockopt(sock, SOL_SOCKET, SO_PEERPIDFD, &fd, &size) == 0) {
		*ret_pidfd = fd;
		return 0;
	}
	/* The process is dead and reaped: EINVAL before 6.16, ESRCH since. */
	e = errno;
	if (e == ESRCH || e == EMFILE || e == ENFILE)
		return -e;
	*ret_pidfd = -1;
	if (pid <= 0)
		return 0;
	fd = (int)syscall(SYS_pidfd_open, pid, 0);
	if (fd >= 0) {
		*ret_pidfd = fd;
		return 0;
	}
	if (errno == ESRCH || errno == EMFILE || errno == ENFILE || errno == ENOMEM)
		return -errno;
	return 0; /* ENOSYS, EPERM: this system has no such thing */
}

