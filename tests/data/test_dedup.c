// SPDX-License-Identifier: Apache-2.0
// Deduplication against brute force: sorting, clusters, indexes, spans, kills and damage.
#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/arena.h"            /* gw_arena, gw_mem_alloc */
#include "base/io.h"               /* gw_file_read */
#include "base/rng.h"              /* gw_rng_u64 */
#include "comm/launch.h"           /* gw_launch_threads */
#include "data/dedup/dedup.h"      /* what is tested */
#include "data/dedup/dedup_impl.h" /* gw_clusters */
#include "data/dedup/records.h"    /* gw_sorter, gw_recs_* */
#include "harness.h"

static uint64_t rnd(gw_rng_key k, int64_t i) { return gw_rng_u64(k, (uint64_t)i); }

// ------------------------------------------------------------------ sorting

static int words_of_sort;
static int by_words(const void *a, const void *b) {
    uint64_t x[GW_RECS_WORDS_MAX], y[GW_RECS_WORDS_MAX];
    memcpy(x, a, (size_t)words_of_sort * 8);
    memcpy(y, b, (size_t)words_of_sort * 8);
    for (int i = 0; i < words_of_sort; i++)
        if (x[i] != y[i]) return x[i] < y[i] ? -1 : 1;
    return 0;
}

/* Of n records: random, few distinct, ascending, descending, organ pipe. */
static void fill(uint64_t *r, int64_t n, int words, int shape, gw_rng_key k) {
    for (int64_t i = 0; i < n; i++)
        for (int w = 0; w < words; w++) {
            uint64_t x = rnd(k, i * words + w);
            r[i * words + w] = shape == 0   ? x
                               : shape == 1 ? x % 3
                               : shape == 2 ? (uint64_t)i
                               : shape == 3 ? (uint64_t)(n - i)
                                            : (uint64_t)GW_MIN(i, n - i);
        }
}

TEST(dedup_sort_is_a_sort) {
    gw_rng_key k = gw_rng_key_named(1, "sort");
    for (int words = 1; words <= 4; words++)
        for (int shape = 0; shape < 5; shape++)
            for (int64_t n = 0; n < 20000; n = n * 3 + 1) {
                size_t bytes = (size_t)(n * words) * 8;
                uint64_t *a = malloc(bytes + 8), *b = malloc(bytes + 8);
                CHECK(a && b);
                fill(a, n, words, shape, k);
                memcpy(b, a, bytes);
                gw_recs_sort(a, n, words);
                words_of_sort = words;
                if (n) qsort(b, (size_t)n, (size_t)words * 8, by_words);
                CHECK_MSG(memcmp(a, b, bytes) == 0, "%d words, shape %d, %lld records", words,
                          shape, (long long)n);
                free(a);
                free(b);
            }
}

/* A sorter of very little memory spills hundreds of runs and merges in several passes. */
TEST(dedup_sorter_spills) {
    gw_diags dg = {0};
    gw_rng_key k = gw_rng_key_named(2, "spill");
    enum { N = 100000 };
    uint64_t *want = malloc(N * 16);
    gw_sorter *s = gw_sorter_new(test_tmpdir(), 2, 4096);
    CHECK(want != NULL);
    for (int64_t i = 0; i < N; i++) {
        want[2 * i] = rnd(k, 2 * i) % 1000;
        want[2 * i + 1] = rnd(k, 2 * i + 1);
        CHECK_OK(gw_sorter_add(s, want + 2 * i, &dg), &dg);
    }
    gw_recs_sort(want, N, 2);
    CHECK_OK(gw_sorter_sort(s, &dg), &dg);
    const uint64_t *r;
    for (int64_t i = 0; i < N; i++) {
        CHECK_OK(gw_sorter_next(s, &r, &dg), &dg);
        CHECK(r && r[0] == want[2 * i] && r[1] == want[2 * i + 1]);
    }
    CHECK_OK(gw_sorter_next(s, &r, &dg), &dg);
    CHECK(r == NULL);
    gw_sorter_free(s);
    free(want);
}

// ------------------------------------------------------------------ files of records

/* Without syncs, which a test of a thousand files would spend its time on. */
static void write_plain(const char *path, const void *bytes, size_t n) {
    FILE *f = fopen(path, "wb");
    CHECK(f && fwrite(bytes, 1, n, f) == n && fclose(f) == 0);
}

/* Whatever single byte changes, and wherever the file is cut: refused, or read as it was written.
 */
TEST(dedup_files_notice_damage) {
    gw_diags dg = {0};
    gw_recs_writer *w;
    gw_recs f;
    uint64_t records[60], meta[GW_RECS_META] = {1, 2, 3}, *got = NULL;
    int64_t cap = 0;
    const char *path = test_tmp_path("x.recs");
    for (int i = 0; i < 60; i++) records[i] = (uint64_t)i * 77;
    CHECK_OK(gw_recs_create(path, 3, 4, 99, &w, &dg), &dg);
    CHECK_OK(gw_recs_add(w, 0, records, 5, &dg), &dg);
    CHECK_OK(gw_recs_add(w, 2, records + 15, 15, &dg), &dg);
    CHECK_OK(gw_recs_finish(w, meta, &dg), &dg);
    CHECK(gw_recs_done(path, 3, 4, 99) && !gw_recs_done(path, 3, 4, 98));
    CHECK_OK(gw_recs_open(path, 3, &f, &dg), &dg);
    CHECK_EQ(f.records, 20);
    CHECK_EQ(f.meta[2], 3);
    CHECK_EQ(f.sections[1].count, 0);
    CHECK_OK(gw_recs_read(&f, 2, &got, &cap, &dg), &dg);
    CHECK(memcmp(got, records + 15, 15 * 24) == 0);
    gw_recs_close(&f);

    gw_str bytes = {0};
    CHECK_OK(gw_file_read(path, 0, &bytes, &dg), &dg);
    const char *bad = test_tmp_path("bad.recs");
    for (size_t at = 0; at < bytes.len; at++) {
        if (at >= 120 && at < 128) continue; /* a spare word that nothing reads */
        bytes.data[at] ^= 0x10;
        write_plain(bad, bytes.data, bytes.len);
        gw_status s = gw_recs_open(bad, 3, &f, NULL);
        if (s == GW_OK) {
            for (int64_t i = 0; i < 4 && s == GW_OK; i++) s = gw_recs_read(&f, i, &got, &cap, NULL);
            gw_recs_close(&f);
        }
        CHECK_MSG(s == GW_ERR_FORMAT, "byte %zu changed and nobody saw it", at);
        bytes.data[at] ^= 0x10;
    }
    for (size_t n = 0; n < bytes.len; n++) {
        write_plain(bad, bytes.data, n);
        CHECK_FAILS(gw_recs_open(bad, 3, &f, &dg), &dg, "not as it was written");
        gw_diags_clear(&dg);
    }
    gw_str_release(&bytes);
    gw_mem_free(got);
    gw_diags_release(&dg);
}

// ------------------------------------------------------------------ clusters

/* Smallest member of each node's component, by relaxation until nothing moves. */
static void brute_roots(int64_t n, const uint64_t (*pairs)[2], int64_t npairs, uint64_t *root) {
    for (int64_t i = 0; i < n; i++) root[i] = (uint64_t)i;
    for (bool moved = true; moved;) {
        moved = false;
        for (int64_t i = 0; i < npairs; i++) {
            uint64_t *a = &root[pairs[i][0]], *b = &root[pairs[i][1]];
            if (*a == *b) continue;
            *a = *b = GW_MIN(*a, *b);
            moved = true;
        }
    }
}

static void check_clusters(int64_t n, const uint64_t (*pairs)[2], int64_t npairs, int64_t memory,
                           bool on_disk) {
    gw_diags dg = {0};
    uint64_t *root = malloc((size_t)n * 8), node, r;
    CHECK(root != NULL);
    brute_roots(n, pairs, npairs, root);
    gw_clusters *c = gw_clusters_new(test_tmpdir(), memory, on_disk);
    for (int64_t i = 0; i < npairs; i++)
        CHECK_OK(gw_clusters_join(c, pairs[i][0], pairs[i][1], &dg), &dg);
    CHECK_OK(gw_clusters_solve(c, &dg), &dg);
    bool more;
    for (int64_t i = 0; i < n; i++) {
        if (root[i] == (uint64_t)i) continue;
        CHECK_OK(gw_clusters_next(c, &node, &r, &more, &dg), &dg);
        CHECK_MSG(more && node == (uint64_t)i && r == root[i],
                  "node %lld: root %lld, by brute force %lld", (long long)node, (long long)r,
                  (long long)root[i]);
    }
    CHECK_OK(gw_clusters_next(c, &node, &r, &more, &dg), &dg);
    CHECK(!more);
    gw_clusters_free(c);
    free(root);
}

TEST(dedup_clusters_are_components) {
    gw_rng_key k = gw_rng_key_named(3, "graphs");
    enum { MOST = 3000 };
    static uint64_t pairs[MOST][2];
    for (int round = 0; round < 60; round++) {
        int64_t n = 2 + (int64_t)(rnd(k, round) % 900), m = (int64_t)(rnd(k, round + 500) % MOST);
        if (round % 4 == 1) m = n / 3; /* many small ones */
        for (int64_t i = 0; i < m; i++) {
            pairs[i][0] = rnd(k, 10000 + round * 10000 + 2 * i) % (uint64_t)n;
            pairs[i][1] = rnd(k, 10001 + round * 10000 + 2 * i) % (uint64_t)n;
            if (round % 4 == 2) { /* a path, whose links come in any order */
                pairs[i][0] = (uint64_t)(i * 7919 % (n - 1));
                pairs[i][1] = pairs[i][0] + 1;
            }
        }
        const uint64_t(*p)[2] = (const uint64_t(*)[2])pairs;
        check_clusters(n, p, m, 1 << 20, false); /* in memory */
        check_clusters(n, p, m, 1 << 16, false); /* begun in memory, ended on disk where large */
        check_clusters(n, p, m, 8192, true);     /* by sorting alone, with spills */
    }
}

// ------------------------------------------------------------------ documents

enum { UNITS = 7, DOCS = 120, BANDS = 5 };

/* Keys of document d of unit u: mostly its own, now and then one of a few that others have too. */
static void keys_of(uint32_t u, uint32_t d, uint64_t seed, gw_hash128 *keys) {
    gw_rng_key k = gw_rng_key_named(seed, "documents");
    for (int b = 0; b < BANDS; b++) {
        int64_t at = ((int64_t)u * DOCS + d) * 16 + b;
        uint64_t own = (uint64_t)at + 1, x = rnd(k, at);
        if (x % 100 < 12) own = (1u << 30) + x / 100 % 90; /* a shared one */
        keys[b] = gw_hash128_of(&own, sizeof own);
        if (x % 1000 == 999) keys[b] = (gw_hash128){0}; /* none */
    }
}

static gw_dedup_options options(const char *dir, int parts) {
    return (gw_dedup_options){.dir = dir,
                              .bands = BANDS,
                              .exact_bands = 1,
                              .parts = parts,
                              .units = UNITS,
                              .memory_bytes = GW_DEDUP_MEMORY_MIN,
                              .tag = 11,
                              .recipe = 5};
}

static void write_unit(const gw_dedup_options *o, uint32_t unit, uint64_t seed, bool backwards) {
    gw_diags dg = {0};
    gw_dedup_unit *u;
    gw_hash128 keys[BANDS];
    CHECK_OK(gw_dedup_unit_open(o, unit, &u, &dg), &dg);
    for (uint32_t i = 0; i < DOCS; i++) {
        uint32_t d = backwards ? DOCS - 1 - i : i;
        keys_of(unit, d, seed, keys);
        gw_dedup_unit_add(u, d, keys);
    }
    CHECK_OK(gw_dedup_unit_close(u, &dg), &dg);
    CHECK(gw_dedup_unit_done(o, unit));
}

/* root[i] of document i = unit * DOCS + index, and whether an equal text (last band) came before.
 */
static void brute_documents(uint64_t seed, uint64_t *root, bool *exact) {
    static gw_hash128 all[UNITS * DOCS][BANDS];
    enum { N = UNITS * DOCS };
    for (int i = 0; i < N; i++) {
        keys_of((uint32_t)i / DOCS, (uint32_t)i % DOCS, seed, all[i]);
        root[i] = (uint64_t)i;
        exact[i] = false;
    }
    for (bool moved = true; moved;) {
        moved = false;
        for (int b = 0; b < BANDS; b++)
            for (int i = 0; i < N; i++)
                for (int j = 0; j < i; j++) {
                    if (all[i][b].lo != all[j][b].lo || all[i][b].hi != all[j][b].hi) continue;
                    if (!all[i][b].lo && !all[i][b].hi) continue;
                    exact[i] = exact[i] || b == BANDS - 1;
                    if (root[i] == root[j]) continue;
                    root[i] = root[j] = GW_MIN(root[i], root[j]);
                    moved = true;
                }
    }
}

static void check_documents(const gw_dedup_options *o, uint64_t seed) {
    gw_diags dg = {0};
    static uint64_t root[UNITS * DOCS];
    static bool exact[UNITS * DOCS];
    brute_documents(seed, root, exact);
    gw_dedup_result *r;
    CHECK_OK(gw_dedup_result_open(o, &r, &dg), &dg);
    int64_t removed = 0, count;
    for (uint32_t u = 0; u < UNITS; u++) {
        const gw_dedup_removed *list;
        CHECK_OK(gw_dedup_result_unit(r, u, &list, &count, &dg), &dg);
        for (uint32_t d = 0, at = 0; d < DOCS; d++) {
            uint64_t i = (uint64_t)u * DOCS + d;
            bool goes = root[i] != i, listed = at < count && list[at].index == d;
            CHECK_MSG(goes == listed, "document %u of unit %u", d, u);
            if (!goes) continue;
            CHECK_EQ(list[at].survivor.unit, root[i] / DOCS);
            CHECK_EQ(list[at].survivor.index, root[i] % DOCS);
            CHECK_EQ(list[at].why, exact[i] ? GW_DEDUP_EXACT : GW_DEDUP_NEAR);
            removed++;
            at++;
        }
    }
    CHECK_EQ(gw_dedup_result_totals(r).removed, removed);
    CHECK(removed > 150);
    gw_dedup_result_free(r);
}

static void read_removed(const gw_dedup_options *o, gw_str *out) {
    gw_arena a = {0};
    CHECK_OK(gw_file_read(gw_dedup_removed_path(o, &a), 0, out, NULL), NULL);
    gw_arena_release(&a);
}

/* By one process, whatever the order of units, documents and tasks, and the number of parts. */
TEST(dedup_finds_what_brute_force_finds) {
    gw_diags dg = {0};
    gw_str first = {0}, other = {0};
    gw_dedup_options o = options(test_tmp_path("a"), 1);
    for (uint32_t u = 0; u < UNITS; u++) write_unit(&o, u, 1, false);
    CHECK_OK(gw_dedup_run(&o, NULL, &dg), &dg);
    CHECK(gw_dedup_done(&o));
    check_documents(&o, 1);
    read_removed(&o, &first);
    static const int parts[] = {1, 2, 16};
    for (int i = 0; i < 3; i++) {
        char name[16];
        snprintf(name, sizeof name, "b%d", i);
        gw_dedup_options p = options(test_tmp_path(name), parts[i]);
        for (uint32_t u = UNITS; u-- > 0;) write_unit(&p, (u * 3 + 1) % UNITS, 1, true);
        for (int64_t t = gw_dedup_tasks(&p); t-- > 0;) CHECK_OK(gw_dedup_task(&p, t, &dg), &dg);
        CHECK_OK(gw_dedup_cluster(&p, &dg), &dg);
        gw_str_clear(&other);
        read_removed(&p, &other);
        CHECK(other.len == first.len && memcmp(other.data, first.data, first.len) == 0);
    }
    gw_str_release(&first);
    gw_str_release(&other);
}

/* What a run with other options left is not mistaken for this one's. */
TEST(dedup_tags_keep_runs_apart) {
    gw_diags dg = {0};
    gw_dedup_options o = options(test_tmp_path("a"), 1), p;
    for (uint32_t u = 0; u < UNITS; u++) write_unit(&o, u, 1, false);
    CHECK_OK(gw_dedup_run(&o, NULL, &dg), &dg);
    p = o;
    p.tag = 12;
    gw_dedup_result *r;
    CHECK(!gw_dedup_done(&p) && !gw_dedup_unit_done(&p, 0));
    CHECK_FAILS(gw_dedup_result_open(&p, &r, &dg), &dg, "other options");
    CHECK_FAILS(gw_dedup_task(&p, 0, &dg), &dg, "other options");
    for (uint32_t u = 0; u < UNITS; u++) write_unit(&p, u, 2, false);
    CHECK_OK(gw_dedup_run(&p, NULL, &dg), &dg);
    check_documents(&p, 2);
    CHECK(unlink(test_tmp_path("a/unit-00003.keys")) == 0);
    CHECK(unlink(test_tmp_path("a/band-000-00.recs")) == 0);
    CHECK_FAILS(gw_dedup_task(&p, 0, &dg), &dg, "unit-00003.keys");
    p.memory_bytes = 1000;
    CHECK_FAILS(gw_dedup_check(&p, &dg), &dg, "at least");
    p = o;
    p.parts = 3;
    CHECK_FAILS(gw_dedup_check(&p, &dg), &dg, "power of two");
    gw_diags_release(&dg);
}

/* A key file that was changed or cut is named, whichever step reads it. */
TEST(dedup_damaged_keys_are_named) {
    gw_diags dg = {0};
    gw_dedup_options o = options(test_tmp_path("a"), 1);
    for (uint32_t u = 0; u < UNITS; u++) write_unit(&o, u, 1, false);
    const char *path = test_tmp_path("a/unit-00002.keys");
    gw_str bytes = {0};
    CHECK_OK(gw_file_read(path, 0, &bytes, &dg), &dg);
    bytes.data[400] ^= 1; /* within the records of the first band */
    CHECK_OK(gw_file_write_atomic(path, bytes.data, (int64_t)bytes.len, &dg), &dg);
    CHECK_FAILS(gw_dedup_run(&o, NULL, &dg), &dg, "unit-00002.keys");
    gw_diags_clear(&dg);
    CHECK(!gw_path_exists(test_tmp_path("a/band-000-00.recs")));
    CHECK_OK(gw_file_write_atomic(path, bytes.data, (int64_t)bytes.len / 2, &dg), &dg);
    CHECK_FAILS(gw_dedup_run(&o, NULL, &dg), &dg, "unit-00002.keys");
    gw_str_release(&bytes);
    gw_diags_release(&dg);
}

// ------------------------------------------------------------------ kills

static void all_steps(const gw_dedup_options *o) {
    for (uint32_t u = 0; u < UNITS; u++)
        if (!gw_dedup_unit_done(o, u)) write_unit(o, u, 1, false);
    CHECK_OK(gw_dedup_run(o, NULL, NULL), NULL);
}

/* Killed at random times, again and again, and run once more: the same bytes. */
TEST(dedup_killed_runs_continue) {
    gw_str whole = {0}, after = {0};
    gw_dedup_options o = options(test_tmp_path("whole"), 2),
                     p = options(test_tmp_path("killed"), 2);
    all_steps(&o);
    read_removed(&o, &whole);
    gw_rng_key k = gw_rng_key_named(4, "kills");
    for (int i = 0; i < 40 && !gw_dedup_done(&p); i++) {
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            all_steps(&p);
            _exit(0);
        }
        usleep((useconds_t)(rnd(k, i) % 8000));
        kill(child, SIGKILL);
        CHECK(waitpid(child, NULL, 0) == child);
    }
    all_steps(&p);
    read_removed(&p, &after);
    DIR *d = opendir(p.dir);
    CHECK(d != NULL);
    for (struct dirent *e; (e = readdir(d));)
        CHECK_MSG(!strstr(e->d_name, ".tmp-"), "%s", e->d_name);
    closedir(d);
    CHECK(whole.len == after.len && memcmp(whole.data, after.data, whole.len) == 0);
    gw_str_release(&whole);
    gw_str_release(&after);
}

// ------------------------------------------------------------------ ranks

typedef struct ranks {
    bool apart;
    int size;
    char root[512];
} ranks;

static gw_status one_rank(gw_comm *c, void *user, gw_diags *dg) {
    ranks *x = user;
    char dir[600];
    int rank = gw_comm_rank(c);
    snprintf(dir, sizeof dir, "%s/%d", x->root, x->apart ? rank : 0);
    gw_dedup_options o = options(dir, 2);
    for (uint32_t u = 0; u < UNITS; u++)
        if ((int)u % x->size == rank) write_unit(&o, u, 1, false);
    GW_TRY(gw_comm_barrier(c, "the units", dg));
    return gw_dedup_run(&o, c, dg);
}

/* 1, 2, 3 and 4 ranks, with one folder and with one each: the bytes of one process, in every
 * folder. */
TEST(dedup_ranks_agree_to_the_byte) {
    gw_diags dg = {0};
    gw_str whole = {0}, is = {0};
    gw_dedup_options o = options(test_tmp_path("whole"), 2);
    all_steps(&o);
    read_removed(&o, &whole);
    for (int apart = 0; apart < 2; apart++)
        for (int size = 1; size <= 4; size++) {
            ranks x = {.apart = apart, .size = size};
            snprintf(x.root, sizeof x.root, "%s/r%d-%d", test_tmpdir(), apart, size);
            CHECK_OK(gw_launch_threads(size, 30, one_rank, &x, &dg), &dg);
            for (int r = 0; r < (apart ? size : 1); r++) {
                char dir[600];
                snprintf(dir, sizeof dir, "%s/%d", x.root, r);
                gw_dedup_options p = options(dir, 2);
                gw_str_clear(&is);
                read_removed(&p, &is);
                CHECK_MSG(is.len == whole.len && memcmp(is.data, whole.data, is.len) == 0,
                          "rank %d of %d, %s", r, size, apart ? "apart" : "together");
            }
        }
    gw_str_release(&whole);
    gw_str_release(&is);
}

// ------------------------------------------------------------------ an index

/* Units 0..2 first, writing an index; then 3..6 against it. A document goes where one of the first
 * run is in its cluster, or another smaller one of its own run. */
TEST(dedup_against_an_index) {
    gw_diags dg = {0};
    enum { SPLIT = 3, N = UNITS * DOCS };
    gw_dedup_options a = options(test_tmp_path("a"), 2), b = options(test_tmp_path("b"), 2);
    a.units = SPLIT;
    a.index_out = test_tmp_path("index");
    for (uint32_t u = 0; u < SPLIT; u++) write_unit(&a, u, 1, false);
    CHECK_OK(gw_dedup_run(&a, NULL, &dg), &dg);
    b.index = a.index_out;
    b.index_out = test_tmp_path("index2");
    for (uint32_t u = 0; u < UNITS; u++) { /* the units of the index are empty in this run */
        gw_dedup_unit *w;
        gw_hash128 keys[BANDS];
        CHECK_OK(gw_dedup_unit_open(&b, u, &w, &dg), &dg);
        for (uint32_t d = 0; d < DOCS && u >= SPLIT; d++) {
            keys_of(u, d, 1, keys);
            gw_dedup_unit_add(w, d, keys);
        }
        CHECK_OK(gw_dedup_unit_close(w, &dg), &dg);
    }
    CHECK_OK(gw_dedup_run(&b, NULL, &dg), &dg);

    /* By brute force: clusters of the later units alone; one goes whole where a member has a key of
     * the earlier units in the same band. */
    static gw_hash128 all[N][BANDS];
    static int root[N];
    static bool old[N];
    for (int i = 0; i < N; i++) {
        keys_of((uint32_t)i / DOCS, (uint32_t)i % DOCS, 1, all[i]);
        root[i] = i;
    }
    for (bool moved = true; moved;) {
        moved = false;
        for (int i = SPLIT * DOCS; i < N; i++)
            for (int j = 0; j < i; j++)
                for (int k = 0; k < BANDS; k++) {
                    if (all[i][k].lo != all[j][k].lo || !all[i][k].lo) continue;
                    if (j < SPLIT * DOCS) {
                        moved = moved || !old[i];
                        old[i] = true;
                    } else if (root[i] != root[j] || old[i] != old[j]) {
                        root[i] = root[j] = GW_MIN(root[i], root[j]);
                        old[i] = old[j] = old[i] || old[j];
                        moved = true;
                    }
                }
    }
    gw_dedup_result *r;
    CHECK_OK(gw_dedup_result_open(&b, &r, &dg), &dg);
    int64_t in_index = 0;
    for (uint32_t u = SPLIT; u < UNITS; u++) {
        const gw_dedup_removed *list;
        int64_t count, at = 0;
        CHECK_OK(gw_dedup_result_unit(r, u, &list, &count, &dg), &dg);
        for (uint32_t d = 0; d < DOCS; d++) {
            int i = (int)(u * DOCS + d);
            bool goes = old[i] || root[i] != i, listed = at < count && list[at].index == d;
            CHECK_MSG(goes == listed, "document %u of unit %u", d, u);
            if (!listed) continue;
            CHECK_EQ(list[at].why == GW_DEDUP_INDEX, old[i]);
            in_index += old[i];
            at++;
        }
    }
    CHECK_EQ(gw_dedup_result_totals(r).in_index, in_index);
    CHECK(in_index > 15);
    gw_dedup_result_free(r);

    /* The second index holds all that either run saw: it is the index of both together. */
    gw_dedup_options c = options(test_tmp_path("c"), 2);
    c.index_out = test_tmp_path("index3");
    for (uint32_t u = 0; u < UNITS; u++) write_unit(&c, u, 1, false);
    CHECK_OK(gw_dedup_run(&c, NULL, &dg), &dg);
    for (int64_t t = 0; t < gw_dedup_tasks(&c); t++) {
        gw_arena m = {0};
        gw_str x = {0}, y = {0};
        CHECK_OK(gw_file_read(gw_dedup_index_path(b.index_out, t, 2, &m), 0, &x, &dg), &dg);
        CHECK_OK(gw_file_read(gw_dedup_index_path(c.index_out, t, 2, &m), 0, &y, &dg), &dg);
        CHECK(x.len == y.len && memcmp(x.data, y.data, x.len) == 0);
        gw_str_release(&x);
        gw_str_release(&y);
        gw_arena_release(&m);
    }
    /* Another recipe's index is refused. */
    c = options(test_tmp_path("d"), 2);
    c.index = b.index_out;
    c.recipe = 6;
    for (uint32_t u = 0; u < UNITS; u++) write_unit(&c, u, 1, false);
    CHECK_FAILS(gw_dedup_run(&c, NULL, &dg), &dg, "another recipe");
    gw_diags_release(&dg);
}

// ------------------------------------------------------------------ spans

/* Spans with shared keys: all but the first of each go; overlapping ranges come out merged. */
TEST(dedup_spans_keep_the_first) {
    gw_diags dg = {0};
    gw_dedup_options o = options(test_tmp_path("a"), 4);
    o.spans = true;
    o.bands = 1;
    o.exact_bands = 0;
    enum { SPANS = 12, WIDTH = 100 };
    static uint8_t gone[UNITS * 50][SPANS * 10 + WIDTH];
    static bool seen[64];
    gw_rng_key k = gw_rng_key_named(6, "spans");
    memset(gone, 0, sizeof gone);
    memset(seen, 0, sizeof seen);
    for (uint32_t u = 0; u < UNITS; u++) {
        gw_dedup_unit *w;
        CHECK_OK(gw_dedup_unit_open(&o, u, &w, &dg), &dg);
        for (uint32_t d = 0; d < 50; d++)
            for (uint32_t s = 0; s < SPANS; s++) { /* 25 wide, 10 apart: they overlap */
                uint64_t x = rnd(k, (u * 50 + d) * SPANS + s), key = x % 64;
                uint32_t begin = s * 10, end = begin + 25;
                if (x >> 32 & 3) key = 1000 + (u * 50 + d) * SPANS + s;
                gw_dedup_unit_span(w, d, begin, end, gw_hash128_of(&key, 8));
                static uint64_t first_doc[64];
                static uint32_t first_end[64];
                if (key >= 64) continue;
                if (!seen[key]) {
                    seen[key] = true;
                    first_doc[key] = u * 50 + d;
                    first_end[key] = end;
                } else {
                    if (first_doc[key] == u * 50 + d) begin = GW_MAX(begin, first_end[key]);
                    for (uint32_t i = begin; i < end; i++) gone[u * 50 + d][i] = 1;
                }
            }
        CHECK_OK(gw_dedup_unit_close(w, &dg), &dg);
    }
    CHECK_OK(gw_dedup_run(&o, NULL, &dg), &dg);
    gw_dedup_result *r;
    CHECK_OK(gw_dedup_result_open(&o, &r, &dg), &dg);
    int64_t bytes = 0;
    for (uint32_t u = 0; u < UNITS; u++) {
        const gw_dedup_range *list;
        int64_t count;
        CHECK_OK(gw_dedup_result_ranges(r, u, &list, &count, &dg), &dg);
        for (int64_t i = 0; i < count; i++)
            for (uint32_t at = list[i].begin; at < list[i].end; at++, bytes++) {
                CHECK(gone[u * 50 + list[i].index][at] == 1);
                gone[u * 50 + list[i].index][at] = 2;
            }
    }
    for (size_t i = 0; i < sizeof gone; i++) CHECK(((uint8_t *)gone)[i] != 1);
    CHECK_EQ(gw_dedup_result_totals(r).bytes, bytes);
    CHECK(bytes > 1000);
    gw_dedup_result_free(r);
}

TEST(dedup_cut_removes_ranges) {
    gw_str t = {0};
    gw_str_add(&t, "0123456789");
    gw_dedup_range r[] = {{0, 0, 2}, {0, 4, 5}, {0, 8, 30}};
    gw_dedup_cut(&t, r, 3);
    CHECK_STR(gw_str_c(&t), "23567");
    gw_dedup_cut(&t, r, 0);
    CHECK_STR(gw_str_c(&t), "23567");
    gw_dedup_cut(&t, (gw_dedup_range[]){{0, 0, 5}}, 1);
    CHECK_STR(gw_str_c(&t), "");
    gw_str_release(&t);
}

// ------------------------------------------------------------------ true similarity

/* Documents in three pairs that all share one band, of true similarity 0.9, 0.5 and 0 to each
 * other: only the first pair is linked, and none across pairs. */
TEST(dedup_checks_true_similarity) {
    gw_diags dg = {0};
    enum { N = 6, SIZE = 95 };
    static const int common[3] = {90, 63, 0}; /* of 95: 90 / 100, 63 / 127 */
    gw_dedup_options o = options(test_tmp_path("a"), 1);
    o.units = 2;
    o.bands = 2;
    o.exact_bands = 1;
    o.jaccard = 0.8;
    gw_dedup_unit *u;
    for (uint32_t unit = 0; unit < 2; unit++) {
        CHECK_OK(gw_dedup_unit_open(&o, unit, &u, &dg), &dg);
        for (uint32_t d = 0; d < 3; d++) {
            gw_hash128 keys[2] = {{7, 7}, {100 + unit * 3 + d, 1}};
            uint64_t shingles[SIZE + 5];
            for (int i = 0; i < SIZE; i++)
                shingles[i] = d * 1000 + (uint64_t)(i < common[d] ? i : 200 + (int)unit * 300 + i);
            for (int i = 0; i < 5; i++) shingles[SIZE + i] = shingles[i * 7]; /* repeats */
            CHECK_OK(gw_dedup_unit_shingles(u, d, shingles, SIZE + 5, &dg), &dg);
            gw_dedup_unit_add(u, d, keys);
        }
        CHECK_OK(gw_dedup_unit_close(u, &dg), &dg);
    }
    CHECK_OK(gw_dedup_run(&o, NULL, &dg), &dg);
    gw_dedup_result *r;
    const gw_dedup_removed *list;
    int64_t count;
    CHECK_OK(gw_dedup_result_open(&o, &r, &dg), &dg);
    CHECK_OK(gw_dedup_result_unit(r, 0, &list, &count, &dg), &dg);
    CHECK_EQ(count, 0);
    CHECK_OK(gw_dedup_result_unit(r, 1, &list, &count, &dg), &dg);
    CHECK_EQ(count, 1);
    CHECK(list[0].index == 0 && list[0].survivor.unit == 0 && list[0].survivor.index == 0);
    CHECK(list[0].why == GW_DEDUP_NEAR);
    gw_dedup_result_free(r);

    /* A unit without the sets, or with damaged ones, is named. */
    CHECK(unlink(test_tmp_path("a/band-000-00.recs")) == 0);
    CHECK(unlink(test_tmp_path("a/removed.recs")) == 0);
    gw_str bytes = {0};
    const char *path = test_tmp_path("a/unit-00001.shingles");
    CHECK_OK(gw_file_read(path, 0, &bytes, &dg), &dg);
    bytes.data[bytes.len - 9] ^= 4;
    write_plain(path, bytes.data, bytes.len);
    CHECK_FAILS(gw_dedup_run(&o, NULL, &dg), &dg, "unit-00001.shingles");
    gw_str_release(&bytes);
    gw_diags_release(&dg);
}
