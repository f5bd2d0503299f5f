// SPDX-License-Identifier: Apache-2.0
// file/trace: what is written parses as JSON, whatever the names hold.
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/io.h" /* gw_path_exists */
#include "damage.h"
#include "file/json.h" /* gw_json_read_file */
#include "file/trace.h"
#include "harness.h"

static gw_diags dg;

static gw_trace *begin(void) {
    gw_trace *t = NULL;
    gw_diags_init(&dg);
    CHECK_OK(gw_trace_open(test_tmp_path("t.json"), &t, &dg), &dg);
    return t;
}

static json_t *end(gw_trace *t) {
    json_t *v = NULL;
    CHECK(!gw_path_exists(test_tmp_path("t.json")));
    CHECK_OK(gw_trace_close(t, &dg), &dg);
    CHECK_OK(gw_json_read_file(test_tmp_path("t.json"), 0, &v, &dg), &dg);
    gw_diags_release(&dg);
    return v;
}

static const json_t *event(const json_t *v, size_t i) {
    return json_array_get(json_object_get(v, "traceEvents"), i);
}

static const char *text(const json_t *e, const char *key) {
    return json_string_value(json_object_get(e, key));
}

TEST(trace_events_have_the_fields_viewers_read) {
    gw_trace *t = begin();
    CHECK_OK(gw_trace_process(t, 3, "rank 3", &dg), &dg);
    CHECK_OK(gw_trace_stream(t, 3, 1, "compute", &dg), &dg);
    gw_trace_event e = {"matmul", "F", 3, 1, 1234567890123.125, 2.5, 4096, 1000000, "note"};
    CHECK_OK(gw_trace_add(t, &e, &dg), &dg);
    e.bytes = e.flops = -1;
    e.note = NULL;
    CHECK_OK(gw_trace_add(t, &e, &dg), &dg);
    CHECK_OK(gw_trace_counter(t, 3, "bytes", 7, 1.5, &dg), &dg);
    json_t *v = end(t);
    CHECK_EQ(json_array_size(json_object_get(v, "traceEvents")), 5);
    CHECK_STR(text(event(v, 0), "ph"), "M");
    CHECK_STR(text(event(v, 0), "name"), "process_name");
    CHECK_STR(text(json_object_get(event(v, 1), "args"), "name"), "compute");
    CHECK_STR(text(event(v, 2), "ph"), "X");
    CHECK_STR(text(event(v, 2), "cat"), "F");
    CHECK_NEAR(json_number_value(json_object_get(event(v, 2), "ts")), 1234567890123.125, 0);
    CHECK_NEAR(json_number_value(json_object_get(event(v, 2), "dur")), 2.5, 0);
    CHECK_EQ(json_integer_value(json_object_get(json_object_get(event(v, 2), "args"), "bytes")),
             4096);
    CHECK(json_object_get(event(v, 3), "args") == NULL);
    CHECK_STR(text(event(v, 4), "ph"), "C");
    json_decref(v);
}

TEST(trace_any_bytes_make_valid_json) {
    gw_trace *t = begin();
    char name[300];
    for (int i = 0; i < 255; i++) name[i] = (char)(i + 1);
    name[255] = '\0';
    gw_trace_event e = {
        name, "\"\\", 0, 0, (double)NAN, -(double)INFINITY, -1, -1, "\xff\xc3(\xf0\x9f\x98\x80"};
    CHECK_OK(gw_trace_add(t, &e, &dg), &dg);
    CHECK_OK(gw_trace_stream(t, 0, 0, "\xed\xa0\x80\xc0\x80\xf5", &dg),
             &dg); /* surrogate, overlong */
    json_t *v = end(t);
    CHECK_STR(text(event(v, 0), "cat"), "\"\\");
    CHECK(strncmp(text(event(v, 0), "name"), name, 127) == 0);
    CHECK_STR(text(json_object_get(event(v, 0), "args"), "note"),
              "\xef\xbf\xbd\xef\xbf\xbd(\xf0\x9f\x98\x80");
    CHECK_NEAR(json_number_value(json_object_get(event(v, 0), "ts")), 0, 0);
    CHECK_NEAR(json_number_value(json_object_get(event(v, 0), "dur")), 0, 0);
    json_decref(v);
}

TEST(trace_empty_is_valid_and_abandoned_is_gone) {
    json_t *v = end(begin());
    CHECK(json_is_array(json_object_get(v, "traceEvents")));
    json_decref(v);
    gw_trace *t = NULL;
    gw_diags_init(&dg);
    CHECK_OK(gw_trace_open(test_tmp_path("u.json"), &t, &dg), &dg);
    gw_trace_abandon(t);
    CHECK(!gw_path_exists(test_tmp_path("u.json")));
    CHECK_FAILS(gw_trace_open(test_tmp_path("no/such/t.json"), &t, &dg), &dg, "cannot create");
    gw_diags_release(&dg);
}
