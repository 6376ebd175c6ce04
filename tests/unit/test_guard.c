/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The SIGBUS guard, on a memory file that its owner shortened under the map.
 */
#define _GNU_SOURCE 1
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "daemon/fabric/region.h"

#define PAGE 4096u
#define ROUNDS 200

/* cmocka has put a SIGBUS handler of its own in place for the test. */
static void guarded(void **state)
{
	(void)state;
	assert_int_equal(fabric_guard_init(), 0);
}

/* Two pages of which the second has vanished. */
static uint8_t *half_gone(void)
{
	int fd = memfd_create("half", MFD_CLOEXEC);
	uint8_t *p;

	if (fd < 0 || ftruncate(fd, 2 * PAGE) < 0)
		abort();
	p = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (p == MAP_FAILED)
		abort();
	memset(p, 'x', 2 * PAGE);
	if (ftruncate(fd, PAGE) < 0)
		abort();
	close(fd);
	return p;
}

static void copies(void **state)
{
	uint8_t a[100], b[100];
	const void *fault = NULL;

	guarded(state);
	for (size_t i = 0; i < sizeof(a); i++)
		a[i] = (uint8_t)i;
	assert_int_equal(fabric_guard_copy(b, a, sizeof(a), &fault), 0);
	assert_memory_equal(a, b, sizeof(a));
	/* overlapping, as memmove() */
	assert_int_equal(fabric_guard_copy(a + 10, a, 90, &fault), 0);
	assert_memory_equal(a + 10, b, 90);
	assert_int_equal(fabric_guard_copy(b, a, 0, &fault), 0);
	assert_null(fault);
}

static void survives_faults(void **state)
{
	uint8_t *p = half_gone(), buf[2 * PAGE];
	const void *fault;

	guarded(state);
	/* Again and again: the signal must not stay blocked. */
	for (int i = 0; i < 3; i++) {
		fault = NULL;
		assert_int_equal(fabric_guard_copy(buf, p, 2 * PAGE, &fault), -1);
		assert_in_range((uintptr_t)fault, (uintptr_t)p + PAGE, (uintptr_t)p + 2 * PAGE - 1);
		fault = NULL;
		assert_int_equal(fabric_guard_copy(p + PAGE + 5, buf, 10, &fault), -1);
		assert_in_range((uintptr_t)fault, (uintptr_t)p + PAGE, (uintptr_t)p + 2 * PAGE - 1);
		assert_int_equal(fabric_guard_copy(buf, p, PAGE, &fault), 0);
		assert_int_equal(buf[PAGE - 1], 'x');
	}
	munmap(p, 2 * PAGE);
}

static void *fault_often(void *arg)
{
	uint8_t *p = half_gone(), buf[64];
	const void *fault;
	intptr_t seen = 0;

	(void)arg;
	for (int i = 0; i < ROUNDS; i++) {
		if (fabric_guard_copy(buf, p + PAGE + i, sizeof(buf), &fault) == -1 &&
		    (const uint8_t *)fault >= p + PAGE && (const uint8_t *)fault < p + 2 * PAGE)
			seen++;
		if (fabric_guard_copy(buf, p + i, sizeof(buf), &fault) == 0)
			seen++;
	}
	munmap(p, 2 * PAGE);
	return (void *)seen;
}

static void each_thread_has_its_own(void **state)
{
	pthread_t threads[4];
	void *seen;

	guarded(state);
	for (int i = 0; i < 4; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, fault_often, NULL), 0);
	for (int i = 0; i < 4; i++) {
		pthread_join(threads[i], &seen);
		assert_int_equal((intptr_t)seen, 2 * ROUNDS);
	}
}

/* ---- what must stay deadly, each in a child of its own */

static void touch(void)
{
	volatile uint8_t *p = half_gone();

	(void)p[PAGE];
}

static void touch_after_a_guarded_fault(void)
{
	uint8_t *p = half_gone(), buf[8];
	const void *fault;

	fabric_guard_copy(buf, p + PAGE, sizeof(buf), &fault);
	touch();
}

static void be_killed(void)
{
	kill(getpid(), SIGBUS);
}

static void *copy_for_ever(void *arg)
{
	uint8_t *p = arg;
	static uint8_t buf[PAGE];
	const void *fault;

	for (;;)
		fabric_guard_copy(buf, p, PAGE, &fault);
	return NULL;
}

static void touch_while_another_copies(void)
{
	pthread_t t;

	if (pthread_create(&t, NULL, copy_for_ever, half_gone()) == 0)
		touch();
}

static void dies_of_sigbus(void (*how)(void))
{
	static const struct rlimit no_core = { 0, 0 };
	int status;
	pid_t pid;

	fflush(NULL);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		setrlimit(RLIMIT_CORE, &no_core);
		alarm(20);
		how();
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFSIGNALED(status));
	assert_int_equal(WTERMSIG(status), SIGBUS);
}

static void other_faults_kill(void **state)
{
	guarded(state);
	dies_of_sigbus(touch);
	dies_of_sigbus(touch_after_a_guarded_fault);
	dies_of_sigbus(touch_while_another_copies);
	dies_of_sigbus(be_killed);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(copies),
		cmocka_unit_test(survives_faults),
		cmocka_unit_test(each_thread_has_its_own),
		cmocka_unit_test(other_faults_kill),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
