// SPDX-License-Identifier: Apache-2.0
// How many ranks do what, and whether that is a layout.
//
// Ranks are a product: pp x dp x cp x tp. One factor, dp, may be left to be what remains.
// Everything else of the batch hangs on dp, so it is settled first, and a product that is not that
// of the ranks is the one mistake of which nothing further follows.
//
// The rest are contradictions that any order may find: all of them are reported, each with what to
// write instead. Most can be told from the run file; those that need the model's sizes and the
// names of its parameters are asked as soon as these are known, which for a family or a preset is
// while the run file is read, and for a model directory when it has been. Stages and schedules of a
// pipeline are runfile_pipeline.c's.
#include <stdio.h>  /* snprintf */
#include <string.h> /* strlen */

#include "base/panic.h"        /* GW_ASSERT */
#include "model/placement.h"   /* gw_placement_check */
#include "train/runfile_key.h" /* gw_rf_keys */
#include "train/setup.h"       /* gw_setup_model */

#define LL(x) ((long long)(x))

static const gw_rf_mark *mark(const gw_runfile *rf, const char *key) {
    return &rf->marks[gw_rf_key_find(key)];
}

static bool is_bad(const gw_runfile *rf, const char *key) { return mark(rf, key)->bad; }

static bool given_well(const gw_runfile *rf, const char *key) {
    return mark(rf, key)->set && !mark(rf, key)->bad;
}

static int64_t model_ranks(const gw_runfile *rf) {
    return rf->layout.pp * rf->layout.tp * rf->layout.cp;
}

int64_t gw_runfile_stage_ranks(const gw_runfile *rf) {
    return rf->layout.dp * rf->layout.tp * rf->layout.cp;
}

int64_t gw_runfile_ranks(const gw_runfile *rf) { return rf->layout.dp * model_ranks(rf); }

int64_t gw_runfile_padded_seq(const gw_runfile *rf) {
    const gw_rf_layout *l = &rf->layout;
    int64_t parts = (l->cp > 1 ? 2 * l->cp : 1) * (l->tp > 1 && l->sequence_parallel ? l->tp : 1);
    return (rf->train.seq_len + parts - 1) / parts * parts;
}

void gw_runfile_describe_cuts(const gw_runfile *rf, gw_str *out) {
    const gw_rf_layout *l = &rf->layout;
    if (l->pp > 1) gw_str_printf(out, ", pp %lld (%s", LL(l->pp), l->schedule);
    if (l->pp > 1 && l->virtual_stages > 1)
        gw_str_printf(out, ", %lld stages a rank", LL(l->virtual_stages));
    if (l->pp > 1) gw_str_add(out, ")");
    if (l->tp > 1)
        gw_str_printf(out, ", tp %lld%s", LL(l->tp),
                      l->sequence_parallel ? " with sequence parallelism" : "");
    if (l->cp > 1)
        gw_str_printf(out, ", cp %lld (%s", LL(l->cp), gw_runfile_word(rf, "layout.cp_mode"));
    if (l->cp > 1 && l->cp_mode == GW_RF_CP_HYBRID)
        gw_str_printf(out, ", %lld exchange heads", LL(l->cp_ulysses));
    if (l->cp > 1) gw_str_add(out, ")");
    if (l->ep > 1) gw_str_printf(out, ", ep %lld", LL(l->ep));
}

// ------------------------------------------------------------------ the product

/* Ranks are not known: what makes the batch add up, if everything else of it is given. */
static int64_t guess_dp(const gw_runfile *rf) {
    const gw_rf_train *t = &rf->train;
    int64_t one = 0;
    if (!given_well(rf, "train.global_batch") || !given_well(rf, "train.micro_batch") ||
        !given_well(rf, "train.accumulate") ||
        __builtin_mul_overflow(t->micro_batch, t->accumulate, &one) || t->global_batch % one != 0)
        return 1;
    return GW_MIN(GW_MAX(INT64_C(1), t->global_batch / one), (int64_t)(1 << 20));
}

static void mark_bad(gw_runfile *rf, const char *key) { rf->marks[gw_rf_key_find(key)].bad = true; }

/* The key to blame for pp x cp x tp. */
static const char *key_of_model_ranks(const gw_runfile *rf) {
    return rf->layout.tp > 1 ? "layout.tp" : rf->layout.cp > 1 ? "layout.cp" : "layout.pp";
}

/* "layout.dp 2 x layout.tp 4": the factors that are not 1. */
static void add_product(const gw_runfile *rf, bool with_dp, gw_str *out) {
    const gw_rf_layout *l = &rf->layout;
    if (l->pp > 1) gw_str_printf(out, "layout.pp %lld", LL(l->pp));
    if (with_dp) gw_str_printf(out, "%slayout.dp %lld", out->len ? " x " : "", LL(l->dp));
    if (l->cp > 1) gw_str_printf(out, "%slayout.cp %lld", out->len ? " x " : "", LL(l->cp));
    if (l->tp > 1) gw_str_printf(out, "%slayout.tp %lld", out->len ? " x " : "", LL(l->tp));
}

/* dp is what remains of the ranks. */
static void take_rest(gw_runfile *rf, int64_t ranks, gw_diags *dg) {
    int64_t each = model_ranks(rf), less = each * (ranks / each), more = less + each;
    char nearest[48];
    rf->layout.dp = GW_MAX(INT64_C(1), ranks / each);
    if (ranks % each == 0) return;
    gw_str product = {0};
    add_product(rf, false, &product);
    if ((rf->layout.tp > 1) + (rf->layout.cp > 1) + (rf->layout.pp > 1) > 1)
        gw_str_printf(&product, " = %lld", LL(each));
    const char *key = key_of_model_ranks(rf);
    gw_diag *g =
        gw_runfile_error(rf, dg, key, "config-layout", "%s does not divide the %lld rank%s",
                         gw_str_c(&product), LL(ranks), ranks == 1 ? "" : "s");
    if (less > 0)
        snprintf(nearest, sizeof nearest, "%lld or %lld", LL(less), LL(more));
    else
        snprintf(nearest, sizeof nearest, "%lld", LL(more));
    gw_diag_hint(dg, g,
                 "take a multiple of %lld ranks, of which %s is nearest (--ranks %lld, or mpirun "
                 "-n %lld), or change it",
                 LL(each), nearest, LL(more), LL(more));
    gw_str_release(&product);
    mark_bad(rf, "layout.dp"); /* the factors may have faults of their own */
}

static void compare_ranks(gw_runfile *rf, int64_t ranks, gw_diags *dg) {
    int64_t all = gw_runfile_ranks(rf);
    if (ranks == 0 || all == ranks || is_bad(rf, "layout.dp")) return;
    gw_str product = {0};
    if (model_ranks(rf) == 1)
        gw_str_printf(&product, "layout.dp is %lld", LL(all));
    else
        add_product(rf, true, &product);
    if (model_ranks(rf) > 1) gw_str_printf(&product, " = %lld", LL(all));
    gw_diag *g = gw_runfile_error(rf, dg, "layout.dp", "config-layout",
                                  "%s, and there %s %lld rank%s", gw_str_c(&product),
                                  ranks == 1 ? "is" : "are", LL(ranks), ranks == 1 ? "" : "s");
    gw_diag_hint(dg, g, "start %lld (--ranks %lld, or mpirun -n %lld), or write layout.dp: auto",
                 LL(all), LL(all), LL(all));
    gw_str_release(&product);
    mark_bad(rf, "layout.dp");
}

/* The divisors of n next to x, "2 or 4"; none of 1. Returns how many. */
static int add_nearest(int64_t n, int64_t x, gw_str *out) {
    int64_t less = 1, more = 0;
    for (int64_t k = 1; k <= n / k; k++) {
        if (n % k != 0) continue;
        const int64_t both[] = {k, n / k};
        for (int i = 0; i < 2; i++) {
            if (both[i] < x) less = GW_MAX(less, both[i]);
            if (both[i] > x) more = more ? GW_MIN(more, both[i]) : both[i];
        }
    }
    if (less > 1) gw_str_printf(out, "%lld", LL(less));
    if (more) gw_str_printf(out, "%s%lld", less > 1 ? " or " : "", LL(more));
    return (less > 1) + (more > 0);
}

static void check_replicas(const gw_runfile *rf, gw_diags *dg) {
    const gw_rf_layout *l = &rf->layout;
    if (is_bad(rf, "layout.dp_replicate") || is_bad(rf, "layout.dp") ||
        l->dp % l->dp_replicate == 0)
        return;
    bool known =
        rf->ranks > 0 || !rf->dp_auto || l->dp > 1; /* else the ranks are still to be told */
    if (!known) return;
    gw_diag *g = gw_runfile_error(rf, dg, "layout.dp_replicate", "config-layout",
                                  "layout.dp_replicate %lld does not divide the %lld "
                                  "data-parallel ranks",
                                  LL(l->dp_replicate), LL(l->dp));
    gw_str values = {0};
    if (add_nearest(l->dp, l->dp_replicate, &values))
        gw_diag_hint(
            dg, g,
            "write layout.dp_replicate: %s; so many copies of dp / dp_replicate ranks make "
            "up all of them",
            gw_str_c(&values));
    else
        gw_diag_hint(dg, g, "remove it: one data-parallel rank has no copies");
    gw_str_release(&values);
}

void gw_rf_check_ranks(gw_runfile *rf, int64_t ranks, gw_diags *dg) {
    gw_rf_layout *l = &rf->layout;
    if (is_bad(rf, "layout.pp")) l->pp = 1;
    if (is_bad(rf, "layout.tp")) l->tp = 1;
    if (is_bad(rf, "layout.cp")) l->cp = 1;
    if (!mark(rf, "layout.sequence_parallel")->set) l->sequence_parallel = l->tp > 1;
    if (l->dp == 0) rf->dp_auto = true;
    if (rf->dp_auto && ranks > 0)
        take_rest(rf, ranks, dg);
    else if (rf->dp_auto)
        l->dp = guess_dp(rf);
    compare_ranks(rf, ranks, dg);
    check_replicas(rf, dg);
}

// ------------------------------------------------------------------ context and experts

static void check_hybrid(const gw_runfile *rf, gw_diags *dg) {
    const gw_rf_layout *l = &rf->layout;
    if (l->cp < 2 || l->cp_mode != GW_RF_CP_HYBRID || is_bad(rf, "layout.cp_mode") ||
        is_bad(rf, "layout.cp_ulysses") || is_bad(rf, "layout.cp"))
        return;
    if (!mark(rf, "layout.cp_ulysses")->set) {
        gw_diag *g = gw_runfile_error(rf, dg, "layout.cp_mode", "config-missing",
                                      "layout.cp_mode hybrid needs layout.cp_ulysses");
        gw_diag_hint(dg, g,
                     "give the ranks that exchange heads, such as those of one host; it divides "
                     "layout.cp %lld",
                     LL(l->cp));
    } else if (l->cp % l->cp_ulysses != 0) {
        gw_diag *g = gw_runfile_error(rf, dg, "layout.cp_ulysses", "config-layout",
                                      "layout.cp_ulysses %lld does not divide layout.cp %lld",
                                      LL(l->cp_ulysses), LL(l->cp));
        gw_str values = {0};
        (void)add_nearest(l->cp, l->cp_ulysses, &values);
        gw_diag_hint(dg, g,
                     "write layout.cp_ulysses: %s; the %lld ranks are rings of groups that "
                     "exchange heads",
                     gw_str_c(&values), LL(l->cp));
        gw_str_release(&values);
    }
}

/* Ranks that experts may be cut over: those that samples or tokens are cut over, without copies;
 * 0 while they are not known. */
static int64_t ranks_for_experts(const gw_runfile *rf) {
    const gw_rf_layout *l = &rf->layout;
    bool known = rf->ranks > 0 || !rf->dp_auto;
    if (!known || is_bad(rf, "layout.dp") || is_bad(rf, "layout.dp_replicate")) return 0;
    int64_t dp = l->zero > 0 ? l->dp / l->dp_replicate : l->dp;
    return dp * l->cp * (l->tp > 1 && l->sequence_parallel ? l->tp : 1);
}

/* Experts of a layer; 0: the model has none; -1: the model is not known. */
static int64_t experts_of(const gw_model *m) {
    return !m ? -1 : gw_model_has_experts(m, m->layers - 1) ? m->moe.experts : 0;
}

static int64_t greatest_common_divisor(int64_t a, int64_t b) {
    while (b > 0) {
        int64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/* What divides all that layout.ep has to. `ranks` and `experts` are above 0 where they are known.
 */
static void hint_divisors(int64_t ep, int64_t ranks, int64_t experts, gw_diags *dg, gw_diag *g) {
    gw_str values = {0}, of = {0};
    bool both = ranks > 1 && experts > 0;
    if (ranks > 1) gw_str_printf(&of, "the %lld ranks", LL(ranks));
    if (experts > 0) gw_str_printf(&of, "%sthe %lld experts", both ? " and of " : "", LL(experts));
    int64_t n = both ? greatest_common_divisor(ranks, experts) : ranks > 1 ? ranks : experts;
    int found = add_nearest(n, ep, &values);
    if (found)
        gw_diag_hint(dg, g, "write layout.ep: %s, %s of %s", gw_str_c(&values),
                     found > 1 ? "divisors" : "a divisor", gw_str_c(&of));
    else if (both)
        gw_diag_hint(dg, g,
                     "remove it, or take ranks that have a divisor in common with the %lld "
                     "experts; these %lld have none",
                     LL(experts), LL(ranks));
    else
        gw_diag_hint(dg, g, "remove it");
    gw_str_release(&values);
    gw_str_release(&of);
}

/* The most copies, fewer than there are, that leave layout.ep ranks enough; 0: none does. */
static int64_t copies_for_experts(const gw_runfile *rf, int64_t ranks) {
    const gw_rf_layout *l = &rf->layout;
    if (l->zero == 0) return 0;
    int64_t all = ranks * l->dp_replicate;
    for (int64_t r = l->dp_replicate - 1; r >= 1; r--)
        if (l->dp % r == 0 && all / r % l->ep == 0) return r;
    return 0;
}

static void check_expert_ranks(const gw_runfile *rf, const gw_model *m, gw_diags *dg) {
    const gw_rf_layout *l = &rf->layout;
    int64_t ranks = ranks_for_experts(rf), experts = experts_of(m);
    bool with_tp = l->tp > 1 && l->sequence_parallel;
    if (ranks == 0 || experts == 0 || is_bad(rf, "layout.ep") || ranks % l->ep == 0) return;
    gw_diag *g = gw_runfile_error(
        rf, dg, "layout.ep", "config-layout",
        "layout.ep %lld does not divide the %lld rank%s of dp / dp_replicate x cp%s", LL(l->ep),
        LL(ranks), ranks == 1 ? "" : "s", with_tp ? " x tp" : "");
    gw_diag_detail(dg, g, "experts are cut over ranks that have different tokens");
    int64_t copies = copies_for_experts(rf, ranks);
    if (l->tp > 1 && !with_tp && ranks * l->tp % l->ep == 0)
        gw_diag_hint(dg, g,
                     "write layout.sequence_parallel: true, so that ranks of tp have different "
                     "tokens too, or remove layout.ep");
    else if (copies > 0)
        gw_diag_hint(dg, g, "write layout.dp_replicate: %lld, or remove layout.ep", LL(copies));
    else if (ranks == 1)
        gw_diag_hint(dg, g, "remove it, or give layout.dp or layout.cp ranks");
    else
        hint_divisors(l->ep, ranks, experts, dg, g);
}

static void check_images(const gw_runfile *rf, gw_diags *dg) {
    static const char *const keys[] = {"layout.pp", "layout.tp", "layout.cp", "layout.ep"};
    const int64_t degrees[] = {rf->layout.pp, rf->layout.tp, rf->layout.cp, rf->layout.ep};
    for (size_t i = 0; i < GW_COUNT(keys); i++) {
        if (degrees[i] == 1 || is_bad(rf, keys[i])) continue;
        gw_diag *g = gw_runfile_error(rf, dg, keys[i], "config-layout",
                                      "%s is %lld, and the model is a net for images: it has no "
                                      "layers, heads, sequences or experts to cut",
                                      keys[i], LL(degrees[i]));
        gw_diag_hint(dg, g, "write %s: 1, and let layout.dp have the ranks", keys[i]);
    }
}

// ------------------------------------------------------------------ with the model

/* Ranks over which attention exchanges heads for tokens. */
static int64_t ulysses_ranks(const gw_rf_layout *l) {
    if (l->cp < 2) return 1;
    return l->cp_mode == GW_RF_CP_ULYSSES  ? l->cp
           : l->cp_mode == GW_RF_CP_HYBRID ? GW_MAX(INT64_C(1), l->cp_ulysses)
                                           : 1;
}

static void check_heads(const gw_runfile *rf, const gw_model *m, gw_diags *dg) {
    const gw_rf_layout *l = &rf->layout;
    int64_t u = ulysses_ranks(l);
    if (u == 1 || m->heads % (l->tp * u) == 0) return;
    int64_t fits = 1;
    for (int64_t k = 1; k <= l->cp; k++)
        if (l->cp % k == 0 && m->heads % (l->tp * k) == 0) fits = k;
    gw_diag *g = gw_runfile_error(
        rf, dg, l->cp_mode == GW_RF_CP_HYBRID ? "layout.cp_ulysses" : "layout.cp_mode",
        "config-layout", "%lld heads cannot be exchanged evenly over %lld ranks%s", LL(m->heads),
        LL(u), l->tp > 1 ? ", each with its part of tp" : "");
    if (fits > 1 && l->cp_mode == GW_RF_CP_HYBRID)
        gw_diag_hint(dg, g, "write layout.cp_ulysses: %lld, or layout.cp_mode: ring", LL(fits));
    else if (fits > 1 && fits < l->cp)
        gw_diag_hint(dg, g, "write layout.cp_mode: hybrid with layout.cp_ulysses: %lld, or ring",
                     LL(fits));
    else
        gw_diag_hint(dg, g, "write layout.cp_mode: ring, or allgather");
}

/* A model without experts, or with none in any of its layers. */
static void refuse_experts(const gw_runfile *rf, const gw_model *m, gw_diags *dg) {
    bool dense = m->moe.experts > 0;
    gw_diag *g =
        gw_runfile_error(rf, dg, "layout.ep", "config-layout",
                         "layout.ep is %lld, and the model has no experts", LL(rf->layout.ep));
    if (dense)
        gw_diag_detail(dg, g, "model.moe.dense_layers is %lld, of %lld layer%s",
                       LL(m->moe.dense_layers), LL(m->layers), m->layers == 1 ? "" : "s");
    if (dense && m->layers > 1 && rf->model.source != GW_RF_PATH)
        gw_diag_hint(dg, g, "remove it, or write model.moe.dense_layers: %lld, or less",
                     LL(m->layers - 1));
    else
        gw_diag_hint(dg, g, "remove it: its ranks are those of dp, cp and tp, which stay");
}

static void check_experts(const gw_runfile *rf, const gw_model *m, gw_diags *dg) {
    int64_t ep = rf->layout.ep, n = experts_of(m);
    if (ep == 1 || is_bad(rf, "layout.ep")) return;
    if (n == 0) refuse_experts(rf, m, dg);
    if (n == 0 || n % ep == 0) return;
    gw_diag *g =
        gw_runfile_error(rf, dg, "layout.ep", "config-layout",
                         "layout.ep %lld does not divide the model's %lld experts", LL(ep), LL(n));
    hint_divisors(ep, ranks_for_experts(rf), n, dg, g);
}

/* gpt2 has a row for each position, and what a longer sequence is padded to must have one too. */
static void check_length(const gw_runfile *rf, const gw_model *m, gw_diags *dg) {
    int64_t padded = gw_runfile_padded_seq(rf), added = padded - rf->train.seq_len;
    if (m->family != GW_FAMILY_GPT2 || padded <= m->max_positions ||
        rf->train.seq_len > m->max_positions)
        return;
    gw_diag *g = gw_runfile_error(
        rf, dg, "train.seq_len", "config-layout",
        "train.seq_len %lld is padded by %lld to cut it evenly, and the model has %lld positions",
        LL(rf->train.seq_len), LL(added), LL(m->max_positions));
    gw_diag_hint(dg, g,
                 "shorten it to a multiple of what it is cut in, or raise "
                 "model.max_positions to %lld",
                 LL(padded));
}

static void add_dims(const gw_param *p, gw_str *out) {
    for (int i = 0; i < p->type.ndim; i++)
        gw_str_printf(out, "%s%.8s", i ? " " : "", p->type.dims[i].name);
}

static void refuse_rule(const gw_runfile *rf, const gw_placement_rule *r, gw_placement_fault fault,
                        const gw_param *at, gw_diags *dg) {
    gw_diag *g = NULL;
    gw_str dims = {0};
    if (at) add_dims(at, &dims);
    switch (fault) {
    case GW_PLACEMENT_FINE: break;
    case GW_PLACEMENT_NOTHING:
        g = gw_runfile_error(rf, dg, "layout.shard", "config-layout",
                             "layout.shard: no parameter is called '%.80s'", r->pattern);
        gw_diag_hint(dg, g, "`gradwright plan RUN.yaml` lists the names; '*' stands for any text");
        break;
    case GW_PLACEMENT_NO_DIM:
        g = gw_runfile_error(rf, dg, "layout.shard", "config-layout",
                             "layout.shard: '%.80s' fits %s, which has no dimension '%.20s'",
                             r->pattern, at->name, r->dim);
        gw_diag_hint(dg, g, "it has %s; `none` leaves it whole on each rank", gw_str_c(&dims));
        break;
    case GW_PLACEMENT_HEAD:
        g = gw_runfile_error(rf, dg, "layout.shard", "config-layout",
                             "layout.shard: '%.80s': k is a sharding that cuts a head of %s",
                             r->pattern, at->name);
        gw_diag_detail(dg, g, "attention's scores are sums over k, and rotary positions mix it");
        gw_diag_hint(dg, g, "cut whole heads (h, g), or write none; it has %s", gw_str_c(&dims));
        break;
    case GW_PLACEMENT_EXPERTS:
        g = gw_runfile_error(rf, dg, "layout.shard", "config-layout",
                             "layout.shard: '%.80s': e, the experts of %s, is not cut over tp",
                             r->pattern, at->name);
        gw_diag_hint(dg, g, "layout.ep cuts experts, over any of the ranks; tp cuts f within one");
        break;
    }
    gw_str_release(&dims);
}

static void check_rules(const gw_runfile *rf, const gw_model *m, gw_diags *dg) {
    gw_arena mem = {0};
    gw_param *params = NULL;
    int n = 0, nrules;
    gw_placement_rule *rules = gw_runfile_rules(rf, &mem, &nrules);
    if (nrules > 0) gw_model_params(m, &mem, &params, &n);
    for (int i = 0; i < nrules; i++) {
        const gw_param *at = NULL;
        gw_placement_fault fault = gw_placement_check(&rules[i], params, n, &at);
        refuse_rule(rf, &rules[i], fault, at, dg);
    }
    gw_arena_release(&mem);
}

gw_status gw_runfile_check_placement(const gw_runfile *rf, const gw_model *m, gw_diags *dg) {
    int before = dg ? dg->nerrors : 0;
    GW_ASSERT(dg);
    if (m->family == GW_FAMILY_RESNET) return GW_OK; /* check_images */
    check_heads(rf, m, dg);
    check_experts(rf, m, dg);
    check_length(rf, m, dg);
    gw_rf_check_stages(rf, m->layers, dg);
    if (!is_bad(rf, "layout.shard")) check_rules(rf, m, dg);
    return dg->nerrors > before ? GW_ERR_CONFIG : GW_OK;
}

// ------------------------------------------------------------------ all of it

static bool is_plain(const gw_runfile *rf) {
    return rf->layout.pp == 1 && rf->layout.tp == 1 && rf->layout.cp == 1 && rf->layout.ep == 1;
}

/* Any key of the model, or of its lengths, that is bad: its sizes are not to be relied on. */
static bool sizes_are_bad(const gw_runfile *rf) {
    bool bad = is_bad(rf, "train.seq_len");
    for (int i = 0; i < gw_rf_nkeys; i++)
        bad = bad || (gw_str_starts(gw_rf_keys[i].path, "model.") && rf->marks[i].bad);
    return bad;
}

void gw_rf_check_layout(gw_runfile *rf, gw_diags *dg) {
    gw_rf_check_pipeline(rf, dg);
    if (is_plain(rf)) return;
    bool images = gw_runfile_has_images(rf);
    bool known = !images && rf->model.source != GW_RF_PATH && !sizes_are_bad(rf);
    gw_model *m = known ? gw_mem_zalloc(sizeof *m) : NULL;
    known = known && gw_setup_model(rf, m);
    if (images) check_images(rf, dg);
    check_hybrid(rf, dg);
    if (!images) check_expert_ranks(rf, known ? m : NULL, dg);
    if (known) (void)!gw_runfile_check_placement(rf, m, dg);
    gw_mem_free(m);
}
