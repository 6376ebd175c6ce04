/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef XC_ASSERT_H
#define XC_ASSERT_H

/*
 * An assertion is for our own bugs, never for input: what a client or a peer can
 * cause gets an error. It stays in release builds: a daemon that goes on with a
 * broken table of keys is worse than one that is restarted.
 */

#include <stdio.h>
#include <stdlib.h>

#define xc_assert(cond)                                                                            \
	do {                                                                                       \
		if (__builtin_expect(!(cond), 0)) {                                                \
			fprintf(stderr, "<0>%s:%d: %s: broken: %s\n", __FILE__, __LINE__,          \
				__func__, #cond);                                                  \
			abort();                                                                   \
		}                                                                                  \
	} while (0)

/*
 * A struct that others hold a pointer to begins with a magic number, so that a
 * stale or mistaken pointer is caught at the first use and not at the last.
 */
#define XC_CHECK(ptr, magic_value) xc_assert((ptr) != NULL && (ptr)->magic == (magic_value))

#endif
