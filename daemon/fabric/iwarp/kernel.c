/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "daemon/fabric/iwarp/private.h"

/*
 * A device that speaks iWARP itself (siw, or a network card) has the TCP ports at its network
 * interface's addresses to itself, or shares them by first come. sysfs says which devices there
 * are, but not of siw on Linux 6.1 which interface is whose. What tells it is the first GID of its
 * port, which begins with the interface's MAC address.
 */

#define DEVICES "/sys/class/infiniband"
#define MAC_BYTES 6

/* A file of one line. False: there is none. */
static bool read_line(const char *path, char *ret, size_t size)
{
	xc_auto_close int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read(fd, ret, size - 1);

	if (n <= 0)
		return false;
	ret[n] = '\0';
	return true;
}

static bool read_mac(const char *interface, unsigned int ret[MAC_BYTES])
{
	char path[PATH_MAX], line[64];

	snprintf(path, sizeof(path), "/sys/class/net/%s/address", interface);
	return read_line(path, line, sizeof(line)) &&
	       sscanf(line, "%2x:%2x:%2x:%2x:%2x:%2x", &ret[0], &ret[1], &ret[2], &ret[3], &ret[4],
		      &ret[5]) == MAC_BYTES;
}

/* "4: RNIC" */
static bool is_iwarp(const char *device)
{
	char path[PATH_MAX], line[64];

	snprintf(path, sizeof(path), DEVICES "/%s/node_type", device);
	return read_line(path, line, sizeof(line)) && line[0] == '4';
}

static bool has_mac(const char *device, const unsigned int mac[MAC_BYTES])
{
	char path[PATH_MAX], line[64], wanted[16];

	/* Ports are numbered from 1; an iWARP device of several has a device for each. */
	snprintf(path, sizeof(path), DEVICES "/%s/ports/1/gids/0", device);
	snprintf(wanted, sizeof(wanted), "%02x%02x:%02x%02x:%02x%02x", mac[0], mac[1], mac[2],
		 mac[3], mac[4], mac[5]);
	return read_line(path, line, sizeof(line)) && strncmp(line, wanted, strlen(wanted)) == 0;
}

bool iwarp_kernel_has(const char *interface)
{
	unsigned int mac[MAC_BYTES];
	bool found = false;
	struct dirent *e;
	DIR *dir;

	if (!read_mac(interface, mac))
		return false;
	dir = opendir(DEVICES);
	if (!dir)
		return false;
	while (!found && (e = readdir(dir)))
		found = e->d_name[0] != '.' && is_iwarp(e->d_name) && has_mac(e->d_name, mac);
	closedir(dir);
	return found;
}
