/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef FAKE_ENGINE_H
#define FAKE_ENGINE_H

/*
 * An engine for tests: a clock that stands still until the test moves it, jobs that wait until the
 * test runs them, random numbers that follow from a seed, and counters of what was asked. One
 * thread.
 */

#include <stdbool.h>
#include <stdint.h>

#include "common/heap.h"
#include "common/list.h"
#include "daemon/engine.h"

struct xd_engine {
	uint64_t now_ns;
	uint64_t random_state;
	struct xc_heap timers;
	struct xc_list jobs;     /* handed over, not run */
	struct xc_list finished; /* run, `done` not yet called */
	uint32_t n_jobs, n_finished;
	bool kicked; /* the test resets it */
	uint64_t kicks, delivers, gone, logs;
	char last_log[512];
	/* Where a test wants to know: called from deliver and session_gone when not NULL. */
	void (*on_deliver)(struct xd_engine *e, void *conn);
	void (*on_session_gone)(struct xd_engine *e, void *conn);
	void (*on_log)(struct xd_engine *e, const struct xd_log *about, const char *text);
	void *user; /* the test's */
};

extern const struct xd_engine_ops fake_engine_ops;

/* Whom the job is for that runs now; 0 outside of one, and where it is for nobody. */
extern uint32_t fake_engine_job_owner;

/* How many descriptors close_fd() got; none is really closed. */
extern uint64_t fake_engine_closed_fds;

/* The clock starts at 1 s: 0 stays free to mean "never". */
void fake_engine_init(struct xd_engine *e, uint64_t seed);

/* Asserts that nothing waits: no timer, no job. */
void fake_engine_done(struct xd_engine *e);

struct xd_engine_ref fake_engine_ref(struct xd_engine *e);

/* The next number of the engine's own sequence. */
uint64_t fake_engine_next(struct xd_engine *e);

/*
 * Runs and finishes jobs until none waits, those handed over meanwhile included. Returns how many.
 */
uint32_t fake_engine_run_jobs(struct xd_engine *e);

/*
 * Finer steps, so that a test can let things happen in between: `run` of the job at this place
 * (modulo how many wait), and `done` of the finished one at this place. False where there is none.
 */
bool fake_engine_run_job(struct xd_engine *e, uint32_t place);
bool fake_engine_finish_job(struct xd_engine *e, uint32_t place);

/* Moves the clock, firing the timers that come due, each at its own time. */
void fake_engine_advance(struct xd_engine *e, uint64_t ns);

/* The earliest deadline, or UINT64_MAX. */
uint64_t fake_engine_next_deadline(const struct xd_engine *e);

#endif
