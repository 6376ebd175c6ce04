/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "tests/fabric/report.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/assert.h"

static int to = -1;
static struct report now;

void report_to(int fd)
{
	to = fd;
}

void report_begin(uint32_t test)
{
	now = (struct report){ .test = test, .verdict = PASSED };
}

/* A pipe takes less than PIPE_BUF bytes in one piece. */
void report_end(void)
{
	xc_assert(write(to, &now, sizeof(now)) == sizeof(now));
}

void report_end_early(void)
{
	report_end();
	_exit(0);
}

void report_failure(const char *file, int line, const char *format, ...)
{
	const char *base = strrchr(file, '/');
	va_list ap;
	int n;

	now.verdict = FAILED;
	n = snprintf(now.text, sizeof(now.text), "%s:%d: ", base ? base + 1 : file, line);
	va_start(ap, format);
	vsnprintf(now.text + n, sizeof(now.text) - (size_t)n, format, ap);
	va_end(ap);
	report_end();
	/* Not exit(): what is held here is not worth a leak report, and helpers may be at work. */
	_exit(1);
}

void report_skip(const char *format, ...)
{
	va_list ap;

	now.verdict = SKIPPED;
	va_start(ap, format);
	vsnprintf(now.text, sizeof(now.text), format, ap);
	va_end(ap);
}
