// SPDX-License-Identifier: Apache-2.0
// What spaCy takes for an address (URL_MATCH of its tokenizer_exceptions), in linear time.
//
// The library's pattern is: an optional scheme and "://", an optional user part that ends in "@", a
// public IPv4 address or a host name whose last label is two to 63 small letters, an optional port
// of two to five digits, and an optional rest that begins with "/", "?" or "#". It is matched by
// trying; what can be tried is little, since a scheme ends at the first "://", a user part at some
// "@", and a host holds none of the marks that end it. So each possible start of a host is tried in
// turn, and a host is read once from each: starts are separated by "@", which no host holds.
#include "data/text/words_impl.h" /* words_is_url */

#include <string.h>

typedef struct url {
    const uint32_t *cls, *at;
    const char *text;
    int64_t hi;
} url;

static bool is(const url *u, int64_t i, char c) { return i < u->hi && u->text[u->at[i]] == c; }

/* Letters and digits of ASCII, and U+00A1..U+FFFF. */
static bool is_host(const url *u, int64_t i) {
    if (i >= u->hi) return false;
    uint8_t c = (uint8_t)u->text[u->at[i]];
    if (c < 128) return (uint8_t)((c | 32) - 'a') < 26 || (uint8_t)(c - '0') < 10;
    uint32_t bytes = u->at[i + 1] - u->at[i];
    if (bytes == 2) return c > 0xc2 || (uint8_t)u->text[u->at[i] + 1] >= 0xa1;
    return bytes == 3;
}

/* Port and path from i: all that may follow a host. */
static bool tail(const url *u, int64_t i) {
    if (is(u, i, ':')) {
        int64_t digits = 0;
        while (i + 1 + digits < u->hi && u->cls[i + 1 + digits] & GW_CH_DIGIT) digits++;
        if (digits < 2 || digits > 5) return false;
        i += 1 + digits;
    }
    return i == u->hi || is(u, i, '/') || is(u, i, '?') || is(u, i, '#');
}

/* How many digits stand at i (at most 4), the number they are and the first of them. Digits of
 * other scripts count as 0. */
static int64_t octet(const url *u, int64_t i, int *value, int *first_digit) {
    int64_t n = 0;
    *value = 0;
    *first_digit = -1;
    while (i + n < u->hi && n < 4 && u->cls[i + n] & GW_CH_DIGIT) {
        uint8_t c = (uint8_t)u->text[u->at[i + n]];
        int d = c < 128 ? c - '0' : 0;
        if (n == 0) *first_digit = d;
        *value = *value * 10 + d;
        n++;
    }
    return n;
}

/* A dotted address that is neither private nor reserved, as the pattern spells it. */
static bool ip_host(const url *u, int64_t i) {
    int v[4], first[4];
    int64_t len[4];
    for (int k = 0; k < 4; k++) {
        if (k && !is(u, i++, '.')) return false;
        len[k] = octet(u, i, &v[k], &first[k]);
        if (len[k] < 1 || len[k] > 3) return false;
        if (len[k] == 3 && (v[k] > 255 || first[k] == 0)) return false;
        i += len[k];
    }
    if (first[0] == 0 || v[0] > 223 || v[0] < 1) return false;
    if (first[3] == 0 || v[3] < 1 || v[3] > 254) return false;
    if (v[0] == 10 || v[0] == 127) return false;
    if ((v[0] == 169 && v[1] == 254) || (v[0] == 192 && v[1] == 168)) return false;
    if (v[0] == 172 && v[1] >= 16 && v[1] <= 31) return false;
    return tail(u, i);
}

/* Labels, each ended by a full stop, then letters that are small or of a script without case. */
static bool name_host(const url *u, int64_t i) {
    for (;;) {
        int64_t from = i;
        while (is_host(u, i) || is(u, i, '_') || is(u, i, '-')) i++;
        int64_t n = i - from;
        if (!is(u, i, '.') || n < 1 || n > 64 || !is_host(u, from) || !is_host(u, i - 1))
            return false;
        i++;
        int64_t letters = 0;
        while (i + letters < u->hi && letters < 64 && u->cls[i + letters] & GW_CH_LOWER) letters++;
        if (letters >= 2 && letters <= 63 && tail(u, i + letters)) return true;
    }
}

bool words_is_url(const uint32_t *cls, const uint32_t *at, const char *text, int64_t from,
                  int64_t to) {
    const char *p = text + at[from];
    if (!memchr(p, '.', at[to] - at[from])) return false;
    url u = {cls, at, text, to};
    if (ip_host(&u, from) || name_host(&u, from)) return true;
    int64_t scheme = from;
    while (scheme < to && (cls[scheme] & GW_CH_WORD || is(&u, scheme, '+') || is(&u, scheme, '-') ||
                           is(&u, scheme, '.')))
        scheme++;
    if (scheme - from >= 2 && is(&u, scheme, ':') && is(&u, scheme + 1, '/') &&
        is(&u, scheme + 2, '/') && (ip_host(&u, scheme + 3) || name_host(&u, scheme + 3)))
        return true;
    for (int64_t i = from + 1; i < to; i++)
        if (is(&u, i, '@') && (ip_host(&u, i + 1) || name_host(&u, i + 1))) return true;
    return false;
}
