// SPDX-License-Identifier: Apache-2.0
// Eight-bit floats: the formats against what torch answers (tests/golden/make_fp8.py) and against
// their definition, and the laws of blockwise scaling.
#include <stdlib.h>
#include <string.h>

#include "base/fp8.h"  /* gw_f8e4m3_from_f32 */
#include "base/io.h"   /* gw_path_exists */
#include "base/rng.h"  /* gw_rng_normal */
#include "eval.h"      /* eval */
#include "harness.h"   /* TEST, CHECK */
#include "ir/shard.h"  /* GW_SHARD_ZIGZAG */
#include "ir/verify.h" /* gw_graph_verify */
#include "ops/fp8.h"   /* gw_fp8_scale */
#include "ops/ops.h"   /* gw_ops_table */

/* ---- formats ---- */

static gw_dtype format_named(const char *name) {
    gw_dtype t = GW_U8;
    CHECK_MSG(gw_dtype_parse(name, &t) && gw_dtype_is_fp8(t), "no format %s", name);
    return t;
}

TEST(fp8_tables_equal_torch) {
    if (!gw_path_exists("tests/golden/fp8.txt")) SKIP("tests/golden is not there");
    FILE *f = fopen("tests/golden/fp8.txt", "r");
    char line[80], name[16];
    unsigned a, b;
    int decoded = 0, encoded = 0;
    CHECK(f);
    while (fgets(line, sizeof line, f)) {
        if (sscanf(line, "d %15s %x %x", name, &a, &b) == 3) {
            uint32_t got = gw_f32_bits(gw_fp8_decode(format_named(name), (uint8_t)a));
            CHECK_MSG(got == b, "%s: %02x is %08x, torch %08x", name, a, got, b);
            decoded++;
        } else if (sscanf(line, "e %15s %x %x", name, &a, &b) == 3) {
            uint8_t got = gw_fp8_encode(format_named(name), gw_f32_from_bits(a));
            CHECK_MSG(got == b, "%s: %08x gives %02x, torch %02x", name, a, got, b);
            encoded++;
        }
    }
    fclose(f);
    CHECK_EQ(decoded, 512);
    CHECK(encoded > 1400); /* three inputs and two signs for each of 126 + 123 gaps, and more */
}

/* From the definition alone: sign, exponent, fraction of table 1 of the specification. */
static double defined(gw_dtype t, int code) {
    int m = t == GW_F8E4M3 ? 3 : 2, bias = t == GW_F8E4M3 ? 7 : 15;
    int e = (code & 0x7f) >> m, f = code & ((1 << m) - 1);
    double x = e ? ldexp(1 + ldexp(f, -m), e - bias) : ldexp(f, 1 - bias - m);
    return code & 0x80 ? -x : x;
}

TEST(fp8_codes_are_what_the_formats_define) {
    for (int k = 0; k < 2; k++) {
        gw_dtype t = k ? GW_F8E5M2 : GW_F8E4M3;
        int largest = k ? 0x7b : 0x7e;
        for (int c = 0; c < 256; c++) {
            float x = gw_fp8_decode(t, (uint8_t)c);
            bool inf = k && (c & 0x7f) == 0x7c;
            if (inf) {
                CHECK(x == (c >= 0x80 ? -INFINITY : INFINITY));
            } else if ((c & 0x7f) > largest) {
                CHECK(isnan(x));
            } else {
                CHECK_MSG((double)x == defined(t, c), "code %02x is %g", (unsigned)c, (double)x);
                CHECK_EQ(gw_fp8_encode(t, x), c); /* every finite code comes back, -0 too */
            }
        }
        CHECK(gw_fp8_decode(t, (uint8_t)largest) == gw_fp8_max(t));
    }
}

TEST(fp8_saturates_and_keeps_nan) {
    for (int k = 0; k < 2; k++) {
        gw_dtype t = k ? GW_F8E5M2 : GW_F8E4M3;
        float beyond[] = {gw_fp8_max(t) * 1.0001f, gw_fp8_max(t) * 1.25f, 3e38f, INFINITY};
        for (int i = 0; i < 4; i++) {
            CHECK(gw_fp8_decode(t, gw_fp8_encode(t, beyond[i])) == gw_fp8_max(t));
            CHECK(gw_fp8_decode(t, gw_fp8_encode(t, -beyond[i])) == -gw_fp8_max(t));
        }
        CHECK(isnan(gw_fp8_decode(t, gw_fp8_encode(t, NAN))));
        CHECK_EQ(gw_fp8_encode(t, 0.0f), 0);
        CHECK_EQ(gw_fp8_encode(t, -0.0f), 0x80);
        CHECK_EQ(gw_fp8_encode(t, 1e-30f), 0);
    }
}

TEST(fp8_rounds_to_the_nearest_code) {
    gw_rng_key key = gw_rng_key_named(1, "fp8");
    for (int k = 0; k < 2; k++) {
        gw_dtype t = k ? GW_F8E5M2 : GW_F8E4M3;
        for (uint64_t i = 0; i < 4000; i++) {
            float x = (float)(gw_rng_normal(key, 2 * i) * exp2(6 * gw_rng_normal(key, 2 * i + 1)));
            double got = (double)gw_fp8_decode(t, gw_fp8_encode(t, x)), best = (double)INFINITY;
            if (fabs((double)x) > (double)gw_fp8_max(t)) continue;
            for (int c = 0; c < 256; c++) {
                double y = (double)gw_fp8_decode(t, (uint8_t)c);
                if (isfinite(y)) best = fmin(best, fabs(y - (double)x));
            }
            CHECK_MSG(fabs(got - (double)x) == best, "%g became %g", (double)x, got);
        }
    }
}

/* ---- blocks ---- */

typedef struct quant {
    gw_graph g;
    gw_diags dg;
    eval e;
    gw_vid x, v, s, back;
} quant;

static void quant_init(quant *q, const char *dims, const char *along, const char *across,
                       bool pow2) {
    memset(q, 0, sizeof *q);
    gw_diags_init(&q->dg);
    gw_graph_init(&q->g, gw_ops_table());
    gw_builder b;
    gw_builder_init(&b, &q->g, &q->dg);
    b.rate = GW_RATE_MB;
    q->x = gw_graph_leaf(&q->g, GW_ROLE_INPUT, GW_CAUSE_DATA, GW_RATE_MB,
                         gw_type_make(GW_F32, dims), "x");
    gw_attr a[GW_MAX_ATTRS];
    gw_attrs_default(q->g.table, "fp8_quant", a);
    gw_attrs_set(q->g.table, "fp8_quant", a, "along",
                 (gw_attr){.s = gw_graph_intern(&q->g, along)});
    gw_attrs_set(q->g.table, "fp8_quant", a, "across",
                 (gw_attr){.s = gw_graph_intern(&q->g, across)});
    gw_attrs_set(q->g.table, "fp8_quant", a, "pow2", (gw_attr){.i = pow2});
    q->v = gw_build(&b, "fp8_quant", &q->x, 1, a, &q->s);
    q->back = gw_build1(&b, "fp8_dequant", q->v, q->s);
    CHECK_OK(b.status, &q->dg);
    eval_init(&q->e, &q->g);
}

static void quant_release(quant *q) {
    eval_release(&q->e);
    gw_graph_release(&q->g);
    gw_diags_release(&q->dg);
}

static float *floats(quant *q, gw_vid v) { return eval_data(&q->e, v); }

/* Normal numbers whose blocks differ by powers of four, with a wide spread within. */
static void fill(quant *q, float factor) {
    gw_rng_key key = gw_rng_key_named(3, "block");
    int64_t n = gw_type_elems(gw_type_of(&q->g, q->x));
    for (int64_t i = 0; i < n; i++)
        floats(q, q->x)[i] = factor * (float)(gw_rng_normal(key, (uint64_t)i) *
                                              exp2(3 * gw_rng_normal(key, (uint64_t)(i + n))));
}

TEST(fp8_error_is_at_most_a_sixteenth) {
    for (int pow2 = 0; pow2 < 2; pow2++) {
        quant q;
        quant_init(&q, "s4 d300", "d", "", pow2);
        fill(&q, 1);
        eval_run(&q.e, 0, 2);
        for (int64_t i = 0; i < 1200; i++) {
            double x = (double)floats(&q, q.x)[i], y = (double)floats(&q, q.back)[i];
            double scale = (double)floats(&q, q.s)[i / 300 * 3 + i % 300 / 128];
            /* half a step of a normal value; half a subnormal step, 2^-10 scales, below; and the
             * two roundings to float32 */
            double bound = fmax(fabs(x) * 0x1p-4, scale * 0x1p-10) * (1 + 1e-6);
            CHECK_MSG(fabs(x - y) <= bound, "%g came back as %g", x, y);
        }
        quant_release(&q);
    }
}

TEST(fp8_largest_of_a_block_comes_back) {
    quant q;
    quant_init(&q, "s3 d256", "d", "", false);
    fill(&q, 1);
    eval_run(&q.e, 0, 2);
    for (int64_t b = 0; b < 6; b++) {
        const float *x = floats(&q, q.x) + b * 128;
        int64_t most = 0;
        for (int64_t i = 0; i < 128; i++)
            if (fabsf(x[i]) > fabsf(x[most])) most = i;
        CHECK_NEAR(floats(&q, q.back)[b * 128 + most], x[most], 3e-7 * fabs((double)x[most]));
        CHECK_NEAR(floats(&q, q.s)[b], fabsf(x[most]) / 448, 0);
    }
    quant_release(&q);
}

/* Powers of two commute with everything: values are the same bytes, scales and results move. */
TEST(fp8_values_do_not_change_under_powers_of_two) {
    for (int pow2 = 0; pow2 < 2; pow2++) {
        quant a, b;
        quant_init(&a, "f130 d140", "d", "f", pow2);
        quant_init(&b, "f130 d140", "d", "f", pow2);
        fill(&a, 1);
        fill(&b, 0x1p-40f);
        eval_run(&a.e, 0, 2);
        eval_run(&b.e, 0, 2);
        CHECK(memcmp(eval_data(&a.e, a.v), eval_data(&b.e, b.v), 130 * 140) == 0);
        for (int64_t i = 0; i < 4; i++) CHECK(floats(&a, a.s)[i] == floats(&b, b.s)[i] * 0x1p40f);
        for (int64_t i = 0; i < 130 * 140; i++)
            CHECK(floats(&a, a.back)[i] == floats(&b, b.back)[i] * 0x1p40f);
        quant_release(&a);
        quant_release(&b);
    }
}

TEST(fp8_scales_of_zero_and_of_extremes) {
    CHECK(gw_fp8_scale(0, GW_F8E4M3, false) == 1);
    CHECK(gw_fp8_scale(0, GW_F8E4M3, true) == 1);
    CHECK(gw_fp8_scale(448, GW_F8E4M3, true) == 1);
    CHECK(gw_fp8_scale(449, GW_F8E4M3, true) == 2);
    CHECK(gw_fp8_scale(57344, GW_F8E5M2, true) == 1);
    CHECK(gw_fp8_scale(1e-40f, GW_F8E4M3, false) == 0x1p-126f);
    CHECK(gw_fp8_scale(3.4e38f, GW_F8E4M3, true) == 0x1p120f);
    CHECK(gw_fp8_scale(7, GW_F8E4M3, true) == 0x1p-6f); /* 7 / 448 is 2^-6 */
    quant q;
    quant_init(&q, "s2 d130", "d", "", false);
    floats(&q, q.x)[3] = INFINITY; /* the rest of block 0 is small, block 1 and row 1 are zero */
    floats(&q, q.x)[4] = NAN;
    floats(&q, q.x)[5] = -2;
    eval_run(&q.e, 0, 2);
    const float *back = floats(&q, q.back);
    CHECK(isnan(back[3]) && isnan(back[4]) && back[5] == -2);
    for (int64_t i = 0; i < 260; i++)
        if (i < 3 || i > 5) CHECK(back[i] == 0);
    CHECK(floats(&q, q.s)[1] == 1 && floats(&q, q.s)[0] == 2.0f / 448);
    quant_release(&q);
}

TEST(fp8_bytes_are_those_of_the_arithmetic) {
    /* K31: a float32 scale for 1 x 128 is + 3.125 % of a byte an element, for 128 x 128 + 0.0244 %
     */
    quant a, w;
    quant_init(&a, "s64 d1024", "d", "", false);
    quant_init(&w, "f512 d1024", "d", "f", false);
    CHECK_EQ(gw_type_elems(gw_type_of(&a.g, a.s)) * 4, 64 * 1024 / 32);
    CHECK_EQ(gw_type_elems(gw_type_of(&w.g, w.s)) * 4, 512 * 1024 / 4096);
    quant_release(&a);
    quant_release(&w);
}

/* ---- products ---- */

typedef struct made {
    gw_graph g;
    gw_builder b;
    gw_diags dg;
} made;

static void made_init(made *t) {
    memset(t, 0, sizeof *t);
    gw_graph_init(&t->g, gw_ops_table());
    gw_diags_init(&t->dg);
    gw_builder_init(&t->b, &t->g, &t->dg);
    t->b.rate = GW_RATE_MB;
}

static void made_release(made *t) {
    gw_graph_release(&t->g);
    gw_diags_release(&t->dg);
}

static gw_vid leaf(made *t, gw_dtype dtype, const char *dims, gw_role role) {
    return gw_graph_leaf(&t->g, role, GW_CAUSE_DATA, GW_RATE_MB, gw_type_make(dtype, dims), "x");
}

/* Whole numbers that the format holds, scales that are powers of two: every step is exact, so the
 * product is that of the numbers, whatever the order. */
TEST(fp8_matmul_of_whole_numbers_is_exact) {
    made t;
    made_init(&t);
    gw_vid in[4] = {
        leaf(&t, GW_F8E4M3, "s3 d260", GW_ROLE_INPUT), leaf(&t, GW_F32, "s3 d3", GW_ROLE_INPUT),
        leaf(&t, GW_F8E4M3, "f130 d260", GW_ROLE_INPUT), leaf(&t, GW_F32, "f2 d3", GW_ROLE_INPUT)};
    gw_vid y = gw_build(&t.b, "fp8_matmul", in, 4, NULL, NULL);
    CHECK_OK(t.b.status, &t.dg);
    eval e;
    eval_init(&e, &t.g);
    for (int64_t i = 0; i < 3 * 260; i++) eval_set(&e, in[0], i, (double)(i * 7 % 17 - 8));
    for (int64_t i = 0; i < 130 * 260; i++) eval_set(&e, in[2], i, (double)(i * 5 % 13 - 6));
    for (int64_t i = 0; i < 9; i++) eval_set(&e, in[1], i, ldexp(1, (int)(i % 4)));
    for (int64_t i = 0; i < 6; i++) eval_set(&e, in[3], i, ldexp(1, -(int)i));
    eval_run(&e, 0, 1);
    for (int64_t i = 0; i < 3; i++)
        for (int64_t j = 0; j < 130; j++) {
            double want = 0;
            for (int64_t k = 0; k < 260; k++)
                want += (double)((i * 260 + k) * 7 % 17 - 8) *
                        (double)((j * 260 + k) * 5 % 13 - 6) *
                        ldexp(1, (int)((i * 3 + k / 128) % 4)) *
                        ldexp(1, -(int)(j / 128 * 3 + k / 128));
            CHECK_NEAR(eval_get(&e, y, i * 130 + j), want, 0);
        }
    eval_release(&e);
    made_release(&t);
}

TEST(fp8_refuses_scales_that_do_not_fit) {
    static const struct {
        const char *scales, *says;
    } wrong[] = {{"s3 d2", "f8e4m3[s3 d260]"},
                 {"s1 d3", "blocks of 128 along d"},
                 {"s3 d260", "blocks of 128 along d"},
                 {"d3 s3", "blocks of 128 along d"}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        made t;
        made_init(&t);
        gw_vid in[4] = {leaf(&t, GW_F8E4M3, i == 1 ? "s2 d260" : "s3 d260", GW_ROLE_INPUT),
                        leaf(&t, GW_F32, i == 1 ? "s3 d3" : wrong[i].scales, GW_ROLE_INPUT),
                        leaf(&t, GW_F8E4M3, "f130 d260", GW_ROLE_INPUT),
                        leaf(&t, GW_F32, "f2 d3", GW_ROLE_INPUT)};
        gw_build(&t.b, "fp8_matmul", in, 4, NULL, NULL);
        CHECK_FAILS(t.b.status, &t.dg, wrong[i].says);
        made_release(&t);
    }
}

TEST(fp8_quant_refuses_what_it_cannot_do) {
    made t;
    made_init(&t);
    gw_vid x = leaf(&t, GW_F32, "s3 d260", GW_ROLE_INPUT);
    gw_attr a[GW_MAX_ATTRS];
    gw_attrs_default(t.g.table, "fp8_quant", a);
    gw_attrs_set(t.g.table, "fp8_quant", a, "along", (gw_attr){.s = gw_graph_intern(&t.g, "f")});
    gw_build(&t.b, "fp8_quant", &x, 1, a, NULL);
    CHECK_FAILS(t.b.status, &t.dg, "along is f, but x is f32[s3 d260]");
    made_release(&t);
    made_init(&t);
    x = leaf(&t, GW_F8E4M3, "s3 d260", GW_ROLE_INPUT);
    gw_build(&t.b, "fp8_quant", &x, 1, NULL, NULL);
    CHECK_FAILS(t.b.status, &t.dg, "must be of a float dtype");
    made_release(&t);
}

/* ---- placements of blocks ---- */

/* Parts of 128s, the last possibly short, cut no block; in a zigzag each rank has two of them. */
TEST(fp8_blocks_are_whole_where_parts_are_multiples_of_128) {
    static const struct {
        int64_t d;
        int n;
        gw_shard_kind kind;
        bool whole;
    } all[] = {{768, 2, GW_SHARD_CHUNK, true},   {768, 3, GW_SHARD_CHUNK, true},
               {768, 4, GW_SHARD_CHUNK, false},  {1000, 2, GW_SHARD_CHUNK, false},
               {896, 7, GW_SHARD_CHUNK, true},   {1020, 8, GW_SHARD_CHUNK, true},
               {300, 2, GW_SHARD_CHUNK, false},  {128, 4, GW_SHARD_CHUNK, false},
               {512, 2, GW_SHARD_ZIGZAG, true},  {256, 2, GW_SHARD_ZIGZAG, false},
               {2048, 4, GW_SHARD_ZIGZAG, true}, {1024, 8, GW_SHARD_ZIGZAG, false}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        gw_mesh m = {0};
        gw_type v = gw_type_scalar(GW_F32);
        gw_type_add(&v, "d", all[i].d);
        gw_dim_cut(&v.dims[0], gw_mesh_add(&m, "tp", all[i].n), &m);
        v.dims[0].shard = (uint8_t)all[i].kind;
        bool whole = gw_fp8_blocks_are_whole(&v, 0, &m);
        CHECK_MSG(whole == all[i].whole, "d%lld over %d", (long long)all[i].d, all[i].n);
    }
}

/* ---- backward ---- */

/* Appends backward of the op that defines y, whose gradient is dy; din[i] as its vjp says. */
static void backward(made *t, gw_vid y, gw_vid dy, gw_vid *din) {
    gw_op o = t->g.ops.items[t->g.values.items[y].def];
    const gw_opdef *def = gw_op_def(&t->g, &o);
    gw_vid in[8], out[GW_MAX_OUT], dout[GW_MAX_OUT], replace[GW_MAX_OUT];
    gw_attr attrs[GW_MAX_ATTRS];
    bool want[8];
    for (int i = 0; i < o.nin; i++) {
        in[i] = gw_op_in(&t->g, &o, i);
        din[i] = GW_NONE;
        want[i] = in[i] != GW_NONE && gw_type_of(&t->g, in[i])->dtype != GW_I32;
    }
    for (int i = 0; i < o.nout; i++) {
        out[i] = gw_op_out(&t->g, &o, i);
        dout[i] = i ? GW_NONE : dy;
        replace[i] = GW_NONE;
    }
    for (int i = 0; i < def->nattrs; i++) attrs[i] = gw_op_attr(&t->g, &o, i);
    gw_vjp v = {
        &t->b,   &t->g, t->g.values.items[y].def, in, out, o.nin, o.nout, attrs, dout, want, din,
        replace, GW_F32};
    def->vjp(&v);
    CHECK_OK(t->b.status, &t->dg);
}

static gw_vid quantise(made *t, gw_vid x, const char *along, const char *across, bool pow2,
                       gw_vid *scales) {
    gw_attr a[4] = {{.s = gw_graph_intern(&t->g, along)},
                    {.s = gw_graph_intern(&t->g, across)},
                    {.i = GW_F8E4M3},
                    {.i = pow2}};
    return gw_build(&t->b, "fp8_quant", &x, 1, a, scales);
}

static void check_close(eval *e, gw_vid got, gw_vid want, double relative) {
    int64_t n = gw_type_elems(gw_type_of(e->g, want));
    double error = 0, norm = 0;
    CHECK(gw_type_same_dims(gw_type_of(e->g, got), gw_type_of(e->g, want)));
    for (int64_t i = 0; i < n; i++) {
        error += pow(eval_get(e, got, i) - eval_get(e, want, i), 2);
        norm += pow(eval_get(e, want, i), 2);
    }
    CHECK_MSG(error <= relative * relative * norm, "relative difference %g", sqrt(error / norm));
}

/* Gradients of a product of eight-bit floats are those of the exact product, as near as the formats
 * are. An element of relative error at most 2^-4 in each factor, of random sign and uniform: rms
 * 2^-4 / sqrt(3) / about 1.4 (uniform over a binade) = 2.6 %; dw has three such roundings, one of
 * them twice: 5 %. A factor or a term left out would be off by tens of per cent. */
static void gradients(bool pow2, const char *xd, const char *wd, const char *along,
                      const char *across) {
    made t;
    made_init(&t);
    gw_vid x = leaf(&t, GW_F32, xd, GW_ROLE_INPUT), w = leaf(&t, GW_F32, wd, GW_ROLE_PARAM);
    gw_vid exact = gw_build1(&t.b, "matmul", x, w), in[4];
    in[0] = quantise(&t, x, along, "", pow2, &in[1]);
    in[2] = quantise(&t, w, along, across, pow2, &in[3]);
    gw_vid y = gw_build(&t.b, "fp8_matmul", in, 4, (gw_attr[]){{.i = GW_F32}, {.i = pow2}}, NULL);
    CHECK_OK(t.b.status, &t.dg);
    gw_vid dy =
        gw_graph_leaf(&t.g, GW_ROLE_INPUT, GW_CAUSE_DATA, GW_RATE_MB, *gw_type_of(&t.g, y), "dy");
    gw_vid want[3], got[5], dx[1], dw[1];
    backward(&t, exact, dy, want);
    backward(&t, y, dy, got);
    CHECK(got[1] == GW_NONE && got[3] == GW_NONE); /* scales have no gradient of their own */
    backward(&t, in[0], got[0], dx);
    backward(&t, in[2], got[2], dw);
    CHECK(dx[0] == got[0] && dw[0] == got[2]); /* straight through */
    CHECK_OK(gw_graph_verify(&t.g, &t.dg), &t.dg);
    eval e;
    eval_init(&e, &t.g);
    gw_vid leaves[3] = {x, w, dy};
    for (int k = 0; k < 3; k++)
        for (int64_t i = 0; i < gw_type_elems(gw_type_of(&t.g, leaves[k])); i++)
            eval_set(&e, leaves[k], i,
                     gw_rng_normal(gw_rng_key_named((uint64_t)k, "gradients"), (uint64_t)i));
    eval_run(&e, 0, t.g.ops.count);
    check_close(&e, y, exact, 0.045);
    check_close(&e, dx[0], want[0], 0.045);
    check_close(&e, dw[0], want[1], 0.06);
    eval_release(&e);
    made_release(&t);
}

TEST(fp8_gradients_are_those_of_the_product) {
    for (int pow2 = 0; pow2 < 2; pow2++) {
        gradients(pow2, "b2 s140 d150", "f131 d150", "d", "f");
        gradients(pow2, "b1 s150 h3 k20", "d130 h3 k20", "k", "d");
        gradients(pow2, "s130 d140", "d140 f7", "d", "f");
        gradients(pow2, "d140 s130", "f7 d140", "d", "f");
    }
}

/* q, k and v of one x: the weight gradients share what is made of x along tokens. */
TEST(fp8_backward_quantises_an_activation_once) {
    made t;
    made_init(&t);
    gw_vid x = leaf(&t, GW_F32, "s140 d150", GW_ROLE_INPUT), in[4], y[2], din[5];
    in[0] = quantise(&t, x, "d", "", false, &in[1]);
    for (int k = 0; k < 2; k++) {
        gw_vid w = leaf(&t, GW_F32, "f9 d150", GW_ROLE_PARAM);
        in[2] = quantise(&t, w, "d", "f", false, &in[3]);
        y[k] = gw_build(&t.b, "fp8_matmul", in, 4, NULL, NULL);
    }
    for (int k = 0; k < 2; k++) backward(&t, y[k], leaf(&t, GW_F32, "s140 f9", GW_ROLE_INPUT), din);
    int quants = 0, dequants = 0;
    for (int64_t i = 0; i < t.g.ops.count; i++) {
        quants += gw_op_is(&t.g, &t.g.ops.items[i], "fp8_quant");
        dequants += gw_op_is(&t.g, &t.g.ops.items[i], "fp8_dequant");
    }
    CHECK_EQ(dequants, 1);
    CHECK_EQ(quants, 3 + 2 * 2 + 1); /* forward; each dy two ways; x along tokens once */
    made_release(&t);
}
