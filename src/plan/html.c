// SPDX-License-Identifier: Apache-2.0
// The page: what is planned, does it fit, the figures that matter, and then the sections.
//
// A reader's questions come in an order, and so do the sections: does it fit, how long is a step,
// where does the time go, when does it go there, where does the memory go, how far from the chip's
// limits is it, what moves, what does it cost. A section whose figures the plan does not have is
// left out: without a machine there is no time on the page.
//
// The page is one file. A policy in its head forbids a browser to fetch anything, whatever a name
// may hold; the few lines of script only show the text of a mark under the pointer at once, which a
// browser shows by itself a second later. Nothing in it depends on the day it is made.
#include "plan/html.h"

#include <math.h>
#include <string.h>

#include "plan/html_impl.h"
#include "version.h" /* GW_VERSION, GW_COMMIT */

#define TIMES " \xc3\x97 "
#define DOT   " \xc2\xb7 "

/* ---- head ---- */

static void add_head(gw_page *p) {
    gw_page_add(p, "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
                   "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n"
                   "<meta name=\"color-scheme\" content=\"light dark\">\n"
                   "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; "
                   "style-src 'unsafe-inline'; script-src 'unsafe-inline'\">\n<title>");
    gw_page_text(p, p->in->name);
    gw_page_add(p, " - gradwright plan</title>\n<style>\n");
    for (const char *const *s = gw_page_style; *s; s++) gw_str_add(p->out, *s);
    gw_page_add(p, "</style></head>\n<body><main>\n");
}

static void count(gw_page *p, const char *key, const char *one, const char *many) {
    gw_page_figure(p, GW_PAGE_COUNT, "%s", key);
    gw_page_add(p, " %s", gw_page_real(p, "%s", key) == 1 ? one : many);
}

static void add_net(gw_page *p) {
    gw_page_add(p, "residual net of ");
    for (int i = 0; i < gw_page_size(p, "model.blocks"); i++) {
        if (i) gw_page_add(p, ", ");
        gw_page_figure(p, GW_PAGE_COUNT, "model.blocks.%d", i);
    }
    bool narrow = json_is_true(gw_page_at(p, "model.bottleneck"));
    gw_page_add(p, " %sblocks" DOT "width ", narrow ? "bottleneck " : "");
    gw_page_figure(p, GW_PAGE_COUNT, "model.width");
    gw_page_add(p, DOT "images of ");
    gw_page_figure(p, GW_PAGE_COUNT, "model.image");
    gw_page_add(p, TIMES);
    gw_page_figure(p, GW_PAGE_COUNT, "model.image");
    gw_page_add(p, DOT);
    count(p, "model.classes", "class", "classes");
}

static void add_language_model(gw_page *p) {
    count(p, "model.layers", "layer", "layers");
    gw_page_add(p, DOT "hidden ");
    gw_page_figure(p, GW_PAGE_COUNT, "model.hidden");
    gw_page_add(p, DOT);
    count(p, "model.heads", "head", "heads");
    gw_page_add(p, " (");
    gw_page_figure(p, GW_PAGE_COUNT, "model.kv_heads");
    gw_page_add(p, " kv) of ");
    gw_page_figure(p, GW_PAGE_COUNT, "model.head_dim");
    gw_page_add(p, DOT "ffn ");
    gw_page_figure(p, GW_PAGE_COUNT, "model.ffn");
    gw_page_add(p, DOT "vocabulary ");
    gw_page_figure(p, GW_PAGE_COUNT, "model.vocab");
    if (!gw_page_at(p, "model.moe")) return;
    gw_page_add(p, DOT);
    count(p, "model.moe.experts", "expert", "experts");
    gw_page_add(p, ", a token goes to ");
    gw_page_figure(p, GW_PAGE_COUNT, "model.moe.top");
}

static bool is_net(const gw_page *p) { return gw_page_at(p, "model.blocks") != NULL; }

static void add_model(gw_page *p) {
    gw_page_add(p, "<div><dt>Model</dt><dd>");
    gw_page_text(p, gw_page_string(p, "model.family"));
    gw_page_add(p, DOT);
    gw_page_figure(p, GW_PAGE_PARAMS, "params");
    gw_page_add(p, " parameters");
    if (gw_page_real(p, "active_params") < gw_page_real(p, "params")) {
        gw_page_add(p, ", ");
        gw_page_figure(p, GW_PAGE_PARAMS, "active_params");
        gw_page_add(p, " of them for a token");
    }
    gw_page_add(p, DOT);
    if (is_net(p))
        add_net(p);
    else
        add_language_model(p);
    gw_page_add(p, "</dd></div>\n");
}

static void add_step(gw_page *p) {
    gw_page_add(p, "<div><dt>A step</dt><dd>");
    if (is_net(p)) {
        count(p, "micro_batch", "image", "images");
    } else {
        count(p, "micro_batch", "sequence", "sequences");
        gw_page_add(p, " of ");
        count(p, "seq_len", "token", "tokens");
    }
    gw_page_add(p, TIMES);
    count(p, "micro_batches", "micro-batch", "micro-batches");
    if (gw_page_real(p, "dp") > 1) {
        gw_page_add(p, TIMES);
        gw_page_figure(p, GW_PAGE_COUNT, "dp");
        gw_page_add(p, " data-parallel");
    }
    gw_page_add(p, " = ");
    if (is_net(p))
        count(p, "tokens_per_step", "image", "images");
    else
        count(p, "tokens_per_step", "token", "tokens");
    gw_page_add(p, "</dd></div>\n");
}

/* "64 ranks: pp 8 x dp 2 x tp 4"; without a machine what the plan says of it. */
static void add_layout(gw_page *p) {
    static const char *const axes[] = {"pp", "dp"};
    const char *text = gw_page_string(p, "layout");
    gw_page_add(p, "<div><dt>Layout</dt><dd>");
    count(p, "ranks", "rank", "ranks");
    if (*text) {
        gw_page_add(p, ": ");
        gw_page_text(p, text);
    }
    for (size_t i = 0; !*text && i < GW_COUNT(axes); i++) {
        if (!(gw_page_real(p, "%s", axes[i]) > 1)) continue;
        gw_page_add(p, DOT "%s ", axes[i]);
        gw_page_figure(p, GW_PAGE_COUNT, "%s", axes[i]);
    }
    if (gw_page_at(p, "pipeline.schedule")) {
        gw_page_add(p, DOT "schedule ");
        gw_page_text(p, gw_page_string(p, "pipeline.schedule"));
        if (gw_page_real(p, "pipeline.virtual_stages") > 1) {
            gw_page_add(p, " of ");
            gw_page_figure(p, GW_PAGE_COUNT, "pipeline.virtual_stages");
            gw_page_add(p, " stages a rank");
        }
    }
    gw_page_add(p, "</dd></div>\n");
}

static void add_machine(gw_page *p) {
    if (!gw_page_at(p, "hardware")) return;
    gw_page_add(p, "<div><dt>Machine</dt><dd>");
    gw_page_text(p, gw_page_string(p, "hardware"));
    gw_page_add(p, TIMES);
    gw_page_figure(p, GW_PAGE_COUNT, "world");
    if (gw_page_at(p, "peak_flops")) {
        gw_page_add(p, DOT "peak ");
        gw_page_figure(p, GW_PAGE_FLOPS, "peak_flops");
        gw_page_add(p, " a chip in ");
        gw_page_text(p, gw_page_string(p, "peak_dtype"));
    }
    gw_page_add(p, "</dd></div>\n");
}

static void add_header(gw_page *p) {
    gw_page_add(p, "<header><p class=\"over\">gradwright plan%s</p><h1>",
                p->in->run ? ", beside its run" : "");
    gw_page_text(p, p->in->name);
    gw_page_add(p, "</h1>\n");
    if (!gw_page_at(p, "params")) { /* a search alone */
        gw_page_add(p, "</header>\n");
        return;
    }
    gw_page_add(p, "<dl class=\"facts\">\n");
    add_model(p);
    add_step(p);
    add_layout(p);
    add_machine(p);
    gw_page_add(p, "</dl></header>\n");
}

/* ---- verdict ---- */

static void add_change(gw_page *p) {
    const char *set = gw_page_string(p, "verdict.change.set");
    if (!*set) {
        gw_page_add(p, "<p>No recomputation, micro-batch, length or precision makes it fit.</p>");
        return;
    }
    gw_page_add(p, "<p>The smallest change that fits, ");
    gw_page_figure(p, GW_PAGE_BYTES, "verdict.change.total_bytes");
    gw_page_add(p, ": <code>--set ");
    for (; *set; set++) {
        char one[2] = {*set, 0};
        if (*set == ' ')
            gw_page_add(p, " --set ");
        else
            gw_page_text(p, one);
    }
    gw_page_add(p, "</code></p>");
}

void gw_page_verdict(gw_page *p) {
    if (!gw_page_at(p, "verdict")) return;
    if (!json_is_boolean(gw_page_at(p, "verdict.fits"))) {
        gw_page_add(p, "<div class=\"verdict\" role=\"note\"><p><b>Takes ");
        gw_page_figure(p, GW_PAGE_BYTES, "memory.total_bytes");
        gw_page_add(p, ".</b> The machine's memory is not stated.</p></div>\n");
        return;
    }
    bool fits = json_is_true(gw_page_at(p, "verdict.fits"));
    double total = gw_page_real(p, "memory.total_bytes");
    double room = gw_page_real(p, "verdict.available_bytes");
    char spare[48];
    gw_page_add(p, "<div class=\"verdict %s\" role=\"note\"><p><b>%s</b> ", fits ? "yes" : "no",
                fits ? "Fits." : "Does not fit.");
    gw_page_figure(p, GW_PAGE_BYTES, "memory.total_bytes");
    gw_page_add(p, fits ? " of " : " against ");
    gw_page_figure(p, GW_PAGE_BYTES, "verdict.available_bytes");
    gw_page_add(p, " (");
    gw_page_text(p, gw_page_string(p, "verdict.limit"));
    gw_page_add(p, ")");
    if (fits) {
        gw_page_add(p, ", %s to spare.", gw_page_format(GW_PAGE_BYTES, room - total, spare));
    } else {
        gw_page_add(p, ": short by ");
        gw_page_figure(p, GW_PAGE_BYTES, "verdict.short_bytes");
        gw_page_add(p, ".");
    }
    gw_page_add(p, "</p>\n");
    if (!fits) add_change(p);
    double share = total / fmax(1, fmax(room, total)), limit = room / fmax(1, fmax(room, total));
    gw_page_add(p,
                "<div class=\"meter\" aria-hidden=\"true\"><i style=\"width:%.2f%%\"></i>"
                "<b style=\"left:%.2f%%\"></b></div></div>\n",
                100 * share, 100 * limit);
}

/* ---- tiles ---- */

static void tile(gw_page *p, gw_page_unit u, const char *key, const char *label) {
    if (!isfinite(gw_page_real(p, "%s", key))) return;
    gw_page_add(p, "<div><dd>");
    gw_page_figure(p, u, "%s", key);
    gw_page_add(p, "</dd><dt>%s</dt></div>\n", label);
}

void gw_page_tiles(gw_page *p) {
    bool net = is_net(p), many = gw_page_real(p, "ranks") > 1;
    if (!gw_page_at(p, "params")) return;
    gw_page_add(p, "<dl class=\"tiles\">\n");
    tile(p, GW_PAGE_SECONDS, "step_time_s", "a step, simulated");
    tile(p, GW_PAGE_FRACTION, "mfu.causal", net ? "MFU" : "MFU, causal attention");
    tile(p, GW_PAGE_RATE, "tokens_per_s_chip",
         net ? "images a second and chip" : "tokens a second and chip");
    tile(p, GW_PAGE_BYTES, "memory.total_bytes", many ? "memory, fullest rank" : "memory");
    if (gw_page_real(p, "pp") > 1) tile(p, GW_PAGE_FRACTION, "bubble", "bubble, of the step");
    tile(p, GW_PAGE_DOLLARS, "dollars.per_billion_tokens",
         net ? "for a billion images" : "for a billion tokens");
    if (!gw_page_at(p, "step_time_s")) {
        tile(p, GW_PAGE_BYTES, "memory.arena_bytes", "of it the arena");
        tile(p, GW_PAGE_FLOP, "flops.model", "a step and rank, model FLOPs");
        if (many) tile(p, GW_PAGE_BYTES, "wire.payload_bytes", "sent a step, this rank");
        tile(p, GW_PAGE_COUNT, "program.ops", "ops of the program");
    }
    gw_page_add(p, "</dl>\n");
}

/* ---- the page ---- */

static void add_foot(gw_page *p) {
    gw_page_add(p, "<footer>");
    if (p->in->layout) {
        gw_page_add(p, "<p>The run: ");
        gw_page_text(p, p->in->layout);
        if (json_is_string(gw_page_at(p, "assumed")))
            gw_page_add(p, " (assumed, since no run file says otherwise)");
        gw_page_add(p, ".</p>");
    }
    if (p->in->command) {
        gw_page_add(p, "<p>Made by <code>");
        gw_page_text(p, p->in->command);
        gw_page_add(p, "</code>; <code>--json</code> has the same figures.</p>");
    }
    gw_page_add(
        p, "<p>Bytes are powers of 1000 (1 GB = 10<sup>9</sup> B).%s gradwright %s (%s).</p>",
        gw_page_real(p, "ranks") > 1 ? " Of several ranks memory is that of the fullest." : "",
        GW_VERSION, GW_COMMIT);
    gw_page_add(p, "</footer></main>\n<script>\n");
    gw_str_add(p->out, gw_page_script);
    gw_page_add(p, "</script></body></html>\n");
}

void gw_html_page(const gw_html_input *in, gw_str *out) {
    gw_page p = {.in = in, .j = in->plan, .out = out};
    add_head(&p);
    add_header(&p);
    gw_page_verdict(&p);
    gw_page_tiles(&p);
    gw_page_measured(&p);
    gw_page_search(&p);
    gw_page_step(&p);
    gw_page_timelines(&p);
    gw_page_memory(&p);
    gw_page_ranks(&p);
    gw_page_roofline(&p);
    gw_page_axes(&p);
    gw_page_flops(&p);
    gw_page_costs(&p);
    gw_page_data(&p);
    gw_page_details(&p);
    add_foot(&p);
    gw_arena_release(&p.mem);
}
