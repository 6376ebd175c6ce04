/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Whether those that wait for windows get them in turn (I8): windows are all alike, so no user gets
 * several past another that waits, and none is kept for later while one waits. It looks at who
 * waits within the core, for nobody outside is told.
 */
#include "daemon/core/endpoint.h"
#include "daemon/core/session.h"
#include "tests/sim/world.h"

/* One, if it were looked at more often: somebody may have come to wait a step before it is seen. */
#define PAST_ONE 3
/* A device is asked anew each millisecond, and then one that is kept is called in. */
#define KEPT_TURNS 300
#define KEPT_NS (100 * XD_NS_PER_MS)

static uint32_t user_of(const struct world *w, uint32_t uid)
{
	uint32_t i;

	for (i = 0; i < XC_ARRAY_SIZE(w->users); i++)
		if (w->users[i].uid == uid)
			break;
	return i;
}

/* An endpoint of that user, or of any but that session, that waits for a window of the fabric. */
static bool waits(struct world *w, uint32_t fabric, const uint32_t *uid,
		  const struct xd_session * not )
{
	struct xd_session *s;
	struct xd_endpoint *ep;

	xc_list_for_each(s, &w->core->sessions, link) {
		uint32_t at = 0;

		if (s == not || (uid && s->uid != *uid))
			continue;
		while ((ep = xc_slots_next(&s->endpoints, &at)))
			if (ep->scarce == XD_SCARCE_WINDOW && ep->fabric == fabric)
				return true;
	}
	return false;
}

/* It has waited all the time since it was last seen to: who gives up and comes again is behind. */
static bool waits_still(struct world *w, uint32_t fabric, uint32_t i)
{
	struct xd_session *s;

	if (!w->turns[fabric].since[i] || !waits(w, fabric, &w->users[i].uid, NULL))
		return false;
	xc_list_for_each(s, &w->core->sessions, link)
		if (s->uid == w->users[i].uid)
			return s->payer.user->waits[XD_ORDER_OF_WINDOWS].since_round ==
			       w->turns[fabric].round[i];
	return false;
}

void w_on_window(void *ctx, uint8_t fabric, uint32_t uid)
{
	struct world *w = ctx;
	struct w_turns *t = &w->turns[fabric];
	uint32_t me = user_of(w, uid);

	if (me == XC_ARRAY_SIZE(w->users))
		return;
	sim_note("user %u is given a window", uid);
	for (uint32_t i = 0; i < XC_ARRAY_SIZE(w->users); i++) {
		const struct w_user *other = &w->users[i];

		sim_check(i == me || t->got[me][PAST_ONE - 1] < t->since[i] ||
				  !waits_still(w, fabric, i),
			  "I8", "user %u got %d windows past user %u, which waits for one", uid,
			  PAST_ONE + 1, other->uid);
	}
	for (int i = PAST_ONE - 1; i > 0; i--)
		t->got[me][i] = t->got[me][i - 1];
	t->got[me][0] = ++t->clock;
	/* That was its turn, wherever else it waits. */
	for (uint32_t f = 0; f < w->n_fabrics; f++)
		if (w->turns[f].since[me])
			w->turns[f].since[me] = ++w->turns[f].clock;
}

static bool is_kept(struct world *w, uint32_t fabric)
{
	struct xd_session *s;

	xc_list_for_each(s, &w->core->sessions, link)
		if (s->pds[fabric] && !xc_list_empty(&s->pds[fabric]->windows) &&
		    waits(w, fabric, NULL, s))
			return true;
	return false;
}

static void come(struct world *w, uint32_t fabric, uint32_t i)
{
	struct xd_session *s;

	w->turns[fabric].since[i] = ++w->turns[fabric].clock;
	xc_list_for_each(s, &w->core->sessions, link)
		if (s->uid == w->users[i].uid)
			w->turns[fabric].round[i] =
				s->payer.user->waits[XD_ORDER_OF_WINDOWS].since_round;
}

void w_check_turns(struct world *w)
{
	for (uint32_t f = 0; f < w->n_fabrics; f++) {
		struct w_turns *t = &w->turns[f];

		for (uint32_t i = 0; i < XC_ARRAY_SIZE(w->users); i++) {
			if (waits_still(w, f, i))
				continue;
			t->since[i] = 0;
			if (waits(w, f, &w->users[i].uid, NULL))
				come(w, f, i);
		}
		if (!is_kept(w, f)) {
			t->kept_turn = w->core->turn;
			t->kept_ns = xd_now(w->core);
		}
		sim_check(w->core->turn - t->kept_turn < KEPT_TURNS ||
				  xd_now(w->core) - t->kept_ns < KEPT_NS,
			  "I8", "a window is kept for later, and another session waits for one");
	}
}
