/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef FABRIC_COSTS_H
#define FABRIC_COSTS_H

/*
 * What fabrics share to find out their costs. All of it blocks: for helper threads. What exists
 * costs 1 ns at least, so that 0 says that there is no such thing. Samples are few and the middle
 * one counts: a machine is busy, and only the order of costs matters.
 */

#include "daemon/fabric/fabric.h"

#define FABRIC_SAMPLES 9

uint64_t fabric_now_ns(void);

/* Samples of one thing; that many at a time in each. */
struct fabric_samples {
	uint64_t ns[FABRIC_SAMPLES];
	uint32_t n;
	uint32_t times;
};

/* False: it has enough, or the time is over. There is one sample before the time counts. */
bool fabric_wants_sample(const struct fabric_samples *s, uint64_t until_ns);
void fabric_add_sample(struct fabric_samples *s, uint64_t since_ns);
/* Of one thing: the middle, at least 1; 0 without samples. */
uint32_t fabric_middle(const struct fabric_samples *s);
/* What each of so many more costs, at least 1; 0 where `large` is not known. */
uint32_t fabric_each_more(uint32_t small_ns, uint32_t large_ns, uint32_t more);

/* Sets the costs of copying. 0 or -ENOMEM. */
int fabric_measure_copies(uint64_t until_ns, struct fabric_costs *costs);

#endif
