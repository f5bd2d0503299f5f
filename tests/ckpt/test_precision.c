// SPDX-License-Identifier: Apache-2.0
// A load into other floats than were saved: exact where it widens, nearest even where it narrows,
// of any box from any chunks; and what `checkpoint diff` says of the two.
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/num.h"       /* gw_bf16 */
#include "base/rng.h"       /* gw_rng_u64 */
#include "ckpt/diff.h"      /* gw_checkpoint_diff */
#include "ckpt/plan.h"      /* gw_ckpt_held */
#include "ckpt/precision.h" /* gw_ckpt_convert */
#include "ckpt/save.h"      /* gw_checkpoint_save */
#include "comm/launch.h"    /* gw_launch_threads */
#include "harness.h"

static const gw_dtype floats[] = {GW_F32, GW_BF16, GW_F16};

/* Every number of sixteen bits, made wider and narrow again, is itself. */
TEST(widening_loses_nothing) {
    enum { ALL = 1 << 16 };
    static uint16_t from[ALL], back[ALL];
    static float wide[ALL];
    for (int i = 0; i < ALL; i++) from[i] = (uint16_t)i;
    for (int k = 1; k < 3; k++) {
        gw_ckpt_rounding r = {0};
        CHECK(gw_ckpt_converts(floats[k], GW_F32) && gw_ckpt_widens(floats[k], GW_F32));
        CHECK(!gw_ckpt_widens(GW_F32, floats[k]));
        gw_ckpt_convert(floats[k], from, GW_F32, wide, ALL, &r);
        gw_ckpt_convert(GW_F32, wide, floats[k], back, ALL, &r);
        for (int i = 0; i < ALL; i++)
            CHECK_MSG(isnan(wide[i]) || back[i] == from[i], "%s %04x -> %04x",
                      gw_dtype_name(floats[k]), from[i], back[i]);
        CHECK(r.overflowed == 0 && r.vanished == 0);
    }
    CHECK(!gw_ckpt_converts(GW_F32, GW_F32) && !gw_ckpt_converts(GW_F32, GW_I32));
    CHECK(!gw_ckpt_converts(GW_F8E4M3, GW_F32) && !gw_ckpt_widens(GW_F16, GW_BF16));
}

/* IEEE 754: to nearest, a tie to the even one; beyond the largest by half a step, infinity. */
TEST(narrowing_is_to_nearest_even) {
    static const struct {
        gw_dtype to;
        float from;
        double is;
        int over, gone;
    } facts[] = {
        {GW_BF16, 1.00390625F, 1, 0, 0},            /* 1 + 2^-8: between 1 and 1 + 2^-7 */
        {GW_BF16, 1.01171875F, 1.015625, 0, 0},     /* 1 + 3 x 2^-8: the other way */
        {GW_BF16, 1.00390637F, 1.0078125, 0, 0},    /* a little more than a tie */
        {GW_BF16, -1.00390625F, -1, 0, 0},          /* signs do not matter */
        {GW_BF16, 3.4028235e38F, HUGE_VAL, 1, 0},   /* the largest float */
        {GW_BF16, 3.3895314e38F, 0x1.fep127, 0, 0}, /* the largest of bf16 */
        {GW_BF16, 0x1p-149F, 0, 0, 1},              /* the least float */
        {GW_BF16, 0x1p-133F, 0x1p-133, 0, 0},       /* the least of bf16 */
        {GW_BF16, INFINITY, HUGE_VAL, 0, 0},        /* it was one before */
        {GW_F16, 2049, 2048, 0, 0},                 /* between 2048 and 2050 */
        {GW_F16, 2051, 2052, 0, 0},
        {GW_F16, 65519, 65504, 0, 0},
        {GW_F16, 65520, HUGE_VAL, 1, 0},
        {GW_F16, 0x1p-24F, 0x1p-24, 0, 0},
        {GW_F16, 0x1p-25F, 0, 0, 1},
        {GW_F16, 0, 0, 0, 0},
    };
    for (size_t i = 0; i < GW_COUNT(facts); i++) {
        uint16_t x;
        float y;
        gw_ckpt_rounding r = {0}, none = {0};
        gw_ckpt_convert(GW_F32, &facts[i].from, facts[i].to, &x, 1, &r);
        gw_ckpt_convert(facts[i].to, &x, GW_F32, &y, 1, &none);
        CHECK_MSG((double)y == facts[i].is, "%s of %g is %g", gw_dtype_name(facts[i].to),
                  (double)facts[i].from, (double)y);
        CHECK_EQ(r.overflowed, facts[i].over);
        CHECK_EQ(r.vanished, facts[i].gone);
    }
}

/* ---- through a checkpoint ---- */

enum { ROWS = 37, COLS = 53, ALL = ROWS * COLS };

static gw_ckpt_meta meta(int64_t step) {
    return (gw_ckpt_meta){.step = step, .batch = step, .loss_scale = 1};
}

static gw_ckpt_tensor matrix(gw_dtype dtype, void *data) {
    int64_t dims[2] = {ROWS, COLS};
    return (gw_ckpt_tensor){.name = "w",
                            .dtype = dtype,
                            .ndim = 2,
                            .dims = {ROWS, COLS},
                            .box = gw_box_whole(2, dims),
                            .data = data};
}

static gw_ckpt_manifest *read_step(int64_t step, gw_arena *mem, gw_diags *dg) {
    char name[64];
    gw_ckpt_manifest *m = NULL;
    snprintf(name, sizeof name, "checkpoints/step-%08d", (int)step);
    CHECK_OK(gw_checkpoint_read(test_tmp_path(name), mem, &m, dg), dg);
    return m;
}

static void fill(float *x) {
    gw_rng_key key = gw_rng_key_named(3, "precision");
    for (int i = 0; i < ALL; i++)
        x[i] = ldexpf((float)(int64_t)gw_rng_u64(key, (uint64_t)i), -60 - i % 9);
}

typedef struct job {
    float x[ALL];
    gw_dtype from;
    gw_mesh mesh;
    gw_type type;
} job;

/* Each rank saves its part in one float and loads it in each of them. */
static gw_status on_rank(gw_comm *c, void *user, gw_diags *dg) {
    const job *j = user;
    gw_arena mem = {0};
    gw_piece *p;
    int64_t rank = gw_comm_rank(c), n = 0, at = 0;
    int pieces = gw_ckpt_held(&j->type, &j->mesh, rank, &mem, &p);
    for (int i = 0; i < pieces; i++) n += p[i].count;
    float *mine = gw_arena_new(&mem, float, n + 1);
    gw_held w;
    int64_t global, local, count;
    gw_held_begin(&w, &j->type, &j->mesh, rank);
    for (; gw_held_next(&w, &global, &local, &count); at += count)
        memcpy(mine + local, j->x + global, (size_t)count * sizeof *mine);
    CHECK_EQ(at, n);
    gw_ckpt_rounding r = {0};
    void *saved = gw_arena_alloc(&mem, n * 4 + 8);
    if (j->from == GW_F32)
        memcpy(saved, mine, (size_t)n * 4);
    else
        gw_ckpt_convert(GW_F32, mine, j->from, saved, n, &r);
    gw_type of = j->type;
    of.dtype = (uint8_t)j->from;
    gw_ckpt_tensor t = matrix(j->from, saved);
    t.type = &of;
    t.mesh = &j->mesh;
    t.rank = rank;
    uint64_t digest = gw_ckpt_digest(&t);
    gw_ckpt_save *s = NULL;
    gw_ckpt_options o = {.run_dir = test_tmpdir(), .comm = c, .replicas = GW_CKPT_REPLICAS_ALL};
    gw_ckpt_meta m = meta(1 + (int)j->from);
    GW_TRY(gw_checkpoint_begin(&s, &o, &m, &t, 1, dg));
    GW_TRY(gw_checkpoint_end(s, NULL, dg));
    for (size_t k = 0; k < GW_COUNT(floats); k++) {
        gw_ckpt_conversion as;
        char *want = gw_arena_alloc(&mem, n * 4 + 8), *got = gw_arena_alloc(&mem, n * 4 + 8);
        if (floats[k] == j->from)
            memcpy(want, saved, (size_t)(n * gw_dtype_bits(j->from) / 8));
        else
            gw_ckpt_convert(j->from, saved, floats[k], want, n, &r);
        gw_type to = j->type;
        to.dtype = (uint8_t)floats[k];
        gw_ckpt_tensor in = t;
        in.dtype = floats[k];
        in.type = &to;
        in.data = got;
        in.as = &as;
        GW_TRY(gw_checkpoint_load(read_step(1 + (int)j->from, &mem, dg), &in, 1, NULL, dg));
        CHECK(memcmp(want, got, (size_t)(n * gw_dtype_bits(floats[k]) / 8)) == 0);
        CHECK_EQ(as.done, floats[k] != j->from);
        if (as.done) CHECK(as.digest == digest && as.from == j->from);
    }
    gw_arena_release(&mem);
    return GW_OK;
}

/* Six ranks: rows cut by one axis and columns by another, flat parts of what is left, replicas. */
TEST(any_part_is_converted_as_the_whole_is) {
    gw_diags dg;
    gw_diags_init(&dg);
    static job j;
    fill(j.x);
    uint32_t dp = gw_mesh_add(&j.mesh, "dp", 2);
    (void)gw_mesh_add(&j.mesh, "tp", 3);
    for (int way = 0; way < 3; way++)
        for (size_t k = 0; k < GW_COUNT(floats); k++) {
            j.type = gw_type_make(GW_F32, "f37 d53");
            j.type.dims[way == 1].naxes = 1;
            j.type.dims[way == 1].axes[0] = 1;
            if (way == 2) {
                j.type.flat = 1;
                j.type.flat_axes = dp;
            }
            j.from = floats[k];
            CHECK_OK(gw_launch_threads(6, 20, on_rank, &j, &dg), &dg);
        }
    gw_diags_release(&dg);
}

/* Without being asked for it, a load takes no other dtype. */
TEST(a_load_converts_only_where_it_may) {
    gw_diags dg;
    gw_arena mem = {0};
    static float x[ALL];
    static uint16_t y[ALL];
    gw_diags_init(&dg);
    fill(x);
    gw_ckpt_tensor t = matrix(GW_F32, x), in = matrix(GW_BF16, y);
    gw_ckpt_meta m = meta(1);
    CHECK_OK(gw_checkpoint_save(test_tmpdir(), &m, &t, 1, &dg), &dg);
    CHECK_FAILS(gw_checkpoint_load(read_step(1, &mem, &dg), &in, 1, NULL, &dg), &dg,
                "has another dtype there");
    gw_diags_release(&dg);
    gw_arena_release(&mem);
}

/* What is one another's rounding is told from what is not, in either order. */
TEST(diff_compares_floats_of_two_widths) {
    gw_diags dg;
    gw_arena mem = {0};
    static float x[ALL];
    static uint16_t y[ALL];
    gw_ckpt_rounding r = {0};
    gw_ckpt_difference *d;
    int n;
    gw_diags_init(&dg);
    fill(x);
    gw_ckpt_convert(GW_F32, x, GW_BF16, y, ALL, &r);
    gw_ckpt_tensor t = matrix(GW_F32, x), u = matrix(GW_BF16, y);
    gw_ckpt_meta m[3] = {meta(1), meta(2), meta(3)};
    CHECK_OK(gw_checkpoint_save(test_tmpdir(), &m[0], &t, 1, &dg), &dg);
    CHECK_OK(gw_checkpoint_save(test_tmpdir(), &m[1], &u, 1, &dg), &dg);
    y[1000] ^= 1;
    CHECK_OK(gw_checkpoint_save(test_tmpdir(), &m[2], &u, 1, &dg), &dg);
    for (int turned = 0; turned < 2; turned++) {
        gw_ckpt_manifest *a = read_step(turned ? 2 : 1, &mem, &dg),
                         *b = read_step(turned ? 1 : 2, &mem, &dg);
        CHECK_OK(gw_checkpoint_diff(a, b, &mem, &d, &n, &dg), &dg);
        CHECK_EQ(n, 1);
        CHECK_EQ(d->how, GW_CKPT_ROUNDED);
        CHECK_EQ(d->differing, 0);
        double most = 0;
        for (int i = 0; i < ALL; i++) {
            float back = gw_bf16_to_f32((gw_bf16){(uint16_t)(y[i] ^ (i == 1000))});
            most = fmax(most, fabs((double)x[i] - (double)back));
        }
        CHECK_NEAR(d->largest, most, 0);
        CHECK_OK(gw_checkpoint_diff(read_step(turned ? 3 : 1, &mem, &dg),
                                    read_step(turned ? 1 : 3, &mem, &dg), &mem, &d, &n, &dg),
                 &dg);
        CHECK_EQ(d->how, GW_CKPT_VALUES);
        CHECK_EQ(d->differing, 1);
    }
    gw_diags_release(&dg);
    gw_arena_release(&mem);
}
