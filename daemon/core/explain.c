/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "daemon/core/explain.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/checked.h"
#include "common/refuse.h"
#include "common/units.h"
#include "daemon/core/limits.h"
#include "daemon/core/session.h"
#include "daemon/core/stage.h"

/* The longest "COUNTxBYTES": more than any that is within the limits. */
#define WORD_MAX 40

#define refuse(ret_why, ...) xc_refuse(ret_why, XD_TEXT_MAX, __VA_ARGS__)

/* ------------------------------------------------------------------ pieces */

/* "9x4096". */
static int read_word(const char *side, const char *word, uint64_t *ret_count, uint64_t *ret_bytes,
		     char *ret_why)
{
	uint64_t count = 0;
	const char *c = word;

	for (; *c >= '0' && *c <= '9' && count <= XP_SEGMENTS_MAX; c++)
		count = 10 * count + (uint64_t)(*c - '0');
	if (count > XP_SEGMENTS_MAX)
		return refuse(ret_why, EINVAL, "%s: '%s' has more than %u pieces", side, word,
			      XP_SEGMENTS_MAX);
	if (c == word || *c != 'x' || xc_size_parse(c + 1, ret_bytes) < 0)
		return refuse(ret_why, EINVAL,
			      "%s: '%s' is not COUNTxBYTES, such as 9x4096 or 2x64K", side, word);
	if (!count)
		return refuse(ret_why, EINVAL, "%s: '%s' has no pieces, at least 1", side, word);
	if (*ret_bytes > UINT32_MAX)
		return refuse(ret_why, EINVAL,
			      "%s: in '%s' a piece has %" PRIu64 " bytes, at most %u", side, word,
			      *ret_bytes, UINT32_MAX);
	*ret_count = count;
	return 0;
}

/* The next word of the list; NULL in *at behind the last. */
static int next_word(const char *side, const char **at, char word[static WORD_MAX], char *ret_why)
{
	size_t n = strcspn(*at, ",");

	if (n >= WORD_MAX)
		return refuse(ret_why, EINVAL, "%s: '%.*s...' is %zu characters long, at most %d",
			      side, 16, *at, n, WORD_MAX - 1);
	memcpy(word, *at, n);
	word[n] = '\0';
	*at = (*at)[n] ? *at + n + 1 : NULL;
	return 0;
}

int xd_explain_pieces(const char *side, const char *text,
		      struct xp_segment ret_segments[static XP_SEGMENTS_MAX], uint32_t *ret_n,
		      uint64_t *ret_bytes, char *ret_why)
{
	uint64_t count = 0, length = 0, bytes = 0, address = FABRIC_PAGE_BYTES;
	char word[WORD_MAX];
	uint32_t n = 0;

	while (text) {
		int r = next_word(side, &text, word, ret_why);

		if (r == 0)
			r = read_word(side, word, &count, &length, ret_why);
		if (r < 0)
			return r;
		if (count > XP_SEGMENTS_MAX - n)
			return refuse(ret_why, EINVAL, "%s has %" PRIu64 " pieces, at most %u",
				      side, n + count, XP_SEGMENTS_MAX);
		for (; count; count--, n++) {
			ret_segments[n] = (struct xp_segment){ .address = address,
							       .length = (uint32_t)length,
							       .key = 1 };
			address += (length / FABRIC_PAGE_BYTES + 2) * FABRIC_PAGE_BYTES;
			bytes += length;
		}
		if (bytes > XP_MESSAGE_BYTES_MAX)
			return refuse(ret_why, EINVAL,
				      "%s has %" PRIu64 " bytes or more, at most %" PRIu64, side,
				      bytes, XP_MESSAGE_BYTES_MAX);
	}
	*ret_n = n;
	*ret_bytes = bytes;
	return 0;
}

/* ------------------------------------------------------------------ the question */

static int read_operation(const char *text, uint8_t *ret, char *ret_why)
{
	static const struct {
		const char *name;
		uint8_t opcode;
	} operations[] = {
		{ "read", XP_OP_READ },
		{ "write", XP_OP_WRITE },
		{ "send", XP_OP_SEND },
		{ "recv", XP_OP_RECV },
	};

	for (size_t i = 0; i < XC_ARRAY_SIZE(operations); i++) {
		if (strcmp(operations[i].name, text) == 0) {
			*ret = operations[i].opcode;
			return 0;
		}
	}
	return refuse(ret_why, EINVAL, "the operation '%.20s' is none of read, write, send, recv",
		      text);
}

struct sides {
	struct xp_segment local[XP_SEGMENTS_MAX], remote[XP_SEGMENTS_MAX];
};

static int read_shape(const char *const *arguments, struct sides *sides, struct xd_shape *ret,
		      char *ret_why)
{
	uint64_t local = 0, remote = 0;
	bool both;
	int r = read_operation(arguments[0], &ret->opcode, ret_why);

	if (r < 0)
		return r;
	both = ret->opcode == XP_OP_READ || ret->opcode == XP_OP_WRITE;
	ret->local = sides->local;
	ret->remote = sides->remote;
	r = xd_explain_pieces("local", arguments[1], sides->local, &ret->n_local, &local, ret_why);
	if (r < 0)
		return r;
	if (!both && *arguments[2])
		return refuse(ret_why, EINVAL, "%s has no remote side", arguments[0]);
	if (!both)
		return 0;
	r = xd_explain_pieces("remote", arguments[2], sides->remote, &ret->n_remote, &remote,
			      ret_why);
	if (r == 0 && local != remote)
		r = refuse(ret_why, EINVAL,
			   "the local side has %" PRIu64 " bytes, the remote side %" PRIu64, local,
			   remote);
	return r;
}

/* Caps by the name of a device; "": iwarp, which is always there, where it is first or not. */
static const struct fabric_caps *find_device(const struct xd_core *core, const char *name)
{
	for (uint32_t i = 0; i < core->n_fabrics; i++)
		if (strcmp(core->caps[i].name, *name ? name : "iwarp") == 0)
			return &core->caps[i];
	return !*name && core->n_fabrics ? &core->caps[0] : NULL;
}

static int find_caps(const struct xd_core *core, const char *device, const char *profile,
		     struct fabric_caps *ret, char *ret_why)
{
	const struct fabric_caps *caps = find_device(core, device);

	if (*device && *profile)
		return refuse(ret_why, EINVAL,
			      "there is a device and a profile: it is one of them");
	if (!caps)
		return refuse(ret_why, ENOENT, "there is no device '%.40s'", device);
	*ret = *caps;
	if (!*profile)
		return 0;
	if (!core->like)
		return refuse(ret_why, ENOENT, "there are no profiles");
	return core->like(profile, ret, ret_why, XD_TEXT_MAX);
}

/* What an endpoint's slabs hold by default, see recv_stage_bytes() in endpoint.c. */
static uint64_t slab_bytes(const struct xd_core *core, const struct fabric_caps *caps,
			   uint8_t opcode)
{
	if (opcode == XP_OP_SEND)
		return core->quota.policy->user.value[XD_LIMIT_pinned];
	if (opcode != XP_OP_RECV)
		return XD_STAGE_RING_BYTES;
	return caps->pins || xd_must_stage(caps) ? XD_STAGE_RECV_BYTES_MAX : 0;
}

int xd_explain(const struct xd_core *core, const char *const *arguments, size_t n_arguments,
	       struct xd_explanation *ret, char *ret_why)
{
	struct xd_shape shape = { 0 };
	struct xd_plan_limits limits;
	struct fabric_caps caps;
	struct sides *sides;
	struct xd_plan plan;
	int r;

	if (n_arguments != XD_EXPLAIN_ARGUMENTS)
		return refuse(ret_why, EINVAL,
			      "explain takes %d arguments (operation, local, remote, device, "
			      "profile), has %zu",
			      XD_EXPLAIN_ARGUMENTS, n_arguments);
	sides = malloc(sizeof(*sides));
	if (!sides)
		return refuse(ret_why, ENOMEM, "there is no memory");
	r = read_shape(arguments, sides, &shape, ret_why);
	if (r == 0)
		r = find_caps(core, arguments[3], arguments[4], &caps, ret_why);
	if (r == 0) {
		xd_plan_limits_of(&caps, shape.opcode, slab_bytes(core, &caps, shape.opcode),
				  &limits);
		limits.force = core->quota.policy->force;
		/* That none can carry it the thoughts say. */
		(void)xd_plan_make(&shape, &limits, &plan, &ret->thoughts);
		for (enum xd_rung i = XD_RUNG_INLINE; i < XD_RUNG_COUNT; i++)
			xd_thought_text(&shape, i, &ret->thoughts.of[i], ret->text[i],
					sizeof(ret->text[i]));
	}
	free(sides);
	return r;
}
