// SPDX-License-Identifier: Apache-2.0
// The language-model head fused with its loss and its gradients, by tiles of rows.
//
// Rows with a valid label are listed first; the others take no part (their dx is zero). For each
// tile of listed rows: the rows are gathered, logits = x w^T, each row's loss is lse -
// logit[label], the logits become e = seed (softmax - onehot) in place, then dx = e w and dw += e^T
// x. The full logits, rows x vocabulary, never exist. The tile is the trade: dw, the size of the
// whole embedding, is read and written once per tile, so tiles should be large; the logits of a
// tile must be held. 64 MiB of them (320 rows of GPT-2's 50257) costs dw traffic of a few per cent.
//
// The row stride of the logits is a multiple of 64 floats and no multiple of 4096 bytes, so that
// rows begin on cache lines and do not fall on the same sets.
//
// Where w is some rows of a vocabulary that ranks share, the same tiles serve in two passes (see
// ops/head_parts.c): `head_stats` ends at each row's maximum, sum and label's logit, and
// `head_part_grad` begins with the maximum and sum over all ranks. Labels are rows of the whole w;
// a label elsewhere takes nothing from a row of errors here. No rows at all (the last ranks of an
// uneven cut) is a dx of zeros.
//
// Two kernels each way. `onednn-head[-grad]` multiplies in float32; weights in bf16 or f16 are
// converted in column tiles of planned workspace, and a dw that is not float32 is rounded once per
// row tile. `...-bf16` needs a processor that multiplies bf16: x and w as they are, logits in
// float32, e rounded to bf16. Its products are primitives of one tile size, so a last, short tile
// is filled up with zero rows.
//
// Losses are summed in float64 in row order: the result does not depend on threads.
#include <math.h>
#include <string.h>

#include "base/compiler.h"   /* GW_CLONES, GW_MIN */
#include "base/panic.h"      /* gw_panic */
#include "kernel/cpu/dnnl.h" /* gw_dnnl_sgemm, gw_dnnl_product */
#include "kernel/cpu/vec.h"  /* gw_vec_exp, gw_vec_load */
#include "kernel/kernel.h"   /* gw_kernel */
#include "ops/rows.h"        /* gw_rows_of, gw_rows_local */

#define LOGITS_BYTES  (64 << 20)
#define WEIGHT_FLOATS (4 << 20) /* in a converted column tile */

/* Which op: what is left of a row of logits, and what is known of it beforehand. */
typedef enum head_mode { LOSS, LOSS_GRAD, STATS, PART_GRAD } head_mode;

typedef struct head {
    gw_tensor x, w, labels, seed, dx, dw, loss;
    gw_tensor accw, accl; /* data NULL if absent */
    gw_tensor max, sums;  /* PART_GRAD: [rows], [rows 2]; STATS: [rows], [1 rows 3] */
    head_mode mode;
    bool grad, bf16; /* dx and dw are made; products are bf16 */
    gw_runs here;    /* rows of w, of the whole one */
    int64_t vocabulary;
    int64_t rows, d, v;
    int64_t tile, ld, cols; /* rows of a tile, row stride of logits, vocabulary columns of a tile */
    int threads;
    /* in the workspace */
    int64_t *list; /* valid rows */
    double *nll;   /* their losses */
    float *logits, *xt, *dxt, *wt, *dwt;
    uint16_t *xb, *eb;
    char *scratch;
    gw_dnnl_product to_logits, to_dx, to_dw;
} head;

/* ---- rows ---- */

#define LANES 32

/* The largest of z[0..n), NaN skipped. */
GW_CLONES static float row_max(const float *z, int64_t n) {
    float m[LANES];
    for (int l = 0; l < LANES; l++) m[l] = -INFINITY;
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int l = 0; l < LANES; l++) m[l] = z[i + l] > m[l] ? z[i + l] : m[l];
    for (; i < n; i++) m[0] = z[i] > m[0] ? z[i] : m[0];
    for (int l = 1; l < LANES; l++) m[0] = m[l] > m[0] ? m[l] : m[0];
    return m[0];
}

/* z = e^(z - max) in place; returns the sum. Lanes are float32 for 1024 numbers at a time, then
 * float64. */
GW_CLONES static double row_exp(float *z, int64_t n, float max) {
    double sum = 0.0;
    for (int64_t first = 0; first < n; first += GW_VEC_BLOCK) {
        int64_t end = GW_MIN(first + GW_VEC_BLOCK, n), i = first;
        float s[LANES] = {0};
        for (; i + LANES <= end; i += LANES)
            for (int l = 0; l < LANES; l++) {
                z[i + l] = gw_vec_exp(z[i + l] - max);
                s[l] += z[i + l];
            }
        for (; i < end; i++) {
            z[i] = gw_vec_exp(z[i] - max);
            s[0] += z[i];
        }
        for (int l = 0; l < LANES; l++) sum += (double)s[l];
    }
    return sum;
}

GW_CLONES static void row_scale(float *z, int64_t n, float scale) {
    for (int64_t i = 0; i < n; i++) z[i] *= scale;
}

/* ---- shapes and workspace ---- */

static int64_t round_up(int64_t x, int64_t to) { return (x + to - 1) / to * to; }

static void choose_tiles(head *t) {
    t->ld = round_up(t->v, 64);
    if (t->ld % 1024 == 0) t->ld += 64;
    int64_t most = LOGITS_BYTES / 4 / t->ld / 32 * 32;
    most = GW_MIN(GW_MAX(most, 128), 1024);
    int64_t tiles = GW_MAX((t->rows + most - 1) / most, 1);
    t->tile = GW_MAX(round_up((t->rows + tiles - 1) / tiles, 32), 32);
    t->cols = t->v;
    bool converts = t->w.dtype != GW_F32 || (t->grad && t->dw.dtype != GW_F32);
    if (converts && !t->bf16)
        t->cols = GW_MIN(t->v, GW_MIN(GW_MAX(WEIGHT_FLOATS / GW_MAX(t->d, 1), 256), 4096));
}

/* Hands out `bytes` of the workspace, or only counts them where base is NULL. */
static void *take(char *base, int64_t *used, int64_t bytes) {
    void *p = base ? base + *used : NULL;
    *used += round_up(bytes, 64);
    return p;
}

/* Lays out everything but library scratch, which follows; returns the bytes. */
static int64_t lay_out(head *t, char *base) {
    int64_t used = 0, xt = t->tile * t->d, wt = t->cols * t->d;
    t->list = take(base, &used, t->rows * 8);
    t->nll = take(base, &used, t->rows * 8);
    t->logits = take(base, &used, t->tile * t->ld * 4);
    if (t->grad) t->dxt = take(base, &used, xt * 4);
    if (t->bf16) {
        t->xb = take(base, &used, xt * 2);
        if (t->grad) t->eb = take(base, &used, t->tile * t->ld * 2);
    } else {
        t->xt = take(base, &used, xt * 4);
        if (t->w.dtype != GW_F32) t->wt = take(base, &used, wt * 4);
        if (t->grad && t->dw.dtype != GW_F32) t->dwt = take(base, &used, wt * 4);
    }
    t->scratch = take(base, &used, 0);
    return used;
}

static gw_tensor maybe(const gw_kargs *k, int i) { return i < k->nin ? k->in[i] : (gw_tensor){0}; }

/* The tensors, where `k` has them. */
static void bind(head *t, const gw_kargs *k) {
    t->x = k->in[0];
    t->w = k->in[1];
    t->labels = k->in[2];
    switch (t->mode) {
    case LOSS:
        t->seed = k->in[3];
        t->accl = maybe(k, 4);
        t->loss = k->out[0];
        return;
    case LOSS_GRAD:
        t->seed = k->in[3];
        t->accw = maybe(k, 4);
        t->accl = maybe(k, 5);
        t->loss = k->out[2];
        break;
    case STATS:
        t->max = k->out[0];
        t->sums = k->out[1];
        return;
    case PART_GRAD:
        t->max = k->in[3];
        t->sums = k->in[4];
        t->seed = k->in[5];
        t->accw = maybe(k, 6);
        break;
    }
    t->dx = k->out[0];
    t->dw = k->out[1];
}

static head head_of(const gw_kargs *k, head_mode mode, bool bf16) {
    gw_vid w = gw_op_in(k->g, k->op, 1);
    head t = {.mode = mode,
              .grad = mode == LOSS_GRAD || mode == PART_GRAD,
              .bf16 = bf16,
              .here = gw_rows_of(k, w, 0),
              .vocabulary = gw_type_of(k->g, w)->dims[0].size,
              .threads = k->threads};
    bind(&t, k);
    t.v = t.w.dims[0];
    t.d = t.w.dims[1];
    t.rows = t.labels.elems;
    choose_tiles(&t);
    return t;
}

/* The three products of the bf16 kernel, on the tile's buffers (NULL when only asked about). */
static gw_dnnl_spec spec_of(const head *t, int which) {
    gw_dnnl_spec s = {.threads = t->threads};
    gw_dnnl_mat x = {t->xb, GW_BF16, t->tile, t->d, t->d, 1};
    gw_dnnl_mat e = {t->eb, GW_BF16, t->tile, t->v, t->ld, 1};
    if (which == 0) {
        s.a = x;
        s.b = (gw_dnnl_mat){t->w.data, GW_BF16, t->d, t->v, 1, t->d};
        s.c = (gw_dnnl_mat){t->logits, GW_F32, t->tile, t->v, t->ld, 1};
    } else if (which == 1) {
        s.a = e;
        s.b = (gw_dnnl_mat){t->w.data, GW_BF16, t->v, t->d, t->d, 1};
        s.c = (gw_dnnl_mat){t->dxt, GW_F32, t->tile, t->d, t->d, 1};
    } else {
        s.a = (gw_dnnl_mat){t->eb, GW_BF16, t->v, t->tile, 1, t->ld};
        s.b = x;
        s.c = (gw_dnnl_mat){t->dw.data, t->dw.dtype, t->v, t->d, t->d, 1};
        s.add = true;
    }
    return s;
}

static void *no_data(void *user, gw_vid v) {
    (void)user, (void)v;
    return NULL;
}

static head question_of(const gw_graph *g, const gw_op *o, const gw_machine *m, head_mode mode,
                        bool bf16, int64_t rank) {
    gw_tensor in[GW_MAX_IN], out[GW_MAX_OUT];
    gw_kargs k = {.threads = m->threads};
    gw_kargs_bind(&k, g, o, in, out, no_data, NULL, rank);
    return head_of(&k, mode, bf16);
}

static bool is_small_float(gw_dtype t) { return t == GW_F32 || t == GW_BF16 || t == GW_F16; }

/* The most scratch any of the products needs; -1 where oneDNN lacks one. They run one after
 * another. */
static int64_t scratch_of(const head *t) {
    int64_t most = 0;
    if (t->v == 0) return 0;
    for (int i = 0; i < (t->grad ? 3 : 1); i++) {
        gw_dnnl_spec s = spec_of(t, i);
        int64_t n = gw_dnnl_product_scratch(&s);
        if (n < 0) return -1;
        most = GW_MAX(most, n);
    }
    return most;
}

/* Statistics are float32, and of one part: this rank's. */
static bool supports_stats(const head *t) {
    if (t->max.dtype != GW_F32 || t->sums.dtype != GW_F32) return false;
    return t->mode != STATS || t->sums.dims[0] == 1;
}

static bool supports(const gw_graph *g, const gw_op *o, const gw_machine *m, head_mode mode,
                     bool bf16) {
    head t = question_of(g, o, m, mode, bf16, 0);
    if (t.x.dtype != t.w.dtype || !is_small_float(t.x.dtype)) return false;
    if (t.labels.dtype != GW_I32 && t.labels.dtype != GW_I64) return false;
    if (mode != STATS && t.seed.dtype != GW_F32) return false;
    if (t.grad && (t.dx.dtype != t.x.dtype || !is_small_float(t.dw.dtype))) return false;
    if (mode <= LOSS_GRAD ? t.loss.dtype != GW_F32 : !supports_stats(&t)) return false;
    if (!bf16) return true;
    if (t.x.dtype != GW_BF16 || m->isa < GW_ISA_AVX512_BF16) return false;
    if (t.grad && t.dw.dtype == GW_F16) return false;
    if (t.v == 0 || t.d == 0) return false;
    return m->count_only || scratch_of(&t) >= 0;
}

/* For a machine we are not on: oneDNN packs at most the second operand of a bf16 product. */
static int64_t scratch_formula(const head *t) {
    int64_t w = round_up(t->v, 64) * round_up(t->d, 64) * 2;
    return w + (t->grad && t->dw.dtype != GW_F32 ? t->v * t->d * 4 : 0);
}

/* Rank 0 has the longest parts and so the largest buffers; what the library asks for shorter ones
 * is its own business, and looked at for each length there is. */
static int64_t workspace(const gw_graph *g, const gw_op *o, const gw_machine *m, head_mode mode,
                         bool bf16) {
    head t = question_of(g, o, m, mode, bf16, 0);
    int64_t bytes = lay_out(&t, NULL), most = bf16 ? scratch_of(&t) : 0, v = t.v;
    if (!bf16) return bytes;
    if (m->count_only) return bytes + scratch_formula(&t);
    bool even = gw_type_even(gw_type_of(g, gw_op_in(g, o, 1)), 0, &g->mesh);
    for (int64_t r = 1; !even && r < gw_mesh_ranks(&g->mesh); r++) {
        head other = question_of(g, o, m, mode, bf16, r);
        if (other.v != v) most = GW_MAX(most, scratch_of(&other));
        v = other.v;
    }
    return bytes + GW_MAX(most, 0);
}

static void release(void *state) {
    head *t = state;
    if (!t) return;
    gw_dnnl_product_release(&t->to_logits);
    gw_dnnl_product_release(&t->to_dx);
    gw_dnnl_product_release(&t->to_dw);
}

static gw_status prepare(const gw_kargs *k, gw_arena *a, void **state, gw_diags *dg, head_mode mode,
                         bool bf16) {
    head *t = gw_arena_new(a, head, 1);
    *state = t;
    *t = head_of(k, mode, bf16);
    lay_out(t, k->work);
    gw_dnnl_product *products[] = {&t->to_logits, &t->to_dx, &t->to_dw};
    for (int i = 0; bf16 && t->v > 0 && i < (t->grad ? 3 : 1); i++) {
        gw_dnnl_spec s = spec_of(t, i);
        gw_status st = gw_dnnl_product_make(products[i], &s, t->scratch, dg);
        if (st == GW_OK) continue;
        release(t);
        return st;
    }
    return GW_OK;
}

/* ---- a launch ---- */

/* A row of the whole w, or negative. */
static int64_t label_of(const head *t, int64_t r) {
    int64_t label = t->labels.dtype == GW_I32 ? ((const int32_t *)t->labels.data)[r]
                                              : ((const int64_t *)t->labels.data)[r];
    if (label >= t->vocabulary)
        gw_panic("label %lld in row %lld is past the vocabulary of %lld", (long long)label,
                 (long long)r, (long long)t->vocabulary);
    return label;
}

static int64_t size_of(const gw_tensor *t) { return gw_dtype_bits(t->dtype) / 8; }

/* What a row without a label leaves: zeros. */
static void skip_row(const head *t, int64_t r) {
    int64_t bytes = t->d * size_of(&t->dx);
    if (t->grad) memset((char *)t->dx.data + r * bytes, 0, (size_t)bytes);
    if (t->mode != STATS) return;
    ((float *)t->max.data)[r] = 0.0f;
    for (int i = 0; i < 3; i++) ((float *)t->sums.data)[3 * r + i] = 0.0f;
}

/* Lists the rows with a label, and is done with the others. */
static int64_t list_rows(const head *t) {
    int64_t n = 0;
    for (int64_t r = 0; r < t->rows; r++) {
        if (label_of(t, r) >= 0)
            t->list[n++] = r;
        else
            skip_row(t, r);
    }
    return n;
}

/* dw begins as its accumulator (its own bytes, as a rule) or, where every tile adds, as zero. */
static void begin_dw(const head *t, bool zero) {
    size_t bytes = (size_t)(t->dw.elems * size_of(&t->dw));
    if (t->accw.data && t->accw.data != t->dw.data)
        memcpy(t->dw.data, t->accw.data, bytes);
    else if (!t->accw.data && zero)
        memset(t->dw.data, 0, bytes);
}

/* Rows list[first..first+n) of x; the bf16 tile is filled up with zeros. */
static void gather(const head *t, int64_t first, int64_t n) {
#pragma omp parallel for num_threads(t->threads) schedule(static)
    for (int64_t i = 0; i < n; i++) {
        int64_t r = t->list[first + i];
        if (t->bf16)
            memcpy(t->xb + i * t->d, (const uint16_t *)t->x.data + r * t->d, (size_t)t->d * 2);
        else
            gw_vec_load(t->xt + i * t->d, t->x.data, t->x.dtype, r * t->d, t->d);
    }
    if (!t->bf16 || n == t->tile) return;
    memset(t->xb + n * t->d, 0, (size_t)((t->tile - n) * t->d) * 2);
    if (t->grad) memset(t->eb + n * t->ld, 0, (size_t)((t->tile - n) * t->ld) * 2);
}

static void scatter(const head *t, int64_t first, int64_t n) {
#pragma omp parallel for num_threads(t->threads) schedule(static)
    for (int64_t i = 0; i < n; i++)
        gw_vec_store(t->dx.data, t->dx.dtype, t->list[first + i] * t->d, t->dxt + i * t->d, t->d);
}

/* The statistics of one row, or its loss, or its logits turned into errors. */
static void finish_row(const head *t, int64_t first, int64_t i, float seed) {
    float *z = t->logits + i * t->ld;
    int64_t row = t->list[first + i], at = gw_rows_local(&t->here, label_of(t, row));
    float own = at >= 0 ? z[at] : 0.0f;
    float max = t->mode == PART_GRAD ? ((const float *)t->max.data)[row] : row_max(z, t->v);
    double sum = row_exp(z, t->v, max);
    if (t->mode == STATS) {
        float *stat = (float *)t->sums.data + 3 * row;
        ((float *)t->max.data)[row] = stat[0] = max;
        stat[1] = (float)sum;
        stat[2] = own;
        return;
    }
    if (t->mode == PART_GRAD)
        sum = (double)((const float *)t->sums.data)[2 * row];
    else
        t->nll[first + i] = log(sum) + (double)max - (double)own;
    if (!t->grad) return;
    row_scale(z, t->v, (float)((double)seed / sum));
    if (at >= 0) z[at] -= seed;
    if (t->bf16) gw_vec_store(t->eb + i * t->ld, GW_BF16, 0, z, t->v);
}

static void finish_rows(const head *t, int64_t first, int64_t n) {
    float seed = t->grad ? *(const float *)t->seed.data : 0.0f;
#pragma omp parallel for num_threads(t->threads) schedule(static)
    for (int64_t i = 0; i < n; i++) finish_row(t, first, i, seed);
}

/* Rows c0.. of w in float32: in place, or converted. */
static const float *weights(const head *t, int64_t c0, int64_t n) {
    if (t->w.dtype == GW_F32) return (const float *)t->w.data + c0 * t->d;
#pragma omp parallel for num_threads(t->threads) schedule(static)
    for (int64_t c = 0; c < n; c++)
        gw_vec_load(t->wt + c * t->d, t->w.data, t->w.dtype, (c0 + c) * t->d, t->d);
    return t->wt;
}

/* dw rows c0.. += dwt, rounded once; without `add` they are replaced. */
static void round_dw(const head *t, int64_t c0, int64_t n, bool add) {
#pragma omp parallel for num_threads(t->threads) schedule(static)
    for (int64_t c = 0; c < n; c++) {
        float buf[GW_VEC_BLOCK];
        float *row = t->dwt + c * t->d;
        for (int64_t x = 0; x < t->d; x += GW_VEC_BLOCK) {
            int64_t len = GW_MIN(GW_VEC_BLOCK, t->d - x), at = (c0 + c) * t->d + x;
            if (add) {
                gw_vec_load(buf, t->dw.data, t->dw.dtype, at, len);
                for (int64_t j = 0; j < len; j++) row[x + j] += buf[j];
            }
            gw_vec_store(t->dw.data, t->dw.dtype, at, row + x, len);
        }
    }
}

static gw_status tile_dw(const head *t, int64_t c0, int64_t n, int64_t rows, bool add,
                         gw_diags *dg) {
    bool in_place = t->dw.dtype == GW_F32;
    float *c = in_place ? (float *)t->dw.data + c0 * t->d : t->dwt;
    GW_TRY(gw_dnnl_sgemm(true, false, n, t->d, rows, t->logits + c0, t->ld, t->xt, t->d,
                         in_place && add ? 1.0f : 0.0f, c, t->d, t->threads, dg));
    if (!in_place) round_dw(t, c0, n, add);
    return GW_OK;
}

/* `add`: dw already holds something to keep. */
static gw_status tile_f32(const head *t, int64_t first, int64_t n, bool add, gw_diags *dg) {
    for (int64_t c0 = 0; c0 < t->v; c0 += t->cols) {
        int64_t cn = GW_MIN(t->cols, t->v - c0);
        GW_TRY(gw_dnnl_sgemm(false, true, n, cn, t->d, t->xt, t->d, weights(t, c0, cn), t->d, 0.0f,
                             t->logits + c0, t->ld, t->threads, dg));
    }
    finish_rows(t, first, n);
    if (!t->grad) return GW_OK;
    for (int64_t c0 = 0; c0 < t->v; c0 += t->cols) {
        int64_t cn = GW_MIN(t->cols, t->v - c0);
        GW_TRY(gw_dnnl_sgemm(false, false, n, t->d, cn, t->logits + c0, t->ld, weights(t, c0, cn),
                             t->d, c0 ? 1.0f : 0.0f, t->dxt, t->d, t->threads, dg));
        GW_TRY(tile_dw(t, c0, cn, n, add, dg));
    }
    return GW_OK;
}

static gw_status tile_bf16(const head *t, int64_t first, int64_t n, gw_diags *dg) {
    GW_TRY(gw_dnnl_product_run(&t->to_logits, dg));
    finish_rows(t, first, n);
    if (!t->grad) return GW_OK;
    GW_TRY(gw_dnnl_product_run(&t->to_dx, dg));
    return gw_dnnl_product_run(&t->to_dw, dg);
}

/* Rows with labels where no row of w is. */
static void no_tile(const head *t, int64_t first, int64_t n) {
    finish_rows(t, first, n);
    if (t->grad) memset(t->dxt, 0, (size_t)(n * t->d) * sizeof *t->dxt);
}

/* Products of the bf16 kernel read w, and add to dw, where these lie now. */
static gw_status move_products(head *t, gw_diags *dg) {
    if (!t->bf16 || t->v == 0) return GW_OK;
    GW_TRY(gw_dnnl_product_move(&t->to_logits, t->xb, t->w.data, t->logits, NULL, dg));
    if (!t->grad) return GW_OK;
    GW_TRY(gw_dnnl_product_move(&t->to_dx, t->eb, t->w.data, t->dxt, NULL, dg));
    return gw_dnnl_product_move(&t->to_dw, t->eb, t->xb, t->dw.data, NULL, dg);
}

static gw_status launch(void *state, const gw_kargs *k, gw_diags *dg) {
    head *t = state;
    bind(t, k);
    GW_TRY(move_products(t, dg));
    int64_t n = list_rows(t);
    if (t->grad) begin_dw(t, t->bf16 || n == 0);
    for (int64_t first = 0; first < n; first += t->tile) {
        int64_t rows = GW_MIN(t->tile, n - first);
        gather(t, first, rows);
        if (t->v == 0)
            no_tile(t, first, rows);
        else if (t->bf16)
            GW_TRY(tile_bf16(t, first, rows, dg));
        else
            GW_TRY(tile_f32(t, first, rows, first > 0 || t->accw.data, dg));
        if (t->grad) scatter(t, first, rows);
    }
    if (t->mode > LOSS_GRAD) return GW_OK;
    double loss = t->accl.data ? (double)*(const float *)t->accl.data : 0.0;
    for (int64_t i = 0; i < n; i++) loss += t->nll[i];
    *(float *)t->loss.data = (float)loss;
    return GW_OK;
}

#define HOOKS(name, mode, bf16)                                                                    \
    static bool name##_supports(const gw_graph *g, const gw_op *o, const gw_machine *m) {          \
        return supports(g, o, m, mode, bf16);                                                      \
    }                                                                                              \
    static int64_t name##_workspace(const gw_graph *g, const gw_op *o, const gw_machine *m) {      \
        return workspace(g, o, m, mode, bf16);                                                     \
    }                                                                                              \
    static gw_status name##_prepare(const gw_kargs *k, gw_arena *a, void **state, gw_diags *dg) {  \
        return prepare(k, a, state, dg, mode, bf16);                                               \
    }
HOOKS(plain, LOSS, false)
HOOKS(plain_grad, LOSS_GRAD, false)
HOOKS(plain_stats, STATS, false)
HOOKS(plain_part_grad, PART_GRAD, false)
HOOKS(direct, LOSS, true)
HOOKS(direct_grad, LOSS_GRAD, true)
HOOKS(direct_stats, STATS, true)
HOOKS(direct_part_grad, PART_GRAD, true)

#define KERNEL(ident, name_, op_, hooks, note_)                                                    \
    const gw_kernel gw_kernel_##ident = {                                                          \
        .name = name_,                                                                             \
        .op = op_,                                                                                 \
        .note = note_,                                                                             \
        .supports = hooks##_supports,                                                              \
        .workspace = hooks##_workspace,                                                            \
        .prepare = hooks##_prepare,                                                                \
        .launch = launch,                                                                          \
        .release = release,                                                                        \
    }

KERNEL(onednn_head, "onednn-head", "head", plain,
       "logits by row tiles in float32, other weights converted by column tiles");
KERNEL(onednn_head_bf16, "onednn-head-bf16", "head", direct,
       "logits by row tiles, bf16 products with float32 sums");
KERNEL(onednn_head_grad, "onednn-head-grad", "head_grad", plain_grad,
       "loss, dx and dw by row tiles in float32, other weights converted by column tiles");
KERNEL(onednn_head_grad_bf16, "onednn-head-grad-bf16", "head_grad", direct_grad,
       "loss, dx and dw by row tiles, bf16 products with float32 sums");
KERNEL(onednn_head_stats, "onednn-head-stats", "head_stats", plain_stats,
       "logits by row tiles in float32, other weights converted by column tiles");
KERNEL(onednn_head_stats_bf16, "onednn-head-stats-bf16", "head_stats", direct_stats,
       "logits by row tiles, bf16 products with float32 sums");
KERNEL(onednn_head_part_grad, "onednn-head-part-grad", "head_part_grad", plain_part_grad,
       "dx and dw by row tiles in float32, other weights converted by column tiles");
KERNEL(onednn_head_part_grad_bf16, "onednn-head-part-grad-bf16", "head_part_grad", direct_part_grad,
       "dx and dw by row tiles, bf16 products with float32 sums");
