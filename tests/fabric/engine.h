/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef FABRIC_TEST_ENGINE_H
#define FABRIC_TEST_ENGINE_H

/*
 * An engine for fabrics alone: a real clock, timers, helper threads, and a loop that sleeps on the
 * fabrics' descriptors. It is strict where the daemon's is generous: a fabric is asked for progress
 * only where it asked for that, by its descriptor, by kick, or by what progress returned. So a
 * wake-up that a fabric forgets is a test that hangs, and not one that some other event saves.
 */

#include "daemon/engine.h"
#include "daemon/fabric/fabric.h"

/* A host has this many devices, or the others stay unseen. */
#define ENGINE_FABRICS 8

struct xd_engine *engine_new(void);
/* False where a job has not come back in time: threads are then still at work. */
bool engine_free(struct xd_engine *e, uint64_t wait_ms);
struct xd_engine_ref engine_ref(struct xd_engine *e);
/* What fabrics say goes to standard error. */
void engine_set_verbose(struct xd_engine *e);

/* Completions of this instance go to `polled`. */
void engine_add(struct xd_engine *e, const struct fabric_ref *ref,
		void (*polled)(struct fabric *f, const struct ibv_wc *wc));
void engine_remove(struct xd_engine *e, const struct fabric *f);

uint64_t engine_now(struct xd_engine *e);
/*
 * One turn; sleeps until there is something to do, or until this time. False: the time came, and
 * nothing else.
 */
bool engine_turn(struct xd_engine *e, uint64_t until_ns);
/* A fabric is in its progress or poll: events may come. */
bool engine_in_progress(const struct xd_engine *e);
/* How often a fabric was asked for progress. */
uint64_t engine_asked(const struct xd_engine *e);
/* Jobs that have not come back. */
unsigned int engine_jobs(const struct xd_engine *e);

/* Starts all the helper threads that there can be, so that their number says nothing later. */
void engine_staff(struct xd_engine *e);

#endif
