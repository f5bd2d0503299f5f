// SPDX-License-Identifier: Apache-2.0
// Our side of bench/dedup: signatures, bands and clusters of documents in a file.
//
//   build/release/bench/dedup DOCUMENTS RECIPE FOLDER [MB]
//
// DOCUMENTS holds documents one after the other, each as its length (u32, little-endian) and its
// text. All are signed with RECIPE and deduplicated in FOLDER within MB megabytes (default 256).
// Standard output is one line of JSON: documents, bytes, processor seconds by stage, and for each
// document of a cluster the first one of it, as pairs of numbers.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/arena.h"          /* gw_mem_alloc */
#include "base/io.h"             /* gw_map_open */
#include "base/str.h"            /* gw_str */
#include "data/dedup/dedup.h"    /* gw_dedup_run */
#include "data/dedup/minhash.h"  /* gw_minhash_sign */
#include "data/dedup/simplify.h" /* gw_simplify_text */
#include "data/text/words.h"     /* gw_words_split */

typedef struct documents {
    gw_mapping file;
    const char **text;
    uint32_t *bytes;
    int64_t count, total;
} documents;

static double seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int fail(const gw_diags *dg) {
    gw_diags_print(dg, stderr, false);
    return 1;
}

static gw_status read_documents(const char *path, documents *d, gw_diags *dg) {
    GW_TRY(gw_map_open(&d->file, path, dg));
    int64_t cap = 0;
    for (int64_t at = 0; at + 4 <= d->file.bytes;) {
        uint32_t n;
        memcpy(&n, d->file.data + at, 4);
        if (n > d->file.bytes - at - 4)
            return GW_FAIL(dg, GW_ERR_FORMAT, "file-short", "'%s' ends within a document", path);
        if (d->count == cap) {
            cap = cap ? 2 * cap : 1024;
            d->text = gw_mem_realloc(d->text, (size_t)cap * sizeof *d->text);
            d->bytes = gw_mem_realloc(d->bytes, (size_t)cap * sizeof *d->bytes);
        }
        d->text[d->count] = (const char *)d->file.data + at + 4;
        d->bytes[d->count++] = n;
        d->total += n;
        at += 4 + n;
    }
    return GW_OK;
}

/* Each stage over all documents, apart. */
static gw_status time_stages(const documents *d, const gw_minhash_recipe *r, gw_diags *dg) {
    gw_minhash *m;
    GW_TRY(gw_minhash_open(r, &m, dg));
    gw_simplify *simplify = gw_simplify_new();
    gw_words *words = gw_words_new();
    uint64_t *signature = gw_mem_alloc((size_t)gw_minhash_values(m) * 8);
    gw_str simple = {0};
    double at[4] = {0};
    int64_t shingles = 0, n;
    for (int64_t i = 0; i < d->count; i++) {
        double t0 = seconds();
        gw_simplify_text(simplify, d->text[i], d->bytes[i], &simple);
        double t1 = seconds();
        gw_words_split(words, r->splitter, gw_str_c(&simple), (int64_t)simple.len);
        double t2 = seconds();
        const uint64_t *h = gw_minhash_shingles(m, d->text[i], d->bytes[i], &n);
        double t3 = seconds();
        if (n) gw_minhash_of_shingles(m, h, n, signature);
        double t4 = seconds();
        at[0] += t1 - t0;
        at[1] += t2 - t1;
        at[2] += t3 - t2;
        at[3] += t4 - t3;
        shingles += n;
    }
    printf("{\"documents\": %lld, \"bytes\": %lld, \"shingles\": %lld, \"kernel\": \"%s\", "
           "\"simplify_s\": %.4f, \"words_s\": %.4f, \"shingles_s\": %.4f, \"minima_s\": %.4f, ",
           (long long)d->count, (long long)d->total, (long long)shingles, gw_minhash_kernel(m),
           at[0], at[1], at[2], at[3]);
    gw_minhash_free(m);
    gw_simplify_free(simplify);
    gw_words_free(words);
    gw_mem_free(signature);
    gw_str_release(&simple);
    return GW_OK;
}

static gw_status sign_all(const documents *d, const gw_minhash_recipe *r, gw_dedup_options *o,
                          gw_diags *dg) {
    gw_minhash *m;
    gw_dedup_unit *u;
    GW_TRY(gw_minhash_open(r, &m, dg));
    uint64_t *signature = gw_mem_alloc((size_t)gw_minhash_values(m) * 8);
    gw_hash128 *keys = gw_mem_alloc((size_t)r->bands * sizeof *keys);
    gw_status s = gw_dedup_unit_open(o, 0, &u, dg);
    if (s == GW_OK) {
        double before = seconds();
        for (int64_t i = 0; i < d->count; i++) {
            if (!gw_minhash_sign(m, d->text[i], d->bytes[i], signature)) continue;
            gw_minhash_keys(m, signature, keys);
            gw_dedup_unit_add(u, (uint32_t)i, keys);
        }
        printf("\"sign_s\": %.4f, ", seconds() - before);
        s = gw_dedup_unit_close(u, dg);
    }
    gw_mem_free(signature);
    gw_mem_free(keys);
    gw_minhash_free(m);
    return s;
}

static gw_status print_removed(const gw_dedup_options *o, gw_diags *dg) {
    gw_dedup_result *r;
    const gw_dedup_removed *list;
    int64_t n;
    GW_TRY(gw_dedup_result_open(o, &r, dg));
    gw_status s = gw_dedup_result_unit(r, 0, &list, &n, dg);
    printf("\"removed\": [");
    for (int64_t i = 0; s == GW_OK && i < n; i++)
        printf("%s[%u, %u]", i ? ", " : "", list[i].index, list[i].survivor.index);
    printf("]}\n");
    gw_dedup_result_free(r);
    return s;
}

int main(int argc, char **argv) {
    gw_diags dg = {0};
    documents d = {0};
    if (argc < 4) {
        fprintf(stderr, "usage: dedup DOCUMENTS RECIPE FOLDER [MB]\n");
        return 2;
    }
    const gw_minhash_recipe *r = gw_minhash_recipe_find(argv[2]);
    if (!r) {
        fprintf(stderr, "there is no recipe '%s'\n", argv[2]);
        return 2;
    }
    int64_t mb = 256;
    if (argc > 4 && !gw_parse_i64(argv[4], &mb)) return 2;
    gw_dedup_options o = {.dir = argv[3],
                          .bands = r->bands,
                          .parts = 1,
                          .units = 1,
                          .memory_bytes = mb << 20,
                          .tag = gw_minhash_recipe_tag(r)};
    if (read_documents(argv[1], &d, &dg) != GW_OK || time_stages(&d, r, &dg) != GW_OK ||
        sign_all(&d, r, &o, &dg) != GW_OK)
        return fail(&dg);
    double before = seconds();
    if (gw_dedup_run(&o, NULL, &dg) != GW_OK) return fail(&dg);
    printf("\"cluster_s\": %.4f, ", seconds() - before);
    if (print_removed(&o, &dg) != GW_OK) return fail(&dg);
    gw_map_release(&d.file);
    gw_mem_free(d.text);
    gw_mem_free(d.bytes);
    gw_diags_release(&dg);
    return 0;
}
