// SPDX-License-Identifier: Apache-2.0
// Every layout goes on from every other: the matrix of pairs over tp, pp, virtual stages, dp, zero
// and ep, up to eight ranks.
//
// A layout trains two steps, saves, and takes a third that the second layout is to repeat from the
// checkpoint. Three laws: what is loaded is what was saved, every bit, whatever the layouts (the
// hash of the state puts tensors together from their parts); at the same layout the third step is
// the same to the bit; at another one loss and norm agree as sums in another order do, and every
// tensor does, relative to its largest element. The update is a smooth function of the gradient
// here (epsilon of AdamW is 1), so that a bound of float32 sums is one of parameters and moments
// too.
//
// Ranks are threads. `make test` takes a sample of pairs in which every value of every axis meets
// every value of every other; `make test-long` takes all.
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"  /* gw_log_set_level */
#include "base/rng.h"  /* gw_rng_permute */
#include "ckpt/diff.h" /* gw_checkpoint_diff */
#include "harness.h"
#include "tiny.h"
#include "train/ranks.h"
#include "train/session.h"

enum { MOST_RANKS = 8, LAYERS = 4, EXPERTS = 4, BATCH = 24, MOST_LAYOUTS = 200 };

typedef struct layout {
    int tp, pp, stages, dp, zero, ep;
} layout;

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

static int ranks_of(const layout *l) { return l->tp * l->pp * l->dp; }

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
                            layout l = {degrees[t], degrees[p], v, degrees[d], z, e};
                            if (ranks_of(&l) > MOST_RANKS || l.tp > 4 || l.pp * v > LAYERS)
                                continue;
                            if ((v > 1 && l.pp == 1) || (z > 0 && l.dp == 1)) continue;
                            if (l.dp % e != 0 || micro_batches(&l) < 0) continue;
                            CHECK(n < MOST_LAYOUTS);
                            out[n++] = l;
                        }
    return n;
}

static void describe(char *out, size_t n, const layout *l) {
    snprintf(out, n, "tp %d pp %d x %d dp %d zero %d ep %d", l->tp, l->pp, l->stages, l->dp,
             l->zero, l->ep);
}

static void runfile_of(const layout *l, gw_runfile *rf, gw_diags *dg) {
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
    snprintf(text[k++], 48, "layout.tp=%d", l->tp);
    snprintf(text[k++], 48, "layout.pp=%d", l->pp);
    if (l->pp > 1) snprintf(text[k++], 48, "layout.virtual_stages=%d", l->stages);
    snprintf(text[k++], 48, "layout.zero=%d", l->zero);
    snprintf(text[k++], 48, "layout.ep=%d", l->ep);
    snprintf(text[k++], 48, "train.accumulate=%d", micro_batches(l));
    snprintf(text[k++], 48, "train.micro_batch=%d", BATCH / l->dp / micro_batches(l));
    for (int i = 0; i < k; i++) sets[n++] = text[i];
    tiny_runfile(rf, false, sets);
    CHECK_OK(gw_runfile_set_ranks(rf, ranks_of(l), dg), dg);
    CHECK_EQ(rf->layout.dp, l->dp);
}

static gw_status one_rank(gw_comm *c, void *user, gw_diags *dg) {
    const job *j = user;
    gw_runfile rf;
    gw_session s;
    gw_session_step_result t = {0};
    runfile_of(j->l, &rf, dg);
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
    char name[80];
    describe(name, sizeof name, l);
    test_note("%s%s%s", name, resume ? " from " : "", resume ? resume : "");
    snprintf(out->dir2, sizeof out->dir2, "two-%d", number);
    snprintf(out->dir3, sizeof out->dir3, "%s-%d", resume ? "again" : "three", number);
    job j = {.l = l, .resume = resume, .out = out};
    tiny_ranks(ranks_of(l), one_rank, &j);
}

/* Weights, first moments, second moments. */
static int kind_of(const char *name) {
    size_t n = strlen(name);
    return n > 2 && name[n - 2] == '.' ? (name[n - 1] == 'm' ? 1 : name[n - 1] == 'v' ? 2 : 0) : 0;
}

/* Every tensor of the two checkpoints of step 3. Sums of float32 in another order differ by some
 * 1e-7 of their terms. Weights: relative to a tensor's largest element. Moments: relative to the
 * largest of all tensors, since gradients of routers and norms are small differences of large
 * terms; that moments lie where they belong is what the hash after the load tells. */
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
    double most[3] = {0};
    for (int i = 0; i < n; i++)
        most[kind_of(d[i].name)] = fmax(most[kind_of(d[i].name)], d[i].scale);
    for (int i = 0; i < n; i++) {
        int kind = kind_of(d[i].name);
        double scale = kind == 0 ? d[i].scale : most[kind];
        CHECK_MSG(d[i].how == GW_CKPT_SAME || d[i].how == GW_CKPT_VALUES, "%s: %s", what,
                  d[i].name);
        CHECK_MSG(d[i].largest <= 2e-5 * scale, "%s: %s differs by %g of %g", what, d[i].name,
                  d[i].largest, scale);
    }
    gw_arena_release(&mem);
    gw_diags_release(&dg);
}

static void check_pair(const layout *from, const outcome *was, const layout *to, int number,
                       bool alike) {
    char a[80], b[80], what[180];
    outcome got = {0};
    go(to, number, was->dir2, &got);
    describe(a, sizeof a, from);
    describe(b, sizeof b, to);
    snprintf(what, sizeof what, "%s from %s", b, a);
    CHECK_MSG(tiny_equal(got.at2, was->at2), "%s: the state is not what was saved", what);
    if (alike) CHECK_MSG(tiny_equal(got.at3, was->at3), "%s: the step is not bitwise", what);
    CHECK_MSG(fabs(got.loss - was->loss) <= 1e-5 * fabs(was->loss), "%s: loss %.9g, was %.9g", what,
              got.loss, was->loss);
    CHECK_MSG(fabs(got.norm - was->norm) <= 1e-4 * fabs(was->norm), "%s: norm %.9g, was %.9g", what,
              got.norm, was->norm);
    same_tensors(was->dir3, got.dir3, what);
}

static void begin(void) {
    gw_log_set_level(GW_LOG_QUIET);
    tiny_data();
    CHECK(chdir(test_tmp_path("")) == 0);
}

/* Slice `part` of `parts` of the matrix; the pairs in an order of their own, so that a slice has a
 * bit of everything. A layout's own run is made when a pair needs it. */
static void matrix(int part, int parts, int most) {
    static layout all[MOST_LAYOUTS];
    static outcome own[MOST_LAYOUTS];
    static bool made[MOST_LAYOUTS];
    int n = enumerate(all), done = 0;
    begin();
    gw_rng_key key = gw_rng_key_named(1, "reshard");
    for (int i = part; i < n * n && done < most; i += parts, done++) {
        int pair = (int)gw_rng_permute(key, (uint64_t)(n * n), (uint64_t)i), a = pair / n,
            b = pair % n;
        if (!made[a]) go(&all[a], a, NULL, &own[a]);
        made[a] = true;
        check_pair(&all[a], &own[a], &all[b], i, a == b);
    }
    test_note("%d pairs of %d layouts", done, n);
}

/* One layout for each value of each axis, and the richest: all pairs of them. */
static const layout few[] = {
    {1, 1, 1, 1, 0, 1}, {4, 1, 1, 2, 1, 2}, {1, 4, 1, 2, 3, 1}, {2, 2, 2, 1, 0, 1},
    {1, 1, 1, 8, 3, 4}, {2, 1, 1, 3, 2, 1}, {2, 2, 1, 2, 2, 2},
};

TEST_WITHIN(layouts_go_on_from_one_another, 300) {
    static outcome own[GW_COUNT(few)];
    int n = (int)GW_COUNT(few);
    begin();
    for (int i = 0; i < n; i++) go(&few[i], i, NULL, &own[i]);
    for (int i = 0; i < n; i++)
        for (int k = i % 2; k < n; k += 2) check_pair(&few[i], &own[i], &few[k], i * n + k, i == k);
}

TEST_WITHIN(a_sample_of_all_pairs_goes_on, 300) { matrix(0, 1, 12); }

#define SLICE(k)                                                                                   \
    TEST_LONG(all_pairs_go_on_##k) { matrix((k), 16, 1 << 30); }
SLICE(0)
SLICE(1)
SLICE(2)
SLICE(3)
SLICE(4)
SLICE(5)
SLICE(6)
SLICE(7)
SLICE(8)
SLICE(9)
SLICE(10)
SLICE(11)
SLICE(12)
SLICE(13)
SLICE(14)
SLICE(15)
