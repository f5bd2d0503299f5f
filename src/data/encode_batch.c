// SPDX-License-Identifier: Apache-2.0
// Many texts over many threads.
//
// Texts are grouped into jobs of some hundred kilobytes, in their order; threads take the next job
// when they are free, each with a scratch of its own, and leave its ids in the job. Then it is
// known where each job's ids begin, and the threads copy them there. So nothing depends on which
// thread did what.
//
// A text longer than a job is cut where every splitting pattern cuts: between an ASCII letter and a
// blank that an ASCII letter follows. That is right for tokenizers whose first step is a scanner,
// without a normaliser and without added tokens that could lie across the cut; texts of others are
// done whole.
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#include "base/arena.h"          /* gw_mem_alloc */
#include "base/cgroup.h"         /* gw_cgroup_cpus */
#include "base/map.h"            /* GW_VEC, gw_vec_push */
#include "data/tokenizer_impl.h" /* gw_tokenizer */

enum { JOB_BYTES = 512 << 10, MOST_THREADS = 1024 };

/* Part of a text; the last of its text says so. */
typedef struct part {
    int64_t text;
    const uint8_t *bytes;
    size_t n;
    bool first, last;
    int64_t end; /* of its ids within the job */
} part;

typedef struct job {
    int64_t first, count; /* parts */
    gw_ids ids;
    int64_t at; /* where its ids go */
    gw_status status;
} job;

typedef struct batch {
    const gw_tokenizer *t;
    unsigned flags;
    GW_VEC(part) parts;
    GW_VEC(job) jobs;
    atomic_llong next, specials;
    int32_t *to; /* second round: where ids are copied; NULL in the first */
} batch;

static bool is_letter(uint8_t c) { return (uint8_t)((c | 0x20) - 'a') < 26; }

static bool can_cut(const gw_tokenizer *t, unsigned flags) {
    if (t->identity) return true;
    bool scanner = t->npre == 1 && t->pre[0].kind == GW_PRE_SCAN && t->nnorm == 0;
    /* Special tokens are found only when asked for; others always. */
    for (int32_t id = 0; scanner && id < t->vocab_size; id++)
        if (t->entries[id].added && (!t->entries[id].special || (flags & GW_ENCODE_SPECIALS)))
            scanner = false;
    return scanner;
}

/* Where text[at..n) may be cut for the first time; n if nowhere. */
static size_t cut_after(const uint8_t *text, size_t at, size_t n) {
    for (size_t i = at; i + 1 < n; i++)
        if (text[i] == ' ' && is_letter(text[i - 1]) && is_letter(text[i + 1])) return i;
    return n;
}

static void add_part(batch *b, part p, size_t *filled) {
    if (b->jobs.count == 0 || *filled >= JOB_BYTES) {
        gw_vec_push(&b->jobs, ((job){.first = b->parts.count}));
        *filled = 0;
    }
    b->jobs.items[b->jobs.count - 1].count++;
    *filled += p.n;
    gw_vec_push(&b->parts, p);
}

static void divide(batch *b, const gw_tok_text *texts, int64_t ntexts) {
    bool cuts = can_cut(b->t, b->flags);
    size_t filled = 0;
    for (int64_t i = 0; i < ntexts; i++) {
        const uint8_t *p = texts[i].bytes;
        size_t from = 0, n = texts[i].n;
        do {
            size_t e = cuts && n - from > 2 * JOB_BYTES ? cut_after(p, from + JOB_BYTES, n) : n;
            add_part(b, (part){i, p + from, e - from, from == 0, e == n, 0}, &filled);
            from = e;
        } while (from < n);
    }
}

/* The template's ids stand around the whole text. */
static gw_status encode_part(const batch *b, gw_tok_scratch *s, part *p, gw_ids *ids,
                             gw_diags *dg) {
    const gw_tokenizer *t = b->t;
    bool whole = p->first && p->last, around = (b->flags & GW_ENCODE_TEMPLATE) != 0;
    unsigned flags = whole ? b->flags : b->flags & ~(unsigned)GW_ENCODE_TEMPLATE;
    for (int i = 0; !whole && around && p->first && i < t->nbefore; i++)
        gw_vec_push(ids, t->before[i]);
    GW_TRY(gw_tokenizer_encode(t, s, p->bytes, p->n, flags, ids, dg));
    for (int i = 0; !whole && around && p->last && i < t->nafter; i++)
        gw_vec_push(ids, t->after[i]);
    p->end = ids->count;
    return GW_OK;
}

static gw_status encode_job(const batch *b, gw_tok_scratch *s, job *j, gw_diags *dg) {
    j->ids.count = 0;
    for (int64_t i = j->first; i < j->first + j->count; i++)
        GW_TRY(encode_part(b, s, &b->parts.items[i], &j->ids, dg));
    return GW_OK;
}

static void copy_job(const batch *b, const job *j) {
    if (j->ids.count)
        memcpy(b->to + j->at, j->ids.items, (size_t)j->ids.count * sizeof *j->ids.items);
}

static void *work(void *arg) {
    batch *b = arg;
    gw_tok_scratch *s = b->to ? NULL : gw_tok_scratch_new();
    for (int64_t k; (k = atomic_fetch_add(&b->next, 1)) < b->jobs.count;) {
        job *j = &b->jobs.items[k];
        if (b->to)
            copy_job(b, j);
        else
            j->status = encode_job(b, s, j, NULL);
    }
    if (s) atomic_fetch_add(&b->specials, gw_tok_scratch_specials(s));
    gw_tok_scratch_free(s);
    return NULL;
}

/* This thread and threads - 1 others, or as many as can be had. Returns how many. */
static int work_together(batch *b, int threads) {
    pthread_t others[MOST_THREADS];
    int started = 0;
    atomic_store(&b->next, 0);
    while (started < threads - 1 && pthread_create(&others[started], NULL, work, b) == 0) started++;
    work(b);
    for (int i = 0; i < started; i++) pthread_join(others[i], NULL);
    return started + 1;
}

static int choose_threads(int threads, int64_t jobs) {
    if (threads <= 0) {
        double limit = gw_cgroup_cpus(GW_PROC, GW_CGROUPS, NULL, 0);
        threads = (int)sysconf(_SC_NPROCESSORS_ONLN);
        if (limit > 0 && limit < threads) threads = limit < 1 ? 1 : (int)limit;
    }
    threads = GW_MAX(1, GW_MIN(threads, (int)MOST_THREADS));
    return jobs < threads ? GW_MAX(1, (int)jobs) : threads;
}

/* The first text that fails, again, for its message. */
static gw_status explain(const batch *b, gw_diags *dg) {
    for (int64_t k = 0; k < b->jobs.count; k++) {
        job *j = &b->jobs.items[k];
        if (j->status == GW_OK) continue;
        gw_tok_scratch *s = gw_tok_scratch_new();
        gw_ids ids = {0};
        gw_status st = GW_OK;
        for (int64_t i = j->first; i < j->first + j->count && st == GW_OK; i++) {
            st = encode_part(b, s, &b->parts.items[i], &ids, dg);
            if (st != GW_OK)
                st = GW_FAIL(dg, st, "tokenizer-batch", "text %lld of the batch cannot be encoded",
                             (long long)b->parts.items[i].text);
        }
        gw_ids_release(&ids);
        gw_tok_scratch_free(s);
        if (st != GW_OK) return st;
    }
    return GW_OK;
}

static void gather(batch *b, int threads, gw_ids *out, int64_t *ends) {
    int64_t total = out->count;
    for (int64_t k = 0; k < b->jobs.count; k++) {
        job *j = &b->jobs.items[k];
        j->at = total;
        for (int64_t i = j->first; i < j->first + j->count; i++)
            ends[b->parts.items[i].text] = total + b->parts.items[i].end;
        total += j->ids.count;
    }
    while (out->cap < total) out->items = gw_vec_grow_(out->items, &out->cap, sizeof *out->items);
    out->count = total;
    b->to = out->items;
    if (total) work_together(b, threads);
}

gw_status gw_tokenizer_encode_batch(const gw_tokenizer *t, const gw_tok_text *texts, int64_t ntexts,
                                    unsigned flags, int threads, gw_ids *out, int64_t *ends,
                                    gw_tok_report *report, gw_diags *dg) {
    batch b = {.t = t, .flags = flags};
    gw_tok_report r = {.tokens = -out->count};
    divide(&b, texts, ntexts);
    threads = choose_threads(threads, b.jobs.count);
    r.threads = work_together(&b, threads);
    bool failed = false;
    for (int64_t k = 0; k < b.jobs.count; k++) failed |= b.jobs.items[k].status != GW_OK;
    gw_status st = failed ? explain(&b, dg) : GW_OK;
    if (st == GW_OK) gather(&b, threads, out, ends);
    for (int64_t i = 0; i < ntexts; i++) r.bytes += (int64_t)texts[i].n;
    r.tokens += out->count;
    r.specials = atomic_load(&b.specials);
    if (report) *report = r;
    for (int64_t k = 0; k < b.jobs.count; k++) gw_ids_release(&b.jobs.items[k].ids);
    gw_vec_release(&b.jobs);
    gw_vec_release(&b.parts);
    return st;
}
