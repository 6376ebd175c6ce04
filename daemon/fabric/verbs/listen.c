/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>

#include "common/assert.h"
#include "common/checked.h"
#include "daemon/fabric/verbs/private.h"
#include "proto/errors.h"

/*
 * A listener has an id for each address. Not one for the any-address: rdma_cm would listen on all
 * devices with it, and requests would come to an instance that does not own them.
 */

/* What the kernel queues; how many wait to be answered is the user's matter. */
#define BACKLOG 128
/* Ports tried where one must be free on several addresses. */
#define TRIES 16

static void drop_ids(struct fabric_listener *l)
{
	for (int i = 0; i < l->n; i++)
		rdma_destroy_id(l->ids[i]);
	l->n = 0;
}

static int listen_at(struct fabric_listener *l, const struct xc_addr *at)
{
	struct sockaddr_storage sa;
	struct rdma_cm_id *id;
	int v6only = 1, err;

	fabric_to_sockaddr(at, &sa);
	if (rdma_create_id(l->fabric->cm, &id, &l->target, RDMA_PS_TCP) < 0)
		return -errno;
	if (at->family == 6)
		rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, &v6only, sizeof(v6only));
	if (rdma_bind_addr(id, (struct sockaddr *)&sa) < 0 || id->verbs != l->fabric->verbs ||
	    rdma_listen(id, BACKLOG) < 0) {
		err = id->verbs && id->verbs != l->fabric->verbs ? EADDRNOTAVAIL : errno;
		rdma_destroy_id(id);
		return err == ENODEV || err == 0 ? -EADDRNOTAVAIL : -err;
	}
	l->ids[l->n++] = id;
	return 0;
}

/* The first address chooses where the port is left to us; the others must follow. */
static int listen_at_all(struct fabric_listener *l, struct xc_addr *addresses, int n)
{
	uint16_t port = l->at.port;
	int err = 0;

	for (int i = 0; i < n && !err; i++) {
		addresses[i].port = port;
		err = listen_at(l, &addresses[i]);
		if (!err)
			port = ntohs(rdma_get_src_port(l->ids[i]));
	}
	if (err)
		drop_ids(l);
	else
		l->at.port = port;
	return err;
}

static void listen_run(struct xd_job *job)
{
	struct fabric_listener *l = xc_container_of(job, struct fabric_listener, job);
	struct fabric *f = l->fabric;
	struct xc_addr addresses[VERBS_ADDRESSES_MAX] = { l->at };
	bool any = xc_addr_is_any(&l->at);
	int n = 1;

	if (any)
		n = verbs_addresses(f->verbs, f->cm, l->at.family, addresses, VERBS_ADDRESSES_MAX);
	if (n <= 0 || (!any && !verbs_owns(f->verbs, f->cm, &l->at))) {
		l->status = n < 0 ? n : -EADDRNOTAVAIL;
		return;
	}
	l->status = listen_at_all(l, addresses, n);
	for (int i = 1; i < TRIES && l->status == -EADDRINUSE && l->at.port == 0 && n > 1; i++)
		l->status = listen_at_all(l, addresses, n);
}

static void listener_gone(struct fabric_listener *l)
{
	struct fabric *f = l->fabric;

	xc_list_remove(&l->all);
	l->magic = 0;
	free(l);
	verbs_unref(f);
}

static void drop_run(struct xd_job *job)
{
	drop_ids(xc_container_of(job, struct fabric_listener, job));
}

static void drop_over(struct xd_job *job)
{
	struct fabric_listener *l = xc_container_of(job, struct fabric_listener, job);

	l->busy = false;
	if (l->freed)
		listener_gone(l);
}

static void drop(struct fabric_listener *l)
{
	const struct xd_engine_ref *e = &l->fabric->engine;

	if (l->busy)
		return; /* its job's end comes back here, or it is this already */
	l->busy = true;
	l->job.run = drop_run;
	l->job.done = drop_over;
	e->ops->help(e->engine, &l->job);
}

static void listen_over(struct xd_job *job)
{
	struct fabric_listener *l = xc_container_of(job, struct fabric_listener, job);
	struct fabric *f = l->fabric;
	struct fabric_done *done = l->done;
	int status = l->status;

	l->busy = false;
	if (status < 0) {
		f->objects--;
		verbs_conns_forget(l);
		listener_gone(l);
		done->fn(done, f->lost ? -XP_E_DEVICE : status);
		return;
	}
	l->listening = true;
	*l->ret = l;
	*l->ret_at = l->at;
	if (f->lost)
		drop(l);
	/* Requests may wait for this. */
	verbs_wake(f);
	done->fn(done, 0);
}

int verbs_listen(struct fabric *f, const struct xc_addr *at, uint32_t owner, void *ctx,
		 struct fabric_done *done, struct fabric_listener **ret, struct xc_addr *ret_at)
{
	struct xc_addr plain = fabric_plain_address(at);
	struct fabric_listener *l;

	XC_CHECK(f, VERBS_FABRIC_MAGIC);
	if (f->lost)
		return -XP_E_DEVICE;
	if (plain.family != 4 && plain.family != 6)
		return -EAFNOSUPPORT;
	if (xc_addr_is_loopback(&plain))
		return -EADDRNOTAVAIL;
	l = calloc(1, sizeof(*l));
	if (!l)
		return -ENOMEM;
	*l = (struct fabric_listener){
		.magic = VERBS_LISTENER_MAGIC, .target.kind = VERBS_TARGET_LISTENER, .fabric = f,
		.ctx = ctx, .at = plain, .busy = true, .done = done, .ret = ret, .ret_at = ret_at,
		.job = {
			.helper = XD_HELP_VERBS, .owner = owner ? owner : UINT32_MAX,
			.run = listen_run, .done = listen_over,
		},
	};
	xc_list_append(&f->listeners, &l->all);
	f->objects++;
	verbs_ref(f);
	f->engine.ops->help(f->engine.engine, &l->job);
	return -EINPROGRESS;
}

void verbs_listener_free(struct fabric_listener *l)
{
	XC_CHECK(l, VERBS_LISTENER_MAGIC);
	xc_assert(l->listening && !l->freed);
	l->freed = true;
	l->fabric->objects--;
	verbs_conns_forget(l);
	drop(l);
}

void verbs_listeners_lost(struct fabric *f)
{
	struct fabric_listener *l;

	xc_list_for_each(l, &f->listeners, all)
		if (l->listening)
			drop(l);
}
