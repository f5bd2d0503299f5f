// SPDX-License-Identifier: Apache-2.0
// A directory of MDS shards on this machine, read sample by sample.
//
// One shard is open at a time: mapped where its file is there uncompressed, decompressed into
// memory otherwise. Whoever reads in order opens each once; whoever jumps about pays for it, and
// training, which does, goes through data/shards.h instead.
#include <string.h>

#include "base/arena.h" /* gw_mem_zalloc */
#include "file/mds.h"   /* gw_mds */

struct gw_mds {
    gw_arena mem;
    const char *dir;
    gw_mds_index index;
    bool verify;
    int64_t open; /* shard; -1: none */
    int64_t first;
    gw_mapping map;
    uint8_t *raw; /* decompressed */
    gw_arena of_shard;
    gw_mds_view view;
};

static void close_shard(gw_mds *m) {
    gw_map_release(&m->map);
    gw_mem_free(m->raw);
    gw_arena_release(&m->of_shard);
    m->raw = NULL;
    m->open = -1;
}

gw_status gw_mds_open(const char *dir, bool verify, gw_mds **out, gw_diags *dg) {
    gw_mds *m = gw_mem_zalloc(sizeof *m);
    m->dir = gw_arena_strdup(&m->mem, dir);
    m->verify = verify;
    m->open = -1;
    *out = NULL;
    gw_status st = gw_mds_index_read(&m->mem, dir, &m->index, dg);
    if (st == GW_OK)
        *out = m;
    else
        gw_mds_close(m);
    return st;
}

void gw_mds_close(gw_mds *m) {
    if (!m) return;
    close_shard(m);
    gw_arena_release(&m->mem);
    gw_mem_free(m);
}

const gw_mds_index *gw_mds_get_index(const gw_mds *m) { return &m->index; }

static gw_status open_zip(gw_mds *m, const gw_mds_shard *s, gw_diags *dg) {
    const char *path = gw_path_join(&m->of_shard, m->dir, s->zip.name);
    GW_TRY(gw_map_open(&m->map, path, dg));
    if (m->verify) GW_TRY(gw_mds_file_check(&s->zip, m->map.data, m->map.bytes, path, dg));
    m->raw = gw_mem_alloc((size_t)s->raw.bytes + 1);
    GW_TRY(gw_mds_unzip(s, m->map.data, m->map.bytes, m->raw, path, dg));
    gw_map_release(&m->map);
    return gw_mds_view_open(&m->view, s, m->raw, s->raw.bytes, path, dg);
}

static gw_status open_shard(gw_mds *m, int64_t i, gw_diags *dg) {
    const gw_mds_shard *s = &m->index.shards[i];
    const char *path = gw_path_join(&m->of_shard, m->dir, s->raw.name);
    if (s->zip.name && !gw_path_exists(path)) return open_zip(m, s, dg);
    GW_TRY(gw_map_open(&m->map, path, dg));
    if (m->verify) GW_TRY(gw_mds_file_check(&s->raw, m->map.data, m->map.bytes, path, dg));
    return gw_mds_view_open(&m->view, s, m->map.data, m->map.bytes, path, dg);
}

gw_status gw_mds_get(gw_mds *m, int64_t i, const gw_mds_view **shard, int64_t *in_shard,
                     gw_diags *dg) {
    *shard = NULL;
    if (m->open < 0 || i < m->first || i >= m->first + m->index.shards[m->open].samples) {
        int64_t k = 0, first = 0;
        while (k < m->index.nshards && i >= first + m->index.shards[k].samples)
            first += m->index.shards[k++].samples;
        if (i < 0 || k == m->index.nshards)
            return gw_fail_at(dg, GW_ERR_USAGE, "mds-sample", (gw_where){.file = m->dir},
                              "there is no sample %lld: it has %lld", (long long)i,
                              (long long)m->index.samples);
        close_shard(m);
        GW_TRY(open_shard(m, k, dg));
        m->open = k;
        m->first = first;
    }
    *shard = &m->view;
    *in_shard = i - m->first;
    return GW_OK;
}
