// SPDX-License-Identifier: Apache-2.0
// Requests of a fetch: how one begins, what its bytes are, what its end means.
//
// A piece is a range of an item's bytes. It has one request under way, or two when the first was
// late (a hedge). Both ask for the same bytes; whichever brings the first byte claims the piece and
// writes to its place, the other is abandoned: its bytes are refused, and the loop takes it out. So
// there is never more than one writer, and no second buffer.
//
// The first answer for an item fixes its version: ETag and size of the object. Requests that start
// later demand it (If-Match), answers of those that were already under way are compared with it, so
// an item never holds bytes of two versions.
//
// When a request ends, its bytes stay with the piece, and another try asks for the rest only. A try
// that brought bytes starts the count of tries afresh: a link that drops every so often is slow,
// not dead.
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"      /* gw_clock_ns */
#include "file/fetch_impl.h" /* the contract */

/* --- callbacks, within curl_multi_perform ----------------------------------------------------- */

static size_t on_header(char *line, size_t one, size_t n, void *user) {
    fetch_transfer *t = user;
    gw_store_reply_header(&t->reply, line, one * n);
    return one * n;
}

static bool is_other_version(const fetch_item *item, const gw_store_reply *r) {
    int64_t total = r->status == 206 ? r->total : r->length;
    return item->total >= 0 && total >= 0 && item->total != total;
}

static void begin_body(fetch_transfer *t) {
    fetch_item *item = t->piece->item;
    gw_store_reply *r = &t->reply;
    t->first_ns = gw_clock_ns();
    gw_store_body_begin(&t->body);
    if (t->body.kind != GW_BODY_TAKEN) return;
    gw_rate_first_byte(&t->fetch->rate, (double)(t->first_ns - t->sent_ns) * 1e-9);
    if (is_other_version(item, r)) {
        t->body.kind = GW_BODY_CHANGED;
        return;
    }
    if (!*item->etag) snprintf(item->etag, sizeof item->etag, "%s", r->etag);
    if (item->total < 0) item->total = r->status == 206 ? r->total : r->length;
    if (r->status == 200 && item->total > t->body.want) t->fetch->no_ranges = true;
}

/* The first of two requests to get here has the piece. */
static bool claim(fetch_transfer *t) {
    fetch_piece *p = t->piece;
    if (p->claimed) return p->claimed == t;
    p->claimed = t;
    for (int i = 0; i < 2; i++)
        if (p->running[i] && p->running[i] != t) p->running[i]->abandoned = true;
    if (t->is_hedge) t->fetch->io.hedges_won++;
    return true;
}

static size_t on_body(char *bytes, size_t one, size_t n, void *user) {
    fetch_transfer *t = user;
    n *= one;
    t->fetch->io.network_bytes += (int64_t)n;
    if (t->abandoned) return 0;
    if (t->body.kind == GW_BODY_NOT_BEGUN) begin_body(t);
    if (t->body.kind == GW_BODY_TAKEN && !claim(t)) return 0;
    int64_t before = t->body.got;
    bool go_on = gw_store_body_take(&t->body, bytes, n);
    if (t->body.got > before)
        gw_rate_received(&t->fetch->rate, gw_clock_ns(), t->body.got - before);
    return go_on ? n : 0;
}

/* --- beginning -------------------------------------------------------------------------------- */

static void fill_call(fetch_transfer *t, gw_store_call *c) {
    const fetch_item *item = t->piece->item;
    *c = (gw_store_call){.method = "GET", .key = item->want.key};
    if (item->state == ITEM_SIZING) {
        c->method = "HEAD";
        return;
    }
    gw_store_range(t->range, t->body.offset, t->body.want);
    c->headers[c->nheaders++] = (gw_s3_pair){"Range", t->range};
    if (*item->etag && strncmp(item->etag, "W/", 2) != 0)
        c->headers[c->nheaders++] = (gw_s3_pair){"If-Match", item->etag};
}

static void set_callbacks(fetch_transfer *t) {
    curl_easy_setopt(t->handle, CURLOPT_PRIVATE, t);
    curl_easy_setopt(t->handle, CURLOPT_BUFFERSIZE, 128L * 1024);
    curl_easy_setopt(t->handle, CURLOPT_ERRORBUFFER, t->reply.curl_error);
    curl_easy_setopt(t->handle, CURLOPT_HEADERFUNCTION, on_header);
    curl_easy_setopt(t->handle, CURLOPT_HEADERDATA, t);
    curl_easy_setopt(t->handle, CURLOPT_WRITEFUNCTION, on_body);
    curl_easy_setopt(t->handle, CURLOPT_WRITEDATA, t);
}

static void link_transfer(gw_fetch *f, fetch_transfer *t) {
    t->next = f->transfers;
    if (t->next) t->next->prev = t;
    f->transfers = t;
    f->ntransfers++;
    t->piece->running[t->piece->running[0] ? 1 : 0] = t;
}

void gw_fetch_start(gw_fetch *f, fetch_piece *p, bool hedge) {
    fetch_item *item = p->item;
    fetch_transfer *t = gw_mem_zalloc(sizeof *t);
    gw_store_call c;
    *t = (fetch_transfer){.fetch = f, .piece = p, .is_hedge = hedge, .sent_ns = gw_clock_ns()};
    gw_store_reply_init(&t->reply);
    t->body = (gw_store_body){.reply = &t->reply, .etag = item->etag};
    t->body.offset = item->want.offset + p->offset + p->got;
    t->body.want = p->bytes - p->got;
    t->body.to = item->data ? item->data + p->offset + p->got : NULL;
    fill_call(t, &c);
    t->handle = gw_store_handle_take(f->store);
    gw_store_prepare(f->store, &c, t->handle, &t->headers);
    set_callbacks(t);
    gw_store_watch_start(&t->watch, f->options.stall_s, f->options.stall_bytes);
    link_transfer(f, t);
    f->io.requests++;
    if (hedge) f->io.hedges++;
    if (item->state != ITEM_SIZING && !hedge) gw_rate_sent(&f->rate, t->body.want);
    curl_multi_add_handle(f->multi, t->handle);
}

/* --- ends ------------------------------------------------------------------------------------- */

static void free_transfer(gw_fetch *f, fetch_transfer *t) {
    fetch_piece *p = t->piece;
    if (t->prev)
        t->prev->next = t->next;
    else
        f->transfers = t->next;
    if (t->next) t->next->prev = t->prev;
    f->ntransfers--;
    if (p->running[0] == t) {
        p->running[0] = p->running[1];
        p->running[1] = NULL;
    } else if (p->running[1] == t) {
        p->running[1] = NULL;
    }
    if (p->claimed == t) p->claimed = NULL;
    curl_multi_remove_handle(f->multi, t->handle);
    gw_store_handle_give(f->store, t->handle);
    curl_slist_free_all(t->headers);
    gw_store_reply_release(&t->reply);
    gw_mem_free(t);
}

void gw_fetch_drop_all(gw_fetch *f, fetch_item *item) {
    for (int64_t i = 0; i < item->begun; i++) {
        fetch_piece *p = &item->pieces[i];
        while (p->running[0]) free_transfer(f, p->running[0]);
        if (p->retry_ns) {
            p->retry_ns = 0;
            f->nwaiting--;
        }
    }
}

static void fail_item(gw_fetch *f, fetch_item *item, gw_status st) {
    gw_fetch_drop_all(f, item);
    pthread_mutex_lock(&f->lock);
    gw_fetch_item_fail(f, item, st);
    pthread_mutex_unlock(&f->lock);
}

static gw_status say_short(gw_fetch *f, fetch_item *item, int64_t ends_at) {
    gw_arena a = {0};
    int64_t end = item->want.offset + item->bytes;
    gw_diag *g = gw_diag_add(&item->diags, GW_ERROR, GW_ERR_FORMAT, "fetch-short", (gw_where){0},
                             "'%s' ends at byte %lld, but bytes %lld to %lld are needed",
                             gw_store_name(f->store, item->want.key, &a), (long long)ends_at,
                             (long long)item->want.offset, (long long)end);
    gw_diag_hint(&item->diags, g,
                 "the object was cut, or belongs to another version: write it again");
    gw_arena_release(&a);
    return GW_ERR_FORMAT;
}

static gw_status say_changed(gw_fetch *f, fetch_item *item, const gw_store_reply *r) {
    gw_arena a = {0};
    gw_status st = gw_store_fail_changed(f->store, gw_store_name(f->store, item->want.key, &a),
                                         item->etag, r->etag, &item->diags);
    gw_arena_release(&a);
    return st;
}

/* The end of the object, where an answer shows that it lies within the range; else -1. */
static int64_t ends_within(const fetch_transfer *t) {
    const gw_store_reply *r = &t->reply;
    int64_t total = r->status == 206 || r->status == 416 ? r->total
                    : r->status == 200                   ? r->length
                                                         : -1;
    if (r->status == 416 && total < 0) return 0;
    return total >= 0 && t->body.offset + t->body.want > total ? total : -1;
}

static void try_again(gw_fetch *f, fetch_transfer *t, bool stalled) {
    fetch_piece *p = t->piece;
    const gw_store_reply *r = &t->reply;
    int64_t now = gw_clock_ns();
    double wait = gw_store_backoff(f->store, p->tries, r);
    f->io.retries++;
    f->io.stalls += stalled;
    f->io.resumed += p->got > 0;
    p->retry_ns = now + (int64_t)(wait * 1e9) + 1;
    f->nwaiting++;
    if (r->status == 429 || r->status == 503) {
        f->io.throttled++;
        if (now > f->paused_ns) gw_rate_throttled(&f->rate);
        f->paused_ns = GW_MAX(f->paused_ns, p->retry_ns);
    }
}

static void finish_piece(gw_fetch *f, fetch_piece *p) {
    fetch_item *item = p->item;
    p->done = true;
    while (p->running[0]) free_transfer(f, p->running[0]);
    if (++item->ndone < item->npieces) return;
    pthread_mutex_lock(&f->lock);
    gw_fetch_item_arrived(f, item);
    pthread_mutex_unlock(&f->lock);
}

/* The size is known: the item waits for its turn again, in front. */
static void finish_sizing(gw_fetch *f, fetch_transfer *t) {
    fetch_item *item = t->piece->item;
    int64_t size = t->reply.length;
    char etag[sizeof item->etag];
    snprintf(etag, sizeof etag, "%s", t->reply.etag);
    gw_fetch_drop_all(f, item);
    pthread_mutex_lock(&f->lock);
    item->bytes = GW_MAX(size - item->want.offset, 0);
    item->total = size;
    snprintf(item->etag, sizeof item->etag, "%s", etag);
    gw_mem_free(item->pieces);
    item->pieces = NULL;
    item->npieces = item->begun = 0;
    gw_fetch_list_remove(&f->active, item);
    item->state = ITEM_QUEUED;
    gw_fetch_list_add(&f->queued, item, true);
    pthread_mutex_unlock(&f->lock);
}

/* What is left when nothing came that could be kept: fail, or once more. */
static void judge(gw_fetch *f, fetch_transfer *t, bool stalled) {
    fetch_piece *p = t->piece;
    fetch_item *item = p->item;
    gw_store_call c;
    fill_call(t, &c);
    bool sizing = item->state == ITEM_SIZING;
    const gw_store_body *b = sizing ? NULL : &t->body;
    gw_store_verdict v = gw_store_judge(f->store, &c, &t->reply, stalled);
    if (sizing && v == GW_STORE_DONE && t->reply.length >= 0) {
        finish_sizing(f, t);
        return;
    }
    bool other = p->running[0] && p->running[1];
    bool brought = t->body.kind == GW_BODY_TAKEN && t->body.got >= f->options.stall_bytes;
    gw_status st = GW_OK;
    if (v == GW_STORE_AT_ONCE && !p->moved) {
        p->moved = true;
        gw_store_learn_region(f->store, t->reply.region);
        p->retry_ns = gw_clock_ns();
        f->nwaiting++;
    } else if (v == GW_STORE_FAILED || v == GW_STORE_MISSING || v == GW_STORE_TAKEN) {
        st = gw_store_fail(f->store, &c, &t->reply, b, stalled, p->tries + 1, &item->diags);
    } else if (!other) {
        p->tries = brought ? 1 : p->tries + 1;
        if (p->tries >= f->options.tries)
            st = gw_store_fail(f->store, &c, &t->reply, b, stalled, p->tries, &item->diags);
        else
            try_again(f, t, stalled);
    }
    if (st != GW_OK)
        fail_item(f, item, st);
    else
        free_transfer(f, t);
}

void gw_fetch_ended(gw_fetch *f, fetch_transfer *t, CURLcode result, bool stalled) {
    fetch_piece *p = t->piece;
    fetch_item *item = p->item;
    gw_store_body *b = &t->body;
    curl_off_t wait = 0;
    if (t->abandoned) {
        free_transfer(f, t);
        return;
    }
    t->reply.curl = result;
    if (curl_easy_getinfo(t->handle, CURLINFO_RETRY_AFTER, &wait) == CURLE_OK)
        t->reply.retry_after_s = (double)wait;
    if (item->state != ITEM_SIZING) {
        if (result == CURLE_OK && b->kind == GW_BODY_NOT_BEGUN) begin_body(t);
        bool whole = gw_store_body_is_whole(b);
        int64_t end = ends_within(t);
        if (b->kind == GW_BODY_TAKEN) p->got += b->got;
        if (whole && t->first_ns)
            gw_rate_body(&f->rate, b->got, (double)(gw_clock_ns() - t->first_ns) * 1e-9);
        if (whole) {
            finish_piece(f, p);
            return;
        }
        gw_status st = GW_OK;
        if (b->kind == GW_BODY_CHANGED || t->reply.status == 412)
            st = say_changed(f, item, &t->reply);
        else if (end >= 0)
            st = say_short(f, item, end);
        if (st != GW_OK) {
            fail_item(f, item, st);
            return;
        }
    }
    judge(f, t, stalled);
}
