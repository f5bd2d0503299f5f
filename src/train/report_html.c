// SPDX-License-Identifier: Apache-2.0
// report.html: a run on one page that needs nothing but itself.
//
// Style, drawings and a few lines of script stand inside the file; there is no address in it that a
// browser would fetch. Colours are variables with a light and a dark value, chosen by the reader's
// system. From top to bottom: the figures that matter, the curves, planned against measured, memory
// over the step, where the time goes, the configuration as it was resolved.
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h" /* gw_clock_iso */
#include "base/io.h"    /* gw_file_write_atomic */
#include "base/str.h"   /* gw_str */
#include "train/report.h"
#include "version.h" /* GW_VERSION, GW_COMMIT */

// clang-format off
static const char style[] =
    ":root{color-scheme:light dark;--bg:#f7f7f5;--card:#fff;--ink:#1d1d1b;--soft:#6a6964;--line:#e5e4df;--axis:#b9b8b2;"
    "--c1:#2a78d6;--c2:#eb6834;--c3:#1baf7a;--m1:#2a78d6;--m2:#4a3aa7;--m3:#1baf7a;--m4:#eda100;--m5:#eb6834;--m6:#e34948;--m7:#e87ba4;--m8:#008300}"
    "@media (prefers-color-scheme:dark){:root{--bg:#141413;--card:#1d1d1b;--ink:#eeede8;--soft:#a3a29b;--line:#32312e;--axis:#5b5a55;"
    "--c1:#3987e5;--c2:#d95926;--c3:#199e70;--m1:#3987e5;--m2:#9085e9;--m3:#199e70;--m4:#c98500;--m5:#d95926;--m6:#e66767;--m7:#d55181;--m8:#3f9a3f}}"
    "*{box-sizing:border-box}body{margin:0;background:var(--bg);color:var(--ink);font:15px/1.5 system-ui,-apple-system,'Segoe UI',Roboto,'DejaVu Sans',sans-serif}"
    "main{max-width:1080px;margin:0 auto;padding:32px 20px 64px}h1{font-size:26px;margin:0 0 2px;letter-spacing:-.01em}h2{font-size:15px;margin:0 0 10px}"
    ".sub{color:var(--soft);margin:0 0 22px}.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(126px,1fr));gap:12px;margin-bottom:12px}"
    ".tile,.card{background:var(--card);border:1px solid var(--line);border-radius:10px}.tile{padding:12px 14px}.card{padding:16px 18px;margin-bottom:12px;position:relative}"
    ".tile b{display:block;font-size:22px;font-weight:600;letter-spacing:-.01em;white-space:nowrap}.tile span{color:var(--soft);font-size:13px}"
    ".tile .status{display:inline-block;font-size:19px;line-height:34px}.two{display:grid;grid-template-columns:1fr 1fr;gap:12px}@media (max-width:760px){.two{grid-template-columns:1fr}}"
    "svg{display:block;width:100%;height:auto;overflow:visible}svg text{font:11px system-ui,-apple-system,'Segoe UI',Roboto,'DejaVu Sans',sans-serif}"
    ".tick{fill:var(--soft);font-variant-numeric:tabular-nums}.grid{stroke:var(--line)}.axis,.span{stroke:var(--axis);fill:none}.line{fill:none;stroke-width:2;stroke-linejoin:round}"
    ".c1{stroke:var(--c1)}.c2{stroke:var(--c2)}.c3{stroke:var(--c3)}.faint{stroke-width:1;opacity:.38}.dot{stroke:var(--card);stroke-width:2}.dot.c2{fill:var(--c2)}"
    ".band{stroke:var(--card);stroke-width:.6}.m1{fill:var(--m1);background:var(--m1)}.m2{fill:var(--m2);background:var(--m2)}.m3{fill:var(--m3);background:var(--m3)}"
    ".m4{fill:var(--m4);background:var(--m4)}.m5{fill:var(--m5);background:var(--m5)}.m6{fill:var(--m6);background:var(--m6)}.m7{fill:var(--m7);background:var(--m7)}"
    ".m8{fill:var(--m8);background:var(--m8)}.limit{stroke:var(--ink);stroke-dasharray:4 3;opacity:.6}.peak{stroke:var(--ink);stroke-width:1.5}.note{fill:var(--soft)}.strong{fill:var(--ink);font-weight:600!important}";
static const char style_more[] =
    ".key{display:inline-block;width:11px;height:11px;border-radius:3px;vertical-align:-1px}.keys{color:var(--soft);font-size:13px;float:right;margin:0}.keys i{display:inline-block;width:16px;height:0;border-top:2px solid;vertical-align:4px;margin:0 5px 0 14px}"
    "i.c1{border-color:var(--c1)}i.c2{border-color:var(--c2)}i.thin{border-top-width:1px;opacity:.5}i.round{width:9px!important;height:9px!important;border:0!important;border-radius:5px;background:var(--c2);vertical-align:0!important}"
    "table{border-collapse:collapse;width:100%;font-size:14px;font-variant-numeric:tabular-nums}th{font-weight:500;color:var(--soft);text-align:right;border-bottom:1px solid var(--axis);padding:4px 10px}"
    "td{text-align:right;padding:4px 10px;border-bottom:1px solid var(--line);white-space:nowrap}th:first-child,td:first-child{text-align:left;padding-left:0}.legend td:nth-child(2),.legend th:nth-child(2){text-align:left}"
    ".legend{margin-top:8px}.legend td:first-child{width:20px;padding-right:0}tr:last-child td{border-bottom:0}.sum td{font-weight:600}th.text{text-align:left}td.text{text-align:left;color:var(--soft);max-width:320px;overflow:hidden;text-overflow:ellipsis}"
    "td.bar{width:22%}td.bar div{height:9px;border-radius:0 4px 4px 0;background:var(--c1)}.scroll{overflow-x:auto}pre{margin:0;overflow-x:auto;font:13px/1.5 ui-monospace,'DejaVu Sans Mono',monospace}"
    ".none{color:var(--soft)}.foot{color:var(--soft);font-size:13px;margin-top:22px}.cursor{stroke:var(--axis)}.tip{fill:var(--ink);font-weight:600!important;paint-order:stroke;stroke:var(--card);stroke-width:4px}.hit{fill:var(--c1);stroke:var(--card);stroke-width:2}"
    "summary{cursor:pointer;font-weight:600}details pre{margin-top:10px}";

static const char script[] =
    "for(const s of document.querySelectorAll('svg[data-points]')){const p=JSON.parse(s.dataset.points);if(!p.length)continue;"
    "const h=s.viewBox.baseVal.height,w=s.viewBox.baseVal.width,N='http://www.w3.org/2000/svg',mk=(t,c)=>{const e=document.createElementNS(N,t);e.setAttribute('class',c);e.style.display='none';s.append(e);return e},"
    "l=mk('line','cursor'),d=mk('circle','hit'),t=mk('text','tip');d.setAttribute('r',4);l.setAttribute('y1',10);l.setAttribute('y2',h-26);"
    "s.addEventListener('pointermove',e=>{const r=s.getBoundingClientRect(),x=(e.clientX-r.left)*w/r.width;let b=p[0];for(const q of p)if(Math.abs(q[0]-x)<Math.abs(b[0]-x))b=q;"
    "l.setAttribute('x1',b[0]);l.setAttribute('x2',b[0]);d.setAttribute('cx',b[0]);d.setAttribute('cy',b[1]);const right=b[0]>w-150;t.setAttribute('x',b[0]+(right?-9:9));t.setAttribute('y',Math.max(22,b[1]-10));"
    "t.setAttribute('text-anchor',right?'end':'start');t.textContent='step '+b[2]+': '+b[3];for(const e of[l,d,t])e.style.display=''});"
    "s.addEventListener('pointerleave',()=>{for(const e of[l,d,t])e.style.display='none'})}";
// clang-format on

/* ---- figures ---- */

static void tile(gw_str *out, const char *value, const char *label) {
    gw_str_add(out, "<div class=\"tile\"><b>");
    gw_html_text(out, value);
    gw_str_add(out, "</b><span>");
    gw_html_text(out, label);
    gw_str_add(out, "</span></div>");
}

static void add_tiles(gw_str *out, const gw_report_facts *f, gw_arena *a) {
    char si[32];
    gw_str_add(out, "<div class=\"tiles\">");
    if (isfinite(f->loss)) tile(out, gw_arena_printf(a, "%.3f", f->loss), "training loss");
    if (isfinite(f->valid_loss))
        tile(out, gw_arena_printf(a, "%.3f", f->valid_loss), "held-out loss");
    if (isfinite(f->valid_bpb))
        tile(out, gw_arena_printf(a, "%.3f", f->valid_bpb), "held-out bits a byte");
    if (isfinite(f->valid_accuracy))
        tile(out, gw_arena_printf(a, "%.2f %%", 100 * f->valid_accuracy), "held-out right");
    if (isfinite(f->tokens_per_s))
        tile(out, gw_arena_printf(a, "%s", gw_fmt_si(si, f->tokens_per_s)),
             f->images ? "images a second" : "tokens a second");
    if (isfinite(f->mfu)) tile(out, gw_arena_printf(a, "%.1f %%", f->mfu * 100), "MFU");
    tile(out, gw_fmt_bytes(si, f->measured_process_bytes), "process memory");
    tile(out, gw_arena_printf(a, "%" PRId64 "/%" PRId64, f->steps, f->planned_steps),
         strcmp(f->status, "complete") == 0 ? "steps, complete" : "steps, interrupted");
    gw_str_add(out, "</div>");
}

/* ---- curves ---- */

typedef struct columns {
    double *step, *loss, *smooth, *lr, *rate;
    int64_t n;
    double *valid_step, *valid;
    int64_t nvalid;
} columns;

/* Exponential mean over about a fiftieth of the run, without the bias of its beginning. */
static void smooth(columns *c) {
    double span = fmax(1, (double)c->n / 50), keep = 1 - 1 / span, sum = 0, weight = 0;
    for (int64_t i = 0; i < c->n; i++) {
        if (isfinite(c->loss[i])) {
            sum = keep * sum + (1 - keep) * c->loss[i];
            weight = keep * weight + (1 - keep);
        }
        c->smooth[i] = weight > 0 ? sum / weight : (double)NAN;
    }
}

static columns columns_of(const gw_history *h, gw_arena *a) {
    columns c = {.n = h->nsteps, .nvalid = h->nvalid};
    c.step = gw_arena_new(a, double, c.n + 1);
    c.loss = gw_arena_new(a, double, c.n + 1);
    c.smooth = gw_arena_new(a, double, c.n + 1);
    c.lr = gw_arena_new(a, double, c.n + 1);
    c.rate = gw_arena_new(a, double, c.n + 1);
    c.valid_step = gw_arena_new(a, double, c.nvalid + 1);
    c.valid = gw_arena_new(a, double, c.nvalid + 1);
    for (int64_t i = 0; i < c.n; i++) {
        c.step[i] = (double)h->steps[i].step;
        c.loss[i] = h->steps[i].loss;
        c.lr[i] = h->steps[i].lr;
        c.rate[i] = h->steps[i].tokens_per_s;
    }
    for (int64_t i = 0; i < c.nvalid; i++) {
        c.valid_step[i] = (double)h->valid[i].step;
        c.valid[i] = h->valid[i].loss;
    }
    smooth(&c);
    return c;
}

static void add_curves(gw_str *out, const gw_history *h, bool images, gw_arena *a) {
    const char *unit = images ? "Images" : "Tokens";
    columns c = columns_of(h, a);
    gw_curve loss[] = {{"each step", "c1 faint", c.step, c.loss, c.n, false},
                       {"mean", "c1", c.step, c.smooth, c.n, false},
                       {"held out", "c2", c.valid_step, c.valid, c.nvalid, true}};
    gw_curve lr[] = {{"lr", "c1", c.step, c.lr, c.n, false}};
    gw_curve rate[] = {{images ? "images/s" : "tokens/s", "c1", c.step, c.rate, c.n, false}};
    gw_str_add(out, "<div class=\"card\"><p class=\"keys\"><i class=\"c1 thin\"></i>each step"
                    "<i class=\"c1\"></i>mean");
    if (c.nvalid > 0) gw_str_add(out, "<i class=\"round\"></i>held out");
    gw_str_printf(out, "</p><h2>Loss, nats %s</h2>", images ? "an image" : "a token");
    gw_svg_lines(out, "loss over steps", loss, 3, GW_AXIS_PLAIN, false, 1000, 300);
    gw_str_add(out, "</div><div class=\"two\"><div class=\"card\"><h2>Learning rate</h2>");
    gw_svg_lines(out, "learning rate over steps", lr, 1, GW_AXIS_PLAIN, true, 490, 210);
    gw_str_printf(out, "</div><div class=\"card\"><h2>%s a second</h2>", unit);
    gw_svg_lines(out, images ? "images a second over steps" : "tokens a second over steps", rate, 1,
                 GW_AXIS_SI, true, 490, 210);
    gw_str_add(out, "</div></div>");
}

/* ---- planned against measured ---- */

static void row(gw_str *out, const char *what, const char *planned, const char *measured,
                double ratio) {
    gw_str_printf(out, "<tr><td>%s</td><td>%s</td><td>%s</td><td>", what, planned, measured);
    if (ratio == 1)
        gw_str_add(out, "equal");
    else if (isfinite(ratio))
        gw_str_printf(out, "%+.1f %%", (ratio - 1) * 100);
    gw_str_add(out, "</td></tr>");
}

static void add_wire(gw_str *out, const gw_report_facts *f) {
    char a[40], b[40];
    gw_str cells[3] = {{0}, {0}, {0}};
    for (int k = 0; k < 2 * GW_REPORT_WIRES; k++) {
        const gw_report_wire *w = &f->wire[k / 2];
        if (w->planned.moved == 0 && w->counted.moved == 0) continue;
        int64_t planned = k % 2 ? w->planned.moved : w->planned.payload;
        int64_t counted = k % 2 ? w->counted.moved : w->counted.payload;
        for (int i = 0; i < 3; i++) gw_str_clear(&cells[i]);
        gw_str_printf(&cells[0], "%s of a step%s, %s", gw_report_wire_name(k / 2),
                      k / 2 == GW_REPORT_ROWS ? " at even load" : "", k % 2 ? "moved" : "payload");
        gw_str_printf(&cells[1], "%s bytes", gw_fmt_count(a, planned));
        gw_str_printf(&cells[2], "%s bytes", gw_fmt_count(b, counted));
        row(out, gw_str_c(&cells[0]), gw_str_c(&cells[1]), gw_str_c(&cells[2]),
            (double)counted / (double)planned);
    }
    for (int i = 0; i < 3; i++) gw_str_release(&cells[i]);
}

static void add_planned(gw_str *out, const gw_report_facts *f) {
    char a[40], b[40];
    gw_str_add(
        out,
        "<div class=\"card scroll\"><h2>Planned against measured</h2><table><thead><tr><th></th>"
        "<th>planned</th><th>measured</th><th></th></tr></thead><tbody>");
    gw_str counts[2] = {{0}, {0}};
    gw_str_printf(&counts[0], "%s bytes", gw_fmt_count(a, f->planned_arena_bytes));
    gw_str_printf(&counts[1], "%s bytes", gw_fmt_count(b, f->measured_arena_bytes));
    row(out, "arena", gw_str_c(&counts[0]), gw_str_c(&counts[1]),
        (double)f->measured_arena_bytes / (double)f->planned_arena_bytes);
    row(out, "process memory (Pss)", gw_fmt_bytes(a, f->planned_process_bytes),
        gw_fmt_bytes(b, f->measured_process_bytes),
        (double)f->measured_process_bytes / (double)f->planned_process_bytes);
    gw_str_clear(&counts[0]);
    gw_str_clear(&counts[1]);
    gw_str_printf(&counts[0], "%sFLOP", gw_fmt_si(a, f->planned_flops));
    gw_str_printf(&counts[1], "%sFLOP",
                  isfinite(f->measured_flops) ? gw_fmt_si(b, f->measured_flops) : "- ");
    row(out, "work of a step", gw_str_c(&counts[0]), gw_str_c(&counts[1]),
        f->measured_flops / f->planned_flops);
    gw_str_clear(&counts[0]);
    gw_str_printf(&counts[0], "at least %s", gw_fmt_seconds(a, f->least_step_s));
    row(out, "time of a step", gw_str_c(&counts[0]),
        isfinite(f->step_s) ? gw_fmt_seconds(b, f->step_s) : "-", (double)NAN);
    add_wire(out, f);
    gw_str_add(out, "</tbody></table><p class=\"foot\">Process memory is planned as the program "
                    "before its arena (");
    gw_str_printf(out,
                  "%s) and the plan's total. Peak: %sFLOP/s = ", gw_fmt_bytes(a, f->program_bytes),
                  gw_fmt_si(b, f->peak_flops));
    gw_html_text(out, f->peak_source);
    gw_str_add(out, ".</p></div>");
    gw_str_release(&counts[0]);
    gw_str_release(&counts[1]);
}

/* ---- where the time goes ---- */

typedef struct group {
    uint16_t code;
    uint8_t phase;
    int64_t ns, count;
    double flops;
    const char *kernel;
} group;

static int slowest_first(const void *a, const void *b) {
    const group *x = a, *y = b;
    return x->ns > y->ns ? -1 : x->ns < y->ns;
}

static int64_t gather_groups(const gw_session *s, group *groups) {
    const gw_graph *g = gw_exec_graph(s->x);
    int64_t n = 0;
    for (gw_oid i = 0; i < (gw_oid)g->ops.count; i++) {
        const gw_op *o = &g->ops.items[i];
        gw_optimes_total t = gw_optimes_of(s->times, i);
        gw_cost c = {0};
        gw_op_def(g, o)->cost(g, o, &c);
        int64_t k = 0;
        while (k < n && (groups[k].code != o->code || groups[k].phase != o->phase)) k++;
        if (k == n)
            groups[n++] = (group){
                .code = o->code, .phase = o->phase, .kernel = gw_exec_kernel(s->x, i)->name};
        groups[k].ns += t.ns;
        groups[k].flops += c.flops * (double)t.runs;
        groups[k].count++;
    }
    qsort(groups, (size_t)n, sizeof *groups, slowest_first);
    return n;
}

static void add_ops(gw_str *out, const gw_session *s, gw_arena *a) {
    const gw_graph *g = gw_exec_graph(s->x);
    int64_t steps = s->times ? gw_optimes_steps(s->times) : 0;
    if (steps == 0) return;
    group *groups = gw_arena_new(a, group, g->ops.count + 1);
    int64_t n = gather_groups(s, groups), total = 0;
    for (int64_t i = 0; i < n; i++) total += groups[i].ns;
    if (total == 0) return;
    gw_str_add(out, "<div class=\"card scroll\"><h2>Where the time "
                    "goes</h2><table><thead><tr><th>op</th><th>phase</th>"
                    "<th>ops</th><th>a step</th><th>share</th><th></th><th>rate</th><th "
                    "class=\"text\">kernel</th></tr>"
                    "</thead><tbody>");
    for (int64_t i = 0; i < GW_MIN(n, 12); i++) {
        char t[32], r[32];
        double seconds = (double)groups[i].ns * 1e-9, share = (double)groups[i].ns / (double)total;
        gw_str_printf(out,
                      "<tr><td>%s</td><td>%s</td><td>%" PRId64 "</td><td>%s</td><td>%.1f %%</td>"
                      "<td class=\"bar\"><div style=\"width:%.1f%%\"></div></td><td>%sFLOP/s</td>"
                      "<td class=\"text\">%s</td></tr>",
                      g->table->ops[groups[i].code]->name, gw_phase_name((gw_phase)groups[i].phase),
                      groups[i].count, gw_fmt_seconds(t, seconds / (double)steps), share * 100,
                      100 * (double)groups[i].ns / (double)groups[0].ns,
                      gw_fmt_si(r, seconds > 0 ? groups[i].flops / seconds : 0), groups[i].kernel);
    }
    gw_str_add(out, "</tbody></table><p class=\"foot\">F forward, B input gradient, W weight "
                    "gradient, BW both, O optimizer "
                    "and frame. The trace (trace.json, or one file a rank) has the last steps op "
                    "by op.</p></div>");
}

/* ---- the page ---- */

static void add_head(gw_str *out, const gw_session *s, const gw_report_facts *f) {
    char si[32], time[32], step[80];
    gw_str_add(
        out,
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" "
        "content=\"width=device-width,initial-scale=1\"><title>");
    gw_html_text(out, f->name);
    gw_str_printf(out, " - gradwright</title><style>%s%s</style></head><body><main><h1>", style,
                  style_more);
    gw_html_text(out, f->name);
    gw_str_printf(
        out, "</h1><p class=\"sub\">%s, %sparameters; %s, %s; %s a step; %d thread%s on %s; %s</p>",
        gw_report_model_name(s), gw_fmt_si(si, (double)f->parameters),
        gw_runfile_word(s->rf, "optimizer.name"), gw_runfile_word(s->rf, "precision.compute"),
        gw_report_step_text(s->rf, step), s->setup.machine.threads,
        s->setup.machine.threads == 1 ? "" : "s", gw_isa_name(s->setup.machine.isa),
        gw_clock_iso(time, gw_clock_wall()));
}

static void add_config(gw_str *out, const gw_session *s) {
    gw_str yaml = {0};
    gw_runfile_yaml(s->rf, false, &yaml);
    gw_str_add(out,
               "<div class=\"card\"><details><summary>Configuration, as resolved</summary><pre>");
    gw_html_text(out, gw_str_c(&yaml));
    gw_str_add(out, "</pre></details></div>");
    gw_str_release(&yaml);
}

gw_status gw_report_html(const gw_session *s, const gw_report_facts *f, const gw_history *h,
                         const char *path, gw_diags *dg) {
    gw_arena a = {0};
    gw_str out = {0};
    add_head(&out, s, f);
    add_tiles(&out, f, &a);
    add_curves(&out, h, f->images, &a);
    add_planned(&out, f);
    gw_str_add(&out, "<div class=\"card scroll\"><h2>Memory over the ops of a step</h2>");
    gw_svg_memory(&out, s);
    gw_str_add(&out, "</div>");
    add_ops(&out, s, &a);
    add_config(&out, s);
    gw_str_printf(
        &out,
        "<p class=\"foot\">gradwright %s (commit %s)</p></main><script>%s</script></body></html>\n",
        GW_VERSION, GW_COMMIT, script);
    gw_status st = gw_file_write_atomic(path, gw_str_c(&out), (int64_t)out.len, dg);
    gw_str_release(&out);
    gw_arena_release(&a);
    return st;
}
