/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Pieces as people write them, and what a wrong question is answered. */
#include "tests/unit/cm.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "common/checked.h"
#include "daemon/core/core.h"
#include "daemon/core/explain.h"

static struct xp_segment got[XP_SEGMENTS_MAX];
static char why[XD_TEXT_MAX];

static void accepted(const char *text, uint32_t n, uint64_t bytes)
{
	uint64_t sum = 0, all = 0;
	uint32_t count = 0;

	assert_int_equal(xd_explain_pieces("local", text, got, &count, &all, why), 0);
	assert_int_equal(count, n);
	assert_int_equal(all, bytes);
	for (uint32_t i = 0; i < n; i++) {
		sum += got[i].length;
		assert_int_equal(got[i].address % FABRIC_PAGE_BYTES, 0);
		/* No neighbours. */
		if (i)
			assert_true(got[i].address > got[i - 1].address + got[i - 1].length);
	}
	assert_int_equal(sum, bytes);
}

static void refused(const char *text, const char *sentence)
{
	uint64_t bytes = 7;
	uint32_t n = 8;

	memset(why, 'w', sizeof(why));
	assert_int_equal(xd_explain_pieces("local", text, got, &n, &bytes, why), -EINVAL);
	assert_string_equal(why, sentence);
	assert_int_equal(n, 8);
	assert_int_equal(bytes, 7);
}

static void pieces(void **unused)
{
	(void)unused;
	accepted("1x1", 1, 1);
	accepted("9x4096,1x13", 10, 9 * 4096 + 13);
	assert_int_equal(got[8].length, 4096);
	assert_int_equal(got[9].length, 13);
	accepted("2x64K,1x1M,1x1GiB", 4, 131072 + (1 << 20) + (1 << 30));
	accepted("3x0", 3, 0);
	accepted("4096x256M", 4096, UINT64_C(1) << 40);
	accepted("256x4294967295", 256, (UINT64_C(1) << 40) - 256);
	accepted("0000000000004x0008", 4, 32);
}

static void wrong_pieces(void **unused)
{
	(void)unused;
	refused("", "local: '' is not COUNTxBYTES, such as 9x4096 or 2x64K");
	refused("4096", "local: '4096' is not COUNTxBYTES, such as 9x4096 or 2x64K");
	refused("9x", "local: '9x' is not COUNTxBYTES, such as 9x4096 or 2x64K");
	refused("x9", "local: 'x9' is not COUNTxBYTES, such as 9x4096 or 2x64K");
	refused("1x2,", "local: '' is not COUNTxBYTES, such as 9x4096 or 2x64K");
	refused("1x2,,1x2", "local: '' is not COUNTxBYTES, such as 9x4096 or 2x64K");
	refused("1x2 ,1x2", "local: '1x2 ' is not COUNTxBYTES, such as 9x4096 or 2x64K");
	refused("-1x2", "local: '-1x2' is not COUNTxBYTES, such as 9x4096 or 2x64K");
	refused("1x-2", "local: '1x-2' is not COUNTxBYTES, such as 9x4096 or 2x64K");
	refused("1X2", "local: '1X2' is not COUNTxBYTES, such as 9x4096 or 2x64K");
	refused("1x1.5K", "local: '1x1.5K' is not COUNTxBYTES, such as 9x4096 or 2x64K");
	refused("1x99999999999999999999",
		"local: '1x99999999999999999999' is not COUNTxBYTES, such as 9x4096 or 2x64K");
	refused("0x5", "local: '0x5' has no pieces, at least 1");
	refused("4097x1", "local: '4097x1' has more than 4096 pieces");
	refused("99999999999999999999999x1",
		"local: '99999999999999999999999x1' has more than 4096 pieces");
	refused("4096x1,1x1", "local has 4097 pieces, at most 4096");
	refused("1x4G", "local: in '1x4G' a piece has 4294967296 bytes, at most 4294967295");
	refused("4095x256M,1x257M", "local has 1099512676352 bytes or more, at most 1099511627776");
	refused("1111111111111111111111111111111111111111x1",
		"local: '1111111111111111...' is 42 characters long, at most 39");
}

/* Every prefix and every single change of a good list is read or refused, and no worse. */
static void mangled_pieces(void **unused)
{
	static const char list[] = "12x4096,1x64K,3x0";
	char text[sizeof(list)];
	uint64_t bytes;
	uint32_t n, good = 0, bad = 0;

	(void)unused;
	for (size_t i = 0; i < sizeof(list) - 1; i++) {
		for (int c = 0; c < 256; c++) {
			memcpy(text, list, sizeof(text));
			text[i] = (char)c;
			why[0] = '\0';
			if (xd_explain_pieces("remote", text, got, &n, &bytes, why) == 0)
				good++;
			else
				bad += why[0] != '\0';
		}
	}
	assert_int_equal(good + bad, 256 * (sizeof(list) - 1));
	assert_true(good > 50 && bad > 3000);
}

/* ---- the question */

static void disarm(struct xd_engine *e, struct xd_timer *t)
{
	(void)e;
	(void)t;
}

static int like(const char *name, struct fabric_caps *caps, char *ret_why, size_t size)
{
	if (strcmp(name, "tiny") == 0) {
		caps->max_sge_rd = 1;
		return 0;
	}
	snprintf(ret_why, size, "there is no profile '%s'", name);
	return -ENOENT;
}

static const struct fabric_caps caps = {
	.name = "iwarp", .keys = FABRIC_KEYS_WINDOW, .max_sge = 16, .max_sge_rd = 16,
	.max_recv_sge = 16, .max_message_bytes = 1 << 30,
};

static const struct fabric_caps *get_caps(const struct fabric *f)
{
	(void)f;
	return &caps;
}

static void no_close(struct fabric *f)
{
	(void)f;
}

static void question(void **unused)
{
	static const struct xd_engine_ops engine_ops = { .disarm = disarm };
	static const struct fabric_ops fabric_ops = { .caps = get_caps, .close = no_close };
	static const struct {
		const char *words[5];
		int expect;
		const char *sentence;
		enum xd_rung taken;
		uint32_t wrs;
	} questions[] = {
		{ { "read", "9x4096,1x13", "1x36877", "", "" }, 0, NULL, XD_RUNG_DIRECT, 1 },
		{ { "read", "9x4096,1x13", "1x36877", "", "tiny" }, 0, NULL, XD_RUNG_SPLIT, 10 },
		{ { "write", "9x4K", "3x12K", "iwarp", "" }, 0, NULL, XD_RUNG_DIRECT, 3 },
		{ { "send", "17x8", "", "", "" }, 0, NULL, XD_RUNG_STAGE, 1 },
		{ { "recv", "2x8", "", "", "" }, 0, NULL, XD_RUNG_DIRECT, 1 },
		{ { "recv", "17x8", "", "", "" }, 0, "none", XD_RUNG_COUNT, 0 },
		{ { "fly", "1x1", "1x1", "", "" }, -EINVAL,
		  "the operation 'fly' is none of read, write, send, recv", XD_RUNG_COUNT, 0 },
		{ { "read", "1x1", "", "", "" }, -EINVAL,
		  "remote: '' is not COUNTxBYTES, such as 9x4096 or 2x64K", XD_RUNG_COUNT, 0 },
		{ { "send", "1x1", "1x1", "", "" }, -EINVAL,
		  "send has no remote side", XD_RUNG_COUNT, 0 },
		{ { "write", "1x1", "1x2", "", "" }, -EINVAL,
		  "the local side has 1 bytes, the remote side 2", XD_RUNG_COUNT, 0 },
		{ { "write", "1x1", "1x1", "mlx5_0", "" }, -ENOENT,
		  "there is no device 'mlx5_0'", XD_RUNG_COUNT, 0 },
		{ { "write", "1x1", "1x1", "", "huge" }, -ENOENT,
		  "there is no profile 'huge'", XD_RUNG_COUNT, 0 },
		{ { "write", "1x1", "1x1", "iwarp", "tiny" }, -EINVAL,
		  "there is a device and a profile: it is one of them", XD_RUNG_COUNT, 0 },
	};
	const struct xd_engine_ref engine = { .ops = &engine_ops };
	const struct fabric_ref fabric = { .ops = &fabric_ops };
	struct xd_policy policy;
	struct xd_explanation e;
	struct xd_core *core;

	(void)unused;
	xd_policy_init(&policy);
	assert_int_equal(xd_core_new(&engine, &policy, &core), 0);
	assert_int_equal(xd_core_add_fabric(core, &fabric), 0);
	xd_core_set_likeness(core, like);
	for (size_t i = 0; i < XC_ARRAY_SIZE(questions); i++) {
		uint32_t taken = 0;

		why[0] = '\0';
		assert_int_equal(xd_explain(core, questions[i].words, 5, &e, why),
				 questions[i].expect);
		if (questions[i].expect) {
			assert_string_equal(why, questions[i].sentence);
			continue;
		}
		for (int r = 0; r < XD_RUNG_COUNT; r++) {
			assert_true(strlen(e.text[r]) > 4);
			if (e.thoughts.of[r].verdict != XD_VERDICT_TAKEN)
				continue;
			taken++;
			assert_int_equal(r, questions[i].taken);
			assert_int_equal(e.thoughts.of[r].wrs, questions[i].wrs);
		}
		assert_int_equal(taken, questions[i].sentence ? 0 : 1);
	}
	assert_int_equal(xd_explain(core, questions[0].words, 4, &e, why), -EINVAL);
	policy.force = XD_RUNG_STAGE;
	assert_int_equal(xd_explain(core, questions[0].words, 5, &e, why), 0);
	assert_int_equal(e.thoughts.of[XD_RUNG_STAGE].verdict, XD_VERDICT_TAKEN);
	assert_int_equal(e.thoughts.of[XD_RUNG_DIRECT].verdict, XD_VERDICT_FORCED);
	xd_core_set_likeness(core, NULL);
	assert_int_equal(xd_explain(core, questions[1].words, 5, &e, why), -ENOENT);
	assert_string_equal(why, "there are no profiles");
	xd_core_free(core);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(pieces),
		cmocka_unit_test(wrong_pieces),
		cmocka_unit_test(mangled_pieces),
		cmocka_unit_test(question),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
