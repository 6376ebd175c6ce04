/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "daemon/core/link.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/assert.h"
#include "daemon/core/buffer.h"
#include "daemon/core/sabotage.h"
#include "daemon/core/stage.h"

/* ------------------------------------------------------------------ coming */

static int check_patch(const struct xp_segment *s, uint32_t i, char *why)
{
	uint32_t field = s->key & ~XP_PATCH_BIG_ENDIAN;

	if (field >= XP_FIELD_COUNT || (s->length != 3 && s->length != 4 && s->length != 8)) {
		snprintf(why, XD_TEXT_MAX,
			 "patch %" PRIu32 " is of field %" PRIu32 ", %" PRIu32
			 " bytes wide: fields are 0 to %d, widths 3, 4 or 8",
			 i, field, s->length, XP_FIELD_COUNT - 1);
		return -EINVAL;
	}
	/* What it cuts off must be nothing. */
	if (field == XP_FIELD_ADDRESS && s->length != 8) {
		snprintf(why, XD_TEXT_MAX, "patch %" PRIu32 " is of an address: that has 8 bytes",
			 i);
		return -EINVAL;
	}
	if (field == XP_FIELD_RKEY && s->length == 3) {
		snprintf(why, XD_TEXT_MAX, "patch %" PRIu32 " is of an rkey: that has 4 bytes", i);
		return -EINVAL;
	}
	return 0;
}

static int check_patches(const struct xd_transfer *t, char *why)
{
	const struct xp_segment *s = t->segments + t->request.local_count;

	for (uint32_t i = 0; i < t->request.remote_count; i++) {
		int r = check_patch(&s[i], i, why);

		if (r < 0)
			return r;
		if ((s[i].key & ~XP_PATCH_BIG_ENDIAN) == XP_FIELD_LENGTH && s[i].length == 3 &&
		    t->bytes >> 24) {
			snprintf(why, XD_TEXT_MAX,
				 "patch %" PRIu32 ": a length of %" PRIu64
				 " bytes does not fit into 3 bytes",
				 i, t->bytes);
			return -EINVAL;
		}
	}
	return 0;
}

int xd_link_admit(struct xd_transfer *t, char *why)
{
	const struct xp_segment *s = t->segments + t->request.local_count;
	int r = check_patches(t, why);
	struct xd_link *k;

	if (r < 0)
		return r;
	if (t->endpoint->n_links >= XD_LINKS_MAX) {
		snprintf(why, XD_TEXT_MAX, "%u GRANTs wait for a SEND that they are linked to",
			 XD_LINKS_MAX);
		return -EAGAIN;
	}
	k = calloc(1, sizeof(*k));
	if (!k) {
		snprintf(why, XD_TEXT_MAX, "out of memory");
		return -ENOMEM;
	}
	for (uint32_t i = 0; i < t->request.remote_count; i++)
		k->patch[k->n_patches++] = (struct xd_patch){
			.offset = s[i].address,
			.width = (uint8_t)s[i].length,
			.field = (uint8_t)(s[i].key & ~XP_PATCH_BIG_ENDIAN),
			.big_endian = s[i].key & XP_PATCH_BIG_ENDIAN,
		};
	k->grant = t;
	t->link_to = k;
	xc_list_append(&t->endpoint->links, &k->link);
	t->endpoint->n_links++;
	return 0;
}

void xd_link_refused(const struct xd_transfer *t)
{
	struct xd_endpoint *ep = xc_slots_get(&t->session->endpoints, t->request.endpoint);

	if (ep && !XD_SABOTAGE("forget-a-refused-grant"))
		ep->link_lost = true;
}

int xd_links_take(struct xd_transfer *send, char *why)
{
	struct xd_endpoint *ep = send->endpoint;
	struct xc_list *links = &ep->links, *l;
	struct xd_link *k;

	xc_list_for_each(k, links, link) {
		for (uint32_t i = 0; i < k->n_patches; i++) {
			if (xc_range_within(k->patch[i].offset, k->patch[i].width, send->bytes) ||
			    XD_SABOTAGE("patch-outside"))
				continue;
			snprintf(why, XD_TEXT_MAX,
				 "a GRANT is linked to this SEND: %u bytes at offset %" PRIu64
				 " lie outside its message of %" PRIu64 " bytes",
				 k->patch[i].width, k->patch[i].offset, send->bytes);
			return -EINVAL;
		}
	}
	ep->n_links = 0;
	if (ep->link_lost) {
		ep->link_lost = false;
		xd_links_drop(links);
		snprintf(why, XD_TEXT_MAX, "a GRANT that is linked to this SEND was refused");
		return -XP_E_GRANT_ENDED;
	}
	while ((l = xc_list_pop(links))) {
		xc_container_of(l, struct xd_link, link)->send = send;
		xc_list_append(&send->links, l);
	}
	return 0;
}

/* ------------------------------------------------------------------ going */

void xd_link_end(struct xd_transfer *t, int status)
{
	struct xd_link *k = t->link_to;
	struct xd_transfer *send = k->send;

	t->link_to = NULL;
	k->grant = NULL;
	k->status = status;
	k->value[XP_FIELD_ADDRESS] = t->completion.address;
	k->value[XP_FIELD_LENGTH] = t->completion.byte_len;
	k->value[XP_FIELD_RKEY] = t->completion.rkey;
	if (xc_list_empty(&k->link))
		free(k); /* its SEND, or its endpoint, has ended before */
	else if (send)
		xd_stage_soon(send->endpoint); /* not from here, which may be the pump's */
}

void xd_links_drop(struct xc_list *links)
{
	struct xc_list *l;

	while ((l = xc_list_pop(links))) {
		struct xd_link *k = xc_container_of(l, struct xd_link, link);

		k->send = NULL;
		if (!k->grant)
			free(k);
	}
}

/* ------------------------------------------------------------------ patching */

static void encode(const struct xd_link *k, const struct xd_patch *p, uint8_t bytes[static 8])
{
	uint64_t value = k->value[p->field];

	for (uint32_t i = 0; i < p->width; i++) {
		bool turned = p->big_endian && !XD_SABOTAGE("turn-a-number");
		uint32_t at = turned ? p->width - 1 - i : i;

		bytes[at] = (uint8_t)(value >> (8 * i));
	}
}

/* Into the message, from this offset on, over as many of its segments as it takes. */
static int put(struct xd_transfer *send, uint64_t offset, uint8_t *bytes, uint32_t n)
{
	struct xd_cursor at = { .local_done = offset };

	while (at.local_done >= send->segments[at.local].length)
		at.local_done -= send->segments[at.local++].length;
	return xd_stage_copy(send, at, bytes, n, true);
}

static int patch(struct xd_transfer *send, const struct xd_link *k)
{
	uint8_t bytes[8];
	int r = 0;

	for (uint32_t i = 0; i < k->n_patches && r == 0; i++) {
		encode(k, &k->patch[i], bytes);
		r = put(send, k->patch[i].offset + XD_SABOTAGE("shift-a-patch"), bytes,
			k->patch[i].width);
	}
	return r;
}

int xd_links_patch(struct xd_transfer *send)
{
	struct xd_link *k;
	int r = 0;

	xc_list_for_each(k, &send->links, link) {
		if (k->grant)
			return -EINPROGRESS;
		if (k->status < 0 && !XD_SABOTAGE("send-a-dead-token"))
			return -XP_E_GRANT_ENDED;
	}
	while (r == 0 && (k = xc_list_first(&send->links, struct xd_link, link))) {
		r = patch(send, k);
		xc_list_remove(&k->link);
		free(k);
	}
	return r;
}
