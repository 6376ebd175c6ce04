/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef XP_VARINT_H
#define XP_VARINT_H

/*
 * protobuf's number, for the two messages that are written by hand on the hot path: the library's
 * Submit and the daemon's Completions.
 */

#include <stddef.h>
#include <stdint.h>

/* Writes 1 to 10 bytes. Returns how many. */
static inline size_t xp_put_varint(uint8_t *to, uint64_t value)
{
	size_t n = 0;

	while (value >= 0x80) {
		to[n++] = (uint8_t)(value | 0x80);
		value >>= 7;
	}
	to[n++] = (uint8_t)value;
	return n;
}

#endif
