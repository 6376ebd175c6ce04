/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "daemon/core/limits.h"

#include "common/checked.h"
#include "daemon/core/stage.h"

static uint32_t sge_of(const struct fabric_caps *caps, uint8_t opcode)
{
	uint32_t n = opcode == XP_OP_READ   ? caps->max_sge_rd
		     : opcode == XP_OP_RECV ? caps->max_recv_sge
					    : caps->max_sge;

	return xc_min_u32(n, XD_PLAN_SGE_MAX);
}

void xd_plan_limits_of(const struct fabric_caps *caps, uint8_t opcode, uint64_t stage_bytes,
		       struct xd_plan_limits *ret)
{
	const bool read = opcode == XP_OP_READ, write = opcode == XP_OP_WRITE;

	*ret = (struct xd_plan_limits){
		.max_sge = sge_of(caps, opcode),
		.wr_bytes = xc_min_u64(caps->max_message_bytes,
				       read || write ? XD_PLAN_WR_BYTES_MAX : UINT32_MAX),
		.inline_bytes = write || opcode == XP_OP_SEND ? caps->max_inline : 0,
		.stage_bytes = stage_bytes,
		.ranges = caps->max_ranges,
		.short_in_page = read && caps->short_read_in_page,
		.no_keys = xd_must_stage(caps),
		.exposed_sink = read && caps->read_sink_remote_write,
		.force = XD_RUNG_COUNT,
		.costs = caps->costs,
	};
}
