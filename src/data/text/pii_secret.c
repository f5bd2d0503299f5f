// SPDX-License-Identifier: Apache-2.0
// Keys and other secrets: known shapes, private key blocks, and assignments of random text.
//
// Keys of known services carry a fixed beginning, so that scanners like this one find them; their
// documentation gives lengths and alphabets. Each is tried at a rare byte of its beginning (the "_"
// of "ghp_", the "K" of "AKIA"), found by the table of the caller. An assignment is a name that
// says secret, token, password or key, then ":" or "=", then at least twenty characters that look
// random: letters and digits mixed, with an entropy that words and identifiers do not reach. A
// value that is a hash does not count by itself; the name decides.
#include <math.h>
#include <string.h>

#include "data/text/pii_impl.h" /* pii_secret */

enum { UPPER = 1, LOWER = 2, DIGIT = 4, UNDER = 8, HYPHEN = 16 };

static bool has(char c, int set) {
    if (c >= 'A' && c <= 'Z') return set & UPPER;
    if (c >= 'a' && c <= 'z') return set & LOWER;
    if (pii_is_digit(c)) return set & DIGIT;
    return (c == '_' && set & UNDER) || (c == '-' && set & HYPHEN);
}

typedef struct shape {
    const char *begins; /* the whole beginning */
    int at;             /* which byte of it is the one looked for */
    int set;            /* of what follows */
    int least, most;    /* how many follow */
} shape;

#define ANY (UPPER | LOWER | DIGIT)
static const shape shapes[] = {
    {"AKIA", 1, UPPER | DIGIT, 16, 16},
    {"ghp_", 3, ANY, 36, 255},
    {"gho_", 3, ANY, 36, 255},
    {"ghu_", 3, ANY, 36, 255},
    {"ghs_", 3, ANY, 36, 255},
    {"ghr_", 3, ANY, 36, 255},
    {"github_pat_", 6, ANY | UNDER, 22, 255},
    {"glpat-", 5, ANY | UNDER | HYPHEN, 20, 64},
    {"hf_", 2, UPPER | LOWER, 34, 40},
    {"sk_live_", 2, ANY, 24, 99},
    {"rk_live_", 2, ANY, 24, 99},
    {"xoxb-", 0, ANY | HYPHEN, 20, 255},
    {"xoxp-", 0, ANY | HYPHEN, 20, 255},
    {"xoxa-", 0, ANY | HYPHEN, 20, 255},
    {"AIza", 2, ANY | UNDER | HYPHEN, 35, 35},
    {"sk-", 2, ANY | UNDER | HYPHEN, 40, 255},
};

static bool known_shape(const pii_text *t, int64_t i, gw_pii_span *out) {
    for (size_t k = 0; k < sizeof shapes / sizeof *shapes; k++) {
        const shape *s = &shapes[k];
        if (t->text[i] != s->begins[s->at]) continue;
        if (s->at && i > 0 && t->text[i - 1] != s->begins[s->at - 1]) continue;
        int64_t from = i - s->at, n = (int64_t)strlen(s->begins);
        if (from < t->from || from + n > t->end || memcmp(t->text + from, s->begins, (size_t)n))
            continue;
        if (from > 0 && (pii_is_alnum(t->text[from - 1]) || t->text[from - 1] == '_')) continue;
        int64_t p = from + n;
        int count = 0, digits = 0;
        while (count <= s->most && has(pii_at(t, p), s->set)) {
            digits += pii_is_digit(pii_at(t, p));
            p++;
            count++;
        }
        if (count < s->least || count > s->most || pii_is_alnum(pii_at(t, p))) continue;
        if (s->set & HYPHEN && s->set & DIGIT && digits < 2) continue; /* a hyphenated phrase */
        *out = (gw_pii_span){GW_PII_SECRET, from, p - from};
        return true;
    }
    return false;
}

/* Three parts of base64url, the first two of which hold JSON objects: "eyJ" is {" in it. */
static bool web_token(const pii_text *t, int64_t i, gw_pii_span *out) {
    int64_t from = i - 2;
    if (from < t->from || t->text[from] != 'e' || t->text[from + 1] != 'y') return false;
    if (from > 0 && (pii_is_alnum(t->text[from - 1]) || t->text[from - 1] == '_')) return false;
    int64_t p = from;
    for (int part = 0; part < 3; part++) {
        int64_t begin = p;
        while (has(pii_at(t, p), ANY | UNDER | HYPHEN)) p++;
        if (p - begin < 10) return false;
        if (part == 1 && memcmp(t->text + begin, "eyJ", 3) != 0) return false;
        if (part < 2 && pii_at(t, p++) != '.') return false;
    }
    *out = (gw_pii_span){GW_PII_SECRET, from, p - from};
    return true;
}

enum { KEY_BLOCK_MAX = 16384 };

/* -----BEGIN ... PRIVATE KEY----- to the end mark, or without one to the end of the text. */
static bool key_block(const pii_text *t, int64_t i, gw_pii_span *out) {
    static const char begin[] = "-----BEGIN ", tail[] = "PRIVATE KEY-----", end[] = "-----END ";
    if (t->end - i < 40 || memcmp(t->text + i, begin, sizeof begin - 1) != 0) return false;
    int64_t p = i + (int64_t)sizeof begin - 1, label = p;
    while (p - label < 32 && (has(pii_at(t, p), UPPER) || pii_at(t, p) == ' ')) p++;
    if (p - label < 11 || memcmp(t->text + p - 11, tail, 11) != 0) return false;
    int64_t room = t->end - i < KEY_BLOCK_MAX ? t->end - i : KEY_BLOCK_MAX;
    const char *stop = memmem(t->text + p, (size_t)(i + room - p), end, sizeof end - 1);
    if (!stop) return false;
    int64_t q = stop - t->text + (int64_t)sizeof end - 1;
    while (has(pii_at(t, q), UPPER) || pii_at(t, q) == ' ') q++;
    for (int k = 0; k < 5 && pii_at(t, q) == '-'; k++) q++;
    *out = (gw_pii_span){GW_PII_SECRET, i, q - i};
    return true;
}

/* Bits a character of text[from..to). */
static double entropy(const char *p, int64_t n) {
    int count[128] = {0};
    for (int64_t i = 0; i < n; i++) count[(uint8_t)p[i] & 127]++;
    double bits = 0;
    for (int c = 0; c < 128; c++)
        if (count[c]) bits -= count[c] * log2((double)count[c] / (double)n);
    return bits / (double)n;
}

static bool says_secret(const char *name, int64_t n) {
    static const char *const words[] = {"secret",    "token",       "passwd",   "password",
                                        "apikey",    "api_key",     "api-key",  "access_key",
                                        "accesskey", "private_key", "auth_key", "credential"};
    char low[64];
    if (n > 63) n = 63;
    for (int64_t i = 0; i < n; i++)
        low[i] = (char)(name[i] >= 'A' && name[i] <= 'Z' ? name[i] + 32 : name[i]);
    for (size_t k = 0; k < sizeof words / sizeof *words; k++)
        if (memmem(low, (size_t)n, words[k], strlen(words[k]))) return true;
    return false;
}

/* The name that ends before i, perhaps behind quotes and a space, says secret. */
static bool named_secret(const pii_text *t, int64_t i) {
    int64_t to = i;
    while (to > t->from && to > i - 3 && strchr("\"' ", t->text[to - 1]) && t->text[to - 1]) to--;
    int64_t from = to;
    while (from > t->from && to - from < 48 && has(t->text[from - 1], ANY | UNDER | HYPHEN)) from--;
    return to - from >= 5 && says_secret(t->text + from, to - from);
}

/* NAME = "value", NAME: value: the value. i is at the sign. Most values are short: they come first.
 */
static bool assignment(const pii_text *t, int64_t i, gw_pii_span *out) {
    int64_t p = i + 1;
    while (p - i < 4 && pii_at(t, p) && strchr("\"' =:>", pii_at(t, p))) p++;
    int64_t begin = p;
    bool digit = false, letter = false, hex = true;
    for (; p - begin <= 256; p++) {
        char c = pii_at(t, p);
        bool up = has(c, UPPER | LOWER);
        if (!up && !has(c, DIGIT | UNDER | HYPHEN) && c != '+' && c != '/' && c != '=') break;
        digit |= pii_is_digit(c);
        letter |= up;
        hex &= pii_is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
    }
    int64_t n = p - begin;
    if (n < 20 || n > 256 || !digit || !letter || !named_secret(t, i)) return false;
    if (entropy(t->text + begin, n) < (hex ? 3.0 : 3.7)) return false;
    *out = (gw_pii_span){GW_PII_SECRET, begin, n};
    return true;
}

bool pii_secret(const pii_text *t, int64_t i, gw_pii_span *out) {
    switch (t->text[i]) {
    case '=':
    case ':': return assignment(t, i, out);
    case 'J': return web_token(t, i, out);
    case '-':
        if (pii_at(t, i + 1) == '-') return key_block(t, i, out);
        return known_shape(t, i, out);
    default: return known_shape(t, i, out);
    }
}
