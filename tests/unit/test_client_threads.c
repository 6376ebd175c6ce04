/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The library: one client, many threads. */
#include "tests/unit/cm.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/fake_daemon.h"

#define POSTERS 3
#define POLLERS 2
#define CALLERS 2
#define POSTS 400

static struct fake fake;
static struct xfer_client *c;
static struct xfer_ep *ep;
static pthread_mutex_t seen_lock = PTHREAD_MUTEX_INITIALIZER;
static unsigned char seen[POSTERS * POSTS];
static unsigned int total;

static void *poster(void *arg)
{
	uint64_t first = (uintptr_t)arg * POSTS;
	uint8_t own[32] = { 0 };
	struct iovec v = { own, sizeof(own) };

	for (uint64_t i = 0; i < POSTS;) {
		int r = xfer_post_send(ep, &v, 1, first + i, i % 3 ? XFER_MORE : 0, NULL);

		if (r == -EAGAIN)
			sched_yield();
		else if (r == 0)
			i++;
		else
			abort();
	}
	xfer_flush(c);
	return NULL;
}

static void *poller(void *arg)
{
	struct xfer_event e[16];
	unsigned int done = 0;

	(void)arg;
	while (done < POSTERS * POSTS) {
		int n = xfer_poll(c, e, 16, 5);

		pthread_mutex_lock(&seen_lock);
		for (int i = 0; i < n; i++) {
			if (e[i].type != XFER_EVENT_COMPLETION || e[i].status != 0)
				abort();
			seen[e[i].wr_id]++;
			total++;
		}
		done = total;
		pthread_mutex_unlock(&seen_lock);
	}
	return NULL;
}

static void *caller(void *arg)
{
	(void)arg;
	for (int i = 0; i < 40; i++) {
		struct xfer_table *t;
		struct xfer_buf *b;

		if (xfer_buf_new(c, 4096, 0, &b) < 0 || xfer_query(c, "buffers", &t) < 0)
			abort();
		xfer_table_free(t);
		if (xfer_buf_free(b) < 0)
			abort();
		xfer_ep_set_context(ep, arg);
	}
	return NULL;
}

static void posting_polling_and_calling(void **state)
{
	pthread_t threads[POSTERS + POLLERS + CALLERS];
	size_t n = 0;

	(void)state;
	fake_init(&fake);
	fake.complete = true;
	fake_start(&fake);
	assert_int_equal(fake_client(&fake, NULL, &c), 0);
	ep = fake_ep(&fake, c, true);
	for (uintptr_t i = 0; i < POSTERS; i++)
		pthread_create(&threads[n++], NULL, poster, (void *)i);
	for (int i = 0; i < POLLERS; i++)
		pthread_create(&threads[n++], NULL, poller, NULL);
	for (int i = 0; i < CALLERS; i++)
		pthread_create(&threads[n++], NULL, caller, NULL);
	while (n)
		pthread_join(threads[--n], NULL);
	for (size_t i = 0; i < sizeof(seen); i++)
		assert_int_equal(seen[i], 1);
	assert_int_equal(c->requests.used, 0);
	xfer_client_free(c);
	fake_done(&fake);
}

/* Threads that wait without limit see the end, each of them. */
static void *waiter(void *arg)
{
	struct xfer_event e;

	(void)arg;
	do {
		if (xfer_poll(c, &e, 1, -1) != 1)
			abort();
	} while (e.type != XFER_EVENT_DAEMON_GONE);
	return NULL;
}

static void *ep_waiter(void *arg)
{
	if (xfer_ep_wait(arg, XFER_EP_CONNECTED, -1) != -XFER_E_DAEMON_GONE)
		abort();
	return NULL;
}

static void all_see_the_end(void **state)
{
	pthread_t threads[6];

	(void)state;
	fake_init(&fake);
	fake_start(&fake);
	assert_int_equal(fake_client(&fake, NULL, &c), 0);
	ep = fake_ep(&fake, c, false);
	for (int i = 0; i < 6; i++)
		pthread_create(&threads[i], NULL, i % 2 ? waiter : ep_waiter, ep);
	/* Some of them sleep by now, whichever. */
	for (int i = 0; i < 1000; i++)
		sched_yield();
	fake_stop(&fake);
	for (int i = 0; i < 6; i++)
		pthread_join(threads[i], NULL);
	xfer_client_free(c);
	fake_done(&fake);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(posting_polling_and_calling),
		cmocka_unit_test(all_see_the_end),
	};

	return cmocka_run_group_tests_name("client: threads", tests, NULL, NULL);
}
