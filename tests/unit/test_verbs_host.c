/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What a host lacks for RDMA: one line each, with a remedy, and the daemon serves on. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/fabric/verbs/private.h"
#include "tests/unit/cm.h"
#include "tests/unit/fake_engine.h"

#define MIB (UINT64_C(1) << 20)

static const struct verbs_host good = {
	.devices = 2, .dev = true, .memlock_bytes = UINT64_MAX,
};

static void check(const struct verbs_host *host, bool refuses, enum xd_priority priority,
		  const char *words)
{
	struct verbs_remark r;

	verbs_host_remark(host, 4096 * MIB, &r);
	assert_int_equal(r.refuses, refuses);
	assert_int_equal(r.priority, priority);
	if (!strstr(r.text, words))
		fail_msg("'%s' is not in '%s'", words, r.text);
	assert_null(strchr(r.text, '\n'));
	assert_true(strlen(r.text) < sizeof(r.text) - 1);
}

static void a_good_host(void **state)
{
	struct verbs_remark r;

	(void)state;
	verbs_host_remark(&good, 4096 * MIB, &r);
	assert_false(r.refuses);
	assert_string_equal(r.text, "");
}

static void what_is_missing(void **state)
{
	struct verbs_host h = good;

	(void)state;
	h.devices = 0;
	check(&h, true, XD_INFO, "no RDMA device");
	h = good;
	h.dev = false;
	h.device_error = h.cm_error = ENOENT;
	check(&h, true, XD_NOTICE, "Load ib_uverbs and rdma_ucm");
	h = good;
	h.device_error = EACCES;
	check(&h, true, XD_NOTICE, "no right to open the uverbs files");
	h = good;
	h.cm_error = EPERM;
	check(&h, true, XD_NOTICE, "no right to open rdma_cm");
	h = good;
	h.device_error = ENOENT;
	check(&h, true, XD_NOTICE, "Load ib_uverbs,");
	h = good;
	h.cm_error = ENODEV;
	check(&h, true, XD_NOTICE, "Load rdma_ucm");
}

static void locked_memory(void **state)
{
	struct verbs_host h = good;

	(void)state;
	h.memlock_bytes = 8 * MIB;
	check(&h, true, XD_NOTICE, "is 8 MiB, too little");
	h.memlock_bytes = 64 * MIB;
	check(&h, false, XD_NOTICE, "is 64 MiB, less than the 4 GiB that clients may pin");
	h.memlock_bytes = 4096 * MIB;
	check(&h, false, 0, "");
}

/* ---- a host of files */

static char folder[64];
static char sys[96], dev[96];

static int set_up(void **state)
{
	(void)state;
	snprintf(folder, sizeof(folder), "/tmp/verbs-host.XXXXXX");
	if (!mkdtemp(folder))
		return -1;
	snprintf(sys, sizeof(sys), "%s/sys", folder);
	snprintf(dev, sizeof(dev), "%s/dev", folder);
	return 0;
}

static int tear_down(void **state)
{
	char command[128];

	(void)state;
	snprintf(command, sizeof(command), "rm -rf %s", folder);
	return system(command);
}

static void put(const char *where, const char *name)
{
	char path[192];
	FILE *f;

	mkdir(where, 0755);
	snprintf(path, sizeof(path), "%s/%s", where, name);
	f = fopen(path, "w");
	assert_non_null(f);
	fclose(f);
}

static void looks(void **state)
{
	struct verbs_host h;

	(void)state;
	verbs_host_look(sys, dev, &h);
	assert_int_equal(h.devices, 0);
	assert_false(h.dev);
	put(sys, "abi_version");
	put(sys, "uverbs0");
	put(sys, "uverbs1");
	verbs_host_look(sys, dev, &h);
	assert_int_equal(h.devices, 2);
	assert_false(h.dev);
	assert_int_equal(h.device_error, ENOENT);
	assert_int_equal(h.cm_error, ENOENT);
	/* One that can be opened will do. */
	put(dev, "uverbs1");
	verbs_host_look(sys, dev, &h);
	assert_true(h.dev);
	assert_int_equal(h.device_error, 0);
	assert_int_equal(h.cm_error, ENOENT);
	put(dev, "rdma_cm");
	verbs_host_look(sys, dev, &h);
	assert_int_equal(h.cm_error, 0);
}

/* ---- discovery ends where there is nothing to discover, and says so once */

static int finished;

static void on_finished(void *ctx)
{
	assert_ptr_equal(ctx, &finished);
	finished++;
}

static void on_opened(void *ctx, struct fabric *f)
{
	(void)ctx;
	(void)f;
	fail_msg("there is no device");
}

static void discovers_nothing(void **state)
{
	const struct verbs_options options = { .sys = sys, .dev = dev };
	const struct verbs_sink sink = { .opened = on_opened, .finished = on_finished };
	const struct fabric_events events = { 0 };
	struct verbs_discovery *d;
	struct xd_engine_ref ref;
	struct xd_engine e;

	(void)state;
	fake_engine_init(&e, 1);
	ref = fake_engine_ref(&e);
	finished = 0;
	assert_int_equal(verbs_discover(&options, &ref, &events, &sink, &finished, &d), 0);
	assert_int_equal(finished, 0);
	fake_engine_run_jobs(&e);
	assert_int_equal(finished, 1);
	assert_int_equal(e.logs, 1);
	assert_non_null(strstr(e.last_log, "no RDMA device"));
	verbs_discovery_stop(d);
	/* and one that nobody waits for */
	assert_int_equal(verbs_discover(&options, &ref, &events, &sink, &finished, &d), 0);
	verbs_discovery_stop(d);
	fake_engine_run_jobs(&e);
	assert_int_equal(finished, 1);
	assert_int_equal(e.logs, 1);
	fake_engine_done(&e);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_good_host),
		cmocka_unit_test(what_is_missing),
		cmocka_unit_test(locked_memory),
		cmocka_unit_test_setup_teardown(looks, set_up, tear_down),
		cmocka_unit_test_setup_teardown(discovers_nothing, set_up, tear_down),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
