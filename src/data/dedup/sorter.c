// SPDX-License-Identifier: Apache-2.0
// Sorting and merging of records within a memory cap.
//
// A sorter fills its memory, sorts it, and appends it as a run to a file that has no name, so that
// a process that dies leaves nothing behind. In the end the runs are merged by a tree of losers:
// each step costs one comparison per level. Each run has a buffer of an equal share of the memory;
// where that would be less than 64 KiB, groups of runs are merged into longer ones first. So the
// memory is a constant and the disk is read and written in large pieces, whatever the size of the
// input.
//
// The sort itself is a quicksort whose comparison is compiled for each width, with a heap sort
// below it for inputs that would make it quadratic.
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "base/arena.h"         /* gw_mem_alloc */
#include "base/io.h"            /* gw_fd_pread_all */
#include "data/dedup/records.h" /* gw_sorter, gw_merge */

enum { RUN_BUFFER_BYTES = 64 << 10, RUN_BUFFER_MAX = 4 << 20 };

// ------------------------------------------------------------------------------ in memory

static GW_ALWAYS_INLINE bool less(const uint64_t *a, const uint64_t *b, int w) {
    for (int i = 0; i + 1 < w; i++)
        if (a[i] != b[i]) return a[i] < b[i];
    return a[w - 1] < b[w - 1];
}

static GW_ALWAYS_INLINE void copy(uint64_t *to, const uint64_t *from, int w) {
    for (int i = 0; i < w; i++) to[i] = from[i];
}

static GW_ALWAYS_INLINE void swap(uint64_t *a, uint64_t *b, int w) {
    for (int i = 0; i < w; i++) {
        uint64_t t = a[i];
        a[i] = b[i];
        b[i] = t;
    }
}

static GW_ALWAYS_INLINE void insertion_sort(uint64_t *r, int64_t n, int w) {
    uint64_t x[GW_RECS_WORDS_MAX];
    for (int64_t i = 1; i < n; i++) {
        copy(x, r + i * w, w);
        int64_t j = i;
        for (; j > 0 && less(x, r + (j - 1) * w, w); j--) copy(r + j * w, r + (j - 1) * w, w);
        copy(r + j * w, x, w);
    }
}

static GW_ALWAYS_INLINE void sift(uint64_t *r, int64_t i, int64_t n, int w) {
    for (int64_t child; (child = 2 * i + 1) < n; i = child) {
        if (child + 1 < n && less(r + child * w, r + (child + 1) * w, w)) child++;
        if (!less(r + i * w, r + child * w, w)) return;
        swap(r + i * w, r + child * w, w);
    }
}

static GW_ALWAYS_INLINE void heap_sort(uint64_t *r, int64_t n, int w) {
    for (int64_t i = n / 2; i-- > 0;) sift(r, i, n, w);
    for (int64_t i = n; i-- > 1;) {
        swap(r, r + i * w, w);
        sift(r, 0, i, w);
    }
}

/* Cuts r[0..n) at the median of three: returns j with r[0..j] <= pivot <= r[j+1..n), 0 <= j < n-1.
 */
static GW_ALWAYS_INLINE int64_t partition(uint64_t *r, int64_t n, int w) {
    uint64_t *a = r, *b = r + n / 2 * w, *c = r + (n - 1) * w, p[GW_RECS_WORDS_MAX];
    if (less(b, a, w)) swap(a, b, w);
    if (less(c, b, w)) swap(b, c, w);
    if (less(b, a, w)) swap(a, b, w);
    copy(p, b, w);
    int64_t i = -1, j = n;
    for (;;) {
        do i++;
        while (less(r + i * w, p, w));
        do j--;
        while (less(p, r + j * w, w));
        if (i >= j) return GW_MIN(j, n - 2);
        swap(r + i * w, r + j * w, w);
    }
}

/* The stack holds the larger parts, so it stays shorter than log2 n. */
static GW_ALWAYS_INLINE void sort_records(uint64_t *r, int64_t n, int w) {
    struct {
        uint64_t *r;
        int64_t n;
        int depth;
    } stack[64];
    int top = 0, depth = 0;
    for (int64_t k = n; k > 1; k /= 2) depth += 2;
    for (;;) {
        while (n > 24) {
            if (depth-- == 0) {
                heap_sort(r, n, w);
                n = 0;
                break;
            }
            int64_t left = partition(r, n, w) + 1, right = n - left;
            bool left_first = left < right;
            stack[top].r = left_first ? r + left * w : r;
            stack[top].n = left_first ? right : left;
            stack[top++].depth = depth;
            if (!left_first) r += left * w;
            n = left_first ? left : right;
        }
        insertion_sort(r, n, w);
        if (top == 0) return;
        top--;
        r = stack[top].r;
        n = stack[top].n;
        depth = stack[top].depth;
    }
}

void gw_recs_sort(uint64_t *r, int64_t n, int words) {
    switch (words) {
    case 1: sort_records(r, n, 1); break;
    case 2: sort_records(r, n, 2); break;
    case 3: sort_records(r, n, 3); break;
    case 4: sort_records(r, n, 4); break;
    }
}

// ------------------------------------------------------------------------------ a run as a stream

typedef struct stream {
    gw_run run;
    int fd;
    int64_t offset, left; /* bytes; records not yet in the buffer */
    uint64_t *buffer;
    int64_t cap, at, have; /* records */
    gw_hasher *hasher;
} stream;

static gw_status stream_open(stream *s, const gw_run *run, uint64_t *buffer, int64_t cap,
                             gw_diags *dg) {
    *s = (stream){.run = *run,
                  .fd = run->fd,
                  .offset = run->offset,
                  .left = run->count,
                  .buffer = buffer,
                  .cap = cap};
    if (run->path) {
        s->fd = open(run->path, O_RDONLY | O_CLOEXEC);
        if (s->fd < 0) return gw_io_fail(dg, "file-open", "open", run->path, errno);
    }
    if (run->hashed) s->hasher = gw_hasher_new();
    return GW_OK;
}

static void stream_close(stream *s) {
    if (s->run.path && s->fd >= 0) close(s->fd);
    if (s->hasher) gw_hasher_free(s->hasher);
    *s = (stream){.fd = -1};
}

static gw_status stream_check(const stream *s, gw_diags *dg) {
    if (!s->hasher) return GW_OK;
    gw_hash128 h = gw_hasher_get(s->hasher);
    if (h.lo == s->run.hash.lo && h.hi == s->run.hash.hi) return GW_OK;
    gw_diag *g =
        gw_diag_add(dg, GW_ERROR, GW_ERR_FORMAT, "dedup-file", (gw_where){.file = s->run.path},
                    "'%s' is not as it was written: the hash of bytes %lld to %lld differs",
                    s->run.path, (long long)s->run.offset, (long long)s->offset);
    gw_diag_hint(dg, g, "%s", GW_RECS_ANEW);
    return GW_ERR_FORMAT;
}

/* Moves to the next record, reading when the buffer is used up. Sets *record to NULL at the end. */
static gw_status stream_next(stream *s, int w, const uint64_t **record, gw_diags *dg) {
    if (s->at == s->have) {
        *record = NULL;
        if (s->left == 0) return GW_OK;
        s->have = GW_MIN(s->left, s->cap);
        int64_t bytes = s->have * 8 * w;
        GW_TRY(gw_fd_pread_all(s->fd, s->buffer, bytes, s->offset,
                               s->run.path ? s->run.path : "a file of sorted runs", dg));
        if (s->hasher) gw_hasher_add(s->hasher, s->buffer, (size_t)bytes);
        s->offset += bytes;
        s->left -= s->have;
        s->at = 0;
        if (s->left == 0) GW_TRY(stream_check(s, dg));
    }
    *record = s->buffer + s->at++ * w;
    return GW_OK;
}

// ------------------------------------------------------------------------------ merging

struct gw_merge {
    int words, n;           /* streams */
    stream *streams;        /* [n] */
    const uint64_t **heads; /* [n] the next record of each, NULL at its end */
    int *losers;            /* [n] losers[0] is the winner */
    uint64_t *buffers;
    bool begun;
    int fd; /* of what had to be merged before; -1 */
};

/* Does the head of stream a come before that of b? An ended one comes last. */
static bool wins(const gw_merge *m, int a, int b) {
    const uint64_t *x = m->heads[a], *y = m->heads[b];
    if (!x || !y) return x != NULL || (y == NULL && a < b);
    for (int i = 0; i < m->words; i++)
        if (x[i] != y[i]) return x[i] < y[i];
    return a < b;
}

/* Plays stream i up the tree. -1 stands for an empty place while the tree is built. */
static void play(gw_merge *m, int i) {
    int winner = i;
    for (int at = (i + m->n) / 2; at > 0; at /= 2) {
        int *loser = &m->losers[at];
        if (*loser < 0) {
            *loser = winner;
            return;
        }
        if (wins(m, *loser, winner)) {
            int t = *loser;
            *loser = winner;
            winner = t;
        }
    }
    m->losers[0] = winner;
}

static gw_status merge_begin(gw_merge *m, gw_diags *dg) {
    for (int i = 0; i < m->n; i++) {
        m->losers[i] = -1;
        GW_TRY(stream_next(&m->streams[i], m->words, &m->heads[i], dg));
    }
    for (int i = 0; i < m->n; i++) play(m, i);
    m->begun = true;
    return GW_OK;
}

gw_status gw_merge_next(gw_merge *m, const uint64_t **record, gw_diags *dg) {
    *record = NULL;
    if (m->n == 0) return GW_OK;
    if (!m->begun) {
        GW_TRY(merge_begin(m, dg));
    } else {
        int last = m->losers[0];
        GW_TRY(stream_next(&m->streams[last], m->words, &m->heads[last], dg));
        play(m, last);
    }
    *record = m->heads[m->losers[0]];
    return GW_OK;
}

void gw_merge_free(gw_merge *m) {
    if (!m) return;
    for (int i = 0; i < m->n; i++) stream_close(&m->streams[i]);
    if (m->fd >= 0) close(m->fd);
    gw_mem_free(m->streams);
    gw_mem_free(m->heads);
    gw_mem_free(m->losers);
    gw_mem_free(m->buffers);
    gw_mem_free(m);
}

/* All runs at once: n buffers of an equal share. */
static gw_status merge_flat(const gw_run *runs, int64_t n, int words, int64_t memory,
                            gw_merge **out, gw_diags *dg) {
    int64_t share = GW_MIN(memory / GW_MAX(n, 1), RUN_BUFFER_MAX);
    int64_t cap = GW_MAX(share / (8 * words), 1);
    gw_merge *m = gw_mem_zalloc(sizeof *m);
    m->words = words;
    m->fd = -1;
    m->streams = gw_mem_zalloc((size_t)(n + 1) * sizeof *m->streams);
    m->heads = gw_mem_zalloc((size_t)(n + 1) * sizeof *m->heads);
    m->losers = gw_mem_zalloc((size_t)(n + 1) * sizeof *m->losers);
    m->buffers = gw_mem_alloc((size_t)(n * cap * words + 1) * 8);
    gw_status s = GW_OK;
    for (int64_t i = 0; i < n && s == GW_OK; i++) {
        s = stream_open(&m->streams[i], &runs[i], m->buffers + i * cap * words, cap, dg);
        m->n = (int)i + 1;
    }
    if (s == GW_OK)
        *out = m;
    else
        gw_merge_free(m);
    return s;
}

typedef struct appender {
    int fd;
    uint64_t *buffer;
    int64_t cap, at, offset; /* records, records, bytes written */
    int words;
} appender;

static gw_status append_flush(appender *a, gw_diags *dg) {
    int64_t bytes = a->at * 8 * a->words;
    GW_TRY(gw_fd_write_all(a->fd, a->buffer, bytes, "a file of sorted runs", dg));
    a->offset += bytes;
    a->at = 0;
    return GW_OK;
}

/* Merges a group of runs into one at the end of the appender's file. */
static gw_status merge_group(const gw_run *runs, int64_t n, int64_t memory, appender *a,
                             gw_run *out, gw_diags *dg) {
    gw_merge *m;
    GW_TRY(merge_flat(runs, n, a->words, memory, &m, dg));
    *out = (gw_run){.fd = a->fd, .offset = a->offset};
    gw_status s;
    const uint64_t *r;
    while ((s = gw_merge_next(m, &r, dg)) == GW_OK && r) {
        memcpy(a->buffer + a->at * a->words, r, (size_t)a->words * 8);
        out->count++;
        if (++a->at == a->cap && (s = append_flush(a, dg)) != GW_OK) break;
    }
    if (s == GW_OK) s = append_flush(a, dg);
    gw_merge_free(m);
    return s;
}

/* One pass over all runs: groups of `fan` become one run each, in a new unnamed file. */
static gw_status merge_pass(gw_run *runs, int64_t *n, int64_t fan, int words, int64_t memory,
                            const char *dir, int *fd, gw_diags *dg) {
    appender a = {.words = words, .cap = RUN_BUFFER_BYTES};
    GW_TRY(gw_recs_unnamed(dir, &a.fd, dg));
    a.buffer = gw_mem_alloc((size_t)(a.cap * words) * 8);
    int64_t made = 0;
    gw_status s = GW_OK;
    for (int64_t i = 0; i < *n && s == GW_OK; i += fan)
        s = merge_group(runs + i, GW_MIN(fan, *n - i), memory, &a, &runs[made++], dg);
    gw_mem_free(a.buffer);
    *n = made;
    if (*fd >= 0) close(*fd);
    *fd = a.fd;
    return s;
}

gw_status gw_merge_open(const gw_run *runs, int64_t n, int words, int64_t memory_bytes,
                        const char *dir, gw_merge **out, gw_diags *dg) {
    *out = NULL;
    /* Named runs cost a descriptor each: 512 leave room under the usual limit of 1024. */
    int64_t fan = GW_MAX(GW_MIN(memory_bytes / RUN_BUFFER_BYTES, 512), 2);
    if (n <= fan) return merge_flat(runs, n, words, memory_bytes, out, dg);
    gw_run *left = gw_mem_alloc((size_t)n * sizeof *left);
    memcpy(left, runs, (size_t)n * sizeof *left);
    int fd = -1;
    gw_status s = GW_OK;
    while (n > fan && s == GW_OK) s = merge_pass(left, &n, fan, words, memory_bytes, dir, &fd, dg);
    if (s == GW_OK) s = merge_flat(left, n, words, memory_bytes, out, dg);
    if (s == GW_OK)
        (*out)->fd = fd;
    else if (fd >= 0)
        close(fd);
    gw_mem_free(left);
    return s;
}

// ------------------------------------------------------------------------------ sorting

struct gw_sorter {
    char *dir;
    int words, fd;
    int64_t memory, room, cap, have, total, at, written; /* records but memory; written: bytes */
    uint64_t *buffer;
    gw_run *runs;
    int64_t nruns, runs_cap;
    gw_merge *merge;
};

gw_sorter *gw_sorter_new(const char *dir, int words, int64_t memory_bytes) {
    gw_sorter *s = gw_mem_zalloc(sizeof *s);
    size_t n = strlen(dir) + 1;
    s->dir = gw_mem_alloc(n);
    memcpy(s->dir, dir, n);
    s->words = words;
    s->fd = -1;
    s->memory = memory_bytes;
    s->cap = GW_MAX(memory_bytes / (8 * words), 16);
    return s;
}

static gw_status spill(gw_sorter *s, gw_diags *dg) {
    if (s->fd < 0) GW_TRY(gw_recs_unnamed(s->dir, &s->fd, dg));
    gw_recs_sort(s->buffer, s->have, s->words);
    if (s->nruns == s->runs_cap) {
        s->runs_cap = s->runs_cap ? 2 * s->runs_cap : 16;
        s->runs = gw_mem_realloc(s->runs, (size_t)s->runs_cap * sizeof *s->runs);
    }
    int64_t bytes = s->have * 8 * s->words;
    GW_TRY(gw_fd_write_all(s->fd, s->buffer, bytes, s->dir, dg));
    s->runs[s->nruns++] = (gw_run){.fd = s->fd, .offset = s->written, .count = s->have};
    s->written += bytes;
    s->have = 0;
    return GW_OK;
}

/* More memory while the cap allows; the buffer doubles, so that small sorts stay small. */
static void sorter_grow(gw_sorter *s) {
    s->room = GW_MIN(s->cap, s->room ? 2 * s->room : 1024);
    s->buffer = gw_mem_realloc(s->buffer, (size_t)(s->room * s->words) * 8);
}

gw_status gw_sorter_add(gw_sorter *s, const uint64_t *record, gw_diags *dg) {
    if (s->have == s->cap) GW_TRY(spill(s, dg));
    if (s->have == s->room) sorter_grow(s);
    memcpy(s->buffer + s->have++ * s->words, record, (size_t)s->words * 8);
    s->total++;
    return GW_OK;
}

gw_status gw_sorter_sort(gw_sorter *s, gw_diags *dg) {
    if (s->nruns == 0) {
        gw_recs_sort(s->buffer, s->have, s->words);
        return GW_OK;
    }
    if (s->have) GW_TRY(spill(s, dg));
    gw_mem_free(s->buffer);
    s->buffer = NULL;
    s->room = 0;
    return gw_merge_open(s->runs, s->nruns, s->words, s->memory, s->dir, &s->merge, dg);
}

gw_status gw_sorter_next(gw_sorter *s, const uint64_t **record, gw_diags *dg) {
    if (s->merge) return gw_merge_next(s->merge, record, dg);
    *record = s->at < s->have ? s->buffer + s->at++ * s->words : NULL;
    return GW_OK;
}

void gw_sorter_free(gw_sorter *s) {
    if (!s) return;
    gw_merge_free(s->merge);
    if (s->fd >= 0) close(s->fd);
    gw_mem_free(s->buffer);
    gw_mem_free(s->runs);
    gw_mem_free(s->dir);
    gw_mem_free(s);
}
