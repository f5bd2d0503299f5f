// SPDX-License-Identifier: Apache-2.0
// What few readers look for, folded: collectives one by one, activations at the peak, kernels, and
// what else was tried to make it fit.
#include <stdio.h>
#include <string.h>

#include "plan/html_impl.h"

enum { ROWS = 40 };

static void begin(gw_page *p, const char *title) {
    gw_page_add(p, "<details><summary>%s</summary>\n", title);
}

static void end(gw_page *p, int n) {
    gw_page_table_end(p);
    if (n > ROWS)
        gw_page_add(p, "<p class=\"line\">and %d smaller; --json has all</p>\n", n - ROWS);
    gw_page_add(p, "</details>\n");
}

static void add_wire(gw_page *p) {
    int n = gw_page_size(p, "wire.collectives");
    if (n == 0) return;
    begin(p, "On the wire, by collective");
    gw_page_table(p, "collectives of a step",
                  "collective|over|>ranks|wire|algorithm|>count|>payload|>moved");
    for (int i = 0; i < GW_MIN(n, (int)ROWS); i++) {
        gw_page_row(p, NULL, gw_page_string(p, "wire.collectives.%d.collective", i));
        gw_page_cell_text(p, gw_page_string(p, "wire.collectives.%d.axis", i));
        gw_page_cell(p, GW_PAGE_COUNT, "wire.collectives.%d.ranks", i);
        gw_page_cell_text(p, gw_page_string(p, "wire.collectives.%d.wire", i));
        gw_page_cell_text(p, gw_page_string(p, "wire.collectives.%d.algorithm", i));
        gw_page_cell(p, GW_PAGE_COUNT, "wire.collectives.%d.count", i);
        gw_page_cell(p, GW_PAGE_BYTES, "wire.collectives.%d.payload_bytes", i);
        gw_page_cell(p, GW_PAGE_BYTES, "wire.collectives.%d.moved_bytes", i);
        gw_page_add(p, "</tr>\n");
    }
    gw_page_add(p, "<tr class=\"sum\"><th scope=\"row\">total</th><td></td><td></td><td></td><td>"
                   "</td><td></td>");
    gw_page_cell(p, GW_PAGE_BYTES, "wire.payload_bytes");
    gw_page_cell(p, GW_PAGE_BYTES, "wire.moved_bytes");
    gw_page_add(p, "</tr>\n");
    end(p, n);
}

static void add_activations(gw_page *p) {
    int n = gw_page_size(p, "memory.activations");
    if (n == 0) return;
    begin(p, "Activations at the peak");
    gw_page_table(p, "activations at the peak", "made by|in|>values|>places|>bytes|type");
    for (int i = 0; i < GW_MIN(n, (int)ROWS); i++) {
        bool layer = json_is_true(gw_page_at(p, "memory.activations.%d.in_layer", i));
        const char *scope = gw_page_string(p, "memory.activations.%d.scope", i);
        gw_page_row(p, NULL, gw_page_string(p, "memory.activations.%d.op", i));
        gw_page_cell_text(
            p, layer ? gw_arena_printf(&p->mem, "layer *%s%s", *scope ? "/" : "", scope) : scope);
        gw_page_cell(p, GW_PAGE_COUNT, "memory.activations.%d.values", i);
        gw_page_cell(p, GW_PAGE_COUNT, "memory.activations.%d.places", i);
        gw_page_cell(p, GW_PAGE_BYTES, "memory.activations.%d.bytes", i);
        gw_page_cell_text(p, gw_page_string(p, "memory.activations.%d.type", i));
        gw_page_add(p, "</tr>\n");
    }
    end(p, n);
}

static void add_kernels(gw_page *p) {
    int n = gw_page_size(p, "kernels");
    if (n == 0) return;
    begin(p, "Kernels of this machine");
    gw_page_table(p, "kernels", "op|>ops|kernel|>FLOP|>workspace|note");
    for (int i = 0; i < GW_MIN(n, (int)ROWS); i++) {
        gw_page_row(p, NULL, gw_page_string(p, "kernels.%d.op", i));
        gw_page_cell(p, GW_PAGE_COUNT, "kernels.%d.count", i);
        gw_page_cell_text(p, gw_page_string(p, "kernels.%d.kernel", i));
        gw_page_cell(p, GW_PAGE_FLOP, "kernels.%d.flops", i);
        gw_page_cell(p, GW_PAGE_BYTES, "kernels.%d.workspace_bytes", i);
        gw_page_cell_text(p, gw_page_string(p, "kernels.%d.note", i));
        gw_page_add(p, "</tr>\n");
    }
    end(p, n);
}

static void add_tries(gw_page *p) {
    int n = gw_page_size(p, "verdict.tried");
    if (n == 0) return;
    begin(p, "What was tried to make it fit");
    gw_page_table(p, "changes tried", "change|>total|");
    for (int i = 0; i < GW_MIN(n, (int)ROWS); i++) {
        bool fits = json_is_true(gw_page_at(p, "verdict.tried.%d.fits", i));
        gw_page_row(p, NULL, gw_page_string(p, "verdict.tried.%d.set", i));
        gw_page_cell(p, GW_PAGE_BYTES, "verdict.tried.%d.total_bytes", i);
        bool least = json_is_true(gw_page_at(p, "verdict.tried.%d.at_least", i));
        gw_page_cell_text(p, fits ? "fits" : least ? "at least; does not fit" : "does not fit");
        gw_page_add(p, "</tr>\n");
    }
    end(p, n);
}

void gw_page_details(gw_page *p) {
    if (!gw_page_at(p, "program")) return;
    gw_page_open(p, "details", "Details", NULL);
    add_tries(p);
    add_wire(p);
    add_activations(p);
    add_kernels(p);
    gw_page_add(p, "<p class=\"line about\">The program has ");
    gw_page_figure(p, GW_PAGE_COUNT, "program.ops");
    gw_page_add(p, " ops and ");
    gw_page_figure(p, GW_PAGE_COUNT, "program.values");
    gw_page_add(p, " values.</p>\n");
    gw_page_close(p);
}
