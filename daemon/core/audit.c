/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "daemon/core/audit.h"

#include <stdlib.h>

#include "common/assert.h"

/* Links are places in the store, and so half as long as pointers. */
#define NONE UINT32_MAX

/* An event with its place in two orders: of all events, and of its user's. */
struct entry {
	struct xd_audit_event event;
	uint32_t older, newer; /* of all */
	uint32_t next_of_user; /* newer */
};

struct user {
	uint32_t uid;
	uint32_t oldest, newest, n;
};

struct xd_audit {
	struct xc_list keys;
	uint64_t n_keys, last_key, last_event;
	uint32_t oldest, newest, n;
	uint32_t n_users;
	struct user users[XD_AUDIT_USERS];
	/* where the last reader was; whatever it points to exists */
	struct xd_audit_key *at_key; /* NULL: nowhere */
	uint32_t at_event;	     /* NONE: nowhere */
	struct entry entries[XD_AUDIT_EVENTS];
};

struct xd_audit *xd_audit_new(void)
{
	struct xd_audit *a = calloc(1, sizeof(*a));

	if (!a)
		return NULL;
	xc_list_init(&a->keys);
	a->oldest = a->newest = a->at_event = NONE;
	return a;
}

void xd_audit_free(struct xd_audit *a)
{
	if (!a)
		return;
	xc_assert(a->n_keys == 0);
	free(a);
}

/* ------------------------------------------------------------------ room for events */

/* The user's part: a place that nobody has events in, if need be; the last is for all the rest. */
static uint32_t user_of(struct xd_audit *a, uint32_t uid)
{
	uint32_t place = NONE;

	for (uint32_t i = 0; i < a->n_users; i++) {
		if (a->users[i].uid == uid)
			return i;
		if (!a->users[i].n)
			place = i;
	}
	if (place == NONE && a->n_users < XD_AUDIT_USERS)
		place = a->n_users++;
	else if (place == NONE)
		place = XD_AUDIT_USERS - 1;
	if (!a->users[place].n)
		a->users[place].oldest = a->users[place].newest = NONE;
	a->users[place].uid = uid;
	return place;
}

/* Who gives up its oldest event for one of this user's. */
static uint32_t who_gives(const struct xd_audit *a, uint32_t user)
{
	uint32_t most = user, with_events = 0;

	for (uint32_t i = 0; i < a->n_users; i++) {
		with_events += a->users[i].n || i == user;
		if (a->users[i].n > a->users[most].n)
			most = i;
	}
	return a->users[user].n >= XD_AUDIT_EVENTS / with_events ? user : most;
}

static uint32_t take_oldest(struct xd_audit *a, uint32_t user)
{
	struct user *u = &a->users[user];
	uint32_t at = u->oldest;
	struct entry *e = &a->entries[at];

	u->oldest = e->next_of_user;
	u->n--;
	if (u->oldest == NONE)
		u->newest = NONE;
	if (e->older == NONE)
		a->oldest = e->newer;
	else
		a->entries[e->older].newer = e->newer;
	if (e->newer == NONE)
		a->newest = e->older;
	else
		a->entries[e->newer].older = e->older;
	if (a->at_event == at)
		a->at_event = e->newer;
	return at;
}

static void put_newest(struct xd_audit *a, uint32_t at, uint32_t user)
{
	struct user *u = &a->users[user];
	struct entry *e = &a->entries[at];

	e->older = a->newest;
	e->newer = e->next_of_user = NONE;
	if (a->newest == NONE)
		a->oldest = at;
	else
		a->entries[a->newest].newer = at;
	a->newest = at;
	if (u->newest == NONE)
		u->oldest = at;
	else
		a->entries[u->newest].next_of_user = at;
	u->newest = at;
	u->n++;
}

static void tell(struct xd_audit *a, const struct xd_audit_key *k, enum xd_audit_what what,
		 uint64_t now_ns)
{
	uint32_t user = user_of(a, k->of.uid), at;

	at = a->n < XD_AUDIT_EVENTS ? a->n++ : take_oldest(a, who_gives(a, user));
	a->entries[at].event = (struct xd_audit_event){
		.number = ++a->last_event,
		.time_ns = now_ns,
		.key = k->number,
		.what = (uint8_t)what,
		.why = k->why,
		.of = k->of,
	};
	put_newest(a, at, user);
}

/* ------------------------------------------------------------------ the life of a key */

static void begin(struct xd_audit *a, struct xd_audit_key *k, enum xd_audit_state state,
		  uint64_t now_ns)
{
	k->number = ++a->last_key;
	k->since_ns = now_ns;
	k->why = XD_AUDIT_NO_REASON;
	k->state = (uint8_t)state;
	xc_list_append(&a->keys, &k->link);
	a->n_keys++;
}

static void end(struct xd_audit *a, struct xd_audit_key *k)
{
	if (a->at_key == k)
		a->at_key = k->link.next == &a->keys
				    ? NULL
				    : xc_container_of(k->link.next, struct xd_audit_key, link);
	xc_list_remove(&k->link);
	k->state = XD_AUDIT_FREE;
	a->n_keys--;
}

void xd_audit_made(struct xd_audit *a, struct xd_audit_key *k, const struct xd_audit_of *of,
		   uint64_t now_ns)
{
	xc_assert(k->state == XD_AUDIT_FREE);
	k->of = *of;
	begin(a, k, XD_AUDIT_MAKING, now_ns);
	tell(a, k, XD_AUDIT_WAS_MADE, now_ns);
}

void xd_audit_live(struct xd_audit *a, struct xd_audit_key *k, uint64_t now_ns)
{
	xc_assert(k->state == XD_AUDIT_MAKING);
	k->state = XD_AUDIT_LIVE;
	tell(a, k, XD_AUDIT_WAS_LIVE, now_ns);
}

void xd_audit_dying(struct xd_audit *a, struct xd_audit_key *k, enum xd_audit_why why,
		    uint64_t now_ns)
{
	xc_assert(k->state != XD_AUDIT_FREE);
	if (k->state == XD_AUDIT_DYING)
		return;
	k->state = XD_AUDIT_DYING;
	k->why = (uint8_t)why;
	tell(a, k, XD_AUDIT_WAS_DYING, now_ns);
}

void xd_audit_dead(struct xd_audit *a, struct xd_audit_key *k, uint64_t now_ns)
{
	xc_assert(k->state == XD_AUDIT_DYING);
	tell(a, k, XD_AUDIT_WAS_DEAD, now_ns);
	end(a, k);
}

void xd_audit_refused(struct xd_audit *a, struct xd_audit_key *k, uint64_t now_ns)
{
	xc_assert(k->state == XD_AUDIT_MAKING);
	k->why = XD_AUDIT_FAILED;
	tell(a, k, XD_AUDIT_WAS_REFUSED, now_ns);
	end(a, k);
}

/* ------------------------------------------------------------------ reading */

const char *xd_audit_kind_name(enum xd_audit_kind kind)
{
	static const char *const names[XD_AUDIT_KINDS] = { "registration", "window", "exact",
							   "copy",	   "slab",   "ranges",
							   "sink" };

	return names[kind];
}

const char *xd_audit_state_name(enum xd_audit_state state)
{
	static const char *const names[] = { "free", "making", "live", "dying" };

	return names[state];
}

const char *xd_audit_what_name(enum xd_audit_what what)
{
	static const char *const names[] = { "made", "live", "dying", "dead", "refused" };

	return names[what];
}

const char *xd_audit_why_name(enum xd_audit_why why)
{
	static const char *const names[] = { "",	 "revoke",     "invalidated",
					     "deadline", "disconnect", "death",
					     "eviction", "done",       "failed" };

	return names[why];
}

uint64_t xd_audit_keys(const struct xd_audit *a)
{
	return a->n_keys;
}

const struct xd_audit_key *xd_audit_next_key(struct xd_audit *a, uint64_t number)
{
	/* From where the last reader was, if it is not behind that. */
	struct xc_list *l =
		a->at_key && a->at_key->number <= number ? &a->at_key->link : a->keys.next;

	for (; l != &a->keys; l = l->next) {
		struct xd_audit_key *k = xc_container_of(l, struct xd_audit_key, link);

		if (k->number < number)
			continue;
		a->at_key = k;
		return k;
	}
	return NULL;
}

const struct xd_audit_event *xd_audit_next_event(struct xd_audit *a, uint64_t number)
{
	uint32_t at = a->at_event != NONE && a->entries[a->at_event].event.number <= number
			      ? a->at_event
			      : a->oldest;

	for (; at != NONE; at = a->entries[at].newer) {
		if (a->entries[at].event.number < number)
			continue;
		a->at_event = at;
		return &a->entries[at].event;
	}
	return NULL;
}
