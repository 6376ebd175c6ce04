/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The first program: one side listens and grants a piece of its memory, the other connects and
 * READs it. Both sides are in this process, each with a client of its own; they could as well be
 * two programs, and the token would travel in a message.
 *
 *	cc first.c $(pkg-config --cflags --libs libxferclient) && ./a.out
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <xferclient.h>

#define BYTES 100000

/* Ends the program with the library's sentence. */
static void check(int status, const char *what)
{
	const char *why;

	if (status >= 0)
		return;
	xfer_last_error(&why);
	fprintf(stderr, "%s: %s: %s\n", what, xfer_strerror(status), why);
	exit(1);
}

/* The next event, which must be of this type and a success. */
static struct xfer_event expect(struct xfer_client *client, enum xfer_event_type type)
{
	struct xfer_event event;

	check(xfer_poll(client, &event, 1, -1), "poll");
	if (event.status < 0 || event.type != type) {
		fprintf(stderr, "event %d: %s\n", (int)event.type, event.text);
		exit(1);
	}
	return event;
}

int main(void)
{
	struct xfer_client *server, *client;
	struct xfer_buf *source, *sink;
	struct xfer_listener *listener;
	struct xfer_ep *there, *here;
	struct xfer_event event;
	char url[128];

	/* Two connections to the daemon of this host, each with memory that it shares with it. */
	check(xfer_client_new(NULL, &server), "server");
	check(xfer_client_new(NULL, &client), "client");
	check(xfer_buf_new(server, BYTES, 0, &source), "source");
	check(xfer_buf_new(client, BYTES, 0, &sink), "sink");
	for (size_t i = 0; i < BYTES; i++)
		((unsigned char *)xfer_buf_data(source))[i] = (unsigned char)(i * 31);

	/* The server listens; port 0 chooses a free one. The client connects to it. */
	check(xfer_listen(server, "127.0.0.1:0", NULL, &listener), "listen");
	snprintf(url, sizeof(url), "xfer://%s/", xfer_listener_address(listener));
	check(xfer_ep_new(client, url, NULL, &here), "endpoint");
	expect(client, XFER_EVENT_READY);
	check(xfer_connect(here, NULL, 0), "connect");

	/* The server answers the request with an endpoint of its own. */
	event = expect(server, XFER_EVENT_CONNECT_REQUEST);
	printf("%s knocks\n", event.peer_address);
	check(xfer_ep_new_answer(server, event.request, NULL, &there), "answer");
	expect(server, XFER_EVENT_READY);
	check(xfer_accept(there, NULL, 0), "accept");
	expect(server, XFER_EVENT_CONNECTED);
	expect(client, XFER_EVENT_CONNECTED);

	/* It lets this peer, and nobody else, READ the buffer. The token says how. */
	check(xfer_grant(there, xfer_buf_data(source), BYTES, XFER_GRANT_READ, 0, 1, 0, NULL),
	      "grant");
	event = expect(server, XFER_EVENT_COMPLETION);

	/* The client READs: here into two pieces, the second one first. */
	struct iovec local[2] = {
		{ (char *)xfer_buf_data(sink) + BYTES / 2, BYTES / 2 },
		{ xfer_buf_data(sink), BYTES / 2 },
	};
	check(xfer_post_read(here, local, 2, &event.token, 1, 2, 0, NULL), "read");
	event = expect(client, XFER_EVENT_COMPLETION);

	if (memcmp(local[0].iov_base, xfer_buf_data(source), BYTES / 2) != 0 ||
	    memcmp(local[1].iov_base, (char *)xfer_buf_data(source) + BYTES / 2, BYTES / 2) != 0) {
		fprintf(stderr, "the bytes differ\n");
		return 1;
	}
	printf("READ %llu bytes, all of them right\n", (unsigned long long)event.byte_len);

	/* Frees endpoints, buffers and the listener as well. */
	xfer_client_free(client);
	xfer_client_free(server);
	return 0;
}
