/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef FABRIC_TEST_SABOTAGE_H
#define FABRIC_TEST_SABOTAGE_H

/*
 * Faults put between a fabric and the tests, to prove that the tests would see them: a fabric's
 * table with some calls replaced, and a few that the rig itself commits. Those whose name begins
 * with "iwarp:" are inside that fabric (daemon/fabric/saboteur.h).
 */

#include <stdbool.h>

#include "daemon/fabric/fabric.h"

/* Switches one on. */
void sabotage(const char *name);
bool sabotaged(const char *name);
/* A fault that is none on a fabric of this kind: then the test has nothing to see, and says so. */
bool sabotage_is_void(const char *name, bool is_void);

/* The table with whatever is switched on. */
const struct fabric_ops *sabotage_ops(const struct fabric_ops *real);

#endif
