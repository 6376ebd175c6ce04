/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Regions and registrations.
 */
#include <errno.h>
#include <string.h>

#include "tests/fabric/rig.h"
#include "tests/fabric/suite.h"

static void slabs_are_blank(void)
{
	uint8_t data[100], back[100] = { 0 };
	struct fabric_region *r;
	void *mem;

	CHECK_EQ(rig.ops->slab_map(4 * PAGE, &r, &mem), 0);
	CHECK(((uintptr_t)mem & (PAGE - 1)) == 0);
	CHECK(all_are(mem, 4 * PAGE, 0));
	fill(data, sizeof(data), 1);
	CHECK_EQ(rig.ops->copy(r, PAGE - 50, data, sizeof(data), true), 0);
	CHECK(filled((uint8_t *)mem + PAGE - 50, sizeof(data), 1));
	CHECK_EQ(rig.ops->copy(r, PAGE - 50, back, sizeof(back), false), 0);
	CHECK(filled(back, sizeof(back), 1));
	rig.ops->region_unmap(r);
}

/*
 * A registration is addressed from mr->addr on, whatever was asked for: locally, and by the peer.
 */
static void addresses_are_the_mrs(void)
{
	static const uint64_t at[] = { 0, 3 * PAGE, 3 * PAGE + 8 };
	struct end *a, *b;

	pair(NULL, &a, &b);
	for (size_t i = 0; i < XC_ARRAY_SIZE(at); i++) {
		struct ibv_mr *local = reg(a, at[i], 100, IBV_ACCESS_LOCAL_WRITE |
					   (rig.caps->read_sink_remote_write ?
						    IBV_ACCESS_REMOTE_WRITE : 0));
		struct ibv_mr *remote = reg(b, at[i], 100, IBV_ACCESS_REMOTE_READ);
		struct ibv_sge sge = { (uintptr_t)local->addr + 10, 80, local->lkey };
		struct ibv_send_wr *bad, wr = {
			.wr_id = i, .opcode = IBV_WR_RDMA_READ, .send_flags = IBV_SEND_SIGNALED,
			.sg_list = &sge, .num_sge = 1,
			.wr.rdma = { (uintptr_t)remote->addr + 10, remote->rkey },
		};

		fill(b->mem + at[i] + 10, 80, (uint8_t)i);
		memset(a->mem, 0xee, a->bytes);
		CHECK_EQ(post(a, &wr, &bad), 0);
		CHECK_EQ(took(a, i), IBV_WC_SUCCESS);
		CHECK(filled(a->mem + at[i] + 10, 80, (uint8_t)i));
		CHECK(all_are(a->mem + at[i], 10, 0xee) && all_are(a->mem + at[i] + 90, 10, 0xee));
		dereg(local);
		dereg(remote);
	}
}

/* Nothing is made of these, and *ret_mr is not touched. */
static void registrations_that_must_fail(void)
{
	struct end *a = end_new(rig.client, NULL);
	const struct {
		uint64_t offset, length, iova;
		int access;
	} cases[] = {
		{ 0, 0, IOVA, 0 },
		{ 0, a->bytes + 1, IOVA, 0 },
		{ a->bytes, 1, IOVA, 0 },
		{ PAGE, UINT64_MAX - 1, IOVA, 0 },
		{ 8, 8, IOVA, 0 }, /* another offset in its page */
		{ 0, 8, IOVA, IBV_ACCESS_REMOTE_WRITE }, /* the owner may not write it */
	};

	for (size_t i = 0; i < XC_ARRAY_SIZE(cases); i++) {
		struct ibv_mr *mr = NULL;
		WAITING(w);
		int err = rig_finish(rig.ops->mr_reg(a->pd, a->region, cases[i].offset,
						     cases[i].length, cases[i].iova,
						     cases[i].access, &w.done, &mr), &w);

		if (err >= 0)
			report_failure(__FILE__, __LINE__, "case %zu was registered", i);
		CHECK(!mr);
	}
}

/* Keys of registrations that live at the same time differ. */
static void keys_differ(void)
{
	struct end *a = end_new(rig.client, NULL);
	struct ibv_mr *mr[16];

	for (int i = 0; i < 16; i++) {
		mr[i] = reg(a, 0, PAGE, IBV_ACCESS_REMOTE_READ);
		for (int j = 0; j < i; j++)
			CHECK(mr[i]->rkey != mr[j]->rkey);
	}
	for (int i = 0; i < 16; i++)
		dereg(mr[i]);
}

const struct test memory_tests[] = {
	{ "slabs are blank, and copied to and from", slabs_are_blank, { "dirty-slab" } },
	{ "addresses are those of the MR", addresses_are_the_mrs,
	  { "wrong-iova", "move-byte", "spill" } },
	{ "registrations that must fail", registrations_that_must_fail, { "register-anything" } },
	{ "keys differ", keys_differ, { "same-key" } },
	{ 0 },
};
