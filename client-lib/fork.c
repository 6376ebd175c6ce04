/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Which process is this? A page that the kernel wipes in a child (MADV_WIPEONFORK, madvise(2))
 * answers without a system call per use, and also where fork(2) was called behind the back of
 * pthread_atfork(3).
 */
#include <errno.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "client-lib/internal.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static _Atomic(_Atomic uint32_t *) page;
static uint32_t newest;

static _Atomic uint32_t *map_page(void)
{
	size_t bytes = (size_t)sysconf(_SC_PAGESIZE);
	void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED)
		return NULL;
	if (madvise(p, bytes, MADV_WIPEONFORK) < 0) {
		munmap(p, bytes);
		return NULL;
	}
	return p;
}

int cl_epoch_get(uint32_t *ret_epoch)
{
	_Atomic uint32_t *p;

	/*
	 * Another thread of the parent may have held this lock while it forked; its critical
	 * section is a few instructions, once per client.
	 */
	pthread_mutex_lock(&lock);
	p = atomic_load(&page);
	if (!p) {
		p = map_page();
		if (!p) {
			int r = -errno;

			pthread_mutex_unlock(&lock);
			return r;
		}
		atomic_store(&page, p);
	}
	if (atomic_load(p) == 0)
		atomic_store(p, ++newest);
	*ret_epoch = atomic_load(p);
	pthread_mutex_unlock(&lock);
	return 0;
}

bool cl_epoch_is(uint32_t epoch)
{
	_Atomic uint32_t *p = atomic_load_explicit(&page, memory_order_acquire);

	return p && atomic_load_explicit(p, memory_order_relaxed) == epoch;
}
