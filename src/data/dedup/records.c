// SPDX-License-Identifier: Apache-2.0
// Files of fixed-size records.
//
// The intermediate files of deduplication are exchanged between processes that may be killed at any
// time, and one that was cut short once looked like a sorted file of fewer records to its reader.
// So each says in its header how many records it has, in how many sections, carries a hash of
// header and table and one of each section, and appears under its name only when all of it is on
// disk. A reader refuses a file whose length is not the promised one before it reads a record, and
// a section whose hash is not the written one when it has read it.
//
// Numbers are little-endian; records are written as they lie in memory, so a big-endian machine is
// refused at compile time rather than served slowly.
#include "data/dedup/records.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/arena.h" /* gw_mem_alloc */
#include "base/io.h"    /* gw_fd_write_all, gw_io_create_beside */

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "records are stored as they lie");

#define MAGIC 0x0153434552574701ull /* 01 "GWRECS" 01 */

typedef struct file_header {
    uint64_t magic;
    uint64_t words, sections, records, tag;
    uint64_t meta[GW_RECS_META];
    uint64_t hash_lo, hash_hi; /* of the header without these two, then the table */
    uint64_t spare;
} file_header;
_Static_assert(sizeof(file_header) == 128, "the header's size is part of the format");

typedef struct file_section {
    uint64_t first, count, hash_lo, hash_hi;
} file_section;

struct gw_recs_writer {
    gw_arena arena;
    char *path, *name; /* final and present */
    int fd, words;
    int64_t nsections, section, records, at; /* at: bytes in the buffer */
    uint64_t tag;
    file_section *sections;
    gw_hasher *hasher;
    uint8_t *buffer;
};

enum { BUFFER_BYTES = 1 << 20 };

static gw_hash128 header_hash(const file_header *h, const file_section *table) {
    gw_hasher *x = gw_hasher_new();
    gw_hasher_add(x, h, offsetof(file_header, hash_lo));
    gw_hasher_add(x, table, (size_t)h->sections * sizeof *table);
    gw_hash128 hash = gw_hasher_get(x);
    gw_hasher_free(x);
    return hash;
}

static int64_t data_offset(int64_t sections) {
    return (int64_t)sizeof(file_header) + sections * (int64_t)sizeof(file_section);
}

// ------------------------------------------------------------------------------ writing

gw_status gw_recs_create(const char *path, int words, int64_t sections, uint64_t tag,
                         gw_recs_writer **out, gw_diags *dg) {
    gw_recs_writer *w = gw_mem_zalloc(sizeof *w);
    w->path = gw_arena_strdup(&w->arena, path);
    w->words = words;
    w->nsections = sections;
    w->tag = tag;
    w->fd = gw_io_create_beside(&w->arena, path, &w->name);
    if (w->fd < 0) {
        int err = errno;
        gw_arena_release(&w->arena);
        gw_mem_free(w);
        return gw_io_fail(dg, "file-create", "create", path, err);
    }
    w->sections = gw_mem_zalloc((size_t)(sections + 1) * sizeof *w->sections);
    w->buffer = gw_mem_alloc(BUFFER_BYTES);
    w->hasher = gw_hasher_new();
    *out = w;
    if (lseek(w->fd, data_offset(sections), SEEK_SET) < 0) {
        gw_status s = gw_io_fail(dg, "file-write", "write", path, errno);
        gw_recs_abandon(w);
        *out = NULL;
        return s;
    }
    return GW_OK;
}

static void writer_free(gw_recs_writer *w) {
    if (w->fd >= 0) close(w->fd);
    gw_hasher_free(w->hasher);
    gw_mem_free(w->sections);
    gw_mem_free(w->buffer);
    gw_arena_release(&w->arena);
    gw_mem_free(w);
}

void gw_recs_abandon(gw_recs_writer *w) {
    if (!w) return;
    unlink(w->name);
    writer_free(w);
}

static gw_status flush(gw_recs_writer *w, gw_diags *dg) {
    gw_status s = gw_fd_write_all(w->fd, w->buffer, w->at, w->path, dg);
    w->at = 0;
    return s;
}

/* Ends sections up to `next`. */
static void end_sections(gw_recs_writer *w, int64_t next) {
    while (w->section < next) {
        file_section *e = &w->sections[w->section++];
        gw_hash128 h = gw_hasher_get(w->hasher);
        e->count = (uint64_t)w->records - e->first;
        e->hash_lo = h.lo;
        e->hash_hi = h.hi;
        gw_hasher_reset(w->hasher);
        w->sections[w->section].first = (uint64_t)w->records;
    }
}

gw_status gw_recs_add(gw_recs_writer *w, int64_t section, const uint64_t *records, int64_t n,
                      gw_diags *dg) {
    end_sections(w, section);
    int64_t bytes = n * w->words * 8;
    const uint8_t *p = (const uint8_t *)records;
    gw_hasher_add(w->hasher, p, (size_t)bytes);
    w->records += n;
    while (bytes > 0) {
        int64_t k = GW_MIN(bytes, BUFFER_BYTES - w->at);
        memcpy(w->buffer + w->at, p, (size_t)k);
        w->at += k;
        p += k;
        bytes -= k;
        if (w->at == BUFFER_BYTES) GW_TRY(flush(w, dg));
    }
    return GW_OK;
}

static gw_status write_header(gw_recs_writer *w, const uint64_t *meta, gw_diags *dg) {
    file_header h = {.magic = MAGIC,
                     .words = (uint64_t)w->words,
                     .sections = (uint64_t)w->nsections,
                     .records = (uint64_t)w->records,
                     .tag = w->tag};
    if (meta) memcpy(h.meta, meta, sizeof h.meta);
    gw_hash128 hash = header_hash(&h, w->sections);
    h.hash_lo = hash.lo;
    h.hash_hi = hash.hi;
    if (lseek(w->fd, 0, SEEK_SET) < 0) return gw_io_fail(dg, "file-write", "write", w->path, errno);
    GW_TRY(gw_fd_write_all(w->fd, &h, sizeof h, w->path, dg));
    return gw_fd_write_all(w->fd, w->sections, w->nsections * (int64_t)sizeof *w->sections, w->path,
                           dg);
}

static gw_status sync_and_rename(gw_recs_writer *w, gw_diags *dg) {
    if (fsync(w->fd) != 0) return gw_io_fail(dg, "file-write", "sync", w->path, errno);
    int fd = w->fd;
    w->fd = -1;
    if (close(fd) != 0) return gw_io_fail(dg, "file-write", "write", w->path, errno);
    if (rename(w->name, w->path) != 0)
        return gw_io_fail(dg, "file-rename", "replace", w->path, errno);
    const char *slash = strrchr(w->path, '/');
    const char *dir = !slash ? "."
                      : slash == w->path
                          ? "/"
                          : gw_arena_strndup(&w->arena, w->path, (size_t)(slash - w->path));
    return gw_dir_sync(dir, dg);
}

gw_status gw_recs_finish(gw_recs_writer *w, const uint64_t *meta, gw_diags *dg) {
    end_sections(w, w->nsections);
    gw_status s = flush(w, dg);
    if (s == GW_OK) s = write_header(w, meta, dg);
    if (s == GW_OK) s = sync_and_rename(w, dg);
    if (s != GW_OK)
        gw_recs_abandon(w);
    else
        writer_free(w);
    return s;
}

// ------------------------------------------------------------------------------ reading

static gw_status damaged(gw_diags *dg, const char *path, const char *what) {
    gw_diag *g = gw_diag_add(dg, GW_ERROR, GW_ERR_FORMAT, "dedup-file", (gw_where){.file = path},
                             "'%s' is not as it was written: %s", path, what);
    gw_diag_hint(dg, g, "%s", GW_RECS_ANEW);
    return GW_ERR_FORMAT;
}

static gw_status check_table(const gw_recs *r, const file_header *h, const file_section *table,
                             gw_diags *dg) {
    gw_hash128 hash = header_hash(h, table);
    if (hash.lo != h->hash_lo || hash.hi != h->hash_hi)
        return damaged(dg, r->path, "the hash of its header and table differs");
    uint64_t next = 0;
    for (int64_t i = 0; i < r->nsections; i++) {
        if (table[i].first != next || table[i].count > h->records - next)
            return damaged(dg, r->path, "its sections do not follow each other");
        next += table[i].count;
    }
    if (next != h->records) return damaged(dg, r->path, "its sections do not hold all records");
    return GW_OK;
}

static gw_status check_header(const gw_recs *r, const file_header *h, int words, int64_t size,
                              gw_diags *dg) {
    if (h->magic != MAGIC) return damaged(dg, r->path, "it does not begin as a file of records");
    bool some = words == GW_RECS_ANY && h->words > 0 && h->words <= GW_RECS_WORDS_MAX;
    if (h->words != (uint64_t)words && !some)
        return damaged(dg, r->path, "its records have another size");
    int64_t room = size - (int64_t)sizeof *h;
    if (h->sections > (uint64_t)room / sizeof(file_section))
        return damaged(dg, r->path, "it ends within its table");
    room -= (int64_t)(h->sections * sizeof(file_section));
    if (h->records > (uint64_t)room / 8 / h->words || (int64_t)(h->records * h->words * 8) != room)
        return damaged(dg, r->path, "its length is not that of its records");
    return GW_OK;
}

static gw_status read_all(gw_recs *r, int words, gw_diags *dg) {
    struct stat st;
    file_header h;
    if (fstat(r->fd, &st) != 0) return gw_io_fail(dg, "file-read", "read", r->path, errno);
    if (!S_ISREG(st.st_mode) || st.st_size < (off_t)sizeof h)
        return damaged(dg, r->path, "it ends within its header");
    GW_TRY(gw_fd_pread_all(r->fd, &h, sizeof h, 0, r->path, dg));
    GW_TRY(check_header(r, &h, words, st.st_size, dg));
    r->words = (int)h.words;
    r->nsections = (int64_t)h.sections;
    r->records = (int64_t)h.records;
    r->tag = h.tag;
    memcpy(r->meta, h.meta, sizeof r->meta);
    size_t bytes = (size_t)h.sections * sizeof(file_section);
    file_section *table = gw_mem_alloc(bytes + 1);
    gw_status s = gw_fd_pread_all(r->fd, table, (int64_t)bytes, sizeof h, r->path, dg);
    if (s == GW_OK) s = check_table(r, &h, table, dg);
    if (s == GW_OK) {
        r->sections = gw_mem_alloc((size_t)(h.sections + 1) * sizeof *r->sections);
        for (int64_t i = 0; i < r->nsections; i++)
            r->sections[i] = (gw_recs_section){(int64_t)table[i].first, (int64_t)table[i].count,
                                               (gw_hash128){table[i].hash_lo, table[i].hash_hi}};
    }
    gw_mem_free(table);
    return s;
}

gw_status gw_recs_open(const char *path, int words, gw_recs *out, gw_diags *dg) {
    *out = (gw_recs){.fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
    if (out->fd < 0) return gw_io_fail(dg, "file-open", "open", path, errno);
    size_t n = strlen(path) + 1;
    out->path = gw_mem_alloc(n);
    memcpy(out->path, path, n);
    gw_status s = read_all(out, words, dg);
    if (s != GW_OK) gw_recs_close(out);
    return s;
}

void gw_recs_close(gw_recs *r) {
    if (!r->path) return;
    close(r->fd);
    gw_mem_free(r->path);
    gw_mem_free(r->sections);
    *r = (gw_recs){.fd = -1};
}

gw_status gw_recs_read(const gw_recs *r, int64_t section, uint64_t **buffer, int64_t *cap,
                       gw_diags *dg) {
    const gw_recs_section *e = &r->sections[section];
    int64_t record = 8 * (int64_t)r->words, bytes = e->count * record;
    if (*cap < e->count) {
        *buffer = gw_mem_realloc(*buffer, (size_t)bytes);
        *cap = e->count;
    }
    if (bytes == 0) return GW_OK;
    GW_TRY(gw_fd_pread_all(r->fd, *buffer, bytes, data_offset(r->nsections) + e->first * record,
                           r->path, dg));
    gw_hash128 h = gw_hash128_of(*buffer, (size_t)bytes);
    if (h.lo != e->hash.lo || h.hi != e->hash.hi)
        return damaged(dg, r->path, "the hash of a section differs");
    return GW_OK;
}

/* A section of a band may be larger than memory: piece by piece. */
static gw_status check_section(const gw_recs *r, const gw_recs_section *e, char *piece,
                               gw_diags *dg) {
    int64_t at = data_offset(r->nsections) + e->first * 8 * r->words;
    int64_t end = at + e->count * 8 * r->words;
    gw_hasher *h = gw_hasher_new();
    gw_status s = GW_OK;
    for (int64_t n; at < end && s == GW_OK; at += n) {
        n = GW_MIN(end - at, (int64_t)BUFFER_BYTES);
        s = gw_fd_pread_all(r->fd, piece, n, at, r->path, dg);
        gw_hasher_add(h, piece, s == GW_OK ? (size_t)n : 0);
    }
    gw_hash128 hash = gw_hasher_get(h);
    gw_hasher_free(h);
    if (s == GW_OK && e->count && (hash.lo != e->hash.lo || hash.hi != e->hash.hi))
        s = damaged(dg, r->path, "the hash of a section differs");
    return s;
}

gw_status gw_recs_verify(const char *path, gw_diags *dg) {
    gw_recs r;
    GW_TRY(gw_recs_open(path, GW_RECS_ANY, &r, dg));
    char *piece = gw_mem_alloc(BUFFER_BYTES);
    gw_status s = GW_OK;
    for (int64_t i = 0; i < r.nsections && s == GW_OK; i++)
        s = check_section(&r, &r.sections[i], piece, dg);
    gw_mem_free(piece);
    gw_recs_close(&r);
    return s;
}

gw_run gw_recs_run(const gw_recs *r, int64_t section) {
    const gw_recs_section *e = &r->sections[section];
    return (gw_run){.path = r->path,
                    .fd = -1,
                    .offset = data_offset(r->nsections) + e->first * 8 * r->words,
                    .count = e->count,
                    .hashed = true,
                    .hash = e->hash};
}

bool gw_recs_done(const char *path, int words, int64_t sections, uint64_t tag) {
    gw_recs r;
    if (!gw_path_exists(path) || gw_recs_open(path, words, &r, NULL) != GW_OK) return false;
    bool done = r.tag == tag && r.nsections == sections;
    gw_recs_close(&r);
    return done;
}

gw_status gw_recs_unnamed(const char *dir, int *fd, gw_diags *dg) {
    *fd = open(dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (*fd >= 0) return GW_OK;
    /* Not every file system makes files without a name: there one gets a name for a moment. */
    gw_arena a = {0};
    char *name = NULL;
    int made = gw_io_create_beside(&a, gw_path_join(&a, dir, "sort"), &name);
    if (made >= 0) {
        *fd = open(name, O_RDWR | O_CLOEXEC);
        unlink(name);
        close(made);
    }
    gw_status s = *fd >= 0 ? GW_OK : gw_io_fail(dg, "file-create", "create a file in", dir, errno);
    gw_arena_release(&a);
    return s;
}
