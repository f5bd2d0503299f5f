// SPDX-License-Identifier: Apache-2.0
// Bytes by cause, at every op: the waterfall, and its highest point in detail.
//
// Lives are those that place packed (gw_lives_of on the placed program gives them again: ties and
// workspaces are in it). A walk over the ops adds what is born and takes away what has died. The
// bytes of a chain of ties have one owner but not one cause: an optimizer's in-place result, or a
// gradient that an op writes over an activation, takes over memory that another cause has left. So
// each owner carries the value that stands in it now, and its bytes change cause with the op that
// defines the next.
//
// Only device memory is walked: what lies on host or disk stands still (ledger.c).
//
// The peak is the op that place names; the causes there and the arena differ by fragmentation.
// Activations of that instant are itemised twice: by layer, and by what made them with the layers
// of a model folded into one row.
#include <stdlib.h>
#include <string.h>

#include "base/map.h"   /* gw_smap, GW_VEC */
#include "base/panic.h" /* GW_ASSERT */
#include "ir/text.h"    /* gw_op_print, gw_type_print */
#include "plan/ledger.h"

/* Values of a program in the order of their births and deaths. */
typedef struct walk {
    const gw_graph *g;
    gw_arena *mem;
    gw_lives lives;
    gw_vid *now;    /* root -> the value that stands in its bytes */
    int64_t *bytes; /* root -> exact bytes of all places; 0 for non-roots and parameters of another
                       program */
    gw_vid *born, *dead, *next_born, *next_dead; /* lists by op */
    int64_t live[GW_CAUSE_COUNT];
} walk;

/* How many micro-batches a value has room for. */
static int64_t places_of(const walk *w, gw_vid v) {
    return w->lives.flow.places[w->lives.flow.class_of[v]];
}

static void walk_init(walk *w, const gw_graph *g, bool own_params, gw_arena *mem) {
    memset(w, 0, sizeof *w);
    w->g = g;
    w->mem = mem;
    gw_lives_of(&w->lives, g, mem);
    int64_t nv = g->values.count, no = g->ops.count;
    w->now = gw_arena_new(mem, gw_vid, nv);
    w->bytes = gw_arena_new(mem, int64_t, nv);
    w->next_born = gw_arena_new(mem, gw_vid, nv);
    w->next_dead = gw_arena_new(mem, gw_vid, nv);
    w->born = gw_arena_new(mem, gw_vid, no + 2);
    w->dead = gw_arena_new(mem, gw_vid, no + 2);
    for (int64_t i = 0; i < no + 2; i++) w->born[i] = w->dead[i] = GW_NONE;
    for (gw_vid v = 0; v < (gw_vid)nv; v++) {
        const gw_value *x = &g->values.items[v];
        w->now[v] = v;
        if (w->lives.bytes[v] == 0 || x->mem != GW_MEM_DEVICE) continue;
        if (!own_params && x->role == GW_ROLE_PARAM && w->lives.persistent[v]) continue;
        w->bytes[v] = gw_type_local_bytes(&x->type, &g->mesh, 0) * places_of(w, v);
        int32_t first = w->lives.first[v], last = w->lives.last[v];
        w->next_born[v] = w->born[first];
        w->born[first] = v;
        w->next_dead[v] = w->dead[last];
        w->dead[last] = v;
    }
}

static int64_t *cause_of(walk *w, gw_vid root) {
    return &w->live[w->g->values.items[w->now[root]].cause];
}

static void walk_enter(walk *w, gw_oid i) {
    for (gw_vid v = w->born[i]; v != GW_NONE; v = w->next_born[v]) *cause_of(w, v) += w->bytes[v];
    const gw_op *o = &w->g->ops.items[i];
    for (int k = 0; k < (int)o->nout; k++) {
        gw_vid out = gw_op_out(w->g, o, k), root = gw_value_root(w->g, out);
        *cause_of(w, root) -= w->bytes[root];
        w->now[root] = out;
        *cause_of(w, root) += w->bytes[root];
    }
}

static void walk_leave(walk *w, gw_oid i) {
    for (gw_vid v = w->dead[i]; v != GW_NONE; v = w->next_dead[v]) *cause_of(w, v) -= w->bytes[v];
}

/* ---- activations of one instant ---- */

static const char *scope_of(const gw_graph *g, gw_vid v) {
    gw_oid d = g->values.items[v].def;
    return d == GW_NONE ? "input" : gw_graph_str(g, g->ops.items[d].scope);
}

static int by_bytes_down(const void *a, const void *b) {
    const gw_ledger_activation *x = a, *y = b;
    if (x->bytes != y->bytes) return x->bytes > y->bytes ? -1 : 1;
    int c = strcmp(x->scope, y->scope);
    if (c == 0) c = strcmp(x->op, y->op);
    return c ? c : strcmp(x->type, y->type);
}

typedef struct activations {
    GW_VEC(gw_ledger_activation) kinds;
    GW_VEC(gw_ledger_layer) layers;
    gw_smap kind_of, layer_of;
} activations;

static void add_to_layer(activations *a, gw_arena *mem, const char *scope, int layer,
                         int64_t bytes) {
    int n = layer > 0 ? layer : (int)strcspn(scope, "/");
    const char *name = gw_arena_strndup(mem, scope, (size_t)n);
    uint32_t at = (uint32_t)a->layers.count;
    if (!gw_smap_find_c(&a->layer_of, name, &at)) {
        gw_smap_put_c(&a->layer_of, name, at);
        gw_vec_push(&a->layers, ((gw_ledger_layer){.name = name}));
    }
    a->layers.items[at].values++;
    a->layers.items[at].bytes += bytes;
}

static void add_to_kind(activations *a, gw_arena *mem, const walk *w, gw_vid v, const char *scope,
                        int layer, int64_t bytes) {
    const gw_graph *g = w->g;
    const gw_value *x = &g->values.items[v];
    gw_str type = {0};
    gw_type_print(&x->type, &g->mesh, &type);
    gw_ledger_activation row = {.in_layer = layer > 0, .places = places_of(w, v)};
    row.scope = gw_arena_strdup(mem, scope + layer + (scope[layer] == '/'));
    row.op = x->def == GW_NONE ? "input" : gw_op_def(g, &g->ops.items[x->def])->name;
    row.type = gw_arena_strdup(mem, gw_str_c(&type));
    gw_str_release(&type);
    const char *key = gw_arena_printf(mem, "%d %s|%s|%s|%lld", row.in_layer, row.scope, row.op,
                                      row.type, (long long)row.places);
    uint32_t at = (uint32_t)a->kinds.count;
    if (!gw_smap_find_c(&a->kind_of, key, &at)) {
        gw_smap_put_c(&a->kind_of, key, at);
        gw_vec_push(&a->kinds, row);
    }
    a->kinds.items[at].values++;
    a->kinds.items[at].bytes += bytes;
}

static void itemise(gw_ledger *l, const walk *w, gw_oid peak) {
    activations a = {0};
    const gw_graph *g = w->g;
    for (gw_vid v = 0; v < (gw_vid)g->values.count; v++) {
        if (w->bytes[v] == 0 || w->lives.first[v] > (int32_t)peak ||
            w->lives.last[v] < (int32_t)peak)
            continue;
        gw_vid now = w->now[v];
        if (g->values.items[now].cause != GW_CAUSE_ACTIVATIONS) continue;
        const char *scope = scope_of(g, now);
        int layer = gw_scope_layer(scope);
        add_to_layer(&a, &l->mem, scope, layer, w->bytes[v]);
        add_to_kind(&a, &l->mem, w, now, scope, layer, w->bytes[v]);
    }
    l->nactivations = (int)a.kinds.count;
    l->nlayers = (int)a.layers.count;
    l->activations =
        gw_arena_dup(&l->mem, a.kinds.items, a.kinds.count * (int64_t)sizeof *a.kinds.items);
    l->layers =
        gw_arena_dup(&l->mem, a.layers.items, a.layers.count * (int64_t)sizeof *a.layers.items);
    if (l->nactivations)
        qsort(l->activations, (size_t)l->nactivations, sizeof *l->activations, by_bytes_down);
    gw_vec_release(&a.kinds);
    gw_vec_release(&a.layers);
    gw_smap_release(&a.kind_of);
    gw_smap_release(&a.layer_of);
}

/* ---- the two programs ---- */

static void name_ops(gw_ledger *l, const gw_graph *g) {
    l->op_scope = gw_arena_new(&l->mem, const char *, l->nops + 1);
    l->op_name = gw_arena_new(&l->mem, const char *, l->nops + 1);
    l->op_phase = gw_arena_new(&l->mem, uint8_t, l->nops + 1);
    const char **text = gw_arena_new(&l->mem, const char *, g->strings.count + 1);
    for (int64_t i = 0; i < l->nops; i++) {
        const gw_op *o = &g->ops.items[i];
        if (!text[o->scope]) text[o->scope] = gw_arena_strdup(&l->mem, gw_graph_str(g, o->scope));
        l->op_scope[i] = text[o->scope];
        l->op_name[i] = gw_op_def(g, o)->name;
        l->op_phase[i] = o->phase;
    }
}

/* What is carried from piece to piece of a pipeline's stages, and boxes of messages. */
static void sum_places(gw_ledger *l, const walk *w) {
    l->most_places = 1;
    for (gw_vid v = 0; v < (gw_vid)w->g->values.count; v++) {
        const gw_value *x = &w->g->values.items[v];
        l->stages_share |= w->lives.flow.block_of[v] != gw_value_root(w->g, v);
        if (w->bytes[v] == 0) continue;
        if (w->lives.flow.class_of[v]) l->carried_bytes += w->bytes[v];
        l->most_places = GW_MAX(l->most_places, places_of(w, v));
        if (x->role == GW_ROLE_WORK && x->def == GW_NONE) l->box_bytes += w->bytes[v];
    }
}

static void walk_step(gw_ledger *l, const gw_ledger_input *in) {
    const gw_graph *g = in->program;
    gw_arena mem = {0};
    walk w;
    walk_init(&w, g, true, &mem);
    sum_places(l, &w);
    l->live = gw_arena_new(&l->mem, int64_t, l->nops * GW_CAUSE_COUNT + 1);
    for (gw_oid i = 0; i < (gw_oid)l->nops; i++) {
        walk_enter(&w, i);
        memcpy(&l->live[(int64_t)i * GW_CAUSE_COUNT], w.live, sizeof w.live);
        if (i == l->peak_op) itemise(l, &w, i);
        walk_leave(&w, i);
    }
    gw_arena_release(&mem);
    int64_t at_peak = 0;
    for (int c = 0; c < GW_CAUSE_COUNT && l->nops > 0; c++) {
        l->by_cause[c] = l->live[(int64_t)l->peak_op * GW_CAUSE_COUNT + c];
        at_peak += l->by_cause[c];
    }
    at_peak += in->report->place.kept_bytes;
    l->by_cause[GW_CAUSE_STAGING] += in->report->place.kept_bytes;
    GW_ASSERT(at_peak <= l->arena_bytes);
    l->by_cause[GW_CAUSE_FRAGMENTATION] += l->arena_bytes - at_peak;
}

/* An arena beside the step's, at its own peak. */
static void walk_valid(gw_ledger *l, const gw_graph *g) {
    l->valid_arena_bytes = g->arena_bytes[GW_MEM_DEVICE];
    if (l->valid_arena_bytes <= l->arena_bytes - l->persistent_bytes) return;
    l->valid_extra_bytes = l->valid_arena_bytes;
    gw_arena mem = {0};
    walk w;
    walk_init(&w, g, false, &mem);
    int64_t best[GW_CAUSE_COUNT] = {0}, most = -1;
    for (gw_oid i = 0; i < (gw_oid)g->ops.count; i++) {
        walk_enter(&w, i);
        int64_t sum = 0;
        for (int c = 0; c < GW_CAUSE_COUNT; c++) sum += w.live[c];
        if (sum > most) {
            most = sum;
            memcpy(best, w.live, sizeof best);
        }
        walk_leave(&w, i);
    }
    gw_arena_release(&mem);
    for (int c = 0; c < GW_CAUSE_COUNT; c++) l->by_cause[c] += best[c];
    l->by_cause[GW_CAUSE_FRAGMENTATION] += l->valid_arena_bytes - GW_MAX(most, 0);
}

void gw_ledger_read_live(gw_ledger *l, const gw_ledger_input *in) {
    const gw_place_report *p = &in->report->place;
    l->arena_bytes = p->arena_bytes[GW_MEM_DEVICE];
    l->lower_bound_bytes = p->lower_bound_bytes;
    l->persistent_bytes = p->persistent_bytes;
    l->peak_op = p->peak_op;
    name_ops(l, in->program);
    walk_step(l, in);
    if (in->valid) walk_valid(l, in->valid);
    gw_str text = {0};
    if (l->nops > 0) gw_op_print(in->program, l->peak_op, &text);
    l->peak_text = gw_arena_strdup(&l->mem, gw_str_c(&text));
    gw_str_release(&text);
}
