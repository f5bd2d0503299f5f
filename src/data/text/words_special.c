// SPDX-License-Identifier: Apache-2.0
// Joining what the rules cut apart: special cases found in a row of tokens.
//
// spaCy's second look at special cases matches rows of tokens, single spaces between them ignored.
// Of matches that overlap, the longest in tokens wins, then the first; one that loses still keeps
// shorter ones from its tokens, and so does one that stands apart only because of a space, which
// then changes nothing. Exactly that is done here, starting from the tokens that were noted as
// possible beginnings while cutting.
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"           /* gw_mem_realloc */
#include "base/map.h"             /* gw_vec_push */
#include "data/text/words_impl.h" /* gw_words_inner */

/* Whether the tokens from i on are those of p. */
static bool matches(const gw_words_inner *w, const words_pattern *p, const char *text, int64_t i,
                    bool *exact) {
    if (w->count - i < p->ntokens) return false;
    *exact = true;
    const uint8_t *at = p->token + p->ntokens;
    for (int k = 0; k < p->ntokens; k++) {
        gw_word t = w->items[i + k];
        if (t.bytes != p->token[k] || memcmp(text + t.offset, p->special->text + at[k], t.bytes))
            return false;
        if (k == 0) continue;
        gw_word before = w->items[i + k - 1];
        uint32_t gap = t.offset - before.offset - before.bytes;
        if (gap > 1 || (gap == 1 && text[t.offset - 1] != ' ')) return false;
        if (gap != (uint32_t)(at[k] - at[k - 1] - p->token[k - 1])) *exact = false;
    }
    return true;
}

static void find_at(gw_words_inner *w, const words_rules *r, const char *text, int64_t i) {
    gw_word t = w->items[i];
    const words_entry *e = words_rules_find(r, text + t.offset, t.bytes);
    if (i + 1 < w->count && !e->alone) {
        uint8_t next = (uint8_t)text[w->items[i + 1].offset];
        bool possible = e->second[next >> 6] >> (next & 63) & 1;
        if (!possible) return;
    }
    for (int p = e->patterns; p >= 0; p = r->patterns[p].next) {
        const words_pattern *pat = &r->patterns[p];
        bool exact;
        if (matches(w, pat, text, i, &exact))
            gw_vec_push(&w->matches, ((words_match){i, i + pat->ntokens, pat->special, exact}));
    }
}

static int longest_first(const void *a, const void *b) {
    const words_match *x = a, *y = b;
    int64_t nx = x->end - x->first, ny = y->end - y->first;
    if (nx != ny) return nx > ny ? -1 : 1;
    return x->first < y->first ? -1 : x->first > y->first;
}
static int first_first(const void *a, const void *b) {
    const words_match *x = a, *y = b;
    return x->first < y->first ? -1 : x->first > y->first;
}

/* Keeps the matches that win. */
static void choose(gw_words_inner *w) {
    qsort(w->matches.items, (size_t)w->matches.count, sizeof(words_match), longest_first);
    if (w->seen_cap < w->count) {
        w->seen_cap = w->cap;
        w->seen = gw_mem_realloc(w->seen, (size_t)w->seen_cap);
    }
    memset(w->seen, 0, (size_t)w->count);
    int64_t kept = 0;
    for (int64_t i = 0; i < w->matches.count; i++) {
        words_match m = w->matches.items[i];
        bool free = !w->seen[m.first] && !w->seen[m.end - 1];
        memset(w->seen + m.first, 1, (size_t)(m.end - m.first));
        if (free && m.exact) w->matches.items[kept++] = m;
    }
    w->matches.count = kept;
    qsort(w->matches.items, (size_t)kept, sizeof(words_match), first_first);
}

void words_rejoin(gw_words_inner *w, const words_rules *r, const char *text) {
    w->matches.count = 0;
    for (int64_t i = 0; i < w->starts.count; i++) find_at(w, r, text, w->starts.items[i]);
    if (!w->matches.count) return;
    choose(w);
    if (!w->matches.count) return;
    /* Parts are seldom more than the tokens they replace, but may be. */
    int64_t was = w->count, more = 0;
    for (int64_t i = 0; i < w->matches.count; i++) more += w->matches.items[i].special->nparts;
    while (w->cap < was + more) words_grow(w);
    memcpy(w->spare, w->items, (size_t)was * sizeof *w->items);
    int64_t from = 0, out = 0;
    for (int64_t i = 0; i <= w->matches.count; i++) {
        const words_match *m = i < w->matches.count ? &w->matches.items[i] : NULL;
        int64_t upto = m ? m->first : was;
        memcpy(w->items + out, w->spare + from, (size_t)(upto - from) * sizeof *w->items);
        out += upto - from;
        if (!m) break;
        uint32_t at = w->spare[m->first].offset;
        for (int k = 0; k < m->special->nparts; k++) {
            w->items[out++] = (gw_word){at, m->special->part[k]};
            at += m->special->part[k];
        }
        from = m->end;
    }
    w->count = out;
}
