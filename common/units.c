/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "common/units.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "common/checked.h"

struct unit {
	const char *name;
	uint64_t factor;
};

/* "1GB" is missing on purpose: to half of its readers it is 10^9. */
static const struct unit size_units[] = {
	{ "", 1 },
	{ "K", UINT64_C(1) << 10 },
	{ "KiB", UINT64_C(1) << 10 },
	{ "M", UINT64_C(1) << 20 },
	{ "MiB", UINT64_C(1) << 20 },
	{ "G", UINT64_C(1) << 30 },
	{ "GiB", UINT64_C(1) << 30 },
	{ "T", UINT64_C(1) << 40 },
	{ "TiB", UINT64_C(1) << 40 },
	{ NULL, 0 },
};

static const struct unit time_units[] = {
	{ "", 1000 },
	{ "ms", 1 },
	{ "s", 1000 },
	{ "m", 60 * 1000 },
	{ "h", 3600 * 1000 },
	{ NULL, 0 },
};

static int parse(const char *text, const struct unit *units, uint64_t *ret)
{
	uint64_t value = 0;
	bool fits = true;

	if (*text < '0' || *text > '9')
		return -EINVAL;
	for (; *text >= '0' && *text <= '9'; text++)
		fits = fits && xc_mul_u64(value, 10, &value) &&
		       xc_add_u64(value, (uint64_t)(*text - '0'), &value);
	while (units->name && strcmp(units->name, text) != 0)
		units++;
	if (!units->name)
		return -EINVAL;
	if (!fits || !xc_mul_u64(value, units->factor, &value))
		return -ERANGE;
	*ret = value;
	return 0;
}

int xc_size_parse(const char *text, uint64_t *ret_bytes)
{
	return parse(text, size_units, ret_bytes);
}

int xc_time_parse(const char *text, uint64_t *ret_ms)
{
	return parse(text, time_units, ret_ms);
}

const char *xc_size_format(uint64_t bytes, char *buf, size_t size)
{
	static const char *const names[] = { "B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB" };
	unsigned int i = 0;
	uint64_t whole, tenths;

	while (i + 1 < XC_ARRAY_SIZE(names) && bytes >> (10 * (i + 1)))
		i++;
	whole = bytes >> (10 * i);
	/* Cut, not rounded: 1023.99 KiB must not read "1024.0 KiB". */
	tenths = i ? ((bytes >> (10 * (i - 1))) & 1023) * 10 / 1024 : 0;
	if (tenths)
		snprintf(buf, size, "%" PRIu64 ".%" PRIu64 " %s", whole, tenths, names[i]);
	else
		snprintf(buf, size, "%" PRIu64 " %s", whole, names[i]);
	return buf;
}

#define NEAREST_MAX 48

static unsigned int min3(unsigned int a, unsigned int b, unsigned int c)
{
	a = a < b ? a : b;
	return a < c ? a : c;
}

/* Edits between two short words; two swapped neighbours are one edit, letter case is none. */
static unsigned int distance(const char *a, size_t n, const char *b, size_t m)
{
	unsigned int row[3][NEAREST_MAX + 1];

	for (size_t j = 0; j <= m; j++)
		row[0][j] = (unsigned int)j;
	for (size_t i = 1; i <= n; i++) {
		unsigned int *now = row[i % 3], *last = row[(i - 1) % 3];
		unsigned int *before = row[(i + 1) % 3]; /* of i - 2 */

		now[0] = (unsigned int)i;
		for (size_t j = 1; j <= m; j++) {
			int x = tolower((unsigned char)a[i - 1]);
			int y = tolower((unsigned char)b[j - 1]);

			now[j] = min3(last[j] + 1, now[j - 1] + 1, last[j - 1] + (x != y));
			if (i > 1 && j > 1 && x == tolower((unsigned char)b[j - 2]) &&
			    y == tolower((unsigned char)a[i - 2]))
				now[j] = min3(now[j], before[j - 2] + 1, now[j]);
		}
	}
	return row[n % 3][m];
}

const char *xc_nearest(const char *text, const char *const *names)
{
	size_t n = strlen(text);
	unsigned int best = (unsigned int)(n / 3 > 1 ? n / 3 : 1) + 1;
	const char *nearest = NULL;

	if (n == 0 || n > NEAREST_MAX)
		return NULL;
	for (; *names; names++) {
		size_t m = strlen(*names);
		unsigned int d;

		if (m == 0 || m > NEAREST_MAX)
			continue;
		d = distance(text, n, *names, m);
		/* A word of one letter is one edit from every other: that is no likeness. */
		if (d < best && d < n) {
			best = d;
			nearest = *names;
		}
	}
	return nearest;
}
