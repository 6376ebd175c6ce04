/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef FABRIC_ADDRESS_H
#define FABRIC_ADDRESS_H

/* Addresses of ours and of sockets, and the host's routes. For all fabrics. */

#include <sys/socket.h>

#include "common/addr.h"

/* IPv4 in IPv6's clothes (::ffff:a.b.c.d) is IPv4. */
struct xc_addr fabric_plain_address(const struct xc_addr *a);

/* Returns the size of what was written; a->family is 4 or 6. */
socklen_t fabric_to_sockaddr(const struct xc_addr *a, struct sockaddr_storage *ret);
/* family 0 where it is neither IPv4 nor IPv6. */
void fabric_from_sockaddr(const struct sockaddr *sa, struct xc_addr *ret);

/*
 * The address (port 0) that the host's routes begin at on the way to dst, whose port is not 0. No
 * packet is sent. 0, or -errno of connect(2).
 */
int fabric_source(const struct xc_addr *dst, struct xc_addr *ret);

#endif
