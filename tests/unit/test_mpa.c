/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The start of MPA as bytes and as terms, without a socket.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/fabric/iwarp/mpa.h"
#include "tests/unit/cm.h"

#define ROUNDS 20000

static const struct mpa_wants plain = { .ird = 32, .ord = 16 };
static uint64_t seed = 1;

/* xorshift64: the same bytes in every run */
static uint64_t dice(uint64_t n)
{
	seed ^= seed << 13;
	seed ^= seed >> 7;
	seed ^= seed << 17;
	return seed % n;
}

static bool coin(void)
{
	return dice(2);
}

static void assert_same(const struct mpa_frame *a, const struct mpa_frame *b)
{
	assert_int_equal(a->revision, b->revision);
	assert_int_equal(a->markers, b->markers);
	assert_int_equal(a->crc, b->crc);
	assert_int_equal(a->reject, b->reject);
	assert_int_equal(a->long_fpdus, b->long_fpdus);
	assert_int_equal(a->enhanced, b->enhanced);
	assert_int_equal(a->peer_to_peer, b->peer_to_peer);
	assert_int_equal(a->rtr_write, b->rtr_write);
	assert_int_equal(a->rtr_read, b->rtr_read);
	assert_int_equal(a->ird, b->ird);
	assert_int_equal(a->ord, b->ord);
	assert_int_equal(a->private_data_bytes, b->private_data_bytes);
	if (a->private_data_bytes)
		assert_memory_equal(a->private_data, b->private_data, a->private_data_bytes);
}

static struct mpa_frame some_frame(const uint8_t *private_data)
{
	struct mpa_frame f = {
		.revision = (uint8_t)(1 + dice(2)),
		.markers = coin(),
		.crc = coin(),
		.reject = coin(),
		.long_fpdus = coin(),
		.private_data = private_data,
		.private_data_bytes = (uint16_t)dice(MPA_PRIVATE_DATA_MAX + 1),
	};

	if (f.revision == 2 && coin()) {
		f.enhanced = true;
		f.peer_to_peer = coin();
		f.rtr_write = coin();
		f.rtr_read = coin();
		f.ird = (uint16_t)dice(MPA_IRD_MAX + 1);
		f.ord = (uint16_t)dice(MPA_IRD_MAX + 1);
	}
	return f;
}

static void round_trips(void **state)
{
	uint8_t private_data[MPA_PRIVATE_DATA_MAX], bytes[MPA_SENT_MAX];
	const char *why = NULL;

	(void)state;
	for (size_t i = 0; i < sizeof(private_data); i++)
		private_data[i] = (uint8_t)dice(256);
	for (int i = 0; i < ROUNDS; i++) {
		enum mpa_kind kind = coin() ? MPA_REQUEST : MPA_REPLY;
		struct mpa_frame sent = some_frame(private_data), got;
		size_t n = mpa_encode(kind, &sent, bytes), enhanced = sent.enhanced ? 4 : 0;

		assert_int_equal(n, 20 + enhanced + sent.private_data_bytes);
		assert_int_equal(mpa_decode(kind, bytes, n, &got, &why), n);
		assert_same(&sent, &got);
		assert_ptr_equal(got.private_data, bytes + 20 + enhanced);
		/* What comes behind it is not looked at. */
		if (n < sizeof(bytes))
			assert_int_equal(mpa_decode(kind, bytes, sizeof(bytes), &got, &why), n);
		assert_int_equal(mpa_decode(kind == MPA_REQUEST ? MPA_REPLY : MPA_REQUEST, bytes, n,
					    &got, &why),
				 -EPROTO);
	}
}

/* A frame whose bytes come one by one is told at its last, not before. */
static void waits_at_every_byte(void **state)
{
	static const uint8_t private_data[MPA_PRIVATE_DATA_MAX] = "private";
	struct mpa_frame f, got;
	const char *why = NULL;

	(void)state;
	mpa_ask(&plain, private_data, sizeof(private_data), &f);
	for (int kind = MPA_REQUEST; kind <= MPA_REPLY; kind++) {
		for (uint16_t length = 0; length <= sizeof(private_data); length += 63) {
			uint8_t whole[MPA_SENT_MAX];
			size_t n;

			f.private_data_bytes = length;
			n = mpa_encode(kind, &f, whole);
			for (size_t i = 0; i < n; i++) {
				/* an exact copy: a byte too far is seen by the address sanitizer */
				uint8_t *part = malloc(i + !i);

				memcpy(part, whole, i);
				assert_int_equal(mpa_decode(kind, part, i, &got, &why), 0);
				free(part);
			}
			assert_int_equal(mpa_decode(kind, whole, n, &got, &why), n);
		}
	}
	assert_null(why);
}

/* The bytes themselves, as RFC 5044 7.1 and RFC 6581 7 have them. */
static void has_the_layout(void **state)
{
	static const uint8_t request[] = "MPA ID Req Frame\xd8\x02\x00\x06\x80\x20\xc0\x10hi";
	static const uint8_t reply[] = "MPA ID Rep Frame\x20\x01\x00\x02no";
	struct mpa_frame f = {
		.revision = 2,
		.markers = true,
		.crc = true,
		.long_fpdus = true,
		.enhanced = true,
		.peer_to_peer = true,
		.rtr_write = true,
		.rtr_read = true,
		.ird = 32,
		.ord = 16,
		.private_data = (const uint8_t *)"hi",
		.private_data_bytes = 2,
	};
	uint8_t bytes[MPA_SENT_MAX];

	(void)state;
	assert_int_equal(mpa_encode(MPA_REQUEST, &f, bytes), sizeof(request) - 1);
	assert_memory_equal(bytes, request, sizeof(request) - 1);
	f = (struct mpa_frame){
		.revision = 1,
		.reject = true,
		.private_data = (const uint8_t *)"no",
		.private_data_bytes = 2,
	};
	assert_int_equal(mpa_encode(MPA_REPLY, &f, bytes), sizeof(reply) - 1);
	assert_memory_equal(bytes, reply, sizeof(reply) - 1);
}

/* With each bit of the key turned over: an error at that very byte. */
static void knows_a_wrong_key_at_its_first_byte(void **state)
{
	struct mpa_frame f, got;
	uint8_t bytes[MPA_SENT_MAX];

	(void)state;
	mpa_ask(&plain, NULL, 0, &f);
	for (int kind = MPA_REQUEST; kind <= MPA_REPLY; kind++) {
		(void)mpa_encode(kind, &f, bytes);
		for (size_t bit = 0; bit < 128; bit++) {
			const char *why = NULL;

			bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
			assert_int_equal(mpa_decode(kind, bytes, bit / 8, &got, &why), 0);
			assert_null(why);
			assert_int_equal(mpa_decode(kind, bytes, bit / 8 + 1, &got, &why), -EPROTO);
			assert_non_null(strstr(why, kind == MPA_REQUEST ? "request" : "reply"));
			bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
		}
	}
}

static void refuses_other_revisions(void **state)
{
	struct mpa_frame f, got;
	uint8_t bytes[MPA_SENT_MAX];

	(void)state;
	mpa_ask(&plain, NULL, 0, &f);
	(void)mpa_encode(MPA_REQUEST, &f, bytes);
	for (unsigned int revision = 0; revision < 256; revision++) {
		const char *why = NULL;
		int expected = revision == 1 || revision == 2 ? 0 : -EPROTO;

		bytes[17] = (uint8_t)revision;
		assert_int_equal(mpa_decode(MPA_REQUEST, bytes, 17, &got, &why), 0);
		assert_int_equal(mpa_decode(MPA_REQUEST, bytes, 18, &got, &why), expected);
		if (expected)
			assert_non_null(strstr(why, "revision"));
	}
}

static int decode_of(uint8_t flags, uint8_t revision, unsigned int length, size_t n,
		     struct mpa_frame *ret, const char **ret_why)
{
	static uint8_t bytes[20 + 65536];

	memcpy(bytes, "MPA ID Req Frame", 16);
	bytes[16] = flags;
	bytes[17] = revision;
	bytes[18] = (uint8_t)(length >> 8);
	bytes[19] = (uint8_t)length;
	return mpa_decode(MPA_REQUEST, bytes, n, ret, ret_why);
}

/* Up to the 512 of the RFC it is received; more is refused before any of it is. */
static void bounds_private_data(void **state)
{
	struct mpa_frame got;
	const char *why = NULL;

	(void)state;
	assert_int_equal(decode_of(0, 1, 512, 20, &got, &why), 0);
	assert_int_equal(decode_of(0, 1, 512, 531, &got, &why), 0);
	assert_int_equal(decode_of(0, 1, 512, 532, &got, &why), MPA_RECEIVED_MAX);
	assert_int_equal(got.private_data_bytes, 512);
	assert_int_equal(decode_of(0x10, 2, 512, 532, &got, &why), MPA_RECEIVED_MAX);
	assert_int_equal(got.private_data_bytes, 508);
	assert_null(why);
	for (unsigned int length = 513; length < 65536; length++) {
		assert_int_equal(decode_of(0, 1, length, 19, &got, &why), 0);
		assert_int_equal(decode_of(0, 1, length, 20, &got, &why), -EPROTO);
	}
	assert_non_null(strstr(why, "512"));
}

static void wants_the_four_bytes_of_revision_2(void **state)
{
	struct mpa_frame got;
	const char *why = NULL;

	(void)state;
	for (unsigned int length = 0; length < 4; length++) {
		why = NULL;
		assert_int_equal(decode_of(0x10, 2, length, 19, &got, &why), 0);
		assert_int_equal(decode_of(0x10, 2, length, 20, &got, &why), -EPROTO);
		assert_non_null(strstr(why, "IRD"));
		/* A reserved bit in revision 1, and revision 2 without S */
		assert_int_equal(decode_of(0x10, 1, length, 24, &got, &why), 20 + length);
		assert_false(got.enhanced);
		assert_int_equal(decode_of(0, 2, length, 24, &got, &why), 20 + length);
		assert_false(got.enhanced);
	}
	assert_int_equal(decode_of(0x10, 2, 4, 24, &got, &why), 24);
	assert_true(got.enhanced);
	assert_int_equal(got.private_data_bytes, 0);
}

/* What the smallest of our frames is like, and the largest. */
static void never_says_what_siw_does_not_survive(void **state)
{
	static const uint8_t private_data[MPA_PRIVATE_DATA_MAX];
	uint8_t bytes[MPA_SENT_MAX];

	(void)state;
	for (int i = 0; i < ROUNDS; i++) {
		struct mpa_frame request = some_frame(private_data), reply;
		struct mpa_terms terms;
		const char *why;
		size_t n;

		request.reject = false;
		(void)mpa_answer(&request, &plain, &reply, &terms, &why);
		reply.private_data = private_data;
		reply.private_data_bytes = (uint16_t)dice(MPA_PRIVATE_DATA_MAX + 1);
		n = mpa_encode(MPA_REPLY, &reply, bytes);
		assert_true(n - 20 <= 256);
		assert_int_equal(bytes[18] << 8 | bytes[19], n - 20);
		assert_true(!(bytes[16] & 0x10) || n >= 24);
		assert_int_equal(bytes[17], request.revision);
		assert_int_equal(bytes[16] & 0x80, 0);
	}
}

/* --------------------------------------------------------------------------------------- terms */

static struct mpa_frame asked(const struct mpa_wants *wants)
{
	struct mpa_frame f;

	mpa_ask(wants, NULL, 0, &f);
	return f;
}

static void asks_for_everything(void **state)
{
	struct mpa_wants none = { 0 }, most = { .ird = UINT16_MAX, .ord = UINT16_MAX };
	struct mpa_frame f;

	(void)state;
	mpa_ask(&plain, "abc", 3, &f);
	assert_int_equal(f.revision, 2);
	assert_true(f.enhanced && f.peer_to_peer && f.rtr_write && f.rtr_read);
	assert_false(f.markers || f.reject || f.crc || f.long_fpdus);
	assert_int_equal(f.ird, 32);
	assert_int_equal(f.ord, 16);
	assert_int_equal(f.private_data_bytes, 3);
	f = asked(&none);
	assert_int_equal(f.ird, 1);
	assert_int_equal(f.ord, 1);
	/* 3fff would say that the number is settled elsewhere */
	f = asked(&most);
	assert_int_equal(f.ird, 0x3ffe);
	assert_int_equal(f.ord, 0x3ffe);
}

/* Through the bytes, as two hosts would. */
static int meet(const struct mpa_wants *a, const struct mpa_wants *b, struct mpa_terms *ret_a,
		struct mpa_terms *ret_b)
{
	struct mpa_frame request = asked(a), reply, heard;
	uint8_t bytes[MPA_SENT_MAX];
	const char *why;
	size_t n = mpa_encode(MPA_REQUEST, &request, bytes);

	assert_int_equal(mpa_decode(MPA_REQUEST, bytes, n, &heard, &why), n);
	assert_int_equal(mpa_answer(&heard, b, &reply, ret_b, &why), 0);
	n = mpa_encode(MPA_REPLY, &reply, bytes);
	assert_int_equal(mpa_decode(MPA_REPLY, bytes, n, &heard, &why), n);
	return mpa_agree(&request, &heard, a, ret_a, &why);
}

/* Whatever two of ours want, they agree, and mean the same. */
static void agrees_with_itself(void **state)
{
	(void)state;
	for (int i = 0; i < ROUNDS; i++) {
		struct mpa_wants w[2];
		struct mpa_terms t[2];

		for (int side = 0; side < 2; side++)
			w[side] = (struct mpa_wants){
				.crc = coin(),
				.long_fpdus = coin(),
				.ird = (uint16_t)(1 + dice(100)),
				.ord = (uint16_t)(1 + dice(100)),
			};
		assert_int_equal(meet(&w[0], &w[1], &t[0], &t[1]), 0);
		assert_int_equal(t[0].crc, w[0].crc || w[1].crc);
		assert_int_equal(t[1].crc, t[0].crc);
		assert_int_equal(t[0].long_fpdus, w[0].long_fpdus && w[1].long_fpdus);
		assert_int_equal(t[1].long_fpdus, t[0].long_fpdus);
		assert_int_equal(t[0].rtr, MPA_RTR_WRITE);
		assert_int_equal(t[1].rtr, MPA_RTR_WRITE);
		/* as many as one side asks for and the other side takes */
		assert_int_equal(t[0].ord, w[0].ord < w[1].ird ? w[0].ord : w[1].ird);
		assert_int_equal(t[1].ird, t[0].ord);
		assert_int_equal(t[1].ord, w[1].ord < w[0].ird ? w[1].ord : w[0].ird);
		assert_int_equal(t[0].ird, t[1].ord);
	}
}

static void answers_each_revision_in_its_own(void **state)
{
	struct mpa_frame request = { .revision = 1, .crc = true, .long_fpdus = true }, reply;
	struct mpa_wants wants = plain;
	struct mpa_terms terms;
	const char *why;

	(void)state;
	for (request.revision = 1; request.revision <= 2; request.revision++) {
		assert_int_equal(mpa_answer(&request, &wants, &reply, &terms, &why), 0);
		assert_int_equal(reply.revision, request.revision);
		assert_false(reply.enhanced || reply.reject || reply.peer_to_peer);
		assert_true(terms.crc && reply.crc);
		assert_false(terms.long_fpdus || reply.long_fpdus);
		assert_int_equal(terms.ird, 32);
		assert_int_equal(terms.ord, 16);
		assert_int_equal(terms.rtr, MPA_RTR_NONE);
		assert_int_equal(reply.private_data_bytes, 0);
	}
	request.crc = false;
	wants.crc = wants.long_fpdus = true;
	assert_int_equal(mpa_answer(&request, &wants, &reply, &terms, &why), 0);
	assert_true(terms.crc && reply.crc && terms.long_fpdus && reply.long_fpdus);
	/* R means nothing in a request. */
	request.reject = true;
	assert_int_equal(mpa_answer(&request, &wants, &reply, &terms, &why), 0);
	assert_false(reply.reject);
}

/* siw's request: revision 2 with numbers, client and server */
static void answers_a_client(void **state)
{
	struct mpa_frame request = { .revision = 2, .enhanced = true, .ird = 1, .ord = 0 }, reply;
	struct mpa_terms terms;
	const char *why;

	(void)state;
	assert_int_equal(mpa_answer(&request, &plain, &reply, &terms, &why), 0);
	assert_true(reply.enhanced);
	assert_false(reply.peer_to_peer || reply.rtr_write || reply.rtr_read);
	assert_int_equal(terms.rtr, MPA_RTR_NONE);
	assert_int_equal(terms.ord, 1);
	assert_int_equal(terms.ird, 0);
	assert_int_equal(reply.ird, 0);
	assert_int_equal(reply.ord, 1);
	request.ird = request.ord = MPA_IRD_MAX;
	assert_int_equal(mpa_answer(&request, &plain, &reply, &terms, &why), 0);
	assert_int_equal(terms.ird, 32);
	assert_int_equal(terms.ord, 16);
}

static void declines_markers(void **state)
{
	struct mpa_frame request = asked(&plain), reply;
	struct mpa_terms terms;
	const char *why = NULL;

	(void)state;
	for (request.revision = 2; request.revision; request.revision--) {
		request.enhanced = request.revision == 2;
		request.markers = true;
		assert_int_equal(mpa_answer(&request, &plain, &reply, &terms, &why), -EPROTO);
		assert_non_null(strstr(why, "markers"));
		assert_true(reply.reject);
		assert_false(reply.markers);
		assert_int_equal(reply.enhanced, request.enhanced);
	}
	request = asked(&plain);
	assert_int_equal(mpa_answer(&request, &plain, &reply, &terms, &why), 0);
	reply.markers = true;
	why = NULL;
	assert_int_equal(mpa_agree(&request, &reply, &plain, &terms, &why), -EPROTO);
	assert_non_null(strstr(why, "markers"));
}

/* All that a peer can offer, and all that it can answer: RFC 6581 9.2. */
static void chooses_an_rtr(void **state)
{
	struct mpa_frame request = asked(&plain), reply;
	struct mpa_terms terms;
	const char *why = NULL;

	(void)state;
	request.rtr_write = false;
	assert_int_equal(mpa_answer(&request, &plain, &reply, &terms, &why), 0);
	assert_int_equal(terms.rtr, MPA_RTR_READ);
	assert_true(reply.peer_to_peer && reply.rtr_read && !reply.rtr_write);
	request.ord = 0;
	assert_int_equal(mpa_answer(&request, &plain, &reply, &terms, &why), -EPROTO);
	assert_non_null(strstr(why, "ready-to-receive"));
	assert_true(reply.reject);
	request.ord = 1;
	request.rtr_read = false;
	assert_int_equal(mpa_answer(&request, &plain, &reply, &terms, &why), -EPROTO);
	request.rtr_write = true;
	assert_int_equal(mpa_answer(&request, &plain, &reply, &terms, &why), 0);
	assert_int_equal(terms.rtr, MPA_RTR_WRITE);
}

static void hears_which_rtr(void **state)
{
	struct mpa_frame request = asked(&plain), reply;
	struct mpa_terms terms;
	const char *why = NULL;

	(void)state;
	assert_int_equal(mpa_answer(&request, &plain, &reply, &terms, &why), 0);
	reply.rtr_read = true; /* both: ours to choose */
	assert_int_equal(mpa_agree(&request, &reply, &plain, &terms, &why), 0);
	assert_int_equal(terms.rtr, MPA_RTR_WRITE);
	reply.rtr_write = false;
	assert_int_equal(mpa_agree(&request, &reply, &plain, &terms, &why), 0);
	assert_int_equal(terms.rtr, MPA_RTR_READ);
	reply.ird = 0; /* a READ, but none may be under way */
	assert_int_equal(mpa_agree(&request, &reply, &plain, &terms, &why), -EPROTO);
	assert_non_null(strstr(why, "ready-to-receive"));
	reply.rtr_read = false;
	assert_int_equal(mpa_agree(&request, &reply, &plain, &terms, &why), -EPROTO);
	reply.peer_to_peer = false; /* a server: the first FPDU */
	reply.rtr_write = true;
	assert_int_equal(mpa_agree(&request, &reply, &plain, &terms, &why), 0);
	assert_int_equal(terms.rtr, MPA_RTR_NONE);
	assert_int_equal(terms.ord, 0);
	/* what was not offered */
	reply.peer_to_peer = true;
	request.rtr_write = false;
	assert_int_equal(mpa_agree(&request, &reply, &plain, &terms, &why), -EPROTO);
	request.peer_to_peer = false;
	why = NULL;
	assert_int_equal(mpa_agree(&request, &reply, &plain, &terms, &why), -EPROTO);
	assert_non_null(strstr(why, "peer"));
}

static void understands_replies(void **state)
{
	struct mpa_frame request = asked(&plain), reply = { .revision = 1 };
	struct mpa_terms terms;
	const char *why = NULL;

	(void)state;
	for (reply.revision = 1; reply.revision <= 2; reply.revision++) {
		assert_int_equal(mpa_agree(&request, &reply, &plain, &terms, &why), 0);
		assert_int_equal(terms.ird, 32);
		assert_int_equal(terms.ord, 16);
		assert_int_equal(terms.rtr, MPA_RTR_NONE);
		assert_false(terms.crc || terms.long_fpdus);
	}
	/* Flag 08 in a reply alone means nothing; C does. */
	reply = (struct mpa_frame){ .revision = 2, .crc = true, .long_fpdus = true };
	assert_int_equal(mpa_agree(&request, &reply, &plain, &terms, &why), 0);
	assert_true(terms.crc);
	assert_false(terms.long_fpdus);
	reply.crc = false;
	request.crc = request.long_fpdus = true;
	assert_int_equal(mpa_agree(&request, &reply, &plain, &terms, &why), 0);
	assert_true(terms.crc && terms.long_fpdus);
	/* A rejection is one whatever else stands in it. */
	reply.reject = reply.markers = true;
	assert_int_equal(mpa_agree(&request, &reply, &plain, &terms, &why), -ECONNREFUSED);
	request.revision = 1;
	request.enhanced = false;
	reply = (struct mpa_frame){ .revision = 2, .enhanced = true };
	assert_int_equal(mpa_agree(&request, &reply, &plain, &terms, &why), -EPROTO);
	assert_non_null(strstr(why, "revision"));
}

static void bounds_the_peers_reads(void **state)
{
	struct mpa_frame request = asked(&plain);
	struct mpa_frame reply = { .revision = 2, .enhanced = true, .ird = 100, .ord = 32 };
	struct mpa_terms terms;
	const char *why = NULL;

	(void)state;
	assert_int_equal(mpa_agree(&request, &reply, &plain, &terms, &why), 0);
	assert_int_equal(terms.ird, 32);
	assert_int_equal(terms.ord, 16);
	reply.ird = 3;
	assert_int_equal(mpa_agree(&request, &reply, &plain, &terms, &why), 0);
	assert_int_equal(terms.ord, 3);
	reply.ird = reply.ord = MPA_IRD_MAX;
	assert_int_equal(mpa_agree(&request, &reply, &plain, &terms, &why), 0);
	assert_int_equal(terms.ird, 32);
	assert_int_equal(terms.ord, 16);
	reply.ord = 33;
	assert_int_equal(mpa_agree(&request, &reply, &plain, &terms, &why), -EPROTO);
	assert_non_null(strstr(why, "READs"));
}

/* Noise behind a right head: never a frame of more than its bytes, never a read beyond them. */
static void takes_noise(void **state)
{
	(void)state;
	for (int i = 0; i < ROUNDS; i++) {
		size_t n = 16 + dice(MPA_RECEIVED_MAX);
		uint8_t *bytes = malloc(n);
		const char *why = NULL;
		struct mpa_frame f;
		int rc;

		memcpy(bytes, "MPA ID Req Frame", 16);
		for (size_t at = 16; at < n; at++)
			bytes[at] = (uint8_t)dice(at < 19 ? 4 : 256);
		rc = mpa_decode(MPA_REQUEST, bytes, n, &f, &why);
		if (rc > 0) {
			assert_in_range(rc, MPA_HEADER_BYTES, n);
			assert_ptr_equal(f.private_data + f.private_data_bytes, bytes + rc);
		} else {
			assert_int_equal(rc, why ? -EPROTO : 0);
		}
		free(bytes);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(round_trips),
		cmocka_unit_test(waits_at_every_byte),
		cmocka_unit_test(has_the_layout),
		cmocka_unit_test(knows_a_wrong_key_at_its_first_byte),
		cmocka_unit_test(refuses_other_revisions),
		cmocka_unit_test(bounds_private_data),
		cmocka_unit_test(wants_the_four_bytes_of_revision_2),
		cmocka_unit_test(never_says_what_siw_does_not_survive),
		cmocka_unit_test(asks_for_everything),
		cmocka_unit_test(agrees_with_itself),
		cmocka_unit_test(answers_each_revision_in_its_own),
		cmocka_unit_test(answers_a_client),
		cmocka_unit_test(declines_markers),
		cmocka_unit_test(chooses_an_rtr),
		cmocka_unit_test(hears_which_rtr),
		cmocka_unit_test(understands_replies),
		cmocka_unit_test(bounds_the_peers_reads),
		cmocka_unit_test(takes_noise),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
