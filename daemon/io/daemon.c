/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "daemon/io/daemon.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <uv.h>

#include "common/cleanup.h"
#include "daemon/fabric/iwarp/iwarp.h"
#include "daemon/fabric/iwarp/profile.h"
#include "daemon/fabric/region.h"
#include "daemon/io/config.h"
#include "daemon/io/devices.h"
#include "daemon/io/engine.h"
#include "daemon/io/listener.h"
#include "daemon/io/log.h"
#include "daemon/io/notify.h"
#include "daemon/io/process.h"
#include "daemon/io/profile.h"
#include "daemon/io/server.h"
#include "daemon/io/sockpath.h"

#ifndef XD_SYSCONFDIR
#define XD_SYSCONFDIR "/etc"
#endif
#define MS UINT64_C(1000000)
/* While it drains, how often it is looked whether all is done. */
#define DRAIN_LOOK_NS (10 * MS)
/* Beyond the drain time: for teardown, and for sockets of clients to be closed. */
#define DRAIN_GRACE_NS (2000 * MS)
#define JOBS_WAIT_MS 1000

const char *const xd_config_default = XD_SYSCONFDIR "/rdmaxferd/rdmaxferd.conf";

enum signals { TERM, INT, HUP, SIGNALS };
static const int signal_numbers[SIGNALS] = { SIGTERM, SIGINT, SIGHUP };

struct daemon {
	const struct xd_daemon_options *options;
	struct xd_logger *logger;
	struct xd_policy *policy;
	struct xd_iwarp_policy iwarp; /* what the fabric was opened with */
	struct xd_engine *engine;
	struct xd_core *core;
	struct xd_server *server;
	struct xd_sockpath client_sock, admin_sock;
	struct xd_listener *client, *admin;
	struct xd_devices devices;
	struct xd_notify notify;
	uv_signal_t signals[SIGNALS];
	bool has_signals;
	bool serving, draining, at_once;
	struct xd_timer drain;
	uint64_t drain_until_ns;
};

/* ---- the configuration */

/* Each line of a text is an entry. */
static void log_lines(struct xd_logger *l, char *lines)
{
	char *rest = lines, *line;

	while ((line = strsep(&rest, "\n"))) {
		if (*line)
			xd_logger_say(l, XD_ERR, "%s", line);
	}
}

static int load_policy(const struct xd_daemon_options *o, struct xd_logger *l,
		       struct xd_policy **ret)
{
	struct xd_policy *policy = calloc(1, sizeof(*policy));
	xc_auto_free char *errors = NULL;
	int r;

	if (!policy)
		return -ENOMEM;
	r = xd_config_load(o->config ? o->config : xd_config_default, o->config != NULL, policy,
			   &errors);
	if (r < 0) {
		if (errors)
			log_lines(l, errors);
		else
			xd_logger_say(l, XD_ERR, "The configuration cannot be read: %s",
				      strerror(-r));
		xd_policy_done(policy);
		free(policy);
		return r;
	}
	*ret = policy;
	return 0;
}

static void policy_free(struct xd_policy *policy)
{
	if (policy)
		xd_policy_done(policy);
	free(policy);
}

static bool iwarp_differs(const struct xd_iwarp_policy *a, const struct xd_iwarp_policy *b)
{
	return a->crc != b->crc || a->shortcut != b->shortcut || a->ird != b->ird ||
	       a->ord != b->ord || a->handshakes != b->handshakes ||
	       a->handshakes_per_host != b->handshakes_per_host ||
	       strcmp(a->profile, b->profile) != 0;
}

static void reload(struct daemon *d)
{
	struct xd_policy *policy = NULL, *old = d->policy;

	if (d->serving)
		xd_notify_reloading(&d->notify);
	if (load_policy(d->options, d->logger, &policy) == 0) {
		d->policy = policy;
		d->server->policy = policy;
		xd_core_set_policy(d->core, policy);
		policy_free(old);
		xd_logger_say(d->logger, XD_NOTICE, "The configuration was read again.");
		if (iwarp_differs(&policy->iwarp, &d->iwarp))
			xd_logger_say(d->logger, XD_WARNING,
				      "It has other settings of device \"iwarp\": these hold from "
				      "the next start.");
	} else {
		xd_logger_say(d->logger, XD_ERR, "The configuration stays as it was.");
	}
	if (d->serving)
		xd_notify_reloaded(&d->notify);
}

/* ---- the end */

static void drain_look(struct xd_timer *t)
{
	struct daemon *d = xc_container_of(t, struct daemon, drain);
	uint64_t now = xd_engine_ops.now_ns(d->engine);

	if ((xd_core_idle(d->core) && xd_server_idle(d->server)) || now >= d->drain_until_ns)
		xd_engine_stop(d->engine);
	else
		xd_engine_ops.arm(d->engine, t, now + DRAIN_LOOK_NS);
}

static void close_listeners(struct daemon *d)
{
	if (d->client)
		xd_listener_close(d->client);
	if (d->admin)
		xd_listener_close(d->admin);
	d->client = d->admin = NULL;
}

static void drain(struct daemon *d)
{
	uint64_t now = xd_engine_ops.now_ns(d->engine);

	if (d->draining) {
		xd_logger_say(d->logger, XD_WARNING, "Asked again: stopping at once.");
		d->at_once = true;
		xd_engine_stop(d->engine);
		return;
	}
	d->draining = true;
	xd_logger_say(d->logger, XD_NOTICE, "Stopping: waiting for transfers to end.");
	xd_notify_stopping(&d->notify);
	close_listeners(d);
	xd_core_drain(d->core);
	d->drain_until_ns = now + d->policy->drain_ms * MS + DRAIN_GRACE_NS;
	d->drain.fired = drain_look;
	xd_engine_ops.arm(d->engine, &d->drain, now);
}

static void signal_cb(uv_signal_t *handle, int number)
{
	struct daemon *d = handle->data;

	if (number == SIGHUP)
		reload(d);
	else
		drain(d);
}

/* ---- the start */

static int fail(struct daemon *d, const char *what, int r)
{
	xd_logger_say(d->logger, XD_ERR, "%s: %s", what, strerror(-r));
	return r;
}

static int open_fabrics(struct daemon *d, const struct xd_engine_ref *ref)
{
	const struct xd_iwarp_policy *p = &d->policy->iwarp;
	const struct iwarp_options options = {
		.crc = p->crc,
		.no_shortcut = !p->shortcut,
		.ird = (uint16_t)p->ird,
		.ord = (uint16_t)p->ord,
		.profile = iwarp_profile_find(p->profile),
		.stall_ms = d->policy->progress_ms,
		.handshakes = p->handshakes,
		.handshakes_per_host = p->handshakes_per_host,
	};
	struct fabric_ref fabric = { .ops = &iwarp_fabric_ops };
	int r;

	r = fabric_guard_init();
	if (r < 0)
		return fail(d, "The guard against vanished client memory cannot be set up", r);
	d->iwarp = *p;
	xd_core_set_likeness(d->core, xd_profile_caps);
	r = iwarp_fabric_open(&options, ref, xd_core_fabric_events(), &fabric.fabric);
	if (r < 0)
		return fail(d, "The iwarp fabric cannot be opened", r);
	r = xd_core_add_fabric(d->core, &fabric);
	if (r < 0) {
		fabric.ops->close(fabric.fabric);
		return fail(d, "The iwarp fabric cannot be used", r);
	}
	/* Until that is over, and where it fails, the ways are taken in the order of the ladder. */
	(void)xd_core_measure(d->core, 0);
	return 0;
}

/* Clients wait in the sockets' backlogs meanwhile. */
static int open_devices(struct daemon *d)
{
	uint64_t pinned = xd_policy_total(d->policy, XD_LIMIT_pinned);
	int r;

	if (d->options->no_devices)
		return 0;
	r = xd_devices_start(&d->devices, d->engine, d->core, d->logger, d->options->state_dir,
			     pinned);
	if (r < 0)
		return fail(d, "Devices cannot be looked for", r);
	xd_devices_wait(&d->devices, &d->draining);
	return 0;
}

/* A socket with a path, unless systemd passed one and none was asked for. */
static int open_socket(struct daemon *d, const char *kind, const char *group, const char *wanted,
		       struct xd_sockpath *sock)
{
	char path[XD_SOCKPATH_MAX], why[XD_SOCKPATH_WHY_MAX];
	int r = 0;

	if (sock->fd >= 0 && !wanted)
		return 0;
	xd_sockpath_close(sock);
	if (!wanted) {
		r = xd_sockpath_default(kind, path, why);
		wanted = path;
	}
	if (r == 0)
		r = xd_sockpath_open(wanted, group, sock, why);
	if (r < 0)
		xd_logger_say(d->logger, XD_ERR, "The %s socket: %s.", kind, why);
	else
		xd_logger_say(d->logger, XD_INFO, "Listening at %s (%s socket).", sock->path, kind);
	return r;
}

static int open_sockets(struct daemon *d)
{
	char why[XD_SOCKPATH_WHY_MAX];
	int r = xd_sockpath_inherit(&d->client_sock, &d->admin_sock, why);

	if (r < 0) {
		xd_logger_say(d->logger, XD_ERR, "Socket activation: %s.", why);
		return r;
	}
	r = open_socket(d, "client", XD_CLIENT_GROUP, d->options->socket, &d->client_sock);
	if (r == 0)
		r = open_socket(d, "admin", XD_ADMIN_GROUP, d->options->admin_socket,
				&d->admin_sock);
	return r;
}

static int listen_at(struct daemon *d, struct xd_sockpath *sock, bool admin,
		     struct xd_listener **ret)
{
	int r = xd_listener_new(d->server, sock, admin, ret);

	if (r == 0)
		sock->fd = sock->lock_fd = -1;
	return r;
}

static int watch_signals(struct daemon *d)
{
	struct uv_loop_s *loop = xd_engine_loop(d->engine);
	int r;

	for (int i = 0; i < SIGNALS; i++) {
		uv_signal_init(loop, &d->signals[i]);
		d->signals[i].data = d;
	}
	d->has_signals = true;
	for (int i = 0; i < SIGNALS; i++) {
		r = uv_signal_start(&d->signals[i], signal_cb, signal_numbers[i]);
		if (r < 0)
			return fail(d, "Signals cannot be watched", r);
	}
	return 0;
}

static int start(struct daemon *d)
{
	struct xd_engine_ref ref;
	int r;

	r = xd_engine_new(d->logger, &d->engine);
	if (r < 0)
		return fail(d, "The engine cannot be made", r);
	ref = xd_engine_ref(d->engine);
	r = xd_core_new(&ref, d->policy, &d->core);
	if (r < 0)
		return fail(d, "The core cannot be made", r);
	r = open_fabrics(d, &ref);
	if (r < 0)
		return r;
	r = xd_engine_attach(d->engine, d->core);
	if (r < 0)
		return fail(d, "The fabrics cannot be waited for", r);
	r = xd_server_new(d->engine, d->core, d->policy, d->logger, &d->server);
	if (r < 0)
		return fail(d, "The server cannot be made", r);
	r = watch_signals(d);
	if (r == 0)
		r = open_devices(d);
	if (d->draining)
		return 0;
	if (r == 0)
		r = listen_at(d, &d->client_sock, false, &d->client);
	if (r == 0)
		r = listen_at(d, &d->admin_sock, true, &d->admin);
	return r;
}

static void stop_signals(struct daemon *d)
{
	for (int i = 0; d->has_signals && i < SIGNALS; i++)
		uv_close((uv_handle_t *)&d->signals[i], NULL);
}

/*
 * In the order of use. False: something is still held, by a client's transfer or by a thread that
 * blocks, and must not be taken from under it.
 */
static bool tear_down(struct daemon *d)
{
	bool idle;

	close_listeners(d);
	xd_sockpath_close(&d->client_sock);
	xd_sockpath_close(&d->admin_sock);
	if (!d->engine)
		return true;
	stop_signals(d);
	xd_notify_done(&d->notify);
	xd_engine_ops.disarm(d->engine, &d->drain);
	/* Listeners and signals are let go by callbacks of the loop. */
	xd_engine_turn(d->engine, false);
	idle = !d->core || (xd_core_idle(d->core) && (!d->server || xd_server_idle(d->server)));
	if (!idle)
		return false;
	xd_devices_stop(&d->devices);
	xd_engine_attach(d->engine, NULL);
	xd_server_free(d->server);
	if (d->core)
		xd_core_free(d->core);
	return xd_engine_free(d->engine, JOBS_WAIT_MS);
}

enum xd_exit xd_daemon_run(const struct xd_daemon_options *options, bool *ret_stuck)
{
	struct daemon *d = calloc(1, sizeof(*d));
	enum xd_exit status = XD_EXIT_FAILURE;
	int r;

	*ret_stuck = false;
	if (!d || xd_logger_new(XD_LOG_AUTO, &d->logger) < 0) {
		free(d);
		fputs("rdmaxferd: out of memory\n", stderr);
		return XD_EXIT_FAILURE;
	}
	d->options = options;
	d->client_sock.fd = d->client_sock.lock_fd = -1;
	d->admin_sock.fd = d->admin_sock.lock_fd = -1;
	xd_process_prepare(d->logger);
	r = load_policy(options, d->logger, &d->policy);
	if (r < 0) {
		status = XD_EXIT_USAGE;
	} else if (xd_process_state_dir(d->logger, options->state_dir) == 0 &&
		   open_sockets(d) == 0 && start(d) == 0) {
		/* It may have been told to stop while it examined devices. */
		d->serving = !d->draining;
		if (d->serving) {
			xd_notify_ready(&d->notify, d->engine, d->core);
			xd_engine_run(d->engine);
		}
		status = XD_EXIT_OK;
	}
	if (!tear_down(d)) {
		if (status == XD_EXIT_OK)
			xd_logger_say(d->logger, XD_WARNING, "Stopped with work left%s.",
				      d->at_once ? ", as asked" : "");
		*ret_stuck = true;
		return status;
	}
	policy_free(d->policy);
	xd_logger_free(d->logger);
	free(d);
	return status;
}

enum xd_exit xd_daemon_check_config(const struct xd_daemon_options *options)
{
	struct xd_policy *policy = NULL;
	struct xd_logger *logger;

	if (xd_logger_new(XD_LOG_PLAIN, &logger) < 0)
		return XD_EXIT_FAILURE;
	if (load_policy(options, logger, &policy) < 0) {
		xd_logger_free(logger);
		return XD_EXIT_USAGE;
	}
	policy_free(policy);
	xd_logger_free(logger);
	return XD_EXIT_OK;
}
