// SPDX-License-Identifier: Apache-2.0
// A run goes on in other numbers than its checkpoint has, at once in another layout: what is there
// is found by tensor and role, widened exactly or rounded to nearest even, and the next step is the
// uninterrupted one's within what the precision does.
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"       /* gw_log_set_level */
#include "ckpt/diff.h"      /* gw_checkpoint_diff */
#include "ckpt/precision.h" /* gw_ckpt_convert */
#include "harness.h"
#include "tiny.h"
#include "train/ranks.h"

/* How a run keeps its numbers. */
typedef struct numbers {
    const char *name, *sets[5];
    gw_dtype weights, moments; /* as a checkpoint has them */
} numbers;

static const numbers fp32 = {"fp32", {NULL}, GW_F32, GW_F32};
static const numbers mixed = {"bf16 and a master", {"precision.compute=bf16"}, GW_F32, GW_F32};
static const numbers low = {"bf16 and a master, bf16 moments",
                            {"precision.compute=bf16", "precision.moments=compute"},
                            GW_F32,
                            GW_BF16};
static const numbers pure = {"bf16 alone",
                             {"precision.compute=bf16", "precision.master=none",
                              "precision.moments=compute", "precision.stochastic_rounding=false"},
                             GW_BF16,
                             GW_BF16};
static const numbers half = {
    "bf16 weights, f32 moments",
    {"precision.compute=bf16", "precision.master=none", "precision.stochastic_rounding=false"},
    GW_BF16,
    GW_F32};
static const numbers fp16 = {"fp16", {"precision.compute=fp16"}, GW_F32, GW_F32};

typedef struct layout {
    int ranks;
    const char *sets[4];
} layout;
static const layout alone = {1, {NULL}};
static const layout cut = {4, {"layout.tp=2", "layout.zero=2"}};
static const layout staged = {
    4, {"layout.pp=2", "layout.zero=1", "train.accumulate=2", "train.micro_batch=1"}};

/* One rank's part of a run. */
typedef struct job {
    const numbers *how;
    const layout *where;
    const char *from, *to; /* resumed from; saved to, after `steps` */
    int steps;
    double loss; /* of the last step */
    gw_hash128 loaded, after;
    double scale;
} job;

static void runfile_of(const job *j, int ranks, gw_runfile *rf, gw_diags *dg) {
    const char *sets[20] = {"train.global_batch=4", "optimizer.eps=1e-3", "optimizer.lr=0.01",
                            "optimizer.warmup_steps=0", "model.tie_embeddings=false"};
    int n = 5;
    for (int i = 0; i < 5 && j->how->sets[i]; i++) sets[n++] = j->how->sets[i];
    for (int i = 0; i < 4 && j->where->sets[i]; i++) sets[n++] = j->where->sets[i];
    tiny_runfile(rf, false, sets);
    CHECK_OK(gw_runfile_set_ranks(rf, ranks, dg), dg);
}

static gw_status on_rank(gw_comm *c, void *user, gw_diags *dg) {
    job *j = user;
    gw_runfile rf;
    gw_session s;
    gw_session_step_result r = {0};
    runfile_of(j, gw_ranks_count(c), &rf, dg);
    GW_TRY(gw_session_open(&s, &rf, j->from, c, dg));
    gw_hash128 loaded = gw_session_hash(&s);
    for (int i = 0; i < j->steps; i++) GW_TRY(gw_session_step(&s, &r, dg));
    GW_TRY(gw_session_settle(&s, &r, dg));
    gw_hash128 after = gw_session_hash(&s);
    if (j->to) GW_TRY(gw_session_save(&s, j->to, dg));
    if (gw_ranks_me(c) == 0) {
        j->loss = r.loss;
        j->loaded = loaded;
        j->after = after;
        j->scale = s.scaler.scale;
    }
    gw_session_close(&s);
    gw_runfile_release(&rf);
    return GW_OK;
}

static job go(const numbers *how, const layout *where, const char *from, int steps,
              const char *to) {
    job j = {.how = how, .where = where, .from = from, .to = to, .steps = steps};
    test_note("%s on %d from %s", how->name, where->ranks, from ? from : "the start");
    tiny_ranks(where->ranks, on_rank, &j);
    return j;
}

static void begin(void) {
    gw_log_set_level(GW_LOG_QUIET);
    tiny_data();
    CHECK(chdir(test_tmp_path("")) == 0);
}

/* Of two checkpoints, tensor by tensor: the kind of difference is `how`, or none at all. */
static void compare(const char *a, int step_a, const char *b, int step_b, gw_ckpt_differs weights,
                    gw_ckpt_differs moments) {
    gw_arena mem = {0};
    gw_diags dg;
    gw_ckpt_manifest *m[2] = {NULL, NULL};
    gw_ckpt_difference *d = NULL;
    int n = 0;
    gw_diags_init(&dg);
    CHECK_OK(gw_checkpoint_read(gw_arena_printf(&mem, "%s/checkpoints/step-%08d", a, step_a), &mem,
                                &m[0], &dg),
             &dg);
    CHECK_OK(gw_checkpoint_read(gw_arena_printf(&mem, "%s/checkpoints/step-%08d", b, step_b), &mem,
                                &m[1], &dg),
             &dg);
    CHECK_OK(gw_checkpoint_diff(m[0], m[1], &mem, &d, &n, &dg), &dg);
    CHECK(n > 60);
    for (int i = 0; i < n; i++) {
        size_t len = strlen(d[i].name);
        bool moment = len > 2 && d[i].name[len - 2] == '.';
        CHECK_MSG(d[i].how == (moment ? moments : weights), "%s differs as %d", d[i].name,
                  (int)d[i].how);
    }
    gw_arena_release(&mem);
    gw_diags_release(&dg);
}

/* Widened and made narrow again, or under a master all the time, everything is what it was. */
TEST_WITHIN(round_trips_are_exact, 120) {
    begin();
    job a = go(&fp32, &alone, NULL, 2, "a");
    job b = go(&mixed, &cut, "a", 0, "b"); /* weights become a master, in another layout */
    job c = go(&fp32, &staged, "b", 0, "c");
    CHECK(tiny_equal(a.after, b.loaded) && tiny_equal(a.after, c.loaded));
    compare("a", 2, "c", 2, GW_CKPT_SAME, GW_CKPT_SAME);

    job p = go(&pure, &cut, NULL, 2, "p");
    (void)go(&fp32, &staged, "p", 0, "q");
    compare("p", 2, "q", 2, GW_CKPT_ROUNDED, GW_CKPT_ROUNDED); /* exact: it is the same, wider */
    job r = go(&pure, &alone, "q", 0, "r");
    CHECK(tiny_equal(p.after, r.loaded));
    compare("p", 2, "r", 2, GW_CKPT_SAME, GW_CKPT_SAME);
}

/* Where it narrows, it is the nearest. */
TEST_WITHIN(a_master_is_rounded_where_weights_are_alone, 120) {
    begin();
    (void)go(&mixed, &staged, NULL, 2, "a");
    (void)go(&pure, &cut, "a", 0, "b");
    compare("a", 2, "b", 2, GW_CKPT_ROUNDED, GW_CKPT_ROUNDED);
    (void)go(&half, &alone, "a", 0, "c");
    compare("a", 2, "c", 2, GW_CKPT_ROUNDED, GW_CKPT_SAME);
    (void)go(&low, &cut, "a", 0, "d");
    compare("a", 2, "d", 2, GW_CKPT_SAME, GW_CKPT_ROUNDED);
}

/* The third step after a change of numbers, beside the third of a run that never changed. A loss of
 * about 5 in bf16 is good to some 2^-8 of itself a layer. */
TEST_WITHIN(the_next_step_is_the_uninterrupted_one, 200) {
    static const numbers *const all[] = {&fp32, &mixed, &low, &pure, &half, &fp16};
    static const layout *const places[] = {&alone, &cut, &staged};
    begin();
    for (size_t i = 0; i < GW_COUNT(all); i++) {
        char from[32];
        snprintf(from, sizeof from, "from-%d", (int)i);
        (void)go(all[i], places[i % 3], NULL, 2, from);
        job whole = go(all[i], places[i % 3], from, 1, NULL);
        for (size_t by = 1; by < GW_COUNT(all); by += 2) { /* each into three of the others */
            size_t k = (i + by) % GW_COUNT(all);
            job other = go(all[k], places[(i + k) % 3], from, 1, NULL);
            CHECK_MSG(fabs(other.loss - whole.loss) <= 1e-2 * whole.loss, "%s from %s: %g, was %g",
                      all[k]->name, all[i]->name, other.loss, whole.loss);
        }
    }
}

/* Both scale: it goes on. Only the one that begins does: it begins. */
TEST_WITHIN(the_scale_of_the_loss_is_kept_or_begins, 60) {
    const numbers other = {"fp16, from 64",
                           {"precision.compute=fp16", "precision.loss_scale_init=64"},
                           GW_F32,
                           GW_F32};
    begin();
    (void)go(&fp16, &alone, NULL, 2, "a");
    (void)go(&fp32, &alone, NULL, 2, "b");
    CHECK_NEAR(go(&other, &alone, "a", 0, NULL).scale, 65536, 0);
    CHECK_NEAR(go(&other, &alone, "b", 0, NULL).scale, 64, 0);
    CHECK_NEAR(go(&mixed, &alone, "a", 0, NULL).scale, 1, 0);
}

/* A number that bf16 does not have as a number refuses the resume; nothing older is taken for it.
 */
TEST(what_does_not_fit_is_refused_by_name) {
    gw_diags dg;
    gw_runfile rf;
    gw_session s;
    gw_session_step_result r;
    job j = {.how = &mixed, .where = &alone};
    begin();
    gw_diags_init(&dg);
    runfile_of(&j, 1, &rf, &dg);
    CHECK_OK(gw_session_open(&s, &rf, NULL, NULL, &dg), &dg);
    CHECK_OK(gw_session_step(&s, &r, &dg), &dg);
    CHECK_OK(gw_session_save(&s, "run", &dg), &dg);
    for (int i = 0; i < s.ntensors; i++)
        if (strcmp(s.tensors[i].name, "layers.1.attn.q.weight.m") == 0)
            ((float *)s.tensors[i].data)[3] = 3.4028235e38F;
    s.step = 2;
    s.batch = 2;
    CHECK_OK(gw_session_save(&s, "run", &dg), &dg);
    gw_session_close(&s);
    gw_runfile_release(&rf);
    j.how = &pure;
    runfile_of(&j, 1, &rf, &dg);
    CHECK_FAILS(gw_session_open(&s, &rf, "run", NULL, &dg), &dg,
                "1 element of 'layers.1.attn.q.weight.m' is too large for bf16");
    gw_runfile_release(&rf);
    gw_diags_release(&dg);
}
