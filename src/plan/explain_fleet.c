// SPDX-License-Identifier: Apache-2.0
// Topics of many machines and of data: fleet, loader, tokenizing, storage, object-store,
// checkpoint.
//
// These are the sums before anything is compiled: how many GPUs, how many bytes a second, how long.
#include "plan/dataplan.h" /* GW_DATA_LOADER_RATE */
#include "plan/explain.h"

#define NONE  GW_READ_NONE, NULL, 0, NULL
#define LLAMA "Llama 3, section 3.3"
#define TOKENS_IN(from)                                                                            \
    { "tokens", "tokens", "of the corpus", 15e12, from, true, false }

/* ---- fleet ---- */

static const gw_explain_input fleet_inputs[] = {
    {"t", "", "tensor-parallel ranks", 8, LLAMA, true, false},
    {"p", "", "pipeline ranks", 16, LLAMA, true, false},
    {"d", "", "data-parallel ranks", 128, LLAMA, true, false},
    {"v", "", "stages a rank", 8, NULL, true, false},
    {"s", "tokens", "sequence", 8192, LLAMA, true, false},
    {"batch", "tokens", "of a step", 16777216, LLAMA, true, false},
    {"corpus", "tokens", "of training", 15.6e12, "Llama 3, section 3.2", true, false},
    {"speed", "FLOP/s", "reached by a GPU", 380e12, LLAMA, false, false},
    {"gpu", "B", "memory of a GPU", 80e9, "NVIDIA H100 SXM data sheet", false, false},
    {"people", "", "notebooks", 300, NULL, true, false},
    {"used", "min", "that each computes a day", 20, NULL, false, false},
    {"day", "min", "that each is open", 480, NULL, false, false},
    {"pauses", "", "idle timeouts a day", 4, NULL, true, false},
    {"timeout", "min", "until an idle GPU is released", 10, NULL, false, false},
    {"replicas", "", "models served", 100, NULL, true, false},
    {"weights", "B", "of one", 140e9, NULL, false, false},
    {"gpus_each", "", "GPUs of a replica", 8, NULL, true, false},
    {"idle1", "s", "idle time before a node may go", 60, "Ray autoscaler idle_timeout", false,
     false},
    {"idle2", "s", "of the cluster's autoscaler", 600,
     "Kubernetes cluster-autoscaler unneeded time", false, false},
};

static const gw_explain_line fleet_lines[] = {
    {"gpus", "GPUs of the layout", "t * p * d", "GPUs", LLAMA, NULL, NONE},
    {"state", "state at 16 B a parameter", "16 * N", "B", NULL, NULL, NONE},
    {"state_gpus", "in memories of a GPU", "state / gpu", "GPUs", NULL, "before activations", NONE},
    {"weights_gpu", "weights of a GPU, bf16", "2 * N / (t * p)", "B", NULL, "stages alike", NONE},
    {"z1", "state of a GPU, stage 1, bf16 gradients", "(4 + 12 / d) * N / (t * p)", "B", NULL,
     "stages alike", NONE},
    {"z1_32", "the same, float32 gradients", "(6 + 12 / d) * N / (t * p)", "B", NULL,
     "stages alike", NONE},
    {"m", "micro-batches of a step", "batch / (s * d)", "", NULL, "one sequence each", NONE},
    {"bubble", "bubble of compute, plain", "(p - 1) / m", "%", "Narayanan et al. 2021", NULL,
     GW_READ_NONE, NULL, 0, NULL},
    {"bubble_v", "bubble, v stages a rank", "(p - 1) / (v * m)", "%", "Narayanan et al. 2021", NULL,
     GW_READ_BUBBLE, NULL, 1e-9, NULL},
    {"tp_step", "sent by a GPU a step over tp", "4 * L / p * 2 * h * 2 * (t - 1) / t * batch / d",
     "B", "Shoeybi et al. 2019", NULL, NONE},
    {"dp_step", "over dp: float32 reduce-scatter, bf16 gather",
     "(4 + 2) * N / (t * p) * (d - 1) / d", "B", NULL, NULL, NONE},
    {"pp_micro", "over a boundary of the pipeline, a micro-batch", "2 * s * h / t", "B", NULL,
     "each of t ranks sends a part", NONE},
    {"work", "FLOPs of training", "6 * N * corpus", "FLOP", "Kaplan et al. 2020", NULL, NONE},
    {"days", "days", "work / (gpus * speed) / 86400", "days", NULL, "no interruptions", NONE},
    {"busy", "GPUs in use on average", "people * used / day", "GPUs", NULL, NULL, NONE},
    {"p99", "enough 99 % of the time", "binomial(people, used / day, 0.99)", "GPUs",
     "binomial distribution", "people work independently, and GPUs change hands at once", NONE},
    {"p999", "99.9 % of the time", "binomial(people, used / day, 0.999)", "GPUs",
     "binomial distribution", NULL, NONE},
    {"held", "held on average, timeouts counted", "people * (used + pauses * timeout) / day",
     "GPUs", NULL, NULL, NONE},
    {"held99", "enough 99 % of the time", "binomial(people, (used + pauses * timeout) / day, 0.99)",
     "GPUs", "binomial distribution", NULL, NONE},
    {"apart", "without sharing", "people", "GPUs", NULL, NULL, NONE},
    {"serve_gpus", "GPUs of so many replicas", "replicas * gpus_each", "GPUs", NULL, NULL, NONE},
    {"serve_bytes", "their weights", "replicas * weights", "B", NULL, NULL, NONE},
    {"serve_least", "GPUs that hold one in memory, times replicas",
     "replicas * ceil(weights / gpu)", "GPUs", NULL,
     "no room for a cache of keys and values to speak of", NONE},
    {"release", "GPU-hours idle before a node is released", "(idle1 + idle2) * gpus_each / 3600",
     "GPU-hours", NULL, "one waits for the other", NONE},
};

static const char *const fleet_claims[] = {NULL};

GW_EXPLAIN_DEFINE(fleet, "fleet", "many GPUs: layouts, sharing, replicas", "llama3-405b");

/* ---- loader ---- */

static const gw_explain_input loader_inputs[] = {
    {"gpus", "", "of a node", 8, "DGX H100", true, false},
    {"rate", "tokens/s", "of a GPU", 12273, "8 B at 60 % of 989 TFLOP/s", false, false},
    {"width", "B", "of a token", 4, "uint32", true, false},
    {"total", "tokens/s", "of the run", 1.7e6, NULL, false, false},
    {"core", "tokens/s", "that a core's loader delivers", GW_DATA_LOADER_RATE,
     "bench/loader, " GW_DATA_RATES_SOURCE, false, false},
};

static const gw_explain_line loader_lines[] = {
    {"node", "a node reads", "gpus * rate * width", "B/s", NULL, NULL, NONE},
    {"run2", "the run reads, uint16", "2 * total", "B/s", NULL, "vocabularies up to 65,536", NONE},
    {"run4", "uint32", "4 * total", "B/s", NULL, NULL, NONE},
    {"cores", "cores that deliver it", "total / core", "cores", NULL, NULL, NONE},
};

static const char *const loader_claims[] = {
    "\"bytes are trivial\": of tokens; images and video are not.", NULL};

GW_EXPLAIN_DEFINE(loader, "loader", "what training reads", NULL);

/* ---- tokenizing ---- */

static const gw_explain_input tokenizing_inputs[] = {
    TOKENS_IN("Llama 3"),
    {"each", "B", "of text a token", 4, "English, vocabularies of 100 k", false, false},
    {"core", "B/s", "of text a core", 1e6, "a slow tokenizer", false, false},
    {"days", "days", "to finish in", 14, NULL, false, false},
    {"raw", "B", "before filtering", 3e15, NULL, false, false},
    {"total", "tokens/s", "of the training run", 1.7e6, NULL, false, false},
    {"pipe", "B/s", "of HTML a core, WARC.gz to tokens", GW_DATA_PIPELINE_RATE,
     "bench/data, " GW_DATA_RATES_SOURCE, false, false},
    {"own", "B/s", "of text a core of gradwright's", GW_DATA_TOKENIZE_RATE,
     "bench/tokenize, prose, " GW_DATA_RATES_SOURCE, false, false},
};

static const gw_explain_line tokenizing_lines[] = {
    {"text", "text", "tokens * each", "B", NULL, NULL, NONE},
    {"core_days", "core-days", "text / core / 86400", "core-days", NULL, NULL, NONE},
    {"core_days_own", "at gradwright's rate", "text / own / 86400", "core-days", NULL,
     "`gradwright calibrate` measures this machine's", NONE},
    {"core_days_fast", "at 1 GB/s", "text / 1e9 / 86400", "core-days", NULL, NULL, NONE},
    {"u16", "tokens on disk, uint16", "2 * tokens", "B", NULL, "vocabularies up to 65,536", NONE},
    {"u32", "tokens on disk, uint32", "4 * tokens", "B", NULL, "Llama 3 has 128,256", NONE},
    {"train_days", "training reads them in", "tokens / total / 86400", "days", NULL, NULL, NONE},
    {"hundred", "tokens a second for 100 days", "tokens / (100 * 86400)", "tokens/s", NULL, NULL,
     NONE},
    {"rate", "tokens a second to finish in time", "tokens / (days * 86400)", "tokens/s", NULL, NULL,
     NONE},
    {"rate_text", "text a second", "text / (days * 86400)", "B/s", NULL, NULL, NONE},
    {"cores", "cores", "ceil(rate_text / core)", "cores", NULL, NULL, NONE},
    {"rate_raw", "raw a second", "raw / (days * 86400)", "B/s", NULL, NULL, NONE},
    {"pipe_days", "raw to tokens, all stages", "raw / pipe / 86400", "core-days", NULL,
     "report.md of a build has this machine's rate", NONE},
    {"pipe_cores", "cores", "ceil(pipe_days / days)", "cores", NULL, NULL, NONE},
};

static const char *const tokenizing_claims[] = {
    "\"15 T tokens are 30 TB\": in uint16, for vocabularies up to 65,536; Llama 3's are 60 TB.",
    NULL};

GW_EXPLAIN_DEFINE(tokenizing, "tokenizing", "text to tokens: cores, days, bytes", NULL);

/* ---- storage, object-store ---- */

static const gw_explain_input storage_inputs[] = {
    TOKENS_IN("Llama 3"),
    {"bytes", "B", "of the corpus", 30e12, "15 T tokens in uint16", true, false},
    {"sample", "tokens", "of a sample", 8192, NULL, true, false},
    {"stored", "B", "to keep", 1e15, NULL, true, false},
    {"object", "$/GB", "a month, object store", 0.023, "S3 Standard, first 50 TB", false, false},
    {"file", "$/GB", "a month, parallel file system", 0.145, "FSx for Lustre, SSD 125 MB/s/TiB",
     false, false},
    {"file_fast", "$/GB", "a month, its fastest", 0.6, "FSx for Lustre, SSD 1000 MB/s/TiB", false,
     false},
    {"gets", "/s", "requests of a prefix", 5500, "S3 performance guidelines", false, false},
    {"node", "B/s", "that a node reads of its storage", 2e9, NULL, false, false},
};

static const gw_explain_line storage_lines[] = {
    {"object_month", "a month in an object store", "stored / 1e9 * object", "$", NULL,
     "no requests, no transfer", NONE},
    {"file_month", "in a parallel file system", "stored / 1e9 * file", "$", NULL, NULL, NONE},
    {"file_fast_month", "in its fastest", "stored / 1e9 * file_fast", "$", NULL, NULL, NONE},
    {"files", "files of one sample", "tokens / sample", "files", NULL, NULL, NONE},
    {"files_64", "files of 64 MB", "bytes / 64e6", "files", NULL, NULL, NONE},
    {"files_1g", "files of 1 GB", "bytes / 1e9", "files", NULL, NULL, NONE},
    {"read_all", "one node reads all of it in", "bytes / node", "s", NULL, NULL, NONE},
    {"open_small", "opening each sample's file once", "files / gets", "s", NULL, "one prefix",
     NONE},
    {"open_large", "opening each of 64 MB once", "files_64 / gets", "s", NULL, "one prefix", NONE},
};

static const char *const storage_claims[] = {"\"30 TB\": of uint16 tokens.", NULL};

GW_EXPLAIN_DEFINE(storage, "storage", "what keeping a corpus costs", NULL);

static const gw_explain_input object_store_inputs[] = {
    {"latency", "s", "to the first byte", 0.05, NULL, false, false},
    {"rate", "B/s", "wanted", 12.5e9, "100 Gb/s", false, false},
    {"size", "B", "of a request", 8e6, NULL, false, false},
    {"small", "B", "of a small request", 100e3, NULL, false, false},
    {"stream", "B/s", "of one connection", 87.5e6, NULL, false, false},
    {"artifact", "B", "to distribute", 141.107412992e9, "llama3-70b in bf16", false, false},
    {"hour", "s", "for one node", 3600, NULL, false, false},
    {"fleet", "", "nodes", 1000, NULL, true, false},
    {"origin", "B/s", "of the origin", 12.5e9, "100 Gb/s", false, false},
    {"nic", "B/s", "of a node", 1.25e9, "10 Gb/s", false, false},
};

static const gw_explain_line object_store_lines[] = {
    {"in_flight", "requests in flight", "rate * latency / size", "requests", "Little 1961", NULL,
     NONE},
    {"one_small", "one small request after another", "small / latency", "B/s", "Little 1961",
     "the latency alone", NONE},
    {"half", "size at which latency takes half the time", "latency * stream", "B", NULL, NULL,
     NONE},
    {"node_rate", "a node in an hour", "artifact / hour", "B/s", NULL, NULL, NONE},
    {"node_bits", "in bits", "8 * node_rate", "bit/s", NULL, NULL, NONE},
    {"from_origin", "all nodes from the origin alone", "fleet * artifact / origin", "s", NULL, NULL,
     NONE},
    {"fan_out", "passed on from node to node", "artifact / nic", "s", NULL,
     "in chunks; one chunk a hop comes on top", NONE},
};

static const char *const object_store_claims[] = {NULL};

GW_EXPLAIN_DEFINE(object_store, "object-store", "latency, requests in flight, distribution", NULL);

/* ---- checkpoint ---- */

static const gw_explain_input checkpoint_inputs[] = {
    {"ranks", "", "that write", 16384, "Llama 3, section 3.3", true, false},
    {"few", "", "if fewer write", 512, NULL, true, false},
    {"cost", "s", "of a checkpoint", 60, NULL, false, false},
    {"mtti", "s", "between interruptions", 11124, "Llama 3: 419 in 54 days, 3.09 h", false, false},
};

static const gw_explain_line checkpoint_lines[] = {
    {"state14", "bf16 weights, float32 master and moments", "(2 + 4 + 4 + 4) * N", "B", NULL, NULL,
     NONE},
    {"rank14", "of each that writes", "state14 / ranks", "B", NULL, NULL, NONE},
    {"few14", "of each of the few", "state14 / few", "B", NULL, NULL, NONE},
    {"state12", "without the bf16 copy", "(4 + 4 + 4) * N", "B", NULL, "it is the master, rounded",
     NONE},
    {"rank12", "of each that writes", "state12 / ranks", "B", NULL, NULL, NONE},
    {"every", "the interval that loses least", "sqrt(2 * cost * mtti)", "s",
     "Young 1974; Daly 2006", "the cost is far below the time between interruptions", NONE},
    {"lost", "share of time then lost", "cost / every + every / (2 * mtti)", "%", "Young 1974",
     NULL, NONE},
};

static const char *const checkpoint_claims[] = {NULL};

GW_EXPLAIN_DEFINE(checkpoint, "checkpoint", "bytes, and how often", "llama3-405b");
