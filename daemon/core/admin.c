/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/core/endpoint.h"

/* What an administrator may do to others. */

static bool to_number(const char *text, uint64_t *ret)
{
	char *end;

	if (*text < '0' || *text > '9')
		return false;
	errno = 0;
	*ret = strtoull(text, &end, 10);
	return *end == '\0' && errno == 0;
}

static struct xd_session *find_session(const struct xd_core *core, const char *text)
{
	struct xd_session *s;
	uint64_t number;

	if (!to_number(text, &number))
		return NULL;
	xc_list_for_each(s, &core->sessions, link)
		if (s->number == number && !xd_session_ending(s))
			return s;
	return NULL;
}

static void end_session(struct xd_call *call, const char *const *arguments)
{
	struct xd_session *s = find_session(call->session->core, arguments[0]);

	if (!s) {
		xd_call_reply(call, -ENOENT, "there is no session %.40s", arguments[0]);
		return;
	}
	xd_call_reply(call, 0, NULL);
	xd_session_fail(s, -XP_E_DENIED, "an administrator ended this session");
}

static void disconnect_endpoint(struct xd_call *call, const char *const *arguments)
{
	struct xd_session *s = find_session(call->session->core, arguments[0]);
	struct xd_endpoint *ep = NULL;
	uint64_t number;

	if (s && to_number(arguments[1], &number) && number <= UINT32_MAX)
		ep = xc_slots_get(&s->endpoints, (uint32_t)number);
	if (!ep) {
		xd_call_reply(call, -ENOENT, "there is no session %.40s with an endpoint %.40s",
			      arguments[0], arguments[1]);
		return;
	}
	xd_endpoint_end(ep, -XP_E_DENIED, "an administrator disconnected this endpoint");
	xd_call_reply(call, 0, NULL);
}

static void log_level(struct xd_call *call, const char *const *arguments)
{
	static const char *const names[] = { "err", "warning", "notice", "info", "debug" };
	const struct xd_engine_ref *engine = &call->session->core->engine;

	if (!engine->ops->log_level) {
		xd_call_reply(call, -XP_E_UNSUPPORTED, "this daemon's log has no level");
		return;
	}
	for (size_t i = 0; i < XC_ARRAY_SIZE(names); i++) {
		if (strcmp(names[i], arguments[0]) != 0)
			continue;
		engine->ops->log_level(engine->engine, (enum xd_priority)(XD_ERR + i));
		xd_call_reply(call, 0, NULL);
		return;
	}
	xd_call_reply(call, -EINVAL,
		      "there is no level %.40s; there are err, warning, notice, info and debug",
		      arguments[0]);
}

static void measure(struct xd_call *call, const char *const *arguments)
{
	struct xd_core *core = call->session->core;
	int r;

	for (uint32_t i = 0; i < core->n_fabrics; i++) {
		if (strcmp(core->caps[i].name, arguments[0]) != 0)
			continue;
		r = xd_core_measure(core, i);
		if (r == 0)
			xd_call_reply(call, 0, NULL);
		else
			xd_call_reply(call, r,
				      r == -EALREADY	 ? "device %.40s is being measured already"
				      : r == -EOPNOTSUPP ? "the costs of device %.40s are fixed"
							 : "device %.40s cannot be measured",
				      arguments[0]);
		return;
	}
	xd_call_reply(call, -ENOENT, "there is no device %.40s", arguments[0]);
}

static const struct {
	const char *verb, *usage;
	size_t n;
	void (*act)(struct xd_call *call, const char *const *arguments);
} verbs[] = {
	{ "end-session", "end-session NUMBER", 1, end_session },
	{ "disconnect-endpoint", "disconnect-endpoint SESSION ENDPOINT", 2, disconnect_endpoint },
	{ "log-level", "log-level err|warning|notice|info|debug", 1, log_level },
	{ "measure", "measure DEVICE", 1, measure },
};

void xd_session_admin(struct xd_session *s, uint64_t serial, const char *verb,
		      const char *const *arguments, size_t n)
{
	struct xd_call *call = xd_call_new(s, serial);

	if (!call)
		return;
	if (!s->admin) {
		xd_call_reply(call, -XP_E_DENIED,
			      "administration goes by the administrators' socket");
		return;
	}
	for (size_t i = 0; i < XC_ARRAY_SIZE(verbs); i++) {
		if (strcmp(verbs[i].verb, verb) != 0)
			continue;
		if (n != verbs[i].n)
			xd_call_reply(call, -EINVAL, "usage: %s", verbs[i].usage);
		else
			verbs[i].act(call, arguments);
		return;
	}
	xd_call_reply(call, -EINVAL,
		      "there is no verb %.40s; there are end-session, disconnect-endpoint, "
		      "log-level and measure",
		      verb);
}
