/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "daemon/io/helpers.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <time.h>

#include "common/assert.h"

#define THREADS_MAX 16
/* Enough for getaddrinfo() with the name service modules that are about. */
#define STACK_BYTES (512 * 1024)

static const unsigned threads_max[XD_HELPERS] = {
	[XD_HELP_MEMORY] = 4,
	[XD_HELP_CLOSE] = THREADS_MAX,
	[XD_HELP_NAMES] = 4,
	[XD_HELP_VERBS] = 4,
	[XD_HELP_CONNECT] = THREADS_MAX,
	[XD_HELP_DEVICES] = 4,
};

struct worker {
	struct kind *kind;
	pthread_t thread;
	uint32_t owner; /* of the job that it runs, 0 = none */
};

struct kind {
	struct xd_helpers *helpers;
	enum xd_helper helper;
	pthread_cond_t wanted;
	struct xc_list queue;
	unsigned queued, idle, threads;
	struct worker worker[THREADS_MAX];
};

struct xd_helpers {
	pthread_mutex_t lock;
	pthread_cond_t ended;
	struct kind kind[XD_HELPERS];
	struct xc_list done;
	unsigned running; /* threads not yet ended, of all kinds */
	unsigned pending; /* engine's thread only */
	bool stopping;
	void (*wake)(void *arg);
	void *arg;
};

int xd_helpers_new(void (*wake)(void *arg), void *arg, struct xd_helpers **ret)
{
	struct xd_helpers *h = calloc(1, sizeof(*h));
	pthread_condattr_t monotonic;

	if (!h)
		return -ENOMEM;
	h->wake = wake;
	h->arg = arg;
	pthread_mutex_init(&h->lock, NULL);
	pthread_condattr_init(&monotonic);
	pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
	pthread_cond_init(&h->ended, &monotonic);
	pthread_condattr_destroy(&monotonic);
	xc_list_init(&h->done);
	for (int i = 0; i < XD_HELPERS; i++) {
		struct kind *k = &h->kind[i];

		k->helpers = h;
		k->helper = (enum xd_helper)i;
		pthread_cond_init(&k->wanted, NULL);
		xc_list_init(&k->queue);
	}
	*ret = h;
	return 0;
}

static unsigned running_for(const struct kind *k, uint32_t owner)
{
	unsigned n = 0;

	for (unsigned i = 0; i < k->threads; i++)
		n += k->worker[i].owner == owner;
	return n;
}

/* The oldest job whose owner has not got his share of the threads already. */
static struct xd_job *take(struct kind *k)
{
	struct xd_job *job;

	xc_list_for_each(job, &k->queue, link) {
		if (job->owner && running_for(k, job->owner) >= XD_THREADS_PER_OWNER)
			continue;
		xc_list_remove(&job->link);
		k->queued--;
		return job;
	}
	return NULL;
}

/* Called and returns with the lock held. */
static void run(struct worker *w, struct xd_job *job)
{
	struct xd_helpers *h = w->kind->helpers;

	w->owner = job->owner;
	pthread_mutex_unlock(&h->lock);
	job->run(job);
	pthread_mutex_lock(&h->lock);
	w->owner = 0;
	xc_list_append(&h->done, &job->link);
	h->wake(h->arg);
}

static void *work(void *arg)
{
	struct worker *w = arg;
	struct kind *k = w->kind;
	struct xd_helpers *h = k->helpers;

	pthread_mutex_lock(&h->lock);
	for (;;) {
		struct xd_job *job = take(k);

		if (job) {
			run(w, job);
			continue;
		}
		/* What is still queued is of owners whose running jobs' threads will take it. */
		if (h->stopping)
			break;
		k->idle++;
		pthread_cond_wait(&k->wanted, &h->lock);
		k->idle--;
	}
	h->running--;
	pthread_cond_signal(&h->ended);
	pthread_mutex_unlock(&h->lock);
	return NULL;
}

/*
 * Signals are the engine's. Not those that a fault raises in the very thread: blocked, they would
 * kill the process instead of reaching the guard that waits for them.
 */
static void helper_signals(sigset_t *set)
{
	sigfillset(set);
	sigdelset(set, SIGBUS);
	sigdelset(set, SIGSEGV);
	sigdelset(set, SIGFPE);
	sigdelset(set, SIGILL);
	sigdelset(set, SIGABRT);
}

/* With the lock held. */
static int start_thread(struct kind *k)
{
	struct worker *w = &k->worker[k->threads];
	pthread_attr_t attr;
	sigset_t blocked, saved;
	int r;

	w->kind = k;
	w->owner = 0;
	helper_signals(&blocked);
	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, STACK_BYTES);
	pthread_sigmask(SIG_SETMASK, &blocked, &saved);
	r = pthread_create(&w->thread, &attr, work, w);
	pthread_sigmask(SIG_SETMASK, &saved, NULL);
	pthread_attr_destroy(&attr);
	if (r)
		return -r;
	k->threads++;
	k->helpers->running++;
	return 0;
}

/* With the lock held. False: there is work and no thread at all. */
static bool staff(struct kind *k)
{
	while (k->queued > k->idle && k->threads < threads_max[k->helper]) {
		if (start_thread(k) < 0)
			return k->threads > 0;
		/*
		 * It counts itself idle only when it first waits: one new thread a job is enough.
		 */
		break;
	}
	return true;
}

bool xd_helpers_submit(struct xd_helpers *h, struct xd_job *job)
{
	struct kind *k = &h->kind[job->helper];
	bool staffed;

	xc_assert(job->helper < XD_HELPERS && job->run && job->done);
	h->pending++;
	pthread_mutex_lock(&h->lock);
	xc_list_append(&k->queue, &job->link);
	k->queued++;
	staffed = staff(k);
	pthread_cond_signal(&k->wanted);
	pthread_mutex_unlock(&h->lock);
	return staffed;
}

bool xd_helpers_retry(struct xd_helpers *h)
{
	bool staffed = true;

	pthread_mutex_lock(&h->lock);
	for (int i = 0; i < XD_HELPERS; i++)
		staffed = staff(&h->kind[i]) && staffed;
	pthread_mutex_unlock(&h->lock);
	return staffed;
}

void xd_helpers_reap(struct xd_helpers *h)
{
	struct xc_list done;

	xc_list_init(&done);
	pthread_mutex_lock(&h->lock);
	for (struct xc_list *l; (l = xc_list_pop(&h->done));)
		xc_list_append(&done, l);
	pthread_mutex_unlock(&h->lock);

	for (struct xc_list *l; (l = xc_list_pop(&done));) {
		struct xd_job *job = xc_container_of(l, struct xd_job, link);

		h->pending--;
		job->done(job); /* may free the job, and submit others */
	}
}

unsigned xd_helpers_pending(const struct xd_helpers *h)
{
	return h->pending;
}

/* True when all threads have ended in time. */
static bool await_end(struct xd_helpers *h, uint64_t wait_ms)
{
	struct timespec until;
	int r = 0;

	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_sec += (time_t)(wait_ms / 1000);
	until.tv_nsec += (long)(wait_ms % 1000) * 1000000;
	if (until.tv_nsec >= 1000000000) {
		until.tv_sec++;
		until.tv_nsec -= 1000000000;
	}
	pthread_mutex_lock(&h->lock);
	h->stopping = true;
	for (int i = 0; i < XD_HELPERS; i++)
		pthread_cond_broadcast(&h->kind[i].wanted);
	while (h->running && r != ETIMEDOUT)
		r = pthread_cond_timedwait(&h->ended, &h->lock, &until);
	r = h->running ? -1 : 0;
	pthread_mutex_unlock(&h->lock);
	return r == 0;
}

bool xd_helpers_stop(struct xd_helpers *h, uint64_t wait_ms)
{
	if (!await_end(h, wait_ms)) {
		xd_helpers_reap(h);
		return false;
	}
	for (int i = 0; i < XD_HELPERS; i++) {
		struct kind *k = &h->kind[i];

		for (unsigned t = 0; t < k->threads; t++)
			pthread_join(k->worker[t].thread, NULL);
		/* Queued where no thread could be started. */
		for (struct xc_list *l; (l = xc_list_pop(&k->queue));) {
			struct xd_job *job = xc_container_of(l, struct xd_job, link);

			job->run(job);
			xc_list_append(&h->done, l);
		}
	}
	xd_helpers_reap(h);
	/* A `done` may have submitted another job, whose thread is at work. */
	if (h->pending)
		return false;
	for (int i = 0; i < XD_HELPERS; i++)
		pthread_cond_destroy(&h->kind[i].wanted);
	pthread_cond_destroy(&h->ended);
	pthread_mutex_destroy(&h->lock);
	free(h);
	return true;
}
