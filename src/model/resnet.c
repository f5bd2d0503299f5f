// SPDX-License-Identifier: Apache-2.0
// Residual nets for images: their layers, parameters, running statistics, and forward graph.
//
// He, Zhang, Ren, Sun, "Deep residual learning for image recognition", 2015, as torchvision builds
// it: the stride of a bottleneck sits in its 3x3 filters, and a block whose output has another
// shape than its input has a 1x1 convolution and a norm on the short cut. Names, order and shapes
// of parameters and buffers are those of torchvision's state_dict, so that files pass both ways.
//
// One list says everything: a net is a row of units, each a convolution with its batch norm, and
// parameters, buffers, FLOPs and graph follow from walking it. Images are [b y x c] here, channels
// last; filters [o c i j].
//
// In training a norm uses the statistics of the micro-batch and advances the running ones; a
// micro-batch cut into `groups` parts has statistics of each (ops/batchnorm.c). Otherwise it uses
// the running ones. Initial values are torchvision's: normal filters with variance 2 / (outputs x
// window), gains 1, biases 0, the classifier uniform within 1 / sqrt(inputs).
#include "model/resnet.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/map.h"   /* gw_smap */
#include "base/panic.h" /* gw_panic, GW_ASSERT */

#define LL(x) ((long long)(x))

/* A convolution and its norm. */
typedef struct unit {
    char conv[48], bn[48]; /* "layer1.0.conv1", "layer1.0.bn1" */
    int64_t in, out, size, stride, pad;
    int64_t side; /* of its output */
} unit;

typedef struct units {
    unit *u;
    int n;
    int64_t features, side; /* channels and side of the last output */
} units;

static int64_t shrunk(int64_t side, int64_t size, int64_t stride, int64_t pad) {
    return (side + 2 * pad - size) / stride + 1;
}

static void push(units *l, const char *block, const char *conv, const char *bn, int64_t in,
                 int64_t out, int64_t size, int64_t stride, int64_t side) {
    unit *u = &l->u[l->n++];
    *u = (unit){.in = in, .out = out, .size = size, .stride = stride, .pad = size / 2};
    snprintf(u->conv, sizeof u->conv, "%s%s", block, conv);
    snprintf(u->bn, sizeof u->bn, "%s%s", block, bn);
    u->side = shrunk(side, size, stride, u->pad);
}

/* A block on `in` channels; returns how many come out. */
static int64_t push_block(units *l, const gw_resnet *r, const char *name, int64_t in, int64_t inner,
                          int64_t stride) {
    int64_t side = l->side, small = shrunk(side, 3, stride, 1);
    int64_t out = r->bottleneck ? 4 * inner : inner;
    if (r->bottleneck) {
        push(l, name, "conv1", "bn1", in, inner, 1, 1, side);
        push(l, name, "conv2", "bn2", inner, inner, 3, stride, side);
        push(l, name, "conv3", "bn3", inner, out, 1, 1, small);
    } else {
        push(l, name, "conv1", "bn1", in, inner, 3, stride, side);
        push(l, name, "conv2", "bn2", inner, out, 3, 1, small);
    }
    if (stride != 1 || in != out)
        push(l, name, "downsample.0", "downsample.1", in, out, 1, stride, side);
    l->side = small;
    return out;
}

static units list_units(const gw_model *m, gw_arena *a) {
    const gw_resnet *r = &m->resnet;
    int64_t blocks = r->blocks[0] + r->blocks[1] + r->blocks[2] + r->blocks[3];
    units l = {.u = gw_arena_new(a, unit, 1 + 4 * blocks), .side = r->image};
    push(&l, "", "conv1", "bn1", r->channels, r->width, 7, 2, l.side);
    l.side = shrunk(l.u[0].side, 3, 2, 1); /* pooled */
    int64_t c = r->width;
    for (int stage = 0; stage < 4; stage++)
        for (int64_t i = 0; i < r->blocks[stage]; i++) {
            char name[48];
            snprintf(name, sizeof name, "layer%d.%lld.", stage + 1, LL(i));
            c = push_block(&l, r, name, c, r->width << stage, stage > 0 && i == 0 ? 2 : 1);
        }
    l.features = c;
    return l;
}

/* ---- sizes ---- */

bool gw_resnet_of_depth(int depth, gw_model *out) {
    static const struct {
        int depth;
        int64_t blocks[4];
        bool bottleneck;
    } nets[] = {{18, {2, 2, 2, 2}, false},
                {34, {3, 4, 6, 3}, false},
                {50, {3, 4, 6, 3}, true},
                {101, {3, 4, 23, 3}, true},
                {152, {3, 8, 36, 3}, true}};
    for (size_t i = 0; i < GW_COUNT(nets); i++) {
        if (nets[i].depth != depth) continue;
        gw_model m = gw_model_defaults(GW_FAMILY_RESNET);
        memcpy(m.resnet.blocks, nets[i].blocks, sizeof m.resnet.blocks);
        m.resnet.bottleneck = nets[i].bottleneck;
        *out = m;
        return true;
    }
    return false;
}

static gw_status bad(gw_diags *dg, const char *key, int64_t value, const char *must) {
    return GW_FAIL(dg, GW_ERR_CONFIG, "model-size", "%s is %lld; it must be %s", key, LL(value),
                   must);
}

gw_status gw_resnet_check(const gw_model *m, gw_diags *dg) {
    const gw_resnet *r = &m->resnet;
    gw_status st = GW_OK;
    if (r->width < 1 || r->width > 1 << 16) st = bad(dg, "model.width", r->width, "1 to 65,536");
    if (r->image < 1 || r->image > 1 << 16) st = bad(dg, "model.image", r->image, "1 to 65,536");
    if (r->channels < 1 || r->channels > 1 << 16)
        st = bad(dg, "model.channels", r->channels, "1 to 65,536");
    if (r->classes < 1 || r->classes > 1 << 24)
        st = bad(dg, "model.classes", r->classes, "1 to 2^24");
    for (int i = 0; i < 4; i++)
        if (r->blocks[i] < 1 || r->blocks[i] > GW_MODEL_MAX_LAYERS / 4)
            st = bad(dg, "model.blocks", r->blocks[i], "1 to 256 in each stage");
    if (r->groups < 1 || r->groups > 1 << 20)
        st = bad(dg, "the number of batch-norm groups", r->groups, "1 to 2^20");
    if (!(m->norm_eps > 0) || !isfinite(m->norm_eps))
        st = GW_FAIL(dg, GW_ERR_CONFIG, "model-size",
                     "model.norm_eps is %g; it must be positive and finite", m->norm_eps);
    if (!(r->momentum >= 0 && r->momentum <= 1))
        st = GW_FAIL(dg, GW_ERR_CONFIG, "model-size",
                     "the momentum of running statistics is %g; it must be in [0, 1]", r->momentum);
    return st;
}

double gw_resnet_flops(const gw_model *m) {
    gw_arena a = {0};
    units l = list_units(m, &a);
    double macs = (double)l.features * (double)m->resnet.classes;
    for (int i = 0; i < l.n; i++)
        macs += (double)(l.u[i].side * l.u[i].side) * (double)(l.u[i].size * l.u[i].size) *
                (double)l.u[i].in * (double)l.u[i].out;
    gw_arena_release(&a);
    return 6 * macs;
}

/* Elements that a program holds at once, bounded from above: each unit's few values an image, and
 * every parameter with its gradients, states and copies. */
static double most_elements(const units *l, const gw_model *m, int64_t batch) {
    double values =
        8 * (double)m->resnet.image * (double)m->resnet.image * (double)m->resnet.channels +
        8 * (double)m->resnet.classes;
    double params = (double)l->features * (double)m->resnet.classes;
    for (int i = 0; i < l->n; i++) {
        double area = (double)l->u[i].side * (double)l->u[i].side;
        values += 16 * (area + 1) * (double)(l->u[i].in + l->u[i].out) * (i == 0 ? 4 : 1);
        params += (double)(l->u[i].size * l->u[i].size) * (double)l->u[i].in * (double)l->u[i].out;
    }
    return (double)batch * values + 16 * params;
}

/* ---- parameters and buffers ---- */

typedef struct list {
    gw_arena *a;
    gw_param *p;
    int n;
} list;

static gw_param *add(list *l, const char *layer, const char *what, gw_type type, gw_init init) {
    gw_param *p = &l->p[l->n++];
    *p = (gw_param){.type = type, .init = init, .hf_parts = 1};
    p->name = gw_arena_printf(l->a, "%s.%s", layer, what);
    p->hf = p->gguf = p->name;
    return p;
}

static gw_type vector(const char *name, int64_t n) {
    gw_type t = gw_type_scalar(GW_F32);
    gw_type_add(&t, name, n);
    return t;
}

static void unit_params(list *l, const unit *u) {
    gw_type t = vector("o", u->out);
    gw_type_add(&t, "c", u->in);
    gw_type_add(&t, "i", u->size);
    gw_type_add(&t, "j", u->size);
    gw_param *w = add(l, u->conv, "weight", t, GW_INIT_NORMAL);
    w->std = sqrt(2.0 / (double)(u->out * u->size * u->size));
    w->decay = true;
    w->rows = 1;
    add(l, u->bn, "weight", vector("c", u->out), GW_INIT_ONES);
    add(l, u->bn, "bias", vector("c", u->out), GW_INIT_ZEROS);
}

void gw_resnet_params(const gw_model *m, gw_arena *a, gw_param **out, int *n) {
    units u = list_units(m, a);
    list l = {.a = a, .p = gw_arena_new(a, gw_param, 3 * u.n + 2)};
    for (int i = 0; i < u.n; i++) unit_params(&l, &u.u[i]);
    gw_type t = vector("v", m->resnet.classes);
    gw_type_add(&t, "c", u.features);
    gw_param *w = add(&l, "fc", "weight", t, GW_INIT_UNIFORM);
    w->std = 1 / sqrt((double)u.features);
    w->decay = true;
    w->rows = 1;
    add(&l, "fc", "bias", vector("v", m->resnet.classes), GW_INIT_UNIFORM)->std = w->std;
    *out = l.p;
    *n = l.n;
}

/* Statistics are of each group where groups keep their own. */
static gw_type stat_type(const gw_resnet *r, int64_t c) {
    if (r->groups == 1 || r->broadcast_buffers) return vector("c", c);
    gw_type t = vector("group", r->groups);
    gw_type_add(&t, "c", c);
    return t;
}

void gw_resnet_buffers(const gw_model *m, gw_arena *a, gw_buffer **out, int *n) {
    units u = list_units(m, a);
    gw_buffer *b = gw_arena_new(a, gw_buffer, 3 * u.n);
    for (int i = 0; i < u.n; i++) {
        gw_type t = stat_type(&m->resnet, u.u[i].out);
        const char *bn = u.u[i].bn;
        b[3 * i] = (gw_buffer){gw_arena_printf(a, "%s.running_mean", bn), t, 0, NULL};
        b[3 * i + 1] = (gw_buffer){gw_arena_printf(a, "%s.running_var", bn), t, 1, NULL};
        b[3 * i + 2] = (gw_buffer){gw_arena_printf(a, "%s.num_batches_tracked", bn),
                                   gw_type_scalar(GW_I64), 0, NULL};
    }
    *out = b;
    *n = 3 * u.n;
}

/* ---- the graph ---- */

typedef struct net {
    const gw_model *m;
    const gw_build_opts *o;
    gw_builder b;
    gw_smap leaves; /* parameters and buffers, by name */
    units u;
    int next; /* unit */
} net;

static gw_vid leaf(const net *n, const char *layer, const char *what) {
    char name[96];
    snprintf(name, sizeof name, "%s.%s", layer, what);
    uint32_t v = GW_NONE;
    if (!gw_smap_find_c(&n->leaves, name, &v)) gw_panic("the net has no leaf '%s'", name);
    return v;
}

static void make_leaves(net *n, gw_arena *a) {
    gw_param *p;
    gw_buffer *b;
    int np, nb;
    gw_resnet_params(n->m, a, &p, &np);
    for (int i = 0; i < np; i++) {
        gw_type t = p[i].type;
        t.dtype = (uint8_t)n->o->compute;
        gw_smap_put_c(
            &n->leaves, p[i].name,
            gw_graph_leaf(n->b.g, GW_ROLE_PARAM, GW_CAUSE_WEIGHTS, GW_RATE_STEP, t, p[i].name));
    }
    gw_resnet_buffers(n->m, a, &b, &nb);
    for (int i = 0; i < nb; i++) {
        if (!n->o->training && b[i].type.dtype == GW_I64) continue;
        gw_type t = b[i].type;
        if (n->o->compute == GW_F64 && t.dtype == GW_F32) t.dtype = GW_F64;
        gw_smap_put_c(
            &n->leaves, b[i].name,
            gw_graph_leaf(n->b.g, GW_ROLE_STATE, GW_CAUSE_WEIGHTS, GW_RATE_STEP, t, b[i].name));
    }
}

/* A running statistic takes in that of the batch: of each group, or of the first. */
static void advance(net *n, gw_vid start, gw_vid batch, double scale) {
    gw_attr a[GW_MAX_ATTRS];
    const gw_optable *t = n->b.g->table;
    gw_attrs_default(t, "running_stat", a);
    gw_attrs_set(t, "running_stat", a, "momentum", (gw_attr){.f = n->m->resnet.momentum});
    gw_attrs_set(t, "running_stat", a, "scale", (gw_attr){.f = scale});
    bool each = n->m->resnet.groups > 1 && !n->m->resnet.broadcast_buffers;
    gw_vid in[2] = {start, each ? batch : gw_build1(&n->b, "first_group", batch)};
    gw_vid end = gw_build(&n->b, "running_stat", in, 2, a, NULL);
    if (n->b.status == GW_OK) gw_graph_add_state(n->b.g, start, end);
}

static void tick(net *n, gw_vid start) {
    gw_vid end = gw_build1(&n->b, "tick", start);
    if (n->b.status == GW_OK) gw_graph_add_state(n->b.g, start, end);
}

/* Values of x that one channel of one group is averaged over. */
static double count_of(const net *n, gw_vid x) {
    const gw_type *t = gw_type_of(n->b.g, x);
    double count = 1;
    for (int i = 0; i + 1 < t->ndim; i++) count *= (double)t->dims[i].size;
    return count / (double)n->m->resnet.groups;
}

static gw_vid batch_norm(net *n, gw_vid x, const unit *u) {
    gw_attr a[GW_MAX_ATTRS];
    const gw_optable *t = n->b.g->table;
    gw_vid mean = leaf(n, u->bn, "running_mean"), var = leaf(n, u->bn, "running_var");
    gw_attrs_default(t, "batchnorm", a);
    gw_attrs_set(t, "batchnorm", a, "eps", (gw_attr){.f = n->m->norm_eps});
    gw_attrs_set(t, "batchnorm", a, "batch", (gw_attr){.i = n->o->training});
    if (n->o->training) {
        gw_attr groups = {.i = n->m->resnet.groups};
        gw_vid running_mean = mean, running_var = var;
        mean = gw_build(&n->b, "bn_mean", &x, 1, &groups, NULL);
        var = gw_build1(&n->b, "bn_var", x, mean);
        double count = n->b.status == GW_OK ? count_of(n, x) : 2;
        advance(n, running_mean, mean, 1);
        advance(n, running_var, var, count / (count - 1));
        tick(n, leaf(n, u->bn, "num_batches_tracked"));
    }
    gw_vid in[5] = {x, mean, var, leaf(n, u->bn, "weight"), leaf(n, u->bn, "bias")};
    return gw_build(&n->b, "batchnorm", in, 5, a, NULL);
}

/* The next unit of the list: convolution, norm. */
static gw_vid conv_norm(net *n, gw_vid x) {
    const unit *u = &n->u.u[n->next++];
    const char *dot = strrchr(u->conv, '.');
    bool short_cut = strstr(u->conv, "downsample") != NULL;
    gw_builder_enter(&n->b, "%s", short_cut ? "downsample" : dot ? dot + 1 : u->conv);
    gw_attr a[GW_MAX_ATTRS];
    gw_attrs_default(n->b.g->table, "conv2d", a);
    gw_attrs_set(n->b.g->table, "conv2d", a, "stride", (gw_attr){.i = u->stride});
    gw_attrs_set(n->b.g->table, "conv2d", a, "pad", (gw_attr){.i = u->pad});
    gw_vid in[2] = {x, leaf(n, u->conv, "weight")};
    gw_vid y = batch_norm(n, gw_build(&n->b, "conv2d", in, 2, a, NULL), u);
    gw_builder_leave(&n->b);
    return y;
}

static gw_vid relu(net *n, gw_vid x) { return gw_build1(&n->b, "relu", x); }

static gw_vid block(net *n, gw_vid x) {
    int convs = n->m->resnet.bottleneck ? 3 : 2;
    gw_vid y = x;
    for (int i = 0; i < convs; i++) {
        y = conv_norm(n, y);
        if (i + 1 < convs) y = relu(n, y);
    }
    bool short_cut = n->next < n->u.n && strstr(n->u.u[n->next].conv, "downsample");
    if (short_cut) x = conv_norm(n, x);
    return relu(n, gw_build1(&n->b, "add", y, x));
}

static gw_vid stem(net *n) {
    char dims[96];
    snprintf(dims, sizeof dims, "b%lld y%lld x%lld c%lld", LL(n->o->batch), LL(n->m->resnet.image),
             LL(n->m->resnet.image), LL(n->m->resnet.channels));
    gw_vid x = gw_graph_leaf(n->b.g, GW_ROLE_INPUT, GW_CAUSE_DATA, GW_RATE_MB,
                             gw_type_make(GW_F32, dims), "images");
    gw_builder_enter(&n->b, "stem");
    gw_attr to = {.i = n->o->compute};
    if (n->o->compute != GW_F32) x = gw_build(&n->b, "cast", &x, 1, &to, NULL);
    x = gw_build1(&n->b, "maxpool", relu(n, conv_norm(n, x)));
    gw_builder_leave(&n->b);
    return x;
}

static void head(net *n, gw_vid x) {
    gw_builder_enter(&n->b, "head");
    bool loss = n->o->mode == GW_BUILD_LOSS;
    gw_attr a[GW_MAX_ATTRS];
    gw_attrs_default(n->b.g->table, "matmul", a);
    gw_dtype wide = n->o->compute == GW_F64 ? GW_F64 : GW_F32;
    gw_attrs_set(n->b.g->table, "matmul", a, "dtype", (gw_attr){.i = loss ? n->o->compute : wide});
    gw_vid in[3] = {gw_build1(&n->b, "avgpool", x), leaf(n, "fc", "weight"), leaf(n, "fc", "bias")};
    gw_vid y = gw_build(&n->b, "matmul", in, 3, a, NULL);
    if (loss) {
        char dims[32];
        snprintf(dims, sizeof dims, "b%lld", LL(n->o->batch));
        gw_vid labels = gw_graph_leaf(n->b.g, GW_ROLE_INPUT, GW_CAUSE_DATA, GW_RATE_MB,
                                      gw_type_make(GW_I32, dims), "labels");
        gw_vid seed = gw_graph_leaf(n->b.g, GW_ROLE_INPUT, GW_CAUSE_DATA, GW_RATE_STEP,
                                    gw_type_scalar(GW_F32), "seed");
        y = gw_build1(&n->b, "xent", y, labels, seed);
    }
    gw_builder_leave(&n->b);
    if (n->b.status == GW_OK)
        n->b.g->values.items[y].name = gw_graph_intern(n->b.g, loss ? "loss" : "logits");
}

static gw_status check_batch(const gw_model *m, const gw_build_opts *o, const units *u,
                             gw_diags *dg) {
    if (o->mode == GW_BUILD_CACHED)
        return GW_FAIL(dg, GW_ERR_CONFIG, "model-mode", "a net of images generates no tokens");
    if (o->batch < 1 || o->batch >= INT64_C(1) << 31 || most_elements(u, m, o->batch) > 0x1p54)
        return GW_FAIL(dg, GW_ERR_CONFIG, "model-size",
                       "train.micro_batch is %lld: it must be at least 1, and small enough that "
                       "the bytes of a step can be counted in 64 bits",
                       LL(o->batch));
    int64_t groups = m->resnet.groups;
    if (!o->training && (groups == 1 || m->resnet.broadcast_buffers)) return GW_OK;
    if (o->batch % groups != 0)
        return GW_FAIL(dg, GW_ERR_CONFIG, "batchnorm-groups",
                       "train.micro_batch %lld does not divide into %lld parts with batch "
                       "statistics of their own",
                       LL(o->batch), LL(groups));
    if (o->training && o->batch / groups * u->side * u->side < 2)
        return GW_FAIL(dg, GW_ERR_CONFIG, "batchnorm-count",
                       "the last stage sees one value of a channel in each part of a micro-batch "
                       "(%lld images of %lld x %lld): its variance is not defined",
                       LL(o->batch / groups), LL(u->side), LL(u->side));
    return GW_OK;
}

gw_status gw_resnet_build(gw_graph *g, const gw_model *m, const gw_build_opts *o, gw_diags *dg) {
    gw_arena mem = {0};
    net n = {.m = m, .o = o, .u = list_units(m, &mem)};
    gw_builder_init(&n.b, g, dg);
    n.b.status = check_batch(m, o, &n.u, dg);
    if (n.b.status == GW_OK) {
        make_leaves(&n, &mem);
        gw_vid x = stem(&n);
        int64_t blocks = 0;
        for (int i = 0; i < 4; i++) blocks += m->resnet.blocks[i];
        for (int64_t i = 0; i < blocks; i++) {
            gw_builder_enter(&n.b, "layer %d", (int)i);
            x = block(&n, x);
            gw_builder_leave(&n.b);
        }
        head(&n, x);
    }
    gw_smap_release(&n.leaves);
    gw_arena_release(&mem);
    return n.b.status;
}
