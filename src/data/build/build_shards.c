// SPDX-License-Identifier: Apache-2.0
// The shards phase: tables of tokens to MDS shards and Megatron files.
//
// Which documents a shard holds follows from the sizes of all documents in their order, and is
// found by adding them up; after that every shard is a task by itself, for any worker. A shard that
// is there already, made from the same rows, is left alone. Files get their names when they are
// whole; the indexes, without which no reader takes them for a data set, are removed before the
// first shard changes and written after the last. What the manifest of an earlier build names and
// this one does not is removed; nothing else in the folder is touched.
//
// Beside each file of tokens stands FILE.xxh3 with a checksum for each MiB.
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/map.h"               /* GW_VEC */
#include "comm/comm.h"              /* gw_comm_rank */
#include "data/build/build_impl.h"  /* gw_databuild */
#include "data/build/pool.h"        /* gw_pool */
#include "data/build/sums.h"        /* gw_sums_write */
#include "data/build/token_width.h" /* gw_token_width */
#include "file/json.h"              /* gw_json_read_file */
#include "file/mds.h"               /* gw_mds_writer */
#include "file/megatron_idx.h"      /* gw_midx_writer */
#include "run/exec_comm.h"          /* gw_exec_agree */

/* A sample's sizes and array header, and the head of a shard, never take more than this. */
enum { SAMPLE_HEAD = 48, SHARD_HEAD = 4096 };

typedef struct shard {
    bool megatron;
    int64_t number;    /* of its kind */
    int64_t unit, row; /* its first document, in the .toks of that unit */
    int64_t documents, bytes, tokens, largest;
} shard;

typedef struct plan {
    gw_databuild *b;
    GW_VEC(shard) shards;
    gw_hash128 *contents; /* of .toks */
    int64_t *rows;        /* of .toks */
} plan;

// ------------------------------------------------------------------ cutting

static void add(plan *p, shard *s, bool megatron, int64_t limit, int64_t unit, int64_t row,
                int64_t bytes, int64_t tokens) {
    if (s->documents && s->bytes + bytes > limit) {
        gw_vec_push(&p->shards, *s);
        *s = (shard){.number = s->number + 1};
    }
    if (!s->documents) {
        s->megatron = megatron;
        s->unit = unit;
        s->row = row;
    }
    s->documents++;
    s->bytes += bytes;
    s->tokens += tokens;
    s->largest = GW_MAX(s->largest, bytes);
}

typedef struct sizes {
    gw_column_data count, bytes, url;
} sizes;

static gw_status read_sizes(const gw_databuild *b, gw_columns *c, int64_t block, sizes *s,
                            gw_diags *dg) {
    GW_TRY(gw_columns_read(c, GW_TOKS_COUNT, block, &s->count, dg));
    GW_TRY(gw_columns_read(c, GW_TOKS_BYTES, block, &s->bytes, dg));
    return b->p->output.url ? gw_columns_read(c, GW_TOKS_URL, block, &s->url, dg) : GW_OK;
}

static gw_status cut_unit(plan *p, int64_t unit, gw_columns *c, sizes *s, shard *mds, shard *meg,
                          gw_diags *dg) {
    const gw_pipeline *o = p->b->p;
    int width = gw_token_width(gw_tokenizer_vocab_size(p->b->tokenizer));
    int64_t row = 0, n;
    for (int64_t k = 0; k < gw_columns_blocks(c); k++) {
        GW_TRY(read_sizes(p->b, c, k, s, dg));
        for (int64_t i = 0; i < s->count.rows; i++, row++) {
            uint32_t count, bytes;
            memcpy(&count, s->count.values + 4 * i, 4);
            memcpy(&bytes, s->bytes.values + 4 * i, 4);
            if (count == 0) continue;
            int64_t size = (int64_t)count * width, sample = size + SAMPLE_HEAD;
            if (o->output.text) sample += bytes;
            if (o->output.url) {
                gw_column_bytes(&s->url, i, &n);
                sample += n;
            }
            if (o->output.format & GW_FORMAT_MDS)
                add(p, mds, false, o->output.shard_bytes - SHARD_HEAD, unit, row, sample, count);
            if (o->output.format & GW_FORMAT_MEGATRON)
                add(p, meg, true, o->output.megatron_shard_bytes, unit, row, size, count);
        }
    }
    return GW_OK;
}

static gw_status cut_all(plan *p, gw_diags *dg) {
    const gw_databuild *b = p->b;
    shard mds = {0}, meg = {0};
    sizes s = {0};
    gw_status st = GW_OK;
    p->contents = gw_arena_new(b->arena, gw_hash128, b->units.count);
    p->rows = gw_arena_new(b->arena, int64_t, b->units.count);
    for (int64_t u = 0; u < b->units.count && st == GW_OK; u++) {
        gw_columns *c;
        st = gw_build_open_unit(b, GW_UNIT_TOKS, u, &c, dg);
        if (st != GW_OK) break;
        p->contents[u] = gw_columns_content(c);
        p->rows[u] = gw_columns_rows(c);
        st = cut_unit(p, u, c, &s, &mds, &meg, dg);
        gw_columns_close(c);
    }
    if (mds.documents) gw_vec_push(&p->shards, mds);
    if (meg.documents) gw_vec_push(&p->shards, meg);
    gw_column_data_release(&s.count);
    gw_column_data_release(&s.bytes);
    gw_column_data_release(&s.url);
    return st;
}

// ------------------------------------------------------------------ rows of a shard

typedef struct cursor {
    const plan *p;
    gw_columns *c;
    int64_t unit, row, block, first;
    bool read;
    gw_column_data count, tokens, text, url;
} cursor;

static void cursor_release(cursor *k) {
    gw_columns_close(k->c);
    gw_column_data_release(&k->count);
    gw_column_data_release(&k->tokens);
    gw_column_data_release(&k->text);
    gw_column_data_release(&k->url);
}

static gw_status read_block(cursor *k, gw_diags *dg) {
    k->read = true;
    GW_TRY(gw_columns_read(k->c, GW_TOKS_COUNT, k->block, &k->count, dg));
    GW_TRY(gw_columns_read(k->c, GW_TOKS_TOKENS, k->block, &k->tokens, dg));
    GW_TRY(gw_columns_read(k->c, GW_TOKS_TEXT, k->block, &k->text, dg));
    return gw_columns_read(k->c, GW_TOKS_URL, k->block, &k->url, dg);
}

/* Stands at a row that exists and has tokens; *at is its place in the block. */
static gw_status cursor_settle(cursor *k, int64_t *at, gw_diags *dg) {
    for (;;) {
        while (k->row >= k->p->rows[k->unit]) {
            gw_columns_close(k->c);
            k->c = NULL;
            k->unit++;
            k->row = 0;
        }
        if (!k->c) {
            GW_TRY(gw_build_open_unit(k->p->b, GW_UNIT_TOKS, k->unit, &k->c, dg));
            k->block = k->first = 0;
            k->read = false;
        }
        while (k->row >= k->first + gw_columns_block_rows(k->c, k->block)) {
            k->first += gw_columns_block_rows(k->c, k->block++);
            k->read = false;
        }
        if (!k->read) GW_TRY(read_block(k, dg));
        uint32_t count;
        *at = k->row - k->first;
        memcpy(&count, k->count.values + 4 * *at, 4);
        if (count) return GW_OK;
        k->row++;
    }
}

// ------------------------------------------------------------------ writing

static const char *sub_dir(const gw_databuild *b, const char *name) {
    return gw_path_join(b->arena, b->p->output.dir, name);
}

typedef struct mds_columns {
    const char *names[3], *encodings[3];
    int n;
} mds_columns;

static mds_columns columns_of(const gw_databuild *b) {
    int width = gw_token_width(gw_tokenizer_vocab_size(b->tokenizer));
    mds_columns c = {{"tokens"}, {width == 2 ? "ndarray:uint16" : "ndarray:int32"}, 1};
    if (b->p->output.text) {
        c.names[c.n] = "text";
        c.encodings[c.n++] = "str";
    }
    if (b->p->output.url) {
        c.names[c.n] = "url";
        c.encodings[c.n++] = "str";
    }
    return c;
}

static gw_status mds_sample(cursor *k, gw_mds_writer *w, int64_t i, gw_str *array, gw_diags *dg) {
    const gw_databuild *b = k->p->b;
    int width = gw_token_width(gw_tokenizer_vocab_size(b->tokenizer));
    int64_t n, m = 1;
    const char *tokens = gw_column_bytes(&k->tokens, i, &n);
    gw_str_clear(array);
    gw_mds_array_write(gw_mds_writer_column(w, 0), width == 2 ? GW_MDS_U16 : GW_MDS_I32, tokens,
                       n / width, array);
    gw_mds_value v[3] = {{array->data, (int64_t)array->len}};
    if (b->p->output.text) v[m].bytes = gw_column_bytes(&k->text, i, &v[m].n), m++;
    if (b->p->output.url) v[m].bytes = gw_column_bytes(&k->url, i, &v[m].n), m++;
    return gw_mds_writer_add(w, v, n / width, dg);
}

static gw_status write_mds(const plan *p, const shard *s, gw_str *entry, gw_diags *dg) {
    static const char *const hashes[] = {"xxh3_64"};
    const gw_pipeline *o = p->b->p;
    mds_columns c = columns_of(p->b);
    bool zip = !gw_str_eq(o->output.compression, "none");
    gw_mds_writer_options w_o = {.dir = sub_dir(p->b, "mds"),
                                 .names = c.names,
                                 .encodings = c.encodings,
                                 .ncolumns = c.n,
                                 .compression = zip ? o->output.compression : NULL,
                                 .hashes = hashes,
                                 .nhashes = 1,
                                 .size_limit =
                                     GW_MAX(o->output.shard_bytes, s->largest + SHARD_HEAD),
                                 .first_shard = s->number};
    cursor k = {.p = p, .unit = s->unit, .row = s->row};
    gw_mds_writer *w = NULL;
    gw_str array = {0};
    gw_status st = gw_mds_writer_new(&w_o, &w, dg);
    for (int64_t d = 0, at = 0; d < s->documents && st == GW_OK; d++, k.row++) {
        st = cursor_settle(&k, &at, dg);
        if (st == GW_OK) st = mds_sample(&k, w, at, &array, dg);
    }
    if (st == GW_OK) st = gw_mds_writer_flush(w, dg);
    if (st == GW_OK) gw_str_add(entry, gw_mds_writer_entries(w));
    gw_mds_writer_free(w);
    gw_str_release(&array);
    cursor_release(&k);
    return st;
}

static const char *megatron_prefix(const plan *p, gw_arena *a, int64_t number) {
    return gw_arena_printf(a, "%s/megatron/tokens-%05" PRId64, p->b->p->output.dir, number);
}

static gw_status write_megatron(const plan *p, const shard *s, gw_arena *a, gw_diags *dg) {
    int64_t vocab = gw_tokenizer_vocab_size(p->b->tokenizer);
    int width = gw_token_width(vocab);
    cursor k = {.p = p, .unit = s->unit, .row = s->row};
    gw_midx_writer *w = NULL;
    GW_VEC(uint32_t) wide = {0};
    gw_status st = gw_midx_writer_new(megatron_prefix(p, a, s->number), vocab, &w, dg);
    for (int64_t d = 0, at = 0, n; d < s->documents && st == GW_OK; d++, k.row++) {
        st = cursor_settle(&k, &at, dg);
        if (st != GW_OK) break;
        const char *tokens = gw_column_bytes(&k.tokens, at, &n);
        wide.count = 0;
        for (int64_t i = 0; i < n / width; i++)
            gw_vec_push(&wide, gw_token_at((const uint8_t *)tokens, width, i));
        st = gw_midx_writer_doc(w, wide.items, wide.count, dg);
    }
    if (st == GW_OK) st = gw_midx_writer_finish(w, dg);
    gw_midx_writer_free(w);
    gw_vec_release(&wide);
    cursor_release(&k);
    return st;
}

// ------------------------------------------------------------------ a shard

static gw_build_key shard_key(const plan *p, const shard *s) {
    gw_str t = {0};
    gw_str_printf(&t, "%d %" PRId64 " %" PRId64 " %" PRId64 " %" PRId64 " %s %d %d\n", s->megatron,
                  s->number, s->row, s->documents, p->b->p->output.shard_bytes,
                  s->megatron ? "" : p->b->p->output.compression, p->b->p->output.text,
                  p->b->p->output.url);
    int64_t left = s->documents, skip = s->row;
    for (int64_t u = s->unit; u < p->b->units.count && left > 0; u++) {
        gw_str_add_n(&t, &p->contents[u], sizeof p->contents[u]);
        left -= p->rows[u] - skip;
        skip = 0;
    }
    gw_hash128 whole = gw_hash128_of(t.data, t.len);
    gw_str_release(&t);
    return gw_build_key_of("shard 1", &whole, 1);
}

static const char *note_path(const plan *p, gw_arena *a, const shard *s) {
    return gw_arena_printf(a, "%s/%s-%05" PRId64 ".json", p->b->work,
                           s->megatron ? "megatron" : "mds", s->number);
}

/* The sums beside a file of so many bytes are there, of the length that they must have. */
static bool sums_there(gw_arena *a, const char *path, int64_t bytes) {
    struct stat st;
    int head = snprintf(NULL, 0, "xxh3-64 %d %" PRId64 "\n", (int)GW_SUMS_BLOCK, bytes);
    int64_t want = head + 17 * ((bytes + GW_SUMS_BLOCK - 1) / GW_SUMS_BLOCK);
    return stat(gw_arena_printf(a, "%s" GW_SUMS_END, path), &st) == 0 && st.st_size == want;
}

/* The files that a note names, relative to output.dir, are there with their sizes. */
static bool files_there(const plan *p, gw_arena *a, const json_t *note) {
    const json_t *files = json_object_get(note, "files");
    size_t n = json_array_size(files);
    for (size_t i = 0; i < n; i++) {
        const json_t *f = json_array_get(files, i);
        const char *name = json_string_value(json_object_get(f, "file"));
        struct stat st;
        const char *path = name ? gw_path_join(a, p->b->p->output.dir, name) : NULL;
        if (!path || stat(path, &st) != 0) return false;
        if (st.st_size != json_integer_value(json_object_get(f, "bytes"))) return false;
        if (json_object_get(f, "sums") && !sums_there(a, path, st.st_size)) return false;
    }
    return n > 0;
}

/* The note of a shard that holds; NULL otherwise. */
static json_t *note_if(const plan *p, gw_arena *a, const shard *s) {
    json_t *note = NULL;
    const char *path = note_path(p, a, s);
    gw_build_key key = shard_key(p, s);
    if (!gw_path_exists(path) || gw_json_read_file(path, 0, &note, NULL) != GW_OK) return NULL;
    if (gw_str_eq(json_string_value(json_object_get(note, "key")), key.text) &&
        files_there(p, a, note))
        return note;
    json_decref(note);
    return NULL;
}

/* Sums of a file and its row of the note. */
static gw_status note_file(const plan *p, gw_arena *a, const char *name, bool sums, json_t *files,
                           gw_diags *dg) {
    const char *path = gw_path_join(a, p->b->p->output.dir, name);
    struct stat info;
    gw_hash128 whole = {0};
    char hex[33];
    if (sums) GW_TRY(gw_sums_write(path, &whole, dg));
    if (stat(path, &info) != 0) return gw_io_fail(dg, "file-read", "read", path, errno);
    json_t *o = json_pack("{s:s, s:I}", "file", name, "bytes", (json_int_t)info.st_size);
    if (sums) json_object_set_new(o, "sums", json_string(gw_hash128_hex(hex, whole)));
    json_array_append_new(files, o);
    return GW_OK;
}

static gw_status note_mds(const plan *p, gw_arena *a, const char *entry, json_t *files,
                          gw_diags *dg) {
    json_t *e = NULL;
    GW_TRY(gw_json_parse(entry, strlen(entry), "index.json", &e, dg));
    const json_t *zip = json_object_get(e, "zip_data"), *raw = json_object_get(e, "raw_data");
    const json_t *f = json_is_object(zip) ? zip : raw;
    const char *base = json_string_value(json_object_get(f, "basename"));
    gw_status st = note_file(p, a, gw_arena_printf(a, "mds/%s", base ? base : ""), true, files, dg);
    json_decref(e);
    return st;
}

static gw_status write_shard(plan *p, const shard *s, gw_arena *a, gw_diags *dg) {
    json_t *files = json_array();
    gw_str entry = {0};
    gw_status st = s->megatron ? write_megatron(p, s, a, dg) : write_mds(p, s, &entry, dg);
    if (st == GW_OK && s->megatron) {
        const char *name = gw_arena_printf(a, "megatron/tokens-%05" PRId64, s->number);
        st = note_file(p, a, gw_arena_printf(a, "%s.bin", name), true, files, dg);
        if (st == GW_OK) st = note_file(p, a, gw_arena_printf(a, "%s.idx", name), true, files, dg);
    } else if (st == GW_OK) {
        st = note_mds(p, a, gw_str_c(&entry), files, dg);
    }
    gw_build_key key = shard_key(p, s);
    json_t *note =
        json_pack("{s:s, s:s, s:I, s:I, s:s, s:O}", "key", key.text, "format",
                  s->megatron ? "megatron" : "mds", "documents", (json_int_t)s->documents, "tokens",
                  (json_int_t)s->tokens, "entry", gw_str_c(&entry), "files", files);
    if (st == GW_OK) st = gw_json_write_file(note_path(p, a, s), note, 0, dg);
    json_decref(note);
    json_decref(files);
    gw_str_release(&entry);
    return st;
}

static gw_status shard_task(void *user, void *state, int64_t task, gw_diags *dg) {
    plan *p = user;
    gw_arena a;
    (void)state;
    gw_arena_init(&a);
    const shard *s = &p->shards.items[task];
    json_t *note = note_if(p, &a, s);
    gw_status st = note ? GW_OK : write_shard(p, s, &a, dg);
    json_decref(note);
    gw_arena_release(&a);
    return st;
}

static const char *shard_name(void *user, int64_t task) {
    const plan *p = user;
    return note_path(p, p->b->arena, &p->shards.items[task]);
}

// ------------------------------------------------------------------ all of them

static bool leads(const gw_databuild *b) { return !b->o->comm || gw_comm_rank(b->o->comm) == 0; }

/* Readers must not find an index over shards that are about to change. */
static gw_status drop_indexes(plan *p, gw_diags *dg) {
    static const char *const names[] = {"mds/index.json", "manifest.json"};
    bool all = true;
    for (int64_t i = 0; i < p->shards.count && all; i++) {
        json_t *note = note_if(p, p->b->arena, &p->shards.items[i]);
        all = note != NULL;
        json_decref(note);
    }
    for (size_t i = 0; i < GW_COUNT(names) && !all; i++) {
        const char *path = sub_dir(p->b, names[i]);
        if (unlink(path) != 0 && errno != ENOENT)
            return gw_io_fail(dg, "file-remove", "remove", path, errno);
    }
    return GW_OK;
}

static gw_status collect(plan *p, json_t *shards, gw_diags *dg) {
    gw_arena *a = p->b->arena;
    const char **entries = gw_arena_new(a, const char *, p->shards.count + 1);
    int n = 0;
    for (int64_t i = 0; i < p->shards.count; i++) {
        const shard *s = &p->shards.items[i];
        json_t *note = NULL;
        GW_TRY(gw_json_read_file(note_path(p, a, s), 0, &note, dg));
        json_array_append_new(shards,
                              json_pack("{s:s, s:I, s:I, s:[I, I], s:O}", "format",
                                        s->megatron ? "megatron" : "mds", "documents",
                                        (json_int_t)s->documents, "tokens", (json_int_t)s->tokens,
                                        "first", (json_int_t)s->unit, (json_int_t)s->row, "files",
                                        json_object_get(note, "files")));
        if (!s->megatron)
            entries[n++] = gw_arena_strdup(a, json_string_value(json_object_get(note, "entry")));
        json_decref(note);
    }
    if (!(p->b->p->output.format & GW_FORMAT_MDS) || !leads(p->b)) return GW_OK;
    GW_TRY(gw_dir_make(sub_dir(p->b, "mds"), dg));
    return gw_mds_index_write(sub_dir(p->b, "mds"), entries, n, dg);
}

static bool in_list(const json_t *shards, const char *name) {
    for (size_t i = 0; i < json_array_size(shards); i++) {
        const json_t *files = json_object_get(json_array_get(shards, i), "files");
        for (size_t k = 0; k < json_array_size(files); k++)
            if (gw_str_eq(json_string_value(json_object_get(json_array_get(files, k), "file")),
                          name))
                return true;
    }
    return false;
}

/* A name that a manifest may give: ours, and inside the folder. */
static bool is_ours(const char *name) {
    bool known = gw_str_starts(name, "mds/shard.") || gw_str_starts(name, "megatron/tokens-");
    return known && !strstr(name, "..");
}

static void remove_old(const plan *p, const json_t *old, const json_t *shards) {
    for (size_t i = 0; i < json_array_size(old); i++) {
        const json_t *files = json_object_get(json_array_get(old, i), "files");
        for (size_t k = 0; k < json_array_size(files); k++) {
            const char *name = json_string_value(json_object_get(json_array_get(files, k), "file"));
            if (!name || !is_ours(name) || in_list(shards, name)) continue;
            const char *path = sub_dir(p->b, name);
            unlink(path);
            unlink(gw_arena_printf(p->b->arena, "%s" GW_SUMS_END, path));
        }
    }
}

static gw_status prepare(plan *p, gw_diags *dg) {
    int format = p->b->p->output.format;
    GW_TRY(drop_indexes(p, dg));
    if (format & GW_FORMAT_MDS) GW_TRY(gw_dir_make(sub_dir(p->b, "mds"), dg));
    if (format & GW_FORMAT_MEGATRON) GW_TRY(gw_dir_make(sub_dir(p->b, "megatron"), dg));
    return GW_OK;
}

/* output.format: none. What an earlier build left would be taken for this one's. */
static gw_status no_shards(const plan *p, json_t *old, const json_t *none, gw_diags *dg) {
    gw_status st = GW_OK;
    const char *index = sub_dir(p->b, "mds/index.json");
    if (json_array_size(old) > 0) {
        if (unlink(index) != 0 && errno != ENOENT)
            st = gw_io_fail(dg, "file-remove", "remove", index, errno);
        if (st == GW_OK) remove_old(p, old, none);
        if (st == GW_OK)
            st = gw_json_write_file(gw_path_join(p->b->arena, p->b->work, "shards.json"), none, 1,
                                    dg);
    }
    json_decref(old);
    return st;
}

gw_status gw_build_shards(gw_databuild *b, json_t **shards, gw_diags *dg) {
    plan p = {.b = b};
    json_t *old = NULL;
    const char *list = gw_path_join(b->arena, b->work, "shards.json");
    *shards = json_array();
    if (!b->tokenizer && !leads(b)) return GW_OK;
    if (gw_path_exists(list)) (void)!gw_json_read_file(list, 0, &old, NULL);
    if (!b->tokenizer) return no_shards(&p, old, *shards, dg);
    gw_status st = cut_all(&p, dg);
    if (st == GW_OK && leads(b)) st = prepare(&p, dg);
    gw_pool pool = {.workers = b->workers,
                    .tasks = p.shards.count,
                    .name = shard_name,
                    .work = shard_task,
                    .user = &p,
                    .stop = b->o->stop,
                    .comm = b->o->comm};
    if (b->o->comm) st = gw_exec_agree(b->o->comm, st, NULL, "cutting shards", dg);
    if (st == GW_OK) st = gw_pool_run(&pool, dg);
    if (st == GW_OK) st = collect(&p, *shards, dg);
    if (st == GW_OK && leads(b)) remove_old(&p, old, *shards);
    if (st == GW_OK && leads(b)) st = gw_json_write_file(list, *shards, 1, dg);
    json_decref(old);
    gw_vec_release(&p.shards);
    return st;
}
