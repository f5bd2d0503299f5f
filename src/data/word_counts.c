// SPDX-License-Identifier: Apache-2.0
// Distinct words with their numbers.
//
// A worker counts in a hash table of its own. When the table has its share of the memory, its words
// are sorted by their bytes and written to a temporary file, a run, and it begins anew. In the end
// all runs are merged in the order of their bytes, equal words added up; so the result is a sorted
// list, the same for any number of workers and runs. Should the list not fit, the least frequent
// words go: each time it is full the bar is raised, and at the end every word that is left is over
// the last bar, which is a function of the words alone.
//
// Texts are divided between workers where every splitting pattern cuts: before a blank between two
// ASCII letters.
#include "data/word_counts.h" /* gw_word_counts_of */

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/compiler.h"    /* GW_MAX */
#include "base/hash.h"        /* gw_hash64 */
#include "base/io.h"          /* gw_map_open, gw_io_fail */
#include "base/map.h"         /* GW_VEC */
#include "data/scanner.h"     /* gw_scanner */
#include "data/unicode_new.h" /* GW_UNI_DEFAULT */

enum { MOST_THREADS = 64, SEGMENT = 4 << 20 };

typedef struct entry {
    uint64_t start; /* into bytes */
    uint32_t len;   /* 0 = free */
    uint32_t tag;   /* of the hash */
    int64_t count;
} entry;

typedef struct worker {
    struct counting *all;
    entry *table;
    uint64_t cap, used;
    uint8_t *bytes;
    uint64_t bytes_used, bytes_cap;
    GW_VEC(FILE *) runs;
    int64_t words, spilled;
    int error; /* errno of a run that cannot be written */
} worker;

typedef struct segment {
    const uint8_t *text;
    size_t n;
} segment;

typedef struct counting {
    gw_scan scan;
    uint64_t share; /* bytes a worker may take */
    GW_VEC(segment) segments;
    atomic_llong next;
    worker workers[MOST_THREADS];
} counting;

/* ---- tables -------------------------------------------------------------------------------------
 */

static uint64_t held(const worker *w) { return w->cap * sizeof *w->table + w->bytes_cap; }

static void clear(worker *w) {
    gw_mem_free(w->table);
    gw_mem_free(w->bytes);
    w->cap = 1 << 12;
    w->table = gw_mem_zalloc(w->cap * sizeof *w->table);
    w->bytes_cap = 1 << 16;
    w->bytes = gw_mem_alloc(w->bytes_cap);
    w->used = w->bytes_used = 0;
}

static uint64_t home_of(const worker *w, const uint8_t *p, uint32_t n, uint32_t *tag) {
    uint64_t h = gw_hash64(p, n, 0);
    *tag = (uint32_t)(h >> 32);
    return h & (w->cap - 1);
}

static void grow_table(worker *w) {
    entry *old = w->table;
    uint64_t n = w->cap;
    w->cap *= 2;
    w->table = gw_mem_zalloc(w->cap * sizeof *w->table);
    for (uint64_t i = 0; i < n; i++) {
        if (!old[i].len) continue;
        uint32_t tag;
        uint64_t k = home_of(w, w->bytes + old[i].start, old[i].len, &tag);
        while (w->table[k].len) k = (k + 1) & (w->cap - 1);
        w->table[k] = old[i];
    }
    gw_mem_free(old);
}

static void count_word(worker *w, const uint8_t *p, uint32_t n) {
    uint32_t tag;
    uint64_t k = home_of(w, p, n, &tag);
    for (; w->table[k].len; k = (k + 1) & (w->cap - 1)) {
        entry *e = &w->table[k];
        if (e->tag == tag && e->len == n && !memcmp(w->bytes + e->start, p, n)) {
            e->count++;
            return;
        }
    }
    if (w->bytes_used + n > w->bytes_cap) {
        w->bytes_cap = 2 * w->bytes_cap + n;
        w->bytes = gw_mem_realloc(w->bytes, w->bytes_cap);
    }
    memcpy(w->bytes + w->bytes_used, p, n);
    w->table[k] = (entry){w->bytes_used, n, tag, 1};
    w->bytes_used += n;
    if (2 * ++w->used > w->cap) grow_table(w);
}

/* ---- runs ---------------------------------------------------------------------------------------
 */

static int by_bytes(const void *a, const void *b, void *bytes) {
    const entry *x = a, *y = b;
    const uint8_t *base = bytes;
    int c = memcmp(base + x->start, base + y->start, GW_MIN(x->len, y->len));
    return c ? c : (x->len > y->len) - (x->len < y->len);
}

/* Brings the words to the front of the table, in order. It is no hash table afterwards. */
static void sort_words(worker *w) {
    uint64_t n = 0;
    for (uint64_t i = 0; i < w->cap; i++)
        if (w->table[i].len) w->table[n++] = w->table[i];
    qsort_r(w->table, n, sizeof *w->table, by_bytes, w->bytes);
}

static bool put(FILE *f, const void *bytes, size_t n) { return fwrite(bytes, 1, n, f) == n; }

static void spill(worker *w) {
    FILE *f = tmpfile();
    bool fine = f != NULL;
    sort_words(w);
    for (uint64_t i = 0; i < w->used && fine; i++) {
        const entry *e = &w->table[i];
        fine = put(f, &e->len, sizeof e->len) && put(f, &e->count, sizeof e->count) &&
               put(f, w->bytes + e->start, e->len);
        w->spilled += 12 + e->len;
    }
    fine = fine && fflush(f) == 0;
    if (!fine) w->error = errno ? errno : EIO;
    if (f) {
        rewind(f);
        gw_vec_push(&w->runs, f);
    }
    clear(w);
}

static void count_segment(worker *w, gw_scanner *s, segment g) {
    const uint8_t *base;
    const uint32_t *bounds;
    gw_scanner_begin(s, w->all->scan, GW_UNI_DEFAULT, g.text, g.n);
    for (int64_t n; (n = gw_scanner_next(s, &base, &bounds)) > 0 && !w->error;) {
        for (int64_t k = 0; k < n; k++) count_word(w, base + bounds[k], bounds[k + 1] - bounds[k]);
        w->words += n;
        if (held(w) > w->all->share && w->used > 0) spill(w);
    }
}

static void *work(void *arg) {
    worker *w = arg;
    gw_scanner *s = gw_scanner_new();
    for (int64_t i; (i = atomic_fetch_add(&w->all->next, 1)) < w->all->segments.count && !w->error;)
        count_segment(w, s, w->all->segments.items[i]);
    gw_scanner_free(s);
    return NULL;
}

/* ---- merging ------------------------------------------------------------------------------------
 */

/* The next word of a run. */
typedef struct head {
    FILE *file;   /* NULL: of a worker's table */
    worker *from; /* the table */
    uint64_t at;
    uint8_t *bytes; /* of this head's own, for a file */
    uint32_t cap;
    const uint8_t *word;
    uint32_t len;
    int64_t count;
    bool done, damaged;
} head;

static void advance(head *h) {
    if (!h->file) {
        h->done = h->at == h->from->used;
        if (h->done) return;
        const entry *e = &h->from->table[h->at++];
        h->word = h->from->bytes + e->start;
        h->len = e->len;
        h->count = e->count;
        return;
    }
    if (fread(&h->len, sizeof h->len, 1, h->file) != 1) {
        h->done = true;
        h->damaged = ferror(h->file) != 0;
        return;
    }
    if (h->len > h->cap) {
        h->cap = 2 * h->len;
        h->bytes = gw_mem_realloc(h->bytes, h->cap);
    }
    h->damaged = fread(&h->count, sizeof h->count, 1, h->file) != 1 ||
                 fread(h->bytes, 1, h->len, h->file) != h->len;
    h->done = h->damaged;
    h->word = h->bytes;
}

static int compare(const head *a, const head *b) {
    int c = memcmp(a->word, b->word, GW_MIN(a->len, b->len));
    return c ? c : (a->len > b->len) - (a->len < b->len);
}

/* The list while it is made. */
typedef struct list {
    GW_VEC(gw_word_count) words; /* bytes are offsets into text until the end */
    GW_VEC(uint8_t) text;
    int64_t most; /* bytes that it may take */
    int64_t bar;
} list;

static int64_t list_bytes(const list *l) {
    return l->text.count + l->words.count * (int64_t)sizeof(gw_word_count);
}

static void raise_bar(list *l) {
    int64_t n = 0, bytes = 0;
    l->bar++;
    for (int64_t i = 0; i < l->words.count; i++) {
        gw_word_count w = l->words.items[i];
        if (w.count < l->bar) continue;
        memmove(l->text.items + bytes, l->text.items + (uintptr_t)w.bytes, w.len);
        w.bytes = (const uint8_t *)(uintptr_t)bytes;
        bytes += w.len;
        l->words.items[n++] = w;
    }
    l->words.count = n;
    l->text.count = bytes;
}

static void add_word(list *l, const uint8_t *word, uint32_t len, int64_t count) {
    if (count < l->bar) return;
    gw_word_count w = {(const uint8_t *)(uintptr_t)l->text.count, len, count};
    while (l->text.cap - l->text.count < len)
        l->text.items = gw_vec_grow_(l->text.items, &l->text.cap, 1);
    memcpy(l->text.items + l->text.count, word, len);
    l->text.count += len;
    gw_vec_push(&l->words, w);
    while (list_bytes(l) > l->most && l->words.count > 0) raise_bar(l);
}

static bool merge(head *heads, int n, list *l, gw_word_counts *out) {
    GW_VEC(uint8_t) word = {0};
    for (int i = 0; i < n; i++) advance(&heads[i]);
    for (;;) {
        const head *first = NULL;
        for (int i = 0; i < n; i++)
            if (!heads[i].done && (!first || compare(&heads[i], first) < 0)) first = &heads[i];
        if (!first) break;
        while (word.cap < first->len) word.items = gw_vec_grow_(word.items, &word.cap, 1);
        uint32_t len = first->len;
        memcpy(word.items, first->word, len);
        head same = {.word = word.items, .len = len};
        int64_t count = 0;
        for (int i = 0; i < n; i++)
            if (!heads[i].done && compare(&heads[i], &same) == 0) {
                count += heads[i].count;
                advance(&heads[i]);
            }
        out->distinct++;
        add_word(l, word.items, len, count);
    }
    gw_vec_release(&word);
    for (int i = 0; i < n; i++)
        if (heads[i].damaged) return false;
    return true;
}

static gw_status merge_workers(counting *c, int workers, int64_t memory, gw_arena *arena,
                               gw_word_counts *out, gw_diags *dg) {
    int n = 0;
    for (int i = 0; i < workers; i++) {
        if (c->workers[i].error)
            return gw_io_fail(dg, "tokenizer-train-spill", "write", "a temporary file",
                              c->workers[i].error);
        n += 1 + (int)c->workers[i].runs.count;
        out->words += c->workers[i].words;
        out->spilled_bytes += c->workers[i].spilled;
    }
    head *heads = gw_mem_zalloc((size_t)n * sizeof *heads);
    n = 0;
    for (int i = 0; i < workers; i++) {
        sort_words(&c->workers[i]);
        heads[n++] = (head){.from = &c->workers[i]};
        for (int64_t k = 0; k < c->workers[i].runs.count; k++)
            heads[n++] = (head){.file = c->workers[i].runs.items[k]};
    }
    list l = {.most = memory / 8, .bar = 1};
    bool fine = merge(heads, n, &l, out);
    for (int i = 0; i < n; i++) gw_mem_free(heads[i].bytes);
    gw_mem_free(heads);
    uint8_t *text = gw_arena_dup(arena, l.text.count ? (const void *)l.text.items : "",
                                 GW_MAX(l.text.count, (int64_t)1));
    out->count = l.words.count;
    out->rarest = l.bar;
    out->items = gw_arena_new(arena, gw_word_count, GW_MAX(l.words.count, (int64_t)1));
    for (int64_t i = 0; i < l.words.count; i++) {
        out->items[i] = l.words.items[i];
        out->items[i].bytes = text + (uintptr_t)l.words.items[i].bytes;
    }
    gw_vec_release(&l.words);
    gw_vec_release(&l.text);
    return fine ? GW_OK : gw_io_fail(dg, "tokenizer-train-spill", "read", "a temporary file", EIO);
}

/* ---- the whole ----------------------------------------------------------------------------------
 */

static bool is_letter(uint8_t c) { return (uint8_t)((c | 0x20) - 'a') < 26; }

static void divide(counting *c, const uint8_t *text, size_t n) {
    for (size_t from = 0; from < n;) {
        size_t e = n - from > 2 * (size_t)SEGMENT ? from + SEGMENT : n;
        while (e < n &&
               !(text[e] == ' ' && is_letter(text[e - 1]) && e + 1 < n && is_letter(text[e + 1])))
            e++;
        gw_vec_push(&c->segments, ((segment){text + from, e - from}));
        from = e;
    }
}

static int run_workers(counting *c, int threads) {
    pthread_t ids[MOST_THREADS];
    int started = 1;
    if (threads <= 0) threads = (int)sysconf(_SC_NPROCESSORS_ONLN);
    threads = GW_MAX(1, GW_MIN(threads, (int)GW_MIN(c->segments.count, (int64_t)MOST_THREADS)));
    c->share /= (uint64_t)threads;
    for (int i = 0; i < threads; i++) {
        c->workers[i].all = c;
        clear(&c->workers[i]);
    }
    while (started < threads &&
           pthread_create(&ids[started], NULL, work, &c->workers[started]) == 0)
        started++;
    work(&c->workers[0]);
    for (int i = 1; i < started; i++) pthread_join(ids[i], NULL);
    return threads;
}

gw_status gw_word_counts_of(const char *const *paths, int npaths, const void *text, size_t n,
                            gw_scan scan, int64_t memory, int threads, gw_arena *arena,
                            gw_word_counts *out, gw_diags *dg) {
    counting *c = gw_mem_zalloc(sizeof *c);
    gw_mapping *maps = gw_mem_zalloc((size_t)GW_MAX(npaths, 1) * sizeof *maps);
    gw_status st = GW_OK;
    int opened = 0;
    memset(out, 0, sizeof *out);
    c->scan = scan;
    c->share = (uint64_t)GW_MAX(memory, (int64_t)1 << 20) / 2;
    if (text) divide(c, text, n);
    for (; !text && opened < npaths && st == GW_OK; opened += st == GW_OK) {
        st = gw_map_open(&maps[opened], paths[opened], dg);
        if (st == GW_OK) divide(c, maps[opened].data, (size_t)maps[opened].bytes);
    }
    for (int64_t i = 0; i < c->segments.count; i++)
        out->text_bytes += (int64_t)c->segments.items[i].n;
    if (st == GW_OK) {
        int workers = run_workers(c, threads);
        st = merge_workers(c, workers, GW_MAX(memory, (int64_t)1 << 20), arena, out, dg);
    }
    for (int i = 0; i < opened; i++) gw_map_release(&maps[i]);
    for (int i = 0; i < MOST_THREADS; i++) {
        worker *w = &c->workers[i];
        for (int64_t k = 0; k < w->runs.count; k++) fclose(w->runs.items[k]);
        gw_vec_release(&w->runs);
        gw_mem_free(w->table);
        gw_mem_free(w->bytes);
    }
    gw_vec_release(&c->segments);
    gw_mem_free(maps);
    gw_mem_free(c);
    return st;
}
