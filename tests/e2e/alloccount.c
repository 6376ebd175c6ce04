/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Counts the allocations of the program that it is preloaded into (LD_PRELOAD), in the first
 * eight bytes of the file that XD_ALLOCCOUNT names, shared, so that another process can
 * read the count while the program runs. Frees are not counted: what a warm program must not
 * do is ask for memory.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

EXPORT void *malloc(size_t size);
EXPORT void *calloc(size_t count, size_t size);
EXPORT void *realloc(void *old, size_t size);
EXPORT void *reallocarray(void *old, size_t count, size_t size);
EXPORT int posix_memalign(void **ret, size_t alignment, size_t size);
EXPORT void *aligned_alloc(size_t alignment, size_t size);
EXPORT void *memalign(size_t alignment, size_t size);

/* The C library's own, by the names that it exports for this: dlsym() would allocate. */
extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t count, size_t size);
extern void *__libc_realloc(void *old, size_t size);
extern void *__libc_memalign(size_t alignment, size_t size);

static _Atomic uint64_t unseen;
static _Atomic uint64_t *_Atomic count = &unseen;

static void count_one(void)
{
	atomic_fetch_add_explicit(atomic_load(&count), 1, memory_order_relaxed);
}

__attribute__((constructor)) static void share_count(void)
{
	const char *path = getenv("XD_ALLOCCOUNT");
	int fd = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
	void *map;

	if (fd < 0)
		return;
	map = mmap(NULL, sizeof(uint64_t), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	if (map != MAP_FAILED)
		atomic_store(&count, (_Atomic uint64_t *)map);
}

void *malloc(size_t size)
{
	count_one();
	return __libc_malloc(size);
}

void *calloc(size_t n, size_t size)
{
	count_one();
	return __libc_calloc(n, size);
}

void *realloc(void *old, size_t size)
{
	count_one();
	return __libc_realloc(old, size);
}

void *reallocarray(void *old, size_t n, size_t size)
{
	size_t bytes;

	if (__builtin_mul_overflow(n, size, &bytes))
		return NULL;
	return realloc(old, bytes);
}

void *memalign(size_t alignment, size_t size)
{
	count_one();
	return __libc_memalign(alignment, size);
}

void *aligned_alloc(size_t alignment, size_t size)
{
	return memalign(alignment, size);
}

int posix_memalign(void **ret, size_t alignment, size_t size)
{
	void *memory = memalign(alignment, size);

	if (!memory)
		return ENOMEM;
	*ret = memory;
	return 0;
}
