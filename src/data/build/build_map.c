// SPDX-License-Identifier: Apache-2.0
// The map phase: a unit's documents from their bytes to text, signals, verdicts and keys, in one
// go.
//
// A document is extracted, its language found, measured and edited by the filters, judged, and (if
// it stays) signed, all while its text is in the cache. Two files come of it. The .docs file holds
// what is expensive and does not change with thresholds: text and signals of every document. The
// .keep file holds what follows from them cheaply: verdicts, and the keys by which equal and near
// documents are found. When only thresholds change, the second is made from the first
// (gw_build_decide).
//
// Damage inside an input is noted in the .docs file with its offset, and the documents around it
// are there; an input that cannot be read at all is an error of the unit.
#include <math.h>
#include <string.h>
#include <unistd.h>

#include "base/map.h"              /* GW_VEC */
#include "data/build/build_impl.h" /* gw_databuild */
#include "data/build/remote.h"     /* gw_remote_fetch */
#include "file/json.h"             /* gw_json_text */
#include "file/store.h"            /* gw_store_is_url */

typedef struct mapper {
    gw_databuild *b;
    int64_t unit;
    gw_arena arena;
    gw_columns_writer *docs, *keep;
    gw_verdicts verdicts;
    gw_stages time;
    gw_doc doc;
    json_t *files;
    int64_t documents, html, texts, raw_bytes, text_bytes, bytes_in, bytes_out;
    int64_t bad_bytes, cut_pages, damages;
    gw_diags *dg;
} mapper;

// ------------------------------------------------------------------ columns

static int docs_columns(const gw_databuild *b, gw_column *c) {
    static const gw_column fixed[GW_DOCS_SIGNALS] = {
        [GW_DOCS_FILE] = {"file", GW_COLUMN_U16, 1},
        [GW_DOCS_RECORD] = {"record", GW_COLUMN_U32, 1},
        [GW_DOCS_URL] = {"url", GW_COLUMN_BYTES, 1},
        [GW_DOCS_DATE] = {"date", GW_COLUMN_BYTES, 1},
        [GW_DOCS_MEDIA] = {"media", GW_COLUMN_U8, 1},
        [GW_DOCS_RAW_BYTES] = {"raw_bytes", GW_COLUMN_U32, 1},
        [GW_DOCS_LANGUAGE] = {"language", GW_COLUMN_BYTES, 1},
        [GW_DOCS_SCORE] = {"language_score", GW_COLUMN_F32, 1},
        [GW_DOCS_TEXT] = {"text", GW_COLUMN_BYTES, 1},
        [GW_DOCS_TEXT_BYTES] = {"text_bytes", GW_COLUMN_U32, 1}};
    memcpy(c, fixed, sizeof fixed);
    int n = gw_filters_columns(b->filters);
    for (int i = 0; i < n; i++)
        c[GW_DOCS_SIGNALS + i] =
            (gw_column){gw_filters_column_name(b->filters, i), GW_COLUMN_F64, 1};
    return GW_DOCS_SIGNALS + n;
}

static gw_status open_docs(mapper *m) {
    gw_column *c =
        gw_arena_new(&m->arena, gw_column, GW_DOCS_SIGNALS + gw_filters_columns(m->b->filters));
    int n = docs_columns(m->b, c);
    return gw_columns_writer_new(gw_build_unit_path(m->b, &m->arena, GW_UNIT_DOCS, m->unit), c, n,
                                 0, &m->docs, m->dg);
}

gw_status gw_build_keep_open(const gw_databuild *b, int64_t unit, gw_columns_writer **out,
                             gw_diags *dg) {
    gw_arena a;
    gw_arena_init(&a);
    const gw_column c[] = {{"filter", GW_COLUMN_U8, 1},
                           {"reason", GW_COLUMN_U8, 1},
                           {"keys", GW_COLUMN_U64, GW_MAX(1, 2 * b->nkeys)}};
    gw_status st = gw_columns_writer_new(gw_build_unit_path(b, &a, GW_UNIT_KEEP, unit), c,
                                         GW_COUNT(c), 0, out, dg);
    gw_arena_release(&a);
    return st;
}

gw_status gw_build_keep_put(const gw_databuild *b, gw_columns_writer *w, int filter, int reason,
                            const gw_hash128 *keys, gw_diags *dg) {
    static const gw_hash128 none[1];
    uint8_t f = (uint8_t)filter, r = (uint8_t)reason;
    gw_hash128 *zero = b->row_keys;
    gw_columns_put(w, GW_KEEP_FILTER, &f, 1);
    gw_columns_put(w, GW_KEEP_REASON, &r, 1);
    if (!keys && b->nkeys) memset(zero, 0, (size_t)b->nkeys * sizeof *zero);
    gw_columns_put(w, GW_KEEP_KEYS, b->nkeys == 0 ? none : keys ? keys : zero, 1);
    return gw_columns_end_row(w, dg);
}

const gw_hash128 *gw_build_row_keys(gw_databuild *b, const char *text, int64_t n) {
    int bands = b->minhash ? gw_minhash_recipe_of(b->minhash)->bands : 0;
    if (b->nkeys == 0) return b->row_keys;
    memset(b->row_keys, 0, (size_t)b->nkeys * sizeof *b->row_keys);
    if (b->minhash && gw_minhash_sign(b->minhash, text, n, b->signature))
        gw_minhash_keys(b->minhash, b->signature, b->row_keys);
    if (b->p->dedup.exact) b->row_keys[bands] = gw_dedup_text_key(text, n);
    return b->row_keys;
}

// ------------------------------------------------------------------ verdicts

void gw_verdicts_init(gw_verdicts *v, const gw_databuild *b, gw_arena *a) {
    *v = (gw_verdicts){0};
    v->removed = gw_arena_new(a, int64_t, (gw_filters_count(b->filters) + 1) * GW_MOST_REASONS);
}

void gw_verdicts_add(gw_verdicts *v, int filter, int reason, int64_t bytes) {
    if (filter == GW_VERDICT_KEPT) {
        v->kept++;
        v->kept_bytes += bytes;
    } else if (filter == GW_VERDICT_EMPTY) {
        v->empty++;
    } else {
        v->removed[(filter - 1) * GW_MOST_REASONS + GW_MIN(reason, GW_MOST_REASONS - 1)]++;
    }
}

json_t *gw_verdicts_json(const gw_verdicts *v, const gw_databuild *b) {
    json_t *filters = json_array();
    for (int f = 0; f < gw_filters_count(b->filters); f++) {
        const gw_filter_desc *d = gw_filters_desc(b->filters, f);
        json_t *reasons = json_array();
        for (int r = 0; r < d->nreasons && r < GW_MOST_REASONS; r++)
            json_array_append_new(reasons, json_integer(v->removed[f * GW_MOST_REASONS + r]));
        json_array_append_new(filters, reasons);
    }
    return json_pack("{s:I, s:I, s:I, s:o}", "kept", (json_int_t)v->kept, "kept_bytes",
                     (json_int_t)v->kept_bytes, "empty", (json_int_t)v->empty, "filters", filters);
}

gw_status gw_build_keep_finish(const gw_databuild *b, gw_columns_writer *w, gw_hash128 docs_content,
                               const gw_verdicts *v, const gw_stages *t, gw_diags *dg) {
    gw_build_key key = gw_build_keep_key(b, docs_content);
    char docs[33], keys[33];
    json_t *meta =
        json_pack("{s:s, s:s, s:s, s:o, s:o}", "key", key.text, "docs",
                  gw_hash128_hex(docs, docs_content), "keys", gw_hash128_hex(keys, b->keys_options),
                  "verdicts", gw_verdicts_json(v, b), "time", gw_stages_json(t));
    gw_status st = gw_columns_finish(w, meta, dg);
    json_decref(meta);
    return st;
}

// ------------------------------------------------------------------ a document

static gw_status put_docs(mapper *m, int file, bool empty, bool store_text) {
    gw_columns_writer *w = m->docs;
    const gw_doc *d = &m->doc;
    uint16_t f = (uint16_t)file;
    uint8_t media = (uint8_t)((unsigned)d->media | (empty ? 0x80u : 0u));
    uint32_t record = d->id.index, raw = (uint32_t)GW_MIN(d->raw_bytes, UINT32_MAX);
    uint32_t bytes = (uint32_t)d->text.len;
    gw_columns_put(w, GW_DOCS_FILE, &f, 1);
    gw_columns_put(w, GW_DOCS_RECORD, &record, 1);
    gw_columns_put(w, GW_DOCS_URL, d->url, (int64_t)strlen(d->url));
    gw_columns_put(w, GW_DOCS_DATE, d->date, (int64_t)strlen(d->date));
    gw_columns_put(w, GW_DOCS_MEDIA, &media, 1);
    gw_columns_put(w, GW_DOCS_RAW_BYTES, &raw, 1);
    gw_columns_put(w, GW_DOCS_LANGUAGE, d->language, (int64_t)strlen(d->language));
    gw_columns_put(w, GW_DOCS_SCORE, &d->language_score, 1);
    gw_columns_put(w, GW_DOCS_TEXT, gw_str_c(&d->text), store_text ? bytes : 0);
    gw_columns_put(w, GW_DOCS_TEXT_BYTES, &bytes, 1);
    for (int i = 0; i < gw_filters_columns(m->b->filters); i++)
        gw_columns_put(w, GW_DOCS_SIGNALS + i, &m->b->signals[i], 1);
    return gw_columns_end_row(w, m->dg);
}

static void find_text(mapper *m) {
    gw_databuild *b = m->b;
    gw_extract_info info = {0};
    gw_extract_doc(b->extract, &b->extract_options, &m->doc, &info);
    m->bad_bytes += info.bad_bytes;
    m->cut_pages += info.cut;
    m->text_bytes += (int64_t)m->doc.text.len;
    m->html += m->doc.media == GW_MEDIA_HTML;
    gw_stages_mark(&m->time, GW_STAGE_EXTRACT);
    m->doc.language[0] = 0;
    m->doc.language_score = 0;
    if (b->langid && m->doc.text.len)
        gw_langid_detect(b->langid, gw_str_c(&m->doc.text), (int64_t)m->doc.text.len,
                         m->doc.language, &m->doc.language_score);
    gw_stages_mark(&m->time, GW_STAGE_LANGUAGE);
}

static void judge(mapper *m, bool empty, int *filter, int *reason) {
    gw_databuild *b = m->b;
    *reason = 0;
    *filter = GW_VERDICT_EMPTY;
    for (int i = 0; empty && i < gw_filters_columns(b->filters); i++) b->signals[i] = (double)NAN;
    if (empty) return;
    gw_filter_facts facts = {m->doc.url, m->doc.language, m->doc.language_score};
    gw_verdict v = gw_filters_run(b->filters, &facts, &m->doc.text, b->signals);
    if (v.filter >= 0) {
        *filter = v.filter + 1;
        *reason = v.reason;
    } else if (m->doc.text.len) {
        *filter = GW_VERDICT_KEPT;
    }
    gw_stages_mark(&m->time, GW_STAGE_FILTERS);
}

static gw_status map_document(mapper *m, int file) {
    gw_databuild *b = m->b;
    int filter, reason;
    m->documents++;
    m->raw_bytes += m->doc.raw_bytes;
    find_text(m);
    bool empty = m->doc.text.len == 0;
    m->texts += !empty;
    judge(m, empty, &filter, &reason);
    bool kept = filter == GW_VERDICT_KEPT;
    gw_verdicts_add(&m->verdicts, filter, reason, (int64_t)m->doc.text.len);
    GW_TRY(put_docs(m, file, empty, kept || b->p->keep_removed));
    gw_stages_mark(&m->time, GW_STAGE_STORE);
    const gw_hash128 *keys =
        kept ? gw_build_row_keys(b, gw_str_c(&m->doc.text), (int64_t)m->doc.text.len) : NULL;
    gw_stages_mark(&m->time, GW_STAGE_MINHASH);
    GW_TRY(gw_build_keep_put(b, m->keep, filter, reason, keys, m->dg));
    gw_stages_mark(&m->time, GW_STAGE_STORE);
    return GW_OK;
}

// ------------------------------------------------------------------ a file

static json_t *file_report(const gw_unit_file *f, const gw_source_report *r) {
    json_t *damaged = json_array();
    for (int i = 0; i < r->ndamaged; i++)
        json_array_append_new(damaged, json_pack("{s:I, s:I, s:o}", "offset",
                                                 (json_int_t)r->damaged[i].offset, "line",
                                                 (json_int_t)r->damaged[i].line, "why",
                                                 gw_json_text(r->damaged[i].why)));
    return json_pack("{s:o, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:o}", "path",
                     gw_json_text(f->path), "bytes", (json_int_t)f->bytes, "records",
                     (json_int_t)r->records, "documents", (json_int_t)r->documents, "not_page",
                     (json_int_t)r->not_page, "other_type", (json_int_t)r->other_type, "too_long",
                     (json_int_t)r->too_long, "undecoded", (json_int_t)r->undecoded, "digests_good",
                     (json_int_t)r->digests_good, "digests_bad", (json_int_t)r->digests_bad,
                     "damages", (json_int_t)r->damages, "damaged", damaged);
}

static gw_status map_source(mapper *m, gw_source *s, int file) {
    gw_diags told;
    gw_status st = GW_OK;
    bool more = true;
    gw_diags_init(&told);
    while (st == GW_OK && more) {
        st = gw_source_next(s, &m->doc, &more, &told);
        gw_stages_mark(&m->time, GW_STAGE_SOURCE);
        if (st != GW_OK || !more) break;
        st = map_document(m, file);
        if (st != GW_OK) { /* its diagnostics are in m->dg */
            gw_diags_release(&told);
            return st;
        }
    }
    bool tolerated = st == GW_ERR_FORMAT && !m->b->p->input.strict;
    if (st != GW_OK && !tolerated) gw_diags_take(m->dg, &told);
    gw_diags_release(&told);
    return tolerated ? GW_OK : st;
}

static gw_status map_opened(mapper *m, int file, const char *path) {
    const gw_unit_file *f = &m->b->units.items[m->unit].files[file];
    gw_source_options o = m->b->source;
    gw_source *s = NULL;
    o.unit = (uint32_t)m->unit;
    GW_TRY(gw_source_open(&o, path, &s, m->dg));
    gw_status st = map_source(m, s, file);
    gw_source_report r = gw_source_get_report(s);
    m->bytes_in += f->bytes;
    m->bytes_out += r.bytes_out;
    m->damages += r.damages;
    json_array_append_new(m->files, file_report(f, &r));
    gw_source_free(s);
    return st;
}

/* An object behind a URL is copied beside the results and read there, under its own name, by which
 * its kind is known. */
static gw_status map_url(mapper *m, int file, const char *url) {
    const gw_unit_file *f = &m->b->units.items[m->unit].files[file];
    const char *dir = gw_arena_printf(&m->arena, "%s/fetch-%05lld", m->b->work, (long long)m->unit);
    const char *path = gw_path_join(&m->arena, dir, strrchr(url, '/') + 1);
    GW_TRY(gw_dir_make(dir, m->dg));
    gw_status st = gw_remote_fetch(url, f->bytes, path, m->dg);
    if (st == GW_OK) st = map_opened(m, file, path);
    unlink(path);
    rmdir(dir);
    return st;
}

static gw_status map_file(mapper *m, int file) {
    const char *path = m->b->units.items[m->unit].files[file].path;
    gw_status st = gw_store_is_url(path) ? map_url(m, file, path) : map_opened(m, file, path);
    if (st != GW_OK) gw_diag_frame(m->dg, "reading '%s'", path);
    return st;
}

// ------------------------------------------------------------------ a unit

static gw_status finish(mapper *m) {
    gw_hash128 content;
    gw_build_key key = gw_build_docs_key(m->b, m->unit);
    GW_TRY(gw_columns_writer_content(m->docs, &content, m->dg));
    gw_stages_mark(&m->time, GW_STAGE_STORE);
    gw_stages_end(&m->time);
    json_t *meta = json_pack(
        "{s:s, s:I, s:O, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:o}", "key", key.text,
        "unit", (json_int_t)m->unit, "files", m->files, "bytes_in", (json_int_t)m->bytes_in,
        "bytes_out", (json_int_t)m->bytes_out, "documents", (json_int_t)m->documents, "html",
        (json_int_t)m->html, "texts", (json_int_t)m->texts, "raw_bytes", (json_int_t)m->raw_bytes,
        "text_bytes", (json_int_t)m->text_bytes, "bad_bytes", (json_int_t)m->bad_bytes, "cut_pages",
        (json_int_t)m->cut_pages, "damages", (json_int_t)m->damages, "time",
        gw_stages_json(&m->time));
    gw_status st = gw_columns_finish(m->docs, meta, m->dg);
    json_decref(meta);
    gw_stages none = {0};
    if (st == GW_OK) st = gw_build_keep_finish(m->b, m->keep, content, &m->verdicts, &none, m->dg);
    return st;
}

static gw_status extract_unit(gw_databuild *b, int64_t unit, gw_diags *dg) {
    mapper m = {.b = b, .unit = unit, .dg = dg, .files = json_array()};
    gw_arena_init(&m.arena);
    gw_verdicts_init(&m.verdicts, b, &m.arena);
    gw_stages_begin(&m.time);
    gw_status st = open_docs(&m);
    if (st == GW_OK) st = gw_build_keep_open(b, unit, &m.keep, dg);
    for (int i = 0; i < b->units.items[unit].nfiles && st == GW_OK; i++) st = map_file(&m, i);
    if (st == GW_OK) st = finish(&m);
    gw_columns_writer_free(m.docs);
    gw_columns_writer_free(m.keep);
    gw_str_release(&m.doc.text);
    json_decref(m.files);
    gw_arena_release(&m.arena);
    return st;
}

static gw_status must_extract(gw_databuild *b, int64_t unit, gw_diags *dg, const char *why) {
    if (!b->o->from_columns) return extract_unit(b, unit, dg);
    gw_diag *g = gw_diag_add(dg, GW_ERROR, GW_ERR_CONFIG, "data-refilter",
                             (gw_where){.file = gw_build_unit_name(b, unit)},
                             "this cannot be filtered again from its columns: %s", why);
    gw_diag_hint(dg, g, "`gradwright data build` extracts it again");
    return GW_ERR_CONFIG;
}

gw_status gw_build_map_unit(void *build, void *state, int64_t unit, gw_diags *dg) {
    gw_databuild *b = build;
    gw_arena a;
    (void)state;
    gw_arena_init(&a);
    gw_build_key key = gw_build_docs_key(b, unit);
    gw_columns *docs = gw_build_open_if(gw_build_unit_path(b, &a, GW_UNIT_DOCS, unit), &key);
    bool need_text = false, there = docs != NULL;
    gw_status st = GW_OK;
    if (docs) {
        gw_build_key keep = gw_build_keep_key(b, gw_columns_content(docs));
        gw_columns *k = gw_build_open_if(gw_build_unit_path(b, &a, GW_UNIT_KEEP, unit), &keep);
        if (!k) st = gw_build_decide(b, unit, docs, &need_text, dg);
        gw_columns_close(k);
        gw_columns_close(docs);
    }
    gw_arena_release(&a);
    if (!there)
        return must_extract(b, unit, dg,
                            "what it depends on has changed, or it was not extracted yet");
    if (need_text) return must_extract(b, unit, dg, "the texts of removed documents were not kept");
    return st;
}
