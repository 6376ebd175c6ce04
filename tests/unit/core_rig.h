/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef CORE_RIG_H
#define CORE_RIG_H

/*
 * The core on the simulation's fabric, with no dice: everything goes well, and the test decides
 * when.
 */

#include "tests/unit/cm.h"

#include <stdbool.h>
#include <stdint.h>

#include "daemon/core/core.h"
#include "tests/sim/fake_fabric.h"
#include "tests/unit/fake_engine.h"

struct rig {
	struct xd_engine engine;
	struct xd_engine_ref ref;
	struct xd_policy policy;
	struct xd_core *core;
	struct fabric *fabric;
	uint64_t serial;
};

/* A client's end. */
struct rig_client {
	struct xd_session *s;
	bool gone;
	int memory;       /* what its one buffer shares */
	uint8_t *bytes;
	uint32_t buffer, endpoint;
};

/* Change these before rig_init(), where a test needs other ones. */
extern struct fabric_caps rig_caps;
extern struct fake_dice rig_dice;
extern bool rig_own_addresses;
/* And this before rig_connect(). */
extern struct xd_endpoint_options rig_options;

/* Once, at the start of the program. */
void rig_defaults(void);

void rig_init(struct rig *r);
/* Nothing may be left. Clients must be closed. */
void rig_done(struct rig *r);
/* Until nothing moves that does not wait for the clock. Reads no output. */
void rig_run(struct rig *r);

/* A session that has said hello. */
void rig_client_init(struct rig *r, struct rig_client *c, uint32_t uid, bool admin);
void rig_close(struct rig *r, struct rig_client *c);
/* With a buffer of 64 KiB, or of so many bytes. */
void rig_buffer(struct rig *r, struct rig_client *c);
void rig_buffer_of(struct rig *r, struct rig_client *c, uint64_t bytes);
/* a connects to b; both have an endpoint then, and nothing to read. */
void rig_connect(struct rig *r, struct rig_client *a, struct rig_client *b);

/* The next output, which must be of this kind. */
struct xd_out rig_take(struct rig_client *c, enum xd_out_kind kind);
/* The completion that must come next. */
struct xp_completion rig_completion(struct rig_client *c, uint64_t wr_id, int status);

/* A grant, made; for READ or WRITE, until the endpoint ends or for so long. Its token. */
struct xp_completion rig_grant(struct rig *r, struct rig_client *c, uint64_t offset,
			       uint32_t length, bool write, uint64_t lifetime_ms);
/* A request of one local and, where length says so, one remote segment. */
void rig_submit(struct rig_client *c, uint8_t opcode, uint64_t wr_id, uint64_t offset,
		uint32_t length, const struct xp_completion *token);

#endif
