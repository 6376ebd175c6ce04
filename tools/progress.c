/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "tools/progress.h"

#include "common/checked.h"
#include "common/units.h"
#include "tools/text.h"

#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#define NS_PER_S 1000000000ull
#define DRAW_EVERY_NS (NS_PER_S / 10)

uint64_t progress_now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * NS_PER_S + (uint64_t)t.tv_nsec;
}

void progress_begin(struct progress *p, const char *name, uint64_t total_bytes, uint64_t now_ns)
{
	*p = (struct progress){
		.shown = isatty(STDERR_FILENO) == 1,
		.total_bytes = total_bytes,
		.started_ns = now_ns,
		.last_ns = now_ns,
	};
	snprintf(p->name, sizeof(p->name), "%s", name);
	text_clean(p->name);
}

static unsigned int terminal_columns(void)
{
	struct winsize size;

	if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) < 0 || size.ws_col == 0)
		return 80;
	return size.ws_col;
}

static void format_left(const struct progress *p, uint64_t done_bytes, char *buf, size_t size)
{
	double s = p->rate > 0 ? (double)(p->total_bytes - done_bytes) / p->rate : -1;

	if (s < 0 || s >= 360000)
		snprintf(buf, size, "--:--");
	else if (s >= 3600)
		snprintf(buf, size, "%u:%02u:%02u", (unsigned int)s / 3600,
			 (unsigned int)s / 60 % 60, (unsigned int)s % 60);
	else
		snprintf(buf, size, "%02u:%02u", (unsigned int)s / 60, (unsigned int)s % 60);
}

static void format_bar(char *bar, unsigned int width, double part)
{
	unsigned int full = (unsigned int)(part * width);

	memset(bar, '-', width);
	memset(bar, '#', full < width ? full : width);
	bar[width] = '\0';
}

void progress_line(const struct progress *p, uint64_t done_bytes, unsigned int columns,
		   char line[static PROGRESS_LINE_MAX])
{
	double part = p->total_bytes ? (double)done_bytes / (double)p->total_bytes : 1;
	char size[32], rate[32], left[32], bar[61], figures[160];
	unsigned int room;
	int n;

	columns = xc_min_u32(columns, 200);
	format_left(p, done_bytes, left, sizeof(left));
	n = snprintf(figures, sizeof(figures), "%3u%%  %s  %s/s  %s left",
		     (unsigned int)(part * 100), xc_size_format(done_bytes, size, sizeof(size)),
		     xc_size_format((uint64_t)p->rate, rate, sizeof(rate)), left);
	/*
	 * The name, a bar of what room is left, the figures; of a narrow terminal the figures
	 * alone.
	 */
	room = (unsigned int)(n + 24) < columns ? columns - (unsigned int)n - 4 : 0;
	if (room < 20) {
		snprintf(line, PROGRESS_LINE_MAX, "%.*s", (int)columns, figures);
		return;
	}
	format_bar(bar, xc_min_u32(room / 2, 60), part);
	snprintf(line, PROGRESS_LINE_MAX, "%.*s [%s] %s", (int)(room - room / 2 - 2), p->name, bar,
		 figures);
}

void progress_update(struct progress *p, uint64_t done_bytes, uint64_t now_ns)
{
	char line[PROGRESS_LINE_MAX];
	double rate;

	if (!p->shown || now_ns - p->last_ns < DRAW_EVERY_NS)
		return;
	rate = (double)(done_bytes - p->last_bytes) * NS_PER_S / (double)(now_ns - p->last_ns);
	p->rate = p->rate > 0 ? 0.8 * p->rate + 0.2 * rate : rate;
	p->last_ns = now_ns;
	p->last_bytes = done_bytes;
	p->drawn = true;
	/* One column stays free: a full line makes some terminals wrap. */
	progress_line(p, done_bytes, terminal_columns() - 1, line);
	fprintf(stderr, "\r%s\033[K", line);
	fflush(stderr);
}

void progress_end(struct progress *p)
{
	if (p->drawn)
		fprintf(stderr, "\r\033[K");
	p->drawn = false;
}
