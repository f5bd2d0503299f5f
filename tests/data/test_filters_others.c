// SPDX-License-Identifier: Apache-2.0
// Filters of Dolma, DCLM, RedPajama-V2 and NeMo Curator against those projects' own code.
//
// ../golden/filters_others.txt holds generated documents and, for each variant with its defaults
// and with tight limits, verdict and the text that is left (check_filters.py --write). "?" is a
// document on which the project's code fails.
#include <string.h>

#include "base/arena.h"         /* gw_arena */
#include "base/diag.h"          /* gw_diags */
#include "base/str.h"           /* gw_str */
#include "base/yaml.h"          /* gw_yaml_parse */
#include "data/filter/filter.h" /* gw_filters */
#include "escaped.h"            /* read_golden, unescape */
#include "harness.h"            /* TEST, CHECK */

enum { TEXTS = 100 };

typedef struct golden {
    gw_str text[TEXTS];
    int ntexts, next, cases, removed, variants;
    gw_filters *filters;
    const char *yaml;
    gw_arena arena;
} golden;

static void open_variant(golden *g, const char *yaml) {
    CHECK(g->variants == 0 || g->next == g->ntexts);
    gw_diags dg;
    gw_diags_init(&dg);
    gw_yaml_node *root;
    gw_filters_free(g->filters);
    g->filters = NULL;
    g->yaml = yaml;
    g->next = 0;
    g->variants++;
    CHECK_OK(gw_yaml_parse(&g->arena, "v", yaml, (int64_t)strlen(yaml), true, &root, &dg), &dg);
    CHECK_OK(gw_filters_new(root, "v", &g->filters, &dg), &dg);
    gw_diags_release(&dg);
}

static void check_case(golden *g, char *line) {
    CHECK(g->filters && g->next < g->ntexts);
    const gw_str *text = &g->text[g->next++];
    if (gw_str_eq(line, "?")) return;
    char *left = strchr(line, '\t'), buf[200];
    CHECK(left);
    *left++ = 0;
    double columns[GW_FILTER_MAX_COLUMNS];
    gw_str now = {0}, want = {0};
    gw_str_add_n(&now, gw_str_c(text), text->len);
    gw_filter_facts facts = {"", "", 0};
    gw_verdict v = gw_filters_run(g->filters, &facts, &now, columns);
    CHECK_MSG(gw_str_eq(gw_filters_verdict_text(g->filters, v, buf, sizeof buf), line),
              "%s, text %d: here '%s', there '%s'", g->yaml, g->next - 1, buf, line);
    bool kept = gw_str_eq(line, "kept");
    g->cases++;
    g->removed += !kept;
    if (kept) {
        if (gw_str_eq(left, "="))
            gw_str_add_n(&want, gw_str_c(text), text->len);
        else
            unescape(left, (int64_t)strlen(left), &want);
        CHECK_STR(gw_str_c(&now), gw_str_c(&want));
    }
    gw_str_release(&now);
    gw_str_release(&want);
}

TEST(filters_decide_as_the_other_projects) {
    gw_str all = read_golden("filters_others.txt");
    static golden g;
    for (char *p = all.data; *p;) {
        char *line = take_line(&p);
        if (line[0] == '#') continue;
        if (gw_str_starts(line, "text\t")) {
            CHECK(g.ntexts < TEXTS);
            unescape(line + 5, (int64_t)strlen(line + 5), &g.text[g.ntexts++]);
        } else if (gw_str_starts(line, "variant\t")) {
            open_variant(&g, line + 8);
        } else {
            check_case(&g, line);
        }
    }
    CHECK(g.next == g.ntexts);
    CHECK_MSG(g.variants >= 15 && g.cases > 800 && g.removed > 200,
              "%d variants, %d cases, %d removed", g.variants, g.cases, g.removed);
    for (int i = 0; i < g.ntexts; i++) gw_str_release(&g.text[i]);
    gw_filters_free(g.filters);
    gw_arena_release(&g.arena);
    gw_str_release(&all);
}

static double words_of(const char *yaml, const char *bytes) {
    gw_diags dg;
    gw_diags_init(&dg);
    gw_arena a = {0};
    gw_yaml_node *root;
    gw_filters *f = NULL;
    double columns[GW_FILTER_MAX_COLUMNS] = {0};
    CHECK_OK(gw_yaml_parse(&a, "w", yaml, (int64_t)strlen(yaml), true, &root, &dg), &dg);
    if (gw_filters_new(root, "w", &f, &dg) == GW_OK) {
        gw_str text = {0};
        gw_filter_facts facts = {"", "", 0};
        gw_str_add(&text, bytes);
        gw_filters_run(f, &facts, &text, columns);
        gw_str_release(&text);
    } else {
        CHECK_STR(dg.first->id, "data-words-language");
        columns[0] = -1;
    }
    gw_filters_free(f);
    gw_arena_release(&a);
    gw_diags_release(&dg);
    return columns[0];
}

/* French cuts elisions, English does not; languages that need a dictionary are refused. */
TEST(filters_cut_words_of_the_language) {
    const char *text = "L'été d'Anna.";
    CHECK_NEAR(words_of("- gopher_quality/datatrove\n", text), 3, 0);
    CHECK_NEAR(words_of("- gopher_quality/datatrove: {language: fr}\n", text), 5, 0);
    CHECK_NEAR(words_of("- gopher_quality/datatrove: {language: whitespace}\n", text), 2, 0);
    CHECK_NEAR(words_of("- gopher_quality/datatrove: {language: zh}\n", text), -1, 0);
    CHECK_NEAR(words_of("- fineweb_quality/datatrove: {language: th}\n", text), -1, 0);
    CHECK_NEAR(words_of("- c4/datatrove: {language: ja}\n", text), -1, 0);
    CHECK_NEAR(words_of("- gopher_repetition/datatrove: {language: nothing}\n", text), -1, 0);
}
