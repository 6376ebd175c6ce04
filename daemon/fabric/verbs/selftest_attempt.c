/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include <string.h>
#include <time.h>

#include "daemon/fabric/verbs/selftest_rig.h"

/*
 * Attempts of a peer to reach memory, judged by the bytes.
 */

/* The peer gave up, or was told nothing: what the owner's side did of it is not known. */
static bool says_nothing(int status)
{
	return status == ST_NOTHING || status == IBV_WC_RETRY_EXC_ERR ||
	       status == IBV_WC_RESP_TIMEOUT_ERR;
}

/* All that an attempt must not reach is secret. */
static void hide(struct st *t, const struct st_attempt *a)
{
	st_fill(t);
	if (!a->key_is_good)
		memset(st_key_memory(t), ST_SECRET, ST_KEY_BYTES);
}

/* Bytes of the peer's where it must not write. */
static bool damaged(const struct st *t, const struct st_attempt *a)
{
	const uint32_t after = ST_KEY_OFFSET + ST_KEY_BYTES;

	if (!a->key_is_good)
		return st_any(t->owned, ST_PEER, ST_SMALL_BYTES);
	return st_any(t->owned, ST_PEER, ST_KEY_OFFSET) ||
	       st_any(t->owned + after, ST_PEER, ST_SMALL_BYTES - after);
}

static struct verbs_finding forbidden_read(struct st *t, unsigned int link,
					   const struct st_attempt *a)
{
	const int status = st_read(t, link, a->address, a->key, a->bytes);

	st_disconnect(t);
	if (status == IBV_WC_SUCCESS || st_any(t->held, ST_SECRET, ST_SMALL_BYTES))
		return st_found(VERBS_NO, status);
	if (status == ST_REFUSED)
		return ST_LOST;
	return st_found(says_nothing(status) ? VERBS_SILENT : VERBS_YES, status);
}

/*
 * A WRITE may complete when it has left (iWARP): a READ behind it tells that it was looked at, be
 * it by failing too.
 */
static struct verbs_finding forbidden_write(struct st *t, unsigned int link,
					    const struct st_attempt *a)
{
	const int status = st_write(t, link, a->address, a->key, a->bytes);
	int seen = status;

	if (status == IBV_WC_SUCCESS)
		seen = st_read(t, link, st_address(t->owned), t->open_mr->rkey, 1);
	st_disconnect(t);
	if (damaged(t, a))
		return st_found(VERBS_NO, status);
	if (status == ST_REFUSED)
		return ST_LOST;
	return st_found(says_nothing(seen) ? VERBS_SILENT : VERBS_YES, status);
}

struct verbs_finding st_forbidden(struct st *t, unsigned int link, const struct st_attempt *a)
{
	hide(t, a);
	return a->write ? forbidden_write(t, link, a) : forbidden_read(t, link, a);
}

bool st_read_works(struct st *t, unsigned int link, uint64_t address, uint32_t key)
{
	st_fill(t);
	return st_read(t, link, address, key, ST_KEY_BYTES) == IBV_WC_SUCCESS &&
	       st_all(t->held, ST_OPEN, ST_KEY_BYTES) && t->held[ST_KEY_BYTES] == ST_PEER;
}

bool st_write_works(struct st *t, unsigned int link, uint64_t address, uint32_t key)
{
	static const struct timespec nap = { .tv_nsec = 100000 };
	const uint64_t end_ns = st_wait_end(t);

	st_fill(t);
	if (st_write(t, link, address, key, ST_KEY_BYTES) != IBV_WC_SUCCESS)
		return false;
	while (!st_all(st_key_memory(t), ST_PEER, ST_KEY_BYTES)) {
		if (st_now_ns() >= end_ns)
			return false;
		nanosleep(&nap, NULL);
	}
	return true;
}

bool st_link_works(struct st *t, unsigned int link)
{
	return st_read_works(t, link, st_address(st_key_memory(t)), t->open_mr->rkey);
}
