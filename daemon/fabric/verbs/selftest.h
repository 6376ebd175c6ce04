/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef VERBS_SELFTEST_H
#define VERBS_SELFTEST_H

/*
 * A device is tested, not trusted. What drivers claim and what they enforce differ: Soft-RoCE
 * ignores the bounds of a window, siw serves READs of memory that was never readable, and both
 * accept operations that never complete. So a device is connected to itself before it is used, and
 * asked.
 *
 * An answer can only remove trust: that a device was not seen to fail once proves little (a race
 * cannot be proven absent), and a question that found no answer counts as a failure.
 */

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/addr.h"
#include "daemon/fabric/fabric.h"

/*
 * The questions: identifier, and name in tables and files. "yes" is always what the specification
 * says, and what can be relied on.
 *
 * WINDOW_*: type-2 windows. MR_*, PD_*, DEREG_*: exact registrations.
 */
#define VERBS_QUESTIONS(X)                                                                         \
	X(WINDOW_BIND, "window_bind")	  /* can be bound, and a READ by one works */              \
	X(WINDOW_BOUNDS, "window_bounds") /* reach no byte outside */                              \
	X(WINDOW_RIGHTS, "window_rights") /* read-only and write-only hold */                      \
	X(WINDOW_QP, "window_qp")	  /* another QP of the same PD cannot use it */            \
	X(WINDOW_DEAD, "window_dead")	  /* dead after LOCAL_INV, rebind, dealloc */              \
	X(WINDOW_INV_UNDER_READ, "window_inv_under_read") /* LOCAL_INV stops a running READ */     \
	X(MR_REMOTE_READ, "mr_remote_read")		  /* not readable without REMOTE_READ */   \
	X(MR_REMOTE_WRITE, "mr_remote_write")		  /* not writable without REMOTE_WRITE */  \
	X(MR_BOUNDS, "mr_bounds")			  /* reach no byte outside */              \
	X(PD_SEPARATION, "pd_separation")		  /* a key of another PD is refused */     \
	X(PD_SHARED, "pd_shared")			  /* a key of the same PD serves any QP */ \
	X(DEREG_DEAD, "dereg_dead")			  /* dead after dereg_mr */                \
	X(DEREG_UNDER_READ, "dereg_under_read")		  /* dereg_mr stops a running READ */      \
	X(DEREG_UNDER_WRITE, "dereg_under_write")	  /* dereg_mr stops a running WRITE */     \
	X(READ_SGES, "read_sges")		  /* READ into max_sge_rd pieces fills all */      \
	X(READ_MORE_SGES, "read_more_sges")	  /* and one into max_sge pieces too */            \
	X(READ_SINK, "read_sink")		  /* a READ sink needs no REMOTE_WRITE */          \
	X(IOVA, "iova")				  /* an MR's iova is honoured */                   \
	X(SEND_INV, "send_inv")			  /* SEND_WITH_INV kills a window */               \
	X(SEND_INV_REPORTED, "send_inv_reported") /* and the receiver hears which */               \
	X(IMM_SEND, "imm_send")			  /* SEND_WITH_IMM completes, data right */        \
	X(IMM_WRITE, "imm_write")		  /* WRITE_WITH_IMM likewise */                    \
	X(ZERO_READ, "zero_read")		  /* without an SGE, completes */                  \
	X(ZERO_WRITE, "zero_write")                                                                \
	X(ZERO_SEND, "zero_send")                                                                  \
	X(SHORT_READ, "short_read") /* of a few bytes across the end of a page, right */           \
	X(SHORT_WRITE, "short_write")                                                              \
	X(SHORT_SEND, "short_send")                                                                \
	X(UNSIGNALLED, "unsignalled")	/* a failure completes, asked for or not */                \
	X(RNR, "rnr")			/* a SEND that finds no RECV fails, reported */            \
	X(ACKNOWLEDGED, "acknowledged") /* a refused WRITE is reported */                          \
	X(PRIVATE_DATA, "private_data") /* heard as long as it was sent */

enum verbs_question {
#define VERBS_QUESTION(id, name) VERBS_Q_##id,
	VERBS_QUESTIONS(VERBS_QUESTION)
#undef VERBS_QUESTION
		VERBS_N_QUESTIONS,
};

enum verbs_answer {
	VERBS_UNASKED, /* makes no sense here (no windows), or the time was over */
	VERBS_LOST,    /* the question could not be put: no memory, no connection */
	VERBS_SILENT,  /* put, and nothing completed in time */
	VERBS_NO,
	VERBS_YES,
};

struct verbs_finding {
	enum verbs_answer answer;
	/* how the work request ended that decided: enum ibv_wc_status, or -1 */
	int status;
};

struct verbs_findings {
	struct verbs_finding q[VERBS_N_QUESTIONS];
	uint32_t duration_ms;
	/* Not a matter of trust: what it takes inline (0: none, or it was not tried), its costs (0:
	 * not known). */
	uint32_t max_inline;
	struct fabric_costs costs;
	/* Every question was put: worth keeping. Else the time was over, or something lacked. */
	bool complete;
};

/* The name of a question, of an answer. */
const char *verbs_question_name(enum verbs_question q);
const char *verbs_answer_name(enum verbs_answer a);

/*
 * Puts all questions to the device that owns `address` (its port is ignored: ephemeral ones are
 * used), which must be that of `verbs` where that is not NULL. Blocks, on a helper thread, for
 * about limit_ms at most; touches nothing but connections and memory of its own. Needs no more than
 * 32 MiB of locked memory.
 *
 * 0: there are findings, of which some may be VERBS_UNASKED or VERBS_LOST. Negative errno: the
 * device could not even be connected to itself, nothing is known, and it must not be used.
 */
int verbs_selftest(struct ibv_context *verbs, const struct xc_addr *address, unsigned int limit_ms,
		   struct verbs_findings *ret);

/* ---------------------------------------------------------------------------------- the verdict */

/* What a device says of itself. */
struct verbs_claims {
	char driver[FABRIC_NAME_MAX]; /* as in fabric_caps; "siw" wants each WR signalled */
	bool iwarp;
	bool windows; /* of type 2 */
	uint32_t max_sge, max_sge_rd;
	uint32_t max_mw;
};

/* The table of a device: facts, and what their texts are made of. Lives as long as caps.facts. */
struct verbs_facts {
	struct fabric_fact fact[VERBS_N_QUESTIONS];
	char claimed[VERBS_N_QUESTIONS][64];
	char seen[VERBS_N_QUESTIONS][96];
};

/* Claims from the device's attributes; driver is the caller's to fill. 0 or negative errno. */
int verbs_claims_read(struct ibv_context *verbs, struct verbs_claims *ret);

/*
 * Pure. Sets in caps: keys, max_sge_rd, remote_invalidate, immediate, read_sink_remote_write,
 * short_read_in_page, receiver_not_ready, acknowledged, signal_all, private_data_padded,
 * max_inline, max_ranges, costs, facts, n_facts. The rest is the caller's.
 *
 * Windows need all WINDOW_* answered yes, and what is behind a window too: the rights and bounds of
 * MRs, PD_SEPARATION, DEREG_DEAD. Registrations need all of MR_*, PD_SEPARATION and DEREG_*. Both
 * need SHORT_*: what is wrong with short pieces can be avoided where the daemon places them. Else
 * it is slabs.
 *
 * False: not even slabs are safe on it (MR_BOUNDS and PD_SEPARATION are not answered yes), and the
 * device must not be used.
 */
bool verbs_verdict(const struct verbs_findings *findings, const struct verbs_claims *claims,
		   struct fabric_caps *caps, struct verbs_facts *ret_facts);

/* The costs found, of what is used. */
struct fabric_costs verbs_costs(const struct verbs_findings *findings, enum fabric_keys keys);

/* ------------------------------------------------------------------------------------ the cache */

/* What findings hold for: a new kernel, driver, firmware or library is asked anew. */
struct verbs_identity {
	char device[FABRIC_NAME_MAX];
	char driver[FABRIC_NAME_MAX];
	char kernel[192];  /* release and version: a security update keeps the release */
	char firmware[96]; /* and what hardware it runs on */
	char rdma_core[FABRIC_NAME_MAX]; /* the file of the library */
};

/* All but driver, which is the caller's to fill beforehand or afterwards. 0 or negative errno. */
int verbs_identity_read(struct ibv_context *verbs, struct verbs_identity *ret);

/*
 * The findings kept in `directory` for exactly this identity. 0, or -ENOENT: there are none;
 * -ESTALE: they are for another identity; -EBADMSG: the file is damaged; another negative errno. In
 * each of these cases the device is measured again.
 */
int verbs_cache_load(const char *directory, const struct verbs_identity *identity,
		     struct verbs_findings *ret);

/*
 * Keeps findings, in one atomic step. Those that are not complete are not kept: -EAGAIN. Blocks.
 */
int verbs_cache_store(const char *directory, const struct verbs_identity *identity,
		      const struct verbs_findings *findings);

#endif
