/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef IWARP_BYTES_H
#define IWARP_BYTES_H

/* Big-endian numbers at any address. */

#include <stdint.h>

static inline uint16_t iwarp_get16(const uint8_t *at)
{
	return (uint16_t)(at[0] << 8 | at[1]);
}

static inline uint32_t iwarp_get32(const uint8_t *at)
{
	return (uint32_t)iwarp_get16(at) << 16 | iwarp_get16(at + 2);
}

static inline uint64_t iwarp_get64(const uint8_t *at)
{
	return (uint64_t)iwarp_get32(at) << 32 | iwarp_get32(at + 4);
}

static inline void iwarp_put16(uint8_t *at, uint16_t value)
{
	at[0] = (uint8_t)(value >> 8);
	at[1] = (uint8_t)value;
}

static inline void iwarp_put32(uint8_t *at, uint32_t value)
{
	iwarp_put16(at, (uint16_t)(value >> 16));
	iwarp_put16(at + 2, (uint16_t)value);
}

static inline void iwarp_put64(uint8_t *at, uint64_t value)
{
	iwarp_put32(at, (uint32_t)(value >> 32));
	iwarp_put32(at + 4, (uint32_t)value);
}

#endif
