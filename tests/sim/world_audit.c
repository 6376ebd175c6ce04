/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What the audit says of keys is what the fabrics have. */
#include <stdlib.h>

#include "daemon/core/audit.h"
#include "daemon/core/session.h"
#include "tests/sim/world.h"

struct said {
	const struct xd_audit_key *key;
	bool found;
};

struct hearing {
	struct world *w;
	uint32_t fabric, n;
	struct said *said;
};

static bool is_remote(const struct xd_audit_key *k)
{
	return k->of.access & XD_AUDIT_REMOTE;
}

static unsigned int rights(int access)
{
	return (access & IBV_ACCESS_REMOTE_READ ? XD_AUDIT_REMOTE_READ : 0) |
	       (access & IBV_ACCESS_REMOTE_WRITE ? XD_AUDIT_REMOTE_WRITE : 0);
}

static bool is_of(const struct hearing *h, const struct xd_audit_of *of, const struct fake_key *k)
{
	const struct w_ep *ep = w_ep_by_tag(h->w, k->ep_tag);

	if (of->fabric != h->fabric || of->uid != k->owner || of->length != k->total ||
	    (of->access & XD_AUDIT_REMOTE) != rights(k->access))
		return false;
	/* A slab is no client's memory, whatever it holds a copy of. */
	if (k->fd >= 0 && (of->kind == XD_AUDIT_SLAB || of->offset != k->offset))
		return false;
	return !ep || !ep->known ||
	       (of->endpoint == ep->number && of->session == ep->session->number);
}

static void hear(void *ctx, const struct fake_key *k)
{
	struct hearing *h = ctx;

	/* The audit has one line for it, with its first range. */
	if (k->range)
		return;
	for (uint32_t i = 0; i < h->n; i++) {
		struct said *s = &h->said[i];

		if (s->found || !is_remote(s->key) || !is_of(h, &s->key->of, k))
			continue;
		s->found = true;
		return;
	}
	sim_broken("I2", "a peer can use a key to %llu bytes (access %d) of user %u that the audit "
			 "knows nothing of",
		   (unsigned long long)k->length, k->access, k->owner);
}

void w_check_audit(struct world *w, bool rest)
{
	struct xd_audit *a = w->core->audit;
	struct hearing h = { .w = w };
	const struct xd_audit_key *k;
	uint64_t registrations = 0;

	h.said = malloc((xd_audit_keys(a) + 1) * sizeof(*h.said));
	for (uint64_t at = 0; (k = xd_audit_next_key(a, at)); at = k->number + 1)
		h.said[h.n++] = (struct said){ .key = k };
	sim_check(h.n == xd_audit_keys(a), "audit", "%u keys are listed", h.n);
	for (h.fabric = 0; h.fabric < w->n_fabrics; h.fabric++)
		fake_fabric_keys(w->fabrics[h.fabric], hear, &h);
	for (uint32_t i = 0; i < h.n; i++) {
		k = h.said[i].key;
		registrations += k->of.kind == XD_AUDIT_REGISTRATION;
		/* Until then a peer may have ended one, and the core not have heard of it. */
		sim_check(!rest || !is_remote(k) || h.said[i].found, "audit",
			  "key %llu (%s of endpoint %u of session %llu, %s) is not in the fabric",
			  (unsigned long long)k->number, xd_audit_kind_name(k->of.kind),
			  k->of.endpoint, (unsigned long long)k->of.session,
			  xd_audit_state_name(k->state));
	}
	sim_check(registrations == xd_core_counter(w->core, XD_COUNTER_keys), "audit",
		  "%llu registrations, not %llu", (unsigned long long)registrations,
		  (unsigned long long)xd_core_counter(w->core, XD_COUNTER_keys));
	free(h.said);
}
