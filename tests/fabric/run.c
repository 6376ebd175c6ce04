/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The conformance suite of daemon/fabric/fabric.h: takes any fabric through its contract, and
 * prints TAP.
 *
 *   run                                       iwarp, and the proofs
 *   run --fabric iwarp                        inside one daemon
 *   run --fabric wire [--crc]                 the same fabric, through TCP
 *   run --fabric iwarp --profile NAME         with the limits and habits of some device; also wire
 *   run --fabric verbs --server IP --client IP
 *
 * The tests run in a child, one after the other on the same instances. One that fails ends the
 * child; the next begins in another.
 */
#include <errno.h>
#include <getopt.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "common/assert.h"
#include "tests/fabric/dribble.h"
#include "tests/fabric/open.h"
#include "tests/fabric/rig.h"
#include "tests/fabric/sabotage.h"
#include "tests/fabric/suite.h"

#define TESTS_MAX 1024
/* Nothing was reported for so long: the child is killed. */
#define CHILD_MS 120000
#define LIMIT_MS 20000
/* A fault that makes a wait fail should not be waited for as long. */
#define PROVE_LIMIT_MS 500

static const struct test *const files[] = {
	connect_tests, end_tests, listen_tests, memory_tests, move_tests, order_tests, meet_tests,
	inline_tests, access_tests, ranges_tests, flush_tests, costs_tests, many_tests,
	silence_tests,
};

static const struct test *tests[TESTS_MAX];
static uint32_t n_tests;

static struct options {
	struct open_options open;
	const char *only;
	unsigned long repeat;
	bool prove, list, verbose;
} options;

static unsigned int points, failed;

static void collect(void)
{
	for (size_t i = 0; i < XC_ARRAY_SIZE(files); i++) {
		for (const struct test *t = files[i]; t->name; t++) {
			if (options.only && !strstr(t->name, options.only))
				continue;
			for (unsigned long k = 0; k < options.repeat; k++) {
				xc_assert(n_tests < TESTS_MAX);
				tests[n_tests++] = t;
			}
		}
	}
}

/* ---- the child */

static void begin(uint64_t limit_ms)
{
	rig.limit_ms = limit_ms;
	xc_list_init(&rig.ends);
	xc_list_init(&rig.ears);
	xc_list_init(&rig.retired);
	xc_list_init(&rig.exposures);
	rig.engine = engine_new();
	if (options.verbose)
		engine_set_verbose(rig.engine);
	open_sides(&options.open);
}

static void end(void)
{
	for (int i = 0; i < rig.n_sides; i++) {
		engine_remove(rig.engine, rig.sides[i].f);
		rig.ops->close(rig.sides[i].f);
	}
	CHECK(engine_free(rig.engine, rig.limit_ms));
}

/* Emulated, on a busy machine, all of them can take longer than there is. */
static bool time_is_up(void)
{
	const char *until = getenv("XFER_TEST_UNTIL");
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return until && (double)now.tv_sec > strtod(until, NULL);
}

/* What is wrong at the end is the last test's failure. */
static void run_tests(uint32_t first, uint32_t n, uint64_t limit_ms)
{
	report_begin(first);
	begin(limit_ms);
	for (uint32_t i = first; i < first + n; i++) {
		report_begin(i);
		if (time_is_up())
			report_skip("no time is left");
		else
			tests[i]->fn();
		rig_clean();
		if (i + 1 == first + n)
			end();
		report_end();
	}
	exit(0);
}

/* ---- the parent */

struct child {
	pid_t pid;
	int fd;
};

static struct child start(uint32_t first, uint32_t n, const char *saboteur)
{
	struct child c;
	int fds[2];

	xc_assert(pipe(fds) == 0);
	fflush(NULL);
	c.pid = fork();
	xc_assert(c.pid >= 0);
	if (c.pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		close(fds[0]);
		report_to(fds[1]);
		if (saboteur)
			sabotage(saboteur);
		run_tests(first, n, saboteur ? PROVE_LIMIT_MS : LIMIT_MS);
	}
	close(fds[1]);
	c.fd = fds[0];
	return c;
}

/* False: there is none, the child has ended or hangs. */
static bool next_report(const struct child *c, struct report *ret)
{
	struct pollfd p = { .fd = c->fd, .events = POLLIN };

	if (poll(&p, 1, CHILD_MS) <= 0)
		kill(c->pid, SIGKILL);
	return read(c->fd, ret, sizeof(*ret)) == sizeof(*ret);
}

static int finish(const struct child *c)
{
	int status;

	close(c->fd);
	xc_assert(waitpid(c->pid, &status, 0) == c->pid);
	return status;
}

static void point(bool ok, const char *name, const char *detail)
{
	points++;
	failed += !ok;
	printf("%s %u - %s%s%s\n", ok ? "ok" : "not ok", points, name, detail[0] ? " " : "",
	       detail);
	fflush(stdout);
}

/* Since the last point. */
static double seconds(void)
{
	static struct timespec last;
	struct timespec t = last;

	clock_gettime(CLOCK_MONOTONIC, &last);
	return (double)(last.tv_sec - t.tv_sec) + (double)(last.tv_nsec - t.tv_nsec) / 1e9;
}

static void tell(const struct report *r)
{
	const char *name = tests[r->test]->name;
	char detail[REPORT_TEXT_MAX + 16] = "";

	if (r->verdict == SKIPPED)
		snprintf(detail, sizeof(detail), "# SKIP %s", r->text);
	point(r->verdict != FAILED, name, detail);
	if (r->verdict == FAILED)
		printf("# %s\n", r->text);
	printf("# %.1f s\n", seconds());
}

static void died(uint32_t test, int status)
{
	point(false, tests[test]->name, "");
	if (WIFSIGNALED(status))
		printf("# killed by signal %d (%s)\n", WTERMSIG(status),
		       strsignal(WTERMSIG(status)));
	else
		printf("# exit status %d\n", WEXITSTATUS(status));
}

static void run_all(void)
{
	uint32_t next = 0;

	seconds();
	while (next < n_tests) {
		struct child c = start(next, n_tests - next, NULL);
		uint32_t first = next;
		struct report r;
		int status;

		while (next < n_tests && next_report(&c, &r)) {
			tell(&r);
			next++;
			if (r.verdict == FAILED)
				break;
		}
		status = finish(&c);
		if (next < n_tests && (next == first || r.verdict != FAILED))
			died(next++, status);
		else if (next == n_tests && status && r.verdict != FAILED)
			died(next - 1, status); /* a leak, found at its end */
	}
}

/* ---- the proofs: a test, and a fault that it must see */

static void prove(uint32_t test, const char *saboteur)
{
	struct child c = start(test, 1, saboteur);
	char name[256], detail[REPORT_TEXT_MAX + 32];
	struct report r = { .verdict = PASSED };
	bool heard = next_report(&c, &r);
	int status = finish(&c);

	snprintf(name, sizeof(name), "%s, against %s", tests[test]->name, saboteur);
	if (heard && r.verdict == SKIPPED) {
		snprintf(detail, sizeof(detail), "# SKIP %s", r.text);
		point(true, name, detail);
	} else if (heard && r.verdict == FAILED) {
		snprintf(detail, sizeof(detail), "(%s)", r.text);
		point(true, name, detail);
	} else {
		point(false, name, "");
		if (heard)
			puts("# the test did not see it");
		else
			printf("# no verdict; status %d\n", status);
	}
}

/* A fault inside one fabric cannot be switched on in another. */
static bool applies(const char *saboteur)
{
	return strncmp(saboteur, "iwarp:", 6) != 0 ||
	       open_is_iwarp(&options.open);
}

static unsigned int proofs_of(const struct test *t)
{
	unsigned int n = 0;

	for (int i = 0; t->saboteurs[i]; i++)
		n += applies(t->saboteurs[i]);
	return n ? n : 1;
}

static unsigned int count_proofs(void)
{
	unsigned int n = 0;

	for (uint32_t i = 0; i < n_tests; i++)
		n += proofs_of(tests[i]);
	return n;
}

static void prove_all(void)
{
	for (uint32_t i = 0; i < n_tests; i++) {
		unsigned int before = points;

		for (int k = 0; tests[i]->saboteurs[k]; k++)
			if (applies(tests[i]->saboteurs[k]))
				prove(i, tests[i]->saboteurs[k]);
		if (points == before && open_is_iwarp(&options.open))
			point(false, tests[i]->name, "(no fault makes it fail)");
		else if (points == before)
			point(true, tests[i]->name, "# SKIP no fault of this fabric's");
	}
}

/* ---- arguments */

static _Noreturn void usage(void)
{
	fputs("usage: run [--fabric iwarp|wire|verbs] [--profile NAME] [--crc] [--dribble N]\n"
	      "           [--server IP] [--client IP] [--silent IP] [--state DIR] [--only TEXT]\n"
	      "           [--repeat N] [--prove] [--list] [--list-profiles] [--verbose]\n"
	      "  --dribble sockets of \"wire\" move 1 to N bytes at a time\n"
	      "  --silent  an address that is routed to, and where nobody answers\n"
	      "  --state   where what was found out of devices is kept, to ask them but once\n"
	      "  --only    tests whose name contains TEXT\n"
	      "  --repeat  each of them so often: for what fails now and then\n"
	      "  --prove   each test must see the faults that are built in for it\n"
	      "Without arguments: iwarp, the tests and the proofs.\n",
	      stderr);
	exit(2);
}

static struct xc_addr address(const char *text)
{
	struct xc_addr a;

	if (xc_addr_parse(text, 0, &a) < 0) {
		fprintf(stderr, "run: %s is no address\n", text);
		exit(2);
	}
	return a;
}

static void parse(int argc, char **argv)
{
	static const struct option longs[] = {
		{ "fabric", required_argument, NULL, 'f' },
		{ "crc", no_argument, NULL, 'C' },
		{ "profile", required_argument, NULL, 'P' },
		{ "list-profiles", no_argument, NULL, 'L' },
		{ "dribble", required_argument, NULL, 'd' },
		{ "server", required_argument, NULL, 's' },
		{ "client", required_argument, NULL, 'c' },
		{ "silent", required_argument, NULL, 'S' },
		{ "state", required_argument, NULL, 't' },
		{ "only", required_argument, NULL, 'o' },
		{ "repeat", required_argument, NULL, 'r' },
		{ "prove", no_argument, NULL, 'p' },
		{ "list", no_argument, NULL, 'l' },
		{ "verbose", no_argument, NULL, 'v' },
		{ 0 },
	};
	int c;

	options.repeat = 1;
	options.open.fabric = "iwarp";
	options.open.server = options.open.client = address("127.0.0.2");
	while ((c = getopt_long(argc, argv, "", longs, NULL)) != -1) {
		switch (c) {
		case 'f':
			options.open.fabric = optarg;
			break;
		case 'C':
			options.open.crc = true;
			break;
		case 'P':
			options.open.profile = optarg;
			break;
		case 'L':
			open_list_profiles();
			exit(0);
		case 'd':
			dribble((unsigned int)strtoul(optarg, NULL, 10));
			break;
		case 's':
			options.open.server = address(optarg);
			break;
		case 'c':
			options.open.client = address(optarg);
			break;
		case 'S':
			rig.silent = address(optarg);
			rig.silent.port = 20470;
			rig.has_silent = true;
			break;
		case 't':
			snprintf(options.open.state_dir, sizeof(options.open.state_dir), "%s",
				 optarg);
			break;
		case 'o':
			options.only = optarg;
			break;
		case 'r':
			options.repeat = strtoul(optarg, NULL, 10);
			break;
		case 'p':
			options.prove = true;
			break;
		case 'l':
			options.list = true;
			break;
		case 'v':
			options.verbose = true;
			break;
		default:
			usage();
		}
	}
	if (optind != argc || !open_knows(&options.open))
		usage();
}

static void list(void)
{
	for (uint32_t i = 0; i < n_tests; i++) {
		printf("%s:", tests[i]->name);
		for (int k = 0; tests[i]->saboteurs[k]; k++)
			printf(" %s", tests[i]->saboteurs[k]);
		putchar('\n');
	}
}

int main(int argc, char **argv)
{
	bool both = argc == 1;

	parse(argc, argv);
	collect();
	if (options.list) {
		list();
		return 0;
	}
	open_prepare(&options.open);
	printf("1..%u\n", (both || !options.prove ? n_tests : 0) +
			  (both || options.prove ? count_proofs() : 0));
	if (both || !options.prove)
		run_all();
	if (both || options.prove)
		prove_all();
	open_finish(&options.open);
	return failed ? 1 : 0;
}
