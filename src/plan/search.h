// SPDX-License-Identifier: Apache-2.0
// The search for a layout: which degrees, schedule and memory levers make a step of a given batch
// shortest, cheapest or smallest, among all that a machine of so many chips can be cut into.
//
//     gw_search s;
//     gw_search_run(&s, &(gw_search_input){.space = ..., .facts = ..., .host = ..., ...});
//     if (s.best >= 0) ... s.candidates.items[s.best] ...
//     gw_search_release(&s);
//
// This folder knows no run file. What a candidate is refused for, and what its step takes, is asked
// of the host, which compiles and simulates it as `plan` does.
#ifndef GW_PLAN_SEARCH_H
#define GW_PLAN_SEARCH_H

#include <jansson.h>
#include <stdio.h>

#include "base/map.h"     /* GW_VEC, gw_imap */
#include "ir/graph.h"     /* GW_STREAM_COUNT */
#include "plan/machine.h" /* gw_machine_spec */

/* What may be turned. Values: degrees; of schedule the index of gw_sched_kind_at; of recompute a
 * gw_search_policy; of offload a gw_search_offload. */
typedef enum gw_search_lever {
    GW_SEARCH_TP,
    GW_SEARCH_CP,
    GW_SEARCH_PP,
    GW_SEARCH_SCHEDULE,
    GW_SEARCH_VIRTUAL,
    GW_SEARCH_EP,
    GW_SEARCH_ZERO,
    GW_SEARCH_MICRO,
    GW_SEARCH_RECOMPUTE,
    GW_SEARCH_OFFLOAD,
    GW_SEARCH_LEVERS
} gw_search_lever;

typedef enum gw_search_policy {
    GW_SEARCH_NONE,
    GW_SEARCH_SELECTIVE,
    GW_SEARCH_FULL,
    GW_SEARCH_FILL, /* the cheapest recomputation that fits the memory: policy `budget` */
    GW_SEARCH_POLICIES
} gw_search_policy;

typedef enum gw_search_offload {
    GW_SEARCH_DEVICE,
    GW_SEARCH_MOMENTS, /* on the host */
    GW_SEARCH_STATES,  /* master copy too */
    GW_SEARCH_ALL,     /* parameters too, with zero 3 */
    GW_SEARCH_OFFLOADS
} gw_search_offload;

typedef enum gw_search_objective {
    GW_SEARCH_TIME,
    GW_SEARCH_COST,  /* chips x time: dollars a token where chips have a price */
    GW_SEARCH_MEMORY /* bytes of the fullest rank; then time */
} gw_search_objective;

/* A point of the space. world = tp x cp x pp x dp, batch = micro-batch x accumulate x dp. */
typedef struct gw_search_layout {
    int32_t world, dp, accumulate;
    int32_t at[GW_SEARCH_LEVERS];
} gw_search_layout;

enum { GW_SEARCH_WORLDS = 24, GW_SEARCH_VALUES = 64 };

/* The ranges. Of a lever that is fixed only `fixed` is taken. */
typedef struct gw_search_space {
    int64_t worlds[GW_SEARCH_WORLDS];
    int nworlds;
    int64_t global_batch, seq, layers, experts; /* experts 0: none */
    int64_t dp, accumulate;                     /* fixed; 0: what is left */
    int64_t most[GW_SEARCH_LEVERS];             /* of tp, cp, pp, virtual stages, ep, micro-batch */
    bool has_master, has_states, may_offload;
    bool is_fixed[GW_SEARCH_LEVERS];
    int32_t fixed[GW_SEARCH_LEVERS];
} gw_search_space;

/* What bounds need of the model. Parameters of all ranks, each once; bytes of one. */
typedef struct gw_search_facts {
    double dense_params, expert_params;
    double outside_params;                 /* of the dense, those in no layer */
    int weight, master, moments, gradient; /* master 0: the weights are their own */
    double hidden_bytes;                   /* of a token between two layers */
    int64_t memory_bytes;                  /* of a chip */
    double peak_s;                         /* chips x seconds of a step at peak; 0: not known */
    bool images;                           /* what is counted as tokens is images */
} gw_search_facts;

enum { GW_SEARCH_WHY = 240, GW_SEARCH_PART_ROOM = 16 };

/* What one micro-batch takes on one stage that has all layers, under tp, cp, ep and a micro-batch
 * size, read off a program with few layers; without recomputation and data parallelism. */
typedef struct gw_search_block {
    bool refused;
    char why[GW_SEARCH_WHY];
    double products_s;
    double certain_s, layer_certain_s; /* computed in every layout with these degrees: by all
                                          layers, by one */
    double attention_s, memory_s, overlap_s, exposed_s;
    double outside_s;                  /* of all these, what is in no layer */
    double forward;                    /* part of products and attention that is forward */
    double wire_s[GW_STREAM_COUNT];    /* of tp, cp, ep: one after another */
    double layer_bytes, outside_bytes; /* activations kept for backward */
    double optimizer_s;
} gw_search_block;

typedef enum gw_search_verdict {
    GW_SEARCH_RUNS,
    GW_SEARCH_REFUSED, /* by rule: `why` */
    GW_SEARCH_BROKE    /* the compiler gave up on it: `why` */
} gw_search_verdict;

/* What a candidate's step takes, compiled and simulated. Without a machine step_s is 0 and effort
 * stands for it. */
typedef struct gw_search_outcome {
    gw_search_verdict verdict;
    char why[GW_SEARCH_WHY];
    int64_t total_bytes;
    double step_s;
    double effort; /* FLOPs, and bytes copied between memories as the host weighs them */
    double mfu, tokens_per_s_chip, dollars_per_billion_tokens; /* 0: not known */
    int nparts;
    struct {
        char name[24];
        double seconds;
    } part[GW_SEARCH_PART_ROOM];
} gw_search_outcome;

/* Who compiles. Both run in processes of their own where there are several. */
typedef struct gw_search_host {
    void *user;
    void (*probe)(void *user, const gw_search_layout *l, gw_search_block *out);
    void (*evaluate)(void *user, const gw_search_layout *l, gw_search_outcome *out);
} gw_search_host;

typedef struct gw_search_candidate {
    gw_search_layout layout;
    double bound_s, guess_s; /* no less than; about */
    int64_t bound_bytes, guess_bytes;
    int32_t outcome; /* -1: not evaluated */
    bool known;      /* its block was read: the guess says something */
} gw_search_candidate;

typedef struct gw_search_counts {
    int64_t enumerated, by_memory, by_time, refused, broke, evaluated, unseen;
    int64_t unread;    /* of the unseen, those whose block was not read */
    int64_t promising; /* of the unseen, those that are expected to fit and to beat the best */
    int64_t probes;
    double seconds, probing_s;
    int64_t first_at, best_at; /* evaluations until one fitted, until the best */
    double first_score;        /* of the first that fitted */
} gw_search_counts;

typedef struct gw_search_input {
    gw_search_space space;
    gw_search_facts facts;
    const gw_machine_spec *machine; /* NULL: none is stated */
    gw_search_objective objective;
    gw_search_host host;
    double budget_s;          /* of the search; 0: no limit */
    int64_t most_evaluations; /* 0: no limit */
    int workers;              /* processes beside this one; 0: none */
    bool all;                 /* evaluates every candidate, prunes nothing */
    bool first_fit;           /* stops at the first that fits */
    bool explains;            /* evaluates neighbours of the best */
    void (*progress)(void *user, const gw_search_counts *c, double best); /* or NULL */
    void *progress_user;
} gw_search_input;

typedef struct gw_search {
    gw_search_input in;
    GW_VEC(gw_search_candidate) candidates;
    GW_VEC(gw_search_outcome) outcomes;
    GW_VEC(gw_search_block) blocks;
    gw_imap index, block_index;
    gw_search_counts counts;
    int64_t best;       /* of the candidates; -1: none fits */
    double floor_score; /* nothing that was not seen can be below; INFINITY: all were seen */
    double floor_read;  /* the same of the unseen whose block was read */
    int64_t promising;  /* of the promising the one that is expected to be best; -1: none is */
    double expected;    /* what is expected of that one */
    bool exact;         /* the best of the whole space */
} gw_search;

void gw_search_run(gw_search *s, const gw_search_input *in);
void gw_search_release(gw_search *s);

/* ---- levers (search_space.c) ---- */
const char *gw_search_lever_name(gw_search_lever l);         /* "micro-batch" */
const char *gw_search_lever_key(gw_search_lever l);          /* "train.micro_batch" */
const char *gw_search_objective_name(gw_search_objective o); /* "time" */
/* Value of the lever schedule that is called `name`; -1: there is none. */
int32_t gw_search_schedule(const char *name);
/* A value as it is written: "8", "interleaved", "full". */
const char *gw_search_value_name(gw_search_lever l, int32_t value, char buf[24]);
/* "tp 8, pp 4 (interleaved, 5 stages a rank), dp 2, zero 1, micro-batch 1 x 64": what is not 1. */
void gw_search_describe(const gw_search_layout *l, gw_str *out);
/* Values of a lever in this space, rising. */
int gw_search_values(const gw_search_space *s, gw_search_lever l, int64_t world,
                     int32_t out[GW_SEARCH_VALUES]);
/* dp and accumulate from the rest. False: the ranks or the batch do not divide, or it is the same
 * as another point of the space. */
bool gw_search_complete(const gw_search_space *s, gw_search_layout *l);
/* Calls visit for each point; it says whether to go on. */
void gw_search_enumerate(const gw_search_space *s, bool (*visit)(void *, const gw_search_layout *),
                         void *user);

/* ---- bounds (search_bound.c) ---- */
/* Bytes that the mean rank holds at one instant, whatever is recomputed: states, and where there
 * are several micro-batches weights and gradients. */
int64_t gw_search_bound_bytes(const gw_search_facts *f, const gw_search_layout *l);
/* Seconds on the wire of dp and between stages, of the layout that was bounded last. */
typedef struct gw_search_wires {
    gw_search_layout of;
    double dense, reduce, gather; /* gradients of a mean rank without experts; all; its weights */
    double send;                  /* of a message */
} gw_search_wires;
/* Fills the figures of c from a block (NULL: not read). `w` begins as zeroes and is kept from one
 * layout to the next. */
void gw_search_bound(const gw_search_input *in, const gw_search_block *b, gw_search_wires *w,
                     gw_search_candidate *c);
/* Data-parallel ranks of a layout's block: as many as its experts are cut over, which take those of
 * dp first. */
int32_t gw_search_block_dp(const gw_search_layout *l);
/* The same block serves layouts with one key. */
uint64_t gw_search_block_key(const gw_search_layout *l);

/* ---- judging (search_judge.c) ---- */
/* What the objective compares: smaller is better. */
double gw_search_score(const gw_search_input *in, const gw_search_layout *l,
                       const gw_search_outcome *o);
bool gw_search_fits(const gw_search_input *in, const gw_search_outcome *o);
/* The layout with lever l at another value; the levers that hang on it follow. -1: no candidate. */
int64_t gw_search_find(const gw_search *s, const gw_search_layout *l);

/* One change of the best layout. */
typedef struct gw_search_near {
    gw_search_layout layout;
    int64_t candidate; /* -1: not in the list; `why` says why not */
    char change[64];   /* "tp 4 -> 8" */
    char why[GW_SEARCH_WHY];
} gw_search_near;
enum { GW_SEARCH_NEAR = 48 };
/* Neighbours of the best: every lever one value up and down, all policies and offloads, all
 * schedules. Explained where they were evaluated. */
int gw_search_neighbours(const gw_search *s, gw_search_near out[GW_SEARCH_NEAR]);
void gw_search_explain(const gw_search *s, gw_search_near *n);
/* Evaluated candidates that no other beats in both time and bytes, by time. Returns how many. */
int gw_search_frontier(const gw_search *s, int room, int64_t *out);

/* ---- reports (search_print.c) ---- */
void gw_search_print(const gw_search *s, FILE *out);
json_t *gw_search_json(const gw_search *s); /* a new reference */

/* ---- workers (search_pool.c) ---- */
typedef struct gw_search_pool gw_search_pool;
typedef struct gw_search_answer {
    int64_t id; /* -1: none until the deadline */
    bool probe;
    union {
        gw_search_block block;
        gw_search_outcome outcome;
    };
} gw_search_answer;
gw_search_pool *gw_search_pool_new(const gw_search_host *h, int workers);
void gw_search_pool_free(gw_search_pool *p); /* ends what is still under way */
int gw_search_pool_idle(const gw_search_pool *p);
int gw_search_pool_busy(const gw_search_pool *p);
/* To an idle worker. */
void gw_search_pool_send(gw_search_pool *p, int64_t id, bool probe, const gw_search_layout *l);
/* The next answer; waits until `deadline` (gw_clock_ns). Without workers the job runs here. */
void gw_search_pool_wait(gw_search_pool *p, int64_t deadline, gw_search_answer *out);

#endif
