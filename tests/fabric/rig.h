/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef FABRIC_TEST_RIG_H
#define FABRIC_TEST_RIG_H

/*
 * What the tests of a fabric share: the instances, ends of connections with memory of their own,
 * listeners, exposures, and a record of all that they were told. The rig checks by itself, in every
 * test, what holds always:
 *
 * - events and completions come from inside progress() and poll() only, and for what exists;
 * - established comes once; disconnected at most once, after established(0);
 * - completions of a queue come in the order of posting, each once, none for what was not posted,
 *   and only unsignalled successes have none;
 * - taking all down at the end of a test works, in the order of fabric.h.
 *
 * A broken rule ends the process (see report.h): nothing has to be undone.
 */

#include "common/list.h"
#include "daemon/fabric/fabric.h"
#include "tests/fabric/engine.h"
#include "tests/fabric/report.h"

#define PAGE 4096u
#define KIB 1024u
#define MIB (1024u * KIB)
#define QUEUED_MAX 512
#define ASKS_MAX 64
#define OWNER 1000
/* What is asked for; devices may ignore it. */
#define IOVA UINT64_C(0x7000000000)
/* Of the wr_id of a RECV: a completion that failed does not say which queue it is of. */
#define RECV_ID(n) (UINT64_C(1) << 63 | (n))

struct side {
	struct fabric *f;
	struct xc_addr at;
};

/* Of one queue: 0 sends, 1 receives. */
struct ids {
	uint64_t id[QUEUED_MAX];
	bool quiet[QUEUED_MAX];
	unsigned int n;
};

struct wcs {
	struct ibv_wc wc[QUEUED_MAX];
	unsigned int n;
};

struct end {
	struct xc_list link;
	struct side *side;
	struct fabric_pd *pd;
	struct fabric_region *region;
	uint8_t *mem; /* the test's own view of it */
	uint64_t bytes;
	struct ibv_mr *mr; /* all of it, for local use */
	bool borrows;      /* pd, memory and mr are another's */
	bool own_map;      /* mem is a map of its own */
	struct fabric_ep *ep;
	uint32_t qp_num;
	bool dead, asked; /* ep_destroy is done; ep_connect or ep_accept returned 0 */
	bool ended_here;  /* ep_disconnect or ep_error was called */
	int n_established, established, n_disconnected, disconnected;
	uint8_t private_data[FABRIC_PRIVATE_DATA_MAX];
	size_t private_bytes;
	struct ids posted[2];
	struct wcs wcs[2]; /* not yet taken */
};

/* A connection request. */
struct ask {
	struct ear *ear;
	struct fabric_conn *conn; /* NULL: answered or gone */
	struct xc_addr peer;
	uint8_t private_data[FABRIC_PRIVATE_DATA_MAX];
	size_t private_bytes;
	bool gone;
};

struct ear {
	struct xc_list link;
	struct fabric_listener *l;
	struct xc_addr at;
	bool refuse; /* answer with NULL */
	unsigned int n_asks, refused;
	struct ask asks[ASKS_MAX];
};

/* Bytes of an end that its peer may reach. */
struct exposure {
	struct xc_list link;
	struct end *of;
	struct ibv_mr *mr;
	struct ibv_mw *mw;
	uint64_t address;
	uint32_t rkey;
	bool dead;
};

struct rig {
	struct xd_engine *engine;
	const struct fabric_ops *ops;
	const struct fabric_caps *caps; /* of the server's instance */
	struct side sides[ENGINE_FABRICS];
	int n_sides;
	struct side *server, *client;
	uint64_t limit_ms; /* a wait that lasts longer has failed */
	uint64_t quiet_ms; /* how long it takes until what comes late has come */
	bool has_silent;
	struct xc_addr silent; /* nobody answers there */
	struct xc_list ends, ears, exposures;
	struct xc_list retired; /* ears that no longer listen */
};

extern struct rig rig;

/* 0 = a default */
struct end_attr {
	uint64_t bytes;
	uint32_t send_wr, recv_wr, send_sge, recv_sge;
};

/* ---- time */

/* False: the limit has passed. */
bool rig_turn(uint64_t until_ns);
uint64_t rig_limit(void);
/* What comes late comes now. */
void rig_quiet(void);

#define WAIT(cond)                                                                                 \
	do {                                                                                       \
		uint64_t until_ = rig_limit();                                                     \
		while (!(cond))                                                                    \
			if (!rig_turn(until_))                                                     \
				report_failure(__FILE__, __LINE__, "in vain: " #cond);             \
	} while (0)

/* A call that may end later: its result, now or then. */
struct waiting {
	struct fabric_done done;
	bool over;
	int status;
};

#define WAITING(name) struct waiting name = { .done.fn = rig_over }

void rig_over(struct fabric_done *done, int status);
int rig_finish(int err, struct waiting *w);

/* ---- life */

extern const struct fabric_events rig_events;

void rig_polled(struct fabric *f, const struct ibv_wc *wc);
/* All that the test has made goes, in the order of fabric.h. */
void rig_clean(void);

/* Of rig_memory.c, for rig.c. */
void rig_memory_new(struct end *e);
void rig_memory_free(struct end *e);
void rig_exposures_free(void);

/* ---- ends */

struct end *end_new(struct side *side, const struct end_attr *attr);
/* Another endpoint on the same pd and memory. */
struct end *end_twin(struct end *of);
void end_destroy(struct end *e);
void end_error(struct end *e);
void end_disconnect(struct end *e);

struct ear *hear(struct side *side);
/* Listens there; the status of it. */
int hear_at(struct side *side, const struct xc_addr *at, struct ear **ret);
/* It listens no more; requests stay to be answered. */
void stop_hearing(struct ear *ear);

int ask(struct end *e, const struct xc_addr *dst, const void *private_data, size_t bytes);
/* Waits for that request. */
struct ask *asked(struct ear *ear, unsigned int nth);
int accept_ask(struct end *e, struct ask *a, const void *private_data, size_t bytes);
void reject_ask(struct ask *a, const void *private_data, size_t bytes);

/* a, at the client's side, to b, at the server's. */
void join(struct end *a, struct end *b);
void pair(const struct end_attr *attr, struct end **ret_a, struct end **ret_b);
/* Waits until both have heard that it ended. */
void until_ended(struct end *a, struct end *b);

/* ---- memory */

struct ibv_mr *reg(struct end *e, uint64_t at, uint64_t bytes, int access);
void dereg(struct ibv_mr *mr);
/*
 * Exposes bytes as grants of this kind are made; access is REMOTE_READ or REMOTE_WRITE. A window is
 * bound through the end's connection.
 */
struct exposure *expose_as(enum fabric_keys kind, struct end *of, uint64_t at, uint64_t bytes,
			   int access);
/* As the caps say. */
struct exposure *expose(struct end *of, uint64_t at, uint64_t bytes, int access);
/* Kills the key: LOCAL_INV, or dereg. */
void conceal(struct exposure *x);

void fill(uint8_t *at, uint64_t bytes, uint8_t seed);
bool filled(const uint8_t *at, uint64_t bytes, uint8_t seed);
bool all_are(const uint8_t *at, uint64_t bytes, uint8_t value);

/* ---- work requests. Without data (bytes = 0) they have no segment. */

struct ibv_sge sge_of(const struct end *e, uint64_t at, uint32_t bytes);
/* 0 or -errno; the rig notes what was posted. */
int post(struct end *e, struct ibv_send_wr *chain, struct ibv_send_wr **ret_bad);
int post_recvs(struct end *e, struct ibv_recv_wr *chain, struct ibv_recv_wr **ret_bad);
/* Signalled, and to succeed. */
void post_rdma(struct end *e, enum ibv_wr_opcode op, uint64_t id, uint64_t at, uint32_t bytes,
	       const struct exposure *x, uint64_t offset);
void post_send(struct end *e, uint64_t id, uint64_t at, uint32_t bytes);
void post_recv(struct end *e, uint64_t id, uint64_t at, uint32_t bytes);

/* Waits for the next completion of the queue that id is of; it must be that of id. Its status. */
int rig_take(const char *file, int line, struct end *e, uint64_t id, struct ibv_wc *ret);
#define take(e, id, ret) rig_take(__FILE__, __LINE__, e, id, ret)
#define took(e, id) rig_take(__FILE__, __LINE__, e, id, &(struct ibv_wc){ 0 })

#endif
