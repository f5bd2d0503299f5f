// SPDX-License-Identifier: Apache-2.0
// One step, and one validation.
//
// A step is a program run in three segments around its micro-batches; here its inputs are written
// and its results read. The loss is a sum over the valid labels of all micro-batches, and its
// divisor is data: the loader has counted the labels of the whole step ahead, so the division
// stands in the seed of backward, together with the loss scale. Auxiliary losses of experts are
// means over sequences or micro-batches and have a seed of their own. A step without any valid
// label has a seed of zero: its gradient is zero and only decay and momentum move the weights.
//
// Two counters: `batch` keys data and dropout and advances with each batch used, `step` keys
// schedule and bias correction and advances with each update. A step whose norm is not finite is no
// update: the program left state untouched. In float16 that is the price of a high loss scale;
// elsewhere, or when the scale cannot fall further, it is an error, and the step is run again from
// the same state and the same batch with a look at every op, so that the message names where it
// began. Of several ranks the one where it began says so.
//
// Before a step the ranks exchange two numbers: has anyone failed to prepare its batch, and was
// anyone asked to stop. So all of them begin a step or none does, and a signal that reaches one
// ends the run at the same step everywhere. What a program leaves partial (the loss, where it is
// not reduced inside) is summed here, and so is what only some ranks of a pipeline have.
//
// A rank of a pipeline comes to micro-batches in an order of its own, so the program asks for each
// when it needs it.
#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "base/clock.h"    /* gw_clock_ns */
#include "base/log.h"      /* gw_log_info */
#include "base/str.h"      /* gw_str */
#include "comm/channel.h"  /* gw_channels_counted */
#include "comm/exchange.h" /* gw_comm_exchanged */
#include "ir/text.h"       /* gw_op_print */
#include "train/ranks.h"   /* gw_ranks_me */
#include "train/session.h" /* this module's contract */

/* ---- inputs ---- */

typedef struct step_inputs {
    float lr, muon_lr, inv_scale, seed, aux_seed;
    int64_t step, batch;
} step_inputs;

static step_inputs inputs_of(const gw_session *s, const gw_step_batch *b) {
    double f = gw_lr_factor(&s->lr, s->step);
    double seed = b->step_labels > 0 ? s->scaler.scale / (double)b->step_labels : 0;
    return (step_inputs){.lr = (float)(s->rf->optimizer.lr * f),
                         .muon_lr = (float)(s->rf->optimizer.muon_lr * f),
                         .inv_scale = (float)(1 / s->scaler.scale),
                         .seed = (float)seed,
                         .aux_seed = (float)(s->scaler.scale / gw_setup_aux_units(&s->setup)),
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
    (void)gw_exec_write(x, "aux_seed", &in->aux_seed, sizeof in->aux_seed);
    (void)gw_exec_write(x, "batch", &in->batch, sizeof in->batch);
}

/* gw_exec_loop.feed: micro-batch k of a step, whenever the program comes to it. */
typedef struct feeding {
    gw_session *s;
    const gw_step_batch *b;
} feeding;

static gw_status write_micro_batch(void *user, gw_exec *x, int64_t k, gw_diags *dg) {
    const feeding *f = user;
    if (gw_session_has_images(f->s)) return gw_session_write_images(f->s, x, f->b, k, dg);
    gw_slices_write(&f->s->slices, x, &f->b->micro[k]);
    return GW_OK;
}

static void take_times(void *user, gw_exec *x, int64_t k, gw_oid first, gw_oid end) {
    const feeding *f = user;
    (void)x;
    gw_optimes_ran(f->s->times, k, first, end);
}

static float read_scalar(const gw_exec *x, const char *name, float absent) {
    float v = absent;
    (void)gw_exec_read(x, name, &v, sizeof v);
    return v;
}

/* What a step has to tell, whole on every rank; of a pipeline, with what became of it. */
typedef struct results {
    double loss, norm, ok, busy_ns, window_ns;
} results;

static gw_status read_results(const gw_session *s, results *r, gw_diags *dg) {
    gw_optimes_span a = gw_optimes_latest(s->times);
    double own[3] = {(double)read_scalar(s->x, "loss", 0), (double)read_scalar(s->x, "norm", 0),
                     (double)read_scalar(s->x, "ok", 1)};
    const gw_ranks_entry *e[3] = {s->loss, s->norm, s->ok};
    double spans[2] = {(double)a.busy_ns, (double)a.window_ns};
    GW_TRY(
        gw_ranks_sum_results(s->comm, &s->table, e, s->table.stages > 1 ? 3 : 1, own, "loss", dg));
    if (s->comm && s->table.stages > 1) GW_TRY(gw_comm_sum_f64(s->comm, spans, 2, "bubble", dg));
    *r = (results){own[0], own[1], own[2], spans[0], spans[1]};
    return GW_OK;
}

/* ---- where a number that is not finite began ---- */

typedef struct bad_op {
    gw_oid op;     /* GW_NONE: none */
    int64_t micro; /* micro-batch; -1: before or after the loop */
    int64_t place; /* in the order of execution */
    int rank;      /* where it was met first */
} bad_op;

enum { COUNT_BITS = 17, STAGE_BITS = 13 };

/* Earlier is less: by micro-batch (`number`: 0 before them, from 1, or behind them), and within one
 * down the stages and back. What came from another stage is last, since that has an op to name. */
static int64_t place_of(const gw_graph *g, gw_oid op, int64_t number) {
    const gw_op *o = &g->ops.items[op];
    bool staged = g->actions.count > 0, back = staged && o->part > GW_PART_SEND_F;
    int64_t stage = !staged ? 0 : back ? (INT64_C(1) << STAGE_BITS) - 1 - o->stage : o->stage;
    int64_t place = GW_MIN(number, (INT64_C(1) << COUNT_BITS) - 1) << 1 | back;
    place = (place << STAGE_BITS | stage) << 31 | (int64_t)(op & INT32_MAX);
    return place | (int64_t)gw_op_is(g, o, "recv") << 62;
}

static void take_bad(const gw_session *s, gw_oid op, int64_t micro, int64_t number, bad_op *b) {
    if (op == GW_NONE || b->op != GW_NONE) return;
    *b = (bad_op){.op = op, .micro = micro, .place = place_of(gw_exec_graph(s->x), op, number)};
}

static gw_status check_segment(gw_session *s, gw_segment seg, int64_t number, bad_op *b,
                               gw_diags *dg) {
    gw_oid bad = GW_NONE;
    GW_TRY(gw_exec_run_checked(s->x, seg, &bad, dg));
    take_bad(s, bad, -1, number, b);
    return GW_OK;
}

static gw_status check_loop(gw_session *s, const gw_step_batch *batch, bad_op *b, gw_diags *dg) {
    feeding f = {.s = s, .b = batch};
    gw_exec_loop loop = {.feed = write_micro_batch, .user = &f};
    gw_oid bad = GW_NONE;
    int64_t micro = -1;
    GW_TRY(gw_exec_run_all_checked(s->x, batch->count, &loop, &bad, &micro, dg));
    take_bad(s, bad, micro, micro < 0 ? batch->count + 1 : micro + 1, b);
    return GW_OK;
}

/* The earliest of all ranks; of equals, the lowest rank. */
static gw_status earliest(const gw_session *s, bad_op *b, gw_diags *dg) {
    int64_t size = gw_ranks_count(s->comm), mine = b->op == GW_NONE ? INT64_MAX : b->place;
    b->rank = gw_ranks_me(s->comm);
    if (!s->comm) return GW_OK;
    int64_t *all = gw_mem_zalloc(sizeof *all * (size_t)size);
    gw_status st = gw_comm_all_gather(s->comm, &mine, sizeof mine, all, "where it began", dg);
    b->rank = 0;
    for (int64_t r = 1; r < size; r++)
        if (all[r] < all[b->rank]) b->rank = (int)r;
    gw_mem_free(all);
    /* Nobody leaves before all know who speaks. */
    if (st == GW_OK) (void)!gw_comm_barrier(s->comm, "where it began", NULL);
    return st;
}

static gw_status first_bad_op(gw_session *s, const gw_step_batch *b, bad_op *bad, gw_diags *dg) {
    step_inputs in = inputs_of(s, b);
    *bad = (bad_op){.op = GW_NONE, .micro = -1};
    write_step_inputs(s->x, &in);
    GW_TRY(check_segment(s, GW_SEG_PRE, 0, bad, dg));
    if (s->comm || bad->op == GW_NONE) GW_TRY(check_loop(s, b, bad, dg));
    if (s->comm || bad->op == GW_NONE) GW_TRY(check_segment(s, GW_SEG_POST, b->count + 1, bad, dg));
    return earliest(s, bad, dg);
}

/* Of float16: a scale that is too large, or one that cannot get smaller. */
static void describe_cause(const gw_session *s, char text[200]) {
    const gw_scaler *c = &s->scaler;
    if (!c->active || c->bad_steps == 0) return;
    if (c->dynamic)
        snprintf(text, 200,
                 "gradients overflow float16 even at the least loss scale, %g: ", c->scale);
    else
        snprintf(text, 200,
                 "%" PRId64 " batches in a row overflowed float16 at the fixed "
                 "precision.loss_scale %.10g: ",
                 c->bad_steps, c->scale);
}

/* What to do, and what is left of the run. */
static void hint_numeric(const gw_session *s, gw_diags *dg, gw_diag *d) {
    char left[64] = "no checkpoint was saved yet";
    if (s->saved >= 0)
        snprintf(left, sizeof left, "the checkpoint of step %" PRId64 " is intact", s->saved);
    if (s->scaler.active && s->scaler.dynamic)
        gw_diag_hint(dg, d, "lower optimizer.lr, or use precision.compute bf16; %s", left);
    else if (s->scaler.active)
        gw_diag_hint(dg, d, "lower precision.loss_scale, or set it to dynamic; %s", left);
    else
        gw_diag_hint(dg, d, "lower optimizer.lr, %s, or lengthen optimizer.warmup_steps; %s",
                     s->rf->optimizer.clip_norm > 0 ? "lower optimizer.clip_norm"
                                                    : "set optimizer.clip_norm (it is off)",
                     left);
}

static void describe_bad(const gw_session *s, const gw_step_batch *b, const bad_op *bad,
                         gw_diags *dg, gw_diag *d) {
    const gw_graph *g = gw_exec_graph(s->x);
    gw_str line = {0}, where = {0};
    gw_op_print(g, bad->op, &line);
    if (bad->micro >= 0)
        gw_str_printf(&where, ", micro-batch %" PRId64 " of %" PRId64, bad->micro + 1, b->count);
    if (g->actions.count > 0) gw_str_printf(&where, ", stage %d", (int)g->ops.items[bad->op].stage);
    if (s->comm) gw_str_printf(&where, ", on rank %d", bad->rank);
    gw_diag_detail(dg, d,
                   "the first op that met or made such a number is %s in \"%s\"%s:\n      %s",
                   gw_op_def(g, &g->ops.items[bad->op])->name,
                   gw_graph_str(g, g->ops.items[bad->op].scope), gw_str_c(&where), gw_str_c(&line));
    gw_str_release(&line);
    gw_str_release(&where);
}

static gw_status fail_numeric(gw_session *s, const gw_step_batch *b,
                              const gw_session_step_result *r, gw_diags *dg) {
    bad_op bad;
    double norm = isnan(r->norm) ? (double)NAN : r->norm; /* "nan", whatever its sign */
    double loss = isnan(r->loss) ? (double)NAN : r->loss;
    GW_TRY(first_bad_op(s, b, &bad, dg));
    if (bad.rank != gw_ranks_me(s->comm)) return GW_ERR_NUMERIC; /* that rank says it */
    char cause[200] = "";
    describe_cause(s, cause);
    gw_diag *d = gw_diag_add(dg, GW_ERROR, GW_ERR_NUMERIC, "numeric", (gw_where){0},
                             "%sstep %" PRId64 " is not finite: loss %g, gradient norm %g", cause,
                             s->step + 1, loss, norm);
    if (bad.op == GW_NONE)
        gw_diag_detail(dg, d, "run again with a check after each op, every value was finite");
    else
        describe_bad(s, b, &bad, dg, d);
    hint_numeric(s, dg, d);
    return GW_ERR_NUMERIC;
}

/* ---- the step ---- */

static gw_status run_program(gw_session *s, const gw_step_batch *b, const step_inputs *in,
                             gw_diags *dg) {
    feeding f = {.s = s, .b = b};
    gw_exec_loop loop = {.feed = write_micro_batch, .ran = take_times, .user = &f};
    write_step_inputs(s->x, in);
    GW_TRY(gw_exec_run(s->x, GW_SEG_PRE, dg));
    gw_optimes_take(s->times, GW_SEG_PRE);
    GW_TRY(gw_exec_run_all(s->x, b->count, &loop, dg));
    GW_TRY(gw_exec_run(s->x, GW_SEG_POST, dg));
    gw_optimes_take(s->times, GW_SEG_POST);
    gw_optimes_acted(s->times);
    return GW_OK;
}

/* ---- what the transport counts while a step runs ---- */

typedef struct counts {
    gw_comm_counts of[GW_COLL_KIND_COUNT];
    gw_comm_counts rows, on;
} counts;

static counts count(const gw_session *s) {
    counts c = {0};
    for (int k = 0; s->comm && k < GW_COLL_KIND_COUNT; k++)
        c.of[k] = gw_comm_counted(s->comm, (gw_coll_kind)k);
    if (s->comm) c.rows = gw_comm_exchanged(s->comm);
    if (s->comm) c.on = gw_channels_counted(s->comm);
    return c;
}

/* On a CPU the compute threads do a collective's arithmetic and nothing else meanwhile, so all of
 * its time is exposed. */
static void take_counts(gw_session *s, const counts *before, gw_session_step_result *r) {
    counts now = count(s);
    int64_t ns = 0, wait_ns = 0;
    for (int k = 0; k < GW_COLL_KIND_COUNT; k++) {
        s->sent[k].payload += now.of[k].payload - before->of[k].payload;
        s->sent[k].moved += now.of[k].moved - before->of[k].moved;
        ns += now.of[k].ns - before->of[k].ns;
        wait_ns += now.of[k].wait_ns - before->of[k].wait_ns;
    }
    s->sent_rows.payload += now.rows.payload - before->rows.payload;
    s->sent_rows.moved += now.rows.moved - before->rows.moved;
    s->sent_on.payload += now.on.payload - before->on.payload;
    s->sent_on.moved += now.on.moved - before->on.moved;
    s->comm_ns += ns;
    s->comm_wait_ns += wait_ns;
    s->steps_run++;
    r->comm_s = r->comm_exposed_s = (double)ns * 1e-9;
    r->comm_wait_s = (double)wait_ns * 1e-9;
}

static void advance(gw_session *s, const gw_step_batch *b, bool updated) {
    s->batch++;
    s->next_sample = b->next_sample;
    if (!updated) return;
    s->step++;
    s->tokens += b->step_tokens;
}

/* The batch, when every rank has its own and none was asked to stop (*b NULL then). */
static gw_status next_batch(gw_session *s, const gw_step_batch **b, gw_diags *dg) {
    int64_t stop = s->wants_stop;
    *b = NULL;
    if (stop && !s->comm) return GW_OK;
    gw_status st = GW_OK;
    if (gw_session_has_images(s))
        *b = gw_session_next_images(s);
    else
        st = gw_loader_next(s->loader, b, dg);
    GW_TRY(gw_exec_agree(s->comm, st, &stop, "beginning a step", dg));
    if (stop) *b = NULL;
    return GW_OK;
}

static gw_status finish_step(gw_session *s, const gw_step_batch *b, const results *x,
                             gw_session_step_result *r, gw_diags *dg) {
    bool ok = x->ok != 0 && isfinite(r->norm);
    if (b->step_labels == 0)
        gw_log_info("step %" PRId64 ": no label of its batch is valid; its gradient is zero",
                    s->step + 1);
    bool goes_on = gw_scaler_update(&s->scaler, ok);
    if (!goes_on || (ok && !isfinite(x->loss))) return fail_numeric(s, b, r, dg);
    r->skipped = !ok;
    if (r->skipped)
        gw_log_info("batch %" PRId64 ": the gradient overflowed at loss scale %g; skipped, the "
                    "scale is now %g",
                    s->batch, r->loss_scale, s->scaler.scale);
    advance(s, b, ok);
    return GW_OK;
}

gw_status gw_session_step(gw_session *s, gw_session_step_result *r, gw_diags *dg) {
    const gw_step_batch *b = NULL;
    results x = {0};
    int64_t begun = gw_clock_ns();
    GW_TRY(next_batch(s, &b, dg));
    *r = (gw_session_step_result){.stopped = b == NULL};
    if (r->stopped) return GW_OK;
    int64_t have_data = gw_clock_ns();
    gw_optimes_host(s->times, begun, have_data);
    step_inputs in = inputs_of(s, b);
    counts before = count(s);
    GW_TRY(run_program(s, b, &in, dg));
    take_counts(s, &before, r);
    GW_TRY(read_results(s, &x, dg));
    r->loss = b->step_labels > 0 ? x.loss / (double)b->step_labels : (double)NAN;
    r->lr = (double)in.lr;
    r->norm = x.norm;
    r->loss_scale = s->scaler.scale;
    r->labels = b->step_labels;
    r->tokens = b->step_tokens;
    r->data_wait_s = (double)(have_data - begun) * 1e-9;
    r->bubble = x.window_ns > 0 ? 1 - x.busy_ns / x.window_ns : (double)NAN;
    r->pp_wait_s = (double)gw_optimes_latest(s->times).wait_ns * 1e-9;
    GW_TRY(finish_step(s, b, &x, r, dg));
    r->step_s = (double)(gw_clock_ns() - begun) * 1e-9;
    return GW_OK;
}

/* ---- validation ---- */

/* A row past the end of the set: padding that nothing counts. */
static void blank_row(const gw_session_valid *v, int64_t row, int64_t s) {
    for (int64_t i = row * s; i < (row + 1) * s; i++) {
        v->tokens[i] = -1;
        v->labels[i] = GW_LABEL_MASKED;
        v->positions[i] = (int32_t)(i - row * s);
        v->docs[i] = 0;
    }
    v->ids[row] = 0;
}

/* This rank's rows of a batch: the same cut as in training. */
static gw_status fill_batch(const gw_session *s, int64_t batch, gw_diags *dg) {
    const gw_session_valid *v = &s->valid;
    int64_t b = s->rf->train.micro_batch, n = s->rf->train.seq_len;
    int64_t first = batch * s->rf->layout.dp * b + v->slices.first;
    for (int64_t row = 0; row < b; row++) {
        int64_t number = first + row;
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

/* Ranks that read the same rows count them once. */
static void count_labels(const gw_session *s, gw_session_valid_result *r) {
    const gw_session_valid *v = &s->valid;
    const gw_mesh *mesh = &gw_exec_graph(v->x)->mesh;
    uint32_t samples = gw_mesh_group(mesh, "dp") | gw_mesh_group(mesh, "dp_replicate");
    if (!gw_ranks_counts(mesh, samples, gw_exec_rank(v->x))) return;
    int64_t n = s->rf->train.micro_batch * s->rf->train.seq_len;
    for (int64_t i = 0; i < n; i++) {
        if (v->labels[i] == GW_LABEL_MASKED) continue;
        r->labels++;
        if (v->token_bytes) r->bytes += v->token_bytes[v->labels[i]];
    }
}

/* Counts are below 2^53: sums of doubles are exact. The loss of a batch may be reduced already. */
static gw_status sum_over_ranks(const gw_session *s, double *nats, gw_session_valid_result *r,
                                gw_diags *dg) {
    double sums[2] = {(double)r->labels, (double)r->bytes};
    if (!s->comm) return GW_OK;
    GW_TRY(gw_comm_sum_f64(s->comm, sums, 2, "validation", dg));
    r->labels = (int64_t)sums[0];
    r->bytes = (int64_t)sums[1];
    return gw_ranks_sum_results(s->comm, &s->valid.results, &s->valid.loss, 1, nats, "validation",
                                dg);
}

static gw_status write_valid(void *user, gw_exec *x, int64_t micro, gw_diags *dg) {
    const gw_session_valid *v = &((const gw_session *)user)->valid;
    gw_micro_batch m = {v->tokens, v->labels, v->positions, v->docs, v->ids, 0};
    (void)micro;
    (void)dg;
    gw_slices_write(&v->slices, x, &m);
    return GW_OK;
}

gw_status gw_session_validate(gw_session *s, gw_session_valid_result *r, gw_diags *dg) {
    const gw_session_valid *v = &s->valid;
    int64_t begun = gw_clock_ns();
    double nats = 0;
    *r =
        (gw_session_valid_result){.loss = (double)NAN, .bpb = (double)NAN, .accuracy = (double)NAN};
    if (!v->x) return GW_OK;
    if (gw_session_has_images(s)) return gw_session_judge_images(s, r, dg);
    step_inputs in = {.seed = 1, .inv_scale = 1, .step = 1};
    write_step_inputs(v->x, &in);
    GW_TRY(gw_exec_run(v->x, GW_SEG_PRE, dg));
    for (int64_t k = 0; k < v->batches; k++) {
        gw_exec_loop loop = {.feed = write_valid, .user = s};
        GW_TRY(fill_batch(s, k, dg));
        GW_TRY(gw_exec_run_all(v->x, 1, &loop, dg));
        nats += (double)read_scalar(v->x, "loss", 0);
        count_labels(s, r);
    }
    GW_TRY(sum_over_ranks(s, &nats, r, dg));
    if (r->labels > 0) r->loss = nats / (double)r->labels;
    if (r->bytes > 0) r->bpb = nats / 0.69314718055994530942 / (double)r->bytes;
    r->seconds = (double)(gw_clock_ns() - begun) * 1e-9;
    return GW_OK;
}
