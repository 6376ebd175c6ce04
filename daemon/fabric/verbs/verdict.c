/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include <stdio.h>
#include <string.h>

#include "common/checked.h"
#include "daemon/fabric/saboteur.h"
#include "daemon/fabric/verbs/selftest.h"

/*
 * From what a device was seen to do to what is done with it. Pure, so that it can be tried on any
 * device that one can think of.
 */

/* What rests on an answer of yes. */
enum rests {
	ON_NOTHING = 0,
	ON_WINDOWS = 1, /* a window per grant */
	ON_MRS = 2,	/* a registration per grant */
	ON_SLABS = 4,	/* any use of the device */
};

static const char *const names[VERBS_N_QUESTIONS] = {
#define VERBS_QUESTION(id, name) [VERBS_Q_##id] = name,
	VERBS_QUESTIONS(VERBS_QUESTION)
#undef VERBS_QUESTION
};

/*
 * `claimed` is what the specification says, unless attributes of the device say more. Without a
 * consequence of its own an answer is without effect, or its effect is that of `rests`.
 */
static const struct {
	const char *asked, *claimed, *yes, *no;
	unsigned int rests;
	const char *consequence; /* of any other answer than yes */
} questions[VERBS_N_QUESTIONS] = {
	[VERBS_Q_WINDOW_BIND] = { "bind a type-2 window, READ by it", NULL, "the right bytes came",
				  "it did not work", ON_WINDOWS, NULL },
	[VERBS_Q_WINDOW_BOUNDS] = { "READ and WRITE past the bounds of a window", "refused",
				    "refused, nothing moved", "bytes outside were reached",
				    ON_WINDOWS, NULL },
	[VERBS_Q_WINDOW_RIGHTS] = { "WRITE by a window for READ, READ by one for WRITE", "refused",
				    "refused, nothing moved", "done without the right", ON_WINDOWS,
				    NULL },
	[VERBS_Q_WINDOW_QP] = { "use a window by another QP of its PD", "refused",
				"refused, nothing moved", "another QP could use it", ON_WINDOWS,
				NULL },
	[VERBS_Q_WINDOW_DEAD] = { "use a window after LOCAL_INV, rebind, dealloc_mw", "refused",
				  "refused, nothing moved", "a dead key was alive", ON_WINDOWS,
				  NULL },
	[VERBS_Q_WINDOW_INV_UNDER_READ] = { "LOCAL_INV of a window while a READ runs",
					    "the READ ends", "no later bytes were seen",
					    "the READ saw bytes that were written later",
					    ON_WINDOWS, NULL },
	[VERBS_Q_MR_REMOTE_READ] = { "READ of an MR without REMOTE_READ", "refused",
				     "refused, nothing moved", "it was read", ON_WINDOWS | ON_MRS,
				     NULL },
	[VERBS_Q_MR_REMOTE_WRITE] = { "WRITE to an MR without REMOTE_WRITE", "refused",
				      "refused, nothing moved", "it was written",
				      ON_WINDOWS | ON_MRS, NULL },
	[VERBS_Q_MR_BOUNDS] = { "READ and WRITE past the bounds of an MR", "refused",
				"refused, nothing moved", "bytes outside were reached",
				ON_WINDOWS | ON_MRS | ON_SLABS, NULL },
	[VERBS_Q_PD_SEPARATION] = { "use the key of an MR by a QP of another PD", "refused",
				    "refused, nothing moved", "a QP of another PD could use it",
				    ON_WINDOWS | ON_MRS | ON_SLABS, NULL },
	[VERBS_Q_PD_SHARED] = { "use the key of an MR by another QP of its PD", "served", "served",
				"not served", ON_NOTHING, NULL },
	[VERBS_Q_DEREG_DEAD] = { "use the key of an MR after dereg_mr", "refused",
				 "refused, nothing moved", "a dead key was alive",
				 ON_WINDOWS | ON_MRS, NULL },
	[VERBS_Q_DEREG_UNDER_READ] = { "dereg_mr while a READ runs", "the READ ends",
				       "no later bytes were seen",
				       "the READ saw bytes that were written later", ON_MRS, NULL },
	[VERBS_Q_DEREG_UNDER_WRITE] = { "dereg_mr while a WRITE runs", "the WRITE ends",
					"nothing was written later", "the WRITE went on", ON_MRS,
					NULL },
	[VERBS_Q_READ_SGES] = { "READ into max_sge_rd pieces", NULL, "all pieces came",
				"pieces were missing", ON_NOTHING, "a READ has one piece" },
	[VERBS_Q_READ_MORE_SGES] = { "READ into max_sge pieces", NULL, "all pieces came",
				     "not all pieces came", ON_NOTHING,
				     "never more than max_sge_rd" },
	[VERBS_Q_READ_SINK] = { "READ into an MR without REMOTE_WRITE", NULL,
				"the right bytes came", "refused", ON_NOTHING,
				"sinks of READs are remotely writable" },
	[VERBS_Q_IOVA] = { "READ by an iova of our choice", "honoured", "the right bytes came",
			   "it means nothing to the device", ON_NOTHING,
			   "keys are used by the daemon's addresses" },
	[VERBS_Q_SEND_INV] = { "SEND_WITH_INV of a window, then use it", "refused",
			       "refused, nothing moved", "the window lived on, or the SEND failed",
			       ON_NOTHING, "no remote invalidation" },
	[VERBS_Q_SEND_INV_REPORTED] = { "does the RECV say which key SEND_WITH_INV named", "yes",
					"yes", "no", ON_NOTHING, "no remote invalidation" },
	[VERBS_Q_IMM_SEND] = { "SEND_WITH_IMM", NULL, "it arrived", "not done", ON_NOTHING,
			       "no immediate data" },
	[VERBS_Q_IMM_WRITE] = { "WRITE_WITH_IMM", NULL, "it arrived", "not done", ON_NOTHING,
				"no immediate data" },
	[VERBS_Q_ZERO_READ] = { "READ of no bytes, without an SGE", "completes", "completed",
				"failed", ON_NOTHING, "not to be used" },
	[VERBS_Q_ZERO_WRITE] = { "WRITE of no bytes, without an SGE", "completes", "completed",
				 "failed", ON_NOTHING, "not to be used" },
	[VERBS_Q_ZERO_SEND] = { "SEND of no bytes, without an SGE", "completes", "completed",
				"failed", ON_NOTHING, "not to be used" },
	[VERBS_Q_SHORT_READ] = { "READ of 24 and 32 bytes across the end of a page",
				 "the right bytes", "the right bytes came",
				 "wrong bytes came, and success", ON_WINDOWS | ON_MRS, NULL },
	[VERBS_Q_SHORT_WRITE] = { "WRITE of 24 and 32 bytes across the end of a page",
				  "the right bytes", "the right bytes came",
				  "wrong bytes came, and success", ON_WINDOWS | ON_MRS, NULL },
	[VERBS_Q_SHORT_SEND] = { "SEND of 24 and 32 bytes across the end of a page",
				 "the right bytes", "the right bytes came",
				 "wrong bytes came, and success", ON_WINDOWS | ON_MRS, NULL },
	[VERBS_Q_UNSIGNALLED] = { "READ that fails, unsignalled", "completes", "completed",
				  "it completed as a success", ON_NOTHING,
				  "each work request is signalled" },
	[VERBS_Q_RNR] = { "SEND that finds no RECV", NULL, "the sender is told",
			  "the sender is not told", ON_NOTHING,
			  "it may succeed, and ends the connection" },
	[VERBS_Q_ACKNOWLEDGED] = { "WRITE past the bounds of an MR", NULL, "the writer is told",
				   "the writer sees success, then the end", ON_NOTHING,
				   "a WRITE that succeeded may have been refused" },
	[VERBS_Q_PRIVATE_DATA] = { "connect with 19 bytes of private data", NULL,
				   "19 bytes were heard", "more was heard", ON_NOTHING,
				   "private data is padded" },
};

const char *verbs_question_name(enum verbs_question q)
{
	return names[q];
}

const char *verbs_answer_name(enum verbs_answer a)
{
	static const char *const answers[] = {
		[VERBS_UNASKED] = "unasked", [VERBS_LOST] = "lost", [VERBS_SILENT] = "silent",
		[VERBS_NO] = "no",	     [VERBS_YES] = "yes",
	};

	return answers[a];
}

/* ------------------------------------------------------------------ trust */

static bool holds(const struct verbs_findings *f, const struct verbs_claims *c,
		  enum verbs_question q)
{
	if (FABRIC_SABOTAGE("trust-the-device"))
		return q != VERBS_Q_WINDOW_BIND || c->windows;
	return f->q[q].answer == VERBS_YES;
}

static bool all_hold(const struct verbs_findings *f, const struct verbs_claims *c, enum rests rests)
{
	for (int q = 0; q < VERBS_N_QUESTIONS; q++)
		if ((questions[q].rests & rests) && !holds(f, c, (enum verbs_question)q))
			return false;
	return true;
}

/*
 * The registration behind a window has no remote rights, and its key is no secret: windows rest on
 * the rights of registrations too.
 */
static enum fabric_keys choose_keys(const struct verbs_findings *f, const struct verbs_claims *c)
{
	if (all_hold(f, c, ON_WINDOWS))
		return FABRIC_KEYS_WINDOW;
	return all_hold(f, c, ON_MRS) ? FABRIC_KEYS_MR : FABRIC_KEYS_SLAB;
}

/*
 * An iWARP peer answers a READ by writing to the sink (RFC 5040 5.2), and adapters check the right
 * to. Elsewhere none is needed, and none is given but to a device that was seen to want it.
 */
static bool wants_writable_sink(const struct verbs_findings *f, const struct verbs_claims *c)
{
	if (c->iwarp)
		return !holds(f, c, VERBS_Q_READ_SINK);
	return f->q[VERBS_Q_READ_SINK].answer == VERBS_NO;
}

struct fabric_costs verbs_costs(const struct verbs_findings *findings, enum fabric_keys keys)
{
	struct fabric_costs c = findings->costs;

	if (keys != FABRIC_KEYS_WINDOW)
		c.bind_ns = 0;
	return c;
}

static void judge(const struct verbs_findings *f, const struct verbs_claims *c,
		  struct fabric_caps *caps)
{
	caps->keys = choose_keys(f, c);
	caps->max_sge_rd = holds(f, c, VERBS_Q_READ_SGES) && c->max_sge_rd ? c->max_sge_rd : 1;
	caps->remote_invalidate = caps->keys == FABRIC_KEYS_WINDOW &&
				  holds(f, c, VERBS_Q_SEND_INV) &&
				  holds(f, c, VERBS_Q_SEND_INV_REPORTED);
	caps->immediate = holds(f, c, VERBS_Q_IMM_SEND) && holds(f, c, VERBS_Q_IMM_WRITE);
	caps->read_sink_remote_write = wants_writable_sink(f, c);
	/* The peer's device answers a READ, and a peer of an iWARP device may be siw. */
	caps->short_read_in_page = c->iwarp || !holds(f, c, VERBS_Q_SHORT_READ);
	caps->receiver_not_ready = holds(f, c, VERBS_Q_RNR);
	caps->acknowledged = holds(f, c, VERBS_Q_ACKNOWLEDGED);
	caps->max_inline = c->iwarp ? 0 : xc_min_u32(f->max_inline, FABRIC_INLINE_MAX);
	caps->max_ranges = 0; /* those that could (mlx5) have no verb for it */
	caps->costs = verbs_costs(f, caps->keys);
	caps->private_data_padded = !holds(f, c, VERBS_Q_PRIVATE_DATA);
	/* siw loses work requests when a connection breaks; with a completion each that shows. */
	caps->signal_all = !holds(f, c, VERBS_Q_UNSIGNALLED) || strcmp(c->driver, "siw") == 0;
}

/* ------------------------------------------------------------------ the table */

static void write_claim(const struct verbs_claims *c, enum verbs_question q, char *ret, size_t size)
{
	const bool imm = q == VERBS_Q_IMM_SEND || q == VERBS_Q_IMM_WRITE;

	if (questions[q].claimed)
		snprintf(ret, size, "%s", questions[q].claimed);
	else if (q == VERBS_Q_WINDOW_BIND)
		snprintf(ret, size, c->windows ? "type 2, %u windows" : "no windows of type 2",
			 (unsigned int)c->max_mw);
	else if (q == VERBS_Q_READ_SGES)
		snprintf(ret, size, "max_sge_rd %u", (unsigned int)c->max_sge_rd);
	else if (q == VERBS_Q_READ_MORE_SGES)
		snprintf(ret, size, "max_sge %u, max_sge_rd %u", (unsigned int)c->max_sge,
			 (unsigned int)c->max_sge_rd);
	else if (q == VERBS_Q_READ_SINK)
		snprintf(ret, size, "%s", c->iwarp ? "refused (iWARP)" : "works");
	else if (imm)
		snprintf(ret, size, "%s", c->iwarp ? "optional (RFC 7306)" : "arrives");
	else if (q == VERBS_Q_PRIVATE_DATA)
		snprintf(ret, size, "%s", c->iwarp ? "exact (iWARP)" : "padded (InfiniBand)");
	else
		snprintf(ret, size, "%s", c->iwarp ? "not told (iWARP)" : "told (InfiniBand)");
}

static void write_seen(const struct verbs_finding *f, enum verbs_question q, char *ret, size_t size)
{
	static const char *const others[] = {
		[VERBS_UNASKED] = "not asked",
		[VERBS_LOST] = "the question could not be put",
		[VERBS_SILENT] = "no completion",
	};
	const char *text = f->answer == VERBS_YES  ? questions[q].yes
			   : f->answer == VERBS_NO ? questions[q].no
						   : others[f->answer];

	/* The status of success says little: what was seen does. */
	if (f->status > IBV_WC_SUCCESS)
		snprintf(ret, size, "%s (%s)", text,
			 ibv_wc_status_str((enum ibv_wc_status)f->status));
	else
		snprintf(ret, size, "%s", text);
}

static const char *consequence(const struct verbs_finding *f, enum verbs_question q,
			       const struct fabric_caps *caps, bool usable)
{
	const unsigned int rests = questions[q].rests;

	if (q == VERBS_Q_PD_SHARED)
		return caps->keys == FABRIC_KEYS_MR ? "a protection domain per endpoint" : "";
	if (q == VERBS_Q_READ_SINK)
		return caps->read_sink_remote_write ? questions[q].consequence : "";
	if (f->answer == VERBS_YES)
		return "";
	if ((rests & ON_SLABS) && !usable)
		return "the device is not used";
	if (q == VERBS_Q_SHORT_READ)
		return "short READs are cut at the end of a page";
	if ((rests & ON_MRS) && caps->keys == FABRIC_KEYS_SLAB)
		return "no client memory is registered";
	if ((rests & ON_WINDOWS) && caps->keys != FABRIC_KEYS_WINDOW)
		return "no windows";
	return f->answer != VERBS_UNASKED && questions[q].consequence ? questions[q].consequence
								      : "";
}

bool verbs_verdict(const struct verbs_findings *findings, const struct verbs_claims *claims,
		   struct fabric_caps *caps, struct verbs_facts *ret_facts)
{
	const bool usable = all_hold(findings, claims, ON_SLABS);

	judge(findings, claims, caps);
	for (int i = 0; i < VERBS_N_QUESTIONS; i++) {
		const enum verbs_question q = (enum verbs_question)i;
		const struct verbs_finding *f = &findings->q[i];

		write_claim(claims, q, ret_facts->claimed[i], sizeof(ret_facts->claimed[i]));
		write_seen(f, q, ret_facts->seen[i], sizeof(ret_facts->seen[i]));
		ret_facts->fact[i] = (struct fabric_fact){
			.question = names[i],
			.asked = questions[i].asked,
			.claimed = ret_facts->claimed[i],
			.seen = ret_facts->seen[i],
			.consequence = consequence(f, q, caps, usable),
		};
	}
	caps->facts = ret_facts->fact;
	caps->n_facts = VERBS_N_QUESTIONS;
	return usable;
}
