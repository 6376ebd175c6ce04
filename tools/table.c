/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */

/*
 * The daemon's tables, as they come: for people with sizes that can be read, as JSON with plain
 * numbers.
 */

#include "tools/tool.h"

#include "common/checked.h"
#include "common/units.h"

#include <errno.h>
#include <libsmartcols.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *format_ms(unsigned long long v, char *buf, size_t size)
{
	if (v >= 1000)
		snprintf(buf, size, "%.1f s", (double)v / 1e3);
	else
		snprintf(buf, size, "%llu ms", v);
	return buf;
}

/* "1.5 GiB", "2.0 ms", "812" from a plain number and its unit. */
static const char *format_number(const char *cell, const char *unit, char *buf, size_t size)
{
	char *end;
	unsigned long long v;

	errno = 0;
	v = strtoull(cell, &end, 10);
	if (errno || end == cell || *end)
		return cell;
	if (strcmp(unit, "bytes") == 0)
		return xc_size_format(v, buf, size);
	if (strcmp(unit, "ms") == 0)
		return format_ms(v, buf, size);
	if (strcmp(unit, "ns") != 0)
		return cell;
	if (v >= 1000000000)
		snprintf(buf, size, "%.1f s", (double)v / 1e9);
	else if (v >= 1000000)
		snprintf(buf, size, "%.1f ms", (double)v / 1e6);
	else if (v >= 1000)
		snprintf(buf, size, "%.1f us", (double)v / 1e3);
	else
		snprintf(buf, size, "%llu ns", v);
	return buf;
}

/* Sentences wrap where a terminal is too narrow for them. */
static bool is_prose(const struct xfer_table *in, size_t column)
{
	static const char *const prose[] = {"asked", "claimed", "seen", "consequence", "why"};
	const char *name = xfer_table_column_name(in, column);

	for (size_t i = 0; i < XC_ARRAY_SIZE(prose); i++)
		if (strcmp(name, prose[i]) == 0)
			return true;
	return false;
}

static int fill_columns(struct libscols_table *out, const struct xfer_table *in)
{
	for (size_t c = 0; c < xfer_table_columns(in); c++) {
		const bool number = xfer_table_column_is_number(in, c);
		struct libscols_column *column;

		column = scols_table_new_column(out, xfer_table_column_name(in, c), 0,
						number		? SCOLS_FL_RIGHT :
						is_prose(in, c) ? SCOLS_FL_WRAP :
								  0);
		if (!column)
			return -ENOMEM;
		scols_column_set_json_type(column, number ? SCOLS_JSON_NUMBER : SCOLS_JSON_STRING);
	}
	return 0;
}

static int fill_rows(struct libscols_table *out, const struct xfer_table *in, bool json)
{
	for (size_t r = 0; r < xfer_table_rows(in); r++) {
		struct libscols_line *line = scols_table_new_line(out, NULL);

		if (!line)
			return -ENOMEM;
		for (size_t c = 0; c < xfer_table_columns(in); c++) {
			const char *cell = xfer_table_cell(in, r, c);
			char buf[64];

			if (!json && xfer_table_column_is_number(in, c))
				cell = format_number(cell, xfer_table_column_unit(in, c), buf,
						     sizeof(buf));
			if (scols_line_set_data(line, c, cell) != 0)
				return -ENOMEM;
		}
	}
	return 0;
}

/* smartcols' own JSON leaves out a table without lines altogether. */
static int print_nothing(const struct tool *t, const char *name)
{
	if (t->json)
		printf("{\n   \"%s\": []\n}\n", name);
	else
		printf("no %s\n", name);
	return 0;
}

/* By way of a string: some versions end JSON with a newline, others do not. */
static int print_lines(struct libscols_table *out)
{
	char *text = NULL;
	int r = scols_print_table_to_string(out, &text);
	size_t n;

	if (r == 0 && text) {
		n = strlen(text);
		fputs(text, stdout);
		if (n == 0 || text[n - 1] != '\n')
			putchar('\n');
	}
	free(text);
	return r;
}

static int print_table(const struct tool *t, const char *name, const struct xfer_table *in)
{
	struct libscols_table *out;
	int r;

	if (xfer_table_rows(in) == 0)
		return print_nothing(t, name);
	out = scols_new_table();
	if (!out)
		return -ENOMEM;
	scols_table_set_name(out, name);
	scols_table_enable_json(out, t->json);
	r = fill_columns(out, in);
	if (r == 0)
		r = fill_rows(out, in, t->json);
	if (r == 0)
		r = print_lines(out);
	scols_unref_table(out);
	return r;
}

int tool_print_answer(const struct tool *t, struct xfer_client *client, const char *name,
		      const char *const *arguments, size_t n_arguments)
{
	struct xfer_table *table;
	const char *text = "";
	int r = xfer_query_about(client, name, arguments, n_arguments, &table);

	if (r == -EINVAL) {
		xfer_last_error(&text);
		return tool_usage(t, "%s", text[0] ? text : xfer_strerror(r));
	}
	if (r < 0) {
		xfer_last_error(&text);
		return tool_error(t, "%s", text[0] ? text : xfer_strerror(r));
	}
	r = print_table(t, name, table);
	if (r)
		r = tool_error(t, "%s", strerror(-r));
	xfer_table_free(table);
	return r;
}

/* One table, asked about so much. */
static int one_table(const struct tool *t, const char *name, const char *const *arguments,
		     size_t n_arguments)
{
	struct xfer_client *client;
	int r;

	if (t->n_arguments)
		return tool_usage(t, "takes no arguments, has '%s'", t->arguments[0]);
	client = tool_client(t);
	if (!client)
		return TOOL_FAILED;
	r = tool_print_answer(t, client, name, arguments, n_arguments);
	xfer_client_free(client);
	return r;
}

int tool_table(const struct tool *t)
{
	return one_table(t, t->command, NULL, 0);
}

int tool_keys(const struct tool *t)
{
	const struct {
		const char *name, *value;
	} about[] = {
		{"buffer", t->buffer}, {"peer", t->peer}, {"session", t->session},
		{"uid", t->uid},       {"key", t->key},
	};
	char texts[XC_ARRAY_SIZE(about)][128];
	const char *arguments[XC_ARRAY_SIZE(about)];
	size_t n = 0;

	for (size_t i = 0; i < XC_ARRAY_SIZE(about); i++) {
		if (!about[i].value)
			continue;
		if (strlen(about[i].value) > 100)
			return tool_usage(t, "what is said of the %s is too long", about[i].name);
		snprintf(texts[n], sizeof(texts[n]), "%s=%s", about[i].name, about[i].value);
		arguments[n] = texts[n];
		n++;
	}
	return one_table(t, t->history ? "key-history" : "keys", arguments, n);
}

int tool_devices(const struct tool *t)
{
	struct xfer_client *client;
	int r = TOOL_OK;

	if (!t->verbose)
		return tool_table(t);
	if (t->n_arguments)
		return tool_usage(t, "takes no arguments, has '%s'", t->arguments[0]);
	client = tool_client(t);
	if (!client)
		return TOOL_FAILED;
	/* JSON is one value. */
	if (!t->json) {
		r = tool_print_answer(t, client, "devices", NULL, 0);
		putchar('\n');
	}
	if (r == TOOL_OK)
		r = tool_print_answer(t, client, "device-facts", NULL, 0);
	xfer_client_free(client);
	return r;
}

int tool_admin(const struct tool *t)
{
	struct xfer_client *client = tool_client(t);
	const char *text = "";
	int r;

	if (!client)
		return TOOL_FAILED;
	r = xfer_admin(client, t->command, (const char *const *)t->arguments,
		       (size_t)t->n_arguments);
	if (r < 0) {
		xfer_last_error(&text);
		r = tool_error(t, "%s", text[0] ? text : xfer_strerror(r));
	}
	xfer_client_free(client);
	return r;
}
