/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef XD_SABOTAGE_H
#define XD_SABOTAGE_H

/*
 * Faults built in on purpose, one per mechanism that an invariant rests on, compiled into test
 * builds alone: a test names one, and must then see the alarm. XD_SABOTAGE() is constant false in a
 * product build.
 */

#ifdef XD_SABOTEURS
#include <stdbool.h>
#include <string.h>

extern const char *xd_saboteur; /* NULL: none at work */

static inline bool xd_sabotage(const char *name)
{
	return xd_saboteur && strcmp(xd_saboteur, name) == 0;
}
#define XD_SABOTAGE(name) xd_sabotage(name)
#else
#define XD_SABOTAGE(name) 0
#endif

#endif
