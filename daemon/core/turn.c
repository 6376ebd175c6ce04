/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "daemon/core/turn.h"

#include "common/assert.h"
#include "daemon/core/sabotage.h"

void xd_turn_init(struct xd_turn *t, struct xd_turn *above)
{
	t->above = above;
	t->round = t->got_round = t->since_round = 0;
	xc_list_init(&t->link);
	xc_list_init(&t->asked);
	xc_list_init(&t->due);
	xc_list_init(&t->later);
}

static bool has_none(const struct xd_turn *t)
{
	return xc_list_empty(&t->asked) && xc_list_empty(&t->due) && xc_list_empty(&t->later);
}

/* Numbers of rounds begin with 1. */
static uint64_t round_of(const struct xd_turn *t)
{
	while (t->above)
		t = t->above;
	return t->round + 1;
}

static void take_place(struct xd_turn *t, uint64_t round)
{
	struct xd_turn *a = t->above;

	if (t->got_round != round)
		xc_list_append(&a->due, &t->link);
	else if (XD_SABOTAGE("serve-the-same"))
		xc_list_prepend(&a->due, &t->link);
	else
		xc_list_append(&a->later, &t->link);
}

void xd_turn_enter(struct xd_turn *leaf)
{
	uint64_t round = round_of(leaf);

	xc_assert(!xd_turn_waits(leaf));
	for (struct xd_turn *t = leaf; t->above && !xd_turn_waits(t); t = t->above) {
		take_place(t, round);
		t->since_round = round;
	}
}

void xd_turn_leave(struct xd_turn *leaf)
{
	for (struct xd_turn *t = leaf; t->above && has_none(t); t = t->above)
		xc_list_remove(&t->link);
}

void xd_turn_got(struct xd_turn *leaf)
{
	uint64_t round = round_of(leaf);

	if (!xd_turn_waits(leaf))
		return;
	xd_turn_leave(leaf);
	for (struct xd_turn *t = leaf; t->above; t = t->above) {
		t->got_round = round;
		if (!xd_turn_waits(t))
			continue;
		xc_list_remove(&t->link);
		take_place(t, round);
	}
}

/* Another round has begun: all of them are due, in their order. */
static void catch_up(struct xd_turn *t, uint64_t round)
{
	if (t->round == round)
		return;
	t->round = round;
	xc_list_splice(&t->later, &t->due);
	xc_list_splice(&t->later, &t->asked);
	xc_list_splice(&t->due, &t->later);
}

static void was_asked(struct xd_turn *t)
{
	xc_list_remove(&t->link);
	xc_list_append(&t->above->asked, &t->link);
}

struct xd_turn *xd_turn_next(struct xd_turn *root)
{
	struct xd_turn *t = root, *below;
	uint64_t round = root->round;

	for (;;) {
		catch_up(t, round);
		below = xc_list_first(&t->due, struct xd_turn, link);
		if (below && has_none(below)) {
			was_asked(below);
			return below;
		}
		if (below) {
			t = below;
			continue;
		}
		if (t == root)
			break;
		was_asked(t); /* all below it have been */
		t = t->above;
	}
	catch_up(root, round + 1);
	return NULL;
}

static bool is_the_only_one(const struct xd_turn *a)
{
	const struct xc_list *lists[] = { &a->asked, &a->due, &a->later };
	uint32_t n = 0;

	for (int i = 0; i < 3; i++) {
		if (lists[i]->next == lists[i])
			continue;
		n += lists[i]->next == lists[i]->prev ? 1 : 2;
	}
	return n == 1;
}

bool xd_turn_alone(const struct xd_turn *t)
{
	for (; t->above; t = t->above) {
		const struct xd_turn *a = t->above;

		if (xd_turn_waits(t) ? !is_the_only_one(a) : !has_none(a))
			return false;
	}
	return true;
}
