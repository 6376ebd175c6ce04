/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#define _GNU_SOURCE 1 /* vasprintf */
#include "daemon/io/config_syntax.h"

#include <confuse.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/assert.h"
#include "common/checked.h"
#include "common/cleanup.h"
#include "common/units.h"
#include "daemon/io/config_text.h"

/*
 * libConfuse stops at the first name that it does not know. So a name that turned out to be
 * unknown is declared, and the file is parsed again, until all are: the parse that gets through
 * reports each where it stands.
 */
#define UNKNOWN_MAX 32

struct unknown {
	int section; /* in which one */
	int line;
	char *name;
	bool reported;
};

struct scan {
	const struct xd_config_section *sections;
	struct xd_config_items *items;
	struct xd_config_errors *errors;
	size_t n_errors; /* before libConfuse began */
	size_t n_total;
	struct unknown unknown[UNKNOWN_MAX];
	size_t n_unknown;
	cfg_t *file;
	int last_line;
	bool again;     /* parse once more */
	bool no_memory;
};

/* libConfuse hands nothing of ours to its callbacks. */
static _Thread_local struct scan *current;

/*
 * The name of a setting that no file can set: the cleaner refuses "|". It has a default, and
 * libConfuse puts defaults through the callback as soon as it has made a section: the only way to
 * learn where a section begins.
 */
#define BEGIN_HOOK "|"
static char hook_default[] = "x";

/* ---- errors, items ---- */

static bool is_shadowed(const struct xd_config_errors *errors, int line)
{
	for (size_t i = 0; i < errors->n; i++) {
		if (errors->error[i].lexical && errors->error[i].line == line)
			return true;
	}
	return false;
}

void xd_config_error(struct xd_config_errors *errors, int line, const char *format, ...)
{
	char *text;
	va_list ap;
	int r;

	/* What was replaced in a line makes more errors in it: they would only confuse. */
	if (is_shadowed(errors, line))
		return;
	errors->total++;
	if (errors->n == XD_CONFIG_ERRORS_MAX)
		return;
	va_start(ap, format);
	r = vasprintf(&text, format, ap);
	va_end(ap);
	if (r < 0)
		errors->no_memory = true;
	else
		errors->error[errors->n++] = (struct xd_config_error){ .line = line, .text = text };
}

static void drop_errors(struct xd_config_errors *errors, size_t n, size_t total)
{
	while (errors->n > n)
		free(errors->error[--errors->n].text);
	errors->total = total;
}

void xd_config_errors_done(struct xd_config_errors *errors)
{
	drop_errors(errors, 0, 0);
}

void xd_config_items_done(struct xd_config_items *items)
{
	for (size_t i = 0; i < items->n; i++)
		free(items->item[i].text);
	free(items->item);
	*items = (struct xd_config_items){ .n = 0 };
}

static int add_item(struct scan *s, struct xd_config_item item, const char *text)
{
	struct xd_config_items *items = s->items;

	/* Full at each power of two: then there is room for twice as many. */
	if ((items->n & (items->n - 1)) == 0) {
		size_t room = items->n ? items->n * 2 : 1;
		void *more = reallocarray(items->item, room, sizeof(item));

		if (!more)
			goto no_memory;
		items->item = more;
	}
	item.text = strdup(text);
	if (!item.text)
		goto no_memory;
	items->item[items->n++] = item;
	return 0;
no_memory:
	s->no_memory = true;
	return -1;
}

/* ---- names ---- */

static int find_section(const struct scan *s, const cfg_t *cfg)
{
	if (cfg == s->file)
		return 0;
	for (int i = 1; s->sections[i].name; i++) {
		if (strcmp(s->sections[i].name, cfg->name) == 0)
			return i;
	}
	return -1;
}

static int find_setting(const struct xd_config_section *section, const char *name)
{
	for (int i = 0; section->settings[i].name; i++) {
		if (strcmp(section->settings[i].name, name) == 0)
			return i;
	}
	return -1;
}

static struct unknown *find_unknown(struct scan *s, int section, const char *name)
{
	for (size_t i = 0; i < s->n_unknown; i++) {
		if (s->unknown[i].section == section && strcmp(s->unknown[i].name, name) == 0)
			return &s->unknown[i];
	}
	return NULL;
}

#define NAMES_MAX 32

static size_t list_names(const struct xd_config_section *sections, int in,
			 const char *names[static NAMES_MAX + 1])
{
	size_t n = 0;

	for (int i = 0; sections[in].settings[i].name && n < NAMES_MAX; i++)
		names[n++] = sections[in].settings[i].name;
	for (int i = 1; in == 0 && sections[i].name && n < NAMES_MAX; i++)
		names[n++] = sections[i].name;
	names[n] = NULL;
	return n;
}

void xd_config_unknown(struct xd_config_errors *errors, int line, const char *what,
		       const char *name, const struct xd_config_section *sections, int in)
{
	const char *names[NAMES_MAX + 1], *nearest;
	char where[64] = "", valid[512] = "";
	size_t n = list_names(sections, in, names), used = 0;

	if (in > 0)
		snprintf(where, sizeof(where), " in \"%s\"", sections[in].name);
	nearest = xc_nearest(name, names);
	if (nearest) {
		xd_config_error(errors, line, "unknown %s \"%s\"%s (nearest valid name: \"%s\")",
				what, name, where, nearest);
		return;
	}
	for (size_t i = 0; i < n && used < sizeof(valid); i++)
		used += (size_t)snprintf(valid + used, sizeof(valid) - used, "%s%s", i ? ", " : "",
					 names[i]);
	xd_config_error(errors, line, "unknown %s \"%s\"%s (valid names: %s)", what, name, where,
			valid);
}

static void report_unknown(struct scan *s, struct unknown *u, int line)
{
	u->reported = true;
	xd_config_unknown(s->errors, line, "setting", u->name, s->sections, u->section);
}

/* ---- callbacks ---- */

static int on_begin(cfg_t *cfg, cfg_opt_t *opt, const char *value, void *result)
{
	struct scan *s = current;
	struct xd_config_item item = {
		.line = cfg->line,
		.section = find_section(s, cfg),
		.setting = -1,
	};

	(void)opt;
	*(const char **)result = value;
	s->last_line = cfg->line;
	xc_assert(item.section > 0);
	return add_item(s, item, cfg->title ? cfg->title : "");
}

static int on_value(cfg_t *cfg, cfg_opt_t *opt, const char *value, void *result)
{
	struct scan *s = current;
	struct xd_config_item item = {
		.line = cfg->line,
		.section = find_section(s, cfg),
		.first = opt->nvalues == 1,
	};

	*(const char **)result = value;
	s->last_line = cfg->line;
	xc_assert(item.section >= 0);
	item.setting = find_setting(&s->sections[item.section], opt->name);
	xc_assert(item.setting >= 0);
	return add_item(s, item, value);
}

static int on_unknown_value(cfg_t *cfg, cfg_opt_t *opt, const char *value, void *result)
{
	struct scan *s = current;
	struct unknown *u = find_unknown(s, find_section(s, cfg), opt->name);

	*(const char **)result = value;
	s->last_line = cfg->line;
	if (u && opt->nvalues == 1)
		report_unknown(s, u, cfg->line);
	return 0;
}

static void add_unknown(struct scan *s, cfg_t *cfg, const char *name)
{
	int section = find_section(s, cfg);

	/* Declared and still not known: another parse would not help. */
	if (section < 0 || s->n_unknown == UNKNOWN_MAX || find_unknown(s, section, name)) {
		xd_config_error(s->errors, cfg->line,
				"unknown name \"%s\"; what follows was not looked at", name);
		return;
	}
	s->unknown[s->n_unknown] = (struct unknown){
		.section = section,
		.line = cfg->line,
		.name = strdup(name),
	};
	if (!s->unknown[s->n_unknown].name) {
		s->no_memory = true;
		return;
	}
	s->n_unknown++;
	s->again = true;
}

/*
 * Matching the wording is what there is. If it changes, the error is told as libConfuse words it,
 * and is the last that is told; the unit test notices.
 */
__attribute__((format(printf, 2, 0)))
static void on_error(cfg_t *cfg, const char *format, va_list ap)
{
	struct scan *s = current;
	char *text;

	if (s->again)
		return;
	if (strcmp(format, "no such option '%s'") == 0) {
		add_unknown(s, cfg, va_arg(ap, const char *));
		return;
	}
	if (vasprintf(&text, format, ap) < 0) {
		s->no_memory = true;
		return;
	}
	xd_config_error(s->errors, cfg->line, "%s", text);
	free(text);
}

/* ---- parsing ---- */

/* The options of one section, as libConfuse wants them, and room for more. NULL: no memory. */
static cfg_opt_t *make_options(struct scan *s, int section, size_t *n, size_t room)
{
	const struct xd_config_setting *settings = s->sections[section].settings;
	const cfg_opt_t hook = CFG_STR_LIST_CB(BEGIN_HOOK, hook_default, CFGF_NONE, on_begin);
	cfg_opt_t *opts;

	for (size_t i = 0; settings[i].name; i++)
		room++;
	opts = calloc(room + s->n_unknown + 2, sizeof(*opts)); /* zeroed: ends with CFG_END() */
	if (!opts)
		return NULL;
	for (size_t i = 0; settings[i].name; i++) {
		const cfg_opt_t one = CFG_STR_CB(settings[i].name, NULL, CFGF_NODEFAULT, on_value);
		const cfg_opt_t many =
			CFG_STR_LIST_CB(settings[i].name, NULL, CFGF_NODEFAULT, on_value);

		opts[(*n)++] = settings[i].list ? many : one;
	}
	for (size_t i = 0; i < s->n_unknown; i++) {
		const cfg_opt_t unknown = CFG_STR_LIST_CB(s->unknown[i].name, NULL, CFGF_NODEFAULT,
							  on_unknown_value);

		if (s->unknown[i].section == section)
			opts[(*n)++] = unknown;
	}
	if (section > 0)
		opts[(*n)++] = hook;
	return opts;
}

static void free_options(cfg_opt_t *opts)
{
	for (size_t i = 0; opts && opts[i].name; i++) {
		if (opts[i].type == CFGT_SEC)
			free(opts[i].subopts);
	}
	free(opts);
}

static cfg_opt_t *make_file_options(struct scan *s)
{
	cfg_opt_t *opts;
	size_t n = 0, n_sections = 0;

	while (s->sections[n_sections].name)
		n_sections++;
	opts = make_options(s, 0, &n, n_sections);
	for (int i = 1; opts && s->sections[i].name; i++) {
		cfg_flag_t flags = CFGF_MULTI | (s->sections[i].titled ? CFGF_TITLE : 0);
		size_t m = 0;
		cfg_opt_t *sub = make_options(s, i, &m, 0);
		const cfg_opt_t opt = CFG_SEC(s->sections[i].name, sub, flags);

		if (!sub) {
			free_options(opts);
			return NULL;
		}
		opts[n++] = opt;
	}
	return opts;
}

/* Parses once. s->again: the next time will get further. */
static void parse(struct scan *s, const char *text)
{
	cfg_opt_t *opts = make_file_options(s);
	int r;

	s->file = opts ? cfg_init(opts, CFGF_NONE) : NULL;
	if (!s->file) {
		s->no_memory = true;
		free_options(opts);
		return;
	}
	cfg_set_error_function(s->file, on_error);
	s->last_line = 1;
	r = cfg_parse_buf(s->file, text);
	/* No file is silently half read. */
	if (r != CFG_SUCCESS && !s->again && !s->no_memory && s->errors->total == s->n_total)
		xd_config_error(s->errors, s->last_line, "syntax error in or below this line");
	cfg_free(s->file);
	s->file = NULL;
	free_options(opts);
}

static void parse_all(struct scan *s, const char *text)
{
	s->n_errors = s->errors->n;
	s->n_total = s->errors->total;
	do {
		drop_errors(s->errors, s->n_errors, s->n_total);
		xd_config_items_done(s->items);
		for (size_t i = 0; i < s->n_unknown; i++)
			s->unknown[i].reported = false;
		s->again = false;
		parse(s, text);
	} while (s->again && !s->no_memory);

	for (size_t i = 0; i < s->n_unknown; i++) {
		/* `name = {}` has no value that a callback would see. */
		if (!s->unknown[i].reported)
			report_unknown(s, &s->unknown[i], s->unknown[i].line);
		free(s->unknown[i].name);
	}
}

int xd_config_scan(const char *text, size_t size, const struct xd_config_section *sections,
		   struct xd_config_items *ret_items, struct xd_config_errors *errors)
{
	struct scan s = { .sections = sections, .items = ret_items, .errors = errors };
	xc_auto_free char *copy = malloc(size + 1);

	*ret_items = (struct xd_config_items){ .n = 0 };
	if (!copy)
		return -ENOMEM;
	memcpy(copy, text, size);
	copy[size] = '\0';
	if (xd_config_text_clean(copy, size, sections, errors)) {
		current = &s;
		parse_all(&s, copy);
		current = NULL;
	}
	return s.no_memory || errors->no_memory ? -ENOMEM : 0;
}
