/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "daemon/io/server.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "common/assert.h"
#include "daemon/io/conn.h"
#include "daemon/io/sockpath.h"

/*
 * A packet may bring XP_FDS_MAX descriptors, and where there is no room for them the kernel cuts
 * the list, which looks like a fault of the client: so connections leave that much free.
 */
#define HEADROOM (XP_FDS_MAX + 67)

static int fd_limit(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) < 0 || limit.rlim_cur > INT32_MAX)
		return INT32_MAX;
	if (limit.rlim_cur / 4 < HEADROOM)
		return (int)(limit.rlim_cur - limit.rlim_cur / 4);
	return (int)limit.rlim_cur - HEADROOM;
}

static int64_t gid_of(const char *name)
{
	const struct group *g = getgrnam(name);

	return g ? (int64_t)g->gr_gid : -1;
}

int xd_server_new(struct xd_engine *e, struct xd_core *core, const struct xd_policy *policy,
		  struct xd_logger *logger, struct xd_server **ret)
{
	struct xd_server *s = calloc(1, sizeof(*s));

	if (!s)
		return -ENOMEM;
	if (xd_arena_new(&s->arena) < 0) {
		free(s);
		return -ENOMEM;
	}
	s->engine = e;
	s->ops = &xd_engine_ops;
	s->core = core;
	s->policy = policy;
	s->logger = logger;
	s->admin_gid = gid_of(XD_ADMIN_GROUP);
	s->fd_limit = fd_limit();
	s->reserve = open("/dev/null", O_RDONLY | O_CLOEXEC);
	xc_list_init(&s->conns);
	xc_list_init(&s->handshakes);
	xc_list_init(&s->closing);
	xc_list_init(&s->staged);
	*ret = s;
	return 0;
}

/* ---- admission */

static bool is_admin(const struct xd_server *s, const struct xd_credentials *cred)
{
	return cred->uid == 0 || cred->uid == geteuid() ||
	       (s->admin_gid >= 0 && xd_credentials_in_group(cred, (uint32_t)s->admin_gid));
}

/* One user may have a quarter of the connections that have not said hello. */
static uint32_t handshake_share(uint32_t total)
{
	return total < 4 ? 1 : total / 4;
}

/* 0, or why this client is not let in. */
static int admission(const struct xd_server *s, int fd, const struct xd_credentials *cred,
		     bool admin, char *ret_why)
{
	uint32_t total = s->policy->handshakes, share = handshake_share(total);

	if (fd >= s->fd_limit) {
		snprintf(ret_why, XD_TEXT_MAX, "the daemon has no descriptors left");
		return -EMFILE;
	}
	if (admin && !is_admin(s, cred)) {
		snprintf(ret_why, XD_TEXT_MAX,
			 "this socket is for administrators: uid 0, uid %u or group %s",
			 (unsigned)geteuid(), XD_ADMIN_GROUP);
		return -XP_E_DENIED;
	}
	if (xd_conn_closing_of(s, cred->uid) >= XD_CLOSING_PER_UID) {
		snprintf(ret_why, XD_TEXT_MAX,
			 "%d sockets of uid %u are still being closed, the most",
			 XD_CLOSING_PER_UID, cred->uid);
		return -XP_E_SLOW_CLOSE;
	}
	if (s->n_handshakes >= total) {
		snprintf(ret_why, XD_TEXT_MAX,
			 "%u connections have not said hello yet, the most (handshakes)", total);
		return -XP_E_QUOTA;
	}
	if (xd_conn_handshakes_of(s, cred->uid) >= share) {
		snprintf(ret_why, XD_TEXT_MAX,
			 "%u connections of uid %u have not said hello yet, the most of one user",
			 share, cred->uid);
		return -XP_E_QUOTA;
	}
	return 0;
}

void xd_server_refuse(struct xd_server *s, int fd, int status, const char *text)
{
	struct xd_credentials cred = { 0 };
	uint32_t uid = xd_credentials_of(fd, &cred) == 0 ? cred.uid : 0;

	xd_credentials_done(&cred);
	xd_conn_refuse(s, fd, uid, status, text);
}

static void refuse_logged(struct xd_server *s, int fd, uint32_t uid, int status, const char *why)
{
	const struct xd_log about = {
		.priority = XD_NOTICE,
		.client_uid = uid,
		.client_caused = true,
	};

	s->ops->log(s->engine, &about, "A connection of uid %u was refused: %s.", uid, why);
	xd_conn_refuse(s, fd, uid, status, why);
}

void xd_server_accept(struct xd_server *s, int fd, bool admin)
{
	struct xd_credentials cred = { 0 };
	char why[XD_TEXT_MAX] = "";
	int pidfd = -1, r;

	r = xd_credentials_of(fd, &cred);
	if (r < 0) {
		xd_conn_refuse(s, fd, 0, r, "the daemon cannot tell whose this connection is");
		return;
	}
	r = admission(s, fd, &cred, admin, why);
	if (r == 0) {
		r = xd_peer_pidfd(fd, cred.pid, &pidfd);
		/* -ESRCH: nobody is there to read it. */
		snprintf(why, sizeof(why), "the process cannot be watched: %s", strerror(-r));
	}
	if (r < 0)
		refuse_logged(s, fd, cred.uid, r, why);
	else
		xd_conn_start(s, fd, pidfd, &cred, admin);
	xd_credentials_done(&cred);
}

/* ---- the end */

bool xd_server_idle(const struct xd_server *s)
{
	return !s->n_conns && !s->n_closing;
}

void xd_server_close(struct xd_server *s)
{
	while (!xc_list_empty(&s->conns))
		xd_conn_close(xd_conn_of(s->conns.next));
}

void xd_server_free(struct xd_server *s)
{
	struct xc_list *l;

	if (!s)
		return;
	xc_assert(xd_server_idle(s));
	while ((l = xc_list_pop(&s->staged)))
		free(xc_container_of(l, struct xd_staged, link));
	if (s->reserve >= 0)
		close(s->reserve);
	xd_arena_free(s->arena);
	free(s);
}

/* ---- packets that wait */

struct xd_staged *xd_staged_get(struct xd_server *s)
{
	struct xc_list *l = xc_list_pop(&s->staged);
	struct xd_staged *staged;

	if (l) {
		s->n_staged--;
		return xc_container_of(l, struct xd_staged, link);
	}
	staged = malloc(sizeof(*staged));
	if (staged)
		xc_list_init(&staged->link);
	return staged;
}

void xd_staged_put(struct xd_server *s, struct xd_staged *staged)
{
	if (s->n_staged >= XD_STAGED_KEPT) {
		free(staged);
		return;
	}
	xc_list_append(&s->staged, &staged->link);
	s->n_staged++;
}
