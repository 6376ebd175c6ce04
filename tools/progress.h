/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef TOOLS_PROGRESS_H
#define TOOLS_PROGRESS_H

/* A progress bar on standard error, if that is a terminal: per cent, size, rate, time left. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct progress {
	bool shown;          /* standard error is a terminal */
	bool drawn;
	char name[64];
	uint64_t total_bytes;
	uint64_t started_ns;
	uint64_t last_ns;    /* of the last drawing */
	uint64_t last_bytes;
	double rate;         /* bytes a second, smoothed */
};

#define PROGRESS_LINE_MAX 512

uint64_t progress_now_ns(void);

void progress_begin(struct progress *p, const char *name, uint64_t total_bytes, uint64_t now_ns);

/* Draws at most ten times a second. */
void progress_update(struct progress *p, uint64_t done_bytes, uint64_t now_ns);

/* Takes the bar away; for a line in its place. */
void progress_end(struct progress *p);

/* The line itself, at most `columns` wide. */
void progress_line(const struct progress *p, uint64_t done_bytes, unsigned int columns,
		   char line[static PROGRESS_LINE_MAX]);

#endif
