/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Work requests: posted, run step by step, completed, polled. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "proto/errors.h"
#include "tests/sim/fake_priv.h"

void fake_work_init(struct fake_work *w)
{
	xc_list_init(&w->wrs);
	xc_list_init(&w->cqes);
}

void fake_work_done(struct fake_work *w)
{
	struct xc_list *l;

	while ((l = xc_list_pop(&w->wrs)))
		free(xc_container_of(l, struct fake_wr, link));
	while ((l = xc_list_pop(&w->cqes)))
		free(xc_container_of(l, struct fake_cqe, link));
}

static bool uses(const struct fake_work *w, uint32_t lkey)
{
	struct fake_wr *wr;

	xc_list_for_each(wr, (struct xc_list *)(uintptr_t)&w->wrs, link)
		for (int i = 0; i < wr->n_sge; i++)
			if (wr->sge[i].lkey == lkey)
				return true;
	return false;
}

bool fake_ep_uses(const struct fabric_ep *ep, uint32_t lkey)
{
	return uses(&ep->send, lkey) || uses(&ep->recv, lkey);
}

static struct fake_wr *next_wr(const struct fake_work *w)
{
	struct fake_wr *wr;

	xc_list_for_each(wr, (struct xc_list *)(uintptr_t)&w->wrs, link)
		if (!wr->executed)
			return wr;
	return NULL;
}

/* ---- posting */

static bool overlaps(const struct ibv_sge *a, const struct ibv_sge *b)
{
	return a->lkey == b->lkey && a->addr < b->addr + b->length && b->addr < a->addr + a->length;
}

/* A place in a slab belongs to one request at a time. */
static void check_place(const struct fake_work *work, const struct ibv_sge *sge)
{
	struct fake_wr *wr;

	xc_list_for_each(wr, (struct xc_list *)(uintptr_t)&work->wrs, link)
		for (int i = 0; i < wr->n_sge; i++)
			sim_check(!overlaps(sge, &wr->sge[i]), "data",
				  "a place in a slab is given out twice");
}

static void check_sges(struct fabric_ep *ep, const struct ibv_sge *sge, int n, int access)
{
	for (int i = 0; i < n; i++) {
		struct fake_mr *mr = fake_mr_by_lkey(ep->o.f, sge[i].lkey);
		uint64_t at;

		sim_check(sge[i].length, "fabric.h", "a piece of 0 bytes reaches the device");
		sim_check(mr && !mr->going, "I3",
			  "a request names a registration that is not there");
		sim_check(mr->pd == ep->attr.pd, "I5", "a request names a key of another domain");
		at = sge[i].addr - (uintptr_t)mr->mr.addr;
		sim_check(sge[i].addr >= (uintptr_t)mr->mr.addr && at <= mr->mr.length &&
				  sge[i].length <= mr->mr.length - at,
			  "I1", "a piece lies beyond its registration");
		sim_check((mr->access & access) == access, "fabric.h",
			  "a registration lacks access %#x", access & ~mr->access);
		if (mr->ranges[0].region->fd < 0) {
			check_place(&ep->send, &sge[i]);
			check_place(&ep->recv, &sge[i]);
		}
	}
}

static struct fake_wr *copy_wr(uint64_t wr_id, const struct ibv_sge *sge, int n)
{
	struct fake_wr *w = calloc(1, sizeof(*w) + (size_t)n * sizeof(*sge));

	w->wr.wr_id = wr_id;
	w->n_sge = n;
	for (int i = 0; i < n; i++) {
		w->sge[i] = sge[i];
		w->total += sge[i].length;
	}
	return w;
}

static void append(struct fabric_ep *ep, struct fake_work *work, struct fake_wr *w)
{
	w->seq = work->posted++;
	xc_list_append(&work->wrs, &w->link);
	ep->o.f->engine.ops->kick(ep->o.f->engine.engine);
}

int fake_post_recv(struct fabric_ep *ep, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad_wr)
{
	struct fabric *f;

	fake_object_use(&ep->o, FAKE_EP, "post_recv");
	f = ep->o.f;
	sim_check(!ep->user_error, "I3", "post_recv after ep_error");
	for (; wr; wr = wr->next) {
		struct fake_wr *w;

		*bad_wr = wr;
		if (fake_lost(f))
			return -EIO;
		if (fake_dice(f, f->options.dice.recv_fail))
			return -ENOMEM;
		sim_check(ep->recv.posted - ep->recv.retired < ep->attr.max_recv_wr, "fabric.h",
			  "more than %u receives", ep->attr.max_recv_wr);
		sim_check(wr->num_sge >= 0 && (uint32_t)wr->num_sge <= ep->attr.max_recv_sge,
			  "fabric.h", "a receive of %d pieces", wr->num_sge);
		check_sges(ep, wr->sg_list, wr->num_sge, IBV_ACCESS_LOCAL_WRITE);
		w = copy_wr(wr->wr_id, wr->sg_list, wr->num_sge);
		append(ep, &ep->recv, w);
	}
	return 0;
}

static void check_bind(struct fabric_ep *ep, struct ibv_send_wr *wr, struct fake_wr *w)
{
	struct fake_mw *mw = fake_mw_of(wr->bind_mw.mw);
	const struct ibv_mw_bind_info *info = &wr->bind_mw.bind_info;
	struct fake_mr *mr = xc_container_of(info->mr, struct fake_mr, mr);
	uint64_t base;

	fake_object_use(&mr->o, FAKE_MR, "BIND_MW");
	base = (uintptr_t)mr->mr.addr;
	sim_check(!mr->coming && !mr->going, "fabric.h", "a bind to a registration under way");
	sim_check(mw->pd == ep->attr.pd && mr->pd == ep->attr.pd, "I5", "a bind across domains");
	sim_check(wr->bind_mw.rkey == ibv_inc_rkey(mw->key), "fabric.h", "a bind with a stale key");
	sim_check(mr->access & IBV_ACCESS_MW_BIND, "fabric.h", "a bind to what allows none");
	sim_check(info->length && info->addr >= base && info->addr - base <= mr->mr.length &&
			  info->length <= mr->mr.length - (info->addr - base),
		  "I1", "a window beyond its registration");
	sim_check(!(info->mw_access_flags & IBV_ACCESS_REMOTE_WRITE) ||
			  mr->access & IBV_ACCESS_LOCAL_WRITE,
		  "fabric.h", "a writable window on a read-only registration");
	w->mw = mw;
}

/*
 * On a device that sends short pieces wrongly: what a READ asks for must not lie in two pages, and
 * where it says so of READs, and all is sent out of slabs, nor must what is sent.
 */
static void check_short(const struct fabric_caps *c, const struct ibv_send_wr *wr, uint64_t total)
{
	uint64_t at = wr->wr.rdma.remote_addr;

	if (!c->short_read_in_page || total > FABRIC_SHORT_BYTES || wr->num_sge < 1)
		return;
	if (wr->opcode != IBV_WR_RDMA_READ) {
		if (c->keys != FABRIC_KEYS_SLAB)
			return;
		at = wr->sg_list[0].addr;
	}
	sim_check(at % FABRIC_PAGE_BYTES + total <= FABRIC_PAGE_BYTES, "data",
		  "%llu bytes across the end of a page", (unsigned long long)total);
}

static void check_inline(const struct fabric_caps *c, const struct ibv_send_wr *wr, uint64_t total)
{
	sim_check(total <= c->max_inline && c->max_inline, "fabric.h",
		  "%llu bytes inline, %u are allowed", (unsigned long long)total, c->max_inline);
	sim_check(wr->opcode != IBV_WR_RDMA_READ, "fabric.h", "a READ with inline data");
	for (int i = 0; i < wr->num_sge; i++)
		sim_check(wr->sg_list[i].length, "fabric.h", "a piece of 0 bytes inline");
}

/* As it is now, whatever becomes of the memory that it is in. */
static struct fake_wr *copy_inline(const struct ibv_send_wr *wr)
{
	struct fake_wr *w = calloc(1, sizeof(*w));

	w->is_inline = true;
	for (int i = 0; i < wr->num_sge; i++) {
		memcpy(w->data + w->total, (const void *)(uintptr_t)wr->sg_list[i].addr,
		       wr->sg_list[i].length);
		w->total += wr->sg_list[i].length;
	}
	return w;
}

static void check_send(struct fabric_ep *ep, struct ibv_send_wr *wr)
{
	const struct fabric_caps *c = &ep->o.f->options.caps;
	uint32_t most = ep->attr.max_send_sge;
	uint64_t total = 0;
	int access = 0;

	if (wr->opcode == IBV_WR_RDMA_READ) {
		most = c->max_sge_rd;
		access = IBV_ACCESS_LOCAL_WRITE;
		if (c->read_sink_remote_write)
			access |= IBV_ACCESS_REMOTE_WRITE;
	}
	sim_check(wr->num_sge >= 0 && (uint32_t)wr->num_sge <= most, "fabric.h",
		  "a request of %d pieces, %u are allowed", wr->num_sge, most);
	for (int i = 0; i < wr->num_sge; i++)
		total += wr->sg_list[i].length;
	sim_check(total <= c->max_message_bytes, "fabric.h", "a request of %llu bytes",
		  (unsigned long long)total);
	if (!(wr->send_flags & IBV_SEND_INLINE))
		check_short(c, wr, total);
	sim_check(c->immediate || (wr->opcode != IBV_WR_SEND_WITH_IMM &&
				   wr->opcode != IBV_WR_RDMA_WRITE_WITH_IMM),
		  "fabric.h", "immediate data where it never completes");
	sim_check(c->remote_invalidate || wr->opcode != IBV_WR_SEND_WITH_INV, "fabric.h",
		  "remote invalidation where there is none");
	if (wr->send_flags & IBV_SEND_INLINE)
		check_inline(c, wr, total);
	else
		check_sges(ep, wr->sg_list, wr->num_sge, access);
}

static void check_chain(struct fabric_ep *ep, const struct ibv_send_wr *wr)
{
	for (; wr->next; wr = wr->next)
		sim_check(!ep->o.f->options.caps.signal_all || wr->send_flags & IBV_SEND_SIGNALED,
			  "fabric.h", "a request that is not signalled");
	sim_check(wr->send_flags & IBV_SEND_SIGNALED, "fabric.h",
		  "a chain whose last request is not signalled");
}

int fake_post_send(struct fabric_ep *ep, struct ibv_send_wr *wr, struct ibv_send_wr **bad_wr)
{
	struct fabric *f;

	fake_object_use(&ep->o, FAKE_EP, "post_send");
	f = ep->o.f;
	sim_check(!ep->user_error, "I3", "post_send after ep_error");
	sim_check(wr, "fabric.h", "an empty chain");
	check_chain(ep, wr);
	for (; wr; wr = wr->next) {
		struct fake_wr *w;

		*bad_wr = wr;
		if (fake_lost(f))
			return -EIO;
		if (ep->state == FAKE_IDLE || ep->state == FAKE_CONNECTING)
			return -ENOTCONN;
		if (ep->state == FAKE_ERROR && fake_dice(f, 500))
			return -ENOTCONN;
		if (fake_dice(f, f->options.dice.post_fail))
			return -ENOMEM;
		sim_check(ep->send.posted - ep->send.retired < ep->attr.max_send_wr, "fabric.h",
			  "more than %u sends", ep->attr.max_send_wr);
		if (wr->opcode == IBV_WR_BIND_MW || wr->opcode == IBV_WR_LOCAL_INV) {
			w = copy_wr(wr->wr_id, NULL, 0);
		} else {
			check_send(ep, wr);
			w = wr->send_flags & IBV_SEND_INLINE
				    ? copy_inline(wr)
				    : copy_wr(wr->wr_id, wr->sg_list, wr->num_sge);
		}
		w->wr = *wr;
		if (wr->opcode == IBV_WR_BIND_MW)
			check_bind(ep, wr, w);
		append(ep, &ep->send, w);
	}
	return 0;
}

/* ---- completing */

static struct ibv_wc *complete(struct fabric_ep *ep, struct fake_work *work, struct fake_wr *wr,
			       enum ibv_wc_status status)
{
	struct fabric *f = ep->o.f;
	struct fake_cqe *c;

	wr->executed = true;
	f->executed++;
	ep->rnr = 0;
	if (!status && work == &ep->send && !(wr->wr.send_flags & IBV_SEND_SIGNALED))
		return NULL;
	c = calloc(1, sizeof(*c));
	c->seq = wr->seq;
	c->wc.wr_id = wr->wr.wr_id;
	c->wc.status = status;
	c->wc.qp_num = ep->attr.qp_num;
	if (status) {
		/* Only these are valid then, says ibv_poll_cq(3): let the rest be misleading. */
		c->wc.opcode =
			(enum ibv_wc_opcode)(sim_below(&f->rng, 2) ? IBV_WC_RECV : IBV_WC_SEND);
		c->wc.byte_len = sim_below(&f->rng, UINT32_MAX);
		c->wc.wc_flags = IBV_WC_WITH_INV | IBV_WC_WITH_IMM;
		c->wc.vendor_err = 0xdead;
	} else {
		c->wc.byte_len = (uint32_t)wr->total;
	}
	xc_list_append(&work->cqes, &c->link);
	return &c->wc;
}

static void send_done(struct fabric_ep *ep, struct fake_wr *wr, enum ibv_wc_opcode opcode)
{
	struct ibv_wc *wc = complete(ep, &ep->send, wr, IBV_WC_SUCCESS);

	if (wc)
		wc->opcode = opcode;
	if (ep->stall_after && !--ep->stall_after) {
		ep->stalled = true;
		fake_excuse(ep, "it stalled");
		if (ep->peer)
			fake_excuse(ep->peer, "its peer stalled");
	}
	if (ep->vanish_after && !--ep->vanish_after)
		fake_ep_break(ep, -XP_E_PEER_GONE, "its peer vanished");
}

/* The refusal of a peer that answers nothing comes later, as the end of the connection. */
static bool unheard(const struct fabric_ep *ep, const struct fake_wr *wr, enum ibv_wc_status status)
{
	return !ep->o.f->options.caps.acknowledged && wr->wr.opcode != IBV_WR_RDMA_READ &&
	       status != IBV_WC_LOC_PROT_ERR;
}

/* A request failed: its QP is in error, and so, soon, the peer's. */
static void send_fails(struct fabric_ep *ep, struct fake_wr *wr, enum ibv_wc_status status, int why)
{
	complete(ep, &ep->send, wr, unheard(ep, wr, status) ? IBV_WC_SUCCESS : status);
	fake_ep_break(ep, why, "a request of it failed");
}

static bool flush(struct fabric_ep *ep)
{
	struct fake_wr *s = next_wr(&ep->send), *r = next_wr(&ep->recv);

	if (ep->mute || fake_dice(ep->o.f, ep->o.f->options.dice.flush_late))
		return false;
	if (s && (!r || sim_below(&ep->o.f->rng, 2)))
		complete(ep, &ep->send, s, IBV_WC_WR_FLUSH_ERR);
	else if (r)
		complete(ep, &ep->recv, r, IBV_WC_WR_FLUSH_ERR);
	return s || r;
}

/* ---- moving bytes */

/* Memory at this place of a list of pieces, and how much of it is there. NULL: it faults. */
static uint8_t *piece_at(struct fabric_ep *ep, struct fake_wr *wr, uint64_t at, uint64_t *ret_bytes)
{
	if (wr->is_inline) {
		*ret_bytes = wr->total - at;
		return wr->data + at;
	}
	for (int i = 0; i < wr->n_sge; i++) {
		if (at < wr->sge[i].length) {
			*ret_bytes = wr->sge[i].length - at;
			return fake_local(ep, &wr->sge[i], at, ret_bytes);
		}
		at -= wr->sge[i].length;
	}
	sim_broken("simulation", "no piece at %llu", (unsigned long long)at);
}

static uint64_t quantum(struct fabric_ep *ep, uint64_t left, uint64_t here)
{
	uint64_t n = 1 + sim_below(&ep->o.f->rng, ep->o.f->options.dice.quantum);

	n = n < left ? n : left;
	return n < here ? n : here;
}

static int remote(struct fabric_ep *ep, struct fake_wr *wr, bool read, struct fake_place *ret)
{
	int status;

	if (wr->held) {
		sim_check(!wr->held_region->dead, "I3", "a device reads memory that is gone");
		ret->memory = wr->held + wr->moved;
		ret->bytes = wr->total - wr->moved;
		return 0;
	}
	status = fake_remote(ep->peer, wr->wr.wr.rdma.rkey, wr->wr.wr.rdma.remote_addr, wr->total,
			     read ? IBV_ACCESS_REMOTE_READ : IBV_ACCESS_REMOTE_WRITE, wr->moved,
			     ret);
	if (!status && read && fake_weak(ep->o.f)) {
		wr->held = ret->memory - wr->moved;
		wr->held_region = ret->region;
	}
	return status;
}

static void write_to(struct fabric_ep *ep, const struct fake_wr *wr, const struct fake_place *at,
		     const uint8_t *from, uint64_t n)
{
	const struct fake_witness *witness = &ep->o.f->options.witness;

	memmove(at->memory, from, n);
	if (at->region->fd < 0 && witness->wrote)
		witness->wrote(witness->ctx, ep->peer->tag, wr->wr.wr.rdma.rkey,
			       at->offset, from, n);
}

/* One quantum of a READ or WRITE. True: nothing is left. */
static bool move_rdma(struct fabric_ep *ep, struct fake_wr *wr, bool read)
{
	uint64_t left = wr->total - wr->moved, here, n;
	struct fake_place at;
	uint8_t *local;
	int status;

	if (!left)
		return true;
	local = piece_at(ep, wr, wr->moved, &here);
	if (!local) {
		send_fails(ep, wr, IBV_WC_LOC_PROT_ERR, -XP_E_BUFFER_FAULT);
		return false;
	}
	n = quantum(ep, left, here);
	/*
	 * The whole of it is checked each time: a device may look at the key once or for every
	 * packet.
	 */
	status = remote(ep, wr, read, &at);
	if (status) {
		send_fails(ep, wr, (enum ibv_wc_status)status, -XP_E_REMOTE_ACCESS);
		return false;
	}
	n = n < at.bytes ? n : at.bytes;
	if (read)
		memmove(local, at.memory, n);
	else
		write_to(ep, wr, &at, local, n);
	wr->moved += n;
	return wr->moved == wr->total;
}

static bool not_ready(struct fabric_ep *ep, struct fake_wr *wr)
{
	if (!ep->o.f->options.caps.receiver_not_ready ||
	    ++ep->rnr > ep->o.f->options.dice.rnr_turns)
		send_fails(ep, wr, IBV_WC_RNR_RETRY_EXC_ERR, -XP_E_RECEIVER_NOT_READY);
	return true;
}

static bool step_read(struct fabric_ep *ep, struct fake_wr *wr)
{
	if (move_rdma(ep, wr, true))
		send_done(ep, wr, IBV_WC_RDMA_READ);
	return true;
}

static void arrives(struct fabric_ep *peer, struct fake_wr *recv, const struct fake_wr *wr,
		    enum ibv_wc_opcode opcode)
{
	struct ibv_wc *wc = complete(peer, &peer->recv, recv, IBV_WC_SUCCESS);
	const struct fake_witness *witness = &peer->o.f->options.witness;

	if (witness->arrived)
		witness->arrived(witness->ctx, peer->tag);
	wc->opcode = opcode;
	wc->byte_len = (uint32_t)wr->total;
	if (wr->wr.opcode == IBV_WR_SEND_WITH_IMM || wr->wr.opcode == IBV_WR_RDMA_WRITE_WITH_IMM) {
		wc->wc_flags |= IBV_WC_WITH_IMM;
		wc->imm_data = wr->wr.imm_data;
	}
	if (wr->wr.opcode == IBV_WR_SEND_WITH_INV) {
		wc->wc_flags |= IBV_WC_WITH_INV;
		wc->invalidated_rkey = wr->wr.invalidate_rkey;
	}
}

static bool step_write(struct fabric_ep *ep, struct fake_wr *wr)
{
	struct fabric_ep *peer = ep->peer;

	if (!move_rdma(ep, wr, false))
		return true;
	if (wr->wr.opcode == IBV_WR_RDMA_WRITE_WITH_IMM) {
		struct fake_wr *recv = next_wr(&peer->recv);

		if (!recv)
			return not_ready(ep, wr);
		arrives(peer, recv, wr, IBV_WC_RECV_RDMA_WITH_IMM);
	}
	send_done(ep, wr, IBV_WC_RDMA_WRITE);
	return true;
}

static bool invalidates(struct fabric_ep *ep, struct fake_wr *wr)
{
	struct fake_mw *mw = fake_mw_by_rkey(ep->peer, wr->wr.invalidate_rkey);

	if (!mw || !mw->live) {
		send_fails(ep, wr, IBV_WC_REM_ACCESS_ERR, -XP_E_REMOTE_ACCESS);
		return false;
	}
	fake_mw_unbind(mw);
	return true;
}

static bool too_long(struct fabric_ep *ep, struct fake_wr *wr, struct fake_wr *recv)
{
	if (wr->total <= recv->total)
		return false;
	complete(ep->peer, &ep->peer->recv, recv, IBV_WC_LOC_LEN_ERR);
	send_fails(ep, wr, IBV_WC_REM_INV_REQ_ERR, -XP_E_MESSAGE_TOO_LONG);
	return true;
}

static bool step_send(struct fabric_ep *ep, struct fake_wr *wr)
{
	struct fabric_ep *peer = ep->peer;
	struct fake_wr *recv = next_wr(&peer->recv);
	uint64_t left = wr->total - wr->moved, here, there, n;
	uint8_t *from, *to;

	if (!recv)
		return not_ready(ep, wr);
	if (too_long(ep, wr, recv))
		return true;
	if (left) {
		from = piece_at(ep, wr, wr->moved, &here);
		to = from ? piece_at(peer, recv, wr->moved, &there) : NULL;
		if (!from || !to) {
			if (from)
				complete(peer, &peer->recv, recv, IBV_WC_LOC_PROT_ERR);
			send_fails(ep, wr, from ? IBV_WC_REM_OP_ERR : IBV_WC_LOC_PROT_ERR,
				   -XP_E_REMOTE_FAULT);
			return true;
		}
		n = quantum(ep, left, here < there ? here : there);
		memmove(to, from, n);
		wr->moved += n;
		if (wr->moved < wr->total)
			return true;
	}
	if (wr->wr.opcode == IBV_WR_SEND_WITH_INV && !invalidates(ep, wr))
		return true;
	arrives(peer, recv, wr, IBV_WC_RECV);
	send_done(ep, wr, IBV_WC_SEND);
	return true;
}

static bool step_bind(struct fabric_ep *ep, struct fake_wr *wr)
{
	struct fake_mw *mw = wr->mw;
	const struct ibv_mw_bind_info *info = &wr->wr.bind_mw.bind_info;

	fake_object_use(&mw->o, FAKE_MW, "a bind under way");
	sim_check(!mw->live && !mw->mr, "fabric.h", "a bind of a window that is bound");
	mw->mr = xc_container_of(info->mr, struct fake_mr, mr);
	fake_object_use(&mw->mr->o, FAKE_MR, "a bind under way");
	mw->mr->windows++;
	mw->ep = ep;
	mw->key = mw->bound_key = wr->wr.bind_mw.rkey;
	mw->iova = info->addr;
	mw->length = info->length;
	mw->access = (int)info->mw_access_flags;
	mw->live = true;
	send_done(ep, wr, IBV_WC_BIND_MW);
	return true;
}

static bool step_local_inv(struct fabric_ep *ep, struct fake_wr *wr)
{
	struct fake_mw *mw = fake_mw_by_rkey(ep, wr->wr.invalidate_rkey);

	/* One that the peer invalidated first, or that dealloc_mw overtook, is no error. */
	if (mw && mw->live)
		fake_mw_unbind(mw);
	send_done(ep, wr, IBV_WC_LOCAL_INV);
	return true;
}

bool fake_ep_works(const struct fabric_ep *ep)
{
	if (ep->state == FAKE_ERROR || ep->state == FAKE_DESTROYING)
		return !ep->mute && (next_wr(&ep->send) || next_wr(&ep->recv));
	return ep->state == FAKE_UP && ep->peer && ep->peer->state == FAKE_UP && !ep->stalled &&
	       next_wr(&ep->send);
}

bool fake_ep_step(struct fabric_ep *ep)
{
	struct fake_wr *wr;

	if (ep->state != FAKE_UP)
		return flush(ep);
	wr = next_wr(&ep->send);
	switch (wr->wr.opcode) {
	case IBV_WR_RDMA_READ:
		return step_read(ep, wr);
	case IBV_WR_RDMA_WRITE:
	case IBV_WR_RDMA_WRITE_WITH_IMM:
		return step_write(ep, wr);
	case IBV_WR_SEND:
	case IBV_WR_SEND_WITH_IMM:
	case IBV_WR_SEND_WITH_INV:
		return step_send(ep, wr);
	case IBV_WR_BIND_MW:
		return step_bind(ep, wr);
	case IBV_WR_LOCAL_INV:
		return step_local_inv(ep, wr);
	default:
		sim_broken("fabric.h", "a request of opcode %d", (int)wr->wr.opcode);
	}
}

/* ---- polling */

static void retire(struct fake_work *w, uint64_t seq)
{
	struct fake_wr *wr;

	xc_list_for_each(wr, &w->wrs, link) {
		if (wr->seq > seq)
			break;
		xc_list_remove(&wr->link);
		free(wr);
	}
	w->retired = seq + 1;
}

static struct fake_work *pick_work(struct fabric *f)
{
	struct fake_work *chosen = NULL;
	struct fabric_ep *ep;
	uint32_t n = 0;

	xc_list_for_each(ep, &f->eps, o.link) {
		if (!xc_list_empty(&ep->send.cqes) && !sim_below(&f->rng, ++n))
			chosen = &ep->send;
		if (!xc_list_empty(&ep->recv.cqes) && !sim_below(&f->rng, ++n))
			chosen = &ep->recv;
	}
	return chosen;
}

int fake_poll(struct fabric *f, int n, struct ibv_wc *wc)
{
	int got = 0;

	fake_object_use(&f->o, FAKE_FABRIC, "poll");
	while (got < n && !fake_dice(f, f->options.dice.cqe_late)) {
		struct fake_work *w = pick_work(f);
		struct fake_cqe *c;

		if (!w)
			break;
		c = xc_list_first(&w->cqes, struct fake_cqe, link);
		xc_list_remove(&c->link);
		wc[got++] = c->wc;
		retire(w, c->seq);
		free(c);
	}
	return got;
}
