/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef VERBS_SELFTEST_RIG_H
#define VERBS_SELFTEST_RIG_H

/*
 * What the questions of the self-test are put with: connections of a device to itself, memory whose
 * bytes tell who has been there, and waits that end.
 *
 * One side of a connection, the owner, has memory (`owned`) and makes keys to it; the other, the
 * peer, reaches for it with memory of its own (`held`). What an attempt came to is read from the
 * bytes, when the queue pairs are gone and nothing can arrive any more. A status alone proves
 * nothing: some devices report success and then disconnect, some report success for what they did
 * not do.
 *
 * All of it blocks. A call of the kernel that does not return is not bounded here: the whole test
 * runs on a helper thread that nobody waits for.
 */

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#include "common/addr.h"
#include "daemon/fabric/verbs/selftest.h"

/* The bytes of memory: readable, by whoever has a key; not to be seen; the peer's; written late. */
enum { ST_OPEN = 0xc3, ST_SECRET = 0x3c, ST_PEER = 0x5a, ST_LATE = 0x96 };

/*
 * Small questions play in the first 64 KiB. A key is made to the middle of it, off any page bound,
 * since a device might check whole pages.
 */
#define ST_SMALL_BYTES 65536u
#define ST_KEY_OFFSET 16640u
#define ST_KEY_BYTES 15872u
/* Questions about a running READ or WRITE need one that takes a while. */
#define ST_BIG_BYTES (8u << 20)

#define ST_MRS 8
#define ST_MWS 4
#define ST_LINKS 2
#define ST_DEPTH 16
/* Private data of each connection. Odd on purpose, and none of the sizes that devices pad to. */
#define ST_PRIVATE_BYTES 19

#define ST_FULL_ACCESS (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE)

/* What a wait comes to where no work request completed. */
#define ST_NOTHING (-1)
#define ST_REFUSED (-2) /* post_send said no */

struct st_side {
	struct rdma_cm_id *id;
	struct ibv_cq *cq;
	bool has_qp;
	bool ended; /* the connection has, as rdma_cm says */
};

struct st_link {
	struct st_side peer, owner;
	bool open;
	/* private data as each end heard it: bytes, and whether it begins with what was said */
	unsigned int request_heard, reply_heard;
	bool heard_right;
};

struct st {
	struct sockaddr_storage at;
	struct rdma_event_channel *peer_channel, *owner_channel;
	struct rdma_cm_id *listener; /* bound to the device, and so its context too */
	struct ibv_context *verbs;   /* of rdma_cm, with which queue pairs are made */
	struct verbs_claims claims;
	uint8_t rd_atomic;
	uint8_t word[16]; /* by which the listener knows our own requests */

	uint64_t deadline_ns;
	uint64_t wait_ns; /* for one thing to happen */

	struct ibv_pd *peer_pd, *owner_pd, *other_pd;
	uint8_t *owned, *held; /* ST_BIG_BYTES each */

	/* of the question that is being put; undone by st_reset */
	struct st_link link[ST_LINKS];
	struct ibv_mr *mr[ST_MRS];
	struct ibv_mw *mw[ST_MWS];
	/* made with each first link: all of the small memory */
	struct ibv_mr *held_mr, *open_mr;
};

/* 0 or negative errno. st_done undoes it in both cases. */
int st_init(struct st *t, struct ibv_context *verbs, const struct xc_addr *address,
	    unsigned int limit_ms);
void st_done(struct st *t);

uint64_t st_now_ns(void);
bool st_time_is_over(const struct st *t);
/* The end of a wait that begins now. */
uint64_t st_wait_end(const struct st *t);

/*
 * Connects; owner_pd is the owner's domain, send_sges what the peer's work requests may have. Link
 * 0 comes with held_mr and open_mr (in owner_pd). 0 or negative errno.
 */
int st_connect(struct st *t, unsigned int link, struct ibv_pd *owner_pd, uint32_t send_sges);
/* Ends the connections and windows: destroys queue pairs, so that nothing arrives any more. */
void st_disconnect(struct st *t);
/* And gives back all registrations. */
void st_reset(struct st *t);

/* A registration, which st_reset gives back. NULL: errno says why. */
struct ibv_mr *st_register(struct st *t, struct ibv_pd *pd, void *memory, size_t bytes, int access);
struct ibv_mr *st_register_at(struct st *t, struct ibv_pd *pd, void *memory, size_t bytes,
			      uint64_t iova, int access);
int st_deregister(struct st *t, struct ibv_mr *mr);
/* A type-2 window, which st_reset gives back. */
struct ibv_mw *st_window(struct st *t, struct ibv_pd *pd);
int st_window_free(struct st *t, struct ibv_mw *mw);

/*
 * Binds with the next key (then in mw->rkey), kills: local operations of an owner. The status
 * (enum ibv_wc_status), ST_NOTHING or ST_REFUSED.
 */
int st_bind(struct st *t, unsigned int link, struct ibv_mw *mw, struct ibv_mr *mr, uint64_t address,
	    uint64_t length, unsigned int access);
int st_local_inv(struct st *t, unsigned int link, uint32_t key);

/* One signalled work request of a side; the same results, and the completion in ret. */
int st_post(struct st *t, struct st_side *side, struct ibv_send_wr *wr, struct ibv_wc *ret);
int st_post_recv(struct st *t, struct st_side *side, void *memory, uint32_t bytes, uint32_t lkey);
/*
 * The next completion of a side, within a wait. The status or ST_NOTHING. What does not complete
 * when the connection has ended counts as flushed; ret is zeroed then.
 */
int st_wait(struct st *t, struct st_side *side, struct ibv_wc *ret);

/* A READ or WRITE between the beginning of `held` and the owner's memory. The same results. */
int st_read(struct st *t, unsigned int link, uint64_t address, uint32_t key, uint32_t bytes);
int st_write(struct st *t, unsigned int link, uint64_t address, uint32_t key, uint32_t bytes);

/* Memory as a question wants it: the key's bytes of `owned` open, all else secret. */
void st_fill(struct st *t);
bool st_all(const uint8_t *memory, uint8_t byte, size_t bytes);
bool st_any(const uint8_t *memory, uint8_t byte, size_t bytes);

static inline uint64_t st_address(const void *memory)
{
	return (uint64_t)(uintptr_t)memory;
}

/* The addresses of the key's first byte, in memory. */
static inline uint8_t *st_key_memory(const struct st *t)
{
	return t->owned + ST_KEY_OFFSET;
}

static inline struct verbs_finding st_found(enum verbs_answer answer, int status)
{
	return (struct verbs_finding){ answer, status };
}

/* ---- the questions, by theme. Each leaves the test as it found it, but for its memory. */

#define ST_LOST st_found(VERBS_LOST, ST_NOTHING)

/* selftest_windows.c */
struct verbs_finding st_ask_window_bind(struct st *t);
struct verbs_finding st_ask_window_bounds(struct st *t);
struct verbs_finding st_ask_window_rights(struct st *t);
struct verbs_finding st_ask_window_qp(struct st *t);
struct verbs_finding st_ask_window_dead(struct st *t);
struct verbs_finding st_ask_send_inv(struct st *t);
struct verbs_finding st_ask_send_inv_reported(struct st *t);

/* selftest_mrs.c */
struct verbs_finding st_ask_mr_remote_read(struct st *t);
struct verbs_finding st_ask_mr_remote_write(struct st *t);
struct verbs_finding st_ask_mr_bounds(struct st *t);
struct verbs_finding st_ask_pd_separation(struct st *t);
struct verbs_finding st_ask_pd_shared(struct st *t);
struct verbs_finding st_ask_dereg_dead(struct st *t);
struct verbs_finding st_ask_iova(struct st *t);
struct verbs_finding st_ask_read_sink(struct st *t);

/* selftest_running.c */
struct verbs_finding st_ask_dereg_under_read(struct st *t);
struct verbs_finding st_ask_dereg_under_write(struct st *t);
struct verbs_finding st_ask_window_inv_under_read(struct st *t);

/* selftest_ops.c */
struct verbs_finding st_ask_read_sges(struct st *t);
struct verbs_finding st_ask_read_more_sges(struct st *t);
struct verbs_finding st_ask_imm_send(struct st *t);
struct verbs_finding st_ask_imm_write(struct st *t);
struct verbs_finding st_ask_zero_read(struct st *t);
struct verbs_finding st_ask_zero_write(struct st *t);
struct verbs_finding st_ask_zero_send(struct st *t);
struct verbs_finding st_ask_unsignalled(struct st *t);
struct verbs_finding st_ask_rnr(struct st *t);
struct verbs_finding st_ask_acknowledged(struct st *t);
struct verbs_finding st_ask_private_data(struct st *t);

/* selftest_short.c */
struct verbs_finding st_ask_short_read(struct st *t);
struct verbs_finding st_ask_short_write(struct st *t);
struct verbs_finding st_ask_short_send(struct st *t);

/* ---- costs (selftest_costs.c) */

/* Takes FABRIC_MEASURE_MS at most, beside connecting. 0 or negative errno. */
int st_measure(struct st *t, bool windows, struct fabric_costs *ret);
/* Most bytes that a queue pair takes inline, at most FABRIC_INLINE_MAX. */
uint32_t st_max_inline(struct st *t, uint32_t max_wr);

/* ---- reaching for memory (selftest_attempt.c) */

struct st_attempt {
	uint64_t address;
	uint32_t key;
	uint32_t bytes;
	bool write;
	bool key_is_good; /* for its own bytes: what counts is what lies around them */
};

/*
 * Is an attempt refused that must be? Tried on a link, ends all links, then looks at the memory.
 * YES, NO, SILENT or LOST. The caller has shown beforehand that the link works, and the key where
 * it is alive: else anything would look like a refusal.
 */
struct verbs_finding st_forbidden(struct st *t, unsigned int link, const struct st_attempt *a);

/* Whether a READ of the key's bytes gives them, and whether a WRITE arrives there. */
bool st_read_works(struct st *t, unsigned int link, uint64_t address, uint32_t key);
bool st_write_works(struct st *t, unsigned int link, uint64_t address, uint32_t key);
/* The same by open_mr: does the link work at all? */
bool st_link_works(struct st *t, unsigned int link);

#endif
