/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef XD_LINK_H
#define XD_LINK_H

/*
 * A GRANT whose token goes into the next SEND of its endpoint (XP_F_LINK): the daemon writes fields
 * of the token into the message before that is sent, so that a protocol that grants for each
 * request posts once. The SEND waits in its place until the GRANT has ended, and ends with
 * -XP_E_GRANT_ENDED where that failed.
 */

#include "daemon/core/transfer.h"

/* Waiting for one SEND: they outlive their GRANTs, and are charged to nobody. */
#define XD_LINKS_MAX 256u

struct xd_patch {
	uint64_t offset; /* in the message */
	uint8_t width;	 /* bytes: 3, 4 or 8 */
	uint8_t field;	 /* enum xp_patch_field */
	bool big_endian;
};

struct xd_link {
	struct xc_list link;	   /* its endpoint's, then its SEND's */
	struct xd_transfer *grant; /* until it has ended */
	struct xd_transfer *send;
	int status; /* of the GRANT */
	uint32_t n_patches;
	struct xd_patch patch[XP_PATCHES_MAX];
	uint64_t value[XP_FIELD_COUNT];
};

/*
 * Of a GRANT with the flag, at its submission. 0, -EINVAL, -EAGAIN (too many wait for a SEND) or
 * -ENOMEM with `why` (XD_TEXT_MAX).
 */
int xd_link_admit(struct xd_transfer *grant, char *why);
/* Such a GRANT was refused: the SEND that it was meant for ends with -XP_E_GRANT_ENDED. */
void xd_link_refused(const struct xd_transfer *grant);
/*
 * A SEND takes those that wait for one. 0; -EINVAL: a patch lies outside the message, and they wait
 * on; -XP_E_GRANT_ENDED: one was refused, and none waits any more.
 */
int xd_links_take(struct xd_transfer *send, char *why);
/* The GRANT ends. */
void xd_link_end(struct xd_transfer *grant, int status);
/*
 * Writes all fields into the SEND's memory. 0, -EINPROGRESS: a GRANT has not ended, and then the
 * endpoint is pumped; or the status with which the SEND ends.
 */
int xd_links_patch(struct xd_transfer *send);
/* Those on the list, a SEND's or an endpoint's, lead nowhere any more. */
void xd_links_drop(struct xc_list *links);

#endif
