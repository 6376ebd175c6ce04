/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef XD_TABLES_H
#define XD_TABLES_H

/*
 * What the daemon shows of itself: tables of rows that an administrator sees whole, and a client as
 * far as it is its user's. No keys, no addresses of memory.
 *
 * A table goes on from a cursor, which names the row that found no room by what stays as it is
 * while others come and go: a row that vanishes between two parts hides no other.
 */

#include "daemon/core/session.h"

struct xd_question {
	const char *const *arguments;
	size_t n_arguments;
};

struct xd_table {
	const char *name;
	const struct xd_column *columns;
	size_t n_columns;
	/* Writes rows from *cursor on; leaves *cursor at the row that found no room, or 0 at the
	 * end. */
	void (*write)(struct xd_session *viewer, uint64_t *cursor, struct xd_table_sink *sink);
	/*
	 * Instead, of a table that takes arguments: 0, or -EINVAL with ret_why, and then no row was
	 * begun.
	 */
	int (*answer)(struct xd_session *viewer, const struct xd_question *question,
		      uint64_t *cursor, struct xd_table_sink *sink, char *ret_why);
};

/* columns: an array. */
#define XD_TABLE(name, columns, write)                                                             \
	{                                                                                          \
		name, columns, XC_ARRAY_SIZE(columns), write, NULL                                 \
	}

extern const struct xd_table xd_table_sessions, xd_table_endpoints, xd_table_buffers,
	xd_table_listeners, xd_table_grants, xd_table_pools, xd_table_keys, xd_table_key_history,
	xd_table_explain, xd_table_plans, xd_table_costs;

static inline bool xd_may_see(const struct xd_session *viewer, uint32_t uid)
{
	return viewer->admin || viewer->uid == uid;
}

static inline void xd_cell_text(struct xd_table_sink *sink, const char *value)
{
	sink->text(sink, value);
}

static inline void xd_cell_number(struct xd_table_sink *sink, uint64_t value)
{
	sink->number(sink, value);
}

static inline void xd_cell_address(struct xd_table_sink *sink, const struct xc_addr *a)
{
	char buf[XC_ADDR_TEXT_MAX];

	sink->text(sink, a->family ? xc_addr_format(a, buf) : "");
}

#endif
