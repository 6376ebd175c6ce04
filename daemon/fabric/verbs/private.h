/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef VERBS_PRIVATE_H
#define VERBS_PRIVATE_H

/*
 * The objects of the verbs fabric and what its files call of each other.
 *
 *   host.c       what a host lacks for RDMA, in words
 *   discover.c   finding, examining and opening devices
 *   instance.c   an open device: progress, its events, its end
 *   address.c    addresses, and whose they are
 *   measure.c    what things cost
 *   memory.c     protection domains, registrations, windows
 *   life.c       the order of an endpoint's steps
 *   endpoint.c   an endpoint and its jobs
 *   steps.c      what the jobs do, on helpers
 *   connect.c    rdma_connect(), which can block for minutes
 *   cm.c         events of the connection manager; connection requests
 *   listen.c     listeners
 *   queue.c      posting and completions
 *
 * Two threads touch an object: the engine's, and the helper that runs the one job that the object
 * may have at a time. What the job works on is not touched by the engine until the job is done; the
 * exceptions are those that libibverbs allows for (ibv_post_send(3) and its kin).
 */

#include <limits.h>
#include <pthread.h>
#include <rdma/rdma_cma.h>

#include "common/list.h"
#include "daemon/fabric/address.h"
#include "daemon/fabric/region.h"
#include "daemon/fabric/saboteur.h"
#include "daemon/fabric/verbs/life.h"
#include "daemon/fabric/verbs/selftest.h"
#include "daemon/fabric/verbs/verbs.h"

/* Limits of the InfiniBand CM (IBTA 12.6 and 12.7), and of rdma_cm's header in a request. */
#define VERBS_CONNECT_BYTES 56u
#define VERBS_ACCEPT_BYTES 196u
#define VERBS_REJECT_BYTES 148u

#define VERBS_MAX_WR 16384u
#define VERBS_RD_ATOMIC_MAX 16u
#define VERBS_ADDRESSES_MAX 32

/* What an rdma_cm_id's context points to, so that an event finds its object. */
enum verbs_target_kind {
	VERBS_TARGET_EP,
	VERBS_TARGET_CONN,
	VERBS_TARGET_LISTENER,
	VERBS_TARGET_ANCHOR,
};

struct verbs_target {
	enum verbs_target_kind kind;
};

/* What is kept for the next daemon. */
struct verbs_keep {
	char state_dir[PATH_MAX]; /* "": it is not */
	struct verbs_identity identity;
	struct verbs_findings findings;
};

/* ---- the instance */

struct fabric {
	uint32_t magic;
	struct xd_engine_ref engine;
	struct fabric_events events;
	struct fabric_caps caps;
	struct verbs_facts facts;
	struct verbs_keep keep;
	bool honours_iova;

	struct ibv_context *verbs; /* librdmacm's, which keeps it open for good */
	struct ibv_comp_channel *channel;
	struct rdma_event_channel *cm;
	struct ibv_cq *ballast; /* see instance.c */
	int epoll_fd;
	bool iwarp, infiniband; /* else RoCE */
	uint8_t port;           /* of the anchor's address */
	uint8_t rd_atomic;      /* READs that a QP may have under way, each way */
	struct xc_addr address; /* one of its own */
	/* An id bound to an address of the device, which hears of the device's removal. */
	struct rdma_cm_id *anchor;
	struct verbs_target anchor_target;

	uint32_t refs;    /* open, and each object or job that outlives what the user holds */
	uint32_t objects; /* that the user holds: for close */
	_Atomic bool lost; /* jobs look at it, too */
	bool closed;
	bool kicked, in_progress, measuring;
	struct xc_list eps;
	struct xc_list listeners;
	struct xc_list conns;
	struct xc_list asks;  /* conns that the user was not told of yet */
	struct xc_list ready; /* endpoints whose CQ may hold something */
	struct xc_list news;  /* endpoints that have something to say */
	uint64_t turn;
};

/* What was found out of a device, on a helper. */
struct verbs_prepared {
	struct ibv_context *verbs;
	struct xc_addr address;
	struct fabric_caps caps; /* what the verdict does not set */
	struct verbs_claims claims;
	struct verbs_keep keep;
	uint8_t port;
	uint8_t rd_atomic;
	bool iwarp, infiniband;
};

/* Blocks. 0 or -errno. */
int verbs_open(const struct verbs_prepared *p, struct fabric **ret);
/* Hands it over to the engine's thread. */
void verbs_start(struct fabric *f, const struct xd_engine_ref *engine,
		 const struct fabric_events *events);
void verbs_close(struct fabric *f);
/* progress() has something to do. */
void verbs_wake(struct fabric *f);
static inline void verbs_ref(struct fabric *f)
{
	f->refs++;
}
void verbs_unref(struct fabric *f);
/* The device is gone: all of its endpoints end. */
void verbs_lost(struct fabric *f, const char *how);

int verbs_measure(struct fabric *f, struct fabric_done *done, struct fabric_costs *ret);

/* ---- addresses */

/* Is it an address of this device? Short, but system calls. */
bool verbs_owns(struct ibv_context *verbs, struct rdma_event_channel *cm, const struct xc_addr *a);
/* The addresses of one family, or (family 0) of both, of this device. How many, or -errno. */
int verbs_addresses(struct ibv_context *verbs, struct rdma_event_channel *cm, uint8_t family,
		    struct xc_addr *ret, int max);
int verbs_route(struct fabric *f, const struct xc_addr *dst, char *ret_why, size_t size);

/* ---- memory */

struct fabric_pd {
	uint32_t magic;
	struct fabric *fabric;
	struct ibv_pd *pd;
	uint32_t owner;   /* of its jobs */
	uint32_t objects; /* that live in it */
};

int verbs_pd_alloc(struct fabric *f, uint32_t owner, struct fabric_pd **ret);
void verbs_pd_free(struct fabric_pd *pd);
int verbs_mr_reg(struct fabric_pd *pd, struct fabric_region *region, uint64_t offset,
		 uint64_t length, uint64_t iova, int access, struct fabric_done *done,
		 struct ibv_mr **ret_mr);
int verbs_mr_dereg(struct ibv_mr *mr, struct fabric_done *done);
int verbs_mw_alloc(struct fabric_pd *pd, struct fabric_done *done, struct ibv_mw **ret_mw);
int verbs_mw_dealloc(struct ibv_mw *mw, struct fabric_done *done);
/* Puts the device's own objects behind those that the user holds into a copy of his BIND_MW. */
void verbs_bind_to_device(struct ibv_send_wr *wr);

/* ---- endpoints */

/* A call of rdma_connect() that can be cut short. */
struct verbs_patience {
	pthread_mutex_t lock;
	pthread_t thread;
	bool inside, over;
};

struct fabric_ep {
	uint32_t magic;
	struct verbs_target target;
	struct fabric *fabric;
	struct fabric_pd *pd;
	void *ctx;
	struct fabric_ep_attr attr;
	struct verbs_life life;
	struct xd_job job;
	int status; /* of the job */
	/* what the job wants to know of `life`, which moves on meanwhile */
	enum verbs_step step;
	bool orderly, linked, half, stopped;

	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct rdma_cm_id *id;
	uint32_t cq_size;
	bool retried; /* its last look at the CQ came after arming it */
	uint64_t turn;
	uint32_t taken; /* completions in that turn */

	struct fabric_done *done; /* of create, then of destroy */
	struct fabric_ep **ret;

	/* for the steps */
	struct xc_addr dst;
	uint8_t initiator_depth, responder_resources;
	uint8_t sent[VERBS_ACCEPT_BYTES]; /* private data */
	uint8_t sent_bytes;
	struct verbs_patience patience;
	struct xd_timer hurry;

	uint8_t heard[FABRIC_PRIVATE_DATA_MAX];
	uint16_t heard_bytes;
	struct xc_list all, ready, news;
};

int verbs_ep_create(struct fabric *f, const struct fabric_ep_attr *attr, struct fabric_done *done,
		    struct fabric_ep **ret);
int verbs_ep_connect(struct fabric_ep *ep, const struct xc_addr *dst, const void *private_data,
		     size_t bytes);
int verbs_ep_accept(struct fabric_ep *ep, struct fabric_conn *conn, const void *private_data,
		    size_t bytes);
void verbs_ep_disconnect(struct fabric_ep *ep);
void verbs_ep_error(struct fabric_ep *ep);
int verbs_ep_destroy(struct fabric_ep *ep, struct fabric_done *done);
/* Its life has moved: starts the step that is due, and queues what is to be said. */
void verbs_ep_advance(struct fabric_ep *ep);
/* Says it; the user may destroy ep meanwhile, which frees it later. */
void verbs_ep_tell(struct fabric_ep *ep);
/* Its CQ may hold something. */
void verbs_ep_ready(struct fabric_ep *ep);

/* Does ep->step, on a helper. 0 or a negative status. */
int verbs_step(struct fabric_ep *ep);

void verbs_patience_init(struct verbs_patience *p);
void verbs_patience_done(struct verbs_patience *p);
/* rdma_connect(); 0, or -errno, or -ECANCELED: it was cut short. */
int verbs_patient_connect(struct verbs_patience *p, struct rdma_cm_id *id,
			  struct rdma_conn_param *param);
/*
 * Ends that call, which may have begun or not. Must be repeated until it has returned: a signal
 * that comes right before the thread goes to sleep is lost.
 */
void verbs_patience_end(struct verbs_patience *p);

/* ---- connections */

struct fabric_conn {
	uint32_t magic;
	struct verbs_target target;
	struct fabric *fabric;
	struct rdma_cm_id *id;
	struct fabric_listener *listener; /* until the user was asked */
	void *ctx;
	bool asking, asked, answered;
	uint8_t initiator_depth, responder_resources;
	struct xd_job job; /* reject, and destroy the id */
	bool reject;
	struct xc_list all, ask;
	uint16_t bytes;
	uint8_t private_data[FABRIC_PRIVATE_DATA_MAX]; /* the peer's, then ours */
};

/* Takes events of the connection manager. True where there may be more. */
bool verbs_cm_events(struct fabric *f);
/* Asks listeners about the requests that came. */
void verbs_cm_ask(struct fabric *f);
/* It was answered, and its id is somebody else's. */
void verbs_conn_consume(struct fabric_conn *conn);
void verbs_conn_reject(struct fabric_conn *conn, const void *private_data, size_t bytes);
/* The device is lost: those that were asked about are gone, the others vanish. */
void verbs_conns_lost(struct fabric *f);
/* Rejects those that its user was not asked about. */
void verbs_conns_forget(struct fabric_listener *l);

struct fabric_listener {
	uint32_t magic;
	struct verbs_target target;
	struct fabric *fabric;
	void *ctx;
	struct xd_job job;
	struct xc_addr at;
	uint32_t owner;
	struct rdma_cm_id *ids[VERBS_ADDRESSES_MAX];
	int n;
	int status;
	bool listening, busy, freed;
	struct fabric_done *done;
	struct fabric_listener **ret;
	struct xc_addr *ret_at;
	struct xc_list all;
};

int verbs_listen(struct fabric *f, const struct xc_addr *at, uint32_t owner, void *ctx,
		 struct fabric_done *done, struct fabric_listener **ret, struct xc_addr *ret_at);
void verbs_listener_free(struct fabric_listener *l);
/* The device is lost: the kernel waits until its ids are gone. */
void verbs_listeners_lost(struct fabric *f);

/* ---- queues */

int verbs_post_send(struct fabric_ep *ep, struct ibv_send_wr *wr, struct ibv_send_wr **bad_wr);
int verbs_post_recv(struct fabric_ep *ep, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad_wr);
int verbs_poll(struct fabric *f, int n, struct ibv_wc *wc);
/* Takes events of completion. True where there may be more. */
bool verbs_cq_events(struct fabric *f);

/* ---- the host */

/* What a host offers, as far as it can be seen without opening a device. */
struct verbs_host {
	int devices;            /* that the kernel has */
	bool dev;               /* there is a /dev/infiniband */
	int cm_error;           /* opening /dev/infiniband/rdma_cm: 0 or an errno */
	int device_error;       /* opening a device: 0 where one can be, else an errno */
	uint64_t memlock_bytes; /* RLIMIT_MEMLOCK; UINT64_MAX = none, or it does not apply */
};

struct verbs_remark {
	bool refuses; /* no device can be used */
	enum xd_priority priority;
	char text[320]; /* "" = nothing to say */
};

void verbs_host_look(const char *sys, const char *dev, struct verbs_host *ret);
/* Pure. wanted_bytes: what clients may pin. */
void verbs_host_remark(const struct verbs_host *host, uint64_t wanted_bytes,
		       struct verbs_remark *ret);

#define VERBS_FABRIC_MAGIC UINT32_C(0x76726266)
#define VERBS_PD_MAGIC UINT32_C(0x76727064)
#define VERBS_MR_MAGIC UINT32_C(0x76726d72)
#define VERBS_MW_MAGIC UINT32_C(0x76726d77)
#define VERBS_EP_MAGIC UINT32_C(0x76726570)
#define VERBS_CONN_MAGIC UINT32_C(0x7672636e)
#define VERBS_LISTENER_MAGIC UINT32_C(0x76726c73)

#endif
