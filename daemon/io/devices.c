/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "daemon/io/devices.h"

#include "daemon/fabric/verbs/verbs.h"
#include "daemon/io/log.h"

/* Then the daemon serves without those that are not ready. */
#define WAIT_NS (UINT64_C(15) * 1000 * 1000 * 1000)

static void waited(struct xd_timer *t)
{
	struct xd_devices *d = xc_container_of(t, struct xd_devices, patience);

	xd_logger_say(d->logger, XD_WARNING,
		      "Not all devices are ready yet: serving without those.");
	d->over = true;
}

static void opened(void *ctx, struct fabric *f)
{
	struct xd_devices *d = ctx;
	struct fabric_ref ref = { .fabric = f, .ops = &verbs_fabric_ops };
	const struct fabric_caps *caps = verbs_fabric_ops.caps(f);
	int r = xd_core_add_fabric(d->core, &ref);

	if (r < 0) {
		xd_logger_say(d->logger, XD_WARNING,
			      "The device %s is not used: there are %d fabrics already.",
			      caps->name, XD_FABRICS_MAX);
		verbs_fabric_ops.close(f);
		return;
	}
	r = xd_engine_watch(d->engine);
	if (r < 0)
		xd_logger_say(d->logger, XD_ERR, "The device %s cannot be waited for: error %d.",
			      caps->name, -r);
}

static void finished(void *ctx)
{
	struct xd_devices *d = ctx;

	d->over = true;
}

int xd_devices_start(struct xd_devices *d, struct xd_engine *engine, struct xd_core *core,
		     struct xd_logger *logger, const char *state_dir, uint64_t pinned_bytes)
{
	static const struct verbs_sink sink = { .opened = opened, .finished = finished };
	const struct verbs_options options = {
		.state_dir = state_dir,
		.pinned_bytes = pinned_bytes,
	};
	const struct xd_engine_ref ref = xd_engine_ref(engine);

	*d = (struct xd_devices){
		.engine = engine,
		.core = core,
		.logger = logger,
		.patience.fired = waited,
	};
	return verbs_discover(&options, &ref, xd_core_fabric_events(), &sink, d, &d->discovery);
}

void xd_devices_wait(struct xd_devices *d, const bool *stop)
{
	xd_engine_ops.arm(d->engine, &d->patience, xd_engine_ops.now_ns(d->engine) + WAIT_NS);
	while (!d->over && !*stop)
		xd_engine_turn(d->engine, true);
	xd_engine_ops.disarm(d->engine, &d->patience);
}

void xd_devices_stop(struct xd_devices *d)
{
	if (d->discovery)
		verbs_discovery_stop(d->discovery);
	d->discovery = NULL;
}
