/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#define _GNU_SOURCE 1 /* memfd_create(2), seals */
/*
 * Memory shared with the daemon. The order: size, map, allocate every page, seal SHRINK|GROW, send.
 * The daemon then seals the rest, and nobody can take a page from under it any more.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client-lib/internal.h"
#include "common/checked.h"

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U /* memfd_create(2), Linux 6.3 */
#endif
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 /* madvise(2), Linux 5.14 */
#endif

/* A signal makes fallocate(2) undo the whole call: steps bound what is done again. */
#define ALLOCATE_STEP (UINT64_C(64) << 20)
/* What the daemon is given to map and populate this much, on top of the time-out. */
#define ADD_BYTES_PER_SECOND (UINT64_C(256) << 20)

static uint64_t round_up(uint64_t bytes, uint64_t unit)
{
	return (bytes + unit - 1) / unit * unit;
}

/* ---- memory files */

static int create_file(unsigned int flags)
{
	unsigned int mfd = MFD_CLOEXEC | MFD_ALLOW_SEALING;
	int fd;

	if (flags & XFER_BUF_HUGETLB)
		mfd |= MFD_HUGETLB;
	fd = memfd_create("xfer", mfd | MFD_NOEXEC_SEAL);
	if (fd < 0 && errno == EINVAL)
		fd = memfd_create("xfer", mfd);
	if (fd < 0)
		return cl_fail(-errno, "buffer: no memory file: %s", xfer_strerror(errno));
	return fd;
}

/* stat(2) gives the page size of a hugetlb file as its block size. */
static int page_bytes(int fd, uint64_t *ret)
{
	struct stat st;

	if (fstat(fd, &st) < 0)
		return cl_fail(-errno, "buffer: %s", xfer_strerror(errno));
	*ret = (uint64_t)st.st_blksize;
	if (*ret < (uint64_t)sysconf(_SC_PAGESIZE))
		*ret = (uint64_t)sysconf(_SC_PAGESIZE);
	return 0;
}

static int allocate(int fd, uint64_t bytes)
{
	for (uint64_t at = 0; at < bytes;) {
		uint64_t n = xc_min_u64(bytes - at, ALLOCATE_STEP);

		if (fallocate(fd, 0, (off_t)at, (off_t)n) == 0)
			at += n;
		else if (errno != EINTR)
			return cl_fail(errno == ENOSPC ? -ENOMEM : -errno,
				       "buffer: %llu bytes cannot be allocated: %s",
				       (unsigned long long)bytes, xfer_strerror(errno));
	}
	return 0;
}

static int map(int fd, uint64_t bytes, uint64_t map_bytes, struct cl_memory *ret)
{
	void *p = mmap(NULL, map_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	if (p == MAP_FAILED)
		return cl_fail(-errno, "buffer: %llu bytes cannot be mapped: %s",
			       (unsigned long long)bytes, xfer_strerror(errno));
	/* A child that wrote here would write into transfers of its parent. */
	madvise(p, map_bytes, MADV_DONTFORK);
	*ret = (struct cl_memory){ .data = p, .bytes = bytes, .map_bytes = map_bytes };
	return 0;
}

void cl_memory_unmap(struct cl_memory *m)
{
	if (m->data)
		munmap(m->data, m->map_bytes);
	m->data = NULL;
}

static int seal(int fd)
{
	if (fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) == 0)
		return 0;
	return cl_fail(-XFER_E_BUFFER_UNFIT,
		       "buffer: the memory file cannot be sealed (MFD_ALLOW_SEALING): %s",
		       xfer_strerror(errno));
}

/* Maps and fills a file that has its size. Without the lock: it takes a second per few GiB. */
static int prepare(int fd, uint64_t bytes, struct cl_memory *ret)
{
	uint64_t page;
	int r = page_bytes(fd, &page);

	if (r < 0)
		return r;
	r = map(fd, bytes, round_up(bytes, page), ret);
	if (r < 0)
		return r;
	r = allocate(fd, bytes);
	/* A convenience: the pages exist, and would be mapped one by one at their first use. */
	if (r == 0)
		madvise(ret->data, ret->map_bytes, MADV_POPULATE_WRITE);
	if (r == 0)
		r = seal(fd);
	if (r < 0)
		cl_memory_unmap(ret);
	return r;
}

static int add(struct xfer_client *c, int fd, const struct cl_memory *m, uint32_t *ret_number)
{
	Xp__ClientMessage message = XP__CLIENT_MESSAGE__INIT;
	Xp__BufferAdd body = XP__BUFFER_ADD__INIT;
	struct cl_call call = { 0 };
	int r;

	body.size_bytes = m->bytes;
	message.body_case = XP__CLIENT_MESSAGE__BODY_BUFFER_ADD;
	message.buffer_add = &body;
	r = cl_call(c, &message, fd, &call, m->bytes / ADD_BYTES_PER_SECOND * 1000, "buffer");
	if (r == 0)
		*ret_number = call.number;
	return r;
}

static int new_file(uint64_t *bytes, unsigned int flags, struct cl_memory *ret)
{
	uint64_t page;
	int r, fd = create_file(flags);

	if (fd < 0)
		return fd;
	r = page_bytes(fd, &page);
	if (r == 0 && (flags & XFER_BUF_HUGETLB))
		*bytes = round_up(*bytes, page);
	if (r == 0 && ftruncate(fd, (off_t)*bytes) < 0)
		r = cl_fail(-errno, "buffer: %llu bytes: %s", (unsigned long long)*bytes,
			    xfer_strerror(errno));
	if (r == 0)
		r = prepare(fd, *bytes, ret);
	if (r < 0) {
		close(fd);
		return r;
	}
	return fd;
}

int cl_memory_new(struct xfer_client *c, uint64_t bytes, unsigned int flags,
		  struct cl_memory *ret_memory, uint32_t *ret_number)
{
	int r, fd;

	pthread_mutex_unlock(&c->lock);
	fd = new_file(&bytes, flags, ret_memory);
	pthread_mutex_lock(&c->lock);
	if (fd < 0)
		return fd;
	r = add(c, fd, ret_memory, ret_number);
	close(fd);
	if (r < 0)
		cl_memory_unmap(ret_memory);
	return r;
}

int cl_memory_remove(struct xfer_client *c, uint32_t number)
{
	Xp__ClientMessage message = XP__CLIENT_MESSAGE__INIT;
	Xp__BufferRemove body = XP__BUFFER_REMOVE__INIT;
	struct cl_call call = { 0 };

	body.buffer = number;
	message.body_case = XP__CLIENT_MESSAGE__BODY_BUFFER_REMOVE;
	message.buffer_remove = &body;
	return cl_call(c, &message, -1, &call, 0, "buffer free");
}

/* ---- by address */

static uintptr_t begin_of(const struct xfer_buf *b)
{
	return (uintptr_t)b->memory.data;
}

static bool holds(const struct xfer_buf *b, uintptr_t address)
{
	return address - begin_of(b) < b->memory.bytes;
}

/* The first buffer that begins behind the address. */
static size_t behind(const struct cl_buffers *t, uintptr_t address)
{
	size_t low = 0, high = t->n;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (begin_of(t->by_address[middle]) <= address)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

struct xfer_buf *cl_buffer_find(struct cl_buffers *t, uintptr_t address, uintptr_t *ret_next)
{
	size_t i;

	if (t->last < t->n && holds(t->by_address[t->last], address))
		return t->by_address[t->last];
	i = behind(t, address);
	if (i > 0 && holds(t->by_address[i - 1], address)) {
		t->last = i - 1;
		return t->by_address[i - 1];
	}
	*ret_next = i < t->n ? begin_of(t->by_address[i]) : UINTPTR_MAX;
	return NULL;
}

static int index_add(struct cl_buffers *t, struct xfer_buf *b)
{
	size_t i = behind(t, begin_of(b));

	if (t->n == t->room) {
		size_t room = t->room ? t->room * 2 : 8;
		struct xfer_buf **p = reallocarray(t->by_address, room, sizeof(*p));

		if (!p)
			return cl_fail(-ENOMEM, "buffer: no memory");
		t->by_address = p;
		t->room = room;
	}
	memmove(&t->by_address[i + 1], &t->by_address[i], (t->n - i) * sizeof(*t->by_address));
	t->by_address[i] = b;
	t->n++;
	return 0;
}

static void index_remove(struct cl_buffers *t, const struct xfer_buf *b)
{
	size_t i = behind(t, begin_of(b)) - 1;

	t->n--;
	memmove(&t->by_address[i], &t->by_address[i + 1], (t->n - i) * sizeof(*t->by_address));
}

/* ---- buffers */

/* With the lock held. Takes the memory over, also where it fails. */
static int wrap(struct xfer_client *c, struct cl_memory *m, uint32_t number, struct xfer_buf **ret)
{
	struct xfer_buf *b = calloc(1, sizeof(*b));
	int r;

	if (!b) {
		r = cl_fail(-ENOMEM, "buffer: no memory");
	} else {
		*b = (struct xfer_buf){ .client = c, .memory = *m, .number = number };
		r = index_add(&c->buffers, b);
	}
	if (r < 0) {
		cl_memory_remove(c, number);
		cl_memory_unmap(m);
		free(b);
		return r;
	}
	xc_list_append(&c->buffers.all, &b->link);
	*ret = b;
	return 0;
}

XFER_API int xfer_buf_new(struct xfer_client *c, uint64_t size_bytes, unsigned int flags,
			  struct xfer_buf **ret_buf)
{
	struct cl_memory m;
	uint32_t number;
	int r = cl_enter(c);

	if (r < 0)
		return r;
	if (!ret_buf)
		r = cl_fail(-EINVAL, "buffer: ret_buf is NULL");
	else if (size_bytes == 0 || size_bytes > CL_BUFFER_BYTES_MAX)
		r = cl_fail(-EINVAL, "buffer: %llu bytes: 1 to 2^40",
			    (unsigned long long)size_bytes);
	else if (flags & ~XFER_BUF_HUGETLB)
		r = cl_fail(-EINVAL, "buffer: flags 0x%x: only XFER_BUF_HUGETLB is known", flags);
	else
		r = cl_alive(c);
	if (r == 0)
		r = cl_memory_new(c, size_bytes, flags, &m, &number);
	if (r == 0)
		r = wrap(c, &m, number, ret_buf);
	return cl_leave(c, r);
}

/* What would fail at the daemon is told before the file is changed. */
static int check_memfd(int fd, uint64_t *ret_bytes)
{
	struct stat st;
	int seals = fcntl(fd, F_GET_SEALS), mode = fcntl(fd, F_GETFL);

	if (mode < 0)
		return cl_fail(-errno, "buffer: descriptor %d: %s", fd, xfer_strerror(errno));
	if (seals < 0 || fstat(fd, &st) < 0)
		return cl_fail(-XFER_E_BUFFER_UNFIT, "buffer: descriptor %d is no memory file", fd);
	if ((mode & O_ACCMODE) != O_RDWR)
		return cl_fail(-XFER_E_BUFFER_UNFIT,
			       "buffer: the memory file is not open for reading and writing");
	if (seals & F_SEAL_FUTURE_WRITE)
		return cl_fail(-XFER_E_BUFFER_SEALED,
			       "buffer: this memory file was added before: once in its life");
	if (seals & F_SEAL_WRITE)
		return cl_fail(-XFER_E_BUFFER_UNFIT,
			       "buffer: the memory file is sealed against writing");
	if ((seals & F_SEAL_SEAL) && (~seals & (F_SEAL_SHRINK | F_SEAL_GROW)))
		return cl_fail(-XFER_E_BUFFER_UNFIT,
			       "buffer: the memory file takes no seals (MFD_ALLOW_SEALING)");
	if (st.st_size < 1 || (uint64_t)st.st_size > CL_BUFFER_BYTES_MAX)
		return cl_fail(-EINVAL, "buffer: a memory file of %lld bytes: 1 to 2^40",
			       (long long)st.st_size);
	*ret_bytes = (uint64_t)st.st_size;
	return 0;
}

XFER_API int xfer_buf_from_memfd(struct xfer_client *c, int fd, struct xfer_buf **ret_buf)
{
	struct cl_memory m;
	uint32_t number;
	uint64_t bytes = 0;
	int r = cl_enter(c);

	if (r < 0)
		return r;
	r = ret_buf ? cl_alive(c) : cl_fail(-EINVAL, "buffer: ret_buf is NULL");
	if (r == 0)
		r = check_memfd(fd, &bytes);
	if (r < 0)
		return cl_leave(c, r);
	pthread_mutex_unlock(&c->lock);
	r = prepare(fd, bytes, &m);
	pthread_mutex_lock(&c->lock);
	if (r < 0)
		return cl_leave(c, r);
	r = add(c, fd, &m, &number);
	if (r < 0)
		cl_memory_unmap(&m);
	else
		r = wrap(c, &m, number, ret_buf);
	return cl_leave(c, r);
}

XFER_API void *xfer_buf_data(const struct xfer_buf *buf)
{
	return buf->memory.data;
}

XFER_API uint64_t xfer_buf_size(const struct xfer_buf *buf)
{
	return buf->memory.bytes;
}

XFER_API int xfer_buf_free(struct xfer_buf *buf)
{
	struct xfer_client *c;
	int r;

	if (!buf)
		return 0;
	c = buf->client;
	if (!cl_epoch_is(c->epoch)) {
		/* A child has no mapping of it, and what is there now is something else. */
		xc_list_remove(&buf->link);
		free(buf);
		return -ECHILD;
	}
	r = cl_enter(c);
	if (r < 0)
		return r;
	r = c->gone ? 0 : cl_memory_remove(c, buf->number);
	/* A daemon that is gone, or knows no such buffer, holds nothing of it. */
	if (r < 0 && !c->gone && r != -ENOENT)
		return cl_leave(c, r);
	index_remove(&c->buffers, buf);
	xc_list_remove(&buf->link);
	pthread_mutex_unlock(&c->lock);
	cl_memory_unmap(&buf->memory);
	free(buf);
	return 0;
}

void cl_buffers_done(struct xfer_client *c)
{
	bool ours = cl_epoch_is(c->epoch);
	struct xfer_buf *b;

	xc_list_for_each(b, &c->buffers.all, link) {
		if (ours)
			cl_memory_unmap(&b->memory);
		free(b);
	}
	free(c->buffers.by_address);
}
