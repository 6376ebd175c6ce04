/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef SIM_FAKE_PRIV_H
#define SIM_FAKE_PRIV_H

/*
 * Inside the fake fabric: fake_fabric.c (instance, events), fake_mem.c (memory, keys), fake_ep.c,
 * fake_queue.c.
 */

#include "common/list.h"
#include "tests/sim/fake_fabric.h"

enum fake_magic {
	FAKE_FABRIC = 0xfab0001,
	FAKE_PD,
	FAKE_MR,
	FAKE_MW,
	FAKE_EP,
	FAKE_LISTENER,
	FAKE_CONN,
	FAKE_REGION,
};

/*
 * The dead are kept for a long while, so that the use of one is seen for what it is; endpoints as
 * long as the instance.
 */
struct fake_object {
	struct xc_list link; /* of its kind, or of the dead */
	enum fake_magic magic;
	bool dead;
	struct fabric *f;
};

/* An answer that comes later. */
struct fake_later {
	struct xc_list link;
	uint64_t due;
	struct fabric_done *done;
	int status;
	void (*finish)(struct fake_later *l); /* what happens with it; before `done` */
	struct fake_object *object;
	void **ret;  /* the caller's place for the result */
	void *value;
};

enum fake_event_kind { FAKE_REQUEST, FAKE_GONE, FAKE_ESTABLISHED, FAKE_DISCONNECTED, FAKE_FAULT };

struct fake_event {
	struct xc_list link;
	enum fake_event_kind kind;
	uint64_t due;
	void *subject; /* events of one subject keep their order */
	int status;
	size_t bytes;
	uint8_t data[FABRIC_PRIVATE_DATA_MAX];
};

struct fabric {
	struct fake_object o;
	struct fake_options options;
	struct sim_rng rng;
	struct xd_engine_ref engine;
	const struct fabric_events *events;
	uint64_t turn, executed, pds_made;
	struct xc_list pds, mrs, mws, eps, listeners, conns, dead, dead_eps;
	uint32_t n_dead;
	struct xc_list laters, queue;
	uint32_t alive;
	uint16_t next_port;
	uint32_t refuse; /* registrations until one is refused; 0: by dice alone */
	bool refuse_late;
	bool lost, inside, any_killed, measuring;
};

struct fabric_region {
	enum fake_magic magic;
	int fd;
	uint8_t *base;
	uint64_t size;
	uint8_t *slab; /* owned, where it is the daemon's own memory */
	uint32_t owner; /* of a slab: whom it was mapped for */
	/* of a slab on a weak device: the one domain and direction it was ever exposed in */
	uint64_t pd_serial;
	int direction;
	void *ctx;
	uint32_t mrs;
	uint32_t fault_after; /* accesses until its memory vanishes; 0 = never */
	bool faulty, reported, dead;
	struct xc_list link;  /* of the dead */
};

struct fabric_pd {
	struct fake_object o;
	uint32_t owner, users; /* MRs, windows, endpoints */
	uint64_t serial;       /* never 0, never used again */
	uint32_t eps;          /* that it ever had */
};

struct fake_mr {
	struct fake_object o;
	struct ibv_mr mr;
	struct fabric_pd *pd;
	int access;
	uint32_t windows; /* bound to it */
	bool coming, going; /* a call is under way */
	uint32_t n_ranges;
	struct fabric_range ranges[];
};

struct fake_mw {
	struct fake_object o;
	struct ibv_mw mw;
	struct fabric_pd *pd;
	uint32_t key;       /* of the last bind that was done, or the first */
	uint32_t bound_key; /* 0 before the first bind */
	bool coming, going, live;
	struct fake_mr *mr;    /* while bound */
	struct fabric_ep *ep;  /* on which it was bound */
	uint64_t iova, length;
	int access;
};

struct fake_wr {
	struct xc_list link;
	uint64_t seq;
	struct ibv_send_wr wr; /* of a receive: wr_id only */
	struct fake_mw *mw;    /* BIND_MW */
	bool executed;
	uint64_t moved, total;
	/* a READ of a weak device's holds on to what it has begun to read */
	uint8_t *held;
	struct fabric_region *held_region;
	bool is_inline;
	uint8_t data[FABRIC_INLINE_MAX]; /* of one that is inline */
	int n_sge;
	struct ibv_sge sge[];
};

struct fake_cqe {
	struct xc_list link;
	struct ibv_wc wc;
	uint64_t seq;
};

struct fake_work {
	struct xc_list wrs;  /* posted and not retired, in order */
	struct xc_list cqes; /* not polled */
	uint64_t posted, retired;
};

enum fake_ep_state { FAKE_IDLE, FAKE_CONNECTING, FAKE_UP, FAKE_ERROR, FAKE_DESTROYING };

struct fabric_ep {
	struct fake_object o;
	struct fabric_ep_attr attr;
	enum fake_ep_state state;
	uint64_t tag;
	struct fabric_ep *peer;    /* while both live */
	struct fabric_conn *conn;  /* while a request of it is out */
	struct fake_work send, recv;
	bool told_up, told_down;   /* events queued */
	bool up_delivered;
	bool user_ended;           /* ep_error or ep_disconnect was called */
	bool user_error;
	bool killed; /* by its user, while it was connected and nothing was wrong with it */
	bool mute;                 /* reports no flushes */
	bool stalled;
	uint64_t stall_after, vanish_after; /* executed bytes and requests until then; 0 = never */
	uint32_t rnr;
	char excuse[64];
};

struct fabric_listener {
	struct fake_object o;
	struct xc_addr at;
	uint32_t owner;
	void *ctx;
	bool pending;
};

enum fake_conn_state { FAKE_CONN_OUT, FAKE_CONN_OFFERED, FAKE_CONN_ANSWERED, FAKE_CONN_ENDED };

struct fabric_conn {
	struct fake_object o;
	enum fake_conn_state state;
	struct fabric_ep *from;          /* NULL: gave up */
	struct fabric_listener *listener;
	void *ctx;
};

/* fake_fabric.c */
void fake_object_add(struct fabric *f, struct xc_list *list, struct fake_object *o,
		     enum fake_magic magic);
void fake_object_dead(struct fake_object *o);
void fake_object_use(const struct fake_object *o, enum fake_magic magic, const char *call);
bool fake_dice(struct fabric *f, uint32_t permille);
uint64_t fake_due(struct fabric *f);
/*
 * Ends a call that takes a struct fabric_done: now, or later where the dice (in 1,000) say so. What
 * it returns the call returns.
 */
int fake_answer(struct fake_later answer, uint32_t slow);
struct fake_event *fake_event(struct fabric *f, enum fake_event_kind kind, void *subject,
			      int status);
void fake_events_drop(struct fabric *f, void *subject);
/* Runs a call's body outside events: the user may call in, but not the fabric out of itself. */
bool fake_lost(const struct fabric *f);

/* fake_mem.c */
int fake_region_map(int fd, uint64_t size_bytes, void *ctx, struct fabric_region **ret,
		    char *ret_why, size_t size);
int fake_slab_map(uint64_t size_bytes, struct fabric_region **ret, void **ret_memory);
void fake_region_unmap(struct fabric_region *region);
int fake_copy(struct fabric_region *region, uint64_t offset, void *memory, size_t size,
	      bool to_region);
int fake_pd_alloc(struct fabric *f, uint32_t owner, struct fabric_pd **ret);
void fake_pd_free(struct fabric_pd *pd);
int fake_mr_reg(struct fabric_pd *pd, struct fabric_region *region, uint64_t offset,
		uint64_t length, uint64_t iova, int access, struct fabric_done *done,
		struct ibv_mr **ret_mr);
int fake_mr_reg_ranges(struct fabric_pd *pd, const struct fabric_range *ranges, uint32_t n,
		       uint64_t iova, int access, struct fabric_done *done, struct ibv_mr **ret_mr);
int fake_mr_dereg(struct ibv_mr *mr, struct fabric_done *done);
int fake_mw_alloc(struct fabric_pd *pd, struct fabric_done *done, struct ibv_mw **ret_mw);
int fake_mw_dealloc(struct ibv_mw *mw, struct fabric_done *done);
struct fake_mr *fake_mr_by_lkey(struct fabric *f, uint32_t lkey);
struct fake_mw *fake_mw_of(struct ibv_mw *mw);
void fake_mw_unbind(struct fake_mw *mw);
/*
 * Host memory behind a local piece, and how much of *bytes lies there; NULL: it faults. The key was
 * checked when it was posted.
 */
uint8_t *fake_local(struct fabric_ep *ep, const struct ibv_sge *sge, uint64_t at, uint64_t *bytes);
/* What a request of the peer's finds at `ep`: 0 and memory, or an enum ibv_wc_status. */
struct fake_place {
	uint8_t *memory;
	struct fabric_region *region;
	uint64_t offset; /* in the registration, or window */
	uint64_t bytes;  /* that lie there in one piece */
};
/* The whole of it is checked; the place is that of its byte `at`. */
int fake_remote(struct fabric_ep *ep, uint32_t rkey, uint64_t address, uint64_t length, int access,
		uint64_t at, struct fake_place *ret);
/* Rights and dead keys are not held. */
bool fake_weak(const struct fabric *f);
struct fake_mw *fake_mw_by_rkey(struct fabric_ep *ep, uint32_t rkey);
void fake_fault(struct fabric *f, struct fabric_region *region);

/* fake_ep.c */
int fake_route(struct fabric *f, const struct xc_addr *dst, char *ret_why, size_t size);
int fake_ep_create(struct fabric *f, const struct fabric_ep_attr *attr, struct fabric_done *done,
		   struct fabric_ep **ret);
int fake_ep_connect(struct fabric_ep *ep, const struct xc_addr *dst, const void *private_data,
		    size_t bytes);
int fake_ep_accept(struct fabric_ep *ep, struct fabric_conn *conn, const void *private_data,
		   size_t bytes);
void fake_conn_reject(struct fabric_conn *conn, const void *private_data, size_t bytes);
void fake_ep_disconnect(struct fabric_ep *ep);
void fake_ep_error(struct fabric_ep *ep);
int fake_ep_destroy(struct fabric_ep *ep, struct fabric_done *done);
int fake_listen(struct fabric *f, const struct xc_addr *at, uint32_t owner, void *ctx,
		struct fabric_done *done, struct fabric_listener **ret, struct xc_addr *ret_at);
void fake_listener_free(struct fabric_listener *l);
/* The connection breaks at this end for this reason; the other end sees its peer gone. */
void fake_ep_break(struct fabric_ep *ep, int status, const char *excuse);
void fake_excuse(struct fabric_ep *ep, const char *why);
void fake_deliver_request(struct fabric *f, struct fake_event *e);

/* fake_queue.c */
int fake_post_send(struct fabric_ep *ep, struct ibv_send_wr *wr, struct ibv_send_wr **bad_wr);
int fake_post_recv(struct fabric_ep *ep, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad_wr);
int fake_poll(struct fabric *f, int n, struct ibv_wc *wc);
/* One step of this endpoint's queues. True where something happened. */
bool fake_ep_step(struct fabric_ep *ep);
bool fake_ep_works(const struct fabric_ep *ep);
void fake_work_init(struct fake_work *w);
void fake_work_done(struct fake_work *w);
/* Is a request of this key posted, and not known by its user to have ended? */
bool fake_ep_uses(const struct fabric_ep *ep, uint32_t lkey);

#endif
