/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "daemon/io/process.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/cleanup.h"

/*
 * core(5): private anonymous memory, ELF headers, private huge pages. The default has shared
 * anonymous memory too, and a memfd counts as that (its file has no name).
 */
#define COREDUMP_FILTER "0x31"

static int filter_core_dumps(void)
{
	xc_auto_close int fd = open("/proc/self/coredump_filter", O_WRONLY | O_CLOEXEC);

	if (fd < 0 || write(fd, COREDUMP_FILTER, strlen(COREDUMP_FILTER)) < 0)
		return -errno;
	return 0;
}

/* Devices pin memory: as much as we may without asking anybody. */
static void raise_memlock(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_MEMLOCK, &limit) < 0 || limit.rlim_cur == limit.rlim_max)
		return;
	limit.rlim_cur = limit.rlim_max;
	setrlimit(RLIMIT_MEMLOCK, &limit);
}

void xd_process_prepare(struct xd_logger *logger)
{
	struct rlimit limit;

	raise_memlock();
	signal(SIGPIPE, SIG_IGN);
	if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < limit.rlim_max) {
		limit.rlim_cur = limit.rlim_max;
		if (setrlimit(RLIMIT_NOFILE, &limit) < 0)
			xd_logger_say(logger, XD_WARNING,
				      "The limit of descriptors cannot be raised: %s.",
				      strerror(errno));
	}
	if (filter_core_dumps() < 0) {
		xd_logger_say(logger, XD_WARNING,
			      "Core dumps are off: client memory cannot be kept out of them.");
		prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
	}
}

int xd_process_state_dir(struct xd_logger *logger, const char *path)
{
	struct stat st;
	int r = 0;

	if (!path)
		return 0;
	if ((mkdir(path, 0700) < 0 && errno != EEXIST) || stat(path, &st) < 0 ||
	    access(path, W_OK | X_OK) < 0)
		r = -errno;
	else if (!S_ISDIR(st.st_mode))
		r = -ENOTDIR;
	if (r < 0)
		xd_logger_say(logger, XD_ERR, "The state directory %s: %s.", path, strerror(-r));
	return r;
}
