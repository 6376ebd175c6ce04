/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "tests/unit/fake_engine.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "common/assert.h"
#include "common/checked.h"

/* splitmix64: every seed gives a full sequence. */
uint64_t fake_engine_next(struct xd_engine *e)
{
	uint64_t z = (e->random_state += UINT64_C(0x9e3779b97f4a7c15));

	z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
	return z ^ (z >> 31);
}

static uint64_t fake_now_ns(struct xd_engine *e)
{
	return e->now_ns;
}

static void fake_disarm(struct xd_engine *e, struct xd_timer *t)
{
	xc_heap_remove(&e->timers, &t->node);
}

static void fake_arm(struct xd_engine *e, struct xd_timer *t, uint64_t deadline_ns)
{
	xc_assert(t->fired);
	fake_disarm(e, t);
	xc_heap_add(&e->timers, &t->node, deadline_ns);
}

static void fake_help(struct xd_engine *e, struct xd_job *job)
{
	xc_assert(job->run && job->done && job->helper < XD_HELPERS);
	xc_list_append(&e->jobs, &job->link);
	e->n_jobs++;
}

/*
 * Every host is here; closing is only counted, so that a test can pass any number as a descriptor.
 */
static int fake_resolve(const char *host, struct xc_addr *ret, int max)
{
	struct xc_addr local = { .family = 4, .ip = { 127, 0, 0, 1 } };

	if (max < 1 || strcmp(host, "nowhere.invalid") == 0)
		return -ENOENT;
	*ret = local;
	return 1;
}

uint64_t fake_engine_closed_fds;
uint32_t fake_engine_job_owner;

static void fake_close_fd(int fd)
{
	(void)fd;
	fake_engine_closed_fds++;
}

static void fake_random(struct xd_engine *e, void *buf, size_t size)
{
	uint8_t *to = buf;

	while (size) {
		uint64_t r = fake_engine_next(e);
		size_t n = size < sizeof(r) ? size : sizeof(r);

		memcpy(to, &r, n);
		to += n;
		size -= n;
	}
}

static void fake_deliver(struct xd_engine *e, void *conn)
{
	e->delivers++;
	if (e->on_deliver)
		e->on_deliver(e, conn);
}

static void fake_session_gone(struct xd_engine *e, void *conn)
{
	e->gone++;
	if (e->on_session_gone)
		e->on_session_gone(e, conn);
}

static void fake_kick(struct xd_engine *e)
{
	e->kicked = true;
	e->kicks++;
}

static void __attribute__((format(printf, 3, 4)))
fake_log(struct xd_engine *e, const struct xd_log *about, const char *format, ...)
{
	va_list ap;

	va_start(ap, format);
	vsnprintf(e->last_log, sizeof(e->last_log), format, ap);
	va_end(ap);
	e->logs++;
	if (e->on_log)
		e->on_log(e, about, e->last_log);
}

const struct xd_engine_ops fake_engine_ops = {
	.now_ns = fake_now_ns,
	.arm = fake_arm,
	.disarm = fake_disarm,
	.help = fake_help,
	.resolve = fake_resolve,
	.close_fd = fake_close_fd,
	.random = fake_random,
	.deliver = fake_deliver,
	.session_gone = fake_session_gone,
	.kick = fake_kick,
	.log = fake_log,
};

void fake_engine_init(struct xd_engine *e, uint64_t seed)
{
	*e = (struct xd_engine){ .now_ns = UINT64_C(1000000000), .random_state = seed };
	xc_list_init(&e->jobs);
	xc_list_init(&e->finished);
}

void fake_engine_done(struct xd_engine *e)
{
	xc_assert(!xc_heap_first(&e->timers));
	xc_assert(xc_list_empty(&e->jobs) && xc_list_empty(&e->finished));
}

struct xd_engine_ref fake_engine_ref(struct xd_engine *e)
{
	return (struct xd_engine_ref){ .engine = e, .ops = &fake_engine_ops };
}

static struct xd_job *take(struct xc_list *list, uint32_t *n, uint32_t place)
{
	struct xc_list *at = list->next;

	if (*n == 0)
		return NULL;
	for (place %= *n; place; place--)
		at = at->next;
	xc_list_remove(at);
	--*n;
	return xc_container_of(at, struct xd_job, link);
}

bool fake_engine_run_job(struct xd_engine *e, uint32_t place)
{
	struct xd_job *job = take(&e->jobs, &e->n_jobs, place);

	if (!job)
		return false;
	fake_engine_job_owner = job->owner;
	job->run(job);
	fake_engine_job_owner = 0;
	xc_list_append(&e->finished, &job->link);
	e->n_finished++;
	return true;
}

bool fake_engine_finish_job(struct xd_engine *e, uint32_t place)
{
	struct xd_job *job = take(&e->finished, &e->n_finished, place);

	if (!job)
		return false;
	job->done(job);
	return true;
}

uint32_t fake_engine_run_jobs(struct xd_engine *e)
{
	uint32_t n = 0;

	while (fake_engine_run_job(e, 0) || e->n_finished)
		while (fake_engine_finish_job(e, 0))
			n++;
	return n;
}

uint64_t fake_engine_next_deadline(const struct xd_engine *e)
{
	const struct xc_heap_node *first = xc_heap_first(&e->timers);

	return first ? first->key : UINT64_MAX;
}

void fake_engine_advance(struct xd_engine *e, uint64_t ns)
{
	uint64_t end = e->now_ns + ns;
	struct xc_heap_node *first;

	while ((first = xc_heap_first(&e->timers)) && first->key <= end) {
		struct xd_timer *t = xc_container_of(first, struct xd_timer, node);

		if (first->key > e->now_ns)
			e->now_ns = first->key;
		xc_heap_remove(&e->timers, first);
		t->fired(t);
	}
	e->now_ns = end;
}
