/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "daemon/fabric/iwarp/mpa.h"

#include <errno.h>
#include <string.h>

#include "common/assert.h"
#include "daemon/fabric/iwarp/bytes.h"

#define KEY_BYTES 16u
#define FLAGS_AT 16u
#define REVISION_AT 17u
#define LENGTH_AT 18u

#define FLAG_MARKERS 0x80
#define FLAG_CRC 0x40
#define FLAG_REJECT 0x20
#define FLAG_ENHANCED 0x10
#define FLAG_LONG_FPDUS 0x08

/* In the two numbers of revision 2 (RFC 6581 7) */
#define IRD_PEER_TO_PEER 0x8000
#define ORD_RTR_WRITE 0x8000
#define ORD_RTR_READ 0x4000
/* "I do not say": the number is settled some other way (RFC 6581 9.1) */
#define UNSAID MPA_IRD_MAX

static const char keys[][KEY_BYTES + 1] = {
	[MPA_REQUEST] = "MPA ID Req Frame",
	[MPA_REPLY] = "MPA ID Rep Frame",
};

static uint16_t min16(uint16_t a, uint16_t b)
{
	return a < b ? a : b;
}

/* --------------------------------------------------------------------------------------- bytes */

static int wrong(const char *why, const char **ret_why)
{
	*ret_why = why;
	return -EPROTO;
}

static void decode_enhanced(const uint8_t *at, struct mpa_frame *f)
{
	uint16_t ird = iwarp_get16(at), ord = iwarp_get16(at + 2);

	f->enhanced = true;
	f->peer_to_peer = ird & IRD_PEER_TO_PEER;
	f->rtr_write = ord & ORD_RTR_WRITE;
	f->rtr_read = ord & ORD_RTR_READ;
	f->ird = ird & MPA_IRD_MAX;
	f->ord = ord & MPA_IRD_MAX;
}

size_t mpa_wanted(const uint8_t *bytes, size_t n)
{
	return MPA_HEADER_BYTES + (n < MPA_HEADER_BYTES ? 0u : iwarp_get16(bytes + LENGTH_AT));
}

int mpa_decode(enum mpa_kind kind, const uint8_t *bytes, size_t n, struct mpa_frame *ret,
	       const char **ret_why)
{
	uint16_t length;
	bool enhanced;
	struct mpa_frame f;

	if (n && memcmp(bytes, keys[kind], n < KEY_BYTES ? n : KEY_BYTES) != 0)
		return wrong(kind == MPA_REQUEST ? "this is no MPA request"
						 : "this is no MPA reply",
			     ret_why);
	if (n > REVISION_AT && bytes[REVISION_AT] != 1 && bytes[REVISION_AT] != 2)
		return wrong("its revision of MPA is neither 1 nor 2", ret_why);
	if (n < MPA_HEADER_BYTES)
		return 0;
	length = iwarp_get16(bytes + LENGTH_AT);
	if (length > MPA_RECEIVED_MAX - MPA_HEADER_BYTES)
		return wrong("its private data is longer than 512 bytes", ret_why);
	/* Revision 1 has no S: a reserved bit is not looked at. */
	enhanced = bytes[REVISION_AT] == 2 && (bytes[FLAGS_AT] & FLAG_ENHANCED);
	if (enhanced && length < MPA_ENHANCED_BYTES)
		return wrong("it lacks the IRD and ORD that it announces", ret_why);
	if (n < MPA_HEADER_BYTES + length)
		return 0;
	f = (struct mpa_frame){
		.revision = bytes[REVISION_AT],
		.markers = bytes[FLAGS_AT] & FLAG_MARKERS,
		.crc = bytes[FLAGS_AT] & FLAG_CRC,
		.reject = bytes[FLAGS_AT] & FLAG_REJECT,
		.long_fpdus = bytes[FLAGS_AT] & FLAG_LONG_FPDUS,
		.private_data = bytes + MPA_HEADER_BYTES,
		.private_data_bytes = length,
	};
	if (enhanced) {
		decode_enhanced(f.private_data, &f);
		f.private_data += MPA_ENHANCED_BYTES;
		f.private_data_bytes = (uint16_t)(length - MPA_ENHANCED_BYTES);
	}
	*ret = f;
	return (int)(MPA_HEADER_BYTES + length);
}

static size_t encode_enhanced(const struct mpa_frame *f, uint8_t *at)
{
	xc_assert(f->revision == 2 && f->ird <= MPA_IRD_MAX && f->ord <= MPA_IRD_MAX);
	iwarp_put16(at, (uint16_t)(f->ird | (f->peer_to_peer ? IRD_PEER_TO_PEER : 0)));
	iwarp_put16(at + 2, (uint16_t)(f->ord | (f->rtr_write ? ORD_RTR_WRITE : 0) |
				       (f->rtr_read ? ORD_RTR_READ : 0)));
	return MPA_ENHANCED_BYTES;
}

size_t mpa_encode(enum mpa_kind kind, const struct mpa_frame *f, uint8_t ret[static MPA_SENT_MAX])
{
	size_t length = 0;

	xc_assert(f->private_data_bytes <= MPA_PRIVATE_DATA_MAX);
	memcpy(ret, keys[kind], KEY_BYTES);
	ret[FLAGS_AT] =
		(uint8_t)((f->markers ? FLAG_MARKERS : 0) | (f->crc ? FLAG_CRC : 0) |
			  (f->reject ? FLAG_REJECT : 0) | (f->enhanced ? FLAG_ENHANCED : 0) |
			  (f->long_fpdus ? FLAG_LONG_FPDUS : 0));
	ret[REVISION_AT] = f->revision;
	if (f->enhanced)
		length = encode_enhanced(f, ret + MPA_HEADER_BYTES);
	if (f->private_data_bytes)
		memcpy(ret + MPA_HEADER_BYTES + length, f->private_data, f->private_data_bytes);
	length += f->private_data_bytes;
	iwarp_put16(ret + LENGTH_AT, (uint16_t)length);
	return MPA_HEADER_BYTES + length;
}

/* --------------------------------------------------------------------------------------- terms */

/* What we say of ourselves: at least 1, and no number that means "unsaid". */
static uint16_t said(uint16_t wanted)
{
	return wanted ? min16(wanted, UNSAID - 1) : 1;
}

/* What both can: `theirs` bounds ours, where they said it. */
static uint16_t bounded(uint16_t ours, uint16_t theirs)
{
	return theirs == UNSAID ? ours : min16(ours, theirs);
}

void mpa_ask(const struct mpa_wants *wants, const void *private_data, size_t bytes,
	     struct mpa_frame *ret)
{
	xc_assert(bytes <= MPA_PRIVATE_DATA_MAX);
	*ret = (struct mpa_frame){
		.revision = 2,
		.crc = wants->crc,
		.long_fpdus = wants->long_fpdus,
		.enhanced = true,
		.peer_to_peer = true,
		.rtr_write = true,
		.rtr_read = true,
		.ird = said(wants->ird),
		.ord = said(wants->ord),
		.private_data = private_data,
		.private_data_bytes = (uint16_t)bytes,
	};
}

/*
 * A WRITE costs its receiver nothing; a READ takes one of those that may be under way. RFC 6581
 * knows an empty FPDU as well, which is no message: not offered, and not taken.
 */
static enum mpa_rtr choose_rtr(bool write, bool read, uint16_t reads)
{
	if (write)
		return MPA_RTR_WRITE;
	return read && reads ? MPA_RTR_READ : MPA_RTR_NONE;
}

int mpa_answer(const struct mpa_frame *request, const struct mpa_wants *wants,
	       struct mpa_frame *ret_reply, struct mpa_terms *ret_terms, const char **ret_why)
{
	struct mpa_terms t = {
		.crc = request->crc || wants->crc,
		.long_fpdus = request->long_fpdus && wants->long_fpdus,
		.ird = said(wants->ird),
		.ord = said(wants->ord),
	};
	struct mpa_frame reply = {
		.revision = request->revision,
		.crc = t.crc,
		.long_fpdus = t.long_fpdus,
		.enhanced = request->enhanced,
	};
	const char *why = NULL;

	if (request->enhanced) {
		/* their ORD is how many of ours they will use, and the reverse */
		t.ird = bounded(t.ird, request->ord);
		t.ord = bounded(t.ord, request->ird);
		reply.ird = t.ird;
		reply.ord = t.ord;
	}
	if (request->enhanced && request->peer_to_peer) {
		t.rtr = choose_rtr(request->rtr_write, request->rtr_read, t.ird);
		reply.peer_to_peer = true;
		reply.rtr_write = t.rtr == MPA_RTR_WRITE;
		reply.rtr_read = t.rtr == MPA_RTR_READ;
		if (t.rtr == MPA_RTR_NONE)
			why = "it offers no ready-to-receive message that is known here";
	}
	if (request->markers)
		why = "it asks for markers, which are not supported";
	reply.reject = why != NULL;
	*ret_reply = reply;
	if (why)
		return wrong(why, ret_why);
	*ret_terms = t;
	return 0;
}

/* What a reply of revision 2 says of READs and of who speaks first. */
static int agree_enhanced(const struct mpa_frame *request, const struct mpa_frame *reply,
			  struct mpa_terms *t, const char **ret_why)
{
	if (reply->ord != UNSAID && reply->ord > request->ird)
		return wrong("it would have more READs under way than it was allowed", ret_why);
	t->ird = bounded(request->ird, reply->ord);
	t->ord = bounded(request->ord, reply->ird);
	if (!reply->peer_to_peer)
		return 0;
	if (!request->peer_to_peer)
		return wrong("it answers as a peer, which was not offered", ret_why);
	t->rtr = choose_rtr(request->rtr_write && reply->rtr_write,
			    request->rtr_read && reply->rtr_read, t->ord);
	if (t->rtr == MPA_RTR_NONE)
		return wrong("it wants a ready-to-receive message that was not offered", ret_why);
	return 0;
}

int mpa_agree(const struct mpa_frame *request, const struct mpa_frame *reply,
	      const struct mpa_wants *wants, struct mpa_terms *ret_terms, const char **ret_why)
{
	struct mpa_terms t = {
		.crc = request->crc || reply->crc,
		.long_fpdus = request->long_fpdus && reply->long_fpdus,
		.ird = said(wants->ird),
		.ord = said(wants->ord),
	};
	int err = 0;

	if (reply->reject)
		return -ECONNREFUSED;
	if (reply->markers)
		return wrong("it asks for markers, which are not supported", ret_why);
	if (reply->revision > request->revision)
		return wrong("it answers in a later revision of MPA", ret_why);
	if (reply->enhanced && request->enhanced)
		err = agree_enhanced(request, reply, &t, ret_why);
	if (!err)
		*ret_terms = t;
	return err;
}
