/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The simulation: run [--seed S | --seeds A..B] [--steps N] [--trace] [--saboteur NAME]. Without
 * arguments, as a test: many seeds (as many as go into XFER_TEST_SIM_SECONDS, where that is set),
 * then each saboteur until it is caught.
 */
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <malloc.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "daemon/core/sabotage.h"
#include "tests/sim/world.h"

struct sim_state sim = { .report_fd = -1, .keys = -1 };
#ifndef XD_SABOTEURS
static const char *xd_saboteur; /* on the product's core there are none */
#endif
static uint64_t steps = 2000;
static bool noisy;
static struct world *world;

static const char *const key_names[] = { "window", "mr", "slab" };

/* ---- trace and reports */

void sim_note(const char *format, ...)
{
	char line[512];
	va_list args;

	va_start(args, format);
	vsnprintf(line, sizeof(line), format, args);
	va_end(args);
	for (const char *c = line; *c; c++)
		sim.digest = (sim.digest ^ (uint8_t)*c) * UINT64_C(0x100000001b3);
	if (sim.trace)
		printf("%6" PRIu64 "  %s\n", sim.step, line);
}

static void say(int fd, const char *text)
{
	if (write(fd, text, strlen(text)) < 0)
		return;
}

static void how_to_replay(const char *what)
{
	char text[1024];

	if (sim.report_fd >= 0) {
		snprintf(text, sizeof(text), "seed %" PRIu64 ", step %" PRIu64 ", %s", sim.seed,
			 sim.step, what);
		say(sim.report_fd, text);
		return;
	}
	snprintf(text, sizeof(text),
		 "\n%s\nseed %" PRIu64 ", step %" PRIu64
		 "; to see it again: tests/sim/run --seed %" PRIu64
		 " --steps %" PRIu64 "%s%s%s%s --trace\n",
		 what, sim.seed, sim.step, sim.seed, steps, xd_saboteur ? " --saboteur " : "",
		 xd_saboteur ? xd_saboteur : "", sim.keys >= 0 ? " --keys " : "",
		 sim.keys >= 0 ? key_names[sim.keys] : "");
	fflush(stdout);
	say(2, text);
}

_Noreturn void sim_broken(const char *promise, const char *format, ...)
{
	char what[512];
	int n = snprintf(what, sizeof(what), "%s: ", promise);
	va_list args;

	va_start(args, format);
	vsnprintf(what + n, sizeof(what) - (size_t)n, format, args);
	va_end(args);
	if (sim.trace)
		world_dump(world);
	how_to_replay(what);
	signal(SIGABRT, SIG_DFL);
	if (sim.report_fd >= 0)
		_exit(3);
	abort();
}

static void crashed(int signo)
{
	how_to_replay(signo == SIGABRT ? "an assertion of the core" :
		      signo == SIGPROF ? "I7: it takes too long" : "a crash");
	signal(signo, SIG_DFL);
	if (sim.report_fd >= 0)
		_exit(3);
	raise(signo);
}

/* ---- one seed */

/* Of the processor's time: how busy the machine is says nothing. */
static void limit_time(time_t s)
{
	struct itimerval limit = { .it_value.tv_sec = s };

	setitimer(ITIMER_PROF, &limit, NULL);
}

struct figures {
	uint64_t seeds, steps, submitted, verified_bytes, connects, grants_of_many, tokens_arrived,
		forwarded, measured, explained;
	uint64_t done[XP_OP_MAX + 1], ways[W_WAYS];
};

const enum xd_counter w_ways[W_WAYS] = {
	XD_COUNTER_plans_inline,   XD_COUNTER_plans_direct,  XD_COUNTER_plans_split,
	XD_COUNTER_plans_stage,	   XD_COUNTER_plans_indirect, XD_COUNTER_plans_demoted,
	XD_COUNTER_keys_evicted,
};

static void run_seed(uint64_t seed, struct figures *sum)
{
	struct world *w = malloc(sizeof(*w));

	limit_time(60);
	world = w;
	sim.seed = seed;
	sim.digest = UINT64_C(0xcbf29ce484222325);
	world_init(w, seed);
	for (sim.step = 1; sim.step <= steps; sim.step++)
		world_step(w);
	world_end(w);
	sum->seeds++;
	sum->steps += steps;
	sum->submitted += w->submitted;
	sum->verified_bytes += w->verified_bytes;
	for (int i = 0; i <= XP_OP_MAX; i++)
		sum->done[i] += w->done[i];
	for (int i = 0; i < W_WAYS; i++)
		sum->ways[i] += w->ways[i];
	sum->connects += w->connects;
	sum->grants_of_many += w->grants_of_many;
	sum->tokens_arrived += w->tokens_arrived;
	sum->forwarded += w->forwarded;
	sum->measured += w->measured;
	sum->explained += w->explained;
	free(w);
}

static void print_figures(const struct figures *f)
{
	static const char *const names[] = { "", "READ", "WRITE", "SEND", "RECV",
					     "GRANT", "REVOKE", "CANCEL" };
	static const char *const ways[W_WAYS] = { "inline", "direct", "split", "staged",
						  "indirect", "demoted", "keys evicted" };

	printf("# %" PRIu64 " seeds, %" PRIu64 " steps: %" PRIu64 " connections, %" PRIu64
	       " requests, %" PRIu64 " bytes compared\n# ended well:",
	       f->seeds, f->steps, f->connects, f->submitted, f->verified_bytes);
	for (int i = 1; i <= XP_OP_MAX; i++)
		printf(" %" PRIu64 " %s%s", f->done[i], names[i], i < XP_OP_MAX ? "," : "\n");
	printf("# of GRANTs %" PRIu64 " of several pieces; %" PRIu64 " tokens came in messages\n",
	       f->grants_of_many, f->tokens_arrived);
	printf("# %" PRIu64 " SENDs behind a READ into the same memory; prices changed %" PRIu64
	       " times, %" PRIu64 " plans were explained\n",
	       f->forwarded, f->measured, f->explained);
	printf("# ways:");
	for (int i = 0; i < W_WAYS; i++)
		printf(" %" PRIu64 " %s%s", f->ways[i], ways[i], i + 1 < W_WAYS ? "," : "\n");
}

/* ---- saboteurs */

enum { W = 1 << FABRIC_KEYS_WINDOW, M = 1 << FABRIC_KEYS_MR, S = 1 << FABRIC_KEYS_SLAB };

static const struct {
	const char *name, *promise;
	unsigned int keys; /* kinds of fabric on which it must be caught, each by itself; 0: any */
} saboteurs[] = {
	{ "widen-a-bound", "I1: a key reaches too far", W | M | S },
	{ "grant-both-ways", "I1: a grant for WRITE may be READ", W | M | S },
	{ "trust-an-offset", "I1: a segment may lie outside its buffer", W | S },
	{ "turn-ranges-round", "I1: a token has its ranges in another order", W | M },
	{ "widen-a-temporary", "I1: a key of a READ's sink reaches too far", M },
	{ "expose-a-source", "I1: what a transfer only reads gets remote rights", W | M },
	{ "trust-a-device", "I1: client memory is registered where rights do not hold", S },
	{ "turn-a-slab", "I1: a slab is used again for the other direction", S },
	{ "leave-what-was", "I1: a slab shows what it held before", S },
	{ "done-before-dead", "I2: a REVOKE completes before its key is dead", W | M | S },
	{ "keep-a-temporary", "I2: a transfer ends before the keys of its own are dead", M },
	{ "forget-an-expiry", "I2: a grant outlives its time", W | M | S },
	{ "audit-is-deaf", "I2: the audit is not told of a key", W | M | S },
	{ "audit-lies", "I2: the audit is told of another key", W | M | S },
	{ "forget-a-window", "I2: the end of a grant leaves what carries it", W | M | S },
	{ "destroy-unstopped", "I3: a QP is destroyed that was never stopped", 0 },
	{ "unmap-registered", "I3: memory is unmapped under its registration", W | M },
	{ "windows-last", "I3: registrations go before windows", W },
	{ "backing-first", "I3: what a window is bound to goes before it", W },
	{ "kill-too-soon", "I3: a key goes under what was posted with it", W | M },
	{ "forget-a-key", "I3: a registration outlives its endpoint", M },
	{ "keep-a-slab", "I3: a slab outlives its endpoint", S },
	{ "ignore-a-fault", "I4: a copy of memory that has vanished counts as done", S },
	{ "trust-a-length", "I4: a peer says how much is copied out of a slab", S },
	{ "look-again", "I4: a list is read again when its client may have changed it", 0 },
	{ "trust-a-list", "I4: a list may lie outside its buffer", 0 },
	{ "forgive-a-fault", "I4: a client goes on whose memory has failed", 0 },
	{ "copy-without-end", "I4: a turn copies all there is", S },
	{ "reuse-a-key", "I5: a window is bound again with the same key", W },
	{ "share-a-domain", "I5: the endpoints of a session share a domain", M | S },
	{ "revoke-by-another", "I5: a grant is ended by way of another endpoint", W | M | S },
	{ "leave-the-grants", "I5: grants outlive their endpoint", W | M | S },
	{ "drop-a-charge", "I6: a charge stays", 0 },
	{ "pin-for-nothing", "I6: a registration pins and is not charged", M },
	{ "grant-for-nothing", "I6: a grant pins and is not charged", M },
	{ "keep-a-temporary-charge", "I6: the charge of a transfer's own keys stays", M },
	{ "tell-an-address", "I6: a token holds an address of the daemon's", S },
	{ "evict-in-use", "I3: a registration that is used makes room for another", M },
	{ "forget-a-map", "I6: memory stays mapped", 0 },
	{ "forget-a-descriptor", "I6: a descriptor stays open", 0 },
	{ "end-twice", "I7: a completion is told twice", 0 },
	{ "end-late-and-twice", "I7: an end that waited for keys is told twice", W | M },
	{ "forget-a-late-end", "I7: an end that waits for keys is not told", W | M },
	{ "forget-a-completion", "I7: a completion is not told", 0 },
	{ "forget-a-flush", "I7: what was posted never ends when its QP is gone", 0 },
	{ "let-a-recv-wait", "I7: a RECV outlives its QP", 0 },
	{ "lose-a-reply", "I7: a refusal is not told", 0 },
	{ "end-unsaid", "I7: a disconnect is not told", 0 },
	{ "tell-nobody", "I7: the engine hears of no output", 0 },
	{ "wait-for-ever", "I7: a stalled QP is let be", 0 },
	{ "never-try-again", "I8: what found no room is not tried again", 0 },
	{ "never-demote", "I8: what is refused a key does not go another way", W | M },
	{ "have-no-patience", "I8: what finds no room fails", 0 },
	{ "full-queue-is-fatal", "I8: a full queue ends a connection", 0 },
	{ "jump-the-queue", "I8: a window is given past one that waits for it", W },
	{ "serve-the-same", "I8: who has got something is asked first again", W },
	{ "keep-windows", "I8: a window is kept for later while another waits for one", W },
	{ "no-window-is-fatal", "I8: a want of windows ends a connection", W },
	{ "make-for-nothing", "I6: a key of a transfer's own pins and is not charged", M },
	{ "forget-what-came-late", "I2: a key that was made too late is left", W },
	{ "end-before-its-keys", "I2: an endpoint ends before the keys of its transfers", W },
	{ "take-the-first-key", "I1: a piece goes by the key of another", M },
	{ "use-it-unmade", "I3: a transfer goes by a key that is not made yet", W | M },
	{ "go-with-a-part", "I8: a transfer goes on without a key that was refused", W | M },
	{ "spare-as-it-was", "I7: keys begin as others ended", W | M },
	{ "patch-outside", "I4: a token lies outside of its message", W | M | S },
	{ "widen-a-list", "plan: a list is longer than the device takes", W | M },
	{ "overrun-a-message", "plan: a work request is longer than the device takes", W | M },
	{ "take-the-last-way", "plan: the dearer way is taken", W | M },
	{ "plan-again", "plan: a transfer that is under way is planned again", M },
	{ "think-again", "plan: a plan is explained by other prices than its own", W | M | S },
	{ "trust-a-failure", "plan: what a failed measurement says is believed", W | M | S },
	{ "join-two-pieces", "data: pieces that lie apart are taken for one", W | M },
	{ "join-two-runs", "data: remote runs that lie apart are taken for one", W | M | S },
	{ "forget-the-last-request", "data: the last request of a transfer is not posted", W | M },
	{ "forget-a-refused-grant", "data: a message goes out though its GRANT was refused",
	  W | M | S },
	{ "turn-a-number", "data: a number in a message has the wrong byte order", W | M | S },
	{ "inline-too-late", "data: what goes inline is taken after it went", W | M | S },
	{ "pass-a-slab", "order: a fence is passed while a READ is in a slab", W | M },
	{ "gather-before-a-fence", "order: a slab is filled before a fence", W | M },
	{ "inline-before-a-fence", "order: inline data is taken before a fence", W | M },
	{ "shift-a-piece", "data: a transfer is off by one byte", W | M },
	{ "turn-pieces-round", "data: a transfer's pieces are in another order", W | M },
	{ "forget-the-last-byte", "data: what goes inline is one byte short", W | M | S },
	{ "shift-a-patch", "data: a token is in the wrong place of a message", W | M | S },
	{ "send-without-token", "data: a message does not wait for its token", W | M | S },
	{ "send-a-dead-token", "data: a message goes out though its GRANT failed", W | M | S },
	{ "done-before-copied", "data: a READ or RECV ends before its data is in place", S },
	{ "done-before-synced", "data: a RECV ends before what was written", S },
	{ "cross-a-page", "data: a short transfer lies in two pages where it must not", S },
	{ "overrun-a-ring", "data: a ring is given out twice", S },
};

/* All seeds are tried; the search for these begins where it ended when this was written. */
static const struct {
	const char *name;
	uint64_t seed;
} begin_at[] = {
	{ "never-demote", 71 }, { "gather-before-a-fence", 92 },
	{ "take-the-first-key", 42 }, { "cross-a-page", 42 },
};

static uint64_t first_seed(const char *name)
{
	for (size_t i = 0; i < XC_ARRAY_SIZE(begin_at); i++)
		if (strcmp(begin_at[i].name, name) == 0)
			return begin_at[i].seed;
	return 1;
}

/* In a child, since what it finds ends it. True where it was caught. */
static bool catch(const char *name, int keys, uint64_t seeds)
{
	const char *on = keys >= 0 ? key_names[keys] : "any";
	char found[1024] = "";
	struct figures f = { 0 };
	int fds[2], status;
	ssize_t n;
	pid_t pid;

	fflush(stdout);
	if (pipe(fds) < 0)
		return false;
	pid = fork();
	if (pid == 0) {
		close(fds[0]);
		if (!noisy && !freopen("/dev/null", "w", stderr))
			_exit(4);
		sim.report_fd = fds[1];
		xd_saboteur = name;
		sim.keys = keys;
		for (uint64_t i = 0; i < seeds; i++)
			run_seed((first_seed(name) - 1 + i) % seeds + 1, &f);
		_exit(0);
	}
	close(fds[1]);
	n = read(fds[0], found, sizeof(found) - 1);
	close(fds[0]);
	waitpid(pid, &status, 0);
	/* A sanitizer ends it without a word of ours. */
	if (n <= 0 && !(WIFEXITED(status) && WEXITSTATUS(status) == 0))
		n = snprintf(found, sizeof(found), "a sanitizer's finding");
	if (n <= 0) {
		printf("# %-22s %-6s not caught in %" PRIu64 " seeds\n", name, on, seeds);
		return false;
	}
	found[n] = '\0';
	printf("# %-22s %-6s %s\n", name, on, found);
	return true;
}

static bool catch_everywhere(const char *name, unsigned int keys, uint64_t seeds)
{
	bool caught = keys || catch(name, -1, seeds);

	for (int k = 0; k < (int)XC_ARRAY_SIZE(key_names); k++)
		if (keys & 1u << k)
			caught &= catch(name, k, seeds);
	return caught;
}

/* How many there are for each promise, and how many of them were caught. */
static void print_summary(const bool *caught)
{
	static const char *const promises[] = { "I1", "I2", "I3", "I4",	  "I5",	  "I6",
						"I7", "I8", "plan", "data", "order" };

	for (size_t p = 0; p < XC_ARRAY_SIZE(promises); p++) {
		size_t length = strlen(promises[p]);
		int all = 0, n = 0;

		for (size_t i = 0; i < XC_ARRAY_SIZE(saboteurs); i++) {
			if (strncmp(saboteurs[i].promise, promises[p], length) != 0)
				continue;
			all++;
			n += caught[i];
		}
		printf("# %-4s %2d saboteurs, %2d caught\n", promises[p], all, n);
	}
}

static int run_saboteurs(uint64_t seeds, int point)
{
	bool all[XC_ARRAY_SIZE(saboteurs)];
	int failed = 0;

	printf("# %-22s %-6s caught at\n", "saboteur", "fabric");
	for (size_t i = 0; i < XC_ARRAY_SIZE(saboteurs); i++) {
		bool caught = catch_everywhere(saboteurs[i].name, saboteurs[i].keys, seeds);

		printf("%sok %d - %s (the saboteur %s) is caught\n", caught ? "" : "not ",
		       point + (int)i, saboteurs[i].promise, saboteurs[i].name);
		failed += !caught;
		all[i] = caught;
	}
	print_summary(all);
	return failed;
}

/* ---- as a test */

static uint64_t digest_of(uint64_t seed)
{
	struct figures f = { 0 };

	run_seed(seed, &f);
	return sim.digest;
}

static int run_test(void)
{
	const char *sanitizers = getenv("XD_SANITIZERS");
	bool slow = sanitizers && sanitizers[0];
	const char *seconds = getenv("XFER_TEST_SIM_SECONDS");
	time_t until = time(NULL) + (seconds ? strtol(seconds, NULL, 10) : 0);
	uint64_t seeds = slow ? 60 : 300;
	struct figures f = { 0 };
	int failed = 0;

	steps = slow ? 1000 : steps;
	/* Whether a saboteur is caught is no question of sanitizers: builds without tell. */
	printf("1..%d\n", 2 + (slow ? 0 : (int)XC_ARRAY_SIZE(saboteurs)));
	for (uint64_t seed = 1; seed <= seeds || time(NULL) < until; seed++)
		run_seed(seed, &f);
	print_figures(&f);
	printf("ok 1 - every promise held in %" PRIu64 " seeds of %" PRIu64 " steps\n", f.seeds,
	       steps);
	failed = digest_of(7) != digest_of(7);
	printf("%sok 2 - one seed runs the same way twice\n", failed ? "not " : "");
	if (!slow)
		failed += run_saboteurs(200, 3);
	return failed ? 1 : 0;
}

static const struct option options[] = {
	{ "seed", required_argument, NULL, 's' },     { "seeds", required_argument, NULL, 'r' },
	{ "steps", required_argument, NULL, 'n' },    { "trace", no_argument, NULL, 't' },
	{ "saboteur", required_argument, NULL, 'x' }, { "noisy", no_argument, NULL, 'v' },
	{ "saboteurs", no_argument, NULL, 'X' },      { "keys", required_argument, NULL, 'k' },
	{ "help", no_argument, NULL, 'h' },           { NULL, 0, NULL, 0 },
};

static bool to_seeds(const char *text, uint64_t *first, uint64_t *last)
{
	char *end;

	*first = *last = strtoull(text, &end, 10);
	if (strncmp(end, "..", 2) == 0)
		*last = strtoull(end + 2, &end, 10);
	return *text && !*end && *last >= *first;
}

int main(int argc, char **argv)
{
	uint64_t first = 0, last = 0;
	struct figures f = { 0 };
	int c;

	setvbuf(stdout, NULL, _IOLBF, 0);
	/* Slabs and buffers come and go: by the system that would take most of the time. */
	mallopt(M_MMAP_THRESHOLD, 400 << 10);
	mallopt(M_TRIM_THRESHOLD, 64 << 20);
	signal(SIGABRT, crashed);
	signal(SIGSEGV, crashed);
	signal(SIGPROF, crashed);
	while ((c = getopt_long(argc, argv, "", options, NULL)) >= 0) {
		switch (c) {
		case 's':
		case 'r':
			if (!to_seeds(optarg, &first, &last))
				goto usage;
			break;
		case 'n':
			steps = strtoull(optarg, NULL, 10);
			break;
		case 't':
			sim.trace = true;
			break;
		case 'k':
			for (int k = 0; k < (int)XC_ARRAY_SIZE(key_names); k++)
				if (strcmp(optarg, key_names[k]) == 0)
					sim.keys = k;
			break;
		case 'v':
			noisy = true;
			break;
		case 'x':
			xd_saboteur = optarg;
			break;
		case 'X':
			return run_saboteurs(200, 1) ? 1 : 0;
		default:
			goto usage;
		}
	}
	if (optind != argc)
		goto usage;
	if (!last)
		return run_test();
	for (uint64_t seed = first; seed <= last; seed++) {
		run_seed(seed, &f);
		if (sim.trace || first == last)
			printf("# seed %" PRIu64 ": digest %016" PRIx64 "\n", seed, sim.digest);
	}
	print_figures(&f);
	return 0;
usage:
	fprintf(stderr,
		"usage: run [--seed S | --seeds A..B] [--steps N] [--trace] [--saboteur NAME]\n"
		"           [--keys window|mr|slab]\n"
		"       run [--saboteurs]\n");
	return 2;
}
