/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef XD_IO_CODEC_H
#define XD_IO_CODEC_H

/*
 * Packets of proto/client.proto to and from plain structs. Pure functions: they allocate nothing
 * but from the arena they are given, and keep nothing.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/core/core.h"
#include "daemon/io/arena.h"
#include "proto/client.pb-c.h"
#include "proto/fdmsg.h"

/* ---- decoding */

/*
 * Decodes a client's packet into the arena (which is reset first: what was decoded before is
 * gone), and checks every field against the bound that client.proto gives it.
 *
 * 0
 * -XP_E_PROTOCOL           the packet breaks the protocol: the session must end
 * -EINVAL                  a field is out of its bound: the request is to be refused, the session
 * goes on
 * -XP_E_UNKNOWN_OPERATION  no body that this daemon knows: the same
 *
 * ret_why (XD_TEXT_MAX bytes) names the field and the bound where it is not 0; *ret is valid
 * where it is not -XP_E_PROTOCOL.
 */
int xd_decode(struct xd_arena *arena, const void *packet, size_t size, Xp__ClientMessage **ret,
	      char *ret_why);

/*
 * One request of a Submit. ret_segments gets the local segments, then the remote ones. 0 or
 * -XP_E_PROTOCOL with ret_why. A value that does not fit struct xp_request becomes one that the
 * core refuses.
 */
int xd_decode_request(const Xp__Request *in, struct xp_request *ret,
		      struct xp_segment ret_segments[static 2 * XP_SEGMENTS_INLINE], char *ret_why);

/*
 * ---- encoding. Buffers have XP_PACKET_BYTES_MAX bytes; each function returns the packet's
 * length.
 */

/*
 * Any kind but NONE and COMPLETION. `out` may be changed: text that is not ASCII loses what is
 * not.
 */
size_t xd_encode(struct xd_out *out, uint8_t *buf);

size_t xd_encode_reply(uint64_t serial, int status, const char *text, uint8_t *buf);
size_t xd_encode_query_failure(uint64_t serial, int status, const char *text, uint8_t *buf);
size_t xd_encode_goodbye(int status, const char *text, uint8_t *buf);

/* Many completions in one packet. */
struct xd_batch {
	uint8_t *buf;
	size_t end; /* bytes used of buf */
	unsigned count;
};

void xd_batch_init(struct xd_batch *b, uint8_t *buf);
/* Is there room for one more, however long? */
bool xd_batch_room(const struct xd_batch *b);
void xd_batch_add(struct xd_batch *b, struct xd_out *completion);
/* Writes the head. The packet is *ret_packet, inside buf. */
size_t xd_batch_finish(struct xd_batch *b, uint8_t **ret_packet);

/* A part of a table in one packet. */
struct xd_query_writer {
	struct xd_table_sink sink; /* for xd_session_query() */
	uint8_t *buf;
	size_t end;
};

void xd_query_writer_init(struct xd_query_writer *w, uint8_t *buf);
/* `columns` are written where n_columns is not 0: in a table's first part. */
size_t xd_query_writer_finish(struct xd_query_writer *w, uint64_t serial, uint64_t cursor,
			      const struct xd_column *columns, size_t n_columns,
			      uint8_t **ret_packet);

#endif
