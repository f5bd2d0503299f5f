// SPDX-License-Identifier: Apache-2.0
// See trainer.h.
#include "trainer.h"

#include <string.h>

#include "../harness.h"
#include "base/num.h" /* gw_bf16_from_f32 */
#include "base/rng.h" /* gw_rng_u32 */

void trainer_init(program *p, gw_family f) {
    gw_model m = tiny_model(f, 2);
    program_init(p, &m, 2, 12);
    p->machine = gw_machine_this(2);
    p->opts.verify = true;
}

gw_exec *trainer_exec(program *p, gw_exec_opts eo) {
    gw_graph g;
    gw_exec *x = NULL;
    program_make(p, NULL, &g, NULL);
    eo.machine = p->machine;
    CHECK_OK(gw_exec_new(&x, &g, &eo, &p->dg), &p->dg);
    gw_graph_release(&g);
    return x;
}

static float uniform(gw_rng_key key, uint64_t i) {
    return (float)(gw_rng_u32(key, i) >> 8) / 8388608.0f - 1; /* [-1, 1) */
}

void trainer_weights(program *p, gw_exec *x, uint64_t seed) {
    for (int i = 0; i < p->nparams; i++) {
        gw_tensor t = gw_exec_tensor(x, gw_exec_find(x, p->params[i].name));
        gw_rng_key key = gw_rng_key_named(seed, p->params[i].name);
        CHECK(t.data != NULL);
        for (int64_t k = 0; k < t.elems; k++) {
            float v = p->params[i].init == GW_INIT_ONES ? 1 : 0.3f * uniform(key, (uint64_t)k);
            if (t.dtype == GW_F32)
                ((float *)t.data)[k] = v;
            else
                ((gw_bf16 *)t.data)[k] = gw_bf16_from_f32(v);
        }
    }
    const gw_graph *g = gw_exec_graph(x);
    for (int64_t v = 0; v < g->values.count; v++)
        if (g->values.items[v].role == GW_ROLE_STATE && g->values.items[v].def == GW_NONE)
            memset(gw_exec_ptr(x, (gw_vid)v), 0, (size_t)local_bytes(g, (gw_vid)v));
}

void trainer_inputs(program *p, gw_exec *x, int step, int mb) {
    enum { MOST = 256 };
    int64_t rows = p->build.batch, seq = p->build.seq, n = rows * seq;
    int32_t tokens[MOST], labels[MOST], positions[MOST], docs[MOST];
    int64_t samples[MOST];
    CHECK(n <= MOST);
    gw_rng_key key = gw_rng_key_named((uint64_t)(step * 64 + mb), "batch");
    for (int64_t i = 0; i < n; i++) {
        int64_t at = i % seq, cut = 4 + (i / seq) % 3; /* two documents a row */
        tokens[i] = (int32_t)(gw_rng_u32(key, (uint64_t)i) % (uint32_t)p->model.vocab);
        docs[i] = at >= cut;
        positions[i] = (int32_t)(at >= cut ? at - cut : at);
        labels[i] = i % 5 == 0 ? -100 : (int32_t)((tokens[i] * 7 + 3) % p->model.vocab);
        samples[i] = step * 1000 + mb * rows + i;
    }
    gw_exec_write(x, "tokens", tokens, n * 4);
    gw_exec_write(x, "labels", labels, n * 4);
    gw_exec_write(x, "positions", positions, n * 4);
    gw_exec_write(x, "docs", docs, n * 4);
    gw_exec_write(x, "samples", samples, rows * 8);
}

static void hash_value(gw_hash128 *h, const gw_exec *x, gw_vid v) {
    const gw_graph *g = gw_exec_graph(x);
    gw_hash128 part[2] = {*h, gw_hash128_of(gw_exec_ptr(x, v), (size_t)local_bytes(g, v))};
    *h = gw_hash128_of(part, sizeof part);
}

gw_hash128 trainer_state(const gw_exec *x) {
    const gw_graph *g = gw_exec_graph(x);
    gw_hash128 h = {0};
    for (int64_t i = 0; i < g->states.count; i++) hash_value(&h, x, g->states.items[i].start);
    return h;
}

static gw_hash128 hash_gradients(const gw_exec *x) {
    const gw_graph *g = gw_exec_graph(x);
    gw_hash128 h = {0};
    for (int64_t i = 0; i < g->ops.count; i++)
        if (is_op(g, &g->ops.items[i], "sqnorm"))
            hash_value(&h, x, gw_op_in(g, &g->ops.items[i], 0));
    return h;
}

trace trainer_step(program *p, gw_exec *x, int step, float seed_scale) {
    trace t = {0};
    int k = p->opts.micro_batches;
    float seed = seed_scale / (float)(20 * k), one = 1, lr = 1e-2f;
    int64_t number = step + 1, batch = step;
    gw_exec_write(x, "seed", &seed, sizeof seed);
    gw_exec_write(x, "aux_seed", &seed, sizeof seed);
    gw_exec_write(x, "batch", &batch, sizeof batch);
    gw_exec_write(x, "inv_scale", &one, sizeof one);
    gw_exec_write(x, "lr", &lr, sizeof lr);
    gw_exec_write(x, "muon_lr", &lr, sizeof lr);
    gw_exec_write(x, "step", &number, sizeof number);
    CHECK_OK(gw_exec_run(x, GW_SEG_PRE, &p->dg), &p->dg);
    for (int mb = 0; mb < k; mb++) {
        trainer_inputs(p, x, step, mb);
        CHECK_OK(gw_exec_run(x, GW_SEG_LOOP, &p->dg), &p->dg);
    }
    CHECK(gw_exec_read(x, "loss", &t.loss, sizeof t.loss));
    t.gradients = hash_gradients(x);
    CHECK_OK(gw_exec_run(x, GW_SEG_POST, &p->dg), &p->dg);
    CHECK(gw_exec_read(x, "norm", &t.norm, sizeof t.norm));
    t.state = trainer_state(x);
    return t;
}
