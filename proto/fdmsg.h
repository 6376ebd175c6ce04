/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef XP_FDMSG_H
#define XP_FDMSG_H

/*
 * Packets with descriptors on an AF_UNIX SOCK_SEQPACKET socket: the only code in the project
 * that does SCM_RIGHTS (unix(7), cmsg(3)). Never blocks (MSG_DONTWAIT), never raises SIGPIPE.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* The most descriptors the kernel lets one message carry (SCM_MAX_FD). */
#define XP_FDS_MAX 253
/* The largest packet of the protocol, either way. */
#define XP_PACKET_BYTES_MAX 65536

struct xp_fds {
	int count;
	int fd[XP_FDS_MAX];
};

/*
 * Receives one packet into buf. The control buffer always has room for XP_FDS_MAX descriptors:
 * where it has not, the kernel closes what does not fit inside recvmsg(), and a lingering TCP
 * socket then blocks the caller for as long as its owner likes. Descriptors arrive close-on-exec,
 * and belong to the caller whatever the return value says: it must dispose of ret_fds (on a thread
 * that may block).
 *
 * Returns the packet's length (> 0), or
 *   0            end of file (an empty packet is -EPROTO: a peer cannot fake an end of file that
 *	          way)
 *   -EAGAIN      nothing there
 *   -EMSGSIZE    the packet was longer than size, its rest is lost
 *   -EPROTO      an empty packet, or control data that is not SCM_RIGHTS, or truncated control data
 *   -ECONNRESET  is reported as 0, behind what the peer had sent before it closed
 *   -errno       of recvmsg(2) otherwise
 */
ssize_t xp_fdmsg_recv(int sock, void *buf, size_t size, struct xp_fds *ret_fds);

/*
 * Drops what waits to be read in a socket that was shut down, as far as no descriptors come with
 * it. Never blocks. True: nothing is left, so that close(2) of the socket cannot block either.
 */
bool xp_fdmsg_drop(int sock);

/*
 * Sends one packet of 1 to XP_PACKET_BYTES_MAX bytes with n_fds descriptors (which stay the
 * caller's). 0, -EAGAIN (nothing was sent), -EPIPE (for ECONNRESET too), -EMSGSIZE, -errno.
 */
int xp_fdmsg_send(int sock, const void *buf, size_t size, const int *fds, int n_fds);

#endif
