// SPDX-License-Identifier: Apache-2.0
// tokenizer.json and .tiktoken as outside bytes: what is unknown, contradictory or hostile is
// refused with its place; the components that no golden file has are held to hand-worked examples.
#include <string.h>

#include "base/io.h"        /* gw_file_read */
#include "base/rng.h"       /* gw_rng_u32 */
#include "data/tokenizer.h" /* gw_tokenizer */
#include "harness.h"        /* TEST, CHECK */

#define VOCAB                                                                                      \
    "\"vocab\":{\"a\":0,\"b\":1,\"ab\":2,\"\xe2\x96\x81\":3,\"1\":4,\"\xe2\x96\x81"                \
    "a\":5,\"A\":6,\"\xc3\xa9\":7,\"c\":8}"
#define MERGES "\"merges\":[\"a b\",[\"\xe2\x96\x81\",\"a\"]]"
#define MODEL  "\"model\":{\"type\":\"BPE\"," VOCAB "," MERGES "}"

static gw_status open_text(const char *json, gw_tokenizer **t, gw_diags *dg) {
    return gw_tokenizer_open_json("t.json", json, strlen(json), NULL, t, dg);
}

static void refused(const char *json, const char *why) {
    gw_diags dg;
    gw_tokenizer *t = NULL;
    gw_diags_init(&dg);
    CHECK_FAILS(open_text(json, &t, &dg), &dg, why);
    CHECK(t == NULL);
    gw_diags_release(&dg);
}

TEST(contradictions_are_refused) {
    refused("{", "not valid JSON");
    refused("[]", "expected an object");
    refused("{\"model\":{\"type\":\"Unigram\"}}", "Unigram");
    refused("{\"model\":{\"type\":\"BPE\",\"vocab\":{},\"merges\":[]}}", "empty");
    refused("{\"model\":{\"vocab\":{\"a\":0,\"b\":0},\"merges\":[]}}", "id 0 is given to");
    refused("{\"model\":{\"vocab\":{\"a\":-1},\"merges\":[]}}", "model.vocab['a']");
    refused("{\"model\":{\"vocab\":{\"a\":4000000000},\"merges\":[]}}", "outside");
    refused("{\"model\":{\"vocab\":{\"a\":99999999999999999999},\"merges\":[]}}",
            "model.vocab['a']");
    refused("{\"model\":{\"vocab\":{\"a\":\"0\"},\"merges\":[]}}", "expected a whole number");
    refused("{\"model\":{\"vocab\":{\"a\":0.5},\"merges\":[]}}", "expected a whole number");
    refused("{\"model\":{\"vocab\":{\"a\":0,\"b\":1},\"merges\":[\"a b\"]}}",
            "merges[0]: 'ab' is not");
    refused("{\"model\":{\"vocab\":{\"a\":0},\"merges\":[\"a x\"]}}", "merges[0]: 'x' is not");
    refused("{\"model\":{\"vocab\":{\"a\":0},\"merges\":[\"a b c\"]}}", "merges[0]: expected");
    refused("{\"model\":{\"vocab\":{\"a\":0},\"merges\":[[\"a\"]]}}", "merges[0]: expected");
    refused("{\"model\":{\"vocab\":{\"a\":0},\"merges\":{}}}", "model.merges");
    refused("{\"model\":{\"vocab\":{\"a\":0},\"merges\":[],\"unk_token\":\"u\"}}",
            "model.unk_token");
    refused("{\"model\":{\"vocab\":{\"a\":0},\"merges\":[],\"dropout\":0.1}}", "model.dropout");
    refused("{" MODEL ",\"added_tokens\":[{\"id\":1,\"content\":\"x\"}]}", "id 1 is 'b'");
    refused("{" MODEL ",\"added_tokens\":[{\"id\":9,\"content\":\"a\"}]}", "has id 9 here and 0");
    refused("{" MODEL ",\"added_tokens\":[{\"id\":-9,\"content\":\"x\"}]}", "added_tokens[0].id");
    refused("{" MODEL ",\"added_tokens\":[{\"id\":2000000000,\"content\":\"x\"}]}", "outside");
}

TEST(unknown_parts_are_named) {
    refused("{" MODEL ",\"frobnicate\":1}", "'frobnicate' is not known");
    refused("{" MODEL ",\"normalizer\":{\"type\":\"Precompiled\"}}",
            "normalizer: type 'Precompiled'");
    refused("{" MODEL ",\"normalizer\":{\"type\":\"NFC\",\"x\":1}}", "normalizer: member 'x'");
    refused("{" MODEL ",\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":["
            "{\"type\":\"ByteLevel\"},{\"type\":\"Digits\"}]}}",
            "pre_tokenizer.pretokenizers[1]: 'Digits' after ByteLevel");
    refused("{" MODEL ",\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"(\"},"
            "\"behavior\":\"Isolated\"}}",
            "not a regex");
    refused("{" MODEL ",\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"[a&&b]\"},"
            "\"behavior\":\"Isolated\"}}",
            "intersections");
    refused("{" MODEL ",\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"String\":\"a\"},"
            "\"behavior\":\"Sideways\"}}",
            "pre_tokenizer.behavior");
    refused("{" MODEL ",\"decoder\":{\"type\":\"WordPiece\"}}", "decoder: type 'WordPiece'");
    refused("{" MODEL ",\"post_processor\":{\"type\":\"BertProcessing\"}}", "post_processor");
}

/* ids of text under a component; the ids are worked out by hand from VOCAB and MERGES. */
static void ids_are(const char *part, const char *text, const char *want) {
    gw_diags dg;
    gw_tokenizer *t = NULL;
    gw_str json = {0}, got = {0};
    gw_ids ids = {0};
    gw_diags_init(&dg);
    gw_str_printf(&json, "{" MODEL "%s%s}", *part ? "," : "", part);
    CHECK_OK(open_text(gw_str_c(&json), &t, &dg), &dg);
    gw_tok_scratch *s = gw_tok_scratch_new();
    CHECK_OK(gw_tokenizer_encode(t, s, text, strlen(text), GW_ENCODE_SPECIALS | GW_ENCODE_TEMPLATE,
                                 &ids, &dg),
             &dg);
    for (int64_t i = 0; i < ids.count; i++)
        gw_str_printf(&got, "%s%d", i ? " " : "", (int)ids.items[i]);
    CHECK_STR(gw_str_c(&got), want);
    gw_tok_scratch_free(s);
    gw_tokenizer_free(t);
    gw_ids_release(&ids);
    gw_str_release(&json);
    gw_str_release(&got);
    gw_diags_release(&dg);
}

#define SPLIT(pattern, behavior)                                                                   \
    "\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"String\":\"" pattern                     \
    "\"},\"behavior\":\"" behavior "\",\"invert\":false}"

TEST(components_by_hand) {
    ids_are("", "ab", "2");
    ids_are("", "aab", "0 2");
    ids_are("", "azb", "2"); /* no unk: what has no token vanishes, and its neighbours meet */
    ids_are("\"normalizer\":{\"type\":\"Lowercase\"}", "AB", "2");
    ids_are("\"normalizer\":{\"type\":\"NFC\"}", "e\xcc\x81", "7");
    ids_are("\"normalizer\":{\"type\":\"NFKC\"}", "\xef\xbd\x81\xef\xbd\x82",
            "2"); /* fullwidth ab */
    ids_are("\"normalizer\":{\"type\":\"Strip\",\"strip_left\":true,\"strip_right\":true}",
            " \nab\t", "2");
    ids_are(
        "\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"Prepend\",\"prepend\":"
        "\"\xe2\x96\x81\"},{\"type\":\"Replace\",\"pattern\":{\"Regex\":\"x+\"},\"content\":\"b\"}]"
        "}",
        "axxc", "3 2 8");
    ids_are(SPLIT("b", "Isolated"), "abab", "0 1 0 1");
    ids_are(SPLIT("b", "Removed"), "abab", "0 0");
    ids_are(SPLIT("b", "MergedWithPrevious"), "abab", "2 2");
    ids_are(SPLIT("b", "MergedWithPrevious"), "abbab", "2 1 2");
    ids_are(SPLIT("a", "MergedWithNext"), "abab", "2 2");
    ids_are(SPLIT("a", "MergedWithNext"), "aab", "0 2");
    ids_are(SPLIT("1", "Contiguous"), "ab11ab", "2 4 4 2");
    ids_are("\"pre_tokenizer\":{\"type\":\"Metaspace\",\"replacement\":\"\xe2\x96\x81\","
            "\"prepend_scheme\":\"always\",\"split\":true}",
            "a ab", "5 3 2");
    ids_are("\"pre_tokenizer\":{\"type\":\"WhitespaceSplit\"}", "a b\nab", "0 1 2");
    ids_are("\"pre_tokenizer\":{\"type\":\"Digits\",\"individual_digits\":true}", "ab11", "2 4 4");
    ids_are(
        "\"added_tokens\":[{\"id\":9,\"content\":\"<s>\",\"special\":true}],"
        "\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":"
        "\"<s>\",\"type_id\":0}},{\"Sequence\":{\"id\":\"A\",\"type_id\":0}},{\"SpecialToken\":{"
        "\"id\":\"<s>\",\"type_id\":0}}],\"pair\":[],\"special_tokens\":{\"<s>\":{\"id\":\"<s>\","
        "\"ids\":[9],\"tokens\":[\"<s>\"]}}}",
        "a<s>b", "9 0 9 1 9");
}

TEST(units_without_tokens) {
    gw_diags dg;
    gw_tokenizer *t = NULL;
    gw_ids ids = {0};
    gw_diags_init(&dg);
    static const char *const FUSE[] = {"false", "true"};
    for (int fuse = 0; fuse < 2; fuse++) {
        char json[512];
        snprintf(
            json, sizeof json,
            "{\"model\":{\"type\":\"BPE\",\"unk_token\":\"?\",\"fuse_unk\":%s,\"vocab\":{\"?\":0,"
            "\"a\":1},\"merges\":[]}}",
            FUSE[fuse]);
        CHECK_OK(open_text(json, &t, &dg), &dg);
        gw_tok_scratch *s = gw_tok_scratch_new();
        ids.count = 0;
        CHECK_OK(gw_tokenizer_encode(t, s, "azzza", 5, 0, &ids, &dg), &dg);
        CHECK_EQ(ids.count, fuse ? 3 : 5);
        gw_tok_scratch_free(s);
        gw_tokenizer_free(t);
    }
    gw_ids_release(&ids);
    gw_diags_release(&dg);
}

/* Continuing prefix and end suffix: "ab" is a, then ##b that ends the word. */
TEST(prefix_and_suffix) {
    gw_diags dg;
    gw_tokenizer *t = NULL;
    gw_ids ids = {0};
    gw_str text = {0};
    gw_diags_init(&dg);
    CHECK_OK(open_text("{\"model\":{\"type\":\"BPE\",\"continuing_subword_prefix\":\"##\","
                       "\"end_of_word_suffix\":\"</w>\",\"vocab\":{\"a\":0,\"##a\":1,\"##b</w>\":2,"
                       "\"ab</w>\":3,\"a</w>\":4},\"merges\":[[\"a\",\"##b</w>\"]]},\"decoder\":{"
                       "\"type\":\"BPEDecoder\",\"suffix\":\"</w>\"}}",
                       &t, &dg),
             &dg);
    gw_tok_scratch *s = gw_tok_scratch_new();
    CHECK_OK(gw_tokenizer_encode(t, s, "ab", 2, 0, &ids, &dg), &dg);
    CHECK_OK(gw_tokenizer_encode(t, s, "aab", 3, 0, &ids, &dg), &dg);
    CHECK_OK(gw_tokenizer_encode(t, s, "a", 1, 0, &ids, &dg), &dg);
    CHECK_EQ(ids.count, 5);
    static const int32_t WANT[] = {3, 0, 1, 2, 4};
    CHECK(!memcmp(ids.items, WANT, sizeof WANT));
    CHECK_OK(gw_tokenizer_decode(t, (const int32_t[]){3, 4}, 2, false, &text, &dg), &dg);
    CHECK_STR(gw_str_c(&text), "ab a");
    gw_str_release(&text);
    gw_ids_release(&ids);
    gw_tok_scratch_free(s);
    gw_tokenizer_free(t);
    gw_diags_release(&dg);
}

/* Metaspace's first token loses its mark; Fuse and Strip take the leading space of the whole text.
 */
TEST(decoders_treat_the_first_token_apart) {
    static const char *const PART[] = {
        "{\"type\":\"Metaspace\",\"replacement\":\"\xe2\x96\x81\",\"prepend_scheme\":\"always\"}",
        "{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Replace\",\"pattern\":{\"String\":"
        "\"\xe2\x96\x81\"},\"content\":\" "
        "\"},{\"type\":\"Fuse\"},{\"type\":\"Strip\",\"content\":\" \","
        "\"start\":1,\"stop\":0}]}"};
    for (int k = 0; k < 2; k++) {
        gw_diags dg;
        gw_tokenizer *t = NULL;
        gw_str json = {0}, text = {0}, shown = {0};
        gw_diags_init(&dg);
        gw_str_printf(&json, "{" MODEL ",\"decoder\":%s}", PART[k]);
        CHECK_OK(open_text(gw_str_c(&json), &t, &dg), &dg);
        CHECK_OK(gw_tokenizer_decode(t, (const int32_t[]){5, 5, 2}, 3, false, &text, &dg), &dg);
        CHECK_STR(gw_str_c(&text), "a aab");
        gw_tok_stream st = {0};
        for (int i = 0; i < 3; i++)
            gw_tok_stream_add(t, &st, (const int32_t[]){5, 5, 2}[i], false, &shown);
        CHECK_STR(gw_str_c(&shown), "a aab");
        gw_str_release(&json);
        gw_str_release(&text);
        gw_str_release(&shown);
        gw_tokenizer_free(t);
        gw_diags_release(&dg);
    }
}

TEST(bad_tiktoken_lines_are_named) {
    static const struct {
        const char *text, *why;
    } CASES[] = {{"IQ== 0\nIg==\n", "a space and a rank"},
                 {"I!== 0\n", "not base64"},
                 {"IQ== x\n", "not a rank"},
                 {"IQ== 0\nIg== 0\n", "given before"},
                 {"IQ== 0\nIQ== 1\n", "given before"},
                 {"IQ== 9999999\n", "out of range"},
                 {"IQ== 0\n", "no token for byte 0x00"}};
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        gw_diags dg;
        gw_tokenizer *t = NULL;
        gw_tokenizer_options o = {.pattern = "gpt2"};
        gw_diags_init(&dg);
        CHECK_FAILS(
            gw_tokenizer_open_tiktoken("v", CASES[i].text, strlen(CASES[i].text), &o, &t, &dg), &dg,
            CASES[i].why);
        gw_diags_release(&dg);
    }
}

/* Files damaged at random open or are refused; what opens encodes. */
TEST(damaged_files_do_no_harm) {
    static const char *const NAMES[] = {"llama3/tokenizer.json", "llama2_legacy/tokenizer.json",
                                        "added_tokens/tokenizer.json",
                                        "tiktoken_cl100k/vocab.tiktoken"};
    gw_rng_key key = gw_rng_key_named(3, "damage");
    int total = 0;
    for (int k = 0; k < 4; k++) {
        gw_diags dg;
        gw_str whole = {0};
        char below[128];
        int opened = 0;
        gw_diags_init(&dg);
        snprintf(below, sizeof below, "golden/tokenizers/%s", NAMES[k]);
        CHECK_OK(gw_file_read(test_source_path(below), 0, &whole, &dg), &dg);
        for (uint64_t i = 0; i < 60; i++) {
            gw_str text = {0};
            gw_tokenizer *t = NULL;
            gw_tokenizer_options o = {.pattern = "cl100k"};
            gw_str_add_n(&text, whole.data, whole.len);
            for (uint64_t j = 0; j <= (i % 4 == 3); j++) {
                uint32_t x = gw_rng_u32(key, 1000 * i + 2 * j), at = x % (uint32_t)text.len;
                if (i % 3 == 0) at %= 1500; /* where the components stand */
                uint32_t how = gw_rng_u32(key, 1000 * i + 2 * j + 1);
                text.data[at] = how % 3 ? "0123456789\",:{}[]-naftE\\ "[how / 3 % 25] : (char)how;
            }
            if (i % 10 == 9) text.len = gw_rng_u32(key, 77 + i) % text.len;
            gw_status st = (k == 3 ? gw_tokenizer_open_tiktoken : gw_tokenizer_open_json)(
                "damaged", text.data, text.len, &o, &t, &dg);
            CHECK((st == GW_OK) == (t != NULL));
            if (t) {
                gw_tok_scratch *s = gw_tok_scratch_new();
                gw_ids ids = {0};
                static const char TEXT[] =
                    "The model's <|eot_id|> 12345 \xf0\x9f\x98\x80\xff\n\n caf\xc3\xa9";
                st = gw_tokenizer_encode(t, s, TEXT, sizeof TEXT - 1, 3, &ids, &dg);
                gw_str back = {0};
                if (st == GW_OK)
                    CHECK_OK(gw_tokenizer_decode(t, ids.items, ids.count, false, &back, &dg), &dg);
                gw_str_release(&back);
                gw_ids_release(&ids);
                gw_tok_scratch_free(s);
                gw_tokenizer_free(t);
                opened++;
            }
            gw_str_release(&text);
            gw_diags_clear(&dg);
        }
        CHECK_MSG(opened < 60, "%s: all opened", NAMES[k]);
        total += opened;
        gw_str_release(&whole);
        gw_diags_release(&dg);
    }
    CHECK_MSG(total > 5, "%d opened", total);
}
