/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef TOOLS_SERVED_H
#define TOOLS_SERVED_H

/*
 * The side of the file protocol that listens: one connection of `xferctl serve`. It moves the bytes
 * and trusts nothing that the other side says. What it holds for a peer is bounded (8 MiB for
 * chunks, less for small files, and 84 KiB for messages), and so is the time that it waits for one.
 *
 * Reading and writing files blocks the server, a chunk of 1 MiB at most at a time; a peer that
 * stalls blocks nobody.
 */

#include "tools/link.h"
#include "tools/store.h"
#include "tools/tool.h"

#include "common/list.h"

struct server {
	const struct tool *tool;
	struct xfer_client *client;
	struct xfer_listener *listener;
	int root;
	struct xc_list served; /* struct served.at */
	unsigned int count;
	bool stopping;
	bool daemon_gone;
};

enum served_state {
	SERVED_ANSWERING, /* the endpoint is not ready yet */
	SERVED_ACCEPTING,
	SERVED_PATH,      /* connected; the path must come */
	SERVED_MOVING,
	SERVED_CLOSING,   /* all is said; the peer disconnects */
	SERVED_GONE       /* to be freed */
};

struct served_slot {
	bool moving;   /* its READ or WRITE has not completed */
	bool waiting;  /* `next` came while the slot was in use */
	bool arrived;  /* put: verified and written; its DONE waits for its turn */
	struct fp_grant now, next;
};

struct served {
	struct link link;
	struct xc_list at;
	struct server *server;
	enum served_state state;
	uint64_t deadline_ns, started_ns;
	char peer[80];
	int64_t peer_uid;
	enum fp_operation operation;
	bool invalidate;
	bool told;      /* our RESULT is on its way */
	bool succeeded;
	bool reported;
	struct failure failure;

	char path[FP_PATH_MAX + 1];
	struct store_source source;
	struct store_temp temp;
	uint64_t size_bytes;
	uint32_t chunks, granted, done;
	struct xfer_buf *data;
	struct served_slot slots[FP_DEPTH];
};

/* Answers an XFER_EVENT_CONNECT_REQUEST: with a new connection, or a rejection that says why. */
void served_new(struct server *server, const struct xfer_event *request);

/* An event of the connection whose link is the event's context. */
void served_event(struct served *s, const struct xfer_event *event);

/* Posts what waits; true: some waits still. */
bool served_pump(struct served *s);

void served_check_deadline(struct served *s, uint64_t now_ns);

/* The server stops: who has not begun goes at once; with `abort` the rest is told and goes too. */
void served_stop(struct served *s, bool abort);

/* Frees it in whatever state, with a line in the log if a transfer ends by that. */
void served_free(struct served *s);

static inline struct served *served_of_link(struct link *l)
{
	return xc_container_of(l, struct served, link);
}

#endif
