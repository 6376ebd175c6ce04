/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef XC_CHECKED_H
#define XC_CHECKED_H

/*
 * Arithmetic on numbers that a stranger chose. Every offset and length from a
 * client or a peer goes through these before it is compared with a bound.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define xc_container_of(ptr, type, member)                                                         \
	((type *)(void *)((char *)(ptr)-offsetof(type, member)))
#define XC_ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))

static inline uint64_t xc_min_u64(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

static inline uint32_t xc_min_u32(uint32_t a, uint32_t b)
{
	return a < b ? a : b;
}

/* *ret = a + b; false, and *ret untouched, where that does not fit. */
static inline bool xc_add_u64(uint64_t a, uint64_t b, uint64_t *ret)
{
	uint64_t r;

	if (__builtin_add_overflow(a, b, &r))
		return false;
	*ret = r;
	return true;
}

/* *ret = a * b; false, and *ret untouched, where that does not fit. */
static inline bool xc_mul_u64(uint64_t a, uint64_t b, uint64_t *ret)
{
	uint64_t r;

	if (__builtin_mul_overflow(a, b, &r))
		return false;
	*ret = r;
	return true;
}

/* Does [offset, offset + length) lie within [0, size)? Never overflows. */
static inline bool xc_range_within(uint64_t offset, uint64_t length, uint64_t size)
{
	return offset <= size && length <= size - offset;
}

#endif
