/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "daemon/core/quota.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/assert.h"
#include "daemon/core/sabotage.h"
#include "proto/errors.h"

static const char *const units[XD_LIMIT_COUNT] = {
#define XD_LIMIT_UNIT(name, value, unit, text) [XD_LIMIT_##name] = unit,
	XD_LIMITS(XD_LIMIT_UNIT)
#undef XD_LIMIT_UNIT
};

static const char *const texts[XD_LIMIT_COUNT] = {
#define XD_LIMIT_TEXT(name, value, unit, text) [XD_LIMIT_##name] = text,
	XD_LIMITS(XD_LIMIT_TEXT)
#undef XD_LIMIT_TEXT
};

static const struct xd_principal *find_group(const struct xd_policy *p, uint32_t gid)
{
	for (uint32_t i = 0; i < p->n_groups; i++)
		if (p->groups[i].id == gid)
			return &p->groups[i];
	return NULL;
}

static void set_limits(struct xd_account *a, const struct xd_policy *p)
{
	const struct xd_principal *group;

	switch (a->kind) {
	case 'u':
		a->limits = *xd_policy_user(p, a->id);
		break;
	case 'g':
		group = find_group(p, a->id);
		for (int i = 0; i < XD_LIMIT_COUNT; i++)
			a->limits.value[i] =
				group && group->set[i] ? group->limits.value[i] : UINT64_MAX;
		break;
	default:
		for (int i = 0; i < XD_LIMIT_COUNT; i++)
			a->limits.value[i] = xd_policy_total(p, (enum xd_limit)i);
	}
}

static void account_init(struct xd_account *a, char kind, uint32_t id, const struct xd_policy *p)
{
	*a = (struct xd_account){ .kind = kind, .id = id };
	xc_list_init(&a->link);
	xc_list_init(&a->closes);
	for (int i = 0; i < XD_ORDERS; i++)
		xd_turn_init(&a->waits[i], NULL);
	set_limits(a, p);
}

void xd_quota_init(struct xd_quota *q, const struct xd_policy *policy)
{
	q->policy = policy;
	for (int i = 0; i < XD_ORDERS; i++)
		xd_turn_init(&q->turns[i], NULL);
	xc_list_init(&q->users);
	xc_list_init(&q->groups);
	account_init(&q->total, 't', 0, policy);
}

void xd_quota_done(struct xd_quota *q)
{
	xc_assert(xc_list_empty(&q->users) && xc_list_empty(&q->groups));
}

void xd_quota_set_policy(struct xd_quota *q, const struct xd_policy *policy)
{
	struct xd_account *a;

	q->policy = policy;
	set_limits(&q->total, policy);
	xc_list_for_each(a, &q->users, link)
		set_limits(a, policy);
	xc_list_for_each(a, &q->groups, link)
		set_limits(a, policy);
}

static struct xd_account *account_get(struct xc_list *list, char kind, uint32_t id,
				      const struct xd_policy *p)
{
	struct xd_account *a;

	xc_list_for_each(a, list, link) {
		if (a->id == id) {
			a->refs++;
			return a;
		}
	}
	a = malloc(sizeof(*a));
	if (!a)
		return NULL;
	account_init(a, kind, id, p);
	a->refs = 1;
	xc_list_append(list, &a->link);
	return a;
}

void xd_account_unref(struct xd_account *a)
{
	xc_assert(a->refs > 0);
	if (--a->refs)
		return;
	for (int i = 0; i < XD_LIMIT_COUNT; i++)
		xc_assert(a->used[i] == 0);
	xc_assert(a->list_bytes == 0 && a->queue_bytes == 0 && a->n_closes == 0);
	for (int i = 0; i < XD_ORDERS; i++)
		xc_assert(!xd_turn_waits(&a->waits[i]));
	xc_list_remove(&a->link);
	free(a);
}

int xd_payer_init(struct xd_payer *p, struct xd_quota *q, uint32_t uid, const uint32_t *gids,
		  uint32_t n_gids)
{
	*p = (struct xd_payer){ .total = &q->total };
	p->user = account_get(&q->users, 'u', uid, q->policy);
	if (!p->user)
		return -ENOMEM;
	for (int i = 0; i < XD_ORDERS; i++)
		p->user->waits[i].above = &q->turns[i];
	for (uint32_t i = 0; i < n_gids && p->n_groups < XD_PAYER_GROUPS_MAX; i++) {
		if (!find_group(q->policy, gids[i]))
			continue;
		p->groups[p->n_groups] = account_get(&q->groups, 'g', gids[i], q->policy);
		if (!p->groups[p->n_groups]) {
			xd_payer_done(p, q);
			return -ENOMEM;
		}
		p->n_groups++;
	}
	return 0;
}

void xd_payer_done(struct xd_payer *p, struct xd_quota *q)
{
	(void)q;
	for (uint32_t i = 0; i < p->n_groups; i++)
		xd_account_unref(p->groups[i]);
	if (p->user)
		xd_account_unref(p->user);
	*p = (struct xd_payer){ 0 };
}

static bool fits(const struct xd_account *a, enum xd_limit limit, uint64_t amount)
{
	return a->used[limit] <= a->limits.value[limit] &&
	       amount <= a->limits.value[limit] - a->used[limit];
}

static int refuse(const struct xd_account *a, enum xd_limit limit, uint64_t amount, char *why,
		  size_t size)
{
	const char *unit = units[limit][0] == '1' ? "" : units[limit];
	char whose[48];

	if (!why)
		return -XP_E_QUOTA;
	if (a->kind == 'u')
		snprintf(whose, sizeof(whose), "user %" PRIu32, a->id);
	else if (a->kind == 'g')
		snprintf(whose, sizeof(whose), "group %" PRIu32, a->id);
	else
		snprintf(whose, sizeof(whose), "all users together");
	snprintf(why, size,
		 "%s: %" PRIu64 " more would exceed the limit of %" PRIu64
		 "%s%s for %s (%s; %" PRIu64 " in use)",
		 texts[limit], amount, a->limits.value[limit], unit[0] ? " " : "", unit, whose,
		 xd_limit_names[limit], a->used[limit]);
	return -XP_E_QUOTA;
}

int xd_charge(struct xd_payer *p, enum xd_limit limit, uint64_t amount, char *why, size_t size)
{
	if (!fits(p->user, limit, amount))
		return refuse(p->user, limit, amount, why, size);
	for (uint32_t i = 0; i < p->n_groups; i++)
		if (!fits(p->groups[i], limit, amount))
			return refuse(p->groups[i], limit, amount, why, size);
	if (!fits(p->total, limit, amount))
		return refuse(p->total, limit, amount, why, size);
	p->user->used[limit] += amount;
	p->total->used[limit] += amount;
	for (uint32_t i = 0; i < p->n_groups; i++)
		p->groups[i]->used[limit] += amount;
	return 0;
}

static void take(struct xd_account *a, enum xd_limit limit, uint64_t amount)
{
	xc_assert(a->used[limit] >= amount);
	a->used[limit] -= amount;
}

void xd_uncharge(struct xd_payer *p, enum xd_limit limit, uint64_t amount)
{
	if (XD_SABOTAGE("drop-a-charge"))
		return;
	take(p->user, limit, amount);
	take(p->total, limit, amount);
	for (uint32_t i = 0; i < p->n_groups; i++)
		take(p->groups[i], limit, amount);
}
