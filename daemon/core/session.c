/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "daemon/core/session.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/assert.h"
#include "daemon/core/buffer.h"
#include "daemon/core/endpoint.h"
#include "daemon/core/grant.h"
#include "daemon/core/sabotage.h"
#include "daemon/core/transfer.h"

/* A close that takes longer than this is somebody's doing (a TCP socket with SO_LINGER, for one).
 */
#define SLOW_CLOSE_MS 1000
/* Administrators' sessions beyond all limits on sessions. */
#define ADMINS_UNCHARGED_MAX 8
/* Refused requests that wait to be read carry no charge; at this many io stops reading. */
#define REFUSED_MAX 256

static void log_session(const struct xd_session *s, enum xd_priority priority, const char *what)
{
	struct xd_log about = {
		.priority = priority,
		.session = s->number,
		.client_uid = s->uid,
		.client_caused = true,
	};

	s->core->engine.ops->log(s->core->engine.engine, &about,
				 "session %" PRIu64 " (uid %" PRIu32 ", pid %" PRId32 "%s%s): %s",
				 s->number, s->uid, s->pid, s->name[0] ? ", " : "", s->name, what);
}

const char *xd_strstatus(int status)
{
	const char *phrase = xp_phrase(status);

	return phrase ? phrase : "unknown status";
}

/* ------------------------------------------------------------------ making and ending */

static void init_tables(struct xd_session *s)
{
	uint64_t secret[2];

	s->core->engine.ops->random(s->core->engine.engine, secret, sizeof(secret));
	xc_slots_init(&s->buffers, XC_SLOTS_MAX);
	xc_slots_init(&s->endpoints, XC_SLOTS_MAX);
	xc_slots_init(&s->listeners, XC_SLOTS_MAX);
	xc_slots_init(&s->requests, XC_SLOTS_MAX);
	xc_slots_init(&s->grants, XC_SLOTS_MAX);
	xc_hash_init(&s->transfers, secret[0]);
	xc_hash_init(&s->keys, secret[1]);
	xc_list_init(&s->out);
	xc_list_init(&s->link);
	xc_list_init(&s->closing_link);
	xc_list_init(&s->goodbye.link);
	s->goodbye.note = XD_NOTE_GOODBYE;
}

static bool closes_are_slow(const struct xd_session *s);

static int admit(struct xd_session *s, char *ret_why)
{
	int r;

	if (s->core->draining) {
		snprintf(ret_why, XD_TEXT_MAX, "the daemon is stopping");
		return -XP_E_SHUTDOWN;
	}
	if (closes_are_slow(s)) {
		snprintf(ret_why, XD_TEXT_MAX,
			 "%" PRIu32 " descriptors that user %" PRIu32
			 " passed are still being closed; wait for them",
			 s->payer.user->n_closes, s->uid);
		return -XP_E_SLOW_CLOSE;
	}
	r = xd_charge(&s->payer, XD_LIMIT_sessions, 1, ret_why, XD_TEXT_MAX);
	s->charged = r == 0;
	/* Whoever fills the daemon with sessions must not keep out those who can end them. */
	if (r < 0 && s->admin && s->core->uncharged_admins < ADMINS_UNCHARGED_MAX) {
		s->core->uncharged_admins++;
		return 0;
	}
	if (r < 0)
		xd_core_count(s->core, XD_COUNTER_quota_refusals, 1);
	return r;
}

int xd_session_new(struct xd_core *core, const struct xd_peer *peer, void *conn,
		   struct xd_session **ret, char *ret_why)
{
	struct xd_session *s = calloc(1, sizeof(*s));
	int r = -ENOMEM;

	snprintf(ret_why, XD_TEXT_MAX, "out of memory");
	if (!s)
		return -ENOMEM;
	*s = (struct xd_session){ .magic = XD_SESSION_MAGIC,
				  .core = core,
				  .conn = conn,
				  .uid = peer->uid,
				  .pid = peer->pid,
				  .admin = peer->admin };
	init_tables(s);
	s->gids = calloc(peer->n_gids ? peer->n_gids : 1, sizeof(*s->gids));
	if (!s->gids)
		goto fail;
	if (peer->n_gids)
		memcpy(s->gids, peer->gids, peer->n_gids * sizeof(*s->gids));
	s->n_gids = peer->n_gids;
	r = xd_payer_init(&s->payer, &core->quota, peer->uid, s->gids, s->n_gids);
	if (r < 0)
		goto fail;
	for (int i = 0; i < XD_ORDERS; i++)
		xd_turn_init(&s->turns[i], &s->payer.user->waits[i]);
	r = admit(s, ret_why);
	if (r < 0) {
		xd_payer_done(&s->payer, &core->quota);
		goto fail;
	}
	s->number = ++core->last_session;
	xc_list_append(&core->sessions, &s->link);
	xd_core_count(core, XD_COUNTER_sessions, 1);
	xd_core_count(core, XD_COUNTER_sessions_total, 1);
	*ret = s;
	return 0;
fail:
	free(s->gids);
	free(s);
	return r;
}

/* Everything that the session owns begins to end. */
static void begin_end(struct xd_session *s)
{
	struct xd_listener *l;
	struct xd_endpoint *ep;
	uint32_t at = 0;

	if (!xc_list_empty(&s->closing_link))
		return;
	xc_list_append(&s->core->closing, &s->closing_link);
	while ((l = xc_slots_next(&s->listeners, &at)))
		xd_listener_end(l);
	at = 0;
	while ((ep = xc_slots_next(&s->endpoints, &at)))
		xd_endpoint_free_soon(ep, NULL);
	xd_session_settle(s);
}

void xd_session_fail(struct xd_session *s, int status, const char *format, ...)
{
	va_list args;

	XC_CHECK(s, XD_SESSION_MAGIC);
	if (xd_session_ending(s))
		return;
	va_start(args, format);
	vsnprintf(s->goodbye_text, sizeof(s->goodbye_text), format, args);
	va_end(args);
	s->goodbye_status = status;
	xd_session_tell(s, &s->goodbye);
	s->failed = true;
	if (status != -XP_E_SHUTDOWN) {
		xd_core_count(s->core, XD_COUNTER_sessions_failed, 1);
		log_session(s, XD_NOTICE, s->goodbye_text);
	}
	begin_end(s);
}

static void drop_note(struct xd_outnode *node)
{
	switch (node->note) {
	case XD_NOTE_CALL:
		xd_call_free(xc_container_of(node, struct xd_call, out));
		break;
	case XD_NOTE_TRANSFER:
		xd_transfer_free(xc_container_of(node, struct xd_transfer, out));
		break;
	case XD_NOTE_ENDPOINT:
		xc_container_of(node, struct xd_endpoint, out)->events = 0;
		break;
	case XD_NOTE_REQUEST:
	case XD_NOTE_GOODBYE:
		break;
	}
}

static void drop_output(struct xd_session *s)
{
	struct xc_list *l;

	while ((l = xc_list_pop(&s->out)))
		drop_note(xc_container_of(l, struct xd_outnode, link));
}

void xd_session_close(struct xd_session *s)
{
	XC_CHECK(s, XD_SESSION_MAGIC);
	xc_assert(!s->closed);
	s->closed = true;
	log_session(s, XD_DEBUG, "closed");
	drop_output(s);
	begin_end(s);
	xd_session_settle(s);
}

void xd_session_settle(struct xd_session *s)
{
	if (xd_session_ending(s))
		s->core->engine.ops->kick(s->core->engine.engine);
}

static void session_free(struct xd_session *s)
{
	struct xd_core *core = s->core;
	void *conn = s->conn;

	drop_output(s);
	for (uint32_t i = 0; i < core->n_fabrics; i++)
		if (s->pds[i])
			xd_pd_free(s->pds[i]);
	xc_assert(s->calls == 0 && s->refused == 0 && s->unfinished == 0);
	xc_list_remove(&s->link);
	xc_list_remove(&s->closing_link);
	if (s->charged)
		xd_uncharge(&s->payer, XD_LIMIT_sessions, 1);
	else
		core->uncharged_admins--;
	xd_payer_done(&s->payer, &core->quota);
	xd_core_count(core, XD_COUNTER_sessions, -1);
	xc_slots_done(&s->buffers);
	xc_slots_done(&s->endpoints);
	xc_slots_done(&s->listeners);
	xc_slots_done(&s->requests);
	xc_slots_done(&s->grants);
	xc_hash_done(&s->transfers);
	xc_hash_done(&s->keys);
	free(s->explanations);
	free(s->gids);
	s->magic = 0;
	free(s);
	core->engine.ops->session_gone(core->engine.engine, conn);
}

/* Windows go before registrations. True: none is left. */
static bool windows_gone(struct xd_session *s)
{
	bool gone = true;

	for (uint32_t i = 0; i < s->core->n_fabrics; i++) {
		if (!s->pds[i])
			continue;
		xd_windows_free(s->pds[i]);
		gone &= s->pds[i]->n_windows == 0;
	}
	return gone;
}

static bool domains_empty(const struct xd_session *s)
{
	for (uint32_t i = 0; i < s->core->n_fabrics; i++)
		if (s->pds[i] && s->pds[i]->n_objects)
			return false;
	return true;
}

void xd_session_advance(struct xd_session *s)
{
	struct xd_buffer *b;
	uint32_t at = 0;

	if (s->live_endpoints || s->live_listeners)
		return;
	/* No QP is left that could touch memory: windows, then registrations, then maps. */
	if (!windows_gone(s))
		return;
	while ((b = xc_slots_next(&s->buffers, &at)))
		if (b->state == XD_BUFFER_LIVE)
			xd_buffer_release(b);
	if (s->closed && !s->live_buffers && domains_empty(s))
		session_free(s);
}

/* ------------------------------------------------------------------ descriptors */

struct close_job {
	struct xd_job job;
	struct xc_list link;
	struct xd_core *core;
	struct xd_account *account;
	uint64_t since_ns;
	int fd;
	void (*close_fd)(int fd);
};

static void close_run(struct xd_job *job)
{
	struct close_job *c = xc_container_of(job, struct close_job, job);

	if (!XD_SABOTAGE("forget-a-descriptor"))
		c->close_fd(c->fd);
}

/* Its sessions are read from again. */
static void resume_user(struct xd_core *core, const struct xd_account *user)
{
	struct xd_session *s;

	xc_list_for_each(s, &core->sessions, link)
		if (s->payer.user == user && !s->closed)
			core->engine.ops->deliver(core->engine.engine, s->conn);
}

static void close_done(struct xd_job *job)
{
	struct close_job *c = xc_container_of(job, struct close_job, job);

	xc_list_remove(&c->link);
	if (c->account->n_closes-- == XD_CLOSES_MAX)
		resume_user(c->core, c->account);
	xd_account_unref(c->account);
	xd_core_count(c->core, XD_COUNTER_slow_closes, -1);
	free(c);
}

void xd_session_close_fd(struct xd_session *s, int fd)
{
	struct close_job *c = malloc(sizeof(*c));

	xc_assert(c);
	*c = (struct close_job){
		.job = { .helper = XD_HELP_CLOSE,
			 .owner = s->uid,
			 .run = close_run,
			 .done = close_done },
		.core = s->core,
		.account = s->payer.user,
		.since_ns = xd_now(s->core),
		.fd = fd,
		.close_fd = s->core->engine.ops->close_fd,
	};
	c->account->refs++;
	c->account->n_closes++;
	xc_list_append(&c->account->closes, &c->link);
	xd_core_count(s->core, XD_COUNTER_slow_closes, 1);
	xd_help(s->core, &c->job);
}

static bool closes_are_slow(const struct xd_session *s)
{
	const struct close_job *oldest =
		xc_list_first(&s->payer.user->closes, struct close_job, link);

	/* Many at once are no fault: a user with many is not read from, its new session neither. */
	return oldest && xd_now(s->core) - oldest->since_ns > SLOW_CLOSE_MS * XD_NS_PER_MS;
}

void xd_session_discard_fds(struct xd_session *s, const int *fds, int n)
{
	for (int i = 0; i < n; i++)
		xd_session_close_fd(s, fds[i]);
}

/* ------------------------------------------------------------------ calls and hello */

struct xd_call *xd_call_new(struct xd_session *s, uint64_t serial)
{
	struct xd_call *c = calloc(1, sizeof(*c));

	if (!c) {
		xd_session_fail(s, -ENOMEM, "the daemon is out of memory");
		return NULL;
	}
	xc_list_init(&c->out.link);
	c->out.note = XD_NOTE_CALL;
	c->session = s;
	c->serial = serial;
	s->calls++;
	return c;
}

void xd_call_reply(struct xd_call *c, int status, const char *format, ...)
{
	va_list args;

	c->status = status;
	if (format) {
		va_start(args, format);
		vsnprintf(c->text, sizeof(c->text), format, args);
		va_end(args);
	} else if (status < 0) {
		snprintf(c->text, sizeof(c->text), "%s", xd_strstatus(status));
	}
	if (status == -XP_E_QUOTA)
		xd_core_count(c->session->core, XD_COUNTER_quota_refusals, 1);
	if (status < 0 && XD_SABOTAGE("lose-a-reply"))
		xd_call_free(c);
	else
		xd_session_tell(c->session, &c->out);
}

void xd_call_free(struct xd_call *c)
{
	c->session->calls--;
	free(c);
}

void xd_session_hello(struct xd_session *s, uint64_t serial, const struct xd_hello *hello)
{
	struct xd_call *c;

	if (s->greeted) {
		xd_session_fail(s, -XP_E_PROTOCOL, "a second Hello");
		return;
	}
	if (hello->major != XP_PROTOCOL_MAJOR) {
		xd_session_fail(
			s, -XP_E_VERSION,
			"this daemon speaks version %d of the client protocol, the client version %" PRIu32,
			XP_PROTOCOL_MAJOR, hello->major);
		return;
	}
	c = xd_call_new(s, serial);
	if (!c)
		return;
	c->hello = true;
	s->greeted = true;
	for (size_t i = 0; hello->name && hello->name[i] && i < sizeof(s->name) - 1; i++)
		s->name[i] = hello->name[i] >= ' ' && hello->name[i] <= '~' ? hello->name[i] : '?';
	xd_call_reply(c, 0, NULL);
	log_session(s, XD_DEBUG, "opened");
}

bool xd_session_greeted(const struct xd_session *s)
{
	return s->greeted;
}

bool xd_session_failed(const struct xd_session *s)
{
	return s->failed;
}

uint64_t xd_session_number(const struct xd_session *s)
{
	return s->number;
}

bool xd_session_busy(const struct xd_session *s)
{
	return s->failed || s->calls >= XD_CALLS_MAX || s->refused >= REFUSED_MAX ||
	       s->payer.user->n_closes >= XD_CLOSES_MAX;
}

bool xd_session_may_submit(const struct xd_session *s)
{
	const struct xd_account *user = s->payer.user;

	return user->turn != s->core->turn || user->submitted < XD_TURN_SEGMENTS;
}

/* ------------------------------------------------------------------ what the client shall read */

void xd_session_tell(struct xd_session *s, struct xd_outnode *node)
{
	if (xd_session_ending(s)) {
		drop_note(node);
		return;
	}
	if (xc_list_empty(&node->link))
		xc_list_append(&s->out, &node->link);
	if (!XD_SABOTAGE("tell-nobody"))
		s->core->engine.ops->deliver(s->core->engine.engine, s->conn);
}

static enum xd_out_kind endpoint_kind(const struct xd_endpoint *ep)
{
	if (ep->events & XD_EV_READY)
		return XD_OUT_ENDPOINT_READY;
	return ep->events & XD_EV_CONNECTED ? XD_OUT_CONNECTED : XD_OUT_DISCONNECTED;
}

enum xd_out_kind xd_session_peek(const struct xd_session *s)
{
	const struct xd_outnode *node = xc_list_first(&s->out, struct xd_outnode, link);

	if (!node)
		return XD_OUT_NONE;
	switch (node->note) {
	case XD_NOTE_CALL:
		return xc_container_of(node, struct xd_call, out)->hello ? XD_OUT_HELLO
									 : XD_OUT_REPLY;
	case XD_NOTE_TRANSFER:
		return XD_OUT_COMPLETION;
	case XD_NOTE_ENDPOINT:
		return endpoint_kind(xc_container_of(node, struct xd_endpoint, out));
	case XD_NOTE_REQUEST:
		return XD_OUT_CONNECT_REQUEST;
	default:
		return XD_OUT_GOODBYE;
	}
}

static void copy_text(char to[static XD_TEXT_MAX], const char *from)
{
	snprintf(to, XD_TEXT_MAX, "%s", from ? from : "");
}

static void pull_call(struct xd_call *c, struct xd_out *ret)
{
	const struct xd_limits *limits = &c->session->payer.user->limits;

	ret->serial = c->serial;
	ret->status = c->status;
	ret->number = c->number;
	ret->address = c->address;
	ret->requests_max = (uint32_t)xc_min_u64(limits->value[XD_LIMIT_requests], UINT32_MAX);
	ret->bytes_max = limits->value[XD_LIMIT_bytes];
	copy_text(ret->text, c->text);
	xd_call_free(c);
}

static void pull_transfer(struct xd_transfer *t, struct xd_out *ret)
{
	ret->completion = t->completion;
	copy_text(ret->text, t->text);
	if ((XD_SABOTAGE("end-twice") || (XD_SABOTAGE("end-late-and-twice") && t->ending)) &&
	    !t->cut_due) {
		t->cut_due = true;
		xd_session_tell(t->session, &t->out);
		return;
	}
	xd_transfer_free(t);
}

static void pull_request(struct xd_request *r, struct xd_out *ret)
{
	ret->number = r->listener->number;
	ret->request = r->number;
	ret->address = r->peer;
	ret->peer_uid = r->peer_uid;
	ret->private_data_bytes = r->private_data_bytes;
	memcpy(ret->private_data, r->private_data, r->private_data_bytes);
	r->told = true;
}

bool xd_session_pull(struct xd_session *s, struct xd_out *ret)
{
	struct xd_outnode *node = xc_list_first(&s->out, struct xd_outnode, link);

	if (!node)
		return false;
	ret->kind = xd_session_peek(s);
	ret->status = 0;
	ret->private_data_bytes = 0;
	ret->text[0] = ret->route[0] = '\0';
	if (node->note == XD_NOTE_ENDPOINT) {
		struct xd_endpoint *ep = xc_container_of(node, struct xd_endpoint, out);

		if (xd_endpoint_pull(ep, ret)) {
			xc_list_remove(&node->link);
		} else if (ep->events == XD_EV_DISCONNECTED) {
			/* What ended before it was queued behind this place; and so was a Goodbye,
			 * which nothing follows. */
			xc_list_remove(&node->link);
			if (xd_session_ending(s))
				ep->events = 0;
			else
				xc_list_append(&s->out, &node->link);
		}
		return true;
	}
	xc_list_remove(&node->link);
	switch (node->note) {
	case XD_NOTE_CALL:
		pull_call(xc_container_of(node, struct xd_call, out), ret);
		break;
	case XD_NOTE_TRANSFER:
		pull_transfer(xc_container_of(node, struct xd_transfer, out), ret);
		break;
	case XD_NOTE_REQUEST:
		pull_request(xc_container_of(node, struct xd_request, out), ret);
		break;
	default:
		ret->status = s->goodbye_status;
		copy_text(ret->text, s->goodbye_text);
		break;
	}
	return true;
}
