// SPDX-License-Identifier: Apache-2.0
// Topics of time: pipeline, recompute, mfu.
//
// Bubbles and what is held are read from the schedule by its clock (sched/clock.c), FLOPs from the
// program's ops.
#include "plan/explain.h"

#define NONE GW_READ_NONE, NULL, 0, NULL
#define NARA "Narayanan et al. 2021, section 2.2"
#define KORT "Korthikanti et al. 2022"

/* ---- pipeline ---- */

static const gw_explain_input pipeline_inputs[] = {
    {"p", "", "ranks of the pipeline", 16, NULL, true, false},
    {"m", "", "micro-batches of a step", 16, NULL, true, false},
    {"v", "", "stages a rank", 1, NULL, true, false},
    {"s", "tokens", "of a micro-batch", 8192, NULL, true, false},
    {"t", "", "tensor-parallel ranks", 8, NULL, true, false},
};

static const gw_explain_line pipeline_lines[] = {
    {"bubble", "idle time over computing time", "(p - 1) / (v * m)", "%", NARA,
     "stages alike, messages free; 1f1b, or interleaved where v is above 1", GW_READ_BUBBLE, NULL,
     1e-9, NULL},
    {"bubble_step", "idle share of the step", "(p - 1) / (v * m + p - 1)", "%", NARA, NULL,
     GW_READ_BUBBLE_STEP, NULL, 1e-9, NULL},
    {"held_first", "micro-batches that the first rank holds, 1f1b", "min(m, p)", "", NARA,
     "stage i holds min(m, p - i)", GW_READ_HELD_FIRST, NULL, 0, NULL},
    {"held_last", "that the last one holds", "1", "", NARA, NULL, GW_READ_HELD_LAST, NULL, 0, NULL},
    {"held_gpipe", "that every rank of GPipe holds", "m", "", "Huang et al. 2019", NULL,
     GW_READ_HELD_GPIPE, NULL, 0, NULL},
    {"layers_held", "layers' worth of activations on the first rank", "L / p * held_first",
     "layers", NULL, "L whatever p is, once m is p or more", NONE},
    {"boundary", "sent over a boundary, a micro-batch", "2 * s * h / t", "B", NARA,
     "bf16; each of t ranks sends a part", NONE},
};

static const char *const pipeline_claims[] = {
    "\"1F1B caps activations at p\": on the first stage; stage i holds p - i.",
    "\"a bubble of (p-1)/m\": of computing time; of the step it is (p-1)/(m+p-1).", NULL};

GW_EXPLAIN_DEFINE(pipeline, "pipeline", "what a schedule leaves idle and holds", "llama3-405b");

/* ---- recompute ---- */

static const gw_explain_input recompute_inputs[] = {
    {"s", "tokens", "sequence", 4096, NULL, true, false},
    {"ga", "", "heads of the GPT", 96, "GPT-3 175B, Brown et al. 2020", true, false},
    {"gh", "", "its hidden size", 12288, "GPT-3 175B, Brown et al. 2020", true, false},
    {"gs", "tokens", "its sequence", 2048, "GPT-3 175B, Brown et al. 2020", true, false},
    {"gL", "", "its layers", 96, "GPT-3 175B, Brown et al. 2020", true, false},
    {"gV", "", "its vocabulary", 51200, "Korthikanti et al. 2022, table 3", true, false},
};

static const gw_explain_line recompute_lines[] = {
    {"third", "full recomputation: forward twice, backward twice as much", "(2 + 2 + 4) / (2 + 4)",
     "x", "Chen et al. 2016", "of blocks; head and embedding are not made again", NONE},
    {"last", "share of a block's forward in its last product",
     "2 * h * f / (2 * linear / L + 2 * heads * hd * s)", "x", NULL, "causal attention", NONE},
    {"third_kept", "full recomputation, the last product left out", "(4 - last) / 3", "x", NULL,
     "its result is kept anyway, as the next block's input", GW_READ_RECOMPUTE, "train.seq_len={s}",
     0.02, "backward of attention is 2.5 times its forward, not 2"},
    {"full_saves", "GPT: activations over those of full recomputation",
     "(34 + 5 * ga * gs / gh) / 2", "x", "Korthikanti et al. 2022, section 4",
     "scores are kept (no flash attention)", NONE},
    {"full_saves_flash", "the same with flash attention", "34 / 2", "x", "Dao et al. 2022", NULL,
     NONE},
    {"selective", "GPT: share of activations that selective recomputation saves",
     "5 * ga * gs / gh / (34 + 5 * ga * gs / gh)", "%", "Korthikanti et al. 2022, section 5",
     "no flash attention", NONE},
    {"selective_flops", "for more FLOPs, by the paper's count",
     "gs / (6 * gh) / (1 + gs / (6 * gh) + gV / (12 * gh * gL))", "%",
     "Korthikanti et al. 2022, appendix A",
     "all of attention's FLOPs counted once more; its forward alone is a third of that", NONE},
};

static const char *const recompute_claims[] = {
    "\"30 % more\": 33 % of blocks' FLOPs; head and embedding are not made again, nor the last "
    "product, so a "
    "step takes less than a third more.",
    "\"selective recomputation is nearly free\": of GPT without flash attention; flash attention "
    "does the "
    "same inside the kernel.",
    NULL};

GW_EXPLAIN_DEFINE(recompute, "recompute", "activations made again instead of kept", "llama3-8b");

/* ---- mfu ---- */

static const gw_explain_input mfu_inputs[] = {
    {"rate", "tokens/s", "of a GPU", 157.7, "Llama 3, section 3.3: about 400 TFLOP/s", false,
     false},
    {"s", "tokens", "sequence", 8192, "Llama 3", true, false},
    {"F", "FLOP/s", "peak of a GPU, bf16 dense", 989e12, "NVIDIA H100 SXM data sheet", false,
     false},
};

static const gw_explain_line mfu_lines[] = {
    {"n6", "6 N a token", "6 * N", "FLOP", "Kaplan et al. 2020; Chowdhery et al. 2022", NULL,
     GW_READ_N6, "train.seq_len={s}", 1e-9, NULL},
    {"causal", "with causal attention", "6 * N + 6 * L * heads * hd * s", "FLOP",
     "Chowdhery et al. 2022, appendix B", NULL, GW_READ_N6_CAUSAL, "train.seq_len={s}", 1e-9, NULL},
    {"full", "with all keys counted", "6 * N + 12 * L * heads * hd * s", "FLOP",
     "Chowdhery et al. 2022, appendix B", NULL, GW_READ_N6_FULL, "train.seq_len={s}", 1e-9, NULL},
    {"flops", "speed by 6 N", "n6 * rate", "FLOP/s", NULL, NULL, NONE},
    {"flops_causal", "by the causal count", "causal * rate", "FLOP/s", NULL, NULL, NONE},
    {"flops_full", "by the full count", "full * rate", "FLOP/s", NULL, NULL, NONE},
    {"mfu6", "MFU by 6 N", "flops / F", "%", NULL, NULL, NONE},
    {"mfu_causal", "MFU by the causal count", "flops_causal / F", "%", NULL, NULL, NONE},
    {"mfu_full", "MFU by the full count", "flops_full / F", "%", NULL, NULL, NONE},
};

static const char *const mfu_claims[] = {
    "\"MFU cannot be gamed\": not by recomputation, but by counting all keys (up to twice), the "
    "sparse peak, "
    "or a clock that is capped. The convention belongs beside the figure.",
    NULL};

GW_EXPLAIN_DEFINE(mfu, "mfu", "utilisation, by three conventions", "llama3-405b");
