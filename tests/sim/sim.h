/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef SIM_H
#define SIM_H

/*
 * What all parts of the simulation share: one seed, from which every decision comes; a trace, whose
 * digest two runs of one seed have in common; and the way out when a promise of the core was
 * broken.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct sim_rng {
	uint64_t state;
};

static inline uint64_t sim_next(struct sim_rng *r)
{
	/* splitmix64: every seed is a good one. */
	uint64_t z = (r->state += UINT64_C(0x9e3779b97f4a7c15));

	z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
	return z ^ (z >> 31);
}

/* 0 to n - 1; n must not be 0. */
static inline uint32_t sim_below(struct sim_rng *r, uint32_t n)
{
	return (uint32_t)((sim_next(r) >> 32) * n >> 32);
}

static inline bool sim_dice(struct sim_rng *r, uint32_t permille)
{
	return sim_below(r, 1000) < permille;
}

struct sim_state {
	uint64_t seed, step;
	uint64_t digest; /* of the trace */
	int keys; /* enum fabric_keys of every fabric; -1: by dice */
	bool trace;
	int report_fd;   /* >= 0: a broken promise is reported there, and nothing printed */
};

extern struct sim_state sim;

/* One line of the trace. */
void sim_note(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* A promise is broken: says which, how to see it again, and aborts. */
_Noreturn void sim_broken(const char *promise, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

#define sim_check(cond, promise, ...)                                                              \
	do {                                                                                       \
		if (!(cond))                                                                       \
			sim_broken(promise, __VA_ARGS__);                                          \
	} while (0)

#endif
