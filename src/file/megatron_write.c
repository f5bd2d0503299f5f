// SPDX-License-Identifier: Apache-2.0
// Megatron .bin/.idx: the streaming writer.
//
// Tokens go to the .bin through a buffer as they come; lengths and document ends, twelve bytes a
// sequence at most, wait in memory, because the index places all lengths before all offsets.
// Offsets need not be kept: sequences follow each other without gaps, so they are summed again at
// the end.
//
// Two files cannot be renamed at once. finish removes an old index first, then puts the .bin, then
// the .idx in place: whoever looks in between finds no index and says so, but never an index that
// cuts the wrong tokens.
//
// The element width is the one Megatron chooses from the size of the vocabulary, and an id that is
// not below that size never reaches the file: a wrapped 16-bit token could not be told from a real
// one later.
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/io.h"           /* gw_dir_sync */
#include "base/map.h"          /* GW_VEC */
#include "base/str.h"          /* gw_str */
#include "file/megatron_idx.h" /* this module's contract */

enum { BUFFER = 1 << 20, PIECE = 4096 }; /* bytes; tokens */

struct gw_midx_writer {
    gw_arena arena;
    const char *idx_path, *bin_path, *idx_tmp, *bin_tmp;
    int64_t vocab_size;
    int elem_bytes;
    int fd;
    gw_str buffer;
    GW_VEC(int32_t) lengths;
    GW_VEC(int64_t) doc_ends; /* in sequences */
    int64_t ntokens;
    bool finished, failed; /* failed: the .bin on disk is not what was asked for */
};

static gw_status io_error(const char *path, const char *doing, gw_diags *dg) {
    return gw_fail_at(dg, GW_ERR_IO, "file-write", (gw_where){.file = path}, "cannot %s: %s", doing,
                      strerror(errno));
}

gw_status gw_midx_writer_new(const char *prefix, int64_t vocab_size, gw_midx_writer **out,
                             gw_diags *dg) {
    *out = NULL;
    if (vocab_size < 1 || vocab_size > INT64_C(0x80000000))
        return GW_FAIL(dg, GW_ERR_CONFIG, "megatron-vocab",
                       "a vocabulary of %lld does not fit the format's 32-bit tokens",
                       (long long)vocab_size);
    gw_midx_writer *w = gw_mem_zalloc(sizeof *w);
    gw_arena_init(&w->arena);
    size_t n = strlen(prefix);
    if (gw_str_ends(prefix, ".idx") || gw_str_ends(prefix, ".bin")) n -= 4;
    w->idx_path = gw_arena_printf(&w->arena, "%.*s.idx", (int)n, prefix);
    w->bin_path = gw_arena_printf(&w->arena, "%.*s.bin", (int)n, prefix);
    w->idx_tmp = gw_arena_printf(&w->arena, "%s.tmp.%ld", w->idx_path, (long)getpid());
    w->bin_tmp = gw_arena_printf(&w->arena, "%s.tmp.%ld", w->bin_path, (long)getpid());
    w->vocab_size = vocab_size;
    w->elem_bytes = vocab_size < 65500 ? 2 : 4;
    w->fd = open(w->bin_tmp, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (w->fd < 0) {
        gw_status s = io_error(w->bin_path, "create the file", dg);
        gw_midx_writer_free(w);
        return s;
    }
    *out = w;
    return GW_OK;
}

void gw_midx_writer_free(gw_midx_writer *w) {
    if (!w) return;
    if (w->fd >= 0) close(w->fd);
    if (!w->finished) {
        unlink(w->bin_tmp);
        unlink(w->idx_tmp);
    }
    gw_str_release(&w->buffer);
    gw_vec_release(&w->lengths);
    gw_vec_release(&w->doc_ends);
    gw_arena_release(&w->arena);
    gw_mem_free(w);
}

static gw_status flush(gw_midx_writer *w, gw_diags *dg) {
    if (w->buffer.len == 0) return GW_OK;
    gw_status s = gw_fd_write_all(w->fd, w->buffer.data, (int64_t)w->buffer.len, w->bin_path, dg);
    if (s != GW_OK) w->failed = true;
    gw_str_clear(&w->buffer);
    return s;
}

static gw_status check_tokens(const gw_midx_writer *w, const uint32_t *tokens, int64_t n,
                              gw_diags *dg) {
    if (n < 0 || n > INT32_MAX)
        return gw_fail_at(dg, GW_ERR_FORMAT, "megatron-write", (gw_where){.file = w->bin_path},
                          "a sequence of %lld tokens does not fit the format's 32-bit lengths",
                          (long long)n);
    for (int64_t i = 0; i < n; i++)
        if ((int64_t)tokens[i] >= w->vocab_size)
            return gw_fail_at(dg, GW_ERR_FORMAT, "megatron-write", (gw_where){.file = w->bin_path},
                              "token id %u at place %lld is not below the vocabulary size %lld",
                              tokens[i], (long long)i, (long long)w->vocab_size);
    return GW_OK;
}

/* Appends tokens in the file's width, a piece at a time. */
static gw_status add_tokens(gw_midx_writer *w, const uint32_t *tokens, int64_t n, gw_diags *dg) {
    uint16_t narrow[PIECE];
    for (int64_t at = 0; at < n; at += PIECE) {
        int64_t k = GW_MIN(PIECE, n - at);
        const void *bytes = tokens + at;
        if (w->elem_bytes == 2) {
            for (int64_t i = 0; i < k; i++) narrow[i] = (uint16_t)tokens[at + i];
            bytes = narrow;
        }
        gw_str_add_n(&w->buffer, bytes, (size_t)(k * w->elem_bytes));
        if (w->buffer.len >= BUFFER) GW_TRY(flush(w, dg));
    }
    return GW_OK;
}

gw_status gw_midx_writer_seq(gw_midx_writer *w, const uint32_t *tokens, int64_t n, gw_diags *dg) {
    GW_TRY(check_tokens(w, tokens, n, dg));
    GW_TRY(add_tokens(w, tokens, n, dg));
    gw_vec_push(&w->lengths, (int32_t)n);
    w->ntokens += n;
    return GW_OK;
}

void gw_midx_writer_end_doc(gw_midx_writer *w) { gw_vec_push(&w->doc_ends, w->lengths.count); }

gw_status gw_midx_writer_doc(gw_midx_writer *w, const uint32_t *tokens, int64_t n, gw_diags *dg) {
    GW_TRY(gw_midx_writer_seq(w, tokens, n, dg));
    gw_midx_writer_end_doc(w);
    return GW_OK;
}

int64_t gw_midx_writer_ntokens(const gw_midx_writer *w) { return w->ntokens; }

/* --- the index ------------------------------------------------------------------------------- */

static void put(FILE *f, const void *bytes, size_t n) { (void)fwrite(bytes, 1, n, f); }
static void put_i64(FILE *f, int64_t x) { put(f, &x, sizeof x); }

static void put_index(const gw_midx_writer *w, FILE *f) {
    uint8_t code = w->elem_bytes == 2 ? GW_MIDX_U16 : GW_MIDX_I32;
    int64_t at = 0;
    put(f, "MMIDIDX\0", 9);
    put_i64(f, 1);
    put(f, &code, 1);
    put_i64(f, w->lengths.count);
    put_i64(f, w->doc_ends.count + 1);
    if (w->lengths.count > 0) put(f, w->lengths.items, (size_t)w->lengths.count * sizeof(int32_t));
    for (int64_t i = 0; i < w->lengths.count; i++) {
        put_i64(f, at);
        at += (int64_t)w->lengths.items[i] * w->elem_bytes;
    }
    put_i64(f, 0);
    if (w->doc_ends.count > 0)
        put(f, w->doc_ends.items, (size_t)w->doc_ends.count * sizeof(int64_t));
}

static gw_status write_index(const gw_midx_writer *w, gw_diags *dg) {
    FILE *f = fopen(w->idx_tmp, "wbe");
    if (!f) return io_error(w->idx_path, "create the file", dg);
    put_index(w, f);
    bool ok = fflush(f) == 0 && !ferror(f) && fsync(fileno(f)) == 0;
    gw_status s = ok ? GW_OK : io_error(w->idx_path, "write", dg);
    if (fclose(f) != 0 && s == GW_OK) s = io_error(w->idx_path, "close", dg);
    return s;
}

static gw_status commit(gw_midx_writer *w, gw_diags *dg) {
    const char *slash = strrchr(w->idx_path, '/');
    const char *dir = ".";
    if (slash == w->idx_path)
        dir = "/";
    else if (slash)
        dir = gw_arena_strndup(&w->arena, w->idx_path, (size_t)(slash - w->idx_path));
    if (unlink(w->idx_path) != 0 && errno != ENOENT)
        return io_error(w->idx_path, "remove the old index", dg);
    if (rename(w->bin_tmp, w->bin_path) != 0)
        return io_error(w->bin_path, "put the file in place", dg);
    if (rename(w->idx_tmp, w->idx_path) != 0)
        return io_error(w->idx_path, "put the file in place", dg);
    w->finished = true;
    return gw_dir_sync(dir, dg);
}

gw_status gw_midx_writer_finish(gw_midx_writer *w, gw_diags *dg) {
    if (w->failed)
        return gw_fail_at(dg, GW_ERR_IO, "file-write", (gw_where){.file = w->bin_path},
                          "an earlier write failed; nothing was put in place");
    int64_t ended = w->doc_ends.count > 0 ? w->doc_ends.items[w->doc_ends.count - 1] : 0;
    if (ended < w->lengths.count) gw_midx_writer_end_doc(w);
    GW_TRY(flush(w, dg));
    if (fsync(w->fd) != 0) return io_error(w->bin_path, "sync the file", dg);
    int fd = w->fd;
    w->fd = -1;
    if (close(fd) != 0) return io_error(w->bin_path, "close the file", dg);
    GW_TRY(write_index(w, dg));
    return commit(w, dg);
}
