/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "daemon/core/audited.h"

#include "daemon/core/grant.h"
#include "daemon/core/pool.h"
#include "daemon/core/sabotage.h"
#include "daemon/core/temporary.h"

struct xd_audit_of xd_audit_of(const struct xd_session *s, const struct xd_endpoint *ep,
			       uint32_t fabric, enum xd_audit_kind kind, int access)
{
	struct xd_audit_of of = {
		.session = s->number,
		.uid = s->uid,
		.fabric = (uint8_t)fabric,
		.kind = (uint8_t)kind,
	};

	if (access & IBV_ACCESS_LOCAL_WRITE)
		of.access |= XD_AUDIT_LOCAL_WRITE;
	if (access & IBV_ACCESS_REMOTE_WRITE)
		of.access |= XD_AUDIT_REMOTE_WRITE;
	if (access & IBV_ACCESS_REMOTE_READ)
		of.access |= XD_AUDIT_REMOTE_READ;
	if (ep) {
		of.endpoint = ep->number;
		of.peer = ep->peer;
	}
	return of;
}

/* Why what belongs to a domain goes, if nobody has said so. */
static enum xd_audit_why end_of(const struct xd_session *s, const struct xd_endpoint *ep)
{
	if (xd_session_ending(s))
		return XD_AUDIT_DEATH;
	return ep && ep->state >= XD_EP_ENDING ? XD_AUDIT_DISCONNECT : XD_AUDIT_DONE;
}

/* ------------------------------------------------------------------ grants */

static void grant_asks(const struct xd_grant *g, struct xd_audit_key *k, enum xd_audit_kind kind,
		       int access)
{
	const struct xd_endpoint *ep = g->endpoint;
	struct xd_audit_of of = xd_audit_of(g->session, ep, ep->fabric, kind, access);

	of.buffer = g->buffer->number;
	of.offset = g->offset;
	of.length = g->length - XD_SABOTAGE("audit-lies");
	xd_audited_made(g->session->core, k, &of);
}

void xd_audited_grant(struct xd_grant *g, enum xd_audit_kind kind)
{
	/* A bind that found no room on the queue is tried again. */
	if (g->audit.state == XD_AUDIT_FREE && !XD_SABOTAGE("audit-is-deaf"))
		grant_asks(g, &g->audit, kind, xd_grant_access(g));
}

void xd_audited_bound(struct xd_grant *g)
{
	grant_asks(g, &g->bound_audit, XD_AUDIT_RANGES, IBV_ACCESS_LOCAL_WRITE);
}

static enum xd_audit_why why_killed(const struct xd_grant *g)
{
	enum xd_audit_why why = end_of(g->session, g->endpoint);

	if (why != XD_AUDIT_DONE)
		return why;
	if (g->deadline_ns && xd_now(g->session->core) >= g->deadline_ns)
		return XD_AUDIT_DEADLINE;
	return g->revoke ? XD_AUDIT_REVOKE : XD_AUDIT_FAILED;
}

void xd_audited_kill(struct xd_grant *g)
{
	xd_audited_dying(g->session->core, &g->audit, why_killed(g));
}

/* ------------------------------------------------------------------ registrations, slabs */

void xd_audited_key(struct xd_key *key)
{
	const struct xd_buffer *b = key->buffer;
	struct xd_audit_of of = xd_audit_of(b->session, key->pd->endpoint, key->pd->fabric,
					    XD_AUDIT_REGISTRATION, IBV_ACCESS_LOCAL_WRITE);

	of.buffer = b->number;
	of.length = b->size_bytes;
	xd_audited_made(b->session->core, &key->audit, &of);
}

void xd_audited_drop(struct xd_key *key)
{
	const struct xd_session *s = key->buffer->session;

	xd_audited_dying(s->core, &key->audit, end_of(s, key->pd->endpoint));
}

void xd_audited_temporary(struct xd_temporary *k, uint64_t bytes, int access)
{
	const struct xd_transfer *t = k->all->transfer;
	const struct xd_endpoint *ep = t->endpoint;
	struct xd_audit_of of = xd_audit_of(t->session, ep, ep->fabric,
					    t->plan.rung == XD_RUNG_INDIRECT ? XD_AUDIT_RANGES
									     : XD_AUDIT_SINK,
					    access);

	of.buffer = k->run.buffer;
	of.offset = k->run.offset;
	of.length = bytes;
	xd_audited_made(t->session->core, &k->audit, &of);
}

void xd_audited_slab(struct xd_slab *slab)
{
	const struct xd_pd *pd = slab->pd;
	struct xd_audit_of of =
		xd_audit_of(pd->session, pd->endpoint, pd->fabric, XD_AUDIT_SLAB, slab->access);

	of.length = slab->size_bytes;
	xd_audited_made(pd->session->core, &slab->audit, &of);
}

void xd_audited_slab_free(struct xd_slab *slab)
{
	const struct xd_session *s = slab->pd->session;

	xd_audited_dying(s->core, &slab->audit, end_of(s, slab->pd->endpoint));
}
