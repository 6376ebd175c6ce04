/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The audit of keys by itself, and what the tables say of keys that have lived and died on each
 * kind of fabric.
 */
#include "tests/unit/core_rig.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "daemon/core/audit.h"

#define MS UINT64_C(1000000)

/* ---- by itself */

static struct xd_audit *audit;
static uint64_t now;

static struct xd_audit_of of_user(uint32_t uid)
{
	return (struct xd_audit_of){ .session = 1, .uid = uid, .buffer = 1, .length = 10,
				     .access = XD_AUDIT_REMOTE_READ };
}

static void make(struct xd_audit_key *k, uint32_t uid)
{
	struct xd_audit_of of = of_user(uid);

	xd_audit_made(audit, k, &of, ++now);
}

/* Four events. */
static void live_and_die(uint32_t uid)
{
	struct xd_audit_key k = { .number = 0 };

	make(&k, uid);
	xd_audit_live(audit, &k, ++now);
	xd_audit_dying(audit, &k, XD_AUDIT_DONE, ++now);
	xd_audit_dead(audit, &k, ++now);
}

/* How many, each newer than the one before; of one user or (UINT32_MAX) all. */
static uint64_t events(uint32_t uid)
{
	const struct xd_audit_event *e;
	uint64_t n = 0, time = 0;

	for (uint64_t at = 0; (e = xd_audit_next_event(audit, at)); at = e->number + 1) {
		assert_true(e->number >= at && e->time_ns > time);
		time = e->time_ns;
		n += uid == UINT32_MAX || e->of.uid == uid;
	}
	return n;
}

static void a_life(void **unused)
{
	static const enum xd_audit_what what[] = { XD_AUDIT_WAS_MADE, XD_AUDIT_WAS_LIVE,
						   XD_AUDIT_WAS_DYING, XD_AUDIT_WAS_DEAD };
	struct xd_audit_key k = { .number = 0 };
	const struct xd_audit_event *e;

	(void)unused;
	audit = xd_audit_new();
	make(&k, 7);
	assert_int_equal(k.state, XD_AUDIT_MAKING);
	xd_audit_live(audit, &k, ++now);
	assert_ptr_equal(xd_audit_next_key(audit, 0), &k);
	xd_audit_dying(audit, &k, XD_AUDIT_INVALIDATED, ++now);
	/* The first reason stays, and it is told once. */
	xd_audit_dying(audit, &k, XD_AUDIT_DEADLINE, ++now);
	assert_int_equal(xd_audit_keys(audit), 1);
	xd_audit_dead(audit, &k, ++now);
	assert_int_equal(k.state, XD_AUDIT_FREE);
	assert_null(xd_audit_next_key(audit, 0));
	for (uint64_t i = 1; i <= 4; i++) {
		e = xd_audit_next_event(audit, i);
		assert_int_equal(e->number, i);
		assert_int_equal(e->what, what[i - 1]);
		assert_int_equal(e->key, 1);
		assert_int_equal(e->why, i < 3 ? XD_AUDIT_NO_REASON : XD_AUDIT_INVALIDATED);
	}
	assert_null(xd_audit_next_event(audit, 5));
	/* The same object again: another key. */
	make(&k, 7);
	assert_int_equal(k.number, 2);
	assert_int_equal(k.why, XD_AUDIT_NO_REASON);
	xd_audit_refused(audit, &k, ++now);
	assert_int_equal(xd_audit_next_event(audit, 6)->what, XD_AUDIT_WAS_REFUSED);
	xd_audit_free(audit);
}

/* ---- steps that cannot be */

enum step { MADE, LIVE, DYING, DEAD, REFUSED, STEPS };

static void take(struct xd_audit_key *k, enum step step)
{
	switch (step) {
	case MADE:
		make(k, 1);
		break;
	case LIVE:
		xd_audit_live(audit, k, ++now);
		break;
	case DYING:
		xd_audit_dying(audit, k, XD_AUDIT_DONE, ++now);
		break;
	case DEAD:
		xd_audit_dead(audit, k, ++now);
		break;
	default:
		xd_audit_refused(audit, k, ++now);
		break;
	}
}

/* In a child: true where it aborts. */
static bool aborts(enum xd_audit_state from, enum step step)
{
	static const enum step way[] = { MADE, LIVE, DYING };
	struct xd_audit_key k = { .number = 0 };
	pid_t pid = fork();
	int status;

	if (pid == 0) {
		signal(SIGABRT, SIG_DFL);
		if (!freopen("/dev/null", "w", stderr))
			_exit(2);
		audit = xd_audit_new();
		for (int i = 0; i < (int)from; i++)
			take(&k, way[i]);
		take(&k, step);
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFSIGNALED(status) ? WTERMSIG(status) == SIGABRT : WEXITSTATUS(status) == 0);
	return WIFSIGNALED(status);
}

static void what_cannot_be_aborts(void **unused)
{
	static const bool may[][STEPS] = {
		[XD_AUDIT_FREE] = { [MADE] = true },
		[XD_AUDIT_MAKING] = { [LIVE] = true, [DYING] = true, [REFUSED] = true },
		/* Not DEAD: somebody must have asked for its death. */
		[XD_AUDIT_LIVE] = { [DYING] = true },
		[XD_AUDIT_DYING] = { [DYING] = true, [DEAD] = true },
	};

	(void)unused;
	for (int state = XD_AUDIT_FREE; state <= XD_AUDIT_DYING; state++)
		for (int step = 0; step < STEPS; step++)
			assert_int_equal(aborts((enum xd_audit_state)state, (enum step)step),
					 !may[state][step]);
}

/* ---- room */

static void the_oldest_make_room(void **unused)
{
	(void)unused;
	audit = xd_audit_new();
	for (int i = 0; i < XD_AUDIT_EVENTS / 4; i++)
		live_and_die(1);
	assert_int_equal(events(1), XD_AUDIT_EVENTS);
	assert_int_equal(xd_audit_next_event(audit, 0)->number, 1);
	for (int i = 0; i < 1000; i++)
		live_and_die(1);
	assert_int_equal(events(1), XD_AUDIT_EVENTS);
	assert_int_equal(xd_audit_next_event(audit, 0)->number, 4001);
	/* A reader whose place has gone goes on with what is there. */
	assert_int_equal(xd_audit_next_event(audit, 4100)->number, 4100);
	for (int i = 0; i < 100; i++)
		live_and_die(1);
	assert_int_equal(xd_audit_next_event(audit, 4200)->number, 4401);
	xd_audit_free(audit);
}

static void nobody_floods_another(void **unused)
{
	(void)unused;
	audit = xd_audit_new();
	for (int i = 0; i < 100; i++)
		live_and_die(1);
	for (int i = 0; i < XD_AUDIT_EVENTS; i++)
		live_and_die(2);
	assert_int_equal(events(1), 400);
	assert_int_equal(events(2), XD_AUDIT_EVENTS - 400);
	/* One that comes later gets its part. */
	for (int i = 0; i < XD_AUDIT_EVENTS; i++)
		live_and_die(3);
	assert_int_equal(events(1), 400);
	assert_in_range(events(2), XD_AUDIT_EVENTS / 3, XD_AUDIT_EVENTS - 400);
	assert_in_range(events(3), XD_AUDIT_EVENTS / 3, XD_AUDIT_EVENTS - 400);
	assert_int_equal(events(UINT32_MAX), XD_AUDIT_EVENTS);
	xd_audit_free(audit);
}

static void users_without_number(void **unused)
{
	(void)unused;
	audit = xd_audit_new();
	for (uint32_t uid = 0; uid < 20 * XD_AUDIT_USERS; uid++)
		for (int i = 0; i < 10; i++)
			live_and_die(uid);
	assert_int_equal(events(UINT32_MAX), XD_AUDIT_EVENTS);
	/* The first ones have their places, and the rest share one. */
	assert_int_equal(events(0), 40);
	assert_int_equal(events(20 * XD_AUDIT_USERS - 1), 40);
	xd_audit_free(audit);
}

/* ---- reading while keys come and go */

static void readers_miss_nothing(void **unused)
{
	struct xd_audit_key keys[100] = { { .number = 0 } };
	uint64_t at = 0, n = 0;

	(void)unused;
	audit = xd_audit_new();
	for (int i = 0; i < 100; i++) {
		make(&keys[i], 1);
		xd_audit_live(audit, &keys[i], ++now);
	}
	/* While one reads key N, N and N + 1 vanish, and a new one comes. */
	for (const struct xd_audit_key *k; (k = xd_audit_next_key(audit, at)); n++) {
		size_t i = k->number - 1;

		at = k->number + 1;
		if (k->number > 100)
			break;
		for (size_t j = i; j < i + 2; j++) {
			take(&keys[j], DYING);
			take(&keys[j], DEAD);
		}
		make(&keys[i], 1);
	}
	assert_int_equal(n, 50);
	assert_int_equal(xd_audit_keys(audit), 50);
	/* One who comes anew begins at the first. */
	assert_int_equal(xd_audit_next_key(audit, 120)->number, 120);
	assert_int_equal(xd_audit_next_key(audit, 0)->number, 101);
	for (int i = 0; i < 100; i += 2)
		take(&keys[i], REFUSED);
	assert_null(xd_audit_next_key(audit, 0));
	xd_audit_free(audit);
}

/* ---- in the core, by the tables */

static struct rig rig;
static struct rig_client a, b, admin;

#define CELL 64
#define ROWS 512

struct rows {
	struct xd_table_sink sink;
	const struct xd_column *columns;
	size_t n_columns, n, room;
	char cells[ROWS * 16][CELL];
	size_t n_cells;
};

static struct rows rows;

static bool row(struct xd_table_sink *sink)
{
	(void)sink;
	if (!rows.room)
		return false;
	rows.room--;
	rows.n++;
	assert_true(rows.n <= ROWS);
	return true;
}

static void text(struct xd_table_sink *sink, const char *value)
{
	(void)sink;
	snprintf(rows.cells[rows.n_cells++], CELL, "%s", value);
}

static void number(struct xd_table_sink *sink, uint64_t value)
{
	(void)sink;
	snprintf(rows.cells[rows.n_cells++], CELL, "%llu", (unsigned long long)value);
}

static int ask(struct rig_client *c, const char *table, const char *about, size_t at_a_time)
{
	uint64_t cursor = 0;
	char why[XD_TEXT_MAX] = "";
	int r;

	memset(&rows, 0, sizeof(rows));
	rows.sink = (struct xd_table_sink){ .row = row, .text = text, .number = number };
	do {
		rows.room = at_a_time;
		r = xd_session_query(c->s, table, &about, about ? 1 : 0, &cursor, &rows.columns,
				     &rows.n_columns, &rows.sink, why);
	} while (r == 0 && cursor);
	assert_int_equal(r < 0, why[0] != '\0');
	assert_int_equal(rows.n_cells, rows.n * rows.n_columns);
	return r;
}

static const char *cell(size_t i, const char *column)
{
	assert_true(i < rows.n);
	for (size_t c = 0; c < rows.n_columns; c++)
		if (strcmp(rows.columns[c].name, column) == 0)
			return rows.cells[i * rows.n_columns + c];
	fail_msg("no column %s", column);
	return "";
}

static void pair(enum fabric_keys keys)
{
	rig_defaults();
	rig_caps.keys = keys;
	rig_caps.pins = keys != FABRIC_KEYS_WINDOW;
	rig_caps.remote_invalidate = keys == FABRIC_KEYS_WINDOW;
	rig_init(&rig);
	rig_client_init(&rig, &a, 1000, false);
	rig_buffer(&rig, &a);
	rig_client_init(&rig, &b, 1001, false);
	rig_buffer(&rig, &b);
	rig_client_init(&rig, &admin, 0, true);
	rig_connect(&rig, &a, &b);
}

/* The keys that carried grants of a, in the order of their deaths, as "access why". */
static size_t deaths(const char *about, char ret[][CELL])
{
	size_t n = 0;

	assert_int_equal(ask(&admin, "key-history", about, 7), 0);
	for (size_t i = 0; i < rows.n; i++) {
		if (strcmp(cell(i, "what"), "dead") != 0 || strcmp(cell(i, "uid"), "1000") != 0 ||
		    strcmp(cell(i, "access"), "local") == 0)
			continue;
		snprintf(ret[n++], CELL, "%s %s", cell(i, "access"), cell(i, "why"));
	}
	return n;
}

static void lives_on(enum fabric_keys keys)
{
	static const char *const kinds[] = { "window", "exact", "copy" };
	struct xp_completion token;
	char dead[8][CELL], about[CELL];
	size_t n = 0;

	pair(keys);
	token = rig_grant(&rig, &a, 100, 1000, false, 0);
	snprintf(about, sizeof(about), "buffer=1:%u:1099+1", a.buffer);
	assert_int_equal(ask(&a, "keys", about, 100), 0);
	assert_true(rows.n >= 1);
	assert_string_equal(cell(rows.n - 1, "kind"), kinds[keys]);
	assert_string_equal(cell(rows.n - 1, "state"), "live");
	assert_string_equal(cell(rows.n - 1, "offset"), "100");
	assert_string_equal(cell(rows.n - 1, "length"), "1000");
	assert_string_equal(cell(rows.n - 1, "access"), "read");
	assert_memory_equal(cell(rows.n - 1, "peer"), "127.0.0.1:", 10);
	assert_int_equal(ask(&a, "grants", NULL, 100), 0);
	assert_string_equal(cell(0, "carrier"), kinds[keys]);
	assert_true(atoi(cell(0, "key")) > 0);
	rig_submit(&a, XP_OP_REVOKE, 1, 0, 0, &token);
	rig_run(&rig);
	rig_completion(&a, 1, 0);
	rig_grant(&rig, &a, 0, 10, true, 50);
	fake_engine_advance(&rig.engine, 51 * MS);
	rig_run(&rig);
	rig_grant(&rig, &a, 2000, 10, false, 0);
	xd_session_disconnect(a.s, ++rig.serial, a.endpoint);
	rig_run(&rig);
	/* No range but these. */
	assert_int_equal(ask(&a, "key-history", "buffer=1:77", 100), 0);
	assert_int_equal(rows.n, 0);
	assert_int_equal(ask(&admin, "key-history", NULL, 3), 0);
	assert_true(rows.n > 0);
	n = deaths("session=1", dead);
	assert_int_equal(n, 3);
	assert_string_equal(dead[0], "read revoke");
	assert_string_equal(dead[1], "write deadline");
	assert_string_equal(dead[2], "read disconnect");
	assert_int_equal(deaths(about, dead), 1);
	assert_int_equal(deaths("uid=1000", dead), 3);
	assert_int_equal(deaths("peer=127.0.0.1", dead), 3);
	assert_int_equal(deaths("peer=127.0.0.2", dead), 0);
	assert_int_equal(deaths("session=2", dead), 0);
	rig_close(&rig, &a);
	rig_close(&rig, &b);
	assert_int_equal(ask(&admin, "keys", NULL, 100), 0);
	assert_int_equal(rows.n, 0);
	rig_close(&rig, &admin);
	rig_done(&rig);
}

static void each_end_has_its_reason(void **unused)
{
	(void)unused;
	lives_on(FABRIC_KEYS_WINDOW);
	lives_on(FABRIC_KEYS_MR);
	lives_on(FABRIC_KEYS_SLAB);
}

static void a_death_is_one(void **unused)
{
	char dead[8][CELL];

	(void)unused;
	pair(FABRIC_KEYS_WINDOW);
	rig_grant(&rig, &a, 100, 1000, false, 0);
	/* The others see nothing of it. */
	assert_int_equal(ask(&b, "key-history", NULL, 100), 0);
	for (size_t i = 0; i < rows.n; i++)
		assert_string_equal(cell(i, "uid"), "1001");
	assert_int_equal(ask(&b, "keys", "uid=1000", 100), 0);
	assert_int_equal(rows.n, 0);
	rig_close(&rig, &a);
	assert_int_equal(deaths(NULL, dead), 1);
	assert_string_equal(dead[0], "read death");
	rig_close(&rig, &b);
	rig_close(&rig, &admin);
	rig_done(&rig);
}

static void questions_are_checked(void **unused)
{
	static const char *const wrong[] = {
		"",	      "buffer",	     "buffer=",	      "buffer=1",      "buffer=1:",
		"buffer=1:2:", "buffer=1:2:3", "buffer=1:2:3+", "buffer=1:2:3+4x", "buffer=1:2:-3+4",
		"peer=",      "peer=host",   "peer=127.0.0.1:70000", "session=", "session=-1",
		"uid=x",      "key=18446744073709551616", "keys=1", "=1", "uid =1",
	};

	(void)unused;
	pair(FABRIC_KEYS_WINDOW);
	for (size_t i = 0; i < XC_ARRAY_SIZE(wrong); i++) {
		assert_int_equal(ask(&a, "keys", wrong[i], 100), -EINVAL);
		assert_int_equal(ask(&a, "key-history", wrong[i], 100), -EINVAL);
		assert_int_equal(rows.n, 0);
	}
	assert_int_equal(ask(&a, "pools", "uid=1", 100), -EINVAL);
	assert_int_equal(ask(&a, "nothing", NULL, 100), -ENOENT);
	assert_int_equal(ask(&a, "keys", "key=18446744073709551615", 100), 0);
	assert_int_equal(ask(&a, "keys", "peer=::1", 100), 0);
	assert_int_equal(ask(&a, "keys", "peer=[::1]:7", 100), 0);
	assert_int_equal(rows.n, 0);
	rig_close(&rig, &a);
	rig_close(&rig, &b);
	rig_close(&rig, &admin);
	rig_done(&rig);
}

/* ---- quotas and pools, a row at a time */

static void tables_go_on_where_they_were(void **unused)
{
	size_t n;

	(void)unused;
	pair(FABRIC_KEYS_SLAB);
	rig_grant(&rig, &a, 0, 5000, false, 0);
	rig_grant(&rig, &b, 0, 5000, true, 0);
	for (size_t i = 0; i < 2; i++) {
		static const char *const tables[] = { "quotas", "pools" };

		assert_int_equal(ask(&admin, tables[i], NULL, 1000), 0);
		n = rows.n;
		assert_true(n >= 4);
		assert_int_equal(ask(&admin, tables[i], NULL, 1), 0);
		assert_int_equal(rows.n, n);
	}
	assert_int_equal(ask(&a, "pools", NULL, 1000), 0);
	n = 0;
	for (size_t i = 0; i < rows.n; i++) {
		assert_string_equal(cell(i, "uid"), "1000");
		if (strcmp(cell(i, "pool"), "read copies") == 0) {
			assert_string_equal(cell(i, "in_use"), "1");
			assert_string_equal(cell(i, "used"), "8192");
			n++;
		}
	}
	assert_int_equal(n, 1);
	assert_int_equal(ask(&a, "quotas", NULL, 1000), 0);
	assert_int_equal(rows.n, XD_LIMIT_COUNT);
	assert_int_equal(ask(&admin, "quotas", NULL, 1000), 0);
	assert_string_equal(cell(rows.n - 1, "who"), "total");
	rig_close(&rig, &a);
	rig_close(&rig, &b);
	rig_close(&rig, &admin);
	rig_done(&rig);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_life),
		cmocka_unit_test(what_cannot_be_aborts),
		cmocka_unit_test(the_oldest_make_room),
		cmocka_unit_test(nobody_floods_another),
		cmocka_unit_test(users_without_number),
		cmocka_unit_test(readers_miss_nothing),
		cmocka_unit_test(each_end_has_its_reason),
		cmocka_unit_test(a_death_is_one),
		cmocka_unit_test(questions_are_checked),
		cmocka_unit_test(tables_go_on_where_they_were),
	};

	rig_defaults();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
