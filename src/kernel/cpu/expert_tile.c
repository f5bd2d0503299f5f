// SPDX-License-Identifier: Apache-2.0
// One expert's products on a tile of rows (ops/experts.c holds the formulas).
//
// A tile is at most ROWS rows of one expert, gathered and widened to float32 by the caller. f is
// gone through in blocks of BLOCK columns, so that the hidden activations, forward and backward,
// are ROWS x BLOCK numbers whatever f is, and memory is bounded by the tile:
//
//   forward    g = x gate_b^T, u = x up_b^T, h = silu(g) u, y += h down_b^T
//   backward   g, u again; p = dy down_b; then dg, du, w h in their place;
//              dx += dg gate_b + du up_b; dgate_b += dg^T x, dup_b += du^T x, ddown_b += dy^T (w h)
//
// Products are oneDNN's sgemm, which takes any number of rows without making anything first.
// Weights below float32 are widened a block at a time: block * d conversions for rows * block * d
// multiply-adds, a few percent at full tiles. Gradients below float32 are added a block at a time
// and round once a tile, as those of the head do. All orders of summation follow from m, d, f
// alone.
#include "kernel/cpu/expert_tile.h"

#include <string.h>

#include "base/compiler.h"       /* GW_MIN */
#include "kernel/cpu/dnnl.h"     /* gw_dnnl_sgemm */
#include "kernel/cpu/vec_more.h" /* gw_vec_get, gw_vec_sigmoid */

enum { ROWS = 512, BLOCK = 1024 };

gw_expert_shape gw_expert_shape_of(int64_t d, int64_t f, int64_t rows, gw_dtype weights,
                                   gw_dtype gradient, bool backward, int threads) {
    return (gw_expert_shape){.d = d,
                             .f = f,
                             .rows = GW_MAX((int64_t)1, GW_MIN((int64_t)ROWS, rows)),
                             .block = GW_MAX((int64_t)1, GW_MIN((int64_t)BLOCK, f)),
                             .weights = weights,
                             .gradient = gradient,
                             .backward = backward,
                             .threads = threads};
}

/* ---- memory ---- */

static float *take(char **at, int64_t floats) {
    float *p = (float *)(void *)*at;
    *at += (floats * 4 + 63) / 64 * 64;
    return p;
}

/* Lays the tile out from `at`; returns its end. */
static char *lay(gw_expert_tile *t, const gw_expert_shape *s, char *at) {
    int64_t rows = s->rows * s->d, hidden = s->rows * s->block, block = s->block * s->d;
    t->x = take(&at, rows);
    t->y = take(&at, rows);
    t->g = take(&at, hidden);
    t->u = take(&at, hidden);
    for (int i = 0; i < 3; i++) t->wide[i] = s->weights == GW_F32 ? NULL : take(&at, block);
    if (!s->backward) return at;
    t->dy = take(&at, rows);
    t->gate = take(&at, s->rows);
    t->dgate = take(&at, s->rows);
    t->h = take(&at, hidden);
    t->p = take(&at, hidden);
    t->sum = s->gradient == GW_F32 ? NULL : take(&at, block);
    return at;
}

int64_t gw_expert_tile_bytes(const gw_expert_shape *s) {
    gw_expert_tile t = {0};
    _Alignas(64) char base[64];
    return lay(&t, s, base) - base;
}

void gw_expert_tile_bind(gw_expert_tile *t, const gw_expert_shape *s, void *work) {
    *t = (gw_expert_tile){0};
    (void)lay(t, s, work);
}

gw_expert gw_expert_at(const gw_expert_shape *s, const gw_expert *k, int64_t e) {
    int64_t n = e * s->d * s->f;
    gw_expert r = {gw_vec_at(k->gate, s->weights, n),
                   gw_vec_at(k->up, s->weights, n),
                   gw_vec_at(k->down, s->weights, n),
                   NULL,
                   NULL,
                   NULL};
    if (!k->dgate) return r;
    r.dgate = gw_vec_out(k->dgate, s->gradient, n);
    r.dup = gw_vec_out(k->dup, s->gradient, n);
    r.ddown = gw_vec_out(k->ddown, s->gradient, n);
    return r;
}

/* ---- products ---- */

static void plain_product(bool ta, bool tb, int64_t m, int64_t n, int64_t k, const float *a,
                          int64_t lda, const float *b, int64_t ldb, float beta, float *c,
                          int64_t ldc) {
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++) {
            double sum = beta != 0.0f ? (double)c[i * ldc + j] : 0;
            for (int64_t l = 0; l < k; l++)
                sum += (double)a[ta ? l * lda + i : i * lda + l] *
                       (double)b[tb ? j * ldb + l : l * ldb + j];
            c[i * ldc + j] = (float)sum;
        }
}

static gw_status product(const gw_expert_shape *s, bool ta, bool tb, int64_t m, int64_t n,
                         int64_t k, const float *a, int64_t lda, const float *b, int64_t ldb,
                         float beta, float *c, int64_t ldc, gw_diags *dg) {
    if (!s->plain)
        return gw_dnnl_sgemm(ta, tb, m, n, k, a, lda, b, ldb, beta, c, ldc, s->threads, dg);
    plain_product(ta, tb, m, n, k, a, lda, b, ldb, beta, c, ldc);
    return GW_OK;
}

/* ---- blocks of weights ---- */

/* Columns [at, at + n) of f, of all three matrices, as float32. */
typedef struct block {
    int64_t at, n;
    const float *gate, *up, *down;
    int64_t ld_down; /* of down[d n]; gate and up are [n d], dense */
} block;

static void widen(const gw_expert_shape *s, const gw_expert_tile *t, const gw_expert *e, block *b) {
    int64_t d = s->d, n = b->n;
#pragma omp parallel for num_threads(s->threads) schedule(static)
    for (int64_t j = 0; j < n; j++) {
        gw_vec_load(t->wide[0] + j * d, e->gate, s->weights, (b->at + j) * d, d);
        gw_vec_load(t->wide[1] + j * d, e->up, s->weights, (b->at + j) * d, d);
    }
#pragma omp parallel for num_threads(s->threads) schedule(static)
    for (int64_t i = 0; i < d; i++)
        gw_vec_load(t->wide[2] + i * n, e->down, s->weights, i * s->f + b->at, n);
    b->gate = t->wide[0];
    b->up = t->wide[1];
    b->down = t->wide[2];
    b->ld_down = n;
}

static block block_of(const gw_expert_shape *s, const gw_expert_tile *t, const gw_expert *e,
                      int64_t at) {
    block b = {.at = at, .n = GW_MIN(s->block, s->f - at)};
    if (s->weights != GW_F32) {
        widen(s, t, e, &b);
        return b;
    }
    b.gate = (const float *)e->gate + at * s->d;
    b.up = (const float *)e->up + at * s->d;
    b.down = (const float *)e->down + at;
    b.ld_down = s->f;
    return b;
}

/* ---- activations ---- */

GW_CLONES static void swiglu_rows(float *g, const float *u, int64_t n) {
    for (int64_t i = 0; i < n; i++) g[i] = g[i] * gw_vec_sigmoid(g[i]) * u[i];
}

/* Of one row: dg over g, du over u, w h over h; returns p . h. */
GW_CLONES static float swiglu_back(float *GW_RESTRICT g, float *GW_RESTRICT u, float *GW_RESTRICT h,
                                   const float *GW_RESTRICT p, float w, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        float z = g[i], up = u[i], sg = gw_vec_sigmoid(z), wp = w * p[i];
        h[i] = z * sg * up;
        g[i] = wp * up * (sg * (1.0f + z * (1.0f - sg)));
        u[i] = wp * (z * sg);
    }
    float sum = 0.0f;
    for (int64_t i = 0; i < n; i++) {
        sum += p[i] * h[i];
        h[i] *= w;
    }
    return sum;
}

/* ---- forward ---- */

gw_status gw_expert_forward(const gw_expert_shape *s, const gw_expert_tile *t, const gw_expert *e,
                            int64_t m, gw_diags *dg) {
    int64_t d = s->d, ld = s->block;
    if (m == 0) return GW_OK;
    if (s->f == 0) memset(t->y, 0, (size_t)(m * d) * sizeof *t->y);
    for (int64_t at = 0; at < s->f; at += s->block) {
        block b = block_of(s, t, e, at);
        GW_TRY(product(s, false, true, m, b.n, d, t->x, d, b.gate, d, 0.0f, t->g, ld, dg));
        GW_TRY(product(s, false, true, m, b.n, d, t->x, d, b.up, d, 0.0f, t->u, ld, dg));
#pragma omp parallel for num_threads(s->threads) schedule(static)
        for (int64_t r = 0; r < m; r++) swiglu_rows(t->g + r * ld, t->u + r * ld, b.n);
        GW_TRY(product(s, false, true, m, d, b.n, t->g, ld, b.down, b.ld_down, at > 0 ? 1.0f : 0.0f,
                       t->y, d, dg));
    }
    return GW_OK;
}

/* ---- backward ---- */

/* Adds a^T b, [rows cols], to a matrix of gradients whose rows are `ld` apart, at element `at`. */
static gw_status add_gradient(const gw_expert_shape *s, const gw_expert_tile *t, int64_t rows,
                              int64_t cols, int64_t m, const float *a, int64_t lda, const float *b,
                              int64_t ldb, void *to, int64_t at, int64_t ld, gw_diags *dg) {
    if (s->gradient == GW_F32)
        return product(s, true, false, rows, cols, m, a, lda, b, ldb, 1.0f, (float *)to + at, ld,
                       dg);
    GW_TRY(product(s, true, false, rows, cols, m, a, lda, b, ldb, 0.0f, t->sum, cols, dg));
#pragma omp parallel for num_threads(s->threads) schedule(static)
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < cols; j++) {
            int64_t k = at + i * ld + j;
            gw_vec_put(to, s->gradient, k, gw_vec_get(to, s->gradient, k) + t->sum[i * cols + j]);
        }
    return GW_OK;
}

static gw_status back_block(const gw_expert_shape *s, const gw_expert_tile *t, const gw_expert *e,
                            const block *b, int64_t m, gw_diags *dg) {
    int64_t d = s->d, ld = s->block, n = b->n;
    float beta = b->at > 0 ? 1.0f : 0.0f;
    GW_TRY(product(s, false, true, m, n, d, t->x, d, b->gate, d, 0.0f, t->g, ld, dg));
    GW_TRY(product(s, false, true, m, n, d, t->x, d, b->up, d, 0.0f, t->u, ld, dg));
    GW_TRY(product(s, false, false, m, n, d, t->dy, d, b->down, b->ld_down, 0.0f, t->p, ld, dg));
#pragma omp parallel for num_threads(s->threads) schedule(static)
    for (int64_t r = 0; r < m; r++) {
        float dot =
            swiglu_back(t->g + r * ld, t->u + r * ld, t->h + r * ld, t->p + r * ld, t->gate[r], n);
        t->dgate[r] = b->at > 0 ? t->dgate[r] + dot : dot;
    }
    GW_TRY(product(s, false, false, m, d, n, t->g, ld, b->gate, d, beta, t->y, d, dg));
    GW_TRY(product(s, false, false, m, d, n, t->u, ld, b->up, d, 1.0f, t->y, d, dg));
    GW_TRY(add_gradient(s, t, n, d, m, t->g, ld, t->x, d, e->dgate, b->at * d, d, dg));
    GW_TRY(add_gradient(s, t, n, d, m, t->u, ld, t->x, d, e->dup, b->at * d, d, dg));
    return add_gradient(s, t, d, n, m, t->dy, d, t->h, ld, e->ddown, b->at, s->f, dg);
}

gw_status gw_expert_backward(const gw_expert_shape *s, const gw_expert_tile *t, const gw_expert *e,
                             int64_t m, gw_diags *dg) {
    if (m == 0) return GW_OK;
    if (s->f == 0) {
        memset(t->y, 0, (size_t)(m * s->d) * sizeof *t->y);
        memset(t->dgate, 0, (size_t)m * sizeof *t->dgate);
    }
    for (int64_t at = 0; at < s->f; at += s->block) {
        block b = block_of(s, t, e, at);
        GW_TRY(back_block(s, t, e, &b, m, dg));
    }
    return GW_OK;
}

/* ---- rows ---- */

enum { COLUMNS = 256, TOP = 64 }; /* of a row that are summed at a time; choices of a token */

#define MAKE(suffix, T)                                                                            \
    GW_CLONES static void add_##suffix(float *GW_RESTRICT sum, float w, const void *from,          \
                                       int64_t first, int64_t d) {                                 \
        for (int64_t i = 0; i < d; i++) sum[i] += w * gw_vec_get(from, T, first + i);              \
    }
GW_VEC_EACH(MAKE)
#undef MAKE
typedef void add_fn(float *GW_RESTRICT sum, float w, const void *from, int64_t first, int64_t d);
GW_VEC_TABLE(add_fn, add)

void gw_expert_gather(const gw_expert_rows *from, float *to, const int32_t *order, int64_t top,
                      int64_t m) {
    int64_t d = from->d;
#pragma omp parallel for num_threads(from->threads) schedule(static)
    for (int64_t i = 0; i < m; i++)
        gw_vec_load(to + i * d, from->data, from->dtype, order[i] / top * d, d);
}

void gw_expert_scatter(const gw_expert_rows *to, const float *from, const int32_t *order,
                       int64_t m) {
    int64_t d = to->d;
#pragma omp parallel for num_threads(to->threads) schedule(static)
    for (int64_t i = 0; i < m; i++)
        gw_vec_store(to->data, to->dtype, order[i] * d, from + i * d, d);
}

void gw_expert_pack(const gw_expert_rows *to, const void *from, const int32_t *order, int64_t top,
                    int64_t m) {
    int64_t d = to->d;
    size_t bytes = (size_t)(d * gw_vec_size(to->dtype));
#pragma omp parallel for num_threads(to->threads) schedule(static)
    for (int64_t i = 0; i < m; i++)
        memcpy(gw_vec_out(to->data, to->dtype, i * d),
               gw_vec_at(from, to->dtype, order[i] / top * d), bytes);
}

/* A token's choices that have slots, by slot. */
static int64_t slots_of(const int32_t *slot_of, int64_t first, int64_t top, int64_t *choices) {
    int64_t n = 0;
    for (int64_t c = first; c < first + top; c++) {
        if (slot_of[c] < 0) continue;
        int64_t at = n++;
        for (; at > 0 && slot_of[choices[at - 1]] > slot_of[c]; at--) choices[at] = choices[at - 1];
        choices[at] = c;
    }
    return n;
}

static void sum_token(const gw_expert_rows *from, void *to, int64_t token, int64_t top,
                      const int32_t *slot_of, const float *gates) {
    float sum[COLUMNS];
    int64_t choices[TOP], d = from->d, n = slots_of(slot_of, token * top, top, choices);
    for (int64_t c = 0; c < d; c += COLUMNS) {
        int64_t m = GW_MIN((int64_t)COLUMNS, d - c);
        memset(sum, 0, (size_t)m * sizeof *sum);
        for (int64_t i = 0; i < n; i++)
            add_of[from->dtype](sum, gates ? gates[choices[i]] : 1.0f, from->data,
                                slot_of[choices[i]] * d + c, m);
        gw_vec_store(to, from->dtype, token * d + c, sum, m);
    }
}

void gw_expert_sum(const gw_expert_rows *from, void *to, int64_t tokens, int64_t top,
                   const int32_t *slot_of, const float *gates) {
#pragma omp parallel for num_threads(from->threads) schedule(static)
    for (int64_t i = 0; i < tokens; i++) sum_token(from, to, i, top, slot_of, gates);
}

/* By ranges of columns, so that a token that stands twice in order is one thread's too. */
static void add_columns(float *sums, const float *rows, gw_dtype dtype, int64_t d,
                        const int32_t *order, int64_t top, int64_t m, const float *gates,
                        int64_t c) {
    uint16_t narrow[COLUMNS];
    int64_t n = GW_MIN((int64_t)COLUMNS, d - c);
    for (int64_t i = 0; i < m; i++) {
        float *to = sums + order[i] / top * d + c, w = gates ? gates[order[i]] : 1.0f;
        if (dtype == GW_F32) {
            add_f32(to, w, rows, i * d + c, n);
            continue;
        }
        gw_vec_store(narrow, dtype, 0, rows + i * d + c, n);
        add_of[dtype](to, w, narrow, 0, n);
    }
}

void gw_expert_add(float *sums, const float *rows, gw_dtype dtype, int64_t d, const int32_t *order,
                   int64_t top, int64_t m, const float *gates, int threads) {
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t c = 0; c < d; c += COLUMNS)
        add_columns(sums, rows, dtype, d, order, top, m, gates, c);
}
