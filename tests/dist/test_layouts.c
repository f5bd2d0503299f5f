// SPDX-License-Identifier: Apache-2.0
// Every cut of a layer computes what one rank computes: tensor and sequence parallelism, every mode
// of context parallelism, experts dealt out, with and without sharding over what remains; sizes
// divide by nothing, sequences are padded. And what is wrong is named by the axis on which it is.
//
// By far most layouts are in an enumeration: data-parallel ranks and what is sharded over them x
// tensor-parallel ranks with and without sequence parallelism x context-parallel ranks in every
// mode x expert-parallel ranks x families x optimizers, up to eight ranks. `make test` runs a
// sample of it, `make test-long` all. What the layout checker must refuse is worked out here once
// more, from what the words mean, and must be what it does refuse.
#include <stdio.h>
#include <string.h>

#include "base/compiler.h" /* GW_COUNT */
#include "harness.h"
#include "verify_rig.h"

typedef struct layout {
    int ranks;
    const char *sets[5];
} layout;

static const layout layouts[] = {
    {2, {"layout.tp=2"}},
    {2, {"layout.tp=2", "layout.sequence_parallel=false"}},
    {4, {"layout.tp=2", "layout.zero=1"}},
    {4, {"layout.tp=2", "layout.zero=3", "train.accumulate=2"}},
    {3, {"layout.tp=3"}},
    {4, {"layout.tp=4"}}, /* of three heads: one rank has none */
    {2, {"layout.cp=2"}},
    {2, {"layout.cp=2", "layout.cp_mode=allgather"}},
    {3, {"layout.cp=3", "layout.cp_mode=ulysses"}},
    {6, {"layout.cp=6", "layout.cp_mode=hybrid", "layout.cp_ulysses=3"}},
    {4, {"layout.cp=2", "layout.zero=2", "train.accumulate=2"}},
    {4, {"layout.cp=2", "layout.tp=2", "layout.zero=3"}},
    {8, {"layout.cp=2", "layout.tp=2", "layout.zero=1"}},
    {8, {"layout.tp=2", "layout.zero=2", "layout.dp_replicate=2"}},
};

static const char *const families[] = {"gpt2", "llama", "qwen2", "qwen3", "mistral"};

static void run_layout(const layout *l, const char *family, bool bf16) {
    rig r = rig_make(family, l->ranks);
    for (int i = 0; i < 5 && l->sets[i]; i++) rig_set(&r, "%s", l->sets[i]);
    if (bf16) rig_set(&r, "precision.compute=bf16");
    rig_passes(&r);
    CHECK_EQ(r.out.ranks, l->ranks);
    rig_release(&r);
}

TEST_WITHIN(every_layout_agrees_with_one_rank, 240) {
    for (size_t i = 0; i < GW_COUNT(layouts); i++)
        run_layout(&layouts[i], families[i % GW_COUNT(families)], false);
}

/* Parameters cut otherwise than by default, by name: each cut but those that are refused is only
 * another place for the same numbers. */
typedef struct exception {
    const char *family;
    int ranks;
    const char *shard;
    const char *sets[3];
} exception;

static const exception exceptions[] = {
    /* Tied: the head makes the table's gradient whole, the lookup's is added to it. */
    {"gpt2", 2, "{embed.weight: d}", {0}},
    {"llama", 4, "{embed.weight: d}", {0}},
    {"llama", 2, "{embed.weight: d}", {"layout.sequence_parallel=false"}},
    {"gpt2", 4, "{embed.weight: d}", {"layout.zero=2", "train.accumulate=2"}},
    {"llama", 4, "{embed.weight: d}", {"layout.cp=2", "layout.zero=3"}},
    {"gpt2", 4, "{embed.weight: d}", {"layout.pp=2", "train.accumulate=2"}},
    /* The part of a gradient that stages of several ranks make is cut on each of them. */
    {"llama", 8, "{embed.weight: d}", {"layout.pp=2"}},
    {"gpt2", 8, "{embed.weight: d}", {"layout.pp=2", "layout.zero=2", "train.accumulate=2"}},
    {"llama", 2, "{embed.weight: none}", {0}},
    {"mixtral", 2, "{embed.weight: d, head.weight: d}", {0}},
    /* With a bias: what comes in is cut over heads where the weight is cut along d. */
    {"gpt2", 2, "{'*.o.weight': d, '*.down.weight': d}", {0}},
    {"gpt2", 2, "{'*weight': d}", {"layout.sequence_parallel=false"}},
    {"gpt2", 4, "{'*.o.*': d, '*.down.*': d}", {"layout.zero=3", "train.accumulate=2"}},
    /* Of three weights of an expert one whole: the op has all three cut, and the gradient comes
     * out so. */
    {"mixtral", 2, "{'*.gate.weight': none}", {0}},
    {"mixtral", 4, "{'*.up.weight': none, '*.down.weight': d}", {"layout.zero=2"}},
    {"deepseek", 2, "{'*.gate.weight': none}", {"train.accumulate=2"}},
    {"mixtral", 4, "{'*.gate.weight': none}", {"layout.ep=2", "layout.zero=2"}},
    {"qwen3_moe", 4, "{'*.moe.*weight': d}", {"layout.ep=2", "layout.sequence_parallel=false"}},
};

TEST_WITHIN(every_exception_by_name_agrees, 240) {
    for (size_t i = 0; i < GW_COUNT(exceptions); i++) {
        const exception *e = &exceptions[i];
        test_note("%s %s", e->family, e->shard);
        rig r = rig_make(e->family, e->ranks);
        bool wide = e->ranks == 4 && !e->sets[0];
        rig_set(&r, "layout.tp=%d", wide ? 4 : 2);
        rig_set(&r, "layout.shard=%s", e->shard);
        for (int k = 0; k < 3 && e->sets[k]; k++) rig_set(&r, "%s", e->sets[k]);
        rig_passes(&r);
        rig_release(&r);
    }
}

TEST_WITHIN(in_sixteen_bits_too, 240) {
    for (size_t i = 0; i < GW_COUNT(layouts); i += 3)
        run_layout(&layouts[i], families[(i + 2) % GW_COUNT(families)], true);
}

TEST_LONG(every_layout_of_every_family_agrees) {
    for (size_t i = 0; i < GW_COUNT(layouts); i++)
        for (size_t f = 0; f < GW_COUNT(families); f++)
            for (int bf16 = 0; bf16 < 2; bf16++) run_layout(&layouts[i], families[f], bf16 == 1);
}

/* Exceptions by name change who holds what, not what is computed. */
TEST_WITHIN(exceptions_by_name_agree, 120) {
    static const char *const shards[] = {"{'*.mlp.*': none}", "{'*norm.weight': d}",
                                         "{'*.mlp.down.weight': d, '*.attn.o.weight': none}",
                                         "{'*': none}"};
    for (size_t i = 0; i < GW_COUNT(shards); i++) {
        rig r = rig_make("llama", 2);
        rig_set(&r, "layout.tp=2");
        rig_set(&r, "layout.shard=%s", shards[i]);
        rig_passes(&r);
        rig_release(&r);
    }
}

TEST_WITHIN(the_run_s_own_optimizer_agrees, 120) {
    static const char *const cuts[] = {"layout.tp=2", "layout.cp=2"};
    for (size_t i = 0; i < GW_COUNT(cuts); i++) {
        rig r = rig_make("qwen3", 4);
        rig_set(&r, "%s", cuts[i]);
        rig_set(&r, "layout.zero=%d", (int)i + 1);
        r.opts.run_optimizer = true;
        rig_passes(&r);
        rig_release(&r);
    }
}

/* ---- faults ---- */

typedef struct fault {
    const char *set, *gradient, *says;
} fault;

static const fault faults[] = {
    {"layout.tp=2", "grad:layers.0.attn.norm.weight", "missing reduction over tp"},
    {"layout.cp=2", "grad:layers.1.mlp.up.weight", "missing reduction over cp"},
};

static void drop(gw_graph *g, int64_t rank, void *user) {
    const fault *f = user;
    (void)rank;
    rig_drop_reduction(g, f->gradient);
}

TEST_WITHIN(a_missing_reduction_is_named_by_its_axis, 120) {
    for (size_t i = 0; i < GW_COUNT(faults); i++) {
        fault f = faults[i];
        gw_verify_hooks hooks = {.mutate = drop, .user = &f};
        rig r = rig_make("llama", 2);
        rig_set(&r, "%s", f.set);
        rig_set(&r, "layout.bucket=0");
        rig_set(&r, "layout.first_bucket=0");
        r.opts.hooks = &hooks;
        rig_verify(&r);
        CHECK(!r.out.ok);
        const gw_verify_tensor *t = rig_wrong(&r, GW_VERIFY_GRADIENT, f.gradient + 5);
        CHECK(t != NULL);
        CHECK_MSG(strncmp(t->why, f.says, strlen(f.says)) == 0, "'%s'", t->why);
        CHECK(!rig_check(&r, "replicas")->ok);
        rig_release(&r);
    }
}

/* ---- every combination ---- */

static const char *const all_families[] = {"gpt2",    "llama",   "qwen2",     "qwen3",
                                           "mistral", "mixtral", "qwen3_moe", "deepseek"};
enum { FAMILIES = 8, RANKS = 8, RING = 0, ALLGATHER = 1, ULYSSES = 2, HYBRID = 3 };
enum { MODES = HYBRID + RANKS, COMBINATIONS = FAMILIES * 2 * 4 * 2 * MODES * 8 * 8 * 8 * 8 };

typedef struct combination {
    size_t family;
    bool adam, sequence;
    int zero, dp, cp, tp, ep;
    int mode;    /* from HYBRID on: a hybrid of mode - HYBRID + 1 ranks that exchange heads */
    int variety; /* of what else there is: accumulation, replicas, heads */
} combination;

static int digit(int *i, int base) {
    int d = *i % base;
    *i /= base;
    return d;
}

/* Combination number i; false where i is none, or says what another says too. */
static bool combination_of(int i, combination *c) {
    *c = (combination){.family = (size_t)digit(&i, FAMILIES)};
    c->zero = digit(&i, 4);
    c->adam = digit(&i, 2) == 1;
    c->sequence = digit(&i, 2) == 1;
    c->mode = digit(&i, MODES);
    c->dp = 1 + digit(&i, RANKS);
    c->cp = 1 + digit(&i, RANKS);
    c->tp = 1 + digit(&i, RANKS);
    c->ep = 1 + digit(&i, RANKS);
    c->variety = c->dp + c->cp + 2 * c->tp + c->zero + c->mode + (int)c->family;
    bool experts = rig_has_experts(all_families[c->family]);
    return c->dp * c->cp * c->tp <= RANKS && (c->tp > 1 || !c->sequence) &&
           (c->cp > 1 || c->mode == RING) && c->mode - HYBRID < c->cp && (experts || c->ep <= 2);
}

static int exchanging(const combination *c) {
    return c->mode < ULYSSES ? 1 : c->mode == ULYSSES ? c->cp : c->mode - HYBRID + 1;
}

static int replicas(const combination *c) {
    return c->zero > 0 && c->dp % 2 == 0 && c->variety % 3 == 0 ? 2 : 1;
}

/* Ranks among which no two have the same tokens. */
static int different(const combination *c) {
    return c->dp / replicas(c) * c->cp * (c->sequence ? c->tp : 1);
}

static rig rig_of(const combination *c) {
    static const char *const modes[] = {"ring", "allgather", "ulysses", "hybrid"};
    rig r = rig_make(all_families[c->family], c->dp * c->cp * c->tp);
    rig_set(&r, "layout.dp=%d", c->dp);
    rig_set(&r, "layout.zero=%d", c->zero);
    if (replicas(c) > 1) rig_set(&r, "layout.dp_replicate=%d", replicas(c));
    if (c->tp > 1) {
        rig_set(&r, "layout.tp=%d", c->tp);
        rig_set(&r, "layout.sequence_parallel=%s", c->sequence ? "true" : "false");
    }
    if (c->cp > 1) {
        rig_set(&r, "layout.cp=%d", c->cp);
        rig_set(&r, "layout.cp_mode=%s", modes[GW_MIN(c->mode, (int)HYBRID)]);
        if (c->mode >= HYBRID) rig_set(&r, "layout.cp_ulysses=%d", exchanging(c));
    }
    if (c->ep > 1) rig_set(&r, "layout.ep=%d", c->ep);
    return r;
}

/* Sizes that the layout divides where it must, and nothing else: heads that are exchanged evenly,
 * experts in equal parts. */
static void fit(rig *r, const combination *c) {
    static const struct { int heads, kv; } uneven[] = {{3, 1}, {4, 2}, {5, 5}};
    int parts = exchanging(c) * c->tp;
    bool even = exchanging(c) > 1;
    int heads = even ? (parts < 3 ? 2 * parts : parts) : uneven[c->variety % 3].heads;
    int kv = even ? (heads % 2 ? 1 : heads / 2) : uneven[c->variety % 3].kv;
    rig_set(r, "model.heads=%d", heads);
    rig_set(r, "model.hidden=%d", 10 * heads);
    if (c->family != 0 && c->family != 7) rig_set(r, "model.kv_heads=%d", kv);
    if (6 % c->ep != 0) rig_set(r, "model.moe.experts=%d", c->ep == 4 ? 8 : c->ep);
    if (c->family == 7 && c->ep % 2 && 6 % c->ep) rig_set(r, "model.moe.groups=1");
    rig_set(r, "train.accumulate=%d", 1 + c->variety % 2);
    r->opts.steps = 2;
    r->opts.run_optimizer = c->adam;
}

static bool fits(const combination *c) {
    bool experts = rig_has_experts(all_families[c->family]);
    return c->cp % exchanging(c) == 0 && different(c) % c->ep == 0 && (experts || c->ep == 1);
}

typedef struct tally {
    int admitted, refused, passed;
    unsigned families, modes, zeros, tps, cps, eps; /* bits: which were among them */
} tally;

static void run_combination(const combination *c, tally *t) {
    if (!fits(c)) return;
    rig r = rig_of(c);
    fit(&r, c);
    t->admitted++;
    t->families |= 1u << c->family;
    t->modes |= 1u << GW_MIN(c->mode, (int)HYBRID);
    t->zeros |= 1u << c->zero;
    t->tps |= 1u << c->tp;
    t->cps |= 1u << c->cp;
    t->eps |= 1u << c->ep;
    t->passed += rig_agrees(&r);
    rig_release(&r);
}

/* Of the combinations that a layout checker admits, in their order, every `parts`-th from `part`
 * on.
 */
static tally run_combinations(int part, int parts) {
    tally t = {0};
    int n = 0;
    for (int i = 0; i < COMBINATIONS; i++) {
        combination c;
        if (!combination_of(i, &c) || !fits(&c) || n++ % parts != part) continue;
        run_combination(&c, &t);
    }
    test_note("part %d of %d: %d of %d layouts that are admitted run, %d pass, %d fail", part,
              parts, t.admitted, n, t.passed, t.admitted - t.passed);
    CHECK(n > 10000);
    CHECK_EQ(t.passed, t.admitted);
    return t;
}

TEST_WITHIN(a_sample_of_all_combinations_agrees, 240) {
    tally t = run_combinations(0, 131);
    CHECK(t.admitted >= 100);
    CHECK_EQ(t.families, 0xff);
    CHECK_EQ(t.modes, 0xf);
    CHECK_EQ(t.zeros, 0xf);
    for (int n = 2; n <= 8; n *= 2) CHECK(t.tps >> n & t.cps >> n & t.eps >> n & 1);
}

/* AdamW made of a gradient that was noise in step 1, and none in step 2, an update whose trace is
 * in the weight after both. */
TEST(what_adamw_made_of_noise_stays_out_of_later_steps) {
    rig r = rig_make("qwen2", 8);
    rig_set(&r, "layout.tp=4");
    rig_set(&r, "layout.sequence_parallel=false");
    rig_set(&r, "layout.cp=2");
    rig_set(&r, "model.heads=4");
    rig_set(&r, "model.hidden=40");
    rig_set(&r, "model.kv_heads=2");
    r.opts.run_optimizer = true;
    rig_passes(&r);
    rig_release(&r);
}

/* All of them, in sixteen parts that can run apart, each with something of everything. */
#define EVERY_COMBINATION(part)                                                                    \
    TEST_DEFINE_(every_combination_agrees_##part, 3600, true) { run_combinations((part), 16); }
EVERY_COMBINATION(0)
EVERY_COMBINATION(1)
EVERY_COMBINATION(2)
EVERY_COMBINATION(3)
EVERY_COMBINATION(4)
EVERY_COMBINATION(5)
EVERY_COMBINATION(6)
EVERY_COMBINATION(7)
EVERY_COMBINATION(8)
EVERY_COMBINATION(9)
EVERY_COMBINATION(10)
EVERY_COMBINATION(11)
EVERY_COMBINATION(12)
EVERY_COMBINATION(13)
EVERY_COMBINATION(14)
EVERY_COMBINATION(15)

/* ---- what is refused ---- */

/* What the checker must say of a combination with the rig's own sizes: three heads, six experts,
 * and, of gpt2, a position for each of 14 tokens. */
static int problems_of(const combination *c, const char *say[8]) {
    int n = 0, parts = (c->cp > 1 ? 2 * c->cp : 1) * (c->sequence ? c->tp : 1);
    bool experts = rig_has_experts(all_families[c->family]);
    if (c->cp % exchanging(c) != 0) say[n++] = "does not divide layout.cp";
    if (exchanging(c) > 1 && 3 % (exchanging(c) * c->tp) != 0)
        say[n++] = "3 heads cannot be exchanged evenly";
    if (experts && different(c) % c->ep != 0) say[n++] = "dp / dp_replicate x cp";
    if (c->ep > 1 && !experts) say[n++] = "has no experts";
    if (experts && 6 % c->ep != 0) say[n++] = "does not divide the model's 6 experts";
    if (c->family == 0 && (7 + parts - 1) / parts * parts > 14) say[n++] = "is padded by";
    return n;
}

static bool says(const gw_diags *dg, const char *text) {
    for (const gw_diag *d = dg->first; d; d = d->next)
        if (d->severity == GW_ERROR && strstr(d->message, text)) return true;
    return false;
}

/* Is all of `say` in the message and nothing else, each with a fix? */
static bool is_complete(const gw_diags *dg, const char *const *say, int n) {
    for (int i = 0; i < n; i++)
        if (!says(dg, say[i])) return false;
    for (const gw_diag *d = dg->first; d; d = d->next)
        if (d->severity == GW_ERROR && (!d->hint || !d->hint[0])) return false;
    return dg->nerrors == n;
}

static void check_refusal(const combination *c, tally *t) {
    const char *say[8];
    int n = problems_of(c, say);
    rig r = rig_of(c);
    if (c->family == 0) rig_set(&r, "model.max_positions=14");
    gw_runfile rf;
    gw_diags dg;
    gw_diags_init(&dg);
    gw_status st = rig_parse(&r, &rf, &dg);
    if (!is_complete(&dg, say, n) || st != (n > 0 ? GW_ERR_CONFIG : GW_OK)) {
        for (int i = 0; i < r.nsets; i++) test_note("  --set %s", r.sets[i]);
        for (int i = 0; i < n; i++) test_note("  must say: %s", say[i]);
        gw_diags_print(&dg, stdout, false);
        test_fail(__FILE__, __LINE__, "%s: the message is not that", r.family);
    }
    if (n > 0)
        t->refused++;
    else
        t->admitted++;
    gw_runfile_release(&rf);
    gw_diags_release(&dg);
    rig_release(&r);
}

static void check_refusals(int step) {
    tally t = {0};
    int n = 0;
    for (int i = 0; i < COMBINATIONS; i++) {
        combination c;
        if (combination_of(i, &c) && !c.adam && n++ % step == 0) check_refusal(&c, &t);
    }
    test_note("%d layouts, %d looked at: %d admitted, %d refused", n, t.admitted + t.refused,
              t.admitted, t.refused);
    CHECK(t.admitted > 100 && t.refused > 400);
}

/* All of a layout's problems in one message, each with a fix; and nothing else is refused. */
TEST_WITHIN(what_cannot_be_is_refused_with_every_reason_and_a_fix, 240) { check_refusals(31); }
TEST_LONG(all_that_cannot_be_is_refused_with_every_reason_and_a_fix) { check_refusals(1); }

/* ---- and what is written instead ---- */

/* A degree that does not divide what it must. */
typedef struct advice {
    const char *family;
    int dp; /* 0: not known */
    const char *sets[4];
    int problems;
    const char *hint; /* part of each of them */
} advice;

/* The rig's models have six experts, deepseek's in the second of two layers. Divisors of six: 1, 2,
 * 3, 6. */
static const advice advices[] = {
    {"mixtral", 6, {"layout.ep=4"}, 2, "layout.ep: 3 or 6, divisors of the 6 ranks and of the 6"},
    {"mixtral", 4, {"layout.ep=4"}, 1, "layout.ep: 2, a divisor of the 4 ranks and of the 6"},
    {"mixtral", 4, {"layout.ep=3"}, 1, "layout.ep: 2, a divisor of the 4 ranks and of the 6"},
    {"mixtral", 5, {"layout.ep=5"}, 1, "a divisor in common with the 6 experts; these 5 have none"},
    {"mixtral",
     8,
     {"layout.ep=6", "layout.zero=1", "layout.dp_replicate=2"},
     1,
     "layout.ep: 2, a divisor of the 4 ranks"},
    {"mixtral", 0, {"layout.ep=12"}, 1, "layout.ep: 6, a divisor of the 6 experts"},
    {"qwen3_moe",
     1,
     {"layout.tp=2", "layout.sequence_parallel=false", "layout.ep=2"},
     1,
     "layout.sequence_parallel: true"},
    {"mixtral", 1, {"layout.ep=2"}, 1, "give layout.dp or layout.cp ranks"},
    {"deepseek", 4, {"layout.ep=4", "model.moe.dense_layers=2"}, 1, "model.moe.dense_layers: 1"},
    {"llama", 2, {"layout.ep=3"}, 1, "remove it"},
    {"llama",
     6,
     {"layout.cp=6", "layout.cp_mode=hybrid", "layout.cp_ulysses=4"},
     2,
     "layout.cp_ulysses: 3"}, /* of three heads */
    {"llama", 6, {"layout.zero=1", "layout.dp_replicate=4"}, 1, "layout.dp_replicate: 3 or 6"},
    {"resnet18", 2, {"layout.ep=2"}, 1, "layout.ep: 1, and let layout.dp have the ranks"},
};

TEST(a_wrong_degree_is_answered_with_values_that_are_right) {
    for (size_t i = 0; i < GW_COUNT(advices); i++) {
        const advice *a = &advices[i];
        rig r = rig_make(a->family, 1);
        for (int k = 0; k < 4 && a->sets[k]; k++) rig_set(&r, "%s", a->sets[k]);
        if (a->dp) rig_set(&r, "layout.dp=%d", a->dp);
        gw_runfile rf;
        gw_diags dg;
        gw_diags_init(&dg);
        gw_status st = rig_parse(&r, &rf, &dg);
        bool right = st == GW_ERR_CONFIG && dg.nerrors == a->problems;
        for (const gw_diag *d = dg.first; d; d = d->next)
            right = right && d->hint && strstr(d->hint, a->hint);
        if (!right) gw_diags_print(&dg, stdout, false);
        CHECK_MSG(right, "%s, %s: the answer is not '%s'", a->family, a->sets[0], a->hint);
        gw_runfile_release(&rf);
        gw_diags_release(&dg);
        rig_release(&r);
    }
}
