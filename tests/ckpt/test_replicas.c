// SPDX-License-Identifier: Apache-2.0
// Replicas that differ (pytorch#120356: tensors of one name that differ by rank, of which all but
// one were dropped in silence): a save compares the copies and is refused, naming tensor, box and
// ranks.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/io.h"     /* gw_path_exists */
#include "base/rng.h"    /* gw_rng_u64 */
#include "ckpt/plan.h"   /* gw_ckpt_held */
#include "ckpt/save.h"   /* gw_checkpoint_begin */
#include "comm/launch.h" /* gw_launch_threads */
#include "harness.h"

/* A small tensor, one of several blocks, one that tp cuts, one that ZeRO cuts to the last. */
enum { NTENSORS = 4, ROWS = 600, COLS = 4096 };

typedef struct job {
    int replicas, tp;
    gw_mesh mesh;
    gw_type types[NTENSORS];
    gw_ckpt_replicas how;
    bool direct, late, references, again; /* again: the commit before has the same bits */
    int bad_rank, bad_tensor;             /* -1: none */
    int64_t bad_at;                       /* element of its buffer */
    int64_t step;
    gw_status st;
    char said[400];
    int64_t compared, bytes; /* of rank 0 */
} job;

static const char *const names[NTENSORS] = {"norm", "embed", "up", "moment"};

static void make(job *j, int replicas, int tp) {
    *j = (job){
        .replicas = replicas, .tp = tp, .bad_rank = -1, .step = 1, .how = GW_CKPT_REPLICAS_CHECK};
    uint32_t dp = gw_mesh_add(&j->mesh, "dp", replicas);
    if (tp > 1) (void)gw_mesh_add(&j->mesh, "tp", tp);
    j->types[0] = gw_type_make(GW_F32, "d4096");
    for (int i = 1; i < NTENSORS; i++) j->types[i] = gw_type_make(GW_F32, "f600 d4096");
    j->types[2].dims[0].naxes = tp > 1;
    j->types[2].dims[0].axes[0] = 1;
    j->types[3].flat = 1;
    j->types[3].flat_axes = dp;
}

/* The same numbers on all that hold them. */
static void hold(const job *j, int64_t rank, gw_arena *mem, gw_ckpt_tensor *t) {
    for (int i = 0; i < NTENSORS; i++) {
        const gw_type *type = &j->types[i];
        int64_t n = gw_type_local_elems(type, &j->mesh, rank), global, local, count;
        float *x = gw_arena_new(mem, float, n + 1);
        gw_held w;
        gw_held_begin(&w, type, &j->mesh, rank);
        while (gw_held_next(&w, &global, &local, &count))
            for (int64_t k = 0; k < count; k++) x[local + k] = (float)(global + k) + (float)i;
        t[i] = (gw_ckpt_tensor){.name = names[i],
                                .dtype = GW_F32,
                                .ndim = type->ndim,
                                .data = x,
                                .type = type,
                                .mesh = &j->mesh,
                                .rank = rank};
        for (int k = 0; k < type->ndim; k++) t[i].dims[k] = type->dims[k].size;
    }
}

static void forget(const gw_ckpt_tensor *t) {
    for (int i = 0; i < NTENSORS; i++)
        memset(t[i].data, 0x5a, (size_t)gw_type_local_elems(t[i].type, t[i].mesh, t[i].rank) * 4);
}

static gw_status save(gw_ckpt_options *o, int64_t step, const gw_ckpt_tensor *t,
                      gw_ckpt_stats *stats, gw_diags *dg) {
    gw_ckpt_save *s = NULL;
    gw_ckpt_meta m = {.step = step, .batch = step, .loss_scale = 1};
    GW_TRY(gw_checkpoint_begin(&s, o, &m, t, NTENSORS, dg));
    gw_checkpoint_take(s);
    if (!o->direct) forget(t); /* it has been hashed and copied */
    return gw_checkpoint_end(s, stats, dg);
}

static gw_status on_rank(gw_comm *c, void *user, gw_diags *dg) {
    job *j = user;
    int rank = gw_comm_rank(c);
    gw_arena mem = {0};
    gw_ckpt_tensor t[NTENSORS];
    gw_ckpt_stats stats = {0};
    gw_ckpt_keep *keep = gw_ckpt_keep_new();
    gw_diags mine;
    gw_diags_init(&mine);
    gw_ckpt_options o = {.run_dir = test_tmpdir(),
                         .comm = c,
                         .keep = keep,
                         .direct = j->direct,
                         .late = j->late,
                         .references = j->references,
                         .replicas = j->how};
    hold(j, rank, &mem, t);
    if (j->again) {
        GW_TRY(save(&o, j->step + 1000, t, NULL, dg));
        hold(j, rank, &mem, t);
    }
    if (rank == j->bad_rank) ((uint32_t *)t[j->bad_tensor].data)[j->bad_at] ^= 1u << 7;
    gw_status st = save(&o, j->step, t, &stats, &mine);
    if (rank == 0) {
        j->st = st;
        const char *text = gw_diags_first_error(&mine);
        snprintf(j->said, sizeof j->said, "%s", st == GW_OK || !text ? "" : text);
        j->compared = stats.compared_bytes;
        j->bytes = stats.bytes;
    }
    gw_ckpt_keep_free(keep);
    gw_diags_release(&mine);
    gw_arena_release(&mem);
    return GW_OK;
}

static void run(job *j) {
    gw_diags dg;
    gw_diags_init(&dg);
    CHECK_OK(gw_launch_threads(j->replicas * j->tp, 30, on_rank, j, &dg), &dg);
    gw_diags_release(&dg);
}

static bool committed(int64_t step) {
    char name[80];
    snprintf(name, sizeof name, "checkpoints/step-%08d/manifest.json", (int)step);
    return gw_path_exists(test_tmp_path(name));
}

static bool says(const job *j, const char *what) { return strstr(j->said, what) != NULL; }

TEST(replicas_that_are_equal_are_saved) {
    static const gw_ckpt_replicas all[] = {GW_CKPT_REPLICAS_TRUST, GW_CKPT_REPLICAS_CHECK,
                                           GW_CKPT_REPLICAS_ALL};
    int64_t compared[3];
    for (int k = 0; k < 3; k++) {
        job j;
        make(&j, 3, 2);
        j.how = all[k];
        j.step = 1 + k;
        j.direct = k == 1;
        j.late = k == 2;
        run(&j);
        CHECK_MSG(j.st == GW_OK, "%s", j.said);
        CHECK(committed(j.step));
        compared[k] = j.compared;
    }
    /* What nothing cuts all six hold, and each writes a sixth; of a half of `up` each of three
     * writes a third; of a third of `moment` each of two writes half. check reads as much again,
     * all reads the rest; the small one on top. */
    const int64_t one = (int64_t)ROWS * COLS * 4, slack = 40000;
    CHECK_EQ(compared[0], 0);
    CHECK_MSG(llabs(compared[1] - one / 6 - one / 6 - one / 6) < slack, "%lld",
              (long long)compared[1]);
    CHECK_MSG(llabs(compared[2] - 5 * one / 6 - 2 * one / 6 - one / 6) < slack, "%lld",
              (long long)compared[2]);
}

/* Of two replicas each flipped bit is met at once, whichever it is in, written or not; also where
 * the writer does not write, since nothing changed on its side. */
TEST(a_flipped_bit_on_one_replica_refuses_the_save) {
    int64_t step = 1;
    for (int t = 0; t < 3; t++)
        for (int bad = 0; bad < (t == 2 ? 4 : 2); bad++)
            for (int way = 0; way < 2; way++) {
                job j;
                make(&j, 2, t == 2 ? 2 : 1); /* what tp does not cut, its ranks hold too */
                j.step = step++;
                j.direct = way == 1;
                j.references = j.again = way == 0;
                j.bad_rank = bad;
                j.bad_tensor = t;
                j.bad_at = t == 0 ? 4095 : t == 1 ? 1300 * 1000 : 77;
                run(&j);
                CHECK_EQ(j.st, GW_ERR_PEER);
                CHECK_MSG(says(&j, "replicas differ") && says(&j, names[t]), "%s", j.said);
                CHECK_MSG(says(&j, "1 share differs"), "%s", j.said);
                char rank[16];
                snprintf(rank, sizeof rank, "rank %d", bad);
                CHECK_MSG(says(&j, rank), "%s", j.said);
                CHECK(!committed(j.step));
            }
}

/* What ZeRO has cut to the last has no replicas, so there is nothing to hold it against. */
TEST(what_one_rank_alone_holds_is_its_own) {
    job j;
    make(&j, 2, 1);
    j.bad_rank = 1;
    j.bad_tensor = 3;
    j.bad_at = 5;
    run(&j);
    CHECK_MSG(j.st == GW_OK, "%s", j.said);
}

/* Of four replicas one element that is wrong on a rank that does not write it is met in every save
 * that compares all, and in one of three of those that compare one other. */
TEST(among_many_replicas_a_fault_is_met_in_turn) {
    int met = 0, saves = 12;
    for (int step = 1; step <= saves; step++) {
        job j;
        make(&j, 4, 1);
        j.step = step;
        j.bad_rank = 2;
        j.bad_tensor = 1;
        j.bad_at = 10; /* in the first share, which rank 2 does not write */
        run(&j);
        CHECK(j.st == GW_OK || j.st == GW_ERR_PEER);
        met += j.st == GW_ERR_PEER;
        if (step > 2) continue;
        j.how = GW_CKPT_REPLICAS_ALL;
        j.step += 100;
        run(&j);
        CHECK_EQ(j.st, GW_ERR_PEER);
        CHECK_MSG(says(&j, "on rank 2 is not what it is on rank 0, which writes it (2 others have"),
                  "%s", j.said);
    }
    CHECK_MSG(met > 0 && met < saves, "%d", met);
    job j;
    make(&j, 4, 1);
    j.step = 200;
    j.bad_rank = 2;
    j.bad_tensor = 1;
    j.bad_at = 10;
    j.how = GW_CKPT_REPLICAS_TRUST;
    run(&j);
    CHECK(j.st == GW_OK && committed(200));
}
