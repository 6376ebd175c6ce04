/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#define _GNU_SOURCE 1 /* dladdr */
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>

#include "common/cleanup.h"
#include "daemon/fabric/verbs/selftest.h"

/*
 * What a device says of itself, and who says it.
 */

int verbs_claims_read(struct ibv_context *verbs, struct verbs_claims *ret)
{
	const unsigned int type_2 = IBV_DEVICE_MEM_WINDOW_TYPE_2A | IBV_DEVICE_MEM_WINDOW_TYPE_2B;
	struct ibv_device_attr attr;
	int r;

	r = ibv_query_device(verbs, &attr);
	if (r)
		return -r;
	*ret = (struct verbs_claims){
		.iwarp = verbs->device->transport_type == IBV_TRANSPORT_IWARP,
		.windows = attr.device_cap_flags & type_2,
		.max_sge = attr.max_sge > 0 ? (uint32_t)attr.max_sge : 1,
		.max_sge_rd = attr.max_sge_rd > 0 ? (uint32_t)attr.max_sge_rd : 1,
		.max_mw = attr.max_mw > 0 ? (uint32_t)attr.max_mw : 0,
	};
	return 0;
}

/*
 * rdma-core has no function for its version; the file that the loader found has it in its name. The
 * providers come with it.
 */
static void library_file(char *ret, size_t size)
{
	Dl_info info;
	xc_auto_free char *path = NULL;
	const char *name;

	ret[0] = '\0';
	if (!dladdr((void *)(uintptr_t)ibv_get_device_list, &info) || !info.dli_fname)
		return;
	path = realpath(info.dli_fname, NULL);
	name = strrchr(path ? path : info.dli_fname, '/');
	snprintf(ret, size, "%s", name ? name + 1 : info.dli_fname);
}

/* One line each in the file of the cache. */
static void one_line(char *text)
{
	for (; *text; text++)
		if ((unsigned char)*text < 0x20 || *text == 0x7f)
			*text = '?';
}

int verbs_identity_read(struct ibv_context *verbs, struct verbs_identity *ret)
{
	struct ibv_device_attr attr;
	struct utsname u;
	int r;

	r = ibv_query_device(verbs, &attr);
	if (r)
		return -r;
	if (uname(&u) < 0)
		return -errno;
	snprintf(ret->device, sizeof(ret->device), "%s", ibv_get_device_name(verbs->device));
	snprintf(ret->kernel, sizeof(ret->kernel), "%s %s", u.release, u.version);
	snprintf(ret->firmware, sizeof(ret->firmware), "%.63s %x:%x:%x", attr.fw_ver,
		 attr.vendor_id, attr.vendor_part_id, attr.hw_ver);
	library_file(ret->rdma_core, sizeof(ret->rdma_core));
	one_line(ret->device);
	one_line(ret->kernel);
	one_line(ret->firmware);
	one_line(ret->rdma_core);
	return 0;
}
