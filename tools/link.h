/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef TOOLS_LINK_H
#define TOOLS_LINK_H

/*
 * One connection of the file protocol as both sides need it: an endpoint, memory for its messages,
 * RECVs that are posted anew before the message is looked at, and posts that keep their order when
 * the daemon takes no more for the moment (-EAGAIN): what cannot be posted waits in a queue until
 * link_pump().
 */

#include "tools/file-proto.h"

#include <xferclient.h>

enum link_kind { LINK_RECV = 1, LINK_SEND, LINK_READ, LINK_WRITE, LINK_GRANT, LINK_REVOKE };

/* Each message out has a place of its own: one for each chunk in flight, and two more. */
#define LINK_SEND_OPEN FP_DEPTH         /* PATH or OPENED */
#define LINK_SEND_RESULT (FP_DEPTH + 1)
#define LINK_SENDS (FP_DEPTH + 2)

/* RECVs, SENDs, and for each chunk a READ or WRITE or GRANT or REVOKE. */
#define LINK_QUEUE 64

struct link;

struct link_ops {
	/* ended_grant: the grant that the message ended, 0 = none */
	void (*message)(struct link *l, const struct fp_message *m, uint32_t ended_grant);
	/* A post has ended well, or a REVOKE in whatever way. Not for RECVs. */
	void (*completed)(struct link *l, enum link_kind kind, unsigned int slot,
			  const struct xfer_event *event);
	/* The connection can no longer be used; called once. */
	void (*broken)(struct link *l, int status, const char *text);
};

struct link_post {
	enum link_kind kind;
	unsigned int slot;
	void *data;
	uint32_t bytes;
	unsigned int access;     /* GRANT */
	uint32_t number;         /* REVOKE: the grant; SEND: rkey to end */
	bool invalidate;         /* SEND */
	struct xfer_token token; /* READ, WRITE */
};

struct link {
	struct xfer_client *client;
	struct xfer_ep *ep;        /* its context is the link */
	struct xfer_buf *messages;
	const struct link_ops *ops;
	bool is_broken;
	unsigned int sending;      /* bit set of slots whose SEND has not completed */
	unsigned int first, count; /* of the queue */
	struct link_post queue[LINK_QUEUE];
};

/* Memory for the messages. One round trip. The endpoint is set by the caller. */
int link_init(struct link *l, struct xfer_client *client, const struct link_ops *ops);

/* Ends the connection and frees endpoint and memory. Harmless on a link of zeros. Round trips. */
void link_done(struct link *l);

/* Posts all RECVs; the endpoint is ready and not connected. */
void link_post_recvs(struct link *l);

/* The slot must not be sending. rkey is ended at the peer if `invalidate`. */
void link_send(struct link *l, unsigned int slot, const struct fp_message *m, bool invalidate,
	       uint32_t rkey);
static inline bool link_is_sending(const struct link *l, unsigned int slot)
{
	return l->sending >> slot & 1;
}

void link_read(struct link *l, unsigned int slot, void *data, uint32_t bytes,
	       const struct xfer_token *token);
void link_write(struct link *l, unsigned int slot, void *data, uint32_t bytes,
		const struct xfer_token *token);
void link_grant(struct link *l, unsigned int slot, void *data, uint32_t bytes, unsigned int access);
void link_revoke(struct link *l, unsigned int slot, uint32_t grant);

/* Hands on what waits. True: something waits still; poll and try again. */
bool link_pump(struct link *l);

/* An XFER_EVENT_COMPLETION of this link. */
void link_completion(struct link *l, const struct xfer_event *event);

/* Calls ops->broken, the first time. text may be "". */
void link_break(struct link *l, int status, const char *text);

#endif
