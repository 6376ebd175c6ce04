/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef XD_KEY_H
#define XD_KEY_H

/*
 * Protection domains, and the registrations of buffers in them. Where windows hold, a session has
 * one domain in a fabric; elsewhere each endpoint has its own, for in a shared one a peer could use
 * what was made for another. A buffer is registered in a domain when something there first needs
 * it, for local use only; the key stays until the buffer or the domain goes.
 */

#include "daemon/core/session.h"

struct xd_buffer;
struct xd_endpoint;

struct xd_pd {
	struct xd_session *session;
	struct xd_endpoint *endpoint; /* whose it is; NULL: the session's */
	uint32_t fabric;
	struct fabric_pd *pd;
	struct xc_hash keys;	/* by their buffer's number */
	struct xc_list windows; /* free type-2 windows */
	uint32_t n_windows;
	uint64_t registered_bytes; /* by its keys; those that come or go counted in */
	bool clearing;
	uint32_t n_objects; /* keys, windows, slabs; those that come or go counted in */
	/* when a registration was last refused; 0 = never */
	uint64_t refused_ns;
};

enum xd_key_state { XD_KEY_MAKING, XD_KEY_LIVE, XD_KEY_GOING };

/* A buffer's registration in a domain. */
struct xd_key {
	struct xc_hash_node hash;
	struct xc_list link;	/* its buffer's */
	struct xc_list waiters; /* endpoints whose first transfer needs it */
	struct xd_pd *pd;
	struct xd_buffer *buffer;
	struct ibv_mr *mr;
	enum xd_key_state state;
	bool unwanted;	       /* goes as soon as it is made */
	bool first;	       /* pins on the buffer's own charge */
	uint64_t pinned_bytes; /* charged beyond that */
	uint64_t used_turn;    /* the last in which it was asked for */
	struct xd_audit_key audit;
	struct fabric_done done;
};

/* An endpoint of this fabric has a domain of its own. */
static inline bool xd_own_pd(const struct fabric_caps *caps)
{
	/* A sink that peers can write must be out of reach of other peers. */
	return caps->keys != FABRIC_KEYS_WINDOW || caps->read_sink_remote_write;
}

/* endpoint NULL: the session's, made at first use. 0 or -errno. */
int xd_pd_get(struct xd_session *s, uint32_t fabric, struct xd_endpoint *endpoint,
	      struct xd_pd **ret);
/* Everything in it begins to go. Nothing posts by its keys any more. */
void xd_pd_clear(struct xd_pd *pd);
/* It has no objects. */
void xd_pd_free(struct xd_pd *pd);
/* An object of it has gone. */
void xd_pd_lost(struct xd_pd *pd);

/* The live registration of a buffer in a domain, or NULL. */
struct xd_key *xd_key_get(const struct xd_pd *pd, struct xd_buffer *b);
/*
 * Sees to it that there is one. 0: there is. -EINPROGRESS: it is being made; `waiter` (may be NULL)
 * is pumped when that is over. -XP_E_QUOTA, -ENOMEM, …: refused, and for a while not tried again.
 */
int xd_key_want(struct xd_pd *pd, struct xd_buffer *b, struct xd_endpoint *waiter);
/* Begins to take it away. */
void xd_key_drop(struct xd_key *key);

/*
 * Charges pinned memory. At the limit the session's registrations that nothing uses make room, the
 * least recently used first: they are a cache. Where their end takes time this is refused, and
 * there is room later. 0 or -XP_E_QUOTA; why (size bytes) may be NULL.
 */
int xd_pin(struct xd_session *s, uint64_t bytes, char *why, size_t size);

#endif
