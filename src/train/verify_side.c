// SPDX-License-Identifier: Apache-2.0
// Running one side of a comparison.
//
// The layout's side is compiled exactly as `train` compiles it, but that its gradients stay
// readable to the end of the step. The reference is the same global graph, which knows nothing of
// ranks, with the mesh taken away: a micro-batch of it has the rows of all ranks. Both read the
// same loader, whose micro-batches are ranges of one order of samples, so the rows of part r of the
// samples are rows r b .. (r + 1) b of the reference's. A sequence that the layout pads is not
// padded there. Of a pipeline each rank asks for a micro-batch when it comes to it, and has the
// tensors of its stages; a table says which rank's each is.
//
// A reference can be bent in several ways. With its rows in the opposite order it computes the same
// function with sums in another order: what rounding does to this run. In 16 bits that is not all:
// sums that differ in their last bit make a weight, once in some 10^5, round to the neighbour of
// what it was, which is 10^4 times as much; a run of a few steps may see one such weight or none.
// So from the second step on one weight in 512 is moved to a neighbour for the length of forward
// and backward, and what that does to the rest is measured. A net with batch norms makes much of
// last bits from the first step on, and reversed rows can leave a norm's sums as they were: there
// weights are moved in every step, and in float32 all of them, by the last bit. Where products are
// cut over ranks each partial sum is rounded once more than on one rank, from the first step on,
// which is shown by moving a quarter of all weights (in float32 all). With all but some rows or
// micro-batches masked (the divisor unchanged) it computes what these alone add to the gradient:
// the parts of which a wrong gradient may be a wrong sum.
#include "train/verify_side.h"

#include <string.h>

#include "base/panic.h"    /* GW_ASSERT */
#include "base/rng.h"      /* gw_rng_key_named */
#include "train/buffers.h" /* gw_buffers_init */
#include "train/dataset.h" /* gw_dataset_open_train */
#include "train/ranks.h"   /* gw_ranks_gather */
#include "train/weights.h" /* gw_weights_init, gw_floats_from */

/* ---- data ---- */

/* Documents of odd lengths, some of a single token: rows have unequal numbers of labels. */
static gw_status make_up(const gw_setup *s, const gw_tokens_options *o, gw_arena *a,
                         gw_tokens **out, gw_diags *dg) {
    const gw_rf_train *t = &s->rf->train;
    enum { MOST = 1 << 22 };
    int64_t rows = 4 * t->global_batch, seq = t->seq_len;
    int64_t n = GW_MAX(2 * seq + 1, GW_MIN((int64_t)MOST, rows * seq + 1)), docs = 0;
    gw_rng_key key = gw_rng_key_named((uint64_t)t->seed, "verify");
    int32_t *tokens = gw_arena_new(a, int32_t, n);
    int64_t *ends = gw_arena_new(a, int64_t, n);
    for (int64_t i = 0; i < n; i++)
        tokens[i] = (int32_t)(gw_rng_u32(key, (uint64_t)i) % (uint32_t)s->model.vocab);
    for (int64_t at = 0; at < n; docs++) {
        uint64_t draw = gw_rng_u64(key, (uint64_t)(n + docs));
        at += docs % 5 == 4 ? 1 : 1 + (int64_t)(draw % (uint64_t)seq);
        ends[docs] = GW_MIN(at, n);
    }
    return gw_tokens_open_memory(tokens, ends, docs, o, out, dg);
}

gw_status gw_verify_data_open(const gw_setup *s, const gw_verify_data *given, gw_arena *a,
                              gw_tokens **out, gw_diags *dg) {
    const gw_runfile *rf = s->rf;
    gw_tokens_options o = gw_dataset_options(rf, s->model.vocab);
    if (given) {
        o.shuffle = given->shuffle;
        return gw_tokens_open_memory(given->tokens, given->ends, given->documents, &o, out, dg);
    }
    if (rf->data.train.count == 0) return make_up(s, &o, a, out, dg);
    return gw_dataset_open_train(rf, s->model.vocab, out, dg);
}

static bool has_images(const gw_verify_side *v) { return gw_runfile_has_images(v->setup->rf); }

static gw_status open_loader(gw_verify_side *v, gw_diags *dg) {
    if (has_images(v)) return GW_OK;
    gw_loader_options o = {.micro_batch = v->rows,
                           .accumulate = v->setup->rf->train.accumulate,
                           .dp_size = v->parts,
                           .dp_rank = v->part};
    gw_loader_close(v->loader);
    v->loader = NULL;
    return gw_loader_open(v->data, &o, &v->loader, dg);
}

/* ---- opening ---- */

static gw_status initial_weights(gw_verify_side *v, gw_diags *dg) {
    const gw_setup *s = v->setup;
    const gw_rf_model *m = &s->rf->model;
    if (m->source == GW_RF_PATH && m->load_weights)
        return gw_weights_load(v->x, &s->model, s->params, s->nparams, m->path, dg);
    gw_weights_init(v->x, s->params, s->nparams, (uint64_t)s->rf->train.seed, s->machine.threads);
    gw_buffers_init(v->x, &s->model);
    return GW_OK;
}

static void zero_states(gw_verify_side *v) {
    const gw_graph *g = gw_exec_graph(v->x);
    for (int64_t i = 0; i < g->values.count; i++) {
        const gw_value *x = &g->values.items[i];
        if (x->def != GW_NONE || x->role != GW_ROLE_STATE) continue;
        gw_tensor t = gw_exec_tensor(v->x, (gw_vid)i);
        if (t.data) memset(t.data, 0, (size_t)(t.elems * gw_dtype_bits(t.dtype) / 8));
    }
}

gw_status gw_verify_side_reset(gw_verify_side *v, const gw_verify_opts *o, gw_diags *dg) {
    (void)o;
    v->step = 0;
    zero_states(v);
    GW_TRY(initial_weights(v, dg));
    return open_loader(v, dg);
}

static void make_scratch(gw_verify_side *v) {
    int64_t n = v->rows * v->seq;
    v->tokens = gw_arena_new(&v->mem, int32_t, n);
    v->labels = gw_arena_new(&v->mem, int32_t, n);
    v->positions = gw_arena_new(&v->mem, int32_t, n);
    v->docs = gw_arena_new(&v->mem, int32_t, n);
    v->ids = gw_arena_new(&v->mem, int64_t, v->rows);
    gw_slices_init(&v->slices, v->x, v->rows, v->seq, &v->mem);
    v->part = v->parts > 1 ? gw_slices_part(&gw_exec_graph(v->x)->mesh, gw_exec_rank(v->x)) : 0;
}

static gw_status open_images(gw_verify_side *v, gw_diags *dg) {
    const gw_setup *s = v->setup;
    if (s->rf->data.train.count > 0)
        return gw_feed_open(&v->feed, s->rf, "data.train", &s->model, NULL, v->rows, dg);
    gw_feed_make_up(&v->feed, &s->model, (uint64_t)s->rf->train.seed, v->rows);
    return GW_OK;
}

static gw_status open_rest(gw_verify_side *v, const gw_graph *g, const gw_verify_opts *o,
                           gw_diags *dg) {
    gw_exec_opts x = {.machine = v->setup->machine, .comm = v->comm, .rank = gw_ranks_me(v->comm)};
    x.offload_dir = v->setup->rf->offload.dir;
    GW_TRY(gw_exec_new(&v->x, g, &x, dg));
    make_scratch(v);
    if (has_images(v)) GW_TRY(open_images(v, dg));
    if (!has_images(v)) GW_TRY(gw_verify_data_open(v->setup, o->data, &v->mem, &v->data, dg));
    return gw_verify_side_reset(v, o, dg);
}

static void begin(gw_verify_side *v, const gw_setup *s, const gw_verify_opts *o) {
    const gw_rf_optim *r = &s->rf->optimizer;
    memset(v, 0, sizeof *v);
    v->setup = s;
    v->seq = s->rf->train.seq_len;
    v->lr = o->run_optimizer               ? (float)r->lr
            : gw_runfile_has_images(s->rf) ? GW_VERIFY_IMAGE_LR
                                           : GW_VERIFY_LR;
    v->scale = s->train.compute == GW_F16 ? 1024.0f : 1.0f;
}

/* What is where, once all ranks of the side are open. */
static gw_status list(gw_verify_side *v, gw_diags *dg) {
    GW_TRY(gw_ranks_list(v->comm, gw_exec_graph(v->x), &v->mem, &v->table, dg));
    v->loss_entry = gw_ranks_find(&v->table, "loss");
    v->norm_entry = gw_ranks_find(&v->table, "norm");
    return GW_OK;
}

gw_status gw_verify_side_layout(gw_verify_side *v, const gw_setup *s, gw_comm *comm,
                                const gw_verify_opts *o, gw_diags *dg) {
    gw_graph g;
    begin(v, s, o);
    v->comm = comm;
    v->rows = s->rf->train.micro_batch;
    v->parts = s->rf->layout.dp;
    v->hooks = o->hooks;
    gw_status st = gw_setup_program(s, true, NULL, &g, NULL, dg);
    GW_TRY(gw_exec_agree(comm, st, NULL, "compiling the step", dg));
    if (o->hooks && o->hooks->mutate) o->hooks->mutate(&g, gw_ranks_me(comm), o->hooks->user);
    if (comm) gw_comm_set_mesh(comm, &g.mesh);
    st = open_rest(v, &g, o, dg);
    gw_graph_release(&g);
    GW_TRY(gw_exec_agree(comm, st, NULL, "opening the layout's side", dg));
    return list(v, dg);
}

gw_status gw_verify_side_reference(gw_verify_side *v, const gw_setup *s, const gw_verify_opts *o,
                                   gw_diags *dg) {
    gw_graph g;
    begin(v, s, o);
    v->rows = s->rf->train.micro_batch * s->rf->layout.dp;
    v->parts = 1;
    GW_TRY(gw_setup_reference(s, &g, dg));
    gw_status st = open_rest(v, &g, o, dg);
    gw_graph_release(&g);
    return st == GW_OK ? list(v, dg) : st;
}

void gw_verify_side_close(gw_verify_side *v) {
    gw_loader_close(v->loader);
    gw_feed_close(&v->feed);
    gw_tokens_close(v->data);
    gw_exec_free(v->x);
    gw_arena_release(&v->mem);
    memset(v, 0, sizeof *v);
}

/* ---- a step ---- */

/* Another token of the vocabulary; padding stays. */
static void alter(const gw_verify_side *v, int32_t *tokens) {
    for (int64_t i = 0; i < v->seq; i++)
        if (tokens[i] >= 0) tokens[i] = (int32_t)((tokens[i] + 1) % v->setup->model.vocab);
}

static bool is_altered(const gw_verify_side *v, int64_t k) {
    switch (v->altered.how) {
    case GW_VERIFY_ALTER_NONE: break;
    case GW_VERIFY_ALTER_ONE: return k == v->altered.micro;
    case GW_VERIFY_ALTER_REST: return k != v->altered.micro;
    }
    return false;
}

static void copy_row(gw_verify_side *v, const gw_micro_batch *m, int64_t from, int64_t to,
                     bool counts) {
    size_t bytes = (size_t)v->seq * sizeof(int32_t);
    int64_t a = from * v->seq, b = to * v->seq;
    memcpy(v->tokens + b, m->tokens + a, bytes);
    memcpy(v->labels + b, m->labels + a, bytes);
    memcpy(v->positions + b, m->positions + a, bytes);
    memcpy(v->docs + b, m->docs + a, bytes);
    v->ids[to] = m->sample_ids[from];
    for (int64_t i = 0; !counts && i < v->seq; i++) v->labels[b + i] = GW_LABEL_MASKED;
}

/* Does row `row` of micro-batch k count? */
static bool counts(const gw_verify_side *v, int64_t row, int64_t k) {
    const gw_verify_only *only = &v->only;
    bool micro = only->micros == 0 || (k >= only->micro && k < only->micro + only->micros);
    return micro &&
           (only->rows == 0 || (row >= only->first_row && row < only->first_row + only->rows));
}

static void swap_images(gw_feed *f, int64_t a, int64_t b) {
    float *x = f->pixels + a * f->row_elems, *y = f->pixels + b * f->row_elems;
    for (int64_t i = 0; i < f->row_elems; i++) {
        float pixel = x[i];
        x[i] = y[i];
        y[i] = pixel;
    }
    int32_t label = f->labels[a];
    f->labels[a] = f->labels[b];
    f->labels[b] = label;
}

static gw_status write_images(gw_verify_side *v, const gw_step_batch *b, int64_t k, gw_diags *dg) {
    gw_feed *f = &v->feed;
    int64_t part = k * v->parts + v->part;
    GW_TRY(gw_feed_read(f, b->first_sample + part * v->rows, dg));
    for (int64_t row = 0; row < v->rows; row++)
        if (!counts(v, row, k)) f->labels[row] = GW_LABEL_MASKED;
    for (int64_t row = 0; v->reversed && row < v->rows / 2; row++)
        swap_images(f, row, v->rows - 1 - row);
    gw_feed_write(f, v->x);
    return GW_OK;
}

static void write_micro_batch(gw_verify_side *v, const gw_micro_batch *m, int64_t k) {
    for (int64_t row = 0; row < v->rows; row++) {
        int64_t to = v->reversed ? v->rows - 1 - row : row;
        copy_row(v, m, row, to, counts(v, row, k));
        if (is_altered(v, k)) alter(v, v->tokens + to * v->seq);
    }
    gw_micro_batch here = {v->tokens, v->labels, v->positions, v->docs, v->ids, 0};
    gw_slices_write(&v->slices, v->x, &here);
    gw_verify_choices_write(v->choices, v->x, k, v->rows * v->parts, v->reversed, &v->mem,
                            &v->given, &v->given_room);
}

/* `aux`: with losses of experts, which no mask of labels touches. */
static void write_step_inputs(gw_verify_side *v, const gw_step_batch *b, bool aux) {
    double seed = b->step_labels > 0 ? (double)v->scale / (double)b->step_labels : 0;
    if (v->hooks && v->hooks->seed)
        seed = v->hooks->seed(seed, b, gw_ranks_me(v->comm), v->hooks->user);
    gw_step_inputs_write(
        v->x, &(gw_step_inputs){
                  .lr = v->lr,
                  .muon_lr = (float)v->setup->rf->optimizer.muon_lr,
                  .inv_scale = 1.0f / v->scale,
                  .seed = (float)seed,
                  .aux_seed = aux ? (float)((double)v->scale / gw_setup_aux_units(v->setup)) : 0,
                  .step = v->step + 1,
                  .batch = v->step});
}

/* The loss is a sum; where the program leaves it partial it is added up here. Of a pipeline the
 * ranks that have a result tell it. */
static gw_status read_results(gw_verify_side *v, gw_diags *dg) {
    float loss = 0, norm = 0;
    (void)gw_exec_read(v->x, "loss", &loss, sizeof loss);
    v->has_norm = gw_exec_read(v->x, "norm", &norm, sizeof norm);
    v->own_norm = (double)norm;
    const gw_ranks_entry *e[2] = {v->loss_entry, v->norm_entry};
    double x[2] = {(double)loss, (double)norm};
    GW_TRY(gw_ranks_sum_results(v->comm, &v->table, e, 2, x, "loss", dg));
    v->loss_sum = x[0];
    v->norm = x[1];
    return GW_OK;
}

/* ---- weights that round the other way ---- */

/* One weight in `one_in`, a power of two. */
static void nudge_floats(float *w, int64_t n, gw_rng_key key, float by, uint32_t one_in) {
    for (int64_t i = 0; i < n; i++) {
        uint32_t draw = gw_rng_u32(key, (uint64_t)i);
        if ((draw >> 1 & (one_in - 1)) == 0) w[i] *= draw & 1u ? 1 + by : 1 - by;
    }
}

static void nudge(gw_verify_side *v) {
    const gw_setup *s = v->setup;
    bool wide = s->train.compute == GW_F32;
    uint32_t one_in = wide ? 1 : v->shaken ? 4 : 512;
    float by = wide ? 1.0f / (1 << 23) : s->train.compute == GW_F16 ? 1.5f / 2048 : 1.5f / 256;
    v->saved = gw_mem_zalloc(sizeof(void *) * (size_t)(s->nparams + 1));
    for (int i = 0; i < s->nparams; i++) {
        gw_tensor t = gw_exec_tensor(v->x, gw_exec_find(v->x, s->params[i].name));
        size_t bytes = (size_t)(t.elems * gw_dtype_bits(t.dtype) / 8);
        float *w = gw_mem_alloc(sizeof(float) * (size_t)t.elems);
        v->saved[i] = gw_mem_alloc(bytes);
        memcpy(v->saved[i], t.data, bytes);
        gw_floats_from(t.dtype, t.data, t.elems, w);
        gw_rng_key key = gw_rng_key_named((uint64_t)s->rf->train.seed, s->params[i].name);
        nudge_floats(w, t.elems, gw_rng_key_fold(key, (uint64_t)(v->step + (v->draw << 32))), by,
                     one_in);
        gw_floats_to(t.dtype, w, t.elems, t.data);
        gw_mem_free(w);
    }
}

static void take_back(gw_verify_side *v) {
    for (int i = 0; v->saved && i < v->setup->nparams; i++) {
        gw_tensor t = gw_exec_tensor(v->x, gw_exec_find(v->x, v->setup->params[i].name));
        memcpy(t.data, v->saved[i], (size_t)(t.elems * gw_dtype_bits(t.dtype) / 8));
        gw_mem_free(v->saved[i]);
    }
    gw_mem_free(v->saved);
    v->saved = NULL;
}

/* A rank of a pipeline asks for micro-batches when it comes to them. */
static gw_status feed(void *user, gw_exec *x, int64_t k, gw_diags *dg) {
    gw_verify_side *v = user;
    (void)x;
    if (has_images(v)) return write_images(v, v->latest, k, dg);
    write_micro_batch(v, &v->latest->micro[k], k);
    return GW_OK;
}

static void ran(void *user, gw_exec *x, int64_t k, gw_oid first, gw_oid end) {
    const gw_verify_side *v = user;
    if (v->hooks && v->hooks->ran)
        v->hooks->ran(x, k, first, end, gw_ranks_me(v->comm), v->hooks->user);
}

static gw_status run_forward_backward(gw_verify_side *v, const gw_step_batch *b, gw_diags *dg) {
    gw_exec_loop loop = {.feed = feed, .ran = ran, .user = v};
    v->latest = b;
    GW_TRY(gw_exec_run(v->x, GW_SEG_PRE, dg));
    return gw_exec_run_all(v->x, b->count, &loop, dg);
}

gw_status gw_verify_side_probe(gw_verify_side *v, gw_diags *dg) {
    v->step--; /* the same batch has the same dropout */
    write_step_inputs(v, v->latest, false);
    v->step++;
    return run_forward_backward(v, v->latest, dg);
}

static const gw_step_batch *next_images(gw_verify_side *v) {
    int64_t images = v->setup->rf->train.global_batch;
    v->image_step = (gw_step_batch){.first_sample = v->step * images,
                                    .next_sample = (v->step + 1) * images,
                                    .step_labels = images,
                                    .step_tokens = images,
                                    .count = v->setup->rf->train.accumulate};
    return &v->image_step;
}

gw_status gw_verify_side_step(gw_verify_side *v, gw_diags *dg) {
    const gw_step_batch *b = NULL;
    gw_status st = GW_OK;
    if (has_images(v))
        b = next_images(v);
    else
        st = gw_loader_next(v->loader, &b, dg);
    GW_TRY(gw_exec_agree(v->comm, st, NULL, "beginning a step", dg));
    write_step_inputs(v, b, true);
    if (v->shaken || (v->nudged && (v->step > 0 || has_images(v)))) nudge(v);
    st = run_forward_backward(v, b, dg);
    take_back(v);
    GW_TRY(st);
    GW_TRY(gw_exec_run(v->x, GW_SEG_POST, dg));
    v->labels_seen = b->step_labels;
    v->step++;
    return read_results(v, dg);
}

/* ---- reading ---- */

gw_status gw_verify_side_read(const gw_verify_side *v, const gw_ranks_entry *e, float *out,
                              gw_diags *dg) {
    const gw_type *t = &e->type;
    gw_dtype dtype = (gw_dtype)t->dtype;
    gw_tensor here = {0};
    if (e->value != GW_NONE) here = gw_exec_tensor(v->x, e->value);
    if (!v->comm || (v->table.stages == 1 && !gw_ranks_have_parts(t))) {
        if (out) gw_floats_from(dtype, here.data, here.elems, out);
        return GW_OK;
    }
    int64_t n = gw_type_elems(t);
    void *whole = out ? gw_mem_alloc((size_t)(n * gw_dtype_bits(dtype) / 8) + 1) : NULL;
    gw_status st =
        gw_ranks_gather_from(v->comm, t, v->table.mesh, e->home, here.data, whole, e->name, dg);
    if (st == GW_OK && out) gw_floats_from(dtype, whole, n, out);
    gw_mem_free(whole);
    return st;
}

gw_status gw_verify_side_read_some(const gw_verify_side *v, const gw_ranks_entry *const *e, int n,
                                   float *const *out, gw_diags *dg) {
    gw_arena mem = {0};
    gw_ranks_want *w = gw_arena_new(&mem, gw_ranks_want, n + 1);
    int *which = gw_arena_new(&mem, int, n + 1), wanted = 0;
    gw_status st = GW_OK;
    for (int i = 0; i < n && st == GW_OK; i++) {
        const gw_type *t = &e[i]->type;
        bool here = !v->comm || (v->table.stages == 1 && !gw_ranks_have_parts(t));
        if (here) st = gw_verify_side_read(v, e[i], out[i], dg);
        if (here) continue;
        int64_t bytes = gw_type_elems(t) * gw_dtype_bits((gw_dtype)t->dtype) / 8;
        w[wanted] = (gw_ranks_want){.type = t,
                                    .home = e[i]->home,
                                    .whole = out[i] ? gw_arena_alloc(&mem, bytes + 1) : NULL};
        if (e[i]->value != GW_NONE) w[wanted].mine = gw_exec_tensor(v->x, e[i]->value).data;
        which[wanted++] = i;
    }
    if (st == GW_OK && wanted > 0)
        st = gw_ranks_gather_some(v->comm, v->table.mesh, w, wanted, "tensors to compare", dg);
    for (int k = 0; st == GW_OK && k < wanted; k++)
        if (w[k].whole)
            gw_floats_from((gw_dtype)w[k].type->dtype, w[k].whole, gw_type_elems(w[k].type),
                           out[which[k]]);
    gw_arena_release(&mem);
    return st;
}
