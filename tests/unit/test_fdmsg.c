/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#define _GNU_SOURCE 1
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/checked.h"
#include "proto/fdmsg.h"
#include "tests/unit/cm.h"

struct pair {
	int here, there;
	int fds_before;
};

static int count_fds(void)
{
	DIR *d = opendir("/proc/self/fd");
	int n = 0;

	assert_non_null(d);
	while (readdir(d))
		n++;
	closedir(d);
	return n;
}

static int setup(void **state)
{
	static struct pair p;
	int fd[2];

	p.fds_before = count_fds();
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fd) < 0)
		return -1;
	p.here = fd[0];
	p.there = fd[1];
	*state = &p;
	return 0;
}

/* No test may leave a descriptor behind. */
static int teardown(void **state)
{
	struct pair *p = *state;

	close(p->here);
	if (p->there >= 0)
		close(p->there);
	return count_fds() == p->fds_before ? 0 : -1;
}

static void close_there(struct pair *p)
{
	close(p->there);
	p->there = -1;
}

static void close_all(struct xp_fds *fds)
{
	while (fds->count > 0)
		assert_int_equal(close(fds->fd[--fds->count]), 0);
}

/* Without our own checks: as a hostile client would. */
static void send_raw(int sock, const void *buf, size_t size, const int *fds, size_t n)
{
	char control[CMSG_SPACE(sizeof(int) * XP_FDS_MAX)] __attribute__((aligned(8)));
	struct iovec iov = { .iov_base = (void *)(uintptr_t)buf, .iov_len = size };
	struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1 };

	if (n > 0) {
		struct cmsghdr *c = (void *)control;

		memset(control, 0, sizeof(control));
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(sizeof(int) * n);
		memcpy(CMSG_DATA(c), fds, sizeof(int) * n);
		m.msg_control = control;
		m.msg_controllen = CMSG_SPACE(sizeof(int) * n);
	}
	assert_int_equal(sendmsg(sock, &m, MSG_NOSIGNAL), size);
}

static ssize_t receive(struct pair *p, char *buf, size_t size, struct xp_fds *fds)
{
	memset(fds, 0x5a, sizeof(*fds));
	return xp_fdmsg_recv(p->here, buf, size, fds);
}

static void packets_keep_their_borders(void **state)
{
	struct pair *p = *state;
	struct xp_fds fds;
	char buf[16];

	assert_int_equal(receive(p, buf, sizeof(buf), &fds), -EAGAIN);
	assert_int_equal(fds.count, 0);
	assert_int_equal(xp_fdmsg_send(p->there, "one", 3, NULL, 0), 0);
	assert_int_equal(xp_fdmsg_send(p->there, "three", 5, NULL, 0), 0);
	assert_int_equal(receive(p, buf, sizeof(buf), &fds), 3);
	assert_memory_equal(buf, "one", 3);
	assert_int_equal(receive(p, buf, sizeof(buf), &fds), 5);
	assert_memory_equal(buf, "three", 5);
	assert_int_equal(receive(p, buf, sizeof(buf), &fds), -EAGAIN);
}

static void the_largest_packet_fits(void **state)
{
	static char out[XP_PACKET_BYTES_MAX + 1], in[XP_PACKET_BYTES_MAX];
	struct pair *p = *state;
	struct xp_fds fds;

	for (size_t i = 0; i < sizeof(out); i++)
		out[i] = (char)(i * 7);
	assert_int_equal(xp_fdmsg_send(p->there, out, sizeof(in), NULL, 0), 0);
	assert_int_equal(receive(p, in, sizeof(in), &fds), sizeof(in));
	assert_memory_equal(in, out, sizeof(in));
	assert_int_equal(xp_fdmsg_send(p->there, out, sizeof(out), NULL, 0), -EMSGSIZE);
	assert_int_equal(xp_fdmsg_send(p->there, out, 0, NULL, 0), -EINVAL);
	assert_int_equal(xp_fdmsg_send(p->there, out, 1, NULL, -1), -EINVAL);
	assert_int_equal(xp_fdmsg_send(p->there, out, 1, NULL, XP_FDS_MAX + 1), -EINVAL);
	assert_int_equal(receive(p, in, sizeof(in), &fds), -EAGAIN);
}

static void descriptors_come_with_their_packet(void **state)
{
	struct pair *p = *state;
	struct xp_fds fds;
	char buf[16];
	int pipefd[2];

	assert_int_equal(pipe(pipefd), 0);
	assert_int_equal(xp_fdmsg_send(p->there, "a", 1, NULL, 0), 0);
	assert_int_equal(xp_fdmsg_send(p->there, "b", 1, &pipefd[1], 1), 0);
	close(pipefd[1]);
	assert_int_equal(receive(p, buf, sizeof(buf), &fds), 1);
	assert_int_equal(fds.count, 0);
	assert_int_equal(receive(p, buf, sizeof(buf), &fds), 1);
	assert_int_equal(buf[0], 'b');
	assert_int_equal(fds.count, 1);
	assert_int_equal(fcntl(fds.fd[0], F_GETFD), FD_CLOEXEC);
	assert_int_equal(write(fds.fd[0], "through", 7), 7);
	assert_int_equal(read(pipefd[0], buf, sizeof(buf)), 7);
	close_all(&fds);
	close(pipefd[0]);
}

static void as_many_as_the_kernel_takes(void **state)
{
	struct pair *p = *state;
	int many[XP_FDS_MAX];
	struct xp_fds fds;
	char buf[16];

	for (int i = 0; i < XP_FDS_MAX; i++)
		many[i] = p->there;
	assert_int_equal(xp_fdmsg_send(p->there, "x", 1, many, XP_FDS_MAX), 0);
	assert_int_equal(receive(p, buf, sizeof(buf), &fds), 1);
	assert_int_equal(fds.count, XP_FDS_MAX);
	close_all(&fds);
}

static void too_long_a_packet_gives_its_descriptors(void **state)
{
	struct pair *p = *state;
	struct xp_fds fds;
	char buf[4];

	send_raw(p->there, "12345", 5, &p->there, 1);
	assert_int_equal(receive(p, buf, sizeof(buf), &fds), -EMSGSIZE);
	assert_int_equal(fds.count, 1);
	close_all(&fds);
	send_raw(p->there, "1234", 4, NULL, 0);
	assert_int_equal(receive(p, buf, sizeof(buf), &fds), 4);
}

static void an_empty_packet_is_no_end(void **state)
{
	struct pair *p = *state;
	struct xp_fds fds;
	char buf[4];

	send_raw(p->there, "", 0, NULL, 0);
	send_raw(p->there, "", 0, &p->there, 1);
	send_raw(p->there, "x", 1, NULL, 0);
	assert_int_equal(receive(p, buf, sizeof(buf), &fds), -EPROTO);
	assert_int_equal(fds.count, 0);
	assert_int_equal(receive(p, buf, sizeof(buf), &fds), -EPROTO);
	assert_int_equal(fds.count, 1);
	close_all(&fds);
	assert_int_equal(receive(p, buf, sizeof(buf), &fds), 1);
	assert_int_equal(receive(p, buf, sizeof(buf), &fds), -EAGAIN);
}

static void the_end_comes_after_the_last_packet(void **state)
{
	struct pair *p = *state;
	struct xp_fds fds;
	char buf[4];

	send_raw(p->there, "x", 1, NULL, 0);
	close_there(p);
	assert_int_equal(receive(p, buf, sizeof(buf), &fds), 1);
	assert_int_equal(receive(p, buf, sizeof(buf), &fds), 0);
	assert_int_equal(receive(p, buf, sizeof(buf), &fds), 0);
	assert_int_equal(xp_fdmsg_send(p->here, "x", 1, NULL, 0), -EPIPE);
}

static void an_end_of_sending_is_an_end(void **state)
{
	struct pair *p = *state;
	struct xp_fds fds;
	char buf[4];

	assert_int_equal(shutdown(p->there, SHUT_WR), 0);
	assert_int_equal(receive(p, buf, sizeof(buf), &fds), 0);
}

/* The peer closes with something of ours unread: ECONNRESET, which must not eat its last words. */
static void a_reset_is_an_end_behind_what_was_sent(void **state)
{
	struct pair *p = *state;
	struct xp_fds fds;
	char buf[8];

	assert_int_equal(xp_fdmsg_send(p->here, "unread", 6, NULL, 0), 0);
	send_raw(p->there, "goodbye", 7, NULL, 0);
	close_there(p);
	assert_int_equal(receive(p, buf, sizeof(buf), &fds), 7);
	assert_int_equal(receive(p, buf, sizeof(buf), &fds), 0);
}

static void a_bare_reset_is_an_end(void **state)
{
	struct pair *p = *state;
	struct xp_fds fds;
	char buf[8];

	assert_int_equal(xp_fdmsg_send(p->here, "unread", 6, NULL, 0), 0);
	close_there(p);
	assert_int_equal(receive(p, buf, sizeof(buf), &fds), 0);
}

static void a_reset_while_sending_is_a_broken_pipe(void **state)
{
	struct pair *p = *state;

	assert_int_equal(xp_fdmsg_send(p->here, "unread", 6, NULL, 0), 0);
	close_there(p);
	assert_int_equal(xp_fdmsg_send(p->here, "x", 1, NULL, 0), -EPIPE);
	assert_int_equal(xp_fdmsg_send(p->here, "x", 1, NULL, 0), -EPIPE);
}

static void other_control_data_is_refused(void **state)
{
	struct pair *p = *state;
	int many[XP_FDS_MAX], on = 1;
	struct xp_fds fds;
	char buf[4];

	/* Credentials and a time stamp, and still room for all descriptors. */
	assert_int_equal(setsockopt(p->here, SOL_SOCKET, SO_PASSCRED, &on, sizeof(on)), 0);
	assert_int_equal(setsockopt(p->here, SOL_SOCKET, SO_TIMESTAMP, &on, sizeof(on)), 0);
	for (int i = 0; i < XP_FDS_MAX; i++)
		many[i] = p->there;
	send_raw(p->there, "x", 1, many, XP_FDS_MAX);
	assert_int_equal(receive(p, buf, sizeof(buf), &fds), -EPROTO);
	assert_int_equal(fds.count, XP_FDS_MAX);
	close_all(&fds);
}

/* Out of descriptors: the kernel delivers what it can, and says that it cut. */
static void cut_control_data_is_refused(void **state)
{
	struct pair *p = *state;
	struct rlimit old, low;
	struct xp_fds fds;
	int many[4];
	char buf[4];
	ssize_t n;

	for (size_t i = 0; i < XC_ARRAY_SIZE(many); i++)
		many[i] = p->there;
	send_raw(p->there, "x", 1, many, XC_ARRAY_SIZE(many));
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
	low = old;
	low.rlim_cur = (rlim_t)dup(p->here) + 1; /* one more than the lowest that is free */
	close((int)low.rlim_cur - 1);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
	n = receive(p, buf, sizeof(buf), &fds);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &old), 0);
	assert_int_equal(n, -EPROTO);
	assert_int_equal(fds.count, 1);
	close_all(&fds);
}

static void a_full_socket_is_no_error(void **state)
{
	static char out[4096];
	struct pair *p = *state;
	struct xp_fds fds;
	int sent = 0, r, got = 0;

	while ((r = xp_fdmsg_send(p->there, out, sizeof(out), &p->there, 1)) == 0)
		sent++;
	assert_int_equal(r, -EAGAIN);
	assert_true(sent > 0);
	while (receive(p, out, sizeof(out), &fds) == sizeof(out)) {
		assert_int_equal(fds.count, 1);
		close_all(&fds);
		got++;
	}
	assert_int_equal(got, sent);
}

static void what_has_no_descriptors_is_dropped(void **state)
{
	struct pair *p = *state;

	send_raw(p->there, "one", 3, NULL, 0);
	send_raw(p->there, "", 0, NULL, 0);
	send_raw(p->there, "two", 3, NULL, 0);
	assert_int_equal(shutdown(p->here, SHUT_RDWR), 0);
	assert_true(xp_fdmsg_drop(p->here));
}

/* Not even behind, or with, an empty packet; and they are there afterwards. */
static void descriptors_are_not_dropped(void **state)
{
	struct pair *p = *state;
	struct xp_fds fds;
	char buf[4];

	send_raw(p->there, "", 0, NULL, 0);
	send_raw(p->there, "", 0, &p->there, 1);
	assert_int_equal(shutdown(p->here, SHUT_RDWR), 0);
	assert_false(xp_fdmsg_drop(p->here));
	(void)xp_fdmsg_recv(p->here, buf, sizeof(buf), &fds);
	assert_int_equal(fds.count, 1);
	close_all(&fds);
	assert_true(xp_fdmsg_drop(p->here));
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
		TEST(packets_keep_their_borders),
		TEST(the_largest_packet_fits),
		TEST(descriptors_come_with_their_packet),
		TEST(as_many_as_the_kernel_takes),
		TEST(too_long_a_packet_gives_its_descriptors),
		TEST(an_empty_packet_is_no_end),
		TEST(the_end_comes_after_the_last_packet),
		TEST(an_end_of_sending_is_an_end),
		TEST(a_reset_is_an_end_behind_what_was_sent),
		TEST(a_bare_reset_is_an_end),
		TEST(a_reset_while_sending_is_a_broken_pipe),
		TEST(other_control_data_is_refused),
		TEST(cut_control_data_is_refused),
		TEST(a_full_socket_is_no_error),
		TEST(what_has_no_descriptors_is_dropped),
		TEST(descriptors_are_not_dropped),
	};

	return cmocka_run_group_tests_name("fdmsg", tests, NULL, NULL);
}
