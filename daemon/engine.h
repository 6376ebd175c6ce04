/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef XD_ENGINE_H
#define XD_ENGINE_H

/*
 * What policy (core) and mechanism (fabric) may ask of the thread they live on: the time, a timer,
 * a helper thread, random bytes, a word to the log, and "this client has something to read".
 * Nothing else leaves them, so both run on a fake of this table in tests, with a clock that the
 * test moves.
 *
 * All calls are made on the engine's thread, and return at once.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/addr.h"
#include "common/heap.h"
#include "common/list.h"

struct xd_engine; /* the implementer's */

/* A timer. Owned by whoever embeds it; zero-initialised is disarmed; disarm before freeing. */
struct xd_timer {
	struct xc_heap_node node;
	/* on the engine's thread, disarmed; may re-arm or free itself */
	void (*fired)(struct xd_timer *t);
};

/* Who runs a job: kinds have threads of their own, so that a slow one holds up its like only. */
enum xd_helper {
	XD_HELP_MEMORY, /* map, populate, register, unmap */
	XD_HELP_CLOSE,  /* close() of a descriptor that a client passed */
	XD_HELP_NAMES,  /* getaddrinfo() */
	XD_HELP_VERBS,  /* blocking verbs and rdma_cm calls */
	XD_HELP_CONNECT, /* rdma_connect(): as long as a silent peer likes */
	XD_HELP_DEVICES, /* examining and opening devices */
	XD_HELPERS,
};

/*
 * Work for a helper thread, embedded in what it works on. `run` runs on the helper and touches
 * nothing but its own job; `done` runs on the engine's thread afterwards, always, exactly once. The
 * owner keeps itself alive until then: if what the job was for has died meanwhile, `done` undoes
 * the job.
 */
struct xd_job {
	struct xc_list link;
	enum xd_helper helper;
	/*
	 * The uid that the work is for. One owner has a few threads of a kind at most at a time; 0:
	 * no bound.
	 */
	uint32_t owner;
	void (*run)(struct xd_job *job);
	void (*done)(struct xd_job *job);
};

/* Priorities of syslog(3), for a log entry. */
enum xd_priority { XD_ERR = 3, XD_WARNING = 4, XD_NOTICE = 5, XD_INFO = 6, XD_DEBUG = 7 };

/*
 * A log entry: a sentence, and what it is about as fields (0 or NULL: absent). No keys, no memory
 * addresses.
 */
struct xd_log {
	enum xd_priority priority;
	const char *message_id; /* 32 hex digits, see sd_journal_send(3), or NULL */
	uint64_t session;
	int64_t client_uid; /* valid where session is not 0 */
	uint32_t endpoint;
	const char *device;
	bool client_caused; /* rate-limited by uid */
};

struct xd_engine_ops {
	/* Monotonic time. */
	uint64_t (*now_ns)(struct xd_engine *e);
	/*
	 * Arms, or moves, a timer. A deadline in the past fires on the next turn, never inside this
	 * call.
	 */
	void (*arm)(struct xd_engine *e, struct xd_timer *t, uint64_t deadline_ns);
	void (*disarm)(struct xd_engine *e, struct xd_timer *t);
	/*
	 * Hands a job to a helper. Cannot fail: jobs queue, and what queues is charged by the
	 * caller.
	 */
	void (*help)(struct xd_engine *e, struct xd_job *job);
	/*
	 * Both block: call them from a job's `run` only, on XD_HELP_NAMES and XD_HELP_CLOSE.
	 * resolve: the addresses of a host name (port 0), in the order to try them, at most max;
	 * how many, or -ENOENT, -EAGAIN, -errno.
	 */
	int (*resolve)(const char *host, struct xc_addr *ret, int max);
	void (*close_fd)(int fd);
	/* Unpredictable bytes. Cannot fail. */
	void (*random)(struct xd_engine *e, void *buf, size_t size);
	/*
	 * "deliver": the session of this connection has output. The engine pulls it with
	 * xd_session_pull() in its own time, outside this call, as far as the client takes it.
	 * Idempotent until then.
	 */
	void (*deliver)(struct xd_engine *e, void *conn);
	/*
	 * The session that this connection carried is gone (its charges too); `conn` is not used
	 * again.
	 */
	void (*session_gone)(struct xd_engine *e, void *conn);
	/*
	 * A fabric has work that needs no descriptor to become ready: call its progress on the next
	 * turn.
	 */
	void (*kick)(struct xd_engine *e);
	void (*log)(struct xd_engine *e, const struct xd_log *about, const char *format, ...)
		__attribute__((format(printf, 3, 4)));
	/*
	 * Entries of a lower urgency are dropped from here on. NULL: this engine has no such bound.
	 */
	void (*log_level)(struct xd_engine *e, enum xd_priority least);
};

/* An engine and its table, as core and fabrics hold it. */
struct xd_engine_ref {
	struct xd_engine *engine;
	const struct xd_engine_ops *ops;
};

#endif
