// SPDX-License-Identifier: Apache-2.0
// What each filter removed: counts by reason and a few documents to look at.
//
// A sample that does not depend on order or on who counted is the set of documents whose ids have
// the smallest hashes: two reports are merged by keeping the smallest of both. So a run with four
// workers shows the same documents as one with one.
#include <stdio.h>
#include <string.h>

#include "base/arena.h"              /* gw_mem_zalloc */
#include "base/hash.h"               /* gw_hash64 */
#include "data/filter/filter_impl.h" /* gw_filter_report */

enum { EXCERPT_BYTES = 400, URL_BYTES = 300 };

typedef struct sample {
    uint64_t rank, id;
    char *url, *text;
} sample;

typedef struct tally {
    int64_t removed;
    int64_t *reasons; /* by reason */
    sample *samples;  /* [limit], sorted by rank */
    int count;
} tally;

struct gw_filter_report {
    const gw_filters *filters;
    int limit;
    int64_t documents, kept;
    tally *tallies; /* by filter */
};

gw_filter_report *gw_filter_report_new(const gw_filters *f, int samples) {
    gw_filter_report *r = gw_mem_zalloc(sizeof *r);
    r->filters = f;
    r->limit = samples;
    int n = gw_filters_count(f);
    r->tallies = gw_mem_zalloc((size_t)(n + 1) * sizeof *r->tallies);
    for (int i = 0; i < n; i++) {
        int reasons = gw_filters_desc(f, i)->nreasons;
        r->tallies[i].reasons = gw_mem_zalloc((size_t)reasons * sizeof(int64_t));
        r->tallies[i].samples = gw_mem_zalloc((size_t)(samples + 1) * sizeof(sample));
    }
    return r;
}

void gw_filter_report_free(gw_filter_report *r) {
    if (!r) return;
    for (int i = 0; i < gw_filters_count(r->filters); i++) {
        tally *t = &r->tallies[i];
        for (int k = 0; k < t->count; k++) {
            gw_mem_free(t->samples[k].url);
            gw_mem_free(t->samples[k].text);
        }
        gw_mem_free(t->samples);
        gw_mem_free(t->reasons);
    }
    gw_mem_free(r->tallies);
    gw_mem_free(r);
}

static char *copy(const char *p, int64_t n, int64_t most) {
    if (n > most) {
        n = most;
        while (n > 0 && ((uint8_t)p[n] & 0xc0) == 0x80) n--; /* whole characters */
    }
    char *out = gw_mem_alloc((size_t)n + 1);
    if (n) memcpy(out, p, (size_t)n);
    out[n] = 0;
    return out;
}

/* Keeps a sample if its rank is among the smallest. */
static void offer(const gw_filter_report *r, tally *t, uint64_t rank, uint64_t id, const char *url,
                  const char *text, int64_t n) {
    int at = t->count;
    while (at > 0 && (t->samples[at - 1].rank > rank ||
                      (t->samples[at - 1].rank == rank && t->samples[at - 1].id > id)))
        at--;
    if (at >= r->limit) return;
    if (t->count == r->limit) {
        t->count--;
        gw_mem_free(t->samples[t->count].url);
        gw_mem_free(t->samples[t->count].text);
    }
    memmove(t->samples + at + 1, t->samples + at, (size_t)(t->count - at) * sizeof(sample));
    t->samples[at] = (sample){rank, id, copy(url, (int64_t)strlen(url), URL_BYTES),
                              copy(text, n, EXCERPT_BYTES)};
    t->count++;
}

void gw_filter_report_add(gw_filter_report *r, gw_verdict v, uint64_t id, const char *url,
                          const char *text, int64_t n) {
    r->documents++;
    if (v.filter < 0) {
        r->kept++;
        return;
    }
    tally *t = &r->tallies[v.filter];
    t->removed++;
    t->reasons[v.reason]++;
    offer(r, t, gw_hash64(&id, sizeof id, 0x5a), id, url ? url : "", text, n);
}

void gw_filter_report_merge(gw_filter_report *into, const gw_filter_report *from) {
    into->documents += from->documents;
    into->kept += from->kept;
    for (int i = 0; i < gw_filters_count(into->filters); i++) {
        tally *a = &into->tallies[i];
        const tally *b = &from->tallies[i];
        a->removed += b->removed;
        for (int k = 0; k < gw_filters_desc(into->filters, i)->nreasons; k++)
            a->reasons[k] += b->reasons[k];
        for (int k = 0; k < b->count; k++)
            offer(into, a, b->samples[k].rank, b->samples[k].id, b->samples[k].url,
                  b->samples[k].text, (int64_t)strlen(b->samples[k].text));
    }
}

static void add_quoted(gw_str *out, const char *s) {
    gw_str_add_char(out, '"');
    for (; *s; s++) {
        uint8_t c = (uint8_t)*s;
        if (c == '"' || c == '\\')
            gw_str_printf(out, "\\%c", c);
        else if (c < 32 || c == 127)
            gw_str_printf(out, "\\u%04x", c);
        else
            gw_str_add_char(out, (char)c);
    }
    gw_str_add_char(out, '"');
}

void gw_filter_report_json(const gw_filter_report *r, gw_str *out) {
    gw_str_printf(out, "{\"documents\": %lld, \"kept\": %lld, \"filters\": [",
                  (long long)r->documents, (long long)r->kept);
    for (int i = 0; i < gw_filters_count(r->filters); i++) {
        const gw_filter_desc *d = gw_filters_desc(r->filters, i);
        const tally *t = &r->tallies[i];
        gw_str_printf(out, "%s{\"filter\": ", i ? ", " : "");
        add_quoted(out, d->name);
        gw_str_printf(out, ", \"removed\": %lld, \"reasons\": {", (long long)t->removed);
        bool any = false;
        for (int k = 0; k < d->nreasons; k++) {
            if (!t->reasons[k]) continue;
            gw_str_printf(out, "%s\"%s\": %lld", any ? ", " : "", d->reasons[k],
                          (long long)t->reasons[k]);
            any = true;
        }
        gw_str_add(out, "}, \"samples\": [");
        for (int k = 0; k < t->count; k++) {
            gw_str_printf(out, "%s{\"id\": \"%llu\", \"url\": ", k ? ", " : "",
                          (unsigned long long)t->samples[k].id);
            add_quoted(out, t->samples[k].url);
            gw_str_add(out, ", \"text\": ");
            add_quoted(out, t->samples[k].text);
            gw_str_add_char(out, '}');
        }
        gw_str_add(out, "]}");
    }
    gw_str_add(out, "]}");
}
