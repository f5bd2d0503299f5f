// SPDX-License-Identifier: Apache-2.0
// A checkpoint's tensors and its loss scale into a session, whatever numbers either is in.
//
// Tensors are found by name: a name says the parameter and the role (itself, or a moment), and for
// each parameter there is one copy in a checkpoint, the one that the optimizer updates. So a run
// that goes on in another precision takes every tensor by its name and lets the load convert what
// has another dtype (ckpt/precision.c): exact where it widens, rounded to nearest even where it
// narrows. What the run multiplies with is made of that copy at the beginning of each step, as
// always. What was converted is said in one line, never done in silence; an element that does not
// exist in the narrower type as a number refuses the resume.
//
// The scale of the loss belongs to float16. Where both the checkpoint's run and this one scale, it
// goes on; where only this one does it begins anew; where only the other did it is let go.
//
// Running statistics of batch norms are the one tensor whose shape follows the ranks: where there
// are more or fewer rows of them, all begin from the first.
#include <inttypes.h>
#include <string.h>

#include "base/log.h"       /* gw_log_warn */
#include "base/map.h"       /* gw_smap */
#include "base/str.h"       /* gw_str */
#include "ckpt/precision.h" /* gw_ckpt_widens */
#include "train/ranks.h"    /* gw_ranks_add_f64 */
#include "train/session.h"  /* this module's contract */

/* ---- tensors ---- */

static const gw_ckpt_entry_tensor *find_entry(const gw_ckpt_manifest *m, const char *name) {
    for (int i = 0; i < m->ntensors; i++)
        if (strcmp(m->tensors[i].name, name) == 0) return &m->tensors[i];
    return NULL;
}

static int64_t columns_of(int ndim, const int64_t *dims) { return ndim ? dims[ndim - 1] : 1; }

/* A statistic [group c], of one rank [c], that another number of ranks kept: its first row, for all
 * of ours. */
static bool take_first_row(gw_ckpt_tensor *t, const gw_ckpt_entry_tensor *e, gw_arena *mem) {
    bool statistic = gw_str_ends(t->name, ".running_mean") || gw_str_ends(t->name, ".running_var");
    if (!statistic || !e || e->ndim < 1 || e->ndim > 2 || t->ndim < 1 || t->ndim > 2) return false;
    int64_t columns = columns_of(t->ndim, t->dims);
    if (columns != columns_of(e->ndim, e->dims) || (e->ndim == t->ndim && e->dims[0] == t->dims[0]))
        return false;
    t->ndim = e->ndim;
    memcpy(t->dims, e->dims, sizeof t->dims);
    t->type = NULL;
    t->box = (gw_box){.ndim = e->ndim, .size = {1, 1}};
    t->box.size[e->ndim - 1] = columns;
    t->data = gw_arena_alloc(mem, columns * gw_dtype_bits(t->dtype) / 8);
    return true;
}

static int64_t rows_of(const gw_ckpt_tensor *t) {
    if (t->ndim < 2) return 1;
    if (!t->type) return t->dims[0];
    return gw_type_local_elems(t->type, t->mesh, t->rank) / t->dims[1];
}

gw_status gw_session_load_tensors(gw_session *s, const gw_ckpt_manifest *m, gw_diags *dg) {
    gw_arena mem = {0};
    int n = s->ntensors, taken = 0;
    gw_ckpt_tensor *t = gw_arena_dup(&mem, s->tensors, n * (int64_t)sizeof *t);
    bool *first = gw_arena_new(&mem, bool, n + 1);
    if (!s->conversions) s->conversions = gw_arena_new(&s->mem, gw_ckpt_conversion, n + 1);
    memset(s->conversions, 0, sizeof *s->conversions * (size_t)n);
    for (int i = 0; i < n; i++) {
        t[i].as = &s->conversions[i];
        first[i] = take_first_row(&t[i], find_entry(m, t[i].name), &mem);
        taken += first[i];
    }
    gw_ckpt_loaded read;
    gw_status st = gw_checkpoint_load(m, t, n, &read, dg);
    gw_log_debug("read %" PRId64 " bytes of %d files for %" PRId64 " bytes of tensors",
                 read.bytes_read, read.files, read.bytes_taken);
    for (int i = 0; st == GW_OK && i < n; i++) {
        int64_t row = columns_of(t[i].ndim, t[i].dims) * gw_dtype_bits(t[i].dtype) / 8;
        const gw_ckpt_tensor *to = &s->tensors[i];
        int64_t rows = first[i] ? rows_of(to) : 0;
        for (int64_t k = 0; k < rows; k++)
            memcpy((char *)to->data + k * row, t[i].data, (size_t)row);
    }
    s->spread_statistics = taken > 0;
    if (st == GW_OK && taken > 0)
        gw_log_warn("each rank kept running statistics of its own, and there were more or fewer of "
                    "them: all begin from those of rank 0");
    gw_arena_release(&mem);
    return st;
}

/* ---- conversions ---- */

gw_status gw_session_judge_conversion(const gw_session *s, const char *path, gw_diags *dg) {
    for (int i = 0; i < s->ntensors; i++) {
        const gw_ckpt_conversion *c = &s->conversions[i];
        if (!c->done || c->overflowed == 0) continue;
        gw_status st =
            GW_FAIL(dg, GW_ERR_NUMERIC, "checkpoint-precision",
                    "%s: %" PRId64 " element%s of '%s' %s too large for %s", path, c->overflowed,
                    c->overflowed > 1 ? "s" : "", s->tensors[i].name,
                    c->overflowed > 1 ? "are" : "is", gw_dtype_name(s->tensors[i].dtype));
        gw_diag_hint(dg, dg ? dg->last : NULL,
                     "it is %s in the checkpoint: go on with precision.master or "
                     "precision.moments float32",
                     gw_dtype_name(c->from));
        return st;
    }
    return GW_OK;
}

/* One kind of conversion, with how many tensors it befell. */
typedef struct kind {
    bool state;
    gw_dtype from, to;
    int tensors;
} kind;

/* Counts tensor i of the checkpoint's dtype `from`. */
static void count_kind(kind *kinds, int *n, bool state, gw_dtype from, gw_dtype to) {
    int k = 0;
    while (k < *n && (kinds[k].state != state || kinds[k].from != from || kinds[k].to != to)) k++;
    if (k == *n) kinds[(*n)++] = (kind){state, from, to, 0};
    kinds[k].tensors++;
}

/* Of all tensors, those of other stages too. There are three floats, so twelve kinds at most. */
static int list_kinds(const gw_session *s, const gw_ckpt_manifest *m, kind kinds[12]) {
    gw_smap params = {0}, there = {0};
    uint32_t k;
    int n = 0;
    for (int i = 0; i < s->setup.nparams; i++) gw_smap_put_c(&params, s->setup.params[i].name, 0);
    for (int i = 0; i < m->ntensors; i++) gw_smap_put_c(&there, m->tensors[i].name, (uint32_t)i);
    for (int i = 0; i < s->ntensors; i++) {
        const gw_ckpt_tensor *t = &s->tensors[i];
        if (!gw_smap_find_c(&there, t->name, &k)) continue;
        gw_dtype from = m->tensors[k].dtype;
        uint32_t none;
        if (gw_ckpt_converts(from, t->dtype))
            count_kind(kinds, &n, !gw_smap_find_c(&params, t->name, &none), from, t->dtype);
    }
    gw_smap_release(&params);
    gw_smap_release(&there);
    return n;
}

/* Elements of all ranks that became 0; what several hold counts once. */
static gw_status count_vanished(const gw_session *s, double *out, gw_diags *dg) {
    *out = 0;
    for (int i = 0; i < s->ntensors; i++)
        if (!s->tensors[i].away && gw_ckpt_tells(&s->tensors[i]))
            *out += (double)s->conversions[i].vanished;
    return gw_ranks_add_f64(s->comm, out, 1, "what was rounded to 0", dg);
}

gw_status gw_session_tell_conversion(const gw_session *s, const gw_ckpt_manifest *m, gw_diags *dg) {
    kind kinds[12];
    int n = list_kinds(s, m, kinds);
    bool exact = true;
    double vanished;
    gw_str text = {0};
    if (n == 0) return GW_OK;
    GW_TRY(count_vanished(s, &vanished, dg));
    if (gw_ranks_me(s->comm) != 0) return GW_OK;
    for (int i = 0; i < n; i++) {
        gw_str_printf(&text, "%s%d %s%s %s -> %s", i ? ", " : "", kinds[i].tensors,
                      kinds[i].state ? "optimizer state" : "parameter",
                      kinds[i].tensors > 1 ? "s" : "", gw_dtype_name(kinds[i].from),
                      gw_dtype_name(kinds[i].to));
        exact = exact && gw_ckpt_widens(kinds[i].from, kinds[i].to);
    }
    if (exact)
        gw_log_info("converted from the checkpoint: %s, exactly", gw_str_c(&text));
    else if (vanished > 0)
        gw_log_warn("converted from the checkpoint: %s, rounded to nearest even; %.0f elements "
                    "became 0",
                    gw_str_c(&text), vanished);
    else
        gw_log_info("converted from the checkpoint: %s, rounded to nearest even", gw_str_c(&text));
    gw_str_release(&text);
    return GW_OK;
}

/* ---- the scale of the loss ---- */

/* Did the run scale whose checkpoint this is? */
static bool had_scale(const gw_ckpt_meta *m) {
    gw_runfile was;
    gw_diags quiet;
    gw_diags_init(&quiet);
    gw_status st =
        gw_runfile_parse(&was, "config", m->config, (int64_t)strlen(m->config), NULL, 0, &quiet);
    bool had = st == GW_OK && was.precision.compute == GW_RF_FP16;
    gw_runfile_release(&was);
    gw_diags_release(&quiet);
    return had;
}

void gw_session_take_scale(gw_session *s, const gw_ckpt_meta *m) {
    bool had = had_scale(m), begun = m->batch > 0;
    s->scaler = gw_scaler_of(s->rf);
    if (s->scaler.active && had) {
        if (s->scaler.dynamic) s->scaler.scale = m->loss_scale;
        s->scaler.good_steps = m->good_steps;
        s->scaler.bad_steps = m->bad_steps;
    } else if (s->scaler.active && begun) {
        gw_log_info("the checkpoint's run did not scale its loss: the scale begins at %g",
                    s->scaler.scale);
    } else if (had && begun && *s->data_hash) {
        gw_log_info("the checkpoint's loss scale of %g is let go: this run does not scale",
                    m->loss_scale);
    }
}
