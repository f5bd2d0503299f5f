// SPDX-License-Identifier: Apache-2.0
// `data build`: the driver.
//
// Everything that a worker needs is made once, before there are workers: filters with their lists,
// the language model, permutations, the tokenizer. Each worker is a fork with a copy of its own.
// Then four phases follow one another, each a map over units, bands or shards:
//
//     map -> dedup -> emit -> shards -> manifest and report
//
// A phase finds out by keys what is there already, so the driver keeps no state: to continue is to
// run again. A lock on the work folder keeps two builds apart. Options are hashed as text, by
// phase, each phase with exactly the keys that its results depend on.
//
// Under mpirun or srun every rank runs this file and does its share of each map in its own process,
// over one shared folder; rank 0 alone writes what there is one of.
#include "data/build/build.h" /* this module's contract */

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"             /* gw_clock_ns */
#include "base/str.h"               /* gw_str_starts */
#include "base/term.h"              /* gw_progress */
#include "comm/comm.h"              /* gw_comm_rank */
#include "data/build/build_impl.h"  /* gw_databuild */
#include "data/build/dedup_phase.h" /* gw_build_dedup */
#include "data/build/pool.h"        /* gw_pool */
#include "data/build/sweep.h"       /* gw_build_sweep */
#include "file/json.h"              /* gw_json_read_file */
#include "run/exec_comm.h"          /* gw_exec_agree */
#include "version.h"                /* GW_VERSION */

// ------------------------------------------------------------------ making the stages

static gw_hash128 hash_text(const gw_pipeline *p, const char *prefixes, const char *more) {
    gw_str t = {0};
    gw_pipeline_text(p, prefixes, &t);
    gw_str_add(&t, more);
    gw_hash128 h = gw_hash128_of(gw_str_c(&t), t.len);
    gw_str_release(&t);
    return h;
}

static void hash_options(gw_databuild *b) {
    char hash[33] = "";
    gw_arena *a = b->arena;
    const char *language = b->langid ? gw_langid_version(b->langid) : "none";
    const char *map = gw_arena_printf(a, "%s\n%s\n%s", GW_VERSION, language,
                                      gw_filters_measured_text(b->filters));
    uint64_t recipe = b->minhash ? gw_minhash_recipe_tag(gw_minhash_recipe_of(b->minhash)) : 0;
    const char *keys = gw_arena_printf(a, "%d %016llx", b->nkeys, (unsigned long long)recipe);
    b->map_options = hash_text(
        b->p,
        "input.kind input.text_key input.url_key input.date_key input.html input.check_digests "
        "input.strict input.max_record_bytes extract. keep_removed",
        map);
    b->keys_options = hash_text(b->p, "dedup.exact", keys);
    b->decide_options = hash_text(b->p, "dedup.exact",
                                  gw_arena_printf(a, "%s\n%s", keys, gw_filters_text(b->filters)));
    if (b->tokenizer) gw_hash128_hex(hash, gw_tokenizer_hash(b->tokenizer));
    b->emit_options = hash_text(b->p,
                                "pii. tokenizer.append_eos tokenizer.parse_specials "
                                "output.text output.url",
                                hash);
}

static void set_source(gw_databuild *b) {
    const gw_pipeline *p = b->p;
    b->source = gw_source_options_default();
    b->source.kind = (gw_source_kind)p->input.kind;
    b->source.text_key = p->input.text_key;
    b->source.url_key = p->input.url_key;
    b->source.date_key = p->input.date_key;
    b->source.html = p->input.html;
    b->source.check_digests = p->input.check_digests;
    b->source.strict = p->input.strict;
    b->source.max_record_bytes = p->input.max_record_bytes;
    b->extract_options = gw_extract_options_default();
    b->extract_options.favour = (gw_favour)p->extract.favour;
    b->extract_options.main_text = p->extract.main_text;
    b->extract_options.comments = p->extract.comments;
    b->extract_options.tables = p->extract.tables;
    b->extract_options.list_marks = p->extract.list_marks;
    b->extract = gw_extract_new();
}

static void set_pii(gw_databuild *b) {
    const int hows[GW_PII_KINDS] = {[GW_PII_EMAIL] = b->p->pii.email,
                                    [GW_PII_IP] = b->p->pii.ip,
                                    [GW_PII_PHONE] = b->p->pii.phone,
                                    [GW_PII_CARD] = b->p->pii.card,
                                    [GW_PII_SECRET] = b->p->pii.secret};
    b->pii = gw_pii_new();
    b->pii_options.all_ips = b->p->pii.all_ips;
    for (int k = 0; k < GW_PII_KINDS; k++) {
        b->pii_options.how[k] = (gw_pii_how)hows[k];
        b->pii_on = b->pii_on || hows[k] != GW_PII_OFF;
    }
}

static gw_spans *new_spans(const gw_pipeline *p, gw_span_kind kind) {
    gw_span_options o = gw_span_options_default(kind);
    o.min_bytes = (int)p->dedup.span_bytes;
    o.normalise = o.normalise || p->dedup.span_simplified;
    return gw_spans_new(&o);
}

static gw_status set_dedup(gw_databuild *b, gw_diags *dg) {
    const gw_pipeline *p = b->p;
    int bands = 0;
    if (!gw_str_eq(p->dedup.near, "none")) {
        const gw_minhash_recipe *r = gw_minhash_recipe_find(p->dedup.near);
        GW_TRY(gw_minhash_open(r, &b->minhash, dg));
        bands = r->bands;
        b->signature = gw_arena_new(b->arena, uint64_t, gw_minhash_values(b->minhash));
    }
    b->nkeys = bands + (p->dedup.exact ? 1 : 0);
    b->row_keys = gw_arena_new(b->arena, gw_hash128, b->nkeys + 1);
    for (int k = 0; k < GW_SPAN_KINDS; k++)
        if (p->dedup.spans >> k & 1) b->spans[k] = new_spans(p, (gw_span_kind)k);
    if (p->dedup.bloom == GW_BLOOM_PARAGRAPHS) b->seen_spans = new_spans(p, GW_SPAN_PARAGRAPHS);
    if (p->dedup.bloom == GW_BLOOM_LINES) b->seen_spans = new_spans(p, GW_SPAN_LINES);
    return gw_build_check_dedup(b, dg);
}

static gw_status set_tokenizer(gw_databuild *b, gw_diags *dg) {
    const gw_pipeline *p = b->p;
    bool shards = p->output.format != GW_FORMAT_NONE;
    bool cuts = p->dedup.substring > 0 && p->dedup.substring_of == GW_SUBSTRING_TOKENS;
    gw_tokenizer_options o = {.pattern = p->tokenizer.pattern,
                              .unicode_version = (int)p->tokenizer.unicode};
    if (!shards && !cuts) return GW_OK;
    GW_TRY(gw_tokenizer_open(p->tokenizer.path, &o, shards ? &b->tokenizer : &b->own_cutter, dg));
    b->scratch = gw_tok_scratch_new();
    if (cuts) b->cutter = shards ? b->tokenizer : b->own_cutter;
    if (!shards) return GW_OK;
    if (!p->tokenizer.append_eos || gw_tokenizer_eos(b->tokenizer) >= 0) return GW_OK;
    gw_diag *g = gw_diag_add(dg, GW_ERROR, GW_ERR_CONFIG, "data-no-eos",
                             gw_pipeline_where(p, "tokenizer.path"),
                             "the tokenizer has no end-of-text token to put after documents");
    gw_diag_hint(dg, g,
                 "name one (eos_token in tokenizer_config.json), or set "
                 "tokenizer.append_eos: false");
    return GW_ERR_CONFIG;
}

static gw_status first_of(gw_status a, gw_status b) { return a != GW_OK ? a : b; }

/* A filter by language takes every document where nobody names languages. */
static gw_status set_language(gw_databuild *b, gw_diags *dg) {
    const gw_pipeline *p = b->p;
    if (!gw_str_eq(p->language.model, "none"))
        return gw_langid_open(p->language.model, &b->langid, dg);
    for (int f = 0; b->filters && f < gw_filters_count(b->filters); f++) {
        const char *name = gw_filters_desc(b->filters, f)->name;
        if (!gw_str_starts(name, "language/")) continue;
        gw_diag *g = gw_diag_add(
            dg, GW_ERROR, GW_ERR_CONFIG, "config-value", gw_pipeline_where(p, "language.model"),
            "language.model is none, and the filter %s asks for languages", name);
        gw_diag_hint(dg, g, "leave language.model out, or the filter");
        return GW_ERR_CONFIG;
    }
    return GW_OK;
}

/* All faults of the options are reported before anything is done. */
static gw_status make(gw_databuild *b, gw_diags *dg) {
    gw_status st;
    b->work = gw_path_join(b->arena, b->p->output.dir, "work");
    set_source(b);
    set_pii(b);
    st = gw_filters_new(b->p->filters, b->p->file, &b->filters, dg);
    if (st == GW_OK && !b->p->measure_removed) gw_filters_until_removed(b->filters);
    st = first_of(st, set_dedup(b, dg));
    st = first_of(st, set_tokenizer(b, dg));
    st = first_of(st, set_language(b, dg));
    st = first_of(st, gw_units_find(b->p, b->arena, &b->units, dg));
    if (st != GW_OK) return st;
    b->signals = gw_arena_new(b->arena, double, gw_filters_columns(b->filters) + 1);
    hash_options(b);
    return GW_OK;
}

static void unmake(gw_databuild *b) {
    gw_extract_free(b->extract);
    gw_langid_free(b->langid);
    gw_filters_free(b->filters);
    gw_minhash_free(b->minhash);
    for (int k = 0; k < GW_SPAN_KINDS; k++) gw_spans_free(b->spans[k]);
    gw_spans_free(b->seen_spans);
    gw_pii_free(b->pii);
    gw_tok_scratch_free(b->scratch);
    gw_tokenizer_free(b->tokenizer);
    gw_tokenizer_free(b->own_cutter);
}

static int cores(void) {
    long n = sysconf(_SC_NPROCESSORS_ONLN);
    return n > 0 ? (int)GW_MIN(n, 4096) : 1;
}

// ------------------------------------------------------------------ one build at a time

static bool leads(const gw_databuild *b) { return !b->o->comm || gw_comm_rank(b->o->comm) == 0; }

/* Workers of a build that was killed hold its lock until they have ended too. */
static int wait_for_lock(int fd) {
    enum { TRIES = 150, EACH_MS = 20 };
    int got = -1;
    for (int i = 0; i < TRIES; i++) {
        got = flock(fd, LOCK_EX | LOCK_NB);
        if (got == 0 || errno != EWOULDBLOCK) return got;
        nanosleep(&(struct timespec){.tv_nsec = EACH_MS * 1000000L}, NULL);
    }
    return got;
}

static gw_status take_lock(const gw_databuild *b, int *fd, gw_diags *dg) {
    const char *path = gw_path_join(b->arena, b->work, "lock");
    *fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (*fd < 0) return gw_io_fail(dg, "file-create", "create", path, errno);
    if (wait_for_lock(*fd) == 0) return GW_OK;
    bool busy = errno == EWOULDBLOCK;
    close(*fd);
    *fd = -1;
    if (!busy) return GW_OK; /* a file system without locks */
    gw_diag *g = gw_diag_add(dg, GW_ERROR, GW_ERR_IO, "data-busy", (gw_where){.file = path},
                             "another build works in this folder");
    gw_diag_hint(dg, g, "wait for it, or name another output.dir");
    return GW_ERR_IO;
}

// ------------------------------------------------------------------ phases

typedef struct phase {
    const char *name;
    gw_databuild *b;
    gw_progress line;
    int64_t start_ns, tasks;
} phase;

static void show_progress(void *user, int64_t task, int64_t finished) {
    phase *f = ((gw_databuild *)user)->progress;
    (void)task;
    if (!f) return;
    double s = (double)(gw_clock_ns() - f->start_ns) * 1e-9;
    gw_progress_show(&f->line, finished == f->tasks, "%s: %lld of %lld units, %.0f s", f->name,
                     (long long)finished, (long long)f->tasks, s);
}

static gw_status over_units(gw_databuild *b, const char *name, gw_pool_task *work, bool results,
                            gw_diags *dg) {
    phase f = {.name = name, .b = b, .start_ns = gw_clock_ns(), .tasks = b->units.count};
    gw_progress_init(&f.line, stderr, 30);
    b->progress = b->o->progress && leads(b) ? &f : NULL;
    gw_pool p = {.workers = b->workers,
                 .tasks = b->units.count,
                 .name = gw_build_unit_name,
                 .begin = results ? gw_build_open_results : NULL,
                 .end = results ? gw_build_close_results : NULL,
                 .work = work,
                 .done = show_progress,
                 .user = b,
                 .stop = b->o->stop,
                 .comm = b->o->comm};
    gw_status st = gw_pool_run(&p, dg);
    gw_progress_end(&f.line);
    b->progress = NULL;
    return st;
}

static double cpu_seconds(void) {
    double sum = 0;
    const int who[2] = {RUSAGE_SELF, RUSAGE_CHILDREN};
    for (int i = 0; i < 2; i++) {
        struct rusage u;
        getrusage(who[i], &u);
        sum += (double)u.ru_utime.tv_sec + (double)u.ru_stime.tv_sec +
               1e-6 * (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec);
    }
    return sum;
}

/* A phase that is found done takes no time: what counts is the longest that it took. */
static void remember_times(const gw_databuild *b, double *seconds) {
    static const char *const names[GW_PHASES] = {"map", "dedup", "emit", "shards"};
    const char *path = gw_path_join(b->arena, b->work, "times.json");
    json_t *old = NULL, *now = json_object();
    if (gw_path_exists(path)) (void)!gw_json_read_file(path, 0, &old, NULL);
    for (int i = 0; i < GW_PHASES; i++) {
        seconds[i] = GW_MAX(seconds[i], json_number_value(json_object_get(old, names[i])));
        json_object_set_new(now, names[i], json_real(seconds[i]));
    }
    (void)!gw_json_write_file(path, now, 0, NULL);
    json_decref(old);
    json_decref(now);
}

static gw_status all_phases(gw_databuild *b, json_t **report, gw_diags *dg) {
    double at[GW_PHASES + 1], seconds[GW_PHASES];
    json_t *shards = NULL;
    at[0] = cpu_seconds();
    GW_TRY(over_units(b, "extracting", gw_build_map_unit, false, dg));
    at[1] = cpu_seconds();
    GW_TRY(gw_build_dedup(b, dg));
    at[2] = cpu_seconds();
    GW_TRY(over_units(b, "tokenizing", gw_build_emit_unit, true, dg));
    at[3] = cpu_seconds();
    gw_status st = gw_build_shards(b, &shards, dg);
    at[4] = cpu_seconds();
    for (int i = 0; i < GW_PHASES; i++) seconds[i] = at[i + 1] - at[i];
    if (st == GW_OK && leads(b)) remember_times(b, seconds);
    if (st == GW_OK) st = gw_build_report(b, shards, seconds, leads(b), report, dg);
    json_decref(shards);
    return st;
}

gw_status gw_data_build(const gw_pipeline *p, const gw_build_options *o, json_t **report,
                        gw_diags *dg) {
    gw_arena a;
    int lock = -1;
    json_t *r = NULL;
    gw_databuild b = {.p = p, .o = o, .arena = &a};
    gw_arena_init(&a);
    b.workers = o->workers > 0 ? o->workers : p->run.workers > 0 ? (int)p->run.workers : cores();
    if (o->comm) b.workers = gw_comm_size(o->comm);
    gw_status st = make(&b, dg);
    if (st == GW_OK) st = gw_dir_make(b.work, dg);
    if (st == GW_OK && leads(&b)) st = take_lock(&b, &lock, dg);
    if (lock >= 0) gw_build_sweep(p);
    if (o->comm) st = gw_exec_agree(o->comm, st, NULL, "starting", dg);
    if (st == GW_OK) st = all_phases(&b, &r, dg);
    if (lock >= 0) close(lock);
    unmake(&b);
    gw_arena_release(&a);
    if (report)
        *report = r;
    else
        json_decref(r);
    return st;
}

// ------------------------------------------------------------------ a dry run

gw_status gw_data_build_dry(const gw_pipeline *p, json_t **out, gw_diags *dg) {
    gw_arena a;
    gw_build_options o = {0};
    gw_databuild b = {.p = p, .o = &o, .arena = &a, .workers = 1};
    int64_t there = 0;
    *out = NULL;
    gw_arena_init(&a);
    gw_status st = make(&b, dg);
    for (int64_t u = 0; u < b.units.count && st == GW_OK; u++) {
        gw_build_key key = gw_build_docs_key(&b, u);
        gw_columns *c = gw_build_open_if(gw_build_unit_path(&b, &a, GW_UNIT_DOCS, u), &key);
        there += c != NULL;
        gw_columns_close(c);
    }
    if (st == GW_OK)
        *out = json_pack("{s:I, s:I, s:I, s:I, s:s, s:s}", "units", (json_int_t)b.units.count,
                         "files", (json_int_t)b.units.nfiles, "bytes", (json_int_t)b.units.bytes,
                         "extracted", (json_int_t)there, "filters", gw_filters_text(b.filters),
                         "tokenizer", b.tokenizer ? gw_tokenizer_describe(b.tokenizer) : "none");
    unmake(&b);
    gw_arena_release(&a);
    return st;
}
