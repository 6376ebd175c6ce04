/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef IWARP_DDP_H
#define IWARP_DDP_H

/*
 * The headers of DDP (RFC 5041 4) and RDMAP (RFC 5040 4), and the Terminate message (RFC 5040 4.8):
 * bytes and fields, pure.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum rdmap_op {
	RDMAP_WRITE,
	RDMAP_READ_REQUEST,
	RDMAP_READ_RESPONSE,
	RDMAP_SEND,
	RDMAP_SEND_INVALIDATE,
	RDMAP_SEND_SE,
	RDMAP_SEND_SE_INVALIDATE,
	RDMAP_TERMINATE,
};

#define DDP_TAGGED_BYTES 14u
#define DDP_UNTAGGED_BYTES 18u
#define DDP_HEADER_MAX DDP_UNTAGGED_BYTES
#define RDMAP_READ_REQUEST_BYTES 28u

/* Queue numbers of untagged messages (RFC 5040 4.1) */
enum ddp_queue { DDP_QN_SEND, DDP_QN_READ_REQUEST, DDP_QN_TERMINATE };

struct ddp_header {
	bool tagged, last;
	uint8_t op; /* enum rdmap_op */
	union {
		struct {
			uint32_t stag;
			uint64_t to;
		};
		struct {
			uint32_t invalidate_stag; /* 0 where op has none */
			uint32_t qn, msn, mo;
		};
	};
};

struct rdmap_read_request {
	uint32_t sink_stag, source_stag;
	uint64_t sink_to, source_to;
	uint32_t bytes;
};

/*
 * Why a stream is terminated: RDMAP_ERROR(name, layer, type, code, text), numbers as in RFC
 * 5040 4.8 and RFC 5041 7, RFC 5044 8.
 */
#define RDMAP_ERRORS(X)                                                                            \
	X(LOCAL_CATASTROPHIC, 0, 0, 0x00, "the peer failed")                                       \
	X(R_STAG, 0, 1, 0x00, "RDMAP: no such STag")                                               \
	X(R_BOUNDS, 0, 1, 0x01, "RDMAP: base or bounds violation")                                 \
	X(R_RIGHTS, 0, 1, 0x02, "RDMAP: access rights violation")                                  \
	X(R_STREAM, 0, 1, 0x03, "RDMAP: the STag is not of this stream")                           \
	X(R_WRAP, 0, 1, 0x04, "RDMAP: the tagged offset wraps")                                    \
	X(R_INVALIDATE, 0, 1, 0x09, "RDMAP: the STag cannot be invalidated")                       \
	X(R_PROTECTION, 0, 1, 0xff, "RDMAP: remote protection error")                              \
	X(R_VERSION, 0, 2, 0x05, "RDMAP: invalid version")                                         \
	X(R_OPCODE, 0, 2, 0x06, "RDMAP: unexpected opcode")                                        \
	X(R_CATASTROPHIC_STREAM, 0, 2, 0x07, "RDMAP: the stream failed at the peer")               \
	X(R_CATASTROPHIC, 0, 2, 0x08, "RDMAP: the peer failed as a whole")                         \
	X(R_OPERATION, 0, 2, 0xff, "RDMAP: remote operation error")                                \
	X(T_STAG, 1, 1, 0x00, "DDP: no such STag")                                                 \
	X(T_BOUNDS, 1, 1, 0x01, "DDP: base or bounds violation")                                   \
	X(T_STREAM, 1, 1, 0x02, "DDP: the STag is not of this stream")                             \
	X(T_WRAP, 1, 1, 0x03, "DDP: the tagged offset wraps")                                      \
	X(T_VERSION, 1, 1, 0x04, "DDP: invalid version of a tagged segment")                       \
	X(U_QN, 1, 2, 0x01, "DDP: invalid queue number")                                           \
	X(U_NO_BUFFER, 1, 2, 0x02, "DDP: no buffer is available for this message")                 \
	X(U_MSN, 1, 2, 0x03, "DDP: invalid message sequence number")                               \
	X(U_MO, 1, 2, 0x04, "DDP: invalid message offset")                                         \
	X(U_TOO_LONG, 1, 2, 0x05, "DDP: the message is too long for its buffer")                   \
	X(U_VERSION, 1, 2, 0x06, "DDP: invalid version of an untagged segment")                    \
	X(M_CLOSED, 2, 0, 0x01, "MPA: the connection was closed, lost or reset")                   \
	X(M_CRC, 2, 0, 0x02, "MPA: wrong CRC")                                                     \
	X(M_LENGTH, 2, 0, 0x03, "MPA: the length and the marker disagree")                         \
	X(M_FRAME, 2, 0, 0x04, "MPA: invalid request or reply frame")                              \
	X(M_ENHANCED_LOCAL, 2, 0, 0x05, "MPA: the peer failed while connecting")                   \
	X(M_IRD, 2, 0, 0x06, "MPA: insufficient IRD")                                              \
	X(M_RTR, 2, 0, 0x07, "MPA: no RTR that both sides know")

enum rdmap_error {
	RDMAP_NO_ERROR,
#define RDMAP_ERROR_ENUM(name, layer, type, code, text) RDMAP_E_##name,
	RDMAP_ERRORS(RDMAP_ERROR_ENUM)
#undef RDMAP_ERROR_ENUM
		RDMAP_ERROR_COUNT,
};

/* A sentence about a received or sent Terminate. Never NULL. */
const char *rdmap_error_text(enum rdmap_error error);

/* Writes the header and returns its length. */
size_t ddp_encode(const struct ddp_header *header, uint8_t ret[static DDP_HEADER_MAX]);

/*
 * Decodes the header of a ULPDU of ulpdu_bytes, of which n are here. Returns its length; 0 where
 * more bytes are needed; -EPROTO with *ret_error for what can be seen without any state: a DDP or
 * RDMAP version other than 1, an opcode that is none (R_OPCODE), a tagged opcode in an untagged
 * segment and the reverse (R_OPCODE), a queue number that is not the opcode's (U_QN), a ULPDU
 * shorter than its header (M_LENGTH), a READ request or Terminate of more than one segment (U_MO),
 * a READ request that is not exactly its 28 bytes (U_TOO_LONG where longer, else M_LENGTH), a
 * Terminate of fewer than 4 bytes (M_LENGTH). Reserved bits are not looked at (RFC 5041 4.1). On
 * -EPROTO *ret is filled in too, but with M_LENGTH as far as it was there (what is not is 0).
 */
int ddp_decode(const uint8_t *bytes, size_t n, uint16_t ulpdu_bytes, struct ddp_header *ret,
	       enum rdmap_error *ret_error);

void rdmap_read_request_encode(const struct rdmap_read_request *request,
			       uint8_t ret[static RDMAP_READ_REQUEST_BYTES]);
void rdmap_read_request_decode(const uint8_t bytes[static RDMAP_READ_REQUEST_BYTES],
			       struct rdmap_read_request *ret);

/*
 * ---- Terminate. What it quotes of the segment at fault: its length, its DDP header, and of a READ
 * request the 28 bytes of it.
 */

#define RDMAP_TERMINATE_MAX (4u + 2u + DDP_HEADER_MAX + RDMAP_READ_REQUEST_BYTES)

struct rdmap_terminate {
	enum rdmap_error error;	   /* decoded: NO_ERROR where its numbers are none of the table's */
	uint8_t layer, type, code; /* decoded: as the table has them; encoded from `error` */
	bool has_segment;	   /* the next are there */
	uint16_t ulpdu_bytes;
	struct ddp_header header;
	bool has_request;
	struct rdmap_read_request request;
};

/*
 * The body, behind its untagged DDP header. Returns its length. Of a segment of an unknown version,
 * and where MPA is at fault, nothing is quoted, whatever has_segment says. A quoted header is
 * encoded anew: reserved bits are 0.
 */
size_t rdmap_terminate_encode(const struct rdmap_terminate *t,
			      uint8_t ret[static RDMAP_TERMINATE_MAX]);
/*
 * Understands what it can of n bytes, and never fails: a Terminate ends the stream whatever it
 * says. siw has the nibbles of the first byte, and the flag bits of the third, the other way round
 * (layer and type; M 01, D 02, R 04). Where both readings name an error of the table its flags
 * decide; without flags the RFC's reading is taken.
 */
void rdmap_terminate_decode(const uint8_t *bytes, size_t n, struct rdmap_terminate *ret);

#endif
