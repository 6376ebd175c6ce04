/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What the ladder comes to on devices: all exhaust their SG list first. Beyond it mthca takes
 * several READs, mlx5 an indirect key, and mlx4 a copy or an indirect key, by what these cost.
 * cxgb4 alone pays for the sink of a READ.
 */
#include "tests/unit/cm.h"

#include <errno.h>
#include <string.h>

#include "common/checked.h"
#include "daemon/core/limits.h"
#include "daemon/core/stage.h"
#include "daemon/fabric/iwarp/profile.h"

#define KIB 1024u

static struct xp_segment local[XP_SEGMENTS_MAX], remote[1];

static struct fabric_caps caps_of(const char *profile)
{
	struct fabric_caps caps = {
		.keys = FABRIC_KEYS_WINDOW, .max_sge = XD_PLAN_SGE_MAX,
		.max_sge_rd = XD_PLAN_SGE_MAX, .max_recv_sge = XD_PLAN_SGE_MAX,
		.max_send_wr = 65536, .max_recv_wr = 65536, .max_message_bytes = UINT32_MAX,
		.max_inline = FABRIC_INLINE_MAX, .max_ranges = FABRIC_RANGES_MAX,
	};

	assert_non_null(iwarp_profile_find(profile));
	iwarp_profile_apply(iwarp_profile_find(profile), &caps);
	assert_true(caps.costs.wr_ns > 0);
	return caps;
}

static struct xd_plan plan_of(const struct fabric_caps *caps, uint8_t opcode, uint32_t pieces,
			      uint32_t bytes)
{
	const bool both = opcode == XP_OP_READ || opcode == XP_OP_WRITE;
	struct xd_shape s = { .opcode = opcode, .n_local = pieces, .n_remote = both,
			      .local = local, .remote = remote };
	struct xd_plan_limits limits;
	struct xd_plan plan = { .rung = XD_RUNG_COUNT };

	for (uint32_t i = 0; i < pieces; i++)
		local[i] = (struct xp_segment){ .address = UINT64_C(2) * bytes * i, .length = bytes,
						.key = 1 };
	remote[0] = (struct xp_segment){ .address = 0, .length = pieces * bytes, .key = 1 };
	xd_plan_limits_of(caps, opcode, XD_STAGE_RING_BYTES, &limits);
	(void)xd_plan_make(&s, &limits, &plan, NULL);
	return plan;
}

static void takes(const char *profile, uint8_t opcode, uint32_t pieces, uint32_t bytes,
		  enum xd_rung rung, uint32_t wrs, uint32_t keys)
{
	struct fabric_caps caps = caps_of(profile);
	struct xd_plan plan = plan_of(&caps, opcode, pieces, bytes);

	if (plan.rung != rung || plan.wrs != wrs || plan.keys != keys)
		fail_msg("%s, operation %u, %ux%u: rung %d, %u work requests, %u keys", profile,
			 opcode, pieces, bytes, plan.rung, plan.wrs, plan.keys);
}

static void lists_are_exhausted_first(void **unused)
{
	(void)unused;
	for (const struct iwarp_profile *p = iwarp_profiles; p->name; p++) {
		struct fabric_caps caps = caps_of(p->name);

		for (uint8_t op = XP_OP_READ; op <= XP_OP_RECV; op++) {
			const bool direct = caps.keys != FABRIC_KEYS_SLAB &&
					    (op != XP_OP_READ || !caps.read_sink_remote_write);
			struct xd_plan_limits limits;

			xd_plan_limits_of(&caps, op, XD_STAGE_RING_BYTES, &limits);
			for (uint32_t n = 1; n <= limits.max_sge; n++) {
				struct xd_plan plan = plan_of(&caps, op, n, 512);

				assert_int_equal(plan.rung == XD_RUNG_DIRECT, direct);
				assert_true(!direct || (plan.wrs == 1 && plan.keys == 0));
			}
			assert_true(plan_of(&caps, op, limits.max_sge + 1, 512).rung >
				    XD_RUNG_DIRECT);
		}
	}
}

static void mthca_takes_several_reads(void **unused)
{
	static const uint32_t bytes[] = { 1, 13, 512, 4096, 64 * KIB, 1024 * KIB };

	(void)unused;
	for (size_t i = 0; i < XC_ARRAY_SIZE(bytes); i++) {
		takes("mthca", XP_OP_READ, 30, bytes[i], XD_RUNG_DIRECT, 1, 0);
		takes("mthca", XP_OP_READ, 31, bytes[i], XD_RUNG_SPLIT, 2, 0);
		takes("mthca", XP_OP_READ, 100, bytes[i], XD_RUNG_SPLIT, 4, 0);
		takes("mthca", XP_OP_READ, 1000, bytes[i], XD_RUNG_SPLIT, 34, 0);
	}
}

static void mlx4_copies_or_makes_a_key(void **unused)
{
	(void)unused;
	/* The key costs more than the copy of a few bytes, and less than that of many. */
	takes("mlx4", XP_OP_READ, 31, 13, XD_RUNG_STAGE, 1, 0);
	takes("mlx4", XP_OP_READ, 31, 4096, XD_RUNG_INDIRECT, 1, 1);
	takes("mlx4", XP_OP_READ, 100, 13, XD_RUNG_STAGE, 1, 0);
	takes("mlx4", XP_OP_READ, 100, 4096, XD_RUNG_INDIRECT, 1, 1);
	takes("mlx4", XP_OP_WRITE, 33, 64 * KIB, XD_RUNG_INDIRECT, 1, 1);
	/* A message is never split. */
	takes("mlx4", XP_OP_SEND, 33, 13, XD_RUNG_STAGE, 1, 0);
	takes("mlx4", XP_OP_SEND, 33, 4096, XD_RUNG_INDIRECT, 1, 1);
	takes("mlx4", XP_OP_RECV, 33, 4096, XD_RUNG_INDIRECT, 1, 1);
	/* More ranges than a key takes. */
	takes("mlx4", XP_OP_READ, 257, 4096, XD_RUNG_SPLIT, 9, 0);
}

static void mlx5_makes_a_key(void **unused)
{
	static const uint32_t bytes[] = { 1, 13, 512, 4096, 64 * KIB };

	(void)unused;
	for (size_t i = 0; i < XC_ARRAY_SIZE(bytes); i++) {
		takes("mlx5", XP_OP_READ, 31, bytes[i], XD_RUNG_INDIRECT, 1, 1);
		takes("mlx5", XP_OP_READ, 60, bytes[i], XD_RUNG_INDIRECT, 1, 1);
		takes("mlx5", XP_OP_READ, 256, bytes[i], XD_RUNG_INDIRECT, 1, 1);
	}
}

static void cxgb4_alone_pays_for_a_sink(void **unused)
{
	(void)unused;
	for (const struct iwarp_profile *p = iwarp_profiles; p->name; p++) {
		struct fabric_caps caps = caps_of(p->name);
		struct xd_plan plan = plan_of(&caps, XP_OP_READ, 1, 1024 * KIB);

		/* "worst" is no device. */
		if (strcmp(p->name, "worst") != 0)
			assert_int_equal(plan.keys, strcmp(p->name, "cxgb4") == 0);
	}
	/* Short ones are copied, long ones get keys of their own. */
	takes("cxgb4", XP_OP_READ, 1, 64, XD_RUNG_STAGE, 1, 0);
	takes("cxgb4", XP_OP_READ, 1, 64 * KIB, XD_RUNG_STAGE, 1, 0);
	takes("cxgb4", XP_OP_READ, 1, 1024 * KIB, XD_RUNG_DIRECT, 1, 1);
	takes("cxgb4", XP_OP_READ, 9, 4096, XD_RUNG_STAGE, 1, 0);
	takes("cxgb4", XP_OP_READ, 9, 1024 * KIB, XD_RUNG_SPLIT, 9, 9);
	takes("cxgb4", XP_OP_READ, XD_PLAN_KEYS_MAX + 1, 1024 * KIB, XD_RUNG_STAGE, 136, 0);
	/* What goes out needs none. */
	takes("cxgb4", XP_OP_WRITE, 17, 4096, XD_RUNG_DIRECT, 1, 0);
	takes("cxgb4", XP_OP_WRITE, 18, 4096, XD_RUNG_SPLIT, 2, 0);
}

static void siw_and_rxe(void **unused)
{
	(void)unused;
	takes("siw", XP_OP_WRITE, 3, 20, XD_RUNG_INLINE, 1, 0);
	takes("siw", XP_OP_WRITE, 1, 81, XD_RUNG_STAGE, 1, 0);
	takes("siw", XP_OP_SEND, 40, 2, XD_RUNG_INLINE, 1, 0);
	takes("siw", XP_OP_READ, 1, 20, XD_RUNG_STAGE, 1, 0);
	takes("rxe", XP_OP_READ, 33, 13, XD_RUNG_STAGE, 1, 0);
	takes("rxe", XP_OP_READ, 33, 64 * KIB, XD_RUNG_SPLIT, 2, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(lists_are_exhausted_first),
		cmocka_unit_test(mthca_takes_several_reads),
		cmocka_unit_test(mlx4_copies_or_makes_a_key),
		cmocka_unit_test(mlx5_makes_a_key),
		cmocka_unit_test(cxgb4_alone_pays_for_a_sink),
		cmocka_unit_test(siw_and_rxe),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
