/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef XFERCLIENT_H
#define XFERCLIENT_H

/*
 * libxferclient: scatter-gather transfers of any shape through the rdmaxferd of this host. The
 * daemon owns devices, registration and keys; a program names memory, peers and grants.
 *
 *	client   one connection to the daemon                    xfer_client_new()
 *	buffer   memory shared with the daemon                   xfer_buf_new()
 *	ep       one connection to one peer (a QP)               xfer_ep_new(), xfer_connect()
 *	listener where peers connect to                          xfer_listen()
 *	token    what a peer needs to READ or WRITE granted bytes   xfer_grant()
 *
 * Every function that can fail returns 0 (or a count) or a negative status: a negated errno, or a
 * negated XFER_E_… code. The calling thread's xfer_last_error() then says in a sentence what was
 * wrong.
 *
 * Threads: all functions may be called from any thread at any time, but an object must not be used
 * during or after the call that frees it. Fork: in a child every function returns -ECHILD (freeing
 * functions release the child's copies and tell the daemon nothing); buffers are not inherited.
 *
 * Blocking: functions that say "round trip" wait for the daemon's answer (microseconds to
 * milliseconds, and at most the client's timeout_ms, then -ETIMEDOUT; what was asked may still
 * happen). Posting functions do not block, but for one round trip when a post of memory outside
 * buffers (or of more than 64 segments a side) needs more of the library's own memory than there
 * is; that memory stays. xfer_poll() blocks as long as it is told to.
 *
 * When the daemon is gone: transfers that have not ended complete with -XFER_E_DAEMON_GONE, each
 * once; endpoints bring XFER_EVENT_DISCONNECTED; then every xfer_poll() brings
 * XFER_EVENT_DAEMON_GONE, with what the daemon said last. Memory of buffers stays mapped until
 * they are freed. There is no way back: free the client, and begin anew with new buffers.
 *
 * Option structs begin with their own size: zero-initialise, set .size = sizeof(struct …), set what
 * matters. 0 means the default.
 */

#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#ifdef __cplusplus
extern "C" {
#endif

#define XFER_VERSION "0.1.0"
#define XFER_DEFAULT_PORT 20470

#if defined(__GNUC__)
#define XFER_API __attribute__((visibility("default")))
#else
#define XFER_API
#endif

struct xfer_client;
struct xfer_buf;
struct xfer_ep;
struct xfer_listener;
struct xfer_table;

/* --------------------------------------------------------------------------------------- errors */

/* Codes beside errno; all are above any errno. Returned and delivered negated. */
enum xfer_error {
	XFER_E_PROTOCOL = 5000, /* the other side of the socket broke the client protocol */
	XFER_E_VERSION = 5001,           /* library and daemon speak different major versions */
	/* the daemon has gone away: begin anew, with a new client and new buffers */
	XFER_E_DAEMON_GONE = 5002,
	XFER_E_BUFFER_SEALED = 5003,     /* this memory file was added to a daemon before */
	XFER_E_BUFFER_UNFIT = 5004,      /* the descriptor is no memory file of the agreed kind */
	XFER_E_BUFFER_FAULT = 5005,      /* client memory vanished under an access */
	XFER_E_QUOTA = 5006,             /* a limit of this user or group is reached */
	XFER_E_DENIED = 5007,            /* the configuration does not allow this */
	XFER_E_FLUSHED = 5008,           /* disconnected before this transfer could complete */
	XFER_E_REMOTE_ACCESS = 5009,     /* the peer's memory was not granted for this access */
	XFER_E_REMOTE_FAULT = 5010,      /* the peer failed while it served this transfer */
	XFER_E_LOCAL_ACCESS = 5011,      /* local memory is not accessible in this way */
	XFER_E_MESSAGE_TOO_LONG = 5012,  /* a message was longer than the RECV that it met */
	XFER_E_RECEIVER_NOT_READY = 5013, /* the peer posted no RECV in time */
	XFER_E_STALLED = 5014,           /* the peer made no progress in time */
	XFER_E_PEER_GONE = 5015,         /* the peer disconnected or died */
	XFER_E_REJECTED = 5016,          /* the peer rejected the connection */
	XFER_E_BACKLOG = 5017,           /* the listener's backlog is full */
	XFER_E_SHUTDOWN = 5018,          /* the daemon is stopping */
	XFER_E_DEVICE = 5019,            /* the device failed */
	/* the memory for grants of this endpoint is spent until it ends */
	XFER_E_QUARANTINE = 5020,
	XFER_E_UNKNOWN_OPERATION = 5021, /* the daemon does not know this operation (it is older) */
	XFER_E_GRANT_ENDED = 5022,       /* the grant has ended */
	XFER_E_SLOW_CLOSE = 5023, /* descriptors that this user passed are still being closed */
	XFER_E_UNSUPPORTED = 5024,       /* the endpoint's fabric cannot do this */
	XFER_E_PEER_PROTOCOL = 5025      /* the peer broke the protocol of the wire */
};

/*
 * A constant phrase for a status (0, -errno or -XFER_E_…, either sign). Never NULL.
 * Async-signal-safe for XFER_E_….
 */
XFER_API const char *xfer_strerror(int status);

/*
 * The calling thread's last failure: its status, and in *ret_text (may be NULL) a sentence that
 * names the thing and the limit. The sentence stays valid until the thread's next failing call. 0
 * and "" where none has failed.
 */
XFER_API int xfer_last_error(const char **ret_text);

/* "0.1.0": the library's, at run time. */
XFER_API const char *xfer_version(void);

/* --------------------------------------------------------------------------------------- client */

struct xfer_client_options {
	size_t size;
	/*
	 * NULL: $XFER_SOCKET (admin: $XFER_ADMIN_SOCKET) if set; else, where the caller is not root
	 * and it is there, $XDG_RUNTIME_DIR/rdmaxferd/client/sock (admin/sock); else
	 * /run/rdmaxferd/client/sock (admin/sock)
	 */
	const char *socket_path;
	int admin;               /* not 0: the administrators' socket */
	const char *name;        /* shown to administrators; NULL: the program's */
	/* most memory for transfers of memory outside buffers and for long lists; 0 = 16 MiB */
	uint64_t carry_bytes;
	uint32_t timeout_ms;     /* of a round trip; 0 = 30,000 */
};

/*
 * Connects to the daemon and says hello. options may be NULL. One round trip. -ENOENT,
 * -ECONNREFUSED, -EACCES (with the socket's path in the sentence), -XFER_E_VERSION, -XFER_E_QUOTA,
 * -XFER_E_SLOW_CLOSE, -XFER_E_SHUTDOWN, -ETIMEDOUT, -EINVAL, -ENOMEM.
 */
XFER_API int xfer_client_new(const struct xfer_client_options *options,
			     struct xfer_client **ret_client);

/*
 * Closes the connection and frees the client with all its buffers, endpoints and listeners.
 * Unfinished transfers end; the daemon undoes everything. NULL is allowed.
 */
XFER_API void xfer_client_free(struct xfer_client *client);

/* The daemon's version, "0.1.0". Valid as long as the client. */
XFER_API const char *xfer_client_daemon_version(const struct xfer_client *client);

/*
 * For a foreign event loop: a descriptor to wait on for reading (level-triggered). Never read,
 * write or close it. Before sleeping on it call xfer_client_arm(): 0 = sleep; -EAGAIN = events wait
 * already, call xfer_poll() first. Negative status in a forked child.
 */
XFER_API int xfer_client_fd(const struct xfer_client *client);
XFER_API int xfer_client_arm(struct xfer_client *client);

/* -------------------------------------------------------------------------------------- buffers */

/*
 * Memory that is transferred without a copy in the library. Local scatter-gather lists are plain
 * struct iovec: the library finds the buffer behind each pointer. Pieces that are in no buffer are
 * carried through memory of the library (one copy, up to carry_bytes).
 */
/* back with huge pages of the default size (size is rounded up to it) */
#define XFER_BUF_HUGETLB 0x1u

/*
 * New memory, zeroed, all pages allocated. One round trip; takes time in proportion to the size.
 * -EINVAL (size 0 or over 2^40, unknown flag), -ENOMEM, -XFER_E_QUOTA, -XFER_E_DAEMON_GONE.
 */
XFER_API int xfer_buf_new(struct xfer_client *client, uint64_t size_bytes, unsigned int flags,
			  struct xfer_buf **ret_buf);

/*
 * Memory of the caller's own memfd (memfd_create(2) with MFD_ALLOW_SEALING, not sealed for writing,
 * not added before), whole. The library maps it, allocates missing pages, adds
 * F_SEAL_SHRINK|F_SEAL_GROW and passes it on; the daemon seals it for good, so a memfd is added
 * once in its life. fd stays the caller's, and may be closed. Errors as above, and
 * -XFER_E_BUFFER_UNFIT, -XFER_E_BUFFER_SEALED.
 */
XFER_API int xfer_buf_from_memfd(struct xfer_client *client, int fd, struct xfer_buf **ret_buf);

/*
 * Where the buffer is mapped (the library's mapping: never unmap it) and its size in bytes. Valid
 * until xfer_buf_free() or xfer_client_free(). Never fail.
 */
XFER_API void *xfer_buf_data(const struct xfer_buf *buf);
XFER_API uint64_t xfer_buf_size(const struct xfer_buf *buf);

/*
 * Takes the buffer from the daemon, unmaps and frees it. One round trip. -EBUSY while a transfer
 * uses it or a grant of it lives: nothing is freed then. Where the daemon is gone it is freed. NULL
 * is allowed.
 */
XFER_API int xfer_buf_free(struct xfer_buf *buf);

/* ------------------------------------------------------------------------------------ endpoints */

struct xfer_ep_options {
	size_t size;
	/*
	 * work requests at the device at once, 1 to 4,096; 0 = 64. More may be posted: they wait in
	 * the daemon.
	 */
	uint32_t send_depth;
	uint32_t recv_depth;       /* RECVs posted at once, 1 to 4,096; 0 = 64. One more: -EAGAIN */
	/*
	 * Bytes of RECVs, all that are posted at once taken together, that can go through a slab
	 * of the daemon's: RECVs of more pieces than max_segments, and on some devices others. 0:
	 * where the device needs one, recv_depth times 64 KiB, at most 4 MiB, or what the user's
	 * limit of pinned memory leaves, at least 64 KiB; else none.
	 */
	uint64_t recv_stage_bytes;
	void *context;             /* comes back in events */
};

/* What the fabric of an endpoint can do. Valid once the endpoint is ready. */
struct xfer_ep_info {
	size_t size; /* set by the caller */
	char fabric[64];        /* "iwarp", or a device's name */
	char route[256];        /* why this fabric */
	char peer_address[80];
	/*
	 * Pieces of one SEND or RECV (READ and WRITE: 4,096). More go by one key over all of them
	 * where the device has such keys, else through a slab: a SEND as long as the user may pin
	 * memory, a RECV of at most recv_stage_bytes.
	 */
	uint32_t max_segments;
	uint64_t max_message_bytes;
	uint32_t private_connect_bytes, private_accept_bytes, private_reject_bytes;
	/* a peer's xfer_post_send_inv() can end a grant of this endpoint */
	int remote_invalidatable;
	int immediate;            /* immediate data works */
	/*
	 * Grants are copies: one for READ shows the memory as it was at the grant; one for WRITE is
	 * copied into the buffer, all of it (0 where the peer wrote nothing), before each RECV that
	 * arrives later completes and when it is revoked.
	 */
	int grant_snapshot;
};

/*
 * An endpoint to connect to xfer://HOST[:PORT][/…][?require=verbs|tcp|DEVICE] (the path is the
 * program's own matter). One round trip; then an XFER_EVENT_READY comes (or fails) when the name is
 * resolved and a fabric chosen. From then on RECVs may be posted, and xfer_connect() called.
 * -EINVAL (what in the URL), -XFER_E_DENIED, -XFER_E_QUOTA.
 */
XFER_API int xfer_ep_new(struct xfer_client *client, const char *url,
			 const struct xfer_ep_options *options, struct xfer_ep **ret_ep);

/*
 * An endpoint that answers an XFER_EVENT_CONNECT_REQUEST. As above; then post RECVs and
 * xfer_accept(). -ENOENT: the peer gave up.
 */
XFER_API int xfer_ep_new_answer(struct xfer_client *client, uint64_t request,
				const struct xfer_ep_options *options, struct xfer_ep **ret_ep);

/*
 * Starts to connect, or accepts. XFER_EVENT_CONNECTED ends it. private_data: at most the bytes that
 * xfer_ep_info says. One round trip. -EINVAL (not ready, connected already, too much private data).
 */
XFER_API int xfer_connect(struct xfer_ep *ep, const void *private_data, size_t bytes);
XFER_API int xfer_accept(struct xfer_ep *ep, const void *private_data, size_t bytes);
XFER_API int xfer_reject(struct xfer_client *client, uint64_t request, const void *private_data,
			 size_t bytes);

enum xfer_ep_state { XFER_EP_READY = 1, XFER_EP_CONNECTED = 2 };

/*
 * For simple programs: waits until the endpoint has reached that state at least. Events stay queued
 * for xfer_poll(). timeout_ms < 0: no limit. 0, -ETIMEDOUT, or the status with which the endpoint
 * failed.
 */
XFER_API int xfer_ep_wait(struct xfer_ep *ep, enum xfer_ep_state state, int timeout_ms);

/* -EAGAIN: not ready. */
XFER_API int xfer_ep_info(const struct xfer_ep *ep, struct xfer_ep_info *ret_info);
/* The program's own pointer, as in the options and in events; it is never followed. */
XFER_API void *xfer_ep_context(const struct xfer_ep *ep);
XFER_API void xfer_ep_set_context(struct xfer_ep *ep, void *context);

/*
 * Ends the connection; unfinished transfers end with -XFER_E_FLUSHED, then XFER_EVENT_DISCONNECTED
 * comes. Completed ones stand: drain first. One round trip. -XFER_E_DAEMON_GONE, -ETIMEDOUT.
 */
XFER_API int xfer_disconnect(struct xfer_ep *ep);

/*
 * Disconnects if need be, waits until the daemon has undone everything (its grants' keys are dead),
 * and frees the endpoint. Its events that were not polled are dropped. NULL is allowed.
 */
XFER_API void xfer_ep_free(struct xfer_ep *ep);

struct xfer_listen_options {
	size_t size;
	uint32_t backlog; /* connection requests held by the daemon, 1 to 1,024; 0 = 128 */
	void *context;
};

/*
 * Waits for peers at "HOST[:PORT]", "[V6][:PORT]" or "xfer://…" (port 0 chooses one). Each brings
 * an XFER_EVENT_CONNECT_REQUEST. One round trip (and name resolution). -EADDRINUSE, -EADDRNOTAVAIL,
 * -XFER_E_DENIED, -XFER_E_QUOTA, -EINVAL.
 */
XFER_API int xfer_listen(struct xfer_client *client, const char *address,
			 const struct xfer_listen_options *options,
			 struct xfer_listener **ret_listener);
/* "127.0.0.1:20470". Valid as long as the listener. */
XFER_API const char *xfer_listener_address(const struct xfer_listener *listener);
/* The program's own pointer, as in the options and in events. */
XFER_API void *xfer_listener_context(const struct xfer_listener *listener);
/* Requests not answered are rejected. One round trip. NULL is allowed. */
XFER_API void xfer_listener_free(struct xfer_listener *listener);

/* ------------------------------------------------------------------------------------ transfers */

/*
 * What a peer needs to reach granted bytes, 16 bytes in host order; send it as your protocol likes.
 * As part of a remote scatter-gather list: any piece of a token (address advanced, length
 * shortened, same rkey).
 */
struct xfer_token {
	uint64_t address;
	uint32_t length;
	uint32_t rkey;
};

/* Flags of a post. */
#define XFER_FENCE 0x0001u       /* start after all earlier READs of the endpoint have completed */
/*
 * No completion unless it fails. Not for RECV and GRANT. When the daemon goes away nobody knows
 * which of these had ended: XFER_EVENT_DAEMON_GONE stands for all that have not been told.
 */
#define XFER_QUIET 0x0002u
/* SEND, and WRITE with immediate data: wakes a peer that sleeps for solicited events only */
#define XFER_SOLICITED 0x0004u
#define XFER_PLACED 0x0008u      /* WRITE: complete when the peer's NIC has processed it */
/*
 * Keeps what became of it, for the table "plans" (xfer_query()): the way it was carried, why in no
 * other, what that should have cost and what it took. The client's last 64 are kept.
 */
#define XFER_EXPLAIN 0x0080u
/* more posts follow at once: may be held back until one without it, xfer_flush() or xfer_poll() */
#define XFER_MORE 0x10000u

#define XFER_SEGMENTS_MAX 4096   /* a side */

/*
 * The posts. Send-side ones of one endpoint (and grants, revokes) start in the order posted. Each
 * ends with exactly one XFER_EVENT_COMPLETION carrying wr_id (none, on success, with XFER_QUIET).
 * Until then its memory belongs to the transfer; the iovec and token arrays may be reused at once.
 *
 * n_local, n_remote: 1 to XFER_SEGMENTS_MAX (SEND and RECV: from 0 on; of more than the endpoint's
 * max_segments, in which neighbouring pieces that the library carries count as one, see there). The
 * sums of both sides must be equal. A zero-length piece means nothing. *ret_cookie (may be NULL)
 * names the transfer for xfer_cancel(). A post may be refused at once, then nothing was posted and
 * no event comes:
 *	-EINVAL        a shape that cannot be; the sentence names the segment and the limit
 *	-EFAULT        memory outside buffers where it cannot be carried (grants; larger than
 *	               carry_bytes: -EMSGSIZE)
 *	-EAGAIN        the daemon has as much as it takes for the moment, or the carried memory is
 *	               in use: poll, then try again
 *	-ENOTCONN      RECVs need a ready endpoint, all else a connected one
 *	-XFER_E_DAEMON_GONE, -ENOMEM
 * or by the daemon, then its completion says why (-XFER_E_QUOTA, -XFER_E_UNSUPPORTED, -EAGAIN for a
 * RECV beyond recv_depth, …).
 */
XFER_API int xfer_post_read(struct xfer_ep *ep, const struct iovec *local, int n_local,
			    const struct xfer_token *remote, int n_remote, uint64_t wr_id,
			    unsigned int flags, uint64_t *ret_cookie);
XFER_API int xfer_post_write(struct xfer_ep *ep, const struct iovec *local, int n_local,
			     const struct xfer_token *remote, int n_remote, uint64_t wr_id,
			     unsigned int flags, uint64_t *ret_cookie);
XFER_API int xfer_post_send(struct xfer_ep *ep, const struct iovec *local, int n_local,
			    uint64_t wr_id, unsigned int flags, uint64_t *ret_cookie);
/*
 * SEND that ends the peer's grant with this rkey on arrival (xfer_ep_info.remote_invalidatable of
 * the peer must be known to hold).
 */
XFER_API int xfer_post_send_inv(struct xfer_ep *ep, const struct iovec *local, int n_local,
				uint32_t rkey, uint64_t wr_id, unsigned int flags,
				uint64_t *ret_cookie);
/*
 * SEND and WRITE with immediate data, where xfer_ep_info.immediate; else the completion is
 * -XFER_E_UNSUPPORTED.
 */
XFER_API int xfer_post_send_imm(struct xfer_ep *ep, const struct iovec *local, int n_local,
				uint32_t immediate, uint64_t wr_id, unsigned int flags,
				uint64_t *ret_cookie);
XFER_API int xfer_post_write_imm(struct xfer_ep *ep, const struct iovec *local, int n_local,
				 const struct xfer_token *remote, int n_remote, uint32_t immediate,
				 uint64_t wr_id, unsigned int flags, uint64_t *ret_cookie);
/*
 * On a ready endpoint, also before xfer_connect() or xfer_accept(): what is posted then is there
 * before the peer's first message.
 */
XFER_API int xfer_post_recv(struct xfer_ep *ep, const struct iovec *local, int n_local,
			    uint64_t wr_id, unsigned int flags, uint64_t *ret_cookie);

#define XFER_GRANT_READ 0x0100u
#define XFER_GRANT_WRITE 0x0200u

/*
 * Lets this endpoint's peer, and nobody else, READ or WRITE (access: one of the two) exactly these
 * bytes of a buffer, one contiguous piece of 1 byte to 4 GiB-1. The completion brings the token and
 * the grant's number. It ends by xfer_revoke(), by the peer (xfer_post_send_inv()), after
 * lifetime_ms (0 = never), or with the endpoint; when the revoke completes, or the peer's message
 * arrives, the key is dead.
 */
XFER_API int xfer_grant(struct xfer_ep *ep, const void *address, uint64_t bytes,
			unsigned int access, uint64_t lifetime_ms, uint64_t wr_id,
			unsigned int flags, uint64_t *ret_cookie);
/* A field of a token, to be written into a message. */
enum xfer_field { XFER_FIELD_ADDRESS = 0, XFER_FIELD_LENGTH = 1, XFER_FIELD_RKEY = 2 };

struct xfer_patch {
	uint64_t offset;       /* in the message, bytes */
	enum xfer_field field;
	unsigned int width;    /* bytes: an address 8, an rkey 4 or 8, a length 3, 4 or 8 */
	int big_endian;        /* not 0: network byte order, else little-endian */
};

#define XFER_PATCHES_MAX 3

/*
 * As xfer_grant(), of several pieces of buffers, which the peer sees side by side, in order, under
 * one token: as many as the fabric can put behind one key (256 on the iwarp fabric and where grants
 * are copies; elsewhere one), in all 4 GiB-1 at most. -XFER_E_UNSUPPORTED in the completion: they
 * are more.
 *
 * n_patches, 1 to XFER_PATCHES_MAX: the daemon also writes these fields of the token into the
 * message of the endpoint's next SEND before that is sent (into its memory; where the library
 * carries that, into the copy): a program that grants for each request posts the grant and the SEND
 * one after the other and waits for nothing in between. Several grants may be linked to one SEND.
 * Where one of them fails the SEND completes with -XFER_E_GRANT_ENDED, and nothing was sent. A
 * patch outside the message: the SEND is refused with -EINVAL. 0: none; patches may be NULL.
 */
XFER_API int xfer_grantv(struct xfer_ep *ep, const struct iovec *local, int n_local,
			 unsigned int access, uint64_t lifetime_ms,
			 const struct xfer_patch *patches, int n_patches, uint64_t wr_id,
			 unsigned int flags, uint64_t *ret_cookie);
/* Completes when the key is dead. -XFER_E_GRANT_ENDED in the completion: it was already. */
XFER_API int xfer_revoke(struct xfer_ep *ep, uint32_t grant, uint64_t wr_id, unsigned int flags,
			 uint64_t *ret_cookie);

/*
 * How a cancel ended (xfer_event.cancelled). The target's own completion comes in every case, with
 * -ECANCELED where it was cut.
 */
enum xfer_cancelled {
	XFER_CANCEL_NEVER_STARTED = 0, /* no byte moved */
	XFER_CANCEL_FENCED = 1,        /* the rest was dropped, what had started has finished */
	XFER_CANCEL_QUARANTINED = 2,   /* the device holds its memory until the endpoint is gone */
	XFER_CANCEL_TOO_LATE = 3       /* it completed first */
};
/*
 * Posts the end of the transfer that has this cookie; does not block. It completes itself, with
 * wr_id and `cancelled`. Errors as of the posts.
 */
XFER_API int xfer_cancel(struct xfer_ep *ep, uint64_t cookie, uint64_t wr_id);

/*
 * Hands on what XFER_MORE held back. Never blocks: what the socket does not take goes on with the
 * next xfer_poll(). 0, -XFER_E_DAEMON_GONE.
 */
XFER_API int xfer_flush(struct xfer_client *client);

/* --------------------------------------------------------------------------------------- events */

enum xfer_event_type {
	XFER_EVENT_COMPLETION = 1,
	XFER_EVENT_READY = 2,           /* ep, status */
	/* listener, request, peer_address, peer_uid, private data */
	XFER_EVENT_CONNECT_REQUEST = 3,
	XFER_EVENT_CONNECTED = 4,       /* ep, status, private data */
	XFER_EVENT_DISCONNECTED = 5,    /* ep, status */
	XFER_EVENT_DAEMON_GONE = 6      /* status; the last one, repeated at each poll */
};

enum xfer_opcode {
	XFER_OP_READ = 1,
	XFER_OP_WRITE = 2,
	XFER_OP_SEND = 3,
	XFER_OP_RECV = 4,
	XFER_OP_GRANT = 5,
	XFER_OP_REVOKE = 6,
	XFER_OP_CANCEL = 7
};

/* Flags of a completion. */
#define XFER_HAS_IMMEDIATE 0x0001u
#define XFER_HAS_INVALIDATED 0x0002u /* RECV: `grant` was ended by the message */
#define XFER_HAS_SOLICITED 0x0004u

struct xfer_event {
	enum xfer_event_type type;
	int status;              /* 0, -errno, -XFER_E_… */
	struct xfer_ep *ep;      /* or NULL */
	void *context;           /* of the ep or the listener */
	/* completions */
	uint64_t wr_id;
	uint64_t byte_len;       /* bytes moved; RECV: of the message */
	struct xfer_token token; /* GRANT */
	uint32_t grant;          /* GRANT, and RECV with XFER_HAS_INVALIDATED */
	uint32_t immediate;
	enum xfer_opcode opcode;
	enum xfer_cancelled cancelled; /* CANCEL */
	unsigned int flags;
	/* connections */
	struct xfer_listener *listener;
	uint64_t request;        /* for xfer_ep_new_answer() or xfer_reject() */
	int64_t peer_uid;        /* of a peer on this host, where known, else -1 */
	char peer_address[80];
	size_t private_data_bytes;
	uint8_t private_data[256];
	char text[256];          /* a sentence where status is not 0, else "" */
};

/*
 * Takes up to max events, in order. Waits at most timeout_ms (0: not at all, -1: without limit) for
 * the first. Returns how many; 0 at the time-out; -EINTR. Only the fields that belong to a type are
 * written.
 */
XFER_API int xfer_poll(struct xfer_client *client, struct xfer_event *events, int max,
		       int timeout_ms);

/* ----------------------------------------------------------------------- tables, administration */

/*
 * Reads a table of the daemon: "status", "devices", "device-facts", "sessions", "endpoints",
 * "buffers", "listeners", "grants", "keys", "key-history", "costs", "plans", "pools", "quotas". On
 * the clients' socket: what belongs to the caller's uid. Round trips, one per 64 KiB. -ENOENT: no
 * such table (the sentence lists them). The table is the caller's, to be freed by xfer_table_free()
 * (NULL is allowed), also after its client.
 *
 * The functions below only look at it, and never fail: columns and rows count from 0, and must be
 * below xfer_table_columns() and xfer_table_rows(). What they return is valid as long as the table.
 */
XFER_API int xfer_query(struct xfer_client *client, const char *table,
			struct xfer_table **ret_table);
/*
 * The same of a table that takes arguments: at most 8, of at most 4,096 bytes each. -EINVAL: not
 * such arguments, or not of this table (the sentence says which, and why).
 *
 * "explain", what would become of a transfer: {"read", "write", "send" or "recv"; the local pieces,
 * such as "9x4096,1x13"; the remote pieces, "" where there are none; a device or ""; a profile or
 * ""}.
 */
XFER_API int xfer_query_about(struct xfer_client *client, const char *table,
			      const char *const *arguments, size_t n_arguments,
			      struct xfer_table **ret_table);
XFER_API void xfer_table_free(struct xfer_table *table);
XFER_API size_t xfer_table_columns(const struct xfer_table *table);
XFER_API size_t xfer_table_rows(const struct xfer_table *table);
XFER_API const char *xfer_table_column_name(const struct xfer_table *table, size_t column);
/* "" = none */
XFER_API const char *xfer_table_column_unit(const struct xfer_table *table, size_t column);
XFER_API int xfer_table_column_is_number(const struct xfer_table *table, size_t column);
/* Numbers are plain decimal text. */
XFER_API const char *xfer_table_cell(const struct xfer_table *table, size_t row, size_t column);

/*
 * Administrators' socket: "end-session" NUMBER, "disconnect-endpoint" SESSION ENDPOINT, "log-level"
 * err|warning|notice|info|debug, "measure" DEVICE. At most 8 arguments. One round trip.
 * -XFER_E_DENIED (not the administrators' socket), -ENOENT (no such session or endpoint), -EINVAL.
 */
XFER_API int xfer_admin(struct xfer_client *client, const char *verb, const char *const *arguments,
			size_t n_arguments);

#ifdef __cplusplus
}
#endif

#endif
