/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef FABRIC_SABOTEUR_H
#define FABRIC_SABOTEUR_H

/*
 * Faults that tests switch on to prove that they would see them: a protection check whose removal
 * no test notices is not tested. Compiled in with XD_SABOTEURS only; otherwise each is the constant
 * false.
 *
 * The names: widen-bound, skip-stream-check, skip-pd-check, skip-rights, skip-local-rights,
 * ignore-key, reuse-key-byte, reuse-index, skip-invalidate, skip-recheck, check-first-quantum,
 * widen-ranges, first-range, ignore-seams, late-inline; of verbs: trust-the-device.
 */

#include <stdbool.h>

#ifdef XD_SABOTEURS
#include <string.h>

extern const char *fabric_saboteur; /* NULL = none */
#define FABRIC_SABOTAGE(name) (fabric_saboteur && strcmp(fabric_saboteur, (name)) == 0)
#else
#define FABRIC_SABOTAGE(name) false
#endif

#endif
