// SPDX-License-Identifier: Apache-2.0
// A digest of the model's logits on fixed tokens.
//
// SEQUENCES sequences of up to 64 tokens go through the run's own forward pass (its layout, its
// precision), ended by a plain product with the head instead of the fused loss. That gives logits
// z[t, v] of each token t and id v: as many as a short sequence has, where a step's would be the
// largest tensor there is, and on ranks that share the vocabulary each has its own ids. They are
// reduced where they are:
//
//   S_k = sum over t, and over v with v mod GW_CKPT_SUMS = k, of  s_t r_v z[t, v]
//
// with signs s_t and r_v by the counter RNG. (A count sketch: Charikar, Chen, Farach-Colton,
// "Finding frequent items in data streams", 2002.) S is linear in the logits, so what changes one
// column moves one sum by what it changes, and what changes all of them moves all sums; nothing
// cancels but by chance. At random signs a sum is about as large as `spread`, the root of
// (the sum of z^2) / GW_CKPT_SUMS.
//
// A row of the head, an embedding of a token that is asked, a norm, a bias, a router, two experts
// that changed places: each moves logits, and so the sums. What moves none is not seen here: an
// embedding of an id that is not among the tokens, an expert that none of them chooses.
//
// All data-parallel ranks compute the same sequences, and the sums are means over them, so they do
// not know how many ranks there are. They are added up in float64; the same layout adds in the same
// order, which makes the digest exact there. The program lies in the training temporaries; where
// these are too small the sequences are shorter, down to LEAST tokens.
#include <math.h>

#include "base/log.h"            /* gw_log_debug */
#include "base/panic.h"          /* GW_ASSERT */
#include "base/rng.h"            /* gw_rng_u64 */
#include "base/str.h"            /* gw_str */
#include "ir/text.h"             /* gw_graph_print */
#include "model/fp8.h"           /* gw_fp8_rewrite */
#include "ops/ops.h"             /* gw_ops_table */
#include "run/exec_comm.h"       /* gw_op_is_collective */
#include "run/exec_experts.h"    /* gw_op_is_experts_ep */
#include "train/ranks.h"         /* gw_ranks_me */
#include "train/session_probe.h" /* this module's contract */

enum { SEQUENCES = 4, PROBE_TOKENS = 64, LEAST = 8, BLOCK = 256 };

/* ---- inputs ---- */

static gw_status feed(void *user, gw_exec *x, int64_t micro, gw_diags *dg) {
    const struct gw_session_probe *p = user;
    gw_micro_batch m = {p->tokens, p->labels, p->positions, p->docs, &p->id, 0};
    (void)micro;
    (void)dg;
    gw_slices_write(&p->slices, x, &m);
    return GW_OK;
}

/* Sequence k: any tokens will do, as long as they are always the same. */
static void write_tokens(struct gw_session_probe *p, int k, int64_t vocab) {
    gw_rng_key key = gw_rng_key_named((uint64_t)k, "probe");
    for (int64_t i = 0; i < p->seq; i++) {
        p->tokens[i] = (int32_t)(gw_rng_u64(key, (uint64_t)i) % (uint64_t)vocab);
        p->labels[i] = (int32_t)(gw_rng_u64(key, (uint64_t)(i + 1)) % (uint64_t)vocab);
        p->positions[i] = (int32_t)i;
        p->docs[i] = 0;
    }
    p->id = k;
}

/* ---- sums ---- */

static double sign_of(gw_rng_key key, int64_t i) {
    return gw_rng_u64(key, (uint64_t)i) & 1 ? 1 : -1;
}

/* The logits of one token, or a part of them: added to the columns with the token's sign. Returns
 * the sum of their squares. */
static double add_row(double *columns, const float *z, int64_t n, double sign) {
    double squares = 0;
    for (int64_t at = 0; at < n; at += BLOCK) {
        int64_t end = GW_MIN(n, at + BLOCK);
        double part = 0;
        for (int64_t i = at; i < end; i++) {
            double x = (double)z[i];
            columns[i] += sign * x;
            part += x * x;
        }
        squares += part;
    }
    return squares;
}

/* What this rank holds of the vocabulary: the last dimension of the logits. */
static gw_runs ids_here(const gw_session *s) {
    const gw_ranks_entry *e = s->probe->logits;
    return gw_type_runs(&e->type, e->type.ndim - 1, s->probe->results.mesh,
                        gw_exec_rank(s->probe->x));
}

/* Sequence k's logits here into the columns. Rows of padding are left out. */
static double add_logits(gw_session *s, int k) {
    struct gw_session_probe *p = s->probe;
    gw_tensor z = gw_exec_tensor(p->x, p->logits->value);
    const gw_type *t = &p->logits->type;
    int rank = (int)gw_exec_rank(p->x);
    gw_rng_key key = gw_rng_key_named((uint64_t)k, "probe sign of a token");
    gw_runs rows = gw_type_runs(t, 0, p->results.mesh, rank);
    gw_runs places = gw_type_runs(t, 1, p->results.mesh, rank);
    int64_t width = z.dims[z.ndim - 1], row = 0;
    double squares = 0;
    for (int b = 0; b < rows.n; b++)
        for (int64_t i = 0; i < rows.count[b]; i++)
            for (int c = 0; c < places.n; c++)
                for (int64_t j = 0; j < places.count[c]; j++, row++) {
                    int64_t at = places.first[c] + j;
                    if (at >= p->seq) continue;
                    squares += add_row(p->columns, (const float *)z.data + row * width, width,
                                       sign_of(key, at));
                }
    return squares;
}

/* The columns into the sums that their ids belong to. */
static void fold(const gw_session *s, double *sum) {
    gw_rng_key key = gw_rng_key_named(0, "probe sign of an id");
    gw_runs ids = ids_here(s);
    int64_t at = 0;
    for (int c = 0; c < ids.n; c++)
        for (int64_t j = 0; j < ids.count[c]; j++, at++) {
            int64_t id = ids.first[c] + j;
            sum[id % GW_CKPT_SUMS] += sign_of(key, id) * s->probe->columns[at];
        }
}

/* Does this rank bring logits that no other brings? */
static bool brings(const gw_session *s) {
    const gw_ranks_entry *e = s->probe->logits;
    return e->value != GW_NONE &&
           gw_ranks_counts_from(s->probe->results.mesh, gw_type_part_axes(&e->type), e->home,
                                gw_ranks_me(s->comm));
}

static gw_status run_all(gw_session *s, double *squares, gw_diags *dg) {
    struct gw_session_probe *p = s->probe;
    gw_exec_loop loop = {.feed = feed, .user = p};
    bool mine = brings(s);
    int64_t n = 0;
    if (mine) {
        gw_runs ids = ids_here(s);
        for (int c = 0; c < ids.n; c++) n += ids.count[c];
        for (int64_t i = 0; i < n; i++) p->columns[i] = 0;
    }
    gw_step_inputs_write(p->x, &(gw_step_inputs){.seed = 1, .inv_scale = 1, .step = 1});
    GW_TRY(gw_exec_run(p->x, GW_SEG_PRE, dg));
    for (int k = 0; k < SEQUENCES; k++) {
        write_tokens(p, k, s->setup.model.vocab);
        GW_TRY(gw_exec_run_all(p->x, 1, &loop, dg));
        if (mine) *squares += add_logits(s, k);
    }
    return GW_OK;
}

gw_status gw_probe_logits_take(gw_session *s, gw_ckpt_probe *out, gw_diags *dg) {
    struct gw_session_probe *p = s->probe;
    double x[GW_CKPT_SUMS + 1] = {0}, copies = (double)s->rf->layout.dp;
    bool finite = true;
    out->bits = p->bits;
    out->tokens = p->seq;
    out->half = s->rf->precision.compute != GW_RF_FP32 ||
                s->rf->precision.products != GW_RF_PRODUCTS_COMPUTE;
    if (!p->x) return GW_OK;
    GW_TRY(run_all(s, &x[GW_CKPT_SUMS], dg));
    if (brings(s)) fold(s, x);
    GW_TRY(gw_ranks_add_f64(s->comm, x, GW_CKPT_SUMS + 1, "a probe", dg));
    for (int k = 0; k < GW_CKPT_SUMS; k++) {
        out->sum[k] = x[k] / copies;
        finite = finite && isfinite(x[k]);
    }
    out->spread = sqrt(x[GW_CKPT_SUMS] / copies / GW_CKPT_SUMS);
    finite = finite && isfinite(out->spread);
    out->sums = finite ? GW_CKPT_SUMS : 0;
    if (!finite) out->spread = 0;
    return GW_OK;
}

/* ---- the program ---- */

/* What is computed, in which order, of which shapes, by which collectives and experts; but not a
 * number of the model, such as an epsilon: that is what the logits are to tell. */
static void print_order(const gw_graph *g, gw_str *out) {
    for (int64_t i = 0; i < g->ops.count; i++) {
        const gw_op *o = &g->ops.items[i];
        if (gw_op_is_collective(g, o) || gw_op_is_experts_ep(g, o)) {
            gw_op_print(g, (gw_oid)i, out);
            continue;
        }
        gw_str_add(out, gw_op_def(g, o)->name);
        for (int k = 0; k < (int)o->nin + (int)o->nout; k++) {
            gw_vid v = k < (int)o->nin ? gw_op_in(g, o, k) : gw_op_out(g, o, k - (int)o->nin);
            gw_str_add(out, " ");
            if (v != GW_NONE) gw_type_print(gw_type_of(g, v), &g->mesh, out);
        }
        gw_str_add(out, "\n");
    }
}

/* What the bits of the sums hang on: every rank's program, threads, instructions. */
static gw_status name_bits(gw_session *s, const gw_graph *g, gw_diags *dg) {
    gw_arena mem = {0};
    gw_str text = {0};
    int ranks = gw_ranks_count(s->comm);
    print_order(g, &text);
    gw_str_printf(&text, "threads %d isa %s\n", s->setup.machine.threads,
                  gw_isa_name(s->setup.machine.isa));
    gw_hash128 mine = gw_hash128_of(gw_str_c(&text), text.len);
    gw_hash128 *all = gw_arena_new(&mem, gw_hash128, ranks);
    all[0] = mine;
    gw_status st =
        s->comm ? gw_comm_all_gather(s->comm, &mine, sizeof mine, all, "probes", dg) : GW_OK;
    if (st == GW_OK)
        gw_hash128_hex(s->probe->bits, gw_hash128_of(all, sizeof *all * (size_t)ranks));
    gw_str_release(&text);
    gw_arena_release(&mem);
    return st;
}

/* The layers of each stage of the training program, whose parameters it is to find here too: by its
 * own costs another head might cut otherwise. */
static const int *stage_layers(const gw_session *s, gw_arena *a) {
    int n = s->report.nstages;
    int *layers = gw_arena_new(a, int, n + 1);
    for (int i = 0; i < n; i++) layers[i] = (int)s->report.stages[i].layers;
    return n > 0 ? layers : NULL;
}

/* The run's forward pass of one sequence of p->seq tokens a data-parallel rank. */
static gw_status compile(const gw_session *s, gw_graph *g, gw_diags *dg) {
    gw_runfile small = *s->rf;
    small.train.seq_len = s->probe->seq;
    gw_build_opts b = {.mode = GW_BUILD_LOGITS,
                       .batch = s->rf->layout.dp,
                       .seq = gw_runfile_padded_seq(&small),
                       .compute = s->setup.train.compute,
                       .seed = (uint64_t)s->rf->train.seed,
                       .packed = true};
    gw_compile_opts o = s->setup.forward;
    gw_compile_report report = {0};
    gw_rf_products products = s->rf->precision.products;
    gw_fp8_opts fp8 = {.pow2 = products == GW_RF_PRODUCTS_FP8_POW2};
    gw_arena mem = {0};
    o.layout.stage_rank = s->setup.stage_rank;
    o.layout.stage_layers = stage_layers(s, &mem);
    gw_graph_init(g, gw_ops_table());
    gw_status st = gw_model_build(g, &s->setup.model, &b, dg);
    if (st == GW_OK && products != GW_RF_PRODUCTS_COMPUTE) st = gw_fp8_rewrite(g, &fp8, NULL, dg);
    gw_runfile_mesh(s->rf, &g->mesh);
    if (st == GW_OK) st = gw_compile(g, &o, NULL, &report, dg);
    if (st != GW_OK) gw_graph_release(g);
    gw_arena_release(&mem);
    return st;
}

/* Do the temporaries of every rank hold it? */
static gw_status has_room(const gw_session *s, const gw_graph *g, bool *room, gw_diags *dg) {
    int64_t bytes = 0;
    (void)gw_exec_temporaries(s->x, &bytes);
    int64_t lacks = g->arena_bytes[GW_MEM_DEVICE] > bytes;
    for (int k = 0; k < GW_MEM_COUNT; k++)
        if (k != GW_MEM_DEVICE && g->arena_bytes[k] > 0) lacks = 1; /* memory that is not planned */
    if (s->comm) GW_TRY(gw_comm_max_i64(s->comm, &lacks, 1, "room for a probe", dg));
    *room = lacks == 0;
    return GW_OK;
}

static gw_status make_executor(gw_session *s, const gw_graph *g, gw_diags *dg) {
    struct gw_session_probe *p = s->probe;
    gw_exec_opts o = {.machine = s->setup.machine,
                      .params_from = s->x,
                      .comm = s->comm,
                      .rank = gw_ranks_me(s->comm),
                      .offload_dir = s->rf->offload.dir};
    o.overlay = gw_exec_temporaries(s->x, &o.overlay_bytes);
    GW_TRY(gw_exec_new(&p->x, g, &o, dg));
    GW_TRY(gw_ranks_list(s->comm, gw_exec_graph(p->x), &s->mem, &p->results, dg));
    p->logits = gw_ranks_find(&p->results, "logits");
    GW_ASSERT(p->logits && p->logits->type.ndim == 3 && p->logits->type.psum == 0);
    gw_slices_init(&p->slices, p->x, 1, p->seq, &s->mem);
    p->columns = gw_arena_new(&s->mem, double, s->setup.model.vocab);
    return name_bits(s, g, dg);
}

/* One length of sequence. */
static gw_status try_length(gw_session *s, bool *room, gw_diags *dg) {
    gw_graph g;
    gw_status st = compile(s, &g, dg);
    GW_TRY(gw_exec_agree(s->comm, st, NULL, "compiling a probe", dg));
    st = has_room(s, &g, room, dg);
    if (st == GW_OK && *room) st = make_executor(s, &g, dg);
    gw_graph_release(&g);
    return gw_exec_agree(s->comm, st, NULL, "making a probe", dg);
}

gw_status gw_probe_logits_open(gw_session *s, gw_diags *dg) {
    struct gw_session_probe *p = s->probe;
    bool room = false;
    int64_t most = GW_MIN((int64_t)PROBE_TOKENS, s->rf->train.seq_len);
    p->tokens = gw_arena_new(&s->mem, int32_t, most);
    p->labels = gw_arena_new(&s->mem, int32_t, most);
    p->positions = gw_arena_new(&s->mem, int32_t, most);
    p->docs = gw_arena_new(&s->mem, int32_t, most);
    for (p->seq = most; p->seq >= GW_MIN(most, (int64_t)LEAST); p->seq /= 2) {
        GW_TRY(try_length(s, &room, dg));
        if (room) return GW_OK;
    }
    gw_log_debug("the probe has no logits: the step's temporaries have no room for its program");
    return GW_OK;
}

void gw_probe_logits_close(gw_session *s) {
    gw_exec_free(s->probe->x);
    s->probe->x = NULL;
}
