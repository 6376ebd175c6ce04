/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef FABRIC_TEST_SUITE_H
#define FABRIC_TEST_SUITE_H

#define SABOTEURS_MAX 8

/*
 * A test, and the faults that it must see (sabotage.h): one that no fault makes fail tests nothing.
 * "iwarp:NAME" is a fault inside that fabric, of daemon/fabric/saboteur.h.
 */
struct test {
	const char *name;
	void (*fn)(void);
	const char *saboteurs[SABOTEURS_MAX + 1];
};

/* Each ends with a test without a name. */
extern const struct test connect_tests[];
extern const struct test end_tests[];
extern const struct test listen_tests[];
extern const struct test memory_tests[];
extern const struct test move_tests[];
extern const struct test order_tests[];
extern const struct test meet_tests[];
extern const struct test access_tests[];
extern const struct test ranges_tests[];
extern const struct test inline_tests[];
extern const struct test costs_tests[];
extern const struct test flush_tests[];
extern const struct test many_tests[];
/* The last: it may leave something behind that only the end of the process ends. */
extern const struct test silence_tests[];

#endif
