/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "common/checked.h"
#include "daemon/core/tables.h"

/*
 * Keys that live, and the history of those that lived: all of them, or those of a session, a user,
 * a peer, a range of a buffer. A key has its number in the audit, and no other.
 */

/* Keys looked at in one part that has a row, whoever may see them: less than a millisecond. */
#define LOOKS_MAX XD_AUDIT_EVENTS

/* ------------------------------------------------------------------ the question */

enum { OF_BUFFER = 1, OF_PEER = 2, OF_SESSION = 4, OF_UID = 8, OF_KEY = 16 };

struct filter {
	unsigned int of;
	uint64_t session, uid, key;
	struct xc_addr peer; /* port 0: any */
	uint64_t buffer_session, buffer, offset, length;
};

/* Digits, and what follows them. NULL: there are none, or too many. */
static const char *take_number(const char *text, uint64_t *ret)
{
	uint64_t v = 0;

	if (*text < '0' || *text > '9')
		return NULL;
	for (; *text >= '0' && *text <= '9'; text++) {
		uint64_t digit = (uint64_t)(*text - '0');

		if (v > (UINT64_MAX - digit) / 10)
			return NULL;
		v = v * 10 + digit;
	}
	*ret = v;
	return text;
}

static bool parse_number(const char *text, uint64_t *ret)
{
	const char *end = take_number(text, ret);

	return end && !*end;
}

/* SESSION:BUFFER[:OFFSET+LENGTH] */
static bool parse_buffer(const char *text, struct filter *f)
{
	text = take_number(text, &f->buffer_session);
	if (!text || *text++ != ':')
		return false;
	text = take_number(text, &f->buffer);
	f->length = UINT64_MAX;
	if (!text || !*text)
		return text;
	if (*text++ != ':')
		return false;
	text = take_number(text, &f->offset);
	return text && *text == '+' && parse_number(text + 1, &f->length);
}

/* ADDRESS, ADDRESS:PORT, [ADDRESS]:PORT */
static bool parse_peer(const char *text, struct xc_addr *ret)
{
	const char *colon = strrchr(text, ':');
	char host[XC_ADDR_TEXT_MAX];
	uint64_t port;

	if (xc_addr_parse(text, 0, ret) == 0)
		return true;
	if (!colon || (size_t)(colon - text) >= sizeof(host) || !parse_number(colon + 1, &port) ||
	    port > UINT16_MAX)
		return false;
	memcpy(host, text, (size_t)(colon - text));
	host[colon - text] = '\0';
	return xc_addr_parse(host, (uint16_t)port, ret) == 0;
}

static bool parse_value(unsigned int of, const char *text, struct filter *f)
{
	switch (of) {
	case OF_BUFFER:
		return parse_buffer(text, f);
	case OF_PEER:
		return parse_peer(text, &f->peer);
	case OF_SESSION:
		return parse_number(text, &f->session);
	case OF_UID:
		return parse_number(text, &f->uid);
	default:
		return parse_number(text, &f->key);
	}
}

static const struct {
	const char *name, *value;
	unsigned int of;
} filters[] = {
	{ "buffer", "SESSION:BUFFER or SESSION:BUFFER:OFFSET+LENGTH", OF_BUFFER },
	{ "peer", "an IP address, perhaps with a port", OF_PEER },
	{ "session", "a session's number", OF_SESSION },
	{ "uid", "a user's number", OF_UID },
	{ "key", "a key's number in this table", OF_KEY },
};

static int parse_argument(const char *argument, struct filter *f, char *ret_why)
{
	size_t n = strcspn(argument, "=");

	for (size_t i = 0; i < XC_ARRAY_SIZE(filters); i++) {
		const char *name = filters[i].name;

		if (!argument[n] || strlen(name) != n || strncmp(argument, name, n) != 0)
			continue;
		if (f->of & filters[i].of) {
			snprintf(ret_why, XD_TEXT_MAX, "%s= is there twice", name);
			return -EINVAL;
		}
		if (!parse_value(filters[i].of, argument + n + 1, f)) {
			snprintf(ret_why, XD_TEXT_MAX, "%s=%.80s: is not %s", name,
				 argument + n + 1, filters[i].value);
			return -EINVAL;
		}
		f->of |= filters[i].of;
		return 0;
	}
	snprintf(ret_why, XD_TEXT_MAX,
		 "%.80s: is not buffer=, peer=, session=, uid= or key= with a value", argument);
	return -EINVAL;
}

static int parse(const struct xd_question *question, struct filter *ret, char *ret_why)
{
	int r = 0;

	*ret = (struct filter){ .of = 0 };
	for (size_t i = 0; i < question->n_arguments && r == 0; i++)
		r = parse_argument(question->arguments[i], ret, ret_why);
	return r;
}

static bool is_peer(const struct xc_addr *peer, const struct xc_addr *wanted)
{
	return peer->family == wanted->family &&
	       memcmp(peer->ip, wanted->ip, sizeof(peer->ip)) == 0 &&
	       (!wanted->scope || peer->scope == wanted->scope) &&
	       (!wanted->port || peer->port == wanted->port);
}

static bool touches(const struct filter *f, const struct xd_audit_of *of)
{
	if (of->session != f->buffer_session || !of->buffer || of->buffer != f->buffer)
		return false;
	/* Neither sum can be trusted: the one is a client's, the other a stranger's. */
	return f->offset < of->offset ? of->offset - f->offset < f->length
				      : f->offset - of->offset < of->length;
}

static bool matches(const struct filter *f, uint64_t key, const struct xd_audit_of *of)
{
	return (!(f->of & OF_SESSION) || f->session == of->session) &&
	       (!(f->of & OF_UID) || f->uid == of->uid) &&
	       (!(f->of & OF_KEY) || f->key == key) &&
	       (!(f->of & OF_PEER) || is_peer(&of->peer, &f->peer)) &&
	       (!(f->of & OF_BUFFER) || touches(f, of));
}

/* ------------------------------------------------------------------ the rows */

static const char *access_name(uint8_t access)
{
	switch (access & XD_AUDIT_REMOTE) {
	case XD_AUDIT_REMOTE_READ:
		return "read";
	case XD_AUDIT_REMOTE_WRITE:
		return "write";
	case XD_AUDIT_REMOTE:
		return "read and write";
	default:
		return "local";
	}
}

#define OF_COLUMNS                                                                                 \
	{ "session", "", true }, { "uid", "", true }, { "endpoint", "", true },                    \
		{ "fabric", "", false }, { "peer", "", false }, { "buffer", "", true },            \
		{ "offset", "bytes", true }, { "length", "bytes", true }, { "access", "", false }

static void write_of(const struct xd_core *core, const struct xd_audit_of *of,
		     struct xd_table_sink *sink)
{
	xd_cell_number(sink, of->session);
	xd_cell_number(sink, of->uid);
	xd_cell_number(sink, of->endpoint);
	xd_cell_text(sink, core->caps[of->fabric].name);
	xd_cell_address(sink, &of->peer);
	xd_cell_number(sink, of->buffer);
	xd_cell_number(sink, of->offset);
	xd_cell_number(sink, of->length);
	xd_cell_text(sink, access_name(of->access));
}

static const struct xd_column key_columns[] = {
	{ "key", "", true },	{ "kind", "", false }, { "state", "", false },
	OF_COLUMNS,		{ "age", "ms", true },
};

static void write_key(const struct xd_core *core, const struct xd_audit_key *k,
		      struct xd_table_sink *sink)
{
	xd_cell_number(sink, k->number);
	xd_cell_text(sink, xd_audit_kind_name(k->of.kind));
	xd_cell_text(sink, xd_audit_state_name(k->state));
	write_of(core, &k->of, sink);
	xd_cell_number(sink, (xd_now(core) - k->since_ns) / XD_NS_PER_MS);
}

static int answer_keys(struct xd_session *viewer, const struct xd_question *question,
		       uint64_t *cursor, struct xd_table_sink *sink, char *ret_why)
{
	const struct xd_core *core = viewer->core;
	const struct xd_audit_key *k;
	uint32_t looks = 0, rows = 0;
	struct filter f;
	int r = parse(question, &f, ret_why);

	if (r < 0)
		return r;
	for (uint64_t at = *cursor; (k = xd_audit_next_key(core->audit, at)); at = k->number + 1) {
		bool shown = xd_may_see(viewer, k->of.uid) && matches(&f, k->number, &k->of);

		if ((looks++ >= LOOKS_MAX && rows) || (shown && !sink->row(sink))) {
			*cursor = k->number;
			return 0;
		}
		if (shown)
			write_key(core, k, sink);
		rows += shown;
	}
	*cursor = 0;
	return 0;
}

static const struct xd_column history_columns[] = {
	{ "event", "", true }, { "ago", "ms", true }, { "key", "", true }, { "kind", "", false },
	{ "what", "", false }, { "why", "", false },  OF_COLUMNS,
};

static void write_event(const struct xd_core *core, const struct xd_audit_event *e,
			struct xd_table_sink *sink)
{
	xd_cell_number(sink, e->number);
	xd_cell_number(sink, (xd_now(core) - e->time_ns) / XD_NS_PER_MS);
	xd_cell_number(sink, e->key);
	xd_cell_text(sink, xd_audit_kind_name(e->of.kind));
	xd_cell_text(sink, xd_audit_what_name(e->what));
	xd_cell_text(sink, xd_audit_why_name(e->why));
	write_of(core, &e->of, sink);
}

static int answer_history(struct xd_session *viewer, const struct xd_question *question,
			  uint64_t *cursor, struct xd_table_sink *sink, char *ret_why)
{
	const struct xd_core *core = viewer->core;
	const struct xd_audit_event *e;
	struct filter f;
	int r = parse(question, &f, ret_why);

	if (r < 0)
		return r;
	for (uint64_t at = *cursor; (e = xd_audit_next_event(core->audit, at));
	     at = e->number + 1) {
		if (!xd_may_see(viewer, e->of.uid) || !matches(&f, e->key, &e->of))
			continue;
		if (!sink->row(sink)) {
			*cursor = e->number;
			return 0;
		}
		write_event(core, e, sink);
	}
	*cursor = 0;
	return 0;
}

const struct xd_table xd_table_keys = {
	.name = "keys",
	.columns = key_columns,
	.n_columns = XC_ARRAY_SIZE(key_columns),
	.answer = answer_keys,
};

const struct xd_table xd_table_key_history = {
	.name = "key-history",
	.columns = history_columns,
	.n_columns = XC_ARRAY_SIZE(history_columns),
	.answer = answer_history,
};
