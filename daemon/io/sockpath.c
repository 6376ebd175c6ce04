/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "daemon/io/sockpath.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <libgen.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <systemd/sd-daemon.h>
#include <unistd.h>

#include "common/cleanup.h"

#define BACKLOG 128

static int __attribute__((format(printf, 3, 4)))
fail(char *ret_why, int error, const char *format, ...)
{
	va_list ap;

	va_start(ap, format);
	vsnprintf(ret_why, XD_SOCKPATH_WHY_MAX, format, ap);
	va_end(ap);
	return -error;
}

/* To the group, where it exists and we may; an unprivileged daemon's files stay in its own. */
static void give_to_group(const char *path, const char *group)
{
	const struct group *g = getgrnam(group);

	if (g && lchown(path, (uid_t)-1, g->gr_gid) < 0)
		return;
}

/* dirname(3) changes its argument, and may return it. */
static void parent_of(const char *path, char ret[static XD_SOCKPATH_MAX])
{
	char copy[XD_SOCKPATH_MAX];

	snprintf(copy, sizeof(copy), "%s", path);
	snprintf(ret, XD_SOCKPATH_MAX, "%s", dirname(copy));
}

static int make_directory(const char *path, const char *group, char *ret_why)
{
	char dir[XD_SOCKPATH_MAX], above[XD_SOCKPATH_MAX];
	struct stat st;

	parent_of(path, dir);
	if (stat(dir, &st) == 0) {
		if (!S_ISDIR(st.st_mode))
			return fail(ret_why, ENOTDIR, "%s is not a directory", dir);
		return 0;
	}
	parent_of(dir, above);
	if (mkdir(above, 0755) < 0 && errno != EEXIST)
		return fail(ret_why, errno, "cannot make the directory %s: %s", above,
			    strerror(errno));
	if (mkdir(dir, 0750) < 0 && errno != EEXIST)
		return fail(ret_why, errno, "cannot make the directory %s: %s", dir,
			    strerror(errno));
	/*
	 * The umask may have taken more away than is wanted; the group comes first: chown clears
	 * no mode here.
	 */
	give_to_group(dir, group);
	if (chmod(dir, 0750) < 0)
		return fail(ret_why, errno, "cannot set the mode of %s: %s", dir, strerror(errno));
	return 0;
}

static int take_lock(const char *path, int *ret_fd, char *ret_why)
{
	xc_auto_close int fd = -1;
	char lock[XD_SOCKPATH_MAX + 8], pid[32] = "";
	ssize_t n;

	snprintf(lock, sizeof(lock), "%s.lock", path);
	fd = open(lock, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0)
		return fail(ret_why, errno, "cannot open %s: %s", lock, strerror(errno));
	if (flock(fd, LOCK_EX | LOCK_NB) < 0) {
		if (errno != EWOULDBLOCK)
			return fail(ret_why, errno, "cannot lock %s: %s", lock, strerror(errno));
		n = read(fd, pid, sizeof(pid) - 1);
		if (n > 0 && strspn(pid, "0123456789") > 0) {
			pid[strspn(pid, "0123456789")] = '\0';
			if (atol(pid) == (long)getpid())
				return fail(ret_why, EADDRINUSE,
					    "%s is this daemon's other socket: each needs a path "
					    "of its own",
					    path);
			return fail(ret_why, EADDRINUSE, "%s is served by another daemon (pid %s)",
				    path, pid);
		}
		return fail(ret_why, EADDRINUSE, "%s is served by another daemon", path);
	}
	/* For the message above only: the lock is what counts. */
	n = snprintf(pid, sizeof(pid), "%d\n", (int)getpid());
	if (ftruncate(fd, 0) < 0 || pwrite(fd, pid, (size_t)n, 0) != n)
		return fail(ret_why, EIO, "cannot write to %s", lock);
	*ret_fd = xc_take_fd(&fd);
	return 0;
}

static int remove_leftover(const char *path, char *ret_why)
{
	struct stat st;

	if (lstat(path, &st) < 0)
		return errno == ENOENT ? 0 :
					 fail(ret_why, errno, "cannot look at %s: %s", path,
					      strerror(errno));
	if (!S_ISSOCK(st.st_mode))
		return fail(ret_why, EEXIST, "%s is in the way, and is not a socket", path);
	if (unlink(path) < 0)
		return fail(ret_why, errno, "cannot remove the old %s: %s", path, strerror(errno));
	return 0;
}

static int bind_and_listen(const char *path, const char *group, int *ret_fd, char *ret_why)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	xc_auto_close int fd = -1;
	mode_t mask;
	int r;

	fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return fail(ret_why, errno, "cannot make a socket: %s", strerror(errno));
	memcpy(address.sun_path, path, strlen(path) + 1);
	/* Nobody but us until its group is the right one. */
	mask = umask(0177);
	r = bind(fd, (struct sockaddr *)&address, sizeof(address)) < 0 ? -errno : 0;
	umask(mask);
	if (r < 0)
		return fail(ret_why, -r, "cannot bind %s: %s", path, strerror(-r));
	give_to_group(path, group);
	if (chmod(path, 0660) < 0 || listen(fd, BACKLOG) < 0) {
		r = errno;
		unlink(path);
		return fail(ret_why, r, "cannot listen at %s: %s", path, strerror(r));
	}
	*ret_fd = xc_take_fd(&fd);
	return 0;
}

int xd_sockpath_open(const char *path, const char *group, struct xd_sockpath *ret, char *ret_why)
{
	struct xd_sockpath s = { .fd = -1, .lock_fd = -1 };
	int r;

	if (!*path || strlen(path) >= XD_SOCKPATH_MAX)
		return fail(ret_why, ENAMETOOLONG,
			    "a socket's path has 1 to %d bytes, and this has %zu: %s",
			    XD_SOCKPATH_MAX - 1, strlen(path), path);
	snprintf(s.path, sizeof(s.path), "%s", path);
	r = make_directory(path, group, ret_why);
	if (r == 0)
		r = take_lock(path, &s.lock_fd, ret_why);
	if (r == 0)
		r = remove_leftover(path, ret_why);
	if (r == 0)
		r = bind_and_listen(path, group, &s.fd, ret_why);
	if (r < 0) {
		if (s.lock_fd >= 0)
			close(s.lock_fd);
		return r;
	}
	*ret = s;
	return 0;
}

void xd_sockpath_close(struct xd_sockpath *s)
{
	if (s->lock_fd >= 0 && *s->path)
		unlink(s->path);
	if (s->fd >= 0)
		close(s->fd);
	if (s->lock_fd >= 0)
		close(s->lock_fd);
	s->fd = s->lock_fd = -1;
}

int xd_sockpath_default(const char *kind, char ret_path[static XD_SOCKPATH_MAX], char *ret_why)
{
	const char *made = getenv("RUNTIME_DIRECTORY"), *user = getenv("XDG_RUNTIME_DIR");
	int n;

	/* Several directories are separated by colons. */
	if (made && *made == '/')
		n = snprintf(ret_path, XD_SOCKPATH_MAX, "%.*s/%s/sock", (int)strcspn(made, ":"),
			     made, kind);
	else if (geteuid() == 0)
		n = snprintf(ret_path, XD_SOCKPATH_MAX, "/run/rdmaxferd/%s/sock", kind);
	else if (user && *user == '/')
		n = snprintf(ret_path, XD_SOCKPATH_MAX, "%s/rdmaxferd/%s/sock", user, kind);
	else
		return fail(ret_why, ENOENT,
			    "XDG_RUNTIME_DIR is not set, so there is no default for the %s socket: "
			    "use --socket and --admin-socket",
			    kind);
	if (n >= XD_SOCKPATH_MAX)
		return fail(ret_why, ENOENT, "the default path of the %s socket is too long: %s",
			    kind, ret_path);
	return 0;
}

static void free_names(char ***names)
{
	for (char **n = *names; n && *n; n++)
		free(*n);
	free(*names);
}

int xd_sockpath_inherit(struct xd_sockpath *ret_client, struct xd_sockpath *ret_admin,
			char *ret_why)
{
	xc_cleanup(free_names) char **names = NULL;
	int n = sd_listen_fds_with_names(1, &names);

	ret_client->fd = ret_client->lock_fd = ret_admin->fd = ret_admin->lock_fd = -1;
	ret_client->path[0] = ret_admin->path[0] = '\0';
	if (n < 0)
		return fail(ret_why, EINVAL, "the sockets passed by systemd: %s", strerror(-n));
	for (int i = 0; i < n; i++) {
		int fd = SD_LISTEN_FDS_START + i, flags = fcntl(fd, F_GETFL);
		struct xd_sockpath *at = strcmp(names[i], "client") == 0 ? ret_client :
					 strcmp(names[i], "admin") == 0	 ? ret_admin :
									   NULL;

		if (!at || at->fd >= 0)
			return fail(ret_why, EINVAL,
				    "systemd passed a socket named %s: one \"client\" and one "
				    "\"admin\" are known (FileDescriptorName=)",
				    names[i]);
		if (sd_is_socket_unix(fd, SOCK_SEQPACKET, 1, NULL, 0) <= 0)
			return fail(ret_why, EINVAL,
				    "the socket %s that systemd passed is no listening Unix socket "
				    "of sequential packets (ListenSequentialPacket=)",
				    names[i]);
		if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0)
			return fail(ret_why, EINVAL, "the socket %s that systemd passed: %s",
				    names[i], strerror(errno));
		at->fd = fd;
	}
	return 0;
}
