// SPDX-License-Identifier: Apache-2.0
// `gradwright data prove`: what data runs have consumed, from their ledgers.
//
// With one run: its ledger has no gap and nothing twice, and, where the data are there to be read,
// every batch is what the run file's order says it should have been. With two: they consumed the
// same rows over the samples that both hold, or the first batch in which they part. A run and one
// that was stopped earlier agree, and where each of them ends is said.
#include <inttypes.h>
#include <jansson.h>
#include <string.h>

#include "base/arena.h"     /* gw_mem_alloc */
#include "base/io.h"        /* gw_path_join */
#include "base/str.h"       /* gw_fmt_count */
#include "cli/data_prove.h" /* this module's contract */
#include "data/ledger.h"    /* gw_ledger_read */
#include "file/json.h"      /* json_t */
#include "train/dataset.h"  /* gw_dataset_open_train */

static gw_status read_one(gw_cli *cli, const char *run, gw_ledger_history *h) {
    GW_TRY(gw_ledger_read(run, cli->arena, h, cli->diags));
    if (h->n == 0)
        return gw_fail_at(cli->diags, GW_ERR_FORMAT, "ledger-empty", (gw_where){.file = run},
                          "the run has consumed no batch yet");
    int64_t gap = gw_ledger_gap(h);
    if (gap < 0) return GW_OK;
    const gw_ledger_line *a = &h->lines[gap - 1], *b = &h->lines[gap];
    bool twice = b->first < a->next;
    return gw_fail_at(cli->diags, GW_ERR_FORMAT, "ledger-gap",
                      (gw_where){.file = run, .line = (int)GW_MIN(gap + 1, INT32_MAX)},
                      "samples %" PRId64 " to %" PRId64 " were consumed %s",
                      GW_MIN(a->next, b->first), GW_MAX(a->next, b->first) - 1,
                      twice ? "twice" : "by no batch");
}

static gw_digest sum_of(const gw_ledger_history *h) {
    gw_digest d = {0};
    for (int64_t i = 0; i < h->n; i++) gw_digest_add(&d, h->lines[i].digest);
    return d;
}

/* ---- one run, against its data ---- */

/* Samples of a batch as the order has them. */
static gw_status digest_of(gw_tokens *ds, const gw_ledger_line *l, gw_sample *row, gw_digest *out,
                           gw_diags *dg) {
    *out = (gw_digest){0};
    gw_tokens_pass(ds, l->first);
    for (int64_t n = l->first; n < l->next; n++) {
        GW_TRY(gw_tokens_sample(ds, n, row, dg));
        gw_digest_add(out,
                      gw_digest_row(row->tokens, row->labels, row->docs, gw_tokens_seq_len(ds)));
    }
    return GW_OK;
}

static gw_status compare_data(gw_cli *cli, gw_tokens *ds, const char *run,
                              const gw_ledger_history *h) {
    int64_t s = gw_tokens_seq_len(ds);
    int32_t *ints = gw_mem_alloc((size_t)(4 * s) * sizeof *ints);
    gw_sample row = {
        .tokens = ints, .labels = ints + s, .positions = ints + 2 * s, .docs = ints + 3 * s};
    gw_status st = GW_OK;
    for (int64_t i = 0; i < h->n && st == GW_OK; i++) {
        const gw_ledger_line *l = &h->lines[i];
        gw_digest is;
        st = digest_of(ds, l, &row, &is, cli->diags);
        if (st == GW_OK && !gw_digest_same(is, l->digest))
            st = gw_fail_at(cli->diags, GW_ERR_FORMAT, "ledger-differs",
                            (gw_where){.file = run, .line = (int)GW_MIN(i + 1, INT32_MAX)},
                            "the batch of step %" PRId64 " (samples %" PRId64 " to %" PRId64
                            ") is not what the data and the run file give",
                            l->step, l->first, l->next - 1);
    }
    gw_mem_free(ints);
    return st;
}

/* RUN/config.yaml and the model's vocabulary, which ids are checked against. */
static gw_status against_data(gw_cli *cli, const char *run, const gw_ledger_history *h) {
    gw_runfile rf;
    gw_tokens *ds = NULL;
    const char *config = gw_path_join(cli->arena, run, "config.yaml");
    gw_status st = gw_runfile_load(&rf, config, NULL, 0, cli->diags);
    if (st == GW_OK) st = gw_dataset_open_train(&rf, 0, &ds, cli->diags);
    if (st == GW_OK) st = compare_data(cli, ds, run, h);
    gw_tokens_close(ds);
    gw_runfile_release(&rf);
    return st;
}

static void print_one(const gw_cli *cli, const char *run, const gw_ledger_history *h, bool data) {
    char hex[33], count[32];
    gw_hash128_hex(hex, sum_of(h));
    int64_t first = h->lines[0].first, next = h->lines[h->n - 1].next;
    if (gw_cli_flag(cli, "json")) {
        json_t *o = json_pack("{s:b, s:b, s:I, s:I, s:I, s:s}", "exactly_once", 1, "as_ordered",
                              data, "batches", (json_int_t)h->n, "first", (json_int_t)first, "next",
                              (json_int_t)next, "digest", hex);
        json_dumpf(o, cli->out, JSON_INDENT(2));
        fputc('\n', cli->out);
        json_decref(o);
        return;
    }
    fprintf(cli->out,
            "%s: samples %" PRId64 " to %" PRId64 " once each, in %s batches%s\ndigest %s\n", run,
            first, next - 1, gw_fmt_count(count, h->n),
            data ? ", each as the data and the run file give it" : "", hex);
}

static gw_status prove_one(gw_cli *cli, const char *run) {
    gw_ledger_history h;
    GW_TRY(read_one(cli, run, &h));
    bool data = gw_path_is_dir(run) && gw_path_exists(gw_path_join(cli->arena, run, "config.yaml"));
    if (data) GW_TRY(against_data(cli, run, &h));
    print_one(cli, run, &h, data);
    return GW_OK;
}

/* ---- two runs ---- */

static const gw_ledger_line *last_of(const gw_ledger_history *h) { return &h->lines[h->n - 1]; }

/* Does the range that was compared hold all that the run consumed? */
static bool is_all(const gw_ledger_history *h, const gw_ledger_verdict *v) {
    return h->lines[0].first == v->first && last_of(h)->next == v->next;
}

static json_t *run_json(const gw_ledger_history *h, const gw_ledger_verdict *v) {
    return json_pack("{s:I, s:I, s:I, s:b}", "first", (json_int_t)h->lines[0].first, "next",
                     (json_int_t)last_of(h)->next, "last_step", (json_int_t)last_of(h)->step,
                     "compared_whole", (int)is_all(h, v));
}

static void same_json(const gw_cli *cli, const gw_ledger_history *h, const gw_ledger_verdict *v) {
    char hex[33];
    bool all = is_all(&h[0], v) && is_all(&h[1], v);
    json_t *o = json_pack("{s:b, s:b, s:I, s:I, s:[I,I], s:s, s:[o,o]}", "same", 1, "whole",
                          (int)all, "first", (json_int_t)v->first, "next", (json_int_t)v->next,
                          "batches", (json_int_t)v->batches[0], (json_int_t)v->batches[1], "digest",
                          gw_hash128_hex(hex, v->digest[0]), "runs", run_json(&h[0], v),
                          run_json(&h[1], v));
    json_dumpf(o, cli->out, JSON_INDENT(2));
    fputc('\n', cli->out);
    json_decref(o);
}

/* Two runs of equal length, or one that goes on where the other ends: which of it, and where. */
static void print_same(const gw_cli *cli, const gw_ledger_history *h, const gw_ledger_verdict *v) {
    char hex[33], a[32], b[32];
    if (gw_cli_flag(cli, "json")) {
        same_json(cli, h, v);
        return;
    }
    bool all = is_all(&h[0], v) && is_all(&h[1], v);
    fprintf(cli->out,
            "the same data%s: samples %" PRId64 " to %" PRId64
            ", in %s and %s batches\ndigest %s\n",
            all ? "" : " where both can be compared", v->first, v->next - 1,
            gw_fmt_count(a, v->batches[0]), gw_fmt_count(b, v->batches[1]),
            gw_hash128_hex(hex, v->digest[0]));
    for (int i = 0; i < 2 && !all; i++)
        fprintf(cli->out, "%s: samples %" PRId64 " to %" PRId64 ", ends with step %" PRId64 "%s\n",
                cli->args[i + 1], h[i].lines[0].first, last_of(&h[i])->next - 1,
                last_of(&h[i])->step, is_all(&h[i], v) ? "; all of it was compared" : "");
}

static gw_status report_parting(gw_cli *cli, const gw_ledger_history *h,
                                const gw_ledger_verdict *v) {
    char hex[2][33];
    const gw_ledger_line *a = &h[0].lines[v->line[0]], *b = &h[1].lines[v->line[1]];
    if (gw_cli_flag(cli, "json")) {
        json_t *o =
            json_pack("{s:b, s:I, s:I, s:[I,I]}", "same", 0, "first", (json_int_t)v->first, "next",
                      (json_int_t)v->next, "steps", (json_int_t)a->step, (json_int_t)b->step);
        json_dumpf(o, cli->out, JSON_INDENT(2));
        fputc('\n', cli->out);
        json_decref(o);
    }
    gw_diag *g = gw_diag_add(cli->diags, GW_ERROR, GW_ERR_FORMAT, "ledger-differs", (gw_where){0},
                             "the runs part in samples %" PRId64 " to %" PRId64 ": step %" PRId64
                             " of %s, step %" PRId64 " of %s",
                             v->first, v->next - 1, a->step, cli->args[1], b->step, cli->args[2]);
    gw_diag_detail(
        cli->diags, g, "their digests are %s and %s%s", gw_hash128_hex(hex[0], v->digest[0]),
        gw_hash128_hex(hex[1], v->digest[1]),
        a->quarantined || b->quarantined ? "; damaged shards were replaced in one of them" : "");
    return GW_ERR_FORMAT;
}

static gw_status prove_two(gw_cli *cli) {
    gw_ledger_history h[2];
    for (int i = 0; i < 2; i++) GW_TRY(read_one(cli, cli->args[i + 1], &h[i]));
    gw_ledger_verdict v = gw_ledger_compare(&h[0], &h[1]);
    if (!v.comparable)
        return GW_FAIL(
            cli->diags, GW_ERR_FORMAT, "ledger-apart",
            "the runs have no two samples in common at which both begin a batch: %" PRId64
            " to %" PRId64 " and %" PRId64 " to %" PRId64,
            h[0].lines[0].first, h[0].lines[h[0].n - 1].next, h[1].lines[0].first,
            h[1].lines[h[1].n - 1].next);
    if (!v.same) return report_parting(cli, h, &v);
    print_same(cli, h, &v);
    return GW_OK;
}

gw_status gw_data_prove_run(gw_cli *cli) {
    if (cli->nargs < 2 || cli->nargs > 3)
        return gw_cli_usage_error(cli, "prove takes one run directory or two");
    return cli->nargs == 2 ? prove_one(cli, cli->args[1]) : prove_two(cli);
}
