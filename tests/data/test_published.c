// SPDX-License-Identifier: Apache-2.0
// Published vocabularies, which are not stored: their ids for every code point in six contexts and
// for texts in twenty scripts have the check sums of the public libraries'
// (golden/make_published.py).
#include <stdlib.h>
#include <string.h>
#include <zlib.h> /* crc32 */

#include "base/io.h"        /* gw_path_exists */
#include "data/tokenizer.h" /* gw_tokenizer */
#include "data/unicode.h"   /* gw_utf8_encode */
#include "file/json.h"      /* gw_json_read_file */
#include "harness.h"        /* TEST, CHECK */

static uint32_t check_sum(const gw_tokenizer *t, gw_tok_scratch *s, const char *text, size_t n,
                          gw_ids *ids, gw_diags *dg) {
    ids->count = 0;
    CHECK_OK(gw_tokenizer_encode(t, s, text, n, GW_ENCODE_SPECIALS, ids, dg), dg);
    return (uint32_t)crc32(0, (const Bytef *)ids->items, (uInt)(ids->count * 4));
}

/* Each of 4096 code points in each context. */
static void contexts_of(const json_t *contexts, uint32_t first, uint32_t count, gw_str *out) {
    size_t k;
    json_t *context;
    gw_str_clear(out);
    for (uint32_t cp = first; cp < first + count; cp++) {
        uint8_t b[4];
        if (cp >= 0xd800 && cp < 0xe000) continue;
        size_t len = (size_t)gw_utf8_encode(cp, b);
        json_array_foreach(contexts, k, context) {
            for (const char *p = json_string_value(context); *p; p++) {
                if (p[0] == '{' && p[1] == '}')
                    gw_str_add_n(out, b, (p++, len));
                else
                    gw_str_add_char(out, *p);
            }
        }
    }
}

static void check_published(const char *name) {
    gw_diags dg;
    json_t *root;
    gw_tokenizer *t;
    char path[4096];
    const char *folder = getenv("GW_TEST_VOCABULARIES");
    if (!folder) SKIP("GW_TEST_VOCABULARIES names no folder made by golden/vocabularies.py");
    snprintf(path, sizeof path, "%s/%s", folder, name);
    if (!gw_path_exists(path)) SKIP("no %s", path);
    gw_diags_init(&dg);
    CHECK_OK(gw_json_read_file(test_source_path("golden/tokenizers/published.json"), 0, &root, &dg),
             &dg);
    const json_t *v = json_object_get(json_object_get(root, "vocabularies"), name);
    const json_t *contexts = json_object_get(root, "contexts"), *text;
    gw_tokenizer_options o = {.pattern = json_string_value(json_object_get(v, "pattern"))};
    CHECK_OK(gw_tokenizer_open(path, &o, &t, &dg), &dg);
    gw_tok_scratch *s = gw_tok_scratch_new();
    gw_ids ids = {0};
    gw_str all = {0};
    size_t i;
    json_array_foreach(json_object_get(root, "texts"), i, text)
        CHECK_MSG(check_sum(t, s, json_string_value(text), json_string_length(text), &ids, &dg) ==
                      json_integer_value(json_array_get(json_object_get(v, "texts"), i)),
                  "%s: other ids for text %zu", name, i);
    const json_t *sums = json_object_get(v, "code_points");
    uint32_t block = (uint32_t)json_integer_value(json_object_get(root, "block"));
    CHECK_EQ(json_array_size(sums), json_integer_value(json_object_get(root, "end")) / block);
    for (i = 0; i < json_array_size(sums); i++) {
        contexts_of(contexts, (uint32_t)i * block, block, &all);
        CHECK_MSG(check_sum(t, s, gw_str_c(&all), all.len, &ids, &dg) ==
                      json_integer_value(json_array_get(sums, i)),
                  "%s: other ids from U+%04X on", name, (unsigned)(i * block));
    }
    gw_str_release(&all);
    gw_ids_release(&ids);
    gw_tok_scratch_free(s);
    gw_tokenizer_free(t);
    json_decref(root);
    gw_diags_release(&dg);
}

TEST(published_r50k) { check_published("r50k.tiktoken"); }
TEST(published_cl100k) { check_published("cl100k.tiktoken"); }
TEST(published_o200k) { check_published("o200k.tiktoken"); }
TEST(published_llama3) { check_published("llama3.tiktoken"); }
TEST(published_qwen) { check_published("qwen.tiktoken"); }
TEST(published_deepseek3) { check_published("deepseek3.json"); }
TEST(published_anthropic) { check_published("anthropic.json"); }

/* gigatoken#37: DeepSeek's vocabulary, "a", a space and U+1FAE8 under tables of Unicode 14. */
TEST(a_newer_emoji_under_older_tables) {
    static const int32_t WANT[] = {67, 223, 3574, 107, 104};
    gw_diags dg;
    gw_tokenizer *t;
    char path[4096];
    const char *folder = getenv("GW_TEST_VOCABULARIES");
    if (!folder) SKIP("GW_TEST_VOCABULARIES names no folder made by golden/vocabularies.py");
    snprintf(path, sizeof path, "%s/deepseek3.json", folder);
    if (!gw_path_exists(path)) SKIP("no %s", path);
    gw_diags_init(&dg);
    gw_tokenizer_options o = {.unicode_version = 14};
    CHECK_OK(gw_tokenizer_open(path, &o, &t, &dg), &dg);
    gw_tok_scratch *s = gw_tok_scratch_new();
    gw_ids ids = {0};
    CHECK_OK(gw_tokenizer_encode(t, s, "a \xf0\x9f\xab\xa8", 6, 0, &ids, &dg), &dg);
    CHECK_EQ(ids.count, 5);
    for (int i = 0; i < 5; i++) CHECK_EQ(ids.items[i], WANT[i]);
    gw_ids_release(&ids);
    gw_tok_scratch_free(s);
    gw_tokenizer_free(t);
    gw_diags_release(&dg);
}
