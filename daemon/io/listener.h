/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef XD_IO_LISTENER_H
#define XD_IO_LISTENER_H

/*
 * Accepts connections at a socket, in batches. Where the process or the system is out of
 * descriptors it gives one up to tell one client so, and pauses: a listening socket stays
 * readable as long as a connection waits, and a loop that polls it would do nothing else.
 */

#include <stdbool.h>

#include "daemon/io/server.h"
#include "daemon/io/sockpath.h"

struct xd_listener;

/* Takes the socket (on success). 0, -ENOMEM, -errno. */
int xd_listener_new(struct xd_server *server, const struct xd_sockpath *sock, bool admin,
		    struct xd_listener **ret);

/*
 * Stops, removes the path and frees itself, all within the loop's next turn. The server must live
 * until then.
 */
void xd_listener_close(struct xd_listener *l);

#endif
