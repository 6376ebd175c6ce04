/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef FABRIC_VERBS_H
#define FABRIC_VERBS_H

/*
 * The fabric of RDMA devices, by libibverbs and librdmacm: one instance a device. Nearly a
 * pass-through, but for what blocks: that runs on helper threads (life.h).
 *
 * Where it differs from what daemon/fabric/fabric.h leaves open:
 * - conn_gone is heard only where the device is lost (caps.conn_gone is false): the kernel keeps
 *   what befalls a connection request to itself until it is accepted. An accept that comes too late
 *   ends with -XP_E_PEER_GONE.
 * - A request that the fabric itself rejects (connect_request returned NULL) is heard by the peer
 *   as -XP_E_REJECTED: librdmacm cannot send another reason.
 * - A connection goes out from an address of this device even where the host's route would begin
 *   elsewhere: whoever calls ep_connect has chosen the device. route() says what the host would do.
 * - There are no keys over ranges, and on iWARP devices no inline data (selftest.c).
 * - A lost device ends every endpoint with -XP_E_DEVICE; afterwards connect, listen and ep_create
 *   fail with it, and route() refuses.
 */

#include "daemon/fabric/fabric.h"

struct verbs_discovery;

struct verbs_options {
	const char *state_dir; /* where what was found out of devices is kept, or NULL */
	/* What clients may pin: a smaller limit on locked memory is worth a line in the log. */
	uint64_t pinned_bytes;
	unsigned int selftest_ms; /* how long to examine a device; 0 = 30,000 */
	const char *device;       /* this one alone, or NULL */
	const char *sys, *dev;    /* NULL = /sys/class/infiniband_verbs, /dev/infiniband */
};

/* On the engine's thread, from its turn. */
struct verbs_sink {
	/* A device is ready to be used; from here on it is the receiver's, to be closed. */
	void (*opened)(void *ctx, struct fabric *f);
	/* All devices that there were have been opened, or refused with a line in the log. */
	void (*finished)(void *ctx);
};

extern const struct fabric_ops verbs_fabric_ops;

/*
 * Looks for devices, examines them on helper threads, and opens those that can be used. options,
 * sink, engine and events are copied; the strings must last until `finished`. 0 or -ENOMEM.
 */
int verbs_discover(const struct verbs_options *options, const struct xd_engine_ref *engine,
		   const struct fabric_events *events, const struct verbs_sink *sink, void *ctx,
		   struct verbs_discovery **ret);

/*
 * Nothing of it calls the sink any more. Its jobs go on, and free what is left. To be called once,
 * after `finished` or before.
 */
void verbs_discovery_stop(struct verbs_discovery *d);

#endif
