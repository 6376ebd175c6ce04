/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#define _GNU_SOURCE 1 /* getline */
#include <errno.h>
#include <getopt.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>

#include "daemon/fabric/saboteur.h"
#include "daemon/fabric/verbs/selftest.h"
#include "daemon/fabric/verbs/selftest_rig.h"

/*
 * Runs the self-test on a real device, compares what it answers with a table, and then exposes
 * memory to a peer in the way that was decided on: what the peer can reach shows whether the
 * decision was right. With a saboteur all but the questions is done once more with it at work, and
 * these points, which begin with its name, must fail. Prints TAP. Run by tests/vm/guest.
 */

#define LIMIT_MS 60000

static int points, failures;
static const char *prefix = ""; /* of points */

__attribute__((format(printf, 2, 3))) static void point(bool good, const char *format, ...)
{
	va_list ap;

	printf("%sok %d - %s", good ? "" : "not ", ++points, prefix);
	va_start(ap, format);
	vprintf(format, ap);
	va_end(ap);
	putchar('\n');
	failures += !good;
}

/* ------------------------------------------------------------------ the table */

/* Is the answer one of "yes|no"? */
static bool among(const char *wanted, const char *answer)
{
	const size_t n = strlen(answer);

	for (const char *at = wanted; at; at = strchr(at, '|') ? strchr(at, '|') + 1 : NULL)
		if (strncmp(at, answer, n) == 0 && (at[n] == '|' || at[n] == '\0'))
			return true;
	return false;
}

struct table {
	const char *section;
	FILE *file;
	bool other_kernel;
};

/* The line of a name in our section; `ret` as it stands. False: there is none, or there are two. */
static bool find(struct table *t, const char *section, const char *name, char *ret, size_t size)
{
	char *line = NULL, in[64], is[64], value[64];
	size_t room = 0;
	int found = 0;

	rewind(t->file);
	while (getline(&line, &room, t->file) >= 0) {
		if (line[0] == '#')
			continue;
		if (sscanf(line, "%63s %63s %63s", in, is, value) == 3 &&
		    strcmp(in, section) == 0 && strcmp(is, name) == 0 && found++ == 0)
			snprintf(ret, size, "%s", value);
	}
	free(line);
	return found == 1;
}

static void compare(struct table *t, const char *name, const char *answer)
{
	char wanted[64];

	if (t->other_kernel)
		printf("ok %d - %s%s: %s # SKIP the table is of another kernel\n", ++points,
		       prefix, name, answer);
	else if (!find(t, t->section, name, wanted, sizeof(wanted)))
		point(false, "%s: %s, and the table has not one line for it", name, answer);
	else
		point(among(wanted, answer), "%s: %s (expected %s)", name, answer, wanted);
}

static void compare_number(struct table *t, const char *name, unsigned int value)
{
	char text[16];

	snprintf(text, sizeof(text), "%u", value);
	compare(t, name, text);
}

static bool open_table(struct table *t, const char *path)
{
	char *line = NULL, kernel[64];
	struct utsname u;
	size_t room = 0;

	t->file = fopen(path, "re");
	if (!t->file || uname(&u) < 0)
		return false;
	while (getline(&line, &room, t->file) >= 0)
		if (sscanf(line, "kernel %63s", kernel) == 1)
			t->other_kernel = strncmp(u.release, kernel, strlen(kernel)) != 0;
	free(line);
	return true;
}

static void compare_all(struct table *t, const struct verbs_findings *f,
			const struct fabric_caps *caps)
{
	static const char *const keys[] = { "window", "mr", "slab" };

	for (int i = 0; i < VERBS_N_QUESTIONS; i++)
		compare(t, verbs_question_name((enum verbs_question)i),
			verbs_answer_name(f->q[i].answer));
	compare(t, "keys", keys[caps->keys]);
	compare_number(t, "max_sge_rd", caps->max_sge_rd);
	compare_number(t, "remote_invalidate", caps->remote_invalidate);
	compare_number(t, "immediate", caps->immediate);
	compare_number(t, "read_sink_remote_write", caps->read_sink_remote_write);
	compare_number(t, "short_read_in_page", caps->short_read_in_page);
	compare_number(t, "receiver_not_ready", caps->receiver_not_ready);
	compare_number(t, "acknowledges", caps->acknowledged);
	compare_number(t, "signal_all", caps->signal_all);
	compare_number(t, "private_data_padded", caps->private_data_padded);
}

/* ------------------------------------------------------------------ a grant */

/*
 * Grants the key's bytes on link 0, in one direction, as the daemon would: where it is a window the
 * registration behind it covers all of the buffer, as the daemon's does. What was granted to a slab
 * is a copy: here the key's bytes stand for it. False: it could not be done.
 */
static bool grant(struct st *t, enum fabric_keys keys, bool write, uint32_t *ret_key)
{
	const int right = write ? IBV_ACCESS_REMOTE_WRITE : IBV_ACCESS_REMOTE_READ;
	struct ibv_mr *mr;
	struct ibv_mw *mw;

	if (st_connect(t, 0, t->owner_pd, 1) || !st_link_works(t, 0))
		return false;
	if (keys != FABRIC_KEYS_WINDOW) {
		mr = st_register(t, t->owner_pd, st_key_memory(t), ST_KEY_BYTES,
				 IBV_ACCESS_LOCAL_WRITE | right);
		*ret_key = mr ? mr->rkey : 0;
		return mr;
	}
	mr = st_register(t, t->owner_pd, t->owned, ST_SMALL_BYTES,
			 IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND);
	mw = st_window(t, t->owner_pd);
	if (!mr || !mw ||
	    st_bind(t, 0, mw, mr, st_address(st_key_memory(t)), ST_KEY_BYTES,
		    (unsigned int)right) != IBV_WC_SUCCESS)
		return false;
	*ret_key = mw->rkey;
	return true;
}

static void cannot_reach(struct st *t, enum fabric_keys keys, const char *what, bool granted_write,
			 const struct st_attempt *attempt)
{
	static const char *const carriers[] = { "window", "registration", "slab" };
	struct st_attempt a = *attempt;
	struct verbs_finding f = ST_LOST;

	if (grant(t, keys, granted_write, &a.key))
		f = st_forbidden(t, 0, &a);
	st_reset(t);
	point(f.answer == VERBS_YES, "a peer %s (by a %s): refused %s", what, carriers[keys],
	      verbs_answer_name(f.answer));
}

/* Of a slab a peer may read what it wrote: it is of one endpoint and one direction. */
static void reach_beyond_grants(struct st *t, enum fabric_keys keys)
{
	const uint64_t key = st_address(st_key_memory(t));
	const struct st_attempt beside = { .address = key + ST_KEY_BYTES, .bytes = 64,
					   .key_is_good = true };
	const struct st_attempt below = { .address = key - 64, .bytes = 64, .key_is_good = true };
	const struct st_attempt past = { .address = key, .bytes = ST_KEY_BYTES + 1, .write = true,
					 .key_is_good = true };
	const struct st_attempt write = { .address = key, .bytes = 64, .write = true };
	const struct st_attempt read = { .address = key, .bytes = 64 };

	cannot_reach(t, keys, "reads beside what it may read", false, &beside);
	cannot_reach(t, keys, "reads below what it may read", false, &below);
	cannot_reach(t, keys, "writes past what it may write", true, &past);
	cannot_reach(t, keys, "writes what it may read", false, &write);
	if (keys != FABRIC_KEYS_SLAB)
		cannot_reach(t, keys, "reads what it may write", true, &read);
}

/* ------------------------------------------------------------------ the way in */

static int usage(void)
{
	fputs("usage: tests/vm/selftest [--saboteur NAME] ADDRESS DRIVER TABLE\n", stderr);
	return 2;
}

static int bail_out(const char *what, int r)
{
	printf("Bail out! %s: %s\n", what, strerror(-r));
	return 1;
}

/* From what was found to what a peer can reach. */
static void judge(struct st *t, const struct verbs_findings *found, struct table *table)
{
	struct fabric_caps caps = { 0 };
	struct verbs_facts facts;

	point(verbs_verdict(found, &t->claims, &caps, &facts), "the device can be used");
	compare_all(table, found, &caps);
	reach_beyond_grants(t, caps.keys);
}

static int test(const struct xc_addr *at, const char *driver, const char *path,
		const char *saboteur)
{
	struct table table = { .section = driver };
	struct verbs_findings found;
	char sabotaged[64];
	struct st t;
	int r;

	if (!open_table(&table, path))
		return bail_out(path, -errno);
	r = verbs_selftest(NULL, at, LIMIT_MS, &found);
	if (r)
		return bail_out("verbs_selftest", r);
	r = st_init(&t, NULL, at, LIMIT_MS);
	if (r)
		return bail_out("st_init", r);
	snprintf(t.claims.driver, sizeof(t.claims.driver), "%s", driver);
	printf("# %s took %u ms\n", ibv_get_device_name(t.verbs->device), found.duration_ms);
	point(found.complete, "all questions were answered");
	judge(&t, &found, &table);
	if (saboteur) {
		snprintf(sabotaged, sizeof(sabotaged), "%s: ", saboteur);
		prefix = sabotaged;
		fabric_saboteur = saboteur;
		judge(&t, &found, &table);
	}
	st_done(&t);
	fclose(table.file);
	printf("1..%d\n", points);
	return failures ? 1 : 0;
}

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{ "saboteur", required_argument, NULL, 's' },
		{ NULL, 0, NULL, 0 },
	};
	const char *saboteur = NULL;
	struct xc_addr at;
	int opt;

	while ((opt = getopt_long(argc, argv, "s:", options, NULL)) != -1) {
		if (opt != 's')
			return usage();
		saboteur = optarg;
	}
	if (argc - optind != 3 || xc_addr_parse(argv[optind], 0, &at) < 0)
		return usage();
	setvbuf(stdout, NULL, _IOLBF, 0);
	return test(&at, argv[optind + 1], argv[optind + 2], saboteur);
}
