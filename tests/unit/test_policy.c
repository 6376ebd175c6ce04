/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include <stdlib.h>
#include <string.h>

#include "common/checked.h"
#include "daemon/core/policy.h"
#include "tests/unit/cm.h"

static struct xc_addr addr(const char *text)
{
	struct xc_addr a;

	assert_int_equal(xc_addr_parse(text, 20470, &a), 0);
	return a;
}

static void *copy(const void *from, size_t size)
{
	void *p = malloc(size);

	assert_non_null(p);
	return memcpy(p, from, size);
}

static struct xc_range *range(const char *text)
{
	struct xc_range r;

	assert_int_equal(xc_range_parse(text, &r), 0);
	return copy(&r, sizeof(r));
}

static bool listens(const struct xd_policy *p, uint32_t uid, uint32_t gid, const char *text)
{
	struct xc_addr a = addr(text);

	return xd_policy_may_listen(p, uid, &gid, 1, &a);
}

static bool connects(const struct xd_policy *p, uint32_t uid, uint32_t gid, const char *text)
{
	struct xc_addr a = addr(text);

	return xd_policy_may_connect(p, uid, &gid, 1, &a);
}

static bool accepts(const struct xd_policy *p, uint32_t uid, uint32_t gid, const char *text)
{
	struct xc_addr a = addr(text);

	return xd_policy_may_accept(p, uid, &gid, 1, &a);
}

static void shipped_limits(void **state)
{
	struct xd_policy p;
	size_t n = 0;

	(void)state;
	xd_policy_init(&p);
	while (xd_limit_names[n])
		n++;
	assert_int_equal(n, XD_LIMIT_COUNT);
	assert_string_equal(xd_limit_names[XD_LIMIT_pinned], "pinned");
	assert_string_equal(xd_limit_names[XD_LIMIT_bytes], "bytes");
	assert_true(p.user.value[XD_LIMIT_pinned] == UINT64_C(1) << 30);
	assert_true(p.user.value[XD_LIMIT_buffers] == 1024);
	assert_true(p.user.value[XD_LIMIT_sessions] == 64);
	assert_true(p.user.value[XD_LIMIT_endpoints] == 1024);
	assert_true(p.user.value[XD_LIMIT_listeners] == 16);
	assert_true(p.user.value[XD_LIMIT_grants] == 65536);
	assert_true(p.user.value[XD_LIMIT_requests] == 16384);
	assert_true(p.user.value[XD_LIMIT_bytes] == UINT64_C(4) << 30);
	assert_true(xd_policy_total(&p, XD_LIMIT_sessions) == 256);
	p.total.value[XD_LIMIT_sessions] = 7;
	assert_true(xd_policy_total(&p, XD_LIMIT_sessions) == 7);
	p.user.value[XD_LIMIT_bytes] = UINT64_MAX / 2;
	assert_true(xd_policy_total(&p, XD_LIMIT_bytes) == UINT64_MAX);
	assert_true(p.hello_ms == 5000 && p.connect_ms == 10000 && p.revoke_ms == 200);
	assert_true(p.progress_ms == 30000 && p.drain_ms == 10000);
	assert_int_equal(p.handshakes, 256);
	assert_true(!p.iwarp.crc && p.iwarp.shortcut);
	assert_true(p.iwarp.ird == 32 && p.iwarp.ord == 32);
	assert_true(p.iwarp.handshakes == 256 && p.iwarp.handshakes_per_host == 32);
	xd_policy_done(&p);
}

static void shipped_reach_is_loopback_for_all(void **state)
{
	static const char *const inside[] = { "127.0.0.1", "127.3.4.5", "::1", "::ffff:127.0.0.1" };
	static const char *const outside[] = {
		"0.0.0.0", "::",  "10.0.0.1",       "128.0.0.1",
		"fe80::1", "::2", "::ffff:8.8.8.8", "::ffff:0.0.0.0",
	};
	struct xd_policy p;

	(void)state;
	xd_policy_init(&p);
	for (size_t i = 0; i < XC_ARRAY_SIZE(inside); i++) {
		assert_true(listens(&p, 1000, 1000, inside[i]));
		assert_true(connects(&p, 0, 0, inside[i]));
	}
	for (size_t i = 0; i < XC_ARRAY_SIZE(outside); i++) {
		assert_false(listens(&p, 0, 0, outside[i]));
		assert_false(connects(&p, 0, 0, outside[i]));
	}
	xd_policy_done(&p);
}

/* alice (1) and group 50 may listen at 10/8; everybody may connect to 10.1/16. */
static void fill(struct xd_policy *p)
{
	static const uint32_t uid = 1, gid = 50;
	const struct xd_allow allows[] = {
		{
			.n_uids = 1,
			.n_gids = 1,
			.n_listen = 1,
			.uids = copy(&uid, sizeof(uid)),
			.gids = copy(&gid, sizeof(gid)),
			.listen = range("10.0.0.0/8"),
		},
		{ .everybody = true, .n_connect = 1, .connect = range("10.1.0.0/16") },
	};

	xd_policy_init(p);
	p->n_allows = XC_ARRAY_SIZE(allows);
	p->allows = copy(allows, sizeof(allows));
}

static void allows_name_people_and_ranges(void **state)
{
	struct xd_policy p;

	(void)state;
	fill(&p);
	assert_true(listens(&p, 1, 9, "10.2.3.4"));
	assert_true(listens(&p, 2, 50, "10.2.3.4"));
	assert_false(listens(&p, 2, 9, "10.2.3.4"));
	assert_false(listens(&p, 50, 1, "10.2.3.4")); /* a gid is no uid */
	assert_false(listens(&p, 1, 9, "11.0.0.1"));
	assert_false(connects(&p, 1, 50, "10.2.3.4"));
	assert_true(connects(&p, 2, 9, "10.1.3.4"));
	/* Once something is allowed, nothing else is: not even loopback. */
	assert_false(listens(&p, 1, 9, "127.0.0.1"));
	/* The same address in other clothes. */
	assert_true(listens(&p, 1, 9, "::ffff:10.2.3.4"));
	assert_false(listens(&p, 1, 9, "::ffff:11.2.3.4"));
	assert_false(xd_policy_may_listen(&p, 2, NULL, 0, &(struct xc_addr){ .family = 0 }));
	xd_policy_done(&p);
	assert_int_equal(p.n_allows, 0);
}

static void all_addresses_need_the_whole_range(void **state)
{
	static const struct {
		const char *range, *address;
		bool allowed;
	} cases[] = {
		{ "0.0.0.0/0", "0.0.0.0", true },         { "0.0.0.0/8", "0.0.0.0", false },
		{ "0.0.0.0", "0.0.0.0", false },          { "0.0.0.0/8", "0.1.2.3", true },
		{ "0.0.0.0/0", "::", false },             { "::/0", "::", true },
		{ "::/1", "::", false },                  { "::/0", "0.0.0.0", false },
		{ "::/0", "::ffff:10.0.0.1", false },     { "0.0.0.0/0", "::ffff:10.0.0.1", true },
		{ "0.0.0.0/0", "::ffff:0.0.0.0", true },
	};

	(void)state;
	for (size_t i = 0; i < XC_ARRAY_SIZE(cases); i++) {
		const struct xd_allow allow = {
			.everybody = true,
			.n_listen = 1,
			.listen = range(cases[i].range),
		};
		struct xd_policy p;

		xd_policy_init(&p);
		p.n_allows = 1;
		p.allows = copy(&allow, sizeof(allow));
		assert_int_equal(listens(&p, 1, 1, cases[i].address), cases[i].allowed);
		assert_false(connects(&p, 1, 1, cases[i].address));
		xd_policy_done(&p);
	}
}

/* From everywhere, unless a section that is for the user says from where. */
static void peers_may_come_from(void **state)
{
	const struct xd_allow allows[] = {
		{ .everybody = true, .n_listen = 1, .listen = range("0.0.0.0/0") },
		{
			.n_uids = 1,
			.n_accept = 1,
			.uids = copy(&(uint32_t){ 1 }, sizeof(uint32_t)),
			.accept = range("10.0.0.0/8"),
		},
		{
			.n_gids = 1,
			.n_accept = 1,
			.gids = copy(&(uint32_t){ 50 }, sizeof(uint32_t)),
			.accept = range("fd00::/8"),
		},
	};
	struct xd_policy p;

	(void)state;
	xd_policy_init(&p);
	assert_true(accepts(&p, 1, 50, "8.8.8.8") && accepts(&p, 1, 50, "fe80::1"));
	p.n_allows = XC_ARRAY_SIZE(allows);
	p.allows = copy(allows, sizeof(allows));
	/* nothing is said of them */
	assert_true(accepts(&p, 2, 9, "8.8.8.8") && accepts(&p, 2, 9, "127.0.0.1"));
	assert_true(accepts(&p, 1, 9, "10.2.3.4") && accepts(&p, 1, 9, "::ffff:10.2.3.4"));
	assert_false(accepts(&p, 1, 9, "11.0.0.1"));
	assert_false(accepts(&p, 1, 9, "::ffff:11.0.0.1"));
	assert_false(accepts(&p, 1, 9, "127.0.0.1")); /* not even loopback */
	assert_false(accepts(&p, 1, 9, "fd00::1"));
	assert_false(xd_policy_may_accept(&p, 1, NULL, 0, &(struct xc_addr){ .family = 0 }));
	/* several sections: what any of them says */
	assert_true(accepts(&p, 1, 50, "fd00::1") && accepts(&p, 1, 50, "10.2.3.4"));
	assert_true(accepts(&p, 2, 50, "fd00::1"));
	assert_false(accepts(&p, 2, 50, "10.2.3.4"));
	xd_policy_done(&p);
}

static void users_have_limits_of_their_own(void **state)
{
	const struct xd_principal users[] = {
		{ .id = 7, .limits.value[XD_LIMIT_sessions] = 3 },
		{ .id = 8, .limits.value[XD_LIMIT_sessions] = 4 },
	};
	struct xd_policy p;

	(void)state;
	xd_policy_init(&p);
	p.n_users = XC_ARRAY_SIZE(users);
	p.users = copy(users, sizeof(users));
	assert_true(xd_policy_user(&p, 7)->value[XD_LIMIT_sessions] == 3);
	assert_true(xd_policy_user(&p, 8)->value[XD_LIMIT_sessions] == 4);
	assert_true(xd_policy_user(&p, 9)->value[XD_LIMIT_sessions] == 64);
	xd_policy_done(&p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(shipped_limits),
		cmocka_unit_test(shipped_reach_is_loopback_for_all),
		cmocka_unit_test(allows_name_people_and_ranges),
		cmocka_unit_test(all_addresses_need_the_whole_range),
		cmocka_unit_test(peers_may_come_from),
		cmocka_unit_test(users_have_limits_of_their_own),
	};

	return cmocka_run_group_tests_name("policy", tests, NULL, NULL);
}
