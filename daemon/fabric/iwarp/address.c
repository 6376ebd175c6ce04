/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>

#include "common/assert.h"
#include "daemon/fabric/iwarp/private.h"

static bool is_interface_address(const struct ifaddrs *i, const struct xc_addr *a)
{
	if (!i->ifa_addr)
		return false;
	if (a->family == 4 && i->ifa_addr->sa_family == AF_INET) {
		struct sockaddr_in in;

		memcpy(&in, i->ifa_addr, sizeof(in));
		return memcmp(&in.sin_addr, a->ip, 4) == 0;
	}
	if (a->family == 6 && i->ifa_addr->sa_family == AF_INET6) {
		struct sockaddr_in6 in6;

		memcpy(&in6, i->ifa_addr, sizeof(in6));
		if (a->scope && in6.sin6_scope_id && a->scope != in6.sin6_scope_id)
			return false;
		return memcmp(&in6.sin6_addr, a->ip, 16) == 0;
	}
	return false;
}

/* Asked anew each time: addresses come and go while a daemon lives. */
int iwarp_address_is_local(const struct xc_addr *a)
{
	struct ifaddrs *all;
	bool found = false;

	if (a->family != 4 && a->family != 6)
		return -EAFNOSUPPORT;
	/* All of 127.0.0.0/8 is the host's, of which interfaces show one. */
	if (xc_addr_is_loopback(a))
		return 0;
	if (getifaddrs(&all) < 0)
		return -errno;
	for (const struct ifaddrs *i = all; i && !found; i = i->ifa_next)
		found = is_interface_address(i, a);
	freeifaddrs(all);
	return found ? 0 : -EADDRNOTAVAIL;
}

static int no_route(char *ret_why, size_t size, const char *why)
{
	snprintf(ret_why, size, "%s", why);
	return -ENETUNREACH;
}

int iwarp_route(struct fabric *f, const struct xc_addr *dst, char *ret_why, size_t size)
{
	struct xc_addr plain = fabric_plain_address(dst), from;
	char to_text[XC_ADDR_TEXT_MAX], from_text[XC_ADDR_TEXT_MAX];
	int err;

	XC_CHECK(f, IWARP_FABRIC_MAGIC);
	if ((plain.family != 4 && plain.family != 6) || xc_addr_is_any(&plain))
		return no_route(ret_why, size,
				"the address names no host that could be connected to");
	err = iwarp_address_is_local(&plain);
	if (err && err != -EADDRNOTAVAIL)
		return no_route(ret_why, size, "the addresses of this host cannot be read");
	if (!err) {
		snprintf(ret_why, size, "both ends are on this host: %s",
			 f->no_shortcut ? "iWARP over TCP"
			 : f->no_wire	? "one copy inside the daemon"
				      : "one copy inside the daemon, or iWARP over TCP to another");
		return 0;
	}
	if (f->no_wire)
		return no_route(ret_why, size,
				"it is not an address of this host, and this daemon uses no TCP");
	plain.port = plain.port ? plain.port : 9; /* connect(2) wants one */
	err = fabric_source(&plain, &from);
	*strrchr(xc_addr_format(&plain, to_text), ':') = '\0';
	if (err) {
		snprintf(ret_why, size, "there is no route to %s: %s", to_text, strerror(-err));
		return -ENETUNREACH;
	}
	*strrchr(xc_addr_format(&from, from_text), ':') = '\0';
	snprintf(ret_why, size, "iWARP over TCP, from %s to %s", from_text, to_text);
	return 0;
}
