/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef XD_IO_HELPERS_H
#define XD_IO_HELPERS_H

/*
 * Threads for what may block. Not libuv's pool: its four threads are shared by everything, so one
 * slow name server, or one descriptor that a client made slow to close, would hold up all of it.
 * Each kind of work has threads of its own, started when the first job comes.
 *
 * A closer can be held up by whoever passed the descriptor, for as long as he likes (SO_LINGER, a
 * FUSE file); a look-up by a name whose server does not answer; a map by its size. So one owner has
 * at most XD_THREADS_PER_OWNER threads of a kind at a time, and the others' jobs go on.
 */

#include <stdbool.h>
#include <stdint.h>

#include "daemon/engine.h"

#define XD_THREADS_PER_OWNER 2

struct xd_helpers;

/*
 * wake(arg) is called on a helper thread when there is something for xd_helpers_reap(). 0 or
 * -ENOMEM.
 */
int xd_helpers_new(void (*wake)(void *arg), void *arg, struct xd_helpers **ret);

/*
 * Queues a job. Never blocks. Returns false where no thread could be started to run it: it stays
 * queued, and xd_helpers_retry() must be called after a while.
 */
bool xd_helpers_submit(struct xd_helpers *h, struct xd_job *job);
bool xd_helpers_retry(struct xd_helpers *h);

/* Calls `done` of the jobs that have run. On the engine's thread. */
void xd_helpers_reap(struct xd_helpers *h);

/* Jobs submitted and not reaped. */
unsigned xd_helpers_pending(const struct xd_helpers *h);

/*
 * Lets the threads finish what is queued, for at most wait_ms, and ends them. True: all has run,
 * was reaped and h is freed. False: a job blocks on; h and that job are left as they are, because
 * the thread still uses them, and the process should end with _exit(2) or exit_group, which no
 * close() can hold up.
 */
bool xd_helpers_stop(struct xd_helpers *h, uint64_t wait_ms);

#endif
