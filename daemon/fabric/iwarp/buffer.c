/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#define _GNU_SOURCE 1 /* MADV_DONTDUMP */
#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/assert.h"
#include "daemon/fabric/iwarp/stream.h"

/*
 * The two buffers of a stream. They are maps of their own: what a connection took is the system's
 * again when it ends, however many there were; data of clients that lies in them is in no core
 * dump; and behind each is a page that nobody can touch.
 */

static size_t page_bytes(void)
{
	return (size_t)sysconf(_SC_PAGESIZE);
}

/* Of one, with its guard. */
static size_t slot_bytes(void)
{
	size_t page = page_bytes();

	return (STREAM_BUFFER_BYTES + page - 1) / page * page + page;
}

int stream_buffers_new(struct iwarp_stream *s)
{
	size_t slot = slot_bytes(), usable = slot - page_bytes();
	uint8_t *map;

	xc_assert(!s->buffers);
	map = mmap(NULL, 2 * slot, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (map == MAP_FAILED)
		return -ENOMEM;
	if (mprotect(map, usable, PROT_READ | PROT_WRITE) < 0 ||
	    mprotect(map + slot, usable, PROT_READ | PROT_WRITE) < 0) {
		munmap(map, 2 * slot);
		return -ENOMEM;
	}
	(void)madvise(map, 2 * slot, MADV_DONTDUMP);
	/* At the end of what is usable: the first byte too many is the guard's. */
	s->buffers = map;
	s->tx.buf = map + usable - STREAM_BUFFER_BYTES;
	s->rx.buf = map + slot + usable - STREAM_BUFFER_BYTES;
	return 0;
}

/*
 * A system call that fails with EFAULT says so of all that was handed to it: which part it was has
 * to be tried.
 */
bool stream_has_vanished(const struct iwarp_span *span)
{
	const size_t page = page_bytes();
	const void *fault;
	uint8_t byte;

	for (uint64_t at = 0; at < span->bytes; at += page - ((uintptr_t)span->at + at) % page)
		if (fabric_guard_copy(&byte, span->at + at, 1, &fault) < 0)
			return true;
	return false;
}

void stream_buffers_free(struct iwarp_stream *s)
{
	int r = s->buffers ? munmap(s->buffers, 2 * slot_bytes()) : 0;

	xc_assert(r == 0);
	s->buffers = s->tx.buf = s->rx.buf = NULL;
}
