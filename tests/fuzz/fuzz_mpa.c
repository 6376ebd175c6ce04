/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The start of an MPA connection, as either side hears it: the bytes come in pieces, of which no
 * one is told before it is there; and whatever is agreed on is what was asked for.
 *
 * The input: a byte of what this side wants, and of which side it is; a byte that says how the
 * bytes are cut; the stream.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/assert.h"
#include "daemon/fabric/iwarp/mpa.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define HEAD 2u
#define WANT_CRC 0x01u
#define WANT_LONG 0x02u
#define IS_INITIATOR 0x04u
#define FEW_READS 0x08u
#define NO_PEER 0x10u /* the initiator did not offer the peer-to-peer model */
#define ONE_RTR 0x20u /* nor a WRITE to begin with */

static void check_frame(const struct mpa_frame *f, const uint8_t *bytes, int length)
{
	xc_assert(f->revision == 1 || f->revision == 2);
	xc_assert(!f->enhanced || f->revision == 2);
	xc_assert(f->ird <= MPA_IRD_MAX && f->ord <= MPA_IRD_MAX);
	xc_assert(f->private_data + f->private_data_bytes == bytes + length);
}

/* It comes in pieces of 1 to `cut` bytes; each is a copy, so that a byte too far is seen. */
static int receive(enum mpa_kind kind, const uint8_t *bytes, size_t n, size_t cut,
		   struct mpa_frame *ret)
{
	const char *why = NULL;
	int rc = 0;

	for (size_t have = 0; rc == 0; have += 1 + have % cut) {
		size_t here = have < n ? have : n;
		uint8_t *copy = malloc(here ? here : 1);

		xc_assert(copy);
		if (here)
			memcpy(copy, bytes, here);
		rc = mpa_decode(kind, copy, here, ret, &why);
		xc_assert(rc == 0 || rc == -EPROTO ||
			  (rc >= (int)MPA_HEADER_BYTES && (size_t)rc <= here));
		xc_assert((rc == -EPROTO) == (why != NULL));
		xc_assert(rc != 0 || here < MPA_RECEIVED_MAX);
		xc_assert(mpa_wanted(copy, here) > here || rc != 0);
		if (rc > 0) {
			check_frame(ret, copy, rc);
			ret->private_data = bytes + (rc - ret->private_data_bytes);
		}
		free(copy);
		if (here == n)
			break;
	}
	return rc;
}

/* What one says the other understands as it was meant. */
static void round_trip(enum mpa_kind kind, const struct mpa_frame *f)
{
	uint8_t bytes[MPA_SENT_MAX];
	struct mpa_frame got;
	const char *why;
	size_t n = mpa_encode(kind, f, bytes);

	xc_assert(n <= sizeof(bytes) && n - MPA_HEADER_BYTES <= 256);
	xc_assert(mpa_decode(kind, bytes, n, &got, &why) == (int)n);
	xc_assert(got.revision == f->revision && got.crc == f->crc && got.reject == f->reject);
	xc_assert(got.markers == f->markers && got.long_fpdus == f->long_fpdus);
	xc_assert(got.enhanced == f->enhanced && got.ird == f->ird && got.ord == f->ord);
	xc_assert(got.peer_to_peer == f->peer_to_peer && got.rtr_write == f->rtr_write &&
		  got.rtr_read == f->rtr_read);
}

static void check_terms(const struct mpa_terms *t, const struct mpa_wants *w,
			const struct mpa_frame *request, const struct mpa_frame *reply)
{
	xc_assert(t->ird <= w->ird && t->ord <= w->ord);
	xc_assert(t->crc == (request->crc || reply->crc));
	xc_assert(t->long_fpdus == (request->long_fpdus && reply->long_fpdus));
	xc_assert(!request->markers && !reply->markers && !reply->reject);
	xc_assert(t->rtr == MPA_RTR_NONE || (request->peer_to_peer && reply->peer_to_peer));
	xc_assert(t->rtr != MPA_RTR_WRITE || (request->rtr_write && reply->rtr_write));
	xc_assert(t->rtr != MPA_RTR_READ || (request->rtr_read && reply->rtr_read));
}

/* Ours does with its own answer what the peer would do: both mean the same. */
static void both_mean_the_same(const struct mpa_frame *request, const struct mpa_frame *reply,
			       const struct mpa_terms *t)
{
	const struct mpa_wants theirs = { .crc = request->crc, .ird = request->ird,
					  .ord = request->ord };
	struct mpa_terms other;
	const char *why;

	/* Numbers that are not said, or are 0, mean nothing to this initiator. */
	if (!request->enhanced || !request->ird || !request->ord || request->ird == MPA_IRD_MAX ||
	    request->ord == MPA_IRD_MAX)
		return;
	xc_assert(mpa_agree(request, reply, &theirs, &other, &why) == 0);
	xc_assert(other.crc == t->crc && other.long_fpdus == t->long_fpdus);
	xc_assert(other.ird == t->ord && other.ord == t->ird && other.rtr == t->rtr);
}

static void respond(const struct mpa_frame *request, const struct mpa_wants *wants)
{
	struct mpa_terms terms;
	struct mpa_frame reply;
	const char *why = NULL;
	int rc = mpa_answer(request, wants, &reply, &terms, &why);

	xc_assert(rc == 0 || rc == -EPROTO);
	xc_assert((rc != 0) == (why != NULL) && reply.reject == (rc != 0));
	xc_assert(reply.revision == request->revision && reply.enhanced == request->enhanced);
	reply.private_data = request->private_data;
	reply.private_data_bytes = request->private_data_bytes < MPA_PRIVATE_DATA_MAX
					   ? request->private_data_bytes
					   : MPA_PRIVATE_DATA_MAX;
	round_trip(MPA_REPLY, &reply);
	if (rc)
		return;
	check_terms(&terms, wants, request, &reply);
	both_mean_the_same(request, &reply, &terms);
}

static void initiate(const struct mpa_frame *reply, const struct mpa_wants *wants, uint8_t head)
{
	struct mpa_frame request;
	struct mpa_terms terms;
	const char *why = NULL;
	int rc;

	mpa_ask(wants, NULL, 0, &request);
	request.peer_to_peer = !(head & NO_PEER);
	request.rtr_write = !(head & ONE_RTR);
	round_trip(MPA_REQUEST, &request);
	rc = mpa_agree(&request, reply, wants, &terms, &why);
	xc_assert(rc == 0 || rc == -EPROTO || rc == -ECONNREFUSED);
	xc_assert((rc == -EPROTO) == (why != NULL) && reply->reject == (rc == -ECONNREFUSED));
	if (rc == 0)
		check_terms(&terms, wants, &request, reply);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct mpa_wants wants = { .ird = 32, .ord = 32 };
	struct mpa_frame frame;
	enum mpa_kind kind;

	if (size < HEAD)
		return 0;
	wants.crc = data[0] & WANT_CRC;
	wants.long_fpdus = data[0] & WANT_LONG;
	if (data[0] & FEW_READS)
		wants.ird = wants.ord = 1;
	kind = data[0] & IS_INITIATOR ? MPA_REPLY : MPA_REQUEST;
	if (receive(kind, data + HEAD, size - HEAD, data[1] + 1u, &frame) <= 0)
		return 0;
	if (kind == MPA_REQUEST)
		respond(&frame, &wants);
	else
		initiate(&frame, &wants, data[0]);
	return 0;
}
