// SPDX-License-Identifier: Apache-2.0
// Merging against its definition, with vocabularies that no training makes, and batches of texts.
#include <string.h>

#include "base/arena.h"     /* gw_arena */
#include "base/map.h"       /* gw_vec_push */
#include "base/rng.h"       /* gw_rng_u32 */
#include "data/bpe.h"       /* gw_bpe */
#include "data/tokenizer.h" /* gw_tokenizer */
#include "harness.h"        /* TEST, CHECK */

enum { LETTERS = 3, IDS = 40 };

/* Random pairs with random ranks, some equal: a token may rank below its own parts. */
static void random_model(gw_bpe *m, gw_rng_key key) {
    uint64_t i = 0;
    gw_bpe_init(m);
    m->byte_level = true;
    for (int b = 0; b < 256; b++) m->byte_id[b] = b % LETTERS;
    for (int32_t id = LETTERS; id < IDS; id++) {
        int32_t left = (int32_t)(gw_rng_u32(key, i++) % (uint32_t)id);
        int32_t right = (int32_t)(gw_rng_u32(key, i++) % (uint32_t)id);
        gw_bpe_add_merge(m, left, right, gw_rng_u32(key, i++) % 30, id);
    }
    gw_bpe_seal(m);
}

/* The definition: the pair of lowest rank, of equal ranks the leftmost, until there is none. */
static void naive(const gw_bpe *m, const uint8_t *text, size_t n, gw_ids *out) {
    out->count = 0;
    for (size_t i = 0; i < n; i++) gw_vec_push(out, m->byte_id[text[i]]);
    for (;;) {
        int64_t at = -1;
        gw_bpe_merge best = {GW_BPE_NO_RANK, -1};
        for (int64_t i = 0; i + 1 < out->count; i++) {
            gw_bpe_merge x = gw_bpe_find(m, out->items[i], out->items[i + 1]);
            if (x.rank >= best.rank) continue;
            best = x;
            at = i;
        }
        if (at < 0) return;
        out->items[at] = best.id;
        memmove(out->items + at + 1, out->items + at + 2,
                (size_t)(out->count - at - 2) * sizeof *out->items);
        out->count--;
    }
}

static void check_merges(uint64_t seed, int texts) {
    gw_rng_key key = gw_rng_key_fold(gw_rng_key_named(5, "merges"), seed);
    gw_bpe m;
    gw_bpe_scratch *s = gw_bpe_scratch_new();
    gw_ids want = {0}, got = {0};
    uint8_t text[600];
    random_model(&m, key);
    for (int k = 0; k < texts; k++) {
        uint64_t i = 1000 * (uint64_t)(k + 1);
        size_t n = 1 + gw_rng_u32(key, i++) % (k % 2 ? sizeof text : 70), at = 0;
        /* Runs of a letter, most of them of one where k is small. */
        while (at < n) {
            size_t run = k % 3 ? 1 : 1 + gw_rng_u32(key, i++) % 200;
            uint8_t c = (uint8_t)(gw_rng_u32(key, i++) % LETTERS);
            for (; run > 0 && at < n; run--) text[at++] = c;
        }
        naive(&m, text, n, &want);
        got.count = 0;
        gw_bpe_encode(&m, s, text, n, &got);
        CHECK_MSG(got.count == want.count &&
                      !memcmp(got.items, want.items, (size_t)got.count * sizeof *got.items),
                  "seed %d, text %d of %zu bytes: %lld ids, not %lld", (int)seed, k, n,
                  (long long)got.count, (long long)want.count);
        /* Again, from the cache. */
        got.count = 0;
        gw_bpe_encode(&m, s, text, n, &got);
        CHECK(got.count == want.count &&
              !memcmp(got.items, want.items, (size_t)got.count * sizeof *got.items));
    }
    gw_ids_release(&want);
    gw_ids_release(&got);
    gw_bpe_scratch_free(s);
    gw_bpe_release(&m);
}

TEST(merging_equals_its_definition) {
    for (uint64_t seed = 0; seed < 60; seed++) check_merges(seed, 12);
}

static void check_batch(const gw_tokenizer *t, const gw_tok_text *texts, int64_t n, unsigned flags,
                        gw_diags *dg) {
    gw_tok_scratch *s = gw_tok_scratch_new();
    gw_ids want = {0}, got = {0};
    int64_t ends[8], want_ends[8];
    for (int64_t i = 0; i < n; i++) {
        CHECK_OK(gw_tokenizer_encode(t, s, texts[i].bytes, texts[i].n, flags, &want, dg), dg);
        want_ends[i] = want.count;
    }
    for (int threads = 1; threads <= 4; threads += 3) {
        gw_tok_report r;
        got.count = 0;
        CHECK_OK(gw_tokenizer_encode_batch(t, texts, n, flags, threads, &got, ends, &r, dg), dg);
        CHECK_EQ(got.count, want.count);
        CHECK(!memcmp(got.items, want.items, (size_t)got.count * sizeof *got.items));
        for (int64_t i = 0; i < n; i++) CHECK_EQ(ends[i], want_ends[i]);
        CHECK_EQ(r.tokens, got.count);
        CHECK_EQ(r.specials, gw_tok_scratch_specials(s));
    }
    gw_ids_release(&want);
    gw_ids_release(&got);
    gw_tok_scratch_free(s);
}

/* A batch is its texts one by one, however many threads; a long text is cut where nothing changes.
 */
TEST(batches_equal_single_texts) {
    static const char *const NAMES[] = {"gpt2", "llama3", "qwen2", "llama2_metaspace"};
    gw_str text = {0};
    gw_rng_key key = gw_rng_key_named(8, "batch");
    static const char *const WORDS[] = {"the",  " model", " learns",      " it's", "\n",
                                        "  ",   " 12345", " caf\xc3\xa9", ".",     "<|endoftext|>",
                                        " x y", "'s a"};
    for (uint64_t i = 0; text.len < 3 << 20; i++)
        gw_str_add(&text, WORDS[gw_rng_u32(key, i) % GW_COUNT(WORDS)]);
    gw_tok_text texts[] = {{gw_str_c(&text), text.len},
                           {"", 0},
                           {"short <|endoftext|>", 19},
                           {gw_str_c(&text), 700000},
                           {gw_str_c(&text) + 5, 1 << 20}};
    for (size_t k = 0; k < GW_COUNT(NAMES); k++) {
        gw_diags dg;
        gw_tokenizer *t;
        char path[128];
        gw_diags_init(&dg);
        snprintf(path, sizeof path, "golden/tokenizers/%s", NAMES[k]);
        CHECK_OK(gw_tokenizer_open(test_source_path(path), NULL, &t, &dg), &dg);
        check_batch(t, texts, GW_COUNT(texts), 0, &dg);
        check_batch(t, texts, 3, GW_ENCODE_SPECIALS | GW_ENCODE_TEMPLATE, &dg);
        gw_tokenizer_free(t);
        gw_diags_release(&dg);
    }
    gw_str_release(&text);
}
