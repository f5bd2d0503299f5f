// SPDX-License-Identifier: Apache-2.0
// What ops take on this machine, read off steps that run.
//
// A kernel measured alone in a loop meets warm caches, rested cores and nothing beside it; in a
// step it meets what the ops before it left. So nothing is measured alone: some forty small models
// are trained for a few steps each through the same session that `train` opens, and the executor's
// own clock says what each op took. Models are small in depth (a block or two) and varied in what
// kernels see: width, length, tokens, vocabulary, dtype, family. The first step touches memory for
// the first time and is left out; of the others each op keeps the median over steps,
// micro-batches and layers of equal shape.
//
// Alone a rank has all cores. Several share them, so what they take side by side is measured with
// as many, in layouts that bring each kind of collective: ranks begin together and their waits for
// one another are in the collectives' times.
//
// Others use a machine now and then, for seconds. So all models are trained in two rounds, half of
// the time each: what somebody else did in one of them is not there in the other, and of a shape
// the quicker of the two medians stays.
//
// What a step takes beside its ops (batch, counters, agreement) and an op beside its kernel is a
// straight line through all programs: rest = step_s + ops x op_s, by least squares, neither below
// zero.
#include "cli/calibrate_ops.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h> /* qsort */
#include <string.h>

#include "base/io.h"           /* gw_path_join, gw_file_write_atomic */
#include "base/map.h"          /* GW_VEC */
#include "base/rng.h"          /* gw_rng_key_named */
#include "base/str.h"          /* gw_str */
#include "file/megatron_idx.h" /* gw_midx_writer */
#include "train/session.h"     /* gw_session */

/* ---- the models ---- */

enum {
    BOTH = 1,  /* in float32 and in bf16 */
    ALONE = 2, /* for a rank alone */
    SIDE = 4,  /* for ranks side by side, in each of `layouts` that suits it */
    WIDE = 8,  /* token ids from all of a large vocabulary */
    IMAGES = 16
};

typedef struct model {
    const char *model; /* of `model:`; in braces */
    int heads;         /* what tp has to divide */
    int seq, micro_batch, accumulate;
    const char *more; /* further lines of the run file */
    unsigned use;
} model;

static const model models[] = {
    {"family: llama, layers: 2, hidden: 64, heads: 4, kv_heads: 2, ffn: 192, vocab: 512", 2, 64, 1,
     1, "", BOTH | ALONE | SIDE},
    {"family: llama, layers: 2, hidden: 128, heads: 4, kv_heads: 2, ffn: 384, vocab: 1024", 2, 128,
     4, 1, "", BOTH | ALONE | SIDE},
    {"family: llama, layers: 2, hidden: 256, heads: 8, kv_heads: 4, ffn: 704, vocab: 4096", 4, 256,
     4, 1, "", BOTH | ALONE | SIDE},
    {"family: llama, layers: 1, hidden: 512, heads: 8, kv_heads: 8, ffn: 1408, vocab: 8192", 8, 512,
     1, 1, "recompute: {policy: full}\n", BOTH | ALONE | SIDE},
    {"family: llama, layers: 1, hidden: 576, heads: 9, kv_heads: 3, ffn: 1536, vocab: 49152, "
     "tie_embeddings: true",
     1, 128, 1, 1, "", BOTH | ALONE | WIDE},
    {"family: llama, layers: 1, hidden: 1024, heads: 16, kv_heads: 8, ffn: 2816, vocab: 2048", 8,
     128, 2, 1, "", BOTH | ALONE | SIDE},
    {"family: llama, layers: 2, hidden: 192, heads: 3, kv_heads: 3, ffn: 512, vocab: 2048", 3, 1024,
     2, 1, "", BOTH | ALONE},
    {"family: gpt2, layers: 2, hidden: 192, heads: 6, vocab: 4096", 6, 64, 4, 1, "",
     BOTH | ALONE | SIDE},
    {"family: gpt2, layers: 2, hidden: 384, heads: 6, vocab: 2048, dropout: 0.1", 6, 512, 2, 1, "",
     BOTH | ALONE | SIDE},
    {"family: gpt2, layers: 1, hidden: 768, heads: 12, vocab: 50257", 1, 64, 2, 1, "",
     BOTH | ALONE | WIDE},
    {"family: gpt2, layers: 1, hidden: 768, heads: 12, vocab: 8192", 12, 256, 2, 1,
     "recompute: {policy: selective}\n", BOTH | ALONE},
    {"family: mixtral, layers: 2, hidden: 128, heads: 4, kv_heads: 2, ffn: 384, vocab: 1024, "
     "moe: {experts: 8, top: 2}",
     2, 128, 4, 1, "", BOTH | ALONE | SIDE},
    {"family: mixtral, layers: 1, hidden: 256, heads: 8, kv_heads: 4, ffn: 512, vocab: 1024, "
     "moe: {experts: 4, top: 2}",
     4, 256, 2, 1, "", BOTH | ALONE},
    {"family: llama, layers: 1, hidden: 256, heads: 8, kv_heads: 4, ffn: 704, vocab: 1024", 0, 128,
     2, 1, "optimizer: {name: muon}\n", ALONE},
    {"family: llama, layers: 2, hidden: 128, heads: 4, kv_heads: 4, ffn: 352, vocab: 1024", 0, 128,
     2, 1, "optimizer: {name: muon}\n", ALONE},
    {"family: llama, layers: 1, hidden: 384, heads: 6, kv_heads: 6, ffn: 1056, vocab: 1024", 0, 128,
     2, 1, "optimizer: {name: muon}\n", ALONE},
    {"family: resnet18, width: 16, image: 32, channels: 1, classes: 10", 0, 1, 32, 1,
     "optimizer: {name: sgd}\n", BOTH | ALONE | SIDE | IMAGES},
    {"family: resnet18, width: 32, image: 64, channels: 1, classes: 10", 0, 1, 8, 1,
     "optimizer: {name: sgd}\n", BOTH | ALONE | IMAGES},
    {"family: resnet18, width: 20, image: 40, channels: 1, classes: 10", 0, 1, 16, 1,
     "optimizer: {name: sgd}\n", BOTH | ALONE | IMAGES},
    {"family: resnet50, width: 16, image: 32, channels: 1, classes: 10", 0, 1, 16, 1,
     "optimizer: {name: sgd}\n", BOTH | ALONE | IMAGES},
};

/* %d: the ranks. `cuts_heads`: only where they divide the model's. */
static const struct {
    const char *text;
    bool cuts_heads, images;
} layouts[] = {{"dp: %d", false, true},
               {"dp: %d, zero: 1", false, false},
               {"dp: %d, zero: 3", false, false},
               {"dp: 1, tp: %d", true, false}};

/* ---- data ---- */

enum { TOKENS = 1 << 17, NARROW_IDS = 512, WIDE_IDS = 49152, PICTURES = 256, SIDE_PIXELS = 32 };

static gw_status write_tokens(const char *prefix, int64_t vocab, gw_diags *dg) {
    gw_midx_writer *w = NULL;
    gw_rng_key key = gw_rng_key_named(1, "calibrate");
    uint32_t *ids = gw_mem_alloc(sizeof *ids * TOKENS);
    for (int64_t i = 0; i < TOKENS; i++)
        ids[i] = (uint32_t)(gw_rng_u64(key, (uint64_t)i) % (uint64_t)vocab);
    gw_status st = gw_midx_writer_new(prefix, WIDE_IDS, &w, dg);
    if (st == GW_OK) st = gw_midx_writer_doc(w, ids, TOKENS, dg);
    if (st == GW_OK) st = gw_midx_writer_finish(w, dg);
    gw_midx_writer_free(w);
    gw_mem_free(ids);
    return st;
}

static void big_endian(unsigned char *p, uint32_t x) {
    for (int i = 0; i < 4; i++) p[i] = (unsigned char)(x >> (24 - 8 * i));
}

/* The IDX format: data/images.h. */
static gw_status write_images(const char *dir, gw_arena *a, gw_diags *dg) {
    enum { PIXELS = SIDE_PIXELS * SIDE_PIXELS };
    gw_rng_key key = gw_rng_key_named(2, "calibrate");
    unsigned char *x = gw_arena_alloc(a, 16 + PICTURES * PIXELS),
                  *y = gw_arena_alloc(a, 8 + PICTURES);
    big_endian(x, 0x803);
    big_endian(x + 4, PICTURES);
    big_endian(x + 8, SIDE_PIXELS);
    big_endian(x + 12, SIDE_PIXELS);
    for (int i = 0; i < PICTURES * PIXELS; i++)
        x[16 + i] = (unsigned char)gw_rng_u64(key, (uint64_t)i);
    big_endian(y, 0x801);
    big_endian(y + 4, PICTURES);
    for (int i = 0; i < PICTURES; i++) y[8 + i] = (unsigned char)(i % 10);
    GW_TRY(gw_file_write_atomic(gw_path_join(a, dir, "images-images-idx3-ubyte"), x,
                                16 + PICTURES * PIXELS, dg));
    return gw_file_write_atomic(gw_path_join(a, dir, "images-labels-idx1-ubyte"), y, 8 + PICTURES,
                                dg);
}

gw_status gw_calib_data(const char *dir, gw_diags *dg) {
    gw_arena a = {0};
    gw_status st = write_tokens(gw_path_join(&a, dir, "narrow"), NARROW_IDS, dg);
    if (st == GW_OK) st = write_tokens(gw_path_join(&a, dir, "wide"), WIDE_IDS, dg);
    if (st == GW_OK) st = write_images(dir, &a, dg);
    gw_arena_release(&a);
    return st;
}

static void run_text(const model *m, bool bf16, const char *layout, int ranks, const char *dir,
                     gw_str *out) {
    bool images = m->use & IMAGES;
    gw_str_printf(out, "model: {%s}\n", m->model);
    gw_str_printf(out, "data: {train: '%s/%s'%s}\n", dir,
                  images          ? "images"
                  : m->use & WIDE ? "wide"
                                  : "narrow",
                  images ? "" : ", tokenizer: bytes");
    gw_str_printf(out, "train: {steps: 1000, micro_batch: %d, accumulate: %d", m->micro_batch,
                  m->accumulate);
    if (!images) gw_str_printf(out, ", seq_len: %d", m->seq);
    gw_str_printf(out, "}\nprecision: {compute: %s}\n", bf16 ? "bf16" : "fp32");
    gw_str_add(out, m->more);
    if (!layout) return;
    const char *at = strstr(layout, "%d");
    gw_str_printf(out, "layout: {%.*s%d%s}\n", (int)(at - layout), layout, ranks, at + 2);
}

/* ---- one program ---- */

typedef struct op_time {
    gw_oid op;
    double seconds;
} op_time;

typedef struct program {
    gw_session *s;
    const gw_graph *g;
    int ranks, id; /* id: the same in each round */
    GW_VEC(op_time) times;
    GW_VEC(double) rests;
    double ops; /* that the latest step ran */
    gw_calib_ops *out;
} program;

/* The latest step's events. A bucket's time is that of the op that launches it. */
static void take_step(program *p, double step_s) {
    const gw_buckets *b = gw_exec_buckets(p->s->x);
    gw_optimes_event e;
    int last = (int)GW_MIN(gw_optimes_steps(p->s->times), (int64_t)GW_OPTIMES_STEPS) - 1;
    double sum = 0;
    p->ops = 0;
    for (int64_t i = 0; gw_optimes_event_at(p->s->times, i, &e); i++) {
        if (e.step != last) continue;
        sum += (double)e.ns * 1e-9;
        if (e.op == GW_NONE) continue; /* the wait for data */
        p->ops++;
        const gw_op *o = &p->g->ops.items[e.op];
        if (e.ns == 0 && o->rate == GW_RATE_STEP) continue; /* sat out */
        if (b->of[e.op] >= 0 && b->items[b->of[e.op]].launch != e.op) continue;
        op_time t = {e.op, (double)GW_MAX(e.ns, INT64_C(1)) * 1e-9};
        gw_vec_push(&p->times, t);
    }
    gw_vec_push(&p->rests, fmax(0, step_s - sum));
}

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *x, int64_t n) {
    qsort(x, (size_t)n, sizeof *x, ascending);
    return n % 2 ? x[n / 2] : (x[n / 2 - 1] + x[n / 2]) / 2;
}

/* What op i is: names and shape. False: nothing to keep. */
static bool describe(const program *p, gw_oid i, gw_calib_found *f) {
    const gw_op *o = &p->g->ops.items[i];
    const gw_buckets *b = gw_exec_buckets(p->s->x);
    int32_t bucket = b->of[i];
    memset(f, 0, sizeof *f);
    f->ranks = p->ranks;
    f->program = p->id;
    if (bucket >= 0) {
        const gw_coll *c = &b->items[bucket].coll;
        if (c->wire != GW_WIRE_SAME) return false;
        snprintf(f->op, sizeof f->op, "%s", gw_coll_kind_name(c->kind));
        snprintf(f->kernel, sizeof f->kernel, "%s", c->algorithm ? c->algorithm : "by rule");
        gw_timing_coll_shape(c, &f->shape);
        return c->size > 1;
    }
    const gw_kernel *k = gw_exec_kernel(p->s->x, i);
    snprintf(f->op, sizeof f->op, "%s", gw_op_def(p->g, o)->name);
    snprintf(f->kernel, sizeof f->kernel, "%s", k ? k->name : "none");
    gw_timing_shape_of(p->g, o, gw_exec_rank(p->s->x), &f->shape);
    return true;
}

static bool same(const gw_calib_found *a, const gw_calib_found *b) {
    return a->ranks == b->ranks && a->program == b->program && strcmp(a->op, b->op) == 0 &&
           strcmp(a->kernel, b->kernel) == 0 && memcmp(&a->shape, &b->shape, sizeof a->shape) == 0;
}

/* Entries from `first` on are a program's: of those that an earlier round has too the quicker
 * stays. */
static void merge(gw_calib_ops *out, int first) {
    int kept = first;
    for (int at = first; at < out->n; at++) {
        gw_calib_found *x = &out->found[at];
        int old = 0;
        while (old < first && !same(&out->found[old], x)) old++;
        if (old == first) {
            out->found[kept++] = *x;
            continue;
        }
        out->found[old].seconds = GW_MIN(out->found[old].seconds, x->seconds);
        out->found[old].runs += x->runs;
    }
    out->n = kept;
}

/* One time for equal shapes, of this program alone. */
static void keep(program *p) {
    int64_t nops = p->g->ops.count;
    int32_t *group = gw_mem_zalloc(sizeof *group * (size_t)(nops + 1));
    double *all = gw_mem_alloc(sizeof *all * (size_t)(p->times.count + 1));
    int first = p->out->n;
    for (int64_t i = 0; i < nops; i++) {
        gw_calib_found f;
        group[i] = -1;
        if (p->out->n == GW_CALIB_FOUND || !describe(p, (gw_oid)i, &f)) continue;
        int at = first;
        while (at < p->out->n && !same(&p->out->found[at], &f)) at++;
        if (at == p->out->n) p->out->found[p->out->n++] = f;
        group[i] = at;
    }
    for (int at = first; at < p->out->n; at++) {
        int64_t n = 0;
        for (int64_t k = 0; k < p->times.count; k++)
            if (group[p->times.items[k].op] == at) all[n++] = p->times.items[k].seconds;
        p->out->found[at].runs = (int)n;
        p->out->found[at].seconds = n ? median(all, n) : 0;
    }
    int kept = first; /* what never ran has no time */
    for (int at = first; at < p->out->n; at++)
        if (p->out->found[at].runs > 0) p->out->found[kept++] = p->out->found[at];
    p->out->n = kept;
    merge(p->out, first);
    gw_mem_free(all);
    gw_mem_free(group);
}

static void keep_rest(program *p, bool images) {
    gw_calib_ops *out = p->out;
    gw_calib_step x = {.ranks = p->ranks,
                       .program = p->id,
                       .threads = p->s->setup.machine.threads,
                       .rest_s = median(p->rests.items, p->rests.count),
                       .ops = p->ops};
    int at = 0;
    while (at < out->nsteps &&
           (out->steps[at].ranks != x.ranks || out->steps[at].program != x.program))
        at++;
    if (images || at == GW_CALIB_STEPS) return;
    if (at < out->nsteps) x.rest_s = GW_MIN(x.rest_s, out->steps[at].rest_s);
    out->steps[at] = x;
    out->nsteps = GW_MAX(out->nsteps, at + 1);
}

/* The first step touches memory for the first time: it is thrown away, and says how many there are
 * to be, to all ranks alike. */
static gw_status train(program *p, double seconds, gw_diags *dg) {
    enum { FEWEST = 2, MOST = 24, MANY = 5 };
    gw_session_step_result r;
    GW_TRY(gw_session_step(p->s, &r, dg));
    int64_t n = (int64_t)(seconds / fmax(r.step_s, 1e-6));
    n = GW_MAX(GW_MIN(n, (int64_t)MOST), (int64_t)FEWEST);
    if (p->s->comm) GW_TRY(gw_comm_max_i64(p->s->comm, &n, 1, "calibrating", dg));
    if (n >= MANY) GW_TRY(gw_session_step(p->s, &r, dg));
    for (int64_t i = 0; i < n; i++) {
        GW_TRY(gw_session_step(p->s, &r, dg));
        take_step(p, r.step_s);
    }
    return GW_OK;
}

static gw_status run_model(gw_cli *cli, gw_comm *comm, const model *m, bool bf16,
                           const char *layout, const char *dir, double seconds, int id,
                           gw_calib_ops *out) {
    gw_str text = {0};
    gw_runfile rf;
    gw_session s;
    int ranks = comm ? gw_comm_size(comm) : 1;
    run_text(m, bf16, layout, ranks, dir, &text);
    gw_status st = gw_runfile_parse_for(&rf, "a model of calibrate", gw_str_c(&text),
                                        (int64_t)text.len, NULL, 0, ranks, cli->diags);
    if (st == GW_OK) {
        st = gw_session_open(&s, &rf, NULL, comm, cli->diags);
        if (st == GW_OK) {
            program p = {.s = &s, .g = gw_exec_graph(s.x), .ranks = ranks, .id = id, .out = out};
            st = train(&p, seconds, cli->diags);
            if (st == GW_OK && (!comm || gw_comm_rank(comm) == 0)) {
                keep(&p);
                keep_rest(&p, m->use & IMAGES);
            }
            gw_vec_release(&p.times);
            gw_vec_release(&p.rests);
        }
        gw_session_close(&s);
    }
    gw_runfile_release(&rf);
    gw_str_release(&text);
    return st;
}

/* ---- all of them ---- */

/* Calls of run_model for a number of ranks, or, with `out` NULL, their number. */
static gw_status each(gw_cli *cli, gw_comm *comm, const char *dir, double seconds,
                      gw_calib_ops *out, int *count) {
    int ranks = comm ? gw_comm_size(comm) : 1;
    *count = 0;
    for (size_t i = 0; i < GW_COUNT(models); i++) {
        const model *m = &models[i];
        if (!(m->use & (comm ? SIDE : ALONE))) continue;
        for (int bf16 = 0; bf16 <= (m->use & BOTH ? 1 : 0); bf16++)
            for (size_t k = 0; k < (comm ? GW_COUNT(layouts) : 1); k++) {
                const char *layout = comm ? layouts[k].text : NULL;
                if (comm && layouts[k].cuts_heads && (m->heads == 0 || m->heads % ranks)) continue;
                if (comm && (m->use & IMAGES) && !layouts[k].images) continue;
                /* Layouts by turns: each model has two of them, tp among these. */
                if (comm && !layouts[k].cuts_heads && !(m->use & IMAGES) && (i + k) % 3 != 0)
                    continue;
                int id = ++*count;
                if (out) GW_TRY(run_model(cli, comm, m, bf16 == 1, layout, dir, seconds, id, out));
            }
    }
    return GW_OK;
}

gw_status gw_calib_run(gw_cli *cli, gw_comm *comm, const char *dir, double seconds,
                       gw_calib_ops *out) {
    enum { ROUNDS = 2 };
    int n = 0;
    GW_TRY(each(cli, comm, dir, 0, NULL, &n));
    double part = seconds / GW_MAX(n, 1) / ROUNDS;
    for (int i = 0; i < ROUNDS; i++) GW_TRY(each(cli, comm, dir, part, out, &n));
    if (!comm || gw_comm_rank(comm) == 0) out->programs += n;
    return GW_OK;
}

/* ---- as timings ---- */

/* rest = step_s + ops op_s */
static gw_timing_side side_of(const gw_calib_ops *f, int ranks) {
    gw_timing_side s = {.ranks = ranks, .threads = 1};
    double n = 0, x = 0, y = 0, xx = 0, xy = 0;
    for (int i = 0; i < f->nsteps; i++) {
        const gw_calib_step *t = &f->steps[i];
        if (t->ranks != ranks) continue;
        s.threads = t->threads;
        n++, x += t->ops, y += t->rest_s, xx += t->ops * t->ops, xy += t->ops * t->rest_s;
    }
    if (n < 1) return s;
    double spread = n * xx - x * x;
    if (spread > 0) s.op_s = fmax(0, (n * xy - x * y) / spread);
    s.step_s = (y - s.op_s * x) / n;
    if (s.step_s >= 0) return s;
    s.step_s = 0;
    s.op_s = xx > 0 ? xy / xx : 0;
    return s;
}

static bool has_side(const gw_timings *t, int ranks) {
    for (int i = 0; i < t->nsides; i++)
        if (t->sides[i].ranks == ranks) return true;
    return t->nsides == GW_TIMING_SIDES;
}

void gw_calib_timings(const gw_calib_ops *f, gw_arena *a, gw_timings *out) {
    out->timings = gw_arena_new(a, gw_timing, f->n + 1);
    out->n = f->n;
    for (int i = 0; i < f->n; i++) {
        const gw_calib_found *x = &f->found[i];
        out->timings[i] =
            (gw_timing){x->op, x->kernel, x->shape, x->ranks, x->runs, GW_MAX(x->seconds, 1e-9)};
    }
    for (int i = 0; i < f->nsteps; i++)
        if (!has_side(out, f->steps[i].ranks))
            out->sides[out->nsides++] = side_of(f, f->steps[i].ranks);
    gw_timings_sort(out);
}
