/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */

/*
 * Files of the file tool: what is served cannot be left, what arrives is there whole or not at all.
 */
#define _GNU_SOURCE 1

#include "tools/store.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

static char home[64]; /* holds "served/" and "outside" */
static int root = -1;
static char why[STORE_WHY_MAX];

static const char *at(const char *name)
{
	static char path[4][256];
	static unsigned int turn;
	char *p = path[turn++ % 4];

	snprintf(p, 256, "%s/%s", home, name);
	return p;
}

static void write_file(const char *name, const char *text)
{
	FILE *f = fopen(at(name), "w");

	assert_non_null(f);
	assert_int_equal(fputs(text, f) >= 0, 1);
	assert_int_equal(fclose(f), 0);
}

static void expect_file(const char *name, const char *text)
{
	char buf[256] = "";
	FILE *f = fopen(at(name), "r");

	assert_non_null(f);
	buf[fread(buf, 1, sizeof(buf) - 1, f)] = '\0';
	fclose(f);
	assert_string_equal(buf, text);
}

/* How many entries a directory has. */
static unsigned int entries(const char *name)
{
	DIR *d = opendir(at(name));
	unsigned int n = 0;

	assert_non_null(d);
	for (struct dirent *e; (e = readdir(d)); n++)
		;
	closedir(d);
	return n - 2;
}

static int setup(void **state)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd;

	(void)state;
	strcpy(home, "/tmp/test_file_store.XXXXXX");
	if (!mkdtemp(home) || mkdir(at("served"), 0755) || mkdir(at("served/dir"), 0755))
		return -1;
	write_file("outside", "secret");
	write_file("served/file", "content");
	write_file("served/dir/inner", "inner");
	if (mkfifo(at("served/fifo"), 0644) || symlink("../outside", at("served/up")) ||
	    symlink(at("outside"), at("served/absolute")) ||
	    symlink("..", at("served/dir/parent")) || symlink("../..", at("served/dir/out")) ||
	    symlink("file", at("served/link")) || symlink("/proc/self/root", at("served/magic")) ||
	    symlink("loop", at("served/loop")))
		return -1;
	snprintf(address.sun_path, sizeof(address.sun_path), "%s", at("served/socket"));
	fd = socket(AF_UNIX, SOCK_STREAM, 0);
	if (bind(fd, (struct sockaddr *)&address, sizeof(address)))
		return -1;
	close(fd);
	return store_open_root(at("served"), &root, why);
}

static int teardown(void **state)
{
	char command[128];

	(void)state;
	close(root);
	snprintf(command, sizeof(command), "rm -rf %s", home);
	return system(command);
}

static int open_source(const char *path)
{
	struct store_source s;
	int r;

	why[0] = '\0';
	r = store_source_open(root, path, &s, why);
	if (r == 0)
		store_source_close(&s);
	else
		assert_true(why[0] != '\0');
	return r;
}

static void regular_files_are_served(void **state)
{
	(void)state;
	assert_int_equal(open_source("file"), 0);
	assert_int_equal(open_source("dir/inner"), 0);
	assert_int_equal(open_source("./dir/../file"), 0);
	assert_int_equal(open_source("link"), 0);
	assert_int_equal(open_source("dir/parent/file"), 0);
}

static void nothing_leads_out(void **state)
{
	static const char *const ways[] = {"../outside",
					   "dir/../../outside",
					   "up",
					   "absolute",
					   "dir/out/outside",
					   "dir/parent/../outside",
					   "/etc/passwd",
					   "/",
					   "..",
					   "//etc/passwd"};
	char real[256];

	(void)state;
	for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
		assert_int_equal(open_source(ways[i]), -EXDEV);
		assert_non_null(strstr(why, "leads out"));
	}
	/* An absolute path is none of ours even where it is one of our files. */
	snprintf(real, sizeof(real), "%s", at("served/file"));
	assert_int_equal(open_source(real), -EXDEV);
	assert_true(open_source("magic/etc/passwd") < 0);
	assert_int_equal(open_source("loop"), -ELOOP);
}

static void only_regular_files(void **state)
{
	(void)state;
	assert_int_equal(open_source("dir"), -EISDIR);
	assert_int_equal(open_source("."), -EISDIR);
	/* Without a writer, a blocking open would never return. */
	assert_int_equal(open_source("fifo"), -EINVAL);
	assert_int_equal(open_source("socket"), -EINVAL);
	assert_int_equal(open_source("none"), -ENOENT);
	assert_int_equal(open_source("file/none"), -ENOTDIR);
}

static void changes_are_seen(void **state)
{
	struct store_source s;
	char data[16];
	int fd;

	(void)state;
	write_file("served/changing", "0123456789");
	assert_int_equal(store_source_open(root, "changing", &s, why), 0);
	assert_int_equal(s.size_bytes, 10);
	assert_int_equal(store_source_read(&s, data, 4, 6, why), 0);
	assert_memory_equal(data, "6789", 4);
	assert_int_equal(store_source_unchanged(&s, why), 0);
	/*
	 * Written to in place: the time moves. The clock of files ticks slowly, hence an old time.
	 */
	fd = open(at("served/changing"), O_WRONLY);
	assert_int_equal(futimens(fd, (struct timespec[]){{.tv_sec = 1}, {.tv_sec = 1}}), 0);
	assert_int_equal(store_source_unchanged(&s, why), -ESTALE);
	assert_int_equal(ftruncate(fd, 8), 0);
	close(fd);
	assert_int_equal(store_source_unchanged(&s, why), -ESTALE);
	assert_int_equal(store_source_read(&s, data, 4, 6, why), -ENODATA);
	store_source_close(&s);
}

static void a_file_arrives_whole(void **state)
{
	struct store_temp t = {0};
	const unsigned int before = entries("served/dir");

	(void)state;
	assert_int_equal(store_temp_begin(root, "dir/new", 6, &t, why), 0);
	assert_int_equal(access(at("served/dir/new"), F_OK), -1);
	assert_int_equal(store_temp_write(&t, "def", 3, 3, why), 0);
	assert_int_equal(store_temp_write(&t, "abc", 3, 0, why), 0);
	assert_int_equal(store_temp_commit(&t, true, why), 0);
	expect_file("served/dir/new", "abcdef");
	assert_int_equal(entries("served/dir"), before + 1);
	/* Ending it again, as a caller's clean-up does, must leave the file. */
	store_temp_abort(&t);
	expect_file("served/dir/new", "abcdef");
}

static void a_failed_one_leaves_nothing(void **state)
{
	struct store_temp t = {0};
	const unsigned int before = entries("served");

	(void)state;
	assert_int_equal(store_temp_begin(root, "aborted", 3, &t, why), 0);
	assert_int_equal(entries("served"), before + 1);
	store_temp_abort(&t);
	assert_int_equal(entries("served"), before);
	assert_int_equal(store_temp_begin(root, "signalled", 3, &t, why), 0);
	store_temp_remove_in_handler(&t);
	assert_int_equal(entries("served"), before);
	store_temp_abort(&t);
	/* The directory of that name appears meanwhile: the rename fails, and nothing is left. */
	assert_int_equal(store_temp_begin(root, "raced", 3, &t, why), 0);
	assert_int_equal(mkdir(at("served/raced"), 0755), 0);
	assert_int_equal(store_temp_commit(&t, false, why), -EISDIR);
	assert_int_equal(rmdir(at("served/raced")), 0);
	assert_int_equal(entries("served"), before);
}

static void two_of_one_name(void **state)
{
	struct store_temp a = {0}, b = {0};

	(void)state;
	write_file("served/both", "old");
	assert_int_equal(store_temp_begin(root, "both", 1, &a, why), 0);
	assert_int_equal(store_temp_begin(root, "both", 1, &b, why), 0);
	assert_string_not_equal(a.temp, b.temp);
	assert_int_equal(store_temp_write(&a, "a", 1, 0, why), 0);
	assert_int_equal(store_temp_write(&b, "b", 1, 0, why), 0);
	expect_file("served/both", "old");
	assert_int_equal(store_temp_commit(&b, false, why), 0);
	expect_file("served/both", "b");
	assert_int_equal(store_temp_commit(&a, false, why), 0);
	expect_file("served/both", "a");
}

static int begin(const char *path)
{
	struct store_temp t = {0};
	int r;

	why[0] = '\0';
	r = store_temp_begin(root, path, 1, &t, why);
	if (r == 0)
		store_temp_abort(&t);
	else
		assert_true(why[0] != '\0');
	return r;
}

static void nothing_arrives_outside(void **state)
{
	static const char *const ways[] = {"../new", "dir/../../new", "dir/out/new", "/new",
					   "/tmp/new", "dir/parent/../new"};
	const unsigned int before = entries(".");

	(void)state;
	for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++)
		assert_int_equal(begin(ways[i]), -EXDEV);
	assert_int_equal(entries("."), before);
	assert_int_equal(begin("none/new"), -ENOENT);
	assert_int_equal(begin("file/new"), -ENOTDIR);
	assert_int_equal(begin("dir"), -EISDIR);
	assert_int_equal(begin("dir/"), -EISDIR);
	assert_int_equal(begin("."), -EISDIR);
	assert_int_equal(begin("dir/.."), -EISDIR);
	/*
	 * A link would be replaced, not followed; a FIFO would lose its readers: neither is meant.
	 */
	assert_int_equal(begin("up"), -EEXIST);
	assert_int_equal(begin("fifo"), -EEXIST);
	expect_file("outside", "secret");
}

static void names_and_room(void **state)
{
	struct store_temp t = {0};
	char name[300];

	(void)state;
	memset(name, 'n', sizeof(name));
	name[255] = '\0';
	assert_int_equal(store_temp_begin(root, name, 1, &t, why), 0);
	assert_int_equal(store_temp_commit(&t, false, why), 0);
	assert_int_equal(unlinkat(root, name, 0), 0);
	name[255] = 'n';
	name[256] = '\0';
	assert_int_equal(begin(name), -ENAMETOOLONG);
	assert_int_equal(store_temp_begin(root, "huge", UINT64_MAX / 2, &t, why), -ENOSPC);
	assert_non_null(strstr(why, "left"));
}

static void local_files(void **state)
{
	struct store_temp t = {0};
	struct store_source s;

	(void)state;
	/* into a directory */
	assert_int_equal(store_temp_begin_local(at("served"), "given", 1, &t, why), 0);
	assert_int_equal(store_temp_write(&t, "g", 1, 0, why), 0);
	assert_int_equal(store_temp_commit(&t, false, why), 0);
	expect_file("served/given", "g");
	/* through a link: the link stays one */
	assert_int_equal(symlink("given", at("served/to-given")), 0);
	assert_int_equal(store_temp_begin_local(at("served/to-given"), "x", 1, &t, why), 0);
	assert_int_equal(store_temp_write(&t, "h", 1, 0, why), 0);
	assert_int_equal(store_temp_commit(&t, false, why), 0);
	expect_file("served/given", "h");
	assert_int_equal(unlink(at("served/to-given")), 0);
	/* a device is not a place for a file, least of all to be replaced */
	assert_int_equal(store_temp_begin_local("/dev/null", "x", 1, &t, why), -EEXIST);
	assert_int_equal(store_temp_begin_local(at("none/x"), "x", 1, &t, why), -ENOENT);
	assert_int_equal(store_temp_begin_local(at("served/none/"), "x", 1, &t, why), -EISDIR);
	assert_int_equal(store_source_open_local(at("served/given"), &s, why), 0);
	store_source_close(&s);
	assert_int_equal(store_source_open_local(at("served/fifo"), &s, why), -EINVAL);
	assert_int_equal(store_source_open_local(at("served"), &s, why), -EISDIR);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(regular_files_are_served),
		cmocka_unit_test(nothing_leads_out),
		cmocka_unit_test(only_regular_files),
		cmocka_unit_test(changes_are_seen),
		cmocka_unit_test(a_file_arrives_whole),
		cmocka_unit_test(a_failed_one_leaves_nothing),
		cmocka_unit_test(two_of_one_name),
		cmocka_unit_test(nothing_arrives_outside),
		cmocka_unit_test(names_and_room),
		cmocka_unit_test(local_files),
	};

	return cmocka_run_group_tests_name("file_store", tests, setup, teardown);
}
