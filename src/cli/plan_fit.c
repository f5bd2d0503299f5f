// SPDX-License-Identifier: Apache-2.0
// The smallest change that would make a run fit, found by compiling each.
//
// Changes are tried in the order of what they cost the person: fewer batches prepared ahead (next
// to nothing; known without compiling, and tried again beside every other change that falls short
// by no more than them), of data-parallel ranks optimizer states and gradients cut over them (the
// same bytes on the wire), recomputation (time), parameters cut over them (half as many bytes more
// on the wire, or many times that with several micro-batches), smaller micro-batches with as many
// more of them (the same step, a little slower), both, shorter sequences (another training), fewer
// bytes a number (another rounding), all together. The first that fits is the answer; what was
// tried before it shows why nothing less would do. The total is that of the ledger, so a change
// that is said to fit does.
//
// No change takes parameters, master copy, moments and the batch of the step away. Where they alone
// exceed the memory the compilation is left out, so that the question is answered at once for a
// model a thousand times too large.
//
// Of a pipeline the largest rank decides, and other micro-batches have a schedule of their own; a
// number of them that the schedule does not take is left out.
#include "cli/plan_fit.h"

#include <string.h>

#include "cli/planarg.h" /* gw_target_ledger */
#include "data/loader.h" /* gw_loader_bytes_for */
#include "train/feed.h"  /* gw_feed_bytes */

/* A run as far as changes reach. */
typedef struct variant {
    gw_recompute_kind recompute;
    int64_t micro, accumulate, seq, prefetch, zero;
    gw_dtype compute, gradients, master, moments;
} variant;

static bool of_images(const gw_setup *s) { return s->model.family == GW_FAMILY_RESNET; }

static variant variant_of(const gw_setup *s) {
    return (variant){.recompute = s->train.recompute.kind,
                     .micro = s->rf->train.micro_batch,
                     .accumulate = s->rf->train.accumulate,
                     .seq = s->rf->train.seq_len,
                     .prefetch = of_images(s) ? 0 : s->rf->data.prefetch_steps,
                     .zero = s->rf->layout.zero,
                     .compute = s->train.compute,
                     .gradients = s->train.gradients,
                     .master = s->train.master,
                     .moments = s->train.moments};
}

static const char *policy_name(gw_recompute_kind k) {
    return k == GW_RECOMPUTE_FULL ? "full" : "selective";
}

static void describe(const variant *a, const variant *v, char *out, size_t n) {
    gw_str s = {0};
    if (v->prefetch != a->prefetch)
        gw_str_printf(&s, "data.prefetch_steps=%lld ", (long long)v->prefetch);
    if (v->zero != a->zero) gw_str_printf(&s, "layout.zero=%lld ", (long long)v->zero);
    if (v->recompute != a->recompute)
        gw_str_printf(&s, "recompute.policy=%s ", policy_name(v->recompute));
    if (v->micro != a->micro)
        gw_str_printf(&s, "train.micro_batch=%lld train.accumulate=%lld ", (long long)v->micro,
                      (long long)v->accumulate);
    if (v->seq != a->seq) gw_str_printf(&s, "train.seq_len=%lld ", (long long)v->seq);
    if (v->compute != a->compute) gw_str_add(&s, "precision.compute=bf16 ");
    if (v->gradients != a->gradients) gw_str_add(&s, "precision.gradients=compute ");
    if (v->moments != a->moments) gw_str_add(&s, "precision.moments=compute ");
    if (v->master != a->master) gw_str_add(&s, "precision.master=none ");
    if (s.len) s.data[s.len - 1] = 0;
    snprintf(out, n, "%s", gw_str_c(&s));
    gw_str_release(&s);
}

/* Parameters and states of the variant, on one rank: never more than they will be. */
static int64_t persistent_bytes(const gw_ledger *l, const variant *v) {
    int64_t master = gw_dtype_bits(v->master) / 8, moment = gw_dtype_bits(v->moments) / 8;
    int64_t sum = 0;
    for (int i = 0; i < l->nkinds; i++) {
        const gw_ledger_kind *k = &l->kinds[i];
        int64_t over = v->zero > 0 ? GW_MAX(l->dp, k->optimizer_over) : k->optimizer_over;
        sum += k->params * (master + moment * k->nstates) / (k->cut * over);
    }
    return sum;
}

/* The schedule of a pipeline for other micro-batches; false: it takes no such number. */
static bool reschedule(gw_setup *s, const gw_runfile *rf, gw_schedule *made, gw_arena *mem) {
    gw_diags unsaid;
    if (!s->schedule || s->schedule->micro_batches == rf->train.accumulate) return true;
    gw_diags_init(&unsaid);
    bool ok = gw_setup_schedule(rf, NULL, mem, made, &unsaid) == GW_OK;
    gw_diags_release(&unsaid);
    s->schedule = s->train.layout.schedule = s->forward.layout.schedule = made;
    return ok;
}

/* The same run with state cut over more ranks: its layout is read anew. False: refused. */
static bool set_up_again(const gw_setup *s, gw_runfile *rf, gw_setup *out) {
    gw_diags unsaid;
    gw_diags_init(&unsaid);
    bool ok = gw_setup_init(out, rf, false, &unsaid) == GW_OK;
    if (ok && gw_setup_ranks(out, NULL, &unsaid) != GW_OK) {
        gw_setup_release(out);
        ok = false;
    }
    gw_diags_release(&unsaid);
    if (!ok) return false;
    out->train.workspace = out->forward.workspace = s->train.workspace;
    out->train.workspace_user = out->forward.workspace_user = s->train.workspace_user;
    return true;
}

/* `changed` with all of v but what is cut: *total stays 0 where the pipeline has no schedule. */
static gw_status compile_changed(gw_setup changed, const gw_runfile *as, const variant *v,
                                 int64_t *total, gw_diags *dg) {
    gw_schedule made;
    gw_arena mem = {0};
    gw_runfile rf = *as;
    changed.rf = &rf;
    rf.train.micro_batch = v->micro;
    rf.train.accumulate = v->accumulate;
    rf.train.seq_len = v->seq;
    rf.data.prefetch_steps = v->prefetch;
    changed.train.micro_batches = (int)v->accumulate;
    changed.train.recompute.kind = v->recompute;
    gw_compile_opts *both[2] = {&changed.train, &changed.forward};
    for (int i = 0; i < 2; i++) {
        both[i]->compute = v->compute;
        both[i]->gradients = v->gradients;
        both[i]->master = v->master;
        both[i]->moments = v->moments;
    }
    gw_ledger l;
    gw_status st = GW_OK;
    if (reschedule(&changed, &rf, &made, &mem)) {
        st = gw_target_ledger(&changed, &l, dg);
        if (st == GW_OK) {
            *total = l.total_bytes;
            gw_ledger_release(&l);
        }
    }
    gw_arena_release(&mem);
    return st;
}

/* *total stays 0 where the layout or the schedule is refused. */
static gw_status compile(const gw_setup *s, const variant *v, int64_t *total, gw_diags *dg) {
    gw_runfile rf = *s->rf;
    gw_setup again;
    *total = 0;
    rf.layout.zero = v->zero;
    if (v->zero == s->rf->layout.zero) return compile_changed(*s, &rf, v, total, dg);
    if (!set_up_again(s, &rf, &again)) return GW_OK;
    gw_status st = compile_changed(again, &rf, v, total, dg);
    gw_setup_release(&again);
    return st;
}

typedef struct search {
    gw_fit *f;
    const gw_setup *s;
    const gw_ledger *l;
    variant as_it_is, answer;
    bool found;
    gw_diags *dg;
} search;

/* Bytes of the batches that the loader holds. */
static int64_t ring_bytes(const search *q, const variant *v) {
    if (of_images(q->s)) return gw_feed_bytes(&q->s->model, v->micro, q->s->rf->data.valid != NULL);
    gw_loader_options ring = {.micro_batch = v->micro,
                              .accumulate = v->accumulate,
                              .dp_size = q->s->rf->layout.dp,
                              .prefetch = v->prefetch};
    return gw_loader_bytes_for(v->seq, &ring);
}

/* Puts down what is known of a variant. False when there is nothing to put down: it is the run as
 * it is, it stands there already, or the list is full. */
static bool new_try(const search *q, const variant *v, gw_fit_try *t) {
    variant a = q->as_it_is;
    *t = (gw_fit_try){0};
    describe(&a, v, t->change, sizeof t->change);
    if (q->found || q->f->ntries == GW_FIT_TRIES || t->change[0] == 0) return false;
    for (int i = 0; i < q->f->ntries; i++)
        if (strcmp(q->f->tries[i].change, t->change) == 0) return false;
    return true;
}

static void note(search *q, const variant *v, gw_fit_try t) {
    t.fits = !t.at_least && t.total_bytes <= q->f->available_bytes;
    q->found = t.fits;
    if (t.fits) q->answer = *v;
    q->f->tries[q->f->ntries++] = t;
}

/* The batches prepared ahead are outside the program: what v takes without them follows from
 * `total`, what it takes with them. Put down only where it is enough. */
static void drop_ahead(search *q, const variant *v, int64_t total) {
    variant less = *v;
    less.prefetch = 0;
    gw_fit_try t;
    int64_t without = total - ring_bytes(q, v) + ring_bytes(q, &less);
    if (v->prefetch == 0 || without > q->f->available_bytes || !new_try(q, &less, &t)) return;
    t.total_bytes = without;
    note(q, &less, t);
}

/* Tries v, and where it falls short by no more than the batches prepared ahead, v without them. */
static gw_status attempt(search *q, const variant *v) {
    gw_fit_try t;
    if (!new_try(q, v, &t)) return GW_OK;
    variant least = *v;
    least.prefetch = 0;
    t.total_bytes = persistent_bytes(q->l, v) + ring_bytes(q, &least);
    t.at_least = t.total_bytes > q->f->available_bytes;
    if (!t.at_least) GW_TRY(compile(q->s, v, &t.total_bytes, q->dg));
    if (t.total_bytes == 0) return GW_OK;
    note(q, v, t);
    if (!t.at_least) drop_ahead(q, v, t.total_bytes);
    return GW_OK;
}

/* Up to `most`, from what it is. The last that was tried stays in *v. */
static gw_status try_zero(search *q, variant *v, int64_t most) {
    if (q->s->rf->layout.dp < 2) return GW_OK;
    while (v->zero < most && !q->found) {
        v->zero++;
        GW_TRY(attempt(q, v));
    }
    return GW_OK;
}

static gw_status try_recompute(search *q, variant v) {
    if (v.recompute == GW_RECOMPUTE_NONE && !of_images(q->s)) { /* attention */
        v.recompute = GW_RECOMPUTE_SELECTIVE;
        GW_TRY(attempt(q, &v));
    }
    v.recompute = GW_RECOMPUTE_FULL;
    return attempt(q, &v);
}

/* Memory is a constant and a part that is proportional to micro-batch and length. Two points, the
 * second at half of the first, give the constant: is it too large already? Then halving on is
 * useless. */
static bool useless(const search *q, int64_t before, int64_t after) {
    return before > 0 && after - (before - after) > q->f->available_bytes;
}

static int64_t latest_total(const search *q) {
    const gw_fit_try *t = q->f->ntries ? &q->f->tries[q->f->ntries - 1] : NULL;
    return t && !t->at_least ? t->total_bytes : 0;
}

/* A batch norm needs two images for a variance, where the last stage is a pixel of each. */
static int64_t least_micro(const search *q) { return of_images(q->s) ? 2 : 1; }

/* Smaller micro-batches that divide the given one, so that the step stays what it was. */
static gw_status try_micro_batch(search *q, variant v) {
    int64_t micro = v.micro, accumulate = v.accumulate, before = 0;
    for (int64_t b = micro / 2; b >= least_micro(q) && !q->found; b /= 2) {
        if (micro % b) continue;
        v.micro = b;
        v.accumulate = accumulate * (micro / b);
        GW_TRY(attempt(q, &v));
        if (useless(q, before, latest_total(q))) break;
        before = latest_total(q);
    }
    return GW_OK;
}

static gw_status try_length(search *q, variant v) {
    int64_t before = 0;
    for (v.seq /= 2; v.seq >= 128 && !q->found; v.seq /= 2) {
        GW_TRY(attempt(q, &v));
        if (useless(q, before, latest_total(q))) break;
        before = latest_total(q);
    }
    return GW_OK;
}

/* The answer without what it turns out not to need: cut state, recomputation, then the smaller
 * micro-batch, then the length. */
static gw_status simplify(search *q) {
    for (int part = -1; q->found && part < 3; part++) {
        variant v = q->answer;
        if (part == -1) v.zero = q->as_it_is.zero;
        if (part == 0) v.recompute = q->as_it_is.recompute;
        if (part == 1) v.micro = q->as_it_is.micro, v.accumulate = q->as_it_is.accumulate;
        if (part == 2) v.seq = q->as_it_is.seq;
        int n = q->f->ntries;
        q->found = false;
        GW_TRY(attempt(q, &v));
        if (q->found || q->f->ntries == n) {
            q->found = true;
            continue;
        }
        gw_fit_try *t = q->f->tries; /* the answer stays the last one */
        gw_fit_try failed = t[n];
        t[n] = t[n - 1];
        t[n - 1] = failed;
        q->found = true;
    }
    return GW_OK;
}

/* Fewer bytes a number, one key more each time. The last variant is left in *v. */
static gw_status try_precision(search *q, variant *v) {
    if (v->compute == GW_F32) {
        v->compute = GW_BF16;
        GW_TRY(attempt(q, v));
    }
    v->gradients = v->compute;
    GW_TRY(attempt(q, v));
    v->moments = v->compute;
    GW_TRY(attempt(q, v));
    if (v->compute != GW_BF16) return GW_OK; /* fp16 needs its master copy */
    v->master = GW_BF16;
    return attempt(q, v);
}

gw_status gw_fit_find(gw_fit *f, const gw_setup *s, const gw_ledger *l, int64_t available_bytes,
                      gw_diags *dg) {
    memset(f, 0, sizeof *f);
    f->available_bytes = available_bytes;
    f->short_bytes = GW_MAX(0, l->total_bytes - available_bytes);
    if (f->short_bytes == 0) return GW_OK;
    search q = {.f = f, .s = s, .l = l, .as_it_is = variant_of(s), .dg = dg};
    variant v = q.as_it_is;
    drop_ahead(&q, &v, l->total_bytes);
    GW_TRY(try_zero(&q, &v, 2));
    GW_TRY(try_recompute(&q, v));
    GW_TRY(try_zero(&q, &v, 3));
    GW_TRY(try_recompute(&q, v));
    GW_TRY(try_micro_batch(&q, v));
    v.recompute = GW_RECOMPUTE_FULL;
    GW_TRY(try_micro_batch(&q, v));
    if (v.micro % least_micro(&q) == 0) {
        v.accumulate *= v.micro / least_micro(&q);
        v.micro = least_micro(&q);
    }
    GW_TRY(try_length(&q, v));
    GW_TRY(try_precision(&q, &v));
    GW_TRY(try_length(&q, v));
    return simplify(&q);
}
