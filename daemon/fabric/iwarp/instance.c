/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include <errno.h>
#include <stdlib.h>

#include "common/assert.h"
#include "daemon/fabric/iwarp/private.h"

static const struct fabric_caps iwarp_caps = {
	.name = "iwarp",
	.kind = FABRIC_IWARP_SOFT,
	.max_sge = IWARP_MAX_SGE,
	.max_sge_rd = IWARP_MAX_SGE,
	.max_recv_sge = IWARP_MAX_SGE,
	.max_send_wr = IWARP_MAX_WR,
	.max_recv_wr = IWARP_MAX_WR,
	.max_message_bytes = IWARP_MESSAGE_BYTES_MAX,
	.private_connect_bytes = IWARP_PRIVATE_DATA_BYTES,
	.private_accept_bytes = IWARP_PRIVATE_DATA_BYTES,
	.private_reject_bytes = IWARP_PRIVATE_DATA_BYTES,
	.keys = FABRIC_KEYS_WINDOW,
	.remote_invalidate = true,
	.receiver_not_ready = true,
	.acknowledged = true,
	.conn_gone = true,
};

int iwarp_fabric_open(const struct iwarp_options *options, const struct xd_engine_ref *engine,
		      const struct fabric_events *events, struct fabric **ret)
{
	struct fabric *f = calloc(1, sizeof(*f));
	int err;

	if (!f)
		return -ENOMEM;
	*f = (struct fabric){
		.magic = IWARP_FABRIC_MAGIC,
		.engine = *engine,
		.events = *events,
		.caps = iwarp_caps,
		.rnr_ns = (options->rnr_ms ? options->rnr_ms : IWARP_RNR_MS_DEFAULT) * 1000000,
		.ep_limit = options->ep_limit ? options->ep_limit : IWARP_EP_LIMIT_DEFAULT,
	};
	for (size_t i = 0; i < IWARP_BUCKETS; i++) {
		xc_list_init(&f->owners[i]);
		xc_list_init(&f->listeners[i]);
	}
	xc_list_init(&f->turns);
	xc_list_init(&f->cq_ready);
	xc_list_init(&f->pending);
	err = fabric_guard_init();
	if (!err)
		err = iwarp_stags_init(&f->stags, engine);
	if (err) {
		free(f);
		return err;
	}
	*ret = f;
	return 0;
}

static void iwarp_close(struct fabric *f)
{
	XC_CHECK(f, IWARP_FABRIC_MAGIC);
	xc_assert(f->eps == 0 && f->objects == 0 && xc_list_empty(&f->pending));
	iwarp_stags_done(&f->stags);
	f->magic = 0;
	free(f);
}

static const struct fabric_caps *iwarp_get_caps(const struct fabric *f)
{
	XC_CHECK(f, IWARP_FABRIC_MAGIC);
	return &f->caps;
}

/* Nothing here waits for a descriptor: work comes from calls, which kick. */
static int iwarp_fd(const struct fabric *f)
{
	XC_CHECK(f, IWARP_FABRIC_MAGIC);
	return -1;
}

void iwarp_wake(struct fabric *f)
{
	if (f->in_progress || f->kicked)
		return;
	f->kicked = true;
	f->engine.ops->kick(f->engine.engine);
}

static bool iwarp_progress(struct fabric *f, uint64_t budget_bytes)
{
	bool more;

	XC_CHECK(f, IWARP_FABRIC_MAGIC);
	xc_assert(!f->in_progress);
	f->in_progress = true;
	f->kicked = false;
	iwarp_tell(f);
	more = iwarp_run_turns(f, budget_bytes);
	f->in_progress = false;
	return more || !xc_list_empty(&f->pending);
}

const struct fabric_ops iwarp_fabric_ops = {
	.name = "iwarp",
	.close = iwarp_close,
	.caps = iwarp_get_caps,
	.fd = iwarp_fd,
	.progress = iwarp_progress,
	.poll = iwarp_poll,
	.route = iwarp_route,
	.region_map = fabric_region_map,
	.slab_map = fabric_slab_map,
	.region_unmap = fabric_region_unmap,
	.copy = fabric_region_copy,
	.pd_alloc = iwarp_pd_alloc,
	.pd_free = iwarp_pd_free,
	.mr_reg = iwarp_mr_reg,
	.mr_dereg = iwarp_mr_dereg,
	.mw_alloc = iwarp_mw_alloc,
	.mw_dealloc = iwarp_mw_dealloc,
	.ep_create = iwarp_ep_create,
	.ep_connect = iwarp_ep_connect,
	.ep_accept = iwarp_ep_accept,
	.conn_reject = iwarp_conn_reject,
	.ep_disconnect = iwarp_ep_disconnect,
	.ep_error = iwarp_ep_error,
	.ep_destroy = iwarp_ep_destroy,
	.post_send = iwarp_post_send,
	.post_recv = iwarp_post_recv,
	.listen = iwarp_listen,
	.listener_free = iwarp_listener_free,
};
