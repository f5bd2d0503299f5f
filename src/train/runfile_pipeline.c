// SPDX-License-Identifier: Apache-2.0
// The pipeline of a run file: is there a schedule for these stages and micro-batches, and are there
// layers for the stages?
//
// Three numbers make a pipeline: ranks (layout.pp), stages a rank (layout.virtual_stages) and
// micro-batches of a step (train.accumulate). A kind of schedule says which of them it takes, and
// what is nearest where it does not; a schedule that a user wrote has fixed all three, and is read
// here, so that what the file leaves open can follow from it. The number of layers comes from the
// model: of a family or a preset it is known at once, of a model directory when that was read.
//
// While the number of ranks is open, so may be that of micro-batches (of a given global batch);
// then only what does not hang on it is asked.
#include <string.h> /* strncmp */

#include "base/io.h"           /* gw_path_exists */
#include "sched/sched.h"       /* gw_sched_admits, gw_schedule_read */
#include "train/runfile_key.h" /* gw_rf_keys */

#define LL(x) ((long long)(x))

static const char file_prefix[] = "file:";

static const gw_rf_mark *mark(const gw_runfile *rf, const char *key) {
    return &rf->marks[gw_rf_key_find(key)];
}

static bool is_bad(const gw_runfile *rf, const char *key) { return mark(rf, key)->bad; }

static bool is_set(const gw_runfile *rf, const char *key) { return mark(rf, key)->set; }

static void mark_bad(gw_runfile *rf, const char *key) { rf->marks[gw_rf_key_find(key)].bad = true; }

const char *gw_runfile_schedule_file(const gw_runfile *rf) {
    const char *s = rf->layout.schedule;
    size_t n = sizeof file_prefix - 1;
    return s && strncmp(s, file_prefix, n) == 0 ? s + n : NULL;
}

/* Of two keys that do not fit, the one that was given. */
static const char *blame(const gw_runfile *rf, const char *a, const char *b) {
    return is_set(rf, a) || !is_set(rf, b) ? a : b;
}

static int64_t stages_of(const gw_runfile *rf) { return rf->layout.pp * rf->layout.virtual_stages; }

/* Is the number of micro-batches settled, or does it hang on ranks that are still to be told? */
static bool knows_micro_batches(const gw_runfile *rf) {
    bool open = rf->dp_auto && rf->ranks == 0 && is_set(rf, "train.global_batch");
    if (is_bad(rf, "train.accumulate") || is_bad(rf, "train.micro_batch") ||
        is_bad(rf, "train.global_batch") || is_bad(rf, "layout.dp"))
        return false;
    return is_set(rf, "train.accumulate") || !open;
}

// ------------------------------------------------------------------ a schedule with a name

static void unknown_schedule(gw_runfile *rf, gw_diags *dg) {
    gw_str all = {0};
    const char *meant = NULL;
    int limit = 3;
    for (int i = 0; gw_sched_kind_at(i); i++) {
        const char *name = gw_sched_kind_at(i)->name;
        int d = gw_str_distance(name, rf->layout.schedule);
        gw_str_printf(&all, "%s, ", name);
        if (d >= limit) continue;
        limit = d;
        meant = name;
    }
    gw_diag *g = gw_runfile_error(rf, dg, "layout.schedule", "config-value",
                                  "there is no schedule '%.60s'", rf->layout.schedule);
    gw_diag_detail(dg, g, "schedules: %sfile:PATH", gw_str_c(&all));
    if (meant) gw_diag_hint(dg, g, "did you mean %s?", meant);
    gw_str_release(&all);
    mark_bad(rf, "layout.schedule");
}

/* The key that is furthest from what the schedule takes, and what to write there. */
static void refuse_request(gw_runfile *rf, const gw_sched_request *r, const char *why,
                           const gw_sched_request *near, gw_diags *dg) {
    bool v = near->virtual_stages != r->virtual_stages, m = near->micro_batches != r->micro_batches;
    const char *key = near->ranks != r->ranks ? "layout.pp"
                      : v ? blame(rf, "layout.virtual_stages", "layout.schedule")
                      : m ? blame(rf, "train.accumulate", "layout.schedule")
                          : blame(rf, "layout.schedule_memory", "layout.schedule");
    gw_diag *g = gw_runfile_error(rf, dg, key, "config-layout", "layout.schedule %s: %s",
                                  rf->layout.schedule, why);
    gw_str fix = {0};
    if (near->ranks != r->ranks) gw_str_printf(&fix, "layout.pp: %d", near->ranks);
    if (v)
        gw_str_printf(&fix, "%slayout.virtual_stages: %d", fix.len ? " and " : "",
                      near->virtual_stages);
    if (m)
        gw_str_printf(&fix, "%strain.accumulate: %d", fix.len ? " and " : "", near->micro_batches);
    if (near->memory > r->memory && r->memory > 0)
        gw_str_printf(&fix, "%slayout.schedule_memory: %g", fix.len ? " and " : "", near->memory);
    if (fix.len)
        gw_diag_hint(dg, g, "the nearest that works: %s", gw_str_c(&fix));
    else
        gw_diag_hint(dg, g, "choose another schedule");
    gw_str_release(&fix);
    mark_bad(rf, key);
}

static void check_named(gw_runfile *rf, gw_diags *dg) {
    gw_rf_layout *l = &rf->layout;
    const gw_sched_kind *k = gw_sched_kind_find(l->schedule);
    if (!k) {
        unknown_schedule(rf, dg);
        return;
    }
    bool given = is_set(rf, "layout.virtual_stages");
    if (!given) l->virtual_stages = k->made_for;
    if (is_bad(rf, "layout.virtual_stages") || is_bad(rf, "layout.schedule_memory")) return;
    gw_sched_request r = {.ranks = (int)l->pp,
                          .virtual_stages = (int)l->virtual_stages,
                          .memory = k->searches ? l->schedule_memory : 0};
    int64_t any = GW_MIN(2 * stages_of(rf), (int64_t)GW_SCHED_MAX_MICRO);
    r.micro_batches =
        (int32_t)(knows_micro_batches(rf) ? GW_MIN(rf->train.accumulate, INT32_MAX) : any);
    gw_arena mem = {0};
    const char *why = NULL;
    gw_sched_request near;
    if (!gw_sched_admits(k, &r, &mem, &why, &near)) refuse_request(rf, &r, why, &near, dg);
    gw_arena_release(&mem);
}

// ------------------------------------------------------------------ a schedule in a file

static void refuse_file(gw_runfile *rf, const char *key, int64_t is, int64_t want,
                        const char *of_what, gw_diags *dg) {
    gw_diag *g = gw_runfile_error(rf, dg, key, "config-layout",
                                  "%s is %lld, and the schedule in '%s' is for %lld %s", key,
                                  LL(is), gw_runfile_schedule_file(rf), LL(want), of_what);
    gw_diag_hint(dg, g, "write %s: %lld, or another schedule", key, LL(want));
    mark_bad(rf, key);
}

static void compare_file(gw_runfile *rf, const gw_schedule *s, gw_diags *dg) {
    gw_rf_layout *l = &rf->layout;
    int64_t each = (s->stages + s->ranks - 1) / s->ranks;
    bool given = is_set(rf, "layout.virtual_stages") && !is_bad(rf, "layout.virtual_stages");
    if (s->ranks != l->pp) refuse_file(rf, "layout.pp", l->pp, s->ranks, "ranks", dg);
    if (given && l->virtual_stages != each)
        refuse_file(rf, "layout.virtual_stages", l->virtual_stages, each, "stages a rank", dg);
    if (!given) l->virtual_stages = each;
    if (knows_micro_batches(rf) && rf->train.accumulate != s->micro_batches)
        refuse_file(rf, "train.accumulate", rf->train.accumulate, s->micro_batches, "micro-batches",
                    dg);
    if (s->stages % s->ranks == 0) return;
    gw_diag *g = gw_runfile_error(rf, dg, "layout.schedule", "config-layout",
                                  "the schedule in '%s' has %d stages on %d ranks",
                                  gw_runfile_schedule_file(rf), s->stages, s->ranks);
    gw_diag_hint(dg, g, "each rank holds as many stages: write %lld of them", LL(each * s->ranks));
    mark_bad(rf, "layout.schedule");
}

static void check_file(gw_runfile *rf, gw_diags *dg) {
    const char *path = gw_runfile_schedule_file(rf);
    if (!is_set(rf, "layout.virtual_stages")) rf->layout.virtual_stages = 1;
    if (!*path || !gw_path_exists(path)) {
        gw_diag *g = gw_runfile_error(rf, dg, "layout.schedule", "file-open",
                                      "layout.schedule: there is no '%s'", path);
        gw_diag_hint(dg, g, "name a file with a schedule as text, or a schedule such as 1f1b");
        mark_bad(rf, "layout.schedule");
        return;
    }
    gw_arena mem = {0};
    gw_schedule s;
    if (gw_schedule_read(path, &mem, &s, dg) == GW_OK)
        compare_file(rf, &s, dg);
    else
        mark_bad(rf, "layout.schedule");
    gw_arena_release(&mem);
}

// ------------------------------------------------------------------ layers

static void check_list(gw_runfile *rf, gw_diags *dg) {
    const gw_rf_counts *l = &rf->layout.stages;
    int64_t n = stages_of(rf);
    if (l->count == 0 || is_bad(rf, "layout.stages")) return;
    for (int64_t i = 1; i + 1 < l->count; i++) {
        if (l->items[i] > 0) continue;
        gw_diag *g = gw_runfile_error(rf, dg, "layout.stages", "config-layout",
                                      "layout.stages gives stage %lld no layer", LL(i));
        gw_diag_hint(dg, g,
                     "only the first stage, which has the embedding, and the last, which has "
                     "the head, may have none");
        mark_bad(rf, "layout.stages");
    }
    if (l->count == n || is_bad(rf, "layout.virtual_stages") || is_bad(rf, "layout.schedule"))
        return;
    gw_diag *g =
        gw_runfile_error(rf, dg, "layout.stages", "config-layout",
                         "layout.stages lists %lld stages, and layout.pp %lld x "
                         "layout.virtual_stages %lld make %lld",
                         LL(l->count), LL(rf->layout.pp), LL(rf->layout.virtual_stages), LL(n));
    gw_diag_hint(dg, g, "list %lld numbers, in the order of the layers, or write auto", LL(n));
    mark_bad(rf, "layout.stages");
}

static void check_sum(const gw_runfile *rf, int64_t layers, gw_diags *dg) {
    const gw_rf_counts *l = &rf->layout.stages;
    int64_t sum = 0;
    for (int64_t i = 0; i < l->count; i++) sum += l->items[i];
    if (sum == layers) return;
    gw_diag *g = gw_runfile_error(rf, dg, "layout.stages", "config-layout",
                                  "layout.stages adds up to %lld layers, and the model has %lld",
                                  LL(sum), LL(layers));
    gw_diag_hint(dg, g, "take %lld %s some stage, or write auto",
                 LL(sum > layers ? sum - layers : layers - sum),
                 sum > layers ? "from" : "more into");
}

void gw_rf_check_stages(const gw_runfile *rf, int64_t layers, gw_diags *dg) {
    const gw_rf_layout *l = &rf->layout;
    if (l->pp < 2 || is_bad(rf, "layout.pp") || is_bad(rf, "layout.virtual_stages") ||
        is_bad(rf, "layout.stages") || is_bad(rf, "layout.schedule"))
        return;
    if (l->stages.count > 0) {
        check_sum(rf, layers, dg);
        return;
    }
    int64_t n = stages_of(rf);
    if (layers >= n - 2) return;
    const char *key = blame(rf, "layout.virtual_stages", "layout.pp");
    gw_diag *g = gw_runfile_error(rf, dg, key, "config-layout",
                                  "%lld stages need at least %lld layers, and the model has %lld",
                                  LL(n), LL(n - 2), LL(layers));
    gw_diag_detail(dg, g,
                   "every stage has a layer, but for the first, which has the embedding, and "
                   "the last, which has the head");
    if (l->virtual_stages > 1 && layers + 2 >= 2 * l->pp)
        gw_diag_hint(dg, g, "write layout.virtual_stages: %lld", LL((layers + 2) / l->pp));
    else if (l->virtual_stages > 1)
        gw_diag_hint(dg, g, "write layout.pp: %lld, or a schedule of one stage a rank",
                     LL(GW_MAX(INT64_C(2), (layers + 2) / l->virtual_stages)));
    else
        gw_diag_hint(dg, g, "write layout.pp: %lld, or raise model.layers",
                     LL(GW_MAX(INT64_C(2), layers + 2)));
}

// ------------------------------------------------------------------ all of it

void gw_rf_check_pipeline(gw_runfile *rf, gw_diags *dg) {
    gw_rf_layout *l = &rf->layout;
    if (l->pp == 1 || is_bad(rf, "layout.pp")) {
        if (!is_set(rf, "layout.virtual_stages") || is_bad(rf, "layout.virtual_stages"))
            l->virtual_stages = 1;
        return;
    }
    if (is_bad(rf, "layout.virtual_stages")) l->virtual_stages = 1;
    if (!is_set(rf, "layout.schedule")) {
        bool several = is_set(rf, "layout.virtual_stages") && l->virtual_stages > 1;
        l->schedule = several ? "interleaved" : "1f1b";
    }
    if (is_bad(rf, "layout.schedule")) return;
    if (gw_runfile_schedule_file(rf))
        check_file(rf, dg);
    else
        check_named(rf, dg);
    check_list(rf, dg);
}
