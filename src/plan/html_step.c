// SPDX-License-Identifier: Apache-2.0
// The simulated step on the page: where it goes, what moves on each axis, FLOPs by convention, what
// it costs in money and in failures.
//
// All of it are tables of the plan's JSON, in the order in which it stands there. A part of the
// step has a colour by what it is: computing, waiting for an axis, idle.
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "plan/html_impl.h"

enum { PARTS = 24 };

static const char *part_css(const char *part) {
    static const struct {
        const char *part, *css;
    } known[] = {{"products", "t1"},    {"attention", "t2"},  {"memory-bound ops", "t3"},
                 {"optimizer", "t4"},   {"overlap", "t5"},    {"exposed dp", "t6"},
                 {"exposed ep", "m5"},  {"exposed cp", "m8"}, {"exposed copy", "m9"},
                 {"exposed pp", "f5"},  {"bubble", "t8"},     {"data stall", "t9"},
                 {"exposed sums", "m2"}};
    for (size_t i = 0; i < GW_COUNT(known); i++)
        if (strcmp(known[i].part, part) == 0) return known[i].css;
    return "t7";
}

void gw_page_step(gw_page *p) {
    int n = GW_MIN(gw_page_size(p, "parts"), (int)PARTS);
    gw_page_slice slices[PARTS];
    if (n == 0) return;
    gw_page_open(p, "step", "Where the step goes",
                 gw_page_real(p, "pp") > 1
                     ? "Of a mean rank of the pipeline: everything its compute "
                       "stream does or waits for, from the first op to the last."
                     : "Everything the compute stream does or waits for, from "
                       "the first op to the last.");
    for (int i = 0; i < n; i++)
        slices[i] = (gw_page_slice){part_css(gw_page_string(p, "parts.%d.part", i)),
                                    gw_page_string(p, "parts.%d.part", i),
                                    gw_page_real(p, "parts.%d.percent", i) / 100};
    gw_page_bar(p, "the step", slices, n);
    gw_page_table(p, "parts of the step", "part|>time|>share|cause|what would shorten it");
    for (int i = 0; i < n; i++) {
        gw_page_row(p, slices[i].css, slices[i].label);
        gw_page_cell(p, GW_PAGE_SECONDS, "parts.%d.seconds", i);
        gw_page_cell(p, GW_PAGE_PERCENT, "parts.%d.percent", i);
        gw_page_cell_text(p, gw_page_string(p, "parts.%d.cause", i));
        gw_page_cell_text(p, gw_page_string(p, "parts.%d.remedy", i));
        gw_page_add(p, "</tr>\n");
    }
    gw_page_add(p, "<tr class=\"sum\"><th scope=\"row\">step</th>");
    gw_page_cell(p, GW_PAGE_SECONDS, "step_time_s");
    gw_page_add(p, "<td class=\"num\">100.0 %%</td><td></td><td></td></tr>\n");
    gw_page_table_end(p);
    gw_page_close(p);
}

void gw_page_axes(gw_page *p) {
    int n = gw_page_size(p, "axes");
    if (n == 0) return;
    gw_page_open(p, "axes", "What moves, axis by axis",
                 "Bytes that a rank sends in a step, and what of the time compute waits for.");
    gw_page_table(p, "axes of the layout",
                  "axis|>size|what moves|>bytes a step|link|>time|>exposed|why it sits there");
    for (int i = 0; i < n; i++) {
        gw_page_row(p, NULL, gw_page_string(p, "axes.%d.axis", i));
        gw_page_cell(p, GW_PAGE_COUNT, "axes.%d.size", i);
        gw_page_cell_text(p, gw_page_string(p, "axes.%d.moves", i));
        gw_page_cell(p, GW_PAGE_BYTES, "axes.%d.bytes", i);
        gw_page_cell_text(p, gw_page_string(p, "axes.%d.link", i));
        gw_page_cell(p, GW_PAGE_SECONDS, "axes.%d.seconds", i);
        gw_page_cell(p, GW_PAGE_SECONDS, "axes.%d.exposed_s", i);
        gw_page_cell_text(p, gw_page_string(p, "axes.%d.why", i));
        gw_page_add(p, "</tr>\n");
    }
    gw_page_table_end(p);
    gw_page_close(p);
}

/* ---- FLOPs ---- */

static const struct {
    const char *mfu, *flops, *counts;
} conventions[] = {
    {"causal", "flops.model", "6 a matrix parameter and token, attention as masked"},
    {"full", "flops.model_full_attention", "the same, attention over all keys"},
    {"hardware", "flops.hardware", "what the program computes, recomputation included"},
    {"hardware_full", "flops.hardware_full_attention", "the same, attention over all keys"},
    {"n6", "flops.conventions.6N", "6 a parameter and token, embeddings included, no attention"},
    {"n6_full", "flops.conventions.6N+12Lhs", "the same, and attention over all keys"},
};

/* Of a pipeline the rate counts a mean rank's work, and the FLOPs beside it are this rank's. */
static void add_convention(gw_page *p, size_t i, bool timed) {
    gw_page_row(p, NULL, conventions[i].mfu);
    gw_page_cell(p, GW_PAGE_FLOP, "%s", conventions[i].flops);
    if (timed) {
        gw_page_cell(p, GW_PAGE_TFLOPS, "tflops_per_chip.%s", conventions[i].mfu);
        gw_page_cell(p, GW_PAGE_FRACTION, "mfu.%s", conventions[i].mfu);
    }
    gw_page_cell_text(p, conventions[i].counts);
    gw_page_add(p, "</tr>\n");
}

static void add_phases(gw_page *p) {
    const gw_page_phase *phases = gw_page_phases;
    double all = gw_page_real(p, "flops.hardware");
    gw_page_slice slices[GW_PHASE_COUNT];
    int n = 0;
    for (; phases[n].name; n++)
        slices[n] =
            (gw_page_slice){phases[n].css, phases[n].text,
                            gw_page_real(p, "flops.by_phase.%s", phases[n].name) / fmax(1, all)};
    gw_page_add(p, "<h3>What the program computes, by phase</h3>\n");
    gw_page_bar(p, "hardware FLOPs by phase", slices, n);
    gw_page_table(p, "FLOPs by phase", "phase|>FLOP|>share");
    for (int i = 0; i < n; i++) {
        if (!(gw_page_real(p, "flops.by_phase.%s", phases[i].name) > 0)) continue;
        gw_page_row(p, phases[i].css, phases[i].text);
        gw_page_cell(p, GW_PAGE_FLOP, "flops.by_phase.%s", phases[i].name);
        gw_page_add(p, "<td class=\"num\">%.1f %%</td></tr>\n", 100 * slices[i].share);
    }
    if (gw_page_real(p, "flops.recompute") > 0) {
        gw_page_row(p, NULL, "of these, done again");
        gw_page_cell(p, GW_PAGE_FLOP, "flops.recompute");
        gw_page_add(p, "<td class=\"num\">%.1f %%</td></tr>\n",
                    100 * gw_page_real(p, "flops.recompute") / fmax(1, all));
    }
    gw_page_table_end(p);
}

void gw_page_flops(gw_page *p) {
    bool timed = gw_page_at(p, "mfu") != NULL, many = gw_page_real(p, "ranks") > 1;
    if (!gw_page_at(p, "flops")) return;
    gw_page_open(p, "flops", "FLOPs by convention",
                 many
                     ? "Of a step, on each rank; of a pipeline the hardware rows count this rank's "
                       "ops, and their rates a mean rank's. Published figures use all of these."
                     : "Of a step. Published figures use all of these.");
    gw_page_table(p, "FLOPs by convention",
                  timed ? "convention|>FLOP a step|>rate|>MFU|counts"
                        : "convention|>FLOP a step|counts");
    for (size_t i = 0; i < GW_COUNT(conventions); i++) add_convention(p, i, timed);
    gw_page_table_end(p);
    add_phases(p);
    gw_page_close(p);
}

/* ---- money and failures ---- */

static void add_fact(gw_page *p, gw_page_unit u, const char *key, const char *text) {
    if (!isfinite(gw_page_real(p, "%s", key))) return;
    gw_page_row(p, NULL, text);
    gw_page_cell(p, u, "%s", key);
    gw_page_add(p, "</tr>\n");
}

static void add_days(gw_page *p) {
    const gw_page_slice slices[] = {
        {"t4", "steps that count", gw_page_real(p, "goodput.goodput")},
        {"t3", "writing checkpoints", gw_page_real(p, "goodput.lost_to_checkpoints")},
        {"t6", "steps done again", gw_page_real(p, "goodput.lost_to_rework")},
        {"t9", "restarts", gw_page_real(p, "goodput.lost_to_restarts")}};
    static const char *const keys[] = {"goodput", "lost_to_checkpoints", "lost_to_rework",
                                       "lost_to_restarts"};
    gw_page_add(p, "<div><h3>Over days</h3>\n");
    gw_page_bar(p, "time", slices, (int)GW_COUNT(slices));
    gw_page_table(p, "time over days", "|>");
    for (size_t i = 0; i < GW_COUNT(slices); i++) {
        gw_page_row(p, slices[i].css, slices[i].label);
        gw_page_cell(p, GW_PAGE_FRACTION, "goodput.%s", keys[i]);
        gw_page_add(p, "</tr>\n");
    }
    add_fact(p, GW_PAGE_SECONDS, "goodput.between_failures_s", "between failures, on average");
    add_fact(p, GW_PAGE_BYTES, "checkpoint_bytes", "a checkpoint");
    add_fact(p, GW_PAGE_SECONDS, "goodput.checkpoint_write_s", "to write it");
    add_fact(p, GW_PAGE_SECONDS, "goodput.best_interval_s", "best interval between checkpoints");
    gw_page_table_end(p);
    gw_page_add(p, "</div>\n");
}

void gw_page_costs(gw_page *p) {
    bool dollars = gw_page_at(p, "dollars") != NULL, days = gw_page_at(p, "goodput") != NULL;
    const char *what = gw_page_at(p, "model.blocks") ? "a billion images" : "a billion tokens";
    if (!dollars && !days) return;
    gw_page_open(p, "cost", dollars ? "What it costs" : "Failures", NULL);
    gw_page_add(p, "<div class=\"two\">\n");
    if (days) add_days(p);
    if (dollars) {
        gw_page_add(p, "<div><h3>Money</h3>\n");
        gw_page_table(p, "dollars", "|>");
        add_fact(p, GW_PAGE_DOLLARS, "dollars.per_chip_hour", "an hour of a chip");
        add_fact(p, GW_PAGE_DOLLARS, "dollars.per_step", "a step");
        add_fact(p, GW_PAGE_DOLLARS, "dollars.per_billion_tokens", what);
        gw_page_table_end(p);
        gw_page_add(p, "</div>\n");
    }
    gw_page_add(p, "</div>\n");
    gw_page_close(p);
}
