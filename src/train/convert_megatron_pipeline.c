// SPDX-License-Identifier: Apache-2.0
// Megatron-LM's flags for pipelines.
//
// Stages there are equal unless something says otherwise: the first and the last may have their own
// numbers of layers, embedding and loss may count as a layer each, or a layout spells every stage
// out: "Et*3|(tt|)*29m|L" is a stage with the embedding and three layers, 29 of two layers, one
// with a head for a further token (m), and one with the loss alone. Stages are listed in the order
// in which a sample passes them, of all ranks and of all their virtual stages, as layout.stages
// lists them; so a layout is the list of its counts of t.
//
// Source: megatron/training/arguments.py and
// megatron/core/transformer/pipeline_parallel_layer_layout.py.
#include <string.h> /* strchr */

#include "train/convert_impl.h" /* gw_cv */

enum { MOST_STAGES = 4096, MOST_PIECES = 1 << 16, MOST_NESTED = 8 };

#define STAGES "--set layout.stages=[3,4,4,3]"

// ------------------------------------------------------------------ layouts

typedef struct layout {
    int64_t counts[MOST_STAGES]; /* layers of each stage */
    int64_t n;                   /* stages, less the one that is being filled */
    int64_t pieces;
    bool bad, extra; /* extra: it has stages for heads of further tokens */
} layout;

static void add_piece(layout *l, char piece) {
    l->bad |= l->n >= MOST_STAGES - 1;
    if (l->bad) return;
    if (piece == '|') l->counts[++l->n] = 0;
    if (piece == 't') l->counts[l->n]++;
    if (piece == 'm') l->extra = true;
}

/* What stands up to the end or to the bracket that closes; returns where that is. */
static const char *add_pieces(layout *l, const char *p, int depth);

/* Behind the bracket that closes the one at p, or the end. */
static const char *behind_group(const char *p) {
    int depth = 0;
    for (; *p; p++) {
        depth += (*p == '(') - (*p == ')');
        if (depth == 0) return p + 1;
    }
    return p;
}

/* One piece or group, as many times as it stands; returns what follows. */
static const char *add_group(layout *l, const char *p, int depth) {
    bool group = *p == '(';
    const char *from = p;
    p = group ? behind_group(p) : p + 1;
    l->bad |= group ? p[-1] != ')' || depth >= MOST_NESTED : !strchr("EtmL|", *from);
    int64_t times = 1;
    if (*p == '*')
        for (times = 0, p++; *p >= '0' && *p <= '9' && times < MOST_PIECES; p++)
            times = times * 10 + (*p - '0');
    for (int64_t i = 0; i < times && !l->bad; i++) {
        l->bad |= ++l->pieces > MOST_PIECES;
        if (group)
            add_pieces(l, from + 1, depth + 1);
        else
            add_piece(l, *from);
    }
    return p;
}

static const char *add_pieces(layout *l, const char *p, int depth) {
    while (*p && *p != ')' && !l->bad) {
        if (strchr(", ", *p))
            p++;
        else
            p = add_group(l, p, depth);
    }
    return p;
}

static const char *list_of(gw_cv *c, const int64_t *counts, int64_t n) {
    gw_str s = {0};
    for (int64_t i = 0; i < n; i++)
        gw_str_printf(&s, "%s%lld", i ? ", " : "", (long long)counts[i]);
    const char *out = gw_arena_printf(c->a, "[%s]", gw_str_c(&s));
    gw_str_release(&s);
    return out;
}

/* Returns the number of virtual stages that a layout asks for, or 0. */
static int64_t settle_layout(gw_cv *c, int64_t pp, int64_t layers) {
    const char *key = "pipeline-model-parallel-layout", *text = gw_cv_text(c, key, NULL);
    if (!text) return 0;
    layout *l = gw_arena_new(c->a, layout, 1);
    bool whole = *add_pieces(l, text, 0) == 0 && !l->bad;
    int64_t stages = l->n + 1, sum = 0, inner = 0;
    for (int64_t i = 0; i < stages; i++) {
        sum += l->counts[i];
        inner += l->counts[i] == 0 && i > 0 && i < stages - 1;
    }
    if (!whole || stages % pp || (layers && sum != layers)) {
        gw_cv_refuse(c, key, STAGES,
                     "its %lld stages with %lld layers are not %lld layers over "
                     "%lld ranks",
                     (long long)stages, (long long)sum, (long long)layers, (long long)pp);
        return 0;
    }
    if (stages > pp) gw_cv_map(c, key, "layout.virtual_stages", "%lld", (long long)(stages / pp));
    if (inner == 0)
        gw_cv_map(c, key, "layout.stages", "%s", list_of(c, l->counts, stages));
    else if (stages > pp)
        gw_cv_remark(c, key, "a stage of it has no layer, so stages are balanced by cost");
    gw_cv_refuse(c, key, STAGES, "a stage of it has no layer%s",
                 l->extra ? ": heads of further tokens are not built" : "");
    return stages / pp;
}

// ------------------------------------------------------------------ counts

typedef struct sizes {
    int64_t pp, layers, virtual_;
    int64_t first, last;  /* layers of the first and the last stage, or -1 */
    bool embedding, loss; /* count as a layer */
} sizes;

static int64_t settle_virtual(gw_cv *c, const sizes *z, int64_t from_layout) {
    static const char *const names[] = {"num-virtual-stages-per-pipeline-rank",
                                        "virtual-pipeline-model-parallel-size"};
    const char *each = "num-layers-per-virtual-pipeline-stage";
    int64_t n = gw_cv_int(c, each, 0), all = z->layers + z->embedding + z->loss, v = 1;
    bool fits = n > 0 && z->layers > 0 && all % gw_cv_times(z->pp, n) == 0;
    if (fits) v = all / gw_cv_times(z->pp, n);
    if (fits) gw_cv_map(c, each, "layout.virtual_stages", "%lld", (long long)v);
    if (!z->layers)
        gw_cv_refuse(c, each, "--set layout.virtual_stages=N", "the number of layers is not known");
    if (gw_cv_get(c, each))
        gw_cv_conflict(c, each, "%lld layers are no multiple of pp %lld x %lld", (long long)all,
                       (long long)z->pp, (long long)n);
    for (size_t i = 0; i < GW_COUNT(names); i++) {
        if (gw_cv_get(c, names[i])) v = GW_MAX(v, gw_cv_int(c, names[i], 1));
        gw_cv_map_int(c, names[i], "layout.virtual_stages");
    }
    return GW_MAX(gw_cv_ours_int(c, "layout.virtual_stages", v), from_layout);
}

/* The layers of each stage as they are there, or NULL where they are not known or do not fit. */
static const char *counts_of(gw_cv *c, const sizes *z) {
    int64_t n = gw_cv_times(z->pp, z->virtual_);
    if (z->layers <= 0 || n <= 0 || n > MOST_STAGES) return NULL;
    int64_t *counts = gw_arena_new(c->a, int64_t, n);
    if (z->first >= 0 || z->last >= 0) {
        int64_t rest = z->layers - GW_MAX(z->first, (int64_t)0) - GW_MAX(z->last, (int64_t)0);
        int64_t middle = n - (z->first >= 0) - (z->last >= 0);
        if (z->virtual_ > 1 || rest < 0 || (middle ? rest % middle : rest) != 0) return NULL;
        for (int64_t i = 0; i < n; i++) counts[i] = middle ? rest / middle : 0;
        if (z->first >= 0) counts[0] = z->first;
        if (z->last >= 0) counts[n - 1] = z->last;
        return list_of(c, counts, n);
    }
    int64_t all = z->layers + z->embedding + z->loss;
    if (all % n) return NULL;
    for (int64_t i = 0; i < n; i++) counts[i] = all / n;
    counts[0] -= z->embedding;
    counts[n - 1] -= z->loss;
    return list_of(c, counts, n);
}

void gw_cv_megatron_pipeline(gw_cv *c, int64_t pp) {
    static const char *const keys =
        "decoder-first-pipeline-num-layers decoder-last-pipeline-num-layers "
        "num-layers-per-virtual-pipeline-stage num-virtual-stages-per-pipeline-rank "
        "virtual-pipeline-model-parallel-size pipeline-model-parallel-layout "
        "account-for-embedding-in-pipeline-split account-for-loss-in-pipeline-split";
    static const char *const ends[] = {"decoder-first-pipeline-num-layers",
                                       "decoder-last-pipeline-num-layers"};
    static const char *const counted[] = {"account-for-embedding-in-pipeline-split",
                                          "account-for-loss-in-pipeline-split"};
    if (pp <= 1) {
        gw_cv_imply_list(c, keys, "no pipeline: pp is 1");
        return;
    }
    sizes z = {.pp = pp,
               .layers = gw_cv_layers(c),
               .first = gw_cv_int(c, ends[0], -1),
               .last = gw_cv_int(c, ends[1], -1),
               .embedding = gw_cv_bool(c, counted[0], false),
               .loss = gw_cv_bool(c, counted[1], false)};
    int64_t from_layout = settle_layout(c, pp, z.layers);
    z.virtual_ = settle_virtual(c, &z, from_layout);
    gw_cv_put(c, "layout.schedule", "megatron's schedule", "%s",
              z.virtual_ > 1 ? "interleaved" : "1f1b");
    const char *list = from_layout ? NULL : counts_of(c, &z);
    for (size_t i = 0; i < 2; i++) {
        if (list) gw_cv_map(c, ends[i], "layout.stages", "%s", list);
        gw_cv_refuse(c, ends[i], STAGES, "the other stages do not share the rest equally");
        if (list) gw_cv_map(c, counted[i], "layout.stages", "%s", list);
        gw_cv_imply(c, counted[i], "stages are balanced by cost, embedding and head included");
    }
    if (list) gw_cv_put(c, "layout.stages", "megatron's default: equal stages", "%s", list);
}
