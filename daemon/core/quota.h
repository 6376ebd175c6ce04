/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef XD_QUOTA_H
#define XD_QUOTA_H

/*
 * Who pays for what. A charge comes before the resource and is taken from the user, from each of
 * its groups that the configuration limits, and from the daemon's total; all or none. When a
 * session is gone so are its charges (I6).
 */

#include "common/list.h"
#include "daemon/core/policy.h"
#include "daemon/core/turn.h"
#include "daemon/engine.h"

/* Memory for segment lists, per user; not configurable, since it is the daemon's own. */
#define XD_LIST_BYTES_MAX (UINT64_C(64) << 20)
/* The same for the queues of endpoints: at the default depth thousands, at the greatest dozens. */
#define XD_QUEUE_BYTES_MAX (UINT64_C(256) << 20)
/*
 * Descriptors of a user that wait to be closed: each is one of the daemon's, for as long as the
 * user can make its close last. From here on nothing more is read from the user's sessions.
 */
#define XD_CLOSES_MAX 64
/*
 * What a user may submit in one turn, all of its sessions together: segments, a request by itself
 * counting as some. About a millisecond's work; others wait for it.
 */
#define XD_TURN_SEGMENTS 32768
#define XD_REQUEST_SEGMENTS 16

/* In which sessions wait; wait.h. */
enum xd_order { XD_ORDER_OF_WINDOWS, XD_ORDER_OF_MEMORY, XD_ORDERS };

struct xd_account {
	struct xc_list link;
	uint32_t id; /* uid, gid */
	char kind;   /* 'u', 'g', 't' */
	uint32_t refs;
	struct xd_limits limits;
	uint64_t used[XD_LIMIT_COUNT];
	uint64_t list_bytes, queue_bytes;
	struct xc_list closes; /* descriptors being closed, oldest first */
	uint32_t n_closes;
	uint64_t turn;	    /* the last in which something was submitted */
	uint64_t submitted; /* in it, in segments */
	struct xd_turn waits[XD_ORDERS]; /* a user's: its sessions that wait */
};

#define XD_PAYER_GROUPS_MAX 64

/* The accounts of a session. */
struct xd_payer {
	struct xd_account *user, *total;
	uint32_t n_groups;
	struct xd_account *groups[XD_PAYER_GROUPS_MAX];
};

struct xd_quota {
	const struct xd_policy *policy;
	struct xc_list users, groups;
	struct xd_account total;
	struct xd_turn turns[XD_ORDERS]; /* users that wait */
};

void xd_quota_init(struct xd_quota *q, const struct xd_policy *policy);
void xd_quota_done(struct xd_quota *q);
/* Takes over new limits; what is used stays. */
void xd_quota_set_policy(struct xd_quota *q, const struct xd_policy *policy);

/* The accounts of a user with these groups. 0 or -ENOMEM. Each payer holds references until
 * xd_payer_done(). */
int xd_payer_init(struct xd_payer *p, struct xd_quota *q, uint32_t uid, const uint32_t *gids,
		  uint32_t n_gids);
void xd_payer_done(struct xd_payer *p, struct xd_quota *q);
void xd_account_unref(struct xd_account *a);

/* 0, or -XP_E_QUOTA: why (size bytes; may be NULL) names the limit and whose it is. */
int xd_charge(struct xd_payer *p, enum xd_limit limit, uint64_t amount, char *why, size_t size);
void xd_uncharge(struct xd_payer *p, enum xd_limit limit, uint64_t amount);

#endif
