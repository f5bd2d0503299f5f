// SPDX-License-Identifier: Apache-2.0
// Telephone and payment card numbers.
//
// A telephone number is taken in two forms only, since any row of digits could be one: written
// internationally, "+", a country code and groups of digits, eight to fifteen in all (E.164); or as
// North America writes it, three, three and four digits whose first two groups begin with 2 to 9,
// with "-", "." or a space between, perhaps "(...)" around the first and "1" before. Neither may
// touch further digits or letters, which keeps versions, dates, ISBNs and hashes out.
//
// A card number has the length and first digits of an issuer, is written without gaps or in the
// groups that are printed on cards, and its Luhn sum is zero: one random row in ten would pass the
// last, so the first two matter.
#include "data/text/pii_impl.h" /* pii_phone, pii_card */

/* A byte that may not stand directly beside a number. */
static bool touches(char c) { return pii_is_alnum(c) || c == '_' || (uint8_t)c >= 0x80; }
/* Nor may a mark with a digit behind it: "1.202-555-0100", "555-0100.7", "2-4111...". */
static bool follows_more(const pii_text *t, int64_t i) {
    char c = pii_at(t, i);
    if (touches(c)) return true;
    return (c == '-' || c == '.' || c == '/' || c == ':' || c == ',') &&
           pii_is_digit(pii_at(t, i + 1));
}
static bool precedes_more(const pii_text *t, int64_t i) {
    char c = i > 0 ? t->text[i - 1] : 0;
    if (touches(c) || c == '+' || c == '$' || c == '#') return true;
    return (c == '-' || c == '.' || c == '/' || c == ':' || c == ',' || c == '=') && i > 1 &&
           touches(t->text[i - 2]);
}

static bool international(const pii_text *t, int64_t i, gw_pii_span *out) {
    if (i > 0 && (touches(t->text[i - 1]) || t->text[i - 1] == '+' || t->text[i - 1] == ')'))
        return false;
    int64_t p = i + 1, stop = i;
    char c = pii_at(t, p);
    if (c < '1' || c > '9') return false;
    int digits = 0, groups = 1;
    bool open = false;
    for (;; p++) {
        c = pii_at(t, p);
        if (pii_is_digit(c)) {
            digits++;
            stop = p + 1;
            if (digits > 15) return false;
            continue;
        }
        char next = pii_at(t, p + 1);
        if ((c == ' ' || c == '-' || c == '.') && (pii_is_digit(next) || (next == '(' && !open))) {
            groups++;
            continue;
        }
        if (c == '(' && !open && pii_is_digit(next)) {
            open = true;
            groups++;
            continue;
        }
        if (c == ')' && open && (pii_is_digit(next) || next == ' ' || next == '-')) {
            open = false;
            continue;
        }
        break;
    }
    if (open || digits < (groups > 1 ? 8 : 10) || follows_more(t, stop)) return false;
    *out = (gw_pii_span){GW_PII_PHONE, i, stop - i};
    return true;
}

static bool three(const pii_text *t, int64_t i) {
    char c = pii_at(t, i);
    return c >= '2' && c <= '9' && pii_is_digit(pii_at(t, i + 1)) && pii_is_digit(pii_at(t, i + 2));
}

static bool north_american(const pii_text *t, int64_t i, gw_pii_span *out) {
    int64_t p = i;
    if (precedes_more(t, i)) return false;
    if (pii_at(t, p) == '1' &&
        (pii_at(t, p + 1) == '-' || pii_at(t, p + 1) == '.' || pii_at(t, p + 1) == ' '))
        p += 2;
    bool paren = pii_at(t, p) == '(';
    p += paren;
    if (!three(t, p)) return false;
    p += 3;
    char mark = pii_at(t, p);
    if (paren) {
        if (mark != ')') return false;
        p++;
        if (pii_at(t, p) == ' ' || pii_at(t, p) == '-') p++;
        mark = 0;
    } else {
        if (mark != '-' && mark != '.' && mark != ' ') return false;
        p++;
    }
    if (!three(t, p)) return false;
    p += 3;
    char second = pii_at(t, p);
    if (mark ? second != mark : second != '-' && second != '.' && second != ' ') return false;
    p++;
    for (int k = 0; k < 4; k++)
        if (!pii_is_digit(pii_at(t, p + k))) return false;
    p += 4;
    if (follows_more(t, p)) return false;
    /* Digits with spaces alone are as likely a table: they need "1 " or "(" before. */
    if (mark == ' ' && p - i < 14) return false;
    *out = (gw_pii_span){GW_PII_PHONE, i, p - i};
    return true;
}

bool pii_phone(const pii_text *t, int64_t i, gw_pii_span *out) {
    return pii_at(t, i) == '+' ? international(t, i, out) : north_american(t, i, out);
}

static bool luhn(const char *digit, int n) {
    int sum = 0;
    for (int i = 0; i < n; i++) {
        int d = digit[n - 1 - i] - '0';
        if (i % 2) d = d > 4 ? 2 * d - 9 : 2 * d;
        sum += d;
    }
    return sum % 10 == 0;
}

/* Whether an issuer has numbers of n digits that begin so. */
static bool issuer(const char *digit, int n) {
    int first4 =
        (digit[0] - '0') * 1000 + (digit[1] - '0') * 100 + (digit[2] - '0') * 10 + digit[3] - '0';
    int first2 = first4 / 100, first3 = first4 / 10;
    if (digit[0] == '4') return n == 13 || n == 16 || n == 19;
    if ((first2 >= 51 && first2 <= 55) || (first4 >= 2221 && first4 <= 2720)) return n == 16;
    if (first2 == 34 || first2 == 37) return n == 15;
    if (first2 == 36 || first2 == 38 || (first3 >= 300 && first3 <= 305)) return n == 14;
    if (first4 == 6011 || first2 == 65 || (first3 >= 644 && first3 <= 649) || first2 == 62)
        return n >= 16 && n <= 19;
    return first4 >= 3528 && first4 <= 3589 && n >= 16;
}

bool pii_card(const pii_text *t, int64_t i, gw_pii_span *out) {
    if (!pii_is_digit(pii_at(t, i)) || precedes_more(t, i)) return false;
    char digit[20];
    int n = 0, in_group = 0, groups[6] = {0}, ngroups = 0;
    char mark = 0;
    int64_t p = i;
    for (;; p++) {
        char c = pii_at(t, p);
        if (pii_is_digit(c)) {
            if (n == 19) return false;
            digit[n++] = c;
            in_group++;
            continue;
        }
        if ((c != ' ' && c != '-') || (mark && c != mark) || !pii_is_digit(pii_at(t, p + 1)) ||
            ngroups == 5)
            break;
        mark = c;
        groups[ngroups++] = in_group;
        in_group = 0;
    }
    groups[ngroups] = in_group;
    if (n < 13 || follows_more(t, p)) return false;
    bool fours = true;
    for (int g = 0; g < ngroups; g++) fours &= groups[g] == 4;
    bool printed = ngroups == 0 || (fours && in_group <= 4) ||
                   (ngroups == 2 && groups[0] == 4 && groups[1] == 6);
    if (!printed || !issuer(digit, n) || !luhn(digit, n)) return false;
    bool same = true;
    for (int k = 1; k < n; k++) same &= digit[k] == digit[0];
    if (same) return false;
    *out = (gw_pii_span){GW_PII_CARD, i, p - i};
    return true;
}
