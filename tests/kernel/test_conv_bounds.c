// SPDX-License-Identifier: Apache-2.0
// Convolution kernels write inside their output and their workspace, and nowhere else: every buffer
// lies between two guards. The library's own kernels have broken this for channels that are not
// whole vectors, and the damage shows far away, in a gradient that depends on where memory lies.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../harness.h"
#include "kernel/kernel.h" /* gw_kernel_choose */
#include "ops/ops.h"       /* gw_ops_table */

enum { GUARD = 4096, FILL = 0xab };

typedef struct guarded {
    unsigned char *all, *data;
    size_t bytes;
} guarded;

static guarded make_guarded(int64_t bytes) {
    guarded b = {.bytes = (size_t)bytes};
    size_t whole = (b.bytes + 2 * GUARD + 63) / 64 * 64;
    b.all = aligned_alloc(64, whole);
    CHECK(b.all != NULL);
    memset(b.all, FILL, whole);
    b.data = b.all + GUARD;
    return b;
}

static void check_guards(const guarded *b, const char *what, const char *where) {
    for (size_t i = 0; i < GUARD; i++)
        CHECK_MSG(b->all[i] == FILL && b->data[b->bytes + i] == FILL, "%s: written outside %s",
                  where, what);
}

static void *bytes_of(void *user, gw_vid v) { return ((guarded *)user)[v].data; }

typedef struct shape {
    const char *op;
    int b, size, in, out, window, stride, pad;
} shape;

static void set_int(gw_graph *g, const shape *s, gw_attr *a, const char *name, int x) {
    gw_attrs_set(g->table, s->op, a, name, (gw_attr){.i = x});
}

/* A graph of the one op; returns its output. */
static gw_vid build(const shape *s, gw_graph *g, gw_diags *dg) {
    char x[64], w[64], y[64];
    int n = (s->size + 2 * s->pad - s->window) / s->stride + 1;
    snprintf(x, sizeof x, "b%d y%d x%d c%d", s->b, s->size, s->size, s->in);
    snprintf(w, sizeof w, "o%d c%d i%d j%d", s->out, s->in, s->window, s->window);
    snprintf(y, sizeof y, "b%d y%d x%d c%d", s->b, n, n, s->out);
    bool images = strcmp(s->op, "conv2d_dx") == 0, filters = strcmp(s->op, "conv2d_dw") == 0;
    gw_attr a[GW_MAX_ATTRS];
    gw_graph_init(g, gw_ops_table());
    gw_attrs_default(g->table, s->op, a);
    set_int(g, s, a, "stride", s->stride);
    set_int(g, s, a, "pad", s->pad);
    if (images || filters) {
        set_int(g, s, a, "height", images ? s->size : s->window);
        set_int(g, s, a, "width", images ? s->size : s->window);
    }
    const char *first = images || filters ? y : x, *second = filters ? x : w;
    gw_vid in[2] = {gw_graph_leaf(g, GW_ROLE_INPUT, GW_CAUSE_DATA, GW_RATE_MB,
                                  gw_type_make(GW_F32, first), "a"),
                    gw_graph_leaf(g, GW_ROLE_INPUT, GW_CAUSE_DATA, GW_RATE_MB,
                                  gw_type_make(GW_F32, second), "b")};
    gw_builder b;
    gw_builder_init(&b, g, dg);
    gw_vid out = gw_build(&b, s->op, in, 2, a, NULL);
    CHECK_OK(b.status, dg);
    return out;
}

static void run_guarded(const shape *s, int threads) {
    gw_diags dg;
    gw_graph g;
    gw_arena mem = {0};
    gw_diags_init(&dg);
    gw_vid out = build(s, &g, &dg);
    const gw_op *o = &g.ops.items[g.values.items[out].def];
    gw_machine m = gw_machine_this(threads);
    const gw_kernel *k = gw_kernel_choose(&g, o, &m);
    guarded values[3];
    for (gw_vid v = 0; v < 3; v++) {
        values[v] = make_guarded(gw_type_local_bytes(gw_type_of(&g, v), &g.mesh, 0));
        memset(values[v].data, 0, values[v].bytes);
    }
    guarded work = make_guarded(k->workspace(&g, o, &m));
    gw_tensor in[GW_MAX_IN], to[GW_MAX_OUT];
    gw_kargs args;
    gw_kargs_bind(&args, &g, o, in, to, bytes_of, values, 0);
    args.threads = threads;
    args.work = work.data;
    args.work_bytes = (int64_t)work.bytes;
    void *state = NULL;
    CHECK_OK(k->prepare(&args, &mem, &state, &dg), &dg);
    CHECK_OK(k->launch(state, &args, &dg), &dg);
    k->release(state);
    char where[160];
    snprintf(where, sizeof where, "%s by %s, %d images of %d, %d to %d channels, window %d by %d",
             s->op, k->name, s->b, s->size, s->in, s->out, s->window, s->stride);
    for (int v = 0; v < 3; v++) check_guards(&values[v], "an operand", where);
    check_guards(&work, "workspace", where);
    for (int v = 0; v < 3; v++) free(values[v].all);
    free(work.all);
    gw_graph_release(&g);
    gw_arena_release(&mem);
    gw_diags_release(&dg);
}

TEST(convolutions_stay_inside_their_memory) {
    static const char *const ops[] = {"conv2d", "conv2d_dx", "conv2d_dw"};
    static const int channels[][2] = {{1, 8}, {3, 16}, {4, 8}, {5, 7}, {8, 8}, {16, 24}};
    static const int windows[][3] = {{1, 2, 0}, {1, 1, 0}, {3, 1, 1}, {3, 2, 1}, {7, 2, 3}};
    for (size_t o = 0; o < GW_COUNT(ops); o++)
        for (size_t c = 0; c < GW_COUNT(channels); c++)
            for (size_t w = 0; w < GW_COUNT(windows); w++)
                for (int threads = 1; threads <= 2; threads++) {
                    shape s = {ops[o],
                               4,
                               12,
                               channels[c][0],
                               channels[c][1],
                               windows[w][0],
                               windows[w][1],
                               windows[w][2]};
                    run_guarded(&s, threads);
                }
}
