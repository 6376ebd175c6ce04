/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef XD_IO_LOG_H
#define XD_IO_LOG_H

/*
 * Where log entries go. To the journal, with fields (XFER_SESSION, XFER_CLIENT_UID,
 * XFER_ENDPOINT, XFER_DEVICE, MESSAGE_ID), where stderr is connected to it (sd_journal_send(3),
 * $JOURNAL_STREAM in systemd.exec(5)); as "<N>sentence" on stderr where that is a pipe or a file
 * (sd-daemon(3)); as a plain sentence where it is a terminal.
 *
 * Entries that a client causes are bounded per uid: what exceeds the bound is counted, and the
 * count is told.
 */

#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>

#include "daemon/engine.h"

#define XD_LOG_TEXT_MAX 1024
/* Entries that one uid may cause in one window. */
#define XD_LOG_BURST 20
#define XD_LOG_WINDOW_NS (UINT64_C(10) * 1000 * 1000 * 1000)

enum xd_log_target { XD_LOG_AUTO, XD_LOG_JOURNAL, XD_LOG_PREFIXED, XD_LOG_PLAIN };

struct xd_logger;

/* 0 or -ENOMEM. */
int xd_logger_new(enum xd_log_target target, struct xd_logger **ret);
void xd_logger_free(struct xd_logger *l);

/* Entries of a lower urgency than this are dropped; XD_INFO at first. */
void xd_logger_set_level(struct xd_logger *l, enum xd_priority least);

/*
 * l may be NULL: nothing is written. about may be NULL: an XD_INFO entry about nothing in
 * particular.
 */
void xd_logger_write(struct xd_logger *l, uint64_t now_ns, const struct xd_log *about,
		     const char *format, va_list ap) __attribute__((format(printf, 4, 0)));
void xd_logger_say(struct xd_logger *l, enum xd_priority priority, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

/* For tests: takes each line instead of stderr. */
void xd_logger_capture(struct xd_logger *l, void (*line)(void *arg, const char *text), void *arg);

#endif
