// SPDX-License-Identifier: Apache-2.0
// The run's data on the page: what it reads, what making and bringing it takes, what is kept.
#include <math.h>

#include "plan/html_impl.h"

static void fact(gw_page *p, gw_page_unit u, const char *key, const char *label, const char *note) {
    if (!isfinite(gw_page_real(p, "data.%s", key))) return;
    gw_page_row(p, NULL, label);
    gw_page_cell(p, u, "data.%s", key);
    gw_page_cell_text(p, note);
    gw_page_add(p, "</tr>\n");
}

void gw_page_data(gw_page *p) {
    if (!gw_page_at(p, "data")) return;
    gw_page_open(p, "data", "The run's data",
                 "Tokens of all steps, the texts and pages behind them, cores that make and bring "
                 "them, and what is kept.");
    gw_page_table(p, "the run's data", "|>|");
    fact(p, GW_PAGE_RATE, "tokens", "tokens that the run reads", "a step's, times the steps");
    fact(p, GW_PAGE_NUMBER, "run_days", "days that it takes", "at the simulated step");
    fact(p, GW_PAGE_BYTES, "shard_bytes", "tokens on disk", "two or four bytes an id");
    fact(p, GW_PAGE_COUNT, "shards_of_64_MB", "shards of 64 MB", "");
    fact(p, GW_PAGE_BYTES, "text_bytes", "text behind them", "");
    fact(p, GW_PAGE_BYTES, "raw_bytes", "pages behind that", "");
    fact(p, GW_PAGE_NUMBER, "tokenize_core_days", "core-days of tokenizing", "text to tokens");
    fact(p, GW_PAGE_COUNT, "tokenize_cores_two_weeks", "cores that finish in two weeks", "");
    fact(p, GW_PAGE_NUMBER, "pipeline_core_days", "core-days of the pipeline", "pages to tokens");
    fact(p, GW_PAGE_COUNT, "pipeline_cores_two_weeks", "cores that finish in two weeks", "");
    fact(p, GW_PAGE_RATE, "loader_tokens_per_s", "tokens a second that training takes", "");
    fact(p, GW_PAGE_BYTES_S, "loader_bytes_per_s", "bytes of that", "");
    fact(p, GW_PAGE_NUMBER, "loader_cores", "cores of loaders", "at a loader's measured rate");
    fact(p, GW_PAGE_FRACTION, "storage_share", "of what one node's storage reads", "");
    fact(p, GW_PAGE_BYTES, "checkpoint_bytes_per_day", "checkpoints a day", "");
    fact(p, GW_PAGE_BYTES, "kept_checkpoint_bytes", "checkpoints that are kept", "");
    gw_page_table_end(p);
    gw_page_add(p, "<p class=\"about\">Of one core: ");
    gw_page_figure(p, GW_PAGE_BYTES_S, "data.rates.tokenize_bytes_per_s");
    gw_page_add(p, " of text tokenized, ");
    gw_page_figure(p, GW_PAGE_BYTES_S, "data.rates.pipeline_bytes_per_s");
    gw_page_add(p, " of HTML to tokens, ");
    gw_page_figure(p, GW_PAGE_RATE, "data.rates.loader_tokens_per_s");
    gw_page_add(p, " tokens loaded; ");
    gw_page_text(p, gw_page_string(p, "data.rates.source"));
    gw_page_add(p, ".</p>\n");
    gw_page_close(p);
}
