// SPDX-License-Identifier: Apache-2.0
// Attention and its gradient, cut over ranks in every way the shard rules know, against the whole.
//
// All ranks of a mesh are played in one process: every value has its local bytes on each, an op
// runs rank by rank on local tensors, and a conversion (whatever the chain) is played by what its
// types say: the whole is put together from the input's placement and dealt out by the output's.
// So what is tested is the rule's program, the meaning of the types in it, and the kernels on parts
// of any shape; transports and collective algorithms are tested elsewhere.
//
// The reference kernels run in float64, where a layout may change the order of sums only: 1e-12.
// The CPU kernels run in float32 against the float64 whole: 3e-5 of |value| + rms.
#include <stdlib.h>
#include <string.h>

#include "harness.h"
#include "ir/shard.h"      /* GW_SHARD_ZIGZAG */
#include "ir/verify.h"     /* gw_graph_verify */
#include "kernel/kernel.h" /* gw_kernel_choose */
#include "ops/attention.h" /* gw_attention_pairs */
#include "ops/ops.h"       /* gw_ops_table */
#include "ops/ref.h"       /* gw_ref_get */
#include "pass/convert.h"  /* gw_convert */

/* ---- a world of ranks ---- */

typedef struct world {
    gw_graph g;
    int64_t ranks;
    void **data; /* [values * ranks] */
} world;

static void **slot(const world *w, gw_vid v, int64_t rank) {
    return &w->data[(int64_t)v * w->ranks + rank];
}

static void *fresh(int64_t bytes) {
    void *p = aligned_alloc(64, (size_t)((bytes + 127) / 64 * 64));
    CHECK(p);
    memset(p, 0xff, (size_t)bytes); /* NaN in every float dtype */
    return p;
}

static void world_open(world *w) {
    w->ranks = gw_mesh_ranks(&w->g.mesh);
    w->data = calloc((size_t)(w->g.values.count * w->ranks), sizeof *w->data);
    for (int64_t v = 0; v < w->g.values.count; v++)
        for (int64_t r = 0; r < w->ranks; r++) {
            gw_vid tie = w->g.values.items[v].tie, id = (gw_vid)v;
            *slot(w, id, r) =
                tie != GW_NONE ? *slot(w, tie, r)
                               : fresh(gw_type_local_bytes(gw_type_of(&w->g, id), &w->g.mesh, r));
        }
}

static void world_close(world *w) {
    for (int64_t v = 0; v < w->g.values.count; v++)
        for (int64_t r = 0; r < w->ranks; r++)
            if (w->g.values.items[v].tie == GW_NONE) free(*slot(w, (gw_vid)v, r));
    free(w->data);
    gw_graph_release(&w->g);
}

static gw_tensor tensor(const world *w, gw_vid v, int64_t rank) {
    return gw_tensor_of(&w->g, v, *slot(w, v, rank), rank);
}

static double get(const gw_tensor *t, int64_t i) {
    return gw_dtype_is_float(t->dtype) ? gw_ref_get(t, i) : (double)gw_ref_int(t, i);
}

static void set(const gw_tensor *t, int64_t i, double x) {
    if (t->dtype == GW_I32)
        ((int32_t *)t->data)[i] = (int32_t)x;
    else
        gw_ref_set(t, i, x);
}

/* Is `rank` at 0 on all of `axes`? */
static bool at_zero(const world *w, int64_t rank, uint32_t axes) {
    for (int a = 0; a < w->g.mesh.naxes; a++)
        if ((axes >> a & 1u) && gw_mesh_coord(&w->g.mesh, rank, a)) return false;
    return true;
}

/* Every rank's part of a whole; a partial sum has all of it where its sub-axes are at 0. */
static void deal(const world *w, gw_vid v, const double *whole) {
    const gw_type *t = gw_type_of(&w->g, v);
    for (int64_t r = 0; r < w->ranks; r++) {
        gw_tensor x = tensor(w, v, r);
        gw_held h;
        int64_t global, local, n;
        gw_held_begin(&h, t, &w->g.mesh, r);
        while (gw_held_next(&h, &global, &local, &n))
            for (int64_t i = 0; i < n; i++)
                set(&x, local + i, at_zero(w, r, t->psum) ? whole[global + i] : 0);
    }
}

/* The whole that all parts make; replicas must have the same bits. */
static void collect(const world *w, gw_vid v, double *whole) {
    const gw_type *t = gw_type_of(&w->g, v);
    uint32_t copies = ~(gw_type_cut_axes(t) | t->psum);
    int64_t elems = gw_type_elems(t), parts = 0;
    memset(whole, 0, (size_t)elems * sizeof *whole);
    for (int64_t r = 0; r < w->ranks; r++) {
        gw_tensor x = tensor(w, v, r);
        int64_t first = r, global, local, n;
        for (int a = 0; a < w->g.mesh.naxes; a++) { /* the replica at 0 */
            int64_t stride = 1;
            for (int b = a + 1; b < w->g.mesh.naxes; b++) stride *= w->g.mesh.axes[b].size;
            if (copies >> a & 1u) first -= gw_mesh_coord(&w->g.mesh, r, a) * stride;
        }
        if (first != r) {
            CHECK(memcmp(x.data, *slot(w, v, first),
                         (size_t)gw_type_local_bytes(t, &w->g.mesh, r)) == 0);
            continue;
        }
        gw_held h;
        gw_held_begin(&h, t, &w->g.mesh, r);
        while (gw_held_next(&h, &global, &local, &n)) {
            for (int64_t i = 0; i < n; i++) whole[global + i] += get(&x, local + i);
            parts += n;
        }
    }
    CHECK_EQ(parts, elems * gw_mesh_size(&w->g.mesh, t->psum));
}

static bool converts(const gw_opdef *d) {
    static const char *const names[] = {"all_reduce", "reduce_scatter", "all_gather", "all_to_all",
                                        "shift",      "slice",          "keep_one",   "place"};
    for (size_t i = 0; i < GW_COUNT(names); i++)
        if (strcmp(d->name, names[i]) == 0) return true;
    return false;
}

typedef struct at_rank {
    const world *w;
    int64_t rank;
} at_rank;

static void *data_of(void *user, gw_vid v) {
    const at_rank *a = user;
    return *slot(a->w, v, a->rank);
}

#define GUARD 64

static void run_on(const world *w, const gw_op *o, const gw_machine *m, int64_t rank) {
    const gw_kernel *k = gw_kernel_choose(&w->g, o, m);
    CHECK(m->reference_only || k != &gw_kernel_reference || gw_op_is(&w->g, o, "cast"));
    gw_tensor in[GW_MAX_IN], out[GW_MAX_OUT];
    at_rank at = {w, rank};
    gw_kargs a = {.threads = m->threads, .work_bytes = k->workspace(&w->g, o, m)};
    gw_kargs_bind(&a, &w->g, o, in, out, data_of, &at, rank);
    uint8_t *work = fresh(a.work_bytes + GUARD);
    memset(work + a.work_bytes, 0x5a, GUARD);
    a.work = work;
    gw_arena arena = {0};
    gw_diags dg;
    gw_diags_init(&dg);
    void *state = NULL;
    CHECK_OK(k->prepare(&a, &arena, &state, &dg), &dg);
    CHECK_OK(k->launch(state, &a, &dg), &dg);
    k->release(state);
    for (int i = 0; i < GUARD; i++) CHECK(work[a.work_bytes + i] == 0x5a);
    free(work);
    gw_arena_release(&arena);
    gw_diags_release(&dg);
}

static void world_run(const world *w, const gw_machine *m) {
    for (int64_t i = 0; i < w->g.ops.count; i++) {
        const gw_op *o = &w->g.ops.items[i];
        if (!converts(gw_op_def(&w->g, o))) {
            for (int64_t r = 0; r < w->ranks; r++) run_on(w, o, m, r);
            continue;
        }
        gw_vid from = gw_op_in(&w->g, o, 0), to = gw_op_out(&w->g, o, 0);
        double *whole = malloc((size_t)(gw_type_elems(gw_type_of(&w->g, from)) + 1) * 8);
        collect(w, from, whole);
        deal(w, to, whole);
        free(whole);
    }
}

/* ---- layouts ---- */

typedef struct layout {
    const char *name;
    int dp, ring, ulysses, gather, tp;
    bool sequence;             /* q, k, v come with s cut over tp too, and heads whole */
    bool whole_kv;             /* k and v come with whole heads though q's are cut */
    int heads, groups, values; /* values: the size of v's heads, 0 as q's */
    int causal, window, docs;  /* docs: 0 none, 1 packed in order, 2 in disorder */
} layout;

static const layout layouts[] = {
    {"ring 2", 1, 2, 1, 1, 1, false, false, 2, 1, 0, 1, 0, 0},
    {"ring 4, documents", 1, 4, 1, 1, 1, false, false, 2, 2, 0, 1, 0, 1},
    {"ring 3, window", 1, 3, 1, 1, 1, false, false, 4, 2, 0, 1, 11, 0},
    {"ring 4, window, documents, values", 2, 4, 1, 1, 1, false, false, 2, 1, 5, 1, 20, 1},
    {"ring 2, not causal", 1, 2, 1, 1, 1, false, false, 2, 2, 0, 0, 0, 0},
    {"ring 2, not causal, window, disorder", 1, 2, 1, 1, 1, false, false, 2, 1, 0, 0, 17, 2},
    {"ring 2, tp 2", 1, 2, 1, 1, 2, false, false, 4, 2, 0, 1, 0, 1},
    {"ring 2, tp 4, one kv head", 1, 2, 1, 1, 4, false, false, 4, 1, 0, 1, 0, 0},
    {"ulysses 2", 1, 1, 2, 1, 1, false, false, 4, 2, 0, 1, 0, 0},
    {"ulysses 4, fewer kv heads, documents", 1, 1, 4, 1, 1, false, false, 8, 2, 3, 1, 0, 1},
    {"ulysses 4, one kv head, window", 1, 1, 4, 1, 1, false, false, 4, 1, 0, 1, 9, 0},
    {"ulysses 2, odd heads", 1, 1, 2, 1, 1, false, false, 5, 5, 0, 1, 0, 2},
    {"ulysses 4, fewer heads than ranks", 1, 1, 4, 1, 1, false, false, 3, 1, 0, 1, 0, 0},
    {"ulysses 2, tp 2, odd heads", 1, 1, 2, 1, 2, false, false, 6, 6, 0, 1, 0, 1},
    {"ulysses 2, tp 2, odd groups", 2, 1, 2, 1, 2, false, false, 6, 3, 0, 1, 0, 0},
    {"gather 2", 1, 1, 1, 2, 1, false, false, 2, 1, 0, 1, 0, 0},
    {"gather 4, window, documents", 1, 1, 1, 4, 1, false, false, 2, 2, 0, 1, 15, 1},
    {"gather 2, tp 2, disorder", 1, 1, 1, 2, 2, false, false, 4, 2, 6, 1, 0, 2},
    {"hybrid 2 x 2", 1, 2, 2, 1, 1, false, false, 4, 2, 0, 1, 0, 1},
    {"hybrid 2 x 2, one kv head, window", 1, 2, 2, 1, 1, false, false, 2, 1, 0, 1, 13, 0},
    {"hybrid 2 x 2, tp 2", 1, 2, 2, 1, 2, false, false, 4, 4, 0, 1, 0, 1},
    {"hybrid 3 x 2, not causal", 1, 3, 2, 1, 1, false, false, 2, 2, 0, 0, 0, 1},
    {"tp 2", 2, 1, 1, 1, 2, false, false, 4, 2, 0, 1, 0, 1},
    {"tp 4, three heads", 1, 1, 1, 1, 4, false, false, 3, 3, 0, 1, 0, 0},
    {"tp 3, uneven, grouped", 1, 1, 1, 1, 3, false, false, 4, 2, 0, 1, 5, 0},
    {"tp 2, sequence parallel", 1, 1, 1, 1, 2, true, false, 4, 2, 0, 1, 0, 1},
    {"ring 2, tp 2, sequence parallel", 1, 2, 1, 1, 2, true, false, 4, 2, 0, 1, 0, 1},
    {"ring 2, tp 2, kv heads whole", 1, 2, 1, 1, 2, false, true, 4, 2, 0, 1, 0, 0},
};

/* The operands, in this order; leaves of the program. */
enum { Q, K, V, DO, DOCS, NLEAVES };
enum { O, LSE, DQ, DK, DV, NRESULTS };

enum { BATCH = 2, HEAD = 8 };

static void add_dims(gw_type *t, const layout *l, int64_t s, int leaf) {
    bool of_kv = leaf == K || leaf == V;
    bool values = (leaf == V || leaf == DO) && l->values;
    gw_type_add(t, "b", BATCH);
    gw_type_add(t, "s", s);
    if (leaf == DOCS) return;
    gw_type_add(t, of_kv ? "g" : "h", of_kv ? l->groups : l->heads);
    gw_type_add(t, values ? "u" : "k", values ? l->values : HEAD);
}

/* The mesh of a layout, and what its sub-axes do. */
static void axes_of(const layout *l, gw_mesh *m, gw_axes *a) {
    *a = (gw_axes){.samples = gw_mesh_add(m, "dp", l->dp)};
    a->ring = gw_mesh_add(m, "cp", l->ring);
    a->gather = gw_mesh_add(m, "cpg", l->gather);
    a->ulysses = gw_mesh_add(m, "cpu", l->ulysses);
    a->tp = gw_mesh_add(m, "tp", l->tp);
    a->cp = a->ring | a->gather | a->ulysses;
    a->sequence_parallel = l->sequence;
}

static void place_leaf(gw_type *t, const layout *l, const gw_mesh *m, const gw_axes *a, int leaf) {
    gw_dim *s = &t->dims[1];
    gw_dim_cut(&t->dims[0], a->samples, m);
    gw_dim_cut(s, a->ring | a->gather, m);
    s->outer = s->naxes;
    if (s->outer) s->shard = GW_SHARD_ZIGZAG;
    gw_dim_cut(s, a->ulysses, m);
    if (leaf == DOCS) return;
    if (l->sequence) {
        gw_dim_cut(s, a->tp, m);
        return;
    }
    bool of_kv = leaf == K || leaf == V;
    if (!of_kv || (!l->whole_kv && l->groups % l->tp == 0) || l->groups == l->heads)
        gw_dim_cut(&t->dims[2], a->tp, m);
}

/* attention and attention_grad of unplaced leaves. */
static void build_whole(gw_graph *g, const layout *l, int64_t s, gw_dtype dtype, gw_diags *dg,
                        gw_vid leaves[], gw_vid results[]) {
    gw_graph_init(g, gw_ops_table());
    g->micro_batches = 1;
    gw_builder b;
    gw_builder_init(&b, g, dg);
    b.rate = GW_RATE_MB;
    for (int i = 0; i < NLEAVES; i++) {
        char name[8];
        snprintf(name, sizeof name, "leaf%d", i);
        gw_type t = gw_type_scalar(i == DOCS ? GW_I32 : dtype);
        add_dims(&t, l, s, i);
        leaves[i] = gw_graph_leaf(g, GW_ROLE_INPUT, GW_CAUSE_DATA, GW_RATE_MB, t, name);
    }
    gw_attr a[] = {{.i = l->causal}, {.i = l->window}, {.f = 0}};
    gw_vid docs = l->docs ? leaves[DOCS] : GW_NONE;
    results[O] = gw_build(&b, "attention", (gw_vid[]){leaves[Q], leaves[K], leaves[V], docs}, 4, a,
                          &results[LSE]);
    b.phase = GW_PHASE_B;
    results[DQ] = gw_build(
        &b, "attention_grad",
        (gw_vid[]){leaves[DO], leaves[Q], leaves[K], leaves[V], results[O], results[LSE], docs}, 7,
        a, &results[DK]);
    CHECK_OK(b.status, dg);
}

static gw_vid convert(gw_sharding *s, gw_vid v, const gw_type *to) {
    return gw_convert(s->b, v, to);
}
static gw_status by_signature(gw_sharding *s, gw_diags *dg) {
    (void)s, (void)dg;
    test_fail(__FILE__, __LINE__, "the rule falls back on the signature");
}

/* The program of a layout: leaves placed, then each op by its rule. map: values of src in g. */
static void build_cut(gw_graph *g, const gw_graph *src, const layout *l, gw_diags *dg,
                      const gw_vid leaves[], gw_vid map[]) {
    gw_axes axes;
    gw_graph_init(g, gw_ops_table());
    g->micro_batches = 1;
    axes_of(l, &g->mesh, &axes);
    for (int i = 0; i < NLEAVES; i++) {
        map[leaves[i]] = gw_graph_copy_leaf(g, src, leaves[i]);
        place_leaf(&g->values.items[map[leaves[i]]].type, l, &g->mesh, &axes, i);
    }
    for (int64_t i = 0; i < src->ops.count; i++) {
        const gw_op *o = &src->ops.items[i];
        gw_builder b;
        gw_builder_init(&b, g, dg);
        b.rate = (gw_rate)o->rate;
        b.phase = (gw_phase)o->phase;
        gw_vid in[GW_MAX_IN], out[GW_MAX_OUT];
        gw_attr attrs[GW_MAX_ATTRS];
        const gw_type *want[GW_MAX_OUT] = {NULL};
        for (int k = 0; k < o->nin; k++) {
            gw_vid v = gw_op_in(src, o, k);
            in[k] = v == GW_NONE ? GW_NONE : map[v];
        }
        for (int k = 0; k < gw_op_def(src, o)->nattrs; k++) attrs[k] = gw_op_attr(src, o, k);
        gw_sharding s = {.b = &b,
                         .src = src,
                         .op = o,
                         .nin = o->nin,
                         .nout = o->nout,
                         .in = in,
                         .out = out,
                         .attrs = attrs,
                         .axes = &axes,
                         .want = want,
                         .by_signature = by_signature,
                         .convert = convert};
        CHECK_OK(gw_op_def(src, o)->shard(&s, dg), dg);
        for (int k = 0; k < o->nout; k++) map[gw_op_out(src, o, k)] = out[k];
    }
    CHECK_OK(gw_graph_verify(g, dg), dg);
}

/* Numbers of one leaf: about a unit in size; documents of some 14 tokens. */
static void numbers(double *x, const gw_type *t, int leaf, const layout *l) {
    int64_t n = gw_type_elems(t), s = t->dims[1].size;
    int64_t id = 0;
    for (int64_t i = 0; i < n; i++) {
        if (leaf != DOCS) {
            x[i] = (double)(float)(1.4 * sin((double)(i * (7 + leaf) + 3 * leaf) * 0.7123));
            continue;
        }
        if (i % s == 0) id = 0;
        id += (i * 2654435761u >> 7) % 14 == 0;
        x[i] = l->docs == 2 ? (double)(i / 5 % 3) : (double)id;
    }
}

/* ---- laws ---- */

typedef struct pair {
    gw_graph src;
    world cut, whole; /* whole: one rank, float64, by the reference */
    gw_vid leaves[NLEAVES], results[NRESULTS], map[64];
} pair;

/* `cpu`: the cut program in float32 by the CPU kernels; else in float64 by the references. */
static void pair_open(pair *p, const layout *l, int64_t s, bool cpu, gw_diags *dg) {
    gw_vid leaves[NLEAVES], results[NRESULTS];
    build_whole(&p->whole.g, l, s, GW_F64, dg, leaves, results);
    build_whole(&p->src, l, s, cpu ? GW_F32 : GW_F64, dg, p->leaves, p->results);
    CHECK(p->src.values.count <= (int64_t)GW_COUNT(p->map));
    build_cut(&p->cut.g, &p->src, l, dg, p->leaves, p->map);
    world_open(&p->whole);
    world_open(&p->cut);
    for (int i = 0; i < NLEAVES; i++) {
        const gw_type *t = gw_type_of(&p->src, p->leaves[i]);
        double *x = malloc((size_t)gw_type_elems(t) * sizeof *x);
        numbers(x, t, i, l);
        deal(&p->whole, p->leaves[i], x);
        deal(&p->cut, p->map[p->leaves[i]], x);
        free(x);
    }
}

static void pair_close(pair *p) {
    world_close(&p->whole);
    world_close(&p->cut);
    gw_graph_release(&p->src);
}

static void compare(const pair *p, const layout *l, int result, double tol) {
    static const char *const names[] = {"o", "lse", "dq", "dk", "dv"};
    int64_t n = gw_type_elems(gw_type_of(&p->src, p->results[result]));
    double *a = malloc((size_t)n * sizeof *a), *b = malloc((size_t)n * sizeof *b), rms = 0;
    collect(&p->cut, p->map[p->results[result]], a);
    collect(&p->whole, p->results[result], b);
    for (int64_t i = 0; i < n; i++) rms += b[i] * b[i];
    rms = sqrt(rms / (double)n);
    CHECK(rms > 1e-3);
    for (int64_t i = 0; i < n; i++)
        CHECK_MSG(fabs(a[i] - b[i]) <= tol * (fabs(b[i]) + rms),
                  "%s: %s[%lld of %lld] is %.12g, whole %.12g", l->name, names[result],
                  (long long)i, (long long)n, a[i], b[i]);
    free(a);
    free(b);
}

/* Outputs stand where inputs stood: o and dq as q along s, dk and dv as k. */
static void check_home(const pair *p, const layout *l) {
    const gw_graph *g = &p->cut.g;
    gw_axes axes;
    gw_mesh m = {0};
    axes_of(l, &m, &axes);
    for (int i = 0; i < NRESULTS; i++) {
        const gw_type *t = gw_type_of(g, p->map[p->results[i]]);
        gw_dim s = gw_type_of(g, p->map[p->leaves[Q]])->dims[1];
        gw_dim_uncut(&s, axes.tp);
        bool same = gw_dim_axes(&s) == gw_dim_axes(&t->dims[1]) && t->dims[1].turn == 0;
        CHECK_MSG(same || i == LSE, "%s: result %d is cut otherwise along s", l->name, i);
        CHECK_MSG((t->psum & ~axes.tp) == 0, "%s: result %d is partial on cp", l->name, i);
    }
}

static void run_layout(const layout *l, int64_t s, bool cpu) {
    gw_diags dg;
    gw_diags_init(&dg);
    pair p = {0};
    pair_open(&p, l, s, cpu, &dg);
    gw_machine exact = gw_machine_this(1), m = gw_machine_this(2);
    exact.reference_only = true;
    check_home(&p, l);
    world_run(&p.whole, &exact);
    world_run(&p.cut, cpu ? &m : &exact);
    for (int i = 0; i < NRESULTS; i++) compare(&p, l, i, cpu ? 3e-5 : 1e-12);
    pair_close(&p);
    gw_diags_release(&dg);
}

TEST(every_cut_has_the_meaning_of_the_whole) {
    for (size_t i = 0; i < GW_COUNT(layouts); i++) run_layout(&layouts[i], 48, false);
}

TEST(cpu_kernels_on_every_cut) {
    for (size_t i = 0; i < GW_COUNT(layouts); i++) run_layout(&layouts[i], 240, true);
}

/* Ranks share the pairs: each is computed once. */
TEST(work_of_all_ranks_is_the_work_of_the_whole) {
    for (size_t i = 0; i < GW_COUNT(layouts); i++) {
        gw_diags dg;
        gw_diags_init(&dg);
        pair p = {0};
        pair_open(&p, &layouts[i], 48, false, &dg);
        double seen[2][2] = {{0}}; /* cut and whole; forward and backward */
        const world *worlds[] = {&p.cut, &p.whole};
        for (int w = 0; w < 2; w++)
            for (int64_t o = 0; o < worlds[w]->g.ops.count; o++) {
                const gw_graph *g = &worlds[w]->g;
                const gw_op *op = &g->ops.items[o];
                if (strncmp(gw_op_def(g, op)->name, "attention", 9) != 0) continue;
                bool grad = op->nout == 3;
                const gw_type *q = gw_type_of(g, gw_op_in(g, op, gw_attention_first(grad)));
                for (int64_t r = 0; r < worlds[w]->ranks; r++)
                    seen[w][grad] += (double)(gw_type_local_dim(q, 0, &g->mesh, r) *
                                              gw_type_local_dim(q, 2, &g->mesh, r)) *
                                     gw_attention_pairs(g, op, grad, r);
            }
        for (int grad = 0; grad < 2; grad++)
            CHECK_MSG(seen[0][grad] == seen[1][grad] && seen[1][grad] > 0,
                      "%s: ranks compute %g pairs, the whole has %g", layouts[i].name,
                      seen[0][grad], seen[1][grad]);
        pair_close(&p);
        gw_diags_release(&dg);
    }
}

/* A block is on its way while the one before is worked on; k, v and docs make n - 1 moves each way,
 * the gradients n, home included. */
TEST(a_ring_sends_ahead) {
    gw_diags dg;
    gw_diags_init(&dg);
    pair p = {0};
    enum { N = 4 };
    pair_open(&p, &layouts[1], 48, false, &dg);
    const gw_graph *g = &p.cut.g;
    int shifts = 0, parts = 0, early = 0;
    for (int64_t i = 0; i < g->ops.count; i++) {
        const gw_op *o = &g->ops.items[i];
        if (gw_op_is(g, o, "shift")) {
            CHECK_EQ(o->stream, GW_STREAM_CP);
            shifts++;
            continue;
        }
        bool grad = gw_op_is(g, o, "attention_part_grad");
        if (!grad && !gw_op_is(g, o, "attention_part")) continue;
        const gw_type *k = gw_type_of(g, gw_op_in(g, o, grad ? 2 : 1));
        CHECK_EQ(k->dims[1].turn, parts % N);
        for (int64_t b = i; b-- > 0;) { /* the next block's k, before this op */
            const gw_op *x = &g->ops.items[b];
            if (!gw_op_is(g, x, "shift") || gw_op_in(g, x, 0) != gw_op_in(g, o, grad ? 2 : 1))
                continue;
            early++;
            break;
        }
        parts++;
    }
    CHECK_EQ(parts, 2 * N);
    CHECK_EQ(early, 2 * (N - 1));
    CHECK_EQ(shifts, 3 * (N - 1) + 3 * (N - 1) + 2 * N);
    pair_close(&p);
    gw_diags_release(&dg);
}
