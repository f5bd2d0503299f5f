// SPDX-License-Identifier: Apache-2.0
// Repeated lines, paragraphs and runs of sentences.
//
// Each kind is a run of its own over the documents that are left, and none looks at what another
// has cut: of every repeated part the first stays whatever the other kinds do, because a part that
// a larger one takes along stands in the first copy of the larger one too. What all kinds found is
// cut out together.
#include "data/build/dedup_impl.h" /* this module's contract */

typedef struct span_writer {
    gw_databuild *b;
    gw_dedup_unit *u;
} span_writer;

static gw_status put_spans(void *user, const gw_build_row *r, gw_diags *dg) {
    span_writer *w = user;
    int64_t count;
    const gw_span *s = gw_spans_cut(w->b->spans[w->b->kind], r->text, r->n, &count);
    (void)dg;
    for (int64_t i = 0; i < count; i++)
        gw_dedup_unit_span(w->u, r->row, s[i].begin, s[i].end, s[i].key);
    return GW_OK;
}

static gw_status spans_unit(void *build, void *state, int64_t unit, gw_diags *dg) {
    gw_databuild *b = build;
    const gw_dedup_options *o = &b->spans_dedup[b->kind];
    span_writer w = {.b = b};
    (void)state;
    if (gw_dedup_unit_done(o, (uint32_t)unit)) return GW_OK;
    GW_TRY(gw_dedup_unit_open(o, (uint32_t)unit, &w.u, dg));
    gw_status st = gw_build_walk(b, unit, GW_WALK_TEXT, GW_GONE_LISTS, put_spans, &w, dg);
    if (st == GW_OK) return gw_dedup_unit_close(w.u, dg);
    gw_dedup_unit_abandon(w.u);
    return st;
}

gw_status gw_build_dedup_spans(gw_databuild *b, gw_diags *dg) {
    for (int k = 0; k < GW_SPAN_KINDS; k++) {
        gw_dedup_options *o = &b->spans_dedup[k];
        if (!b->spans[k]) continue;
        b->kind = (gw_span_kind)k;
        GW_TRY(gw_dedup_check(o, dg));
        if (!gw_dedup_done(o)) GW_TRY(gw_build_each_unit(b, spans_unit, GW_GONE_LISTS, dg));
        GW_TRY(gw_build_run_dedup(b, o, dg));
    }
    return GW_OK;
}
