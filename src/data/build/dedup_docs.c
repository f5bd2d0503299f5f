// SPDX-License-Identifier: Apache-2.0
// Documents that are equal or alike: keys of all units, and what goes because of them.
//
// Keys stand in the .keep files since the texts were read; here they go to dedup's own files, band
// by band. Where true similarities are wanted each document brings its shingles too, and where
// datatrove's files are, its whole signature: neither stands in .keep, where they would take ten
// times the room for few who want them, so the texts are read and signed once more.
//
// Signature files are named by bucket and rank, without a tag of what made them, so a stamp beside
// the unit's keys says which run they are of.
#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "data/build/dedup_impl.h" /* this module's contract */
#include "data/dedup/sigfile.h"    /* gw_sigfile */

// ------------------------------------------------------------------ keys

typedef struct key_writer {
    gw_databuild *b;
    gw_dedup_unit *u;
} key_writer;

static gw_status put_keys(void *user, const gw_build_row *r, gw_diags *dg) {
    key_writer *w = user;
    int64_t count;
    gw_dedup_unit_add(w->u, r->row, r->keys);
    if (!r->text) return GW_OK;
    const uint64_t *shingles = gw_minhash_shingles(w->b->minhash, r->text, r->n, &count);
    return count ? gw_dedup_unit_shingles(w->u, r->row, shingles, count, dg) : GW_OK;
}

static gw_status keys_unit(void *build, void *state, int64_t unit, gw_diags *dg) {
    gw_databuild *b = build;
    key_writer w = {.b = b};
    unsigned what = GW_WALK_KEYS | (b->docs_dedup.jaccard > 0 ? GW_WALK_TEXT : 0u);
    (void)state;
    if (gw_dedup_unit_done(&b->docs_dedup, (uint32_t)unit)) return GW_OK;
    GW_TRY(gw_dedup_unit_open(&b->docs_dedup, (uint32_t)unit, &w.u, dg));
    gw_status st = gw_build_walk(b, unit, what, GW_GONE_ALIKE, put_keys, &w, dg);
    if (st == GW_OK) return gw_dedup_unit_close(w.u, dg);
    gw_dedup_unit_abandon(w.u);
    return st;
}

// ------------------------------------------------------------------ datatrove's files

/* Says of which run and folder the files of a unit (-1: the lists of what goes) are. */
static const char *stamp_path(const gw_databuild *b, gw_arena *a, int64_t unit) {
    if (unit < 0) return gw_path_join(a, b->docs_dedup.dir, "removed.signed");
    return gw_arena_printf(a, "%s/unit-%05" PRId64 ".signed", b->docs_dedup.dir, unit);
}

static const char *stamp_text(const gw_databuild *b, gw_arena *a) {
    return gw_arena_printf(a, "%016" PRIx64 " %s\n", b->docs_dedup.tag, b->p->dedup.signatures);
}

static bool stamped(const gw_databuild *b, int64_t unit) {
    gw_arena a = {0};
    gw_str is = {0};
    const char *path = stamp_path(b, &a, unit);
    bool same = gw_path_exists(path) && gw_file_read(path, 1 << 16, &is, NULL) == GW_OK &&
                gw_str_eq(gw_str_c(&is), stamp_text(b, &a));
    gw_str_release(&is);
    gw_arena_release(&a);
    return same;
}

static gw_status put_stamp(const gw_databuild *b, int64_t unit, gw_diags *dg) {
    gw_arena a = {0};
    const char *text = stamp_text(b, &a);
    gw_status st = gw_file_write_atomic(stamp_path(b, &a, unit), text, (int64_t)strlen(text), dg);
    gw_arena_release(&a);
    return st;
}

typedef struct signer {
    gw_databuild *b;
    gw_sigfile *file;
} signer;

static gw_status put_signature(void *user, const gw_build_row *r, gw_diags *dg) {
    signer *s = user;
    (void)dg;
    if (gw_minhash_sign(s->b->minhash, r->text, r->n, s->b->signature))
        gw_sigfile_add(s->file, r->row, s->b->signature);
    return GW_OK;
}

static gw_status sign_unit(void *build, void *state, int64_t unit, gw_diags *dg) {
    gw_databuild *b = build;
    signer s = {.b = b};
    (void)state;
    if (stamped(b, unit)) return GW_OK;
    GW_TRY(gw_sigfile_new(b->p->dedup.signatures, gw_minhash_recipe_of(b->minhash), (uint32_t)unit,
                          &s.file, dg));
    gw_status st = gw_build_walk(b, unit, GW_WALK_TEXT, GW_GONE_ALIKE, put_signature, &s, dg);
    if (st != GW_OK) {
        gw_sigfile_abandon(s.file);
        return st;
    }
    GW_TRY(gw_sigfile_close(s.file, dg));
    return put_stamp(b, unit, dg);
}

/* Files of ranks that this build has not: of an earlier one with more units. */
static void remove_other_ranks(const gw_databuild *b) {
    const gw_minhash_recipe *r = gw_minhash_recipe_of(b->minhash);
    for (int band = -1; band < r->bands; band++) {
        gw_arena a = {0};
        const char *dir = band < 0
                              ? gw_path_join(&a, b->p->dedup.signatures, "removed")
                              : gw_arena_printf(&a, "%s/bucket_%03d", b->p->dedup.signatures, band);
        DIR *d = opendir(dir);
        const struct dirent *e;
        while (d && (e = readdir(d))) {
            unsigned rank;
            int end = 0;
            bool is = (band < 0 ? sscanf(e->d_name, "%6u.remove%n", &rank, &end)
                                : sscanf(e->d_name, "%5u.minhash.sig%n", &rank, &end)) == 1;
            if (is && end > 0 && !e->d_name[end] && rank >= b->units.count)
                unlinkat(dirfd(d), e->d_name, 0);
        }
        if (d) closedir(d);
        gw_arena_release(&a);
    }
}

static gw_status write_removed(gw_databuild *b, gw_diags *dg) {
    gw_dedup_result *r = NULL;
    gw_arena a = {0};
    if (stamped(b, -1)) return GW_OK;
    const char *folder = gw_path_join(&a, b->p->dedup.signatures, "removed");
    gw_status st = gw_dedup_result_open(&b->docs_dedup, &r, dg);
    for (int64_t u = 0; st == GW_OK && u < b->units.count; u++) {
        const gw_dedup_removed *removed;
        int64_t n;
        st = gw_dedup_result_unit(r, (uint32_t)u, &removed, &n, dg);
        if (st == GW_OK) st = gw_sigfile_write_removed(folder, (uint32_t)u, removed, n, dg);
    }
    gw_dedup_result_free(r);
    gw_arena_release(&a);
    if (st != GW_OK) return st;
    remove_other_ranks(b);
    return put_stamp(b, -1, dg);
}

// ------------------------------------------------------------------ the step

gw_status gw_build_dedup_docs(gw_databuild *b, gw_diags *dg) {
    if (b->nkeys == 0) return GW_OK;
    GW_TRY(gw_dedup_check(&b->docs_dedup, dg));
    if (!gw_dedup_done(&b->docs_dedup)) GW_TRY(gw_build_each_unit(b, keys_unit, GW_GONE_ALIKE, dg));
    GW_TRY(gw_build_run_dedup(b, &b->docs_dedup, dg));
    if (!b->p->dedup.signatures) return GW_OK;
    GW_TRY(gw_build_each_unit(b, sign_unit, GW_GONE_ALIKE, dg));
    return gw_build_by_leader(b, write_removed, "lists of what dedup removes", dg);
}
