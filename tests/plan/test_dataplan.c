// SPDX-License-Identifier: Apache-2.0
// A run's data against sums by hand: 15 T tokens of Llama 3's vocabulary.
#include <jansson.h>
#include <string.h>

#include "harness.h"
#include "plan/dataplan.h"

/* 15e12 tokens in steps of 16,777,216 at 1.7 million tokens a second. */
static gw_dataplan_input llama(void) {
    gw_dataplan_input in = {.tokens_per_step = 16777216,
                            .steps = 15e12 / 16777216,
                            .vocab = 128256,
                            .step_s = 16777216 / 1.7e6,
                            .checkpoint_bytes = 5.68e12, /* 405 B of 14 bytes each */
                            .checkpoint_every = 1000,
                            .checkpoint_kept = 3,
                            .storage_read = 2e9,
                            .rates = {1e6, 1e6, 10e6, "a slow core"}};
    return in;
}

TEST(data_of_fifteen_trillion_tokens) {
    gw_dataplan_input in = llama();
    gw_dataplan p = gw_dataplan_of(&in);
    CHECK_NEAR(p.tokens, 15e12, 1e3);
    CHECK_EQ(p.token_bytes, 4);
    CHECK_NEAR(p.shard_bytes, 60e12, 1e4);
    CHECK_NEAR(p.files, 937500, 1); /* 468,750 of two-byte ids */
    CHECK_NEAR(p.text_bytes, 60e12, 1e4);
    CHECK_NEAR(p.raw_bytes, 3e15, 1e6);
    CHECK_NEAR(p.tokenize_core_days, 694.44, 0.01);
    CHECK_EQ((int64_t)p.tokenize_cores, 50); /* 49.6 MB/s at 1 MB/s a core */
    CHECK_NEAR(p.pipeline_core_days, 34722.2, 0.1);
    CHECK_EQ((int64_t)p.pipeline_cores, 2481); /* 2.48 GB/s */
    CHECK_NEAR(p.run_days, 102.12, 0.01);
    CHECK_NEAR(p.tokens_per_s, 1.7e6, 1);
    CHECK_NEAR(p.read_bytes_per_s, 6.8e6, 1);
    CHECK_NEAR(p.loader_cores, 0.17, 1e-9);
    CHECK_NEAR(p.checkpoints_per_day, 8.7547, 1e-3); /* 86400 / (1000 x 9.869 s) */
    CHECK_NEAR(p.checkpoint_bytes_per_day, 49.73e12, 0.01e12);
    CHECK_NEAR(p.kept_bytes, 3 * 5.68e12, 1);
    in.rates.tokenize_bytes_per_s = 1e9;
    in.vocab = 65499;
    p = gw_dataplan_of(&in);
    CHECK_NEAR(p.tokenize_core_days, 0.69444, 1e-5);
    CHECK_EQ((int64_t)p.tokenize_cores, 1);
    CHECK_NEAR(p.shard_bytes, 30e12, 1e4);
    CHECK_NEAR(p.read_bytes_per_s, 3.4e6, 1);
    in.vocab = 65500;
    CHECK_EQ(gw_dataplan_of(&in).token_bytes, 4);
}

/* A node of eight H100 that trains 8 B at 60 %: 12,273 tokens/s each, of four bytes. */
TEST(what_a_node_reads) {
    gw_dataplan_input in = llama();
    in.tokens_per_step = 8 * 12273;
    in.step_s = 1;
    CHECK_NEAR(gw_dataplan_of(&in).read_bytes_per_s, 392736, 1);
}

/* Without a step's time nothing is said of time, and without checkpoints in between one is kept. */
TEST(data_without_a_machine) {
    gw_dataplan_input in = llama();
    in.step_s = 0;
    in.checkpoint_every = 0;
    gw_dataplan p = gw_dataplan_of(&in);
    json_t *j = gw_dataplan_json(&p);
    CHECK(json_is_null(json_object_get(j, "run_days")));
    CHECK(json_is_null(json_object_get(j, "loader_cores")));
    CHECK(json_is_null(json_object_get(j, "checkpoint_bytes_per_day")));
    CHECK(json_is_real(json_object_get(j, "pipeline_core_days")));
    CHECK_STR(json_string_value(json_object_get(json_object_get(j, "rates"), "source")),
              "a slow core");
    CHECK_NEAR(p.kept_bytes, 5.68e12, 1);
    json_decref(j);
}
