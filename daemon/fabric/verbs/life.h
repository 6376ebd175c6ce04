/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef VERBS_LIFE_H
#define VERBS_LIFE_H

/*
 * What an endpoint's blocking verbs are, and in what order they run: a state machine without a
 * device, a thread or memory of its own.
 *
 * Everything that an endpoint does with librdmacm or with the state of its QP is a step, which runs
 * on a helper thread; of one endpoint one step runs at a time. Whatever the user, the peer or the
 * device want meanwhile is noted here and has its turn when the step returns, be it minutes later
 * (rdma_connect() on siw to a host that is silent).
 */

#include <stdbool.h>

enum verbs_step {
	VERBS_STEP_NONE,
	VERBS_STEP_CREATE,    /* CQ and QP, the QP to INIT */
	VERBS_STEP_ADDRESS,   /* an rdma_cm_id, from which address to which */
	VERBS_STEP_ROUTE,
	VERBS_STEP_CONNECT,
	VERBS_STEP_ESTABLISH, /* after the reply: the QP to RTS, tell the peer (IB) */
	VERBS_STEP_ACCEPT,
	VERBS_STEP_NOTIFY,    /* the peer's first message overtook the end of the handshake (IB) */
	VERBS_STEP_STOP,      /* the QP to ERR, and the peer told */
	VERBS_STEP_DESTROY,
};

enum verbs_phase { VERBS_IDLE, VERBS_CONNECTING, VERBS_CONNECTED, VERBS_ENDED };

/* What the connection manager says. */
enum verbs_heard {
	VERBS_HEARD_ADDRESS,
	VERBS_HEARD_ROUTE,
	VERBS_HEARD_RESPONSE,
	VERBS_HEARD_ESTABLISHED,
	VERBS_HEARD_FAILED,
	VERBS_HEARD_DISCONNECTED,
	VERBS_HEARD_FIRST_MESSAGE,
};

/* What the user is to be told. */
enum verbs_news { VERBS_NEWS_NONE, VERBS_NEWS_ESTABLISHED, VERBS_NEWS_DISCONNECTED };

struct verbs_life {
	enum verbs_phase phase;
	enum verbs_step running; /* on a helper */
	enum verbs_step due;     /* the next step of connecting; NONE: an event is awaited */
	bool established, disconnected; /* heard while a step runs that must return first */
	bool failed;                    /* heard that it failed, or ended */
	bool linked;                    /* it was connected, be it that it no longer is */
	bool half;                      /* accepted, and the peer has not said that it heard */
	bool stopped;                   /* the QP is in ERR */
	bool orderly;                   /* end it in order, where the transport knows how */
	bool destroy, destroyed;
	bool tell_established, tell_disconnected;
	int established_status, end_status;
};

/* After CREATE has succeeded, all zeros are right. */

/* The step to start now, or NONE. It is `running` from here on, until verbs_life_done(). */
enum verbs_step verbs_life_next(struct verbs_life *l);
void verbs_life_done(struct verbs_life *l, int status);
/* status: of FAILED and DISCONNECTED, negative. */
void verbs_life_hear(struct verbs_life *l, enum verbs_heard what, int status);

/* 0 or -EISCONN. */
int verbs_life_connect(struct verbs_life *l, bool accept);
void verbs_life_disconnect(struct verbs_life *l);
void verbs_life_error(struct verbs_life *l);
/* Where it is `half` it is not destroyed before the peer has spoken, or verbs_life_late(). */
void verbs_life_destroy(struct verbs_life *l);
static inline bool verbs_life_waits(const struct verbs_life *l)
{
	return l->destroy && l->half;
}
void verbs_life_late(struct verbs_life *l);
/* A work request failed, or the device did: the connection ends with this status. */
void verbs_life_fault(struct verbs_life *l, int status);

/* What to tell now; it counts as told. */
enum verbs_news verbs_life_news(struct verbs_life *l, int *ret_status);
bool verbs_life_has_news(const struct verbs_life *l);

static inline bool verbs_life_may_send(const struct verbs_life *l)
{
	return l->phase == VERBS_CONNECTED;
}

/*
 * May completions be taken? Not while it connects: the user hears of the connection before he hears
 * of what came by it. Not when it is being destroyed: its CQ may be gone.
 */
static inline bool verbs_life_may_poll(const struct verbs_life *l)
{
	return !l->destroy && (l->phase == VERBS_ENDED ||
			       (l->phase == VERBS_CONNECTED && !l->tell_established));
}

#endif
