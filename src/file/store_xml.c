// SPDX-License-Identifier: Apache-2.0
// The XML answers of S3, by libxml2.
//
// Only shape is taken from the library: elements and their text. Nothing is loaded, no entity
// beyond the five built-in ones is expanded, and a document with a DOCTYPE is refused, since S3
// sends none. Names are compared without their namespace, which some stores leave out.
//
// Keys may hold characters that XML cannot; lists are therefore asked for in URL escapes
// (encoding-type=url), and the answer says whether the store understood that.
#include "file/store_xml.h"

#include <libxml/parser.h>
#include <libxml/tree.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/map.h" /* GW_VEC */
#include "base/str.h" /* gw_parse_i64 */

/* --- trees ------------------------------------------------------------------------------------ */

static xmlDoc *parse(const char *text, size_t n) {
    if (n == 0 || n > INT_MAX) return NULL;
    xmlDoc *doc = xmlReadMemory(text, (int)n, "answer.xml", NULL,
                                XML_PARSE_NONET | XML_PARSE_NOERROR | XML_PARSE_NOWARNING |
                                    XML_PARSE_NOCDATA);
    if (doc && doc->intSubset) {
        xmlFreeDoc(doc);
        doc = NULL;
    }
    return doc;
}

static bool is_named(const xmlNode *e, const char *name) {
    return e->type == XML_ELEMENT_NODE && strcmp((const char *)e->name, name) == 0;
}

static const xmlNode *child(const xmlNode *parent, const char *name) {
    for (const xmlNode *e = parent->children; e; e = e->next)
        if (is_named(e, name)) return e;
    return NULL;
}

static const char *text_of(const xmlNode *e, gw_arena *a) {
    gw_str s = {0};
    for (const xmlNode *t = e->children; t; t = t->next)
        if (t->type == XML_TEXT_NODE || t->type == XML_CDATA_SECTION_NODE)
            gw_str_add(&s, (const char *)t->content);
    const char *copy = gw_arena_strdup(a, gw_str_c(&s));
    gw_str_release(&s);
    return copy;
}

/* "" where there is none. */
static const char *field(const xmlNode *parent, const char *name, gw_arena *a) {
    const xmlNode *e = child(parent, name);
    return e ? text_of(e, a) : "";
}

static int hex_digit(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
}

/* Undoes URL escapes ('+' is a space); NULL for an escaped NUL. */
static const char *unescape(const char *text, gw_arena *a) {
    char *out = gw_arena_strdup(a, text);
    size_t n = 0;
    for (const char *p = text; *p; p++) {
        int hi = *p == '%' ? hex_digit(p[1]) : -1, lo = hi >= 0 ? hex_digit(p[2]) : -1;
        char c = *p == '+' ? ' ' : *p;
        if (lo >= 0) {
            c = (char)(hi * 16 + lo);
            p += 2;
        }
        if (c == 0) return NULL;
        out[n++] = c;
    }
    out[n] = 0;
    return out;
}

double gw_s3_time(const char *text) {
    struct tm tm = {0};
    const char *end = strptime(text, "%Y-%m-%dT%H:%M:%S", &tm);
    if (!end) {
        memset(&tm, 0, sizeof tm);
        end = strptime(text, "%a, %d %b %Y %H:%M:%S", &tm);
    }
    return end ? (double)timegm(&tm) : 0;
}

/* --- lists ------------------------------------------------------------------------------------ */

typedef GW_VEC(gw_s3_object) object_list;

static bool add_object(const xmlNode *e, bool escaped, gw_arena *a, object_list *out,
                       const char **why) {
    bool folder = is_named(e, "CommonPrefixes");
    const char *key = field(e, folder ? "Prefix" : "Key", a);
    gw_s3_object o = {.is_folder = folder, .etag = ""};
    o.key = escaped ? unescape(key, a) : key;
    *why = "an entry has no key";
    if (!o.key || !*o.key) return false;
    if (!folder) {
        *why = "an entry has no size";
        if (!gw_parse_i64(field(e, "Size", a), &o.bytes) || o.bytes < 0) return false;
        o.etag = field(e, "ETag", a);
        o.modified = gw_s3_time(field(e, "LastModified", a));
    }
    gw_vec_push(out, o);
    return true;
}

static int by_key(const void *pa, const void *pb) {
    const gw_s3_object *a = pa, *b = pb;
    return strcmp(a->key, b->key);
}

static bool read_list(const xmlNode *root, gw_arena *a, object_list *list, gw_s3_page *out,
                      const char **why) {
    bool escaped = strcmp(field(root, "EncodingType", a), "url") == 0;
    for (const xmlNode *e = root->children; e; e = e->next)
        if (is_named(e, "Contents") || is_named(e, "CommonPrefixes"))
            if (!add_object(e, escaped, a, list, why)) return false;
    if (list->count > 1) qsort(list->items, (size_t)list->count, sizeof *list->items, by_key);
    out->truncated = strcmp(field(root, "IsTruncated", a), "true") == 0;
    const char *token = field(root, "NextContinuationToken", a);
    out->token = out->truncated ? token : NULL;
    *why = "it says that more follows, but not how to ask for it";
    return !out->truncated || *token;
}

bool gw_s3_xml_list(const char *text, size_t n, gw_arena *a, gw_s3_page *out, const char **why) {
    *out = (gw_s3_page){0};
    *why = "it is no ListBucketResult";
    xmlDoc *doc = parse(text, n);
    const xmlNode *root = doc ? xmlDocGetRootElement(doc) : NULL;
    object_list list = {0};
    bool ok = root && is_named(root, "ListBucketResult") && read_list(root, a, &list, out, why);
    if (ok && list.count > 0) {
        out->objects = gw_arena_dup(a, list.items, (int64_t)sizeof *list.items * list.count);
        out->count = list.count;
    }
    gw_vec_release(&list);
    if (doc) xmlFreeDoc(doc);
    return ok;
}

typedef GW_VEC(gw_s3_upload) upload_list;

static bool read_uploads(const xmlNode *root, gw_arena *a, upload_list *list, gw_s3_uploads *out,
                         const char **why) {
    bool escaped = strcmp(field(root, "EncodingType", a), "url") == 0;
    for (const xmlNode *e = root->children; e; e = e->next) {
        if (!is_named(e, "Upload")) continue;
        gw_s3_upload u = {.id = field(e, "UploadId", a),
                          .begun = gw_s3_time(field(e, "Initiated", a))};
        const char *key = field(e, "Key", a);
        u.key = escaped ? unescape(key, a) : key;
        *why = "an upload has no key or id";
        if (!u.key || !*u.key || !*u.id) return false;
        gw_vec_push(list, u);
    }
    out->truncated = strcmp(field(root, "IsTruncated", a), "true") == 0;
    const char *marker = field(root, "NextKeyMarker", a);
    out->key_marker = escaped ? unescape(marker, a) : marker;
    out->id_marker = field(root, "NextUploadIdMarker", a);
    *why = "it says that more follows, but not how to ask for it";
    return !out->truncated || (out->key_marker && *out->key_marker);
}

bool gw_s3_xml_uploads(const char *text, size_t n, gw_arena *a, gw_s3_uploads *out,
                       const char **why) {
    *out = (gw_s3_uploads){0};
    *why = "it is no ListMultipartUploadsResult";
    xmlDoc *doc = parse(text, n);
    const xmlNode *root = doc ? xmlDocGetRootElement(doc) : NULL;
    upload_list list = {0};
    bool ok = root && is_named(root, "ListMultipartUploadsResult") &&
              read_uploads(root, a, &list, out, why);
    if (ok && list.count > 0) {
        out->uploads = gw_arena_dup(a, list.items, (int64_t)sizeof *list.items * list.count);
        out->count = list.count;
    }
    gw_vec_release(&list);
    if (doc) xmlFreeDoc(doc);
    return ok;
}

/* --- single fields ---------------------------------------------------------------------------- */

const char *gw_s3_xml_field(const char *text, size_t n, const char *root_name, const char *name,
                            gw_arena *a) {
    xmlDoc *doc = parse(text, n);
    const xmlNode *root = doc ? xmlDocGetRootElement(doc) : NULL;
    const char *found = NULL;
    if (root && (!root_name || is_named(root, root_name))) {
        const xmlNode *e = child(root, name);
        if (e) found = text_of(e, a);
    }
    if (doc) xmlFreeDoc(doc);
    return found;
}

bool gw_s3_xml_is(const char *text, size_t n, const char *name) {
    xmlDoc *doc = parse(text, n);
    const xmlNode *root = doc ? xmlDocGetRootElement(doc) : NULL;
    bool is = root && is_named(root, name);
    if (doc) xmlFreeDoc(doc);
    return is;
}
