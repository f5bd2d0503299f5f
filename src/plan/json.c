// SPDX-License-Identifier: Apache-2.0
// The ledger as JSON: what `gradwright plan --json` prints and a run's plan.json holds.
//
// Bytes and counts are integers. FLOPs are reals, since they pass 2^53. Keys are for scripts and
// stay; docs/plan.md explains each.
#include "base/panic.h" /* gw_panic */
#include "plan/ledger.h"
#include "plan/pipeplan.h" /* gw_pipeplan_json */

enum { WATERFALL_POINTS = 240 };

static void put(json_t *o, const char *key, json_t *v) {
    if (!v || json_object_set_new(o, key, v) != 0) gw_panic("plan.json: '%s' cannot be set", key);
}
static void put_int(json_t *o, const char *key, int64_t x) { put(o, key, json_integer(x)); }
static void put_real(json_t *o, const char *key, double x) { put(o, key, json_real(x)); }
static void put_text(json_t *o, const char *key, const char *s) { put(o, key, json_string(s)); }
static void push(json_t *a, json_t *v) {
    if (json_array_append_new(a, v) != 0) gw_panic("plan.json: a list cannot grow");
}

static json_t *net_json(const gw_model *m) {
    const gw_resnet *r = &m->resnet;
    json_t *o = json_object(), *blocks = json_array();
    for (int i = 0; i < 4; i++) push(blocks, json_integer(r->blocks[i]));
    put_text(o, "family", gw_family_name(m->family));
    put(o, "blocks", blocks);
    put(o, "bottleneck", json_boolean(r->bottleneck));
    put_int(o, "width", r->width);
    put_int(o, "image", r->image);
    put_int(o, "channels", r->channels);
    put_int(o, "classes", r->classes);
    return o;
}

static json_t *model_json(const gw_ledger *l) {
    const gw_model *m = &l->model;
    if (m->family == GW_FAMILY_RESNET) return net_json(m);
    json_t *o = json_object();
    put_text(o, "family", gw_family_name(m->family));
    put_int(o, "layers", m->layers);
    put_int(o, "hidden", m->hidden);
    put_int(o, "heads", m->heads);
    put_int(o, "kv_heads", m->kv_heads);
    put_int(o, "head_dim", m->head_dim);
    put_int(o, "ffn", m->ffn);
    put_int(o, "vocab", m->vocab);
    put(o, "tie_embeddings", json_boolean(m->tie));
    if (m->moe.experts == 0) return o;
    json_t *e = json_object();
    put_int(e, "experts", m->moe.experts);
    put_int(e, "top", m->moe.top);
    put_int(e, "ffn", m->moe.ffn);
    put_int(e, "shared", m->moe.shared);
    put_int(e, "dense_layers", m->moe.dense_layers);
    put_int(e, "choice_biases", gw_model_count_biases(m));
    put(o, "moe", e);
    return o;
}

/* What batch norms see; null where nothing depends on the batch. */
static json_t *batch_json(const gw_ledger *l) {
    if (l->batch_ops == 0) return json_null();
    json_t *o = json_object();
    put_int(o, "ops", l->batch_ops);
    put_int(o, "groups", l->model.resnet.groups);
    put_int(o, "images_together", l->micro_batch * l->dp / l->model.resnet.groups);
    put_int(o, "micro_batches", l->micro_batches);
    return o;
}

static json_t *causes_json(const int64_t *bytes) {
    json_t *o = json_object();
    for (int c = 0; c < GW_CAUSE_COUNT; c++) put_int(o, gw_cause_name((gw_cause)c), bytes[c]);
    return o;
}

static json_t *kind_json(const gw_ledger_kind *k) {
    json_t *o = json_object(), *states = json_array();
    put_int(o, "weights", k->weights);
    put_int(o, "gradients", k->gradients);
    put_int(o, "optimizer_states", k->optimizer);
    put_int(o, "master", k->master);
    for (int i = 0; i < k->nstates; i++) push(states, json_integer(k->states[i]));
    put(o, "moments", states);
    put_int(o, "total", k->total);
    put_int(o, "weights_over", k->weights_over);
    put_int(o, "gradients_over", k->gradients_over);
    put_int(o, "optimizer_states_over", k->optimizer_over);
    put_text(o, "text", k->text);
    put_int(o, "params", k->params);
    put_int(o, "tensors", k->tensors);
    return o;
}

/* A whole number where all parameters are alike, a mean where they are not (Muon). */
static void put_per_param(json_t *o, const char *key, int64_t bytes, int64_t params) {
    if (params > 0 && bytes % params != 0)
        put_real(o, key, (double)bytes / (double)params);
    else
        put_int(o, key, params > 0 ? bytes / params : 0);
}

static json_t *per_param_json(const gw_ledger *l) {
    json_t *o = json_object(), *kinds = json_array();
    put_per_param(o, "weights", l->static_weights, l->rank_params);
    put_per_param(o, "gradients", l->static_gradients, l->rank_params);
    put_per_param(o, "optimizer_states", l->static_optimizer, l->rank_params);
    put_per_param(o, "total", l->static_bytes, l->rank_params);
    gw_str text = {0};
    for (int i = 0; i < l->nkinds; i++)
        gw_str_printf(&text, "%s%s", i ? "; " : "", l->kinds[i].text);
    put_text(o, "text", gw_str_c(&text));
    gw_str_release(&text);
    for (int i = 0; i < l->nkinds; i++) push(kinds, kind_json(&l->kinds[i]));
    put(o, "kinds", kinds);
    return o;
}

static json_t *static_json(const gw_ledger *l) {
    json_t *o = json_object();
    put_int(o, "weights", l->static_weights);
    put_int(o, "gradients", l->static_gradients);
    put_int(o, "optimizer_states", l->static_optimizer);
    put_int(o, "total", l->static_bytes);
    return o;
}

static json_t *point_json(const gw_ledger *l, int64_t i) {
    json_t *o = json_object();
    put_int(o, "op", i);
    put_text(o, "name", l->op_name[i]);
    put_text(o, "scope", l->op_scope[i]);
    put_text(o, "phase", gw_phase_name((gw_phase)l->op_phase[i]));
    put_int(o, "bytes", gw_ledger_live_total(l, i));
    put(o, "by_cause", causes_json(&l->live[i * GW_CAUSE_COUNT]));
    return o;
}

static json_t *waterfall_json(const gw_ledger *l) {
    int64_t ops[WATERFALL_POINTS];
    int n = gw_ledger_sample(l, WATERFALL_POINTS, ops);
    json_t *a = json_array();
    for (int i = 0; i < n; i++) push(a, point_json(l, ops[i]));
    return a;
}

static json_t *activations_json(const gw_ledger *l) {
    json_t *a = json_array();
    for (int i = 0; i < l->nactivations; i++) {
        const gw_ledger_activation *x = &l->activations[i];
        json_t *o = json_object();
        put_text(o, "scope", x->scope);
        put_text(o, "op", x->op);
        put_text(o, "type", x->type);
        put(o, "in_layer", json_boolean(x->in_layer));
        put_int(o, "values", x->values);
        put_int(o, "places", x->places);
        put_int(o, "bytes", x->bytes);
        push(a, o);
    }
    return a;
}

static json_t *layers_json(const gw_ledger *l) {
    json_t *a = json_array();
    for (int i = 0; i < l->nlayers; i++) {
        json_t *o = json_object();
        put_text(o, "layer", l->layers[i].name);
        put_int(o, "values", l->layers[i].values);
        put_int(o, "bytes", l->layers[i].bytes);
        push(a, o);
    }
    return a;
}

static json_t *peak_json(const gw_ledger *l) {
    json_t *o = json_object();
    put_int(o, "op", l->peak_op);
    put_text(o, "name", l->nops ? l->op_name[l->peak_op] : "");
    put_text(o, "scope", l->nops ? l->op_scope[l->peak_op] : "");
    put_text(o, "phase", l->nops ? gw_phase_name((gw_phase)l->op_phase[l->peak_op]) : "");
    put_text(o, "text", l->peak_text);
    return o;
}

static json_t *memory_json(const gw_ledger *l) {
    json_t *o = json_object();
    put_int(o, "total_bytes", l->total_bytes);
    put_int(o, "arena_bytes", l->arena_bytes);
    put(o, "by_cause", causes_json(l->by_cause));
    put(o, "bytes_per_param", per_param_json(l));
    put(o, "static", static_json(l));
    put_int(o, "persistent_bytes", l->persistent_bytes);
    put_int(o, "lower_bound_bytes", l->lower_bound_bytes);
    put_real(o, "over_lower_bound_percent", gw_ledger_over_percent(l));
    put_int(o, "validation_arena_bytes", l->valid_arena_bytes);
    put_int(o, "validation_extra_bytes", l->valid_extra_bytes);
    put(o, "peak", peak_json(l));
    put(o, "activations", activations_json(l));
    put(o, "activations_by_layer", layers_json(l));
    put(o, "waterfall", waterfall_json(l));
    return o;
}

static json_t *flops_json(const gw_ledger *l) {
    const gw_ledger_flops *f = &l->flops;
    json_t *o = json_object(), *phases = json_object(), *conventions = json_object();
    put_real(o, "model", f->model);
    put_real(o, "model_full_attention", f->model_full_attention);
    put_real(o, "hardware", f->hardware);
    put_real(o, "hardware_full_attention", f->hardware_full_attention);
    put_real(o, "recompute", f->recompute);
    for (int p = 0; p < GW_PHASE_COUNT; p++)
        put_real(phases, gw_phase_name((gw_phase)p), f->by_phase[p]);
    put(o, "by_phase", phases);
    double experts = f->experts_by_phase[GW_PHASE_F], back = 0;
    for (int p = 0; p < GW_PHASE_COUNT; p++) back += p == GW_PHASE_F ? 0 : f->experts_by_phase[p];
    if (experts > 0) {
        json_t *e = json_object();
        put_real(e, "forward", experts);
        put_real(e, "backward", back);
        put(o, "experts", e);
    }
    put_real(conventions, "6N", f->n6);
    put_real(conventions, "6N+6Lhs", f->n6_causal);
    put_real(conventions, "6N+12Lhs", f->n6_full);
    put(o, "conventions", conventions);
    return o;
}

static json_t *candidates_json(const gw_ledger_wire *w) {
    json_t *a = json_array();
    for (int i = 0; i < w->ncandidates; i++) {
        const gw_coll_candidate *c = &w->candidates[i];
        json_t *o = json_object();
        put_text(o, "algorithm", c->name);
        put(o, "possible", json_boolean(c->possible));
        put_text(o, "why", c->why ? c->why : "");
        if (c->possible) put_real(o, "seconds", c->seconds);
        if (c->possible) put_int(o, "moved_bytes", c->moved);
        push(a, o);
    }
    return a;
}

static json_t *wire_json(const gw_ledger *l) {
    json_t *o = json_object(), *a = json_array();
    put_int(o, "payload_bytes", l->wire_bytes);
    put_int(o, "moved_bytes", l->wire_moved_bytes);
    put_real(o, "seconds", l->wire_seconds);
    for (int i = 0; i < l->nwire; i++) {
        const gw_ledger_wire *x = &l->wire[i];
        json_t *w = json_object();
        put_text(w, "collective", x->collective);
        put_text(w, "axis", x->axis);
        put_int(w, "ranks", x->ranks);
        put_text(w, "wire", x->wire);
        put_text(w, "algorithm", x->algorithm);
        put(w, "at_even_load", json_boolean(x->at_even_load));
        put_int(w, "count", x->count);
        put_int(w, "payload_bytes", x->payload_bytes);
        put_int(w, "moved_bytes", x->moved_bytes);
        put_real(w, "seconds", x->seconds);
        put_int(w, "largest_bytes", x->largest_bytes);
        put(w, "candidates", candidates_json(x));
        push(a, w);
    }
    put(o, "collectives", a);
    return o;
}

static json_t *kernels_json(const gw_ledger *l) {
    json_t *a = json_array();
    for (int i = 0; i < l->nkernels; i++) {
        const gw_ledger_kernel *k = &l->kernels[i];
        json_t *o = json_object();
        put_text(o, "op", k->op);
        put_text(o, "kernel", k->kernel->name);
        put_text(o, "note", k->kernel->note);
        put_int(o, "count", k->count);
        put_real(o, "flops", k->flops);
        put_int(o, "workspace_bytes", k->workspace_bytes);
        push(a, o);
    }
    return a;
}

static json_t *program_json(const gw_ledger *l) {
    json_t *o = json_object();
    put_int(o, "ops", l->nops);
    put_int(o, "values", l->nvalues);
    put_int(o, "recomputed_ops", l->recomputed_ops);
    return o;
}

static json_t *offload_json(const gw_ledger *l) {
    json_t *o = json_object();
    for (int m = 0; m < GW_MEM_COUNT; m++) {
        if (m == GW_MEM_DEVICE) continue;
        json_t *w = json_object();
        put_int(w, "bytes", l->other_bytes[m]);
        put_int(w, "fetched_bytes", l->copies.fetched[m]);
        put_int(w, "stored_bytes", l->copies.stored[m]);
        put(o, gw_mem_name((gw_mem)m), w);
    }
    return o;
}

json_t *gw_plan_json(const gw_ledger *l) {
    json_t *o = json_object();
    put(o, "model", model_json(l));
    put_int(o, "params", l->params);
    put_int(o, "active_params", l->active_params);
    put_int(o, "rank_params", l->rank_params);
    put_int(o, "ranks", l->ranks);
    put_int(o, "pp", l->pp);
    put_int(o, "dp", l->dp);
    put_int(o, "micro_batch", l->micro_batch);
    put_int(o, "seq_len", l->seq);
    put_int(o, "micro_batches", l->micro_batches);
    put_int(o, "tokens_per_step", l->tokens_per_step);
    put(o, "batch_dependent", batch_json(l));
    put(o, "memory", memory_json(l));
    put(o, "offload", offload_json(l));
    put(o, "flops", flops_json(l));
    put(o, "wire", wire_json(l));
    put(o, "kernels", kernels_json(l));
    put(o, "program", program_json(l));
    if (l->pipeline) put(o, "pipeline", gw_pipeplan_json(l->pipeline));
    return o;
}
