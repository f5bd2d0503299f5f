// SPDX-License-Identifier: Apache-2.0
// What the ranks of a run settle among themselves.
//
// All ranks read the same run file and compile the same program, or, of a pipeline, those of one
// stage the same. Where they do not (another version of the program on one host, a file that was
// edited meanwhile, another instruction set) the first difference would show as wrong numbers hours
// later. So both texts are compared before the first step: by hash, and only on a difference by
// their lines.
//
// A tensor that lies in parts is gathered in pieces, so that no rank needs more memory than the
// tensor (where it is wanted) and a few hundred kilobytes. Where each element belongs every rank
// knows by itself, from the type and the number of the rank that sent it. Of the ranks that hold
// the same elements the first is believed, the others' are dropped.
#include "train/ranks.h"

#include <string.h>

#include "base/arena.h"    /* gw_mem_alloc */
#include "base/hash.h"     /* gw_hash128_of */
#include "base/panic.h"    /* GW_ASSERT */
#include "base/str.h"      /* gw_str */
#include "run/exec_comm.h" /* gw_exec_group_rank */
#include "train/weights.h" /* gw_floats_from */

enum { LINE = 400, PIECES_BYTES = 16 << 20, PIECE_MOST = 1 << 20, PIECE_LEAST = 64 << 10 };

int gw_ranks_me(const gw_comm *c) { return c ? gw_comm_rank(c) : 0; }
int gw_ranks_count(const gw_comm *c) { return c ? gw_comm_size(c) : 1; }

/* ---- texts ---- */

typedef struct difference {
    int32_t line; /* from 1; 0 = the texts are equal */
    char mine[LINE], first[LINE];
} difference;

static size_t line_length(const char *s) { return strcspn(s, "\n"); }

static void copy_line(char out[LINE], const char *s) {
    size_t n = GW_MIN(line_length(s), (size_t)LINE - 1);
    memcpy(out, s, n);
    out[n] = 0;
}

static difference compare(const char *mine, const char *first) {
    difference d = {0};
    if (strcmp(mine, first) == 0) return d;
    d.line = 1;
    for (;;) {
        size_t n = line_length(mine), m = line_length(first);
        if (n != m || memcmp(mine, first, n) != 0 || !mine[n] || !first[m]) break;
        mine += n + 1;
        first += m + 1;
        d.line++;
    }
    copy_line(d.mine, mine);
    copy_line(d.first, first);
    return d;
}

gw_status gw_ranks_hear(gw_comm *c, const void *mine, int64_t n, int from, char **out,
                        int64_t *length, const char *what, gw_diags *dg) {
    enum { PIECE = 16 << 10 };
    int64_t size = gw_comm_size(c), most = 0;
    int64_t *lengths = gw_mem_zalloc(sizeof *lengths * (size_t)size);
    char *all = gw_mem_alloc((size_t)size * PIECE), *one = gw_mem_zalloc(PIECE);
    gw_status st = gw_comm_all_gather(c, &n, sizeof n, lengths, what, dg);
    for (int64_t r = 0; r < size; r++) most = GW_MAX(most, lengths[r]);
    *length = from >= 0 ? lengths[from] : 0;
    *out = gw_mem_zalloc((size_t)*length + 1);
    for (int64_t at = 0; st == GW_OK && at < most; at += PIECE) {
        int64_t part = GW_MIN((int64_t)PIECE, n - at), kept = GW_MIN((int64_t)PIECE, *length - at);
        if (part > 0) memcpy(one, (const char *)mine + at, (size_t)part);
        st = gw_comm_all_gather(c, one, PIECE, all, what, dg);
        if (kept > 0) memcpy(*out + at, all + (int64_t)from * PIECE, (size_t)kept);
    }
    gw_mem_free(one);
    gw_mem_free(all);
    gw_mem_free(lengths);
    return st;
}

typedef struct told {
    int64_t group;
    gw_hash128 hash;
} told;

/* The first rank of a rank's group. */
static int leader_of(const told *all, int rank) {
    int r = 0;
    while (all[r].group != all[rank].group) r++;
    return r;
}

static gw_status refuse(const gw_comm *c, const char *what, const told *groups,
                        const difference *all, gw_diags *dg) {
    int other = -1, count = 0;
    for (int r = gw_comm_size(c) - 1; r >= 0; r--)
        if (all[r].line > 0) other = r;
    if (gw_comm_rank(c) != 0 || other < 0) return GW_ERR_CONFIG;
    int first = leader_of(groups, other), size = 0;
    for (int r = 0; r < gw_comm_size(c); r++) {
        if (leader_of(groups, r) != first) continue;
        count += all[r].line > 0;
        size++;
    }
    gw_diag *g = gw_diag_add(dg, GW_ERROR, GW_ERR_CONFIG, "ranks-differ", (gw_where){0},
                             "rank %d has another %s than rank %d (%d of %d ranks differ from it)",
                             other, what, first, count, size);
    gw_diag_detail(dg, g, "first in line %d:\n      rank %d: %s\n      rank %d: %s",
                   (int)all[other].line, first, all[other].first, other, all[other].mine);
    gw_diag_hint(dg, g,
                 "start every rank from one run file and one version of the program, on "
                 "machines of one kind");
    return GW_ERR_CONFIG;
}

static gw_status find_difference(gw_comm *c, const char *what, const told *groups, const char *text,
                                 gw_diags *dg) {
    char *first = NULL;
    int64_t n = 0;
    difference *all = gw_mem_zalloc(sizeof *all * (size_t)gw_comm_size(c));
    gw_status st = gw_ranks_hear(c, text, (int64_t)strlen(text), leader_of(groups, gw_comm_rank(c)),
                                 &first, &n, what, dg);
    difference mine = compare(text, first);
    if (st == GW_OK) st = gw_comm_all_gather(c, &mine, sizeof mine, all, what, dg);
    if (st == GW_OK) {
        st = refuse(c, what, groups, all, dg);
        /* A rank that leaves now would cut rank 0 short before it has its line. What becomes of the
         * barrier itself is no matter. */
        (void)!gw_comm_barrier(c, what, NULL);
    }
    gw_mem_free(all);
    gw_mem_free(first);
    return st;
}

gw_status gw_ranks_same_text_of(gw_comm *c, int64_t group, const char *what, const char *text,
                                gw_diags *dg) {
    if (!c) return GW_OK;
    told mine = {.group = group, .hash = gw_hash128_of(text, strlen(text))};
    told *all = gw_mem_zalloc(sizeof *all * (size_t)gw_comm_size(c));
    gw_status st = gw_comm_all_gather(c, &mine, sizeof mine, all, what, dg);
    bool differ = false;
    for (int r = 0; st == GW_OK && r < gw_comm_size(c); r++) {
        const told *first = &all[leader_of(all, r)];
        differ = differ || first->hash.lo != all[r].hash.lo || first->hash.hi != all[r].hash.hi;
    }
    if (differ) st = find_difference(c, what, all, text, dg);
    gw_mem_free(all);
    return st;
}

gw_status gw_ranks_same_text(gw_comm *c, const char *what, const char *text, gw_diags *dg) {
    return gw_ranks_same_text_of(c, 0, what, text, dg);
}

/* ---- what lies where ---- */

static bool is_listed(const gw_graph *g, const gw_value *v) {
    if (v->def != GW_NONE) return gw_graph_str(g, v->name)[0] != 0;
    return v->role == GW_ROLE_PARAM || v->role == GW_ROLE_STATE;
}

static void list_own(const gw_graph *g, int home, gw_arena *a, gw_ranks_table *t) {
    t->items = gw_arena_new(a, gw_ranks_entry, g->values.count + 1);
    for (int64_t v = 0; v < g->values.count; v++) {
        const gw_value *x = &g->values.items[v];
        if (!is_listed(g, x)) continue;
        t->items[t->n++] = (gw_ranks_entry){.name = gw_arena_strdup(a, gw_graph_str(g, x->name)),
                                            .type = x->type,
                                            .value = (gw_vid)v,
                                            .home = home,
                                            .leaf = x->def == GW_NONE};
    }
}

/* As bytes: type, kind, name and its zero, one after another. */
static void pack(const gw_ranks_table *t, gw_str *out) {
    for (int i = 0; i < t->n; i++) {
        const gw_ranks_entry *e = &t->items[i];
        gw_str_add_n(out, (const char *)&e->type, sizeof e->type);
        gw_str_add_char(out, e->leaf ? 'l' : 'r');
        gw_str_add_n(out, e->name, strlen(e->name) + 1);
    }
}

/* Those of another rank's bytes that are not in the list yet. */
static void merge(gw_ranks_table *t, const char *bytes, int64_t n, int home,
                  const gw_ranks_table *own, gw_arena *a) {
    int64_t count = 0;
    for (const char *at = bytes; at < bytes + n; count++)
        at += sizeof(gw_type) + 1 + strlen(at + sizeof(gw_type) + 1) + 1;
    gw_ranks_entry *items = gw_arena_new(a, gw_ranks_entry, t->n + count + 1);
    if (t->n > 0) memcpy(items, t->items, sizeof *items * (size_t)t->n);
    t->items = items;
    for (const char *at = bytes; at < bytes + n;) {
        gw_ranks_entry e = {.home = home, .value = GW_NONE};
        memcpy(&e.type, at, sizeof e.type);
        at += sizeof e.type;
        e.leaf = *at++ == 'l';
        const char *name = at;
        at += strlen(name) + 1;
        if (gw_ranks_find(t, name)) continue;
        const gw_ranks_entry *here = gw_ranks_find(own, name);
        if (here) e.value = here->value;
        e.name = gw_arena_strdup(a, name);
        t->items[t->n++] = e;
    }
}

gw_status gw_ranks_list(gw_comm *c, const gw_graph *g, gw_arena *a, gw_ranks_table *out,
                        gw_diags *dg) {
    uint32_t pp = gw_mesh_group(&g->mesh, "pp");
    *out = (gw_ranks_table){.mesh = &g->mesh, .stages = (int)gw_mesh_size(&g->mesh, pp)};
    gw_ranks_table own = {0};
    list_own(g, 0, a, &own);
    if (!c || out->stages == 1) {
        out->items = own.items;
        out->n = own.n;
        return GW_OK;
    }
    int each = gw_comm_size(c) / out->stages; /* pp is the most major */
    gw_str mine = {0};
    pack(&own, &mine);
    gw_status st = GW_OK;
    for (int k = 0; st == GW_OK && k < out->stages; k++) {
        char *bytes = NULL;
        int64_t n = 0;
        bool speaks = gw_comm_rank(c) == k * each;
        st = gw_ranks_hear(c, gw_str_c(&mine), speaks ? (int64_t)mine.len : 0, k * each, &bytes, &n,
                           "what the stages hold", dg);
        if (st == GW_OK) merge(out, bytes, n, k, &own, a);
        gw_mem_free(bytes);
    }
    gw_str_release(&mine);
    return st;
}

const gw_ranks_entry *gw_ranks_find(const gw_ranks_table *t, const char *name) {
    for (int i = 0; i < t->n; i++)
        if (strcmp(t->items[i].name, name) == 0) return &t->items[i];
    return NULL;
}

/* ---- tensors ---- */

bool gw_ranks_have_parts(const gw_type *t) { return t->flat || gw_type_cut_axes(t) != 0; }

int64_t gw_ranks_part(const gw_type *t, const gw_mesh *mesh, int64_t rank) {
    return gw_exec_group_rank(mesh, gw_type_part_axes(t), rank);
}

/* Is the rank's coordinate 0 on all sub-axes but those of the mask? */
bool gw_ranks_counts(const gw_mesh *mesh, uint32_t over, int64_t rank) {
    return gw_exec_group_rank(mesh, ~over, rank) == 0;
}

bool gw_ranks_counts_from(const gw_mesh *mesh, uint32_t over, int home, int64_t rank) {
    uint32_t pp = gw_mesh_group(mesh, "pp");
    return gw_exec_group_rank(mesh, ~(over | pp), rank) == 0 &&
           gw_exec_group_rank(mesh, pp, rank) == home;
}

bool gw_ranks_owns(const gw_type *t, const gw_mesh *mesh, int64_t rank) {
    return gw_ranks_counts(mesh, gw_type_part_axes(t), rank);
}

/* What becomes of the elements of one rank's piece: put in their places, or added there. */
typedef struct taker {
    const gw_type *t;
    const gw_mesh *mesh;
    char *whole;   /* or */
    float *sum;    /* ... */
    uint32_t from; /* ranks that are first on all but these sub-axes are asked */
    int home;      /* ... with this coordinate on pp */
    int64_t rank, bytes;
} taker;

static void take_run(const taker *k, int64_t global, int64_t count, const char *from) {
    if (k->whole) memcpy(k->whole + global * k->bytes, from, (size_t)(count * k->bytes));
    float some[256];
    for (int64_t at = 0, n; k->sum && at < count; at += n) {
        n = GW_MIN(count - at, (int64_t)GW_COUNT(some));
        gw_floats_from((gw_dtype)k->t->dtype, from + at * k->bytes, n, some);
        for (int64_t i = 0; i < n; i++) k->sum[global + at + i] += some[i];
    }
}

/* Elements at .. at + piece of what a rank holds. */
static void take_piece(const taker *k, int64_t at, int64_t piece, const char *from) {
    gw_held w;
    int64_t global, local, count;
    if (!gw_ranks_counts_from(k->mesh, k->from, k->home, k->rank)) return;
    gw_held_begin(&w, k->t, k->mesh, k->rank);
    w.at = w.lo + at;
    w.hi = GW_MIN(w.hi, w.at + piece);
    while (gw_held_next(&w, &global, &local, &count))
        take_run(k, global, count, from + (local - at) * k->bytes);
}

static int64_t most_elems(const gw_type *t, const gw_mesh *mesh, int64_t ranks) {
    int64_t most = 0;
    for (int64_t r = 0; r < ranks; r++) most = GW_MAX(most, gw_type_local_elems(t, mesh, r));
    return most;
}

static gw_status collect(gw_comm *c, taker *k, const void *mine, const char *what, gw_diags *dg) {
    GW_ASSERT(gw_mesh_ranks(k->mesh) == gw_comm_size(c));
    int64_t size = gw_comm_size(c);
    int64_t most = most_elems(k->t, k->mesh, size);
    bool asked = gw_ranks_counts_from(k->mesh, k->from, k->home, gw_comm_rank(c));
    int64_t have = asked ? gw_type_local_elems(k->t, k->mesh, gw_comm_rank(c)) : 0;
    int64_t piece_bytes =
        GW_MIN(GW_MAX((int64_t)PIECE_LEAST, PIECES_BYTES / size), (int64_t)PIECE_MOST);
    int64_t piece = GW_MAX(INT64_C(1), GW_MIN(piece_bytes / k->bytes, most));
    char *out = gw_mem_alloc((size_t)(size * piece * k->bytes));
    char *one = gw_mem_zalloc((size_t)(piece * k->bytes));
    gw_status st = GW_OK;
    for (int64_t at = 0; st == GW_OK && at < most; at += piece) {
        int64_t n = GW_MIN(piece, have - at);
        if (n > 0) memcpy(one, (const char *)mine + at * k->bytes, (size_t)(n * k->bytes));
        st = gw_comm_all_gather(c, one, piece * k->bytes, out, what, dg);
        for (k->rank = 0; st == GW_OK && (k->whole || k->sum) && k->rank < size; k->rank++)
            take_piece(k, at, piece, out + k->rank * piece * k->bytes);
    }
    gw_mem_free(one);
    gw_mem_free(out);
    return st;
}

gw_status gw_ranks_gather(gw_comm *c, const gw_type *t, const gw_mesh *mesh, const void *mine,
                          void *whole, const char *what, gw_diags *dg) {
    return gw_ranks_gather_from(c, t, mesh, 0, mine, whole, what, dg);
}

gw_status gw_ranks_gather_from(gw_comm *c, const gw_type *t, const gw_mesh *mesh, int home,
                               const void *mine, void *whole, const char *what, gw_diags *dg) {
    taker k = {.t = t,
               .mesh = mesh,
               .whole = whole,
               .from = gw_type_part_axes(t),
               .home = home,
               .bytes = gw_dtype_bits((gw_dtype)t->dtype) / 8};
    return collect(c, &k, mine, what, dg);
}

static taker taker_of(const gw_ranks_want *w, const gw_mesh *mesh) {
    return (taker){.t = w->type,
                   .mesh = mesh,
                   .whole = w->whole,
                   .from = gw_type_part_axes(w->type),
                   .home = w->home,
                   .bytes = gw_dtype_bits((gw_dtype)w->type->dtype) / 8};
}

/* What a rank has to give of it. */
static int64_t bytes_asked(const taker *k, int64_t rank) {
    bool asked = gw_ranks_counts_from(k->mesh, k->from, k->home, rank);
    return asked ? gw_type_local_elems(k->t, k->mesh, rank) * k->bytes : 0;
}

/* The parts stand one behind another in what each rank sends; `room[i]`: of the largest. */
static gw_status gather_together(gw_comm *c, const gw_mesh *mesh, const gw_ranks_want *w, int n,
                                 const int64_t *room, int64_t each, const char *what,
                                 gw_diags *dg) {
    int64_t size = gw_comm_size(c), at = 0;
    char *out = gw_mem_zalloc((size_t)(size * each) + 1), *one = gw_mem_zalloc((size_t)each + 1);
    for (int i = 0; i < n; at += room[i++]) {
        taker k = taker_of(&w[i], mesh);
        int64_t have = bytes_asked(&k, gw_comm_rank(c));
        if (have > 0) memcpy(one + at, w[i].mine, (size_t)have);
    }
    gw_status st = gw_comm_all_gather(c, one, each, out, what, dg);
    at = 0;
    for (int i = 0; st == GW_OK && i < n; at += room[i++]) {
        taker k = taker_of(&w[i], mesh);
        for (k.rank = 0; k.whole && k.rank < size; k.rank++)
            take_piece(&k, 0, INT64_MAX / 2, out + k.rank * each + at);
    }
    gw_mem_free(one);
    gw_mem_free(out);
    return st;
}

gw_status gw_ranks_gather_some(gw_comm *c, const gw_mesh *mesh, const gw_ranks_want *w, int n,
                               const char *what, gw_diags *dg) {
    GW_ASSERT(gw_mesh_ranks(mesh) == gw_comm_size(c));
    int64_t *room = gw_mem_zalloc(sizeof *room * ((size_t)n + 1)), size = gw_comm_size(c);
    gw_status st = GW_OK;
    for (int i = 0, end; st == GW_OK && i < n; i = end) {
        int64_t each = 0;
        for (end = i; end < n; end++) {
            taker k = taker_of(&w[end], mesh);
            room[end] = 0;
            for (int64_t r = 0; r < size; r++) room[end] = GW_MAX(room[end], bytes_asked(&k, r));
            room[end] = (room[end] + 15) / 16 * 16;
            if (end > i && (each + room[end]) * size > PIECES_BYTES) break;
            each += room[end];
        }
        if (end == i + 1) /* in pieces, if it is large */
            st = gw_ranks_gather_from(c, w[i].type, mesh, w[i].home, w[i].mine, w[i].whole, what,
                                      dg);
        else
            st = gather_together(c, mesh, w + i, end - i, room + i, each, what, dg);
    }
    gw_mem_free(room);
    return st;
}

gw_status gw_ranks_add_up(gw_comm *c, const gw_type *t, const gw_mesh *mesh, uint32_t over,
                          const void *mine, float *sum, const char *what, gw_diags *dg) {
    return gw_ranks_add_up_from(c, t, mesh, over, 0, mine, sum, what, dg);
}

gw_status gw_ranks_add_up_from(gw_comm *c, const gw_type *t, const gw_mesh *mesh, uint32_t over,
                               int home, const void *mine, float *sum, const char *what,
                               gw_diags *dg) {
    taker k = {.t = t,
               .mesh = mesh,
               .sum = sum,
               .from = gw_type_part_axes(t) | over,
               .home = home,
               .bytes = gw_dtype_bits((gw_dtype)t->dtype) / 8};
    if (sum) memset(sum, 0, (size_t)gw_type_elems(t) * sizeof *sum);
    return collect(c, &k, mine, what, dg);
}

/* ---- sums ---- */

gw_status gw_ranks_add_f64(gw_comm *c, double *x, int64_t n, const char *what, gw_diags *dg) {
    enum { MOST = 64 };
    for (int64_t at = 0; c && at < n; at += MOST)
        GW_TRY(gw_comm_sum_f64(c, x + at, (int)GW_MIN(n - at, (int64_t)MOST), what, dg));
    return GW_OK;
}

gw_status gw_ranks_sum_partial(gw_comm *c, const gw_type *t, const gw_mesh *mesh, double *value,
                               const char *what, gw_diags *dg) {
    if (!c || t->psum == 0) return GW_OK;
    if (!gw_ranks_counts(mesh, t->psum, gw_comm_rank(c))) *value = 0;
    return gw_comm_sum_f64(c, value, 1, what, dg);
}

gw_status gw_ranks_sum_results(gw_comm *c, const gw_ranks_table *t, const gw_ranks_entry *const *e,
                               int n, double *values, const char *what, gw_diags *dg) {
    bool partial = t->stages > 1;
    double sums[64];
    GW_ASSERT(n <= (int)GW_COUNT(sums));
    for (int i = 0; i < n; i++) partial = partial || (e[i] && e[i]->type.psum != 0);
    if (!c || !partial) return GW_OK;
    for (int i = 0; i < n; i++) {
        bool has =
            e[i] && gw_ranks_counts_from(t->mesh, e[i]->type.psum, e[i]->home, gw_comm_rank(c));
        sums[i] = has ? values[i] : 0;
    }
    GW_TRY(gw_comm_sum_f64(c, sums, n, what, dg));
    for (int i = 0; i < n; i++)
        if (e[i]) values[i] = sums[i];
    return GW_OK;
}
