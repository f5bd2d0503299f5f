// SPDX-License-Identifier: Apache-2.0
// TOML: examples of the specification (toml.io, v1.0.0) as far as they are read, and the rest of it
// refused where it stands.
#include <string.h>

#include "file/toml.h" /* gw_toml_parse */
#include "harness.h"

typedef struct document {
    gw_arena a;
    gw_diags dg;
    gw_toml t;
    gw_status st;
} document;

static void parse(document *d, const char *text) {
    memset(d, 0, sizeof *d);
    gw_diags_init(&d->dg);
    d->st = gw_toml_parse(&d->a, "file", text, (int64_t)strlen(text), &d->t, &d->dg);
}

static void done(document *d) {
    gw_diags_release(&d->dg);
    gw_arena_release(&d->a);
}

/* One value, by its path. */
static void check_value(const char *text, const char *path, gw_toml_type type, const char *value) {
    document d;
    parse(&d, text);
    CHECK_OK(d.st, &d.dg);
    bool found = false;
    for (int64_t i = 0; i < d.t.count; i++) {
        if (strcmp(d.t.values[i].path, path) != 0) continue;
        CHECK_EQ(d.t.values[i].type, type);
        CHECK_STR(d.t.values[i].text, value);
        found = true;
    }
    CHECK_MSG(found, "no %s in: %s", path, text);
    done(&d);
}

static void check_refused(const char *text, int line, int column, const char *says) {
    document d;
    parse(&d, text);
    CHECK_FAILS(d.st, &d.dg, says);
    CHECK_EQ(d.st, GW_ERR_FORMAT);
    CHECK_EQ(d.dg.first->where.line, line);
    CHECK_EQ(d.dg.first->where.column, column);
    done(&d);
}

TEST(toml_reads_keys_and_tables) {
    check_value("key = \"value\" # a comment", "key", GW_TOML_TEXT, "value");
    check_value("bare-key_1 = 1", "bare-key_1", GW_TOML_INT, "1");
    check_value("1234 = 'x'", "1234", GW_TOML_TEXT, "x");
    check_value("\"127.0.0.1\" = 1", "127.0.0.1", GW_TOML_INT, "1");
    check_value("fruit . color = \"yellow\"", "fruit.color", GW_TOML_TEXT, "yellow");
    check_value("[a.b.c]\nd = 1", "a.b.c.d", GW_TOML_INT, "1");
    check_value("[ g .  h  . i ]\nx = 1", "g.h.i.x", GW_TOML_INT, "1");
    check_value("[dog.\"tater.man\"]\ntype.name = \"pug\"", "dog.tater.man.type.name", GW_TOML_TEXT,
                "pug");
    check_value("[x.y.z.w]\na = 1\n[x]\nb = 2", "x.b", GW_TOML_INT, "2"); /* [x] may come later */
}

TEST(toml_reads_values) {
    check_value("a = +99", "a", GW_TOML_INT, "99");
    check_value("a = -17", "a", GW_TOML_INT, "-17");
    check_value("a = 5_349_221", "a", GW_TOML_INT, "5349221");
    check_value("a = 3.1415", "a", GW_TOML_REAL, "3.1415");
    check_value("a = 6.626e-34", "a", GW_TOML_REAL, "6.626e-34");
    check_value("a = 1e06", "a", GW_TOML_REAL, "1e06");
    check_value("a = true", "a", GW_TOML_BOOL, "true");
    check_value("a = \"tab \\t quote \\\" \\u00E9 \\U0001F600\"", "a", GW_TOML_TEXT,
                "tab \t quote \" \xc3\xa9 \xf0\x9f\x98\x80");
    check_value("a = 'C:\\Users\\nodejs'", "a", GW_TOML_TEXT, "C:\\Users\\nodejs");
    check_value("a = [ 1, 2, 3 ]", "a", GW_TOML_LIST, "[1, 2, 3]");
    check_value("a = [\n 1, # one\n 2,\n]\nb = 1", "b", GW_TOML_INT, "1");
    check_value("a = [ [ 1, 2 ], [\"a\", \"b\"], [] ]", "a", GW_TOML_LIST, "[[1, 2], [a, b], []]");
}

TEST(toml_refuses_what_is_wrong) {
    check_refused("a = 1\na = 2", 2, 1, "given twice");
    check_refused("[a]\nb = 1\n[a]\nc = 1", 3, 1, "given twice");
    check_refused("a = 1\na.b = 2", 2, 1, "is a value already");
    check_refused("a = 1 b = 2", 1, 7, "line end is missing");
    check_refused("a = ", 1, 5, "a value is missing");
    check_refused("= 1", 1, 1, "a key is missing");
    check_refused("a = 01", 1, 5, "decimal number");
    check_refused("a = 1__0", 1, 5, "decimal number");
    check_refused("a = .5", 1, 5, "no value begins");
    check_refused("a = \"x", 1, 7, "does not end");
    check_refused("a = \"\\q\"", 1, 7, "is no escape");
    check_refused("a = \"\\uD800\"", 1, 12, "no character");
    check_refused("[a\nb = 1", 1, 3, "ends in ']'");
    check_refused("a = 9223372036854775808", 1, 5, "64 bits");
}

TEST(toml_refuses_what_it_does_not_read) {
    check_refused("a = 1979-05-27", 1, 5, "decimal number");
    check_refused("a = 0xff", 1, 5, "decimal number");
    check_refused("a = inf", 1, 5, "no value begins");
    check_refused("a = { b = 1 }", 1, 5, "inline tables");
    check_refused("[[a]]\nb = 1", 1, 1, "lists of tables");
    check_refused("a = \"\"\"x\"\"\"", 1, 5, "several lines");
    check_refused("a = [[[[[[1]]]]]]", 1, 10, "in more than 4 lists");
}
