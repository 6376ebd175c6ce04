/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef XC_REFUSE_H
#define XC_REFUSE_H

#include <stddef.h>

/* Writes why into `text`, cut to its size. Returns -status: `return xc_refuse(…, EINVAL, …);` */
int xc_refuse(char *text, size_t size, int status, const char *format, ...)
	__attribute__((format(printf, 4, 5)));

#endif
