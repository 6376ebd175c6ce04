/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "daemon/io/dispatch.h"

#include <errno.h>

#include "daemon/io/codec.h"

static const char *body_name(const Xp__ClientMessage *m)
{
	switch (m->body_case) {
	case XP__CLIENT_MESSAGE__BODY_HELLO:
		return "Hello";
	case XP__CLIENT_MESSAGE__BODY_BUFFER_ADD:
		return "BufferAdd";
	case XP__CLIENT_MESSAGE__BODY_BUFFER_REMOVE:
		return "BufferRemove";
	case XP__CLIENT_MESSAGE__BODY_LISTEN:
		return "Listen";
	case XP__CLIENT_MESSAGE__BODY_UNLISTEN:
		return "Unlisten";
	case XP__CLIENT_MESSAGE__BODY_ENDPOINT_NEW:
		return "EndpointNew";
	case XP__CLIENT_MESSAGE__BODY_CONNECT:
		return "Connect";
	case XP__CLIENT_MESSAGE__BODY_ACCEPT:
		return "Accept";
	case XP__CLIENT_MESSAGE__BODY_REJECT:
		return "Reject";
	case XP__CLIENT_MESSAGE__BODY_DISCONNECT:
		return "Disconnect";
	case XP__CLIENT_MESSAGE__BODY_ENDPOINT_FREE:
		return "EndpointFree";
	case XP__CLIENT_MESSAGE__BODY_SUBMIT:
		return "Submit";
	case XP__CLIENT_MESSAGE__BODY_QUERY:
		return "Query";
	case XP__CLIENT_MESSAGE__BODY_ADMIN:
		return "Admin";
	case XP__CLIENT_MESSAGE__BODY__NOT_SET:
	default:
		return "a message of an unknown kind";
	}
}

/* From the first on; *rest becomes the one that has to wait. */
static void submit(struct xd_session *s, const Xp__Submit *m, size_t first, size_t *rest)
{
	struct xp_segment segments[2 * XP_SEGMENTS_INLINE];
	struct xp_request request;
	char why[XD_TEXT_MAX];

	for (size_t i = first; i < m->n_requests && !xd_session_failed(s); i++) {
		if (rest && (!xd_session_may_submit(s) || xd_session_busy(s))) {
			*rest = i;
			return;
		}
		if (xd_decode_request(m->requests[i], &request, segments, why) < 0) {
			xd_session_fail(s, -XP_E_PROTOCOL, "%s", why);
			return;
		}
		xd_session_submit(s, &request, request.list_buffer ? NULL : segments);
	}
}

static void endpoint_new(struct xd_session *s, uint64_t serial, const Xp__EndpointNew *m)
{
	const struct xd_endpoint_options options = {
		.send_depth = m->send_depth,
		.recv_depth = m->recv_depth,
		.recv_stage_bytes = m->recv_stage_bytes,
		.require = m->require,
	};

	if (m->request)
		xd_session_endpoint_answer(s, serial, m->request, &options);
	else
		xd_session_endpoint_connect_to(s, serial, m->host, m->port, &options);
}

static size_t query(struct xd_session *s, uint64_t serial, const Xp__Query *m, uint8_t *buf,
		    uint8_t **ret_reply)
{
	const struct xd_column *columns = NULL;
	uint64_t cursor = m->cursor;
	struct xd_query_writer w;
	char why[XD_TEXT_MAX] = "";
	size_t n_columns = 0;
	int r;

	xd_query_writer_init(&w, buf);
	r = xd_session_query(s, m->table, (const char *const *)m->arguments, m->n_arguments,
			     &cursor, &columns, &n_columns, &w.sink, why);
	if (r < 0) {
		*ret_reply = buf;
		return xd_encode_query_failure(serial, r, why, buf);
	}
	return xd_query_writer_finish(&w, serial, cursor, columns, m->cursor ? 0 : n_columns,
				      ret_reply);
}

static void hello(struct xd_session *s, uint64_t serial, const Xp__Hello *m)
{
	const struct xd_hello h = {
		.major = m->major,
		.minor = m->minor,
		.features = m->features,
		.name = m->name,
	};

	xd_session_hello(s, serial, &h);
}

/* Everything that the core answers with a reply. */
static void call(struct xd_session *s, const Xp__ClientMessage *m, const struct xp_fds *fds)
{
	switch (m->body_case) {
	case XP__CLIENT_MESSAGE__BODY_HELLO:
		hello(s, m->serial, m->hello);
		break;
	case XP__CLIENT_MESSAGE__BODY_BUFFER_ADD:
		xd_session_buffer_add(s, m->serial, fds->fd[0], m->buffer_add->size_bytes);
		break;
	case XP__CLIENT_MESSAGE__BODY_BUFFER_REMOVE:
		xd_session_buffer_remove(s, m->serial, m->buffer_remove->buffer);
		break;
	case XP__CLIENT_MESSAGE__BODY_LISTEN:
		xd_session_listen(s, m->serial, m->listen->host, m->listen->port,
				  m->listen->backlog);
		break;
	case XP__CLIENT_MESSAGE__BODY_UNLISTEN:
		xd_session_unlisten(s, m->serial, m->unlisten->listener);
		break;
	case XP__CLIENT_MESSAGE__BODY_ENDPOINT_NEW:
		endpoint_new(s, m->serial, m->endpoint_new);
		break;
	case XP__CLIENT_MESSAGE__BODY_CONNECT:
		xd_session_connect(s, m->serial, m->connect->endpoint,
				   m->connect->private_data.data, m->connect->private_data.len);
		break;
	case XP__CLIENT_MESSAGE__BODY_ACCEPT:
		xd_session_accept(s, m->serial, m->accept->endpoint, m->accept->private_data.data,
				  m->accept->private_data.len);
		break;
	case XP__CLIENT_MESSAGE__BODY_REJECT:
		xd_session_reject(s, m->serial, m->reject->request, m->reject->private_data.data,
				  m->reject->private_data.len);
		break;
	case XP__CLIENT_MESSAGE__BODY_DISCONNECT:
		xd_session_disconnect(s, m->serial, m->disconnect->endpoint);
		break;
	case XP__CLIENT_MESSAGE__BODY_ENDPOINT_FREE:
		xd_session_endpoint_free(s, m->serial, m->endpoint_free->endpoint);
		break;
	case XP__CLIENT_MESSAGE__BODY_ADMIN:
		xd_session_admin(s, m->serial, m->admin->verb,
				 (const char *const *)m->admin->arguments, m->admin->n_arguments);
		break;
	case XP__CLIENT_MESSAGE__BODY_SUBMIT:
	case XP__CLIENT_MESSAGE__BODY_QUERY:
	case XP__CLIENT_MESSAGE__BODY__NOT_SET:
	default:
		break;
	}
}

/* What is wrong with this message at this time; NULL where nothing is. */
static const char *out_of_order(const struct xd_session *s, const Xp__ClientMessage *m)
{
	bool is_hello = m->body_case == XP__CLIENT_MESSAGE__BODY_HELLO;

	if (is_hello && xd_session_greeted(s))
		return "Hello can be said once";
	if (!is_hello && !xd_session_greeted(s))
		return "the first message must be Hello";
	return NULL;
}

static void discard(struct xd_session *s, const struct xp_fds *fds)
{
	if (fds->count)
		xd_session_discard_fds(s, fds->fd, fds->count);
}

static int wanted_fds(const Xp__ClientMessage *m)
{
	return m->body_case == XP__CLIENT_MESSAGE__BODY_BUFFER_ADD ? 1 : 0;
}

size_t xd_dispatch(struct xd_session *s, struct xd_arena *arena, const void *packet, size_t size,
		   const struct xp_fds *fds, uint8_t *reply_buf, uint8_t **ret_reply, size_t *rest)
{
	char why[XD_TEXT_MAX] = "";
	Xp__ClientMessage *m = NULL;
	const char *fault;
	size_t first = rest ? *rest : 0;
	int r;

	if (rest)
		*rest = XD_DISPATCH_ALL;
	r = xd_decode(arena, packet, size, &m, why);
	if (r == -XP_E_PROTOCOL) {
		discard(s, fds);
		xd_session_fail(s, r, "%s", why);
		return 0;
	}
	fault = out_of_order(s, m);
	if (fault) {
		discard(s, fds);
		xd_session_fail(s, -XP_E_PROTOCOL, "%s, got %s", fault, body_name(m));
		return 0;
	}
	/* Of a message that it does not know the daemon cannot say how many it takes. */
	if (r != -XP_E_UNKNOWN_OPERATION && fds->count != wanted_fds(m)) {
		discard(s, fds);
		xd_session_fail(s, -XP_E_PROTOCOL, "%s takes exactly %d descriptor%s, got %d",
				body_name(m), wanted_fds(m), wanted_fds(m) == 1 ? "" : "s",
				fds->count);
		return 0;
	}
	if (r < 0) {
		discard(s, fds);
		*ret_reply = reply_buf;
		if (m->body_case == XP__CLIENT_MESSAGE__BODY_QUERY)
			return xd_encode_query_failure(m->serial, r, why, reply_buf);
		return xd_encode_reply(m->serial, r, why, reply_buf);
	}
	if (m->body_case == XP__CLIENT_MESSAGE__BODY_QUERY)
		return query(s, m->serial, m->query, reply_buf, ret_reply);
	if (m->body_case == XP__CLIENT_MESSAGE__BODY_SUBMIT)
		submit(s, m->submit, first, rest);
	else
		call(s, m, fds);
	return 0;
}
