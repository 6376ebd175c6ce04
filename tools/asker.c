/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "tools/asker.h"

#include "common/checked.h"
#include "tools/link.h"
#include "tools/progress.h"
#include "tools/text.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NS_PER_S 1000000000ull
#define CONNECT_NS (15 * NS_PER_S)  /* beyond the daemon's own 10 s, whose sentence is better */
#define PROGRESS_NS (40 * NS_PER_S) /* likewise: 30 s */
#define GOODBYE_NS (2 * NS_PER_S)

struct asker_private {
	struct link link;
	struct asker *asker;
	struct xfer_buf *data;
	struct asker_slot slots[FP_DEPTH];
	uint32_t next;      /* chunk to grant next */
	uint32_t done;      /* chunk of the next DONE */
	uint32_t through;   /* chunks that are finished with */
	bool connected, opened;
	bool invalidate;    /* the server ends grants with its DONE */
	bool answered;      /* the server's RESULT is there */
	bool told;          /* ours is on its way */
	bool over;
	uint64_t started_ns, deadline_ns;
};

static struct asker_private *of_link(struct link *l)
{
	return xc_container_of(l, struct asker_private, link);
}

static void tell(struct asker_private *p, uint32_t error, const char *text)
{
	struct fp_message m = {.type = FP_RESULT};

	p->told = true;
	m.result.error = error;
	snprintf(m.result.text, sizeof(m.result.text), "%s", text);
	link_send(&p->link, LINK_SEND_RESULT, &m, false, 0);
}

/* After failure_set(): tells the server why, if it can be told, and ends. */
static void give_up(struct asker_private *p)
{
	if (p->over)
		return;
	if (!p->connected || p->link.is_broken || p->told || p->answered) {
		p->over = true;
		return;
	}
	tell(p, failure_errno(&p->asker->failure), p->asker->failure.text);
	p->deadline_ns = progress_now_ns() + GOODBYE_NS;
}

__attribute__((format(printf, 2, 3))) static void protocol_error(struct asker_private *p,
								 const char *format, ...)
{
	char text[200];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	failure_set(&p->asker->failure, -EBADMSG, "the server broke the file protocol: %s", text);
	give_up(p);
}

/* ------------------------------------------------------------------------- chunks */

static uint8_t *slot_data(const struct asker_private *p, uint32_t slot)
{
	return (uint8_t *)xfer_buf_data(p->data) + (size_t)slot * FP_CHUNK_BYTES;
}

/* Grants the next chunk, if its place is free. */
static bool start_chunk(struct asker_private *p)
{
	struct asker *a = p->asker;
	const uint32_t index = p->next % FP_DEPTH;
	struct asker_slot *s = &p->slots[index];
	uint8_t *data;

	/* Of an empty file there is no memory either. */
	if (p->next == a->chunks || s->state != SLOT_FREE || link_is_sending(&p->link, index))
		return false;
	data = slot_data(p, index);
	s->chunk = p->next;
	s->bytes = fp_chunk_bytes(a->size_bytes, s->chunk);
	s->crc = 0;
	if (a->operation == FP_PUT) {
		if (a->ops->fill(a, data, s->bytes, (uint64_t)s->chunk * FP_CHUNK_BYTES) < 0) {
			give_up(p);
			return false;
		}
		s->crc = fp_crc32c(data, s->bytes);
	}
	s->state = SLOT_GRANTING;
	p->next++;
	link_grant(&p->link, index, data, s->bytes,
		   a->operation == FP_PUT ? XFER_GRANT_READ : XFER_GRANT_WRITE);
	return true;
}

static void start_chunks(struct asker_private *p)
{
	while (p->opened && !p->told && !p->over && start_chunk(p))
		;
}

/* The file is through: the side that has it speaks first. */
static void look_whether_last(struct asker_private *p)
{
	struct asker *a = p->asker;

	if (!p->opened || p->told || p->over || p->through < a->chunks)
		return;
	if (a->operation == FP_GET && !p->answered)
		return;
	if (a->ops->last(a) < 0) {
		/* Of a get, the server has spoken and still listens. */
		p->answered = false;
		give_up(p);
		return;
	}
	tell(p, 0, "");
}

/* The chunk's key is dead: its bytes stand still. */
static void chunk_through(struct asker_private *p, uint32_t index)
{
	struct asker *a = p->asker;
	struct asker_slot *s = &p->slots[index];
	const uint8_t *data = slot_data(p, index);

	s->state = SLOT_FREE;
	if (a->operation == FP_GET) {
		if (fp_crc32c(data, s->bytes) != s->crc) {
			failure_set(&a->failure, -EBADMSG,
				    "chunk %u arrived with another CRC32c than it was sent with",
				    s->chunk);
			give_up(p);
			return;
		}
		if (a->ops->store(a, data, s->bytes, (uint64_t)s->chunk * FP_CHUNK_BYTES) < 0) {
			give_up(p);
			return;
		}
	}
	p->through++;
	a->ops->progress(a, xc_min_u64((uint64_t)p->through * FP_CHUNK_BYTES, a->size_bytes));
}

/* ------------------------------------------------------------------------- messages */

static void on_opened(struct asker_private *p, const struct fp_opened *m)
{
	struct asker *a = p->asker;
	uint64_t room;

	if (p->opened || (a->operation == FP_PUT && m->size_bytes != a->size_bytes)) {
		protocol_error(p, "OPENED %s", p->opened ? "twice" : "with another size");
		return;
	}
	a->size_bytes = m->size_bytes;
	a->chunks = fp_chunks(m->size_bytes);
	/* A place for each chunk in flight, whole even where the file's last chunk is short. */
	room = (uint64_t)xc_min_u32(a->chunks, FP_DEPTH) * FP_CHUNK_BYTES;
	if (room) {
		int r = xfer_buf_new(p->link.client, room, 0, &p->data);

		if (r < 0) {
			failure_set_last(&a->failure, r, "memory for the file");
			give_up(p);
			return;
		}
	}
	if (a->ops->opened(a, m->size_bytes) < 0) {
		give_up(p);
		return;
	}
	p->opened = true;
}

static void on_done(struct asker_private *p, const struct fp_done *m, uint32_t ended_grant)
{
	struct asker_slot *s = &p->slots[m->chunk % FP_DEPTH];

	if (!p->opened || m->chunk != p->done || m->chunk >= p->next || s->chunk != m->chunk ||
	    s->state != SLOT_GRANTED || m->length_bytes != s->bytes) {
		protocol_error(p, "DONE for %u bytes of chunk %u, which is not its turn",
			       m->length_bytes, m->chunk);
		return;
	}
	if (p->asker->operation == FP_PUT && m->crc != s->crc) {
		failure_set(&p->asker->failure, -EBADMSG,
			    "chunk %u arrived with another CRC32c than it was sent with", m->chunk);
		give_up(p);
		return;
	}
	s->crc = m->crc;
	p->done++;
	if (ended_grant != 0 && ended_grant == s->grant) {
		chunk_through(p, m->chunk % FP_DEPTH);
		return;
	}
	s->state = SLOT_REVOKING;
	link_revoke(&p->link, m->chunk % FP_DEPTH, s->grant);
}

static void on_result(struct asker_private *p, const struct fp_result *m)
{
	struct asker *a = p->asker;

	if (m->error) {
		p->answered = true;
		failure_set(&a->failure, m->error < 4096 ? -(int)m->error : -EIO, "%s",
			    m->text[0] ? m->text : strerror((int)xc_min_u32(m->error, 4095)));
		p->over = true;
		return;
	}
	if (p->answered || !p->opened || p->done < a->chunks ||
	    (a->operation == FP_PUT && !p->told)) {
		protocol_error(p, "RESULT before its time");
		return;
	}
	p->answered = true;
	if (a->operation == FP_PUT)
		p->over = true;
}

static void on_message(struct link *l, const struct fp_message *m, uint32_t ended_grant)
{
	struct asker_private *p = of_link(l);

	/* Having given up, nothing is of interest but that the server has heard it. */
	if (p->over || p->asker->failure.status)
		return;
	p->deadline_ns = progress_now_ns() + PROGRESS_NS;
	switch (m->type) {
	case FP_OPENED:
		on_opened(p, &m->opened);
		break;
	case FP_DONE:
		on_done(p, &m->done, ended_grant);
		break;
	case FP_RESULT:
		on_result(p, &m->result);
		break;
	default:
		protocol_error(p, "a message of type %d, which only an asker sends", (int)m->type);
	}
}

/* ------------------------------------------------------------------------- completions */

static void granted(struct asker_private *p, unsigned int slot, const struct xfer_event *event)
{
	struct asker_slot *s = &p->slots[slot];
	struct fp_message m = {.type = FP_GRANT};

	s->grant = event->grant;
	s->state = SLOT_GRANTED;
	m.grant = (struct fp_grant){
		.chunk = s->chunk,
		.length_bytes = s->bytes,
		.address = event->token.address,
		.rkey = event->token.rkey,
		.crc = s->crc,
	};
	link_send(&p->link, slot, &m, false, 0);
}

static void on_completed(struct link *l, enum link_kind kind, unsigned int slot,
			 const struct xfer_event *event)
{
	struct asker_private *p = of_link(l);

	if (kind == LINK_SEND && slot == LINK_SEND_RESULT &&
	    (p->asker->operation == FP_GET || p->asker->failure.status))
		p->over = true;
	if (p->over || p->asker->failure.status)
		return;
	if (kind == LINK_GRANT)
		granted(p, slot, event);
	else if (kind == LINK_REVOKE &&
		 (event->status == 0 || event->status == -XFER_E_GRANT_ENDED))
		chunk_through(p, slot);
	else if (kind == LINK_REVOKE)
		link_break(l, event->status, event->text);
}

static void on_broken(struct link *l, int status, const char *text)
{
	struct asker_private *p = of_link(l);

	/*
	 * A get is complete when its file has its name: that the server hears of it is a courtesy.
	 */
	if (p->asker->operation != FP_GET || !p->told)
		failure_set(&p->asker->failure, status, "%s", text);
	p->over = true;
}

static const struct link_ops link_ops = {
	.message = on_message,
	.completed = on_completed,
	.broken = on_broken,
};

/* ------------------------------------------------------------------------- the connection */

static void on_ready(struct asker_private *p)
{
	struct xfer_ep_info info = {.size = sizeof(info)};
	struct fp_connect c = {.operation = p->asker->operation};
	uint8_t data[FP_CONNECT_BYTES];
	int r = xfer_ep_info(p->link.ep, &info);

	if (r == 0) {
		memcpy(p->asker->fabric, info.fabric, sizeof(p->asker->fabric));
		p->asker->fabric[sizeof(p->asker->fabric) - 1] = '\0';
		c.flags = info.remote_invalidatable ? FP_FLAG_INVALIDATE : 0;
		link_post_recvs(&p->link);
		/* The queue is empty and the endpoint new: what it takes now it takes all. */
		if (link_pump(&p->link))
			r = -EAGAIN;
	}
	if (r == 0 && !p->link.is_broken)
		r = xfer_connect(p->link.ep, data, fp_encode_connect(&c, data));
	if (r < 0) {
		failure_set_last(&p->asker->failure, r, "connecting");
		p->over = true;
	}
}

static void on_refused(struct asker_private *p, const struct xfer_event *event)
{
	struct fp_reject reject;

	if (event->private_data_bytes <= sizeof(event->private_data) &&
	    event->status == -XFER_E_REJECTED &&
	    fp_decode_reject(event->private_data, event->private_data_bytes, &reject) == 0)
		failure_set(&p->asker->failure, event->status, "the server refuses: %s",
			    reject.text);
	else if (event->status == -ECONNREFUSED)
		failure_set(&p->asker->failure, event->status,
			    "nobody listens there; it wants 'xferctl serve'");
	else
		failure_set(&p->asker->failure, event->status, "%s",
			    event->text[0] ? event->text : xfer_strerror(event->status));
	p->over = true;
}

static void on_connected(struct asker_private *p, const struct xfer_event *event)
{
	struct asker *a = p->asker;
	struct fp_message m = {.type = FP_PATH};
	struct fp_connect c;

	if (event->private_data_bytes > sizeof(event->private_data) ||
	    fp_decode_connect(event->private_data, event->private_data_bytes, &c) != 0 ||
	    c.operation != a->operation) {
		failure_set(&a->failure, -EBADMSG,
			    "what listens there does not speak the file protocol, or another version of it");
		p->over = true;
		return;
	}
	p->connected = true;
	p->started_ns = progress_now_ns();
	p->deadline_ns = p->started_ns + PROGRESS_NS;
	m.path.size_bytes = a->operation == FP_PUT ? a->size_bytes : 0;
	snprintf(m.path.path, sizeof(m.path.path), "%s", a->path);
	link_send(&p->link, LINK_SEND_OPEN, &m, false, 0);
}

static void on_event(struct asker_private *p, const struct xfer_event *event)
{
	const char *text = event->text[0] ? event->text : xfer_strerror(event->status);

	switch (event->type) {
	case XFER_EVENT_COMPLETION:
		link_completion(&p->link, event);
		break;
	case XFER_EVENT_READY:
		if (event->status == 0)
			on_ready(p);
		else
			link_break(&p->link, event->status, text);
		break;
	case XFER_EVENT_CONNECTED:
		if (event->status == 0)
			on_connected(p, event);
		else
			on_refused(p, event);
		break;
	case XFER_EVENT_DISCONNECTED:
	case XFER_EVENT_DAEMON_GONE:
		link_break(&p->link, event->status ? event->status : -XFER_E_PEER_GONE, text);
		break;
	case XFER_EVENT_CONNECT_REQUEST:
		break;
	}
}

static void check_deadline(struct asker_private *p)
{
	if (progress_now_ns() < p->deadline_ns)
		return;
	failure_set(&p->asker->failure, -ETIMEDOUT, "%s",
		    p->connected ? "the server made no progress in time" : "no connection in time");
	p->over = true;
}

static void run(struct asker_private *p)
{
	struct xfer_event events[32];
	int n, wait_ms;

	p->deadline_ns = progress_now_ns() + CONNECT_NS;
	while (!p->over) {
		start_chunks(p);
		look_whether_last(p);
		/*
		 * What the daemon does not take yet is tried again; nothing else would wake us for
		 * it.
		 */
		wait_ms = link_pump(&p->link) ? 5 : 1000;
		if (p->over)
			break;
		n = xfer_poll(p->link.client, events, XC_ARRAY_SIZE(events), wait_ms);
		if (n < 0 && n != -EINTR) {
			failure_set_last(&p->asker->failure, n, "waiting");
			return;
		}
		for (int i = 0; i < n && !p->over; i++)
			on_event(p, &events[i]);
		check_deadline(p);
	}
}

int asker_run(struct asker *a, struct xfer_client *client)
{
	const struct xfer_ep_options options = {
		.size = sizeof(options),
		.recv_depth = FP_RECVS,
	};
	struct asker_private *p = calloc(1, sizeof(*p));
	const char *text;
	int r;

	if (!p) {
		failure_set(&a->failure, -ENOMEM, "out of memory");
		return -ENOMEM;
	}
	p->asker = a;
	a->private = p;
	r = link_init(&p->link, client, &link_ops);
	if (r == 0)
		r = xfer_ep_new(client, a->url, &options, &p->link.ep);
	if (r == 0)
		run(p);
	else if (xfer_last_error(&text) == r)
		failure_set(&a->failure, r, "%s", text);
	a->moving_ns = p->started_ns ? progress_now_ns() - p->started_ns : 0;
	link_done(&p->link);
	if (p->data)
		xfer_buf_free(p->data);
	a->private = NULL;
	free(p);
	return a->failure.status;
}

void asker_report(const struct asker *a, const struct tool *t, const char *file, bool to_stderr)
{
	FILE *out = to_stderr ? stderr : stdout;
	const bool get = a->operation == FP_GET;
	const double seconds = (double)(a->moving_ns ? a->moving_ns : 1) / 1e9;
	char speed[128], name[256];

	if (t->json) {
		fprintf(out, "{\"operation\":\"%s\",\"url\":", get ? "get" : "put");
		text_json(out, a->url);
		fputs(",\"file\":", out);
		text_json(out, file);
		fprintf(out,
			",\"bytes\":%llu,\"chunks\":%u,\"seconds\":%.6f,\"bytes_per_second\":%.0f,"
			"\"fabric\":",
			(unsigned long long)a->size_bytes, a->chunks, seconds,
			(double)a->size_bytes / seconds);
		text_json(out, a->fabric);
		fputs(",\"verified\":true}\n", out);
		return;
	}
	snprintf(name, sizeof(name), "%s", get ? file : a->url);
	fprintf(out, "%s: %s over %s, verified (%u chunk%s, CRC32c)\n", text_clean(name),
		tool_speed(a->size_bytes, a->moving_ns, speed, sizeof(speed)), a->fabric,
		a->chunks, a->chunks == 1 ? "" : "s");
}
