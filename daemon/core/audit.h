/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef XD_AUDIT_H
#define XD_AUDIT_H

/*
 * The life of each key that a device or a peer could use, and what has become of those that are
 * gone. It answers: which keys live; what was ever open of a range of a buffer, to a peer, for a
 * client. It knows keys by numbers of its own, which are unique in the life of the daemon; what
 * the keys are, and where memory lies, it is never told.
 *
 * FREE -> MAKING (a device was asked for it; it may be usable from here on) -> LIVE -> DYING (its
 * death was asked for) -> FREE (the device says that it is dead). A key may be refused (MAKING ->
 * FREE), or have to go while it is being made (MAKING -> DYING). Any other step is a fault of the
 * daemon's, and aborts it: a key that is taken for dead and was not, say (I2).
 *
 * Pure: no clock, no fabric, no memory but its own. One thread.
 */

#include <stdbool.h>
#include <stdint.h>

#include "common/addr.h"
#include "common/list.h"

/*
 * Events that are kept, four for each life of a key: the last 4,096 lives, a quarter of a second of
 * a program that grants for each request as fast as it can, days of one that grants once. Two
 * megabytes, of which the system gives only what is used.
 */
#define XD_AUDIT_EVENTS 16384
/*
 * Users whose events are kept apart. Room is shared like this: a user that has no more than an
 * equal part takes the room of the one that has most, any other its own oldest. So nobody pushes
 * another's events below an equal part, and one that is alone has all of it. Users beyond so many
 * share one part.
 */
#define XD_AUDIT_USERS 64

enum xd_audit_kind {
	XD_AUDIT_REGISTRATION, /* a buffer, for local use */
	XD_AUDIT_WINDOW,       /* a grant's */
	XD_AUDIT_EXACT,	       /* a grant's MR of just its bytes */
	XD_AUDIT_COPY,	       /* a grant's, of a copy in a slab */
	XD_AUDIT_SLAB,	       /* memory of the daemon's that data goes through */
	XD_AUDIT_RANGES,       /* one key over several ranges, for one transfer or grant */
	XD_AUDIT_SINK,	       /* where one READ arrives, on devices that want that open */
	XD_AUDIT_KINDS,
};

enum xd_audit_state { XD_AUDIT_FREE, XD_AUDIT_MAKING, XD_AUDIT_LIVE, XD_AUDIT_DYING };

enum xd_audit_what {
	XD_AUDIT_WAS_MADE, /* asked for */
	XD_AUDIT_WAS_LIVE,
	XD_AUDIT_WAS_DYING,
	XD_AUDIT_WAS_DEAD,
	XD_AUDIT_WAS_REFUSED,
};

/* Why a key ended. */
enum xd_audit_why {
	XD_AUDIT_NO_REASON,
	XD_AUDIT_REVOKE,
	XD_AUDIT_INVALIDATED, /* by the peer */
	XD_AUDIT_DEADLINE,
	XD_AUDIT_DISCONNECT,
	XD_AUDIT_DEATH,	   /* of its session */
	XD_AUDIT_EVICTION, /* for one that was needed more */
	XD_AUDIT_DONE,	   /* what it was made for is over */
	XD_AUDIT_FAILED,   /* it, or what it was made for */
};

/* IBV_ACCESS_…, as far as it is of interest here; 0: the device may only read what is its user's */
#define XD_AUDIT_LOCAL_WRITE 0x1u
#define XD_AUDIT_REMOTE_WRITE 0x2u
#define XD_AUDIT_REMOTE_READ 0x4u
#define XD_AUDIT_REMOTE (XD_AUDIT_REMOTE_READ | XD_AUDIT_REMOTE_WRITE)

/* Whose a key is, and what it reaches. */
struct xd_audit_of {
	uint64_t session; /* its number */
	uint32_t uid;
	uint32_t endpoint; /* whose peer can use it; 0: of no endpoint alone */
	struct xc_addr peer;
	uint32_t buffer; /* 0: the daemon's own memory */
	/* in it; of several ranges the first one's offset, and the bytes of all */
	uint64_t offset, length;
	uint8_t fabric;
	uint8_t kind;
	uint8_t access;
};

/* Embedded in whatever holds a key. All zero: FREE. */
struct xd_audit_key {
	struct xc_list link; /* not FREE: the audit's, in the order of their numbers */
	uint64_t number;     /* stays when it is FREE again, until the next */
	uint64_t since_ns;   /* of the first: made, or live */
	uint8_t state, why;
	struct xd_audit_of of;
};

struct xd_audit_event {
	uint64_t number; /* of the event, rising */
	uint64_t time_ns, key;
	uint8_t what, why;
	struct xd_audit_of of;
};

struct xd_audit;

/* NULL: no memory. */
struct xd_audit *xd_audit_new(void);
/* No key is left. */
void xd_audit_free(struct xd_audit *a);

/* A device was asked for it. */
void xd_audit_made(struct xd_audit *a, struct xd_audit_key *k, const struct xd_audit_of *of,
		   uint64_t now_ns);
void xd_audit_live(struct xd_audit *a, struct xd_audit_key *k, uint64_t now_ns);
/* Its death was asked for. Of one that is DYING: nothing, the first reason stays. */
void xd_audit_dying(struct xd_audit *a, struct xd_audit_key *k, enum xd_audit_why why,
		    uint64_t now_ns);
/* The device says so. */
void xd_audit_dead(struct xd_audit *a, struct xd_audit_key *k, uint64_t now_ns);
/* One that was being made does not come. */
void xd_audit_refused(struct xd_audit *a, struct xd_audit_key *k, uint64_t now_ns);

/* ---- reading */

const char *xd_audit_kind_name(enum xd_audit_kind kind);
const char *xd_audit_state_name(enum xd_audit_state state);
const char *xd_audit_what_name(enum xd_audit_what what);
const char *xd_audit_why_name(enum xd_audit_why why); /* "" for no reason */

uint64_t xd_audit_keys(const struct xd_audit *a); /* those that are not FREE */
/* The first key that is not FREE whose number is not below this one; NULL: none. Those behind it
 * are found faster when one asks in their order. */
const struct xd_audit_key *xd_audit_next_key(struct xd_audit *a, uint64_t number);
/* The same of the events. */
const struct xd_audit_event *xd_audit_next_event(struct xd_audit *a, uint64_t number);

#endif
