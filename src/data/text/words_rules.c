// SPDX-License-Identifier: Apache-2.0
// Rules of the two spaCy tokenizers as tables that the cutting looks up.
//
// What differs between "en" and "xx" is the list of special cases and one infix. All keys that a
// span of text is compared with (special cases, and tokens that begin a pattern) stand in one hash
// table, with a filter by first byte and length in front of it, so that an ordinary word costs one
// comparison of bits.
//
// spaCy looks for special cases twice: in a span as it is being cut, and afterwards in the row of
// tokens, for those special cases that the rules would cut ("Mr." gives "Mr" and "." behind an
// opening quote, and is joined again). Which those are, and into which tokens they are cut, is
// found here as spaCy finds it: by cutting them with special cases off.
#include <string.h>

#include "data/text/words.h"      /* gw_splitter_for_language */
#include "data/text/words_impl.h" /* words_rules */
#include "data/text/words_en.inc" /* special_en, special_xx, suffix_units, languages_xx */

static uint32_t slot_of(const char *text, int64_t n) {
    return (uint32_t)words_hash(text, n) & (WORDS_SLOTS - 1);
}

const words_entry *words_rules_find(const words_rules *r, const char *text, int64_t n) {
    if (n >= WORDS_KEY_BYTES || n <= 0 || !(r->lengths[(uint8_t)text[0]] >> n & 1)) return NULL;
    for (uint32_t s = slot_of(text, n); r->slots[s]; s = (s + 1) & (WORDS_SLOTS - 1)) {
        const words_entry *e = &r->entries[r->slots[s] - 1];
        if (e->bytes == n && !memcmp(e->text, text, (size_t)n)) return e;
    }
    return NULL;
}

/* The entry of a key, made if there is none. */
static words_entry *entry_of(words_rules *r, const char *text, int64_t n) {
    uint32_t s = slot_of(text, n);
    for (; r->slots[s]; s = (s + 1) & (WORDS_SLOTS - 1)) {
        words_entry *e = &r->entries[r->slots[s] - 1];
        if (e->bytes == n && !memcmp(e->text, text, (size_t)n)) return e;
    }
    words_entry *e = &r->entries[r->nentries++];
    *e = (words_entry){.text = text, .bytes = (uint8_t)n, .patterns = -1};
    r->slots[s] = (uint16_t)r->nentries;
    r->lengths[(uint8_t)text[0]] |= (uint64_t)1 << n;
    return e;
}

/* "can\1not": the parts of one special case. */
static void add_special(gw_arena *a, words_rules *r, const char *parts) {
    words_special *s = &r->specials[r->nspecials++];
    char *text = gw_arena_alloc(a, (int64_t)strlen(parts) + 1);
    int n = 0;
    for (const char *p = parts; *p; p++) {
        if (*p == '\x01') {
            s->nparts++;
            continue;
        }
        text[n++] = *p;
        s->part[s->nparts]++;
    }
    s->nparts++;
    s->text = text;
    s->bytes = (uint8_t)n;
    entry_of(r, text, n)->special = s;
}

/* Cuts a special case by the rules alone; if they would cut into it, its tokens are a pattern. */
static void add_pattern(gw_words_inner *w, words_rules *r, const words_special *s) {
    w->count = 0;
    words_spacy(w, r, s->text, s->bytes, false);
    if (w->count <= 1) return;
    uint8_t *token = gw_arena_alloc(&w->arena, w->count);
    for (int64_t i = 0; i < w->count; i++) token[i] = (uint8_t)w->items[i].bytes;
    words_entry *e = entry_of(r, s->text, token[0]);
    r->patterns[r->npatterns] = (words_pattern){s, token, (uint8_t)w->count, e->patterns};
    e->patterns = r->npatterns++;
    uint8_t second = (uint8_t)s->text[token[0]];
    e->second[second >> 6] |= (uint64_t)1 << (second & 63);
}

static void add_units(words_rules *r, int which, const char *const *list, int n) {
    r->units[which] = list;
    r->nunits[which] = n;
    for (int i = 0; i < n; i++) {
        int bytes = (int)strlen(list[i]);
        r->unit_end[(uint8_t)list[i][bytes - 1]] = 1;
        if (bytes > r->longest_unit_bytes) r->longest_unit_bytes = bytes;
    }
}

#define COUNT(a) ((int)(sizeof(a) / sizeof *(a)))

void words_rules_init(gw_words_inner *w, words_rules *r, bool english) {
    int most = COUNT(special_xx) + (english ? COUNT(special_en) : 0);
    r->hyphen_after_digit = english;
    r->specials = gw_arena_new(&w->arena, words_special, most);
    r->patterns = gw_arena_new(&w->arena, words_pattern, most);
    r->entries = gw_arena_new(&w->arena, words_entry, 2 * most);
    add_units(r, 0, suffix_units, COUNT(suffix_units));
    add_units(r, 1, suffix_currency, COUNT(suffix_currency));
    for (int i = 0; i < COUNT(special_xx); i++) add_special(&w->arena, r, special_xx[i]);
    if (english)
        for (int i = 0; i < COUNT(special_en); i++) add_special(&w->arena, r, special_en[i]);
    for (int i = 0; i < r->nspecials; i++) add_pattern(w, r, &r->specials[i]);
    w->count = 0;
}

gw_status gw_splitter_for_language(const char *language, gw_splitter *out, gw_diags *dg) {
    if (!strcmp(language, "en") || !strcmp(language, "eng")) {
        *out = GW_SPLIT_SPACY_EN;
        return GW_OK;
    }
    for (int i = 0; i < COUNT(languages_xx); i++)
        if (!strcmp(language, languages_xx[i])) {
            *out = GW_SPLIT_SPACY_XX;
            return GW_OK;
        }
    gw_status s =
        GW_FAIL(dg, GW_ERR_UNSUPPORTED, "data-words-language",
                "words of the language '%s' are not cut here as datatrove cuts them", language);
    if (dg && dg->last)
        gw_diag_hint(dg, dg->last,
                     "name a splitter instead of 'auto': spacy_en, spacy_xx, "
                     "whitespace or unicode");
    return s;
}
