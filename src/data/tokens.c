// SPDX-License-Identifier: Apache-2.0
// Samples by number: a mixture over streams.
//
// One source needs no mixture: sample n is its row n. With several, the mixture says for each n
// which source it is and how many rows of that source came before; each source then counts its own
// rows and epochs, and goes on over the boundaries of stages.
//
// The hash of what is read must not change for runs that began before there was anything but one
// source shuffled by documents; so it is that source's hash, and everything else adds to it.
#include "data/tokens.h" /* gw_tokens */

#include <inttypes.h>
#include <string.h>

#include "base/arena.h"  /* gw_arena */
#include "data/stream.h" /* gw_stream */

enum { WINDOW = 16, WINDOWS_HELD = 3 };

struct gw_tokens {
    gw_arena mem;
    gw_tokens_options opt;
    int n;
    gw_stream **streams; /* [n] */
    int64_t *epochs;     /* [n] that may be read; 0: any number */
    gw_mix *mix;         /* NULL: one source */
    double *weights;     /* [nstages][n] as given: for the hash */
    int64_t *stage_tokens;
    int nstages;
    int64_t *counts; /* [n] scratch */
};

gw_tokens_options gw_tokens_options_default(int64_t seq_len, uint64_t seed) {
    return (gw_tokens_options){.seq_len = seq_len,
                               .seed = seed,
                               .shuffle = true,
                               .pack = true,
                               .mask_first = true,
                               .window = WINDOW};
}

/* ---- opening ---- */

static gw_tokens *new_tokens(const gw_tokens_options *o, int n) {
    gw_tokens *ds = gw_mem_zalloc(sizeof *ds);
    ds->opt = *o;
    if (ds->opt.window < 1) ds->opt.window = WINDOW;
    ds->n = n;
    ds->streams = gw_arena_new(&ds->mem, gw_stream *, n);
    ds->epochs = gw_arena_new(&ds->mem, int64_t, n);
    ds->counts = gw_arena_new(&ds->mem, int64_t, n);
    return ds;
}

static gw_shards_options shards_options(const gw_tokens_options *o) {
    return (gw_shards_options){.block_tokens = o->block_tokens,
                               .vocab_size = o->vocab_size,
                               .column = o->column,
                               .no_verify = o->no_verify,
                               .cache_dir = o->cache_dir,
                               .cache_bytes = o->cache_bytes,
                               .held = WINDOWS_HELD * (o->window < 1 ? WINDOW : o->window)};
}

static gw_status open_stream(gw_tokens *ds, gw_shards *s, int k, gw_diags *dg) {
    const gw_tokens_options *o = &ds->opt;
    gw_stream_options so = {.seq_len = o->seq_len,
                            .seed = o->seed,
                            .shuffle = o->shuffle,
                            .order = o->order,
                            .packing = !o->pack      ? GW_PACK_DOCUMENT
                                       : o->best_fit ? GW_PACK_BEST_FIT
                                                     : GW_PACK_CONTIGUOUS,
                            .mask_first = o->mask_first,
                            .pad_token = o->pad_token,
                            .window = o->window};
    return gw_stream_open(s, &so, &ds->streams[k], dg);
}

static gw_status check_options(const gw_tokens_options *o, gw_diags *dg) {
    if (o->seq_len >= 1 && o->seq_len < INT32_MAX) return GW_OK;
    return GW_FAIL(dg, GW_ERR_CONFIG, "data-seq-len", "sequence length %lld is not in [1, 2^31)",
                   (long long)o->seq_len);
}

/* Rows of a stage: as many as hold its tokens. */
static int64_t rows_of(const gw_tokens *ds, int64_t tokens) {
    return tokens / ds->opt.seq_len + (tokens % ds->opt.seq_len != 0);
}

static gw_status open_mix(gw_tokens *ds, const gw_tokens_source *sources,
                          const gw_tokens_stage *stages, int nstages, gw_diags *dg) {
    int n = ds->n, count = nstages > 0 ? nstages : 1;
    gw_mix_stage *m = gw_arena_new(&ds->mem, gw_mix_stage, count);
    ds->nstages = nstages;
    ds->weights = gw_arena_new(&ds->mem, double, (int64_t)count *n);
    ds->stage_tokens = gw_arena_new(&ds->mem, int64_t, count);
    for (int i = 0; i < count; i++) {
        double *w = ds->weights + (int64_t)i * n;
        for (int k = 0; k < n; k++) w[k] = nstages > 0 ? stages[i].weights[k] : sources[k].weight;
        ds->stage_tokens[i] = nstages > 0 ? stages[i].tokens : 0;
        m[i] = (gw_mix_stage){rows_of(ds, ds->stage_tokens[i]), w};
    }
    if (n == 1) return GW_OK;
    return gw_mix_new(n, m, count, ds->opt.mixing, &ds->mix, dg);
}

gw_status gw_tokens_open_mix(const gw_tokens_source *sources, int n, const gw_tokens_stage *stages,
                             int nstages, const gw_tokens_options *options, gw_tokens **out,
                             gw_diags *dg) {
    *out = NULL;
    GW_TRY(check_options(options, dg));
    gw_tokens *ds = new_tokens(options, n);
    gw_shards_options so = shards_options(&ds->opt);
    gw_status st = open_mix(ds, sources, stages, nstages, dg);
    for (int k = 0; k < n && st == GW_OK; k++) {
        gw_shards *s;
        ds->epochs[k] = sources[k].epochs;
        st = gw_shards_open(sources[k].path, &so, &s, dg);
        if (st == GW_OK) st = open_stream(ds, s, k, dg);
    }
    if (st == GW_OK)
        *out = ds;
    else
        gw_tokens_close(ds);
    return st;
}

gw_status gw_tokens_open(const char *path, const gw_tokens_options *options, gw_tokens **out,
                         gw_diags *dg) {
    gw_tokens_source one = {.path = path, .weight = 1};
    return gw_tokens_open_mix(&one, 1, NULL, 0, options, out, dg);
}

gw_status gw_tokens_open_memory(const int32_t *tokens, const int64_t *ends, int64_t documents,
                                const gw_tokens_options *options, gw_tokens **out, gw_diags *dg) {
    *out = NULL;
    GW_TRY(check_options(options, dg));
    gw_tokens *ds = new_tokens(options, 1);
    gw_shards_options so = shards_options(&ds->opt);
    gw_status st = open_stream(ds, gw_shards_open_memory(tokens, ends, documents, &so), 0, dg);
    if (st == GW_OK)
        *out = ds;
    else
        gw_tokens_close(ds);
    return st;
}

void gw_tokens_close(gw_tokens *ds) {
    if (!ds) return;
    for (int k = 0; k < ds->n; k++) gw_stream_close(ds->streams[k]);
    gw_mix_free(ds->mix);
    gw_arena_release(&ds->mem);
    gw_mem_free(ds);
}

void gw_tokens_set_clock(gw_tokens *ds, gw_load_clock *clock) {
    for (int k = 0; k < ds->n; k++) gw_shards_set_clock(gw_stream_shards(ds->streams[k]), clock);
}

/* ---- figures ---- */

#define SUM(of)                                                                                    \
    int64_t sum = 0;                                                                               \
    for (int k = 0; k < ds->n; k++) sum += of(ds->streams[k]);                                     \
    return sum

int64_t gw_tokens_count(const gw_tokens *ds) { SUM(gw_stream_tokens); }
int64_t gw_tokens_documents(const gw_tokens *ds) { SUM(gw_stream_documents); }
int64_t gw_tokens_samples(const gw_tokens *ds) { SUM(gw_stream_rows); }
int64_t gw_tokens_bytes(const gw_tokens *ds) { SUM(gw_stream_bytes); }
int64_t gw_tokens_quarantined(const gw_tokens *ds) { SUM(gw_stream_quarantined); }
int64_t gw_tokens_seq_len(const gw_tokens *ds) { return ds->opt.seq_len; }
int gw_tokens_sources(const gw_tokens *ds) { return ds->n; }

gw_tokens_source_info gw_tokens_source_at(const gw_tokens *ds, int k) {
    const gw_stream *t = ds->streams[k];
    return (gw_tokens_source_info){.name = gw_shards_name(gw_stream_shards(t)),
                                   .format = gw_shards_format(gw_stream_shards(t)),
                                   .order = gw_stream_order(t),
                                   .tokens = gw_stream_tokens(t),
                                   .documents = gw_stream_documents(t),
                                   .rows = gw_stream_rows(t),
                                   .epochs = ds->epochs[k]};
}

void gw_tokens_counts(gw_tokens *ds, int64_t n, int64_t *counts) {
    if (ds->mix)
        gw_mix_counts(ds->mix, n, counts);
    else
        counts[0] = n;
}

gw_status gw_tokens_check_epochs(gw_tokens *ds, int64_t n, gw_diags *dg) {
    bool any = false, fits = true;
    for (int k = 0; k < ds->n; k++) any = any || ds->epochs[k] > 0;
    if (!any) return GW_OK;
    gw_tokens_counts(ds, n, ds->counts);
    for (int k = 0; k < ds->n; k++) {
        gw_tokens_source_info s = gw_tokens_source_at(ds, k);
        int64_t most;
        if (s.epochs <= 0 || __builtin_mul_overflow(s.epochs, s.rows, &most)) continue;
        if (ds->counts[k] <= most) continue;
        gw_diag *g =
            gw_diag_add(dg, GW_ERROR, GW_ERR_CONFIG, "data-epochs", (gw_where){.file = s.name},
                        "the run takes %lld rows of it; in %lld epochs it has %lld",
                        (long long)ds->counts[k], (long long)s.epochs, (long long)most);
        gw_diag_hint(dg, g, "allow %.2f epochs, lower its weight, or train fewer steps",
                     (double)ds->counts[k] / (double)s.rows);
        fits = false;
    }
    return fits ? GW_OK : GW_ERR_CONFIG;
}

/* ---- identity ---- */

static bool is_plain(const gw_tokens *ds) {
    return ds->n == 1 && gw_stream_order(ds->streams[0]) == GW_ORDER_DOCUMENTS;
}

static void add_i64(gw_hasher *h, int64_t x) { gw_hasher_add(h, &x, sizeof x); }

gw_hash128 gw_tokens_hash(gw_tokens *ds) {
    if (is_plain(ds)) return gw_shards_hash(gw_stream_shards(ds->streams[0]));
    gw_hasher *h = gw_hasher_new();
    int stages = ds->nstages > 0 ? ds->nstages : 1;
    add_i64(h, ds->n);
    for (int k = 0; k < ds->n; k++) {
        gw_hash128 one = gw_shards_hash(gw_stream_shards(ds->streams[k]));
        gw_hasher_add(h, &one, sizeof one);
        add_i64(h, gw_stream_order(ds->streams[k]));
    }
    add_i64(h, ds->opt.best_fit);
    add_i64(h, ds->opt.window);
    add_i64(h, ds->opt.block_tokens);
    for (int i = 0; i < stages && ds->n > 1; i++) {
        add_i64(h, ds->stage_tokens[i]);
        gw_hasher_add(h, ds->weights + (int64_t)i * ds->n, (size_t)ds->n * sizeof(double));
        add_i64(h, (int64_t)ds->opt.mixing);
    }
    gw_hash128 out = gw_hasher_get(h);
    gw_hasher_free(h);
    return out;
}

gw_status gw_tokens_check(const gw_tokens *ds, gw_diags *dg) {
    for (int k = 0; k < ds->n; k++) GW_TRY(gw_shards_check(gw_stream_shards(ds->streams[k]), dg));
    return GW_OK;
}

/* ---- samples ---- */

static gw_mix_place place_of(gw_tokens *ds, int64_t number) {
    return ds->mix ? gw_mix_at(ds->mix, number) : (gw_mix_place){0, number};
}

gw_status gw_tokens_sample(gw_tokens *ds, int64_t number, gw_sample *out, gw_diags *dg) {
    gw_mix_place p = place_of(ds, number);
    out->id = number;
    return gw_stream_row(ds->streams[p.source], p.index, out, dg);
}

gw_status gw_tokens_measure(gw_tokens *ds, int64_t number, int64_t *valid, int64_t *inputs,
                            gw_diags *dg) {
    gw_mix_place p = place_of(ds, number);
    return gw_stream_count(ds->streams[p.source], p.index, valid, inputs, dg);
}

int64_t gw_tokens_valid(gw_tokens *ds, int64_t number) {
    int64_t valid = 0, inputs;
    return gw_tokens_measure(ds, number, &valid, &inputs, NULL) == GW_OK ? valid : 0;
}

int64_t gw_tokens_inputs(gw_tokens *ds, int64_t number) {
    int64_t valid, inputs = 0;
    return gw_tokens_measure(ds, number, &valid, &inputs, NULL) == GW_OK ? inputs : 0;
}

void gw_tokens_pass(gw_tokens *ds, int64_t number) {
    gw_tokens_counts(ds, number, ds->counts);
    for (int k = 0; k < ds->n; k++) gw_stream_pass(ds->streams[k], ds->counts[k]);
}
