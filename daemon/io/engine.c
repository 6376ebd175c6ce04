/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "daemon/io/engine.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/random.h>
#include <unistd.h>
#include <uv.h>

#include "common/assert.h"
#include "daemon/core/core.h"
#include "daemon/io/helpers.h"
#include "daemon/io/log.h"
#include "daemon/io/names.h"

/* Timers fired in one turn; the rest waits for the next. */
#define TIMERS_A_TURN 256
#define HELPER_RETRY_NS (UINT64_C(100) * 1000 * 1000)
#define NEVER UINT64_MAX

struct watch {
	struct xd_engine *engine;
	uv_poll_t poll;
	bool used;
};

struct xd_engine {
	uv_loop_t loop;
	uv_prepare_t prepare;
	uv_check_t check;
	uv_idle_t idle; /* active: the loop does not sleep */
	uv_async_t async;
	uv_timer_t timer;
	int open; /* of the handles above and the watches */

	struct xc_heap timers;
	uint64_t armed_ns; /* what `timer` is set to */
	uint64_t fired_ns; /* while timers fire: those up to here do; else 0 */

	struct xc_list dirty;
	struct xd_helpers *helpers;
	struct xd_timer helper_retry;
	struct xd_logger *logger;
	struct xd_core *core;
	struct watch watch[XD_FABRICS_MAX];
	int watched; /* fabrics: the descriptors of those before are waited for */
	bool kicked, more, closing;
};

/* ---- time */

static uint64_t engine_now(struct xd_engine *e)
{
	(void)e;
	return uv_hrtime();
}

static void engine_arm(struct xd_engine *e, struct xd_timer *t, uint64_t deadline_ns)
{
	xc_heap_remove(&e->timers, &t->node);
	/*
	 * Never in the round that is firing: a timer that re-arms itself in the past would keep
	 * it for ever.
	 */
	if (e->fired_ns && deadline_ns <= e->fired_ns)
		deadline_ns = e->fired_ns + 1;
	xc_heap_add(&e->timers, &t->node, deadline_ns);
}

static void engine_disarm(struct xd_engine *e, struct xd_timer *t)
{
	xc_heap_remove(&e->timers, &t->node);
}

static void timer_cb(uv_timer_t *timer)
{
	struct xd_engine *e = timer->data;
	struct xc_heap_node *n;
	int left = TIMERS_A_TURN;

	if (e->closing)
		return;
	e->armed_ns = NEVER;
	e->fired_ns = uv_hrtime();
	while (left-- && (n = xc_heap_first(&e->timers)) && n->key <= e->fired_ns) {
		struct xd_timer *t = xc_container_of(n, struct xd_timer, node);

		xc_heap_remove(&e->timers, n);
		t->fired(t);
	}
	e->fired_ns = 0;
}

/* One uv_timer for all: set once a turn, when the nearest deadline has changed. */
static void set_timer(struct xd_engine *e)
{
	struct xc_heap_node *n = xc_heap_first(&e->timers);
	uint64_t want = n ? n->key : NEVER, now, ms = 0;

	if (want == e->armed_ns)
		return;
	e->armed_ns = want;
	if (!n) {
		uv_timer_stop(&e->timer);
		return;
	}
	uv_update_time(&e->loop);
	now = uv_hrtime();
	if (want > now)
		ms = (want - now + 999999) / 1000000;
	uv_timer_start(&e->timer, timer_cb, ms, 0);
}

/* ---- output for clients */

void xd_link_deliver(struct xd_engine *e, struct xd_link *link)
{
	if (xc_list_empty(&link->dirty))
		xc_list_append(&e->dirty, &link->dirty);
}

static void engine_deliver(struct xd_engine *e, void *conn)
{
	xd_link_deliver(e, conn);
}

static void engine_session_gone(struct xd_engine *e, void *conn)
{
	struct xd_link *link = conn;

	(void)e;
	link->gone(link);
}

static void serve_dirty(struct xd_engine *e)
{
	struct xc_list round;

	/* Those that come again do so in the next turn. */
	xc_list_init(&round);
	if (!xc_list_empty(&e->dirty)) {
		round = e->dirty;
		round.next->prev = round.prev->next = &round;
		xc_list_init(&e->dirty);
	}
	for (struct xc_list *l; (l = xc_list_pop(&round));) {
		struct xd_link *link = xc_container_of(l, struct xd_link, dirty);

		link->deliver(link);
	}
}

/* ---- the turn */

static void idle_cb(uv_idle_t *idle)
{
	(void)idle;
}

static void prepare_cb(uv_prepare_t *prepare)
{
	struct xd_engine *e = prepare->data;

	if (e->closing)
		return;
	serve_dirty(e);
	set_timer(e);
	if (e->kicked || e->more || !xc_list_empty(&e->dirty))
		uv_idle_start(&e->idle, idle_cb);
	else
		uv_idle_stop(&e->idle);
}

static void check_cb(uv_check_t *check)
{
	struct xd_engine *e = check->data;

	if (e->closing)
		return;
	e->kicked = false;
	e->more = e->core && xd_core_progress(e->core, XD_TURN_BYTES);
	serve_dirty(e);
}

static void engine_kick(struct xd_engine *e)
{
	e->kicked = true;
}

/* ---- helpers */

static void wake(void *arg)
{
	struct xd_engine *e = arg;

	uv_async_send(&e->async);
}

static void async_cb(uv_async_t *async)
{
	struct xd_engine *e = async->data;

	if (e->closing)
		return;
	xd_helpers_reap(e->helpers);
}

static void helper_retry(struct xd_timer *t)
{
	struct xd_engine *e = xc_container_of(t, struct xd_engine, helper_retry);

	if (!xd_helpers_retry(e->helpers))
		engine_arm(e, t, engine_now(e) + HELPER_RETRY_NS);
}

static void engine_help(struct xd_engine *e, struct xd_job *job)
{
	if (!xd_helpers_submit(e->helpers, job) && !e->helper_retry.node.queued)
		engine_arm(e, &e->helper_retry, engine_now(e) + HELPER_RETRY_NS);
}

static void engine_close_fd(int fd)
{
	close(fd);
}

/* ---- the rest of the table */

static void engine_random(struct xd_engine *e, void *buf, size_t size)
{
	uint8_t *at = buf;

	(void)e;
	while (size) {
		ssize_t n = getrandom(at, size, 0);

		if (n < 0) {
			/* Keys are made of this: without it there is nothing to go on with. */
			xc_assert(errno == EINTR);
			continue;
		}
		at += n;
		size -= (size_t)n;
	}
}

static void __attribute__((format(printf, 3, 4)))
engine_log(struct xd_engine *e, const struct xd_log *about, const char *format, ...)
{
	va_list ap;

	va_start(ap, format);
	xd_logger_write(e->logger, uv_hrtime(), about, format, ap);
	va_end(ap);
}

static void engine_log_level(struct xd_engine *e, enum xd_priority least)
{
	if (e->logger)
		xd_logger_set_level(e->logger, least);
}

const struct xd_engine_ops xd_engine_ops = {
	.now_ns = engine_now,
	.arm = engine_arm,
	.disarm = engine_disarm,
	.help = engine_help,
	.resolve = xd_resolve,
	.close_fd = engine_close_fd,
	.random = engine_random,
	.deliver = engine_deliver,
	.session_gone = engine_session_gone,
	.kick = engine_kick,
	.log = engine_log,
	.log_level = engine_log_level,
};

struct xd_engine_ref xd_engine_ref(struct xd_engine *e)
{
	return (struct xd_engine_ref){ .engine = e, .ops = &xd_engine_ops };
}

struct uv_loop_s *xd_engine_loop(struct xd_engine *e)
{
	return &e->loop;
}

/* ---- the fabrics' descriptors */

static void closed_cb(uv_handle_t *handle)
{
	struct xd_engine *e = handle->data;

	e->open--;
}

static void watch_closed_cb(uv_handle_t *handle)
{
	struct watch *w = handle->data;

	w->used = false;
	w->engine->open--;
}

static void unwatch(struct watch *w)
{
	if (w->used && !uv_is_closing((uv_handle_t *)&w->poll))
		uv_close((uv_handle_t *)&w->poll, watch_closed_cb);
}

static void watch_cb(uv_poll_t *poll, int status, int events)
{
	struct watch *w = poll->data;
	struct xd_engine *e = w->engine;

	(void)events;
	if (e->closing)
		return;
	/* Readable: the check callback of this turn makes the progress. */
	if (status >= 0)
		return;
	/*
	 * POLLERR, for which libuv says UV_EBADF: the device is gone. The fabric finds out by
	 * itself in its progress; polled on, the descriptor would keep the loop from ever
	 * sleeping.
	 */
	engine_log(e, &(struct xd_log){ .priority = XD_ERR },
		   "A fabric's descriptor failed (%s): it is no longer waited for.",
		   uv_strerror(status));
	unwatch(w);
	e->kicked = true;
}

static int watch_fd(struct xd_engine *e, struct watch *w, int fd)
{
	int r;

	xc_assert(!w->used);
	r = uv_poll_init(&e->loop, &w->poll, fd);
	if (r < 0)
		return r; /* libuv's errors are negated errno here */
	w->engine = e;
	w->used = true;
	w->poll.data = w;
	e->open++;
	return uv_poll_start(&w->poll, UV_READABLE, watch_cb);
}

int xd_engine_watch(struct xd_engine *e)
{
	int fds[XD_FABRICS_MAX], n = xd_core_fds(e->core, fds), r;

	e->kicked = true;
	for (; e->watched < n; e->watched++) {
		if (fds[e->watched] < 0)
			continue;
		r = watch_fd(e, &e->watch[e->watched], fds[e->watched]);
		if (r < 0)
			return r;
	}
	return 0;
}

int xd_engine_attach(struct xd_engine *e, struct xd_core *core)
{
	for (int i = 0; i < XD_FABRICS_MAX; i++)
		unwatch(&e->watch[i]);
	e->watched = 0;
	e->core = core;
	return core ? xd_engine_watch(e) : 0;
}

/* ---- life */

static void open_handle(struct xd_engine *e, uv_handle_t *handle)
{
	handle->data = e;
	e->open++;
}

int xd_engine_new(struct xd_logger *logger, struct xd_engine **ret)
{
	struct xd_engine *e = calloc(1, sizeof(*e));
	int r;

	if (!e)
		return -ENOMEM;
	r = uv_loop_init(&e->loop);
	if (r < 0)
		goto free_engine;
	r = xd_helpers_new(wake, e, &e->helpers);
	if (r < 0)
		goto close_loop;
	r = uv_async_init(&e->loop, &e->async, async_cb);
	if (r < 0)
		goto stop_helpers;
	open_handle(e, (uv_handle_t *)&e->async);
	/* These cannot fail. */
	uv_prepare_init(&e->loop, &e->prepare);
	open_handle(e, (uv_handle_t *)&e->prepare);
	uv_check_init(&e->loop, &e->check);
	open_handle(e, (uv_handle_t *)&e->check);
	uv_idle_init(&e->loop, &e->idle);
	open_handle(e, (uv_handle_t *)&e->idle);
	uv_timer_init(&e->loop, &e->timer);
	open_handle(e, (uv_handle_t *)&e->timer);
	uv_prepare_start(&e->prepare, prepare_cb);
	uv_check_start(&e->check, check_cb);
	e->armed_ns = NEVER;
	e->helper_retry.fired = helper_retry;
	e->logger = logger;
	xc_list_init(&e->dirty);
	*ret = e;
	return 0;

stop_helpers:
	xd_helpers_stop(e->helpers, 0);
close_loop:
	uv_loop_close(&e->loop);
free_engine:
	free(e);
	return r;
}

void xd_engine_run(struct xd_engine *e)
{
	uv_run(&e->loop, UV_RUN_DEFAULT);
}

void xd_engine_stop(struct xd_engine *e)
{
	uv_stop(&e->loop);
}

void xd_engine_turn(struct xd_engine *e, bool wait)
{
	uv_run(&e->loop, wait ? UV_RUN_ONCE : UV_RUN_NOWAIT);
}

static void deadline_fired(struct xd_timer *t)
{
	t->fired = NULL;
}

/* What jobs still owe: their `done` may submit others, so the loop goes on until none is left. */
static void finish_jobs(struct xd_engine *e, uint64_t wait_ms)
{
	struct xd_timer deadline = { .fired = deadline_fired };

	engine_arm(e, &deadline, engine_now(e) + wait_ms * 1000000);
	while (deadline.fired && xd_helpers_pending(e->helpers))
		xd_engine_turn(e, true);
	engine_disarm(e, &deadline);
}

bool xd_engine_free(struct xd_engine *e, uint64_t wait_ms)
{
	xc_assert(!e->core);
	finish_jobs(e, wait_ms);
	if (xd_helpers_pending(e->helpers) || !xd_helpers_stop(e->helpers, wait_ms))
		return false;
	e->closing = true;
	engine_disarm(e, &e->helper_retry);
	uv_close((uv_handle_t *)&e->async, closed_cb);
	uv_close((uv_handle_t *)&e->prepare, closed_cb);
	uv_close((uv_handle_t *)&e->check, closed_cb);
	uv_close((uv_handle_t *)&e->idle, closed_cb);
	uv_close((uv_handle_t *)&e->timer, closed_cb);
	uv_run(&e->loop, UV_RUN_DEFAULT);
	xc_assert(e->open == 0 && uv_loop_close(&e->loop) == 0);
	free(e);
	return true;
}
