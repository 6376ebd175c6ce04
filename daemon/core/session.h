/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef XD_SESSION_H
#define XD_SESSION_H

/*
 * The core and its sessions, as the rooms beside (buffer, endpoint, transfer, ...) see them. The
 * interface to the outside is core.h.
 */

#include "common/hash.h"
#include "common/list.h"
#include "common/slots.h"
#include "daemon/core/audit.h"
#include "daemon/core/core.h"
#include "daemon/core/quota.h"

#define XD_CORE_MAGIC 0x78636f72u
#define XD_SESSION_MAGIC 0x78736573u

struct xd_transfer;
struct xd_pd;
struct xd_explanations;

/* What things cost in a fabric, while it is being found out. */
struct xd_measure {
	struct xd_core *core;
	uint32_t fabric;
	bool busy;
	struct fabric_done done;
	struct fabric_costs costs;
};

/* Endpoints that wait for what has run out; wait.h. */
struct xd_waits {
	uint32_t n;
	struct {
		bool due, in_round; /* a round is to begin; goes on */
	} orders[XD_ORDERS];
	struct xd_endpoint *asked; /* whose turn it is to get a window */
	struct xd_timer again;
	struct {
		uint32_t waiting;
		bool asking; /* its device is, by one of them; */
		bool freed;  /* something came back meanwhile */
		bool out;    /* it had none in this round, */
		bool called; /* and one that is kept for later was called in */
	} windows[XD_FABRICS_MAX];
};

struct xd_core {
	uint32_t magic;
	struct xd_engine_ref engine;
	struct xd_quota quota;
	struct xd_audit *audit;
	uint32_t n_fabrics;
	struct fabric_ref fabrics[XD_FABRICS_MAX];
	struct fabric_caps caps[XD_FABRICS_MAX];
	struct fabric_caps told[XD_FABRICS_MAX]; /* as clients are told them */
	struct xd_measure measures[XD_FABRICS_MAX];
	xd_likeness *like; /* NULL: there are no profiles */
	struct xc_list sessions;
	struct xc_list closing; /* failed or closed ones, that unwind */
	uint64_t last_session;
	uint32_t uncharged_admins;
	uint64_t turn;		/* its number */
	struct xc_slots qps;	/* endpoints by fabric_ep_attr.qp_num */
	struct xc_list ending;	/* endpoints whose QP goes down at the end of this turn */
	struct xc_list staging; /* endpoints with copying to do */
	int64_t copy_left;	/* of this turn's budget; may be overdrawn by one copy */
	struct xc_list spare;	/* transfers, for reuse */
	uint32_t n_spare;
	struct xc_list spare_grants;
	uint32_t n_spare_grants;
	struct xc_list spare_temporaries;
	uint32_t n_spare_temporaries;
	void *spare_lists[2]; /* blocks for segment lists, by class */
	uint32_t n_spare_lists[2];
	struct xd_waits waits;
	bool draining;
	/* of all sessions: transfers not yet ended, RECVs and CANCELs left out */
	uint32_t unfinished;
	struct xd_timer drain;
	uint64_t counters[XD_COUNTER_COUNT];
};

/* What a session's client shall read, in order. Embedded in the object it tells of. */
enum xd_note { XD_NOTE_CALL, XD_NOTE_TRANSFER, XD_NOTE_ENDPOINT, XD_NOTE_REQUEST, XD_NOTE_GOODBYE };

struct xd_outnode {
	struct xc_list link;
	enum xd_note note;
};

/* A control request on its way to its reply. */
struct xd_call {
	struct xd_outnode out;
	struct xd_session *session;
	bool hello;
	uint64_t serial;
	int status;
	uint32_t number;
	struct xc_addr address;
	char text[XD_TEXT_MAX];
};

struct xd_session {
	uint32_t magic;
	struct xd_core *core;
	struct xc_list link, closing_link;
	void *conn;
	uint64_t number;
	uint32_t uid;
	int32_t pid;
	uint32_t n_gids;
	uint32_t *gids;
	bool admin, greeted;
	bool charged; /* else it is an administrator's, beyond the limits */
	bool failed;  /* its Goodbye waits; whatever else it had to read since is dropped */
	bool closed;  /* io has let go */
	char name[65];
	struct xd_payer payer;
	struct xd_turn turns[XD_ORDERS];   /* its endpoints that wait */
	struct xd_pd *pds[XD_FABRICS_MAX]; /* where endpoints have none of their own */
	struct xc_slots buffers, endpoints, listeners, requests, grants;
	uint32_t live_buffers, live_endpoints,
		live_listeners;	  /* those that still unwind counted in */
	struct xc_hash transfers; /* unfinished, by cookie */
	struct xc_hash keys;	  /* live grants by rkey */
	uint32_t unfinished;	  /* transfers not yet ended, RECVs and CANCELs left out */
	uint32_t calls;
	uint32_t refused; /* completions of refused requests that wait to be read: they carry no
			     charge */
	struct xc_list out;
	struct xd_explanations *explanations; /* NULL until one is asked for */
	struct xd_outnode goodbye;
	int goodbye_status;
	char goodbye_text[XD_TEXT_MAX];
};

/* Queues a note and tells the engine; drops it where the session has failed or closed. */
void xd_session_tell(struct xd_session *s, struct xd_outnode *node);

/*
 * Something of the session has come to its end: where it is ending, the next turn takes its
 * teardown further. Never frees anything itself, so that it can be called from anywhere.
 */
void xd_session_settle(struct xd_session *s);
/* One step of the teardown of a failed or closed session; may free it. Called by the turn alone. */
void xd_session_advance(struct xd_session *s);

/* A call, counted; NULL when out of memory (the session has then been failed). */
struct xd_call *xd_call_new(struct xd_session *s, uint64_t serial);
/* Answers and gives it up. format may be NULL for success. */
void xd_call_reply(struct xd_call *c, int status, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
void xd_call_free(struct xd_call *c);

/* Closes a descriptor of this session's client on a closer thread, charged to its user until done.
 */
void xd_session_close_fd(struct xd_session *s, int fd);

/* The phrase for a status, for texts. */
const char *xd_strstatus(int status);

static inline uint64_t xd_now(const struct xd_core *core)
{
	return core->engine.ops->now_ns(core->engine.engine);
}

static inline void xd_arm(const struct xd_core *core, struct xd_timer *t, uint64_t deadline_ns)
{
	core->engine.ops->arm(core->engine.engine, t, deadline_ns);
}

static inline void xd_disarm(const struct xd_core *core, struct xd_timer *t)
{
	core->engine.ops->disarm(core->engine.engine, t);
}

static inline void xd_help(const struct xd_core *core, struct xd_job *job)
{
	core->engine.ops->help(core->engine.engine, job);
}

static inline bool xd_session_ending(const struct xd_session *s)
{
	return s->failed || s->closed;
}

#define XD_NS_PER_MS UINT64_C(1000000)

#endif
