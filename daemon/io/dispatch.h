/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef XD_IO_DISPATCH_H
#define XD_IO_DISPATCH_H

/*
 * One packet of a client, from bytes to calls of the core. No sockets: what a test or a fuzzer
 * hands in is what a client could send.
 */

#include <stddef.h>
#include <stdint.h>

#include "daemon/core/core.h"
#include "daemon/io/arena.h"
#include "proto/fdmsg.h"

/*
 * Decodes the packet and calls what it asks for. Descriptors that came with it are the session's
 * afterwards, whatever happened. A packet that breaks the protocol ends the session
 * (xd_session_fail).
 *
 * Most answers come through xd_session_pull(). What is answered here (a query, a request that is
 * refused for its form) is written to reply_buf (XP_PACKET_BYTES_MAX bytes): *ret_reply is that
 * packet, and its length is returned; else 0.
 *
 * A Submit is taken as far as the user's share of the turn and the session's bounds go: from
 * request *rest on, which becomes the first that was not taken. Then the caller keeps the packet,
 * reads no other, and gives it again in the next turn, without descriptors. XD_DISPATCH_ALL: there
 * is no rest. rest NULL: all are taken at once.
 */
#define XD_DISPATCH_ALL SIZE_MAX
size_t xd_dispatch(struct xd_session *s, struct xd_arena *arena, const void *packet, size_t size,
		   const struct xp_fds *fds, uint8_t *reply_buf, uint8_t **ret_reply, size_t *rest);

#endif
