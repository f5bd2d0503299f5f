// SPDX-License-Identifier: Apache-2.0
// A run small enough for tests.
#include "tiny.h"

#include <string.h>

#include "base/io.h"     /* gw_file_write_atomic */
#include "base/str.h"    /* gw_str */
#include "comm/launch.h" /* gw_launch_threads */
#include "data/tokens.h" /* gw_tokens_build */
#include "harness.h"

static void write_text(const char *name, int lines, int first) {
    static const char *const words[] = {"a", "small", "wright", "makes", "every", "step", "plain"};
    gw_str text = {0};
    for (int i = 0; i < lines; i++) {
        for (int k = 0; k < 3 + (i * 7 + first) % 9; k++)
            gw_str_printf(&text, "%s%s", k ? " " : "", words[(i * 5 + k * 3 + first) % 7]);
        gw_str_add(&text, i % 6 == 5 ? ".\n\n\n" : ".\n");
    }
    gw_diags dg;
    gw_diags_init(&dg);
    CHECK_OK(gw_file_write_atomic(test_tmp_path(name), gw_str_c(&text), (int64_t)text.len, &dg),
             &dg);
    gw_str_release(&text);
    gw_diags_release(&dg);
}

static void build(const char *text, const char *prefix) {
    gw_diags dg;
    gw_diags_init(&dg);
    gw_tokenizer *t = NULL;
    CHECK_OK(gw_tokenizer_open("bytes", NULL, &t, &dg), &dg);
    const char *path = test_tmp_path(text);
    gw_tokens_build_options o = {.rule = GW_DOC_BLANK, .append_eos = true};
    CHECK_OK(gw_tokens_build(&path, 1, t, &o, test_tmp_path(prefix), NULL, &dg), &dg);
    gw_tokenizer_free(t);
    gw_diags_release(&dg);
}

void tiny_data(void) {
    if (gw_path_exists(test_tmp_path("train.idx"))) return;
    write_text("train.txt", 400, 0);
    write_text("valid.txt", 30, 3);
    build("train.txt", "train");
    build("valid.txt", "valid");
}

void tiny_runfile(gw_runfile *rf, bool gpt2, const char *const *sets) {
    gw_str text = {0};
    tiny_data();
    gw_str_printf(&text,
                  "model: {family: %s, layers: 2, hidden: 16, heads: 2, ffn: 32, "
                  "tie_embeddings: true%s}\n"
                  "data: {train: %s, valid: %s, tokenizer: bytes, prefetch_steps: 1}\n"
                  "train: {steps: 8, seq_len: 24, micro_batch: 2, threads: 1, valid_batches: 2}\n"
                  "optimizer: {lr: 0.005, warmup_steps: 2}\n"
                  "checkpoint: {every: 3, keep_last: 2}\n",
                  gpt2 ? "gpt2" : "llama", gpt2 ? ", dropout: 0.1" : "", test_tmp_path("train"),
                  test_tmp_path("valid"));
    int n = 0;
    while (sets && sets[n]) n++;
    gw_diags dg;
    gw_diags_init(&dg);
    CHECK_OK(gw_runfile_parse(rf, "tiny.yaml", gw_str_c(&text), (int64_t)text.len, sets, n, &dg),
             &dg);
    gw_str_release(&text);
    gw_diags_release(&dg);
}

void tiny_ranks(int ranks, gw_status (*body)(gw_comm *c, void *user, gw_diags *dg), void *user) {
    gw_diags dg;
    gw_diags_init(&dg);
    if (ranks == 1)
        CHECK_OK(body(NULL, user, &dg), &dg);
    else
        CHECK_OK(gw_launch_threads(ranks, 30, body, user, &dg), &dg);
    gw_diags_release(&dg);
}

gw_status tiny_ten_steps(gw_session *s, int64_t *grown, gw_diags *dg) {
    gw_session_step_result t;
    for (int i = 0; i < 4; i++) GW_TRY(gw_session_step(s, &t, dg));
    GW_TRY(gw_comm_barrier(s->comm, "counting", dg));
    *grown = -gw_mem_count();
    GW_TRY(gw_comm_barrier(s->comm, "counting", dg));
    for (int i = 0; i < 10; i++) GW_TRY(gw_session_step(s, &t, dg));
    GW_TRY(gw_session_settle(s, &t, dg));
    GW_TRY(gw_comm_barrier(s->comm, "counting", dg));
    *grown += gw_mem_count();
    return gw_comm_barrier(s->comm, "counting", dg);
}

bool tiny_equal(gw_hash128 a, gw_hash128 b) { return a.lo == b.lo && a.hi == b.hi; }
