/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * How connections begin, and how they do not.
 */
#include <errno.h>
#include <string.h>

#include "proto/errors.h"
#include "tests/fabric/rig.h"
#include "tests/fabric/sabotage.h"
#include "tests/fabric/suite.h"

/* Private data as the peer hears it: the same, or followed by zeros where the caps say so. */
static void check_data(const uint8_t *got, size_t got_bytes, const uint8_t *sent, size_t bytes)
{
	if (!rig.caps->private_data_padded)
		CHECK_EQ(got_bytes, bytes);
	CHECK(got_bytes >= bytes && (!bytes || memcmp(got, sent, bytes) == 0));
	CHECK(all_are(got + bytes, got_bytes - bytes, 0));
}

static bool is_among(uint64_t n, const uint64_t *list, size_t size)
{
	for (size_t i = 0; i < size; i++)
		if (list[i] == n)
			return true;
	return false;
}

static void caps_are_sound(void)
{
	static const uint64_t kinds[] = {
		FABRIC_IWARP_SOFT, FABRIC_IWARP, FABRIC_ROCE, FABRIC_IB,
	};
	static const uint64_t keys[] = { FABRIC_KEYS_WINDOW, FABRIC_KEYS_MR, FABRIC_KEYS_SLAB };

	for (int i = 0; i < rig.n_sides; i++) {
		const struct fabric_caps *c = rig.ops->caps(rig.sides[i].f);

		CHECK(c->name[0] && strnlen(c->name, FABRIC_NAME_MAX) < FABRIC_NAME_MAX);
		CHECK(is_among(c->kind, kinds, XC_ARRAY_SIZE(kinds)));
		CHECK(is_among(c->keys, keys, XC_ARRAY_SIZE(keys)));
		CHECK(c->max_sge && c->max_sge_rd && c->max_recv_sge);
		CHECK(c->max_send_wr >= 16 && c->max_recv_wr >= 16);
		CHECK(c->max_message_bytes >= MIB);
		/* What protocols over any transport can count on. */
		CHECK(c->private_connect_bytes >= 56);
		CHECK(c->private_accept_bytes >= 196);
		CHECK(c->private_reject_bytes >= 148);
		CHECK(c->private_connect_bytes <= FABRIC_PRIVATE_DATA_MAX);
		CHECK(c->private_accept_bytes <= FABRIC_PRIVATE_DATA_MAX);
		CHECK(c->private_reject_bytes <= FABRIC_PRIVATE_DATA_MAX);
		/* Only windows can be invalidated by a peer. */
		CHECK(!c->remote_invalidate || c->keys == FABRIC_KEYS_WINDOW);
		CHECK_EQ(fabric_snapshots(c), c->keys == FABRIC_KEYS_SLAB);
		for (size_t k = 0; k < c->n_facts; k++)
			CHECK(c->facts[k].question && c->facts[k].asked && c->facts[k].claimed &&
			      c->facts[k].seen && c->facts[k].consequence);
	}
}

/* Both sides hear what the other sent, and who it is. */
static void connects_with(size_t ask_bytes, size_t answer_bytes)
{
	uint8_t question[FABRIC_PRIVATE_DATA_MAX], answer[FABRIC_PRIVATE_DATA_MAX];
	struct end *a = end_new(rig.client, NULL), *b = end_new(rig.server, NULL);
	struct ear *ear = hear(rig.server);
	struct ask *k;

	fill(question, sizeof(question), 1);
	fill(answer, sizeof(answer), 2);
	CHECK_EQ(ask(a, &ear->at, question, ask_bytes), 0);
	k = asked(ear, 0);
	CHECK_EQ(k->peer.family, rig.client->at.family);
	if (rig.client != rig.server)
		CHECK(memcmp(k->peer.ip, rig.client->at.ip, sizeof(k->peer.ip)) == 0);
	check_data(k->private_data, k->private_bytes, question, ask_bytes);
	CHECK_EQ(a->n_established, 0);
	CHECK_EQ(accept_ask(b, k, answer, answer_bytes), 0);
	WAIT(a->n_established && b->n_established);
	CHECK_EQ(a->established, 0);
	CHECK_EQ(b->established, 0);
	check_data(a->private_data, a->private_bytes, answer, answer_bytes);
	rig_quiet();
	CHECK_EQ(ear->n_asks, 1);
	CHECK_EQ(a->n_disconnected + b->n_disconnected, 0);
}

static void connects(void)
{
	connects_with(0, 0);
	connects_with(1, 3);
}

static void takes_all_private_data(void)
{
	connects_with(rig.caps->private_connect_bytes, rig.caps->private_accept_bytes);
}

/* An end that failed to ask, or to answer, is not used up where nothing was started. */
static void takes_no_more(void)
{
	uint8_t data[FABRIC_PRIVATE_DATA_MAX + 1] = { 0 };
	struct end *a = end_new(rig.client, NULL), *b = end_new(rig.server, NULL);
	struct ear *ear = hear(rig.server);

	CHECK(ask(a, &ear->at, data, rig.caps->private_connect_bytes + 1u) < 0);
	CHECK_EQ(ask(a, &ear->at, NULL, 0), 0);
	CHECK(accept_ask(b, asked(ear, 0), data, rig.caps->private_accept_bytes + 1u) < 0);
	reject_ask(asked(ear, 0), NULL, 0);
	WAIT(a->n_established);
	CHECK_EQ(a->established, -XP_E_REJECTED);
}

static void refused_with(size_t bytes)
{
	uint8_t data[FABRIC_PRIVATE_DATA_MAX];
	struct end *a = end_new(rig.client, NULL);
	struct ear *ear = hear(rig.server);

	fill(data, sizeof(data), 3);
	post_recv(a, 1, 0, PAGE);
	CHECK_EQ(ask(a, &ear->at, NULL, 0), 0);
	reject_ask(asked(ear, 0), data, bytes);
	WAIT(a->n_established);
	CHECK_EQ(a->established, -XP_E_REJECTED);
	check_data(a->private_data, a->private_bytes, data, bytes);
	/* What was posted has flushed, or does now. */
	CHECK_EQ(took(a, RECV_ID(1)), IBV_WC_WR_FLUSH_ERR);
	rig_quiet();
	CHECK_EQ(a->n_disconnected, 0);
}

static void rejects(void)
{
	refused_with(0);
	refused_with(2);
	refused_with(rig.caps->private_reject_bytes);
}

static void nobody_listens(void)
{
	struct end *a = end_new(rig.client, NULL);
	struct ear *ear = hear(rig.server);
	struct xc_addr at = ear->at;

	/* A port that was good a moment ago. */
	stop_hearing(ear);
	rig_quiet();
	post_recv(a, 1, 0, PAGE);
	CHECK_EQ(ask(a, &at, NULL, 0), 0);
	WAIT(a->n_established);
	CHECK_EQ(a->established, -ECONNREFUSED);
	CHECK_EQ(took(a, RECV_ID(1)), IBV_WC_WR_FLUSH_ERR);
	rig_quiet();
	CHECK_EQ(a->n_disconnected, 0);
}

/* The listener has no room. How the peer learns it depends on what the wire can say. */
static void backlog_is_full(void)
{
	struct end *a = end_new(rig.client, NULL), *b = end_new(rig.client, NULL);
	struct end *c = end_new(rig.server, NULL);
	struct ear *ear = hear(rig.server);

	ear->refuse = true;
	CHECK_EQ(ask(a, &ear->at, NULL, 0), 0);
	WAIT(a->n_established);
	CHECK_EQ(ear->refused, 1);
	CHECK(a->established == -XP_E_BACKLOG || a->established == -XP_E_REJECTED);
	/* and then it has */
	ear->refuse = false;
	CHECK_EQ(ask(b, &ear->at, NULL, 0), 0);
	CHECK_EQ(accept_ask(c, asked(ear, 0), NULL, 0), 0);
	WAIT(b->n_established && c->n_established);
	CHECK_EQ(b->established, 0);
	CHECK_EQ(c->established, 0);
}

static void give_up(struct end *a, int how)
{
	switch (how) {
	case 0:
		end_error(a);
		break;
	case 1:
		end_disconnect(a);
		break;
	default:
		end_destroy(a);
	}
}

/* The request is no more, or its answer finds out. */
static void peer_gives_up(void)
{
	if (sabotage_is_void("silent-gone", !rig.caps->conn_gone))
		return;
	for (int how = 0; how < 3; how++) {
		struct end *a = end_new(rig.client, NULL), *b = end_new(rig.server, NULL);
		struct ear *ear = hear(rig.server);
		struct ask *k;

		CHECK_EQ(ask(a, &ear->at, NULL, 0), 0);
		k = asked(ear, 0);
		give_up(a, how);
		if (how < 2) {
			WAIT(a->n_established);
			CHECK_EQ(a->established, -ECONNABORTED);
		}
		if (rig.caps->conn_gone) {
			WAIT(k->gone);
			continue;
		}
		rig_quiet();
		if (accept_ask(b, k, NULL, 0) == 0) {
			WAIT(b->n_established && (b->established || b->n_disconnected));
		}
	}
}

/* An accept that fails leaves the request to be rejected. */
static void accept_fails(void)
{
	struct end *a = end_new(rig.client, NULL), *used, *peer;
	struct ear *ear = hear(rig.server);

	pair(NULL, &peer, &used);
	CHECK_EQ(ask(a, &ear->at, NULL, 0), 0);
	CHECK(accept_ask(used, asked(ear, 0), NULL, 0) < 0);
	rig_quiet();
	CHECK_EQ(a->n_established, 0);
	reject_ask(asked(ear, 0), "no", 2);
	WAIT(a->n_established);
	CHECK_EQ(a->established, -XP_E_REJECTED);
	/* The one that could not answer is as it was. */
	CHECK_EQ(peer->n_disconnected + used->n_disconnected, 0);
}

/* RECVs are there before anything of the peer's can be. */
static void recv_before_connect(void)
{
	struct end *a = end_new(rig.client, NULL), *b = end_new(rig.server, NULL);
	struct ear *ear = hear(rig.server);

	post_recv(a, 1, 0, 64);
	post_recv(b, 1, 0, 64);
	CHECK_EQ(ask(a, &ear->at, NULL, 0), 0);
	post_recv(a, 2, 64, 64);
	asked(ear, 0);
	post_recv(b, 2, 64, 64);
	CHECK_EQ(accept_ask(b, asked(ear, 0), NULL, 0), 0);
	/* iWARP: the side that connected sends first (RFC 5044, 7.1.1). */
	WAIT(a->n_established);
	CHECK_EQ(a->established, 0);
	fill(a->mem + 128, 64, 4);
	post_send(a, 5, 128, 64);
	post_send(a, 6, 128, 64);
	WAIT(b->n_established);
	fill(b->mem + 128, 64, 5);
	post_send(b, 7, 128, 64);
	CHECK_EQ(took(a, 5), IBV_WC_SUCCESS);
	CHECK_EQ(took(a, 6), IBV_WC_SUCCESS);
	CHECK_EQ(took(b, 7), IBV_WC_SUCCESS);
	CHECK_EQ(took(b, RECV_ID(1)), IBV_WC_SUCCESS);
	CHECK_EQ(took(b, RECV_ID(2)), IBV_WC_SUCCESS);
	CHECK_EQ(took(a, RECV_ID(1)), IBV_WC_SUCCESS);
	CHECK(filled(b->mem, 64, 4) && filled(b->mem + 64, 64, 4) && filled(a->mem, 64, 5));
}

static void sends_need_a_connection(void)
{
	struct end *a = end_new(rig.client, NULL);
	struct ear *ear = hear(rig.server);
	struct ibv_send_wr *bad, wr = { .wr_id = 1, .opcode = IBV_WR_SEND,
					.send_flags = IBV_SEND_SIGNALED };

	CHECK(post(a, &wr, &bad) < 0);
	CHECK(bad == &wr);
	CHECK_EQ(ask(a, &ear->at, NULL, 0), 0);
	asked(ear, 0);
	CHECK(post(a, &wr, &bad) < 0);
	rig_quiet();
	CHECK_EQ(a->wcs[0].n, 0);
}

static void an_endpoint_connects_once(void)
{
	struct end *a = end_new(rig.client, NULL), *b = end_new(rig.server, NULL);
	struct ear *ear = hear(rig.server);

	CHECK_EQ(ask(a, &ear->at, NULL, 0), 0);
	CHECK(ask(a, &ear->at, NULL, 0) < 0);
	CHECK_EQ(accept_ask(b, asked(ear, 0), NULL, 0), 0);
	WAIT(a->n_established && b->n_established);
	CHECK(ask(a, &ear->at, NULL, 0) < 0);
	end_disconnect(a);
	until_ended(a, b);
	CHECK(ask(a, &ear->at, NULL, 0) < 0);
	CHECK_EQ(ear->n_asks, 1);
}

/* A device may be connected to itself, and so may a daemon. */
static void to_oneself(void)
{
	struct end *a = end_new(rig.server, NULL), *b = end_new(rig.server, NULL);

	join(a, b);
	fill(a->mem, 100, 6);
	post_recv(b, 1, 200, 100);
	post_send(a, 1, 0, 100);
	CHECK_EQ(took(a, 1), IBV_WC_SUCCESS);
	CHECK_EQ(took(b, RECV_ID(1)), IBV_WC_SUCCESS);
	CHECK(filled(b->mem + 200, 100, 6));
}

const struct test connect_tests[] = {
	{ "caps are sound", caps_are_sound, { "odd-caps" } },
	{ "connect and accept, with private data", connects,
	  { "lose-private-data", "no-established" } },
	{ "private data to the limit", takes_all_private_data,
	  { "lose-private-data", "clamp-private-data" } },
	{ "private data beyond the limit is refused", takes_no_more, { "too-much-private-data" } },
	{ "reject, with private data", rejects, { "lose-private-data", "wrong-refusal" } },
	{ "nobody listens", nobody_listens, { "wrong-refusal", "no-established" } },
	{ "no room in the backlog", backlog_is_full, { "wrong-refusal", "deaf" } },
	{ "the peer gives up before it is answered", peer_gives_up, { "silent-gone" } },
	{ "an accept that fails leaves the request", accept_fails, { "spend-conn" } },
	{ "RECVs before connect and before accept", recv_before_connect,
	  { "early-recvs-lost", "move-byte" } },
	{ "sends need a connection", sends_need_a_connection, { "eager-send" } },
	{ "an endpoint connects once", an_endpoint_connects_once, { "reconnect" } },
	{ "connected to oneself", to_oneself, { "move-byte" } },
	{ 0 },
};
