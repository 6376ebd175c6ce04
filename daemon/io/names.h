/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef XD_IO_NAMES_H
#define XD_IO_NAMES_H

#include "common/addr.h"

/*
 * The addresses of a host name (port 0), in the order to try them (getaddrinfo(3)), at most max.
 * How many, or -ENOENT where the name has none, -EAGAIN where the name servers do not answer,
 * -ENOMEM, -EIO. Blocks, for as long as resolv.conf(5) says. Any thread.
 */
int xd_resolve(const char *host, struct xc_addr *ret, int max);

#endif
