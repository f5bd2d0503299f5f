// SPDX-License-Identifier: Apache-2.0
// See fuzz.h.
//
// A round takes a seed and applies one to six changes: bits flipped, bytes set, ranges cut,
// doubled, moved, zeroed; integers overwritten with values at the edges of their types; the tail
// lost; a range of another seed copied in; and for text, words of the format's language put in
// place of a run of letters or digits, since most random bytes die in the lexer. The round and
// counters stand in memory shared with the parent, which knows where a child died. An alarm ends a
// child that hangs.
#include "fuzz.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/io.h"  /* gw_file_read, gw_file_write_atomic */
#include "base/rng.h" /* gw_rng_u64 */
#include "harness.h"

enum { HANG_S = 40, MOST_BYTES = 1 << 20 };

void fuzz_seed(fuzz *f, const void *bytes, size_t n) {
    CHECK(f->nseeds < (int)GW_COUNT(f->seeds));
    gw_str_add_n(&f->seeds[f->nseeds++], bytes, n);
}

void fuzz_seed_file(fuzz *f, const char *below) {
    gw_str s = {0};
    gw_diags dg;
    gw_diags_init(&dg);
    CHECK_OK(gw_file_read(test_source_path(below), 0, &s, &dg), &dg);
    fuzz_seed(f, s.data, s.len);
    gw_str_release(&s);
    gw_diags_release(&dg);
}

/* ---- changes ---- */

typedef struct dice {
    gw_rng_key key;
    uint64_t next;
} dice;

static uint64_t roll(dice *d) { return gw_rng_u64(d->key, d->next++); }
static size_t below(dice *d, size_t n) { return n ? (size_t)(roll(d) % n) : 0; }

static size_t place_in(const fuzz *f, const gw_str *s, dice *d) {
    size_t n = s->len;
    if (f->hot > 0 && (size_t)f->hot < n && roll(d) % 8) n = (size_t)f->hot;
    return below(d, n);
}

/* Bytes [at, at + cut) become `n` other bytes. */
static void splice(gw_str *s, size_t at, size_t cut, const void *bytes, size_t n) {
    gw_str r = {0};
    cut = GW_MIN(cut, s->len - at);
    gw_str_add_n(&r, s->data, at);
    gw_str_add_n(&r, bytes, n);
    gw_str_add_n(&r, s->data + at + cut, s->len - at - cut);
    gw_str_release(s);
    *s = r;
}

static void set_integer(gw_str *s, size_t at, dice *d) {
    static const uint64_t edges[] = {0,
                                     1,
                                     2,
                                     0x7f,
                                     0x80,
                                     0xff,
                                     0x7fff,
                                     0x8000,
                                     0xffff,
                                     0x7fffffff,
                                     0x80000000,
                                     0xffffffff,
                                     0x100000000,
                                     INT64_MAX,
                                     UINT64_C(1) << 63,
                                     UINT64_MAX,
                                     UINT64_MAX - 7,
                                     INT64_MAX - 63,
                                     UINT64_C(1) << 62,
                                     64,
                                     1 << 20,
                                     1 << 30};
    uint64_t v = edges[below(d, GW_COUNT(edges))];
    size_t width = (size_t)1 << below(d, 4);
    if (roll(d) % 2) at -= at % width;
    memcpy(s->data + at, &v,
           GW_MIN(width, s->len - at)); /* little-endian machines: the formats' own order */
}

static bool is_word(char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
           c == '.' || c == '-';
}

/* A run of word characters around `at` becomes a word of the language. */
static void set_word(const fuzz *f, gw_str *s, size_t at, dice *d) {
    size_t from = at, to = at, n = 0;
    while (from > 0 && is_word(s->data[from - 1])) from--;
    while (to < s->len && is_word(s->data[to])) to++;
    while (f->words[n]) n++;
    const char *w = f->words[below(d, n)];
    splice(s, from, to - from, w, strlen(w));
}

static void change(const fuzz *f, gw_str *s, dice *d) {
    if (s->len == 0) {
        gw_str_add_n(s, "0", 1);
        return;
    }
    size_t at = place_in(f, s, d), n = 1 + below(d, (size_t)1 << below(d, 8));
    n = GW_MIN(n, s->len - at);
    unsigned char byte = (unsigned char)roll(d);
    size_t how = below(d, f->words ? 16 : 10);
    switch (how) {
    case 0: s->data[at] = (char)(s->data[at] ^ (1 << (byte % 8))); break;
    case 1: s->data[at] = (char)byte; break;
    case 2: splice(s, at, n, "", 0); break;
    case 3: splice(s, at, 0, s->data + at, n); break; /* splice copies before it frees */
    case 4: memset(s->data + at, byte % 3 ? 0 : 0xff, n); break;
    case 5:
    case 6: set_integer(s, at, d); break;
    case 7: {
        const gw_str *o = &f->seeds[below(d, (size_t)f->nseeds)];
        size_t from = below(d, o->len), k = GW_MIN(n, o->len - from);
        splice(s, at, roll(d) % 2 ? k : 0, o->data + from, k);
        break;
    }
    case 8:
        if (byte < 24) s->len = at; /* the tail is lost, now and then */
        break;
    case 9: {
        static const char marks[] = "{}[]\",:'#&*!|>%@-+.eE \n\t\\/0123456789\0\x80\xff";
        splice(s, at, roll(d) % 2, &marks[below(d, sizeof marks - 1)], 1);
        break;
    }
    default: set_word(f, s, at, d); break;
    }
}

static void make_input(const fuzz *f, int64_t round, gw_str *out) {
    dice d = {.key = gw_rng_key_fold(gw_rng_key_named(20, f->name), (uint64_t)round)};
    const gw_str *seed = &f->seeds[below(&d, (size_t)f->nseeds)];
    gw_str_add_n(out, seed->data, seed->len);
    for (size_t k = 1 + below(&d, 1 + below(&d, 6)); k > 0; k--) change(f, out, &d);
    if (out->len > MOST_BYTES) out->len = MOST_BYTES;
}

/* ---- running ---- */

typedef struct shared {
    int64_t round, accepted, refused;
} shared;

/* The target gets a block of exactly its size, so that a read past the end is seen. */
static gw_status feed(const fuzz *f, const gw_str *s, gw_diags *dg) {
    char *exact = malloc(s->len ? s->len : 1);
    CHECK(exact != NULL);
    memcpy(exact, s->data ? s->data : "", s->len);
    gw_status st = f->target(exact, s->len, dg);
    free(exact);
    return st;
}

static void run_rounds(const fuzz *f, int64_t rounds, shared *at) {
    for (int64_t r = 0; r < rounds; r++) {
        at->round = r;
        alarm(HANG_S);
        gw_str s = {0};
        gw_diags dg;
        gw_diags_init(&dg);
        make_input(f, r, &s);
        gw_status st = feed(f, &s, &dg);
        CHECK_MSG(st == GW_OK || dg.nerrors > 0, "%s, round %lld: an error without a diagnostic",
                  f->name, (long long)r);
        *(st == GW_OK ? &at->accepted : &at->refused) += 1;
        gw_diags_release(&dg);
        gw_str_release(&s);
    }
    alarm(0);
}

static void keep_input(const fuzz *f, int64_t round) {
    const char *dir = getenv("GW_FUZZ_KEEP");
    if (!dir) return;
    gw_str s = {0}, path = {0};
    make_input(f, round, &s);
    gw_str_printf(&path, "%s/%s-%lld", dir, f->name, (long long)round);
    if (gw_file_write_atomic(gw_str_c(&path), s.data, (int64_t)s.len, NULL) == GW_OK)
        printf("the input is in %s\n", gw_str_c(&path));
    gw_str_release(&s);
    gw_str_release(&path);
}

void fuzz_run(fuzz *f, int64_t rounds) {
    gw_diags dg;
    gw_diags_init(&dg);
    for (int i = 0; i < f->nseeds; i++) CHECK_OK(feed(f, &f->seeds[i], &dg), &dg);
    gw_diags_release(&dg);
    shared *at = mmap(NULL, sizeof *at, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(at != MAP_FAILED);
    fflush(NULL);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        run_rounds(f, rounds, at);
        exit(0); /* through the leak checker */
    }
    int status = 0;
    CHECK(waitpid(child, &status, 0) == child);
    if (status != 0) {
        keep_input(f, at->round);
        test_fail(__FILE__, __LINE__, "%s: round %lld of %lld %s %d", f->name, (long long)at->round,
                  (long long)rounds, WIFSIGNALED(status) ? "ended by signal" : "left with",
                  WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
    }
    test_note("%s: %lld accepted, %lld refused", f->name, (long long)at->accepted,
              (long long)at->refused);
    CHECK_MSG(at->accepted * 1000 >= rounds && at->refused * 1000 >= rounds,
              "%lld accepted, %lld refused", (long long)at->accepted, (long long)at->refused);
    munmap(at, sizeof *at);
    for (int i = 0; i < f->nseeds; i++) gw_str_release(&f->seeds[i]);
    f->nseeds = 0;
}
