// SPDX-License-Identifier: Apache-2.0
// Ids and texts are those of the public libraries: Hugging Face tokenizers and tiktoken made
// golden/tokenizers/*/cases.json (see the README there).
//
// The files were made with libraries whose tables are Unicode 16's, the default here.
#include <stdlib.h>
#include <string.h>

#include "base/map.h"       /* gw_vec_push */
#include "data/tokenizer.h" /* gw_tokenizer */
#include "data/unicode.h"   /* gw_utf8_repair */
#include "file/json.h"      /* gw_json_read_file */
#include "harness.h"        /* TEST, CHECK */

typedef struct golden {
    gw_diags dg;
    gw_tokenizer *t;
    gw_tok_scratch *s;
    json_t *cases;
    bool tiktoken;
    bool verbatim; /* added tokens with letters of the byte alphabet: the library takes them for
                      bytes */
} golden;

static void open_golden(golden *g, const char *name) {
    char below[256];
    memset(g, 0, sizeof *g);
    gw_diags_init(&g->dg);
    g->tiktoken = !strncmp(name, "tiktoken_", 9);
    g->verbatim = !strcmp(name, "added_tokens");
    snprintf(below, sizeof below, "golden/tokenizers/%s/cases.json", name);
    CHECK_OK(gw_json_read_file(test_source_path(below), 0, &g->cases, &g->dg), &g->dg);
    gw_tok_special specials[2];
    gw_tokenizer_options o = {0};
    if (g->tiktoken) {
        const char *key;
        json_t *v, *sp = json_object_get(g->cases, "special_tokens");
        o.specials = specials;
        json_object_foreach(sp, key, v) {
            CHECK(o.nspecials < 2);
            specials[o.nspecials++] = (gw_tok_special){key, (int32_t)json_integer_value(v)};
        }
        o.pattern = !strcmp(name, "tiktoken_r50k") ? "gpt2" : name + 9;
    }
    snprintf(below, sizeof below, "golden/tokenizers/%s/%s", name,
             g->tiktoken ? "vocab.tiktoken" : "tokenizer.json");
    CHECK_OK(gw_tokenizer_open(test_source_path(below), &o, &g->t, &g->dg), &g->dg);
    CHECK_EQ(g->dg.nwarnings, 0);
    g->s = gw_tok_scratch_new();
}

static void close_golden(golden *g) {
    gw_tok_scratch_free(g->s);
    gw_tokenizer_free(g->t);
    json_decref(g->cases);
    gw_diags_release(&g->dg);
}

static bool same_ids(const json_t *want, const gw_ids *got) {
    if ((int64_t)json_array_size(want) != got->count) return false;
    for (int64_t i = 0; i < got->count; i++)
        if (json_integer_value(json_array_get(want, (size_t)i)) != got->items[i]) return false;
    return true;
}

static void note_ids(const char *what, const json_t *want, const gw_ids *got) {
    gw_str s = {0};
    for (size_t i = 0; i < json_array_size(want) && i < 60; i++)
        gw_str_printf(&s, " %d", (int)json_integer_value(json_array_get(want, i)));
    gw_str_add(&s, " | got");
    for (int64_t i = 0; i < got->count && i < 60; i++) gw_str_printf(&s, " %d", (int)got->items[i]);
    test_note("%s: want%s", what, gw_str_c(&s));
    gw_str_release(&s);
}

static void check_encode(golden *g, const json_t *c, const json_t *want, unsigned flags,
                         const char *what) {
    const json_t *text = json_object_get(c, "text");
    const char *group = json_string_value(json_object_get(c, "group"));
    gw_ids ids = {0};
    CHECK_OK(gw_tokenizer_encode(g->t, g->s, json_string_value(text), json_string_length(text),
                                 flags, &ids, &g->dg),
             &g->dg);
    bool same = same_ids(want, &ids);
    if (!same) {
        note_ids(what, want, &ids);
        test_fail(__FILE__, __LINE__, "group %s text '%s'", group, json_string_value(text));
    }
    gw_ids_release(&ids);
}

/* Runs of U+FFFD become one: the libraries differ in how many stand for a run of bad bytes. */
static void squeeze(gw_str *s) {
    size_t w = 0;
    for (size_t i = 0; i < s->len;) {
        bool bad = s->len - i >= 3 && !memcmp(s->data + i, "\xef\xbf\xbd", 3);
        bool after = w >= 3 && !memcmp(s->data + w - 3, "\xef\xbf\xbd", 3);
        if (bad && after) {
            i += 3;
            continue;
        }
        s->data[w++] = s->data[i++];
    }
    s->len = w;
}

/* What we decode, repaired to text, is what the library decodes. */
static void check_decode(golden *g, const json_t *ids, const json_t *want, bool skip_special) {
    gw_str got = {0}, text = {0}, expect = {0}, shown = {0};
    gw_ids list = {0};
    for (size_t i = 0; i < json_array_size(ids); i++)
        gw_vec_push(&list, (int32_t)json_integer_value(json_array_get(ids, i)));
    CHECK_OK(gw_tokenizer_decode(g->t, list.items, list.count, skip_special, &got, &g->dg), &g->dg);
    gw_str_reserve(&text, 3 * got.len + 1);
    text.len = gw_utf8_repair((const uint8_t *)gw_str_c(&got), got.len, (uint8_t *)text.data);
    gw_tok_stream st = {0};
    for (int64_t i = 0; i < list.count; i++)
        gw_tok_stream_add(g->t, &st, list.items[i], skip_special, &shown);
    gw_tok_stream_end(&st, &shown);
    CHECK_MSG(shown.len == text.len && !memcmp(gw_str_c(&shown), gw_str_c(&text), text.len),
              "streamed '%s', decoded '%.*s'", gw_str_c(&shown), (int)text.len, gw_str_c(&text));
    gw_str_add_n(&expect, json_string_value(want), json_string_length(want));
    /* SentencePiece-style decoding gives up on a whole run of byte tokens if it is not valid. */
    bool by_run = gw_tokenizer_token_id(g->t, "<0x0A>", 6) >= 0;
    bool valid = gw_utf8_valid_prefix((const uint8_t *)gw_str_c(&got), got.len) == got.len;
    squeeze(&text);
    squeeze(&expect);
    if ((!by_run && !g->verbatim) || (by_run && valid))
        CHECK_MSG(text.len == expect.len && !memcmp(gw_str_c(&text), gw_str_c(&expect), text.len),
                  "decoded '%.*s', want '%s'", (int)text.len, gw_str_c(&text), gw_str_c(&expect));
    gw_ids_release(&list);
    gw_str_release(&got);
    gw_str_release(&text);
    gw_str_release(&expect);
    gw_str_release(&shown);
}

static int64_t check_cases(golden *g) {
    size_t i;
    json_t *c;
    json_array_foreach(json_object_get(g->cases, "cases"), i, c) {
        if (json_object_get(c, "utf16")) continue;
        const json_t *ids = json_object_get(c, "ids"), *special = json_object_get(c, "ids_special");
        const json_t *plain = json_object_get(c, "ids_plain");
        if (g->tiktoken) {
            check_encode(g, c, ids, 0, "ordinary");
            if (special) check_encode(g, c, special, GW_ENCODE_SPECIALS, "special");
        } else {
            check_encode(g, c, ids, GW_ENCODE_SPECIALS, "parsed");
            check_encode(g, c, special, GW_ENCODE_SPECIALS | GW_ENCODE_TEMPLATE, "template");
            check_encode(g, c, plain ? plain : ids, 0, "plain");
        }
        check_decode(g, ids, json_object_get(c, "decoded"), false);
    }
    return (int64_t)i;
}

/* "repeat" times "count"; the ids as run lengths, or a head, a unit that repeats and a tail. */
static void expand_ids(const json_t *run, gw_ids *out) {
    size_t i;
    json_t *v;
    json_array_foreach(json_object_get(run, "ids_rle"), i,
                       v) for (int64_t k = json_integer_value(json_array_get(v, 1)); k > 0; k--)
        gw_vec_push(out, (int32_t)json_integer_value(json_array_get(v, 0)));
    json_array_foreach(json_object_get(run, "ids_head"), i, v)
        gw_vec_push(out, (int32_t)json_integer_value(v));
    for (int64_t k = json_integer_value(json_object_get(run, "unit_count")); k > 0; k--)
        json_array_foreach(json_object_get(run, "ids_unit"), i, v)
            gw_vec_push(out, (int32_t)json_integer_value(v));
    json_array_foreach(json_object_get(run, "ids_tail"), i, v)
        gw_vec_push(out, (int32_t)json_integer_value(v));
}

static void check_runs(golden *g) {
    size_t i;
    json_t *run;
    json_array_foreach(json_object_get(g->cases, "runs"), i, run) {
        gw_str text = {0};
        gw_ids want = {0}, got = {0};
        const char *unit = json_string_value(json_object_get(run, "repeat"));
        for (int64_t k = json_integer_value(json_object_get(run, "count")); k > 0; k--)
            gw_str_add(&text, unit);
        expand_ids(run, &want);
        CHECK_OK(gw_tokenizer_encode(g->t, g->s, gw_str_c(&text), text.len, 0, &got, &g->dg),
                 &g->dg);
        CHECK_MSG(want.count == got.count &&
                      !memcmp(want.items, got.items, (size_t)got.count * sizeof *got.items),
                  "'%s' repeated: %lld ids, want %lld", unit, (long long)got.count,
                  (long long)want.count);
        gw_str_release(&text);
        gw_ids_release(&want);
        gw_ids_release(&got);
    }
}

static void check_decodes(golden *g) {
    size_t i;
    json_t *c;
    json_array_foreach(json_object_get(g->cases, "decode"), i, c) {
        const json_t *skip = json_object_get(c, "decoded_skip");
        check_decode(g, json_object_get(c, "ids"), json_object_get(c, "decoded"), false);
        if (skip) check_decode(g, json_object_get(c, "ids"), skip, true);
    }
}

static void check_golden(const char *name, int64_t least) {
    golden g;
    open_golden(&g, name);
    CHECK(check_cases(&g) >= least);
    check_runs(&g);
    check_decodes(&g);
    close_golden(&g);
}

TEST(golden_gpt2) { check_golden("gpt2", 400); }
TEST(golden_llama3) { check_golden("llama3", 400); }
TEST(golden_qwen2) { check_golden("qwen2", 400); }
TEST(golden_deepseek3) { check_golden("deepseek3", 400); }
TEST(golden_llama2_legacy) { check_golden("llama2_legacy", 400); }
TEST(golden_llama2_metaspace) { check_golden("llama2_metaspace", 400); }
TEST(golden_added_tokens) { check_golden("added_tokens", 30); }
TEST(golden_tiktoken_r50k) { check_golden("tiktoken_r50k", 400); }
TEST(golden_tiktoken_cl100k) { check_golden("tiktoken_cl100k", 400); }
TEST(golden_tiktoken_o200k) { check_golden("tiktoken_o200k", 400); }
