// SPDX-License-Identifier: Apache-2.0
// The ledger as a page that a person reads from top to bottom, with the arithmetic shown.
//
// Order: what is trained; bytes a parameter; bytes at the peak; where the peak is; its activations;
// the waterfall; FLOPs; kernels. Bytes are powers of 1000 (1 GB = 1e9), as in the formulas of the
// field.
#include <string.h>

#include "base/str.h"  /* gw_fmt_bytes, gw_fmt_count, gw_fmt_si */
#include "base/term.h" /* gw_table */
#include "plan/ledger.h"
#include "plan/pipeplan.h" /* gw_pipeplan_print */

enum { SHORT_ROWS = 8, WATERFALL_ROWS = 20, BAR = 32 };

#define BYTES(x)   gw_fmt_bytes((char[32]){0}, (x))
#define COUNT(x)   gw_fmt_count((char[40]){0}, (x))
#define FLOPS(x)   gw_fmt_si((char[32]){0}, (x))
#define SECONDS(x) gw_fmt_seconds((char[32]){0}, (x))
#define S(n)       ((n) == 1 ? "" : "s")
#define TEXT(...)  gw_arena_printf(&mem, __VA_ARGS__)

static void heading(FILE *out, const char *text) { fprintf(out, "\n%s\n", text); }

/* Of several ranks the page is one's. */
static void print_whose(const gw_ledger *l, FILE *out) {
    if (l->pipeline)
        gw_pipeplan_print(l->pipeline, out);
    else if (l->ranks > 1)
        fprintf(out, "                  what follows is rank 0's, which holds the most\n");
}

static void print_net_sizes(const gw_ledger *l, const char *name, FILE *out) {
    const gw_resnet *r = &l->model.resnet;
    char ranks[48] = "";
    if (l->dp > 1)
        snprintf(ranks, sizeof ranks, " × %lld %sranks", (long long)l->dp,
                 l->dp < l->ranks ? "data-parallel " : "");
    fprintf(out,
            "%s: residual net of %lld, %lld, %lld, %lld %sblocks, width %lld, images of %lld x "
            "%lld x %lld, %lld classes\n",
            name, (long long)r->blocks[0], (long long)r->blocks[1], (long long)r->blocks[2],
            (long long)r->blocks[3], r->bottleneck ? "bottleneck " : "", (long long)r->width,
            (long long)r->image, (long long)r->image, (long long)r->channels,
            (long long)r->classes);
    fprintf(out, "parameters        %s\n", COUNT(l->params));
    fprintf(out, "a step            %lld image%s × %lld micro-batch%s%s = %s image%s\n",
            (long long)l->micro_batch, S(l->micro_batch), (long long)l->micro_batches,
            l->micro_batches == 1 ? "" : "es", ranks, COUNT(l->tokens_per_step),
            S(l->tokens_per_step));
    print_whose(l, out);
}

/* What another layout or another cut into micro-batches would change. */
static void print_batch_dependence(const gw_ledger *l, FILE *out) {
    if (l->batch_ops == 0) return;
    int64_t groups = l->model.resnet.groups, all = l->micro_batch * l->dp;
    heading(out, "depends on the batch");
    fprintf(out, "  %lld ops of batch norms: an image's result depends on those beside it\n",
            (long long)l->batch_ops);
    if (groups > 1)
        fprintf(
            out,
            "  statistics are of %lld images, each rank's own (model.batchnorm: local): another "
            "number of ranks\n  is another function; sync takes them over all %lld\n",
            (long long)(all / groups), (long long)all);
    else if (l->ranks > 1)
        fprintf(out,
                "  statistics are of all %lld images of a micro-batch (model.batchnorm: sync): any "
                "number of ranks\n  computes the same\n",
                (long long)all);
    else
        fprintf(out, "  statistics are of the %lld image%s of a micro-batch\n", (long long)all,
                S(all));
    if (l->micro_batches > 1)
        fprintf(out,
                "  %lld micro-batches of %lld images are not one of %lld: accumulation changes "
                "what is computed\n",
                (long long)l->micro_batches, (long long)all, (long long)(all * l->micro_batches));
}

static void print_experts(const gw_ledger *l, FILE *out) {
    const gw_moe *e = &l->model.moe;
    const gw_mla *a = &l->model.mla;
    if (a->kv_rank > 0)
        fprintf(out,
                "latent attention  ranks %lld (q) and %lld (k, v); heads of %lld + %lld with "
                "rotation, values of %lld\n",
                (long long)a->q_rank, (long long)a->kv_rank, (long long)a->nope, (long long)a->rope,
                (long long)a->v);
    if (e->experts == 0) return;
    fprintf(out, "experts           %lld of ffn %lld, a token goes to %lld", (long long)e->experts,
            (long long)e->ffn, (long long)e->top);
    if (e->groups > 1)
        fprintf(out, " in %lld of %lld groups", (long long)e->group_limit, (long long)e->groups);
    if (e->shared > 0) fprintf(out, "; %lld shared", (long long)e->shared);
    if (e->dense_layers > 0)
        fprintf(out, "; the first %lld layer%s without", (long long)e->dense_layers,
                S(e->dense_layers));
    fprintf(out, "\n");
}

static void print_sizes(const gw_ledger *l, const char *name, FILE *out) {
    const gw_model *m = &l->model;
    if (m->family == GW_FAMILY_RESNET) {
        print_net_sizes(l, name, out);
        return;
    }
    fprintf(
        out,
        "%s: %s, %lld layer%s, hidden %lld, %lld head%s (%lld kv) of %lld, ffn %lld, vocab %s\n",
        name, gw_family_name(m->family), (long long)m->layers, S(m->layers), (long long)m->hidden,
        (long long)m->heads, S(m->heads), (long long)m->kv_heads, (long long)m->head_dim,
        (long long)m->ffn, COUNT(m->vocab));
    print_experts(l, out);
    fprintf(out, "parameters        %s%s\n", COUNT(l->params),
            m->tie ? ", the head is the embedding" : "");
    int64_t biases = gw_model_count_biases(m);
    if (l->active_params < l->params)
        fprintf(out, "                  of these a token goes through %s\n",
                COUNT(l->active_params));
    if (biases > 0)
        fprintf(out, "                  and %s biases of routers' choice, as published: %s\n",
                COUNT(biases), COUNT(l->params + biases));
    char ranks[48] = "";
    if (l->dp > 1)
        snprintf(ranks, sizeof ranks, " × %lld %sranks", (long long)l->dp,
                 l->dp < l->ranks ? "data-parallel " : "");
    fprintf(out,
            "a step            %lld sequence%s × %s token%s × %lld micro-batch%s%s = %s token%s\n",
            (long long)l->micro_batch, S(l->micro_batch), COUNT(l->seq), S(l->seq),
            (long long)l->micro_batches, l->micro_batches == 1 ? "" : "es", ranks,
            COUNT(l->tokens_per_step), S(l->tokens_per_step));
    print_whose(l, out);
}

/* Bytes of one parameter on a rank, of what is cut over dp its part. */
static double each_of(const gw_ledger_kind *k) {
    return (double)k->weights / (double)k->weights_over +
           (double)k->gradients / (double)k->gradients_over +
           (double)k->optimizer / (double)k->optimizer_over;
}

/* "18 B × 70,553,706,496 params ÷ 4 (tp 4) = 26.6 GB". Shards that are not all alike, as of a
 * vocabulary that does not divide, are this rank's and the division is about right. */
static void print_kind(const gw_ledger *l, const gw_ledger_kind *k, FILE *out) {
    int64_t bytes = k->weights_bytes + k->gradients_bytes + k->optimizer_bytes;
    double want = each_of(k) * (double)k->params / (double)k->cut;
    bool alike = (double)bytes >= want * 0.999 && (double)bytes <= want * 1.001;
    bool whole = k->weights_over == 1 && k->gradients_over == 1 && k->optimizer_over == 1;
    fprintf(out, "  %s B", k->text);
    if (l->nkinds > 1) fprintf(out, "   for %lld tensor%s", (long long)k->tensors, S(k->tensors));
    if (k->cut > 1) fprintf(out, "%s cut over %s", l->nkinds > 1 ? "," : "  ", k->cut_text);
    if (!alike) {
        fprintf(out, "\n  for %s params %s\n", COUNT(k->params), BYTES(bytes));
        return;
    }
    bool same = k->weights_over == k->optimizer_over && k->gradients_over == k->optimizer_over;
    int64_t over = k->cut * (same ? k->weights_over : 1);
    fprintf(out, "\n  %.6g B × %s params", same ? (double)k->total : each_of(k), COUNT(k->params));
    if (over > 1) fprintf(out, " ÷ %lld", (long long)over);
    if (over > 1 && same && !whole)
        fprintf(out, " (%s%sdp %lld)", k->cut_text, k->cut > 1 ? " × " : "",
                (long long)k->weights_over);
    else if (over > 1)
        fprintf(out, " (%s)", k->cut_text);
    fprintf(out, " = %s\n", BYTES(bytes));
}

/* What no layout can get below: all of it, cut over all ranks. */
static void print_model_bytes(const gw_ledger *l, FILE *out) {
    double params = 0, bytes = 0;
    if (l->ranks == 1) return;
    for (int i = 0; i < l->nkinds; i++) {
        params += (double)l->kinds[i].params;
        bytes += (double)l->kinds[i].params * l->kinds[i].total;
    }
    if (params <= 0) return;
    double all = bytes / params * (double)l->params;
    fprintf(out, "  the whole model: %.4g B × %s params = %s; ÷ %lld ranks = %s\n", bytes / params,
            COUNT(l->params), BYTES((int64_t)all), (long long)l->ranks,
            BYTES((int64_t)(all / (double)l->ranks)));
}

static void print_static(const gw_ledger *l, FILE *out) {
    heading(out, l->pipeline    ? "bytes a parameter of this rank: weights + gradients + optimizer "
                                  "states"
                 : l->ranks > 1 ? "bytes a parameter of a rank: weights + gradients + optimizer "
                                  "states"
                                : "bytes a parameter: weights + gradients + optimizer states");
    for (int i = 0; i < l->nkinds; i++) print_kind(l, &l->kinds[i], out);
    if (l->nkinds > 1) fprintf(out, "  together %s\n", BYTES(l->static_bytes));
    print_model_bytes(l, out);
}

/* What a row of the peak consists of. */
static const char *reason(const gw_ledger *l, gw_cause c, gw_arena *mem_) {
    int64_t whole = 0, bytes = l->by_cause[c];
    switch (c) {
    case GW_CAUSE_WEIGHTS: whole = l->static_weights; break;
    case GW_CAUSE_GRADIENTS: whole = l->static_gradients; break;
    case GW_CAUSE_OPTIMIZER: whole = l->static_optimizer; break;
    case GW_CAUSE_ACTIVATIONS:
        return gw_arena_printf(mem_, "kept for backward, or in use; %s %s of %s",
                               BYTES(bytes / GW_MAX(1, l->micro_batch * l->seq)),
                               l->model.family == GW_FAMILY_RESNET ? "an image" : "a token",
                               l->most_places > 1 ? "one micro-batch, of all under way"
                                                  : "a micro-batch");
    case GW_CAUSE_WORKSPACE: return "scratch of the kernel that runs at the peak";
    case GW_CAUSE_COMMUNICATION:
        if (l->box_bytes > 0)
            return gw_arena_printf(mem_, "%s of messages on their way; scratch of collectives",
                                   BYTES(l->box_bytes));
        return l->nwire ? "gathered parameters, scratch of collectives" : "one rank sends nothing";
    case GW_CAUSE_STAGING: return bytes ? "copies on their way, or kept to undo a step" : "";
    case GW_CAUSE_DATA: return "batches prepared ahead, inputs of the step";
    case GW_CAUSE_RUNTIME: return "the program itself";
    case GW_CAUSE_FRAGMENTATION:
        return gw_arena_printf(mem_, "arena %+.2f %% over its lower bound; alignment to 64 B",
                               gw_ledger_over_percent(l));
    case GW_CAUSE_COUNT: break;
    }
    if (whole == 0) return "";
    if (whole == bytes && bytes % GW_MAX(1, l->rank_params) == 0)
        return gw_arena_printf(mem_, "%lld B × %s params", (long long)(bytes / l->rank_params),
                               COUNT(l->rank_params));
    if (whole == bytes) return "all of them";
    if (bytes > whole)
        return gw_arena_printf(mem_, "all of them are %s; others are in use beside them",
                               BYTES(whole));
    return gw_arena_printf(mem_, "of %s: not all are alive at once", BYTES(whole));
}

static void print_causes(const gw_ledger *l, FILE *out) {
    gw_arena mem = {0};
    heading(out, "memory at the peak");
    gw_table *t = gw_table_new("lrrl");
    gw_table_row(t, "cause", "bytes", "share", "");
    for (int c = 0; c < GW_CAUSE_COUNT; c++) {
        double share = 100.0 * (double)l->by_cause[c] / (double)GW_MAX(1, l->total_bytes);
        gw_table_row(t, gw_cause_name((gw_cause)c), BYTES(l->by_cause[c]), TEXT("%.1f %%", share),
                     reason(l, (gw_cause)c, &mem));
    }
    gw_table_rule(t);
    int64_t beside = l->total_bytes - l->arena_bytes;
    gw_table_row(t, "total", BYTES(l->total_bytes), "100.0 %",
                 TEXT("arena %s + %s beside it = %s B", BYTES(l->arena_bytes), BYTES(beside),
                      COUNT(l->total_bytes)));
    gw_table_print(t, out, "  ");
    gw_table_free(t);
    gw_arena_release(&mem);
    if (l->valid_extra_bytes)
        fprintf(out, "  validation needs an arena of its own: %s\n", BYTES(l->valid_extra_bytes));
}

static void print_peak(const gw_ledger *l, FILE *out) {
    fprintf(out, "\nthe peak is at op %u of %lld\n  %s\n", l->peak_op, (long long)l->nops,
            l->peak_text);
}

static void print_layers(const gw_ledger *l, FILE *out) {
    int64_t in_layers = 0, least = INT64_MAX, most = 0, n = 0, outside = 0;
    for (int i = 0; i < l->nlayers; i++) {
        const gw_ledger_layer *x = &l->layers[i];
        if (gw_scope_layer(x->name) == 0) {
            outside += x->bytes;
            continue;
        }
        n++;
        in_layers += x->bytes;
        least = GW_MIN(least, x->bytes);
        most = GW_MAX(most, x->bytes);
    }
    if (n == 0) return;
    const char *range = least == most ? "" : " to ";
    fprintf(out, "  %lld layer%s × %s%s%s = %s; outside of layers %s\n", (long long)n, S(n),
            BYTES(least), range, least == most ? "" : BYTES(most), BYTES(in_layers),
            BYTES(outside));
    if (l->stages_share)
        fprintf(out, "  places that stages share count for layers of the first of them\n");
}

static void print_activations(const gw_ledger *l, bool all, FILE *out) {
    if (l->nactivations == 0) return;
    gw_arena mem = {0};
    heading(out, "activations at the peak");
    gw_table *t = gw_table_new("rrrlll");
    bool carried = l->most_places > 1;
    gw_table_row(t, "bytes", carried ? "values × places" : "values", "each", "made by", "in",
                 "type");
    int rows = all ? l->nactivations : GW_MIN(l->nactivations, (int)SHORT_ROWS);
    for (int i = 0; i < rows; i++) {
        const gw_ledger_activation *x = &l->activations[i];
        const char *where = !x->in_layer ? x->scope
                            : *x->scope  ? TEXT("layer */%s", x->scope)
                                         : "layer *";
        gw_table_row(t, BYTES(x->bytes),
                     carried ? TEXT("%lld × %lld", (long long)x->values, (long long)x->places)
                             : TEXT("%lld", (long long)x->values),
                     BYTES(x->bytes / x->values / x->places), x->op, where, x->type);
    }
    gw_table_print(t, out, "  ");
    gw_table_free(t);
    gw_arena_release(&mem);
    if (rows < l->nactivations)
        fprintf(out, "  and %d smaller kinds (--all shows them)\n", l->nactivations - rows);
    print_layers(l, out);
}

/* What a ring keeps of attention is one accumulator, written block after block: no op makes it that
 * backward could run again. */
static void print_rings(const gw_ledger *l, FILE *out) {
    int64_t i = 0;
    while (i < l->nops && strcmp(l->op_name[i], "attention_part") != 0) i++;
    if (i == l->nops) return;
    fprintf(out, "  ring attention keeps its output and log-sum-exp, nothing of size s x s; "
                 "recompute.policy selective has no effect on it\n");
}

static void print_waterfall(const gw_ledger *l, bool all, FILE *out) {
    int64_t ops[160];
    int n = gw_ledger_sample(l, all ? (int)GW_COUNT(ops) : WATERFALL_ROWS, ops);
    if (n == 0) return;
    gw_arena mem = {0};
    heading(out, "the step from first op to last: bytes alive");
    gw_table *t = gw_table_new("rllrl");
    gw_table_row(t, "op", "", "in", "bytes", "");
    int64_t top = gw_ledger_live_total(l, l->peak_op);
    for (int i = 0; i < n; i++) {
        int64_t bytes = gw_ledger_live_total(l, ops[i]);
        int cells = (int)((double)BAR * (double)bytes / (double)GW_MAX(1, top) + 0.5);
        char bar[BAR + 8] = "";
        memset(bar, '#', (size_t)GW_MIN(cells, (int)BAR));
        gw_table_row(t, TEXT("%lld", (long long)ops[i]),
                     gw_phase_name((gw_phase)l->op_phase[ops[i]]), l->op_scope[ops[i]],
                     BYTES(bytes), TEXT("%s%s", bar, ops[i] == (int64_t)l->peak_op ? " peak" : ""));
    }
    gw_table_print(t, out, "  ");
    gw_table_free(t);
    gw_arena_release(&mem);
}

static void print_formula(const gw_ledger *l, double linear, FILE *out) {
    const gw_ledger_flops *f = &l->flops;
    fprintf(out, "  6 × %s params%s × %s token%s = %sFLOP\n", COUNT(l->matrix_params),
            l->active_params < l->params   ? " (a token's, without lookup tables)"
            : l->matrix_params < l->params ? " (without lookup tables)"
                                           : "",
            COUNT(l->tokens_per_step / l->ranks), S(l->tokens_per_step / l->ranks), FLOPS(linear));
    fprintf(out, "  attention over the keys a causal mask shows: %sFLOP; over all keys: %sFLOP\n",
            FLOPS(f->model - linear), FLOPS(f->model_full_attention - linear));
}

static void print_flops(const gw_ledger *l, FILE *out) {
    const gw_ledger_flops *f = &l->flops;
    double tokens = (double)GW_MAX(1, l->tokens_per_step) / (double)l->ranks;
    heading(out, l->pipeline    ? "FLOPs of a step, a rank's share of the model's, and this rank's"
                 : l->ranks > 1 ? "FLOPs of a step, on each rank"
                                : "FLOPs of a step");
    double linear = 6.0 * (double)l->matrix_params * tokens;
    if (l->model.family == GW_FAMILY_RESNET)
        fprintf(out, "  6 for each multiply-add of forward and %s image%s = %sFLOP\n",
                COUNT(l->tokens_per_step / l->ranks), S(l->tokens_per_step / l->ranks),
                FLOPS(f->model));
    else
        print_formula(l, linear, out);
    gw_table *t = gw_table_new("lrl");
    gw_table_row(t, "", "FLOP", "");
    bool net = l->model.family == GW_FAMILY_RESNET;
    gw_table_row(t, "model", FLOPS(f->model),
                 net ? "what MFU is measured by" : "causal attention: what MFU is measured by");
    if (!net)
        gw_table_row(t, "model, full attention", FLOPS(f->model_full_attention),
                     "the other usual convention");
    gw_table_row(t, "hardware", FLOPS(f->hardware), "the sum over the program's ops");
    double back = 0;
    for (int p = 0; p < GW_PHASE_COUNT; p++) {
        static const char *const what[] = {"  forward", "  backward, to activations",
                                           "  backward, to weights", "  head and norms, both ways",
                                           "  optimizer and frame"};
        double rest = f->by_phase[p] - f->experts_by_phase[p];
        if (rest > 0) gw_table_row(t, what[p], FLOPS(rest), "");
        back += p == GW_PHASE_F ? 0 : f->experts_by_phase[p];
    }
    if (f->experts_by_phase[GW_PHASE_F] > 0)
        gw_table_row(t, "  experts, forward", FLOPS(f->experts_by_phase[GW_PHASE_F]),
                     "at even load");
    if (back > 0)
        gw_table_row(t, "  experts, backward", FLOPS(back),
                     "hidden activations made again, both gradients");
    char again[96];
    snprintf(again, sizeof again, "%lld ops run again: %+.1f %% of the work without it",
             (long long)l->recomputed_ops, 100.0 * f->recompute / (f->hardware - f->recompute));
    if (l->recomputed_ops) gw_table_row(t, "recomputation", FLOPS(f->recompute), again);
    gw_table_print(t, out, "  ");
    gw_table_free(t);
}

static void print_kernels(const gw_ledger *l, bool all, FILE *out) {
    gw_arena mem = {0};
    heading(out, "kernels");
    gw_table *t = gw_table_new("lrlrrl");
    gw_table_row(t, "op", "ops", "kernel", "FLOP", "workspace", "");
    double least = all ? 0 : l->flops.hardware * 1e-4;
    int left_out = 0;
    for (int i = 0; i < l->nkernels; i++) {
        const gw_ledger_kernel *k = &l->kernels[i];
        if (k->flops < least && k->workspace_bytes == 0) {
            left_out++;
            continue;
        }
        gw_table_row(t, k->op, TEXT("%lld", (long long)k->count), k->kernel->name, FLOPS(k->flops),
                     BYTES(k->workspace_bytes), k->kernel->note);
    }
    gw_table_print(t, out, "  ");
    gw_table_free(t);
    gw_arena_release(&mem);
    if (left_out) fprintf(out, "  and %d that do next to no work (--all shows them)\n", left_out);
}

static void print_candidates(const gw_ledger_wire *w, FILE *out) {
    gw_arena mem = {0};
    fprintf(out, "\n  %s over %s, the largest of %s:\n", w->collective, w->axis,
            BYTES(w->largest_bytes));
    gw_table *t = gw_table_new("lrrl");
    gw_table_row(t, "algorithm", "predicted", "moved", "");
    for (int i = 0; i < w->ncandidates; i++) {
        const gw_coll_candidate *c = &w->candidates[i];
        bool taken = strcmp(c->name, w->algorithm) == 0;
        gw_table_row(t, TEXT("%s%s", taken ? "> " : "  ", c->name),
                     c->possible ? SECONDS(c->seconds) : "-", c->possible ? BYTES(c->moved) : "-",
                     c->why ? c->why : "");
    }
    gw_table_print(t, out, "    ");
    gw_table_free(t);
    gw_arena_release(&mem);
}

static void print_other_memory(const gw_ledger *l, FILE *out) {
    static const char *const what[GW_MEM_COUNT] = {"", "host memory", "disk"};
    bool any = false;
    for (int m = 0; m < GW_MEM_COUNT; m++) any |= l->other_bytes[m] > 0;
    if (!any) return;
    gw_arena mem = {0};
    heading(out, "offloaded, beside the device's memory");
    gw_table *t = gw_table_new("lrrr");
    gw_table_row(t, "where", "bytes", "fetched a step", "stored a step");
    for (int m = 0; m < GW_MEM_COUNT; m++)
        if (l->other_bytes[m] > 0)
            gw_table_row(t, what[m], BYTES(l->other_bytes[m]), BYTES(l->copies.fetched[m]),
                         BYTES(l->copies.stored[m]));
    gw_table_print(t, out, "  ");
    gw_table_free(t);
    gw_arena_release(&mem);
}

/* Do two rows differ in their algorithm alone? */
static bool same_wire(const gw_ledger_wire *a, const gw_ledger_wire *b) {
    return gw_str_eq(a->collective, b->collective) && gw_str_eq(a->axis, b->axis) &&
           gw_str_eq(a->wire, b->wire) && a->ranks == b->ranks &&
           a->at_even_load == b->at_even_load;
}

/* Bytes alone: by which algorithm they go and how long is the stated machine's matter. */
static void print_wire_elsewhere(const gw_ledger *l, FILE *out) {
    gw_arena mem = {0};
    gw_table *t = gw_table_new("llrlrr");
    gw_table_row(t, "collective", "over", "ranks", "wire", "count", "payload");
    for (int i = 0; i < l->nwire; i++) {
        const gw_ledger_wire *w = &l->wire[i];
        int first = 0;
        while (!same_wire(&l->wire[first], w)) first++;
        if (first < i) continue;
        int64_t count = 0, bytes = 0;
        for (int k = i; k < l->nwire; k++) {
            if (!same_wire(&l->wire[k], w)) continue;
            count += l->wire[k].count;
            bytes += l->wire[k].payload_bytes;
        }
        gw_table_row(t, w->collective, w->axis, TEXT("%lld", (long long)w->ranks),
                     TEXT("%s%s", w->wire, w->at_even_load ? ", at even load" : ""), COUNT(count),
                     BYTES(bytes));
    }
    gw_table_rule(t);
    gw_table_row(t, "total", "", "", "", "", BYTES(l->wire_bytes));
    gw_table_print(t, out, "  ");
    gw_table_free(t);
    gw_arena_release(&mem);
}

static void print_wire(const gw_ledger *l, bool verbose, FILE *out) {
    if (l->nwire == 0) return;
    gw_arena mem = {0};
    heading(out, l->pipeline ? "on the wire, a step: bytes that this rank sends"
                             : "on the wire, a step: bytes that rank 0 sends");
    if (l->elsewhere) {
        print_wire_elsewhere(l, out);
        return;
    }
    gw_table *t = gw_table_new("llrllrrrr");
    gw_table_row(t, "collective", "over", "ranks", "wire", "algorithm", "count", "payload", "moved",
                 "predicted");
    for (int i = 0; i < l->nwire; i++) {
        const gw_ledger_wire *w = &l->wire[i];
        gw_table_row(t, w->collective, w->axis, TEXT("%lld", (long long)w->ranks), w->wire,
                     TEXT("%s%s", w->algorithm, w->at_even_load ? ", at even load" : ""),
                     COUNT(w->count), BYTES(w->payload_bytes), BYTES(w->moved_bytes),
                     SECONDS(w->seconds));
    }
    gw_table_rule(t);
    gw_table_row(t, "total", "", "", "", "", "", BYTES(l->wire_bytes), BYTES(l->wire_moved_bytes),
                 SECONDS(l->wire_seconds));
    gw_table_print(t, out, "  ");
    gw_table_free(t);
    gw_arena_release(&mem);
    for (int i = 0; verbose && i < l->nwire; i++)
        if (l->wire[i].ncandidates > 0) print_candidates(&l->wire[i], out);
    if (!verbose) fprintf(out, "  (--verbose shows how each algorithm was chosen)\n");
}

void gw_plan_print(const gw_ledger *l, const char *name, bool all, bool verbose, FILE *out) {
    print_sizes(l, name, out);
    print_batch_dependence(l, out);
    print_static(l, out);
    print_causes(l, out);
    print_other_memory(l, out);
    print_peak(l, out);
    print_activations(l, all, out);
    print_rings(l, out);
    print_waterfall(l, all, out);
    print_flops(l, out);
    print_wire(l, verbose, out);
    if (!l->elsewhere) print_kernels(l, all, out);
}
