/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Cutting rdma_connect() short, where it sleeps in the kernel as a connect(2) does. */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <time.h>

#include "daemon/fabric/verbs/private.h"
#include "tests/unit/cm.h"

/* The rest of a call that nobody cuts short; a test that waits for it has failed. */
#define HANGS_S 30

int __wrap_rdma_connect(struct rdma_cm_id *id, struct rdma_conn_param *param);

static int calls;
static bool hangs, cut;

int __wrap_rdma_connect(struct rdma_cm_id *id, struct rdma_conn_param *param)
{
	const struct timespec time = { .tv_sec = hangs ? HANGS_S : 0 };

	(void)id;
	(void)param;
	__atomic_add_fetch(&calls, 1, __ATOMIC_SEQ_CST);
	if (nanosleep(&time, NULL) == 0)
		return 0;
	cut = errno == EINTR;
	return -1;
}

struct helper {
	pthread_t thread;
	struct verbs_patience p;
	int status;
	bool over;
};

static void *help(void *arg)
{
	struct helper *h = arg;
	sigset_t all;

	/* as helper threads are */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, NULL);
	h->status = verbs_patient_connect(&h->p, NULL, NULL);
	__atomic_store_n(&h->over, true, __ATOMIC_SEQ_CST);
	return NULL;
}

static void nap(void)
{
	const struct timespec time = { .tv_nsec = 2000000 };

	nanosleep(&time, NULL);
}

static void start(struct helper *h)
{
	calls = 0;
	cut = false;
	h->over = false;
	assert_int_equal(pthread_create(&h->thread, NULL, help, h), 0);
}

static void a_call_that_returns(void **state)
{
	struct helper h;

	(void)state;
	hangs = false;
	verbs_patience_init(&h.p);
	start(&h);
	pthread_join(h.thread, NULL);
	assert_int_equal(h.status, 0);
	assert_int_equal(calls, 1);
	/* Too late, and harmless. */
	verbs_patience_end(&h.p);
	verbs_patience_done(&h.p);
}

/* Repeated, as the signal may come before the call sleeps. */
static void a_call_that_hangs(void **state)
{
	struct helper h;

	(void)state;
	hangs = true;
	for (int round = 0; round < 20; round++) {
		verbs_patience_init(&h.p);
		start(&h);
		while (!__atomic_load_n(&calls, __ATOMIC_SEQ_CST))
			nap();
		while (!__atomic_load_n(&h.over, __ATOMIC_SEQ_CST)) {
			verbs_patience_end(&h.p);
			nap();
		}
		pthread_join(h.thread, NULL);
		assert_int_equal(h.status, -ECANCELED);
		assert_true(cut);
		verbs_patience_done(&h.p);
	}
}

static void ended_before_it_began(void **state)
{
	struct helper h;

	(void)state;
	hangs = true;
	verbs_patience_init(&h.p);
	verbs_patience_end(&h.p);
	start(&h);
	pthread_join(h.thread, NULL);
	assert_int_equal(h.status, -ECANCELED);
	assert_int_equal(calls, 0);
	verbs_patience_done(&h.p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_call_that_returns),
		cmocka_unit_test(a_call_that_hangs),
		cmocka_unit_test(ended_before_it_began),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
