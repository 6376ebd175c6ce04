/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The configuration reader on any bytes. It must take or refuse them, say why in lines that begin
 * with the file's name, and say the same when asked again: libConfuse's scanner is global, and must
 * not remember.
 */
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "common/assert.h"
#include "daemon/io/config.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_errors(const char *errors)
{
	xc_assert(*errors);
	while (*errors) {
		const char *end = strchr(errors, '\n');

		xc_assert(end);
		xc_assert(strncmp(errors, "F:", 2) == 0);
		for (; errors < end; errors++)
			xc_assert((unsigned char)*errors >= ' ' && *errors != 0x7f);
		errors++;
	}
}

static int parse(const uint8_t *data, size_t size, char **errors)
{
	struct xd_policy policy;
	int r = xd_config_parse("F", (const char *)data, size, &policy, errors);

	xc_assert(r == 0 || r == -EINVAL);
	xc_assert((r == 0) == (*errors == NULL));
	if (r == 0) {
		for (uint32_t i = 0; i < policy.n_allows; i++)
			xc_assert(policy.allows[i].everybody ==
				  (policy.allows[i].n_uids + policy.allows[i].n_gids == 0));
	} else {
		check_errors(*errors);
	}
	xd_policy_done(&policy);
	return r;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *first, *second;
	int r = parse(data, size, &first);

	xc_assert(parse(data, size, &second) == r);
	xc_assert(r == 0 || strcmp(first, second) == 0);
	free(first);
	free(second);
	return 0;
}
