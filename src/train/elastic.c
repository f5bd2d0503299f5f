// SPDX-License-Identifier: Apache-2.0
// More or fewer ranks: what a step takes stays, how it is shared out changes.
//
// A step is micro_batch x accumulate x dp samples. When a run goes on with another number of ranks,
// the product is what makes it the same run: learning rate, schedule and every loss belong to it.
// The micro-batch is what fits into a rank's memory, and dp is what the ranks are, so accumulation
// is what gives way. Sums are then taken in another order, and nothing else changes: samples have
// numbers, a checkpoint says at which one the next step begins, and a step takes the next ones
// whoever computes them.
//
// The run file is read before anything else is, so the batch of the checkpoint is looked up first,
// in its manifest; accumulation then comes in as one more --set. The first reading of the file, as
// it stands, tells how many data-parallel ranks it makes of those that there are. Its complaints
// are those of the second reading too, but for the batch that does not add up, which is what is
// being mended.
//
// Which numbers of ranks would do is not worked out but tried: the run file is loaded for them, and
// all its own rules (replicas, experts, schedules of a pipeline) have their say.
#include "train/elastic.h"

#include <inttypes.h>
#include <string.h>

#include "base/str.h"        /* gw_str */
#include "ckpt/checkpoint.h" /* gw_checkpoint_list */
#include "train/session.h"   /* gw_session_checkpoints_of */

enum { MOST_TRIES = 16, MOST_DP = 1 << 20 };

gw_elastic_batch gw_elastic_of(const gw_runfile *rf) {
    return (gw_elastic_batch){rf->train.global_batch, rf->train.micro_batch, rf->layout.dp};
}

/* ---- the checkpoint ---- */

static bool batch_of(const gw_ckpt_found *f, gw_arena *mem, gw_elastic_batch *out, gw_diags *dg) {
    gw_ckpt_manifest *m = NULL;
    gw_runfile rf;
    if (f->state != GW_CKPT_COMPLETE || gw_checkpoint_read(f->path, mem, &m, dg) != GW_OK)
        return false;
    gw_status st = gw_runfile_parse(&rf, f->path, m->meta.config, (int64_t)strlen(m->meta.config),
                                    NULL, 0, dg);
    if (st == GW_OK) *out = gw_elastic_of(&rf);
    gw_runfile_release(&rf);
    return st == GW_OK;
}

gw_elastic_batch gw_elastic_look(const char *run_dir, int64_t *step) {
    gw_elastic_batch was = {0};
    gw_arena mem = {0};
    gw_ckpt_list list = {0};
    gw_diags faults;
    gw_diags_init(&faults);
    if (step) *step = -1;
    if (gw_checkpoint_list(gw_session_checkpoints_of(run_dir, &mem), &mem, &list, &faults) != GW_OK)
        list.n = 0;
    for (int i = 0; i < list.n && was.global == 0; i++)
        if (batch_of(&list.items[i], &mem, &was, &faults) && step) *step = list.items[i].step;
    gw_diags_release(&faults);
    gw_arena_release(&mem);
    return was;
}

/* ---- the run file ---- */

/* How the ranks share a batch. */
typedef struct share {
    int64_t micro, accumulate;
} share;

/* Reads the run file; with `s`, its accumulation instead of the given one. */
static gw_status parse(const gw_elastic_source *src, int64_t ranks, const share *s, gw_runfile *rf,
                       gw_diags *dg) {
    gw_arena mem = {0};
    const char **sets = gw_arena_new(&mem, const char *, src->nsets + 3);
    int n = src->nsets;
    for (int i = 0; i < n; i++) sets[i] = src->sets[i];
    if (src->any_dp) sets[n++] = "layout.dp=auto";
    if (s && s->micro > 0)
        sets[n++] = gw_arena_printf(&mem, "train.micro_batch=%" PRId64, s->micro);
    if (s) sets[n++] = gw_arena_printf(&mem, "train.accumulate=%" PRId64, s->accumulate);
    gw_status st = gw_runfile_parse_for(rf, src->name, src->text, src->len, sets, n, ranks, dg);
    gw_arena_release(&mem);
    return st;
}

/* With so many data-parallel ranks, what would make up the batch? False: nothing does. A
 * micro-batch that is given stays given. */
static bool share_out(const gw_runfile *rf, gw_elastic_batch was, int64_t dp, share *s) {
    bool given = gw_runfile_is_set(rf, "train.micro_batch");
    int64_t micro = given ? rf->train.micro_batch : was.micro;
    if (micro < 1 || dp < 1 || micro > was.global || was.global % micro != 0) return false;
    *s = (share){given ? 0 : micro, was.global / micro / dp};
    return was.global / micro % dp == 0;
}

/* Does the run file load for dp such ranks, and keep the batch? */
static bool would_do(const gw_elastic_source *src, const gw_runfile *rf, gw_elastic_batch was,
                     int64_t dp) {
    gw_elastic_source free_dp = *src;
    gw_runfile trial;
    gw_diags faults;
    share s;
    if (!share_out(rf, was, dp, &s)) return false;
    int64_t each = gw_runfile_ranks(rf) / rf->layout.dp;
    free_dp.any_dp = true;
    gw_diags_init(&faults);
    gw_status st = parse(&free_dp, each * dp, &s, &trial, &faults);
    bool keeps = st == GW_OK && trial.train.global_batch == was.global;
    gw_runfile_release(&trial);
    gw_diags_release(&faults);
    return keeps;
}

/* The nearest number of data-parallel ranks beyond rf's own, by `by` (-1, 1); 0: none. */
static int64_t nearest(const gw_elastic_source *src, const gw_runfile *rf, gw_elastic_batch was,
                       int by) {
    share s;
    int tries = 0;
    int64_t most = GW_MIN(was.global, (int64_t)MOST_DP);
    int64_t first = by < 0 ? GW_MIN(rf->layout.dp - 1, most) : rf->layout.dp + 1;
    for (int64_t dp = first; dp >= 1 && dp <= most; dp += by) {
        if (!share_out(rf, was, dp, &s)) continue;
        if (would_do(src, rf, was, dp)) return dp;
        if (++tries == MOST_TRIES) return 0;
    }
    return 0;
}

static gw_status refuse(const gw_elastic_source *src, const gw_runfile *rf, gw_elastic_batch was,
                        gw_diags *dg) {
    int64_t dp = rf->layout.dp, each = gw_runfile_ranks(rf) / dp;
    int64_t micro = gw_runfile_is_set(rf, "train.micro_batch") ? rf->train.micro_batch : was.micro;
    int64_t less = nearest(src, rf, was, -1), more = nearest(src, rf, was, 1);
    gw_diag *g =
        gw_runfile_error(rf, dg, "layout.dp", "resume-batch",
                         "a step of the run has a global batch of %" PRId64 ", which %" PRId64
                         " data-parallel rank%s with micro-batches of %" PRId64 " cannot make up",
                         was.global, dp, dp == 1 ? "" : "s", micro);
    gw_str fix = {0};
    if (less > 0 && more > 0)
        gw_str_printf(&fix,
                      "%" PRId64 " or %" PRId64 " data-parallel ranks do (--ranks %" PRId64
                      " or %" PRId64 "); ",
                      less, more, each * less, each * more);
    else if (less > 0 || more > 0)
        gw_str_printf(&fix, "%" PRId64 " data-parallel rank%s do%s (--ranks %" PRId64 "); ",
                      less + more, less + more == 1 ? "" : "s", less + more == 1 ? "es" : "",
                      each * (less + more));
    gw_diag_hint(dg, g, "%sto go on with another batch, set train.global_batch anew",
                 gw_str_c(&fix));
    gw_str_release(&fix);
    return GW_ERR_CONFIG;
}

/* Is the run file as it stands what was meant? A train.accumulate that is another, with everything
 * else as it was, is for the run's own checks to judge. */
static bool stands(const gw_runfile *rf, gw_elastic_batch was) {
    if (rf->train.global_batch == was.global) return true;
    return gw_runfile_is_set(rf, "train.accumulate") && rf->layout.dp == was.dp &&
           rf->train.micro_batch == was.micro;
}

/* Was an accumulation asked for beside all that makes up the batch, and is it another? Then no
 * other one is put in its place. */
static bool contradicts(const gw_runfile *rf, gw_elastic_batch was) {
    const char *from = gw_runfile_where(rf, "train.accumulate").file;
    const gw_rf_train *t = &rf->train;
    return gw_runfile_is_set(rf, "train.accumulate") && from && gw_str_starts(from, "--set") &&
           gw_runfile_is_set(rf, "train.micro_batch") && t->micro_batch == was.micro &&
           rf->layout.dp == was.dp;
}

/* What the first reading told is what there is to tell. */
static gw_status keep_first(gw_diags *first, gw_status st, gw_diags *dg) {
    gw_diags_take(dg, first);
    gw_diags_release(first);
    return st;
}

gw_status gw_elastic_load(const gw_elastic_source *src, int64_t ranks, gw_elastic_batch was,
                          gw_runfile *rf, const char **note, gw_diags *dg) {
    gw_diags first;
    share s;
    *note = NULL;
    gw_diags_init(&first);
    gw_status st = parse(src, ranks, NULL, rf, &first);
    bool told = rf->marks && rf->layout.dp >= 1 && (ranks == 0 || gw_runfile_ranks(rf) == ranks);
    bool anew = told && gw_runfile_is_set(rf, "train.global_batch");
    if (was.global == 0 || !told || (st == GW_OK && (anew || stands(rf, was))))
        return keep_first(&first, st, dg);
    if (st != GW_OK && contradicts(rf, was)) return keep_first(&first, st, dg);
    anew = anew && rf->train.global_batch != was.global;
    if (anew) was.global = rf->train.global_batch;
    if (!share_out(rf, was, rf->layout.dp, &s)) {
        gw_diags_release(&first);
        return refuse(src, rf, was, dg);
    }
    gw_diags_release(&first);
    gw_runfile_release(rf);
    GW_TRY(parse(src, ranks, &s, rf, dg));
    *note = gw_arena_printf(&rf->arena,
                            "train.accumulate is %" PRId64 " with %" PRId64
                            " data-parallel rank%s: %s global batch of %" PRId64,
                            s.accumulate, rf->layout.dp, rf->layout.dp == 1 ? "" : "s",
                            anew ? "for the new" : "the run keeps its", was.global);
    return GW_OK;
}

int64_t gw_elastic_fewer(const gw_elastic_source *src, int64_t ranks, gw_elastic_batch was) {
    gw_runfile rf;
    gw_diags faults;
    gw_elastic_source free_dp = *src;
    free_dp.any_dp = true;
    gw_diags_init(&faults);
    gw_status st = parse(&free_dp, ranks, NULL, &rf, &faults);
    bool told = rf.marks && rf.layout.dp >= 1 && gw_runfile_ranks(&rf) == ranks;
    int64_t dp = 0, each = told ? ranks / rf.layout.dp : 0;
    if (was.global == 0 && st == GW_OK) was = gw_elastic_of(&rf);
    if (told && was.global > 0) dp = nearest(&free_dp, &rf, was, -1);
    gw_runfile_release(&rf);
    gw_diags_release(&faults);
    return dp * each;
}
