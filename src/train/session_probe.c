// SPDX-License-Identifier: Apache-2.0
// The probe: does what was loaded compute what was saved?
//
// Hashes of blocks prove that bytes are those that were written. They do not prove that the bytes
// belong together, nor that the model around them is the one that they are of: weights of one step
// beside moments of another, or a frequency of the rotary embedding that changed with a
// configuration, load without a complaint and train on as something else. So a checkpoint holds two
// digests of the state, of the parameters and of all else (ckpt/digest.c), and the losses of the
// model on a few sequences of fixed tokens; a load makes all of them again.
//
// The digests are sums of integers: they are the same for the same bits, whatever the layout. The
// losses are floats. Where they were computed by the same program, on as many threads and with the
// same instructions, they must be equal to the bit; otherwise they may differ by what the order of
// sums does: BOUND_FLOAT, and BOUND_HALF where products are in sixteen bits or fewer, of the larger
// of 1 and the loss. A model of experts may choose others in near-ties, so its losses count in the
// same program alone. Losses of sequences of another length, which a run that has not begun may be
// given, do not compare.
//
// The forward program is the run's own (its layout, its precision) for one short sequence on each
// data-parallel rank, all with the same tokens, so that its mean does not know how many ranks there
// are. It lies in the training temporaries; where there is no room in them, and for nets for
// images, there are the digests alone.
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"    /* gw_clock_ns */
#include "base/log.h"      /* gw_log_debug */
#include "base/rng.h"      /* gw_rng_u64 */
#include "base/str.h"      /* gw_str */
#include "ir/text.h"       /* gw_graph_print */
#include "run/exec_comm.h" /* gw_op_is_collective */
#include "train/ranks.h"   /* gw_ranks_me */
#include "train/session.h" /* this module's contract */

enum { PROBE_TOKENS = 64 };
static const double BOUND_FLOAT = 1e-4, BOUND_HALF = 2e-2;

struct gw_session_probe {
    gw_exec *x; /* NULL: no losses */
    gw_ranks_table results;
    const gw_ranks_entry *loss;
    gw_slices slices;
    int64_t seq;
    int32_t *tokens, *labels, *positions, *docs; /* [seq] */
    int64_t id;
    char bits[33];
};

/* ---- digests ---- */

typedef struct sums {
    uint64_t weights, states;
} sums;

static gw_status take_sums(const gw_session *s, sums *out, gw_diags *dg) {
    gw_arena mem = {0};
    sums mine = {0};
    int ranks = gw_ranks_count(s->comm);
    for (int i = 0; i < s->ntensors; i++) {
        const gw_ckpt_tensor *t = &s->tensors[i];
        if (t->away) continue;
        const gw_value *v = &gw_exec_graph(s->x)->values.items[s->entries[i]->value];
        *(v->role == GW_ROLE_PARAM ? &mine.weights : &mine.states) += gw_ckpt_digest(t);
    }
    sums *all = gw_arena_new(&mem, sums, ranks);
    all[0] = mine;
    gw_status st =
        s->comm ? gw_comm_all_gather(s->comm, &mine, sizeof mine, all, "digests of the state", dg)
                : GW_OK;
    *out = (sums){0};
    for (int r = 0; r < ranks; r++) {
        out->weights += all[r].weights;
        out->states += all[r].states;
    }
    gw_arena_release(&mem);
    return st;
}

/* ---- losses ---- */

static gw_status feed(void *user, gw_exec *x, int64_t micro, gw_diags *dg) {
    const struct gw_session_probe *p = user;
    gw_micro_batch m = {p->tokens, p->labels, p->positions, p->docs, &p->id, 0};
    (void)micro;
    (void)dg;
    gw_slices_write(&p->slices, x, &m);
    return GW_OK;
}

/* Sequence k: any tokens will do, as long as they are always the same. */
static void write_tokens(struct gw_session_probe *p, int k, int64_t vocab) {
    gw_rng_key key = gw_rng_key_named((uint64_t)k, "probe");
    for (int64_t i = 0; i < p->seq; i++) {
        p->tokens[i] = (int32_t)(gw_rng_u64(key, (uint64_t)i) % (uint64_t)vocab);
        p->labels[i] = (int32_t)(gw_rng_u64(key, (uint64_t)(i + 1)) % (uint64_t)vocab);
        p->positions[i] = (int32_t)i;
        p->docs[i] = 0;
    }
    p->id = k;
}

static gw_status take_loss(gw_session *s, int k, double *out, gw_diags *dg) {
    struct gw_session_probe *p = s->probe;
    gw_exec_loop loop = {.feed = feed, .user = p};
    float loss = 0; /* absent in the stages before the last */
    write_tokens(p, k, s->setup.model.vocab);
    GW_TRY(gw_exec_run_all(p->x, 1, &loop, dg));
    (void)gw_exec_read(p->x, "loss", &loss, sizeof loss);
    *out = (double)loss;
    if (s->comm)
        GW_TRY(gw_ranks_sum_results(s->comm, &p->results, &p->loss, 1, out, "a probe", dg));
    *out /= (double)(p->seq * s->rf->layout.dp);
    return GW_OK;
}

static gw_status take_losses(gw_session *s, gw_ckpt_probe *out, gw_diags *dg) {
    const struct gw_session_probe *p = s->probe;
    bool finite = true;
    out->bits = p->bits;
    out->tokens = p->seq;
    out->half = s->rf->precision.compute != GW_RF_FP32;
    if (!p->x) return GW_OK;
    gw_step_inputs_write(p->x, &(gw_step_inputs){.seed = 1, .inv_scale = 1, .step = 1});
    GW_TRY(gw_exec_run(p->x, GW_SEG_PRE, dg));
    for (int k = 0; k < GW_CKPT_LOSSES; k++) {
        GW_TRY(take_loss(s, k, &out->loss[k], dg));
        finite = finite && isfinite(out->loss[k]);
    }
    out->losses = finite ? GW_CKPT_LOSSES : 0;
    return GW_OK;
}

gw_status gw_session_probe_take(gw_session *s, gw_ckpt_probe *out, gw_diags *dg) {
    int64_t before = gw_clock_ns();
    sums x;
    *out = (gw_ckpt_probe){.bits = ""};
    s->probe_s = 0;
    if (!s->probe) return GW_OK;
    GW_TRY(take_sums(s, &x, dg));
    GW_TRY(take_losses(s, out, dg));
    out->taken = true;
    out->weights = x.weights;
    out->states = x.states;
    s->probe_s = (double)(gw_clock_ns() - before) * 1e-9;
    return GW_OK;
}

/* ---- the program ---- */

/* What is computed, in which order, of which shapes, and by which collectives; but not a number of
 * the model, such as an epsilon: that is what the losses are to tell. */
static void print_order(const gw_graph *g, gw_str *out) {
    for (int64_t i = 0; i < g->ops.count; i++) {
        const gw_op *o = &g->ops.items[i];
        if (gw_op_is_collective(g, o)) {
            gw_op_print(g, (gw_oid)i, out);
            continue;
        }
        gw_str_add(out, gw_op_def(g, o)->name);
        for (int k = 0; k < (int)o->nout; k++) {
            gw_str_add(out, " ");
            gw_type_print(gw_type_of(g, gw_op_out(g, o, k)), &g->mesh, out);
        }
        gw_str_add(out, "\n");
    }
}

/* What the bits of the losses hang on: every rank's program, threads, instructions. */
static gw_status name_bits(gw_session *s, const gw_graph *g, gw_diags *dg) {
    gw_arena mem = {0};
    gw_str text = {0};
    int ranks = gw_ranks_count(s->comm);
    print_order(g, &text);
    gw_str_printf(&text, "threads %d isa %s\n", s->setup.machine.threads,
                  gw_isa_name(s->setup.machine.isa));
    gw_hash128 mine = gw_hash128_of(gw_str_c(&text), text.len);
    gw_hash128 *all = gw_arena_new(&mem, gw_hash128, ranks);
    all[0] = mine;
    gw_status st =
        s->comm ? gw_comm_all_gather(s->comm, &mine, sizeof mine, all, "probes", dg) : GW_OK;
    if (st == GW_OK)
        gw_hash128_hex(s->probe->bits, gw_hash128_of(all, sizeof *all * (size_t)ranks));
    gw_str_release(&text);
    gw_arena_release(&mem);
    return st;
}

static gw_status make_executor(gw_session *s, const gw_graph *g, gw_diags *dg) {
    struct gw_session_probe *p = s->probe;
    gw_exec_opts o = {.machine = s->setup.machine,
                      .params_from = s->x,
                      .comm = s->comm,
                      .rank = gw_ranks_me(s->comm),
                      .offload_dir = s->rf->offload.dir};
    o.overlay = gw_exec_temporaries(s->x, &o.overlay_bytes);
    int64_t lacks = g->arena_bytes[GW_MEM_DEVICE] > o.overlay_bytes;
    for (int k = 0; k < GW_MEM_COUNT; k++)
        if (k != GW_MEM_DEVICE && g->arena_bytes[k] > 0) lacks = 1; /* memory that is not planned */
    if (s->comm) GW_TRY(gw_comm_max_i64(s->comm, &lacks, 1, "room for a probe", dg));
    if (lacks) {
        gw_log_debug(
            "the probe has no losses: the step's temporaries have no room for its program");
        return GW_OK;
    }
    GW_TRY(gw_exec_new(&p->x, g, &o, dg));
    GW_TRY(gw_ranks_list(s->comm, gw_exec_graph(p->x), &s->mem, &p->results, dg));
    p->loss = gw_ranks_find(&p->results, "loss");
    gw_slices_init(&p->slices, p->x, 1, p->seq, &s->mem);
    return name_bits(s, g, dg);
}

static gw_status make_program(gw_session *s, gw_diags *dg) {
    struct gw_session_probe *p = s->probe;
    gw_setup one = s->setup;
    gw_runfile small = *s->rf;
    gw_graph g;
    gw_compile_report report = {0};
    small.train.micro_batch = 1;
    small.train.seq_len = GW_MIN((int64_t)PROBE_TOKENS, s->rf->train.seq_len);
    one.rf = &small;
    p->seq = small.train.seq_len;
    p->tokens = gw_arena_new(&s->mem, int32_t, p->seq);
    p->labels = gw_arena_new(&s->mem, int32_t, p->seq);
    p->positions = gw_arena_new(&s->mem, int32_t, p->seq);
    p->docs = gw_arena_new(&s->mem, int32_t, p->seq);
    gw_status st = gw_setup_program(&one, false, NULL, &g, &report, dg);
    GW_TRY(gw_exec_agree(s->comm, st, NULL, "compiling a probe", dg));
    st = make_executor(s, &g, dg);
    gw_graph_release(&g);
    return gw_exec_agree(s->comm, st, NULL, "making a probe", dg);
}

/* ---- comparing ---- */

static gw_status refuse(const gw_session *s, gw_diags *dg, const char *detail) {
    gw_diag *g = gw_diag_add(dg, GW_ERROR, GW_ERR_FORMAT, "checkpoint-probe",
                             (gw_where){.file = s->resumed_path},
                             "what was loaded is not what was saved: %s", detail);
    gw_diag_hint(
        dg, g,
        "files of several checkpoints were mixed, or its manifest was changed: use another "
        "checkpoint; checkpoint.probe false takes it as it is");
    return GW_ERR_FORMAT;
}

static gw_status compare_sums(const gw_session *s, const gw_ckpt_probe *is, gw_diags *dg) {
    const gw_ckpt_probe *was = &s->resumed_probe;
    bool weights = is->weights == was->weights, states = is->states == was->states;
    if (weights && states) return GW_OK;
    return refuse(s, dg,
                  weights  ? "the optimizer's states have another digest, the parameters their own"
                  : states ? "the parameters have another digest, the optimizer's states their own"
                           : "parameters and optimizer's states have other digests");
}

static gw_status compare_losses(const gw_session *s, const gw_ckpt_probe *is, gw_diags *dg) {
    const gw_ckpt_probe *was = &s->resumed_probe;
    bool bitwise = strcmp(is->bits, was->bits) == 0;
    double bound = bitwise ? 0 : is->half || was->half ? BOUND_HALF : BOUND_FLOAT;
    if (is->losses != was->losses || is->tokens != was->tokens) return GW_OK;
    if (!bitwise && s->setup.model.moe.experts > 0) return GW_OK;
    for (int k = 0; k < is->losses; k++) {
        double gap = fabs(is->loss[k] - was->loss[k]);
        if (gap <= bound * fmax(1, fabs(was->loss[k]))) continue;
        char text[160];
        snprintf(text, sizeof text, "the model has a loss of %.9g on fixed tokens, it had %.9g%s",
                 is->loss[k], was->loss[k],
                 bitwise ? "" : ", more apart than another layout makes it");
        return refuse(s, dg, text);
    }
    return GW_OK;
}

static gw_status compare(gw_session *s, gw_diags *dg) {
    gw_ckpt_probe is;
    if (s->resumed < 0 || !s->resumed_probe.taken) return GW_OK;
    GW_TRY(gw_session_probe_take(s, &is, dg));
    gw_log_debug("compared the state with the checkpoint's probe in %.3f s", s->probe_s);
    if (gw_ranks_me(s->comm) != 0) return GW_OK; /* all have the same numbers: one says it */
    GW_TRY(compare_sums(s, &is, dg));
    return compare_losses(s, &is, dg);
}

gw_status gw_session_probe_open(gw_session *s, gw_diags *dg) {
    if (!s->rf->checkpoint.probe) return GW_OK;
    s->probe = gw_arena_new(&s->mem, struct gw_session_probe, 1);
    if (!gw_session_has_images(s)) GW_TRY(make_program(s, dg));
    gw_status st = compare(s, dg);
    return gw_exec_agree(s->comm, st, NULL, "comparing the state with its probe", dg);
}

void gw_session_probe_close(gw_session *s) {
    if (s->probe) gw_exec_free(s->probe->x);
    s->probe = NULL;
}
