// SPDX-License-Identifier: Apache-2.0
// `gradwright tokenizer`: train a vocabulary, turn text into ids and back, make token data sets.
//
// One command with four verbs, since all of them are about one thing and share most options.
// `encode` has two outputs: ids for people and pipes, and with --out the token files that training
// reads, where text is cut into documents and each ends with the end-of-text token. Text that
// spells a special token is text unless --specials says otherwise.
#include <jansson.h> /* json_pack */
#include <stdio.h>   /* fread */
#include <string.h>  /* strcmp */

#include "base/clock.h"     /* gw_clock_ns */
#include "base/io.h"        /* gw_file_read */
#include "base/log.h"       /* gw_log_warn */
#include "base/map.h"       /* gw_vec_push */
#include "base/output.h"    /* gw_output_write */
#include "base/str.h"       /* gw_str, gw_fmt_count */
#include "base/term.h"      /* gw_table */
#include "cli/command.h"    /* gw_command */
#include "cli/runarg.h"     /* gw_cli_need_path */
#include "data/bpe_train.h" /* gw_bpe_train */
#include "data/tokenizer.h" /* gw_tokenizer */
#include "data/tokens.h"    /* gw_tokens_build */
#include "data/unicode.h"   /* gw_utf8_repair */

/* The last LESS_USED are only named by --help. */
enum { LESS_USED = 5 };
static const gw_option options[] = {
    {"out", 'o', "FILE", "train, decode: FILE; encode: PREFIX of .bin, .idx", GW_OPT_STRING, NULL},
    {"vocab-size", 'n', "N", "train: tokens in all (default 8192)", GW_OPT_INT, NULL},
    {"split", 0, "PATTERN", "how words are split (train, .tiktoken)", GW_OPT_STRING,
     "llama3 gpt2 qwen2 cl100k o200k"},
    {"documents", 'd', "RULE", "encode: what ends a document (blank: 2 empty lines)", GW_OPT_STRING,
     "blank file line jsonl"},
    {"specials", 0, NULL, "encode: text of special tokens becomes their ids", GW_OPT_FLAG, NULL},
    GW_OPTION_JSON,
    {"no-eos", 0, NULL, "encode --out: no end-of-text after documents", GW_OPT_FLAG, NULL},
    {"json-key", 0, "KEY", "encode jsonl: the member with the text", GW_OPT_STRING, NULL},
    {"unicode", 0, "N", "tables that split text: 13 to 17 (default 16)", GW_OPT_INT, NULL},
    {"memory", 0, "SIZE", "train: what counting words may take (default 4GB)", GW_OPT_STRING, NULL},
    {"threads", 0, "N", "train, encode: threads (default: one a core)", GW_OPT_INT, NULL},
};

static double seconds_since(int64_t ns) { return (double)(gw_clock_ns() - ns) * 1e-9; }

/* Texts that were typed are there ("-" is standard input). */
static gw_status need_paths(gw_cli *cli, int n, const char *const *paths) {
    gw_status st = GW_OK;
    for (int i = 0; i < n; i++)
        if (strcmp(paths[i], "-") != 0 && gw_cli_need_path(cli, paths[i]) != GW_OK)
            st = GW_ERR_USAGE;
    return st;
}

static gw_status threads_of(gw_cli *cli, int *out) {
    int64_t n = gw_cli_int(cli, "threads", 0);
    if (n < 0 || n > 1024 || (n == 0 && gw_cli_given(cli, "threads")))
        return gw_cli_usage_error(cli, "--threads is %lld; it must be from 1 to 1024",
                                  (long long)n);
    *out = (int)n;
    return GW_OK;
}

// ------------------------------------------------------------------ train

static gw_status run_train(gw_cli *cli, int n, const char *const *paths) {
    const char *out = gw_cli_string(cli, "out", NULL);
    if (!out) return gw_cli_usage_error(cli, "train needs --out FILE for the tokenizer.json");
    if (n < 1) return gw_cli_usage_error(cli, "train needs at least one text file");
    int64_t size = gw_cli_int(cli, "vocab-size", 8192), start = gw_clock_ns();
    if (size < 257 || size > INT32_MAX)
        return gw_cli_usage_error(cli, "--vocab-size is %lld; it must be from 257 to %d",
                                  (long long)size, (int)INT32_MAX);
    GW_TRY(need_paths(cli, n, paths));
    gw_bpe_train_options o = {.vocab_size = (int32_t)size,
                              .pattern = gw_cli_string(cli, "split", NULL)};
    GW_TRY(threads_of(cli, &o.threads));
    const char *memory = gw_cli_string(cli, "memory", NULL);
    if (memory && (!gw_parse_bytes(memory, &o.memory) || o.memory < 1 << 20))
        return gw_cli_usage_error(cli, "--memory is '%s'; it must be a size of at least 1MiB",
                                  memory);
    gw_bpe_train_report r;
    gw_str json = {0};
    gw_status st = gw_bpe_train(paths, n, &o, &json, &r, cli->diags);
    if (st == GW_OK)
        st = gw_output_write(out, cli->out, gw_str_c(&json), (int64_t)json.len, cli->diags);
    gw_str_release(&json);
    if (st != GW_OK) return st;
    bool standard = gw_output_is_standard(out);
    if (gw_cli_flag(cli, "json") && !standard) {
        fprintf(cli->out,
                "{\"vocab_size\": %d, \"merges\": %d, \"words\": %lld, \"distinct_words\": %lld, "
                "\"rarest_word\": %lld, \"spilled_bytes\": %lld, \"text_bytes\": %lld}\n",
                (int)r.vocab_size, (int)r.merges, (long long)r.words, (long long)r.distinct_words,
                (long long)r.rarest_word, (long long)r.spilled_bytes, (long long)r.text_bytes);
        return GW_OK;
    }
    char bytes[32], words[32];
    if (!cli->quiet && !standard)
        fprintf(cli->out, "%s: %d tokens, from %s of text with %s distinct words, in %.2f s\n", out,
                (int)r.vocab_size, gw_fmt_bytes(bytes, r.text_bytes),
                gw_fmt_count(words, r.distinct_words), seconds_since(start));
    if (r.rarest_word > 1)
        gw_log_warn("words that occur less than %lld times were left out, as --memory is small",
                    (long long)r.rarest_word);
    if (r.vocab_size < size)
        gw_log_warn("the text has pairs for %d tokens only, not %lld", (int)r.vocab_size,
                    (long long)size);
    return GW_OK;
}

// ------------------------------------------------------------------ encode

static gw_doc_rule rule_of(const gw_cli *cli) {
    const char *name = gw_cli_string(cli, "documents", "blank");
    return !strcmp(name, "file")    ? GW_DOC_FILE
           : !strcmp(name, "line")  ? GW_DOC_LINE
           : !strcmp(name, "jsonl") ? GW_DOC_JSONL
                                    : GW_DOC_BLANK;
}

static gw_status build_set(gw_cli *cli, const gw_tokenizer *t, int n, const char *const *paths) {
    const char *out = gw_cli_string(cli, "out", NULL);
    if (n < 1) return gw_cli_usage_error(cli, "encode --out needs at least one text file");
    gw_tokens_build_options o = {.rule = rule_of(cli),
                                 .json_key = gw_cli_string(cli, "json-key", NULL),
                                 .append_eos = !gw_cli_flag(cli, "no-eos"),
                                 .parse_specials = gw_cli_flag(cli, "specials")};
    gw_tokens_build_report r;
    int64_t start = gw_clock_ns();
    gw_status st = gw_tokens_build(paths, n, t, &o, out, &r, cli->diags);
    if (st != GW_OK) return st;
    char tokens[32], docs[32], bytes[32];
    if (gw_cli_flag(cli, "json"))
        fprintf(cli->out, "{\"tokens\": %lld, \"documents\": %lld, \"text_bytes\": %lld}\n",
                (long long)r.tokens, (long long)r.documents, (long long)r.text_bytes);
    else if (!cli->quiet)
        fprintf(cli->out, "%s.bin, .idx: %s tokens in %s documents, from %s of text, in %.2f s\n",
                out, gw_fmt_count(tokens, r.tokens), gw_fmt_count(docs, r.documents),
                gw_fmt_bytes(bytes, r.text_bytes), seconds_since(start));
    return GW_OK;
}

static gw_status read_stream(FILE *in, gw_str *out, gw_diags *dg) {
    char buf[1 << 16];
    size_t n;
    while ((n = fread(buf, 1, sizeof buf, in)) > 0) gw_str_add_n(out, buf, n);
    return ferror(in) ? GW_FAIL(dg, GW_ERR_IO, "file-read", "cannot read standard input") : GW_OK;
}

static gw_status read_texts(int n, const char *const *paths, gw_str *out, gw_diags *dg) {
    if (n == 0) return read_stream(stdin, out, dg);
    for (int i = 0; i < n; i++)
        GW_TRY(strcmp(paths[i], "-") ? gw_file_read(paths[i], 0, out, dg)
                                     : read_stream(stdin, out, dg));
    return GW_OK;
}

static void print_ids(const gw_cli *cli, const gw_ids *ids, int64_t specials) {
    bool json = gw_cli_flag(cli, "json");
    if (json) fputs("{\"ids\": [", cli->out);
    for (int64_t i = 0; i < ids->count; i++)
        fprintf(cli->out, "%s%d", i == 0 ? "" : json ? ", " : " ", (int)ids->items[i]);
    if (json)
        fprintf(cli->out, "], \"special_texts\": %lld}\n", (long long)specials);
    else
        fputc('\n', cli->out);
}

static gw_status run_encode(gw_cli *cli, const gw_tokenizer *t, int n, const char *const *paths) {
    GW_TRY(need_paths(cli, n, paths));
    if (gw_cli_given(cli, "out")) return build_set(cli, t, n, paths);
    gw_str text = {0};
    gw_ids ids = {0};
    int threads;
    GW_TRY(threads_of(cli, &threads));
    gw_status st = read_texts(n, paths, &text, cli->diags);
    gw_tok_report r = {0};
    if (st == GW_OK) {
        unsigned flags = gw_cli_flag(cli, "specials") ? GW_ENCODE_SPECIALS : 0;
        gw_tok_text whole = {gw_str_c(&text), text.len};
        int64_t end;
        st = gw_tokenizer_encode_batch(t, &whole, 1, flags, threads, &ids, &end, &r, cli->diags);
    }
    if (st == GW_OK) print_ids(cli, &ids, r.specials);
    if (st == GW_OK && r.specials && !gw_cli_flag(cli, "specials"))
        gw_log_warn("%lld texts of special tokens were encoded as text; --specials makes them ids",
                    (long long)r.specials);
    gw_ids_release(&ids);
    gw_str_release(&text);
    return st;
}

// ------------------------------------------------------------------ decode

static gw_status add_ids(gw_cli *cli, const char *words, gw_ids *ids) {
    gw_str one = {0};
    gw_status st = GW_OK;
    for (const char *p = words; *p && st == GW_OK;) {
        size_t n = strcspn(p, " \t\r\n,[]");
        int64_t id;
        gw_str_clear(&one);
        gw_str_add_n(&one, p, n);
        if (n && (!gw_parse_i64(gw_str_c(&one), &id) || id < 0 || id > INT32_MAX))
            st = gw_cli_usage_error(cli, "'%s' is not a token id", gw_str_c(&one));
        else if (n)
            gw_vec_push(ids, (int32_t)id);
        p += n + (p[n] != 0);
    }
    gw_str_release(&one);
    return st;
}

/* Bytes of text as JSON, which knows only UTF-8: what is not becomes U+FFFD, and that is said. */
static void print_text_json(const gw_cli *cli, const gw_str *text) {
    json_t *whole = json_stringn(text->data ? text->data : "", text->len);
    gw_str mended = {0};
    if (!whole) {
        gw_str_reserve(&mended, 3 * text->len);
        mended.len = gw_utf8_repair((const uint8_t *)text->data, text->len, (uint8_t *)mended.data);
        whole = json_stringn(gw_str_c(&mended), mended.len);
    }
    json_t *j = json_pack("{s:o, s:b}", "text", whole, "exact", mended.len == 0);
    json_dumpf(j, cli->out, 0);
    fputc('\n', cli->out);
    json_decref(j);
    gw_str_release(&mended);
}

static gw_status put_text(gw_cli *cli, const gw_str *text) {
    const char *out = gw_cli_string(cli, "out", NULL);
    if (out) return gw_output_write(out, cli->out, text->data, (int64_t)text->len, cli->diags);
    if (gw_cli_flag(cli, "json"))
        print_text_json(cli, text);
    else
        fwrite(gw_str_c(text), 1, text->len, cli->out);
    return GW_OK;
}

static gw_status run_decode(gw_cli *cli, const gw_tokenizer *t, int n, const char *const *words) {
    gw_ids ids = {0};
    gw_str text = {0};
    gw_status st = GW_OK;
    if (n == 0) {
        gw_str in = {0};
        st = read_stream(stdin, &in, cli->diags);
        if (st == GW_OK) st = add_ids(cli, gw_str_c(&in), &ids);
        gw_str_release(&in);
    }
    for (int i = 0; i < n && st == GW_OK; i++) st = add_ids(cli, words[i], &ids);
    if (st == GW_OK) st = gw_tokenizer_decode(t, ids.items, ids.count, false, &text, cli->diags);
    if (st == GW_OK) st = put_text(cli, &text);
    gw_ids_release(&ids);
    gw_str_release(&text);
    return st;
}

// ------------------------------------------------------------------ info

static const char *name_id(gw_arena *a, const gw_tokenizer *t, int32_t id) {
    size_t n;
    const uint8_t *b = gw_tokenizer_token_bytes(t, id, &n);
    return b ? gw_arena_printf(a, "%d  %.*s", (int)id, (int)n, (const char *)b) : "none";
}

static gw_status run_info(gw_cli *cli, const gw_tokenizer *t) {
    char hash[33], bytes[32], count[32];
    gw_hash128_hex(hash, gw_tokenizer_hash(t));
    if (gw_cli_flag(cli, "json")) {
        json_t *j = json_pack(
            "{s:s, s:i, s:i, s:i, s:i, s:s}", "description", gw_tokenizer_describe(t), "vocab_size",
            (int)gw_tokenizer_vocab_size(t), "bos", (int)gw_tokenizer_bos(t), "eos",
            (int)gw_tokenizer_eos(t), "unicode", gw_tokenizer_unicode(t), "hash", hash);
        json_dumpf(j, cli->out, 0);
        fputc('\n', cli->out);
        json_decref(j);
        return GW_OK;
    }
    gw_table *table = gw_table_new("ll");
    gw_table_row(table, "tokenizer", cli->args[1]);
    gw_table_row(table, "kind", gw_tokenizer_describe(t));
    gw_table_row(table, "vocabulary", gw_fmt_count(count, gw_tokenizer_vocab_size(t)));
    gw_table_row(table, "begins text", name_id(cli->arena, t, gw_tokenizer_bos(t)));
    gw_table_row(table, "ends text", name_id(cli->arena, t, gw_tokenizer_eos(t)));
    gw_table_row(table, "memory", gw_fmt_bytes(bytes, gw_tokenizer_bytes(t)));
    gw_table_row(table, "hash", hash);
    gw_table_print(table, cli->out, "");
    gw_table_free(table);
    return GW_OK;
}

// ------------------------------------------------------------------ the command

/* An option that the verb does not read would be ignored, and a result be taken for another. */
static gw_status check_options(gw_cli *cli, const char *verb) {
    static const struct {
        const char *option, *verbs;
    } readers[] = {{"out", "train encode decode"},
                   {"vocab-size", "train"},
                   {"split", "train encode decode info"},
                   {"unicode", "encode decode info"},
                   {"memory", "train"},
                   {"threads", "train encode"},
                   {"documents", "encode"},
                   {"json-key", "encode"},
                   {"no-eos", "encode"},
                   {"specials", "encode"}};
    for (size_t i = 0; i < GW_COUNT(readers); i++)
        if (gw_cli_given(cli, readers[i].option) && !strstr(readers[i].verbs, verb))
            return gw_cli_usage_error(cli, "%s does not read --%s", verb, readers[i].option);
    if (strcmp(verb, "decode") == 0 && gw_cli_given(cli, "out") && gw_cli_flag(cli, "json"))
        return gw_cli_usage_error(cli,
                                  "decode writes text with --out or JSON with --json, not both");
    if (strcmp(verb, "encode") != 0) return GW_OK;
    if (gw_cli_given(cli, "json-key") && rule_of(cli) != GW_DOC_JSONL)
        return gw_cli_usage_error(cli, "--json-key is read only with --documents jsonl");
    if (gw_cli_given(cli, "out")) return GW_OK;
    if (gw_cli_given(cli, "documents") || gw_cli_given(cli, "no-eos"))
        return gw_cli_usage_error(cli, "--%s is read only with --out: ids have no documents",
                                  gw_cli_given(cli, "documents") ? "documents" : "no-eos");
    return GW_OK;
}

static gw_status with_tokenizer(gw_cli *cli, const char *verb) {
    if (cli->nargs < 2) return gw_cli_usage_error(cli, "%s needs a tokenizer", verb);
    if (strcmp(cli->args[1], "bytes") != 0) GW_TRY(gw_cli_need_path(cli, cli->args[1]));
    int64_t unicode = gw_cli_int(cli, "unicode", 0);
    if (gw_cli_given(cli, "unicode") && (unicode < 13 || unicode > 17))
        return gw_cli_usage_error(cli, "--unicode is %lld; it must be from 13 to 17",
                                  (long long)unicode);
    gw_tokenizer_options o = {.pattern = gw_cli_string(cli, "split", NULL),
                              .unicode_version = (int)unicode};
    gw_tokenizer *t;
    gw_status st = gw_tokenizer_open(cli->args[1], &o, &t, cli->diags);
    if (st != GW_OK) return st;
    int n = cli->nargs - 2;
    const char *const *rest = cli->args + 2;
    if (!strcmp(verb, "encode"))
        st = run_encode(cli, t, n, rest);
    else if (!strcmp(verb, "decode"))
        st = run_decode(cli, t, n, rest);
    else
        st = n ? gw_cli_usage_error(cli, "info takes one tokenizer") : run_info(cli, t);
    gw_tokenizer_free(t);
    return st;
}

static gw_status run(gw_cli *cli) {
    const char *verb = cli->args[0];
    bool train = !strcmp(verb, "train");
    if (!train && strcmp(verb, "encode") && strcmp(verb, "decode") && strcmp(verb, "info"))
        return gw_cli_usage_error(cli, "'%s' is not one of train, encode, decode, info", verb);
    GW_TRY(check_options(cli, verb));
    return train ? run_train(cli, cli->nargs - 1, cli->args + 1) : with_tokenizer(cli, verb);
}

const gw_command gw_cmd_tokenizer = {
    .name = "tokenizer",
    .summary = "train a tokenizer, encode and decode, make token files",
    .usage = {"train TEXT... --out FILE [--vocab-size N]",
              "encode TOKENIZER [TEXT...] [--out PREFIX]", "decode TOKENIZER [ID...] [--out FILE]",
              "info TOKENIZER"},
    .description = "TOKENIZER is a tokenizer.json, a folder that holds one, a .tiktoken file, or\n"
                   "the word bytes. "
                   "Without TEXT or ID, standard input is read.",
    .options = options,
    .noptions = GW_COUNT(options),
    .named = LESS_USED,
    .min_args = 1,
    .max_args = -1,
    .completes = GW_COMPLETE_FILE,
    .example = "echo 'Hello, world' | gradwright tokenizer encode bytes",
    .run = run,
};
