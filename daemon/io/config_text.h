/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef XD_CONFIG_TEXT_H
#define XD_CONFIG_TEXT_H

/* The pass over a configuration's text before libConfuse sees it. */

#include "daemon/io/config_syntax.h"

#define XD_CONFIG_DEPTH_MAX 8

/*
 * In place and keeping lines: blanks comments, sections that are unknown and what opaque ones hold;
 * complains about all that libConfuse would pass over in silence, and puts harmless characters in
 * its place. False where the rest of the text cannot be told apart (an open string, for one): then
 * it must not be parsed.
 */
bool xd_config_text_clean(char *text, size_t size, const struct xd_config_section *sections,
			  struct xd_config_errors *errors);

#endif
