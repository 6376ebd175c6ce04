/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Headers of DDP and RDMAP, and Terminate, as bytes.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/fabric/iwarp/ddp.h"
#include "tests/unit/cm.h"

#define ROUNDS 20000

static uint64_t seed = 1;

/* xorshift64: the same bytes in every run */
static uint64_t dice(void)
{
	seed ^= seed << 13;
	seed ^= seed >> 7;
	seed ^= seed << 17;
	return seed;
}

static const struct {
	bool tagged, invalidates;
	uint32_t qn;
} ops[] = {
	{ true, false, 0 }, { false, false, 1 }, { true, false, 0 }, { false, false, 0 },
	{ false, true, 0 }, { false, false, 0 }, { false, true, 0 }, { false, false, 2 },
};

/* A sound header of this opcode. */
static struct ddp_header some_header(uint8_t op)
{
	struct ddp_header h = { .op = op, .tagged = ops[op].tagged, .last = dice() & 1 };
	bool single = op == RDMAP_READ_REQUEST || op == RDMAP_TERMINATE;

	if (h.tagged) {
		h.stag = (uint32_t)dice();
		h.to = dice() << 1 ^ dice();
		return h;
	}
	h.invalidate_stag = ops[op].invalidates ? (uint32_t)dice() : 0;
	h.qn = ops[op].qn;
	h.msn = (uint32_t)dice();
	h.mo = single ? 0 : (uint32_t)dice();
	h.last |= single;
	return h;
}

static uint16_t some_length(uint8_t op)
{
	if (op == RDMAP_READ_REQUEST)
		return DDP_UNTAGGED_BYTES + RDMAP_READ_REQUEST_BYTES;
	return DDP_UNTAGGED_BYTES + 4 + (uint16_t)(dice() % 60000);
}

static void assert_same(const struct ddp_header *a, const struct ddp_header *b)
{
	assert_int_equal(a->tagged, b->tagged);
	assert_int_equal(a->last, b->last);
	assert_int_equal(a->op, b->op);
	if (a->tagged) {
		assert_int_equal(a->stag, b->stag);
		assert_true(a->to == b->to);
		return;
	}
	assert_int_equal(a->invalidate_stag, b->invalidate_stag);
	assert_int_equal(a->qn, b->qn);
	assert_int_equal(a->msn, b->msn);
	assert_int_equal(a->mo, b->mo);
}

/* 0 or the error */
static int verdict(const uint8_t *bytes, uint16_t ulpdu_bytes, struct ddp_header *ret)
{
	enum rdmap_error error = RDMAP_NO_ERROR;
	int rc = ddp_decode(bytes, DDP_HEADER_MAX, ulpdu_bytes, ret, &error);

	if (rc < 0) {
		assert_int_equal(rc, -EPROTO);
		assert_int_not_equal(error, RDMAP_NO_ERROR);
		return (int)error;
	}
	assert_int_equal(error, RDMAP_NO_ERROR);
	assert_int_equal(rc, ret->tagged ? DDP_TAGGED_BYTES : DDP_UNTAGGED_BYTES);
	return 0;
}

static void round_trips(void **state)
{
	uint8_t bytes[DDP_HEADER_MAX];

	(void)state;
	for (int i = 0; i < ROUNDS; i++) {
		uint8_t op = (uint8_t)(dice() % 8);
		struct ddp_header sent = some_header(op), got;
		size_t n = ddp_encode(&sent, bytes);

		assert_int_equal(n, ops[op].tagged ? 14 : 18);
		assert_int_equal(verdict(bytes, some_length(op), &got), 0);
		assert_same(&sent, &got);
	}
}

/* A header whose bytes come one by one is told at its last, not before. */
static void waits_at_every_byte(void **state)
{
	(void)state;
	for (uint8_t op = 0; op < 8; op++) {
		struct ddp_header sent = some_header(op), got;
		enum rdmap_error error;
		uint8_t whole[DDP_HEADER_MAX];
		size_t n = ddp_encode(&sent, whole);

		for (size_t i = 0; i < n; i++) {
			/* an exact copy: a byte too far is seen by the address sanitizer */
			uint8_t *part = malloc(i + !i);

			memcpy(part, whole, i);
			assert_int_equal(ddp_decode(part, i, some_length(op), &got, &error), 0);
			free(part);
		}
		assert_int_equal(ddp_decode(whole, n, some_length(op), &got, &error), n);
	}
}

/* RFC 5041 4 and RFC 5040 4 */
static void has_the_layout(void **state)
{
	static const uint8_t tagged[] = { 0xc1, 0x42, 0x01, 0x02, 0x03, 0x04, 0x11,
					  0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18 };
	static const uint8_t untagged[] = { 0x01, 0x46, 0x01, 0x02, 0x03, 0x04, 0,    0,    0,
					    0,	  0x21, 0x22, 0x23, 0x24, 0x31, 0x32, 0x33, 0x34 };
	struct ddp_header t = { .tagged = true,
				.last = true,
				.op = RDMAP_READ_RESPONSE,
				.stag = 0x01020304,
				.to = 0x1112131415161718 };
	struct ddp_header u = { .op = RDMAP_SEND_SE_INVALIDATE,
				.invalidate_stag = 0x01020304,
				.msn = 0x21222324,
				.mo = 0x31323334 };
	uint8_t bytes[DDP_HEADER_MAX];

	(void)state;
	assert_int_equal(ddp_encode(&t, bytes), 14);
	assert_memory_equal(bytes, tagged, 14);
	assert_int_equal(ddp_encode(&u, bytes), 18);
	assert_memory_equal(bytes, untagged, 18);
	/* Where the opcode invalidates nothing the field is reserved: 0, and not looked at. */
	u.op = RDMAP_SEND;
	(void)ddp_encode(&u, bytes);
	assert_memory_equal(bytes + 2, "\0\0\0\0", 4);
	bytes[5] = 7;
	assert_int_equal(verdict(bytes, 100, &u), 0);
	assert_int_equal(u.invalidate_stag, 0);
}

static void ignores_reserved_bits(void **state)
{
	uint8_t bytes[DDP_HEADER_MAX];
	struct ddp_header got;

	(void)state;
	for (uint8_t op = 0; op < 8; op++) {
		struct ddp_header sent = some_header(op);

		(void)ddp_encode(&sent, bytes);
		bytes[0] |= 0x3c;
		bytes[1] |= 0x30;
		assert_int_equal(verdict(bytes, some_length(op), &got), 0);
		assert_same(&sent, &got);
	}
}

static void refuses_other_versions(void **state)
{
	uint8_t bytes[DDP_HEADER_MAX];
	struct ddp_header got;

	(void)state;
	for (uint8_t op = 0; op < 8; op++) {
		struct ddp_header sent = some_header(op);

		for (uint8_t version = 0; version < 4; version++) {
			int ddp = ops[op].tagged ? RDMAP_E_T_VERSION : RDMAP_E_U_VERSION;

			(void)ddp_encode(&sent, bytes);
			bytes[0] = (uint8_t)((bytes[0] & ~3) | version);
			assert_int_equal(verdict(bytes, some_length(op), &got),
					 version == 1 ? 0 : ddp);
			(void)ddp_encode(&sent, bytes);
			bytes[1] = (uint8_t)(version << 6 | op);
			assert_int_equal(verdict(bytes, some_length(op), &got),
					 version == 1 ? 0 : RDMAP_E_R_VERSION);
			/* What was read of it is told all the same. */
			assert_same(&sent, &got);
		}
	}
}

/* Each of the 16 numbers, tagged and not. */
static void knows_which_opcode_goes_where(void **state)
{
	uint8_t bytes[DDP_HEADER_MAX];
	struct ddp_header got;

	(void)state;
	for (uint8_t op = 0; op < 16; op++) {
		for (int tagged = 0; tagged < 2; tagged++) {
			bool sound = op < 8 && ops[op].tagged == tagged;

			memset(bytes, 0, sizeof(bytes));
			bytes[0] = tagged ? 0xc1 : 0x41;
			bytes[1] = 0x40 | op;
			bytes[9] = op < 8 ? (uint8_t)ops[op].qn : 0;
			assert_int_equal(verdict(bytes, 46, &got), sound ? 0 : RDMAP_E_R_OPCODE);
			assert_int_equal(got.op, op);
			assert_int_equal(got.tagged, tagged);
		}
	}
}

static void knows_which_queue_an_opcode_is_for(void **state)
{
	static const uint32_t qns[] = { 0, 1, 2, 3, 0x100, 0x10000, 0x1000000, UINT32_MAX };
	uint8_t bytes[DDP_HEADER_MAX];
	struct ddp_header got;

	(void)state;
	for (uint8_t op = 0; op < 8; op++) {
		struct ddp_header sent = some_header(op);

		for (size_t i = 0; i < sizeof(qns) / sizeof(qns[0]) && !sent.tagged; i++) {
			sent.qn = qns[i];
			(void)ddp_encode(&sent, bytes);
			assert_int_equal(verdict(bytes, some_length(op), &got),
					 qns[i] == ops[op].qn ? 0 : RDMAP_E_U_QN);
			assert_int_equal(got.qn, qns[i]);
		}
	}
}

/* Every length that is too short for the header, seen as soon as that can be. */
static void wants_a_whole_header(void **state)
{
	uint8_t bytes[DDP_HEADER_MAX] = { 0 };
	struct ddp_header got;
	enum rdmap_error error = RDMAP_NO_ERROR;

	(void)state;
	assert_int_equal(ddp_decode(bytes, 0, 13, &got, &error), -EPROTO);
	assert_int_equal(error, RDMAP_E_M_LENGTH);
	assert_int_equal(ddp_decode(bytes, 0, 14, &got, &error), 0);
	for (uint8_t op = 0; op < 8; op++) {
		struct ddp_header sent = some_header(op);
		uint16_t length = ops[op].tagged ? 14 : 18;

		(void)ddp_encode(&sent, bytes);
		for (uint16_t n = 0; n < length; n++) {
			error = RDMAP_NO_ERROR;
			assert_int_equal(ddp_decode(bytes, 1, n, &got, &error), -EPROTO);
			assert_int_equal(error, RDMAP_E_M_LENGTH);
			assert_int_equal(verdict(bytes, n, &got), RDMAP_E_M_LENGTH);
		}
		/* messages of no bytes */
		if (op != RDMAP_READ_REQUEST && op != RDMAP_TERMINATE)
			assert_int_equal(verdict(bytes, length, &got), 0);
	}
}

static void wants_whole_requests_and_terminates(void **state)
{
	static const uint8_t single[] = { RDMAP_READ_REQUEST, RDMAP_TERMINATE };
	uint8_t bytes[DDP_HEADER_MAX];
	struct ddp_header got;

	(void)state;
	for (int i = 0; i < 2; i++) {
		struct ddp_header sent = some_header(single[i]);

		sent.last = false;
		(void)ddp_encode(&sent, bytes);
		assert_int_equal(verdict(bytes, 46, &got), RDMAP_E_U_MO);
		sent.last = true;
		for (int bit = 0; bit < 32; bit++) {
			sent.mo = 1u << bit;
			(void)ddp_encode(&sent, bytes);
			assert_int_equal(verdict(bytes, 46, &got), RDMAP_E_U_MO);
		}
		sent.mo = 0;
		(void)ddp_encode(&sent, bytes);
		for (uint32_t length = 18; length <= UINT16_MAX; length++) {
			int found = verdict(bytes, (uint16_t)length, &got);

			if (single[i] == RDMAP_TERMINATE)
				assert_int_equal(found, length < 22 ? RDMAP_E_M_LENGTH : 0);
			else if (length < 46)
				assert_int_equal(found, RDMAP_E_M_LENGTH);
			else
				assert_int_equal(found, length > 46 ? RDMAP_E_U_TOO_LONG : 0);
		}
	}
}

static struct rdmap_read_request some_request(void)
{
	return (struct rdmap_read_request){
		.sink_stag = (uint32_t)dice(),
		.source_stag = (uint32_t)dice(),
		.sink_to = dice(),
		.source_to = dice(),
		.bytes = (uint32_t)dice(),
	};
}

static void assert_same_request(const struct rdmap_read_request *a,
				const struct rdmap_read_request *b)
{
	assert_int_equal(a->sink_stag, b->sink_stag);
	assert_int_equal(a->source_stag, b->source_stag);
	assert_true(a->sink_to == b->sink_to);
	assert_true(a->source_to == b->source_to);
	assert_int_equal(a->bytes, b->bytes);
}

static void carries_read_requests(void **state)
{
	static const uint8_t layout[] = { 1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11, 12, 13, 14,
					  15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28 };
	struct rdmap_read_request known = {
		.sink_stag = 0x01020304,
		.sink_to = 0x05060708090a0b0c,
		.bytes = 0x0d0e0f10,
		.source_stag = 0x11121314,
		.source_to = 0x15161718191a1b1c,
	};
	uint8_t bytes[RDMAP_READ_REQUEST_BYTES];
	struct rdmap_read_request got;

	(void)state;
	rdmap_read_request_encode(&known, bytes);
	assert_memory_equal(bytes, layout, sizeof(layout));
	for (int i = 0; i < ROUNDS; i++) {
		struct rdmap_read_request sent = some_request();

		rdmap_read_request_encode(&sent, bytes);
		rdmap_read_request_decode(bytes, &got);
		assert_same_request(&sent, &got);
	}
}

/* ----------------------------------------------------------------------------------- Terminate */

/* A header whose layout is not known, or none at all. */
static bool quotes_nothing(enum rdmap_error e)
{
	return e == RDMAP_E_T_VERSION || e == RDMAP_E_U_VERSION || e == RDMAP_E_R_VERSION ||
	       (e >= RDMAP_E_M_CLOSED && e <= RDMAP_E_M_RTR);
}

static void terminates_round_trip(void **state)
{
	uint8_t bytes[RDMAP_TERMINATE_MAX];

	(void)state;
	for (int i = 0; i < ROUNDS; i++) {
		struct rdmap_terminate sent = {
			.error = 1 + dice() % (RDMAP_ERROR_COUNT - 1),
			.has_segment = dice() & 1, .has_request = dice() & 1,
			.ulpdu_bytes = (uint16_t)dice(),
			.header = some_header((uint8_t)(dice() % 8)), .request = some_request(),
		}, got;
		bool segment = sent.has_segment && !quotes_nothing(sent.error);
		bool request = segment && sent.has_request && sent.header.op == RDMAP_READ_REQUEST;
		size_t n = rdmap_terminate_encode(&sent, bytes);
		size_t header = sent.header.tagged ? 14 : 18;

		assert_int_equal(n, 4 + (segment ? 2 + header : 0) + (request ? 28 : 0));
		rdmap_terminate_decode(bytes, n, &got);
		assert_int_equal(got.error, sent.error);
		assert_int_equal(got.layer << 4 | got.type, bytes[0]);
		assert_int_equal(got.code, bytes[1]);
		assert_int_equal(got.has_segment, segment);
		assert_int_equal(got.has_request, request);
		if (segment) {
			assert_int_equal(got.ulpdu_bytes, sent.ulpdu_bytes);
			assert_same(&sent.header, &got.header);
		}
		if (request)
			assert_same_request(&sent.request, &got.request);
	}
}

/* However short it is: what is there is understood, what is not is absent. */
static void terminates_may_be_cut(void **state)
{
	struct rdmap_terminate sent = { .error = RDMAP_E_R_BOUNDS,
					.has_segment = true,
					.has_request = true,
					.ulpdu_bytes = 46,
					.header = some_header(RDMAP_READ_REQUEST),
					.request = some_request() },
			       got;
	uint8_t whole[RDMAP_TERMINATE_MAX];

	(void)state;
	assert_int_equal(rdmap_terminate_encode(&sent, whole), sizeof(whole));
	for (size_t n = 0; n <= sizeof(whole); n++) {
		uint8_t *part = malloc(n + !n);

		memcpy(part, whole, n);
		rdmap_terminate_decode(part, n, &got);
		assert_int_equal(got.error, n < 2 ? RDMAP_NO_ERROR : RDMAP_E_R_BOUNDS);
		assert_int_equal(got.has_segment, n >= 4 + 2 + 18);
		assert_int_equal(got.has_request, n == sizeof(whole));
		free(part);
	}
}

/* As they were seen to come from siw, whose nibbles and flags are the other way round. */
static void understands_siw(void **state)
{
	static const struct {
		uint8_t bytes[3];
		enum rdmap_error error;
	} seen[] = {
		{ { 0x11, 0x00, 0x03 }, RDMAP_E_T_STAG },
		{ { 0x11, 0x01, 0x03 }, RDMAP_E_T_BOUNDS },
		{ { 0x10, 0x00, 0x07 }, RDMAP_E_R_STAG },
		{ { 0x10, 0x01, 0x07 }, RDMAP_E_R_BOUNDS },
		{ { 0x10, 0xff, 0x07 }, RDMAP_E_R_PROTECTION },
		{ { 0x21, 0x01, 0x03 }, RDMAP_E_U_QN },
		{ { 0x21, 0x02, 0x03 }, RDMAP_E_U_NO_BUFFER },
		{ { 0x21, 0x03, 0x03 }, RDMAP_E_U_MSN },
		{ { 0x21, 0x04, 0x03 }, RDMAP_E_U_MO },
		{ { 0x21, 0x06, 0x00 }, RDMAP_E_U_VERSION },
		{ { 0x20, 0x07, 0x03 }, RDMAP_E_R_CATASTROPHIC_STREAM },
		{ { 0x02, 0x02, 0x00 }, RDMAP_E_M_CRC },
		{ { 0x02, 0x03, 0x00 }, RDMAP_E_M_LENGTH },
		{ { 0x02, 0x04, 0x00 }, RDMAP_E_M_FRAME },
		/* Without flags both readings make sense: the RFC's. */
		{ { 0x20, 0x05, 0x00 }, RDMAP_E_M_ENHANCED_LOCAL },
		{ { 0x20, 0x06, 0x00 }, RDMAP_E_M_IRD },
		{ { 0x02, 0x06, 0x00 }, RDMAP_E_R_OPCODE },
		{ { 0x01, 0x00, 0x00 }, RDMAP_E_R_STAG },
		/* With the RFC's flags, or siw's, they do not. */
		{ { 0x20, 0x06, 0x03 }, RDMAP_E_R_OPCODE },
		{ { 0x02, 0x06, 0xc0 }, RDMAP_E_R_OPCODE },
	};
	struct rdmap_terminate got;

	(void)state;
	for (size_t i = 0; i < sizeof(seen) / sizeof(seen[0]); i++) {
		rdmap_terminate_decode(seen[i].bytes, 3, &got);
		assert_int_equal(got.error, seen[i].error);
		assert_false(got.has_segment);
	}
}

/* A READ request that was refused, as siw quotes it: M, D and R are 07. */
static void understands_siws_quotes(void **state)
{
	struct rdmap_terminate sent = { .error = RDMAP_E_R_BOUNDS,
					.has_segment = true,
					.has_request = true,
					.ulpdu_bytes = 28,
					.header = some_header(RDMAP_READ_REQUEST),
					.request = some_request() },
			       got;
	uint8_t bytes[RDMAP_TERMINATE_MAX];
	size_t n;

	(void)state;
	n = rdmap_terminate_encode(&sent, bytes);
	bytes[0] = 0x10;
	bytes[2] = 0x07;
	rdmap_terminate_decode(bytes, n, &got);
	assert_int_equal(got.error, RDMAP_E_R_BOUNDS);
	assert_int_equal(got.layer, 0);
	assert_int_equal(got.type, 1);
	assert_true(got.has_segment && got.has_request);
	assert_same(&sent.header, &got.header);
	assert_same_request(&sent.request, &got.request);
	/* It sets R for a SEND, too, whose header is all that follows. */
	sent.header = some_header(RDMAP_SEND);
	n = rdmap_terminate_encode(&sent, bytes);
	bytes[2] = 0x07;
	rdmap_terminate_decode(bytes, sizeof(bytes), &got);
	assert_true(got.has_segment);
	assert_false(got.has_request);
	assert_int_equal(n, 4 + 2 + 18);
}

/* No two have the same numbers, each has a text, and its layer's. */
static void names_every_error(void **state)
{
	static const char *const layers[] = { "", "DDP: ", "MPA: " };
	static bool used[3][3][256];
	uint8_t bytes[RDMAP_TERMINATE_MAX];

	(void)state;
	for (unsigned int e = 1; e < RDMAP_ERROR_COUNT; e++) {
		struct rdmap_terminate t = { .error = e }, got;
		const char *text = rdmap_error_text(e);

		assert_int_equal(rdmap_terminate_encode(&t, bytes), 4);
		rdmap_terminate_decode(bytes, 4, &got);
		assert_int_equal(got.error, e);
		assert_false(used[got.layer][got.type][got.code]);
		used[got.layer][got.type][got.code] = true;
		assert_memory_equal(text, layers[got.layer], strlen(layers[got.layer]));
	}
	assert_non_null(rdmap_error_text(RDMAP_NO_ERROR));
	assert_ptr_equal(rdmap_error_text(RDMAP_ERROR_COUNT), rdmap_error_text(RDMAP_NO_ERROR));
	assert_string_equal(rdmap_error_text(RDMAP_E_M_CRC), "MPA: wrong CRC");
}

static void takes_noise(void **state)
{
	(void)state;
	for (int i = 0; i < ROUNDS; i++) {
		size_t n = dice() % (RDMAP_TERMINATE_MAX + 8);
		uint8_t *bytes = malloc(n + !n);
		struct rdmap_terminate t;
		enum rdmap_error error = RDMAP_NO_ERROR;
		struct ddp_header h;
		int rc;

		for (size_t at = 0; at < n; at++)
			bytes[at] = (uint8_t)dice();
		rdmap_terminate_decode(bytes, n, &t);
		assert_true(t.error < RDMAP_ERROR_COUNT);
		assert_true(!t.has_request || t.has_segment);
		rc = ddp_decode(bytes, n, (uint16_t)dice(), &h, &error);
		assert_true(rc <= (int)n);
		assert_int_equal(rc < 0, error != RDMAP_NO_ERROR);
		free(bytes);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(round_trips),
		cmocka_unit_test(waits_at_every_byte),
		cmocka_unit_test(has_the_layout),
		cmocka_unit_test(ignores_reserved_bits),
		cmocka_unit_test(refuses_other_versions),
		cmocka_unit_test(knows_which_opcode_goes_where),
		cmocka_unit_test(knows_which_queue_an_opcode_is_for),
		cmocka_unit_test(wants_a_whole_header),
		cmocka_unit_test(wants_whole_requests_and_terminates),
		cmocka_unit_test(carries_read_requests),
		cmocka_unit_test(terminates_round_trip),
		cmocka_unit_test(terminates_may_be_cut),
		cmocka_unit_test(understands_siw),
		cmocka_unit_test(understands_siws_quotes),
		cmocka_unit_test(names_every_error),
		cmocka_unit_test(takes_noise),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
