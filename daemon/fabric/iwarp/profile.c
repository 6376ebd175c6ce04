/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "daemon/fabric/iwarp/profile.h"

#include <stdio.h>
#include <string.h>

#include "common/checked.h"

/*
 * Sources. Linux: the drivers below drivers/infiniband (in particular what they fill in for
 * query_device and query_port), and include/rdma/ib_cm.h. "seen": found by trying the kernel's
 * driver, 6.1 and 6.12.
 */

#define MIB (UINT64_C(1) << 20)
#define GIB (UINT64_C(1) << 30)

/*
 * InfiniBand's CM has 92, 196 and 148 bytes (ib_cm.h: IB_CM_REQ_PRIVATE_DATA_SIZE and its kin),
 * rdma_cm takes 36 of a request for itself (cma.c: struct cma_hdr), and all of it always travels.
 */
#define IB_PRIVATE_DATA                                                                            \
	.private_connect_bytes = 56, .private_accept_bytes = 196, .private_reject_bytes = 148,     \
	.private_data_padded = true

/* 256 (siw/iwarp.h, cxgb4/iw_cxgb4.h) with the four bytes of MPA revision 2 */
#define MPA_PRIVATE_DATA                                                                           \
	.private_connect_bytes = 252, .private_accept_bytes = 252, .private_reject_bytes = 252

/* Machines of about 2005, as copies go on them; and of about 2015. */
#define OLD_COPIES .copy_ns = 150, .copy_kib_ns = 350, .copy_cold_kib_ns = 900
#define COPIES .copy_ns = 40, .copy_kib_ns = 60, .copy_cold_kib_ns = 150

/* A reliable connection of InfiniBand: an acknowledgement or a NAK for each request. */
#define IB_COMPLETES .receiver_not_ready = true, .acknowledged = true

/* RDMAP (RFC 5040): success of a WRITE or SEND is TCP's matter, a refusal is a Terminate. */
#define IWARP_COMPLETES .refusals_come_late = true, .refused_reads_flush = true

const struct iwarp_profile iwarp_profiles[] = {
	{
		.name = "mthca",
		/* rdma-core's libmthca had no windows; nor has the kernel's mthca_provider.c */
		.keys = FABRIC_KEYS_MR,
		/*
		 * mthca_main.c: the firmware's, or what a descriptor of 512 bytes leaves beside the
		 * headers of a datagram; ibv_devinfo of a Tavor says 30, also for READs
		 */
		.max_sge = 30,
		.max_sge_rd = 30,
		.max_recv_sge = 30,
		/* mthca_main.c: max_wqes is the firmware's max_qp_sz */
		.max_send_wr = 16384,
		.max_recv_wr = 16384,
		/* mthca_provider.c, mthca_query_port: max_msg_sz */
		.max_message_bytes = 2 * GIB,
		IB_PRIVATE_DATA,
		.pins = true,
		IB_COMPLETES,
		/* mthca_qp.c, mthca_max_inline_data: 512 less headers of 16, 16 and 4 bytes */
		.max_inline = 476,
		/*
		 * A guess: a registration is a firmware command, and translation entries written
		 * one by one. A READ more is cheap, beside a copy on machines of that time.
		 */
		.costs = { .wr_ns = 1500, .reg_ns = 100000, .reg_page_ns = 300, OLD_COPIES },
	},
	{
		.name = "mlx4",
		/* mlx4/main.c: IB_DEVICE_MEM_WINDOW_TYPE_2B */
		.keys = FABRIC_KEYS_WINDOW,
		/* mlx4/main.c: the smaller of max_sq_sg and max_rq_sg, 32 with all firmware */
		.max_sge = 32,
		.max_recv_sge = 32,
		/* mlx4/device.h, MLX4_MAX_SGE_RD: (512 - 16 - 16) / 16 */
		.max_sge_rd = 30,
		/* mlx4/main.c: 16,384 less MLX4_IB_SQ_MAX_SPARE, 33 */
		.max_send_wr = 16351,
		.max_recv_wr = 16351,
		/* mlx4/main.c: caps.max_msg_sz, 0x40000000 */
		.max_message_bytes = GIB,
		IB_PRIVATE_DATA,
		.pins = true,
		.remote_invalidate = true,
		IB_COMPLETES,
		/* as programs report it of a ConnectX-3; any value above ours is as good */
		.max_inline = 928,
		/*
		 * mlx4/mr.c: IB_MR_TYPE_MEM_REG, a list of pages and no gaps. What a driver with a
		 * key over any ranges would post: a fast registration before the READ, and a
		 * LOCAL_INV. mlx4/device.h, MLX4_MAX_FAST_REG_PAGES: 511
		 */
		.max_ranges = 256,
		/*
		 * A guess: a registration is a firmware command, a bind a work request. A READ more
		 * is a round trip; a fast registration is less than that, and more than a copy of
		 * little.
		 */
		.costs = { .wr_ns = 2500, .reg_ns = 50000, .reg_page_ns = 250, .ranges_ns = 1600,
			   .range_ns = 20, .bind_ns = 1500, .copy_ns = 30, .copy_kib_ns = 60,
			   .copy_cold_kib_ns = 150 },
	},
	{
		.name = "mlx5",
		/* mlx5/main.c: IB_DEVICE_MEM_WINDOW_TYPE_2B */
		.keys = FABRIC_KEYS_WINDOW,
		/* mlx5/main.c: (512 - 16 - 16) / 16, and MLX5_MAX_SGE_RD is the same */
		.max_sge = 30,
		.max_sge_rd = 30,
		/* mlx5/main.c: max_wqe_sz_rq / 16, with 512 bytes */
		.max_recv_sge = 32,
		/* mlx5/main.c: 1 << log_max_qp_sz, 15 */
		.max_send_wr = 32768,
		.max_recv_wr = 32768,
		/* mlx5/main.c, mlx5_query_hca_port: 1 << log_max_msg, 30 */
		.max_message_bytes = GIB,
		IB_PRIVATE_DATA,
		.pins = true,
		.remote_invalidate = true,
		IB_COMPLETES,
		/* a send queue's entry has 512 bytes or more (max_wqe_sz_sq): above ours */
		.max_inline = 256,
		/* mlx5/main.c: IBK_SG_GAPS_REG; mlx5/mr.c, MLX5_MKC_ACCESS_MODE_KLMS: a key of
		 * ranges, each with its own address and length */
		.max_ranges = 256,
		/*
		 * A guess: registrations as mlx4, with a cache of keys in the kernel. A key over
		 * ranges is a work request that goes with the READ.
		 */
		.costs = { .wr_ns = 1800, .reg_ns = 20000, .reg_page_ns = 250, .ranges_ns = 600,
			   .range_ns = 5, .bind_ns = 1000, COPIES },
	},
	{
		.name = "cxgb4",
		/* cxgb4/mem.c, c4iw_alloc_mw: windows of type 1 only, and later none */
		.keys = FABRIC_KEYS_MR,
		/* cxgb4/t4.h: T4_MAX_SEND_SGE and T4_MAX_WRITE_SGE, (5 * 64 - 32 - 16) / 16 */
		.max_sge = 17,
		/* cxgb4/provider.c: the sink of a READ is one STag */
		.max_sge_rd = 1,
		/* cxgb4/t4.h: T4_MAX_RECV_SGE */
		.max_recv_sge = 4,
		/* cxgb4/device.c: t4_max_qp_depth, 8,192 less status entries (1 or 2) and 1 */
		.max_send_wr = 8190,
		.max_recv_wr = 8190,
		/* cxgb4/provider.c, c4iw_query_port: max_msg_sz = -1 */
		.max_message_bytes = UINT32_MAX,
		MPA_PRIVATE_DATA,
		.pins = true,
		/*
		 * RFC 5040 5.2: what a READ response writes is a tagged buffer like any other; the
		 * hardware checks its right to be written remotely. Without it the READ fails with
		 * IBV_WC_LOC_PROT_ERR.
		 */
		.read_sink_remote_write = true,
		IWARP_COMPLETES,
		/* cxgb4/t4.h: T4_MAX_SEND_INLINE and T4_MAX_WRITE_INLINE are above that */
		.max_inline = 256,
		/*
		 * a guess: a message to the firmware through its control queue. The sink of a READ
		 * that is to be written remotely pays it each time, or is a copy.
		 */
		.costs = { .wr_ns = 2500, .reg_ns = 18000, .reg_page_ns = 100, COPIES },
	},
	{
		.name = "siw",
		/* seen: memory without the right is read, and a READ outlives dereg */
		.keys = FABRIC_KEYS_SLAB,
		/* siw/siw-abi.h: SIW_MAX_SGE; siw/siw.h: SIW_MAX_SGE_RD, "iwarp limitation" */
		.max_sge = 6,
		.max_sge_rd = 1,
		.max_recv_sge = 6,
		/* siw/siw.h: SIW_MAX_QP_WR */
		.max_send_wr = 32768,
		.max_recv_wr = 32768,
		/* siw/siw_verbs.c, siw_query_port: max_msg_sz = -1 */
		.max_message_bytes = UINT32_MAX,
		MPA_PRIVATE_DATA,
		.pins = true,
		/* seen: a READ that fails unsignalled completes as a success */
		.signal_all = true,
		/* seen: both, on both kernels */
		IWARP_COMPLETES,
		/* siw/siw-abi.h, SIW_MAX_INLINE: five of its segments */
		.max_inline = 80,
		/*
		 * registrations seen, emulated: 25 us for one page, 7,666 us for 64 MiB; the rest a
		 * guess: a work request is a system call, and two of TCP
		 */
		.costs = { .wr_ns = 8000, .reg_ns = 25000, .reg_page_ns = 466, COPIES },
	},
	{
		.name = "rxe",
		/* seen: bounds of windows are not enforced; exact registrations hold */
		.keys = FABRIC_KEYS_MR,
		/* rxe/rxe_param.h: RXE_MAX_SGE, RXE_MAX_SGE_RD */
		.max_sge = 32,
		.max_sge_rd = 32,
		.max_recv_sge = 32,
		/* rxe/rxe_param.h: RXE_MAX_QP_WR, until 5.15 */
		.max_send_wr = 16384,
		.max_recv_wr = 16384,
		/* rxe/rxe_param.h: RXE_PORT_MAX_MSG_SZ */
		.max_message_bytes = 8 * MIB,
		/* seen: 56 in a request, 196 in an accept, padded with zeros */
		IB_PRIVATE_DATA,
		.pins = true,
		IB_COMPLETES,
		/* rxe/rxe_param.h, RXE_MAX_INLINE_DATA: 400 once, 512 later */
		.max_inline = 400,
		/*
		 * registrations seen, emulated: 39 us for one page, 1,396 us for 64 MiB; the rest a
		 * guess: a work request is a system call, and two packets
		 */
		.costs = { .wr_ns = 8000, .reg_ns = 39000, .reg_page_ns = 83, COPIES },
	},
	{
		/*
		 * No device: the worst of each line above, and less where core does not depend on
		 * more. Keys are registrations, not slabs: so that client memory is registered, and
		 * the sinks of READs have to be remotely writable.
		 */
		.name = "worst",
		.keys = FABRIC_KEYS_MR,
		.max_sge = 2,
		.max_sge_rd = 1,
		.max_recv_sge = 1,
		.max_send_wr = 128,
		.max_recv_wr = 128,
		.max_message_bytes = MIB,
		.private_connect_bytes = 56,
		.private_accept_bytes = 196,
		.private_reject_bytes = 148,
		.private_data_padded = true,
		.pins = true,
		.read_sink_remote_write = true,
		.signal_all = true,
		IWARP_COMPLETES,
		.costs = { .wr_ns = 8000, .reg_ns = 100000, .reg_page_ns = 466, OLD_COPIES },
	},
	{ .name = NULL },
};

const struct iwarp_profile *iwarp_profile_find(const char *name)
{
	for (const struct iwarp_profile *p = iwarp_profiles; p->name; p++) {
		if (strcmp(p->name, name) == 0)
			return p;
	}
	return NULL;
}

static void at_most_32(uint32_t *value, uint32_t bound)
{
	*value = xc_min_u32(*value, bound);
}

static void at_most_16(uint16_t *value, uint16_t bound)
{
	if (*value > bound)
		*value = bound;
}

void iwarp_profile_apply(const struct iwarp_profile *p, struct fabric_caps *c)
{
	if (!p)
		return;
	snprintf(c->driver, sizeof(c->driver), "like %s", p->name);
	/* each kind is safe where the one before is not */
	if (p->keys > c->keys)
		c->keys = p->keys;
	at_most_32(&c->max_sge, p->max_sge);
	at_most_32(&c->max_sge_rd, p->max_sge_rd);
	at_most_32(&c->max_recv_sge, p->max_recv_sge);
	at_most_32(&c->max_send_wr, p->max_send_wr);
	at_most_32(&c->max_recv_wr, p->max_recv_wr);
	c->max_message_bytes = xc_min_u64(c->max_message_bytes, p->max_message_bytes);
	at_most_32(&c->max_inline, p->max_inline);
	at_most_32(&c->max_ranges, p->max_ranges);
	c->costs = p->costs;
	at_most_16(&c->private_connect_bytes, p->private_connect_bytes);
	at_most_16(&c->private_accept_bytes, p->private_accept_bytes);
	at_most_16(&c->private_reject_bytes, p->private_reject_bytes);
	c->remote_invalidate &= p->remote_invalidate && c->keys == FABRIC_KEYS_WINDOW;
	c->receiver_not_ready &= p->receiver_not_ready;
	c->acknowledged &= p->acknowledged;
	c->pins |= p->pins;
	c->read_sink_remote_write |= p->read_sink_remote_write;
	c->signal_all |= p->signal_all;
	c->private_data_padded |= p->private_data_padded;
}
