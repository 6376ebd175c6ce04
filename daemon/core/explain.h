/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef XD_EXPLAIN_H
#define XD_EXPLAIN_H

/*
 * What the planner would do with a transfer that nobody asks for: the table "explain". It is asked
 * with five words: the operation, its local pieces, its remote pieces ("" of SEND and RECV), a
 * device ("" = iwarp, else the first), a profile ("" = none) on top of iwarp's caps.
 */

#include "daemon/core/plan.h"

#define XD_EXPLAIN_ARGUMENTS 5

struct xd_core;

/*
 * Pieces as people write them, "9x4096,1x64K": how many of how many bytes. Each begins on a page of
 * its own, so that no two are neighbours. At most XP_SEGMENTS_MAX of them, XP_MESSAGE_BYTES_MAX in
 * all. `side` is for ret_why (XD_TEXT_MAX bytes). 0 or -EINVAL.
 */
int xd_explain_pieces(const char *side, const char *text,
		      struct xp_segment ret_segments[static XP_SEGMENTS_MAX], uint32_t *ret_n,
		      uint64_t *ret_bytes, char *ret_why);

/*
 * The thoughts of each rung, as sentences in the end. 0; -EINVAL: the question is wrong (ret_why);
 * -ENOENT: there is no such device or profile; -ENOMEM.
 */
struct xd_explanation {
	struct xd_thoughts thoughts;
	char text[XD_RUNG_COUNT][XD_THOUGHT_TEXT_MAX];
};
int xd_explain(const struct xd_core *core, const char *const *arguments, size_t n_arguments,
	       struct xd_explanation *ret, char *ret_why);

#endif
