/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#define _GNU_SOURCE 1
#include "tools/asker.h"
#include "tools/progress.h"
#include "tools/store.h"
#include "tools/text.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

struct putting {
	const char *file;
	struct store_source source;
	struct progress progress;
};

static int on_opened(struct asker *a, uint64_t size_bytes)
{
	struct putting *p = a->owner;

	progress_begin(&p->progress, text_last_name(p->file), size_bytes, progress_now_ns());
	return 0;
}

static int on_fill(struct asker *a, void *data, uint32_t bytes, uint64_t offset)
{
	const struct putting *p = a->owner;
	char why[STORE_WHY_MAX];
	int r = store_source_read(&p->source, data, bytes, offset, why);

	if (r < 0)
		failure_set(&a->failure, r, "%s: %s", p->file, why);
	return r;
}

static int on_last(struct asker *a)
{
	const struct putting *p = a->owner;
	char why[STORE_WHY_MAX];
	int r = store_source_unchanged(&p->source, why);

	if (r < 0)
		failure_set(&a->failure, r, "%s: %s", p->file, why);
	return r;
}

static void on_progress(struct asker *a, uint64_t done_bytes)
{
	struct putting *p = a->owner;

	progress_update(&p->progress, done_bytes, progress_now_ns());
}

static const struct asker_ops put_ops = {
	.opened = on_opened,
	.fill = on_fill,
	.last = on_last,
	.progress = on_progress,
};

static int check_arguments(const struct tool *t, struct putting *p, char *path, size_t size)
{
	const char *why;
	int r;

	if (t->n_arguments != 2)
		return tool_usage(t, "wants a file and a URL, has %d arguments", t->n_arguments);
	p->file = t->arguments[0];
	r = text_url_path(t->arguments[1], path, size, &why);
	if (r < 0)
		return tool_usage(t, "%s: %s", t->arguments[1], why);
	if (text_last_name(path)[0] == '\0')
		return tool_usage(t, "%s: names a directory; wants the file's name, too",
				  t->arguments[1]);
	return TOOL_OK;
}

static int put_opened_file(const struct tool *t, struct putting *p, const char *path)
{
	struct asker a = {
		.operation = FP_PUT,
		.url = t->arguments[1],
		.path = path,
		.size_bytes = p->source.size_bytes,
		.ops = &put_ops,
		.owner = p,
	};
	struct xfer_client *client = tool_client(t);
	int r;

	if (!client)
		return TOOL_FAILED;
	r = asker_run(&a, client);
	progress_end(&p->progress);
	if (r < 0)
		r = tool_error(t, "%s: %s", a.url, a.failure.text);
	else
		asker_report(&a, t, p->file, false);
	xfer_client_free(client);
	return r;
}

int tool_put(const struct tool *t)
{
	char path[FP_PATH_MAX + 1], why[STORE_WHY_MAX];
	struct putting p = {0};
	int r = check_arguments(t, &p, path, sizeof(path));

	if (r)
		return r;
	if (store_source_open_local(p.file, &p.source, why) < 0)
		return tool_error(t, "%s", why);
	if (p.source.size_bytes > FP_SIZE_MAX)
		r = tool_error(t, "%s: larger than the protocol can carry", p.file);
	else
		r = put_opened_file(t, &p, path);
	store_source_close(&p.source);
	return r;
}
