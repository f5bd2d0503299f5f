// SPDX-License-Identifier: Apache-2.0
// Convolutions by oneDNN: forward, gradient of the images, gradient of the filters.
//
// The three ops have the same three operands, images x and y and filters w, of which two are read
// and one is written. Images lie channels last (nhwc), which the library's convolutions take as
// they are; filters lie [o c i j], which they do not: each primitive names the form it wants, and
// where that differs the operand is reordered through planned workspace, before the call or after
// it. Should only the library's plain reference take nhwc, it is asked for any form of images too.
//
// Filters' gradients are made in float32. Where they have to be added to an accumulator, or rounded
// to another dtype, they are made in workspace and added from there.
//
// Two kernels an op. `onednn-*` takes float32 anywhere, and bf16 where the processor multiplies
// bf16. `onednn-*-f32` takes the narrow floats elsewhere: whole operands converted to float32 in
// planned workspace, and back.
//
// Sums are float32. Workspace without asking the library (planning for another machine) is an upper
// bound by formula: two more forms of the filters, and the conversions.
#include <dnnl.h>
#include <string.h>

#include "base/arena.h"          /* gw_arena */
#include "base/panic.h"          /* GW_ASSERT */
#include "kernel/cpu/dnnl.h"     /* gw_dnnl_threads */
#include "kernel/cpu/vec_more.h" /* gw_vec_load, gw_vec_shape_of */
#include "ops/conv2d.h"          /* gw_conv_args_of */

typedef enum kind { FORWARD, IMAGES, FILTERS } kind;
enum { X, W, Y };

/* One operand: where it lies, in what form oneDNN gets it from us, and the form the primitive
 * wants. Offsets into workspace are -1 when there is no such buffer. */
typedef struct side {
    gw_tensor t;
    dnnl_memory_desc_t plain, wanted;
    int64_t converted; /* as float32 */
    int64_t reordered; /* in the wanted form */
    dnnl_memory_t plain_mem, wanted_mem;
    void *plain_at; /* where plain_mem lies */
    dnnl_primitive_t reorder;
} side;

typedef struct conv {
    kind kind;
    gw_conv s;
    bool narrow;            /* operands are converted to float32 */
    const gw_tensor *acc;   /* added to the gradient of the filters, or NULL */
    side side[3];           /* X, W, Y */
    int64_t scratch, bytes; /* offset of the library's scratchpad; all of workspace */
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    dnnl_primitive_desc_t pd;
    dnnl_primitive_t primitive;
    dnnl_memory_t scratch_mem;
    int threads;
} conv;

static int output_of(kind k) { return k == FORWARD ? Y : k == IMAGES ? X : W; }

static gw_status failed(gw_diags *dg, const char *what, dnnl_status_t s) {
    gw_code code = s == dnnl_out_of_memory ? GW_ERR_MEMORY : GW_ERR_DEVICE;
    return GW_FAIL(dg, code, "onednn-failed", "oneDNN %s a convolution: status %d", what, (int)s);
}

/* ---- what it is ---- */

static void describe(conv *c, const gw_kargs *k, kind kind_) {
    gw_conv_args a = gw_conv_args_of(k);
    memset(c, 0, sizeof *c);
    c->kind = kind_;
    c->s = a.s;
    c->side[X].t = *a.x;
    c->side[W].t = *a.w;
    c->side[Y].t = *a.y;
    if (kind_ == FILTERS && k->nin > 2 && gw_op_in(k->g, k->op, 2) != GW_NONE) c->acc = &k->in[2];
}

static bool empty(const conv *c) { return c->side[X].t.elems == 0 || c->side[Y].t.elems == 0; }

/* The dtype the library sees operand i in. */
static dnnl_data_type_t seen_as(const conv *c, int i) {
    bool f32 = c->narrow || (c->kind == FILTERS && i == W);
    return f32 || c->side[i].t.dtype == GW_F32 ? dnnl_f32 : dnnl_bf16;
}

static bool converts(const conv *c, int i) {
    if (c->side[i].t.dtype != GW_F32 && seen_as(c, i) == dnnl_f32) return true;
    return c->kind == FILTERS && i == W && c->acc;
}

static dnnl_status_t plain_forms(conv *c) {
    const gw_conv *s = &c->s;
    dnnl_dims_t x = {s->b, s->c, s->h, s->w}, y = {s->b, s->o, s->oh, s->ow};
    dnnl_dims_t w = {s->o, s->c, s->kh, s->kw};
    dnnl_status_t st =
        dnnl_memory_desc_init_by_tag(&c->side[X].plain, 4, x, seen_as(c, X), dnnl_nhwc);
    if (st == dnnl_success)
        st = dnnl_memory_desc_init_by_tag(&c->side[Y].plain, 4, y, seen_as(c, Y), dnnl_nhwc);
    if (st == dnnl_success)
        st = dnnl_memory_desc_init_by_tag(&c->side[W].plain, 4, w, seen_as(c, W), dnnl_oihw);
    return st;
}

static dnnl_status_t any_form(const dnnl_memory_desc_t *like, dnnl_memory_desc_t *out) {
    return dnnl_memory_desc_init_by_tag(out, like->ndims, like->dims, like->data_type,
                                        dnnl_format_tag_any);
}

/* ---- the primitive ---- */

static dnnl_status_t describe_op(const conv *c, const dnnl_memory_desc_t *x,
                                 const dnnl_memory_desc_t *w, const dnnl_memory_desc_t *y,
                                 dnnl_convolution_desc_t *d) {
    dnnl_dims_t strides = {c->s.stride, c->s.stride}, pad = {c->s.pad, c->s.pad};
    switch (c->kind) {
    case FORWARD:
        return dnnl_convolution_forward_desc_init(d, dnnl_forward_training, dnnl_convolution_direct,
                                                  x, w, NULL, y, strides, pad, pad);
    case IMAGES:
        return dnnl_convolution_backward_data_desc_init(d, dnnl_convolution_direct, x, w, y,
                                                        strides, pad, pad);
    case FILTERS:
        return dnnl_convolution_backward_weights_desc_init(d, dnnl_convolution_direct, x, w, NULL,
                                                           y, strides, pad, pad);
    }
    return dnnl_invalid_arguments;
}

/* The gradient of images needs a forward hint to choose its form. */
static dnnl_status_t make_pd(conv *c, bool any_images, dnnl_primitive_desc_t *pd) {
    dnnl_memory_desc_t x = c->side[X].plain, y = c->side[Y].plain, w;
    dnnl_status_t st = any_form(&c->side[W].plain, &w);
    if (st == dnnl_success && any_images) st = any_form(&c->side[X].plain, &x);
    if (st == dnnl_success && any_images) st = any_form(&c->side[Y].plain, &y);
    dnnl_convolution_desc_t d;
    dnnl_primitive_attr_t attr = NULL;
    if (st == dnnl_success) st = describe_op(c, &x, &w, &y, &d);
    if (st == dnnl_success) st = dnnl_primitive_attr_create(&attr);
    if (st == dnnl_success)
        st = dnnl_primitive_attr_set_scratchpad_mode(attr, dnnl_scratchpad_mode_user);
    if (st == dnnl_success) st = dnnl_primitive_desc_create(pd, &d, attr, c->engine, NULL);
    if (attr) dnnl_primitive_attr_destroy(attr);
    return st;
}

static bool is_plain_loops(dnnl_primitive_desc_t pd) {
    const char *name = NULL;
    return dnnl_primitive_desc_query(pd, dnnl_query_impl_info_str, 0, &name) == dnnl_success &&
           strncmp(name, "ref", 3) == 0;
}

static dnnl_status_t choose_pd(conv *c) {
    dnnl_status_t st = make_pd(c, false, &c->pd);
    if (st == dnnl_success && !is_plain_loops(c->pd)) return st;
    dnnl_primitive_desc_t other = NULL;
    if (make_pd(c, true, &other) != dnnl_success) return st;
    if (c->pd) dnnl_primitive_desc_destroy(c->pd);
    c->pd = other;
    return dnnl_success;
}

static const dnnl_memory_desc_t *form_of(const conv *c, int i) {
    static const dnnl_query_t forward[] = {dnnl_query_src_md, dnnl_query_weights_md,
                                           dnnl_query_dst_md};
    static const dnnl_query_t gradient[] = {dnnl_query_diff_src_md, dnnl_query_diff_weights_md,
                                            dnnl_query_diff_dst_md};
    bool is_gradient = c->kind != FORWARD && (i == output_of(c->kind) || i == Y);
    return dnnl_primitive_desc_query_md(c->pd, (is_gradient ? gradient : forward)[i], 0);
}

static int argument_of(const conv *c, int i) {
    static const int forward[] = {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST};
    static const int gradient[] = {DNNL_ARG_DIFF_SRC, DNNL_ARG_DIFF_WEIGHTS, DNNL_ARG_DIFF_DST};
    bool is_gradient = c->kind != FORWARD && (i == output_of(c->kind) || i == Y);
    return (is_gradient ? gradient : forward)[i];
}

static int64_t take(conv *c, int64_t bytes) {
    int64_t at = c->bytes;
    c->bytes += (bytes + 63) / 64 * 64;
    return at;
}

/* Which buffers there are, and where in workspace. */
static void lay_out(conv *c) {
    for (int i = 0; i < 3; i++) {
        side *s = &c->side[i];
        s->wanted = *form_of(c, i);
        s->converted = converts(c, i) ? take(c, s->t.elems * 4) : -1;
        s->reordered = dnnl_memory_desc_equal(&s->plain, &s->wanted)
                           ? -1
                           : take(c, (int64_t)dnnl_memory_desc_get_size(&s->wanted));
    }
    const dnnl_memory_desc_t *sp = dnnl_primitive_desc_query_md(c->pd, dnnl_query_scratchpad_md, 0);
    c->scratch = take(c, sp ? (int64_t)dnnl_memory_desc_get_size(sp) : 0);
}

static void release_conv(conv *c) {
    for (int i = 0; i < 3; i++) {
        side *s = &c->side[i];
        if (s->reorder) dnnl_primitive_destroy(s->reorder);
        if (s->wanted_mem && s->wanted_mem != s->plain_mem) dnnl_memory_destroy(s->wanted_mem);
        if (s->plain_mem) dnnl_memory_destroy(s->plain_mem);
        s->reorder = NULL;
        s->wanted_mem = s->plain_mem = NULL;
    }
    if (c->scratch_mem) dnnl_memory_destroy(c->scratch_mem);
    if (c->primitive) dnnl_primitive_destroy(c->primitive);
    if (c->pd) dnnl_primitive_desc_destroy(c->pd);
    if (c->stream) dnnl_stream_destroy(c->stream);
    if (c->engine) dnnl_engine_destroy(c->engine);
    c->scratch_mem = NULL;
    c->primitive = NULL;
    c->pd = NULL;
    c->stream = NULL;
    c->engine = NULL;
}

/* Asks the library: choice and layout, no memory. */
static dnnl_status_t ask(conv *c, int threads) {
    gw_dnnl_threads(threads);
    c->threads = threads;
    dnnl_status_t st = dnnl_engine_create(&c->engine, dnnl_cpu, 0);
    if (st == dnnl_success) st = plain_forms(c);
    if (st == dnnl_success) st = choose_pd(c);
    if (st == dnnl_success) lay_out(c);
    return st;
}

/* ---- making it ---- */

static dnnl_status_t make_reorder(conv *c, side *s, bool out) {
    const dnnl_memory_desc_t *from = out ? &s->wanted : &s->plain;
    const dnnl_memory_desc_t *to = out ? &s->plain : &s->wanted;
    dnnl_primitive_desc_t pd = NULL;
    dnnl_status_t st =
        dnnl_reorder_primitive_desc_create(&pd, from, c->engine, to, c->engine, NULL);
    if (st == dnnl_success) st = dnnl_primitive_create(&s->reorder, pd);
    if (pd) dnnl_primitive_desc_destroy(pd);
    return st;
}

static dnnl_status_t bind_side(conv *c, int i, char *work) {
    side *s = &c->side[i];
    s->plain_at = s->converted >= 0 ? work + s->converted : s->t.data;
    dnnl_status_t st = dnnl_memory_create(&s->plain_mem, &s->plain, c->engine, s->plain_at);
    s->wanted_mem = s->plain_mem;
    if (st != dnnl_success || s->reordered < 0) return st;
    s->wanted_mem = NULL;
    st = dnnl_memory_create(&s->wanted_mem, &s->wanted, c->engine, work + s->reordered);
    return st == dnnl_success ? make_reorder(c, s, i == output_of(c->kind)) : st;
}

static gw_status prepare(const gw_kargs *k, gw_arena *a, void **state, gw_diags *dg, kind kind_,
                         bool narrow) {
    conv *c = gw_arena_new(a, conv, 1);
    *state = c;
    describe(c, k, kind_);
    c->narrow = narrow;
    c->threads = k->threads;
    if (empty(c)) return GW_OK;
    dnnl_status_t st = ask(c, k->threads);
    if (st == dnnl_success && c->bytes > k->work_bytes) st = dnnl_out_of_memory;
    if (st == dnnl_success)
        st = dnnl_stream_create(&c->stream, c->engine, dnnl_stream_default_flags);
    if (st == dnnl_success) st = dnnl_primitive_create(&c->primitive, c->pd);
    for (int i = 0; i < 3 && st == dnnl_success; i++) st = bind_side(c, i, k->work);
    if (st == dnnl_success)
        st = dnnl_memory_create(&c->scratch_mem,
                                dnnl_primitive_desc_query_md(c->pd, dnnl_query_scratchpad_md, 0),
                                c->engine, (char *)k->work + c->scratch);
    if (st == dnnl_success) return GW_OK;
    release_conv(c);
    return failed(dg, "could not make", st);
}

/* ---- running it ---- */

static dnnl_status_t run_reorder(const conv *c, const side *s, bool out) {
    if (!s->reorder) return dnnl_success;
    dnnl_exec_arg_t args[2] = {{DNNL_ARG_FROM, out ? s->wanted_mem : s->plain_mem},
                               {DNNL_ARG_TO, out ? s->plain_mem : s->wanted_mem}};
    return dnnl_primitive_execute(s->reorder, c->stream, 2, args);
}

static void convert_in(const conv *c, const side *s, char *work) {
    float *to = (float *)(void *)(work + s->converted);
    int64_t n = s->t.elems, step = GW_VEC_TASK;
#pragma omp parallel for num_threads(c->threads) schedule(static) if (n > step)
    for (int64_t i = 0; i < n; i += step)
        gw_vec_load(to + i, s->t.data, s->t.dtype, i, GW_MIN(step, n - i));
}

/* Rounds what was made in workspace into the output, the accumulator added first. */
static void convert_out(const conv *c, const side *s, const char *work) {
    const float *from = (const float *)(const void *)(work + s->converted);
    int64_t n = s->t.elems, step = GW_VEC_BLOCK;
#pragma omp parallel for num_threads(c->threads) schedule(static) if (n > GW_VEC_TASK)
    for (int64_t i = 0; i < n; i += step) {
        float sum[GW_VEC_BLOCK];
        int64_t m = GW_MIN(step, n - i);
        if (c->acc)
            gw_vec_load(sum, c->acc->data, c->acc->dtype, i, m);
        else
            memset(sum, 0, sizeof sum);
        for (int64_t j = 0; j < m; j++) sum[j] += from[i + j];
        gw_vec_store(s->t.data, s->t.dtype, i, sum, m);
    }
}

/* Nothing was seen: the gradient of the filters is its accumulator, or zero. */
static gw_status launch_empty(const conv *c) {
    const gw_tensor *w = &c->side[W].t;
    size_t bytes = (size_t)(w->elems * gw_vec_size(w->dtype));
    if (c->kind != FILTERS || bytes == 0) return GW_OK;
    if (!c->acc)
        memset(w->data, 0, bytes);
    else if (c->acc->data != w->data)
        memcpy(w->data, c->acc->data, bytes);
    return GW_OK;
}

/* The operands lie where `k` has them now. */
static dnnl_status_t move(conv *c, const gw_kargs *k) {
    gw_conv_args a = gw_conv_args_of(k);
    const gw_tensor *now[] = {a.x, a.w, a.y};
    if (c->kind == FILTERS && c->acc) c->acc = &k->in[2];
    for (int i = 0; i < 3; i++) {
        side *s = &c->side[i];
        s->t.data = now[i]->data;
        if (!s->plain_mem || s->converted >= 0) continue;
        dnnl_status_t st = gw_dnnl_memory_move(s->plain_mem, &s->plain_at, s->t.data);
        if (st != dnnl_success) return st;
    }
    return dnnl_success;
}

static gw_status launch(void *state, const gw_kargs *k, gw_diags *dg) {
    conv *c = state;
    dnnl_status_t st = move(c, k);
    if (empty(c)) return launch_empty(c);
    gw_dnnl_threads(c->threads);
    int out = output_of(c->kind);
    dnnl_exec_arg_t args[4];
    for (int i = 0; i < 3; i++) {
        args[i] = (dnnl_exec_arg_t){argument_of(c, i), c->side[i].wanted_mem};
        if (i == out || st != dnnl_success) continue;
        if (c->side[i].converted >= 0) convert_in(c, &c->side[i], k->work);
        st = run_reorder(c, &c->side[i], false);
    }
    args[3] = (dnnl_exec_arg_t){DNNL_ARG_SCRATCHPAD, c->scratch_mem};
    if (st == dnnl_success) st = dnnl_primitive_execute(c->primitive, c->stream, 4, args);
    if (st == dnnl_success) st = run_reorder(c, &c->side[out], true);
    if (st == dnnl_success) st = dnnl_stream_wait(c->stream);
    if (st != dnnl_success) return failed(dg, "could not run", st);
    if (c->side[out].converted >= 0) convert_out(c, &c->side[out], k->work);
    return GW_OK;
}

static void release(void *state) {
    if (state) release_conv(state);
}

/* ---- hooks ---- */

static bool all_of(const gw_vec_shape *s, gw_dtype t) {
    return s->k.in[0].dtype == t && s->k.in[1].dtype == t;
}

/* Channels in whole vectors of eight. With others the library's AVX2 kernels (2.6) write past their
 * own scratchpad where they gather strided 1x1 windows, and past the last channel in gradients of
 * images: what lies behind was damaged, in nets of width 2 to 7. Those run the reference. The few
 * channels of a picture are taken with windows wider than one, which were found sound. */
static bool whole_vectors(const conv *c) {
    bool picture = c->s.c <= 3 && c->s.kh > 1 && c->kind != IMAGES;
    return c->s.o % 8 == 0 && (c->s.c % 8 == 0 || picture);
}

/* The library can do it here. */
static bool can(const gw_vec_shape *s, const gw_machine *m, kind kind_, bool narrow) {
    conv c;
    describe(&c, &s->k, kind_);
    c.narrow = narrow;
    if (!whole_vectors(&c)) return false;
    if (m->count_only || empty(&c)) return true;
    bool ok = ask(&c, m->threads) == dnnl_success;
    release_conv(&c);
    return ok;
}

static bool supports(const gw_graph *g, const gw_op *o, const gw_machine *m, kind kind_,
                     bool narrow) {
    if (!gw_vec_floats(g, o, UINT32_MAX)) return false;
    gw_vec_shape s;
    gw_vec_shape_of(&s, g, o);
    bool direct = all_of(&s, GW_F32) || (all_of(&s, GW_BF16) && m->isa >= GW_ISA_AVX512_BF16);
    return (narrow || direct) && can(&s, m, kind_, narrow);
}

static int64_t workspace(const gw_graph *g, const gw_op *o, const gw_machine *m, kind kind_,
                         bool narrow) {
    gw_vec_shape s;
    gw_vec_shape_of(&s, g, o);
    conv c;
    describe(&c, &s.k, kind_);
    c.narrow = narrow;
    if (empty(&c)) return 0;
    if (m->count_only) {
        for (int i = 0; i < 3; i++)
            if (converts(&c, i)) (void)take(&c, c.side[i].t.elems * 4);
        return c.bytes + 2 * take(&c, c.side[W].t.elems * 4);
    }
    int64_t bytes = ask(&c, m->threads) == dnnl_success ? c.bytes : 0;
    release_conv(&c);
    return bytes;
}

#define HOOKS(name, kind_, narrow)                                                                 \
    static bool name##_supports(const gw_graph *g, const gw_op *o, const gw_machine *m) {          \
        return supports(g, o, m, kind_, narrow);                                                   \
    }                                                                                              \
    static int64_t name##_workspace(const gw_graph *g, const gw_op *o, const gw_machine *m) {      \
        return workspace(g, o, m, kind_, narrow);                                                  \
    }                                                                                              \
    static gw_status name##_prepare(const gw_kargs *k, gw_arena *a, void **state, gw_diags *dg) {  \
        return prepare(k, a, state, dg, kind_, narrow);                                            \
    }
#define KERNEL(ident, name_, op_, note_, hooks)                                                    \
    const gw_kernel gw_kernel_##ident = {                                                          \
        .name = name_,                                                                             \
        .op = op_,                                                                                 \
        .note = note_,                                                                             \
        .supports = hooks##_supports,                                                              \
        .workspace = hooks##_workspace,                                                            \
        .prepare = hooks##_prepare,                                                                \
        .launch = launch,                                                                          \
        .release = release,                                                                        \
    }

HOOKS(forward, FORWARD, false)
HOOKS(images, IMAGES, false)
HOOKS(filters, FILTERS, false)
HOOKS(forward_f32, FORWARD, true)
HOOKS(images_f32, IMAGES, true)
HOOKS(filters_f32, FILTERS, true)

KERNEL(onednn_conv2d, "onednn-conv2d", "conv2d", "oneDNN convolution on channels-last images",
       forward);
KERNEL(onednn_conv2d_dx, "onednn-conv2d-dx", "conv2d_dx", "oneDNN backward data", images);
KERNEL(onednn_conv2d_dw, "onednn-conv2d-dw", "conv2d_dw",
       "oneDNN backward weights, added into the accumulator from workspace", filters);
KERNEL(onednn_conv2d_f32, "onednn-conv2d-f32", "conv2d",
       "operands converted to float32 in workspace, oneDNN convolution", forward_f32);
KERNEL(onednn_conv2d_dx_f32, "onednn-conv2d-dx-f32", "conv2d_dx",
       "operands converted to float32 in workspace, oneDNN backward data", images_f32);
KERNEL(onednn_conv2d_dw_f32, "onednn-conv2d-dw-f32", "conv2d_dw",
       "operands converted to float32 in workspace, oneDNN backward weights", filters_f32);
