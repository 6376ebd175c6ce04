/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "daemon/io/config_text.h"

#include <stdio.h>
#include <string.h>

/*
 * libConfuse counts the line of a one-line comment three times, expands ${NAME}, ends a string at
 * an escaped 0, silently skips characters that begin none of its tokens, and when told to pass over
 * an unknown section may pass over what follows it. None of that may reach it.
 */

#define NAME_MAX_BYTES 64

/* A word, a string, or one character that stands for itself. */
struct token {
	char kind; /* 'w' for words and strings; else the character */
	size_t at, end;
};

struct cleaner {
	char *text;
	size_t size, at;
	int line, depth;
	int opened[XD_CONFIG_DEPTH_MAX]; /* the lines of the braces that are open */
	struct token last[3];            /* the newest first */
	bool in_word;                    /* text[at - 1] belongs to an unquoted word */
	int skip_depth;                  /* what is deeper is to be blanked; 0: nothing is */
	size_t skip_from;
	bool skip_brace;                 /* the closing brace too */
	const struct xd_config_section *sections;
	struct xd_config_errors *errors;
};

static void complain(struct cleaner *c, int line, const char *what)
{
	xd_config_error(c->errors, line, "%s", what);
	if (c->errors->n > 0)
		c->errors->error[c->errors->n - 1].lexical = true;
}

static char peek(const struct cleaner *c, size_t ahead)
{
	return c->at + ahead < c->size ? c->text[c->at + ahead] : '\0';
}

/* Replaced by something that libConfuse takes for a part of a word. */
static void refuse(struct cleaner *c, const char *what)
{
	complain(c, c->line, what);
	c->text[c->at] = '_';
}

static void blank(struct cleaner *c, size_t from, size_t end)
{
	for (; from < end; from++) {
		if (c->text[from] != '\n')
			c->text[from] = ' ';
	}
}

static void add_token(struct cleaner *c, char kind, size_t at, size_t end)
{
	memmove(&c->last[1], &c->last[0], sizeof(c->last) - sizeof(c->last[0]));
	c->last[0] = (struct token){ .kind = kind, .at = at, .end = end };
}

static void clean_line_comment(struct cleaner *c)
{
	size_t from = c->at;

	while (c->at < c->size && c->text[c->at] != '\n')
		c->at++;
	blank(c, from, c->at);
}

static bool clean_block_comment(struct cleaner *c)
{
	size_t from = c->at;
	int line = c->line;

	for (c->at += 2; c->at < c->size; c->at++) {
		if (c->text[c->at] == '\n')
			c->line++;
		if (c->text[c->at] == '*' && peek(c, 1) == '/') {
			c->at += 2;
			blank(c, from, c->at);
			return true;
		}
	}
	complain(c, line, "this comment is not closed");
	return false;
}

/* What has no meaning within quotes nor without. */
static void check_character(struct cleaner *c)
{
	unsigned char ch = (unsigned char)c->text[c->at];

	if (ch == '\0')
		refuse(c, "there is a NUL byte in this line");
	else if (ch < ' ' || ch == 0x7f)
		refuse(c, "there is a control character in this line");
	else if (ch == '\\')
		refuse(c, "\"\\\" has no meaning here");
	else if (ch == '|')
		refuse(c, "\"|\" has no meaning here");
	else if (ch == '$' && peek(c, 1) == '{')
		refuse(c, "environment variables are not expanded here");
}

static bool clean_string(struct cleaner *c)
{
	char quote = c->text[c->at];
	size_t from = c->at++;

	for (; c->at < c->size && c->text[c->at] != '\n' && c->text[c->at] != quote; c->at++) {
		check_character(c);
		/* In a name, libConfuse would look for the title of a section behind it. */
		if (c->text[c->at] == '=')
			refuse(c, "\"=\" has no meaning within quotes");
	}
	if (c->at == c->size || c->text[c->at] != quote) {
		complain(c, c->line, "a quoted string is not closed in its line");
		return false;
	}
	if (c->at == from + 1) {
		complain(c, c->line, "an empty string means nothing here");
		c->text[from] = c->text[c->at] = '_';
	}
	c->at++;
	add_token(c, 'w', from, c->at);
	return true;
}

/* Copies a word, or a string without its quotes. */
static void name_of(const struct cleaner *c, const struct token *t,
		    char name[static NAME_MAX_BYTES])
{
	size_t quoted = c->text[t->at] == '"' || c->text[t->at] == '\'';
	int n = (int)(t->end - t->at - 2 * quoted);

	snprintf(name, NAME_MAX_BYTES, "%.*s", n, c->text + t->at + quoted);
}

static const struct xd_config_section *find_section(const struct cleaner *c, const struct token *t)
{
	char name[NAME_MAX_BYTES];

	name_of(c, t, name);
	for (const struct xd_config_section *s = c->sections + 1; s->name; s++) {
		if (strcmp(s->name, name) == 0)
			return s;
	}
	return NULL;
}

static void skip(struct cleaner *c, size_t from, bool brace)
{
	c->skip_depth = c->depth;
	c->skip_from = from;
	c->skip_brace = brace;
}

static bool is_opaque(const struct cleaner *c, const struct xd_config_section *section,
		      const struct token *title)
{
	char text[NAME_MAX_BYTES];

	if (!section->opaque || !section->opaque_but)
		return section->opaque;
	name_of(c, title, text);
	return strcmp(text, section->opaque_but) != 0;
}

/* A "{" that no "=" stands before. */
static void open_section(struct cleaner *c)
{
	const struct token *name = &c->last[0];
	const struct xd_config_section *section = NULL;
	char text[NAME_MAX_BYTES];

	if (name->kind != 'w' || c->skip_depth)
		return; /* libConfuse will not like it; or nobody will see it */
	if (c->depth == 1)
		section = find_section(c, name);
	/* `NAME TITLE {`, but not `setting = VALUE NAME {` */
	if (!section && c->last[1].kind == 'w' && c->last[2].kind != '=') {
		name = &c->last[1];
		section = c->depth == 1 ? find_section(c, name) : NULL;
	}
	if (section) {
		if (is_opaque(c, section, &c->last[0]))
			skip(c, c->at + 1, false);
		return;
	}
	name_of(c, name, text);
	if (c->depth > 1)
		xd_config_error(c->errors, c->line, "section \"%s\" stands within another section",
				text);
	else
		xd_config_unknown(c->errors, c->line, "section", text, c->sections, 0);
	skip(c, name->at, true);
}

static bool open_brace(struct cleaner *c)
{
	if (c->depth == XD_CONFIG_DEPTH_MAX) {
		complain(c, c->line, "braces are nested too deeply");
		return false;
	}
	c->opened[c->depth++] = c->line;
	if (c->last[0].kind != '=')
		open_section(c);
	return true;
}

static void close_brace(struct cleaner *c)
{
	if (c->depth == 0) {
		complain(c, c->line, "this \"}\" closes nothing");
		c->text[c->at] = ' ';
		return;
	}
	if (c->last[0].kind == '{' && c->last[1].kind == '=')
		complain(c, c->line, "an empty list means nothing: leave the setting out");
	if (c->skip_depth == c->depth) {
		blank(c, c->skip_from, c->at + (c->skip_brace ? 1 : 0));
		c->skip_depth = 0;
	}
	c->depth--;
}

static bool clean_mark(struct cleaner *c)
{
	char ch = c->text[c->at];
	bool good = true;

	switch (ch) {
	case '{':
		good = open_brace(c);
		break;
	case '}':
		close_brace(c);
		break;
	case '+':
		if (peek(c, 1) != '=')
			refuse(c, "\"+\" has no meaning here");
		break;
	case '*':
		refuse(c, "\"*\" has no meaning here");
		break;
	case '(':
	case ')':
		refuse(c, "parentheses mean nothing here: there are no functions, nor include()");
		break;
	default: /* '=' and ',' */
		break;
	}
	add_token(c, ch, c->at, c->at + 1);
	c->at++;
	return good;
}

static void clean_word(struct cleaner *c, bool goes_on)
{
	check_character(c);
	if (goes_on)
		c->last[0].end++;
	else
		add_token(c, 'w', c->at, c->at + 1);
	c->in_word = true;
	c->at++;
}

/* One character, comment or string. False: the rest cannot be told apart. */
static bool clean_next(struct cleaner *c)
{
	char ch = c->text[c->at];
	bool in_word = c->in_word;

	c->in_word = false;
	if (ch == '\n') {
		c->line++;
		c->at++;
	} else if (ch == ' ' || ch == '\t' || (ch == '\r' && peek(c, 1) == '\n')) {
		c->text[c->at++] = ' ';
	} else if (ch == '#' || (!in_word && ch == '/' && peek(c, 1) == '/')) {
		/* Within a word two slashes are two slashes, as libConfuse has it. */
		clean_line_comment(c);
	} else if (!in_word && ch == '/' && peek(c, 1) == '*') {
		return clean_block_comment(c);
	} else if (ch == '"' || ch == '\'') {
		return clean_string(c);
	} else if (ch != '\0' && strchr("{}=,+*()", ch)) {
		return clean_mark(c);
	} else {
		clean_word(c, in_word);
	}
	return true;
}

bool xd_config_text_clean(char *text, size_t size, const struct xd_config_section *sections,
			  struct xd_config_errors *errors)
{
	struct cleaner c = {
		.text = text,
		.size = size,
		.line = 1,
		.sections = sections,
		.errors = errors,
	};

	while (c.at < size) {
		if (!clean_next(&c))
			return false;
	}
	if (c.skip_depth)
		blank(&c, c.skip_from, size);
	while (c.depth > 0)
		complain(&c, c.opened[--c.depth], "this \"{\" is not closed");
	return true;
}
