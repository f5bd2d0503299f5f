// SPDX-License-Identifier: Apache-2.0
// See golden.h.
#include "golden.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "../harness.h"
#include "ops/ops.h"     /* gw_ops_table */
#include "train/setup.h" /* gw_setup_read_model */

void golden_open(golden *g, const char *name, const char *weights, bool reference_kernels) {
    memset(g, 0, sizeof *g);
    gw_diags_init(&g->dg);
    char path[600];
    snprintf(g->dir, sizeof g->dir, "%s/%s", test_source_path("golden/models"),
             weights ? weights : name);
    snprintf(path, sizeof path, "%s/%s/golden.safetensors", test_source_path("golden/models"),
             name);
    CHECK_OK(gw_st_open(path, &g->want, &g->dg), &g->dg);
    CHECK_OK(gw_setup_read_model(g->dir, &g->model, &g->dg), &g->dg);
    gw_model_params(&g->model, &g->mem, &g->params, &g->nparams);
    g->infos = gw_arena_new(&g->mem, gw_param_info, g->nparams);
    for (int i = 0; i < g->nparams; i++)
        g->infos[i] = (gw_param_info){.name = g->params[i].name,
                                      .decay = g->params[i].decay,
                                      .hidden = g->params[i].hidden,
                                      .rows = g->params[i].rows};
    g->machine = gw_machine_this(2);
    g->machine.reference_only = reference_kernels;
    g->opts = (gw_compile_opts){.compute = GW_F32,
                                .gradients = GW_F32,
                                .master = GW_F32,
                                .moments = GW_F32,
                                .micro_batches = 1,
                                .params = g->infos,
                                .nparams = g->nparams,
                                .workspace = gw_exec_workspace,
                                .workspace_user = &g->machine,
                                .verify = true};
    g->opts.optim = (gw_optim_opts){.kind = GW_OPTIM_ADAMW,
                                    .beta1 = 0.9,
                                    .beta2 = 0.95,
                                    .eps = 1e-8,
                                    .decay = 0.1,
                                    .clip_norm = 1.0};
    const gw_st_tensor *ids = gw_st_find(g->want, "input_ids");
    if (ids) {
        g->batch = ids->dims[0];
        g->seq = ids->dims[1];
    }
    double sum = 0, count = 0;
    for (int i = 0; i < g->nparams; i++) {
        float *d = golden_param(g, "grad", &g->params[i]);
        int64_t n = gw_type_elems(&g->params[i].type);
        for (int64_t k = 0; d && k < n; k++) sum += (double)d[k] * (double)d[k];
        count += (double)n;
    }
    g->rms_grad = sqrt(sum / count);
}

void golden_close(golden *g) {
    gw_st_free(g->want);
    gw_arena_release(&g->mem);
    gw_diags_release(&g->dg);
}

gw_exec *golden_exec(golden *g, gw_build_mode mode, bool train, int accumulate) {
    gw_build_opts b = {.mode = mode,
                       .batch = g->batch / accumulate,
                       .seq = g->seq,
                       .compute = g->opts.compute,
                       .packed = gw_st_find(g->want, "docs") != NULL};
    gw_compile_opts o = g->opts;
    /* A program that is not trained still owns its parameters here: they get their own executor. */
    o.train = train;
    o.micro_batches = accumulate;
    gw_graph p;
    gw_graph_init(&p, gw_ops_table());
    CHECK_OK(gw_model_build(&p, &g->model, &b, &g->dg), &g->dg);
    CHECK_OK(gw_compile(&p, &o, NULL, NULL, &g->dg), &g->dg);
    gw_exec_opts eo = {.machine = g->machine, .own_params = !train};
    gw_exec *x = NULL;
    CHECK_OK(gw_exec_new(&x, &p, &eo, &g->dg), &g->dg);
    gw_graph_release(&p);
    CHECK_OK(gw_weights_load(x, &g->model, g->params, g->nparams, g->dir, &g->dg), &g->dg);
    return x;
}

static const int32_t *ints(golden *g, const char *name) {
    const gw_st_tensor *t = gw_st_find(g->want, name);
    return t ? gw_arena_dup(&g->mem, t->data, t->bytes) : NULL;
}

int64_t golden_inputs(golden *g, gw_exec *x, int64_t row, int64_t rows) {
    int64_t n = rows * g->seq, at = row * g->seq, valid = 0, bytes = n * 4;
    const int32_t *labels = ints(g, "labels"), *docs = ints(g, "docs"), *pos = ints(g, "positions");
    int32_t *count = gw_arena_new(&g->mem, int32_t, n);
    for (int64_t i = 0; i < n; i++) {
        count[i] = pos ? pos[at + i] : (int32_t)(i % g->seq);
        valid += labels[at + i] >= 0;
    }
    gw_exec_write(x, "tokens", ints(g, "input_ids") + at, bytes);
    gw_exec_write(x, "labels", labels + at, bytes);
    gw_exec_write(x, "positions", count, bytes);
    if (docs) gw_exec_write(x, "docs", docs + at, bytes);
    return valid;
}

int64_t golden_valid(golden *g) {
    const int32_t *labels = ints(g, "labels");
    int64_t valid = 0;
    for (int64_t i = 0; i < g->batch * g->seq; i++) valid += labels[i] >= 0;
    return valid;
}

float *golden_floats(golden *g, const char *name, int64_t *n) {
    const gw_st_tensor *t = gw_st_find(g->want, name);
    if (!t) return NULL;
    CHECK(t->dtype == GW_ST_F32);
    if (n) *n = t->elems;
    return gw_arena_dup(&g->mem, t->data, t->bytes);
}

float *golden_param(golden *g, const char *prefix, const gw_param *p) {
    char name[256], buf[GW_HF_NAME];
    int64_t rows = gw_param_rows(p), total = gw_param_hf_rows(p), n = gw_type_elems(&p->type);
    int64_t tensors = gw_param_hf_tensors(p), in = n / (rows * tensors);
    float *r = gw_arena_new(&g->mem, float, n);
    for (int64_t k = 0; k < tensors; k++) {
        snprintf(name, sizeof name, "%s.%s", prefix, gw_param_hf_name(p, k, buf));
        float *all = golden_floats(g, name, NULL);
        if (!all) return NULL;
        for (int64_t o = 0; o < rows; o++)
            for (int64_t i = 0; i < in; i++) {
                int64_t at = gw_param_hf_row(p, o);
                r[(k * rows + o) * in + i] =
                    p->hf_transposed && p->rows ? all[i * total + at] : all[at * in + i];
            }
    }
    return r;
}

double relative(const float *a, const float *b, int64_t n, double floor_per_elem) {
    double diff = 0, size = 0;
    for (int64_t i = 0; i < n; i++) {
        diff += ((double)a[i] - (double)b[i]) * ((double)a[i] - (double)b[i]);
        size += (double)b[i] * (double)b[i];
    }
    double base = fmax(sqrt(size), floor_per_elem * sqrt((double)n));
    return isfinite(diff) ? sqrt(diff) / fmax(base, 1e-30) : (double)INFINITY;
}

float *exec_floats(golden *g, const gw_exec *x, gw_vid v) {
    gw_tensor t = gw_exec_tensor(x, v);
    float *r = gw_arena_new(&g->mem, float, t.elems);
    gw_floats_from(t.dtype, t.data, t.elems, r);
    return r;
}

gw_vid gradient_value(const gw_exec *x, int i) {
    const gw_graph *g = gw_exec_graph(x);
    for (int64_t k = 0; k < g->ops.count; k++)
        if (strcmp(gw_op_def(g, &g->ops.items[k])->name, "sqnorm") == 0 && i-- == 0)
            return gw_op_in(g, &g->ops.items[k], 0);
    test_fail(__FILE__, __LINE__, "the program has no such gradient");
}
