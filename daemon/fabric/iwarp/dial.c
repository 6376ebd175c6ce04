/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/assert.h"
#include "common/checked.h"
#include "daemon/fabric/iwarp/stream.h"
#include "proto/errors.h"

/* The side that connects: TCP, our MPA request, the reply, and the RTR. */

static void ask(struct iwarp_stream *s, const void *private_data, size_t bytes)
{
	mpa_ask(&s->fabric->wants, private_data, bytes, &s->frame);
	s->start_bytes = (uint32_t)mpa_encode(MPA_REQUEST, &s->frame, s->start);
	s->frame.private_data = NULL;
}

int dial(struct fabric_ep *ep, const struct xc_addr *dst, const void *private_data, size_t bytes)
{
	struct sockaddr_storage to;
	socklen_t size = fabric_to_sockaddr(dst, &to);
	struct iwarp_stream *s;
	int fd, err;

	fd = socket(to.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return -errno;
	/* Before epoll knows it: an unconnected socket counts as hung up. */
	if (connect(fd, (struct sockaddr *)&to, size) < 0 && errno != EINPROGRESS) {
		err = -errno;
		close(fd);
		iwarp_ep_refuse(ep, err, NULL, 0);
		return 0;
	}
	err = stream_new(ep->fabric, fd, STREAM_CONNECTING, dst, &s);
	if (err)
		return err;
	ask(s, private_data, bytes);
	s->ep = ep;
	ep->stream = s;
	ep->state = IWARP_EP_CONNECTING;
	return 0;
}

void dial_abandon(struct iwarp_stream *s)
{
	s->ep->stream = NULL;
	s->ep = NULL;
	stream_close(s, true);
}

static void refused(struct iwarp_stream *s, int status, const struct mpa_frame *reply)
{
	struct fabric_ep *ep = s->ep;
	uint8_t data[FABRIC_PRIVATE_DATA_MAX];
	size_t bytes = 0;

	if (reply && reply->private_data_bytes <= sizeof(data)) {
		bytes = reply->private_data_bytes;
		memcpy(data, reply->private_data, bytes);
	}
	dial_abandon(s);
	iwarp_ep_refuse(ep, status, data, bytes);
}

static void against_protocol(struct iwarp_stream *s, const char *why)
{
	stream_log(s->ep, "The peer's answer to a connection request is refused", why);
	refused(s, -XP_E_PEER_PROTOCOL, NULL);
}

static void replied(struct iwarp_stream *s, const struct mpa_frame *reply)
{
	const char *why = "it has more private data than 256 bytes";
	struct fabric_ep *ep = s->ep;
	int err = -EPROTO;

	if (reply->private_data_bytes <= FABRIC_PRIVATE_DATA_MAX)
		err = mpa_agree(&s->frame, reply, &s->fabric->wants, &s->terms, &why);
	if (err == -EPROTO) {
		against_protocol(s, why);
		return;
	}
	if (!err)
		err = stream_open(s, ep);
	else if (err == -ECONNREFUSED)
		err = -XP_E_REJECTED;
	if (err) {
		refused(s, err, reply);
		return;
	}
	tx_ready_to_receive(s, s->terms.rtr);
	iwarp_ep_connected(ep, reply->private_data, reply->private_data_bytes);
}

/* Exactly the reply: what comes behind it is the peer's first FPDU. */
static void hear_reply(struct iwarp_stream *s)
{
	struct mpa_frame reply;
	const char *why;
	int r = stream_hear(s, MPA_REPLY, &reply, &why);

	if (r == -EPROTO)
		against_protocol(s, why);
	else if (r == 0 || (r < 0 && r != -EAGAIN))
		/* A listener that is gone, or a host that takes no connections, after all. */
		refused(s, -XP_E_PEER_GONE, NULL);
	else if (r > 0)
		replied(s, &reply);
}

static void send_request(struct iwarp_stream *s)
{
	while (s->start_done < s->start_bytes) {
		ssize_t n = send(s->fd, s->start + s->start_done, s->start_bytes - s->start_done,
				 MSG_NOSIGNAL | MSG_DONTWAIT);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN) {
			s->writable = false;
			return;
		}
		if (n < 0) {
			stream_lost(s, -XP_E_PEER_GONE);
			return;
		}
		s->start_done += (uint32_t)n;
	}
	s->start_bytes = 0;
	s->asked = true;
}

static void connected(struct iwarp_stream *s)
{
	socklen_t size = sizeof(int);
	int err = 0;

	if (getsockopt(s->fd, SOL_SOCKET, SO_ERROR, &err, &size) < 0)
		err = errno;
	if (err) {
		/* Reset before it was heard of: somebody was there. */
		stream_lost(s, err == ECONNRESET ? -XP_E_PEER_GONE : -err);
		return;
	}
	s->state = STREAM_ASKING;
	stream_limit(s, s->fabric->mpa_ns);
}

void dial_step(struct iwarp_stream *s)
{
	if (s->state == STREAM_CONNECTING && s->writable)
		connected(s);
	if (s->state == STREAM_ASKING && !s->asked && s->writable)
		send_request(s);
	if (s->state == STREAM_ASKING && s->asked && s->readable)
		hear_reply(s);
}
