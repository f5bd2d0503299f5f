// SPDX-License-Identifier: Apache-2.0
// The passes of `gradwright verify`.
//
// One pass: every rank compiles the layout as training would; rank 0 also makes the reference, the
// same global graph without a mesh, and steps it while the others wait. After each step the copies
// of everything that lies on several ranks are compared bit for bit, and each tensor with the
// reference. Of a model with experts all sides but the reference choose as that did
// (verify_replay.c), so the reference steps first.
//
//   first    float32 everywhere, wires that lose nothing: only the order of sums differs, and the
//            bound is tight. What is wrong in a layout shows here.
//   second   the run's own precision and wires, if they are others: against one rank in it. The
//            bound is what the precision does to the reference itself when its sums are taken in
//            another order, or its last bits moved, measured beside it, and what the wires may do.
//
// SGD unless the run's optimizer is asked for: it is linear in the gradient, so that a wrong
// constant shows in the updates too. A schedule is left out: warm-up would make the first updates
// too small to be seen beside the rounding of the weights.
#include "train/verify.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"          /* gw_log_info */
#include "base/str.h"          /* gw_str_eq */
#include "train/ranks.h"       /* gw_ranks_me */
#include "train/verify_impl.h" /* gw_verifier */

enum { REFERENCE_LIMIT_S = 3600 };

bool gw_verify_is_root(const gw_verifier *r) { return gw_ranks_me(r->comm) == 0; }

void gw_verify_add_check(gw_verifier *r, bool ok, const char *name, const char *fmt, ...) {
    gw_verify_result *o = r->out;
    if (o->nchecks == (int)GW_COUNT(o->checks)) return;
    gw_verify_check *c = &o->checks[o->nchecks++];
    c->ok = ok;
    snprintf(c->name, sizeof c->name, "%s", name);
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(c->text, sizeof c->text, fmt, ap);
    va_end(ap);
}

/* ---- the run as a pass wants it ---- */

static bool narrows(const gw_runfile *rf) {
    return rf->precision.compute != GW_RF_FP32 || rf->precision.products != GW_RF_PRODUCTS_COMPUTE;
}

static bool lossy(const gw_rf_layout *l) {
    bool several = l->dp * l->cp > 1; /* ranks that hold copies, or parts, of what is trained */
    bool weights = l->zero > 0 && several && l->weight_wire != GW_WIRE_SAME;
    bool gradients = several && l->gradient_wire != GW_WIRE_SAME;
    return weights || gradients;
}

static void use_sgd(gw_runfile *rf) { rf->optimizer.name = GW_RF_SGD; }

static void use_float32(gw_runfile *rf) {
    rf->precision.compute = GW_RF_FP32;
    rf->precision.gradients = rf->precision.master = rf->precision.moments = GW_RF_STORE_FLOAT32;
    rf->precision.stochastic_rounding = false;
    rf->precision.products = GW_RF_PRODUCTS_COMPUTE;
    rf->layout.weight_wire = rf->layout.gradient_wire = GW_WIRE_SAME;
}

static gw_status make_setup(gw_setup *s, gw_runfile *rf, gw_comm *comm, gw_diags *dg) {
    gw_status st = gw_setup_init(s, rf, false, dg);
    GW_TRY(gw_exec_agree(comm, st, NULL, "reading the run", dg));
    st = gw_setup_ranks(s, comm, dg);
    GW_TRY(gw_exec_agree(comm, st, NULL, "settling the layout", dg));
    s->train.keep_gradients = true;
    return GW_OK;
}

static void name_pass(gw_verifier *r, gw_verify_pass *p) {
    const gw_runfile *rf = r->rf;
    const gw_rf_layout *l = &rf->layout;
    gw_wire weights = l->zero > 0 ? l->weight_wire : GW_WIRE_SAME;
    int at =
        snprintf(p->precision, sizeof p->precision, "%s", gw_runfile_word(rf, "precision.compute"));
    if (r->own && weights != GW_WIRE_SAME)
        at += snprintf(p->precision + at, sizeof p->precision - (size_t)at, ", weights as %s",
                       gw_wire_name(weights));
    if (r->own && l->gradient_wire != GW_WIRE_SAME)
        snprintf(p->precision + at, sizeof p->precision - (size_t)at, ", gradients as %s",
                 gw_wire_name(l->gradient_wire));
    p->own = r->own;
}

/* ---- sides ---- */

/* A run of one rank. */
static void be_alone(gw_runfile *rf) {
    gw_rf_layout *l = &rf->layout;
    l->pp = l->virtual_stages = l->dp = l->dp_replicate = l->tp = l->cp = l->ep = 1;
    l->zero = 0;
}

/* One rank with the choices of the reference. */
static gw_status open_replaying(gw_verifier *r, gw_setup *s) {
    int64_t draw = r->nperturbed;
    gw_verify_side *v = &r->perturbed[r->nperturbed++];
    gw_verify_choices_ask(s, true);
    GW_TRY(gw_verify_side_reference(v, s, r->o, r->dg));
    v->draw = draw;
    v->choices = &r->choices;
    return GW_OK;
}

static gw_status open_split(gw_verifier *r) {
    r->split_rf = *r->rf;
    r->split_rf.train.accumulate *= r->rf->layout.dp;
    be_alone(&r->split_rf);
    GW_TRY(make_setup(&r->split, &r->split_rf, NULL, r->dg));
    return open_replaying(r, &r->split);
}

/* The reference with its sums in another order: rows reversed; and the ranks' shares one after
 * another, where that is the same function. A net for images has corners (relu, the largest of a
 * window) at which the last bit of a sum decides, and a router's gradient is what remains of larger
 * numbers that cancel: what that does is measured in float32 too. So are gradients that are what
 * remains of such numbers: those of q and k where a query sees few keys. */
static gw_status open_perturbed(gw_verifier *r) {
    bool images = gw_runfile_has_images(r->rf);
    bool experts = r->setup.model.moe.experts > 0;
    bool plain = !r->own && !r->o->run_optimizer && !images && !experts;
    gw_verify_side *v = &r->perturbed[r->nperturbed];
    GW_TRY(open_replaying(r, &r->setup));
    v->reversed = true;
    v->nudged = r->setup.train.compute != GW_F32 || images;
    v->shaken = !r->own && !images && (experts || !r->o->run_optimizer);
    bool by_micro_batch = experts && r->setup.model.moe.balance == GW_MOE_BALANCE_BATCH;
    /* Where micro-batches cannot be cut as the ranks cut them, the rows of an expert are still
     * other ones on each rank, and round otherwise in 16 bits. */
    bool uncut = by_micro_batch && r->own && r->rf->layout.dp > 1;
    if (r->rf->layout.tp * r->rf->layout.cp > 1 || uncut) {
        v = &r->perturbed[r->nperturbed];
        GW_TRY(open_replaying(r, &r->setup));
        v->shaken = true;
    }
    bool splits = r->rf->layout.dp > 1 && !images && !by_micro_batch && !plain;
    return splits ? open_split(r) : GW_OK;
}

static gw_status open_references(gw_verifier *r) {
    if (!gw_verify_is_root(r)) return GW_OK;
    gw_verify_choices_ask(&r->setup, false);
    GW_TRY(gw_verify_side_reference(&r->reference, &r->setup, r->o, r->dg));
    return open_perturbed(r);
}

static gw_status open_layout(gw_verifier *r) {
    gw_verify_choices_ask(&r->setup, true);
    gw_verify_choices_init(&r->choices, &r->setup, &r->mem);
    GW_TRY(gw_verify_side_layout(&r->layout, &r->setup, r->comm, r->o, r->dg));
    r->layout.choices = &r->choices;
    return GW_OK;
}

/* Rank 0 does something alone while the others wait for it. */
static gw_status alone(gw_verifier *r, gw_status (*what)(gw_verifier *), const char *name) {
    if (r->comm) gw_comm_busy(r->comm, name, REFERENCE_LIMIT_S);
    gw_status st = gw_verify_is_root(r) ? what(r) : GW_OK;
    st = gw_exec_agree(r->comm, st, NULL, name, r->dg);
    if (r->comm) gw_comm_busy(r->comm, NULL, 0);
    return st;
}

static void close_pass(gw_verifier *r) {
    for (int p = 0; p < GW_VERIFY_PERTURBED; p++) gw_verify_side_close(&r->perturbed[p]);
    gw_verify_side_close(&r->reference);
    gw_verify_side_close(&r->layout);
    gw_setup_release(&r->split);
    gw_setup_release(&r->setup);
    gw_arena_release(&r->mem);
}

/* ---- what depends on the batch ---- */

/* One step of one rank that sees the whole batch at once. */
static gw_status step_whole_batch(gw_verifier *r) {
    gw_runfile rf = *r->rf;
    gw_setup s = {0};
    gw_verify_side v = {0};
    be_alone(&rf);
    rf.train.accumulate = 1;
    rf.train.micro_batch = rf.train.global_batch;
    rf.model.batchnorm = GW_RF_BATCHNORM_SYNC;
    gw_status st = make_setup(&s, &rf, NULL, r->dg);
    if (st == GW_OK) st = gw_verify_side_reference(&v, &s, r->o, r->dg);
    if (st == GW_OK) st = gw_verify_side_step(&v, r->dg);
    if (st == GW_OK) {
        r->out->batch_loss[1] = v.loss_sum / (double)v.labels_seen;
        r->out->batch_norm[1] = v.norm;
    }
    gw_verify_side_close(&v);
    gw_setup_release(&s);
    return st;
}

/* By how much the layout's own statistics, or those of a micro-batch, change the first step. */
static gw_status measure_batch(gw_verifier *r) {
    bool local = r->rf->model.batchnorm == GW_RF_BATCHNORM_LOCAL && r->rf->layout.dp > 1;
    if (r->own || !gw_runfile_has_images(r->rf) || (!local && r->rf->train.accumulate == 1))
        return GW_OK;
    r->out->batch_loss[0] = r->layout.loss_sum / (double)r->layout.labels_seen;
    r->out->batch_norm[0] = r->layout.norm;
    return step_whole_batch(r);
}

/* ---- oracles ---- */

static gw_status ones(gw_verifier *r) {
    double norm = 0;
    int64_t params = 0;
    GW_TRY(gw_verify_ones(&r->setup, r->comm, 1, &norm, &params, r->dg));
    double want = sqrt((double)params);
    bool ok = fabs(norm - want) <= 1e-6 * want;
    gw_verify_add_check(r, ok, "all-ones gradients",
                        "norm %.7g; the square root of %lld parameters is %.7g", norm,
                        (long long)params, want);
    return GW_OK;
}

static void add_expected(gw_verifier *r, const char *scope, const char *why) {
    gw_verify_result *o = r->out;
    for (int i = 0; i < o->nexpected; i++)
        if (gw_str_eq(o->expected[i][0], scope)) return;
    if (o->nexpected == (int)GW_COUNT(o->expected)) return;
    o->expected[o->nexpected][0] = gw_arena_strdup(&o->mem, scope);
    o->expected[o->nexpected++][1] = gw_arena_strdup(&o->mem, why);
}

/* Groups of samples that have statistics of their own. */
static int64_t groups_of(const gw_graph *g, const gw_op *o) {
    int64_t most = 1;
    for (int k = 0; k < (int)o->nin + (int)o->nout; k++) {
        gw_vid v = k < (int)o->nin ? gw_op_in(g, o, k) : gw_op_out(g, o, k - (int)o->nin);
        int i = v == GW_NONE ? -1 : gw_type_find(gw_type_of(g, v), "group");
        if (i >= 0) most = GW_MAX(most, gw_type_of(g, v)->dims[i].size);
    }
    return most;
}

static void list_expected(gw_verifier *r) {
    const gw_graph *g = gw_exec_graph(r->layout.x);
    int64_t micro = r->rf->train.accumulate;
    for (int64_t i = 0; i < g->ops.count; i++) {
        const gw_op *o = &g->ops.items[i];
        if (!(gw_op_def(g, o)->traits & GW_OP_BATCH_DEPENDENT) || o->phase != GW_PHASE_F) continue;
        int64_t groups = groups_of(g, o);
        char why[160];
        if (groups > 1)
            snprintf(why, sizeof why,
                     "statistics of %lld groups of samples apart: one rank alone would take them "
                     "over all",
                     (long long)groups);
        else if (micro > 1)
            snprintf(why, sizeof why, "statistics of one of %lld micro-batches, not of the batch",
                     (long long)micro);
        else
            continue;
        add_expected(r, gw_graph_str(g, o->scope), why);
    }
}

static void add_checks(gw_verifier *r, const gw_verify_pass *p) {
    const char *in = p->precision;
    char name[96];
    snprintf(name, sizeof name, "initial weights, %s", in);
    gw_verify_add_check(r, r->weights_apart == 0, name, "%s",
                        r->weights_apart ? r->weights_text : "bit-equal to those of one rank");
    if (r->comm) {
        snprintf(name, sizeof name, "replicas, %s", in);
        gw_verify_add_check(r, r->replica_faults == 0, name, "%s",
                            r->replica_faults ? r->replica_text : "bit-equal after each step");
    }
    gw_verify_check_choices(r, in);
    if (r->finite) return;
    snprintf(name, sizeof name, "finite, %s", in);
    gw_verify_add_check(r, false, name, "a loss or a gradient norm is not finite");
}

/* ---- a pass ---- */

static void finish_pass(gw_verifier *r) {
    gw_verify_result *o = r->out;
    gw_verify_pass *p = &o->pass[o->npasses++];
    name_pass(r, p);
    p->ok = true;
    p->ntensors = r->nitems;
    p->tensors = gw_arena_dup(&o->mem, r->entries, r->nitems * (int64_t)sizeof *p->tensors);
    for (int64_t i = 0; i < p->ntensors; i++) {
        gw_verify_tensor *t = &p->tensors[i];
        t->name = gw_arena_strdup(&o->mem, t->name);
        p->max_difference = GW_MAX(p->max_difference, t->difference);
        p->coarse += t->coarse;
        p->ok = p->ok && t->agrees;
    }
    if (gw_verify_is_root(r)) gw_verify_locate(r, p->where);
    if (o->npasses == 1) list_expected(r);
    add_checks(r, p);
}

static gw_status run_steps(gw_verifier *r) {
    for (int64_t t = 0; t < r->o->steps; t++) {
        GW_TRY(alone(r, gw_verify_step_references, "a step of the reference"));
        GW_TRY(gw_verify_share_choices(r));
        gw_status st = gw_verify_side_step(&r->layout, r->dg);
        GW_TRY(gw_exec_agree(r->comm, st, NULL, "a step of the layout", r->dg));
        GW_TRY(gw_verify_judge_choices(r));
        if (t == 0) GW_TRY(alone(r, measure_batch, "a step over the whole batch"));
        GW_TRY(gw_verify_compare_replicas(r));
        GW_TRY(gw_verify_compare_step(r));
        if (t == 0) GW_TRY(gw_verify_explain_axes(r));
        if (t == 0) GW_TRY(gw_verify_explain_stages(r));
    }
    return GW_OK;
}

static gw_status pass(gw_verifier *r) {
    GW_TRY(make_setup(&r->setup, r->rf, r->comm, r->dg));
    if (!r->own) GW_TRY(ones(r));
    GW_TRY(open_layout(r));
    GW_TRY(alone(r, open_references, "opening the reference"));
    GW_TRY(gw_verify_list_items(r));
    GW_TRY(gw_verify_compare_start(r));
    GW_TRY(gw_verify_compare_replicas(r));
    if (r->own && r->rf->layout.gradient_wire != GW_WIRE_SAME)
        GW_TRY(alone(r, gw_verify_measure_spread, "measuring the ranks' contributions"));
    GW_TRY(run_steps(r));
    GW_TRY(alone(r, gw_verify_explain, "explaining what differs"));
    finish_pass(r);
    return GW_OK;
}

/* One pass on a run file changed for it, which is then put back. */
static gw_status run_pass(gw_runfile *rf, const gw_verify_opts *o, bool own, gw_comm *comm,
                          gw_verify_result *out, gw_diags *dg) {
    gw_verifier *r = gw_mem_zalloc(sizeof *r);
    gw_rf_optim optimizer = rf->optimizer;
    gw_rf_precision precision = rf->precision;
    gw_rf_layout layout = rf->layout;
    *r = (gw_verifier){
        .rf = rf, .o = o, .comm = comm, .out = out, .dg = dg, .own = own, .finite = true};
    if (!o->run_optimizer) use_sgd(rf);
    if (!own) use_float32(rf);
    gw_status st = pass(r);
    close_pass(r);
    gw_mem_free(r);
    rf->optimizer = optimizer;
    rf->precision = precision;
    rf->layout = layout;
    return st;
}

/* ---- the whole ---- */

static void describe(const gw_runfile *rf, const gw_verify_opts *o, gw_verify_result *out) {
    const gw_rf_layout *l = &rf->layout;
    out->steps = o->steps;
    out->ranks = gw_runfile_ranks(rf);
    out->made_up_data = !o->data && rf->data.train.count == 0;
    gw_str cuts = {0};
    gw_runfile_describe_cuts(rf, &cuts);
    out->layout = gw_arena_printf(
        &out->mem, "dp %lld, zero %lld, dp_replicate %lld%s, micro-batches %lld", (long long)l->dp,
        (long long)l->zero, (long long)(l->zero > 0 ? l->dp_replicate : 1), gw_str_c(&cuts),
        (long long)rf->train.accumulate);
    gw_str_release(&cuts);
    out->optimizer =
        o->run_optimizer
            ? gw_arena_printf(&out->mem, "%s, lr %g", gw_runfile_word(rf, "optimizer.name"),
                              rf->optimizer.lr)
            : gw_arena_printf(
                  &out->mem, "sgd, momentum %g, lr %g", rf->optimizer.momentum,
                  (double)(gw_runfile_has_images(rf) ? GW_VERIFY_IMAGE_LR : GW_VERIFY_LR));
}

/* Rank 0 has judged; all learn what. */
static gw_status settle(gw_verify_result *out, gw_comm *comm, gw_diags *dg) {
    int64_t bad = 0;
    for (int i = 0; i < out->npasses; i++) bad += !out->pass[i].ok;
    for (int i = 0; i < out->nchecks; i++) bad += !out->checks[i].ok;
    if (comm) GW_TRY(gw_comm_max_i64(comm, &bad, 1, "the verdict", dg));
    out->ok = bad == 0;
    return GW_OK;
}

gw_status gw_verify_run(gw_runfile *rf, const gw_verify_opts *o, gw_comm *comm,
                        gw_verify_result *out, gw_diags *dg) {
    memset(out, 0, sizeof *out);
    for (int i = 0; i < 2; i++) out->batch_loss[i] = out->batch_norm[i] = (double)NAN;
    describe(rf, o, out);
    if (out->made_up_data && gw_ranks_me(comm) == 0)
        gw_log_info("data.train is not given: verifying on made-up %s",
                    gw_runfile_has_images(rf) ? "images" : "tokens");
    if (gw_ranks_me(comm) == 0) gw_runfile_note_idle(rf);
    GW_TRY(run_pass(rf, o, false, comm, out, dg));
    if (narrows(rf) || lossy(&rf->layout)) GW_TRY(run_pass(rf, o, true, comm, out, dg));
    return settle(out, comm, dg);
}

void gw_verify_result_release(gw_verify_result *r) { gw_arena_release(&r->mem); }
