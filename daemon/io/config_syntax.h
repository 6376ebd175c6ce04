/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef XD_CONFIG_SYNTAX_H
#define XD_CONFIG_SYNTAX_H

/*
 * From the text of a configuration file to a flat list of what it says, with line numbers, for any
 * set of sections and settings. libConfuse does the parsing; around it stands what it lacks: it
 * stops at the first unknown name, miscounts lines behind comments, skips characters that it does
 * not know, accepts a section that is never closed, puts environment variables into values, and
 * lets "section|setting" reach into other sections.
 */

#include <stdbool.h>
#include <stddef.h>

struct xd_config_setting {
	const char *name; /* NULL ends the table */
	bool list;
};

struct xd_config_section {
	const char *name; /* NULL ends the table; of the first, which is the file itself: "" */
	bool titled;
	bool opaque;		 /* what is in it is skipped… */
	const char *opaque_but;	 /* …unless this is its title */
	const struct xd_config_setting *settings;
};

/* A section that begins, or one value of a setting. */
struct xd_config_item {
	int line;
	int section; /* index */
	int setting; /* index; -1: the section begins here */
	bool first;  /* of the values of `setting = …` */
	char *text;  /* the title, "" where there is none; or the value */
};

struct xd_config_items {
	size_t n;
	struct xd_config_item *item;
};

struct xd_config_error {
	int line;
	bool lexical;
	char *text;
};

#define XD_CONFIG_ERRORS_MAX 100

/* The first XD_CONFIG_ERRORS_MAX errors, and how many there were. */
struct xd_config_errors {
	size_t n, total;
	bool no_memory;
	struct xd_config_error error[XD_CONFIG_ERRORS_MAX];
};

void xd_config_error(struct xd_config_errors *errors, int line, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
void xd_config_errors_done(struct xd_config_errors *errors);

/*
 * Complains that sections[in] knows no such "setting" or "section" (sections[0] holds the others),
 * and names the nearest that it does know.
 */
void xd_config_unknown(struct xd_config_errors *errors, int line, const char *what,
		       const char *name, const struct xd_config_section *sections, int in);

/*
 * Adds what is wrong to errors, and fills ret_items as far as the text could be read. errors must
 * be empty. 0, -ENOMEM.
 */
int xd_config_scan(const char *text, size_t size, const struct xd_config_section *sections,
		   struct xd_config_items *ret_items, struct xd_config_errors *errors);
void xd_config_items_done(struct xd_config_items *items);

#endif
