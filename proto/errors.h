/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef XP_ERRORS_H
#define XP_ERRORS_H

/*
 * The codes that travel beside errno. On every interface a status is 0 or a negative
 * number: a negated errno, or a negated code from here (all above any errno, so the
 * two cannot be mistaken for each other). The numbers are part of the protocol: never
 * renumber, never reuse.
 */

#define XP_ERRORS(X)                                                                               \
	X(PROTOCOL, 5000, "the peer of this socket broke the client protocol")                     \
	X(VERSION, 5001, "client and daemon speak different major versions of the protocol")       \
	X(DAEMON_GONE, 5002, "the daemon has gone away")                                           \
	X(BUFFER_SEALED, 5003, "this memory file was added to a daemon before")                    \
	X(BUFFER_UNFIT, 5004, "the descriptor is no memory file of the agreed kind")               \
	X(BUFFER_FAULT, 5005, "client memory vanished under an access")                            \
	X(QUOTA, 5006, "a limit of this user or group is reached")                                 \
	X(DENIED, 5007, "the configuration does not allow this")                                   \
	X(FLUSHED, 5008, "the endpoint was disconnected before this transfer could complete")      \
	X(REMOTE_ACCESS, 5009, "the peer's memory was not granted for this access")                \
	X(REMOTE_FAULT, 5010, "the peer failed while it served this transfer")                     \
	X(LOCAL_ACCESS, 5011, "local memory is not accessible in this way")                        \
	X(MESSAGE_TOO_LONG, 5012, "the message is longer than the RECV that it met")               \
	X(RECEIVER_NOT_READY, 5013, "the peer posted no RECV in time")                             \
	X(STALLED, 5014, "the peer made no progress in time")                                      \
	X(PEER_GONE, 5015, "the peer disconnected or died")                                        \
	X(REJECTED, 5016, "the peer rejected the connection")                                      \
	X(BACKLOG, 5017, "the listener's backlog is full")                                         \
	X(SHUTDOWN, 5018, "the daemon is stopping")                                                \
	X(DEVICE, 5019, "the device failed")                                                       \
	X(QUARANTINE, 5020, "the memory for grants of this endpoint is spent until it ends")       \
	X(UNKNOWN_OPERATION, 5021, "the daemon does not know this operation")                      \
	X(GRANT_ENDED, 5022, "the grant has ended")                                                \
	X(SLOW_CLOSE, 5023, "descriptors that this user passed are still being closed")            \
	X(UNSUPPORTED, 5024, "the endpoint's fabric cannot do this")                               \
	X(PEER_PROTOCOL, 5025, "the peer broke the protocol of the wire")

enum xp_error {
#define XP_ERROR_ENUM(name, number, text) XP_E_##name = number,
	XP_ERRORS(XP_ERROR_ENUM)
#undef XP_ERROR_ENUM
};

/*
 * A constant phrase for a status (0, -errno or -XP_E_…, either sign); NULL where the number means
 * nothing. strerror(3) may write to a buffer that threads share; this does not.
 */
const char *xp_phrase(int status);

#endif
