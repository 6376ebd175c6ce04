/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* xfer://HOST[:PORT]/PATH?require=…: what of it concerns the library. The path is the program's. */
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client-lib/internal.h"
#include "common/addr.h"

static const char scheme[] = "xfer://";

static bool host_char(char ch, bool bracketed)
{
	return isalnum((unsigned char)ch) || ch == '.' || ch == '-' || ch == '_' || ch == '%' ||
	       (bracketed && ch == ':');
}

static int set_host(struct cl_address *a, const char *from, size_t n, bool bracketed,
		    const char *text)
{
	struct xc_addr ip;

	if (n == 0)
		return cl_fail(-EINVAL, "\"%.100s\": no host", text);
	if (n >= sizeof(a->host))
		return cl_fail(-EINVAL, "\"%.100s\": a host of %zu bytes: at most 255", text, n);
	for (size_t i = 0; i < n; i++)
		if (!host_char(from[i], bracketed))
			return cl_fail(-EINVAL, "\"%.100s\": byte 0x%02x in the host", text,
				       (unsigned char)from[i]);
	memcpy(a->host, from, n);
	a->host[n] = '\0';
	if (bracketed && xc_addr_parse(a->host, 0, &ip) < 0)
		return cl_fail(-EINVAL, "\"%.100s\": no IPv6 address in the brackets", text);
	return 0;
}

static int set_port(struct cl_address *a, const char *from, size_t n, const char *text)
{
	unsigned long port = 0;

	for (size_t i = 0; i < n; i++) {
		if (!isdigit((unsigned char)from[i]) || port > 65535)
			n = 0;
		else
			port = port * 10 + (unsigned long)(from[i] - '0');
	}
	if (n == 0 || port > 65535)
		return cl_fail(-EINVAL, "\"%.100s\": the port is not a number from 0 to 65535",
			       text);
	a->port = (uint16_t)port;
	return 0;
}

/* HOST, HOST:PORT, [V6], [V6]:PORT, and a bare V6. */
static int parse_authority(struct cl_address *a, const char *from, size_t n, const char *text)
{
	const char *end = from + n, *colon = memchr(from, ':', n), *close;
	int r;

	if (n && *from == '[') {
		close = memchr(from, ']', n);
		if (!close)
			return cl_fail(-EINVAL, "\"%.100s\": [ without ]", text);
		r = set_host(a, from + 1, (size_t)(close - from - 1), true, text);
		colon = close + 1;
		if (r == 0 && colon < end && *colon != ':')
			return cl_fail(-EINVAL, "\"%.100s\": only :PORT may follow ]", text);
	} else if (colon && memchr(colon + 1, ':', (size_t)(end - colon - 1))) {
		return cl_fail(-EINVAL, "\"%.100s\": an IPv6 address needs brackets", text);
	} else {
		if (!colon)
			colon = end;
		r = set_host(a, from, (size_t)(colon - from), false, text);
	}
	if (r < 0 || colon == end)
		return r;
	return set_port(a, colon + 1, (size_t)(end - colon - 1), text);
}

static int set_require(struct cl_address *a, const char *value, size_t n, const char *text)
{
	if (n == 0 || n >= sizeof(a->require))
		return cl_fail(-EINVAL,
			       "\"%.100s\": require=: verbs, tcp, or a device of at most 63 bytes",
			       text);
	for (size_t i = 0; i < n; i++)
		if (!isalnum((unsigned char)value[i]) && !strchr("_.-", value[i]))
			return cl_fail(-EINVAL, "\"%.100s\": byte 0x%02x in require=", text,
				       (unsigned char)value[i]);
	memcpy(a->require, value, n);
	a->require[n] = '\0';
	return 0;
}

static int parse_query(struct cl_address *a, const char *query, const char *text)
{
	static const char key[] = "require=";

	while (*query) {
		size_t n = strcspn(query, "&");

		if (strncmp(query, key, sizeof(key) - 1) != 0)
			return cl_fail(-EINVAL,
				       "\"%.100s\": \"%.*s\" after ?: only require= is known", text,
				       (int)(n > 40 ? 40 : n), query);
		if (set_require(a, query + sizeof(key) - 1, n - (sizeof(key) - 1), text) < 0)
			return -EINVAL;
		query += n + (query[n] == '&');
	}
	return 0;
}

int cl_address_parse(const char *text, bool bare, struct cl_address *ret)
{
	struct cl_address a = { .port = XFER_DEFAULT_PORT };
	const char *at = text;
	size_t n;
	int r;

	if (!text)
		return cl_fail(-EINVAL, "no address");
	if (strncmp(at, scheme, sizeof(scheme) - 1) == 0)
		at += sizeof(scheme) - 1;
	else if (!bare || strstr(at, "://"))
		return cl_fail(-EINVAL, "\"%.100s\" does not begin with xfer://", text);
	n = strcspn(at, "/?#");
	if (bare && at == text && at[n])
		return cl_fail(-EINVAL, "\"%.100s\" is not HOST[:PORT]", text);
	r = parse_authority(&a, at, n, text);
	if (r < 0)
		return r;
	at += n;
	at += strcspn(at, "?");
	if (*at == '?')
		r = parse_query(&a, at + 1, text);
	if (r == 0)
		*ret = a;
	return r;
}
