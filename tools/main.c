/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */

/* xferctl: the command line. */

#include "tools/tool.h"

#include "common/checked.h"
#include "common/units.h"

#include <errno.h>
#include <getopt.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ADMIN_ONLY 1 /* speaks on the administrators' socket */
#define CLIENT_ONLY 2

struct command {
	const char *name;
	int (*run)(const struct tool *t);
	int socket;
	int n_arguments; /* admin commands; -1 = the command looks itself */
	const char *usage;
	const char *help;
};

static const struct command commands[] = {
	{"get", tool_get, CLIENT_ONLY, -1, "xfer://HOST[:PORT]/PATH [FILE]",
	 "Fetches a file from 'xferctl serve'. FILE is the last name of PATH where it is left out; a\n"
	 "directory: that name in it; '-': standard output. The file gets its name when all of it has\n"
	 "arrived and is verified; one that bears it already is replaced then, at once.\n\n"
	 "  --sync            on the disk before it is said to be there\n"},
	{"put", tool_put, CLIENT_ONLY, -1, "FILE xfer://HOST[:PORT]/PATH",
	 "Sends a file to 'xferctl serve --writable'. It gets its name there when all of it has arrived\n"
	 "and is verified; one that bears it already is replaced then, at once.\n"},
	{"serve", tool_serve, CLIENT_ONLY, -1, "[--listen HOST[:PORT]] [--writable] DIR",
	 "Serves the regular files below DIR until SIGTERM or SIGINT; prints a line for each transfer.\n\n"
	 "  --listen HOST[:PORT]  where (127.0.0.1:20470; port 0: any that is free)\n"
	 "  --writable            takes files, too\n"
	 "  --clients NUMBER      at once, 1 to 1,024 (64); one user of this host gets half of them\n"
	 "  --sync                what is put is on the disk before its sender hears that it is there\n"},
	{"status", tool_table, 0, -1, "", "Shows the daemon's figures.\n"},
	{"devices", tool_devices, 0, -1, "[-v]",
	 "Shows the devices and what they can do.\n\n"
	 "  -v, --verbose         and what was asked of each when it was opened, what it claims, what was\n"
	 "                        seen, and what follows from that (with --json that alone)\n"},
	{"sessions", tool_table, 0, -1, "", "Shows the connected programs.\n"},
	{"endpoints", tool_table, 0, -1, "", "Shows the connections to peers.\n"},
	{"buffers", tool_table, 0, -1, "", "Shows the memory that is shared with the daemon.\n"},
	{"listeners", tool_table, 0, -1, "", "Shows where programs wait for peers.\n"},
	{"grants", tool_table, 0, -1, "", "Shows what peers may reach, without keys.\n"},
	{"keys", tool_keys, 0, -1, "[--history] [OPTION...]",
	 "Shows the keys that devices and peers can use, by numbers that stand for them; or what has\n"
	 "become of keys, the newest last.\n\n"
	 "  --history             what has become of them\n"
	 "  --buffer SESSION:BUFFER[:OFFSET+LENGTH]\n"
	 "                        of this buffer, or of this part of it\n"
	 "  --peer ADDRESS[:PORT] of this peer\n"
	 "  --client SESSION      of this session, see 'sessions'\n"
	 "  --uid UID             of this user\n"
	 "  --key NUMBER          of this one\n"},
	{"pools", tool_table, 0, -1, "",
	 "Shows what is kept ready for endpoints, and what waits for it.\n"},
	{"quotas", tool_table, 0, -1, "", "Shows the limits of users and what is used of them.\n"},
	{"costs", tool_table, 0, -1, "",
	 "Shows what things cost on each device, as it was measured or is assumed.\n"},
	{"plans", tool_table, 0, -1, "",
	 "Shows how transfers were carried that asked for that (XFER_EXPLAIN), and why not otherwise.\n"},
	{"explain", tool_explain, 0, -1,
	 "--op OP --local LIST [--remote LIST] [--device NAME | --profile NAME]",
	 "Shows how the daemon would carry a transfer, and why not otherwise. Nothing is moved.\n\n"
	 "  --op OP               read, write, send or recv\n"
	 "  --local LIST          the pieces of this side's memory, such as 9x4096,1x13 or 2x64K; no\n"
	 "                        two are neighbours\n"
	 "  --remote LIST         of the peer's, for read and write\n"
	 "  --device NAME         on this one, see 'devices' (iwarp)\n"
	 "  --profile NAME        on a device like that, see rdmaxferd.conf(5)\n"},
	{"end-session", tool_admin, ADMIN_ONLY, 1, "SESSION", "Ends a session, see 'sessions'.\n"},
	{"measure", tool_admin, ADMIN_ONLY, 1, "DEVICE",
	 "Finds out anew what things cost on a device, see 'costs'.\n"},
	{"disconnect-endpoint", tool_admin, ADMIN_ONLY, 2, "SESSION ENDPOINT",
	 "Ends a connection, see 'endpoints'.\n"},
	{"log-level", tool_admin, ADMIN_ONLY, 1, "err|warning|notice|info|debug",
	 "Sets from which level on the daemon logs.\n"},
};

enum {
	OPT_SOCKET = 256,
	OPT_ADMIN_SOCKET,
	OPT_ADMIN,
	OPT_LISTEN,
	OPT_WRITABLE,
	OPT_CLIENTS,
	OPT_SYNC,
	OPT_HISTORY, /* of keys */
	OPT_BUFFER,
	OPT_PEER,
	OPT_CLIENT,
	OPT_UID,
	OPT_KEY,
	OPT_OP, /* of explain; from here on */
	OPT_LOCAL,
	OPT_REMOTE,
	OPT_DEVICE,
	OPT_PROFILE
};

static const struct option options[] = {
	{"socket", required_argument, NULL, OPT_SOCKET},
	{"admin-socket", required_argument, NULL, OPT_ADMIN_SOCKET},
	{"admin", no_argument, NULL, OPT_ADMIN},
	{"json", no_argument, NULL, 'j'},
	{"help", no_argument, NULL, 'h'},
	{"version", no_argument, NULL, 'V'},
	{"verbose", no_argument, NULL, 'v'},
	/* Of commands; from here on. */
	{"listen", required_argument, NULL, OPT_LISTEN},
	{"writable", no_argument, NULL, OPT_WRITABLE},
	{"clients", required_argument, NULL, OPT_CLIENTS},
	{"sync", no_argument, NULL, OPT_SYNC},
	{"op", required_argument, NULL, OPT_OP},
	{"local", required_argument, NULL, OPT_LOCAL},
	{"remote", required_argument, NULL, OPT_REMOTE},
	{"device", required_argument, NULL, OPT_DEVICE},
	{"profile", required_argument, NULL, OPT_PROFILE},
	{"history", no_argument, NULL, OPT_HISTORY},
	{"buffer", required_argument, NULL, OPT_BUFFER},
	{"peer", required_argument, NULL, OPT_PEER},
	{"client", required_argument, NULL, OPT_CLIENT},
	{"uid", required_argument, NULL, OPT_UID},
	{"key", required_argument, NULL, OPT_KEY},
	{NULL, 0, NULL, 0},
};

static const struct command *find_command(const char *name)
{
	for (size_t i = 0; i < XC_ARRAY_SIZE(commands); i++)
		if (strcmp(commands[i].name, name) == 0)
			return &commands[i];
	return NULL;
}

static void print_common_options(void)
{
	fputs("\n"
	      "  --socket PATH         the daemon's socket for clients\n"
	      "  --admin               show what belongs to anybody (administrators' socket)\n"
	      "  --admin-socket PATH   where that is\n"
	      "  -j, --json            print JSON\n"
	      "  -h, --help            print this\n"
	      "  -V, --version         print the version\n",
	      stdout);
}

static int print_help(const struct command *command)
{
	if (command) {
		printf("Usage: xferctl [OPTION...] %s%s%s\n\n%s", command->name,
		       command->usage[0] ? " " : "", command->usage, command->help);
		print_common_options();
		return TOOL_OK;
	}
	fputs("Usage: xferctl [OPTION...] COMMAND [OPTION...] [ARGUMENT...]\n\n"
	      "Moves files with rdmaxferd, and looks into it.\n\n",
	      stdout);
	for (size_t i = 0; i < XC_ARRAY_SIZE(commands); i++)
		printf("  %s%s%s\n", commands[i].name, commands[i].usage[0] ? " " : "",
		       commands[i].usage);
	print_common_options();
	fputs("\nMore with 'xferctl COMMAND --help' and in xferctl(1).\n", stdout);
	return TOOL_OK;
}

/* `text` is no command, but perhaps nearly one. */
static int unknown_command(const struct tool *t, const char *text)
{
	const char *names[XC_ARRAY_SIZE(commands) + 1] = {NULL};
	const char *near;

	for (size_t i = 0; i < XC_ARRAY_SIZE(commands); i++)
		names[i] = commands[i].name;
	near = xc_nearest(text, names);
	if (near)
		return tool_usage(t, "'%s' is not a command; '%s' is", text, near);
	return tool_usage(t, "'%s' is not a command", text);
}

static int bad_option(const struct tool *t, char **argv, int opt)
{
	/*
	 * optopt is the character, or 0 (or the value) of a long option: what was typed says it
	 * best.
	 */
	const char *typed = argv[optind - 1];

	if (opt == ':')
		return tool_usage(t, "option '%s' wants a value", typed);
	if (optopt > 0 && optopt < 256 && strncmp(typed, "--", 2) != 0)
		return tool_usage(t, "there is no option '-%c'", optopt);
	if (optopt > 0)
		return tool_usage(t, "option '%s' takes no value", typed);
	return tool_usage(t, "there is no option '%s', or it is not clear which", typed);
}

static int parse_clients(struct tool *t, const char *text)
{
	char *end;

	errno = 0;
	t->clients_max = strtoull(text, &end, 10);
	if (errno || *text < '0' || *text > '9' || *end || t->clients_max < 1 ||
	    t->clients_max > 1024)
		return tool_usage(t, "--clients %s: is not a number from 1 to 1,024", text);
	return TOOL_OK;
}

/* An option that this command has not got. */
static int misplaced(const struct tool *t, const struct command *command, int opt)
{
	const bool serve = command && command->run == tool_serve;
	const bool get = command && command->run == tool_get;
	const bool explain = command && command->run == tool_explain;
	const bool devices = command && command->run == tool_devices;
	const bool keys = command && command->run == tool_keys;
	const char *name = NULL;

	for (const struct option *o = options; o->name; o++)
		if (o->val == opt)
			name = o->name;
	if (opt == 'v' ? devices
	    : opt >= OPT_OP ? explain
	    : opt >= OPT_HISTORY ? keys
				 : opt < OPT_LISTEN || serve || (get && opt == OPT_SYNC))
		return TOOL_OK;
	if (!command)
		return tool_usage(t, "option '--%s' belongs behind its command", name);
	return tool_usage(t, "there is no option '--%s' here", name);
}

/* One of what is asked about keys. */
static void parse_about(struct tool *t, int opt)
{
	switch (opt) {
	case OPT_HISTORY:
		t->history = true;
		break;
	case OPT_BUFFER:
		t->buffer = optarg;
		break;
	case OPT_PEER:
		t->peer = optarg;
		break;
	case OPT_CLIENT:
		t->session = optarg;
		break;
	case OPT_UID:
		t->uid = optarg;
		break;
	default:
		t->key = optarg;
		break;
	}
}

/*
 * Options up to the first other argument, or, with a command, all of them. 0, an exit status, or
 * -1: done, nothing was wrong (--help).
 */
static int parse_options(struct tool *t, const struct command *command, int argc, char **argv)
{
	int opt, r;

	while ((opt = getopt_long(argc, argv, command ? ":hVjv" : "+:hVjv", options, NULL)) != -1) {
		r = opt >= OPT_SOCKET || opt == 'v' ? misplaced(t, command, opt) : 0;
		if (r)
			return r;
		switch (opt) {
		case OPT_SOCKET:
			t->socket_path = optarg;
			break;
		case OPT_ADMIN_SOCKET:
			t->admin_socket_path = optarg;
			t->admin = true;
			break;
		case OPT_ADMIN:
			t->admin = true;
			break;
		case OPT_LISTEN:
			t->listen = optarg;
			break;
		case OPT_WRITABLE:
			t->writable = true;
			break;
		case OPT_CLIENTS:
			r = parse_clients(t, optarg);
			if (r)
				return r;
			break;
		case OPT_SYNC:
			t->sync = true;
			break;
		case OPT_OP:
			t->op = optarg;
			break;
		case OPT_LOCAL:
			t->local = optarg;
			break;
		case OPT_REMOTE:
			t->remote = optarg;
			break;
		case OPT_DEVICE:
			t->device = optarg;
			break;
		case OPT_PROFILE:
			t->profile = optarg;
			break;
		case OPT_HISTORY:
		case OPT_BUFFER:
		case OPT_PEER:
		case OPT_CLIENT:
		case OPT_UID:
		case OPT_KEY:
			parse_about(t, opt);
			break;
		case 'j':
			t->json = true;
			break;
		case 'v':
			t->verbose = true;
			break;
		case 'h':
			print_help(command);
			return -1;
		case 'V':
			printf("xferctl %s (libxferclient %s)\n", XFER_VERSION, xfer_version());
			return -1;
		default:
			return bad_option(t, argv, opt);
		}
	}
	return 0;
}

static int run_command(struct tool *t, const struct command *command, int argc, char **argv)
{
	int r;

	t->command = command->name;
	/* 0: from the start, with the order of the arguments for this parse. */
	optind = 0;
	r = parse_options(t, command, argc, argv);
	if (r)
		return r < 0 ? TOOL_OK : r;
	t->arguments = argv + optind;
	t->n_arguments = argc - optind;
	if (command->socket == CLIENT_ONLY && t->admin)
		return tool_usage(
			t, "speaks on the clients' socket only; --admin does not go with it");
	if (command->socket == ADMIN_ONLY)
		t->admin = true;
	if (command->n_arguments >= 0 && t->n_arguments != command->n_arguments)
		return tool_usage(t, "wants %s, has %d arguments", command->usage, t->n_arguments);
	return command->run(t);
}

/* A full disk behind standard output is a failure like any other. */
static int close_stdout(const struct tool *t, int r)
{
	if ((fflush(stdout) != 0 || ferror(stdout)) && r == TOOL_OK)
		return tool_error(t, "standard output: %s", strerror(errno));
	return r;
}

int main(int argc, char **argv)
{
	struct tool t = {.listen = "127.0.0.1", .clients_max = 64};
	const struct command *command;
	int r;

	setlocale(LC_ALL, "");
	/* Figures with a point, whatever the language: JSON has no other. */
	setlocale(LC_NUMERIC, "C");
	opterr = 0;
	r = parse_options(&t, NULL, argc, argv);
	if (r)
		return r < 0 ? close_stdout(&t, TOOL_OK) : r;
	if (optind == argc)
		return tool_usage(&t, "wants a command");
	command = find_command(argv[optind]);
	if (!command)
		return unknown_command(&t, argv[optind]);
	return close_stdout(&t, run_command(&t, command, argc - optind, argv + optind));
}
