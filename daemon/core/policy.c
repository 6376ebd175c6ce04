/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "daemon/core/policy.h"

#include <stdlib.h>
#include <string.h>

#include "common/checked.h"

const char *const xd_limit_names[XD_LIMIT_COUNT + 1] = {
#define XD_LIMIT_NAME(name, value, unit, text) #name,
	XD_LIMITS(XD_LIMIT_NAME)
#undef XD_LIMIT_NAME
		NULL,
};

void xd_policy_init(struct xd_policy *p)
{
	*p = (struct xd_policy){
		.user.value = {
#define XD_LIMIT_VALUE(name, number, unit, text) number,
			XD_LIMITS(XD_LIMIT_VALUE)
#undef XD_LIMIT_VALUE
		},
		.hello_ms = 5000,
		.connect_ms = 10000,
		.revoke_ms = 200,
		.progress_ms = 30000,
		.drain_ms = 10000,
		.handshakes = 256,
		.iwarp = {
			.shortcut = true,
			.ird = 32,
			.ord = 32,
			.handshakes = 256,
			.handshakes_per_host = 32,
		},
		.force = XD_RUNG_COUNT,
	};
}

void xd_policy_done(struct xd_policy *p)
{
	for (uint32_t i = 0; i < p->n_allows; i++) {
		free(p->allows[i].uids);
		free(p->allows[i].gids);
		free(p->allows[i].listen);
		free(p->allows[i].connect);
		free(p->allows[i].accept);
	}
	free(p->allows);
	free(p->users);
	free(p->groups);
	*p = (struct xd_policy){ .n_users = 0 };
}

/*
 * The kernel treats ::ffff:10.0.0.1 as 10.0.0.1: so must we, or an IPv6 range would open a way
 * to IPv4 addresses.
 */
static struct xc_addr unmapped(const struct xc_addr *a)
{
	static const uint8_t prefix[12] = { [10] = 0xff, [11] = 0xff };
	struct xc_addr v4 = { .family = 4, .port = a->port };

	if (a->family != 6 || memcmp(a->ip, prefix, sizeof(prefix)) != 0)
		return *a;
	memcpy(v4.ip, a->ip + sizeof(prefix), 4);
	return v4;
}

/*
 * 0.0.0.0 and :: stand for every address of the machine, so that a range must hold every
 * address of the family to allow them; 0.0.0.0/8 does not.
 */
static bool in_ranges(const struct xc_range *ranges, uint32_t n, const struct xc_addr *a)
{
	bool any = xc_addr_is_any(a);

	for (uint32_t i = 0; i < n; i++) {
		if (xc_range_contains(&ranges[i], a) && (!any || ranges[i].prefix_bits == 0))
			return true;
	}
	return false;
}

static bool has_id(const uint32_t *ids, uint32_t n, uint32_t id)
{
	for (uint32_t i = 0; i < n; i++) {
		if (ids[i] == id)
			return true;
	}
	return false;
}

static bool names_user(const struct xd_allow *allow, uint32_t uid, const uint32_t *gids,
		       uint32_t n_gids)
{
	if (allow->everybody || has_id(allow->uids, allow->n_uids, uid))
		return true;
	for (uint32_t i = 0; i < n_gids; i++) {
		if (has_id(allow->gids, allow->n_gids, gids[i]))
			return true;
	}
	return false;
}

static bool allowed(const struct xd_policy *p, uint32_t uid, const uint32_t *gids, uint32_t n_gids,
		    const struct xc_addr *address, bool listen)
{
	struct xc_addr a = unmapped(address);

	if (p->n_allows == 0)
		return xc_addr_is_loopback(&a);
	for (uint32_t i = 0; i < p->n_allows; i++) {
		const struct xd_allow *allow = &p->allows[i];

		if (names_user(allow, uid, gids, n_gids) &&
		    (listen ? in_ranges(allow->listen, allow->n_listen, &a)
			    : in_ranges(allow->connect, allow->n_connect, &a)))
			return true;
	}
	return false;
}

bool xd_policy_may_listen(const struct xd_policy *p, uint32_t uid, const uint32_t *gids,
			  uint32_t n_gids, const struct xc_addr *a)
{
	return allowed(p, uid, gids, n_gids, a, true);
}

bool xd_policy_may_connect(const struct xd_policy *p, uint32_t uid, const uint32_t *gids,
			   uint32_t n_gids, const struct xc_addr *a)
{
	return allowed(p, uid, gids, n_gids, a, false);
}

bool xd_policy_may_accept(const struct xd_policy *p, uint32_t uid, const uint32_t *gids,
			  uint32_t n_gids, const struct xc_addr *address)
{
	struct xc_addr a = unmapped(address);
	bool limited = false;

	for (uint32_t i = 0; i < p->n_allows; i++) {
		const struct xd_allow *allow = &p->allows[i];

		if (!allow->n_accept || !names_user(allow, uid, gids, n_gids))
			continue;
		if (in_ranges(allow->accept, allow->n_accept, &a))
			return true;
		limited = true;
	}
	return !limited;
}

const struct xd_limits *xd_policy_user(const struct xd_policy *p, uint32_t uid)
{
	for (uint32_t i = 0; i < p->n_users; i++) {
		if (p->users[i].id == uid)
			return &p->users[i].limits;
	}
	return &p->user;
}

uint64_t xd_policy_total(const struct xd_policy *p, enum xd_limit limit)
{
	uint64_t total = p->total.value[limit];

	if (total == 0 && !xc_mul_u64(p->user.value[limit], 4, &total))
		total = UINT64_MAX;
	return total;
}
