/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef STUB_CORE_H
#define STUB_CORE_H

/*
 * A core without policy, for tests of daemon/io alone: it notes what it is asked, says what the
 * test has put up for the client, and lets sessions go when it is told. Link it in place of
 * libcore.la.
 */

#include <stdbool.h>
#include <stdint.h>

#include "common/list.h"
#include "daemon/core/core.h"

#define STUB_OUTS 4096

struct xd_session {
	struct xc_list link;
	struct xd_core *core;
	void *conn;
	struct xd_peer peer;
	uint64_t number;
	bool greeted, failed, busy, closed;
	int fail_status;
	char fail_text[XD_TEXT_MAX];
	struct xd_out outs[STUB_OUTS]; /* a ring */
	unsigned out_first, out_count;
};

struct xd_core {
	struct xd_engine_ref engine;
	struct xc_list sessions;
	uint64_t numbers;
	int64_t counters[XD_COUNTER_COUNT];
	/* What it shall do. */
	int refuse;            /* status of the next sessions */
	bool want_more;        /* progress asks for another turn */
	bool keep_gone;        /* sessions stay after close, until stub_core_release() */
	bool complete;         /* each submitted request completes at once */
	bool close_fds;        /* descriptors are closed here and now */
	unsigned table_rows;   /* of the table "rows" */
	/* What it was asked. */
	unsigned progresses, calls, submits, discards, buffers, queries, closes;
	char last_call[32];
	uint64_t last_serial;
	struct xp_request last_request;
	struct xp_segment last_segments[2 * XP_SEGMENTS_INLINE];
	char last_text[256];
	uint64_t last_numbers[4];
};

struct xd_core *stub_core_new(const struct xd_engine_ref *engine);
void stub_core_free(struct xd_core *core);

/* The newest session. */
struct xd_session *stub_session(struct xd_core *core);
/* A session without a connection, for tests that call the dispatcher. */
struct xd_session *stub_session_new(struct xd_core *core);

/* Puts something up for the client. False: no room. */
bool stub_say(struct xd_session *s, const struct xd_out *out);

/* Ends the sessions that keep_gone kept. */
void stub_core_release(struct xd_core *core);

#endif
