// SPDX-License-Identifier: Apache-2.0
// Every layout goes on from every other: the matrix of pairs over tp, pp, virtual stages, dp, zero
// and ep, up to eight ranks; and layouts with cp from and to all of these.
//
// A layout trains two steps, saves, and takes a third that the second layout is to repeat from the
// checkpoint. Three laws: what is loaded is what was saved, every bit, whatever the layouts; at the
// same layout the third step is the same to the bit; at another one loss and norm agree as sums in
// another order do, and every tensor does, relative to its largest element. The update is a smooth
// function of the gradient here (epsilon of AdamW is 1), so that a bound of float32 sums is one of
// parameters and moments too.
//
// Two ways lead there. A pair by itself opens the second layout on the checkpoint, hashes the state
// (which puts tensors together from their parts), steps, saves, and compares the two checkpoints of
// step 3 as files. In a block of the matrix the second layout is opened once, and one checkpoint
// after another is loaded into it (gw_session_reload): all but a few hundredths of a second of a
// pair are what opening costs. There every rank compares what it holds itself, replicas too, with
// the whole tensors that the first layout had in memory; nothing of that goes through files but the
// load. The laws are the same. A quarter of the checkpoints have a probe, which every load of them
// makes again.
//
// Ranks are threads. `make test` takes a sample of pairs by themselves in which every value of
// every axis meets every value of every other, and a small block; `make test-long` takes the whole
// matrix, in eight blocks: half of the layouts that save times a quarter of those that load.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"    /* gw_log_set_level */
#include "base/rng.h"    /* gw_rng_permute */
#include "ckpt/diff.h"   /* gw_checkpoint_diff */
#include "comm/launch.h" /* gw_launch_threads */
#include "harness.h"
#include "tiny.h"
#include "train/ranks.h"
#include "train/session.h"

enum { MOST_RANKS = 8, LAYERS = 4, EXPERTS = 4, BATCH = 24, MOST_LAYOUTS = 200, LAYOUTS = 172 };

typedef struct layout {
    int tp, pp, stages, dp, zero, ep;
    int cp;           /* 0: no cp */
    const char *mode; /* of cp */
} layout;

static int ranks_of(const layout *l) { return l->tp * l->pp * l->dp * GW_MAX(l->cp, 1); }

/* The samples of a step are cut in micro-batches that dp divides and an interleaved schedule
 * admits: a multiple of pp. */
static int micro_batches(const layout *l) {
    int m = l->stages > 1 ? l->pp : 1;
    return BATCH % (m * l->dp) == 0 ? m : -1;
}

static int enumerate(layout *out) {
    static const int degrees[] = {1, 2, 3, 4, 8};
    int n = 0;
    for (int p = 0; p < 5; p++)
        for (int t = 0; t < 5; t++)
            for (int d = 0; d < 5; d++)
                for (int v = 1; v <= 2; v++)
                    for (int z = 0; z <= 3; z++)
                        for (int e = 1; e <= EXPERTS; e *= 2) {
                            layout l = {degrees[t], degrees[p], v, degrees[d], z, e, 0, NULL};
                            if (ranks_of(&l) > MOST_RANKS || l.tp > 4 || l.pp * v > LAYERS)
                                continue;
                            if ((v > 1 && l.pp == 1) || (z > 0 && l.dp == 1)) continue;
                            if (l.dp % e != 0 || micro_batches(&l) < 0) continue;
                            CHECK(n < MOST_LAYOUTS);
                            out[n++] = l;
                        }
    CHECK_EQ(n, LAYOUTS);
    return n;
}

static const char *describe(const layout *l, char out[96]) {
    int n = snprintf(out, 96, "tp %d pp %d x %d dp %d zero %d ep %d", l->tp, l->pp, l->stages,
                     l->dp, l->zero, l->ep);
    if (l->cp) snprintf(out + n, 96 - (size_t)n, " cp %d %s", l->cp, l->mode);
    return out;
}

static void runfile_of(const layout *l, bool probe, gw_runfile *rf, gw_diags *dg) {
    char text[12][48];
    const char *sets[28] = {"model.family=mixtral",
                            "model.layers=4",
                            "model.hidden=12",
                            "model.heads=2",
                            "model.ffn=10",
                            "model.moe.experts=4",
                            "model.moe.top=2",
                            "train.seq_len=10",
                            "optimizer.eps=1",
                            "optimizer.lr=0.5",
                            "model.tie_embeddings=false",
                            "train.valid_batches=0",
                            "optimizer.warmup_steps=0"};
    int n = 13, k = 0;
    snprintf(text[k++], 48, "checkpoint.probe=%s", probe ? "true" : "false");
    snprintf(text[k++], 48, "layout.tp=%d", l->tp);
    snprintf(text[k++], 48, "layout.pp=%d", l->pp);
    if (l->pp > 1) snprintf(text[k++], 48, "layout.virtual_stages=%d", l->stages);
    snprintf(text[k++], 48, "layout.zero=%d", l->zero);
    snprintf(text[k++], 48, "layout.ep=%d", l->ep);
    if (l->cp) {
        snprintf(text[k++], 48, "layout.cp=%d", l->cp);
        snprintf(text[k++], 48, "layout.cp_mode=%s", l->mode);
    }
    snprintf(text[k++], 48, "train.accumulate=%d", micro_batches(l));
    snprintf(text[k++], 48, "train.micro_batch=%d", BATCH / l->dp / micro_batches(l));
    for (int i = 0; i < k; i++) sets[n++] = text[i];
    tiny_runfile(rf, false, sets);
    CHECK_OK(gw_runfile_set_ranks(rf, ranks_of(l), dg), dg);
    CHECK_EQ(rf->layout.dp, l->dp);
}

/* Weights, first moments, second moments. */
enum { KINDS = 3 };
static int kind_of(const char *name) {
    size_t n = strlen(name);
    return n > 2 && name[n - 2] == '.' ? (name[n - 1] == 'm' ? 1 : name[n - 1] == 'v' ? 2 : 0) : 0;
}

/* What sums in another order may do to a result and to a tensor of step 3: sums of float32 differ
 * by some 1e-7 of their terms. Weights: relative to a tensor's largest element. Moments: relative
 * to the largest of all tensors, since gradients of routers and norms are small differences of
 * large terms; that moments lie where they belong is what the look at the state after the load
 * tells. */
static const double LOSS_BOUND = 1e-5, NORM_BOUND = 1e-4, TENSOR_BOUND = 2e-5;

static bool near(double is, double was, double bound) {
    return fabs(is - was) <= bound * fabs(was);
}

static void begin(void) {
    gw_log_set_level(GW_LOG_QUIET);
    tiny_data();
    CHECK(chdir(test_tmp_path("")) == 0);
}

/* ---- a pair by itself ---- */

typedef struct outcome {
    double loss, norm;   /* of the third step */
    gw_hash128 at2, at3; /* the state after so many steps */
    char dir2[64], dir3[64];
} outcome;

typedef struct job {
    const layout *l;
    const char *resume; /* NULL: from the start */
    outcome *out;
} job;

static gw_status one_rank(gw_comm *c, void *user, gw_diags *dg) {
    const job *j = user;
    gw_runfile rf;
    gw_session s;
    gw_session_step_result t = {0};
    runfile_of(j->l, true, &rf, dg);
    GW_TRY(gw_session_open(&s, &rf, j->resume, c, dg));
    for (int i = j->resume ? 2 : 0; i < 2; i++) GW_TRY(gw_session_step(&s, &t, dg));
    if (!j->resume) GW_TRY(gw_session_save(&s, j->out->dir2, dg));
    gw_hash128 at2 = gw_session_hash(&s);
    GW_TRY(gw_session_step(&s, &t, dg));
    gw_hash128 at3 = gw_session_hash(&s);
    GW_TRY(gw_session_save(&s, j->out->dir3, dg));
    if (gw_ranks_me(c) == 0) {
        j->out->loss = t.loss;
        j->out->norm = t.norm;
        j->out->at2 = at2;
        j->out->at3 = at3;
    }
    gw_session_close(&s);
    gw_runfile_release(&rf);
    return GW_OK;
}

static void go(const layout *l, int number, const char *resume, outcome *out) {
    char name[96];
    test_note("%s%s%s", describe(l, name), resume ? " from " : "", resume ? resume : "");
    snprintf(out->dir2, sizeof out->dir2, "two-%d", number);
    snprintf(out->dir3, sizeof out->dir3, "%s-%d", resume ? "again" : "three", number);
    job j = {.l = l, .resume = resume, .out = out};
    tiny_ranks(ranks_of(l), one_rank, &j);
}

/* Every tensor of the two checkpoints of step 3. */
static void same_tensors(const char *dir_a, const char *dir_b, const char *what) {
    gw_arena mem = {0};
    gw_diags dg;
    gw_ckpt_manifest *a = NULL, *b = NULL;
    gw_ckpt_difference *d = NULL;
    int n = 0;
    gw_diags_init(&dg);
    CHECK_OK(gw_checkpoint_read(gw_arena_printf(&mem, "%s/checkpoints/step-00000003", dir_a), &mem,
                                &a, &dg),
             &dg);
    CHECK_OK(gw_checkpoint_read(gw_arena_printf(&mem, "%s/checkpoints/step-00000003", dir_b), &mem,
                                &b, &dg),
             &dg);
    CHECK_OK(gw_checkpoint_diff(a, b, &mem, &d, &n, &dg), &dg);
    CHECK(n > 100); /* weights of four layers and two moments of each */
    double most[KINDS] = {0};
    for (int i = 0; i < n; i++)
        most[kind_of(d[i].name)] = fmax(most[kind_of(d[i].name)], d[i].scale);
    for (int i = 0; i < n; i++) {
        int kind = kind_of(d[i].name);
        double scale = kind == 0 ? d[i].scale : most[kind];
        CHECK_MSG(d[i].how == GW_CKPT_SAME || d[i].how == GW_CKPT_VALUES, "%s: %s", what,
                  d[i].name);
        CHECK_MSG(d[i].largest <= TENSOR_BOUND * scale, "%s: %s differs by %g of %g", what,
                  d[i].name, d[i].largest, scale);
    }
    gw_arena_release(&mem);
    gw_diags_release(&dg);
}

static void check_pair(const layout *from, const outcome *was, const layout *to, int number,
                       bool alike) {
    char a[96], b[96], what[220];
    outcome got = {0};
    go(to, number, was->dir2, &got);
    snprintf(what, sizeof what, "%s from %s", describe(to, b), describe(from, a));
    CHECK_MSG(tiny_equal(got.at2, was->at2), "%s: the state is not what was saved", what);
    if (alike) CHECK_MSG(tiny_equal(got.at3, was->at3), "%s: the step is not bitwise", what);
    CHECK_MSG(near(got.loss, was->loss, LOSS_BOUND), "%s: loss %.9g, was %.9g", what, got.loss,
              was->loss);
    CHECK_MSG(near(got.norm, was->norm, NORM_BOUND), "%s: norm %.9g, was %.9g", what, got.norm,
              was->norm);
    same_tensors(was->dir3, got.dir3, what);
}

/* The first `most` pairs of the matrix in an order of their own. A layout's own run is made when a
 * pair needs it. */
static void some_pairs(int most) {
    static layout all[MOST_LAYOUTS];
    static outcome own[MOST_LAYOUTS];
    static bool made[MOST_LAYOUTS];
    int n = enumerate(all);
    begin();
    gw_rng_key key = gw_rng_key_named(1, "reshard");
    for (int i = 0; i < most; i++) {
        int pair = (int)gw_rng_permute(key, (uint64_t)(n * n), (uint64_t)i), a = pair / n,
            b = pair % n;
        if (!made[a]) go(&all[a], a, NULL, &own[a]);
        made[a] = true;
        check_pair(&all[a], &own[a], &all[b], i, a == b);
    }
}

/* One layout for each value of each axis, and the richest: all pairs of them. */
static const layout few[] = {
    {1, 1, 1, 1, 0, 1, 0, NULL}, {4, 1, 1, 2, 1, 2, 0, NULL}, {1, 4, 1, 2, 3, 1, 0, NULL},
    {2, 2, 2, 1, 0, 1, 0, NULL}, {1, 1, 1, 8, 3, 4, 0, NULL}, {2, 1, 1, 3, 2, 1, 0, NULL},
    {2, 2, 1, 2, 2, 2, 0, NULL},
};

TEST_WITHIN(layouts_go_on_from_one_another, 300) {
    static outcome own[GW_COUNT(few)];
    int n = (int)GW_COUNT(few);
    begin();
    for (int i = 0; i < n; i++) go(&few[i], i, NULL, &own[i]);
    for (int i = 0; i < n; i++)
        for (int k = i % 2; k < n; k += 2) check_pair(&few[i], &own[i], &few[k], i * n + k, i == k);
}

TEST_WITHIN(a_sample_of_all_pairs_goes_on, 300) { some_pairs(12); }

/* ---- a block of the matrix ---- */

/* A state as a whole: every tensor, in the order of names. */
typedef struct whole {
    const char *name;
    float *x;
    int64_t elems;
    double largest;
} whole;
typedef struct state {
    whole *items;
    int n;
    double most[KINDS]; /* the largest element of each kind */
    int64_t step, batch, next_sample, tokens;
} state;

/* A layout that saves: its run, as rank 0 has it. */
typedef struct source {
    const layout *l;
    bool probe; /* one is in its checkpoint, and is made again at each load */
    char dir[64];
    state at2, at3;
    double loss, norm;
} source;

static gw_arena held; /* of all states, as long as the test */

static int by_name(const void *a, const void *b) {
    return strcmp(((const whole *)a)->name, ((const whole *)b)->name);
}

static const whole *find(const state *st, const char *name) {
    whole key = {.name = name};
    return bsearch(&key, st->items, (size_t)st->n, sizeof key, by_name);
}

/* All ranks call it; rank 0 has it in *out. */
static gw_status take_state(const gw_session *s, state *out, gw_diags *dg) {
    bool root = gw_ranks_me(s->comm) == 0;
    if (root) {
        *out = (state){.items = gw_arena_new(&held, whole, s->ntensors),
                       .n = s->ntensors,
                       .step = s->step,
                       .batch = s->batch,
                       .next_sample = s->next_sample,
                       .tokens = s->tokens};
    }
    for (int i = 0; i < s->ntensors; i++) {
        const gw_ckpt_tensor *t = &s->tensors[i];
        whole w = {.name = t->name, .elems = gw_box_elems(&t->box)};
        CHECK_EQ(t->dtype, GW_F32);
        if (root) w.name = gw_arena_strdup(&held, t->name);
        if (root) w.x = gw_arena_new(&held, float, w.elems);
        GW_TRY(gw_session_whole(s, i, w.x, dg));
        if (!root) continue;
        for (int64_t k = 0; k < w.elems; k++) w.largest = fmax(w.largest, fabs((double)w.x[k]));
        double *most = &out->most[kind_of(w.name)];
        *most = fmax(*most, w.largest);
        out->items[i] = w;
    }
    if (root) qsort(out->items, (size_t)out->n, sizeof *out->items, by_name);
    return GW_OK;
}

/* The largest difference of what this rank holds of a tensor from the whole; 0 only for the same
 * bits. */
static double gap_of(const gw_ckpt_tensor *t, const whole *w) {
    const float *mine = t->data;
    double most = 0;
    gw_held h;
    int64_t global, local, count;
    gw_held_begin(&h, t->type, t->mesh, t->rank);
    while (gw_held_next(&h, &global, &local, &count)) {
        const float *x = mine + local, *y = w->x + global;
        if (memcmp(x, y, (size_t)count * sizeof *x) == 0) continue;
        most = fmax(most, 1e-45);
        for (int64_t i = 0; i < count; i++) {
            double gap = fabs((double)x[i] - (double)y[i]);
            if (isnan(gap)) return (double)INFINITY;
            most = fmax(most, gap);
        }
    }
    return most;
}

/* What this rank holds is of that state, to the bit or to the bound; else `fault` says what is not.
 */
static void look_at_state(const gw_session *s, const state *was, bool bits, const char *when,
                          char fault[200]) {
    if (s->step != was->step || s->batch != was->batch || s->next_sample != was->next_sample ||
        s->tokens != was->tokens)
        snprintf(fault, 200, "%s: the counters differ", when);
    if (s->ntensors != was->n)
        snprintf(fault, 200, "%s: %d tensors, were %d", when, s->ntensors, was->n);
    for (int i = 0; i < s->ntensors && !*fault; i++) {
        const gw_ckpt_tensor *t = &s->tensors[i];
        const whole *w = find(was, t->name);
        if (!w || w->elems != gw_box_elems(&t->box)) {
            snprintf(fault, 200, "%s: %s is not there, or of another size", when, t->name);
            return;
        }
        if (t->away) continue;
        int kind = kind_of(t->name);
        double gap = gap_of(t, w), scale = kind == 0 ? w->largest : was->most[kind];
        if (gap > (bits ? 0 : TENSOR_BOUND * scale))
            snprintf(fault, 200, "%s, rank %d: %.80s differs by %g of %g", when,
                     gw_ranks_me(s->comm), t->name, gap, scale);
    }
}

/* The run of a layout that saves. At its end every rank looks at what it holds, so that replicas
 * are alike. */
static gw_status run_source(gw_comm *c, void *user, gw_diags *dg) {
    source *o = user;
    gw_runfile rf;
    gw_session s;
    gw_session_step_result t = {0};
    char fault[200] = "";
    runfile_of(o->l, o->probe, &rf, dg);
    GW_TRY(gw_session_open(&s, &rf, NULL, c, dg));
    for (int i = 0; i < 2; i++) GW_TRY(gw_session_step(&s, &t, dg));
    GW_TRY(gw_session_save(&s, o->dir, dg));
    GW_TRY(take_state(&s, &o->at2, dg));
    GW_TRY(gw_session_step(&s, &t, dg));
    GW_TRY(take_state(&s, &o->at3, dg));
    if (gw_ranks_me(c) == 0) {
        o->loss = t.loss;
        o->norm = t.norm;
    }
    if (c) GW_TRY(gw_comm_barrier(c, "the state is there", dg));
    look_at_state(&s, &o->at3, true, "its own third step", fault);
    CHECK_MSG(!*fault, "%s", fault);
    if (c) GW_TRY(gw_comm_barrier(c, "the state was looked at", dg));
    gw_session_close(&s);
    gw_runfile_release(&rf);
    return GW_OK;
}

/* A layout that loads, one checkpoint after another. */
typedef struct visit {
    const layout *l;
    const source *from;
    int n, next; /* of these; the one that is loaded */
    int ran, passed;
    char fault[MOST_RANKS][200];
} visit;

static gw_status load_and_step(gw_session *s, const visit *v, const source *from, char fault[200],
                               gw_diags *dg) {
    gw_session_step_result t = {0};
    bool alike = from->l == v->l;
    *fault = 0;
    GW_TRY(gw_session_reload(s, from->dir, dg));
    look_at_state(s, &from->at2, true, "after the load", fault);
    GW_TRY(gw_session_step(s, &t, dg));
    if (*fault) return GW_OK;
    look_at_state(s, &from->at3, alike, "after the step", fault);
    if (!near(t.loss, from->loss, alike ? 0 : LOSS_BOUND))
        snprintf(fault, 200, "loss %.9g, was %.9g", t.loss, from->loss);
    if (!near(t.norm, from->norm, alike ? 0 : NORM_BOUND))
        snprintf(fault, 200, "norm %.9g, was %.9g", t.norm, from->norm);
    return GW_OK;
}

/* Rank 0: what the ranks found. */
static void judge(visit *v, const source *from, int ranks) {
    char a[96], b[96];
    bool passed = true;
    for (int r = 0; r < ranks && passed; r++) {
        if (!*v->fault[r]) continue;
        passed = false;
        test_note("FAULT %s from %s: %s", describe(v->l, b), describe(from->l, a), v->fault[r]);
    }
    v->passed += passed;
    v->ran++;
}

/* The ranks wait for rank 0's judgement in the load that follows. */
static gw_status run_visit(gw_comm *c, void *user, gw_diags *dg) {
    visit *v = user;
    gw_runfile rf;
    gw_session s;
    int me = gw_ranks_me(c);
    runfile_of(v->l, true, &rf, dg);
    gw_status st = gw_session_open(&s, &rf, NULL, c, dg);
    if (st != GW_OK) return st;
    for (int i = v->next; i < v->n && st == GW_OK; i++) {
        st = load_and_step(&s, v, &v->from[i], v->fault[me], dg);
        if (st == GW_OK && c) st = gw_comm_barrier(c, "a pair", dg);
        if (me == 0 && st == GW_OK) judge(v, &v->from[i], ranks_of(v->l));
        if (me == 0) v->next = i + 1;
    }
    gw_session_close(&s);
    gw_runfile_release(&rf);
    return st;
}

/* A pair that ends in an error is a fault like any other; the rest is loaded into a new session. */
static void run_visits(visit *v) {
    char a[96], b[96];
    while (v->next < v->n) {
        gw_diags dg;
        int begun = v->next;
        gw_diags_init(&dg);
        gw_status st = ranks_of(v->l) == 1
                           ? run_visit(NULL, v, &dg)
                           : gw_launch_threads(ranks_of(v->l), 30, run_visit, v, &dg);
        CHECK_MSG(st == GW_OK || v->next > begun, "%s cannot be opened", describe(v->l, b));
        if (st != GW_OK) {
            v->ran++;
            test_note("FAULT %s from %s:", describe(v->l, b), describe(v->from[v->next - 1].l, a));
            gw_diags_print(&dg, stdout, false);
        }
        gw_diags_release(&dg);
    }
}

enum { PROBED = 4 }; /* each load of a checkpoint with a probe runs the model four times more */
static void run_sources(source *all, int n) {
    for (int i = 0; i < n; i++) {
        snprintf(all[i].dir, sizeof all[i].dir, "two-%d", i);
        all[i].probe = i % PROBED == 0;
        tiny_ranks(ranks_of(all[i].l), run_source, &all[i]);
    }
}

/* Every one of `to` goes on from every one of `from`. */
static void block(const layout *const *from, int nfrom, const layout *const *to, int nto) {
    source *sources = gw_arena_new(&held, source, nfrom);
    int ran = 0, passed = 0;
    begin();
    for (int i = 0; i < nfrom; i++) sources[i].l = from[i];
    run_sources(sources, nfrom);
    for (int i = 0; i < nto; i++) {
        visit v = {.l = to[i], .from = sources, .n = nfrom};
        run_visits(&v);
        ran += v.ran;
        passed += v.passed;
    }
    test_note("%d x %d layouts: %d pairs ran, %d passed", nfrom, nto, ran, passed);
    gw_arena_release(&held);
    CHECK_EQ(ran, nfrom * nto);
    CHECK_EQ(passed, ran);
}

/* Pointers to the members of a list from `part` on, every `parts`-th. */
static int pick(const layout *all, int n, int part, int parts, const layout **out) {
    int count = 0;
    for (int i = part; i < n; i += parts) out[count++] = &all[i];
    return count;
}

TEST_WITHIN(an_open_run_takes_other_layouts_states, 300) {
    const layout *all[GW_COUNT(few)];
    int n = pick(few, (int)GW_COUNT(few), 0, 2, all);
    block(all, n, all, n);
}

/* The same ops with the same results, but other rows together in an expert's product: the probe is
 * not asked for the same bits. */
TEST(a_probe_knows_how_experts_are_dealt) {
    static const layout dealt[] = {
        {1, 1, 1, 4, 1, 2, 0, NULL},
        {1, 1, 1, 4, 2, 4, 0, NULL},
    };
    const layout *from = &dealt[0], *to = &dealt[1];
    block(&from, 1, &to, 1);
}

static layout every[MOST_LAYOUTS];

enum { HALVES = 2, QUARTERS = 4 };
static void matrix(int from, int to) {
    const layout *a[MOST_LAYOUTS], *b[MOST_LAYOUTS];
    int n = enumerate(every);
    int na = pick(every, n, from, HALVES, a), nb = pick(every, n, to, QUARTERS, b);
    block(a, na, b, nb);
}

#define BLOCK(i, k)                                                                                \
    TEST_DEFINE_(all_pairs_go_on_##i##_##k, 3600, true) { matrix((i), (k)); }
BLOCK(0, 0)
BLOCK(0, 1)
BLOCK(0, 2)
BLOCK(0, 3)
BLOCK(1, 0)
BLOCK(1, 1)
BLOCK(1, 2)
BLOCK(1, 3)

/* ---- context parallelism ---- */

static const layout with_cp[] = {
    {1, 1, 1, 1, 0, 1, 2, "ring"},      {1, 1, 1, 1, 0, 2, 2, "allgather"},
    {1, 1, 1, 1, 0, 1, 2, "ulysses"},   {1, 1, 1, 1, 0, 1, 3, "ring"},
    {1, 1, 1, 1, 0, 4, 4, "ring"},      {1, 1, 1, 1, 3, 1, 2, "ring"},
    {2, 1, 1, 1, 0, 1, 2, "ring"},      {1, 2, 1, 1, 0, 1, 2, "ring"},
    {1, 2, 2, 1, 0, 1, 2, "allgather"}, {1, 1, 1, 2, 1, 4, 2, "ulysses"},
    {1, 1, 1, 2, 2, 2, 2, "ring"},      {1, 1, 1, 2, 3, 1, 4, "allgather"},
    {2, 1, 1, 2, 3, 2, 2, "ring"},      {2, 2, 1, 1, 1, 1, 2, "ring"},
    {1, 2, 1, 2, 1, 1, 2, "ring"},      {1, 1, 1, 4, 3, 4, 2, "ring"},
};
enum { WITH_CP = (int)GW_COUNT(with_cp) };

TEST_WITHIN(an_open_run_with_cp_takes_them_too, 300) {
    const layout *from[] = {&few[0], &few[6], &with_cp[2], &with_cp[12]};
    const layout *to[] = {&few[2], &with_cp[2], &with_cp[12]};
    block(from, (int)GW_COUNT(from), to, (int)GW_COUNT(to));
}

TEST_DEFINE_(all_go_on_with_cp, 3600, true) {
    const layout *a[MOST_LAYOUTS], *b[WITH_CP];
    int n = pick(every, enumerate(every), 0, 1, a);
    block(a, n, b, pick(with_cp, WITH_CP, 0, 1, b));
}

TEST_DEFINE_(all_go_on_from_cp, 3600, true) {
    const layout *a[WITH_CP], *b[MOST_LAYOUTS];
    int n = pick(with_cp, WITH_CP, 0, 1, a);
    block(a, n, b, pick(every, enumerate(every), 0, 1, b));
}

TEST_DEFINE_(all_with_cp_go_on_from_one_another, 3600, true) {
    const layout *a[WITH_CP];
    int n = pick(with_cp, WITH_CP, 0, 1, a);
    block(a, n, a, n);
}
