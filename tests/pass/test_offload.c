// SPDX-License-Identifier: Apache-2.0
// Offload as a memory kind of homes: which bytes stand where, what is copied in a step, and how
// much of the device it takes while they pass through.
//
// With AdamW in mixed precision master, m and v are 12 bytes a parameter. On disk they are read and
// written once a step, and the master is read once more for the cast before the loop. The link to
// the device carries them, since the update runs there.
#include <string.h>

#include "../harness.h"
#include "programs.h"
#include "run/exec_copy.h" /* gw_copy_traffic */

static void start(program *p, gw_family f, int layers, bool mixed) {
    gw_model m = tiny_model(f, layers);
    program_init(p, &m, 2, 12);
    if (mixed) p->opts.compute = p->opts.gradients = GW_BF16;
    p->opts.layout.bucket_bytes = 1 << 14;
    p->opts.layout.first_bucket_bytes = 1 << 10;
    p->opts.verify = true;
}

static void over_ranks(program *p, int zero, int n) {
    gw_mesh_add(&p->mesh, "dp", n);
    p->build.batch *= n;
    p->opts.layout.zero = zero;
}

static int64_t pages(int64_t bytes, int64_t page) { return (bytes + page - 1) / page * page; }

/* Sum over parameters of the part of the rank that holds most, in elements and in padded bytes. */
static int64_t part_elems(const program *p, int n) {
    int64_t sum = 0;
    for (int i = 0; i < p->nparams; i++) sum += (gw_type_elems(&p->params[i].type) + n - 1) / n;
    return sum;
}

static int64_t part_bytes(const program *p, int n, int size, int64_t page) {
    int64_t sum = 0;
    for (int i = 0; i < p->nparams; i++)
        sum += pages(size * ((gw_type_elems(&p->params[i].type) + n - 1) / n), page);
    return sum;
}

TEST(twelve_bytes_a_parameter_each_way) {
    for (int zero = 0; zero <= 3; zero += 1)
        for (int n = 1; n <= 3; n += 2)
            for (int k = 1; k <= 3; k += 2) {
                program p;
                start(&p, GW_FAMILY_LLAMA, 2, true);
                over_ranks(&p, zero, n);
                p.opts.micro_batches = k;
                p.opts.layout.optimizer_mem = p.opts.layout.master_mem = GW_MEM_DISK;
                gw_graph g;
                program_make(&p, NULL, &g, NULL);
                int64_t e = part_elems(&p, zero ? n : 1);
                gw_copy_bytes b = gw_copy_traffic(&g, 0);
                CHECK_EQ(b.stored[GW_MEM_DISK], 12 * e);
                CHECK_EQ(b.fetched[GW_MEM_DISK], (12 + 4) * e);
                CHECK_EQ(b.stored[GW_MEM_HOST] + b.fetched[GW_MEM_HOST], 0);
                CHECK_EQ(g.arena_bytes[GW_MEM_DISK], 3 * part_bytes(&p, zero ? n : 1, 4, 4096));
                CHECK_EQ(g.arena_bytes[GW_MEM_HOST], 0);
                gw_graph_release(&g);
                program_release(&p);
            }
}

/* Each kind of home in a memory of its own; bytes add up over them. */
TEST(homes_stand_where_they_are_put) {
    program p;
    start(&p, GW_FAMILY_QWEN3, 2, true);
    over_ranks(&p, 3, 4);
    p.opts.layout.optimizer_mem = GW_MEM_DISK;
    p.opts.layout.master_mem = GW_MEM_HOST;
    p.opts.layout.parameter_mem = GW_MEM_HOST;
    gw_graph g;
    program_make(&p, NULL, &g, NULL);
    CHECK_EQ(g.arena_bytes[GW_MEM_DISK], 2 * part_bytes(&p, 4, 4, 4096));
    int64_t host = part_bytes(&p, 4, 4, 64) + part_bytes(&p, 4, 2, 64);
    CHECK_EQ(g.arena_bytes[GW_MEM_HOST], host);
    for (int64_t v = 0; v < g.values.count; v++) {
        const gw_value *x = &g.values.items[v];
        bool leaf = x->def == GW_NONE;
        if (leaf && x->role == GW_ROLE_STATE) CHECK_EQ(x->mem, GW_MEM_DISK);
        if (leaf && x->role == GW_ROLE_PARAM) CHECK_EQ(x->mem, GW_MEM_HOST);
        if (x->mem == GW_MEM_DISK) CHECK_EQ(x->offset % 4096, 0);
    }
    gw_graph_release(&g);
    program_release(&p);
}

/* Only copies touch what is not on the device (zeros look at a type alone). */
TEST(only_copies_touch_other_memory) {
    program p;
    start(&p, GW_FAMILY_GPT2, 2, false);
    over_ranks(&p, 3, 2);
    p.opts.micro_batches = 2;
    p.opts.recompute.kind = GW_RECOMPUTE_FULL;
    p.opts.layout.optimizer_mem = GW_MEM_HOST;
    p.opts.layout.parameter_mem = GW_MEM_DISK;
    gw_graph g;
    program_make(&p, NULL, &g, NULL);
    int copies = 0;
    for (int64_t i = 0; i < g.ops.count; i++) {
        const gw_op *o = &g.ops.items[i];
        bool copy = o->stream == GW_STREAM_COPY;
        copies += copy;
        for (int k = 0; k < (int)o->nin && !copy && !is_op(&g, o, "zeros"); k++)
            if (gw_op_in(&g, o, k) != GW_NONE)
                CHECK_EQ(g.values.items[gw_op_in(&g, o, k)].mem, GW_MEM_DEVICE);
    }
    CHECK(copies > 6 * p.nparams);
    gw_graph_release(&g);
    program_release(&p);
}

/* While an optimizer op works the next one's fetches are under way: they stand before it, and the
 * previous store stands before them. */
TEST(fetches_stand_one_tensor_ahead) {
    program p;
    start(&p, GW_FAMILY_LLAMA, 3, false);
    p.opts.layout.optimizer_mem = GW_MEM_HOST;
    gw_graph g;
    program_make(&p, NULL, &g, NULL);
    int seen = 0, optimizers = 0;
    for (int64_t i = 0; i < g.ops.count; i++) {
        const gw_op *o = &g.ops.items[i];
        seen += is_op(&g, o, "fetch");
        if (!is_op(&g, o, "adamw")) continue;
        optimizers++;
        CHECK_EQ(seen, 2 * GW_MIN(optimizers + 1, p.nparams));
    }
    CHECK_EQ(optimizers, p.nparams);
    gw_graph_release(&g);
    program_release(&p);
}

/* The device's arena shrinks by the states, less what three tensors need on their way. */
TEST(the_device_holds_three_tensors_at_most) {
    for (int mixed = 0; mixed <= 1; mixed++) {
        program p;
        start(&p, GW_FAMILY_LLAMA, 6, mixed != 0);
        gw_graph g[2];
        gw_compile_report r[2];
        program_make(&p, NULL, &g[0], &r[0]);
        p.opts.layout.optimizer_mem = GW_MEM_DISK;
        if (mixed) p.opts.layout.master_mem = GW_MEM_DISK;
        program_make(&p, NULL, &g[1], &r[1]);
        int64_t states = part_bytes(&p, 1, 4, 64) * (mixed ? 3 : 2), largest = 0;
        for (int i = 0; i < p.nparams; i++)
            largest = GW_MAX(largest, pages(4 * gw_type_elems(&p.params[i].type), 64));
        CHECK_EQ(r[0].place.persistent_bytes - r[1].place.persistent_bytes, states);
        int64_t before = r[0].place.arena_bytes[GW_MEM_DEVICE];
        int64_t after = r[1].place.arena_bytes[GW_MEM_DEVICE], passing = 3 * 3 * largest;
        CHECK_MSG(after <= before - states + passing, "%lld, %lld with states of %lld and %lld",
                  (long long)after, (long long)before, (long long)states, (long long)passing);
        gw_graph_release(&g[0]);
        gw_graph_release(&g[1]);
        program_release(&p);
    }
}

/* A store reads its tensor while later ops run: whoever puts other bytes there is found out. */
TEST(bytes_that_are_being_stored_are_not_given_away) {
    program p;
    start(&p, GW_FAMILY_LLAMA, 2, false);
    p.opts.layout.optimizer_mem = GW_MEM_HOST;
    gw_graph g;
    program_make(&p, NULL, &g, NULL);
    gw_arena mem = {0};
    gw_lives l;
    gw_lives_of(&l, &g, &mem);
    int checked = 0;
    for (int64_t i = 0; i < g.ops.count; i++) {
        const gw_op *o = &g.ops.items[i];
        if (!is_op(&g, o, "store")) continue;
        gw_vid root = gw_value_root(&g, gw_op_in(&g, o, 0));
        int64_t next = i;
        while (next < g.ops.count && g.ops.items[next].stream == GW_STREAM_COPY) next++;
        CHECK(l.last[root] >= next); /* beyond its own run */
        checked++;
    }
    CHECK_EQ(checked, 2 * p.nparams);
    gw_arena_release(&mem);
    gw_graph_release(&g);
    program_release(&p);
}

static void refused(gw_mem optimizer, gw_mem master, gw_mem parameters, int zero, bool mixed,
                    void (*more)(gw_compile_opts *), const char *text) {
    program p;
    start(&p, GW_FAMILY_LLAMA, 1, mixed);
    p.opts.layout.zero = zero;
    p.opts.layout.optimizer_mem = optimizer;
    p.opts.layout.master_mem = master;
    p.opts.layout.parameter_mem = parameters;
    if (more) more(&p.opts);
    gw_graph g;
    CHECK_FAILS(program_try(&p, NULL, &g, NULL), &p.dg, text);
    program_release(&p);
}

static void plain_sgd(gw_compile_opts *o) {
    o->optim.kind = GW_OPTIM_SGD;
    o->optim.momentum = 0;
}

static void deferred(gw_compile_opts *o) { o->optim.deferred_norm = true; }

TEST(what_has_no_meaning_is_refused) {
    refused(GW_MEM_DEVICE, GW_MEM_DEVICE, GW_MEM_HOST, 2, true, NULL, "layout.zero");
    refused(GW_MEM_DEVICE, GW_MEM_HOST, GW_MEM_DEVICE, 3, false, NULL, "no master copy");
    refused(GW_MEM_HOST, GW_MEM_DEVICE, GW_MEM_DEVICE, 0, false, plain_sgd, "no state");
    refused(GW_MEM_HOST, GW_MEM_DEVICE, GW_MEM_DEVICE, 0, false, deferred, "optimizer.norm");
}

/* Forward programs read the parameters of a training program: from where that keeps them. */
TEST(forward_programs_fetch_too) {
    for (int mixed = 0; mixed <= 1; mixed++) {
        program p;
        start(&p, GW_FAMILY_LLAMA, 2, mixed != 0);
        over_ranks(&p, 3, 2);
        p.opts.train = false;
        p.build.training = false;
        p.opts.layout.parameter_mem = GW_MEM_HOST;
        if (mixed) p.opts.layout.master_mem = GW_MEM_DISK;
        gw_graph g;
        program_make(&p, NULL, &g, NULL);
        gw_copy_bytes b = gw_copy_traffic(&g, 0);
        int64_t e = part_elems(&p, 2);
        CHECK_EQ(b.fetched[GW_MEM_HOST], (mixed ? 2 : 4) * e);
        CHECK_EQ(b.fetched[GW_MEM_DISK], mixed ? 4 * e : 0);
        CHECK_EQ(b.stored[GW_MEM_HOST], mixed ? 2 * e : 0);
        gw_graph_release(&g);
        program_release(&p);
    }
}
