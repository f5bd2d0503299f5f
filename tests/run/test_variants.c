// SPDX-License-Identifier: Apache-2.0
// Layouts that must not change a bit: a deferred norm against the exact one, a secondary shard
// against plain ZeRO-3, states on host and disk against the device. One rank and several, clipped
// or not, and with a step whose gradients are not finite.
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../harness.h"
#include "trainer.h"
#include "variants.h"

/* ---- deferred norm ---- */

static void check_deferred(variant v) {
    variant_trace exact[VARIANT_RANKS], deferred[VARIANT_RANKS];
    v.bad_step = true;
    variant_run(&v, exact);
    v.deferred = true;
    variant_run(&v, deferred);
    variant_check_same(&v, exact, deferred, "a deferred norm");
    for (int r = 0; r < v.ranks; r++) {
        const gw_hash128 *h = deferred[r].state;
        CHECK(!isfinite(deferred[r].norm[VARIANT_BAD_STEP]));
        CHECK(memcmp(&h[VARIANT_BAD_STEP], &h[VARIANT_BAD_STEP - 1], sizeof *h) == 0);
        CHECK(memcmp(&h[1], &h[0], sizeof *h) != 0);
    }
}

static const double clips[] = {0, 1e-3, 1e6}; /* off, engaged in every step, never engaged */

TEST_WITHIN(a_deferred_norm_changes_nothing, 300) {
    for (int optim = 0; optim < 4; optim++)
        for (size_t c = 0; c < GW_COUNT(clips); c++)
            for (int precision = 0; precision < 3; precision++) {
                variant v = {.ranks = 1, .micro_batches = 1 + (int)c % 2, .clip = clips[c]};
                v.optim = optim == 3 ? GW_OPTIM_MUON : optim ? GW_OPTIM_SGD : GW_OPTIM_ADAMW;
                v.plain_sgd = optim == 1;
                if (precision > 0) v.compute = GW_BF16;
                if (precision == 2) v.master = v.moments = GW_BF16;
                v.stochastic = precision == 2 && optim == 0;
                check_deferred(v);
            }
}

TEST_WITHIN(a_deferred_norm_changes_nothing_in_the_reference, 120) {
    for (size_t c = 0; c < GW_COUNT(clips); c++)
        check_deferred((variant){.ranks = 1, .clip = clips[c], .reference = true});
}

TEST_WITHIN(a_deferred_norm_changes_nothing_on_two_ranks, 120) {
    for (int zero = 0; zero <= 3; zero++)
        for (int mixed = 0; mixed <= 1; mixed++) {
            variant v = {.ranks = 2, .zero = zero, .clip = clips[1], .micro_batches = 2};
            if (mixed) v.compute = GW_BF16;
            check_deferred(v);
            v.clip = clips[2];
            check_deferred(v);
        }
}

/* Clipping is what engages: a run that is clipped is another run. */
TEST(clipping_engages) {
    variant_trace off[VARIANT_RANKS], on[VARIANT_RANKS];
    variant v = {.ranks = 1, .optim = GW_OPTIM_SGD, .plain_sgd = true};
    variant_run(&v, off);
    v.clip = clips[1];
    variant_run(&v, on);
    CHECK(memcmp(&off[0].state[0], &on[0].state[0], sizeof(gw_hash128)) != 0);
    CHECK((double)off[0].norm[0] > clips[1] && (double)off[0].norm[0] < clips[2]);
}

/* ---- secondary shard ---- */

TEST_WITHIN(a_secondary_shard_changes_nothing, 120) {
    for (int mixed = 0; mixed <= 1; mixed++)
        for (int recompute = 0; recompute <= 1; recompute++) {
            variant_trace plain[VARIANT_RANKS], hpz[VARIANT_RANKS];
            variant v = {.ranks = 4, .zero = 3, .clip = 1, .micro_batches = 2, .prefetch = 1};
            if (mixed) v.compute = GW_BF16;
            v.recompute = recompute ? GW_RECOMPUTE_FULL : GW_RECOMPUTE_NONE;
            v.reduce_each = recompute;
            variant_run(&v, plain);
            v.secondary = 2;
            variant_run(&v, hpz);
            variant_check_same(&v, plain, hpz, "a secondary shard");
        }
}

/* ---- offload ---- */

static void check_offload(variant v) {
    variant_trace plain[VARIANT_RANKS], away[VARIANT_RANKS];
    variant on_device = v;
    on_device.optimizer_mem = on_device.master_mem = on_device.parameter_mem = GW_MEM_DEVICE;
    v.bad_step = on_device.bad_step = true;
    variant_run(&on_device, plain);
    variant_run(&v, away);
    variant_check_same(&v, plain, away, "offload");
    for (int r = 0; r < v.ranks; r++)
        for (int m = 0; m < GW_MEM_COUNT; m++) {
            bool used = v.optimizer_mem == (gw_mem)m || v.master_mem == (gw_mem)m ||
                        v.parameter_mem == (gw_mem)m;
            if (m != GW_MEM_DEVICE) CHECK_EQ(away[r].arena[m] > 0, used);
            CHECK_EQ(away[r].moved.fetched[m], VARIANT_STEPS * away[r].planned.fetched[m]);
            CHECK_EQ(away[r].moved.stored[m], VARIANT_STEPS * away[r].planned.stored[m]);
            CHECK_EQ(plain[r].moved.fetched[m], 0);
        }
}

TEST_WITHIN(optimizer_states_away_change_nothing, 120) {
    for (int m = GW_MEM_HOST; m <= GW_MEM_DISK; m++)
        for (int optim = 0; optim < 3; optim++) {
            variant v = {.ranks = 1, .clip = 1, .micro_batches = 2, .dir = test_tmpdir()};
            v.optim = optim == 2 ? GW_OPTIM_MUON : optim ? GW_OPTIM_SGD : GW_OPTIM_ADAMW;
            v.optimizer_mem = (gw_mem)m;
            check_offload(v);
            v.compute = GW_BF16;
            v.master_mem = m == GW_MEM_HOST ? GW_MEM_DISK : GW_MEM_HOST; /* both kinds at once */
            check_offload(v);
        }
}

TEST_WITHIN(parameters_away_change_nothing, 120) {
    for (int m = GW_MEM_HOST; m <= GW_MEM_DISK; m++)
        for (int mixed = 0; mixed <= 1; mixed++)
            for (int recompute = 0; recompute <= 1; recompute++) {
                variant v = {.ranks = 1, .zero = 3, .clip = 1, .micro_batches = 2};
                v.dir = test_tmpdir();
                v.parameter_mem = v.optimizer_mem = (gw_mem)m;
                if (mixed) v.compute = GW_BF16;
                if (mixed) v.master_mem = (gw_mem)m;
                v.recompute = recompute ? GW_RECOMPUTE_FULL : GW_RECOMPUTE_NONE;
                v.prefetch = recompute;
                check_offload(v);
            }
}

TEST_WITHIN(offload_of_several_ranks_changes_nothing, 240) {
    for (int m = GW_MEM_HOST; m <= GW_MEM_DISK; m++)
        for (int zero = 0; zero <= 3; zero++)
            for (int mixed = 0; mixed <= 1; mixed++) {
                variant v = {.ranks = 2 + zero % 2, .zero = zero, .clip = 1, .micro_batches = 2};
                v.dir = test_tmpdir();
                v.optimizer_mem = (gw_mem)m;
                if (mixed) v.compute = GW_BF16;
                if (mixed) v.master_mem = (gw_mem)m;
                if (zero == 3) v.parameter_mem = (gw_mem)m;
                check_offload(v);
            }
}

TEST_WITHIN(offload_and_a_secondary_shard_agree, 60) {
    variant v = {.ranks = 4, .zero = 3, .secondary = 2, .micro_batches = 2, .dir = test_tmpdir()};
    v.compute = GW_BF16;
    v.optimizer_mem = v.master_mem = GW_MEM_DISK;
    v.parameter_mem = GW_MEM_HOST;
    v.recompute = GW_RECOMPUTE_FULL;
    check_offload(v);
}

/* The file leaves no name behind, and a file system without O_DIRECT serves too. */
TEST(the_file_has_no_name_and_needs_no_o_direct) {
    variant_trace t[VARIANT_RANKS];
    variant v = {.ranks = 1, .optimizer_mem = GW_MEM_DISK, .dir = test_tmpdir()};
    variant_run(&v, t);
    CHECK(rmdir(test_tmpdir()) == 0); /* empty */
    CHECK(mkdir(test_tmpdir(), 0700) == 0);
    v.dir = "/dev/shm";
    if (access(v.dir, W_OK) != 0) SKIP("no tmpfs to try");
    check_offload(v);
}

/* ---- faults ---- */

/* Cuts the offload file of this process to nothing, by way of its descriptor. */
static void cut_the_file(void) {
    for (int fd = 3; fd < 256; fd++) {
        char link[64], target[300];
        snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
        ssize_t n = readlink(link, target, sizeof target - 1);
        if (n <= 0) continue;
        target[n] = 0;
        if (!strstr(target, "gradwright-offload")) continue;
        CHECK(ftruncate(fd, 0) == 0);
        return;
    }
    test_fail(__FILE__, __LINE__, "no offload file is open");
}

TEST(a_fault_of_the_disk_names_tensor_and_place) {
    program p;
    trainer_init(&p, GW_FAMILY_LLAMA);
    p.opts.layout.optimizer_mem = GW_MEM_DISK;
    gw_exec *x = trainer_exec(&p, (gw_exec_opts){.offload_dir = test_tmpdir()});
    trainer_weights(&p, x, 1);
    (void)trainer_step(&p, x, 0, 1);
    cut_the_file();
    trainer_inputs(&p, x, 1, 0);
    CHECK_OK(gw_exec_run(x, GW_SEG_PRE, &p.dg), &p.dg);
    CHECK_OK(gw_exec_run(x, GW_SEG_LOOP, &p.dg), &p.dg);
    gw_status st = gw_exec_run(x, GW_SEG_POST, &p.dg);
    CHECK_EQ(st, GW_ERR_IO);
    CHECK_FAILS(st, &p.dg, "embed.weight.m");
    CHECK_FAILS(st, &p.dg, test_tmpdir());
    CHECK_FAILS(st, &p.dg, "at byte 0");
    gw_exec_free(x);
    program_release(&p);
}

TEST(a_folder_that_is_not_there_is_refused) {
    program p;
    gw_graph g;
    gw_exec *x = NULL;
    trainer_init(&p, GW_FAMILY_LLAMA);
    p.opts.layout.optimizer_mem = GW_MEM_DISK;
    program_make(&p, NULL, &g, NULL);
    gw_exec_opts o = {.machine = p.machine};
    CHECK_FAILS(gw_exec_new(&x, &g, &o, &p.dg), &p.dg, "offload.dir");
    gw_diags_clear(&p.dg);
    o.offload_dir = test_tmp_path("nowhere");
    CHECK_FAILS(gw_exec_new(&x, &g, &o, &p.dg), &p.dg, "No such file");
    gw_graph_release(&g);
    program_release(&p);
}

/* Copies run beside the ops: every op of the program can be looked at one by one all the same. */
TEST(a_checked_run_sees_what_copies_bring) {
    program p;
    trainer_init(&p, GW_FAMILY_LLAMA);
    p.opts.layout.optimizer_mem = GW_MEM_HOST;
    gw_exec *x = trainer_exec(&p, (gw_exec_opts){.poison = true});
    trainer_weights(&p, x, 1);
    (void)trainer_step(&p, x, 0, 1);
    gw_vid m = gw_exec_find(x, "embed.weight.m");
    float nan = NAN;
    memcpy(gw_exec_ptr(x, m), &nan, sizeof nan);
    float seed = 0.05f, one = 1, lr = 1e-2f;
    int64_t number = 2, batch = 1;
    gw_exec_write(x, "seed", &seed, sizeof seed);
    gw_exec_write(x, "aux_seed", &seed, sizeof seed);
    gw_exec_write(x, "batch", &batch, sizeof batch);
    gw_exec_write(x, "inv_scale", &one, sizeof one);
    gw_exec_write(x, "lr", &lr, sizeof lr);
    gw_exec_write(x, "step", &number, sizeof number);
    trainer_inputs(&p, x, 1, 0);
    gw_oid bad = GW_NONE;
    CHECK_OK(gw_exec_run_checked(x, GW_SEG_PRE, &bad, &p.dg), &p.dg);
    CHECK_EQ(bad, GW_NONE);
    CHECK_OK(gw_exec_run_checked(x, GW_SEG_LOOP, &bad, &p.dg), &p.dg);
    CHECK_EQ(bad, GW_NONE);
    CHECK_OK(gw_exec_run_checked(x, GW_SEG_POST, &bad, &p.dg), &p.dg);
    CHECK(bad != GW_NONE);
    const gw_graph *g = gw_exec_graph(x);
    CHECK_STR(op_name(g, &g->ops.items[bad]), "fetch");
    CHECK_EQ(gw_op_in(g, &g->ops.items[bad], 0), m);
    gw_exec_free(x);
    program_release(&p);
}
