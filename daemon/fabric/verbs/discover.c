/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* strerrordesc_np(): strerror(3) is not for threads */
#define _GNU_SOURCE 1
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/assert.h"
#include "common/checked.h"
#include "common/cleanup.h"
#include "daemon/fabric/verbs/private.h"

/*
 * Finding devices and opening them. First one job looks at the host and has librdmacm open all
 * devices; then each has a job of its own, which examines it (or finds in the cache what an earlier
 * daemon saw) and makes an instance.
 */

#define SYS "/sys/class/infiniband_verbs"
#define DEV "/dev/infiniband"
/* A second does, where nothing else goes on. A question that finds no answer costs trust. */
#define SELFTEST_MS 30000

struct verbs_discovery {
	struct xd_engine_ref engine;
	struct fabric_events events;
	struct verbs_options options;
	struct verbs_sink sink;
	void *ctx;
	bool stopped;  /* nobody listens any more */
	bool finished;
	int pending;   /* jobs */

	struct xd_job job; /* of the look at the host */
	struct verbs_host host;
	struct verbs_remark remark;
	struct ibv_context **devices;
	int n_devices;
};

struct opening {
	struct xd_job job;
	struct verbs_discovery *discovery;
	struct ibv_context *verbs;
	struct fabric *fabric;
	bool examined; /* anew, and not from the cache */
	uint32_t duration_ms;
	char why[160]; /* where fabric is NULL */
	char remark[160]; /* a mishap that keeps nothing from working, or "" */
};

/* ---- a device, on a helper */

static const char *words(int err)
{
	const char *text = strerrordesc_np(err);

	return text ? text : "failed";
}

static void known_driver(const char *node_desc, const char **ret)
{
	/* These have no hardware, hence no link to a driver; this they say of themselves. */
	static const struct {
		const char *desc, *driver;
	} software[] = {
		{ "rxe", "rxe" },
		{ "Software iWARP stack", "siw" },
	};

	for (size_t i = 0; i < XC_ARRAY_SIZE(software); i++) {
		if (strcmp(node_desc, software[i].desc) == 0)
			*ret = software[i].driver;
	}
}

static void read_line(const char *path, char *ret, size_t size)
{
	FILE *f = fopen(path, "re");

	ret[0] = '\0';
	if (!f)
		return;
	if (!fgets(ret, (int)size, f))
		ret[0] = '\0';
	ret[strcspn(ret, "\n")] = '\0';
	fclose(f);
}

/* The kernel driver's name: of hardware, what its device in /sys is bound to. */
static void find_driver(const struct ibv_device *device, char ret[static FABRIC_NAME_MAX])
{
	char path[IBV_SYSFS_PATH_MAX + 32], target[PATH_MAX], desc[65];
	const char *name = "";
	ssize_t n;

	snprintf(path, sizeof(path), "%s/device/driver", device->ibdev_path);
	n = readlink(path, target, sizeof(target) - 1);
	if (n > 0) {
		target[n] = '\0';
		name = strrchr(target, '/');
		name = name ? name + 1 : target;
	} else {
		snprintf(path, sizeof(path), "%s/node_desc", device->ibdev_path);
		read_line(path, desc, sizeof(desc));
		known_driver(desc, &name);
	}
	snprintf(ret, FABRIC_NAME_MAX, "%.63s", name);
}

static uint32_t at_least_1(int n)
{
	return n > 0 ? (uint32_t)n : 1;
}

static void fill_caps(struct verbs_prepared *p, const struct ibv_device_attr *device,
		      const struct ibv_port_attr *port)
{
	struct fabric_caps *c = &p->caps;
	uint32_t max_wr = xc_min_u32(at_least_1(device->max_qp_wr), VERBS_MAX_WR);

	snprintf(c->name, sizeof(c->name), "%s", ibv_get_device_name(p->verbs->device));
	c->kind = p->iwarp ? FABRIC_IWARP : p->infiniband ? FABRIC_IB : FABRIC_ROCE;
	c->max_sge = c->max_recv_sge = at_least_1(device->max_sge);
	c->max_sge_rd = at_least_1(device->max_sge_rd);
	/* A CQ has an entry for each of both. */
	c->max_send_wr = xc_min_u32(max_wr, at_least_1(device->max_cqe / 2));
	c->max_recv_wr = c->max_send_wr;
	/*
	 * rxe takes longer messages than its 8 MiB and does not check. Lengths in work requests
	 * and completions have 32 bits.
	 */
	c->max_message_bytes = port->max_msg_sz ? port->max_msg_sz : 1u << 30;
	c->private_connect_bytes = VERBS_CONNECT_BYTES;
	c->private_accept_bytes = VERBS_ACCEPT_BYTES;
	c->private_reject_bytes = VERBS_REJECT_BYTES;
	c->pins = true;
}

static int query(struct verbs_prepared *p, char *why, size_t size)
{
	struct ibv_device_attr device;
	struct ibv_port_attr port;
	int err = ibv_query_device(p->verbs, &device);

	if (!err)
		err = ibv_query_port(p->verbs, p->port, &port);
	if (err) {
		snprintf(why, size, "its attributes cannot be read: %s", words(err));
		return -err;
	}
	p->iwarp = p->verbs->device->transport_type == IBV_TRANSPORT_IWARP;
	p->infiniband = !p->iwarp && port.link_layer != IBV_LINK_LAYER_ETHERNET;
	p->rd_atomic = (uint8_t)xc_min_u32(
		xc_min_u32(at_least_1(device.max_qp_rd_atom),
			   at_least_1(device.max_qp_init_rd_atom)),
		VERBS_RD_ATOMIC_MAX);
	fill_caps(p, &device, &port);
	return 0;
}

/* An address of the device, and the port that has it. */
static int find_address(struct verbs_prepared *p, char *why, size_t size)
{
	struct rdma_event_channel *cm = rdma_create_event_channel();
	struct sockaddr_storage sa;
	struct rdma_cm_id *id;
	int n;

	if (!cm) {
		snprintf(why, size, "the connection manager cannot be reached: %s",
			 words(errno));
		return -errno;
	}
	n = verbs_addresses(p->verbs, cm, 0, &p->address, 1);
	if (n == 1 && rdma_create_id(cm, &id, NULL, RDMA_PS_TCP) == 0) {
		fabric_to_sockaddr(&p->address, &sa);
		p->port = 1;
		if (rdma_bind_addr(id, (struct sockaddr *)&sa) == 0 && id->port_num)
			p->port = id->port_num;
		rdma_destroy_id(id);
	}
	rdma_destroy_event_channel(cm);
	if (n == 1)
		return 0;
	snprintf(why, size,
		 "its network interface has no IP address, or is down; connections need one");
	return -EADDRNOTAVAIL;
}

/* What an earlier daemon saw holds until device, driver, kernel or library change. */
static int examine(struct opening *o, struct verbs_prepared *p)
{
	const struct verbs_options *options = &o->discovery->options;
	struct verbs_identity *identity = &p->keep.identity;
	struct verbs_findings *findings = &p->keep.findings;
	bool keep;
	int err;

	snprintf(identity->driver, sizeof(identity->driver), "%s", p->caps.driver);
	keep = options->state_dir && verbs_identity_read(p->verbs, identity) == 0;
	if (keep)
		snprintf(p->keep.state_dir, sizeof(p->keep.state_dir), "%s", options->state_dir);
	if (keep && verbs_cache_load(options->state_dir, identity, findings) == 0)
		return 0;
	err = verbs_selftest(p->verbs, &p->address, options->selftest_ms, findings);
	o->examined = true;
	o->duration_ms = findings->duration_ms;
	if (err < 0) {
		snprintf(o->why, sizeof(o->why), "it cannot connect to itself: %s",
			 words(-err));
		return err;
	}
	if (!keep)
		return 0;
	err = verbs_cache_store(options->state_dir, identity, findings);
	if (err < 0 && err != -EAGAIN)
		snprintf(o->remark, sizeof(o->remark),
			 "What was seen of it cannot be kept in the state directory: %s.",
			 words(-err));
	return 0;
}

static void open_run(struct xd_job *job)
{
	struct opening *o = xc_container_of(job, struct opening, job);
	struct verbs_prepared *p = calloc(1, sizeof(*p));
	int err;

	if (!p) {
		snprintf(o->why, sizeof(o->why), "no memory");
		return;
	}
	p->verbs = o->verbs;
	err = find_address(p, o->why, sizeof(o->why));
	if (!err)
		err = query(p, o->why, sizeof(o->why));
	if (!err) {
		find_driver(p->verbs->device, p->caps.driver);
		err = verbs_claims_read(p->verbs, &p->claims);
		snprintf(p->claims.driver, sizeof(p->claims.driver), "%s", p->caps.driver);
	}
	if (!err)
		err = examine(o, p);
	if (!err)
		err = verbs_open(p, &o->fabric);
	free(p);
	if (err == -EOPNOTSUPP)
		snprintf(o->why, sizeof(o->why),
			 "it does not keep a peer within registered memory and its protection "
			 "domain, or did not answer whether it does");
	else if (err && !o->why[0])
		snprintf(o->why, sizeof(o->why), "opening it failed: %s",
			 words(-err));
}

/* ---- on the engine's thread */

static void job_over(struct verbs_discovery *d)
{
	if (--d->pending)
		return;
	if (d->stopped) {
		free(d);
		return;
	}
	d->finished = true;
	d->sink.finished(d->ctx);
}

static void say_opened(struct verbs_discovery *d, const struct opening *o)
{
	static const char *const keys[] = {
		[FABRIC_KEYS_WINDOW] = "a window per grant",
		[FABRIC_KEYS_MR] = "a registration per grant",
		[FABRIC_KEYS_SLAB] = "copies: it does not protect registered memory",
	};
	const struct fabric_caps *c = &o->fabric->caps;
	const struct xd_log about = { .priority = XD_INFO, .device = c->name };
	char how[64] = "as an earlier daemon saw it";

	if (o->examined)
		snprintf(how, sizeof(how), "examined in %u ms", o->duration_ms);
	d->engine.ops->log(d->engine.engine, &about, "The device %s (%s) is used, by %s (%s).",
			   c->name, c->driver[0] ? c->driver : "driver unknown", keys[c->keys],
			   how);
	if (o->remark[0])
		d->engine.ops->log(d->engine.engine, &about, "The device %s: %s", c->name,
				   o->remark);
}

static void open_over(struct xd_job *job)
{
	struct opening *o = xc_container_of(job, struct opening, job);
	struct verbs_discovery *d = o->discovery;
	const char *name = ibv_get_device_name(o->verbs->device);
	const struct xd_log refused = { .priority = XD_NOTICE, .device = name };

	if (!o->fabric) {
		if (!d->stopped)
			d->engine.ops->log(d->engine.engine, &refused,
					   "The device %s is not used: %s.", name, o->why);
	} else if (d->stopped) {
		verbs_close(o->fabric);
	} else {
		verbs_start(o->fabric, &d->engine, &d->events);
		say_opened(d, o);
		d->sink.opened(d->ctx, o->fabric);
	}
	free(o);
	job_over(d);
}

static void open_device(struct verbs_discovery *d, struct ibv_context *verbs)
{
	const char *wanted = d->options.device;
	struct opening *o;

	if (wanted && strcmp(wanted, ibv_get_device_name(verbs->device)) != 0)
		return;
	o = calloc(1, sizeof(*o));
	if (!o)
		return;
	*o = (struct opening){
		.discovery = d, .verbs = verbs,
		.job = { .helper = XD_HELP_DEVICES, .run = open_run, .done = open_over },
	};
	d->pending++;
	d->engine.ops->help(d->engine.engine, &o->job);
}

static void look_run(struct xd_job *job)
{
	struct verbs_discovery *d = xc_container_of(job, struct verbs_discovery, job);

	verbs_host_look(d->options.sys, d->options.dev, &d->host);
	verbs_host_remark(&d->host, d->options.pinned_bytes, &d->remark);
	/* librdmacm waits for files that are missing, and says less of why. */
	if (!d->remark.refuses)
		d->devices = rdma_get_devices(&d->n_devices);
}

static void look_over(struct xd_job *job)
{
	struct verbs_discovery *d = xc_container_of(job, struct verbs_discovery, job);
	const struct xd_log about = { .priority = d->remark.priority };

	if (d->remark.text[0] && !d->stopped)
		d->engine.ops->log(d->engine.engine, &about, "%s", d->remark.text);
	for (int i = 0; i < d->n_devices && !d->stopped; i++)
		open_device(d, d->devices[i]);
	/* Not rdma_free_devices(): the list is what keeps librdmacm from closing them. */
	free(d->devices);
	job_over(d);
}

int verbs_discover(const struct verbs_options *options, const struct xd_engine_ref *engine,
		   const struct fabric_events *events, const struct verbs_sink *sink, void *ctx,
		   struct verbs_discovery **ret)
{
	struct verbs_discovery *d = calloc(1, sizeof(*d));

	if (!d)
		return -ENOMEM;
	*d = (struct verbs_discovery){
		.engine = *engine, .events = *events, .options = *options, .sink = *sink,
		.ctx = ctx, .pending = 1,
		.job = { .helper = XD_HELP_DEVICES, .run = look_run, .done = look_over },
	};
	d->options.sys = options->sys ? options->sys : SYS;
	d->options.dev = options->dev ? options->dev : DEV;
	d->options.selftest_ms = options->selftest_ms ? options->selftest_ms : SELFTEST_MS;
	*ret = d;
	engine->ops->help(engine->engine, &d->job);
	return 0;
}

void verbs_discovery_stop(struct verbs_discovery *d)
{
	d->stopped = true;
	if (d->finished)
		free(d);
}
