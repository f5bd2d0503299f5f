// SPDX-License-Identifier: Apache-2.0
// Training sequences from a token data set.
//
// The order of documents in an epoch is a keyed bijection, so it needs no table; what needs one is
// the position of each document in the packed stream: the running sum of lengths in that order,
// from which a binary search finds the document at any token. Two such tables are kept, for even
// and odd epochs, since a batch may end one epoch and begin the next; a table is rebuilt in place
// when its epoch changes. A set that is not shuffled has one table for all epochs.
//
// Documents without tokens are left out at open: they have no place in a stream. Rows know
// documents by the order in which they appear in the row, which is all that attention needs.
// Positions start at 0 at the row's start too: a row sees nothing of the document before it.
//
// Files are mapped, and a mapping whose file is cut short kills the reader. So both files are held
// open beside, and their sizes compared before each sample: a truncation, such as tokenizing again
// into the same prefix in place, is an error with a name instead.
//
// What must hold: the row of a sample number depends only on (data, options); every label of an
// epoch has a different target token; gw_tokens_valid agrees with the labels that gw_tokens_sample
// masks.
#include "data/tokens.h" /* gw_tokens */

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/arena.h"        /* gw_mem_alloc */
#include "base/compiler.h"     /* GW_MIN */
#include "base/rng.h"          /* gw_rng_permute */
#include "base/str.h"          /* gw_str */
#include "file/megatron_idx.h" /* gw_midx */

typedef struct order {
    int64_t epoch; /* -1 = none */
    int64_t *ends; /* [ndocs] running sum of lengths in the epoch's order */
    gw_rng_key key;
} order;

struct gw_tokens {
    gw_tokens_options opt;
    gw_midx *file; /* or */
    const int32_t *memory;
    const int64_t *memory_ends;
    int64_t *present; /* indices of documents with tokens; NULL if all have */
    int64_t ndocs, ntokens, nsamples;
    order orders[2];
    char *name;
    struct {
        int fd; /* -1 = none */
        int64_t bytes;
    } watched[2]; /* .bin and .idx */
};

gw_tokens_options gw_tokens_options_default(int64_t seq_len, uint64_t seed) {
    return (gw_tokens_options){
        .seq_len = seq_len, .seed = seed, .shuffle = true, .pack = true, .mask_first = true};
}

/* ---- documents ----------------------------------------------------------------------------------
 */

static int64_t raw_doc_len(const gw_tokens *ds, int64_t d) {
    if (!ds->file) return ds->memory_ends[d] - (d ? ds->memory_ends[d - 1] : 0);
    int64_t first, n, sum = 0;
    gw_midx_doc(ds->file, d, &first, &n);
    for (int64_t i = first; i < first + n; i++) sum += gw_midx_seq_tokens(ds->file, i);
    return sum;
}

static int64_t doc_len(const gw_tokens *ds, int64_t d) {
    return raw_doc_len(ds, ds->present ? ds->present[d] : d);
}

static gw_status check_ids(const gw_tokens *ds, const int32_t *ids, int64_t n, int64_t doc,
                           int64_t first, gw_diags *dg) {
    int32_t limit = ds->opt.vocab_size > 0 ? ds->opt.vocab_size : INT32_MAX;
    uint32_t most = 0;
    for (int64_t i = 0; i < n; i++) most = GW_MAX(most, (uint32_t)ids[i]);
    if (most < (uint32_t)limit) return GW_OK;
    int64_t i = 0;
    while ((uint32_t)ids[i] < (uint32_t)limit) i++;
    gw_diag *g =
        gw_diag_add(dg, GW_ERROR, GW_ERR_FORMAT, "data-token-range", (gw_where){.file = ds->name},
                    "token %lld of document %lld is %u, outside the vocabulary of %d",
                    (long long)(first + i), (long long)doc, (unsigned)ids[i], (int)limit);
    gw_diag_hint(dg, g, "tokenize the data with the model's tokenizer");
    return GW_ERR_FORMAT;
}

/* Tokens [first, first + n) of document d. */
static gw_status read_doc(const gw_tokens *ds, int64_t d, int64_t first, int64_t n, int32_t *out,
                          gw_diags *dg) {
    int64_t raw = ds->present ? ds->present[d] : d;
    if (!ds->file) {
        int64_t start = raw ? ds->memory_ends[raw - 1] : 0;
        memcpy(out, ds->memory + start + first, (size_t)n * sizeof *out);
        return check_ids(ds, out, n, raw, first, dg);
    }
    int64_t seq, nseqs, skip = first, done = 0;
    gw_midx_doc(ds->file, raw, &seq, &nseqs);
    for (; done < n; seq++) {
        int64_t len = gw_midx_seq_tokens(ds->file, seq);
        if (skip >= len) {
            skip -= len;
            continue;
        }
        int64_t k = GW_MIN(len - skip, n - done);
        GW_TRY(gw_midx_read(ds->file, seq, skip, k, (uint32_t *)out + done, dg));
        done += k;
        skip = 0;
    }
    return check_ids(ds, out, n, raw, first, dg);
}

/* ---- order --------------------------------------------------------------------------------------
 */

static int64_t doc_at(const gw_tokens *ds, const order *o, int64_t place) {
    if (!ds->opt.shuffle) return place;
    return (int64_t)gw_rng_permute(o->key, (uint64_t)ds->ndocs, (uint64_t)place);
}

static void build_order(const gw_tokens *ds, order *o, int64_t epoch) {
    int64_t sum = 0;
    o->epoch = epoch;
    o->key = gw_rng_key_fold(gw_rng_key_named(ds->opt.seed, "data.shuffle"), (uint64_t)epoch);
    for (int64_t i = 0; ds->opt.pack && i < ds->ndocs; i++)
        o->ends[i] = sum += doc_len(ds, doc_at(ds, o, i));
}

static const order *order_of(gw_tokens *ds, int64_t epoch) {
    if (!ds->opt.shuffle) epoch = 0;
    order *o = &ds->orders[epoch & 1];
    if (o->epoch != epoch) build_order(ds, o, epoch);
    return o;
}

/* The number of places whose running sum is <= at. */
static int64_t ends_upto(const gw_tokens *ds, const order *o, int64_t at) {
    int64_t lo = 0, hi = ds->ndocs;
    while (lo < hi) {
        int64_t mid = lo + (hi - lo) / 2;
        if (o->ends[mid] <= at)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

/* ---- rows ---------------------------------------------------------------------------------------
 */

static void begin_row(gw_sample *out, int64_t number) {
    out->id = number;
    out->valid = 0;
    out->padded = 0;
}

/* Places [from, s) become padding, a document of its own. */
static void pad_row(const gw_tokens *ds, gw_sample *out, int64_t from) {
    int64_t s = ds->opt.seq_len;
    int32_t doc = from > 0 ? out->docs[from - 1] + 1 : 0;
    for (int64_t i = from; i < s; i++) {
        out->tokens[i] = ds->opt.pad_token;
        out->labels[i] = GW_LABEL_MASKED;
        out->positions[i] = (int32_t)(i - from);
        out->docs[i] = doc;
    }
    out->padded = s - from;
}

/* Labels of the n inputs: the next input, `next` after the last (masked if negative). */
static void shift_labels(gw_sample *out, int64_t n, int32_t next, bool mask_first) {
    for (int64_t i = 0; i + 1 < n; i++) {
        bool crosses = out->docs[i + 1] != out->docs[i];
        out->labels[i] = mask_first && crosses ? GW_LABEL_MASKED : out->tokens[i + 1];
    }
    if (n > 0) out->labels[n - 1] = next < 0 ? GW_LABEL_MASKED : next;
    for (int64_t i = 0; i < n; i++) out->valid += out->labels[i] != GW_LABEL_MASKED;
}

static gw_status packed_row(gw_tokens *ds, const order *o, int64_t start, gw_sample *out,
                            gw_diags *dg) {
    int64_t s = ds->opt.seq_len, n = GW_MIN(s, ds->ntokens - start), i = 0;
    int64_t place = ends_upto(ds, o, start);
    int32_t doc = 0, next = -1;
    for (; i < n; place++, doc++) {
        int64_t d = doc_at(ds, o, place), begin = place ? o->ends[place - 1] : 0;
        int64_t k = GW_MIN(o->ends[place] - (start + i), n - i);
        GW_TRY(read_doc(ds, d, start + i - begin, k, out->tokens + i, dg));
        for (int64_t j = 0; j < k; j++) {
            out->positions[i + j] = (int32_t)j;
            out->docs[i + j] = doc;
        }
        i += k;
    }
    if (start + n < ds->ntokens) {
        int64_t last = ends_upto(ds, o, start + n), begin = last ? o->ends[last - 1] : 0;
        bool first_of_doc = begin == start + n;
        if (!(first_of_doc && ds->opt.mask_first))
            GW_TRY(read_doc(ds, doc_at(ds, o, last), start + n - begin, 1, &next, dg));
    }
    shift_labels(out, n, next, ds->opt.mask_first);
    pad_row(ds, out, n);
    return GW_OK;
}

static gw_status document_row(gw_tokens *ds, int64_t d, gw_sample *out, gw_diags *dg) {
    int64_t len = doc_len(ds, d), n = GW_MIN(len, ds->opt.seq_len);
    int32_t next = -1;
    GW_TRY(read_doc(ds, d, 0, n, out->tokens, dg));
    if (len > n) GW_TRY(read_doc(ds, d, n, 1, &next, dg));
    for (int64_t i = 0; i < n; i++) {
        out->positions[i] = (int32_t)i;
        out->docs[i] = 0;
    }
    shift_labels(out, n, next, ds->opt.mask_first);
    pad_row(ds, out, n);
    return GW_OK;
}

static const char *const endings[2] = {".bin", ".idx"};

gw_status gw_tokens_check(const gw_tokens *ds, gw_diags *dg) {
    for (int i = 0; i < 2; i++) {
        struct stat st;
        if (ds->watched[i].fd < 0 || fstat(ds->watched[i].fd, &st) != 0 ||
            st.st_size >= ds->watched[i].bytes)
            continue;
        gw_diag *g =
            gw_diag_add(dg, GW_ERROR, GW_ERR_IO, "file-short", (gw_where){.file = ds->name},
                        "the %s file has %lld bytes; it had %lld when it was opened", endings[i],
                        (long long)st.st_size, (long long)ds->watched[i].bytes);
        gw_diag_hint(dg, g, "data in use must stay as it is: write new data to another prefix");
        return GW_ERR_IO;
    }
    return GW_OK;
}

gw_status gw_tokens_sample(gw_tokens *ds, int64_t number, gw_sample *out, gw_diags *dg) {
    GW_TRY(gw_tokens_check(ds, dg));
    const order *o = order_of(ds, number / ds->nsamples);
    int64_t j = number % ds->nsamples;
    begin_row(out, number);
    if (ds->opt.pack) return packed_row(ds, o, j * ds->opt.seq_len, out, dg);
    return document_row(ds, doc_at(ds, o, j), out, dg);
}

int64_t gw_tokens_inputs(gw_tokens *ds, int64_t number) {
    int64_t s = ds->opt.seq_len, j = number % ds->nsamples;
    if (ds->opt.pack) return GW_MIN(s, ds->ntokens - j * s);
    return GW_MIN(s, doc_len(ds, doc_at(ds, order_of(ds, number / ds->nsamples), j)));
}

int64_t gw_tokens_valid(gw_tokens *ds, int64_t number) {
    int64_t s = ds->opt.seq_len, j = number % ds->nsamples;
    const order *o = order_of(ds, number / ds->nsamples);
    if (!ds->opt.pack) return GW_MIN(s, doc_len(ds, doc_at(ds, o, j)) - 1);
    int64_t start = j * s, targets = GW_MIN(s, ds->ntokens - 1 - start);
    if (!ds->opt.mask_first) return targets;
    /* Documents that begin at a target: ends in [start + 1, start + targets]. */
    return targets - (ends_upto(ds, o, start + targets) - ends_upto(ds, o, start));
}

/* ---- opening ------------------------------------------------------------------------------------
 */

static void find_present(gw_tokens *ds, int64_t documents) {
    int64_t empty = 0;
    for (int64_t d = 0; d < documents; d++) {
        int64_t n = raw_doc_len(ds, d);
        ds->ntokens += n;
        empty += n == 0;
    }
    ds->ndocs = documents - empty;
    if (!empty || !ds->ndocs) return;
    ds->present = gw_mem_alloc((size_t)ds->ndocs * sizeof *ds->present);
    for (int64_t d = 0, k = 0; d < documents; d++)
        if (raw_doc_len(ds, d) > 0) ds->present[k++] = d;
}

static int64_t count_samples(const gw_tokens *ds) {
    if (!ds->opt.pack) return ds->ndocs;
    int64_t s = ds->opt.seq_len, n = ds->ntokens - 1;
    return GW_MAX(1, n / s + (n % s != 0));
}

static gw_status prepare(gw_tokens *ds, int64_t documents, gw_diags *dg) {
    if (ds->opt.seq_len < 1 || ds->opt.seq_len >= INT32_MAX)
        return GW_FAIL(dg, GW_ERR_CONFIG, "data-seq-len",
                       "sequence length %lld is not in [1, 2^31)", (long long)ds->opt.seq_len);
    find_present(ds, documents);
    if (ds->ntokens == 0)
        return gw_fail_at(dg, GW_ERR_FORMAT, "data-empty", (gw_where){.file = ds->name},
                          "the data set has no tokens");
    ds->nsamples = count_samples(ds);
    int tables = ds->opt.shuffle ? 2 : 1;
    for (int i = 0; i < 2; i++) {
        ds->orders[i].epoch = -1;
        if (ds->opt.pack && i < tables)
            ds->orders[i].ends = gw_mem_alloc((size_t)ds->ndocs * sizeof(int64_t));
    }
    build_order(ds, &ds->orders[0], 0);
    return GW_OK;
}

static gw_tokens *new_tokens(const gw_tokens_options *options, const char *name) {
    gw_tokens *ds = gw_mem_zalloc(sizeof *ds);
    ds->opt = *options;
    ds->name = gw_mem_alloc(strlen(name) + 1);
    memcpy(ds->name, name, strlen(name) + 1);
    for (int i = 0; i < 2; i++) ds->watched[i].fd = -1;
    return ds;
}

/* Holds one of the set's files open, so that its size can be asked for. */
static gw_status watch(gw_tokens *ds, int i, const char *prefix, gw_diags *dg) {
    gw_str path = {0};
    size_t n = strlen(prefix);
    bool whole = n > 4 && (!strcmp(prefix + n - 4, ".bin") || !strcmp(prefix + n - 4, ".idx"));
    gw_str_add_n(&path, prefix, whole ? n - 4 : n);
    gw_str_add(&path, endings[i]);
    struct stat st = {0};
    gw_status s = GW_OK;
    int fd = open(gw_str_c(&path), O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) != 0)
        s = GW_FAIL(dg, GW_ERR_IO, "file-open", "cannot open '%s': %s", gw_str_c(&path),
                    strerror(errno));
    ds->watched[i].fd = fd;
    ds->watched[i].bytes = st.st_size;
    gw_str_release(&path);
    return s;
}

gw_status gw_tokens_open(const char *prefix, const gw_tokens_options *options, gw_tokens **out,
                         gw_diags *dg) {
    *out = NULL;
    gw_tokens *ds = new_tokens(options, prefix);
    gw_status st = gw_midx_open(prefix, &ds->file, dg);
    for (int i = 0; i < 2 && st == GW_OK; i++) st = watch(ds, i, prefix, dg);
    if (st == GW_OK) st = prepare(ds, gw_midx_ndocs(ds->file), dg);
    if (st == GW_OK)
        *out = ds;
    else
        gw_tokens_close(ds);
    return st;
}

gw_status gw_tokens_open_memory(const int32_t *tokens, const int64_t *ends, int64_t documents,
                                const gw_tokens_options *options, gw_tokens **out, gw_diags *dg) {
    *out = NULL;
    gw_tokens *ds = new_tokens(options, "memory");
    ds->memory = tokens;
    ds->memory_ends = ends;
    gw_status st = prepare(ds, documents, dg);
    if (st == GW_OK)
        *out = ds;
    else
        gw_tokens_close(ds);
    return st;
}

void gw_tokens_close(gw_tokens *ds) {
    if (!ds) return;
    if (ds->file) gw_midx_free(ds->file);
    for (int i = 0; i < 2; i++)
        if (ds->watched[i].fd >= 0) close(ds->watched[i].fd);
    for (int i = 0; i < 2; i++) gw_mem_free(ds->orders[i].ends);
    gw_mem_free(ds->present);
    gw_mem_free(ds->name);
    gw_mem_free(ds);
}

int64_t gw_tokens_count(const gw_tokens *ds) { return ds->ntokens; }
int64_t gw_tokens_documents(const gw_tokens *ds) { return ds->ndocs; }
int64_t gw_tokens_samples(const gw_tokens *ds) { return ds->nsamples; }
int64_t gw_tokens_seq_len(const gw_tokens *ds) { return ds->opt.seq_len; }

int64_t gw_tokens_bytes(const gw_tokens *ds) {
    int64_t tables = (ds->orders[0].ends != NULL) + (ds->orders[1].ends != NULL);
    return (int64_t)sizeof *ds + (tables + (ds->present != NULL)) * 8 * ds->ndocs;
}

enum { PROBES = 4096, PROBE_TOKENS = 16 };

/* The token, in the order stored, at which probe i begins; the last ends with the set. */
static int64_t probe_at(const gw_tokens *ds, int64_t i) {
    int64_t room = GW_MAX(ds->ntokens - PROBE_TOKENS, (int64_t)0);
    int64_t gap = room / (PROBES - 1), rest = room % (PROBES - 1);
    return gap * i + rest * i / (PROBES - 1);
}

/* Adds tokens [from, to) of document d. */
static void add_tokens(const gw_tokens *ds, gw_hasher *h, int64_t d, int64_t from, int64_t to) {
    int32_t some[256];
    for (int64_t at = from, k; at < to; at += k) {
        k = GW_MIN(to - at, (int64_t)GW_COUNT(some));
        memset(some, 0xff, sizeof some);
        /* A damaged place is found by whoever reads it as a sample; it hashes as what was read. */
        (void)!read_doc(ds, d, at, k, some, NULL);
        gw_hasher_add(h, some, (size_t)k * sizeof *some);
    }
}

gw_hash128 gw_tokens_hash(const gw_tokens *ds) {
    gw_hasher *h = gw_hasher_new();
    bool whole = ds->ntokens <= (int64_t)PROBES * PROBE_TOKENS;
    int64_t begin = 0, probe = 0;
    gw_hasher_add(h, &ds->ntokens, sizeof ds->ntokens);
    for (int64_t d = 0; d < ds->ndocs; d++) {
        int64_t n = doc_len(ds, d), end = begin + n;
        gw_hasher_add(h, &n, sizeof n);
        if (whole) add_tokens(ds, h, d, 0, n);
        /* A probe that goes on in the next document is finished there. */
        while (!whole && probe < PROBES && probe_at(ds, probe) < end) {
            int64_t at = probe_at(ds, probe), stop = at + PROBE_TOKENS;
            add_tokens(ds, h, d, GW_MAX(at, begin) - begin, GW_MIN(stop, end) - begin);
            if (stop > end) break;
            probe++;
        }
        begin = end;
    }
    gw_hash128 out = gw_hasher_get(h);
    gw_hasher_free(h);
    return out;
}
