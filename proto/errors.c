/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#define _GNU_SOURCE 1 /* strerrordesc_np(3) */
#include "proto/errors.h"

#include <limits.h>
#include <stddef.h>
#include <string.h>

const char *xp_phrase(int status)
{
	int code = status < 0 && status != INT_MIN ? -status : status;

	switch (code) {
#define PHRASE(name, number, text)                                                                 \
	case number:                                                                               \
		return text;
		XP_ERRORS(PHRASE)
#undef PHRASE
	default:
		return code >= 0 ? strerrordesc_np(code) : NULL;
	}
}
