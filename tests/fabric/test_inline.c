/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Inline data: taken when it is posted, whatever becomes of the memory that it was in.
 */
#include <errno.h>
#include <string.h>

#include "tests/fabric/rig.h"
#include "tests/fabric/sabotage.h"
#include "tests/fabric/suite.h"

#define UNTOUCHED 0xee
#define AT_ONCE 6u /* work requests before anything moves */

static uint8_t ours[AT_ONCE][FABRIC_INLINE_MAX + 1];

/* A work request of bytes of the test's own, in up to two pieces. */
struct one {
	struct ibv_send_wr wr;
	struct ibv_sge sge[2];
};

static void make(struct one *o, uint64_t id, enum ibv_wr_opcode op, uint8_t *data, uint32_t bytes)
{
	uint32_t first = rig.caps->max_sge > 1 ? bytes / 3 : 0;

	*o = (struct one){
		.wr = { .wr_id = id, .opcode = op, .sg_list = o->sge, .num_sge = 1,
			.send_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE },
		.sge[0] = { (uintptr_t)data, first ? first : bytes, 0 },
	};
	if (first) {
		o->sge[1] = (struct ibv_sge){ (uintptr_t)data + first, bytes - first, 0xdead };
		o->wr.num_sge = 2;
	}
	if (!bytes)
		o->wr.num_sge = 0;
	if (sabotaged("forget-inline"))
		o->wr.send_flags &= ~(unsigned int)IBV_SEND_INLINE;
}

static void is_refused(struct end *a, struct one *o, int why)
{
	struct ibv_send_wr *bad;

	CHECK_EQ(post(a, &o->wr, &bad), why);
	CHECK(bad == &o->wr);
}

static bool lacks_it(void)
{
	struct end *a, *b;
	struct one o;

	CHECK(rig.caps->max_inline <= FABRIC_INLINE_MAX);
	if (rig.caps->max_inline)
		return false;
	report_skip("caps: no inline data");
	pair(NULL, &a, &b);
	make(&o, 1, IBV_WR_SEND, ours[0], 8);
	is_refused(a, &o, -EOPNOTSUPP);
	return true;
}

static uint32_t bytes_of(uint32_t nth)
{
	const uint32_t max = rig.caps->max_inline;
	const uint32_t all[AT_ONCE] = { max, 1, 0, max / 2, max - 1, max };

	return all[nth];
}

static void scramble(void)
{
	memset(ours, 0xbb, sizeof(ours));
}

static void messages(void)
{
	struct one o[AT_ONCE];
	struct ibv_send_wr *bad;
	struct end *a, *b;
	struct ibv_wc wc;

	if (lacks_it())
		return;
	pair(NULL, &a, &b);
	memset(b->mem, UNTOUCHED, b->bytes);
	for (uint32_t i = 0; i < AT_ONCE; i++) {
		fill(ours[i], bytes_of(i), (uint8_t)i);
		make(&o[i], i, IBV_WR_SEND, ours[i], bytes_of(i));
		if (i)
			o[i - 1].wr.next = &o[i].wr;
		post_recv(b, i, (uint64_t)i * PAGE, FABRIC_INLINE_MAX);
	}
	CHECK_EQ(post(a, &o[0].wr, &bad), 0);
	scramble();
	for (uint32_t i = 0; i < AT_ONCE; i++) {
		CHECK_EQ(take(a, i, &wc), IBV_WC_SUCCESS);
		CHECK_EQ(take(b, RECV_ID(i), &wc), IBV_WC_SUCCESS);
		CHECK_EQ(wc.byte_len, bytes_of(i));
		CHECK(filled(b->mem + (uint64_t)i * PAGE, bytes_of(i), (uint8_t)i));
		CHECK(all_are(b->mem + (uint64_t)i * PAGE + bytes_of(i), PAGE - bytes_of(i),
			      UNTOUCHED));
	}
}

/* And, behind them, one that says that they are there. */
static void writes(void)
{
	struct one o[AT_ONCE];
	struct ibv_send_wr *bad;
	struct exposure *x;
	struct end *a, *b;

	if (lacks_it())
		return;
	pair(NULL, &a, &b);
	memset(b->mem, UNTOUCHED, b->bytes);
	x = expose(b, 0, AT_ONCE * PAGE, IBV_ACCESS_REMOTE_WRITE);
	post_recv(b, 99, 0, 0);
	for (uint32_t i = 0; i < AT_ONCE; i++) {
		fill(ours[i], bytes_of(i), (uint8_t)i);
		make(&o[i], i, IBV_WR_RDMA_WRITE, ours[i], bytes_of(i));
		o[i].wr.wr.rdma.remote_addr = x->address + (uint64_t)i * PAGE + 9;
		o[i].wr.wr.rdma.rkey = x->rkey;
		CHECK_EQ(post(a, &o[i].wr, &bad), 0);
	}
	scramble();
	post_send(a, 99, 0, 0);
	for (uint32_t i = 0; i < AT_ONCE; i++)
		CHECK_EQ(took(a, i), IBV_WC_SUCCESS);
	CHECK_EQ(took(a, 99), IBV_WC_SUCCESS);
	CHECK_EQ(took(b, RECV_ID(99)), IBV_WC_SUCCESS);
	for (uint32_t i = 0; i < AT_ONCE; i++) {
		uint8_t *page = b->mem + (uint64_t)i * PAGE;

		CHECK(all_are(page, 9, UNTOUCHED));
		CHECK(filled(page + 9, bytes_of(i), (uint8_t)i));
		CHECK(all_are(page + 9 + bytes_of(i), PAGE - 9 - bytes_of(i), UNTOUCHED));
	}
}

static void invalidating(void)
{
	struct ibv_send_wr *bad;
	struct exposure *x;
	struct end *a, *b;
	struct ibv_wc wc;
	struct one o;

	if (lacks_it())
		return;
	if (!rig.caps->remote_invalidate) {
		report_skip("caps: no remote invalidation");
		return;
	}
	pair(NULL, &a, &b);
	x = expose(b, 0, PAGE, IBV_ACCESS_REMOTE_READ);
	post_recv(b, 1, PAGE, FABRIC_INLINE_MAX);
	fill(ours[0], rig.caps->max_inline, 3);
	make(&o, 1, IBV_WR_SEND_WITH_INV, ours[0], rig.caps->max_inline);
	o.wr.invalidate_rkey = x->rkey;
	CHECK_EQ(post(a, &o.wr, &bad), 0);
	scramble();
	CHECK_EQ(took(a, 1), IBV_WC_SUCCESS);
	CHECK_EQ(take(b, RECV_ID(1), &wc), IBV_WC_SUCCESS);
	CHECK(wc.wc_flags & IBV_WC_WITH_INV);
	CHECK_EQ(wc.invalidated_rkey, x->rkey);
	CHECK(filled(b->mem + PAGE, rig.caps->max_inline, 3));
}

static void refused(void)
{
	struct ibv_send_wr *bad;
	struct exposure *x;
	struct end *a, *b;
	struct one o;

	if (lacks_it())
		return;
	pair(NULL, &a, &b);
	x = expose(b, 0, PAGE, IBV_ACCESS_REMOTE_READ);
	make(&o, 1, IBV_WR_SEND, ours[0], rig.caps->max_inline + 1);
	is_refused(a, &o, -EINVAL);
	make(&o, 1, IBV_WR_RDMA_WRITE, ours[0], rig.caps->max_inline + 1);
	is_refused(a, &o, -EINVAL);
	make(&o, 1, IBV_WR_RDMA_READ, ours[0], 8);
	o.wr.num_sge = 1;
	o.wr.wr.rdma.remote_addr = x->address;
	o.wr.wr.rdma.rkey = x->rkey;
	is_refused(a, &o, -EINVAL);
	/* nothing has happened */
	post_recv(b, 2, PAGE, FABRIC_INLINE_MAX);
	fill(ours[0], 8, 5);
	make(&o, 2, IBV_WR_SEND, ours[0], 8);
	CHECK_EQ(post(a, &o.wr, &bad), 0);
	CHECK_EQ(took(a, 2), IBV_WC_SUCCESS);
	CHECK_EQ(took(b, RECV_ID(2)), IBV_WC_SUCCESS);
	CHECK(filled(b->mem + PAGE, 8, 5));
}

const struct test inline_tests[] = {
	{ "inline SEND", messages, { "iwarp:late-inline", "forget-inline", "spill" } },
	{ "inline WRITE", writes, { "iwarp:late-inline", "forget-inline", "short" } },
	{ "inline SEND with invalidation", invalidating,
	  { "iwarp:late-inline", "forget-inline", "no-invalidate" } },
	{ "inline data that is refused", refused, { "eager-send", "wrong-why" } },
	{ 0 },
};
