// SPDX-License-Identifier: Apache-2.0
// Trained vocabularies: by hand, against the definition, and that what is written opens.
#include <string.h>

#include "base/map.h"       /* gw_vec_push */
#include "base/rng.h"       /* gw_rng_u32 */
#include "data/bpe_train.h" /* gw_bpe_train_text */
#include "data/tokenizer.h" /* gw_tokenizer */
#include "harness.h"        /* TEST, CHECK */

static gw_tokenizer *train(const char *text, int32_t size, gw_bpe_train_report *r, gw_str *json,
                           gw_diags *dg) {
    gw_bpe_train_options o = {.vocab_size = size, .pattern = "gpt2"};
    gw_tokenizer *t;
    CHECK_OK(gw_bpe_train_text(text, strlen(text), &o, json, r, dg), dg);
    CHECK_OK(gw_tokenizer_open_json("trained", gw_str_c(json), json->len, NULL, &t, dg), dg);
    return t;
}

/* "aab aab aab ab": words "aab", " aab" x2, " ab". Pairs: ab 4, aa 3, " a" 3. First a+b; then (a,
 * ab) and
 * (" ", a): counts 3 ("aab", " aab" x2: a+ab) and 3 (" aab" x2, " ab" has " "+"ab"): " a" is 2
 * then, so a+ab is next (3), then " "+"aab" (2). */
TEST(merges_by_hand) {
    gw_diags dg;
    gw_bpe_train_report r;
    gw_str json = {0};
    gw_diags_init(&dg);
    gw_tokenizer *t = train("aab aab aab ab", 257 + 10, &r, &json, &dg);
    CHECK_EQ(r.merges, 3);
    CHECK_EQ(r.vocab_size, 260);
    CHECK_EQ(r.words, 4);
    CHECK_EQ(r.distinct_words, 3);
    CHECK_EQ(gw_tokenizer_token_id(t, "ab", 2), 257);
    CHECK_EQ(gw_tokenizer_token_id(t, "aab", 3), 258);
    CHECK_EQ(gw_tokenizer_token_id(t,
                                   "\xc4\xa0"
                                   "aab",
                                   5),
             259);
    CHECK_EQ(gw_tokenizer_eos(t), 0);
    CHECK_EQ(gw_tokenizer_token_id(t, "!", 1), 1);
    gw_tokenizer_free(t);
    gw_str_release(&json);
    gw_diags_release(&dg);
}

/* Text of a small alphabet, many repeats. */
static void random_words(gw_str *out, uint64_t seed, int n) {
    gw_rng_key key = gw_rng_key_named(seed, "words");
    for (int i = 0; i < n; i++) {
        uint32_t w = gw_rng_u32(key, (uint64_t)i) % 40;
        gw_rng_key wk = gw_rng_key_fold(gw_rng_key_named(seed, "word"), w);
        int len = 1 + (int)(gw_rng_u32(wk, 99) % 7);
        if (i) gw_str_add_char(out, ' ');
        for (int k = 0; k < len; k++)
            gw_str_add_char(out, (char)('a' + gw_rng_u32(wk, (uint64_t)k) % 3));
    }
}

typedef struct naive_word {
    int32_t ids[16];
    int n;
} naive_word;

/* The definition: count every pair of every word, take the best, merge, again. */
static int naive(const char *text, int32_t first, int want, int32_t (*merges)[2]) {
    GW_VEC(naive_word) words = {0};
    /* Ids of letters: 188 printing bytes from '!' on, then 00..20. */
    for (const char *p = text; *p;) {
        naive_word w = {0};
        do w.ids[w.n++] = (int32_t)(*p == ' ' ? 188 + 0x20 + first : *p - '!' + first);
        while (*++p && *p != ' ');
        gw_vec_push(&words, w);
    }
    enum { MOST = 512 };
    static int64_t count[MOST][MOST];
    int made = 0;
    for (; made < want; made++) {
        memset(count, 0, sizeof count);
        for (int64_t i = 0; i < words.count; i++)
            for (int k = 0; k + 1 < words.items[i].n; k++)
                count[words.items[i].ids[k]][words.items[i].ids[k + 1]]++;
        int32_t l = 0, r = 0;
        for (int32_t a = 0; a < MOST; a++)
            for (int32_t b = 0; b < MOST; b++)
                if (count[a][b] > count[l][r]) {
                    l = a;
                    r = b;
                }
        if (count[l][r] < 2) break;
        merges[made][0] = l;
        merges[made][1] = r;
        for (int64_t i = 0; i < words.count; i++) {
            naive_word *w = &words.items[i];
            int n = 0;
            for (int k = 0; k < w->n; n++) {
                bool hit = k + 1 < w->n && w->ids[k] == l && w->ids[k + 1] == r;
                w->ids[n] = hit ? 256 + first + made : w->ids[k];
                k += hit ? 2 : 1;
            }
            w->n = n;
        }
    }
    gw_vec_release(&words);
    return made;
}

TEST(training_equals_its_definition) {
    enum { WANT = 120 };
    static int32_t merges[WANT][2];
    for (uint64_t seed = 1; seed <= 4; seed++) {
        gw_diags dg;
        gw_bpe_train_report r;
        gw_str json = {0}, text = {0}, line = {0};
        gw_diags_init(&dg);
        random_words(&text, seed, 400);
        gw_tokenizer *t = train(gw_str_c(&text), 257 + WANT, &r, &json, &dg);
        int made = naive(gw_str_c(&text), 1, WANT, merges);
        CHECK_EQ(r.merges, made);
        CHECK(made > 20);
        const char *at = strstr(gw_str_c(&json), "\"merges\":[");
        for (int i = 0; i < made; i++) {
            size_t na, nb;
            const uint8_t *a = gw_tokenizer_token_bytes(t, merges[i][0], &na);
            const uint8_t *b = gw_tokenizer_token_bytes(t, merges[i][1], &nb);
            gw_str_clear(&line);
            gw_str_add_char(&line, '"');
            for (size_t k = 0; k < na; k++)
                gw_str_add(&line, a[k] == ' ' ? "\xc4\xa0" : (char[]){(char)a[k], 0});
            gw_str_add_char(&line, ' ');
            for (size_t k = 0; k < nb; k++)
                gw_str_add(&line, b[k] == ' ' ? "\xc4\xa0" : (char[]){(char)b[k], 0});
            gw_str_add_char(&line, '"');
            const char *next = strstr(at, gw_str_c(&line));
            CHECK_MSG(next && next < strchr(at, '\n') + 2 + line.len, "merge %d is not %s", i,
                      gw_str_c(&line));
            at = next + line.len;
        }
        gw_tokenizer_free(t);
        gw_str_release(&json);
        gw_str_release(&text);
        gw_str_release(&line);
        gw_diags_release(&dg);
    }
}

/* Counting in a megabyte, with runs on the disk and any number of threads, gives the same words;
 * when they do not fit, the same rarest ones are left out. */
TEST(memory_and_threads_change_nothing) {
    gw_diags dg;
    gw_str text = {0}, want = {0}, got = {0};
    gw_bpe_train_report r;
    gw_diags_init(&dg);
    gw_rng_key key = gw_rng_key_named(4, "spill");
    /* 8 MB of words, 10,000 numbers among them. */
    for (uint64_t i = 0; text.len < 8 << 20; i++)
        gw_str_printf(&text, " some w%cx%05u", 'a' + (int)(gw_rng_u32(key, 2 * i) % 26),
                      gw_rng_u32(key, 2 * i + 1) % 10000u);
    gw_bpe_train_options o = {.vocab_size = 400, .pattern = "gpt2", .threads = 1};
    CHECK_OK(gw_bpe_train_text(gw_str_c(&text), text.len, &o, &want, &r, &dg), &dg);
    CHECK_EQ(r.rarest_word, 1);
    CHECK_EQ(r.spilled_bytes, 0);
    o.memory = 64 << 20;
    o.threads = 3;
    CHECK_OK(gw_bpe_train_text(gw_str_c(&text), text.len, &o, &got, &r, &dg), &dg);
    CHECK_STR(gw_str_c(&got), gw_str_c(&want));
    int64_t distinct = r.distinct_words;
    gw_str_clear(&want);
    o.memory = 1 << 20;
    for (int threads = 1; threads <= 3; threads += 2) {
        o.threads = threads;
        gw_str_clear(&got);
        CHECK_OK(gw_bpe_train_text(gw_str_c(&text), text.len, &o, &got, &r, &dg), &dg);
        CHECK(r.rarest_word > 1);
        CHECK(r.spilled_bytes > 0);
        CHECK_EQ(r.distinct_words, distinct);
        if (threads == 1) gw_str_add(&want, gw_str_c(&got));
        CHECK_STR(gw_str_c(&got), gw_str_c(&want));
    }
    gw_str_release(&text);
    gw_str_release(&want);
    gw_str_release(&got);
    gw_diags_release(&dg);
}

TEST(training_is_deterministic_and_checked) {
    gw_diags dg;
    gw_str a = {0}, b = {0}, text = {0};
    gw_diags_init(&dg);
    random_words(&text, 9, 500);
    gw_bpe_train_options o = {.vocab_size = 400};
    CHECK_OK(gw_bpe_train_text(gw_str_c(&text), text.len, &o, &a, NULL, &dg), &dg);
    CHECK_OK(gw_bpe_train_text(gw_str_c(&text), text.len, &o, &b, NULL, &dg), &dg);
    CHECK_STR(gw_str_c(&a), gw_str_c(&b));
    o.vocab_size = 200;
    CHECK_FAILS(gw_bpe_train_text("x", 1, &o, &a, NULL, &dg), &dg, "256 bytes");
    o = (gw_bpe_train_options){.vocab_size = 300, .pattern = "nope"};
    CHECK_FAILS(gw_bpe_train_text("x", 1, &o, &a, NULL, &dg), &dg, "splitting pattern");
    gw_str_release(&a);
    gw_str_release(&b);
    gw_str_release(&text);
    gw_diags_release(&dg);
}
