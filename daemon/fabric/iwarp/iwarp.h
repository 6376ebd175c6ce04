/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef FABRIC_IWARP_H
#define FABRIC_IWARP_H

/*
 * The fabric in user space. Needs no device and no privilege. Endpoints of one daemon are joined by
 * one copy; others meet over TCP, in MPA, DDP and RDMAP (RFC 5044, 6581, 5041, 5040). The checks of
 * RFC 5040 and 5042 are the same: STag, stream, base and bounds, rights.
 *
 * Work requests of an endpoint execute one after the other, so IBV_SEND_FENCE is always kept. A
 * failed one ends the connection: its initiator hears why (-XP_E_REMOTE_ACCESS, -XP_E_LOCAL_ACCESS,
 * -XP_E_MESSAGE_TOO_LONG, -XP_E_RECEIVER_NOT_READY, -XP_E_REMOTE_FAULT, -XP_E_BUFFER_FAULT); the
 * other side hears -XP_E_PEER_GONE, or, where its own RECV or memory was at fault, why. Through TCP
 * a WRITE or SEND has succeeded when the socket has it, and a refusal comes later, as the end of
 * the connection. A listener is a TCP socket; :: is IPv6 only.
 */

#include "daemon/fabric/fabric.h"

struct iwarp_profile; /* profile.h */

#define IWARP_READS_MAX 128u /* under way of one side of a stream; siw takes no more */

/* 0, false and NULL are the defaults. */
struct iwarp_options {
	uint64_t rnr_ms;   /* how long a SEND waits for its RECV; 0 = 500 */
	uint32_t ep_limit; /* endpoints at once; 0 = 65,536 */
	/* limits, costs and habits of some device; NULL = none but our own */
	const struct iwarp_profile *profile;
	/* ---- on the wire */
	bool no_wire;	     /* open no socket: endpoints of this daemon meet, and no others */
	bool crc;	     /* ask for a CRC; without it one is used where the peer asks */
	bool no_shortcut;    /* endpoints of this daemon meet over TCP too */
	/* READs under way of the peer's, and of ours; 0 = 32; at most IWARP_READS_MAX */
	uint16_t ird, ord;
	uint64_t mpa_ms;     /* for a request or a reply of MPA to arrive; 0 = 5,000 */
	uint64_t stall_ms;   /* unacknowledged data ends a connection after this; 0 = 30,000 */
	uint32_t handshakes; /* incoming connections without a request; 0 = 256 */
	uint32_t handshakes_per_host; /* of one address; 0 = 32 */
};

extern const struct fabric_ops iwarp_fabric_ops;

/* events and engine are copied. 0 or -ENOMEM. Free with ops->close. */
int iwarp_fabric_open(const struct iwarp_options *options, const struct xd_engine_ref *engine,
		      const struct fabric_events *events, struct fabric **ret);

#endif
