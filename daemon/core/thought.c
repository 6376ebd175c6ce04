/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What the planner thought, in words. */
#include <inttypes.h>
#include <stdio.h>

#include "daemon/core/plan.h"

const char *const xd_rung_names[XD_RUNG_COUNT + 1] = {
	[XD_RUNG_INLINE] = "inline", [XD_RUNG_DIRECT] = "direct",     [XD_RUNG_SPLIT] = "split",
	[XD_RUNG_STAGE] = "stage",   [XD_RUNG_INDIRECT] = "indirect",
};

const char *const xd_verdict_names[XD_VERDICT_COUNT] = {
	[XD_VERDICT_TAKEN] = "taken",	    [XD_VERDICT_BELOW] = "below",
	[XD_VERDICT_DEARER] = "dearer",	    [XD_VERDICT_OPERATION] = "operation",
	[XD_VERDICT_NONE] = "none",	    [XD_VERDICT_BYTES] = "bytes",
	[XD_VERDICT_PIECES] = "pieces",	    [XD_VERDICT_PAGE] = "page",
	[XD_VERDICT_RANGES] = "ranges",	    [XD_VERDICT_KEYS] = "keys",
	[XD_VERDICT_NO_KEYS] = "no-keys",   [XD_VERDICT_EMPTY] = "empty",
	[XD_VERDICT_UNNEEDED] = "unneeded", [XD_VERDICT_FORCED] = "forced",
};

#define DURATION_MAX 32

/* "812 ns", "1.4 us", "18.0 ms". */
static const char *duration(uint64_t ns, char buf[static DURATION_MAX])
{
	static const char *const units[] = { "us", "ms", "s" };
	uint64_t unit = 1000;
	int i = 0;

	if (ns < unit) {
		snprintf(buf, DURATION_MAX, "%" PRIu64 " ns", ns);
		return buf;
	}
	for (; i < 2 && ns / unit >= 1000; i++)
		unit *= 1000;
	snprintf(buf, DURATION_MAX, "%" PRIu64 ".%" PRIu64 " %s", ns / unit,
		 ns % unit / (unit / 10), units[i]);
	return buf;
}

static const char *operation(const struct xd_shape *s)
{
	switch (s->opcode) {
	case XP_OP_READ:
		return "READ";
	case XP_OP_WRITE:
		return "WRITE";
	case XP_OP_SEND:
		return "SEND";
	default:
		return "RECV";
	}
}

static void say_bytes(const struct xd_shape *s, enum xd_rung rung, const struct xd_thought *t,
		      char *ret, size_t size)
{
	static const char *const what[XD_RUNG_COUNT] = {
		[XD_RUNG_INLINE] = "inline go at most",
		[XD_RUNG_DIRECT] = "a work request takes",
		[XD_RUNG_SPLIT] = "a work request takes",
		[XD_RUNG_STAGE] = "a slab takes",
		[XD_RUNG_INDIRECT] = "a work request takes",
	};

	snprintf(ret, size, "%s has %" PRIu64 " bytes%s, %s %" PRIu64, operation(s), t->has,
		 s->n_remote && rung != XD_RUNG_INLINE ? " in one run" : "", what[rung], t->limit);
}

static void say_price(const struct xd_thought *t, char *ret, size_t size)
{
	char its[DURATION_MAX], least[DURATION_MAX];

	snprintf(ret, size, "it would cost %s, what was taken %s", duration(t->has, its),
		 duration(t->limit, least));
}

static void say_numbers(const struct xd_shape *s, enum xd_rung rung, const struct xd_thought *t,
			char *ret, size_t size)
{
	const char *op = operation(s);

	switch (t->verdict) {
	case XD_VERDICT_DEARER:
		say_price(t, ret, size);
		break;
	case XD_VERDICT_BYTES:
		say_bytes(s, rung, t, ret, size);
		break;
	case XD_VERDICT_PIECES:
		snprintf(ret, size,
			 rung == XD_RUNG_INLINE
				 ? "%s goes to %" PRIu64 " places, inline data goes to %" PRIu64
				 : "%s wants %" PRIu64 " pieces, the device takes %" PRIu64,
			 op, t->has, t->limit);
		break;
	case XD_VERDICT_RANGES:
		snprintf(ret, size, "%s has %" PRIu64 " ranges, a key takes %" PRIu64, op, t->has,
			 t->limit);
		break;
	default:
		snprintf(ret, size,
			 "%s wants %" PRIu64 " keys of its own, a transfer gets %" PRIu64, op,
			 t->has, t->limit);
		break;
	}
}

static const char *cannot(enum xd_rung rung)
{
	switch (rung) {
	case XD_RUNG_INLINE:
		return "brings no data along";
	case XD_RUNG_INDIRECT:
		return "is posted at once, and waits for no key";
	default:
		return "is one message, and never split";
	}
}

static const char *unneeded(enum xd_rung rung)
{
	return rung == XD_RUNG_SPLIT ? "direct is the same" : "there are no bytes";
}

void xd_thought_text(const struct xd_shape *s, enum xd_rung rung, const struct xd_thought *t,
		     char *ret, size_t size)
{
	switch (t->verdict) {
	case XD_VERDICT_TAKEN:
		snprintf(ret, size, "taken");
		break;
	case XD_VERDICT_BELOW:
		snprintf(ret, size, "a better one carries it");
		break;
	case XD_VERDICT_OPERATION:
		snprintf(ret, size, "%s %s", operation(s), cannot(rung));
		break;
	case XD_VERDICT_NONE:
		snprintf(ret, size, "%s",
			 rung == XD_RUNG_INLINE ? "the device takes no inline data"
						: "the device makes no keys over ranges");
		break;
	case XD_VERDICT_PAGE:
		snprintf(ret, size, "a short %s would cross the end of a page", operation(s));
		break;
	case XD_VERDICT_NO_KEYS:
		snprintf(ret, size, "client memory is not registered");
		break;
	case XD_VERDICT_EMPTY:
		snprintf(ret, size, "there is no slab for it");
		break;
	case XD_VERDICT_UNNEEDED:
		snprintf(ret, size, "%s", unneeded(rung));
		break;
	case XD_VERDICT_FORCED:
		snprintf(ret, size, "another one is forced");
		break;
	case XD_VERDICT_DEARER:
	case XD_VERDICT_BYTES:
	case XD_VERDICT_PIECES:
	case XD_VERDICT_RANGES:
	case XD_VERDICT_KEYS:
		say_numbers(s, rung, t, ret, size);
		break;
	case XD_VERDICT_COUNT:
	default:
		snprintf(ret, size, "not thought of");
		break;
	}
}
