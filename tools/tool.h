/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef TOOLS_TOOL_H
#define TOOLS_TOOL_H

/* What the commands of xferctl share. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <xferclient.h>

enum { TOOL_OK = 0, TOOL_FAILED = 1, TOOL_USAGE = 2 };

struct tool {
	const char *command; /* "get" */
	const char *socket_path, *admin_socket_path;
	bool admin;          /* the administrators' socket */
	bool json;
	bool verbose;
	/* serve */
	const char *listen;
	bool writable;
	uint64_t clients_max;
	/* serve, get */
	bool sync;
	/* explain */
	const char *op, *local, *remote, *device, *profile;
	/* keys: what is asked; NULL: all */
	bool history;
	const char *buffer, *peer, *session, *uid, *key;
	/* what stands after the options */
	char **arguments;
	int n_arguments;
};

/* The first thing that went wrong; later ones are its consequences. */
struct failure {
	int status; /* 0 = none */
	char text[768];
};

/* Keeps the first. Text of strangers in it is made fit for a terminal. */
__attribute__((format(printf, 3, 4))) void failure_set(struct failure *f, int status,
						       const char *format, ...);

/* The same with the library's last sentence behind "what: ". */
void failure_set_last(struct failure *f, int status, const char *what);

/* The errno to tell the other side of a failure: a code of the library's has none there. */
uint32_t failure_errno(const struct failure *f);

/* "xferctl: COMMAND: …" on standard error. Returns TOOL_FAILED. */
__attribute__((format(printf, 2, 3))) int tool_error(const struct tool *t, const char *format,
						     ...);

/* The same and a hint at --help. Returns TOOL_USAGE. */
__attribute__((format(printf, 2, 3))) int tool_usage(const struct tool *t, const char *format,
						     ...);

/* Connects to the daemon; says what is wrong, and NULL, where that fails. */
struct xfer_client *tool_client(const struct tool *t);

/* "1.5 GiB in 0.52 s, 2.9 GiB/s" */
const char *tool_speed(uint64_t bytes, uint64_t ns, char *buf, size_t size);

int tool_get(const struct tool *t);
int tool_put(const struct tool *t);
int tool_serve(const struct tool *t);
int tool_table(const struct tool *t);
int tool_devices(const struct tool *t);
int tool_keys(const struct tool *t);
int tool_admin(const struct tool *t);
int tool_explain(const struct tool *t);

/* Prints a table that was asked about these arguments. TOOL_OK, or TOOL_FAILED with a sentence. */
int tool_print_answer(const struct tool *t, struct xfer_client *client, const char *table,
		      const char *const *arguments, size_t n_arguments);

#endif
