/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef XD_IO_PROCESS_H
#define XD_IO_PROCESS_H

/* What the daemon asks of the system for its whole process, before there is a second thread. */

#include "daemon/io/log.h"

/*
 * SIGPIPE is ignored. The limit of descriptors is raised as far as it goes: each client takes
 * two. Memory that is shared with clients is kept out of core dumps: it is theirs, and large. The
 * daemon's own memory stays in: without it a crash says nothing. Where the system cannot be told
 * so, there are no core dumps at all.
 */
void xd_process_prepare(struct xd_logger *logger);

/* Makes the state directory where it is missing. path may be NULL. 0 or -errno, logged. */
int xd_process_state_dir(struct xd_logger *logger, const char *path);

#endif
