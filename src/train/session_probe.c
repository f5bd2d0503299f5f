// SPDX-License-Identifier: Apache-2.0
// The probe: does what was loaded compute what was saved?
//
// Hashes of blocks prove that bytes are those that were written. They do not prove that the bytes
// belong together, nor that the model around them is the one that they are of: weights of one step
// beside moments of another, or a frequency of the rotary embedding that changed with a
// configuration, load without a complaint and train on as something else. So a checkpoint holds two
// digests of the state, of the parameters and of all else (ckpt/digest.c), and one of the model's
// logits on a few sequences of fixed tokens (session_logits.c); a load makes all of them again.
//
// The digests of the state are sums of integers: they are the same for the same bits, whatever the
// layout. A tensor that was converted on loading has other bits; of that one the digest is of what
// the checkpoint has, taken while it was converted (ckpt/load.c).
//
// The digest of the logits is GW_CKPT_SUMS floats. Where they were computed by the same program, on
// as many threads and with the same instructions, they must be equal to the bit. Otherwise they are
// held against their spread, the size of such a sum at random signs: the root of their mean square
// difference may be a bound of it, a single one four bounds. The bounds are of what another order
// of sums does to logits: BOUND_FLOAT; BOUND_HALF where either side multiplies in sixteen bits or
// fewer, or was converted; BOUND_CHOICES for models of experts, where near-ties may choose others
// for a token. Sequences of another length, which a run that has not begun may be given, do not
// compare.
//
// What that finds: at the same layout everything that moves a logit of the 256 tokens, in any
// column. At another one what moves the logits as a whole by more than the bound, or those of one
// id, of n in the vocabulary, by 4 bounds x the root of n / GW_CKPT_SUMS of their size.
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"          /* gw_clock_ns */
#include "base/log.h"            /* gw_log_debug */
#include "run/exec_comm.h"       /* gw_exec_agree */
#include "train/ranks.h"         /* gw_ranks_me */
#include "train/session.h"       /* this module's contract */
#include "train/session_probe.h" /* gw_probe_logits_take */

static const double BOUND_FLOAT = 1e-4, BOUND_HALF = 3e-2, BOUND_CHOICES = 1e-1;
enum { SINGLE = 4 }; /* bounds that one sum may be off by */

/* ---- digests ---- */

typedef struct sums {
    uint64_t weights, states;
} sums;

/* `loaded`: of what a load has just read. */
static gw_status take_sums(const gw_session *s, bool loaded, sums *out, gw_diags *dg) {
    gw_arena mem = {0};
    sums mine = {0};
    int ranks = gw_ranks_count(s->comm);
    for (int i = 0; i < s->ntensors; i++) {
        const gw_ckpt_tensor *t = &s->tensors[i];
        if (t->away) continue;
        const gw_value *v = &gw_exec_graph(s->x)->values.items[s->entries[i]->value];
        bool converted = loaded && s->conversions && s->conversions[i].done;
        *(v->role == GW_ROLE_PARAM ? &mine.weights : &mine.states) +=
            converted ? s->conversions[i].digest : gw_ckpt_digest(t);
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

/* ---- taking ---- */

static gw_status take(gw_session *s, bool loaded, gw_ckpt_probe *out, gw_diags *dg) {
    int64_t before = gw_clock_ns();
    sums x;
    *out = (gw_ckpt_probe){.bits = ""};
    s->probe_s = 0;
    if (!s->probe) return GW_OK;
    GW_TRY(take_sums(s, loaded, &x, dg));
    GW_TRY(gw_probe_logits_take(s, out, dg));
    out->taken = true;
    out->weights = x.weights;
    out->states = x.states;
    s->probe_s = (double)(gw_clock_ns() - before) * 1e-9;
    return GW_OK;
}

gw_status gw_session_probe_take(gw_session *s, gw_ckpt_probe *out, gw_diags *dg) {
    return take(s, false, out, dg);
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

static bool has_converted(const gw_session *s) {
    for (int i = 0; s->conversions && i < s->ntensors; i++)
        if (s->conversions[i].done) return true;
    return false;
}

/* 0: to the bit. */
static double bound_of(const gw_session *s, const gw_ckpt_probe *is) {
    const gw_ckpt_probe *was = &s->resumed_probe;
    bool converted = has_converted(s);
    if (strcmp(is->bits, was->bits) == 0 && !converted) return 0;
    if (s->setup.model.moe.experts > 0) return BOUND_CHOICES;
    return is->half || was->half || converted ? BOUND_HALF : BOUND_FLOAT;
}

/* How far apart, in spreads: the root mean square, the largest and which sum that is; how many
 * differ at all. */
typedef struct apart {
    double mean, most;
    int at, differing;
} apart;

static apart measure(const gw_ckpt_probe *is, const gw_ckpt_probe *was) {
    apart a = {0};
    double spread = fmax(was->spread, 1e-30);
    for (int k = 0; k < is->sums; k++) {
        double gap = fabs(is->sum[k] - was->sum[k]) / spread;
        a.mean += gap * gap / is->sums;
        a.differing += is->sum[k] != was->sum[k];
        if (gap <= a.most) continue;
        a.most = gap;
        a.at = k;
    }
    a.mean = sqrt(a.mean);
    return a;
}

static gw_status compare_logits(const gw_session *s, const gw_ckpt_probe *is, gw_diags *dg) {
    const gw_ckpt_probe *was = &s->resumed_probe;
    char text[240];
    if (is->sums != was->sums || is->sums == 0 || is->tokens != was->tokens) return GW_OK;
    double bound = bound_of(s, is);
    apart a = measure(is, was);
    gw_log_debug("logits of the probe: %.3g of their spread apart, one of %d sums %.3g; the bound "
                 "is %.3g",
                 a.mean, is->sums, a.most, bound);
    if (bound == 0 && a.differing == 0) return GW_OK;
    if (bound > 0 && a.mean <= bound && a.most <= SINGLE * bound) return GW_OK;
    if (bound == 0)
        snprintf(text, sizeof text,
                 "the model has other logits on fixed tokens: %d of %d sums differ, most by %.3g "
                 "of their spread that of the ids %d + %d k",
                 a.differing, is->sums, a.most, a.at, is->sums);
    else
        snprintf(text, sizeof text,
                 "the model has other logits on fixed tokens: %.3g of their spread apart, those of "
                 "the ids %d + %d k %.3g; another layout or precision makes at most %.3g and %.3g",
                 a.mean, a.at, is->sums, a.most, bound, SINGLE * bound);
    return refuse(s, dg, text);
}

static gw_status compare(gw_session *s, gw_diags *dg) {
    gw_ckpt_probe is;
    if (s->resumed < 0 || !s->resumed_probe.taken) return GW_OK;
    GW_TRY(take(s, true, &is, dg));
    gw_log_debug("compared the state with the checkpoint's probe in %.3f s", s->probe_s);
    if (gw_ranks_me(s->comm) != 0) return GW_OK; /* all have the same numbers: one says it */
    GW_TRY(compare_sums(s, &is, dg));
    return compare_logits(s, &is, dg);
}

gw_status gw_session_probe_check(gw_session *s, gw_diags *dg) {
    if (!s->probe) return GW_OK;
    gw_status st = compare(s, dg);
    return gw_exec_agree(s->comm, st, NULL, "comparing the state with its probe", dg);
}

gw_status gw_session_probe_open(gw_session *s, gw_diags *dg) {
    if (!s->rf->checkpoint.probe) return GW_OK;
    s->probe = gw_arena_new(&s->mem, struct gw_session_probe, 1);
    if (!gw_session_has_images(s)) GW_TRY(gw_probe_logits_open(s, dg));
    return gw_session_probe_check(s, dg);
}

void gw_session_probe_close(gw_session *s) {
    if (s->probe) gw_probe_logits_close(s);
    s->probe = NULL;
}
