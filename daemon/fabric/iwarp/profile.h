/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef IWARP_PROFILE_H
#define IWARP_PROFILE_H

/*
 * What some device cannot do, put onto this fabric: so that the ways around it run at full speed,
 * under sanitizers, where there is no such device. A profile only takes away: limits get smaller,
 * promises fewer, keys of the kind that policy would choose for such a device. Protection is never
 * weaker than this fabric's own: rights, bounds, domains and streams are enforced under every
 * profile, also where the device has holes (fabrics with holes are the simulation's).
 */

#include "daemon/fabric/fabric.h"

struct iwarp_profile {
	const char *name;
	/* ---- the caps, see struct fabric_caps */
	enum fabric_keys keys;
	uint32_t max_sge, max_sge_rd, max_recv_sge, max_send_wr, max_recv_wr;
	uint64_t max_message_bytes;
	uint32_t max_inline, max_ranges; /* 0: there are none */
	uint16_t private_connect_bytes, private_accept_bytes, private_reject_bytes;
	bool pins, remote_invalidate, read_sink_remote_write;
	bool receiver_not_ready, acknowledged, signal_all, private_data_padded;
	/* ---- completion habits, within what the caps leave open */
	/* a WRITE or SEND that the peer refuses succeeds, then the connection ends */
	bool refusals_come_late;
	/* a READ that the peer refuses is flushed, without a reason of its own */
	bool refused_reads_flush;
	/*
	 * ---- what it costs (0: there is no such thing). Measured where the source says so. What
	 * is called a guess stands for the class of device, and only the order of sizes counts.
	 */
	struct fabric_costs costs;
};

/* Ended by one without a name. */
extern const struct iwarp_profile iwarp_profiles[];

/* NULL: there is no such profile. */
const struct iwarp_profile *iwarp_profile_find(const char *name);

/* p may be NULL. Never makes caps larger or promises more. */
void iwarp_profile_apply(const struct iwarp_profile *p, struct fabric_caps *caps);

#endif
