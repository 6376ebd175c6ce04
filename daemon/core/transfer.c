/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#define _GNU_SOURCE 1 /* vasprintf(3) */
#include "daemon/core/transfer.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/assert.h"
#include "daemon/core/buffer.h"
#include "daemon/core/explained.h"
#include "daemon/core/grant.h"
#include "daemon/core/link.h"
#include "daemon/core/sabotage.h"
#include "daemon/core/segments.h"
#include "daemon/core/stage.h"
#include "daemon/core/temporary.h"

#define SPARE_MAX 4096

/* ------------------------------------------------------------------ life */

struct xd_transfer *xd_transfer_new(struct xd_session *s, const struct xp_request *request)
{
	struct xc_list *l = xc_list_pop(&s->core->spare);
	struct xd_transfer *t =
		l ? xc_container_of(l, struct xd_transfer, link) : malloc(sizeof(*t));

	if (!t)
		return NULL;
	if (l)
		s->core->n_spare--;
	*t = (struct xd_transfer){
		.magic = XD_TRANSFER_MAGIC,
		.session = s,
		.request = *request,
		.out.note = XD_NOTE_TRANSFER,
		.list_class = -1,
	};
	t->segments = t->own;
	xc_list_init(&t->link);
	xc_list_init(&t->links);
	xc_list_init(&t->out.link);
	return t;
}

void xd_transfer_free(struct xd_transfer *t)
{
	struct xd_core *core = t->session->core;

	XC_CHECK(t, XD_TRANSFER_MAGIC);
	xc_assert(t->state == XD_T_ENDED);
	if (t->charged) {
		xd_uncharge(&t->session->payer, XD_LIMIT_requests, 1);
		xd_core_count(core, XD_COUNTER_transfers, -1);
	} else {
		t->session->refused--;
	}
	free(t->text);
	t->magic = 0;
	if (core->n_spare < SPARE_MAX) {
		xc_list_prepend(&core->spare, &t->link);
		core->n_spare++;
	} else {
		free(t);
	}
}

static void count_end(struct xd_transfer *t, int status)
{
	static const struct {
		int done, bytes;
	} counters[XP_OP_MAX + 1] = {
		[XP_OP_READ] = { XD_COUNTER_transfers_read, XD_COUNTER_bytes_read },
		[XP_OP_WRITE] = { XD_COUNTER_transfers_write, XD_COUNTER_bytes_written },
		[XP_OP_SEND] = { XD_COUNTER_transfers_send, XD_COUNTER_bytes_sent },
		[XP_OP_RECV] = { XD_COUNTER_transfers_recv, -1 },
		[XP_OP_GRANT] = { -1, -1 },
		[XP_OP_REVOKE] = { -1, -1 },
		[XP_OP_CANCEL] = { -1, -1 },
	};
	struct xd_core *core = t->session->core;

	if (status == -XP_E_FLUSHED) {
		/* RECVs that wait when an endpoint ends: no failure of theirs. */
		xd_core_count(core, XD_COUNTER_transfers_flushed, 1);
		return;
	}
	if (status < 0) {
		xd_core_count(core, XD_COUNTER_transfers_failed, 1);
		if (status == -XP_E_QUOTA)
			xd_core_count(core, XD_COUNTER_quota_refusals, 1);
		return;
	}
	if (counters[t->request.opcode].done >= 0)
		xd_core_count(core, (enum xd_counter)counters[t->request.opcode].done, 1);
	if (counters[t->request.opcode].bytes >= 0)
		xd_core_count(core, (enum xd_counter)counters[t->request.opcode].bytes,
			      (int64_t)t->bytes);
}

void xd_transfer_use_buffers(struct xd_transfer *t, bool use)
{
	for (uint32_t i = 0; i < t->request.local_count; i++) {
		struct xd_buffer *b;

		if (!t->segments[i].length)
			continue;
		b = xd_buffer_get(t->session, t->segments[i].key);
		xc_assert(b);
		if (use)
			b->users++;
		else
			b->users--;
	}
	t->used = use;
}

static void let_go(struct xd_transfer *t)
{
	struct xd_session *s = t->session;

	xc_list_remove(&t->link);
	if (t->hashed)
		xc_hash_remove(&s->transfers, &t->hash);
	t->hashed = false;
	if (t->used)
		xd_transfer_use_buffers(t, false);
	if (t->charged_bytes)
		xd_uncharge(&s->payer, XD_LIMIT_bytes, t->bytes);
	t->charged_bytes = false;
	free(t->thoughts);
	t->thoughts = NULL;
	xd_segments_release(t);
}

static void count_finished(struct xd_session *s)
{
	s->unfinished--;
	s->core->unfinished--;
	/* A draining daemon waits for this. */
	if (s->core->draining && !s->core->unfinished)
		s->core->engine.ops->kick(s->core->engine.engine);
}

/* It is over; what is left is to say so. */
static void end(struct xd_transfer *t, int status)
{
	struct xd_session *s = t->session;
	struct xd_transfer *cancel = t->cancel;
	bool counted = t->counted;

	/* One that was refused has no plan. */
	if (t->thoughts)
		xd_explained_add(t, status);
	if (t->link_to)
		xd_link_end(t, status);
	xd_stage_forget(t);
	xd_links_drop(&t->links);
	let_go(t);
	count_end(t, status);
	t->state = XD_T_ENDED;
	t->completion.wr_id = t->request.wr_id;
	t->completion.cookie = t->request.cookie;
	t->completion.status = status;
	t->completion.opcode = t->request.opcode;
	t->completion.endpoint = t->request.endpoint;
	if (counted)
		count_finished(s);
	if (status == 0 && (t->request.flags & XP_F_QUIET))
		xd_transfer_free(t);
	else if (!XD_SABOTAGE("forget-a-completion"))
		xd_session_tell(s, &t->out);
	if (cancel) {
		cancel->completion.immediate = XP_CANCEL_FENCED;
		xd_transfer_end(cancel, 0, NULL);
	}
}

void xd_transfer_end(struct xd_transfer *t, int status, const char *format, ...)
{
	va_list args;

	XC_CHECK(t, XD_TRANSFER_MAGIC);
	xc_assert(t->state != XD_T_ENDED && !t->ending);
	if (status < 0 && format) {
		va_start(args, format);
		if (vasprintf(&t->text, format, args) < 0)
			t->text = NULL; /* the code alone must do */
		va_end(args);
	} else if (status < 0) {
		t->text = strdup(xd_strstatus(status));
	}
	/* No key of its own outlives it (I2). */
	if (t->temporaries && !xd_temporaries_kill(t)) {
		xc_list_remove(&t->link);
		t->state = XD_T_POSTED;
		t->ending = true;
		t->end_status = status;
		return;
	}
	end(t, status);
}

void xd_transfer_undone(struct xd_transfer *t)
{
	struct xd_endpoint *ep = t->endpoint;

	if (t->ending) {
		if (XD_SABOTAGE("forget-a-late-end"))
			return;
		end(t, t->end_status);
		return;
	}
	xd_endpoint_made(ep);
	/* It was what the end of its endpoint waited for. */
	if (ep->gone)
		xd_stage_soon(ep);
}
