/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#define _GNU_SOURCE 1 /* EAI_NODATA */
#include "daemon/io/names.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>

static int status_of(int gai)
{
	switch (gai) {
	case EAI_AGAIN:
		return -EAGAIN;
	case EAI_MEMORY:
		return -ENOMEM;
	case EAI_NONAME:
	case EAI_NODATA:
	case EAI_ADDRFAMILY:
	case EAI_FAMILY:
	case EAI_FAIL:
		return -ENOENT;
	default:
		return -EIO;
	}
}

static bool addr_of(const struct addrinfo *info, struct xc_addr *ret)
{
	*ret = (struct xc_addr){ 0 };
	if (info->ai_family == AF_INET) {
		struct sockaddr_in in;

		memcpy(&in, info->ai_addr, sizeof(in));
		ret->family = 4;
		memcpy(ret->ip, &in.sin_addr, 4);
		return true;
	}
	if (info->ai_family == AF_INET6) {
		struct sockaddr_in6 in6;

		memcpy(&in6, info->ai_addr, sizeof(in6));
		ret->family = 6;
		ret->scope = in6.sin6_scope_id;
		memcpy(ret->ip, &in6.sin6_addr, 16);
		return true;
	}
	return false;
}

int xd_resolve(const char *host, struct xc_addr *ret, int max)
{
	/* One socket type, or each address comes three times. */
	const struct addrinfo hints = { .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM };
	struct addrinfo *list = NULL;
	int n = 0, r;

	r = getaddrinfo(host, NULL, &hints, &list);
	if (r == EAI_SYSTEM)
		return errno ? -errno : -EIO;
	if (r)
		return status_of(r);
	for (const struct addrinfo *at = list; at && n < max; at = at->ai_next)
		n += addr_of(at, &ret[n]);
	freeaddrinfo(list);
	return n ? n : -ENOENT;
}
