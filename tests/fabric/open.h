/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef FABRIC_TEST_OPEN_H
#define FABRIC_TEST_OPEN_H

/* The one place that knows which fabrics there are. */

#include <stdbool.h>

#include "common/addr.h"

struct open_options {
	const char *fabric;
	bool crc; /* "wire" */
	const char *profile; /* iwarp's; NULL = none */
	struct xc_addr server, client; /* where to listen, and from where to connect */
	char state_dir[128]; /* "": one that is made, and removed in the end */
	bool keeps_state;
};

/* One a line. */
void open_list_profiles(void);
/* Of which faults can be switched on inside. */
bool open_is_iwarp(const struct open_options *o);
bool open_knows(const struct open_options *o);
/* In the parent, before and after all children. */
void open_prepare(struct open_options *o);
void open_finish(struct open_options *o);
/* In a child: the instances that own the two addresses become the rig's. */
void open_sides(const struct open_options *o);

#endif
