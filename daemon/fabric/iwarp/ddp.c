/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "daemon/fabric/iwarp/ddp.h"

#include <errno.h>
#include <string.h>

#include "common/assert.h"
#include "daemon/fabric/iwarp/bytes.h"

/* DDP control (RFC 5041 4.1): T, L, four reserved bits, version */
#define DDP_TAGGED 0x80
#define DDP_LAST 0x40
#define DDP_VERSION_MASK 0x03
#define DDP_VERSION 0x01
/* RDMAP control (RFC 5040 4.1): version, two reserved bits, opcode */
#define RDMAP_VERSION_MASK 0xc0
#define RDMAP_VERSION 0x40
#define RDMAP_OP_MASK 0x0f

#define TERMINATE_BYTES_MIN 4u

struct op_rules {
	bool tagged, invalidates;
	uint8_t qn;
};

static const struct op_rules rules[] = {
	[RDMAP_WRITE] = { .tagged = true },
	[RDMAP_READ_REQUEST] = { .qn = DDP_QN_READ_REQUEST },
	[RDMAP_READ_RESPONSE] = { .tagged = true },
	[RDMAP_SEND] = { .qn = DDP_QN_SEND },
	[RDMAP_SEND_INVALIDATE] = { .qn = DDP_QN_SEND, .invalidates = true },
	[RDMAP_SEND_SE] = { .qn = DDP_QN_SEND },
	[RDMAP_SEND_SE_INVALIDATE] = { .qn = DDP_QN_SEND, .invalidates = true },
	[RDMAP_TERMINATE] = { .qn = DDP_QN_TERMINATE },
};

#define N_OPS (sizeof(rules) / sizeof(rules[0]))

static bool invalidates(uint8_t op)
{
	return op < N_OPS && rules[op].invalidates;
}

size_t ddp_encode(const struct ddp_header *h, uint8_t ret[static DDP_HEADER_MAX])
{
	xc_assert(h->op <= RDMAP_OP_MASK);
	ret[0] = (uint8_t)((h->tagged ? DDP_TAGGED : 0) | (h->last ? DDP_LAST : 0) | DDP_VERSION);
	ret[1] = (uint8_t)(RDMAP_VERSION | h->op);
	if (h->tagged) {
		iwarp_put32(ret + 2, h->stag);
		iwarp_put64(ret + 6, h->to);
		return DDP_TAGGED_BYTES;
	}
	iwarp_put32(ret + 2, invalidates(h->op) ? h->invalidate_stag : 0);
	iwarp_put32(ret + 6, h->qn);
	iwarp_put32(ret + 10, h->msn);
	iwarp_put32(ret + 14, h->mo);
	return DDP_UNTAGGED_BYTES;
}

static void decode_fields(const uint8_t *bytes, struct ddp_header *h)
{
	if (h->tagged) {
		h->stag = iwarp_get32(bytes + 2);
		h->to = iwarp_get64(bytes + 6);
		return;
	}
	h->invalidate_stag = invalidates(h->op) ? iwarp_get32(bytes + 2) : 0;
	h->qn = iwarp_get32(bytes + 6);
	h->msn = iwarp_get32(bytes + 10);
	h->mo = iwarp_get32(bytes + 14);
}

/* Untagged messages whose length is fixed, or has a minimum. */
static enum rdmap_error check_body(const struct ddp_header *h, unsigned int body_bytes)
{
	if (h->op != RDMAP_READ_REQUEST && h->op != RDMAP_TERMINATE)
		return RDMAP_NO_ERROR;
	if (h->mo || !h->last)
		return RDMAP_E_U_MO;
	if (h->op == RDMAP_TERMINATE)
		return body_bytes < TERMINATE_BYTES_MIN ? RDMAP_E_M_LENGTH : RDMAP_NO_ERROR;
	if (body_bytes > RDMAP_READ_REQUEST_BYTES)
		return RDMAP_E_U_TOO_LONG;
	return body_bytes < RDMAP_READ_REQUEST_BYTES ? RDMAP_E_M_LENGTH : RDMAP_NO_ERROR;
}

static enum rdmap_error check_header(const uint8_t *bytes, const struct ddp_header *h,
				     uint16_t ulpdu_bytes)
{
	if ((bytes[0] & DDP_VERSION_MASK) != DDP_VERSION)
		return h->tagged ? RDMAP_E_T_VERSION : RDMAP_E_U_VERSION;
	if ((bytes[1] & RDMAP_VERSION_MASK) != RDMAP_VERSION)
		return RDMAP_E_R_VERSION;
	if (h->op >= N_OPS || rules[h->op].tagged != h->tagged)
		return RDMAP_E_R_OPCODE;
	if (h->tagged)
		return RDMAP_NO_ERROR;
	if (h->qn != rules[h->op].qn)
		return RDMAP_E_U_QN;
	return check_body(h, ulpdu_bytes - DDP_UNTAGGED_BYTES);
}

int ddp_decode(const uint8_t *bytes, size_t n, uint16_t ulpdu_bytes, struct ddp_header *ret,
	       enum rdmap_error *ret_error)
{
	enum rdmap_error error;
	size_t length;

	memset(ret, 0, sizeof(*ret));
	if (n) {
		ret->tagged = bytes[0] & DDP_TAGGED;
		ret->last = bytes[0] & DDP_LAST;
	}
	if (n > 1)
		ret->op = bytes[1] & RDMAP_OP_MASK;
	/* Before the first byte is here the shorter of the two is what it takes at least. */
	length = n && !ret->tagged ? DDP_UNTAGGED_BYTES : DDP_TAGGED_BYTES;
	if (ulpdu_bytes < length) {
		*ret_error = RDMAP_E_M_LENGTH;
		return -EPROTO;
	}
	if (n < length)
		return 0;
	decode_fields(bytes, ret);
	error = check_header(bytes, ret, ulpdu_bytes);
	if (error) {
		*ret_error = error;
		return -EPROTO;
	}
	return (int)length;
}

void rdmap_read_request_encode(const struct rdmap_read_request *r,
			       uint8_t ret[static RDMAP_READ_REQUEST_BYTES])
{
	iwarp_put32(ret, r->sink_stag);
	iwarp_put64(ret + 4, r->sink_to);
	iwarp_put32(ret + 12, r->bytes);
	iwarp_put32(ret + 16, r->source_stag);
	iwarp_put64(ret + 20, r->source_to);
}

void rdmap_read_request_decode(const uint8_t bytes[static RDMAP_READ_REQUEST_BYTES],
			       struct rdmap_read_request *ret)
{
	*ret = (struct rdmap_read_request){
		.sink_stag = iwarp_get32(bytes),
		.sink_to = iwarp_get64(bytes + 4),
		.bytes = iwarp_get32(bytes + 12),
		.source_stag = iwarp_get32(bytes + 16),
		.source_to = iwarp_get64(bytes + 20),
	};
}
