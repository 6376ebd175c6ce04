/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <time.h>

#include "common/checked.h"
#include "daemon/fabric/verbs/selftest_rig.h"

#define MS UINT64_C(1000000)
/* Long enough for a busy machine, whose answer would be kept for good if it came too late. */
#define WAIT_MS 1500
/* What flushes when a connection ends has flushed soon. */
#define FLUSH_MS 100

/* ------------------------------------------------------------------ time */

uint64_t st_now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000 * MS + (uint64_t)now.tv_nsec;
}

bool st_time_is_over(const struct st *t)
{
	return st_now_ns() >= t->deadline_ns;
}

uint64_t st_wait_end(const struct st *t)
{
	return xc_min_u64(st_now_ns() + t->wait_ns, t->deadline_ns);
}

/* ------------------------------------------------------------------ rdma_cm */

static int channel_new(struct rdma_event_channel **ret)
{
	struct rdma_event_channel *channel = rdma_create_event_channel();

	if (!channel)
		return -errno;
	*ret = channel;
	if (fcntl(channel->fd, F_SETFL, fcntl(channel->fd, F_GETFL) | O_NONBLOCK) < 0)
		return -errno;
	return 0;
}

/* The next event, whatever it is; the caller acks it. */
static int next_event(struct rdma_event_channel *channel, uint64_t end_ns,
		      struct rdma_cm_event **ret)
{
	for (;;) {
		struct pollfd p = { .fd = channel->fd, .events = POLLIN };
		const uint64_t now = st_now_ns();

		if (rdma_get_cm_event(channel, ret) == 0)
			return 0;
		if (errno != EAGAIN && errno != EINTR)
			return -errno;
		if (now >= end_ns)
			return -ETIMEDOUT;
		if (poll(&p, 1, (int)((end_ns - now) / MS) + 1) < 0 && errno != EINTR)
			return -errno;
	}
}

static int event_error(const struct rdma_cm_event *event)
{
	if (event->status < 0)
		return event->status;
	return event->event == RDMA_CM_EVENT_REJECTED ? -ECONNREFUSED : -ECONNABORTED;
}

/* Of a connection that is open the only event of interest is its end. */
static void note_end(struct st *t, const struct rdma_cm_event *event)
{
	if (event->event != RDMA_CM_EVENT_DISCONNECTED)
		return;
	for (int i = 0; i < ST_LINKS; i++) {
		if (t->link[i].peer.id == event->id)
			t->link[i].peer.ended = true;
		if (t->link[i].owner.id == event->id)
			t->link[i].owner.ended = true;
	}
}

static void note_ends(struct st *t)
{
	struct rdma_event_channel *channels[] = { t->peer_channel, t->owner_channel };
	struct rdma_cm_event *event;

	for (size_t i = 0; i < XC_ARRAY_SIZE(channels); i++) {
		while (next_event(channels[i], 0, &event) == 0) {
			note_end(t, event);
			rdma_ack_cm_event(event);
		}
	}
}

/*
 * Waits for an event of an id. What other ids have to say (a connection that a question before
 * left) is of no interest; any other event of this one is a failure.
 */
static int wait_event(struct st *t, struct rdma_event_channel *channel, struct rdma_cm_id *id,
		      enum rdma_cm_event_type want, void *ret_private, unsigned int *ret_bytes)
{
	const uint64_t end_ns = st_wait_end(t);
	struct rdma_cm_event *event;
	int r;

	for (;;) {
		r = next_event(channel, end_ns, &event);
		if (r)
			return r;
		if (event->id != id) {
			note_end(t, event);
			rdma_ack_cm_event(event);
			continue;
		}
		r = event->event == want ? 0 : event_error(event);
		if (r == 0 && ret_private) {
			*ret_bytes = event->param.conn.private_data_len;
			memcpy(ret_private, event->param.conn.private_data,
			       xc_min_u32(*ret_bytes, ST_PRIVATE_BYTES));
		}
		rdma_ack_cm_event(event);
		return r;
	}
}

/* A request that carries our word. One that does not is a stranger's, and is turned away. */
static int wait_request(struct st *t, struct st_link *l)
{
	const uint64_t end_ns = st_wait_end(t);
	struct rdma_cm_event *event;
	struct rdma_cm_id *id;
	bool ours;
	int r;

	for (;;) {
		r = next_event(t->owner_channel, end_ns, &event);
		if (r)
			return r;
		if (event->event != RDMA_CM_EVENT_CONNECT_REQUEST) {
			note_end(t, event);
			rdma_ack_cm_event(event);
			continue;
		}
		id = event->id;
		ours = event->param.conn.private_data_len >= ST_PRIVATE_BYTES &&
		       memcmp(event->param.conn.private_data, t->word, sizeof(t->word)) == 0;
		if (ours)
			l->request_heard = event->param.conn.private_data_len;
		rdma_ack_cm_event(event);
		if (ours) {
			l->owner.id = id;
			return 0;
		}
		rdma_reject(id, NULL, 0);
		rdma_destroy_id(id);
	}
}

/* ------------------------------------------------------------------ sides and links */

static int side_equip(struct st_side *s, struct ibv_pd *pd, uint32_t send_sges)
{
	struct ibv_qp_init_attr attr = {
		.qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = ST_DEPTH,
			 .max_recv_wr = ST_DEPTH,
			 .max_send_sge = send_sges,
			 .max_recv_sge = 1 },
	};

	s->cq = ibv_create_cq(s->id->verbs, 2 * ST_DEPTH, NULL, NULL, 0);
	if (!s->cq)
		return -errno;
	attr.send_cq = attr.recv_cq = s->cq;
	if (rdma_create_qp(s->id, pd, &attr))
		return -errno;
	s->has_qp = true;
	return 0;
}

static void side_drop(struct st_side *s)
{
	if (s->has_qp)
		rdma_destroy_qp(s->id);
	if (s->cq)
		ibv_destroy_cq(s->cq);
	if (s->id)
		rdma_destroy_id(s->id);
	*s = (struct st_side){ 0 };
}

static int resolve(struct st *t, struct st_link *l)
{
	uint8_t ack_timeout = 15; /* 4.096 us << 15 = 134 ms, up to four times that */
	struct sockaddr_storage to = t->at;
	int r;

	((struct sockaddr_in *)&to)->sin_port = rdma_get_src_port(t->listener);
	if (rdma_create_id(t->peer_channel, &l->peer.id, NULL, RDMA_PS_TCP))
		return -errno;
	/* So that giving up takes less than a wait does. Where it is not known the default stays.
	 */
	rdma_set_option(l->peer.id, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &ack_timeout,
			sizeof(ack_timeout));
	if (rdma_resolve_addr(l->peer.id, (struct sockaddr *)&t->at, (struct sockaddr *)&to,
			      (int)(t->wait_ns / MS)))
		return -errno;
	r = wait_event(t, t->peer_channel, l->peer.id, RDMA_CM_EVENT_ADDR_RESOLVED, NULL, NULL);
	if (r)
		return r;
	if (rdma_resolve_route(l->peer.id, (int)(t->wait_ns / MS)))
		return -errno;
	return wait_event(t, t->peer_channel, l->peer.id, RDMA_CM_EVENT_ROUTE_RESOLVED, NULL, NULL);
}

static int handshake(struct st *t, struct st_link *l, struct ibv_pd *owner_pd, uint32_t send_sges)
{
	uint8_t said[ST_PRIVATE_BYTES] = { 0 }, heard[ST_PRIVATE_BYTES] = { 0 };
	/*
	 * No retries where the receiver is not ready: a SEND that finds no RECV shall fail now. A
	 * few otherwise: a lost packet is no answer.
	 */
	struct rdma_conn_param param = {
		.private_data = said,
		.private_data_len = sizeof(said),
		.responder_resources = t->rd_atomic,
		.initiator_depth = t->rd_atomic,
		.retry_count = 3,
		.rnr_retry_count = 0,
	};
	int r;

	memcpy(said, t->word, sizeof(t->word));
	memset(said + sizeof(t->word), 0xff, sizeof(said) - sizeof(t->word));
	r = side_equip(&l->peer, t->peer_pd, send_sges);
	if (r)
		return r;
	if (rdma_connect(l->peer.id, &param))
		return -errno;
	r = wait_request(t, l);
	if (r == 0)
		r = side_equip(&l->owner, owner_pd, 1);
	if (r)
		return r;
	if (rdma_accept(l->owner.id, &param))
		return -errno;
	r = wait_event(t, t->peer_channel, l->peer.id, RDMA_CM_EVENT_ESTABLISHED, heard,
		       &l->reply_heard);
	if (r)
		return r;
	l->heard_right = memcmp(said, heard, sizeof(said)) == 0;
	return wait_event(t, t->owner_channel, l->owner.id, RDMA_CM_EVENT_ESTABLISHED, NULL, NULL);
}

static void link_drop(struct st_link *l)
{
	side_drop(&l->peer);
	side_drop(&l->owner);
	*l = (struct st_link){ 0 };
}

int st_connect(struct st *t, unsigned int link, struct ibv_pd *owner_pd, uint32_t send_sges)
{
	struct st_link *l = &t->link[link];
	int r;

	r = resolve(t, l);
	if (r == 0)
		r = handshake(t, l, owner_pd, send_sges);
	if (r) {
		link_drop(l);
		return r;
	}
	l->open = true;
	if (link > 0)
		return 0;
	st_fill(t);
	/* A sink of READs has all rights: whether it needs them is a question of its own. */
	t->held_mr = st_register(t, t->peer_pd, t->held, ST_SMALL_BYTES, ST_FULL_ACCESS);
	t->open_mr = st_register(t, owner_pd, t->owned, ST_SMALL_BYTES, ST_FULL_ACCESS);
	return t->held_mr && t->open_mr ? 0 : -ENOMEM;
}

/*
 * Windows go between the error state and the end of the queue pairs: rxe counts a bound window as a
 * user of its queue pair, and would wait 50 s for that to end.
 */
void st_disconnect(struct st *t)
{
	for (int i = 0; i < ST_LINKS; i++) {
		if (!t->link[i].open)
			continue;
		rdma_disconnect(t->link[i].peer.id);
		rdma_disconnect(t->link[i].owner.id);
	}
	for (int i = 0; i < ST_MWS; i++)
		if (t->mw[i])
			ibv_dealloc_mw(t->mw[i]);
	memset(t->mw, 0, sizeof(t->mw));
	for (int i = 0; i < ST_LINKS; i++)
		link_drop(&t->link[i]);
}

void st_reset(struct st *t)
{
	st_disconnect(t);
	for (int i = 0; i < ST_MRS; i++)
		if (t->mr[i])
			ibv_dereg_mr(t->mr[i]);
	memset(t->mr, 0, sizeof(t->mr));
	t->held_mr = t->open_mr = NULL;
}

/* ------------------------------------------------------------------ memory and keys */

static struct ibv_mr *keep_mr(struct st *t, struct ibv_mr *mr)
{
	for (int i = 0; mr && i < ST_MRS; i++) {
		if (!t->mr[i]) {
			t->mr[i] = mr;
			return mr;
		}
	}
	if (mr)
		ibv_dereg_mr(mr);
	return NULL;
}

struct ibv_mr *st_register(struct st *t, struct ibv_pd *pd, void *memory, size_t bytes, int access)
{
	return keep_mr(t, ibv_reg_mr(pd, memory, bytes, access));
}

struct ibv_mr *st_register_at(struct st *t, struct ibv_pd *pd, void *memory, size_t bytes,
			      uint64_t iova, int access)
{
	return keep_mr(t, ibv_reg_mr_iova(pd, memory, bytes, iova, access));
}

int st_deregister(struct st *t, struct ibv_mr *mr)
{
	for (int i = 0; i < ST_MRS; i++)
		if (t->mr[i] == mr)
			t->mr[i] = NULL;
	return -ibv_dereg_mr(mr);
}

struct ibv_mw *st_window(struct st *t, struct ibv_pd *pd)
{
	struct ibv_mw *mw = ibv_alloc_mw(pd, IBV_MW_TYPE_2);

	for (int i = 0; mw && i < ST_MWS; i++) {
		if (!t->mw[i]) {
			t->mw[i] = mw;
			return mw;
		}
	}
	if (mw)
		ibv_dealloc_mw(mw);
	return NULL;
}

int st_window_free(struct st *t, struct ibv_mw *mw)
{
	for (int i = 0; i < ST_MWS; i++)
		if (t->mw[i] == mw)
			t->mw[i] = NULL;
	return -ibv_dealloc_mw(mw);
}

void st_fill(struct st *t)
{
	memset(t->held, ST_PEER, ST_SMALL_BYTES);
	memset(t->owned, ST_SECRET, ST_SMALL_BYTES);
	memset(st_key_memory(t), ST_OPEN, ST_KEY_BYTES);
}

bool st_all(const uint8_t *memory, uint8_t byte, size_t bytes)
{
	return bytes == 0 || (memory[0] == byte && memcmp(memory, memory + 1, bytes - 1) == 0);
}

bool st_any(const uint8_t *memory, uint8_t byte, size_t bytes)
{
	return memchr(memory, byte, bytes) != NULL;
}

/* ------------------------------------------------------------------ work requests */

/*
 * siw loses a work request that is posted while the connection breaks: it never flushes. The end of
 * the connection tells the same.
 */
int st_wait(struct st *t, struct st_side *side, struct ibv_wc *ret)
{
	static const struct timespec nap = { .tv_nsec = 50000 };
	uint64_t end_ns = st_wait_end(t);
	bool ended = false;
	int n;

	/* The other side may need this processor. */
	for (unsigned int turn = 0;; turn++) {
		n = ibv_poll_cq(side->cq, 1, ret);
		if (n > 0)
			return (int)ret->status;
		if (n < 0 || st_now_ns() >= end_ns)
			break;
		if (turn < 100) {
			sched_yield();
			continue;
		}
		nanosleep(&nap, NULL);
		note_ends(t);
		if (side->ended && !ended) {
			ended = true;
			end_ns = xc_min_u64(end_ns, st_now_ns() + FLUSH_MS * MS);
		}
	}
	memset(ret, 0, sizeof(*ret));
	ret->status = IBV_WC_WR_FLUSH_ERR;
	return ended ? IBV_WC_WR_FLUSH_ERR : ST_NOTHING;
}

int st_post(struct st *t, struct st_side *side, struct ibv_send_wr *wr, struct ibv_wc *ret)
{
	struct ibv_send_wr *bad;
	struct ibv_wc wc;

	wr->send_flags |= IBV_SEND_SIGNALED;
	if (ibv_post_send(side->id->qp, wr, &bad))
		return ST_REFUSED;
	return st_wait(t, side, ret ? ret : &wc);
}

int st_post_recv(struct st *t, struct st_side *side, void *memory, uint32_t bytes, uint32_t lkey)
{
	struct ibv_sge sge = { st_address(memory), bytes, lkey };
	struct ibv_recv_wr wr = { .sg_list = &sge, .num_sge = 1 }, *bad;

	(void)t;
	return -ibv_post_recv(side->id->qp, &wr, &bad);
}

static int move(struct st *t, unsigned int link, enum ibv_wr_opcode op, uint64_t address,
		uint32_t key, uint32_t bytes)
{
	struct ibv_sge sge = { st_address(t->held), bytes, t->held_mr->lkey };
	struct ibv_send_wr wr = { .opcode = op, .sg_list = &sge, .num_sge = 1 };

	wr.wr.rdma.remote_addr = address;
	wr.wr.rdma.rkey = key;
	return st_post(t, &t->link[link].peer, &wr, NULL);
}

int st_read(struct st *t, unsigned int link, uint64_t address, uint32_t key, uint32_t bytes)
{
	return move(t, link, IBV_WR_RDMA_READ, address, key, bytes);
}

int st_write(struct st *t, unsigned int link, uint64_t address, uint32_t key, uint32_t bytes)
{
	return move(t, link, IBV_WR_RDMA_WRITE, address, key, bytes);
}

int st_bind(struct st *t, unsigned int link, struct ibv_mw *mw, struct ibv_mr *mr, uint64_t address,
	    uint64_t length, unsigned int access)
{
	struct ibv_send_wr wr = { .opcode = IBV_WR_BIND_MW };
	int status;

	wr.bind_mw.mw = mw;
	wr.bind_mw.rkey = ibv_inc_rkey(mw->rkey);
	wr.bind_mw.bind_info.mr = mr;
	wr.bind_mw.bind_info.addr = address;
	wr.bind_mw.bind_info.length = length;
	wr.bind_mw.bind_info.mw_access_flags = access;
	status = st_post(t, &t->link[link].owner, &wr, NULL);
	/* The library does not, and rxe finds the window of the next bind by it. */
	if (status == IBV_WC_SUCCESS)
		mw->rkey = wr.bind_mw.rkey;
	return status;
}

int st_local_inv(struct st *t, unsigned int link, uint32_t key)
{
	struct ibv_send_wr wr = { .opcode = IBV_WR_LOCAL_INV, .invalidate_rkey = key };

	return st_post(t, &t->link[link].owner, &wr, NULL);
}

/* ------------------------------------------------------------------ the whole */

static int set_address(struct st *t, const struct xc_addr *a)
{
	if (a->family == 4) {
		struct sockaddr_in *in = (struct sockaddr_in *)&t->at;

		in->sin_family = AF_INET;
		memcpy(&in->sin_addr, a->ip, sizeof(in->sin_addr));
		return 0;
	}
	if (a->family == 6) {
		struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)&t->at;

		in6->sin6_family = AF_INET6;
		in6->sin6_scope_id = a->scope;
		memcpy(&in6->sin6_addr, a->ip, sizeof(in6->sin6_addr));
		return 0;
	}
	return -EAFNOSUPPORT;
}

static int listen_there(struct st *t, struct ibv_context *verbs)
{
	struct sockaddr_storage at = t->at;

	if (rdma_create_id(t->owner_channel, &t->listener, NULL, RDMA_PS_TCP))
		return -errno;
	if (rdma_bind_addr(t->listener, (struct sockaddr *)&at))
		return -errno;
	t->verbs = t->listener->verbs;
	/* rdma_cm has a context of its own, hence names. */
	if (!t->verbs || (verbs && strcmp(ibv_get_device_name(t->verbs->device),
					  ibv_get_device_name(verbs->device)) != 0))
		return -EADDRNOTAVAIL;
	return rdma_listen(t->listener, ST_LINKS) ? -errno : 0;
}

static int alloc_domains(struct st *t)
{
	struct ibv_pd **pds[] = { &t->peer_pd, &t->owner_pd, &t->other_pd };

	for (size_t i = 0; i < XC_ARRAY_SIZE(pds); i++) {
		*pds[i] = ibv_alloc_pd(t->verbs);
		if (!*pds[i])
			return -errno;
	}
	return 0;
}

static int map_memory(uint8_t **ret)
{
	void *p = mmap(NULL, ST_BIG_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
		       0);

	if (p == MAP_FAILED)
		return -errno;
	*ret = p;
	/* A fork of this process must not leave pages that the device does not write to. */
	if (madvise(p, ST_BIG_BYTES, MADV_DONTFORK))
		return -errno;
	return 0;
}

int st_init(struct st *t, struct ibv_context *verbs, const struct xc_addr *address,
	    unsigned int limit_ms)
{
	struct ibv_device_attr attr;
	int r;

	*t = (struct st){ .deadline_ns = st_now_ns() + limit_ms * MS, .wait_ns = WAIT_MS * MS };
	if (getrandom(t->word, sizeof(t->word), 0) != (ssize_t)sizeof(t->word))
		return -errno;
	r = set_address(t, address);
	if (r == 0)
		r = channel_new(&t->peer_channel);
	if (r == 0)
		r = channel_new(&t->owner_channel);
	if (r == 0)
		r = listen_there(t, verbs);
	if (r == 0)
		r = verbs_claims_read(t->verbs, &t->claims);
	if (r == 0)
		r = -ibv_query_device(t->verbs, &attr);
	if (r)
		return r;
	t->rd_atomic =
		(uint8_t)xc_min_u32(ST_DEPTH, xc_min_u32((uint32_t)attr.max_qp_rd_atom,
							 (uint32_t)attr.max_qp_init_rd_atom));
	r = alloc_domains(t);
	if (r == 0)
		r = map_memory(&t->owned);
	if (r == 0)
		r = map_memory(&t->held);
	return r;
}

void st_done(struct st *t)
{
	struct ibv_pd *pds[] = { t->peer_pd, t->owner_pd, t->other_pd };

	st_reset(t);
	for (size_t i = 0; i < XC_ARRAY_SIZE(pds); i++)
		if (pds[i])
			ibv_dealloc_pd(pds[i]);
	if (t->listener)
		rdma_destroy_id(t->listener);
	if (t->peer_channel)
		rdma_destroy_event_channel(t->peer_channel);
	if (t->owner_channel)
		rdma_destroy_event_channel(t->owner_channel);
	if (t->owned)
		munmap(t->owned, ST_BIG_BYTES);
	if (t->held)
		munmap(t->held, ST_BIG_BYTES);
}
