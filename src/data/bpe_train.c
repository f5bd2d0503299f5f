// SPDX-License-Identifier: Apache-2.0
// Learning a byte-level BPE vocabulary.
//
// Text is cut into words by a public splitting pattern; equal words are counted once, in bounded
// memory (word_counts.c). A word is a
// list of ids, at first its bytes. The most frequent adjacent pair becomes a new id, everywhere,
// again and again until the vocabulary is full. Counts are kept exact: when a pair is merged in a
// word, the counts of the word's old pairs are taken away and those of its new pairs added, and
// each pair remembers words that hold it. The best pair comes from a heap whose entries may be out
// of date: an entry whose count is no longer true is put back with the true one. Only pairs with
// the newest id can grow, so those alone are pushed.
//
// The order is total (count, then smaller left id, then smaller right id), so a text gives one
// vocabulary on any machine. It is also the order of Hugging Face's trainer: special tokens first,
// then the letters of the byte alphabet by code point, then merges.
#include "data/bpe_train.h" /* gw_bpe_train */

#include <string.h>

#include "base/arena.h"          /* gw_mem_alloc */
#include "base/map.h"            /* gw_imap, GW_VEC */
#include "data/scan.h"           /* gw_scan_from_name */
#include "data/tokenizer_impl.h" /* gw_tok_to_alphabet */
#include "data/word_counts.h"    /* gw_word_counts_of */

typedef struct word {
    int64_t count;
    uint32_t start; /* into symbols */
    uint32_t len;
} word;

typedef struct pair {
    int32_t left, right;
    int64_t count;
    GW_VEC(uint32_t) words; /* a superset of the words that hold it; may repeat */
} pair;

typedef struct candidate {
    int64_t count;
    uint32_t pair;
} candidate;

typedef struct trainer {
    GW_VEC(word) words;
    GW_VEC(int32_t) symbols;
    gw_imap by_pair;
    GW_VEC(pair) pairs;
    GW_VEC(candidate) heap;
    GW_VEC(pair) merges; /* left, right only */
    gw_arena arena;
    gw_str *content; /* [ids] spelled in the alphabet */
    int32_t nids;
    gw_bpe_train_report report;
} trainer;

/* ---- words --------------------------------------------------------------------------------------
 */

static gw_status take_words(trainer *t, const gw_word_counts *counts, gw_diags *dg) {
    for (int64_t i = 0; i < counts->count; i++) {
        const gw_word_count *c = &counts->items[i];
        if (t->symbols.count + (int64_t)c->len > INT32_MAX || t->words.count == INT32_MAX)
            return GW_FAIL(dg, GW_ERR_UNSUPPORTED, "tokenizer-train-size",
                           "more than 2 GB of distinct words");
        word w = {c->count, (uint32_t)t->symbols.count, c->len};
        gw_vec_push(&t->words, w);
        for (uint32_t k = 0; k < c->len; k++) gw_vec_push(&t->symbols, (int32_t)c->bytes[k]);
    }
    t->report.text_bytes = counts->text_bytes;
    t->report.words = counts->words;
    t->report.distinct_words = counts->distinct;
    t->report.rarest_word = counts->rarest;
    t->report.spilled_bytes = counts->spilled_bytes;
    return GW_OK;
}

/* ---- the heap -----------------------------------------------------------------------------------
 */

static bool better(const trainer *t, candidate a, candidate b) {
    if (a.count != b.count) return a.count > b.count;
    const pair *p = &t->pairs.items[a.pair], *q = &t->pairs.items[b.pair];
    return p->left != q->left ? p->left < q->left : p->right < q->right;
}

static void push(trainer *t, uint32_t index) {
    candidate c = {t->pairs.items[index].count, index};
    gw_vec_push(&t->heap, c);
    int64_t i = t->heap.count - 1;
    for (; i > 0 && better(t, c, t->heap.items[(i - 1) / 2]); i = (i - 1) / 2)
        t->heap.items[i] = t->heap.items[(i - 1) / 2];
    t->heap.items[i] = c;
}

static candidate pop(trainer *t) {
    candidate top = t->heap.items[0], last = t->heap.items[--t->heap.count];
    int64_t i = 0, c;
    for (; (c = 2 * i + 1) < t->heap.count; i = c) {
        if (c + 1 < t->heap.count && better(t, t->heap.items[c + 1], t->heap.items[c])) c++;
        if (!better(t, t->heap.items[c], last)) break;
        t->heap.items[i] = t->heap.items[c];
    }
    if (t->heap.count > 0) t->heap.items[i] = last;
    return top;
}

/* ---- pairs --------------------------------------------------------------------------------------
 */

static uint32_t pair_index(trainer *t, int32_t left, int32_t right) {
    uint64_t key = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
    uint32_t index;
    if (gw_imap_find(&t->by_pair, key, &index)) return index;
    index = (uint32_t)t->pairs.count;
    pair p = {.left = left, .right = right};
    gw_vec_push(&t->pairs, p);
    gw_imap_put(&t->by_pair, key, index);
    return index;
}

/* Adds sign * count of each pair of the word; `newest` >= 0: notes the word at pairs with that id,
 * and those pairs in `grown`. */
typedef GW_VEC(uint32_t) indices;
static void count_pairs(trainer *t, uint32_t w, int sign, int32_t newest, indices *grown) {
    const word *x = &t->words.items[w];
    for (uint32_t i = 0; i + 1 < x->len; i++) {
        int32_t a = t->symbols.items[x->start + i], b = t->symbols.items[x->start + i + 1];
        uint32_t k = pair_index(t, a, b);
        pair *p = &t->pairs.items[k];
        p->count += sign * x->count;
        if (sign < 0 || (newest >= 0 && a != newest && b != newest)) continue;
        if (!p->words.count || p->words.items[p->words.count - 1] != w) gw_vec_push(&p->words, w);
        if (grown) gw_vec_push(grown, k);
    }
}

static bool merge_word(trainer *t, uint32_t w, int32_t left, int32_t right, int32_t id,
                       indices *grown) {
    word *x = &t->words.items[w];
    int32_t *y = t->symbols.items + x->start;
    uint32_t n = 0;
    bool has = false;
    for (uint32_t i = 0; i + 1 < x->len && !has; i++) has = y[i] == left && y[i + 1] == right;
    if (!has) return false;
    count_pairs(t, w, -1, -1, NULL);
    for (uint32_t i = 0; i < x->len; n++) {
        bool hit = i + 1 < x->len && y[i] == left && y[i + 1] == right;
        y[n] = hit ? id : y[i];
        i += hit ? 2 : 1;
    }
    x->len = n;
    count_pairs(t, w, 1, id, grown);
    return true;
}

static void merge(trainer *t, uint32_t best, int32_t id) {
    pair p = t->pairs.items[best];
    indices grown = {0};
    t->pairs.items[best].words.items = NULL;
    t->pairs.items[best].words.count = t->pairs.items[best].words.cap = 0;
    for (int64_t i = 0; i < p.words.count; i++)
        merge_word(t, p.words.items[i], p.left, p.right, id, &grown);
    gw_vec_release(&p.words);
    for (int64_t i = 0; i < grown.count; i++)
        if (t->pairs.items[grown.items[i]].count > 0) push(t, grown.items[i]);
    gw_vec_release(&grown);
}

/* ---- ids ----------------------------------------------------------------------------------------
 */

/* Letters of the alphabet by code point: the printing bytes, then the others. */
static void assign_bytes(trainer *t, int32_t first) {
    int32_t id_of[256], id = first;
    for (int pass = 0; pass < 2; pass++)
        for (int b = 0; b < 256; b++) {
            gw_str s = {0};
            gw_tok_to_alphabet(&s, (uint8_t)b);
            /* 0xC4.. and above encode letters from U+0100 on. */
            bool other = (uint8_t)s.data[0] >= 0xc4;
            if (other == (pass == 1)) {
                id_of[b] = id;
                t->content[id++] = s;
            } else {
                gw_str_release(&s);
            }
        }
    for (int64_t i = 0; i < t->symbols.count; i++) t->symbols.items[i] = id_of[t->symbols.items[i]];
    t->nids = id;
}

static void learn(trainer *t, int32_t vocab_size, int64_t min_count) {
    for (uint32_t w = 0; w < t->words.count; w++) count_pairs(t, w, 1, -1, NULL);
    for (uint32_t k = 0; k < t->pairs.count; k++) push(t, k);
    while (t->nids < vocab_size && t->heap.count > 0) {
        candidate c = pop(t);
        const pair *p = &t->pairs.items[c.pair];
        if (c.count != p->count) {
            if (p->count > 0 && p->count < c.count) push(t, c.pair);
            continue;
        }
        if (p->count < min_count) break;
        pair m = {.left = p->left, .right = p->right};
        gw_str *s = &t->content[t->nids];
        gw_str_add_n(s, gw_str_c(&t->content[m.left]), t->content[m.left].len);
        gw_str_add_n(s, gw_str_c(&t->content[m.right]), t->content[m.right].len);
        gw_vec_push(&t->merges, m);
        merge(t, c.pair, t->nids);
        t->nids++;
    }
}

/* ---- the file -----------------------------------------------------------------------------------
 */

static void quote(gw_str *out, const char *s, size_t n) {
    gw_str_add_char(out, '"');
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)s[i];
        if (c == '"' || c == '\\')
            gw_str_printf(out, "\\%c", c);
        else if (c < 0x20)
            gw_str_printf(out, "\\u%04x", c);
        else
            gw_str_add_char(out, s[i]);
    }
    gw_str_add_char(out, '"');
}

static void write_head(gw_str *out, gw_scan scan, const char *const *specials) {
    gw_str_add(
        out,
        "{\n\"version\":\"1.0\",\n\"truncation\":null,\n\"padding\":null,\n\"added_tokens\":[");
    for (int i = 0; specials[i]; i++) {
        gw_str_printf(out, "%s\n{\"id\":%d,\"content\":", i ? "," : "", i);
        quote(out, specials[i], strlen(specials[i]));
        gw_str_add(out, ",\"single_word\":false,\"lstrip\":false,\"rstrip\":false,"
                        "\"normalized\":false,\"special\":true}");
    }
    gw_str_add(out, "],\n\"normalizer\":null,\n\"pre_tokenizer\":");
    static const char LEVEL[] = "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,"
                                "\"trim_offsets\":true,\"use_regex\":";
    if (scan == GW_SCAN_GPT2) {
        gw_str_printf(out, "%strue}", LEVEL);
    } else {
        const char *regex = gw_scan_pattern(scan);
        gw_str_add(out, "{\"type\":\"Sequence\",\"pretokenizers\":[\n{\"type\":\"Split\","
                        "\"pattern\":{\"Regex\":");
        quote(out, regex, strlen(regex));
        gw_str_printf(out, "},\"behavior\":\"Isolated\",\"invert\":false},\n%sfalse}]}", LEVEL);
    }
    gw_str_printf(out, ",\n\"post_processor\":null,\n\"decoder\":%strue},\n", LEVEL);
}

static void write_json(trainer *t, gw_scan scan, const char *const *specials, gw_str *out) {
    write_head(out, scan, specials);
    gw_str_add(out,
               "\"model\":{\"type\":\"BPE\",\"dropout\":null,\"unk_token\":null,"
               "\"continuing_subword_prefix\":null,\"end_of_word_suffix\":null,"
               "\"fuse_unk\":false,\"byte_fallback\":false,\"ignore_merges\":false,\n\"vocab\":{");
    for (int32_t id = 0; id < t->nids; id++) {
        gw_str_add(out, id ? ",\n" : "\n");
        quote(out, gw_str_c(&t->content[id]), t->content[id].len);
        gw_str_printf(out, ":%d", (int)id);
    }
    gw_str_add(out, "},\n\"merges\":[");
    for (int64_t i = 0; i < t->merges.count; i++) {
        const gw_str *a = &t->content[t->merges.items[i].left];
        const gw_str *b = &t->content[t->merges.items[i].right];
        gw_str line = {0};
        gw_str_printf(&line, "%s %s", gw_str_c(a), gw_str_c(b));
        gw_str_add(out, i ? ",\n" : "\n");
        quote(out, gw_str_c(&line), line.len);
        gw_str_release(&line);
    }
    gw_str_add(out, "]}\n}\n");
}

/* ---- the whole ----------------------------------------------------------------------------------
 */

static void release(trainer *t, int32_t vocab_size) {
    for (int64_t i = 0; i < t->pairs.count; i++) gw_vec_release(&t->pairs.items[i].words);
    for (int32_t i = 0; t->content && i < vocab_size; i++) gw_str_release(&t->content[i]);
    gw_mem_free(t->content);
    gw_imap_release(&t->by_pair);
    gw_vec_release(&t->words);
    gw_vec_release(&t->symbols);
    gw_vec_release(&t->pairs);
    gw_vec_release(&t->heap);
    gw_vec_release(&t->merges);
    gw_arena_release(&t->arena);
}

static const char *const DEFAULT_SPECIALS[] = {"<|endoftext|>", NULL};

static gw_status check(const gw_bpe_train_options *o, int32_t nspecials, gw_scan *scan,
                       gw_diags *dg) {
    const char *pattern = o->pattern ? o->pattern : "llama3";
    if (!gw_scan_from_name(pattern, scan) || !gw_scan_pattern(*scan))
        return GW_FAIL(dg, GW_ERR_USAGE, "tokenizer-pattern",
                       "unknown splitting pattern '%s': llama3, qwen2, gpt2 or o200k", pattern);
    if (o->vocab_size < 256 + nspecials || o->vocab_size > (1 << 22))
        return GW_FAIL(dg, GW_ERR_USAGE, "tokenizer-train-size",
                       "a vocabulary of %d: it must hold 256 bytes and %d specials, and at most %d",
                       (int)o->vocab_size, (int)nspecials, 1 << 22);
    return GW_OK;
}

/* Learns from what was counted and writes. */
static void finish(trainer *t, const gw_bpe_train_options *o, gw_scan scan,
                   const char *const *specials, int32_t nspecials, gw_str *json,
                   gw_bpe_train_report *report) {
    t->content = gw_mem_zalloc((size_t)o->vocab_size * sizeof *t->content);
    for (int32_t i = 0; i < nspecials; i++) gw_str_add(&t->content[i], specials[i]);
    assign_bytes(t, nspecials);
    learn(t, o->vocab_size, o->min_count > 0 ? o->min_count : 2);
    write_json(t, scan, specials, json);
    t->report.vocab_size = t->nids;
    t->report.merges = (int32_t)t->merges.count;
    if (report) *report = t->report;
}

static gw_status train(const char *const *paths, int npaths, const void *text, size_t n,
                       const gw_bpe_train_options *o, gw_str *json, gw_bpe_train_report *report,
                       gw_diags *dg) {
    const char *const *specials = o->specials ? o->specials : DEFAULT_SPECIALS;
    int32_t nspecials = 0;
    while (specials[nspecials]) nspecials++;
    gw_scan scan;
    GW_TRY(check(o, nspecials, &scan, dg));
    trainer t = {0};
    gw_arena_init(&t.arena);
    gw_word_counts counts;
    gw_status st = gw_word_counts_of(paths, npaths, text, n, scan,
                                     o->memory > 0 ? o->memory : (int64_t)4 << 30, o->threads,
                                     &t.arena, &counts, dg);
    if (st == GW_OK) st = take_words(&t, &counts, dg);
    if (st == GW_OK) finish(&t, o, scan, specials, nspecials, json, report);
    release(&t, o->vocab_size);
    return st;
}

gw_status gw_bpe_train(const char *const *paths, int npaths, const gw_bpe_train_options *options,
                       gw_str *json, gw_bpe_train_report *report, gw_diags *dg) {
    return train(paths, npaths, NULL, 0, options, json, report, dg);
}

gw_status gw_bpe_train_text(const void *text, size_t n, const gw_bpe_train_options *options,
                            gw_str *json, gw_bpe_train_report *report, gw_diags *dg) {
    return train(NULL, 0, text, n, options, json, report, dg);
}
