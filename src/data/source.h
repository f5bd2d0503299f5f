// SPDX-License-Identifier: Apache-2.0
// Documents out of one input: a web archive, a JSONL file, a folder of pages, or a single page.
//
// An input is one unit of a pipeline. Its documents come in the order of the file (of the sorted
// names, for a folder) and that order, with their numbers, depends on the bytes alone.
#ifndef GW_DATA_SOURCE_H
#define GW_DATA_SOURCE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/diag.h" /* gw_status, gw_diags */
#include "data/doc.h"  /* gw_doc, gw_media */

typedef enum gw_source_kind {
    GW_SOURCE_AUTO,  /* by name, then by the first bytes */
    GW_SOURCE_WARC,  /* .warc .wet, plain or .gz .zst */
    GW_SOURCE_JSONL, /* .jsonl .ndjson .json, plain or .gz .zst */
    GW_SOURCE_FILES  /* a folder of pages and texts (recursive, sorted by bytes), or one of them */
} gw_source_kind;

typedef struct gw_source_options {
    gw_source_kind kind;
    uint32_t unit;             /* becomes id.unit of every document */
    const char *text_key;      /* JSONL: "text"; "a.b" looks into objects */
    const char *url_key;       /* JSONL: "url" */
    const char *date_key;      /* JSONL: "date" */
    const char *html_suffixes; /* folders: "html htm xhtml" */
    const char *text_suffixes; /* folders: "txt md text rst" */
    bool html;                 /* JSONL: the text is HTML, to be extracted */
    bool check_digests;        /* WARC: SHA-1, SHA-256 and MD5 where a record has them */
    bool strict;              /* the first damage ends the unit; without it damage is passed over */
    int64_t max_record_bytes; /* longer ones are passed over and counted */
    int64_t max_ratio;        /* decoded bytes of a member over its bytes: beyond it, a bomb */
} gw_source_options;

/* Everything at its default: AUTO, unit 0, keys as above, digests checked, not strict, records of
 * at most 64 MiB, a ratio of at most 1100 once a member has given 16 MiB. */
gw_source_options gw_source_options_default(void);

enum { GW_SOURCE_DAMAGE_KEPT = 64 }; /* damage beyond this many is counted only */

typedef struct gw_source_damage {
    int64_t offset; /* in the file, of the member, frame or record; -1 for a file of a folder */
    int64_t line;   /* JSONL: from 1; 0 otherwise */
    const char *why;
} gw_source_damage;

typedef struct gw_source_report {
    int64_t records;    /* seen, of every type: WARC records, lines, files */
    int64_t documents;  /* delivered */
    int64_t not_page;   /* records that are no page: requests, metadata, redirects, errors */
    int64_t other_type; /* pages that are neither HTML nor text */
    int64_t too_long;   /* over max_record_bytes */
    int64_t undecoded;  /* HTTP bodies in a coding that is unknown or broken */
    int64_t digests_good, digests_bad;
    int64_t bytes_in;  /* of the file, read so far */
    int64_t bytes_out; /* decoded from it */
    int64_t raw_bytes; /* of the documents delivered */
    int64_t damages;   /* places; the first ones are listed */
    const gw_source_damage *damaged;
    int ndamaged;
} gw_source_report;

typedef struct gw_source gw_source;

/* Opens an input for one thread. `options` may be NULL; its strings are copied. A path that cannot
 * be read, and a file that is none of the kinds, is an error here (source-input, file-open). */
GW_WARN_UNUSED gw_status gw_source_open(const gw_source_options *options, const char *path,
                                        gw_source **out, gw_diags *dg);
void gw_source_free(gw_source *s);
/* The same for bytes in memory, which must outlive the source; `name` stands for them in errors
 * and, with AUTO, for their kind. */
GW_WARN_UNUSED gw_status gw_source_open_bytes(const gw_source_options *options, const void *bytes,
                                              int64_t n, const char *name, gw_source **out,
                                              gw_diags *dg);

/* The next document: sets id, url, date, charset, media, raw, raw_bytes of `doc` and empties its
 * text and language; the rest of it stays. *more = false at the end. Documents that stand before,
 * between and after damaged places are all delivered; the call that reaches the end then returns
 * GW_ERR_FORMAT with a diagnostic that names the first place and their number (source-damaged), and
 * GW_OK if all was well. What the source points to lives until the next call. */
GW_WARN_UNUSED gw_status gw_source_next(gw_source *s, gw_doc *doc, bool *more, gw_diags *dg);
/* Counts so far; `damaged` is borrowed until the source goes. */
gw_source_report gw_source_get_report(const gw_source *s);
/* "warc", "jsonl", "files". */
const char *gw_source_kind_name(gw_source_kind kind);
/* The kind that AUTO gives to a path by its name alone; AUTO where the name says nothing. */
gw_source_kind gw_source_kind_of_name(const char *path);

#endif
