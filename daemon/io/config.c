/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#define _GNU_SOURCE 1 /* asprintf */
#include "daemon/io/config.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <inttypes.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/checked.h"
#include "common/cleanup.h"
#include "common/slots.h"
#include "common/units.h"
#include "daemon/fabric/iwarp/iwarp.h"
#include "daemon/fabric/iwarp/profile.h"
#include "daemon/io/config_syntax.h"

enum section {
	FILE_ITSELF,
	LIMITS,
	TOTAL,
	USER,
	GROUP,
	ALLOW,
	TIMES,
	DEVICE,
	LADDER,
	SECTIONS,
};

static const struct xd_config_setting file_settings[] = {
	{ .name = "handshakes" },
	{ .name = NULL },
};

/* In the order of enum xd_limit. */
static const struct xd_config_setting limit_settings[] = {
#define LIMIT_SETTING(limit, value, unit, text) { .name = #limit },
	XD_LIMITS(LIMIT_SETTING)
#undef LIMIT_SETTING
	{ .name = NULL },
};

enum { ALLOW_USERS, ALLOW_GROUPS, ALLOW_LISTEN, ALLOW_CONNECT, ALLOW_ACCEPT };
static const struct xd_config_setting allow_settings[] = {
	[ALLOW_USERS] = { .name = "users", .list = true },
	[ALLOW_GROUPS] = { .name = "groups", .list = true },
	[ALLOW_LISTEN] = { .name = "listen", .list = true },
	[ALLOW_CONNECT] = { .name = "connect", .list = true },
	[ALLOW_ACCEPT] = { .name = "accept", .list = true },
	{ .name = NULL },
};

enum { TIME_HELLO, TIME_CONNECT, TIME_REVOKE, TIME_PROGRESS, TIME_DRAIN, TIMES_COUNT };
static const struct xd_config_setting time_settings[] = {
	[TIME_HELLO] = { .name = "hello" },       [TIME_CONNECT] = { .name = "connect" },
	[TIME_REVOKE] = { .name = "revoke" },     [TIME_PROGRESS] = { .name = "progress" },
	[TIME_DRAIN] = { .name = "drain" },       { .name = NULL },
};
static const struct {
	size_t offset;
	uint64_t min_ms, max_ms;
	const char *text;
} time_bounds[TIMES_COUNT] = {
	[TIME_HELLO] = { offsetof(struct xd_policy, hello_ms), 100, 600000, "100ms to 10m" },
	[TIME_CONNECT] = { offsetof(struct xd_policy, connect_ms), 100, 600000, "100ms to 10m" },
	[TIME_REVOKE] = { offsetof(struct xd_policy, revoke_ms), 1, 60000, "1ms to 1m" },
	[TIME_PROGRESS] = { offsetof(struct xd_policy, progress_ms), 1000, 3600000, "1s to 1h" },
	[TIME_DRAIN] = { offsetof(struct xd_policy, drain_ms), 0, 600000, "0s to 10m" },
};

/* Of the device that is none; others have no settings. */
#define IWARP "iwarp"
enum {
	IWARP_CRC,
	IWARP_SHORTCUT,
	IWARP_IRD,
	IWARP_ORD,
	IWARP_PROFILE,
	IWARP_HANDSHAKES,
	IWARP_HANDSHAKES_PER_HOST,
};
static const struct xd_config_setting iwarp_settings[] = {
	[IWARP_CRC] = { .name = "crc" },
	[IWARP_SHORTCUT] = { .name = "shortcut" },
	[IWARP_IRD] = { .name = "ird" },
	[IWARP_ORD] = { .name = "ord" },
	[IWARP_PROFILE] = { .name = "profile" },
	[IWARP_HANDSHAKES] = { .name = "handshakes" },
	[IWARP_HANDSHAKES_PER_HOST] = { .name = "handshakes_per_host" },
	{ .name = NULL },
};

enum { LADDER_FORCE };
static const struct xd_config_setting ladder_settings[] = {
	[LADDER_FORCE] = { .name = "force" },
	{ .name = NULL },
};

static const struct xd_config_section sections[SECTIONS + 1] = {
	[FILE_ITSELF] = { .name = "", .settings = file_settings },
	[LIMITS] = { .name = "limits", .settings = limit_settings },
	[TOTAL] = { .name = "total", .settings = limit_settings },
	[USER] = { .name = "user", .titled = true, .settings = limit_settings },
	[GROUP] = { .name = "group", .titled = true, .settings = limit_settings },
	[ALLOW] = { .name = "allow", .settings = allow_settings },
	[TIMES] = { .name = "times", .settings = time_settings },
	[DEVICE] = { .name = "device",
		     .titled = true,
		     .opaque = true,
		     .opaque_but = IWARP,
		     .settings = iwarp_settings },
	[LADDER] = { .name = "ladder", .settings = ladder_settings },
	[SECTIONS] = { .name = NULL },
};

#define SETTINGS_MAX 16 /* of a section */
_Static_assert(XD_LIMIT_COUNT <= SETTINGS_MAX, "all limits have a line of their own");
#define HANDSHAKES_MAX 65536
#define BYTES_MAX (UINT64_C(1) << 50)
/* user and group sections each; they are searched one by one. */
#define PRINCIPALS_MAX 4096

struct reader {
	struct xd_policy *policy;
	struct xd_config_errors *errors;
	int section_line[SECTIONS];               /* of those that stand once: where they were */
	int setting_line[SECTIONS][SETTINGS_MAX]; /* in the section at hand */
	int *user_line, *group_line;              /* where each of policy's users and groups was */
	struct xd_principal *principal;           /* the section at hand; may be &nobody */
	struct xd_principal nobody;               /* takes what is said of a name that nobody has */
	bool no_memory;
};

/* ---- arrays ---- */

/* Room for one more behind n elements: arrays are full at each power of two. */
static void *make_room(struct reader *r, void *array, uint32_t n, size_t size)
{
	void *more;

	if (n & (n - 1))
		return array;
	more = reallocarray(array, n ? n * (size_t)2 : 1, size);
	if (!more)
		r->no_memory = true;
	return more;
}

#define APPEND(r, array, n, value)                                                                 \
	do {                                                                                       \
		void *more_ = make_room(r, array, n, sizeof(*(array)));                            \
                                                                                                   \
		if (more_) {                                                                       \
			(array) = more_;                                                           \
			(array)[(n)++] = (value);                                                  \
		}                                                                                  \
	} while (0)

/* ---- users, groups ---- */

/* A uid or gid in digits; the highest means "none" to the kernel. */
static bool parse_id(const char *text, uint32_t *ret)
{
	uint64_t id;

	if (strspn(text, "0123456789") != strlen(text) || xc_size_parse(text, &id) < 0 ||
	    id >= UINT32_MAX)
		return false;
	*ret = (uint32_t)id;
	return true;
}

/* getpwnam(3): of a missing name, errno is 0 or, from some databases, one of these. */
static bool means_missing(int error)
{
	return error == 0 || error == ENOENT || error == ESRCH || error == EBADF || error == EPERM;
}

static bool find_id(struct reader *r, const struct xd_config_item *item, bool group, uint32_t *ret)
{
	const char *what = group ? "group" : "user";
	const struct passwd *pw;
	const struct group *gr;

	if (parse_id(item->text, ret))
		return true;
	errno = 0;
	if (group) {
		gr = getgrnam(item->text);
		if (gr) {
			*ret = gr->gr_gid;
			return true;
		}
	} else {
		pw = getpwnam(item->text);
		if (pw) {
			*ret = pw->pw_uid;
			return true;
		}
	}
	if (means_missing(errno))
		xd_config_error(r->errors, item->line, "there is no %s \"%s\"", what, item->text);
	else
		xd_config_error(r->errors, item->line, "looking up %s \"%s\": %s", what, item->text,
				strerror(errno));
	return false;
}

static bool is_new(struct reader *r, const struct xd_config_item *item, const char *what,
		   const struct xd_principal *principals, uint32_t n, const int *lines)
{
	for (uint32_t i = 0; i < n; i++) {
		if (principals[i].id != r->principal->id)
			continue;
		xd_config_error(r->errors, item->line,
				"%s \"%s\" has a section already, \"%s\" in line %d", what,
				item->text, principals[i].name, lines[i]);
		return false;
	}
	if (n == PRINCIPALS_MAX) {
		xd_config_error(r->errors, item->line, "more than %d %s sections", PRINCIPALS_MAX,
				what);
		return false;
	}
	return true;
}

static void begin_user(struct reader *r, const struct xd_config_item *item)
{
	struct xd_policy *p = r->policy;
	uint32_t n = p->n_users;

	if (!find_id(r, item, false, &r->nobody.id) ||
	    !is_new(r, item, "user", p->users, n, r->user_line))
		return;
	APPEND(r, r->user_line, n, item->line);
	APPEND(r, p->users, p->n_users, r->nobody);
	if (p->n_users > 0)
		r->principal = &p->users[p->n_users - 1];
}

static void begin_group(struct reader *r, const struct xd_config_item *item)
{
	struct xd_policy *p = r->policy;
	uint32_t n = p->n_groups;

	if (!find_id(r, item, true, &r->nobody.id) ||
	    !is_new(r, item, "group", p->groups, n, r->group_line))
		return;
	APPEND(r, r->group_line, n, item->line);
	APPEND(r, p->groups, p->n_groups, r->nobody);
	if (p->n_groups > 0)
		r->principal = &p->groups[p->n_groups - 1];
}

/* ---- sections ---- */

static void begin_once(struct reader *r, const struct xd_config_item *item)
{
	int *line = &r->section_line[item->section];

	if (*line)
		xd_config_error(r->errors, item->line,
				"there is a section \"%s\" already, in line %d",
				sections[item->section].name, *line);
	else
		*line = item->line;
}

static void begin_device(struct reader *r, const struct xd_config_item *item)
{
	int *line = &r->section_line[DEVICE];

	if (strcmp(item->text, IWARP) != 0)
		xd_config_error(r->errors, item->line,
				"device \"%s\": no device but \"" IWARP "\" has settings",
				item->text);
	else if (*line)
		xd_config_error(r->errors, item->line,
				"device \"%s\" has a section already, in line %d", item->text,
				*line);
	else
		*line = item->line;
}

static void begin_section(struct reader *r, const struct xd_config_item *item)
{
	memset(r->setting_line[item->section], 0, sizeof(r->setting_line[0]));
	r->nobody = (struct xd_principal){ .id = UINT32_MAX };
	snprintf(r->nobody.name, sizeof(r->nobody.name), "%s", item->text);
	r->principal = &r->nobody;
	switch (item->section) {
	case USER:
		begin_user(r, item);
		break;
	case GROUP:
		begin_group(r, item);
		break;
	case ALLOW:
		APPEND(r, r->policy->allows, r->policy->n_allows,
		       ((struct xd_allow){ .everybody = true }));
		break;
	case DEVICE:
		begin_device(r, item);
		break;
	default:
		begin_once(r, item);
	}
}

/* ---- values ---- */

static const char *name_of(const struct xd_config_item *item)
{
	return sections[item->section].settings[item->setting].name;
}

/* Plain numbers may use K, M and so on; KiB is a word for bytes. */
static bool parse_number(struct reader *r, const struct xd_config_item *item, bool bytes,
			 uint64_t min, uint64_t max, uint64_t *ret)
{
	int e = xc_size_parse(item->text, ret);

	if (e == -EINVAL || (!bytes && strchr(item->text, 'B'))) {
		xd_config_error(r->errors, item->line, "%s: \"%s\" is no %s", name_of(item),
				item->text,
				bytes ? "size (such as 4096, 64K or 1GiB)" :
					"number (such as 1000 or 64K)");
		return false;
	}
	if (e < 0 || *ret < min || *ret > max) {
		char most[32];

		snprintf(most, sizeof(most), "%" PRIu64, max);
		xd_config_error(r->errors, item->line,
				"%s: %s is out of range: %" PRIu64 " to %s will do", name_of(item),
				item->text, min,
				bytes ? xc_size_format(max, most, sizeof(most)) : most);
		return false;
	}
	return true;
}

static void read_limit(struct reader *r, const struct xd_config_item *item)
{
	bool bytes = item->setting == XD_LIMIT_pinned || item->setting == XD_LIMIT_bytes;
	/* Nobody can want a daemon that may hold nothing; a user that may not is another thing. */
	uint64_t min = item->section == TOTAL ? 1 : 0;
	uint64_t value, max = bytes ? BYTES_MAX : XC_SLOTS_MAX;

	if (!parse_number(r, item, bytes, min, max, &value))
		return;
	switch (item->section) {
	case LIMITS:
		r->policy->user.value[item->setting] = value;
		break;
	case TOTAL:
		r->policy->total.value[item->setting] = value;
		break;
	default:
		r->principal->set[item->setting] = true;
		r->principal->limits.value[item->setting] = value;
	}
}

static void read_time(struct reader *r, const struct xd_config_item *item)
{
	uint64_t ms;
	int e = xc_time_parse(item->text, &ms);

	if (e == -EINVAL) {
		xd_config_error(r->errors, item->line,
				"%s: \"%s\" is no time (such as 200ms, 5s or 1m)", name_of(item),
				item->text);
		return;
	}
	if (e < 0 || ms < time_bounds[item->setting].min_ms ||
	    ms > time_bounds[item->setting].max_ms) {
		xd_config_error(r->errors, item->line, "%s: %s is out of range: %s will do",
				name_of(item), item->text, time_bounds[item->setting].text);
		return;
	}
	*(uint64_t *)(void *)((char *)r->policy + time_bounds[item->setting].offset) = ms;
}

/* Addresses are compared in the form that the kernel acts on: such a range would never match. */
static bool is_mapped(const struct xc_range *range)
{
	struct xc_range mapped;

	return xc_range_parse("::ffff:0.0.0.0/96", &mapped) == 0 && range->prefix_bits >= 96 &&
	       xc_range_contains(&mapped, &range->base);
}

static bool parse_range(struct reader *r, const struct xd_config_item *item, struct xc_range *ret)
{
	if (xc_range_parse(item->text, ret) < 0) {
		xd_config_error(r->errors, item->line,
				"%s: \"%s\" is no address range (such as 10.0.0.0/8 or \"::1\"; "
				"bits behind the prefix must be 0)",
				name_of(item), item->text);
		return false;
	}
	if (is_mapped(ret)) {
		xd_config_error(r->errors, item->line, "%s: write \"%s\" as IPv4", name_of(item),
				item->text);
		return false;
	}
	return true;
}

static void read_allow(struct reader *r, const struct xd_config_item *item)
{
	struct xd_allow *allow;
	struct xc_range range;
	uint32_t id;

	if (r->no_memory)
		return;
	allow = &r->policy->allows[r->policy->n_allows - 1];
	if (item->setting == ALLOW_USERS || item->setting == ALLOW_GROUPS) {
		allow->everybody = false;
		if (!find_id(r, item, item->setting == ALLOW_GROUPS, &id))
			return;
	} else if (!parse_range(r, item, &range)) {
		return;
	}
	switch (item->setting) {
	case ALLOW_USERS:
		APPEND(r, allow->uids, allow->n_uids, id);
		break;
	case ALLOW_GROUPS:
		APPEND(r, allow->gids, allow->n_gids, id);
		break;
	case ALLOW_LISTEN:
		APPEND(r, allow->listen, allow->n_listen, range);
		break;
	case ALLOW_CONNECT:
		APPEND(r, allow->connect, allow->n_connect, range);
		break;
	default:
		APPEND(r, allow->accept, allow->n_accept, range);
	}
}

static void read_switch(struct reader *r, const struct xd_config_item *item, bool *ret)
{
	if (strcmp(item->text, "yes") == 0)
		*ret = true;
	else if (strcmp(item->text, "no") == 0)
		*ret = false;
	else
		xd_config_error(r->errors, item->line, "%s: \"%s\" is neither yes nor no",
				name_of(item), item->text);
}

static void read_u32(struct reader *r, const struct xd_config_item *item, uint64_t max,
		     uint32_t *ret)
{
	uint64_t value;

	if (parse_number(r, item, false, 1, max, &value))
		*ret = (uint32_t)value;
}

static void read_profile(struct reader *r, const struct xd_config_item *item)
{
	char *ret = r->policy->iwarp.profile, names[128] = "";
	size_t used = 0;

	if (iwarp_profile_find(item->text)) {
		snprintf(ret, sizeof(r->policy->iwarp.profile), "%s", item->text);
		return;
	}
	for (const struct iwarp_profile *p = iwarp_profiles; p->name && used < sizeof(names); p++)
		used += (size_t)snprintf(names + used, sizeof(names) - used, "%s%s",
					 used ? ", " : "", p->name);
	xd_config_error(r->errors, item->line, "%s: there is no \"%s\" (valid names: %s)",
			name_of(item), item->text, names);
}

static void read_iwarp(struct reader *r, const struct xd_config_item *item)
{
	struct xd_iwarp_policy *p = &r->policy->iwarp;

	switch (item->setting) {
	case IWARP_CRC:
		read_switch(r, item, &p->crc);
		break;
	case IWARP_SHORTCUT:
		read_switch(r, item, &p->shortcut);
		break;
	case IWARP_IRD:
		read_u32(r, item, IWARP_READS_MAX, &p->ird);
		break;
	case IWARP_ORD:
		read_u32(r, item, IWARP_READS_MAX, &p->ord);
		break;
	case IWARP_PROFILE:
		read_profile(r, item);
		break;
	case IWARP_HANDSHAKES:
		read_u32(r, item, HANDSHAKES_MAX, &p->handshakes);
		break;
	default:
		read_u32(r, item, HANDSHAKES_MAX, &p->handshakes_per_host);
	}
}

static void read_force(struct reader *r, const struct xd_config_item *item)
{
	char names[128] = "none";
	size_t used = strlen(names);

	for (int i = 0; i < XD_RUNG_COUNT; i++) {
		if (strcmp(item->text, xd_rung_names[i]) == 0) {
			r->policy->force = (enum xd_rung)i;
			return;
		}
		used += (size_t)snprintf(names + used, sizeof(names) - used, ", %s",
					 xd_rung_names[i]);
	}
	if (strcmp(item->text, "none") == 0)
		r->policy->force = XD_RUNG_COUNT;
	else
		xd_config_error(r->errors, item->line, "%s: there is no \"%s\" (valid names: %s)",
				name_of(item), item->text, names);
}

static void read_value(struct reader *r, const struct xd_config_item *item)
{
	int *line = &r->setting_line[item->section][item->setting];

	if (item->first && *line)
		xd_config_error(r->errors, item->line, "\"%s\" is set already, in line %d",
				name_of(item), *line);
	if (item->first)
		*line = item->line;
	switch (item->section) {
	case FILE_ITSELF:
		read_u32(r, item, HANDSHAKES_MAX, &r->policy->handshakes);
		break;
	case ALLOW:
		read_allow(r, item);
		break;
	case TIMES:
		read_time(r, item);
		break;
	case DEVICE:
		read_iwarp(r, item);
		break;
	case LADDER:
		read_force(r, item);
		break;
	default:
		read_limit(r, item);
	}
}

/* What sections say nothing of. Comes last: `limits` may stand behind them. */
static void fill_gaps(struct xd_policy *p)
{
	for (int limit = 0; limit < XD_LIMIT_COUNT; limit++) {
		for (uint32_t i = 0; i < p->n_users; i++) {
			if (!p->users[i].set[limit])
				p->users[i].limits.value[limit] = p->user.value[limit];
		}
		for (uint32_t i = 0; i < p->n_groups; i++) {
			if (!p->groups[i].set[limit])
				p->groups[i].limits.value[limit] = UINT64_MAX;
		}
	}
}

/* ---- the whole ---- */

static int by_line(const void *a, const void *b)
{
	const struct xd_config_error *x = a, *y = b;

	return (x->line > y->line) - (x->line < y->line);
}

/* NULL: no memory. */
static char *format_errors(const char *name, struct xd_config_errors *errors)
{
	char *text = NULL;
	size_t size;
	FILE *f = open_memstream(&text, &size);

	if (!f)
		return NULL;
	/* glibc's qsort is a merge sort for so few: errors of one line keep their order. */
	qsort(errors->error, errors->n, sizeof(errors->error[0]), by_line);
	for (size_t i = 0; i < errors->n; i++)
		fprintf(f, "%s:%d: %s\n", name, errors->error[i].line, errors->error[i].text);
	if (errors->total > errors->n)
		fprintf(f, "%s: and %zu more\n", name, errors->total - errors->n);
	if (fclose(f) != 0) {
		free(text);
		return NULL;
	}
	return text;
}

static int read_items(const struct xd_config_items *items, struct reader *r)
{
	for (size_t i = 0; i < items->n && !r->no_memory; i++) {
		if (items->item[i].setting < 0)
			begin_section(r, &items->item[i]);
		else
			read_value(r, &items->item[i]);
	}
	free(r->user_line);
	free(r->group_line);
	fill_gaps(r->policy);
	return r->no_memory || r->errors->no_memory ? -ENOMEM : 0;
}

int xd_config_parse(const char *name, const char *text, size_t size, struct xd_policy *policy,
		    char **ret_errors)
{
	struct xd_config_errors errors = { .n = 0 };
	struct reader reader = { .policy = policy, .errors = &errors };
	struct xd_config_items items;
	int r;

	*ret_errors = NULL;
	xd_policy_init(policy);
	r = xd_config_scan(text, size, sections, &items, &errors);
	if (r == 0)
		r = read_items(&items, &reader);
	if (r == 0 && errors.total > 0) {
		r = -EINVAL;
		*ret_errors = format_errors(name, &errors);
	}
	if (r < 0) {
		xd_policy_done(policy);
		xd_policy_init(policy);
	}
	xd_config_items_done(&items);
	xd_config_errors_done(&errors);
	return r;
}

/* One byte more than allowed tells "too long" from "just fits". -errno, or the size. */
static ssize_t read_file(const char *path, char *buf, size_t size)
{
	xc_auto_close int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
	size_t n = 0;

	if (fd < 0)
		return -errno;
	while (n < size) {
		ssize_t got = read(fd, buf + n, size - n);

		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			return -errno;
		if (got == 0)
			break;
		n += (size_t)got;
	}
	return n == size ? -EFBIG : (ssize_t)n;
}

int xd_config_load(const char *path, bool must_exist, struct xd_policy *policy, char **ret_errors)
{
	xc_auto_free char *buf = malloc(XD_CONFIG_BYTES_MAX + 1);
	ssize_t n;

	*ret_errors = NULL;
	xd_policy_init(policy);
	if (!buf)
		return -ENOMEM;
	n = read_file(path, buf, XD_CONFIG_BYTES_MAX + 1);
	if (n == -ENOENT && !must_exist)
		return 0;
	if (n < 0) {
		const char *why = n == -EFBIG ? "it is longer than 1 MiB" : strerror((int)-n);

		if (asprintf(ret_errors, "%s: %s\n", path, why) < 0)
			*ret_errors = NULL;
		return (int)n;
	}
	return xd_config_parse(path, buf, (size_t)n, policy, ret_errors);
}
