/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Who owns an address and a port, and what becomes of requests when a listener goes.
 */
#include <errno.h>
#include <string.h>

#include "proto/errors.h"
#include "tests/fabric/rig.h"
#include "tests/fabric/suite.h"

static struct xc_addr any_address(const struct xc_addr *like, uint16_t port)
{
	return (struct xc_addr){ .family = like->family, .port = port };
}

/* The kernel may take a moment to give a port back: listener_free does not wait for that. */
static struct ear *hear_again(struct side *side, const struct xc_addr *at)
{
	uint64_t until = rig_limit();
	struct ear *ear = NULL;
	int err;

	while ((err = hear_at(side, at, &ear)) == -EADDRINUSE && engine_now(rig.engine) < until)
		rig_quiet();
	CHECK_EQ(err, 0);
	return ear;
}

static void one_owner(void)
{
	struct ear *ear = hear(rig.server), *again;
	struct xc_addr at = ear->at;

	CHECK(memcmp(at.ip, rig.server->at.ip, sizeof(at.ip)) == 0);
	CHECK_EQ(hear_at(rig.server, &at, &again), -EADDRINUSE);
	stop_hearing(ear);
	again = hear_again(rig.server, &at);
	CHECK(xc_addr_equal(&again->at, &at));
}

static void only_own_addresses(void)
{
	struct xc_addr foreign;
	struct ear *ear;

	CHECK_EQ(xc_addr_parse("192.0.2.1", 20471, &foreign), 0);
	CHECK_EQ(hear_at(rig.server, &foreign, &ear), -EADDRNOTAVAIL);
	/* Of the host, but of another device. */
	if (rig.client != rig.server) {
		foreign = rig.client->at;
		foreign.port = 20471;
		CHECK_EQ(hear_at(rig.server, &foreign, &ear), -EADDRNOTAVAIL);
	}
}

static void chooses_ports(void)
{
	struct ear *ears[8];

	for (int i = 0; i < 8; i++) {
		ears[i] = hear(rig.server);
		for (int j = 0; j < i; j++)
			CHECK(ears[j]->at.port != ears[i]->at.port);
	}
}

static void hears_at(struct ear *ear, const struct xc_addr *to)
{
	struct end *a = end_new(rig.client, NULL), *b = end_new(rig.server, NULL);
	unsigned int n = ear->n_asks;

	CHECK_EQ(ask(a, to, NULL, 0), 0);
	CHECK_EQ(accept_ask(b, asked(ear, n), NULL, 0), 0);
	WAIT(a->n_established && b->n_established);
	CHECK_EQ(a->established, 0);
	CHECK_EQ(b->established, 0);
}

static void any_is_all(void)
{
	struct xc_addr any = any_address(&rig.server->at, 0), to = rig.server->at;
	struct ear *ear, *other;

	CHECK_EQ(hear_at(rig.server, &any, &ear), 0);
	CHECK(ear->at.port != 0);
	to.port = ear->at.port;
	hears_at(ear, &to);
	/* The port is taken at each of the addresses. */
	CHECK_EQ(hear_at(rig.server, &to, &other), -EADDRINUSE);
	/* Another device's addresses are others. */
	if (rig.client != rig.server) {
		any.port = to.port;
		CHECK_EQ(hear_at(rig.client, &any, &other), 0);
		hears_at(ear, &to);
		CHECK_EQ(other->n_asks, 0);
	}
}

static void requests_outlive_their_listener(void)
{
	struct end *a = end_new(rig.client, NULL), *b = end_new(rig.client, NULL);
	struct end *c = end_new(rig.server, NULL);
	struct ear *ear = hear(rig.server);

	CHECK_EQ(ask(a, &ear->at, NULL, 0), 0);
	asked(ear, 0);
	CHECK_EQ(ask(b, &ear->at, NULL, 0), 0);
	asked(ear, 1);
	stop_hearing(ear);
	rig_quiet();
	CHECK_EQ(a->n_established + b->n_established, 0);
	CHECK_EQ(accept_ask(c, asked(ear, 0), NULL, 0), 0);
	reject_ask(asked(ear, 1), "no", 2);
	WAIT(a->n_established && b->n_established && c->n_established);
	CHECK_EQ(a->established, 0);
	CHECK_EQ(b->established, -XP_E_REJECTED);
	CHECK_EQ(c->established, 0);
}

/* Requests that arrive while the listener goes are refused, and nobody hears of them. */
static void gone_is_gone(void)
{
	struct end *a = end_new(rig.client, NULL);
	struct ear *ear = hear(rig.server);

	CHECK_EQ(ask(a, &ear->at, NULL, 0), 0);
	stop_hearing(ear);
	WAIT(a->n_established);
	CHECK(a->established < 0);
	rig_quiet();
	CHECK_EQ(ear->n_asks, 0);
}

static void routes(void)
{
	struct xc_addr to = rig.server->at, any = any_address(&to, 7);
	char why[256] = "";

	to.port = 7;
	CHECK_EQ(rig.ops->route(rig.client->f, &to, why, sizeof(why)), 0);
	CHECK(why[0] && memchr(why, 0, sizeof(why)));
	why[0] = 0;
	CHECK(rig.ops->route(rig.client->f, &any, why, sizeof(why)) < 0);
	CHECK(why[0] && memchr(why, 0, sizeof(why)));
}

const struct test listen_tests[] = {
	{ "one owner of an address and port", one_owner, { "share-port" } },
	{ "only the instance's own addresses", only_own_addresses, { "own-everything" } },
	{ "port 0 chooses", chooses_ports, { "one-port" } },
	{ "the any-address is all addresses", any_is_all, { "share-port", "wrong-port" } },
	{ "requests outlive their listener", requests_outlive_their_listener,
	  { "spend-conns", "wrong-refusal" } },
	{ "a listener that is gone hears nothing", gone_is_gone, { "keep-listener" } },
	{ "routes have reasons", routes, { "route-anywhere" } },
	{ 0 },
};
