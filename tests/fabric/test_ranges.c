/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * One key over many ranges: bytes in their order, across every seam, and none of those between.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/assert.h"
#include "tests/fabric/rig.h"
#include "tests/fabric/sabotage.h"
#include "tests/fabric/suite.h"

#define UNTOUCHED 0xee
#define SECRET 0x55
#define LATE 0x99
#define PRIME 71u /* i * PRIME % n is every place once, whatever n up to 256 but 71 and its like */
#define ODD_IOVA (IOVA + 4321)
#define BYTES_MAX (64 * KIB)

static const struct end_attr roomy = { .bytes = 24 * PAGE };

/* Ranges of the memory of two ends, and where a test sees them. */
struct shape {
	struct fabric_range r[FABRIC_RANGES_MAX + 1];
	uint8_t *at[FABRIC_RANGES_MAX + 1];
	uint64_t seam[FABRIC_RANGES_MAX + 2]; /* where each begins; and the end */
	uint32_t n;
};

static bool lacks_them(void)
{
	struct end *e;
	struct ibv_mr *mr = NULL;
	struct fabric_range r = { .length = 8 };
	WAITING(w);

	if (rig.caps->max_ranges) {
		CHECK(rig.caps->max_ranges <= FABRIC_RANGES_MAX && rig.ops->mr_reg_ranges);
		return false;
	}
	report_skip("caps: no keys over ranges");
	if (!rig.ops->mr_reg_ranges)
		return true;
	e = end_new(rig.client, NULL);
	r.region = e->region;
	CHECK_EQ(rig.ops->mr_reg_ranges(e->pd, &r, 1, IOVA, 0, &w.done, &mr), -EOPNOTSUPP);
	CHECK(!mr);
	return true;
}

static uint32_t length_of(uint32_t i, bool large)
{
	return large ? 3000 + i * 777 : 1 + (i * 37) % 100;
}

/* Every third of another region; with gaps, and not in the order of their places. */
static void make_shape(struct shape *s, struct end *e, struct end *other, uint32_t n, bool large)
{
	uint32_t stride = large ? 3 * PAGE : 128;

	s->n = n;
	s->seam[0] = 0;
	for (uint32_t i = 0; i < n; i++) {
		struct end *of = i % 3 == 1 ? other : e;
		uint64_t at = PAGE + (uint64_t)(i * PRIME % n) * stride + i % 7;

		s->r[i] = (struct fabric_range){ of->region, at, length_of(i, large) };
		s->at[i] = of->mem + at;
		s->seam[i + 1] = s->seam[i] + s->r[i].length;
		CHECK(at + s->r[i].length <= of->bytes);
	}
}

static struct ibv_mr *reg_shape(struct end *e, const struct shape *s, uint64_t iova, int access)
{
	struct fabric_range *r = malloc(s->n * sizeof(*r));
	struct ibv_mr *mr = NULL;
	WAITING(w);
	int err;

	xc_assert(r);
	memcpy(r, s->r, s->n * sizeof(*r));
	if (sabotaged("swap-ranges") && s->n > 1) {
		r[0] = s->r[1];
		r[1] = s->r[0];
	}
	if (sabotaged("wide-mr"))
		r[s->n - 1].length++;
	if (sabotaged("all-rights"))
		access |= IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ |
			  IBV_ACCESS_REMOTE_WRITE;
	err = rig.ops->mr_reg_ranges(e->pd, r, s->n, iova, access, &w.done, &mr);
	/* Nobody looks there again. */
	memset(r, 0xff, s->n * sizeof(*r));
	free(r);
	CHECK_EQ(rig_finish(err, &w), 0);
	CHECK(mr);
	if (!sabotaged("wide-mr"))
		CHECK_EQ(mr->length, s->seam[s->n]);
	return mr;
}

/* Bytes from there on, one by one. */
static uint8_t *byte_of(const struct shape *s, uint64_t at)
{
	uint32_t i = 0;

	while (at >= s->seam[i + 1])
		i++;
	return s->at[i] + (at - s->seam[i]);
}

static void put(const struct shape *s, uint64_t at, const uint8_t *data, uint64_t bytes)
{
	for (uint64_t k = 0; k < bytes; k++)
		*byte_of(s, at + k) = data[k];
}

/* They are there, and nothing else in the memory of both was touched. */
static void check(const struct shape *s, uint64_t at, const uint8_t *data, uint64_t bytes,
		  struct end *e, struct end *other)
{
	for (uint64_t k = 0; k < bytes; k++) {
		uint8_t *byte = byte_of(s, at + k);

		if (*byte != data[k])
			report_failure(__FILE__, __LINE__, "byte %llu is wrong",
				       (unsigned long long)(at + k));
		*byte = UNTOUCHED;
	}
	CHECK(all_are(e->mem, e->bytes, UNTOUCHED));
	CHECK(all_are(other->mem, other->bytes, UNTOUCHED));
}

static int sink_access(void)
{
	return IBV_ACCESS_LOCAL_WRITE |
	       (rig.caps->read_sink_remote_write ? IBV_ACCESS_REMOTE_WRITE : 0);
}

/* Whose memory the key is over: */
enum use { READ_SOURCE, WRITE_TARGET, READ_SINK, WRITE_SOURCE, SEND, RECV, USES };

static bool is_remote(enum use use)
{
	return use == READ_SOURCE || use == WRITE_TARGET;
}

static bool is_filled(enum use use)
{
	return use == WRITE_TARGET || use == READ_SINK || use == RECV;
}

static int access_for(enum use use)
{
	switch (use) {
	case READ_SOURCE:
		return IBV_ACCESS_REMOTE_READ;
	case WRITE_TARGET:
		return IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
	case READ_SINK:
		return sink_access();
	case RECV:
		return IBV_ACCESS_LOCAL_WRITE;
	default:
		return 0;
	}
}

struct scene {
	struct end *a, *b, *other; /* other: memory of the side whose the key is */
	struct exposure *plain;	   /* of b, for keys of a */
	struct shape shape;
	struct ibv_mr *mr;
	enum use use;
	uint64_t id;
};

static struct end *owner(const struct scene *s)
{
	return is_remote(s->use) || s->use == RECV ? s->b : s->a;
}

static struct end *opposite(const struct scene *s)
{
	return owner(s) == s->a ? s->b : s->a;
}

static void set(struct scene *s, enum use use, uint32_t n, bool large)
{
	*s = (struct scene){ .use = use };
	pair(&roomy, &s->a, &s->b);
	s->other = end_new(rig.server, &roomy);
	make_shape(&s->shape, owner(s), s->other, n, large);
	s->mr = reg_shape(owner(s), &s->shape, ODD_IOVA, access_for(use));
	if (use == READ_SINK || use == WRITE_SOURCE)
		s->plain = expose(s->b, 0, BYTES_MAX, use == READ_SINK ? IBV_ACCESS_REMOTE_READ
								       : IBV_ACCESS_REMOTE_WRITE);
}

/* A work request of a that moves these bytes of the key. */
static void post_it(struct scene *s, uint64_t at, uint32_t bytes)
{
	const struct ibv_sge ours = { (uintptr_t)s->mr->addr + at, bytes, s->mr->lkey };
	struct ibv_sge sge = is_remote(s->use) || s->use == RECV ? sge_of(s->a, 0, bytes) : ours;
	struct ibv_send_wr *bad, wr = {
		.wr_id = s->id, .send_flags = IBV_SEND_SIGNALED, .sg_list = &sge, .num_sge = 1,
		.opcode = s->use == READ_SOURCE || s->use == READ_SINK	    ? IBV_WR_RDMA_READ
			  : s->use == WRITE_TARGET || s->use == WRITE_SOURCE ? IBV_WR_RDMA_WRITE
									     : IBV_WR_SEND,
	};

	if (is_remote(s->use)) {
		wr.wr.rdma.remote_addr = (uintptr_t)s->mr->addr + at;
		wr.wr.rdma.rkey = s->mr->rkey;
	} else if (s->plain) {
		wr.wr.rdma.remote_addr = s->plain->address;
		wr.wr.rdma.rkey = s->plain->rkey;
	}
	CHECK_EQ(post(s->a, &wr, &bad), 0);
}

static void post_their_recv(struct scene *s, uint64_t at, uint32_t bytes)
{
	struct ibv_sge sge = s->use == RECV ? (struct ibv_sge){ (uintptr_t)s->mr->addr + at, bytes,
								s->mr->lkey }
					    : sge_of(s->b, 0, bytes);
	struct ibv_recv_wr *bad, wr = { .wr_id = RECV_ID(s->id), .sg_list = &sge, .num_sge = 1 };

	CHECK_EQ(post_recvs(s->b, &wr, &bad), 0);
}

/* A WRITE that succeeded is placed once a SEND behind it has arrived. */
static void placed(struct scene *s)
{
	post_recv(s->b, ++s->id, 0, 0);
	post_send(s->a, s->id, 0, 0);
	CHECK_EQ(took(s->a, s->id), IBV_WC_SUCCESS);
	CHECK_EQ(took(s->b, RECV_ID(s->id)), IBV_WC_SUCCESS);
}

static void carry(struct scene *s, uint64_t at, uint32_t bytes)
{
	static uint8_t data[BYTES_MAX];
	struct end *peer = opposite(s);

	CHECK(bytes <= BYTES_MAX);
	s->id++;
	fill(data, bytes, (uint8_t)s->id);
	memset(s->a->mem, UNTOUCHED, s->a->bytes);
	memset(s->b->mem, UNTOUCHED, s->b->bytes);
	memset(s->other->mem, UNTOUCHED, s->other->bytes);
	if (is_filled(s->use))
		memcpy(peer->mem, data, bytes);
	else
		put(&s->shape, at, data, bytes);
	if (s->use == SEND || s->use == RECV)
		post_their_recv(s, at, bytes);
	post_it(s, at, bytes);
	CHECK_EQ(took(s->a, s->id), IBV_WC_SUCCESS);
	if (s->use == SEND || s->use == RECV)
		CHECK_EQ(took(s->b, RECV_ID(s->id)), IBV_WC_SUCCESS);
	if (s->use == WRITE_TARGET || s->use == WRITE_SOURCE)
		placed(s);
	if (is_filled(s->use)) {
		check(&s->shape, at, data, bytes, owner(s), s->other);
		return;
	}
	CHECK(memcmp(peer->mem, data, bytes) == 0);
	CHECK(all_are(peer->mem + bytes, peer->bytes - bytes, UNTOUCHED));
}

static void whole(enum use use, uint32_t n, bool large)
{
	struct scene s;

	set(&s, use, n, large);
	carry(&s, 0, (uint32_t)s.shape.seam[n]);
	dereg(s.mr);
}

static void in_order(void)
{
	if (lacks_them())
		return;
	for (enum use use = 0; use < USES; use++) {
		whole(use, 1, false);
		whole(use, xc_min_u32(3, rig.caps->max_ranges), false);
		whole(use, xc_min_u32(7, rig.caps->max_ranges), true);
		whole(use, rig.caps->max_ranges, false);
	}
}

/* To the byte: before each seam, behind it, and across; and what is longer than some ranges. */
static void at_seams(void)
{
	const uint32_t n = 5;

	if (lacks_them())
		return;
	for (enum use use = 0; use < USES; use++) {
		struct scene s;

		set(&s, use, xc_min_u32(n, rig.caps->max_ranges), false);
		for (uint32_t i = 0; i < s.shape.n; i++) {
			uint64_t end = s.shape.seam[i + 1];

			carry(&s, s.shape.seam[i], 1);
			carry(&s, end - 1, 1);
			if (i + 1 < s.shape.n)
				carry(&s, end - 1, 2);
			carry(&s, s.shape.seam[i], (uint32_t)(s.shape.seam[s.shape.n] -
							      s.shape.seam[i]));
		}
		dereg(s.mr);
	}
}

/* ---- what is refused */

static void is_refused(struct scene *s, uint64_t at, uint32_t bytes)
{
	int status;

	memset(s->a->mem, UNTOUCHED, s->a->bytes);
	memset(s->b->mem, SECRET, s->b->bytes);
	memset(s->other->mem, SECRET, s->other->bytes);
	s->id++;
	if (s->use == SEND || s->use == RECV)
		post_their_recv(s, at, bytes);
	post_it(s, at, bytes);
	status = took(s->a, s->id);
	if (status == IBV_WC_SUCCESS && (s->use == READ_SOURCE || rig.caps->acknowledged))
		report_failure(__FILE__, __LINE__, "what must not succeed did");
	if (status != IBV_WC_SUCCESS)
		end_error(s->a);
	until_ended(s->a, s->b);
	CHECK(all_are(s->a->mem, s->a->bytes, UNTOUCHED));
	CHECK(all_are(s->b->mem, s->b->bytes, SECRET));
	CHECK(all_are(s->other->mem, s->other->bytes, SECRET));
}

static void beyond(enum use use, uint64_t at, int64_t more)
{
	struct scene s;
	uint32_t bytes;

	set(&s, use, xc_min_u32(4, rig.caps->max_ranges), false);
	bytes = (uint32_t)s.shape.seam[s.shape.n];
	carry(&s, 0, bytes);
	is_refused(&s, at, (uint32_t)(bytes + more));
	dereg(s.mr);
}

static void bounds(void)
{
	if (lacks_them())
		return;
	for (enum use use = 0; use < USES; use++) {
		beyond(use, 0, 1);
		beyond(use, 1, 0);
		beyond(use, (uint64_t)-1, 0);
		beyond(use, (uint64_t)-1, -1);
	}
}

static void key_with(enum use use, int access)
{
	struct scene s;
	struct ibv_mr *mr;

	set(&s, use, xc_min_u32(3, rig.caps->max_ranges), false);
	carry(&s, 0, (uint32_t)s.shape.seam[s.shape.n]);
	mr = s.mr;
	s.mr = reg_shape(owner(&s), &s.shape, ODD_IOVA, access);
	is_refused(&s, 0, (uint32_t)s.shape.seam[s.shape.n]);
	dereg(s.mr);
	dereg(mr);
}

static void rights(void)
{
	if (lacks_them())
		return;
	key_with(READ_SOURCE, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	key_with(READ_SOURCE, IBV_ACCESS_LOCAL_WRITE);
	key_with(WRITE_TARGET, IBV_ACCESS_REMOTE_READ);
	key_with(WRITE_TARGET, IBV_ACCESS_LOCAL_WRITE);
	key_with(READ_SINK, IBV_ACCESS_REMOTE_READ);
	key_with(RECV, IBV_ACCESS_REMOTE_READ);
}

/* By a window over a part of b's ranges. */
static void window_over(enum use use, uint64_t from, uint64_t bytes, bool beyond)
{
	const bool reads = use == READ_SOURCE;
	struct ibv_send_wr *bad, wr = { .wr_id = 1, .opcode = IBV_WR_BIND_MW,
					.send_flags = IBV_SEND_SIGNALED };
	struct scene s;
	struct ibv_mr *mr, window;
	struct ibv_mw *mw;
	WAITING(w);

	set(&s, use, xc_min_u32(5, rig.caps->max_ranges), false);
	mr = reg_shape(s.b, &s.shape, ODD_IOVA, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND);
	CHECK_EQ(rig_finish(rig.ops->mw_alloc(s.b->pd, &w.done, &mw), &w), 0);
	wr.bind_mw.mw = mw;
	wr.bind_mw.rkey = ibv_inc_rkey(mw->rkey);
	wr.bind_mw.bind_info = (struct ibv_mw_bind_info){
		.mr = mr, .addr = (uintptr_t)mr->addr + from, .length = bytes,
		.mw_access_flags = reads ? IBV_ACCESS_REMOTE_READ : IBV_ACCESS_REMOTE_WRITE,
	};
	CHECK_EQ(post(s.b, &wr, &bad), 0);
	CHECK_EQ(took(s.b, 1), IBV_WC_SUCCESS);
	mw->rkey = wr.bind_mw.rkey;
	/* All of it, by the window's key in place of the other. */
	dereg(s.mr);
	window = *mr;
	window.rkey = mw->rkey;
	s.mr = &window;
	s.id = 10;
	carry(&s, from, (uint32_t)bytes);
	if (beyond)
		is_refused(&s, from, (uint32_t)bytes + 1);
	else
		is_refused(&s, from - 1, (uint32_t)bytes);
	w.over = false;
	CHECK_EQ(rig_finish(rig.ops->mw_dealloc(mw, &w.done), &w), 0);
	dereg(mr);
}

static void windows(void)
{
	if (lacks_them())
		return;
	if (rig.caps->keys != FABRIC_KEYS_WINDOW) {
		report_skip("caps: no windows");
		return;
	}
	for (int i = 0; i < 2; i++) {
		enum use use = i ? WRITE_TARGET : READ_SOURCE;

		window_over(use, 1, 1, true);
		window_over(use, 1, 150, true);
		window_over(use, 30, 60, false);
		window_over(use, 38, 101, false);
	}
}

/* The key has to allow it, as any other. */
static void no_window(void)
{
	struct ibv_send_wr *bad, wr = { .wr_id = 1, .opcode = IBV_WR_BIND_MW,
					.send_flags = IBV_SEND_SIGNALED };
	struct scene s;
	struct ibv_mw *mw;
	WAITING(w);

	if (lacks_them())
		return;
	if (rig.caps->keys != FABRIC_KEYS_WINDOW) {
		report_skip("caps: no windows");
		return;
	}
	set(&s, READ_SOURCE, 3, false);
	CHECK_EQ(rig_finish(rig.ops->mw_alloc(s.b->pd, &w.done, &mw), &w), 0);
	wr.bind_mw.mw = mw;
	wr.bind_mw.rkey = ibv_inc_rkey(mw->rkey);
	wr.bind_mw.bind_info = (struct ibv_mw_bind_info){
		.mr = sabotaged("bind-another") ? s.b->mr : s.mr,
		.addr = (uintptr_t)(sabotaged("bind-another") ? s.b->mr : s.mr)->addr, .length = 8,
		.mw_access_flags = IBV_ACCESS_REMOTE_READ,
	};
	CHECK_EQ(post(s.b, &wr, &bad), 0);
	CHECK(took(s.b, 1) != IBV_WC_SUCCESS);
	until_ended(s.a, s.b);
	w.over = false;
	CHECK_EQ(rig_finish(rig.ops->mw_dealloc(mw, &w.done), &w), 0);
	dereg(s.mr);
}

/* b's key, tried through an endpoint of another pd. */
static void one_domain(void)
{
	struct scene s, t;

	if (lacks_them())
		return;
	set(&s, READ_SOURCE, xc_min_u32(3, rig.caps->max_ranges), false);
	carry(&s, 0, (uint32_t)s.shape.seam[s.shape.n]);
	t = s;
	pair(&roomy, &t.a, &t.b);
	is_refused(&t, 0, (uint32_t)s.shape.seam[s.shape.n]);
	carry(&s, 0, (uint32_t)s.shape.seam[s.shape.n]);
	dereg(s.mr);
}

static void dead_keys(void)
{
	static const enum use uses[] = { READ_SOURCE, WRITE_TARGET };

	if (lacks_them())
		return;
	for (size_t i = 0; i < XC_ARRAY_SIZE(uses); i++) {
		struct ibv_mr dead;
		struct scene s;

		set(&s, uses[i], xc_min_u32(3, rig.caps->max_ranges), false);
		carry(&s, 0, (uint32_t)s.shape.seam[s.shape.n]);
		dead = *s.mr;
		dereg(s.mr);
		s.mr = &dead;
		is_refused(&s, 0, (uint32_t)s.shape.seam[s.shape.n]);
	}
}

/* The key of a READ that runs: what it reads afterwards it does not get to see. */
static void dead_in_the_middle(void)
{
	const struct end_attr large = { .bytes = 5 * MIB };
	struct scene s = { .use = READ_SOURCE };
	uint64_t until = rig_limit();

	if (lacks_them())
		return;
	pair(&large, &s.a, &s.b);
	s.shape.n = xc_min_u32(2, rig.caps->max_ranges);
	s.shape.r[0] = (struct fabric_range){ s.b->region, PAGE, 2 * MIB };
	s.shape.r[1] = (struct fabric_range){ s.b->region, 2 * MIB + 3 * PAGE, 2 * MIB };
	s.shape.seam[s.shape.n] = (uint64_t)s.shape.n * 2 * MIB;
	s.mr = reg_shape(s.b, &s.shape, ODD_IOVA, IBV_ACCESS_REMOTE_READ);
	memset(s.a->mem, UNTOUCHED, s.a->bytes);
	memset(s.b->mem, SECRET, s.b->bytes);
	s.id = 1;
	post_it(&s, 0, xc_min_u32(2 * s.shape.n * MIB, (uint32_t)rig.caps->max_message_bytes));
	while (s.a->mem[0] == UNTOUCHED && !s.a->wcs[0].n)
		if (!rig_turn(until))
			report_failure(__FILE__, __LINE__, "the READ does not begin");
	dereg(s.mr);
	memset(s.b->mem, LATE, s.b->bytes);
	/* It may have been faster. */
	if (took(s.a, 1) != IBV_WC_SUCCESS) {
		end_error(s.a);
		until_ended(s.a, s.b);
	}
	CHECK(!memchr(s.a->mem, LATE, s.a->bytes));
}

static void that_must_fail(void)
{
	struct fabric_range many[FABRIC_RANGES_MAX + 1], r[3];
	struct end *a;
	const struct {
		const struct fabric_range *r;
		uint32_t n;
		uint64_t iova;
		int access, nth;
		uint64_t offset, length; /* of r[nth] */
	} cases[] = {
		{ r, 0, IOVA, 0, 0, 0, 8 },
		{ many, rig.caps->max_ranges + 1, IOVA, 0, 0, 0, 8 },
		{ r, 3, IOVA, 0, 0, 0, 0 },
		{ r, 3, IOVA, 0, 1, 0, 0 },
		{ r, 3, IOVA, 0, 2, 0, 0 },
		{ r, 3, IOVA, 0, 1, 24 * PAGE, 1 },
		{ r, 3, IOVA, 0, 2, 24 * PAGE - 7, 8 },
		{ r, 3, IOVA, 0, 1, PAGE, UINT64_MAX - 1 },
		{ r, 3, UINT64_MAX - 20, 0, 0, 0, 8 },
		{ r, 3, IOVA, IBV_ACCESS_REMOTE_WRITE, 0, 0, 8 },
		{ r, 3, IOVA, IBV_ACCESS_ON_DEMAND, 0, 0, 8 },
		{ r, 3, IOVA, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_ATOMIC, 0, 0, 8 },
	};

	if (lacks_them())
		return;
	a = end_new(rig.client, &roomy);
	for (uint32_t i = 0; i <= FABRIC_RANGES_MAX; i++)
		many[i] = (struct fabric_range){ a->region, i * 16, 8 };
	for (size_t i = 0; i < XC_ARRAY_SIZE(cases); i++) {
		struct ibv_mr *mr = NULL;
		WAITING(w);
		int err;

		memcpy(r, many, sizeof(r));
		r[cases[i].nth].offset = cases[i].offset;
		r[cases[i].nth].length = cases[i].length;
		err = rig_finish(rig.ops->mr_reg_ranges(a->pd, cases[i].r, cases[i].n,
							cases[i].iova, cases[i].access, &w.done,
							&mr), &w);
		if (err >= 0)
			report_failure(__FILE__, __LINE__, "case %zu was registered", i);
		CHECK_EQ(err, -EINVAL);
		CHECK(!mr);
	}
}

const struct test ranges_tests[] = {
	{ "a key over ranges has them in order", in_order,
	  { "iwarp:first-range", "iwarp:ignore-seams", "swap-ranges", "move-byte" } },
	{ "the seams of ranges", at_seams, { "iwarp:first-range", "iwarp:ignore-seams" } },
	{ "bounds of a key over ranges", bounds, { "iwarp:widen-ranges", "wide-mr" } },
	{ "rights of a key over ranges", rights,
	  { "iwarp:skip-rights", "iwarp:skip-local-rights", "all-rights" } },
	{ "windows over ranges", windows,
	  { "iwarp:widen-bound", "iwarp:first-range", "iwarp:ignore-seams" } },
	{ "no window over ranges", no_window, { "bind-another" } },
	{ "ranges of another protection domain", one_domain, { "iwarp:skip-pd-check", "one-pd" } },
	{ "dead keys over ranges", dead_keys, { "keep-mr" } },
	{ "a key over ranges dies under a READ", dead_in_the_middle,
	  { "iwarp:skip-recheck", "keep-mr" } },
	{ "ranges that must fail", that_must_fail, { "register-anything" } },
	{ 0 },
};
