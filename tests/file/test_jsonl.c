// SPDX-License-Identifier: Apache-2.0
// JSON lines: the grammar of RFC 8259, paths, and lines that cannot be read. What is valid is
// decided by jansson, another implementation.
#include <jansson.h>
#include <string.h>

#include "archive_maker.h"
#include "file/jsonl.h"
#include "harness.h"

static const char *const keys[] = {"text", "meta.url", "meta"};

static const char *parse(const char *line, gw_str *scratch, gw_jsonl_value *v) {
    int64_t at;
    return gw_jsonl_parse(line, (int64_t)strlen(line), keys, 3, scratch, v, &at);
}

TEST(jsonl_values) {
    gw_str s = {0};
    gw_jsonl_value v[3];
    CHECK(!parse("{\"a\":[1,{\"text\":2}],\"text\":\"a\\n\\u00e9\\ud83d\\ude00\\ud800!\",\"meta\":{"
                 "\"url\":\"u\"}}",
                 &s, v));
    CHECK_STR(v[0].text, "a\n\xc3\xa9\xf0\x9f\x98\x80\xef\xbf\xbd!");
    CHECK_STR(v[1].text, "u");
    CHECK(!v[2].found);
    CHECK(!parse(" {\"text\" : 12.5e3 , \"text\":true} ", &s, v));
    CHECK_STR(v[0].text, "true");
    CHECK(!parse("{\"te\\u0078t\":\"named by an escape\"}", &s, v));
    CHECK_STR(v[0].text, "named by an escape");
    CHECK(!parse("{\"text\":null,\"meta.url\":\"no path\"}", &s, v));
    CHECK(!v[0].found && !v[1].found);
    gw_str_release(&s);
}

TEST(jsonl_refuses_what_jansson_refuses) {
    static const char *const lines[] = {"{}",
                                        "{\"a\":1}",
                                        "{\"a\":-0.5e-3}",
                                        "{\"a\":01}",
                                        "{\"a\":1.}",
                                        "{\"a\":.5}",
                                        "{\"a\":+1}",
                                        "{\"a\":-}",
                                        "{\"a\":1e}",
                                        "{\"a\":tru}",
                                        "{\"a\":true}",
                                        "{\"a\":nul}",
                                        "{\"a\"}",
                                        "{\"a\":}",
                                        "{\"a\":1,}",
                                        "{,}",
                                        "{a:1}",
                                        "{\"a\":[1,]}",
                                        "{\"a\":[,1]}",
                                        "{\"a\":[1 2]}",
                                        "{\"a\":[]}",
                                        "{\"a\":{}}",
                                        "{\"a\":1}}",
                                        "{\"a\":1} x",
                                        "{\"a\":\"\\x\"}",
                                        "{\"a\":\"\\u12\"}",
                                        "{\"a\":\"\t\"}",
                                        "{\"a\":\"",
                                        "{\"a\":\"\\",
                                        "",
                                        "{",
                                        "{\"a\":[[[[1]]]]}",
                                        "{\"a\":1 \"b\":2}",
                                        "{\"a\":1,\"b\":[{\"c\":\"d\"},null,false]}",
                                        "{\"a\":1e400}"};
    gw_str s = {0};
    gw_jsonl_value v[3];
    for (size_t i = 0; i < GW_COUNT(lines); i++) {
        json_error_t error;
        json_t *j = json_loads(lines[i], 0, &error);
        bool theirs = j != NULL || strstr(error.text, "real number overflow") != NULL;
        const char *why = parse(lines[i], &s, v);
        CHECK_MSG(theirs == (why == NULL), "%s: %s", lines[i], why ? why : "accepted");
        json_decref(j);
    }
    gw_str_release(&s);
}

TEST(jsonl_depth) {
    gw_str line = {0}, s = {0};
    gw_jsonl_value v[3];
    gw_str_add(&line, "{\"a\":");
    for (int i = 0; i < 100000; i++) gw_str_add_char(&line, '[');
    CHECK_STR(parse(line.data, &s, v), "nested too deeply");
    gw_str_release(&line);
    gw_str_release(&s);
}

static const char good[] =
    "{\"text\":\"first\"}\n\n{bad}\n{\"text\":\"third\"}\r\n{\"text\":\"last\"}";

static void read_lines(const gw_str *file) {
    static const char *const want[] = {"first", NULL, "third", "last"};
    static const int64_t numbers[] = {1, 3, 4, 5};
    gw_jsonl *r = gw_jsonl_open_bytes((uint8_t *)file->data, (int64_t)file->len, keys, 1, 0, 0);
    gw_jsonl_line line;
    for (int i = 0; i < 4; i++) {
        CHECK_EQ(gw_jsonl_next(r, &line), want[i] ? GW_JSONL_LINE : GW_JSONL_BAD);
        CHECK_EQ(line.number, numbers[i]);
        if (want[i]) CHECK_STR(line.values[0].text, want[i]);
    }
    CHECK_EQ(gw_jsonl_next(r, &line), GW_JSONL_END);
    gw_jsonl_free(r);
}

TEST(jsonl_files) {
    gw_str file = {0};
    gw_str_add(&file, good);
    read_lines(&file);
    gw_str_clear(&file);
    make_gzip(&file, good, 30); /* a line over two members */
    make_gzip(&file, good + 30, sizeof good - 1 - 30);
    read_lines(&file);
    gw_str_clear(&file);
    make_zstd(&file, good, sizeof good - 1, NULL, 0);
    read_lines(&file);
    gw_str_release(&file);
}

TEST(jsonl_too_long_and_torn) {
    gw_str plain = {0}, file = {0};
    gw_str_add(&plain, "{\"text\":\"");
    for (int i = 0; i < 200000; i++) gw_str_add_char(&plain, (char)('a' + i * 7 % 26));
    gw_str_add(&plain, "\"}\n{\"text\":\"short\"}\n");
    gw_jsonl *r = gw_jsonl_open_bytes((uint8_t *)plain.data, (int64_t)plain.len, keys, 1, 1000, 0);
    gw_jsonl_line line;
    CHECK_EQ(gw_jsonl_next(r, &line), GW_JSONL_BAD);
    CHECK(line.too_long);
    CHECK_EQ(gw_jsonl_next(r, &line), GW_JSONL_LINE);
    CHECK_STR(line.values[0].text, "short");
    CHECK_EQ(line.number, 2);
    gw_jsonl_free(r);

    /* The first member's end is lost, and with it the line that it cuts. */
    make_gzip(&file, "{\"text\":\"a\"}\n{\"text\":\"torn line\"}\n", 34);
    size_t cut = file.len;
    make_gzip(&file, "{\"text\":\"b\"}\n", 13);
    memset(file.data + cut - 8, 0, 8);
    r = gw_jsonl_open_bytes((uint8_t *)file.data, (int64_t)file.len, keys, 1, 0, 0);
    CHECK_EQ(gw_jsonl_next(r, &line), GW_JSONL_BAD);
    CHECK_EQ(line.offset, 0);
    CHECK_EQ(gw_jsonl_next(r, &line), GW_JSONL_LINE);
    CHECK_STR(line.values[0].text, "b");
    CHECK_EQ(gw_jsonl_next(r, &line), GW_JSONL_END);
    gw_jsonl_free(r);
    gw_str_release(&plain);
    gw_str_release(&file);
}
