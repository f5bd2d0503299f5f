// SPDX-License-Identifier: Apache-2.0
// Attention over a key and value cache, and the write into one: what generating text is made of.
//
// attention_cache  q[b s h k], kc[b t g k], vc[b t g u], pos[b s] -> o[b s h u]
//   The query at (b, s) stands at position p = pos[b s] of its sequence and sees cache rows j <= p
//   with, if window > 0, p - j < window. Scores are q.k * scale (scale 0 means 1/sqrt(k)), softmax
//   over the rows seen, then the mean of their v. Head i reads kv head i / (h/g). p < 0 marks a
//   padding query, whose output is zero. Rows beyond the cache do not exist, so p >= t sees the
//   whole cache. u is k unless its dimension has another name (latent attention).
// cache_put        cache[b t g k], x[b s g k], pos[b s] -> cache'   (the same bytes)
//   Row (b, s) of x becomes row pos[b s] of sequence b. Rows with pos < 0 or pos >= t are skipped,
//   so padding of a batch writes nothing; if two rows name one position, the later stands.
//
// One pair of ops serves prefill (s = length of the prompt) and decoding (s = 1): put the new keys
// and values, then attend, and every query sees exactly its own past. Neither is ever on a gradient
// path.
//
// The softmax subtracts the row's largest score, so it cannot overflow. b passes a sharding
// through, and h together with g; t, s of a put, k and u must be whole. Work: 2 (k + u) flops for
// each pair of query head and cache row (all rows; how many a query sees is data).
#include <math.h>
#include <string.h>

#include "base/compiler.h" /* GW_MIN, GW_MAX */
#include "ops/cases.h"     /* gw_case_begin */
#include "ops/hooks.h"     /* gw_infer_want_* */
#include "ops/ops.h"       /* gw_opdef_attention_cache */
#include "ops/ref.h"       /* gw_ref_get */

enum { WINDOW, SCALE };
static const gw_attr_def attrs[] = {
    {"window", GW_ATTR_INT, 0, 0},
    {"scale", GW_ATTR_FLOAT, 0, 0},
};

/* ---- attention_cache ---- */

static gw_status infer(gw_infer *f) {
    for (int i = 0; i < 3; i++) {
        GW_TRY(gw_infer_want_float(f, i));
        GW_TRY(gw_infer_want_ndim(f, i, 4, 4));
        GW_TRY(gw_infer_want_dim(f, i, 0, 0, 0)); /* b */
    }
    GW_TRY(gw_infer_want_dim(f, 1, 3, 0, 3)); /* k */
    GW_TRY(gw_infer_want_leading(f, 2, 1, 3));
    if (strcmp(gw_infer_in(f, 2)->dims[3].name, gw_infer_in(f, 0)->dims[3].name) == 0)
        GW_TRY(gw_infer_want_dim(f, 2, 3, 0, 3));
    GW_TRY(gw_infer_want_int(f, 3));
    GW_TRY(gw_infer_want_ndim(f, 3, 2, 2));
    GW_TRY(gw_infer_want_leading(f, 3, 0, 2));
    const gw_type *q = gw_infer_in(f, 0), *kc = gw_infer_in(f, 1);
    int64_t h = q->dims[2].size, g = kc->dims[2].size;
    if (g < 1 || h % g)
        return GW_FAIL(f->dg, GW_ERR_CONFIG, "op-shape",
                       "attention_cache: %lld query heads are no multiple of %lld kv heads",
                       (long long)h, (long long)g);
    if (f->attrs[WINDOW].i < 0)
        return GW_FAIL(f->dg, GW_ERR_CONFIG, "op-attribute",
                       "attention_cache: window is %lld, below 0", (long long)f->attrs[WINDOW].i);
    f->out[0] = gw_type_plain(q, (gw_dtype)q->dtype);
    const gw_dim *u = &gw_infer_in(f, 2)->dims[3];
    memcpy(f->out[0].dims[3].name, u->name, sizeof u->name);
    f->out[0].dims[3].size = u->size;
    return GW_OK;
}

/* kv heads are in no output, yet nothing is summed over them: they are cut with the query heads. */
static void sign(const gw_graph *g, const gw_op *o, gw_signature *s) {
    const gw_type *q = gw_type_of(g, gw_op_in(g, o, 0));
    gw_sign_default(g, o, s);
    for (int i = 0; i < s->nfactors; i++) {
        gw_factor *f = &s->factors[i];
        if (f->in_dim[1] != 2 || f->in_dim[0] == 2) continue;
        f->kind = GW_FACTOR_PASS;
        memcpy(f->with, q->dims[2].name, sizeof f->with);
    }
}

static void cost(const gw_graph *g, const gw_op *o, gw_cost *c) {
    double rows = (double)gw_cost_dim(g, gw_op_in(g, o, 1), 1);
    double widths = (double)gw_cost_elems(g, gw_op_in(g, o, 0)) +
                    (double)gw_cost_elems(g, gw_op_out(g, o, 0)); /* k + u of every query head */
    gw_cost_set(g, o, 2 * rows * widths, c);
}

/* Where one query head looks: rows first..last (may be none) of a cache, as element indices. */
typedef struct view {
    int64_t first, last;               /* rows, ends included */
    int64_t base, stride;              /* of keys: element of row 0; between rows */
    int64_t width;                     /* k */
    int64_t v_base, v_stride, v_width; /* of values; u */
    double scale;
} view;

static double score(const gw_kargs *k, const view *w, int64_t q, int64_t row) {
    return w->scale *
           gw_ref_dot(&k->in[0], q, 1, &k->in[1], w->base + row * w->stride, 1, w->width);
}

/* o[o .. o + v_width) from the query at element q. Scores are computed again for each use. */
static void attend(const gw_kargs *k, const view *w, int64_t q, int64_t to) {
    double top = -HUGE_VAL, sum = 0;
    for (int64_t j = w->first; j <= w->last; j++) top = GW_MAX(top, score(k, w, q, j));
    for (int64_t j = w->first; j <= w->last; j++) sum += exp(score(k, w, q, j) - top);
    for (int64_t i = 0; i < w->v_width; i++) {
        double o = 0;
        for (int64_t j = w->first; j <= w->last; j++)
            o += exp(score(k, w, q, j) - top) *
                 gw_ref_get(&k->in[2], w->v_base + j * w->v_stride + i);
        gw_ref_set(&k->out[0], to + i, w->last >= w->first ? o / sum : 0);
    }
}

static void reference(const gw_kargs *k) {
    const gw_tensor *q = &k->in[0], *kc = &k->in[1];
    int64_t s = q->dims[1], h = q->dims[2], t = kc->dims[1], g = kc->dims[2];
    int64_t window = gw_ref_attr(k, WINDOW).i;
    double scale = gw_ref_attr(k, SCALE).f;
    int64_t u = k->in[2].dims[3];
    view w = {.width = q->dims[3], .stride = g * q->dims[3], .v_width = u, .v_stride = g * u};
    w.scale = scale != 0 ? scale : 1 / sqrt((double)w.width);
    for (int64_t row = 0; row < q->dims[0] * s; row++) {
        int64_t pos = gw_ref_int(&k->in[3], row);
        w.last = GW_MIN(pos, t - 1);
        w.first = window > 0 ? GW_MAX(0, pos - window + 1) : 0;
        for (int64_t i = 0; i < h; i++) {
            int64_t at = row / s * t * g + i / (h / g);
            w.base = at * w.width;
            w.v_base = at * u;
            attend(k, &w, (row * h + i) * w.width, (row * h + i) * u);
        }
    }
}

static void build_case(gw_cases *cs, const char *name, const char *q, const char *keys,
                       const char *values, const char *rows, double lo, double hi, int64_t window) {
    gw_case *c = gw_case_begin(cs, name);
    gw_vid in[4] = {gw_case_value(c, q, false, GW_FILL_NORMAL, 1, 0),
                    gw_case_value(c, keys, false, GW_FILL_NORMAL, 1, 0),
                    gw_case_value(c, values, false, GW_FILL_NORMAL, 1, 0),
                    gw_case_fixed(c, GW_I32, rows, GW_FILL_INTS, lo, hi)};
    gw_build(&c->b, "attention_cache", in, 4, (gw_attr[]){{.i = window}, {.f = 0}}, NULL);
}

static void cases(gw_cases *cs) {
    build_case(cs, "decode", "b3 s1 h4 k8", "b3 t19 g2 k8", "b3 t19 g2 k8", "b3 s1", 0, 19, 0);
    build_case(cs, "prefill with padding", "b2 s7 h2 k5", "b2 t9 g2 k5", "b2 t9 g2 k5", "b2 s7", -3,
               9, 0);
    build_case(cs, "window", "b2 s4 h3 k4", "b2 t17 g1 k4", "b2 t17 g1 k4", "b2 s4", 0, 17, 5);
    build_case(cs, "values of another size", "b2 s3 h4 k14", "b2 t37 h4 k14", "b2 t37 h4 u5",
               "b2 s3", -1, 37, 0);
    build_case(cs, "wider values", "b1 s2 h4 k3", "b1 t9 g2 k3", "b1 t9 g2 u17", "b1 s2", 0, 9, 4);
}

const gw_opdef gw_opdef_attention_cache = {
    .name = "attention_cache",
    .doc = "attention of new queries over a key and value cache, by position",
    .signature = "bsh!k,b!tg!k,b!tg!u,bs->bsh!u",
    .traits = GW_OP_NODIFF,
    .linear_in = 0,
    .nin = 4,
    .nout = 1,
    .noptional = 0,
    .nacc = 0,
    .ties = GW_NO_TIES,
    .reads_in = 0,
    .reads_out = 0,
    .nattrs = 2,
    .attrs = attrs,
    .infer = infer,
    .verify = gw_verify_default,
    .sign = sign,
    .shard = gw_shard_default,
    .cost = cost,
    .vjp = gw_vjp_none,
    .reference = reference,
    .cases = cases,
};

/* ---- cache_put ---- */

static gw_status put_infer(gw_infer *f) {
    GW_TRY(gw_infer_want_float(f, 0));
    GW_TRY(gw_infer_want_float(f, 1));
    GW_TRY(gw_infer_want_ndim(f, 0, 4, 4));
    GW_TRY(gw_infer_want_ndim(f, 1, 4, 4));
    GW_TRY(gw_infer_want_dim(f, 1, 0, 0, 0)); /* b */
    GW_TRY(gw_infer_want_dim(f, 1, 2, 0, 2)); /* g */
    GW_TRY(gw_infer_want_dim(f, 1, 3, 0, 3)); /* k */
    GW_TRY(gw_infer_want_int(f, 2));
    GW_TRY(gw_infer_want_ndim(f, 2, 2, 2));
    GW_TRY(gw_infer_want_leading(f, 2, 1, 2));
    const gw_type *cache = gw_infer_in(f, 0);
    f->out[0] = gw_type_plain(cache, (gw_dtype)cache->dtype);
    return GW_OK;
}

/* Reads x and writes as much; the rest of the cache is not touched. */
static void put_cost(const gw_graph *g, const gw_op *o, gw_cost *c) {
    *c = (gw_cost){.bytes_read = (double)(gw_cost_bytes(g, gw_op_in(g, o, 1)) +
                                          gw_cost_bytes(g, gw_op_in(g, o, 2))),
                   .bytes_written = (double)gw_cost_bytes(g, gw_op_in(g, o, 1))};
}

static void put_reference(const gw_kargs *k) {
    const gw_tensor *x = &k->in[1];
    int64_t t = k->out[0].dims[1], s = x->dims[1], row = gw_ref_inner(x, 2);
    for (int64_t r = 0; r < x->dims[0] * s; r++) {
        int64_t pos = gw_ref_int(&k->in[2], r);
        if (pos < 0 || pos >= t) continue;
        for (int64_t i = 0; i < row; i++)
            gw_ref_set(&k->out[0], (r / s * t + pos) * row + i, gw_ref_get(x, r * row + i));
    }
}

static void put_case(gw_cases *cs, const char *name, const char *cache, const char *x,
                     const char *rows, double lo, double hi) {
    gw_case *c = gw_case_begin(cs, name);
    gw_vid in[3] = {gw_case_value(c, cache, false, GW_FILL_NORMAL, 1, 0),
                    gw_case_value(c, x, false, GW_FILL_NORMAL, 1, 0),
                    gw_case_fixed(c, GW_I32, rows, GW_FILL_INTS, lo, hi)};
    gw_build(&c->b, "cache_put", in, 3, NULL, NULL);
}

static void put_cases(gw_cases *cs) {
    put_case(cs, "one row", "b3 t7 g2 k5", "b3 s1 g2 k5", "b3 s1", 0, 7);
    put_case(cs, "some skipped", "b2 t6 g1 k3", "b2 s5 g1 k3", "b2 s5", -4, 10);
}

const gw_opdef gw_opdef_cache_put = {
    .name = "cache_put",
    .doc = "writes rows into a cache at their positions, in place",
    .signature = "b!tgk,b!sgk,b!s->b!tgk",
    .traits = GW_OP_NODIFF,
    .linear_in = 0,
    .nin = 3,
    .nout = 1,
    .noptional = 0,
    .nacc = 0,
    .ties = {0, -1, -1, -1, -1, -1},
    .reads_in = 0,
    .reads_out = 0,
    .nattrs = 0,
    .attrs = NULL,
    .infer = put_infer,
    .verify = gw_verify_default,
    .sign = gw_sign_default,
    .shard = gw_shard_default,
    .cost = put_cost,
    .vjp = gw_vjp_none,
    .reference = put_reference,
    .cases = put_cases,
};
