/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef SIM_FAKE_FABRIC_H
#define SIM_FAKE_FABRIC_H

/*
 * A fabric in memory, whose every delay, failure and order comes from dice, and which holds its
 * user to each rule of daemon/fabric/fabric.h: a rule broken ends the run.
 *
 * Endpoints are told apart by a tag, the first 8 bytes of the private data that they connect or
 * accept with: so that the world, which knows only numbers of objects, can ask about one.
 */

#include "daemon/fabric/fabric.h"
#include "tests/sim/sim.h"

/* Chances, in 1,000, unless said otherwise. */
struct fake_dice {
	uint32_t map_fail;
	uint32_t reg_fail, reg_slow;
	uint32_t ranges_fail; /* keys over several ranges, in addition */
	uint32_t dereg_slow;
	uint32_t mw_fail, mw_slow;
	uint32_t windows; /* there are no more of them at a time; 0: there are */
	uint32_t ep_fail, ep_slow, destroy_slow;
	uint32_t listen_fail, listen_slow;
	uint32_t connect_fail;
	uint32_t post_fail;    /* a chain is cut somewhere */
	uint32_t recv_fail;
	uint32_t cqe_late;     /* a completion waits for another poll */
	uint32_t flush_late;   /* a flush waits for another turn */
	uint32_t flush_never;  /* an endpoint in error says nothing any more */
	uint32_t stall;        /* a connection that will stop in its middle */
	uint32_t vanish;       /* a connection that the peer's host will drop in its middle */
	uint32_t silent;       /* a connection request that nobody hears */
	uint32_t fault;        /* client memory that will vanish in an access */
	uint32_t rnr_turns;    /* turns that a SEND waits for a RECV */
	uint32_t late_turns;   /* turns that a slow thing takes, at most */
	uint32_t measure_fail; /* a measurement finds nothing out */
	uint32_t quantum;      /* bytes a work request moves at a step, at most */
};

/* What the fabric tells its world of, as it happens. */
struct fake_witness {
	void *ctx;
	/* a peer's WRITE of `bytes` into a slab that is exposed on the endpoint of this tag */
	void (*wrote)(void *ctx, uint64_t ep_tag, uint32_t rkey, uint64_t offset,
		      const uint8_t *data, uint64_t bytes);
	/* a RECV of this endpoint has its message */
	void (*arrived)(void *ctx, uint64_t ep_tag);
	/* a window is given to this owner of a domain */
	void (*window)(void *ctx, uint8_t net, uint32_t owner);
};

/*
 * Where caps.keys is FABRIC_KEYS_SLAB the fabric is as weak as such a device: it serves READs of
 * whatever is registered in the endpoint's domain, and goes on with one when its key has died.
 */
struct fake_options {
	struct fabric_caps caps;
	struct fabric_costs measured; /* what measure() finds out */
	bool own_addresses; /* no iova is honoured: registrations lie in a space of the device's */
	struct fake_witness witness;
	struct fake_dice dice;
	uint64_t seed;
	uint8_t net; /* carries 127.0.<net>.0/24 */
};

extern const struct fabric_ops fake_fabric_ops;

int fake_fabric_open(const struct fake_options *options, const struct xd_engine_ref *engine,
		     const struct fabric_events *events, struct fabric **ret);

/* ---- what the world may do to it */

/* Every endpoint fails now, and nothing new succeeds. */
void fake_fabric_lose(struct fabric *f);
/* Things cost something else from now on: the next measurement finds out. */
void fake_fabric_reprice(struct fabric *f, const struct fabric_costs *costs);
/* Other dice from now on. */
void fake_fabric_dice(struct fabric *f, const struct fake_dice *dice);
/* The nth registration from now on, from 1 on, is refused: in the call itself, or later. */
void fake_fabric_refuse(struct fabric *f, uint32_t nth, bool late);
/* Stops new faults, for the end of a run: stalls that exist stay. */
void fake_fabric_calm(struct fabric *f);

/* ---- what the world may see of it */

/* A key that a peer could use now; one over ranges is told once for each of them, in order. */
struct fake_key {
	uint32_t rkey;
	int access;       /* IBV_ACCESS_REMOTE_… */
	uint64_t iova, length;
	uint64_t total;   /* of all its ranges */
	int fd;           /* of the memory behind it */
	uint64_t offset;  /* in it */
	uint64_t ep_tag;  /* on which it works; 0: an endpoint that never connected */
	uint32_t owner;   /* of its domain */
	bool window;
	bool whole;       /* all of the memory behind it */
	uint32_t range, ranges; /* which of how many: iova, length, fd and offset are its */
};
void fake_fabric_keys(struct fabric *f, void (*fn)(void *ctx, const struct fake_key *key),
						   void *ctx);
/* Memory that a registration pins. */
struct fake_pin {
	uint32_t owner;
	int fd; /* -1: a slab's */
	uint64_t length;
	bool exposed; /* to a peer */
	bool part;    /* not all of that memory, or one of many ranges: no buffer's registration */
};
void fake_fabric_pins(struct fabric *f, void (*fn)(void *ctx, const struct fake_pin *pin),
		      void *ctx);
/* Is there a usable key of this value? */
bool fake_fabric_key_live(struct fabric *f, uint32_t rkey);

/*
 * Why this endpoint may end without its client's wish: something happened to it that no core could
 * have prevented. NULL: nothing.
 */
const char *fake_fabric_excuse(struct fabric *f, uint64_t ep_tag);
/* The world gives it one: its client asked for the end. */
void fake_fabric_excuse_set(struct fabric *f, uint64_t ep_tag, const char *why);
/*
 * Endpoints that their user ended while they were connected and nothing excused it; each is told
 * once.
 */
void fake_fabric_killed(struct fabric *f, void (*fn)(void *ctx, uint64_t ep_tag), void *ctx);
/* Connected, as the fabric sees it. */
bool fake_fabric_connected(struct fabric *f, uint64_t ep_tag);
/* Objects alive; figures for traces. */
uint32_t fake_fabric_objects(const struct fabric *f);
/* Its endpoints and their queues, into the trace. */
void fake_fabric_dump(struct fabric *f);

/* ---- client memory: what a client would share as a memfd */

/* A number that stands for a descriptor. Its bytes live until fake_memory_done(). */
int fake_memory_new(uint64_t size_bytes);
uint8_t *fake_memory(int fd, uint64_t *ret_bytes);
/* Does this number lie in memory of this process: a client's, or a slab? */
bool fake_memory_holds(uint64_t address);
/* Regions mapped now. */
uint32_t fake_memory_regions(void);
/* Dice of map and copy, which know no instance. */
void fake_memory_init(uint64_t seed, uint32_t map_fail_permille, uint32_t fault_permille);
/* Bytes copied since the start. */
uint64_t fake_memory_copied(void);
/* Bytes of the daemon's own that are mapped now; owner NULL: for all. */
uint64_t fake_memory_slab_bytes(const uint32_t *owner);
/* An access to this memory failed. */
bool fake_memory_faulted(int fd);
void fake_memory_done(void);

#endif
