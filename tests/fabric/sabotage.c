/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "tests/fabric/sabotage.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/assert.h"
#include "daemon/fabric/saboteur.h"
#include "tests/fabric/rig.h"

#define CHAIN_MAX 64
#define SGES_MAX 256
#define EPS_MAX 1024

static const char *fault;
static const struct fabric_ops *real;

void sabotage(const char *name)
{
	fault = name;
#ifdef XD_SABOTEURS
	if (strncmp(name, "iwarp:", 6) == 0)
		fabric_saboteur = name + 6;
#endif
}

bool sabotaged(const char *name)
{
	return fault && strcmp(fault, name) == 0;
}

bool sabotage_is_void(const char *name, bool is_void)
{
	if (!is_void || !sabotaged(name))
		return false;
	report_skip("%s is no fault on such a fabric", name);
	return true;
}

/* ---- calls that may end later: what is done to their result, now or then */

struct later {
	struct fabric_done done;
	struct fabric_done *user;
	/* The result; -EINPROGRESS: it is still not known, and `user` will be called. */
	int (*then)(struct later *l, int status);
	/* of ep_create and ep_destroy */
	struct fabric_ep **ep;
	void *ctx;
	/* of measure */
	struct fabric_costs *costs;
	/* of listen */
	struct fabric *f;
	struct fabric_listener **listener;
	struct xc_addr *at;
};

static void came(struct fabric_done *done, int status)
{
	struct later *l = xc_container_of(done, struct later, done);
	struct fabric_done *user = l->user;

	status = l->then(l, status);
	free(l);
	if (status != -EINPROGRESS)
		user->fn(user, status);
}

static struct later *expect(const struct later *what)
{
	struct later *l = malloc(sizeof(*l));

	xc_assert(l);
	*l = *what;
	l->done.fn = came;
	return l;
}

/* The call returned this. */
static int settle(struct later *l, int err)
{
	if (err == -EINPROGRESS)
		return err;
	err = l->then(l, err);
	free(l);
	return err;
}

/* ---- what an instance says of itself */

static const struct fabric_caps *caps(const struct fabric *f)
{
	static struct fabric_caps lie[ENGINE_FABRICS];
	static int n;
	struct fabric_caps *c = &lie[n++ % ENGINE_FABRICS];

	*c = *real->caps(f);
	if (sabotaged("odd-caps"))
		c->private_connect_bytes = 10;
	if (sabotaged("claim-immediate"))
		c->immediate = !c->immediate;
	if (sabotaged("claim-no-invalidate"))
		c->remote_invalidate = false;
	if (sabotaged("claim-rnr"))
		c->receiver_not_ready = !c->receiver_not_ready;
	return c;
}

static int route(struct fabric *f, const struct xc_addr *dst, char *ret_why, size_t size)
{
	if (!sabotaged("route-anywhere"))
		return real->route(f, dst, ret_why, size);
	return 0;
}

/* ---- endpoints */

static struct {
	struct fabric_ep *ep;
	struct end *end;
} eps[EPS_MAX];

static void kick(void)
{
	struct xd_engine_ref e = engine_ref(rig.engine);

	e.ops->kick(e.engine);
}

static unsigned int created;
static struct end *destroyed; /* of which nothing should be heard any more */

static void remember(struct fabric_ep *ep, void *ctx)
{
	for (int i = 0; i < EPS_MAX; i++) {
		if (eps[i].ep)
			continue;
		eps[i].ep = ep;
		eps[i].end = ctx;
		return;
	}
}

static struct end *forget(const struct fabric_ep *ep)
{
	for (int i = 0; i < EPS_MAX; i++) {
		if (eps[i].ep != ep)
			continue;
		eps[i].ep = NULL;
		return eps[i].end;
	}
	return NULL;
}

static void *idle_thread(void *arg)
{
	pause();
	return arg;
}

static void leak_thread(void)
{
	pthread_t t;

	xc_assert(pthread_create(&t, NULL, idle_thread, NULL) == 0);
	pthread_detach(t);
}

static int was_created(struct later *l, int err)
{
	if (!err)
		remember(*l->ep, l->ctx);
	return err;
}

static int ep_create(struct fabric *f, const struct fabric_ep_attr *attr,
		     struct fabric_done *done, struct fabric_ep **ret)
{
	struct later *l;

	created++;
	if (sabotaged("few-endpoints") && created > 40)
		return -ENOSPC;
	if (sabotaged("leak-fd"))
		xc_assert(open("/dev/null", O_RDONLY | O_CLOEXEC) >= 0);
	if (sabotaged("leak-thread") && created % 100 == 99)
		leak_thread();
	l = expect(&(struct later){ .user = done, .then = was_created, .ep = ret,
				    .ctx = attr->ctx });
	return settle(l, real->ep_create(f, attr, &l->done, ret));
}

static int ep_destroy(struct fabric_ep *ep, struct fabric_done *done)
{
	if (sabotaged("endless-destroy"))
		return -EINPROGRESS;
	destroyed = forget(ep);
	kick();
	return real->ep_destroy(ep, done);
}

static void ep_disconnect(struct fabric_ep *ep)
{
	if (sabotaged("hasty-disconnect"))
		real->ep_error(ep);
	else
		real->ep_disconnect(ep);
}

static bool progress(struct fabric *f, uint64_t budget_bytes)
{
	bool more = real->progress(f, budget_bytes);

	if (destroyed && (sabotaged("late-event") || sabotaged("late-write") ||
			  sabotaged("late-wc"))) {
		/* until its end is known */
		kick();
		if (destroyed->dead && sabotaged("late-event"))
			rig_events.disconnected(destroyed, 0);
		if (destroyed->dead && sabotaged("late-write"))
			destroyed->mem[5] = 1;
	}
	return more || sabotaged("never-sleep");
}

/* ---- connecting */

static bool connected_once, listener_gone;
static struct fabric_conn *spent;

static size_t data_bytes(size_t bytes, size_t limit)
{
	if (sabotaged("clamp-private-data") && bytes >= limit)
		return limit - 1;
	if (sabotaged("too-much-private-data") && bytes > limit)
		return limit;
	return bytes;
}

static int ep_connect(struct fabric_ep *ep, const struct xc_addr *dst, const void *data,
		      size_t bytes)
{
	int err;

	connected_once = true;
	err = real->ep_connect(ep, dst, data, data_bytes(bytes, rig.caps->private_connect_bytes));
	return sabotaged("reconnect") ? 0 : err;
}

static int ep_accept(struct fabric_ep *ep, struct fabric_conn *conn, const void *data,
		     size_t bytes)
{
	int err = real->ep_accept(ep, conn, data,
				  data_bytes(bytes, rig.caps->private_accept_bytes));

	if (err)
		spent = conn;
	return err;
}

static void conn_reject(struct fabric_conn *conn, const void *data, size_t bytes)
{
	if ((sabotaged("spend-conn") && conn == spent) ||
	    (sabotaged("spend-conns") && listener_gone))
		return;
	real->conn_reject(conn, data, bytes);
}

static int was_listening(struct later *l, int err)
{
	struct xc_addr elsewhere = rig.server ? rig.server->at : (struct xc_addr){ 0 };

	elsewhere.port = 0;
	if ((err == -EADDRINUSE && sabotaged("share-port")) ||
	    (err == -EADDRNOTAVAIL && rig.server && sabotaged("own-everything")))
		return real->listen(l->f, &elsewhere, OWNER, l->ctx, l->user, l->listener, l->at);
	if (!err && sabotaged("one-port"))
		l->at->port = 50000;
	if (!err && sabotaged("wrong-port"))
		l->at->port ^= 1;
	return err;
}

static int listen(struct fabric *f, const struct xc_addr *at, uint32_t owner, void *ctx,
		  struct fabric_done *done, struct fabric_listener **ret, struct xc_addr *ret_at)
{
	struct later *l = expect(&(struct later){
		.user = done, .then = was_listening, .f = f, .ctx = ctx, .listener = ret,
		.at = ret_at,
	});

	return settle(l, real->listen(f, at, owner, ctx, &l->done, ret, ret_at));
}

static void listener_free(struct fabric_listener *l)
{
	listener_gone = true;
	if (!sabotaged("keep-listener"))
		real->listener_free(l);
}

/* ---- memory */

static int slab_map(uint64_t size_bytes, struct fabric_region **ret, void **ret_memory)
{
	int err = real->slab_map(size_bytes, ret, ret_memory);

	if (!err && sabotaged("dirty-slab"))
		memset(*ret_memory, 1, size_bytes);
	return err;
}

static int pd_alloc(struct fabric *f, uint32_t owner, struct fabric_pd **ret)
{
	static struct fabric_pd *one;
	int err;

	if (one && sabotaged("one-pd")) {
		*ret = one;
		return 0;
	}
	err = real->pd_alloc(f, owner, ret);
	if (!err)
		one = *ret;
	return err;
}

static int mr_reg(struct fabric_pd *pd, struct fabric_region *region, uint64_t offset,
		  uint64_t length, uint64_t iova, int access, struct fabric_done *done,
		  struct ibv_mr **ret_mr)
{
	int err = real->mr_reg(pd, region, offset, length, iova, access, done, ret_mr);

	return err && err != -EINPROGRESS && sabotaged("register-anything") ? 0 : err;
}

static int mr_reg_ranges(struct fabric_pd *pd, const struct fabric_range *ranges, uint32_t n,
			 uint64_t iova, int access, struct fabric_done *done,
			 struct ibv_mr **ret_mr)
{
	int err = real->mr_reg_ranges(pd, ranges, n, iova, access, done, ret_mr);

	return err && err != -EINPROGRESS && sabotaged("register-anything") ? 0 : err;
}

static int was_measured(struct later *l, int err)
{
	if (sabotaged("no-costs"))
		*l->costs = (struct fabric_costs){ 0 };
	if (sabotaged("other-costs"))
		l->costs->wr_ns++;
	return err;
}

static int measure(struct fabric *f, struct fabric_done *done, struct fabric_costs *ret)
{
	struct later *l = expect(&(struct later){ .user = done, .then = was_measured,
						  .costs = ret });

	return settle(l, real->measure(f, &l->done, ret));
}

static int mr_dereg(struct ibv_mr *mr, struct fabric_done *done)
{
	int err;

	if (sabotaged("keep-mr"))
		return 0;
	err = real->mr_dereg(mr, done);
	return err == -EBUSY && sabotaged("never-busy") ? 0 : err;
}

static int mw_dealloc(struct ibv_mw *mw, struct fabric_done *done)
{
	return sabotaged("keep-window") ? 0 : real->mw_dealloc(mw, done);
}

/* ---- work requests: a copy of the chain, changed */

static bool has_data(const struct ibv_send_wr *wr)
{
	return wr->opcode != IBV_WR_LOCAL_INV && wr->opcode != IBV_WR_BIND_MW && wr->num_sge > 0;
}

static bool is_rdma(const struct ibv_send_wr *wr)
{
	return wr->opcode == IBV_WR_RDMA_READ || wr->opcode == IBV_WR_RDMA_WRITE;
}

static int change_list(struct ibv_sge *list, int n, uint32_t max)
{
	if (sabotaged("move-byte"))
		list[0].addr++;
	if (sabotaged("spill"))
		list[n - 1].length++;
	if (sabotaged("short"))
		list[n - 1].length--;
	if (sabotaged("swap-pieces") && n > 1) {
		struct ibv_sge first = list[0];

		list[0] = list[1];
		list[1] = first;
	}
	if (sabotaged("last-piece-lost") && n > 1)
		return n - 1;
	if (sabotaged("cut-lists") && (uint32_t)n > max)
		return 1;
	return n;
}

static void change_remote(struct ibv_send_wr *wr)
{
	static uint64_t last;
	uint64_t end;

	if (!is_rdma(wr))
		return;
	if (sabotaged("unwrap") && !xc_add_u64(wr->wr.rdma.remote_addr, 8, &end))
		wr->wr.rdma.remote_addr = last;
	last = wr->wr.rdma.remote_addr;
	if (sabotaged("lose-writes") && wr->opcode == IBV_WR_RDMA_WRITE)
		wr->num_sge = 0;
}

static bool is_known(enum ibv_wr_opcode op)
{
	switch (op) {
	case IBV_WR_RDMA_READ:
	case IBV_WR_RDMA_WRITE:
	case IBV_WR_SEND:
	case IBV_WR_SEND_WITH_INV:
	case IBV_WR_LOCAL_INV:
	case IBV_WR_BIND_MW:
		return true;
	default:
		return false;
	}
}

static void change_send(struct ibv_send_wr *wr)
{
	if (sabotaged("signal-all"))
		wr->send_flags |= IBV_SEND_SIGNALED;
	if (sabotaged("no-invalidate") && wr->opcode == IBV_WR_SEND_WITH_INV)
		wr->opcode = IBV_WR_SEND;
	if (sabotaged("do-something") && !is_known(wr->opcode))
		wr->opcode = IBV_WR_SEND;
	if (has_data(wr))
		wr->num_sge = change_list(wr->sg_list, wr->num_sge, rig.caps->max_sge);
	change_remote(wr);
}

/* What a READ and the fenced WRITE behind it do, the other way round. */
static void unfence(struct ibv_send_wr *first, struct ibv_send_wr *second)
{
	struct ibv_send_wr was = *first;

	if (first->opcode != IBV_WR_RDMA_READ || !(second->send_flags & IBV_SEND_FENCE))
		return;
	first->opcode = second->opcode;
	first->wr.rdma = second->wr.rdma;
	second->opcode = was.opcode;
	second->wr.rdma = was.wr.rdma;
}

static bool refused(const struct ibv_send_wr *wr)
{
	return (sabotaged("no-solicited") && (wr->send_flags & IBV_SEND_SOLICITED)) ||
	       (sabotaged("refuse-nothing") && is_rdma(wr) && !wr->num_sge);
}

static int post_sends(struct fabric_ep *ep, struct ibv_send_wr *chain, struct ibv_send_wr **bad_wr)
{
	static struct ibv_sge lists[CHAIN_MAX][SGES_MAX];
	struct ibv_send_wr wrs[CHAIN_MAX], *bad = NULL, *wr = chain;
	int n = 0, err;

	for (; wr; wr = wr->next, n++) {
		xc_assert(n < CHAIN_MAX && wr->num_sge <= SGES_MAX);
		wrs[n] = *wr;
		if (has_data(wr)) {
			memcpy(lists[n], wr->sg_list, (size_t)wr->num_sge * sizeof(lists[0][0]));
			wrs[n].sg_list = lists[n];
		}
		if (n)
			wrs[n - 1].next = &wrs[n];
		change_send(&wrs[n]);
		if (n && sabotaged("no-fence"))
			unfence(&wrs[n - 1], &wrs[n]);
	}
	*bad_wr = chain;
	if (refused(chain))
		return -EINVAL;
	err = real->post_send(ep, wrs, &bad);
	if (err && sabotaged("eager-send"))
		return 0;
	if (err && sabotaged("wrong-why"))
		err = -EIO;
	for (int i = 0; err && i < n && bad != &wrs[i] && !sabotaged("wrong-bad"); i++)
		*bad_wr = (*bad_wr)->next;
	if (!err)
		*bad_wr = NULL;
	return err;
}

static void change_recv(struct ibv_sge *list, struct ibv_recv_wr *wr)
{
	static unsigned int nth;

	if (wr->num_sge <= 0)
		return;
	if (sabotaged("stretch-recv"))
		list[0].length++;
	if (sabotaged("swap-recvs"))
		list[0].addr += nth++ % 2 ? -100 : 100;
	if (sabotaged("last-piece-lost") || sabotaged("swap-pieces") || sabotaged("cut-lists"))
		wr->num_sge = change_list(list, wr->num_sge, rig.caps->max_recv_sge);
}

static int post_receives(struct fabric_ep *ep, struct ibv_recv_wr *chain,
			 struct ibv_recv_wr **bad_wr)
{
	static struct ibv_sge lists[CHAIN_MAX][SGES_MAX];
	struct ibv_recv_wr wrs[CHAIN_MAX], *bad = NULL, *wr = chain;
	int n = 0, err;

	if (sabotaged("early-recvs-lost") && !connected_once)
		return 0;
	for (; wr; wr = wr->next, n++) {
		xc_assert(n < CHAIN_MAX && wr->num_sge <= SGES_MAX);
		wrs[n] = *wr;
		memcpy(lists[n], wr->sg_list, (size_t)wr->num_sge * sizeof(lists[0][0]));
		wrs[n].sg_list = lists[n];
		if (n)
			wrs[n - 1].next = &wrs[n];
		change_recv(lists[n], &wrs[n]);
	}
	err = real->post_recv(ep, wrs, &bad);
	*bad_wr = chain;
	for (int i = 0; err && i < n && bad != &wrs[i] && !sabotaged("wrong-bad"); i++)
		*bad_wr = (*bad_wr)->next;
	if (!err)
		*bad_wr = NULL;
	return err;
}

/* ---- completions */

static int drop(struct ibv_wc *wc, int at, int n)
{
	memmove(&wc[at], &wc[at + 1], (size_t)(n - at - 1) * sizeof(*wc));
	return n - 1;
}

static int lose_one(struct ibv_wc *wc, int n, bool flushed)
{
	static unsigned int seen;

	for (int i = 0; i < n; i++) {
		if ((wc[i].status != IBV_WC_SUCCESS) == flushed && seen++ == (flushed ? 0 : 2))
			return drop(wc, i, n);
	}
	return n;
}

static int poll(struct fabric *f, int max, struct ibv_wc *wc)
{
	int n = real->poll(f, max - 1, wc);

	if (n > 0 && sabotaged("drop-wc"))
		n = lose_one(wc, n, false);
	if (n > 0 && sabotaged("lose-flush"))
		n = lose_one(wc, n, true);
	if (n > 0 && sabotaged("double-wc")) {
		wc[n] = wc[n - 1];
		n++;
	}
	if (n > 1 && sabotaged("swap-wcs") && wc[0].qp_num == wc[1].qp_num &&
	    wc[0].wr_id >> 63 == wc[1].wr_id >> 63) {
		struct ibv_wc first = wc[0];

		wc[0] = wc[1];
		wc[1] = first;
	}
	for (int i = 0; i < n && sabotaged("flush-all"); i++)
		if (wc[i].wr_id >> 63)
			wc[i].status = IBV_WC_WR_FLUSH_ERR;
	if (n == 0 && sabotaged("late-wc") && destroyed && destroyed->dead)
		wc[n++] = (struct ibv_wc){ .qp_num = destroyed->qp_num };
	return n;
}

const struct fabric_ops *sabotage_ops(const struct fabric_ops *ops)
{
	static struct fabric_ops table;

	if (!fault)
		return ops;
	real = ops;
	table = *ops;
	table.caps = caps;
	table.route = route;
	table.ep_create = ep_create;
	table.ep_destroy = ep_destroy;
	table.ep_disconnect = ep_disconnect;
	table.progress = progress;
	table.poll = poll;
	table.ep_connect = ep_connect;
	table.ep_accept = ep_accept;
	table.conn_reject = conn_reject;
	table.listen = listen;
	table.listener_free = listener_free;
	table.slab_map = slab_map;
	table.pd_alloc = pd_alloc;
	table.mr_reg = mr_reg;
	if (ops->mr_reg_ranges)
		table.mr_reg_ranges = mr_reg_ranges;
	if (ops->measure)
		table.measure = measure;
	table.mr_dereg = mr_dereg;
	table.mw_dealloc = mw_dealloc;
	table.post_send = post_sends;
	table.post_recv = post_receives;
	return &table;
}
