// SPDX-License-Identifier: Apache-2.0
// Documents of one unit.
//
// Three readers stand behind one contract: records of a web archive (file/warc.h), lines of JSON
// (file/jsonl.h), and files of a folder in the order of their names. Each says of every record it
// meets whether it is a page; a page's bytes and charset are handed on undecoded, for extraction to
// decide what they mean.
//
// What must hold: a document's number is that of its record, so that it is the same whatever is
// delivered of the others; damage is listed with its place and never hides a document that is
// whole; the end of a damaged unit is an error, given once, after the last document.
#include "data/source.h" /* this module's contract */

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#include "base/arena.h"   /* gw_arena */
#include "base/io.h"      /* gw_path_is_dir, gw_io_fail */
#include "base/map.h"     /* GW_VEC */
#include "file/inflate.h" /* gw_inflate */
#include "file/jsonl.h"   /* gw_jsonl */
#include "file/warc.h"    /* gw_warc */

enum { RECORD_MAX_DEFAULT = 64 << 20, RATIO_DEFAULT = 1100, FOLDER_DEPTH = 64 };

struct gw_source {
    gw_source_options options;
    gw_arena arena; /* options' strings, names, damage */
    const char *path;
    gw_source_kind kind;
    gw_source_report report;
    gw_source_damage damaged[GW_SOURCE_DAMAGE_KEPT];
    bool ended;

    gw_warc *warc;
    gw_http_scratch http;
    char type[64], charset[64];

    gw_jsonl *jsonl;
    const char *keys[3];

    GW_VEC(char *) files; /* paths below `path`, sorted; one empty name for a single file */
    int64_t next_file;
    gw_inflate *file; /* the one that the document points into */
    const uint8_t *memory;
    int64_t memory_bytes;
};

gw_source_options gw_source_options_default(void) {
    return (gw_source_options){.text_key = "text",
                               .url_key = "url",
                               .date_key = "date",
                               .html_suffixes = "html htm xhtml",
                               .text_suffixes = "txt md text rst",
                               .check_digests = true,
                               .max_record_bytes = RECORD_MAX_DEFAULT,
                               .max_ratio = RATIO_DEFAULT};
}

const char *gw_source_kind_name(gw_source_kind kind) {
    static const char *const names[] = {"auto", "warc", "jsonl", "files"};
    return names[kind];
}

/* --- what is it ------------------------------------------------------------------------------- */

/* True if `suffix` (without its dot) is one of the words of `list`. */
static bool in_list(const char *list, const char *suffix, size_t n) {
    while (*list) {
        list += strspn(list, " ,");
        size_t len = strcspn(list, " ,");
        if (len == n && len && !strncasecmp(list, suffix, n)) return true;
        list += len;
    }
    return false;
}

/* The last suffix of a name, a compression's left out. "" without. */
static const char *suffix_of(const char *path, size_t *n) {
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    size_t len = strlen(name);
    if (len > 3 && !strcasecmp(name + len - 3, ".gz"))
        len -= 3;
    else if (len > 4 && !strcasecmp(name + len - 4, ".zst"))
        len -= 4;
    for (size_t i = len; i-- > 0;) {
        if (name[i] != '.') continue;
        *n = len - i - 1;
        return name + i + 1;
    }
    *n = 0;
    return "";
}

gw_source_kind gw_source_kind_of_name(const char *path) {
    gw_source_options o = gw_source_options_default();
    size_t n;
    const char *s = suffix_of(path, &n);
    if (in_list("warc wet wat", s, n)) return GW_SOURCE_WARC;
    if (in_list("jsonl ndjson json", s, n)) return GW_SOURCE_JSONL;
    if (in_list(o.html_suffixes, s, n) || in_list(o.text_suffixes, s, n)) return GW_SOURCE_FILES;
    return GW_SOURCE_AUTO;
}

static bool starts_with_case(const uint8_t *p, int64_t n, const char *what) {
    int64_t len = (int64_t)strlen(what);
    return n >= len && !strncasecmp((const char *)p, what, (size_t)len);
}

/* A page without a label: HTML if its first tag is one that only HTML begins with. */
static bool sniff_html(const uint8_t *p, int64_t n) {
    static const char *const starts[] = {
        "<!doctype html", "<html", "<head", "<body",  "<title", "<script", "<div", "<meta",
        "<table",         "<p>",   "<h1",   "<style", "<br",    "<a ",     "<!--"};
    if (n >= 3 && !memcmp(p, "\xef\xbb\xbf", 3)) p += 3, n -= 3;
    while (n > 0 && isspace(*p)) p++, n--;
    if (starts_with_case(p, n, "<?xml")) {
        int64_t look = GW_MIN(n, (int64_t)1024);
        return memmem(p, (size_t)look, "<html", 5) != NULL;
    }
    for (size_t i = 0; i < GW_COUNT(starts); i++)
        if (starts_with_case(p, n, starts[i])) return true;
    return false;
}

static bool looks_binary(const uint8_t *p, int64_t n) {
    n = GW_MIN(n, (int64_t)512);
    if (n >= 2 && ((p[0] == 0xff && p[1] == 0xfe) || (p[0] == 0xfe && p[1] == 0xff))) return false;
    for (int64_t i = 0; i < n; i++)
        if (p[i] < 9 || (p[i] > 13 && p[i] < 27)) return true;
    return false;
}

static gw_media media_of(const char *type, const uint8_t *p, int64_t n) {
    if (!strcmp(type, "text/html") || !strcmp(type, "application/xhtml+xml")) return GW_MEDIA_HTML;
    bool unsaid = !*type || !strcmp(type, "application/octet-stream") || !strcmp(type, "unknown") ||
                  !strncmp(type, "application/http", 16) || !strcmp(type, "application/xml") ||
                  !strcmp(type, "text/xml");
    bool text = !strncmp(type, "text/", 5) && strcmp(type, "text/xml") != 0 &&
                strcmp(type, "text/css") != 0 && strcmp(type, "text/javascript") != 0 &&
                strcmp(type, "text/csv") != 0 && strcmp(type, "text/calendar") != 0;
    if ((unsaid || text) && sniff_html(p, n)) return GW_MEDIA_HTML;
    if (looks_binary(p, n)) return GW_MEDIA_OTHER;
    return text || !*type ? GW_MEDIA_TEXT : GW_MEDIA_OTHER;
}

/* --- opening ---------------------------------------------------------------------------------- */

static const char *dup_or(gw_source *s, const char *given, const char *otherwise) {
    return gw_arena_strdup(&s->arena, given && *given ? given : otherwise);
}

static gw_source *new_source(const gw_source_options *options, const char *path) {
    gw_source *s = gw_mem_zalloc(sizeof *s);
    gw_source_options d = gw_source_options_default();
    s->options = options ? *options : d;
    gw_source_options *o = &s->options;
    o->text_key = dup_or(s, o->text_key, d.text_key);
    o->url_key = dup_or(s, o->url_key, d.url_key);
    o->date_key = dup_or(s, o->date_key, d.date_key);
    o->html_suffixes = dup_or(s, o->html_suffixes, d.html_suffixes);
    o->text_suffixes = dup_or(s, o->text_suffixes, d.text_suffixes);
    if (o->max_record_bytes <= 0) o->max_record_bytes = d.max_record_bytes;
    if (o->max_ratio <= 0) o->max_ratio = d.max_ratio;
    s->path = gw_arena_strdup(&s->arena, path);
    s->keys[0] = o->text_key;
    s->keys[1] = o->url_key;
    s->keys[2] = o->date_key;
    return s;
}

void gw_source_free(gw_source *s) {
    if (!s) return;
    gw_warc_free(s->warc);
    gw_http_scratch_release(&s->http);
    gw_jsonl_free(s->jsonl);
    gw_inflate_free(s->file);
    gw_vec_release(&s->files);
    gw_arena_release(&s->arena);
    gw_mem_free(s);
}

static gw_source_kind kind_of_bytes(const uint8_t *p, int64_t n) {
    if (n >= 5 && !memcmp(p, "WARC/", 5)) return GW_SOURCE_WARC;
    while (n > 0 && isspace(*p)) p++, n--;
    if (n > 1 && *p == '{') return GW_SOURCE_JSONL;
    if (n > 0 && (sniff_html(p, n) || !looks_binary(p, n))) return GW_SOURCE_FILES;
    return n == 0 ? GW_SOURCE_FILES : GW_SOURCE_AUTO;
}

static gw_status unknown_kind(const char *path, gw_diags *dg) {
    gw_fail_at(dg, GW_ERR_FORMAT, "source-input", (gw_where){.file = path},
               "neither a web archive, nor JSON lines, nor a page");
    if (dg)
        gw_diag_hint(dg, dg->last,
                     "say its kind (warc, jsonl or files) if it is one of these after all");
    return GW_ERR_FORMAT;
}

/* The kind, from the options, the name, or the first decoded bytes. */
static gw_status choose_kind(gw_source *s, gw_inflate *first, gw_diags *dg) {
    s->kind = s->options.kind;
    if (s->kind == GW_SOURCE_AUTO) s->kind = gw_source_kind_of_name(s->path);
    if (s->kind == GW_SOURCE_AUTO) {
        const uint8_t *p;
        int64_t n = gw_inflate_peek(first, 1024, &p);
        s->kind = kind_of_bytes(p, n);
    }
    return s->kind == GW_SOURCE_AUTO ? unknown_kind(s->path, dg) : GW_OK;
}

static int by_name(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Adds the files below DIR/below whose suffix is one of the options'. Links to folders are not
 * followed, so that no folder comes twice. */
static gw_status add_folder(gw_source *s, const char *below, int depth, gw_diags *dg) {
    const char *dir = *below ? gw_path_join(&s->arena, s->path, below) : s->path;
    DIR *d = opendir(dir);
    if (!d) return gw_io_fail(dg, "file-open", "open", dir, errno);
    for (struct dirent *e; (e = readdir(d)) != NULL;) {
        if (e->d_name[0] == '.') continue;
        char *name = *below ? gw_path_join(&s->arena, below, e->d_name)
                            : gw_arena_strdup(&s->arena, e->d_name);
        char *full = gw_path_join(&s->arena, s->path, name);
        struct stat st;
        size_t n;
        const char *suffix = suffix_of(name, &n);
        if (lstat(full, &st) == 0 && S_ISDIR(st.st_mode)) {
            gw_status status = depth < FOLDER_DEPTH ? add_folder(s, name, depth + 1, dg) : GW_OK;
            if (status != GW_OK) {
                closedir(d);
                return status;
            }
        } else if ((in_list(s->options.html_suffixes, suffix, n) ||
                    in_list(s->options.text_suffixes, suffix, n)) &&
                   stat(full, &st) == 0 && S_ISREG(st.st_mode)) {
            gw_vec_push(&s->files, name);
        }
    }
    closedir(d);
    return GW_OK;
}

static gw_status open_folder(gw_source *s, gw_diags *dg) {
    s->kind = GW_SOURCE_FILES;
    if (s->options.kind != GW_SOURCE_AUTO && s->options.kind != GW_SOURCE_FILES)
        return gw_fail_at(dg, GW_ERR_FORMAT, "source-input", (gw_where){.file = s->path},
                          "a folder, where one %s file is wanted",
                          gw_source_kind_name(s->options.kind));
    GW_TRY(add_folder(s, "", 0, dg));
    if (s->files.count)
        qsort(s->files.items, (size_t)s->files.count, sizeof *s->files.items, by_name);
    return GW_OK;
}

static gw_status open_file(gw_source *s, gw_diags *dg) {
    GW_TRY(gw_inflate_open(s->path, s->options.max_ratio, &s->file, dg));
    GW_TRY(choose_kind(s, s->file, dg));
    gw_warc_options w = {s->options.max_record_bytes, s->options.max_ratio,
                         s->options.check_digests};
    if (s->kind == GW_SOURCE_FILES) {
        gw_vec_push(&s->files, gw_arena_strdup(&s->arena, ""));
        return GW_OK;
    }
    gw_inflate_free(s->file);
    s->file = NULL;
    if (s->kind == GW_SOURCE_WARC) return gw_warc_open(&w, s->path, &s->warc, dg);
    return gw_jsonl_open(s->path, s->keys, 3, s->options.max_record_bytes, s->options.max_ratio,
                         &s->jsonl, dg);
}

gw_status gw_source_open(const gw_source_options *options, const char *path, gw_source **out,
                         gw_diags *dg) {
    gw_source *s = new_source(options, path);
    gw_status status = gw_path_is_dir(path) ? open_folder(s, dg) : open_file(s, dg);
    if (status != GW_OK) {
        gw_source_free(s);
        return status;
    }
    *out = s;
    return GW_OK;
}

gw_status gw_source_open_bytes(const gw_source_options *options, const void *bytes, int64_t n,
                               const char *name, gw_source **out, gw_diags *dg) {
    gw_source *s = new_source(options, name);
    s->memory = bytes;
    s->memory_bytes = n;
    s->file = gw_inflate_open_bytes(bytes, n, s->options.max_ratio);
    gw_status status = choose_kind(s, s->file, dg);
    if (status != GW_OK) {
        gw_source_free(s);
        return status;
    }
    gw_warc_options w = {s->options.max_record_bytes, s->options.max_ratio,
                         s->options.check_digests};
    if (s->kind == GW_SOURCE_FILES) {
        gw_vec_push(&s->files, gw_arena_strdup(&s->arena, ""));
    } else {
        gw_inflate_free(s->file);
        s->file = NULL;
        if (s->kind == GW_SOURCE_WARC)
            s->warc = gw_warc_open_bytes(&w, bytes, n);
        else
            s->jsonl = gw_jsonl_open_bytes(bytes, n, s->keys, 3, s->options.max_record_bytes,
                                           s->options.max_ratio);
    }
    *out = s;
    return GW_OK;
}

/* --- counting --------------------------------------------------------------------------------- */

static void add_damage(gw_source *s, int64_t offset, int64_t line, const char *why) {
    gw_source_report *r = &s->report;
    if (r->ndamaged < GW_SOURCE_DAMAGE_KEPT)
        s->damaged[r->ndamaged++] =
            (gw_source_damage){offset, line, gw_arena_strdup(&s->arena, why)};
    r->damages++;
}

/* The end of a unit that was damaged, or the first damage of a strict one. */
static gw_status damaged_end(gw_source *s, gw_diags *dg) {
    const gw_source_damage *d = &s->damaged[0];
    gw_where where = {.file = s->path, .line = (int)GW_MIN(d->line, (int64_t)INT32_MAX)};
    char more[64] = "";
    if (s->report.damages > 1)
        snprintf(more, sizeof more, "; %lld damaged places in all", (long long)s->report.damages);
    s->ended = true;
    if (d->offset < 0)
        gw_fail_at(dg, GW_ERR_FORMAT, "source-damaged", where, "%s%s", d->why, more);
    else
        gw_fail_at(dg, GW_ERR_FORMAT, "source-damaged", where, "damaged at byte %lld: %s%s",
                   (long long)d->offset, d->why, more);
    if (dg)
        gw_diag_hint(dg, dg->last,
                     "%lld whole documents were read; fetch the file again for the rest",
                     (long long)s->report.documents);
    return GW_ERR_FORMAT;
}

static void deliver(gw_source *s, gw_doc *doc, gw_media media, const uint8_t *p, int64_t n) {
    doc->media = media;
    doc->raw = p;
    doc->raw_bytes = n;
    s->report.documents++;
    s->report.raw_bytes += n;
}

static void empty_doc(const gw_source *s, gw_doc *doc) {
    uint32_t index = (uint32_t)(s->report.records - 1);
    doc->id = (gw_doc_id){s->options.unit, index};
    doc->url = doc->date = doc->charset = "";
    doc->language[0] = 0;
    doc->language_score = 0;
    gw_str_clear(&doc->text);
}

/* --- the three kinds -------------------------------------------------------------------------- */

/* True if the record is a page: then it is in `doc`. */
static bool page_of_record(gw_source *s, const gw_warc_record *rec, gw_doc *doc) {
    gw_source_report *r = &s->report;
    if (rec->digest == GW_DIGEST_GOOD) r->digests_good++;
    if (rec->digest == GW_DIGEST_BAD) r->digests_bad++;
    bool page = rec->type == GW_WARC_RESPONSE || rec->type == GW_WARC_RESOURCE ||
                rec->type == GW_WARC_CONVERSION;
    if (page && !rec->block)
        r->too_long++;
    else if (!page)
        r->not_page++;
    if (!page || !rec->block) return false;

    gw_http h = {
        .content_type = "", .charset = "", .body = rec->block, .body_bytes = rec->block_bytes};
    if (rec->type == GW_WARC_RESPONSE)
        gw_http_read(rec->block, rec->block_bytes, s->options.max_record_bytes, &s->http, &h);
    if (h.status == 0) {
        gw_http_content_type(rec->content_type, s->type, s->charset);
        h.content_type = s->type;
        h.charset = s->charset;
    }
    char identified[64], unused[64];
    gw_http_content_type(rec->identified_type, identified, unused);
    if (*identified && rec->type != GW_WARC_CONVERSION) h.content_type = identified;
    if ((h.status && (h.status < 200 || h.status > 299)) || h.body_bytes == 0) {
        r->not_page++;
        return false;
    }
    if (h.undecoded) r->undecoded++;
    if (h.undecoded && looks_binary(h.body, h.body_bytes)) return false;
    gw_media media = rec->type == GW_WARC_CONVERSION
                         ? GW_MEDIA_TEXT
                         : media_of(h.content_type, h.body, h.body_bytes);
    if (media == GW_MEDIA_OTHER) {
        r->other_type++;
        return false;
    }
    doc->url = rec->uri;
    doc->date = rec->date;
    doc->charset = rec->type == GW_WARC_CONVERSION && !*h.charset ? "utf-8" : h.charset;
    deliver(s, doc, media, h.body, h.body_bytes);
    return true;
}

static gw_status next_warc(gw_source *s, gw_doc *doc, bool *more, gw_diags *dg) {
    for (;;) {
        gw_warc_record rec;
        gw_warc_damage damage;
        gw_warc_step step = gw_warc_next(s->warc, &rec, &damage);
        const gw_inflate *stream = gw_warc_stream(s->warc);
        s->report.bytes_in = gw_inflate_bytes_in(stream);
        s->report.bytes_out = gw_inflate_bytes_out(stream);
        if (step == GW_WARC_END) return GW_OK;
        if (step == GW_WARC_DAMAGE) {
            add_damage(s, damage.offset, 0, damage.why);
            if (s->options.strict) return damaged_end(s, dg);
            continue;
        }
        s->report.records++;
        empty_doc(s, doc);
        if (!page_of_record(s, &rec, doc)) continue;
        *more = true;
        return GW_OK;
    }
}

static gw_status next_jsonl(gw_source *s, gw_doc *doc, bool *more, gw_diags *dg) {
    for (;;) {
        gw_jsonl_line line;
        gw_jsonl_step step = gw_jsonl_next(s->jsonl, &line);
        const gw_inflate *stream = gw_jsonl_stream(s->jsonl);
        s->report.bytes_in = gw_inflate_bytes_in(stream);
        s->report.bytes_out = gw_inflate_bytes_out(stream);
        if (step == GW_JSONL_END) return GW_OK;
        s->report.records = GW_MAX(s->report.records, line.number);
        if (step == GW_JSONL_LINE && !line.values[0].found) {
            line.why = gw_arena_printf(&s->arena, "no value under '%s'", s->options.text_key);
            step = GW_JSONL_BAD;
        }
        if (step == GW_JSONL_BAD) {
            if (line.too_long) s->report.too_long++;
            add_damage(s, line.offset, line.number, line.why);
            if (s->options.strict) return damaged_end(s, dg);
            continue;
        }
        empty_doc(s, doc);
        doc->url = line.values[1].text;
        doc->date = line.values[2].text;
        doc->charset = "utf-8";
        deliver(s, doc, s->options.html ? GW_MEDIA_HTML : GW_MEDIA_TEXT,
                (const uint8_t *)line.values[0].text, line.values[0].bytes);
        *more = true;
        return GW_OK;
    }
}

/* Opens the next file of the folder, or takes the one that is open already. */
static bool open_next(gw_source *s, const char *name) {
    if (!*name) return true;
    gw_inflate_free(s->file);
    s->file = NULL;
    gw_diags unread;
    gw_diags_init(&unread);
    gw_status status = gw_inflate_open(gw_path_join(&s->arena, s->path, name), s->options.max_ratio,
                                       &s->file, &unread);
    if (status != GW_OK)
        add_damage(s, -1, 0,
                   gw_arena_printf(&s->arena, "%s: %s", name, gw_diags_first_error(&unread)));
    gw_diags_release(&unread);
    return status == GW_OK;
}

static gw_status next_file(gw_source *s, gw_doc *doc, bool *more, gw_diags *dg) {
    while (s->next_file < s->files.count) {
        const char *name = s->files.items[s->next_file++];
        s->report.records++;
        bool open = open_next(s, name);
        if (!open && s->options.strict) return damaged_end(s, dg);
        if (!open) continue;
        const char *slash = strrchr(s->path, '/'), *suffix;
        if (!*name) name = slash ? slash + 1 : s->path;
        const uint8_t *p;
        int64_t n = gw_inflate_peek(s->file, s->options.max_record_bytes + 1, &p), offset = 0;
        s->report.bytes_in += gw_inflate_bytes_in(s->file);
        s->report.bytes_out += n;
        const char *broken = gw_inflate_break_ahead(s->file, &offset);
        if (broken) {
            add_damage(s, s->files.count > 1 ? -1 : offset, 0,
                       gw_arena_printf(&s->arena, "%s: %s", name, broken));
            if (s->options.strict) return damaged_end(s, dg);
            continue;
        }
        if (n > s->options.max_record_bytes) {
            s->report.too_long++;
            continue;
        }
        size_t len;
        suffix = suffix_of(name, &len);
        bool html = in_list(s->options.html_suffixes, suffix, len);
        gw_media media = html ? GW_MEDIA_HTML : media_of("text/plain", p, n);
        if (media == GW_MEDIA_OTHER) {
            s->report.other_type++;
            continue;
        }
        empty_doc(s, doc);
        doc->url = name;
        deliver(s, doc, media, p, n);
        *more = true;
        return GW_OK;
    }
    return GW_OK;
}

gw_status gw_source_next(gw_source *s, gw_doc *doc, bool *more, gw_diags *dg) {
    *more = false;
    if (s->ended) return GW_OK;
    gw_status status = s->kind == GW_SOURCE_WARC    ? next_warc(s, doc, more, dg)
                       : s->kind == GW_SOURCE_JSONL ? next_jsonl(s, doc, more, dg)
                                                    : next_file(s, doc, more, dg);
    if (status != GW_OK || *more) return status;
    s->ended = true;
    return s->report.damages ? damaged_end(s, dg) : GW_OK;
}

gw_source_report gw_source_get_report(const gw_source *s) {
    gw_source_report r = s->report;
    r.damaged = s->damaged;
    return r;
}
