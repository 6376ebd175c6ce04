/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "daemon/core/segments.h"

#include <errno.h>
#include <stdlib.h>

#include "common/assert.h"

/* Blocks that stay for reuse at most: what a burst took beyond goes back to the allocator. */
static const struct {
	uint32_t segments, kept;
} classes[2] = { { 2 * XP_SEGMENTS_INLINE, 512 }, { 2 * XP_SEGMENTS_MAX, 32 } };

static size_t class_bytes(int class)
{
	return classes[class].segments * sizeof(struct xp_segment);
}

static void *take(struct xd_core *core, int class)
{
	void *block = core->spare_lists[class];

	if (!block)
		return malloc(class_bytes(class));
	core->spare_lists[class] = *(void **)block;
	core->n_spare_lists[class]--;
	return block;
}

int xd_segments_reserve(struct xd_transfer *t, uint32_t n)
{
	struct xd_account *user = t->session->payer.user;
	int class = n <= classes[0].segments ? 0 : 1;

	if (n <= XD_SEGMENTS_OWN)
		return 0;
	xc_assert(n <= classes[1].segments && t->list_class < 0);
	if (user->list_bytes + class_bytes(class) > XD_LIST_BYTES_MAX)
		return -EAGAIN;
	t->segments = take(t->session->core, class);
	if (!t->segments) {
		t->segments = t->own;
		return -ENOMEM;
	}
	user->list_bytes += class_bytes(class);
	t->list_class = (int8_t) class;
	return 0;
}

void xd_segments_release(struct xd_transfer *t)
{
	struct xd_core *core = t->session->core;
	int class = t->list_class;

	if (class < 0)
		return;
	t->session->payer.user->list_bytes -= class_bytes(class);
	if (core->n_spare_lists[class] < classes[class].kept) {
		*(void **)(void *)t->segments = core->spare_lists[class];
		core->spare_lists[class] = t->segments;
		core->n_spare_lists[class]++;
	} else {
		free(t->segments);
	}
	t->segments = t->own;
	t->list_class = -1;
}
