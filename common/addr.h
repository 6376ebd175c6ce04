/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef XC_ADDR_H
#define XC_ADDR_H

/*
 * An IP address with a port, free of socket headers so that policy code can hold
 * and compare addresses without being able to use them.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct xc_addr {
	uint8_t family; /* 4, 6, or 0 = none */
	uint8_t reserved;
	uint16_t port;  /* host order */
	uint32_t scope; /* IPv6 zone index, else 0 */
	uint8_t ip[16]; /* network order; IPv4 in the first four */
};

/* An address range, as in 10.0.0.0/8 or fe80::/10. */
struct xc_range {
	struct xc_addr base;
	uint8_t prefix_bits; /* 0 to 32, or 0 to 128 */
};

#define XC_ADDR_TEXT_MAX 80 /* "[v6%zone]:port" with its end */

/*
 * Parses a numeric IP ("127.0.0.1", "::1", "[::1]", "fe80::1%2") with the given port.
 * 0, or -EINVAL where it is no numeric address (a host name, for one).
 */
int xc_addr_parse(const char *text, uint16_t port, struct xc_addr *ret);

/* "127.0.0.1:20470" or "[::1]:20470". Returns buf. */
const char *xc_addr_format(const struct xc_addr *a, char buf[static XC_ADDR_TEXT_MAX]);

/* The same address; ports are compared too. */
bool xc_addr_equal(const struct xc_addr *a, const struct xc_addr *b);

/* 0.0.0.0 or ::, whatever the port. */
bool xc_addr_is_any(const struct xc_addr *a);

/* 127.0.0.0/8, ::1 or ::ffff:127.0.0.0/104. */
bool xc_addr_is_loopback(const struct xc_addr *a);

/*
 * "ADDRESS[/BITS]"; a missing /BITS is the single address. 0 or -EINVAL. Bits below the prefix must
 * be 0.
 */
int xc_range_parse(const char *text, struct xc_range *ret);

/* "10.0.0.0/8". Returns buf. */
const char *xc_range_format(const struct xc_range *r, char buf[static XC_ADDR_TEXT_MAX]);

bool xc_range_contains(const struct xc_range *r, const struct xc_addr *a);

#endif
