// SPDX-License-Identifier: Apache-2.0
// mds_tool copy FROM TO LIMIT COMPRESSION HASHES: reads a set of MDS shards and writes its samples
// into another, for tests/golden/check_mds.py, which compares the two with the public library.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h" /* gw_mem_zalloc */
#include "file/mds.h"   /* gw_mds, gw_mds_writer */

static gw_status copy_samples(gw_mds *m, gw_mds_writer *w, int columns, gw_diags *dg) {
    gw_mds_value *values = gw_mem_zalloc((size_t)columns * sizeof *values);
    gw_status st = GW_OK;
    for (int64_t i = 0; st == GW_OK && i < gw_mds_get_index(m)->samples; i++) {
        const gw_mds_view *v;
        int64_t at;
        st = gw_mds_get(m, i, &v, &at, dg);
        for (int c = 0; st == GW_OK && c < columns; c++) {
            const uint8_t *p;
            st = gw_mds_view_value(v, at, c, &p, &values[c].n, dg);
            values[c].bytes = p;
        }
        if (st == GW_OK) st = gw_mds_writer_add(w, values, 0, dg);
    }
    gw_mem_free(values);
    return st;
}

static gw_status copy(char **argv, gw_diags *dg) {
    gw_mds *m;
    gw_mds_writer *w;
    const char *names[64], *encodings[64], *hashes[8];
    gw_mds_writer_options o = {.dir = argv[3],
                               .names = names,
                               .encodings = encodings,
                               .hashes = hashes,
                               .size_limit = atoll(argv[4]),
                               .compression = strcmp(argv[5], "-") != 0 ? argv[5] : NULL};
    for (char *h = argv[6], *end; h && *h && o.nhashes < 8; h = end) {
        hashes[o.nhashes++] = h;
        end = strchr(h, ',');
        if (end) *end++ = 0;
    }
    GW_TRY(gw_mds_open(argv[2], true, &m, dg));
    const gw_mds_shard *s = gw_mds_get_index(m)->shards;
    for (; o.ncolumns < s->ncolumns && o.ncolumns < 64; o.ncolumns++) {
        names[o.ncolumns] = s->columns[o.ncolumns].name;
        encodings[o.ncolumns] = s->columns[o.ncolumns].encoding;
    }
    gw_status st = gw_mds_writer_new(&o, &w, dg);
    if (st == GW_OK) {
        st = copy_samples(m, w, o.ncolumns, dg);
        if (st == GW_OK) st = gw_mds_writer_finish(w, dg);
        gw_mds_writer_free(w);
    }
    gw_mds_close(m);
    return st;
}

int main(int argc, char **argv) {
    gw_diags dg;
    gw_diags_init(&dg);
    gw_status st = GW_ERR_USAGE;
    if (argc == 7 && strcmp(argv[1], "copy") == 0) st = copy(argv, &dg);
    gw_diags_print(&dg, stderr, false);
    gw_diags_release(&dg);
    return gw_status_exit_code(st);
}
