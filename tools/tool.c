/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "tools/tool.h"

#include "common/units.h"
#include "tools/text.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>

void failure_set(struct failure *f, int status, const char *format, ...)
{
	va_list args;

	if (f->status)
		return;
	f->status = status;
	va_start(args, format);
	vsnprintf(f->text, sizeof(f->text), format, args);
	va_end(args);
	text_clean(f->text);
}

void failure_set_last(struct failure *f, int status, const char *what)
{
	const char *text = "";

	xfer_last_error(&text);
	failure_set(f, status, "%s: %s", what, text[0] ? text : xfer_strerror(status));
}

uint32_t failure_errno(const struct failure *f)
{
	return f->status < 0 && f->status > -4096 ? (uint32_t)-f->status : EIO;
}

__attribute__((format(printf, 2, 0))) static void error_line(const struct tool *t,
							     const char *format, va_list args)
{
	char text[1024];

	vsnprintf(text, sizeof(text), format, args);
	fprintf(stderr, "xferctl: %s%s%s\n", t->command ? t->command : "", t->command ? ": " : "",
		text_clean(text));
}

int tool_error(const struct tool *t, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	error_line(t, format, args);
	va_end(args);
	return TOOL_FAILED;
}

int tool_usage(const struct tool *t, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	error_line(t, format, args);
	va_end(args);
	fprintf(stderr, "Try 'xferctl %s%s--help'.\n", t->command ? t->command : "",
		t->command ? " " : "");
	return TOOL_USAGE;
}

struct xfer_client *tool_client(const struct tool *t)
{
	const struct xfer_client_options options = {
		.size = sizeof(options),
		.socket_path = t->admin ? t->admin_socket_path : t->socket_path,
		.admin = t->admin,
	};
	struct xfer_client *client;
	const char *text = "";
	int r = xfer_client_new(&options, &client);

	if (r == 0)
		return client;
	xfer_last_error(&text);
	tool_error(t, "%s", text[0] ? text : xfer_strerror(r));
	return NULL;
}

const char *tool_speed(uint64_t bytes, uint64_t ns, char *buf, size_t size)
{
	const double s = (double)(ns ? ns : 1) / 1e9;
	char total[32], rate[32];

	snprintf(buf, size, "%s in %.*f s, %s/s", xc_size_format(bytes, total, sizeof(total)),
		 s < 1 ? 3 : 2, s,
		 xc_size_format((uint64_t)((double)bytes / s), rate, sizeof(rate)));
	return buf;
}
