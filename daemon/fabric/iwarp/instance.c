/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include <errno.h>
#include <stdlib.h>

#include "common/assert.h"
#include "daemon/fabric/iwarp/stream.h"

#define NS_PER_MS UINT64_C(1000000)

static const struct fabric_caps iwarp_caps = {
	.name = "iwarp",
	.kind = FABRIC_IWARP_SOFT,
	.max_sge = IWARP_MAX_SGE,
	.max_sge_rd = IWARP_MAX_SGE,
	.max_recv_sge = IWARP_MAX_SGE,
	.max_send_wr = IWARP_MAX_WR,
	.max_recv_wr = IWARP_MAX_WR,
	.max_message_bytes = IWARP_MESSAGE_BYTES_MAX,
	.max_inline = IWARP_INLINE_BYTES,
	.max_ranges = FABRIC_RANGES_MAX,
	.private_connect_bytes = IWARP_PRIVATE_DATA_BYTES,
	.private_accept_bytes = IWARP_PRIVATE_DATA_BYTES,
	.private_reject_bytes = IWARP_PRIVATE_DATA_BYTES,
	.keys = FABRIC_KEYS_WINDOW,
	.remote_invalidate = true,
	.conn_gone = true,
};

static uint64_t or_default(uint64_t value, uint64_t its_default)
{
	return value ? value : its_default;
}

static void take_options(struct fabric *f, const struct iwarp_options *o)
{
	f->rnr_ns = or_default(o->rnr_ms, IWARP_RNR_MS_DEFAULT) * NS_PER_MS;
	f->ep_limit = (uint32_t)or_default(o->ep_limit, IWARP_EP_LIMIT_DEFAULT);
	f->no_wire = o->no_wire;
	f->no_shortcut = o->no_shortcut;
	f->mpa_ns = or_default(o->mpa_ms, 5000) * NS_PER_MS;
	f->stall_ns = or_default(o->stall_ms, 30000) * NS_PER_MS;
	f->handshakes = (uint32_t)or_default(o->handshakes, 256);
	f->handshakes_per_host = (uint32_t)or_default(o->handshakes_per_host, 32);
	f->wants = (struct mpa_wants){
		.crc = o->crc, .long_fpdus = true, .ird = (uint16_t)or_default(o->ird, 32),
		.ord = (uint16_t)or_default(o->ord, 32),
	};
	xc_assert(f->wants.ird <= IWARP_READS_MAX && f->wants.ord <= IWARP_READS_MAX);
	/* What RDMAP promises. Inside the daemon more is true, but a program cannot know. */
	f->caps.receiver_not_ready = f->caps.acknowledged = f->no_wire;
	/* The peer may be siw. */
	f->caps.short_read_in_page = !f->no_wire;
}

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
	};
	take_options(f, options);
	f->profile = options->profile;
	iwarp_profile_apply(f->profile, &f->caps);
	for (size_t i = 0; i < IWARP_BUCKETS; i++) {
		xc_list_init(&f->owners[i]);
		xc_list_init(&f->listeners[i]);
	}
	xc_list_init(&f->turns);
	xc_list_init(&f->cq_ready);
	xc_list_init(&f->pending);
	xc_list_init(&f->accepting);
	xc_list_init(&f->hearing);
	xc_list_init(&f->streams);
	xc_list_init(&f->dead);
	xc_list_init(&f->busy);
	err = poll_open(f);
	if (err)
		goto free_fabric;
	err = fabric_guard_init();
	if (!err)
		err = iwarp_stags_init(&f->stags, engine);
	if (err)
		goto close_poll;
	f->sink_stag = iwarp_stags_reserve(&f->stags);
	*ret = f;
	return 0;

close_poll:
	poll_close(f);
free_fabric:
	free(f);
	return err;
}

static void iwarp_close(struct fabric *f)
{
	XC_CHECK(f, IWARP_FABRIC_MAGIC);
	xc_assert(f->eps == 0 && f->objects == 0 && xc_list_empty(&f->pending));
	iwarp_measure_forget(f);
	stream_close_all(f);
	poll_close(f);
	iwarp_stags_done(&f->stags);
	f->magic = 0;
	free(f);
}

static const struct fabric_caps *iwarp_get_caps(const struct fabric *f)
{
	XC_CHECK(f, IWARP_FABRIC_MAGIC);
	return &f->caps;
}

/* Work inside the daemon comes from calls, which kick. */
static int iwarp_fd(const struct fabric *f)
{
	XC_CHECK(f, IWARP_FABRIC_MAGIC);
	return f->epoll_fd;
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
	XC_CHECK(f, IWARP_FABRIC_MAGIC);
	xc_assert(!f->in_progress);
	f->in_progress = true;
	f->kicked = false;
	poll_look(f);
	serve_run(f);
	stream_run_busy(f);
	iwarp_tell(f);
	iwarp_run_turns(f, budget_bytes);
	/* Before anybody polls: why a connection ended is heard before what it flushed. */
	iwarp_tell(f);
	stream_bury(f);
	f->in_progress = false;
	/* After the last event: what its listener did inside it kicked nobody. */
	return !xc_list_empty(&f->turns) || !xc_list_empty(&f->pending) ||
	       !xc_list_empty(&f->busy);
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
	.mr_reg_ranges = iwarp_mr_reg_ranges,
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
	.measure = iwarp_measure,
};
