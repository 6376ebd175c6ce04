/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Tables of the daemon, and what administrators ask. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "client-lib/internal.h"

#define ARGUMENTS_MAX 8

struct column {
	char *name, *unit;
	bool number;
};

struct xfer_table {
	struct column *columns;
	size_t n_columns;
	char **cells;
	size_t n_cells, room_cells;
	uint64_t cursor;
};

XFER_API void xfer_table_free(struct xfer_table *t)
{
	if (!t)
		return;
	for (size_t i = 0; i < t->n_columns; i++) {
		free(t->columns[i].name);
		free(t->columns[i].unit);
	}
	for (size_t i = 0; i < t->n_cells; i++)
		free(t->cells[i]);
	free(t->columns);
	free(t->cells);
	free(t);
}

static int take_columns(struct xfer_table *t, const Xp__QueryReply *m)
{
	if (m->n_columns == 0)
		return -XFER_E_PROTOCOL;
	t->columns = calloc(m->n_columns, sizeof(*t->columns));
	if (!t->columns)
		return -ENOMEM;
	for (size_t i = 0; i < m->n_columns; i++) {
		struct column *to = &t->columns[t->n_columns++];

		to->name = strdup(m->columns[i]->name);
		to->unit = strdup(m->columns[i]->unit);
		to->number = m->columns[i]->number;
		if (!to->name || !to->unit)
			return -ENOMEM;
	}
	return 0;
}

static int take_cells(struct xfer_table *t, const Xp__QueryReply *m)
{
	size_t need = t->n_cells + m->n_cells;

	if (m->n_cells % t->n_columns)
		return -XFER_E_PROTOCOL;
	if (need > t->room_cells) {
		size_t room = need > 2 * t->room_cells ? need : 2 * t->room_cells;
		char **cells = reallocarray(t->cells, room, sizeof(*cells));

		if (!cells)
			return -ENOMEM;
		t->cells = cells;
		t->room_cells = room;
	}
	for (size_t i = 0; i < m->n_cells; i++) {
		t->cells[t->n_cells] = strdup(m->cells[i]);
		if (!t->cells[t->n_cells])
			return -ENOMEM;
		t->n_cells++;
	}
	return 0;
}

static int on_part(struct cl_call *call, const Xp__QueryReply *m)
{
	struct xfer_table *t = call->object;
	int r = 0;

	if (!t->columns)
		r = take_columns(t, m);
	if (r == 0)
		r = take_cells(t, m);
	/* A part must bring the end nearer. */
	if (r == 0 && m->cursor && m->n_cells == 0)
		r = -XFER_E_PROTOCOL;
	t->cursor = m->cursor;
	return r;
}

/* Are they there, and not too many? */
static int check_arguments(const char *what, const char *const *arguments, size_t n)
{
	if (n > ARGUMENTS_MAX)
		return cl_fail(-EINVAL, "%s: %zu arguments: at most %d", what, n, ARGUMENTS_MAX);
	for (size_t i = 0; i < n; i++)
		if (!arguments || !arguments[i])
			return cl_fail(-EINVAL, "%s: argument %zu is NULL", what, i);
	return 0;
}

/* With the lock held. */
static int read_table(struct xfer_client *c, const char *name, const char *const *arguments,
		      size_t n_arguments, struct xfer_table *t)
{
	Xp__ClientMessage message = XP__CLIENT_MESSAGE__INIT;
	Xp__Query body = XP__QUERY__INIT;
	int r;

	body.table = (char *)(uintptr_t)name;
	body.n_arguments = n_arguments;
	body.arguments = (char **)(uintptr_t)arguments;
	message.body_case = XP__CLIENT_MESSAGE__BODY_QUERY;
	message.query = &body;
	do {
		struct cl_call call = { .part = on_part, .object = t };

		body.cursor = t->cursor;
		r = cl_call(c, &message, -1, &call, 0, "query");
	} while (r == 0 && t->cursor);
	return r;
}

XFER_API int xfer_query(struct xfer_client *c, const char *table, struct xfer_table **ret_table)
{
	return xfer_query_about(c, table, NULL, 0, ret_table);
}

XFER_API int xfer_query_about(struct xfer_client *c, const char *table,
			      const char *const *arguments, size_t n_arguments,
			      struct xfer_table **ret_table)
{
	struct xfer_table *t;
	int r = cl_enter(c);

	if (r < 0)
		return r;
	if (!table || !ret_table)
		return cl_leave(c, cl_fail(-EINVAL, "query: %s is NULL",
					   table ? "ret_table" : "table"));
	r = check_arguments("query", arguments, n_arguments);
	if (r < 0)
		return cl_leave(c, r);
	t = calloc(1, sizeof(*t));
	r = t ? read_table(c, table, arguments, n_arguments, t) :
		cl_fail(-ENOMEM, "query: no memory");
	cl_leave(c, r);
	if (r < 0)
		xfer_table_free(t);
	else
		*ret_table = t;
	return r;
}

XFER_API size_t xfer_table_columns(const struct xfer_table *t)
{
	return t->n_columns;
}

XFER_API size_t xfer_table_rows(const struct xfer_table *t)
{
	return t->n_cells / t->n_columns;
}

XFER_API const char *xfer_table_column_name(const struct xfer_table *t, size_t column)
{
	return t->columns[column].name;
}

XFER_API const char *xfer_table_column_unit(const struct xfer_table *t, size_t column)
{
	return t->columns[column].unit;
}

XFER_API int xfer_table_column_is_number(const struct xfer_table *t, size_t column)
{
	return t->columns[column].number;
}

XFER_API const char *xfer_table_cell(const struct xfer_table *t, size_t row, size_t column)
{
	return t->cells[row * t->n_columns + column];
}

XFER_API int xfer_admin(struct xfer_client *c, const char *verb, const char *const *arguments,
			size_t n_arguments)
{
	Xp__ClientMessage message = XP__CLIENT_MESSAGE__INIT;
	Xp__Admin body = XP__ADMIN__INIT;
	struct cl_call call = { 0 };
	int r = cl_enter(c);

	if (r < 0)
		return r;
	if (!verb)
		return cl_leave(c, cl_fail(-EINVAL, "admin: the verb is NULL"));
	r = check_arguments("admin", arguments, n_arguments);
	if (r < 0)
		return cl_leave(c, r);
	body.verb = (char *)(uintptr_t)verb;
	body.n_arguments = n_arguments;
	body.arguments = (char **)(uintptr_t)arguments;
	message.body_case = XP__CLIENT_MESSAGE__BODY_ADMIN;
	message.admin = &body;
	return cl_leave(c, cl_call(c, &message, -1, &call, 0, "admin"));
}
