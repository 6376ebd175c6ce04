/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef TOOLS_TEXT_H
#define TOOLS_TEXT_H

/* Text of strangers, made fit for a terminal and for JSON; and the path in an xfer:// URL. */

#include <stddef.h>
#include <stdio.h>

/*
 * Makes text harmless to a terminal, in place: what is not printable in this locale becomes '?' (a
 * file's name or a server's sentence may hold escape sequences). Returns text.
 */
char *text_clean(char *text);

/* Prints a JSON string with its quotes. Bytes that are not UTF-8 become U+FFFD. */
void text_json(FILE *out, const char *text);

/*
 * The path of xfer://HOST[:PORT]/PERCENT-PATH[?…], decoded, without its first slash (so "xfer://h/"
 * gives ""). -EINVAL: no xfer URL, no path, a bad percent code or a NUL in it; *ret_why is then a
 * constant sentence. -ENAMETOOLONG: does not fit.
 */
int text_url_path(const char *url, char *buf, size_t size, const char **ret_why);

/* What follows the last slash. */
const char *text_last_name(const char *path);

#endif
