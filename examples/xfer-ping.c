/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Speaks the protocol of rping(1), a program of rdma-core that is written on verbs: each can be the
 * other's peer. A protocol of one's own goes onto this library in the same way.
 *
 *	xfer-ping [-v] server [HOST:PORT]                      waits for one client
 *	xfer-ping [-v] [-C ROUNDS] [-S BYTES] client [HOST:PORT]
 *
 * A message is 16 bytes, in network order: {u64 address, u32 rkey, u32 bytes}. In a round
 *	the client SENDs where its text is;       the server READs it, and SENDs to go on;
 *	the client SENDs where it wants it back;  the server WRITEs it, and SENDs that it did;
 *	the client compares.
 * What the server SENDs is 16 bytes of no meaning.
 */
#include <endian.h>
#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <xferclient.h>

#define DEFAULT_ADDRESS "127.0.0.1:7174" /* rping's port */
#define BYTES_MAX 65536 /* of rping */
#define TEXT "rdma-ping-%u: "

struct message {
	uint64_t address;
	uint32_t rkey;
	uint32_t bytes;
};

/* What has happened and was not waited for: one bit each. */
enum {
	READY = 1 << 0,
	REQUEST = 1 << 1,
	CONNECTED = 1 << 2,
	DISCONNECTED = 1 << 3,
	RECEIVED = 1 << 4,
	SENT = 1 << 5,
	GRANTED = 1 << 6,
	REVOKED = 1 << 7,
	MOVED = 1 << 8, /* a READ or WRITE is complete */
};

struct peer {
	struct xfer_client *client;
	struct xfer_ep *ep;
	unsigned int happened;
	uint64_t request;           /* REQUEST */
	struct xfer_token token;    /* GRANTED */
	uint32_t grant;
	struct message received;    /* RECEIVED, or the RECV that waits */
	struct xfer_buf *text, *back;
};

static bool verbose;
static unsigned int rounds = 10, text_bytes = 64;

static void check(int status, const char *what)
{
	const char *why;

	if (status >= 0)
		return;
	xfer_last_error(&why);
	fprintf(stderr, "xfer-ping: %s: %s: %s\n", what, xfer_strerror(status), why);
	exit(1);
}

static void fail(const char *why)
{
	fprintf(stderr, "xfer-ping: %s\n", why);
	exit(1);
}

/* ---- events */

/* The wr_id of a post is the bit that its completion sets. */
static unsigned int completed(struct peer *p, const struct xfer_event *e)
{
	if (e->wr_id == RECEIVED && e->byte_len != sizeof(struct message))
		fail("a message of another size than 16 bytes");
	if (e->wr_id == GRANTED) {
		p->token = e->token;
		p->grant = e->grant;
	}
	return (unsigned int)e->wr_id;
}

static unsigned int what_happened(struct peer *p, const struct xfer_event *e)
{
	switch (e->type) {
	case XFER_EVENT_READY:
		return READY;
	case XFER_EVENT_CONNECT_REQUEST:
		p->request = e->request;
		return REQUEST;
	case XFER_EVENT_CONNECTED:
		return CONNECTED;
	case XFER_EVENT_DISCONNECTED:
		return DISCONNECTED;
	case XFER_EVENT_COMPLETION:
		return completed(p, e);
	default:
		fail("the daemon is gone");
	}
	return 0;
}

static void take_event(struct peer *p)
{
	struct xfer_event e;
	int n;

	do
		n = xfer_poll(p->client, &e, 1, 15000);
	while (n == -EINTR);
	check(n, "poll");
	if (n == 0)
		fail("nothing for 15 seconds");
	/* The end of a connection flushes the RECV that waits for the next message. */
	if (e.type == XFER_EVENT_COMPLETION && e.status == -XFER_E_FLUSHED)
		return;
	if (e.status < 0 && e.type != XFER_EVENT_DISCONNECTED)
		fail(e.text);
	p->happened |= what_happened(p, &e);
}

/* False: the peer has gone, and it will not happen. */
static bool wait_for_if(struct peer *p, unsigned int what)
{
	while (!(p->happened & (what | DISCONNECTED)))
		take_event(p);
	if (!(p->happened & what))
		return false;
	p->happened &= ~what;
	return true;
}

static void wait_for(struct peer *p, unsigned int what)
{
	if (!wait_for_if(p, what))
		fail("the peer has gone in the middle of a round");
}

/* ---- messages */

static void post_recv(struct peer *p)
{
	struct iovec v = { &p->received, sizeof(p->received) };

	check(xfer_post_recv(p->ep, &v, 1, RECEIVED, 0, NULL), "recv");
}

static void send_message(struct peer *p, const struct xfer_token *token)
{
	struct message m = {
		.address = htobe64(token->address),
		.rkey = htobe32(token->rkey),
		.bytes = htobe32(token->length),
	};
	struct iovec v = { &m, sizeof(m) };

	check(xfer_post_send(p->ep, &v, 1, SENT, 0, NULL), "send");
	/* A client that has its last message may be gone before this has completed. */
	wait_for_if(p, SENT);
}

static struct xfer_token token_of(const struct message *m)
{
	return (struct xfer_token){
		.address = be64toh(m->address),
		.rkey = be32toh(m->rkey),
		.length = be32toh(m->bytes),
	};
}

/* ---- client */

static void connect_to(struct peer *p, const char *address)
{
	char url[300];

	snprintf(url, sizeof(url), "xfer://%s/", address);
	check(xfer_ep_new(p->client, url, NULL, &p->ep), "endpoint");
	wait_for(p, READY);
	post_recv(p);
	check(xfer_connect(p->ep, NULL, 0), "connect");
	wait_for(p, CONNECTED);
}

/* Lets the peer at this memory until it has said that it is done. */
static void offer(struct peer *p, struct xfer_buf *buf, unsigned int access)
{
	check(xfer_grant(p->ep, xfer_buf_data(buf), text_bytes, access, 0, GRANTED, 0, NULL),
	      "grant");
	wait_for(p, GRANTED);
	send_message(p, &p->token);
	wait_for(p, RECEIVED);
	post_recv(p);
	check(xfer_revoke(p->ep, p->grant, REVOKED, 0, NULL), "revoke");
	wait_for(p, REVOKED);
}

/* rping gives back what stands before the first NUL: there is one, at the end. */
static void write_text(char *text, unsigned int round)
{
	const int n = snprintf(text, text_bytes, TEXT, round);

	for (unsigned int i = (unsigned int)n; i < text_bytes; i++)
		text[i] = (char)('A' + (round + i) % 58);
	text[text_bytes - 1] = '\0';
}

static void ping(struct peer *p, unsigned int round)
{
	char *text = xfer_buf_data(p->text), *back = xfer_buf_data(p->back);

	memset(back, 0, text_bytes);
	/* Before it is granted: on some fabrics a grant for READ shows a copy. */
	write_text(text, round);
	offer(p, p->text, XFER_GRANT_READ);
	offer(p, p->back, XFER_GRANT_WRITE);
	if (memcmp(text, back, text_bytes) != 0)
		fail("what came back differs");
	if (verbose)
		printf("ping data: %s\n", back);
}

static int run_client(const char *address)
{
	struct peer p = { 0 };

	check(xfer_client_new(NULL, &p.client), "client");
	check(xfer_buf_new(p.client, text_bytes, 0, &p.text), "buffer");
	check(xfer_buf_new(p.client, text_bytes, 0, &p.back), "buffer");
	connect_to(&p, address);
	for (unsigned int round = 0; round < rounds; round++)
		ping(&p, round);
	printf("%u rounds of %u bytes, all of them right\n", rounds, text_bytes);
	xfer_client_free(p.client);
	return 0;
}

/* ---- server */

static void accept_one(struct peer *p)
{
	wait_for(p, REQUEST);
	check(xfer_ep_new_answer(p->client, p->request, NULL, &p->ep), "answer");
	wait_for(p, READY);
	/* Before the connection is there: a client SENDs at once. */
	post_recv(p);
	check(xfer_accept(p->ep, NULL, 0), "accept");
	wait_for(p, CONNECTED);
}

/* What the client's last message named, once there is a RECV for its next. */
static struct iovec take_offer(struct peer *p, struct xfer_token *ret_token)
{
	*ret_token = token_of(&p->received);
	post_recv(p);
	if (ret_token->length < 16 || ret_token->length > BYTES_MAX)
		fail("the client has memory of a size that it cannot have");
	return (struct iovec){ xfer_buf_data(p->text), ret_token->length };
}

static void check_text(const char *text, size_t bytes, unsigned int round)
{
	char begin[32];
	const int n = snprintf(begin, sizeof(begin), TEXT, round);

	if (memchr(text, '\0', bytes) != text + bytes - 1 || strncmp(text, begin, (size_t)n) != 0)
		fail("what was read is no text of a ping");
	if (verbose)
		printf("server ping data: %s\n", text);
}

static void pong(struct peer *p, unsigned int round)
{
	struct xfer_token token;
	struct iovec v = take_offer(p, &token);

	check(xfer_post_read(p->ep, &v, 1, &token, 1, MOVED, 0, NULL), "read");
	wait_for(p, MOVED);
	check_text(v.iov_base, v.iov_len, round);
	send_message(p, &token);
	wait_for(p, RECEIVED);
	v = take_offer(p, &token);
	check(xfer_post_write(p->ep, &v, 1, &token, 1, MOVED, XFER_MORE, NULL), "write");
	send_message(p, &token);
	wait_for(p, MOVED);
}

static int run_server(const char *address)
{
	struct xfer_listener *listener;
	struct peer p = { 0 };
	unsigned int round = 0;

	check(xfer_client_new(NULL, &p.client), "server");
	check(xfer_buf_new(p.client, BYTES_MAX, 0, &p.text), "buffer");
	check(xfer_listen(p.client, address, NULL, &listener), "listen");
	printf("listening at %s\n", xfer_listener_address(listener));
	accept_one(&p);
	while (wait_for_if(&p, RECEIVED))
		pong(&p, round++);
	printf("%u rounds served\n", round);
	xfer_client_free(p.client);
	return round > 0 ? 0 : 1;
}

static int usage(void)
{
	fprintf(stderr,
		"usage: xfer-ping [-v] [-C ROUNDS] [-S BYTES] server|client [HOST:PORT]\n");
	return 2;
}

int main(int argc, char **argv)
{
	const char *address;
	int option;

	setvbuf(stdout, NULL, _IOLBF, 0);
	while ((option = getopt(argc, argv, "vC:S:")) != -1) {
		if (option == 'v')
			verbose = true;
		else if (option == 'C')
			rounds = (unsigned int)strtoul(optarg, NULL, 0);
		else if (option == 'S')
			text_bytes = (unsigned int)strtoul(optarg, NULL, 0);
		else
			return usage();
	}
	if (rounds == 0 || text_bytes < 32 || text_bytes > BYTES_MAX || optind >= argc)
		return usage();
	address = argv[optind + 1] ? argv[optind + 1] : DEFAULT_ADDRESS;
	if (strcmp(argv[optind], "server") == 0)
		return run_server(address);
	if (strcmp(argv[optind], "client") == 0)
		return run_client(address);
	return usage();
}
