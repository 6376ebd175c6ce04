/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The operations that a program posts: each is a description of a post. */
#include <errno.h>

#include "client-lib/post.h"

#define SEND_FLAGS (XFER_FENCE | XFER_QUIET | XFER_SOLICITED | XFER_EXPLAIN | XFER_MORE)
#define READ_FLAGS (XFER_FENCE | XFER_QUIET | XFER_EXPLAIN | XFER_MORE)
#define WRITE_FLAGS (XFER_FENCE | XFER_QUIET | XFER_PLACED | XFER_EXPLAIN | XFER_MORE)

XFER_API int xfer_post_read(struct xfer_ep *ep, const struct iovec *local, int n_local,
			    const struct xfer_token *remote, int n_remote, uint64_t wr_id,
			    unsigned int flags, uint64_t *ret_cookie)
{
	struct cl_post p = { .what = "read", .ep = ep, .opcode = XP_OP_READ, .local = local,
			  .n_local = n_local, .remote = remote, .n_remote = n_remote,
			  .wr_id = wr_id, .flags = flags, .allowed = READ_FLAGS,
			  .ret_cookie = ret_cookie };

	return cl_post(&p);
}

XFER_API int xfer_post_write(struct xfer_ep *ep, const struct iovec *local, int n_local,
			     const struct xfer_token *remote, int n_remote, uint64_t wr_id,
			     unsigned int flags, uint64_t *ret_cookie)
{
	struct cl_post p = { .what = "write", .ep = ep, .opcode = XP_OP_WRITE, .local = local,
			  .n_local = n_local, .remote = remote, .n_remote = n_remote,
			  .wr_id = wr_id, .flags = flags, .allowed = WRITE_FLAGS,
			  .ret_cookie = ret_cookie };

	return cl_post(&p);
}

XFER_API int xfer_post_write_imm(struct xfer_ep *ep, const struct iovec *local, int n_local,
				 const struct xfer_token *remote, int n_remote,
				 uint32_t immediate, uint64_t wr_id, unsigned int flags,
				 uint64_t *ret_cookie)
{
	struct cl_post p = { .what = "write_imm", .ep = ep, .opcode = XP_OP_WRITE, .local = local,
			  .n_local = n_local, .remote = remote, .n_remote = n_remote,
			  .wr_id = wr_id, .flags = flags, .allowed = WRITE_FLAGS | XFER_SOLICITED,
			  .wire = XP_F_IMMEDIATE, .key = immediate, .ret_cookie = ret_cookie };

	return cl_post(&p);
}

XFER_API int xfer_post_send(struct xfer_ep *ep, const struct iovec *local, int n_local,
			    uint64_t wr_id, unsigned int flags, uint64_t *ret_cookie)
{
	struct cl_post p = { .what = "send", .ep = ep, .opcode = XP_OP_SEND, .local = local,
			  .n_local = n_local, .wr_id = wr_id, .flags = flags,
			  .allowed = SEND_FLAGS, .ret_cookie = ret_cookie };

	return cl_post(&p);
}

XFER_API int xfer_post_send_inv(struct xfer_ep *ep, const struct iovec *local, int n_local,
				uint32_t rkey, uint64_t wr_id, unsigned int flags,
				uint64_t *ret_cookie)
{
	struct cl_post p = { .what = "send_inv", .ep = ep, .opcode = XP_OP_SEND, .local = local,
			  .n_local = n_local, .wr_id = wr_id, .flags = flags,
			  .allowed = SEND_FLAGS, .wire = XP_F_INVALIDATE, .key = rkey,
			  .ret_cookie = ret_cookie };

	return cl_post(&p);
}

XFER_API int xfer_post_send_imm(struct xfer_ep *ep, const struct iovec *local, int n_local,
				uint32_t immediate, uint64_t wr_id, unsigned int flags,
				uint64_t *ret_cookie)
{
	struct cl_post p = { .what = "send_imm", .ep = ep, .opcode = XP_OP_SEND, .local = local,
			  .n_local = n_local, .wr_id = wr_id, .flags = flags,
			  .allowed = SEND_FLAGS, .wire = XP_F_IMMEDIATE, .key = immediate,
			  .ret_cookie = ret_cookie };

	return cl_post(&p);
}

XFER_API int xfer_post_recv(struct xfer_ep *ep, const struct iovec *local, int n_local,
			    uint64_t wr_id, unsigned int flags, uint64_t *ret_cookie)
{
	struct cl_post p = { .what = "recv", .ep = ep, .opcode = XP_OP_RECV, .local = local,
			  .n_local = n_local, .wr_id = wr_id, .flags = flags,
			  .allowed = XFER_EXPLAIN | XFER_MORE, .ret_cookie = ret_cookie };

	return cl_post(&p);
}

XFER_API int xfer_grant(struct xfer_ep *ep, const void *address, uint64_t bytes,
			unsigned int access, uint64_t lifetime_ms, uint64_t wr_id,
			unsigned int flags, uint64_t *ret_cookie)
{
	struct iovec local = { .iov_base = (void *)(uintptr_t)address, .iov_len = bytes };
	struct cl_post p = { .what = "grant", .ep = ep, .opcode = XP_OP_GRANT, .local = &local,
			  .n_local = 1, .wr_id = wr_id, .flags = flags,
			  .allowed = XFER_FENCE | XFER_MORE, .wire = access,
			  .argument = lifetime_ms, .ret_cookie = ret_cookie };

	if (access != XFER_GRANT_READ && access != XFER_GRANT_WRITE)
		return cl_fail(-EINVAL, "grant: access 0x%x: XFER_GRANT_READ or XFER_GRANT_WRITE",
			       access);
	if (bytes == 0 || bytes > UINT32_MAX)
		return cl_fail(-EINVAL, "grant: %llu bytes: 1 to 2^32-1",
			       (unsigned long long)bytes);
	return cl_post(&p);
}

static int check_patches(const struct xfer_patch *patches, int n)
{
	if (n < 0 || n > XFER_PATCHES_MAX || (n && !patches))
		return cl_fail(-EINVAL, "grantv: %d patches%s: 0 to %d", n,
			       n > 0 && !patches ? " at NULL" : "", XFER_PATCHES_MAX);
	for (int i = 0; i < n; i++) {
		const struct xfer_patch *p = &patches[i];
		/* The rest, a 3-byte length that is too long for it among it, the daemon checks. */
		int fits = p->field == XFER_FIELD_ADDRESS  ? p->width == 8
			   : p->field == XFER_FIELD_RKEY   ? p->width == 4 || p->width == 8
			   : p->field == XFER_FIELD_LENGTH ? p->width == 3 || p->width == 4 ||
								     p->width == 8
							   : 0;

		if (!fits)
			return cl_fail(-EINVAL, "grantv: patch %d: field %d, %u bytes wide", i,
				       (int)p->field, p->width);
	}
	return 0;
}

XFER_API int xfer_grantv(struct xfer_ep *ep, const struct iovec *local, int n_local,
			 unsigned int access, uint64_t lifetime_ms,
			 const struct xfer_patch *patches, int n_patches, uint64_t wr_id,
			 unsigned int flags, uint64_t *ret_cookie)
{
	struct xfer_token fields[XFER_PATCHES_MAX];
	struct cl_post p = { .what = "grantv", .ep = ep, .opcode = XP_OP_GRANT, .local = local,
			     .n_local = n_local, .remote = fields, .n_remote = n_patches,
			     .wr_id = wr_id, .flags = flags, .allowed = XFER_FENCE | XFER_MORE,
			     .wire = access | (n_patches ? XP_F_LINK : 0), .argument = lifetime_ms,
			     .ret_cookie = ret_cookie };

	if (access != XFER_GRANT_READ && access != XFER_GRANT_WRITE)
		return cl_fail(-EINVAL, "grantv: access 0x%x: XFER_GRANT_READ or XFER_GRANT_WRITE",
			       access);
	if (n_local < 1)
		return cl_fail(-EINVAL, "grantv: %d pieces: 1 to %d", n_local, XFER_SEGMENTS_MAX);
	if (check_patches(patches, n_patches) < 0)
		return -EINVAL;
	for (int i = 0; i < n_patches; i++)
		fields[i] = (struct xfer_token){
			.address = patches[i].offset,
			.length = patches[i].width,
			.rkey = (uint32_t)patches[i].field |
				(patches[i].big_endian ? XP_PATCH_BIG_ENDIAN : 0),
		};
	return cl_post(&p);
}

XFER_API int xfer_revoke(struct xfer_ep *ep, uint32_t grant, uint64_t wr_id, unsigned int flags,
			 uint64_t *ret_cookie)
{
	struct cl_post p = { .what = "revoke", .ep = ep, .opcode = XP_OP_REVOKE, .key = grant,
			  .wr_id = wr_id, .flags = flags,
			  .allowed = XFER_FENCE | XFER_QUIET | XFER_MORE,
			  .ret_cookie = ret_cookie };

	return cl_post(&p);
}

XFER_API int xfer_cancel(struct xfer_ep *ep, uint64_t cookie, uint64_t wr_id)
{
	struct cl_post p = { .what = "cancel", .ep = ep, .opcode = XP_OP_CANCEL, .argument = cookie,
			  .wr_id = wr_id };

	return cl_post(&p);
}

XFER_API int xfer_flush(struct xfer_client *c)
{
	int r = cl_enter(c);

	if (r < 0)
		return r;
	r = cl_alive(c);
	if (r == 0 && cl_batch_flush(c) == -XFER_E_DAEMON_GONE)
		r = cl_alive(c);
	return cl_leave(c, r);
}
