/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef XD_IO_SERVER_H
#define XD_IO_SERVER_H

/*
 * The clients of an engine, connected and being closed, and what they share: buffers for one
 * packet in and one out, the decoder's memory, the bounds on connections that are not yet
 * sessions.
 */

#include <stdbool.h>
#include <stdint.h>

#include "common/list.h"
#include "daemon/core/core.h"
#include "daemon/io/arena.h"
#include "daemon/io/engine.h"
#include "daemon/io/log.h"
#include "proto/fdmsg.h"

/* Packets that are kept for connections whose clients read slowly. */
#define XD_STAGED_KEPT 16
/*
 * Closed sockets of one uid whose close() has not returned; beyond it that uid gets no new
 * connection.
 */
#define XD_CLOSING_PER_UID 64

/* A packet that did not fit a client's socket. */
struct xd_staged {
	struct xc_list link;
	uint32_t bytes;
	uint8_t packet[XP_PACKET_BYTES_MAX];
};

struct xd_server {
	struct xd_engine *engine;
	const struct xd_engine_ops *ops;
	struct xd_core *core;
	const struct xd_policy *policy;
	struct xd_logger *logger;

	struct xc_list conns;      /* open, xd_conn.link */
	struct xc_list handshakes; /* of these, without a hello, xd_conn.handshake */
	struct xc_list closing;    /* closed, not gone, xd_conn.link */
	uint32_t n_conns, n_handshakes, n_closing;

	int64_t admin_gid;  /* group of administrators, -1: none */
	int fd_limit;       /* a connection with a descriptor from here on is refused */
	int reserve;        /* a descriptor to give up when there are no more; -1 */

	struct xc_list staged; /* free, xd_staged.link */
	uint32_t n_staged;

	struct xd_arena *arena;
	struct xp_fds fds;
	struct xd_out out;
	uint8_t rx[XP_PACKET_BYTES_MAX], tx[XP_PACKET_BYTES_MAX];
};

/* 0 or -ENOMEM. */
int xd_server_new(struct xd_engine *e, struct xd_core *core, const struct xd_policy *policy,
		  struct xd_logger *logger, struct xd_server **ret);

/* Takes a connected socket: it becomes a client, or is told why not and closed. */
void xd_server_accept(struct xd_server *server, int fd, bool admin);
/* Takes a connected socket, tells it this and closes it. */
void xd_server_refuse(struct xd_server *server, int fd, int status, const char *text);

/* Nothing is left: no client, and no socket whose close() has not returned. */
bool xd_server_idle(const struct xd_server *server);
/* Closes all clients at once, without a word. */
void xd_server_close(struct xd_server *server);
/* It must be idle. */
void xd_server_free(struct xd_server *server);

/* A packet to keep; NULL where memory is out. */
struct xd_staged *xd_staged_get(struct xd_server *server);
void xd_staged_put(struct xd_server *server, struct xd_staged *s);

#endif
