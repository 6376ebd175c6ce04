/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * A command that brings the token of its data along, as in NVMe over Fabrics and NFS over RDMA. The
 * host grants two pieces of two buffers as one, and sends the command, in one go: nothing waits for
 * the grant, for the daemon writes the token into the message. The target READs the data with what
 * the command says. Both sides are in this process, each with a client of its own.
 *
 *	cc linked.c $(pkg-config --cflags --libs libxferclient) && ./a.out
 */
#include <endian.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <xferclient.h>

#define HEAD_BYTES 100
#define BODY_BYTES 50000
#define BYTES (HEAD_BYTES + BODY_BYTES)

/* The end of a command of NVMe over Fabrics: a keyed SGL data block descriptor, little-endian. */
struct command {
	char what[8];
	uint64_t address;
	uint8_t length[3];
	uint8_t key[4];
	uint8_t type;
};

static const struct xfer_patch patches[] = {
	{ .offset = offsetof(struct command, address), .field = XFER_FIELD_ADDRESS, .width = 8 },
	{ .offset = offsetof(struct command, length), .field = XFER_FIELD_LENGTH, .width = 3 },
	{ .offset = offsetof(struct command, key), .field = XFER_FIELD_RKEY, .width = 4 },
};

static void check(int status, const char *what)
{
	const char *why;

	if (status >= 0)
		return;
	xfer_last_error(&why);
	fprintf(stderr, "%s: %s: %s\n", what, xfer_strerror(status), why);
	exit(1);
}

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

/* The target's end waits for a command from before the connection is there. */
static void meet(struct xfer_client *target, struct xfer_client *host, const struct iovec *recv,
		 struct xfer_ep **ret_there, struct xfer_ep **ret_here)
{
	struct xfer_listener *listener;
	struct xfer_event event;
	char url[128];

	check(xfer_listen(target, "127.0.0.1:0", NULL, &listener), "listen");
	snprintf(url, sizeof(url), "xfer://%s/", xfer_listener_address(listener));
	check(xfer_ep_new(host, url, NULL, ret_here), "endpoint");
	expect(host, XFER_EVENT_READY);
	check(xfer_connect(*ret_here, NULL, 0), "connect");
	event = expect(target, XFER_EVENT_CONNECT_REQUEST);
	check(xfer_ep_new_answer(target, event.request, NULL, ret_there), "answer");
	expect(target, XFER_EVENT_READY);
	check(xfer_post_recv(*ret_there, recv, 1, 0, 0, NULL), "recv");
	check(xfer_accept(*ret_there, NULL, 0), "accept");
	expect(target, XFER_EVENT_CONNECTED);
	expect(host, XFER_EVENT_CONNECTED);
}

/* What a command that arrived says of its data. */
static struct xfer_token token_of(const struct command *c)
{
	struct xfer_token token = { .address = le64toh(c->address) };
	uint32_t key;

	memcpy(&key, c->key, sizeof(key));
	token.rkey = le32toh(key);
	token.length = c->length[0] | (uint32_t)c->length[1] << 8 | (uint32_t)c->length[2] << 16;
	return token;
}

int main(void)
{
	struct xfer_client *target, *host;
	struct xfer_buf *head, *body, *sink;
	struct xfer_ep *there, *here;
	struct command sent = { "write", 0, { 0 }, { 0 }, 0x40 }, got = { 0 };
	struct iovec out = { &sent, sizeof(sent) }, in = { &got, sizeof(got) }, data[2], place;
	struct xfer_event grant, event;
	struct xfer_token token;

	check(xfer_client_new(NULL, &target), "target");
	check(xfer_client_new(NULL, &host), "host");
	check(xfer_buf_new(host, 4096, 0, &head), "head");
	check(xfer_buf_new(host, BODY_BYTES, 0, &body), "body");
	check(xfer_buf_new(target, BYTES, 0, &sink), "sink");
	memset(xfer_buf_data(head), 'h', HEAD_BYTES);
	memset(xfer_buf_data(body), 'b', BODY_BYTES);
	meet(target, host, &in, &there, &here);

	/* The host. */
	data[0] = (struct iovec){ xfer_buf_data(head), HEAD_BYTES };
	data[1] = (struct iovec){ xfer_buf_data(body), BODY_BYTES };
	check(xfer_grantv(here, data, 2, XFER_GRANT_READ, 0, patches, 3, 1, XFER_MORE, NULL),
	      "grant");
	check(xfer_post_send(here, &out, 1, 2, XFER_QUIET, NULL), "send");

	/* The target. */
	expect(target, XFER_EVENT_COMPLETION);
	token = token_of(&got);
	place = (struct iovec){ xfer_buf_data(sink), BYTES };
	check(xfer_post_read(there, &place, 1, &token, 1, 3, XFER_EXPLAIN, NULL), "read");
	event = expect(target, XFER_EVENT_COMPLETION);

	/* The host again: it keeps the grant's number, and ends it when the target has answered. */
	grant = expect(host, XFER_EVENT_COMPLETION);
	check(xfer_revoke(here, grant.grant, 4, 0, NULL), "revoke");
	expect(host, XFER_EVENT_COMPLETION);

	if (memcmp(xfer_buf_data(sink), xfer_buf_data(head), HEAD_BYTES) != 0 ||
	    memcmp((char *)xfer_buf_data(sink) + HEAD_BYTES, xfer_buf_data(body), BODY_BYTES) !=
		    0) {
		fprintf(stderr, "the bytes differ\n");
		return 1;
	}
	printf("\"%s\": READ %llu bytes of two buffers by the token in the message\n", got.what,
	       (unsigned long long)event.byte_len);
	xfer_client_free(host);
	xfer_client_free(target);
	return 0;
}
