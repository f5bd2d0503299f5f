// SPDX-License-Identifier: Apache-2.0
// The page of a plan: its figures are the JSON's, what comes from outside is escaped, it needs
// nothing but itself; and the roofline accounts for every second of the step's ops.
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fake_machine.h"
#include "command.h" /* command_at */
#include "harness.h"
#include "plan/html.h"
#include "plan/roofline.h"
#include "planned.h"

typedef struct sample {
    planned p;
    const gw_graph *program;
    gw_machine_spec m;
    gw_simplan sim;
    json_t *j;
    gw_str page;
    gw_arena mem;
} sample;

/* A step on a machine of round numbers, and its page. */
static void sample_init(sample *x, const char *name, const gw_html_search *search,
                        const char *yaml) {
    memset(x, 0, sizeof *x);
    PLAN(&x->p, "%s", yaml);
    x->program = &x->p.step;
    x->m = fake_machine(&x->mem, 1);
    gw_simplan_init(&x->sim, &(gw_simplan_input){.ranks = &x->p.ledger,
                                                 .programs = &x->program,
                                                 .n = 1,
                                                 .machine = &x->m,
                                                 .timeline = true});
    gw_roofline r;
    gw_roofline_init(&r, &x->sim);
    x->j = gw_plan_json(&x->p.ledger);
    gw_simplan_json(&x->sim, x->j);
    json_object_set_new(x->j, "roofline", gw_roofline_json(&r));
    gw_roofline_release(&r);
    gw_html_page(&(gw_html_input){.plan = x->j,
                                  .name = name,
                                  .layout = name,
                                  .command = name,
                                  .timeline = &x->sim.timeline,
                                  .sim = &x->sim,
                                  .search = search},
                 &x->page);
}

static void sample_release(sample *x) {
    gw_str_release(&x->page);
    json_decref(x->j);
    gw_simplan_release(&x->sim);
    gw_arena_release(&x->mem);
    planned_release(&x->p);
}

static const char *const language =
    "model: {family: llama, layers: 3, hidden: 128, heads: 4, kv_heads: 2, ffn: 256, vocab: 512}\n"
    "precision: {compute: bf16}\ntrain: {seq_len: 64, micro_batch: 4, accumulate: 2}\n";
static const char *const images = "model: {preset: resnet18, image: 32, classes: 10}\n"
                                  "train: {micro_batch: 8}\n";

/* ---- figures ---- */

static double prefix(const char *unit) {
    static const char letters[] = "numkMGTPEB";
    static const double powers[] = {1e-9, 1e-6, 1e-3, 1e3, 1e6, 1e9, 1e12, 1e15, 1e18, 1e9};
    if (strncmp(unit, "B<", 2) == 0 && unit[-1] != ' ') return 1e9; /* 70.6B parameters */
    if (*unit == 'B' || strncmp(unit, "FLOP", 4) == 0) return 1;
    const char *at = *unit ? strchr(letters, *unit) : NULL;
    return at ? powers[at - letters] : 1;
}

/* What the text between the tags says, as a number, and half of its last digit: "1.6 MB", "45.1 %",
 * "3m12s", "$4.92". */
static double said(const char *text, double *half) {
    char digits[64] = "";
    size_t n = 0, decimals = 0;
    const char *t = text + (*text == '$');
    for (; isdigit((unsigned char)*t) || strchr(".,-+e", *t); t++)
        if (*t != ',' && n + 1 < sizeof digits) digits[n++] = *t;
    double x = strtod(digits, NULL);
    const char *dot = strchr(digits, '.');
    if (dot) decimals = strspn(dot + 1, "0123456789");
    int large, small;
    char unit = 0, rest = 0;
    if (sscanf(text, "%d%c%d%c", &large, &unit, &small, &rest) == 4 && strchr("mhd", unit)) {
        double seconds = unit == 'm' ? 60 : unit == 'h' ? 3600 : 86400;
        double each = unit == 'm' ? 1 : unit == 'h' ? 60 : 3600;
        *half = each; /* the smaller unit is cut, not rounded */
        return large * seconds + small * each;
    }
    if (*t == ' ') t++;
    *half = 0.5000001 * pow(10, -(double)decimals) * prefix(t);
    return x * prefix(t);
}

/* Each <data value= data-key=>text</data>: the value is the JSON's, and the text says it to the
 * precision that it shows. Percentages of a fraction are a hundred times it. */
static int check_figures(const sample *x) {
    int n = 0;
    for (const char *at = gw_str_c(&x->page); (at = strstr(at, "<data value=\"")) != NULL; n++) {
        char key[160] = "", *end = NULL;
        double value = strtod(at + 13, &end);
        const char *text = strchr(at, '>') + 1;
        CHECK(strncmp(end, "\" data-key=\"", 12) == 0);
        snprintf(key, sizeof key, "%.*s", (int)strcspn(end + 12, "\""), end + 12);
        const json_t *v = command_at(x->j, key);
        CHECK_MSG(json_is_number(v), "no number %s", key);
        CHECK_MSG(json_number_value(v) == value, "%s: %.17g on the page, %.17g in the JSON", key,
                  value, json_number_value(v));
        double half, shown = said(text, &half), unit = 1;
        if (memchr(text, '%', strcspn(text, "<")) && !strstr(key, "percent")) unit = 100;
        if (strstr(key, "tflops_per_chip")) unit = 1e12;
        CHECK_MSG(fabs(shown / unit - value) <= half / unit + 1e-9 * fabs(value),
                  "%s: '%.20s' of %.9g", key, text, value);
        at = end;
    }
    return n;
}

TEST(page_figures_are_those_of_the_json) {
    static const char *const runs[] = {"language", "images"};
    for (int i = 0; i < 2; i++) {
        sample x;
        sample_init(&x, runs[i], NULL, i ? images : language);
        int n = check_figures(&x);
        test_note("%s: %d figures, page of %zu bytes", runs[i], n, x.page.len);
        CHECK(n > 80);
        static const char *const keys[] = {"memory.total_bytes", "step_time_s", "parts.0.percent",
                                           "mfu.causal",         "params",      "flops.hardware"};
        for (size_t k = 0; k < GW_COUNT(keys); k++) {
            char mark[80];
            snprintf(mark, sizeof mark, "data-key=\"%s\"", keys[k]);
            CHECK_MSG(strstr(gw_str_c(&x.page), mark), "%s is not on the page", keys[k]);
        }
        sample_release(&x);
    }
}

/* ---- markup ---- */

static bool is_void(const char *name) {
    return strcmp(name, "meta") == 0 || strcmp(name, "br") == 0 || strcmp(name, "!doctype") == 0;
}

/* Every element is closed in its turn; '<' stands for nothing else outside script and style. */
static void check_markup(const char *page) {
    char stack[64][16];
    int depth = 0;
    for (const char *at = page; (at = strchr(at, '<')) != NULL;) {
        char name[16] = "";
        bool closes = at[1] == '/';
        sscanf(at + 1 + closes, "%15[a-zA-Z!0-9]", name);
        CHECK_MSG(name[0], "a bare '<' at: %.60s", at);
        const char *end = at;
        for (bool quoted = false; *end && (quoted || *end != '>'); end++) quoted ^= *end == '"';
        CHECK_MSG(*end, "no end of: %.60s", at);
        if (closes) {
            CHECK_MSG(depth > 0 && strcmp(stack[depth - 1], name) == 0, "</%s> closes <%s>: %.80s",
                      name, depth ? stack[depth - 1] : "", at);
            depth--;
        } else if (end[-1] != '/' && !is_void(name)) {
            CHECK(depth < 64);
            snprintf(stack[depth++], sizeof stack[0], "%s", name);
        }
        at = end + 1;
        if (!closes && strcmp(name, "script") == 0) at = strstr(at, "</script");
        if (!closes && strcmp(name, "style") == 0) at = strstr(at, "</style");
    }
    CHECK_EQ(depth, 0);
}

TEST(page_markup_is_balanced) {
    sample x;
    sample_init(&x, "a", NULL, language);
    check_markup(gw_str_c(&x.page));
    sample_release(&x);
}

TEST(page_escapes_what_comes_from_outside) {
    const gw_html_point points[] = {
        {.bytes = 1e9,
         .seconds = 1,
         .label = "<img src=x onerror=alert(1)>",
         .best = true,
         .fits = true,
         .frontier = true},
        {.bytes = 2e9, .seconds = 0.5, .label = "b", .fits = true, .frontier = true}};
    const gw_html_search search = {
        .points = points, .n = 2, .objective = "<b>time", .summary = "</section>"};
    const char *name = "</title><script>alert('x')</script>\"\x01 & \xff";
    sample x;
    sample_init(&x, name, &search, language);
    const char *page = gw_str_c(&x.page);
    CHECK(!strstr(page, "<script>alert"));
    CHECK(!strstr(page, "<img"));
    CHECK(!strstr(page, "<b>time"));
    CHECK(!strchr(page, 1));
    CHECK(strstr(page,
                 "&lt;/title&gt;&lt;script&gt;alert(&#39;x&#39;)&lt;/script&gt;&quot;  &amp; "));
    check_markup(page);
    int scripts = 0;
    for (const char *at = page; (at = strstr(at, "<script")) != NULL; at++) scripts++;
    CHECK_EQ(scripts, 1);
    sample_release(&x);
}

/* Nothing that a browser would fetch: no address but the name of SVG, no import, no source. */
TEST(page_needs_nothing_else) {
    static const char *const fetches[] = {" src=", " href=", "url(", "@import", "https:", "fetch("};
    sample x;
    sample_init(&x, "a", NULL, language);
    for (size_t i = 0; i < GW_COUNT(fetches); i++)
        CHECK_MSG(!strstr(gw_str_c(&x.page), fetches[i]), "%s", fetches[i]);
    for (const char *at = gw_str_c(&x.page); (at = strstr(at, "http:")) != NULL; at++)
        CHECK(strncmp(at, "http://www.w3.org/2000/svg", 26) == 0);
    sample_release(&x);
}

TEST(page_is_the_same_each_time) {
    sample x, y;
    sample_init(&x, "a", NULL, language);
    sample_init(&y, "a", NULL, language);
    CHECK_STR(gw_str_c(&x.page), gw_str_c(&y.page));
    sample_release(&x);
    sample_release(&y);
}

/* A plan without a machine has no time, and its page no section about time. */
TEST(page_without_a_machine_has_no_time) {
    sample x;
    gw_str page = {0};
    sample_init(&x, "a", NULL, language);
    json_t *j = gw_plan_json(&x.p.ledger);
    gw_html_page(&(gw_html_input){.plan = j, .name = "a"}, &page);
    static const char *const timed[] = {"id=\"step\"", "id=\"roofline\"", "id=\"cost\"",
                                        "id=\"timeline\"", "step_time_s"};
    for (size_t i = 0; i < GW_COUNT(timed); i++)
        CHECK_MSG(!strstr(gw_str_c(&page), timed[i]), "%s", timed[i]);
    CHECK(strstr(gw_str_c(&page), "id=\"memory\""));
    check_markup(gw_str_c(&page));
    gw_str_release(&page);
    json_decref(j);
    sample_release(&x);
}

/* ---- the roofline ---- */

/* Points, copies and the rest are all of the simulated compute, on a machine where nothing runs
 * beside it; none is above the roof. */
TEST(roofline_holds_every_second_of_compute) {
    sample x;
    sample_init(&x, "a", NULL, language);
    gw_roofline r;
    gw_roofline_init(&r, &x.sim);
    double sum = r.copies_s + r.rest_s, flops = 0;
    for (int i = 0; i < r.n; i++) {
        const gw_roof_point *p = &r.points[i];
        double roof = fmin(x.m.peak[GW_BF16], x.m.memory_bytes_per_s * p->flops / p->bytes);
        sum += p->seconds;
        flops += p->flops;
        CHECK_MSG(p->flops / p->seconds <= roof * (1 + 1e-9), "%s %s: %g above %g", p->op, p->scope,
                  p->flops / p->seconds, roof);
        CHECK(i == 0 || p->seconds <= r.points[i - 1].seconds);
    }
    CHECK_NEAR(sum, r.seconds, 1e-12 * sum);
    CHECK_NEAR(r.seconds, x.sim.sim.compute_s, 1e-9 * r.seconds);
    CHECK_NEAR(r.rest_s, 0, 0);
    CHECK_NEAR(flops, x.p.ledger.flops.hardware, 1e-9 * flops);
    gw_roofline_release(&r);
    sample_release(&x);
}
