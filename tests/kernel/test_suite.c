// SPDX-License-Identifier: Apache-2.0
// Every kernel of the list on every case of its op, in every dtype it supports, against the
// reference.
#include <string.h>

#include "harness.h"
#include "ops/ops.h" /* gw_ops_table */
#include "run.h"

typedef void check_op(values *v, gw_oid o, const gw_kernel *k, int threads);

/* Runs all ops of a case by the reference, and checks those that are k's. Returns how many. */
static int run_case(const gw_case *c, const gw_kernel *k, const gw_machine *m, check_op *check) {
    int n = 0;
    values v;
    values_init(&v, c);
    for (int64_t o = 0; o < c->g.ops.count; o++) {
        const gw_op *op = &c->g.ops.items[o];
        values_reference(&v, (gw_oid)o);
        if (strcmp(gw_op_def(&c->g, op)->name, k->op) != 0 || !k->supports(&c->g, op, m)) continue;
        check(&v, (gw_oid)o, k, m->threads);
        n++;
    }
    values_release(&v);
    return n;
}

static void run_all(gw_dtype dtype, check_op *check) {
    gw_machine m = gw_machine_this(2);
    int total = 0;
    for (int i = 0; gw_kernel_at(i); i++) {
        const gw_kernel *k = gw_kernel_at(i);
        gw_diags dg;
        gw_diags_init(&dg);
        gw_cases cs;
        gw_cases_init(&cs, gw_ops_table(), op_named(k->op), dtype, &dg);
        int n = 0;
        for (int64_t c = 0; c < cs.items.count; c++) n += run_case(cs.items.items[c], k, &m, check);
        test_note("%-28s %-5s %d cases", k->name, gw_dtype_name(dtype), n);
        total += n;
        gw_cases_release(&cs);
        gw_diags_release(&dg);
    }
    CHECK(total > 20);
}

TEST(kernels_agree_with_references_in_f32) { run_all(GW_F32, check_kernel); }
TEST(kernels_agree_with_references_in_bf16) { run_all(GW_BF16, check_kernel); }
TEST(kernels_agree_with_references_in_f16) { run_all(GW_F16, check_kernel); }

static void moved(values *v, gw_oid o, const gw_kernel *k, int threads) {
    check_moved(v, o, k, threads);
}

/* In a pipeline an op runs on other places for each micro-batch under way. */
TEST(kernels_go_where_their_tensors_go_in_f32) { run_all(GW_F32, moved); }
TEST(kernels_go_where_their_tensors_go_in_bf16) { run_all(GW_BF16, moved); }

TEST(every_kernel_is_for_an_op_that_has_cases) {
    for (int i = 0; gw_kernel_at(i); i++) {
        const gw_kernel *k = gw_kernel_at(i);
        CHECK_MSG(op_named(k->op)->cases != gw_cases_none, "%s has no cases", k->op);
        for (int j = 0; j < i; j++) CHECK(strcmp(k->name, gw_kernel_at(j)->name) != 0);
    }
}

/* The first op of the first case of `op` whose kernel on `m` is asked for. */
static const char *chosen(const char *op, gw_dtype dtype, const gw_machine *m) {
    gw_diags dg;
    gw_diags_init(&dg);
    gw_cases cs;
    gw_cases_init(&cs, gw_ops_table(), op_named(op), dtype, &dg);
    const gw_case *c = cs.items.items[0];
    const gw_op *o = &c->g.ops.items[c->g.ops.count - 1];
    const gw_kernel *k = gw_kernel_choose(&c->g, o, m);
    int64_t bytes = k->workspace(&c->g, o, m);
    CHECK(bytes >= 0);
    const char *name = k->name;
    gw_cases_release(&cs);
    gw_diags_release(&dg);
    return name;
}

TEST(choice_follows_the_machine) {
    gw_machine plain = {.isa = GW_ISA_PLAIN, .threads = 4, .count_only = true};
    gw_machine amx = {.isa = GW_ISA_AMX, .threads = 64, .count_only = true};
    CHECK_STR(chosen("matmul", GW_F32, &plain), "onednn-matmul");
    CHECK_STR(chosen("matmul", GW_BF16, &plain), "onednn-matmul-f32tiles");
    CHECK_STR(chosen("matmul", GW_F16, &amx), "onednn-matmul-f32tiles");
    CHECK_STR(chosen("matmul", GW_BF16, &amx), "onednn-matmul");
    CHECK_STR(chosen("matmul", GW_F64, &amx), "reference");
    CHECK_STR(chosen("matmul_dw", GW_BF16, &amx), "onednn-matmul-dw");
    CHECK_STR(chosen("matmul_dw", GW_BF16, &plain), "onednn-matmul-dw-f32tiles");
    CHECK_STR(chosen("head_grad", GW_BF16, &amx), "onednn-head-grad-bf16");
    CHECK_STR(chosen("head_grad", GW_BF16, &plain), "onednn-head-grad");
    CHECK_STR(chosen("attention", GW_BF16, &plain), "cpu-attention");
}

TEST(reference_only_machine_gets_the_reference) {
    gw_machine m = gw_machine_this(1);
    m.reference_only = true;
    CHECK_STR(chosen("matmul", GW_F32, &m), "reference");
    CHECK_STR(chosen("attention_grad", GW_F32, &m), "reference");
}

TEST(this_machine_has_a_name_and_threads) {
    gw_machine m = gw_machine_this(0);
    CHECK(m.threads >= 1);
    CHECK(strlen(gw_isa_name(m.isa)) > 0 && strcmp(gw_isa_name(m.isa), "unknown") != 0);
    CHECK_EQ(gw_machine_this(3).threads, 3);
}
