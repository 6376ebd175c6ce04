/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* rdmaxferd: its command line. */
#include <config.h>

#include <getopt.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "daemon/io/daemon.h"

static const char usage[] =
	"Usage: rdmaxferd [OPTION]...\n"
	"Transfers data between clients' memory, on their behalf.\n"
	"\n"
	"  --config FILE        configuration [%s, if it exists]\n"
	"  --socket PATH        where clients connect [/run/rdmaxferd/client/sock;\n"
	"                       not root: $XDG_RUNTIME_DIR/rdmaxferd/client/sock]\n"
	"  --admin-socket PATH  where administrators connect [the same with admin]\n"
	"  --state-dir DIR      where to keep what outlives the daemon [none]\n"
	"  --no-devices         leave the host's RDMA devices alone\n"
	"  --check-config       read the configuration, say what is wrong, and exit\n"
	"  --version            print the version and exit\n"
	"  --help               print this and exit\n"
	"\n"
	"Exit status: 0 stopped by SIGTERM or SIGINT, or the configuration is good;\n"
	"1 failed; 2 the command line or the configuration is wrong.\n";

enum {
	OPT_CONFIG = 256,
	OPT_SOCKET,
	OPT_ADMIN,
	OPT_STATE,
	OPT_NO_DEVICES,
	OPT_CHECK,
	OPT_VERSION,
	OPT_HELP,
};

static const struct option options[] = {
	{ "config", required_argument, NULL, OPT_CONFIG },
	{ "socket", required_argument, NULL, OPT_SOCKET },
	{ "admin-socket", required_argument, NULL, OPT_ADMIN },
	{ "state-dir", required_argument, NULL, OPT_STATE },
	{ "no-devices", no_argument, NULL, OPT_NO_DEVICES },
	{ "check-config", no_argument, NULL, OPT_CHECK },
	{ "version", no_argument, NULL, OPT_VERSION },
	{ "help", no_argument, NULL, OPT_HELP },
	{ 0 },
};

/* Ends the process where the arguments ask for no more than words. */
static void parse(int argc, char **argv, struct xd_daemon_options *ret, bool *ret_check)
{
	int c;

	while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
		switch (c) {
		case OPT_CONFIG:
			ret->config = optarg;
			break;
		case OPT_SOCKET:
			ret->socket = optarg;
			break;
		case OPT_ADMIN:
			ret->admin_socket = optarg;
			break;
		case OPT_STATE:
			ret->state_dir = optarg;
			break;
		case OPT_NO_DEVICES:
			ret->no_devices = true;
			break;
		case OPT_CHECK:
			*ret_check = true;
			break;
		case OPT_VERSION:
			puts("rdmaxferd " PACKAGE_VERSION);
			exit(fflush(stdout) ? XD_EXIT_FAILURE : XD_EXIT_OK);
		case OPT_HELP:
			printf(usage, xd_config_default);
			exit(fflush(stdout) ? XD_EXIT_FAILURE : XD_EXIT_OK);
		default:
			/* getopt_long() has named the option. */
			fputs("Try 'rdmaxferd --help'.\n", stderr);
			exit(XD_EXIT_USAGE);
		}
	}
	if (optind < argc) {
		fprintf(stderr, "rdmaxferd: unexpected argument '%s'\nTry 'rdmaxferd --help'.\n",
			argv[optind]);
		exit(XD_EXIT_USAGE);
	}
}

int main(int argc, char **argv)
{
	struct xd_daemon_options o = { 0 };
	bool check = false, stuck = false;
	enum xd_exit status;

	parse(argc, argv, &o, &check);
	if (check)
		return xd_daemon_check_config(&o);
	status = xd_daemon_run(&o, &stuck);
	if (stuck)
		_exit(status);
	return status;
}
