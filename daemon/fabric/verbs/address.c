/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/assert.h"
#include "common/cleanup.h"
#include "daemon/fabric/verbs/private.h"
#include "proto/errors.h"

/* IPv4 in IPv6's clothes (::ffff:a.b.c.d) is IPv4. */
struct xc_addr verbs_plain_address(const struct xc_addr *a)
{
	static const uint8_t mapped[12] = { [10] = 0xff, [11] = 0xff };
	struct xc_addr plain = *a;

	if (a->family != 6 || memcmp(a->ip, mapped, sizeof(mapped)) != 0)
		return plain;
	plain = (struct xc_addr){ .family = 4, .port = a->port };
	memcpy(plain.ip, a->ip + 12, 4);
	return plain;
}

void verbs_to_sockaddr(const struct xc_addr *a, struct sockaddr_storage *ret)
{
	struct sockaddr_in in = { .sin_family = AF_INET, .sin_port = htons(a->port) };
	struct sockaddr_in6 in6 = {
		.sin6_family = AF_INET6, .sin6_port = htons(a->port), .sin6_scope_id = a->scope,
	};

	memset(ret, 0, sizeof(*ret));
	if (a->family == 4) {
		memcpy(&in.sin_addr, a->ip, 4);
		memcpy(ret, &in, sizeof(in));
	} else {
		memcpy(&in6.sin6_addr, a->ip, 16);
		memcpy(ret, &in6, sizeof(in6));
	}
}

void verbs_from_sockaddr(const struct sockaddr *sa, struct xc_addr *ret)
{
	struct sockaddr_in in;
	struct sockaddr_in6 in6;

	*ret = (struct xc_addr){ 0 };
	if (sa->sa_family == AF_INET) {
		memcpy(&in, sa, sizeof(in));
		ret->family = 4;
		ret->port = ntohs(in.sin_port);
		memcpy(ret->ip, &in.sin_addr, 4);
	} else if (sa->sa_family == AF_INET6) {
		memcpy(&in6, sa, sizeof(in6));
		ret->family = 6;
		ret->port = ntohs(in6.sin6_port);
		ret->scope = in6.sin6_scope_id;
		memcpy(ret->ip, &in6.sin6_addr, 16);
	}
}

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
	verbs_to_sockaddr(&any_port, &sa);
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
		verbs_from_sockaddr(i->ifa_addr, &a);
		if (!a.family || (family && a.family != family) || is_among(&a, ret, n))
			continue;
		if (verbs_owns(verbs, cm, &a))
			ret[n++] = a;
	}
	freeifaddrs(all);
	return n;
}

int verbs_source(const struct xc_addr *dst, struct xc_addr *ret)
{
	struct sockaddr_storage to, from;
	socklen_t size = sizeof(from);
	xc_auto_close int fd = -1;

	verbs_to_sockaddr(dst, &to);
	fd = socket(to.ss_family, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return -errno;
	size = to.ss_family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);
	if (connect(fd, (struct sockaddr *)&to, size) < 0)
		return -errno;
	size = sizeof(from);
	if (getsockname(fd, (struct sockaddr *)&from, &size) < 0)
		return -errno;
	verbs_from_sockaddr((struct sockaddr *)&from, ret);
	ret->port = 0;
	return 0;
}

int verbs_route(struct fabric *f, const struct xc_addr *dst, char *ret_why, size_t size)
{
	struct xc_addr plain = verbs_plain_address(dst), from;
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
	err = verbs_source(&plain, &from);
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
