/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef XD_IO_CONN_H
#define XD_IO_CONN_H

/*
 * One client's socket. Reads a packet, has it dispatched, sends what the session has for its
 * client; stops reading while the client does not read. Ends when the socket or the process at
 * its other end does.
 *
 * Ends in steps: the handles are closed; a closer thread closes the socket, which can block in
 * what the client left unread in it; the session's end is reported. The last of these frees it.
 */

#include <stdbool.h>
#include <stdint.h>

#include "daemon/io/peer.h"
#include "daemon/io/server.h"

struct xd_conn;

/*
 * A client of this engine, or one that is told why it is not. Takes the socket and the pidfd (-1:
 * none).
 */
void xd_conn_start(struct xd_server *server, int fd, int pidfd, const struct xd_credentials *cred,
		   bool admin);

/* A connection that is no client's: tells it why, and closes it. Takes the socket. */
void xd_conn_refuse(struct xd_server *server, int fd, uint32_t uid, int status, const char *text);

/* Ends a connection, at once. Harmless twice. */
void xd_conn_close(struct xd_conn *c);

struct xd_conn *xd_conn_of(struct xc_list *link);
uint32_t xd_conn_uid(const struct xd_conn *c);
uint32_t xd_conn_handshakes_of(const struct xd_server *server, uint32_t uid);
uint32_t xd_conn_closing_of(const struct xd_server *server, uint32_t uid);

#endif
