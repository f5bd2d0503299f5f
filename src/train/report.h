// SPDX-License-Identifier: Apache-2.0
// What a run leaves to be read: summary.json, plan.json, trace.json, report.html, the closing
// table.
#ifndef GW_TRAIN_REPORT_H
#define GW_TRAIN_REPORT_H

#include <jansson.h>
#include <stdio.h>

#include "plan/ledger.h"    /* gw_ledger */
#include "train/pipeline.h" /* gw_pipeline */
#include "train/metrics.h"  /* gw_history */
#include "train/session.h"  /* gw_session */

/* What all ranks of a pipeline are compiled from: the step and, where the run has one,
 * validation. */
typedef struct gw_report_shared {
    gw_graph step, valid;
    bool validates;
} gw_report_shared;
GW_WARN_UNUSED gw_status gw_report_shared_init(gw_report_shared *w, const gw_setup *s,
                                               gw_diags *dg);
void gw_report_shared_release(gw_report_shared *w);

/* The ledger of rank s->stage_rank of the pipeline, whose step (and validation) is compiled for it
 * from what all share. `first`: of rank 0, or NULL. The step's program goes to *out, or, out NULL,
 * is forgotten. */
GW_WARN_UNUSED gw_status gw_report_rank_ledger(const gw_setup *s, const gw_report_shared *w,
                                               int64_t data_bytes, const gw_ledger *first,
                                               gw_ledger *l, gw_graph *out,
                                               gw_compile_report *report, gw_diags *dg);

/* What is sent: kinds of collectives, and rows of experts, whose bytes the load decides. */
enum { GW_REPORT_ROWS = GW_COLL_KIND_COUNT, GW_REPORT_WIRES };
/* "all-reduce"; "expert-rows", counted as all-to-alls by the transport, stand for themselves here.
 */
const char *gw_report_wire_name(int k);

/* Bytes that rank 0 sends in a step by one of them; rows of experts are planned at even load. */
typedef struct gw_report_wire {
    gw_coll_traffic planned, counted;
} gw_report_wire;

/* The figures of one run, planned beside measured. */
typedef struct gw_report_facts {
    const char *name;   /* of the run: its directory's last part */
    const char *status; /* "complete", "interrupted" */
    int64_t steps, planned_steps, tokens;
    int64_t parameters;
    double seconds; /* of this process's steps, validation and saving included */

    int64_t planned_arena_bytes, measured_arena_bytes;
    int64_t lower_bound_bytes, persistent_bytes;
    int64_t program_bytes;                                 /* Pss before the arena was reserved */
    int64_t data_bytes;                                    /* of the loader */
    int64_t planned_process_bytes, measured_process_bytes; /* Pss */

    double model_flops; /* of a step by 6N + attention, causal */
    double planned_flops,
        measured_flops;  /* of a step, by the ops of the program; recomputation counts */
    double least_step_s; /* planned_flops / peak_flops: no step can be shorter */
    double step_s, tokens_per_s, mfu,
        data_wait_s; /* medians of this process's steps; NaN without */
    /* Means of what the wait for data was for, of the same steps; NaN of images. */
    double data_source_s, data_decompress_s, data_decode_s, data_queue_s;
    double peak_flops;
    const char *peak_source; /* the arithmetic */

    double loss, valid_loss, valid_bpb; /* latest; NaN where there is none */
    double valid_accuracy;              /* of a net for images; NaN otherwise */
    bool images;                        /* what is counted as tokens is images */

    /* Several ranks. Planned and measured figures above are those of rank 0; peak_flops is of all.
     */
    int ranks;
    const gw_session_rank *rank; /* [ranks]; NULL before the ranks have met */
    int64_t planned_on, sent_on; /* to other stages, of all ranks and steps */
    const gw_pipeline *pipeline; /* NULL: there is none */
    gw_report_wire wire[GW_REPORT_WIRES];
    double comm_s, comm_wait_s; /* of rank 0's step, mean; NaN without */
    bool sent_as_planned;       /* on every rank, payload and moved, to the byte; without rows */
    int64_t planned_rows, sent_rows; /* payload of all ranks and steps */

    /* Bytes that a step of rank 0 fetches from, and stores to, memory that is not the device's. */
    gw_copy_bytes planned_copies, measured_copies;
} gw_report_facts;

/* The peak of all ranks for products in the session's compute dtype: usable cores x frequency x
 * FLOPs a cycle of the instruction set. Nothing is measured. *source gets the arithmetic as text.
 */
double gw_report_peak_flops(const gw_machine *m, gw_dtype compute, const gw_core_count *c,
                            int ranks, gw_arena *a, const char **source);

/* "llama", "resnet18". */
const char *gw_report_model_name(const gw_session *s);
/* What a step takes: "16 sequences of 512 tokens", "32 images of 224 x 224 x 3". */
const char *gw_report_step_text(const gw_runfile *rf, char out[80]);

/* The facts of a session that has run (or not yet: measured fields NaN or 0). */
gw_report_facts gw_report_facts_of(const gw_session *s, const gw_history *h, const char *run_dir,
                                   gw_arena *a);

/* New reference. */
json_t *gw_report_summary_json(const gw_report_facts *f);
/* Planned against measured. */
void gw_report_table(const gw_report_facts *f, FILE *out);

/* The plan's ledger of the session's programs; release it. */
void gw_report_ledger(const gw_session *s, gw_ledger *l);
/* plan.json: what `gradwright plan --json` prints; on rank 0. Of a pipeline it compiles the
 * programs of all its ranks. */
GW_WARN_UNUSED gw_status gw_report_plan(const gw_session *s, const char *path, gw_diags *dg);
/* trace.json: the last few steps, op by op, for Perfetto. */
GW_WARN_UNUSED gw_status gw_report_trace(const gw_session *s, const char *path, gw_diags *dg);
/* The actions of all stages in the latest step, likewise; on rank 0. */
GW_WARN_UNUSED gw_status gw_report_trace_pipeline(const gw_pipeline *p, const char *path,
                                                  gw_diags *dg);
/* report.html: one page, self-contained. */
GW_WARN_UNUSED gw_status gw_report_html(const gw_session *s, const gw_report_facts *f,
                                        const gw_history *h, const char *path, gw_diags *dg);

/* ---- parts (report_svg.c, report_memory.c) ---- */
/* Appends text with < > & " escaped; bytes that are not UTF-8 become U+FFFD by the reader's hand.
 */
void gw_html_text(gw_str *out, const char *text);

typedef struct gw_curve {
    const char *label;
    const char *css; /* class: "c1" ..; a curve of class "faint ..." is drawn thin */
    const double *x, *y;
    int64_t n;
    bool dots; /* marks instead of a line */
} gw_curve;

typedef enum gw_axis_format { GW_AXIS_PLAIN, GW_AXIS_SI, GW_AXIS_BYTES } gw_axis_format;

/* A line chart as an inline <svg>; values that are not finite leave gaps. `zero`: the y axis begins
 * at 0. Curves with more points than pixels are thinned, extremes kept. */
void gw_svg_lines(gw_str *out, const char *title, const gw_curve *curves, int ncurves,
                  gw_axis_format format, bool zero, int width, int height);
/* Live bytes by cause over the ops of the step, with the peak marked; a table of the peak follows.
 */
void gw_svg_memory(gw_str *out, const gw_session *s);
/* Ticks of an axis: writes at most 16 round values within [lo, hi], returns how many. */
int gw_axis_ticks(double lo, double hi, int want, double *out);

#endif
