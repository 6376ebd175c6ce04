/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * A small upper-layer protocol. The client asks for a block by SEND; the server WRITEs it into the
 * memory that the client granted with the question, and answers by SEND. That is how storage and
 * file protocols use RDMA: small messages both ways, data by WRITE (or READ), grants per request.
 *
 *	pingpong                 both sides, as two processes
 *	pingpong server [ADDR]   waits for one client, at 127.0.0.1:20471
 *	pingpong client [ADDR]   asks -n times for -s bytes
 */
#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <xferclient.h>

#define DEFAULT_ADDRESS "127.0.0.1:20471"

enum { WR_QUESTION, WR_ANSWER, WR_GRANT, WR_REVOKE, WR_DATA };

struct question {
	struct xfer_token token;
	uint64_t number;
	uint32_t bytes; /* 0: that was all */
	uint32_t reserved;
};

struct answer {
	uint64_t number;
};

static unsigned int rounds = 500, block_bytes = 4096;

static void check(int status, const char *what)
{
	const char *why;

	if (status >= 0)
		return;
	xfer_last_error(&why);
	fprintf(stderr, "pingpong: %s: %s: %s\n", what, xfer_strerror(status), why);
	exit(1);
}

static struct xfer_event next_event(struct xfer_client *client)
{
	struct xfer_event e;
	int n;

	do
		n = xfer_poll(client, &e, 1, 15000);
	while (n == -EINTR);
	check(n, "poll");
	if (n == 0 || e.status < 0) {
		fprintf(stderr, "pingpong: %s\n", n ? e.text : "nothing for 15 seconds");
		exit(1);
	}
	return e;
}

/* Takes events until this one. What else comes is of no interest. */
static struct xfer_event wait_for(struct xfer_client *client, enum xfer_event_type type,
				  uint64_t wr_id)
{
	struct xfer_event e;

	do
		e = next_event(client);
	while (e.type != type || (type == XFER_EVENT_COMPLETION && e.wr_id != wr_id));
	return e;
}

static unsigned char pattern(uint64_t number, size_t i)
{
	return (unsigned char)(number * 131 + i * 7);
}

/* ---- server */

static struct xfer_ep *accept_one(struct xfer_client *client, const struct iovec *recv)
{
	struct xfer_event e = wait_for(client, XFER_EVENT_CONNECT_REQUEST, 0);
	struct xfer_ep *ep;

	check(xfer_ep_new_answer(client, e.request, NULL, &ep), "answer");
	wait_for(client, XFER_EVENT_READY, 0);
	check(xfer_post_recv(ep, recv, 1, WR_QUESTION, 0, NULL), "recv");
	check(xfer_accept(ep, NULL, 0), "accept");
	wait_for(client, XFER_EVENT_CONNECTED, 0);
	return ep;
}

static void serve_question(struct xfer_ep *ep, const struct question *q, unsigned char *block)
{
	struct answer a = { .number = q->number };
	struct iovec data = { block, q->bytes }, answer = { &a, sizeof(a) };

	for (size_t i = 0; i < q->bytes; i++)
		block[i] = pattern(q->number, i);
	/* The answer starts behind the data; XFER_MORE lets both go to the daemon at once. */
	check(xfer_post_write(ep, &data, 1, &q->token, 1, WR_DATA, XFER_MORE, NULL), "write");
	check(xfer_post_send(ep, &answer, 1, WR_ANSWER, XFER_QUIET, NULL), "send");
}

static int serve(struct xfer_client *client)
{
	struct question q;
	struct iovec recv = { &q, sizeof(q) };
	struct xfer_ep *ep = accept_one(client, &recv);
	struct xfer_buf *block = NULL;

	for (;;) {
		struct question now;

		wait_for(client, XFER_EVENT_COMPLETION, WR_QUESTION);
		now = q;
		if (now.bytes == 0)
			break;
		if (!block)
			check(xfer_buf_new(client, now.bytes, 0, &block), "buffer");
		if (now.bytes > xfer_buf_size(block))
			return 1; /* this server has blocks of one size */
		/* The next question may come as soon as this one is answered. */
		check(xfer_post_recv(ep, &recv, 1, WR_QUESTION, 0, NULL), "recv");
		serve_question(ep, &now, xfer_buf_data(block));
		wait_for(client, XFER_EVENT_COMPLETION, WR_DATA);
	}
	xfer_ep_free(ep);
	return 0;
}

/* ---- client */

static struct xfer_ep *connect_to(struct xfer_client *client, const char *address)
{
	struct xfer_ep *ep;
	char url[300];

	snprintf(url, sizeof(url), "xfer://%s/", address);
	check(xfer_ep_new(client, url, NULL, &ep), "endpoint");
	wait_for(client, XFER_EVENT_READY, 0);
	check(xfer_connect(ep, NULL, 0), "connect");
	wait_for(client, XFER_EVENT_CONNECTED, 0);
	return ep;
}

static void ask(struct xfer_client *client, struct xfer_ep *ep, struct xfer_buf *buf, uint64_t n)
{
	struct question q = { .number = n, .bytes = block_bytes };
	struct answer a = { 0 };
	struct iovec out = { &q, sizeof(q) }, in = { &a, sizeof(a) };
	unsigned char *block = xfer_buf_data(buf);
	struct xfer_event grant;

	check(xfer_post_recv(ep, &in, 1, WR_ANSWER, XFER_MORE, NULL), "recv");
	check(xfer_grant(ep, block, block_bytes, XFER_GRANT_WRITE, 0, WR_GRANT, 0, NULL), "grant");
	grant = wait_for(client, XFER_EVENT_COMPLETION, WR_GRANT);
	q.token = grant.token;
	check(xfer_post_send(ep, &out, 1, WR_QUESTION, XFER_QUIET, NULL), "send");
	wait_for(client, XFER_EVENT_COMPLETION, WR_ANSWER);
	/* Only now is it sure that nobody writes there any more. */
	check(xfer_revoke(ep, grant.grant, WR_REVOKE, 0, NULL), "revoke");
	wait_for(client, XFER_EVENT_COMPLETION, WR_REVOKE);
	for (size_t i = 0; i < block_bytes; i++) {
		if (a.number == n && block[i] == pattern(n, i))
			continue;
		fprintf(stderr, "pingpong: block %llu is wrong at byte %zu\n",
			(unsigned long long)n, i);
		exit(1);
	}
}

static int ask_all(struct xfer_client *client, const char *address)
{
	struct xfer_ep *ep = connect_to(client, address);
	struct question last = { 0 };
	struct iovec v = { &last, sizeof(last) };
	struct timespec begin, end;
	struct xfer_buf *buf;
	double seconds;

	check(xfer_buf_new(client, block_bytes, 0, &buf), "buffer");
	clock_gettime(CLOCK_MONOTONIC, &begin);
	for (uint64_t n = 0; n < rounds; n++)
		ask(client, ep, buf, n);
	clock_gettime(CLOCK_MONOTONIC, &end);
	check(xfer_post_send(ep, &v, 1, WR_QUESTION, 0, NULL), "send");
	wait_for(client, XFER_EVENT_COMPLETION, WR_QUESTION);
	xfer_ep_free(ep);
	seconds = (double)(end.tv_sec - begin.tv_sec) + (double)(end.tv_nsec - begin.tv_nsec) / 1e9;
	printf(
		"%u blocks of %u bytes, each granted, written and checked: %.0f a second, %.1f MB/s\n",
	       rounds, block_bytes, rounds / seconds, 1e-6 * rounds * block_bytes / seconds);
	return 0;
}

/* ---- both */

static int run_server(const char *address, int tell)
{
	struct xfer_client *client;
	struct xfer_listener *listener;
	int status;

	check(xfer_client_new(NULL, &client), "server");
	check(xfer_listen(client, address, NULL, &listener), "listen");
	address = xfer_listener_address(listener);
	if (tell >= 0 && write(tell, address, strlen(address) + 1) < 0)
		return 1;
	status = serve(client);
	xfer_client_free(client);
	return status;
}

static int run_client(const char *address)
{
	struct xfer_client *client;
	int status;

	check(xfer_client_new(NULL, &client), "client");
	status = ask_all(client, address);
	xfer_client_free(client);
	return status;
}

/* The server is a child; its address, with the port that it got, comes through a pipe. */
static int run_both(void)
{
	char address[128] = "";
	int tell[2], status, child_status;
	pid_t child;

	if (pipe(tell) < 0)
		return 1;
	child = fork();
	if (child == 0)
		_exit(run_server("127.0.0.1:0", tell[1]));
	close(tell[1]);
	if (child < 0 || read(tell[0], address, sizeof(address) - 1) <= 0)
		return 1;
	status = run_client(address);
	if (waitpid(child, &child_status, 0) != child || child_status != 0)
		status = 1;
	return status;
}

int main(int argc, char **argv)
{
	int option;

	while ((option = getopt(argc, argv, "n:s:")) != -1) {
		if (option == 'n')
			rounds = (unsigned int)strtoul(optarg, NULL, 0);
		else if (option == 's')
			block_bytes = (unsigned int)strtoul(optarg, NULL, 0);
		else
			return 2;
	}
	if (rounds == 0 || block_bytes == 0) {
		fprintf(stderr, "pingpong: -n and -s want a number above 0\n");
		return 2;
	}
	if (optind == argc)
		return run_both();
	if (strcmp(argv[optind], "server") == 0)
		return run_server(argv[optind + 1] ? argv[optind + 1] : DEFAULT_ADDRESS, -1);
	if (strcmp(argv[optind], "client") == 0)
		return run_client(argv[optind + 1] ? argv[optind + 1] : DEFAULT_ADDRESS);
	fprintf(stderr, "usage: pingpong [-n ROUNDS] [-s BYTES] [server|client [HOST:PORT]]\n");
	return 2;
}
