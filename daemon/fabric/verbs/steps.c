/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include <errno.h>
#include <netinet/in.h>
#include <string.h>

#include "common/assert.h"
#include "common/checked.h"
#include "daemon/fabric/verbs/private.h"
#include "proto/errors.h"

/*
 * The steps of an endpoint (life.h), on a helper thread.
 *
 * The QP is made by ibv_create_qp() and not by rdma_create_qp(): an endpoint takes RECVs before it
 * is known whom it connects to or which request it answers, and librdmacm makes QPs for ids that
 * have a device. So the QP's states are ours to change, with the attributes from
 * rdma_init_qp_attr(), and librdmacm gets its number alone; see qp_num in rdma_connect(3), and
 * rdma_establish(3). It also means that no QP is modified inside rdma_get_cm_event(), on the
 * engine's thread.
 */

#define ADDRESS_MS 5000
#define ROUTE_MS 5000
#define RETRY_COUNT 7
/* 7 would be "for ever": a peer without RECVs would hold its sender as long as it likes. */
#define RNR_RETRY_COUNT 6
/* 81.92 ms between those (IBTA table 45): with six of them half a second, as in the iwarp fabric */
#define MIN_RNR_TIMER 26
/*
 * Older kernels set these bits of the mask for RoCE's addresses, where InfiniBand links, too, and
 * libibverbs refuses them there; see librdmacm's ucma_modify_qp_rtr().
 */
#define ROCE_MASK 0xe00000

static int negative_errno(void)
{
	return errno > 0 ? -errno : -EIO;
}

/* ---- CREATE */

static int create_qp(struct fabric_ep *ep)
{
	struct ibv_qp_init_attr init = {
		.qp_context = ep,
		.send_cq = ep->cq,
		.recv_cq = ep->cq,
		.qp_type = IBV_QPT_RC,
		.cap = {
			.max_send_wr = ep->attr.max_send_wr,
			.max_recv_wr = ep->attr.max_recv_wr,
			.max_send_sge = ep->attr.max_send_sge,
			.max_recv_sge = ep->attr.max_recv_sge,
			.max_inline_data = ep->fabric->caps.max_inline,
		},
	};

	errno = 0;
	ep->qp = ibv_create_qp(ep->pd->pd, &init);
	return ep->qp ? 0 : negative_errno();
}

/* The state in which RECVs can be posted. */
static int to_init(struct fabric_ep *ep)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT,
		.port_num = ep->fabric->port,
		.qp_access_flags = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE,
	};
	int mask = IBV_QP_STATE | IBV_QP_ACCESS_FLAGS;

	if (!ep->fabric->iwarp)
		mask |= IBV_QP_PKEY_INDEX | IBV_QP_PORT;
	return -ibv_modify_qp(ep->qp, &attr, mask);
}

static void undo_create(struct fabric_ep *ep)
{
	if (ep->qp)
		ibv_destroy_qp(ep->qp);
	if (ep->cq)
		ibv_destroy_cq(ep->cq);
	ep->qp = NULL;
	ep->cq = NULL;
}

static int create(struct fabric_ep *ep)
{
	struct fabric *f = ep->fabric;
	int err;

	errno = 0;
	ep->cq = ibv_create_cq(f->verbs, (int)ep->cq_size, ep, f->channel, 0);
	if (!ep->cq)
		return negative_errno();
	err = -ibv_req_notify_cq(ep->cq, 0);
	if (!err)
		err = create_qp(ep);
	if (!err)
		err = to_init(ep);
	if (err)
		undo_create(ep);
	return err;
}

/* ---- connecting */

/* From an address of this device, whatever the host's route begins with. */
static int choose_source(struct fabric_ep *ep, struct xc_addr *ret)
{
	struct fabric *f = ep->fabric;
	struct xc_addr own[VERBS_ADDRESSES_MAX];
	int n;

	if (fabric_source(&ep->dst, ret) == 0 && verbs_owns(f->verbs, f->cm, ret))
		return 0;
	n = verbs_addresses(f->verbs, f->cm, ep->dst.family, own, VERBS_ADDRESSES_MAX);
	if (n <= 0)
		return n < 0 ? n : -EADDRNOTAVAIL;
	*ret = own[0];
	return 0;
}

static int resolve_address(struct fabric_ep *ep)
{
	struct sockaddr_storage from, to;
	struct xc_addr source;
	int err = choose_source(ep, &source);

	if (err)
		return err;
	if (rdma_create_id(ep->fabric->cm, &ep->id, &ep->target, RDMA_PS_TCP) < 0) {
		ep->id = NULL;
		return negative_errno();
	}
	fabric_to_sockaddr(&source, &from);
	fabric_to_sockaddr(&ep->dst, &to);
	if (rdma_resolve_addr(ep->id, (struct sockaddr *)&from, (struct sockaddr *)&to,
			      ADDRESS_MS) < 0)
		return negative_errno();
	return 0;
}

static int resolve_route(struct fabric_ep *ep)
{
	if (ep->id->verbs != ep->fabric->verbs)
		return -ENETUNREACH; /* the address has moved to another device */
	return rdma_resolve_route(ep->id, ROUTE_MS) < 0 ? negative_errno() : 0;
}

static struct rdma_conn_param connection_param(struct fabric_ep *ep)
{
	return (struct rdma_conn_param){
		.private_data = ep->sent,
		.private_data_len = ep->sent_bytes,
		.responder_resources = ep->responder_resources,
		.initiator_depth = ep->initiator_depth,
		.flow_control = 1,
		.retry_count = RETRY_COUNT,
		.rnr_retry_count = RNR_RETRY_COUNT,
		.qp_num = ep->qp->qp_num,
	};
}

/* The QP to a state, as this connection wants it. */
static int to_state(struct fabric_ep *ep, enum ibv_qp_state state)
{
	struct ibv_qp_attr attr = { .qp_state = state };
	int mask;

	if (rdma_init_qp_attr(ep->id, &attr, &mask) < 0)
		return negative_errno();
	if (ep->fabric->infiniband)
		mask &= ~ROCE_MASK;
	switch (state) {
	case IBV_QPS_INIT: /* the port and the partition may be others than CREATE thought */
		mask |= IBV_QP_ACCESS_FLAGS;
		attr.qp_access_flags = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE;
		break;
	case IBV_QPS_RTR:
		attr.min_rnr_timer = MIN_RNR_TIMER;
		attr.max_dest_rd_atomic = ep->responder_resources;
		break;
	default:
		attr.max_rd_atomic = ep->initiator_depth;
	}
	return -ibv_modify_qp(ep->qp, &attr, mask);
}

static int to_ready(struct fabric_ep *ep)
{
	int err = to_state(ep, IBV_QPS_RTR);

	return err ? err : to_state(ep, IBV_QPS_RTS);
}

static int connect_step(struct fabric_ep *ep)
{
	struct rdma_conn_param param = connection_param(ep);
	int err = 0;

	if (!ep->fabric->iwarp)
		err = to_state(ep, IBV_QPS_INIT);
	return err ? err : verbs_patient_connect(&ep->patience, ep->id, &param);
}

static int establish(struct fabric_ep *ep)
{
	int err = to_ready(ep);

	if (err)
		return err;
	return rdma_establish(ep->id) < 0 ? negative_errno() : 0;
}

static int accept_step(struct fabric_ep *ep)
{
	struct rdma_conn_param param = connection_param(ep);
	int err = 0;

	if (!ep->fabric->iwarp) {
		err = to_state(ep, IBV_QPS_INIT);
		if (!err)
			err = to_ready(ep);
	}
	if (!err && rdma_accept(ep->id, &param) < 0)
		err = negative_errno();
	/*
	 * What befell the request before it was accepted (its sender gave up) the kernel tells by
	 * refusing these.
	 */
	return err == -EINVAL || err == -ENOTCONN || err == -ECONNRESET ? -XP_E_PEER_GONE : err;
}

static int notify(struct fabric_ep *ep)
{
	return rdma_notify(ep->id, IBV_EVENT_COMM_EST) < 0 ? negative_errno() : 0;
}

/* ---- ending */

static void hang_up(struct fabric_ep *ep)
{
	if (!ep->id)
		return;
	/* Where it is no longer connected this fails, and is none the worse for it. */
	if (ep->linked)
		rdma_disconnect(ep->id);
	if (ep->linked || ep->half || ep->fabric->iwarp)
		return;
	/*
	 * An attempt in InfiniBand is given up by the id alone: as long as that lives, a peer that
	 * accepts waits for the end of the handshake. In iWARP disconnecting and destroying it wait
	 * for the peer's answer (on siw, for at most 10 s), which will find the QP in ERR: that is
	 * left to DESTROY.
	 */
	rdma_destroy_id(ep->id);
	ep->id = NULL;
}

static int stop(struct fabric_ep *ep)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };
	/* siw forgets READs that wait for their answer when it disconnects before. */
	bool first = ep->fabric->iwarp && ep->orderly &&
		     strcmp(ep->fabric->caps.driver, "siw") != 0;
	int err;

	/* In iWARP this ends the stream in order; a QP in ERR just drops it (RFC 5040 6). */
	if (first)
		hang_up(ep);
	err = -ibv_modify_qp(ep->qp, &attr, IBV_QP_STATE);
	if (!first)
		hang_up(ep);
	return err;
}

/* The QP before the id, as rdma_destroy_id(3) wants it. */
static int destroy(struct fabric_ep *ep)
{
	int err;

	if (!ep->stopped)
		stop(ep);
	err = ibv_destroy_qp(ep->qp);
	xc_assert(!err || ep->fabric->lost);
	if (ep->id)
		rdma_destroy_id(ep->id);
	err = ibv_destroy_cq(ep->cq);
	xc_assert(!err || ep->fabric->lost);
	return 0;
}

int verbs_step(struct fabric_ep *ep)
{
	static int (*const steps[])(struct fabric_ep *ep) = {
		[VERBS_STEP_CREATE] = create,
		[VERBS_STEP_ADDRESS] = resolve_address,
		[VERBS_STEP_ROUTE] = resolve_route,
		[VERBS_STEP_CONNECT] = connect_step,
		[VERBS_STEP_ESTABLISH] = establish,
		[VERBS_STEP_ACCEPT] = accept_step,
		[VERBS_STEP_NOTIFY] = notify,
		[VERBS_STEP_STOP] = stop,
		[VERBS_STEP_DESTROY] = destroy,
	};

	xc_assert((size_t)ep->step < XC_ARRAY_SIZE(steps) && steps[ep->step]);
	return steps[ep->step](ep);
}
