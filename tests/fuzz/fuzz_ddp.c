/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The headers of DDP and RDMAP, and Terminate, as a receiver that has no state hears them: what is
 * understood can be said again and means the same, and nothing beyond the bytes is looked at.
 *
 * The input: two bytes, the length of the ULPDU that MPA announced; its bytes, as far as they came.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/assert.h"
#include "daemon/fabric/iwarp/ddp.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define HEAD 2u

static void check_same(const struct ddp_header *a, const struct ddp_header *b)
{
	xc_assert(a->tagged == b->tagged && a->last == b->last && a->op == b->op);
	if (a->tagged)
		xc_assert(a->stag == b->stag && a->to == b->to);
	else
		xc_assert(a->invalidate_stag == b->invalidate_stag && a->qn == b->qn &&
			  a->msn == b->msn && a->mo == b->mo);
}

static void say_again(const struct ddp_header *h, uint16_t ulpdu_bytes)
{
	uint8_t bytes[DDP_HEADER_MAX];
	struct ddp_header got;
	enum rdmap_error error;
	size_t n = ddp_encode(h, bytes);

	xc_assert(ddp_decode(bytes, n, ulpdu_bytes, &got, &error) == (int)n);
	check_same(h, &got);
}

static void check_request(const uint8_t bytes[static RDMAP_READ_REQUEST_BYTES])
{
	uint8_t again[RDMAP_READ_REQUEST_BYTES];
	struct rdmap_read_request r;

	rdmap_read_request_decode(bytes, &r);
	rdmap_read_request_encode(&r, again);
	xc_assert(memcmp(bytes, again, sizeof(again)) == 0);
}

static void check_terminate(const uint8_t *body, size_t n)
{
	uint8_t bytes[RDMAP_TERMINATE_MAX];
	struct rdmap_terminate t, got;

	rdmap_terminate_decode(body, n, &t);
	xc_assert(t.error < RDMAP_ERROR_COUNT && rdmap_error_text(t.error));
	xc_assert(!t.has_request || t.has_segment);
	xc_assert(!t.has_request || t.header.op == RDMAP_READ_REQUEST);
	if (!t.error)
		return;
	n = rdmap_terminate_encode(&t, bytes);
	xc_assert(n <= sizeof(bytes));
	rdmap_terminate_decode(bytes, n, &got);
	xc_assert(got.error == t.error);
	xc_assert(got.has_segment <= t.has_segment && got.has_request <= t.has_request);
	if (got.has_segment) {
		xc_assert(got.ulpdu_bytes == t.ulpdu_bytes);
		check_same(&got.header, &t.header);
	}
}

/* 0, or the error; a header is only taken whole. */
static void check_header(const uint8_t *bytes, size_t n, uint16_t ulpdu_bytes)
{
	enum rdmap_error error = RDMAP_NO_ERROR;
	struct ddp_header h;
	int rc = ddp_decode(bytes, n, ulpdu_bytes, &h, &error);

	xc_assert(rc == 0 || rc == -EPROTO || ((size_t)rc <= n && (size_t)rc <= ulpdu_bytes));
	xc_assert((rc == -EPROTO) == (error != RDMAP_NO_ERROR));
	if (rc <= 0)
		return;
	xc_assert(h.tagged == (h.op == RDMAP_WRITE || h.op == RDMAP_READ_RESPONSE));
	say_again(&h, ulpdu_bytes);
	if (n > ulpdu_bytes)
		n = ulpdu_bytes;
	if (h.op == RDMAP_READ_REQUEST && n - (size_t)rc >= RDMAP_READ_REQUEST_BYTES)
		check_request(bytes + rc);
	if (h.op == RDMAP_TERMINATE)
		check_terminate(bytes + rc, n - (size_t)rc);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint16_t ulpdu_bytes;

	if (size < HEAD)
		return 0;
	ulpdu_bytes = (uint16_t)(data[0] << 8 | data[1]);
	data += HEAD;
	size -= HEAD;
	for (size_t n = 0; n <= size && n <= DDP_HEADER_MAX; n++) {
		uint8_t *part = malloc(n ? n : 1);

		xc_assert(part);
		memcpy(part, data, n);
		check_header(part, n, ulpdu_bytes);
		free(part);
	}
	check_header(data, size, ulpdu_bytes);
	/* As a body of its own, too: most inputs get no further than the header. */
	check_terminate(data, size);
	return 0;
}
