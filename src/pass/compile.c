// SPDX-License-Identifier: Apache-2.0
// The driver: the whole pipeline is the array below. Debug builds hold every pass to its contract.
//
// After each pass the graph is verified, printed, parsed back and compared, so that the text form
// can never lose anything and no pass can leave a graph that the next one trusts wrongly. A failure
// there is a bug of ours: the pass's input is written as a reproducer and the process ends. Errors
// that the user can mend (a budget that cannot be met) come back as a status.
#include <stdio.h>
#include <string.h>

#include "base/io.h"    /* gw_file_write_atomic */
#include "base/panic.h" /* gw_panic */
#include "base/str.h"   /* gw_str */
#include "ir/text.h"    /* gw_graph_print, gw_graph_parse */
#include "ir/verify.h"  /* gw_graph_verify */
#include "pass/pass.h"

typedef gw_status pass_fn(gw_graph *, const gw_graph *, const gw_compile_opts *,
                          gw_compile_report *, gw_diags *);

static const struct {
    const char *name, *doc;
    pass_fn *run;
} pipeline[] = {
#define X(name, doc) {#name, doc, gw_pass_##name},
#include "pass/passes.def"
#undef X
};

const char *gw_pass_name(int i) {
    return i >= 0 && i < (int)GW_COUNT(pipeline) ? pipeline[i].name : NULL;
}

const char *gw_pass_doc(int i) {
    return i >= 0 && i < (int)GW_COUNT(pipeline) ? pipeline[i].doc : NULL;
}

static bool holds(const gw_graph *g, char *why, int n) {
    gw_diags dg;
    gw_diags_init(&dg);
    bool ok = false;
    gw_str text = {0};
    gw_graph again;
    if (gw_graph_verify(g, &dg) == GW_OK) {
        gw_graph_print(g, &text, true);
        if (gw_graph_parse(&again, g->table, gw_str_c(&text), (int64_t)text.len, "program", &dg) ==
            GW_OK) {
            ok = gw_graph_equal(g, &again, why, n);
            gw_graph_release(&again);
        }
    }
    if (dg.nerrors) snprintf(why, (size_t)n, "%s", gw_diags_first_error(&dg));
    gw_str_release(&text);
    gw_diags_release(&dg);
    return ok;
}

static void leave_reproducer(const gw_graph *input, const char *pass, const char *dir) {
    if (!dir) return;
    gw_str text = {0};
    gw_str path = {0};
    gw_graph_print(input, &text, true);
    gw_str_printf(&path, "%s/before-%s.gw", dir, pass);
    if (gw_file_write_atomic(gw_str_c(&path), text.data, (int64_t)text.len, NULL) == GW_OK)
        fprintf(stderr, "gradwright: the input of the pass is in %s\n", gw_str_c(&path));
    gw_str_release(&text);
    gw_str_release(&path);
}

static void hold_to_contract(const gw_graph *input, const gw_graph *output, const char *pass,
                             const gw_compile_opts *opts) {
#ifdef GW_DEBUG
    bool on = true;
#else
    bool on = opts->verify;
#endif
    char why[512] = "";
    if (!on || holds(output, why, (int)sizeof why)) return;
    leave_reproducer(input, pass, opts->reproducer_dir);
    gw_panic("pass %s left an unsound graph: %s", pass, why);
}

/* Runs the passes from number `first` on, on `before`, which stays as it is. *g: uninitialised, a
 * graph in each case but that of an error. */
static gw_status run_from(int first, const gw_graph *before, gw_graph *g,
                          const gw_compile_opts *opts, const char *last, gw_compile_report *report,
                          gw_diags *dg) {
    const gw_graph *now = before;
    for (int i = first; i < (int)GW_COUNT(pipeline); i++) {
        gw_graph next;
        gw_status st = pipeline[i].run(&next, now, opts, report, dg);
        if (st == GW_OK) hold_to_contract(now, &next, pipeline[i].name, opts);
        if (now == g) gw_graph_release(g);
        if (st != GW_OK) {
            gw_diag_frame(dg, "compiling (pass %s)", pipeline[i].name);
            return st;
        }
        *g = next;
        now = g;
        if (last && strcmp(last, pipeline[i].name) == 0) break;
    }
    return GW_OK;
}

gw_status gw_compile(gw_graph *g, const gw_compile_opts *opts, const char *last,
                     gw_compile_report *report, gw_diags *dg) {
    gw_compile_report unused;
    if (!report) report = &unused;
    memset(report, 0, sizeof *report);
    if (last && strcmp(last, "build") == 0) return GW_OK;
    gw_graph out;
    GW_TRY(run_from(0, g, &out, opts, last, report, dg));
    gw_graph_release(g);
    *g = out;
    return GW_OK;
}

gw_status gw_compile_after(const char *pass, const gw_graph *before, gw_graph *g,
                           const gw_compile_opts *opts, const char *last, gw_compile_report *report,
                           gw_diags *dg) {
    gw_compile_report unused;
    int at = 0;
    while (at < (int)GW_COUNT(pipeline) && strcmp(pipeline[at].name, pass) != 0) at++;
    GW_ASSERT(at + 1 < (int)GW_COUNT(pipeline)); /* a pass, and not the last */
    if (!report) report = &unused;
    memset(report, 0, sizeof *report);
    return run_from(at + 1, before, g, opts, last, report, dg);
}
