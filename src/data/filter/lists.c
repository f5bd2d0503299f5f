// SPDX-License-Identifier: Apache-2.0
// Lists of words and domains, looked up whole or as parts of a text.
//
// Lists come from files of the user: one entry a line, "#" for comments. Whole entries are looked
// up in a hash map. Entries as parts of a text are found by an Aho-Corasick automaton, which takes
// one step a byte however many entries there are; its nodes keep sorted edges in one array, found
// by bisection, apart from the root, which has a table.
#include <stdlib.h>
#include <string.h>

#include "base/io.h"                 /* gw_file_read */
#include "data/filter/filter_impl.h" /* filter_set, filter_automaton */

void filter_set_release(filter_set *s) {
    gw_smap_release(&s->map);
    gw_vec_release(&s->items);
    gw_arena_release(&s->arena);
}

void filter_set_add(filter_set *s, const char *p, int64_t n) {
    uint32_t there;
    if (n <= 0 || gw_smap_find(&s->map, p, (size_t)n, &there)) return;
    const char *text = gw_arena_strndup(&s->arena, p, (size_t)n);
    gw_smap_put(&s->map, text, (size_t)n, 1);
    gw_vec_push(&s->items, ((gw_line){text, n}));
    s->bytes += n;
    if (n > s->longest) s->longest = n;
}

bool filter_set_has(const filter_set *s, const char *p, int64_t n) {
    uint32_t there;
    return n > 0 && n <= s->longest && gw_smap_find(&s->map, p, (size_t)n, &there);
}

void filter_set_add_list(filter_set *s, const char *list) {
    while (*list) {
        const char *comma = strchrnul(list, ',');
        gw_line l = gw_line_strip((gw_line){list, comma - list});
        filter_set_add(s, l.text, l.bytes);
        list = comma + (*comma == ',');
    }
}

enum { LIST_MAX_BYTES = 1 << 30 };

gw_status filter_set_add_file(filter_set *s, const char *path, int64_t (*change)(char *, int64_t),
                              gw_diags *dg) {
    if (!*path) return GW_OK;
    gw_str all = {0};
    gw_status status = gw_file_read(path, LIST_MAX_BYTES, &all, dg);
    if (status == GW_OK && all.len) {
        gw_line line;
        for (gw_lines it = gw_lines_of(all.data, (int64_t)all.len, GW_LINES_NEWLINE);
             gw_lines_next(&it, &line);) {
            if (gw_line_begins(line, "#")) continue;
            line = gw_line_strip(line);
            char *text = all.data + (line.text - all.data);
            filter_set_add(s, text, change ? change(text, line.bytes) : line.bytes);
        }
    }
    gw_str_release(&all);
    return status;
}

typedef struct node {
    int32_t edges, nedges; /* range of `edges` */
    int32_t fail;          /* the longest proper suffix that is a node */
    int32_t out; /* the nearest node on the fail path, or this one, where a word ends; 0 */
    int32_t depth;
    bool ends;
} node;
typedef struct edge {
    uint8_t byte;
    int32_t to;
} edge;

struct filter_automaton {
    node *nodes;
    edge *edges;
    int32_t nnodes, root[256];
};

static int by_bytes(const void *a, const void *b) {
    const gw_line *x = a, *y = b;
    int64_t n = x->bytes < y->bytes ? x->bytes : y->bytes;
    int c = memcmp(x->text, y->text, (size_t)n);
    return c ? c : x->bytes < y->bytes ? -1 : x->bytes > y->bytes;
}

typedef struct queued {
    int64_t from, to; /* words that begin with this node's text */
    int32_t node;
} queued;

/* Nodes breadth first: the children of each are a run of the sorted words. */
static void build(filter_automaton *a, const gw_line *words, int64_t n, int64_t bytes) {
    a->nodes = gw_mem_zalloc((size_t)(bytes + 1) * sizeof *a->nodes);
    a->edges = gw_mem_zalloc((size_t)(bytes + 1) * sizeof *a->edges);
    queued *queue = gw_mem_alloc((size_t)(bytes + 1) * sizeof *queue);
    int32_t head = 0, tail = 0, nedges = 0;
    a->nnodes = 1;
    queue[tail++] = (queued){0, n, 0};
    while (head < tail) {
        queued q = queue[head++];
        node *me = &a->nodes[q.node];
        me->edges = nedges;
        int64_t i = q.from;
        while (i < q.to && words[i].bytes == me->depth) {
            me->ends = true;
            i++;
        }
        while (i < q.to) {
            uint8_t byte = (uint8_t)words[i].text[me->depth];
            int64_t end = i + 1;
            while (end < q.to && (uint8_t)words[end].text[me->depth] == byte) end++;
            int32_t child = a->nnodes++;
            a->nodes[child].depth = me->depth + 1;
            a->edges[nedges++] = (edge){byte, child};
            me->nedges++;
            queue[tail++] = (queued){i, end, child};
            i = end;
        }
    }
    gw_mem_free(queue);
}

static int32_t child_of(const filter_automaton *a, int32_t n, uint8_t byte) {
    const edge *e = a->edges + a->nodes[n].edges;
    int32_t lo = 0, hi = a->nodes[n].nedges;
    while (lo < hi) {
        int32_t mid = (lo + hi) / 2;
        if (e[mid].byte < byte)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo < a->nodes[n].nedges && e[lo].byte == byte ? e[lo].to : 0;
}

static int32_t step(const filter_automaton *a, int32_t n, uint8_t byte) {
    while (n) {
        int32_t to = child_of(a, n, byte);
        if (to) return to;
        n = a->nodes[n].fail;
    }
    return a->root[byte];
}

/* Nodes are numbered breadth first, so a shorter suffix is always done already. */
static void link_fails(filter_automaton *a) {
    for (int32_t i = 0; i < a->nodes[0].nedges; i++) a->root[a->edges[i].byte] = a->edges[i].to;
    for (int32_t n = 0; n < a->nnodes; n++) {
        node *me = &a->nodes[n];
        me->out = me->ends ? n : a->nodes[me->fail].out;
        for (int32_t i = 0; n && i < me->nedges; i++) {
            edge e = a->edges[me->edges + i];
            a->nodes[e.to].fail = step(a, me->fail, e.byte);
        }
    }
}

filter_automaton *filter_automaton_new(const filter_set *s) {
    filter_automaton *a = gw_mem_zalloc(sizeof *a);
    size_t n = (size_t)s->items.count;
    gw_line *words = gw_mem_alloc((n + 1) * sizeof *words);
    if (n) memcpy(words, s->items.items, n * sizeof *words);
    qsort(words, n, sizeof *words, by_bytes);
    build(a, words, s->items.count, s->bytes);
    link_fails(a);
    gw_mem_free(words);
    return a;
}

void filter_automaton_free(filter_automaton *a) {
    if (!a) return;
    gw_mem_free(a->nodes);
    gw_mem_free(a->edges);
    gw_mem_free(a);
}

bool filter_automaton_finds(const filter_automaton *a, const char *p, int64_t n) {
    int32_t at = 0;
    for (int64_t i = 0; i < n; i++) {
        at = step(a, at, (uint8_t)p[i]);
        if (a->nodes[at].out) return true;
    }
    return false;
}

bool filter_automaton_any(const filter_automaton *a, const char *p, int64_t n,
                          bool (*accept)(const char *text, int64_t n, int64_t from, int64_t to)) {
    int32_t at = 0;
    for (int64_t i = 0; i < n; i++) {
        at = step(a, at, (uint8_t)p[i]);
        for (int32_t o = a->nodes[at].out; o; o = a->nodes[a->nodes[o].fail].out)
            if (accept(p, n, i + 1 - a->nodes[o].depth, i + 1)) return true;
    }
    return false;
}

bool filter_is_stop_word(bool any_case, const char *p, int64_t n) {
    static const char *const words[] = {"the", "be", "to", "of", "and", "that", "have", "with"};
    for (int i = 0; i < FILTER_COUNT(words); i++) {
        if ((int64_t)strlen(words[i]) != n) continue;
        if (any_case ? !strncasecmp(words[i], p, (size_t)n) : !memcmp(words[i], p, (size_t)n))
            return true;
    }
    return false;
}
