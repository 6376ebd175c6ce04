/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "daemon/core/buffer.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#include "common/assert.h"
#include "daemon/core/sabotage.h"
#include "daemon/core/wait.h"

#define BUFFER_BYTES_MAX (UINT64_C(1) << 40)
/* Buffers lie this far apart in the address space of their MRs: twice the largest, so that they
 * never touch. */
#define IOVA_STRIDE_BITS 41
#define SLOT_MASK (XC_SLOTS_MAX - 1)

struct xd_buffer *xd_buffer_get(const struct xd_session *s, uint32_t number)
{
	struct xd_buffer *b = xc_slots_get(&s->buffers, number);

	return b && b->state == XD_BUFFER_LIVE ? b : NULL;
}

void xd_buffer_fault(void *region_ctx)
{
	struct xd_buffer *b = region_ctx;

	XC_CHECK(b, XD_BUFFER_MAGIC);
	xd_core_count(b->session->core, XD_COUNTER_buffer_faults, 1);
	if (XD_SABOTAGE("forgive-a-fault"))
		return;
	xd_session_fail(b->session, -XP_E_BUFFER_FAULT,
			"memory of buffer %" PRIu32 " vanished under an access", b->number);
}

/* ------------------------------------------------------------------ going */

static void buffer_free(struct xd_buffer *b)
{
	struct xd_session *s = b->session;

	if (b->call)
		xd_call_reply(b->call, b->status, b->status < 0 ? "%s" : NULL, b->why);
	xc_slots_remove(&s->buffers, b->number);
	xd_uncharge(&s->payer, XD_LIMIT_buffers, 1);
	xd_uncharge(&s->payer, XD_LIMIT_pinned, b->pinned_bytes);
	xd_core_count(s->core, XD_COUNTER_buffers, -1);
	xd_core_count(s->core, XD_COUNTER_buffer_bytes, -(int64_t)b->size_bytes);
	xd_core_count(s->core, XD_COUNTER_pinned_bytes, -(int64_t)b->pinned_bytes);
	xd_wait_freed(s->core);
	s->live_buffers--;
	b->magic = 0;
	free(b);
	xd_session_settle(s);
}

static void unmap_run(struct xd_job *job)
{
	struct xd_buffer *b = xc_container_of(job, struct xd_buffer, job);

	if (!XD_SABOTAGE("forget-a-map"))
		b->ops->region_unmap(b->region);
}

static void unmap_done(struct xd_job *job)
{
	buffer_free(xc_container_of(job, struct xd_buffer, job));
}

static void unmap(struct xd_buffer *b)
{
	if (!b->region) {
		buffer_free(b);
		return;
	}
	b->job.helper = XD_HELP_MEMORY;
	b->job.owner = b->session->uid;
	b->job.run = unmap_run;
	b->job.done = unmap_done;
	xd_help(b->session->core, &b->job);
}

void xd_buffer_settle(struct xd_buffer *b)
{
	if (b->state == XD_BUFFER_RELEASING && !b->releasing && xc_list_empty(&b->keys))
		unmap(b);
}

static void release(struct xd_buffer *b)
{
	struct xd_key *key;

	b->state = XD_BUFFER_RELEASING;
	if (XD_SABOTAGE("unmap-registered")) {
		unmap(b);
		return;
	}
	b->releasing = true;
	xc_list_for_each(key, &b->keys, link)
		xd_key_drop(key);
	b->releasing = false;
	xd_buffer_settle(b);
}

void xd_buffer_release(struct xd_buffer *b)
{
	xc_assert(b->state == XD_BUFFER_LIVE && b->users == 0);
	release(b);
}

void xd_session_buffer_remove(struct xd_session *s, uint64_t serial, uint32_t number)
{
	struct xd_call *call = xd_call_new(s, serial);
	struct xd_buffer *b = xd_buffer_get(s, number);

	if (!call)
		return;
	if (!b) {
		xd_call_reply(call, -ENOENT, "there is no buffer %" PRIu32, number);
		return;
	}
	if (b->users) {
		xd_call_reply(call, -EBUSY,
			      "buffer %" PRIu32 " is used by %" PRIu32
			      " segments of unfinished requests and live grants",
			      number, b->users);
		return;
	}
	b->call = call;
	xd_buffer_release(b);
}

/* ------------------------------------------------------------------ coming */

static void add_failed(struct xd_buffer *b, int status)
{
	b->status = status;
	release(b);
}

/*
 * Where registering is free it is done here; elsewhere it waits for a transfer that needs it, for
 * it pins the memory once more, and takes its time.
 */
static bool registers_early(const struct fabric_caps *caps)
{
	return !caps->pins && !xd_own_pd(caps);
}

static void register_next(struct xd_buffer *b)
{
	struct xd_session *s = b->session;
	struct xd_pd *pd;

	for (; b->step < s->core->n_fabrics; b->step++) {
		int r;

		if (!registers_early(&s->core->caps[b->step]))
			continue;
		r = xd_pd_get(s, b->step, NULL, &pd);
		if (r == 0)
			r = xd_key_want(pd, b, NULL);
		if (r == -EINPROGRESS)
			return;
		if (r < 0) {
			xd_buffer_registered(b, r);
			return;
		}
	}
	b->state = XD_BUFFER_LIVE;
	b->call->number = b->number;
	xd_call_reply(b->call, 0, NULL);
	b->call = NULL;
	xd_session_settle(s);
}

void xd_buffer_registered(struct xd_buffer *b, int status)
{
	if (status < 0) {
		snprintf(b->why, sizeof(b->why), "fabric %s could not register the buffer: %s",
			 b->session->core->caps[b->step].name, xd_strstatus(status));
		add_failed(b, status);
		return;
	}
	b->step++;
	register_next(b);
}

static void map_run(struct xd_job *job)
{
	struct xd_buffer *b = xc_container_of(job, struct xd_buffer, job);

	b->status = b->ops->region_map(b->fd, b->size_bytes, b, &b->region, b->why, sizeof(b->why));
}

static void map_done(struct xd_job *job)
{
	struct xd_buffer *b = xc_container_of(job, struct xd_buffer, job);

	xd_session_close_fd(b->session, b->fd);
	b->fd = -1;
	if (b->status < 0) {
		b->region = NULL;
		add_failed(b, b->status);
		return;
	}
	b->state = XD_BUFFER_REGISTERING;
	register_next(b);
}

static int charge(struct xd_session *s, uint64_t pinned, char *why)
{
	int r = xd_charge(&s->payer, XD_LIMIT_buffers, 1, why, XD_TEXT_MAX);

	if (r < 0)
		return r;
	r = xd_pin(s, pinned, why, XD_TEXT_MAX);
	if (r < 0)
		xd_uncharge(&s->payer, XD_LIMIT_buffers, 1);
	return r;
}

/* A charged buffer with its number, or NULL: the call is answered. */
static struct xd_buffer *buffer_new(struct xd_session *s, struct xd_call *call, uint64_t size_bytes)
{
	uint64_t pinned = size_bytes; /* of the map, or of the first registration that pins */
	struct xd_buffer *b = NULL;
	char why[XD_TEXT_MAX];
	int r;

	if (size_bytes == 0 || size_bytes > BUFFER_BYTES_MAX) {
		xd_call_reply(call, -EINVAL, "a buffer has 1 to %" PRIu64 " bytes, not %" PRIu64,
			      BUFFER_BYTES_MAX, size_bytes);
		return NULL;
	}
	r = charge(s, pinned, why);
	if (r < 0) {
		xd_call_reply(call, r, "%s", why);
		return NULL;
	}
	b = calloc(1, sizeof(*b));
	if (!b || xc_slots_add(&s->buffers, b, &b->number) < 0) {
		free(b);
		xd_uncharge(&s->payer, XD_LIMIT_buffers, 1);
		xd_uncharge(&s->payer, XD_LIMIT_pinned, pinned);
		xd_call_reply(call, -ENOMEM, NULL);
		return NULL;
	}
	xc_list_init(&b->keys);
	b->magic = XD_BUFFER_MAGIC;
	b->session = s;
	b->size_bytes = size_bytes;
	b->pinned_bytes = pinned;
	b->iova = (uint64_t)((b->number & SLOT_MASK) + 1) << IOVA_STRIDE_BITS;
	b->call = call;
	s->live_buffers++;
	xd_core_count(s->core, XD_COUNTER_buffers, 1);
	xd_core_count(s->core, XD_COUNTER_buffer_bytes, (int64_t)size_bytes);
	xd_core_count(s->core, XD_COUNTER_pinned_bytes, (int64_t)pinned);
	return b;
}

void xd_session_buffer_add(struct xd_session *s, uint64_t serial, int fd, uint64_t size_bytes)
{
	struct xd_call *call = xd_call_new(s, serial);
	struct xd_buffer *b = call ? buffer_new(s, call, size_bytes) : NULL;

	if (!b) {
		xd_session_close_fd(s, fd);
		return;
	}
	b->fd = fd;
	b->ops = s->core->fabrics[0].ops;
	b->job.helper = XD_HELP_MEMORY;
	b->job.owner = b->session->uid;
	b->job.run = map_run;
	b->job.done = map_done;
	xd_help(s->core, &b->job);
}
