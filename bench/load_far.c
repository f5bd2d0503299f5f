// SPDX-License-Identifier: Apache-2.0
// Loading a checkpoint from an object store: what a load does, with the blocks it needs under way
// together, against the same blocks asked for one after another. Every block's hash is compared in
// both. For bench/load_far, which starts the server.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"    /* gw_clock_ns */
#include "base/io.h"       /* gw_path_join */
#include "base/rng.h"      /* gw_rng_u64 */
#include "ckpt/datafile.h" /* gw_ckpt_reader */
#include "ckpt/save.h"     /* gw_checkpoint_save */

enum { TENSORS = 16, TURNS = 3 };

typedef struct state {
    int64_t elems; /* of each */
    float *data[TENSORS];
    char names[TENSORS][24];
    gw_ckpt_tensor t[TENSORS];
} state;

static void make(state *s, int64_t bytes) {
    gw_rng_key key = gw_rng_key_named(1, "far");
    s->elems = bytes / 4 / TENSORS;
    for (int k = 0; k < TENSORS; k++) {
        s->data[k] = gw_mem_alloc((size_t)s->elems * 4);
        for (int64_t i = 0; i < s->elems; i++)
            s->data[k][i] = (float)gw_rng_u32(key, (uint64_t)(k * s->elems + i));
        snprintf(s->names[k], sizeof s->names[k], "layers.%d.weight", k);
        s->t[k] = (gw_ckpt_tensor){.name = s->names[k],
                                   .dtype = GW_F32,
                                   .ndim = 1,
                                   .dims = {s->elems},
                                   .box = gw_box_whole(1, &s->elems),
                                   .data = s->data[k]};
    }
}

static void check(gw_status st, gw_diags *dg) {
    if (st == GW_OK) return;
    gw_diags_print(dg, stderr, false);
    exit(1);
}

static double together(const char *path, const state *s, gw_diags *dg) {
    gw_arena mem = {0};
    gw_ckpt_manifest *m = NULL;
    int64_t from = gw_clock_ns();
    check(gw_checkpoint_read(path, &mem, &m, dg), dg);
    check(gw_checkpoint_load(m, s->t, TENSORS, NULL, dg), dg);
    double took = (double)(gw_clock_ns() - from) * 1e-9;
    gw_arena_release(&mem);
    return took;
}

static double one_by_one(const char *path, gw_diags *dg) {
    gw_arena mem = {0};
    gw_ckpt_manifest *m = NULL;
    gw_place p;
    char *block = gw_mem_alloc(GW_CKPT_BLOCK);
    int64_t from = gw_clock_ns();
    check(gw_checkpoint_read(path, &mem, &m, dg), dg);
    check(gw_place_open(&p, path, dg), dg);
    for (int i = 0; i < m->nfiles; i++) {
        gw_ckpt_reader *r;
        check(gw_ckpt_reader_open(&r, &p, gw_checkpoint_file_path(m, i, &mem), &m->files[i], dg),
              dg);
        for (int64_t e = 0; e < gw_ckpt_reader_count(r); e++)
            for (int64_t k = 0; k < gw_ckpt_reader_blocks(r, e); k++)
                check(gw_ckpt_reader_block(r, e, k, block, dg), dg);
        gw_ckpt_reader_free(r);
    }
    double took = (double)(gw_clock_ns() - from) * 1e-9;
    gw_place_close(&p);
    gw_mem_free(block);
    gw_arena_release(&mem);
    return took;
}

int main(int argc, char **argv) {
    static state s;
    gw_diags dg;
    gw_diags_init(&dg);
    if (argc != 3) {
        fprintf(stderr, "load_far: s3://BUCKET/PREFIX MEGABYTES\n");
        return 2;
    }
    double mb = strtod(argv[2], NULL);
    make(&s, (int64_t)(mb * 1e6));
    gw_ckpt_meta meta = {.step = 1, .batch = 1, .loss_scale = 1};
    gw_arena mem = {0};
    check(gw_checkpoint_save(argv[1], &meta, s.t, TENSORS, &dg), &dg);
    const char *path = gw_path_join(&mem, argv[1], "checkpoints/step-00000001");
    double best[2] = {1e9, 1e9};
    for (int i = 0; i < TURNS; i++) {
        double a = one_by_one(path, &dg), b = together(path, &s, &dg);
        best[0] = a < best[0] ? a : best[0];
        best[1] = b < best[1] ? b : best[1];
    }
    printf("one after another %.2f s, %.0f MB/s; together %.2f s, %.0f MB/s: %.1f times\n", best[0],
           mb / best[0], best[1], mb / best[1], best[0] / best[1]);
    gw_arena_release(&mem);
    gw_diags_release(&dg);
    return 0;
}
