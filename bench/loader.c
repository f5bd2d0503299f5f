// SPDX-License-Identifier: Apache-2.0
// bench/loader: how fast the loader reads tokens, for bench/loader.py.
//
//   loader make DIR MB           writes DIR/set.bin, .idx, and DIR/mds: the same documents
//   loader read PATH SEQ STEPS [WINDOW]   reads STEPS batches of 64 rows, with nothing done
//   between;
//                                         with a WINDOW in the order of blocks
//
// `read` prints one line of JSON: rows, tokens, seconds of the wall and of the process's CPUs,
// bytes of the rows, the waits by cause, and a digest of what was read, by which runs are known to
// have read the same.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "base/arena.h"        /* gw_mem_alloc */
#include "base/clock.h"        /* gw_clock_ns */
#include "base/rng.h"          /* gw_rng_u32 */
#include "data/ledger.h"       /* gw_digest_row */
#include "data/loader.h"       /* gw_loader */
#include "file/mds.h"          /* gw_mds_writer */
#include "file/megatron_idx.h" /* gw_midx_writer */

enum { VOCAB = 50257, BATCH = 64, LONGEST = 2000, SHARD = 8 << 20 };

static gw_status make(const char *dir, int64_t tokens, gw_diags *dg) {
    gw_arena mem = {0};
    gw_midx_writer *m;
    gw_mds_writer *w;
    gw_str value = {0};
    static const char *const names[] = {"tokens"}, *const encodings[] = {"ndarray:uint16"};
    gw_mds_writer_options o = {.dir = gw_arena_printf(&mem, "%s/mds", dir),
                               .names = names,
                               .encodings = encodings,
                               .ncolumns = 1,
                               .size_limit = SHARD};
    GW_TRY(gw_mds_writer_new(&o, &w, dg));
    GW_TRY(gw_midx_writer_new(gw_arena_printf(&mem, "%s/set", dir), VOCAB, &m, dg));
    gw_rng_key key = gw_rng_key_named(1, "bench");
    for (uint64_t d = 0, at = 0; (int64_t)at < tokens; d++) {
        uint32_t ids[LONGEST], n = 1 + gw_rng_u32(key, UINT64_MAX - d) % LONGEST;
        uint16_t small[LONGEST];
        for (uint32_t i = 0; i < n; i++)
            small[i] = (uint16_t)(ids[i] = gw_rng_u32(key, at++) % VOCAB);
        gw_str_clear(&value);
        gw_mds_array_write(gw_mds_writer_column(w, 0), GW_MDS_U16, small, n, &value);
        gw_mds_value v = {value.data, (int64_t)value.len};
        GW_TRY(gw_mds_writer_add(w, &v, n, dg));
        GW_TRY(gw_midx_writer_doc(m, ids, n, dg));
    }
    GW_TRY(gw_mds_writer_finish(w, dg));
    GW_TRY(gw_midx_writer_finish(m, dg));
    gw_mds_writer_free(w);
    gw_midx_writer_free(m);
    gw_str_release(&value);
    gw_arena_release(&mem);
    return GW_OK;
}

static double cpu_seconds(void) {
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
           (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) * 1e-6;
}

static gw_status read_set(const char *path, int64_t seq, int64_t steps, int64_t window,
                          gw_diags *dg) {
    gw_tokens *ds;
    gw_loader *l;
    gw_digest all = {0};
    gw_tokens_options o = gw_tokens_options_default(seq, 1);
    if (window > 0) o.order = GW_ORDER_BLOCKS, o.window = window;
    GW_TRY(gw_tokens_open(path, &o, &ds, dg));
    GW_TRY(gw_loader_open(ds, &(gw_loader_options){BATCH, 1, 1, 0, 0, 2}, &l, dg));
    int64_t waits[GW_LOAD_CAUSES] = {0}, tokens = 0, begun = gw_clock_ns();
    double cpu = cpu_seconds();
    gw_status st = GW_OK;
    for (int64_t i = 0; i < steps && st == GW_OK; i++) {
        const gw_step_batch *b;
        int64_t ns[GW_LOAD_CAUSES];
        st = gw_loader_next(l, &b, dg);
        if (st != GW_OK) break;
        gw_loader_waits(l, ns);
        for (int k = 0; k < GW_LOAD_CAUSES; k++) waits[k] += ns[k];
        tokens += b->step_tokens;
        /* One row of each batch: enough to tell sets apart, too little to be what is measured. */
        gw_digest_add(&all,
                      gw_digest_row(b->micro[0].tokens, b->micro[0].labels, b->micro[0].docs, seq));
    }
    double wall = (double)(gw_clock_ns() - begun) * 1e-9;
    char hex[33];
    printf(
        "{\"rows\": %lld, \"tokens\": %lld, \"wall_s\": %.4f, \"cpu_s\": %.4f, \"source_s\": %.4f, "
        "\"decompress_s\": %.4f, \"decode_s\": %.4f, \"queue_s\": %.4f, \"digest\": \"%s\"}\n",
        (long long)(steps * BATCH), (long long)tokens, wall, cpu_seconds() - cpu,
        (double)waits[GW_LOAD_SOURCE] * 1e-9, (double)waits[GW_LOAD_DECOMPRESS] * 1e-9,
        (double)waits[GW_LOAD_DECODE] * 1e-9, (double)waits[GW_LOAD_QUEUE] * 1e-9,
        gw_hash128_hex(hex, all));
    gw_loader_close(l);
    gw_tokens_close(ds);
    return st;
}

int main(int argc, char **argv) {
    gw_diags dg;
    gw_diags_init(&dg);
    gw_status st = GW_ERR_USAGE;
    if (argc == 4 && strcmp(argv[1], "make") == 0)
        st = make(argv[2], atoll(argv[3]) * 500000, &dg);
    else if (argc >= 5 && strcmp(argv[1], "read") == 0)
        st = read_set(argv[2], atoll(argv[3]), atoll(argv[4]), argc > 5 ? atoll(argv[5]) : 0, &dg);
    gw_diags_print(&dg, stderr, false);
    gw_diags_release(&dg);
    return gw_status_exit_code(st);
}
