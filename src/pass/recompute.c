// SPDX-License-Identifier: Apache-2.0
// Trades time for memory: forward values that backward reads are dropped and computed again there.
//
// A policy names forward ops whose outputs are not kept. The rewrite is one rule: when an op of
// backward reads a dropped value, the op that defines it is cloned just before, in phase B, its own
// inputs resolved the same way; further readers share the clone. The clone has the same attributes,
// scope and key, so dropout and every bit of the result are the same as in forward. Values that
// pass from one layer to another are never dropped: `full` keeps exactly the input of each layer,
// and memory beyond those inputs is one layer's.
//
//   none       nothing                     selective  attention: its output and log-sum-exp
//   full       every op inside a layer     ops        the named ops inside layers
//   budget     the cheapest set, by predicted seconds per byte saved, that keeps the arena within a
//              number of bytes: one fixed list of candidates (layer, op), of which a prefix is
//              chosen by bisection against the true total that place finds
//
// The prediction behind the order of the list is a roofline with one rate and one bandwidth; only
// the order matters, and it is the same on every machine so that plans agree.
#include <stdlib.h>
#include <string.h>

#include "base/panic.h" /* GW_ASSERT */
#include "base/str.h"   /* gw_str */
#include "pass/pass.h"

/* Rates that only order the candidates: FLOP/s and bytes/s of a machine with 100 FLOPs to a byte.
 */
#define ORDER_FLOPS_PER_S 1e12
#define ORDER_BYTES_PER_S 1e10

static bool is_backward(const gw_op *o) {
    return o->phase == GW_PHASE_B || o->phase == GW_PHASE_W || o->phase == GW_PHASE_BW;
}

/* Is the op a conversion of an activation, to be made again like any other op of its layer? Gathers
 * of flat parameters are not: backward has its own. */
static bool converts_activation(const gw_graph *g, const gw_op *o) {
    gw_vid v = gw_op_in(g, o, 0);
    for (int deep = 0; deep < 8; deep++) { /* a chain of conversions */
        const gw_value *x = &g->values.items[v];
        if (x->role == GW_ROLE_PARAM || x->rate == GW_RATE_STEP || x->type.flat) return false;
        if (x->def == GW_NONE || g->ops.items[x->def].stream == GW_STREAM_COMPUTE) return true;
        v = gw_op_in(g, &g->ops.items[x->def], 0);
    }
    return false;
}

static bool computes(const gw_graph *g, const gw_op *o) {
    bool moves = gw_op_def(g, o)->traits & (GW_OP_COLLECTIVE | GW_OP_VIEW);
    if (!moves && o->stream == GW_STREAM_COMPUTE) return true;
    return o->stream != GW_STREAM_COPY && converts_activation(g, o);
}

/* Which ops may be dropped at all: forward ops of a layer none of whose outputs another layer (or
 * the head) reads in forward. */
static void find_droppable(const gw_graph *g, bool *can) {
    for (int64_t i = 0; i < g->ops.count; i++) {
        const gw_op *o = &g->ops.items[i];
        can[i] = o->phase == GW_PHASE_F && o->rate == GW_RATE_MB &&
                 gw_scope_layer(gw_graph_str(g, o->scope)) > 0 && !(o->flags & GW_OP_RECOMPUTED) &&
                 computes(g, o);
        for (int k = 0; can[i] && k < (int)o->nout; k++)
            if (g->values.items[gw_op_out(g, o, k)].tie != GW_NONE) can[i] = false;
    }
    for (int64_t i = 0; i < g->ops.count; i++) {
        const gw_op *o = &g->ops.items[i];
        if (o->phase != GW_PHASE_F && o->phase != GW_PHASE_BW) continue;
        const char *scope = gw_graph_str(g, o->scope);
        int n = gw_scope_layer(scope);
        for (int k = 0; k < (int)o->nin; k++) {
            gw_vid v = gw_op_in(g, o, k);
            if (v == GW_NONE || g->values.items[v].def == GW_NONE) continue;
            gw_oid d = g->values.items[v].def;
            const char *ds = gw_graph_str(g, g->ops.items[d].scope);
            int dn = gw_scope_layer(ds);
            if (o->phase == GW_PHASE_BW && n > 0)
                continue; /* backward of that layer, not a crossing */
            if (dn != n || strncmp(ds, scope, (size_t)n) != 0) can[d] = false;
        }
    }
}

/* ---- the rewrite ---- */

typedef struct rewrite {
    const gw_graph *src;
    gw_graph *dst;
    const bool *drop;
    gw_vid *map;   /* source value -> value in dst */
    gw_vid *again; /* source value -> its recomputed value in dst, or GW_NONE */
    uint8_t part;  /* of the op that reads: a clone stands before it, in its piece */
    int nclones;
    double flops;
} rewrite;

/* The value of dst that a backward op should read for source value v. Depth is at most the ops of a
 * layer. */
static gw_vid resolve(rewrite *r, gw_vid v) {
    const gw_value *x = &r->src->values.items[v];
    if (x->def == GW_NONE || !r->drop[x->def]) return r->map[v];
    if (r->again[v] != GW_NONE) return r->again[v];
    const gw_op *o = &r->src->ops.items[x->def];
    gw_vid kept[64], now[64];
    GW_ASSERT(o->nin <= 64);
    for (int k = 0; k < (int)o->nin; k++) {
        gw_vid in = gw_op_in(r->src, o, k);
        now[k] = in == GW_NONE ? GW_NONE : resolve(r, in);
    }
    gw_vid outs[GW_MAX_OUT];
    for (int k = 0; k < (int)o->nin; k++) {
        gw_vid in = gw_op_in(r->src, o, k);
        if (in == GW_NONE) continue;
        kept[k] = r->map[in];
        r->map[in] = now[k];
    }
    for (int k = 0; k < (int)o->nout; k++) outs[k] = r->map[gw_op_out(r->src, o, k)];
    gw_oid c = gw_graph_copy_op(r->dst, r->src, x->def, r->map);
    r->dst->ops.items[c].phase = GW_PHASE_B;
    r->dst->ops.items[c].flags |= GW_OP_RECOMPUTED;
    r->dst->ops.items[c].part = r->part;
    for (int k = (int)o->nin; k-- > 0;) /* backwards: an input may stand twice */
        if (gw_op_in(r->src, o, k) != GW_NONE) r->map[gw_op_in(r->src, o, k)] = kept[k];
    for (int k = 0; k < (int)o->nout; k++) {
        gw_vid out = gw_op_out(r->src, o, k);
        r->again[out] = r->map[out];
        r->map[out] = outs[k];
    }
    gw_cost cost;
    gw_op_def(r->src, o)->cost(r->src, o, &cost);
    r->flops += cost.flops;
    r->nclones++;
    return r->again[v];
}

static void copy_backward_op(rewrite *r, gw_oid i) {
    const gw_op *o = &r->src->ops.items[i];
    gw_vid kept[64];
    GW_ASSERT(o->nin <= 64);
    r->part = o->part;
    for (int k = 0; k < (int)o->nin; k++) {
        gw_vid in = gw_op_in(r->src, o, k);
        if (in != GW_NONE) (void)resolve(r, in);
    }
    for (int k = 0; k < (int)o->nin; k++) {
        gw_vid in = gw_op_in(r->src, o, k);
        if (in == GW_NONE) continue;
        kept[k] = r->map[in];
        r->map[in] = resolve(r, in);
    }
    (void)gw_graph_copy_op(r->dst, r->src, i, r->map);
    for (int k = (int)o->nin; k-- > 0;) {
        gw_vid in = gw_op_in(r->src, o, k);
        if (in != GW_NONE) r->map[in] = kept[k];
    }
}

static void apply(gw_graph *dst, const gw_graph *src, const bool *drop, gw_compile_report *report) {
    gw_arena mem = {0};
    rewrite r = {.src = src, .dst = dst, .drop = drop};
    r.map = gw_arena_new(&mem, gw_vid, src->values.count);
    r.again = gw_arena_new(&mem, gw_vid, src->values.count);
    gw_graph_begin(dst, src);
    for (int64_t v = 0; v < src->values.count; v++) {
        r.map[v] =
            src->values.items[v].def == GW_NONE ? gw_graph_copy_leaf(dst, src, (gw_vid)v) : GW_NONE;
        r.again[v] = GW_NONE;
    }
    for (gw_oid i = 0; i < (gw_oid)src->ops.count; i++) {
        if (is_backward(&src->ops.items[i]))
            copy_backward_op(&r, i);
        else
            (void)gw_graph_copy_op(dst, src, i, r.map);
    }
    for (int64_t i = 0; i < src->states.count; i++)
        gw_graph_add_state(dst, r.map[src->states.items[i].start], r.map[src->states.items[i].end]);
    report->recomputed_ops = r.nclones;
    report->recomputed_flops = r.flops;
    gw_arena_release(&mem);
}

/* ---- policies ---- */

static bool named(const gw_recompute_opts *o, const char *name) {
    for (int i = 0; i < o->nops; i++)
        if (strcmp(o->ops[i], name) == 0) return true;
    return false;
}

/* Says which ops could have been named. */
static void hint_names(const gw_graph *g, const bool *can, gw_diag *d, gw_diags *dg) {
    gw_str all = {0};
    bool seen[256] = {false};
    for (int64_t k = 0; k < g->ops.count; k++) {
        const gw_op *o = &g->ops.items[k];
        if (!can[k] || o->code >= GW_COUNT(seen) || seen[o->code]) continue;
        seen[o->code] = true;
        gw_str_printf(&all, "%s%s", all.len ? ", " : "", gw_op_def(g, o)->name);
    }
    gw_diag_hint(dg, d, "in a layer of this model: %s", all.len ? gw_str_c(&all) : "none");
    gw_str_release(&all);
}

static gw_status check_names(const gw_graph *g, const gw_recompute_opts *o, const bool *can,
                             gw_diags *dg) {
    for (int i = 0; i < o->nops; i++) {
        int code = gw_optable_find(g->table, o->ops[i]);
        bool found = false;
        for (int64_t k = 0; k < g->ops.count && !found; k++)
            found = can[k] && g->ops.items[k].code == code;
        if (found) continue;
        gw_diag *d = gw_diag_add(
            dg, GW_ERROR, GW_ERR_CONFIG, "recompute-op", (gw_where){0},
            code < 0 ? "recompute.ops: no op is called '%s'"
                     : "recompute.ops: '%s' does not occur inside a layer of this model, or only "
                       "as a layer's output, which is always kept",
            o->ops[i]);
        hint_names(g, can, d, dg);
        return GW_ERR_CONFIG;
    }
    return GW_OK;
}

/* A candidate of `budget`. */
typedef struct candidate {
    gw_oid op;
    double seconds_per_byte;
} candidate;

static int by_price(const void *a, const void *b) {
    const candidate *x = a, *y = b;
    if (x->seconds_per_byte != y->seconds_per_byte)
        return x->seconds_per_byte < y->seconds_per_byte ? -1 : 1;
    return x->op < y->op ? -1 : 1;
}

static int64_t list_candidates(const gw_graph *g, const bool *can, candidate *list) {
    int64_t n = 0;
    for (gw_oid i = 0; i < (gw_oid)g->ops.count; i++) {
        const gw_op *o = &g->ops.items[i];
        if (!can[i]) continue;
        double bytes = 0;
        for (int k = 0; k < (int)o->nout; k++)
            bytes += (double)gw_type_local_bytes(gw_type_of(g, gw_op_out(g, o, k)), &g->mesh, 0);
        gw_cost c;
        gw_op_def(g, o)->cost(g, o, &c);
        double s =
            c.flops / ORDER_FLOPS_PER_S + (c.bytes_read + c.bytes_written) / ORDER_BYTES_PER_S;
        list[n++] = (candidate){i, s / GW_MAX(bytes, 1)};
    }
    qsort(list, (size_t)n, sizeof *list, by_price);
    return n;
}

/* The arena that the rest of the pipeline finds when the first n candidates are dropped. */
static gw_status bytes_with(const gw_graph *src, const candidate *list, int64_t n, bool *drop,
                            const gw_compile_opts *opts, int64_t *bytes, gw_diags *dg) {
    memset(drop, 0, sizeof(bool) * (size_t)src->ops.count);
    for (int64_t i = 0; i < n; i++) drop[list[i].op] = true;
    gw_compile_report report = {0};
    gw_graph a, s, b, c, d;
    apply(&a, src, drop, &report);
    gw_status st = gw_pass_schedule(&s, &a, opts, &report, dg);
    gw_graph_release(&a);
    GW_TRY(st);
    st = gw_pass_bucket(&b, &s, opts, &report, dg);
    gw_graph_release(&s);
    GW_TRY(st);
    st = gw_pass_offload(&c, &b, opts, &report, dg);
    gw_graph_release(&b);
    GW_TRY(st);
    st = gw_pass_place(&d, &c, opts, &report, dg);
    *bytes = report.place.arena_bytes[GW_MEM_DEVICE];
    gw_graph_release(&c);
    if (st == GW_OK) gw_graph_release(&d);
    return st;
}

/* The longest prefix tried that meets the budget, into *high; *least is the fewest bytes met. The
 * whole list usually is it; where recomputing in backward itself makes the peak (one or two
 * layers), a shorter one may be. */
static gw_status enough_of(const gw_graph *src, const candidate *list, int64_t *high, bool *drop,
                           const gw_compile_opts *opts, int64_t *least, gw_diags *dg) {
    int64_t n = *high;
    for (int64_t fewer = 0; fewer < n; fewer = 2 * fewer + 1) {
        int64_t bytes = 0;
        GW_TRY(bytes_with(src, list, n - fewer, drop, opts, &bytes, dg));
        *least = GW_MIN(*least, bytes);
        *high = n - fewer;
        if (bytes <= opts->recompute.budget_bytes) return GW_OK;
    }
    return GW_OK;
}

static gw_status choose_budget(const gw_graph *src, const bool *can, bool *drop,
                               const gw_compile_opts *opts, gw_compile_report *report,
                               gw_arena *mem, gw_diags *dg) {
    candidate *list = gw_arena_new(mem, candidate, src->ops.count);
    int64_t n = list_candidates(src, can, list), budget = opts->recompute.budget_bytes, bytes = 0;
    report->recompute_candidates = (int)n;
    GW_TRY(bytes_with(src, list, 0, drop, opts, &bytes, dg));
    if (bytes <= budget) return GW_OK;
    int64_t high = n, least = bytes;
    GW_TRY(enough_of(src, list, &high, drop, opts, &least, dg));
    if (least > budget) {
        gw_status st = GW_FAIL(dg, GW_ERR_CONFIG, "recompute-budget",
                               "recompute.budget: %lld bytes cannot be met; the least that "
                               "recomputing reaches is an arena of %lld bytes",
                               (long long)budget, (long long)least);
        if (dg)
            gw_diag_hint(dg, dg->last,
                         "raise recompute.budget to %lld, or lower "
                         "train.micro_batch or train.seq_len",
                         (long long)least);
        return st;
    }
    int64_t low = 0; /* too few; high is enough */
    while (high - low > 1) {
        int64_t mid = low + (high - low) / 2;
        GW_TRY(bytes_with(src, list, mid, drop, opts, &bytes, dg));
        if (bytes <= budget)
            high = mid;
        else
            low = mid;
    }
    report->recompute_chosen = (int)high;
    return bytes_with(src, list, high, drop, opts, &bytes, dg);
}

gw_status gw_pass_recompute(gw_graph *dst, const gw_graph *src, const gw_compile_opts *opts,
                            gw_compile_report *report, gw_diags *dg) {
    if (!opts->train || opts->recompute.kind == GW_RECOMPUTE_NONE) {
        gw_graph_dup(dst, src);
        return GW_OK;
    }
    gw_arena mem = {0};
    bool *can = gw_arena_new(&mem, bool, src->ops.count + 1);
    bool *drop = gw_arena_new(&mem, bool, src->ops.count + 1);
    find_droppable(src, can);
    gw_status st = GW_OK;
    const gw_recompute_opts *o = &opts->recompute;
    if (o->kind == GW_RECOMPUTE_OPS) st = check_names(src, o, can, dg);
    for (int64_t i = 0; i < src->ops.count && st == GW_OK; i++) {
        const char *name = gw_op_def(src, &src->ops.items[i])->name;
        switch (o->kind) {
        case GW_RECOMPUTE_NONE:
        case GW_RECOMPUTE_BUDGET: break;
        case GW_RECOMPUTE_SELECTIVE: drop[i] = can[i] && strcmp(name, "attention") == 0; break;
        case GW_RECOMPUTE_FULL: drop[i] = can[i]; break;
        case GW_RECOMPUTE_OPS: drop[i] = can[i] && named(o, name); break;
        }
    }
    if (o->kind == GW_RECOMPUTE_BUDGET && st == GW_OK)
        st = choose_budget(src, can, drop, opts, report, &mem, dg);
    if (st == GW_OK) apply(dst, src, drop, report);
    gw_arena_release(&mem);
    return st;
}
