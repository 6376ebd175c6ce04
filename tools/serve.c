/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#define _GNU_SOURCE 1

/* xferctl serve: one thread, one loop, many clients. */

#include "tools/progress.h"
#include "tools/served.h"
#include "tools/text.h"

#include "common/checked.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#define NS_PER_S 1000000000ull
#define LOOK_EVERY_NS (NS_PER_S / 2) /* at deadlines */
#define FINISH_NS (10 * NS_PER_S)    /* transfers under way when the server is told to stop */
#define TELL_NS (1 * NS_PER_S)       /* and then to be told that it stops */

struct loop {
	struct server server;
	int signals; /* signalfd */
	uint64_t looked_ns, stop_ns;
	unsigned int stops; /* how often we were told */
	struct failure failure;
};

static int open_signals(void)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGTERM);
	if (sigprocmask(SIG_BLOCK, &set, NULL) < 0)
		return -errno;
	return signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

/* ------------------------------------------------------------------------- stopping */

static void stop_all(struct server *server, bool abort)
{
	struct served *s;

	xc_list_for_each(s, &server->served, at)
		served_stop(s, abort);
}

/* First: nothing new, what runs may finish. Then: what runs is told that it ends. Then: the end. */
static void stop_step(struct loop *l)
{
	l->stops++;
	if (l->stops == 1) {
		l->server.stopping = true;
		xfer_listener_free(l->server.listener);
		l->server.listener = NULL;
	}
	stop_all(&l->server, l->stops > 1);
	l->stop_ns = progress_now_ns() + (l->stops == 1 ? FINISH_NS : TELL_NS);
}

static void read_signals(struct loop *l)
{
	struct signalfd_siginfo info;

	while (read(l->signals, &info, sizeof(info)) == (ssize_t)sizeof(info))
		stop_step(l);
}

/* ------------------------------------------------------------------------- the loop */

static void on_event(struct loop *l, const struct xfer_event *event)
{
	switch (event->type) {
	case XFER_EVENT_CONNECT_REQUEST:
		served_new(&l->server, event);
		break;
	case XFER_EVENT_DAEMON_GONE:
		failure_set(&l->failure, event->status, "%s",
			    event->text[0] ? event->text : xfer_strerror(event->status));
		l->server.daemon_gone = true;
		break;
	default:
		if (event->context)
			served_event(served_of_link(event->context), event);
	}
}

/* Only between batches of events: a batch may hold events of a connection that has just ended. */
static void free_gone(struct server *server)
{
	struct served *s;

	xc_list_for_each(s, &server->served, at)
		if (s->state == SERVED_GONE)
			served_free(s);
}

/* True: a post waits for the daemon to take more. */
static bool pump_all(struct server *server)
{
	struct served *s;
	bool waits = false;

	xc_list_for_each(s, &server->served, at)
		waits |= served_pump(s);
	return waits;
}

static void look_at_deadlines(struct loop *l)
{
	const uint64_t now_ns = progress_now_ns();
	struct served *s;

	if (now_ns - l->looked_ns < LOOK_EVERY_NS)
		return;
	l->looked_ns = now_ns;
	/* Where events never cease, the loop never sleeps. */
	read_signals(l);
	xc_list_for_each(s, &l->server.served, at)
		served_check_deadline(s, now_ns);
	if (l->stops > 0 && now_ns >= l->stop_ns)
		stop_step(l);
}

static void sleep_for_events(struct loop *l, bool posts_wait)
{
	struct pollfd fds[] = {
		{.fd = xfer_client_fd(l->server.client), .events = POLLIN},
		{.fd = l->signals, .events = POLLIN},
	};
	int timeout_ms = posts_wait ? 5 : l->server.count || l->stops ? 500 : -1;

	if (xfer_client_arm(l->server.client) == -EAGAIN)
		timeout_ms = 0;
	if (poll(fds, XC_ARRAY_SIZE(fds), timeout_ms) > 0 && (fds[1].revents & POLLIN))
		read_signals(l);
}

static bool finished(const struct loop *l)
{
	return l->server.daemon_gone || l->failure.status || l->stops > 2 ||
	       (l->stops > 0 && l->server.count == 0);
}

static void run(struct loop *l)
{
	struct xfer_event events[64];
	bool posts_wait;
	int n;

	while (!finished(l)) {
		n = xfer_poll(l->server.client, events, XC_ARRAY_SIZE(events), 0);
		if (n < 0 && n != -EINTR) {
			failure_set_last(&l->failure, n, "waiting");
			break;
		}
		for (int i = 0; i < n; i++)
			on_event(l, &events[i]);
		posts_wait = pump_all(&l->server);
		look_at_deadlines(l);
		free_gone(&l->server);
		/* What was just posted leaves with the next xfer_poll(). */
		if (n <= 0)
			sleep_for_events(l, posts_wait);
	}
}

/* ------------------------------------------------------------------------- beginning and end */

static void announce(const struct loop *l, const char *dir)
{
	const struct tool *t = l->server.tool;
	const char *address = xfer_listener_address(l->server.listener);
	char name[512];

	if (t->json) {
		fputs("{\"serving\":", stdout);
		text_json(stdout, dir);
		fputs(",\"url\":\"xfer://", stdout);
		printf("%s/\",\"writable\":%s}\n", address, t->writable ? "true" : "false");
		return;
	}
	snprintf(name, sizeof(name), "%.500s", dir);
	printf("serving %s at xfer://%s/ (%s)\n", text_clean(name), address,
	       t->writable ? "writable" : "read-only");
}

static int serve_with_client(struct loop *l, const char *dir)
{
	const struct tool *t = l->server.tool;
	const char *text = "";
	struct served *s;
	int r = xfer_listen(l->server.client, t->listen, NULL, &l->server.listener);

	if (r < 0) {
		xfer_last_error(&text);
		return tool_error(t, "%s%s", text[0] ? text : xfer_strerror(r),
				  r == -EADDRINUSE ? "; --listen 127.0.0.1:0 takes a free port"
						   : "");
	}
	l->signals = open_signals();
	if (l->signals < 0)
		return tool_error(t, "signalfd: %s", strerror(errno));
	announce(l, dir);
	run(l);
	xc_list_for_each(s, &l->server.served, at)
		served_free(s);
	close(l->signals);
	xfer_listener_free(l->server.listener);
	return l->failure.status ? tool_error(t, "%s", l->failure.text) : TOOL_OK;
}

int tool_serve(const struct tool *t)
{
	struct loop l = {.server = {.tool = t}};
	char why[STORE_WHY_MAX];
	int r;

	if (t->n_arguments != 1)
		return tool_usage(t, "wants one directory, has %d arguments", t->n_arguments);
	if (store_open_root(t->arguments[0], &l.server.root, why) < 0)
		return tool_error(t, "%s", why);
	xc_list_init(&l.server.served);
	signal(SIGPIPE, SIG_IGN);
	/* Each line is there for whoever reads the log when the transfer is over. */
	setvbuf(stdout, NULL, _IOLBF, 0);
	l.server.client = tool_client(t);
	r = l.server.client ? serve_with_client(&l, t->arguments[0]) : TOOL_FAILED;
	xfer_client_free(l.server.client);
	close(l.server.root);
	return r;
}
