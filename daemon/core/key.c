/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "daemon/core/key.h"

#include <errno.h>
#include <stdlib.h>

#include "common/assert.h"
#include "daemon/core/audited.h"
#include "daemon/core/buffer.h"
#include "daemon/core/grant.h"
#include "daemon/core/sabotage.h"
#include "daemon/core/wait.h"

/* A device that is full, or a user at its limit, is not asked again for every transfer. */
#define REFUSED_NS (1000 * XD_NS_PER_MS)

/* ------------------------------------------------------------------ domains */

static int pd_new(struct xd_session *s, uint32_t fabric, struct xd_endpoint *endpoint,
		  struct xd_pd **ret)
{
	const struct fabric_ref *f = &s->core->fabrics[fabric];
	struct xd_pd *pd = calloc(1, sizeof(*pd));
	int r;

	if (!pd)
		return -ENOMEM;
	r = f->ops->pd_alloc(f->fabric, s->uid, &pd->pd);
	if (r < 0) {
		free(pd);
		return r;
	}
	pd->session = s;
	pd->endpoint = endpoint;
	pd->fabric = fabric;
	xc_hash_init(&pd->keys, 1); /* the numbers are ours */
	xc_list_init(&pd->windows);
	*ret = pd;
	return 0;
}

int xd_pd_get(struct xd_session *s, uint32_t fabric, struct xd_endpoint *endpoint,
	      struct xd_pd **ret)
{
	int r = 0;

	if (endpoint)
		return pd_new(s, fabric, endpoint, ret);
	if (!s->pds[fabric])
		r = pd_new(s, fabric, NULL, &s->pds[fabric]);
	if (r == 0)
		*ret = s->pds[fabric];
	return r;
}

void xd_pd_clear(struct xd_pd *pd)
{
	struct xd_buffer *b;
	uint32_t at = 0;

	pd->clearing = true;
	xd_windows_free(pd);
	if (pd->n_windows && !XD_SABOTAGE("windows-last"))
		return; /* the last of them comes back here: a bound one holds its registration */
	while (pd->keys.count && !XD_SABOTAGE("forget-a-key") &&
	       (b = xc_slots_next(&pd->session->buffers, &at))) {
		struct xc_hash_node *n = xc_hash_find(&pd->keys, b->number);

		if (n)
			xd_key_drop(xc_container_of(n, struct xd_key, hash));
	}
}

void xd_pd_free(struct xd_pd *pd)
{
	xc_assert(pd->n_objects == 0);
	pd->session->core->fabrics[pd->fabric].ops->pd_free(pd->pd);
	xc_hash_done(&pd->keys);
	free(pd);
}

void xd_pd_lost(struct xd_pd *pd)
{
	pd->n_objects--;
	if (pd->endpoint)
		xd_endpoint_settle(pd->endpoint);
	else
		xd_session_settle(pd->session);
}

/* ------------------------------------------------------------------ registrations */

struct xd_key *xd_key_get(const struct xd_pd *pd, struct xd_buffer *b)
{
	struct xd_key *key = b->last_key;
	struct xc_hash_node *n;

	if (key && key->pd == pd) {
		key->used_turn = b->session->core->turn;
		return key;
	}
	n = xc_hash_find(&pd->keys, b->number);
	key = n ? xc_container_of(n, struct xd_key, hash) : NULL;
	if (!key || key->state != XD_KEY_LIVE)
		return NULL;
	b->last_key = key;
	key->used_turn = b->session->core->turn;
	return key;
}

/* ------------------------------------------------------------------ making room */

/* A registration whose end gives pinned memory back, and that nothing uses. */
static struct xd_key *least_used(struct xd_session *s)
{
	struct xd_key *ret = NULL, *key;
	struct xd_buffer *b;
	uint32_t at = 0;

	while ((b = xc_slots_next(&s->buffers, &at))) {
		if ((b->users && !XD_SABOTAGE("evict-in-use")) || b->state != XD_BUFFER_LIVE)
			continue;
		xc_list_for_each(key, &b->keys, link)
			if (key->state == XD_KEY_LIVE && key->pinned_bytes &&
			    (!ret || key->used_turn < ret->used_turn))
				ret = key;
	}
	return ret;
}

int xd_pin(struct xd_session *s, uint64_t bytes, char *why, size_t size)
{
	uint64_t freed = 0;
	struct xd_key *key;
	int r;

	/* No more of them goes than makes room, even where none of it is there yet. */
	while ((r = xd_charge(&s->payer, XD_LIMIT_pinned, bytes, why, size)) < 0) {
		key = freed < bytes ? least_used(s) : NULL;
		if (!key)
			break;
		freed += key->pinned_bytes;
		xd_core_count(s->core, XD_COUNTER_keys_evicted, 1);
		xd_audited_dying(s->core, &key->audit, XD_AUDIT_EVICTION);
		xd_key_drop(key);
	}
	return r;
}

/* As the kernel counts: each registration pins the pages once more. */
static int charge(struct xd_key *key)
{
	struct xd_buffer *b = key->buffer;
	struct xd_session *s = b->session;
	int r;

	if (!s->core->caps[key->pd->fabric].pins || XD_SABOTAGE("pin-for-nothing"))
		return 0;
	if (!b->first_pinned) {
		key->first = b->first_pinned = true;
		return 0;
	}
	r = xd_pin(s, b->size_bytes, NULL, 0);
	if (r < 0)
		return r;
	key->pinned_bytes = b->size_bytes;
	b->pinned_bytes += b->size_bytes;
	xd_core_count(s->core, XD_COUNTER_pinned_bytes, (int64_t)b->size_bytes);
	return 0;
}

/* The buffer's own charge is another's now, which then needs none of its own. */
static struct xd_key *hand_on(struct xd_key *key)
{
	struct xd_key *other;

	xc_list_for_each(other, &key->buffer->keys, link) {
		if (other != key && other->pinned_bytes) {
			other->first = true;
			return other;
		}
	}
	key->buffer->first_pinned = false;
	return key;
}

static void uncharge(struct xd_key *key)
{
	struct xd_buffer *b = key->buffer;
	struct xd_session *s = b->session;

	if (key->first)
		key = hand_on(key);
	b->pinned_bytes -= key->pinned_bytes;
	xd_uncharge(&s->payer, XD_LIMIT_pinned, key->pinned_bytes);
	xd_core_count(s->core, XD_COUNTER_pinned_bytes, -(int64_t)key->pinned_bytes);
	key->pinned_bytes = 0;
}

static void key_free(struct xd_key *key)
{
	struct xd_buffer *b = key->buffer;
	struct xd_pd *pd = key->pd;

	xd_audited_gone(b->session->core, &key->audit);
	uncharge(key);
	pd->registered_bytes -= b->size_bytes;
	if (key->state != XD_KEY_GOING)
		xc_hash_remove(&pd->keys, &key->hash);
	xc_list_remove(&key->link);
	xd_core_count(b->session->core, XD_COUNTER_keys, -1);
	free(key);
	xd_pd_lost(pd);
	xd_buffer_settle(b);
}

static void wake(struct xc_list *waiters)
{
	struct xc_list *l;

	while ((l = xc_list_pop(waiters)))
		xd_endpoint_pump(xc_container_of(l, struct xd_endpoint, key_link));
}

/* The list moves out of what may be freed under it. */
static void take_waiters(struct xd_key *key, struct xc_list *ret)
{
	struct xc_list *l;

	xc_list_init(ret);
	while ((l = xc_list_pop(&key->waiters)))
		xc_list_append(ret, l);
}

static void made(struct fabric_done *done, int status)
{
	struct xd_key *key = xc_container_of(done, struct xd_key, done);
	struct xd_buffer *b = key->buffer;
	struct xc_list waiters;

	take_waiters(key, &waiters);
	if (status < 0) {
		key->pd->refused_ns = xd_now(b->session->core);
		key_free(key);
	} else {
		key->state = XD_KEY_LIVE;
		xd_audited_live(b->session->core, &key->audit);
		if (key->unwanted)
			xd_key_drop(key);
	}
	if (b->state == XD_BUFFER_REGISTERING)
		xd_buffer_registered(b, status);
	wake(&waiters);
}

static int make(struct xd_pd *pd, struct xd_buffer *b, struct xd_key **ret)
{
	const struct xd_core *core = b->session->core;
	int access = IBV_ACCESS_LOCAL_WRITE, r;
	struct xd_key *key = calloc(1, sizeof(*key));

	if (!key)
		return -ENOMEM;
	*key = (struct xd_key){ .pd = pd, .buffer = b, .done.fn = made };
	xc_list_init(&key->waiters);
	r = charge(key);
	if (r == 0)
		r = xc_hash_add(&pd->keys, &key->hash, b->number);
	if (r < 0) {
		uncharge(key);
		free(key);
		return r;
	}
	xc_list_append(&b->keys, &key->link);
	pd->n_objects++;
	pd->registered_bytes += b->size_bytes;
	xd_core_count(b->session->core, XD_COUNTER_keys, 1);
	xd_audited_key(key);
	if (core->caps[pd->fabric].keys == FABRIC_KEYS_WINDOW)
		access |= IBV_ACCESS_MW_BIND;
	r = core->fabrics[pd->fabric].ops->mr_reg(pd->pd, b->region, 0, b->size_bytes, b->iova,
						  access, &key->done, &key->mr);
	if (r == 0) {
		key->state = XD_KEY_LIVE;
		xd_audited_live(b->session->core, &key->audit);
	} else if (r != -EINPROGRESS) {
		key_free(key);
	}
	*ret = key;
	return r;
}

static bool refused_lately(const struct xd_pd *pd)
{
	const struct xd_core *core = pd->session->core;

	return core->caps[pd->fabric].pins && pd->refused_ns &&
	       xd_now(core) - pd->refused_ns < REFUSED_NS;
}

int xd_key_want(struct xd_pd *pd, struct xd_buffer *b, struct xd_endpoint *waiter)
{
	struct xc_hash_node *n = xc_hash_find(&pd->keys, b->number);
	struct xd_key *key = n ? xc_container_of(n, struct xd_key, hash) : NULL;
	int r;

	if (!key) {
		if (refused_lately(pd))
			return -EAGAIN;
		r = make(pd, b, &key);
		if (r < 0 && r != -EINPROGRESS) {
			pd->refused_ns = xd_now(pd->session->core);
			return r;
		}
	}
	if (key->state == XD_KEY_LIVE)
		return 0;
	if (waiter) {
		xc_list_remove(&waiter->key_link);
		xc_list_append(&key->waiters, &waiter->key_link);
	}
	return -EINPROGRESS;
}

static void dropped(struct fabric_done *done, int status)
{
	struct xd_key *key = xc_container_of(done, struct xd_key, done);

	xc_assert(status == 0);
	xd_wait_freed(key->buffer->session->core);
	key_free(key);
}

void xd_key_drop(struct xd_key *key)
{
	const struct xd_core *core = key->buffer->session->core;
	int r;

	if (key->state == XD_KEY_GOING)
		return;
	if (key->buffer->last_key == key)
		key->buffer->last_key = NULL;
	if (key->state == XD_KEY_MAKING) {
		key->unwanted = true;
		return;
	}
	xc_hash_remove(&key->pd->keys, &key->hash);
	key->state = XD_KEY_GOING;
	xd_audited_drop(key);
	key->done.fn = dropped;
	r = core->fabrics[key->pd->fabric].ops->mr_dereg(key->mr, &key->done);
	/* No window is bound: nothing uses the buffer, or the windows went first. */
	if (r != -EINPROGRESS)
		dropped(&key->done, r);
}
