// SPDX-License-Identifier: Apache-2.0
// Step 2: one part of one band. The sorted records of all units are merged; equal keys come out
// side by side, smallest document first.
//
// Of documents each group gives pairs (first, other): a star instead of all pairs, which joins the
// same cluster with as many links as documents. An index is a sorted list of keys seen earlier: a
// group whose key it holds is linked to node 0 instead, which is smaller than every document, so
// that all its members go. (datatrove compares only the first member with the index.)
//
// Of spans all but the first of a group go. A later copy that overlaps the first within one
// document loses only what lies outside it, so that a text which repeats itself keeps one whole
// copy.
#include <stdio.h>
#include <string.h>

#include "base/arena.h"            /* gw_arena */
#include "base/io.h"               /* gw_dir_make */
#include "data/dedup/dedup_impl.h" /* gw_dedup_task_runs */

int64_t gw_dedup_tasks(const gw_dedup_options *o) { return gw_dedup_sections(o); }

// ------------------------------------------------------------------------------ an index

typedef struct index_reader {
    gw_recs file;
    gw_merge *merge;
    const uint64_t *key; /* NULL at the end */
    bool open;
} index_reader;

static gw_status index_open(const gw_dedup_options *o, int64_t t, index_reader *x, gw_diags *dg) {
    *x = (index_reader){0};
    if (!o->index) return GW_OK;
    gw_arena a = {0};
    gw_status s = gw_recs_open(gw_dedup_index_path(o->index, t, o->parts, &a), 2, &x->file, dg);
    gw_arena_release(&a);
    if (s != GW_OK) return s;
    x->open = true;
    if (x->file.tag != o->recipe)
        return GW_FAIL(dg, GW_ERR_FORMAT, "dedup-index",
                       "the index '%s' was made by another recipe, or in another number of parts",
                       o->index);
    if (x->file.nsections != 1)
        return GW_FAIL(dg, GW_ERR_FORMAT, "dedup-index", "'%s' is no index", x->file.path);
    gw_run run = gw_recs_run(&x->file, 0);
    GW_TRY(gw_merge_open(&run, 1, 2, o->memory_bytes / 8, o->dir, &x->merge, dg));
    return gw_merge_next(x->merge, &x->key, dg);
}

static void index_close(index_reader *x) {
    gw_merge_free(x->merge);
    if (x->open) gw_recs_close(&x->file);
}

// ------------------------------------------------------------------------------ a task

typedef struct task {
    const gw_dedup_options *o;
    int words;
    gw_merge *merge;
    index_reader index;
    gw_recs_writer *pairs, *index_out;
    uint64_t key[2], first, first_range;
    bool any, in_index;
    gw_sets *sets; /* where the band's pairs are checked; NULL: not */
    gw_set stands[GW_DEDUP_STANDS], candidate;
    int nstands;
    uint64_t meta[GW_RECS_META];
} task;

static gw_status index_pass(task *t, const uint64_t *key, gw_diags *dg) {
    if (t->index_out) GW_TRY(gw_recs_add(t->index_out, 0, key, 1, dg));
    return GW_OK;
}

static int compare_key(const uint64_t *a, const uint64_t *b) {
    if (a[0] != b[0]) return a[0] < b[0] ? -1 : 1;
    return a[1] < b[1] ? -1 : a[1] > b[1];
}

/* Moves the index up to a key (NULL: to its end), writing what is passed to the new one. */
static gw_status index_advance(task *t, const uint64_t *key, gw_diags *dg) {
    t->in_index = false;
    while (t->index.key) {
        int c = key ? compare_key(t->index.key, key) : -1;
        t->in_index = c == 0;
        if (c >= 0) break;
        GW_TRY(index_pass(t, t->index.key, dg));
        GW_TRY(gw_merge_next(t->index.merge, &t->index.key, dg));
    }
    return GW_OK;
}

static gw_status begin_group(task *t, const uint64_t *r, gw_diags *dg) {
    GW_TRY(index_advance(t, r, dg));
    if (!t->in_index) GW_TRY(index_pass(t, r, dg));
    t->key[0] = r[0];
    t->key[1] = r[1];
    t->first = r[2];
    t->first_range = t->words == GW_SPANS_WORDS ? r[3] : 0;
    t->any = true;
    return GW_OK;
}

static gw_status put_pair(task *t, uint64_t a, uint64_t b, gw_diags *dg) {
    uint64_t pair[2] = {a, b};
    t->meta[GW_META_PAIRS]++;
    return gw_recs_add(t->pairs, 0, pair, 1, dg);
}

/* The candidate's set becomes one that later members are compared with. */
static void add_stand(task *t) {
    if (t->nstands == GW_DEDUP_STANDS) return;
    gw_set spare = t->stands[t->nstands];
    t->stands[t->nstands++] = t->candidate;
    t->candidate = spare;
}

/* Links a member of a group to the first one that it is similar enough to. */
static gw_status checked(task *t, uint64_t node, bool is_first, gw_diags *dg) {
    if (is_first) {
        t->nstands = 0;
        return GW_OK;
    }
    if (t->nstands == 0) { /* the first one's set is read when a second one comes */
        GW_TRY(gw_sets_read(t->sets, t->first, &t->candidate, dg));
        add_stand(t);
    }
    GW_TRY(gw_sets_read(t->sets, node, &t->candidate, dg));
    for (int i = 0; i < t->nstands; i++)
        if (gw_set_jaccard(&t->stands[i], &t->candidate) >= t->o->jaccard)
            return put_pair(t, t->stands[i].node, node, dg);
    add_stand(t);
    return GW_OK;
}

static gw_status document(task *t, const uint64_t *r, bool is_first, gw_diags *dg) {
    if (t->in_index) {
        t->meta[GW_META_INDEX]++;
        return put_pair(t, GW_NODE_INDEX, r[2], dg);
    }
    if (t->o->index && t->o->index_only) return GW_OK;
    if (t->sets) return checked(t, r[2], is_first, dg);
    if (is_first || r[2] == t->first) return GW_OK;
    return put_pair(t, t->first, r[2], dg);
}

static gw_status span(task *t, const uint64_t *r, bool is_first, gw_diags *dg) {
    uint64_t range = r[3];
    if (!t->in_index) {
        if (is_first || (t->o->index && t->o->index_only)) return GW_OK;
        if (r[2] == t->first && range >> 32 < (uint32_t)t->first_range)
            range = t->first_range << 32 | (uint32_t)range;
        if (range >> 32 >= (uint32_t)range) return GW_OK;
    }
    return put_pair(t, r[2], range, dg);
}

static gw_status all_groups(task *t, gw_diags *dg) {
    const uint64_t *r;
    for (;;) {
        GW_TRY(gw_merge_next(t->merge, &r, dg));
        if (!r) return index_advance(t, NULL, dg);
        t->meta[GW_META_KEYS]++;
        bool is_first = !t->any || compare_key(t->key, r) != 0;
        if (is_first) GW_TRY(begin_group(t, r, dg));
        GW_TRY(t->words == GW_SPANS_WORDS ? span(t, r, is_first, dg)
                                          : document(t, r, is_first, dg));
    }
}

static gw_status open_outputs(task *t, int64_t number, gw_arena *a, gw_diags *dg) {
    const gw_dedup_options *o = t->o;
    if (o->index_out) {
        GW_TRY(gw_dir_make(o->index_out, dg));
        GW_TRY(gw_recs_create(gw_dedup_index_path(o->index_out, number, o->parts, a), 2, 1,
                              o->recipe, &t->index_out, dg));
    }
    return gw_recs_create(gw_dedup_task_path(o, a, number), GW_PAIR_WORDS, 1, o->tag, &t->pairs,
                          dg);
}

/* The index first: where the pairs stand, it stands too. */
static gw_status finish_outputs(task *t, gw_diags *dg) {
    if (t->index_out) {
        gw_recs_writer *w = t->index_out;
        uint64_t meta[GW_RECS_META] = {[GW_META_RUN] = t->o->tag};
        t->index_out = NULL;
        GW_TRY(gw_recs_finish(w, meta, dg));
    }
    gw_recs_writer *w = t->pairs;
    t->pairs = NULL;
    return gw_recs_finish(w, t->meta, dg);
}

gw_status gw_dedup_task_runs(const gw_dedup_options *o, int64_t number, const gw_run *runs,
                             int64_t n, gw_diags *dg) {
    gw_arena a = {0};
    task t = {.o = o, .words = gw_dedup_words(o)};
    gw_status s = gw_merge_open(runs, n, t.words, o->memory_bytes / 4 * 3, o->dir, &t.merge, dg);
    if (s == GW_OK) s = index_open(o, number, &t.index, dg);
    if (o->jaccard > 0 && number / o->parts < o->bands - o->exact_bands) t.sets = gw_sets_new(o);
    if (s == GW_OK) s = open_outputs(&t, number, &a, dg);
    if (s == GW_OK) s = all_groups(&t, dg);
    if (s == GW_OK) s = finish_outputs(&t, dg);
    gw_recs_abandon(t.pairs);
    gw_recs_abandon(t.index_out);
    index_close(&t.index);
    gw_merge_free(t.merge);
    gw_sets_free(t.sets);
    for (int i = 0; i < GW_DEDUP_STANDS; i++) gw_mem_free(t.stands[i].items);
    gw_mem_free(t.candidate.items);
    gw_arena_release(&a);
    return s;
}

// ------------------------------------------------------------------------------ its input

static gw_status find_unit(const gw_dedup_options *o, int64_t unit, int64_t t, bool partial,
                           gw_arena *a, gw_run *run, gw_diags *dg) {
    gw_recs f;
    char *path = gw_dedup_unit_path(o, a, unit);
    *run = (gw_run){.fd = -1};
    if (partial && !gw_path_exists(path)) return GW_OK;
    GW_TRY(gw_recs_open(path, gw_dedup_words(o), &f, dg));
    gw_status s = GW_OK;
    if (f.tag != o->tag || f.nsections != gw_dedup_sections(o)) {
        s = GW_FAIL(dg, GW_ERR_FORMAT, "dedup-file",
                    "'%s' was made with other options than those of this run", path);
    } else {
        *run = gw_recs_run(&f, t);
        run->path = path;
    }
    gw_recs_close(&f);
    return s;
}

gw_status gw_dedup_task_find(const gw_dedup_options *o, int64_t t, bool partial, gw_arena *a,
                             gw_run **runs, int64_t *n, gw_diags *dg) {
    *runs = gw_arena_new(a, gw_run, o->units + 1);
    *n = 0;
    for (int64_t u = 0; u < o->units; u++) {
        gw_run *r = &(*runs)[*n];
        GW_TRY(find_unit(o, u, t, partial, a, r, dg));
        if (r->count > 0) ++*n;
    }
    return GW_OK;
}

gw_status gw_dedup_task(const gw_dedup_options *o, int64_t t, gw_diags *dg) {
    GW_TRY(gw_dedup_check(o, dg));
    gw_arena a = {0};
    gw_run *runs;
    int64_t n;
    gw_status s = GW_OK;
    bool done = gw_recs_done(gw_dedup_task_path(o, &a, t), GW_PAIR_WORDS, 1, o->tag) &&
                gw_dedup_index_written(o, t);
    if (!done) {
        s = gw_dedup_task_find(o, t, false, &a, &runs, &n, dg);
        if (s == GW_OK) s = gw_dir_make(o->dir, dg);
        if (s == GW_OK) s = gw_dedup_task_runs(o, t, runs, n, dg);
    }
    gw_arena_release(&a);
    return s;
}
