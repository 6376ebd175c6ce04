/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "tests/fabric/rig.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/assert.h"
#include "tests/fabric/sabotage.h"

#define MS UINT64_C(1000000)
#define NOTHING_TOLD 1 /* no status is positive */
#define QPS_MAX 4096

struct rig rig;

/* By qp_num, those that are dead too. A number is used once. */
static struct end *qps[QPS_MAX];
static uint32_t last_qp_num;

/* ---- time */

bool rig_turn(uint64_t until_ns)
{
	return engine_turn(rig.engine, until_ns);
}

uint64_t rig_limit(void)
{
	return engine_now(rig.engine) + rig.limit_ms * MS;
}

void rig_quiet(void)
{
	uint64_t end = rig_limit(), until = engine_now(rig.engine) + rig.quiet_ms * MS;

	while (rig_turn(until))
		if (engine_now(rig.engine) > end)
			report_failure(__FILE__, __LINE__, "the fabric never rests");
}

void rig_over(struct fabric_done *done, int status)
{
	struct waiting *w = xc_container_of(done, struct waiting, done);

	CHECK(!w->over);
	w->over = true;
	w->status = status;
}

int rig_finish(int err, struct waiting *w)
{
	if (err != -EINPROGRESS) {
		CHECK(!w->over && err <= 0);
		return err;
	}
	CHECK(!w->over);
	WAIT(w->over);
	return w->status;
}

/* ---- events */

static struct end *told(void *ctx)
{
	struct end *e = ctx;

	CHECK(engine_in_progress(rig.engine));
	if (e->dead)
		report_failure(__FILE__, __LINE__, "an event of an endpoint that was destroyed");
	return e;
}

static void keep(uint8_t *to, size_t *to_bytes, const void *data, size_t bytes)
{
	CHECK(bytes <= FABRIC_PRIVATE_DATA_MAX);
	if (sabotaged("lose-private-data") && bytes)
		bytes--;
	if (bytes)
		memcpy(to, data, bytes);
	*to_bytes = bytes;
}

static void *connect_request(void *ctx, struct fabric_conn *conn,
			     const struct fabric_conn_info *info)
{
	struct ear *ear = ctx;
	struct ask *a;

	CHECK(engine_in_progress(rig.engine));
	if (!ear->l)
		report_failure(__FILE__, __LINE__, "a request for a listener that was freed");
	if (sabotaged("deaf"))
		return NULL;
	if (ear->refuse) {
		ear->refused++;
		return NULL;
	}
	CHECK(ear->n_asks < ASKS_MAX);
	a = &ear->asks[ear->n_asks++];
	*a = (struct ask){ .ear = ear, .conn = conn, .peer = info->peer };
	keep(a->private_data, &a->private_bytes, info->private_data, info->private_data_bytes);
	return a;
}

static void conn_gone(void *ctx)
{
	struct ask *a = ctx;

	CHECK(engine_in_progress(rig.engine));
	if (sabotaged("silent-gone"))
		return;
	CHECK(a->conn && !a->gone);
	a->conn = NULL;
	a->gone = true;
}

static void established(void *ctx, int status, const void *data, size_t bytes)
{
	struct end *e = told(ctx);

	if (sabotaged("no-established"))
		return;
	if (sabotaged("wrong-refusal") && status)
		status = -EIO;
	CHECK(e->asked && status <= 0);
	CHECK_EQ(e->n_established, 0);
	e->n_established = 1;
	e->established = status;
	keep(e->private_data, &e->private_bytes, data, bytes);
}

static void disconnected(void *ctx, int status)
{
	struct end *e = told(ctx);

	if (sabotaged("no-disconnected"))
		return;
	CHECK(e->n_established == 1 && e->established == 0);
	if (e->n_disconnected++)
		report_failure(__FILE__, __LINE__, "disconnected twice");
	if (sabotaged("disconnected-why"))
		status = status ? 0 : -EIO;
	e->disconnected = status;
	if (sabotaged("disconnected-twice"))
		disconnected(ctx, status);
}

static void region_fault(void *ctx)
{
	(void)ctx;
	report_failure(__FILE__, __LINE__, "memory vanished");
}

const struct fabric_events rig_events = {
	.connect_request = connect_request,
	.conn_gone = conn_gone,
	.established = established,
	.disconnected = disconnected,
	.region_fault = region_fault,
};

/* ---- completions */

static bool is_recv(uint64_t id)
{
	return id >> 63;
}

static void drop_first(struct ids *ids)
{
	ids->n--;
	memmove(ids->id, ids->id + 1, ids->n * sizeof(ids->id[0]));
	memmove(ids->quiet, ids->quiet + 1, ids->n * sizeof(ids->quiet[0]));
}

void rig_polled(struct fabric *f, const struct ibv_wc *wc)
{
	struct end *e = wc->qp_num < QPS_MAX ? qps[wc->qp_num] : NULL;
	int q = is_recv(wc->wr_id);
	struct ids *ids;

	if (!e || e->dead || e->side->f != f)
		report_failure(__FILE__, __LINE__, "a completion of no endpoint: qp_num %u",
			       wc->qp_num);
	ids = &e->posted[q];
	/* Those that were not to be heard of have succeeded before. */
	while (ids->n && ids->id[0] != wc->wr_id && ids->quiet[0])
		drop_first(ids);
	if (!ids->n || ids->id[0] != wc->wr_id)
		report_failure(__FILE__, __LINE__, "%s %llu completed, where %lld was due",
			       q ? "RECV" : "send", (unsigned long long)wc->wr_id << 1 >> 1,
			       ids->n ? (long long)(ids->id[0] << 1 >> 1) : -1LL);
	if (ids->quiet[0] && wc->status == IBV_WC_SUCCESS)
		report_failure(__FILE__, __LINE__, "an unsignalled send was completed");
	drop_first(ids);
	CHECK(e->wcs[q].n < QUEUED_MAX);
	e->wcs[q].wc[e->wcs[q].n++] = *wc;
}

int rig_take(const char *file, int line, struct end *e, uint64_t id, struct ibv_wc *ret)
{
	struct wcs *wcs = &e->wcs[is_recv(id)];
	const char *queue = is_recv(id) ? "RECV" : "send";
	unsigned long long n = id << 1 >> 1;
	uint64_t until = rig_limit();

	while (!wcs->n)
		if (!rig_turn(until))
			report_failure(file, line, "%s %llu does not complete", queue, n);
	if (wcs->wc[0].wr_id != id)
		report_failure(file, line, "%s %llu completed (%s), where %llu was awaited", queue,
			       (unsigned long long)wcs->wc[0].wr_id << 1 >> 1,
			       ibv_wc_status_str(wcs->wc[0].status), n);
	*ret = wcs->wc[0];
	wcs->n--;
	memmove(wcs->wc, wcs->wc + 1, wcs->n * sizeof(wcs->wc[0]));
	return ret->status;
}

/* ---- endpoints */

static uint32_t or_default(uint32_t n, uint32_t usual)
{
	return n ? n : usual;
}

static void make_endpoint(struct end *e, const struct end_attr *attr)
{
	const struct fabric_caps *caps = rig.ops->caps(e->side->f);
	struct fabric_ep_attr a = {
		.pd = e->pd, .ctx = e, .qp_num = e->qp_num,
		.max_send_wr = or_default(attr->send_wr, 16),
		.max_recv_wr = or_default(attr->recv_wr, 16),
		.max_send_sge = or_default(attr->send_sge, xc_min_u32(2, caps->max_sge)),
		.max_recv_sge = or_default(attr->recv_sge, xc_min_u32(2, caps->max_recv_sge)),
	};
	WAITING(w);

	CHECK_EQ(rig_finish(rig.ops->ep_create(e->side->f, &a, &w.done, &e->ep), &w), 0);
	CHECK(e->ep);
}

static struct end *blank(struct side *side)
{
	struct end *e = calloc(1, sizeof(*e));

	xc_assert(e && last_qp_num + 1 < QPS_MAX);
	e->side = side;
	e->qp_num = ++last_qp_num;
	e->established = e->disconnected = NOTHING_TOLD;
	qps[e->qp_num] = e;
	xc_list_append(&rig.ends, &e->link);
	return e;
}

struct end *end_new(struct side *side, const struct end_attr *attr)
{
	static const struct end_attr usual;
	struct end *e = blank(side);

	if (!attr)
		attr = &usual;
	e->bytes = attr->bytes ? attr->bytes : 16 * PAGE;
	rig_memory_new(e);
	make_endpoint(e, attr);
	return e;
}

struct end *end_twin(struct end *of)
{
	static const struct end_attr usual;
	struct end *e = blank(of->side);

	e->pd = of->pd;
	e->region = of->region;
	e->mem = of->mem;
	e->bytes = of->bytes;
	e->mr = of->mr;
	e->borrows = true;
	make_endpoint(e, &usual);
	return e;
}

void end_destroy(struct end *e)
{
	WAITING(w);

	CHECK_EQ(rig_finish(rig.ops->ep_destroy(e->ep, &w.done), &w), 0);
	e->dead = true;
	e->ep = NULL;
}

void end_error(struct end *e)
{
	e->ended_here = true;
	rig.ops->ep_error(e->ep);
}

void end_disconnect(struct end *e)
{
	e->ended_here = true;
	rig.ops->ep_disconnect(e->ep);
}

/* ---- listeners and requests */

int hear_at(struct side *side, const struct xc_addr *at, struct ear **ret)
{
	struct ear *ear = calloc(1, sizeof(*ear));
	WAITING(w);
	int err;

	xc_assert(ear);
	xc_list_init(&ear->link);
	err = rig_finish(rig.ops->listen(side->f, at, OWNER, ear, &w.done, &ear->l, &ear->at), &w);
	if (err) {
		free(ear);
		return err;
	}
	CHECK(ear->l);
	xc_list_append(&rig.ears, &ear->link);
	*ret = ear;
	return 0;
}

struct ear *hear(struct side *side)
{
	struct xc_addr at = side->at;
	struct ear *ear;

	at.port = 0;
	CHECK_EQ(hear_at(side, &at, &ear), 0);
	CHECK(ear->at.port != 0);
	return ear;
}

void stop_hearing(struct ear *ear)
{
	rig.ops->listener_free(ear->l);
	ear->l = NULL;
	xc_list_remove(&ear->link);
	xc_list_append(&rig.retired, &ear->link);
}

int ask(struct end *e, const struct xc_addr *dst, const void *private_data, size_t bytes)
{
	int err = rig.ops->ep_connect(e->ep, dst, private_data, bytes);

	CHECK(err <= 0);
	e->asked = e->asked || !err;
	return err;
}

struct ask *asked(struct ear *ear, unsigned int nth)
{
	WAIT(ear->n_asks > nth);
	return &ear->asks[nth];
}

int accept_ask(struct end *e, struct ask *a, const void *private_data, size_t bytes)
{
	bool asked_before = e->asked;
	int err;

	CHECK(a->conn);
	e->asked = true;
	err = rig.ops->ep_accept(e->ep, a->conn, private_data, bytes);
	CHECK(err <= 0);
	if (err)
		e->asked = asked_before;
	else
		a->conn = NULL;
	return err;
}

void reject_ask(struct ask *a, const void *private_data, size_t bytes)
{
	struct fabric_conn *conn = a->conn;

	CHECK(conn);
	a->conn = NULL;
	rig.ops->conn_reject(conn, private_data, bytes);
}

void join(struct end *a, struct end *b)
{
	struct ear *ear = hear(b->side);

	CHECK_EQ(ask(a, &ear->at, NULL, 0), 0);
	CHECK_EQ(accept_ask(b, asked(ear, 0), NULL, 0), 0);
	WAIT(a->n_established && b->n_established);
	CHECK_EQ(a->established, 0);
	CHECK_EQ(b->established, 0);
	stop_hearing(ear);
}

void pair(const struct end_attr *attr, struct end **ret_a, struct end **ret_b)
{
	*ret_a = end_new(rig.client, attr);
	*ret_b = end_new(rig.server, attr);
	join(*ret_a, *ret_b);
}

void until_ended(struct end *a, struct end *b)
{
	WAIT(a->n_disconnected && b->n_disconnected);
}

/* ---- the end of a test */

static void answer_all(struct xc_list *ears)
{
	struct ear *ear;

	xc_list_for_each(ear, ears, link)
		for (unsigned int i = 0; i < ear->n_asks; i++)
			if (ear->asks[i].conn)
				reject_ask(&ear->asks[i], NULL, 0);
}

static void clean_ears(void)
{
	struct xc_list *l;

	answer_all(&rig.ears);
	answer_all(&rig.retired);
	while (!xc_list_empty(&rig.ears))
		stop_hearing(xc_container_of(rig.ears.next, struct ear, link));
	/* No event of them comes any more. */
	rig_quiet();
	while ((l = xc_list_pop(&rig.retired)))
		free(xc_container_of(l, struct ear, link));
}

static void end_all(void)
{
	struct end *e;

	xc_list_for_each(e, &rig.ends, link)
		if (e->ep)
			end_error(e);
	xc_list_for_each(e, &rig.ends, link)
		if (e->ep)
			end_destroy(e);
}

static void free_ends(void)
{
	struct xc_list *l;

	while ((l = rig.ends.prev) != &rig.ends) { /* those that borrow come after their lender */
		struct end *e = xc_container_of(l, struct end, link);

		xc_list_remove(l);
		if (!e->borrows)
			rig_memory_free(e);
		qps[e->qp_num] = NULL;
		free(e);
	}
}

void rig_clean(void)
{
	/* Some devices wait for an answer before they let go of who asked. */
	answer_all(&rig.ears);
	answer_all(&rig.retired);
	end_all();
	clean_ears();
	rig_exposures_free();
	free_ends();
}
