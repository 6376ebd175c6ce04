/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef XD_CORE_H
#define XD_CORE_H

/*
 * The policy of the daemon, as its input/output half (daemon/io) and its tests use it: sessions and
 * what they own. One thread.
 *
 * io decodes a packet into plain structs and calls one function here. Nothing calls back into io
 * but through struct xd_engine_ops; what the client shall read waits in the session until io pulls
 * it, so that a client that does not read holds up itself and nobody else, and what waits for it
 * stays charged to it.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/addr.h"
#include "daemon/core/policy.h"
#include "daemon/engine.h"
#include "daemon/fabric/fabric.h"
#include "proto/errors.h"
#include "proto/ring.h"

struct xd_core;
struct xd_session;

#define XD_TEXT_MAX 256
#define XD_FABRICS_MAX 8
/*
 * Control requests of one session that wait for a helper or a fabric; at the limit io stops reading
 * from it.
 */
#define XD_CALLS_MAX 64

/* ----------------------------------------------------------------------------------------- core */

/*
 * policy must outlive the core, and may be replaced by xd_core_set_policy. 0 or -ENOMEM. Fabrics
 * are opened by the caller with xd_core_fabric_events() and added: the core then owns and closes
 * them.
 */
int xd_core_new(const struct xd_engine_ref *engine, const struct xd_policy *policy,
		struct xd_core **ret);
const struct fabric_events *xd_core_fabric_events(void);
int xd_core_add_fabric(struct xd_core *core, const struct fabric_ref *fabric); /* -ENOSPC */
/*
 * Makes *caps those of a device like the named one; -ENOENT with a sentence that lists the names
 * there are. For questions only: no transfer is carried by such a device.
 */
typedef int xd_likeness(const char *name, struct fabric_caps *caps, char *ret_why, size_t size);
void xd_core_set_likeness(struct xd_core *core, xd_likeness *like);
/*
 * Finds out anew what things cost in the fabric that was added so many others behind, in the
 * background; until that is over the old prices hold. 0: it has begun, or is over. -EALREADY,
 * -EOPNOTSUPP: they are fixed; or why it could not begin.
 */
int xd_core_measure(struct xd_core *core, uint32_t fabric);
/* New limits and rules for what comes; what is in use stays. */
void xd_core_set_policy(struct xd_core *core, const struct xd_policy *policy);

/*
 * One turn: progress of the fabrics, their completions. Returns true where it wants another turn
 * without sleep.
 */
bool xd_core_progress(struct xd_core *core, uint64_t budget_bytes);

/* The descriptors to sleep on, -1 where a fabric has none. Returns how many. */
int xd_core_fds(struct xd_core *core, int fds[static XD_FABRICS_MAX]);

/*
 * Stops in order: new work is refused with -XP_E_SHUTDOWN; sessions end when nothing but RECVs is
 * in flight, or when drain_ms are over. True when no session is left: then xd_core_free may be
 * called. Progress must go on meanwhile.
 */
void xd_core_drain(struct xd_core *core);
bool xd_core_idle(const struct xd_core *core);
void xd_core_free(struct xd_core *core);

/* ------------------------------------------------------------------------------------- sessions */

struct xd_peer {
	uint32_t uid;
	int32_t pid;
	uint32_t n_gids;      /* all of its groups */
	const uint32_t *gids; /* copied */
	bool admin;	      /* came by the administrators' socket */
};

/*
 * A new client. conn is io's, for deliver() and session_gone(). Charges one session to the uid. 0,
 * -XP_E_QUOTA, -XP_E_SLOW_CLOSE, -XP_E_SHUTDOWN, -ENOMEM; ret_why (XD_TEXT_MAX bytes) tells in
 * words, for a Goodbye.
 */
int xd_session_new(struct xd_core *core, const struct xd_peer *peer, void *conn,
		   struct xd_session **ret, char *ret_why);

/*
 * The client is gone (end of file, death), or io has delivered the Goodbye: starts the teardown.
 * session_gone() follows, later, when nothing is left; the session must not be used after this
 * call.
 */
void xd_session_close(struct xd_session *s);

/*
 * The client broke the protocol, or its memory failed: what waits for it is dropped, a Goodbye with
 * this status and sentence is the last that io pulls; everything of the session begins to end now.
 */
void xd_session_fail(struct xd_session *s, int status, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
bool xd_session_failed(const struct xd_session *s);
/* For log entries. */
uint64_t xd_session_number(const struct xd_session *s);

/*
 * True where io should read no more from this client until some output was pulled, or deliver()
 * was called (calls, refused requests, or descriptors that are being closed at their bound).
 */
bool xd_session_busy(const struct xd_session *s);
/*
 * False where this client's user has submitted its share for this turn: io then holds the rest of
 * what it has read, until the next.
 */
bool xd_session_may_submit(const struct xd_session *s);

/* ---- what the client asks. Each is answered by one reply with this serial; none fails. */

struct xd_hello {
	uint32_t major, minor;
	uint64_t features;
	const char *name;
};
void xd_session_hello(struct xd_session *s, uint64_t serial, const struct xd_hello *hello);
bool xd_session_greeted(const struct xd_session *s);

/* Takes the descriptor (closes it on a closer thread, charged). */
void xd_session_buffer_add(struct xd_session *s, uint64_t serial, int fd, uint64_t size_bytes);
void xd_session_buffer_remove(struct xd_session *s, uint64_t serial, uint32_t buffer);

/*
 * Closes descriptors that came with no use for them, on a closer thread, charged to the session's
 * uid.
 */
void xd_session_discard_fds(struct xd_session *s, const int *fds, int n);

struct xd_endpoint_options {
	uint32_t send_depth, recv_depth; /* 0 = default */
	uint64_t recv_stage_bytes;
	const char *require; /* "" = any */
};

/* host is a numeric address or a name of at most 255 bytes (names go to a helper). */
void xd_session_listen(struct xd_session *s, uint64_t serial, const char *host, uint32_t port,
		       uint32_t backlog);
void xd_session_unlisten(struct xd_session *s, uint64_t serial, uint32_t listener);
void xd_session_endpoint_connect_to(struct xd_session *s, uint64_t serial, const char *host,
				    uint32_t port, const struct xd_endpoint_options *options);
void xd_session_endpoint_answer(struct xd_session *s, uint64_t serial, uint64_t request,
				const struct xd_endpoint_options *options);
void xd_session_connect(struct xd_session *s, uint64_t serial, uint32_t endpoint,
			const void *private_data, size_t bytes);
void xd_session_accept(struct xd_session *s, uint64_t serial, uint32_t endpoint,
		       const void *private_data, size_t bytes);
void xd_session_reject(struct xd_session *s, uint64_t serial, uint64_t request,
		       const void *private_data, size_t bytes);
void xd_session_disconnect(struct xd_session *s, uint64_t serial, uint32_t endpoint);
void xd_session_endpoint_free(struct xd_session *s, uint64_t serial, uint32_t endpoint);
void xd_session_admin(struct xd_session *s, uint64_t serial, const char *verb,
		      const char *const *arguments, size_t n);

/*
 * A transfer; ends with its own completion, also where it is refused. `segments` are the local
 * ones, then the remote ones, as many as the request says, where list_buffer is 0; else NULL.
 * Copied. The caller has checked only that the counts fit the array.
 */
void xd_session_submit(struct xd_session *s, const struct xp_request *request,
		       const struct xp_segment *segments);

/* ---- what the client shall read */

enum xd_out_kind {
	XD_OUT_NONE,
	XD_OUT_HELLO,		/* hello */
	XD_OUT_REPLY,		/* reply */
	XD_OUT_COMPLETION,	/* completion, text */
	XD_OUT_ENDPOINT_READY,	/* endpoint, status, text, ready */
	XD_OUT_CONNECT_REQUEST, /* request */
	XD_OUT_CONNECTED,	/* endpoint, status, text, private data */
	XD_OUT_DISCONNECTED,	/* endpoint, status, text */
	XD_OUT_GOODBYE,		/* status, text; the last: io sends it and calls xd_session_close */
};

struct xd_out {
	enum xd_out_kind kind;
	uint64_t serial; /* HELLO, REPLY */
	int32_t status;
	uint32_t number;  /* REPLY: the object made; else the endpoint or listener */
	uint64_t request; /* CONNECT_REQUEST */
	int64_t peer_uid;
	/* REPLY to listen; CONNECT_REQUEST: the peer's; READY: the peer's */
	struct xc_addr address;
	struct xp_completion completion;
	const struct fabric_caps *caps; /* READY */
	uint32_t requests_max;		/* HELLO */
	uint64_t bytes_max;
	uint16_t private_data_bytes;
	uint8_t private_data[FABRIC_PRIVATE_DATA_MAX];
	char text[XD_TEXT_MAX];	 /* empty on success */
	char route[XD_TEXT_MAX]; /* READY */
};

/* What kind comes next, without taking it. */
enum xd_out_kind xd_session_peek(const struct xd_session *s);

/* Takes the next one; its charge ends. False when there is none. */
bool xd_session_pull(struct xd_session *s, struct xd_out *ret);

/* --------------------------------------------------------------------------------------- tables */

struct xd_column {
	const char *name, *unit; /* unit "" = none */
	bool number;
};

/* Receives the rows of a table; each cell in the order of the columns. */
struct xd_table_sink {
	/* False: no room for another row; the query ends with a cursor. Called before each row. */
	bool (*row)(struct xd_table_sink *sink);
	void (*text)(struct xd_table_sink *sink, const char *value);
	void (*number)(struct xd_table_sink *sink, uint64_t value);
};

/*
 * Writes rows of a table from *cursor on, as the session may see them, and moves *cursor (0 at the
 * end). The arguments say what it is asked about; most tables take none. 0; -ENOENT: no such table
 * (ret_why lists those there are); -EINVAL: its arguments are wrong, and nothing was written.
 */
int xd_session_query(struct xd_session *s, const char *table, const char *const *arguments,
		     size_t n_arguments, uint64_t *cursor, const struct xd_column **ret_columns,
		     size_t *ret_n_columns, struct xd_table_sink *sink, char *ret_why);

/* ------------------------------------------------------------------------------------- counters */

enum xd_counter {
#define XP_COUNTER(name, kind, unit, text) XD_COUNTER_##name,
#include "proto/counters.def"
#undef XP_COUNTER
	XD_COUNTER_COUNT,
};

void xd_core_count(struct xd_core *core, enum xd_counter counter, int64_t delta);
uint64_t xd_core_counter(const struct xd_core *core, enum xd_counter counter);

#endif
