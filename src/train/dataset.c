// SPDX-License-Identifier: Apache-2.0
// From data keys to a data set.
//
// Training, verification and `data prove` read the same rows because they open them here. A path is
// looked at before anything is opened, so that a name that leads nowhere is an error at its place
// in the run file; what lies behind a URL shows when it is opened.
#include "train/dataset.h"

#include <inttypes.h>

#include "base/arena.h" /* gw_arena */
#include "base/io.h"    /* gw_path_exists */
#include "base/log.h"   /* gw_log_info */

gw_tokens_options gw_dataset_options(const gw_runfile *rf, int64_t vocab) {
    gw_tokens_options o = gw_tokens_options_default(rf->train.seq_len, (uint64_t)rf->train.seed);
    const gw_rf_data *d = &rf->data;
    o.pack = d->pack;
    o.mask_first = d->mask_first_label;
    o.pad_token = -1; /* no embedding has it, no expert takes it */
    o.vocab_size = (int32_t)vocab;
    o.best_fit = d->pack && d->packing == GW_RF_PACKING_BEST_FIT;
    o.window = d->window;
    o.block_tokens = d->block;
    o.mixing = d->mix == GW_RF_MIX_MEGATRON ? GW_MIX_MEGATRON : GW_MIX_EXACT;
    o.column = d->column;
    o.no_verify = !d->verify;
    o.cache_dir = d->cache;
    o.cache_bytes = d->cache_bytes;
    switch (d->shuffle) {
    case GW_RF_SHUFFLE_AUTO: o.order = GW_ORDER_AUTO; break;
    case GW_RF_SHUFFLE_DOCUMENTS: o.order = GW_ORDER_DOCUMENTS; break;
    case GW_RF_SHUFFLE_BLOCKS: o.order = GW_ORDER_BLOCKS; break;
    case GW_RF_SHUFFLE_NONE: o.shuffle = false; break;
    }
    return o;
}

static gw_status check_paths(const gw_runfile *rf, gw_diags *dg) {
    gw_status st = GW_OK;
    for (int64_t i = 0; i < rf->data.train.count; i++)
        if (gw_runfile_check_prefix(rf, "data.train", rf->data.train.items[i].path, dg) != GW_OK)
            st = GW_ERR_CONFIG;
    return st;
}

static gw_status open_mix(const gw_runfile *rf, const gw_tokens_options *o, gw_arena *mem,
                          gw_tokens **out, gw_diags *dg) {
    const gw_rf_mixture *m = &rf->data.train;
    const gw_rf_stages *stages = &rf->data.stages;
    gw_tokens_source *sources = gw_arena_new(mem, gw_tokens_source, m->count + 1);
    gw_tokens_stage *s = gw_arena_new(mem, gw_tokens_stage, stages->count + 1);
    for (int64_t i = 0; i < m->count; i++)
        sources[i] = (gw_tokens_source){m->items[i].path, m->items[i].weight, m->items[i].epochs};
    for (int64_t i = 0; i < stages->count; i++)
        s[i] = (gw_tokens_stage){stages->items[i].tokens, stages->items[i].weights};
    return gw_tokens_open_mix(sources, (int)m->count, s, (int)stages->count, o, out, dg);
}

gw_status gw_dataset_open_train(const gw_runfile *rf, int64_t vocab, gw_tokens **out,
                                gw_diags *dg) {
    gw_arena mem = {0};
    gw_tokens_options o = gw_dataset_options(rf, vocab);
    int64_t samples;
    *out = NULL;
    GW_TRY(check_paths(rf, dg));
    gw_status st = open_mix(rf, &o, &mem, out, dg);
    gw_arena_release(&mem);
    GW_TRY(st);
    if (__builtin_mul_overflow(rf->train.steps, rf->train.global_batch, &samples)) return GW_OK;
    st = gw_tokens_check_epochs(*out, samples, dg);
    if (st == GW_OK) return GW_OK;
    gw_tokens_close(*out);
    *out = NULL;
    return st;
}

gw_status gw_dataset_open_valid(const gw_runfile *rf, int64_t vocab, gw_tokens **out,
                                gw_diags *dg) {
    gw_tokens_options o = gw_dataset_options(rf, vocab);
    o.shuffle = false;
    o.order = GW_ORDER_AUTO;
    GW_TRY(gw_runfile_check_prefix(rf, "data.valid", rf->data.valid, dg));
    return gw_tokens_open(rf->data.valid, &o, out, dg);
}

void gw_dataset_announce(gw_tokens *ds, const gw_runfile *rf) {
    int sources = gw_tokens_sources(ds);
    int64_t n;
    if (__builtin_mul_overflow(rf->train.steps, rf->train.global_batch, &n)) return;
    int64_t *counts = gw_mem_zalloc((size_t)sources * sizeof *counts);
    gw_tokens_counts(ds, n, counts);
    for (int k = 0; k < sources; k++) {
        gw_tokens_source_info s = gw_tokens_source_at(ds, k);
        double epochs = (double)counts[k] / (double)s.rows;
        if (sources > 1 || epochs > 1)
            gw_log_info("%s: the run takes %" PRId64 " rows of its %" PRId64 ", %.2f epochs (%.1f "
                        "%% of the run)",
                        s.name, counts[k], s.rows, epochs,
                        n > 0 ? 100 * (double)counts[k] / (double)n : 0);
    }
    gw_mem_free(counts);
}
