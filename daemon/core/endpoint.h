/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef XD_ENDPOINT_H
#define XD_ENDPOINT_H

/*
 * An endpoint: one connection to one peer, its QP, and what is on its queues. Life: RESOLVING (the
 * peer's name), CREATING (the QP), READY, CONNECTING, CONNECTED, ENDING (QP to the error state,
 * then destroyed, then what is left ended from our own table), ENDED; then it waits to be freed by
 * its owner.
 */

#include "daemon/core/pool.h"
#include "daemon/core/resolve.h"
#include "daemon/core/session.h"

#define XD_ENDPOINT_MAGIC 0x78656e64u
#define XD_DEPTH_DEFAULT 64
#define XD_DEPTH_MAX 4096

enum xd_endpoint_state {
	XD_EP_RESOLVING,
	XD_EP_CREATING,
	XD_EP_READY,
	XD_EP_CONNECTING,
	XD_EP_CONNECTED,
	XD_EP_ENDING,
	XD_EP_ENDED,
};

/* Events that the client has not read yet: one pending state, never a queue that a peer can
 * lengthen. */
#define XD_EV_READY 0x1u
#define XD_EV_CONNECTED 0x2u
#define XD_EV_DISCONNECTED 0x4u

struct xd_request;
struct xd_window;

/* Slab rings of an endpoint: what WRITE and SEND take from, where READ and RECV arrive. */
enum xd_ring_kind { XD_RING_OUT, XD_RING_IN, XD_RING_RECV, XD_RINGS };

/* What a transfer may have to wait for, besides its turn. */
enum xd_want {
	XD_WANT_ROOM, /* on the queue, or a registration */
	XD_WANT_WINDOW,
	XD_WANT_OUT, /* a place in that ring */
	XD_WANT_IN,
	XD_WANTS,
};

/* What of it others wait for too; wait.h. */
enum xd_scarce {
	XD_SCARCE_NONE,
	XD_SCARCE_WINDOW,
	XD_SCARCE_MEMORY, /* a registration, a slab, or the right to pin memory */
};

/* A work request with the device: whose, and where in a ring its data is. */
struct xd_wqe {
	struct xd_transfer *transfer; /* NULL: it has ended otherwise */
	bool ours; /* a GRANT or REVOKE that the device knows nothing of, in its place in the order
		    */
	uint8_t ring; /* enum xd_ring_kind; XD_RINGS: not staged */
	uint64_t ring_offset, ring_end, bytes;
	uint64_t arrived, copied; /* of READ, RECV */
};

struct xd_endpoint {
	uint32_t magic;
	struct xd_session *session;
	struct xd_outnode out;
	uint32_t number, qp_num;
	uint32_t fabric; /* index in the core */
	struct fabric_ep *fep;
	struct xd_pd *pd;
	bool own_pd;
	enum xd_endpoint_state state;
	struct xc_addr peer;
	char route[XD_TEXT_MAX];
	struct xd_request *request; /* it answers, until accepted */
	bool busy; /* a name, the making or the destruction of the QP is on its way */
	bool held; /* is being worked on: it does not end under that */

	/* what the client shall read */
	unsigned int events;
	int ready_status, connected_status, end_status;
	bool was_connected;
	char why[XD_TEXT_MAX];
	uint16_t private_data_bytes;
	uint8_t private_data[FABRIC_PRIVATE_DATA_MAX];

	/* send queue: transfers that wait in order, then the work requests at the device */
	struct xc_list waiting;
	/*
	 * Each work request, at index sequence % depth. Free-running: from head to done those that
	 * the device has completed and whose data is not in place yet, from done to tail those that
	 * it has.
	 */
	struct xd_wqe *sq;
	uint32_t sq_depth, sq_head, sq_done, sq_tail;
	uint32_t sq_bad; /* the first that failed */
	int sq_status;	 /* how; 0: none has */
	bool sq_silent;	 /* the last one posted is not signalled */
	struct xd_timer retry;
	struct xd_turn turn;
	enum xd_scarce scarce; /* what it waits for in that turn */
	/*
	 * Since when what waits for each of these cannot be posted though the queue is empty; 0 =
	 * it can.
	 */
	uint64_t blocked_ns[XD_WANTS];
	enum xd_want want;  /* what the head last waited for, */
	uint64_t waited_ns; /* and when */
	/* receive queue, in order */
	struct xd_wqe *rq;
	uint32_t rq_depth, rq_head, rq_done, rq_tail;
	uint64_t queue_bytes; /* counted against its user */

	/* staging */
	struct xd_ring rings[XD_RINGS];
	uint64_t refused_ns[XD_RINGS]; /* when one could not be made; 0 = never */
	uint64_t recv_stage_bytes;     /* asked for; 0 = default */
	struct xc_list staging_link;
	struct xc_list key_link; /* waits for a registration */
	bool gone;		 /* its QP is; what has completed may still wait for its data */
	bool flushed;		 /* and nothing waits any more */
	bool retiring, retire_again;
	/* copied grants */
	struct xc_list copies;	      /* grants with a copy under way, in order */
	struct xc_list idle_slabs[2]; /* of those for READ, for WRITE */
	/* what was written before the RECVs up to this one has gone out */
	uint32_t rq_synced;
	bool syncing;
	uint32_t sync_to, n_sync; /* up to which it goes out now, and grants that are left */

	struct xc_list grants;
	uint32_t n_grants;	/* those being killed counted in */
	struct xc_list links;	/* GRANTs whose tokens go into the next SEND */
	uint32_t n_links;
	bool link_lost; /* one of them was refused: that SEND does not go */
	uint32_t n_temporaries; /* transfers with keys of their own */
	uint32_t n_slabs;	/* those that come or go counted in */
	uint64_t progress_ns;  /* when something last completed */
	struct xd_timer timer; /* connecting: its time-out; connected: the progress timer */

	struct xd_call *new_call, *free_call;
	bool freeing;
	struct xc_list ending_link;
	struct fabric_done done;

	struct xd_resolve resolve;
	char require[FABRIC_NAME_MAX];
	struct xd_window *window_due; /* being made for the GRANT at the head */
};

/* A connection request that was not answered yet. */
struct xd_request {
	struct xd_outnode out;
	struct xd_session *session;
	struct xd_listener *listener;
	struct xc_list link; /* listener's */
	uint32_t number;
	bool told; /* the client has read it */
	struct fabric_conn *conn;
	uint32_t fabric;
	struct xd_endpoint *endpoint;
	struct xc_addr peer;
	int64_t peer_uid;
	uint16_t private_data_bytes;
	uint8_t private_data[FABRIC_PRIVATE_DATA_MAX];
};

/* Where one fabric listens for a listener. */
struct xd_ear {
	struct xd_listener *listener;
	uint32_t fabric;
	struct fabric_listener *fl;
	struct fabric_done done;
};

/* One address and port, on every fabric that has the address: peers may come by any of them. */
struct xd_listener {
	struct xd_session *session;
	uint32_t number;
	struct xd_ear ears[XD_FABRICS_MAX];
	uint32_t n_ears;
	uint32_t backlog, n_requests;
	struct xc_list requests;
	struct xc_addr at;
	/* while it is being made: the address and the place of the fabric that are tried, and how
	 * often a port was chosen that another fabric had in use */
	int address;
	uint32_t place, tries;
	int status; /* of the last refusal */
	bool ended; /* its session ended while it was being made */
	struct xd_call *call;
	struct xd_resolve resolve;
};

/*
 * Fabrics in the order in which they are asked: devices as they came, then the one that needs none.
 * place: 0 to n_fabrics - 1.
 */
uint32_t xd_fabric_at(const struct xd_core *core, uint32_t place);

static inline const struct fabric_ref *xd_ep_fabric(const struct xd_endpoint *ep)
{
	return &ep->session->core->fabrics[ep->fabric];
}

static inline const struct fabric_caps *xd_ep_caps(const struct xd_endpoint *ep)
{
	return &ep->session->core->caps[ep->fabric];
}

/* Its ring of RECVs was made, or not. */
void xd_endpoint_staged(struct xd_endpoint *ep, int status);
/* Begins the end (idempotent): stop posting, QP to ERR now; destroyed at the end of the turn.
 * status: for the Disconnected event. */
void xd_endpoint_end(struct xd_endpoint *ep, int status, const char *why);
/* At the end of a turn, when its completions have been taken: destroys the QP. */
void xd_endpoint_take_down(struct xd_endpoint *ep);
/* Frees it as soon as it is ENDED; call (may be NULL) is answered then. */
void xd_endpoint_free_soon(struct xd_endpoint *ep, struct xd_call *call);
/* An endpoint has lost a grant or a job: it may be complete now. */
void xd_endpoint_settle(struct xd_endpoint *ep);

void xd_listener_end(struct xd_listener *l);
/* A request of this number that can be answered, or NULL. */
struct xd_request *xd_request_get(const struct xd_session *s, uint64_t number);
void xd_request_free(struct xd_request *r);

/* Fabric events. */
bool xd_on_peer_allowed(void *listener_ctx, const struct xc_addr *peer);
void *xd_on_connect_request(void *listener_ctx, struct fabric_conn *conn,
			    const struct fabric_conn_info *info);
void xd_on_conn_gone(void *conn_ctx);
void xd_on_established(void *ep_ctx, int status, const void *private_data, size_t bytes);
void xd_on_disconnected(void *ep_ctx, int status);

/* Fills a pulled note, one event at a time. Returns true when the endpoint has no more. */
bool xd_endpoint_pull(struct xd_endpoint *ep, struct xd_out *ret);

#endif
