/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef XD_IO_PEER_H
#define XD_IO_PEER_H

/* Who is at the other end of a Unix socket: what the kernel noted when it connected. */

#include <stdbool.h>
#include <stdint.h>

struct xd_credentials {
	uint32_t uid, gid;
	int32_t pid; /* 0: in a namespace that this process does not see */
	uint32_t n_gids;
	uint32_t *gids; /* all of its groups, malloc'd */
};

/* SO_PEERCRED and SO_PEERGROUPS. 0, -ENOMEM, -errno. */
int xd_credentials_of(int sock, struct xd_credentials *ret);
void xd_credentials_done(struct xd_credentials *c);
bool xd_credentials_in_group(const struct xd_credentials *c, uint32_t gid);

/*
 * A pidfd of the process that connected; it becomes readable when that process ends, also where a
 * forked child keeps the socket open. -1 where the kernel has none or the process cannot be seen
 * from here: then only the end of file tells. -ESRCH: it is dead already. Other negative errno:
 * -EMFILE and the like.
 *
 * From Linux 6.5 on the kernel hands out the very process (SO_PEERPIDFD). Before that the number
 * is all there is: where that process has died and its number was used again, before we came, a
 * stranger is watched; a session then lives until its socket is closed or the stranger ends,
 * whichever is first. It never outlives its last descriptor.
 */
int xd_peer_pidfd(int sock, int32_t pid, int *ret_pidfd);

#endif
