/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */

/* What the daemon would do with a transfer, and why not otherwise: it computes, this asks. */

#include "tools/tool.h"

#include <string.h>

int tool_explain(const struct tool *t)
{
	const char *const words[] = {
		t->op,
		t->local,
		t->remote ? t->remote : "",
		t->device ? t->device : "",
		t->profile ? t->profile : "",
	};
	struct xfer_client *client;
	int r;

	if (t->n_arguments)
		return tool_usage(t, "takes options only, has '%s'", t->arguments[0]);
	if (!t->op)
		return tool_usage(t, "wants --op read, write, send or recv");
	if (!t->local)
		return tool_usage(t, "wants --local, the pieces of this side's memory");
	if (!t->remote && (strcmp(t->op, "read") == 0 || strcmp(t->op, "write") == 0))
		return tool_usage(t, "wants --remote with %s, the pieces at the peer", t->op);
	if (t->device && t->profile)
		return tool_usage(t, "has --device and --profile: it is one of them");
	client = tool_client(t);
	if (!client)
		return TOOL_FAILED;
	r = tool_print_answer(t, client, "explain", words, sizeof(words) / sizeof(words[0]));
	xfer_client_free(client);
	return r;
}
