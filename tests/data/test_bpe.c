// SPDX-License-Identifier: Apache-2.0
// Merging against its definition, with vocabularies that no training makes, and batches of texts.
#include <string.h>

#include "base/arena.h"          /* gw_arena */
#include "base/map.h"            /* gw_vec_push */
#include "base/rng.h"            /* gw_rng_u32 */
#include "data/bpe.h"            /* gw_bpe */
#include "data/bpe_words.h"      /* gw_bpe_pieces */
#include "data/bpe_impl.h"       /* gw_bpe_work */
#include "data/tokenizer_impl.h" /* gw_tokenizer, its bpe */
#include "harness.h"             /* TEST, CHECK */

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

/* ---- ways to merge ------------------------------------------------------------------------------
 */

static void check_same(const gw_ids *got, const gw_ids *want, const char *what, int seed,
                       int text) {
    CHECK_MSG(got->count == want->count &&
                  !memcmp(got->items, want->items, (size_t)got->count * sizeof *got->items),
              "%s, seed %d, text %d: %lld ids, not %lld", what, seed, text, (long long)got->count,
              (long long)want->count);
}

static void merge_by(gw_bpe_merge_window *merge, const gw_bpe *m, const gw_ids *units,
                     gw_ids *out) {
    gw_bpe_window w;
    gw_bpe_window_fill(m, &w, units->items, NULL, (int)units->count);
    merge(m, &w);
    out->count = 0;
    for (int i = 0; i < w.n; i++)
        if (w.alive >> i & 1) gw_vec_push(out, w.id[i]);
}

/* A window of each size, by each kind of instructions. */
TEST(windows_equal_the_definition) {
    gw_ids want = {0}, got = {0}, units = {0};
    for (int seed = 0; seed < 40; seed++) {
        gw_rng_key key = gw_rng_key_fold(gw_rng_key_named(6, "windows"), (uint64_t)seed);
        gw_bpe m;
        random_model(&m, key);
        for (int n = 1; n <= GW_BPE_WINDOW; n++) {
            uint8_t text[GW_BPE_WINDOW];
            units.count = 0;
            for (int i = 0; i < n; i++) {
                text[i] = (uint8_t)(gw_rng_u32(key, (uint64_t)(1000 + 100 * n + i)) % LETTERS);
                gw_vec_push(&units, m.byte_id[text[i]]);
            }
            naive(&m, text, (size_t)n, &want);
            merge_by(gw_bpe_merge_window_plain, &m, &units, &got);
            check_same(&got, &want, "plain C", seed, n);
            merge_by(gw_bpe_merge_window_best(), &m, &units, &got);
            check_same(&got, &want, "best", seed, n);
        }
        gw_bpe_release(&m);
    }
    gw_ids_release(&want);
    gw_ids_release(&got);
    gw_ids_release(&units);
}

static void bytes_of(const gw_bpe *m, const gw_str *text, gw_ids *units) {
    units->count = 0;
    for (size_t i = 0; i < text->len; i++) gw_vec_push(units, m->byte_id[(uint8_t)text->data[i]]);
}

static void make_long(int kind, gw_str *out) {
    static const char *const PARTS[] = {
        "A",   "C",   "G", "T", "\xf0\x9f\x99\x82", "\xe6\xbc\xa2", "\xe5\xad\x97", "-=", "=-",
        "the", "ing", "Z", "z"};
    static const int FIRST[] = {0, 4, 5, 7, 0}, COUNT[] = {4, 1, 2, 2, 13};
    gw_rng_key key = gw_rng_key_fold(gw_rng_key_named(7, "long"), (uint64_t)kind);
    gw_str_clear(out);
    for (uint64_t i = 0; out->len < 6000; i++)
        gw_str_add(out, PARTS[FIRST[kind] + (int)(gw_rng_u32(key, i) % (uint32_t)COUNT[kind])]);
}

/* With a vocabulary that was trained, windows of long pieces join, and give what the queue gives.
 */
TEST(windows_join_to_what_the_queue_gives) {
    gw_diags dg;
    gw_tokenizer *t;
    gw_str text = {0};
    gw_ids units = {0}, got = {0};
    gw_bpe_queue *q = gw_bpe_queue_new();
    gw_diags_init(&dg);
    CHECK_OK(gw_tokenizer_open(test_source_path("golden/tokenizers/gpt2"), NULL, &t, &dg), &dg);
    const gw_bpe *m = &t->bpe;
    for (int kind = 0; kind < 5; kind++) {
        int64_t ops = 0;
        make_long(kind, &text);
        bytes_of(m, &text, &units);
        got.count = 0;
        CHECK_MSG(gw_bpe_merge_windows(m, gw_bpe_merge_window_best(), units.items,
                                       (const uint8_t *)text.data, units.count, &got, &ops),
                  "the windows of text %d do not join", kind);
        units.count = gw_bpe_queue_merge(m, q, units.items, units.count, &ops);
        check_same(&got, &units, "windows", 0, kind);
    }
    gw_bpe_queue_free(q);
    gw_ids_release(&units);
    gw_ids_release(&got);
    gw_str_release(&text);
    gw_tokenizer_free(t);
    gw_diags_release(&dg);
}

/* Tokens of 2, 4, 8 ... 512 times the first unit, which no window holds. */
static void doubling_model(gw_bpe *m) {
    gw_bpe_init(m);
    m->byte_level = true;
    for (int b = 0; b < 256; b++) m->byte_id[b] = b % LETTERS;
    for (int32_t k = 0; k < 9; k++) {
        int32_t half = k ? LETTERS + k - 1 : 0;
        gw_bpe_add_merge(m, half, half, (uint32_t)k, LETTERS + k);
    }
    gw_bpe_seal(m);
}

/* Where windows of any vocabulary join, they give what the queue gives; both happen here. */
TEST(joined_windows_are_right) {
    int joined = 0, left = 0;
    gw_bpe_queue *q = gw_bpe_queue_new();
    gw_ids units = {0}, got = {0};
    for (int seed = 0; seed < 300; seed++) {
        gw_rng_key key = gw_rng_key_fold(gw_rng_key_named(9, "joined"), (uint64_t)seed);
        gw_bpe m;
        int64_t ops = 0;
        bool doubling = seed % 3 == 0;
        if (doubling)
            doubling_model(&m);
        else
            random_model(&m, key);
        units.count = got.count = 0;
        for (uint64_t i = 0; i < 700; i++) {
            uint32_t r = gw_rng_u32(key, 1000 + i), runs = doubling ? 128 : seed % 2 ? 8 : 1;
            gw_vec_push(&units, (int32_t)(r % runs ? 0 : r / 128 % LETTERS));
        }
        bool join = gw_bpe_merge_windows(&m, gw_bpe_merge_window_best(), units.items, NULL,
                                         units.count, &got, &ops);
        *(join ? &joined : &left) += 1;
        units.count = gw_bpe_queue_merge(&m, q, units.items, units.count, &ops);
        if (join) check_same(&got, &units, "joined", seed, 0);
        gw_bpe_release(&m);
    }
    CHECK_MSG(joined > 20 && left > 20, "%d joined, %d left", joined, left);
    gw_bpe_queue_free(q);
    gw_ids_release(&units);
    gw_ids_release(&got);
}

/* ---- words --------------------------------------------------------------------------------------
 */

/* Words of 1 to 20 bytes, some of them often: more than the tables hold at first, so that they grow
 * and forget. The second time most are remembered. */
TEST(remembered_words_are_those_of_merging) {
    enum { WORDS = 120000 };
    gw_bpe m;
    gw_rng_key key = gw_rng_key_named(10, "words");
    gw_bpe_scratch *s = gw_bpe_scratch_new();
    gw_bpe_work work;
    gw_str text = {0};
    gw_ids got = {0}, want = {0};
    GW_VEC(uint32_t) bounds = {0};
    random_model(&m, key);
    gw_bpe_work_init(&work);
    gw_vec_push(&bounds, 0);
    for (uint64_t w = 0; w < WORDS; w++) {
        uint32_t r = gw_rng_u32(key, 100 + w), n = 1 + r % 20;
        uint64_t word = r & 32 ? r / 64 % 50 : w; /* one of fifty, or a new one */
        gw_rng_key of = gw_rng_key_fold(key, word);
        if (r & 32) n = 1 + (uint32_t)word % 20;
        for (uint32_t i = 0; i < n; i++) gw_str_add_char(&text, (char)(gw_rng_u32(of, i) % 256));
        gw_vec_push(&bounds, (uint32_t)text.len);
    }
    gw_str_add_n(&text, (const uint8_t[16]){0}, 16);
    const uint8_t *base = (const uint8_t *)text.data;
    for (int64_t w = 0; w < WORDS; w++) {
        uint32_t at = bounds.items[w];
        gw_bpe_merge_piece(&m, &work, base + at, bounds.items[w + 1] - at);
        for (int64_t i = 0; i < work.units.count; i++) gw_vec_push(&want, work.units.items[i]);
    }
    for (int round = 0; round < 4; round++) {
        if (round == 2) { /* all again, in C */
            gw_bpe_scratch_flush(s);
            gw_bpe_scratch_use(s, gw_bpe_pieces_plain);
        }
        got.count = 0;
        for (int64_t w = 0; w < WORDS; w += 1000)
            gw_bpe_encode_pieces(&m, s, base, bounds.items + w, 1000, &got);
        check_same(&got, &want, "words", round, 0);
    }
    gw_bpe_work_release(&work);
    gw_bpe_scratch_free(s);
    gw_bpe_release(&m);
    gw_str_release(&text);
    gw_ids_release(&got);
    gw_ids_release(&want);
    gw_vec_release(&bounds);
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
