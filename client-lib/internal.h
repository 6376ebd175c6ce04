/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef CL_INTERNAL_H
#define CL_INTERNAL_H

/*
 * What the files of the library share. Names of the library's inside begin with cl_; the symbol map
 * keeps them there.
 *
 * One mutex per client guards everything that hangs off it. It is never held across poll(2): a
 * thread that waits takes the reader's part (there is one at a time), sleeps without the lock, and
 * then handles what came on behalf of all; the others wait on the condition.
 */

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "client-lib/xferclient.h"
#include "common/list.h"
#include "proto/client.pb-c.h"
#include "proto/errors.h"
#include "proto/fdmsg.h"
#include "proto/ring.h"

#define CL_PROTOCOL_MAJOR 1
#define CL_PROTOCOL_MINOR 0

#define CL_TEXT_MAX 256
#define CL_BUFFER_BYTES_MAX (UINT64_C(1) << 40)
#define CL_NO_DEADLINE INT64_MAX

/* ---- errors (error.c) */

/* Notes a failure of the calling thread and returns its status. */
int cl_fail(int status, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* ---- fork (fork.c) */

/* The process's number, other than 0 and other than its parent's. 0 or -ENOMEM. */
int cl_epoch_get(uint32_t *ret_epoch);
/* Is this the process that got that number? No system call. */
bool cl_epoch_is(uint32_t epoch);

/* ---- numbers: objects by the daemon's numbers (numbers.c) */

struct cl_number;
struct cl_numbers {
	struct cl_number *at;
	size_t n, room;
};

int cl_numbers_add(struct cl_numbers *t, uint32_t number, void *object); /* -EEXIST, -ENOMEM */
void *cl_numbers_get(const struct cl_numbers *t, uint32_t number);
void cl_numbers_remove(struct cl_numbers *t, uint32_t number);
void cl_numbers_done(struct cl_numbers *t);

/* ---- the arena that messages are decoded into (arena.c) */

/*
 * A bump allocator that is reset before each message. It grows to what messages need, so that a
 * warm client decodes without malloc(3), and gives out at most CL_ARENA_BYTES_MAX for one message.
 */
struct cl_arena {
	ProtobufCAllocator allocator;
	uint8_t *block;
	size_t room, used;
	size_t wanted;   /* by this message, in all */
	void **overflow; /* what did not fit: malloc'ed, each begins with a pointer to the next */
};
#define CL_ARENA_BYTES_MAX (16u << 20)

void cl_arena_init(struct cl_arena *a);
void cl_arena_reset(struct cl_arena *a);
void cl_arena_done(struct cl_arena *a);

/* ---- requests that have not ended (request.c) */

/* Where carried bytes go when the transfer has ended: user memory behind a piece of the chunk. */
struct cl_piece {
	void *user;
	uint64_t chunk_offset;
	uint64_t position; /* in the transfer */
	uint64_t bytes;
};

struct cl_carry_block;

/* A piece of carried memory. block NULL: none. */
struct cl_chunk {
	struct cl_carry_block *block;
	uint64_t offset, bytes;
};

struct cl_request {
	struct xfer_ep *ep; /* NULL: its endpoint is gone, the end is of interest to nobody */
	uint64_t wr_id;
	uint32_t generation;
	uint32_t next_free; /* index + 1 */
	uint8_t opcode;
	bool used;
	bool quiet; /* success is not told */
	uint32_t n_pieces;
	struct cl_chunk chunk;
	struct cl_piece few[2];
	struct cl_piece *many; /* where n_pieces is more */
};

struct cl_requests {
	struct cl_request *at;
	uint32_t room, used;
	uint32_t max; /* at once */
	uint32_t free_first;
};

/* The request's cookie names it until it has ended, and then nothing. 0, -EAGAIN (max), -ENOMEM. */
int cl_request_new(struct cl_requests *t, struct cl_request **ret, uint64_t *ret_cookie);
struct cl_request *cl_request_get(struct cl_requests *t, uint64_t cookie);
int cl_request_set_pieces(struct cl_request *r, const struct cl_piece *pieces, uint32_t n);
const struct cl_piece *cl_request_pieces(const struct cl_request *r);
void cl_request_put(struct cl_requests *t, struct cl_request *r);
void cl_requests_done(struct cl_requests *t);

/* Cookies of QUIET requests that are in no table: their end is told by the daemon or not at all. */
#define CL_COOKIE_UNTRACKED (UINT64_C(1) << 63)

/* ---- carried memory (carry.c) */

struct cl_carry {
	struct xc_list blocks;
	uint64_t bytes, bytes_max; /* of all blocks */
};

void cl_carry_init(struct cl_carry *carry, uint64_t bytes_max);
/* 0, or -EAGAIN where no block has room. Never blocks. */
int cl_carry_take(struct cl_carry *carry, uint64_t bytes, struct cl_chunk *ret);
void cl_carry_give(struct cl_carry *carry, struct cl_chunk *chunk);
uint8_t *cl_chunk_data(const struct cl_chunk *chunk);
uint32_t cl_chunk_buffer(const struct cl_chunk *chunk);
/*
 * Makes room for a chunk of that size: adds a block, and takes idle ones back first where the
 * limit demands it. Round trips: the lock is released meanwhile. 0: try again; -EAGAIN: in use;
 * -EMSGSIZE: larger than the limit; or what the daemon says.
 */
int cl_carry_grow(struct xfer_client *c, uint64_t bytes);
void cl_carry_done(struct xfer_client *c);

/* ---- buffers (buffer.c) */

/* A memory file with its mapping. */
struct cl_memory {
	uint8_t *data;
	uint64_t bytes;     /* of the file */
	uint64_t map_bytes; /* of the mapping */
};

struct xfer_buf {
	struct xfer_client *client;
	struct xc_list link;
	struct cl_memory memory;
	uint32_t number;
};

/* Buffers by address. */
struct cl_buffers {
	struct xc_list all;
	struct xfer_buf **by_address;
	size_t n, room, last;
};

/* Makes memory, adds it to the daemon. The lock is held, and released meanwhile. */
int cl_memory_new(struct xfer_client *c, uint64_t bytes, unsigned int flags,
		  struct cl_memory *ret_memory, uint32_t *ret_number);
void cl_memory_unmap(struct cl_memory *m);
int cl_memory_remove(struct xfer_client *c, uint32_t number);
/* The buffer that holds the address; else NULL, and *ret_next is where the next one begins. */
struct xfer_buf *cl_buffer_find(struct cl_buffers *t, uintptr_t address, uintptr_t *ret_next);
void cl_buffers_done(struct xfer_client *c);

/* ---- endpoints, listeners (endpoint.c, listener.c) */

struct xfer_ep {
	struct xfer_client *client;
	struct xc_list link;
	void *context;
	uint32_t number;
	bool ready, connected; /* was reached with success */
	bool ended;            /* failed or disconnected: `status` says how */
	int status;
	char text[CL_TEXT_MAX];
	struct xfer_ep_info info;
};

struct xfer_listener {
	struct xfer_client *client;
	struct xc_list link;
	void *context;
	uint32_t number;
	char address[80];
};

/* ---- events that wait for xfer_poll() (event.c) */

/* What only some events have. */
struct cl_event_more {
	size_t private_data_bytes;
	uint8_t private_data[256];
	char peer_address[80];
	char text[CL_TEXT_MAX];
};

struct cl_event {
	enum xfer_event_type type;
	int status;
	struct xfer_ep *ep;
	struct xfer_listener *listener;
	uint64_t wr_id, byte_len;
	uint64_t request;
	int64_t peer_uid;
	struct xfer_token token;
	uint32_t grant, immediate, flags;
	uint8_t opcode;
	struct cl_event_more *more;
};

/* A queue in a ring that only grows. */
struct cl_events {
	struct cl_event *at;
	size_t first, n, room;
};

/* Room for n more than there are. */
int cl_events_reserve(struct cl_events *q, size_t n);
/* Takes `more` over, also where it fails with -ENOMEM. */
int cl_event_push(struct xfer_client *c, const struct cl_event *e);
struct cl_event_more *cl_event_more_new(const char *text);
/* Drops what belongs to an object that is freed. */
void cl_events_drop(struct cl_events *q, const struct xfer_ep *ep,
		    const struct xfer_listener *listener);
void cl_events_done(struct cl_events *q);
/* Room for the end of everything that is under way. */
int cl_events_reserve_ends(struct xfer_client *c);
void cl_bell_ring(struct xfer_client *c);

/* ---- what goes out (wire.c) */

/* Requests that go out in one packet. */
#define CL_BATCH_HEAD 16 /* room for what stands before them */
struct cl_batch {
	uint8_t packet[XP_PACKET_BYTES_MAX];
	size_t used; /* bytes of requests, from CL_BATCH_HEAD on */
};

/*
 * Appends a request with its segments (none where request->list_buffer is set). -EAGAIN: the batch
 * is full and the socket too.
 */
int cl_batch_add(struct xfer_client *c, const struct xp_request *request,
		 const struct xp_segment *segments);
/* Sends what waits. 0, -EAGAIN (the rest goes when the socket takes it), -XFER_E_DAEMON_GONE. */
int cl_batch_flush(struct xfer_client *c);
/* Has the reader look for room in the socket. */
void cl_want_out(struct xfer_client *c, bool want);

/* ---- round trips (call.c) */

struct cl_call {
	struct xc_list link;
	uint64_t serial;
	bool done;
	int status;
	uint32_t number;
	char address[80];
	char text[CL_TEXT_MAX];
	/* Called by the reader on success, before any later message is looked at. May be NULL. */
	int (*made)(struct cl_call *call, struct xfer_client *c);
	/* For a query: each part. */
	int (*part)(struct cl_call *call, const Xp__QueryReply *reply);
	void *object;
};

/*
 * Sends a message (with a descriptor, or -1) and waits for its answer. The lock is held, and
 * released meanwhile. Returns the answer's status, with its sentence as the thread's last error
 * prefixed by `what`; -ETIMEDOUT after the client's time-out and extra_ms; -XFER_E_DAEMON_GONE.
 */
int cl_call(struct xfer_client *c, Xp__ClientMessage *message, int fd, struct cl_call *call,
	    uint64_t extra_ms, const char *what);
/* Sleeps until something happens or the deadline is over. Spurious returns are fine. -EINTR. */
int cl_wait(struct xfer_client *c, int64_t deadline_ns);
int64_t cl_deadline(int64_t timeout_ms);
bool cl_expired(int64_t deadline_ns);

/* ---- what comes in (receive.c) */

/* Receives until the socket is empty or max events wait. Never blocks. */
void cl_receive(struct xfer_client *c, size_t max);
/* The daemon is gone: ends everything, once. */
void cl_gone(struct xfer_client *c, int status, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

/* ---- addresses (url.c) */

struct cl_address {
	char host[256];
	char require[64];
	uint16_t port;
};

/* "xfer://HOST[:PORT][/…][?require=…]"; where `bare`, also "HOST[:PORT]". -EINVAL, and why. */
int cl_address_parse(const char *text, bool bare, struct cl_address *ret);

/* ---- client */

struct xfer_client {
	pthread_mutex_t lock;
	pthread_cond_t cond;
	uint32_t epoch;
	uint32_t timeout_ms;

	int sock;
	int kick; /* eventfd: wakes the reader, where what it looks for has changed */
	bool reading, kicked, want_out;
	bool send_failed; /* the daemon takes nothing more: its last words are still to be read */
	unsigned int waiting; /* threads on the condition */

	/* For foreign loops, made at the first xfer_client_fd(). */
	int epoll, bell;
	bool armed, rung;

	bool gone;
	int gone_status;
	char gone_text[CL_TEXT_MAX];

	uint64_t serial, cookie;
	struct xc_list calls;
	struct cl_batch batch;
	struct cl_requests requests;
	struct cl_events events;
	struct cl_arena arena;
	struct cl_buffers buffers;
	struct cl_carry carry;
	struct xc_list eps, listeners;
	struct cl_numbers ep_numbers, listener_numbers;
	size_t n_eps;

	/* Of the post under way. */
	struct xp_segment *segments;
	struct cl_piece *pieces;
	size_t room_segments, room_pieces;

	char daemon_version[64];
	uint8_t packet[XP_PACKET_BYTES_MAX];
};

/*
 * Every public function begins with this: 0 with the lock held, or -ECHILD. A NULL client is the
 * caller's bug and is told as -EINVAL.
 */
int cl_enter(struct xfer_client *c);
static inline int cl_leave(struct xfer_client *c, int status)
{
	pthread_mutex_unlock(&c->lock);
	return status;
}
/* -XFER_E_DAEMON_GONE with its sentence, or 0. */
int cl_alive(const struct xfer_client *c);
/* A client on a connected socket, which it takes over; the first thing it says is hello. */
int cl_client_new(int sock, const struct xfer_client_options *options,
		  struct xfer_client **ret_client);

/* Copies an option struct of the caller's version over defaults. -EINVAL where it is newer. */
int cl_options_copy(void *to, size_t to_size, const void *from, const char *what);

#endif
