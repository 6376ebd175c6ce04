/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef FABRIC_TEST_REPORT_H
#define FABRIC_TEST_REPORT_H

/*
 * How a test ends. Tests run in a child of the program, one after the other on the same instances;
 * what each came to goes to the parent by a pipe. The first that fails ends the child, whatever it
 * holds, and the parent starts another for the rest.
 */

#include <stdint.h>

enum verdict { PASSED, FAILED, SKIPPED };

#define REPORT_TEXT_MAX 240

struct report {
	uint32_t test; /* place in the list */
	enum verdict verdict;
	char text[REPORT_TEXT_MAX];
};

/* Of the child: where reports go, and which test is running. */
void report_to(int fd);
void report_begin(uint32_t test);
/* The test returned. */
void report_end(void);
/* The test passed, and left something behind that only the end of the process ends. */
_Noreturn void report_end_early(void);

_Noreturn void report_failure(const char *file, int line, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
/* This fabric has nothing to test here. The test returns then. */
void report_skip(const char *format, ...) __attribute__((format(printf, 1, 2)));

#define CHECK(cond)                                                                                \
	do {                                                                                       \
		if (!(cond))                                                                       \
			report_failure(__FILE__, __LINE__, "%s", #cond);                           \
	} while (0)

#define CHECK_EQ(got, want)                                                                        \
	do {                                                                                       \
		long long got_ = (long long)(got), want_ = (long long)(want);                      \
		if (got_ != want_)                                                                 \
			report_failure(__FILE__, __LINE__, "%s is %lld, not %lld", #got, got_,     \
				       want_);                                                     \
	} while (0)

#endif
