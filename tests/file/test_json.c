// SPDX-License-Identifier: Apache-2.0
// file/json: positions in errors, refusals, getters, writing.
#include <stdio.h>
#include <string.h>

#include "damage.h"
#include "file/json.h" /* gw_json_* */
#include "harness.h"

static gw_diags dg;

static json_t *parse(const char *text) {
    json_t *v = NULL;
    gw_diags_init(&dg);
    CHECK_OK(gw_json_parse(text, strlen(text), "x.json", &v, &dg), &dg);
    return v;
}

static void refuse(const char *text, const char *expected, int line) {
    json_t *v = NULL;
    gw_diags_init(&dg);
    CHECK_FAILS(gw_json_parse(text, strlen(text), "x.json", &v, &dg), &dg, expected);
    CHECK(v == NULL);
    CHECK_STR(dg.first->where.file, "x.json");
    if (line > 0) CHECK_EQ(dg.first->where.line, line);
    gw_diags_release(&dg);
}

TEST(json_errors_have_line_and_column) {
    refuse("{\n  \"a\": 1,\n  \"b\": ]\n}", "not valid JSON", 3);
    refuse("", "not valid JSON", 0);
    refuse("{} x", "not valid JSON", 1);
    refuse("{\"a\": \"\xff\"}", "not valid JSON", 1);
    json_t *v = NULL;
    gw_diags_init(&dg);
    CHECK(gw_json_parse("[1,\n22 33]", 10, "x.json", &v, &dg) != GW_OK);
    CHECK_EQ(dg.first->where.line, 2);
    CHECK(dg.first->where.column >= 3);
    gw_diags_release(&dg);
}

TEST(json_refuses_duplicate_keys) {
    refuse("{\"a\": 1,\n \"a\": 2}", "twice", 2);
    refuse("{\"x\": {\"a\": 1, \"b\": 2, \"a\": 1}}", "twice", 1);
}

TEST(json_survives_deep_nesting) {
    char text[100001];
    memset(text, '[', 100000);
    text[100000] = '\0';
    refuse(text, "not valid JSON", 1);
}

/* tokenizer_config.json says model_max_length = 10^30 where it means "none". */
TEST(json_reads_files_with_huge_integers) {
    json_t *v = parse("{\"big\": 1000000000000000019884624838656, \"n\": 7, \"h\": 7.5}");
    int64_t x;
    CHECK_OK(gw_json_get_i64(v, "n", 0, &x, "x.json", &dg), &dg);
    CHECK_EQ(x, 7);
    CHECK_FAILS(gw_json_get_i64(v, "big", 0, &x, "x.json", &dg), &dg, "'big' must be an integer");
    gw_diags_clear(&dg);
    CHECK_FAILS(gw_json_get_i64(v, "h", 0, &x, "x.json", &dg), &dg, "'h' must be an integer");
    json_decref(v);
    gw_diags_release(&dg);
}

TEST(json_getters) {
    json_t *v = parse("{\"i\": -5, \"f\": 2.5, \"b\": true, \"s\": \"t\", \"z\": null, \"o\": {},"
                      " \"a\": [1], \"nul\": \"a\\u0000b\"}");
    int64_t i;
    double f;
    bool b;
    const char *s;
    const json_t *j;
    CHECK_OK(gw_json_get_i64(v, "i", 1, &i, "x", &dg), &dg);
    CHECK_EQ(i, -5);
    CHECK_OK(gw_json_get_i64(v, "z", 9, &i, "x", &dg), &dg);
    CHECK_EQ(i, 9);
    CHECK_OK(gw_json_get_i64(v, "none", 8, &i, "x", &dg), &dg);
    CHECK_EQ(i, 8);
    CHECK_OK(gw_json_get_f64(v, "f", 0, &f, "x", &dg), &dg);
    CHECK_NEAR(f, 2.5, 0);
    CHECK_OK(gw_json_get_f64(v, "i", 0, &f, "x", &dg), &dg);
    CHECK_NEAR(f, -5, 0);
    CHECK_OK(gw_json_get_bool(v, "b", false, &b, "x", &dg), &dg);
    CHECK(b);
    CHECK_OK(gw_json_get_str(v, "s", NULL, &s, "x", &dg), &dg);
    CHECK_STR(s, "t");
    CHECK_OK(gw_json_get_object(v, "o", &j, "x", &dg), &dg);
    CHECK(json_is_object(j));
    CHECK_OK(gw_json_get_array(v, "z", &j, "x", &dg), &dg);
    CHECK(j == NULL);
    CHECK_FAILS(gw_json_get_bool(v, "i", false, &b, "f.json", &dg), &dg, "not integer");
    CHECK_FAILS(gw_json_get_array(v, "o", &j, "x", &dg), &dg, "an array, not object");
    CHECK_FAILS(gw_json_get_str(v, "nul", NULL, &s, "x", &dg), &dg, "NUL");
    CHECK_FAILS(gw_json_need_i64(v, "none", &i, "x", &dg), &dg, "'none' is missing");
    CHECK_FAILS(gw_json_need_str(v, "z", &s, "x", &dg), &dg, "it is null");
    json_decref(v);
    gw_diags_release(&dg);
}

TEST(json_reals_read_back_exactly_and_short) {
    const char *path = test_tmp_path("r.json");
    json_t *v = parse("{\"a\": 0.1, \"b\": 1e-05, \"c\": 500000.0, \"d\": 6.02e23}");
    CHECK_OK(gw_json_write_file(path, v, 0, &dg), &dg);
    gw_str text = get_file(path);
    CHECK_STR(text.data, "{\"a\":0.1,\"b\":1e-5,\"c\":500000.0,\"d\":6.02e23}\n");
    gw_str_release(&text);
    double hard = 0.1 + 0.2, back; /* needs 17 digits */
    json_object_set_new(v, "e", json_real(hard));
    CHECK_OK(gw_json_write_file(path, v, 2, &dg), &dg);
    json_decref(v);
    CHECK_OK(gw_json_read_file(path, 0, &v, &dg), &dg);
    CHECK_OK(gw_json_get_f64(v, "e", 0, &back, path, &dg), &dg);
    CHECK(back == hard);
    json_decref(v);
    gw_diags_release(&dg);
}

TEST(json_file_errors_name_the_file) {
    json_t *v = NULL;
    gw_diags_init(&dg);
    CHECK_FAILS(gw_json_read_file(test_tmp_path("absent.json"), 0, &v, &dg), &dg, "absent.json");
    put_file(test_tmp_path("long.json"), "[1,2,3,4,5,6]", 13);
    CHECK(gw_json_read_file(test_tmp_path("long.json"), 5, &v, &dg) != GW_OK);
    CHECK(v == NULL);
    gw_diags_release(&dg);
}
