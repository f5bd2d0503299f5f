// SPDX-License-Identifier: Apache-2.0
// A directory of MDS shards as blocks: a shard is a block, a sample a document.
//
// Tokens are one column: arrays of whole numbers, or bytes, which are int64 by the convention of
// the library's own examples for text. An index that gradwright wrote says how many tokens each
// shard has; of other ones it follows from a shard's table of offsets, since a sample's size tells
// the length of the one array in it that varies, and where it does not (several columns vary, or
// the file is compressed) the shard is read.
//
// A shard that is on this machine and not compressed is mapped; a compressed one is decompressed
// into memory; what comes over the network is held by the fetch until it is dropped or
// decompressed. Bytes are checked against the index's hashes as they are taken in. A mismatch is
// looked at once more, from the source where there is one, and then reported as damage.
#include <string.h>
#include <sys/mman.h>

#include "base/log.h"         /* gw_log_info */
#include "data/shards_impl.h" /* this module's contract */

enum { HEAD = 4 };

static const gw_mds_shard *shard_of(const gw_shards *s, int64_t b) { return &s->index.shards[b]; }

static const gw_mds_column *column_of(const gw_shards *s, int64_t b) {
    return &shard_of(s, b)->columns[s->column];
}

static bool of_whole_numbers(const gw_mds_column *c) {
    bool real = c->element == GW_MDS_F16 || c->element == GW_MDS_F32 || c->element == GW_MDS_F64;
    return (c->kind == GW_MDS_NDARRAY && !real) || c->kind == GW_MDS_BYTES;
}

/* ---- opening ---- */

static gw_status no_column(const gw_shards *s, gw_diags *dg) {
    gw_str names = {0};
    const gw_mds_shard *first = shard_of(s, 0);
    for (int i = 0; i < first->ncolumns; i++)
        gw_str_printf(&names, "%s%s (%s)", i ? ", " : "", first->columns[i].name,
                      first->columns[i].encoding);
    gw_diag *g =
        gw_diag_add(dg, GW_ERROR, GW_ERR_CONFIG, "data-column", (gw_where){.file = s->name},
                    s->opt.column ? "no column of whole numbers is named '%s'"
                                  : "which column holds the tokens cannot be told%s",
                    s->opt.column ? s->opt.column : "");
    gw_diag_detail(dg, g, "it has %s", gw_str_c(&names));
    gw_diag_hint(dg, g, "name it with data.column; text is tokenized by `gradwright data build`");
    gw_str_release(&names);
    return GW_ERR_CONFIG;
}

static gw_status find_column(gw_shards *s, gw_diags *dg) {
    static const char *const usual[] = {"tokens", "input_ids"};
    const gw_mds_shard *first = shard_of(s, 0);
    s->column = -1;
    if (s->opt.column) s->column = gw_mds_column_find(first, s->opt.column);
    for (size_t i = 0; i < GW_COUNT(usual) && s->column < 0 && !s->opt.column; i++) {
        int c = gw_mds_column_find(first, usual[i]);
        if (c >= 0 && of_whole_numbers(&first->columns[c])) s->column = c;
    }
    if (s->column < 0 && !s->opt.column) {
        int arrays = 0, last = -1;
        for (int i = 0; i < first->ncolumns; i++)
            if (first->columns[i].kind == GW_MDS_NDARRAY && of_whole_numbers(&first->columns[i])) {
                arrays++;
                last = i;
            }
        if (arrays == 1) s->column = last;
    }
    if (s->column < 0 || !of_whole_numbers(&first->columns[s->column])) return no_column(s, dg);
    for (int64_t b = 1; b < s->nblocks; b++)
        if (shard_of(s, b)->columns != first->columns)
            return gw_fail_at(dg, GW_ERR_FORMAT, "data-column", (gw_where){.file = s->name},
                              "shard %lld has other columns than the first", (long long)b);
    return GW_OK;
}

/* Tokens where every sample has as many. */
static int64_t fixed_tokens(const gw_mds_column *c) {
    int64_t n = 1;
    if (c->kind != GW_MDS_NDARRAY || c->bytes == 0) return -1;
    for (int i = 0; i < c->ndim; i++) n *= c->dims[i];
    return n;
}

static gw_status list_blocks(gw_shards *s, gw_diags *dg) {
    s->nblocks = s->index.nshards;
    s->documents = s->index.samples;
    if (s->nblocks == 0)
        return gw_fail_at(dg, GW_ERR_FORMAT, "data-empty", (gw_where){.file = s->name},
                          "the index has no shards");
    s->blocks = gw_mem_zalloc((size_t)s->nblocks * sizeof *s->blocks);
    GW_TRY(find_column(s, dg));
    int64_t first = 0, fixed = fixed_tokens(column_of(s, 0));
    for (int64_t b = 0; b < s->nblocks; b++) {
        const gw_mds_shard *m = shard_of(s, b);
        s->blocks[b] = (gw_block){.first_doc = first, .docs = m->samples, .tokens = m->tokens};
        if (m->samples == 0) s->blocks[b].tokens = 0;
        if (s->blocks[b].tokens < 0 && fixed > 0) s->blocks[b].tokens = fixed * m->samples;
        first += m->samples;
    }
    return GW_OK;
}

gw_status gw_shards_open_mds(gw_shards *s, const char *path, gw_diags *dg) {
    int64_t largest = 0;
    if (!gw_store_is_url(path)) {
        GW_TRY(gw_mds_index_read(&s->mem, path, &s->index, dg));
        s->key = gw_arena_strdup(&s->mem, path); /* of a directory: where it is */
        return list_blocks(s, dg);
    }
    gw_str text = {0};
    GW_TRY(gw_shards_open_store(s, path, dg));
    gw_status st = gw_store_read(s->store, "index.json", INT64_C(1) << 32, &text, dg);
    if (st == GW_OK)
        st = gw_mds_index_parse(&s->mem, gw_str_c(&text), (int64_t)text.len,
                                gw_store_name(s->store, "index.json", &s->mem), &s->index, dg);
    gw_str_release(&text);
    GW_TRY(st);
    GW_TRY(list_blocks(s, dg));
    for (int64_t b = 0; b < s->nblocks; b++) {
        const gw_mds_shard *m = shard_of(s, b);
        largest = GW_MAX(largest, m->zip.name ? m->zip.bytes : m->raw.bytes);
    }
    return gw_shards_open_fetch(s, largest, dg);
}

/* ---- bringing a shard in ---- */

static int hex_digit(char c) { return c <= '9' ? c - '0' : c - 'a' + 10; }

/* The first of the index's hashes that the fetch can check by itself. */
static void take_check(const gw_mds_file *f, gw_fetch_item *item) {
    static const struct {
        const char *name;
        gw_fetch_check check;
        int bytes;
        bool swapped;
    } known[] = {{"xxh64", GW_FETCH_CHECK_XXH64, 8, true},
                 {"xxh3_64", GW_FETCH_CHECK_XXH3_64, 8, true},
                 {"xxh128", GW_FETCH_CHECK_XXH3_128, 16, true},
                 {"sha1", GW_FETCH_CHECK_SHA1, 20, false},
                 {"md5", GW_FETCH_CHECK_MD5, 16, false},
                 {"sha256", GW_FETCH_CHECK_SHA256, 32, false}};
    for (size_t k = 0; k < GW_COUNT(known); k++)
        for (int i = 0; i < f->nhashes; i++) {
            const char *hex = f->hashes[i].hex;
            int n = known[k].bytes;
            if (strcmp(f->hashes[i].algorithm, known[k].name) != 0 ||
                strspn(hex, "0123456789abcdef") != (size_t)(2 * n) || hex[2 * n])
                continue;
            item->check = known[k].check;
            for (int j = 0; j < n; j++) {
                int to = known[k].swapped ? n - 1 - j : j;
                item->digest[to] =
                    (uint8_t)(hex_digit(hex[2 * j]) << 4 | hex_digit(hex[2 * j + 1]));
            }
            return;
        }
}

static const gw_mds_file *file_of(const gw_shards *s, int64_t b) {
    const gw_mds_shard *m = shard_of(s, b);
    return m->zip.name ? &m->zip : &m->raw;
}

static gw_status far_item(gw_shards *s, int64_t b, gw_diags *dg) {
    const gw_mds_file *f = file_of(s, b);
    gw_fetch_item item = {.key = f->name, .bytes = f->bytes, .tag = (uint64_t)b};
    if (!s->opt.no_verify) take_check(f, &item);
    return gw_fetch_submit(s->fetch, &item, &s->blocks[b].ticket, dg);
}

static const char *path_of(gw_shards *s, const char *name, gw_arena *a) {
    return s->store ? gw_store_name(s->store, name, a) : gw_path_join(a, s->key, name);
}

static gw_status want(gw_shards *s, int64_t b, gw_diags *dg) {
    return s->fetch ? far_item(s, b, dg) : GW_OK;
}

/* The file's bytes, checked: from the network, or mapped. *zipped: they are compressed. */
static gw_status bring(gw_shards *s, int64_t b, bool *zipped, gw_arena *a, gw_diags *dg) {
    gw_block *k = &s->blocks[b];
    const gw_mds_shard *m = shard_of(s, b);
    if (s->fetch) {
        if (!k->ticket) GW_TRY(far_item(s, b, dg));
        gw_fetch_ticket t = k->ticket;
        k->ticket = 0;
        GW_TRY(gw_fetch_wait(s->fetch, t, &k->fetched, dg));
        *zipped = m->zip.name != NULL;
        k->bytes = k->fetched.data;
        k->base = k->fetched.bytes;
        return GW_OK;
    }
    const char *raw = path_of(s, m->raw.name, a);
    *zipped = m->zip.name && !gw_path_exists(raw);
    const gw_mds_file *f = *zipped ? &m->zip : &m->raw;
    const char *path = *zipped ? path_of(s, m->zip.name, a) : raw;
    GW_TRY(gw_map_open(&k->map, path, dg));
    (void)madvise((void *)(uintptr_t)k->map.data, (size_t)k->map.bytes, MADV_WILLNEED);
    k->bytes = k->map.data;
    k->base = k->map.bytes;
    if (k->map.bytes != f->bytes || !s->opt.no_verify)
        return gw_mds_file_check(f, k->map.data, k->map.bytes, path, dg);
    return GW_OK;
}

static gw_status unzip(gw_shards *s, int64_t b, const char *path, gw_diags *dg) {
    gw_block *k = &s->blocks[b];
    const gw_mds_shard *m = shard_of(s, b);
    gw_load_cause before = gw_load_clock_enter(s->clock, GW_LOAD_DECOMPRESS);
    k->raw = gw_mem_alloc((size_t)m->raw.bytes + 1);
    gw_status st = gw_mds_unzip(m, k->bytes, k->base, k->raw, path, dg);
    if (k->fetched.data) gw_fetch_release(s->fetch, &k->fetched);
    k->fetched = (gw_fetch_block){0};
    gw_map_release(&k->map);
    k->bytes = k->raw;
    k->base = m->raw.bytes;
    (void)gw_load_clock_enter(s->clock, before);
    return st;
}

/* Where a value's tokens are: bytes become int64, arrays are what they say. */
static bool tokens_of(const gw_mds_column *c, const uint8_t *value, int64_t n, gw_mds_array *a) {
    if (c->kind == GW_MDS_NDARRAY) return gw_mds_array_read(c, value, n, a);
    *a = (gw_mds_array){.element = GW_MDS_I64, .ndim = 1, .count = n / 8, .data = value};
    return n % 8 == 0;
}

static gw_status lay_out(gw_shards *s, int64_t b, const gw_mds_view *v, gw_diags *dg) {
    gw_block *k = &s->blocks[b];
    const gw_mds_column *c = column_of(s, b);
    int64_t sum = 0;
    int64_t *ends = gw_mem_alloc((size_t)(k->docs + 1) * sizeof *ends);
    k->at = gw_mem_alloc((size_t)(k->docs + 1) * sizeof *k->at);
    gw_status st = GW_OK;
    for (int64_t i = 0; i < k->docs && st == GW_OK; i++) {
        const uint8_t *value;
        int64_t n;
        gw_mds_array a = {0};
        st = gw_mds_view_value(v, i, s->column, &value, &n, dg);
        if (st != GW_OK) break;
        bool whole = tokens_of(c, value, n, &a) && a.element != GW_MDS_F16 &&
                     a.element != GW_MDS_F32 && a.element != GW_MDS_F64;
        if (i == 0) k->element = a.element;
        if (!whole || a.element != k->element)
            st = gw_fail_at(dg, GW_ERR_FORMAT, "mds-damaged", (gw_where){.file = v->path},
                            "column '%s' of sample %lld is no array of %s", c->name, (long long)i,
                            whole ? gw_mds_element_name(k->element) : "whole numbers");
        k->at[i] = a.data - k->bytes;
        ends[i] = sum += a.count;
    }
    if (st == GW_OK && k->tokens >= 0 && sum != k->tokens)
        st = gw_fail_at(dg, GW_ERR_FORMAT, "mds-damaged", (gw_where){.file = v->path},
                        "the shard has %lld tokens; the index says %lld", (long long)sum,
                        (long long)k->tokens);
    if (st != GW_OK) {
        gw_mem_free(ends);
        return st;
    }
    k->tokens = sum;
    k->ends = ends;
    return GW_OK;
}

static gw_status take_once(gw_shards *s, int64_t b, gw_diags *dg) {
    gw_block *k = &s->blocks[b];
    gw_arena mem = {0};
    bool zipped = false;
    gw_load_cause before = gw_load_clock_enter(s->clock, GW_LOAD_SOURCE);
    gw_status st = bring(s, b, &zipped, &mem, dg);
    const char *path = path_of(s, file_of(s, b)->name, &mem);
    (void)gw_load_clock_enter(s->clock, GW_LOAD_DECODE);
    if (st == GW_OK && zipped) st = unzip(s, b, path, dg);
    gw_mds_view v;
    if (st == GW_OK) st = gw_mds_view_open(&v, shard_of(s, b), k->bytes, k->base, path, dg);
    if (st == GW_OK) st = lay_out(s, b, &v, dg);
    (void)gw_load_clock_enter(s->clock, before);
    gw_arena_release(&mem);
    return st;
}

static bool is_damage(const gw_diags *dg, gw_status st) {
    return st == GW_ERR_FORMAT ||
           (dg->last && dg->last->id && !strcmp(dg->last->id, "fetch-damaged"));
}

/* What is damaged is looked at once more, past the cache. */
static gw_status take(gw_shards *s, int64_t b, gw_diags *dg) {
    gw_diags faults;
    gw_diags_init(&faults);
    gw_status st = take_once(s, b, &faults);
    if (st != GW_OK && is_damage(&faults, st)) {
        gw_log_debug("%s: shard %lld is damaged (%s): read again", s->name, (long long)b,
                     gw_diags_first_error(&faults));
        gw_shards_drop(s, b);
        if (s->fetch)
            gw_fetch_forget(s->fetch, &(gw_fetch_item){.key = file_of(s, b)->name,
                                                       .bytes = file_of(s, b)->bytes});
        gw_diags_clear(&faults);
        st = take_once(s, b, &faults);
        if (st != GW_OK && is_damage(&faults, st)) st = GW_ERR_FORMAT;
    }
    gw_diags_take(dg, &faults);
    gw_diags_release(&faults);
    return st;
}

/* ---- counting without reading ---- */

/* The tokens in a value of n bytes of an NDARRAY of one dimension; -1: cannot be told. */
static int64_t tokens_in(const gw_mds_column *c, int64_t n) {
    if (c->kind == GW_MDS_BYTES) return n % 8 == 0 ? n / 8 : -1;
    int size = gw_mds_element_bytes(c->element);
    if (size == 0) return -1;
    if (c->ndim > 0) return -1;
    for (int width = 1; width <= 8; width *= 2) {
        int64_t rest = n - 1 - width, count = rest / size;
        bool fits = width == 8 || (uint64_t)count < UINT64_C(1) << (8 * width);
        bool needs = width == 1 || (uint64_t)count >= UINT64_C(1) << (4 * width);
        if (rest > 0 && rest % size == 0 && fits && needs) return count;
    }
    return -1;
}

static uint32_t u32_at(const uint8_t *p) {
    uint32_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

/* From a table of offsets; -1 where the sizes of samples do not tell. */
static int64_t count_by_offsets(const gw_shards *s, int64_t b, const uint8_t *offsets) {
    const gw_mds_shard *m = shard_of(s, b);
    int64_t rest = 0, sum = 0;
    for (int i = 0; i < m->ncolumns; i++) {
        if (i != s->column && m->columns[i].bytes == 0) return -1;
        rest += i == s->column ? 4 : m->columns[i].bytes;
    }
    for (int64_t i = 0; i < m->samples; i++) {
        int64_t n = (int64_t)u32_at(offsets + 4 * i + 4) - (int64_t)u32_at(offsets + 4 * i);
        int64_t tokens = tokens_in(&m->columns[s->column], n - rest);
        if (tokens < 0) return -1;
        sum += tokens;
    }
    return sum;
}

static gw_status read_offsets(gw_shards *s, int64_t b, uint8_t *out, int64_t n, bool *there,
                              gw_diags *dg) {
    gw_arena mem = {0};
    gw_mapping map = {0};
    const gw_mds_shard *m = shard_of(s, b);
    const char *path = path_of(s, m->raw.name, &mem);
    gw_status st = GW_OK;
    *there = s->fetch ? !m->zip.name : gw_path_exists(path);
    *there = *there && m->raw.bytes >= HEAD + n;
    if (*there && s->fetch) st = gw_store_get(s->store, m->raw.name, NULL, HEAD, n, out, dg);
    if (*there && !s->fetch) {
        st = gw_map_open(&map, path, dg);
        if (st == GW_OK && map.bytes >= HEAD + n)
            memcpy(out, map.data + HEAD, (size_t)n);
        else
            *there = false;
        gw_map_release(&map);
    }
    gw_arena_release(&mem);
    return st;
}

static gw_status measure(gw_shards *s, int64_t b, gw_diags *dg) {
    int64_t n = 4 * (shard_of(s, b)->samples + 1), tokens = -1;
    uint8_t *offsets = gw_mem_alloc((size_t)n);
    bool there = false;
    gw_status st = read_offsets(s, b, offsets, n, &there, dg);
    if (st == GW_OK && there) tokens = count_by_offsets(s, b, offsets);
    gw_mem_free(offsets);
    GW_TRY(st);
    if (tokens >= 0) {
        s->blocks[b].tokens = tokens;
        return GW_OK;
    }
    GW_TRY(take(s, b, dg));
    gw_shards_drop(s, b);
    return GW_OK;
}

/* ---- reading ---- */

/* One loop for each element type: what has a bit above the 31st is no token id. */
#define WIDEN(type)                                                                                \
    for (int64_t i = 0; i < n; i++) {                                                              \
        type x;                                                                                    \
        memcpy(&x, p + (int64_t)sizeof x * i, sizeof x);                                           \
        out[i] = (int32_t)x;                                                                       \
        high |= (uint64_t)(int64_t)x >> 31;                                                        \
    }

/* False when one of them is no token id. */
static bool widen(gw_mds_element e, const uint8_t *p, int64_t n, int32_t *out) {
    uint64_t high = 0;
    switch (e) {
    case GW_MDS_U8: WIDEN(uint8_t) break;
    case GW_MDS_I8: WIDEN(int8_t) break;
    case GW_MDS_U16: WIDEN(uint16_t) break;
    case GW_MDS_I16: WIDEN(int16_t) break;
    case GW_MDS_U32: WIDEN(uint32_t) break;
    case GW_MDS_I32: WIDEN(int32_t) break;
    case GW_MDS_U64: WIDEN(uint64_t) break;
    case GW_MDS_I64: WIDEN(int64_t) break;
    case GW_MDS_ANY:
    case GW_MDS_F16:
    case GW_MDS_F32:
    case GW_MDS_F64: break; /* refused when it was laid out */
    }
    return high == 0;
}

static gw_status read_tokens(gw_shards *s, int64_t b, int64_t at, int64_t n, int32_t *out,
                             gw_diags *dg) {
    const gw_block *k = &s->blocks[b];
    int64_t size = gw_mds_element_bytes(k->element);
    for (int64_t d = gw_block_doc_at(k, at), done = 0; done < n; d++) {
        int64_t first = at + done - (d ? k->ends[d - 1] : 0);
        int64_t some = GW_MIN(k->ends[d] - (at + done), n - done);
        if (!widen(k->element, k->bytes + k->at[d] + first * size, some, out + done))
            return gw_fail_at(dg, GW_ERR_FORMAT, "data-token-range", (gw_where){.file = s->name},
                              "a token of sample %lld (%lld to %lld) is negative or past 31 bits",
                              (long long)(k->first_doc + d), (long long)first,
                              (long long)(first + some - 1));
        GW_TRY(gw_shards_check_ids(s, out + done, some, k->first_doc + d, first, dg));
        done += some;
    }
    return GW_OK;
}

static int64_t no_doc_tokens(const gw_shards *s, int64_t d) {
    (void)s;
    (void)d;
    return 0;
}

static void add_hash(gw_shards *s, gw_hasher *h) {
    gw_hasher_add(h, "mds", 4);
    for (int64_t b = 0; b < s->nblocks; b++) {
        const gw_mds_shard *m = shard_of(s, b);
        int64_t sizes[2] = {m->samples, m->raw.bytes};
        gw_hasher_add(h, sizes, sizeof sizes);
        for (int i = 0; i < m->raw.nhashes; i++)
            gw_hasher_add(h, m->raw.hashes[i].hex, strlen(m->raw.hashes[i].hex) + 1);
    }
    const char *column = column_of(s, 0)->name;
    gw_hasher_add(h, column, strlen(column) + 1);
}

const gw_shards_kind gw_shards_mds = {.format = "mds",
                                      .documents = false,
                                      .measure = measure,
                                      .want = want,
                                      .take = take,
                                      .lengths = take,
                                      .read = read_tokens,
                                      .doc_tokens = no_doc_tokens,
                                      .add_hash = add_hash};
