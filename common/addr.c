/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "common/addr.h"

#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const uint8_t mapped_prefix[12] = { [10] = 0xff, [11] = 0xff };

static size_t ip_bytes(const struct xc_addr *a)
{
	return a->family == 4 ? 4 : a->family == 6 ? 16 : 0;
}

/* Digits only: strtoul would take signs, spaces and the empty string. */
static int parse_number(const char *text, uint64_t max, uint64_t *ret)
{
	uint64_t value = 0;

	if (!*text)
		return -EINVAL;
	for (; *text; text++) {
		if (*text < '0' || *text > '9')
			return -EINVAL;
		value = value * 10 + (uint64_t)(*text - '0');
		if (value > max)
			return -EINVAL;
	}
	*ret = value;
	return 0;
}

/* What is before the first `mark` goes to head. Returns what is behind it; NULL: no mark. */
static const char *split(const char *text, char mark, char *head, size_t size)
{
	const char *at = strchr(text, mark);
	size_t n = at ? (size_t)(at - text) : strlen(text);

	if (n >= size)
		n = 0; /* no address is that long: the empty string is none either */
	memcpy(head, text, n);
	head[n] = '\0';
	return at ? at + 1 : NULL;
}

int xc_addr_parse(const char *text, uint16_t port, struct xc_addr *ret)
{
	struct xc_addr a = { .port = port };
	char whole[XC_ADDR_TEXT_MAX], head[XC_ADDR_TEXT_MAX];
	size_t n = strlen(text);
	const char *zone;
	uint64_t scope = 0;

	if (n >= sizeof(whole))
		return -EINVAL;
	if (inet_pton(AF_INET, text, a.ip) == 1) {
		a.family = 4;
		*ret = a;
		return 0;
	}
	memcpy(whole, text, n + 1);
	if (n >= 2 && text[0] == '[' && text[n - 1] == ']') {
		memcpy(whole, text + 1, n - 2);
		whole[n - 2] = '\0';
	}
	zone = split(whole, '%', head, sizeof(head));
	if (zone && parse_number(zone, UINT32_MAX, &scope) < 0)
		return -EINVAL;
	if (inet_pton(AF_INET6, head, a.ip) != 1)
		return -EINVAL;
	a.family = 6;
	a.scope = (uint32_t)scope;
	*ret = a;
	return 0;
}

static const char *format_ip(const struct xc_addr *a, char buf[static INET6_ADDRSTRLEN])
{
	if (a->family != 4 && a->family != 6)
		return "none";
	return inet_ntop(a->family == 4 ? AF_INET : AF_INET6, a->ip, buf, INET6_ADDRSTRLEN);
}

const char *xc_addr_format(const struct xc_addr *a, char buf[static XC_ADDR_TEXT_MAX])
{
	char ip[INET6_ADDRSTRLEN], zone[16] = "";

	if (a->scope)
		snprintf(zone, sizeof(zone), "%%%" PRIu32, a->scope);
	if (a->family == 6)
		snprintf(buf, XC_ADDR_TEXT_MAX, "[%s%s]:%u", format_ip(a, ip), zone, a->port);
	else if (a->family == 4)
		snprintf(buf, XC_ADDR_TEXT_MAX, "%s:%u", format_ip(a, ip), a->port);
	else
		snprintf(buf, XC_ADDR_TEXT_MAX, "none");
	return buf;
}

bool xc_addr_equal(const struct xc_addr *a, const struct xc_addr *b)
{
	return a->family == b->family && a->port == b->port && a->scope == b->scope &&
	       memcmp(a->ip, b->ip, ip_bytes(a)) == 0;
}

/* The four bytes that the kernel acts on: of IPv4, or of IPv4 inside IPv6. NULL: neither. */
static const uint8_t *as_ipv4(const struct xc_addr *a)
{
	if (a->family == 4)
		return a->ip;
	if (a->family == 6 && memcmp(a->ip, mapped_prefix, sizeof(mapped_prefix)) == 0)
		return a->ip + sizeof(mapped_prefix);
	return NULL;
}

bool xc_addr_is_any(const struct xc_addr *a)
{
	static const uint8_t zero[16];
	const uint8_t *v4 = as_ipv4(a);

	if (v4)
		return memcmp(v4, zero, 4) == 0;
	return a->family == 6 && memcmp(a->ip, zero, 16) == 0;
}

bool xc_addr_is_loopback(const struct xc_addr *a)
{
	static const uint8_t one[16] = { [15] = 1 };
	const uint8_t *v4 = as_ipv4(a);

	if (v4)
		return v4[0] == 127;
	return a->family == 6 && memcmp(a->ip, one, 16) == 0;
}

static bool same_prefix(const uint8_t *a, const uint8_t *b, unsigned int bits)
{
	unsigned int rest = bits % 8;

	if (memcmp(a, b, bits / 8) != 0)
		return false;
	return rest == 0 || ((a[bits / 8] ^ b[bits / 8]) >> (8 - rest)) == 0;
}

int xc_range_parse(const char *text, struct xc_range *ret)
{
	struct xc_range r = { .prefix_bits = 0 };
	char head[XC_ADDR_TEXT_MAX];
	const char *bits = split(text, '/', head, sizeof(head));
	uint64_t n;

	/* A zone is a property of one machine's interfaces, not of a range. */
	if (strchr(text, '%') || xc_addr_parse(head, 0, &r.base) < 0)
		return -EINVAL;
	n = ip_bytes(&r.base) * 8;
	if (bits && parse_number(bits, n, &n) < 0)
		return -EINVAL;
	r.prefix_bits = (uint8_t)n;
	for (unsigned int i = r.prefix_bits; i < ip_bytes(&r.base) * 8; i++) {
		if (r.base.ip[i / 8] & (0x80 >> i % 8))
			return -EINVAL;
	}
	*ret = r;
	return 0;
}

const char *xc_range_format(const struct xc_range *r, char buf[static XC_ADDR_TEXT_MAX])
{
	char ip[INET6_ADDRSTRLEN];

	snprintf(buf, XC_ADDR_TEXT_MAX, "%s/%u", format_ip(&r->base, ip), r->prefix_bits);
	return buf;
}

bool xc_range_contains(const struct xc_range *r, const struct xc_addr *a)
{
	if (r->base.family != a->family || ip_bytes(a) == 0)
		return false;
	return same_prefix(r->base.ip, a->ip, r->prefix_bits);
}
