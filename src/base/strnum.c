// SPDX-License-Identifier: Apache-2.0
// Figures from text and text from figures.
//
// Parsing takes the whole string or nothing: "12x", " 12", "0x10", "nan" and what does not fit are
// refused, because a run file or a command line that says them means something else. Printing is
// for people: three figures, a unit that keeps the number below 1000, and never "1000.0 kB" where
// rounding crosses the unit's edge.
#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/str.h"

/* ------------------------------------------------------------------------------ parsing */

/* strtoll and strtod skip white space and read hexadecimal; here a number starts like one. */
static bool starts_number(const char *s, bool decimals) {
    if (*s == '-' || *s == '+') s++;
    if (decimals && *s == '.') s++;
    return isdigit((unsigned char)*s) && !(s[0] == '0' && (s[1] == 'x' || s[1] == 'X'));
}

bool gw_parse_i64(const char *s, int64_t *out) {
    if (!starts_number(s, false)) return false;
    char *end;
    errno = 0;
    long long v = strtoll(s, &end, 10);
    if (errno || *end) return false;
    *out = v;
    return true;
}

bool gw_parse_f64(const char *s, double *out) {
    if (!starts_number(s, true)) return false;
    char *end;
    double v = strtod(s, &end);
    if (*end || !isfinite(v)) return false;
    *out = v;
    return true;
}

/* The factor of a suffix such as "", "B", "k", "MB", "GiB"; 0 where it is none. */
static int64_t byte_factor(const char *s) {
    static const char letters[] = "kmgtp";
    int64_t factor = 1;
    const char *at = *s ? strchr(letters, tolower((unsigned char)*s)) : NULL;
    if (at) {
        bool binary = s[1] == 'i';
        for (const char *c = letters; c <= at; c++) factor *= binary ? 1024 : 1000;
        s += binary ? 2 : 1;
    }
    if (*s == 'B' || *s == 'b') s++;
    return *s ? 0 : factor;
}

bool gw_parse_bytes(const char *s, int64_t *out) {
    if (!isdigit((unsigned char)*s)) return false;
    size_t n = strspn(s, "0123456789"), all = n;
    if (s[n] == '.') all = n + 1 + strspn(s + n + 1, "0123456789");
    const char *suffix = s + all;
    if (*suffix == ' ') suffix++;
    int64_t factor = byte_factor(suffix), whole = 0;
    if (!factor) return false;
    for (size_t i = 0; i < n; i++)
        if (__builtin_mul_overflow(whole, 10, &whole) ||
            __builtin_add_overflow(whole, s[i] - '0', &whole))
            return false;
    if (__builtin_mul_overflow(whole, factor, &whole)) return false;
    double part = 0, place = 0.1;
    for (size_t i = n + 1; i < all; i++, place /= 10) part += place * (double)(s[i] - '0');
    return !__builtin_add_overflow(whole, (int64_t)floor(part * (double)factor + 0.5), out);
}

/* ------------------------------------------------------------------------------ printing */

char *gw_fmt_bytes(char *buf, int64_t bytes) {
    static const char *const units[] = {"kB", "MB", "GB", "TB", "PB", "EB"};
    double x = (double)bytes;
    if (fabs(x) < 1000) {
        snprintf(buf, 24, "%d B", (int)bytes);
        return buf;
    }
    size_t u = 0;
    for (x /= 1000; fabs(x) >= 999.95 && u + 1 < GW_COUNT(units); u++) x /= 1000;
    snprintf(buf, 24, "%.1f %s", x, units[u]);
    return buf;
}

char *gw_fmt_count(char *buf, int64_t n) {
    char digits[24];
    uint64_t magnitude = n < 0 ? 0 - (uint64_t)n : (uint64_t)n;
    int len = snprintf(digits, sizeof digits, "%llu", (unsigned long long)magnitude);
    char *p = buf;
    if (n < 0) *p++ = '-';
    for (int i = 0; i < len; i++) {
        if (i && (len - i) % 3 == 0) *p++ = ',';
        *p++ = digits[i];
    }
    *p = 0;
    return buf;
}

/* Three significant figures of |x| < 1000, without an exponent. */
static int three_figures(char *buf, size_t size, double x) {
    double a = fabs(x);
    int decimals = a < 9.995 ? 2 : a < 99.95 ? 1 : 0;
    return snprintf(buf, size, "%.*f", decimals, x);
}

char *gw_fmt_si(char *buf, double x) {
    static const char *const prefixes[] = {"n", "u", "m", "", "k", "M", "G", "T", "P", "E"};
    if (!isfinite(x) || fabs(x) >= 999.5e18 || (x != 0 && fabs(x) < 1e-9)) {
        snprintf(buf, 24, "%.3g ", x);
        return buf;
    }
    size_t u = 3;
    double v = x;
    for (; fabs(v) >= 999.5; u++) v /= 1000;
    for (; v != 0 && fabs(v) < 0.9995 && u > 0; u--) v *= 1000;
    int n = x == 0 ? snprintf(buf, 16, "0") : three_figures(buf, 16, v);
    snprintf(buf + n, 24 - (size_t)n, " %s", prefixes[u]);
    return buf;
}

char *gw_fmt_seconds(char *buf, double s) {
    if (!isfinite(s) || fabs(s) >= 1e12) {
        snprintf(buf, 24, "%.3g s", s);
    } else if (fabs(s) < 59.95) {
        static const char *const units[] = {"s", "ms", "us", "ns"};
        size_t u = 0;
        double v = s;
        for (; v != 0 && fabs(v) < 0.9995 && u < 3; u++) v *= 1000;
        int n = s == 0 ? snprintf(buf, 16, "0") : three_figures(buf, 16, v);
        snprintf(buf + n, 24 - (size_t)n, " %s", units[u]);
    } else {
        const char *sign = s < 0 ? "-" : "";
        long long t = (long long)floor(fabs(s) + 0.5);
        if (t < 3600)
            snprintf(buf, 24, "%s%lldm%02llds", sign, t / 60, t % 60);
        else if (t < 86400)
            snprintf(buf, 24, "%s%lldh%02lldm", sign, t / 3600, t % 3600 / 60);
        else
            snprintf(buf, 24, "%s%lldd%02lldh", sign, t / 86400, t % 86400 / 3600);
    }
    return buf;
}
