// SPDX-License-Identifier: Apache-2.0
// Laws of tokenizers, and the faults that other implementations had (the names of their reports
// stand beside each test).
#include <string.h>

#include "base/map.h"         /* gw_vec_push */
#include "base/rng.h"         /* gw_rng_u32 */
#include "data/scan.h"        /* gw_scan_next */
#include "data/tokenizer.h"   /* gw_tokenizer */
#include "data/unicode.h"     /* gw_utf8_decode */
#include "data/unicode_new.h" /* gw_uni_stand_in */
#include "harness.h"          /* TEST, CHECK */

#include <utf8proc.h>

static const char *const BYTE_LEVEL[] = {"gpt2",          "llama3",          "deepseek3",
                                         "tiktoken_r50k", "tiktoken_cl100k", "tiktoken_o200k"};

static gw_tokenizer *open_named(const char *name, int unicode, gw_diags *dg) {
    char below[256];
    gw_tokenizer *t;
    bool tik = !strncmp(name, "tiktoken_", 9);
    gw_tokenizer_options o = {.unicode_version = unicode};
    if (tik) o.pattern = !strcmp(name, "tiktoken_r50k") ? "gpt2" : name + 9;
    snprintf(below, sizeof below, "golden/tokenizers/%s/%s", name,
             tik ? "vocab.tiktoken" : "tokenizer.json");
    CHECK_OK(gw_tokenizer_open(test_source_path(below), &o, &t, dg), dg);
    return t;
}

static void encode(const gw_tokenizer *t, gw_tok_scratch *s, const void *p, size_t n,
                   unsigned flags, gw_ids *out, gw_diags *dg) {
    out->count = 0;
    CHECK_OK(gw_tokenizer_encode(t, s, p, n, flags, out, dg), dg);
}

static void check_round_trip(const gw_tokenizer *t, gw_tok_scratch *s, const uint8_t *p, size_t n,
                             gw_diags *dg) {
    gw_ids ids = {0};
    gw_str back = {0};
    encode(t, s, p, n, 0, &ids, dg);
    CHECK_OK(gw_tokenizer_decode(t, ids.items, ids.count, false, &back, dg), dg);
    CHECK_EQ(back.len, n);
    CHECK(!memcmp(gw_str_c(&back), p, n));
    for (int64_t i = 0; i < ids.count; i++)
        CHECK(ids.items[i] >= 0 && ids.items[i] < gw_tokenizer_vocab_size(t));
    gw_ids_release(&ids);
    gw_str_release(&back);
}

/* Random bytes of several kinds: any byte, mostly ASCII, mostly valid UTF-8 with damage. */
static size_t random_text(gw_rng_key key, uint64_t k, uint8_t *out, size_t most) {
    size_t n = gw_rng_u32(key, k << 12) % most, w = 0;
    for (uint64_t i = 1; w < n; i++) {
        uint32_t x = gw_rng_u32(key, (k << 12) + i), kind = (uint32_t)k % 4;
        if (kind == 0 || (kind == 3 && x % 17 == 0)) {
            out[w++] = (uint8_t)(x >> 8);
        } else if (kind == 1) {
            out[w++] = (uint8_t) "ab '\n1st.\r/ELlve"[(x >> 8) % 16];
        } else {
            uint32_t cp = (x >> 8) % 3 ? 0x20 + (x >> 10) % 0x500 : (x >> 9) % 0x110000;
            if (cp >= 0xd800 && cp < 0xe000) cp = 0x4e00;
            w += (size_t)gw_utf8_encode(cp, out + w);
        }
    }
    return w;
}

TEST(bytes_round_trip) {
    gw_diags dg;
    gw_diags_init(&dg);
    gw_tok_scratch *s = gw_tok_scratch_new();
    gw_rng_key key = gw_rng_key_named(7, "round trip");
    uint8_t text[400];
    for (size_t i = 0; i <= sizeof BYTE_LEVEL / sizeof *BYTE_LEVEL; i++) {
        gw_tokenizer *t;
        if (i == sizeof BYTE_LEVEL / sizeof *BYTE_LEVEL)
            CHECK_OK(gw_tokenizer_open("bytes", NULL, &t, &dg), &dg);
        else
            t = open_named(BYTE_LEVEL[i], 0, &dg);
        for (uint64_t k = 0; k < 400; k++)
            check_round_trip(t, s, text, random_text(key, k, text, sizeof text - 4), &dg);
        gw_tokenizer_free(t);
    }
    gw_tok_scratch_free(s);
    gw_diags_release(&dg);
}

/* tiktoken#541, #82, #388: a lone surrogate, a lone byte FF. One policy: bytes come back as they
 * were. */
TEST(invalid_bytes_have_ids) {
    gw_diags dg;
    gw_diags_init(&dg);
    gw_tok_scratch *s = gw_tok_scratch_new();
    static const char *const BAD[] = {"\xff",          "\xed\xa0\xbd",     "a\xed\xa0\xbd b",
                                      "\xc0\x80",      "\xf4\x90\x80\x80", "\xe2\x82",
                                      "x\xf0\x9f\x98", "\x80\x80 \x80"};
    for (size_t i = 0; i < sizeof BYTE_LEVEL / sizeof *BYTE_LEVEL; i++) {
        gw_tokenizer *t = open_named(BYTE_LEVEL[i], 0, &dg);
        for (size_t k = 0; k < sizeof BAD / sizeof *BAD; k++)
            check_round_trip(t, s, (const uint8_t *)BAD[k], strlen(BAD[k]), &dg);
        gw_tokenizer_free(t);
    }
    /* A SentencePiece-style vocabulary has its byte tokens for them. */
    gw_tokenizer *t = open_named("llama2_legacy", 0, &dg);
    gw_ids ids = {0};
    gw_str back = {0};
    encode(t, s, "a\xff", 2, 0, &ids, &dg);
    CHECK_EQ(ids.items[ids.count - 1], gw_tokenizer_token_id(t, "<0xFF>", 6));
    CHECK_OK(gw_tokenizer_decode(t, ids.items, ids.count, false, &back, &dg), &dg);
    CHECK_STR(gw_str_c(&back), "a\xff");
    gw_ids_release(&ids);
    gw_str_release(&back);
    gw_tokenizer_free(t);
    gw_tok_scratch_free(s);
    gw_diags_release(&dg);
}

static int64_t ops_for(const gw_tokenizer *t, const char *unit, size_t n, gw_diags *dg) {
    gw_tok_scratch *s = gw_tok_scratch_new();
    gw_str text = {0};
    gw_ids ids = {0};
    while (text.len < n) gw_str_add(&text, unit);
    encode(t, s, gw_str_c(&text), text.len, 0, &ids, dg);
    int64_t ops = gw_tok_scratch_ops(s);
    gw_ids_release(&ids);
    gw_str_release(&text);
    gw_tok_scratch_free(s);
    return ops;
}

/* harmony#151: 512 KiB of "x" took 119 s, four times as long per doubling. Operations are counted.
 */
TEST(doubling_costs_little_more_than_twice) {
    gw_diags dg;
    gw_diags_init(&dg);
    static const char *const UNITS[] = {"x", "^", " ", "ab", "the", "'s", "\xe2\x82\xac", "\xff"};
    gw_tokenizer *t = open_named("llama3", 0, &dg), *u = open_named("tiktoken_o200k", 0, &dg);
    for (size_t k = 0; k < sizeof UNITS / sizeof *UNITS; k++)
        for (size_t n = 1 << 12; n < (1 << 18); n *= 2) {
            double a = (double)ops_for(k % 2 ? u : t, UNITS[k], n, &dg);
            double b = (double)ops_for(k % 2 ? u : t, UNITS[k], 2 * n, &dg);
            CHECK_MSG(b / a < 2.3, "'%s' x %zu: %.0f operations, twice as many: %.0f", UNITS[k], n,
                      a, b);
        }
    gw_tokenizer_free(t);
    gw_tokenizer_free(u);
    gw_diags_release(&dg);
}

/* tiktoken#245: a million carets overflowed the stack. Four carets are one token there. */
TEST(a_million_carets) {
    gw_diags dg;
    gw_diags_init(&dg);
    gw_str vocab = {0};
    static const char B64[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for (int b = 0; b < 256; b++)
        gw_str_printf(&vocab, "%c%c== %d\n", B64[b >> 2], B64[(b & 3) << 4], b);
    gw_str_add(&vocab, "Xl4= 256\nXl5eXg== 257\n"); /* "^^" and "^^^^" */
    gw_tokenizer *t;
    gw_tokenizer_options o = {.pattern = "gpt2"};
    CHECK_OK(gw_tokenizer_open_tiktoken("carets", gw_str_c(&vocab), vocab.len, &o, &t, &dg), &dg);
    gw_str text = {0};
    gw_ids ids = {0};
    gw_tok_scratch *s = gw_tok_scratch_new();
    for (int i = 0; i < 1000000; i++) gw_str_add_char(&text, '^');
    encode(t, s, gw_str_c(&text), text.len, 0, &ids, &dg);
    CHECK_EQ(ids.count, 250000);
    for (int64_t i = 0; i < ids.count; i++) CHECK_EQ(ids.items[i], 257);
    gw_ids_release(&ids);
    gw_str_release(&text);
    gw_str_release(&vocab);
    gw_tok_scratch_free(s);
    gw_tokenizer_free(t);
    gw_diags_release(&dg);
}

/* gigatoken#37: U+1FAE8 came with Unicode 15. Under tables of 14 it is no symbol, and the space
 * before it is not part of its piece. */
TEST(unicode_version_is_a_choice) {
    gw_diags dg;
    gw_diags_init(&dg);
    gw_tok_scratch *s = gw_tok_scratch_new();
    gw_ids ids = {0};
    for (int version = 13; version <= 15; version++) {
        gw_tokenizer *t = open_named("deepseek3", version, &dg);
        CHECK_EQ(gw_tokenizer_unicode(t), version);
        int32_t space = gw_tokenizer_token_id(t, "\xc4\xa0", 2);
        CHECK(space >= 0);
        encode(t, s, "a \xf0\x9f\xab\xa8", 6, 0, &ids, &dg);
        CHECK_EQ(ids.items[1] == space, version < 15);
        gw_tokenizer_free(t);
    }
    CHECK_EQ(gw_uni_class(0x870, 13), 0);
    CHECK_EQ(gw_uni_class(0x870, 14) & GW_CLASS_LETTER, GW_CLASS_LETTER);
    CHECK_EQ(gw_uni_class(0x11f04, 14), 0);
    CHECK_EQ(gw_uni_class(0x11f04, 15) & GW_CLASS_LETTER, GW_CLASS_LETTER);
    CHECK_EQ(gw_uni_class(0x1c89, 15), 0);
    CHECK_EQ(gw_uni_class(0x1c89, 16) & GW_CLASS_UPPER, GW_CLASS_UPPER);
    gw_tokenizer *t;
    gw_tokenizer_options o = {.unicode_version = 12};
    CHECK_FAILS(gw_tokenizer_open("bytes", &o, &t, &dg), &dg, "13 to 17");
    gw_ids_release(&ids);
    gw_tok_scratch_free(s);
    gw_diags_release(&dg);
}

/* The characters that Unicode 14.0, 15.0, 16.0 and 17.0 added, by the counts of their release notes
 * (15.1's 627 are counted with 16), and each stand-in is of the category and length of what it
 * stands for. */
TEST(newer_characters_have_stand_ins) {
    int64_t count[18] = {0};
    for (uint32_t cp = 0; cp < 0x110000; cp++) {
        int v = gw_uni_version_of(cp);
        count[v]++;
        if (v == 13) {
            CHECK_EQ(gw_uni_stand_in(cp, 13), cp);
            continue;
        }
        uint32_t old = gw_uni_stand_in(cp, v), none = gw_uni_stand_in(cp, v - 1);
        uint8_t b[4];
        int len = gw_utf8_encode(cp, b);
        CHECK_EQ(gw_utf8_encode(old, b), len);
        CHECK_EQ(gw_utf8_encode(none, b), len);
        CHECK_EQ(gw_uni_version_of(old), 13);
        CHECK_EQ(utf8proc_category((utf8proc_int32_t)none), UTF8PROC_CATEGORY_CN);
        CHECK(utf8proc_category((utf8proc_int32_t)old) != UTF8PROC_CATEGORY_CN);
        int known = (int)utf8proc_category((utf8proc_int32_t)cp);
        if (known != UTF8PROC_CATEGORY_CN && cp != 0x1171e)
            CHECK_EQ(utf8proc_category((utf8proc_int32_t)old), known);
    }
    CHECK_EQ(count[14], 838);
    CHECK_EQ(count[15], 4489);
    CHECK_EQ(count[16], 627 + 5185);
    CHECK_EQ(count[17], 4803);
}

/* tokenizers#1437, dolma#176: text of the web that spells a control token is text. */
TEST(specials_are_text_by_default) {
    gw_diags dg;
    gw_diags_init(&dg);
    gw_tok_scratch *s = gw_tok_scratch_new();
    gw_ids ids = {0};
    static const char TEXT[] = "quoting <|endoftext|> in a page";
    static const char *const NAMES[] = {"gpt2", "qwen2"};
    for (int k = 0; k < 2; k++) {
        gw_tokenizer *t = open_named(NAMES[k], 0, &dg);
        int32_t eot = gw_tokenizer_special_id(t, "<|endoftext|>"), found = 0;
        CHECK(eot >= 0 && gw_tokenizer_is_special(t, eot));
        CHECK_EQ(gw_tokenizer_eos(t), eot);
        encode(t, s, TEXT, sizeof TEXT - 1, 0, &ids, &dg);
        for (int64_t i = 0; i < ids.count; i++) CHECK(ids.items[i] != eot);
        encode(t, s, TEXT, sizeof TEXT - 1, GW_ENCODE_SPECIALS, &ids, &dg);
        for (int64_t i = 0; i < ids.count; i++) found += ids.items[i] == eot;
        CHECK_EQ(found, 1);
        gw_tokenizer_free(t);
    }
    gw_ids_release(&ids);
    gw_tok_scratch_free(s);
    gw_diags_release(&dg);
}

TEST(template_adds_bos_once) {
    gw_diags dg;
    gw_diags_init(&dg);
    gw_tok_scratch *s = gw_tok_scratch_new();
    gw_ids ids = {0};
    gw_tokenizer *t = open_named("llama3", 0, &dg);
    encode(t, s, "", 0, GW_ENCODE_TEMPLATE, &ids, &dg);
    CHECK_EQ(ids.count, 1);
    CHECK_EQ(ids.items[0], gw_tokenizer_bos(t));
    CHECK_EQ(gw_tokenizer_bos(t), gw_tokenizer_special_id(t, "<|begin_of_text|>"));
    CHECK_EQ(gw_tokenizer_eos(t), gw_tokenizer_special_id(t, "<|end_of_text|>"));
    encode(t, s, "", 0, 0, &ids, &dg);
    CHECK_EQ(ids.count, 0);
    gw_ids_release(&ids);
    gw_tokenizer_free(t);
    gw_tok_scratch_free(s);
    gw_diags_release(&dg);
}

/* tokenizers#1539, #1495: memory grew with every new text. The scratch is all that an encoding
 * keeps. */
TEST(memory_is_flat) {
    gw_diags dg;
    gw_diags_init(&dg);
    gw_tok_scratch *s = gw_tok_scratch_new();
    gw_tokenizer *t = open_named("qwen2", 0, &dg);
    gw_ids ids = {0};
    char text[64];
    int64_t calls = 0;
    for (int i = 0; i < 20000; i++) {
        int n = snprintf(text, sizeof text, "w%d x%08d unique%x", i, i * 7, i * 31);
        encode(t, s, text, (size_t)n, 0, &ids, &dg);
        if (i == 200) calls = gw_mem_count();
    }
    /* The caches of words double a few times, and no more than to their largest size. */
    CHECK(gw_mem_count() - calls < 20);
    CHECK(gw_tok_scratch_bytes(s) < 64 << 20);
    gw_ids_release(&ids);
    gw_tokenizer_free(t);
    gw_tok_scratch_free(s);
    gw_diags_release(&dg);
}

TEST_LONG(memory_has_a_largest_size) {
    gw_diags dg;
    gw_diags_init(&dg);
    gw_tok_scratch *s = gw_tok_scratch_new();
    gw_tokenizer *t = open_named("qwen2", 0, &dg);
    gw_ids ids = {0};
    char text[96];
    for (int i = 0; i < 3000000; i++) {
        int n = snprintf(text, sizeof text, "w%d x%08d unique%x -----%d----------------%d", i,
                         i * 7, i * 31, i, i);
        encode(t, s, text, (size_t)n, 0, &ids, &dg);
    }
    CHECK(gw_tok_scratch_bytes(s) < 90 << 20);
    gw_ids_release(&ids);
    gw_tokenizer_free(t);
    gw_tok_scratch_free(s);
    gw_diags_release(&dg);
}

/* Special tokens in text are counted, whether they stay text or not. */
TEST(specials_are_counted) {
    gw_diags dg;
    gw_diags_init(&dg);
    gw_tok_scratch *s = gw_tok_scratch_new();
    gw_tokenizer *t = open_named("gpt2", 0, &dg);
    gw_ids ids = {0};
    static const char TEXT[] = "<|endoftext|> a <|endoftext|><|endoftext|> <|endoftex|>";
    encode(t, s, TEXT, sizeof TEXT - 1, 0, &ids, &dg);
    CHECK_EQ(gw_tok_scratch_specials(s), 3);
    encode(t, s, TEXT, sizeof TEXT - 1, GW_ENCODE_SPECIALS, &ids, &dg);
    CHECK_EQ(gw_tok_scratch_specials(s), 6);
    gw_ids_release(&ids);
    gw_tokenizer_free(t);
    gw_tok_scratch_free(s);
    gw_diags_release(&dg);
}

TEST(streamed_text_is_always_valid) {
    gw_diags dg;
    gw_diags_init(&dg);
    gw_tokenizer *t;
    CHECK_OK(gw_tokenizer_open("bytes", NULL, &t, &dg), &dg);
    gw_tok_stream st = {0};
    gw_str out = {0};
    static const uint8_t TEXT[] = "\xf0\x9f\x98\x80|\xe2\x82|\xff|\xc3\xa9";
    for (size_t i = 0; i < sizeof TEXT - 1; i++) {
        gw_tok_stream_add(t, &st, TEXT[i], true, &out);
        CHECK_EQ(gw_utf8_valid_prefix((const uint8_t *)gw_str_c(&out), out.len), out.len);
        if (i < 3) CHECK_EQ(out.len, 0);
    }
    gw_tok_stream_add(t, &st, 256, true, &out);
    gw_tok_stream_end(&st, &out);
    CHECK_STR(gw_str_c(&out), "\xf0\x9f\x98\x80|\xef\xbf\xbd|\xef\xbf\xbd|\xc3\xa9");
    gw_str_release(&out);
    gw_tokenizer_free(t);
    gw_diags_release(&dg);
}

TEST(decode_names_a_bad_id) {
    gw_diags dg;
    gw_diags_init(&dg);
    gw_tokenizer *t;
    gw_str out = {0};
    CHECK_OK(gw_tokenizer_open("bytes", NULL, &t, &dg), &dg);
    CHECK_FAILS(gw_tokenizer_decode(t, (const int32_t[]){65, 257}, 2, false, &out, &dg), &dg,
                "id 257 at index 1");
    gw_diags_clear(&dg);
    CHECK_FAILS(gw_tokenizer_decode(t, (const int32_t[]){-1}, 1, false, &out, &dg), &dg, "id -1");
    gw_str_release(&out);
    gw_tokenizer_free(t);
    gw_diags_release(&dg);
}

/* The pieces of every scanner cover the text, and none is empty. */
TEST(scanners_cover) {
    gw_rng_key key = gw_rng_key_named(11, "scan");
    uint8_t text[300];
    for (int kind = GW_SCAN_GPT2; kind <= GW_SCAN_O200K; kind++)
        for (uint64_t k = 0; k < 500; k++) {
            size_t n = random_text(key, k, text, sizeof text - 4), i = 0;
            while (i < n) {
                size_t e = gw_scan_next((gw_scan)kind, 16, text, n, i);
                CHECK(e > i && e <= n);
                i = e;
            }
        }
}
