/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef XD_AUDITED_H
#define XD_AUDITED_H

/*
 * What the audit is told of the core's objects: one call at each change of their state. Whoever
 * makes keys of another kind tells it by the first five.
 */

#include "daemon/core/audit.h"
#include "daemon/core/session.h"

struct xd_endpoint;
struct xd_grant;
struct xd_key;
struct xd_slab;
struct xd_temporary;

/*
 * Whose a key is: of this session, and of this endpoint's peer (NULL: of none alone), with rights
 * of IBV_ACCESS_…. The caller fills in what it reaches: buffer, offset, length.
 */
struct xd_audit_of xd_audit_of(const struct xd_session *s, const struct xd_endpoint *ep,
			       uint32_t fabric, enum xd_audit_kind kind, int access);

static inline void xd_audited_made(const struct xd_core *core, struct xd_audit_key *k,
				   const struct xd_audit_of *of)
{
	xd_audit_made(core->audit, k, of, xd_now(core));
}

static inline void xd_audited_live(const struct xd_core *core, struct xd_audit_key *k)
{
	xd_audit_live(core->audit, k, xd_now(core));
}

/* The first reason stays. Of one that was never asked for: nothing. */
static inline void xd_audited_dying(const struct xd_core *core, struct xd_audit_key *k,
				    enum xd_audit_why why)
{
	if (k->state == XD_AUDIT_MAKING || k->state == XD_AUDIT_LIVE)
		xd_audit_dying(core->audit, k, why, xd_now(core));
}

/*
 * There is no key: one that was DYING is dead, one that was being made was refused, one that was
 * never asked for is not spoken of; that of one that is LIVE is a lie, and aborts.
 */
static inline void xd_audited_gone(const struct xd_core *core, struct xd_audit_key *k)
{
	if (k->state == XD_AUDIT_MAKING)
		xd_audit_refused(core->audit, k, xd_now(core));
	else if (k->state != XD_AUDIT_FREE)
		xd_audit_dead(core->audit, k, xd_now(core));
}

/* A grant that a window, an MR or a copy is about to carry. Again: nothing. */
void xd_audited_grant(struct xd_grant *g, enum xd_audit_kind kind);
/* One key over its ranges, for its window, is asked for. */
void xd_audited_bound(struct xd_grant *g);
/* Its carrier is being taken away; it is seen from its state why. */
void xd_audited_kill(struct xd_grant *g);

/* A registration of a buffer is asked for, is being dropped. */
void xd_audited_key(struct xd_key *key);
void xd_audited_drop(struct xd_key *key);

/* A key for one transfer, of these rights, is asked for. */
void xd_audited_temporary(struct xd_temporary *k, uint64_t bytes, int access);

/* The same of a slab's own key. */
void xd_audited_slab(struct xd_slab *slab);
void xd_audited_slab_free(struct xd_slab *slab);

#endif
