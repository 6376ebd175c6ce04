/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef XD_IO_NOTIFY_H
#define XD_IO_NOTIFY_H

/*
 * What the service manager hears (sd_notify(3)); nothing where there is none. The watchdog is fed
 * by a timer of the engine, so that an engine that hangs is restarted, and one that is merely
 * busy is not.
 */

#include "daemon/core/core.h"
#include "daemon/io/engine.h"

struct xd_notify {
	struct xd_engine *engine;
	const struct xd_engine_ops *ops;
	struct xd_core *core;
	struct xd_timer tick;
	uint64_t every_ns;
	uint64_t sessions; /* last told */
};

/* READY=1; starts the ticks. `n` belongs to the caller, until xd_notify_done(). */
void xd_notify_ready(struct xd_notify *n, struct xd_engine *e, struct xd_core *core);
/* The configuration is being read again, and was (Type=notify-reload). */
void xd_notify_reloading(struct xd_notify *n);
void xd_notify_reloaded(struct xd_notify *n);
/* STOPPING=1; the watchdog is fed on. */
void xd_notify_stopping(struct xd_notify *n);
void xd_notify_done(struct xd_notify *n);

#endif
