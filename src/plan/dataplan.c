// SPDX-License-Identifier: Apache-2.0
// The arithmetic of a run's data.
//
// Tokens are the batch times the steps. Behind them stand texts, and behind these pages, in stated
// proportions; cores make one of the other at measured rates, and two weeks is how long a corpus
// may take. Training reads as many tokens a second as it trains, of two or four bytes each, and a
// loader brings them at its own measured rate. A checkpoint is written every so many steps.
//
// What needs the time of a step is left out where no machine is stated.
#include "plan/dataplan.h"

#include <math.h>

#include "base/str.h"  /* gw_fmt_bytes */
#include "base/term.h" /* gw_table */

#define DAY 86400.0

gw_data_rates gw_data_rates_default(void) {
    return (gw_data_rates){GW_DATA_TOKENIZE_RATE, GW_DATA_PIPELINE_RATE, GW_DATA_LOADER_RATE,
                           GW_DATA_RATES_SOURCE};
}

static void of_time(gw_dataplan *p) {
    const gw_dataplan_input *in = &p->in;
    if (in->step_s <= 0) return;
    p->run_days = in->steps * in->step_s / DAY;
    p->tokens_per_s = in->tokens_per_step / in->step_s;
    p->read_bytes_per_s = p->tokens_per_s * p->token_bytes;
    p->loader_cores = p->tokens_per_s / in->rates.loader_tokens_per_s;
    if (in->checkpoint_every <= 0) return;
    p->checkpoints_per_day = DAY / (in->checkpoint_every * in->step_s);
    p->checkpoint_bytes_per_day = p->checkpoints_per_day * in->checkpoint_bytes;
}

gw_dataplan gw_dataplan_of(const gw_dataplan_input *in) {
    gw_dataplan p = {.in = *in};
    p.tokens = in->tokens_per_step * in->steps;
    p.token_bytes = in->vocab < 65500 ? 2 : 4;
    p.shard_bytes = p.tokens * p.token_bytes;
    p.text_bytes = p.tokens * GW_DATA_TEXT_BYTES;
    p.raw_bytes = p.tokens * GW_DATA_RAW_BYTES;
    p.files = ceil(p.shard_bytes / GW_DATAPLAN_SHARD);
    p.tokenize_core_days = p.text_bytes / in->rates.tokenize_bytes_per_s / DAY;
    p.tokenize_cores = ceil(p.tokenize_core_days / GW_DATAPLAN_DAYS);
    p.pipeline_core_days = p.raw_bytes / in->rates.pipeline_bytes_per_s / DAY;
    p.pipeline_cores = ceil(p.pipeline_core_days / GW_DATAPLAN_DAYS);
    p.checkpoints =
        1 + (in->checkpoint_every > 0 ? floor((in->steps - 1) / in->checkpoint_every) : 0);
    double kept =
        in->checkpoint_kept > 0 ? fmin(in->checkpoint_kept, p.checkpoints) : p.checkpoints;
    p.kept_bytes = kept * in->checkpoint_bytes;
    of_time(&p);
    return p;
}

// ---- for people

#define BYTES(x) bytes((char[32]){0}, (x))
#define SI(x)    gw_fmt_si((char[32]){0}, (x))

static const char *bytes(char buf[32], double x) {
    char si[24];
    if (x < 9e18) return gw_fmt_bytes(buf, (int64_t)x);
    snprintf(buf, 32, "%sB", gw_fmt_si(si, x)); /* more than an int64_t holds */
    return buf;
}

static const char *days(char buf[48], double d) {
    if (d >= 1)
        snprintf(buf, 48, "%.1f days", d);
    else
        gw_fmt_seconds(buf, d * DAY);
    return buf;
}

static const char *core_days(char buf[48], double d) {
    char s[32];
    if (d >= 10)
        snprintf(buf, 48, "%.0f core-days", d);
    else if (d >= 0.1)
        snprintf(buf, 48, "%.2g core-days", d);
    else
        snprintf(buf, 48, "%s of a core", gw_fmt_seconds(s, d * DAY));
    return buf;
}

static void print_making(const gw_dataplan *p, gw_table *t) {
    char a[48], b[96];
    snprintf(b, sizeof b, "%sB/s of text a core; in two weeks: %.0f core%s",
             SI(p->in.rates.tokenize_bytes_per_s), p->tokenize_cores,
             p->tokenize_cores > 1 ? "s" : "");
    gw_table_row(t, "tokenizing", core_days(a, p->tokenize_core_days), b);
    snprintf(b, sizeof b, "%sB/s of HTML a core; in two weeks: %.0f core%s",
             SI(p->in.rates.pipeline_bytes_per_s), p->pipeline_cores,
             p->pipeline_cores > 1 ? "s" : "");
    gw_table_row(t, "pages to tokens", core_days(a, p->pipeline_core_days), b);
}

static void print_reading(const gw_dataplan *p, gw_table *t) {
    char a[48], b[96];
    if (p->tokens_per_s <= 0) return;
    snprintf(a, sizeof a, "%stokens/s", SI(p->tokens_per_s));
    snprintf(b, sizeof b, "%sB/s; a core brings %stokens/s, so %.3g of one",
             SI(p->read_bytes_per_s), SI(p->in.rates.loader_tokens_per_s), p->loader_cores);
    gw_table_row(t, "loader", a, b);
    if (p->in.storage_read > 0) {
        snprintf(b, sizeof b, "of the %sB/s that a node reads", SI(p->in.storage_read));
        snprintf(a, sizeof a, "%.2g %%", 100 * p->read_bytes_per_s / p->in.storage_read);
        gw_table_row(t, "storage, all on one node", a, b);
    }
}

static void print_saving(const gw_dataplan *p, gw_table *t) {
    char a[48], b[96];
    if (p->checkpoint_bytes_per_day > 0) {
        snprintf(a, sizeof a, "%s a day", BYTES(p->checkpoint_bytes_per_day));
        snprintf(b, sizeof b, "%.1f a day of %s each", p->checkpoints_per_day,
                 BYTES(p->in.checkpoint_bytes));
        gw_table_row(t, "checkpoints", a, b);
    }
    snprintf(b, sizeof b, "%.0f kept of the %.0f that the run writes",
             p->in.checkpoint_bytes > 0 ? p->kept_bytes / p->in.checkpoint_bytes : 0,
             p->checkpoints);
    gw_table_row(t, "checkpoints on disk", BYTES(p->kept_bytes), b);
}

void gw_dataplan_print(const gw_dataplan *p, FILE *out) {
    char a[48], b[96];
    gw_table *t = gw_table_new("lrl");
    gw_table_row(t, "of the run", "", "");
    snprintf(a, sizeof a, "%stokens", SI(p->tokens));
    snprintf(b, sizeof b, "%s a step, %s steps",
             gw_fmt_count((char[40]){0}, (int64_t)p->in.tokens_per_step),
             gw_fmt_count((char[40]){0}, (int64_t)p->in.steps));
    gw_table_row(t, "the run reads", a, b);
    if (p->run_days > 0) gw_table_row(t, "in", days(a, p->run_days), "at the simulated step");
    snprintf(b, sizeof b, "%d bytes an id; %.0f shard%s of 64 MB", p->token_bytes, p->files,
             p->files > 1 ? "s" : "");
    gw_table_row(t, "tokens on disk", BYTES(p->shard_bytes), b);
    snprintf(b, sizeof b, "%g B of text a token, %g B of HTML", GW_DATA_TEXT_BYTES,
             GW_DATA_RAW_BYTES);
    snprintf(a, sizeof a, "%s of %s", BYTES(p->text_bytes), BYTES(p->raw_bytes));
    gw_table_row(t, "text, of pages", a, b);
    print_making(p, t);
    print_reading(p, t);
    print_saving(p, t);
    fprintf(out, "\ndata\n");
    gw_table_print(t, out, "  ");
    fprintf(out, "  rates of a core: %s\n", p->in.rates.source);
    gw_table_free(t);
}

// ---- as JSON

static json_t *known(double x, bool is) { return is ? json_real(x) : json_null(); }

static json_t *rates_json(const gw_dataplan *p) {
    const gw_data_rates *r = &p->in.rates;
    return json_pack("{s:f, s:f, s:f, s:f, s:f, s:s}", "tokenize_bytes_per_s",
                     r->tokenize_bytes_per_s, "pipeline_bytes_per_s", r->pipeline_bytes_per_s,
                     "loader_tokens_per_s", r->loader_tokens_per_s, "text_bytes_per_token",
                     GW_DATA_TEXT_BYTES, "raw_bytes_per_token", GW_DATA_RAW_BYTES, "source",
                     r->source);
}

json_t *gw_dataplan_json(const gw_dataplan *p) {
    bool timed = p->tokens_per_s > 0, saves = p->checkpoints_per_day > 0;
    json_t *j = json_pack("{s:f, s:i, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f}", "tokens",
                          p->tokens, "token_bytes", p->token_bytes, "shard_bytes", p->shard_bytes,
                          "shards_of_64_MB", p->files, "text_bytes", p->text_bytes, "raw_bytes",
                          p->raw_bytes, "tokenize_core_days", p->tokenize_core_days,
                          "tokenize_cores_two_weeks", p->tokenize_cores, "pipeline_core_days",
                          p->pipeline_core_days, "pipeline_cores_two_weeks", p->pipeline_cores,
                          "checkpoints", p->checkpoints, "kept_checkpoint_bytes", p->kept_bytes);
    json_object_set_new(j, "run_days", known(p->run_days, timed));
    json_object_set_new(j, "loader_tokens_per_s", known(p->tokens_per_s, timed));
    json_object_set_new(j, "loader_bytes_per_s", known(p->read_bytes_per_s, timed));
    json_object_set_new(j, "loader_cores", known(p->loader_cores, timed));
    json_object_set_new(
        j, "storage_share",
        known(timed && p->in.storage_read > 0 ? p->read_bytes_per_s / p->in.storage_read : 0,
              timed && p->in.storage_read > 0));
    json_object_set_new(j, "checkpoints_per_day", known(p->checkpoints_per_day, saves));
    json_object_set_new(j, "checkpoint_bytes_per_day", known(p->checkpoint_bytes_per_day, saves));
    json_object_set_new(j, "rates", rates_json(p));
    return j;
}
