/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "common/assert.h"
#include "common/checked.h"
#include "daemon/fabric/verbs/private.h"
#include "proto/errors.h"

/* Asynchronous events taken in a turn. */
#define ASYNC_EVENTS 64

enum source { SOURCE_CM, SOURCE_CQ, SOURCE_ASYNC, SOURCES };

/* ---- open: on a helper */

static int watch(struct fabric *f, enum source source, int fd)
{
	struct epoll_event event = { .events = EPOLLIN, .data.u32 = source };
	int flags = fcntl(fd, F_GETFL);

	/* libibverbs and librdmacm block in read(2) and write(2) otherwise. */
	if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0 ||
	    epoll_ctl(f->epoll_fd, EPOLL_CTL_ADD, fd, &event) < 0)
		return -errno;
	return 0;
}

static int set_anchor(struct fabric *f)
{
	struct sockaddr_storage sa;

	fabric_to_sockaddr(&f->address, &sa);
	f->anchor_target.kind = VERBS_TARGET_ANCHOR;
	if (rdma_create_id(f->cm, &f->anchor, &f->anchor_target, RDMA_PS_TCP) < 0) {
		f->anchor = NULL;
		return -errno;
	}
	if (rdma_bind_addr(f->anchor, (struct sockaddr *)&sa) < 0)
		return -errno;
	return f->anchor->verbs == f->verbs ? 0 : -EADDRNOTAVAIL;
}

/*
 * libsiw takes the offset 0x90000, at which the kernel would have a queue mapped, for "none", and
 * fails without an errno: after about 48 endpoints, and from then on. A CQ that covers the place is
 * as good as none, and nothing else comes to lie there.
 */
static void set_ballast(struct fabric *f)
{
	const int first_bytes = 0x90000 + 4096, cqe_bytes = 32;

	if (strcmp(f->caps.driver, "siw") == 0)
		f->ballast = ibv_create_cq(f->verbs, first_bytes / cqe_bytes, NULL, NULL, 0);
}

static void release(struct fabric *f)
{
	if (f->ballast)
		ibv_destroy_cq(f->ballast);
	if (f->anchor)
		rdma_destroy_id(f->anchor);
	if (f->cm)
		rdma_destroy_event_channel(f->cm);
	if (f->channel)
		ibv_destroy_comp_channel(f->channel);
	if (f->epoll_fd >= 0)
		close(f->epoll_fd);
	f->magic = 0;
	free(f);
}

static int set_up(struct fabric *f)
{
	int err = fabric_guard_init();

	if (err)
		return err;
	f->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	if (f->epoll_fd < 0)
		return -errno;
	f->cm = rdma_create_event_channel();
	if (!f->cm)
		return -errno;
	f->channel = ibv_create_comp_channel(f->verbs);
	if (!f->channel)
		return -errno;
	set_ballast(f);
	err = watch(f, SOURCE_CM, f->cm->fd);
	if (!err)
		err = watch(f, SOURCE_CQ, f->channel->fd);
	if (!err)
		err = watch(f, SOURCE_ASYNC, f->verbs->async_fd);
	return err ? err : set_anchor(f);
}

int verbs_open(const struct verbs_prepared *p, struct fabric **ret)
{
	struct fabric *f = calloc(1, sizeof(*f));
	bool usable;
	int err;

	if (!f)
		return -ENOMEM;
	*f = (struct fabric){
		.magic = VERBS_FABRIC_MAGIC, .verbs = p->verbs, .address = p->address,
		.caps = p->caps, .keep = p->keep,
		.honours_iova = p->keep.findings.q[VERBS_Q_IOVA].answer == VERBS_YES,
		.port = p->port, .rd_atomic = p->rd_atomic, .iwarp = p->iwarp,
		.infiniband = p->infiniband, .epoll_fd = -1, .refs = 1,
	};
	/* into its final place: the facts point at their texts */
	usable = verbs_verdict(&p->keep.findings, &p->claims, &f->caps, &f->facts);
	xc_list_init(&f->eps);
	xc_list_init(&f->listeners);
	xc_list_init(&f->conns);
	xc_list_init(&f->asks);
	xc_list_init(&f->ready);
	xc_list_init(&f->news);
	err = usable ? set_up(f) : -EOPNOTSUPP;
	if (err) {
		release(f);
		return err;
	}
	*ret = f;
	return 0;
}

void verbs_start(struct fabric *f, const struct xd_engine_ref *engine,
		 const struct fabric_events *events)
{
	f->engine = *engine;
	f->events = *events;
}

/* ---- close */

void verbs_unref(struct fabric *f)
{
	if (--f->refs == 0)
		release(f);
}

void verbs_close(struct fabric *f)
{
	XC_CHECK(f, VERBS_FABRIC_MAGIC);
	xc_assert(f->objects == 0 && !f->closed);
	/* Rejects and listeners that are going have jobs yet; the last of them frees it. */
	f->closed = true;
	verbs_unref(f);
}

/* ---- the device's own events */

void verbs_lost(struct fabric *f, const char *how)
{
	struct fabric_ep *ep;

	if (f->lost)
		return;
	f->lost = true;
	f->engine.ops->log(f->engine.engine,
			   &(struct xd_log){ .priority = XD_ERR, .device = f->caps.name },
			   "The device %s is lost (%s): its endpoints end, and new connections go "
			   "by other devices. Restart the daemon when it is back.",
			   f->caps.name, how);
	xc_list_for_each(ep, &f->eps, all) {
		verbs_life_fault(&ep->life, -XP_E_DEVICE);
		verbs_ep_advance(ep);
	}
	verbs_listeners_lost(f);
	verbs_conns_lost(f);
	if (f->anchor)
		rdma_destroy_id(f->anchor);
	f->anchor = NULL;
	/* Such descriptors stay readable for good. */
	epoll_ctl(f->epoll_fd, EPOLL_CTL_DEL, f->verbs->async_fd, NULL);
	epoll_ctl(f->epoll_fd, EPOLL_CTL_DEL, f->channel->fd, NULL);
}

static void qp_event(struct ibv_qp *qp, enum ibv_event_type type)
{
	struct fabric_ep *ep = qp->qp_context;
	const bool iwarp = ep->fabric->caps.kind == FABRIC_IWARP;

	switch (type) {
	case IBV_EVENT_COMM_EST:
		verbs_life_hear(&ep->life, VERBS_HEARD_FIRST_MESSAGE, 0);
		break;
	case IBV_EVENT_QP_FATAL:
		/* siw says so of a stream that broke in the middle, as when its peer is killed. */
		verbs_life_fault(&ep->life, iwarp ? -XP_E_PEER_GONE : -XP_E_DEVICE);
		break;
	/* The peer broke the rules, or the transport: the QP is in ERR. */
	case IBV_EVENT_QP_REQ_ERR:
	case IBV_EVENT_QP_ACCESS_ERR:
		verbs_life_fault(&ep->life, -XP_E_PEER_GONE);
		break;
	default: /* SQ_DRAINED, PATH_MIG, QP_LAST_WQE_REACHED */
		return;
	}
	verbs_ep_advance(ep);
}

static void cq_event(struct ibv_cq *cq)
{
	struct fabric_ep *ep = cq->cq_context;

	verbs_life_fault(&ep->life, -XP_E_DEVICE);
	verbs_ep_advance(ep);
}

static bool async_events(struct fabric *f)
{
	for (int i = 0; i < ASYNC_EVENTS; i++) {
		struct ibv_async_event event;
		bool fatal = false;

		if (ibv_get_async_event(f->verbs, &event) < 0)
			return false;
		switch (event.event_type) {
		case IBV_EVENT_QP_FATAL:
		case IBV_EVENT_QP_REQ_ERR:
		case IBV_EVENT_QP_ACCESS_ERR:
		case IBV_EVENT_COMM_EST:
			qp_event(event.element.qp, event.event_type);
			break;
		case IBV_EVENT_CQ_ERR:
			cq_event(event.element.cq);
			break;
		case IBV_EVENT_DEVICE_FATAL:
			fatal = true;
			break;
		default: /* of ports, paths and limits: connections live, or end by themselves */
			break;
		}
		/* At once: a job that destroys the QP or the CQ waits for this. */
		ibv_ack_async_event(&event);
		if (fatal) {
			verbs_lost(f, "it reported a fatal error");
			return false;
		}
	}
	return true;
}

/* ---- the turn */

void verbs_wake(struct fabric *f)
{
	if (f->in_progress || f->kicked || f->closed)
		return;
	f->kicked = true;
	f->engine.ops->kick(f->engine.engine);
}

static bool look(struct fabric *f)
{
	struct epoll_event events[SOURCES];
	int n = epoll_wait(f->epoll_fd, events, SOURCES, 0);
	bool more = false;

	for (int i = 0; i < n && !f->lost; i++) {
		/* A descriptor in error is a device that has gone. */
		bool error = (events[i].events & (EPOLLERR | EPOLLHUP)) &&
			     !(events[i].events & EPOLLIN);

		switch ((enum source)events[i].data.u32) {
		case SOURCE_CM:
			more |= verbs_cm_events(f);
			break;
		case SOURCE_CQ:
			more |= verbs_cq_events(f);
			break;
		default:
			more |= async_events(f);
		}
		if (error)
			verbs_lost(f, "its descriptor failed");
	}
	/* What is still to come of a lost device: the ends of its ids. */
	if (f->lost)
		more |= verbs_cm_events(f);
	return more;
}

static void tell(struct fabric *f)
{
	struct xc_list batch, *l;

	xc_list_init(&batch);
	while ((l = xc_list_pop(&f->news)))
		xc_list_append(&batch, l);
	/* An endpoint that is destroyed meanwhile takes itself off this list. */
	while ((l = xc_list_pop(&batch)))
		verbs_ep_tell(xc_container_of(l, struct fabric_ep, news));
}

static bool verbs_progress(struct fabric *f, uint64_t budget_bytes)
{
	bool more;

	(void)budget_bytes; /* the device copies */
	XC_CHECK(f, VERBS_FABRIC_MAGIC);
	xc_assert(!f->in_progress);
	f->in_progress = true;
	f->kicked = false;
	f->turn++;
	more = look(f);
	verbs_cm_ask(f);
	tell(f);
	f->in_progress = false;
	return more || !xc_list_empty(&f->news);
}

static const struct fabric_caps *verbs_get_caps(const struct fabric *f)
{
	XC_CHECK(f, VERBS_FABRIC_MAGIC);
	return &f->caps;
}

static int verbs_fd(const struct fabric *f)
{
	XC_CHECK(f, VERBS_FABRIC_MAGIC);
	return f->epoll_fd;
}

const struct fabric_ops verbs_fabric_ops = {
	.name = "verbs",
	.close = verbs_close,
	.caps = verbs_get_caps,
	.fd = verbs_fd,
	.progress = verbs_progress,
	.poll = verbs_poll,
	.route = verbs_route,
	.region_map = fabric_region_map,
	.slab_map = fabric_slab_map,
	.region_unmap = fabric_region_unmap,
	.copy = fabric_region_copy,
	.pd_alloc = verbs_pd_alloc,
	.pd_free = verbs_pd_free,
	.mr_reg = verbs_mr_reg,
	.mr_dereg = verbs_mr_dereg,
	.mw_alloc = verbs_mw_alloc,
	.mw_dealloc = verbs_mw_dealloc,
	.ep_create = verbs_ep_create,
	.ep_connect = verbs_ep_connect,
	.ep_accept = verbs_ep_accept,
	.conn_reject = verbs_conn_reject,
	.ep_disconnect = verbs_ep_disconnect,
	.ep_error = verbs_ep_error,
	.ep_destroy = verbs_ep_destroy,
	.post_send = verbs_post_send,
	.post_recv = verbs_post_recv,
	.listen = verbs_listen,
	.listener_free = verbs_listener_free,
	.measure = verbs_measure,
};
