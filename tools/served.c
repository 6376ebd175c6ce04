/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#define _GNU_SOURCE 1
#include "tools/served.h"

#include "common/checked.h"
#include "tools/progress.h"
#include "tools/text.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NS_PER_S 1000000000ull
#define SETUP_NS (15 * NS_PER_S)   /* until connected and the path is there */
#define IDLE_NS (30 * NS_PER_S)    /* between two messages */
#define GOODBYE_NS (5 * NS_PER_S)

static void set_deadline(struct served *s, uint64_t ns)
{
	s->deadline_ns = progress_now_ns() + ns;
}

/* ------------------------------------------------------------------------- the log */

static void report_json(const struct served *s, uint64_t ns)
{
	const double seconds = (double)(ns ? ns : 1) / 1e9;

	printf("{\"operation\":\"%s\",\"path\":", s->operation == FP_GET ? "get" : "put");
	text_json(stdout, s->path);
	fputs(",\"peer\":", stdout);
	text_json(stdout, s->peer);
	printf(",\"peer_uid\":%lld,\"bytes\":%llu,\"seconds\":%.6f,", (long long)s->peer_uid,
	       (unsigned long long)s->size_bytes, seconds);
	if (s->succeeded) {
		printf("\"bytes_per_second\":%.0f,\"verified\":true}\n",
		       (double)s->size_bytes / seconds);
		return;
	}
	fputs("\"verified\":false,\"error\":", stdout);
	text_json(stdout, s->failure.text);
	fputs("}\n", stdout);
}

static void report(struct served *s)
{
	const uint64_t ns = progress_now_ns() - s->started_ns;
	char path[512], peer[sizeof(s->peer) + 32], speed[128];

	/* Without a path there was no transfer. */
	if (s->reported || s->path[0] == '\0')
		return;
	s->reported = true;
	if (s->server->tool->json) {
		report_json(s, ns);
		return;
	}
	snprintf(path, sizeof(path), "%.500s", s->path);
	text_clean(path);
	if (s->peer_uid >= 0)
		snprintf(peer, sizeof(peer), "%s (uid %lld)", s->peer, (long long)s->peer_uid);
	else
		snprintf(peer, sizeof(peer), "%s", s->peer);
	if (s->succeeded)
		printf("%s %s: %s, verified, %s %s\n", s->operation == FP_GET ? "get" : "put", path,
		       tool_speed(s->size_bytes, ns, speed, sizeof(speed)),
		       s->operation == FP_GET ? "to" : "from", text_clean(peer));
	else
		printf("%s %s: failed: %s, %s %s\n", s->operation == FP_GET ? "get" : "put", path,
		       s->failure.text, s->operation == FP_GET ? "to" : "from", text_clean(peer));
}

/* ------------------------------------------------------------------------- ends */

static void close_files(struct served *s)
{
	store_source_close(&s->source);
	store_temp_abort(&s->temp);
}

static void tell(struct served *s, uint32_t error, const char *text)
{
	struct fp_message m = {.type = FP_RESULT};

	s->told = true;
	m.result.error = error;
	snprintf(m.result.text, sizeof(m.result.text), "%s", text);
	link_send(&s->link, LINK_SEND_RESULT, &m, false, 0);
}

/* After failure_set(). The peer hears why if it can still hear, and has GOODBYE_NS to go. */
static void give_up(struct served *s)
{
	report(s);
	close_files(s);
	if (s->state < SERVED_PATH || s->state >= SERVED_CLOSING || s->link.is_broken || s->told) {
		s->state = SERVED_GONE;
		return;
	}
	tell(s, failure_errno(&s->failure), s->failure.text);
	s->state = SERVED_CLOSING;
	set_deadline(s, GOODBYE_NS);
}

__attribute__((format(printf, 3, 4))) static void fail(struct served *s, int status,
						       const char *format, ...)
{
	char text[STORE_WHY_MAX + 128];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	failure_set(&s->failure, status, "%s", text);
	give_up(s);
}

static void fail_last(struct served *s, int status, const char *what)
{
	failure_set_last(&s->failure, status, what);
	give_up(s);
}

static void succeed(struct served *s)
{
	s->succeeded = true;
	report(s);
	close_files(s);
	s->state = SERVED_CLOSING;
	set_deadline(s, GOODBYE_NS);
}

/* ------------------------------------------------------------------------- chunks */

static void *slot_data(const struct served *s, uint32_t slot)
{
	return (uint8_t *)xfer_buf_data(s->data) + (size_t)slot * FP_CHUNK_BYTES;
}

static void send_done(struct served *s, uint32_t index, uint32_t crc)
{
	const struct fp_grant *grant = &s->slots[index].now;
	struct fp_message m = {.type = FP_DONE};

	m.done = (struct fp_done){
		.chunk = grant->chunk,
		.length_bytes = grant->length_bytes,
		.crc = crc,
	};
	s->done++;
	link_send(&s->link, index, &m, s->invalidate, grant->rkey);
}

/* A get is all sent: was it the same file to the end? */
static void look_whether_sent(struct served *s)
{
	char why[STORE_WHY_MAX];
	int r;

	if (s->operation != FP_GET || s->state != SERVED_MOVING || s->told || s->done < s->chunks)
		return;
	r = store_source_unchanged(&s->source, why);
	if (r < 0)
		fail(s, r, "%s", why);
	else
		tell(s, 0, "");
}

static void start_get(struct served *s, uint32_t index, const struct xfer_token *token)
{
	struct served_slot *slot = &s->slots[index];
	void *data = slot_data(s, index);
	char why[STORE_WHY_MAX];
	int r = store_source_read(&s->source, data, slot->now.length_bytes,
				  (uint64_t)slot->now.chunk * FP_CHUNK_BYTES, why);

	if (r < 0) {
		fail(s, r, "%s", why);
		return;
	}
	slot->moving = true;
	link_write(&s->link, index, data, slot->now.length_bytes, token);
	/* A SEND arrives behind the WRITE before it. */
	send_done(s, index, fp_crc32c(data, slot->now.length_bytes));
	look_whether_sent(s);
}

static void start_slot(struct served *s, uint32_t index)
{
	struct served_slot *slot = &s->slots[index];
	struct xfer_token token;

	slot->waiting = false;
	slot->now = slot->next;
	token = (struct xfer_token){
		.address = slot->now.address,
		.length = slot->now.length_bytes,
		.rkey = slot->now.rkey,
	};
	if (s->operation == FP_GET) {
		start_get(s, index, &token);
		return;
	}
	slot->moving = true;
	link_read(&s->link, index, slot_data(s, index), slot->now.length_bytes, &token);
}

static bool slot_in_use(const struct served *s, uint32_t index)
{
	return s->slots[index].moving || s->slots[index].arrived ||
	       link_is_sending(&s->link, index);
}

static void chunk_arrived(struct served *s, uint32_t index)
{
	struct served_slot *slot = &s->slots[index];
	const void *data = slot_data(s, index);
	char why[STORE_WHY_MAX];
	int r;

	if (fp_crc32c(data, slot->now.length_bytes) != slot->now.crc) {
		fail(s, -EBADMSG, "chunk %u arrived with another CRC32c than it was sent with",
		     slot->now.chunk);
		return;
	}
	r = store_temp_write(&s->temp, data, slot->now.length_bytes,
			     (uint64_t)slot->now.chunk * FP_CHUNK_BYTES, why);
	if (r < 0) {
		fail(s, r, "%s", why);
		return;
	}
	slot->arrived = true;
	/* DONEs go out in the order of the chunks, in whatever order READs complete. */
	while (s->done < s->chunks && s->slots[s->done % FP_DEPTH].arrived) {
		index = s->done % FP_DEPTH;
		s->slots[index].arrived = false;
		send_done(s, index, s->slots[index].now.crc);
	}
}

static void on_completed(struct link *l, enum link_kind kind, unsigned int slot,
			 const struct xfer_event *event)
{
	struct served *s = served_of_link(l);

	(void)event;
	if (s->state != SERVED_MOVING)
		return;
	if (kind == LINK_READ || kind == LINK_WRITE)
		s->slots[slot].moving = false;
	if (kind == LINK_READ)
		chunk_arrived(s, slot);
	if (s->state == SERVED_MOVING && slot < FP_DEPTH && s->slots[slot].waiting &&
	    !slot_in_use(s, slot))
		start_slot(s, slot);
}

/* ------------------------------------------------------------------------- messages */

static int open_file(struct served *s, const struct fp_path *m)
{
	char why[STORE_WHY_MAX];
	int r;

	if (s->operation == FP_GET) {
		r = store_source_open(s->server->root, m->path, &s->source, why);
		s->size_bytes = s->source.size_bytes;
	} else if (!s->server->tool->writable) {
		r = -EROFS;
		snprintf(why, sizeof(why), "this server is read-only");
	} else {
		r = store_temp_begin(s->server->root, m->path, m->size_bytes, &s->temp, why);
		s->size_bytes = m->size_bytes;
	}
	if (r == 0 && s->size_bytes > FP_SIZE_MAX) {
		r = -EFBIG;
		snprintf(why, sizeof(why), "larger than the protocol can carry");
	}
	if (r < 0)
		fail(s, r, "%s", why);
	return r;
}

static void on_path(struct served *s, const struct fp_path *m)
{
	struct fp_message answer = {.type = FP_OPENED};
	uint64_t room;
	int r;

	if (s->state != SERVED_PATH) {
		fail(s, -EBADMSG, "the client broke the file protocol: PATH twice");
		return;
	}
	s->started_ns = progress_now_ns();
	snprintf(s->path, sizeof(s->path), "%s", m->path);
	if (open_file(s, m) < 0)
		return;
	s->chunks = fp_chunks(s->size_bytes);
	room = (uint64_t)xc_min_u32(s->chunks, FP_DEPTH) * FP_CHUNK_BYTES;
	if (room) {
		r = xfer_buf_new(s->server->client, room, 0, &s->data);
		if (r < 0) {
			fail_last(s, r, "the server's memory for the file");
			return;
		}
	}
	answer.opened.size_bytes = s->size_bytes;
	link_send(&s->link, LINK_SEND_OPEN, &answer, false, 0);
	s->state = SERVED_MOVING;
	look_whether_sent(s);
}

static void on_grant(struct served *s, const struct fp_grant *m)
{
	const uint32_t index = m->chunk % FP_DEPTH;
	struct served_slot *slot = &s->slots[index];

	if (s->state != SERVED_MOVING || m->chunk != s->granted || m->chunk >= s->chunks ||
	    m->length_bytes != fp_chunk_bytes(s->size_bytes, m->chunk)) {
		fail(s, -EBADMSG,
		     "the client broke the file protocol: GRANT of %u bytes for chunk %u of %u, "
		     "where chunk %u was to come",
		     m->length_bytes, m->chunk, s->chunks, s->granted);
		return;
	}
	/* One may come before the completion of what its place was used for is seen here. */
	if (slot->waiting) {
		fail(s, -EBADMSG,
		     "the client broke the file protocol: more than %d chunks in flight", FP_DEPTH);
		return;
	}
	s->granted++;
	slot->next = *m;
	slot->waiting = true;
	if (!slot_in_use(s, index))
		start_slot(s, index);
}

static void on_result(struct served *s, const struct fp_result *m)
{
	char why[STORE_WHY_MAX];
	int r;

	if (m->error) {
		failure_set(&s->failure, -EIO, "the client gave up: %s",
			    m->text[0] ? m->text : "it does not say why");
		s->told = true; /* there is nothing to add */
		give_up(s);
		return;
	}
	if (s->state != SERVED_MOVING || s->done < s->chunks ||
	    s->told != (s->operation == FP_GET)) {
		fail(s, -EBADMSG, "the client broke the file protocol: RESULT before its time");
		return;
	}
	if (s->operation == FP_PUT) {
		r = store_temp_commit(&s->temp, s->server->tool->sync, why);
		if (r < 0) {
			fail(s, r, "%s", why);
			return;
		}
		tell(s, 0, "");
	}
	succeed(s);
}

static void on_message(struct link *l, const struct fp_message *m, uint32_t ended_grant)
{
	struct served *s = served_of_link(l);

	(void)ended_grant; /* this side grants nothing */
	/* When all is said, what still comes was on its way. */
	if (s->state != SERVED_PATH && s->state != SERVED_MOVING)
		return;
	set_deadline(s, IDLE_NS);
	switch (m->type) {
	case FP_PATH:
		on_path(s, &m->path);
		break;
	case FP_GRANT:
		on_grant(s, &m->grant);
		break;
	case FP_RESULT:
		on_result(s, &m->result);
		break;
	default:
		fail(s, -EBADMSG,
		     "the client broke the file protocol: a message of type %d, which only a server sends",
		     (int)m->type);
	}
}

static void on_broken(struct link *l, int status, const char *text)
{
	struct served *s = served_of_link(l);

	if (!s->succeeded) {
		failure_set(&s->failure, status, "%s", text);
		give_up(s);
	}
	s->state = SERVED_GONE;
}

static const struct link_ops link_ops = {
	.message = on_message,
	.completed = on_completed,
	.broken = on_broken,
};

/* ------------------------------------------------------------------------- the connection */

static void on_ready(struct served *s)
{
	struct xfer_ep_info info = {.size = sizeof(info)};
	struct fp_connect c = {.operation = s->operation};
	uint8_t data[FP_CONNECT_BYTES];
	int r = xfer_ep_info(s->link.ep, &info);

	if (r == 0) {
		/* It takes both: a fabric that ends no grants for a peer sends no such SEND. */
		s->invalidate = s->invalidate && info.remote_invalidatable;
		c.flags = s->invalidate ? FP_FLAG_INVALIDATE : 0;
		link_post_recvs(&s->link);
		r = link_pump(&s->link) ? -EAGAIN : 0;
	}
	if (r == 0 && !s->link.is_broken)
		r = xfer_accept(s->link.ep, data, fp_encode_connect(&c, data));
	if (r < 0)
		fail_last(s, r, "accepting");
	else if (!s->link.is_broken)
		s->state = SERVED_ACCEPTING;
}

void served_event(struct served *s, const struct xfer_event *event)
{
	if (s->state == SERVED_GONE)
		return;
	switch (event->type) {
	case XFER_EVENT_COMPLETION:
		link_completion(&s->link, event);
		break;
	case XFER_EVENT_READY:
		if (event->status == 0)
			on_ready(s);
		else
			link_break(&s->link, event->status, event->text);
		break;
	case XFER_EVENT_CONNECTED:
		if (event->status == 0)
			s->state = SERVED_PATH;
		else
			link_break(&s->link, event->status, event->text);
		break;
	case XFER_EVENT_DISCONNECTED:
		link_break(&s->link, event->status ? event->status : -XFER_E_PEER_GONE,
			   event->text);
		break;
	case XFER_EVENT_CONNECT_REQUEST:
	case XFER_EVENT_DAEMON_GONE:
		break;
	}
}

bool served_pump(struct served *s)
{
	return s->state != SERVED_GONE && link_pump(&s->link);
}

void served_check_deadline(struct served *s, uint64_t now_ns)
{
	if (s->state == SERVED_GONE || now_ns < s->deadline_ns)
		return;
	if (s->state == SERVED_CLOSING)
		s->state = SERVED_GONE;
	else
		fail(s, -ETIMEDOUT, "the client was silent for too long");
}

void served_stop(struct served *s, bool abort)
{
	if (s->state <= SERVED_PATH)
		s->state = SERVED_GONE;
	else if (s->state == SERVED_MOVING && abort)
		fail(s, -ESHUTDOWN, "the server is stopping");
}

/* ------------------------------------------------------------------------- making and freeing */

/* Returns -error. */
static int reject(struct server *server, uint64_t request, int error, const char *text)
{
	struct fp_reject r = {.error = (uint32_t)error};
	uint8_t data[FP_REJECT_MAX];

	snprintf(r.text, sizeof(r.text), "%s", text);
	/* It may have gone away meanwhile. */
	(void)xfer_reject(server->client, request, data, fp_encode_reject(&r, data));
	return -error;
}

/* One user of this host gets half of the places at most. */
static bool too_many(const struct server *server, int64_t uid)
{
	const struct served *s;
	unsigned int same = 0;

	if (server->count >= server->tool->clients_max)
		return true;
	if (uid < 0)
		return false;
	xc_list_for_each(s, &((struct server *)(uintptr_t)server)->served, at)
		same += s->peer_uid == uid;
	return same >= (server->tool->clients_max + 1) / 2;
}

static int check_request(struct server *server, const struct xfer_event *event,
			 struct fp_connect *ret)
{
	const uint64_t request = event->request;
	int r = -EBADMSG;

	if (event->private_data_bytes <= sizeof(event->private_data))
		r = fp_decode_connect(event->private_data, event->private_data_bytes, ret);
	if (r == -EPROTONOSUPPORT)
		return reject(server, request, EPROTONOSUPPORT,
			      "it speaks version 1 of the file protocol only");
	if (r < 0)
		return reject(server, request, EPROTO, "it serves files (xferctl serve)");
	if (server->stopping)
		return reject(server, request, ESHUTDOWN, "it is stopping");
	if (ret->operation == FP_PUT && !server->tool->writable)
		return reject(server, request, EROFS, "it is read-only");
	if (too_many(server, event->peer_uid))
		return reject(server, request, EBUSY,
			      "it has as many clients as it takes; try again later");
	return 0;
}

void served_new(struct server *server, const struct xfer_event *request)
{
	struct xfer_ep_options options = {.size = sizeof(options), .recv_depth = FP_RECVS};
	struct fp_connect c;
	struct served *s;
	int r;

	if (check_request(server, request, &c) < 0)
		return;
	s = calloc(1, sizeof(*s));
	if (!s) {
		reject(server, request->request, ENOMEM, "the server is out of memory");
		return;
	}
	s->server = server;
	s->source.fd = -1;
	s->operation = c.operation;
	s->invalidate = c.flags & FP_FLAG_INVALIDATE;
	s->peer_uid = request->peer_uid;
	snprintf(s->peer, sizeof(s->peer), "%s", request->peer_address);
	set_deadline(s, SETUP_NS);
	options.context = &s->link;
	r = link_init(&s->link, server->client, &link_ops);
	if (r == 0)
		r = xfer_ep_new_answer(server->client, request->request, &options, &s->link.ep);
	if (r < 0) {
		reject(server, request->request, ENOMEM, "the server has no room for this client");
		link_done(&s->link);
		free(s);
		return;
	}
	xc_list_append(&server->served, &s->at);
	server->count++;
}

void served_free(struct served *s)
{
	if (!s->succeeded && !s->failure.status)
		failure_set(&s->failure, -ESHUTDOWN, "the server is stopping");
	report(s);
	close_files(s);
	link_done(&s->link);
	if (s->data)
		xfer_buf_free(s->data);
	xc_list_remove(&s->at);
	s->server->count--;
	free(s);
}
