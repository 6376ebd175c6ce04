/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#define _GNU_SOURCE 1
#include "tools/asker.h"
#include "tools/progress.h"
#include "tools/store.h"
#include "tools/text.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

struct getting {
	const struct tool *tool;
	const char *file;         /* the argument, NULL = none */
	const char *default_name;
	bool to_stdout;
	uint64_t written;         /* to_stdout */
	struct progress progress;
};

/* What a signal must remove. The handler sees it whole: store.c changes it with signals blocked. */
static struct store_temp temp;

static void on_signal(int signal)
{
	store_temp_remove_in_handler(&temp);
	/* SA_RESETHAND: this time it ends us, and whoever started us sees why. */
	raise(signal);
}

static void catch_signals(void)
{
	static const int signals[] = {SIGINT, SIGTERM, SIGHUP};
	struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESETHAND};
	struct sigaction before;

	sigfillset(&action.sa_mask);
	for (size_t i = 0; i < sizeof(signals) / sizeof(signals[0]); i++) {
		/* What nohup(1) ignores stays ignored. */
		if (sigaction(signals[i], NULL, &before) == 0 && before.sa_handler == SIG_IGN)
			continue;
		sigaction(signals[i], &action, NULL);
	}
}

static int on_opened(struct asker *a, uint64_t size_bytes)
{
	struct getting *g = a->owner;
	char why[STORE_WHY_MAX];
	int r = 0;

	if (!g->to_stdout)
		r = store_temp_begin_local(g->file ? g->file : g->default_name, g->default_name,
					   size_bytes, &temp, why);
	if (r < 0)
		failure_set(&a->failure, r, "%s", why);
	else
		progress_begin(&g->progress, g->default_name, size_bytes, progress_now_ns());
	return r;
}

static int write_stdout(struct asker *a, const char *data, uint32_t bytes, uint64_t offset)
{
	struct getting *g = a->owner;

	if (offset != g->written) {
		failure_set(&a->failure, -EBADMSG, "chunks came out of order");
		return -EBADMSG;
	}
	for (uint32_t done = 0; done < bytes;) {
		ssize_t n = write(STDOUT_FILENO, data + done, bytes - done);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0) {
			const int error = errno;

			failure_set(&a->failure, -error, "standard output: %s", strerror(error));
			return -error;
		}
		done += (uint32_t)n;
	}
	g->written += bytes;
	return 0;
}

static int on_store(struct asker *a, const void *data, uint32_t bytes, uint64_t offset)
{
	const struct getting *g = a->owner;
	char why[STORE_WHY_MAX];
	int r;

	if (g->to_stdout)
		return write_stdout(a, data, bytes, offset);
	r = store_temp_write(&temp, data, bytes, offset, why);
	if (r < 0)
		failure_set(&a->failure, r, "%s", why);
	return r;
}

static int on_last(struct asker *a)
{
	const struct getting *g = a->owner;
	char why[STORE_WHY_MAX];
	int r = g->to_stdout ? 0 : store_temp_commit(&temp, g->tool->sync, why);

	if (r < 0)
		failure_set(&a->failure, r, "%s", why);
	return r;
}

static void on_progress(struct asker *a, uint64_t done_bytes)
{
	struct getting *g = a->owner;

	progress_update(&g->progress, done_bytes, progress_now_ns());
}

static const struct asker_ops get_ops = {
	.opened = on_opened,
	.store = on_store,
	.last = on_last,
	.progress = on_progress,
};

static int check_arguments(const struct tool *t, struct getting *g, char *path, size_t size)
{
	const char *url = t->arguments[0], *why;

	if (t->n_arguments < 1 || t->n_arguments > 2)
		return tool_usage(t, "wants a URL and perhaps a file, has %d arguments",
				  t->n_arguments);
	if (text_url_path(url, path, size, &why) < 0)
		return tool_usage(t, "%s: %s", url, why);
	g->file = t->n_arguments == 2 ? t->arguments[1] : NULL;
	g->default_name = text_last_name(path);
	g->to_stdout = g->file && strcmp(g->file, "-") == 0;
	if (g->default_name[0] == '\0' || strcmp(g->default_name, ".") == 0 ||
	    strcmp(g->default_name, "..") == 0)
		return tool_usage(t, "%s: names a directory; what can be had is a file", url);
	if (g->file && g->file[0] == '\0')
		return tool_usage(t, "the file's name is empty");
	return TOOL_OK;
}

int tool_get(const struct tool *t)
{
	char path[FP_PATH_MAX + 1];
	struct getting g = {.tool = t};
	struct asker a = {.operation = FP_GET, .path = path, .ops = &get_ops, .owner = &g};
	struct xfer_client *client;
	int r = check_arguments(t, &g, path, sizeof(path));

	if (r)
		return r;
	a.url = t->arguments[0];
	signal(SIGPIPE, SIG_IGN);
	catch_signals();
	client = tool_client(t);
	if (!client)
		return TOOL_FAILED;
	r = asker_run(&a, client);
	progress_end(&g.progress);
	store_temp_abort(&temp);
	if (r < 0)
		r = tool_error(t, "%s: %s", a.url, a.failure.text);
	else
		asker_report(&a, t, g.file ? g.file : g.default_name, g.to_stdout);
	xfer_client_free(client);
	return r;
}
