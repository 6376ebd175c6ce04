/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "tests/fabric/open.h"

#include <string.h>

#include "daemon/fabric/iwarp/iwarp.h"
#include "tests/fabric/rig.h"
#include "tests/fabric/sabotage.h"

static struct side *add_side(struct fabric *f, const struct xc_addr *at)
{
	struct side *s = &rig.sides[rig.n_sides++];
	struct fabric_ref ref = { .fabric = f, .ops = rig.ops };

	s->f = f;
	s->at = *at;
	engine_add(rig.engine, &ref, rig_polled);
	return s;
}

/* One instance is both sides: its ports are its own. */
static void open_iwarp(const struct open_options *o)
{
	const struct iwarp_options options = { .rnr_ms = 100 };
	struct xd_engine_ref ref = engine_ref(rig.engine);
	struct fabric *f;

	rig.ops = sabotage_ops(&iwarp_fabric_ops);
	CHECK_EQ(iwarp_fabric_open(&options, &ref, &rig_events, &f), 0);
	rig.server = rig.client = add_side(f, &o->server);
}

bool open_knows(const struct open_options *o)
{
	return strcmp(o->fabric, "iwarp") == 0;
}

void open_prepare(struct open_options *o)
{
	(void)o;
}

void open_finish(struct open_options *o)
{
	(void)o;
}

void open_sides(const struct open_options *o)
{
	open_iwarp(o);
	rig.caps = rig.ops->caps(rig.server->f);
}
