// SPDX-License-Identifier: Apache-2.0
// Step 3: from what the bands found to the list of what goes, in the order of units.
//
// Documents: the pairs of all bands are joined to clusters (cluster.c); each member but the
// smallest goes, or all of them where the cluster touches the index. A member that is the later one
// of a pair of an exact band is said to be an equal text rather than a near one. Spans: ranges are
// sorted, and those that overlap or touch become one.
#include <dirent.h>
#include <string.h>
#include <unistd.h>

#include "base/arena.h"            /* gw_arena */
#include "base/io.h"               /* gw_dir_make */
#include "data/dedup/dedup_impl.h" /* gw_clusters */

typedef struct step {
    const gw_dedup_options *o;
    gw_clusters *clusters;
    gw_sorter *nodes; /* documents: (node, 0) of exact pairs; spans: (node, range) */
    gw_sorter *roots; /* documents: (root, 0), to count clusters */
    gw_recs_writer *out;
    uint64_t meta[GW_RECS_META];
} step;

static int64_t section_of(uint64_t node) { return (int64_t)((node - 1) >> 32); }

// ------------------------------------------------------------------------------ input

static gw_status take_record(step *x, const uint64_t *r, bool exact, gw_diags *dg) {
    if (x->o->spans) return gw_sorter_add(x->nodes, r, dg);
    GW_TRY(gw_clusters_join(x->clusters, r[0], r[1], dg));
    uint64_t node[2] = {r[1], 0};
    return exact && r[0] != GW_NODE_INDEX ? gw_sorter_add(x->nodes, node, dg) : GW_OK;
}

static gw_status take_file(step *x, const gw_recs *f, bool exact, gw_diags *dg) {
    gw_merge *m;
    const uint64_t *r;
    gw_run run = gw_recs_run(f, 0);
    x->meta[GW_META_KEYS] += f->meta[GW_META_KEYS];
    x->meta[GW_META_PAIRS] += f->meta[GW_META_PAIRS];
    GW_TRY(gw_merge_open(&run, 1, GW_PAIR_WORDS, x->o->memory_bytes / 16, x->o->dir, &m, dg));
    gw_status s;
    while ((s = gw_merge_next(m, &r, dg)) == GW_OK && r)
        if ((s = take_record(x, r, exact, dg)) != GW_OK) break;
    gw_merge_free(m);
    return s;
}

static gw_status take_task(step *x, int64_t t, gw_diags *dg) {
    gw_arena a = {0};
    gw_recs f;
    char *path = gw_dedup_task_path(x->o, &a, t);
    gw_status s = gw_recs_open(path, GW_PAIR_WORDS, &f, dg);
    if (s == GW_OK) {
        if (f.tag != x->o->tag || f.nsections != 1)
            s = GW_FAIL(dg, GW_ERR_FORMAT, "dedup-file",
                        "'%s' was made with other options than those of this run", path);
        else
            s = take_file(x, &f, t / x->o->parts >= x->o->bands - x->o->exact_bands, dg);
        gw_recs_close(&f);
    }
    gw_arena_release(&a);
    return s;
}

// ------------------------------------------------------------------------------ documents

/* Moves the list of nodes with an equal, smaller text to `node`. */
static gw_status find_exact(step *x, const uint64_t **at, uint64_t node, bool *exact,
                            gw_diags *dg) {
    while (*at && (*at)[0] < node) GW_TRY(gw_sorter_next(x->nodes, at, dg));
    *exact = *at && (*at)[0] == node;
    return GW_OK;
}

static gw_status write_documents(step *x, gw_diags *dg) {
    const uint64_t *at;
    uint64_t r[GW_REMOVED_WORDS];
    bool more, exact;
    GW_TRY(gw_clusters_solve(x->clusters, dg));
    GW_TRY(gw_sorter_sort(x->nodes, dg));
    GW_TRY(gw_sorter_next(x->nodes, &at, dg));
    for (;;) {
        GW_TRY(gw_clusters_next(x->clusters, &r[0], &r[1], &more, dg));
        if (!more) return GW_OK;
        GW_TRY(find_exact(x, &at, r[0], &exact, dg));
        r[2] = r[1] == GW_NODE_INDEX ? GW_DEDUP_INDEX : exact ? GW_DEDUP_EXACT : GW_DEDUP_NEAR;
        x->meta[GW_META_REMOVED]++;
        x->meta[GW_META_EXACT] += r[2] == GW_DEDUP_EXACT;
        x->meta[GW_META_INDEX] += r[2] == GW_DEDUP_INDEX;
        uint64_t root[2] = {r[1], 0};
        GW_TRY(gw_sorter_add(x->roots, root, dg));
        GW_TRY(gw_recs_add(x->out, section_of(r[0]), r, 1, dg));
    }
}

static gw_status count_clusters(step *x, gw_diags *dg) {
    const uint64_t *r;
    uint64_t last = UINT64_MAX;
    GW_TRY(gw_sorter_sort(x->roots, dg));
    for (;;) {
        GW_TRY(gw_sorter_next(x->roots, &r, dg));
        if (!r) return GW_OK;
        x->meta[GW_META_CLUSTERS] += r[0] != last;
        last = r[0];
    }
}

// ------------------------------------------------------------------------------ spans

static gw_status write_range(gw_recs_writer *out, uint64_t *meta, uint64_t node, uint64_t begin,
                             uint64_t end, gw_diags *dg) {
    uint64_t r[GW_REMOVED_WORDS] = {node, begin << 32 | end, 0};
    meta[GW_META_REMOVED]++;
    meta[GW_META_BYTES] += end - begin;
    return gw_recs_add(out, section_of(node), r, 1, dg);
}

gw_status gw_dedup_write_ranges(gw_sorter *ranges, gw_recs_writer *out, uint64_t *meta,
                                gw_diags *dg) {
    const uint64_t *r;
    uint64_t node = 0, begin = 0, end = 0;
    GW_TRY(gw_sorter_sort(ranges, dg));
    for (;;) {
        GW_TRY(gw_sorter_next(ranges, &r, dg));
        if (r && r[0] == node && r[1] >> 32 <= end) {
            end = GW_MAX(end, (uint64_t)(uint32_t)r[1]);
            continue;
        }
        if (node) GW_TRY(write_range(out, meta, node, begin, end, dg));
        if (!r) return GW_OK;
        node = r[0];
        begin = r[1] >> 32;
        end = (uint32_t)r[1];
    }
}

// ------------------------------------------------------------------------------ the step

static gw_status run_step(step *x, const char *path, gw_diags *dg) {
    for (int64_t t = 0; t < gw_dedup_tasks(x->o); t++) GW_TRY(take_task(x, t, dg));
    GW_TRY(gw_recs_create(path, GW_REMOVED_WORDS, x->o->units, x->o->tag, &x->out, dg));
    if (x->o->spans) {
        GW_TRY(gw_dedup_write_ranges(x->nodes, x->out, x->meta, dg));
    } else {
        GW_TRY(write_documents(x, dg));
        GW_TRY(count_clusters(x, dg));
    }
    gw_recs_writer *w = x->out;
    x->out = NULL;
    return gw_recs_finish(w, x->meta, dg);
}

/* Half-written files of processes that were killed: when all steps are done nobody writes there. */
static void sweep(const gw_dedup_options *o) {
    DIR *d = opendir(o->dir);
    struct dirent *e;
    gw_arena a = {0};
    while (d && (e = readdir(d))) {
        static const char *const kinds[] = {".keys.tmp-", ".recs.tmp-", ".sets.tmp-",
                                            ".shingles.tmp-"};
        for (size_t i = 0; i < GW_COUNT(kinds); i++)
            if (strstr(e->d_name, kinds[i])) unlink(gw_path_join(&a, o->dir, e->d_name));
    }
    if (d) closedir(d);
    gw_dedup_index_sweep(o);
    gw_arena_release(&a);
}

gw_status gw_dedup_cluster(const gw_dedup_options *o, gw_diags *dg) {
    GW_TRY(gw_dedup_check(o, dg));
    if (gw_dedup_done(o)) {
        sweep(o); /* the process that finished it may have been killed before it did */
        return GW_OK;
    }
    gw_arena a = {0};
    int64_t memory = o->memory_bytes;
    step x = {.o = o,
              .clusters = gw_clusters_new(o->dir, memory / 2, false),
              .nodes = gw_sorter_new(o->dir, 2, o->spans ? memory / 2 : memory / 8),
              .roots = gw_sorter_new(o->dir, 2, memory / 8)};
    gw_status s = run_step(&x, gw_dedup_removed_path(o, &a), dg);
    if (s == GW_OK) sweep(o);
    gw_recs_abandon(x.out);
    gw_clusters_free(x.clusters);
    gw_sorter_free(x.nodes);
    gw_sorter_free(x.roots);
    gw_arena_release(&a);
    return s;
}

bool gw_dedup_done(const gw_dedup_options *o) {
    gw_arena a = {0};
    bool done = gw_recs_done(gw_dedup_removed_path(o, &a), GW_REMOVED_WORDS, o->units, o->tag);
    for (int64_t t = 0; done && t < gw_dedup_tasks(o); t++) done = gw_dedup_index_written(o, t);
    gw_arena_release(&a);
    return done;
}
