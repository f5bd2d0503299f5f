// SPDX-License-Identifier: Apache-2.0
// See verify_rig.h.
#include "verify_rig.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"    /* gw_log_set_level */
#include "base/str.h"    /* gw_str */
#include "comm/launch.h" /* gw_launch_threads */
#include "harness.h"
#include "ir/opdef.h" /* gw_optable_find */

rig rig_make(const char *family, int ranks) {
    return (rig){.family = family, .ranks = ranks, .opts = {.steps = 3}};
}

void rig_set(rig *r, const char *fmt, ...) {
    CHECK(r->nsets + 1 < (int)GW_COUNT(r->sets));
    va_list ap;
    va_start(ap, fmt);
    char *text = gw_mem_alloc(200);
    vsnprintf(text, 200, fmt, ap);
    va_end(ap);
    r->sets[r->nsets++] = text;
}

static bool is_family(const rig *r, const char *name) { return strcmp(r->family, name) == 0; }

/* Experts of a router that is kept small and even; of deepseek after one dense layer, with one
 * that every token goes to, in two groups. */
static void write_experts(const rig *r, gw_str *text) {
    if (is_family(r, "deepseek"))
        gw_str_add(text,
                   ", moe: {experts: 6, top: 2, ffn: 11, shared: 1, groups: 2, group_limit: 1, "
                   "z_weight: 0.01}, mla: {q_rank: 9, kv_rank: 10, nope: 6, rope: 4, v: 5}");
    else
        gw_str_printf(text,
                      ", moe: {experts: 6, top: %d, ffn: 11, balance_weight: 0.02, z_weight: 0.01}",
                      is_family(r, "mixtral") ? 2 : 3);
}

bool rig_has_experts(const char *family) {
    return strcmp(family, "mixtral") == 0 || strcmp(family, "qwen3_moe") == 0 ||
           strcmp(family, "deepseek") == 0;
}

static void write_model(const rig *r, gw_str *text) {
    gw_str_printf(text,
                  "model: {family: %s, layers: 2, hidden: 30, heads: 3, ffn: 35, vocab: 53, "
                  "max_positions: 32, tie_embeddings: %s",
                  r->family, is_family(r, "llama") || is_family(r, "gpt2") ? "true" : "false");
    if (is_family(r, "gpt2")) gw_str_add(text, ", dropout: 0.1");
    if (!is_family(r, "gpt2") && !is_family(r, "deepseek")) gw_str_add(text, ", kv_heads: 1");
    if (is_family(r, "mistral")) gw_str_add(text, ", sliding_window: 4");
    if (rig_has_experts(r->family)) write_experts(r, text);
    gw_str_add(text, "}\n");
}

/* Odd sizes; the smallest that has a variance in its last stage. */
static void write_net(const rig *r, gw_str *text) {
    gw_str_printf(text,
                  "model: {family: %s, width: 3, image: 17, channels: 2, classes: 7, "
                  "batchnorm: sync}\n",
                  r->family);
}

gw_status rig_parse(const rig *r, gw_runfile *rf, gw_diags *dg) {
    gw_str text = {0};
    bool net = strncmp(r->family, "resnet", 6) == 0;
    if (net)
        write_net(r, &text);
    else
        write_model(r, &text);
    gw_str_printf(&text,
                  "train: {steps: 8, micro_batch: %s, threads: 1}\n"
                  "layout: {first_bucket: 2000, bucket: 9000}\n",
                  net ? "3" : "1, seq_len: 7");
    gw_status st =
        gw_runfile_parse(rf, "rig.yaml", gw_str_c(&text), (int64_t)text.len, r->sets, r->nsets, dg);
    gw_str_release(&text);
    return st;
}

void rig_runfile(const rig *r, gw_runfile *rf) {
    gw_diags dg;
    gw_diags_init(&dg);
    CHECK_OK(rig_parse(r, rf, &dg), &dg);
    gw_diags_release(&dg);
}

/* One rank: its own run file, rank 0's result. */
static gw_status body(gw_comm *c, void *user, gw_diags *dg) {
    rig *r = user;
    gw_runfile rf;
    gw_verify_result mine = {0};
    rig_runfile(r, &rf);
    gw_status st = gw_runfile_set_ranks(&rf, r->ranks, dg);
    if (st == GW_OK) st = gw_verify_run(&rf, &r->opts, c, &mine, dg);
    if (!c || gw_comm_rank(c) == 0)
        r->out = mine;
    else
        gw_verify_result_release(&mine);
    gw_runfile_release(&rf);
    return st;
}

void rig_verify(rig *r) {
    gw_diags dg;
    gw_diags_init(&dg);
    gw_log_set_level(GW_LOG_QUIET);
    gw_verify_result_release(&r->out);
    memset(&r->out, 0, sizeof r->out);
    if (r->ranks == 1)
        CHECK_OK(body(NULL, r, &dg), &dg);
    else
        CHECK_OK(gw_launch_threads(r->ranks, 30, body, r, &dg), &dg);
    gw_diags_release(&dg);
}

bool rig_agrees(rig *r) {
    rig_verify(r);
    if (r->out.ok) return true;
    test_note("%s on %d ranks", r->family, r->ranks);
    for (int i = 0; i < r->nsets; i++) test_note("  --set %s", r->sets[i]);
    gw_verify_print(&r->out, 10, stdout);
    return false;
}

void rig_passes(rig *r) {
    if (rig_agrees(r)) return;
    test_fail(__FILE__, __LINE__, "verify fails");
}

void rig_release(rig *r) {
    gw_verify_result_release(&r->out);
    for (int i = 0; i < r->nsets; i++) {
        union {
            const char *text;
            void *block;
        } u = {.text = r->sets[i]};
        gw_mem_free(u.block);
    }
    memset(r, 0, sizeof *r);
}

const gw_verify_tensor *rig_wrong(const rig *r, gw_verify_kind kind, const char *name) {
    const gw_verify_pass *p = &r->out.pass[0];
    for (int64_t i = 0; i < p->ntensors; i++)
        if (!p->tensors[i].agrees && p->tensors[i].kind == kind &&
            (!name || strcmp(p->tensors[i].name, name) == 0))
            return &p->tensors[i];
    return NULL;
}

const gw_verify_check *rig_check(const rig *r, const char *name) {
    for (int i = 0; i < r->out.nchecks; i++)
        if (strncmp(r->out.checks[i].name, name, strlen(name)) == 0) return &r->out.checks[i];
    test_fail(__FILE__, __LINE__, "no check '%s'", name);
}

/* ---- faults ---- */

gw_oid rig_op_of(const gw_graph *g, const char *name) {
    for (int64_t v = 0; v < g->values.count; v++)
        if (g->values.items[v].def != GW_NONE &&
            strcmp(gw_graph_str(g, g->values.items[v].name), name) == 0)
            return g->values.items[v].def;
    test_fail(__FILE__, __LINE__, "the program has no '%s'", name);
}

void rig_drop_reduction(gw_graph *g, const char *name) {
    gw_op *o = &g->ops.items[rig_op_of(g, name)];
    CHECK(gw_op_def(g, o)->traits & GW_OP_COLLECTIVE);
    o->code = (uint16_t)gw_optable_find(g->table, "slice");
}

void rig_reduce_twice(gw_graph *g, const char *name) {
    gw_oid twice = rig_op_of(g, name);
    gw_vid *map = gw_mem_alloc(sizeof *map * (size_t)(g->values.count + 1));
    gw_graph out;
    gw_graph_init(&out, g->table);
    out.mesh = g->mesh;
    out.micro_batches = g->micro_batches;
    memcpy(out.arena_bytes, g->arena_bytes, sizeof out.arena_bytes);
    for (int64_t v = 0; v < g->values.count; v++) {
        map[v] = GW_NONE;
        if (g->values.items[v].def == GW_NONE) map[v] = gw_graph_copy_leaf(&out, g, (gw_vid)v);
    }
    for (gw_oid i = 0; i < (gw_oid)g->ops.count; i++) {
        (void)gw_graph_copy_op(&out, g, i, map);
        if (i != twice) continue;
        /* In place: the same bytes, still partial by their type. */
        out.values.items[map[gw_op_out(g, &g->ops.items[i], 0)]].name = 0;
        (void)gw_graph_copy_op(&out, g, i, map);
    }
    for (int64_t i = 0; i < g->states.count; i++)
        gw_graph_add_state(&out, map[g->states.items[i].start], map[g->states.items[i].end]);
    gw_mem_free(map);
    gw_graph_release(g);
    *g = out;
}
