// SPDX-License-Identifier: Apache-2.0
// Two programs, one cache.
//
// A program has a fixed shape, so a prompt is fed in chunks of CHUNK tokens (the last one padded:
// padding has position -1, is put nowhere and attends to nothing) and generation runs a program of
// one token. Both programs lay their states, the caches, at the bottom of the arena in the same
// order with the same sizes, so the decode program simply works in the arena of the prefill
// program. The parameters belong to a third executor and are used in the dtype in which it keeps
// them.
//
// Sampling is deterministic: the random number of a position is a function of (seed, position).
#include "train/generate.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"   /* gw_log_warn */
#include "base/panic.h" /* gw_panic */
#include "base/rng.h"   /* gw_rng_uniform */

enum { CHUNK = 64 };

struct gw_generator {
    gw_exec *prefill, *decode, *last; /* last: whose logits are current */
    int64_t vocab, context, fed;
    int64_t trained; /* positions the model was made for */
    bool warned;     /* that the sequence has passed them */
};

static gw_status open_program(gw_exec **out, const gw_setup *s, gw_exec *params, gw_exec *share,
                              int64_t seq, int64_t context, gw_diags *dg) {
    gw_setup local = *s;
    local.forward.compute = s->forward.master;
    gw_graph g;
    GW_TRY(gw_setup_logits_program(&local, 1, seq, context, &g, NULL, dg));
    gw_exec_opts o = {.machine = s->machine, .params_from = params};
    if (share) o.overlay = gw_exec_arena(share, &o.overlay_bytes);
    gw_status st = gw_exec_new(out, &g, &o, dg);
    gw_graph_release(&g);
    return st;
}

/* The decode program must find each cache where the prefill program has it. */
static void check_shared(const gw_generator *g) {
    const gw_graph *a = gw_exec_graph(g->prefill);
    for (int64_t i = 0; i < a->states.count; i++) {
        gw_vid v = a->states.items[i].start;
        const char *name = gw_graph_str(a, a->values.items[v].name);
        gw_vid w = gw_exec_find(g->decode, name);
        if (w == GW_NONE || gw_exec_ptr(g->prefill, v) != gw_exec_ptr(g->decode, w))
            gw_panic("cache '%s' is not shared by prefill and decode", name);
    }
}

gw_status gw_generator_open(gw_generator **out, const gw_setup *s, gw_exec *params, int64_t context,
                            gw_diags *dg) {
    const gw_model *m = &s->model;
    if (context < 1)
        return GW_FAIL(dg, GW_ERR_CONFIG, "generate-context",
                       "a context of %lld tokens holds nothing", (long long)context);
    if (m->family == GW_FAMILY_GPT2 && context > m->max_positions)
        return GW_FAIL(dg, GW_ERR_CONFIG, "generate-context",
                       "a context of %lld tokens is more than the model's %lld learned positions",
                       (long long)context, (long long)m->max_positions);
    gw_generator *g = gw_mem_zalloc(sizeof *g);
    g->vocab = m->vocab;
    g->context = context;
    g->trained = m->max_positions;
    gw_status st = open_program(&g->prefill, s, params, NULL, CHUNK, context, dg);
    if (st == GW_OK) st = open_program(&g->decode, s, params, g->prefill, 1, context, dg);
    if (st == GW_OK) st = gw_exec_run(g->prefill, GW_SEG_PRE, dg);
    if (st != GW_OK) {
        gw_generator_free(g);
        return st;
    }
    check_shared(g);
    *out = g;
    return GW_OK;
}

void gw_generator_free(gw_generator *g) {
    if (!g) return;
    gw_exec_free(g->decode);
    gw_exec_free(g->prefill);
    gw_mem_free(g);
}

int64_t gw_generator_room(const gw_generator *g) { return g->context - g->fed; }

int64_t gw_generator_position(const gw_generator *g) { return g->fed; }

void gw_generator_reset(gw_generator *g) {
    g->fed = 0;
    g->last = NULL;
}

const float *gw_generator_logits(const gw_generator *g) {
    if (!g->last) return NULL;
    return gw_exec_ptr(g->last, gw_exec_find(g->last, "logits"));
}

/* Runs n <= CHUNK tokens. */
static gw_status feed_chunk(gw_generator *g, const int32_t *ids, int64_t n, gw_diags *dg) {
    gw_exec *x = n == 1 ? g->decode : g->prefill;
    int64_t s = n == 1 ? 1 : CHUNK;
    int32_t tokens[CHUNK], positions[CHUNK], at = (int32_t)n - 1;
    for (int64_t i = 0; i < s; i++) {
        tokens[i] = i < n ? ids[i] : 0;
        positions[i] = i < n ? (int32_t)(g->fed + i) : -1;
    }
    gw_exec_write(x, "tokens", tokens, s * 4);
    gw_exec_write(x, "positions", positions, s * 4);
    gw_exec_write(x, "at", &at, sizeof at);
    GW_TRY(gw_exec_run(x, GW_SEG_LOOP, dg));
    g->last = x;
    g->fed += n;
    return GW_OK;
}

static gw_status refuse_id(const gw_generator *g, int32_t id, gw_diags *dg) {
    gw_diag *d = gw_diag_add(dg, GW_ERROR, GW_ERR_CONFIG, "generate-id", (gw_where){0},
                             "token id %d is outside the model's vocabulary of %lld", id,
                             (long long)g->vocab);
    gw_diag_hint(dg, d,
                 "model and tokenizer do not belong together: name the tokenizer that the model "
                 "was trained with");
    return GW_ERR_CONFIG;
}

/* Rotary positions go on for ever; what the model says there does not follow. */
static void warn_beyond(gw_generator *g, int64_t n) {
    if (g->warned || g->trained <= 0 || g->fed + n <= g->trained) return;
    g->warned = true;
    gw_log_warn("the text passes the %lld positions that the model was made for: what follows may "
                "be worthless, unless its rope scaling is set for more",
                (long long)g->trained);
}

gw_status gw_generator_feed(gw_generator *g, const int32_t *ids, int64_t n, gw_diags *dg) {
    if (n > gw_generator_room(g))
        return GW_FAIL(dg, GW_ERR_CONFIG, "generate-full",
                       "the context holds %lld tokens, %lld are used: %lld more do not fit",
                       (long long)g->context, (long long)g->fed, (long long)n);
    for (int64_t i = 0; i < n; i++)
        if (ids[i] < 0 || ids[i] >= g->vocab) return refuse_id(g, ids[i], dg);
    warn_beyond(g, n);
    for (int64_t at = 0; at < n; at += CHUNK)
        GW_TRY(feed_chunk(g, ids + at, GW_MIN((int64_t)CHUNK, n - at), dg));
    return GW_OK;
}

/* ---- sampling ---- */

typedef struct scored {
    float p;
    int32_t id;
} scored;

static int by_score(const void *a, const void *b) {
    const scored *x = a, *y = b;
    if (x->p != y->p) return x->p > y->p ? -1 : 1;
    return x->id < y->id ? -1 : x->id > y->id;
}

int32_t gw_sampling_draw(const float *logits, int64_t vocab, const gw_sampling *s, int64_t position,
                         void *scratch) {
    scored *c = scratch;
    int64_t best = 0;
    for (int64_t i = 0; i < vocab; i++) {
        c[i] = (scored){logits[i], (int32_t)i};
        if (logits[i] > logits[best]) best = i;
    }
    if (s->temperature <= 0) return (int32_t)best;
    qsort(c, (size_t)vocab, sizeof *c, by_score);
    int64_t n = s->top_k > 0 ? GW_MIN(s->top_k, vocab) : vocab;
    double sum = 0, top = (double)c[0].p;
    for (int64_t i = 0; i < n; i++) {
        c[i].p = (float)exp(((double)c[i].p - top) / s->temperature);
        sum += (double)c[i].p;
    }
    double kept = 0;
    int64_t m = 0;
    while (m < n && kept < s->top_p * sum) kept += (double)c[m++].p;
    m = GW_MAX(m, 1);
    kept = GW_MAX(kept, (double)c[0].p);
    double u =
        (double)gw_rng_uniform(gw_rng_key_named(s->seed, "sample"), (uint64_t)position) * kept;
    for (int64_t i = 0; i < m; i++) {
        u -= (double)c[i].p;
        if (u < 0) return c[i].id;
    }
    return c[m - 1].id;
}
