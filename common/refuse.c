/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "common/refuse.h"

#include <stdarg.h>
#include <stdio.h>

int xc_refuse(char *text, size_t size, int status, const char *format, ...)
{
	va_list ap;

	va_start(ap, format);
	vsnprintf(text, size, format, ap);
	va_end(ap);
	return -status;
}
