/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef XP_VERSION_H
#define XP_VERSION_H

/*
 * The version of client.proto, as Hello and HelloReply carry it. Both sides must have the same
 * major; the minor tells people which fields a side knows, and decides nothing: what a daemon can
 * do is in its feature bits.
 */
#define XP_VERSION_MAJOR 1
#define XP_VERSION_MINOR 0

/* HelloReply.features. */
#define XP_FEATURE_RING 0x1u
#define XP_FEATURE_LINK 0x2u
#define XP_FEATURE_EXPLAIN 0x4u
/* What this daemon can do of these. */
#define XP_FEATURES 0x0u

#endif
