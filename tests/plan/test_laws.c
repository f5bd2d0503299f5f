// SPDX-License-Identifier: Apache-2.0
// Laws of the simulator over run files at random (stepped.h): dense and with experts, any axes,
// schedules, ZeRO stages and recomputation, as far as layouts are accepted.
//
// More bandwidth, anywhere, never slows a step. State falls with shards. What is simulated is what
// an executor runs: op by op, in order, on every rank, as threads here. What ranks are called does
// not matter.
#include <math.h>
#include <string.h>

#include "comm/launch.h" /* gw_launch_threads */
#include "fake_machine.h"
#include "harness.h"
#include "run/exec.h"         /* gw_exec */
#include "run/exec_channel.h" /* gw_op_is_channel */
#include "run/exec_comm.h"    /* gw_op_is_collective */
#include "run/exec_copy.h"    /* gw_op_is_copy */
#include "stepped.h"

enum { RUNS = 60 };

/* Compiles run file `seed`; its text is noted, for a failure. False: refused. */
static bool take(step *x, uint64_t seed) {
    gw_str text = {0};
    int64_t ranks;
    step_random(seed, &text, &ranks);
    bool ok = step_try(x, gw_str_c(&text), ranks);
    if (ok) test_note("run file %llu:\n%s", (unsigned long long)seed, gw_str_c(&text));
    gw_str_release(&text);
    return ok;
}

TEST(most_run_files_at_random_are_accepted_and_of_every_kind) {
    int taken = 0, piped = 0, cut = 0, sharded = 0, experts = 0;
    for (int i = 0; i < RUNS; i++) {
        step x;
        if (!take(&x, (uint64_t)i)) continue;
        taken++;
        piped += x.n > 1;
        cut += x.rf.layout.tp > 1 || x.rf.layout.cp > 1;
        sharded += x.rf.layout.zero > 0;
        experts += x.setup.model.moe.experts > 0;
        step_release(&x);
    }
    test_note("%d of %d: %d pipelines, %d with tp or cp, %d sharded, %d with experts", taken,
              (int)RUNS, piped, cut, sharded, experts);
    CHECK(taken > RUNS / 2 && piped > 5 && cut > 5 && sharded > 5 && experts > 5);
}

/* ---- bandwidth ---- */

/* One of the machine's rates, by number. */
static double *rate_of(gw_machine_spec *m, int which) {
    switch (which) {
    case 0: return &m->tiers[0].bytes_per_s;
    case 1: return &m->tiers[1].bytes_per_s;
    default: return &m->memory_bytes_per_s;
    }
}

TEST(more_of_any_bandwidth_never_slows_a_step) {
    for (int i = 0; i < RUNS; i++) {
        step x;
        uint64_t s = (uint64_t)i + 77;
        if (!take(&x, (uint64_t)i)) continue;
        for (int which = 0; which < 3; which++) {
            gw_machine_spec m = fake_machine(&x.mem, 1 + 0.1 * step_draw(&s, 4));
            m.tiers[0].ranks = 1 << (1 + step_draw(&s, 3));
            double before = (double)INFINITY;
            for (int k = 0; k < 6; k++) {
                *rate_of(&m, which) *= k ? 1 + 0.5 * (1 + step_draw(&s, 9)) : 1e-3;
                double now = simulate(&x, &m, NULL).step_s;
                CHECK_MSG(now <= before * (1 + 1e-12), "%g B/s of rate %d: %g s after %g s",
                          *rate_of(&m, which), which, now, before);
                before = now;
            }
        }
        step_release(&x);
    }
}

/* ---- shards ---- */

static int64_t state_bytes(const step *x, int64_t *most) {
    int64_t sum = 0;
    *most = 0;
    for (int r = 0; r < x->n; r++) {
        const gw_graph *g = &x->program[r];
        int64_t bytes = 0, rank = r * (x->ranks / x->n);
        for (int64_t i = 0; i < g->states.count; i++)
            bytes += gw_type_local_bytes(gw_type_of(g, g->states.items[i].start), &g->mesh, rank);
        *most = GW_MAX(*most, bytes);
        sum += bytes;
    }
    return sum;
}

/* Twice as many ranks on an axis that cuts state: less of it on each, and never less than the
 * model's whole over all. */
TEST(state_bytes_fall_with_shards_of_every_kind) {
    static const char *const axes[] = {"zero: 1, dp", "zero: 3, dp", "tp", "pp"};
    static const char *const models[] = {
        "model: {family: llama, layers: 8, hidden: 64, heads: 8, kv_heads: 8, ffn: 128, vocab: "
        "256}\nprecision: {compute: bf16}\n",
        "model: {family: gpt2, layers: 8, hidden: 96, heads: 8, ffn: 200, vocab: 300}\n"};
    for (size_t k = 0; k < GW_COUNT(models); k++)
        for (size_t a = 0; a < GW_COUNT(axes); a++) {
            int64_t before = INT64_MAX, whole = 0, most;
            for (int n = 1; n <= 8; n *= 2) {
                step x;
                char layout[64]; /* zero needs ranks */
                snprintf(layout, sizeof layout, "layout: {%s: %d}", n == 1 ? "dp" : axes[a], n);
                step_init(&x, models[k], n, 8, layout);
                int64_t sum = state_bytes(&x, &most), stages = x.n;
                if (n == 1) whole = sum;
                CHECK_MSG(most < before, "%s: %lld bytes after %lld", layout, (long long)most,
                          (long long)before);
                CHECK(sum / stages * n >= whole * 999 / 1000);
                before = most;
                step_release(&x);
            }
        }
}

/* ---- simulated and executed ---- */

enum { PIECES = 4096 };

/* What a rank's executor ran, piece after piece. */
typedef struct ran_pieces {
    int64_t micro[PIECES];
    gw_oid first[PIECES], end[PIECES];
    int n;
} ran_pieces;

static void note_ran(void *user, gw_exec *x, int64_t micro, gw_oid first, gw_oid end) {
    ran_pieces *p = user;
    (void)x;
    CHECK(p->n < PIECES);
    p->micro[p->n] = micro;
    p->first[p->n] = first;
    p->end[p->n++] = end;
}

static gw_status feed_zeros(void *user, gw_exec *x, int64_t micro, gw_diags *dg) {
    const gw_graph *g = gw_exec_graph(x);
    (void)user, (void)micro, (void)dg;
    for (int64_t v = 0; v < g->values.count; v++) {
        const gw_value *i = &g->values.items[v];
        if (i->role != GW_ROLE_INPUT || i->def != GW_NONE || i->rate != GW_RATE_MB) continue;
        gw_tensor t = gw_exec_tensor(x, (gw_vid)v);
        if (t.data) memset(t.data, 0, (size_t)(t.elems * gw_dtype_bits(t.dtype) / 8));
    }
    return GW_OK;
}

static void zero_leaves(gw_exec *x) {
    const gw_graph *g = gw_exec_graph(x);
    for (int64_t v = 0; v < g->values.count; v++) {
        if (g->values.items[v].def != GW_NONE) continue;
        gw_tensor t = gw_exec_tensor(x, (gw_vid)v);
        if (t.data && g->values.items[v].rate == GW_RATE_STEP)
            memset(t.data, 0, (size_t)(t.elems * gw_dtype_bits(t.dtype) / 8));
    }
}

typedef struct executed {
    step *x;
    ran_pieces *ranks; /* [all ranks] */
} executed;

static gw_status execute(gw_comm *c, void *user, gw_diags *dg) {
    executed *e = user;
    int64_t rank = c ? gw_comm_rank(c) : 0;
    const gw_graph *g = &e->x->program[rank / (e->x->ranks / e->x->n)];
    gw_exec_opts o = {.machine = e->x->setup.machine, .comm = c, .rank = rank};
    gw_exec_loop l = {.feed = feed_zeros, .ran = note_ran, .user = &e->ranks[rank]};
    gw_exec *x = NULL;
    if (c) gw_comm_set_mesh(c, &g->mesh);
    GW_TRY(gw_exec_new(&x, g, &o, dg));
    zero_leaves(x);
    gw_status st = gw_exec_run(x, GW_SEG_PRE, dg);
    if (st == GW_OK) st = gw_exec_run_all(x, g->micro_batches, &l, dg);
    if (st == GW_OK) st = gw_exec_run(x, GW_SEG_POST, dg);
    gw_exec_free(x);
    return st;
}

/* Appends ops [first, end) of one rate. */
typedef struct oplist {
    GW_VEC(gw_oid) ops;
} oplist;

static void add_ops(oplist *l, const gw_graph *g, gw_oid first, gw_oid end, bool micro,
                    bool steps) {
    for (gw_oid i = first; i < end; i++)
        if (g->ops.items[i].rate == GW_RATE_STEP ? steps : micro) gw_vec_push(&l->ops, i);
}

/* All that the executor ran on a rank, by what its callbacks said. Of a program without stages the
 * last micro-batch has the ops at step rate; of one with stages pieces without a micro-batch have
 * them alone. */
static void expand(const gw_graph *g, const ran_pieces *p, oplist *out) {
    gw_oid first, end;
    gw_graph_loop(g, &first, &end);
    add_ops(out, g, 0, first, true, true);
    for (int i = 0; i < p->n; i++) {
        bool staged = g->actions.count > 0, last = p->micro[i] == g->micro_batches - 1;
        add_ops(out, g, p->first[i], p->end[i], p->micro[i] >= 0, staged ? p->micro[i] < 0 : last);
    }
    add_ops(out, g, end, (gw_oid)g->ops.count, true, true);
}

/* Of `all` those that the simulator says ran on `stream`, in the order of each: the same list. */
static void compare_stream(const gw_graph *g, const oplist *all, const gw_sim_result *r, int rank,
                           int stream, int64_t *compared) {
    bool *has = gw_mem_zalloc((size_t)g->ops.count + 1);
    for (int64_t i = 0; i < r->ntrace; i++)
        if (r->trace[i].rank == rank && r->trace[i].stream == stream) has[r->trace[i].op] = true;
    int64_t at = 0;
    for (int64_t i = 0; i < r->ntrace; i++) {
        if (r->trace[i].rank != rank || r->trace[i].stream != stream) continue;
        while (at < all->ops.count && !has[all->ops.items[at]]) at++;
        CHECK_MSG(at < all->ops.count, "stream %d: the simulator runs more than the executor",
                  stream);
        CHECK_MSG(all->ops.items[at] == r->trace[i].op,
                  "rank %d, stream %s: simulated op %u (%s), executed op %u (%s)", rank,
                  gw_stream_name((gw_stream)stream), r->trace[i].op,
                  gw_op_def(g, &g->ops.items[r->trace[i].op])->name, all->ops.items[at],
                  gw_op_def(g, &g->ops.items[all->ops.items[at]])->name);
        at++;
        ++*compared;
    }
    while (at < all->ops.count && !has[all->ops.items[at]]) at++;
    CHECK_MSG(at == all->ops.count, "stream %d: the executor runs more than the simulator", stream);
    gw_mem_free(has);
}

/* Ops with work that the trace lacks altogether: receives, of which the sender has the event. */
static void check_left_out(const gw_graph *g, const gw_sim_result *r, int rank) {
    bool *has = gw_mem_zalloc((size_t)g->ops.count + 1);
    for (int64_t i = 0; i < r->ntrace; i++)
        if (r->trace[i].rank == rank) has[r->trace[i].op] = true;
    for (int64_t i = 0; i < g->ops.count; i++)
        if (r->op_seconds[rank][i] > 0) CHECK(has[i]);
    gw_mem_free(has);
}

static void compare_runs(step *x) {
    executed e = {.x = x, .ranks = gw_mem_zalloc(sizeof(ran_pieces) * (size_t)x->ranks)};
    gw_machine_spec m = fake_machine(&x->mem, 1.1);
    gw_timeline t;
    gw_sim_result r;
    gw_diags dg;
    int64_t compared = 0;
    gw_diags_init(&dg);
    if (x->ranks == 1)
        CHECK_OK(execute(NULL, &e, &dg), &dg);
    else
        CHECK_OK(gw_launch_threads((int)x->ranks, 60, execute, &e, &dg), &dg);
    gw_timeline_begin(&t, "test", x->n, "s", &x->mem);
    gw_simulate(x->programs, x->n, &m, NULL, &x->mem, &r, &t);
    for (int64_t k = 0; k < x->ranks; k++) {
        int rank = (int)(k / (x->ranks / x->n));
        oplist all = {0};
        expand(&x->program[rank], &e.ranks[k], &all);
        for (int s = 0; s < GW_STREAM_COUNT; s++)
            compare_stream(&x->program[rank], &all, &r, rank, s, &compared);
        check_left_out(&x->program[rank], &r, rank);
        gw_vec_release(&all.ops);
    }
    CHECK(compared > 100);
    gw_diags_release(&dg);
    gw_mem_free(e.ranks);
}

TEST_WITHIN(the_simulated_order_is_the_executed_one, 900) {
    int taken = 0;
    for (int i = 0; i < RUNS / 2; i++) {
        step x;
        if (!take(&x, (uint64_t)i)) continue;
        compare_runs(&x);
        step_release(&x);
        taken++;
    }
    CHECK(taken > RUNS / 4);
}

/* ---- numbers of ranks ---- */

/* Sub-axes `a` and `b` change names everywhere in the program. */
static void swap_axes(gw_graph *g, int a, int b) {
    uint32_t both = 1u << a | 1u << b;
    gw_axis first = g->mesh.axes[a];
    g->mesh.axes[a] = g->mesh.axes[b];
    g->mesh.axes[b] = first;
    for (int64_t i = 0; i < g->values.count; i++) {
        gw_type *t = &g->values.items[i].type;
        uint32_t *masks[] = {&t->flat_axes, &t->psum, &t->pmax};
        for (size_t k = 0; k < GW_COUNT(masks); k++) {
            uint32_t x = *masks[k];
            *masks[k] = (x & ~both) | (x >> a & 1u) << b | (x >> b & 1u) << a;
        }
        for (int d = 0; d < t->ndim; d++)
            for (int k = 0; k < t->dims[d].naxes; k++)
                if (t->dims[d].axes[k] == a || t->dims[d].axes[k] == b)
                    t->dims[d].axes[k] = (uint8_t)(a + b - t->dims[d].axes[k]);
    }
}

/* Which of two axes is the more minor changes every rank's number but 0 and the last. Where all
 * ranks are neighbours on one tier, no figure may change. */
TEST(figures_do_not_depend_on_how_ranks_are_numbered) {
    int taken = 0;
    for (int i = 0; i < RUNS; i++) {
        step x;
        if (!take(&x, (uint64_t)i)) continue;
        uint32_t pp = gw_mesh_group(&x.program[0].mesh, "pp");
        int first = 0, n = x.program[0].mesh.naxes;
        while (first < n && pp >> first & 1u) first++;
        if (n - first < 2 || x.setup.model.moe.experts > 0) {
            step_release(&x);
            continue;
        }
        gw_machine_spec m = fake_machine(&x.mem, 1.1);
        gw_sim_result before = simulate(&x, &m, NULL);
        for (int r = 0; r < x.n; r++) swap_axes(&x.program[r], first, first + 1);
        gw_sim_result after = simulate(&x, &m, NULL);
        CHECK_NEAR(after.step_s / before.step_s, 1, 1e-12);
        CHECK_NEAR(after.bubble, before.bubble, 1e-12);
        for (int s = 0; s < GW_STREAM_COUNT; s++) {
            CHECK_EQ(after.axis[s].bytes, before.axis[s].bytes);
            CHECK_NEAR(after.axis[s].exposed, before.axis[s].exposed, 1e-12 * before.step_s);
        }
        taken++;
        step_release(&x);
    }
    CHECK_MSG(taken > 5, "%d", taken);
}
