// SPDX-License-Identifier: Apache-2.0
// Checksums per MiB.
//
// A hash of a whole shard says that something is wrong; a hash of each MiB says where, and lets a
// reader check the part that it has read. The file is text, so that any tool can read it.
#include "data/build/sums.h" /* this module's contract */

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/io.h"  /* gw_map_open */
#include "base/str.h" /* gw_str */

static int64_t blocks_of(int64_t bytes) { return (bytes + GW_SUMS_BLOCK - 1) / GW_SUMS_BLOCK; }

static uint64_t sum_of(const gw_mapping *m, int64_t block) {
    int64_t at = block * GW_SUMS_BLOCK;
    return gw_hash64(m->data + at, (size_t)GW_MIN(m->bytes - at, GW_SUMS_BLOCK), 0);
}

gw_status gw_sums_write(const char *path, gw_hash128 *whole, gw_diags *dg) {
    gw_mapping m;
    gw_str text = {0}, name = {0};
    GW_TRY(gw_map_open(&m, path, dg));
    gw_str_printf(&text, "xxh3-64 %d %" PRId64 "\n", GW_SUMS_BLOCK, m.bytes);
    for (int64_t b = 0; b < blocks_of(m.bytes); b++)
        gw_str_printf(&text, "%016" PRIx64 "\n", sum_of(&m, b));
    gw_map_release(&m);
    if (whole) *whole = gw_hash128_of(text.data, text.len);
    gw_str_printf(&name, "%s" GW_SUMS_END, path);
    gw_status st = gw_file_write_atomic(gw_str_c(&name), text.data, (int64_t)text.len, dg);
    gw_str_release(&text);
    gw_str_release(&name);
    return st;
}

bool gw_sums_parse(const char *text, int64_t n, int64_t *file_bytes, uint64_t *sums, int64_t most,
                   int64_t *count) {
    const char *nl = n > 0 ? memchr(text, '\n', (size_t)n) : NULL;
    char head[64] = {0};
    int block = 0, end = 0;
    *count = 0;
    if (!nl || nl - text >= (ptrdiff_t)sizeof head) return false;
    memcpy(head, text, (size_t)(nl - text));
    if (sscanf(head, "xxh3-64 %d %" SCNd64 "%n", &block, file_bytes, &end) != 2 || head[end])
        return false;
    if (block != GW_SUMS_BLOCK || *file_bytes < 0 || *file_bytes > INT64_MAX - GW_SUMS_BLOCK)
        return false;
    int64_t want = blocks_of(*file_bytes), left = n - (nl + 1 - text);
    if (left % 17 != 0 || left / 17 != want) return false;
    for (int64_t i = 0; i < want; i++) {
        char hex[18] = {0};
        uint64_t sum;
        memcpy(hex, nl + 1 + 17 * i, 17);
        if (hex[16] != '\n' || strspn(hex, "0123456789abcdef") != 16) return false;
        if (sscanf(hex, "%16" SCNx64, &sum) != 1) return false;
        if (i < most) sums[i] = sum;
    }
    *count = want;
    return true;
}

static gw_status compare(const char *path, const gw_mapping *m, const uint64_t *sums, int64_t n,
                         int64_t *bad, gw_diags *dg) {
    gw_status st = GW_OK;
    for (int64_t b = 0; b < n; b++) {
        if (sum_of(m, b) == sums[b]) continue;
        st = GW_ERR_FORMAT;
        if ((*bad)++ < 8)
            (void)!gw_fail_at(dg, GW_ERR_FORMAT, "data-checksum", (gw_where){.file = path},
                              "the bytes from offset %" PRId64 " to %" PRId64
                              " are not those that were written",
                              b * GW_SUMS_BLOCK, GW_MIN(m->bytes, (b + 1) * GW_SUMS_BLOCK));
    }
    return st;
}

gw_status gw_sums_verify(const char *path, int64_t *bad, gw_diags *dg) {
    gw_mapping m;
    gw_str text = {0}, name = {0};
    int64_t bytes = 0, count = 0, faults = 0;
    GW_TRY(gw_map_open(&m, path, dg));
    gw_str_printf(&name, "%s" GW_SUMS_END, path);
    gw_status st = gw_file_read(gw_str_c(&name), 0, &text, dg);
    uint64_t *sums = gw_mem_alloc((text.len / 17 + 1) * sizeof *sums);
    if (st == GW_OK && !gw_sums_parse(gw_str_c(&text), (int64_t)text.len, &bytes, sums,
                                      (int64_t)(text.len / 17), &count))
        st = gw_fail_at(dg, GW_ERR_FORMAT, "data-checksum", (gw_where){.file = gw_str_c(&name)},
                        "this is no file of checksums");
    if (st == GW_OK && bytes != m.bytes) {
        faults = 1;
        st = gw_fail_at(dg, GW_ERR_FORMAT, "data-checksum", (gw_where){.file = path},
                        "the file has %" PRId64 " bytes; %" PRId64 " were written", m.bytes, bytes);
    }
    if (st == GW_OK) st = compare(path, &m, sums, count, &faults, dg);
    if (bad) *bad = faults;
    gw_mem_free(sums);
    gw_map_release(&m);
    gw_str_release(&text);
    gw_str_release(&name);
    return st;
}
