/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Charges: all payers or none, refused with the limit and whose it is, and gone in the end. */
#include "tests/unit/cm.h"

#include <string.h>

#include "daemon/core/quota.h"
#include "proto/errors.h"

static struct xd_policy policy;
static struct xd_principal group;
static struct xd_quota quota;
static struct xd_payer alice, bob;
static const uint32_t gids[] = { 7, 8 };

static int set_up(void **unused)
{
	(void)unused;
	xd_policy_init(&policy);
	policy.user.value[XD_LIMIT_grants] = 10;
	policy.total.value[XD_LIMIT_grants] = 25;
	group = (struct xd_principal){ .id = 8, .name = "eight" };
	group.set[XD_LIMIT_grants] = true;
	group.limits.value[XD_LIMIT_grants] = 15;
	policy.groups = &group;
	policy.n_groups = 1;
	xd_quota_init(&quota, &policy);
	assert_int_equal(xd_payer_init(&alice, &quota, 1, gids, 2), 0);
	assert_int_equal(xd_payer_init(&bob, &quota, 2, gids, 2), 0);
	return 0;
}

static int tear_down(void **unused)
{
	(void)unused;
	xd_payer_done(&alice, &quota);
	xd_payer_done(&bob, &quota);
	xd_quota_done(&quota);
	return 0;
}

static void refused(struct xd_payer *p, uint64_t amount, const char *whose)
{
	uint64_t user = p->user->used[XD_LIMIT_grants], total = quota.total.used[XD_LIMIT_grants];
	char why[256] = "";

	assert_int_equal(xd_charge(p, XD_LIMIT_grants, amount, why, sizeof(why)), -XP_E_QUOTA);
	assert_non_null(strstr(why, whose));
	assert_non_null(strstr(why, "grants"));
	/* All or none. */
	assert_int_equal(p->user->used[XD_LIMIT_grants], user);
	assert_int_equal(quota.total.used[XD_LIMIT_grants], total);
}

static void each_limit_holds(void **unused)
{
	(void)unused;
	refused(&alice, 11, "user 1");
	refused(&alice, UINT64_MAX, "user 1");
	assert_int_equal(xd_charge(&alice, XD_LIMIT_grants, 10, NULL, 0), 0);
	refused(&alice, 1, "user 1");
	/* The group's other member meets the group's limit before its own. */
	refused(&bob, 6, "group 8");
	assert_int_equal(xd_charge(&bob, XD_LIMIT_grants, 5, NULL, 0), 0);
	assert_int_equal(bob.groups[0]->used[XD_LIMIT_grants], 15);
	xd_uncharge(&alice, XD_LIMIT_grants, 10);
	xd_uncharge(&bob, XD_LIMIT_grants, 5);
	assert_int_equal(quota.total.used[XD_LIMIT_grants], 0);
	assert_int_equal(bob.groups[0]->used[XD_LIMIT_grants], 0);
}

static void total_holds(void **unused)
{
	struct xd_payer others[2];

	(void)unused;
	for (uint32_t i = 0; i < 2; i++) {
		assert_int_equal(xd_payer_init(&others[i], &quota, 10 + i, NULL, 0), 0);
		assert_int_equal(xd_charge(&others[i], XD_LIMIT_grants, 10, NULL, 0), 0);
	}
	refused(&alice, 6, "all users together");
	assert_int_equal(xd_charge(&alice, XD_LIMIT_grants, 5, NULL, 0), 0);
	xd_uncharge(&alice, XD_LIMIT_grants, 5);
	for (uint32_t i = 0; i < 2; i++) {
		xd_uncharge(&others[i], XD_LIMIT_grants, 10);
		xd_payer_done(&others[i], &quota);
	}
}

/* Two sessions of one user share its account; it goes with the last. */
static void sessions_share(void **unused)
{
	struct xd_payer twin;

	(void)unused;
	assert_int_equal(xd_payer_init(&twin, &quota, 1, NULL, 0), 0);
	assert_ptr_equal(twin.user, alice.user);
	assert_int_equal(twin.n_groups, 0);
	assert_int_equal(xd_charge(&twin, XD_LIMIT_grants, 8, NULL, 0), 0);
	refused(&alice, 3, "user 1");
	xd_uncharge(&twin, XD_LIMIT_grants, 8);
	xd_payer_done(&twin, &quota);
}

/* New limits bind what comes; what is in use stays, even above them. */
static void limits_change(void **unused)
{
	struct xd_policy less = policy;

	(void)unused;
	assert_int_equal(xd_charge(&alice, XD_LIMIT_grants, 9, NULL, 0), 0);
	less.user.value[XD_LIMIT_grants] = 4;
	xd_quota_set_policy(&quota, &less);
	refused(&alice, 1, "user 1");
	xd_uncharge(&alice, XD_LIMIT_grants, 6);
	assert_int_equal(xd_charge(&alice, XD_LIMIT_grants, 1, NULL, 0), 0);
	refused(&alice, 1, "user 1");
	xd_uncharge(&alice, XD_LIMIT_grants, 4);
	xd_quota_set_policy(&quota, &policy);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(each_limit_holds, set_up, tear_down),
		cmocka_unit_test_setup_teardown(total_holds, set_up, tear_down),
		cmocka_unit_test_setup_teardown(sessions_share, set_up, tear_down),
		cmocka_unit_test_setup_teardown(limits_change, set_up, tear_down),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
