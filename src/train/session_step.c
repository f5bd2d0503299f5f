// SPDX-License-Identifier: Apache-2.0
// One step, and one validation.
//
// A step is a program run in three segments around its micro-batches; here its inputs are written
// and its results read. The loss is a sum over the valid labels of all micro-batches, and its
// divisor is data: the loader has counted the labels of the whole step ahead, so the division
// stands in the seed of backward, together with the loss scale. A step without any valid label has
// a seed of zero: its gradient is zero and only decay and momentum move the weights.
//
// Two counters: `batch` keys data and dropout and advances with each batch used, `step` keys
// schedule and bias correction and advances with each update. A step whose norm is not finite is no
// update: the program left state untouched. In float16 that is the price of a high loss scale;
// elsewhere, or when the scale cannot fall further, it is an error, and the step is run again from
// the same state and the same batch with a look at every op, so that the message names where it
// began.
#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "base/clock.h"    /* gw_clock_ns */
#include "base/log.h"      /* gw_log_info */
#include "base/str.h"      /* gw_str */
#include "ir/text.h"       /* gw_op_print */
#include "train/session.h" /* this module's contract */

/* ---- inputs ---- */

typedef struct step_inputs {
    float lr, muon_lr, inv_scale, seed;
    int64_t step, batch;
} step_inputs;

static step_inputs inputs_of(const gw_session *s, const gw_step_batch *b) {
    double f = gw_schedule_factor(&s->schedule, s->step);
    double seed = b->step_labels > 0 ? s->scaler.scale / (double)b->step_labels : 0;
    return (step_inputs){.lr = (float)(s->rf->optimizer.lr * f),
                         .muon_lr = (float)(s->rf->optimizer.muon_lr * f),
                         .inv_scale = (float)(1 / s->scaler.scale),
                         .seed = (float)seed,
                         .step = s->step + 1,
                         .batch = s->batch};
}

/* A program has only the inputs it uses: an absent one takes nothing. */
static void write_step_inputs(gw_exec *x, const step_inputs *in) {
    (void)gw_exec_write(x, "lr", &in->lr, sizeof in->lr);
    (void)gw_exec_write(x, "muon_lr", &in->muon_lr, sizeof in->muon_lr);
    (void)gw_exec_write(x, "step", &in->step, sizeof in->step);
    (void)gw_exec_write(x, "inv_scale", &in->inv_scale, sizeof in->inv_scale);
    (void)gw_exec_write(x, "seed", &in->seed, sizeof in->seed);
    (void)gw_exec_write(x, "batch", &in->batch, sizeof in->batch);
}

static void write_micro_batch(const gw_session *s, gw_exec *x, const gw_micro_batch *m) {
    int64_t b = s->rf->train.micro_batch;
    int64_t bytes = b * s->rf->train.seq_len * (int64_t)sizeof(int32_t);
    (void)gw_exec_write(x, "tokens", m->tokens, bytes);
    (void)gw_exec_write(x, "labels", m->labels, bytes);
    (void)gw_exec_write(x, "positions", m->positions, bytes);
    (void)gw_exec_write(x, "docs", m->docs, bytes);
    (void)gw_exec_write(x, "samples", m->sample_ids, b * (int64_t)sizeof(int64_t));
}

static float read_scalar(const gw_exec *x, const char *name, float absent) {
    float v = absent;
    (void)gw_exec_read(x, name, &v, sizeof v);
    return v;
}

/* ---- where a number that is not finite began ---- */

static gw_status first_bad_op(gw_session *s, const gw_step_batch *b, gw_oid *bad, int64_t *micro,
                              gw_diags *dg) {
    step_inputs in = inputs_of(s, b);
    *micro = -1;
    write_step_inputs(s->x, &in);
    GW_TRY(gw_exec_run_checked(s->x, GW_SEG_PRE, bad, dg));
    for (int64_t k = 0; *bad == GW_NONE && k < b->count; k++) {
        write_micro_batch(s, s->x, &b->micro[k]);
        GW_TRY(gw_exec_run_checked(s->x, GW_SEG_LOOP, bad, dg));
        if (*bad != GW_NONE) *micro = k;
    }
    if (*bad == GW_NONE) GW_TRY(gw_exec_run_checked(s->x, GW_SEG_POST, bad, dg));
    return GW_OK;
}

/* What to do, and what is left of the run. */
static void hint_numeric(const gw_session *s, gw_diags *dg, gw_diag *d) {
    char left[64] = "no checkpoint was saved yet";
    if (s->saved >= 0)
        snprintf(left, sizeof left, "the checkpoint of step %" PRId64 " is intact", s->saved);
    if (s->scaler.active && s->scaler.dynamic)
        gw_diag_hint(dg, d,
                     "the loss scale is %g and cannot fall further; lower optimizer.lr, or "
                     "use precision.compute bf16; %s",
                     s->scaler.scale, left);
    else if (s->scaler.active)
        gw_diag_hint(dg, d,
                     "precision.loss_scale is fixed at %g, and %" PRId64
                     " steps in a row overflowed; lower it, or set it to dynamic; %s",
                     s->scaler.scale, s->scaler.bad_steps, left);
    else
        gw_diag_hint(dg, d, "lower optimizer.lr, %s, or lengthen optimizer.warmup_steps; %s",
                     s->rf->optimizer.clip_norm > 0 ? "lower optimizer.clip_norm"
                                                    : "set optimizer.clip_norm (it is off)",
                     left);
}

static gw_status fail_numeric(gw_session *s, const gw_step_batch *b,
                              const gw_session_step_result *r, gw_diags *dg) {
    gw_oid bad = GW_NONE;
    int64_t micro = -1;
    double norm = isnan(r->norm) ? (double)NAN : r->norm; /* "nan", whatever its sign */
    double loss = isnan(r->loss) ? (double)NAN : r->loss;
    GW_TRY(first_bad_op(s, b, &bad, &micro, dg));
    gw_diag *d = gw_diag_add(dg, GW_ERROR, GW_ERR_NUMERIC, "numeric", (gw_where){0},
                             "step %" PRId64 " is not finite: loss %g, gradient norm %g",
                             s->step + 1, loss, norm);
    if (bad == GW_NONE) {
        gw_diag_detail(dg, d, "run again with a check after each op, every value was finite");
    } else {
        const gw_graph *g = gw_exec_graph(s->x);
        gw_str line = {0};
        gw_op_print(g, bad, &line);
        const char *scope = gw_graph_str(g, g->ops.items[bad].scope);
        const char *name = gw_op_def(g, &g->ops.items[bad])->name;
        if (micro >= 0)
            gw_diag_detail(dg, d,
                           "the first op that met or made such a number is %s in \"%s\", "
                           "micro-batch %" PRId64 " of %" PRId64 ":\n      %s",
                           name, scope, micro + 1, b->count, gw_str_c(&line));
        else
            gw_diag_detail(dg, d,
                           "the first op that met or made such a number is %s in \"%s\":\n      %s",
                           name, scope, gw_str_c(&line));
        gw_str_release(&line);
    }
    hint_numeric(s, dg, d);
    return GW_ERR_NUMERIC;
}

/* ---- the step ---- */

static gw_status run_program(gw_session *s, const gw_step_batch *b, const step_inputs *in,
                             gw_diags *dg) {
    write_step_inputs(s->x, in);
    GW_TRY(gw_exec_run(s->x, GW_SEG_PRE, dg));
    gw_optimes_take(s->times, GW_SEG_PRE, 0);
    for (int64_t k = 0; k < b->count; k++) {
        write_micro_batch(s, s->x, &b->micro[k]);
        GW_TRY(gw_exec_run(s->x, GW_SEG_LOOP, dg));
        gw_optimes_take(s->times, GW_SEG_LOOP, k);
    }
    GW_TRY(gw_exec_run(s->x, GW_SEG_POST, dg));
    gw_optimes_take(s->times, GW_SEG_POST, 0);
    return GW_OK;
}

static void advance(gw_session *s, const gw_step_batch *b, bool updated) {
    s->batch++;
    s->next_sample = b->next_sample;
    if (!updated) return;
    s->step++;
    s->tokens += b->step_tokens;
}

gw_status gw_session_step(gw_session *s, gw_session_step_result *r, gw_diags *dg) {
    const gw_step_batch *b = NULL;
    int64_t begun = gw_clock_ns();
    GW_TRY(gw_loader_next(s->loader, &b, dg));
    int64_t have_data = gw_clock_ns();
    step_inputs in = inputs_of(s, b);
    GW_TRY(run_program(s, b, &in, dg));
    double sum = (double)read_scalar(s->x, "loss", 0);
    *r = (gw_session_step_result){
        .loss = b->step_labels > 0 ? sum / (double)b->step_labels : (double)NAN,
        .lr = (double)in.lr,
        .norm = (double)read_scalar(s->x, "norm", 0),
        .loss_scale = s->scaler.scale,
        .labels = b->step_labels,
        .tokens = b->step_tokens,
        .data_wait_s = (double)(have_data - begun) * 1e-9,
    };
    bool ok = read_scalar(s->x, "ok", 1) != 0 && isfinite(r->norm);
    if (b->step_labels == 0)
        gw_log_info("step %" PRId64 ": no label of its batch is valid; its gradient is zero",
                    s->step + 1);
    bool goes_on = gw_scaler_update(&s->scaler, ok);
    if (!goes_on || (ok && !isfinite(sum))) return fail_numeric(s, b, r, dg);
    r->skipped = !ok;
    if (r->skipped)
        gw_log_info("batch %" PRId64 ": the gradient overflowed at loss scale %g; skipped, the "
                    "scale is now %g",
                    s->batch, r->loss_scale, s->scaler.scale);
    advance(s, b, ok);
    r->step_s = (double)(gw_clock_ns() - begun) * 1e-9;
    return GW_OK;
}

/* ---- validation ---- */

/* A row past the end of the set: padding that nothing counts. */
static void blank_row(const gw_session_valid *v, int64_t row, int64_t s) {
    for (int64_t i = row * s; i < (row + 1) * s; i++) {
        v->tokens[i] = 0;
        v->labels[i] = GW_LABEL_MASKED;
        v->positions[i] = (int32_t)(i - row * s);
        v->docs[i] = 0;
    }
    v->ids[row] = 0;
}

static gw_status fill_batch(const gw_session *s, int64_t batch, gw_diags *dg) {
    const gw_session_valid *v = &s->valid;
    int64_t b = s->rf->train.micro_batch, n = s->rf->train.seq_len;
    for (int64_t row = 0; row < b; row++) {
        int64_t number = batch * b + row;
        if (number >= v->samples) {
            blank_row(v, row, n);
            continue;
        }
        gw_sample one = {.tokens = v->tokens + row * n,
                         .labels = v->labels + row * n,
                         .positions = v->positions + row * n,
                         .docs = v->docs + row * n};
        GW_TRY(gw_tokens_sample(v->data, number, &one, dg));
        v->ids[row] = one.id;
    }
    return GW_OK;
}

static void count_labels(const gw_session *s, gw_session_valid_result *r) {
    const gw_session_valid *v = &s->valid;
    int64_t n = s->rf->train.micro_batch * s->rf->train.seq_len;
    for (int64_t i = 0; i < n; i++) {
        if (v->labels[i] == GW_LABEL_MASKED) continue;
        r->labels++;
        if (v->token_bytes) r->bytes += v->token_bytes[v->labels[i]];
    }
}

gw_status gw_session_validate(gw_session *s, gw_session_valid_result *r, gw_diags *dg) {
    const gw_session_valid *v = &s->valid;
    int64_t begun = gw_clock_ns();
    double nats = 0;
    *r = (gw_session_valid_result){.loss = (double)NAN, .bpb = (double)NAN};
    if (!v->x) return GW_OK;
    step_inputs in = {.seed = 1, .inv_scale = 1, .step = 1};
    write_step_inputs(v->x, &in);
    GW_TRY(gw_exec_run(v->x, GW_SEG_PRE, dg));
    for (int64_t k = 0; k < v->batches; k++) {
        GW_TRY(fill_batch(s, k, dg));
        gw_micro_batch m = {v->tokens, v->labels, v->positions, v->docs, v->ids, 0};
        write_micro_batch(s, v->x, &m);
        GW_TRY(gw_exec_run(v->x, GW_SEG_LOOP, dg));
        nats += (double)read_scalar(v->x, "loss", 0);
        count_labels(s, r);
    }
    if (r->labels > 0) r->loss = nats / (double)r->labels;
    if (r->bytes > 0) r->bpb = nats / 0.69314718055994530942 / (double)r->bytes;
    r->seconds = (double)(gw_clock_ns() - begun) * 1e-9;
    return GW_OK;
}
