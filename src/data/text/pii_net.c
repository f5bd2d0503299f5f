// SPDX-License-Identifier: Apache-2.0
// E-mail and IPv4 addresses, as the two regular expressions of datatrove's PIIFormatter match them.
//
// An address of mail is found from its "@": the local part is the longest row of atoms before it,
// shortened from the left to the first word boundary (\b is the only anchor of the expression, and
// a leftmost match takes the first that serves), the domain is read greedily. Since no atom holds
// an
// "@", each "@" has one candidate and the candidates come in order.
//
// The expression for IP addresses has no anchors at all: "1234.5.6.7" holds 234.5.6.7, and the last
// number takes as many digits as its alternatives allow. A match that is no public address is
// passed over whole, as there.
#include <string.h>

#include "data/text/pii_impl.h" /* pii_email, pii_ip */
#include "data/text/words.h"    /* gw_ch_class: what \b sees */
#include "data/unicode.h"       /* gw_utf8_decode */

static bool is_atom(char c) { return pii_is_alnum(c) || (c && strchr("!#$%&'*+/=?^_`{|}~-", c)); }

static bool is_word_before(const char *text, int64_t i) {
    if (i == 0) return false;
    int64_t from = i - 1;
    while (from > 0 && i - from < 4 && ((uint8_t)text[from] & 0xc0) == 0x80) from--;
    int len;
    uint32_t cp = gw_utf8_decode((const uint8_t *)text + from, (const uint8_t *)text + i, &len);
    return from + len == i && cp != GW_CP_INVALID && gw_ch_class(cp) & GW_CH_WORD;
}

/* Digits of an octet at i that a full stop or any `close` follows: 1 to 3, or 0. */
static int octet(const char *p, const char *end) {
    int n = 0;
    while (p + n < end && n < 4 && pii_is_digit(p[n])) n++;
    if (n == 0 || n > 3) return 0;
    if (n < 3) return n;
    if (p[0] == '2') return p[1] < '5' || (p[1] == '5' && p[2] <= '5') ? 3 : 0;
    return p[0] < '2' ? 3 : 0;
}

/* [1.2.3.4] or [1.2.3.tag:] behind "@": its end, or NULL. */
static const char *literal_domain(const char *p, const char *end) {
    if (p >= end || *p++ != '[') return NULL;
    for (int i = 0; i < 3; i++) {
        int n = octet(p, end);
        if (!n || p + n >= end || p[n] != '.') return NULL;
        p += n + 1;
    }
    int n = octet(p, end);
    if (n && p + n < end && p[n] == ']') return p + n + 1;
    const char *q = p;
    while (q < end && (pii_is_alnum(*q) || *q == '-')) q++;
    if (q == p || !pii_is_alnum(q[-1]) || end - q < 2 || q[0] != ':' || q[1] != ']') return NULL;
    return q + 2;
}

/* Two or more labels: the end of the last, or NULL. */
static const char *domain(const char *p, const char *end) {
    const char *last = NULL;
    for (int labels = 0;; labels++) {
        if (p >= end || !pii_is_alnum(*p)) return labels >= 2 ? last : NULL;
        const char *q = p, *stop = p;
        for (; q < end && (pii_is_alnum(*q) || *q == '-'); q++)
            if (*q != '-') stop = q + 1;
        if (stop != q || q >= end || *q != '.') return labels >= 1 ? stop : NULL;
        last = q;
        p = q + 1;
    }
}

bool pii_email(const char *text, int64_t n, int64_t from, gw_pii_span *out) {
    const char *end = text + n;
    for (const char *at = text + from;; at++) {
        at = at < end ? memchr(at, '@', (size_t)(end - at)) : NULL;
        if (!at) return false;
        const char *first = at;
        while (first > text + from) {
            char c = first[-1];
            if (is_atom(c))
                first--;
            else if (c == '.' && first < at && *first != '.' && first - 1 > text + from &&
                     is_atom(first[-2]))
                first--;
            else
                break;
        }
        while (first < at && (*first == '.' || is_word_before(text, first - text) ==
                                                   (pii_is_alnum(*first) || *first == '_')))
            first++;
        if (first == at) continue;
        const char *stop = domain(at + 1, end);
        if (!stop) stop = literal_domain(at + 1, end);
        if (!stop) continue;
        *out = (gw_pii_span){GW_PII_EMAIL, first - text, stop - first};
        return true;
    }
}

/* What Python's ipaddress calls global. */
static bool is_global(const int v[4]) {
    static const struct {
        uint32_t net;
        int bits;
    } local[] = {
        {0x00000000, 8},  {0x0a000000, 8},  {0x64400000, 10}, {0x7f000000, 8},  {0xa9fe0000, 16},
        {0xac100000, 12}, {0xc0000000, 29}, {0xc00000aa, 31}, {0xc0000200, 24}, {0xc0a80000, 16},
        {0xc6120000, 15}, {0xc6336400, 24}, {0xcb007100, 24}, {0xf0000000, 4},
    };
    uint32_t ip =
        (uint32_t)v[0] << 24 | (uint32_t)v[1] << 16 | (uint32_t)v[2] << 8 | (uint32_t)v[3];
    for (size_t i = 0; i < sizeof local / sizeof *local; i++)
        if ((ip ^ local[i].net) >> (32 - local[i].bits) == 0) return false;
    return true;
}

/* The last number: the first alternative that matches, however many digits follow. */
static int last_octet(const char *p, const char *end) {
    int n = 0;
    while (p + n < end && n < 3 && pii_is_digit(p[n])) n++;
    if (n < 3) return n;
    if (p[0] == '2') return p[1] < '5' || (p[1] == '5' && p[2] <= '5') ? 3 : 2;
    return p[0] < '2' ? 3 : 2;
}

bool pii_ip(const pii_text *t, int64_t i, bool all, gw_pii_span *out, int64_t *skip) {
    const char *end = t->text + t->end, *run = t->text + i;
    if (!pii_is_digit(*run)) return false;
    const char *stop = run;
    while (stop < end && pii_is_digit(*stop)) stop++;
    *skip = stop - t->text;
    if (end - stop < 2 || stop[0] != '.' || !pii_is_digit(stop[1])) return false;
    const char *first = stop - run > 3 ? stop - 3 : run;
    if (!octet(first, end)) first++;
    const char *p = first;
    int v[4];
    bool zeros = false; /* a leading zero, which ipaddress refuses */
    for (int k = 0; k < 4; k++) {
        int n = k < 3 ? octet(p, end) : last_octet(p, end);
        if (!n || (k < 3 && (p + n >= end || p[n] != '.'))) return false;
        v[k] = 0;
        for (int d = 0; d < n; d++) v[k] = v[k] * 10 + (p[d] - '0');
        zeros |= n > 1 && p[0] == '0';
        p += n + (k < 3);
    }
    *skip = p - t->text;
    if (zeros || (!all && !is_global(v))) return false;
    *out = (gw_pii_span){GW_PII_IP, first - t->text, p - first};
    return true;
}
