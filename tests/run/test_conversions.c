// SPDX-License-Identifier: Apache-2.0
// The law of conversions: a tensor is what it was. Random types on meshes of up to eight ranks are
// given random placements; each rank gets its part of one logical tensor, partial sums split at
// random; gw_convert brings it to another random placement; the program is placed and run, by every
// algorithm that can, and the parts of all ranks put together are the logical tensor. What was sent
// is what was planned, to the byte, and so is the arena.
#include <stdio.h>
#include <string.h>

#include "../harness.h"
#include "base/num.h"    /* gw_bf16 */
#include "base/str.h"    /* gw_str */
#include "comm/launch.h" /* gw_launch_threads */
#include "ir/shard.h"    /* GW_SHARD_ZIGZAG */
#include "ir/text.h"     /* gw_graph_print */
#include "ir/verify.h"   /* gw_graph_verify */
#include "ops/ops.h"     /* gw_ops_table */
#include "pass/convert.h"
#include "pass/pass.h" /* gw_pass_place */
#include "run/exec.h"  /* gw_exec */

enum { MAX_RANKS = 8 };

/* Numbers at random: good enough, and the same everywhere. */
typedef struct dice {
    uint64_t state;
} dice;

static uint64_t mix(uint64_t x) {
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

static int roll(dice *d, int n) {
    d->state += UINT64_C(0x9e3779b97f4a7c15);
    return (int)(mix(d->state) % (uint64_t)n);
}

/* ---- types ---- */

static gw_mesh mesh_of(const char *text) {
    gw_mesh m = {0};
    char name[20];
    int size = 0, n = 0;
    while (sscanf(text, "%19[a-z_]%d %n", name, &size, &n) == 2) {
        gw_mesh_add(&m, name, size);
        text += n;
        n = 0;
    }
    return m;
}

static gw_type random_shape(dice *d, const gw_mesh *m) {
    static const char *const names[] = {"b", "s", "h", "k"};
    static const gw_dtype dtypes[] = {GW_F32, GW_F32, GW_BF16, GW_F64};
    gw_type t = gw_type_scalar(dtypes[roll(d, 4)]);
    int ndim = 1 + roll(d, 4), ranks = (int)gw_mesh_ranks(m);
    for (int i = 0; i < ndim; i++) {
        int64_t size = 1 + roll(d, 7);
        if (roll(d, 3)) size = 2 * ranks * (1 + roll(d, 2)); /* even, however it is cut */
        if (roll(d, 40) == 0) size = 0;
        if (i > 1 && size > ranks && roll(d, 2)) size = ranks;
        gw_type_add(&t, names[i], size);
    }
    return t;
}

/* In zigzag, and turned, where the parts are equal. */
static void second_cut(dice *d, gw_type *t, int i, const gw_mesh *m) {
    gw_dim *x = &t->dims[i];
    if (x->naxes == 0 || roll(d, 2)) return;
    x->outer = (uint8_t)(1 + roll(d, x->naxes));
    if (roll(d, 2)) {
        x->shard = GW_SHARD_ZIGZAG;
        if (!gw_type_even(t, i, m)) x->shard = GW_SHARD_CHUNK;
    }
    int64_t ring = 1;
    for (int k = 0; k < x->outer; k++) ring *= m->axes[x->axes[k]].size;
    if (gw_type_even(t, i, m) && roll(d, 3) == 0) x->turn = (uint8_t)roll(d, (int)ring);
}

/* Each sub-axis: nowhere, on a dimension, in the flat cut, partial. */
static gw_type random_placement(dice *d, gw_type t, const gw_mesh *m, bool maxima) {
    int order[GW_MAX_AXES];
    bool sorted = roll(d, 3) > 0;
    for (int a = 0; a < m->naxes; a++) order[a] = a;
    for (int a = m->naxes - 1; a > 0 && !sorted; a--) {
        int k = roll(d, a + 1), x = order[a];
        order[a] = order[k];
        order[k] = x;
    }
    bool flat = roll(d, 5) == 0;
    for (int k = 0; k < m->naxes; k++) {
        int what = roll(d, 10), a = order[k];
        if (what < 5) {
            gw_dim *x = &t.dims[roll(d, t.ndim)];
            x->axes[x->naxes++] = (uint8_t)a;
        } else if (what < 7) {
            *(maxima ? &t.pmax : &t.psum) |= 1u << a;
        } else if (what < 9 && flat) {
            t.flat = 1;
            t.flat_axes |= 1u << a;
        }
    }
    for (int i = 0; i < t.ndim; i++) second_cut(d, &t, i, m);
    return t;
}

/* The same placement with outer cuts further around their rings. */
static gw_type turned(dice *d, gw_type *from, const gw_mesh *m) {
    for (int i = 0; i < from->ndim && !from->flat; i++)
        if (from->dims[i].outer == 0) from->dims[i].outer = from->dims[i].naxes;
    gw_type t = *from;
    for (int i = 0; i < t.ndim && !from->flat; i++) {
        int64_t ring = 1;
        for (int k = 0; k < t.dims[i].outer; k++) ring *= m->axes[t.dims[i].axes[k]].size;
        if (ring > 1 && gw_type_even(&t, i, m)) t.dims[i].turn = (uint8_t)roll(d, (int)ring);
    }
    t.psum = 0;
    t.pmax = 0;
    return t;
}

/* ---- one trial ---- */

typedef struct trial {
    gw_graph g; /* placed */
    gw_mesh mesh;
    gw_type from, to;
    gw_vid x, y;
    bool reference; /* kernels */
    double *out[MAX_RANKS];
    uint64_t seed;
} trial;

static double logical(int64_t global) { return (double)(mix((uint64_t)global + 77) % 13) - 6.0; }

/* What `rank` holds of an element: a share of it that depends on its place among those that add up,
 * whole numbers, so that sums are exact in any order and dtype. */
static double share_of(const trial *t, const gw_type *type, int64_t rank, int64_t global) {
    double v = logical(global);
    uint32_t axes = type->psum | type->pmax;
    int64_t n = gw_mesh_size(&t->mesh, axes), at = gw_exec_group_rank(&t->mesh, axes, rank);
    uint64_t noise = mix((uint64_t)global * 131 + t->seed);
    if (n == 1) return v;
    if (type->pmax) return at == (int64_t)(noise % (uint64_t)n) ? v : v - (double)(noise % 3);
    if (at > 0) return (double)(mix(noise + (uint64_t)at) % 5) - 2.0;
    for (int64_t k = 1; k < n; k++) v -= (double)(mix(noise + (uint64_t)k) % 5) - 2.0;
    return v;
}

static void put(void *base, gw_dtype t, int64_t i, double v) {
    if (t == GW_F32) ((float *)base)[i] = (float)v;
    if (t == GW_F64) ((double *)base)[i] = v;
    if (t == GW_BF16) ((gw_bf16 *)base)[i] = gw_bf16_from_f32((float)v);
}

static double get(const void *base, gw_dtype t, int64_t i) {
    if (t == GW_F32) return (double)((const float *)base)[i];
    if (t == GW_F64) return ((const double *)base)[i];
    return (double)gw_bf16_to_f32(((const gw_bf16 *)base)[i]);
}

static void describe(const trial *t) {
    gw_str text = {0};
    gw_graph_print(&t->g, &text, false);
    test_note("seed %llu\n%s", (unsigned long long)t->seed, gw_str_c(&text));
    gw_str_release(&text);
}

static void check_counts(const trial *t, gw_comm *c, int rank) {
    gw_coll_traffic planned[GW_COLL_KIND_COUNT];
    gw_exec_traffic(&t->g, rank, gw_comm_machine(c), planned);
    for (int k = 0; k < GW_COLL_KIND_COUNT; k++) {
        gw_comm_counts n = gw_comm_counted(c, (gw_coll_kind)k);
        if (n.payload != planned[k].payload || n.moved != planned[k].moved) describe(t);
        CHECK_EQ(n.payload, planned[k].payload);
        CHECK_EQ(n.moved, planned[k].moved);
    }
}

static gw_status body(gw_comm *c, void *user, gw_diags *dg) {
    trial *t = user;
    int rank = gw_comm_rank(c);
    gw_machine machine = gw_machine_this(1);
    machine.reference_only = t->reference;
    gw_exec *x = NULL;
    gw_comm_set_mesh(c, &t->mesh);
    gw_exec_opts o = {.machine = machine, .comm = c, .rank = rank, .poison = true};
    GW_TRY(gw_exec_new(&x, &t->g, &o, dg));
    CHECK_EQ(gw_exec_arena_bytes(x), t->g.arena_bytes[GW_MEM_DEVICE]);
    gw_held h;
    int64_t global, local, count;
    char *in = gw_exec_ptr(x, t->x);
    gw_held_begin(&h, &t->from, &t->mesh, rank);
    while (gw_held_next(&h, &global, &local, &count))
        for (int64_t i = 0; i < count; i++)
            put(in, (gw_dtype)t->from.dtype, local + i, share_of(t, &t->from, rank, global + i));
    gw_comm_counts_reset(c);
    GW_TRY(gw_exec_run(x, GW_SEG_PRE, dg));
    check_counts(t, c, rank);
    gw_tensor y = gw_exec_tensor(x, t->y);
    t->out[rank] = gw_mem_alloc(sizeof(double) * (size_t)(y.elems + 1));
    for (int64_t i = 0; i < y.elems; i++) t->out[rank][i] = get(y.data, y.dtype, i);
    gw_exec_free(x);
    return GW_OK;
}

/* The sum over the ranks that hold partial sums beside this one. */
static double summed(const trial *t, int64_t rank, int64_t i) {
    double sum = 0;
    for (int64_t r = 0; r < gw_mesh_ranks(&t->mesh); r++) {
        bool beside = true;
        for (int a = 0; a < t->mesh.naxes; a++)
            beside &= (t->to.psum >> a & 1u) ||
                      gw_mesh_coord(&t->mesh, r, a) == gw_mesh_coord(&t->mesh, rank, a);
        if (beside) sum += t->out[r][i];
    }
    return sum;
}

static void check_result(const trial *t) {
    for (int64_t r = 0; r < gw_mesh_ranks(&t->mesh); r++) {
        gw_held h;
        int64_t global, local, count;
        gw_held_begin(&h, &t->to, &t->mesh, r);
        while (gw_held_next(&h, &global, &local, &count))
            for (int64_t i = 0; i < count; i++) {
                double is = summed(t, r, local + i), want = logical(global + i);
                if (is == want) continue;
                describe(t);
                test_fail(__FILE__, __LINE__, "rank %d, element %lld: %g, not %g", (int)r,
                          (long long)(global + i), is, want);
            }
    }
}

/* Each collective by one of the algorithms that can do it. */
static void choose_algorithms(dice *d, gw_graph *g) {
    gw_coll_machine m = gw_coll_machine_local(1);
    for (int64_t i = 0; i < g->ops.count; i++) {
        const gw_op *o = &g->ops.items[i];
        if (!gw_op_is_collective(g, o)) continue;
        gw_arena mem = {0};
        gw_coll_candidate all[16];
        int n = 0;
        gw_oid id = (gw_oid)i;
        gw_coll c = gw_exec_coll(g, &id, 1, 0, &mem);
        gw_coll_machine group = gw_exec_group_machine(&m, &g->mesh, c.axes);
        (void)gw_coll_choose(&c, &group, all, 16, &n);
        int k = roll(d, n);
        for (int tries = 0; tries < n && !all[k].possible; tries++) k = (k + 1) % n;
        gw_attr a = {0};
        a.s = gw_graph_intern(g, all[k].name);
        const gw_opdef *def = gw_op_def(g, o);
        for (int q = 0; q < def->nattrs; q++)
            if (strcmp(def->attrs[q].name, "algorithm") == 0)
                g->attrs.items[o->attr + (uint32_t)q] = a;
        gw_arena_release(&mem);
    }
}

static void build(trial *t, dice *d, gw_diags *dg) {
    gw_graph g;
    gw_builder b;
    gw_graph_init(&g, gw_ops_table());
    g.mesh = t->mesh;
    gw_builder_init(&b, &g, dg);
    b.phase = GW_PHASE_F;
    b.rate = GW_RATE_STEP;
    gw_builder_enter(&b, "a law");
    t->x = gw_graph_leaf(&g, GW_ROLE_INPUT, GW_CAUSE_ACTIVATIONS, GW_RATE_STEP, t->from, "x");
    t->y = gw_convert(&b, t->x, &t->to);
    CHECK_OK(b.status, dg);
    if (t->y != t->x) g.values.items[t->y].name = gw_graph_intern(&g, "y");
    choose_algorithms(d, &g);
    CHECK_OK(gw_graph_verify(&g, dg), dg);
    gw_compile_report report = {0};
    gw_exec_facts f = {.machine = gw_machine_this(1), .comm = gw_coll_machine_local(1)};
    gw_compile_opts o = {
        .train = true, .micro_batches = 1, .workspace = gw_exec_workspace, .workspace_user = &f};
    CHECK_OK(gw_pass_place(&t->g, &g, &o, &report, dg), dg);
    CHECK_OK(gw_graph_verify(&t->g, dg), dg);
    gw_graph_release(&g);
}

/* How often each conversion stood in a chain, and how many chains were longer than two. */
typedef struct seen {
    int64_t ops[8], chains;
} seen;
static const char *const names[8] = {"all_reduce", "reduce_scatter", "all_gather", "all_to_all",
                                     "shift",      "slice",          "keep_one",   "place"};

static void look(seen *s, const gw_graph *g) {
    for (int64_t i = 0; i < g->ops.count; i++)
        for (int k = 0; k < 8; k++) s->ops[k] += gw_op_is(g, &g->ops.items[i], names[k]);
    s->chains += g->ops.count > 2;
}

static void run_trial(const char *mesh, uint64_t seed, seen *s) {
    trial t = {.mesh = mesh_of(mesh), .seed = seed};
    dice d = {seed * 1000003};
    gw_diags dg;
    gw_diags_init(&dg);
    gw_type shape = random_shape(&d, &t.mesh);
    bool maxima = roll(&d, 8) == 0;
    t.from = random_placement(&d, shape, &t.mesh, maxima);
    t.to = roll(&d, 6) ? random_placement(&d, shape, &t.mesh, false) : turned(&d, &t.from, &t.mesh);
    t.reference = roll(&d, 2);
    build(&t, &d, &dg);
    CHECK_OK(gw_launch_threads((int)gw_mesh_ranks(&t.mesh), 20, body, &t, &dg), &dg);
    check_result(&t);
    look(s, &t.g);
    for (int r = 0; r < MAX_RANKS; r++) gw_mem_free(t.out[r]);
    gw_graph_release(&t.g);
    gw_diags_release(&dg);
}

/* The trials of a mesh must use every kind of conversion that it has ranks for. */
static void many(const char *mesh, uint64_t first, uint64_t count) {
    seen s = {{0}, 0};
    gw_mesh m = mesh_of(mesh);
    for (uint64_t seed = first; seed < first + count; seed++) run_trial(mesh, seed, &s);
    for (int k = 0; k < 8; k++) {
        test_note("%s: %lld", names[k], (long long)s.ops[k]);
        CHECK_MSG(s.ops[k] > 0, "no trial on %s has a %s", mesh, names[k]);
    }
    CHECK(m.naxes < 2 || s.chains > (int64_t)count / 10);
}

TEST_WITHIN(a_tensor_stays_what_it_is_on_two_and_three_ranks, 180) {
    many("tp2", 1, 150);
    many("cp3", 1000, 150);
}
TEST_WITHIN(a_tensor_stays_what_it_is_on_four_ranks, 180) {
    many("dp2 tp2", 2000, 150);
    many("cp4", 3000, 150);
}
TEST_WITHIN(a_tensor_stays_what_it_is_on_six_ranks, 180) {
    many("cp2 tp3", 4000, 150);
    many("dp3 tp2", 5000, 150);
}
TEST_WITHIN(a_tensor_stays_what_it_is_on_eight_ranks, 180) {
    many("dp2 cp2 tp2", 6000, 150);
    many("cp4 tp2", 7000, 100);
    many("dp_replicate2 dp2 tp2", 8000, 100);
}
