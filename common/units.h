/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef XC_UNITS_H
#define XC_UNITS_H

/* Sizes and times as people write them. */

#include <stddef.h>
#include <stdint.h>

/* Binary: "4096", "64K", "64KiB", "1M", "1GiB", "2T"; no sign, no fraction. 0, -EINVAL, -ERANGE. */
int xc_size_parse(const char *text, uint64_t *ret_bytes);

/* "200ms", "5s", "5", "2m", "1h"; a bare number is seconds. 0, -EINVAL, -ERANGE. */
int xc_time_parse(const char *text, uint64_t *ret_ms);

/* "1.5 GiB", "812 B": for people. Returns buf. */
const char *xc_size_format(uint64_t bytes, char *buf, size_t size);

/*
 * The name among `names` (ended by NULL) nearest to `text`, or NULL where none is near
 * enough to be a likely slip (at most a third of the letters differ, and at least 1).
 */
const char *xc_nearest(const char *text, const char *const *names);

#endif
