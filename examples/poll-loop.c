/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * A program with an event loop of its own: poll(2) here, and any other that can wait for a
 * descriptor to become readable. The rule is xfer_client_arm() before each sleep, and xfer_poll()
 * after it, until it has no more.
 *
 * Two clients and a timer share the loop. One client sends a message at each tick; the other sends
 * it back; when enough have come back, the program ends.
 */
#include <errno.h>
#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <xferclient.h>

#define TICKS 20
#define TICK_NS 5000000
#define DEPTH 8
#define BYTES 64

/* One side: its client, its end of the connection, its memory. */
struct side {
	const char *name;
	struct xfer_client *client;
	struct xfer_ep *ep;
	char in[DEPTH][BYTES]; /* in no buffer: the library carries it */
	bool connected;
};

static struct side server = { .name = "server" }, client = { .name = "client" };
static int sent, returned;

static void check(int status, const char *what)
{
	const char *why;

	if (status >= 0)
		return;
	xfer_last_error(&why);
	fprintf(stderr, "%s: %s: %s\n", what, xfer_strerror(status), why);
	exit(1);
}

static void post_recv(struct side *s, uint64_t slot)
{
	struct iovec v = { s->in[slot], BYTES };

	check(xfer_post_recv(s->ep, &v, 1, slot, 0, NULL), "recv");
}

/* Without a completion where all is well: the bytes were copied before this returns. */
static void send_text(struct side *s, const char *text)
{
	struct iovec v = { (void *)(uintptr_t)text, strlen(text) + 1 };

	check(xfer_post_send(s->ep, &v, 1, DEPTH, XFER_QUIET, NULL), "send");
}

/* RECVs are posted before the connection: the peer's first message finds one. */
static void on_ready(struct side *s)
{
	for (uint64_t i = 0; i < DEPTH; i++)
		post_recv(s, i);
	if (s == &client)
		check(xfer_connect(s->ep, NULL, 0), "connect");
	else
		check(xfer_accept(s->ep, NULL, 0), "accept");
}

static void on_message(struct side *s, const struct xfer_event *e)
{
	char text[BYTES], want[BYTES];

	if (e->opcode != XFER_OP_RECV)
		return;
	snprintf(text, sizeof(text), "%.*s", BYTES - 1, s->in[e->wr_id]);
	post_recv(s, e->wr_id);
	if (s == &server) {
		send_text(s, text);
		return;
	}
	snprintf(want, sizeof(want), "tick %d", returned++);
	if (strcmp(text, want) != 0) {
		fprintf(stderr, "\"%s\" came back where \"%s\" was sent\n", text, want);
		exit(1);
	}
}

static void on_event(struct side *s, const struct xfer_event *e)
{
	if (e->status < 0) {
		fprintf(stderr, "%s: %s\n", s->name, e->text);
		exit(1);
	}
	switch (e->type) {
	case XFER_EVENT_CONNECT_REQUEST:
		check(xfer_ep_new_answer(s->client, e->request, NULL, &s->ep), "answer");
		break;
	case XFER_EVENT_READY:
		on_ready(s);
		break;
	case XFER_EVENT_CONNECTED:
		s->connected = true;
		break;
	case XFER_EVENT_COMPLETION:
		on_message(s, e);
		break;
	default:
		break;
	}
}

/* Takes what there is, without waiting. */
static void drain(struct side *s)
{
	struct xfer_event events[16];
	int n;

	do {
		n = xfer_poll(s->client, events, 16, 0);
		check(n, "poll");
		for (int i = 0; i < n; i++)
			on_event(s, &events[i]);
	} while (n);
}

static void on_tick(int timer)
{
	uint64_t expirations;
	char text[BYTES];

	if (read(timer, &expirations, sizeof(expirations)) < 0)
		return;
	if (!client.connected || sent == TICKS)
		return;
	snprintf(text, sizeof(text), "tick %d", sent++);
	send_text(&client, text);
}

int main(void)
{
	struct itimerspec period = { { 0, TICK_NS }, { 0, TICK_NS } };
	struct xfer_listener *listener;
	struct pollfd fds[3];
	char url[128];

	check(xfer_client_new(NULL, &server.client), "server");
	check(xfer_client_new(NULL, &client.client), "client");
	check(xfer_listen(server.client, "127.0.0.1:0", NULL, &listener), "listen");
	snprintf(url, sizeof(url), "xfer://%s/", xfer_listener_address(listener));
	check(xfer_ep_new(client.client, url, NULL, &client.ep), "endpoint");

	fds[0] = (struct pollfd){ xfer_client_fd(server.client), POLLIN, 0 };
	fds[1] = (struct pollfd){ xfer_client_fd(client.client), POLLIN, 0 };
	fds[2] = (struct pollfd){ timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC), POLLIN, 0 };
	timerfd_settime(fds[2].fd, 0, &period, NULL);

	while (returned < TICKS) {
		bool wait = xfer_client_arm(server.client) == 0 &&
			    xfer_client_arm(client.client) == 0;

		if (poll(fds, 3, wait ? -1 : 0) < 0 && errno != EINTR)
			return 1;
		drain(&server);
		drain(&client);
		if (fds[2].revents)
			on_tick(fds[2].fd);
	}
	printf("%d messages went there and back through one poll(2)\n", returned);
	xfer_client_free(client.client);
	xfer_client_free(server.client);
	close(fds[2].fd);
	return 0;
}
