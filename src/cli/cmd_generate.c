// SPDX-License-Identifier: Apache-2.0
// gradwright generate: text from a trained run or a public model.
//
// The prompt is encoded with the tokenizer's template, fed, and continued token by token; text is
// written as it becomes valid UTF-8. The end-of-text token, the token limit or a full context ends
// it; which one is said.
#include <string.h>

#include "base/clock.h" /* gw_clock_ns */
#include "base/io.h"    /* gw_file_read */
#include "base/log.h"   /* gw_log_info */
#include "cli/command.h"
#include "cli/runarg.h"     /* gw_cli_need_path */
#include "cli/source.h"     /* gw_cli_open_source */
#include "file/json.h"      /* json_t */
#include "train/generate.h" /* gw_generator */

static const gw_option options[] = {
    {"prompt", 'p', "TEXT", "text to continue (default: the end-of-text token)", GW_OPT_STRING,
     NULL},
    {"prompt-file", 0, "FILE", "read the prompt from a file", GW_OPT_STRING, NULL},
    {"max-tokens", 'n', "N", "tokens to generate (default 128)", GW_OPT_INT, NULL},
    {"temperature", 't', "X", "0 takes the likeliest token (default 0.8)", GW_OPT_DOUBLE, NULL},
    {"top-k", 0, "N", "draw from the N likeliest (default all)", GW_OPT_INT, NULL},
    {"top-p", 0, "X", "draw from the likeliest of mass X (default 0.95)", GW_OPT_DOUBLE, NULL},
    {"seed", 0, "N", "of the draw (default 0)", GW_OPT_INT, NULL},
    {"tokenizer", 0, "FILE", "tokenizer of a model that comes without one", GW_OPT_STRING, NULL},
    {"compute", 0, "DTYPE", "dtype of a public model (default fp32)", GW_OPT_STRING, "fp32 bf16"},
    GW_OPTION_JSON,
};

typedef struct output {
    gw_cli *cli;
    bool json;
    gw_str text;
    size_t shown;
    const char *stopped;
    int64_t prompt_tokens, new_tokens;
    double prefill_s, decode_s;
} output;

static gw_status read_prompt(gw_cli *cli, gw_str *prompt) {
    const char *file = gw_cli_string(cli, "prompt-file", NULL);
    if (file && gw_cli_given(cli, "prompt"))
        return gw_cli_usage_error(cli, "--prompt and --prompt-file exclude each other");
    if (file) GW_TRY(gw_cli_need_path(cli, file));
    if (file) return gw_file_read(file, INT64_C(1) << 30, prompt, cli->diags);
    gw_str_add(prompt, gw_cli_string(cli, "prompt", ""));
    return GW_OK;
}

static gw_status encode_prompt(gw_cli *cli, const gw_tokenizer *t, const gw_str *prompt,
                               gw_ids *ids) {
    gw_tok_scratch *scratch = gw_tok_scratch_new();
    gw_status st = gw_tokenizer_encode(t, scratch, gw_str_c(prompt), prompt->len,
                                       GW_ENCODE_TEMPLATE, ids, cli->diags);
    gw_tok_scratch_free(scratch);
    if (st == GW_OK && ids->count == 0) {
        int32_t first = gw_tokenizer_eos(t) >= 0 ? gw_tokenizer_eos(t) : 0;
        gw_vec_push(ids, first);
    }
    return st;
}

static void show(output *o) {
    if (o->json || o->shown == o->text.len) return;
    fwrite(o->text.data + o->shown, 1, o->text.len - o->shown, o->cli->out);
    fflush(o->cli->out);
    o->shown = o->text.len;
}

static gw_status continue_text(output *o, gw_generator *g, const gw_setup *s, gw_sampling how,
                               int64_t limit) {
    const gw_tokenizer *t = s->tokenizer;
    int64_t vocab = GW_MIN(s->model.vocab, (int64_t)gw_tokenizer_vocab_size(t));
    void *scratch = gw_mem_alloc((size_t)vocab * 8);
    gw_tok_stream stream = {0};
    gw_status st = GW_OK;
    o->stopped = "length";
    while (st == GW_OK && o->new_tokens < limit) {
        int32_t id = gw_sampling_draw(gw_generator_logits(g), vocab, &how, gw_generator_position(g),
                                      scratch);
        if (id == gw_tokenizer_eos(t)) {
            o->stopped = "end of text";
            break;
        }
        gw_tok_stream_add(t, &stream, id, true, &o->text);
        show(o);
        o->new_tokens++;
        if (gw_generator_room(g) == 0) {
            o->stopped = "context";
            break;
        }
        if (o->new_tokens < limit) st = gw_generator_feed(g, &id, 1, o->cli->diags);
    }
    gw_tok_stream_end(&stream, &o->text);
    show(o);
    gw_mem_free(scratch);
    return st;
}

static void report(output *o) {
    double per_s = o->decode_s > 0 ? (double)o->new_tokens / o->decode_s : 0;
    if (!o->json) {
        fputc('\n', o->cli->out);
        fflush(o->cli->out); /* the log is another stream */
        gw_log_info(
            "%lld prompt token%s in %.2f s, %lld new in %.2f s (%.1f tokens/s), stopped by %s",
            (long long)o->prompt_tokens, o->prompt_tokens == 1 ? "" : "s", o->prefill_s,
            (long long)o->new_tokens, o->decode_s, per_s, o->stopped);
        return;
    }
    json_t *j = json_pack("{s:s%, s:I, s:I, s:s, s:f, s:f}", "text", gw_str_c(&o->text),
                          o->text.len, "prompt_tokens", (json_int_t)o->prompt_tokens, "new_tokens",
                          (json_int_t)o->new_tokens, "stopped", o->stopped, "prefill_s",
                          o->prefill_s, "decode_s", o->decode_s);
    json_dumpf(j, o->cli->out, JSON_INDENT(2));
    fputc('\n', o->cli->out);
    json_decref(j);
}

/* Longer texts than any model's context are a slip of the fingers. */
enum { MOST_TOKENS = 1 << 24 };

static gw_status read_sampling(gw_cli *cli, gw_sampling *how) {
    int64_t limit = gw_cli_int(cli, "max-tokens", 128), seed = gw_cli_int(cli, "seed", 0);
    *how = (gw_sampling){.temperature = gw_cli_double(cli, "temperature", 0.8),
                         .top_k = gw_cli_int(cli, "top-k", 0),
                         .top_p = gw_cli_double(cli, "top-p", 0.95),
                         .seed = (uint64_t)seed};
    if (limit < 1 || limit > MOST_TOKENS)
        return gw_cli_usage_error(cli, "--max-tokens is %lld; it must be from 1 to %d",
                                  (long long)limit, (int)MOST_TOKENS);
    if (how->temperature < 0)
        return gw_cli_usage_error(cli, "--temperature is %g; it must be at least 0",
                                  how->temperature);
    if (how->top_k < 0)
        return gw_cli_usage_error(cli, "--top-k is %lld; it must be at least 0",
                                  (long long)how->top_k);
    if (how->top_p <= 0 || how->top_p > 1)
        return gw_cli_usage_error(cli, "--top-p is %g; it must be above 0, at most 1", how->top_p);
    if (seed < 0)
        return gw_cli_usage_error(cli, "--seed is %lld; it must be at least 0", (long long)seed);
    return GW_OK;
}

/* The planner's advice speaks of training; what helps here is a shorter text. */
static void hint_memory(gw_cli *cli, gw_status st) {
    if (st == GW_ERR_MEMORY && cli->diags->last)
        gw_diag_hint(cli->diags, cli->diags->last,
                     "a smaller --max-tokens or a shorter prompt needs less");
}

static gw_status generate(gw_cli *cli, gw_session *s, const gw_str *prompt, gw_sampling how) {
    int64_t limit = gw_cli_int(cli, "max-tokens", 128);
    gw_ids ids = {0};
    output o = {.cli = cli, .json = gw_cli_flag(cli, "json")};
    gw_generator *g = NULL;
    gw_status st = encode_prompt(cli, s->setup.tokenizer, prompt, &ids);
    int64_t context = ids.count + limit;
    if (s->setup.model.family == GW_FAMILY_GPT2 && context > s->setup.model.max_positions)
        context = s->setup.model.max_positions;
    if (st == GW_OK) {
        st = gw_generator_open(&g, &s->setup, s->x, context, cli->diags);
        hint_memory(cli, st);
    }
    int64_t t0 = gw_clock_ns();
    if (st == GW_OK) st = gw_generator_feed(g, ids.items, ids.count, cli->diags);
    int64_t t1 = gw_clock_ns();
    o.prompt_tokens = ids.count;
    if (st == GW_OK && !o.json) fwrite(gw_str_c(prompt), 1, prompt->len, cli->out);
    if (st == GW_OK) st = continue_text(&o, g, &s->setup, how, limit);
    o.prefill_s = (double)(t1 - t0) * 1e-9;
    o.decode_s = (double)(gw_clock_ns() - t1) * 1e-9;
    if (st == GW_OK) report(&o);
    gw_str_release(&o.text);
    gw_generator_free(g);
    gw_ids_release(&ids);
    return st;
}

static gw_status run(gw_cli *cli) {
    gw_runfile rf;
    gw_session s;
    gw_str prompt = {0};
    gw_sampling how;
    gw_status st = read_sampling(cli, &how);
    if (st == GW_OK) st = read_prompt(cli, &prompt);
    if (st == GW_OK) {
        gw_source_options o = {.compute = gw_cli_string(cli, "compute", NULL),
                               .tokenizer = gw_cli_string(cli, "tokenizer", NULL),
                               .need_tokenizer = true};
        st = gw_cli_open_source(cli, cli->args[0], &o, &rf, &s);
        if (st == GW_OK) st = generate(cli, &s, &prompt, how);
        gw_session_close(&s);
        gw_runfile_release(&rf);
    }
    gw_str_release(&prompt);
    return st;
}

const gw_command gw_cmd_generate = {
    .name = "generate",
    .summary = "continue a text with a trained or public model",
    .usage = {"RUN_DIR|HF_DIR|FILE.gguf [--prompt TEXT] [--max-tokens N]"},
    .description = "Reads the newest checkpoint of a run, or a public model's weights.",
    .options = options,
    .noptions = GW_COUNT(options),
    .min_args = 1,
    .max_args = 1,
    .completes = GW_COMPLETE_FILE,
    .example = "gradwright generate runs/quickstart --prompt \"In the beginning\"",
    .run = run,
};
