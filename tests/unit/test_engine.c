/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The engine on its real loop: timers, jobs, the order of a turn; and the log. */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/checked.h"
#include "daemon/io/engine.h"
#include "daemon/io/log.h"
#include "tests/unit/stub_core.h"

#define MS UINT64_C(1000000)
/* Turns after which a test gives up. */
#define TURNS_MAX 100000

static const struct xd_engine_ops *ops = &xd_engine_ops;
static struct xd_engine *engine;

static int set_up(void **state)
{
	(void)state;
	return xd_engine_new(NULL, &engine);
}

static int tear_down(void **state)
{
	(void)state;
	return xd_engine_free(engine, 10000) ? 0 : -1;
}

#define UNTIL(cond)                                                                                \
	do {                                                                                       \
		int turns_ = 0;                                                                    \
		while (!(cond) && turns_++ < TURNS_MAX)                                            \
			xd_engine_turn(engine, true);                                              \
		assert_true(cond);                                                                 \
	} while (0)

/* ---- timers */

struct test_timer {
	struct xd_timer timer;
	int number;
	uint64_t deadline_ns;
};

static int fired[64];
static int n_fired;

static void note(struct xd_timer *t)
{
	struct test_timer *timer = xc_container_of(t, struct test_timer, timer);

	/* Late is a matter of load; early is a fault. */
	assert_true(ops->now_ns(engine) >= timer->deadline_ns);
	fired[n_fired++] = timer->number;
}

static void arm(struct test_timer *t, uint64_t deadline_ns)
{
	t->deadline_ns = deadline_ns;
	ops->arm(engine, &t->timer, deadline_ns);
}

static void test_timer_order(void **state)
{
	static const unsigned order[] = { 3, 0, 7, 5, 1, 6, 2, 4 };
	struct test_timer t[8] = { 0 };
	uint64_t now = ops->now_ns(engine);

	(void)state;
	n_fired = 0;
	for (unsigned i = 0; i < 8; i++) {
		unsigned k = order[i];

		t[k].number = (int)k;
		t[k].timer.fired = note;
		arm(&t[k], now + (k + 1) * 2 * MS);
	}
	/* Moved to the end, and taken away; twice is harmless. */
	arm(&t[0], now + 30 * MS);
	ops->disarm(engine, &t[4].timer);
	ops->disarm(engine, &t[4].timer);
	UNTIL(n_fired == 7);
	assert_int_equal(fired[0], 1);
	assert_int_equal(fired[1], 2);
	assert_int_equal(fired[2], 3);
	assert_int_equal(fired[3], 5);
	assert_int_equal(fired[6], 0);
}

static void test_timer_past(void **state)
{
	struct test_timer t = { .timer.fired = note, .number = 1 };

	(void)state;
	n_fired = 0;
	arm(&t, 1);
	assert_int_equal(n_fired, 0); /* never inside the call */
	UNTIL(n_fired == 1);
	xd_engine_turn(engine, false);
	assert_int_equal(n_fired, 1);
}

static int rearmed;

static void rearm(struct xd_timer *t)
{
	rearmed++;
	ops->arm(engine, t, 1);
}

/* A timer that is always due does not keep the others, nor the turn. */
static void test_timer_rearms(void **state)
{
	struct xd_timer busy = { .fired = rearm };
	struct test_timer t = { .timer.fired = note, .number = 1 };

	(void)state;
	n_fired = rearmed = 0;
	ops->arm(engine, &busy, 1);
	arm(&t, ops->now_ns(engine) + 5 * MS);
	UNTIL(n_fired == 1);
	assert_true(rearmed > 0);
	ops->disarm(engine, &busy);
}

static void free_timer(struct xd_timer *t)
{
	n_fired++;
	free(xc_container_of(t, struct test_timer, timer));
}

static void test_timer_frees_itself(void **state)
{
	(void)state;
	n_fired = 0;
	/* More than are fired in one turn. */
	for (int i = 0; i < 1000; i++) {
		struct test_timer *t = calloc(1, sizeof(*t));

		t->timer.fired = free_timer;
		arm(t, 1);
	}
	UNTIL(n_fired == 1000);
}

/* ---- jobs */

struct test_job {
	struct xd_job job;
	pthread_t ran_on;
	pthread_mutex_t *gate; /* held: blocks */
	int runs, dones;
};

static pthread_t engine_thread;
static int n_done;

static void job_run(struct xd_job *job)
{
	struct test_job *j = xc_container_of(job, struct test_job, job);

	if (j->gate) {
		pthread_mutex_lock(j->gate);
		pthread_mutex_unlock(j->gate);
	}
	j->ran_on = pthread_self();
	j->runs++;
}

static void job_done(struct xd_job *job)
{
	struct test_job *j = xc_container_of(job, struct test_job, job);

	assert_true(pthread_equal(pthread_self(), engine_thread));
	assert_false(pthread_equal(j->ran_on, engine_thread));
	j->dones++;
	n_done++;
}

static void submit(struct test_job *j, enum xd_helper helper, uint32_t owner)
{
	j->job = (struct xd_job){ .helper = helper, .owner = owner, .run = job_run,
				  .done = job_done };
	ops->help(engine, &j->job);
}

static void test_jobs(void **state)
{
	static struct test_job jobs[200];

	(void)state;
	memset(jobs, 0, sizeof(jobs));
	engine_thread = pthread_self();
	n_done = 0;
	for (int i = 0; i < 200; i++)
		submit(&jobs[i], (enum xd_helper)(i % XD_HELPERS), (uint32_t)i % 3);
	UNTIL(n_done == 200);
	for (int i = 0; i < 200; i++) {
		assert_int_equal(jobs[i].runs, 1);
		assert_int_equal(jobs[i].dones, 1);
	}
}

/* One user's slow jobs hold up that user alone; other kinds not at all. */
static void slow_jobs(enum xd_helper kind, enum xd_helper other_kind)
{
	static pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;
	static struct test_job slow[40], other[20], memory;

	memset(slow, 0, sizeof(slow));
	memset(other, 0, sizeof(other));
	memset(&memory, 0, sizeof(memory));
	engine_thread = pthread_self();
	n_done = 0;
	pthread_mutex_lock(&gate);
	for (int i = 0; i < 40; i++) {
		slow[i].gate = &gate;
		submit(&slow[i], kind, 1000);
	}
	for (int i = 0; i < 20; i++)
		submit(&other[i], kind, 1001);
	submit(&memory, other_kind, 1000);
	UNTIL(n_done == 21);
	for (int i = 0; i < 20; i++)
		assert_int_equal(other[i].dones, 1);
	assert_int_equal(memory.dones, 1);
	pthread_mutex_unlock(&gate);
	UNTIL(n_done == 61);
}

static void test_slow_closes(void **state)
{
	(void)state;
	slow_jobs(XD_HELP_CLOSE, XD_HELP_MEMORY);
}

static void test_slow_names(void **state)
{
	(void)state;
	slow_jobs(XD_HELP_NAMES, XD_HELP_MEMORY);
}

static void test_slow_maps(void **state)
{
	(void)state;
	slow_jobs(XD_HELP_MEMORY, XD_HELP_CLOSE);
}

static struct test_job second;

static void first_done(struct xd_job *job)
{
	(void)job;
	n_done++;
	submit(&second, XD_HELP_CLOSE, 0);
}

/* What a `done` submits is still run when the engine ends. */
static void test_jobs_at_the_end(void **state)
{
	static struct test_job first;

	(void)state;
	engine_thread = pthread_self();
	n_done = 0;
	first.job = (struct xd_job){ .helper = XD_HELP_MEMORY, .run = job_run, .done = first_done };
	ops->help(engine, &first.job);
	assert_true(xd_engine_free(engine, 10000));
	assert_int_equal(n_done, 2);
	assert_int_equal(second.dones, 1);
	assert_int_equal(set_up(NULL), 0);
}

/* A job that blocks for ever: the engine says so and leaves everything as it is. */
static void test_stuck_at_the_end(void **state)
{
	static pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;
	static struct test_job stuck;

	(void)state;
	engine_thread = pthread_self();
	n_done = 0;
	pthread_mutex_lock(&gate);
	stuck.gate = &gate;
	submit(&stuck, XD_HELP_CLOSE, 7);
	assert_false(xd_engine_free(engine, 20));
	assert_int_equal(stuck.dones, 0);
	/* For the sake of the leak check it can be ended after all. */
	pthread_mutex_unlock(&gate);
	UNTIL(n_done == 1);
}

/* ---- output */

struct test_link {
	struct xd_link link;
	int served, again, goners;
};

static void serve(struct xd_link *link)
{
	struct test_link *l = xc_container_of(link, struct test_link, link);

	l->served++;
	if (l->again-- > 0)
		xd_link_deliver(engine, link);
}

static void gone(struct xd_link *link)
{
	xc_container_of(link, struct test_link, link)->goners++;
}

static void test_deliver(void **state)
{
	struct test_link a = { 0 }, b = { .again = 2 };

	(void)state;
	xd_link_init(&a.link, serve, gone);
	xd_link_init(&b.link, serve, gone);
	ops->deliver(engine, &a.link);
	ops->deliver(engine, &a.link);
	ops->deliver(engine, &b.link);
	assert_int_equal(a.served, 0); /* never inside the call */
	/* Sleeping is forbidden while one of them wants to come again: this would hang. */
	xd_engine_turn(engine, true);
	assert_int_equal(a.served, 1);
	assert_true(b.served >= 1);
	xd_engine_turn(engine, true);
	UNTIL(b.served == 3);
	xd_engine_turn(engine, false);
	assert_int_equal(a.served, 1);
	assert_int_equal(b.served, 3);

	/* Taken off the list before its turn. */
	ops->deliver(engine, &a.link);
	xc_list_remove(&a.link.dirty);
	xd_engine_turn(engine, false);
	assert_int_equal(a.served, 1);
	ops->session_gone(engine, &a.link);
	assert_int_equal(a.goners, 1);
}

static void test_progress(void **state)
{
	const struct xd_engine_ref ref = xd_engine_ref(engine);
	struct xd_core *core = stub_core_new(&ref);
	unsigned before;

	(void)state;
	assert_int_equal(xd_engine_attach(engine, core), 0);
	core->want_more = true;
	/* Each would sleep for ever if the engine forgot that there is more. */
	for (int i = 0; i < 10; i++)
		xd_engine_turn(engine, true);
	assert_true(core->progresses >= 10);
	core->want_more = false;
	xd_engine_turn(engine, true);
	before = core->progresses;
	ops->kick(engine);
	xd_engine_turn(engine, true);
	assert_true(core->progresses > before);
	xd_engine_attach(engine, NULL);
	before = core->progresses;
	ops->kick(engine);
	xd_engine_turn(engine, true);
	assert_int_equal(core->progresses, before);
	stub_core_free(core);
}

static void test_random(void **state)
{
	uint8_t a[64] = { 0 }, b[64] = { 0 };

	(void)state;
	ops->random(engine, a, sizeof(a));
	ops->random(engine, b, sizeof(b));
	assert_memory_not_equal(a, b, sizeof(a));
	ops->random(engine, a, 0);
}

static void test_resolve(void **state)
{
	struct xc_addr addr[4];
	char text[XC_ADDR_TEXT_MAX];

	(void)state;
	assert_int_equal(ops->resolve("127.0.0.9", addr, 4), 1);
	assert_string_equal(xc_addr_format(&addr[0], text), "127.0.0.9:0");
	assert_int_equal(ops->resolve("::1", addr, 4), 1);
	assert_int_equal(addr[0].family, 6);
	assert_true(ops->resolve("localhost", addr, 4) >= 1);
	assert_true(xc_addr_is_loopback(&addr[0]));
	assert_int_equal(ops->resolve("localhost", addr, 1), 1);
}

/* ---- the log */

static char lines[100][256];
static int n_lines;

static void take_line(void *arg, const char *text)
{
	(void)arg;
	snprintf(lines[n_lines++ % 100], 256, "%s", text);
}

static void __attribute__((format(printf, 4, 5)))
entry(struct xd_logger *l, uint64_t now_ns, const struct xd_log *about, const char *format, ...)
{
	va_list ap;

	va_start(ap, format);
	xd_logger_write(l, now_ns, about, format, ap);
	va_end(ap);
}

static void test_log(void **state)
{
	struct xd_log about = { .priority = XD_NOTICE, .session = 3, .client_uid = 1000 };
	struct xd_logger *l;

	(void)state;
	n_lines = 0;
	assert_int_equal(xd_logger_new(XD_LOG_PREFIXED, &l), 0);
	xd_logger_capture(l, take_line, NULL);
	entry(l, 0, &about, "a %s\nsecond \033[2Jline", "b");
	assert_int_equal(n_lines, 1);
	assert_string_equal(lines[0], "<5>a b second  [2Jline\n");
	about.priority = XD_DEBUG;
	entry(l, 0, &about, "not shown");
	assert_int_equal(n_lines, 1);
	xd_logger_set_level(l, XD_DEBUG);
	entry(l, 0, &about, "shown");
	assert_int_equal(n_lines, 2);
	entry(NULL, 0, &about, "nobody hears");
	xd_logger_free(l);
}

static void test_log_bound(void **state)
{
	struct xd_log about = { .priority = XD_NOTICE, .session = 3, .client_uid = 1000,
				.client_caused = true };
	struct xd_log other = about;
	struct xd_logger *l;

	(void)state;
	n_lines = 0;
	other.client_uid = 1001;
	assert_int_equal(xd_logger_new(XD_LOG_PLAIN, &l), 0);
	xd_logger_capture(l, take_line, NULL);
	for (int i = 0; i < XD_LOG_BURST + 7; i++)
		entry(l, 100, &about, "noise");
	assert_int_equal(n_lines, XD_LOG_BURST);
	entry(l, 100, &other, "another user is heard");
	assert_int_equal(n_lines, XD_LOG_BURST + 1);
	about.client_caused = false;
	entry(l, 100, &about, "the daemon's own word is heard");
	assert_int_equal(n_lines, XD_LOG_BURST + 2);
	about.client_caused = true;
	n_lines = 0;
	entry(l, 100 + XD_LOG_WINDOW_NS, &about, "later");
	assert_int_equal(n_lines, 2);
	assert_string_equal(lines[0],
			    "rdmaxferd: 7 log entries caused by uid 1000 were dropped.\n");
	assert_string_equal(lines[1], "rdmaxferd: later\n");
	/* More users than the table holds: bounded, and none is silenced for ever. */
	n_lines = 0;
	for (uint32_t uid = 2000; uid < 2090; uid++) {
		about.client_uid = uid;
		entry(l, 200 + XD_LOG_WINDOW_NS, &about, "once");
	}
	assert_int_equal(n_lines, 90);
	xd_logger_free(l);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		T(test_timer_order),
		T(test_timer_past),
		T(test_timer_rearms),
		T(test_timer_frees_itself),
		T(test_jobs),
		T(test_slow_closes),
		T(test_slow_names),
		T(test_slow_maps),
		T(test_jobs_at_the_end),
		T(test_stuck_at_the_end),
		T(test_deliver),
		T(test_progress),
		T(test_random),
		T(test_resolve),
		cmocka_unit_test(test_log),
		cmocka_unit_test(test_log_bound),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
