/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef XD_PROFILE_H
#define XD_PROFILE_H

#include <stddef.h>

struct fabric_caps;

/* For xd_core_set_likeness(): the profiles of the fabric in user space. */
int xd_profile_caps(const char *profile, struct fabric_caps *caps, char *ret_why, size_t size);

#endif
