/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "daemon/fabric/iwarp/stream.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/assert.h"
#include "common/checked.h"
#include "proto/errors.h"

/* A host that is gone without a word is noticed on an idle connection, too. */
#define KEEPALIVE_PROBES 3
/* Streams that no endpoint pays for any more. The excess is reset. */
#define LINGERING_MAX 1024u
#define FPDU_BYTES_MIN 128u
/* Thrown away in one turn of a stream that ends. */
#define DISCARD_BYTES (256u << 10)

/* ---- sockets */

static void ready(struct iwarp_watch *w, uint32_t events)
{
	struct iwarp_stream *s = xc_container_of(w, struct iwarp_stream, watch);

	XC_CHECK(s, IWARP_STREAM_MAGIC);
	if (events & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR))
		s->readable = true;
	if (events & (EPOLLOUT | EPOLLHUP | EPOLLERR))
		s->writable = true;
	stream_wake(s);
}

/* None of these can fail on a TCP socket but for want of memory, and the connection works without.
 */
static void set_options(struct iwarp_stream *s)
{
	/* Half of the time silence, then the probes. */
	int stall_s = (int)(s->fabric->stall_ns / 1000000000);
	int idle_s = stall_s > 2 ? stall_s / 2 : 1;
	int interval_s = idle_s > KEEPALIVE_PROBES ? idle_s / KEEPALIVE_PROBES : 1;
	const struct {
		int level, name, value;
	} options[] = {
		{ IPPROTO_TCP, TCP_NODELAY, 1 },
		{ IPPROTO_TCP, TCP_USER_TIMEOUT, (int)(s->fabric->stall_ns / 1000000) },
		{ SOL_SOCKET, SO_KEEPALIVE, 1 },
		{ IPPROTO_TCP, TCP_KEEPIDLE, idle_s },
		{ IPPROTO_TCP, TCP_KEEPINTVL, interval_s },
		{ IPPROTO_TCP, TCP_KEEPCNT, KEEPALIVE_PROBES },
	};

	for (size_t i = 0; i < XC_ARRAY_SIZE(options); i++)
		(void)setsockopt(s->fd, options[i].level, options[i].name, &options[i].value,
				 sizeof(options[i].value));
}

static void timer_fired(struct xd_timer *t)
{
	struct iwarp_stream *s = xc_container_of(t, struct iwarp_stream, timer);

	XC_CHECK(s, IWARP_STREAM_MAGIC);
	if (s->state == STREAM_CONNECTING || s->state == STREAM_ASKING)
		stream_lost(s, -ETIMEDOUT);
	else
		/* What was handed over goes on its way behind our back, as long as TCP likes. */
		stream_close(s, !s->said_fin);
}

void stream_limit(struct iwarp_stream *s, uint64_t ns)
{
	const struct xd_engine_ref *e = &s->fabric->engine;

	e->ops->arm(e->engine, &s->timer, e->ops->now_ns(e->engine) + ns);
}

int stream_new(struct fabric *f, int fd, enum stream_state state, const struct xc_addr *peer,
	       struct iwarp_stream **ret)
{
	struct iwarp_stream *s = calloc(1, sizeof(*s));
	int err;

	if (!s) {
		close(fd);
		return -ENOMEM;
	}
	s->magic = IWARP_STREAM_MAGIC;
	s->watch.ready = ready;
	s->fabric = f;
	s->fd = fd;
	s->state = state;
	s->peer = *peer;
	s->timer.fired = timer_fired;
	s->rx.hungry = true;
	err = poll_add(f, fd, EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, &s->watch);
	if (err) {
		close(fd);
		free(s);
		return err;
	}
	set_options(s);
	xc_list_append(state == STREAM_HEARING ? &f->hearing : &f->streams, &s->link);
	f->n_hearing += state == STREAM_HEARING;
	xc_list_init(&s->busy);
	*ret = s;
	return 0;
}

void stream_heard(struct iwarp_stream *s, enum stream_state next)
{
	xc_assert(s->state == STREAM_HEARING);
	xc_list_remove(&s->link);
	xc_list_append(&s->fabric->streams, &s->link);
	s->fabric->n_hearing--;
	s->listener = NULL;
	s->state = next;
}

void stream_close_fd(int fd, bool reset)
{
	static const struct linger at_once = { .l_onoff = 1, .l_linger = 0 };

	if (reset)
		(void)setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
	close(fd);
}

void stream_close(struct iwarp_stream *s, bool reset)
{
	struct fabric *f = s->fabric;

	XC_CHECK(s, IWARP_STREAM_MAGIC);
	xc_assert(!s->ep && !s->conn);
	if (s->state == STREAM_DEAD)
		return;
	f->n_hearing -= s->state == STREAM_HEARING;
	f->lingering -= s->state == STREAM_DRAINING || s->state == STREAM_CLOSING;
	f->engine.ops->disarm(f->engine.engine, &s->timer);
	poll_remove(f, s->fd);
	stream_close_fd(s->fd, reset);
	s->fd = -1;
	s->state = STREAM_DEAD;
	xc_list_remove(&s->busy);
	xc_list_remove(&s->link);
	xc_list_append(&f->dead, &s->link);
	iwarp_wake(f);
}

void stream_bury(struct fabric *f)
{
	struct xc_list *link;

	while ((link = xc_list_pop(&f->dead))) {
		struct iwarp_stream *s = xc_container_of(link, struct iwarp_stream, link);

		stream_buffers_free(s);
		s->magic = 0;
		free(s);
	}
}

/* Of a fabric without endpoints: those that still linger. */
void stream_close_all(struct fabric *f)
{
	struct iwarp_stream *s;

	while ((s = xc_list_first(&f->hearing, struct iwarp_stream, link)) ||
	       (s = xc_list_first(&f->streams, struct iwarp_stream, link)))
		stream_close(s, true);
	stream_bury(f);
}

void stream_wake(struct iwarp_stream *s)
{
	if (s->state == STREAM_OPEN) {
		iwarp_schedule(s->ep);
		return;
	}
	if (s->state != STREAM_DEAD && xc_list_empty(&s->busy))
		xc_list_append(&s->fabric->busy, &s->busy);
	iwarp_wake(s->fabric);
}

/* ---- MPA frames */

int stream_hear(struct iwarp_stream *s, enum mpa_kind kind, struct mpa_frame *ret,
		const char **ret_why)
{
	for (;;) {
		int length = mpa_decode(kind, s->start, s->start_bytes, ret, ret_why);
		ssize_t n;

		if (length)
			return length;
		n = recv(s->fd, s->start + s->start_bytes,
			 mpa_wanted(s->start, s->start_bytes) - s->start_bytes, MSG_DONTWAIT);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN)
			s->readable = false;
		if (n <= 0)
			return n < 0 ? -errno : 0;
		s->start_bytes += (uint32_t)n;
	}
}

/* ---- open */

/* Payload that makes an FPDU fill a TCP segment, as far as that is known (RFC 5044 5). */
static void size_payload(struct iwarp_stream *s)
{
	socklen_t size = sizeof(int);
	uint32_t fpdu;
	int mss;

	if (s->terms.long_fpdus) {
		s->max_payload_tagged = s->max_payload_untagged = STREAM_LONG_PAYLOAD_BYTES;
		return;
	}
	if (getsockopt(s->fd, IPPROTO_TCP, TCP_MAXSEG, &mss, &size) < 0 ||
	    mss < (int)FPDU_BYTES_MIN)
		mss = FPDU_BYTES_MIN;
	fpdu = xc_min_u32((uint32_t)mss, UINT16_MAX) & ~UINT32_C(7);
	fpdu -= MPA_LENGTH_BYTES + MPA_CRC_BYTES;
	/* With the header, a multiple of 4 less the length's two bytes: no pad. */
	s->max_payload_tagged = (fpdu - DDP_TAGGED_BYTES) & ~UINT32_C(3);
	s->max_payload_untagged = (fpdu - DDP_UNTAGGED_BYTES) & ~UINT32_C(3);
}

int stream_open(struct iwarp_stream *s, struct fabric_ep *ep)
{
	const struct xd_engine_ref *e = &s->fabric->engine;
	int err = stream_buffers_new(s);

	if (err)
		return err;
	e->ops->disarm(e->engine, &s->timer);
	s->state = STREAM_OPEN;
	s->ep = ep;
	ep->stream = s;
	s->tx.send_msn = s->tx.read_msn = 1;
	s->rx.send_msn = s->rx.read_msn = 1;
	xc_list_remove(&s->busy);
	size_payload(s);
	return 0;
}

/* ---- ends */

static struct fabric_ep *detach(struct iwarp_stream *s)
{
	struct fabric_ep *ep = s->ep;

	s->ep = NULL;
	if (ep)
		ep->stream = NULL;
	return ep;
}

/* From here on it is nobody's, and bounded in time and number. */
static bool begin_lingering(struct iwarp_stream *s, enum stream_state state)
{
	struct fabric *f = s->fabric;

	if (s->state == STREAM_DRAINING || s->state == STREAM_CLOSING) {
		s->state = state;
		return true;
	}
	if (f->lingering >= LINGERING_MAX) {
		stream_close(s, true);
		return false;
	}
	f->lingering++;
	s->state = state;
	stream_limit(s, STREAM_LINGER_NS);
	return true;
}

void stream_say_goodbye(struct iwarp_stream *s)
{
	xc_assert(!s->ep && !s->conn);
	if (s->state == STREAM_DEAD || !begin_lingering(s, STREAM_CLOSING))
		return;
	stream_wake(s);
}

void stream_leave(struct iwarp_stream *s)
{
	bool whole;

	xc_assert(s->state == STREAM_OPEN);
	whole = tx_settle(s);
	detach(s);
	if (!whole || s->hung_up) {
		stream_close(s, true);
		return;
	}
	/* A FIN, or a RST, in the middle of a READ response is what some peers do not survive. */
	if (!s->tx.reads_count)
		stream_say_goodbye(s);
	else if (begin_lingering(s, STREAM_DRAINING))
		stream_wake(s);
}

int stream_reason(int err)
{
	return err == ETIMEDOUT ? -XP_E_STALLED : -XP_E_PEER_GONE;
}

void stream_lost(struct iwarp_stream *s, int reason)
{
	struct fabric_ep *ep = s->ep;

	s->hung_up = true;
	if (!ep) {
		stream_close(s, true);
	} else if (ep->state == IWARP_EP_CONNECTING) {
		detach(s);
		stream_close(s, true);
		iwarp_ep_refuse(ep, reason, NULL, 0);
	} else {
		iwarp_ep_end(ep, reason, 0); /* and lets go of s */
	}
}

void stream_log(const struct fabric_ep *ep, const char *what, const char *why)
{
	const struct xd_engine_ref *e = &ep->fabric->engine;

	e->ops->log(e->engine,
		    &(struct xd_log){ .priority = XD_INFO,
				      .client_uid = ep->pd->owner->uid,
				      .endpoint = ep->qp_num,
				      .device = ep->fabric->caps.name,
				      .client_caused = true },
		    "%s: %s.", what, why);
}

static void append_terminate(struct iwarp_stream *s, enum rdmap_error error, bool quote)
{
	const struct iwarp_rx *rx = &s->rx;
	const struct ddp_header h = {
		.last = true,
		.op = RDMAP_TERMINATE,
		.qn = DDP_QN_TERMINATE,
		.msn = 1,
	};
	struct rdmap_terminate t = { .error = error };
	uint8_t body[RDMAP_TERMINATE_MAX];

	if (quote) {
		t.has_segment = true;
		t.ulpdu_bytes = (uint16_t)rx->ulpdu_bytes;
		t.header = rx->header;
		t.has_request = rx->has_request;
		t.request = rx->request;
	}
	tx_append(s, &h, body, (uint32_t)rdmap_terminate_encode(&t, body));
}

void stream_terminate(struct iwarp_stream *s, enum rdmap_error error, bool quote, int reason)
{
	struct fabric_ep *ep = s->ep;
	bool whole;

	if (!ep) {
		stream_close(s, true);
		return;
	}
	xc_assert(s->state == STREAM_OPEN);
	stream_log(ep, "A connection is terminated by this side", rdmap_error_text(error));
	whole = tx_settle(s);
	if (whole)
		append_terminate(s, error, quote);
	detach(s);
	if (whole)
		stream_say_goodbye(s);
	else
		stream_close(s, true);
	iwarp_ep_end(ep, reason, 0);
}

void stream_terminated(struct iwarp_stream *s, const struct rdmap_terminate *t, int reason)
{
	struct fabric_ep *ep = s->ep;

	stream_log(ep, "A connection is terminated by the peer", rdmap_error_text(t->error));
	if (!tx_settle(s)) {
		stream_lost(s, reason);
		return;
	}
	detach(s);
	/* What it would still get it does not want. */
	s->tx.count = 0;
	stream_say_goodbye(s);
	iwarp_ep_end(ep, reason, 0);
}

/* ---- streams without an endpoint */

int stream_write_rest(struct iwarp_stream *s)
{
	struct iwarp_tx *tx = &s->tx;

	while (tx->count) {
		struct tx_piece *p = &tx->pieces[tx->first];
		ssize_t n = send(s->fd, tx->buf + p->address + p->done, p->bytes - p->done,
				 MSG_NOSIGNAL | MSG_DONTWAIT);

		xc_assert(p->kind == TX_BYTES);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		p->done += (uint32_t)n;
		if (p->done == p->bytes) {
			tx->first++;
			tx->count--;
		}
	}
	return 0;
}

/* What comes is of no interest any more. 0: the peer has ended too. */
static int discard(struct iwarp_stream *s)
{
	/* TCP throws it away itself, without a copy (tcp(7), MSG_TRUNC). */
	for (uint32_t taken = 0; taken < DISCARD_BYTES;) {
		ssize_t n = recv(s->fd, NULL, DISCARD_BYTES, MSG_TRUNC | MSG_DONTWAIT);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n < 0 ? -errno : 0;
		taken += (uint32_t)n;
	}
	return -EINPROGRESS;
}

static void closing_step(struct iwarp_stream *s)
{
	int r = stream_write_rest(s);

	if (r == -EAGAIN) {
		s->writable = false;
		return;
	}
	if (r < 0) {
		stream_close(s, true);
		return;
	}
	if (!s->said_fin) {
		s->said_fin = true;
		shutdown(s->fd, SHUT_WR);
	}
	r = discard(s);
	if (r == -EINPROGRESS)
		stream_wake(s);
	else if (r != -EAGAIN)
		stream_close(s, false);
}

static void draining_step(struct iwarp_stream *s)
{
	int r = stream_write_rest(s);

	if (r < 0 && r != -EAGAIN) {
		stream_close(s, true);
		return;
	}
	rx_run(s, DISCARD_BYTES);
	if (s->state != STREAM_DRAINING)
		return;
	if (!s->tx.reads_count)
		stream_say_goodbye(s);
	else if (rx_has_work(s))
		stream_wake(s);
}

static void step(struct iwarp_stream *s)
{
	switch (s->state) {
	case STREAM_CONNECTING:
	case STREAM_ASKING:
		dial_step(s);
		break;
	case STREAM_HEARING:
	case STREAM_ASKED:
		serve_step(s);
		break;
	case STREAM_DRAINING:
		draining_step(s);
		break;
	case STREAM_CLOSING:
		closing_step(s);
		break;
	case STREAM_OPEN: /* its endpoint has turns */
	case STREAM_DEAD:
		break;
	}
}

void stream_run_busy(struct fabric *f)
{
	struct xc_list batch, *link;

	xc_list_init(&batch);
	while ((link = xc_list_pop(&f->busy)))
		xc_list_append(&batch, link);
	while ((link = xc_list_pop(&batch)))
		step(xc_container_of(link, struct iwarp_stream, busy));
}

/* ---- turns of an endpoint */

bool stream_can_run(const struct fabric_ep *ep)
{
	return rx_has_work(ep->stream) || tx_has_work(ep->stream);
}

uint64_t stream_run(struct fabric_ep *ep, uint64_t allowance_bytes)
{
	uint64_t cost = 0;

	/* Receiving first: what it brings may be what sending waits for. */
	if (rx_has_work(ep->stream))
		cost += rx_run(ep->stream, allowance_bytes / 2);
	if (ep->stream && tx_has_work(ep->stream))
		cost += tx_run(ep, allowance_bytes / 2);
	return cost;
}
