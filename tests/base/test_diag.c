// SPDX-License-Identifier: Apache-2.0
// Diagnostics: what is printed, in which order, and which exit code belongs to which status.
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/diag.h"
#include "harness.h"

/* What gw_diags_print writes; the caller frees. */
static char *printed(const gw_diags *d, bool colour) {
    char *text = NULL;
    size_t n = 0;
    FILE *f = open_memstream(&text, &n);
    gw_diags_print(d, f, colour);
    fclose(f);
    return text;
}

TEST(diag_prints_the_form_of_the_contract) {
    gw_diags d;
    gw_diags_init(&d);
    gw_diag *g = gw_diag_add(&d, GW_ERROR, GW_ERR_CONFIG, "config-unknown-key",
                             (gw_where){"run.yaml", 12, 7}, "unknown key '%s'", "trian.steps");
    gw_diag_detail(&d, g, "the section has %d keys\nand this is not one", 9);
    gw_diag_hint(&d, g, "did you mean '%s'?", "train.steps");
    gw_diag_frame(&d, "reading '%s'", "run.yaml");
    gw_diag_frame(&d, "planning");
    char *text = printed(&d, false);
    CHECK_STR(text, "run.yaml:12:7: error: unknown key 'trian.steps' [config-unknown-key]\n"
                    "  the section has 9 keys\n"
                    "  and this is not one\n"
                    "  while reading 'run.yaml'\n"
                    "  while planning\n"
                    "  hint: did you mean 'train.steps'?\n");
    free(text);
    gw_diags_release(&d);
}

TEST(diag_prints_errors_last_in_order) {
    gw_diags d;
    gw_diags_init(&d);
    gw_status s = GW_FAIL(&d, GW_ERR_IO, "a", "first");
    CHECK_EQ(s, GW_ERR_IO);
    gw_diag_add(&d, GW_WARNING, GW_OK, NULL, (gw_where){"f", 3, 0}, "careful");
    s = GW_FAIL(&d, GW_ERR_IO, "b", "second\n");
    gw_diag_add(&d, GW_NOTE, GW_OK, NULL, (gw_where){"f", 0, 5}, "by the way");
    CHECK_EQ(d.nerrors, 2);
    CHECK_EQ(d.nwarnings, 1);
    CHECK_STR(gw_diags_first_error(&d), "first");
    char *text = printed(&d, false);
    CHECK_STR(text, "f:3: warning: careful\nf: note: by the way\n"
                    "error: first [a]\nerror: second [b]\n");
    free(text);
    gw_diags_clear(&d);
    CHECK_EQ(d.nerrors, 0);
    CHECK(!d.first);
    CHECK_STR(gw_diags_first_error(&d), "");
    gw_diags_release(&d);
}

TEST(diag_colours_only_when_asked) {
    gw_diags d;
    gw_diags_init(&d);
    gw_diag_add(&d, GW_ERROR, GW_ERR_IO, "a", (gw_where){0}, "x");
    char *plain = printed(&d, false), *colour = printed(&d, true);
    CHECK(!strchr(plain, 27));
    CHECK(strchr(colour, 27));
    free(plain);
    free(colour);
    gw_diags_release(&d);
}

TEST(diag_keeps_its_own_copies) {
    char id[] = "an-id", file[] = "a.yaml", word[] = "word";
    gw_diags d;
    gw_diags_init(&d);
    gw_diag *g = gw_diag_add(&d, GW_ERROR, GW_ERR_IO, id, (gw_where){file, 1, 1}, "says %s", word);
    memset(id, 'z', 5);
    memset(file, 'z', 6);
    memset(word, 'z', 4);
    CHECK_STR(g->id, "an-id");
    CHECK_STR(g->where.file, "a.yaml");
    CHECK_STR(g->message, "says word");
    gw_diags_release(&d);
}

TEST(diag_without_a_list_is_dropped) {
    gw_diag *g = gw_diag_add(NULL, GW_ERROR, GW_ERR_IO, "a", (gw_where){0}, "x");
    CHECK(!g);
    gw_diag_detail(NULL, g, "y");
    gw_diag_hint(NULL, g, "y");
    gw_diag_frame(NULL, "y");
    CHECK_EQ(GW_FAIL(NULL, GW_ERR_PEER, "a", "x"), GW_ERR_PEER);
    CHECK_STR(gw_diags_first_error(NULL), "");
}

TEST(diag_frame_goes_to_the_latest_error) {
    gw_diags d;
    gw_diags_init(&d);
    gw_diag_frame(&d, "nothing to frame");
    gw_diag *e = gw_diag_add(&d, GW_ERROR, GW_ERR_IO, "a", (gw_where){0}, "x");
    gw_diag *w = gw_diag_add(&d, GW_WARNING, GW_OK, "b", (gw_where){0}, "y");
    gw_diag_frame(&d, "looking");
    CHECK_STR(e->frames, "while looking");
    CHECK_STR(w->frames, NULL);
    gw_diags_release(&d);
}

/* Exit codes by kind of fault. */
TEST(diag_exit_codes) {
    CHECK_EQ(gw_status_exit_code(GW_OK), 0);
    CHECK_EQ(gw_status_exit_code(GW_ERR_USAGE), 2);
    CHECK_EQ(gw_status_exit_code(GW_ERR_CONFIG), 2);
    CHECK_EQ(gw_status_exit_code(GW_ERR_INTERRUPTED), 3);
    static const gw_status running[] = {GW_ERR_IO,    GW_ERR_FORMAT,  GW_ERR_UNSUPPORTED,
                                        GW_ERR_PEER,  GW_ERR_NUMERIC, GW_ERR_MEMORY,
                                        GW_ERR_DEVICE};
    for (size_t i = 0; i < GW_COUNT(running); i++) CHECK_EQ(gw_status_exit_code(running[i]), 1);
}

/* A name from a file cannot colour, move or forge what is printed; our own line breaks stay. */
TEST(diag_shows_what_would_steer_a_terminal) {
    gw_diags d;
    gw_diags_init(&d);
    gw_diag *g = gw_diag_add(&d, GW_ERROR, GW_ERR_CONFIG, "x", (gw_where){"a\x1b[2J.yaml", 1, 1},
                             "key '%s'", "a\nerror: b\x1b[31m\x7f\xc2\x9b\u202e\t\r");
    gw_diag_detail(&d, g, "one \x1b]0;t\a\ntwo");
    gw_diag_hint(&d, g, "h\bi");
    gw_diag_frame(&d, "reading '\x01'");
    char *text = printed(&d, false);
    CHECK_STR(text,
              "a\\x1b[2J.yaml:1:1: error: key 'a\\nerror: b\\x1b[31m\\x7f\\xc2\\x9b\\u202e\\t\\r' "
              "[x]\n"
              "  one \\x1b]0;t\\x07\n"
              "  two\n"
              "  while reading '\\x01'\n"
              "  hint: h\\x08i\n");
    free(text);
    gw_diags_release(&d);
}

/* Every byte string comes out as printable UTF-8; text that was so already, unchanged. */
TEST(diag_prints_any_bytes_as_text) {
    gw_diags d;
    gw_diags_init(&d);
    gw_diag_add(&d, GW_NOTE, GW_OK, NULL, (gw_where){0}, "%s",
                "gr\u00fc\u00df \u4e2d \U0001f600 \\n");
    char *text = printed(&d, false);
    CHECK_STR(text, "note: gr\u00fc\u00df \u4e2d \U0001f600 \\n\n");
    free(text);
    gw_diags_clear(&d);
    for (int i = 0; i < 256 * 256; i++) {
        const char bytes[] = {(char)(i % 255 + 1), (char)(i / 255 % 255 + 1), 'x', 0};
        gw_diag_add(&d, GW_NOTE, GW_OK, NULL, (gw_where){0}, "%s", bytes);
    }
    gw_diag_add(&d, GW_NOTE, GW_OK, NULL, (gw_where){0},
                "\xe2\x80 \xe0\x80\x8a \xed\xa0\x80 \xf4\x90\x80\x80 \xff");
    text = printed(&d, false);
    for (const char *c = text; *c; c++) {
        CHECK(*c == '\n' || (uint8_t)*c >= 0x20);
        CHECK((uint8_t)*c != 0x7f);
    }
    CHECK(strstr(text,
                 "note: \\xe2\\x80 \\xe0\\x80\\x8a \\xed\\xa0\\x80 \\xf4\\x90\\x80\\x80 \\xff\n"));
    free(text);
    gw_diags_release(&d);
}
