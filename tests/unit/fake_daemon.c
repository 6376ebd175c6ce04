/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#define _GNU_SOURCE 1
#include "tests/unit/fake_daemon.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define need(cond)                                                                                 \
	do {                                                                                       \
		if (!(cond)) {                                                                     \
			fprintf(stderr, "%s:%d: fake daemon: %s\n", __FILE__, __LINE__, #cond);    \
			abort();                                                                   \
		}                                                                                  \
	} while (0)

/* ---- speaking */

void fake_say_raw(struct fake *f, const void *bytes, size_t size)
{
	struct pollfd p = { .fd = f->sock, .events = POLLOUT };

	for (int i = 0; i < 100 && xp_fdmsg_send(f->sock, bytes, size, NULL, 0) == -EAGAIN; i++)
		poll(&p, 1, 100);
}

void fake_say(struct fake *f, const Xp__DaemonMessage *m)
{
	uint8_t packet[XP_PACKET_BYTES_MAX];
	size_t size = xp__daemon_message__get_packed_size(m);

	need(size <= sizeof(packet));
	xp__daemon_message__pack(m, packet);
	fake_say_raw(f, packet, size);
}

static void say_reply(struct fake *f, uint64_t serial, uint32_t number)
{
	Xp__DaemonMessage m = XP__DAEMON_MESSAGE__INIT;
	Xp__Reply body = XP__REPLY__INIT;
	char text[] = "because the test wants it";
	char address[] = "127.0.0.1:20470";

	m.serial = serial;
	m.body_case = XP__DAEMON_MESSAGE__BODY_REPLY;
	m.reply = &body;
	body.status = f->reply_status;
	if (body.status)
		body.text = text;
	else
		body.number = number;
	body.address = address;
	fake_say(f, &m);
}

static void say_hello_reply(struct fake *f, uint64_t serial)
{
	Xp__DaemonMessage m = XP__DAEMON_MESSAGE__INIT;
	Xp__HelloReply body = XP__HELLO_REPLY__INIT;
	char version[] = "9.8.7";

	m.serial = serial;
	m.body_case = XP__DAEMON_MESSAGE__BODY_HELLO_REPLY;
	m.hello_reply = &body;
	body.major = f->major;
	body.minor = f->minor;
	body.version = version;
	body.requests_in_flight_max = f->requests_max;
	fake_say(f, &m);
}

static void say_query_reply(struct fake *f, uint64_t serial, const Xp__Query *q)
{
	Xp__DaemonMessage m = XP__DAEMON_MESSAGE__INIT;
	Xp__QueryReply body = XP__QUERY_REPLY__INIT;
	Xp__Column columns[2] = { XP__COLUMN__INIT, XP__COLUMN__INIT };
	Xp__Column *p[2] = { &columns[0], &columns[1] };
	char name[] = "name", size[] = "size", bytes[] = "bytes", cell[2][24], text[] = "no table";
	char *cells[2] = { cell[0], cell[1] }, said[200] = "";

	m.serial = serial;
	m.body_case = XP__DAEMON_MESSAGE__BODY_QUERY_REPLY;
	m.query_reply = &body;
	if (strcmp(q->table, "buffers") == 0) {
		/* Three parts of one row. */
		columns[0].name = name;
		columns[1].name = size;
		columns[1].unit = bytes;
		columns[1].number = true;
		body.columns = p;
		body.n_columns = q->cursor == 0 ? 2 : 0;
		snprintf(cell[0], sizeof(cell[0]), "row%d", (int)q->cursor);
		snprintf(cell[1], sizeof(cell[1]), "%d", (int)q->cursor * 100);
		body.cells = cells;
		body.n_cells = 2;
		body.cursor = q->cursor < 2 ? q->cursor + 1 : 0;
	} else if (strcmp(q->table, "odd") == 0) {
		columns[0].name = name;
		columns[1].name = size;
		body.columns = p;
		body.n_columns = 2;
		body.cells = cells;
		body.n_cells = 1;
		strcpy(cell[0], "x");
	} else if (strcmp(q->table, "endless") == 0) {
		columns[0].name = name;
		body.columns = p;
		body.n_columns = 1;
		body.cursor = 7;
	} else {
		body.status = -ENOENT;
		body.text = q->n_arguments ? said : text;
		for (size_t i = 0; i < q->n_arguments; i++)
			snprintf(said + strlen(said), sizeof(said) - strlen(said), "%s%s",
				 i ? " " : "", q->arguments[i]);
	}
	fake_say(f, &m);
}

void fake_say_ready(struct fake *f, uint32_t endpoint, int status)
{
	Xp__DaemonMessage m = XP__DAEMON_MESSAGE__INIT;
	Xp__EndpointReady body = XP__ENDPOINT_READY__INIT;
	char fabric[] = "fake", route[] = "there is no other", text[] = "unreachable";

	m.body_case = XP__DAEMON_MESSAGE__BODY_ENDPOINT_READY;
	m.endpoint_ready = &body;
	body.endpoint = endpoint;
	body.status = status;
	if (status)
		body.text = text;
	body.fabric = fabric;
	body.route = route;
	body.max_segments = f->max_segments;
	body.max_message_bytes = 1 << 20;
	body.private_connect_bytes = 56;
	body.private_accept_bytes = 196;
	body.capabilities = 5;
	fake_say(f, &m);
}

void fake_say_connected(struct fake *f, uint32_t endpoint, int status, const char *private_data)
{
	Xp__DaemonMessage m = XP__DAEMON_MESSAGE__INIT;
	Xp__Connected body = XP__CONNECTED__INIT;

	m.body_case = XP__DAEMON_MESSAGE__BODY_CONNECTED;
	m.connected = &body;
	body.endpoint = endpoint;
	body.status = status;
	body.private_data.data = (uint8_t *)(uintptr_t)private_data;
	body.private_data.len = strlen(private_data);
	fake_say(f, &m);
}

void fake_say_disconnected(struct fake *f, uint32_t endpoint, int status)
{
	Xp__DaemonMessage m = XP__DAEMON_MESSAGE__INIT;
	Xp__Disconnected body = XP__DISCONNECTED__INIT;

	m.body_case = XP__DAEMON_MESSAGE__BODY_DISCONNECTED;
	m.disconnected = &body;
	body.endpoint = endpoint;
	body.status = status;
	fake_say(f, &m);
}

void fake_say_goodbye(struct fake *f, int status, const char *text)
{
	Xp__DaemonMessage m = XP__DAEMON_MESSAGE__INIT;
	Xp__Goodbye body = XP__GOODBYE__INIT;

	m.body_case = XP__DAEMON_MESSAGE__BODY_GOODBYE;
	m.goodbye = &body;
	body.status = status;
	body.text = (char *)(uintptr_t)text;
	fake_say(f, &m);
}

void fake_say_completion(struct fake *f, const struct fake_request *r, int status,
			 uint64_t byte_len)
{
	Xp__DaemonMessage m = XP__DAEMON_MESSAGE__INIT;
	Xp__Completions body = XP__COMPLETIONS__INIT;
	Xp__Completion one = XP__COMPLETION__INIT, *p = &one;
	char text[] = "it did not go well";

	m.body_case = XP__DAEMON_MESSAGE__BODY_COMPLETIONS;
	m.completions = &body;
	body.n_completions = 1;
	body.completions = &p;
	one.wr_id = r->wr_id;
	one.cookie = r->cookie;
	one.status = status;
	one.opcode = r->opcode;
	one.byte_len = byte_len;
	one.endpoint = r->endpoint;
	if (r->opcode == XP_OP_GRANT) {
		one.grant = 77;
		one.address = 0x1000;
		one.rkey = 0xabcd;
	}
	if (r->opcode == XP_OP_CANCEL)
		one.immediate = XP_CANCEL_TOO_LATE;
	if (status)
		one.text = text;
	fake_say(f, &m);
}

/* ---- listening */

struct fake_buffer *fake_buffer(struct fake *f, uint32_t number)
{
	for (size_t i = 0; i < f->n_buffers; i++)
		if (f->buffers[i].number == number && !f->buffers[i].removed)
			return &f->buffers[i];
	return NULL;
}

uint8_t *fake_memory(struct fake *f, const struct xp_segment *s)
{
	struct fake_buffer *b = fake_buffer(f, s->key);

	need(b && s->address <= b->bytes && s->length <= b->bytes - s->address);
	return b->data + s->address;
}

static void on_buffer_add(struct fake *f, uint32_t number, uint64_t bytes, const struct xp_fds *fds)
{
	struct fake_buffer *b = &f->buffers[f->n_buffers];

	need(f->n_buffers < FAKE_BUFFERS && fds->count == 1);
	*b = (struct fake_buffer){ .number = number, .bytes = bytes };
	b->seals = fcntl(fds->fd[0], F_GET_SEALS);
	b->data = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fds->fd[0], 0);
	need(b->data != MAP_FAILED);
	need(fcntl(fds->fd[0], F_ADD_SEALS, F_SEAL_FUTURE_WRITE | F_SEAL_SEAL) == 0);
	f->n_buffers++;
}

static void on_buffer_remove(struct fake *f, uint32_t number)
{
	struct fake_buffer *b = fake_buffer(f, number);

	if (b && f->reply_status == 0) {
		munmap(b->data, b->bytes);
		b->removed = true;
	}
}

static const struct xp_segment *keep(struct fake *f, const struct xp_segment *from, size_t n)
{
	struct xp_segment *to = &f->segments[f->n_segments];

	need(f->n_segments + n <= FAKE_SEGMENTS);
	if (n)
		memcpy(to, from, n * sizeof(*to));
	f->n_segments += n;
	return to;
}

static const struct xp_segment *keep_inline(struct fake *f, Xp__Segment **from, size_t n)
{
	struct xp_segment all[XP_SEGMENTS_INLINE];

	need(n <= XP_SEGMENTS_INLINE);
	for (size_t i = 0; i < n; i++)
		all[i] = (struct xp_segment){ from[i]->address, from[i]->length, from[i]->key };
	return keep(f, all, n);
}

static void on_request(struct fake *f, const Xp__Request *m)
{
	struct fake_request *r = &f->requests[f->n_requests];

	need(f->n_requests < FAKE_REQUESTS);
	*r = (struct fake_request){
		.opcode = m->opcode, .flags = m->flags, .endpoint = m->endpoint, .key = m->key,
		.list_buffer = m->list_buffer, .wr_id = m->wr_id, .cookie = m->cookie,
		.argument = m->argument,
	};
	if (m->list_buffer) {
		struct xp_segment at = { m->list_offset, 0, m->list_buffer };
		const struct xp_segment *list = (const void *)fake_memory(f, &at);

		need(m->list_offset % 8 == 0 && m->n_local == 0 && m->n_remote == 0);
		r->n_local = m->local_count;
		r->n_remote = m->remote_count;
		r->local = keep(f, list, r->n_local);
		r->remote = keep(f, list + r->n_local, r->n_remote);
	} else {
		need(m->local_count == 0 && m->remote_count == 0);
		r->n_local = (uint32_t)m->n_local;
		r->n_remote = (uint32_t)m->n_remote;
		r->local = keep_inline(f, m->local, m->n_local);
		r->remote = keep_inline(f, m->remote, m->n_remote);
	}
	f->n_requests++;
	if (f->complete)
		fake_say_completion(f, r, 0, 0);
}

static void answer(struct fake *f, const Xp__ClientMessage *m, const struct xp_fds *fds)
{
	uint32_t number = ++f->next_number;
	bool mute = f->mute >> m->body_case & 1;

	switch (m->body_case) {
	case XP__CLIENT_MESSAGE__BODY_HELLO:
		snprintf(f->name, sizeof(f->name), "%s", m->hello->name);
		if (!mute)
			say_hello_reply(f, m->serial);
		return;
	case XP__CLIENT_MESSAGE__BODY_SUBMIT:
		f->packets_submit++;
		for (size_t i = 0; i < m->submit->n_requests; i++)
			on_request(f, m->submit->requests[i]);
		return;
	case XP__CLIENT_MESSAGE__BODY_QUERY:
		if (!mute)
			say_query_reply(f, m->serial, m->query);
		return;
	case XP__CLIENT_MESSAGE__BODY_BUFFER_ADD:
		on_buffer_add(f, number, m->buffer_add->size_bytes, fds);
		break;
	case XP__CLIENT_MESSAGE__BODY_BUFFER_REMOVE:
		on_buffer_remove(f, m->buffer_remove->buffer);
		break;
	default:
		break;
	}
	if (!mute)
		say_reply(f, m->serial, number);
}

static bool turn(struct fake *f)
{
	static _Thread_local uint8_t packet[XP_PACKET_BYTES_MAX];
	Xp__ClientMessage *m;
	struct xp_fds fds;
	ssize_t n = xp_fdmsg_recv(f->sock, packet, sizeof(packet), &fds);

	if (n == -EAGAIN)
		return true;
	if (n <= 0)
		return false;
	m = xp__client_message__unpack(NULL, (size_t)n, packet);
	need(m);
	pthread_mutex_lock(&f->lock);
	need((unsigned int)m->body_case < 32);
	f->seen[m->body_case]++;
	answer(f, m, &fds);
	pthread_cond_broadcast(&f->cond);
	pthread_mutex_unlock(&f->lock);
	for (int i = 0; i < fds.count; i++)
		close(fds.fd[i]);
	xp__client_message__free_unpacked(m, NULL);
	return true;
}

static void *run(void *arg)
{
	struct fake *f = arg;
	struct pollfd p = { .fd = f->sock };
	bool paused, ended;

	do {
		pthread_mutex_lock(&f->lock);
		paused = f->rests = f->paused;
		ended = f->ended;
		pthread_cond_broadcast(&f->cond);
		pthread_mutex_unlock(&f->lock);
		p.events = paused ? 0 : POLLIN;
		poll(&p, 1, 2);
	} while (!ended && (!(p.revents & ~POLLOUT) || turn(f)));
	return NULL;
}

/* ---- life */

void fake_init(struct fake *f)
{
	int pair[2];

	memset(f, 0, sizeof(*f));
	f->major = CL_PROTOCOL_MAJOR;
	f->max_segments = 16;
	need(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) == 0);
	f->sock = pair[0];
	f->peer = pair[1];
	pthread_mutex_init(&f->lock, NULL);
	pthread_cond_init(&f->cond, NULL);
}

void fake_start(struct fake *f)
{
	need(pthread_create(&f->thread, NULL, run, f) == 0);
}

void fake_stop(struct fake *f)
{
	if (f->sock < 0)
		return;
	pthread_mutex_lock(&f->lock);
	f->ended = true;
	pthread_mutex_unlock(&f->lock);
	pthread_join(f->thread, NULL);
	close(f->sock);
	f->sock = -1;
}

void fake_done(struct fake *f)
{
	fake_stop(f);
	for (size_t i = 0; i < f->n_buffers; i++)
		if (!f->buffers[i].removed)
			munmap(f->buffers[i].data, f->buffers[i].bytes);
	pthread_mutex_destroy(&f->lock);
	pthread_cond_destroy(&f->cond);
}

int fake_client(struct fake *f, const struct xfer_client_options *options, struct xfer_client **ret)
{
	struct xfer_client_options none = { .size = sizeof(none) };
	int sock = f->peer;

	f->peer = -1;
	return cl_client_new(sock, options ? options : &none, ret);
}

/* ---- waiting */

static void wait_turn(struct fake *f)
{
	struct timespec t;

	clock_gettime(CLOCK_REALTIME, &t);
	t.tv_sec += 20;
	need(pthread_cond_timedwait(&f->cond, &f->lock, &t) == 0);
}

void fake_wait_requests(struct fake *f, size_t n)
{
	pthread_mutex_lock(&f->lock);
	while (f->n_requests < n)
		wait_turn(f);
	pthread_mutex_unlock(&f->lock);
}

void fake_wait_seen(struct fake *f, unsigned int body_case, unsigned int n)
{
	pthread_mutex_lock(&f->lock);
	while (f->seen[body_case] < n)
		wait_turn(f);
	pthread_mutex_unlock(&f->lock);
}

void fake_pause(struct fake *f, bool paused)
{
	pthread_mutex_lock(&f->lock);
	f->paused = paused;
	while (f->rests != paused)
		wait_turn(f);
	pthread_mutex_unlock(&f->lock);
}

struct xfer_ep *fake_ep(struct fake *f, struct xfer_client *c, bool connected)
{
	struct xfer_ep *ep;
	struct xfer_event e;

	need(xfer_ep_new(c, "xfer://127.0.0.1/", NULL, &ep) == 0);
	fake_say_ready(f, ep->number, 0);
	need(xfer_ep_wait(ep, XFER_EP_READY, 20000) == 0);
	need(xfer_poll(c, &e, 1, 0) == 1 && e.type == XFER_EVENT_READY && e.ep == ep);
	if (!connected)
		return ep;
	need(xfer_connect(ep, NULL, 0) == 0);
	fake_say_connected(f, ep->number, 0, "");
	need(xfer_ep_wait(ep, XFER_EP_CONNECTED, 20000) == 0);
	need(xfer_poll(c, &e, 1, 0) == 1 && e.type == XFER_EVENT_CONNECTED);
	return ep;
}

const char *sentence(void)
{
	const char *text;

	xfer_last_error(&text);
	return text;
}
