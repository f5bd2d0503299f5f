// SPDX-License-Identifier: Apache-2.0
// Formulas as they are printed, evaluated.
//
// A formula beside code that computes something else is the usual fault of such pages. Here the
// text is the code: what is printed as the formula is what is evaluated, and the line with numbers
// in it is the same text with each name replaced. Numbers are doubles: bytes are exact up to 2^53.
//
//     sum     = product { (+|-) product }
//     product = power { (*|/) power }
//     power   = [-] item [ ^ power ]
//     item    = number | name | name ( sum { , sum } ) | ( sum )
//
// Functions: ceil floor sqrt log2 log10 erfc; min max gt (1 if a > b, else 0); fp16 and bf16 round
// as these types do, to even; binomial(n, p, q) is the least k with P(X <= k) >= q.
#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/num.h" /* gw_bf16_from_f32, gw_fp16_from_f32 */
#include "base/str.h" /* gw_str, gw_fmt_count */
#include "plan/explain.h"

#define NO_NUMBER ((double)NAN)

enum { DEEPEST = 32, ARGUMENTS = 3, MOST_TRIALS = 1000000 };

typedef struct parser {
    gw_explain *e;
    const char *at;
    int depth;
} parser;

static double binomial(double n, double p, double q) {
    if (!(n >= 0 && n <= MOST_TRIALS && p > 0 && p < 1 && q < 1)) return NO_NUMBER;
    double sum = 0;
    for (int k = 0; k <= (int)n; k++) {
        sum += exp(lgamma(n + 1) - lgamma(k + 1.0) - lgamma(n - k + 1) + k * log(p) +
                   (n - k) * log1p(-p));
        if (sum >= q) return k;
    }
    return n;
}

static double call(const char *name, size_t n, int nargs, const double a[ARGUMENTS]) {
#define IS(text, count) (nargs == (count) && strlen(text) == n && strncmp(name, text, n) == 0)
    if (IS("ceil", 1)) return ceil(a[0]);
    if (IS("floor", 1)) return floor(a[0]);
    if (IS("sqrt", 1)) return sqrt(a[0]);
    if (IS("log2", 1)) return log2(a[0]);
    if (IS("log10", 1)) return log10(a[0]);
    if (IS("erfc", 1)) return erfc(a[0]);
    if (IS("min", 2)) return fmin(a[0], a[1]);
    if (IS("max", 2)) return fmax(a[0], a[1]);
    if (IS("gt", 2)) return a[0] > a[1] ? 1 : 0;
    if (IS("fp16", 1)) return (double)gw_fp16_to_f32(gw_fp16_from_f32((float)a[0]));
    if (IS("bf16", 1)) return (double)gw_bf16_to_f32(gw_bf16_from_f32((float)a[0]));
    if (IS("binomial", 3)) return binomial(a[0], a[1], a[2]);
    return NO_NUMBER;
#undef IS
}

static double sum(parser *p);

static void skip(parser *p) {
    while (*p->at == ' ') p->at++;
}

static bool take(parser *p, char c) {
    skip(p);
    if (*p->at != c) return false;
    p->at++;
    return true;
}

static size_t name_length(const char *s) {
    size_t n = 0;
    while (isalnum((unsigned char)s[n]) || s[n] == '_') n++;
    return n;
}

static double name_or_call(parser *p) {
    const char *name = p->at;
    size_t n = name_length(name);
    p->at += n;
    if (!take(p, '(')) {
        gw_explain_variable *v = gw_explain_variable_find(p->e, name, n);
        if (!v) return NO_NUMBER;
        v->used = true;
        return v->value;
    }
    double args[ARGUMENTS] = {0};
    int nargs = 0;
    do args[nargs++] = sum(p);
    while (nargs < ARGUMENTS && take(p, ','));
    return take(p, ')') ? call(name, n, nargs, args) : NO_NUMBER;
}

static double item(parser *p) {
    skip(p);
    if (take(p, '(')) {
        double x = sum(p);
        return take(p, ')') ? x : NO_NUMBER;
    }
    if (isalpha((unsigned char)*p->at)) return name_or_call(p);
    char *end;
    double x = strtod(p->at, &end);
    if (end == p->at) return NO_NUMBER;
    p->at = end;
    return x;
}

static double power(parser *p) {
    if (p->depth >= DEEPEST) return NO_NUMBER;
    p->depth++;
    bool minus = take(p, '-');
    double x = item(p);
    if (take(p, '^')) x = pow(x, power(p));
    p->depth--;
    return minus ? -x : x;
}

static double product(parser *p) {
    double x = power(p);
    for (;;)
        if (take(p, '*'))
            x *= power(p);
        else if (take(p, '/'))
            x /= power(p);
        else
            return x;
}

static double sum(parser *p) {
    double x = product(p);
    for (;;)
        if (take(p, '+'))
            x += product(p);
        else if (take(p, '-'))
            x -= product(p);
        else
            return x;
}

double gw_explain_eval(gw_explain *e, const char *formula) {
    parser p = {.e = e, .at = formula};
    double x = sum(&p);
    skip(&p);
    return *p.at ? NO_NUMBER : x;
}

gw_explain_variable *gw_explain_variable_find(gw_explain *e, const char *name, size_t n) {
    for (int i = 0; i < e->nvariables; i++)
        if (strlen(e->variables[i].name) == n && strncmp(e->variables[i].name, name, n) == 0)
            return &e->variables[i];
    return NULL;
}

static void add_number(gw_str *s, double x) {
    char buf[40];
    if (fabs(x) < 9e15 && x == floor(x))
        gw_str_add(s, gw_fmt_count(buf, (int64_t)x));
    else
        gw_str_printf(s, "%.6g", x);
}

const char *gw_explain_substitute(gw_explain *e, const char *formula) {
    gw_str s = {0};
    for (const char *p = formula; *p;) {
        size_t n = isalpha((unsigned char)*p) ? name_length(p) : 0;
        const gw_explain_variable *v = n ? gw_explain_variable_find(e, p, n) : NULL;
        if (v)
            add_number(&s, v->value);
        else if (n)
            gw_str_add_n(&s, p, n);
        else
            for (n = 1, gw_str_add_char(&s, *p);
                 isdigit((unsigned char)*p) && (isalnum((unsigned char)p[n]) || p[n] == '.'); n++)
                gw_str_add_char(&s, p[n]);
        p += n;
    }
    const char *text = gw_arena_strdup(&e->mem, gw_str_c(&s));
    gw_str_release(&s);
    return text;
}
