/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#define _GNU_SOURCE 1 /* asprintf */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/checked.h"
#include "daemon/fabric/verbs/selftest.h"
#include "tests/unit/cm.h"

/*
 * Findings that are kept: what comes back is what was stored, for the same identity, or nothing.
 */

#define FILE_MAX 8192

static const struct verbs_identity us = {
	.device = "rxe0",
	.driver = "rdma_rxe",
	.kernel = "6.1.0-57-amd64 #1 SMP PREEMPT_DYNAMIC Debian 6.1.192-3 (2026-11-26)",
	.firmware = " ffffff:0:0",
	.rdma_core = "libibverbs.so.1.14.44.0",
};

static char *folder, *file;

static int set_up(void **state)
{
	(void)state;
	folder = strdup("/tmp/test_verbs_cache.XXXXXX");
	if (!folder || !mkdtemp(folder) || asprintf(&file, "%s/selftest-rxe0", folder) < 0)
		return -1;
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	unlink(file);
	rmdir(folder);
	free(file);
	free(folder);
	return 0;
}

static struct verbs_findings findings(void)
{
	struct verbs_findings f = {
		.complete = true, .duration_ms = 1234, .max_inline = 176,
		.costs = { .wr_ns = 1, .reg_ns = 22, .reg_page_ns = 333, .bind_ns = 4444,
			   .copy_ns = 55555, .copy_kib_ns = 0, .copy_cold_kib_ns = UINT32_MAX },
	};

	for (int i = 0; i < VERBS_N_QUESTIONS; i++) {
		f.q[i].answer = (enum verbs_answer)(i % (VERBS_YES + 1));
		f.q[i].status = i % 7 - 2;
	}
	return f;
}

static void store(void)
{
	const struct verbs_findings f = findings();

	assert_int_equal(verbs_cache_store(folder, &us, &f), 0);
}

/* Loading leaves what it cannot load alone. */
static int load(const struct verbs_identity *identity)
{
	struct verbs_findings f, before;
	int r;

	memset(&f, 0xa5, sizeof(f));
	before = f;
	r = verbs_cache_load(folder, identity, &f);
	if (r)
		assert_memory_equal(&f, &before, sizeof(f));
	return r;
}

static size_t read_file(char *ret)
{
	int fd = open(file, O_RDONLY | O_CLOEXEC);
	ssize_t n;

	assert_true(fd >= 0);
	n = read(fd, ret, FILE_MAX);
	assert_true(n > 0 && n < FILE_MAX);
	close(fd);
	return (size_t)n;
}

static void write_file(const char *bytes, size_t n)
{
	int fd = open(file, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, bytes, n), n);
	close(fd);
}

static void comes_back(void **state)
{
	const struct verbs_findings f = findings();
	struct verbs_findings got;
	struct stat st;

	(void)state;
	assert_int_equal(load(&us), -ENOENT);
	store();
	memset(&got, 0, sizeof(got));
	assert_int_equal(verbs_cache_load(folder, &us, &got), 0);
	assert_int_equal(got.duration_ms, f.duration_ms);
	assert_int_equal(got.max_inline, f.max_inline);
	assert_memory_equal(&got.costs, &f.costs, sizeof(f.costs));
	assert_true(got.complete);
	for (int i = 0; i < VERBS_N_QUESTIONS; i++) {
		assert_int_equal(got.q[i].answer, f.q[i].answer);
		assert_int_equal(got.q[i].status, f.q[i].status);
	}
	assert_int_equal(stat(file, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0600);
}

static void of_another_identity(void **state)
{
	struct verbs_identity other;

	(void)state;
	store();
#define DIFFERS(field, text)                                                                       \
	do {                                                                                       \
		other = us;                                                                        \
		snprintf(other.field, sizeof(other.field), "%s", text);                            \
		assert_int_equal(load(&other), -ESTALE);                                           \
	} while (0)
	DIFFERS(driver, "siw");
	DIFFERS(driver, "");
	DIFFERS(kernel, "6.1.0-57-amd64 #1 SMP PREEMPT_DYNAMIC Debian 6.1.193-1 (2026-12-20)");
	DIFFERS(firmware, "1.2 ffffff:0:0");
	DIFFERS(rdma_core, "libibverbs.so.1.14.45.0");
#undef DIFFERS
	other = us;
	snprintf(other.device, sizeof(other.device), "rxe1");
	assert_int_equal(load(&other), -ENOENT);
	/* and is not there in another's name either */
	assert_int_equal(load(&us), 0);
}

/* The latest is kept, and nothing else stays behind. */
static void is_replaced(void **state)
{
	struct verbs_findings f = findings(), got;
	struct dirent *e;
	DIR *d;
	int n = 0;

	(void)state;
	store();
	f.q[3] = (struct verbs_finding){ VERBS_YES, 10 };
	assert_int_equal(verbs_cache_store(folder, &us, &f), 0);
	assert_int_equal(verbs_cache_load(folder, &us, &got), 0);
	assert_int_equal(got.q[3].answer, VERBS_YES);
	assert_int_equal(got.q[3].status, 10);
	d = opendir(folder);
	assert_non_null(d);
	while ((e = readdir(d)))
		n += e->d_name[0] != '.';
	closedir(d);
	assert_int_equal(n, 1);
}

/* Wherever a file is cut, whatever byte of it is wrong: it is not believed. */
static void damaged(void **state)
{
	char good[FILE_MAX], bad[FILE_MAX];
	size_t n;

	(void)state;
	store();
	n = read_file(good);
	for (size_t cut = 0; cut < n; cut++) {
		write_file(good, cut);
		assert_int_not_equal(load(&us), 0);
	}
	for (size_t at = 0; at < n; at++) {
		memcpy(bad, good, n);
		bad[at] ^= at % 2 ? 1 : 0x80;
		write_file(bad, n);
		assert_int_not_equal(load(&us), 0);
	}
	memcpy(bad, good, n);
	memcpy(bad + n, "\nmore\n", 6);
	write_file(bad, n + 6);
	assert_int_equal(load(&us), -EBADMSG);
	write_file("\0\0\0\0", 4);
	assert_int_equal(load(&us), -EBADMSG);
	write_file(good, n);
	assert_int_equal(load(&us), 0);
}

/* More trust than was measured, in a file that is otherwise in order. */
static void edited(void **state)
{
	char text[FILE_MAX], *no;
	size_t n;

	(void)state;
	store();
	n = read_file(text);
	text[n] = '\0';
	no = strstr(text, " no ");
	assert_non_null(no);
	memmove(no + 5, no + 4, n - (size_t)(no + 4 - text));
	memcpy(no, " yes ", 5);
	write_file(text, n + 1);
	assert_int_equal(load(&us), -EBADMSG);
}

/* An earlier daemon's had no costs. */
static void of_another_version(void **state)
{
	char text[FILE_MAX], *version;
	size_t n;

	(void)state;
	store();
	n = read_file(text);
	text[n] = '\0';
	version = strstr(text, "self-test 2\n");
	assert_non_null(version);
	version[strlen("self-test ")] = '1';
	write_file(text, n);
	assert_int_equal(load(&us), -EBADMSG);
}

static void no_file(void **state)
{
	const struct verbs_findings f = findings();

	(void)state;
	assert_int_equal(mkdir(file, 0700), 0);
	assert_int_equal(load(&us), -EBADMSG);
	assert_int_not_equal(verbs_cache_store(folder, &us, &f), 0);
	assert_int_equal(rmdir(file), 0);
	assert_int_equal(symlink("/dev/zero", file), 0);
	assert_int_equal(load(&us), -EBADMSG);
	assert_int_equal(unlink(file), 0);
	assert_int_equal(mkfifo(file, 0600), 0);
	assert_int_equal(load(&us), -EBADMSG);
}

static void not_to_be_kept(void **state)
{
	struct verbs_findings f = findings();
	struct verbs_identity odd = us;

	(void)state;
	f.complete = false;
	assert_int_equal(verbs_cache_store(folder, &us, &f), -EAGAIN);
	assert_int_equal(load(&us), -ENOENT);
	f.complete = true;
	assert_int_equal(verbs_cache_store("/nonexistent/folder", &us, &f), -ENOENT);
	snprintf(odd.device, sizeof(odd.device), "../rxe0");
	assert_int_equal(verbs_cache_store(folder, &odd, &f), -EINVAL);
	assert_int_equal(load(&odd), -EINVAL);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(comes_back), TEST(of_another_identity), TEST(is_replaced), TEST(damaged),
		TEST(edited),	  TEST(no_file),	     TEST(not_to_be_kept),
		TEST(of_another_version),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
