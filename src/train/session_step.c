// SPDX-License-Identifier: Apache-2.0
// One step.
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
//
// Ranks of a pipeline that step before they know the norm (optimizer.norm deferred) wait for nobody
// between steps. What each has to tell of a step (its part of the loss and of the norm, its times,
// whether it is to stop) goes to rank 0 in a letter, and the answer, the results and whether the
// step was right, is read where the next step is about to change the parameters. By then the last
// rank has long been done, so nobody waits. A step that was wrong (it clips, or is not finite) is
// taken back, with the one behind it that had begun, and taken again in the ordinary way. After it
// steps are ordinary until some in a row have needed no clipping; all ranks see the same norms, so
// they decide alike.
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"    /* gw_clock_ns */
#include "base/log.h"      /* gw_log_info */
#include "base/str.h"      /* gw_str */
#include "comm/channel.h"  /* gw_channels_counted */
#include "comm/exchange.h" /* gw_comm_exchanged */
#include "ir/text.h"       /* gw_op_print */
#include "train/mail.h"    /* gw_mail */
#include "train/ranks.h"   /* gw_ranks_me */
#include "train/session.h" /* this module's contract */

/* ---- inputs ---- */

static gw_step_inputs inputs_of(const gw_session *s, const gw_step_batch *b) {
    double f = gw_lr_factor(&s->lr, s->step);
    double seed = b->step_labels > 0 ? s->scaler.scale / (double)b->step_labels : 0;
    return (gw_step_inputs){.lr = (float)(s->rf->optimizer.lr * f),
                            .muon_lr = (float)(s->rf->optimizer.muon_lr * f),
                            .inv_scale = (float)(1 / s->scaler.scale),
                            .seed = (float)seed,
                            .aux_seed = (float)(s->scaler.scale / gw_setup_aux_units(&s->setup)),
                            .step = s->step + 1,
                            .batch = s->batch};
}

/* gw_exec_loop.feed: micro-batch k of a step, whenever the program comes to it. */
typedef struct feeding {
    gw_session *s;
    const gw_step_batch *b;
} feeding;

/* Rows as the program takes them now go into the step's digest; once, though a rank with several
 * stages comes to a micro-batch more than once. */
static void add_fed(gw_session *s, const gw_micro_batch *m, int64_t k) {
    int64_t n = s->rf->train.seq_len;
    if (s->fed_micro[k]) return;
    s->fed_micro[k] = true;
    for (int64_t i = 0; i < s->rf->train.micro_batch; i++)
        gw_digest_add(&s->fed,
                      gw_digest_row(m->tokens + i * n, m->labels + i * n, m->docs + i * n, n));
}

static gw_status write_micro_batch(void *user, gw_exec *x, int64_t k, gw_diags *dg) {
    const feeding *f = user;
    if (gw_session_has_images(f->s)) return gw_session_write_images(f->s, x, f->b, k, dg);
    if (f->s->counts_fed) add_fed(f->s, &f->b->micro[k], k);
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
    gw_digest digest;
} results;

/* What ranks only add up: times of a pipeline, the digest of what they were fed, and the divisor of
 * the loss, which must be the same on all. */
enum { SUM_BUSY, SUM_WINDOW, SUM_LABELS, SUM_DIGEST, SUMS = SUM_DIGEST + GW_DIGEST_PARTS };

/* A rank that counted other labels has read other data: one whose disk or network damages it. */
static gw_status same_labels(const gw_session *s, const gw_step_batch *b, double sum,
                             gw_diags *dg) {
    double own = (double)b->step_labels * gw_ranks_count(s->comm);
    if (sum == own) return GW_OK;
    gw_diag *g =
        gw_diag_add(dg, GW_ERROR, GW_ERR_IO, "data-differs", (gw_where){0},
                    "rank %d counts %" PRId64 " labels in samples %" PRId64 " to %" PRId64
                    ", others count other numbers: the ranks do not read the same data",
                    gw_ranks_me(s->comm), b->step_labels, b->first_sample, b->next_sample - 1);
    gw_diag_hint(dg, g, "look for damaged copies of the data on its host");
    return GW_ERR_IO;
}

static gw_status read_results(const gw_session *s, const gw_step_batch *b, results *r,
                              gw_diags *dg) {
    gw_optimes_span a = gw_optimes_latest(s->times);
    double own[3] = {(double)read_scalar(s->x, "loss", 0), (double)read_scalar(s->x, "norm", 0),
                     (double)read_scalar(s->x, "ok", 1)};
    const gw_ranks_entry *e[3] = {s->loss, s->norm, s->ok};
    double sums[SUMS] = {(double)a.busy_ns, (double)a.window_ns, (double)b->step_labels};
    gw_digest_parts(s->fed, sums + SUM_DIGEST);
    GW_TRY(
        gw_ranks_sum_results(s->comm, &s->table, e, s->table.stages > 1 ? 3 : 1, own, "loss", dg));
    if (s->comm) {
        GW_TRY(gw_comm_sum_f64(s->comm, sums, SUMS, "what was fed", dg));
        GW_TRY(same_labels(s, b, sums[SUM_LABELS], dg));
    }
    *r = (results){own[0],         own[1],           own[2],
                   sums[SUM_BUSY], sums[SUM_WINDOW], gw_digest_of_sums(sums + SUM_DIGEST)};
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
    gw_step_inputs in = inputs_of(s, b);
    *bad = (bad_op){.op = GW_NONE, .micro = -1};
    gw_step_inputs_write(s->x, &in);
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

/* Stages and micro-batches are counted from 0, as in every line about them. */
static void describe_bad(const gw_session *s, const bad_op *bad, gw_diags *dg, gw_diag *d) {
    const gw_graph *g = gw_exec_graph(s->x);
    gw_str line = {0}, where = {0};
    gw_op_print(g, bad->op, &line);
    const char *joint = ", ";
    if (bad->micro >= 0) {
        gw_str_printf(&where, ", micro-batch %" PRId64, bad->micro);
        joint = " of ";
    }
    if (g->actions.count > 0)
        gw_str_printf(&where, "%sstage %d", joint, (int)g->ops.items[bad->op].stage);
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
        describe_bad(s, &bad, dg, d);
    hint_numeric(s, dg, d);
    return GW_ERR_NUMERIC;
}

/* ---- the step ---- */

static gw_status run_loop(gw_session *s, const gw_step_batch *b, const gw_step_inputs *in,
                          gw_diags *dg) {
    feeding f = {.s = s, .b = b};
    gw_exec_loop loop = {.feed = write_micro_batch, .ran = take_times, .user = &f};
    s->fed = (gw_digest){0};
    if (s->counts_fed) memset(s->fed_micro, 0, (size_t)b->count * sizeof *s->fed_micro);
    gw_step_inputs_write(s->x, in);
    GW_TRY(gw_exec_run(s->x, GW_SEG_PRE, dg));
    gw_optimes_take(s->times, GW_SEG_PRE);
    return gw_exec_run_all(s->x, b->count, &loop, dg);
}

static gw_status run_program(gw_session *s, const gw_step_batch *b, const gw_step_inputs *in,
                             gw_diags *dg) {
    GW_TRY(run_loop(s, b, in, dg));
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

static gw_status load_batch(gw_session *s, const gw_step_batch **b, gw_diags *dg) {
    if (!gw_session_has_images(s)) return gw_loader_next(s->loader, b, dg);
    *b = gw_session_next_images(s);
    return GW_OK;
}

/* The batch, when every rank has its own and none was asked to stop (*b NULL then). */
static gw_status next_batch(gw_session *s, const gw_step_batch **b, gw_diags *dg) {
    int64_t stop = s->wants_stop;
    *b = NULL;
    if (stop && !s->comm) return GW_OK;
    gw_status st = load_batch(s, b, dg);
    GW_TRY(gw_exec_agree(s->comm, st, &stop, "beginning a step", dg));
    if (stop) *b = NULL;
    return GW_OK;
}

static void note_labels(const gw_session *s, const gw_step_batch *b) {
    if (b->step_labels == 0)
        gw_log_info("step %" PRId64 ": no label of its batch is valid; its gradient is zero",
                    s->step + 1);
}

static gw_status finish_step(gw_session *s, const gw_step_batch *b, const results *x,
                             gw_session_step_result *r, gw_diags *dg) {
    bool ok = x->ok != 0 && isfinite(r->norm);
    note_labels(s, b);
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

/* What is known of a step before it runs. */
static gw_session_step_result result_of(const gw_session *s, const gw_step_batch *b,
                                        const gw_step_inputs *in, int64_t begun,
                                        int64_t have_data) {
    gw_session_step_result r = {.lr = (double)in->lr,
                                .loss_scale = s->scaler.scale,
                                .labels = b->step_labels,
                                .tokens = b->step_tokens,
                                .data_wait_s = (double)(have_data - begun) * 1e-9,
                                .batch = s->batch,
                                .first_sample = b->first_sample,
                                .next_sample = b->next_sample};
    if (!s->loader) return r;
    int64_t waits[GW_LOAD_CAUSES];
    gw_loader_waits(s->loader, waits);
    for (int i = 0; i < GW_LOAD_CAUSES; i++) r.data_parts_s[i] = (double)waits[i] * 1e-9;
    r.quarantined = gw_tokens_quarantined(s->data);
    return r;
}

static void take_results(gw_session_step_result *r, double loss, double norm, double busy_ns,
                         double window_ns) {
    r->loss = r->labels > 0 ? loss / (double)r->labels : (double)NAN;
    r->norm = norm;
    r->bubble = window_ns > 0 ? 1 - busy_ns / window_ns : (double)NAN;
    r->known = true;
}

static void stand_at(gw_session_step_result *r, const gw_session *s) {
    r->step = s->step;
    r->tokens_so_far = s->tokens;
}

/* A step at whose end all ranks know its results. */
static gw_status whole_step(gw_session *s, gw_session_step_result *r, gw_diags *dg) {
    const gw_step_batch *b = NULL;
    results x = {0};
    int64_t begun = gw_clock_ns();
    GW_TRY(next_batch(s, &b, dg));
    *r = (gw_session_step_result){.stopped = b == NULL};
    if (r->stopped) return GW_OK;
    int64_t have_data = gw_clock_ns();
    gw_optimes_host(s->times, begun, have_data);
    gw_step_inputs in = inputs_of(s, b);
    counts before = count(s);
    GW_TRY(run_program(s, b, &in, dg));
    *r = result_of(s, b, &in, begun, have_data);
    take_counts(s, &before, r);
    GW_TRY(read_results(s, b, &x, dg));
    take_results(r, x.loss, x.norm, x.busy_ns, x.window_ns);
    r->digest = x.digest;
    r->pp_wait_s = (double)gw_optimes_latest(s->times).wait_ns * 1e-9;
    GW_TRY(finish_step(s, b, &x, r, dg));
    stand_at(r, s);
    r->step_s = (double)(gw_clock_ns() - begun) * 1e-9;
    return GW_OK;
}

/* ---- a step whose results come later ---- */

enum { CALM_STEPS = 2 }; /* that clipped nothing, in a row, before one is taken ahead */

/* What a rank tells of a step, and what comes back. */
typedef struct letter {
    double loss, sum, busy_ns, window_ns; /* sum: of squares of its stages */
    double fed[GW_DIGEST_PARTS];
    int64_t stop;
} letter;
typedef struct verdict {
    double loss, norm, busy_ns, window_ns;
    gw_digest digest;
    int64_t right, stop;
} verdict;

/* Counters at the beginning of a step. */
typedef struct standing {
    int64_t step, batch, next_sample, tokens;
    gw_scaler scaler;
} standing;

struct gw_session_ahead {
    gw_mail *mail;
    letter *letters; /* [ranks], on rank 0 */
    double *sums;    /* [stage ranks], likewise */
    int calm;        /* steps in a row that clipped nothing */
    bool stop;       /* somebody was asked to stop */
    bool pending;    /* a step's results are not known yet: */
    gw_session_step_result result;
    standing before;
    double inv_scale;
};

gw_status gw_session_go_ahead(gw_session *s, gw_diags *dg) {
    if (!s->comm || s->table.stages == 1 || s->report.place.kept_bytes == 0) return GW_OK;
    s->ahead = gw_arena_new(&s->mem, struct gw_session_ahead, 1);
    s->ahead->letters = gw_arena_new(&s->mem, letter, gw_ranks_count(s->comm));
    s->ahead->sums = gw_arena_new(&s->mem, double, s->table.stages);
    return gw_mail_open(&s->ahead->mail, s->comm, sizeof(letter), sizeof(verdict), dg);
}

void gw_session_stay_behind(gw_session *s) {
    if (s->ahead) gw_mail_close(s->ahead->mail);
    s->ahead = NULL;
}

/* Rank 0: of what all have told. The first rank of each stage has its part of the norm. */
static gw_status judge(gw_session *s, verdict *v, const char *scope, gw_diags *dg) {
    struct gw_session_ahead *a = s->ahead;
    int ranks = gw_ranks_count(s->comm), each = ranks / s->table.stages;
    gw_exec_verdict e;
    double fed[GW_DIGEST_PARTS] = {0};
    *v = (verdict){0};
    GW_TRY(gw_mail_collect(a->mail, a->letters, scope, dg));
    for (int r = 0; r < ranks; r++) {
        v->loss += a->letters[r].loss;
        v->busy_ns += a->letters[r].busy_ns;
        v->window_ns += a->letters[r].window_ns;
        v->stop |= a->letters[r].stop;
        for (int i = 0; i < GW_DIGEST_PARTS; i++) fed[i] += a->letters[r].fed[i];
    }
    v->digest = gw_digest_of_sums(fed);
    for (int k = 0; k < s->table.stages; k++) a->sums[k] = a->letters[k * each].sum;
    GW_TRY(gw_exec_judge(s->x, a->sums, s->table.stages, a->inv_scale, &e, dg));
    v->norm = e.norm;
    v->right = e.right && isfinite(v->loss);
    return GW_OK;
}

/* The results of the step before, and whether it stands. */
static gw_status hear(gw_session *s, gw_session_step_result *r, bool *right, gw_diags *dg) {
    struct gw_session_ahead *a = s->ahead;
    verdict v = {0};
    char scope[64];
    snprintf(scope, sizeof scope, "step %" PRId64, a->result.step);
    if (gw_ranks_me(s->comm) == 0) GW_TRY(judge(s, &v, scope, dg));
    GW_TRY(gw_mail_answer(a->mail, &v, scope, dg));
    a->pending = false;
    a->stop = a->stop || v.stop;
    *r = a->result;
    take_results(r, v.loss, v.norm, v.busy_ns, v.window_ns);
    r->digest = v.digest;
    *right = v.right;
    return GW_OK;
}

/* Back to before the latest step, and through it with everybody waiting. */
static gw_status take_again(gw_session *s, gw_session_step_result *r, gw_diags *dg) {
    const standing *b = &s->ahead->before;
    gw_log_debug("step %" PRId64 " is taken again: its norm is %g", r->step, r->norm);
    gw_exec_restore(s->x);
    s->step = b->step;
    s->batch = b->batch;
    s->next_sample = b->next_sample;
    s->tokens = b->tokens;
    s->scaler = b->scaler;
    if (!gw_session_has_images(s)) gw_loader_seek(s->loader, s->next_sample);
    s->ahead->calm = 0;
    return whole_step(s, r, dg);
}

gw_status gw_session_settle(gw_session *s, gw_session_step_result *r, gw_diags *dg) {
    bool right = true;
    *r = (gw_session_step_result){0};
    if (!s->ahead || !s->ahead->pending) return GW_OK;
    GW_TRY(hear(s, r, &right, dg));
    return right ? GW_OK : take_again(s, r, dg);
}

static double share_of(const gw_session *s, const gw_ranks_entry *e, const char *name) {
    bool has =
        e && gw_ranks_counts_from(s->table.mesh, e->type.psum, e->home, gw_ranks_me(s->comm));
    return has ? (double)read_scalar(s->x, name, 0) : 0;
}

static gw_status tell(gw_session *s, double sum, gw_diags *dg) {
    gw_optimes_span t = gw_optimes_latest(s->times);
    char scope[64];
    letter l = {.loss = share_of(s, s->loss, "loss"),
                .sum = sum,
                .busy_ns = (double)t.busy_ns,
                .window_ns = (double)t.window_ns,
                .stop = s->wants_stop};
    gw_digest_parts(s->fed, l.fed);
    snprintf(scope, sizeof scope, "step %" PRId64, s->step + 1);
    return gw_mail_send(s->ahead->mail, &l, scope, dg);
}

/* What was sent between two counts is not the step's. */
static void leave_out(counts *before, const counts *from, const counts *to) {
    before->on.payload += to->on.payload - from->on.payload;
    before->on.moved += to->on.moved - from->on.moved;
    before->on.ns += to->on.ns - from->on.ns;
    before->on.wait_ns += to->on.wait_ns - from->on.wait_ns;
}

/* The step's end on this rank: its results are to come. */
static gw_status step_ahead(gw_session *s, const gw_step_batch *b, const counts *before,
                            gw_session_step_result *mine, gw_diags *dg) {
    struct gw_session_ahead *a = s->ahead;
    double sum = 0;
    GW_TRY(gw_exec_run_ahead(s->x, &sum, dg));
    gw_optimes_take(s->times, GW_SEG_POST);
    gw_optimes_acted(s->times);
    take_counts(s, before, mine);
    s->sent_on.payload += gw_exec_unsent_bytes(s->x); /* they are in the letters */
    s->sent_on.moved += gw_exec_unsent_bytes(s->x);
    GW_TRY(tell(s, sum, dg));
    note_labels(s, b);
    a->before = (standing){s->step, s->batch, s->next_sample, s->tokens, s->scaler};
    a->inv_scale = (double)(float)(1 / s->scaler.scale);
    a->pending = true;
    mine->pp_wait_s = (double)gw_optimes_latest(s->times).wait_ns * 1e-9;
    (void)gw_scaler_update(&s->scaler, true);
    advance(s, b, true);
    stand_at(mine, s);
    a->result = *mine;
    return GW_OK;
}

static gw_status run_ahead(gw_session *s, gw_session_step_result *r, gw_diags *dg) {
    struct gw_session_ahead *a = s->ahead;
    const gw_step_batch *b = NULL;
    bool right = true;
    int64_t begun = gw_clock_ns();
    *r = (gw_session_step_result){0};
    GW_TRY(load_batch(s, &b, dg));
    int64_t have_data = gw_clock_ns();
    gw_optimes_host(s->times, begun, have_data);
    gw_step_inputs in = inputs_of(s, b);
    gw_session_step_result mine = result_of(s, b, &in, begun, have_data);
    counts before = count(s);
    GW_TRY(run_loop(s, b, &in, dg));
    counts looped = count(s);
    if (a->pending) GW_TRY(hear(s, r, &right, dg));
    if (!right) return take_again(s, r, dg);
    counts heard = count(s);
    leave_out(&before, &looped, &heard);
    GW_TRY(step_ahead(s, b, &before, &mine, dg));
    a->result.step_s = (double)(gw_clock_ns() - begun) * 1e-9;
    return GW_OK;
}

gw_status gw_session_step(gw_session *s, gw_session_step_result *r, gw_diags *dg) {
    struct gw_session_ahead *a = s->ahead;
    if (!a) return whole_step(s, r, dg);
    if (a->stop) {
        GW_TRY(gw_session_settle(s, r, dg));
        r->stopped = true;
        return GW_OK;
    }
    if (a->pending || a->calm >= CALM_STEPS) return run_ahead(s, r, dg);
    GW_TRY(whole_step(s, r, dg));
    if (r->stopped) return GW_OK;
    double most = s->rf->optimizer.clip_norm;
    bool calm = !r->skipped && isfinite(r->norm) && (most <= 0 || r->norm <= most);
    a->calm = calm ? a->calm + 1 : 0;
    return GW_OK;
}
