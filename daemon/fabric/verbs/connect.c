/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <time.h>

#include "common/assert.h"
#include "daemon/fabric/verbs/private.h"

/*
 * rdma_connect() on siw is a connect(2) that waits inside the kernel: minutes, where the peer is
 * silent. Like that one it ends early on a signal. The signal is blocked everywhere in the process
 * but around this call, and means nothing else.
 */
#define HURRY (SIGRTMIN + 1)

static void hurry_handler(int number)
{
	(void)number; /* its arrival is all that is wanted */
}

static void hurry_init(void)
{
	struct sigaction action;

	memset(&action, 0, sizeof(action));
	action.sa_handler = hurry_handler;
	sigemptyset(&action.sa_mask);
	/* no SA_RESTART: the call shall fail with EINTR */
	xc_assert(sigaction(HURRY, &action, NULL) == 0);
}

void verbs_patience_init(struct verbs_patience *p)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, hurry_init);
	pthread_mutex_init(&p->lock, NULL);
	p->inside = p->over = false;
}

void verbs_patience_done(struct verbs_patience *p)
{
	pthread_mutex_destroy(&p->lock);
}

static bool enter(struct verbs_patience *p)
{
	bool may;

	pthread_mutex_lock(&p->lock);
	may = !p->over;
	p->inside = may;
	p->thread = pthread_self();
	pthread_mutex_unlock(&p->lock);
	return may;
}

/* Returns whether the call was to be cut short. */
static bool leave(struct verbs_patience *p, const sigset_t *hurry)
{
	static const struct timespec no_time = { 0 };
	bool over;

	pthread_mutex_lock(&p->lock);
	p->inside = false;
	over = p->over;
	pthread_mutex_unlock(&p->lock);
	/* One that came late must not meet the next call of this thread. */
	while (sigtimedwait(hurry, NULL, &no_time) > 0)
		;
	return over;
}

int verbs_patient_connect(struct verbs_patience *p, struct rdma_cm_id *id,
			  struct rdma_conn_param *param)
{
	sigset_t hurry;
	int r;

	if (!enter(p))
		return -ECANCELED;
	sigemptyset(&hurry);
	sigaddset(&hurry, HURRY);
	pthread_sigmask(SIG_UNBLOCK, &hurry, NULL);
	r = rdma_connect(id, param) < 0 ? -errno : 0;
	pthread_sigmask(SIG_BLOCK, &hurry, NULL);
	return leave(p, &hurry) && r < 0 ? -ECANCELED : r;
}

void verbs_patience_end(struct verbs_patience *p)
{
	pthread_mutex_lock(&p->lock);
	p->over = true;
	if (p->inside)
		pthread_kill(p->thread, HURRY);
	pthread_mutex_unlock(&p->lock);
}
