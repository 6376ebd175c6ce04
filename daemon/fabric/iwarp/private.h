/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef IWARP_PRIVATE_H
#define IWARP_PRIVATE_H

/*
 * The objects of the iwarp fabric and what its files call of each other.
 *
 *   address.c    which addresses are this host's
 *   stag.c       the table of STags
 *   memory.c     protection domains, regions, windows; the checks of local and remote access
 *   endpoint.c   making, ending and flushing endpoints
 *   queue.c      posting and completing work requests
 *   transfer.c   executing them
 *   sched.c      whose turn it is
 *   cm.c         listeners, connection requests, events
 *   stream.h     all of the wire
 *   instance.c   open, close, progress
 *   measure.c    what things cost
 *
 * Nothing is kept across two steps of a transfer but numbers: keys are looked up and checked again
 * for each quantum, so that what was killed in between is dead, and no step can meet a freed
 * object.
 */

#include "common/addr.h"
#include "common/list.h"
#include "daemon/engine.h"
#include "daemon/fabric/address.h"
#include "daemon/fabric/fabric.h"
#include "daemon/fabric/iwarp/iwarp.h"
#include "daemon/fabric/iwarp/mpa.h"
#include "daemon/fabric/iwarp/profile.h"
#include "daemon/fabric/region.h"
#include "daemon/fabric/saboteur.h"

#define IWARP_MAX_SGE 32u
#define IWARP_MAX_WR 16384u
#define IWARP_MESSAGE_BYTES_MAX UINT32_MAX
/*
 * Room for it is in every slot of a send queue: 8 KiB of an endpoint of 64, and 512 KiB of one of
 * 4,096, beside 2 MiB for its segments.
 */
#define IWARP_INLINE_BYTES 128u
/*
 * RFC 5044 allows 512; 256 is what peers take, and revision 2 of MPA (RFC 6581) has 4 of them for
 * itself.
 */
#define IWARP_PRIVATE_DATA_BYTES 252u
/* Copied before others get a turn; also what a turn may cost at most (about 30 us). */
#define IWARP_QUANTUM_BYTES (256u << 10)
/* What a work request costs beside its bytes, in bytes that could have been copied. */
#define IWARP_WR_COST_BYTES 512u
#define IWARP_RNR_MS_DEFAULT 500u
#define IWARP_EP_LIMIT_DEFAULT 65536u
#define IWARP_BUCKETS 256u

/*
 * ---- STags: a 24-bit index that nobody can guess, and a key byte that its user rotates (RFC 5040,
 * RFC 5042 5.4)
 */

enum iwarp_stag_kind { IWARP_STAG_REGION = 1, IWARP_STAG_WINDOW };

struct iwarp_mr;

struct iwarp_stag {
	uint32_t index; /* 1 to 2^24 - 1 */
	uint8_t key;
	enum iwarp_stag_kind kind;
	bool valid; /* a window: bound */
	int rights; /* IBV_ACCESS_… */
	struct fabric_pd *pd;
	struct fabric_ep *ep;  /* a window: the stream that it is bound to */
	struct iwarp_mr *mr;   /* what is behind it; of a region itself */
	uint64_t base, length; /* tagged offsets */
	uint64_t serial;       /* tells this one from a later one of the same index */
	struct xc_list on_ep;  /* a bound window */
};

struct iwarp_stags {
	struct iwarp_stag **cells; /* open addressing, linear probing */
	uint32_t n_cells;	   /* a power of two, or 0 */
	uint32_t used;
	uint64_t *taken;   /* bitmap of indices in use or resting */
	uint32_t *resting; /* ring of freed indices, oldest first */
	uint32_t rest_first, rest_count;
	uint64_t serial;
	struct xd_engine_ref engine;
};

#define IWARP_STAGS_MAX (1u << 20)
#define IWARP_STAG_REST 65536u /* how many others are freed before an index is used again */

int iwarp_stags_init(struct iwarp_stags *t, const struct xd_engine_ref *engine);
void iwarp_stags_done(struct iwarp_stags *t);
/* Gives s an index and a key, both unpredictable. 0, -ENOSPC, -ENOMEM. */
int iwarp_stags_add(struct iwarp_stags *t, struct iwarp_stag *s);
void iwarp_stags_remove(struct iwarp_stags *t, struct iwarp_stag *s);
/* An STag that will never name memory. */
uint32_t iwarp_stags_reserve(struct iwarp_stags *t);
/* The one with this index and this key, or NULL. */
struct iwarp_stag *iwarp_stags_find(const struct iwarp_stags *t, uint32_t stag);
/* Whatever its key is. */
struct iwarp_stag *iwarp_stags_at(const struct iwarp_stags *t, uint32_t index);

static inline uint32_t iwarp_stag_number(const struct iwarp_stag *s)
{
	return s->index << 8 | s->key;
}

/* ---- memory */

struct iwarp_range {
	uint64_t start; /* in the MR */
	struct fabric_region *region;
	uint64_t region_offset; /* of its first byte */
};

struct iwarp_mr {
	struct ibv_mr mr;
	uint32_t magic;
	struct iwarp_stag stag;
	uint32_t windows;	  /* bound to it */
	uint32_t n_ranges;	  /* 1 at least */
	struct iwarp_range first; /* begins at mr.addr */
	struct iwarp_range more[];
};

struct iwarp_mw {
	struct ibv_mw mw;
	uint32_t magic;
	struct iwarp_stag stag;
};

/*
 * Memory that passed a check. Of what was asked for, and is allowed, `bytes` lie here in one piece:
 * no more of it may be touched by `at`. Behind them is the next range of the key: look it up.
 */
struct iwarp_span {
	uint8_t *at;
	struct fabric_region *region; /* NULL: inline data of a work request */
	uint64_t bytes;
};

/* May work requests of ep use this memory for this (0 or IBV_ACCESS_LOCAL_WRITE)? */
bool iwarp_local_access(struct fabric_ep *ep, uint32_t lkey, uint64_t address, uint64_t length,
			int right, struct iwarp_span *ret);

/* Why not; in the order of checking. */
enum iwarp_access {
	IWARP_ACCESS_OK,
	IWARP_ACCESS_NO_STAG,
	IWARP_ACCESS_STREAM, /* another's */
	IWARP_ACCESS_RIGHTS,
	IWARP_ACCESS_BOUNDS,
};

/*
 * May the peer of `target` use this memory of target's for this (IBV_ACCESS_REMOTE_READ or _WRITE)?
 */
enum iwarp_access iwarp_remote_check(struct fabric_ep *target, uint32_t rkey, uint64_t address,
				     uint64_t length, int right, struct iwarp_span *ret);
bool iwarp_remote_access(struct fabric_ep *target, uint32_t rkey, uint64_t address, uint64_t length,
			 int right, struct iwarp_span *ret);

/* What a bind asks for, as numbers. */
struct iwarp_bind {
	uint64_t window_serial;
	uint64_t address, length;
	uint32_t new_rkey, lkey;
	int access;
};

bool iwarp_bind(struct fabric_ep *ep, const struct iwarp_bind *bind);
bool iwarp_local_invalidate(struct fabric_ep *ep, uint32_t rkey);
bool iwarp_names_window(struct fabric_ep *ep, uint32_t rkey);
/* Is this a window that the peer of `target` may invalidate; and do it. */
bool iwarp_can_remote_invalidate(struct fabric_ep *target, uint32_t rkey);
void iwarp_remote_invalidate(struct fabric_ep *target, uint32_t rkey);
/* The endpoint ends: so do its windows. */
void iwarp_unbind_all(struct fabric_ep *ep);

int iwarp_pd_alloc(struct fabric *f, uint32_t owner, struct fabric_pd **ret);
void iwarp_pd_free(struct fabric_pd *pd);
int iwarp_mr_reg(struct fabric_pd *pd, struct fabric_region *region, uint64_t offset,
		 uint64_t length, uint64_t iova, int access, struct fabric_done *done,
		 struct ibv_mr **ret_mr);
int iwarp_mr_reg_ranges(struct fabric_pd *pd, const struct fabric_range *ranges, uint32_t n,
			uint64_t iova, int access, struct fabric_done *done,
			struct ibv_mr **ret_mr);
int iwarp_mr_dereg(struct ibv_mr *mr, struct fabric_done *done);
int iwarp_mw_alloc(struct fabric_pd *pd, struct fabric_done *done, struct ibv_mw **ret_mw);
int iwarp_mw_dealloc(struct ibv_mw *mw, struct fabric_done *done);

/* ---- whose turn it is: round robin over owners, then their pds, then their endpoints */

struct iwarp_owner {
	uint32_t uid;
	uint32_t pds;
	struct xc_list in_bucket;
	struct xc_list turn; /* on fabric.turns */
	struct xc_list turns;
};

struct fabric_pd {
	uint32_t magic;
	struct fabric *fabric;
	struct iwarp_owner *owner;
	struct xc_list turn;  /* on owner.turns */
	struct xc_list turns; /* of endpoints */
	uint32_t objects;     /* that live in it */
};

int iwarp_owner_get(struct fabric *f, uint32_t uid, struct iwarp_owner **ret);
void iwarp_owner_put(struct iwarp_owner *o);
/* Gives ep turns if it has something that can run, and takes them otherwise. */
void iwarp_schedule(struct fabric_ep *ep);
/* Takes turns for about budget_bytes; what is left is on fabric.turns. */
void iwarp_run_turns(struct fabric *f, uint64_t budget_bytes);

/* ---- queues */

struct iwarp_wr {
	uint64_t wr_id;
	enum ibv_wr_opcode opcode;
	unsigned int flags;
	int num_sge;
	uint64_t total_bytes;
	bool done; /* on the wire: completes when those before it have */
	union {
		struct {
			uint64_t address;
			uint32_t rkey;
		} remote;
		struct {
			uint32_t invalidate_rkey;
			bool named_window; /* LOCAL_INV: when it was posted */
		};
		struct iwarp_bind bind;
	};
};

/*
 * A ring of work requests with their segments. A slot is free again when its completion was polled.
 */
struct iwarp_queue {
	struct iwarp_wr *wrs;
	struct ibv_sge *sges; /* max_sge for each slot */
	uint8_t *inlines;     /* max_inline for each slot */
	uint32_t size, max_sge, max_inline;
	uint32_t head, count; /* posted, not completed */
	uint32_t unpolled;    /* completions of it that wait in the endpoint's ring */
};

/* Where the work request at the head of the send queue is. */
struct iwarp_cursor {
	bool started; /* all checks passed */
	uint64_t done_bytes;
	uint32_t sge, peer_sge; /* own list; for SEND, the list of the RECV that it met */
	uint64_t sge_done, peer_sge_done;
	struct iwarp_span remote; /* of READ and WRITE */
};

/*
 * To the segment of a list that the next byte is in. There is one: the caller has bytes left to
 * move.
 */
static inline const struct ibv_sge *iwarp_seek(const struct ibv_sge *sges, uint32_t *sge,
					       uint64_t *done)
{
	while (*done == sges[*sge].length) {
		++*sge;
		*done = 0;
	}
	return &sges[*sge];
}

/* The first `bytes` of a list. Segments without bytes have no key that matters. */
bool iwarp_list_access(struct fabric_ep *ep, const struct ibv_sge *sges, uint64_t bytes, int right);
/* Executes a BIND_MW or LOCAL_INV. */
bool iwarp_key_operation(struct fabric_ep *ep, const struct iwarp_wr *wr);

int iwarp_queue_init(struct iwarp_queue *q, uint32_t size, uint32_t max_sge, uint32_t max_inline);
void iwarp_queue_done(struct iwarp_queue *q);
int iwarp_post_send(struct fabric_ep *ep, struct ibv_send_wr *wr, struct ibv_send_wr **bad_wr);
int iwarp_post_recv(struct fabric_ep *ep, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad_wr);
int iwarp_poll(struct fabric *f, int n, struct ibv_wc *wc);

static inline struct iwarp_wr *iwarp_queue_head(const struct iwarp_queue *q)
{
	return q->count ? &q->wrs[q->head] : NULL;
}

static inline struct ibv_sge *iwarp_queue_sges(const struct iwarp_queue *q,
					       const struct iwarp_wr *wr)
{
	return q->sges + (size_t)(wr - q->wrs) * q->max_sge;
}

static inline bool iwarp_is_inline(const struct iwarp_wr *wr)
{
	return wr->flags & IBV_SEND_INLINE;
}

/* The total_bytes of a work request that is inline. */
uint8_t *iwarp_inline_data(const struct iwarp_queue *q, const struct iwarp_wr *wr);

/* A SEND found no RECV: it waits, for rnr_ns at most; and waits no more. Harmless twice. */
void iwarp_await_recv(struct fabric_ep *ep);
void iwarp_stop_awaiting(struct fabric_ep *ep);
/* The SEND that waited in the stream can come in. */
void iwarp_recv_is_there(struct fabric_ep *ep);
/* Completes the head of the send queue; a success that was not signalled is silent. */
void iwarp_complete_send(struct fabric_ep *ep, enum ibv_wc_status status);
/* Completes the head of the receive queue. invalidated_rkey: 0 = none. */
void iwarp_complete_recv(struct fabric_ep *ep, enum ibv_wc_status status, uint32_t byte_len,
			 uint32_t invalidated_rkey);
void iwarp_flush(struct fabric_ep *ep);

/* ---- endpoints */

enum iwarp_ep_state {
	IWARP_EP_IDLE,
	IWARP_EP_CONNECTING, /* conn says how far */
	IWARP_EP_CONNECTED,
	IWARP_EP_ENDED, /* everything posted flushes */
};

/* Something that waits to be told from progress(). */
struct iwarp_pending {
	struct xc_list link; /* on fabric.pending */
	void (*deliver)(struct iwarp_pending *p);
};

#define IWARP_TELL_ESTABLISHED 0x1u
#define IWARP_TELL_DISCONNECTED 0x2u

struct fabric_ep {
	uint32_t magic;
	struct fabric *fabric;
	struct fabric_pd *pd;
	void *ctx;
	uint32_t qp_num;
	enum iwarp_ep_state state;
	/* connected to an endpoint of this daemon: */
	struct fabric_ep *peer;	  /* while connected */
	struct fabric_conn *conn; /* while connecting */
	/* or through TCP, from connecting on: */
	struct iwarp_stream *stream;

	struct iwarp_queue sq, rq;
	struct iwarp_cursor cursor;
	/* the peer has no RECV for the SEND at the head; with a stream: this one for the peer's */
	bool awaits_recv;
	struct xd_timer rnr;
	struct xc_list turn; /* on pd.turns */
	struct xc_list windows;

	struct ibv_wc *cq; /* ring of sq.size + rq.size: one for all that can be posted */
	uint32_t cq_size, cq_head, cq_count;
	struct xc_list cq_ready; /* on fabric.cq_ready */

	struct iwarp_pending pending;
	unsigned int tell; /* IWARP_TELL_… */
	int established_status, disconnected_status;
	uint16_t private_data_bytes;
	uint8_t private_data[FABRIC_PRIVATE_DATA_MAX];
};

int iwarp_ep_create(struct fabric *f, const struct fabric_ep_attr *attr, struct fabric_done *done,
		    struct fabric_ep **ret);
void iwarp_ep_disconnect(struct fabric_ep *ep);
void iwarp_ep_error(struct fabric_ep *ep);
int iwarp_ep_destroy(struct fabric_ep *ep, struct fabric_done *done);
/* Ends a connection: both sides flush, and each is told its reason. */
void iwarp_ep_end(struct fabric_ep *ep, int reason, int peer_reason);
/* Ends connecting or accepting. */
void iwarp_ep_join(struct fabric_ep *active, struct fabric_ep *passive, const void *private_data,
		   size_t bytes);
/* Through a stream. */
void iwarp_ep_connected(struct fabric_ep *ep, const void *private_data, size_t bytes);
void iwarp_ep_refuse(struct fabric_ep *ep, int status, const void *private_data, size_t bytes);

/* Executes work requests of ep for about allowance_bytes; returns what it cost. */
uint64_t iwarp_execute(struct fabric_ep *ep, uint64_t allowance_bytes);

/* ---- connections */

enum iwarp_conn_state {
	IWARP_CONN_ASKED,      /* the listener was not told yet */
	IWARP_CONN_DELIVERING, /* inside its connect_request */
	IWARP_CONN_DELIVERED,
	IWARP_CONN_GONE, /* conn_gone waits to be told */
};

struct fabric_conn {
	uint32_t magic;
	struct fabric *fabric;
	enum iwarp_conn_state state;
	bool answered;		     /* while delivering */
	struct fabric_ep *ep;	     /* who asks, in this daemon; */
	struct iwarp_stream *stream; /* or from elsewhere; neither: gave up */
	void *ctx;
	struct xc_addr dst, peer;
	struct iwarp_pending pending;
	uint16_t private_data_bytes;
	uint8_t private_data[FABRIC_PRIVATE_DATA_MAX];
};

/* What epoll gives back. */
struct iwarp_watch {
	void (*ready)(struct iwarp_watch *w, uint32_t events);
};

/* A listening socket. */
struct iwarp_socket {
	struct iwarp_watch watch;
	struct fabric_listener *listener;
	int fd;
	bool paused;
	struct xc_list accepting; /* on fabric.accepting */
	struct xd_timer pause;
};

struct fabric_listener {
	uint32_t magic;
	struct fabric *fabric;
	struct xc_addr at;
	void *ctx;
	struct xc_list in_bucket;
	struct iwarp_socket *sockets; /* none: it hears this daemon only */
	uint32_t n_sockets;
};

int iwarp_ep_connect(struct fabric_ep *ep, const struct xc_addr *dst, const void *private_data,
		     size_t bytes);
int iwarp_ep_accept(struct fabric_ep *ep, struct fabric_conn *conn, const void *private_data,
		    size_t bytes);
void iwarp_conn_reject(struct fabric_conn *conn, const void *private_data, size_t bytes);
/* Its endpoint gives up. */
void iwarp_conn_abandon(struct fabric_conn *conn);
/* A request from elsewhere: asks the user. 0, or -errno: nobody knows of it. From progress(). */
int iwarp_conn_ask(struct iwarp_stream *s, struct fabric_listener *l, const void *private_data,
		   size_t bytes);
/* Its stream is gone. */
void iwarp_conn_lost(struct fabric_conn *conn);
/* Does the user of l let this host connect? */
bool iwarp_may_ask(const struct fabric_listener *l, const struct xc_addr *peer);
int iwarp_listen(struct fabric *f, const struct xc_addr *at, uint32_t owner, void *ctx,
		 struct fabric_done *done, struct fabric_listener **ret, struct xc_addr *ret_at);
void iwarp_listener_free(struct fabric_listener *l);
/*
 * Tells what waited when it was called; what the listeners of events cause waits for the next time.
 */
void iwarp_tell(struct fabric *f);
void iwarp_ep_tell(struct iwarp_pending *p);

/* ---- addresses */

/* Has a device that speaks iWARP itself the TCP ports of this network interface? */
bool iwarp_kernel_has(const char *interface);
/* Is it an address of this host? 0, -EADDRNOTAVAIL, or why that could not be found out. */
int iwarp_address_is_local(const struct xc_addr *a);
int iwarp_route(struct fabric *f, const struct xc_addr *dst, char *ret_why, size_t size);

/* ---- the instance */

struct fabric {
	uint32_t magic;
	struct xd_engine_ref engine;
	struct fabric_events events;
	struct fabric_caps caps;
	uint64_t rnr_ns, mpa_ns, stall_ns;
	uint32_t ep_limit, eps;
	bool no_wire, no_shortcut;
	const struct iwarp_profile *profile; /* NULL = none */
	struct mpa_wants wants;
	uint32_t sink_stag; /* of our READs: names no memory */
	uint32_t objects;   /* pds, listeners, conns: for close */
	uint16_t last_peer_port;

	struct iwarp_stags stags;
	struct xc_list owners[IWARP_BUCKETS];
	struct xc_list listeners[IWARP_BUCKETS]; /* by port */
	struct xc_list turns;			 /* of owners */
	struct xc_list cq_ready;		 /* endpoints with completions */
	struct xc_list pending;			 /* struct iwarp_pending */
	struct fabric_region *faulted;		 /* by the last turn */
	struct iwarp_measure *measure;		 /* under way, or NULL */

	int epoll_fd;
	uint32_t watched;	  /* by it */
	struct xc_list accepting; /* sockets that somebody knocks at */
	/* streams: whose request is to come (n_hearing of them), the others, those to be freed */
	struct xc_list hearing, streams, dead;
	struct xc_list busy; /* streams that have something to do, and no endpoint */
	uint32_t n_hearing, handshakes, handshakes_per_host;
	uint32_t lingering; /* streams that their endpoint let go of */

	bool kicked, in_progress;
};

/* What the sink of a READ needs. Some devices check it as they check any tagged buffer. */
static inline int iwarp_sink_right(const struct fabric_ep *ep)
{
	return IBV_ACCESS_LOCAL_WRITE |
	       (ep->fabric->caps.read_sink_remote_write ? IBV_ACCESS_REMOTE_WRITE : 0);
}

/* How long private data is for a peer in this daemon. */
static inline uint16_t iwarp_padded(const struct fabric *f, size_t bytes, uint16_t pad_bytes)
{
	return f->caps.private_data_padded && bytes < pad_bytes ? pad_bytes : (uint16_t)bytes;
}

int iwarp_measure(struct fabric *f, struct fabric_done *done, struct fabric_costs *ret);
/* Whoever wanted to know does not any more. */
void iwarp_measure_forget(struct fabric *f);

/* progress() has something to do. */
void iwarp_wake(struct fabric *f);

#define IWARP_FABRIC_MAGIC UINT32_C(0x69776670)
#define IWARP_PD_MAGIC UINT32_C(0x69777064)
#define IWARP_MR_MAGIC UINT32_C(0x69776d72)
#define IWARP_MW_MAGIC UINT32_C(0x69776d77)
#define IWARP_EP_MAGIC UINT32_C(0x69776570)
#define IWARP_CONN_MAGIC UINT32_C(0x6977636e)
#define IWARP_LISTENER_MAGIC UINT32_C(0x69776c73)

#endif
