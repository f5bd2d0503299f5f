// SPDX-License-Identifier: Apache-2.0
// The report of a build as Markdown.
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/compiler.h"          /* GW_MAX */
#include "data/build/report_impl.h" /* this module's contract */

static int64_t number(const json_t *o, const char *key) {
    return json_integer_value(json_object_get(o, key));
}

static double real(const json_t *o, const char *key) {
    return json_number_value(json_object_get(o, key));
}

static void add_boundaries(const json_t *report, gw_str *out) {
    const json_t *list = json_object_get(report, "boundaries");
    char count[32], bytes[24];
    gw_str_add(out, "# What was built\n\n| boundary | documents | bytes | tokens | of the bytes "
                    "before |\n|---|--:|--:|--:|--:|\n");
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *b = json_array_get(list, i);
        int64_t before = i ? number(json_array_get(list, i - 1), "bytes") : 0;
        gw_str_printf(out, "| %s | %s | %s |", json_string_value(json_object_get(b, "name")),
                      gw_fmt_count(count, number(b, "documents")),
                      gw_fmt_bytes(bytes, number(b, "bytes")));
        if (json_object_get(b, "tokens"))
            gw_str_printf(out, " %s |", gw_fmt_count(count, number(b, "tokens")));
        else
            gw_str_add(out, " |");
        if (before)
            gw_str_printf(out, " %.1f %% |\n", 100.0 * (double)number(b, "bytes") / (double)before);
        else
            gw_str_add(out, " |\n");
    }
}

static void add_sample(const json_t *s, gw_str *out) {
    gw_str_printf(out, "- *%s*, unit %" PRId64 " row %" PRId64 " %s: ",
                  json_string_value(json_object_get(s, "reason")), number(s, "unit"),
                  number(s, "row"), json_string_value(json_object_get(s, "url")));
    const char *t = json_string_value(json_object_get(s, "text"));
    for (; t && *t; t++) {
        if (strchr("\\`*_<>[]#|", *t)) gw_str_add_char(out, '\\');
        gw_str_add_char(out, *t == '\n' || *t == '\r' ? ' ' : *t);
    }
    gw_str_add_char(out, '\n');
}

static void add_filters(const json_t *report, gw_str *out) {
    const json_t *list = json_object_get(report, "filters");
    char count[32];
    if (json_array_size(list)) gw_str_add(out, "\n## What filters removed\n");
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *f = json_array_get(list, i), *samples = json_object_get(f, "samples");
        const char *name;
        json_t *value, *reasons = json_object_get(f, "reasons");
        gw_str_printf(out, "\n### %s: %s\n\n", json_string_value(json_object_get(f, "filter")),
                      gw_fmt_count(count, number(f, "removed")));
        json_object_foreach(reasons, name, value)
            gw_str_printf(out, "%s %s; ", name, gw_fmt_count(count, json_integer_value(value)));
        gw_str_add(out, "\n\n");
        for (size_t k = 0; k < json_array_size(samples); k++)
            add_sample(json_array_get(samples, k), out);
    }
}

static void add_stages(const json_t *report, gw_str *out) {
    const char *name;
    json_t *value, *stages = json_object_get(report, "stages");
    double all = GW_MAX(1e-9, real(report, "cpu_s"));
    gw_str_printf(out,
                  "\n## Time\n\n%.2f CPU seconds: %.1f MB of pages a second and core.\n\n"
                  "| stage | CPU s | share | MB of pages/s |\n|---|--:|--:|--:|\n",
                  all, real(report, "page_MB_per_core_s"));
    json_object_foreach(stages, name, value)
        gw_str_printf(out, "| %s | %.3f | %.1f %% | %.0f |\n", name, real(value, "cpu_s"),
                      100 * real(value, "cpu_s") / all, real(value, "MB_per_s"));
    const json_t *phases = json_object_get(report, "phases_cpu_s");
    gw_str_printf(out, "| dedup (sorting, clusters) | %.3f | %.1f %% | |\n", real(phases, "dedup"),
                  100 * real(phases, "dedup") / all);
    gw_str_printf(out, "| shards | %.3f | %.1f %% | |\n", real(phases, "shards"),
                  100 * real(phases, "shards") / all);
}

static void add_extrapolated(const json_t *report, gw_str *out) {
    const json_t *e = json_object_get(report, "extrapolated");
    char a[24], b[24], c[24];
    if (!json_is_object(e)) return;
    gw_str_printf(out,
                  "\n## At %.3g tokens\n\nRaw %s, pages %s, text %s, tokens %.1f TB (%s-byte ids). "
                  "%.0f core-days, %.0f dollars; %.0f cores finish in two weeks.\n",
                  real(e, "tokens"), gw_fmt_bytes(a, (int64_t)real(e, "raw_bytes")),
                  gw_fmt_bytes(b, (int64_t)real(e, "page_bytes")),
                  gw_fmt_bytes(c, (int64_t)real(e, "text_bytes")), real(e, "token_bytes") / 1e12,
                  json_is_true(json_object_get(e, "two_byte_ids")) ? "two" : "four",
                  real(e, "core_days"), real(e, "dollars"), real(e, "cores_for_two_weeks"));
}

static void add_damage(const json_t *report, gw_str *out) {
    const json_t *in = json_object_get(report, "input"), *files;
    files = json_object_get(in, "damaged_files");
    gw_str_printf(out,
                  "\n## Inputs\n\nPassed over: %" PRId64 " records that are no page, %" PRId64
                  " of other types, %" PRId64 " too long, %" PRId64 " not decoded, %" PRId64
                  " without text; %" PRId64 " wrong digests; %" PRId64 " damaged places.\n",
                  number(in, "not_page"), number(in, "other_type"), number(in, "too_long"),
                  number(in, "undecoded"), number(in, "empty"), number(in, "digests_bad"),
                  number(in, "damages"));
    for (size_t i = 0; i < json_array_size(files); i++) {
        const json_t *f = json_array_get(files, i), *d = json_object_get(f, "damaged");
        gw_str_printf(out, "- %s: %" PRId64 " places",
                      json_string_value(json_object_get(f, "path")), number(f, "damages"));
        for (size_t k = 0; k < json_array_size(d) && k < 4; k++)
            gw_str_printf(out, "; offset %" PRId64 ": %s", number(json_array_get(d, k), "offset"),
                          json_string_value(json_object_get(json_array_get(d, k), "why")));
        gw_str_add_char(out, '\n');
    }
}

static void add_dedup(const json_t *report, gw_str *out) {
    const json_t *d = json_object_get(report, "dedup"), *bloom = json_object_get(d, "bloom");
    const char *name;
    json_t *value, *cut = json_object_get(d, "cut");
    char count[32];
    gw_str_printf(out,
                  "\nDedup removed %" PRId64 " documents (%" PRId64 " equal, %" PRId64
                  " nearly equal, %" PRId64 " clusters) and cut %" PRId64 " bytes.\n",
                  number(d, "removed"), number(d, "exact"), number(d, "near"),
                  number(d, "clusters"), number(d, "cut_bytes"));
    if (number(d, "index"))
        gw_str_printf(out, "Of these %s documents stand in the index.\n",
                      gw_fmt_count(count, number(d, "index")));
    if (json_is_object(bloom))
        gw_str_printf(out,
                      "The Bloom filter was asked %" PRId64 " times and had not seen %" PRId64
                      "; of what is new %.2g are false alarms at its end%s. It took %" PRId64
                      " documents.\n",
                      number(bloom, "asked"), number(bloom, "new"), real(bloom, "false_alarms"),
                      json_is_true(json_object_get(bloom, "overfull"))
                          ? ", which is more than it was made for: it holds too many keys"
                          : "",
                      number(d, "seen"));
    if (json_object_size(cut) == 0) return;
    gw_str_add(out, "\n| what is cut out | ranges | bytes |\n|---|--:|--:|\n");
    json_object_foreach(cut, name, value)
        gw_str_printf(out, "| %s | %s | %" PRId64 " |\n", name,
                      gw_fmt_count(count, number(value, "ranges")), number(value, "bytes"));
}

void gw_build_report_text(const json_t *report, gw_str *out) {
    add_boundaries(report, out);
    add_dedup(report, out);
    add_filters(report, out);
    add_stages(report, out);
    add_extrapolated(report, out);
    add_damage(report, out);
}
