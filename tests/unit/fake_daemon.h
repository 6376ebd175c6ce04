/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef TEST_FAKE_DAEMON_H
#define TEST_FAKE_DAEMON_H

/*
 * The daemon's half of the client protocol, as tests of the library see it: a thread on the other
 * end of a socketpair that answers everything with success, keeps what it was told for the test to
 * look at, and does what the test says in between.
 */

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "client-lib/internal.h"

#define FAKE_REQUESTS 4096
#define FAKE_SEGMENTS 16384
#define FAKE_BUFFERS 256

struct fake_buffer {
	uint32_t number;
	uint8_t *data;
	uint64_t bytes;
	int seals; /* when it came */
	bool removed;
};

struct fake_request {
	uint32_t opcode, flags, endpoint, key, list_buffer;
	uint64_t wr_id, cookie, argument;
	uint32_t n_local, n_remote;
	const struct xp_segment *local, *remote; /* as sent, by reference or inline */
};

struct fake {
	int sock;      /* the daemon's end */
	int peer;      /* the library's, until it takes it */
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t cond;
	/* What it answers. */
	uint32_t major, minor;
	uint32_t requests_max;
	uint32_t max_segments;
	int reply_status;          /* of all Replies but Hello's */
	unsigned int mute;         /* bit n: no answer to body case n */
	bool complete;             /* requests at once, with success */
	bool paused, rests;        /* shall read nothing; reads nothing */
	bool ended;
	/* What it was told. */
	char name[128];
	unsigned int seen[32];     /* messages by body case */
	unsigned int packets_submit;
	struct fake_buffer buffers[FAKE_BUFFERS];
	size_t n_buffers;
	struct fake_request requests[FAKE_REQUESTS];
	size_t n_requests;
	struct xp_segment segments[FAKE_SEGMENTS];
	size_t n_segments;
	uint32_t next_number;
};

void fake_init(struct fake *f);
void fake_start(struct fake *f);
/* Ends the thread and closes its end. The library sees an end of file. Twice is harmless. */
void fake_stop(struct fake *f);
void fake_done(struct fake *f);

/* A client of it that has said hello. options may be NULL. */
int fake_client(struct fake *f, const struct xfer_client_options *options,
		struct xfer_client **ret);

/* Changes what it answers while it runs. */
#define fake_set(f, field, value)                                                                  \
	do {                                                                                       \
		pthread_mutex_lock(&(f)->lock);                                                    \
		(f)->field = (value);                                                              \
		pthread_mutex_unlock(&(f)->lock);                                                  \
	} while (0)

void fake_say(struct fake *f, const Xp__DaemonMessage *m);
void fake_say_raw(struct fake *f, const void *bytes, size_t size);
void fake_say_ready(struct fake *f, uint32_t endpoint, int status);
void fake_say_connected(struct fake *f, uint32_t endpoint, int status, const char *private_data);
void fake_say_disconnected(struct fake *f, uint32_t endpoint, int status);
void fake_say_goodbye(struct fake *f, int status, const char *text);
void fake_say_completion(struct fake *f, const struct fake_request *r, int status,
			 uint64_t byte_len);

/* Waits (bounded) until so many requests, or messages of a kind, have come. */
void fake_wait_requests(struct fake *f, size_t n);
void fake_wait_seen(struct fake *f, unsigned int body_case, unsigned int n);
void fake_pause(struct fake *f, bool paused);
struct fake_buffer *fake_buffer(struct fake *f, uint32_t number);
uint8_t *fake_memory(struct fake *f, const struct xp_segment *local);

/* An endpoint that is ready, or connected. */
struct xfer_ep *fake_ep(struct fake *f, struct xfer_client *c, bool connected);

/* The library's sentence about the last failure of this thread, and what must be in it. */
const char *sentence(void);

#define assert_sentence(part)                                                                      \
	do {                                                                                       \
		if (!strstr(sentence(), part))                                                     \
			fail_msg("\"%s\" is not in \"%s\"", part, sentence());                     \
	} while (0)

#define refused(call, status, part)                                                                \
	do {                                                                                       \
		assert_int_equal(call, status);                                                    \
		assert_sentence(part);                                                             \
	} while (0)

#endif
