// SPDX-License-Identifier: Apache-2.0
// The loop of a fetch: one thread that begins requests, moves their bytes and looks after time.
//
// Each pass does the same things in the same order: takes out what was cancelled, starts what there
// is room for, sleeps until a socket is ready or something is due, lets curl move bytes, handles
// requests that ended, ends those that stalled, and begins hedges. The lock is held only while
// lists of items are looked at, never while bytes move.
//
// Room is given first to pieces that wait for another try, then to pieces of items that are begun,
// then to the next item of the queue. An item is begun only when its bytes fit under the cap, and
// items are begun in order, so a large item is not overtaken for ever by small ones.
//
// Items of a directory have no requests: they are read by this thread, one after another.
#include <signal.h>
#include <string.h>

#include "base/clock.h"      /* gw_clock_ns */
#include "file/fetch_impl.h" /* the contract */

#define LONGEST_SLEEP_MS 1000
#define SHORTEST_PASS_NS 500000

/* --- room ------------------------------------------------------------------------------------- */

/* Bytes that running requests still owe; of two for the same piece only one counts. */
static int64_t outstanding(const gw_fetch *f) {
    int64_t n = 0;
    for (const fetch_transfer *t = f->transfers; t; t = t->next)
        if (!t->abandoned && (!t->is_hedge || t->piece->claimed == t))
            n += t->body.want - t->body.got;
    return n;
}

static bool has_room(const gw_fetch *f, int64_t owed, int64_t now) {
    if (f->ntransfers >= f->options.max_in_flight || now < f->paused_ns) return false;
    if (f->options.fixed_in_flight > 0) return f->ntransfers < f->options.fixed_in_flight;
    return f->ntransfers == 0 || owed < f->rate.outstanding_limit;
}

/* --- beginning items -------------------------------------------------------------------------- */

static void cut_pieces(gw_fetch *f, fetch_item *item) {
    int64_t step = f->no_ranges ? item->bytes : GW_MIN(f->options.piece_bytes, item->bytes);
    item->npieces = step ? (item->bytes + step - 1) / step : 0;
    item->pieces = gw_mem_zalloc(sizeof *item->pieces * (size_t)GW_MAX(item->npieces, 1));
    for (int64_t i = 0; i < item->npieces; i++)
        item->pieces[i] = (fetch_piece){
            .item = item, .offset = i * step, .bytes = GW_MIN(step, item->bytes - i * step)};
}

/* Asks for the size of an object: one request without a body. */
static void begin_sizing(gw_fetch *f, fetch_item *item) {
    gw_fetch_list_remove(&f->queued, item);
    item->state = ITEM_SIZING;
    item->pieces = gw_mem_zalloc(sizeof *item->pieces);
    item->pieces[0] = (fetch_piece){.item = item};
    item->npieces = 1;
    gw_fetch_list_add(&f->active, item, false);
}

/* Items of a directory. The list of active ones keeps the item while the lock is open. */
static gw_status size_file(gw_fetch *f, fetch_item *item) {
    gw_arena a = {0};
    gw_store_entry e;
    bool found = false;
    const gw_fetch_item *w = &item->want;
    pthread_mutex_unlock(&f->lock);
    gw_status st = gw_store_stat(f->store, w->key, &a, &e, &found, &item->diags);
    if (st == GW_OK && found) {
        item->bytes = GW_MAX(e.bytes - w->offset, 0);
    } else if (st == GW_OK) { /* the store says it in its words */
        char byte;
        st = gw_store_get(f->store, w->key, NULL, 0, 1, &byte, &item->diags);
        if (st == GW_OK) st = GW_ERR_IO;
    }
    gw_arena_release(&a);
    pthread_mutex_lock(&f->lock);
    return st;
}

static gw_status say_too_large(const gw_fetch *f, fetch_item *item) {
    return GW_FAIL(&item->diags, GW_ERR_IO, "fetch-too-large",
                   "'%s' has %lld bytes, and the buffers hold %lld", item->want.key,
                   (long long)item->bytes, (long long)f->options.buffer_bytes);
}

static void begin_file(gw_fetch *f, fetch_item *item) {
    gw_fetch_list_remove(&f->queued, item);
    item->state = ITEM_ACTIVE;
    item->cause = CAUSE_BODY;
    gw_fetch_list_add(&f->active, item, false);
    gw_status st = item->bytes < 0 ? size_file(f, item) : GW_OK;
    if (st == GW_OK && item->bytes > f->options.buffer_bytes) st = say_too_large(f, item);
    if (st == GW_OK) {
        gw_fetch_item_fill(f, item, item->bytes);
        pthread_mutex_unlock(&f->lock);
        st = gw_store_get(f->store, item->want.key, NULL, item->want.offset, item->bytes,
                          item->data, &item->diags);
        pthread_mutex_lock(&f->lock);
    }
    f->io.requests++;
    if (st != GW_OK)
        gw_fetch_item_fail(f, item, st);
    else
        gw_fetch_item_arrived(f, item);
}

static bool begin_cached(gw_fetch *f, fetch_item *item) {
    if (!f->cache || item->past_cache) return false;
    if (!gw_fetch_cache_find(f->cache, f->store, &item->want, &item->mapping, &item->bytes,
                             &item->cached_hash))
        return false;
    gw_fetch_list_remove(&f->queued, item);
    gw_fetch_list_add(&f->active, item, false);
    gw_fetch_item_arrived(f, item);
    return true;
}

/* Begins the first item of the queue; false where it does not fit yet, or there is none. With the
 * lock, which it may leave and take again. */
static bool begin_next(gw_fetch *f) {
    fetch_item *item = f->queued.first;
    if (!item) return false;
    bool directory = gw_store_get_kind(f->store) == GW_STORE_DIRECTORY;
    int64_t n = GW_MAX(item->bytes, 0);
    if (f->stats.buffered_bytes > 0 && f->stats.buffered_bytes + n > f->options.buffer_bytes)
        return false;
    if (directory) {
        begin_file(f, item);
        return true;
    }
    if (begin_cached(f, item)) return true;
    if (item->bytes < 0) {
        begin_sizing(f, item);
        return true;
    }
    gw_fetch_list_remove(&f->queued, item);
    gw_fetch_list_add(&f->active, item, false);
    if (n > f->options.buffer_bytes) {
        gw_fetch_item_fail(f, item, say_too_large(f, item));
        return true;
    }
    item->state = ITEM_ACTIVE;
    gw_fetch_item_fill(f, item, n);
    cut_pieces(f, item);
    if (item->npieces == 0) gw_fetch_item_arrived(f, item);
    return true;
}

/* --- starting requests ------------------------------------------------------------------------ */

static fetch_piece *next_retry(gw_fetch *f, int64_t now) {
    if (f->nwaiting == 0) return NULL;
    for (fetch_item *item = f->active.first; item; item = item->next)
        for (int64_t i = 0; i < item->begun; i++) {
            fetch_piece *p = &item->pieces[i];
            if (p->retry_ns && p->retry_ns <= now) return p;
        }
    return NULL;
}

static fetch_piece *next_piece(gw_fetch *f) {
    for (fetch_item *item = f->active.first; item; item = item->next)
        if (item->begun < item->npieces) return &item->pieces[item->begun++];
    return NULL;
}

static bool start_one(gw_fetch *f, int64_t now, int64_t *owed) {
    fetch_piece *p = next_retry(f, now);
    if (p) {
        p->retry_ns = 0;
        f->nwaiting--;
    }
    for (;;) {
        if (!p) p = next_piece(f);
        if (p) break;
        if (!begin_next(f)) return false;
    }
    gw_fetch_start(f, p, false);
    *owed += p->bytes - p->got;
    return true;
}

static void start_what_fits(gw_fetch *f) {
    int64_t now = gw_clock_ns(), owed = outstanding(f);
    while (has_room(f, owed, now)) {
        if (start_one(f, now, &owed)) continue;
        gw_rate_idle(&f->rate);
        break;
    }
    /* Items that need no request are not held up by those that do. */
    while (f->queued.first && gw_store_get_kind(f->store) == GW_STORE_DIRECTORY && !f->closing &&
           begin_next(f))
        continue;
}

static void hedge_late_ones(gw_fetch *f) {
    double late = GW_MAX(gw_rate_late(&f->rate), f->options.hedge_min_s);
    if (f->options.no_hedging || gw_rate_late(&f->rate) == 0) return;
    int64_t now = gw_clock_ns();
    for (fetch_transfer *t = f->transfers, *next; t; t = next) {
        next = t->next;
        bool alone = !t->is_hedge && !t->piece->running[1] && !t->piece->claimed;
        if (!alone || t->first_ns || t->abandoned || t->piece->item->state == ITEM_SIZING) continue;
        if ((double)(now - t->sent_ns) * 1e-9 < late) continue;
        /* One in twenty at most, or a server that slows down as a whole would get twice the load.
         */
        if (f->ntransfers >= f->options.max_in_flight || f->io.hedges > f->io.requests / 20) return;
        gw_fetch_start(f, t->piece, true);
    }
}

/* --- looking after requests ------------------------------------------------------------------- */

static void handle_ended(gw_fetch *f) {
    int left;
    for (CURLMsg *m; (m = curl_multi_info_read(f->multi, &left)) != NULL;) {
        if (m->msg != CURLMSG_DONE) continue;
        char *private = NULL;
        CURLcode result = m->data.result;
        curl_easy_getinfo(m->easy_handle, CURLINFO_PRIVATE, &private);
        gw_fetch_ended(f, (fetch_transfer *)(void *)private, result, false);
    }
}

/* Ending one may take out others (of the same item), so the walk starts over. */
static void end_stalled(gw_fetch *f) {
    for (bool again = true; again;) {
        again = false;
        for (fetch_transfer *t = f->transfers; t && !again; t = t->next) {
            bool stalled = gw_store_watch_look(&t->watch, t->body.got);
            if (!stalled && !t->abandoned) continue;
            gw_fetch_ended(f, t, CURLE_OPERATION_TIMEDOUT, stalled);
            again = true;
        }
    }
}

static void take_out_cancelled(gw_fetch *f) {
    for (fetch_item *item = f->active.first, *next; item && f->ncancelled > 0; item = next) {
        next = item->next;
        if (!item->cancelled) continue;
        gw_fetch_drop_all(f, item);
        gw_fetch_list_remove(&f->active, item);
        gw_fetch_item_free(f, item);
        f->ncancelled--;
    }
}

static item_cause cause_of(const fetch_item *item) {
    item_cause c = CAUSE_QUEUE;
    for (int64_t i = 0; i < item->begun; i++) {
        const fetch_piece *p = &item->pieces[i];
        if (p->done) continue;
        if (p->claimed) return CAUSE_BODY;
        if (p->running[0])
            c = CAUSE_FIRST_BYTE;
        else if (p->retry_ns && c == CAUSE_QUEUE)
            c = CAUSE_BACKOFF;
    }
    return c;
}

/* What callers may see: with the lock. */
static void show(gw_fetch *f) {
    gw_fetch_stats *s = &f->stats;
    for (fetch_item *item = f->active.first; item; item = item->next)
        if (item->waited_for && item->pieces) item->cause = cause_of(item);
    s->network_bytes = f->io.network_bytes;
    s->requests = f->io.requests;
    s->retries = f->io.retries;
    s->hedges = f->io.hedges;
    s->hedges_won = f->io.hedges_won;
    s->resumed = f->io.resumed;
    s->stalls = f->io.stalls;
    s->throttled = f->io.throttled;
    s->in_flight = f->ntransfers;
    s->in_flight_target =
        f->options.fixed_in_flight > 0
            ? f->options.fixed_in_flight
            : (int)GW_MIN((double)f->options.max_in_flight,
                          (double)f->rate.outstanding_limit / GW_MAX(f->rate.piece_mean, 1) + 1);
    s->bandwidth_bytes_per_s = gw_rate_bandwidth(&f->rate);
    s->first_byte_p50_s = f->rate.p50;
    s->first_byte_p95_s = f->rate.p95;
}

/* --- the loop --------------------------------------------------------------------------------- */

static int sleep_ms(const gw_fetch *f) {
    int64_t now = gw_clock_ns(), due = now + LONGEST_SLEEP_MS * INT64_C(1000000);
    for (const fetch_item *item = f->nwaiting ? f->active.first : NULL; item; item = item->next)
        for (int64_t i = 0; i < item->begun; i++)
            if (item->pieces[i].retry_ns)
                due = GW_MIN(due, GW_MAX(item->pieces[i].retry_ns, f->paused_ns));
    if (f->paused_ns > now) due = GW_MIN(due, f->paused_ns);
    if (f->ntransfers > 0) due = GW_MIN(due, now + (int64_t)(f->options.stall_s * 0.25e9));
    if (f->ntransfers > 0 && !f->options.no_hedging) due = GW_MIN(due, now + 10 * INT64_C(1000000));
    return (int)GW_MAX((due - now) / 1000000, 1);
}

/* Bytes come in small pieces; looking after each of them costs more than moving it. A pass each
 * half millisecond is soon enough, and sockets hold what comes meanwhile. */
static void nap(gw_fetch *f) {
    int64_t left = f->last_pass_ns + SHORTEST_PASS_NS - gw_clock_ns();
    if (left > 0) gw_store_sleep((double)left * 1e-9);
    f->last_pass_ns = gw_clock_ns();
}

/* Begins and ends with the lock. */
static void pass(gw_fetch *f) {
    int running;
    take_out_cancelled(f);
    start_what_fits(f);
    show(f);
    int ms = f->closing ? 0 : sleep_ms(f);
    pthread_mutex_unlock(&f->lock);
    curl_multi_poll(f->multi, NULL, 0, ms, NULL);
    nap(f);
    curl_multi_perform(f->multi, &running);
    handle_ended(f);
    end_stalled(f);
    hedge_late_ones(f);
    pthread_mutex_lock(&f->lock);
}

void *gw_fetch_loop(void *fetch) {
    gw_fetch *f = fetch;
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, NULL); /* SIGPIPE too; signals are other threads' matter */
    pthread_mutex_lock(&f->lock);
    while (!f->closing) pass(f);
    pthread_mutex_unlock(&f->lock);
    for (fetch_item *item = f->active.first; item; item = item->next) gw_fetch_drop_all(f, item);
    return NULL;
}
