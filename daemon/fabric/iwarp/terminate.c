/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include <errno.h>
#include <string.h>

#include "common/assert.h"
#include "daemon/fabric/iwarp/bytes.h"
#include "daemon/fabric/iwarp/ddp.h"

/* Third byte of the control: what follows (RFC 5040 4.8) */
#define HAS_LENGTH 0x80
#define HAS_DDP 0x40
#define HAS_RDMAP 0x20
/* The same as siw puts it, whose bit fields begin at the other end. */
#define SIW_HAS_LENGTH 0x01
#define SIW_HAS_DDP 0x02
#define SIW_HAS_RDMAP 0x04
#define SIW_FLAGS (SIW_HAS_LENGTH | SIW_HAS_DDP | SIW_HAS_RDMAP)
#define RFC_FLAGS (HAS_LENGTH | HAS_DDP | HAS_RDMAP)

#define CONTROL_BYTES 4u
#define LENGTH_BYTES 2u

static const struct {
	uint8_t layer, type, code;
	const char *text;
} errors[] = { [RDMAP_NO_ERROR] = { .text = "an error that no RFC names" },
#define RDMAP_ERROR_ROW(name, layer_, type_, code_, text_)                                         \
	[RDMAP_E_##name] = { .layer = layer_, .type = type_, .code = code_, .text = text_ },
	       RDMAP_ERRORS(RDMAP_ERROR_ROW)
#undef RDMAP_ERROR_ROW
};

const char *rdmap_error_text(enum rdmap_error error)
{
	return errors[(unsigned int)error < RDMAP_ERROR_COUNT ? error : RDMAP_NO_ERROR].text;
}

static enum rdmap_error find_error(uint8_t layer, uint8_t type, uint8_t code)
{
	/* RFC 5040 gives a local catastrophic error no codes, so all of them are it. */
	if (layer == 0 && type == 0)
		return RDMAP_E_LOCAL_CATASTROPHIC;
	for (unsigned int e = RDMAP_NO_ERROR + 1; e < RDMAP_ERROR_COUNT; e++) {
		if (errors[e].layer == layer && errors[e].type == type && errors[e].code == code)
			return (enum rdmap_error)e;
	}
	return RDMAP_NO_ERROR;
}

/*
 * A header of another version has a layout that we do not know: what was decoded of it is noise.
 * And where MPA is at fault there is no segment (RFC 5040 4.8).
 */
static bool quotes_nothing(enum rdmap_error error)
{
	return error == RDMAP_E_T_VERSION || error == RDMAP_E_U_VERSION ||
	       error == RDMAP_E_R_VERSION || errors[error].layer == 2;
}

size_t rdmap_terminate_encode(const struct rdmap_terminate *t,
			      uint8_t ret[static RDMAP_TERMINATE_MAX])
{
	size_t n = CONTROL_BYTES;

	xc_assert(t->error > RDMAP_NO_ERROR && t->error < RDMAP_ERROR_COUNT);
	memset(ret, 0, CONTROL_BYTES);
	ret[0] = (uint8_t)(errors[t->error].layer << 4 | errors[t->error].type);
	ret[1] = errors[t->error].code;
	if (!t->has_segment || quotes_nothing(t->error))
		return n;
	ret[2] = HAS_LENGTH | HAS_DDP;
	iwarp_put16(ret + n, t->ulpdu_bytes);
	n += LENGTH_BYTES;
	n += ddp_encode(&t->header, ret + n);
	if (!t->has_request || t->header.op != RDMAP_READ_REQUEST)
		return n;
	ret[2] |= HAS_RDMAP;
	rdmap_read_request_encode(&t->request, ret + n);
	return n + RDMAP_READ_REQUEST_BYTES;
}

/*
 * siw's reading where it is the only one that names an error, or where its flags say so. siw quotes
 * nothing when it was a version or an opcode that it did not understand: 20 05 and 20 06 without
 * flags stay ambiguous.
 */
static void decode_error(const uint8_t *bytes, uint8_t flags, struct rdmap_terminate *t)
{
	uint8_t high = bytes[0] >> 4, low = bytes[0] & 0x0f;
	enum rdmap_error rfc = find_error(high, low, bytes[1]);
	enum rdmap_error siw = find_error(low, high, bytes[1]);
	/* These bits are reserved, and zero, in the RFC's order. */
	bool by_siw = !(flags & RFC_FLAGS) && (flags & SIW_FLAGS);

	t->code = bytes[1];
	if (siw && (by_siw || !rfc)) {
		t->error = siw;
		t->layer = low;
		t->type = high;
		return;
	}
	t->error = rfc;
	t->layer = high;
	t->type = low;
}

/* What is quoted of the segment; only what can be understood as a whole. */
static void decode_segment(const uint8_t *bytes, size_t n, bool has_rdmap,
			   struct rdmap_terminate *t)
{
	enum rdmap_error ignored;
	size_t length;

	if (n <= LENGTH_BYTES)
		return;
	t->ulpdu_bytes = iwarp_get16(bytes);
	bytes += LENGTH_BYTES;
	n -= LENGTH_BYTES;
	/* It is at fault: that ddp_decode() finds a fault is no surprise. */
	(void)ddp_decode(bytes, n, UINT16_MAX, &t->header, &ignored);
	length = t->header.tagged ? DDP_TAGGED_BYTES : DDP_UNTAGGED_BYTES;
	if (n < length) {
		t->header = (struct ddp_header){ 0 };
		return;
	}
	t->has_segment = true;
	/* siw sets the flag for a SEND, too, and quotes no more than its header. */
	if (!has_rdmap || t->header.op != RDMAP_READ_REQUEST || t->header.tagged ||
	    n - length < RDMAP_READ_REQUEST_BYTES)
		return;
	rdmap_read_request_decode(bytes + length, &t->request);
	t->has_request = true;
}

void rdmap_terminate_decode(const uint8_t *bytes, size_t n, struct rdmap_terminate *ret)
{
	uint8_t flags = n > 2 ? bytes[2] : 0;
	bool by_siw = !(flags & RFC_FLAGS);
	uint8_t all = by_siw ? SIW_HAS_LENGTH | SIW_HAS_DDP : HAS_LENGTH | HAS_DDP;

	memset(ret, 0, sizeof(*ret));
	if (n < 2)
		return;
	decode_error(bytes, flags, ret);
	if (n > CONTROL_BYTES && (flags & all) == all)
		decode_segment(bytes + CONTROL_BYTES, n - CONTROL_BYTES,
			       flags & (by_siw ? SIW_HAS_RDMAP : HAS_RDMAP), ret);
}
