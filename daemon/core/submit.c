/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/assert.h"
#include "common/checked.h"
#include "daemon/core/buffer.h"
#include "daemon/core/grant.h"
#include "daemon/core/link.h"
#include "daemon/core/sabotage.h"
#include "daemon/core/segments.h"
#include "daemon/core/stage.h"

/*
 * The way in of a transfer: everything that a client says about it is checked here, once, and
 * nothing is posted, and nothing stays charged, of a request that is refused. A refusal names the
 * segment and the limit.
 */

#define FLAGS_GRANT (XP_F_GRANT_READ | XP_F_GRANT_WRITE)

/* The flags that mean something for an operation. */
static uint32_t flags_of(uint8_t opcode)
{
	switch (opcode) {
	case XP_OP_READ:
		return XP_F_FENCE | XP_F_QUIET | XP_F_EXPLAIN;
	case XP_OP_WRITE:
		return XP_F_FENCE | XP_F_QUIET | XP_F_PLACED | XP_F_IMMEDIATE | XP_F_SOLICITED |
		       XP_F_EXPLAIN;
	case XP_OP_SEND:
		return XP_F_FENCE | XP_F_QUIET | XP_F_SOLICITED | XP_F_INVALIDATE |
		       XP_F_IMMEDIATE | XP_F_EXPLAIN;
	case XP_OP_RECV:
		return XP_F_EXPLAIN;
	case XP_OP_GRANT:
		return XP_F_FENCE | XP_F_LINK | FLAGS_GRANT;
	case XP_OP_REVOKE:
		return XP_F_FENCE | XP_F_QUIET;
	default:
		return 0;
	}
}

static int check_flags(const struct xp_request *r, char *why)
{
	uint32_t foreign = r->flags & ~flags_of(r->opcode);

	if (foreign & (XP_F_LINK | XP_F_EXPLAIN)) {
		snprintf(why, XD_TEXT_MAX, "operation %u has neither of the flags link and explain",
			 r->opcode);
		return -XP_E_UNSUPPORTED;
	}
	if (foreign) {
		snprintf(why, XD_TEXT_MAX, "flags 0x%" PRIx32 " mean nothing for operation %u",
			 foreign, r->opcode);
		return -EINVAL;
	}
	if ((r->flags & XP_F_INVALIDATE) && (r->flags & XP_F_IMMEDIATE)) {
		snprintf(why, XD_TEXT_MAX,
			 "a SEND either invalidates a key or carries immediate data");
		return -EINVAL;
	}
	return 0;
}

static int check_shape(const struct xp_request *r, char *why)
{
	bool two_sided = r->opcode == XP_OP_READ || r->opcode == XP_OP_WRITE;

	if (r->opcode == 0 || r->opcode > XP_OP_MAX) {
		snprintf(why, XD_TEXT_MAX, "there is no operation %u", r->opcode);
		return -XP_E_UNKNOWN_OPERATION;
	}
	if (r->reserved0[0] | r->reserved0[1] | r->reserved0[2] || r->reserved1) {
		snprintf(why, XD_TEXT_MAX, "a reserved field is not 0");
		return -EINVAL;
	}
	if (r->cookie == 0) {
		snprintf(why, XD_TEXT_MAX, "a request's cookie is not 0");
		return -EINVAL;
	}
	if (r->local_count > XP_SEGMENTS_MAX || r->remote_count > XP_SEGMENTS_MAX) {
		snprintf(why, XD_TEXT_MAX,
			 "a side has at most %u segments, not %" PRIu32 " and %" PRIu32,
			 XP_SEGMENTS_MAX, r->local_count, r->remote_count);
		return -EINVAL;
	}
	if (r->opcode == XP_OP_GRANT && (r->flags & XP_F_LINK)) {
		if (r->remote_count >= 1 && r->remote_count <= XP_PATCHES_MAX)
			return check_flags(r, why);
		snprintf(why, XD_TEXT_MAX, "a linked GRANT has 1 to %u patches, not %" PRIu32,
			 XP_PATCHES_MAX, r->remote_count);
		return -EINVAL;
	}
	if (two_sided ? !r->remote_count || !r->local_count : r->remote_count) {
		snprintf(why, XD_TEXT_MAX,
			 two_sided ? "a READ or WRITE has segments on both sides"
				   : "operation %u has no remote segments",
			 r->opcode);
		return -EINVAL;
	}
	if (r->opcode > XP_OP_GRANT && (r->local_count || r->list_buffer)) {
		snprintf(why, XD_TEXT_MAX, "operation %u has no segments", r->opcode);
		return -EINVAL;
	}
	return check_flags(r, why);
}

/* ------------------------------------------------------------------ segments */

/* Copies a list out of the client's buffer, once: what the client does to it later changes nothing.
 */
static int fetch_list(struct xd_transfer *t, uint32_t n, char *why)
{
	const struct xp_request *r = &t->request;
	struct xd_buffer *b = xd_buffer_get(t->session, r->list_buffer);
	size_t size = n * sizeof(struct xp_segment);
	int e;

	if (!b) {
		snprintf(why, XD_TEXT_MAX,
			 "the segment list lies in buffer %" PRIu32 ", which does not exist",
			 r->list_buffer);
		return -ENOENT;
	}
	if ((r->list_offset % 8 || !xc_range_within(r->list_offset, size, b->size_bytes)) &&
	    !XD_SABOTAGE("trust-a-list")) {
		snprintf(why, XD_TEXT_MAX,
			 "a segment list of %zu bytes at offset %" PRIu64
			 " is not 8-byte aligned within buffer %" PRIu32 " of %" PRIu64 " bytes",
			 size, r->list_offset, r->list_buffer, b->size_bytes);
		return -EINVAL;
	}
	e = size ? b->ops->copy(b->region, r->list_offset, t->segments, size, false) : 0;
	if (e < 0) {
		snprintf(why, XD_TEXT_MAX, "the segment list vanished under its copy");
		xd_buffer_fault(b);
	}
	return e;
}

static int take_segments(struct xd_transfer *t, const struct xp_segment *segments, char *why)
{
	uint32_t n = t->request.local_count + t->request.remote_count;
	int e = xd_segments_reserve(t, n);

	if (e < 0) {
		snprintf(why, XD_TEXT_MAX,
			 "no room for a list of %" PRIu32 " segments at present: %" PRIu64
			 " bytes of lists are in use",
			 n, t->session->payer.user->list_bytes);
		return e;
	}
	if (t->request.list_buffer)
		return fetch_list(t, n, why);
	if (n)
		memcpy(t->segments, segments, n * sizeof(*segments));
	return 0;
}

static int check_local(const struct xd_transfer *t, uint64_t *ret_bytes, char *why)
{
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < t->request.local_count; i++) {
		const struct xp_segment *seg = &t->segments[i];
		const struct xd_buffer *b;

		if (!seg->length)
			continue;
		b = xd_buffer_get(t->session, seg->key);
		if (!b) {
			snprintf(why, XD_TEXT_MAX,
				 "local segment %" PRIu32 " names buffer %" PRIu32
				 ", which does not exist",
				 i, seg->key);
			return -ENOENT;
		}
		if (!xc_range_within(seg->address, seg->length, b->size_bytes) &&
		    !XD_SABOTAGE("trust-an-offset")) {
			snprintf(why, XD_TEXT_MAX,
				 "local segment %" PRIu32 " (%" PRIu32 " bytes at offset %" PRIu64
				 ") lies outside buffer %" PRIu32 " of %" PRIu64 " bytes",
				 i, seg->length, seg->address, seg->key, b->size_bytes);
			return -EINVAL;
		}
		bytes += seg->length;
	}
	*ret_bytes = bytes;
	return 0;
}

static int check_remote(const struct xd_transfer *t, uint64_t local_bytes, char *why)
{
	const struct xp_segment *remote = t->segments + t->request.local_count;
	uint64_t bytes = 0, end;

	for (uint32_t i = 0; i < t->request.remote_count; i++) {
		if (!xc_add_u64(remote[i].address, remote[i].length, &end)) {
			snprintf(why, XD_TEXT_MAX,
				 "remote segment %" PRIu32
				 " runs past the end of the address space",
				 i);
			return -EINVAL;
		}
		bytes += remote[i].length;
	}
	if (t->request.remote_count && bytes != local_bytes) {
		snprintf(why, XD_TEXT_MAX,
			 "the local segments have %" PRIu64 " bytes, the remote ones %" PRIu64,
			 local_bytes, bytes);
		return -EINVAL;
	}
	if (local_bytes > XP_MESSAGE_BYTES_MAX) {
		snprintf(why, XD_TEXT_MAX, "a transfer has at most %" PRIu64 " bytes, not %" PRIu64,
			 XP_MESSAGE_BYTES_MAX, local_bytes);
		return -EMSGSIZE;
	}
	return 0;
}

/* ------------------------------------------------------------------ the endpoint's part */

static int check_endpoint(struct xd_transfer *t, char *why)
{
	struct xd_endpoint *ep = xc_slots_get(&t->session->endpoints, t->request.endpoint);
	bool recv = t->request.opcode == XP_OP_RECV;

	if (!ep || ep->freeing) {
		snprintf(why, XD_TEXT_MAX, "there is no endpoint %" PRIu32, t->request.endpoint);
		return -ENOENT;
	}
	t->endpoint = ep;
	if (recv ? ep->state < XD_EP_READY || ep->state > XD_EP_CONNECTED
		 : ep->state != XD_EP_CONNECTED) {
		snprintf(why, XD_TEXT_MAX, "endpoint %" PRIu32 " is not %s", t->request.endpoint,
			 recv ? "ready" : "connected");
		return -ENOTCONN;
	}
	if ((t->request.flags & XP_F_IMMEDIATE) && !xd_ep_caps(ep)->immediate) {
		snprintf(why, XD_TEXT_MAX, "fabric %s does not complete immediate data",
			 xd_ep_caps(ep)->name);
		return -XP_E_UNSUPPORTED;
	}
	if ((t->request.flags & XP_F_INVALIDATE) && !xd_ep_caps(ep)->remote_invalidate) {
		snprintf(why, XD_TEXT_MAX, "fabric %s does not invalidate keys for a peer",
			 xd_ep_caps(ep)->name);
		return -XP_E_UNSUPPORTED;
	}
	if (recv && ep->rq_tail - ep->rq_head >= ep->rq_depth) {
		snprintf(why, XD_TEXT_MAX,
			 "endpoint %" PRIu32 " has %" PRIu32 " RECVs posted, its recv_depth",
			 ep->number, ep->rq_depth);
		return -EAGAIN;
	}
	return 0;
}

static int plan(struct xd_transfer *t, char *why)
{
	struct xd_plan_limits limits;

	if (xd_transfer_plan(t) == 0)
		return 0;
	xd_transfer_limits(t, &limits);
	snprintf(why, XD_TEXT_MAX,
		 "a message on this endpoint has at most %" PRIu64 " bytes, and at most %" PRIu64
		 " in more than %" PRIu32 " pieces; this one has %" PRIu64 " bytes in %" PRIu32
		 " segments",
		 limits.wr_bytes, xc_min_u64(limits.stage_bytes, limits.wr_bytes),
		 xd_must_stage(xd_ep_caps(t->endpoint)) ? 0 : limits.max_sge, t->bytes,
		 t->request.local_count);
	return -EMSGSIZE;
}

/* ------------------------------------------------------------------ admission */

static int admit(struct xd_transfer *t, const struct xp_segment *segments, char *why)
{
	struct xd_session *s = t->session;
	int e = check_endpoint(t, why);

	if (e == 0)
		e = take_segments(t, segments, why);
	if (e == 0)
		e = check_local(t, &t->bytes, why);
	if (e == 0 && t->request.opcode != XP_OP_GRANT)
		e = check_remote(t, t->bytes, why);
	if (e < 0)
		return e;
	if (t->request.opcode == XP_OP_GRANT) {
		e = xd_grant_admit(t, why);
		return e == 0 && (t->request.flags & XP_F_LINK) ? xd_link_admit(t, why) : e;
	}
	if (t->request.opcode == XP_OP_REVOKE)
		return xd_revoke_admit(t, why);
	e = plan(t, why);
	if (e == 0 && t->request.opcode != XP_OP_RECV) {
		e = xd_charge(&s->payer, XD_LIMIT_bytes, t->bytes, why, XD_TEXT_MAX);
		t->charged_bytes = e == 0;
	}
	/* Only one that is not refused is the SEND that links wait for. */
	if (e == 0 && t->request.opcode == XP_OP_SEND &&
	    (t->endpoint->link_lost || !xc_list_empty(&t->endpoint->links)))
		e = xd_links_take(t, why);
	return e;
}

static int charge_and_name(struct xd_transfer *t, char *why)
{
	struct xd_session *s = t->session;
	int e = check_shape(&t->request, why);

	if (e == 0 && s->core->draining) {
		snprintf(why, XD_TEXT_MAX, "the daemon is stopping");
		e = -XP_E_SHUTDOWN;
	}
	if (e == 0 && xc_hash_find(&s->transfers, t->request.cookie)) {
		snprintf(why, XD_TEXT_MAX, "cookie %" PRIu64 " names an unfinished request already",
			 t->request.cookie);
		e = -EEXIST;
	}
	if (e == 0)
		e = xd_charge(&s->payer, XD_LIMIT_requests, 1, why, XD_TEXT_MAX);
	if (e < 0)
		return e;
	s->refused--;
	t->charged = true;
	xd_core_count(s->core, XD_COUNTER_transfers, 1);
	e = xc_hash_add(&s->transfers, &t->hash, t->request.cookie);
	t->hashed = e == 0;
	snprintf(why, XD_TEXT_MAX, "out of memory");
	return e;
}

static void cancel(struct xd_transfer *c)
{
	struct xc_hash_node *n = xc_hash_find(&c->session->transfers, c->request.argument);
	struct xd_transfer *t = n ? xc_container_of(n, struct xd_transfer, hash) : NULL;

	if (!t || t->request.opcode == XP_OP_CANCEL) {
		c->completion.immediate = XP_CANCEL_TOO_LATE;
		xd_transfer_end(c, 0, NULL);
	} else if (t->request.opcode == XP_OP_REVOKE) {
		xd_transfer_end(c, -EINVAL,
				"request %" PRIu64 " is a REVOKE, which cannot be taken back",
				c->request.argument);
	} else if (t->cancel) {
		xd_transfer_end(c, -EALREADY, "request %" PRIu64 " is being cancelled",
				c->request.argument);
	} else if (t->request.opcode == XP_OP_RECV) {
		c->completion.immediate = XP_CANCEL_QUARANTINED;
		xd_transfer_end(c, 0, NULL);
	} else if (t->state == XD_T_WAITING && t->posted == 0) {
		struct xd_endpoint *ep = t->endpoint;

		xd_grant_abandon(t);
		xd_transfer_end(t, -ECANCELED, NULL);
		c->completion.immediate = XP_CANCEL_NEVER_STARTED;
		xd_transfer_end(c, 0, NULL);
		xd_endpoint_pump(ep);
	} else {
		t->cancel = c;
		if (t->state == XD_T_WAITING)
			xd_transfer_cut(t);
	}
}

static void refuse(struct xd_transfer *t, int status, const char *why)
{
	if (t->grant && t->request.opcode == XP_OP_GRANT)
		xd_grant_abandon(t);
	if (t->request.opcode == XP_OP_GRANT && (t->request.flags & XP_F_LINK))
		xd_link_refused(t);
	xd_transfer_end(t, status, "%s", why);
}

/* What it costs to look at a request, against its user's share of the turn. */
static void count_work(struct xd_session *s, const struct xp_request *r)
{
	struct xd_account *user = s->payer.user;

	if (user->turn != s->core->turn)
		user->submitted = 0;
	user->turn = s->core->turn;
	user->submitted += XD_REQUEST_SEGMENTS + xc_min_u32(r->local_count, XP_SEGMENTS_MAX) +
			   xc_min_u32(r->remote_count, XP_SEGMENTS_MAX);
}

void xd_session_submit(struct xd_session *s, const struct xp_request *request,
		       const struct xp_segment *segments)
{
	struct xd_transfer *t = xd_transfer_new(s, request);
	char why[XD_TEXT_MAX];
	int e;

	if (!t) {
		xd_session_fail(s, -ENOMEM, "the daemon is out of memory");
		return;
	}
	count_work(s, request);
	s->refused++; /* until it is charged */
	e = charge_and_name(t, why);
	if (e < 0) {
		refuse(t, e, why);
		return;
	}
	if (request->opcode == XP_OP_CANCEL) {
		cancel(t);
		return;
	}
	e = admit(t, segments, why);
	if (e < 0) {
		refuse(t, e, why);
		return;
	}
	xd_transfer_start(t);
}
