/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "tests/fabric/engine.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include "common/assert.h"
#include "common/checked.h"
#include "daemon/io/helpers.h"

#define TURN_BYTES (UINT64_C(1) << 20)
#define MS UINT64_C(1000000)
/* More than the helpers have of any kind. */
#define STAFF_JOBS 24

struct watched {
	struct fabric_ref ref;
	void (*polled)(struct fabric *f, const struct ibv_wc *wc);
	bool ready, more;
};

struct xd_engine {
	int epoll, wake_fd;
	struct xc_heap timers;
	struct xd_helpers *helpers;
	struct watched watched[ENGINE_FABRICS];
	bool kicked, in_progress, verbose;
	uint64_t asked;
};

/* ---- the table */

uint64_t engine_now(struct xd_engine *e)
{
	struct timespec t;

	(void)e;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000 * MS + (uint64_t)t.tv_nsec;
}

static void engine_arm(struct xd_engine *e, struct xd_timer *t, uint64_t deadline_ns)
{
	xc_heap_remove(&e->timers, &t->node);
	xc_heap_add(&e->timers, &t->node, deadline_ns);
}

static void engine_disarm(struct xd_engine *e, struct xd_timer *t)
{
	xc_heap_remove(&e->timers, &t->node);
}

static void engine_help(struct xd_engine *e, struct xd_job *job)
{
	xc_assert(xd_helpers_submit(e->helpers, job));
}

static void engine_random(struct xd_engine *e, void *buf, size_t size)
{
	(void)e;
	xc_assert(size <= 256 && getrandom(buf, size, 0) == (ssize_t)size);
}

static void engine_kick(struct xd_engine *e)
{
	e->kicked = true;
}

static void __attribute__((format(printf, 3, 4)))
engine_log(struct xd_engine *e, const struct xd_log *about, const char *format, ...)
{
	va_list ap;

	if (!e->verbose)
		return;
	va_start(ap, format);
	fprintf(stderr, "# %s: ", about->device ? about->device : "fabric");
	vfprintf(stderr, format, ap);
	fputc('\n', stderr);
	va_end(ap);
}

/* The others are the core's; a fabric that calls one dies of it. */
static const struct xd_engine_ops engine_ops = {
	.now_ns = engine_now,
	.arm = engine_arm,
	.disarm = engine_disarm,
	.help = engine_help,
	.random = engine_random,
	.kick = engine_kick,
	.log = engine_log,
};

struct xd_engine_ref engine_ref(struct xd_engine *e)
{
	return (struct xd_engine_ref){ .engine = e, .ops = &engine_ops };
}

/* ---- life */

static void wake(void *arg)
{
	struct xd_engine *e = arg;
	uint64_t one = 1;

	xc_assert(write(e->wake_fd, &one, sizeof(one)) == sizeof(one));
}

static void watch(struct xd_engine *e, int fd, struct watched *w)
{
	struct epoll_event ev = { .events = EPOLLIN, .data.ptr = w };

	xc_assert(epoll_ctl(e->epoll, EPOLL_CTL_ADD, fd, &ev) == 0);
}

struct xd_engine *engine_new(void)
{
	struct xd_engine *e = calloc(1, sizeof(*e));

	xc_assert(e);
	e->epoll = epoll_create1(EPOLL_CLOEXEC);
	e->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	xc_assert(e->epoll >= 0 && e->wake_fd >= 0);
	watch(e, e->wake_fd, NULL);
	xc_assert(xd_helpers_new(wake, e, &e->helpers) == 0);
	return e;
}

bool engine_free(struct xd_engine *e, uint64_t wait_ms)
{
	uint64_t until = engine_now(e) + wait_ms * MS;

	while (xd_helpers_pending(e->helpers) && engine_turn(e, until))
		;
	if (xd_helpers_pending(e->helpers) || !xd_helpers_stop(e->helpers, wait_ms))
		return false;
	xc_assert(!xc_heap_first(&e->timers));
	close(e->epoll);
	close(e->wake_fd);
	free(e);
	return true;
}

void engine_set_verbose(struct xd_engine *e)
{
	e->verbose = true;
}

void engine_add(struct xd_engine *e, const struct fabric_ref *ref,
		void (*polled)(struct fabric *f, const struct ibv_wc *wc))
{
	for (int i = 0; i < ENGINE_FABRICS; i++) {
		struct watched *w = &e->watched[i];
		int fd;

		if (w->ref.fabric)
			continue;
		*w = (struct watched){ .ref = *ref, .polled = polled };
		fd = ref->ops->fd(ref->fabric);
		if (fd >= 0)
			watch(e, fd, w);
		e->kicked = true;
		return;
	}
	xc_assert(false);
}

void engine_remove(struct xd_engine *e, const struct fabric *f)
{
	for (int i = 0; i < ENGINE_FABRICS; i++) {
		struct watched *w = &e->watched[i];
		int fd;

		if (w->ref.fabric != f)
			continue;
		fd = w->ref.ops->fd(w->ref.fabric);
		if (fd >= 0)
			xc_assert(epoll_ctl(e->epoll, EPOLL_CTL_DEL, fd, NULL) == 0);
		*w = (struct watched){ 0 };
	}
}

/* ---- the turn */

static uint64_t wake_time(struct xd_engine *e, uint64_t until_ns)
{
	const struct xc_heap_node *n = xc_heap_first(&e->timers);

	for (int i = 0; i < ENGINE_FABRICS; i++)
		if (e->watched[i].more)
			return 0;
	if (e->kicked)
		return 0;
	return n ? xc_min_u64(n->key, until_ns) : until_ns;
}

static int sleep_until(struct xd_engine *e, uint64_t until_ns)
{
	uint64_t now = engine_now(e), ms = until_ns > now ? (until_ns - now + MS - 1) / MS : 0;
	struct epoll_event ev[ENGINE_FABRICS + 1];
	int n = epoll_wait(e->epoll, ev, ENGINE_FABRICS + 1, (int)xc_min_u64(ms, 60000));

	for (int i = 0; i < n; i++) {
		struct watched *w = ev[i].data.ptr;
		uint64_t count;

		if (w) {
			w->ready = true;
			continue;
		}
		xc_assert(read(e->wake_fd, &count, sizeof(count)) == sizeof(count));
		xd_helpers_reap(e->helpers);
	}
	return n < 0 ? 0 : n;
}

static int fire(struct xd_engine *e)
{
	uint64_t now = engine_now(e);
	struct xc_heap_node *n;
	int fired = 0;

	while ((n = xc_heap_first(&e->timers)) && n->key <= now) {
		struct xd_timer *t = xc_container_of(n, struct xd_timer, node);

		xc_heap_remove(&e->timers, n);
		t->fired(t);
		fired++;
	}
	return fired;
}

static void serve(struct xd_engine *e, struct watched *w)
{
	struct ibv_wc wcs[16];
	int n;

	w->ready = false;
	e->asked++;
	e->in_progress = true;
	w->more = w->ref.ops->progress(w->ref.fabric, TURN_BYTES);
	while ((n = w->ref.ops->poll(w->ref.fabric, XC_ARRAY_SIZE(wcs), wcs)) > 0)
		for (int i = 0; i < n; i++)
			w->polled(w->ref.fabric, &wcs[i]);
	xc_assert(n == 0);
	e->in_progress = false;
}

bool engine_turn(struct xd_engine *e, uint64_t until_ns)
{
	int happened = sleep_until(e, wake_time(e, until_ns)) + fire(e);
	bool kicked = e->kicked;

	e->kicked = false;
	for (int i = 0; i < ENGINE_FABRICS; i++) {
		struct watched *w = &e->watched[i];

		if (!w->ref.fabric || !(kicked || w->ready || w->more))
			continue;
		serve(e, w);
		happened++;
	}
	return happened || engine_now(e) < until_ns;
}

bool engine_in_progress(const struct xd_engine *e)
{
	return e->in_progress;
}

uint64_t engine_asked(const struct xd_engine *e)
{
	return e->asked;
}

unsigned int engine_jobs(const struct xd_engine *e)
{
	return xd_helpers_pending(e->helpers);
}

/* ---- all threads */

static void doze(struct xd_job *job)
{
	(void)job;
	nanosleep(&(struct timespec){ .tv_nsec = (long)(20 * MS) }, NULL);
}

static void dozed(struct xd_job *job)
{
	(void)job;
}

void engine_staff(struct xd_engine *e)
{
	static struct xd_job jobs[XD_HELPERS][STAFF_JOBS];

	for (int kind = 0; kind < XD_HELPERS; kind++) {
		for (int i = 0; i < STAFF_JOBS; i++) {
			jobs[kind][i] = (struct xd_job){
				.helper = (enum xd_helper)kind, .run = doze, .done = dozed,
			};
			xc_assert(xd_helpers_submit(e->helpers, &jobs[kind][i]));
		}
	}
	while (xd_helpers_pending(e->helpers))
		engine_turn(e, engine_now(e) + 1000 * MS);
}
