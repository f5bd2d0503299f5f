// SPDX-License-Identifier: Apache-2.0
// Expert choices in verify: those of the reference are replayed, so that a near-tie that falls the
// other way is no difference; and what is no near-tie is still found, even where the replay hides
// it from every tensor.
#include <stdio.h>
#include <string.h>

#include "harness.h"
#include "ir/opdef.h" /* gw_op_is */
#include "verify_rig.h"

static const gw_verify_check *choices(const rig *r, int pass) {
    const gw_verify_check *c = NULL;
    for (int i = 0, seen = 0; i < r->out.nchecks && seen <= pass; i++)
        if (strncmp(r->out.checks[i].name, "expert choices", 14) == 0 && seen++ == pass)
            c = &r->out.checks[i];
    if (!c) test_fail(__FILE__, __LINE__, "nothing is said of expert choices");
    return c;
}

/* Samples x tokens x choices of a token x layers x steps, whatever rank has them. */
TEST(every_choice_is_looked_at_once) {
    static const struct {
        const char *family, *cut;
        long long choices;
    } all[] = {{"mixtral", "layout.tp=2", 1LL * 7 * 2 * 2 * 3 * 3},
               {"qwen3_moe", "layout.cp=2", 1LL * 7 * 3 * 2 * 3 * 3},
               {"deepseek", "layout.ep=2", 2LL * 7 * 2 * 1 * 3 * 3}};
    for (size_t i = 0; i < GW_COUNT(all); i++) {
        rig r = rig_make(all[i].family, 2);
        char of[48];
        rig_set(&r, "%s", all[i].cut);
        rig_set(&r, "train.accumulate=3");
        rig_set(&r, "precision.compute=bf16");
        rig_passes(&r);
        snprintf(of, sizeof of, "of %lld would differ", all[i].choices);
        for (int pass = 0; pass < 2; pass++) {
            const gw_verify_check *c = choices(&r, pass);
            CHECK_MSG(c->ok && strstr(c->text, of), "%s: '%s', not '%s'", all[i].family, c->text,
                      of);
        }
        rig_release(&r);
    }
}

/* As long sequences have, near-ties are among so many tokens. Drops by score are near-ties too. */
TEST(near_ties_are_no_difference) {
    for (int by_score = 0; by_score < 2; by_score++) {
        rig r = rig_make("mixtral", 2);
        if (by_score) {
            rig_set(&r, "model.moe.capacity=1");
            rig_set(&r, "model.moe.drop=score");
        }
        rig_set(&r, "layout.tp=2");
        rig_set(&r, "model.max_positions=96");
        rig_set(&r, "train.seq_len=96");
        rig_set(&r, "precision.compute=bf16");
        rig_set(&r, "train.accumulate=4");
        rig_passes(&r);
        CHECK_MSG(strstr(choices(&r, 1)->text, "all near-ties"), "%s", choices(&r, 1)->text);
        rig_release(&r);
    }
}

/* ---- faults ---- */

/* On rank 1 the first layer's router is the second's. */
static void take_another_router(gw_graph *g, int64_t rank, void *user) {
    (void)user;
    gw_vid weight[2];
    for (int l = 0; l < 2; l++) {
        char name[48];
        snprintf(name, sizeof name, "layers.%d.moe.router.weight", l);
        weight[l] = gw_graph_find(g, GW_ROLE_PARAM, name);
        CHECK(weight[l] != GW_NONE);
    }
    for (int64_t i = 0; rank == 1 && i < g->ops.count; i++) {
        const gw_op *o = &g->ops.items[i];
        for (int k = 0; k < (int)o->nin; k++)
            if (gw_op_is(g, o, "matmul") && gw_op_in(g, o, k) == weight[0] &&
                o->phase == GW_PHASE_F)
                g->edges.items[o->in + (uint32_t)k] = weight[1];
    }
}

TEST(a_wrong_router_on_one_rank_is_found) {
    static const char *const cuts[] = {"layout.tp=2", "layout.cp=2", "layout.ep=2"};
    for (size_t i = 0; i < GW_COUNT(cuts); i++) {
        gw_verify_hooks h = {.mutate = take_another_router};
        rig r = rig_make("mixtral", 2);
        rig_set(&r, "%s", cuts[i]);
        r.opts.hooks = &h;
        rig_verify(&r);
        const gw_verify_check *c = choices(&r, 0);
        CHECK(!r.out.ok && !r.out.pass[0].ok);
        CHECK_MSG(!c->ok && strstr(c->text, "not by a near-tie: layer 0, sample ") &&
                      strstr(c->text, " in step 1 by "),
                  "%s", c->text);
        rig_release(&r);
    }
}

/* Experts of both groups are open to a choice. */
static void open_groups(gw_graph *g, int64_t rank, void *user) {
    (void)rank;
    (void)user;
    for (int64_t i = 0; i < g->ops.count; i++) {
        const gw_op *o = &g->ops.items[i];
        const gw_opdef *def = gw_op_def(g, o);
        for (int k = 0; gw_op_is(g, o, "route") && k < def->nattrs; k++)
            if (strcmp(def->attrs[k].name, "group_limit") == 0)
                g->attrs.items[o->attr + (uint32_t)k].i = 2;
    }
}

/* With the choices given nothing that is computed tells it. */
TEST(a_wrong_rule_of_choice_is_found_by_the_choices) {
    gw_verify_hooks h = {.mutate = open_groups};
    rig r = rig_make("deepseek", 2);
    rig_set(&r, "layout.tp=2");
    r.opts.hooks = &h;
    rig_verify(&r);
    CHECK(!r.out.ok && r.out.pass[0].ok);
    CHECK_MSG(!choices(&r, 0)->ok, "%s", choices(&r, 0)->text);
    rig_release(&r);
}
