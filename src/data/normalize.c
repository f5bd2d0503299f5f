// SPDX-License-Identifier: Apache-2.0
// Unicode normal forms and the small text edits that tokenizer files ask for.
//
// Steps run one after another between two buffers. For the normal forms a text is cut into runs of
// valid UTF-8; ASCII passes as it is. utf8proc decomposes each character and composes the result;
// the ordering of combining marks in between is a counting sort by class here, because a run of n
// marks in the worst order must cost n, and the library's own ordering costs n squared.
//
// Lower case is a character's own mapping, as in Rust's char::to_lowercase: no context (a final
// sigma stays a sigma), and one character that becomes two, U+0130.
#include "data/normalize.h" /* gw_norm_run */

#include <string.h>
#include <utf8proc.h>

#include "base/arena.h"   /* gw_mem_realloc */
#include "data/unicode.h" /* gw_utf8_decode */

void gw_norm_scratch_release(gw_norm_scratch *s) {
    gw_str_release(&s->text[0]);
    gw_str_release(&s->text[1]);
    gw_mem_free(s->cps);
    s->cps = NULL;
    s->cps_cap = 0;
}

static void add_cp(gw_str *out, uint32_t cp) {
    uint8_t b[4];
    gw_str_add_n(out, b, (size_t)gw_utf8_encode(cp, b));
}

static int combining_class(int32_t cp) {
    return cp < 0x300 ? 0 : (int)utf8proc_get_property(cp)->combining_class;
}

/* Stable order by combining class of marks[0..n), none of which has class 0. tmp holds n. */
static void sort_marks(int32_t *marks, size_t n, int32_t *tmp) {
    size_t start[256] = {0};
    for (size_t i = 0; i < n; i++) start[combining_class(marks[i])]++;
    size_t sum = 0;
    for (int c = 0; c < 256; c++) {
        size_t k = start[c];
        start[c] = sum;
        sum += k;
    }
    for (size_t i = 0; i < n; i++) tmp[start[combining_class(marks[i])]++] = marks[i];
    memcpy(marks, tmp, n * sizeof *marks);
}

static void order_marks(int32_t *cps, size_t n, int32_t *tmp) {
    for (size_t i = 0; i < n;) {
        if (combining_class(cps[i]) == 0) {
            i++;
            continue;
        }
        size_t j = i;
        while (j < n && combining_class(cps[j]) != 0) j++;
        if (j - i > 1) sort_marks(cps + i, j - i, tmp);
        i = j;
    }
}

/* Characters whose mappings came with Unicode 12 to 15. The normaliser that Hugging Face tokenizers
 * uses has tables of Unicode 11 and leaves them as they are; so does this one, to give the same
 * ids. */
static bool mapping_is_newer(uint32_t cp) {
    if (cp < 0x32ff) return false;
    return cp == 0x32ff || (cp >= 0xa7f2 && cp <= 0xa7f4) || cp == 0xab69 ||
           (cp >= 0x10781 && cp <= 0x107ba) || cp == 0x11938 || (cp >= 0x1e030 && cp <= 0x1e06d) ||
           cp == 0x1f16c || (cp >= 0x1fbf0 && cp <= 0x1fbf9);
}

static void reserve_cps(gw_norm_scratch *s, size_t n) {
    if (n <= s->cps_cap) return;
    s->cps_cap = n + n / 2 + 64;
    s->cps = gw_mem_realloc(s->cps, s->cps_cap * sizeof *s->cps);
}

/* One valid run. */
static void normal_form(gw_norm_scratch *s, const uint8_t *p, size_t n, bool compose, bool compat,
                        gw_str *out) {
    enum { MOST = 32 }; /* no character decomposes into more (18 in Unicode 15) */
    int options = UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | (compat ? UTF8PROC_COMPAT : 0);
    size_t count = 0;
    int boundclass = 0;
    for (const uint8_t *q = p, *end = p + n; q < end;) {
        int len;
        uint32_t cp = gw_utf8_decode(q, end, &len);
        q += len;
        reserve_cps(s, count + MOST);
        utf8proc_ssize_t k = utf8proc_decompose_char((utf8proc_int32_t)cp, s->cps + count, MOST,
                                                     (utf8proc_option_t)options, &boundclass);
        if (k < 0 || k > MOST || mapping_is_newer(cp))
            s->cps[count++] = (int32_t)cp;
        else
            count += (size_t)k;
    }
    reserve_cps(s, 2 * count + 1);
    order_marks(s->cps, count, s->cps + count);
    if (compose) {
        utf8proc_ssize_t k =
            utf8proc_normalize_utf32(s->cps, (utf8proc_ssize_t)count,
                                     (utf8proc_option_t)(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
        if (k >= 0) count = (size_t)k;
    }
    for (size_t i = 0; i < count; i++) add_cp(out, (uint32_t)s->cps[i]);
}

static size_t ascii_prefix(const uint8_t *p, size_t n) {
    size_t i = 0;
    while (i < n && p[i] < 0x80) i++;
    return i;
}

static void unicode_form(gw_norm_scratch *s, gw_norm_kind kind, const uint8_t *in, size_t n,
                         gw_str *out) {
    bool compose = kind == GW_NORM_NFC || kind == GW_NORM_NFKC;
    bool compat = kind == GW_NORM_NFKC || kind == GW_NORM_NFKD;
    for (size_t i = 0; i < n;) {
        size_t plain = ascii_prefix(in + i, n - i);
        if (plain > 1 || i + plain == n) {
            /* The last ASCII character may compose with what follows. */
            size_t k = i + plain == n ? plain : plain - 1;
            gw_str_add_n(out, in + i, k);
            i += k;
            continue;
        }
        size_t run = gw_utf8_valid_prefix(in + i, n - i);
        if (run == 0) {
            gw_str_add_n(out, in + i, 1);
            i++;
            continue;
        }
        normal_form(s, in + i, run, compose, compat, out);
        i += run;
    }
}

static void lowercase(const uint8_t *in, size_t n, gw_str *out) {
    for (const uint8_t *p = in, *end = in + n; p < end;) {
        int len;
        uint32_t cp = gw_utf8_decode(p, end, &len);
        if (cp < 0x80)
            gw_str_add_char(out, (char)(cp >= 'A' && cp <= 'Z' ? cp + 32 : cp));
        else if (cp == GW_CP_INVALID)
            gw_str_add_n(out, p, 1);
        else if (cp == 0x130)
            gw_str_add(out, "i\xcc\x87");
        else
            add_cp(out, (uint32_t)utf8proc_tolower((utf8proc_int32_t)cp));
        p += len;
    }
}

static gw_status replace_regex(const gw_norm_step *step, gw_regex_scratch *regex, const uint8_t *in,
                               size_t n, gw_str *out, gw_diags *dg) {
    for (size_t base = 0; base < n;) {
        size_t run = gw_utf8_valid_prefix(in + base, n - base), at = 0, kept = 0;
        while (at <= run) {
            size_t a, b;
            int found = gw_regex_find(step->regex, regex, in + base, run, at, &a, &b);
            if (found < 0) return gw_regex_limit_error(dg);
            if (!found) break;
            gw_str_add_n(out, in + base + kept, a - kept);
            gw_str_add_n(out, step->content, step->content_len);
            kept = b;
            int len = 1;
            if (a == b && b < run) gw_utf8_decode(in + base + b, in + base + run, &len);
            at = a == b ? b + (size_t)len : b;
        }
        gw_str_add_n(out, in + base + kept, run - kept);
        base += run;
        if (base < n) gw_str_add_n(out, in + base++, 1);
    }
    return GW_OK;
}

gw_status gw_norm_replace(const gw_norm_step *step, gw_regex_scratch *regex, const uint8_t *in,
                          size_t n, gw_str *out, gw_diags *dg) {
    if (step->kind == GW_NORM_REPLACE_REGEX) return replace_regex(step, regex, in, n, out, dg);
    size_t kept = 0, m = step->pattern_len;
    while (m > 0 && n - kept >= m) {
        const uint8_t *hit = memmem(in + kept, n - kept, step->pattern, m);
        if (!hit) break;
        size_t at = (size_t)(hit - in);
        gw_str_add_n(out, in + kept, at - kept);
        gw_str_add_n(out, step->content, step->content_len);
        kept = at + m;
    }
    gw_str_add_n(out, in + kept, n - kept);
    return GW_OK;
}

/* The position before the last character of p[0..n). */
static size_t char_before(const uint8_t *p, size_t n) {
    size_t i = n - 1;
    while (i > 0 && n - i < 4 && (p[i] & 0xc0) == 0x80) i--;
    int len;
    gw_utf8_decode(p + i, p + n, &len);
    return i + (size_t)len == n ? i : n - 1;
}

static void strip(const gw_norm_step *step, const uint8_t *in, size_t n, gw_str *out) {
    size_t a = 0, b = n;
    int len;
    while (step->left && a < b && gw_uni_is_space(gw_utf8_decode(in + a, in + b, &len)))
        a += (size_t)len;
    while (step->right && b > a) {
        size_t c = char_before(in + a, b - a) + a;
        if (!gw_uni_is_space(gw_utf8_decode(in + c, in + b, &len))) break;
        b = c;
    }
    gw_str_add_n(out, in + a, b - a);
}

static gw_status run_step(const gw_norm_step *step, gw_norm_scratch *s, const uint8_t *in, size_t n,
                          gw_str *out, gw_diags *dg) {
    switch (step->kind) {
    case GW_NORM_NFC:
    case GW_NORM_NFD:
    case GW_NORM_NFKC:
    case GW_NORM_NFKD: unicode_form(s, step->kind, in, n, out); return GW_OK;
    case GW_NORM_LOWERCASE: lowercase(in, n, out); return GW_OK;
    case GW_NORM_PREPEND:
        if (n) gw_str_add_n(out, step->content, step->content_len);
        gw_str_add_n(out, in, n);
        return GW_OK;
    case GW_NORM_REPLACE:
    case GW_NORM_REPLACE_REGEX: return gw_norm_replace(step, s->regex, in, n, out, dg);
    case GW_NORM_STRIP: strip(step, in, n, out); return GW_OK;
    }
    return GW_OK;
}

gw_status gw_norm_run(const gw_norm_step *steps, int nsteps, gw_norm_scratch *s, const uint8_t *in,
                      size_t n, const uint8_t **out, size_t *nout, gw_diags *dg) {
    int turn = 0;
    for (int i = 0; i < nsteps; i++) {
        bool form = steps[i].kind <= GW_NORM_NFKD;
        if (form && ascii_prefix(in, n) == n) continue;
        gw_str *to = &s->text[turn];
        gw_str_clear(to);
        gw_str_reserve(to, n + 16);
        GW_TRY(run_step(&steps[i], s, in, n, to, dg));
        in = (const uint8_t *)gw_str_c(to);
        n = to->len;
        turn ^= 1;
        if (n > INT32_MAX - 1)
            return GW_FAIL(dg, GW_ERR_UNSUPPORTED, "tokenizer-text-too-long",
                           "text normalises to %zu bytes; the most is 2147483646", n);
    }
    *out = in;
    *nout = n;
    return GW_OK;
}
