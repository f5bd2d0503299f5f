// SPDX-License-Identifier: Apache-2.0
// The ledger of consumed batches.
//
// A row's hash is of its content, not of its number: two runs that read the same rows agree, be it
// from a Megatron file or from MDS shards, and a row that was damaged on its way does not.
// Positions follow from documents and are left out.
//
// The file is one JSON object a line, each written with one write(2) on a descriptor opened for
// appending, as metrics.jsonl is: a crash costs at most the line being written. A run that stops
// between checkpoints has lines of batches that the resumed run takes again; they are removed when
// it goes on, by their samples, so that what stands there is what the weights have seen.
//
// Two ledgers are compared by walking both to their next common boundary, again and again: between
// two such boundaries each has consumed some batches, and the sums of these must be equal. With
// equal batch sizes every batch is compared.
#include "data/ledger.h" /* this module's contract */

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/compiler.h" /* GW_MIN */
#include "base/io.h"       /* gw_file_read, gw_fd_write_all */
#include "base/map.h"      /* GW_VEC */
#include "file/json.h"     /* gw_json_parse */

/* ---- digests ---- */

gw_hash128 gw_digest_row(const int32_t *tokens, const int32_t *labels, const int32_t *docs,
                         int64_t s) {
    size_t n = (size_t)s * sizeof *tokens;
    gw_hash128 parts[3] = {gw_hash128_of(tokens, n), gw_hash128_of(labels, n),
                           gw_hash128_of(docs, n)};
    return gw_hash128_of(parts, sizeof parts);
}

void gw_digest_add(gw_digest *d, gw_digest x) {
    d->lo += x.lo;
    d->hi += x.hi + (d->lo < x.lo);
}

bool gw_digest_same(gw_digest a, gw_digest b) { return a.lo == b.lo && a.hi == b.hi; }

void gw_digest_parts(gw_digest d, double parts[GW_DIGEST_PARTS]) {
    parts[0] = (double)(uint32_t)d.lo;
    parts[1] = (double)(d.lo >> 32);
    parts[2] = (double)(uint32_t)d.hi;
    parts[3] = (double)(d.hi >> 32);
}

gw_digest gw_digest_of_sums(const double sums[GW_DIGEST_PARTS]) {
    uint64_t limb[GW_DIGEST_PARTS], carry = 0;
    for (int i = 0; i < GW_DIGEST_PARTS; i++) {
        carry += (uint64_t)sums[i];
        limb[i] = carry & UINT32_MAX;
        carry >>= 32;
    }
    return (gw_digest){limb[1] << 32 | limb[0], limb[3] << 32 | limb[2]};
}

/* ---- writing ---- */

struct gw_ledger {
    gw_arena mem;
    const char *path;
    int fd;
};

enum { LINE = 512 };

static int print_line(char buf[LINE], const gw_ledger_line *l) {
    char hex[33];
    return snprintf(buf, LINE,
                    "{\"batch\": %" PRId64 ", \"step\": %" PRId64 ", \"first\": %" PRId64
                    ", \"next\": %" PRId64 ", \"labels\": %" PRId64 ", \"tokens\": %" PRId64
                    ", \"quarantined\": %" PRId64 ", \"digest\": \"%s\"}\n",
                    l->batch, l->step, l->first, l->next, l->labels, l->tokens, l->quarantined,
                    gw_hash128_hex(hex, l->digest));
}

/* Without the lines of batches from `next_sample` on, and without one that a crash cut short. */
static gw_status truncate_at(gw_ledger *l, int64_t next_sample, gw_diags *dg) {
    gw_arena mem = {0};
    gw_ledger_history h;
    gw_str kept = {0};
    char buf[LINE];
    if (!gw_path_exists(l->path)) return GW_OK;
    gw_status st = gw_ledger_read(l->path, &mem, &h, dg);
    for (int64_t i = 0; st == GW_OK && i < h.n && h.lines[i].next <= next_sample; i++)
        gw_str_add_n(&kept, buf, (size_t)print_line(buf, &h.lines[i]));
    if (st == GW_OK) st = gw_file_write_atomic(l->path, gw_str_c(&kept), (int64_t)kept.len, dg);
    gw_str_release(&kept);
    gw_arena_release(&mem);
    return st;
}

gw_status gw_ledger_open(const char *dir, int64_t next_sample, gw_ledger **out, gw_diags *dg) {
    gw_ledger *l = gw_mem_zalloc(sizeof *l);
    l->path = gw_path_join(&l->mem, dir, "data.ledger");
    gw_status st = next_sample >= 0 ? truncate_at(l, next_sample, dg) : GW_OK;
    int flags = O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | (next_sample < 0 ? O_TRUNC : 0);
    l->fd = st == GW_OK ? open(l->path, flags, 0666) : -1;
    if (st == GW_OK && l->fd < 0)
        st = GW_FAIL(dg, GW_ERR_IO, "file-open", "cannot open '%s': %s", l->path, strerror(errno));
    *out = st == GW_OK ? l : NULL;
    if (st != GW_OK) (void)!gw_ledger_close(l, NULL);
    return st;
}

gw_status gw_ledger_add(gw_ledger *l, const gw_ledger_line *line, gw_diags *dg) {
    char buf[LINE];
    int n = print_line(buf, line);
    return gw_fd_write_all(l->fd, buf, n, l->path, dg);
}

gw_status gw_ledger_close(gw_ledger *l, gw_diags *dg) {
    gw_status st = GW_OK;
    if (!l) return GW_OK;
    if (l->fd >= 0 && close(l->fd) != 0)
        st =
            GW_FAIL(dg, GW_ERR_IO, "file-write", "cannot write '%s': %s", l->path, strerror(errno));
    gw_arena_release(&l->mem);
    gw_mem_free(l);
    return st;
}

/* ---- reading ---- */

static bool hex_digest(const char *s, gw_digest *out) {
    if (!s || strlen(s) != 32 || strspn(s, "0123456789abcdef") != 32) return false;
    *out = (gw_digest){0};
    for (int i = 0; i < 32; i++) {
        uint64_t digit = (uint64_t)(s[i] <= '9' ? s[i] - '0' : s[i] - 'a' + 10);
        out->hi = out->hi << 4 | out->lo >> 60;
        out->lo = out->lo << 4 | digit;
    }
    return true;
}

static bool read_line(const json_t *o, gw_ledger_line *l) {
    const struct {
        const char *key;
        int64_t *to;
    } numbers[] = {{"batch", &l->batch},
                   {"step", &l->step},
                   {"first", &l->first},
                   {"next", &l->next},
                   {"labels", &l->labels},
                   {"tokens", &l->tokens},
                   {"quarantined", &l->quarantined}};
    for (size_t i = 0; i < GW_COUNT(numbers); i++)
        if (!gw_json_as_i64(json_object_get(o, numbers[i].key), numbers[i].to) ||
            *numbers[i].to < 0)
            return false;
    return l->next > l->first &&
           hex_digest(json_string_value(json_object_get(o, "digest")), &l->digest);
}

static gw_status parse_line(const char *text, size_t n, int number, const char *name,
                            gw_ledger_line *l, gw_diags *dg) {
    json_t *o = NULL;
    bool good = gw_json_parse(text, n, name, &o, NULL) == GW_OK && read_line(o, l);
    json_decref(o);
    if (good) return GW_OK;
    return gw_fail_at(dg, GW_ERR_FORMAT, "ledger-format", (gw_where){.file = name, .line = number},
                      "this is no line of a ledger of consumed data");
}

gw_status gw_ledger_parse(const char *text, int64_t len, const char *name, gw_arena *a,
                          gw_ledger_history *out, gw_diags *dg) {
    int64_t lines = 0;
    *out = (gw_ledger_history){0};
    for (int64_t i = 0; i < len; i++) lines += text[i] == '\n';
    gw_ledger_line *items = gw_arena_new(a, gw_ledger_line, lines + 1);
    out->lines = items;
    for (const char *at = text, *end = text + len; at < end;) {
        const char *newline = memchr(at, '\n', (size_t)(end - at));
        out->cut = !newline;
        if (!newline) break;
        GW_TRY(parse_line(at, (size_t)(newline - at), (int)GW_MIN(out->n + 1, INT32_MAX), name,
                          &items[out->n], dg));
        out->n++;
        at = newline + 1;
    }
    return GW_OK;
}

gw_status gw_ledger_read(const char *run, gw_arena *a, gw_ledger_history *out, gw_diags *dg) {
    gw_str text = {0};
    const char *path = gw_path_is_dir(run) ? gw_path_join(a, run, "data.ledger") : run;
    gw_status st = gw_file_read(path, 0, &text, dg);
    if (st == GW_OK) st = gw_ledger_parse(gw_str_c(&text), (int64_t)text.len, path, a, out, dg);
    gw_str_release(&text);
    return st;
}

/* ---- comparing ---- */

int64_t gw_ledger_gap(const gw_ledger_history *h) {
    for (int64_t i = 1; i < h->n; i++)
        if (h->lines[i].first != h->lines[i - 1].next) return i;
    return -1;
}

/* A walk through one ledger. */
typedef struct walk {
    const gw_ledger_history *h;
    int64_t at;     /* the line that is next */
    int64_t sample; /* where it stands */
    int64_t batches;
    gw_digest sum; /* since the latest common boundary */
} walk;

static bool advance(walk *w) {
    if (w->at == w->h->n) return false;
    gw_digest_add(&w->sum, w->h->lines[w->at].digest);
    w->sample = w->h->lines[w->at].next;
    w->at++;
    w->batches++;
    return true;
}

/* Both to their next common sample; false when there is none. */
static bool meet(walk *a, walk *b) {
    bool more = true;
    if (a->sample == b->sample) more = advance(a) && advance(b);
    while (more && a->sample != b->sample) more = advance(a->sample < b->sample ? a : b);
    return more;
}

/* The first boundary that both have. */
static bool begin(walk *a, walk *b) {
    if (a->h->n == 0 || b->h->n == 0) return false;
    a->sample = a->h->lines[0].first;
    b->sample = b->h->lines[0].first;
    while (a->sample != b->sample)
        if (!advance(a->sample < b->sample ? a : b)) return false;
    a->batches = b->batches = 0;
    return true;
}

gw_ledger_verdict gw_ledger_compare(const gw_ledger_history *ha, const gw_ledger_history *hb) {
    walk a = {.h = ha}, b = {.h = hb};
    gw_ledger_verdict v = {.same = true};
    gw_digest all = {0};
    if (!begin(&a, &b)) return v;
    int64_t from = v.first = v.next = a.sample;
    for (;;) {
        a.sum = b.sum = (gw_digest){0};
        from = a.sample;
        if (!meet(&a, &b)) return v;
        v.comparable = true;
        if (!gw_digest_same(a.sum, b.sum)) break;
        gw_digest_add(&all, a.sum);
        v.next = a.sample;
        v.digest[0] = v.digest[1] = all;
        v.batches[0] = a.batches;
        v.batches[1] = b.batches;
    }
    v.same = false;
    v.first = from;
    v.next = a.sample;
    v.line[0] = a.at - 1;
    v.line[1] = b.at - 1;
    v.digest[0] = a.sum;
    v.digest[1] = b.sum;
    return v;
}
