/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "daemon/fabric/region.h"

#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <string.h>
#include <ucontext.h>

/*
 * What the handler needs to know of the copy that this thread is in. Initial-exec: a lazily
 * allocated TLS block would have the handler call malloc.
 */
struct guard {
	sigjmp_buf escape;
	const void *to, *from;
	size_t size;
	const void *fault;
	volatile sig_atomic_t active;
};

static _Thread_local struct guard guard __attribute__((tls_model("initial-exec")));

/* Does the block of bytes that the kernel reports meet [start, start + size)? */
static bool meets(uintptr_t fault, uintptr_t block, const void *start, size_t size)
{
	uintptr_t s = (uintptr_t)start;

	return fault + block > s && fault < s + size;
}

/*
 * A poisoned page is reported by its block (si_addr_lsb), which may begin before the copy does; all
 * else by the byte. A signal that a process sent has no address.
 */
static bool is_ours(const siginfo_t *info)
{
	uintptr_t fault = (uintptr_t)info->si_addr, block = 1;

	if (!guard.active || info->si_code <= 0)
		return false;
	if (info->si_code == BUS_MCEERR_AR || info->si_code == BUS_MCEERR_AO) {
		block = (uintptr_t)1 << info->si_addr_lsb;
		fault &= ~(block - 1);
	}
	return meets(fault, block, guard.to, guard.size) ||
	       meets(fault, block, guard.from, guard.size);
}

/*
 * The signal mask is put back here, on a fault, rather than saved by sigsetjmp() at every copy:
 * that would be a system call. SA_NODEFER alone does not do it: the thread sanitizer runs handlers
 * with all signals blocked.
 */
static void on_sigbus(int sig, siginfo_t *info, void *context)
{
	const ucontext_t *interrupted = context;
	struct sigaction dfl = { .sa_handler = SIG_DFL };

	if (is_ours(info)) {
		guard.active = 0;
		guard.fault = info->si_addr;
		pthread_sigmask(SIG_SETMASK, &interrupted->uc_sigmask, NULL);
		siglongjmp(guard.escape, 1);
	}
	/*
	 * A fault happens again when we return, now with the default action and its true address.
	 */
	sigaction(sig, &dfl, NULL);
	if (info->si_code <= 0)
		raise(sig);
}

int fabric_guard_init(void)
{
	struct sigaction sa = { .sa_sigaction = on_sigbus, .sa_flags = SA_SIGINFO | SA_NODEFER };

	sigemptyset(&sa.sa_mask);
	return sigaction(SIGBUS, &sa, NULL) < 0 ? -errno : 0;
}

int fabric_guard_copy(void *to, const void *from, size_t size, const void **ret_fault)
{
	guard.to = to;
	guard.from = from;
	guard.size = size;
	if (sigsetjmp(guard.escape, 0)) {
		*ret_fault = guard.fault;
		return -1;
	}
	/* The compiler must not move the copy out of where the handler takes it for ours. */
	guard.active = 1;
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	memmove(to, from, size);
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	guard.active = 0;
	return 0;
}
