/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#define _GNU_SOURCE 1 /* memfd_create(2), seals */
/* The library: buffers, and finding them by address. */
#include "tests/unit/cm.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/unit/fake_daemon.h"

#ifndef F_SEAL_EXEC
#define F_SEAL_EXEC 0x0020 /* fcntl(2), Linux 6.3 */
#endif

static struct fake fake;
static struct xfer_client *c;

static int setup(void **state)
{
	(void)state;
	fake_init(&fake);
	fake_start(&fake);
	return fake_client(&fake, NULL, &c);
}

static int teardown(void **state)
{
	(void)state;
	xfer_client_free(c);
	fake_done(&fake);
	return 0;
}

static void memory_is_shared_and_sealed(void **state)
{
	struct xfer_buf *b;
	uint8_t *data;

	(void)state;
	assert_int_equal(xfer_buf_new(c, 100001, 0, &b), 0);
	assert_int_equal(xfer_buf_size(b), 100001);
	assert_int_equal(fake.n_buffers, 1);
	assert_int_equal(fake.buffers[0].bytes, 100001);
	/* No other seal but the one of files that cannot be executed. */
	assert_int_equal(fake.buffers[0].seals & ~F_SEAL_EXEC, F_SEAL_SHRINK | F_SEAL_GROW);
	data = xfer_buf_data(b);
	assert_int_equal(data[100000], 0);
	data[100000] = 7;
	assert_int_equal(fake.buffers[0].data[100000], 7);
	fake.buffers[0].data[5] = 9;
	assert_int_equal(data[5], 9);
	assert_int_equal(xfer_buf_free(b), 0);
	assert_true(fake.buffers[0].removed);
	assert_int_equal(xfer_buf_free(NULL), 0);
}

static void sizes_and_flags(void **state)
{
	struct xfer_buf *b;

	(void)state;
	assert_int_equal(xfer_buf_new(c, 0, 0, &b), -EINVAL);
	assert_sentence("buffer: 0 bytes: 1 to 2^40");
	assert_int_equal(xfer_buf_new(c, (UINT64_C(1) << 40) + 1, 0, &b), -EINVAL);
	assert_sentence("1 to 2^40");
	assert_int_equal(xfer_buf_new(c, 1, 0x80, &b), -EINVAL);
	assert_sentence("flags 0x80");
	assert_int_equal(xfer_buf_new(c, 1, 0, NULL), -EINVAL);
	assert_int_equal(xfer_buf_new(NULL, 1, 0, &b), -EINVAL);
	assert_int_equal(fake.n_buffers, 0);
}

static void a_refused_buffer_leaves_nothing(void **state)
{
	struct xfer_buf *b;

	(void)state;
	fake_set(&fake, reply_status, -XFER_E_QUOTA);
	assert_int_equal(xfer_buf_new(c, 4096, 0, &b), -XFER_E_QUOTA);
	assert_sentence("buffer: because the test wants it");
	assert_int_equal(c->buffers.n, 0);
}

static void a_busy_buffer_stays(void **state)
{
	struct xfer_buf *b;

	(void)state;
	assert_int_equal(xfer_buf_new(c, 4096, 0, &b), 0);
	fake_set(&fake, reply_status, -EBUSY);
	assert_int_equal(xfer_buf_free(b), -EBUSY);
	*(uint8_t *)xfer_buf_data(b) = 1;
	fake_set(&fake, reply_status, 0);
	assert_int_equal(xfer_buf_free(b), 0);
}

static void gone_daemons_buffers_stay_mapped(void **state)
{
	struct xfer_event e;
	struct xfer_buf *b;

	(void)state;
	assert_int_equal(xfer_buf_new(c, 4096, 0, &b), 0);
	fake_stop(&fake);
	assert_int_equal(xfer_poll(c, &e, 1, 20000), 1);
	assert_int_equal(e.type, XFER_EVENT_DAEMON_GONE);
	memset(xfer_buf_data(b), 1, 4096);
	assert_int_equal(xfer_buf_free(b), 0);
	assert_int_equal(xfer_buf_new(c, 4096, 0, &b), -XFER_E_DAEMON_GONE);
	assert_sentence("closed the connection");
}

static void huge_pages(void **state)
{
	struct xfer_buf *b;
	int r = xfer_buf_new(c, 1, XFER_BUF_HUGETLB, &b);

	(void)state;
	if (r == -ENOMEM) { /* none reserved on this machine */
		assert_sentence("buffer: ");
		assert_int_equal(fake.n_buffers, 0);
		return;
	}
	assert_int_equal(r, 0);
	assert_true(xfer_buf_size(b) >= 65536);
	assert_int_equal(xfer_buf_free(b), 0);
}

static void own_memfds(void **state)
{
	int fd = memfd_create("test", MFD_ALLOW_SEALING);
	struct xfer_buf *b;

	(void)state;
	assert_int_equal(ftruncate(fd, 10000), 0);
	assert_int_equal(pwrite(fd, "hello", 5, 0), 5);
	assert_int_equal(xfer_buf_from_memfd(c, fd, &b), 0);
	assert_int_equal(xfer_buf_size(b), 10000);
	assert_memory_equal(xfer_buf_data(b), "hello", 5);
	assert_memory_equal(fake.buffers[0].data, "hello", 5);
	assert_int_equal(fake.buffers[0].seals & ~F_SEAL_EXEC, F_SEAL_SHRINK | F_SEAL_GROW);
	assert_int_equal(xfer_buf_free(b), 0);
	assert_int_equal(xfer_buf_from_memfd(c, fd, &b), -XFER_E_BUFFER_SEALED);
	assert_sentence("once in its life");
	close(fd);
}

static void expect_unfit(int fd, int status, const char *part)
{
	struct xfer_buf *b;

	assert_true(fd >= 0);
	assert_int_equal(xfer_buf_from_memfd(c, fd, &b), status);
	assert_sentence(part);
	assert_int_equal(fake.n_buffers, 0);
	close(fd);
}

static void unfit_descriptors(void **state)
{
	struct xfer_buf *b;
	char path[64];
	int fd, pipes[2];

	(void)state;
	assert_int_equal(xfer_buf_from_memfd(c, -1, &b), -EBADF);
	assert_int_equal(pipe(pipes), 0);
	close(pipes[1]);
	expect_unfit(pipes[0], -XFER_E_BUFFER_UNFIT, "no memory file");
	expect_unfit(open("/dev/null", O_RDWR), -XFER_E_BUFFER_UNFIT, "no memory file");
	fd = memfd_create("test", 0);
	assert_int_equal(ftruncate(fd, 4096), 0);
	expect_unfit(fd, -XFER_E_BUFFER_UNFIT, "takes no seals");
	fd = memfd_create("test", MFD_ALLOW_SEALING);
	assert_int_equal(ftruncate(fd, 4096), 0);
	assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE), 0);
	expect_unfit(fd, -XFER_E_BUFFER_UNFIT, "sealed against writing");
	expect_unfit(memfd_create("test", MFD_ALLOW_SEALING), -EINVAL, "of 0 bytes");
	fd = memfd_create("test", MFD_ALLOW_SEALING);
	assert_int_equal(ftruncate(fd, 4096), 0);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	expect_unfit(open(path, O_RDONLY), -XFER_E_BUFFER_UNFIT, "reading and writing");
	close(fd);
}

/* Against a plain search, over many buffers of many sizes. */
static void found_by_address(void **state)
{
	struct xfer_buf *b[50];
	uintptr_t next;

	(void)state;
	for (int i = 0; i < 50; i++)
		assert_int_equal(xfer_buf_new(c, (uint64_t)(i * 977 + 1), 0, &b[i]), 0);
	for (int i = 0; i < 50; i += 3)
		assert_int_equal(xfer_buf_free(b[i]), 0);
	for (int i = 0; i < 50; i++) {
		uintptr_t first, last;

		if (i % 3 == 0)
			continue;
		first = (uintptr_t)xfer_buf_data(b[i]);
		last = first + xfer_buf_size(b[i]) - 1;
		assert_ptr_equal(cl_buffer_find(&c->buffers, first, &next), b[i]);
		assert_ptr_equal(cl_buffer_find(&c->buffers, last, &next), b[i]);
		assert_ptr_not_equal(cl_buffer_find(&c->buffers, last + 1, &next), b[i]);
		assert_ptr_not_equal(cl_buffer_find(&c->buffers, first - 1, &next), b[i]);
	}
	assert_null(cl_buffer_find(&c->buffers, 4096, &next));
	assert_ptr_equal(cl_buffer_find(&c->buffers, next, &next), c->buffers.by_address[0]);
	assert_null(cl_buffer_find(&c->buffers, UINTPTR_MAX, &next));
	assert_true(next == UINTPTR_MAX);
}

/* What a child may do: get -ECHILD, and free. The parent's things stay as they are. */
static int child(struct xfer_buf *b, struct xfer_ep *ep)
{
	struct xfer_event e;
	struct xfer_table *t;
	struct xfer_buf *b2;
	struct iovec v = { &e, 1 };

	if (xfer_poll(c, &e, 1, 0) != -ECHILD || xfer_client_fd(c) != -ECHILD)
		return 1;
	if (xfer_buf_new(c, 1, 0, &b2) != -ECHILD || xfer_query(c, "status", &t) != -ECHILD)
		return 2;
	if (xfer_post_send(ep, &v, 1, 0, 0, NULL) != -ECHILD || xfer_flush(c) != -ECHILD)
		return 3;
	if (xfer_client_arm(c) != -ECHILD || xfer_disconnect(ep) != -ECHILD)
		return 4;
	if (!strstr(sentence(), "belongs to the parent"))
		return 5;
	if (xfer_buf_free(b) != -ECHILD)
		return 6;
	xfer_ep_free(ep);
	xfer_client_free(c);
	return 0;
}

static void forked_children(void **state)
{
	struct xfer_ep *ep = fake_ep(&fake, c, true);
	struct xfer_buf *b;
	uint8_t *data;
	int status;
	pid_t pid;

	(void)state;
	assert_int_equal(xfer_buf_new(c, 4096, 0, &b), 0);
	data = xfer_buf_data(b);
	pid = fork();
	if (pid == 0)
		_exit(child(b, ep));
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	pid = fork();
	if (pid == 0) {
		/* Not inherited: a child that touches it ends. */
		signal(SIGSEGV, SIG_DFL);
		*data = 1;
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(status != 0);
	assert_int_equal(data[0], 0);
	assert_int_equal(fake.seen[XP__CLIENT_MESSAGE__BODY_BUFFER_REMOVE], 0);
	assert_int_equal(fake.seen[XP__CLIENT_MESSAGE__BODY_ENDPOINT_FREE], 0);
	assert_int_equal(xfer_buf_free(b), 0);
	xfer_ep_free(ep);
	assert_int_equal(fake.seen[XP__CLIENT_MESSAGE__BODY_ENDPOINT_FREE], 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(memory_is_shared_and_sealed, setup, teardown),
		cmocka_unit_test_setup_teardown(sizes_and_flags, setup, teardown),
		cmocka_unit_test_setup_teardown(a_refused_buffer_leaves_nothing, setup, teardown),
		cmocka_unit_test_setup_teardown(a_busy_buffer_stays, setup, teardown),
		cmocka_unit_test_setup_teardown(gone_daemons_buffers_stay_mapped, setup, teardown),
		cmocka_unit_test_setup_teardown(huge_pages, setup, teardown),
		cmocka_unit_test_setup_teardown(own_memfds, setup, teardown),
		cmocka_unit_test_setup_teardown(unfit_descriptors, setup, teardown),
		cmocka_unit_test_setup_teardown(found_by_address, setup, teardown),
		cmocka_unit_test_setup_teardown(forked_children, setup, teardown),
	};

	return cmocka_run_group_tests_name("client: buffers", tests, NULL, NULL);
}
