/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#define _GNU_SOURCE 1 /* wcwidth */
#include "tools/text.h"

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <wchar.h>
#include <wctype.h>

char *text_clean(char *text)
{
	size_t left = strlen(text), n;
	mbstate_t state = {0};
	wchar_t c;

	for (char *p = text; left > 0; p += n, left -= n) {
		n = mbrtowc(&c, p, left, &state);
		if (n == (size_t)-1 || n == (size_t)-2) {
			memset(&state, 0, sizeof(state));
			n = 1;
			*p = '?';
		} else if (!iswprint((wint_t)c)) {
			memset(p, '?', n);
		}
	}
	return text;
}

/*
 * The length of the UTF-8 sequence at p, 0 where it is none (overlong and surrogate ones are none).
 */
static size_t utf8_length(const uint8_t *p)
{
	size_t n = p[0] < 0x80 ? 1 : p[0] < 0xc2 ? 0 : p[0] < 0xe0 ? 2 : p[0] < 0xf0 ? 3
		 : p[0] < 0xf5			 ? 4
						 : 0;

	for (size_t i = 1; i < n; i++)
		if ((p[i] & 0xc0) != 0x80)
			return 0;
	if ((p[0] == 0xe0 && p[1] < 0xa0) || (p[0] == 0xed && p[1] > 0x9f) ||
	    (p[0] == 0xf0 && p[1] < 0x90) || (p[0] == 0xf4 && p[1] > 0x8f))
		return 0;
	return n;
}

void text_json(FILE *out, const char *text)
{
	const uint8_t *p = (const uint8_t *)text;

	fputc('"', out);
	while (*p) {
		size_t n = utf8_length(p);

		if (n == 0)
			fputs("\\ufffd", out);
		else if (*p == '"' || *p == '\\')
			fprintf(out, "\\%c", *p);
		else if (*p < 0x20 || *p == 0x7f)
			fprintf(out, "\\u%04x", *p);
		else
			fwrite(p, 1, n, out);
		p += n ? n : 1;
	}
	fputc('"', out);
}

static int hex(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	if (c >= 'A' && c <= 'F')
		return c - 'A' + 10;
	return -1;
}

/* [p, end) into buf; the length, or a negative errno. */
static int decode_percent(const char *p, const char *end, char *buf, size_t size,
			  const char **ret_why)
{
	size_t n = 0;

	while (p < end) {
		int c = (unsigned char)*p++;

		if (c == '%') {
			if (end - p < 2 || hex(p[0]) < 0 || hex(p[1]) < 0) {
				*ret_why =
					"after % two hexadecimal digits must follow (%25 is % itself)";
				return -EINVAL;
			}
			c = hex(p[0]) << 4 | hex(p[1]);
			p += 2;
		}
		if (c == 0) {
			*ret_why = "a path cannot hold a NUL byte";
			return -EINVAL;
		}
		if (n + 1 >= size) {
			*ret_why = "the path is longer than 4,096 bytes";
			return -ENAMETOOLONG;
		}
		buf[n++] = (char)c;
	}
	buf[n] = '\0';
	return (int)n;
}

/* [p, end) is HOST[:PORT] or [V6][:PORT], as far as can be told without a resolver. */
static bool is_authority(const char *p, const char *end)
{
	const char *host_end = p < end && *p == '[' ? memchr(p, ']', (size_t)(end - p))
						     : memchr(p, ':', (size_t)(end - p));
	unsigned int port = 0;

	if (host_end && *p == '[')
		host_end++;
	if (!host_end)
		host_end = end;
	if (host_end == p || (*p == '[' && host_end == end && end[-1] != ']'))
		return false;
	if (host_end == end)
		return true;
	if (*host_end != ':' || end - host_end < 2 || end - host_end > 6)
		return false;
	for (p = host_end + 1; p < end; p++) {
		if (*p < '0' || *p > '9')
			return false;
		port = port * 10 + (unsigned int)(*p - '0');
	}
	return port >= 1 && port <= 65535;
}

int text_url_path(const char *url, char *buf, size_t size, const char **ret_why)
{
	static const char scheme[] = "xfer://";
	const char *p, *end, *slash;
	int n;

	*ret_why = "is not of the form xfer://HOST[:PORT]/PATH";
	if (strncmp(url, scheme, sizeof(scheme) - 1) != 0)
		return -EINVAL;
	p = url + sizeof(scheme) - 1;
	end = p + strcspn(p, "?#");
	slash = memchr(p, '/', (size_t)(end - p));
	if (!is_authority(p, slash ? slash : end)) {
		*ret_why =
			"HOST is a name or an address (of IPv6: in brackets), PORT from 1 to 65,535";
		return -EINVAL;
	}
	if (!slash) {
		*ret_why = "names no file: xfer://HOST[:PORT]/PATH";
		return -EINVAL;
	}
	n = decode_percent(slash + 1, end, buf, size, ret_why);
	return n < 0 ? n : 0;
}

const char *text_last_name(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}
