// SPDX-License-Identifier: Apache-2.0
// Opening a run, saving it, and everything that is done once.
//
// The order of opening is the order in which a mistake is cheapest: the model and the program are
// made first and tell sizes, then data is opened (a missing file shows in a moment), and only then
// is memory reserved. Weights come from the seed, a public file or a checkpoint; a checkpoint is
// looked at last, when everything it must fit is known.
//
// The training executor owns parameters, states and temporaries in one arena. Validation is a
// second program without bytes of its own: parameters are those of training, by name, and its arena
// lies in the training temporaries, which hold nothing between steps.
//
// With several ranks every stage ends in an exchange of statuses, so that all go on or none does.
// Each rank makes, reads or loads the part of a tensor that it holds. A checkpoint is one file as
// one rank writes it: rank 0 puts tensors together from their parts, one after another, while the
// others hand their parts over. So a checkpoint does not know by how many ranks it was written. A
// rank of a pipeline has the tensors of its stages alone; what the others have it knows by name and
// type, so that all of them are asked for in one order.
//
// For generation and export a program without ops carries the parameters: the same leaves, placed
// by the same pass, so that everything that works on parameters of an executor works there too.
#include "train/session.h"

#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/io.h"          /* gw_path_exists */
#include "base/log.h"         /* gw_log_info */
#include "base/panic.h"       /* GW_ASSERT */
#include "base/str.h"         /* gw_str */
#include "ir/text.h"          /* gw_graph_print */
#include "ops/ops.h"          /* gw_ops_table */
#include "run/exec_channel.h" /* gw_exec_sends_traffic */
#include "run/exec_comm.h"    /* gw_exec_traffic */
#include "run/memory.h"       /* gw_memory_pss */
#include "train/buffers.h"    /* gw_buffers_init */
#include "train/dataset.h"    /* gw_dataset_open_train */
#include "train/pipeline.h"   /* gw_pipeline_pace */
#include "train/ranks.h"      /* gw_ranks_gather */
#include "train/weights.h"    /* gw_weights_init */

enum { OPENING_LIMIT_S = 1800 };

/* Does a step give a leaf another value? */
static bool is_updated(const gw_graph *g, gw_vid v) {
    for (int64_t i = 0; i < g->states.count; i++)
        if (g->states.items[i].start == v) return true;
    return false;
}

/* A parameter or state, as a checkpoint sees it from this rank. */
static gw_ckpt_tensor tensor_of(const gw_session *s, const gw_ranks_entry *e) {
    bool here = e->value != GW_NONE;
    gw_ckpt_tensor c = {.name = e->name,
                        .dtype = (gw_dtype)e->type.dtype,
                        .ndim = e->type.ndim,
                        .type = &e->type,
                        .mesh = s->table.mesh,
                        .rank = gw_exec_rank(s->x),
                        .data = here ? gw_exec_tensor(s->x, e->value).data : NULL,
                        .home = e->home,
                        .away = !here,
                        .frozen = here && !is_updated(gw_exec_graph(s->x), e->value)};
    for (int i = 0; i < c.ndim; i++) c.dims[i] = e->type.dims[i].size;
    c.box = gw_box_whole(c.ndim, c.dims);
    GW_ASSERT(!here || c.data || gw_exec_tensor(s->x, e->value).elems == 0);
    return c;
}

/* A parameter that no stage has would never be trained: a mistake of ours. */
static void check_params(const gw_session *s) {
    for (int i = 0; i < s->setup.nparams; i++)
        if (!gw_ranks_find(&s->table, s->setup.params[i].name))
            gw_panic("no rank's program has the parameter '%s'", s->setup.params[i].name);
}

/* Every parameter and state of all ranks, and the results of a step. */
static gw_status list_tensors(gw_session *s, gw_diags *dg) {
    GW_TRY(gw_ranks_list(s->comm, gw_exec_graph(s->x), &s->mem, &s->table, dg));
    s->tensors = gw_arena_new(&s->mem, gw_ckpt_tensor, s->table.n + 1);
    s->entries = gw_arena_new(&s->mem, const gw_ranks_entry *, s->table.n + 1);
    for (int i = 0; i < s->table.n; i++) {
        const gw_ranks_entry *e = &s->table.items[i];
        if (!e->leaf) continue;
        s->entries[s->ntensors] = e;
        s->tensors[s->ntensors++] = tensor_of(s, e);
    }
    check_params(s);
    s->loss = gw_ranks_find(&s->table, "loss");
    s->norm = gw_ranks_find(&s->table, "norm");
    s->ok = gw_ranks_find(&s->table, "ok");
    return GW_OK;
}

static gw_status initial_weights(gw_session *s, gw_diags *dg) {
    const gw_runfile *rf = s->rf;
    if (rf->model.source == GW_RF_PATH && rf->model.load_weights)
        return gw_weights_load(s->x, &s->setup.model, s->setup.params, s->setup.nparams,
                               rf->model.path, dg);
    gw_weights_init(s->x, s->setup.params, s->setup.nparams, (uint64_t)rf->train.seed,
                    s->setup.machine.threads);
    gw_buffers_init(s->x, &s->setup.model);
    return GW_OK;
}

static gw_loader_options loader_options(const gw_session *s) {
    const gw_runfile *rf = s->rf;
    const gw_mesh *mesh = &gw_exec_graph(s->x)->mesh;
    return (gw_loader_options){.micro_batch = rf->train.micro_batch,
                               .accumulate = rf->train.accumulate,
                               .dp_size = rf->layout.dp,
                               .dp_rank = gw_slices_part(mesh, gw_exec_rank(s->x)),
                               .first_sample = s->next_sample,
                               .prefetch = rf->data.prefetch_steps};
}

static gw_status open_data(gw_session *s, gw_diags *dg) {
    if (s->dataless) return GW_OK;
    GW_TRY(gw_runfile_require(s->rf, "data.train", "train", dg));
    if (gw_session_has_images(s)) return gw_session_open_images(s, dg);
    GW_TRY(gw_dataset_open_train(s->rf, s->setup.model.vocab, &s->data, dg));
    gw_hash128_hex(s->data_hash, gw_tokens_hash(s->data));
    if (!s->rf->data.valid) return GW_OK;
    GW_TRY(gw_dataset_open_valid(s->rf, s->setup.model.vocab, &s->valid.data, dg));
    gw_hash128_hex(s->valid_hash, gw_tokens_hash(s->valid.data));
    return GW_OK;
}

/* A checkpoint holds the run file as JSON text: what is not UTF-8 in it would be found out only at
 * the first save. */
static gw_status check_one_text(const gw_runfile *rf, const char *key, const char *value,
                                gw_diags *dg) {
    json_t *text = value ? json_string(value) : json_null();
    json_decref(text);
    if (text) return GW_OK;
    gw_diag *g = gw_runfile_error(rf, dg, key, "checkpoint-text",
                                  "%s is not UTF-8 text: a checkpoint could not be saved", key);
    gw_diag_hint(dg, g, "name the file otherwise, or reach it through a link");
    return GW_ERR_CONFIG;
}

static gw_status check_text(const gw_runfile *rf, gw_diags *dg) {
    GW_TRY(check_one_text(rf, "model.path", rf->model.path, dg));
    for (int64_t i = 0; i < rf->data.train.count; i++)
        GW_TRY(check_one_text(rf, "data.train", rf->data.train.items[i].path, dg));
    GW_TRY(check_one_text(rf, "data.valid", rf->data.valid, dg));
    GW_TRY(check_one_text(rf, "data.cache", rf->data.cache, dg));
    return check_one_text(rf, "data.tokenizer", rf->data.tokenizer, dg);
}

/* ---- validation ---- */

static void count_token_bytes(gw_session *s) {
    const gw_tokenizer *t = s->setup.tokenizer;
    if (!t) return;
    int64_t vocab = s->setup.model.vocab, known = gw_tokenizer_vocab_size(t);
    s->valid.token_bytes = gw_arena_new(&s->mem, int32_t, vocab);
    for (int64_t i = 0; i < GW_MIN(vocab, known); i++) {
        size_t n = 0;
        if (gw_tokenizer_is_special(t, (int32_t)i)) continue;
        (void)gw_tokenizer_token_bytes(t, (int32_t)i, &n);
        s->valid.token_bytes[i] = (int32_t)n;
    }
}

/* Says so, once, when nothing in the held-out set can be measured. */
static void warn_without_labels(const gw_session *s) {
    const gw_session_valid *v = &s->valid;
    int64_t n = GW_MIN(v->samples, v->batches * s->rf->train.micro_batch * s->rf->layout.dp);
    if (gw_ranks_me(s->comm) > 0) return;
    for (int64_t i = 0; i < n; i++)
        if (gw_tokens_valid(v->data, i) > 0) return;
    gw_log_warn("no label of data.valid counts (each document's first is left out): validation has "
                "no loss");
}

static gw_status open_valid(gw_session *s, gw_diags *dg) {
    gw_session_valid *v = &s->valid;
    if (!v->data && !v->feed.images) return GW_OK;
    gw_graph g;
    gw_compile_report report = {0};
    GW_TRY(gw_setup_program(&s->setup, false, NULL, &g, &report, dg));
    gw_exec_opts o = {.machine = s->setup.machine,
                      .params_from = s->x,
                      .comm = s->comm,
                      .rank = gw_ranks_me(s->comm),
                      .offload_dir = s->rf->offload.dir};
    o.overlay = gw_exec_temporaries(s->x, &o.overlay_bytes);
    gw_status st = gw_exec_new(&v->x, &g, &o, dg);
    gw_graph_release(&g);
    GW_TRY(st);
    GW_TRY(gw_ranks_list(s->comm, gw_exec_graph(v->x), &s->mem, &v->results, dg));
    v->loss = gw_ranks_find(&v->results, "loss");
    if (gw_session_has_images(s)) {
        gw_session_plan_validation(s);
        return GW_OK;
    }
    int64_t b = s->rf->train.micro_batch, bs = b * s->rf->train.seq_len;
    v->samples = gw_tokens_samples(v->data);
    int64_t rows = b * s->rf->layout.dp;
    v->batches = (v->samples + rows - 1) / rows;
    if (s->rf->train.valid_batches > 0) v->batches = GW_MIN(v->batches, s->rf->train.valid_batches);
    v->tokens = gw_arena_new(&s->mem, int32_t, bs);
    v->labels = gw_arena_new(&s->mem, int32_t, bs);
    v->positions = gw_arena_new(&s->mem, int32_t, bs);
    v->docs = gw_arena_new(&s->mem, int32_t, bs);
    v->ids = gw_arena_new(&s->mem, int64_t, b);
    gw_slices_init(&v->slices, v->x, b, s->rf->train.seq_len, &s->mem);
    count_token_bytes(s);
    warn_without_labels(s);
    return GW_OK;
}

/* ---- opening ---- */

/* Is there a tokenizer without insisting on one? */
static bool names_tokenizer(const gw_runfile *rf, gw_arena *a) {
    if (rf->data.tokenizer) return true;
    return rf->model.source == GW_RF_PATH && gw_path_is_dir(rf->model.path) &&
           gw_path_exists(gw_path_join(a, rf->model.path, "tokenizer.json"));
}

static void begin(gw_session *s, gw_runfile *rf, gw_comm *comm) {
    memset(s, 0, sizeof *s);
    s->rf = rf;
    s->comm = comm;
    s->resumed = s->saved = -1;
}

/* What all stages do, as text: the schedule, what stages hold, and the model's whole program before
 * it is cut. */
static gw_status plan_text(const gw_session *s, gw_str *text, gw_diags *dg) {
    gw_graph g;
    GW_TRY(gw_setup_program(&s->setup, true, "chunk", &g, NULL, dg));
    gw_schedule_print(s->setup.schedule, text);
    for (int i = 0; i < s->report.nstages; i++)
        gw_str_printf(text, "stage %d: layers %d to %d\n", i, s->report.stages[i].first_layer,
                      s->report.stages[i].first_layer + s->report.stages[i].layers - 1);
    gw_graph_print(&g, text, false);
    gw_graph_release(&g);
    return GW_OK;
}

static gw_status compare_stages(const gw_session *s, gw_str *text, gw_diags *dg) {
    gw_str_clear(text);
    if (!s->setup.schedule) return GW_OK;
    gw_status st = plan_text(s, text, dg);
    GW_TRY(gw_exec_agree(s->comm, st, NULL, "compiling the step of all stages", dg));
    return gw_ranks_same_text(s->comm, "plan of all stages", gw_str_c(text), dg);
}

/* The ranks read one run file and compile one program, or none begins. Of a pipeline, those of one
 * stage have one program, and all know one plan. */
static gw_status compare_plans(const gw_session *s, const gw_graph *g, gw_diags *dg) {
    if (!s->comm) return GW_OK;
    gw_str text = {0};
    gw_runfile_yaml(s->rf, false, &text);
    gw_status st = gw_ranks_same_text(s->comm, "run file", gw_str_c(&text), dg);
    if (st == GW_OK) st = compare_stages(s, &text, dg);
    gw_str_clear(&text);
    gw_graph_print(g, &text, false);
    if (st == GW_OK)
        st = gw_ranks_same_text_of(s->comm, s->setup.stage_rank, "program", gw_str_c(&text), dg);
    gw_str_release(&text);
    return st;
}

static gw_status agree(const gw_session *s, gw_status st, const char *what, gw_diags *dg) {
    return gw_exec_agree(s->comm, st, NULL, what, dg);
}

static gw_status make_executor(gw_session *s, const gw_graph *g, gw_diags *dg) {
    gw_status st = open_data(s, dg);
    const gw_schedule *stages = s->setup.schedule;
    gw_exec_opts o = {.machine = s->setup.machine, .comm = s->comm, .rank = gw_ranks_me(s->comm)};
    if (st == GW_OK)
        st = gw_pipeline_pace(stages ? stages->stages : 0, o.stage_seconds, &s->mem, dg);
    GW_TRY(agree(s, st, "opening the data", dg));
    GW_TRY(compare_plans(s, g, dg));
    if (s->comm) gw_comm_set_mesh(s->comm, &g->mesh);
    gw_kernel_warm(&s->setup.machine);
    s->program_bytes = gw_memory_pss();
    o.offload_dir = s->rf->offload.dir;
    o.keeps = s->report.place.kept_bytes > 0;
    return gw_exec_new(&s->x, g, &o, dg);
}

static gw_status open_training_program(gw_session *s, gw_diags *dg) {
    gw_graph g;
    gw_status st = gw_setup_program(&s->setup, true, NULL, &g, &s->report, dg);
    GW_TRY(agree(s, st, "compiling the step", dg));
    st = make_executor(s, &g, dg);
    gw_graph_release(&g);
    return agree(s, st, "making the executor", dg);
}

/* Of the ranks that are given the same samples one counts what it was fed. */
static bool counts_samples(const gw_session *s) {
    const gw_mesh *mesh = &gw_exec_graph(s->x)->mesh;
    uint32_t samples = gw_mesh_group(mesh, "dp") | gw_mesh_group(mesh, "dp_replicate");
    return gw_ranks_counts(mesh, samples, gw_exec_rank(s->x));
}

static gw_status take_up(gw_session *s, const char *run_dir, gw_diags *dg) {
    bool found = false;
    if (run_dir) GW_TRY(gw_session_resume(s, run_dir, &found, dg));
    if (!found) GW_TRY(initial_weights(s, dg));
    if (gw_session_has_images(s) || s->dataless) return GW_OK;
    gw_loader_options o = loader_options(s);
    gw_slices_init(&s->slices, s->x, o.micro_batch, s->rf->train.seq_len, &s->mem);
    s->counts_fed = counts_samples(s);
    s->fed_micro = gw_arena_new(&s->mem, bool, s->rf->train.accumulate);
    return gw_loader_open(s->data, &o, &s->loader, dg);
}

static gw_status prepare(gw_session *s, const char *run_dir, gw_diags *dg) {
    GW_TRY(check_text(s->rf, dg));
    if (run_dir) gw_session_use_copies(s->rf, run_dir, false);
    return gw_setup_init(&s->setup, s->rf, names_tokenizer(s->rf, &s->mem), dg);
}

static gw_status open_training(gw_session *s, const char *run_dir, gw_diags *dg) {
    gw_status st = prepare(s, run_dir, dg);
    GW_TRY(agree(s, st, "reading the run", dg));
    st = gw_setup_ranks(&s->setup, s->comm, dg);
    GW_TRY(agree(s, st, "settling the layout", dg));
    GW_TRY(gw_cores_count(s->comm, s->setup.machine.threads, &s->cores, dg));
    GW_TRY(open_training_program(s, dg));
    GW_TRY(list_tensors(s, dg));
    if (s->setup.schedule && !s->norm) gw_panic("no rank's program takes the norm of gradients");
    s->lr = gw_lr_of(s->rf);
    s->scaler = gw_scaler_of(s->rf);
    st = take_up(s, run_dir, dg);
    GW_TRY(agree(s, st, "taking up the run", dg));
    s->times = gw_optimes_new(s->x, s->rf->train.accumulate);
    st = open_valid(s, dg);
    GW_TRY(agree(s, st, "opening validation", dg));
    return gw_session_probe_open(s, dg);
}

gw_status gw_session_open(gw_session *s, gw_runfile *rf, const char *run_dir, gw_comm *comm,
                          gw_diags *dg) {
    return gw_session_open_or_begin(s, rf, run_dir, false, comm, dg);
}

gw_status gw_session_open_or_begin(gw_session *s, gw_runfile *rf, const char *run_dir, bool fresh,
                                   gw_comm *comm, gw_diags *dg) {
    begin(s, rf, comm);
    s->fresh = fresh;
    GW_ASSERT(!comm || gw_runfile_ranks(rf) == gw_comm_size(comm));
    if (comm) gw_comm_busy(comm, "opening the run", OPENING_LIMIT_S);
    gw_status st = open_training(s, run_dir, dg);
    if (comm) gw_comm_busy(comm, NULL, 0);
    if (st != GW_OK) gw_session_close(s);
    return st;
}

gw_status gw_session_open_state(gw_session *s, gw_runfile *rf, gw_diags *dg) {
    begin(s, rf, NULL);
    s->dataless = true;
    gw_status st = open_training(s, NULL, dg);
    if (st != GW_OK) gw_session_close(s);
    return st;
}

/* Running statistics, which an export holds too. */
static void add_buffers(const gw_session *s, gw_graph *g) {
    gw_arena mem = {0};
    gw_buffer *b;
    int n;
    gw_model_buffers(&s->setup.model, &mem, &b, &n);
    for (int i = 0; i < n; i++)
        (void)gw_graph_leaf(g, GW_ROLE_STATE, GW_CAUSE_WEIGHTS, GW_RATE_STEP, b[i].type, b[i].name);
    gw_arena_release(&mem);
}

/* A program of the parameters alone. */
static gw_status params_program(const gw_session *s, gw_graph *out, gw_compile_report *report,
                                gw_diags *dg) {
    gw_graph g;
    gw_graph_init(&g, gw_ops_table());
    g.micro_batches = 1;
    add_buffers(s, &g);
    for (int i = 0; i < s->setup.nparams; i++) {
        gw_type t = s->setup.params[i].type;
        t.dtype = (uint8_t)s->setup.train.master;
        (void)gw_graph_leaf(&g, GW_ROLE_PARAM, GW_CAUSE_WEIGHTS, GW_RATE_STEP, t,
                            s->setup.params[i].name);
    }
    gw_compile_opts o = {.train = true, .micro_batches = 1};
    gw_status st = gw_pass_place(out, &g, &o, report, dg);
    gw_graph_release(&g);
    return st;
}

static gw_status open_params(gw_session *s, const char *run_dir, bool need_tokenizer,
                             gw_diags *dg) {
    if (run_dir) gw_session_use_copies(s->rf, run_dir, true);
    GW_TRY(gw_setup_init(&s->setup, s->rf, need_tokenizer || names_tokenizer(s->rf, &s->mem), dg));
    gw_graph g;
    GW_TRY(params_program(s, &g, &s->report, dg));
    gw_exec_opts o = {.machine = s->setup.machine};
    gw_status st = gw_exec_new(&s->x, &g, &o, dg);
    gw_graph_release(&g);
    GW_TRY(st);
    GW_TRY(list_tensors(s, dg));
    if (!run_dir) return initial_weights(s, dg);
    bool found = false;
    GW_TRY(gw_session_resume(s, run_dir, &found, dg));
    if (found) return GW_OK;
    st = GW_FAIL(dg, GW_ERR_IO, "checkpoint-none", "'%s' has no checkpoint", run_dir);
    gw_diag_hint(dg, dg ? dg->last : NULL, "name the directory given to `gradwright train --out`");
    return st;
}

gw_status gw_session_open_params(gw_session *s, gw_runfile *rf, const char *run_dir,
                                 bool need_tokenizer, gw_diags *dg) {
    begin(s, rf, NULL);
    gw_status st = open_params(s, run_dir, need_tokenizer, dg);
    if (st != GW_OK) gw_session_close(s);
    return st;
}

void gw_session_close(gw_session *s) {
    gw_session_stay_behind(s);
    gw_checkpoint_drop(s->saving);
    gw_ckpt_keep_free(s->keep);
    gw_session_probe_close(s);
    gw_loader_close(s->loader);
    gw_exec_free(s->valid.x);
    gw_feed_close(&s->valid.feed);
    gw_feed_close(&s->feed);
    gw_tokens_close(s->valid.data);
    gw_tokens_close(s->data);
    gw_optimes_free(s->times);
    gw_exec_free(s->x);
    gw_setup_release(&s->setup);
    gw_arena_release(&s->mem);
    memset(s, 0, sizeof *s);
}

/* ---- the state as a whole ---- */

typedef struct gatherer {
    const gw_session *s;
    void *staging;
    int64_t bytes;
} gatherer;

static int64_t whole_bytes(const gw_ckpt_tensor *t) {
    return gw_box_elems(&t->box) * gw_dtype_bits(t->dtype) / 8;
}

gw_status gw_session_whole(const gw_session *s, int i, void *out, gw_diags *dg) {
    const gw_ckpt_tensor *t = &s->tensors[i];
    if ((gw_ranks_have_parts(t->type) || s->table.stages > 1) && s->comm)
        return gw_ranks_gather_from(s->comm, &s->entries[i]->type, s->table.mesh, t->home, t->data,
                                    out, t->name, dg);
    if (out) memcpy(out, t->data, (size_t)whole_bytes(t));
    return GW_OK;
}

/* The staging grows to the largest tensor. */
static gw_status gather_whole(gatherer *a, int i, const void **elements) {
    int64_t bytes = whole_bytes(&a->s->tensors[i]);
    if (bytes > a->bytes) {
        gw_mem_free(a->staging);
        a->staging = gw_mem_alloc((size_t)bytes);
        a->bytes = bytes;
    }
    *elements = a->staging;
    return gw_session_whole(a->s, i, a->staging, NULL);
}

static int by_name(const void *a, const void *b, void *tensors) {
    const gw_ckpt_tensor *t = tensors;
    return strcmp(t[*(const int *)a].name, t[*(const int *)b].name);
}

/* In the order of names: that of programs hangs on the stages. */
gw_hash128 gw_session_hash(const gw_session *s) {
    gw_hasher *h = gw_hasher_new();
    gatherer a = {.s = s};
    gw_status st = GW_OK;
    int *order = gw_mem_zalloc(sizeof *order * ((size_t)s->ntensors + 1));
    for (int i = 0; i < s->ntensors; i++) order[i] = i;
    qsort_r(order, (size_t)s->ntensors, sizeof *order, by_name, s->tensors);
    for (int k = 0; k < s->ntensors && st == GW_OK; k++) {
        int i = order[k];
        const gw_ckpt_tensor *t = &s->tensors[i];
        const void *data = t->data;
        if (gw_ranks_have_parts(t->type) || s->table.stages > 1) st = gather_whole(&a, i, &data);
        gw_hasher_add(h, t->name, strlen(t->name) + 1);
        if (st == GW_OK) gw_hasher_add(h, data, (size_t)whole_bytes(t));
    }
    int64_t counters[] = {
        s->step, s->batch, s->next_sample, s->tokens, s->scaler.good_steps, s->scaler.bad_steps};
    gw_hasher_add(h, counters, sizeof counters);
    gw_hasher_add(h, &s->scaler.scale, sizeof s->scaler.scale);
    gw_hash128 sum = gw_hasher_get(h);
    gw_hasher_free(h);
    gw_mem_free(order);
    gw_mem_free(a.staging);
    return st == GW_OK ? sum : (gw_hash128){0};
}

/* ---- what all ranks have to show ---- */

void gw_session_planned_traffic(const gw_session *s, gw_coll_traffic out[GW_COLL_KIND_COUNT]) {
    const gw_graph *g = gw_exec_graph(s->x);
    gw_exec_traffic(g, gw_exec_rank(s->x), &s->setup.facts.comm, out);
}

static gw_session_rank figures(const gw_session *s) {
    gw_coll_traffic planned[GW_COLL_KIND_COUNT];
    gw_session_rank r = {.planned_arena_bytes = gw_session_planned_bytes(s),
                         .arena_bytes = gw_session_arena_bytes(s),
                         .process_bytes = gw_memory_pss(),
                         .program_bytes = s->program_bytes,
                         .planned_on =
                             gw_exec_sends_traffic(gw_exec_graph(s->x), gw_exec_rank(s->x)).moved *
                             s->steps_run,
                         .sent_on = s->sent_on.moved,
                         .acted = gw_optimes_all(s->times),
                         .comm_ns = s->comm_ns,
                         .comm_wait_ns = s->comm_wait_ns,
                         .steps = s->steps_run};
    gw_session_planned_traffic(s, planned);
    for (int k = 0; k < GW_COLL_KIND_COUNT; k++) {
        r.planned[0] += planned[k].payload * s->steps_run;
        r.planned[1] += planned[k].moved * s->steps_run;
        r.sent[0] += s->sent[k].payload;
        r.sent[1] += s->sent[k].moved;
    }
    gw_coll_traffic rows = gw_exec_rows_traffic(gw_exec_graph(s->x), &s->setup.facts.comm);
    r.planned_rows[0] = rows.payload * s->steps_run;
    r.planned_rows[1] = rows.moved * s->steps_run;
    r.sent_rows[0] = s->sent_rows.payload;
    r.sent_rows[1] = s->sent_rows.moved;
    return r;
}

gw_status gw_session_meet(gw_session *s, gw_diags *dg) {
    gw_session_rank mine = figures(s);
    if (!s->ranks) s->ranks = gw_arena_new(&s->mem, gw_session_rank, gw_ranks_count(s->comm));
    s->ranks[0] = mine;
    if (!s->comm) return GW_OK;
    return gw_comm_all_gather(s->comm, &mine, sizeof mine, s->ranks, "the ranks' figures", dg);
}

/* ---- bytes ---- */

int64_t gw_session_planned_bytes(const gw_session *s) {
    int64_t bytes = s->report.place.arena_bytes[GW_MEM_DEVICE], room = 0;
    if (!s->valid.x) return bytes;
    (void)gw_exec_temporaries(s->x, &room);
    int64_t need = gw_exec_graph(s->valid.x)->arena_bytes[GW_MEM_DEVICE];
    return bytes + (need > room ? need : 0);
}

int64_t gw_session_arena_bytes(const gw_session *s) {
    return gw_exec_arena_bytes(s->x) + (s->valid.x ? gw_exec_arena_bytes(s->valid.x) : 0);
}
