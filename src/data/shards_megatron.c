// SPDX-License-Identifier: Apache-2.0
// Megatron files as blocks of documents, on this machine and over the network.
//
// Here both files are mapped, and any document can be read at any time. Over the network the index
// is read whole when the set is opened, since it holds every length; of the tokens one block at a
// time is fetched, as one range. A block's documents usually lie end to end, as every writer puts
// them; where an index points to and fro, the range spans all of them, and a span more than twice
// its tokens is refused, since reading it would bring mostly what nobody asked for.
//
// Where the writer left sums (PREFIX.bin.xxh3), a block is checked by them as it is taken in.
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/compiler.h"    /* GW_MIN */
#include "base/log.h"         /* gw_log_debug */
#include "data/build/sums.h"  /* GW_SUMS_END */
#include "data/shards_impl.h" /* this module's contract */

static int64_t doc_tokens(const gw_shards *s, int64_t d) {
    int64_t first, n, sum = 0;
    gw_midx_doc(s->midx, d, &first, &n);
    for (int64_t i = first; i < first + n; i++) sum += gw_midx_seq_tokens(s->midx, i);
    return sum;
}

/* ---- on this machine ---- */

/* Holds one of the set's files open, so that its size can be asked for. */
static gw_status watch(gw_shards *s, int i, const char *path, gw_diags *dg) {
    struct stat st = {0};
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    s->watched[i].fd = fd;
    if (fd < 0 || fstat(fd, &st) != 0)
        return GW_FAIL(dg, GW_ERR_IO, "file-open", "cannot open '%s': %s", path, strerror(errno));
    s->watched[i].bytes = st.st_size;
    return GW_OK;
}

static gw_status near_read(gw_shards *s, int64_t b, int64_t at, int64_t n, int32_t *out,
                           gw_diags *dg) {
    const gw_block *k = &s->blocks[b];
    for (int64_t d = gw_block_doc_at(k, at), done = 0; done < n; d++) {
        int64_t first = at + done - (d ? k->ends[d - 1] : 0);
        int64_t some = GW_MIN(k->ends[d] - (at + done), n - done);
        GW_TRY(gw_shards_doc_read(s, k->first_doc + d, first, some, out + done, dg));
        done += some;
    }
    return GW_OK;
}

/* All bytes of a block are looked at before any is used. */
static gw_status near_take(gw_shards *s, int64_t b, gw_diags *dg) {
    const gw_block *k = &s->blocks[b];
    gw_load_cause before = gw_load_clock_enter(s->clock, GW_LOAD_SOURCE);
    gw_status st = GW_OK;
    for (int64_t d = k->first_doc; s->sums && d < k->first_doc + k->docs && st == GW_OK; d++)
        st = gw_shards_doc_check(s, d, dg);
    (void)gw_load_clock_enter(s->clock, before);
    return st == GW_OK ? gw_shards_sum_ends(s, b, dg) : st;
}

static gw_status open_near(gw_shards *s, const char *prefix, gw_diags *dg) {
    GW_TRY(gw_midx_open(prefix, &s->midx, dg));
    GW_TRY(watch(s, 0, gw_arena_printf(&s->mem, "%s.bin", prefix), dg));
    GW_TRY(watch(s, 1, gw_arena_printf(&s->mem, "%s.idx", prefix), dg));
    if (!s->opt.no_verify)
        GW_TRY(gw_shard_sums_open_near(gw_arena_printf(&s->mem, "%s.bin", prefix), &s->sums, dg));
    s->documents = gw_midx_ndocs(s->midx);
    gw_shards_cut(s);
    return GW_OK;
}

const gw_shards_kind gw_shards_megatron = {.format = "megatron",
                                           .documents = true,
                                           .measure = gw_shards_measured,
                                           .want = gw_shards_want_nothing,
                                           .take = near_take,
                                           .lengths = gw_shards_sum_ends,
                                           .read = near_read,
                                           .doc_tokens = doc_tokens,
                                           .add_hash = gw_shards_add_documents};

/* ---- over the network ---- */

/* Bytes of the .bin that hold a block: [*from, *to). */
static void extent(const gw_shards *s, const gw_block *k, int64_t *from, int64_t *to) {
    int64_t elem = gw_midx_elem_bytes(s->midx);
    *from = INT64_MAX;
    *to = 0;
    for (int64_t d = k->first_doc; d < k->first_doc + k->docs; d++) {
        int64_t first, n;
        gw_midx_doc(s->midx, d, &first, &n);
        for (int64_t i = first; i < first + n; i++) {
            int64_t tokens = gw_midx_seq_tokens(s->midx, i), at = gw_midx_seq_offset(s->midx, i);
            if (tokens == 0) continue;
            *from = GW_MIN(*from, at);
            *to = GW_MAX(*to, at + tokens * elem);
        }
    }
    if (*from > *to) *from = *to;
}

static gw_status far_want(gw_shards *s, int64_t b, gw_diags *dg) {
    gw_block *k = &s->blocks[b];
    int64_t from, to;
    extent(s, k, &from, &to);
    k->base = from;
    if (from == to) return GW_OK;
    return gw_fetch_submit(
        s->fetch,
        &(gw_fetch_item){.key = s->key, .offset = from, .bytes = to - from, .tag = (uint64_t)b},
        &k->ticket, dg);
}

/* The bytes of a block, which has some, checked as far as there are sums. */
static gw_status far_bring(gw_shards *s, int64_t b, gw_diags *dg) {
    gw_block *k = &s->blocks[b];
    if (!k->ticket) GW_TRY(far_want(s, b, dg));
    gw_fetch_ticket t = k->ticket;
    k->ticket = 0;
    GW_TRY(gw_fetch_wait(s->fetch, t, &k->fetched, dg));
    k->bytes = k->fetched.data;
    return gw_shard_sums_check_range(s->sums, k->bytes, k->base, k->base + k->fetched.bytes, dg);
}

/* What is damaged is looked at once more, past the cache. */
static gw_status far_take(gw_shards *s, int64_t b, gw_diags *dg) {
    int64_t from, to;
    extent(s, &s->blocks[b], &from, &to);
    if (from == to) return gw_shards_sum_ends(s, b, dg);
    gw_diags faults;
    gw_diags_init(&faults);
    gw_load_cause before = gw_load_clock_enter(s->clock, GW_LOAD_SOURCE);
    gw_status st = far_bring(s, b, &faults);
    if (st == GW_ERR_FORMAT) {
        gw_log_debug("%s: block %lld is damaged (%s): read again", s->name, (long long)b,
                     gw_diags_first_error(&faults));
        gw_shards_drop(s, b);
        gw_fetch_forget(s->fetch,
                        &(gw_fetch_item){.key = s->key, .offset = from, .bytes = to - from});
        gw_diags_clear(&faults);
        st = far_bring(s, b, &faults);
    }
    (void)gw_load_clock_enter(s->clock, before);
    gw_diags_take(dg, &faults);
    gw_diags_release(&faults);
    return st == GW_OK ? gw_shards_sum_ends(s, b, dg) : st;
}

static gw_status far_read(gw_shards *s, int64_t b, int64_t at, int64_t n, int32_t *out,
                          gw_diags *dg) {
    const gw_block *k = &s->blocks[b];
    int64_t elem = gw_midx_elem_bytes(s->midx);
    for (int64_t d = gw_block_doc_at(k, at), done = 0; done < n; d++) {
        int64_t skip = at + done - (d ? k->ends[d - 1] : 0), seq, nseqs, begun = done;
        gw_midx_doc(s->midx, k->first_doc + d, &seq, &nseqs);
        for (int64_t i = seq; i < seq + nseqs && done < n; i++) {
            int64_t len = gw_midx_seq_tokens(s->midx, i), some = GW_MIN(len - skip, n - done);
            if (skip >= len) {
                skip -= len;
                continue;
            }
            const uint8_t *p = k->bytes + (gw_midx_seq_offset(s->midx, i) - k->base) + skip * elem;
            GW_TRY(gw_midx_decode(s->midx, i, skip, p, some, (uint32_t *)out + done, dg));
            done += some;
            skip = 0;
        }
        GW_TRY(gw_shards_check_ids(s, out + begun, done - begun, k->first_doc + d, 0, dg));
    }
    return GW_OK;
}

static gw_status check_extents(const gw_shards *s, int64_t *largest, gw_diags *dg) {
    int64_t elem = gw_midx_elem_bytes(s->midx);
    *largest = 0;
    for (int64_t b = 0; b < s->nblocks; b++) {
        int64_t from, to;
        extent(s, &s->blocks[b], &from, &to);
        *largest = GW_MAX(*largest, to - from);
        if (to - from > 2 * s->blocks[b].tokens * elem)
            return gw_fail_at(dg, GW_ERR_UNSUPPORTED, "data-scattered", (gw_where){.file = s->name},
                              "documents %lld to %lld are spread over %lld bytes of the .bin: over "
                              "the network it must hold them end to end",
                              (long long)s->blocks[b].first_doc,
                              (long long)(s->blocks[b].first_doc + s->blocks[b].docs - 1),
                              (long long)(to - from));
    }
    return GW_OK;
}

/* The sums beside the .bin, where the store has them. */
static gw_status open_far_sums(gw_shards *s, int64_t bytes, gw_diags *dg) {
    gw_store_entry e;
    gw_str text = {0};
    bool found = false;
    const char *name = gw_arena_printf(&s->mem, "%s" GW_SUMS_END, s->key);
    if (s->opt.no_verify) return GW_OK;
    GW_TRY(gw_store_stat(s->store, name, &s->mem, &e, &found, dg));
    if (!found) return GW_OK;
    gw_status st = gw_store_read(s->store, name, 0, &text, dg);
    if (st == GW_OK)
        st = gw_shard_sums_open(s->key, gw_str_c(&text), (int64_t)text.len, bytes, &s->sums, dg);
    gw_str_release(&text);
    return st;
}

static gw_status open_far(gw_shards *s, const char *prefix, gw_diags *dg) {
    gw_store_entry e;
    bool found;
    const char *slash = strrchr(prefix, '/');
    const char *name = gw_arena_printf(&s->mem, "%s.idx", slash + 1);
    s->kind = &gw_shards_megatron_far;
    s->key = gw_arena_printf(&s->mem, "%s.bin", slash + 1);
    GW_TRY(
        gw_shards_open_store(s, gw_arena_strndup(&s->mem, prefix, (size_t)(slash - prefix)), dg));
    GW_TRY(gw_store_read(s->store, name, 0, &s->idx, dg));
    GW_TRY(gw_store_stat(s->store, s->key, &s->mem, &e, &found, dg));
    if (!found)
        return GW_FAIL(dg, GW_ERR_IO, "store-missing", "there is no %s.bin beside its .idx",
                       prefix);
    GW_TRY(gw_midx_open_index(gw_str_c(&s->idx), (int64_t)s->idx.len, e.bytes,
                              gw_arena_printf(&s->mem, "%s.idx", prefix), &s->midx, dg));
    s->documents = gw_midx_ndocs(s->midx);
    GW_TRY(open_far_sums(s, e.bytes, dg));
    gw_shards_cut(s);
    int64_t largest;
    GW_TRY(check_extents(s, &largest, dg));
    return gw_shards_open_fetch(s, largest, dg);
}

gw_status gw_shards_open_megatron(gw_shards *s, const char *path, gw_diags *dg) {
    size_t n = strlen(path);
    if (n > 4 && (gw_str_ends(path, ".bin") || gw_str_ends(path, ".idx"))) n -= 4;
    const char *prefix = gw_arena_strndup(&s->mem, path, n);
    return gw_store_is_url(path) ? open_far(s, prefix, dg) : open_near(s, prefix, dg);
}

const gw_shards_kind gw_shards_megatron_far = {.format = "megatron",
                                               .documents = false,
                                               .measure = gw_shards_measured,
                                               .want = far_want,
                                               .take = far_take,
                                               .lengths = gw_shards_sum_ends,
                                               .read = far_read,
                                               .doc_tokens = doc_tokens,
                                               .add_hash = gw_shards_add_documents};
