/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "daemon/io/notify.h"

#include <inttypes.h>
#include <stdlib.h>
#include <systemd/sd-daemon.h>

#define SECOND_NS UINT64_C(1000000000)
/*
 * How often the number of sessions is told, where it changed and the watchdog does not ask more
 * often.
 */
#define STATUS_NS (10 * SECOND_NS)

static void rearm(struct xd_notify *n)
{
	n->ops->arm(n->engine, &n->tick, n->ops->now_ns(n->engine) + n->every_ns);
}

static void tick(struct xd_timer *t)
{
	struct xd_notify *n = xc_container_of(t, struct xd_notify, tick);
	uint64_t sessions = xd_core_counter(n->core, XD_COUNTER_sessions);

	sd_notify(0, "WATCHDOG=1");
	if (sessions != n->sessions)
		sd_notifyf(0, "STATUS=%" PRIu64 " client%s", sessions, sessions == 1 ? "" : "s");
	n->sessions = sessions;
	rearm(n);
}

void xd_notify_ready(struct xd_notify *n, struct xd_engine *e, struct xd_core *core)
{
	uint64_t usec = 0;

	*n = (struct xd_notify){
		.engine = e,
		.ops = &xd_engine_ops,
		.core = core,
		.tick.fired = tick,
		.every_ns = STATUS_NS,
	};
	/* Half the time that the manager gives us, as sd_watchdog_enabled(3) recommends. */
	if (sd_watchdog_enabled(0, &usec) > 0 && usec * 1000 / 2 < n->every_ns)
		n->every_ns = usec * 1000 / 2;
	if (sd_notify(0, "READY=1\nSTATUS=0 clients") > 0)
		rearm(n);
}

void xd_notify_reloading(struct xd_notify *n)
{
	/* MONOTONIC_USEC goes with it since systemd 253: which reload this is. */
	sd_notifyf(0, "RELOADING=1\nMONOTONIC_USEC=%" PRIu64, n->ops->now_ns(n->engine) / 1000);
}

void xd_notify_reloaded(struct xd_notify *n)
{
	(void)n;
	sd_notify(0, "READY=1");
}

void xd_notify_stopping(struct xd_notify *n)
{
	(void)n;
	sd_notify(0, "STOPPING=1\nSTATUS=Waiting for transfers to end");
}

void xd_notify_done(struct xd_notify *n)
{
	if (n->engine)
		n->ops->disarm(n->engine, &n->tick);
}
