/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef XD_CONFIG_H
#define XD_CONFIG_H

/*
 * The configuration file, rdmaxferd.conf(5). libConfuse reads its syntax
 * (daemon/io/config_syntax.h), what it means is checked here, and all errors of a file are told
 * at once.
 *
 * One thread at a time in the whole process: libConfuse's scanner is global. Blocks on the file,
 * and on the look-up of users and groups.
 */

#include <stdbool.h>
#include <stddef.h>

#include "daemon/core/policy.h"

#define XD_CONFIG_BYTES_MAX (1024 * 1024)

/*
 * Fills policy from a file, which need not exist unless must_exist: what it says nothing of has
 * the shipped default. policy is overwritten, not freed; after an error it holds the defaults.
 * xd_policy_done() frees it either way.
 *
 * 0; -ENOENT (must_exist); -EINVAL: the file has errors; -EFBIG: it is longer than
 * XD_CONFIG_BYTES_MAX; -ENOMEM; -errno of open(2) or read(2). After an error *ret_errors is the
 * caller's to free, one line for each mistake, by line number, "FILE:LINE: what is wrong\n"
 * ("FILE: what is wrong\n" where it is no line's fault); NULL when there was no memory even for
 * that, and after success.
 */
int xd_config_load(const char *path, bool must_exist, struct xd_policy *policy, char **ret_errors);

/* The same with the file's text, which need not end with a 0; name is for the error messages. */
int xd_config_parse(const char *name, const char *text, size_t size, struct xd_policy *policy,
		    char **ret_errors);

#endif
