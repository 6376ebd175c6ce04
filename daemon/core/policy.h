/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef XD_POLICY_H
#define XD_POLICY_H

/*
 * What the administrator decided: limits, who may listen and connect where, and times. Plain data,
 * filled by the configuration reader (daemon/io/config.h), read by the core. Defaults are the
 * shipped ones.
 */

#include <stdbool.h>
#include <stdint.h>

#include "common/addr.h"
#include "daemon/core/plan.h"

/*
 * What is limited: XD_LIMIT(name, default per uid, unit, text). `name` is the configuration's word
 * too.
 */
#define XD_LIMITS(X)                                                                               \
	X(pinned, UINT64_C(1) << 30, "bytes", "memory registered with devices")                    \
	X(buffers, 1024, "1", "buffers")                                                           \
	X(sessions, 64, "1", "sessions")                                                           \
	X(endpoints, 1024, "1", "endpoints")                                                       \
	X(listeners, 16, "1", "listeners")                                                         \
	X(grants, 65536, "1", "live grants")                                                       \
	X(requests, 16384, "1", "requests in flight")                                              \
	X(bytes, UINT64_C(4) << 30, "bytes", "bytes in flight")

enum xd_limit {
#define XD_LIMIT_ENUM(name, value, unit, text) XD_LIMIT_##name,
	XD_LIMITS(XD_LIMIT_ENUM)
#undef XD_LIMIT_ENUM
		XD_LIMIT_COUNT,
};

extern const char *const xd_limit_names[XD_LIMIT_COUNT + 1]; /* ended by NULL */

struct xd_limits {
	uint64_t value[XD_LIMIT_COUNT];
};

/*
 * A `user NAME {…}` or `group NAME {…}` of the configuration. A group's limits are a total for
 * its members.
 */
struct xd_principal {
	uint32_t id;
	char name[64];
	/* what it says nothing of stays at the default (user) or unlimited (group) */
	bool set[XD_LIMIT_COUNT];
	struct xd_limits limits;
};

/*
 * An `allow {…}`: these uids and groups (none named = everybody) may listen at and connect to
 * these ranges, and hear from peers at those.
 */
struct xd_allow {
	bool everybody;
	uint32_t n_uids, n_gids, n_listen, n_connect, n_accept;
	uint32_t *uids, *gids;
	struct xc_range *listen, *connect, *accept;
};

/* `device iwarp {…}`: how the fabric that needs no device is opened. Read at the start only. */
struct xd_iwarp_policy {
	bool crc;      /* ask peers for it */
	bool shortcut; /* endpoints of this daemon need no TCP */
	uint32_t ird, ord;
	/* incoming connections that have not said what they want, in all and of one address */
	uint32_t handshakes, handshakes_per_host;
	char profile[16]; /* whose limits and habits it has; "" = none but its own */
};

struct xd_policy {
	struct xd_limits user;	/* for each uid that has no principal of its own */
	struct xd_limits total; /* of the daemon; 0 = four times `user` */
	uint32_t n_users, n_groups, n_allows;
	struct xd_principal *users, *groups;
	struct xd_allow *allows; /* none: everybody, loopback only */
	uint64_t hello_ms, connect_ms, revoke_ms, progress_ms, drain_ms;
	/* connections that have not said hello yet, at most; the excess is closed */
	uint32_t handshakes;
	struct xd_iwarp_policy iwarp;
	enum xd_rung force; /* XD_RUNG_COUNT: none; for tests */
};

/* The shipped defaults. Allocates nothing. */
void xd_policy_init(struct xd_policy *p);
void xd_policy_done(struct xd_policy *p);

/*
 * May a user with these groups listen at / connect to this address? The first allow entry that
 * names the user and the address.
 */
bool xd_policy_may_listen(const struct xd_policy *p, uint32_t uid, const uint32_t *gids,
			  uint32_t n_gids, const struct xc_addr *a);
bool xd_policy_may_connect(const struct xd_policy *p, uint32_t uid, const uint32_t *gids,
			   uint32_t n_gids, const struct xc_addr *a);

/*
 * May a peer at this address connect to listeners of a user with these groups? Where no allow entry
 * that names the user has a list for that: from everywhere.
 */
bool xd_policy_may_accept(const struct xd_policy *p, uint32_t uid, const uint32_t *gids,
			  uint32_t n_gids, const struct xc_addr *a);

/* The limits of a uid. */
const struct xd_limits *xd_policy_user(const struct xd_policy *p, uint32_t uid);

/* A limit of the whole daemon, with the default for a 0 worked out. */
uint64_t xd_policy_total(const struct xd_policy *p, enum xd_limit limit);

#endif
