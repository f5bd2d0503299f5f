// SPDX-License-Identifier: Apache-2.0
// Comparing one step, tensor by tensor.
//
// Only one tensor is whole at a time, or a few that are small: the layout's parts of it are
// gathered on rank 0, which reads the reference's and judges. Parameters are compared by what
// training did to them: both sides begin from the same bits, so the difference of the weights is
// that of the updates, and the update is what it is divided by (a factor of two in an update of a
// thousandth would be invisible in the weight).
//
// A bound of a half or more could be kept by a tensor that is plainly wrong (one of zeros differs
// by 1): such a tensor is told apart as not judged. It can still be found wrong.
//
// The bound of a tensor has up to five parts, each with its reason:
//
//   1e-5       sums in another order, float32, over sequences of some hundred terms
//   rounding   of a weight to its dtype, once a step, seen against the update
//   noise      four times how far the reference lies from itself when its sums are taken in another
//              order or its weights moved by a last bit (verify_side.c), for this tensor or for the
//              median of its kind, whichever is larger; in float32 for the worst of this tensor's
//              in all steps and layers
//   wires      what quantised hops may do, by the largest value of each block (comm/wire.h)
//   turned     under AdamW, from the second step on: what is said below
//
// Under AdamW an element of an update is the sign of a gradient, whatever its size; where the
// gradient is noise, so is the update. Elements whose second moment says so are left out of the
// comparison of parameters; the moments themselves are compared in full. But a weight that was
// turned moves everything that is computed from it in the next steps. A run of a few steps has
// hardly more than one such element, and the reference's own noise may have none: the bound has
// room for one in a weight of typical norm, which changes that weight by 2 lr / norm.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"         /* gw_hash128_of */
#include "base/str.h"          /* gw_str_ends */
#include "comm/wire.h"         /* GW_WIRE_BLOCK */
#include "train/ranks.h"       /* gw_ranks_me */
#include "train/verify_impl.h" /* this module's contract */
#include "train/weights.h"     /* gw_floats_from */

enum { KEPT_ELEMS_MOST = 1 << 24, TOGETHER_ELEMS = 1 << 18 };

/* ---- the list ---- */

static bool is_float(gw_dtype t) {
    return t == GW_F32 || t == GW_BF16 || t == GW_F16 || t == GW_F64;
}

/* "wte.m" belongs to a parameter, running statistics do not. */
static bool is_moment(const gw_setup *s, const char *name) {
    const char *dot = strrchr(name, '.');
    for (int i = 0; dot && i < s->nparams; i++)
        if (strlen(s->params[i].name) == (size_t)(dot - name) &&
            strncmp(s->params[i].name, name, (size_t)(dot - name)) == 0)
            return true;
    return false;
}

static bool is_param(const gw_setup *s, const char *name) {
    for (int i = 0; i < s->nparams; i++)
        if (gw_str_eq(s->params[i].name, name)) return true;
    return false;
}

/* What kind of thing an entry is; KIND_COUNT: nothing that is compared. */
static gw_verify_kind kind_of(const gw_verifier *r, const gw_ranks_entry *e) {
    bool record = strncmp(e->name, "moe.", 4) == 0; /* verify_replay.c has its own look at those */
    if (record || !is_float((gw_dtype)e->type.dtype)) return GW_VERIFY_KIND_COUNT;
    if (!e->leaf)
        return strncmp(e->name, "grad:", 5) == 0 ? GW_VERIFY_GRADIENT : GW_VERIFY_KIND_COUNT;
    if (is_param(&r->setup, e->name)) return GW_VERIFY_PARAMETER;
    return is_moment(&r->setup, e->name) ? GW_VERIFY_MOMENT : GW_VERIFY_STATE;
}

static const gw_ranks_entry *find_in(const gw_verify_side *v, const char *name) {
    return v->x ? gw_ranks_find(&v->table, name) : NULL;
}

static void add_item(gw_verifier *r, const gw_ranks_entry *e, const char *name,
                     gw_verify_kind kind) {
    gw_verify_item *it = &r->items[r->nitems];
    *it = (gw_verify_item){.name = kind == GW_VERIFY_GRADIENT ? name + 5 : name,
                           .kind = kind,
                           .in_layout = e,
                           .in_reference = find_in(&r->reference, name),
                           .spread = 1,
                           .elems = 1};
    for (int i = 0; i < r->nperturbed; i++) it->in_perturbed[i] = find_in(&r->perturbed[i], name);
    if (e) it->elems = gw_type_elems(&e->type);
    if (kind == GW_VERIFY_PARAMETER && r->setup.train.optim.kind != GW_OPTIM_SGD) {
        char second[256];
        snprintf(second, sizeof second, "%s.v", name);
        it->v = find_in(&r->reference, second);
    }
    r->entries[r->nitems++] = (gw_verify_tensor){
        .name = it->name, .kind = kind, .step = 1, .factor = (double)NAN, .agrees = true};
    r->most_elems = GW_MAX(r->most_elems, it->elems);
}

/* The item that is the gradient of parameter, or of moment, i ("wte" of "wte.m"); -1: none. */
static int64_t gradient_of(const gw_verifier *r, int64_t i) {
    const gw_verify_item *it = &r->items[i];
    if (it->kind != GW_VERIFY_MOMENT && it->kind != GW_VERIFY_PARAMETER) return -1;
    const char *dot = it->kind == GW_VERIFY_MOMENT ? strrchr(it->name, '.') : NULL;
    size_t n = dot ? (size_t)(dot - it->name) : strlen(it->name);
    for (int64_t k = 0; k < r->nitems; k++)
        if (r->items[k].kind == GW_VERIFY_GRADIENT && strlen(r->items[k].name) == n &&
            strncmp(r->items[k].name, it->name, n) == 0)
            return k;
    return -1;
}

gw_status gw_verify_list_items(gw_verifier *r) {
    const gw_ranks_table *t = &r->layout.table;
    r->items = gw_arena_new(&r->mem, gw_verify_item, t->n + 2);
    r->entries = gw_arena_new(&r->mem, gw_verify_tensor, t->n + 2);
    r->nitems = r->most_elems = 0;
    add_item(r, NULL, "loss", GW_VERIFY_LOSS);
    add_item(r, NULL, "norm", GW_VERIFY_NORM);
    for (int i = 0; i < t->n; i++) {
        gw_verify_kind k = kind_of(r, &t->items[i]);
        if (k != GW_VERIFY_KIND_COUNT) add_item(r, &t->items[i], t->items[i].name, k);
    }
    for (int64_t i = 0; i < r->nitems; i++) r->items[i].gradient = gradient_of(r, i);
    if (gw_verify_is_root(r)) {
        r->x = gw_arena_new(&r->mem, float, r->most_elems);
        r->y = gw_arena_new(&r->mem, float, r->most_elems);
        r->z = gw_arena_new(&r->mem, float, r->most_elems);
    }
    return gw_verify_find_holders(r);
}

/* ---- the start ---- */

static gw_status compare_start(gw_verifier *r, int64_t i, const float *mine) {
    gw_verify_item *it = &r->items[i];
    if (!gw_verify_is_root(r)) return GW_OK;
    it->initial = gw_arena_new(&r->mem, float, it->elems);
    GW_TRY(gw_verify_side_read(&r->reference, it->in_reference, it->initial, r->dg));
    double norm = gw_verify_norm(it->initial, it->elems);
    r->weight_squares += norm * norm;
    if (memcmp(mine, it->initial, (size_t)it->elems * sizeof(float)) == 0) return GW_OK;
    if (r->weights_apart++ == 0)
        snprintf(r->weights_text, sizeof r->weights_text, "%s differs", it->name);
    return GW_OK;
}

/* Calls `what` for the listed items with what the layout has of each (`mine`; NULL where it is no
 * tensor, and on other ranks than 0). All ranks call it. */
typedef gw_status item_fn(gw_verifier *r, int64_t i, const float *mine);
static gw_status with_gathered(gw_verifier *r, const int64_t *list, int64_t n, item_fn *what) {
    gw_status st = GW_OK;
    for (int64_t at = 0, end; st == GW_OK && at < n; at = end) {
        gw_arena mem = {0};
        int64_t elems = r->items[list[at]].elems;
        for (end = at + 1; end < n && elems + r->items[list[end]].elems <= TOGETHER_ELEMS; end++)
            elems += r->items[list[end]].elems;
        const gw_ranks_entry **e = gw_arena_new(&mem, const gw_ranks_entry *, end - at);
        float **x = gw_arena_new(&mem, float *, end - at),
              **whole = gw_arena_new(&mem, float *, end - at);
        int count = 0;
        for (int64_t k = at; k < end; k++) {
            const gw_verify_item *it = &r->items[list[k]];
            if (!it->in_layout) continue;
            if (gw_verify_is_root(r))
                whole[count] = x[k - at] = gw_arena_new(&mem, float, it->elems);
            e[count++] = it->in_layout;
        }
        st = gw_verify_side_read_some(&r->layout, e, count, whole, r->dg);
        for (int64_t k = at; st == GW_OK && k < end; k++) st = what(r, list[k], x[k - at]);
        gw_arena_release(&mem);
    }
    return st;
}

gw_status gw_verify_compare_start(gw_verifier *r) {
    int64_t *list = gw_arena_new(&r->mem, int64_t, r->nitems + 1), n = 0;
    for (int64_t i = 0; i < r->nitems; i++)
        if (r->items[i].kind == GW_VERIFY_PARAMETER) list[n++] = i;
    return with_gathered(r, list, n, compare_start);
}

/* ---- replicas ---- */

/* Ranks with the same part hold the same elements; elems -1: none. */
typedef struct copy {
    int64_t part, elems;
    gw_hash128 hash;
} copy;

static copy copy_of(const gw_verifier *r, const gw_verify_item *it) {
    copy c = {0};
    if (!it->in_layout) {
        double value = it->kind == GW_VERIFY_LOSS ? r->layout.loss_sum : r->layout.own_norm;
        c.elems = it->kind == GW_VERIFY_LOSS || r->layout.has_norm ? 1 : -1;
        c.hash = gw_hash128_of(&value, sizeof value);
        return c;
    }
    c.elems = -1;
    if (it->in_layout->value == GW_NONE) return c;
    const gw_mesh *mesh = &gw_exec_graph(r->layout.x)->mesh;
    gw_tensor t = gw_exec_tensor(r->layout.x, it->in_layout->value);
    c.part = gw_ranks_part(&it->in_layout->type, mesh, gw_exec_rank(r->layout.x));
    c.elems = t.elems;
    c.hash = gw_hash128_of(t.data, (size_t)(t.elems * gw_dtype_bits(t.dtype) / 8));
    return c;
}

/* The first earlier rank that holds the same part but other bits; -1: none. */
static int64_t differs_from(const copy *all, int64_t n, int64_t i, int64_t rank) {
    const copy *mine = &all[rank * n + i];
    for (int64_t q = 0; q < rank; q++) {
        const copy *c = &all[q * n + i];
        if (c->part != mine->part || c->elems != mine->elems || c->elems < 0) continue;
        return c->hash.lo == mine->hash.lo && c->hash.hi == mine->hash.hi ? -1 : q;
    }
    return -1;
}

static void look_at_copies(gw_verifier *r, const copy *all, int64_t i) {
    for (int64_t rank = 1; rank < gw_ranks_count(r->comm); rank++) {
        int64_t q = differs_from(all, r->nitems, i, rank);
        if (q < 0) continue;
        if (r->replica_faults++ == 0)
            snprintf(r->replica_text, sizeof r->replica_text,
                     "%s %.48s on ranks %lld and %lld differ after step %lld",
                     gw_verify_kind_name(r->items[i].kind), r->items[i].name, (long long)q,
                     (long long)rank, (long long)r->layout.step);
        return;
    }
}

gw_status gw_verify_compare_replicas(gw_verifier *r) {
    if (!r->comm) return GW_OK;
    int64_t n = r->nitems, size = gw_ranks_count(r->comm);
    copy *mine = gw_mem_zalloc(sizeof *mine * (size_t)n);
    copy *all = gw_mem_zalloc(sizeof *all * (size_t)(n * size));
    for (int64_t i = 0; i < n; i++) {
        bool temporary = r->items[i].kind == GW_VERIFY_GRADIENT && r->layout.step == 0;
        if (temporary) continue;
        mine[i] = copy_of(r, &r->items[i]);
    }
    gw_status st =
        gw_comm_all_gather(r->comm, mine, (int64_t)sizeof *mine * n, all, "replicas", r->dg);
    for (int64_t i = 0; st == GW_OK && i < n; i++) look_at_copies(r, all, i);
    gw_mem_free(mine);
    gw_mem_free(all);
    return st;
}

/* ---- a step ---- */

static double scalar(const gw_verify_side *v, gw_verify_kind k) {
    if (k == GW_VERIFY_NORM) return v->norm;
    return v->labels_seen > 0 ? v->loss_sum / (double)v->labels_seen : v->loss_sum;
}

/* Of a parameter, what training did to it. */
static void take_update(const gw_verify_item *it, float *x) {
    for (int64_t i = 0; it->kind == GW_VERIFY_PARAMETER && i < it->elems; i++)
        x[i] -= it->initial[i];
}

/* Item `it` of a reference, parameters as updates. */
static gw_status read_item(const gw_verifier *r, const gw_verify_side *v, const gw_verify_item *it,
                           const gw_ranks_entry *x, float *out) {
    if (!it->in_layout) {
        out[0] = (float)scalar(v, it->kind);
        return GW_OK;
    }
    GW_TRY(gw_verify_side_read(v, x, out, r->dg));
    take_update(it, out);
    return GW_OK;
}

static double largest_of(const float *x, int64_t n) {
    double most = 0;
    for (int64_t i = 0; i < n; i++) most = GW_MAX(most, fabs((double)x[i]));
    return most;
}

/* The divisor's floor of each kind: a thousandth of its typical element, per square root of
 * elements. */
static gw_status find_floors(gw_verifier *r) {
    double squares[GW_VERIFY_KIND_COUNT] = {0}, n[GW_VERIFY_KIND_COUNT] = {0};
    for (int64_t i = 0; i < r->nitems; i++) {
        const gw_verify_item *it = &r->items[i];
        GW_TRY(read_item(r, &r->reference, it, it->in_reference, r->y));
        double norm = gw_verify_norm(r->y, it->elems);
        squares[it->kind] += isfinite(norm) ? norm * norm : 0;
        n[it->kind] += (double)it->elems;
    }
    for (int k = 0; k < GW_VERIFY_KIND_COUNT; k++)
        r->floor[k] = n[k] > 0 ? 1e-3 * sqrt(squares[k] / n[k]) : 0;
    return GW_OK;
}

static double epsilon(gw_dtype t) {
    return t == GW_BF16 ? 1.0 / 128 : t == GW_F16 ? 1.0 / 1024 : 1.0 / (1 << 22);
}

/* Below which part of the gradients' root mean square an element may be noise: sums in 16 bits are
 * off by some last places of a typical element. */
static double noise_level(const gw_verifier *r) {
    gw_dtype t = r->setup.train.compute;
    return t == GW_F32 ? 1e-2 : GW_MAX(1e-2, 8 * epsilon(t));
}

/* Leaves out of a and b what AdamW makes, or made in an earlier step, of gradients that are noise.
 */
static gw_status drop_noise(gw_verifier *r, gw_verify_item *it, float *a, float *b) {
    if (!it->v) return GW_OK;
    if (!it->noisy) it->noisy = gw_arena_new(&r->mem, bool, it->elems);
    GW_TRY(gw_verify_side_read(&r->reference, it->v, r->z, r->dg));
    double sum = 0;
    for (int64_t i = 0; i < it->elems; i++) sum += (double)r->z[i];
    double rms = sqrt(sum / (double)it->elems);
    double least = GW_MAX(noise_level(r) * rms, r->floor[GW_VERIFY_GRADIENT]);
    for (int64_t i = 0; i < it->elems; i++) {
        it->noisy[i] = it->noisy[i] || sqrt((double)r->z[i]) < least;
        if (it->noisy[i]) a[i] = b[i] = 0;
    }
    return GW_OK;
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void find_medians(gw_verifier *r) {
    double *all = gw_mem_alloc(sizeof *all * (size_t)(r->nitems + 1));
    for (int k = 0; k < GW_VERIFY_KIND_COUNT; k++) {
        int64_t n = 0;
        for (int64_t i = 0; i < r->nitems; i++)
            if ((int)r->items[i].kind == k) all[n++] = r->items[i].noise;
        qsort(all, (size_t)n, sizeof *all, by_value);
        r->typical[k] = n > 0 ? all[n / 2] : 0;
    }
    gw_mem_free(all);
}

/* Of two tensors called "layers.L.what": the same `what`? */
static bool alike(const gw_verify_item *a, const gw_verify_item *b) {
    const char *x = a->name, *y = b->name;
    if (a->kind != b->kind || strncmp(x, "layers.", 7) != 0 || strncmp(y, "layers.", 7) != 0)
        return false;
    return strcmp(x + 7 + strspn(x + 7, "0123456789"), y + 7 + strspn(y + 7, "0123456789")) == 0;
}

/* In float32 a difference of last bits that cancellation has made large is a matter of chance: one
 * draw may have nearly none of it. Every step and every layer is a draw of its own. */
static void pool_noise(gw_verifier *r) {
    for (int64_t i = 0; i < r->nitems; i++)
        r->items[i].worst = GW_MAX(r->items[i].worst, r->items[i].noise);
    for (int64_t i = 0; i < r->nitems; i++)
        for (int64_t k = 0; k < r->nitems; k++)
            if (k == i || alike(&r->items[i], &r->items[k]))
                r->items[i].noise = GW_MAX(r->items[i].noise, r->items[k].worst);
}

/* How far the perturbed references are from the reference. */
static gw_status find_noise(gw_verifier *r) {
    for (int64_t i = 0; i < r->nitems; i++) {
        gw_verify_item *it = &r->items[i];
        double floor = r->floor[it->kind] * sqrt((double)it->elems);
        it->noise = 0;
        for (int p = 0; p < r->nperturbed; p++) {
            GW_TRY(read_item(r, &r->reference, it, it->in_reference, r->y));
            GW_TRY(read_item(r, &r->perturbed[p], it, it->in_perturbed[p], r->x));
            GW_TRY(drop_noise(r, it, r->x, r->y));
            it->noise = GW_MAX(it->noise, gw_verify_difference(r->x, r->y, it->elems, floor));
        }
    }
    if (!r->own && !r->o->run_optimizer) pool_noise(r);
    find_medians(r);
    return GW_OK;
}

/* ---- bounds ---- */

static bool is_narrow(const gw_verify_item *it) {
    if (!it->in_layout) return false;
    gw_dtype t = (gw_dtype)it->in_layout->type.dtype;
    return t == GW_BF16 || t == GW_F16;
}

/* What a dtype does: to an update, that of the weight it is added to; to what is stored in 16 bits,
 * a largest element that falls on the other side of a rounding. y: the reference's. */
static double rounding(const gw_verifier *r, const gw_verify_item *it, double floor) {
    if (it->kind != GW_VERIFY_PARAMETER) {
        double norm = GW_MAX(gw_verify_norm(r->y, it->elems), floor);
        return is_narrow(it) && norm > 0
                   ? epsilon(r->setup.train.compute) * largest_of(r->y, it->elems) / norm
                   : 0;
    }
    double weights = gw_verify_norm(it->initial, it->elems);
    double update = GW_MAX(gw_verify_norm(r->y, it->elems), floor);
    return update > 0 ? epsilon(r->setup.train.master) * weights / update : 0;
}

static double hop(const gw_verifier *r, gw_wire w, const float *x, const gw_verify_item *it) {
    const gw_rf_layout *l = &r->setup.rf->layout;
    return gw_verify_hop(w, x, it->elems, l->cp * (l->zero > 0 ? l->dp / l->dp_replicate : l->dp));
}

/* Weights as they travel, of the first order: once in each layer's forward and backward; and where
 * the updated weights themselves are what travels, into every weight. */
static double weight_wire(gw_verifier *r, const gw_verify_item *it, double floor) {
    const gw_rf_layout *l = &r->setup.rf->layout;
    if (l->zero == 0 || l->weight_wire == GW_WIRE_SAME) return 0;
    double through = (double)(2 * r->setup.model.layers + 2) * r->weight_hop;
    if (it->kind != GW_VERIFY_PARAMETER || l->zero == 3) return through;
    double update = GW_MAX(gw_verify_norm(r->y, it->elems), floor);
    double own = hop(r, l->weight_wire, it->initial, it);
    return through + (update > 0 ? own * gw_verify_norm(it->initial, it->elems) / update : 0);
}

/* Hops of a contribution on its way into a sum: one where each rank sends each other its share, two
 * where hosts or replicas are crossed or the sums travel back. */
static int gradient_hops(const gw_verifier *r) {
    const gw_rf_layout *l = &r->setup.rf->layout;
    int64_t per_host = r->setup.facts.comm.per_host;
    bool crosses = per_host > 0 && per_host < gw_runfile_ranks(r->setup.rf);
    return l->zero > 0 && l->dp_replicate == 1 && !crosses ? 1 : 2;
}

/* What a step's gradient is off by, for what is made of it. AdamW squares gradients in its second
 * moment, and its update is nearly their sign: a share of elements as large as the error is beside
 * the gradient may be turned round, and the norm of those goes by the root of the share. */
static double wire_of_gradient(const gw_verifier *r, const gw_verify_item *it) {
    double own = it->gradient < 0 ? r->most_wire : r->items[it->gradient].wire;
    if (!r->o->run_optimizer) return own;
    return it->kind == GW_VERIFY_PARAMETER ? sqrt(r->most_wire) : 2 * r->most_wire;
}

/* What quantised wires may do. A gradient's hops are as large as the ranks' contributions are
 * beside their sum; reduced after each micro-batch, the errors are many and independent. What is
 * made of gradients is off by what they are, norm and loss by what all of them together are. */
static double wires(gw_verifier *r, gw_verify_item *it, double floor) {
    const gw_rf_layout *l = &r->setup.rf->layout;
    double steps = (double)r->reference.step, weights = weight_wire(r, it, floor);
    if (it->kind == GW_VERIFY_GRADIENT) {
        double each = r->setup.train.layout.reduce_each ? (double)r->setup.rf->train.accumulate : 1;
        double one = hop(r, l->gradient_wire, r->y, it), norm = gw_verify_norm(r->y, it->elems);
        it->wire = weights + gradient_hops(r) * sqrt(each) * it->spread * one;
        r->most_wire = GW_MAX(r->most_wire, it->wire);
        r->wire_squares += it->wire * norm * it->wire * norm;
        r->squares += norm * norm;
        return it->wire * steps;
    }
    if (it->kind == GW_VERIFY_LOSS && steps < 2) return weights;
    if (it->kind == GW_VERIFY_LOSS || it->kind == GW_VERIFY_NORM) {
        double all = r->squares > 0 ? sqrt(r->wire_squares / r->squares) : r->most_wire;
        return (all + weights) * steps;
    }
    return (wire_of_gradient(r, it) + weights) * steps;
}

/* AdamW, after its first step: one element of a weight of typical norm that was turned the other
 * way round, its gradient being noise. Few are: one in 1e5 has a gradient as small as sums may be
 * off.
 */
static double turned(const gw_verifier *r, const gw_verify_item *it) {
    bool one = it->kind == GW_VERIFY_LOSS || it->kind == GW_VERIFY_NORM;
    if (r->setup.train.optim.kind == GW_OPTIM_SGD || r->reference.step < 2 || one) return 0;
    double typical = sqrt(r->weight_squares / GW_MAX(r->setup.nparams, 1));
    return typical > 0 ? 2 * (double)r->reference.lr / typical : 0;
}

static double bound_of(gw_verifier *r, gw_verify_item *it, double floor) {
    bool one = it->kind == GW_VERIFY_LOSS || it->kind == GW_VERIFY_NORM; /* a measure of its own
                                                                            says little */
    double typical = r->typical[one ? GW_VERIFY_GRADIENT : it->kind];
    double noise = r->nperturbed > 0 ? 4 * GW_MAX(it->noise, typical) : 0;
    double lossy = r->own ? wires(r, it, floor) : 0;
    return GW_VERIFY_BOUND + rounding(r, it, floor) + noise + lossy + turned(r, it);
}

/* ---- judging ---- */

static void keep(gw_verifier *r, gw_verify_item *it) {
    if (it->kind != GW_VERIFY_GRADIENT || r->reference.step != 1) return;
    if (r->kept_elems + it->elems > KEPT_ELEMS_MOST) return;
    r->kept_elems += it->elems;
    it->kept = gw_arena_dup(&r->mem, r->x, it->elems * (int64_t)sizeof(float));
}

static void note(gw_verifier *r, int64_t i, double difference, double bound) {
    gw_verify_tensor *e = &r->entries[i];
    gw_verify_item *it = &r->items[i];
    bool agrees = difference <= bound, coarse = agrees && bound >= GW_VERIFY_COARSE;
    bool first = e->bound == 0 || (e->coarse && !coarse); /* steps that judge come before others */
    bool worse = e->agrees && (!agrees || difference * e->bound >= e->difference * bound);
    if (!first && (!worse || coarse != e->coarse)) return;
    e->difference = difference;
    e->bound = bound;
    e->step = r->reference.step;
    e->agrees = agrees;
    e->coarse = coarse;
    if (agrees) return;
    const gw_rf_layout *l = &r->setup.rf->layout;
    gw_verify_degrees d = {.dp = l->dp,
                           .dp_replicate = l->zero > 0 ? l->dp_replicate : 1,
                           .micro_batches = r->setup.rf->train.accumulate,
                           .pp = l->pp,
                           .virtual_stages = l->pp > 1 ? l->virtual_stages : 1,
                           .tp = l->tp,
                           .cp = l->cp,
                           .ep = l->ep};
    double tolerance = GW_MIN(GW_MAX(bound, 2e-3), 0.1);
    if (gw_verify_factor(r->x, r->y, it->elems, &d, tolerance, &e->factor, e->why)) return;
    e->factor = (double)NAN;
    keep(r, it);
}

static gw_status compare_item(gw_verifier *r, int64_t i, const float *mine) {
    gw_verify_item *it = &r->items[i];
    if (!gw_verify_is_root(r)) return GW_OK;
    if (mine) {
        memcpy(r->x, mine, (size_t)it->elems * sizeof *mine);
        take_update(it, r->x);
    } else {
        r->x[0] = (float)scalar(&r->layout, it->kind);
    }
    GW_TRY(read_item(r, &r->reference, it, it->in_reference, r->y));
    GW_TRY(drop_noise(r, it, r->x, r->y));
    double floor = r->floor[it->kind] * sqrt((double)it->elems);
    note(r, i, gw_verify_difference(r->x, r->y, it->elems, floor), bound_of(r, it, floor));
    return GW_OK;
}

/* From the initial weights. */
static void find_weight_hop(gw_verifier *r) {
    const gw_rf_layout *l = &r->setup.rf->layout;
    if (!r->own || l->zero == 0 || l->weight_wire == GW_WIRE_SAME || r->weight_hop > 0) return;
    for (int64_t i = 0; i < r->nitems; i++)
        if (r->items[i].initial)
            r->weight_hop =
                GW_MAX(r->weight_hop, hop(r, l->weight_wire, r->items[i].initial, &r->items[i]));
}

/* As norm and loss have it: weights on their way into each layer, and what gradients of the steps
 * before have left in them. */
double gw_verify_wires_of_step(gw_verifier *r) {
    if (!r->own) return 0;
    find_weight_hop(r);
    double weights = (double)(2 * r->setup.model.layers + 2) * r->weight_hop;
    double gradients = r->squares > 0 ? sqrt(r->wire_squares / r->squares) : 0;
    return weights + gradients * (double)(r->reference.step - 1);
}

static gw_status prepare(gw_verifier *r) {
    r->finite = r->finite && isfinite(r->layout.loss_sum) && isfinite(r->layout.norm) &&
                isfinite(r->reference.loss_sum) && isfinite(r->reference.norm);
    GW_TRY(find_floors(r));
    find_weight_hop(r);
    return r->nperturbed > 0 ? find_noise(r) : GW_OK;
}

/* Gradients first: what the wires may do to them is part of the other bounds. */
gw_status gw_verify_compare_step(gw_verifier *r) {
    gw_status st = gw_verify_is_root(r) ? prepare(r) : GW_OK;
    GW_TRY(gw_exec_agree(r->comm, st, NULL, "comparing a step", r->dg));
    r->most_wire = r->wire_squares = r->squares = 0;
    int64_t *list = gw_mem_alloc(sizeof *list * (size_t)(r->nitems + 1)), n = 0;
    for (int gradients = 1; gradients >= 0; gradients--)
        for (int64_t i = 0; i < r->nitems; i++)
            if ((r->items[i].kind == GW_VERIFY_GRADIENT) == (gradients == 1)) list[n++] = i;
    st = with_gathered(r, list, n, compare_item);
    gw_mem_free(list);
    return st;
}
