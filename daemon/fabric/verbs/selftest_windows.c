/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "common/checked.h"
#include "daemon/fabric/verbs/selftest_rig.h"

/*
 * What a type-2 window enforces. The registration behind it covers all of the small memory and has
 * no remote rights of its own: what a window does not keep from a peer, that exposes.
 */

#define READ_WRITE (IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE)

/* A connection (link 0) and a window of its owner, to the key's bytes. NULL: *ret_status why. */
static struct ibv_mw *bound_window(struct st *t, unsigned int access, int *ret_status)
{
	struct ibv_mr *mr;
	struct ibv_mw *mw;

	*ret_status = ST_NOTHING;
	if (st_connect(t, 0, t->owner_pd, 1))
		return NULL;
	mr = st_register(t, t->owner_pd, t->owned, ST_SMALL_BYTES,
			 IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND);
	mw = st_window(t, t->owner_pd);
	if (!mr || !mw)
		return NULL;
	*ret_status = st_bind(t, 0, mw, mr, st_address(st_key_memory(t)), ST_KEY_BYTES, access);
	return *ret_status == IBV_WC_SUCCESS ? mw : NULL;
}

/* The same, seen to work. */
static struct ibv_mw *working_window(struct st *t)
{
	int status;
	struct ibv_mw *mw = bound_window(t, READ_WRITE, &status);

	return mw && st_read_works(t, 0, st_address(st_key_memory(t)), mw->rkey) ? mw : NULL;
}

static struct st_attempt attempt(const struct st *t, uint32_t key, bool write)
{
	return (struct st_attempt){
		.address = st_address(st_key_memory(t)),
		.key = key,
		.bytes = ST_KEY_BYTES,
		.write = write,
	};
}

static struct verbs_finding forbidden(struct st *t, unsigned int link, uint32_t key, bool write)
{
	const struct st_attempt a = attempt(t, key, write);

	return st_forbidden(t, link, &a);
}

struct verbs_finding st_ask_window_bind(struct st *t)
{
	struct verbs_finding f;
	struct ibv_mw *mw;
	int status;

	mw = bound_window(t, READ_WRITE, &status);
	f = st_found(VERBS_NO, status);
	if (!t->open_mr)
		f = ST_LOST; /* not even a connection */
	else if (mw && st_read_works(t, 0, st_address(st_key_memory(t)), mw->rkey))
		f.answer = VERBS_YES;
	st_reset(t);
	return f;
}

/* ------------------------------------------------------------------ bounds and rights */

static struct verbs_finding past_bounds(struct st *t, int64_t offset, uint32_t bytes, bool write)
{
	struct ibv_mw *mw = working_window(t);
	struct st_attempt a;

	if (!mw)
		return ST_LOST;
	a = attempt(t, mw->rkey, write);
	a.key_is_good = true;
	a.address += (uint64_t)offset;
	a.bytes = bytes;
	return st_forbidden(t, 0, &a);
}

struct verbs_finding st_ask_window_bounds(struct st *t)
{
	/* All within the registration behind the window. */
	static const struct {
		int64_t offset;
		uint32_t bytes;
		bool write;
	} cases[] = {
		{ ST_KEY_BYTES - 16, 17, false },
		{ -1, 17, false },
		{ ST_KEY_BYTES, 64, false },
		{ ST_KEY_BYTES + 8192, 64, false },
		{ -8192, 64, false },
		{ ST_KEY_BYTES - 16, 17, true },
		{ -64, 64, true },
	};
	struct verbs_finding f = ST_LOST;

	for (size_t i = 0; i < XC_ARRAY_SIZE(cases); i++) {
		f = past_bounds(t, cases[i].offset, cases[i].bytes, cases[i].write);
		st_reset(t);
		if (f.answer != VERBS_YES)
			break;
	}
	return f;
}

static struct verbs_finding without_right(struct st *t, bool write)
{
	int status;
	struct ibv_mw *mw =
		bound_window(t, write ? IBV_ACCESS_REMOTE_READ : IBV_ACCESS_REMOTE_WRITE, &status);
	const uint64_t address = st_address(st_key_memory(t));

	if (!mw)
		return ST_LOST;
	if (!(write ? st_read_works(t, 0, address, mw->rkey)
		    : st_write_works(t, 0, address, mw->rkey)))
		return ST_LOST;
	return forbidden(t, 0, mw->rkey, write);
}

struct verbs_finding st_ask_window_rights(struct st *t)
{
	struct verbs_finding f = without_right(t, false);

	st_reset(t);
	if (f.answer != VERBS_YES)
		return f;
	f = without_right(t, true);
	st_reset(t);
	return f;
}

/* ------------------------------------------------------------------ whose it is */

/* Two connections in one protection domain; the window is bound to the first. */
static struct verbs_finding by_another(struct st *t, bool write)
{
	struct ibv_mw *mw = working_window(t);

	if (!mw || st_connect(t, 1, t->owner_pd, 1) || !st_link_works(t, 1))
		return ST_LOST;
	return forbidden(t, 1, mw->rkey, write);
}

struct verbs_finding st_ask_window_qp(struct st *t)
{
	struct verbs_finding f = by_another(t, false);

	st_reset(t);
	if (f.answer != VERBS_YES)
		return f;
	f = by_another(t, true);
	st_reset(t);
	return f;
}

/* ------------------------------------------------------------------ dead keys */

static struct verbs_finding after_local_inv(struct st *t, bool write)
{
	struct ibv_mw *mw = working_window(t);

	if (!mw || st_local_inv(t, 0, mw->rkey) != IBV_WC_SUCCESS)
		return ST_LOST;
	return forbidden(t, 0, mw->rkey, write);
}

/* The old key, when the window has another. */
static struct verbs_finding after_rebind(struct st *t)
{
	struct ibv_mw *mw = working_window(t);
	const uint64_t address = st_address(st_key_memory(t));
	struct ibv_mr *mr;
	uint32_t old;

	if (!mw)
		return ST_LOST;
	old = mw->rkey;
	mr = st_register(t, t->owner_pd, t->owned, ST_SMALL_BYTES,
			 IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND);
	if (!mr || st_local_inv(t, 0, old) != IBV_WC_SUCCESS)
		return ST_LOST;
	if (st_bind(t, 0, mw, mr, address, ST_KEY_BYTES, READ_WRITE) != IBV_WC_SUCCESS ||
	    !st_read_works(t, 0, address, mw->rkey))
		return ST_LOST;
	return forbidden(t, 0, old, false);
}

static struct verbs_finding after_dealloc(struct st *t)
{
	struct ibv_mw *mw = working_window(t);
	uint32_t key;

	if (!mw)
		return ST_LOST;
	key = mw->rkey;
	if (st_window_free(t, mw))
		return ST_LOST;
	return forbidden(t, 0, key, false);
}

struct verbs_finding st_ask_window_dead(struct st *t)
{
	struct verbs_finding f = ST_LOST;

	for (int i = 0; i < 4; i++) {
		f = i == 0   ? after_local_inv(t, false)
		    : i == 1 ? after_local_inv(t, true)
		    : i == 2 ? after_rebind(t)
			     : after_dealloc(t);
		st_reset(t);
		if (f.answer != VERBS_YES)
			break;
	}
	return f;
}

/* ------------------------------------------------------------------ invalidation by the peer */

/* A SEND of the peer that names the window; the owner's completion of it in *ret. */
static int send_inv(struct st *t, const struct ibv_mw *mw, struct ibv_wc *ret)
{
	struct ibv_sge sge = { st_address(t->held), 16, t->held_mr->lkey };
	struct ibv_send_wr wr = {
		.opcode = IBV_WR_SEND_WITH_INV,
		.sg_list = &sge,
		.num_sge = 1,
		.invalidate_rkey = mw->rkey,
	};
	int status;

	if (st_post_recv(t, &t->link[0].owner, t->owned, 64, t->open_mr->lkey))
		return ST_REFUSED;
	status = st_post(t, &t->link[0].peer, &wr, NULL);
	return status == IBV_WC_SUCCESS ? st_wait(t, &t->link[0].owner, ret) : status;
}

static enum verbs_answer failure(int status)
{
	return status == ST_NOTHING ? VERBS_SILENT : VERBS_NO;
}

struct verbs_finding st_ask_send_inv(struct st *t)
{
	struct ibv_mw *mw = working_window(t);
	struct verbs_finding f = ST_LOST;
	struct ibv_wc wc;
	int status;

	if (mw) {
		status = send_inv(t, mw, &wc);
		f = status == IBV_WC_SUCCESS ? forbidden(t, 0, mw->rkey, false)
					     : st_found(failure(status), status);
	}
	st_reset(t);
	return f;
}

/* rxe says the key, but not the flag by which a program knows that there is one. */
struct verbs_finding st_ask_send_inv_reported(struct st *t)
{
	struct ibv_mw *mw = working_window(t);
	struct verbs_finding f = ST_LOST;
	struct ibv_wc wc;
	int status;

	if (mw) {
		status = send_inv(t, mw, &wc);
		if (status != IBV_WC_SUCCESS)
			f = st_found(failure(status), status);
		else
			f = st_found((wc.wc_flags & IBV_WC_WITH_INV) &&
						     wc.invalidated_rkey == mw->rkey
					     ? VERBS_YES
					     : VERBS_NO,
				     status);
	}
	st_reset(t);
	return f;
}
