/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef XD_IO_DAEMON_H
#define XD_IO_DAEMON_H

/* The whole daemon, from its options to its exit status. */

#include <stdbool.h>

/* Read where no --config is given, and may then be missing. */
extern const char *const xd_config_default;

/* Exit statuses. */
enum xd_exit {
	XD_EXIT_OK = 0,
	XD_EXIT_FAILURE = 1, /* it could not start, or not go on */
	XD_EXIT_USAGE = 2,   /* the command line or the configuration is wrong */
};

struct xd_daemon_options {
	const char *config;       /* NULL: the default file, which may be missing */
	const char *socket;       /* NULL: from systemd, or the default path */
	const char *admin_socket; /* the same */
	const char *state_dir;    /* NULL: none; else made where missing, with mode 0700 */
	bool no_devices;          /* leave RDMA devices alone */
};

/*
 * Serves until SIGTERM or SIGINT: then listens no more, lets transfers end for at most the
 * configuration's drain time, and returns; a second such signal ends it at once. SIGHUP reads the
 * configuration again: limits and rules apply to what comes afterwards; a file with errors
 * changes nothing. SIGPIPE is ignored.
 *
 * *ret_stuck: something blocks on in a helper thread (a descriptor that a client passed, most
 * likely): the process must end with _exit(2), which nothing can hold up, rather than tidy up.
 */
enum xd_exit xd_daemon_run(const struct xd_daemon_options *options, bool *ret_stuck);

/* Reads the configuration, and says on stderr what is wrong with it. */
enum xd_exit xd_daemon_check_config(const struct xd_daemon_options *options);

#endif
