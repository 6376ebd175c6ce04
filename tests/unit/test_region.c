/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Which descriptors become regions, and that nothing can be taken back afterwards.
 */
#define _GNU_SOURCE 1
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "daemon/fabric/region.h"
#include "proto/errors.h"

#define PAGE 4096u
#define BYTES (8 * PAGE)
#define CLIENT_SEALS (F_SEAL_SHRINK | F_SEAL_GROW)
#define ALL_SEALS (CLIENT_SEALS | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL)
#define HUGE_BYTES (2u << 20)

static char why[256];

static int map(int fd, uint64_t bytes, struct fabric_region **ret)
{
	why[0] = '\0';
	return fabric_region_map(fd, bytes, &why, ret, why, sizeof(why));
}

/* A memory file of BYTES, allocated. */
static int allocated(unsigned int flags)
{
	int fd = memfd_create("test", MFD_CLOEXEC | flags);

	if (fd < 0 || ftruncate(fd, BYTES) < 0 || fallocate(fd, 0, 0, BYTES) < 0)
		abort();
	return fd;
}

static int sealed(int seals)
{
	int fd = allocated(MFD_ALLOW_SEALING);

	if (fcntl(fd, F_ADD_SEALS, seals) < 0)
		abort();
	return fd;
}

static void refused(int fd, uint64_t bytes, int status, const char *words)
{
	struct fabric_region *r = NULL;

	assert_int_equal(map(fd, bytes, &r), status);
	assert_null(r);
	if (!strstr(why, words))
		fail_msg("\"%s\" does not say \"%s\"", why, words);
	close(fd);
}

static void unfit(int fd, const char *words)
{
	refused(fd, BYTES, -XP_E_BUFFER_UNFIT, words);
}

static void maps_and_seals(void **state)
{
	int fd = sealed(CLIENT_SEALS);
	uint8_t *client = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	struct fabric_region *r, *again = NULL;
	uint8_t buf[PAGE];

	(void)state;
	assert_ptr_not_equal(client, MAP_FAILED);
	assert_int_equal(map(fd, BYTES, &r), 0);
	assert_int_equal(fabric_region_bytes(r), BYTES);
	assert_ptr_equal(fabric_region_ctx(r), why);
	assert_int_equal(fcntl(fd, F_GET_SEALS) & ALL_SEALS, ALL_SEALS);
	/* one memory, both ways */
	memset(client + PAGE, 'c', PAGE);
	assert_int_equal(fabric_region_copy(r, PAGE, buf, PAGE, false), 0);
	assert_int_equal(buf[PAGE - 1], 'c');
	memset(buf, 'd', sizeof(buf));
	assert_int_equal(fabric_region_copy(r, BYTES - PAGE, buf, PAGE, true), 0);
	assert_int_equal(client[BYTES - 1], 'd');
	/* nothing to be taken back */
	assert_int_equal(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, PAGE), -1);
	assert_int_equal(errno, EPERM);
	assert_int_equal(ftruncate(fd, 0), -1);
	assert_int_equal(madvise(client, PAGE, MADV_REMOVE), -1);
	/* once in its life */
	assert_int_equal(map(fd, BYTES, &again), -XP_E_BUFFER_SEALED);
	assert_non_null(strstr(why, "before"));
	fabric_region_unmap(r);
	refused(fd, BYTES, -XP_E_BUFFER_SEALED, "before");
	munmap(client, BYTES);
}

static void odd_sizes(void **state)
{
	int fd = memfd_create("odd", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	struct fabric_region *r;
	uint8_t byte = 7;

	(void)state;
	assert_int_equal(ftruncate(fd, 5000), 0);
	assert_int_equal(fallocate(fd, 0, 0, 5000), 0);
	assert_int_equal(fcntl(fd, F_ADD_SEALS, CLIENT_SEALS), 0);
	assert_int_equal(map(fd, 5000, &r), 0);
	assert_int_equal(fabric_region_copy(r, 4999, &byte, 1, true), 0);
	fabric_region_unmap(r);
	close(fd);
}

static void other_descriptors(void **state)
{
	char name[] = "/tmp/test_region_XXXXXX";
	int pair[2], file;

	(void)state;
	assert_int_equal(pipe(pair), 0);
	unfit(pair[0], "a pipe");
	close(pair[1]);
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
	unfit(pair[0], "a socket");
	close(pair[1]);
	unfit(eventfd(0, EFD_CLOEXEC), "anonymous");
	unfit(open("/dev/zero", O_RDWR), "a character device");
	unfit(open("/", O_RDONLY | O_DIRECTORY), "a directory");
	/* On a tmpfs it knows seals, and is born with the one that forbids more. */
	file = mkstemp(name);
	unlink(name);
	assert_int_equal(ftruncate(file, BYTES), 0);
	unfit(file, "file");
	file = open("/dev/shm", O_TMPFILE | O_RDWR, 0600);
	if (file >= 0)
		unfit(file, "file");
	assert_int_equal(map(-1, BYTES, &(struct fabric_region *){ NULL }), -XP_E_BUFFER_UNFIT);
	assert_non_null(strstr(why, "cannot be used"));
}

static int reopened(int flags)
{
	int fd = sealed(CLIENT_SEALS), other;
	char path[64];

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	other = open(path, flags | O_CLOEXEC);
	close(fd);
	return other;
}

static void wrong_seals(void **state)
{
	(void)state;
	unfit(allocated(0), "MFD_ALLOW_SEALING");
	unfit(allocated(MFD_ALLOW_SEALING), "F_SEAL_SHRINK F_SEAL_GROW");
	unfit(sealed(F_SEAL_SHRINK), " F_SEAL_GROW");
	unfit(sealed(F_SEAL_GROW), " F_SEAL_SHRINK");
	unfit(sealed(CLIENT_SEALS | F_SEAL_WRITE), "a seal beyond");
	unfit(sealed(CLIENT_SEALS | F_SEAL_FUTURE_WRITE), "a seal beyond");
	unfit(sealed(CLIENT_SEALS | F_SEAL_SEAL), "a seal beyond");
	unfit(sealed(F_SEAL_SEAL), "cannot be sealed");
	unfit(reopened(O_RDONLY), "reading and writing");
	unfit(reopened(O_PATH), "");
}

static void wrong_sizes(void **state)
{
	int fd = sealed(CLIENT_SEALS);
	struct fabric_region *r = NULL;

	(void)state;
	assert_int_equal(map(fd, BYTES + 1, &r), -XP_E_BUFFER_UNFIT);
	assert_string_equal(why, "the memory file has 32768 bytes, not the 32769 declared");
	assert_int_equal(map(fd, BYTES - PAGE, &r), -XP_E_BUFFER_UNFIT);
	assert_int_equal(map(fd, 0, &r), -XP_E_BUFFER_UNFIT);
	assert_int_equal(map(fd, UINT64_MAX, &r), -XP_E_BUFFER_UNFIT);
	/* none of which cost the file its one time */
	assert_int_equal(map(fd, BYTES, &r), 0);
	fabric_region_unmap(r);
	close(fd);
	fd = memfd_create("empty", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	assert_int_equal(fcntl(fd, F_ADD_SEALS, CLIENT_SEALS), 0);
	refused(fd, 0, -XP_E_BUFFER_UNFIT, "0 bytes");
}

static void holes(void **state)
{
	int fd = memfd_create("hole", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	(void)state;
	assert_int_equal(ftruncate(fd, BYTES), 0);
	assert_int_equal(fallocate(fd, 0, 0, BYTES / 2), 0);
	assert_int_equal(fcntl(fd, F_ADD_SEALS, CLIENT_SEALS), 0);
	unfit(fd, "16384 of its 32768 bytes are allocated");
	/* between two adds of a file that was whole */
	fd = sealed(CLIENT_SEALS);
	assert_int_equal(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, PAGE, 1), 0);
	assert_int_equal(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, PAGE, PAGE), 0);
	unfit(fd, "28672 of its 32768");
}

/*
 * As many blocks as a whole file has, some of them beyond the end: they must not stand in for the
 * holes.
 */
static void holes_in_disguise(void **state)
{
	int fd = memfd_create("disguise", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	struct stat st;

	(void)state;
	assert_int_equal(ftruncate(fd, BYTES), 0);
	assert_int_equal(fallocate(fd, 0, 0, BYTES / 2), 0);
	assert_int_equal(fallocate(fd, FALLOC_FL_KEEP_SIZE, BYTES, BYTES), 0);
	assert_int_equal(fcntl(fd, F_ADD_SEALS, CLIENT_SEALS), 0);
	assert_int_equal(fstat(fd, &st), 0);
	assert_true((uint64_t)st.st_blocks * 512 >= BYTES);
	unfit(fd, "16384 of its 32768 bytes are allocated");
}

/* The VmFlags of the map at this address. */
static void read_flags(const void *at, char *ret, size_t size)
{
	FILE *f = fopen("/proc/self/smaps", "re");
	char line[256], start[32];
	bool here = false;

	assert_non_null(f);
	snprintf(start, sizeof(start), "%lx-", (unsigned long)at);
	ret[0] = '\0';
	while (fgets(line, sizeof(line), f)) {
		if (strncmp(line, start, strlen(start)) == 0)
			here = true;
		if (here && strncmp(line, "VmFlags:", 8) == 0) {
			snprintf(ret, size, "%s", line);
			break;
		}
	}
	fclose(f);
}

static void stays_in_the_process(void **state)
{
	int fd = sealed(CLIENT_SEALS), status;
	struct fabric_region *r;
	char flags[256];
	pid_t pid;

	(void)state;
	assert_int_equal(map(fd, BYTES, &r), 0);
	read_flags(fabric_region_base(r), flags, sizeof(flags));
	assert_non_null(strstr(flags, " dc")); /* not copied at fork */
	assert_non_null(strstr(flags, " dd")); /* not dumped */
	fflush(NULL);
	pid = fork();
	if (pid == 0)
		_exit(msync(fabric_region_base(r), PAGE, MS_ASYNC) < 0 && errno == ENOMEM ? 7 : 0);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(WEXITSTATUS(status), 7);
	fabric_region_unmap(r);
	close(fd);
}

static void a_fault_is_an_error(void **state)
{
	int fd = sealed(CLIENT_SEALS), gone = memfd_create("gone", MFD_CLOEXEC);
	struct fabric_region *r;
	uint8_t buf[16] = { 0 };

	(void)state;
	assert_int_equal(map(fd, BYTES, &r), 0);
	/* What a poisoned page would do: memory that faults where the region's second page was. */
	assert_ptr_not_equal(mmap(fabric_region_base(r) + PAGE, PAGE, PROT_READ | PROT_WRITE,
				  MAP_SHARED | MAP_FIXED, gone, 0), MAP_FAILED);
	assert_int_equal(fabric_region_copy(r, PAGE - 8, buf, sizeof(buf), false),
			 -XP_E_BUFFER_FAULT);
	assert_int_equal(fabric_region_copy(r, PAGE + 8, buf, sizeof(buf), true),
			 -XP_E_BUFFER_FAULT);
	assert_int_equal(fabric_region_copy(r, 2 * PAGE, buf, sizeof(buf), true), 0);
	fabric_region_unmap(r);
	close(fd);
	close(gone);
}

static int huge(off_t from)
{
	int fd = memfd_create("huge", MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_HUGETLB);

	if (fd < 0)
		return -1;
	if (ftruncate(fd, 2 * HUGE_BYTES) < 0 ||
	    fallocate(fd, FALLOC_FL_KEEP_SIZE, from, 2 * HUGE_BYTES) < 0) {
		close(fd);
		return -1;
	}
	assert_int_equal(fcntl(fd, F_ADD_SEALS, CLIENT_SEALS), 0);
	return fd;
}

static void huge_pages(void **state)
{
	int fd = huge(0);
	struct fabric_region *r;

	(void)state;
	if (fd < 0)
		skip(); /* the host has no huge pages to give (vm.nr_hugepages) */
	assert_int_equal(map(fd, 2 * HUGE_BYTES, &r), 0);
	assert_int_equal(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, HUGE_BYTES),
			 -1);
	assert_int_equal(errno, EPERM);
	fabric_region_unmap(r);
	close(fd);
	/* half of it beyond the end */
	fd = huge(HUGE_BYTES);
	if (fd < 0)
		skip();
	refused(fd, 2 * HUGE_BYTES, -XP_E_BUFFER_UNFIT, "2097152 of its 4194304");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(maps_and_seals),
		cmocka_unit_test(odd_sizes),
		cmocka_unit_test(other_descriptors),
		cmocka_unit_test(wrong_seals),
		cmocka_unit_test(wrong_sizes),
		cmocka_unit_test(holes),
		cmocka_unit_test(holes_in_disguise),
		cmocka_unit_test(stays_in_the_process),
		cmocka_unit_test(a_fault_is_an_error),
		cmocka_unit_test(huge_pages),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
