/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef XD_IO_SOCKPATH_H
#define XD_IO_SOCKPATH_H

/*
 * A listening socket with a path, and with it the right to that path.
 *
 * Whether a socket that lies there is alive cannot be found out by connecting to it: a daemon
 * that is starting, or has its backlog full, looks dead, and between the look and the unlink
 * another can start. So the right is a lock on a file beside it (flock(2) on PATH.lock), which
 * the kernel takes back when its owner dies, and whoever has it may replace what lies at the
 * path. The lock file itself stays for ever: removed, two daemons could each hold a lock on a
 * file of that name.
 */

#include <stdbool.h>
#include <stddef.h>

#define XD_CLIENT_GROUP "rdmaxfer"
#define XD_ADMIN_GROUP "rdmaxfer-admin"
#define XD_SOCKPATH_MAX 108 /* sun_path */
#define XD_SOCKPATH_WHY_MAX 512

struct xd_sockpath {
	int fd;      /* listening, non-blocking */
	int lock_fd; /* -1 where systemd made the socket */
	char path[XD_SOCKPATH_MAX]; /* "" where systemd made it */
};

/*
 * Makes the socket's directory (0750) and that one's parent (0755) where they are missing, takes
 * the lock, replaces a dead daemon's socket, and listens. The socket's mode is 0660; its group,
 * and the made directory's, is `group` where that exists and we may, else our own.
 *
 * 0, or -errno with a sentence in ret_why (XD_SOCKPATH_WHY_MAX bytes): -EADDRINUSE: another
 * daemon has the path.
 */
int xd_sockpath_open(const char *path, const char *group, struct xd_sockpath *ret, char *ret_why);

/* Closes, and removes the socket's name while the lock is still held. */
void xd_sockpath_close(struct xd_sockpath *s);

/*
 * Where a socket is by default; kind is "client" or "admin". $RUNTIME_DIRECTORY/KIND/sock where
 * systemd made that directory (systemd.exec(5)); else /run/rdmaxferd/KIND/sock for root; else
 * $XDG_RUNTIME_DIR/rdmaxferd/KIND/sock. 0, or -ENOENT with ret_why.
 */
int xd_sockpath_default(const char *kind, char ret_path[static XD_SOCKPATH_MAX], char *ret_why);

/*
 * The listening sockets that systemd passed, by FileDescriptorName= "client" and "admin"; fd -1
 * where it passed none of that name. Once. 0, or -EINVAL with ret_why: another name, or no
 * listening AF_UNIX SOCK_SEQPACKET socket.
 */
int xd_sockpath_inherit(struct xd_sockpath *ret_client, struct xd_sockpath *ret_admin,
			char *ret_why);

#endif
