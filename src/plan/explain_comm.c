// SPDX-License-Identifier: Apache-2.0
// Topics of what is sent: ring, collectives, tp, sp, cp, moe.
//
// Bytes are those that one rank sends. Of blocks they are read from one that is compiled
// (plan/block.h), of experts from a step's program at even load.
#include "plan/explain.h"

#define NONE GW_READ_NONE, NULL, 0, NULL
#define RING "Patarasu, Yuan 2009"
#define SHOE "Shoeybi et al. 2019, section 3"
#define KORT "Korthikanti et al. 2022, section 4.2"
#define H100 "NVIDIA H100 SXM data sheet"
#define LIU  "Liu et al. 2023 (ring attention)"
#define DSV3 "DeepSeek-V3, section 3.2"

#define F_IN                                                                                       \
    { "F", "FLOP/s", "peak of a GPU, bf16 dense", 989e12, H100, false, false }
#define MFU_IN                                                                                     \
    { "mfu", "%", "share of it that is reached", 0.4, NULL, false, false }
#define B_IN                                                                                       \
    { "B", "B/s", "network of a GPU, one way", 50e9, "400 Gb/s NIC each", false, false }

/* ---- ring ---- */

static const gw_explain_input ring_inputs[] = {
    {"n", "", "ranks", 8, NULL, true, false},
    {"T", "tokens", "of a GPU and step", 8192, NULL, true, false},
    F_IN,
    MFU_IN,
    B_IN,
};

static const gw_explain_line ring_lines[] = {
    {"M", "gradients, bf16", "2 * N", "B", NULL, NULL, NONE},
    {"factor", "sent by a rank over the size of the data", "2 * (n - 1) / n", "x", RING,
     "end hosts add; a switch that adds (NVLS, SHARP) needs 1", NONE},
    {"sent", "an all-reduce of them: reduce-scatter and all-gather", "factor * M", "B", RING, NULL,
     GW_READ_WIRE_DP, "layout.dp={n} precision.gradients=compute", 1e-6,
     "shards of unequal length"},
    {"sent32", "the same in float32", "factor * 2 * M", "B", RING, NULL, GW_READ_WIRE_DP,
     "layout.dp={n}", 1e-6, "shards of unequal length"},
    {"seconds", "it takes", "sent / B", "s", NULL, "the network is as fast as stated", NONE},
    {"backward", "backward takes", "4 * N * T / (F * mfu)", "s", NULL,
     "4 N FLOPs a token, attention left out", NONE},
    {"hides", "tokens a GPU from which it hides under backward", "F * mfu / B", "tokens", NULL,
     "many ranks, so that a rank sends 2 M: 4 N / (2 * 2 N) is 1", NONE},
};

static const char *const ring_claims[] = {"\"no algorithm sends fewer bytes\": between end hosts; "
                                          "switches that add send M instead of nearly 2 M.",
                                          "\"2 M whatever n\": 1.0 M at n = 2, 1.75 M at 8.", NULL};

GW_EXPLAIN_DEFINE(ring, "ring", "what an all-reduce of gradients sends, and when it hides",
                  "llama3-8b");

/* ---- collectives ---- */

static const gw_explain_input collectives_inputs[] = {
    {"n", "", "ranks", 8, NULL, true, false},
    {"alpha", "s", "latency of a message", 5e-6, NULL, false, false},
    B_IN,
    {"tree", "", "bandwidth of a tree over a ring's", 0.92, "Sanders et al. 2009 (two trees)",
     false, false},
    {"cap", "B", "bucket", 26214400, "PyTorch DDP bucket_cap_mb 25", true, false},
    {"first", "B", "first bucket", 1048576, "PyTorch DDP", true, false},
};

static const gw_explain_line collectives_lines[] = {
    {"factor", "all-reduce: sent over the size of the data", "2 * (n - 1) / n", "x", RING, NULL,
     NONE},
    {"half", "reduce-scatter, all-gather", "(n - 1) / n", "x", RING, NULL, NONE},
    {"sent", "gradients in bf16, all-reduced", "factor * 2 * N", "B", RING, NULL, GW_READ_WIRE_DP,
     "layout.dp={n} precision.gradients=compute", 1e-6, "shards of unequal length"},
    {"flat", "buckets, parameters cut where a bucket is full", "1 + ceil((2 * N - first) / cap)",
     "buckets", "Li et al. 2020, section 3.2.3", "bf16 gradients", NONE},
    {"whole", "buckets, no parameter cut", "buckets", "buckets", "Li et al. 2020, section 3.2.3",
     "parameters in reverse order; caps are fixed at 25 MiB and 1 MiB", NONE},
    {"largest", "the largest of these", "bucket_most", "B", NULL,
     "the vocabulary's table is one parameter", NONE},
    {"tree_to", "a tree is faster up to", "alpha * B * (n - 1 - log2(n)) / (1 / tree - 1)", "B",
     "Sanders et al. 2009", "as many bytes a rank; n above 2", NONE},
};

static const char *const collectives_claims[] = {
    "\"25 MB buckets: 16 GB is 614 of them\": if parameters were cut; they are not, so it is "
    "fewer.",
    NULL};

GW_EXPLAIN_DEFINE(collectives, "collectives", "buckets, rings and trees", "llama3-8b");

/* ---- tp, sp ---- */

static const gw_explain_input tp_inputs[] = {
    {"t", "", "tensor-parallel ranks", 8, NULL, true, false},
    {"s", "tokens", "of a micro-batch", 8192, NULL, true, false},
    F_IN,
    MFU_IN,
    {"link", "B/s", "NVLink, one way", 450e9, H100, false, false},
    B_IN,
};

static const gw_explain_line tp_lines[] = {
    {"token", "four all-reduces of h values a layer, a token", "4 * L * 2 * h * 2 * (t - 1) / t",
     "B", SHOE, "bf16, no sequence parallelism, no recomputation (which makes six)",
     GW_READ_TP_TOKEN, "train.seq_len={s}", 0, NULL},
    {"micro", "of a micro-batch", "token * s", "B", NULL, NULL, NONE},
    {"compute", "a token takes", "6 * N / (t * F * mfu)", "s", NULL, "attention left out", NONE},
    {"link_share", "exposed over NVLink, one way", "token / link / compute", "%", NULL,
     "nothing hides it", NONE},
    {"link_both", "with both directions added up", "token / (2 * link) / compute", "%", NULL,
     "the link's data sheet figure is used as if all of it went one way", NONE},
    {"link_switch", "with sums in the switch", "4 * L * 2 * h / link / compute", "%",
     "NVLink SHARP", "a rank sends M instead of 2(t-1)/t M", NONE},
    {"nic_share", "over the network", "token / B / compute", "%", NULL,
     "above 100 %: the step is the network's", NONE},
    {"nic_twice", "over the network, twice as many ranks",
     "4 * L * 2 * h * 2 * (2 * t - 1) / (2 * t) / B / (compute / 2)", "%", NULL, NULL, NONE},
    {"columns", "columns of the feed-forward's first products", "f / t", "", SHOE, NULL,
     GW_READ_FFN_COLUMNS, NULL, 0, NULL},
    {"inner", "inner size of its last product", "f / t", "", SHOE,
     "small ones take longer to read than to multiply", GW_READ_FFN_ROWS, NULL, 0, NULL},
    {"kv_rank", "key and value heads of a rank", "max(kv / t, 1)", "", SHOE, NULL, GW_READ_KV_HEADS,
     NULL, 0, NULL},
    {"kv_copies", "ranks that keep the same ones", "max(t / kv, 1)", "", NULL, NULL, NONE},
};

static const char *const tp_claims[] = {"\"four all-reduces cost 8 %\": with 900 GB/s, both "
                                        "directions added, or sums in the switch; one way "
                                        "at 450 GB/s it is 15 %.",
                                        "\"four\": six with full recomputation.", NULL};

GW_EXPLAIN_DEFINE(tp, "tp", "what tensor parallelism sends, and where it stops", "llama3-70b");

static const gw_explain_input sp_inputs[] = {
    {"t", "", "tensor-parallel ranks", 8, NULL, true, false},
    {"s", "tokens", "of a micro-batch", 8192, NULL, true, false},
    {"b", "", "sequences of it", 1, NULL, true, false},
};

static const gw_explain_line sp_lines[] = {
    {"plain", "tensor parallelism alone, a token", "4 * L * 2 * h * 2 * (t - 1) / t", "B", SHOE,
     NULL, GW_READ_TP_TOKEN, "train.seq_len={s}", 0, NULL},
    {"token", "four all-gathers and four reduce-scatters", "8 * L * 2 * h * (t - 1) / t", "B", KORT,
     "inputs of products are kept whole", NONE},
    {"again", "and two more gathers: only parts are kept", "10 * L * 2 * h * (t - 1) / t", "B",
     KORT, "backward gathers the inputs of the first products again", GW_READ_SP_TOKEN,
     "train.seq_len={s}", 0, NULL},
    {"act_tp", "activations of a GPT block, tp alone", "s * b * h * (10 + 24 / t)", "B", KORT,
     "flash attention", NONE},
    {"act_sp", "with sequence parallelism", "34 * s * b * h / t", "B", KORT, "flash attention",
     NONE},
    {"act_less", "less by", "1 - act_sp / act_tp", "%", KORT, NULL, NONE},
};

static const char *const sp_claims[] = {"\"sequence parallelism sends nothing more\": an "
                                        "all-reduce is a gather and a scatter; but kept parts "
                                        "are gathered again in backward.",
                                        NULL};

GW_EXPLAIN_DEFINE(sp, "sp", "sequence parallelism: the same bytes, fewer activations",
                  "llama3-70b");

/* ---- cp ---- */

static const gw_explain_input cp_inputs[] = {
    {"C", "", "context-parallel ranks", 16, NULL, true, false},
    {"s", "tokens", "sequence", 131072, "Llama 3.1", true, false},
    {"b", "", "sequences", 1, NULL, true, false},
    F_IN,
    {"mfu", "%", "share of it that is reached", 0.5, NULL, false, false},
    B_IN,
};

static const gw_explain_line cp_lines[] = {
    {"gpt_block", "activations of a GPT block, with dropout masks", "34 * s * b * h", "B",
     "Korthikanti et al. 2022, equation 1", "LayerNorm, 4h feed-forward, dropout", NONE},
    {"gpt_rank", "over the ranks", "gpt_block / C", "B", NULL, NULL, NONE},
    {"llama_block", "activations of a Llama block",
     "2 * s * b * (4 * h + 2 * heads * hd + 2 * kv * hd + 3 * f)", "B", NULL,
     "bf16, flash attention, no dropout: inputs and results of two norms, q, k, v, attention's "
     "result, gate, up and their product",
     NONE},
    {"llama_exact", "with statistics: float32 of each head's and each norm's rows",
     "llama_block + 4 * s * b * (heads + 2)", "B", NULL, NULL, GW_READ_SAVED,
     "train.seq_len={s} train.micro_batch={b}", 0, NULL},
    {"factor", "of s b h", "llama_block / (s * b * h)", "x", NULL, NULL, NONE},
    {"hop", "a hop of the ring: k and v of a rank's tokens", "2 * 2 * s / C * kv * hd", "B", LIU,
     "bf16", NONE},
    {"hops", "of a layer, forward", "hop * (C - 1)", "B", LIU, NULL, NONE},
    {"hops_docs", "with the numbers of documents", "hops + 4 * s / C * (C - 1)", "B", NULL,
     "sequences hold several documents: one int32 a token travels too", GW_READ_CP_FORWARD,
     "train.seq_len={s}", 0, NULL},
    {"hides", "tokens a rank from which a hop hides", "2 * kv / heads * F * mfu / B", "tokens", LIU,
     "causal work spread evenly (zigzag)", NONE},
    {"rank", "tokens of a rank", "s / C", "tokens", NULL, NULL, NONE},
    {"square", "attention over all other work, causal", "6 * L * h * s / (6 * N)", "x", NULL,
     "6 L h s and 6 N by convention", NONE},
    {"square_full", "the same, all keys counted", "12 * L * h * s / (6 * N)", "x", NULL, NULL,
     NONE},
    {"square_block", "attention over the matrices of blocks, forward",
     "2 * h * s / (2 * linear / L)", "x", NULL, NULL, GW_READ_ATTENTION, "train.seq_len={s}", 0.01,
     "norms and elementwise work are in the program"},
};

static const char *const cp_claims[] = {
    "\"34 s b h\": a GPT block with dropout masks; the Llama block above is another figure.", NULL};

GW_EXPLAIN_DEFINE(cp, "cp", "long sequences over ranks", "llama3-405b");

/* ---- moe ---- */

static const gw_explain_input moe_inputs[] = {
    {"T", "tokens", "of a rank", 4096, DSV3, true, false},
    {"R", "", "ranks of experts", 8, NULL, true, false},
    {"nodes", "", "nodes that a token is sent to, at most", 4, DSV3, true, false},
    {"scale", "", "values that share an fp8 scale", 128, "DeepSeek-V3, section 3.3", true, false},
    B_IN,
    {"F8", "FLOP/s", "peak of a GPU, fp8 dense", 1979e12, H100, false, false},
    {"mfu8", "%", "share of it that is reached", 0.35, "assumed", false, false},
    {"experts", "", "experts of a layer", 256, DSV3, true, false},
    {"hot", "", "of them, those that are hot", 26, NULL, true, false},
    {"load", "%", "of the choices that they get", 0.9, NULL, false, false},
    {"each", "", "experts of a rank", 4, NULL, true, false},
    {"CF", "", "capacity factor", 1, NULL, false, false},
};

static const gw_explain_line moe_lines[] = {
    {"dispatch", "dispatch in fp8, a layer", "T * top * h", "B", DSV3,
     "every chosen expert is on another rank", NONE},
    {"dispatch_scales", "with its scales", "dispatch * (1 + 4 / scale)", "B", DSV3, NULL, NONE},
    {"combine", "combine in bf16", "T * top * h * 2", "B", DSV3, NULL, NONE},
    {"forward", "forward, a layer", "dispatch + combine", "B", DSV3, "the same again in backward",
     NONE},
    {"ib_dispatch", "dispatch over the network, one copy a node", "T * nodes * h", "B", DSV3,
     "copies inside a node go over NVLink", NONE},
    {"ib_combine", "combine likewise", "T * nodes * h * 2", "B", DSV3, NULL, NONE},
    {"ib_token", "a token takes on the network", "(ib_dispatch + ib_combine) / T / B", "s", NULL,
     NULL, NONE},
    {"compute_token", "and in a layer's products, forward",
     "2 * (Nactive - Nlookup) / L / (F8 * mfu8)", "s", NULL,
     "mfu8 is an assumption, and the ratio below hangs on it", NONE},
    {"ratio", "communication over compute", "ib_token / compute_token", "x", DSV3,
     "about 1 : 1 in the paper", NONE},
    {"step", "what this program sends in bf16, a layer and step",
     "T * top * (R - 1) / R * (5 * 2 * h + 40) + 16 * E * (R - 1)", "B", NULL,
     "even load; two rows a choice in forward, three in backward; 40 B of token numbers and gates; "
     "counts of rows",
     GW_READ_EP, "layout.dp={R} layout.ep={R} train.seq_len={T} model.layers=5", 0, NULL},
    {"hot_times", "a hot expert gets, of the mean", "load / (hot / experts)", "x", NULL, NULL,
     NONE},
    {"cold_times", "a cold one", "(1 - load) / (1 - hot / experts)", "x", NULL, NULL, NONE},
    {"rank_times", "a rank with one hot expert and cold ones",
     "(hot_times + (each - 1) * cold_times) / each", "x", NULL,
     "hot ones spread; one expert a rank, or hot ones together: hot_times", NONE},
    {"dropped", "of the choices, dropped by capacity", "max(load - CF * hot / experts, 0)", "%",
     NULL, NULL, NONE},
};

static const char *const moe_claims[] = {"\"nine times the load\": of one expert; of a rank only "
                                         "with one expert each, or with hot ones together.",
                                         NULL};

GW_EXPLAIN_DEFINE(moe, "moe", "experts over ranks: what is sent, what is uneven", "deepseek-v3");
