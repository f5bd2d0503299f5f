// SPDX-License-Identifier: Apache-2.0
// Rules of spaCy's tokenizers as tables that the cutting looks up.
//
// What differs between "en" and "xx" is the list of special cases and one infix; other languages
// have patterns of their own besides (words_lang.c). All keys that a
// span of text is compared with (special cases, and tokens that begin a pattern) stand in one hash
// table, with a filter by first byte, last byte and length in front of it, so that an ordinary word
// costs one comparison of bits.
//
// spaCy looks for special cases twice: in a span as it is being cut, and afterwards in the row of
// tokens, for those special cases that the rules would cut ("Mr." gives "Mr" and "." behind an
// opening quote, and is joined again). Which those are, and into which tokens they are cut, is
// found here as spaCy finds it: by cutting them with special cases off.
#include <string.h>

#include "data/text/words_impl.h" /* words_rules */
#include "data/text/words_en.inc" /* special_en, special_xx, suffix_units */

static uint32_t slot_of(const words_rules *r, const char *text, int64_t n) {
    return (uint32_t)words_hash(text, n) & r->slot_mask;
}

const words_entry *words_rules_find(const words_rules *r, const char *text, int64_t n) {
    if (n >= WORDS_KEY_BYTES || n <= 0) return NULL;
    if (!(r->lengths[(uint8_t)text[0]] & r->lasts[(uint8_t)text[n - 1]] & (uint64_t)1 << n))
        return NULL;
    for (uint32_t s = slot_of(r, text, n); r->slots[s]; s = (s + 1) & r->slot_mask) {
        const words_entry *e = &r->entries[r->slots[s] - 1];
        if (e->bytes == n && !memcmp(e->text, text, (size_t)n)) return e;
    }
    return NULL;
}

/* The entry of a key, made if there is none. */
static words_entry *entry_of(words_rules *r, const char *text, int64_t n) {
    uint32_t s = slot_of(r, text, n);
    for (; r->slots[s]; s = (s + 1) & r->slot_mask) {
        words_entry *e = &r->entries[r->slots[s] - 1];
        if (e->bytes == n && !memcmp(e->text, text, (size_t)n)) return e;
    }
    words_entry *e = &r->entries[r->nentries++];
    *e = (words_entry){.text = text, .bytes = (uint8_t)n, .patterns = -1};
    r->slots[s] = (uint32_t)r->nentries;
    r->lengths[(uint8_t)text[0]] |= (uint64_t)1 << n;
    r->lasts[(uint8_t)text[n - 1]] |= (uint64_t)1 << n;
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

/* Cuts a special case by the rules alone; if they would cut into it, its tokens are a pattern. So
 * is one token that something in a language's rules meets and that is cut nevertheless. */
static void add_pattern(gw_words_inner *w, words_rules *r, const words_special *s) {
    w->count = 0;
    words_spacy(w, r, s->text, s->bytes, false);
    if (w->count <= 1 && !(r->lang && s->nparts > 1 && words_has_affix(w, r, s->text, s->bytes)))
        return;
    uint8_t *token = gw_arena_alloc(&w->arena, 2 * w->count);
    for (int64_t i = 0; i < w->count; i++) {
        token[i] = (uint8_t)w->items[i].bytes;
        token[w->count + i] = (uint8_t)w->items[i].offset;
    }
    words_entry *e = entry_of(r, s->text, token[0]);
    r->patterns[r->npatterns] = (words_pattern){s, token, (uint8_t)w->count, e->patterns};
    e->patterns = r->npatterns++;
    e->alone |= w->count == 1;
    if (w->count == 1) return;
    uint8_t second = (uint8_t)s->text[w->items[1].offset];
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

/* Room for `most` special cases. */
static void make_room(gw_words_inner *w, words_rules *r, int most) {
    uint32_t slots = 64;
    while (slots < 4 * (uint32_t)most) slots *= 2;
    r->slot_mask = slots - 1;
    r->slots = gw_arena_new(&w->arena, uint32_t, slots);
    r->specials = gw_arena_new(&w->arena, words_special, most + 1);
    r->patterns = gw_arena_new(&w->arena, words_pattern, most + 1);
    r->entries = gw_arena_new(&w->arena, words_entry, 2 * most + 1);
}

void words_rules_init(gw_words_inner *w, words_rules *r, bool english) {
    int most = COUNT(special_xx) + (english ? COUNT(special_en) : 0);
    r->hyphen_after_digit = english;
    make_room(w, r, most);
    add_units(r, 0, suffix_units, COUNT(suffix_units));
    add_units(r, 1, suffix_currency, COUNT(suffix_currency));
    for (int i = 0; i < COUNT(special_xx); i++) add_special(&w->arena, r, special_xx[i]);
    if (english)
        for (int i = 0; i < COUNT(special_en); i++) add_special(&w->arena, r, special_en[i]);
    for (int i = 0; i < r->nspecials; i++) add_pattern(w, r, &r->specials[i]);
    w->count = 0;
}

/* Adds a word of ASCII in its writings: ada-ada, ADA-ADA, Ada-ada, Ada-Ada. */
static void add_writings(gw_arena *a, words_rules *r, const char *word) {
    char text[WORDS_KEY_BYTES];
    size_t n = strlen(word);
    for (int how = 0; how < 4; how++) {
        for (size_t i = 0; i <= n && i < sizeof text; i++) {
            bool letter = word[i] >= 'a' && word[i] <= 'z';
            bool inner = i > 0 && word[i - 1] >= 'a' && word[i - 1] <= 'z';
            bool upper = how == 1 || (how == 2 && i == 0) || (how == 3 && !inner);
            text[i] = (char)(letter && upper ? word[i] - 32 : word[i]);
        }
        if (!words_rules_find(r, text, (int64_t)n)) add_special(a, r, text);
    }
}

void words_rules_init_language(gw_words_inner *w, words_rules *r, const words_lang_rules *l) {
    make_room(w, r, l->nspecials + (l->with_xx ? COUNT(special_xx) : 0));
    r->lang = words_lang_open(l);
    r->plain = l->plain;
    for (int i = 0; l->with_xx && i < COUNT(special_xx); i++)
        add_special(&w->arena, r, special_xx[i]);
    for (const char *const *s = l->specials; *s; s++) {
        if (**s == '\x02')
            add_writings(&w->arena, r, *s + 1);
        else
            add_special(&w->arena, r, *s);
    }
    for (int i = 0; i < r->nspecials; i++) add_pattern(w, r, &r->specials[i]);
    w->count = 0;
}
