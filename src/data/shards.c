// SPDX-License-Identifier: Apache-2.0
// Sets of documents in blocks: what is common to all kinds, and sets in memory.
//
// A kind of set is a constant table of functions (shards_megatron.c, shards_mds.c, and memory,
// here); what a block holds while it is in stands in gw_block, so that dropping one is the same for
// all. Errors name the set.
//
// A file that is mapped and then cut short kills its reader. So files that are mapped for the whole
// run are held open beside, and their sizes compared before each sample: a truncation, such as
// tokenizing again into the same prefix in place, is an error with a name instead.
#include "data/shards.h" /* this module's contract */

#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"       /* gw_clock_ns */
#include "base/compiler.h"    /* GW_MIN */
#include "data/shards_impl.h" /* gw_shards */

enum { BLOCK_TOKENS = 4 << 20, HELD = 32 };

/* ---- time ---- */

void gw_load_clock_init(gw_load_clock *c) {
    for (int i = 0; i < GW_LOAD_CAUSES; i++) atomic_init(&c->ns[i], 0);
    atomic_init(&c->since, gw_clock_ns());
    atomic_init(&c->cause, GW_LOAD_QUEUE);
}

gw_load_cause gw_load_clock_enter(gw_load_clock *c, gw_load_cause cause) {
    if (!c) return cause;
    int before = atomic_load_explicit(&c->cause, memory_order_relaxed);
    int64_t now = gw_clock_ns(), since = atomic_load_explicit(&c->since, memory_order_relaxed);
    atomic_fetch_add_explicit(&c->ns[before], now - since, memory_order_relaxed);
    atomic_store_explicit(&c->since, now, memory_order_relaxed);
    atomic_store_explicit(&c->cause, (int)cause, memory_order_relaxed);
    return (gw_load_cause)before;
}

void gw_load_clock_read(gw_load_clock *c, int64_t ns[GW_LOAD_CAUSES]) {
    for (int i = 0; i < GW_LOAD_CAUSES; i++)
        ns[i] = atomic_load_explicit(&c->ns[i], memory_order_relaxed);
    int64_t open = gw_clock_ns() - atomic_load_explicit(&c->since, memory_order_relaxed);
    ns[atomic_load_explicit(&c->cause, memory_order_relaxed)] += GW_MAX(open, (int64_t)0);
}

/* ---- opening ---- */

static gw_shards *new_shards(const gw_shards_options *o, const char *name) {
    gw_shards *s = gw_mem_zalloc(sizeof *s);
    s->opt = *o;
    if (s->opt.block_tokens <= 0) s->opt.block_tokens = BLOCK_TOKENS;
    if (s->opt.held <= 0) s->opt.held = HELD;
    s->name = gw_arena_strdup(&s->mem, name);
    if (o->column) s->opt.column = gw_arena_strdup(&s->mem, o->column);
    if (o->cache_dir) s->opt.cache_dir = gw_arena_strdup(&s->mem, o->cache_dir);
    for (int i = 0; i < 2; i++) s->watched[i].fd = -1;
    return s;
}

/* *mds: the directory, or the keys under the URL, have an index.json. */
static gw_status look_for_index(gw_shards *s, const char *path, bool *mds, gw_diags *dg) {
    gw_store_entry e;
    *mds = false;
    if (gw_str_ends(path, ".bin") || gw_str_ends(path, ".idx")) return GW_OK;
    if (!gw_store_is_url(path)) {
        *mds = gw_path_is_dir(path) && gw_path_exists(gw_path_join(&s->mem, path, "index.json"));
        return GW_OK;
    }
    gw_store *store;
    GW_TRY(gw_store_open(path, NULL, &store, dg));
    gw_status st = gw_store_stat(store, "index.json", &s->mem, &e, mds, dg);
    gw_store_free(store);
    return st;
}

gw_status gw_shards_open(const char *path, const gw_shards_options *o, gw_shards **out,
                         gw_diags *dg) {
    bool mds = false;
    gw_shards *s = new_shards(o, path);
    *out = NULL;
    if (gw_str_ends(path, "/index.json"))
        path = gw_arena_strndup(&s->mem, path, strlen(path) - strlen("/index.json"));
    gw_status st = look_for_index(s, path, &mds, dg);
    s->kind = mds ? &gw_shards_mds : &gw_shards_megatron;
    if (st == GW_OK)
        st = mds ? gw_shards_open_mds(s, path, dg) : gw_shards_open_megatron(s, path, dg);
    if (st == GW_OK)
        *out = s;
    else
        gw_shards_close(s);
    return st;
}

gw_status gw_shards_open_store(gw_shards *s, const char *url, gw_diags *dg) {
    return gw_store_open(url, NULL, &s->store, dg);
}

gw_status gw_shards_open_fetch(gw_shards *s, int64_t largest, gw_diags *dg) {
    gw_fetch_options o = {.buffer_bytes = (s->opt.held + 2) * (largest + 4096),
                          .cache_dir = s->opt.cache_dir,
                          .cache_bytes = s->opt.cache_bytes};
    return gw_fetch_open(s->store, &o, &s->fetch, dg);
}

void gw_shards_close(gw_shards *s) {
    if (!s) return;
    for (int64_t b = 0; b < s->nblocks; b++) gw_shards_drop(s, b);
    for (int i = 0; i < 2; i++)
        if (s->watched[i].fd >= 0) close(s->watched[i].fd);
    gw_fetch_close(s->fetch);
    gw_store_free(s->store);
    gw_midx_free(s->midx);
    gw_str_release(&s->idx);
    gw_shard_sums_free(s->sums);
    gw_mem_free(s->blocks);
    gw_arena_release(&s->mem);
    gw_mem_free(s);
}

void gw_shards_set_clock(gw_shards *s, gw_load_clock *clock) { s->clock = clock; }
const char *gw_shards_name(const gw_shards *s) { return s->name; }
const char *gw_shards_format(const gw_shards *s) { return s->kind->format; }
int64_t gw_shards_documents(const gw_shards *s) { return s->documents; }
int64_t gw_shards_blocks(const gw_shards *s) { return s->nblocks; }
bool gw_shards_has_documents(const gw_shards *s) { return s->kind->documents; }

int64_t gw_shards_bytes(const gw_shards *s) {
    int64_t bytes =
        (int64_t)sizeof *s + s->nblocks * (int64_t)sizeof *s->blocks + s->mem.total_bytes;
    for (int64_t b = 0; b < s->nblocks; b++) {
        const gw_block *k = &s->blocks[b];
        bytes += 8 * k->docs * ((k->ends != NULL) + (k->at != NULL));
        bytes += k->raw ? k->map.bytes : 0;
    }
    return bytes + (int64_t)s->idx.cap + gw_shard_sums_bytes(s->sums);
}

gw_status gw_shards_check(const gw_shards *s, gw_diags *dg) {
    static const char *const endings[2] = {".bin", ".idx"};
    for (int i = 0; i < 2; i++) {
        struct stat st;
        if (s->watched[i].fd < 0 || fstat(s->watched[i].fd, &st) != 0 ||
            st.st_size >= s->watched[i].bytes)
            continue;
        gw_diag *g = gw_diag_add(dg, GW_ERROR, GW_ERR_IO, "file-short", (gw_where){.file = s->name},
                                 "the %s file has %lld bytes; it had %lld when it was opened",
                                 endings[i], (long long)st.st_size, (long long)s->watched[i].bytes);
        gw_diag_hint(dg, g, "data in use must stay as it is: write new data to another prefix");
        return GW_ERR_IO;
    }
    return GW_OK;
}

gw_hash128 gw_shards_hash(gw_shards *s) {
    gw_hasher *h = gw_hasher_new();
    s->kind->add_hash(s, h);
    gw_hash128 out = gw_hasher_get(h);
    gw_hasher_free(h);
    return out;
}

gw_status gw_shards_check_ids(const gw_shards *s, const int32_t *ids, int64_t n, int64_t doc,
                              int64_t first, gw_diags *dg) {
    int32_t limit = s->opt.vocab_size > 0 ? s->opt.vocab_size : INT32_MAX;
    uint32_t most = 0;
    for (int64_t i = 0; i < n; i++) most = GW_MAX(most, (uint32_t)ids[i]);
    if (most < (uint32_t)limit) return GW_OK;
    int64_t i = 0;
    while ((uint32_t)ids[i] < (uint32_t)limit) i++;
    gw_diag *g =
        gw_diag_add(dg, GW_ERROR, GW_ERR_FORMAT, "data-token-range", (gw_where){.file = s->name},
                    "token %lld of document %lld is %u, outside the vocabulary of %d",
                    (long long)(first + i), (long long)doc, (unsigned)ids[i], (int)limit);
    gw_diag_hint(dg, g, "tokenize the data with the model's tokenizer");
    return GW_ERR_FORMAT;
}

/* ---- blocks ---- */

int64_t gw_block_doc_at(const gw_block *k, int64_t at) {
    int64_t lo = 0, hi = k->docs;
    while (lo < hi) {
        int64_t mid = lo + (hi - lo) / 2;
        if (k->ends[mid] <= at)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

int64_t gw_shards_block_docs(const gw_shards *s, int64_t b) { return s->blocks[b].docs; }

gw_status gw_shards_measure(gw_shards *s, int64_t b, int64_t *tokens, gw_diags *dg) {
    if (s->blocks[b].tokens < 0) GW_TRY(s->kind->measure(s, b, dg));
    *tokens = s->blocks[b].tokens;
    return GW_OK;
}

gw_status gw_shards_want(gw_shards *s, int64_t b, gw_diags *dg) {
    if (s->blocks[b].ends || s->blocks[b].ticket) return GW_OK;
    return s->kind->want(s, b, dg);
}

typedef gw_status bringer(gw_shards *s, int64_t b, gw_diags *dg);

static gw_status bring(gw_shards *s, int64_t b, bringer *how, const int64_t **ends, int64_t *docs,
                       gw_diags *dg) {
    gw_block *k = &s->blocks[b];
    if (!k->ends) {
        gw_status st = how(s, b, dg);
        if (st != GW_OK) {
            gw_shards_drop(s, b);
            return st;
        }
    }
    *ends = k->ends;
    *docs = k->docs;
    return GW_OK;
}

gw_status gw_shards_take(gw_shards *s, int64_t b, const int64_t **ends, int64_t *docs,
                         gw_diags *dg) {
    return bring(s, b, s->kind->take, ends, docs, dg);
}

gw_status gw_shards_lengths(gw_shards *s, int64_t b, const int64_t **ends, int64_t *docs,
                            gw_diags *dg) {
    return bring(s, b, s->kind->lengths, ends, docs, dg);
}

bool gw_shards_ready(const gw_shards *s, int64_t b) {
    const gw_block *k = &s->blocks[b];
    return k->ends || !k->ticket || gw_fetch_ready(s->fetch, k->ticket);
}

void gw_shards_drop(gw_shards *s, int64_t b) {
    gw_block *k = &s->blocks[b];
    if (k->ticket) gw_fetch_cancel(s->fetch, k->ticket);
    if (k->fetched.data) gw_fetch_release(s->fetch, &k->fetched);
    gw_map_release(&k->map);
    gw_mem_free(k->raw);
    gw_mem_free(k->ends);
    gw_mem_free(k->at);
    *k = (gw_block){.first_doc = k->first_doc, .docs = k->docs, .tokens = k->tokens};
}

gw_status gw_shards_read(gw_shards *s, int64_t b, int64_t at, int64_t n, int32_t *out,
                         gw_diags *dg) {
    return s->kind->read(s, b, at, n, out, dg);
}

int64_t gw_shards_damages(const gw_shards *s) { return gw_shard_sums_bad(s->sums); }

gw_status gw_shards_doc_check(const gw_shards *s, int64_t d, gw_diags *dg) {
    int64_t first, n, elem;
    if (!s->sums || s->fetch) return GW_OK;
    gw_midx_doc(s->midx, d, &first, &n);
    elem = gw_midx_elem_bytes(s->midx);
    for (int64_t i = first; i < first + n; i++) {
        int64_t at = gw_midx_seq_offset(s->midx, i);
        GW_TRY(gw_shard_sums_check(s->sums, at, at + elem * gw_midx_seq_tokens(s->midx, i), dg));
    }
    return GW_OK;
}

int64_t gw_shards_doc_tokens(const gw_shards *s, int64_t d) { return s->kind->doc_tokens(s, d); }

/* ---- memory ---- */

static int64_t memory_tokens(const gw_shards *s, int64_t d) {
    return s->memory_ends[d] - (d ? s->memory_ends[d - 1] : 0);
}

gw_status gw_shards_sum_ends(gw_shards *s, int64_t b, gw_diags *dg) {
    gw_block *k = &s->blocks[b];
    int64_t sum = 0;
    (void)dg;
    k->ends = gw_mem_alloc((size_t)(k->docs + 1) * sizeof *k->ends);
    for (int64_t i = 0; i < k->docs; i++)
        k->ends[i] = sum += s->kind->doc_tokens(s, k->first_doc + i);
    return GW_OK;
}

gw_status gw_shards_want_nothing(gw_shards *s, int64_t b, gw_diags *dg) {
    (void)s;
    (void)b;
    (void)dg;
    return GW_OK;
}

gw_status gw_shards_measured(gw_shards *s, int64_t b, gw_diags *dg) {
    (void)dg;
    s->blocks[b].tokens = 0;
    return GW_OK;
}

static gw_status memory_read(gw_shards *s, int64_t b, int64_t at, int64_t n, int32_t *out,
                             gw_diags *dg) {
    const gw_block *k = &s->blocks[b];
    int64_t begin = k->first_doc ? s->memory_ends[k->first_doc - 1] : 0;
    if (n <= 0) return GW_OK;
    memcpy(out, s->memory + begin + at, (size_t)n * sizeof *out);
    int64_t doc = gw_block_doc_at(k, at);
    return gw_shards_check_ids(s, out, n, k->first_doc + doc, at - (doc ? k->ends[doc - 1] : 0),
                               dg);
}

gw_status gw_shards_doc_read(const gw_shards *s, int64_t d, int64_t first, int64_t n, int32_t *out,
                             gw_diags *dg) {
    if (n <= 0) return GW_OK;
    if (s->memory) {
        memcpy(out, s->memory + (d ? s->memory_ends[d - 1] : 0) + first, (size_t)n * sizeof *out);
        return gw_shards_check_ids(s, out, n, d, first, dg);
    }
    int64_t seq, nseqs, skip = first, done = 0;
    gw_midx_doc(s->midx, d, &seq, &nseqs);
    for (; done < n; seq++) {
        int64_t len = gw_midx_seq_tokens(s->midx, seq);
        if (skip >= len) {
            skip -= len;
            continue;
        }
        int64_t k = GW_MIN(len - skip, n - done);
        GW_TRY(gw_midx_read(s->midx, seq, skip, k, (uint32_t *)out + done, dg));
        done += k;
        skip = 0;
    }
    return gw_shards_check_ids(s, out, n, d, first, dg);
}

/* ---- what identifies a set of documents ---- */

enum { PROBES = 4096, PROBE_TOKENS = 16 };

/* The token, in the order stored, at which probe i begins; the last ends with the set. */
static int64_t probe_at(int64_t ntokens, int64_t i) {
    int64_t room = GW_MAX(ntokens - PROBE_TOKENS, (int64_t)0);
    int64_t gap = room / (PROBES - 1), rest = room % (PROBES - 1);
    return gap * i + rest * i / (PROBES - 1);
}

/* Adds tokens [from, to) of document d. */
static void add_tokens(const gw_shards *s, gw_hasher *h, int64_t d, int64_t from, int64_t to) {
    int32_t some[256];
    for (int64_t at = from, k; at < to; at += k) {
        k = GW_MIN(to - at, (int64_t)GW_COUNT(some));
        memset(some, 0xff, sizeof some);
        /* A damaged place is found by whoever reads it as a sample; it hashes as what was read. */
        (void)!gw_shards_doc_read(s, d, at, k, some, NULL);
        gw_hasher_add(h, some, (size_t)k * sizeof *some);
    }
}

void gw_shards_add_documents(gw_shards *s, gw_hasher *h) {
    int64_t ntokens = 0, begin = 0, probe = 0;
    bool here = s->kind->documents && !s->fetch;
    for (int64_t d = 0; d < s->documents; d++) ntokens += s->kind->doc_tokens(s, d);
    bool whole = ntokens <= (int64_t)PROBES * PROBE_TOKENS;
    gw_hasher_add(h, &ntokens, sizeof ntokens);
    for (int64_t d = 0; d < s->documents; d++) {
        int64_t n = s->kind->doc_tokens(s, d), end = begin + n;
        if (n == 0) continue;
        gw_hasher_add(h, &n, sizeof n);
        if (whole && here) add_tokens(s, h, d, 0, n);
        /* A probe that goes on in the next document is finished there. */
        while (!whole && here && probe < PROBES && probe_at(ntokens, probe) < end) {
            int64_t at = probe_at(ntokens, probe), stop = at + PROBE_TOKENS;
            add_tokens(s, h, d, GW_MAX(at, begin) - begin, GW_MIN(stop, end) - begin);
            if (stop > end) break;
            probe++;
        }
        begin = end;
    }
}

/* ---- cutting documents into blocks ---- */

/* Whole documents, about block_tokens of them; the last block may be short. */
void gw_shards_cut(gw_shards *s) {
    int64_t room = 16;
    s->blocks = gw_mem_alloc((size_t)room * sizeof *s->blocks);
    for (int64_t d = 0; d < s->documents;) {
        gw_block k = {.first_doc = d};
        while (d < s->documents && (k.docs == 0 || k.tokens < s->opt.block_tokens)) {
            k.tokens += s->kind->doc_tokens(s, d++);
            k.docs++;
        }
        if (s->nblocks == room) {
            room *= 2;
            s->blocks = gw_mem_realloc(s->blocks, (size_t)room * sizeof *s->blocks);
        }
        s->blocks[s->nblocks++] = k;
    }
}

gw_shards *gw_shards_open_memory(const int32_t *tokens, const int64_t *ends, int64_t documents,
                                 const gw_shards_options *o) {
    static const int32_t nothing = 0;
    gw_shards *s = new_shards(o, "memory");
    s->kind = &gw_shards_memory;
    s->memory = tokens ? tokens : &nothing;
    s->memory_ends = ends;
    s->documents = documents;
    gw_shards_cut(s);
    return s;
}

const gw_shards_kind gw_shards_memory = {.format = "memory",
                                         .documents = true,
                                         .measure = gw_shards_measured,
                                         .want = gw_shards_want_nothing,
                                         .take = gw_shards_sum_ends,
                                         .lengths = gw_shards_sum_ends,
                                         .read = memory_read,
                                         .doc_tokens = memory_tokens,
                                         .add_hash = gw_shards_add_documents};
