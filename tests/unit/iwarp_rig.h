/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef IWARP_RIG_H
#define IWARP_RIG_H

/*
 * An iwarp fabric on a fake engine, and programs that use it: each has a pd, memory that it shares
 * with the fabric, an endpoint, and a record of what it was told.
 */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "daemon/fabric/iwarp/iwarp.h"
#include "daemon/fabric/iwarp/profile.h"
#include "tests/unit/fake_engine.h"

#define PAGE 4096u
#define QUANTUM (256u << 10)
#define IOVA UINT64_C(0x7000000000) /* where a program's memory begins for its keys */
#define RNR_MS 100
#define LOTS (UINT64_C(1) << 30) /* a budget that is never spent */
#define NOTHING_TOLD 1 /* no status is positive */
#define WCS_MAX 1024

struct prog {
	struct rig *rig;
	uint32_t uid, qp_num;
	struct fabric_pd *pd;
	struct fabric_region *region;
	uint16_t listens_at; /* where it did not choose the port */
	uint8_t *mem; /* the program's own map */
	uint64_t bytes;
	struct ibv_mr *mr; /* all of it, every right */
	bool borrows;      /* pd, memory and mr are another's */
	struct fabric_ep *ep;
	/* what it was told */
	int established, disconnected, n_established, n_disconnected;
	uint8_t private_data[FABRIC_PRIVATE_DATA_MAX];
	size_t private_data_bytes;
	struct fabric_conn *conn; /* of the last connection request */
	struct fabric_conn_info info;
	int requests, gone, faults;
	struct ibv_wc wcs[WCS_MAX]; /* polled, oldest first */
	unsigned int n_wcs;
	/* what it does when asked to connect, inside the event */
	void (*on_request)(struct prog *p, struct fabric_conn *conn);
	void (*on_disconnected)(struct prog *p);
	void (*on_fault)(struct prog *p);
	bool no_room; /* answers NULL */
};

#define RIG_PROGS 8

struct rig {
	struct xd_engine engine;
	struct fabric *f;
	const struct fabric_ops *ops;
	struct prog *progs[RIG_PROGS]; /* by qp_num */
	unsigned int n_progs;
	bool in_progress;
};

/* Of the fabric of the next rig_init(); NULL = none. */
extern const struct iwarp_profile *rig_profile;
/* They meet through TCP. */
extern bool rig_wire;

void rig_init(struct rig *rig);
void rig_done(struct rig *rig);

/* A program with memory of this many bytes, but no endpoint. */
void prog_init(struct prog *p, struct rig *rig, uint32_t uid, uint64_t bytes);
/* Another endpoint of the same program. */
void prog_init_sharing(struct prog *p, const struct prog *with);
void prog_done(struct prog *p);
void prog_ep(struct prog *p);       /* 64 and 64 work requests, 4 segments */
void prog_ep_end(struct prog *p);

struct xc_addr local_port(uint16_t port);
struct xc_addr addr(const char *text, uint16_t port);
struct fabric_listener *prog_listen(struct prog *p, uint16_t port);

/* Makes endpoints and connects a to b. */
void connect_progs(struct prog *a, struct prog *b);

/* One call of progress; then polls. Returns what progress returned. */
bool rig_turn(struct rig *rig, uint64_t budget);
/* Turns until there is nothing to do. */
void rig_run(struct rig *rig);
/* Through TCP that is not always enough: until this was told, or somebody asked; for a second. */
void rig_until(struct rig *rig, const int *told, struct fabric_conn *const *asked);

/* Fills memory with bytes that tell their place. */
void fill(struct prog *p, uint64_t from, uint64_t bytes, uint8_t seed);
bool filled(const struct prog *p, uint64_t from, uint64_t bytes, uint8_t seed);

/* Work requests with one segment in the program's memory (or none, where bytes is 0); signalled. */
int post(struct prog *p, struct ibv_send_wr *wr);
int post_rdma(struct prog *p, enum ibv_wr_opcode op, uint64_t id, uint64_t at, uint32_t bytes,
	      uint64_t remote, uint32_t rkey);
int post_send(struct prog *p, uint64_t id, uint64_t at, uint32_t bytes);
int post_send_inv(struct prog *p, uint64_t id, uint64_t at, uint32_t bytes, uint32_t rkey);
int post_recv(struct prog *p, uint64_t id, uint64_t at, uint32_t bytes);
int post_inv(struct prog *p, uint64_t id, uint32_t rkey);
int post_bind(struct prog *p, uint64_t id, struct ibv_mw *mw, uint32_t new_rkey, struct ibv_mr *mr,
	      uint64_t at, uint64_t bytes, unsigned int access);

/*
 * Takes the oldest completion: its status, or -1 where there is none. Fails the test where wr_id is
 * another.
 */
int take(struct prog *p, uint64_t id, struct ibv_wc *ret);
int took(struct prog *p, uint64_t id);

/* Registers [at, at + bytes) of p's memory. */
struct ibv_mr *reg(struct prog *p, uint64_t at, uint64_t bytes, int access);

/* A window over [at, at + bytes) of p's memory, bound on its endpoint. */
struct ibv_mw *window(struct prog *p, uint64_t at, uint64_t bytes, unsigned int access);

#endif
