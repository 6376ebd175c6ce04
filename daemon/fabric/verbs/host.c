/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/units.h"
#include "daemon/fabric/verbs/private.h"

/* CAP_IPC_LOCK of capabilities(7): the kernel then asks for no limit. */
#define CAP_IPC_LOCK_BIT 14
/* What examining a device takes, and then some. */
#define MEMLOCK_LEAST_BYTES (UINT64_C(32) << 20)

static int try_open(const char *folder, const char *name)
{
	char path[512];
	int fd;

	snprintf(path, sizeof(path), "%s/%s", folder, name);
	fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd < 0)
		return errno;
	close(fd);
	return 0;
}

/* Good is one that can be opened; of the others, any reason. */
static void look_at_devices(const char *sys, const char *dev, struct verbs_host *ret)
{
	DIR *folder = opendir(sys);
	struct dirent *entry;

	ret->device_error = ENOENT;
	if (!folder)
		return;
	while ((entry = readdir(folder))) {
		int err;

		if (strncmp(entry->d_name, "uverbs", 6) != 0)
			continue;
		err = try_open(dev, entry->d_name);
		if (ret->devices++ == 0 || err == 0)
			ret->device_error = err;
	}
	closedir(folder);
}

static bool may_lock_all(void)
{
	FILE *status = fopen("/proc/self/status", "re");
	uint64_t effective = 0;
	char line[256];

	if (!status)
		return false;
	while (fgets(line, sizeof(line), status))
		if (sscanf(line, "CapEff: %" SCNx64, &effective) == 1)
			break;
	fclose(status);
	return effective >> CAP_IPC_LOCK_BIT & 1;
}

static uint64_t memlock(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_MEMLOCK, &limit) < 0 || limit.rlim_cur == RLIM_INFINITY ||
	    may_lock_all())
		return UINT64_MAX;
	return limit.rlim_cur;
}

void verbs_host_look(const char *sys, const char *dev, struct verbs_host *ret)
{
	struct stat st;

	memset(ret, 0, sizeof(*ret));
	look_at_devices(sys, dev, ret);
	ret->dev = stat(dev, &st) == 0;
	/* Opening it loads a module: only where there is something to use it for. */
	if (ret->devices)
		ret->cm_error = try_open(dev, "rdma_cm");
	ret->memlock_bytes = memlock();
}

__attribute__((format(printf, 3, 4))) static void
say(struct verbs_remark *r, enum xd_priority priority, const char *format, ...)
{
	va_list ap;

	r->priority = priority;
	va_start(ap, format);
	vsnprintf(r->text, sizeof(r->text), format, ap);
	va_end(ap);
}

static bool is_right(int err)
{
	return err == EACCES || err == EPERM;
}

static void remark_files(const struct verbs_host *h, struct verbs_remark *r)
{
	if (h->devices == 0)
		say(r, XD_INFO,
		    "There is no RDMA device: connections go by the iwarp fabric alone. If there "
		    "should be one, load its driver; 'rdma link' lists devices.");
	else if (!h->dev)
		say(r, XD_NOTICE,
		    "The RDMA devices cannot be used: there is no /dev/infiniband. Load ib_uverbs "
		    "and rdma_ucm, or pass /dev/infiniband into the container.");
	else if (is_right(h->device_error) || is_right(h->cm_error))
		say(r, XD_NOTICE,
		    "The RDMA devices cannot be used: no right to open %s in /dev/infiniband. Give "
		    "it to the daemon's user (mode or group of the file, or DeviceAllow= of the "
		    "unit).",
		    is_right(h->device_error) ? "the uverbs files" : "rdma_cm");
	else if (h->device_error)
		say(r, XD_NOTICE,
		    "The RDMA devices cannot be used: the uverbs files in /dev/infiniband cannot "
		    "be opened (%s). Load ib_uverbs, or pass them into the container.",
		    strerror(h->device_error));
	else if (h->cm_error)
		say(r, XD_NOTICE,
		    "The RDMA devices cannot be used: /dev/infiniband/rdma_cm cannot be opened "
		    "(%s). Load rdma_ucm, or pass it into the container.",
		    strerror(h->cm_error));
	r->refuses = r->text[0] != '\0';
}

static void remark_memlock(const struct verbs_host *h, uint64_t wanted_bytes,
			   struct verbs_remark *r)
{
	char has[32], wanted[32];

	xc_size_format(h->memlock_bytes, has, sizeof(has));
	if (h->memlock_bytes < MEMLOCK_LEAST_BYTES) {
		r->refuses = true;
		say(r, XD_NOTICE,
		    "The RDMA devices cannot be used: the limit on locked memory (RLIMIT_MEMLOCK) "
		    "is %s, too little to register memory. Raise it: LimitMEMLOCK=infinity in the "
		    "unit, or 'ulimit -l'.",
		    has);
	} else if (h->memlock_bytes < wanted_bytes) {
		xc_size_format(wanted_bytes, wanted, sizeof(wanted));
		say(r, XD_NOTICE,
		    "The limit on locked memory (RLIMIT_MEMLOCK) is %s, less than the %s that "
		    "clients may pin: registrations beyond it fail. Raise it: "
		    "LimitMEMLOCK=infinity in the unit, or 'ulimit -l'.",
		    has, wanted);
	}
}

void verbs_host_remark(const struct verbs_host *h, uint64_t wanted_bytes,
		       struct verbs_remark *ret)
{
	*ret = (struct verbs_remark){ 0 };
	remark_files(h, ret);
	if (!ret->refuses)
		remark_memlock(h, wanted_bytes, ret);
}
