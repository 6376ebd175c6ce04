/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef XD_IO_DEVICES_H
#define XD_IO_DEVICES_H

/*
 * The host's RDMA devices, as the daemon starts: each is opened and, the first time, examined on a
 * helper, which can take seconds. The daemon serves when that is over, so that the first client
 * finds the devices there, but does not wait for one that hangs: such a one joins when it is ready.
 */

#include <stdbool.h>

#include "daemon/core/core.h"
#include "daemon/io/engine.h"

struct verbs_discovery;

struct xd_devices {
	struct xd_engine *engine;
	struct xd_core *core;
	struct xd_logger *logger;
	struct verbs_discovery *discovery; /* NULL: not started, or stopped */
	struct xd_timer patience;
	bool over; /* all are ready, or have been waited for long enough */
};

/*
 * Begins to look. The engine must have been attached to the core. pinned_bytes: what clients may
 * pin in all. state_dir may be NULL, and must last. 0 or -ENOMEM.
 */
int xd_devices_start(struct xd_devices *d, struct xd_engine *engine, struct xd_core *core,
		     struct xd_logger *logger, const char *state_dir, uint64_t pinned_bytes);
/* Runs the engine until they are ready, 15 s are over, or *stop. */
void xd_devices_wait(struct xd_devices *d, const bool *stop);
/* Devices that come later are let go. Harmless where it was not started. */
void xd_devices_stop(struct xd_devices *d);

#endif
