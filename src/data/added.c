// SPDX-License-Identifier: Apache-2.0
// Added tokens: strings that are found in a text before anything else splits it.
//
// At each position the longest added token that begins there wins, positions from left to right, as
// with a leftmost-longest automaton. A match may then be refused (a special token while specials
// are plain text, a single_word token inside a word); what it covered is passed over all the same,
// which is what Hugging Face tokenizers does. lstrip and rstrip widen a match over the white space
// beside it.
#include <string.h>

#include "base/arena.h"          /* gw_mem_realloc */
#include "data/tokenizer_impl.h" /* gw_trie */
#include "data/unicode.h"        /* gw_uni_class */
#include "data/unicode_new.h"    /* GW_UNI_DEFAULT */

static uint32_t new_node(gw_trie *t, uint8_t byte) {
    if (t->count == t->cap) {
        t->cap = t->cap ? 2 * t->cap : 64;
        t->nodes = gw_mem_realloc(t->nodes, t->cap * sizeof *t->nodes);
    }
    t->nodes[t->count] = (gw_trie_node){.id = -1, .byte = byte};
    return t->count++;
}

static uint32_t child_of(const gw_trie *t, uint32_t node, uint8_t byte) {
    uint32_t c = t->nodes[node].child;
    while (c && t->nodes[c].byte != byte) c = t->nodes[c].sibling;
    return c;
}

void gw_trie_add(gw_trie *t, const uint8_t *text, size_t n, int32_t id) {
    if (n == 0) return;
    if (t->count == 0) new_node(t, 0);
    t->nfirst += !t->first[text[0]];
    t->first[text[0]] = true;
    t->only = text[0];
    uint32_t node = 0;
    for (size_t i = 0; i < n; i++) {
        uint32_t c = child_of(t, node, text[i]);
        if (!c) {
            c = new_node(t, text[i]);
            t->nodes[c].sibling = t->nodes[node].child;
            t->nodes[node].child = c;
        }
        node = c;
    }
    t->nodes[node].id = id;
}

int32_t gw_trie_longest(const gw_trie *t, const uint8_t *text, size_t n, size_t *len) {
    int32_t best = -1;
    *len = 0;
    if (t->count == 0 || !t->first[text[0]]) return -1;
    uint32_t node = 0;
    for (size_t i = 0; i < n && (node = child_of(t, node, text[i])) != 0; i++)
        if (t->nodes[node].id >= 0) {
            best = t->nodes[node].id;
            *len = i + 1;
        }
    return best;
}

void gw_trie_release(gw_trie *t) {
    gw_mem_free(t->nodes);
    *t = (gw_trie){0};
}

static bool is_word(uint32_t cp) {
    unsigned c = gw_uni_class(cp, GW_UNI_DEFAULT);
    return cp == '_' || (c & (GW_CLASS_LETTER | GW_CLASS_NUMBER | GW_CLASS_UPPER)) != 0;
}

/* The start of the character that ends at `end`. */
static size_t char_start(const uint8_t *text, size_t end) {
    size_t i = end - 1;
    int len;
    while (i > 0 && end - i < 4 && (text[i] & 0xc0) == 0x80) i--;
    gw_utf8_decode(text + i, text + end, &len);
    return i + (size_t)len == end ? i : end - 1;
}

static bool inside_word(const uint8_t *text, size_t n, size_t start, size_t end) {
    int len;
    if (start > 0) {
        size_t i = char_start(text, start);
        if (is_word(gw_utf8_decode(text + i, text + start, &len))) return true;
    }
    return end < n && is_word(gw_utf8_decode(text + end, text + n, &len));
}

/* The next byte from i on that begins a token; n if there is none. */
static size_t next_first(const gw_trie *t, const uint8_t *text, size_t i, size_t n) {
    if (t->nfirst == 1) {
        const uint8_t *hit = memchr(text + i, t->only, n - i);
        return hit ? (size_t)(hit - text) : n;
    }
    while (i < n && !t->first[text[i]]) i++;
    return i;
}

int32_t gw_added_next(const gw_tokenizer *t, const gw_trie *trie, const uint8_t *text, size_t n,
                      size_t from, size_t *pos, bool plain, int64_t *specials, size_t *start,
                      size_t *end) {
    if (trie->count == 0) return -1;
    for (size_t i = *pos, len; (i = next_first(trie, text, i, n)) < n;) {
        int32_t id = gw_trie_longest(trie, text + i, n - i, &len);
        if (id < 0) {
            i++;
            continue;
        }
        size_t a = i, b = i + len;
        i = *pos = b;
        const gw_tok_entry *e = &t->entries[id];
        *specials += e->special;
        if (a < from || (plain && e->special)) continue;
        if (e->single_word && inside_word(text, n, a, b)) continue;
        int l;
        while (e->lstrip && a > from) {
            size_t k = char_start(text, a);
            if (k < from || !gw_uni_is_space(gw_utf8_decode(text + k, text + a, &l))) break;
            a = k;
        }
        while (e->rstrip && b < n && gw_uni_is_space(gw_utf8_decode(text + b, text + n, &l)))
            b += (size_t)l;
        *start = a;
        *end = b;
        return id;
    }
    *pos = n;
    return -1;
}
