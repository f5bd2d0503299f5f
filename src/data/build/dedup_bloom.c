// SPDX-License-Identifier: Apache-2.0
// What a Bloom filter has seen: whole documents before anything else is compared, or lines or
// paragraphs of the documents that are left. Units bring their keys by all workers, and one process
// asks the filter in the order of the inputs (dedup/bloom_pass.c).
#include "data/build/dedup_impl.h" /* this module's contract */

typedef struct seen_writer {
    gw_databuild *b;
    gw_bloom_unit *u;
} seen_writer;

static gw_status put_seen(void *user, const gw_build_row *r, gw_diags *dg) {
    seen_writer *w = user;
    int64_t count;
    if (!w->b->seen_spans)
        return gw_bloom_unit_add(w->u, r->row, 0, 0, gw_dedup_text_key(r->text, r->n), dg);
    const gw_span *s = gw_spans_cut(w->b->seen_spans, r->text, r->n, &count);
    for (int64_t i = 0; i < count; i++)
        GW_TRY(gw_bloom_unit_add(w->u, r->row, s[i].begin, s[i].end, s[i].key, dg));
    return GW_OK;
}

static int lists_before(const gw_databuild *b) {
    return b->bloom.spans ? GW_GONE_LISTS : GW_GONE_SEEN;
}

static gw_status seen_unit(void *build, void *state, int64_t unit, gw_diags *dg) {
    gw_databuild *b = build;
    seen_writer w = {.b = b};
    (void)state;
    if (gw_bloom_unit_done(&b->bloom, (uint32_t)unit)) return GW_OK;
    GW_TRY(gw_bloom_unit_open(&b->bloom, (uint32_t)unit, &w.u, dg));
    gw_status st = gw_build_walk(b, unit, GW_WALK_TEXT, lists_before(b), put_seen, &w, dg);
    if (st == GW_OK) return gw_bloom_unit_close(w.u, dg);
    gw_bloom_unit_abandon(w.u);
    return st;
}

static gw_status ask(gw_databuild *b, gw_diags *dg) { return gw_bloom_pass_run(&b->bloom, dg); }

gw_status gw_build_dedup_bloom(gw_databuild *b, gw_diags *dg) {
    if (gw_bloom_pass_done(&b->bloom)) return GW_OK;
    GW_TRY(gw_build_each_unit(b, seen_unit, lists_before(b), dg));
    return gw_build_by_leader(b, ask, "a Bloom filter", dg);
}
