/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#define _GNU_SOURCE 1 /* O_PATH, asprintf */
#include "tools/store.h"

#include "common/cleanup.h"
#include "common/units.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>

__attribute__((format(printf, 3, 4))) static int fail(int status, char why[static STORE_WHY_MAX],
						      const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(why, STORE_WHY_MAX, format, args);
	va_end(args);
	return status;
}

static int fail_errno(int error, char why[static STORE_WHY_MAX], const char *path)
{
	switch (error) {
	case EXDEV:
		return fail(-EXDEV, why, "%.180s: leads out of the directory that is served", path);
	case EISDIR:
		return fail(-EISDIR, why, "%.180s: is a directory", path);
	case EAGAIN:
		return fail(-EAGAIN, why, "%.180s: another program holds a lease on it", path);
	default:
		return fail(-error, why, "%.180s: %s", path, strerror(error));
	}
}

/*
 * -EAGAIN: a directory on the way was moved while ".." was followed; the kernel could not be sure.
 */
static int open_beneath(int root, const char *path, uint64_t flags)
{
	const struct open_how how = {
		.flags = flags | O_CLOEXEC,
		.resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS,
	};
	int fd = -1;

	for (int tries = 0; tries < 8; tries++) {
		fd = (int)syscall(SYS_openat2, root, path, &how, sizeof(how));
		if (fd >= 0 || (errno != EAGAIN && errno != EINTR))
			break;
	}
	return fd >= 0 ? fd : -errno;
}

int store_open_root(const char *dir, int *ret_fd, char why[static STORE_WHY_MAX])
{
	int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (fd < 0)
		return fail_errno(errno, why, dir);
	*ret_fd = fd;
	return 0;
}

/* ------------------------------------------------------------------------- files that are read */

static int source_check(int fd, const char *path, struct store_source *ret,
			char why[static STORE_WHY_MAX])
{
	if (fstat(fd, &ret->at_open) < 0)
		return fail_errno(errno, why, path);
	if (S_ISDIR(ret->at_open.st_mode))
		return fail_errno(EISDIR, why, path);
	if (!S_ISREG(ret->at_open.st_mode))
		return fail(-EINVAL, why, "%.180s: is not a regular file", path);
	ret->fd = fd;
	ret->size_bytes = (uint64_t)ret->at_open.st_size;
	return 0;
}

/*
 * O_NONBLOCK: a FIFO without a writer would block the open for ever. It means nothing to a regular
 * file.
 */
#define SOURCE_FLAGS (O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC)

int store_source_open(int root, const char *path, struct store_source *ret,
		      char why[static STORE_WHY_MAX])
{
	int fd = open_beneath(root, path, SOURCE_FLAGS);
	int r;

	if (fd == -ENXIO) /* a socket */
		return fail(-EINVAL, why, "%.180s: is not a regular file", path);
	if (fd < 0)
		return fail_errno(-fd, why, path);
	r = source_check(fd, path, ret, why);
	if (r)
		close(fd);
	return r;
}

int store_source_open_local(const char *path, struct store_source *ret,
			    char why[static STORE_WHY_MAX])
{
	int fd = open(path, SOURCE_FLAGS);
	int r;

	if (fd < 0)
		return fail_errno(errno, why, path);
	r = source_check(fd, path, ret, why);
	if (r)
		close(fd);
	return r;
}

void store_source_close(struct store_source *s)
{
	if (s->fd >= 0)
		close(s->fd);
	s->fd = -1;
}

int store_source_read(const struct store_source *s, void *data, uint32_t bytes, uint64_t offset,
		      char why[static STORE_WHY_MAX])
{
	for (uint32_t done = 0; done < bytes;) {
		ssize_t n = pread(s->fd, (char *)data + done, bytes - done, (off_t)(offset + done));

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return fail(-errno, why, "reading at byte %llu: %s",
				    (unsigned long long)(offset + done), strerror(errno));
		if (n == 0)
			return fail(-ENODATA, why, "the file became shorter while it was read");
		done += (uint32_t)n;
	}
	return 0;
}

static bool same_time(struct timespec a, struct timespec b)
{
	return a.tv_sec == b.tv_sec && a.tv_nsec == b.tv_nsec;
}

int store_source_unchanged(const struct store_source *s, char why[static STORE_WHY_MAX])
{
	const struct stat *then = &s->at_open;
	struct stat now;

	if (fstat(s->fd, &now) < 0)
		return fail(-errno, why, "looking at the file again: %s", strerror(errno));
	/*
	 * The change time also moves with links and modes; renaming a file that is read is
	 * harmless.
	 */
	if (now.st_size != then->st_size || !same_time(now.st_mtim, then->st_mtim))
		return fail(-ESTALE, why, "the file changed while it was read");
	return 0;
}

/* ------------------------------------------------------------------------- files that arrive */

static void make_temp_name(struct store_temp *t)
{
	static const char letters[] = "abcdefghijklmnopqrstuvwxyz234567";
	uint8_t random[6];

	/*
	 * Of a long name the beginning must do: with its ends the temporary name may have 255
	 * bytes.
	 */
	snprintf(t->temp, sizeof(t->temp), ".%.240s.", t->name);
	if (getrandom(random, sizeof(random), 0) != sizeof(random))
		memset(random, 0, sizeof(random));
	for (size_t i = 0, n = strlen(t->temp); i < sizeof(random); i++, n++) {
		t->temp[n] = letters[random[i] % 32];
		t->temp[n + 1] = '\0';
	}
}

/* What bears the name now may be replaced if it is a regular file. */
static int check_target(const struct store_temp *t, const char *path,
			char why[static STORE_WHY_MAX])
{
	struct stat st;

	if (fstatat(t->dir, t->name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT ? 0 : fail_errno(errno, why, path);
	if (S_ISDIR(st.st_mode))
		return fail_errno(EISDIR, why, path);
	if (!S_ISREG(st.st_mode))
		return fail(-EEXIST, why, "%.180s: exists and is not a regular file", path);
	return 0;
}

static int check_room(const struct store_temp *t, uint64_t size_bytes, const char *path,
		      char why[static STORE_WHY_MAX])
{
	char need[32], have[32];
	struct statvfs vfs;
	uint64_t room;

	/* A file system that cannot say is found out by writing. */
	if (fstatvfs(t->dir, &vfs) < 0 || vfs.f_blocks == 0)
		return 0;
	if (__builtin_mul_overflow((uint64_t)vfs.f_bavail, (uint64_t)vfs.f_frsize, &room) ||
	    room >= size_bytes)
		return 0;
	return fail(-ENOSPC, why, "%.140s: needs %s, and the file system has %s left", path,
		    xc_size_format(size_bytes, need, sizeof(need)),
		    xc_size_format(room, have, sizeof(have)));
}

/* With a signal in between, the temporary file would exist and its remover not know of it. */
static int create_temp(struct store_temp *t)
{
	sigset_t all, before;
	int error = EEXIST;

	sigfillset(&all);
	sigprocmask(SIG_SETMASK, &all, &before);
	for (int tries = 0; tries < 100 && error == EEXIST; tries++) {
		make_temp_name(t);
		t->fd = openat(t->dir, t->temp,
			       O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0644);
		error = t->fd < 0 ? errno : 0;
	}
	t->open = error == 0;
	sigprocmask(SIG_SETMASK, &before, NULL);
	return -error;
}

/* Takes the directory's descriptor. */
static int begin_in(int dir, const char *name, const char *path, uint64_t size_bytes,
		    struct store_temp *t, char why[static STORE_WHY_MAX])
{
	int r;

	t->dir = dir;
	t->fd = -1;
	t->open = false;
	if (strlen(name) >= sizeof(t->name)) {
		r = fail_errno(ENAMETOOLONG, why, path);
		goto close_dir;
	}
	strcpy(t->name, name);
	r = check_target(t, path, why);
	if (!r)
		r = check_room(t, size_bytes, path, why);
	if (r)
		goto close_dir;
	r = create_temp(t);
	if (!r)
		return 0;
	r = fail_errno(-r, why, path);
close_dir:
	close(dir);
	return r;
}

/* Cuts path into its directory ("." for none) and its last name. */
static int cut_path(char *path, const char **ret_dir, const char **ret_name)
{
	char *slash = strrchr(path, '/');
	const char *name = slash ? slash + 1 : path;

	if (name[0] == '\0' || strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
		return -EISDIR;
	if (!slash)
		*ret_dir = ".";
	else if (slash == path)
		*ret_dir = "/";
	else
		*ret_dir = path;
	if (slash)
		*slash = '\0';
	*ret_name = name;
	return 0;
}

int store_temp_begin(int root, const char *path, uint64_t size_bytes, struct store_temp *ret,
		     char why[static STORE_WHY_MAX])
{
	xc_auto_free char *copy = strdup(path);
	const char *dir_path, *name;
	int dir;

	if (!copy)
		return fail_errno(ENOMEM, why, path);
	/* Before the path is cut: "/name" would otherwise be taken for a name at the root. */
	if (path[0] == '/')
		return fail_errno(EXDEV, why, path);
	if (cut_path(copy, &dir_path, &name))
		return fail_errno(EISDIR, why, path);
	dir = open_beneath(root, dir_path, O_PATH | O_DIRECTORY);
	if (dir == -ENOENT || dir == -ENOTDIR)
		return fail(dir, why, "%.180s: there is no such directory", dir_path);
	if (dir < 0)
		return fail_errno(-dir, why, path);
	return begin_in(dir, name, path, size_bytes, ret, why);
}

/* Where a local path really leads: *ret_path is malloc'ed. */
static int local_target(const char *path, const char *default_name, char **ret_path,
			char why[static STORE_WHY_MAX])
{
	struct stat st;

	if (stat(path, &st) == 0 && S_ISDIR(st.st_mode)) {
		if (asprintf(ret_path, "%s/%s", path, default_name) < 0)
			return fail_errno(ENOMEM, why, path);
		return 0;
	}
	if (lstat(path, &st) == 0 && S_ISLNK(st.st_mode))
		*ret_path = realpath(path, NULL);
	else
		*ret_path = strdup(path);
	return *ret_path ? 0 : fail_errno(errno, why, path);
}

int store_temp_begin_local(const char *path, const char *default_name, uint64_t size_bytes,
			   struct store_temp *ret, char why[static STORE_WHY_MAX])
{
	const char *dir_path, *name;
	char *target = NULL;
	int dir, r;

	r = local_target(path, default_name, &target, why);
	if (r)
		return r;
	xc_auto_free char *owned = target;
	if (cut_path(owned, &dir_path, &name))
		return fail_errno(EISDIR, why, path);
	dir = open(dir_path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (dir < 0)
		return fail_errno(errno, why, dir_path);
	return begin_in(dir, name, path, size_bytes, ret, why);
}

int store_temp_write(struct store_temp *t, const void *data, uint32_t bytes, uint64_t offset,
		     char why[static STORE_WHY_MAX])
{
	for (uint32_t done = 0; done < bytes;) {
		ssize_t n = pwrite(t->fd, (const char *)data + done, bytes - done,
				   (off_t)(offset + done));

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return fail(-errno, why, "writing %.180s: %s", t->name, strerror(errno));
		done += (uint32_t)n;
	}
	return 0;
}

static int sync_dir(int dir)
{
	/* An O_PATH descriptor cannot be synced itself. */
	xc_auto_close int fd = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	return fd < 0 || fsync(fd) < 0 ? -errno : 0;
}

int store_temp_commit(struct store_temp *t, bool sync, char why[static STORE_WHY_MAX])
{
	sigset_t all, before;
	int r = 0;

	/* Some file systems report at close that a write failed. */
	if ((sync && fsync(t->fd) < 0) || close(xc_take_fd(&t->fd)) < 0) {
		r = fail(-errno, why, "writing %.180s: %s", t->name, strerror(errno));
		store_temp_abort(t);
		return r;
	}
	sigfillset(&all);
	sigprocmask(SIG_SETMASK, &all, &before);
	if (renameat(t->dir, t->temp, t->dir, t->name) < 0)
		r = fail(-errno, why, "naming %.180s: %s", t->name, strerror(errno));
	else
		t->open = false;
	sigprocmask(SIG_SETMASK, &before, NULL);
	if (r) {
		store_temp_abort(t);
		return r;
	}
	if (sync)
		r = sync_dir(t->dir);
	if (r)
		fail(r, why, "syncing the directory of %.180s: %s", t->name, strerror(-r));
	close(t->dir);
	return r;
}

void store_temp_abort(struct store_temp *t)
{
	if (!t->open)
		return;
	t->open = false;
	unlinkat(t->dir, t->temp, 0);
	if (t->fd >= 0)
		close(t->fd);
	t->fd = -1;
	close(t->dir);
}

void store_temp_remove_in_handler(const struct store_temp *t)
{
	if (t->open)
		unlinkat(t->dir, t->temp, 0);
}
