// SPDX-License-Identifier: Apache-2.0
// Pre-tokenisation as a list of steps over a list of pieces.
//
// A step either cuts pieces (it finds matches in each and decides by its behaviour what becomes of
// matches and of the gaps between them) or rewrites text (a prefix space, spaces to a mark), after
// which pieces index the new text. Two buffers of each kind change turns. The fold of matches and
// gaps into pieces is one small state machine for all five behaviours, defined as in Hugging Face
// tokenizers:
//   isolated              each match and each gap is a piece
//   removed               gaps only
//   merged with previous  a match after a gap joins it; a match after a match stands alone
//   merged with next      a match before a gap joins it; a match before a match stands alone
//   contiguous            runs of matches are one piece, runs of gaps are one piece
// A regex sees only valid UTF-8; invalid bytes fall into gaps and bound its look-around.
#include "data/pretok.h" /* gw_pre_run */

#include <string.h>

#include "base/map.h"         /* gw_vec_push */
#include "data/unicode.h"     /* gw_uni_class, gw_utf8_decode */
#include "data/unicode_new.h" /* gw_uni_stand_in */

void gw_pre_scratch_release(gw_pre_scratch *s) {
    for (int i = 0; i < 2; i++) {
        gw_str_release(&s->text[i]);
        gw_vec_release(&s->pieces[i]);
    }
    gw_str_release(&s->stand_in);
}

/* Collects the pieces of one parent piece. */
typedef struct folder {
    gw_pre_scratch *s;
    int to; /* which list of pieces */
    gw_pre_behavior behavior;
    bool invert;
    bool any, previous_match; /* previous element of this parent */
    bool pending;             /* merged with next: a match that waits */
    gw_piece wait;
} folder;

static void push(folder *f, size_t start, size_t end) {
    gw_piece p = {(uint32_t)start, (uint32_t)(end - start)};
    gw_vec_push(&f->s->pieces[f->to], p);
    f->any = true;
}

static void extend(folder *f, size_t end) {
    gw_piece *p = &f->s->pieces[f->to].items[f->s->pieces[f->to].count - 1];
    p->len = (uint32_t)end - p->start;
}

static void flush(folder *f) {
    if (f->pending) push(f, f->wait.start, f->wait.start + f->wait.len);
    f->pending = false;
}

static void element(folder *f, size_t start, size_t end, bool match) {
    match ^= f->invert;
    switch (f->behavior) {
    case GW_PRE_ISOLATED: push(f, start, end); break;
    case GW_PRE_REMOVED:
        if (!match) push(f, start, end);
        break;
    case GW_PRE_MERGED_WITH_PREVIOUS:
        if (match && !f->previous_match && f->any)
            extend(f, end);
        else
            push(f, start, end);
        break;
    case GW_PRE_MERGED_WITH_NEXT:
        if (match) {
            flush(f);
            f->wait = (gw_piece){(uint32_t)start, (uint32_t)(end - start)};
            f->pending = true;
        } else {
            push(f, f->pending ? f->wait.start : start, end);
            f->pending = false;
        }
        break;
    case GW_PRE_CONTIGUOUS:
        if (match == f->previous_match && f->any)
            extend(f, end);
        else
            push(f, start, end);
        break;
    }
    f->previous_match = match;
}

/* A match [a, b) after the gap from *done. */
static void found(folder *f, size_t *done, size_t a, size_t b) {
    if (a > *done) element(f, *done, a, false);
    element(f, a, b, true);
    *done = b;
}

static void split_scan(folder *f, const gw_pre_step *st, int version, const uint8_t *text,
                       size_t start, size_t end) {
    for (size_t i = start; i < end;) {
        size_t e = start + gw_scan_next(st->scan, version, text + start, end - start, i - start);
        element(f, i, e, true);
        i = e;
    }
}

/* The run, or a copy of the same length in which characters that the regex library may not know are
 * replaced by older ones of their category. */
static const uint8_t *known_text(gw_pre_scratch *s, const uint8_t *run, size_t n, int version) {
    bool copied = false;
    for (size_t i = 0; i < n;) {
        int len = 1;
        if (run[i] >= 0xd8) { /* U+061D is the first that is new */
            uint32_t cp = gw_utf8_decode(run + i, run + n, &len),
                     old = gw_uni_stand_in(cp, version);
            if (old != cp && !copied) {
                gw_str_clear(&s->stand_in);
                gw_str_add_n(&s->stand_in, run, n);
                copied = true;
            }
            if (old != cp) gw_utf8_encode(old, (uint8_t *)s->stand_in.data + i);
        }
        i += (size_t)len;
    }
    return copied ? (const uint8_t *)s->stand_in.data : run;
}

static gw_status split_regex(folder *f, const gw_pre_step *st, int version, const uint8_t *text,
                             size_t start, size_t end, gw_diags *dg) {
    size_t done = start;
    for (size_t base = start; base < end; base++) {
        size_t run = gw_utf8_valid_prefix(text + base, end - base), at = 0;
        const uint8_t *subject = known_text(f->s, text + base, run, version);
        while (at <= run && run > 0) {
            size_t a, b;
            int hit = gw_regex_find(st->regex, f->s->regex, subject, run, at, &a, &b);
            if (hit < 0) return gw_regex_limit_error(dg);
            if (!hit) break;
            found(f, &done, base + a, base + b);
            int len = 1;
            if (a == b && b < run) gw_utf8_decode(text + base + b, text + base + run, &len);
            at = a == b ? b + (size_t)len : b;
        }
        base += run;
    }
    if (done < end) element(f, done, end, false);
    return GW_OK;
}

static void split_string(folder *f, const char *needle, size_t m, const uint8_t *text, size_t start,
                         size_t end) {
    size_t done = start;
    while (m > 0 && end - done >= m) {
        const uint8_t *hit = memmem(text + done, end - done, needle, m);
        if (!hit) break;
        found(f, &done, (size_t)(hit - text), (size_t)(hit - text) + m);
    }
    if (done < end) element(f, done, end, false);
}

static void split_chars(folder *f, unsigned bits, int version, const uint8_t *text, size_t start,
                        size_t end) {
    size_t done = start;
    int len;
    for (size_t i = start; i < end; i += (size_t)len) {
        uint32_t cp = gw_utf8_decode(text + i, text + end, &len);
        if (gw_uni_class(cp, version) & bits) found(f, &done, i, i + (size_t)len);
    }
    if (done < end) element(f, done, end, false);
}

/* METASPACE on one piece: appends the rewritten text and cuts it. */
static void metaspace(folder *f, const gw_pre_step *st, const uint8_t *p, size_t n, bool at_start,
                      gw_str *to) {
    size_t start = to->len;
    bool has = n >= st->text_len && !memcmp(p, st->text, st->text_len);
    if (n > 0 && p[0] == ' ') has = true;
    if (!has && (st->prepend == GW_PRE_ALWAYS || (st->prepend == GW_PRE_FIRST && at_start)))
        gw_str_add_n(to, st->text, st->text_len);
    for (size_t i = 0; i < n;) {
        const uint8_t *sp = memchr(p + i, ' ', n - i);
        size_t k = sp ? (size_t)(sp - p) : n;
        gw_str_add_n(to, p + i, k - i);
        if (sp) gw_str_add_n(to, st->text, st->text_len);
        i = k + 1;
    }
    if (st->split)
        split_string(f, st->text, st->text_len, (const uint8_t *)to->data, start, to->len);
    else
        push(f, start, to->len);
}

static gw_status run_piece(folder *f, const gw_pre_step *st, int version, const uint8_t *text,
                           gw_piece p, bool at_start, gw_str *to, gw_diags *dg) {
    size_t a = p.start, b = (size_t)p.start + p.len;
    switch (st->kind) {
    case GW_PRE_SCAN: split_scan(f, st, version, text, a, b); break;
    case GW_PRE_REGEX: GW_TRY(split_regex(f, st, version, text, a, b, dg)); break;
    case GW_PRE_STRING: split_string(f, st->text, st->text_len, text, a, b); break;
    case GW_PRE_NUMBERS: split_chars(f, GW_CLASS_NUMBER, version, text, a, b); break;
    case GW_PRE_WHITESPACE: split_chars(f, GW_CLASS_SPACE, version, text, a, b); break;
    case GW_PRE_PREFIX_SPACE: {
        size_t start = to->len;
        if (text[a] != ' ') gw_str_add_char(to, ' ');
        gw_str_add_n(to, text + a, p.len);
        push(f, start, to->len);
        break;
    }
    case GW_PRE_METASPACE: metaspace(f, st, text + a, p.len, at_start, to); break;
    }
    flush(f);
    return GW_OK;
}

gw_status gw_pre_run(const gw_pre_step *steps, int nsteps, int unicode_version, gw_pre_scratch *s,
                     const uint8_t *text, size_t n, bool at_start, const uint8_t **out,
                     const gw_piece **pieces, int64_t *npieces, gw_diags *dg) {
    int from = 0, text_turn = 0;
    s->pieces[0].count = 0;
    gw_vec_push(&s->pieces[0], ((gw_piece){0, (uint32_t)n}));
    for (int k = 0; k < nsteps; k++) {
        const gw_pre_step *st = &steps[k];
        bool rewrites = st->kind == GW_PRE_PREFIX_SPACE || st->kind == GW_PRE_METASPACE;
        gw_str *to = &s->text[text_turn];
        if (rewrites) gw_str_clear(to);
        s->pieces[!from].count = 0;
        for (int64_t i = 0; i < s->pieces[from].count; i++) {
            gw_piece p = s->pieces[from].items[i];
            if (!p.len) continue;
            folder f = {.s = s, .to = !from, .behavior = st->behavior, .invert = st->invert};
            bool first = at_start && i == 0;
            GW_TRY(run_piece(&f, st, unicode_version, text, p, first, to, dg));
            if (rewrites && to->len > INT32_MAX - 16)
                return GW_FAIL(dg, GW_ERR_UNSUPPORTED, "tokenizer-text-too-long",
                               "text grows past 2147483631 bytes before splitting");
        }
        if (rewrites) {
            text = (const uint8_t *)gw_str_c(to);
            text_turn ^= 1;
        }
        from = !from;
    }
    *out = text;
    *pieces = s->pieces[from].items;
    *npieces = s->pieces[from].count;
    return GW_OK;
}
