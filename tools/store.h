/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef TOOLS_STORE_H
#define TOOLS_STORE_H

/*
 * Files that are served and files that arrive. A path from a peer never leaves the directory
 * served: it is resolved by the kernel with RESOLVE_BENEATH (openat2(2)), which also holds against
 * directories that are moved meanwhile. Only regular files are read or replaced. What arrives is
 * written under a temporary name in its directory and takes its own name when it is complete.
 *
 * All functions return 0 or a negative errno; with a `why`, a sentence for people is in it then.
 * They block as long as the file system does.
 */

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

#define STORE_WHY_MAX 256
#define STORE_NAME_MAX 256

/* A file that is read. */
struct store_source {
	int fd;
	uint64_t size_bytes;
	struct stat at_open;
};

/* A file that arrives. All zero: none. */
struct store_temp {
	int dir;                    /* its directory */
	int fd;
	bool open;
	char name[STORE_NAME_MAX];  /* to be */
	char temp[STORE_NAME_MAX];  /* ".NAME.abcdef" */
};

/* The directory to serve. */
int store_open_root(const char *dir, int *ret_fd, char why[static STORE_WHY_MAX]);

/*
 * Opens what a peer asks for, below root. -ENOENT, -EACCES, -EISDIR, -EXDEV (it leads out of the
 * directory), -EINVAL (no regular file), …
 */
int store_source_open(int root, const char *path, struct store_source *ret,
		      char why[static STORE_WHY_MAX]);

/* The same for a path of the user's own, anywhere. */
int store_source_open_local(const char *path, struct store_source *ret,
			    char why[static STORE_WHY_MAX]);

void store_source_close(struct store_source *s);

/* Exactly these bytes. -ENODATA: the file has become shorter. */
int store_source_read(const struct store_source *s, void *data, uint32_t bytes, uint64_t offset,
		      char why[static STORE_WHY_MAX]);

/*
 * -ESTALE where size, modification or change time are not what they were at the opening. (Two
 * changes within one tick of the kernel's clock look like one.)
 */
int store_source_unchanged(const struct store_source *s, char why[static STORE_WHY_MAX]);

/*
 * Begins a file of size_bytes that arrives as `path` below root. An existing regular file of that
 * name stays as it is until the commit replaces it at once; anything else of that name is refused
 * (-EISDIR, -EEXIST). -ENOENT (the directory), -EXDEV, -EACCES, -ENOSPC (less room than
 * size_bytes), …
 */
int store_temp_begin(int root, const char *path, uint64_t size_bytes, struct store_temp *ret,
		     char why[static STORE_WHY_MAX]);

/*
 * The same for a path of the user's own. A directory: `default_name` in it. A symbolic link: the
 * file that it leads to.
 */
int store_temp_begin_local(const char *path, const char *default_name, uint64_t size_bytes,
			   struct store_temp *ret, char why[static STORE_WHY_MAX]);

int store_temp_write(struct store_temp *t, const void *data, uint32_t bytes, uint64_t offset,
		     char why[static STORE_WHY_MAX]);

/*
 * Gives the file its name. sync: on the disk before that, and its name after. On failure nothing is
 * left.
 */
int store_temp_commit(struct store_temp *t, bool sync, char why[static STORE_WHY_MAX]);

/* Removes the temporary file, if there is one. */
void store_temp_abort(struct store_temp *t);

/* The same, from a signal handler: async-signal-safe, and leaves everything else alone. */
void store_temp_remove_in_handler(const struct store_temp *t);

#endif
