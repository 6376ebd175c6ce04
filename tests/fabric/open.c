/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "tests/fabric/open.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/assert.h"
#include "daemon/fabric/iwarp/iwarp.h"
#include "daemon/fabric/iwarp/profile.h"
#include "daemon/fabric/verbs/verbs.h"
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

/* One instance is both sides, which meet inside it; or ("wire") through TCP. */
static void open_iwarp(const struct open_options *o)
{
	bool wire = strcmp(o->fabric, "wire") == 0;
	const struct iwarp_options options = {
		.rnr_ms = 100, .no_wire = !wire, .no_shortcut = wire, .crc = o->crc,
		.profile = o->profile ? iwarp_profile_find(o->profile) : NULL,
	};
	struct xd_engine_ref ref = engine_ref(rig.engine);
	struct fabric *f;

	rig.ops = sabotage_ops(&iwarp_fabric_ops);
	CHECK_EQ(iwarp_fabric_open(&options, &ref, &rig_events, &f), 0);
	rig.server = rig.client = add_side(f, &o->server);
}

/* ---- verbs */

#define DISCOVERY_MS 60000
#define SELFTEST_MS 30000

static struct {
	struct fabric *f[ENGINE_FABRICS];
	int n;
	bool finished;
} found;

static void opened(void *ctx, struct fabric *f)
{
	(void)ctx;
	CHECK(found.n < ENGINE_FABRICS);
	found.f[found.n++] = f;
}

static void finished(void *ctx)
{
	(void)ctx;
	found.finished = true;
}

static const struct verbs_sink sink = { .opened = opened, .finished = finished };

static void discover(const struct open_options *o)
{
	const struct verbs_options options = {
		.state_dir = o->state_dir, .pinned_bytes = 64 * MIB, .selftest_ms = SELFTEST_MS,
	};
	struct xd_engine_ref ref = engine_ref(rig.engine);
	uint64_t limit_ms = rig.limit_ms;
	struct verbs_discovery *d;

	/* It takes as long as it takes, once: what was found is kept for the next child. */
	rig.limit_ms = DISCOVERY_MS;
	CHECK_EQ(verbs_discover(&options, &ref, &rig_events, &sink, NULL, &d), 0);
	WAIT(found.finished);
	verbs_discovery_stop(d);
	rig.limit_ms = limit_ms;
}

/* Whose address it is, one finds out by listening there. */
static bool owns(struct side *side, const struct xc_addr *at)
{
	struct ear *ear;
	int err = hear_at(side, at, &ear);

	CHECK(err == 0 || err == -EADDRNOTAVAIL);
	if (!err)
		stop_hearing(ear);
	return !err;
}

static void open_verbs(const struct open_options *o)
{
	rig.ops = sabotage_ops(&verbs_fabric_ops);
	discover(o);
	for (int i = 0; i < found.n; i++) {
		struct side *side = add_side(found.f[i], &o->server);
		bool serves = owns(side, &o->server), connects = owns(side, &o->client);

		if (serves)
			rig.server = side;
		if (connects) {
			side->at = serves ? o->server : o->client;
			rig.client = side;
		}
		if (serves || connects)
			continue;
		engine_remove(rig.engine, side->f);
		rig.ops->close(side->f);
		rig.n_sides--;
	}
	if (!rig.server || !rig.client)
		report_failure(__FILE__, __LINE__, "%d devices, none of which has the %s address",
			       found.n, rig.server ? "client's" : "server's");
	/* What the kernel has still to say comes within this time, or is not waited for. */
	rig.quiet_ms = 50;
}

bool open_is_iwarp(const struct open_options *o)
{
	return strcmp(o->fabric, "iwarp") == 0 || strcmp(o->fabric, "wire") == 0;
}

bool open_knows(const struct open_options *o)
{
	if (o->profile)
		return open_is_iwarp(o) && iwarp_profile_find(o->profile);
	return open_is_iwarp(o) || strcmp(o->fabric, "verbs") == 0;
}

void open_list_profiles(void)
{
	for (const struct iwarp_profile *p = iwarp_profiles; p->name; p++)
		puts(p->name);
}

void open_prepare(struct open_options *o)
{
	o->keeps_state = o->state_dir[0];
	if (o->keeps_state)
		return;
	snprintf(o->state_dir, sizeof(o->state_dir), "/tmp/xd-fabric.XXXXXX");
	xc_assert(mkdtemp(o->state_dir));
}

void open_finish(struct open_options *o)
{
	struct dirent *e;
	DIR *dir;

	if (o->keeps_state)
		return;
	dir = opendir(o->state_dir);
	xc_assert(dir);
	while ((e = readdir(dir)))
		if (e->d_name[0] != '.')
			unlinkat(dirfd(dir), e->d_name, 0);
	closedir(dir);
	rmdir(o->state_dir);
}

void open_sides(const struct open_options *o)
{
	if (open_is_iwarp(o))
		open_iwarp(o);
	else
		open_verbs(o);
	rig.caps = rig.ops->caps(rig.server->f);
}
