/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include <errno.h>
#include <unistd.h>

#include "common/assert.h"
#include "daemon/fabric/iwarp/stream.h"

/* Taken at a time; what is left is seen at the next look. */
#define EVENTS 64

int poll_open(struct fabric *f)
{
	f->epoll_fd = -1;
	if (f->no_wire)
		return 0;
	f->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	return f->epoll_fd < 0 ? -errno : 0;
}

void poll_close(struct fabric *f)
{
	xc_assert(f->watched == 0);
	if (f->epoll_fd >= 0)
		close(f->epoll_fd);
}

int poll_add(struct fabric *f, int fd, uint32_t events, struct iwarp_watch *w)
{
	struct epoll_event e = { .events = events, .data.ptr = w };

	if (epoll_ctl(f->epoll_fd, EPOLL_CTL_ADD, fd, &e) < 0)
		return -errno;
	f->watched++;
	return 0;
}

void poll_remove(struct fabric *f, int fd)
{
	int r = epoll_ctl(f->epoll_fd, EPOLL_CTL_DEL, fd, NULL);

	xc_assert(r == 0);
	f->watched--;
}

/*
 * Nothing is run or freed from here, so no event of the batch can be of something that an earlier
 * one has ended.
 */
void poll_look(struct fabric *f)
{
	struct epoll_event events[EVENTS];
	int n;

	if (!f->watched)
		return;
	do
		n = epoll_wait(f->epoll_fd, events, EVENTS, 0);
	while (n < 0 && errno == EINTR);
	xc_assert(n >= 0);
	for (int i = 0; i < n; i++) {
		struct iwarp_watch *w = events[i].data.ptr;

		w->ready(w, events[i].events);
	}
}
