/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What things cost is found out beside the work, and where there is a thing it costs something. How
 * much is nobody's to say.
 */
#include <errno.h>
#include <string.h>

#include "tests/fabric/rig.h"
#include "tests/fabric/suite.h"

static void check_costs(const struct fabric_costs *c)
{
	CHECK(c->wr_ns && c->reg_ns && c->reg_page_ns);
	CHECK(c->copy_ns && c->copy_kib_ns && c->copy_cold_kib_ns);
	CHECK(!c->ranges_ns == !rig.caps->max_ranges);
	CHECK(!c->range_ns == !rig.caps->max_ranges);
	CHECK(!c->bind_ns == (rig.caps->keys != FABRIC_KEYS_WINDOW));
}

static void found_out(void)
{
	struct fabric *f = rig.server->f;
	struct fabric_costs costs = { 0 }, again = { 0 };
	struct exposure *x;
	struct end *a, *b;
	WAITING(w);
	WAITING(second);
	int err;

	if (!rig.ops->measure) {
		report_skip("what the caps say is all there is");
		return;
	}
	pair(NULL, &a, &b);
	x = expose(b, 0, PAGE, IBV_ACCESS_REMOTE_READ);
	err = rig.ops->measure(f, &w.done, &costs);
	/* meanwhile */
	if (err == -EINPROGRESS)
		CHECK_EQ(rig.ops->measure(f, &second.done, &again), -EBUSY);
	fill(b->mem, PAGE, 1);
	post_rdma(a, IBV_WR_RDMA_READ, 1, 0, PAGE, x, 0);
	CHECK_EQ(took(a, 1), IBV_WC_SUCCESS);
	CHECK(filled(a->mem, PAGE, 1));
	CHECK_EQ(rig_finish(err, &w), 0);
	CHECK(!second.over);
	check_costs(&costs);
	CHECK(memcmp(&costs, &rig.ops->caps(f)->costs, sizeof(costs)) == 0);
	CHECK_EQ(rig_finish(rig.ops->measure(f, &second.done, &again), &second), 0);
	check_costs(&again);
}

const struct test costs_tests[] = {
	{ "what things cost", found_out, { "no-costs", "other-costs" } },
	{ 0 },
};
