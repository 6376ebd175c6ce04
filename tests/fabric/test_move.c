/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Bytes get to where they are to be, all of them and no others.
 */
#include <string.h>

#include "tests/fabric/rig.h"
#include "tests/fabric/sabotage.h"
#include "tests/fabric/suite.h"

#define UNTOUCHED 0xee

static const uint32_t sizes[] = {
	0, 1, 100, PAGE, 3 * PAGE + 17, 64 * KIB + 1, MIB - 1, MIB,
};
/* The last byte of a page, the first of one, and somewhere. */
static const uint64_t places[] = { PAGE - 1, PAGE, 2 * PAGE + 77 };

static const struct end_attr roomy = { .bytes = MIB + 8 * PAGE };

/* A WRITE that succeeded is placed by now; else once a SEND behind it has arrived. */
static void placed(struct end *a, struct end *b)
{
	if (rig.caps->acknowledged)
		return;
	post_recv(b, 9000, 0, 0);
	post_send(a, 9000, 0, 0);
	CHECK_EQ(took(a, 9000), IBV_WC_SUCCESS);
	CHECK_EQ(took(b, RECV_ID(9000)), IBV_WC_SUCCESS);
}

static void check_memory(const struct end *e, uint64_t at, uint64_t bytes, uint8_t seed)
{
	CHECK(filled(e->mem + at, bytes, seed));
	CHECK(all_are(e->mem, at, UNTOUCHED));
	CHECK(all_are(e->mem + at + bytes, e->bytes - at - bytes, UNTOUCHED));
}

static void blank(struct end *from, struct end *to, uint64_t at, uint32_t bytes, uint8_t seed)
{
	memset(to->mem, UNTOUCHED, to->bytes);
	fill(from->mem + at, bytes, seed);
}

static void check_wc(const struct ibv_wc *wc, enum ibv_wc_opcode opcode)
{
	CHECK_EQ(wc->status, IBV_WC_SUCCESS);
	CHECK_EQ(wc->opcode, opcode);
}

static void move(struct end *a, struct end *b, enum ibv_wr_opcode op, uint64_t from, uint64_t to,
		 uint32_t bytes, uint8_t seed)
{
	bool reads = op == IBV_WR_RDMA_READ;
	struct exposure *x = expose(b, reads ? from : to, bytes ? bytes : 1,
				    reads ? IBV_ACCESS_REMOTE_READ : IBV_ACCESS_REMOTE_WRITE);
	struct ibv_wc wc;

	blank(reads ? b : a, reads ? a : b, from, bytes, seed);
	post_rdma(a, op, seed, reads ? to : from, bytes, x, 0);
	take(a, seed, &wc);
	check_wc(&wc, reads ? IBV_WC_RDMA_READ : IBV_WC_RDMA_WRITE);
	if (!reads)
		placed(a, b);
	check_memory(reads ? a : b, to, bytes, seed);
	conceal(x);
}

static void message(struct end *a, struct end *b, uint64_t from, uint64_t to, uint32_t bytes,
		    uint8_t seed)
{
	struct ibv_wc wc;

	blank(a, b, from, bytes, seed);
	/* Longer than the message, as RECVs are. */
	post_recv(b, seed, to, bytes + 50);
	post_send(a, seed, from, bytes);
	take(a, seed, &wc);
	check_wc(&wc, IBV_WC_SEND);
	take(b, RECV_ID(seed), &wc);
	check_wc(&wc, IBV_WC_RECV);
	CHECK_EQ(wc.byte_len, bytes);
	check_memory(b, to, bytes, seed);
}

static void all_sizes(enum ibv_wr_opcode op)
{
	struct end *a, *b;
	uint8_t seed = 0;

	pair(&roomy, &a, &b);
	for (size_t i = 0; i < XC_ARRAY_SIZE(sizes); i++) {
		for (size_t k = 0; k < XC_ARRAY_SIZE(places); k++) {
			uint64_t from = places[k], to = places[(k + i) % XC_ARRAY_SIZE(places)];

			/* The large ones once: they are slow on an emulated machine. */
			if (sizes[i] > 64 * KIB && k)
				break;
			if (op == IBV_WR_SEND)
				message(a, b, from, to, sizes[i], ++seed);
			else
				move(a, b, op, from, to, sizes[i], ++seed);
		}
	}
}

static void reads(void)
{
	all_sizes(IBV_WR_RDMA_READ);
}

static void writes(void)
{
	all_sizes(IBV_WR_RDMA_WRITE);
}

static void sends(void)
{
	all_sizes(IBV_WR_SEND);
}

/* What needs no key looks at none: nothing without bytes can be refused. */
static void without_bytes(void)
{
	static const enum ibv_wr_opcode ops[] = { IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ };
	struct end *a, *b;
	struct exposure *x;

	pair(NULL, &a, &b);
	x = expose(b, 0, 1, IBV_ACCESS_REMOTE_READ);
	memset(a->mem, UNTOUCHED, a->bytes);
	for (size_t i = 0; i < XC_ARRAY_SIZE(ops); i++) {
		post_rdma(a, ops[i], i, 0, 0, x, 0);
		CHECK_EQ(took(a, i), IBV_WC_SUCCESS);
	}
	post_rdma(a, IBV_WR_RDMA_READ, 7, 0, 1, x, 0);
	CHECK_EQ(took(a, 7), IBV_WC_SUCCESS);
	CHECK(all_are(a->mem + 1, a->bytes - 1, UNTOUCHED));
}

/* ---- lists */

#define LIST_MAX 64
#define PRIME 71u /* above LIST_MAX: i * PRIME % n is every place once */

/* n pieces of uneven lengths, not in the order of their addresses; returns their sum. */
static uint32_t make_list(const struct end *e, struct ibv_sge *list, uint32_t n)
{
	uint32_t sum = 0;

	for (uint32_t i = 0; i < n; i++) {
		uint32_t bytes = 1 + (i * 37) % 300;

		list[i] = sge_of(e, PAGE + (uint64_t)(i * PRIME % n) * 512 + i % 7, bytes);
		sum += bytes;
	}
	return sum;
}

static uint64_t place_of(const struct end *e, const struct ibv_sge *s)
{
	return s->addr - (uintptr_t)e->mr->addr;
}

static void scatter(struct end *e, const struct ibv_sge *list, uint32_t n, const uint8_t *data)
{
	for (uint32_t i = 0; i < n; data += list[i++].length)
		memcpy(e->mem + place_of(e, &list[i]), data, list[i].length);
}

/* The list holds these bytes, and all around it nothing was touched. */
static void check_list(struct end *e, const struct ibv_sge *list, uint32_t n, const uint8_t *data,
		       uint32_t bytes)
{
	for (uint32_t i = 0; i < n && bytes; i++) {
		uint32_t piece = xc_min_u32(bytes, list[i].length);
		uint8_t *at = e->mem + place_of(e, &list[i]);

		CHECK(memcmp(at, data, piece) == 0);
		memset(at, UNTOUCHED, piece);
		data += piece;
		bytes -= piece;
	}
	CHECK(all_are(e->mem, e->bytes, UNTOUCHED));
}

static uint32_t list_length(uint32_t max)
{
	return xc_min_u32(max, LIST_MAX);
}

static void list_of_rdma(enum ibv_wr_opcode op, uint32_t n)
{
	struct end_attr attr = { .bytes = 32 * PAGE, .send_sge = n };
	bool reading = op == IBV_WR_RDMA_READ;
	static uint8_t data[LIST_MAX * 300];
	struct ibv_sge list[LIST_MAX];
	struct ibv_send_wr *bad, wr = { .wr_id = 1, .opcode = op, .sg_list = list,
					.num_sge = (int)n, .send_flags = IBV_SEND_SIGNALED };
	struct exposure *x;
	struct end *a, *b;
	uint32_t bytes;

	pair(&attr, &a, &b);
	bytes = make_list(a, list, n);
	x = expose(b, 33, bytes, reading ? IBV_ACCESS_REMOTE_READ : IBV_ACCESS_REMOTE_WRITE);
	wr.wr.rdma.remote_addr = x->address;
	wr.wr.rdma.rkey = x->rkey;
	memset(a->mem, UNTOUCHED, a->bytes);
	memset(b->mem, UNTOUCHED, b->bytes);
	fill(data, bytes, 5);
	if (reading)
		memcpy(b->mem + 33, data, bytes);
	else
		scatter(a, list, n, data);
	CHECK_EQ(post(a, &wr, &bad), 0);
	CHECK_EQ(took(a, 1), IBV_WC_SUCCESS);
	if (reading) {
		check_list(a, list, n, data, bytes);
		return;
	}
	placed(a, b);
	check_memory(b, 33, bytes, 5);
}

static void read_lists(void)
{
	bool one_piece = rig.caps->max_sge_rd == 1;

	if (sabotage_is_void("last-piece-lost", one_piece) ||
	    sabotage_is_void("swap-pieces", one_piece))
		return;
	for (uint32_t n = 1; n <= list_length(rig.caps->max_sge_rd); n = n * 2 + 1)
		list_of_rdma(IBV_WR_RDMA_READ, n);
	list_of_rdma(IBV_WR_RDMA_READ, list_length(rig.caps->max_sge_rd));
}

static void write_lists(void)
{
	list_of_rdma(IBV_WR_RDMA_WRITE, 2);
	list_of_rdma(IBV_WR_RDMA_WRITE, list_length(rig.caps->max_sge));
}

static void list_of_message(uint32_t n_send, uint32_t n_recv)
{
	struct end_attr attr = { .bytes = 32 * PAGE, .send_sge = n_send, .recv_sge = n_recv };
	static uint8_t data[LIST_MAX * 300];
	struct ibv_sge from[LIST_MAX], to[LIST_MAX];
	struct ibv_send_wr *bad, wr = { .wr_id = 1, .opcode = IBV_WR_SEND, .sg_list = from,
					.num_sge = (int)n_send, .send_flags = IBV_SEND_SIGNALED };
	struct ibv_recv_wr *bad_recv, recv = { .wr_id = RECV_ID(1), .sg_list = to,
					       .num_sge = (int)n_recv };
	uint32_t bytes, room;
	struct end *a, *b;
	struct ibv_wc wc;

	pair(&attr, &a, &b);
	bytes = make_list(a, from, n_send);
	room = make_list(b, to, n_recv);
	/* The last piece of the RECV takes what there is too much. */
	if (room < bytes)
		to[n_recv - 1] = sge_of(b, 20 * PAGE, to[n_recv - 1].length + bytes - room);
	memset(b->mem, UNTOUCHED, b->bytes);
	fill(data, bytes, 6);
	scatter(a, from, n_send, data);
	CHECK_EQ(post_recvs(b, &recv, &bad_recv), 0);
	CHECK_EQ(post(a, &wr, &bad), 0);
	CHECK_EQ(took(a, 1), IBV_WC_SUCCESS);
	CHECK_EQ(take(b, RECV_ID(1), &wc), IBV_WC_SUCCESS);
	CHECK_EQ(wc.byte_len, bytes);
	check_list(b, to, n_recv, data, bytes);
}

static void message_lists(void)
{
	uint32_t send = list_length(rig.caps->max_sge), recv = list_length(rig.caps->max_recv_sge);

	list_of_message(send, recv);
	list_of_message(1, recv);
	list_of_message(send, 1);
}

/* More pieces than the endpoint was made for are no work request. */
static void lists_have_limits(void)
{
	uint32_t n = xc_min_u32(rig.caps->max_sge, LIST_MAX - 1);
	struct end_attr attr = { .send_sge = n };
	struct ibv_sge list[LIST_MAX];
	struct ibv_send_wr *bad, wr = { .wr_id = 1, .opcode = IBV_WR_SEND, .sg_list = list,
					.num_sge = (int)n + 1,
					.send_flags = IBV_SEND_SIGNALED };
	struct end *a, *b;

	pair(&attr, &a, &b);
	for (uint32_t i = 0; i <= n; i++)
		list[i] = sge_of(a, i, 1);
	CHECK(post(a, &wr, &bad) < 0);
	CHECK(bad == &wr);
	post_recv(b, 2, 0, 64);
	post_send(a, 2, 0, 64);
	CHECK_EQ(took(a, 2), IBV_WC_SUCCESS);
	CHECK_EQ(took(b, RECV_ID(2)), IBV_WC_SUCCESS);
}

const struct test move_tests[] = {
	{ "READ of all sizes", reads, { "move-byte", "spill", "short", "drop-wc" } },
	{ "WRITE of all sizes", writes, { "move-byte", "spill", "short" } },
	{ "SEND of all sizes", sends, { "move-byte", "spill", "short" } },
	{ "READ and WRITE of nothing", without_bytes, { "refuse-nothing" } },
	{ "READ into lists", read_lists, { "last-piece-lost", "swap-pieces" } },
	{ "WRITE of lists", write_lists, { "last-piece-lost", "swap-pieces" } },
	{ "SEND and RECV of lists", message_lists, { "last-piece-lost", "swap-pieces" } },
	{ "lists have limits", lists_have_limits, { "cut-lists" } },
	{ 0 },
};
