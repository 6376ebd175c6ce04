/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef TOOLS_ASKER_H
#define TOOLS_ASKER_H

/*
 * The side of the file protocol that connects, names a file and grants chunks of memory: what get
 * and put have in common. Blocks until the file has moved, verified, or failed.
 */

#include "tools/file-proto.h"
#include "tools/tool.h"

struct asker;

/* Each returns 0, or a negative errno after it has filled in the failure. */
struct asker_ops {
	/* The server has the file, of this size. */
	int (*opened)(struct asker *a, uint64_t size_bytes);
	/* put: brings a chunk's bytes into memory. */
	int (*fill)(struct asker *a, void *data, uint32_t bytes, uint64_t offset);
	/* get: a chunk has arrived, verified; nobody can reach its memory any more. */
	int (*store)(struct asker *a, const void *data, uint32_t bytes, uint64_t offset);
	/* put: all has been sent. get: all has arrived, and the server is content. */
	int (*last)(struct asker *a);
	/* So many bytes are through. */
	void (*progress)(struct asker *a, uint64_t done_bytes);
};

struct asker_slot {
	enum { SLOT_FREE, SLOT_GRANTING, SLOT_GRANTED, SLOT_REVOKING } state;
	uint32_t chunk, bytes, crc, grant;
};

struct asker {
	/* The caller's, before asker_run(). */
	enum fp_operation operation;
	const char *url;
	const char *path;       /* in the URL, decoded */
	uint64_t size_bytes;    /* put: set by the caller; get: known from `opened` on */
	const struct asker_ops *ops;
	void *owner;

	/* Results. */
	struct failure failure;
	char fabric[64];
	uint32_t chunks;
	uint64_t moving_ns;     /* from PATH to the last RESULT */

	struct asker_private *private;
};

/* 0, or the failure's status. */
int asker_run(struct asker *a, struct xfer_client *client);

/* Prints the closing line or the JSON object. */
void asker_report(const struct asker *a, const struct tool *t, const char *file, bool to_stderr);

#endif
