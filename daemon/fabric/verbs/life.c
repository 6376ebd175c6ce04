/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "daemon/fabric/verbs/life.h"

#include <errno.h>

#include "common/assert.h"
#include "proto/errors.h"

/* The connection, or the attempt, is over. Whoever ends it first says why. */
static void end(struct verbs_life *l, int status)
{
	if (l->phase == VERBS_CONNECTING) {
		l->tell_established = true;
		l->established_status = status;
	} else if (l->phase == VERBS_CONNECTED) {
		l->tell_disconnected = true;
		l->end_status = status;
	}
	l->phase = VERBS_ENDED;
	l->due = VERBS_STEP_NONE;
}

static void connected(struct verbs_life *l)
{
	l->phase = VERBS_CONNECTED;
	l->linked = true;
	l->due = VERBS_STEP_NONE;
	l->tell_established = true;
	l->established_status = 0;
	if (l->disconnected)
		end(l, -XP_E_PEER_GONE);
}

enum verbs_step verbs_life_next(struct verbs_life *l)
{
	if (l->running || l->destroyed)
		return VERBS_STEP_NONE;
	if (l->destroy && !l->half) {
		l->running = VERBS_STEP_DESTROY;
	} else if (l->phase == VERBS_ENDED && !l->stopped) {
		l->running = VERBS_STEP_STOP;
	} else {
		l->running = l->due;
		l->due = VERBS_STEP_NONE;
	}
	return l->running;
}

void verbs_life_done(struct verbs_life *l, int status)
{
	enum verbs_step step = l->running;

	xc_assert(step != VERBS_STEP_NONE);
	l->running = VERBS_STEP_NONE;
	switch (step) {
	case VERBS_STEP_DESTROY:
		l->destroyed = true;
		return;
	case VERBS_STEP_STOP:
		/* Whatever it said, there is nothing better to try than to destroy the QP. */
		l->stopped = true;
		return;
	case VERBS_STEP_NOTIFY:
		break; /* it fails where the handshake has ended by itself meanwhile */
	case VERBS_STEP_ACCEPT:
		l->half = status == 0 && !l->established && !l->failed;
		__attribute__((fallthrough));
	default:
		/* Ended meanwhile: STOP comes next. */
		if (l->phase == VERBS_CONNECTING && status < 0)
			end(l, status);
	}
	if (l->phase == VERBS_CONNECTING && (step == VERBS_STEP_ESTABLISH || l->established))
		connected(l);
	else if (l->phase == VERBS_CONNECTING && l->disconnected)
		end(l, -XP_E_PEER_GONE);
}

static void next_step(struct verbs_life *l, enum verbs_step step)
{
	if (l->phase == VERBS_CONNECTING)
		l->due = step;
}

void verbs_life_hear(struct verbs_life *l, enum verbs_heard what, int status)
{
	switch (what) {
	case VERBS_HEARD_ADDRESS:
		next_step(l, VERBS_STEP_ROUTE);
		break;
	case VERBS_HEARD_ROUTE:
		next_step(l, VERBS_STEP_CONNECT);
		break;
	case VERBS_HEARD_RESPONSE:
		next_step(l, VERBS_STEP_ESTABLISH);
		break;
	case VERBS_HEARD_FIRST_MESSAGE:
		next_step(l, VERBS_STEP_NOTIFY);
		break;
	case VERBS_HEARD_ESTABLISHED:
		/*
		 * A word of refusal that crosses this one is not heard: the peer counts itself
		 * connected, and must be disconnected.
		 */
		if (l->half && l->phase == VERBS_ENDED)
			l->stopped = false;
		l->half = false;
		l->linked = true;
		/* Events come before the call that caused them has returned. */
		l->established = true;
		if (l->phase == VERBS_CONNECTING && !l->running)
			connected(l);
		break;
	case VERBS_HEARD_FAILED:
		l->failed = true;
		l->half = false;
		end(l, status);
		break;
	case VERBS_HEARD_DISCONNECTED:
		l->failed = l->disconnected = true;
		l->half = false;
		if (!l->running || l->phase != VERBS_CONNECTING)
			end(l, status);
		break;
	}
}

int verbs_life_connect(struct verbs_life *l, bool accept)
{
	if (l->phase != VERBS_IDLE || l->destroy)
		return -EISCONN;
	l->phase = VERBS_CONNECTING;
	l->due = accept ? VERBS_STEP_ACCEPT : VERBS_STEP_ADDRESS;
	return 0;
}

void verbs_life_disconnect(struct verbs_life *l)
{
	/* Without a connection there is nothing to end: RECVs that were posted stay. */
	if (l->phase == VERBS_IDLE || l->phase == VERBS_ENDED)
		return;
	l->orderly = true;
	verbs_life_error(l);
}

void verbs_life_error(struct verbs_life *l)
{
	end(l, l->phase == VERBS_CONNECTING ? -ECONNABORTED : 0);
}

void verbs_life_destroy(struct verbs_life *l)
{
	verbs_life_error(l);
	l->destroy = true;
}

void verbs_life_late(struct verbs_life *l)
{
	l->half = false;
}

void verbs_life_fault(struct verbs_life *l, int status)
{
	end(l, status);
}

/*
 * A connection that failed is told of when what was posted has flushed, and an end that was asked
 * for when it has come. Not so where the device is gone: its verbs may never return.
 */
static bool may_tell(const struct verbs_life *l, int status, bool at_once)
{
	return at_once || l->stopped || status == -XP_E_DEVICE;
}

bool verbs_life_has_news(const struct verbs_life *l)
{
	if (l->destroy)
		return false;
	if (l->tell_established)
		return may_tell(l, l->established_status, l->established_status == 0);
	return l->tell_disconnected && may_tell(l, l->end_status, l->end_status < 0);
}

enum verbs_news verbs_life_news(struct verbs_life *l, int *ret_status)
{
	if (!verbs_life_has_news(l))
		return VERBS_NEWS_NONE;
	if (l->tell_established) {
		l->tell_established = false;
		*ret_status = l->established_status;
		return VERBS_NEWS_ESTABLISHED;
	}
	l->tell_disconnected = false;
	*ret_status = l->end_status;
	return VERBS_NEWS_DISCONNECTED;
}
