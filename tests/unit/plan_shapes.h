/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef PLAN_SHAPES_H
#define PLAN_SHAPES_H

/* Random transfers for the planner, and what a plain look at one says of it. */

#include <stdbool.h>

#include "daemon/core/plan.h"

#define SHAPE_SEGMENTS 4096

extern struct xp_segment shape_local[SHAPE_SEGMENTS], shape_remote[SHAPE_SEGMENTS];

void shapes_seed(uint64_t seed);
uint32_t shapes_below(uint32_t n);
/* Its segments are the two arrays; so that a later one changes it. */
struct xd_shape shapes_random(struct xd_plan_limits *ret_limits);
struct xp_segment shape_segment(uint64_t address, uint32_t length, uint32_t key);

/* Runs of a side when neighbours are joined. */
uint32_t shape_lines(const struct xp_segment *side, uint32_t n);
uint64_t shape_bytes(const struct xp_segment *side, uint32_t n);
/* How many bytes of the page are left from this address on. */
uint64_t shape_in_page(uint64_t address);

bool plans_equal(const struct xd_plan *a, const struct xd_plan *b);
bool thoughts_equal(const struct xd_thoughts *a, const struct xd_thoughts *b);

/* What each rung could do, found out the slow way. */
struct opinion {
	bool message, exposed;
	uint64_t bytes, longest; /* run of remote memory; a message: bytes */
	uint32_t local_lines, remote_lines;
	uint32_t list, pieces; /* most pieces of a run */
	bool crosses;	       /* a run is short, and its page ends in it */
	bool can[XD_RUNG_COUNT];
	uint64_t wrs[XD_RUNG_COUNT], keys[XD_RUNG_COUNT], ns[XD_RUNG_COUNT];
	enum xd_rung best; /* XD_RUNG_COUNT: none can */
};

void shape_opinion(const struct xd_shape *s, const struct xd_plan_limits *limits,
		   struct opinion *ret);

#endif
