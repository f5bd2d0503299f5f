// SPDX-License-Identifier: Apache-2.0
// Laws of the executor: lives are what the plan says (poison changes no bit), memory is what the
// plan says, the step allocates nothing, executors share memory without a trace, and a bad number
// is traced to its op.
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../harness.h"
#include "base/num.h"   /* gw_bf16 */
#include "run/memory.h" /* gw_memory_available, gw_memory_pss */
#include "trainer.h"

static bool same_hash(gw_hash128 a, gw_hash128 b) { return memcmp(&a, &b, sizeof a) == 0; }

static void same_trace(trace a, trace b, const char *what, int step) {
    CHECK_MSG(memcmp(&a.loss, &b.loss, sizeof a.loss) == 0, "%s, step %d: loss %.9g and %.9g", what,
              step, (double)a.loss, (double)b.loss);
    CHECK_MSG(isfinite(a.loss) && isfinite(a.norm), "%s, step %d", what, step);
    CHECK_MSG(memcmp(&a.norm, &b.norm, sizeof a.norm) == 0, "%s, step %d: norms differ", what,
              step);
    CHECK_MSG(same_hash(a.gradients, b.gradients), "%s, step %d: gradients differ", what, step);
    CHECK_MSG(same_hash(a.state, b.state), "%s, step %d: states differ", what, step);
}

/* ---- poison ---- */

static void poison_case(gw_family f, int accumulate, gw_dtype compute, gw_recompute_kind recompute,
                        gw_optim_kind optim) {
    program p;
    trainer_init(&p, f);
    p.opts.micro_batches = accumulate;
    p.opts.compute = p.opts.gradients = compute;
    p.opts.recompute.kind = recompute;
    p.opts.optim.kind = optim;
    gw_exec *plain = trainer_exec(&p, (gw_exec_opts){0});
    gw_exec *poisoned = trainer_exec(&p, (gw_exec_opts){.poison = true});
    trainer_weights(&p, plain, 5);
    trainer_weights(&p, poisoned, 5);
    float first = 0;
    char what[80];
    snprintf(what, sizeof what, "%s x%d %s", gw_family_name(f), accumulate, gw_dtype_name(compute));
    for (int step = 0; step < 4; step++) {
        trace a = trainer_step(&p, plain, step, 1);
        same_trace(a, trainer_step(&p, poisoned, step, 1), what, step);
        CHECK(step == 0 || a.loss != first); /* it learns something */
        first = step == 0 ? a.loss : first;
    }
    gw_exec_free(plain);
    gw_exec_free(poisoned);
    program_release(&p);
}

static void poison_family(gw_family f) {
    for (int k = 1; k <= 3; k += 2) {
        poison_case(f, k, GW_F32, GW_RECOMPUTE_NONE, GW_OPTIM_ADAMW);
        poison_case(f, k, GW_BF16, GW_RECOMPUTE_FULL, GW_OPTIM_ADAMW);
        poison_case(f, k, GW_F32, GW_RECOMPUTE_SELECTIVE, GW_OPTIM_MUON);
        poison_case(f, k, GW_BF16, GW_RECOMPUTE_NONE, GW_OPTIM_SGD);
    }
}

TEST(poison_changes_no_bit_gpt2) { poison_family(GW_FAMILY_GPT2); }
TEST(poison_changes_no_bit_llama) { poison_family(GW_FAMILY_LLAMA); }
TEST(poison_changes_no_bit_qwen2) { poison_family(GW_FAMILY_QWEN2); }
TEST(poison_changes_no_bit_qwen3) { poison_family(GW_FAMILY_QWEN3); }
TEST(poison_changes_no_bit_mistral) { poison_family(GW_FAMILY_MISTRAL); }

/* Poison does something: the learning rate, whose last reader is the last op, is NaN after the
 * step. */
TEST(poison_fills_what_has_ended) {
    program p;
    trainer_init(&p, GW_FAMILY_LLAMA);
    gw_exec *x = trainer_exec(&p, (gw_exec_opts){.poison = true});
    trainer_weights(&p, x, 5);
    trace t = trainer_step(&p, x, 0, 1);
    float lr = 0;
    CHECK(isfinite(t.norm) && gw_exec_read(x, "lr", &lr, sizeof lr));
    CHECK(isnan(lr));
    gw_exec_free(x);
    program_release(&p);
}

/* ---- guards ---- */

typedef struct watcher {
    gw_exec *x;
    gw_hash128 state;
    int calls;
} watcher;

static void look_at_state(void *user) {
    watcher *w = user;
    w->state = trainer_state(w->x);
    w->calls++;
}

/* Called once in the step that follows, when nothing has changed yet. */
static void guard_case(gw_family f, int accumulate, gw_optim_kind optim) {
    program p;
    trainer_init(&p, f);
    p.opts.micro_batches = accumulate;
    p.opts.optim.kind = optim;
    gw_exec *x = trainer_exec(&p, (gw_exec_opts){0});
    trainer_weights(&p, x, 5);
    watcher w = {.x = x};
    for (int step = 0; step < 3; step++) {
        gw_hash128 before = trainer_state(x);
        gw_exec_guard(x, look_at_state, &w);
        trace t = trainer_step(&p, x, step, 1);
        CHECK_EQ(w.calls, step + 1);
        CHECK(same_hash(w.state, before));
        CHECK(!same_hash(t.state, before));
    }
    gw_hash128 last = w.state;
    gw_exec_guard(x, look_at_state, &w);
    gw_exec_guard(x, NULL, NULL);
    (void)trainer_step(&p, x, 3, 1);
    CHECK(w.calls == 3 && same_hash(w.state, last));
    gw_exec_free(x);
    program_release(&p);
}

TEST(a_guard_is_called_before_the_state_changes) {
    guard_case(GW_FAMILY_GPT2, 1, GW_OPTIM_ADAMW);
    guard_case(GW_FAMILY_LLAMA, 3, GW_OPTIM_MUON);
    guard_case(GW_FAMILY_DEEPSEEK, 2, GW_OPTIM_ADAMW); /* its router has a bias that is a state */
    guard_case(GW_FAMILY_QWEN3, 2, GW_OPTIM_SGD);
}

/* ---- memory ---- */

TEST(the_step_allocates_nothing) {
    for (int f = 0; f < GW_FAMILY_COUNT; f++)
        for (int k = 1; k <= 3; k += 2) {
            program p;
            trainer_init(&p, (gw_family)f);
            p.opts.micro_batches = k;
            gw_exec *x = trainer_exec(&p, (gw_exec_opts){0});
            trainer_weights(&p, x, 5);
            (void)trainer_step(&p, x, 0, 1);
            int64_t count = gw_mem_count();
            for (int step = 1; step < 20; step++) (void)trainer_step(&p, x, step, 1);
            CHECK_EQ(gw_mem_count(), count);
            gw_exec_free(x);
            program_release(&p);
        }
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED true
#else
#define SANITIZED false
#endif

/* Anonymous memory of this process: what shared libraries' pages count by depends on other
 * processes. */
static int64_t anonymous_bytes(void) {
    FILE *f = fopen("/proc/self/status", "re");
    char line[160];
    int64_t bytes = -1;
    while (f && fgets(line, sizeof line, f))
        if (strncmp(line, "RssAnon:", 8) == 0) bytes = (int64_t)strtoll(line + 8, NULL, 10) * 1024;
    if (f) fclose(f);
    return bytes;
}

/* Neither ours nor a library's memory grows with the number of steps: the second five hundred take
 * no more than the first did. A leak of 8 kB a step would show. */
TEST(a_thousand_steps_grow_nothing) {
    if (SANITIZED)
        SKIP("a sanitizer keeps freed memory, so the process grows by its own accounting");
    program p;
    trainer_init(&p, GW_FAMILY_LLAMA);
    gw_exec *x = trainer_exec(&p, (gw_exec_opts){0});
    trainer_weights(&p, x, 5);
    for (int step = 0; step < 500; step++) (void)trainer_step(&p, x, step, 1);
    int64_t count = gw_mem_count(), before = anonymous_bytes();
    trace t = {0};
    for (int step = 500; step < 1000; step++) t = trainer_step(&p, x, step, 1);
    CHECK(isfinite(t.loss));
    CHECK_EQ(gw_mem_count(), count);
    int64_t grown = anonymous_bytes() - before;
    CHECK_MSG(before > 0 && grown < 4 << 20, "%lld bytes", (long long)grown);
    gw_exec_free(x);
    program_release(&p);
}

TEST(measured_arena_equals_the_planned) {
    for (int f = 0; f < GW_FAMILY_COUNT; f++)
        for (int i = 0; i < 24; i++) {
            program p;
            trainer_init(&p, (gw_family)f);
            p.build.batch = 1 + i % 3;
            p.build.seq = 5 + i;
            p.opts.micro_batches = 1 + i % 4;
            p.opts.compute = p.opts.gradients = i % 2 ? GW_BF16 : GW_F32;
            p.opts.recompute.kind = (gw_recompute_kind)(i % 3);
            p.opts.optim.kind = (gw_optim_kind)(i / 2 % 3);
            gw_exec *x = trainer_exec(&p, (gw_exec_opts){0});
            CHECK_EQ(gw_exec_arena_bytes(x), gw_exec_graph(x)->arena_bytes[GW_MEM_DEVICE]);
            const gw_graph *g = gw_exec_graph(x);
            for (int64_t v = 0; v < g->values.count; v++)
                if (g->values.items[v].offset >= 0)
                    CHECK_EQ((uintptr_t)gw_exec_ptr(x, (gw_vid)v) % 64, 0);
            gw_exec_free(x);
            program_release(&p);
        }
}

static int open_files(void) {
    int n = 0;
    DIR *d = opendir("/proc/self/fd");
    CHECK(d != NULL);
    while (readdir(d)) n++;
    closedir(d);
    return n;
}

/* A model of 70 billion parameters takes more than a terabyte to train: said in words, nothing
 * reserved. */
TEST(a_program_too_big_for_the_machine_is_refused) {
    program p;
    program_init_preset(&p, "llama3-70b", 1, 8192);
    gw_graph g;
    program_make(&p, NULL, &g, NULL);
    CHECK(g.arena_bytes[GW_MEM_DEVICE] > INT64_C(1) << 40);
    if (gw_memory_available(NULL, 0) >= g.arena_bytes[GW_MEM_DEVICE])
        SKIP("this machine holds llama3-70b");
    int files = open_files();
    int64_t pss = gw_memory_pss();
    gw_exec_opts eo = {.machine = p.machine};
    gw_exec *x = NULL;
    CHECK_EQ(gw_exec_new(&x, &g, &eo, &p.dg), GW_ERR_MEMORY);
    CHECK(x == NULL);
    CHECK_FAILS(GW_ERR_MEMORY, &p.dg, "no room for the arena");
    CHECK_FAILS(GW_ERR_MEMORY, &p.dg, "recompute.policy"); /* what to do */
    CHECK_EQ(open_files(), files);
    CHECK(gw_memory_pss() - pss < 64 << 20);
    gw_graph_release(&g);
    program_release(&p);
}

/* ---- two executors ---- */

static gw_exec *validator(program *p, gw_exec *params_from, void *overlay, int64_t overlay_bytes) {
    program q = *p; /* the same options, forward only */
    q.opts.train = q.build.training = false;
    q.opts.micro_batches = 1;
    gw_exec_opts eo = {
        .params_from = params_from, .overlay = overlay, .overlay_bytes = overlay_bytes};
    eo.own_params = params_from == NULL;
    gw_exec *x = trainer_exec(&q, eo);
    p->dg = q.dg;
    return x;
}

static float validate(program *p, gw_exec *x) {
    float seed = 1, loss = 0, sum = 0;
    for (int i = 0; i < 3; i++) {
        gw_exec_write(x, "seed", &seed, sizeof seed);
        CHECK_OK(gw_exec_run(x, GW_SEG_PRE, &p->dg), &p->dg);
        trainer_inputs(p, x, 900, i);
        CHECK_OK(gw_exec_run(x, GW_SEG_LOOP, &p->dg), &p->dg);
        CHECK_OK(gw_exec_run(x, GW_SEG_POST, &p->dg), &p->dg);
        CHECK(gw_exec_read(x, "loss", &loss, sizeof loss));
        sum += loss;
    }
    return sum;
}

/* Parameters, and what else a forward program keeps (biases of routers). */
static void copy_kept(gw_exec *to, const gw_exec *from) {
    const gw_graph *g = gw_exec_graph(to);
    for (int64_t v = 0; v < g->values.count; v++) {
        const gw_value *x = &g->values.items[v];
        if (x->def != GW_NONE || (x->role != GW_ROLE_PARAM && x->role != GW_ROLE_STATE)) continue;
        const char *name = gw_graph_str(g, x->name);
        gw_tensor t = gw_exec_tensor(from, gw_exec_find(from, name));
        CHECK(gw_exec_write(to, name, t.data, t.elems * gw_dtype_bits(t.dtype) / 8));
    }
}

/* Validation between steps, in the step's own temporaries and on its parameters: the loss is that
 * of a program of its own, and the steps that follow are those of a run without validation. */
static void sharing_case(gw_family f, gw_dtype compute, int accumulate) {
    program p;
    trainer_init(&p, f);
    p.opts.compute = p.opts.gradients = compute;
    p.opts.micro_batches = accumulate;
    gw_exec *alone = trainer_exec(&p, (gw_exec_opts){0});
    gw_exec *shared = trainer_exec(&p, (gw_exec_opts){0});
    int64_t bytes = 0;
    void *temps = gw_exec_temporaries(shared, &bytes);
    gw_exec *valid = validator(&p, shared, temps, bytes), *own = validator(&p, NULL, NULL, 0);
    CHECK_EQ(gw_exec_arena_bytes(valid), 0); /* it fits into the temporaries */
    trainer_weights(&p, alone, 8);
    trainer_weights(&p, shared, 8);
    for (int step = 0; step < 4; step++) {
        same_trace(trainer_step(&p, alone, step, 1), trainer_step(&p, shared, step, 1),
                   gw_family_name(f), step);
        copy_kept(own, alone);
        float a = validate(&p, valid), b = validate(&p, own);
        CHECK_MSG(isfinite(a) && memcmp(&a, &b, sizeof a) == 0, "%.9g and %.9g", (double)a,
                  (double)b);
        CHECK(same_hash(trainer_state(shared), trainer_state(alone)));
    }
    gw_exec_free(valid);
    gw_exec_free(own);
    gw_exec_free(shared);
    gw_exec_free(alone);
    program_release(&p);
}

TEST(validation_shares_memory_without_a_trace) {
    for (int f = 0; f < GW_FAMILY_COUNT; f++) {
        sharing_case((gw_family)f, GW_F32, 1);
        sharing_case((gw_family)f, GW_F32, 3);
    }
    sharing_case(GW_FAMILY_LLAMA, GW_BF16, 1);
}

TEST(an_overlay_that_is_too_small_is_not_used) {
    program p;
    trainer_init(&p, GW_FAMILY_LLAMA);
    gw_exec *x = trainer_exec(&p, (gw_exec_opts){0});
    trainer_weights(&p, x, 3);
    char few[256];
    gw_exec *valid = validator(&p, x, few, sizeof few);
    CHECK(gw_exec_arena_bytes(valid) > (int64_t)sizeof few);
    CHECK(isfinite(validate(&p, valid)));
    gw_exec_free(valid);
    gw_exec_free(x);
    program_release(&p);
}

TEST(a_missing_parameter_is_named) {
    program p, q;
    trainer_init(&p, GW_FAMILY_LLAMA);
    gw_exec *x = trainer_exec(&p, (gw_exec_opts){0}), *y = NULL;
    trainer_init(&q, GW_FAMILY_QWEN2);
    q.opts.train = q.build.training = false;
    gw_graph g;
    program_make(&q, NULL, &g, NULL);
    gw_exec_opts eo = {.machine = q.machine, .params_from = x};
    CHECK_FAILS(gw_exec_new(&y, &g, &eo, &q.dg), &q.dg, "layers.0.attn.q.bias");
    gw_graph_release(&g);
    gw_exec_free(x);
    program_release(&p);
    program_release(&q);
}

/* ---- bad numbers ---- */

/* A step whose gradients are not finite leaves every byte of state as it was, in every precision.
 */
static void untouched_case(gw_dtype compute, gw_dtype master, gw_optim_kind optim,
                           double momentum) {
    program p;
    trainer_init(&p, GW_FAMILY_LLAMA);
    p.opts.compute = p.opts.gradients = compute;
    p.opts.master = p.opts.moments = master;
    p.opts.optim.kind = optim;
    p.opts.optim.momentum = momentum;
    p.opts.stochastic = master == GW_BF16;
    gw_exec *x = trainer_exec(&p, (gw_exec_opts){0});
    trainer_weights(&p, x, 5);
    for (int step = 0; step < 2; step++) (void)trainer_step(&p, x, step, 1);
    gw_hash128 before = trainer_state(x);
    trace bad = trainer_step(&p, x, 2, (float)INFINITY);
    CHECK(!isfinite(bad.norm));
    CHECK(same_hash(bad.state, before));
    trace good = trainer_step(&p, x, 2, 1);
    CHECK(isfinite(good.norm) && !same_hash(good.state, before));
    gw_exec_free(x);
    program_release(&p);
}

TEST(a_step_that_is_not_finite_changes_nothing) {
    static const gw_optim_kind kinds[] = {GW_OPTIM_ADAMW, GW_OPTIM_SGD, GW_OPTIM_SGD,
                                          GW_OPTIM_MUON};
    for (size_t i = 0; i < GW_COUNT(kinds); i++) {
        double momentum = i == 1 ? 0 : 0.9;
        untouched_case(GW_F32, GW_F32, kinds[i], momentum);
        untouched_case(GW_BF16, GW_F32, kinds[i], momentum);
        untouched_case(GW_BF16, GW_BF16, kinds[i], momentum);
    }
}

/* Runs a checked step and gives the scope and name of the first bad op; "" when there is none. */
static void first_bad(program *p, gw_exec *x, char *out, size_t n) {
    float one = 1;
    int64_t batch = 0;
    gw_oid bad = GW_NONE;
    gw_exec_write(x, "seed", &one, sizeof one);
    gw_exec_write(x, "batch", &batch, sizeof batch);
    CHECK_OK(gw_exec_run_checked(x, GW_SEG_PRE, &bad, &p->dg), &p->dg);
    trainer_inputs(p, x, 0, 0);
    if (bad == GW_NONE) CHECK_OK(gw_exec_run_checked(x, GW_SEG_LOOP, &bad, &p->dg), &p->dg);
    const gw_graph *g = gw_exec_graph(x);
    out[0] = 0;
    if (bad != GW_NONE)
        snprintf(out, n, "%s of %s", op_name(g, &g->ops.items[bad]),
                 gw_graph_str(g, g->ops.items[bad].scope));
}

/* Puts one value into a weight; the first op that reads or produces something not finite is named.
 */
static void bad_case(gw_family f, gw_dtype compute, const char *param, float value,
                     const char *want) {
    program p;
    char found[200];
    trainer_init(&p, f);
    p.opts.compute = p.opts.gradients = compute;
    gw_exec *x = trainer_exec(&p, (gw_exec_opts){.poison = true});
    trainer_weights(&p, x, 5);
    gw_tensor t = gw_exec_tensor(x, gw_exec_find(x, param));
    for (int64_t i = 0; i < t.elems; i++)
        if (i == 3 || isfinite(value)) ((float *)t.data)[i] = value;
    first_bad(&p, x, found, sizeof found);
    CHECK_STR(found, want);
    gw_exec_free(x);
    program_release(&p);
}

TEST(the_first_bad_op_is_named) {
    float inf = (float)INFINITY, nan = NAN;
    bad_case(GW_FAMILY_LLAMA, GW_F32, "layers.1.mlp.up.weight", inf, "matmul of layer 1/mlp/up");
    bad_case(GW_FAMILY_LLAMA, GW_F32, "layers.0.attn.norm.weight", nan, "rmsnorm of layer 0/attn");
    bad_case(GW_FAMILY_GPT2, GW_F32, "layers.0.attn.q.bias", -inf, "matmul of layer 0/attn/q");
    bad_case(GW_FAMILY_QWEN3, GW_F32, "head.weight", nan, "head_grad of head");
    bad_case(GW_FAMILY_LLAMA, GW_BF16, "layers.1.mlp.up.weight", inf,
             "cast of weights"); /* its first reader */
    /* Finite weights, a product past float32. */
    bad_case(GW_FAMILY_LLAMA, GW_F32, "layers.1.attn.o.weight", 3e38f, "matmul of layer 1/attn/o");
    bad_case(GW_FAMILY_LLAMA, GW_F32, "layers.0.attn.q.weight", 0, "");
}

TEST(the_checked_run_is_the_same_run) {
    program p;
    trainer_init(&p, GW_FAMILY_GPT2);
    gw_exec *x = trainer_exec(&p, (gw_exec_opts){0}), *y = trainer_exec(&p, (gw_exec_opts){0});
    trainer_weights(&p, x, 5);
    trainer_weights(&p, y, 5);
    trace t = trainer_step(&p, x, 0, 20); /* seed 1, as first_bad has */
    char found[200];
    first_bad(&p, y, found, sizeof found);
    CHECK_STR(found, "");
    float loss = 0;
    CHECK(gw_exec_read(y, "loss", &loss, sizeof loss));
    CHECK(memcmp(&loss, &t.loss, sizeof loss) == 0);
    gw_exec_free(x);
    gw_exec_free(y);
    program_release(&p);
}

TEST(names_find_values) {
    program p;
    trainer_init(&p, GW_FAMILY_LLAMA);
    gw_exec *x = trainer_exec(&p, (gw_exec_opts){0});
    float v = 2, back = 0;
    CHECK(!gw_exec_write(x, "no such value", &v, sizeof v));
    CHECK(!gw_exec_read(x, "no such value", &back, sizeof back));
    CHECK_EQ(gw_exec_find(x, "no such value"), GW_NONE);
    CHECK(gw_exec_write(x, "lr", &v, sizeof v));
    CHECK(gw_exec_read(x, "lr", &back, sizeof back) && back == 2);
    trainer_weights(&p, x, 1);
    (void)trainer_step(&p, x, 0, 1);
    int64_t last = -1;
    for (int64_t i = 0; i < gw_exec_graph(x)->ops.count; i++) {
        CHECK(gw_exec_op_ns(x, (gw_oid)i) >= 0 && gw_exec_op_start_ns(x, (gw_oid)i) >= last);
        last = gw_exec_op_start_ns(x, (gw_oid)i);
        CHECK(gw_exec_kernel(x, (gw_oid)i) != NULL);
    }
    gw_exec_free(x);
    program_release(&p);
}
