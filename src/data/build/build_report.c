// SPDX-License-Identifier: Apache-2.0
// What a build has come to: manifest.json, report.json, report.md, report.html.
//
// The manifest says what the shards are: documents and bytes at each boundary of the pipeline,
// files, tokenizer, options. It depends on inputs and options alone, so two builds can be compared
// by it. The report adds what depends on the machine (CPU seconds by stage) and what it comes to at
// fifteen trillion tokens, and shows documents that each filter removed, chosen by a hash of their
// ids and the seed.
//
// Everything comes from the footers of the units' files, so a build that was continued reports the
// same as one that ran through.
#include <math.h>
#include <string.h>

#include "base/log.h"               /* gw_log_warn */
#include "data/build/build_impl.h"  /* gw_databuild */
#include "data/build/report_impl.h" /* gw_build_sums */
#include "file/json.h"              /* gw_json_write_file */

// ------------------------------------------------------------------ adding up

static int64_t number(const json_t *o, const char *key) {
    return json_integer_value(json_object_get(o, key));
}

static void add_time(gw_build_sums *s, const json_t *meta) {
    const json_t *t = json_object_get(meta, "time"), *stages = json_object_get(t, "stages");
    s->cpu += json_number_value(json_object_get(t, "cpu"));
    for (int i = 0; i < GW_STAGE_COUNT; i++)
        s->stage[i] += json_number_value(json_object_get(stages, gw_stage_name((gw_stage)i)));
}

static void add_docs(gw_build_sums *s, const json_t *m) {
    s->bytes_in += number(m, "bytes_in");
    s->documents += number(m, "documents");
    s->html += number(m, "html");
    s->raw_bytes += number(m, "raw_bytes");
    s->texts += number(m, "texts");
    s->text_bytes += number(m, "text_bytes");
    s->bad_bytes += number(m, "bad_bytes");
    s->cut_pages += number(m, "cut_pages");
    s->damages += number(m, "damages");
    const json_t *files = json_object_get(m, "files");
    for (size_t i = 0; i < json_array_size(files); i++) {
        const json_t *f = json_array_get(files, i);
        s->records += number(f, "records");
        s->not_page += number(f, "not_page");
        s->other_type += number(f, "other_type");
        s->too_long += number(f, "too_long");
        s->undecoded += number(f, "undecoded");
        s->digests_bad += number(f, "digests_bad");
        if (number(f, "damages")) json_array_append(s->damaged, json_array_get(files, i));
    }
    add_time(s, m);
}

static void add_keep(gw_build_sums *s, const gw_databuild *b, const json_t *m) {
    const json_t *v = json_object_get(m, "verdicts"), *filters = json_object_get(v, "filters");
    s->kept += number(v, "kept");
    s->kept_bytes += number(v, "kept_bytes");
    s->empty += number(v, "empty");
    for (int f = 0; f < gw_filters_count(b->filters); f++) {
        const json_t *reasons = json_array_get(filters, (size_t)f);
        for (size_t r = 0; r < json_array_size(reasons) && r < GW_MOST_REASONS; r++)
            s->removed[f * GW_MOST_REASONS + (int)r] +=
                json_integer_value(json_array_get(reasons, r));
    }
    add_time(s, m);
}

static const char *const whys[GW_DEDUP_SEEN + 1] = {[GW_DEDUP_NEAR] = "near",
                                                    [GW_DEDUP_EXACT] = "exact",
                                                    [GW_DEDUP_INDEX] = "index",
                                                    [GW_DEDUP_SEEN] = "seen"};

static void add_toks(gw_build_sums *s, const json_t *m) {
    s->out_documents += number(m, "documents");
    s->out_bytes += number(m, "text_bytes");
    s->tokens += number(m, "tokens");
    s->cut_bytes += number(m, "cut_bytes");
    s->emptied += number(m, "emptied");
    for (int w = 0; w <= GW_DEDUP_SEEN; w++)
        s->gone[w] += number(json_object_get(m, "removed"), whys[w]);
    for (int k = 0; k < GW_CUTS; k++) {
        const json_t *c = json_object_get(json_object_get(m, "cut"), gw_cut_names[k]);
        s->cut_ranges[k] += number(c, "ranges");
        s->cut_by[k] += number(c, "bytes");
    }
    s->specials += number(m, "specials");
    for (int k = 0; k < GW_PII_KINDS; k++)
        s->pii[k] += number(json_object_get(m, "pii"), gw_pii_kind_name((gw_pii_kind)k));
    add_time(s, m);
}

static gw_status add_unit(gw_build_sums *s, const gw_databuild *b, int64_t unit, gw_diags *dg) {
    for (int k = GW_UNIT_DOCS; k <= GW_UNIT_TOKS; k++) {
        gw_columns *c;
        GW_TRY(gw_build_open_unit(b, (gw_unit_kind)k, unit, &c, dg));
        const json_t *m = gw_columns_meta(c);
        if (k == GW_UNIT_DOCS) add_docs(s, m);
        if (k == GW_UNIT_KEEP) add_keep(s, b, m);
        if (k == GW_UNIT_TOKS) add_toks(s, m);
        gw_columns_close(c);
    }
    return GW_OK;
}

// ------------------------------------------------------------------ samples

typedef struct pick {
    uint64_t rank;
    int64_t unit, row;
    int reason;
} pick;

/* Keeps the `most` picks of smallest rank, in order. */
static void offer(pick *list, int64_t *n, int64_t most, pick p) {
    int64_t at = *n;
    if (most == 0 || (*n == most && p.rank >= list[*n - 1].rank)) return;
    if (*n < most) (*n)++;
    at = *n - 1;
    while (at > 0 && list[at - 1].rank > p.rank) {
        list[at] = list[at - 1];
        at--;
    }
    list[at] = p;
}

static gw_status pick_unit(const gw_databuild *b, int64_t unit, pick *lists, int64_t *counts,
                           gw_diags *dg) {
    gw_columns *keep;
    gw_column_data filter = {0}, reason = {0};
    int64_t row = 0, most = b->p->samples;
    GW_TRY(gw_build_open_unit(b, GW_UNIT_KEEP, unit, &keep, dg));
    gw_status st = GW_OK;
    for (int64_t k = 0; st == GW_OK && k < gw_columns_blocks(keep); k++) {
        st = gw_columns_read(keep, GW_KEEP_FILTER, k, &filter, dg);
        if (st == GW_OK) st = gw_columns_read(keep, GW_KEEP_REASON, k, &reason, dg);
        for (int64_t i = 0; st == GW_OK && i < filter.rows; i++, row++) {
            int f = filter.values[i];
            int64_t id[3] = {b->p->seed, unit, row};
            if (f == GW_VERDICT_KEPT || f == GW_VERDICT_EMPTY) continue;
            pick p = {gw_hash64(id, sizeof id, 0), unit, row, reason.values[i]};
            offer(lists + (f - 1) * most, &counts[f - 1], most, p);
        }
    }
    gw_column_data_release(&filter);
    gw_column_data_release(&reason);
    gw_columns_close(keep);
    return st;
}

static void show(gw_row_view *v, const gw_filter_desc *d, const pick *p, json_t *out) {
    json_t *o = json_pack("{s:s}", "reason", p->reason < d->nreasons ? d->reasons[p->reason] : "");
    json_array_append_new(out, o);
    gw_build_show_row(v, p->unit, p->row, o);
}

static json_t *filter_json(const gw_databuild *b, const gw_build_sums *s, int f) {
    const gw_filter_desc *d = gw_filters_desc(b->filters, f);
    json_t *reasons = json_object();
    int64_t removed = 0;
    for (int r = 0; r < d->nreasons && r < GW_MOST_REASONS; r++) {
        int64_t n = s->removed[f * GW_MOST_REASONS + r];
        removed += n;
        if (n) json_object_set_new(reasons, d->reasons[r], json_integer(n));
    }
    return json_pack("{s:s, s:I, s:o, s:[]}", "filter", d->name, "removed", (json_int_t)removed,
                     "reasons", reasons, "samples");
}

static gw_status filters_json(gw_row_view *v, const gw_build_sums *s, json_t *out, gw_diags *dg) {
    const gw_databuild *b = v->b;
    int n = gw_filters_count(b->filters);
    int64_t most = b->p->samples;
    pick *lists = gw_arena_new(b->arena, pick, n * most + 1);
    int64_t *counts = gw_arena_new(b->arena, int64_t, n + 1);
    for (int64_t u = 0; u < b->units.count && most; u++) GW_TRY(pick_unit(b, u, lists, counts, dg));
    for (int f = 0; f < n; f++) {
        json_t *o = filter_json(b, s, f);
        json_array_append_new(out, o);
        for (int64_t i = 0; i < counts[f]; i++)
            show(v, gw_filters_desc(b->filters, f), &lists[f * most + i],
                 json_object_get(o, "samples"));
    }
    return GW_OK;
}

// ------------------------------------------------------------------ manifest

static json_t *boundary(const char *name, int64_t documents, int64_t bytes) {
    return json_pack("{s:s, s:I, s:I}", "name", name, "documents", (json_int_t)documents, "bytes",
                     (json_int_t)bytes);
}

static int64_t shard_bytes(const json_t *shards, const char *format) {
    int64_t sum = 0;
    for (size_t i = 0; i < json_array_size(shards); i++) {
        const json_t *s = json_array_get(shards, i), *files = json_object_get(s, "files");
        if (!gw_str_eq(json_string_value(json_object_get(s, "format")), format)) continue;
        for (size_t k = 0; k < json_array_size(files); k++)
            sum += number(json_array_get(files, k), "bytes");
    }
    return sum;
}

static json_t *boundaries_json(const gw_databuild *b, const gw_build_sums *s,
                               const json_t *shards) {
    json_t *list = json_array();
    json_array_append_new(list, boundary("raw", s->records, s->bytes_in));
    json_array_append_new(list, boundary("pages", s->documents, s->raw_bytes));
    json_array_append_new(list, boundary("text", s->texts, s->text_bytes));
    json_array_append_new(list, boundary("kept", s->kept, s->kept_bytes));
    json_array_append_new(list, boundary("deduped", s->out_documents, s->out_bytes));
    if (!b->tokenizer) return list;
    json_t *tokens = boundary("tokens", s->out_documents, s->tokens * s->width);
    json_object_set_new(tokens, "tokens", json_integer(s->tokens));
    json_object_set_new(tokens, "special_texts", json_integer(s->specials));
    json_array_append_new(list, tokens);
    if (b->p->output.format & GW_FORMAT_MDS)
        json_array_append_new(list, boundary("mds", s->out_documents, shard_bytes(shards, "mds")));
    if (b->p->output.format & GW_FORMAT_MEGATRON)
        json_array_append_new(
            list, boundary("megatron", s->out_documents, shard_bytes(shards, "megatron")));
    return list;
}

static json_t *tokenizer_json(const gw_databuild *b, const gw_build_sums *s) {
    char hash[33];
    const gw_tokenizer *t = b->tokenizer;
    if (!t) return json_null();
    gw_hash128_hex(hash, gw_tokenizer_hash(t));
    return json_pack("{s:s, s:s, s:i, s:i, s:i, s:I}", "hash", hash, "description",
                     gw_tokenizer_describe(t), "vocab_size", (int)gw_tokenizer_vocab_size(t), "eos",
                     (int)gw_tokenizer_eos(t), "token_bytes", s->width, "unicode",
                     (json_int_t)gw_tokenizer_unicode(t));
}

static json_t *pii_json(const gw_build_sums *s) {
    json_t *o = json_object();
    for (int k = 0; k < GW_PII_KINDS; k++)
        json_object_set_new(o, gw_pii_kind_name((gw_pii_kind)k), json_integer(s->pii[k]));
    return o;
}

static json_t *cuts_json(const gw_databuild *b, const gw_build_sums *s) {
    json_t *o = json_object();
    for (int k = 0; k < GW_CUTS; k++) {
        bool asked = k < GW_SPAN_KINDS        ? b->spans[k] != NULL
                     : k == GW_CUT_SUBSTRINGS ? b->p->dedup.substring > 0
                                              : b->seen_spans != NULL;
        if (asked)
            json_object_set_new(o, gw_cut_names[k],
                                json_pack("{s:I, s:I}", "ranges", (json_int_t)s->cut_ranges[k],
                                          "bytes", (json_int_t)s->cut_by[k]));
    }
    return o;
}

/* The Bloom filter as it is at the end; null where there is none. */
static json_t *bloom_json(const gw_databuild *b, gw_diags *dg) {
    gw_dedup_result *r = NULL;
    if (b->p->dedup.bloom == GW_BLOOM_NONE || gw_bloom_pass_result(&b->bloom, &r, dg) != GW_OK)
        return json_null();
    gw_bloom_pass_totals t = gw_bloom_pass_of(&b->bloom, r);
    gw_dedup_result_free(r);
    return json_pack("{s:I, s:I, s:I, s:I, s:b, s:I, s:i, s:f}", "asked", (json_int_t)t.asked,
                     "new", (json_int_t)t.new_keys, "held", (json_int_t)t.held, "expected",
                     (json_int_t)t.expected, "overfull", (int)(t.held > t.expected), "bits",
                     (json_int_t)t.bits, "hashes", t.hashes, "false_alarms", t.rate);
}

/* A filter with more keys than it is for takes away more of what is new than was agreed to. */
static void warn_overfull(const gw_databuild *b, const json_t *bloom) {
    char held[32], expected[32];
    if (!json_is_true(json_object_get(bloom, "overfull"))) return;
    gw_log_warn("the Bloom filter is for %s keys and holds %s: of what is new, %.2g are false "
                "alarms at its end; %s",
                gw_fmt_count(expected, json_integer_value(json_object_get(bloom, "expected"))),
                gw_fmt_count(held, json_integer_value(json_object_get(bloom, "held"))),
                json_real_value(json_object_get(bloom, "false_alarms")),
                b->bloom.in ? "dedup.bloom_in should be one for more keys"
                            : "set dedup.bloom_keys to what comes");
}

static json_t *dedup_json(gw_databuild *b, const gw_build_sums *s, gw_diags *dg) {
    int64_t removed = 0;
    json_t *o = json_object();
    gw_dedup_result *r = NULL;
    for (int w = 0; w <= GW_DEDUP_SEEN; w++) removed += s->gone[w];
    json_object_set_new(o, "removed", json_integer(removed));
    json_object_set_new(o, "cut_bytes", json_integer(s->cut_bytes));
    json_object_set_new(o, "emptied", json_integer(s->emptied));
    for (int w = 0; w <= GW_DEDUP_SEEN; w++)
        json_object_set_new(o, whys[w], json_integer(s->gone[w]));
    json_object_set_new(o, "cut", cuts_json(b, s));
    json_object_set_new(o, "bloom", bloom_json(b, dg));
    if (!b->nkeys || gw_dedup_result_open(&b->docs_dedup, &r, dg) != GW_OK) return o;
    gw_dedup_totals t = gw_dedup_result_totals(r);
    json_object_set_new(o, "clusters", json_integer(t.clusters));
    json_object_set_new(o, "pairs", json_integer(t.pairs));
    gw_dedup_result_free(r);
    return o;
}

static json_t *options_json(const gw_databuild *b) {
    gw_str text = {0};
    gw_pipeline_text(b->p,
                     "input.kind input.text_key input.url_key input.date_key input.html "
                     "input.check_digests input.strict input.max_record_bytes extract. "
                     "language. filters dedup.exact dedup.near dedup.jaccard dedup.span "
                     "dedup.spans dedup.substring dedup.index_only dedup.bloom: dedup.bloom_keys "
                     "dedup.bloom_rate pii. tokenizer. output.format "
                     "output.shard_bytes output.megatron output.compression output.text "
                     "output.url keep_removed",
                     &text);
    json_t *o = gw_json_text_n(gw_str_c(&text), text.len);
    gw_str_release(&text);
    return o;
}

static json_t *units_json(const gw_databuild *b) {
    json_t *list = json_array();
    for (int64_t u = 0; u < b->units.count; u++)
        for (int64_t i = 0; i < b->units.items[u].nfiles; i++) {
            const gw_unit_file *f = &b->units.items[u].files[i];
            json_array_append_new(list,
                                  json_pack("{s:I, s:o, s:I}", "unit", (json_int_t)u, "path",
                                            gw_json_text(f->path), "bytes", (json_int_t)f->bytes));
        }
    return list;
}

static json_t *manifest_json(const gw_databuild *b, const gw_build_sums *s, const json_t *shards,
                             const json_t *dedup) {
    return json_pack("{s:s, s:i, s:o, s:o, s:s, s:s, s:o, s:O, s:o, s:o, s:O}", "format",
                     "gradwright-data", "version", 1, "boundaries", boundaries_json(b, s, shards),
                     "tokenizer", tokenizer_json(b, s), "filters", gw_filters_text(b->filters),
                     "language", b->langid ? gw_langid_version(b->langid) : "none", "options",
                     options_json(b), "dedup", dedup, "pii", pii_json(s), "inputs", units_json(b),
                     "shards", shards);
}

// ------------------------------------------------------------------ report

static json_t *stages_json(const gw_build_sums *s) {
    json_t *o = json_object();
    for (int i = 0; i < GW_STAGE_COUNT; i++)
        if (s->stage[i] > 0)
            json_object_set_new(o, gw_stage_name((gw_stage)i),
                                json_pack("{s:f, s:f}", "cpu_s", s->stage[i], "MB_per_s",
                                          (double)s->raw_bytes / 1e6 / s->stage[i]));
    return o;
}

static json_t *extrapolated(const gw_databuild *b, const gw_build_sums *s, double cpu) {
    if (!b->tokenizer || s->tokens == 0) return json_null();
    double k = b->p->report.tokens / (double)s->tokens, days = cpu * k / 86400;
    return json_pack("{s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:b}", "tokens", b->p->report.tokens,
                     "raw_bytes", (double)s->bytes_in * k, "page_bytes", (double)s->raw_bytes * k,
                     "text_bytes", (double)s->out_bytes * k, "token_bytes",
                     b->p->report.tokens * s->width, "core_days", days, "dollars",
                     days * 24 * b->p->report.core_hour_price, "cores_for_two_weeks",
                     ceil(days / 14), "two_byte_ids", s->width == 2);
}

static json_t *input_json(const gw_build_sums *s) {
    return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:O}", "not_page",
                     (json_int_t)s->not_page, "other_type", (json_int_t)s->other_type, "too_long",
                     (json_int_t)s->too_long, "undecoded", (json_int_t)s->undecoded, "digests_bad",
                     (json_int_t)s->digests_bad, "empty", (json_int_t)s->empty, "bad_bytes",
                     (json_int_t)s->bad_bytes, "cut_pages", (json_int_t)s->cut_pages, "damages",
                     (json_int_t)s->damages, "damaged_files", s->damaged);
}

static json_t *report_json(const gw_databuild *b, const gw_build_sums *s, const json_t *shards,
                           json_t *filters, json_t *dedup, json_t *clusters, const double *phases) {
    static const char *const names[GW_PHASES] = {"map", "dedup", "emit", "shards"};
    json_t *times = json_object();
    double cpu = s->cpu + phases[GW_PHASE_DEDUP] + phases[GW_PHASE_SHARDS];
    for (int i = 0; i < GW_PHASES; i++) json_object_set_new(times, names[i], json_real(phases[i]));
    return json_pack("{s:o, s:O, s:O, s:O, s:o, s:o, s:o, s:o, s:f, s:f, s:o}", "boundaries",
                     boundaries_json(b, s, shards), "filters", filters, "dedup", dedup, "clusters",
                     clusters, "pii", pii_json(s), "input", input_json(s), "stages", stages_json(s),
                     "phases_cpu_s", times, "cpu_s", cpu, "page_MB_per_core_s",
                     cpu > 0 ? (double)s->raw_bytes / 1e6 / cpu : 0.0, "extrapolated",
                     extrapolated(b, s, cpu));
}

static gw_status write_all(gw_databuild *b, const json_t *manifest, const json_t *report,
                           gw_diags *dg) {
    gw_str text = {0};
    const char *dir = b->p->output.dir;
    gw_build_report_text(report, &text);
    gw_status st = gw_json_write_file(gw_path_join(b->arena, dir, "report.json"), report, 1, dg);
    if (st == GW_OK)
        st = gw_file_write_atomic(gw_path_join(b->arena, dir, "report.md"), gw_str_c(&text),
                                  (int64_t)text.len, dg);
    gw_str_clear(&text);
    gw_build_report_html(report, dir, &text);
    if (st == GW_OK)
        st = gw_file_write_atomic(gw_path_join(b->arena, dir, "report.html"), gw_str_c(&text),
                                  (int64_t)text.len, dg);
    if (st == GW_OK)
        st = gw_json_write_file(gw_path_join(b->arena, dir, "manifest.json"), manifest, 1, dg);
    gw_str_release(&text);
    return st;
}

gw_status gw_build_report(gw_databuild *b, json_t *shards, const double *phases, bool write,
                          json_t **report, gw_diags *dg) {
    gw_build_sums s = {.damaged = json_array()};
    json_t *filters = json_array(), *clusters = NULL;
    gw_row_view view = {.b = b};
    s.width = b->tokenizer ? gw_token_width(gw_tokenizer_vocab_size(b->tokenizer)) : 0;
    s.removed =
        gw_arena_new(b->arena, int64_t, (gw_filters_count(b->filters) + 1) * GW_MOST_REASONS);
    gw_status st = GW_OK;
    for (int64_t u = 0; u < b->units.count && st == GW_OK; u++) st = add_unit(&s, b, u, dg);
    if (st == GW_OK) st = filters_json(&view, &s, filters, dg);
    if (st == GW_OK) st = gw_build_clusters(b, &view, &clusters, dg);
    if (st == GW_OK) st = gw_row_view_read(&view, dg);
    gw_row_view_release(&view);
    if (st == GW_OK) {
        json_t *dedup = dedup_json(b, &s, dg);
        json_t *plain = json_deep_copy(dedup); /* a rate's last digits hang on the library */
        (void)json_object_del(json_object_get(plain, "bloom"), "false_alarms");
        json_t *manifest = manifest_json(b, &s, shards, plain);
        json_decref(plain);
        if (!clusters) clusters = json_null();
        *report = report_json(b, &s, shards, filters, dedup, clusters, phases);
        if (write) st = write_all(b, manifest, *report, dg);
        if (write) warn_overfull(b, json_object_get(dedup, "bloom"));
        json_decref(manifest);
        json_decref(dedup);
    }
    json_decref(clusters);
    json_decref(filters);
    json_decref(s.damaged);
    return st;
}
