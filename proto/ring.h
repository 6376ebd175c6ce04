/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef XP_RING_H
#define XP_RING_H

/*
 * The shape of a request and of its completion: what lies in a shared ring, and what a
 * Submit message decodes into, so that one transfer engine stands behind both ways to
 * submit. All fields are in host order (both sides are on one host), every struct has
 * one size on every architecture, and reserved fields are 0 (checked).
 */

#include <stdint.h>

#define XP_RING_VERSION 1

/*
 * The client protocol: the major version must match, the minor one tells which fields the other
 * side may know.
 */
#define XP_PROTOCOL_MAJOR 1
#define XP_PROTOCOL_MINOR 0
/* Feature bits of Hello and HelloReply. */
#define XP_FEATURE_RING 0x1u
#define XP_FEATURE_LINK 0x2u
#define XP_FEATURE_EXPLAIN 0x4u

enum xp_opcode {
	XP_OP_READ = 1, /* remote to local */
	XP_OP_WRITE = 2,
	XP_OP_SEND = 3,
	XP_OP_RECV = 4,
	XP_OP_GRANT = 5,  /* make a key for exact bytes, for this endpoint's peer */
	XP_OP_REVOKE = 6, /* kill it; completes when it is dead */
	XP_OP_CANCEL = 7,
	XP_OP_MAX = XP_OP_CANCEL,
};

/* Flags of a request. */
#define XP_F_FENCE 0x0001u     /* start after all earlier READs of the endpoint (IBV_SEND_FENCE) */
#define XP_F_QUIET 0x0002u     /* no completion unless it fails */
#define XP_F_SOLICITED 0x0004u /* SEND: IBV_SEND_SOLICITED */
#define XP_F_PLACED 0x0008u    /* WRITE: complete when the peer's NIC has processed it */
#define XP_F_INVALIDATE 0x0010u /* SEND: `key` is a peer's rkey to invalidate on arrival */
#define XP_F_IMMEDIATE 0x0020u /* SEND, WRITE: `key` is immediate data */
/*
 * GRANT: write fields of its token into the message of the endpoint's next SEND (feature "link").
 * Its remote segments say which, 1 to XP_PATCHES_MAX: address = offset in the message, length =
 * width in bytes (3, 4, 8), key = enum xp_patch_field, with XP_PATCH_BIG_ENDIAN or without.
 */
#define XP_F_LINK 0x0040u
#define XP_F_EXPLAIN 0x0080u   /* keep the plan taken, for the table "plans" (feature "explain") */
#define XP_F_GRANT_READ 0x0100u  /* GRANT: the peer may READ the bytes */
#define XP_F_GRANT_WRITE 0x0200u /* GRANT: the peer may WRITE them; exactly one of the two */
#define XP_F_ALL 0x03ffu

/* Flags of a completion. */
#define XP_CF_IMMEDIATE 0x0001u   /* `immediate` is valid */
#define XP_CF_INVALIDATED 0x0002u /* RECV: `grant` is the grant that the peer's SEND invalidated */
#define XP_CF_SOLICITED 0x0004u

/* How a CANCEL ended (`immediate` of its completion). */
enum xp_cancelled {
	XP_CANCEL_NEVER_STARTED = 0, /* no byte of the target moved */
	XP_CANCEL_FENCED = 1, /* the unposted rest was dropped, what was posted has finished */
	XP_CANCEL_QUARANTINED = 2,   /* the device holds it until the endpoint is gone */
	XP_CANCEL_TOO_LATE = 3,      /* it completed first */
};

#define XP_PATCHES_MAX 3u
#define XP_PATCH_BIG_ENDIAN 0x100u
enum xp_patch_field {
	XP_FIELD_ADDRESS = 0,
	XP_FIELD_LENGTH = 1,
	XP_FIELD_RKEY = 2,
	XP_FIELD_COUNT
};

#define XP_SEGMENTS_MAX 4096u	/* a side */
#define XP_SEGMENTS_INLINE 64u  /* a side; longer lists go by reference */
#define XP_MESSAGE_BYTES_MAX (UINT64_C(1) << 40)

/*
 * One piece of memory, the shape of struct ibv_sge. Local: offset into a buffer and the
 * buffer's number. Remote: address and rkey from a token.
 */
struct xp_segment {
	uint64_t address; /* local: offset in the buffer */
	uint32_t length;  /* bytes; 0 is allowed and means nothing */
	uint32_t key;     /* local: buffer number; remote: rkey */
};

/*
 * A request. Its segments, local ones first, follow inline when list_buffer is 0; else
 * they lie at list_offset (8-byte aligned) in that buffer of the client, and are copied
 * once before they are looked at.
 */
struct xp_request {
	uint8_t opcode; /* enum xp_opcode */
	uint8_t reserved0[3];
	uint32_t flags;         /* XP_F_… */
	uint64_t wr_id;         /* the user's, returned unchanged */
	/* names the request for CANCEL; not 0, unique among the session's unfinished */
	uint64_t cookie;
	uint32_t endpoint;      /* its number */
	uint32_t key;           /* rkey to invalidate; immediate data; REVOKE: grant number */
	uint32_t local_count;   /* segments, 0 to XP_SEGMENTS_MAX */
	uint32_t remote_count;  /* READ and WRITE; GRANT with XP_F_LINK: its patches */
	uint32_t list_buffer;   /* 0 = inline */
	uint32_t reserved1;
	uint64_t list_offset;
	/* CANCEL: the target's cookie; GRANT: lifetime in ms, 0 = as long as the endpoint */
	uint64_t argument;
};

/* The end of a request. */
struct xp_completion {
	uint64_t wr_id;
	uint64_t cookie;
	int32_t status;     /* 0, -errno, -XP_E_… */
	uint8_t opcode;
	uint8_t reserved[3];
	uint32_t flags;     /* XP_CF_… */
	uint32_t immediate; /* immediate data; CANCEL: enum xp_cancelled */
	uint64_t byte_len;  /* bytes moved; RECV: of the message; GRANT: of the token */
	uint32_t endpoint;
	uint32_t grant;     /* GRANT: its number; RECV: see XP_CF_INVALIDATED */
	uint64_t address;   /* GRANT: the token's */
	uint32_t rkey;      /* GRANT: the token's */
	uint32_t reserved1;
};

_Static_assert(sizeof(struct xp_segment) == 16, "a segment has the shape of ibv_sge");
_Static_assert(sizeof(struct xp_request) == 64, "a request fills one slot");
_Static_assert(sizeof(struct xp_completion) == 64, "a completion fills one slot");

#endif
