/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef FABRIC_H
#define FABRIC_H

/*
 * What moves bytes. The interface is verbs-shaped on purpose (struct ibv_send_wr, ibv_recv_wr,
 * ibv_wc, ibv_mr, ibv_mw as in ibv_post_send(3) and its kin): the vocabulary of the field, and a
 * verbs fabric is nearly a pass-through. Policy (daemon/core) reaches devices, sockets and client
 * memory through this table and through nothing else.
 *
 * Rules for both sides
 * - One thread: all calls and all events on the engine's thread. Events and completions are
 *   delivered only from inside progress() and poll(): no call re-enters its caller.
 * - A call that may block takes a struct fabric_done: it returns 0 (done, `fn` will not be called),
 *   -EINPROGRESS (`fn` will be called later, from progress() or from a job's `done`), or another
 *   negative errno (failed, `fn` will not be called). Results are valid only after success. The
 *   caller keeps the fabric_done and all ret_… places alive until then.
 * - Addresses in SGEs, bind_info and work requests are in an MR's own address space, whose first
 *   byte lies at ibv_mr.addr as mr_reg gave it back: the iova that was asked for, where the device
 *   honours one.
 * - Teardown of an endpoint, in this order: ep_error (stop, flush), ep_destroy, then its windows,
 *   then MRs, then its protection domain, then regions. After ep_destroy is done no completion or
 *   event of the endpoint comes, and nothing touches memory for it.
 * - ep_error and ep_disconnect may be called while ep_connect or ep_accept goes on, and while
 *   either of the two is itself on its way: the fabric puts them in order.
 */

#include <errno.h>
#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/addr.h"
#include "daemon/engine.h"

struct fabric;	  /* one open instance */
struct fabric_pd; /* protection domain: keys of one are unknown to endpoints of another */
struct fabric_ep; /* a QP and its connection */
struct fabric_listener;
struct fabric_conn;   /* a connection request that was not answered yet */
struct fabric_region; /* client memory mapped by the daemon */

#define FABRIC_PRIVATE_DATA_MAX 256
#define FABRIC_NAME_MAX 64
/* What is short where short_read_in_page is set, and the pages that count there. */
#define FABRIC_SHORT_BYTES 32
#define FABRIC_PAGE_BYTES 4096
/* No fabric takes more inline data, or makes a key over more ranges. */
#define FABRIC_INLINE_MAX 256
#define FABRIC_RANGES_MAX 256
/* All that an instance may take to find out its costs. */
#define FABRIC_MEASURE_MS 200

enum fabric_kind { FABRIC_IWARP_SOFT, FABRIC_IWARP, FABRIC_ROCE, FABRIC_IB };

/*
 * What can be exposed to a peer, and as what: decided by what the device was seen to enforce (a
 * device is tested, not trusted). Each is safe where the one before is not.
 */
enum fabric_keys {
	/* A type-2 window per grant, bound to the QP: bounds, rights and QP hold. */
	FABRIC_KEYS_WINDOW,
	/*
	 * An MR of exactly the granted bytes per grant: bounds, rights and protection domains hold,
	 * and so does deregistration. An MR says nothing of QPs, so an endpoint has a protection
	 * domain of its own: in a shared one peer B could use peer A's key.
	 */
	FABRIC_KEYS_MR,
	/*
	 * Rights or deregistration do not hold: no client memory is ever registered. Data goes
	 * through slabs of one endpoint and one direction; a grant is a copy.
	 */
	FABRIC_KEYS_SLAB,
};

/* One line of the self-test of a device: for tables. Strings live as long as the instance. */
struct fabric_fact {
	const char *question; /* "window_bounds" */
	const char *asked;    /* "READ past the bounds of a type-2 window" */
	const char *claimed;  /* what the device's attributes, or the specification, say */
	const char *seen;
	const char *consequence; /* "" = none */
};

/*
 * What things cost in an instance, in ns, for the choice between ways that all work: only their
 * order matters. All 0: nothing is known, and the ways are taken in the order of the ladder.
 */
struct fabric_costs {
	uint32_t wr_ns;		   /* a work request, posted and completed */
	uint32_t reg_ns;	   /* a registration and its end; */
	uint32_t reg_page_ns;	   /* for each page of 4 KiB more */
	uint32_t ranges_ns;	   /* a key over many ranges and its end; */
	uint32_t range_ns;	   /* for each range more */
	uint32_t bind_ns;	   /* a window bound and invalidated */
	uint32_t copy_ns;	   /* a piece copied between client memory and a slab; */
	uint32_t copy_kib_ns;	   /* for each KiB more, of memory in the cache; */
	uint32_t copy_cold_kib_ns; /* of memory that is not */
};

/* What an instance can do and does enforce, as measured. Constant after open, but for the costs. */
struct fabric_caps {
	char name[FABRIC_NAME_MAX];   /* "iwarp", or the device's */
	char driver[FABRIC_NAME_MAX]; /* the kernel's, "" = none */
	enum fabric_kind kind;
	enum fabric_keys keys;
	uint32_t max_sge;    /* of a SEND or WRITE */
	uint32_t max_sge_rd; /* of a READ */
	uint32_t max_recv_sge;
	uint32_t max_send_wr; /* of one endpoint */
	uint32_t max_recv_wr;
	uint64_t max_message_bytes; /* of one work request */
	/* most bytes of a SEND or WRITE with IBV_SEND_INLINE, at most FABRIC_INLINE_MAX; 0: none */
	uint32_t max_inline;
	/* most ranges of one key (mr_reg_ranges), at most FABRIC_RANGES_MAX; 0: there are no such
	 */
	uint32_t max_ranges;
	uint16_t private_connect_bytes, private_accept_bytes, private_reject_bytes;
	/* mr_reg pins memory, and is charged and put off until it is needed; else it is free */
	bool pins;
	bool remote_invalidate; /* SEND_WITH_INV kills a window, and the receiver is told which */
	bool immediate;		/* WITH_IMM completes */
	/* the local side of a READ must be remotely writable (iWARP) */
	bool read_sink_remote_write;
	/*
	 * a READ of at most FABRIC_SHORT_BYTES that crosses the end of a page at the peer may bring
	 * wrong bytes, and success (siw): cut there. Of a WRITE or SEND the same holds at its
	 * source, which is always a slab then.
	 */
	bool short_read_in_page;
	/* a SEND that finds no RECV waits, then fails; else the connection ends, and it may succeed
	 */
	bool receiver_not_ready;
	/* a WRITE or SEND that succeeds has been placed; else a refusal may come later, as an end
	 */
	bool acknowledged;
	/* every work request must be signalled */
	bool signal_all;
	/* peers hear private data padded with zeros to some length */
	bool private_data_padded;
	/* a request whose peer gives up is taken back (conn_gone); else its answer finds out */
	bool conn_gone;
	struct fabric_costs costs; /* as found out last */
	const struct fabric_fact *facts;
	size_t n_facts;
};

/* A part of a region. */
struct fabric_range {
	struct fabric_region *region;
	uint64_t offset, length; /* length not 0 */
};

/* Grants show a copy of the memory. */
static inline bool fabric_snapshots(const struct fabric_caps *caps)
{
	return caps->keys == FABRIC_KEYS_SLAB;
}

struct fabric_done {
	void (*fn)(struct fabric_done *done, int status);
};

/* A connection request as it arrives. Valid during the event only. */
struct fabric_conn_info {
	struct xc_addr peer;
	int64_t peer_uid; /* owner of the peer's pd where it is on this host and known, else -1 */
	const void *private_data;
	size_t private_data_bytes;
};

/*
 * What a fabric tells its user. `ctx` is what the user gave with the object. status is 0, a
 * negative errno or -XP_E_….
 */
struct fabric_events {
	/*
	 * May this host connect to that listener? Asked before anything is allocated or received
	 * for it, where the fabric hears of it that early. Where not, connect_request says no.
	 * NULL: all may.
	 */
	bool (*peer_allowed)(void *listener_ctx, const struct xc_addr *peer);
	/*
	 * A peer wants to connect. The user answers, now or later, with accept or reject, exactly
	 * once, or hears conn_gone; it returns the ctx that conn_gone will carry. Where it returns
	 * NULL the fabric itself rejects (backlog, limits).
	 */
	void *(*connect_request)(void *listener_ctx, struct fabric_conn *conn,
				 const struct fabric_conn_info *info);
	/* The peer gave up before it was answered. The conn is no more. */
	void (*conn_gone)(void *conn_ctx);
	/*
	 * Ends ep_connect and ep_accept: 0, or -ECONNREFUSED, -XP_E_REJECTED, -XP_E_BACKLOG,
	 * -ETIMEDOUT, -XP_E_PEER_GONE, -ECONNABORTED (ep_error or ep_disconnect was called here).
	 * After a failure the endpoint can only be destroyed; what was posted has flushed.
	 */
	void (*established)(void *ep_ctx, int status, const void *private_data,
			    size_t private_data_bytes);
	/*
	 * The connection ended: 0 where ep_disconnect or ep_error was called here, else why. Once,
	 * after established(0).
	 */
	void (*disconnected)(void *ep_ctx, int status);
	/* Memory of this region vanished under an access (SIGBUS): its owner must end. */
	void (*region_fault)(void *region_ctx);
};

struct fabric_ep_attr {
	struct fabric_pd *pd;
	uint32_t max_send_wr, max_recv_wr; /* at most the caps' */
	uint32_t max_send_sge, max_recv_sge;
	void *ctx; /* for events */
	/* chosen by the user, unique in the instance; comes back in ibv_wc.qp_num */
	uint32_t qp_num;
};

struct fabric_ops {
	const char *name; /* "iwarp", "verbs" */

	void (*close)(struct fabric *f); /* all objects are gone */
	const struct fabric_caps *(*caps)(const struct fabric *f);

	/*
	 * An epoll descriptor that is readable when progress() has something to do, or -1. The
	 * fabric's.
	 */
	int (*fd)(const struct fabric *f);
	/*
	 * Moves bytes and delivers events, for about budget_bytes of copying at most. Returns true
	 * where it wants to be called again on the next turn without sleeping.
	 */
	bool (*progress)(struct fabric *f, uint64_t budget_bytes);
	/*
	 * Takes up to n completions. Those of one endpoint's send queue come in order, and so do
	 * those of its receive queue.
	 */
	int (*poll)(struct fabric *f, int n, struct ibv_wc *wc);

	/*
	 * Can this instance carry a connection to dst? 0, or -ENETUNREACH, -EADDRNOTAVAIL, …;
	 * ret_why (size bytes) gets a sentence either way. Does not block.
	 */
	int (*route)(struct fabric *f, const struct xc_addr *dst, char *ret_why, size_t size);

	/*
	 * ---- memory. region_map, slab_map and region_unmap block: they are called on a helper
	 * thread, and touch no instance.
	 */

	/*
	 * Maps a client's memory file and seals it (the protocol of daemon/fabric/region.h). Takes
	 * the descriptor in every case but does not close it (the caller does, on a closer thread).
	 * ctx is for region_fault. ret_why: a sentence on failure. 0, -XP_E_BUFFER_UNFIT,
	 * -XP_E_BUFFER_SEALED, -ENOMEM.
	 */
	int (*region_map)(int fd, uint64_t size_bytes, void *ctx, struct fabric_region **ret,
			  char *ret_why, size_t size);
	/*
	 * Memory of the daemon's own, zeroed, to register as a region and to reach at *ret_memory
	 * (page-aligned). No copy of it faults. 0 or -ENOMEM.
	 */
	int (*slab_map)(uint64_t size_bytes, struct fabric_region **ret, void **ret_memory);
	void (*region_unmap)(struct fabric_region *region);
	/*
	 * Copies between client memory and the daemon's own (`to_region` says which way), at most
	 * 256 KiB a call, under the fault guard. 0, or -XP_E_BUFFER_FAULT (region_fault is not
	 * called: the caller knows).
	 */
	int (*copy)(struct fabric_region *region, uint64_t offset, void *memory, size_t size,
		    bool to_region);

	/* owner: fairness class, the uid that pays. Does not block for longer than a command to the
	 * device takes. */
	int (*pd_alloc)(struct fabric *f, uint32_t owner, struct fabric_pd **ret);
	void (*pd_free)(struct fabric_pd *pd); /* empty */

	/*
	 * Registers [offset, offset + length) of a region, to be addressed from iova on if the
	 * device can (its offset within a page must be the region's). access:
	 * IBV_ACCESS_LOCAL_WRITE, REMOTE_READ, REMOTE_WRITE, MW_BIND. ret_mr: lkey, rkey, length,
	 * addr (see the rules above; where the device honours no iova it is an address of the
	 * daemon's). -ENOMEM: the limit on pinned memory, or the device's on MRs.
	 */
	int (*mr_reg)(struct fabric_pd *pd, struct fabric_region *region, uint64_t offset,
		      uint64_t length, uint64_t iova, int access, struct fabric_done *done,
		      struct ibv_mr **ret_mr);
	/*
	 * One key over n ranges, in order, as if they lay side by side from iova on, which may be
	 * any: where caps.max_ranges is not 0, else it may be NULL, or says -EOPNOTSUPP. `ranges`
	 * is copied before the call returns; they may overlap, and be of several regions. Otherwise
	 * as mr_reg; ended by mr_dereg.
	 */
	int (*mr_reg_ranges)(struct fabric_pd *pd, const struct fabric_range *ranges, uint32_t n,
			     uint64_t iova, int access, struct fabric_done *done,
			     struct ibv_mr **ret_mr);
	/* Afterwards its keys are dead. -EBUSY while a window is bound to it. */
	int (*mr_dereg)(struct ibv_mr *mr, struct fabric_done *done);

	/*
	 * Type-2 windows (FABRIC_KEYS_WINDOW). Bound with IBV_WR_BIND_MW and killed with
	 * IBV_WR_LOCAL_INV through post_send; a bind takes the key ibv_inc_rkey(mw->rkey) and the
	 * caller stores it in mw->rkey when it completes. mw_dealloc kills a bound window at once;
	 * a LOCAL_INV of it that is on the queue by then should succeed (one that fails ends the
	 * connection).
	 */
	int (*mw_alloc)(struct fabric_pd *pd, struct fabric_done *done, struct ibv_mw **ret_mw);
	int (*mw_dealloc)(struct ibv_mw *mw, struct fabric_done *done);

	/* ---- endpoints */

	int (*ep_create)(struct fabric *f, const struct fabric_ep_attr *attr,
			 struct fabric_done *done, struct fabric_ep **ret);
	/* 0, then `established` tells; or -errno: never started. */
	int (*ep_connect)(struct fabric_ep *ep, const struct xc_addr *dst, const void *private_data,
			  size_t bytes);
	/*
	 * Consumes conn where it returns 0; then `established` tells. Where it fails conn stays the
	 * user's, to be rejected.
	 */
	int (*ep_accept)(struct fabric_ep *ep, struct fabric_conn *conn, const void *private_data,
			 size_t bytes);
	void (*conn_reject)(struct fabric_conn *conn, const void *private_data, size_t bytes);
	/* Ends the connection in order: both sides flush. Harmless when there is none. */
	void (*ep_disconnect)(struct fabric_ep *ep);
	/*
	 * To the error state at once: nothing more is started, all that is posted flushes (poll
	 * reports it). Harmless twice.
	 */
	void (*ep_error)(struct fabric_ep *ep);
	int (*ep_destroy)(struct fabric_ep *ep, struct fabric_done *done);

	/*
	 * Chains of work requests, copied before the call returns, as ibv_post_send(3) and
	 * ibv_post_recv(3). 0 or a negative errno, then *bad_wr is the first that was not posted:
	 * -EOPNOTSUPP where the caps do not promise it. Sends need a connection; RECVs do not.
	 * After it has ended both are taken, and flush, or are refused with -ENOTCONN. Flags that
	 * the fabric reads it may change.
	 * IBV_SEND_INLINE: the bytes lie at sge.addr in the caller's own memory, lkey means
	 * nothing, and they are copied before the call returns; at most caps.max_inline in all, of
	 * a SEND or WRITE: else -EINVAL.
	 */
	int (*post_send)(struct fabric_ep *ep, struct ibv_send_wr *wr, struct ibv_send_wr **bad_wr);
	int (*post_recv)(struct fabric_ep *ep, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad_wr);

	/*
	 * backlog is the user's matter. `at`: port 0 chooses; ret_at: where. The any-address stands
	 * for all addresses that the instance has now. -EADDRINUSE, -EADDRNOTAVAIL: the address
	 * is none of this instance's.
	 */
	int (*listen)(struct fabric *f, const struct xc_addr *at, uint32_t owner, void *ctx,
		      struct fabric_done *done, struct fabric_listener **ret,
		      struct xc_addr *ret_at);
	/*
	 * Requests not yet answered are rejected by their owner beforehand, or stay to be answered
	 * later. No event of it comes afterwards.
	 */
	void (*listener_free)(struct fabric_listener *l);

	/*
	 * Finds out anew what things cost, within FABRIC_MEASURE_MS, and not on this thread where
	 * it takes longer than a turn may; transfers go on. The caps have it too, afterwards. One
	 * at a time: else -EBUSY. After close() `done` is not called any more. NULL: what the caps
	 * say is all there is.
	 */
	int (*measure)(struct fabric *f, struct fabric_done *done, struct fabric_costs *ret);
};

/* An instance and its table, as the core holds it. */
struct fabric_ref {
	struct fabric *fabric;
	const struct fabric_ops *ops;
};

/*
 * For fabrics: a work request may go inline, or does not ask for it. carries: its operation can.
 * 0, -EOPNOTSUPP: nothing goes inline here; -EINVAL: it cannot, or not so much.
 */
static inline int fabric_check_inline(const struct fabric_caps *caps, const struct ibv_send_wr *wr,
				      bool carries)
{
	uint64_t bytes = 0;

	if (!(wr->send_flags & IBV_SEND_INLINE))
		return 0;
	if (!caps->max_inline)
		return -EOPNOTSUPP;
	for (int i = 0; i < wr->num_sge; i++)
		bytes += wr->sg_list[i].length;
	return carries && bytes <= caps->max_inline ? 0 : -EINVAL;
}

#endif
