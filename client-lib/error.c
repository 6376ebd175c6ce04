/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Codes, phrases, and the calling thread's last failure. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client-lib/internal.h"

#define SAME(name, number, text)                                                                   \
	_Static_assert((int)XFER_E_##name == (int)XP_E_##name, "one number for " #name);
XP_ERRORS(SAME)
#undef SAME

static _Thread_local struct {
	int status;
	char text[2 * CL_TEXT_MAX];
} last;

int cl_fail(int status, const char *format, ...)
{
	va_list args;

	last.status = status;
	va_start(args, format);
	vsnprintf(last.text, sizeof(last.text), format, args);
	va_end(args);
	return status;
}

XFER_API int xfer_last_error(const char **ret_text)
{
	if (ret_text)
		*ret_text = last.text;
	return last.status;
}

XFER_API const char *xfer_strerror(int status)
{
	const char *phrase = xp_phrase(status);

	return phrase ? phrase : "an unknown status";
}

XFER_API const char *xfer_version(void)
{
	return XFER_VERSION;
}
