// SPDX-License-Identifier: Apache-2.0
// Topics of what a model occupies: memory, zero, precision, lora.
//
// Every line is a formula (explain_expr.c); no figure is typed in. What is read from a program is
// compiled with the words of `sets` over the run that `gradwright plan MODEL` assumes.
#include "plan/explain.h"

#define ADAM    "Kingma, Ba 2015; Micikevicius et al. 2018 (master weights)"
#define ZERO    "Rajbhandari et al. 2020, section 5"
#define QLORA   "Dettmers et al. 2023, sections 3 and 5"
#define LORA    "Hu et al. 2021, section 4"
#define GPT_ACT "Korthikanti et al. 2022, equation 1"
#define BF16G   "precision.gradients=compute"

/* ---- memory ---- */

static const gw_explain_input memory_inputs[] = {
    {"gpu", "B", "memory of a GPU", 80e9, "NVIDIA H100 SXM data sheet", false, false},
    {"node", "", "GPUs of a node", 8, "DGX H100", true, false},
    {"usable", "", "share of memory that states may take", 0.8, NULL, false, false},
    {"s", "tokens", "sequence length", 8192, NULL, true, false},
    {"b", "", "sequences of a micro-batch", 1, NULL, true, false},
    {"K", "", "micro-batches of a step", 8, NULL, true, false},
};

static const gw_explain_line memory_lines[] = {
    {"fp32", "bytes a parameter: float32 weights, gradients, two moments", "4 + 4 + 4 + 4",
     "B/param", ADAM, NULL, GW_READ_STATIC_EACH, "precision.compute=fp32", 0, NULL},
    {"mixed16", "bf16 weights and gradients, float32 master and moments", "2 + 2 + (4 + 4 + 4)",
     "B/param", ADAM, NULL, GW_READ_STATIC_EACH, BF16G, 0, NULL},
    {"mixed18", "the same with float32 gradients", "2 + 4 + (4 + 4 + 4)", "B/param", ADAM,
     "most trainers accumulate gradients in float32", GW_READ_STATIC_EACH, NULL, 0, NULL},
    {"fsdp2", "float32 weights and gradients kept, cast for products", "4 + 4 + (4 + 4)", "B/param",
     "PyTorch FSDP2 MixedPrecisionPolicy", "besides, 2 B of the layers gathered at that time",
     GW_READ_NONE, NULL, 0, NULL},
    {"params", "parameters", "N", "params", NULL, NULL, GW_READ_PARAMS, NULL, 0, NULL},
    {"state", "weights, gradients, optimizer states", "mixed16 * N", "B", ADAM, NULL,
     GW_READ_STATIC, BF16G, 0, NULL},
    {"state18", "the same with float32 gradients", "mixed18 * N", "B", ADAM, NULL, GW_READ_STATIC,
     NULL, 0, NULL},
    {"sgd", "float32, SGD with momentum", "(4 + 4 + 4) * N", "B", NULL, NULL, GW_READ_STATIC,
     "precision.compute=fp32 optimizer.name=sgd", 0, NULL},
    {"frozen", "bf16 weights alone", "2 * N", "B", NULL, NULL, GW_READ_WEIGHTS, BF16G, 0, NULL},
    {"times32", "state over weights, float32", "fp32 / 4", "x", NULL, NULL, GW_READ_NONE, NULL, 0,
     NULL},
    {"times16", "state over weights, bf16", "mixed16 / 2", "x", NULL, NULL, GW_READ_NONE, NULL, 0,
     NULL},
    {"gpus", "GPUs that hold the state alone", "ceil(state / gpu)", "GPUs", NULL,
     "the state is sharded evenly, activations and buffers come on top", GW_READ_NONE, NULL, 0,
     NULL},
    {"gpus_nodes", "the same in whole nodes", "node * ceil(gpus / node)", "GPUs", NULL, NULL,
     GW_READ_NONE, NULL, 0, NULL},
    {"nodes_exact", "nodes that the state fills", "state / (node * gpu)", "nodes", NULL, NULL,
     GW_READ_NONE, NULL, 0, NULL},
    {"nodes", "whole nodes for the state", "ceil(nodes_exact)", "nodes", NULL, NULL, GW_READ_NONE,
     NULL, 0, NULL},
    {"nodes_usable", "whole nodes with room for activations", "ceil(nodes_exact / usable)", "nodes",
     NULL, "states may take the share `usable`", GW_READ_NONE, NULL, 0, NULL},
    {"gpt_block", "activations of a GPT block, dropout masks included, with flash attention",
     "34 * s * b * h", "B", GPT_ACT,
     "LayerNorm, 4h feed-forward, dropout: not a Llama block (topic cp)", GW_READ_NONE, NULL, 0,
     NULL},
    {"large_batch", "of all layers, K sequences at once", "gpt_block * L * K", "B", GPT_ACT, NULL,
     GW_READ_NONE, NULL, 0, NULL},
    {"accumulated", "of all layers, accumulated one after another", "gpt_block * L", "B", GPT_ACT,
     "state is the same; gradients are exchanged once (no_sync), not K times", GW_READ_NONE, NULL,
     0, NULL},
    {"dpo", "DPO: policy's state and a frozen reference", "(16 + 2) * N", "B",
     "Rafailov et al. 2023, section 4", NULL, GW_READ_NONE, NULL, 0, NULL},
    {"dpo_flops", "DPO: FLOPs a token", "6 + 2", "N FLOP", NULL,
     "precomputed reference log-probabilities save 2N only from the second epoch on", GW_READ_NONE,
     NULL, 0, NULL},
};

static const char *const memory_claims[] = {
    "\"Adam takes 4 times the weights\": in float32; of bf16 weights it is 8 times.",
    "\"16 bytes a parameter\": with bf16 gradients; most trainers keep float32 ones, 18.",
    "\"a 1 GB model takes 3 GB\": with SGD and momentum; with Adam 4 GB.",
    "\"34 s b h\": a GPT block with dropout masks; a Llama block keeps less.",
    "\"divide the loss by K\": with equal token counts only; otherwise sum, and divide by the "
    "total.",
    NULL};

GW_EXPLAIN_DEFINE(memory, "memory", "what a model in training occupies", "llama3-70b");

/* ---- zero ---- */

static const gw_explain_input zero_inputs[] = {
    {"n", "", "data-parallel ranks", 8, NULL, true, false},
    {"F", "FLOP/s", "peak of a GPU, bf16 dense", 989e12, "NVIDIA H100 SXM data sheet", false,
     false},
    {"mfu", "%", "share of it that is reached", 0.4, NULL, false, false},
    {"B", "B/s", "network of a GPU, one way", 50e9, "400 Gb/s NIC each", false, false},
    {"p", "", "pipeline stages, to compare", 8, NULL, true, false},
    {"m", "", "micro-batches, to compare", 32, NULL, true, false},
    {"v", "", "stages a rank, to compare", 1, NULL, true, false},
};

static const gw_explain_line zero_lines[] = {
    {"z0", "stage 0 (DDP): all of it on each rank", "(2 + 2 + 12) * N", "B", ZERO, NULL,
     GW_READ_STATIC, BF16G " layout.dp={n} layout.zero=0", 0, NULL},
    {"z1", "stage 1: optimizer states sharded", "(4 + 12 / n) * N", "B", ZERO, NULL, GW_READ_STATIC,
     BF16G " layout.dp={n} layout.zero=1", 1e-6, "shards of unequal length"},
    {"z2", "stage 2: gradients too", "(2 + 14 / n) * N", "B", ZERO, NULL, GW_READ_STATIC,
     BF16G " layout.dp={n} layout.zero=2", 1e-6, "shards of unequal length"},
    {"z3", "stage 3: weights too (FSDP)", "16 * N / n", "B", ZERO, NULL, GW_READ_STATIC,
     BF16G " layout.dp={n} layout.zero=3", 1e-6, "shards of unequal length"},
    {"wire0", "sent by a rank a step, stages 0 to 2", "2 * (n - 1) / n * 2 * N", "B", ZERO,
     "bf16 both ways, one exchange a step", GW_READ_WIRE_DP, BF16G " layout.dp={n} layout.zero=1",
     1e-6, "shards of unequal length"},
    {"wire3", "stage 3: gather for forward, gather for backward, reduce-scatter",
     "3 * (n - 1) / n * 2 * N", "B", ZERO, "every parameter is gathered twice", GW_READ_NONE, NULL,
     0, NULL},
    {"wire3_ends", "stage 3, embedding and head gathered once",
     "(n - 1) / n * (3 * 2 * N - 2 * ends)", "B", NULL,
     "backward needs no table, and the head is used twice in a row", GW_READ_WIRE_DP,
     BF16G " layout.dp={n} layout.zero=3", 1e-6, "shards of unequal length"},
    {"ratio3", "stage 3 over stages 0 to 2", "wire3 / wire0", "x", ZERO,
     "one micro-batch: K of them gather K times; stage 2 reduces K times if its accumulator is "
     "sharded",
     GW_READ_NONE, NULL, 0, NULL},
    {"zeropp", "ZeRO++: int8 gather forward, in-node gather backward, int4 reduction",
     "(1 / 2 + 0 + 1 / 4)", "M", "Wang et al. 2023, section 3",
     "M = 2N; int4 gradients; all ranks of a node hold a secondary shard", GW_READ_NONE, NULL, 0,
     NULL},
    {"zeropp8", "the same with an int8 reduction", "(1 / 2 + 0 + 1 / 2)", "M",
     "Wang et al. 2023, section 3", NULL, GW_READ_NONE, NULL, 0, NULL},
    {"offload_pcie", "optimizer on the host: gradient down, weight up", "(2 + 2) * N / n", "B",
     "Ren et al. 2021, section 4", "of a rank and step", GW_READ_NONE, NULL, 0, NULL},
    {"offload_disk", "optimizer on disk: 12 B read and written", "2 * 12 * N / n", "B",
     "Rajbhandari et al. 2021", "of a rank and step", GW_READ_NONE, NULL, 0, NULL},
    {"hides", "tokens a GPU and micro-batch from which stage 3 hides",
     "F * mfu / B * (2 + 2 + 2) / 6", "tokens", NULL,
     "the network is as fast as stated, and compute is evenly spread", GW_READ_NONE, NULL, 0, NULL},
    {"hides32", "the same with float32 reduction", "F * mfu / B * (2 + 2 + 4) / 6", "tokens", NULL,
     NULL, GW_READ_NONE, NULL, 0, NULL},
    {"bubble", "idle time of a pipeline instead, of compute", "(p - 1) / (v * m)", "%",
     "Narayanan et al. 2021, section 2.2", "choose the smaller exposed time", GW_READ_BUBBLE, NULL,
     1e-9, NULL},
};

static const char *const zero_claims[] = {
    "\"stage 1 adds nothing to the wire\": with one exchange a step; stage 2 with a sharded "
    "accumulator reduces once a micro-batch.",
    "\"DP, then TP, then PP\": skips sharding, which most jobs of 7 to 70 B parameters need first.",
    NULL};

GW_EXPLAIN_DEFINE(zero, "zero", "sharding states over data-parallel ranks", "llama3-70b");

/* ---- precision ---- */

static const gw_explain_input precision_inputs[] = {
    {"w", "", "a weight", 0.0078125, "2^-7", false, true},
    {"d", "", "an update of it", 3e-5, "a learning rate of Adam", false, false},
    {"sigma", "", "standard deviation of the weights", 0.02, "the usual initialisation", false,
     false},
    {"x", "", "a value for fp16", 65519, NULL, false, true},
    {"block", "", "values that share an fp8 scale", 128, "DeepSeek-V3, section 3.3", true, false},
    {"mx", "", "values that share an MX scale", 32, "OCP MX 1.0", true, false},
};

#define IEEE "IEEE 754-2008 binary16"

static const gw_explain_line precision_lines[] = {
    {"fp16_least", "fp16: the least above 0", "2^-24", "", IEEE, NULL, GW_READ_NONE, NULL, 0, NULL},
    {"fp16_lost", "fp16: what rounds to 0, up to", "2^-25", "", IEEE, NULL, GW_READ_NONE, NULL, 0,
     NULL},
    {"fp16_coarse", "fp16: bits are lost below", "2^-14", "", IEEE, NULL, GW_READ_NONE, NULL, 0,
     NULL},
    {"fp16_most", "fp16: the largest", "(2 - 2^-10) * 2^15", "", IEEE, NULL, GW_READ_NONE, NULL, 0,
     NULL},
    {"fp16_of_x", "fp16 of x, rounded to even", "fp16(x)", "", IEEE,
     "65,519 is the last whole number that stays finite", GW_READ_NONE, NULL, 0, NULL},
    {"half_ulp", "bf16: half a step at w, below which an update vanishes",
     "2^(floor(log2(max(w, 2^-126))) - 8)", "", "bfloat16: 8 bits of precision", NULL, GW_READ_NONE,
     NULL, 0, NULL},
    {"up", "bf16: w + d moves", "gt(bf16(w + d), bf16(w))", "", NULL, "1 is yes, 0 no",
     GW_READ_NONE, NULL, 0, NULL},
    {"down", "bf16: w - d moves", "gt(bf16(w), bf16(w - d))", "", NULL, "1 is yes, 0 no",
     GW_READ_NONE, NULL, 0, NULL},
    {"vanishes_above", "bf16: an update d vanishes for weights above", "2^(ceil(log2(d)) + 8)", "",
     NULL, "at that weight itself down is a finer step than up", GW_READ_NONE, NULL, 0, NULL},
    {"share", "share of such weights in a normal distribution",
     "erfc(vanishes_above / (sigma * sqrt(2)))", "%", NULL, "at initialisation", GW_READ_NONE, NULL,
     0, NULL},
    {"digits", "bf16: decimal digits", "log10(2^8)", "digits", NULL, NULL, GW_READ_NONE, NULL, 0,
     NULL},
    {"fp8_rows", "fp8, 1 x block: scales in float32 add", "4 / block", "%",
     "DeepSeek-V3, section 3.3", NULL, GW_READ_NONE, NULL, 0, NULL},
    {"fp8_tiles", "fp8, block x block: they add", "4 / block^2", "%", "DeepSeek-V3, section 3.3",
     NULL, GW_READ_NONE, NULL, 0, NULL},
    {"mx_scale", "MX: scales of one byte add", "1 / mx", "%", "OCP MX 1.0", NULL, GW_READ_NONE,
     NULL, 0, NULL},
};

static const char *const precision_claims[] = {"\"fp16 loses gradients below 6e-8\": they become 0 "
                                               "below 3.0e-8; they are coarse below 6.1e-5.",
                                               "\"bf16 has three digits\": 2.4.",
                                               "\"an update of 3e-5 vanishes\": for weights above "
                                               "0.0078 in bf16 alone, without a master copy or "
                                               "stochastic rounding.",
                                               NULL};

GW_EXPLAIN_DEFINE(precision, "precision", "what small floats lose", NULL);

/* ---- lora ---- */

static const gw_explain_input lora_inputs[] = {
    {"r", "", "rank of the adapter", 16, NULL, true, false},
    {"gpu", "B", "memory of a GPU", 80e9, "NVIDIA H100 SXM data sheet", false, false},
    {"gpus", "", "of them", 2, NULL, true, false},
    {"block4", "", "values that share a scale", 64, QLORA, true, false},
    {"block2", "", "scales that share a second one", 256, QLORA, true, false},
    {"adapters", "", "adapters kept", 100, NULL, true, false},
    {"distinct", "", "different ones in a batch", 32, NULL, true, false},
    {"hbm", "B/s", "memory bandwidth", 3.35e12, "NVIDIA H100 SXM data sheet", false, false},
};

static const gw_explain_line lora_lines[] = {
    {"frozen", "frozen weights, bf16", "2 * N", "B", LORA, NULL, GW_READ_WEIGHTS, BF16G, 0, NULL},
    {"adapter", "trainable: r(in + out) of all matrices of blocks", "r * inout", "params", LORA,
     NULL, GW_READ_NONE, NULL, 0, NULL},
    {"adapter_state", "their weights, gradients, optimizer states", "16 * adapter", "B", LORA, NULL,
     GW_READ_NONE, NULL, 0, NULL},
    {"total", "frozen and trainable together", "frozen + adapter_state", "B", NULL,
     "before activations", GW_READ_NONE, NULL, 0, NULL},
    {"left", "left for activations", "gpus * gpu - total", "B", NULL,
     "sharded evenly over these GPUs", GW_READ_NONE, NULL, 0, NULL},
    {"payload4", "4-bit payload of all parameters", "N / 2", "B", QLORA,
     "nobody stores that: embedding, head and norms stay 16-bit, and scales are added",
     GW_READ_NONE, NULL, 0, NULL},
    {"linear4", "NF4 with double quantisation, matrices of blocks",
     "linear * (1 / 2 + 1 / block4 + 4 / (block4 * block2))", "B", QLORA, NULL, GW_READ_NONE, NULL,
     0, NULL},
    {"rest", "the rest in bf16", "2 * (N - linear)", "B", QLORA, NULL, GW_READ_NONE, NULL, 0, NULL},
    {"nf4", "NF4 with double quantisation, all of the model", "linear4 + rest", "B", QLORA,
     "embedding, head and norms in bf16", GW_READ_NONE, NULL, 0, NULL},
    {"nf4_single", "the same without double quantisation", "linear * (1 / 2 + 4 / block4) + rest",
     "B", QLORA, NULL, GW_READ_NONE, NULL, 0, NULL},
    {"saved_bits", "double quantisation saves, a parameter",
     "8 * (4 / block4 - 1 / block4 - 4 / (block4 * block2))", "bit", QLORA, NULL, GW_READ_NONE,
     NULL, 0, NULL},
    {"saved", "in all", "nf4_single - nf4", "B", QLORA, NULL, GW_READ_NONE, NULL, 0, NULL},
    {"dora", "DoRA: magnitudes, one for each output", "out", "params", "Liu et al. 2024", NULL,
     GW_READ_NONE, NULL, 0, NULL},
    {"dora_share", "of the adapter", "dora / adapter", "%", "Liu et al. 2024",
     "besides, a pass over the weights' norms each step", GW_READ_NONE, NULL, 0, NULL},
    {"small", "an adapter of rank 8 on q and v, bf16", "2 * 8 * qv", "B", LORA, NULL, GW_READ_NONE,
     NULL, 0, NULL},
    {"small_all", "so many of them", "adapters * small", "B", NULL, NULL, GW_READ_NONE, NULL, 0,
     NULL},
    {"large", "one of rank r on all matrices, bf16", "2 * adapter", "B", LORA, NULL, GW_READ_NONE,
     NULL, 0, NULL},
    {"large_all", "so many of them", "adapters * large", "B", NULL, NULL, GW_READ_NONE, NULL, 0,
     NULL},
    {"read", "reading the weights once", "frozen / hbm", "s", NULL, "decoding, bound by memory",
     GW_READ_NONE, NULL, 0, NULL},
    {"read_more", "reading the distinct adapters of a batch", "distinct * large / hbm", "s", NULL,
     NULL, GW_READ_NONE, NULL, 0, NULL},
    {"slower", "slower by", "read_more / read", "%", NULL, NULL, GW_READ_NONE, NULL, 0, NULL},
};

static const char *const lora_claims[] = {
    "\"NF4 takes 70 B to 35 GB\": the payload alone; embedding and head stay 16-bit.",
    "\"hundreds of adapters in a few GB\": at rank 8 on q and v; of rank 16 on all matrices each "
    "is 13 "
    "times as large for a 70 B model.",
    "\"the rest is a few GB\": at rank 16; it grows with r.", NULL};

GW_EXPLAIN_DEFINE(lora, "lora", "adapters, and frozen weights in 4 bits", "llama3-70b");
