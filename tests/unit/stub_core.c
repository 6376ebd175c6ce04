/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "tests/unit/stub_core.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/assert.h"

static const struct xd_column columns[] = {
	{ .name = "name", .unit = "", .number = false },
	{ .name = "size", .unit = "bytes", .number = true },
};

struct xd_core *stub_core_new(const struct xd_engine_ref *engine)
{
	struct xd_core *core = calloc(1, sizeof(*core));

	xc_assert(core);
	if (engine)
		core->engine = *engine;
	xc_list_init(&core->sessions);
	return core;
}

static void let_go(struct xd_session *s)
{
	struct xd_core *core = s->core;

	xc_list_remove(&s->link);
	if (core->engine.ops && s->conn)
		core->engine.ops->session_gone(core->engine.engine, s->conn);
	free(s);
}

void stub_core_release(struct xd_core *core)
{
	struct xd_session *s;

	xc_list_for_each(s, &core->sessions, link) {
		if (s->closed)
			let_go(s);
	}
}

void stub_core_free(struct xd_core *core)
{
	struct xc_list *l;

	while ((l = xc_list_pop(&core->sessions)))
		free(xc_container_of(l, struct xd_session, link));
	free(core);
}

struct xd_session *stub_session(struct xd_core *core)
{
	return xc_list_empty(&core->sessions) ?
		       NULL :
		       xc_container_of(core->sessions.prev, struct xd_session, link);
}

struct xd_session *stub_session_new(struct xd_core *core)
{
	struct xd_session *s = calloc(1, sizeof(*s));

	xc_assert(s);
	s->core = core;
	s->number = ++core->numbers;
	xc_list_append(&core->sessions, &s->link);
	return s;
}

bool stub_say(struct xd_session *s, const struct xd_out *out)
{
	if (s->failed || s->out_count == STUB_OUTS)
		return false;
	s->outs[(s->out_first + s->out_count++) % STUB_OUTS] = *out;
	if (s->core->engine.ops && s->conn)
		s->core->engine.ops->deliver(s->core->engine.engine, s->conn);
	return true;
}

static void called(struct xd_session *s, const char *name, uint64_t serial)
{
	s->core->calls++;
	s->core->last_serial = serial;
	snprintf(s->core->last_call, sizeof(s->core->last_call), "%s", name);
}

static void answered(struct xd_session *s, const char *name, uint64_t serial)
{
	const struct xd_out out = { .kind = XD_OUT_REPLY, .serial = serial };

	called(s, name, serial);
	stub_say(s, &out);
}

static void noted(struct xd_session *s, const char *text, uint64_t a, uint64_t b, uint64_t c)
{
	snprintf(s->core->last_text, sizeof(s->core->last_text), "%s", text);
	s->core->last_numbers[0] = a;
	s->core->last_numbers[1] = b;
	s->core->last_numbers[2] = c;
}

/* ---- core */

bool xd_core_progress(struct xd_core *core, uint64_t budget_bytes)
{
	(void)budget_bytes;
	core->progresses++;
	return core->want_more;
}

int xd_core_fds(struct xd_core *core, int fds[static XD_FABRICS_MAX])
{
	(void)core;
	fds[0] = -1;
	return 1;
}

bool xd_core_idle(const struct xd_core *core)
{
	return xc_list_empty(&core->sessions);
}

void xd_core_count(struct xd_core *core, enum xd_counter counter, int64_t delta)
{
	core->counters[counter] += delta;
}

uint64_t xd_core_counter(const struct xd_core *core, enum xd_counter counter)
{
	return (uint64_t)core->counters[counter];
}

/* ---- sessions */

int xd_session_new(struct xd_core *core, const struct xd_peer *peer, void *conn,
		   struct xd_session **ret, char *ret_why)
{
	struct xd_session *s;

	if (core->refuse) {
		snprintf(ret_why, XD_TEXT_MAX, "the test refuses");
		return core->refuse;
	}
	s = stub_session_new(core);
	s->conn = conn;
	s->peer = *peer;
	s->peer.gids = NULL;
	*ret = s;
	return 0;
}

void xd_session_close(struct xd_session *s)
{
	s->core->closes++;
	s->closed = true;
	if (!s->core->keep_gone)
		let_go(s);
}

void xd_session_fail(struct xd_session *s, int status, const char *format, ...)
{
	struct xd_out out = { .kind = XD_OUT_GOODBYE, .status = status };
	va_list ap;

	if (s->failed)
		return;
	va_start(ap, format);
	vsnprintf(out.text, sizeof(out.text), format, ap);
	va_end(ap);
	s->fail_status = status;
	snprintf(s->fail_text, sizeof(s->fail_text), "%s", out.text);
	s->out_count = 0;
	stub_say(s, &out);
	s->failed = true;
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
	return s->busy;
}

bool xd_session_may_submit(const struct xd_session *s)
{
	(void)s;
	return true;
}

bool xd_session_greeted(const struct xd_session *s)
{
	return s->greeted;
}

void xd_session_hello(struct xd_session *s, uint64_t serial, const struct xd_hello *hello)
{
	const struct xd_out out = { .kind = XD_OUT_HELLO, .serial = serial, .requests_max = 7 };

	called(s, "hello", serial);
	noted(s, hello->name, hello->major, hello->minor, hello->features);
	s->greeted = true;
	stub_say(s, &out);
}

void xd_session_discard_fds(struct xd_session *s, const int *fds, int n)
{
	s->core->discards += (unsigned)n;
	for (int i = 0; s->core->close_fds && i < n; i++)
		close(fds[i]);
}

void xd_session_buffer_add(struct xd_session *s, uint64_t serial, int fd, uint64_t size_bytes)
{
	answered(s, "buffer_add", serial);
	noted(s, "", size_bytes, 0, 0);
	s->core->buffers++;
	if (s->core->close_fds)
		close(fd);
}

void xd_session_buffer_remove(struct xd_session *s, uint64_t serial, uint32_t buffer)
{
	answered(s, "buffer_remove", serial);
	noted(s, "", buffer, 0, 0);
}

void xd_session_listen(struct xd_session *s, uint64_t serial, const char *host, uint32_t port,
		       uint32_t backlog)
{
	answered(s, "listen", serial);
	noted(s, host, port, backlog, 0);
}

void xd_session_unlisten(struct xd_session *s, uint64_t serial, uint32_t listener)
{
	answered(s, "unlisten", serial);
	noted(s, "", listener, 0, 0);
}

void xd_session_endpoint_connect_to(struct xd_session *s, uint64_t serial, const char *host,
				    uint32_t port, const struct xd_endpoint_options *options)
{
	answered(s, "endpoint_connect_to", serial);
	noted(s, host, port, options->send_depth, options->recv_depth);
}

void xd_session_endpoint_answer(struct xd_session *s, uint64_t serial, uint64_t request,
				const struct xd_endpoint_options *options)
{
	answered(s, "endpoint_answer", serial);
	noted(s, options->require, request, options->send_depth, options->recv_depth);
}

static void with_data(struct xd_session *s, const char *name, uint64_t serial, uint64_t object,
		      const void *private_data, size_t bytes)
{
	answered(s, name, serial);
	noted(s, "", object, bytes, 0);
	if (bytes)
		memcpy(s->core->last_text, private_data,
		       bytes < sizeof(s->core->last_text) ? bytes : sizeof(s->core->last_text));
}

void xd_session_connect(struct xd_session *s, uint64_t serial, uint32_t endpoint,
			const void *private_data, size_t bytes)
{
	with_data(s, "connect", serial, endpoint, private_data, bytes);
}

void xd_session_accept(struct xd_session *s, uint64_t serial, uint32_t endpoint,
		       const void *private_data, size_t bytes)
{
	with_data(s, "accept", serial, endpoint, private_data, bytes);
}

void xd_session_reject(struct xd_session *s, uint64_t serial, uint64_t request,
		       const void *private_data, size_t bytes)
{
	with_data(s, "reject", serial, request, private_data, bytes);
}

void xd_session_disconnect(struct xd_session *s, uint64_t serial, uint32_t endpoint)
{
	answered(s, "disconnect", serial);
	noted(s, "", endpoint, 0, 0);
}

void xd_session_endpoint_free(struct xd_session *s, uint64_t serial, uint32_t endpoint)
{
	answered(s, "endpoint_free", serial);
	noted(s, "", endpoint, 0, 0);
}

void xd_session_admin(struct xd_session *s, uint64_t serial, const char *verb,
		      const char *const *arguments, size_t n)
{
	size_t length = 0;

	answered(s, "admin", serial);
	for (size_t i = 0; i < n; i++)
		length += strlen(arguments[i]);
	noted(s, verb, n, length, 0);
}

void xd_session_submit(struct xd_session *s, const struct xp_request *request,
		       const struct xp_segment *segments)
{
	struct xd_out out = { .kind = XD_OUT_COMPLETION };
	size_t n = (size_t)request->local_count + request->remote_count;

	called(s, "submit", 0);
	s->core->submits++;
	s->core->last_request = *request;
	if (segments)
		memcpy(s->core->last_segments, segments, n * sizeof(*segments));
	out.completion.wr_id = request->wr_id;
	out.completion.cookie = request->cookie;
	out.completion.opcode = request->opcode;
	if (s->core->complete)
		stub_say(s, &out);
}

/* ---- output */

enum xd_out_kind xd_session_peek(const struct xd_session *s)
{
	return s->out_count ? s->outs[s->out_first].kind : XD_OUT_NONE;
}

bool xd_session_pull(struct xd_session *s, struct xd_out *ret)
{
	if (!s->out_count)
		return false;
	*ret = s->outs[s->out_first];
	s->out_first = (s->out_first + 1) % STUB_OUTS;
	s->out_count--;
	return true;
}

/* Table "rows": a long text and the row's number. */
int xd_session_query(struct xd_session *s, const char *table, const char *const *arguments,
		     size_t n_arguments, uint64_t *cursor, const struct xd_column **ret_columns,
		     size_t *ret_n_columns, struct xd_table_sink *sink, char *ret_why)
{
	char text[301];

	s->core->queries++;
	if (n_arguments) {
		snprintf(ret_why, XD_TEXT_MAX, "%zu: %.20s", n_arguments,
			 arguments[n_arguments - 1]);
		return -EINVAL;
	}
	if (strcmp(table, "rows") != 0) {
		snprintf(ret_why, XD_TEXT_MAX, "there is no such table");
		return -ENOENT;
	}
	memset(text, 'x', sizeof(text) - 1);
	text[sizeof(text) - 1] = '\0';
	*ret_columns = columns;
	*ret_n_columns = 2;
	while (*cursor < s->core->table_rows && sink->row(sink)) {
		sink->text(sink, text);
		sink->number(sink, *cursor);
		++*cursor;
	}
	if (*cursor >= s->core->table_rows)
		*cursor = 0;
	return 0;
}
