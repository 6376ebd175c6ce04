/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef FABRIC_REGION_H
#define FABRIC_REGION_H

/*
 * Client memory in the daemon: mapping a memfd so that its owner can take nothing back, and
 * touching it so that what cannot be prevented (a poisoned page, an overcommitted huge page) ends
 * one session and not the process. Shared by all fabrics: their tables point here.
 *
 * The order matters. Client: ftruncate, map, allocate all pages, seal SHRINK|GROW, send. Here:
 * check those seals, map, add FUTURE_WRITE|SEAL, and only then require size and allocated blocks:
 * before that seal the client can still punch a hole, after it cannot (EPERM), while writable maps
 * that exist go on (fcntl(2), memfd_create(2)).
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct fabric_region;

int fabric_region_map(int fd, uint64_t size_bytes, void *ctx, struct fabric_region **ret,
		      char *ret_why, size_t size);
/* Memory of the daemon's own, as struct fabric_ops says of slab_map. Any thread. */
int fabric_slab_map(uint64_t size_bytes, struct fabric_region **ret, void **ret_memory);
void fabric_region_unmap(struct fabric_region *region);
int fabric_region_copy(struct fabric_region *region, uint64_t offset, void *memory, size_t size,
		       bool to_region);

/* For fabrics: where the region is, how long, and whose. */
uint8_t *fabric_region_base(const struct fabric_region *region);
uint64_t fabric_region_bytes(const struct fabric_region *region);
void *fabric_region_ctx(const struct fabric_region *region);

/*
 * Installs the SIGBUS handler of the process, as region_map and opening a fabric do; again, where
 * something else has replaced it meanwhile. A SIGBUS outside a guarded copy keeps its default
 * action. 0 or -errno. Any thread.
 */
int fabric_guard_init(void);

/*
 * memmove() under the guard. Returns 0; or -1 where `to` or `from` faulted: *ret_fault is the
 * address. Any thread; not from a signal handler.
 */
int fabric_guard_copy(void *to, const void *from, size_t size, const void **ret_fault);

#endif
