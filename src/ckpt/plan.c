// SPDX-License-Identifier: Apache-2.0
// Who writes what.
//
// What a rank holds is, for nearly every placement, one box (a cut of each dimension) or a stretch
// of its elements (ZeRO). Placements that leave it two runs of a dimension (zigzags) are given run
// by run, as stretches of the whole tensor: always right, only longer.
//
// The ranks of a tensor's stage form a table: parts (ranks that differ on sub-axes that cut it) by
// replicas (the others). A part's pieces are dealt to its replicas in equal stretches. With fewer
// shares than replicas it matters which replica has the first of them, its turn. Tensors take turns
// by bytes: from the largest to the smallest, each begins with the replica that has the least so
// far, among the tensors of its stage that are cut alike.
//
// A model has thousands of tensors and few kinds of them: lists are remembered by type, stage and
// turn, so that planning 4,500 tensors on 16,384 ranks takes as long as planning their few hundred
// kinds, and manifests can share the lists in the same way.
#include "ckpt/plan.h"

#include <stdlib.h>
#include <string.h>

#include "base/map.h"      /* gw_smap, GW_VEC */
#include "base/panic.h"    /* GW_ASSERT */
#include "base/str.h"      /* gw_str */
#include "ir/text.h"       /* gw_type_print */
#include "run/exec_comm.h" /* gw_exec_group_rank */

enum { TURNS = 16 }; /* more would only make more lists */

struct gw_ckpt_plan {
    gw_arena mem;
    gw_ckpt_item *items;
    const gw_mesh *mesh; /* NULL: one rank */
    int n;
    gw_smap by_kind; /* -> lists */
    GW_VEC(gw_ckpt_shares) lists;
    int *list_of; /* [n], -1: not asked yet */
    int *turns;   /* [n] */
};

/* ---- what a rank holds ---- */

static bool one_run_each(const gw_held *w) {
    for (int i = 0; i < w->ndim; i++)
        if (w->cuts[i].n > 1) return false;
    return true;
}

static int held_runs(gw_held *w, const gw_box *whole, gw_arena *a, gw_piece **out) {
    GW_VEC(gw_piece) pieces = {0};
    int64_t global, local, count;
    while (gw_held_next(w, &global, &local, &count)) {
        gw_piece p = {.box = *whole, .first = global, .count = count};
        gw_vec_push(&pieces, p);
    }
    int n = (int)pieces.count;
    *out = gw_arena_dup(a, pieces.items, pieces.count * (int64_t)sizeof *pieces.items);
    gw_vec_release(&pieces);
    return n;
}

static gw_box whole_of(const gw_type *t) {
    gw_box b = {.ndim = t->ndim};
    for (int i = 0; i < t->ndim; i++) b.size[i] = t->dims[i].size;
    return b;
}

int gw_ckpt_held(const gw_type *t, const gw_mesh *mesh, int64_t rank, gw_arena *a, gw_piece **out) {
    gw_held w;
    gw_box box = whole_of(t);
    *out = gw_arena_new(a, gw_piece, 1);
    if (!mesh) {
        **out = gw_piece_of_box(&box);
        return (*out)->count > 0;
    }
    gw_held_begin(&w, t, mesh, rank);
    if (w.hi <= w.at) return 0;
    if (!one_run_each(&w)) return held_runs(&w, &box, a, out);
    for (int i = 0; i < t->ndim; i++) {
        box.start[i] = w.cuts[i].n ? w.cuts[i].first[0] : 0;
        box.size[i] = w.length[i];
    }
    **out = (gw_piece){.box = box, .first = w.lo, .count = w.hi - w.lo};
    return 1;
}

/* ---- shares ---- */

typedef GW_VEC(gw_ckpt_share) share_list;

/* Shares of a piece of `count` elements. */
static int64_t shares_of(int64_t count, int64_t nreplicas, int64_t bytes) {
    return GW_MAX(1, GW_MIN(nreplicas, count * bytes / GW_CKPT_SHARE));
}

/* Deals one piece of a part to its replicas. */
static void deal(share_list *out, const gw_piece *p, int64_t local, const int64_t *replicas,
                 int64_t nreplicas, int64_t bytes, int64_t turn) {
    int64_t shares = shares_of(p->count, nreplicas, bytes);
    int64_t from = shares < nreplicas ? turn : 0;
    for (int64_t s = 0; s < shares; s++) {
        int64_t lo = p->count * s / shares, hi = p->count * (s + 1) / shares;
        gw_ckpt_share one = {.piece = {.box = p->box, .first = p->first + lo, .count = hi - lo},
                             .rank = replicas[(from + s) % nreplicas],
                             .local = local + lo};
        gw_vec_push(out, one);
    }
}

/* The ranks of stage `home`, as [parts][replicas]. */
static int64_t *table_of(const gw_mesh *mesh, uint32_t cut, int home, int64_t parts,
                         int64_t replicas) {
    uint32_t pp = gw_mesh_group(mesh, "pp");
    int64_t *table = gw_mem_zalloc(sizeof *table * (size_t)(parts * replicas));
    for (int64_t r = 0; r < gw_mesh_ranks(mesh); r++) {
        if (pp && gw_exec_group_rank(mesh, pp, r) != home) continue;
        table[gw_exec_group_rank(mesh, cut, r) * replicas +
              gw_exec_group_rank(mesh, ~(cut | pp), r)] = r;
    }
    return table;
}

static gw_ckpt_shares make(gw_ckpt_plan *p, const gw_ckpt_item *it, int64_t turn) {
    share_list out = {0};
    gw_arena mem = {0};
    int64_t one = 0, parts = 1, replicas = 1, *table = NULL;
    int64_t bytes = gw_dtype_bits((gw_dtype)it->type->dtype) / 8;
    if (p->mesh) {
        uint32_t cut = gw_type_part_axes(it->type), pp = gw_mesh_group(p->mesh, "pp");
        parts = gw_mesh_size(p->mesh, cut);
        replicas = gw_mesh_size(p->mesh, ~(cut | pp));
        table = table_of(p->mesh, cut, it->home, parts, replicas);
    }
    for (int64_t k = 0; k < parts; k++) {
        const int64_t *owners = table ? table + k * replicas : &one;
        gw_piece *held;
        int64_t local = 0;
        int n = gw_ckpt_held(it->type, p->mesh, owners[0], &mem, &held);
        for (int i = 0; i < n; i++) {
            deal(&out, &held[i], local, owners, replicas, bytes, turn);
            local += held[i].count;
        }
    }
    gw_ckpt_shares s = {.n = (int)out.count, .id = (int)p->lists.count};
    s.items = gw_arena_dup(&p->mem, out.items, out.count * (int64_t)sizeof *out.items);
    gw_vec_release(&out);
    gw_mem_free(table);
    gw_arena_release(&mem);
    return s;
}

/* ---- turns ---- */

/* Tensors whose turns are counted together: their replicas are the same ranks. */
typedef struct loads {
    uint32_t cut;
    int home;
    int64_t replicas, *bytes; /* [replicas] */
} loads;

static loads *loads_of(const gw_ckpt_plan *p, const gw_ckpt_item *it, loads *all, int *n) {
    uint32_t cut = gw_type_part_axes(it->type), pp = gw_mesh_group(p->mesh, "pp");
    for (int i = 0; i < *n; i++)
        if (all[i].cut == cut && all[i].home == it->home) return &all[i];
    loads *l = &all[(*n)++];
    *l = (loads){.cut = cut, .home = it->home, .replicas = gw_mesh_size(p->mesh, ~(cut | pp))};
    l->bytes = gw_mem_zalloc(sizeof *l->bytes * (size_t)l->replicas);
    return l;
}

/* Bytes of the largest part of a tensor, nearly. */
static int64_t part_bytes(const gw_ckpt_plan *p, const gw_ckpt_item *it) {
    int64_t parts = gw_mesh_size(p->mesh, gw_type_part_axes(it->type));
    int64_t elems = (gw_type_elems(it->type) + parts - 1) / parts;
    return elems * gw_dtype_bits((gw_dtype)it->type->dtype) / 8;
}

static int largest_first(const void *a, const void *b, void *sizes) {
    int x = *(const int *)a, y = *(const int *)b;
    const int64_t *s = sizes;
    if (s[x] != s[y]) return s[x] > s[y] ? -1 : 1;
    return x < y ? -1 : x > y;
}

/* The turn of one tensor; what it brings is added to the loads. */
static int take_turn(const gw_ckpt_item *it, int64_t part, loads *l) {
    int64_t each = gw_dtype_bits((gw_dtype)it->type->dtype) / 8, turn = 0;
    int64_t shares = shares_of(part / each, l->replicas, each);
    if (shares >= l->replicas) return 0;
    for (int64_t k = 1; k < GW_MIN(l->replicas, (int64_t)TURNS); k++)
        if (l->bytes[k] < l->bytes[turn]) turn = k;
    for (int64_t s = 0; s < shares; s++) l->bytes[(turn + s) % l->replicas] += part / shares;
    return (int)turn;
}

static void take_turns(gw_ckpt_plan *p) {
    p->turns = gw_arena_new(&p->mem, int, p->n + 1);
    if (!p->mesh || p->n == 0) return;
    loads *all = gw_mem_zalloc(sizeof *all * (size_t)p->n);
    int64_t *sizes = gw_mem_zalloc(sizeof *sizes * (size_t)p->n);
    int *order = gw_mem_zalloc(sizeof *order * (size_t)p->n), n = 0;
    for (int i = 0; i < p->n; i++) {
        order[i] = i;
        sizes[i] = part_bytes(p, &p->items[i]);
    }
    qsort_r(order, (size_t)p->n, sizeof *order, largest_first, sizes);
    for (int i = 0; i < p->n; i++) {
        const gw_ckpt_item *it = &p->items[order[i]];
        p->turns[order[i]] = take_turn(it, sizes[order[i]], loads_of(p, it, all, &n));
    }
    for (int i = 0; i < n; i++) gw_mem_free(all[i].bytes);
    gw_mem_free(all);
    gw_mem_free(sizes);
    gw_mem_free(order);
}

const gw_ckpt_shares *gw_ckpt_plan_of(gw_ckpt_plan *p, int i) {
    GW_ASSERT(i >= 0 && i < p->n);
    if (p->list_of[i] < 0) {
        const gw_ckpt_item *it = &p->items[i];
        int64_t turn = p->turns[i];
        uint32_t at;
        gw_str key = {0};
        gw_str_printf(&key, "%d/%lld ", it->home, (long long)turn);
        gw_type_print(it->type, p->mesh, &key);
        if (!gw_smap_find_c(&p->by_kind, gw_str_c(&key), &at)) {
            at = (uint32_t)p->lists.count;
            gw_ckpt_shares s = make(p, it, turn);
            gw_vec_push(&p->lists, s);
            gw_smap_put_c(&p->by_kind, gw_arena_strdup(&p->mem, gw_str_c(&key)), at);
        }
        gw_str_release(&key);
        p->list_of[i] = (int)at;
    }
    return &p->lists.items[p->list_of[i]];
}

int gw_ckpt_plan_lists(const gw_ckpt_plan *p) { return (int)p->lists.count; }

gw_ckpt_plan *gw_ckpt_plan_new(const gw_ckpt_item *items, int n, const gw_mesh *mesh) {
    gw_ckpt_plan *p = gw_mem_zalloc(sizeof *p);
    p->n = n;
    p->mesh = mesh && mesh->naxes > 0 ? mesh : NULL;
    p->items = gw_arena_dup(&p->mem, items, n * (int64_t)sizeof *items);
    p->list_of = gw_arena_new(&p->mem, int, n + 1);
    for (int i = 0; i < n; i++) p->list_of[i] = -1;
    take_turns(p);
    return p;
}

void gw_ckpt_plan_free(gw_ckpt_plan *p) {
    if (!p) return;
    gw_smap_release(&p->by_kind);
    gw_vec_release(&p->lists);
    gw_arena_release(&p->mem);
    gw_mem_free(p);
}

/* ---- sums ---- */

gw_hash128 gw_ckpt_plan_hash(gw_ckpt_plan *p) {
    gw_hasher *h = gw_hasher_new();
    for (int i = 0; i < p->n; i++) {
        const gw_ckpt_shares *s = gw_ckpt_plan_of(p, i);
        int64_t head[2] = {s->id, s->n};
        gw_hasher_add(h, head, sizeof head);
    }
    for (int64_t k = 0; k < p->lists.count; k++)
        for (int i = 0; i < p->lists.items[k].n; i++) {
            const gw_ckpt_share *s = &p->lists.items[k].items[i];
            int64_t x[4] = {s->rank, s->local, s->piece.first, s->piece.count};
            size_t dims = sizeof(int64_t) * (size_t)s->piece.box.ndim;
            gw_hasher_add(h, x, sizeof x);
            gw_hasher_add(h, s->piece.box.start, dims);
            gw_hasher_add(h, s->piece.box.size, dims);
        }
    gw_hash128 sum = gw_hasher_get(h);
    gw_hasher_free(h);
    return sum;
}

/* Characters of a number and what parts it from the next. */
static int64_t width(int64_t x) {
    int64_t n = 2;
    while (x >= 10) {
        x /= 10;
        n++;
    }
    return n;
}

/* Of "[file,start..,size..,first,count]," */
static int64_t row_bytes(const gw_ckpt_share *s) {
    int64_t n = 2 + width(s->rank) + width(s->piece.first) + width(s->piece.count);
    for (int i = 0; i < s->piece.box.ndim; i++)
        n += width(s->piece.box.start[i]) + width(s->piece.box.size[i]);
    return n;
}

/* The words around the figures of a tensor and of a file. */
enum { TENSOR_WORDS = 50, FILE_WORDS = 100 };

gw_ckpt_size gw_ckpt_plan_size(gw_ckpt_plan *p, gw_arena *a) {
    gw_ckpt_size z = {.smallest = INT64_MAX};
    int64_t ranks = p->mesh ? gw_mesh_ranks(p->mesh) : 1;
    int64_t *bytes = gw_arena_new(a, int64_t, ranks);
    for (int i = 0; i < p->n; i++) {
        const gw_ckpt_shares *s = gw_ckpt_plan_of(p, i);
        const gw_type *t = p->items[i].type;
        int64_t each = gw_dtype_bits((gw_dtype)t->dtype) / 8;
        z.chunks += s->n;
        for (int k = 0; k < s->n; k++) bytes[s->items[k].rank] += s->items[k].piece.count * each;
        z.manifest_bytes +=
            TENSOR_WORDS + (p->items[i].name ? (int64_t)strlen(p->items[i].name) : 0);
        for (int d = 0; d < t->ndim; d++) z.manifest_bytes += width(t->dims[d].size);
    }
    for (int64_t k = 0; k < p->lists.count; k++)
        for (int i = 0; i < p->lists.items[k].n; i++)
            z.manifest_bytes += row_bytes(&p->lists.items[k].items[i]);
    for (int64_t r = 0; r < ranks; r++) {
        z.bytes += bytes[r];
        z.files += bytes[r] > 0;
        if (bytes[r] > z.largest) z.largest = bytes[r], z.largest_rank = r;
        if (bytes[r] < z.smallest) z.smallest = bytes[r], z.smallest_rank = r;
    }
    z.manifest_bytes += z.files * FILE_WORDS;
    return z;
}
