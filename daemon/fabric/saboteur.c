/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "daemon/fabric/saboteur.h"

#ifdef XD_SABOTEURS
const char *fabric_saboteur;
#endif
