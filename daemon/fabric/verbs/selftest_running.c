/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include <pthread.h>
#include <sched.h>
#include <string.h>

#include "daemon/fabric/verbs/selftest_rig.h"

/*
 * Keys that are killed while the peer uses them. When dereg_mr, or the completion of LOCAL_INV, has
 * come back the memory is somebody else's: what is written there from then on must not reach the
 * peer, and what the peer writes must not appear there. siw holds on to what a READ has begun with,
 * and the READ goes on, over later bytes.
 */

/* READs or WRITEs of PIECE bytes each, enough to outlast the killing. */
#define CHAIN 6
#define PIECE (ST_BIG_BYTES - 64)
/*
 * The killing may come too late all the same, when the first of the chain has ended, and may have
 * fallen between two; then it is tried again.
 */
#define TRIES 20

struct running {
	struct ibv_mr *held;
	struct ibv_mr *owned; /* the key, or what is behind it */
	struct ibv_mw *mw;    /* NULL: the key is the registration's */
	bool write;
	bool refused;
	bool caught; /* in the middle of the first of the chain */
	int completed, failed;
	int status; /* of the first that failed */
};

static uint32_t key_of(const struct running *r)
{
	return r->mw ? r->mw->rkey : r->owned->rkey;
}

static bool prepare(struct st *t, struct running *r, bool window)
{
	int access = ST_FULL_ACCESS;

	if (st_connect(t, 0, t->owner_pd, 1))
		return false;
	if (window)
		access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND;
	memset(t->held, ST_PEER, ST_BIG_BYTES);
	memset(t->owned, ST_OPEN, ST_BIG_BYTES);
	r->held = st_register(t, t->peer_pd, t->held, ST_BIG_BYTES, ST_FULL_ACCESS);
	r->owned = st_register(t, t->owner_pd, t->owned, ST_BIG_BYTES, access);
	if (!r->held || !r->owned)
		return false;
	if (!window)
		return true;
	r->mw = st_window(t, t->owner_pd);
	return r->mw && st_bind(t, 0, r->mw, r->owned, st_address(t->owned), ST_BIG_BYTES,
				IBV_ACCESS_REMOTE_READ) == IBV_WC_SUCCESS;
}

/*
 * The chain, and behind it a READ by a key that stays alive: where that has completed all before it
 * was looked at by the owner's side too, which the completion of a WRITE does not say.
 */
static void post_chain(struct st *t, struct running *r)
{
	struct ibv_sge sge = { st_address(t->held), PIECE, r->held->lkey };
	struct ibv_sge last_sge = { st_address(t->held) + PIECE, 1, r->held->lkey };
	struct ibv_send_wr wr[CHAIN + 1], *bad;

	memset(wr, 0, sizeof(wr));
	for (int i = 0; i < CHAIN; i++) {
		wr[i].opcode = r->write ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_READ;
		wr[i].sg_list = &sge;
		wr[i].num_sge = 1;
		wr[i].send_flags = IBV_SEND_SIGNALED;
		wr[i].wr.rdma.remote_addr = st_address(t->owned);
		wr[i].wr.rdma.rkey = key_of(r);
		wr[i].next = &wr[i + 1];
	}
	wr[CHAIN].opcode = IBV_WR_RDMA_READ;
	wr[CHAIN].sg_list = &last_sge;
	wr[CHAIN].num_sge = 1;
	wr[CHAIN].send_flags = IBV_SEND_SIGNALED;
	wr[CHAIN].wr.rdma.remote_addr = st_address(t->owned);
	wr[CHAIN].wr.rdma.rkey = t->open_mr->rkey;
	r->refused = ibv_post_send(t->link[0].peer.id->qp, wr, &bad) != 0;
}

struct poster {
	struct st *t;
	struct running *r;
};

static void *poster_main(void *arg)
{
	const struct poster *p = arg;

	post_chain(p->t, p->r);
	return NULL;
}

/* Has a byte of those that are moved arrived, which the device writes? */
static bool arrived(const struct st *t, bool write, size_t at)
{
	const volatile uint8_t *sink = write ? t->owned : t->held;

	return sink[at] != (write ? ST_OPEN : ST_PEER);
}

/* Until the first has. */
static bool wait_running(struct st *t, bool write)
{
	const uint64_t end_ns = st_wait_end(t);

	while (!arrived(t, write, 0)) {
		if (st_now_ns() >= end_ns)
			return false;
		sched_yield();
	}
	return true;
}

static bool kill_key(struct st *t, struct running *r)
{
	if (r->mw)
		return st_local_inv(t, 0, r->mw->rkey) == IBV_WC_SUCCESS;
	return st_deregister(t, r->owned) == 0;
}

/*
 * Lets the peer begin, kills the key, writes what the peer must not see. On a thread of its own the
 * peer: a software device does the work inside the call that posts it.
 */
static struct verbs_finding begin_and_kill(struct st *t, struct running *r)
{
	struct poster poster = { t, r };
	struct verbs_finding f = st_found(VERBS_SILENT, ST_NOTHING);
	pthread_t thread;

	if (pthread_create(&thread, NULL, poster_main, &poster))
		return ST_LOST;
	if (wait_running(t, r->write))
		f.answer = kill_key(t, r) ? VERBS_YES : VERBS_LOST;
	r->caught = !arrived(t, r->write, PIECE - 1);
	/* Only now: what was read or written before is nobody's loss. */
	memset(t->owned, ST_LATE, ST_BIG_BYTES);
	pthread_join(thread, NULL);
	if (r->refused)
		f.answer = VERBS_LOST;
	return f;
}

static void count(struct running *r, const struct ibv_wc *wc)
{
	r->completed++;
	if (wc->status == IBV_WC_SUCCESS)
		return;
	if (!r->failed)
		r->status = (int)wc->status;
	r->failed++;
}

/* Until all has ended. False: a part of it never does. */
static bool drain(struct st *t, struct running *r)
{
	struct ibv_wc wc;

	while (r->completed <= CHAIN) {
		if (st_wait(t, &t->link[0].peer, &wc) == ST_NOTHING)
			return false;
		count(r, &wc);
	}
	return true;
}

/* *ret_again: it was not caught in the middle, which says nothing. */
static struct verbs_finding once(struct st *t, bool write, bool window, bool *ret_again)
{
	struct running r = { .write = write, .status = ST_NOTHING };
	struct verbs_finding f;
	bool all;

	*ret_again = false;
	if (!prepare(t, &r, window))
		return ST_LOST;
	f = begin_and_kill(t, &r);
	if (f.answer != VERBS_YES)
		return f;
	all = drain(t, &r);
	st_disconnect(t);
	if (write ? !st_all(t->owned, ST_LATE, ST_BIG_BYTES) : st_any(t->held, ST_LATE, PIECE))
		return st_found(VERBS_NO, r.status);
	if (!all)
		return st_found(VERBS_SILENT, ST_NOTHING);
	*ret_again = !r.caught || r.failed == 0;
	return st_found(*ret_again ? VERBS_LOST : VERBS_YES, r.status);
}

static struct verbs_finding under_load(struct st *t, bool write, bool window)
{
	struct verbs_finding f = ST_LOST;
	bool again = true;

	for (int i = 0; again && i < TRIES && !st_time_is_over(t); i++) {
		f = once(t, write, window, &again);
		st_reset(t);
	}
	return f;
}

struct verbs_finding st_ask_dereg_under_read(struct st *t)
{
	return under_load(t, false, false);
}

struct verbs_finding st_ask_dereg_under_write(struct st *t)
{
	return under_load(t, true, false);
}

struct verbs_finding st_ask_window_inv_under_read(struct st *t)
{
	return under_load(t, false, true);
}
