/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* F_GET_SEALS, fallocate() */
#define _GNU_SOURCE 1
#include "daemon/fabric/region.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/assert.h"
#include "common/checked.h"
#include "common/cleanup.h"
#include "proto/errors.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 /* madvise(2), Linux 5.14 */
#endif

#define REGION_MAGIC UINT32_C(0x7265676e)
#define PAGE_BYTES 4096u /* or more: then pages are touched more than once */
#define COPY_MAX_BYTES (256u << 10)
#define CLIENT_SEALS (F_SEAL_SHRINK | F_SEAL_GROW)
#define OUR_SEALS (F_SEAL_FUTURE_WRITE | F_SEAL_SEAL)

struct fabric_region {
	uint32_t magic;
	uint8_t *base;
	uint64_t bytes;
	void *ctx;
};

struct why {
	char *text;
	size_t size;
};

#define unfit(why, ...) (snprintf((why)->text, (why)->size, __VA_ARGS__), -XP_E_BUFFER_UNFIT)

static const char *kind_of(mode_t mode)
{
	switch (mode & S_IFMT) {
	case S_IFIFO:
		return "a pipe";
	case S_IFSOCK:
		return "a socket";
	case S_IFREG:
		return "a regular file";
	case S_IFDIR:
		return "a directory";
	case S_IFCHR:
		return "a character device";
	case S_IFBLK:
		return "a block device";
	case S_IFLNK:
		return "a symbolic link";
	default:
		return "of an anonymous kind (an eventfd, pidfd, epoll or their like)";
	}
}

/*
 * First of all, and before anything that a strange descriptor could make expensive: only memory
 * files know seals.
 */
static int check_seals(int fd, const struct why *why)
{
	int seals = fcntl(fd, F_GET_SEALS);
	struct statx st;

	if (seals < 0) {
		/*
		 * What is known of it here: a plain fstat(2) of a FUSE file asks its server, which
		 * is a program of the client's and need not answer.
		 */
		if (statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_TYPE, &st) < 0)
			return unfit(why, "the descriptor cannot be used: %s", strerror(errno));
		return unfit(why, "the descriptor is %s, not a memory file of memfd_create(2)",
			     kind_of(st.stx_mode));
	}
	/* A file on a tmpfs, and a memfd without MFD_ALLOW_SEALING, are born with F_SEAL_SEAL. */
	if ((seals & F_SEAL_SEAL) && (seals & CLIENT_SEALS) != CLIENT_SEALS)
		return unfit(why, "the memory file cannot be sealed: it must come from "
				  "memfd_create(2) with MFD_ALLOW_SEALING");
	if ((seals & CLIENT_SEALS) != CLIENT_SEALS)
		return unfit(why, "the memory file lacks the seals%s%s that keep its size",
			     seals & F_SEAL_SHRINK ? "" : " F_SEAL_SHRINK",
			     seals & F_SEAL_GROW ? "" : " F_SEAL_GROW");
	if ((seals & OUR_SEALS) == OUR_SEALS) {
		snprintf(why->text, why->size,
			 "the memory file was added to a daemon before: "
			 "it can be added once in its life");
		return -XP_E_BUFFER_SEALED;
	}
	if (seals & (OUR_SEALS | F_SEAL_WRITE))
		return unfit(why, "the memory file has a seal beyond F_SEAL_SHRINK and "
				  "F_SEAL_GROW: the daemon could not write to it or seal it");
	return 0;
}

static int check_size(int fd, uint64_t size_bytes, const struct why *why)
{
	int flags = fcntl(fd, F_GETFL);
	struct stat st;

	if (flags < 0 || (flags & O_ACCMODE) != O_RDWR)
		return unfit(why, "the memory file is not open for reading and writing");
	if (fstat(fd, &st) < 0)
		return unfit(why, "the memory file cannot be examined: %s", strerror(errno));
	/*
	 * The client's seals stand: the size is final, and a mistake here costs it no memory file.
	 */
	if (size_bytes == 0 || (uint64_t)st.st_size != size_bytes)
		return unfit(why, "the memory file has %" PRIu64 " bytes, not the %" PRIu64
			     " declared", (uint64_t)st.st_size, size_bytes);
	return 0;
}

/*
 * Pages beyond the end (fallocate(2) with FALLOC_FL_KEEP_SIZE makes them) would count as allocated
 * and so hide as many holes. F_SEAL_GROW keeps new ones from coming once they are dropped. This
 * must precede our own seal, which forbids punching to us as well.
 */
static int drop_excess(int fd, uint64_t size_bytes, const struct why *why)
{
	if (fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)size_bytes,
		      (off_t)(INT64_MAX - size_bytes)) < 0)
		return unfit(why, "the memory file cannot be trimmed to its size: %s",
			     strerror(errno));
	return 0;
}

static int add_seals(int fd, const struct why *why)
{
	if (fcntl(fd, F_ADD_SEALS, OUR_SEALS) == 0)
		return 0;
	if (errno == EPERM) { /* another add of the same file was faster */
		snprintf(why->text, why->size,
			 "the memory file was sealed meanwhile: it can be added once in its life");
		return -XP_E_BUFFER_SEALED;
	}
	return unfit(why, "the memory file cannot be sealed: %s", strerror(errno));
}

static int no_memory(const struct fabric_region *r, const struct why *why)
{
	snprintf(why->text, why->size, "no memory to map %" PRIu64 " bytes", r->bytes);
	return -ENOMEM;
}

/*
 * Only now is the answer final: nobody can punch a hole any more. hugetlbfs counts its blocks as
 * shmem does.
 */
static int check_blocks(int fd, uint64_t size_bytes, const struct why *why)
{
	uint64_t allocated;
	struct stat st;

	if (fstat(fd, &st) < 0)
		return unfit(why, "the memory file cannot be examined: %s", strerror(errno));
	allocated = (uint64_t)st.st_blocks * 512;
	if (allocated < size_bytes)
		return unfit(why, "the memory file has holes: %" PRIu64 " of its %" PRIu64
			     " bytes are allocated", allocated, size_bytes);
	return 0;
}

/*
 * Reads a byte of each page, under the guard: a page that is bad already is found here. And where a
 * hypervisor keeps shadow page tables, populating fills the guest's only: the first touch of each
 * page then costs 10 us more, which belongs on a helper and not on the engine's thread.
 */
static int touch(const struct fabric_region *r, const struct why *why)
{
	const void *fault;
	uint8_t byte;

	for (uint64_t at = 0; at < r->bytes; at += PAGE_BYTES)
		if (fabric_guard_copy(&byte, r->base + at, 1, &fault) < 0)
			return unfit(why, "the memory file has a bad page at byte %" PRIu64, at);
	return 0;
}

/*
 * Page tables now, on a helper, and not fault by fault on the engine's thread. Not dumped, not
 * inherited: client memory belongs into no core file and no child.
 */
static int settle(struct fabric_region *r, int fd, const struct why *why)
{
	struct stat before, after;

	if (madvise(r->base, r->bytes, MADV_DONTFORK) < 0 ||
	    madvise(r->base, r->bytes, MADV_DONTDUMP) < 0)
		return unfit(why, "the memory file cannot be kept from children and core files: %s",
			     strerror(errno));
	if (fstat(fd, &before) < 0)
		return unfit(why, "the memory file cannot be examined: %s", strerror(errno));
	/* EINVAL: a kernel before 5.14 has no such advice; pages then come one by one. */
	if (madvise(r->base, r->bytes, MADV_POPULATE_WRITE) < 0 && errno != EINVAL) {
		if (errno == ENOMEM || errno == EAGAIN)
			return no_memory(r, why);
		return unfit(why, "pages of the memory file cannot be reached: %s",
			     strerror(errno));
	}
	/*
	 * A hole that check_blocks could not see (a huge page that reaches beyond the end) has been
	 * filled just now.
	 */
	if (fstat(fd, &after) == 0 && after.st_blocks > before.st_blocks)
		return unfit(why, "the memory file had holes: populating it took %" PRIu64 " bytes",
			     (uint64_t)(after.st_blocks - before.st_blocks) * 512);
	return touch(r, why);
}

static int map(struct fabric_region *r, int fd, const struct why *why)
{
	void *base = MAP_FAILED;
	int error = ENOMEM;

	if (r->bytes <= SIZE_MAX / 2) {
		base = mmap(NULL, r->bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd,
			    0);
		error = errno;
	}
	if (base != MAP_FAILED) {
		r->base = base;
		return 0;
	}
	if (error == ENOMEM || error == EAGAIN)
		return no_memory(r, why);
	return unfit(why, "the memory file cannot be mapped: %s", strerror(error));
}

static void region_freep(struct fabric_region **r)
{
	if (*r)
		fabric_region_unmap(*r);
}

int fabric_region_map(int fd, uint64_t size_bytes, void *ctx, struct fabric_region **ret,
		      char *ret_why, size_t size)
{
	const struct why why = { ret_why, size };
	xc_cleanup(region_freep) struct fabric_region *r = NULL;
	int err;

	err = fabric_guard_init();
	if (!err)
		err = check_seals(fd, &why);
	if (!err)
		err = check_size(fd, size_bytes, &why);
	if (err)
		return err;
	r = calloc(1, sizeof(*r));
	if (!r) {
		snprintf(ret_why, size, "no memory");
		return -ENOMEM;
	}
	*r = (struct fabric_region){ .magic = REGION_MAGIC, .bytes = size_bytes, .ctx = ctx };
	err = map(r, fd, &why);
	if (!err)
		err = drop_excess(fd, size_bytes, &why);
	if (!err)
		err = add_seals(fd, &why);
	if (!err)
		err = check_blocks(fd, size_bytes, &why);
	if (!err)
		err = settle(r, fd, &why);
	if (err)
		return err;
	*ret = xc_take_ptr(r);
	return 0;
}

int fabric_slab_map(uint64_t size_bytes, struct fabric_region **ret, void **ret_memory)
{
	struct fabric_region *r = calloc(1, sizeof(*r));

	if (!r)
		return -ENOMEM;
	*r = (struct fabric_region){ .magic = REGION_MAGIC, .bytes = size_bytes };
	r->base = mmap(NULL, r->bytes, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	if (r->base == MAP_FAILED) {
		free(r);
		return -ENOMEM;
	}
	*ret = r;
	*ret_memory = r->base;
	return 0;
}

void fabric_region_unmap(struct fabric_region *r)
{
	XC_CHECK(r, REGION_MAGIC);
	if (r->base)
		xc_assert(munmap(r->base, r->bytes) == 0);
	r->magic = 0;
	free(r);
}

int fabric_region_copy(struct fabric_region *r, uint64_t offset, void *memory, size_t size,
		       bool to_region)
{
	const void *fault;
	uint8_t *at;

	XC_CHECK(r, REGION_MAGIC);
	/* The caller's own arithmetic, not a client's: those are checked where they come in. */
	xc_assert(size <= COPY_MAX_BYTES && xc_range_within(offset, size, r->bytes));
	at = r->base + offset;
	if (fabric_guard_copy(to_region ? at : memory, to_region ? memory : at, size, &fault) < 0)
		return -XP_E_BUFFER_FAULT;
	return 0;
}

uint8_t *fabric_region_base(const struct fabric_region *r)
{
	XC_CHECK(r, REGION_MAGIC);
	return r->base;
}

uint64_t fabric_region_bytes(const struct fabric_region *r)
{
	XC_CHECK(r, REGION_MAGIC);
	return r->bytes;
}

void *fabric_region_ctx(const struct fabric_region *r)
{
	XC_CHECK(r, REGION_MAGIC);
	return r->ctx;
}
