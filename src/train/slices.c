// SPDX-License-Identifier: Apache-2.0
// Which tokens a rank gets.
//
// A step is cut in two ways. Samples are cut over the data-parallel ranks, and the loader knows
// that: a rank loads the rows of its own samples and no others. Tokens of a sequence are cut over
// context-parallel ranks, in zigzags and chunks, and over tensor-parallel ones; all of these load
// the same rows, and take of each the columns that the type of the program's input names. So
// nothing here knows a layout: an input's type and the rank say which rows and columns are held.
//
// A zigzag over C ranks, cut again in T chunks, is even only where 2 C T divides the length, so a
// program's sequences may be longer than the data's. What is added stands at the end, where causal
// attention shows it to nobody: a token that no embedding has (its row is zero, no expert takes
// it), a label that is not counted, and a document of its own. The labels were shifted and counted
// before, by the loader: the divisor of the loss does not know the layout.
#include "train/slices.h"

#include <string.h>

#include "base/panic.h"    /* GW_ASSERT */
#include "data/tokens.h"   /* GW_LABEL_MASKED */
#include "run/exec_comm.h" /* gw_exec_group_rank */

enum { PAD_TOKEN = -1, PAD_POSITION = 0 };

int64_t gw_slices_part(const gw_mesh *mesh, int64_t rank) {
    uint32_t samples = gw_mesh_group(mesh, "dp_replicate") | gw_mesh_group(mesh, "dp");
    return gw_exec_group_rank(mesh, samples, rank);
}

/* Elements of an input here; 0 of one that the program lacks. */
static int64_t elems_of(const gw_exec *x, const char *name) {
    gw_vid v = gw_exec_find(x, name);
    if (v == GW_NONE) return 0;
    const gw_graph *g = gw_exec_graph(x);
    return gw_type_local_elems(gw_type_of(g, v), &g->mesh, gw_exec_rank(x));
}

void gw_slices_init(gw_slices *s, const gw_exec *x, int64_t rows, int64_t seq, gw_arena *a) {
    static const char *const inputs[] = {"tokens", "labels", "positions", "docs"};
    int64_t most = 0;
    for (size_t i = 0; i < GW_COUNT(inputs); i++) most = GW_MAX(most, elems_of(x, inputs[i]));
    *s = (gw_slices){.rows = rows, .seq = seq};
    s->first = gw_slices_part(&gw_exec_graph(x)->mesh, gw_exec_rank(x)) * rows;
    s->ints = gw_arena_new(a, int32_t, most + 1);
}

/* What this rank holds of a dimension of an input. */
static gw_runs runs_of(const gw_exec *x, gw_vid v, const char *dim) {
    const gw_graph *g = gw_exec_graph(x);
    const gw_type *t = gw_type_of(g, v);
    int i = gw_type_find(t, dim);
    GW_ASSERT(i >= 0 && !t->flat);
    return gw_type_runs(t, i, &g->mesh, gw_exec_rank(x));
}

/* Columns [first, first + count) of a row, past its end padding. */
static void copy_columns(const gw_slices *s, const int32_t *row, int64_t first, int64_t count,
                         int32_t pad, int32_t *out) {
    int64_t real = GW_MAX(INT64_C(0), GW_MIN(count, s->seq - first));
    if (real > 0) memcpy(out, row + first, (size_t)real * sizeof *out);
    for (int64_t i = real; i < count; i++) out[i] = pad;
}

/* Without a pad it is one more than what stands last in the row: another document. */
static void write_ints(const gw_slices *s, gw_exec *x, const char *name, const int32_t *from,
                       const int32_t *pad) {
    gw_vid v = gw_exec_find(x, name);
    if (v == GW_NONE) return;
    gw_runs b = runs_of(x, v, "b"), c = runs_of(x, v, "s");
    int64_t at = 0;
    for (int k = 0; k < b.n; k++)
        for (int64_t r = 0; r < b.count[k]; r++) {
            int64_t number = b.first[k] + r - s->first;
            GW_ASSERT(number >= 0 && number < s->rows);
            const int32_t *row = from + number * s->seq;
            int32_t fill = pad ? *pad : row[s->seq - 1] + 1;
            for (int j = 0; j < c.n; at += c.count[j++])
                copy_columns(s, row, c.first[j], c.count[j], fill, s->ints + at);
        }
    (void)gw_exec_write(x, name, s->ints, at * (int64_t)sizeof *s->ints);
}

void gw_slices_write(const gw_slices *s, gw_exec *x, const gw_micro_batch *m) {
    const int32_t token = PAD_TOKEN, label = GW_LABEL_MASKED, position = PAD_POSITION;
    write_ints(s, x, "tokens", m->tokens, &token);
    write_ints(s, x, "labels", m->labels, &label);
    write_ints(s, x, "positions", m->positions, &position);
    write_ints(s, x, "docs", m->docs, NULL);
    (void)gw_exec_write(x, "samples", m->sample_ids, s->rows * (int64_t)sizeof *m->sample_ids);
}

void gw_step_inputs_write(gw_exec *x, const gw_step_inputs *in) {
    (void)gw_exec_write(x, "lr", &in->lr, sizeof in->lr);
    (void)gw_exec_write(x, "muon_lr", &in->muon_lr, sizeof in->muon_lr);
    (void)gw_exec_write(x, "step", &in->step, sizeof in->step);
    (void)gw_exec_write(x, "inv_scale", &in->inv_scale, sizeof in->inv_scale);
    (void)gw_exec_write(x, "seed", &in->seed, sizeof in->seed);
    (void)gw_exec_write(x, "aux_seed", &in->aux_seed, sizeof in->aux_seed);
    (void)gw_exec_write(x, "batch", &in->batch, sizeof in->batch);
}
