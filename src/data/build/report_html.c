// SPDX-License-Identifier: Apache-2.0
// The report of a build as one page: how much was left at each boundary, what each filter took and
// what that looked like, what dedup called alike, where the time went, what it comes to at
// trillions of tokens.
//
// The page is made from report.json with the parts that the pages of plans are made of
// (plan/html_part.c): a figure on it carries its key and the JSON's own number, it needs no network
// and no script, and it has a light and a dark form and one for phones. Texts of documents come
// from the web and are escaped like everything else.
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "data/build/report_impl.h" /* this module's contract */
#include "plan/html_impl.h"         /* gw_page */
#include "version.h"                /* GW_VERSION, GW_COMMIT */

#define DOT " \xc2\xb7 "

// ------------------------------------------------------------------ head

static void add_head(gw_page *p, const char *dir) {
    gw_page_add(p, "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
                   "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n"
                   "<meta name=\"color-scheme\" content=\"light dark\">\n"
                   "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; "
                   "style-src 'unsafe-inline'; script-src 'unsafe-inline'\">\n<title>");
    gw_page_text(p, dir);
    gw_page_add(p, " - gradwright data</title>\n<style>\n");
    for (const char *const *s = gw_page_style; *s; s++) gw_str_add(p->out, *s);
    gw_page_add(p, ".doc{white-space:normal;margin:0;font-size:13px;color:var(--dim)}"
                   ".doc b{color:var(--fg);font-weight:500}.pair{border-top:1px solid var(--hair);"
                   "padding:9px 0}.scroll+details,.line+details{margin-top:14px}.funnel "
                   ".bar{height:14px;margin:2px 0}\n");
    gw_page_add(p, "</style></head>\n<body><main>\n<header><p class=\"over\">gradwright data "
                   "build</p><h1>");
    gw_page_text(p, dir);
    gw_page_add(p, "</h1></header>\n");
}

static void tile(gw_page *p, gw_page_unit u, const char *key, const char *label) {
    if (!isfinite(gw_page_real(p, "%s", key))) return;
    gw_page_add(p, "<div><dd>");
    gw_page_figure(p, u, "%s", key);
    gw_page_add(p, "</dd><dt>%s</dt></div>\n", label);
}

/* The boundary of a name: its number in the list, or -1. */
static int boundary(const gw_page *p, const char *name) {
    for (int i = 0; i < gw_page_size(p, "boundaries"); i++)
        if (strcmp(gw_page_string(p, "boundaries.%d.name", i), name) == 0) return i;
    return -1;
}

static void add_tiles(gw_page *p) {
    char key[64];
    int pages = boundary(p, "pages"), tokens = boundary(p, "tokens");
    gw_page_add(p, "<dl class=\"tiles\">\n");
    snprintf(key, sizeof key, "boundaries.%d.documents", pages);
    tile(p, GW_PAGE_COUNT, key, "documents came in");
    snprintf(key, sizeof key, "boundaries.%d.documents", boundary(p, "deduped"));
    tile(p, GW_PAGE_COUNT, key, "documents are left");
    snprintf(key, sizeof key, "boundaries.%d.tokens", tokens);
    if (tokens >= 0) tile(p, GW_PAGE_COUNT, key, "tokens");
    tile(p, GW_PAGE_COUNT, "dedup.removed", "went as duplicates");
    tile(p, GW_PAGE_NUMBER, "page_MB_per_core_s", "MB of pages a second and core");
    tile(p, GW_PAGE_SECONDS, "cpu_s", "CPU time in all");
    gw_page_add(p, "</dl>\n");
}

// ------------------------------------------------------------------ boundaries

static void add_boundaries(gw_page *p) {
    int n = gw_page_size(p, "boundaries");
    double first = gw_page_real(p, "boundaries.%d.documents", GW_MAX(0, boundary(p, "pages")));
    gw_page_open(p, "boundaries", "What is left at each boundary",
                 "Documents and bytes after each step. Raw is as stored, compressed or not; pages "
                 "are the same unpacked.");
    gw_page_table(p, "boundaries of the pipeline",
                  "boundary|>documents|>bytes|>tokens|documents, of all pages");
    for (int i = 0; i < n; i++) {
        double share = gw_page_real(p, "boundaries.%d.documents", i) / GW_MAX(first, 1.0);
        gw_page_row(p, NULL, gw_page_string(p, "boundaries.%d.name", i));
        gw_page_cell(p, GW_PAGE_COUNT, "boundaries.%d.documents", i);
        gw_page_cell(p, GW_PAGE_BYTES, "boundaries.%d.bytes", i);
        gw_page_cell(p, GW_PAGE_COUNT, "boundaries.%d.tokens", i);
        gw_page_add(p, "<td class=\"funnel\">");
        gw_page_bar(p, "share of documents", &(gw_page_slice){"t1", "left", GW_MIN(share, 1.0)}, 1);
        gw_page_add(p, "</td></tr>\n");
    }
    gw_page_table_end(p);
    gw_page_close(p);
}

// ------------------------------------------------------------------ filters

/* A document's beginning, where it is from, and why it is shown. `at`: its place in the report. */
static void add_document(gw_page *p, const char *why, const char *at) {
    gw_page_add(p, "<p class=\"doc\">");
    if (*why) {
        gw_page_add(p, "<b>");
        gw_page_text(p, why);
        gw_page_add(p, "</b>" DOT);
    }
    gw_page_short(p, gw_page_string(p, "%s.url", at), 80);
    if (*gw_page_string(p, "%s.url", at)) gw_page_add(p, DOT);
    gw_page_add(p, "unit %.0f row %.0f: ", gw_page_real(p, "%s.unit", at),
                gw_page_real(p, "%s.row", at));
    gw_page_text(p, gw_page_string(p, "%s.text", at));
    gw_page_add(p, "</p>\n");
}

static void add_reasons(gw_page *p, int filter) {
    const char *name, *sep = "";
    char count[40];
    json_t *value;
    json_t *reasons =
        json_object_get(json_array_get(gw_page_at(p, "filters"), (size_t)filter), "reasons");
    gw_page_add(p, "<p class=\"line\">");
    json_object_foreach(reasons, name, value) {
        gw_page_add(p, "%s", sep);
        gw_page_text(p, name);
        gw_page_add(p, " %s", gw_fmt_count(count, json_integer_value(value)));
        sep = ", ";
    }
    gw_page_add(p, "</p>\n");
}

static void add_filter_samples(gw_page *p, int filter) {
    char at[64];
    int n = gw_page_size(p, "filters.%d.samples", filter);
    gw_page_add(p, "<details><summary>");
    gw_page_text(p, gw_page_string(p, "filters.%d.filter", filter));
    gw_page_add(p, "</summary>\n");
    add_reasons(p, filter);
    for (int i = 0; i < n; i++) {
        snprintf(at, sizeof at, "filters.%d.samples.%d", filter, i);
        gw_page_add(p, "<div class=\"pair\">");
        add_document(p, gw_page_string(p, "%s.reason", at), at);
        gw_page_add(p, "</div>\n");
    }
    gw_page_add(p, "</details>\n");
}

static void add_filters(gw_page *p) {
    int n = gw_page_size(p, "filters");
    double most = 1;
    if (n == 0) return;
    for (int i = 0; i < n; i++) most = GW_MAX(most, gw_page_real(p, "filters.%d.removed", i));
    gw_page_open(p, "filters", "What each filter took",
                 "A document counts for the first filter that takes it. Below are some of those, "
                 "chosen by chance.");
    gw_page_table(p, "documents removed by filter", "filter|>documents|in comparison");
    for (int i = 0; i < n; i++) {
        gw_page_row(p, NULL, gw_page_string(p, "filters.%d.filter", i));
        gw_page_cell(p, GW_PAGE_COUNT, "filters.%d.removed", i);
        gw_page_add(p, "<td>");
        gw_page_bar(
            p, "in comparison",
            &(gw_page_slice){"t6", "removed", gw_page_real(p, "filters.%d.removed", i) / most}, 1);
        gw_page_add(p, "</td></tr>\n");
    }
    gw_page_table_end(p);
    for (int i = 0; i < n; i++)
        if (gw_page_real(p, "filters.%d.removed", i) > 0) add_filter_samples(p, i);
    gw_page_close(p);
}

// ------------------------------------------------------------------ dedup

static void dedup_row(gw_page *p, const char *key, const char *text) {
    if (!(gw_page_real(p, "dedup.%s", key) > 0)) return;
    gw_page_row(p, NULL, text);
    gw_page_cell(p, GW_PAGE_COUNT, "dedup.%s", key);
    gw_page_add(p, "</tr>\n");
}

static void add_cuts(gw_page *p) {
    const char *name;
    json_t *value, *cut = json_object_get(gw_page_at(p, "dedup"), "cut");
    if (json_object_size(cut) == 0) return;
    gw_page_add(p, "<h3>Parts of documents</h3>\n");
    gw_page_table(p, "parts that were cut out", "repeated|>places|>bytes");
    json_object_foreach(cut, name, value) {
        gw_page_row(p, NULL, name);
        gw_page_cell(p, GW_PAGE_COUNT, "dedup.cut.%s.ranges", name);
        gw_page_cell(p, GW_PAGE_BYTES, "dedup.cut.%s.bytes", name);
        gw_page_add(p, "</tr>\n");
    }
    gw_page_table_end(p);
}

static void add_bloom(gw_page *p) {
    if (!gw_page_at(p, "dedup.bloom")) return;
    gw_page_add(p, "<p class=\"line\">The Bloom filter was asked ");
    gw_page_figure(p, GW_PAGE_COUNT, "dedup.bloom.asked");
    gw_page_add(p, " times and had not seen ");
    gw_page_figure(p, GW_PAGE_COUNT, "dedup.bloom.new");
    gw_page_add(p, "; at its end ");
    gw_page_figure(p, GW_PAGE_NUMBER, "dedup.bloom.false_alarms");
    gw_page_add(p, " of what is new are false alarms");
    if (json_is_true(gw_page_at(p, "dedup.bloom.overfull")))
        gw_page_add(p, ", which is more than it was made for: it holds too many keys");
    gw_page_add(p, ".</p>\n");
}

static void add_sizes(gw_page *p) {
    int n = gw_page_size(p, "clusters.sizes");
    char label[64];
    if (n == 0) return;
    gw_page_add(p, "<h3>How large clusters are</h3>\n");
    gw_page_table(p, "clusters by size", "documents in it|>clusters|>documents");
    for (int i = 0; i < n; i++) {
        double from = gw_page_real(p, "clusters.sizes.%d.from", i);
        snprintf(label, sizeof label, "%.0f to %.0f", from,
                 gw_page_real(p, "clusters.sizes.%d.to", i));
        gw_page_row(p, NULL, label);
        gw_page_cell(p, GW_PAGE_COUNT, "clusters.sizes.%d.clusters", i);
        gw_page_cell(p, GW_PAGE_COUNT, "clusters.sizes.%d.documents", i);
        gw_page_add(p, "</tr>\n");
    }
    gw_page_table_end(p);
}

static void add_largest(gw_page *p) {
    char at[64], why[64];
    int n = gw_page_size(p, "clusters.largest");
    if (n == 0) return;
    gw_page_add(p, "<details><summary>The largest clusters, by what stays of them</summary>\n");
    for (int i = 0; i < n; i++) {
        snprintf(at, sizeof at, "clusters.largest.%d", i);
        snprintf(why, sizeof why, "%.0f documents", gw_page_real(p, "%s.documents", at));
        gw_page_add(p, "<div class=\"pair\">");
        add_document(p, why, at);
        gw_page_add(p, "</div>\n");
    }
    gw_page_add(p, "</details>\n");
}

static void add_pairs(gw_page *p) {
    char at[64];
    int n = gw_page_size(p, "clusters.pairs");
    if (n == 0) return;
    gw_page_add(p, "<details open><summary>Some that went, beside what stayed</summary>\n");
    for (int i = 0; i < n; i++) {
        gw_page_add(p, "<div class=\"pair two\"><div>");
        snprintf(at, sizeof at, "clusters.pairs.%d.gone", i);
        add_document(p, gw_page_string(p, "clusters.pairs.%d.why", i), at);
        gw_page_add(p, "</div><div>");
        snprintf(at, sizeof at, "clusters.pairs.%d.stays", i);
        add_document(p, "stays", at);
        gw_page_add(p, "</div></div>\n");
    }
    gw_page_add(p, "</details>\n");
}

static void add_dedup(gw_page *p) {
    bool parts = json_object_size(json_object_get(gw_page_at(p, "dedup"), "cut")) > 0;
    if (!parts && !(gw_page_real(p, "dedup.removed") > 0) && !gw_page_at(p, "dedup.bloom")) return;
    gw_page_open(p, "dedup", "What stands elsewhere too",
                 "Of documents that are equal or alike the first stays, of repeated parts too.");
    gw_page_table(p, "documents that dedup removed", "documents|>removed");
    dedup_row(p, "exact", "equal to an earlier one");
    dedup_row(p, "near", "nearly equal to an earlier one");
    dedup_row(p, "index", "in the index, or like one that is");
    dedup_row(p, "seen", "seen by the Bloom filter");
    dedup_row(p, "emptied", "left empty when their parts were cut out");
    gw_page_table_end(p);
    add_bloom(p);
    add_cuts(p);
    add_sizes(p);
    add_pairs(p);
    add_largest(p);
    gw_page_close(p);
}

// ------------------------------------------------------------------ time

static const char *const colours[] = {"t1", "t2", "t3", "t4", "t5", "t6",
                                      "t7", "m5", "m8", "m9", "f4", "f5"};

static void add_time(gw_page *p) {
    enum { MOST = 16 };
    gw_page_slice slices[MOST];
    const char *name;
    json_t *value, *stages = json_object_get(p->j, "stages");
    double all = GW_MAX(1e-9, gw_page_real(p, "cpu_s"));
    int n = 0;
    gw_page_open(p, "time", "Where the time goes", "CPU seconds by stage, of all workers.");
    json_object_foreach(stages, name, value) {
        if (n == MOST - 2) break;
        slices[n] = (gw_page_slice){colours[(size_t)n % GW_COUNT(colours)], name,
                                    gw_page_real(p, "stages.%s.cpu_s", name) / all};
        n++;
    }
    int stages_shown = n;
    slices[n++] = (gw_page_slice){"m2", "dedup", gw_page_real(p, "phases_cpu_s.dedup") / all};
    slices[n++] = (gw_page_slice){"m0", "shards", gw_page_real(p, "phases_cpu_s.shards") / all};
    gw_page_bar(p, "CPU time", slices, n);
    gw_page_table(p, "CPU time by stage", "stage|>CPU time|>share|>MB of pages a second");
    for (int i = 0; i < n; i++) {
        bool stage = i < stages_shown;
        gw_page_row(p, slices[i].css, slices[i].label);
        gw_page_cell(p, GW_PAGE_SECONDS, stage ? "stages.%s.cpu_s" : "phases_cpu_s.%s",
                     slices[i].label);
        gw_page_add(p, "<td class=\"num\">%.1f %%</td>", 100 * slices[i].share);
        gw_page_cell(p, GW_PAGE_NUMBER, stage ? "stages.%s.MB_per_s" : "none.%s", slices[i].label);
        gw_page_add(p, "</tr>\n");
    }
    gw_page_table_end(p);
    gw_page_close(p);
}

static void add_extrapolated(gw_page *p) {
    char tokens[40], title[80];
    if (!gw_page_at(p, "extrapolated")) return;
    snprintf(title, sizeof title, "At %s tokens",
             gw_page_format(GW_PAGE_RATE, gw_page_real(p, "extrapolated.tokens"), tokens));
    gw_page_open(
        p, "extrapolated", title,
        "The same inputs, as many times as it takes; what grows faster than they do (dedup's "
        "sorting) grows by a logarithm.");
    gw_page_add(p, "<dl class=\"tiles\">\n");
    tile(p, GW_PAGE_BYTES, "extrapolated.raw_bytes", "raw");
    tile(p, GW_PAGE_BYTES, "extrapolated.page_bytes", "pages");
    tile(p, GW_PAGE_BYTES, "extrapolated.text_bytes", "text");
    tile(p, GW_PAGE_BYTES, "extrapolated.token_bytes", "tokens on disk");
    tile(p, GW_PAGE_COUNT, "extrapolated.core_days", "core-days");
    tile(p, GW_PAGE_COUNT, "extrapolated.cores_for_two_weeks", "cores finish in two weeks");
    tile(p, GW_PAGE_DOLLARS, "extrapolated.dollars", "for the cores");
    gw_page_add(p, "</dl>\n");
    gw_page_close(p);
}

// ------------------------------------------------------------------ inputs

static void input_row(gw_page *p, const char *key, const char *text) {
    gw_page_row(p, NULL, text);
    gw_page_cell(p, GW_PAGE_COUNT, "input.%s", key);
    gw_page_add(p, "</tr>\n");
}

static void add_damage(gw_page *p) {
    int n = gw_page_size(p, "input.damaged_files");
    for (int i = 0; i < n; i++) {
        gw_page_add(p, "<p class=\"line\"><code>");
        gw_page_text(p, gw_page_string(p, "input.damaged_files.%d.path", i));
        gw_page_add(p, "</code> ");
        gw_page_figure(p, GW_PAGE_COUNT, "input.damaged_files.%d.damages", i);
        gw_page_add(p, " places");
        for (int k = 0; k < GW_MIN(4, gw_page_size(p, "input.damaged_files.%d.damaged", i)); k++) {
            gw_page_add(p, DOT "offset %.0f: ",
                        gw_page_real(p, "input.damaged_files.%d.damaged.%d.offset", i, k));
            gw_page_text(p, gw_page_string(p, "input.damaged_files.%d.damaged.%d.why", i, k));
        }
        gw_page_add(p, "</p>\n");
    }
}

static void add_inputs(gw_page *p) {
    const char *name;
    json_t *value;
    gw_page_open(p, "inputs", "What was passed over, and what was personal", NULL);
    gw_page_table(p, "records that became no document", "records|>number");
    input_row(p, "not_page", "that are no page");
    input_row(p, "other_type", "of other types");
    input_row(p, "too_long", "that are too long");
    input_row(p, "undecoded", "that could not be decoded");
    input_row(p, "empty", "without text");
    input_row(p, "digests_bad", "whose digest is wrong");
    input_row(p, "damages", "damaged places");
    json_object_foreach(json_object_get(p->j, "pii"), name, value) {
        char text[64];
        snprintf(text, sizeof text, "personal: %s", name);
        gw_page_row(p, NULL, text);
        gw_page_cell(p, GW_PAGE_COUNT, "pii.%s", name);
        gw_page_add(p, "</tr>\n");
    }
    gw_page_table_end(p);
    add_damage(p);
    gw_page_close(p);
}

void gw_build_report_html(const json_t *report, const char *dir, gw_str *out) {
    gw_page p = {.j = report, .out = out};
    add_head(&p, dir);
    add_tiles(&p);
    add_boundaries(&p);
    add_filters(&p);
    add_dedup(&p);
    add_time(&p);
    add_extrapolated(&p);
    add_inputs(&p);
    gw_page_add(&p,
                "<footer><p><code>report.json</code> has the same figures, "
                "<code>manifest.json</code> the files with their checksums.</p>"
                "<p>Bytes are powers of 1000 (1 GB = 10<sup>9</sup> B). gradwright %s (%s).</p>"
                "</footer></main>\n<script>\n",
                GW_VERSION, GW_COMMIT);
    gw_str_add(out, gw_page_script);
    gw_page_add(&p, "</script></body></html>\n");
    gw_arena_release(&p.mem);
}
