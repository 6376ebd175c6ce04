/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef SIM_WORLD_H
#define SIM_WORLD_H

/*
 * Users, their sessions and all that they do to the daemon's core, by dice; and beside it a model
 * of what must be true, to which every answer of the core is held.
 *
 * Who owns which bytes: a range of a buffer belongs to at most one unfinished request or live grant
 * (as a careful program would have it), so that its contents can be foretold. What nobody owns must
 * not change.
 */

#include "common/list.h"
#include "daemon/core/core.h"
#include "tests/sim/fake_fabric.h"
#include "tests/sim/sim.h"
#include "tests/unit/fake_engine.h"

#define W_GRAIN 16u /* bytes; ranges are owned in grains */
/* GRANTs into one message: no more are made for one endpoint before they are taken. */
#define W_LINKS_MAX 4u
#define W_FABRICS 2
#define W_USERS 3

struct w_session;
struct w_ep;

/* How transfers were carried. */
extern const enum xd_counter w_ways[];
#define W_WAYS 7

enum w_life { W_COMING, W_LIVE, W_GOING, W_GONE };

struct w_buffer {
	struct xc_list link;
	struct w_session *session;
	enum w_life life;
	int fd;
	uint64_t size;
	uint32_t number;
	uint64_t add_serial, remove_serial;
	uint8_t *bytes, *shadow;
	uint16_t *owners; /* of each grain */
	uint8_t *mine;    /* of each byte: so many ranges that are owned have it */
	uint32_t owned;   /* ranges */
};

struct w_range {
	struct w_buffer *buffer;
	uint64_t offset;
	uint32_t length;
};

/* A grant, as its owner and its peer know it. */
struct w_grant {
	struct xc_list link; /* the world's */
	struct w_session *session;
	struct w_ep *ep;
	struct w_range *ranges; /* in the order of the token's bytes */
	uint32_t n_ranges, length;
	uint32_t number, rkey;
	uint64_t address;
	bool write;
	/*
	 * Where grants are copies: what the peer sees, or has written; and when it wrote each byte,
	 * 0 = never.
	 */
	bool snapshot;
	uint8_t *content;
	uint64_t *written, first_written;
	/* when it may have, and must have, ended by itself; 0: never */
	uint64_t earliest_ns, deadline_ns;
	/* COMING: asked for; LIVE: token known; GOING: a REVOKE is out; GONE: dead for sure */
	enum w_life life;
	bool twice;           /* more than one REVOKE is out, perhaps */
	bool maybe_dead;      /* the peer may have invalidated it, or its time is over */
	bool seen;            /* by the check that is under way */
	uint32_t refs;        /* requests that aim at it, and the world while it is not GONE */
};

/*
 * A GRANT whose token goes into a message (XP_F_LINK): its endpoint's until a SEND takes it, then
 * that one's. What it says is known when the GRANT's completion was read.
 */
struct w_link {
	struct xc_list link;
	uint64_t wr_id; /* of the GRANT */
	uint32_t n_patches;
	struct xp_segment patches[XP_PATCHES_MAX];
	bool ended;
	int status;
	uint64_t value[XP_FIELD_COUNT];
	/* A message that arrived before: what it had at the places of the patches. */
	bool arrived;
	uint8_t seen[XP_PATCHES_MAX][8];
	uint32_t refs; /* the GRANT while unfinished, the list it is on, the message */
};

struct w_request {
	struct xc_list link; /* session's, unfinished, in order of submission */
	struct w_session *session;
	struct w_ep *ep; /* NULL: it named none */
	struct xp_request r;
	uint64_t bytes;
	struct xp_segment *segments; /* local, then remote */
	uint32_t n_local;
	uint32_t n_ranges;
	struct w_range *ranges; /* owned until it ends */
	uint8_t *data;          /* WRITE, SEND: what goes out; READ: what must come */
	bool data_known;
	struct w_grant **targets; /* of READ and WRITE, by remote segment; NULL: a wrong token */
	uint32_t n_targets;
	struct w_grant *grant;    /* GRANT, REVOKE, SEND that invalidates */
	struct w_link *link_to;   /* GRANT: into a message */
	struct xc_list links;     /* SEND: of GRANTs before it */
	bool lost_link;           /* SEND: a GRANT that was for it was refused */
	bool left_links;          /* SEND: it was not the one that those wait for */
	bool outside;             /* SEND: it is too short for them */
	uint64_t source;          /* SEND with a fence: wr_id of the READ that brings its bytes */
	bool fed_wrong;           /* READ: such a SEND had others */
	uint64_t target_cookie;
	bool has_list;      /* the last range is its segment list */
	bool again;         /* a REVOKE that says nothing of its grant where it is refused */
	bool must_fail;     /* it can never succeed */
	bool misshapen;     /* that is seen from its shape */
	bool refusable;     /* it may be refused at submission, for its shape or its place */
	bool after_down;    /* unfinished when its endpoint's Disconnected was read */
	bool cancelled;
	uint64_t step;
	uint64_t order;     /* among the send-side requests, or RECVs, of its endpoint; 0: none */
};

/* A message on its way from one endpoint to its peer. */
struct w_message {
	struct xc_list link;
	uint8_t *data;
	uint64_t bytes;
	bool immediate, is_write;
	struct w_link *links[W_LINKS_MAX]; /* whose tokens are in it */
	uint32_t n_links;
	bool failed;     /* its SEND did; it may have arrived all the same */
	uint32_t imm;
	uint64_t wr_id; /* of its SEND */
	struct w_grant *invalidates;
	bool skipped;    /* a later one arrived: it must not succeed */
	bool known;      /* its bytes tell it apart */
	uint64_t source; /* wr_id of the READ that brings its bytes, until that has ended */
	bool unclear;    /* that READ did not end well: nobody knows them */
};

struct w_ep {
	struct xc_list link;
	struct w_session *session;
	uint32_t number;
	uint64_t tag, serial, free_serial;
	enum w_life life;      /* COMING: not ready */
	bool known;            /* its number is */
	uint64_t answers;      /* the request that it answers */
	bool started;          /* connect or accept was asked for, and not refused */
	uint64_t start_serial;
	bool up, down;         /* Connected(0), Disconnected or failed Connected were read */
	bool end_asked;        /* disconnect, free, or an administrator */
	bool free_replied;
	uint64_t peer_tag;
	uint32_t refs;         /* requests and grants that name it */
	struct fabric_caps caps;
	uint64_t stage_bytes;  /* asked for, for its RECVs */
	uint64_t *arrivals;    /* of messages that its RECVs have, not yet told of */
	uint32_t n_arrivals;
	struct xc_list messages;
	struct xc_list links;  /* of GRANTs whose tokens go into its next SEND */
	uint64_t send_order, last_order, recv_order, last_recv_order;
};

struct w_listener {
	struct xc_list link;
	struct w_session *session;
	uint64_t serial, end_serial;
	uint32_t number;
	struct xc_addr at;
	enum w_life life;
};

/* A connection request that was read and not answered. */
struct w_offer {
	struct xc_list link;
	struct w_session *session;
	uint64_t number, peer_tag;
};

enum w_call {
	W_HELLO,
	W_ADD,
	W_REMOVE,
	W_LISTEN,
	W_UNLISTEN,
	W_CONNECT_TO,
	W_ANSWER,
	W_CONNECT,
	W_ACCEPT,
	W_REJECT,
	W_DISCONNECT, W_FREE, W_ADMIN,
};

struct w_pending {
	struct xc_list link;
	enum w_call call;
	uint64_t serial, step;
	void *subject;
};

struct w_session {
	struct xc_list link;
	struct xd_session *s; /* NULL: closed */
	struct w_user *user;
	bool admin, greeted, output, gone, unruly; /* unruly: did what may end it */
	bool ending;     /* its end was asked for by others */
	bool goodbye;    /* read */
	bool refused;    /* it has got no more buffers */
	bool has_large;
	uint32_t greed;  /* chance in 1,000 that it reads its output at a step */
	uint64_t number, serial, cookie, closed_step;
	/* how many asked to be explained; the wr_id of one that ended well */
	uint64_t explained, last_explained;
	uint64_t explanations_seen;
	struct xc_list buffers, eps, listeners, offers, pending, requests;
};

struct w_user {
	uint32_t uid;
	uint32_t gids[2];
};

/* Who waits for windows of a fabric, and who gets them; by a clock of its own. */
struct w_turns {
	uint64_t clock;
	uint64_t since[W_USERS]; /* it began to wait, or got one; 0: it does not */
	uint64_t round[W_USERS]; /* in which it came to wait */
	uint64_t got[W_USERS][4];
	uint64_t kept_turn, kept_ns; /* when last none was kept */
};

struct world {
	uint64_t seed;
	struct sim_rng rng;
	struct xd_engine engine;
	struct xd_engine_ref ref;
	struct xd_policy policy, policies[2]; /* the first one, and the present and the last one */
	uint32_t n_policies, death;           /* death: of clients, in 1,000 */
	struct xd_core *core;
	struct fabric *fabrics[W_FABRICS];
	struct fabric_caps caps[W_FABRICS];
	struct fake_dice dice;
	uint32_t n_fabrics;
	uint32_t budget; /* bytes of copying in a turn */
	uint32_t n_large; /* buffers */
	bool bulk;      /* buffers and transfers that fill rings */
	bool tight;     /* many buffers, and little that may be pinned */
	bool rich;      /* memory is there for all; keys over ranges may be refused nevertheless */
	uint64_t clock; /* of what peers write, and of messages that arrive */
	struct w_user users[W_USERS];
	struct w_turns turns[W_FABRICS];
	struct xc_list sessions, dead_sessions;
	struct w_session *admin;
	struct xc_list grants;
	uint64_t last_tag, last_id, fds_passed, submitted, ended, verified_bytes, grants_made,
		connects;
	bool lost, draining, calm;
	uint64_t measured; /* costs that changed in mid-run */
	uint64_t explained; /* plans that were compared with what was thought */
	uint64_t refused_by_quota;
	uint64_t done[XP_OP_MAX + 1]; /* ended well */
	uint64_t grants_of_many, tokens_arrived, forwarded;
	uint64_t ways[W_WAYS];        /* counters of the core, see run.c */
};

/* ---- world.c */
void world_init(struct world *w, uint64_t seed);
void world_step(struct world *w);
/* Everything ends; every promise about the end is looked at. */
void world_end(struct world *w);

/* For the trace: how things stand. */
void world_dump(struct world *w);

/*
 * Lets everything happen that happens by itself; what must have ended by then, has, or it is a
 * broken promise.
 */
void w_settle(struct world *w);
uint32_t w_below(struct world *w, uint32_t n);
bool w_dice(struct world *w, uint32_t permille);

/* ---- world_turns.c */
/* This user is given a window. */
void w_on_window(void *ctx, uint8_t fabric, uint32_t uid);
void w_check_turns(struct world *w);

/* ---- world_memory.c */
struct w_buffer *w_buffer_new(struct world *w, struct w_session *s, uint64_t size);
void w_buffer_free(struct w_buffer *b);
/* The daemon has let go of it: from now on not a byte may change. */
void w_buffer_gone(struct w_buffer *b);
/* Takes a range that nobody owns; false where somebody does. */
bool w_own(struct w_buffer *b, uint64_t offset, uint32_t length);
/* Once more, for one that comes behind. */
void w_share(const struct w_range *r);
/* Lets go: what is there now is what must stay. */
void w_disown(const struct w_range *r);
void w_check_memory(struct w_buffer *b);
/* What the fabric tells of, see struct fake_witness. */
void w_on_wrote(void *ctx, uint64_t ep_tag, uint32_t rkey, uint64_t offset, const uint8_t *data,
		uint64_t bytes);
void w_on_arrived(void *ctx, uint64_t ep_tag);
/* What peers had written when the next message of this endpoint arrived is in its memory. */
void w_check_synced(struct world *w, struct w_ep *ep);
/* All that its peer wrote is in its owner's memory, and nothing else. */
void w_check_copied_out(const struct w_grant *g);
/* The bytes behind a grant, as its peer would read them. */
void w_grant_gather(const struct w_grant *g, uint64_t at, uint64_t bytes, uint8_t *to);
/* Where its byte `at` lies, and how many bytes follow in one piece. */
uint8_t *w_grant_at(const struct w_grant *g, uint64_t at, uint64_t *ret_bytes);
bool w_grant_is_of(const struct w_grant *g, const struct w_buffer *b);
/* A client changes what it has granted, which the peer of a copy does not see. */
void w_scribble(struct world *w, struct w_session *s);
struct w_grant *w_grant_new(struct world *w, struct w_ep *ep, const struct w_range *ranges,
			    uint32_t n, bool write);
void w_grant_gone(struct w_grant *g);
void w_message_free(struct w_message *m);
void w_messages_free(struct w_ep *ep);
/* It may have ended, through nobody's fault. */
bool w_grant_uncertain(struct world *w, const struct w_grant *g);
void w_grant_unref(struct w_grant *g);

/* ---- world_act.c: control requests */
struct w_session *w_session_new(struct world *w, bool admin);
void w_session_close(struct world *w, struct w_session *s);
void w_act(struct world *w, struct w_session *s);
/* It asks for something: the answer is waited for. */
struct w_pending *w_ask(struct w_session *s, enum w_call call, void *subject);
struct w_ep *w_ep_by_tag(struct world *w, uint64_t tag);
struct w_ep *w_ep_by_number(struct w_session *s, uint32_t number);
void w_ep_unref(struct w_ep *ep);
/* Its end is no fault of the core. */
void w_excuse(struct world *w, struct w_ep *ep, const char *why);
void w_excuse_all(struct world *w, struct w_session *s, const char *why);
const char *w_excused(struct world *w, struct w_ep *ep);

/* ---- world_submit.c: transfers */
void w_submit(struct world *w, struct w_session *s);
void w_request_free(struct world *w, struct w_request *r);

/* ---- world_link.c: tokens in messages */
/* Patches for a GRANT; false: wrong ones. */
bool w_link_draft(struct world *w, struct w_ep *ep, struct xp_segment *patches, uint32_t *ret_n);
/* How long a message must be to hold all that go into it. */
uint64_t w_links_need(const struct w_ep *ep);
/* Where the core has let go of those that wait, for their endpoint has ended, so does the model. */
void w_links_sync(struct w_ep *ep);
bool w_links_lost(const struct w_ep *ep);
/* A GRANT, or a SEND, was submitted: did the core take it for what it is? */
void w_link_granted(struct w_request *q);
void w_link_sent(struct w_request *q, struct w_message *m);
/* Its GRANT has ended. */
void w_link_ended(struct w_request *q, const struct xp_completion *c);
/* Is it at a place of a token that is not known yet? */
bool w_link_hides(const struct w_message *m, uint64_t at);
/* It arrived, and is in this memory. */
void w_link_arrived(struct world *w, struct w_message *m, const struct w_request *recv);
/* Why a SEND may have failed, and what must be true of one that ended well. */
bool w_links_failed(const struct w_request *q);
void w_links_check(const struct w_request *q);
void w_link_unref(struct w_link *k);
void w_links_free(struct xc_list *links);
uint32_t w_links_count(const struct w_ep *ep);

/* ---- world_out.c: what the core says */
/* Reads up to n things; returns how many. */
uint32_t w_pull(struct world *w, struct w_session *s, uint32_t n);
/* The request ended with this; also for QUIET ones that must have ended well. */
void w_request_ended(struct world *w, struct w_request *r, const struct xp_completion *c,
		     const char *text);
/* Everything of a session that is gone is settled in the model. */
void w_session_over(struct world *w, struct w_session *s);

/* ---- world_price.c: what things cost, and what the planner made of it */
struct fabric_costs w_costs(struct world *w);
/* The price of things changes, somebody has them measured, or both. */
void w_measure(struct world *w);
/* The core goes by what was found out last, and explains what it did. */
void w_check_prices(struct world *w);

/* ---- world_audit.c */
/* What peers can use is what the audit says; at rest nothing else is. */
void w_check_audit(struct world *w, bool rest);

/* ---- world_check.c */
void w_check(struct world *w);
/* At rest: charges equal the model. */
void w_check_rest(struct world *w);
void w_query_any(struct world *w, struct w_session *s);

#endif
