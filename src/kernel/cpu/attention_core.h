// SPDX-License-Identifier: Apache-2.0
// The arithmetic of attention for one vector width. attention_core.c includes this page once for
// each instruction set, with VF_BYTES (bytes of a vector register), ROWS (rows of a register block)
// and NAME(x) defined; there is no include guard for that reason.
//
// Queries in lanes. A panel is PANEL = two vectors of queries. Scores are kept transposed,
// s[key][query]: the key is read one number at a time and broadcast, the queries come as vectors.
// So K and V need no transpose, the softmax runs down a column with no sums across lanes, and all
// products are one register block:
//
//     c[r][panel] (+)= sum over t of a[r, t] * b[t][panel]      ROWS x 2 accumulators
//
// with a(r, t) at a[r*ars + t*acs]. The forms used are
//     s    = K  q^T     a = K[key][.]    b = q^T[.][query]      sum over the head size
//     o^T += V^T p      a = V[.][dim]    b = p[key][query]      sum over keys, old o^T times alpha
//     dv  += p  do      a = p[key][.]    b = do[query][dims]    sum over queries; lanes are head
//     dims here
//
// Powers are base 2: log2(e) is folded into the scale of q.

#define VLEN  ((int64_t)(VF_BYTES / sizeof(float)))
#define PANEL (2 * VLEN)

typedef float NAME(vf) __attribute__((vector_size(VF_BYTES), may_alias));
typedef int32_t NAME(vi) __attribute__((vector_size(VF_BYTES), may_alias));
#define vf           NAME(vf)
#define vi           NAME(vi)
#define attn_view    NAME(attn_view)
#define attn_panel   NAME(attn_panel)
#define attn_queries NAME(attn_queries)

static INLINE vf NAME(load)(const float *p) { return *(const vf *)p; }
static INLINE void NAME(store)(float *p, vf x) { *(vf *)p = x; }
static INLINE vf NAME(splat)(float x) {
    const vf zero = {0};
    return x - zero;
}

/* The larger; b where either is NaN. */
static INLINE vf NAME(max)(vf a, vf b) {
#if defined(__x86_64__) && VF_BYTES == 64
    return (vf)_mm512_max_ps((__m512)a, (__m512)b);
#elif defined(__x86_64__) && VF_BYTES == 32
    return (vf)_mm256_max_ps((__m256)a, (__m256)b);
#elif defined(__x86_64__)
    return (vf)_mm_max_ps((__m128)a, (__m128)b);
#else
    vi m = a > b;
    return (vf)((m & (vi)a) | (~m & (vi)b));
#endif
}

/* 2^x for x <= 1, relative error below 2e-7; zero below -125; NaN stays NaN. */
static INLINE vf NAME(exp2)(vf x) {
    vf c = NAME(max)(NAME(splat)(-125.0f), x);
    vf t = c + 12582912.0f; /* 1.5 * 2^23: rounds to a whole number, left in the low bits */
    vf f = c - (t - 12582912.0f);
    vf p = f * 1.535336188319500e-4f + 1.339887440266574e-3f;
    p = p * f + 9.618437357674640e-3f;
    p = p * f + 5.550332471162809e-2f;
    p = p * f + 2.402264791363012e-1f;
    p = p * f + 6.931472028550421e-1f;
    p = p * f + 1.0f;
    vi small = x < -125.0f;
    return (vf)(((vi)p + ((vi)t << 23)) & ~small);
}

/* One register block. `alpha` scales what c held; it is read only where `add` is set. */
static INLINE void NAME(block)(const int rows, const float *a, int64_t ars, int64_t acs,
                               const float *b, int64_t ldb, int64_t n, float *c, int64_t ldc,
                               const bool add, vf alpha0, vf alpha1) {
    vf x0[ROWS], x1[ROWS];
    const vf zero = {0};
#pragma GCC unroll 16
    for (int r = 0; r < rows; r++) {
        x0[r] = x1[r] = zero;
        if (!add) continue;
        x0[r] = NAME(load)(c + r * ldc) * alpha0;
        x1[r] = NAME(load)(c + r * ldc + VLEN) * alpha1;
    }
    for (int64_t t = 0; t < n; t++) {
        vf b0 = NAME(load)(b + t * ldb), b1 = NAME(load)(b + t * ldb + VLEN);
#pragma GCC unroll 16
        for (int r = 0; r < rows; r++) {
            float s = a[r * ars + t * acs];
            x0[r] += s * b0;
            x1[r] += s * b1;
        }
    }
#pragma GCC unroll 16
    for (int r = 0; r < rows; r++) {
        NAME(store)(c + r * ldc, x0[r]);
        NAME(store)(c + r * ldc + VLEN, x1[r]);
    }
}

/* All rows of one panel, in register blocks. Specialised by the caller on which stride is 1. */
static INLINE void NAME(rows)(int64_t m, const float *a, int64_t ars, int64_t acs, const float *b,
                              int64_t ldb, int64_t n, float *c, int64_t ldc, const bool add,
                              vf alpha0, vf alpha1) {
    int64_t r = 0;
    for (; r + ROWS <= m; r += ROWS)
        NAME(block)(ROWS, a + r * ars, ars, acs, b, ldb, n, c + r * ldc, ldc, add, alpha0, alpha1);
    a += r * ars;
    c += r * ldc;
    switch (m - r) {
    case 1: NAME(block)(1, a, ars, acs, b, ldb, n, c, ldc, add, alpha0, alpha1); break;
    case 2: NAME(block)(2, a, ars, acs, b, ldb, n, c, ldc, add, alpha0, alpha1); break;
    case 3: NAME(block)(3, a, ars, acs, b, ldb, n, c, ldc, add, alpha0, alpha1); break;
    case 4: NAME(block)(4, a, ars, acs, b, ldb, n, c, ldc, add, alpha0, alpha1); break;
    case 5: NAME(block)(5, a, ars, acs, b, ldb, n, c, ldc, add, alpha0, alpha1); break;
#if ROWS > 6
    case 6: NAME(block)(6, a, ars, acs, b, ldb, n, c, ldc, add, alpha0, alpha1); break;
    case 7: NAME(block)(7, a, ars, acs, b, ldb, n, c, ldc, add, alpha0, alpha1); break;
#endif
    default: break;
    }
}

/* c[m][PANEL] = a[m][n] b[n][PANEL] */
static void NAME(product)(int64_t m, const float *a, int64_t lda, const float *b, int64_t ldb,
                          int64_t n, float *c, int64_t ldc) {
    vf one = NAME(splat)(1.0f);
    NAME(rows)(m, a, lda, 1, b, ldb, n, c, ldc, false, one, one);
}
/* c[m][PANEL] += a[m][n] b[n][PANEL] */
static void NAME(product_add)(int64_t m, const float *a, int64_t lda, const float *b, int64_t ldb,
                              int64_t n, float *c, int64_t ldc) {
    vf one = NAME(splat)(1.0f);
    NAME(rows)(m, a, lda, 1, b, ldb, n, c, ldc, true, one, one);
}
/* c[m][PANEL] = c * alpha[PANEL] + a^T b, a[n][m], b[n][PANEL] */
static void NAME(product_t)(int64_t m, const float *a, int64_t lda, const float *b, int64_t ldb,
                            int64_t n, float *c, int64_t ldc, const float *alpha) {
    NAME(rows)(m, a, 1, lda, b, ldb, n, c, ldc, true, NAME(load)(alpha), NAME(load)(alpha + VLEN));
}

/* Which keys the queries of a panel see: the widest and the narrowest bounds, and each lane's. */
typedef struct attn_view {
    int32_t lo[PANEL], hi[PANEL], doc[PANEL];
    int64_t first, last;         /* some lane sees keys in [first, last) only */
    int64_t all_first, all_last; /* every lane sees all of [all_first, all_last) */
} __attribute__((aligned(VF_BYTES))) attn_view;

/* Lanes past the end of the queries repeat the last one; their results are dropped. */
static void NAME(view_of)(const gw_attn *a, int64_t b, int64_t q0, attn_view *w) {
    w->first = a->sk, w->last = 0, w->all_first = 0, w->all_last = a->sk;
    for (int64_t l = 0; l < PANEL; l++) {
        int64_t i = b * a->sq + GW_MIN(q0 + l, a->sq - 1);
        w->lo[l] = a->lo[i];
        w->hi[l] = a->hi[i];
        w->doc[l] = a->docs ? a->docs[i] : 0;
        w->first = GW_MIN(w->first, w->lo[l]);
        w->last = GW_MAX(w->last, w->hi[l]);
        w->all_first = GW_MAX(w->all_first, w->lo[l]);
        w->all_last = GW_MIN(w->all_last, w->hi[l]);
    }
    if (!a->exact[b]) w->all_first = w->all_last = 0;
}

static INLINE bool NAME(sees_some)(const attn_view *w, int64_t j0, int64_t n) {
    return j0 < w->last && j0 + n > w->first;
}
static INLINE bool NAME(sees_all)(const attn_view *w, int64_t j0, int64_t n) {
    return j0 >= w->all_first && j0 + n <= w->all_last;
}

/* Sets scores s[n][ld] of keys j0.. that a lane must not see to minus infinity. */
static void NAME(mask)(const gw_attn *a, int64_t b, const attn_view *w, int64_t j0, int64_t n,
                       float *s, int64_t ld) {
    const int32_t *docs = a->exact[b] ? NULL : a->kdocs + b * a->sk;
    vi hidden = (vi)NAME(splat)(-INFINITY);
    for (int64_t v = 0; v < PANEL; v += VLEN) {
        vi lo = *(const vi *)(w->lo + v), hi = *(const vi *)(w->hi + v);
        vi doc = *(const vi *)(w->doc + v);
        for (int64_t j = 0; j < n; j++) {
            int32_t key = (int32_t)(j0 + j);
            vi m = (key >= lo) & (key < hi);
            if (docs) m &= doc == docs[key];
            float *p = s + j * ld + v;
            NAME(store)(p, (vf)(((vi)NAME(load)(p) & m) | (hidden & ~m)));
        }
    }
}

/* n rows of k numbers, `stride` apart in memory, as float rows of kp (zeros behind k). */
static void NAME(pack)(const void *src, gw_dtype t, int64_t first, int64_t stride, int64_t n,
                       int64_t k, int64_t kp, float *dst) {
    for (int64_t i = 0; i < n; i++) {
        gw_vec_load(dst + i * kp, src, t, first + i * stride, k);
        for (int64_t x = k; x < kp; x++) dst[i * kp + x] = 0.0f;
    }
}

/* Four rows of four, transposed. */
static INLINE void NAME(transpose4)(const float *src, int64_t lds, float *dst, int64_t ldd) {
    v4 a = *(const v4 *)src, b = *(const v4 *)(src + lds);
    v4 c = *(const v4 *)(src + 2 * lds), d = *(const v4 *)(src + 3 * lds);
    v4 ab0 = __builtin_shufflevector(a, b, 0, 4, 1, 5),
       ab1 = __builtin_shufflevector(a, b, 2, 6, 3, 7);
    v4 cd0 = __builtin_shufflevector(c, d, 0, 4, 1, 5),
       cd1 = __builtin_shufflevector(c, d, 2, 6, 3, 7);
    *(v4 *)dst = __builtin_shufflevector(ab0, cd0, 0, 1, 4, 5);
    *(v4 *)(dst + ldd) = __builtin_shufflevector(ab0, cd0, 2, 3, 6, 7);
    *(v4 *)(dst + 2 * ldd) = __builtin_shufflevector(ab1, cd1, 0, 1, 4, 5);
    *(v4 *)(dst + 3 * ldd) = __builtin_shufflevector(ab1, cd1, 2, 3, 6, 7);
}

/* dst[cols][ldd] = src[rows][lds] transposed. */
static void NAME(transpose)(const float *src, int64_t lds, int64_t rows, int64_t cols, float *dst,
                            int64_t ldd) {
    int64_t r = 0;
    for (; r + 4 <= rows; r += 4) {
        int64_t x = 0;
        for (; x + 4 <= cols; x += 4)
            NAME(transpose4)(src + r * lds + x, lds, dst + x * ldd + r, ldd);
        for (; x < cols; x++)
            for (int64_t i = r; i < r + 4; i++) dst[x * ldd + i] = src[i * lds + x];
    }
    for (; r < rows; r++)
        for (int64_t x = 0; x < cols; x++) dst[x * ldd + r] = src[r * lds + x];
}

/* Row i of dst (elements first + i*stride..) = column i of src[k][ld]; `rows` holds n x k floats.
 */
static void NAME(unpack)(void *dst, gw_dtype t, int64_t first, int64_t stride, int64_t n, int64_t k,
                         const float *src, int64_t ld, float *rows) {
    if (t == GW_F32) {
        NAME(transpose)(src, ld, k, n, (float *)dst + first, stride);
        return;
    }
    NAME(transpose)(src, ld, k, n, rows, k);
    for (int64_t i = 0; i < n; i++) gw_vec_store(dst, t, first + i * stride, rows + i * k, k);
}

/* c[m][lanes] times scale[lanes]; lanes is a multiple of VLEN. */
static void NAME(scale_lanes)(float *c, int64_t m, int64_t ldc, int64_t lanes, const float *scale) {
    for (int64_t v = 0; v < lanes; v += VLEN) {
        vf s = NAME(load)(scale + v);
        for (int64_t r = 0; r < m; r++)
            NAME(store)(c + r * ldc + v, NAME(load)(c + r * ldc + v) * s);
    }
}

/* n rows of k numbers as floats with row stride *ld: in `buf`, or where they lie if they are
 * float32 and not read often enough (`reused`) for a copy to pay: heads lie h*k apart, so their
 * rows crowd a few cache sets. */
static const float *NAME(rows_of)(const void *src, gw_dtype t, int64_t first, int64_t stride,
                                  int64_t n, int64_t k, bool reused, float *buf, int64_t *ld) {
    if (t == GW_F32 && !reused) return *ld = stride, (const float *)src + first;
    NAME(pack)(src, t, first, stride, n, k, k, buf);
    return *ld = k, buf;
}

/* ---- forward ---- */

/* What a panel carries from block to block. */
typedef struct attn_panel {
    attn_view view;
    float max[PANEL], sum[PANEL], alpha[PANEL];
    float *qt, *ot; /* [k][PANEL], [u][PANEL] */
} __attribute__((aligned(VF_BYTES))) attn_panel;

/* Scores to powers; updates the running maximum and sum, and leaves alpha = 2^(old max - new max).
 */
static void NAME(softmax)(attn_panel *p, int64_t n, float *s) {
    for (int64_t v = 0; v < PANEL; v += VLEN) {
        vf old = NAME(load)(p->max + v), m = old;
        for (int64_t j = 0; j < n; j++) m = NAME(max)(NAME(load)(s + j * PANEL + v), m);
        vf alpha = NAME(exp2)(old - m), sum = NAME(load)(p->sum + v) * alpha;
        for (int64_t j = 0; j < n; j++) {
            vf e = NAME(exp2)(NAME(load)(s + j * PANEL + v) - m);
            NAME(store)(s + j * PANEL + v, e);
            sum += e;
        }
        NAME(store)(p->max + v, m);
        NAME(store)(p->sum + v, sum);
        NAME(store)(p->alpha + v, alpha);
    }
}

/* Where a panel starts: nothing seen, or the running output and log-sum-exp as one key with value o
 * and power 1. */
static void NAME(panel_state)(const gw_attn *a, int64_t b, int64_t h, int64_t q0, attn_panel *p) {
    int64_t n = GW_MIN(PANEL, a->sq - q0), at = (b * a->sq + q0) * a->h + h;
    for (int64_t l = 0; l < PANEL; l++) p->max[l] = -1e30f, p->sum[l] = 0.0f;
    if (!a->merge || n < PANEL) memset(p->ot, 0, (size_t)(a->u * PANEL) * sizeof(float));
    if (!a->merge) return;
    NAME(transpose)((const float *)a->o + at * a->u, a->h * a->u, n, a->u, p->ot, PANEL);
    for (int64_t l = 0; l < n; l++) {
        float lse = a->lse[at + l * a->h];
        if (lse == -INFINITY) continue; /* o is zero */
        p->max[l] = lse * 1.44269504088896341f;
        p->sum[l] = 1.0f;
    }
}

static void NAME(panel_begin)(const gw_attn *a, int64_t b, int64_t h, int64_t q0, attn_panel *p,
                              float *rows) {
    int64_t n = GW_MIN(PANEL, a->sq - q0), ld;
    const float *q = NAME(rows_of)(a->q, a->dtype, ((b * a->sq + q0) * a->h + h) * a->k,
                                   a->h * a->k, n, a->k, false, rows, &ld);
    if (n < PANEL) memset(p->qt, 0, (size_t)(a->k * PANEL) * sizeof(float));
    NAME(transpose)(q, ld, n, a->k, p->qt, PANEL);
    for (int64_t l = 0; l < PANEL; l++) p->alpha[l] = a->scale * 1.44269504088896341f;
    NAME(scale_lanes)(p->qt, a->k, PANEL, PANEL, p->alpha);
    NAME(panel_state)(a, b, h, q0, p);
}

static void NAME(panel_end)(const gw_attn *a, int64_t b, int64_t h, int64_t q0, attn_panel *p,
                            float *rows) {
    int64_t n = GW_MIN(PANEL, a->sq - q0), at = (b * a->sq + q0) * a->h + h;
    for (int64_t l = 0; l < PANEL; l++) p->alpha[l] = p->sum[l] == 0.0f ? 0.0f : 1.0f / p->sum[l];
    NAME(scale_lanes)(p->ot, a->u, PANEL, PANEL, p->alpha);
    for (int64_t l = 0; l < n; l++)
        a->lse[at + l * a->h] = (p->max[l] + log2f(p->sum[l])) * 0.693147180559945309f;
    NAME(unpack)(a->o, a->results, at * a->u, a->h * a->u, n, a->u, p->ot, PANEL, rows);
}

/* Do o and lse of a panel stay as they are? */
static bool NAME(stays)(const gw_attn *a, const attn_panel *p) {
    return a->merge && p->view.first >= p->view.last;
}

static void NAME(forward)(const gw_attn *a, int64_t b, int64_t h, int64_t q0, int64_t q1,
                          float *work) {
    int64_t k = a->k, u = a->u, g = gw_attn_group(a, h), ldk, ldv;
    int64_t np = (q1 - q0 + PANEL - 1) / PANEL;
    bool reused = q1 - q0 > 64;
    float *s = work, *state = s + GW_ATTN_KEYS * PANEL;
    float *key_buf = state + GW_ATTN_CHUNK * (k + u);
    float *val_buf = key_buf + GW_ATTN_KEYS * GW_MAX(k, u);
    attn_panel panels[GW_ATTN_CHUNK / PANEL];
    int64_t first = a->sk, last = 0;
    for (int64_t i = 0; i < np; i++) {
        NAME(view_of)(a, b, q0 + i * PANEL, &panels[i].view);
        first = GW_MIN(first, panels[i].view.first);
        last = GW_MAX(last, panels[i].view.last);
    }
    for (int64_t i = 0; i < np; i++) {
        if (NAME(stays)(a, &panels[i])) continue;
        panels[i].qt = state + i * (k + u) * PANEL;
        panels[i].ot = panels[i].qt + k * PANEL;
        NAME(panel_begin)(a, b, h, q0 + i * PANEL, &panels[i], key_buf);
    }
    for (int64_t j0 = first / GW_ATTN_KEYS * GW_ATTN_KEYS; j0 < last; j0 += GW_ATTN_KEYS) {
        int64_t n = GW_MIN(GW_ATTN_KEYS, a->sk - j0), at = (b * a->sk + j0) * a->g + g;
        const float *key =
            NAME(rows_of)(a->key, a->dtype, at * k, a->g * k, n, k, reused, key_buf, &ldk);
        const float *val =
            NAME(rows_of)(a->v, a->dtype, at * u, a->g * u, n, u, reused, val_buf, &ldv);
        for (int64_t i = 0; i < np; i++) {
            attn_panel *p = &panels[i];
            if (!NAME(sees_some)(&p->view, j0, n)) continue;
            int64_t m = GW_MIN(n, p->view.last - j0); /* keys behind the last visible one */
            NAME(product)(m, key, ldk, p->qt, PANEL, k, s, PANEL);
            if (!NAME(sees_all)(&p->view, j0, m)) NAME(mask)(a, b, &p->view, j0, m, s, PANEL);
            NAME(softmax)(p, m, s);
            NAME(product_t)(u, val, ldv, s, PANEL, m, p->ot, PANEL, p->alpha);
        }
    }
    for (int64_t i = 0; i < np; i++)
        if (!NAME(stays)(a, &panels[i]))
            NAME(panel_end)(a, b, h, q0 + i * PANEL, &panels[i], key_buf);
}

/* ---- backward ---- */

/* A block of queries of one head: rows and transposes, statistics, and the gradient it gathers. */
typedef struct attn_queries {
    attn_view view[GW_ATTN_GRAD_QUERIES / PANEL];
    float lse2[GW_ATTN_GRAD_QUERIES]; /* base 2 */
    float dot[GW_ATTN_GRAD_QUERIES];  /* rowsum(do * o) */
    float scale[GW_ATTN_GRAD_QUERIES], one[PANEL];
    float *q, *go;         /* [queries][kp], [queries][up] */
    float *qt, *got, *gqt; /* [k][queries], [u][queries], [k][queries] */
    float *p, *ds;         /* [keys][queries] */
    float *row;            /* one row */
    int64_t q0, n, panels;
    int64_t first, last; /* keys that some query sees */
    /* The kv head: rows as floats (strides ldk, ldv), and its gradients [sk][kp], [sk][up]. */
    const float *key, *val;
    float *gk, *gv;
    int64_t ldk, ldv, kp, up;
} __attribute__((aligned(VF_BYTES))) attn_queries;

/* rowsum(do * o), and the base-2 logarithm of the softmax sum, of each query. */
static void NAME(statistics)(const gw_attn *a, int64_t b, int64_t h, attn_queries *u) {
    for (int64_t i = 0; i < GW_ATTN_GRAD_QUERIES; i++) {
        u->lse2[i] = u->dot[i] = 0.0f;
        if (i >= u->n) continue;
        int64_t at = (b * a->sq + u->q0 + i) * a->h + h;
        gw_vec_load(u->row, a->o_in, a->dtype, at * a->u, a->u);
        float sum = 0.0f;
        for (int64_t x = 0; x < a->u; x++) sum += u->row[x] * u->go[i * u->up + x];
        u->dot[i] = sum;
        if (a->lse[at] != -INFINITY) u->lse2[i] = a->lse[at] * 1.44269504088896341f;
    }
}

static void NAME(queries_view)(const gw_attn *a, int64_t b, int64_t q0, attn_queries *u) {
    u->q0 = q0;
    u->n = GW_MIN(GW_ATTN_GRAD_QUERIES, a->sq - q0);
    u->panels = (u->n + PANEL - 1) / PANEL;
    u->first = a->sk, u->last = 0;
    for (int64_t i = 0; i < u->panels; i++) {
        NAME(view_of)(a, b, q0 + i * PANEL, &u->view[i]);
        u->first = GW_MIN(u->first, u->view[i].first);
        u->last = GW_MAX(u->last, u->view[i].last);
    }
}

static void NAME(queries_begin)(const gw_attn *a, int64_t b, int64_t h, attn_queries *u) {
    enum { Q = GW_ATTN_GRAD_QUERIES };
    int64_t at = (b * a->sq + u->q0) * a->h + h, kp = u->kp, up = u->up;
    int64_t lanes = u->panels * PANEL;
    NAME(pack)(a->q, a->dtype, at * a->k, a->h * a->k, u->n, a->k, kp, u->q);
    NAME(pack)(a->out_grad, a->dtype, at * a->u, a->h * a->u, u->n, a->u, up, u->go);
    memset(u->q + u->n * kp, 0, (size_t)((lanes - u->n) * kp) * sizeof(float));
    memset(u->go + u->n * up, 0, (size_t)((lanes - u->n) * up) * sizeof(float));
    NAME(transpose)(u->q, kp, lanes, a->k, u->qt, Q);
    NAME(transpose)(u->go, up, lanes, a->u, u->got, Q);
    for (int64_t x = 0; x < a->k; x++) /* scores in base 2 */
        for (int64_t i = 0; i < lanes; i++) u->qt[x * Q + i] *= a->scale * 1.44269504088896341f;
    memset(u->gqt, 0, (size_t)(a->k * Q) * sizeof(float));
    NAME(statistics)(a, b, h, u);
}

/* p = 2^(s - lse) in place of s, ds = p * (dp - dot) in place of dp, for one panel. */
static void NAME(score_grad)(attn_queries *u, int64_t panel, int64_t n) {
    for (int64_t v = panel * PANEL; v < (panel + 1) * PANEL; v += VLEN) {
        vf lse = NAME(load)(u->lse2 + v), dot = NAME(load)(u->dot + v);
        for (int64_t j = 0; j < n; j++) {
            int64_t at = j * GW_ATTN_GRAD_QUERIES + v;
            vf p = NAME(exp2)(NAME(load)(u->p + at) - lse);
            NAME(store)(u->p + at, p);
            NAME(store)(u->ds + at, p * (NAME(load)(u->ds + at) - dot));
        }
    }
}

/* One block of keys against one block of queries: all five products. */
static void NAME(grad_block)(const gw_attn *a, int64_t b, attn_queries *u, int64_t j0, int64_t n) {
    enum { Q = GW_ATTN_GRAD_QUERIES };
    const float *key = u->key + j0 * u->ldk, *val = u->val + j0 * u->ldv;
    int64_t kp = u->kp, up = u->up, p0 = u->panels, p1 = 0;
    float *gk = u->gk + j0 * kp, *gv = u->gv + j0 * up;
    for (int64_t i = 0; i < u->panels; i++)
        if (NAME(sees_some)(&u->view[i], j0, n)) p0 = GW_MIN(p0, i), p1 = i + 1;
    for (int64_t i = p0; i < p1; i++) {
        float *p = u->p + i * PANEL, *ds = u->ds + i * PANEL;
        NAME(product)(n, key, u->ldk, u->qt + i * PANEL, Q, a->k, p, Q);
        NAME(product)(n, val, u->ldv, u->got + i * PANEL, Q, a->u, ds, Q);
        if (!NAME(sees_all)(&u->view[i], j0, n)) NAME(mask)(a, b, &u->view[i], j0, n, p, Q);
        NAME(score_grad)(u, i, n);
        NAME(product_t)(a->k, key, u->ldk, ds, Q, n, u->gqt + i * PANEL, Q, u->one);
    }
    if (p0 >= p1) return;
    int64_t l0 = p0 * PANEL, lanes = (p1 - p0) * PANEL;
    for (int64_t x = 0; x < up; x += PANEL)
        NAME(product_add)(n, u->p + l0, Q, u->go + l0 * up + x, up, lanes, gv + x, up);
    for (int64_t x = 0; x < kp; x += PANEL)
        NAME(product_add)(n, u->ds + l0, Q, u->q + l0 * kp + x, kp, lanes, gk + x, kp);
}

/* Hands out the workspace, and fills what does not change. Returns what is left of it. */
static float *NAME(queries_init)(const gw_attn *a, attn_queries *u, float *work) {
    enum { Q = GW_ATTN_GRAD_QUERIES };
    int64_t kp = u->kp = (a->k + PANEL - 1) / PANEL * PANEL;
    int64_t up = u->up = (a->u + PANEL - 1) / PANEL * PANEL;
    u->gk = work;
    u->gv = u->gk + a->sk * kp;
    u->q = u->gv + a->sk * up;
    u->go = u->q + Q * kp;
    u->qt = u->go + Q * up;
    u->got = u->qt + Q * kp;
    u->gqt = u->got + Q * up;
    u->p = u->gqt + Q * kp;
    u->ds = u->p + Q * GW_ATTN_GRAD_KEYS;
    u->row = u->ds + Q * GW_ATTN_GRAD_KEYS;
    memset(u->gk, 0, (size_t)(a->sk * (kp + up)) * sizeof(float));
    for (int64_t l = 0; l < PANEL; l++) u->one[l] = 1.0f;
    for (int64_t i = 0; i < Q; i++) u->scale[i] = a->scale;
    return u->row + GW_MAX(kp, up);
}

/* Row i of dst (float32) += column i of src[k][ld]; `rows` holds n x k floats. */
static void NAME(unpack_add)(float *dst, int64_t stride, int64_t n, int64_t k, const float *src,
                             int64_t ld, float *rows) {
    NAME(transpose)(src, ld, k, n, rows, k);
    for (int64_t i = 0; i < n; i++)
        for (int64_t x = 0; x < k; x++) dst[i * stride + x] += rows[i * k + x];
}

/* All keys against the queries of head h from q0 on; writes their dq. */
static void NAME(grad_queries)(const gw_attn *a, int64_t b, int64_t h, int64_t q0,
                               attn_queries *u) {
    enum { Q = GW_ATTN_GRAD_QUERIES, KEYS = GW_ATTN_GRAD_KEYS };
    NAME(queries_view)(a, b, q0, u);
    if (a->add[0] && u->first >= u->last) return;
    NAME(queries_begin)(a, b, h, u);
    for (int64_t j0 = u->first / KEYS * KEYS; j0 < u->last; j0 += KEYS)
        NAME(grad_block)(a, b, u, j0, GW_MIN(KEYS, u->last - j0));
    NAME(scale_lanes)(u->gqt, a->k, Q, u->panels * PANEL, u->scale);
    int64_t at = ((b * a->sq + q0) * a->h + h) * a->k, stride = a->h * a->k;
    if (a->add[0])
        NAME(unpack_add)((float *)a->dq + at, stride, u->n, a->k, u->gqt, Q, u->q);
    else
        NAME(unpack)(a->dq, a->results, at, stride, u->n, a->k, u->gqt, Q, u->q);
}

/* n numbers of a row of a gradient. */
static void NAME(give)(void *dst, gw_dtype t, int64_t at, const float *row, int64_t n, bool add) {
    if (!add) {
        gw_vec_store(dst, t, at, row, n);
        return;
    }
    float *to = (float *)dst + at;
    for (int64_t x = 0; x < n; x++) to[x] += row[x];
}

static bool NAME(sees_nothing)(const gw_attn *a, int64_t b) {
    for (int64_t i = 0; i < a->sq; i++)
        if (a->lo[b * a->sq + i] < a->hi[b * a->sq + i]) return false;
    return true;
}

static void NAME(backward)(const gw_attn *a, int64_t b, int64_t g, float *work) {
    int64_t k = a->k, u = a->u, sk = a->sk, h0, h1;
    if (a->add[0] && a->add[1] && a->add[2] && NAME(sees_nothing)(a, b)) return;
    attn_queries w;
    gw_attn_heads(a, g, &h0, &h1);
    float *key = NAME(queries_init)(a, &w, work), *val = key + sk * k;
    int64_t at = b * sk * a->g + g;
    bool reused = a->sq * (h1 - h0) > 64;
    w.key = NAME(rows_of)(a->key, a->dtype, at * k, a->g * k, sk, k, reused, key, &w.ldk);
    w.val = NAME(rows_of)(a->v, a->dtype, at * u, a->g * u, sk, u, reused, val, &w.ldv);
    for (int64_t h = h0; h < h1; h++)
        for (int64_t q0 = 0; q0 < a->sq; q0 += GW_ATTN_GRAD_QUERIES)
            NAME(grad_queries)(a, b, h, q0, &w);
    for (int64_t j = 0; j < sk; j++) {
        float *gk = w.gk + j * w.kp;
        for (int64_t x = 0; x < k; x++) gk[x] *= a->scale;
        NAME(give)(a->dk, a->results, (at + j * a->g) * k, gk, k, a->add[1]);
        NAME(give)(a->dv, a->results, (at + j * a->g) * u, w.gv + j * w.up, u, a->add[2]);
    }
}

static const gw_attn_core NAME(core) = {CORE_NAME, NAME(forward), NAME(backward)};

#undef vf
#undef vi
#undef attn_view
#undef attn_panel
#undef attn_queries
#undef VLEN
#undef PANEL
