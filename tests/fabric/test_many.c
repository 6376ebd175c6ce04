/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Many at once, and many in turn.
 */
#include <dirent.h>
#include <string.h>

#include "common/assert.h"
#include "tests/fabric/rig.h"
#include "tests/fabric/suite.h"

#define AT_ONCE 50
#define IN_TURN 200
#define WARM_UP 8

/* All ask before one is answered. Each pair then moves bytes of its own. */
static void many_at_once(void)
{
	const struct end_attr small = { .bytes = PAGE };
	struct end *a[AT_ONCE], *b[AT_ONCE];
	struct ear *ear = hear(rig.server);

	for (unsigned int i = 0; i < AT_ONCE; i++) {
		uint8_t name = (uint8_t)i;

		a[i] = end_new(rig.client, &small);
		b[i] = end_new(rig.server, &small);
		post_recv(b[i], 1, 64, 64);
		CHECK_EQ(ask(a[i], &ear->at, &name, 1), 0);
	}
	/* They may come in any order; the private data says whose each is. */
	for (unsigned int i = 0; i < AT_ONCE; i++) {
		struct ask *k = asked(ear, i);

		CHECK(k->private_bytes >= 1 && k->private_data[0] < AT_ONCE);
		CHECK_EQ(accept_ask(b[k->private_data[0]], k, NULL, 0), 0);
	}
	for (unsigned int i = 0; i < AT_ONCE; i++) {
		WAIT(a[i]->n_established && b[i]->n_established);
		CHECK_EQ(a[i]->established, 0);
		CHECK_EQ(b[i]->established, 0);
		fill(a[i]->mem, 64, (uint8_t)i);
		post_send(a[i], 1, 0, 64);
	}
	for (unsigned int i = 0; i < AT_ONCE; i++) {
		CHECK_EQ(took(a[i], 1), IBV_WC_SUCCESS);
		CHECK_EQ(took(b[i], RECV_ID(1)), IBV_WC_SUCCESS);
		CHECK(filled(b[i]->mem + 64, 64, (uint8_t)i));
	}
	/* One ends, and no other notices. */
	end_error(a[7]);
	until_ended(a[7], b[7]);
	rig_quiet();
	for (unsigned int i = 0; i < AT_ONCE; i++)
		CHECK_EQ(a[i]->n_disconnected + b[i]->n_disconnected, i == 7 ? 2 : 0);
}

/* Of a directory of /proc/self. */
static unsigned int count(const char *path)
{
	DIR *dir = opendir(path);
	unsigned int n = 0;

	xc_assert(dir);
	while (readdir(dir))
		n++;
	closedir(dir);
	return n;
}

static void once(struct end *lender, struct end *peer)
{
	struct end *a = end_twin(lender), *b = end_twin(peer);

	post_recv(b, 1, 64, 64);
	join(a, b);
	post_send(a, 1, 0, 64);
	CHECK_EQ(took(a, 1), IBV_WC_SUCCESS);
	CHECK_EQ(took(b, RECV_ID(1)), IBV_WC_SUCCESS);
	end_disconnect(a);
	until_ended(a, b);
	end_destroy(a);
	end_destroy(b);
}

/* What may be counted: all jobs have come back, and what was freed is closed. */
static void come_to_rest(void)
{
	WAIT(engine_jobs(rig.engine) == 0);
	rig_quiet();
}

static void nothing_stays(void)
{
	struct end *lender = end_new(rig.client, NULL), *peer = end_new(rig.server, NULL);
	unsigned int fds, threads;

	engine_staff(rig.engine);
	for (int i = 0; i < WARM_UP; i++)
		once(lender, peer);
	come_to_rest();
	fds = count("/proc/self/fd");
	threads = count("/proc/self/task");
	for (int i = 0; i < IN_TURN; i++)
		once(lender, peer);
	come_to_rest();
	CHECK_EQ(count("/proc/self/fd"), fds);
	CHECK_EQ(count("/proc/self/task"), threads);
}

const struct test many_tests[] = {
	{ "50 connections at once", many_at_once, { "few-endpoints", "move-byte" } },
	{ "200 connections in turn leave nothing", nothing_stays,
	  { "leak-fd", "leak-thread", "endless-destroy" } },
	{ 0 },
};
