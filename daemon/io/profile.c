/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "daemon/io/profile.h"

#include <errno.h>
#include <stdio.h>

#include "daemon/fabric/iwarp/profile.h"

int xd_profile_caps(const char *profile, struct fabric_caps *caps, char *ret_why, size_t size)
{
	const struct iwarp_profile *found = iwarp_profile_find(profile);
	size_t used;

	if (found) {
		iwarp_profile_apply(found, caps);
		return 0;
	}
	used = (size_t)snprintf(ret_why, size, "there is no profile '%.20s'; there are", profile);
	for (const struct iwarp_profile *p = iwarp_profiles; p->name && used < size; p++)
		used += (size_t)snprintf(ret_why + used, size - used, "%s %s",
					 p == iwarp_profiles ? "" : ",", p->name);
	return -ENOENT;
}
