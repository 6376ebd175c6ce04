/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "common/checked.h"
#include "daemon/fabric/verbs/selftest_rig.h"

/*
 * What a registration enforces.
 */

/* An attempt on all of the key's bytes. */
static struct st_attempt attempt(const struct st *t, uint32_t key, bool write)
{
	return (struct st_attempt){
		.address = st_address(st_key_memory(t)),
		.key = key,
		.bytes = ST_KEY_BYTES,
		.write = write,
	};
}

/* ------------------------------------------------------------------ rights */

/* A registration with some rights, and an attempt at what it does not allow. */
static struct verbs_finding without_right(struct st *t, int access, bool write)
{
	struct st_attempt a;
	struct ibv_mr *mr;
	bool allowed = true;

	if (st_connect(t, 0, t->owner_pd, 1))
		return ST_LOST;
	mr = st_register(t, t->owner_pd, st_key_memory(t), ST_KEY_BYTES, access);
	if (!mr || !st_link_works(t, 0))
		return ST_LOST;
	if (access & IBV_ACCESS_REMOTE_READ)
		allowed = st_read_works(t, 0, st_address(st_key_memory(t)), mr->rkey);
	if (access & IBV_ACCESS_REMOTE_WRITE)
		allowed = st_write_works(t, 0, st_address(st_key_memory(t)), mr->rkey);
	if (!allowed)
		return ST_LOST;
	a = attempt(t, mr->rkey, write);
	return st_forbidden(t, 0, &a);
}

static struct verbs_finding without_rights(struct st *t, const int *access, size_t n, bool write)
{
	struct verbs_finding f = ST_LOST;

	for (size_t i = 0; i < n; i++) {
		f = without_right(t, access[i], write);
		st_reset(t);
		if (f.answer != VERBS_YES)
			break;
	}
	return f;
}

struct verbs_finding st_ask_mr_remote_read(struct st *t)
{
	static const int access[] = {
		IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE,
		IBV_ACCESS_LOCAL_WRITE,
		0,
	};

	return without_rights(t, access, XC_ARRAY_SIZE(access), false);
}

struct verbs_finding st_ask_mr_remote_write(struct st *t)
{
	static const int access[] = {
		IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ,
		IBV_ACCESS_REMOTE_READ,
		IBV_ACCESS_LOCAL_WRITE,
	};

	return without_rights(t, access, XC_ARRAY_SIZE(access), true);
}

/* ------------------------------------------------------------------ bounds */

static struct verbs_finding past_bounds(struct st *t, int64_t offset, uint32_t bytes, bool write)
{
	struct st_attempt a;
	struct ibv_mr *mr;

	if (st_connect(t, 0, t->owner_pd, 1))
		return ST_LOST;
	mr = st_register(t, t->owner_pd, st_key_memory(t), ST_KEY_BYTES, ST_FULL_ACCESS);
	if (!mr || !st_read_works(t, 0, st_address(st_key_memory(t)), mr->rkey))
		return ST_LOST;
	a = attempt(t, mr->rkey, write);
	a.key_is_good = true;
	a.address += (uint64_t)offset;
	a.bytes = bytes;
	return st_forbidden(t, 0, &a);
}

struct verbs_finding st_ask_mr_bounds(struct st *t)
{
	/* One byte too far on either side, and right beside: in the same page, and pages off. */
	static const struct {
		int64_t offset;
		uint32_t bytes;
		bool write;
	} cases[] = {
		{ ST_KEY_BYTES - 16, 17, false }, { -1, 17, false },
		{ ST_KEY_BYTES, 64, false },	  { ST_KEY_BYTES + 8192, 64, false },
		{ ST_KEY_BYTES - 16, 17, true },  { -64, 64, true },
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

/* ------------------------------------------------------------------ protection domains */

/* The key works on a connection in its own domain, and is tried on one in another. */
static struct verbs_finding other_domain(struct st *t, bool write)
{
	struct st_attempt a;
	struct ibv_mr *mr;

	if (st_connect(t, 0, t->owner_pd, 1) || st_connect(t, 1, t->other_pd, 1))
		return ST_LOST;
	mr = st_register(t, t->other_pd, st_key_memory(t), ST_KEY_BYTES, ST_FULL_ACCESS);
	if (!mr || !st_link_works(t, 0) ||
	    !st_read_works(t, 1, st_address(st_key_memory(t)), mr->rkey))
		return ST_LOST;
	a = attempt(t, mr->rkey, write);
	return st_forbidden(t, 0, &a);
}

struct verbs_finding st_ask_pd_separation(struct st *t)
{
	struct verbs_finding f = other_domain(t, false);

	st_reset(t);
	if (f.answer != VERBS_YES)
		return f;
	f = other_domain(t, true);
	st_reset(t);
	return f;
}

/* For the record: an MR says nothing of queue pairs. */
struct verbs_finding st_ask_pd_shared(struct st *t)
{
	struct verbs_finding f = ST_LOST;
	struct ibv_mr *mr;

	if (st_connect(t, 0, t->owner_pd, 1) == 0 && st_connect(t, 1, t->owner_pd, 1) == 0 &&
	    st_link_works(t, 1)) {
		mr = st_register(t, t->owner_pd, st_key_memory(t), ST_KEY_BYTES, ST_FULL_ACCESS);
		if (mr && st_read_works(t, 0, st_address(st_key_memory(t)), mr->rkey))
			f.answer = st_read_works(t, 1, st_address(st_key_memory(t)), mr->rkey)
					   ? VERBS_YES
					   : VERBS_NO;
	}
	st_reset(t);
	return f;
}

/* ------------------------------------------------------------------ dead keys */

static struct verbs_finding dead(struct st *t, bool write)
{
	struct st_attempt a;
	struct ibv_mr *mr;

	if (st_connect(t, 0, t->owner_pd, 1))
		return ST_LOST;
	mr = st_register(t, t->owner_pd, st_key_memory(t), ST_KEY_BYTES, ST_FULL_ACCESS);
	if (!mr || !st_read_works(t, 0, st_address(st_key_memory(t)), mr->rkey))
		return ST_LOST;
	a = attempt(t, mr->rkey, write);
	if (st_deregister(t, mr))
		return ST_LOST;
	return st_forbidden(t, 0, &a);
}

struct verbs_finding st_ask_dereg_dead(struct st *t)
{
	struct verbs_finding f = dead(t, false);

	st_reset(t);
	if (f.answer != VERBS_YES)
		return f;
	f = dead(t, true);
	st_reset(t);
	return f;
}

/* ------------------------------------------------------------------ addresses and sinks */

struct verbs_finding st_ask_iova(struct st *t)
{
	/* Unlike any address of a process; the offset within a page must be the memory's. */
	const uint64_t iova = (UINT64_C(1) << 44) + ST_KEY_OFFSET % 4096;
	struct verbs_finding f = ST_LOST;
	struct ibv_mr *mr;

	if (st_connect(t, 0, t->owner_pd, 1) == 0 && st_link_works(t, 0)) {
		mr = st_register_at(t, t->owner_pd, st_key_memory(t), ST_KEY_BYTES, iova,
				    ST_FULL_ACCESS);
		f.answer = mr && st_read_works(t, 0, iova, mr->rkey) ? VERBS_YES : VERBS_NO;
	}
	st_reset(t);
	return f;
}

struct verbs_finding st_ask_read_sink(struct st *t)
{
	struct verbs_finding f = ST_LOST;

	if (st_connect(t, 0, t->owner_pd, 1) == 0 && st_link_works(t, 0)) {
		t->held_mr =
			st_register(t, t->peer_pd, t->held, ST_SMALL_BYTES, IBV_ACCESS_LOCAL_WRITE);
		if (t->held_mr)
			f.answer = st_link_works(t, 0) ? VERBS_YES : VERBS_NO;
	}
	st_reset(t);
	return f;
}
