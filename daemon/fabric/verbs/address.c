/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>

#include "common/assert.h"
#include "daemon/fabric/address.h"
#include "daemon/fabric/verbs/private.h"
#include "proto/errors.h"

/* rdma_bind_addr() finds the device of an address and holds on to it; no packet is sent. */
bool verbs_owns(struct ibv_context *verbs, struct rdma_event_channel *cm, const struct xc_addr *a)
{
	struct sockaddr_storage sa;
	struct xc_addr any_port = *a;
	struct rdma_cm_id *id;
	bool owns;

	/* Old kernels bind 127.0.0.1 to the first device that there is. */
	if ((a->family != 4 && a->family != 6) || xc_addr_is_any(a) || xc_addr_is_loopback(a))
		return false;
	any_port.port = 0;
	fabric_to_sockaddr(&any_port, &sa);
	if (rdma_create_id(cm, &id, NULL, RDMA_PS_TCP) < 0)
		return false;
	owns = rdma_bind_addr(id, (struct sockaddr *)&sa) == 0 && id->verbs == verbs;
	rdma_destroy_id(id);
	return owns;
}

static bool is_among(const struct xc_addr *a, const struct xc_addr *list, int n)
{
	for (int i = 0; i < n; i++)
		if (xc_addr_equal(a, &list[i]))
			return true;
	return false;
}

int verbs_addresses(struct ibv_context *verbs, struct rdma_event_channel *cm, uint8_t family,
		    struct xc_addr *ret, int max)
{
	struct ifaddrs *all;
	int n = 0;

	if (getifaddrs(&all) < 0)
		return -errno;
	for (const struct ifaddrs *i = all; i && n < max; i = i->ifa_next) {
		struct xc_addr a;

		if (!i->ifa_addr || !(i->ifa_flags & IFF_UP))
			continue;
		fabric_from_sockaddr(i->ifa_addr, &a);
		if (!a.family || (family && a.family != family) || is_among(&a, ret, n))
			continue;
		if (verbs_owns(verbs, cm, &a))
			ret[n++] = a;
	}
	freeifaddrs(all);
	return n;
}

int verbs_route(struct fabric *f, const struct xc_addr *dst, char *ret_why, size_t size)
{
	struct xc_addr plain = fabric_plain_address(dst), from;
	char to_text[XC_ADDR_TEXT_MAX], from_text[XC_ADDR_TEXT_MAX];
	int err;

	XC_CHECK(f, VERBS_FABRIC_MAGIC);
	if (f->lost) {
		snprintf(ret_why, size, "the device %s is gone", f->caps.name);
		return -XP_E_DEVICE;
	}
	if ((plain.family != 4 && plain.family != 6) || xc_addr_is_any(&plain)) {
		snprintf(ret_why, size, "the address names no host that could be connected to");
		return -ENETUNREACH;
	}
	plain.port = plain.port ? plain.port : 9; /* connect(2) wants one */
	err = fabric_source(&plain, &from);
	xc_addr_format(&plain, to_text);
	if (err) {
		snprintf(ret_why, size, "there is no route to %s: %s", to_text, strerror(-err));
		return -ENETUNREACH;
	}
	xc_addr_format(&from, from_text);
	*strrchr(from_text, ':') = '\0';
	*strrchr(to_text, ':') = '\0';
	if (!verbs_owns(f->verbs, f->cm, &from)) {
		snprintf(ret_why, size,
			 "the route to %s begins at %s, which is no address of the device %s",
			 to_text, from_text, f->caps.name);
		return -ENETUNREACH;
	}
	snprintf(ret_why, size, "the route to %s begins at %s, an address of the device %s",
		 to_text, from_text, f->caps.name);
	return 0;
}
