/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "daemon/fabric/address.h"

#include <errno.h>
#include <netinet/in.h>
#include <string.h>
#include <unistd.h>

#include "common/cleanup.h"

struct xc_addr fabric_plain_address(const struct xc_addr *a)
{
	static const uint8_t mapped[12] = { [10] = 0xff, [11] = 0xff };
	struct xc_addr plain = *a;

	if (a->family != 6 || memcmp(a->ip, mapped, sizeof(mapped)) != 0)
		return plain;
	plain = (struct xc_addr){ .family = 4, .port = a->port };
	memcpy(plain.ip, a->ip + 12, 4);
	return plain;
}

socklen_t fabric_to_sockaddr(const struct xc_addr *a, struct sockaddr_storage *ret)
{
	struct sockaddr_in in = { .sin_family = AF_INET, .sin_port = htons(a->port) };
	struct sockaddr_in6 in6 = {
		.sin6_family = AF_INET6, .sin6_port = htons(a->port), .sin6_scope_id = a->scope,
	};

	memset(ret, 0, sizeof(*ret));
	if (a->family == 4) {
		memcpy(&in.sin_addr, a->ip, 4);
		memcpy(ret, &in, sizeof(in));
		return sizeof(in);
	}
	memcpy(&in6.sin6_addr, a->ip, 16);
	memcpy(ret, &in6, sizeof(in6));
	return sizeof(in6);
}

void fabric_from_sockaddr(const struct sockaddr *sa, struct xc_addr *ret)
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

int fabric_source(const struct xc_addr *dst, struct xc_addr *ret)
{
	struct sockaddr_storage to, from;
	socklen_t size = fabric_to_sockaddr(dst, &to);
	xc_auto_close int fd = -1;

	fd = socket(to.ss_family, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return -errno;
	if (connect(fd, (struct sockaddr *)&to, size) < 0)
		return -errno;
	size = sizeof(from);
	if (getsockname(fd, (struct sockaddr *)&from, &size) < 0)
		return -errno;
	fabric_from_sockaddr((struct sockaddr *)&from, ret);
	ret->port = 0;
	return 0;
}
