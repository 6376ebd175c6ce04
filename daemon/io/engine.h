/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef XD_IO_ENGINE_H
#define XD_IO_ENGINE_H

/*
 * An engine: a thread, its libuv loop, and everything that lives on it. Implements
 * daemon/engine.h.
 *
 * A turn of the loop: timers; prepare (what sessions have for their clients is sent; sleep is
 * forbidden where work is left); sockets; check (the fabrics' progress, and again what that made
 * for clients). So a request that arrives and can be served at once is answered in the turn in
 * which it came.
 */

#include <stdbool.h>
#include <stdint.h>

#include "daemon/engine.h"

struct uv_loop_s;
struct xd_core;
struct xd_logger;

/*
 * Bytes that fabrics may copy in one turn: about 100 µs, so that no client waits long for
 * another's copy.
 */
#define XD_TURN_BYTES (1u << 20)

/*
 * What `conn` is in xd_session_new(), xd_engine_ops.deliver and .session_gone: embedded in a
 * client's connection.
 */
struct xd_link {
	struct xc_list dirty; /* on the engine's list while output waits */
	/*
	 * Send what the session has; outside of any call into the core. Call xd_link_deliver() to
	 * come again next turn.
	 */
	void (*deliver)(struct xd_link *link);
	/* From inside the core: do not call it back. */
	void (*gone)(struct xd_link *link);
};

static inline void xd_link_init(struct xd_link *link, void (*deliver)(struct xd_link *),
				void (*gone)(struct xd_link *))
{
	xc_list_init(&link->dirty);
	link->deliver = deliver;
	link->gone = gone;
}

/* logger may be NULL: no log. 0, or -errno. */
int xd_engine_new(struct xd_logger *logger, struct xd_engine **ret);

extern const struct xd_engine_ops xd_engine_ops;
struct xd_engine_ref xd_engine_ref(struct xd_engine *e);
struct uv_loop_s *xd_engine_loop(struct xd_engine *e);

/*
 * The core whose progress the engine makes, and whose fabrics' descriptors it sleeps on. NULL takes
 * it away. xd_engine_watch: fabrics were added since.
 */
int xd_engine_attach(struct xd_engine *e, struct xd_core *core);
int xd_engine_watch(struct xd_engine *e);

void xd_link_deliver(struct xd_engine *e, struct xd_link *link);

/* Runs until xd_engine_stop() is called, from inside it. */
void xd_engine_run(struct xd_engine *e);
void xd_engine_stop(struct xd_engine *e);
/* One turn; `wait`: sleeps until there is something to do. */
void xd_engine_turn(struct xd_engine *e, bool wait);

/*
 * Ends and frees an engine that has no core and no other handles on its loop than those being
 * closed. Jobs get wait_ms. False: one of them blocks on, the engine is left as it is, and the
 * process should end with _exit(2).
 */
bool xd_engine_free(struct xd_engine *e, uint64_t wait_ms);

#endif
