// SPDX-License-Identifier: Apache-2.0
// The dedup phase: keys of all units to lists of what goes.
//
// Its steps follow one another, each over what the earlier ones have left of the documents:
//
//     bloom: documents -> equal and alike documents -> lines, paragraphs, sentences
//                                                   -> bloom: paragraphs or lines
//                                                   -> substrings
//
// The last three find ranges, do not look at each other's, and are cut out together when texts
// become tokens. Of each step the tag is a hash of everything its keys come from, the steps before
// it included, so it is done again when any unit's keys have changed and found done otherwise.
// Units bring their keys by all workers, bands are sorted by all workers, and one process joins
// them.
#include "data/build/dedup_phase.h" /* this module's contract */

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "comm/comm.h"             /* gw_comm_rank */
#include "data/build/dedup_impl.h" /* the steps */
#include "run/exec_comm.h"         /* gw_exec_agree */

const char *const gw_cut_names[GW_CUTS] = {[GW_CUT_LINES] = "lines",
                                           [GW_CUT_PARAGRAPHS] = "paragraphs",
                                           [GW_CUT_SENTENCES] = "sentences",
                                           [GW_CUT_SUBSTRINGS] = "substrings",
                                           [GW_CUT_SEEN] = "seen"};

static bool sees_documents(const gw_databuild *b) {
    return b->p->dedup.bloom == GW_BLOOM_DOCUMENTS;
}
static bool sees_parts(const gw_databuild *b) { return b->seen_spans != NULL; }

// ------------------------------------------------------------------ what was found

static gw_status open_lists(gw_databuild *b, int lists, gw_diags *dg) {
    if (lists > GW_GONE_SEEN && sees_documents(b))
        GW_TRY(gw_bloom_pass_result(&b->bloom, &b->removed[GW_GONE_SEEN], dg));
    if (lists > GW_GONE_ALIKE && b->nkeys)
        GW_TRY(gw_dedup_result_open(&b->docs_dedup, &b->removed[GW_GONE_ALIKE], dg));
    return GW_OK;
}

static gw_status open_none(void *build, void **state, gw_diags *dg) {
    *state = NULL;
    return open_lists(build, GW_GONE_SEEN, dg);
}

static gw_status open_seen(void *build, void **state, gw_diags *dg) {
    *state = NULL;
    return open_lists(build, GW_GONE_ALIKE, dg);
}

gw_status gw_build_open_removed(void *build, void **state, gw_diags *dg) {
    *state = NULL;
    return open_lists(build, GW_GONE_LISTS, dg);
}

gw_status gw_build_open_results(void *build, void **state, gw_diags *dg) {
    gw_databuild *b = build;
    GW_TRY(gw_build_open_removed(build, state, dg));
    for (int k = 0; k < GW_SPAN_KINDS; k++)
        if (b->spans[k]) GW_TRY(gw_dedup_result_open(&b->spans_dedup[k], &b->ranges[k], dg));
    if (sees_parts(b)) GW_TRY(gw_bloom_pass_result(&b->bloom, &b->ranges[GW_CUT_SEEN], dg));
    if (!b->p->dedup.substring) return GW_OK;
    gw_substring_options whole = b->substring;
    whole.parts = 1;
    return gw_substring_result(&whole, &b->ranges[GW_CUT_SUBSTRINGS], dg);
}

void gw_build_close_results(void *build, void *state) {
    gw_databuild *b = build;
    (void)state;
    for (int i = 0; i < GW_GONE_LISTS; i++) {
        gw_dedup_result_free(b->removed[i]);
        b->removed[i] = NULL;
    }
    for (int i = 0; i < GW_CUTS; i++) {
        gw_dedup_result_free(b->ranges[i]);
        b->ranges[i] = NULL;
    }
}

// ------------------------------------------------------------------ running

gw_status gw_build_each_unit(gw_databuild *b, gw_pool_task *work, int lists, gw_diags *dg) {
    gw_pool p = {.workers = b->workers,
                 .tasks = b->units.count,
                 .name = gw_build_unit_name,
                 .begin = lists == GW_GONE_LISTS   ? gw_build_open_removed
                          : lists == GW_GONE_ALIKE ? open_seen
                                                   : open_none,
                 .end = gw_build_close_results,
                 .work = work,
                 .user = b,
                 .stop = b->o->stop,
                 .comm = b->o->comm};
    return gw_pool_run(&p, dg);
}

gw_status gw_build_by_leader(gw_databuild *b, gw_build_alone *work, const char *what,
                             gw_diags *dg) {
    gw_comm *c = b->o->comm;
    gw_status st = !c || gw_comm_rank(c) == 0 ? work(b, dg) : GW_OK;
    return c ? gw_exec_agree(c, st, NULL, what, dg) : st;
}

static gw_status band_task(void *user, void *state, int64_t task, gw_diags *dg) {
    (void)state;
    return gw_dedup_task(user, task, dg);
}

static const char *band_name(void *user, int64_t task) {
    (void)task;
    return ((const gw_dedup_options *)user)->dir;
}

gw_status gw_build_run_dedup(gw_databuild *b, gw_dedup_options *o, gw_diags *dg) {
    if (gw_dedup_done(o)) return GW_OK;
    if (b->o->comm) return gw_dedup_run(o, b->o->comm, dg);
    gw_pool p = {.workers = b->workers,
                 .tasks = gw_dedup_tasks(o),
                 .name = band_name,
                 .work = band_task,
                 .user = o,
                 .stop = b->o->stop};
    GW_TRY(gw_pool_run(&p, dg));
    return gw_dedup_cluster(o, dg);
}

// ------------------------------------------------------------------ tags

/* Contents of all .keep files, and what is kept: documents, bytes. */
static gw_status all_keeps(const gw_databuild *b, gw_hasher *h, int64_t kept[2], gw_diags *dg) {
    kept[0] = kept[1] = 0;
    for (int64_t i = 0; i < b->units.count; i++) {
        gw_columns *c;
        GW_TRY(gw_build_open_unit(b, GW_UNIT_KEEP, i, &c, dg));
        gw_hash128 content = gw_columns_content(c);
        gw_hasher_add(h, &content, sizeof content);
        const json_t *v = json_object_get(gw_columns_meta(c), "verdicts");
        kept[0] += json_integer_value(json_object_get(v, "kept"));
        kept[1] += json_integer_value(json_object_get(v, "kept_bytes"));
        gw_columns_close(c);
    }
    return GW_OK;
}

static int64_t memory_each(const gw_databuild *b) {
    return GW_MAX((int64_t)GW_DEDUP_MEMORY_MIN, b->p->run.memory / b->workers);
}

/* Tasks that hold some ten million documents each, by the number of documents alone. */
static int parts_for(int64_t kept) {
    int parts = 1;
    while (parts < 256 && kept / parts > 20000000) parts *= 2;
    return parts;
}

/* A hash of a tag and of all keys that begin with one of the prefixes. */
static uint64_t tag_with(const gw_databuild *b, uint64_t tag, const char *prefixes) {
    gw_str text = {0};
    gw_pipeline_text(b->p, prefixes, &text);
    tag = gw_hash64(gw_str_c(&text), text.len, tag);
    gw_str_release(&text);
    return tag;
}

/* An earlier filter is known by its path, size and time, as inputs are. */
static uint64_t tag_of_file(const char *path, uint64_t tag) {
    struct stat s;
    int64_t v[2] = {0};
    if (!path || stat(path, &s) != 0) return tag;
    v[0] = (int64_t)s.st_size;
    v[1] = (int64_t)s.st_mtim.tv_sec * 1000000000 + s.st_mtim.tv_nsec;
    return gw_hash64(v, sizeof v, tag);
}

// ------------------------------------------------------------------ an index

/* What keys of documents, or of spans, are made by: an index must have been made so too. */
static uint64_t recipe_of_documents(const gw_databuild *b) {
    uint64_t v[2] = {b->minhash ? gw_minhash_recipe_tag(gw_minhash_recipe_of(b->minhash)) : 0,
                     b->p->dedup.exact};
    return gw_hash64(v, sizeof v, 0x646f6373);
}

static uint64_t recipe_of_spans(const gw_databuild *b, int kind) {
    int64_t v[3] = {kind, b->p->dedup.span_bytes, b->p->dedup.span_simplified};
    return gw_hash64(v, sizeof v, 0x7370616e);
}

static gw_status no_such_index(const gw_databuild *b, const char *folder, const char *why,
                               gw_diags *dg) {
    gw_diag *g = gw_diag_add(dg, GW_ERROR, GW_ERR_CONFIG, "dedup-index",
                             gw_pipeline_where(b->p, "dedup.index"), "'%s': %s", folder, why);
    gw_diag_hint(dg, g,
                 "dedup.near, exact, spans, span_bytes and span_simplified must be those of the "
                 "build that wrote it");
    return GW_ERR_CONFIG;
}

/* `name`: of the folder within the index. Sets index, index_out, and the parts that it has. */
static gw_status set_index(const gw_databuild *b, gw_dedup_options *o, const char *name,
                           gw_diags *dg) {
    gw_dedup_index_info x;
    const gw_pipeline *p = b->p;
    if (p->dedup.index_out) o->index_out = gw_path_join(b->arena, p->dedup.index_out, name);
    if (!p->dedup.index) return GW_OK;
    o->index = gw_path_join(b->arena, p->dedup.index, name);
    o->index_only = p->dedup.index_only;
    if (!gw_path_is_dir(o->index))
        return no_such_index(b, o->index, "this index has no keys of that kind", dg);
    GW_TRY(gw_dedup_index_look(o->index, &x, dg));
    if (x.recipe == o->recipe) GW_TRY(gw_dedup_index_bands(o->index, &x, o->bands, dg));
    if (x.recipe != o->recipe || x.bands != o->bands)
        return no_such_index(b, o->index, "this index has keys that were made in another way", dg);
    o->parts = x.parts;
    o->tag = gw_hash64(&x.content, sizeof x.content, o->tag + o->index_only);
    return GW_OK;
}

// ------------------------------------------------------------------ options of all steps

/* What keys of the filter are of, as its file says it. */
static const char *seen_by_bloom(const gw_databuild *b) {
    const gw_pipeline *p = b->p;
    if (!sees_parts(b)) return "documents";
    return gw_arena_printf(b->arena, "%s, dedup.span_bytes %lld%s",
                           p->dedup.bloom == GW_BLOOM_LINES ? "lines" : "paragraphs",
                           (long long)p->dedup.span_bytes,
                           p->dedup.span_simplified ? ", dedup.span_simplified" : "");
}

static void set_bloom(gw_databuild *b, uint64_t tag) {
    const gw_pipeline *p = b->p;
    tag = tag_with(b, tag, "dedup.bloom dedup.span_bytes dedup.span_simplified");
    b->bloom = (gw_bloom_pass_options){.dir = gw_path_join(b->arena, b->work, "bloom"),
                                       .spans = sees_parts(b),
                                       .units = b->units.count,
                                       .expected = p->dedup.bloom_keys,
                                       .rate = p->dedup.bloom_rate,
                                       .memory_bytes = p->run.memory,
                                       .in = p->dedup.bloom_in,
                                       .out = p->dedup.bloom_out,
                                       .what = seen_by_bloom(b),
                                       .tag = tag_of_file(p->dedup.bloom_in, tag)};
}

static gw_status set_docs(gw_databuild *b, uint64_t tag, int parts, gw_diags *dg) {
    const gw_pipeline *p = b->p;
    double jaccard = b->minhash ? p->dedup.jaccard : 0;
    if (sees_documents(b)) tag = gw_hash64(&b->bloom.tag, sizeof b->bloom.tag, tag);
    if (jaccard > 0) tag = gw_hash64(&jaccard, sizeof jaccard, tag);
    b->docs_dedup = (gw_dedup_options){.dir = gw_path_join(b->arena, b->work, "dedup"),
                                       .bands = GW_MAX(1, b->nkeys),
                                       .exact_bands = p->dedup.exact ? 1 : 0,
                                       .parts = parts,
                                       .units = b->units.count,
                                       .memory_bytes = memory_each(b),
                                       .tag = tag,
                                       .recipe = recipe_of_documents(b),
                                       .jaccard = jaccard};
    return b->nkeys ? set_index(b, &b->docs_dedup, "documents", dg) : GW_OK;
}

static gw_status set_spans(gw_databuild *b, int kind, int parts, gw_diags *dg) {
    char text[96];
    const char *name = gw_cut_names[kind];
    snprintf(text, sizeof text, "%s %lld %d", name, (long long)b->p->dedup.span_bytes,
             b->p->dedup.span_simplified);
    gw_dedup_options *o = &b->spans_dedup[kind];
    *o = (gw_dedup_options){.dir = gw_arena_printf(b->arena, "%s/spans/%s", b->work, name),
                            .spans = true,
                            .bands = 1,
                            .parts = parts,
                            .units = b->units.count,
                            .memory_bytes = memory_each(b),
                            .tag = gw_hash64(text, strlen(text), b->docs_dedup.tag),
                            .recipe = recipe_of_spans(b, kind)};
    return set_index(b, o, name, dg);
}

/* A window begins at each of `bytes` at most, and a filter of 8 bytes for each of a part's windows
 * has few false alarms: with less memory there are more candidates, never another answer. */
static void set_substring(gw_databuild *b, int64_t bytes) {
    const gw_pipeline *p = b->p;
    uint64_t tag = tag_with(b, b->docs_dedup.tag, "dedup.substring");
    int64_t enough = GW_MAX(bytes / b->workers * 16, (int64_t)GW_DEDUP_MEMORY_MIN);
    if (b->cutter) {
        gw_hash128 h = gw_tokenizer_hash(b->cutter);
        tag = gw_hash64(&h, sizeof h, tag);
    }
    b->substring =
        (gw_substring_options){.dir = gw_path_join(b->arena, b->work, "substring"),
                               .length = (int)p->dedup.substring,
                               .keep_first = p->dedup.substring_keep == GW_SUBSTRING_FIRST,
                               .word_edges = p->dedup.substring_edges == GW_SUBSTRING_WORDS,
                               .memory_bytes = GW_MIN(memory_each(b), enough),
                               .units = b->units.count,
                               .tag = tag,
                               .parts = b->workers};
}

static gw_status set_up(gw_databuild *b, gw_diags *dg) {
    gw_hasher *h = gw_hasher_new();
    int64_t kept[2];
    gw_hasher_add(h, &b->keys_options, sizeof b->keys_options);
    gw_status st = all_keeps(b, h, kept, dg);
    uint64_t tag = gw_hasher_get(h).lo;
    gw_hasher_free(h);
    GW_TRY(st);
    int parts = parts_for(kept[0]);
    if (sees_documents(b)) set_bloom(b, tag);
    GW_TRY(set_docs(b, tag, parts, dg));
    for (int k = 0; k < GW_SPAN_KINDS; k++)
        if (b->spans[k]) GW_TRY(set_spans(b, k, parts, dg));
    if (sees_parts(b)) set_bloom(b, b->docs_dedup.tag);
    set_substring(b, kept[1]);
    return GW_OK;
}

gw_status gw_build_check_dedup(gw_databuild *b, gw_diags *dg) {
    gw_status st = set_docs(b, 0, 1, dg);
    for (int k = 0; k < GW_SPAN_KINDS && st == GW_OK; k++)
        if (b->spans[k]) st = set_spans(b, k, 1, dg);
    if (st != GW_OK || b->p->dedup.bloom == GW_BLOOM_NONE) return st;
    set_bloom(b, 0);
    gw_status fits = gw_bloom_pass_check(&b->bloom, dg);
    if (fits != GW_OK)
        gw_diag_frame(dg, "dedup.bloom_keys and bloom_rate of %s against run.memory", b->p->file);
    if (fits == GW_OK && b->bloom.in && !gw_path_exists(b->bloom.in))
        return gw_fail_at(dg, GW_ERR_CONFIG, "dedup-bloom",
                          gw_pipeline_where(b->p, "dedup.bloom_in"), "there is no file '%s'",
                          b->bloom.in);
    return fits;
}

gw_status gw_build_dedup(gw_databuild *b, gw_diags *dg) {
    GW_TRY(set_up(b, dg));
    if (sees_documents(b)) GW_TRY(gw_build_dedup_bloom(b, dg));
    GW_TRY(gw_build_dedup_docs(b, dg));
    GW_TRY(gw_build_dedup_spans(b, dg));
    if (sees_parts(b)) GW_TRY(gw_build_dedup_bloom(b, dg));
    return b->p->dedup.substring ? gw_build_dedup_substrings(b, dg) : GW_OK;
}
