/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef XC_CLEANUP_H
#define XC_CLEANUP_H

/*
 * Scope-bound release. An early return in an error path then cannot leak, which
 * matters most in code that only runs when something else has already failed.
 */

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#define xc_cleanup(fn) __attribute__((__cleanup__(fn)))

static inline void xc_freep(void *p)
{
	free(*(void **)p);
}

/* errno survives, so that `return -errno` after an implicit close is still true. */
static inline void xc_closep(int *fd)
{
	int saved = errno;

	if (*fd >= 0)
		close(*fd);
	errno = saved;
}

#define xc_auto_free xc_cleanup(xc_freep)
#define xc_auto_close xc_cleanup(xc_closep)

/* Hand a value over to the caller and disarm its cleanup. */
#define xc_take_ptr(p)                                                                             \
	({                                                                                         \
		__typeof__(p) xc_taken_ = (p);                                                     \
		(p) = NULL;                                                                        \
		xc_taken_;                                                                         \
	})

static inline int xc_take_fd(int *fd)
{
	int taken = *fd;

	*fd = -1;
	return taken;
}

#endif
