/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef IWARP_MPA_H
#define IWARP_MPA_H

/*
 * The start of an MPA connection (RFC 5044 7.1, RFC 6581) as bytes and as terms: pure, no socket,
 * no memory of its own.
 *
 * What is asked for and what is accepted:
 * - A request of ours is of revision 2, with IRD and ORD of at least 1: revision 1 carries none,
 *   and a peer that accepts with what it heard could not READ. It offers the peer-to-peer model
 *   with both kinds of RTR, so that the accepting side may speak first.
 * - A request of revision 1 is answered in revision 1.
 * - Markers are declined: a request with M set is rejected, and so is a reply.
 * - A CRC is used where either side asks for it.
 * - A reply has never more private data than 256 bytes with the four of revision 2, and never the S
 *   flag with fewer than four: some kernels' siw takes neither alive.
 * - Flag 0x08 is siw's: FPDUs may be longer than the MSS, up to 64 KiB. Used where it stood in the
 *   request and in the reply.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MPA_HEADER_BYTES 20u
#define MPA_ENHANCED_BYTES 4u /* IRD and ORD, at the head of the private data of revision 2 */
/* RFC 5044 7.1.1 allows 512. Longer is refused before it is received. */
#define MPA_RECEIVED_MAX (MPA_HEADER_BYTES + 512u)
#define MPA_PRIVATE_DATA_MAX 252u /* what we send: 256 with the four */
#define MPA_SENT_MAX (MPA_HEADER_BYTES + MPA_ENHANCED_BYTES + MPA_PRIVATE_DATA_MAX)
#define MPA_IRD_MAX 0x3fffu

enum mpa_kind { MPA_REQUEST, MPA_REPLY };

/* A request or a reply. */
struct mpa_frame {
	uint8_t revision;
	bool markers, crc, reject;
	bool long_fpdus; /* siw's 0x08 */
	bool enhanced;	 /* S: ird, ord and the next three are there */
	bool peer_to_peer, rtr_write, rtr_read;
	uint16_t ird, ord;
	/* The user's, without the four bytes of revision 2; decoded: points into the input. */
	const uint8_t *private_data;
	uint16_t private_data_bytes;
};

/*
 * Decodes the first n bytes of a stream. Returns the length of the frame, which may be less than n;
 * 0 where more bytes are needed to tell; or -EPROTO, and *ret_why is a clause: not MPA's key, a
 * revision other than 1 and 2, more private data than the RFC allows, S with fewer than four bytes.
 * A wrong key is seen at its first wrong byte. At most MPA_RECEIVED_MAX bytes are ever asked for.
 */
int mpa_decode(enum mpa_kind kind, const uint8_t *bytes, size_t n, struct mpa_frame *ret,
	       const char **ret_why);

/* Up to which length a frame can be received, of which n bytes are here. */
size_t mpa_wanted(const uint8_t *bytes, size_t n);

/* Returns the length. private_data_bytes is at most MPA_PRIVATE_DATA_MAX (asserted). */
size_t mpa_encode(enum mpa_kind kind, const struct mpa_frame *frame,
		  uint8_t ret[static MPA_SENT_MAX]);

/* What this side would like. */
struct mpa_wants {
	bool crc;
	bool long_fpdus;
	uint16_t ird, ord; /* READs of the peer's, and of ours, at once; at least 1 */
};

enum mpa_rtr { MPA_RTR_NONE, MPA_RTR_WRITE, MPA_RTR_READ };

/* What was agreed. */
struct mpa_terms {
	bool crc, long_fpdus;
	uint16_t ird; /* READ requests that the peer may have under way here */
	uint16_t ord; /* that we may have under way there; 0: none at all */
	/* what the initiator sends first, so that the responder may speak; NONE: its first FPDU */
	enum mpa_rtr rtr;
};

/* The request of an initiator. */
void mpa_ask(const struct mpa_wants *wants, const void *private_data, size_t bytes,
	     struct mpa_frame *ret);

/*
 * The responder: can this request be served, and on which terms? 0, and *ret_reply is the reply
 * without private data, whose maker adds it, or sets `reject`. Or -EPROTO, *ret_why says why, and
 * *ret_reply is a rejection. A request without S, or a number of 3fff in it, bounds nothing: then
 * ird and ord are ours. What the reply says is what is agreed, 0 where the peer asked for none: an
 * initiator (siw's, for one) takes the reply's numbers without looking at its own. Of the kinds of
 * RTR offered a WRITE is chosen before a READ, and a READ only where the peer may have one under
 * way.
 */
int mpa_answer(const struct mpa_frame *request, const struct mpa_wants *wants,
	       struct mpa_frame *ret_reply, struct mpa_terms *ret_terms, const char **ret_why);

/*
 * The initiator: what does the reply to `request` (ours) mean? 0; -ECONNREFUSED: it is a rejection;
 * -EPROTO: it agrees to something that was not asked, asks for markers, or has a larger ORD than
 * the IRD that it was given (RFC 6581 9.1), *ret_why says what. A reply without S (of revision 1,
 * or 2) is accepted, with our own IRD and ORD as terms.
 */
int mpa_agree(const struct mpa_frame *request, const struct mpa_frame *reply,
	      const struct mpa_wants *wants, struct mpa_terms *ret_terms, const char **ret_why);

#endif
